package endurance

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/pattern"
)

// crashed is a run over a medium that crashed after so many commits.
func crashed(t *testing.T, job run.Job, commits int) *checker {
	t.Helper()
	c := newChecker(t, job, newMedium(job.LBABytes, 3))
	if _, err := c.session(commits); !errors.Is(err, errCut) {
		t.Fatalf("it was to crash: %v", err)
	}
	return c
}

// A block whose bits have changed, where a crash leaves it open whether the old or
// the new content is there, is compared with the one that it is: one bit is one
// byte, not all of the block.
func TestVerify_rottenAfterACrashIsComparedWithWhatItWas(t *testing.T) {
	job := testJob(run.PatternRandom)
	job.Phases[0].End = run.End{Passes: 4}
	c := crashed(t, job, 10)
	h, err := newHistory(&c.job, &c.mem.cp, true)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLookup(h, &stage{Phase: verifyPhase(4096)}, []uint64{0, 1}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]uint64{}
	generations := map[uint64]int{}
	for lba := range job.CapacityBytes / 512 {
		b := l.believe(lba, 0)
		stored, ok := pattern.ParseHeader(c.disk.stored[lba])
		if b.n < 2 || !ok || lba%11 != 0 {
			continue
		}
		c.disk.stored[lba][200] ^= 4
		want[lba] = stored.Generation
		generations[stored.Generation]++
	}
	if len(want) < 20 || len(generations) < 2 {
		t.Fatalf("blocks in doubt by what they hold: %v", generations)
	}
	v := c.verifier(4096)
	verdict := v.finish()
	if verdict.Verified.Rotten != uint64(len(want)) || verdict.Verified.Mismatches() != verdict.Verified.Rotten {
		t.Fatalf("%d blocks are rotten: %+v", len(want), verdict.Verified)
	}
	for _, m := range v.mem.mismatches {
		if m.ExpectedGeneration != want[m.LBA] || m.Bytes != 1 || m.OffsetBytes != 200 || !strings.Contains(m.Text, " or, since a write failed or was under way in a crash, generation") {
			t.Errorf("LBA %d held generation %d: %+v", m.LBA, want[m.LBA], m)
		}
	}
}

// Of a block in doubt that cannot be read no generation is claimed: all that may be
// there are named.
func TestVerify_unreadableAfterACrash(t *testing.T) {
	job := testJob(run.PatternRandom)
	job.Phases[0].End = run.End{Passes: 4}
	c := crashed(t, job, 10)
	c.disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
		if op == nvmeioctl.OpRead && lba%100 == 3 {
			return 0x4281, true
		}
		return 0, true
	}
	v := c.verifier(4096)
	v.finish()
	doubt := 0
	for _, m := range v.mem.mismatches {
		if several := strings.Contains(m.Text, " or, since a write failed or was under way"); m.Kind != run.MismatchUnreadable || several != (m.ExpectedGeneration == 0) {
			t.Errorf("%+v", m)
		} else if several {
			doubt++
		}
	}
	if doubt < 5 {
		t.Errorf("%d of %d were in doubt", doubt, len(v.mem.mismatches))
	}
}

// A verification in which nothing was decided is no pass: all blocks unknown,
// nothing written at all, or a drive that has been wiped where the order draws
// blocks anew.
func TestVerify_nothingDecidedIsNoPass(t *testing.T) {
	unknown := crashed(t, testJob(run.PatternRandom), 3).verifier(4096)
	job := testJob(run.PatternRandom)
	empty := newChecker(t, job, newMedium(512, 1)).verifier(4096)
	empty.of.Checkpoint = run.Checkpoint{Number: 1, State: run.StateInterrupted, Workers: []run.WorkerMark{{Next: 0}, {Next: 1}}}
	job = testJob(run.PatternReplacement)
	job.Phases[0].End = run.End{Bytes: 3 * job.CapacityBytes}
	drawn := newChecker(t, job, newMedium(512, 1))
	drawn.finish()
	whole := drawn.verifier(4096)
	if v := whole.finish(); v.ExitCode != 0 || v.Verified.Undecided == 0 || v.Verified.Right != 0 || v.Verified.Unwritten == 0 || v.Verified.Unwritten > v.Verified.Undecided/10 {
		t.Errorf("drawn anew, and all is there: exit %d, %+v", v.ExitCode, v.Verified)
	}
	clear(drawn.disk.stored)
	for name, c := range map[string]*checker{"all unknown": unknown, "nothing written": empty, "wiped": drawn.verifier(4096)} {
		v := c.finish()
		if v.ExitCode != run.ExitLimits || v.Verified.Right != 0 || v.Verified.Mismatches() != 0 || !strings.Contains(strings.Join(v.Notes, "; "), "nothing could be verified") {
			t.Errorf("%s: exit %d, %+v, notes %q", name, v.ExitCode, v.Verified, v.Notes)
		}
		if name == "all unknown" && v.Verified.Unknown != v.Verified.Blocks {
			t.Errorf("%s: %+v", name, v.Verified)
		}
	}
}

// A block that another run wrote is called so, by that run's name where the journal
// knows it, and is not a later write of this one.
func TestVerify_blocksOfAnotherRun(t *testing.T) {
	for _, seed := range []uint64{42, 43} {
		disk := newMedium(512, 1)
		c := newChecker(t, testJob(run.PatternRandom), disk)
		c.job.Phases[0].End.Passes = 1
		c.finish()
		other := newChecker(t, testJob(run.PatternSequential), disk)
		other.start, other.job.Seed, other.job.CapacityBytes = 7, seed, 4096*10
		other.finish()
		number := run.DataRun(7, seed, "")
		for name, known := range map[string]map[uint64]string{"of run r7": {number: "r7"}, fmt.Sprintf("of another run, which this journal does not know (%016x)", number): nil} {
			v := c.verifier(4096)
			v.runs = known
			if verdict := v.finish(); verdict.Verified.Lost != 80 || verdict.Verified.Mismatches() != 80 {
				t.Errorf("seed %d: 80 blocks are of another run: %+v", seed, verdict.Verified)
			}
			for _, m := range v.mem.mismatches {
				if !strings.Contains(m.Text, "generation 1 expected; holds generation 3 "+name) || strings.Contains(m.Text, "later than") || m.FoundRun != number {
					t.Fatalf("seed %d: %s", seed, m.Text)
				}
			}
		}
	}
}

// A phase that is to verify and reads nothing is no pass.
func TestVerify_nothingReadIsNoPass(t *testing.T) {
	job := testJob(run.PatternRandom)
	job.Phases = append(job.Phases, run.Phase{Kind: run.PhaseVerify, Pattern: run.PatternNone})
	c := newChecker(t, job, newMedium(512, 1))
	v := c.finish()
	if v.ExitCode != run.ExitLimits || !strings.Contains(strings.Join(v.Notes, "; "), "nothing could be verified") {
		t.Errorf("exit code %d, %q", v.ExitCode, v.Notes)
	}
}

// What other runs left where the order has not drawn yet is no reason to read it
// twice: the drive is given as many reads as the workload has.
func TestVerify_foreignBlocksAreReadOnce(t *testing.T) {
	for name, leave := range map[string]func(c *checker, lba uint64, b []byte){
		"another run":                   func(c *checker, lba uint64, b []byte) { c.another(7, c.job.Seed).Fill(b, lba, 3) },
		"another run with another seed": func(c *checker, lba uint64, b []byte) { c.another(7, 5).Fill(b, lba, 3) },
		"noise": func(c *checker, lba uint64, b []byte) {
			for i := range b {
				b[i] = byte(c.disk.rng.Uint32())
			}
		},
		"ones": func(_ *checker, _ uint64, b []byte) { copy(b, bytes.Repeat([]byte{0xFF}, len(b))) },
	} {
		job := testJob(run.PatternReplacement)
		job.CapacityBytes = 512 * 499
		job.Phases[0].ReadPercent, job.Phases[0].Check = 40, run.CheckReads
		job.Phases[0].End = run.End{TransferBytes: job.CapacityBytes}
		c := newChecker(t, job, newMedium(512, 1))
		for lba := range job.CapacityBytes / 512 {
			c.disk.stored[lba] = make([]byte, 512)
			leave(c, lba, c.disk.stored[lba])
		}
		st, err := newStage(&job, 0)
		if err != nil {
			t.Fatal(err)
		}
		v := c.finish()
		if v.Totals.Ops() != st.limit || v.Totals.ReadOps != c.disk.reads || v.Verified.Mismatches() != 0 || v.Verified.Unwritten == 0 {
			t.Errorf("%s: %d operations of %d, %d reads, %+v", name, v.Totals.Ops(), st.limit, c.disk.reads, v.Verified)
		}
	}
}

// another is the data of another run on the same drive.
func (c *checker) another(start int64, seed uint64) *pattern.Source {
	job := c.job
	job.Seed = seed
	s, err := newSource(&job, start, "")
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// A drive without power-loss protection that loses everything that was never
// flushed, passes of it, holds what somebody else left there: nobody is accused.
func TestVerify_nothingFlushedOverForeignData(t *testing.T) {
	job := testJob(run.PatternSequential)
	job.CapacityBytes = 4096 * 50
	job.Phases[0].End = run.End{Passes: 40}
	job.Verify.Trust, job.Verify.FlushIntervalNS = run.TrustFlushed, 3600*second1
	for cut := 3; cut < 6; cut++ {
		c := newChecker(t, job, newMedium(512, uint64(cut)))
		c.disk.volatile = true
		for lba := range job.CapacityBytes / 512 {
			c.disk.stored[lba] = bytes.Repeat([]byte{byte(lba), byte(lba >> 3), 'x', 'y'}, 128)
		}
		if _, err := c.session(cut); !errors.Is(err, errCut) {
			t.Fatalf("it was to crash: %v", err)
		}
		w := c.verifier(4096)
		if v := w.finish(); v.Verified.Mismatches() != 0 {
			t.Fatalf("after %d commits: %+v\n%+v", cut, v.Verified, w.mem.mismatches[0])
		}
	}
}
