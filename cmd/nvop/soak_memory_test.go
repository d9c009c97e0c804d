package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// residentKiB is the resident memory of a process, with what is shared with
// files left out; false when it has ended.
func residentKiB(pid int) (uint64, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			v, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return v, err == nil
		}
	}
	return 0, false // a zombie has none
}

// Cases A1 to A3, and B1: a verified random soak of 61.44 TB takes the same memory from
// beginning to end, however many blocks it has written. The drive is a sparse
// file in memory that the kernel keeps; the operations draw blocks anew by a Zipf
// law, so that many are written again and again.
func TestSoak_memoryIsFlat(t *testing.T) {
	skipUnderRace(t)
	operations, freeGiB := 60_000, 1
	if os.Getenv("NVOP_LONG") != "" {
		operations, freeGiB = 10_000_000, 14
	}
	t.Logf("%d operations (10,000,000 with NVOP_LONG=1)", operations)
	disk := sparseInMemory(t, 61_440_000_000_000, freeGiB)
	w := &workshop{t: t, dir: t.TempDir()}
	cmd := w.command("soak", "start", "file:"+disk, "--rw", "randrw", "--read-percent", "50", "--zipf", "1.1", "--bs", "4KiB", "--qd", "64",
		"--size", strconv.Itoa(operations*4096)+"B", "--verify", "reads", "--engine", "sync", "--buffered", "-o", "json")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			running = false
		case <-tick.C:
			if v, ok := residentKiB(cmd.Process.Pid); ok {
				seen = append(seen, v)
			}
		}
	}
	var done soakResult
	w.must(&done, "soak", "status")
	if done.Verified == nil || done.Verified.Blocks == 0 || done.Verified.MismatchesTotal != 0 || done.Verdict != "pass" {
		t.Errorf("%s: %+v", done.Verdict, done.Verified)
	}
	if len(seen) < 10 {
		t.Skipf("the soak was over after %d looks at its memory: too few to tell", len(seen))
	}
	// The first tenth is the process starting.
	steady := seen[len(seen)/10:]
	low, high := steady[0], steady[0]
	for _, v := range steady {
		low, high = min(low, v), max(high, v)
	}
	t.Logf("%d operations, %d + %d: resident %d to %d MiB in %d looks; %+v", operations, done.ReadOps, done.WriteOps, low>>10, high>>10, len(seen), done.Verified.Verified)
	if high-steady[0] > 64<<10 {
		t.Errorf("resident memory grew from %d to %d MiB", steady[0]>>10, high>>10)
	}
}

// sparseInMemory is a sparse file on a file system in memory.
func sparseInMemory(t *testing.T, size int64, freeGiB int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	free := 0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			free = kib >> 20
		}
	}
	if _, err := os.Stat("/dev/shm"); err != nil || free < freeGiB {
		t.Skipf("it takes /dev/shm and %d GiB of memory; %d are free", freeGiB, free)
	}
	dir, err := os.MkdirTemp("/dev/shm", "nvop-sparse-*")
	if err != nil {
		t.Skipf("no file system in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("a sparse file of %d bytes: %v", size, err)
	}
	return path
}
