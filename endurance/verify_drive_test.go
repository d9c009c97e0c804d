package endurance

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// spoiler makes corruptions below the commands of a simulated drive.
type spoiler struct {
	t    *testing.T
	raw  *sim.Raw
	old  *sim.Snapshot
	rng  *rand.Rand
	want map[uint64]run.MismatchKind
	lba  int
}

func (s *spoiler) block(lba uint64) []byte {
	s.t.Helper()
	b := make([]byte, s.lba)
	if err := s.raw.Read(lba, b); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// spoil makes the n-th kind of corruption of two blocks that nothing was done to.
func (s *spoiler) spoil(n int, a, b uint64) {
	s.t.Helper()
	was := s.old.Data[a*uint64(s.lba):][:s.lba]
	var err error
	switch n % 5 {
	case 0:
		err = s.raw.Copy(a, b, 1)
		s.want[b] = run.MismatchMisdirected
	case 1:
		err = s.raw.Swap(a, b, 1)
		s.want[a], s.want[b] = run.MismatchMisdirected, run.MismatchMisdirected
	case 2:
		err = s.raw.Flip(a, s.rng.Uint64N(uint64(s.lba)*8))
		s.want[a] = run.MismatchRotten
	case 3:
		if bytes.Equal(was, s.block(a)) {
			return
		}
		err = s.raw.Tear(a, 1, 64+s.rng.Uint64N(uint64(s.lba)-128), s.old)
		s.want[a] = run.MismatchTorn
	default:
		if bytes.Equal(was, s.block(a)) {
			return
		}
		err = s.raw.Restore(s.old, a, 1)
		s.want[a] = run.MismatchLost
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// 10,000 corruptions below the commands of a simulated drive, 500 in a short run:
// raw blocks copied, swapped, flipped, half-written and restored to an older
// state. All are found, and named right.
func TestVerify_namesCorruptionsOfASimulatedDrive(t *testing.T) {
	total := 500
	if os.Getenv("NVOP_LONG") != "" {
		total = 10_000
	}
	t.Logf("%d corruptions (10,000 with NVOP_LONG=1)", total)
	for round := uint64(0); total > 0; round++ {
		p, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
		d, err := sim.New(p, sim.Options{Seed: 7, Start: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Contents: sim.ContentsSparse})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.KeepContents(); err != nil {
			t.Fatal(err)
		}
		const blocks = 8192
		job := run.Job{Seed: round, CapacityBytes: blocks * 512, LBABytes: 512, TimeLapse: 1, Workers: 2, Phases: []run.Phase{
			{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: 16384, Depth: 8, End: run.End{Passes: 1}},
			{Kind: run.PhaseMeasure, Pattern: run.PatternRandom, BlockBytes: 4096, Depth: 16, End: run.End{Bytes: blocks * 512 * 19 / 10}},
		}}
		m := &memory{cutAfter: 8}
		session := func(j run.Job, m *memory, of *Written) (run.Verdict, error) {
			cfg := Config{Job: j, Recorder: m, Of: of, CheckpointOps: 100, StartWallUnixNS: 1,
				Queues: func(int) (nvmeioctl.IOQueue, error) { return d.Queue(1, 64, 1) }}
			if cp := m.cp; cp.Number != 0 {
				cfg.Resume = &cp
			}
			return Simulate(context.Background(), cfg, d.Clock())
		}
		if _, err := session(job, m, nil); !errors.Is(err, errCut) {
			t.Fatalf("it was to crash: %v", err)
		}
		raw, err := d.Raw(1)
		if err != nil {
			t.Fatal(err)
		}
		old, err := raw.Snapshot(0, blocks)
		if err != nil {
			t.Fatal(err)
		}
		m.cutAfter = 0
		if v, err := session(job, m, nil); err != nil || v.ExitCode != 0 {
			t.Fatalf("%v, %+v", err, v)
		}
		s := &spoiler{t: t, raw: raw, old: old, rng: rand.New(rand.NewPCG(round, 2)), want: map[uint64]run.MismatchKind{}, lba: 512}
		order := s.rng.Perm(blocks)
		made := min(total, blocks/4)
		for n := range made {
			s.spoil(n, uint64(order[2*n]), uint64(order[2*n+1]))
		}
		total -= made
		j := run.Job{Seed: 1, CapacityBytes: job.CapacityBytes, LBABytes: 512, TimeLapse: 1, Workers: 2, Phases: []run.Phase{verifyPhase(32768)}}
		j.Verify.Of = &run.VerifyOf{Run: "r1", Checkpoint: m.cp.Number}
		found := &memory{}
		v, err := session(j, found, &Written{Job: job, Checkpoint: m.cp, StartWallUnixNS: 1})
		if err != nil {
			t.Fatal(err)
		}
		compareFindings(t, "simulated drive", found, s.want, &v)
		if v.Verified.Blocks != blocks {
			t.Errorf("%d of %d blocks were compared", v.Verified.Blocks, blocks)
		}
		t.Logf("round %d: %d wrong blocks, %+v", round, len(s.want), v.Verified)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
