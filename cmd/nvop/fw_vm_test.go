package main_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpFirmwareCases change a served drive's firmware and power through the kernel,
// by nvop and by nvme-cli, and kill nvop in the middle.
func tcpFirmwareCases() []vm.Case {
	cases := []vm.Case{
		{Name: "tcp/fw-update", Limit: 2 * time.Minute, Run: guestTCPFirmware},
		{Name: "tcp/fw-by-nvme-cli", Limit: 2 * time.Minute, Run: guestTCPFirmwareByCLI},
		{Name: "tcp/fw-activate", Limit: 2 * time.Minute, Run: guestTCPFirmwareActivate},
		{Name: "tcp/fw-live", Limit: 2 * time.Minute, Run: guestTCPFirmwareLive},
		{Name: "tcp/power", Limit: 2 * time.Minute, Run: guestTCPPower},
	}
	download := opStep{command: "fwdownload", says: "load firmware"}
	commit := opStep{command: "fwcommit", says: "; commit"}
	for _, c := range []struct {
		step opStep
		end  string
	}{{download, "resume"}, {commit, "resume"}, {commit, "rollback"}} {
		cases = append(cases, vm.Case{
			Name: "tcp/fw-kill-at-" + c.step.command + "-" + c.end, Limit: 2 * time.Minute,
			Run: func(t *testing.T) { guestTCPFirmwareKilled(t, c.step, c.end) },
		})
	}
	return cases
}

const (
	oldRevision = "0B100100" // the PBlaze7 as it is delivered
	newRevision = "0B200200"
)

// firmwareImage makes an image for the PBlaze7.
func firmwareImage(t *testing.T, revision string) string {
	t.Helper()
	path := filepath.Join(stateDir(t), revision+".bin")
	want(t, 0, "sim", "image", path, "--revision", revision, "--bytes", "65536")
	return path
}

// slots is what both readers say of a drive's firmware; they must agree.
func slots(t *testing.T, node, running string, active, next string, revisions ...string) {
	t.Helper()
	list := document(t, "fw", "list", node)
	if text(list["running"]) != running || text(list["active_slot"]) != active || text(list["next_slot"]) != next {
		t.Errorf("nvop: %s runs from slot %s, next %s; want %s, %s, %s", text(list["running"]), text(list["active_slot"]), text(list["next_slot"]), running, active, next)
	}
	log := tool(t, "nvme", "fw-log", node)
	for i, revision := range revisions {
		slot := objects(t, list, "slots")[i]
		if text(slot["revision"]) != revision {
			t.Errorf("nvop: slot %d holds %q, want %q", i+1, text(slot["revision"]), revision)
		}
		if revision != "" && !strings.Contains(log, revision) {
			t.Errorf("nvme-cli does not show revision %q:\n%s", revision, log)
		}
	}
	afi := "0x" + next + active
	if next == "0" {
		afi = "0x" + active
	}
	if !strings.Contains(log, afi+"\n") {
		t.Errorf("nvme-cli does not show afi %s:\n%s", afi, log)
	}
	cli(t, says{"fr": running}, "id-ctrl", node)
}

// guestTCPFirmware: nvop stages, nvme-cli sees it, a reset of the kernel
// activates it, and nvop verifies.
func guestTCPFirmware(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FW1"))
	node := s.connect(t)
	image := firmwareImage(t, newRevision)
	want(t, 4, "fw", "update", node, "--image", image)
	want(t, 0, "fw", "update", node, "--image", image, "--dry-run")
	slots(t, node, oldRevision, "1", "0", oldRevision, "", "")
	want(t, 8, "fw", "update", node, "--image", image, "--revision", newRevision, "--confirm-serial", "FW1")
	slots(t, node, oldRevision, "1", "2", oldRevision, newRevision, "")
	want(t, 8, "fw", "verify", node)
	tool(t, "nvme", "reset", node)
	slots(t, node, newRevision, "2", "0", oldRevision, newRevision, "")
	want(t, 0, "fw", "verify", node)
	want(t, 0, "journal", "verify")
}

// guestTCPFirmwareByCLI: nvme-cli downloads and commits, nvop sees it.
func guestTCPFirmwareByCLI(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FW2"))
	node := s.connect(t)
	image := firmwareImage(t, newRevision)
	tool(t, "nvme", "fw-download", node, "--fw="+image)
	tool(t, "nvme", "fw-commit", node, "-s", "3", "-a", "1")
	slots(t, node, oldRevision, "1", "3", oldRevision, "", newRevision)
	if r := want(t, 8, "fw", "verify", node); !strings.Contains(r.stdout, "by no record") {
		t.Errorf("verify: %v", r)
	}
	// nvop makes what runs stay.
	want(t, 0, "fw", "update", node, "--revision", oldRevision, "--confirm-serial", "FW2")
	slots(t, node, oldRevision, "1", "1", oldRevision, "", newRevision)
	tool(t, "nvme", "fw-commit", node, "-s", "3", "-a", "2")
	tool(t, "nvme", "reset", node)
	slots(t, node, newRevision, "3", "0", oldRevision, "", newRevision)
}

// guestTCPFirmwareActivate: nvop resets the controller through the kernel and
// sees the new revision run.
func guestTCPFirmwareActivate(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FW3"))
	node := s.connect(t)
	image := firmwareImage(t, newRevision)
	block := blockNode(t, "FW3", 1)
	tool(t, "mkfs.ext4", "-q", "-F", block, "1g")
	want(t, 4, "fw", "update", node, "--image", image, "--revision", newRevision, "--activate", "reset", "--confirm-serial", "FW3")
	slots(t, node, oldRevision, "1", "0", oldRevision, "", "")
	want(t, 0, "fw", "update", node, "--image", image, "--revision", newRevision, "--activate", "reset", "--accept", "signature", "--confirm-serial", "FW3")
	slots(t, node, newRevision, "2", "0", oldRevision, newRevision, "")
}

// guestTCPFirmwareLive: FW-08. An activation without a reset makes the kernel stop
// the controller for a while; nvop waits for it and sees the new revision run.
func guestTCPFirmwareLive(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FW4"))
	node := s.connect(t)
	image := firmwareImage(t, newRevision)
	live := []string{"fw", "update", node, "--image", image, "--revision", newRevision, "--activate", "live", "--confirm-serial", "FW4"}
	want(t, 4, live...)
	want(t, 0, append(live, "--allow-live", "*P7940*")...)
	eventually(t, "live again", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
	slots(t, node, newRevision, "2", "0", oldRevision, newRevision, "")
	want(t, 0, "fw", "verify", node)
}

// guestTCPFirmwareKilled kills an update with -9 while the drive is busy with one
// of its commands, and then carries on or goes back.
func guestTCPFirmwareKilled(t *testing.T, step opStep, end string) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FWK"), "--fault", "delay 1500ms 1st "+step.command)
	node := s.connect(t)
	image := firmwareImage(t, newRevision)
	cmd, said := start(t, "fw", "update", node, "--image", image, "--revision", newRevision, "--confirm-serial", "FWK")
	said.waitFor(t, step.says)
	time.Sleep(200 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// A process in an ioctl dies when the command is over.
	if err := cmd.Wait(); err == nil {
		t.Fatalf("the update was done before it was killed:\n%s", said.String())
	}
	if end == "resume" {
		want(t, 8, "resume", "--confirm-serial", "FWK")
		slots(t, node, oldRevision, "1", "2", oldRevision, newRevision, "")
		tool(t, "nvme", "reset", node)
		want(t, 0, "fw", "verify", node)
	} else {
		want(t, 0, "rollback", "--confirm-serial", "FWK")
		tool(t, "nvme", "reset", node)
		cli(t, says{"fr": oldRevision}, "id-ctrl", node)
	}
	want(t, 0, "journal", "verify")
}

// guestTCPPower: what nvop sets nvme-cli reads, and the other way round.
func guestTCPPower(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "PWR1"))
	node := s.connect(t)
	want(t, 0, "power", "set", node, "--state", "2", "--confirm-serial", "PWR1")
	if out := tool(t, "nvme", "get-feature", node, "-f", "2"); !strings.Contains(strings.ToLower(out), "0x00000002") {
		t.Errorf("nvme-cli: %s", out)
	}
	tool(t, "nvme", "set-feature", node, "-f", "2", "-v", "1")
	tool(t, "nvme", "set-feature", node, "-f", "0xc6", "-v", "3")
	list := document(t, "power", "list", node)
	if text(dig(list, "current.power_state")) != "1" || text(dig(list, "vendor_limit.setting.current.dword")) != "3" {
		t.Errorf("nvop: %v", list)
	}
	theirs := objects(t, nvmeCLI(t, "id-ctrl", node), "psds")
	for i, ours := range objects(t, list, "power_states") {
		// nvme-cli counts hundredths of a watt.
		if text(ours["max_power_microwatts"]) != text(theirs[i]["max_power"])+"0000" {
			t.Errorf("state %d: nvop has %s uW, nvme-cli %s", i, text(ours["max_power_microwatts"]), text(theirs[i]["max_power"]))
		}
	}
}
