package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// soakCases wear the plain drive a little. The witness is the kernel's own count
// of sectors, which no code of this program touches.
func soakCases() []vm.Case {
	return []vm.Case{
		{Name: "soak/writes-what-it-says", Limit: 2 * time.Minute, Run: guestSoak},
		{Name: "soak/reads-what-it-says", Limit: 2 * time.Minute, Run: guestSoakRead},
		{Name: "soak/kill-and-resume", Limit: 3 * time.Minute, Run: guestSoakKilled},
		{Name: "soak/refused-while-used", Run: guestSoakRefused},
	}
}

// diskCounters are the sectors of 512 bytes read and written, as the block layer
// counts them (/sys/block/X/stat, fields 3 and 7).
func diskCounters(t *testing.T, name string) (readBytes, writtenBytes uint64) {
	t.Helper()
	fields := strings.Fields(sysfs("block", name, "stat"))
	if len(fields) < 7 {
		t.Fatalf("stat of %s: %q", name, fields)
	}
	bytesOf := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n * 512
	}
	return bytesOf(fields[2]), bytesOf(fields[6])
}

func guestSoak(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	for _, c := range []struct {
		rw, bs string
		block  uint64
	}{{"randwrite", "4KiB", 4096}, {"write", "128KiB", 128 << 10}} {
		_, before := diskCounters(t, filepath.Base(node))
		doc := document(t, "soak", "start", node, "--rw", c.rw, "--bs", c.bs, "--qd", "4",
			"--size", "16MiB", "--confirm-serial", plainSerial)
		_, after := diskCounters(t, filepath.Base(node))
		const size = 16 << 20
		if text(doc["write_bytes"]) != fmt.Sprint(size) || text(doc["write_ops"]) != fmt.Sprint(size/c.block) {
			t.Errorf("%s: %v bytes in %v operations, want %d in %d", c.rw, doc["write_bytes"], doc["write_ops"], size, size/c.block)
		}
		if after-before != size {
			t.Errorf("%s: the kernel counts %d bytes written, want %d", c.rw, after-before, size)
		}
		if text(doc["read_ops"]) != "0" {
			t.Errorf("%s: %v reads", c.rw, doc["read_ops"])
		}
	}
}

func guestSoakRead(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	before, writtenBefore := diskCounters(t, filepath.Base(node))
	doc := document(t, "soak", "start", node, "--rw", "randread", "--bs", "64KiB", "--qd", "2",
		"--size", "16MiB", "--confirm-serial", plainSerial)
	after, writtenAfter := diskCounters(t, filepath.Base(node))
	if text(doc["read_bytes"]) != fmt.Sprint(16<<20) || text(doc["read_ops"]) != "256" {
		t.Errorf("read %v bytes in %v operations", doc["read_bytes"], doc["read_ops"])
	}
	// Looking at the drive (its first blocks, for signatures) reads a little too.
	if got := after - before; got < 16<<20 || got > 17<<20 {
		t.Errorf("the kernel counts %d bytes read", got)
	}
	if writtenAfter != writtenBefore {
		t.Errorf("a soak of reads wrote %d bytes", writtenAfter-writtenBefore)
	}
}

// soakSize is what the killed soak is to write in all, so much that the kill
// hits it in the middle.
const soakSize = 256 << 20

// guestSoakKilled kills a soak with -9 and resumes it. What the journal says at
// the end is the whole size, once; the drive got at least that, and at most the
// blocks more whose completion the journal had not seen.
func guestSoakKilled(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	name := filepath.Base(node)
	_, before := diskCounters(t, name)
	journal := filepath.Join(stateDir(t), "journal.db")
	cmd := exec.Command(os.Getenv(envBinary), "--journal", journal, "soak", "start", node, "--rw", "randwrite",
		"--bs", "16KiB", "--qd", "4", "--size", "256MiB", "--confirm-serial", plainSerial)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // gone already unless the case failed early
	deadline := time.Now().Add(40 * time.Second)
	for {
		if _, now := diskCounters(t, name); now-before > 16<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the soak does not get going:\n%s", output.String())
		}
		time.Sleep(50 * time.Millisecond)
	}
	// Long enough for a checkpoint, which comes once a second.
	time.Sleep(1500 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, so never a success
	_, killed := diskCounters(t, name)
	if killed-before >= soakSize {
		t.Fatalf("the soak was over before it was killed (%d bytes)", killed-before)
	}
	t.Logf("killed after %d bytes", killed-before)
	list := nvop(t, "soak", "list", "-o", "json")
	if list.code != 0 {
		t.Errorf("soak list after the kill: %v", list)
	}
	doc := document(t, "soak", "resume", "--confirm-serial", plainSerial)
	_, after := diskCounters(t, name)
	if text(doc["write_bytes"]) != fmt.Sprint(soakSize) {
		t.Errorf("the journal counts %v bytes, want %d: counted twice, or not at all", doc["write_bytes"], soakSize)
	}
	got := after - before
	t.Logf("the kernel counts %d bytes for %d asked for", got, soakSize)
	if got < soakSize || got > soakSize*3/2 {
		t.Errorf("the kernel counts %d bytes for %d asked for", got, soakSize)
	}
	want(t, 0, "journal", "verify")
}

func guestSoakRefused(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	useMount(t, node)
	_, before := diskCounters(t, filepath.Base(node))
	r := want(t, 4, "soak", "start", node, "--rw", "randwrite", "--bs", "4KiB", "--size", "64MiB", "--confirm-serial", plainSerial)
	if !strings.Contains(r.stderr, "mounted") {
		t.Errorf("it does not say why: %v", r)
	}
	// The file system goes on making its tables in the background, which is a
	// few megabytes.
	if _, after := diskCounters(t, filepath.Base(node)); after-before > 32<<20 {
		t.Errorf("%d bytes were written meanwhile", after-before)
	}
	want(t, 80, "soak", "start", node, "--rw", "write", "--size", "1000", "--confirm-serial", plainSerial)
}
