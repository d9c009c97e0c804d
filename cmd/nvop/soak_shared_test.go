package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sharedFile is a file of a size in a workshop without a drive.
func sharedFile(t *testing.T) (*workshop, string) {
	t.Helper()
	w := &workshop{t: t, dir: t.TempDir()}
	path := filepath.Join(w.dir, "data")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8<<20); err != nil {
		t.Fatal(err)
	}
	return w, path
}

// loopOn makes a loop device of a file, for as long as the test lasts.
func loopOn(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("losetup", "-f", "--show", path).Output()
	if err != nil {
		t.Skipf("no loop device can be made here: %v", err)
	}
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "-d", node).Run(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// refusedWith runs a command that is to be refused, saying so.
func (w *workshop) refusedWith(code int, want string, args ...string) {
	w.t.Helper()
	if got, stderr := w.run(nil, args...); got != code || !strings.Contains(stderr, want) {
		w.t.Errorf("%q: exit code %d, not %d with %q: %s", args, got, code, want, stderr)
	}
}

// A file that another process has open for writing is not written to, nor is it
// promised to be.
func TestSoak_fileThatAnotherWrites(t *testing.T) {
	w, path := sharedFile(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("cat")
	other.Stdout = f
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.refusedWith(exitRefused, "open for writing", "soak", "start", "file:"+path, "--rw", "write", "--passes", "1")
	w.refusedWith(exitRefused, "open for writing", "soak", "start", "file:"+path, "--rw", "write", "--passes", "1", "--dry-run")
	if code, stderr := w.run(new(soakResult), "soak", "start", "file:"+path, "--rw", "read", "--passes", "1"); code != exitOK {
		t.Errorf("reading: exit code %d: %s", code, stderr)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := w.run(new(soakResult), "soak", "start", "file:"+path, "--rw", "write", "--passes", "1"); code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A loop device and its backing file are one: the file is not written below the
// device, and both are not soaked at once.
func TestSoak_loopDevice(t *testing.T) {
	w, path := sharedFile(t)
	node := loopOn(t, path)
	w.refusedWith(exitRefused, "backing file of "+node, "soak", "start", "file:"+path, "--rw", "write", "--passes", "1", "--overwrite")
	w.refusedWith(exitRefused, "backing file of "+node, "soak", "start", "file:"+path, "--rw", "write", "--passes", "1", "--dry-run")
	w.refusedWith(exitUsage, "the same data", "soak", "start", "file:"+path, "file:"+node, "--rw", "read", "--passes", "1")
	if code, stderr := w.run(new(soakResult), "soak", "start", "file:"+node, "--rw", "write", "--passes", "1", "--overwrite"); code != exitOK {
		t.Errorf("the device itself: exit code %d: %s", code, stderr)
	}
	locks, err := lockData(lockDir(func(string) string { return w.dir }), node, "a test")
	if err != nil || len(locks) != 2 {
		t.Fatalf("%d locks: %v", len(locks), err)
	}
	w.refusedWith(exitRefused, "another nvop", "soak", "start", "file:"+path, "--rw", "read", "--passes", "1")
	for _, l := range locks {
		if err := l.release(); err != nil {
			t.Error(err)
		}
	}
	mountOn(t, node)
	w.refusedWith(exitRefused, "mounted at", "soak", "start", "file:"+node, "--rw", "write", "--passes", "1", "--overwrite")
	w.refusedWith(exitRefused, "mounted at", "soak", "start", "file:"+node, "--rw", "write", "--passes", "1", "--dry-run")
}

// mountOn makes a file system and mounts it, for as long as the test lasts.
func mountOn(t *testing.T, node string) {
	t.Helper()
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", node).CombinedOutput(); err != nil {
		t.Skipf("no file system can be made here: %v: %s", err, out)
	}
	point := t.TempDir()
	if out, err := exec.Command("mount", node, point).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", point).Run(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a file is called: one run at a time.
func TestSoak_fileOfSeveralNames(t *testing.T) {
	w, path := sharedFile(t)
	symbolic, hard := filepath.Join(w.dir, "symbolic"), filepath.Join(w.dir, "hard")
	if err := os.Symlink(path, symbolic); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, hard); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{symbolic, hard} {
		w.refusedWith(exitUsage, "file:"+path+" and file:"+other+" lead to the same data", "soak", "start", "file:"+path, "file:"+other, "--rw", "write", "--passes", "1")
	}
	locks, err := lockData(lockDir(func(string) string { return w.dir }), path, "a test")
	if err != nil || len(locks) != 1 {
		t.Fatalf("%d locks: %v", len(locks), err)
	}
	for _, other := range []string{symbolic, hard} {
		w.refusedWith(exitRefused, "another nvop", "soak", "start", "file:"+other, "--rw", "write", "--passes", "1")
	}
	if err := locks[0].release(); err != nil {
		t.Fatal(err)
	}
}
