package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpHolderCases: drives that a volume manager or an array has taken.
func tcpHolderCases() []vm.Case {
	return []vm.Case{
		{Name: "tcp/lvm-holder", Limit: 2 * time.Minute, Run: guestTCPVolume},
		{Name: "tcp/md-holder", Limit: 2 * time.Minute, Run: guestTCPArray},
	}
}

// lvm runs one of LVM's commands with all that it keeps in memory: there is no
// udev here, and the root is read-only.
func lvm(t *testing.T, args ...string) {
	t.Helper()
	dir := filepath.Join(stateDir(t), "lvm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := `activation{udev_sync=0 udev_rules=0 monitoring=0} backup{backup=0 archive=0} ` +
		`devices{use_devicesfile=0 obtain_device_list_from_udev=0} global{use_lvmpolld=0 event_activation=0}`
	r := attempt(t, []string{"LVM_SYSTEM_DIR=" + dir, "LVM_SUPPRESS_FD_WARNINGS=1"}, "lvm", append(args, "--config", config)...)
	if r.code != 0 {
		t.Fatalf("lvm %q: %v", args, r)
	}
}

// refusedFor tries everything that destroys, and wants it refused for a holder.
func refusedFor(t *testing.T, node, block, serial, why string) {
	t.Helper()
	for _, args := range [][]string{
		{"op", "set", node, "--size", "32GiB", "--allow-fabrics", "--confirm-serial", serial},
		{"format", node, "--lba", "4096", "--confirm-serial", serial},
		{"ns", "delete", node, "--nsid", "1", "--allow-fabrics", "--confirm-serial", serial},
		{"soak", "start", block, "--rw", "write", "--size", "1MiB", "--confirm-serial", serial},
	} {
		// What is in use stays refused whatever else is accepted.
		accepted := append(args, "--accept", "signature", "--accept", "partition-table", "--accept", "unknown", "--accept", "reader")
		if r := want(t, 4, accepted...); !strings.Contains(r.stderr, why) {
			t.Errorf("%v: want %q: %v", args, why, r)
		}
	}
}

// guestTCPVolume: an active logical volume keeps nvop away; one that is not
// active leaves its signature, which has to be accepted.
func guestTCPVolume(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "LVM1"))
	node := s.connect(t)
	block := blockNode(t, "LVM1", 1)
	lvm(t, "pvcreate", "-q", "-ff", "-y", block)
	lvm(t, "vgcreate", "-q", "nvopvg", block)
	lvm(t, "lvcreate", "-q", "-y", "-Zn", "-Wn", "-L", "1G", "-n", "data", "nvopvg")
	t.Cleanup(func() { attempt(t, nil, "dmsetup", "remove", "--noudevsync", "nvopvg-data") })
	refusedFor(t, node, block, "LVM1", "LVM")
	if got := sizeOf(t, "LVM1", 1); got != factoryBytes {
		t.Fatalf("a refused change left %d bytes", got)
	}
	lvm(t, "vgchange", "-q", "-an", "nvopvg")
	if r := want(t, 4, "format", node, "--lba", "4096", "--confirm-serial", "LVM1"); !strings.Contains(r.stderr, "signature") {
		t.Errorf("an inactive physical volume: %v", r)
	}
	want(t, 0, "format", node, "--lba", "4096", "--confirm-serial", "LVM1", "--accept", "signature")
}

// guestTCPArray: the members of an array are two served drives.
func guestTCPArray(t *testing.T) {
	var blocks []string
	dir := stateDir(t)
	var nodes []string
	for _, serial := range []string{"MDA1", "MDA2"} {
		file := filepath.Join(dir, serial+".nvop")
		want(t, 0, "sim", "create", file, "--profile", "client-1tb", "--scale", "1864", "--serial", serial)
		s := serve(t, file)
		nodes = append(nodes, s.connect(t))
		eventually(t, "the block device", func() bool { return blockName(t, serial, 1) != "" })
		blocks = append(blocks, blockNode(t, serial, 1))
	}
	tool(t, "mdadm", "--create", "/dev/md8", "--run", "--force", "--level=1", "--raid-devices=2", "--assume-clean",
		"--size=1048576", "--metadata=1.2", blocks[0], blocks[1])
	undo(t, "mdadm", "--stop", "/dev/md8")
	for i, serial := range []string{"MDA1", "MDA2"} {
		for _, args := range [][]string{
			{"format", nodes[i], "--lba", "4096", "--confirm-serial", serial},
			{"soak", "start", blocks[i], "--rw", "write", "--size", "1MiB", "--confirm-serial", serial},
		} {
			if r := want(t, 4, append(args, "--accept", "signature", "--accept", "unknown")...); !strings.Contains(r.stderr, "md") {
				t.Errorf("%v: %v", args, r)
			}
		}
	}
}
