package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAbandon_whileItRuns: a change that another process carries out is not given
// up under its hands, and after it was given up nothing is said of a drive that was
// not looked at.
func TestAbandon_whileItRuns(t *testing.T) {
	w := newWorkshop(t, "pblaze7-7940-7.68tb")
	if code, stderr := w.run(nil, "op", "set", "sim:drive.nvop", "--size", "6.4TB", "--confirm-serial", w.serial, "--fault", "before create power-cut"); code != exitPartly {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	getenv := func(string) string { return w.dir }
	dir, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockDrive(lockDir(getenv), w.serial, "sim:"+filepath.Join(dir, "drive.nvop"), "a resume")
	if err != nil {
		t.Fatal(err)
	}
	if code, stderr := w.run(nil, "rollback", "--abandon", "--confirm-serial", w.serial); code != exitRefused || !strings.Contains(stderr, "another nvop is working on it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	var r changeResult
	w.must(&r, "rollback", "--abandon", "--confirm-serial", w.serial)
	if r.State != "abandoned" || !r.NotRead || r.Before != nil || r.After != nil {
		t.Errorf("%+v", r)
	}
	text, err := w.command("rollback", "t1", "--abandon", "--confirm-serial", w.serial).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "there is nothing to abandon") {
		t.Errorf("%v: %s", err, text)
	}
}
