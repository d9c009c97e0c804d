package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gonvme "github.com/dswarbrick/go-nvme/nvme"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/nvmetest/vm"
)

// kernelCases look at what the kernel does with our system calls, without the
// command line in between.
func kernelCases() []vm.Case {
	return []vm.Case{
		{Name: "kernel/discovery", Run: guestDiscovery},
		{Name: "kernel/resolve", Run: guestResolve},
		{Name: "kernel/status-is-not-success", Run: guestStatus},
		{Name: "kernel/errno-is-not-a-status", Run: guestErrno},
		{Name: "kernel/node-rules", Run: guestNodeRules},
		{Name: "kernel/go-nvme-agrees", Run: guestGoNVMe},
		{Name: "kernel/async-event", Run: guestAsyncEvent},
		{Name: "kernel/conformance-read-only", Run: guestConformance},
	}
}

// openNode opens a device for commands and closes it with the case.
func openNode(t *testing.T, path string) *nvmeioctl.Passthru {
	t.Helper()
	dev, err := nvmeioctl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return dev
}

// identify is the command written by hand, so that the kernel's answer is looked
// at and not our encoder's opinion of it. Opcode 06h, CNS in CDW10.
func identify(nsid uint32, cns uint32, data []byte) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x06, NSID: nsid, CDW10: cns, Data: data, Timeout: 30 * time.Second}
}

func guestDiscovery(t *testing.T) {
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range inv.Problems {
		t.Errorf("problem: %v", p)
	}
	count := map[string]int{}
	for _, c := range inv.Controllers {
		count[c.Serial]++
		if c.Node != "/dev/"+c.Name || c.Transport != "pcie" || c.State != "live" {
			t.Errorf("controller %+v", c)
		}
		if got := sysfs("class/nvme", c.Name, "address"); c.PCIAddress != got || got == "" {
			t.Errorf("%s: PCI address %q, sysfs says %q", c.Name, c.PCIAddress, got)
		}
		if got := sysfs("class/nvme", c.Name, "subsysnqn"); c.SubsystemNQN != got {
			t.Errorf("%s: NQN %q, sysfs says %q", c.Name, c.SubsystemNQN, got)
		}
	}
	for serial, want := range map[string]int{plainSerial: 1, spareSerial: 1, slowSerial: 1, sharedDrive: 2} {
		if count[serial] != want {
			t.Errorf("drive %s has %d controllers, want %d", serial, count[serial], want)
		}
	}
	shared := controllersBySerial(t, sharedDrive)
	slices.Sort(shared)
	var nsids []uint32
	for _, ns := range inv.Namespaces {
		if ns.SizeBytes != vmNamespaceBytes || ns.LogicalBlockBytes != 512 {
			t.Errorf("namespace %+v: size or block is wrong", ns)
		}
		if ns.DeviceNumber != sysfs("block", ns.Name, "dev") || ns.DeviceNumber == "" {
			t.Errorf("namespace %s: device number %q", ns.Name, ns.DeviceNumber)
		}
		if slices.Equal(ns.Controllers, shared) {
			nsids = append(nsids, ns.NSID)
			if !ns.Multipath {
				t.Errorf("namespace %s of two controllers is not called multipath", ns.Name)
			}
		}
	}
	if slices.Sort(nsids); !slices.Equal(nsids, []uint32{1, 2, 3}) {
		t.Errorf("shared namespaces %v, want 1 2 3 (all: %+v)", nsids, inv.Namespaces)
	}
	if len(inv.Namespaces) != 6 {
		t.Errorf("%d namespaces, want 6: hidden path devices must not count", len(inv.Namespaces))
	}
}

func guestResolve(t *testing.T) {
	var host nvmeioctl.Host
	block := blockNode(t, sharedDrive, 2)
	generic := strings.Replace(block, "/dev/nvme", "/dev/ng", 1)
	link := filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink(block, link); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]nvmeioctl.NodeKind{
		block: nvmeioctl.NodeNamespace, link: nvmeioctl.NodeNamespace, generic: nvmeioctl.NodeGeneric,
	} {
		target, err := host.Resolve(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if target.Kind != kind || target.NSID() != 2 || len(target.Controllers) != 2 {
			t.Errorf("%s: %+v", path, target)
		}
		dev := openNode(t, path)
		if nsid, err := dev.NSID(); err != nil || nsid != 2 {
			t.Errorf("%s: the kernel says namespace %d, %v", path, nsid, err)
		}
	}
	ctrl := controllerNode(t, plainSerial)
	target, err := host.Resolve(ctrl)
	if err != nil || target.Kind != nvmeioctl.NodeController || target.NSID() != 0 {
		t.Errorf("%s: %+v, %v", ctrl, target, err)
	}
	for _, path := range []string{"/dev/null", "/dev/ttyS0", "/etc/passwd", "/dev"} {
		if _, err := host.Resolve(path); !errors.Is(err, nvmeioctl.ErrNotNVMe) {
			t.Errorf("%s: %v, want ErrNotNVMe", path, err)
		}
	}
	if _, err := nvmeioctl.Open("/dev/nvme99"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing node: %v", err)
	}
}

// The ioctl returns an NVMe status as a positive number. Dropping it makes a
// refused command look carried out.
func guestStatus(t *testing.T) {
	dev := openNode(t, controllerNode(t, plainSerial))
	page := make([]byte, 4096)
	for _, c := range []struct {
		what string
		cmd  *nvmeioctl.Command
		want nvmespec.Status
	}{
		{"identify of an invalid NSID", identify(0x7777, 0, page), 0x400b},
		{"identify with an unknown CNS", identify(0, 0xf0, page), 0x4002},
		{"log page beyond its end", &nvmeioctl.Command{
			Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 0x02 | 127<<16, CDW12: 1 << 20,
			Data: page[:512], Timeout: 30 * time.Second}, 0x4002},
		{"namespace create", &nvmeioctl.Command{
			Opcode: 0x0d, Data: page, Timeout: 30 * time.Second}, 0x4001},
	} {
		done, err := dev.Submit(t.Context(), c.cmd)
		if err != nil {
			t.Errorf("%s: error %v instead of a status", c.what, err)
			continue
		}
		if done.Status != c.want {
			t.Errorf("%s: status %#x, want %#x", c.what, uint16(done.Status), uint16(c.want))
		}
		if _, ok := errors.AsType[nvmespec.StatusError](done.Err()); !ok {
			t.Errorf("%s: Err() is %v", c.what, done.Err())
		}
	}
	// A zero status means success, and only then is there data.
	clear(page)
	done, err := dev.Submit(t.Context(), identify(0, 1, page))
	if err != nil || done.Status != 0 {
		t.Fatalf("identify controller: %+v, %v", done, err)
	}
	if got := strings.TrimRight(string(page[4:24]), " "); got != plainSerial {
		t.Errorf("serial number at byte 4: %q", got)
	}
}

// What the kernel itself refuses is an errno, not an answer of the controller.
func guestErrno(t *testing.T) {
	dev := openNode(t, controllerNode(t, plainSerial))
	huge := &nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 0x02 | 0xFFFF<<16, CDW11: 0xF,
		Data: make([]byte, 4<<20), Timeout: 30 * time.Second}
	done, err := dev.Submit(t.Context(), huge)
	call, ok := errors.AsType[*os.SyscallError](err)
	if !ok || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a transfer over the controller's limit: %+v, %v", done, err)
	} else if call.Syscall != "ioctl" {
		t.Errorf("system call %q", call.Syscall)
	}
	if _, ok := errors.AsType[nvmespec.StatusError](err); ok {
		t.Errorf("an errno was taken for a status: %v", err)
	}
	short := identify(0, 1, make([]byte, 4096))
	short.Timeout = 0
	if _, err := dev.Submit(t.Context(), short); err == nil {
		t.Error("a command without a time-out was sent")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dev.Submit(ctx, identify(0, 1, make([]byte, 4096))); !errors.Is(err, context.Canceled) {
		t.Errorf("a command after its context ended: %v", err)
	}
	// QEMU 7.2 has no subsystem reset; the kernel then says ENOTTY.
	if err := dev.ResetSubsystem(t.Context()); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("subsystem reset: %v, want ErrNotSupported", err)
	}
}

// Each kind of node takes its own commands and no others.
func guestNodeRules(t *testing.T) {
	block := openNode(t, blockNode(t, plainSerial, 1))
	ctrl := openNode(t, controllerNode(t, plainSerial))
	flush := &nvmeioctl.Command{IO: true, Opcode: 0x00, NSID: 1, Timeout: 30 * time.Second}
	if done, err := block.Submit(t.Context(), flush); err != nil || done.Status != 0 {
		t.Errorf("flush through the namespace: %+v, %v", done, err)
	}
	if _, err := ctrl.Submit(t.Context(), flush); err == nil {
		t.Error("an I/O command went through the controller's node")
	}
	if done, err := block.Submit(t.Context(), identify(0, 1, make([]byte, 4096))); err != nil || done.Status != 0 {
		t.Errorf("identify through the namespace: %+v, %v", done, err)
	}
	if _, err := ctrl.NSID(); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("namespace of a controller's node: %v", err)
	}
	// Read one block through the passthrough: what the block layer wrote is
	// there. Opcode 02h, starting block in CDW10/11, blocks minus one in CDW12.
	want := []byte("nvop passthrough read")
	f, err := os.OpenFile(blockNode(t, plainSerial, 1), os.O_RDWR|syscall.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(want, 8*512)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 512)
	done, err := block.Submit(t.Context(), &nvmeioctl.Command{
		IO: true, Opcode: 0x02, NSID: 1, CDW10: 8, Data: data, Timeout: 30 * time.Second})
	if err != nil || done.Status != 0 || !strings.HasPrefix(string(data), string(want)) {
		t.Errorf("read of block 8: %+v, %v, %q", done, err, data[:32])
	}
	done, err = block.Submit(t.Context(), &nvmeioctl.Command{
		IO: true, Opcode: 0x02, NSID: 1, CDW10: vmNamespaceBytes / 512, Data: data, Timeout: 30 * time.Second})
	if err != nil || done.Status.Code() != 0x80 {
		t.Errorf("read past the end: %+v, %v, want LBA out of range (80h)", done, err)
	}
}

// Another Go program's reading of the same structure, written by others.
func guestGoNVMe(t *testing.T) {
	for _, serial := range []string{plainSerial, sharedDrive} {
		node := controllerNode(t, serial)
		theirs := gonvme.NewNVMeDevice(node)
		if err := theirs.Open(); err != nil {
			t.Fatal(err)
		}
		second, err := theirs.IdentifyController(io.Discard)
		if err := errors.Join(err, theirs.Close()); err != nil {
			t.Fatal(err)
		}
		page := make([]byte, 4096)
		done, err := openNode(t, node).Submit(t.Context(), identify(0, 1, page))
		if err != nil || done.Status != 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		ours, err := nvmespec.DecodeController(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct {
			name         string
			ours, theirs any
		}{
			{"vendor", ours.VendorID, second.VendorID},
			{"serial", ours.SerialNumber, strings.TrimSpace(second.SerialNumber)},
			{"model", ours.ModelNumber, strings.TrimSpace(second.ModelNumber)},
			{"firmware", ours.FirmwareRevision, strings.TrimSpace(second.FirmwareVersion)},
			{"OUI", ours.OUI, second.OUI},
		} {
			if f.ours != f.theirs {
				t.Errorf("%s: %s is %v, go-nvme says %v", node, f.name, f.ours, f.theirs)
			}
		}
		if ours.SerialNumber != serial {
			t.Errorf("%s: serial %q", node, ours.SerialNumber)
		}
	}
}

// guestAsyncEvent has the host raise a critical warning. The driver asks for
// notices only, so SMART events are turned on first (FID 0Bh, bits 7:0).
func guestAsyncEvent(t *testing.T) {
	dev := openNode(t, controllerNode(t, plainSerial))
	feature := func(opcode uint8, value uint32) uint32 {
		t.Helper()
		// The case's own context is over when its clean-up runs.
		done, err := dev.Submit(context.WithoutCancel(t.Context()), &nvmeioctl.Command{
			Opcode: opcode, CDW10: 0x0b, CDW11: value, Timeout: 30 * time.Second})
		if err != nil || done.Status != 0 {
			t.Fatalf("feature 0Bh: %+v, %v", done, err)
		}
		return uint32(done.Result)
	}
	before := feature(0x0a, 0)
	feature(0x09, before|0xff)
	t.Cleanup(func() { feature(0x09, before) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	type answer struct {
		event nvmeioctl.Event
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		event, err := dev.NextEvent(ctx)
		got <- answer{event, err}
	}()
	// Events from before the socket exists are not seen.
	time.Sleep(time.Second)
	if err := vm.Ask("critical-warning", plainSerial, "0x2"); err != nil {
		t.Fatal(err)
	}
	a := <-got
	if a.err != nil {
		t.Fatal(a.err)
	}
	// Type 1 is SMART, information 1 a temperature threshold, log page 02h.
	if want := (nvmeioctl.Event{Type: 1, Info: 1, LogPage: 2}); a.event != want {
		t.Errorf("event %+v, want %+v", a.event, want)
	}
	page := make([]byte, 512)
	smart := &nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 0x02 | 127<<16, Data: page, Timeout: 30 * time.Second}
	if done, err := dev.Submit(t.Context(), smart); err != nil || done.Status != 0 || page[0] != 0x2 {
		t.Errorf("SMART log: %+v, %v, critical warning %#x", done, err, page[0])
	}
	if err := vm.Ask("critical-warning", plainSerial, "0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the critical warning to be cleared", func() bool {
		done, err := dev.Submit(t.Context(), smart)
		return err == nil && done.Status == 0 && page[0] == 0
	})
}

func guestConformance(t *testing.T) {
	for _, serial := range []string{plainSerial, sharedDrive} {
		t.Run(serial, func(t *testing.T) {
			nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device { return openNode(t, controllerNode(t, serial)) },
				nvmetest.Options{ReadOnly: true})
		})
	}
}

// guestConformanceDestructive: QEMU says that it has namespace management and
// has neither create nor delete.
func guestConformanceDestructive(t *testing.T) {
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device { return openNode(t, controllerNode(t, spareSerial)) },
		nvmetest.Options{MayLackCreate: true, SingleTimeout: 30 * time.Second})
}

// resetCases end the boot: they take controllers away for a moment.
func resetCases() []vm.Case {
	return []vm.Case{
		{Name: "kernel/conformance-destructive", Run: guestConformanceDestructive},
		{Name: "kernel/protects-nothing", Run: guestUnprotected},
		{Name: "kernel/name-changes-nsid-stays", Run: guestRenamed},
		{Name: "kernel/rescan", Run: guestRescan},
		{Name: "kernel/reset", Run: guestReset},
		{Name: "kernel/time-out-is-indeterminate", Limit: 3 * time.Minute, Run: guestTimeout},
	}
}

// formatCommand is Format NVM (80h) to a format of the list in Identify Namespace.
func formatCommand(format uint32, timeout time.Duration) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x80, NSID: 1, CDW10: format, Timeout: timeout}
}

// guestUnprotected pins the reason for our own check of use: a Format through
// the controller's node passes while somebody has the disk to himself.
func guestUnprotected(t *testing.T) {
	node := blockNode(t, spareSerial, 1)
	f, err := os.OpenFile(node, os.O_RDWR|syscall.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if second, err := os.OpenFile(node, os.O_RDWR|syscall.O_EXCL, 0); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second exclusive open: %v, %v", second, err)
	}
	dev := openNode(t, controllerNode(t, spareSerial))
	if done, err := dev.Submit(t.Context(), formatCommand(4, 30*time.Second)); err != nil || done.Status != 0 {
		t.Fatalf("format: %+v, %v", done, err)
	}
	if got := sysfs("block", filepath.Base(node), "queue/logical_block_size"); got != "4096" {
		t.Errorf("block of %s bytes, want 4096", got)
	}
	if done, err := dev.Submit(t.Context(), formatCommand(0, 30*time.Second)); err != nil || done.Status != 0 {
		t.Fatalf("format back: %+v, %v", done, err)
	}
	// Format 15 is not in the list.
	if done, err := dev.Submit(t.Context(), formatCommand(15, 30*time.Second)); err != nil || done.Status != 0x410a {
		t.Errorf("format 15: %+v, %v, want status 0x410a", done, err)
	}
}

// guestRenamed: a namespace that comes back while its old node is held open gets
// another name. What it is must be found by its NSID.
func guestRenamed(t *testing.T) {
	old := blockName(t, sharedDrive, 3)
	f, err := os.Open("/dev/" + old)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	ctrl := controllerNode(t, sharedDrive)
	var ids []string
	for _, name := range controllersBySerial(t, sharedDrive) {
		ids = append(ids, sysfs("class/nvme", name, "cntlid"))
	}
	list := strings.Join(ids, ",")
	tool(t, "nvme", "detach-ns", ctrl, "-n", "3", "-c", list)
	tool(t, "nvme", "attach-ns", ctrl, "-n", "3", "-c", list)
	eventually(t, "namespace 3 to come back", func() bool { return blockName(t, sharedDrive, 3) != "" })
	name := blockName(t, sharedDrive, 3)
	t.Logf("namespace 3 was %s and is %s", old, name)
	target, err := nvmeioctl.Host{}.Resolve("/dev/" + name)
	if err != nil || target.NSID() != 3 || len(target.Controllers) != 2 {
		t.Errorf("/dev/%s: %+v, %v", name, target, err)
	}
	if nsid, err := openNode(t, "/dev/"+name).NSID(); err != nil || nsid != 3 {
		t.Errorf("/dev/%s: the kernel says namespace %d, %v", name, nsid, err)
	}
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range inv.Namespaces {
		if ns.Name == name && ns.NSID != 3 {
			t.Errorf("%s is called namespace %d", name, ns.NSID)
		}
	}
}

// guestTimeout: the kernel resets the controller when a command takes too long.
// Whether the command was carried out is not known then, and must not be called
// a failure.
func guestTimeout(t *testing.T) {
	name := controllersBySerial(t, slowSerial)[0]
	dev := openNode(t, "/dev/"+name)
	// QEMU lets a first write of any size pass and makes the next one wait for it.
	if done, err := dev.Submit(t.Context(), formatCommand(0, 30*time.Second)); err != nil || done.Status != 0 {
		t.Fatalf("first format: %+v, %v", done, err)
	}
	begin := time.Now()
	done, err := dev.Submit(t.Context(), formatCommand(4, 3*time.Second))
	if !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Fatalf("format of a slow drive with a time-out of 3 s: %+v, %v after %v", done, err, time.Since(begin))
	}
	if wait := time.Since(begin); wait < 2*time.Second {
		t.Errorf("it took only %v", wait)
	}
	if _, ok := errors.AsType[nvmespec.StatusError](err); ok {
		t.Errorf("no answer came, and it is called one: %v", err)
	}
	for range 300 {
		if sysfs("class/nvme", name, "state") == "live" {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	page := make([]byte, 4096)
	if done, err := dev.Submit(t.Context(), identify(1, 0, page)); err != nil || done.Status != 0 {
		t.Errorf("identify after the reset: %+v, %v", done, err)
	}
}

func guestRescan(t *testing.T) {
	dev := openNode(t, controllerNode(t, sharedDrive))
	if err := dev.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for nsid := 1; nsid <= 3; nsid++ {
		eventually(t, fmt.Sprintf("namespace %d after a rescan", nsid), func() bool {
			return blockName(t, sharedDrive, nsid) != ""
		})
	}
	block := openNode(t, blockNode(t, sharedDrive, 1))
	if err := block.Rescan(t.Context()); err == nil {
		t.Error("a rescan through a namespace's node was accepted")
	}
}

func guestReset(t *testing.T) {
	name := controllersBySerial(t, plainSerial)[0]
	dev := openNode(t, "/dev/"+name)
	if err := dev.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := sysfs("class/nvme", name, "state"); state != "live" {
		t.Errorf("state after the reset returned: %q", state)
	}
	page := make([]byte, 4096)
	if done, err := dev.Submit(t.Context(), identify(0, 1, page)); err != nil || done.Status != 0 {
		t.Errorf("identify after the reset: %+v, %v", done, err)
	}
}
