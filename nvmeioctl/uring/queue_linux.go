package uring

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

const (
	// closeWait is how long Close waits for what is outstanding.
	closeWait = 5 * time.Second
	// regionBytes is the most that the kernel registers as one buffer.
	regionBytes = 1 << 30
	// transferMost is the longest transfer of one entry that the kernel does not
	// cut short (MAX_RW_COUNT, whole pages below 2 GiB).
	transferMost = 1 << 30
)

// Queue implements nvmeioctl.IOQueue and nvmeioctl.BufferRegistrar. Like every
// IOQueue it has one user.
//
// What Submit takes reaches the kernel with the next Reap, in one system call
// with the wait for completions: who submits goes on to reap.
type Queue struct {
	file  nvmeioctl.DataFile
	ns    *Commands // nil on a block node, character device or file
	clock nvmeioctl.Clock
	ring  *ring
	max   int
	mask  int64 // of the logical block
	fixed bool  // the file is number 0 of the ring
	// seen is a time that is past: the clock is read after a fruitless wait only.
	seen  nvmeioctl.Instant
	slots []slot
	free  []uint32 // slots with no request in them
	// early are results that need no system call of the ring.
	early []nvmeioctl.IOResult
	// base and size are the registered memory.
	base, size uintptr
	bounce     []byte
	polled     bool
	// atOnce says that so far everything completed while it was handed over: a
	// target in memory. It never comes true again.
	atOnce  bool
	noDSync bool // the file refuses RWF_DSYNC
	stuck   int  // refused submissions in a row
	closed  bool
}

// slot is one request under way.
type slot struct {
	buf   []byte // the request's; kept so that it lives as long as the kernel may use it
	off   int64
	tag   uint32
	want  int32 // the result that means success: the length, or 0
	done  int32 // transferred so far, when the kernel did a part
	tries uint8
	op    nvmeioctl.IOOp
	fua   bool
	// syncing says that the data of a FUA write is written and a sync under way.
	syncing bool
	bounced bool
	// fixed says that a command named registered memory.
	fixed bool
}

// Features are what a queue has in effect.
type Features struct {
	// FixedFile and FixedBuffers: registered with the kernel.
	FixedFile, FixedBuffers bool
	// SingleIssuer, DeferTaskrun and CoopTaskrun are what the ring was set up with.
	SingleIssuer, DeferTaskrun, CoopTaskrun bool
	// Polled: completions are asked for.
	Polled bool
	// Commands: NVMe commands instead of reads and writes.
	Commands bool
}

// String lists what is in effect.
func (f Features) String() string {
	var on []string
	for _, x := range []struct {
		on   bool
		name string
	}{
		{f.Commands, "NVMe commands"}, {f.FixedFile, "fixed file"}, {f.FixedBuffers, "fixed buffers"}, {f.SingleIssuer, "single issuer"},
		{f.DeferTaskrun, "deferred task work"}, {f.CoopTaskrun, "cooperative task work"}, {f.Polled, "polled"},
	} {
		if x.on {
			on = append(on, x.name)
		}
	}
	return strings.Join(on, ", ")
}

// Open opens a block device, character device or plain file as a queue. A plain
// file must exist; writing beyond its end makes it longer. Where the kernel has
// no io_uring for this process the error Is nvmeioctl.ErrNotSupported and says
// what to do; package syncio works everywhere.
func Open(path string, opts Options) (*Queue, error) {
	if err := opts.check(path); err != nil {
		return nil, err
	}
	f, err := nvmeioctl.OpenData(path, nvmeioctl.DataOptions{
		Write: opts.Write, Exclusive: opts.Exclusive, Direct: opts.Direct, LogicalBlockBytes: opts.LogicalBlockBytes,
	})
	if err != nil {
		return nil, err
	}
	if opts.Polled {
		if err := pollable(&f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return newQueue(thisKernel(), f, nil, opts)
}

func (o *Options) check(path string) error {
	if o.Depth > MaxDepth || o.MaxRequestBytes < 0 || o.MaxRequestBytes > transferMost || o.LogicalBlockBytes < 0 ||
		o.LogicalBlockBytes&(o.LogicalBlockBytes-1) != 0 {
		return fmt.Errorf("%s: depth %d, largest request %d bytes, block of %d bytes: out of range",
			path, o.Depth, o.MaxRequestBytes, o.LogicalBlockBytes)
	}
	return nil
}

// pollable refuses a device that cannot be polled, as far as sysfs tells.
func pollable(f *nvmeioctl.DataFile) error {
	u := &nvmeioctl.UnsupportedError{Feature: f.Path + ": polling", Needs: "a block device with poll queues (nvme.poll_queues=N on the kernel's command line)"}
	if !f.Direct || !f.Block {
		u.Have = "this file is not used directly"
		return u
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.FD, &st); err != nil {
		return fmt.Errorf("%s: %w", f.Path, os.NewSyscallError("fstat", err))
	}
	text, err := os.ReadFile(filepath.Join("/sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), "queue/io_poll"))
	if err == nil && strings.TrimSpace(string(text)) == "0" {
		u.Have = "this one has none"
		return u
	}
	return nil
}

// newQueue makes the ring of a file, which is closed on error.
func newQueue(sys kernel, f nvmeioctl.DataFile, ns *Commands, opts Options) (*Queue, error) {
	depth := max(1, opts.Depth)
	if opts.OneThread {
		// What the ring is asked and told here has to come from the thread that set
		// it up, also where the caller only tries whether it opens.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	r, err := newRing(sys, depth, opts.OneThread, opts.Polled, ns != nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.Path, err), f.Close())
	}
	q := &Queue{
		file: f, ns: ns, clock: opts.Clock, ring: r, max: cmp.Or(opts.MaxRequestBytes, 1<<20), mask: int64(f.LogicalBlockBytes) - 1,
		slots: make([]slot, depth), free: make([]uint32, 0, depth), early: make([]nvmeioctl.IOResult, 0, depth), polled: opts.Polled,
		atOnce: true,
	}
	if q.clock == nil {
		q.clock = nvmeioctl.NewSystemClock()
	}
	for i := range depth {
		q.free = append(q.free, uint32(depth-1-i))
	}
	if int(r.entries) < depth {
		err = &nvmeioctl.UnsupportedError{Feature: fmt.Sprintf("a queue of depth %d", depth), Have: fmt.Sprintf("the kernel gives %d", r.entries)}
	} else if bits.OnesCount(uint(f.LogicalBlockBytes)) != 1 {
		err = fmt.Errorf("blocks of %d bytes", f.LogicalBlockBytes)
	}
	if err == nil && ns != nil {
		err = q.checkCommands()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.Path, err), r.close(), f.Close())
	}
	// Without it each request looks the file up, which works as well.
	q.fixed = r.registerFile(f.FD) == nil
	return q, nil
}

// RegisterBuffers implements nvmeioctl.BufferRegistrar.
func (q *Queue) RegisterBuffers(memory []byte) error {
	if len(memory) == 0 || q.size != 0 {
		return fmt.Errorf("%s: register %d bytes of buffers: there are none, or some already", q.file.Path, len(memory))
	}
	var regions []unix.Iovec
	for rest := memory; len(rest) != 0; {
		n := min(len(rest), regionBytes)
		v := unix.Iovec{Base: unsafe.SliceData(rest)}
		v.SetLen(n)
		regions, rest = append(regions, v), rest[n:]
	}
	// SAFETY: the kernel reads the vector during the call and pins the pages that
	// it names; the caller keeps them mapped.
	if errno := q.ring.register(registerBuffers, unsafe.Pointer(unsafe.SliceData(regions)), len(regions)); errno != 0 {
		return fmt.Errorf("%s: %w", q.file.Path, bufferError(errno, len(memory)))
	}
	q.base, q.size = address(memory), uintptr(len(memory))
	return nil
}

// Features is what is in effect.
func (q *Queue) Features() Features {
	has := func(flag uint32) bool { return q.ring.flags&flag != 0 }
	return Features{
		FixedFile: q.fixed, FixedBuffers: q.size != 0, SingleIssuer: has(setupSingleIssuer), DeferTaskrun: has(setupDeferTaskrun),
		CoopTaskrun: has(setupCoopTaskrun), Polled: q.polled, Commands: q.ns != nil,
	}
}

// SizeBytes is the size of the file or namespace in bytes when it was opened; 0
// for a character device, which has none.
func (q *Queue) SizeBytes() int64 { return q.file.SizeBytes }

// LogicalBlockBytes is the smallest unit of a transfer in bytes.
func (q *Queue) LogicalBlockBytes() int { return q.file.LogicalBlockBytes }

// AlignBytes is what buffer addresses must be multiples of to be used without
// a copy; 1 when the page cache is in between.
func (q *Queue) AlignBytes() int { return q.file.AlignBytes }

// Direct says whether the page cache is bypassed.
func (q *Queue) Direct() bool { return q.file.Direct }

// Depth implements IOQueue.
func (q *Queue) Depth() int { return len(q.slots) }

// outstanding is how many requests have been taken and not been reaped.
func (q *Queue) outstanding() int { return len(q.slots) - len(q.free) }

// Close implements IOQueue. It waits five seconds at most for what is
// outstanding; should that not come back, the kernel keeps the pages it still
// uses until it does.
func (q *Queue) Close() error {
	if q.closed {
		return os.ErrClosed
	}
	var errs []error
	if q.outstanding() != 0 {
		results := make([]nvmeioctl.IOResult, len(q.slots))
		for end := q.clock.Now().Add(closeWait); q.outstanding() != 0; {
			if _, err := q.Reap(results, end); err != nil {
				errs = append(errs, err)
				break
			}
			if q.clock.Now() >= end {
				errs = append(errs, fmt.Errorf("%s: %d operations did not come back within %s", q.file.Path, q.outstanding(), closeWait))
				break
			}
		}
	}
	q.closed = true
	errs = append(errs, q.ring.close())
	if q.bounce != nil && q.outstanding() == 0 {
		errs = append(errs, os.NewSyscallError("munmap", unix.Munmap(q.bounce)))
	}
	return errors.Join(append(errs, q.file.Close())...)
}

// address is where memory begins.
func address(b []byte) uintptr {
	// JUSTIFICATION: the kernel's entry takes a number, and alignment is one.
	// SAFETY: the number is not turned into a pointer again; who uses it keeps b.
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}
