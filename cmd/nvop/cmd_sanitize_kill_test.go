package main

import (
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// killInside starts a change of a copy of start and kills it with -9 when it has
// said that it begins its step, until a kill has left the transaction half done.
// The step is short, so not every kill comes in time.
func killInside(t *testing.T, start *workshop, args ...string) *workshop {
	t.Helper()
	for range 40 {
		w := start.copy()
		w.killAfterLine(1, args...)
		if w.unfinished() != "" {
			return w
		}
	}
	t.Fatal("no kill hit the transaction: the test shows nothing")
	return nil
}

// TestKill_sanitize: killed with -9 in the step that starts a sanitize, the change
// is carried on by another process: the drive is sanitized, whether or not the
// command had been sent, and the journal is closed.
func TestKill_sanitize(t *testing.T) {
	skipUnderRace(t)
	start := newWorkshop(t, "pblaze7-7940-7.68tb", "--scale", "8192")
	w := killInside(t, start, "sanitize", "start", "sim:drive.nvop", "--action", "crypto", "--confirm-serial", start.serial)
	undo := w.copy()
	if code, stderr := w.run(&changeResult{}, "resume", "--confirm-serial", w.serial); code != 0 {
		t.Fatalf("resume: exit code %d: %s", code, stderr)
	}
	var r sanitizeResult
	w.must(&r, "sanitize", "status", "sim:drive.nvop", "--wait")
	if r.Log.State != nvmespec.SanitizeDone || !r.Log.GlobalDataErased {
		t.Errorf("after the resume: %+v", r.Log)
	}
	if id := w.unfinished(); id != "" {
		t.Errorf("transaction %s is still unfinished", id)
	}
	w.must(&verifyResult{}, "journal", "verify")
	// What is gone cannot be given back, and nobody says that it was.
	if code, stderr := undo.run(&changeResult{}, "rollback", "--confirm-serial", w.serial); code == 0 || !strings.Contains(stderr, "cannot be undone") {
		t.Errorf("rollback of a sanitize: exit code %d: %s", code, stderr)
	}
}

// TestKill_reset: killed with -9 in a reset, another process resets again, or
// leaves it.
func TestKill_reset(t *testing.T) {
	skipUnderRace(t)
	start := newWorkshop(t, "pblaze7-7940-7.68tb", "--scale", "8192")
	for kind, args := range map[string][]string{
		"controller": {"reset", "sim:drive.nvop", "--confirm-serial", start.serial},
		"subsystem":  {"reset", "sim:drive.nvop", "--confirm-serial", start.serial, "--subsystem"},
	} {
		w := killInside(t, start, args...)
		undo := w.copy()
		if code, stderr := w.run(&changeResult{}, "resume", "--confirm-serial", w.serial); code != 0 {
			t.Errorf("%s: resume: exit code %d: %s", kind, code, stderr)
		}
		if code, stderr := undo.run(&changeResult{}, "rollback", "--confirm-serial", w.serial); code != 0 {
			t.Errorf("%s: rollback: exit code %d: %s", kind, code, stderr)
		}
		for _, x := range []*workshop{w, undo} {
			if id := x.unfinished(); id != "" {
				t.Errorf("%s: transaction %s is still unfinished", kind, id)
			}
			x.must(&verifyResult{}, "journal", "verify")
		}
	}
}
