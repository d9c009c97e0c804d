package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// full is a standard output with no room left.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestFull_theChangeWasDone: a result that cannot be printed does not hide that the
// change was made: it is said, with its transaction.
func TestFull_theChangeWasDone(t *testing.T) {
	dir := t.TempDir()
	env := func(k string) string {
		return map[string]string{"HOME": dir, "XDG_STATE_HOME": dir, "XDG_RUNTIME_DIR": dir}[k]
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	nvop := func(args ...string) (code int, stderr string) {
		var errout bytes.Buffer
		code = execute(context.Background(), append(args, "--journal", path("journal.db")), streams{strings.NewReader(""), full{}, &errout}, env)
		return code, errout.String()
	}
	serials := map[string]string{}
	for name, profile := range map[string]string{"a": "pblaze7-7940-7.68tb", "b": "pe321-6.4tb", "c": "pblaze7-7940-7.68tb", "d": "client-1tb"} {
		if code, _ := nvop("sim", "create", path(name), "--profile", profile, "--serial", "SER"+name); code != exitFailed {
			t.Fatalf("sim create: exit code %d", code) // its result is not printed either
		}
		serials[name] = "SER" + name
	}
	for name, text := range map[string]string{"spec.yaml": "version: 1\npower: {state: 2}\n", "other.yaml": "version: 1\npower: {state: 1}\n"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, stderr := nvop("sim", "image", path("new.bin"), "--revision", "0B200200"); code != exitFailed {
		t.Fatalf("sim image: exit code %d: %s", code, stderr)
	}
	a, confirm := "sim:"+path("a"), "--confirm-serial="+serials["a"]
	for _, c := range []struct {
		code int
		args []string
		text string
	}{
		{exitFailed, []string{"op", "set", a, "--size", "6.4TB", confirm}, "(transaction t1)"},
		{exitFailed, []string{"feature", "set", a, "power-management", "--value", "1", confirm}, "(transaction t2)"},
		{exitFailed, []string{"reset", a, confirm}, "(transaction t3)"},
		{exitFailed, []string{"format", a, confirm}, "(transaction t4)"},
		{exitFailed, []string{"apply", a, "-f", path("spec.yaml"), confirm}, "(transaction t5)"},
		// What is due besides is said too.
		{exitFailed, []string{"fw", "update", a, "--image", path("new.bin"), "--activate", "store", confirm}, "(transaction t6)"},
		{exitResetPending, []string{"fw", "update", a, "--revision", "0B200200", "--pad", confirm}, "(transaction t7)"},
		{exitPartly, []string{"op", "set", a, "--size", "3.2TB", confirm, "--fault", "before create power-cut"}, "t8"},
		{exitFailed, []string{"resume", "t8", confirm}, "(transaction t8)"},
		{exitPartly, []string{"op", "set", a, "--size", "6.4TB", confirm, "--fault", "before create power-cut"}, "t9"},
		{exitFailed, []string{"rollback", "t9", "--abandon", confirm}, "(transaction t9)"},
		{exitFailed, []string{"sanitize", "start", "sim:" + path("c"), "--action", "crypto", "--confirm-serial", serials["c"]}, "(transaction t10)"},
	} {
		code, stderr := nvop(c.args...)
		done := c.code == exitPartly || strings.Contains(stderr, "the change was done")
		if code != c.code || !done || !strings.Contains(stderr, c.text) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, stderr)
		}
	}
	if code, stderr := nvop("selftest", "start", "sim:"+path("d")); code != exitFailed || !strings.Contains(stderr, "the self-test was started") {
		t.Errorf("selftest start: exit code %d: %s", code, stderr)
	}
	var errout, out bytes.Buffer
	b := "sim:" + path("b")
	execute(context.Background(), []string{"apply", b, "sim:" + path("d"), "-f", path("other.yaml"), "--dry-run", "-o", "json"}, streams{strings.NewReader(""), &out, &errout}, env)
	_, digest, _ := strings.Cut(out.String(), `"digest": "`)
	code, stderr := nvop("apply", b, "sim:"+path("d"), "-f", path("other.yaml"), "--jobs", "1", "--confirm-digest", digest[:12])
	if code == exitOK || !strings.Contains(stderr, "changes were done (transactions t11, t12)") {
		t.Errorf("apply to two: exit code %d: %s", code, stderr)
	}
}
