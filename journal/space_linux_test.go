package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallSystem is the directory of a file system of its own, of so many bytes.
func smallSystem(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no file system of its own here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill leaves no room in a directory's file system, and returns how to give it
// back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	for block := make([]byte, 512); ; {
		if _, err = f.Write(block); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// A file system that becomes full is called so, whatever SQLite makes of it: in the
// midst of a run, where the log beside the journal becomes longer, and where a
// journal is opened, whose shared memory has no room (SQLite: "disk I/O error
// (4874)"). It passes, and the same commit then goes well.
func TestRecorder_fullFileSystem(t *testing.T) {
	dir := smallSystem(t, "4m")
	path := filepath.Join(dir, "journal.db")
	j, err := Open(t.Context(), path, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	s := newSynth(3)
	r := beginTest(t, j, 3)
	s.commitAll(t, r, 1, 2)
	full := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*OpenError](err)
		if !ok || !e.Transient() || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "no space left on its file system") {
			t.Errorf("%s: %v", what, err)
		}
	}
	free := fill(t, dir)
	b := s.batch(300)
	full("a commit", r.Commit(context.Background(), b))
	free()
	if err := r.Commit(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	free = fill(t, dir)
	j, err = Open(t.Context(), path, ReadWrite)
	if err == nil {
		_, err = j.BeginRun(t.Context(), synthHeader(4))
		err = errors.Join(err, j.Close())
	}
	full("opened", err)
	free()
	if j, err = Open(t.Context(), path, ReadWrite); err != nil {
		t.Fatal(err)
	}
	if v, err := j.Verify(t.Context()); err != nil || !v.OK() {
		t.Errorf("%v %+v", err, v.Problems)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
