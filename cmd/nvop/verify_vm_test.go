package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// guestURingProtection soaks a format with protection information by commands,
// which leave it to the controller (PRACT): nvme-cli, which makes the controller
// check guard and reference tag, is the witness that what is stored is right.
func guestURingProtection(t *testing.T) {
	wipe(t)
	ctrl := controllerNode(t, plainSerial)
	// QEMU's second format is 512+8.
	tool(t, "nvme", "format", ctrl, "--namespace-id=1", "--lbaf=1", "--pi=1", "--ms=0", "--force")
	t.Cleanup(func() { tool(t, "nvme", "format", ctrl, "--namespace-id=1", "--lbaf=0", "--pi=0", "--ms=0", "--force") })
	node := blockNode(t, plainSerial, 1)
	doc := document(t, "soak", "start", node, "--engine", "uring-cmd", "--rw", "write", "--bs", "64KiB", "--qd", "8",
		"--size", "16MiB", "--confirm-serial", plainSerial)
	// One operation more where the last of a pass is a short one, as it is here.
	written, err := strconv.ParseUint(text(doc["write_bytes"]), 10, 64)
	if err != nil || written < 16<<20 || written > 16<<20+64<<10 || text(doc["write_errors"]) != "0" || text(doc["engine"]) != "NVMe commands through io_uring" {
		t.Errorf("%v bytes, %v errors, by %v", doc["write_bytes"], doc["write_errors"], doc["engine"])
	}
	data, meta := filepath.Join(stateDir(t), "data"), filepath.Join(stateDir(t), "meta")
	read := func(lba, tag int) ran {
		return attempt(t, nil, "nvme", "read", node, fmt.Sprintf("--start-block=%d", lba), "--block-count=0", "--data-size=512", "--metadata-size=8",
			"--prinfo=5", fmt.Sprintf("--ref-tag=%d", tag), "--data="+data, "--metadata="+meta)
	}
	for _, lba := range []int{0, 1, 32767} {
		if r := read(lba, lba); r.code != 0 {
			t.Errorf("LBA %d: the controller does not agree with its protection information: %v", lba, r)
		}
		if b, err := os.ReadFile(data); err != nil || len(b) < 7 || string(b[:7]) != "nvopBLK" {
			t.Errorf("LBA %d: %v, % x", lba, err, b[:min(len(b), 8)])
		}
		if r := read(lba, lba+1); r.code == 0 {
			t.Errorf("LBA %d: another reference tag is right too: nothing was checked", lba)
		}
	}
	// Read by commands the controller checks and strips it.
	found := document(t, "soak", "verify", node, "--engine", "uring-cmd")
	verified, ok := found["verified"].(map[string]any)
	if !ok || text(verified["right"]) != fmt.Sprint(written/512) || text(verified["mismatches_total"]) != "0" {
		t.Errorf("%v", found["verified"])
	}
}
