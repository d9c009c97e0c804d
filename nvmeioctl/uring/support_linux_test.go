package uring

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		errno    unix.Errno
		disabled string
		wide     bool
		text     string
	}{
		{unix.EPERM, "2", false, "kernel.io_uring_disabled = 2"},
		{unix.EPERM, "1", false, "io_uring_group"},
		{unix.EPERM, "0", false, "seccomp"},
		{unix.EPERM, "", false, "seccomp"},
		{unix.EACCES, "0", false, "policy"},
		{unix.ENOSYS, "", false, "Linux 5.15"},
		{unix.ENOMEM, "0", false, "RLIMIT_MEMLOCK, 64 KiB"},
		{unix.EINVAL, "0", true, "Linux 5.19"},
		{unix.EINVAL, "0", false, "flags"},
	} {
		err := explain(c.errno, c.disabled, 65536, c.wide)
		if !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v %q: %v", c.errno, c.disabled, err)
		}
	}
	if err := explain(unix.EMFILE, "0", 0, false); !errors.Is(err, unix.EMFILE) || errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// The offsets of the kernel's header (include/uapi/linux/io_uring.h, nvme_ioctl.h
// of Linux 6.12), as a C compiler gives them.
func TestABI(t *testing.T) {
	for name, c := range map[string][2]uintptr{
		"sqe.off": {unsafe.Offsetof(sqe{}.off), 8}, "sqe.addr": {unsafe.Offsetof(sqe{}.addr), 16}, "sqe.len": {unsafe.Offsetof(sqe{}.len), 24},
		"sqe.rw_flags": {unsafe.Offsetof(sqe{}.opFlags), 28}, "sqe.user_data": {unsafe.Offsetof(sqe{}.userData), 32}, "sqe.buf_index": {unsafe.Offsetof(sqe{}.bufIndex), 40},
		"sqe.cmd_op": {unsafe.Offsetof(sqe128{}.cmdOp), 8}, "sqe.uring_cmd_flags": {unsafe.Offsetof(sqe128{}.cmdFlags), 28},
		"sqe.cmd":  {unsafe.Offsetof(sqe128{}.cmd), 48},
		"cmd.addr": {unsafe.Offsetof(nvmeCmd{}.addr), 24}, "cmd.data_len": {unsafe.Offsetof(nvmeCmd{}.dataLen), 36},
		"cmd.cdw10": {unsafe.Offsetof(nvmeCmd{}.cdw), 40}, "cmd.timeout_ms": {unsafe.Offsetof(nvmeCmd{}.timeoutMS), 64},
		"params.features": {unsafe.Offsetof(params{}.features), 20}, "params.sq_off": {unsafe.Offsetof(params{}.sq), 40}, "params.cq_off": {unsafe.Offsetof(params{}.cq), 80},
		"cqe.res": {unsafe.Offsetof(cqe{}.res), 8}, "cqe32.big": {unsafe.Offsetof(cqe32{}.big), 16},
		"command": {uintptr(nvmeCmdIO), 0xC0484E80},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is at %d, the header says %d", name, c[0], c[1])
		}
	}
}

// A command is what the specification says, bit for bit (NVM Command Set, Read
// and Write), and never more than one.
func TestCommands(t *testing.T) {
	ring := &ring{wide: true, entries: 4, sqMask: 3}
	memory := make([]sqe128, 4)
	ring.sqes = unsafe.Pointer(unsafe.SliceData(memory))
	q := &Queue{
		ring: ring, file: nvmeioctl.DataFile{Path: "/dev/ng0n1", FD: 9}, slots: make([]slot, 4),
		ns: &Commands{NSID: 3, SizeBlocks: 1 << 40, BlockBytes: 4096, MaxTransferBytes: 128 << 10, Protect: true},
	}
	buf := make([]byte, 8192)
	q.slots[2] = slot{op: nvmeioctl.OpWrite, off: 0x1_2345_6789 * 4096, buf: buf, fua: true}
	q.pushCommand(2, &q.slots[2])
	c := memory[0].cmd
	want := nvmeCmd{
		opcode: 1, nsid: 3, addr: uint64(address(buf)), dataLen: 8192, timeoutMS: commandTimeoutMS,
		cdw: [6]uint32{0x2345_6789, 1, 1 | 1<<30 | 1<<29 | 1<<28, 0, 0x2345_6789, 0},
	}
	if c != want || memory[0].userData != 2 || memory[0].opcode != opURingCmd || memory[0].fd != 9 || memory[0].cmdOp != nvmeCmdIO {
		t.Errorf("%+v", memory[0])
	}
	q.ns.Protect = false
	q.slots[1] = slot{op: nvmeioctl.OpRead, off: 4096, buf: buf[:4096]}
	q.pushCommand(1, &q.slots[1])
	if c := memory[1].cmd; c.opcode != 2 || c.cdw != [6]uint32{1} {
		t.Errorf("%+v", c)
	}
	q.slots[0] = slot{op: nvmeioctl.OpFlush}
	q.pushCommand(0, &q.slots[0])
	if c := memory[2].cmd; c != (nvmeCmd{nsid: 3, timeoutMS: commandTimeoutMS}) {
		t.Errorf("%+v", c)
	}
	for text, r := range map[string]nvmeioctl.IORequest{
		"transfers 131072 at most": {LengthBytes: 256 << 10},
		"the namespace has":        {OffsetBytes: (1<<40 - 1) * 4096, LengthBytes: 8192},
	} {
		if err := q.inBounds(&r); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	q.ns.MaxTransferBytes = 0
	if err := q.inBounds(&nvmeioctl.IORequest{LengthBytes: 65537 * 4096}); err == nil {
		t.Error("more blocks than a command can name")
	}
	if err := q.inBounds(&nvmeioctl.IORequest{OffsetBytes: (1<<40 - 2) * 4096, LengthBytes: 8192}); err != nil {
		t.Error(err)
	}
}

// A positive result of a command is the drive's status, never a length.
func TestSettle_status(t *testing.T) {
	q := &Queue{ns: &Commands{NSID: 1}, file: nvmeioctl.DataFile{Character: true}}
	s := &slot{op: nvmeioctl.OpRead, want: 4096}
	gone := unknown
	if again, status, err := q.settle(0, s, 0x4281, &gone); again || status != 0x4281 || err != nil {
		t.Errorf("%v %v %v", again, status, err)
	}
	if again, status, err := q.settle(0, s, 0, &gone); again || status != 0 || err != nil {
		t.Errorf("%v %v %v", again, status, err)
	}
	if _, _, err := q.settle(0, s, -int32(unix.ENODEV), &gone); !errors.Is(err, nvmeioctl.ErrDeviceGone) || !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v", err)
	}
}
