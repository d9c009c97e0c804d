package endurance

import (
	"testing"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// keeper is a queue over memory that carries everything out at once and
// allocates nothing.
type keeper struct {
	bytes []byte
	done  []nvmeioctl.IOResult
	now   nvmeioctl.Instant
}

func (k *keeper) Depth() int   { return cap(k.done) }
func (k *keeper) Close() error { return nil }

func (k *keeper) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		x := &r[i]
		at := k.bytes[x.OffsetBytes : x.OffsetBytes+int64(x.LengthBytes)]
		switch x.Op {
		case nvmeioctl.OpRead:
			copy(x.Buf, at)
		case nvmeioctl.OpWrite:
			copy(at, x.Buf)
		}
		k.now++
		k.done = append(k.done, nvmeioctl.IOResult{Tag: x.Tag, Done: k.now})
	}
	return len(r), nil
}

func (k *keeper) Reap(res []nvmeioctl.IOResult, _ nvmeioctl.Instant) (int, error) {
	n := copy(res, k.done)
	k.done = k.done[:copy(k.done, k.done[n:])]
	return n, nil
}

// checkedWorker is a worker in a phase that checks what it reads, over memory.
func checkedWorker(t testing.TB, p run.Phase, flush int64, useMap bool) (*worker, *track) {
	t.Helper()
	job := run.Job{Seed: 3, CapacityBytes: 4 << 20, LBABytes: 512, TimeLapse: 1, Workers: 1, Phases: []run.Phase{p}}
	job.Verify.FlushIntervalNS, job.Verify.GenerationMap = flush, useMap
	if err := job.Validate(); err != nil {
		t.Fatal(err)
	}
	st, err := newStage(&job, 0)
	if err != nil {
		t.Fatal(err)
	}
	tr := &track{lanes: make([]lane, 1), history: &history{lbaBytes: 512}, resumed: []uint64{0}}
	tr.high.Store(1 << 60)
	if tr.source, err = newSource(&job, 1, ""); err != nil {
		t.Fatal(err)
	}
	if useMap {
		if tr.generations, err = newGenerationMap(job.RegionBytes(), job.GenerationGranuleBytes(), true); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.generations.release() })
	}
	w := newWorker(0, int(p.Depth), 32, &keeper{bytes: make([]byte, job.CapacityBytes), done: make([]nvmeioctl.IOResult, 0, p.Depth)}, tr)
	if err := w.equip(&job); err != nil {
		t.Fatal(err)
	}
	w.rowEnd, w.tally = nvmeioctl.Never, newTally(0, int(p.Depth))
	w.roll = func(nvmeioctl.Instant) {}
	if err := w.begin(st, job.LBABytes, run.WorkerMark{}, 0, 0, nvmeioctl.Never); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.release() })
	return w, tr
}

// Checking what is read allocates nothing either, nor do flushes and the map.
func TestStep_checkedAllocatesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		phase run.Phase
		flush int64
		gens  bool
	}{
		"mixed":           {run.Phase{Pattern: run.PatternRandom, ReadPercent: 40, Check: run.CheckReads, End: run.End{Passes: 1000}}, 0, false},
		"each pass":       {run.Phase{Pattern: run.PatternRandom, Check: run.CheckEachPass, End: run.End{Passes: 1000}}, 50, false},
		"sequential":      {run.Phase{Pattern: run.PatternSequential, Check: run.CheckEachPass, End: run.End{Passes: 1000}}, 0, false},
		"drawn anew":      {run.Phase{Pattern: run.PatternReplacement, ReadPercent: 40, Check: run.CheckReads, End: run.End{Bytes: 1 << 40}}, 100, false},
		"drawn, with map": {run.Phase{Pattern: run.PatternReplacement, ReadPercent: 40, Check: run.CheckReads, End: run.End{Bytes: 1 << 40}}, 0, true},
	} {
		c.phase.Kind, c.phase.BlockBytes, c.phase.Depth = run.PhaseMeasure, 4096, 32
		w, _ := checkedWorker(t, c.phase, c.flush, c.gens)
		for range 200 {
			w.step(nvmeioctl.Never - 1) // past the first pass, so that something is checked
		}
		if n := testing.AllocsPerRun(300, func() { w.step(nvmeioctl.Never - 1) }); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
		v := w.tally.verified
		if v.Blocks == 0 || v.Mismatches() != 0 || w.fatal != nil {
			t.Errorf("%s: %+v, %v", name, v, w.fatal)
		}
		if c.gens && (v.Right == 0 || v.Undecided != 0) {
			t.Errorf("%s: the map decides nothing: %+v", name, v)
		}
		if c.flush != 0 && w.flush.below == 0 {
			t.Errorf("%s: nothing is flushed", name)
		}
	}
}

// Any N with its tail, also beyond 2^32 blocks: what a block must hold follows
// from its number, whatever of the passes is done. Cases D1, D2, D5.
func TestBelieve_beyond32Bits(t *testing.T) {
	for _, blocks := range []uint64{15_000_000_000, 1<<40 + 1} {
		job := run.Job{Seed: 7, CapacityBytes: blocks*4096 - 3584, LBABytes: 512, TimeLapse: 1, Workers: 3, Phases: []run.Phase{
			{Kind: run.PhaseMeasure, Pattern: run.PatternRandom, BlockBytes: 4096, Depth: 8, End: run.End{Passes: 9}},
		}}
		// Two passes and a half are done, in the middle of which it stands.
		half := 2*blocks + blocks/2
		cp := run.Checkpoint{Number: 9, State: run.StateInterrupted, Workers: make([]run.WorkerMark, 3)}
		for i := range cp.Workers {
			cp.Workers[i].Next = (half/3+1)*3 + uint64(i)
		}
		h, err := newHistory(&job, &cp, true)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLookup(h, &stage{Phase: verifyPhase(4096)}, []uint64{0, 1, 2}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		third := 0
		const looks = 20_000
		for i := range uint64(looks) {
			lba := i * (job.CapacityBytes / 512 / looks)
			if i == looks-1 {
				lba = job.CapacityBytes/512 - 1 // in the tail, one block long
			}
			b := l.believe(lba, 0)
			if b.n != 1 || b.writes[0].certainty != certain {
				t.Fatalf("LBA %d: %+v", lba, b)
			}
			index, ok := l.gens[0].Locate(2, lba/8)
			if !ok || lba/8 >= blocks {
				t.Fatalf("LBA %d is not in the region", lba)
			}
			want := uint64(2)
			if 2*blocks+index < cp.Workers[index%3].Next && (2*blocks+index) < cp.Workers[(2*blocks+index)%3].Next {
				want = 3
			}
			if g := b.writes[0].generation; g != want {
				t.Fatalf("LBA %d: generation %d, want %d", lba, g, want)
			}
			if want == 3 {
				third++
			}
		}
		if third < looks*48/100 || third > looks*52/100 {
			t.Errorf("%d of %d blocks are in the third generation", third, looks)
		}
	}
}

// BenchmarkStep_checked is a verified read beside a write, per operation.
func BenchmarkStep_checked(b *testing.B) {
	w, _ := checkedWorker(b, run.Phase{Kind: run.PhaseMeasure, Pattern: run.PatternRandom, ReadPercent: 50, Check: run.CheckReads,
		BlockBytes: 4096, Depth: 32, End: run.End{Passes: 1 << 40}}, 0, false)
	b.SetBytes(32 * 4096)
	b.ReportAllocs()
	for b.Loop() {
		w.step(nvmeioctl.Never - 1)
	}
}
