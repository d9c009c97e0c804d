package uring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is the pair of rings shared with the kernel. Everything in it that the
// kernel reads or writes later is mapped, not on Go's heap.
type ring struct {
	sys   kernel
	fd    int
	flags uint32 // of setup, as they were accepted
	rings []byte // the first mapping: both rings
	sqeAt []byte // the second: the entries
	wide  bool   // SQE128 and CQE32

	sqHead, sqTail *uint32
	cqHead, cqTail *uint32
	sqMask, cqMask uint32
	entries        uint32
	sqes, cqes     unsafe.Pointer
	// tail is what sqTail will be: entries below it are filled.
	tail uint32
	arg  *getEventsArg
	// target and with are the descriptor and the flag of enter: the ring's own,
	// or its index among those of the one thread that uses it.
	target, with uintptr
	// ours says that the ring is yet to be made known to its thread.
	ours bool
}

// kernel is the two calls by which a ring is made what it is. Tests put an older
// kernel in its place, which refuses what it does not know.
type kernel struct {
	setup    func(entries uint32, p *params) (fd int, errno unix.Errno)
	register func(fd int, op uintptr, arg unsafe.Pointer, n int) unix.Errno
}

// thisKernel is the one that the process runs on.
func thisKernel() kernel { return kernel{setup, register} }

// waitNS bounds a wait in the kernel: a signal is not blocked, and a stop of the
// world is never held up longer.
const waitNS = 1e6

// newRing sets a ring up with the best of what the kernel has.
func newRing(sys kernel, depth int, oneThread, polled, wide bool) (*ring, error) {
	base := uint32(setupClamp | setupCQSize)
	if polled {
		base |= setupIOPoll
	}
	if wide {
		base |= setupSQE128 | setupCQE32
	}
	tries := []uint32{base | setupCoopTaskrun, base}
	if oneThread {
		tries = []uint32{
			base | setupSingleIssuer | setupDeferTaskrun, base | setupSingleIssuer | setupCoopTaskrun, base | setupCoopTaskrun, base,
		}
	}
	var p params
	var fd int
	var errno unix.Errno
	for _, flags := range tries {
		p = params{flags: flags, cqEntries: uint32(2 * depth)}
		if fd, errno = sys.setup(uint32(depth), &p); errno != unix.EINVAL {
			break
		}
	}
	if errno != 0 {
		return nil, refused(errno, wide)
	}
	r := &ring{sys: sys, fd: fd, flags: p.flags, wide: wide, target: uintptr(fd), ours: oneThread}
	if p.features&featNeeded != featNeeded {
		return nil, errors.Join(tooOld(), r.close())
	}
	if err := r.mapRings(&p); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func setup(entries uint32, p *params) (int, unix.Errno) {
	// JUSTIFICATION: x/sys has no io_uring.
	// SAFETY: the kernel reads and writes p during the call only.
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	return int(fd), errno
}

// mapRings maps what the kernel made.
func (r *ring) mapRings(p *params) error {
	sqeSize, cqeSize := unsafe.Sizeof(sqe{}), unsafe.Sizeof(cqe{})
	if r.wide {
		sqeSize, cqeSize = unsafe.Sizeof(sqe128{}), unsafe.Sizeof(cqe32{})
	}
	size := max(uintptr(p.sq.arr)+uintptr(p.sqEntries)*4, uintptr(p.cq.cqes)+uintptr(p.cqEntries)*cqeSize)
	var err error
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, offRings, int(size), prot, flags); err != nil {
		return mapError(err)
	}
	if r.sqeAt, err = unix.Mmap(r.fd, offSQEs, int(uintptr(p.sqEntries)*sqeSize), prot, flags); err != nil {
		return mapError(err)
	}
	// JUSTIFICATION: the kernel says where in the mapping its words are.
	// SAFETY: the offsets lie within the size computed from them, and the mapping
	// lasts as long as r.
	at := unsafe.Pointer(unsafe.SliceData(r.rings))
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Add(at, off)) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.ringMask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.ringMask)
	r.entries = p.sqEntries
	r.cqes = unsafe.Add(at, p.cq.cqes)
	r.sqes = unsafe.Pointer(unsafe.SliceData(r.sqeAt))
	for i := range p.sqEntries {
		*word(p.sq.arr + 4*i) = i
	}
	r.tail = *r.sqTail
	r.arg = &getEventsArg{ts: unsafe.Pointer(&timespec{nsec: waitNS})}
	return nil
}

func mapError(err error) error {
	return fmt.Errorf("map the rings: %w", os.NewSyscallError("mmap", err))
}

// pending is how many filled entries the kernel has not consumed.
func (r *ring) pending() uint32 { return r.tail - atomic.LoadUint32(r.sqHead) }

// next is the entry to fill next; there is one while pending is below entries.
func (r *ring) next() *sqe {
	return (*sqe)(unsafe.Add(r.sqes, uintptr(r.tail&r.sqMask)*unsafe.Sizeof(sqe{})))
}

func (r *ring) nextWide() *sqe128 {
	return (*sqe128)(unsafe.Add(r.sqes, uintptr(r.tail&r.sqMask)*unsafe.Sizeof(sqe128{})))
}

// completion is the i-th completion counted as the ring counts.
func (r *ring) completion(i uint32) *cqe {
	if r.wide {
		return (*cqe)(unsafe.Add(r.cqes, uintptr(i&r.cqMask)*unsafe.Sizeof(cqe32{})))
	}
	return (*cqe)(unsafe.Add(r.cqes, uintptr(i&r.cqMask)*unsafe.Sizeof(cqe{})))
}

// ready says from where to where completions lie.
func (r *ring) ready() (head, tail uint32) {
	return *r.cqHead, atomic.LoadUint32(r.cqTail) // the head is written by this side only
}

// enter hands over what is pending and waits for at least wait completions, a
// millisecond at most. What the kernel consumed shows in the ring, whatever the
// call returns.
//
// It is the raw system call: the one that tells the scheduler costs 12 to 40 %
// more in wake-ups. The processor is held meanwhile, which is why the wait is
// short. It is not inlined so that there is a point of preemption in the loop
// around it.
//
//go:noinline
func (r *ring) enter(wait uint32) unix.Errno {
	if r.ours {
		r.own()
	}
	atomic.StoreUint32(r.sqTail, r.tail)
	// SAFETY: the argument and its time lie on the heap and are read during the
	// call only.
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, r.target, uintptr(r.pending()), uintptr(wait),
		enterGetEvents|enterExtArg|r.with, uintptr(unsafe.Pointer(r.arg)), getEventsSize)
	return errno
}

// hand hands over what is pending and looks for no completions: those of a
// target that does its work during the call are in the ring after it, and
// nothing is read from or waited for here.
//
//go:noinline
func (r *ring) hand() unix.Errno {
	if r.ours {
		r.own()
	}
	atomic.StoreUint32(r.sqTail, r.tail)
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, r.target, uintptr(r.pending()), 0, r.with, 0, 0)
	return errno
}

// own makes the ring known to the calling thread, the only one that will enter
// it, so that no call has to look its descriptor up in a table that all threads
// share. It is done at the first entry: a ring that is only opened and closed
// leaves nothing with a thread. Without it all works as well.
func (r *ring) own() {
	r.ours = false
	u := rsrcUpdate{offset: 1<<32 - 1, data: uint64(r.fd)}
	if r.register(registerRing, unsafe.Pointer(&u), 1) == 0 && u.offset != 1<<32-1 {
		r.target, r.with = uintptr(u.offset), enterRegisteredRing
	}
}

// disown takes the ring from the thread again, which otherwise keeps it.
func (r *ring) disown() error {
	if r.with == 0 {
		return nil
	}
	u := rsrcUpdate{offset: uint32(r.target)}
	r.target, r.with = uintptr(r.fd), 0
	if errno := r.register(unregisterRing, unsafe.Pointer(&u), 1); errno != 0 {
		return os.NewSyscallError("io_uring_register", errno)
	}
	return nil
}

// register is io_uring_register.
func (r *ring) register(op uintptr, arg unsafe.Pointer, n int) unix.Errno {
	return r.sys.register(r.fd, op, arg, n)
}

func register(fd int, op uintptr, arg unsafe.Pointer, n int) unix.Errno {
	for {
		// SAFETY: the kernel reads and writes the argument during the call only.
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), op, uintptr(arg), uintptr(n), 0, 0)
		if errno != unix.EINTR {
			runtime.KeepAlive(arg)
			return errno
		}
	}
}

// registerFile makes a descriptor number 0 of the ring.
func (r *ring) registerFile(fd int) error {
	fds := [1]int32{int32(fd)}
	if errno := r.register(registerFiles, unsafe.Pointer(&fds), 1); errno != 0 {
		return os.NewSyscallError("io_uring_register files", errno)
	}
	return nil
}

// has says whether the kernel knows an operation.
func (r *ring) has(op int) (bool, error) {
	p := new(probe)
	if errno := r.register(registerProbe, unsafe.Pointer(p), len(p.ops)); errno != 0 {
		return false, os.NewSyscallError("io_uring_register probe", errno)
	}
	return op < int(p.opsLen) && p.ops[op].flags&opSupported != 0, nil
}

// close unmaps the rings and closes the descriptor. The kernel cancels what is
// left, and keeps the pages of what it cannot.
func (r *ring) close() error {
	errs := []error{r.disown()}
	for _, m := range [][]byte{r.sqeAt, r.rings} {
		if m != nil {
			errs = append(errs, os.NewSyscallError("munmap", unix.Munmap(m)))
		}
	}
	errs = append(errs, os.NewSyscallError("close", unix.Close(r.fd)))
	r.rings, r.sqeAt = nil, nil
	return errors.Join(errs...)
}
