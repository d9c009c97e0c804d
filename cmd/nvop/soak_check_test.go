package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What soak check says a run comes to is what it then comes to: bytes, drive
// writes and wear before anything is known but the drive's design, and the time
// once the same was run before.
func TestSoakCheck_isWhatHappens(t *testing.T) {
	skipUnderRace(t)
	t.Parallel()
	w := newWorkshop(t, "client-1tb", "--scale", "1024")
	text := `version: 1
time_lapse: 1024
phases:
  - {kind: precondition, rw: write, block: 128k, depth: 64, end: {passes: 1}}
  - {kind: measure, rw: randwrite, block: 4k, depth: 128, end: {drive_writes: 12}}
`
	job := filepath.Join(w.dir, "job.yaml")
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func() drivePlan {
		var plan soakPlan
		w.must(&plan, "soak", "check", job, "sim:drive.nvop")
		return plan.Drives[0]
	}
	before := check()
	var done soakResult
	w.must(&done, "soak", "start", "--file", job, "sim:drive.nvop", "--confirm-serial", w.serial)
	after := check()
	near := func(what string, got float64, want *float64, share float64) {
		t.Helper()
		switch {
		case want == nil:
			t.Errorf("%s: nothing was foreseen, it was %g", what, got)
		case math.Abs(got/(*want)-1) > share:
			t.Errorf("%s: %g, foreseen %g", what, got, *want)
		}
	}
	bytes := float64(*before.WriteBytes)
	near("bytes written", float64(done.WriteBytes), &bytes, 0.001)
	near("drive writes", float64(done.WriteBytes)/float64(done.CapacityBytes), before.DriveWrites, 0.001)
	near("seconds, from the run before", done.DurationSeconds, after.Seconds, 0.05)
	if done.Deltas == nil || before.WearLow == nil {
		t.Fatalf("percentage used: %+v, foreseen %+v", done.Deltas, before)
	}
	// Percentage used comes in whole steps.
	rose := float64(done.Deltas.PercentageUsed)
	t.Logf("percentage used rose by %g, foreseen %.2f, %.2f to %.2f; %.0f s, foreseen %.0f", rose, *before.WearPercent, *before.WearLow, *before.WearHigh,
		done.DurationSeconds, *after.Seconds)
	if rose < 3 || rose < *before.WearLow-1 || rose > *before.WearHigh+1 {
		t.Errorf("percentage used rose by %g, foreseen %.2f to %.2f", rose, *before.WearLow, *before.WearHigh)
	}
	if after.Past == nil || after.Past.Fills != 1 || after.Past.LastFill != "r1" || after.Past.WriteBytes != done.WriteBytes || before.Past.Fills != 0 {
		t.Errorf("written before: %+v, then %+v", before.Past, after.Past)
	}
}

// The memory that is foreseen is what the process takes, within what the runtime
// adds, of little queues and of deep ones with large blocks, and of a simulated drive.
func TestSoakCheck_memory(t *testing.T) {
	skipUnderRace(t)
	t.Parallel()
	for name, args := range map[string][]string{
		"small": {"file:/dev/null", "--capacity", "1TiB", "--rw", "randwrite", "--bs", "4KiB", "--qd", "8", "--duration", "1s"},
		"drive": {"sim:drive.nvop", "--rw", "randwrite", "--qd", "64", "--size", "2TB", "--time-lapse", "1000", "--confirm-serial", "M"},
		"large": {"file:/dev/null", "--capacity", "1TiB", "--rw", "write", "--bs", "1MiB", "--qd", "64", "--workers", "2", "--duration", "1s"},
	} {
		w := newWorkshop(t, "client-1tb", "--serial", "M")
		start := append([]string{"soak", "start"}, args...)
		var plan soakPlan
		w.must(&plan, append(start, "--dry-run")...)
		cmd := w.command(append(start, "-o", "json")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Not the peak that wait(2) tells: that of a child begins with its parent's.
		took, looks, ended := uint64(0), 0, make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				running = false
			case <-time.After(10 * time.Millisecond):
				kib, _ := residentKiB(cmd.Process.Pid)
				took, looks = max(took, kib<<10), looks+1
			}
		}
		t.Logf("%s: %d MiB foreseen, %d MiB taken", name, plan.MemoryBytes>>20, took>>20)
		const enough = 20 // of 10 ms, in a second
		if took > plan.MemoryBytes*3/2 || looks >= enough && took < plan.MemoryBytes/2 {
			t.Errorf("%s: %d MiB foreseen, %d MiB taken", name, plan.MemoryBytes>>20, took>>20)
		}
	}
}

// Who ends the program does not wait for a run file that takes long to read.
func TestReadJobFile_interrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.yaml")
	var text strings.Builder
	for i := range 8000 {
		fmt.Fprintf(&text, "k%d: 1\n", i) // the library's time grows with the square
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := readJobFile(ctx, path); exitCode(err) != exitInterrupted {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
}
