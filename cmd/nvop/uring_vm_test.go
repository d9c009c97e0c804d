package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/nvmetest/vm"
	"nvop/nvmeioctl/uring"
)

// uringCases move data through io_uring, to the block node and as NVMe commands
// to the generic node, and take the controller away meanwhile.
func uringCases() []vm.Case {
	return []vm.Case{
		{Name: "uring/block-node", Limit: 2 * time.Minute, Run: guestURingBlock},
		{Name: "uring/commands", Limit: 2 * time.Minute, Run: guestURingCommands},
		{Name: "uring/conformance", Limit: 2 * time.Minute, Run: guestURingConformance},
		{Name: "uring/statuses", Run: guestURingStatuses},
		{Name: "uring/protection", Limit: 3 * time.Minute, Run: guestURingProtection},
	}
}

// uringLossCases end the boot: they take the plain drive away.
func uringLossCases() []vm.Case {
	return []vm.Case{
		{Name: "uring/reset-meanwhile", Limit: 3 * time.Minute, Run: guestURingReset},
		{Name: "uring/removed-and-back", Limit: 3 * time.Minute, Run: guestURingRemoved},
	}
}

// genericNode is the generic node of the plain drive's namespace.
func genericNode(t *testing.T) string {
	t.Helper()
	return strings.Replace(blockNode(t, plainSerial, 1), "/dev/nvme", "/dev/ng", 1)
}

// commandsOf are what a queue of commands has to know, from sysfs and not from
// our own identify.
func commandsOf(t *testing.T) uring.Commands {
	t.Helper()
	name := filepath.Base(blockNode(t, plainSerial, 1))
	var sectors, block uint64
	if _, err := fmt.Sscan(sysfs("block", name, "size"), &sectors); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(sysfs("block", name, "queue/logical_block_size"), &block); err != nil {
		t.Fatal(err)
	}
	return uring.Commands{NSID: 1, SizeBlocks: sectors * 512 / block, BlockBytes: uint32(block), MaxTransferBytes: 512 << 10}
}

func guestURingBlock(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	_, before := diskCounters(t, filepath.Base(node))
	doc := document(t, "soak", "start", node, "--engine", "uring", "--rw", "randwrite", "--bs", "4KiB", "--qd", "32",
		"--size", "16MiB", "--confirm-serial", plainSerial)
	_, after := diskCounters(t, filepath.Base(node))
	const size = 16 << 20
	if text(doc["write_bytes"]) != fmt.Sprint(size) || after-before != size || text(doc["write_errors"]) != "0" {
		t.Errorf("%v bytes, %v errors; the kernel counts %d", doc["write_bytes"], doc["write_errors"], after-before)
	}
	if engine := text(doc["engine"]); engine != "io_uring" {
		t.Errorf("engine %q", engine)
	}
}

// hostWrites is the drive's own count of write commands, as nvme-cli reads it:
// commands through the generic node pass the block layer's counters by.
func hostWrites(t *testing.T) uint64 {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscan(text(nvmeCLI(t, "smart-log", controllerNode(t, plainSerial))["host_write_commands"]), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func guestURingCommands(t *testing.T) {
	wipe(t)
	node := blockNode(t, plainSerial, 1)
	before := hostWrites(t)
	_, sectors := diskCounters(t, filepath.Base(node))
	doc := document(t, "soak", "start", node, "--engine", "uring-cmd", "--rw", "write", "--bs", "64KiB", "--qd", "16",
		"--size", "16MiB", "--confirm-serial", plainSerial)
	_, sectorsAfter := diskCounters(t, filepath.Base(node))
	if got := hostWrites(t) - before; got != 256 || text(doc["write_ops"]) != "256" || text(doc["write_errors"]) != "0" {
		t.Errorf("%v writes, %v errors; the drive counts %d", doc["write_ops"], doc["write_errors"], got)
	}
	if sectorsAfter != sectors {
		t.Errorf("the block layer counts %d bytes: these were no commands", sectorsAfter-sectors)
	}
	if engine := text(doc["engine"]); engine != "NVMe commands through io_uring" {
		t.Errorf("engine %q", engine)
	}
	// What was written as commands is there as blocks.
	f, err := os.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for _, at := range []int64{0, 15 << 20} {
		if _, err := f.ReadAt(block, at); err != nil || string(block[:7]) != "nvopBLK" {
			t.Errorf("at %d: % x, %v", at, block[:8], err)
		}
	}
	if err := f.Close(); err != nil { // a reader would be a reason to refuse
		t.Fatal(err)
	}
	// One command larger than the controller takes is refused, never split.
	r := nvop(t, "soak", "start", node, "--engine", "uring-cmd", "--rw", "write", "--bs", "4MiB", "--size", "16MiB", "--confirm-serial", plainSerial)
	if r.code == 0 || !strings.Contains(r.stderr, "one command") {
		t.Errorf("%v", r)
	}
}

// pages are buffers as the engine has them.
func pages(t *testing.T, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

func guestURingConformance(t *testing.T) {
	wipe(t)
	for _, registered := range []bool{false, true} {
		area, used := pages(t, 4<<20), 0
		blank(t)
		nvmetest.TestQueue(t, nvmetest.QueueKit{
			BlockBytes: int(commandsOf(t).BlockBytes), SizeBytes: vmNamespaceBytes,
			Open: func(t testing.TB, depth int) nvmeioctl.IOQueue {
				q, err := uring.OpenCommands(genericNode(t.(*testing.T)), commandsOf(t.(*testing.T)), uring.Options{Depth: depth, Write: true})
				if err != nil {
					t.Fatal(err)
				}
				if registered {
					if err := q.RegisterBuffers(area); err != nil {
						t.Fatal(err)
					}
				}
				return q
			},
			Buffer: func(n int) []byte {
				if used+n > len(area) {
					used = 0
				}
				b := area[used : used+n : used+n]
				used += (n + 4095) &^ 4095
				clear(b)
				return b
			},
		})
	}
}

// blank zeroes the first mebibyte, where the conformance suite works.
func blank(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(blockNode(t, plainSerial, 1), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(pages(t, 1<<20)); err != nil {
		t.Fatal(err)
	}
}

// A command that the drive refuses comes back as its status, not as an error
// number and not as a success.
func guestURingStatuses(t *testing.T) {
	ns := commandsOf(t)
	beyond := ns
	beyond.SizeBlocks *= 2 // so that the queue lets it pass
	q, err := uring.OpenCommands(genericNode(t), beyond, uring.Options{Depth: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	reqs := []nvmeioctl.IORequest{{
		Op: nvmeioctl.OpRead, OffsetBytes: int64(ns.SizeBlocks) * int64(ns.BlockBytes), LengthBytes: int32(ns.BlockBytes), Buf: pages(t, 4096),
	}}
	if n, err := q.Submit(reqs); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	results := make([]nvmeioctl.IOResult, 1)
	if n, err := q.Reap(results, nvmeioctl.Never); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if r := results[0]; r.Err != nil || r.Status.Code() != 0x80 { // LBA out of range
		t.Errorf("%+v", r)
	}
	other := ns
	other.NSID = 2
	if _, err := uring.OpenCommands(genericNode(t), other, uring.Options{}); err == nil || !strings.Contains(err.Error(), "namespace 1, not 2") {
		t.Errorf("another namespace's node: %v", err)
	}
}

// guestURingReset resets the controller in the midst of a soak, by blocks and by
// commands. By blocks nobody notices; commands that were under way are errors,
// counted, and the soak ends by its rule.
func guestURingReset(t *testing.T) {
	for _, engine := range []string{"uring", "uring-cmd"} {
		wipe(t)
		controller := controllersBySerial(t, plainSerial)[0]
		before := hostWrites(t)
		cmd, said := start(t, "soak", "start", blockNode(t, plainSerial, 1), "--engine", engine, "--rw", "randwrite", "--bs", "16KiB", "--qd", "8",
			"--duration", "8s", "--confirm-serial", plainSerial, "-o", "json")
		for range 2 {
			at := before
			eventually(t, "it writes", func() bool {
				now := hostWrites(t)
				moved := now > at+50
				at = now
				return moved
			})
			if err := os.WriteFile(filepath.Join("/sys/class/nvme", controller, "reset_controller"), []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // its exit code is looked at
		code := cmd.ProcessState.ExitCode()
		if engine == "uring" && code != 0 || code != 0 && code != 3 {
			t.Errorf("%s: exit code %d:\n%s", engine, code, said.String())
		}
		if !strings.Contains(said.String(), `"finished"`) {
			t.Errorf("%s: it did not end by its rule:\n%s", engine, said.String())
		}
	}
	want(t, 0, "journal", "verify")
}

// guestURingRemoved removes the drive from the bus in the midst of a soak and
// lets the kernel find it again: the soak goes on, by identity, to its end.
func guestURingRemoved(t *testing.T) {
	for _, engine := range []string{"uring", "uring-cmd"} {
		wipe(t)
		controller := controllersBySerial(t, plainSerial)[0]
		before := hostWrites(t)
		cmd, said := start(t, "soak", "start", blockNode(t, plainSerial, 1), "--engine", engine, "--rw", "randwrite", "--bs", "16KiB", "--qd", "8",
			"--iops", "200", "--size", "24MiB", "--reappear", "90s", "--confirm-serial", plainSerial, "-o", "json")
		eventually(t, "it writes", func() bool { return hostWrites(t) > before+100 })
		if err := os.WriteFile(filepath.Join("/sys/class/nvme", controller, "device/remove"), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it notices", func() bool { return strings.Contains(said.String(), "is gone: waiting") })
		if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 {
			t.Errorf("%s: exit code %d:\n%s", engine, code, said.String())
		}
		for _, part := range []string{"is back as", `"finished"`, fmt.Sprintf(`"write_bytes": %d`, 24<<20)} {
			if !strings.Contains(said.String(), part) {
				t.Errorf("%s: no %s in:\n%s", engine, part, said.String())
			}
		}
	}
	want(t, 0, "journal", "verify")
}
