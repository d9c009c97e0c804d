package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What a report may replace, and what not: a name typed wrong must not cost the
// file that it names.
func TestMayReplace(t *testing.T) {
	const begins = "# HELP nvop_"
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("older", begins+"audit_findings x\n")
	put("empty", "")
	put("text", "hello\n")
	put("short", "# HE")
	put("input", begins)
	for _, err := range []error{
		os.Symlink("older", at("link")), os.Symlink("text", at("badlink")), os.Symlink("nothing", at("dangling")),
		os.Symlink("input", at("inputlink")), os.Link(at("input"), at("inputhard")),
		syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{
		"new": true, "older": true, "empty": true, "link": true,
		"text": false, "short": false, "badlink": false, "dangling": false, "fifo": false, "dir": false,
		"input": false, "inputlink": false, "inputhard": false, "later": false, "text/below": false,
	} {
		err := mayReplace(at(name), begins, "", at("input"), at("dir/../later"), at("missing"))
		if (err == nil) != want {
			t.Errorf("%s: %v, wanted to be allowed: %v", name, err, want)
		}
		if err != nil && exitCode(err) != exitRefused {
			t.Errorf("%s: exit code %d: %v", name, exitCode(err), err)
		}
	}
}

// What was not written to its end is not left in the way of the next try, and what
// is there is not touched.
func TestIntoNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	full := errors.New("no space left")
	if _, err := intoNewFile(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, full)
	}); !errors.Is(err, full) {
		t.Errorf("a write that failed: %v", err)
	}
	if err := saveNew(path, 0o640, []byte("whole")); err != nil {
		t.Errorf("after it: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&^0o640 != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := saveNew(path, 0o600, []byte("other")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over what is there: %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}
}
