package uring

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

// Submit implements IOQueue. A request that is malformed is an error and is not
// taken.
func (q *Queue) Submit(reqs []nvmeioctl.IORequest) (int, error) {
	if q.closed {
		return 0, os.ErrClosed
	}
	for n := range reqs {
		r := &reqs[n]
		if len(q.free) == 0 {
			return n, nil
		}
		moves := r.Op == nvmeioctl.OpRead || r.Op == nvmeioctl.OpWrite
		if !moves || r.LengthBytes <= 0 || int(r.LengthBytes) > min(q.max, len(r.Buf)) || r.OffsetBytes < 0 ||
			(r.OffsetBytes|int64(r.LengthBytes))&q.mask != 0 {
			if err := q.malformed(r); err != nil {
				return n, err
			}
		}
		if q.ns != nil && moves {
			if err := q.inBounds(r); err != nil {
				return n, err
			}
		}
		i := q.free[len(q.free)-1]
		s := &q.slots[i]
		s.off, s.tag, s.want, s.done, s.tries = r.OffsetBytes, r.Tag, r.LengthBytes, 0, 0
		s.op, s.fua, s.syncing, s.bounced = r.Op, r.FUA, false, false
		if moves {
			s.buf = r.Buf[:r.LengthBytes]
			if q.file.AlignBytes > 1 && address(s.buf)&uintptr(q.file.AlignBytes-1) != 0 {
				if err := q.bounceOf(i, s); err != nil {
					return n, err
				}
			}
		} else {
			s.buf, s.want = nil, 0
		}
		q.free = q.free[:len(q.free)-1]
		q.seen = max(q.seen, r.At)
		q.push(i, s)
	}
	return len(reqs), nil
}

// malformed refuses what the caller must not ask for. A flush is not malformed.
func (q *Queue) malformed(r *nvmeioctl.IORequest) error {
	switch {
	case r.Op == nvmeioctl.OpFlush:
		return nil
	case r.Op != nvmeioctl.OpRead && r.Op != nvmeioctl.OpWrite:
		return fmt.Errorf("%s: unknown operation %d", q.file.Path, r.Op)
	case r.LengthBytes <= 0 || int(r.LengthBytes) > q.max:
		return fmt.Errorf("%s: a request of %d bytes; the largest is %d", q.file.Path, r.LengthBytes, q.max)
	case len(r.Buf) < int(r.LengthBytes):
		return fmt.Errorf("%s: a request of %d bytes with a buffer of %d", q.file.Path, r.LengthBytes, len(r.Buf))
	}
	return fmt.Errorf("%s: offset %d or length %d is no multiple of the block of %d bytes",
		q.file.Path, r.OffsetBytes, r.LengthBytes, q.file.LogicalBlockBytes)
}

// push fills an entry for what is left of a slot's request.
func (q *Queue) push(i uint32, s *slot) {
	switch {
	case q.ns != nil:
		q.pushCommand(i, s)
		return
	case s.op == nvmeioctl.OpFlush || s.syncing:
		q.pushFlush(i, s)
		return
	}
	e := q.ring.next()
	buf := s.buf
	if s.bounced {
		buf = q.bounceAt(i)[:len(s.buf)]
	}
	at := address(buf)
	e.opcode = opRead
	if s.op == nvmeioctl.OpWrite {
		e.opcode = opWrite
	}
	e.bufIndex = 0
	if off := at - q.base; off < q.size && off+uintptr(len(buf)) <= q.size && off/regionBytes == (off+uintptr(len(buf))-1)/regionBytes {
		e.opcode -= opRead - opReadFixed
		e.bufIndex = uint16(off / regionBytes)
	}
	e.flags, e.ioprio, e.fd = 0, 0, int32(q.file.FD)
	if q.fixed {
		e.flags, e.fd = sqeFixedFile, 0
	}
	e.off = uint64(s.off + int64(s.done))
	e.addr = uint64(at + uintptr(s.done))
	e.len = uint32(len(buf)) - uint32(s.done)
	e.opFlags = 0
	if s.fua && !q.noDSync && s.op == nvmeioctl.OpWrite {
		e.opFlags = unix.RWF_DSYNC
	}
	e.userData = uint64(i)
	e.personality, e.spliceFD = 0, 0
	q.ring.tail++
}

// pushFlush makes all that was written durable. A polled ring has no operation
// for it.
func (q *Queue) pushFlush(i uint32, s *slot) {
	if q.polled {
		err := q.file.Flush()
		q.early = append(q.early, q.free1(i, s, err))
		return
	}
	e := q.ring.next()
	*e = sqe{opcode: opFsync, fd: int32(q.file.FD), opFlags: fsyncDataSync, userData: uint64(i)}
	if q.fixed {
		e.flags, e.fd = sqeFixedFile, 0
	}
	q.ring.tail++
}

// free1 ends a slot's request.
func (q *Queue) free1(i uint32, s *slot, err error) nvmeioctl.IOResult {
	s.buf = nil
	q.free = append(q.free, i)
	return nvmeioctl.IOResult{Tag: s.tag, Err: err, Done: q.clock.Now()}
}

// bounceOf makes a slot use memory of the queue's, aligned as direct I/O needs.
func (q *Queue) bounceOf(i uint32, s *slot) error {
	if q.bounce == nil {
		m, err := unix.Mmap(-1, 0, q.bounceBytes()*len(q.slots), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("%s: map %d buffers of %d bytes: %w", q.file.Path, len(q.slots), q.bounceBytes(), os.NewSyscallError("mmap", err))
		}
		q.bounce = m
	}
	s.bounced = true
	if s.op == nvmeioctl.OpWrite {
		copy(q.bounceAt(i), s.buf)
	}
	return nil
}

// bounceBytes is the room of one slot: whole pages, so that each is aligned.
func (q *Queue) bounceBytes() int {
	unit := max(4096, q.file.AlignBytes)
	return (q.max + unit - 1) / unit * unit
}

func (q *Queue) bounceAt(i uint32) []byte {
	n := q.bounceBytes()
	return q.bounce[int(i)*n : int(i+1)*n]
}
