package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpVerifyCases verify soaks of a simulated drive in another process, through
// the kernel's NVMe stack.
func tcpVerifyCases() []vm.Case {
	return []vm.Case{
		{Name: "tcp/verify-killed", Limit: 4 * time.Minute, Run: guestTCPVerifyKilled},
		{Name: "tcp/verify-61tb-memory", Limit: 4 * time.Minute, Run: guestTCPVerifyMemory},
	}
}

// guestTCPVerifyKilled: a verified random soak that is killed and resumed accuses
// nobody; what is then changed below the drive's commands is found and named.
func guestTCPVerifyKilled(t *testing.T) {
	file := makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "VERIFY1", "--contents", "sparse")
	want(t, 0, "op", "set", "sim:"+file, "--size", "4MiB", "--exact", "--confirm-serial", "VERIFY1")
	s := serve(t, file)
	s.connect(t)
	node := blockNode(t, "VERIFY1", 1)
	flags := []string{"--confirm-serial", "VERIFY1"}
	cmd, said := start(t, append([]string{"soak", "start", node, "--rw", "randrw", "--read-percent", "30", "--order", "permutation", "--bs", "4KiB",
		"--qd", "16", "--fill", "1", "--size", "10MiB", "--verify", "reads"}, flags...)...)
	_, before := diskCounters(t, filepath.Base(node))
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, now := diskCounters(t, filepath.Base(node)); now-before > 5<<20 {
			break // beyond its fill
		}
		if time.Now().After(deadline) {
			t.Fatalf("the soak does not get going:\n%s", said.String())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("it was over before it was killed:\n%s", said.String())
	}
	// As it is: what was under way is unknown or right, and nothing is wrong.
	doc := document(t, "soak", "verify", "r1")
	if v := doc["verified"].(map[string]any); text(v["mismatches_total"]) != "0" || text(v["blocks"]) != "8192" {
		t.Errorf("after the kill: %v", v)
	}
	doc = document(t, append([]string{"soak", "resume", "r1"}, flags...)...)
	if v := doc["verified"].(map[string]any); text(doc["verdict"]) != "pass" || text(v["mismatches_total"]) != "0" {
		t.Errorf("resumed: %v, %v", doc["verdict"], v)
	}
	doc = document(t, "soak", "verify", "r1")
	if v := doc["verified"].(map[string]any); text(v["right"]) != "8192" {
		t.Errorf("in the end: %v", v)
	}
	older := filepath.Join(stateDir(t), "older")
	edit := func(args ...string) { want(t, 0, append([]string{"sim", "edit", file}, args...)...) }
	edit("snapshot", "--lba", "0", "--blocks", "4096", "--snapshot", older)
	document(t, append([]string{"soak", "start", node, "--rw", "randwrite", "--order", "permutation", "--passes", "1", "--qd", "16", "--verify", "passes"}, flags...)...)
	edit("copy", "--lba", "5000", "--to", "5100")
	edit("swap", "--lba", "6000", "--to", "6100")
	edit("flip", "--lba", "7000", "--bit", "2345")
	edit("tear", "--lba", "1000", "--snapshot", older)
	edit("restore", "--lba", "2000", "--snapshot", older)
	r := want(t, 3, "soak", "verify", "-o", "json")
	v := decodeOne(t, r.stdout)["verified"].(map[string]any)
	for kind, n := range map[string]string{"misdirected": "3", "rotten": "1", "torn": "1", "lost": "1", "right": "8186"} {
		if text(v[kind]) != n {
			t.Errorf("%s: %v blocks, want %s: %v", kind, v[kind], n, v)
		}
	}
}

// guestTCPVerifyMemory: a verified random soak of 61.44 TB that another process
// serves takes the same memory from beginning to end. The full length of it runs
// over a sparse file in memory (TestSoak_memoryIsFlat): this machine is too slow.
func guestTCPVerifyMemory(t *testing.T) {
	s := serve(t, makeDrive(t, "pe501-61.44tb", "--serial", "LARGE1", "--contents", "blocks"))
	s.connect(t)
	node := blockNode(t, "LARGE1", 1)
	cmd, said := start(t, "soak", "start", node, "--rw", "randrw", "--read-percent", "50", "--bs", "4KiB", "--qd", "16", "--zipf", "1.1",
		"--size", "8MiB", "--verify", "reads", "--confirm-serial", "LARGE1", "-o", "json")
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	var first, most uint64
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(100 * time.Millisecond):
			if rss := residentOf(cmd.Process.Pid); rss != 0 {
				if most = max(most, rss); first == 0 {
					first = rss
				}
			}
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, said.String())
	}
	t.Logf("resident %d to %d MiB", first>>10, most>>10)
	if first == 0 || most-first > 64<<10 {
		t.Errorf("resident memory grew from %d to %d MiB", first>>10, most>>10)
	}
	doc := document(t, "soak", "status")
	v, ok := doc["verified"].(map[string]any)
	if !ok || text(v["mismatches_total"]) != "0" || text(v["blocks"]) == "0" {
		t.Errorf("%v", doc["verified"])
	}
}

// residentOf is the resident memory of a process in KiB; 0 when it has none.
func residentOf(pid int) uint64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			v, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			if err == nil {
				return v
			}
		}
	}
	return 0
}
