package uring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetest"
)

// release is a kernel's version, major and minor.
type release struct{ major, minor int }

func (r release) before(major, minor int) bool {
	return r.major < major || r.major == major && r.minor < minor
}

// older is this kernel with what a version did not have taken away, refused as
// that version refuses it (io_uring/io_uring.c: flags and operations it does not
// know are EINVAL).
func older(v release) kernel {
	now := thisKernel()
	return kernel{
		setup: func(entries uint32, p *params) (int, unix.Errno) {
			unknown := uint32(0)
			if v.before(5, 19) {
				unknown |= setupCoopTaskrun | setupSQE128 | setupCQE32
			}
			if v.before(6, 0) {
				unknown |= setupSingleIssuer
			}
			if v.before(6, 1) {
				unknown |= setupDeferTaskrun
			}
			if p.flags&unknown != 0 {
				return -1, unix.EINVAL
			}
			fd, errno := now.setup(entries, p)
			if v.before(5, 11) {
				p.features &^= featExtArg
			}
			return fd, errno
		},
		register: func(fd int, op uintptr, arg unsafe.Pointer, n int) unix.Errno {
			if v.before(5, 18) && (op == registerRing || op == unregisterRing) {
				return unix.EINVAL
			}
			errno := now.register(fd, op, arg, n)
			if op == registerProbe && errno == 0 && v.before(5, 19) {
				p := (*probe)(arg) // of other operations the argument is something else
				for i := range p.ops {
					if i >= opURingCmd {
						p.ops[i].flags = 0
					}
				}
				p.opsLen = min(p.opsLen, opURingCmd)
			}
			return errno
		},
	}
}

// plain is a file of a megabyte, opened as a queue opens it.
func plain(t *testing.T) nvmeioctl.DataFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := nvmeioctl.OpenData(path, nvmeioctl.DataOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// memory is mapped, and so aligned to a page.
func memory(t *testing.T, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

// moves writes, flushes and reads back through a queue.
func moves(t *testing.T, q *Queue, m []byte) {
	t.Helper()
	for round := range 3 {
		for i := range m[:4096] {
			m[i] = byte(i*7 + round)
		}
		clear(m[4096:8192])
		for i, r := range []nvmeioctl.IORequest{
			{Op: nvmeioctl.OpWrite, OffsetBytes: 8192, LengthBytes: 4096, Buf: m[:4096]},
			{Op: nvmeioctl.OpFlush},
			{Op: nvmeioctl.OpWrite, FUA: true, OffsetBytes: 16384, LengthBytes: 4096, Buf: m[:4096]},
			{Op: nvmeioctl.OpRead, OffsetBytes: 8192, LengthBytes: 4096, Buf: m[4096:8192]},
		} {
			if got := nvmetest.Do(t, q, r); got[0].Err != nil || got[0].Status != 0 {
				t.Fatalf("request %d: %+v", i, got[0])
			}
		}
		if !bytes.Equal(m[:4096], m[4096:8192]) {
			t.Fatal("what was read is not what was written")
		}
	}
}

// Every version from 5.15 on gets a queue that works, with what that version has
// and nothing else; before 5.11, and for commands before 5.19, the error says what
// is needed.
func TestQueue_olderKernels(t *testing.T) {
	if err := Probe(); err != nil {
		t.Skip("no io_uring here:", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		version release
		want    string // of the features, on one thread
		ring    bool   // the descriptor is registered
	}{
		{release{5, 15}, "fixed file, fixed buffers", false},
		{release{5, 18}, "fixed file, fixed buffers", true},
		{release{5, 19}, "fixed file, fixed buffers, cooperative task work", true},
		{release{6, 0}, "fixed file, fixed buffers, single issuer, cooperative task work", true},
		{release{6, 1}, "fixed file, fixed buffers, single issuer, deferred task work", true},
	} {
		for _, one := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d.%d one thread %v", c.version.major, c.version.minor, one), func(t *testing.T) {
				runtime.LockOSThread() // each has a goroutine of its own
				defer runtime.UnlockOSThread()
				q, err := newQueue(older(c.version), plain(t), nil, Options{Depth: 4, Write: true, OneThread: one})
				if err != nil {
					t.Fatal(err)
				}
				m := memory(t, 8192)
				if err := q.RegisterBuffers(m); err != nil {
					t.Fatal(err)
				}
				moves(t, q, m)
				if got := q.Features().String(); one && got != c.want {
					t.Errorf("in effect: %s, want %s", got, c.want)
				}
				if f := q.Features(); !one && (f.SingleIssuer || f.DeferTaskrun) {
					t.Errorf("for any thread, and made for one: %s", f)
				}
				if has := q.ring.with != 0; has != (one && c.ring) {
					t.Errorf("the ring's descriptor is registered: %v", has)
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for version, commands := range map[release]bool{{5, 10}: false, {5, 15}: true, {5, 18}: true} {
		ns := (*Commands)(nil)
		if commands {
			ns = &Commands{NSID: 1, SizeBlocks: 256, BlockBytes: 4096}
		}
		_, err := newQueue(older(version), plain(t), ns, Options{Depth: 4, OneThread: true})
		want := "5.15 or later"
		if commands {
			want = "5.19 or later"
		}
		if !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("Linux %v: %v", version, err)
		}
	}
	// A kernel that made wide rings and has no commands is found out by its probe.
	half := older(release{5, 15})
	half.setup = thisKernel().setup
	_, err := newQueue(half, plain(t), &Commands{NSID: 1, SizeBlocks: 256, BlockBytes: 4096}, Options{})
	if !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(err.Error(), "5.19") {
		t.Errorf("no commands: %v", err)
	}
}

// What the kernel refuses to register is done without: the file is looked up each
// time, buffers are pinned each time, and it works.
func TestQueue_nothingRegistered(t *testing.T) {
	if err := Probe(); err != nil {
		t.Skip("no io_uring here:", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sys := thisKernel()
	sys.register = func(int, uintptr, unsafe.Pointer, int) unix.Errno { return unix.ENOMEM }
	q, err := newQueue(sys, plain(t), nil, Options{Depth: 4, Write: true, OneThread: true})
	if err != nil {
		t.Fatal(err)
	}
	m := memory(t, 8192)
	if err := q.RegisterBuffers(m); !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("registering: %v", err)
	}
	moves(t, q, m)
	if f := q.Features(); f.FixedFile || f.FixedBuffers || q.ring.with != 0 {
		t.Errorf("%s", f)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// Before 6.1 a command cannot name registered memory, and says EINVAL: it is given
// again without, and so are all after it. Without registered memory EINVAL is what
// it says.
func TestCommands_registeredMemoryBefore61(t *testing.T) {
	entries := make([]sqe128, 4)
	m := memory(t, 8192)
	q := &Queue{
		ring: &ring{wide: true, entries: 4, sqMask: 3, sqes: unsafe.Pointer(unsafe.SliceData(entries))}, slots: make([]slot, 4), mask: 511,
		ns: &Commands{NSID: 1, SizeBlocks: 1 << 20, BlockBytes: 512}, base: address(m), size: uintptr(len(m)),
	}
	q.slots[0] = slot{op: nvmeioctl.OpRead, buf: m[:4096], want: 4096}
	q.push(0, &q.slots[0])
	if entries[0].cmdFlags != cmdFixed || !q.slots[0].fixed {
		t.Fatalf("%+v", entries[0])
	}
	gone := unknown
	again, status, err := q.settle(0, &q.slots[0], -int32(unix.EINVAL), &gone)
	if !again || status != 0 || err != nil {
		t.Fatalf("%v %v %v", again, status, err)
	}
	q.push(0, &q.slots[0])
	q.slots[1] = slot{op: nvmeioctl.OpWrite, buf: m[4096:], want: 4096}
	q.push(1, &q.slots[1])
	for i := 1; i < 3; i++ {
		if entries[i].cmdFlags != 0 || q.Features().FixedBuffers {
			t.Errorf("entry %d still names registered memory: %+v", i, entries[i])
		}
	}
	again, _, err = q.settle(0, &q.slots[0], -int32(unix.EINVAL), &gone)
	if again || !errors.Is(err, unix.EINVAL) {
		t.Errorf("refused for another reason: %v %v", again, err)
	}
}

// PRACT leaves the protection information to the controller, in each command: the
// buffer is the blocks' data alone, and the reference tag that type 1 checks is the
// block's number, whose low half it is beyond 2^32.
func TestCommands_protection(t *testing.T) {
	entries := make([]sqe128, 8)
	m := memory(t, 64<<10)
	q := &Queue{
		ring: &ring{wide: true, entries: 8, sqMask: 7, sqes: unsafe.Pointer(unsafe.SliceData(entries))}, slots: make([]slot, 8), mask: 4095,
		ns: &Commands{NSID: 2, SizeBlocks: 1 << 40, BlockBytes: 4096, Protect: true},
	}
	for i, c := range []struct {
		op     nvmeioctl.IOOp
		lba    int64
		blocks int
		fua    bool
		opcode uint8
		cdw12  uint32
	}{
		{nvmeioctl.OpRead, 7, 1, false, nvmespec.IOOpRead, 1<<29 | 1<<28},
		{nvmeioctl.OpWrite, 1<<32 + 5, 16, false, nvmespec.IOOpWrite, 1<<29 | 1<<28 | 15},
		{nvmeioctl.OpWrite, 1<<40 - 1, 1, true, nvmespec.IOOpWrite, 1<<30 | 1<<29 | 1<<28},
	} {
		q.slots[i] = slot{op: c.op, off: c.lba * 4096, buf: m[:c.blocks*4096], fua: c.fua}
		q.push(uint32(i), &q.slots[i])
		got := entries[i].cmd
		want := nvmeCmd{
			opcode: c.opcode, nsid: 2, addr: uint64(address(m)), dataLen: uint32(c.blocks * 4096), timeoutMS: commandTimeoutMS,
			cdw: [6]uint32{uint32(c.lba), uint32(c.lba >> 32), c.cdw12, 0, uint32(c.lba), 0},
		}
		if got != want {
			t.Errorf("LBA %d: %+v, want %+v", c.lba, got, want)
		}
	}
	// A guard that does not match is the drive's answer, not a length.
	gone := unknown
	if again, status, err := q.settle(0, &q.slots[0], 0x282, &gone); again || err != nil || status != 0x282 {
		t.Errorf("%v %#x %v", again, status, err)
	}
}

// A polled queue asks instead of waiting, and flushes by a call of its own, since a
// polled ring has no operation for it. The kernel's own flag is left out here: no
// device with poll queues is needed to see that nothing waits for an interrupt.
func TestQueue_polled(t *testing.T) {
	if err := Probe(); err != nil {
		t.Skip("no io_uring here:", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sys := thisKernel()
	asked := false
	sys.setup = func(entries uint32, p *params) (int, unix.Errno) {
		asked = asked || p.flags&setupIOPoll != 0
		p.flags &^= setupIOPoll
		return setup(entries, p)
	}
	q, err := newQueue(sys, plain(t), nil, Options{Depth: 4, Write: true, OneThread: true, Polled: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := q.Features(); !asked || !f.Polled || !strings.Contains(f.String(), "polled") {
		t.Errorf("the kernel was asked to poll: %v; %s", asked, f)
	}
	moves(t, q, memory(t, 8192))
	if n, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpFlush, Tag: 9}}); n != 1 || err != nil || q.ring.pending() != 0 || len(q.early) != 1 {
		t.Errorf("%d, %v: a polled ring was given an operation that it has not", n, err)
	}
	if got := nvmetest.Do(t, q); len(got) != 0 && got[9].Err != nil {
		t.Errorf("%+v", got)
	}
	// What a device without poll queues says is explained.
	gone := unknown
	_, _, err = q.failed(&slot{op: nvmeioctl.OpRead}, unix.EOPNOTSUPP, &gone)
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "no poll queues") {
		t.Errorf("%v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}
