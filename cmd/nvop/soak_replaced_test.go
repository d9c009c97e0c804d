package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// until carries a soak on until it has written more than so much, and ends it.
func (w *workshop) until(written uint64, end os.Signal, args ...string) uint64 {
	w.t.Helper()
	cmd := w.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var ops uint64
	for deadline := time.Now().Add(time.Minute); ops <= written; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Errorf("%q: after a minute %d writes", args, ops)
			break
		}
		var status soakResult
		if code, _ := w.run(&status, "soak", "status"); code == exitOK {
			ops = status.WriteOps
		}
	}
	if err := cmd.Process.Signal(end); err != nil {
		w.t.Error(err)
	}
	if err := cmd.Wait(); err == nil || w.t.Failed() {
		w.t.Errorf("%q: %v: %s", args, err, said.String())
	}
	return ops
}

// A file whose contents were replaced, under the same name and inode, is not gone
// on with unless that is said; nor is it by resume --all.
func TestSoakResume_contentsReplaced(t *testing.T) {
	w, path := sharedFile(t)
	ops := w.until(50, syscall.SIGKILL, "soak", "start", "file:"+path, "--rw", "randwrite", "--bs", "4KiB", "--iops", "300", "--duration", "1h")
	mine, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(w.dir, "precious")
	if err := os.WriteFile(precious, []byte(strings.Repeat("precious", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	copyOver := func(from string) {
		t.Helper()
		if out, err := exec.Command("cp", from, path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copyOver(precious)
	w.refusedWith(exitRefused, "holds something else than run r1 left there", "soak", "resume")
	text, err := w.command("soak", "resume", "--all").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "not started") || !strings.Contains(string(text), "holds something else") {
		t.Errorf("%v: %s", err, text)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, []byte(strings.Repeat("precious", 1<<20))) {
		t.Errorf("it was written to: %v", err)
	}
	ops = w.until(ops, os.Interrupt, "soak", "resume", "--overwrite")

	// What it left there itself, it goes on with.
	if err := os.WriteFile(precious, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	copyOver(precious)
	w.until(ops, os.Interrupt, "soak", "resume")
}
