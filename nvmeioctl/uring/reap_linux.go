package uring

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// triesMost is how often what the kernel asks to be tried again is.
const triesMost = 100

// stuckMost is how often in a row the kernel may refuse to take entries.
const stuckMost = 1000

// stuckPause lies between two such tries.
const stuckPause = 100 * time.Microsecond

// Reap implements IOQueue. The clock is read once for all results.
func (q *Queue) Reap(results []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	if q.closed {
		return 0, os.ErrClosed
	}
	if len(q.early) != 0 && len(results) != 0 {
		return q.takeEarly(results), nil
	}
	if q.outstanding() == 0 || len(results) == 0 {
		return 0, nil
	}
	// What has completed is taken at once, unless something waits to be handed
	// over: then one call does both.
	for entered := false; ; entered = true {
		head, tail := q.ring.ready()
		if head != tail && (entered || q.ring.pending() == 0) {
			if n := q.take(results, head, tail); n != 0 {
				return n, nil
			}
			if len(q.early) != 0 {
				return q.takeEarly(results), nil
			}
			continue
		}
		if entered {
			if q.seen = q.clock.Now(); q.seen >= until {
				return 0, nil
			}
		}
		if q.atOnce && q.ring.pending() != 0 {
			err := q.entered(q.ring.hand())
			_, tail := q.ring.ready()
			q.atOnce = tail != head
			if err != nil {
				return 0, err
			}
			if q.atOnce {
				continue
			}
		}
		wait := uint32(0)
		if head == tail && !q.polled {
			wait = q.patience(until)
		}
		if err := q.entered(q.ring.enter(wait)); err != nil {
			return 0, err
		}
	}
}

// patience sets how long the next wait lasts, and says for how many completions.
func (q *Queue) patience(until nvmeioctl.Instant) uint32 {
	left := int64(until) - int64(q.seen)
	if left <= 0 {
		return 0
	}
	(*timespec)(q.ring.arg.ts).nsec = min(left, waitNS)
	return 1
}

// entered judges how a call ended. A signal, which the collector sends, and the
// end of a wait are no errors: what was consumed shows in the ring.
func (q *Queue) entered(errno unix.Errno) error {
	switch errno {
	case 0:
		q.stuck = 0
		return nil
	case unix.EINTR, unix.ETIME:
		return nil
	case unix.EAGAIN, unix.EBUSY:
		// No memory for a request, or the completion ring is full.
		if q.stuck++; q.stuck < stuckMost {
			_ = q.clock.Sleep(context.Background(), stuckPause) // its error is the context's, which has none
			return nil
		}
	case unix.EEXIST, unix.EBADF:
		return fmt.Errorf("%s: the queue is used by a thread that did not open it: %w", q.file.Path, os.NewSyscallError("io_uring_enter", errno))
	}
	return fmt.Errorf("%s: %w", q.file.Path, os.NewSyscallError("io_uring_enter", errno))
}

// takeEarly hands out results that did not pass the ring.
func (q *Queue) takeEarly(results []nvmeioctl.IOResult) int {
	n := copy(results, q.early)
	q.early = q.early[:copy(q.early, q.early[n:])]
	return n
}

// take turns completions into results. One that is not the end of its request
// makes none.
func (q *Queue) take(results []nvmeioctl.IOResult, head, tail uint32) int {
	now := q.clock.Now()
	q.seen = now
	n := 0
	gone := unknown
	for ; head != tail && n < len(results); head++ {
		c := q.ring.completion(head)
		i := uint32(c.userData)
		s := &q.slots[i]
		res := &results[n]
		res.Tag, res.Done, res.Status, res.Err = s.tag, now, 0, nil
		if c.res != s.want-s.done || s.bounced || s.syncing || q.ns != nil {
			again, status, err := q.settle(i, s, c.res, &gone)
			if again {
				q.push(i, s)
				continue
			}
			res.Status, res.Err = status, err
		}
		s.buf = nil
		q.free = append(q.free, i)
		n++
	}
	atomic.StoreUint32(q.ring.cqHead, head)
	return n
}

// presence is what is known of the device within a batch.
type presence uint8

const (
	unknown presence = iota
	there
	missing
)

// settle judges a completion that is not plainly the whole of its request, and
// says whether the rest has to be asked for.
func (q *Queue) settle(i uint32, s *slot, res int32, gone *presence) (again bool, status nvmespec.Status, err error) {
	switch {
	case q.ns != nil && res >= 0:
		return false, nvmespec.Status(res), nil
	case res < 0:
		return q.failed(s, unix.Errno(-res), gone)
	case s.syncing || s.op == nvmeioctl.OpFlush:
		return false, 0, nil
	case res == 0:
		short := io.ErrUnexpectedEOF
		if s.op == nvmeioctl.OpWrite {
			short = io.ErrShortWrite
		}
		return false, 0, q.failure(s, short, gone)
	}
	if s.done += res; s.done < s.want {
		return true, 0, nil
	}
	if s.bounced && s.op == nvmeioctl.OpRead {
		copy(s.buf, q.bounceAt(i))
	}
	if s.fua && q.noDSync && s.op == nvmeioctl.OpWrite {
		s.syncing = true
		return true, 0, nil
	}
	return false, 0, nil
}

// failed judges an error number.
func (q *Queue) failed(s *slot, errno unix.Errno, gone *presence) (bool, nvmespec.Status, error) {
	switch {
	case errno == unix.EINTR || errno == unix.EAGAIN:
		if s.tries++; s.tries < triesMost {
			return true, 0, nil
		}
	case errno == unix.EINVAL && q.file.Character && (s.op == nvmeioctl.OpFlush || s.syncing):
		return false, 0, nil // it has nothing to flush
	case errno == unix.EINVAL && q.ns != nil && s.fixed:
		// Before 6.1 a command cannot name registered memory.
		q.size = 0
		return true, 0, nil
	case errno == unix.EOPNOTSUPP && s.fua && !q.noDSync && s.op == nvmeioctl.OpWrite && q.ns == nil:
		q.noDSync = true
		return true, 0, nil
	case errno == unix.EOPNOTSUPP && q.polled:
		return false, 0, fmt.Errorf("the device has no poll queues (nvme.poll_queues=N): %w", os.NewSyscallError(s.call(), errno))
	}
	return false, 0, q.failure(s, errno, gone)
}

// failure is the error of a request, and says when it is because the device is
// no longer there.
func (q *Queue) failure(s *slot, cause error, gone *presence) error {
	err := os.NewSyscallError(s.call(), cause)
	if *gone == unknown {
		*gone = there
		if cause == unix.ENODEV || cause == unix.ENXIO || q.file.Gone() {
			*gone = missing
		}
	}
	if *gone == missing {
		return fmt.Errorf("%w: %w", nvmeioctl.ErrDeviceGone, err)
	}
	return err
}

// call names what failed as the kernel's own tools do.
func (s *slot) call() string {
	switch {
	case s.op == nvmeioctl.OpFlush || s.syncing:
		return "io_uring fsync"
	case s.op == nvmeioctl.OpWrite:
		return "io_uring write"
	}
	return "io_uring read"
}
