package main_test

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/nvmetest/vm"
)

// refusalCases put the plain drive to use in every way there is here and try to
// take it away. The kernel would let all of them pass (a Format through the
// controller's node succeeds on a mounted file system), so each case also looks
// whether the drive still is as it was.
func refusalCases() []vm.Case {
	uses := []struct {
		name string
		kind inuse.Kind
		use  func(t *testing.T, node string)
	}{
		{"mounted", inuse.KindMounted, useMount},
		{"mounted-read-only", inuse.KindMounted, useMountReadOnly},
		{"partition-mounted", inuse.KindMounted, usePartition},
		{"swap", inuse.KindSwap, useSwap},
		{"dm", inuse.KindHolder, useDM},
		{"md", inuse.KindMD, useMD},
		{"writer", inuse.KindWriter, func(t *testing.T, node string) { holdOpen(t, "<>", node) }},
		{"reader", inuse.KindReader, func(t *testing.T, node string) { holdOpen(t, "<", node) }},
		{"generic-writer", inuse.KindWriter, func(t *testing.T, node string) {
			holdOpen(t, "<>", strings.Replace(node, "/dev/nvme", "/dev/ng", 1))
		}},
		{"signature", inuse.KindSignature, func(t *testing.T, node string) { tool(t, "mkfs.ext4", "-q", "-F", node) }},
		{"partition-table", inuse.KindPartitionTable, usePartitionTable},
	}
	cases := []vm.Case{{Name: "refuse/unused-is-not-refused", Run: guestUnused}}
	for _, u := range uses {
		cases = append(cases, vm.Case{Name: "refuse/" + u.name, Run: func(t *testing.T) { guestRefused(t, u.kind, u.use) }})
	}
	return append(cases, vm.Case{Name: "refuse/consent", Run: guestConsent})
}

// plainTarget is the plain drive as inuse wants it named.
func plainTarget(t *testing.T) inuse.Target {
	t.Helper()
	ctrl := controllersBySerial(t, plainSerial)[0]
	disk := blockName(t, plainSerial, 1)
	return inuse.Target{
		Disks: []string{disk}, Chars: []string{strings.Replace(disk, "nvme", "ng", 1), ctrl},
		PCIAddresses: []string{sysfs("class/nvme", ctrl, "address")},
	}
}

// wipe takes every trace off the drive: what a case left must not be found by
// the next one. It runs again when the case is over.
func wipe(t *testing.T) {
	t.Helper()
	for _, serial := range []string{plainSerial, spareSerial} {
		tool(t, "wipefs", "-q", "-a", blockNode(t, serial, 1))
	}
	tool(t, "blockdev", "--rereadpt", blockNode(t, plainSerial, 1))
}

// undo runs a program when the case is over.
func undo(t *testing.T, name string, args ...string) {
	t.Helper()
	t.Cleanup(func() { tool(t, name, args...) })
}

func guestUnused(t *testing.T) {
	wipe(t)
	if uses := inuse.Find("", plainTarget(t)); len(uses) != 0 {
		t.Errorf("a drive that nobody uses: %+v", uses)
	}
	want(t, 0, "format", controllerNode(t, plainSerial), "--lba", "4096", "--dry-run")
}

func guestRefused(t *testing.T, kind inuse.Kind, use func(*testing.T, string)) {
	t.Cleanup(func() { wipe(t) })
	wipe(t)
	node, ctrl := blockNode(t, plainSerial, 1), controllerNode(t, plainSerial)
	name := filepath.Base(node)
	use(t, node)
	uses := inuse.Find("", plainTarget(t))
	if !slices.ContainsFunc(uses, func(u inuse.Use) bool { return u.Kind == kind }) {
		t.Errorf("no use of kind %s is found: %+v", kind, uses)
	}
	commands := [][]string{
		{"format", ctrl, "--lba", "4096"},
		{"format", node, "--lba", "4096"},
		{"format", ctrl, "--all", "--lba", "4096"},
	}
	for _, command := range commands {
		r := want(t, 4, append(command, "--confirm-serial", plainSerial)...)
		if !strings.Contains(r.stderr, "refused") || !strings.Contains(r.stderr, name) && !strings.Contains(r.stderr, strings.Replace(name, "nvme", "ng", 1)) {
			t.Errorf("nvop %q: does not say who uses what: %v", command, r)
		}
	}
	acceptable := slices.Contains(inuse.Kinds(), kind)
	r := nvop(t, "format", ctrl, "--lba", "4096", "--confirm-serial", plainSerial, "--accept", string(kind))
	switch {
	case !acceptable && r.code != 80:
		t.Errorf("--accept %s, which nothing overrules: want exit code 80, got %v", kind, r)
	case acceptable && r.code != 0:
		t.Errorf("--accept %s: want exit code 0, got %v", kind, r)
	}
	wantBlock := "512"
	if acceptable {
		wantBlock = "4096"
	}
	if got := sysfs("block", blockName(t, plainSerial, 1), "queue/logical_block_size"); got != wantBlock {
		t.Errorf("logical block is %s bytes now, want %s", got, wantBlock)
	}
	if acceptable {
		want(t, 0, "format", ctrl, "--lba", "512", "--confirm-serial", plainSerial, "--accept", string(kind), "--accept", "unknown")
	}
}

// mountPoint makes one in memory.
func mountPoint(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/mnt", "nvop")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func useMount(t *testing.T, node string) { mountWith(t, node, "rw") }

func useMountReadOnly(t *testing.T, node string) { mountWith(t, node, "ro") }

func mountWith(t *testing.T, node, options string) {
	t.Helper()
	tool(t, "mkfs.ext4", "-q", "-F", node)
	dir := mountPoint(t)
	undo(t, "umount", dir)
	tool(t, "mount", "-o", options, node, dir)
}

// usePartitionTable writes an MBR with one partition from block 2048 on.
func usePartitionTable(t *testing.T, node string) {
	t.Helper()
	mbr := make([]byte, 512)
	entry := mbr[446:]
	entry[4] = 0x83 // Linux
	binary.LittleEndian.PutUint32(entry[8:], 2048)
	binary.LittleEndian.PutUint32(entry[12:], 64<<20/512)
	mbr[510], mbr[511] = 0x55, 0xaa
	f, err := os.OpenFile(node, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(mbr)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "blockdev", "--rereadpt", node)
}

func usePartition(t *testing.T, node string) {
	t.Helper()
	usePartitionTable(t, node)
	eventually(t, "the partition's node", func() bool { return exists(node + "p1") })
	mountWith(t, node+"p1", "rw")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func useSwap(t *testing.T, node string) {
	t.Helper()
	tool(t, "mkswap", "-q", node)
	tool(t, "swapon", node)
	undo(t, "swapoff", node)
}

func useDM(t *testing.T, node string) {
	t.Helper()
	tool(t, "dmsetup", "create", "nvopdm", "--noudevsync", "--noudevrules", "--table", "0 65536 linear "+node+" 0")
	undo(t, "dmsetup", "remove", "--noudevsync", "--retry", "nvopdm")
}

func useMD(t *testing.T, node string) {
	t.Helper()
	tool(t, "mdadm", "--create", "/dev/md7", "--run", "--force", "--level=1", "--raid-devices=2", "--assume-clean",
		"--metadata=1.2", "--bitmap=none", node, blockNode(t, spareSerial, 1))
	undo(t, "mdadm", "--stop", "/dev/md7")
}

// holdOpen has another process keep a node open until the case is over.
// Redirect is how a shell opens it: "<" for reading, "<>" for both.
func holdOpen(t *testing.T, redirect, node string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "exec 3"+redirect+node+" && echo open && exec sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed, so never a success
	})
	said := make([]byte, 5)
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "open\n" {
		t.Fatalf("%s was not opened: %q, %v", node, said, err)
	}
}

// guestConsent: without the right serial number nothing happens.
func guestConsent(t *testing.T) {
	wipe(t)
	ctrl := controllerNode(t, plainSerial)
	for _, command := range [][]string{
		{"format", ctrl, "--lba", "4096"},
		{"format", ctrl, "--lba", "4096", "--confirm-serial", spareSerial},
		{"format", ctrl, "--lba", "4096", "--confirm-serial", strings.ToLower(plainSerial)},
		{"ns", "detach", controllerNode(t, sharedDrive), "--nsid", "3", "--confirm-serial", plainSerial},
		{"op", "set", controllerNode(t, sharedDrive), "--nsid", "3", "--size", "64MiB", "--confirm-serial", plainSerial},
		{"soak", "start", blockNode(t, plainSerial, 1), "--rw", "write", "--size", "1MiB", "--confirm-serial", spareSerial},
	} {
		want(t, 4, command...)
	}
	if got := sysfs("block", blockName(t, plainSerial, 1), "queue/logical_block_size"); got != "512" {
		t.Errorf("logical block is %s bytes now", got)
	}
	if blockName(t, sharedDrive, 3) == "" {
		t.Error("namespace 3 was detached")
	}
}
