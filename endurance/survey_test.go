package endurance

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// ReadAt implements io.ReaderAt, a logical block at a time.
func (m *medium) ReadAt(b []byte, offset int64) (int, error) {
	m.get(uint64(offset)/m.lbaBytes, b)
	return len(b), nil
}

// garble puts something else into every block.
func (m *medium) garble(blocks uint64) {
	for lba := range blocks {
		b := make([]byte, m.lbaBytes)
		for i := range b {
			b[i] = byte(m.rng.Uint32()) | 1
		}
		m.stored[lba] = b
		delete(m.cached, lba)
	}
}

// Whatever a run wrote over, and however it ended, its own blocks are known again;
// and once something else is in their place, that is.
func TestSurvey_tellsOwnFromForeign(t *testing.T) {
	surveyed := 0
	rapid.Check(t, func(rt *rapid.T) {
		job := drawJob(rt)
		job.Data.HeaderOnly = rapid.Bool().Draw(rt, "headers only")
		if job.Data.HeaderOnly {
			for i := range job.Phases {
				job.Phases[i].Check = ""
			}
			job.Phases = job.Phases[:len(job.Phases)-1]
		}
		if err := job.Validate(); err != nil {
			rt.Skip(err)
		}
		disk := newMedium(job.LBABytes, rapid.Uint64().Draw(rt, "luck"))
		disk.volatile = job.Verify.Trust == run.TrustFlushed
		blocks := job.CapacityBytes / uint64(job.LBABytes)
		disk.garble(blocks)
		if rapid.Bool().Draw(rt, "writes fail") {
			disk.fail = func(op nvmeioctl.IOOp, _ uint64) (nvmespec.Status, bool) {
				if op == nvmeioctl.OpWrite && disk.rng.IntN(100) == 0 {
					return 0x4080, disk.rng.IntN(2) == 0
				}
				return 0, true
			}
		}
		c := newChecker(t, job, disk)
		for range rapid.IntRange(1, 3).Draw(rt, "sessions") {
			if v, err := c.session(rapid.OneOf(rapid.IntRange(2, 15), rapid.IntRange(-8, -2)).Draw(rt, "cut")); err == nil && !v.State.Resumable() {
				break
			}
		}
		if c.mem.cp.Number == 0 {
			rt.Skip("nothing was committed")
		}
		found, err := c.written().Survey(disk, 64)
		if err != nil {
			rt.Fatal(err)
		}
		// What was drawn while it was in flight may be another write's that failed.
		redrawn := slices.ContainsFunc(job.Phases, func(p run.Phase) bool { return p.Pattern == run.PatternReplacement })
		if found.Replaced() || found.Foreign != 0 && !redrawn {
			rt.Fatalf("its own blocks are taken for another's: %+v", found)
		}
		if found.Own == 0 {
			return
		}
		surveyed++
		disk.garble(blocks)
		if again, err := c.written().Survey(disk, 64); err != nil || !again.Replaced() || again.Own != 0 {
			rt.Fatalf("nothing is left of %+v, and it is taken for %+v: %v", found, again, err)
		}
	})
	t.Logf("%d runs had written something", surveyed)
}

// Zeros, as an empty file has, and nothing written yet, tell nothing.
func TestSurvey_undecided(t *testing.T) {
	job := run.Job{Seed: 1, CapacityBytes: 100 * 512, LBABytes: 512, TimeLapse: 1, Workers: 1, Phases: []run.Phase{
		{Kind: run.PhaseMeasure, Pattern: run.PatternSequential, BlockBytes: 512, Depth: 1, End: run.End{Passes: 1}}}}
	w := Written{Job: job, Checkpoint: run.Checkpoint{State: run.StateInterrupted, Workers: []run.WorkerMark{{Next: 50}}}}
	disk := newMedium(512, 1)
	if got, err := w.Survey(disk, 64); err != nil || got != (Survey{Blank: 50}) || got.Replaced() {
		t.Errorf("zeros: %+v, %v", got, err)
	}
	// What a crash may have written beyond is not looked for.
	w.Checkpoint.State, w.Checkpoint.ReservedHigh = run.StateRunning, 1<<20
	if got, err := w.Survey(disk, 64); err != nil || got != (Survey{Blank: 50}) {
		t.Errorf("after a crash: %+v, %v", got, err)
	}
	disk.garble(100)
	w.Checkpoint.Workers[0].Next = 0
	if got, err := w.Survey(disk, 64); err != nil || got != (Survey{}) || got.Replaced() {
		t.Errorf("nothing written: %+v, %v", got, err)
	}
}
