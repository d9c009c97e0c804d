package main_test

import (
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

// tcpChangeCases change a served drive through the kernel: by nvme-cli, by
// nvop, and by nvop killed or cut off in the middle.
func tcpChangeCases() []vm.Case {
	cases := []vm.Case{
		{Name: "tcp/provision-by-nvme-cli", Limit: 2 * time.Minute, Run: guestTCPProvision},
		{Name: "tcp/op-set", Limit: 2 * time.Minute, Run: guestTCPOPSet6400},
		{Name: "tcp/op-set-refused", Limit: 2 * time.Minute, Run: guestTCPOPSetRefused},
		{Name: "tcp/op-set-nn-1", Limit: 2 * time.Minute, Run: guestTCPOPSetOne},
		{Name: "tcp/op-set-two-controllers", Limit: 2 * time.Minute, Run: guestTCPOPSetTwo},
		{Name: "tcp/reset", Limit: 2 * time.Minute, Run: guestTCPReset},
		{Name: "tcp/file-system", Limit: 2 * time.Minute, Run: guestTCPFileSystem},
		{Name: "tcp/fio-verify", Limit: 2 * time.Minute, Run: guestTCPFio},
		{Name: "tcp/soak", Limit: 3 * time.Minute, Run: guestTCPSoak},
	}
	for _, c := range interruptions() {
		cases = append(cases, vm.Case{Name: "tcp/" + c.name, Limit: 2 * time.Minute, Run: func(t *testing.T) { guestTCPInterrupted(t, c) }})
	}
	detach := opStep{command: "detach", says: "detach namespace"}
	remove := opStep{command: "delete", says: "delete namespace"}
	create := opStep{command: "create", says: "create a namespace"}
	attach := opStep{command: "attach", says: "attach the new namespace"}
	for _, c := range []struct {
		step opStep
		end  string
	}{
		{detach, "resume"}, {detach, "rollback"}, {remove, "resume"}, {remove, "rollback"},
		{create, "resume"}, {create, "rollback"}, {attach, "resume"}, {attach, "rollback"},
	} {
		cases = append(cases, vm.Case{
			Name: "tcp/kill-at-" + c.step.command + "-" + c.end, Limit: 2 * time.Minute,
			Run: func(t *testing.T) { guestTCPKilled(t, c.step, c.end) },
		})
	}
	return cases
}

const (
	factoryBytes = 7681501126656 // the PBlaze7 as it is delivered
	shrunkBytes  = 6401252745216 // 6.4 TB by the IDEMA count
)

// sizeOf asks the kernel for the size of a namespace's block device; 0 if
// there is none.
func sizeOf(t *testing.T, serial string, nsid int) uint64 {
	t.Helper()
	name := blockName(t, serial, nsid)
	if name == "" {
		return 0
	}
	n, err := strconv.ParseUint(sysfs("block", name, "size"), 10, 64)
	if err != nil {
		return 0
	}
	return n * 512
}

// geometry is what both readers say of a drive's namespaces; they must agree.
func geometry(t *testing.T, node string) string {
	t.Helper()
	var ours, theirs []string
	for _, ns := range objects(t, document(t, "ns", "list", node), "namespaces") {
		ours = append(ours, fmt.Sprintf("%s %s %s", text(ns["nsid"]), text(ns["size_blocks"]), text(dig(ns, "format.data_bytes"))))
	}
	for _, item := range objects(t, nvmeCLI(t, "list-ns", node, "--all"), "nsid_list") {
		id := nvmeCLI(t, "id-ns", node, "-n", text(item["nsid"]), "--force")
		index, err := strconv.Atoi(text(id["flbas"]))
		if err != nil {
			t.Fatal(err)
		}
		shift, err := strconv.Atoi(text(dig(id, fmt.Sprintf("lbafs.%d.ds", index&15))))
		if err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, fmt.Sprintf("%s %s %d", text(item["nsid"]), text(id["nsze"]), 1<<shift))
	}
	if a, b := strings.Join(ours, ", "), strings.Join(theirs, ", "); a != b {
		t.Errorf("nvop sees namespaces %q, nvme-cli sees %q", a, b)
	}
	return strings.Join(theirs, ", ")
}

// guestTCPProvision shrinks a drive with nvme-cli and another with nvop: both
// end in the same state, and each tool sees what the other did.
func guestTCPProvision(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "CLI1"))
	node := s.connect(t)
	blocks := strconv.FormatUint(shrunkBytes/4096, 10)
	tool(t, "nvme", "detach-ns", node, "-n", "1", "-c", "1")
	eventually(t, "the block device is gone", func() bool { return sizeOf(t, "CLI1", 1) == 0 })
	tool(t, "nvme", "delete-ns", node, "-n", "1")
	cli(t, says{"unvmcap": strconv.Itoa(factoryBytes)}, "id-ctrl", node)
	tool(t, "nvme", "create-ns", node, "-s", blocks, "-c", blocks, "-f", "1")
	tool(t, "nvme", "attach-ns", node, "-n", "1", "-c", "1")
	tool(t, "nvme", "ns-rescan", node)
	eventually(t, "the block device has its new size", func() bool { return sizeOf(t, "CLI1", 1) == shrunkBytes })
	cli(t, says{"unvmcap": strconv.Itoa(factoryBytes - shrunkBytes)}, "id-ctrl", node)
	byCLI := geometry(t, node)
	// Format and reset, and back.
	tool(t, "nvme", "format", node, "-n", "1", "-l", "0", "--force")
	eventually(t, "blocks of 512 bytes", func() bool {
		return sysfs("block", blockName(t, "CLI1", 1), "queue/logical_block_size") == "512"
	})
	tool(t, "nvme", "reset", node)
	eventually(t, "live again", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
	tool(t, "nvme", "format", node, "-n", "1", "-l", "1", "--force")
	eventually(t, "blocks of 4096 bytes", func() bool {
		return sysfs("block", blockName(t, "CLI1", 1), "queue/logical_block_size") == "4096" && sizeOf(t, "CLI1", 1) == shrunkBytes
	})
	if got := geometry(t, node); got != byCLI {
		t.Errorf("after formats and a reset %q, before %q", got, byCLI)
	}
	// The same by nvop, on what nvme-cli has left, from the factory's size.
	want(t, 0, "op", "set", node, "--size", "factory", "--lba", "512", "--allow-fabrics", "--confirm-serial", "CLI1")
	if got := geometry(t, node); got != fmt.Sprintf("1 %d 512", factoryBytes/512) {
		t.Errorf("nvop brings the factory's size back as %q", got)
	}
	want(t, 0, "op", "set", node, "--size", "6.4TB", "--lba", "4096", "--allow-fabrics", "--confirm-serial", "CLI1")
	if got := geometry(t, node); got != byCLI {
		t.Errorf("by nvop %q, by nvme-cli %q", got, byCLI)
	}
	// A size that does not fit is refused by the drive with the status that says so.
	if r := attempt(t, nil, "nvme", "create-ns", node, "-s", blocks, "-c", blocks, "-f", "1"); !strings.Contains(r.stderr+r.stdout, "115)") {
		t.Errorf("create-ns beyond the capacity: %v", r)
	}
}

// guestTCPOPSetRefused: on a fabric unless told otherwise, and while somebody
// has the device open.
func guestTCPOPSetRefused(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "OPS1"))
	node := s.connect(t)
	if r := want(t, 4, "op", "set", node, "--size", "6.4TB", "--confirm-serial", "OPS1"); !strings.Contains(r.stderr, "tcp") {
		t.Errorf("a drive on a fabric is refused without saying why: %v", r)
	}
	// Somebody has the old device open.
	holdOpen(t, "<>", blockNode(t, "OPS1", 1))
	want(t, 4, "op", "set", node, "--size", "6.4TB", "--allow-fabrics", "--confirm-serial", "OPS1")
	if got := sizeOf(t, "OPS1", 1); got != factoryBytes {
		t.Fatalf("a refused change left %d bytes", got)
	}
}

// guestTCPOPSet6400: the whole of op set through the kernel, to the byte.
func guestTCPOPSet6400(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "OPS2"))
	node := s.connect(t)
	old := text(nvmeCLI(t, "id-ns", node, "-n", "1")["nguid"])
	shrink(t, node, "OPS2")
	if got := geometry(t, node); got != "1 12502446768 512" {
		t.Errorf("namespaces %q", got)
	}
	if text(nvmeCLI(t, "id-ns", node, "-n", "1")["nguid"]) == old {
		t.Error("the new namespace has the identifier of the old one")
	}
	doc := document(t, "op", "set", node, "--size", "6.4TB", "--allow-fabrics", "--confirm-serial", "OPS2")
	if doc["already_so"] != true {
		t.Errorf("again: %v", doc)
	}
	// The last block of it is there, and no block after it.
	block := blockNode(t, "OPS2", 1)
	tool(t, "dd", "if=/dev/urandom", "of="+block, "bs=512", "count=1", "seek=12502446767", "oflag=direct")
	if r := attempt(t, nil, "dd", "if=/dev/zero", "of="+block, "bs=512", "count=1", "seek=12502446768", "oflag=direct"); r.code == 0 {
		t.Error("a block beyond the end was written")
	}
}

// shrink carries out op set and looks at the block device.
func shrink(t *testing.T, node, serial string, args ...string) map[string]any {
	t.Helper()
	doc := document(t, append([]string{"op", "set", node, "--size", "6.4TB", "--allow-fabrics", "--confirm-serial", serial}, args...)...)
	if doc["changed"] != true {
		t.Errorf("op set: %v", doc)
	}
	eventually(t, "a block device of 6,401,252,745,216 bytes", func() bool { return sizeOf(t, serial, 1) == shrunkBytes })
	return doc
}

// guestTCPOPSetOne: a drive with room for one namespace number, where the old
// one must go before the new one comes.
func guestTCPOPSetOne(t *testing.T) {
	s := serve(t, makeDrive(t, "memblaze-p6531-3.84tb", "--serial", "ONE1"))
	node := s.connect(t)
	want(t, 0, "op", "set", node, "--size", "3.2TB", "--allow-fabrics", "--confirm-serial", "ONE1")
	// (3200-50) x 1,953,504 + 97,696,368 blocks of 512 bytes.
	eventually(t, "a block device of 3,200,631,791,616 bytes", func() bool { return sizeOf(t, "ONE1", 1) == 3200631791616 })
	geometry(t, node)
	doc := document(t, "op", "set", node, "--size", "3.2TB", "--allow-fabrics", "--confirm-serial", "ONE1")
	if doc["already_so"] != true {
		t.Errorf("again: %v", doc)
	}
}

// guestTCPOPSetTwo: two controllers of one drive, one path each to a shared
// namespace; the new one is attached to both.
func guestTCPOPSetTwo(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "TWO1", "--controllers", "2"))
	node := s.connect(t)
	// Not with nvme-cli, which refuses a second connection to one address.
	options := "transport=tcp,traddr=127.0.0.1,trsvcid=" + s.port + ",nqn=" + s.nqn + ",hostnqn=" + hostNQN + ",hostid=" + hostID + ",duplicate_connect"
	if err := os.WriteFile("/dev/nvme-fabrics", []byte(options), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two controllers", func() bool { return len(controllersOf(s.nqn)) == 2 })
	eventually(t, "one block device", func() bool { return sizeOf(t, "TWO1", 1) == factoryBytes })
	shrink(t, node, "TWO1")
	geometry(t, node)
	cli(t, says{"num_ctrl": "2", "ctrl_list.0.ctrl_id": "1", "ctrl_list.1.ctrl_id": "2"}, "list-ctrl", node, "-n", "1")
	// Each path moves data, and the device survives the loss of one.
	block := blockNode(t, "TWO1", 1)
	tool(t, "dd", "if=/dev/urandom", "of="+block, "bs=64k", "count=16", "oflag=direct")
	sum := tool(t, "sh", "-c", "dd if="+block+" bs=64k count=16 iflag=direct status=none | sha256sum")
	tool(t, "nvme", "disconnect", "-d", controllersOf(s.nqn)[0])
	if again := tool(t, "sh", "-c", "dd if="+block+" bs=64k count=16 iflag=direct status=none | sha256sum"); again != sum {
		t.Errorf("over one path %q, over two %q", again, sum)
	}
}

// guestTCPReset: a controller reset in the middle of use loses nothing.
func guestTCPReset(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "RST1"))
	node := s.connect(t)
	block := blockNode(t, "RST1", 1)
	fio := exec.Command("fio", "--name=v", "--filename="+block, "--rw=randwrite", "--bs=16k", "--iodepth=8", "--ioengine=libaio", "--direct=1",
		"--size=16m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
	var out syncBuffer
	fio.Stdout, fio.Stderr = &out, &out
	if err := fio.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		time.Sleep(time.Second)
		tool(t, "nvme", "reset", node)
	}
	if err := fio.Wait(); err != nil {
		t.Errorf("fio over two resets: %v\n%s", err, out.String())
	}
	want(t, 0, "show", node)
}

// guestTCPFileSystem: a file system lives on the drive, outlives the server,
// and keeps nvop away while it is mounted.
func guestTCPFileSystem(t *testing.T) {
	file := makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "FSY1")
	s := serve(t, file)
	node := s.connect(t)
	want(t, 0, "op", "set", node, "--size", "64GiB", "--lba", "4096", "--allow-fabrics", "--confirm-serial", "FSY1")
	block := blockNode(t, "FSY1", 1)
	tool(t, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", block)
	dir := mountPoint(t)
	undo(t, "umount", dir)
	tool(t, "mount", block, dir)
	tool(t, "dd", "if=/dev/urandom", "of="+dir+"/a", "bs=1M", "count=8", "status=none")
	sum := tool(t, "sha256sum", dir+"/a")
	for _, args := range [][]string{
		{"op", "set", node, "--size", "32GiB", "--allow-fabrics", "--confirm-serial", "FSY1"},
		{"format", node, "--lba", "512", "--confirm-serial", "FSY1"},
	} {
		if r := want(t, 4, args...); !strings.Contains(r.stderr, "mounted") {
			t.Errorf("%v while mounted: %v", args, r)
		}
	}
	tool(t, "umount", dir)
	s.disconnect(t)
	s.kill(t) // as if the machine that serves had died
	s = serve(t, file)
	s.connect(t)
	eventually(t, "the block device", func() bool { return blockName(t, "FSY1", 1) != "" })
	block = blockNode(t, "FSY1", 1)
	tool(t, "fsck.ext4", "-f", "-n", block)
	tool(t, "mount", block, dir)
	if again := tool(t, "sha256sum", dir+"/a"); again != sum {
		t.Errorf("the file is %q, was %q", again, sum)
	}
	tool(t, "fstrim", dir)
}

// guestTCPFio: fio's own checksums pass on the drive and find a fault that is
// injected: reads that come back damaged.
func guestTCPFio(t *testing.T) {
	file := makeDrive(t, "client-1tb", "--serial", "FIO1")
	verify := func(s *served) ran {
		s.connect(t)
		eventually(t, "the block device", func() bool { return blockName(t, "FIO1", 1) != "" })
		return attempt(t, nil, "fio", "--name=v", "--filename="+blockNode(t, "FIO1", 1), "--rw=randwrite", "--bs=4k-64k", "--iodepth=8",
			"--ioengine=libaio", "--direct=1", "--size=16m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fsync=32")
	}
	s := serve(t, file)
	if r := verify(s); r.code != 0 {
		t.Errorf("fio --verify on a sound drive: %v", r)
	}
	s.disconnect(t)
	s.stop(t)
	s = serve(t, file, "--fault", "corrupt 60th read")
	if r := verify(s); r.code == 0 || !strings.Contains(r.stdout+r.stderr, "verify") {
		t.Errorf("fio --verify on a drive that damages a read: %v", r)
	}
	s.disconnect(t)
	s.stop(t)
	s = serve(t, file, "--fault", "fail every write with 0x4280")
	if r := verify(s); r.code == 0 {
		t.Errorf("fio on a drive that cannot write: %v", r)
	}
}

// guestTCPKilled kills op set with -9 while it is at one of its steps, with the
// drive busy with that step's command, and then carries on or goes back.
func guestTCPKilled(t *testing.T, step opStep, end string) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "KILL1"), "--fault", "delay 1500ms 1st "+step.command)
	node := s.connect(t)
	cmd, said := startOPSet(t, node, "KILL1")
	said.waitFor(t, step.says)
	time.Sleep(200 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// A process in an ioctl dies when the command is over.
	if err := cmd.Wait(); err == nil {
		t.Fatalf("op set was done before it was killed:\n%s", said.String())
	}
	r := want(t, 0, end, "--confirm-serial", "KILL1")
	size := uint64(shrunkBytes)
	if end == "rollback" {
		size = factoryBytes
	}
	eventually(t, fmt.Sprintf("a block device of %d bytes", size), func() bool { return sizeOf(t, "KILL1", 1) == size })
	if got := geometry(t, node); got != fmt.Sprintf("1 %d 512", size/512) {
		t.Errorf("after %s: %q\n%v", end, got, r)
	}
	want(t, 0, "journal", "verify")
	if again := nvop(t, end, "--confirm-serial", "KILL1"); again.code == 0 {
		t.Errorf("a second %s found something to do: %v", end, again)
	}
}

// startOPSet starts op set in the background.
func startOPSet(t *testing.T, node, serial string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	return start(t, "op", "set", node, "--size", "6.4TB", "--allow-fabrics", "--confirm-serial", serial)
}

// start starts nvop in the background, with the journal of this case.
func start(t *testing.T, args ...string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	said := &syncBuffer{}
	cmd := exec.Command(os.Getenv(envBinary), append([]string{"--journal", filepath.Join(stateDir(t), "journal.db")}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+stateDir(t))
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // gone already unless the case failed early
	return cmd, said
}

// waitFor waits until a program has said something.
func (b *syncBuffer) waitFor(t *testing.T, what string) {
	t.Helper()
	for range 400 {
		if strings.Contains(b.String(), what) {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("it does not come to %q:\n%s", what, b)
}

// opStep is one step of op set.
type opStep struct {
	// command is the step's command in the words of a fault.
	command string
	// says is what op set says when it begins the step.
	says string
}

// interruption is a way for the drive to go away in the middle of op set.
type interruption struct {
	name string
	// fault is what the server is told to do, end how the user goes on.
	fault, end string
	// cut says that the drive loses its power.
	cut bool
}

func interruptions() []interruption {
	return []interruption{
		{"power-cut-before-detach", "before detach power-cut", "resume", true},
		{"power-cut-after-detach", "after detach power-cut", "rollback", true},
		{"power-cut-before-delete", "before delete power-cut", "resume", true},
		{"power-cut-after-delete", "after delete power-cut", "rollback", true},
		{"power-cut-after-create", "after create power-cut", "resume", true},
		{"power-cut-before-attach", "before attach power-cut", "rollback", true},
		{"reset-in-delete", "drop 1st delete", "resume", false},
		{"reset-in-create", "lose 1st create", "rollback", false},
		{"reset-in-attach", "lose 1st attach", "resume", false},
	}
}

// guestTCPInterrupted takes the drive away in the middle of op set: its power is
// cut and comes back, or it hangs, having carried the command out or not, until
// somebody resets it. The kernel connects again by itself, and the user goes on
// or goes back.
func guestTCPInterrupted(t *testing.T, c interruption) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "CUT1"), "--fault", c.fault, "--outage", "1s")
	node := s.connect(t, "--reconnect-delay=1", "--ctrl-loss-tmo=60")
	name := filepath.Base(node)
	cmd, said := startOPSet(t, node, "CUT1")
	if !c.cut {
		said.waitFor(t, map[string]string{
			"drop 1st delete": "delete namespace", "lose 1st create": "create a namespace", "lose 1st attach": "attach the new namespace",
		}[c.fault])
		time.Sleep(500 * time.Millisecond)
		tool(t, "nvme", "reset", node)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(said.String(), "nvop resume") {
		t.Errorf("op set ended with %d, want 7: resumable\n%s", code, said)
	}
	eventually(t, "live again", func() bool { return sysfs("class/nvme", name, "state") == "live" })
	want(t, 0, c.end, "--confirm-serial", "CUT1")
	size := uint64(shrunkBytes)
	if c.end == "rollback" {
		size = factoryBytes
	}
	eventually(t, fmt.Sprintf("a block device of %d bytes", size), func() bool { return sizeOf(t, "CUT1", 1) == size })
	if got := geometry(t, node); got != fmt.Sprintf("1 %d 512", size/512) {
		t.Errorf("after %s: %q", c.end, got)
	}
	cycles := says{"unsafe_shutdowns": "0", "power_cycles": "1"}
	if c.cut {
		cycles = says{"unsafe_shutdowns": "1", "power_cycles": "2"}
	}
	cli(t, cycles, "smart-log", node)
	want(t, 0, "journal", "verify")
}

// guestTCPSoak soaks the block device while its controller is reset and the
// drive loses its power: it ends with every byte written and counted once, by
// the kernel and by the drive.
func guestTCPSoak(t *testing.T) {
	const size = 24 << 20
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "SOAK1"), "--fault", "after 1000th write power-cut", "--outage", "1s")
	node := s.connect(t, "--reconnect-delay=1", "--ctrl-loss-tmo=60")
	block := blockNode(t, "SOAK1", 1)
	cmd, said := start(t, "soak", "start", block, "--rw", "randwrite", "--bs", "16KiB", "--qd", "4", "--size", "24MiB", "--confirm-serial", "SOAK1")
	_, before := diskCounters(t, filepath.Base(block))
	for range 200 {
		if _, now := diskCounters(t, filepath.Base(block)); now-before > 4<<20 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	tool(t, "nvme", "reset", node)
	if err := cmd.Wait(); err != nil {
		t.Logf("the soak ended with %v:\n%s", err, said.String())
		if cmd.ProcessState.ExitCode() != 7 {
			t.Fatal("a soak that loses its drive must be resumable")
		}
		eventually(t, "live again", func() bool { return sysfs("class/nvme", filepath.Base(node), "state") == "live" })
		want(t, 0, "soak", "resume", "--confirm-serial", "SOAK1")
	}
	if !strings.Contains(s.log.String(), "has lost its power") {
		t.Error("the power was not cut")
	}
	_, after := diskCounters(t, filepath.Base(block))
	if after-before < size {
		t.Errorf("the kernel counts %d bytes, %d were asked for", after-before, size)
	}
	list := want(t, 0, "soak", "list", "-o", "json")
	if !strings.Contains(list.stdout, strconv.Itoa(size)) {
		t.Errorf("the journal does not have %d bytes: %v", size, list)
	}
	want(t, 0, "journal", "verify")
}
