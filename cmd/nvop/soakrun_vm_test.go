package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpSoakCases are soaks of several drives, over the kernel's own NVMe stack.
func tcpSoakCases() []vm.Case {
	return []vm.Case{{Name: "tcp/soak-two-drives", Limit: 3 * time.Minute, Run: guestTCPSoakTwo}}
}

// guestTCPSoakTwo soaks two drives in one process. One is taken away: the other
// goes on to its end, the exit code says that something can be resumed, and resume
// --all finishes what was interrupted once the drive is back, and nothing else.
func guestTCPSoakTwo(t *testing.T) {
	const size = 8 << 20
	var drives []*served
	var blocks []string
	for _, serial := range []string{"TWO-A", "TWO-B"} {
		file := filepath.Join(stateDir(t), serial+".nvop")
		want(t, 0, "sim", "create", file, "--profile", "pblaze7-7940-7.68tb", "--scale", "14308", "--serial", serial)
		s := serve(t, file)
		s.connect(t, "--ctrl-loss-tmo=2", "--reconnect-delay=1")
		drives = append(drives, s)
		blocks = append(blocks, blockNode(t, serial, 1))
	}
	cmd, said := start(t, "soak", "start", blocks[0], blocks[1], "--rw", "randwrite", "--bs", "16KiB", "--qd", "4", "--iops", "50",
		"--size", "8MiB", "--reappear=0s", "--metrics", filepath.Join(stateDir(t), "m.prom"), "--confirm-serial", "TWO-A,TWO-B", "-o", "json")
	_, before := diskCounters(t, filepath.Base(blocks[0]))
	written := func() bool {
		_, now := diskCounters(t, filepath.Base(blocks[0]))
		return now-before > 1<<20
	}
	for range 600 {
		if written() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !written() {
		t.Fatalf("the drives are not written:\n%s", said.String())
	}
	drives[0].disconnect(t)
	_ = cmd.Wait() // its exit code is looked at
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Fatalf("exit code %d, want 7:\n%s", code, said.String())
	}
	if text := said.String(); !strings.Contains(text, "nvop.soak-group/1") || !strings.Contains(text, `"pass"`) || !strings.Contains(text, `"interrupted"`) {
		t.Errorf("one is to have passed and one to be interrupted:\n%s", text)
	}
	r := nvop(t, "soak", "resume", "--all", "--confirm-serial", "TWO-A,TWO-B", "-o", "json")
	if r.code == 0 {
		t.Errorf("it went on without its drive: %v", r)
	}
	drives[0].connect(t)
	if node := blockNode(t, "TWO-A", 1); node == "" {
		t.Fatal("the drive did not come back")
	}
	// What failed when the drive went keeps the run from being a pass; it was
	// written all the same.
	if r = nvop(t, "soak", "resume", "--all", "--confirm-serial", "TWO-A,TWO-B", "-o", "json"); r.code != 0 && r.code != 3 {
		t.Fatalf("resume --all: %v", r)
	}
	doc := decodeOne(t, r.stdout)
	runs, _ := doc["runs"].([]any)
	if len(runs) != 1 {
		t.Fatalf("%d runs went on, want the one that was interrupted: %v", len(runs), doc)
	}
	run, _ := runs[0].(map[string]any)
	if text(run["serial"]) != "TWO-A" || text(run["write_bytes"]) != fmt.Sprint(size) || text(run["state"]) != "finished" {
		t.Errorf("%v", run)
	}
	want(t, 0, "journal", "verify")
}
