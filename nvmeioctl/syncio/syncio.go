// Package syncio is an IOQueue over plain pread and pwrite.
//
// It works on block devices, character devices and plain files, with O_DIRECT
// where the file allows it. Depth greater than one is a small pool of
// goroutines that the queue owns and waits for in Close. It must not interpret
// the data it moves.
package syncio

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"time"

	"nvop/nvmeioctl"
)

// DirectMode says whether the page cache is bypassed.
type DirectMode = nvmeioctl.DirectMode

// The modes, as package nvmeioctl has them.
const (
	DirectAuto     = nvmeioctl.DirectAuto
	DirectOff      = nvmeioctl.DirectOff
	DirectRequired = nvmeioctl.DirectRequired
)

// MaxDepth is the greatest Options.Depth: each request under way takes a thread.
const MaxDepth = 1024

// Options are how a file is opened as a queue.
type Options struct {
	// Depth is how many requests may be outstanding; 0 means 1, at most MaxDepth.
	Depth int
	// Write opens for writing too.
	Write bool
	// Exclusive adds O_EXCL on a block device: refused while it is mounted or
	// otherwise held. It protects from no NVMe command.
	Exclusive bool
	// Direct says whether the page cache is bypassed.
	Direct DirectMode
	// Clock is what results are stamped with and Reap's limit is on; nil means a
	// new SystemClock. It must run in real time, since the I/O does.
	Clock nvmeioctl.Clock
	// LogicalBlockBytes overrides what the file reports; 0 asks the file.
	LogicalBlockBytes int
	// MaxRequestBytes is the largest LengthBytes; 0 means 1 MiB. Bounce buffers
	// of this size are made for requests whose buffers are not aligned.
	MaxRequestBytes int
}

// Queue implements nvmeioctl.IOQueue. Like every IOQueue it has one user.
type Queue struct {
	file  file
	clock nvmeioctl.Clock
	max   int
	slots []slot
	free  []uint16 // the slots with no request in them
	// jobs hands slots to the workers and done hands them back. Both hold every
	// slot, so neither blocks the sender.
	jobs, done chan uint16
	stamp      sync.Mutex // held while a result is stamped and handed back
	workers    sync.WaitGroup
	timer      *time.Timer
	closed     bool
}

// slot is one place for a request under way.
type slot struct {
	req    nvmeioctl.IORequest
	result nvmeioctl.IOResult
	bounce []byte // made at the first request that needs it, then kept
	call   vector
}

// Open opens a block device, character device or plain file as a queue. A plain
// file must exist; writing beyond its end makes it longer.
func Open(path string, opts Options) (*Queue, error) {
	depth := max(1, opts.Depth)
	if depth > MaxDepth || opts.MaxRequestBytes < 0 || opts.LogicalBlockBytes < 0 {
		return nil, fmt.Errorf("%s: depth %d, largest request %d bytes, block of %d bytes: out of range",
			path, opts.Depth, opts.MaxRequestBytes, opts.LogicalBlockBytes)
	}
	f, err := nvmeioctl.OpenData(path, nvmeioctl.DataOptions{
		Write: opts.Write, Exclusive: opts.Exclusive, Direct: opts.Direct, LogicalBlockBytes: opts.LogicalBlockBytes,
	})
	if err != nil {
		return nil, err
	}
	q := &Queue{
		file: file{f}, clock: opts.Clock, max: cmp.Or(opts.MaxRequestBytes, 1<<20),
		slots: make([]slot, depth), free: make([]uint16, 0, depth),
		jobs: make(chan uint16, depth), done: make(chan uint16, depth),
		timer: time.NewTimer(time.Hour),
	}
	q.timer.Stop()
	if q.clock == nil {
		q.clock = nvmeioctl.NewSystemClock()
	}
	for i := range depth {
		q.free = append(q.free, uint16(i))
	}
	if depth > 1 {
		for range depth {
			q.workers.Go(q.work)
		}
	}
	return q, nil
}

// work carries requests out until the queue is closed.
func (q *Queue) work() {
	for i := range q.jobs {
		q.run(&q.slots[i])
		q.handIn(i)
	}
}

// handIn stamps a result and hands it back, both at once, so that results come
// in the order of their stamps.
func (q *Queue) handIn(i uint16) {
	q.stamp.Lock()
	defer q.stamp.Unlock()
	q.slots[i].result.Done = q.clock.Now()
	q.done <- i
}

// SizeBytes is the size of the file or device in bytes when it was opened; 0
// for a character device, which has none.
func (q *Queue) SizeBytes() int64 { return q.file.SizeBytes }

// LogicalBlockBytes is the logical block's data size in bytes: of the block
// device, or the smallest unit of direct I/O for another file, at least 512.
func (q *Queue) LogicalBlockBytes() int { return q.file.LogicalBlockBytes }

// AlignBytes is what buffer addresses must be multiples of to be used without
// a copy; 1 when the page cache is in between.
func (q *Queue) AlignBytes() int { return q.file.AlignBytes }

// Direct says whether O_DIRECT is in effect.
func (q *Queue) Direct() bool { return q.file.Direct }

// Depth implements IOQueue.
func (q *Queue) Depth() int { return len(q.slots) }

// Submit implements IOQueue. With a depth of one the request is carried out
// before Submit returns. A request that is malformed is an error and is not
// taken.
func (q *Queue) Submit(reqs []nvmeioctl.IORequest) (int, error) {
	if q.closed {
		return 0, os.ErrClosed
	}
	for n := range reqs {
		if len(q.free) == 0 {
			return n, nil
		}
		if err := q.check(&reqs[n]); err != nil {
			return n, err
		}
		i := q.free[len(q.free)-1]
		q.free = q.free[:len(q.free)-1]
		s := &q.slots[i]
		s.req = reqs[n]
		if len(q.slots) > 1 {
			q.jobs <- i
			continue
		}
		q.run(s)
		q.handIn(i)
	}
	return len(reqs), nil
}

// check refuses what the caller must not ask for.
func (q *Queue) check(r *nvmeioctl.IORequest) error {
	block := int64(q.file.LogicalBlockBytes)
	switch r.Op {
	case nvmeioctl.OpFlush:
		return nil
	case nvmeioctl.OpRead, nvmeioctl.OpWrite:
	default:
		return fmt.Errorf("%s: unknown operation %d", q.file.Path, r.Op)
	}
	switch {
	case r.LengthBytes <= 0 || int(r.LengthBytes) > q.max:
		return fmt.Errorf("%s: a request of %d bytes; the largest is %d", q.file.Path, r.LengthBytes, q.max)
	case len(r.Buf) < int(r.LengthBytes):
		return fmt.Errorf("%s: a request of %d bytes with a buffer of %d", q.file.Path, r.LengthBytes, len(r.Buf))
	case r.OffsetBytes < 0 || r.OffsetBytes%block != 0 || int64(r.LengthBytes)%block != 0:
		return fmt.Errorf("%s: offset %d or length %d is no multiple of the block of %d bytes",
			q.file.Path, r.OffsetBytes, r.LengthBytes, block)
	}
	return nil
}

// run carries one request out and fills its result but for the stamp.
func (q *Queue) run(s *slot) {
	buf := s.req.Buf
	if s.req.Op != nvmeioctl.OpFlush {
		buf = buf[:s.req.LengthBytes]
	}
	bounced := s.req.Op != nvmeioctl.OpFlush && !aligned(buf, q.file.AlignBytes)
	if bounced {
		if s.bounce == nil {
			s.bounce = AlignedBuffer(q.max, q.file.AlignBytes)
		}
		buf = s.bounce[:s.req.LengthBytes]
		if s.req.Op == nvmeioctl.OpWrite {
			copy(buf, s.req.Buf)
		}
	}
	err := q.file.do(s, buf)
	if bounced && s.req.Op == nvmeioctl.OpRead && err == nil {
		copy(s.req.Buf, buf)
	}
	if err != nil && q.file.Gone() {
		err = fmt.Errorf("%w: %w", nvmeioctl.ErrDeviceGone, err)
	}
	s.result = nvmeioctl.IOResult{Tag: s.req.Tag, Err: err}
	s.req.Buf = nil // the caller's again
}

// Reap implements IOQueue. Each result is stamped when its call returned, not
// when it is reaped.
func (q *Queue) Reap(results []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	if q.closed {
		return 0, os.ErrClosed
	}
	if len(q.free) == len(q.slots) || len(results) == 0 {
		return 0, nil
	}
	i, ok := q.wait(until)
	if !ok {
		return 0, nil
	}
	results[0] = q.take(i)
	n := 1
	for n < len(results) {
		select {
		case i := <-q.done:
			results[n] = q.take(i)
			n++
			continue
		default:
		}
		break
	}
	return n, nil
}

// wait returns the first completed slot, or false when the clock shows until.
func (q *Queue) wait(until nvmeioctl.Instant) (uint16, bool) {
	select {
	case i := <-q.done:
		return i, true
	default:
	}
	if until == nvmeioctl.Never {
		return <-q.done, true
	}
	left := until.Sub(q.clock.Now())
	if left <= 0 {
		return 0, false
	}
	q.timer.Reset(left)
	defer q.timer.Stop()
	select {
	case i := <-q.done:
		return i, true
	case <-q.timer.C:
		return 0, false
	}
}

// take frees a slot and returns what was in it.
func (q *Queue) take(i uint16) nvmeioctl.IOResult {
	q.free = append(q.free, i)
	return q.slots[i].result
}

// Close implements IOQueue. It waits for the requests under way, whose results
// are lost.
func (q *Queue) Close() error {
	if q.closed {
		return os.ErrClosed
	}
	q.closed = true
	close(q.jobs)
	q.workers.Wait()
	return q.file.Close()
}
