package main

import (
	"bufio"
	"os"
	"testing"
)

// TestKill_firmware: killed with -9 after any line it wrote, an update of a drive
// in a file is carried on or undone by another process. The drive ends with the
// new revision staged, or with nothing staged, and the journal tells which.
func TestKill_firmware(t *testing.T) {
	skipUnderRace(t)
	stride := 3
	if os.Getenv("NVOP_LONG") != "" {
		stride = 1
	}
	t.Logf("killing after every %d. line (every one with NVOP_LONG=1)", stride)
	start := newWorkshop(t, "pblaze7-7940-7.68tb", "--scale", "8192")
	start.must(&simImageResult{}, "sim", "image", "new.bin", "--revision", "0B200200")
	update := []string{"fw", "update", "sim:drive.nvop", "--image", "new.bin", "--revision", "0B200200", "--confirm-serial", start.serial}
	inside := 0
	for n := 1; ; n += stride {
		w := start.copy()
		lines, killed := w.killAfterLine(n, update...)
		if lines < n {
			break
		}
		var list journalListResult
		w.must(&list, "journal", "list")
		if !killed || len(list.Changes) == 0 || list.Changes[0].State.Finished() {
			continue
		}
		inside++
		undo := w.copy()
		if code, stderr := w.run(&changeResult{}, "resume", "--confirm-serial", w.serial); code != exitResetPending {
			t.Fatalf("killed after line %d, resumed: exit code %d: %s", n, code, stderr)
		}
		w.staged(n, "0B200200")
		if code, stderr := undo.run(&changeResult{}, "rollback", "--confirm-serial", w.serial); code != 0 {
			t.Fatalf("killed after line %d, rolled back: exit code %d: %s", n, code, stderr)
		}
		undo.staged(n, "")
		for _, x := range []*workshop{w, undo} {
			x.must(&verifyResult{}, "journal", "verify")
		}
	}
	t.Logf("%d kills inside the transaction", inside)
	if inside == 0 {
		t.Error("no kill hit the transaction: the test shows nothing")
	}
}

// killAfterLine starts nvop and kills it with -9 as soon as it has written so many
// lines of progress.
func (w *workshop) killAfterLine(n int, args ...string) (lines int, killed bool) {
	w.t.Helper()
	cmd := w.command(args...)
	progress, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	scan := bufio.NewScanner(progress)
	for lines < n && scan.Scan() {
		lines++
	}
	killed = lines == n && cmd.Process.Kill() == nil
	if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
		killed = false // it had ended by itself
	}
	return lines, killed
}

// staged wants this revision to run after the next reset; "" wants none.
func (w *workshop) staged(line int, revision string) {
	w.t.Helper()
	var list fwListResult
	w.must(&list, "fw", "list", "sim:drive.nvop")
	got, _, _ := list.State.Pending()
	if got != revision || list.Running != "0B100100" {
		w.t.Fatalf("killed after line %d: %q is staged, want %q; %s runs", line, got, revision, list.Running)
	}
}
