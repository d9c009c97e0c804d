package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"nvop/endurance/run"
)

// Three drives in one process, killed with -9 in the midst of all: one command
// carries every one on to what was asked for, and every block is what was written
// last. A kill that came before or after the work is tried again elsewhere.
func TestKill_manyDrives(t *testing.T) {
	skipUnderRace(t)
	t.Parallel()
	const (
		blocks = 512 // of 4 KiB
		rate   = "200"
	)
	wait := 300 * time.Millisecond
	for range 18 { // up to seven seconds after the start, in steps shorter than the run
		w := &workshop{t: t, dir: t.TempDir()}
		for _, name := range []string{"a", "b", "c"} {
			path := filepath.Join(w.dir, name)
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, blocks*4096); err != nil {
				t.Fatal(err)
			}
		}
		start := []string{"soak", "start", "file:a", "file:b", "file:c", "--rw", "randwrite", "--order", "permutation", "--bs", "4KiB",
			"--passes", "1", "--iops", rate, "--verify", "end"}
		hit := w.killAfter(wait, start...) && w.inMidst(blocks) == 3
		if wait += wait / 5; !hit {
			continue
		}
		w.carryAllOn(blocks)
		return
	}
	t.Skip("no kill hit all three at work, on a machine this busy: the test shows nothing")
}

// inMidst is how many runs had written something, and not all.
func (w *workshop) inMidst(blocks uint64) (n int) {
	w.t.Helper()
	var list soakListResult
	w.must(&list, "soak", "list")
	for _, r := range list.Runs {
		if r.Verdict == "interrupted" && r.WriteOps > 0 && r.WriteOps < blocks {
			n++
		}
	}
	return n
}

func (w *workshop) carryAllOn(blocks uint64) {
	w.t.Helper()
	var resumed soakGroupResult
	w.must(&resumed, "soak", "resume", "--all")
	if len(resumed.Runs) != 3 || resumed.ExitCode != exitOK {
		w.t.Fatalf("resumed: %+v", resumed)
	}
	for _, r := range resumed.Runs {
		hidden, gaps := w.admitted(r.Run)
		if r.State != string(run.StateFinished) || r.Verdict != "pass" || gaps != 1 || r.WriteOps > blocks || r.WriteOps+hidden < blocks {
			w.t.Errorf("%s on %s: %s, %s, %d operations, %d gaps that may hide %d", r.Run, r.Serial, r.State, r.Verdict, r.WriteOps, gaps, hidden)
		}
		if v := r.Verified; v == nil || v.MismatchesTotal != 0 || v.Right != blocks*8 || v.Unknown != 0 {
			w.t.Errorf("%s on %s: verified %+v", r.Run, r.Serial, v)
		}
		w.verifyAll(r.Run, blocks*8)
	}
	w.must(&resumed, "soak", "resume", "--all")
	if len(resumed.Runs) != 0 {
		w.t.Errorf("there is still something to go on with: %+v", resumed.Runs)
	}
	var check verifyResult
	w.must(&check, "journal", "verify")
}
