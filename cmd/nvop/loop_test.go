package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// loopInMemory is a loop device over a file in memory, with direct I/O: the
// kernel's own count of its operations is a witness.
func loopInMemory(t *testing.T, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a loop device needs root")
	}
	backing, err := os.CreateTemp("/dev/shm", "nvop-loop-")
	if err != nil {
		t.Skip("no file in memory:", err)
	}
	t.Cleanup(func() { _ = os.Remove(backing.Name()) })
	if err := backing.Truncate(size); err != nil {
		t.Fatal(err)
	}
	_ = backing.Close() // losetup opens it by itself
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", "--sector-size=4096", backing.Name()).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", node).Run() })
	return node
}

// writesOf is how many writes the kernel counts of a block device, those that it
// merged into another included (/sys/block/X/stat, fields 5 and 6).
func writesOf(t *testing.T, node string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(node), "stat"))
	if err != nil {
		t.Skip(err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		t.Fatalf("%q", text)
	}
	sum := uint64(0)
	for _, f := range fields[4:6] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// Every operation that a soak counts is one that the kernel counts, whatever
// moves it, and all of it goes past the page cache (case E1).
func TestSoak_loopCountsAgree(t *testing.T) {
	skipUnderRace(t)
	node := loopInMemory(t, 64<<20)
	w := &workshop{t: t, dir: t.TempDir()}
	for _, engine := range []string{"auto", "uring", "sync"} {
		for _, workers := range []string{"1", "2"} {
			before := writesOf(t, node)
			var doc soakResult
			w.must(&doc, "soak", "start", "file:"+node, "--engine", engine, "--rw", "randwrite", "--bs", "4KiB", "--qd", "32",
				"--workers", workers, "--size", "32MiB", "--overwrite")
			got := writesOf(t, node) - before
			if doc.WriteOps != 8192 || got != 8192 || doc.WriteErrors != 0 {
				t.Errorf("%s, %s workers: %d operations counted, %d errors; the kernel counts %d", engine, workers, doc.WriteOps, doc.WriteErrors, got)
			}
		}
	}
}

// What has no size is soaked as large as it is taken to be, as it is resumed;
// other character devices are left alone.
func TestSoak_characterDevices(t *testing.T) {
	skipUnderRace(t)
	w := &workshop{t: t, dir: t.TempDir()}
	var doc soakResult
	w.must(&doc, "soak", "start", "file:/dev/null", "--capacity", "1GiB", "--rw", "randwrite", "--qd", "64", "--size", "8MiB")
	if doc.WriteOps != 2048 || doc.CapacityBytes != 1<<30 || !strings.Contains(doc.Engine, "buffered: a character device") {
		t.Errorf("%+v", doc)
	}
	w.must(&doc, "soak", "start", "file:/dev/null", "--capacity", "1GiB", "--rw", "randwrite", "--data", "headers", "--engine", "sync", "--size", "8MiB")
	for text, args := range map[string][]string{
		"--capacity 1TiB": {"soak", "start", "file:/dev/null", "--rw", "write", "--size", "1MiB"},
		"harmless":        {"soak", "start", "file:/dev/random", "--capacity", "1GiB", "--rw", "write", "--size", "1MiB"},
		"no NVMe drive":   {"soak", "start", "file:/dev/null", "--capacity", "1GiB", "--engine", "uring-cmd", "--rw", "write", "--size", "1MiB"},
		"needs --engine":  {"soak", "start", "file:/dev/null", "--capacity", "1GiB", "--engine", "sync", "--polled", "--rw", "write", "--size", "1MiB"},
	} {
		out, err := w.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), text) {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}
