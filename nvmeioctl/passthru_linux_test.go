package nvmeioctl

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl/nvmespec"
)

// The numbers of include/uapi/linux/nvme_ioctl.h on asm-generic architectures,
// as a C compiler prints them.
func TestRequestNumbers(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"ADMIN_CMD", requestOf32(false), 0xC0484E41},
		{"IO_CMD", requestOf32(true), 0xC0484E43},
		{"ADMIN64_CMD", requestOf64(false), 0xC0504E47},
		{"IO64_CMD", requestOf64(true), 0xC0504E48},
		{"ID", reqID, 0x4E40},
		{"RESET", reqReset, 0x4E44},
		{"SUBSYS_RESET", reqSubsysReset, 0x4E45},
		{"RESCAN", reqRescan, 0x4E46},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestPassthruLayout(t *testing.T) {
	var n passthruCmd
	var w passthruCmd64
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"opcode", unsafe.Offsetof(n.opcode), 0}, {"flags", unsafe.Offsetof(n.flags), 1},
		{"nsid", unsafe.Offsetof(n.nsid), 4}, {"cdw2", unsafe.Offsetof(n.cdw2), 8}, {"cdw3", unsafe.Offsetof(n.cdw3), 12},
		{"metadata", unsafe.Offsetof(n.metadata), 16}, {"addr", unsafe.Offsetof(n.addr), 24},
		{"metadata_len", unsafe.Offsetof(n.metadataLen), 32}, {"data_len", unsafe.Offsetof(n.dataLen), 36},
		{"cdw10", unsafe.Offsetof(n.cdw), 40}, {"timeout_ms", unsafe.Offsetof(n.timeoutMS), 64},
		{"result", unsafe.Offsetof(n.result), 68}, {"size", unsafe.Sizeof(n), 72},
		{"64 opcode", unsafe.Offsetof(w.opcode), 0}, {"64 flags", unsafe.Offsetof(w.flags), 1},
		{"64 nsid", unsafe.Offsetof(w.nsid), 4}, {"64 cdw2", unsafe.Offsetof(w.cdw2), 8}, {"64 cdw3", unsafe.Offsetof(w.cdw3), 12},
		{"64 metadata", unsafe.Offsetof(w.metadata), 16}, {"64 addr", unsafe.Offsetof(w.addr), 24},
		{"64 metadata_len", unsafe.Offsetof(w.metadataLen), 32}, {"64 data_len", unsafe.Offsetof(w.dataLen), 36},
		{"64 cdw10", unsafe.Offsetof(w.cdw), 40}, {"64 timeout_ms", unsafe.Offsetof(w.timeoutMS), 64},
		{"64 result", unsafe.Offsetof(w.result), 72}, {"64 size", unsafe.Sizeof(w), 80},
	} {
		if c.got != c.want {
			t.Errorf("%s at %d, want %d", c.name, c.got, c.want)
		}
	}
}

// fakeKernel stands for the ioctl.
type fakeKernel struct {
	t      *testing.T
	noWide bool // ENOTTY to the 80-byte form
	ret    int
	errno  unix.Errno
	result uint64
	reply  []byte
	reqs   []uintptr
	// raw is the structure as the kernel would copy it, addresses aside.
	raw     []byte
	dataLen uint32
}

func (k *fakeKernel) call(_ int, req uintptr, arg unsafe.Pointer) (int, unix.Errno) {
	k.reqs = append(k.reqs, req)
	switch req {
	case requestOf64(false), requestOf64(true):
		if k.noWide {
			return 0, unix.ENOTTY
		}
		c := (*passthruCmd64)(arg)
		k.raw = append(k.raw[:0], unsafe.Slice((*byte)(arg), unsafe.Sizeof(*c))...)
		c.result = k.result
		k.transfer(c.addr, c.dataLen)
	case requestOf32(false), requestOf32(true):
		c := (*passthruCmd)(arg)
		k.raw = append(k.raw[:0], unsafe.Slice((*byte)(arg), unsafe.Sizeof(*c))...)
		c.result = uint32(k.result)
		k.transfer(c.addr, c.dataLen)
	}
	return k.ret, k.errno
}

func (k *fakeKernel) transfer(addr unsafe.Pointer, n uint32) {
	k.dataLen = n
	if addr == nil && n > 0 {
		k.t.Errorf("%d bytes at address 0", n)
		return
	}
	if addr != nil {
		copy(unsafe.Slice((*byte)(addr), n), k.reply)
	}
}

func fakePassthru(k *fakeKernel, kind NodeKind) *Passthru {
	target := Target{Path: "/dev/nvme0", Kind: kind, Controllers: []Controller{{Name: "nvme0"}}}
	if kind != NodeController {
		target.Path = "/dev/nvme0n1"
		target.Namespace = &Namespace{NSID: 3}
	}
	return newPassthru(Host{Root: "/nonexistent"}, target, -1, k.call)
}

func le32(b []byte, off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }

// NS-73: what the caller asks for is what the kernel gets, time-out included.
func TestSubmit_fields(t *testing.T) {
	for _, noWide := range []bool{false, true} {
		k := &fakeKernel{t: t, noWide: noWide, result: 0x1_0000_0007, reply: []byte("answer")}
		p := fakePassthru(k, NodeController)
		cmd := &Command{
			Opcode: 0xC2, NSID: 0x01020304, CDW2: 2, CDW3: 3, CDW10: 10, CDW11: 11, CDW12: 12, CDW13: 13,
			CDW14: 14, CDW15: 15, Data: make([]byte, 16), Metadata: make([]byte, 8), Timeout: 20*time.Minute + time.Nanosecond,
		}
		c, err := p.Submit(t.Context(), cmd)
		if err != nil || c.Status != 0 {
			t.Fatal(c, err)
		}
		wantResult := uint64(0x1_0000_0007)
		if noWide {
			wantResult = 7
		}
		if c.Result != wantResult || !strings.HasPrefix(string(cmd.Data), "answer") {
			t.Errorf("noWide %v: result %#x data %q", noWide, c.Result, cmd.Data)
		}
		if k.raw[0] != 0xC2 || k.raw[1] != 0 || le32(k.raw, 4) != 0x01020304 || le32(k.raw, 8) != 2 || le32(k.raw, 12) != 3 ||
			le32(k.raw, 32) != 8 || le32(k.raw, 36) != 16 {
			t.Errorf("noWide %v: % x", noWide, k.raw)
		}
		for i := range 6 {
			if got := le32(k.raw, 40+4*i); got != uint32(10+i) {
				t.Errorf("noWide %v: cdw%d = %d", noWide, 10+i, got)
			}
		}
		if got := le32(k.raw, 64); got != 20*60*1000+1 {
			t.Errorf("noWide %v: timeout_ms = %d", noWide, got)
		}
	}
}

// The 72-byte form is used after one ENOTTY, not tried again each time.
func TestSubmit_fallbackSticks(t *testing.T) {
	k := &fakeKernel{t: t, noWide: true}
	p := fakePassthru(k, NodeController)
	for range 2 {
		if _, err := p.Submit(t.Context(), &Command{Opcode: 6, Timeout: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	want := []uintptr{0xC0504E47, 0xC0484E41, 0xC0484E41}
	if len(k.reqs) != 3 || k.reqs[0] != want[0] || k.reqs[1] != want[1] || k.reqs[2] != want[2] {
		t.Errorf("requests %#x", k.reqs)
	}
}

// SYS-01, SYS-02: a positive return is the controller's status.
func TestSubmit_statusIsNotSuccess(t *testing.T) {
	k := &fakeKernel{t: t, ret: 0x400B}
	c, err := fakePassthru(k, NodeController).Submit(t.Context(), &Command{Opcode: 6, NSID: 0x7777, Timeout: time.Second})
	if err != nil || c.Status != 0x400B {
		t.Fatalf("status %#x, error %v", c.Status, err)
	}
	var se nvmespec.StatusError
	if !errors.As(c.Err(), &se) || se.Status.Code() != 0x00B {
		t.Errorf("Err() = %v", c.Err())
	}
}

// FMT-02, SYS-05 and the contract of Submit's error.
func TestSubmit_errno(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		is    error
		text  string
	}{
		{unix.EINTR, ErrIndeterminate, ""},
		{unix.ETIMEDOUT, ErrIndeterminate, ""},
		{unix.ENODEV, ErrDeviceGone, ""},
		{unix.ENXIO, ErrDeviceGone, ""},
		{unix.EIO, ErrDeviceGone, ""}, // no controller in sysfs any more
		{unix.EACCES, os.ErrPermission, "CAP_SYS_ADMIN"},
		{unix.EPERM, os.ErrPermission, "CAP_SYS_ADMIN"},
		{unix.EINVAL, unix.EINVAL, ""},
		{unix.ENOTTY, ErrNotSupported, ""},
	} {
		k := &fakeKernel{t: t, errno: c.errno}
		done, err := fakePassthru(k, NodeController).Submit(t.Context(), &Command{Opcode: 6, Timeout: time.Second})
		sys, ok := errors.AsType[*os.SyscallError](err)
		if !ok || sys.Syscall != "ioctl" || !errors.Is(sys, c.errno) {
			t.Errorf("%v: no *os.SyscallError in %v", c.errno, err)
		}
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || done != (Completion{}) {
			t.Errorf("%v: %v, %+v", c.errno, err, done)
		}
		if c.is != ErrIndeterminate && errors.Is(err, ErrIndeterminate) || c.is != ErrDeviceGone && errors.Is(err, ErrDeviceGone) {
			t.Errorf("%v says too much: %v", c.errno, err)
		}
	}
}

// EIO from a controller that is alive is an I/O error and no more.
func TestSubmit_ioErrorOfLiveController(t *testing.T) {
	h := tree(t, "single")
	target, err := h.Resolve("/dev/nvme0")
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{t: t, errno: unix.EIO}
	p := newPassthru(h, target, -1, k.call)
	_, err = p.Submit(t.Context(), &Command{Opcode: 6, Timeout: time.Second})
	if errors.Is(err, ErrDeviceGone) || !errors.Is(err, unix.EIO) {
		t.Errorf("live: %v", err)
	}
	state := filepath.Join(h.Root, "/sys/class/nvme/nvme0/state")
	if err := os.WriteFile(state, []byte("dead\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = p.Submit(t.Context(), &Command{Opcode: 6, Timeout: time.Second}); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("dead: %v", err)
	}
}

func TestSubmit_refused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		kind NodeKind
		cmd  Command
		text string
	}{
		{"no time-out", NodeController, Command{Opcode: 6}, "time-out"},
		{"negative time-out", NodeController, Command{Opcode: 6, Timeout: -1}, "time-out"},
		{"60 days", NodeController, Command{Opcode: 6, Timeout: 60 * 24 * time.Hour}, "32 bits"},
		{"NS-58: I/O through the controller", NodeController, Command{IO: true, Opcode: 2, NSID: 1, Timeout: 1}, "controller's node"},
		{"I/O to another namespace", NodeNamespace, Command{IO: true, Opcode: 2, NSID: 1, Timeout: 1}, "namespace 3"},
		{"NS-68: management through a namespace", NodeNamespace, Command{Opcode: 0x0D, Timeout: 1}, "controller's node"},
		{"attachment through a namespace", NodeGeneric, Command{Opcode: 0x15, Timeout: 1}, "controller's node"},
	} {
		k := &fakeKernel{t: t}
		_, err := fakePassthru(k, c.kind).Submit(t.Context(), &c.cmd)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || !strings.Contains(refused.Error(), c.text) || len(k.reqs) != 0 {
			t.Errorf("%s: %v, %d calls", c.name, err, len(k.reqs))
		}
	}
	k := &fakeKernel{t: t}
	if _, err := fakePassthru(k, NodeController).Submit(ctx, &Command{Opcode: 6, Timeout: 1}); !errors.Is(err, context.Canceled) || len(k.reqs) != 0 {
		t.Errorf("cancelled: %v, %d calls", err, len(k.reqs))
	}
}

func TestSubmit_io(t *testing.T) {
	k := &fakeKernel{t: t}
	p := fakePassthru(k, NodeGeneric)
	if _, err := p.Submit(t.Context(), &Command{IO: true, Opcode: 2, NSID: 3, Timeout: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	if k.reqs[0] != 0xC0504E48 || le32(k.raw, 64) != 1 {
		t.Errorf("request %#x, timeout_ms %d", k.reqs[0], le32(k.raw, 64))
	}
}

func TestSubmit_allocatesNothing(t *testing.T) {
	k := &fakeKernel{t: t}
	p := fakePassthru(k, NodeController)
	p.call = func(int, uintptr, unsafe.Pointer) (int, unix.Errno) { return 0, 0 }
	cmd := &Command{Opcode: 6, Data: make([]byte, 4096), Timeout: time.Second}
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() {
		if _, err := p.Submit(ctx, cmd); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per Submit", n)
	}
}

func TestResetter(t *testing.T) {
	k := &fakeKernel{t: t}
	p := fakePassthru(k, NodeController)
	var r Resetter = p
	for _, f := range []func(context.Context) error{r.ResetController, r.ResetSubsystem, r.Rescan} {
		if err := f(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.reqs) != 3 || k.reqs[0] != 0x4E44 || k.reqs[1] != 0x4E45 || k.reqs[2] != 0x4E46 {
		t.Errorf("%#x", k.reqs)
	}
	if _, err := p.NSID(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("NSID of a controller: %v", err)
	}
	ns := fakePassthru(&fakeKernel{t: t, ret: 3}, NodeNamespace)
	if id, err := ns.NSID(); id != 3 || err != nil {
		t.Errorf("NSID %d, %v", id, err)
	}
	if err := ns.ResetController(t.Context()); !errors.Is(err, ErrNotSupported) {
		t.Errorf("reset through a namespace: %v", err)
	}
	noNSSR := fakePassthru(&fakeKernel{t: t, errno: unix.ENOTTY}, NodeController)
	if err := noNSSR.ResetSubsystem(t.Context()); !errors.Is(err, ErrNotSupported) {
		t.Errorf("no NSSR: %v", err)
	}
	busy := fakePassthru(&fakeKernel{t: t, errno: unix.EINTR}, NodeController)
	if err := busy.Rescan(t.Context()); errors.Is(err, ErrIndeterminate) || err == nil {
		t.Errorf("interrupted rescan: %v", err)
	}
}

// The true system call, on a file that is no NVMe device.
func TestSubmit_realCall(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := newPassthru(Host{}, Target{Path: "/dev/null", Kind: NodeController}, fd, sysIoctl)
	_, err = p.Submit(t.Context(), &Command{Opcode: 6, Data: make([]byte, 4096), Timeout: time.Second})
	if !errors.Is(err, unix.ENOTTY) || !errors.Is(err, ErrNotSupported) {
		t.Errorf("%v", err)
	}
	if p.old.Load() {
		t.Error("one node's ENOTTY to both forms is no word about the kernel")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Submit(t.Context(), &Command{Opcode: 6, Timeout: time.Second}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := p.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if _, err := p.NextEvent(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("events after Close: %v", err)
	}
}

func TestOpen_errors(t *testing.T) {
	if _, err := Open("/dev/nvme-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Open("/dev/null"); !errors.Is(err, ErrNotNVMe) {
		t.Errorf("/dev/null: %v", err)
	}
	// A node that is not what sysfs said when it was looked up.
	if _, err := tree(t, "single").Open("/dev/nvme0"); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("swapped node: %v", err)
	}
	if err := openError("/dev/nvme0", unix.EACCES); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
		t.Errorf("%v", err)
	}
	if err := openError("/dev/nvme0", unix.ENXIO); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("%v", err)
	}
}
