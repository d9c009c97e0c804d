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

// tcpFaultCases are what the kernel, nvme-cli, smartctl and fio make of a drive
// that suffers.
func tcpFaultCases() []vm.Case {
	return []vm.Case{
		{Name: "tcp/fault-health", Limit: 2 * time.Minute, Run: guestTCPFaultHealth},
		{Name: "tcp/fault-media-error", Limit: 2 * time.Minute, Run: guestTCPFaultMedia},
		{Name: "tcp/fault-hang", Limit: 3 * time.Minute, Run: guestTCPFaultHang},
		{Name: "tcp/fault-namespace", Limit: 2 * time.Minute, Run: guestTCPFaultNamespace},
		{Name: "tcp/fault-edit", Limit: 2 * time.Minute, Run: guestTCPFaultEdit},
		{Name: "tcp/fault-host-full", Limit: 2 * time.Minute, Run: guestTCPFaultHostFull},
		{Name: "tcp/fault-soak", Limit: 4 * time.Minute, Run: guestTCPFaultSoak},
		{Name: "tcp/hosts-over-restart", Limit: 2 * time.Minute, Run: guestTCPHosts},
	}
}

// suffer has the drive that is served suffer at run time.
func (s *served) suffer(t *testing.T, script string) {
	t.Helper()
	if doc := document(t, "sim", "fault", s.file, script); text(doc["served"]) != "true" {
		t.Fatalf("the fault did not go to who serves the drive: %v", doc)
	}
}

// copyBlocks moves blocks of 4 KiB with dd, past the page cache.
func copyBlocks(t *testing.T, write bool, block string, at, count int, more ...string) ran {
	t.Helper()
	args := []string{"if=" + block, "of=/dev/null", "iflag=direct", fmt.Sprintf("skip=%d", at)}
	if write {
		args = []string{"if=/dev/zero", "of=" + block, "oflag=direct", fmt.Sprintf("seek=%d", at)}
	}
	return attempt(t, nil, "dd", append(append(args, "bs=4096", fmt.Sprintf("count=%d", count)), more...)...)
}

// guestTCPFaultHealth: a failing drive is one to nvme-cli and smartctl, and to
// who writes.
func guestTCPFaultHealth(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "SICK1"))
	node := s.connect(t)
	cli(t, says{"critical_warning": "0", "avail_spare": "100"}, "smart-log", node)
	s.suffer(t, "spare 3%; temperature 85C; read-only")
	// Spare 1, temperature 2, read-only 8. Kelvin.
	cli(t, says{"critical_warning": "11", "avail_spare": "3", "spare_thresh": "5", "temperature": "358"}, "smart-log", node)
	r := attempt(t, nil, "smartctl", "-a", "-j", node) // its exit code tells of the warnings
	compareDocument(t, "smartctl -a -j", r.stdout, says{
		"smart_status.passed": "false", "nvme_smart_health_information_log.critical_warning": "11",
		"nvme_smart_health_information_log.available_spare": "3", "temperature.current": "85",
	})
	block := blockNode(t, "SICK1", 1)
	if r := copyBlocks(t, true, block, 0, 1); r.code == 0 {
		t.Errorf("a write to read-only media succeeded: %v", r)
	}
	if r := copyBlocks(t, false, block, 0, 1); r.code != 0 {
		t.Errorf("a read of read-only media: %v", r)
	}
	if log := tool(t, "nvme", "error-log", node, "-e", "1", "-o", "json"); !strings.Contains(strings.ReplaceAll(log, " ", ""), `"status_field":16770`) { // 0x4182
		t.Errorf("error log:\n%s", log)
	}
	s.suffer(t, "heal")
	if r := copyBlocks(t, true, block, 0, 1); r.code != 0 {
		t.Errorf("a write to a healed drive: %v", r)
	}
	cli(t, says{"critical_warning": "0", "temperature": "308"}, "smart-log", node)
}

// guestTCPFaultMedia: blocks that cannot be read are an I/O error, an entry in the
// error log and a media error, until they are written again.
func guestTCPFaultMedia(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "BAD1"))
	node := s.connect(t)
	block := blockNode(t, "BAD1", 1)
	s.suffer(t, "media-error read nsid 1 lba 8195-8196") // of 512 bytes: in the 1024th 4 KiB
	if r := copyBlocks(t, false, block, 1023, 1); r.code != 0 {
		t.Errorf("a read beside the bad blocks: %v", r)
	}
	// The kernel makes ENODATA of a medium error.
	if r := copyBlocks(t, false, block, 1024, 1); r.code == 0 || !strings.Contains(r.stderr, "No data available") {
		t.Errorf("a read of bad blocks: %v", r)
	}
	cli(t, says{"media_errors": "1", "num_err_log_entries": "1"}, "smart-log", node)
	log := strings.ReplaceAll(tool(t, "nvme", "error-log", node, "-e", "1", "-o", "json"), " ", "")
	for _, part := range []string{`"lba":8195`, `"nsid":1`, `"status_field":17025`} { // 0x4281
		if !strings.Contains(log, part) {
			t.Errorf("error log without %s:\n%s", part, log)
		}
	}
	if r := copyBlocks(t, true, block, 1024, 1); r.code != 0 {
		t.Errorf("a write of bad blocks: %v", r)
	}
	if r := copyBlocks(t, false, block, 1024, 1); r.code != 0 {
		t.Errorf("a read of blocks that were written again: %v", r)
	}
	cli(t, says{"media_errors": "1"}, "smart-log", node)
}

// shortTimeouts has the kernel wait 4 s for answers of controllers that are
// connected from now on.
func shortTimeouts(t *testing.T) {
	t.Helper()
	for _, name := range []string{"io_timeout", "admin_timeout"} {
		path := "/sys/module/nvme_core/parameters/" + name
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("4"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(path, old, 0) })
	}
}

// guestTCPFaultHang: a hung controller is reset by the kernel when its time-out
// has passed, and then the write that it did not answer succeeds.
func guestTCPFaultHang(t *testing.T) {
	shortTimeouts(t)
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "HANG1"))
	node := s.connect(t, "--reconnect-delay=1", "--ctrl-loss-tmo=60")
	block := blockNode(t, "HANG1", 1)
	s.suffer(t, "before 10th write hang")
	if r := copyBlocks(t, true, block, 0, 32); r.code != 0 {
		t.Errorf("writes over a hang: %v\n%s", r, s.log)
	}
	eventually(t, "live again", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
	if n := strings.Count(s.log.String(), ": connected from"); n < 2 {
		t.Errorf("the kernel has connected %d times: there was no reset\n%s", n, s.log)
	}
	if doc := document(t, "sim", "fault", s.file); len(doc["wrong"].([]any)) != 0 || len(doc["armed"].([]any)) != 0 {
		t.Errorf("after the reset: %v", doc)
	}
	if r := copyBlocks(t, false, block, 0, 32); r.code != 0 {
		t.Errorf("reads after the hang: %v", r)
	}
	// An activation without reset stops the controller for a while; the kernel
	// waits, since it was told.
	s.suffer(t, "activation 2s")
	if r := copyBlocks(t, true, block, 0, 4); r.code != 0 {
		t.Errorf("writes over an activation: %v\n%s", r, s.log)
	}
	eventually(t, "live after the activation", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
}

// guestTCPFaultNamespace: a namespace that comes late comes to the host by its
// event, and one that goes goes.
func guestTCPFaultNamespace(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "LATE1"))
	s.connect(t)
	eventually(t, "the block device", func() bool { return blockName(t, "LATE1", 1) != "" })
	s.suffer(t, "detach nsid 1")
	eventually(t, "no block device", func() bool { return blockName(t, "LATE1", 1) == "" })
	s.suffer(t, "at 2s attach nsid 1")
	eventually(t, "the block device again", func() bool { return blockName(t, "LATE1", 1) != "" })
	if r := copyBlocks(t, false, blockNode(t, "LATE1", 1), 0, 1); r.code != 0 {
		t.Errorf("a read of the late namespace: %v", r)
	}
}

// guestTCPFaultEdit: one bit flipped below the drive's commands is found by fio,
// and by nobody else.
func guestTCPFaultEdit(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "EDIT1"))
	node := s.connect(t)
	block := blockNode(t, "EDIT1", 1)
	fio := func(args ...string) ran {
		t.Helper()
		return attempt(t, nil, "fio", append([]string{"--name=e", "--filename=" + block, "--rw=write", "--bs=64k", "--size=4m", "--ioengine=libaio",
			"--iodepth=4", "--direct=1", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--randseed=7"}, args...)...)
	}
	if r := fio("--do_verify=1"); r.code != 0 {
		t.Fatalf("fio on a sound drive: %v", r)
	}
	want(t, 0, "sim", "edit", s.file, "flip", "--lba", "4321", "--bit", "2048")
	if r := fio("--verify_only"); r.code == 0 || !strings.Contains(r.stdout+r.stderr, "verify") {
		t.Errorf("fio does not find a flipped bit: %v", r)
	}
	cli(t, says{"media_errors": "0", "num_err_log_entries": "0"}, "smart-log", node)
	want(t, 0, "sim", "edit", s.file, "flip", "--lba", "4321", "--bit", "2048")
	if r := fio("--verify_only"); r.code != 0 {
		t.Errorf("fio on a drive whose bit was flipped back: %v", r)
	}
}

// guestTCPFaultHostFull: when the file system that has the drive is full, hosts
// see a write fault, and the cause is named where the drive is served.
func guestTCPFaultHostFull(t *testing.T) {
	dir := filepath.Join(stateDir(t), "full")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tool(t, "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir)
	file := filepath.Join(dir, "drive.nvop")
	want(t, 0, "sim", "create", file, "--profile", "pblaze7-7940-7.68tb", "--scale", "14308", "--serial", "FULL1")
	s := serve(t, file)
	t.Cleanup(func() {
		// It cannot save either: its end says so.
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			s.cmd = nil
		}
		attempt(t, nil, "umount", "-l", dir)
	})
	s.connect(t)
	block := blockNode(t, "FULL1", 1)
	if r := copyBlocks(t, true, block, 0, 256, "conv=notrunc"); r.code != 0 {
		t.Fatalf("1 MiB fits: %v", r)
	}
	r := attempt(t, nil, "dd", "if=/dev/urandom", "of="+block, "oflag=direct", "bs=65536", "count=160")
	if r.code == 0 {
		t.Error("10 MiB were written to a file system of 8 MiB")
	}
	eventually(t, "the cause is named", func() bool { return strings.Contains(s.log.String(), "no space left on device") })
}

// guestTCPFaultSoak: a soak that verifies goes on over a hang and a power cut of a
// drive with power-loss protection: nothing is lost and nothing is told that is
// not so.
func guestTCPFaultSoak(t *testing.T) {
	shortTimeouts(t)
	file := makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "HARD1")
	want(t, 0, "op", "set", "sim:"+file, "--size", "8MiB", "--confirm-serial", "HARD1")
	s := serve(t, file, "--outage", "1s", "--fault", "before 100th write hang; after 700th write power-cut")
	node := s.connect(t, "--reconnect-delay=1", "--ctrl-loss-tmo=60")
	block := blockNode(t, "HARD1", 1)
	cmd, said := start(t, "soak", "start", block, "--rw", "randwrite", "--order", "permutation", "--bs", "16KiB", "--qd", "4",
		"--passes", "2", "--verify", "passes", "--confirm-serial", "HARD1")
	if err := cmd.Wait(); err != nil {
		t.Logf("the soak ended with %v:\n%s", err, said.String())
		if cmd.ProcessState.ExitCode() != 7 {
			t.Fatal("a soak that loses its drive must be resumable")
		}
		eventually(t, "live again", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
		want(t, 0, "soak", "resume", "--confirm-serial", "HARD1")
	}
	if log := s.log.String(); !strings.Contains(log, "has lost its power") || strings.Count(log, ": connected from") < 3 {
		t.Errorf("the drive did not suffer as it was told:\n%s", log)
	}
	cli(t, says{"unsafe_shutdowns": "1", "media_errors": "0"}, "smart-log", node)
	// 8 MiB twice, every logical block of 512 bytes right.
	if list := want(t, 0, "soak", "list", "-o", "json"); !strings.Contains(strings.ReplaceAll(list.stdout, " ", ""), `"finished"`) {
		t.Errorf("the soak did not finish: %v", list)
	}
	want(t, 0, "soak", "verify", block)
	want(t, 0, "journal", "verify")
}

// guestTCPHosts: hosts get their controllers again when the drive is served by
// another process, in whatever order they come.
func guestTCPHosts(t *testing.T) {
	file := makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "HOSTS1", "--controllers", "2")
	hosts := []string{
		"nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001",
		"nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000002",
	}
	s := serve(t, file)
	join := func(i int) string {
		t.Helper()
		nqn := hosts[i]
		// Past nvme-cli, which takes one host's connection for the other's.
		options := fmt.Sprintf("transport=tcp,traddr=127.0.0.1,trsvcid=%s,nqn=%s,hostnqn=%s,hostid=%s", s.port, s.nqn, nqn, nqn[len(nqn)-36:])
		if err := os.WriteFile("/dev/nvme-fabrics", []byte(options), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.disconnect(t) })
		id := ""
		eventually(t, "host "+strconv.Itoa(i), func() bool {
			for _, name := range controllersOf(s.nqn) {
				if sysfs("class/nvme", name, "hostnqn") == nqn && sysfs("class/nvme", name, "state") == "live" {
					id = sysfs("class/nvme", name, "cntlid")
				}
			}
			return id != ""
		})
		return id
	}
	had := []string{join(0), join(1)}
	if had[0] == had[1] {
		t.Fatalf("both hosts have controller %s", had[0])
	}
	s.disconnect(t)
	s.kill(t)
	s = serve(t, file)
	if got := []string{join(1), join(0)}; got[0] != had[1] || got[1] != had[0] {
		t.Errorf("hosts had controllers %v, now in the other order %v", had, got)
	}
}
