package sim

import (
	"fmt"
	"math/bits"
	"os"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

const (
	// MinLapseUnits is the smallest address space, in mapping units of the
	// drive, that a time lapse may leave: with fewer, writes at random meet the
	// same unit again too soon.
	MinLapseUnits = 1 << 16
	// maxQueueDepth is that of an NVMe queue.
	maxQueueDepth = 1 << 16
)

// Queue opens an I/O queue to a namespace of the first controller.
//
// Times of requests and results are nanoseconds of the queue's own clock,
// which all open queues of the drive share; it starts anew when a queue is
// opened while no other is, so a drive is idle at the start of a phase. Nothing waits and the drive's clock does not move:
// results carry the time at which a drive would have been done, and Reap(until)
// gives those that are done by until. Where the drive keeps no contents, reads
// leave zeros in a buffer if there is one; where it does, every request needs a
// buffer, and there is no time lapse.
//
// Under a time lapse K, offsets address the first 1/K of the namespace, all of
// which stands for all of the namespace: an operation counts K times in every
// counter and in wear, and takes as long as one. K of 0 is 1. An
// [nvmeioctl.UnsupportedError] names the largest K of the namespace if K is
// beyond it; see [MinLapseUnits].
//
// Queues of one drive may be used by several goroutines, each queue by one.
func (d *Drive) Queue(nsid uint32, depth int, lapse uint32) (nvmeioctl.IOQueue, error) {
	if depth < 1 || depth > maxQueueDepth {
		return nil, fmt.Errorf("%s: queue depth %d is not within 1 to %d", d.name, depth, maxQueueDepth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return nil, err
	}
	if err := d.refuseLapse(lapse); err != nil {
		return nil, err
	}
	m := d.flash()
	if m == nil {
		return nil, &nvmeioctl.UnsupportedError{Feature: "I/O queue of " + d.name, Needs: "a flash model"}
	}
	ns, status := d.ioNamespaceLocked(0, nsid)
	if err := status.Err(); err != nil {
		return nil, &nvmeioctl.OpError{Op: "open queue", Dev: d.name, NSID: nsid, Err: err}
	}
	lapse = max(lapse, 1)
	most := max(1, ns.SizeBytes/m.iuBytes/MinLapseUnits)
	if uint64(lapse) > most {
		return nil, &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("time lapse %d on namespace %d of %s", lapse, nsid, d.name),
			Needs:   fmt.Sprintf("a lapse of %d at most, which leaves %d mapping units of its %d bytes", most, MinLapseUnits, ns.SizeBytes),
		}
	}
	size := 1 << bits.Len(uint(depth-1))
	q := &queue{drive: d, media: m, nsid: nsid, depth: depth, lapse: uint64(lapse)}
	for i := range q.lanes {
		q.lanes[i].slots = make([]completion, size)
	}
	var opened nvmeioctl.IOQueue = q
	if d.kept() != nil {
		var err error
		if opened, err = d.newContentsQueue(q); err != nil {
			return nil, err
		}
	}
	if m.queues == 0 {
		m.server.Reset()
		m.buffer.Drain()
		m.busyUntil = 0
		d.stallUntil = 0
	}
	m.queues++
	return opened, nil
}

// The lanes of a queue: completions of one lane are in order of time as they
// are made, so reaping is a merge and needs no sorting.
const (
	laneRead = iota
	laneWrite
	laneOther
	laneCount
)

// completion is an outstanding request; what happens to it is decided when it
// is submitted.
type completion struct {
	done   int64
	tag    uint32
	status nvmespec.Status
}

// lane is a ring of completions.
type lane struct {
	slots      []completion // a power of two
	head, tail uint32       // free running
	last       int64        // the latest done
}

func (l *lane) push(c completion) {
	c.done = max(c.done, l.last) // only errors and flushes can be early
	l.last = c.done
	l.slots[l.tail&uint32(len(l.slots)-1)] = c
	l.tail++
}

// queue is an IOQueue of a drive.
type queue struct {
	drive       *Drive
	media       *flashMedia
	nsid        uint32
	depth       int
	lapse       uint64
	outstanding int
	closed      bool
	lanes       [laneCount]lane

	// The namespace as it was at this generation of the media.
	generation uint64
	namespace  *nsMap
	space      space
	blockBytes uint32
	touched    uint64 // keeps touch from being optimised away
}

// Depth implements nvmeioctl.IOQueue.
func (q *queue) Depth() int { return q.depth }

// DiscardsData implements nvmeioctl.DataDiscarder.
func (q *queue) DiscardsData() bool { return true }

// Submit implements nvmeioctl.IOQueue.
func (q *queue) Submit(reqs []nvmeioctl.IORequest) (int, error) {
	d := q.drive
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return 0, err
	}
	if q.closed {
		return 0, fmt.Errorf("%s: queue to namespace %d: %w", d.name, q.nsid, os.ErrClosed)
	}
	n := min(len(reqs), q.depth-q.outstanding)
	status := q.look()
	if d.dozing && n > 0 {
		at := int64(reqs[0].At)
		q.media.server.Hold(at + d.rouse(0, at-q.media.busyUntil))
	}
	for done := 0; done < n; {
		batch := reqs[done:min(done+touchAhead, n)]
		if status == 0 && len(batch) > 1 {
			q.touch(batch)
		}
		for i := range batch {
			if d.trouble {
				if err := q.submitTroubled(&batch[i], status, nil); err != nil {
					q.outstanding += done + i
					return done + i, err
				}
				continue
			}
			q.submit(&batch[i], status)
		}
		done += len(batch)
	}
	q.outstanding += n
	return n, nil
}

// touchAhead is how many requests are looked at ahead of being carried out.
const touchAhead = 32

// touch reads what the writes of a batch are about to read of the map. The map
// does not fit the processor's near caches and writes are at random; reading
// ahead, with nothing depending on the result, lets the waits overlap. Where
// most writes only count (see [nsMap]) there is nothing to wait for.
func (q *queue) touch(reqs []nvmeioctl.IORequest) {
	const share = 16 // granules of a map page: two writes of 4 KiB
	if q.space.granules > share*q.space.pages {
		return
	}
	for i := range reqs {
		offset := uint64(reqs[i].OffsetBytes)
		if reqs[i].Op == nvmeioctl.OpWrite && offset < q.space.bytes {
			page := (offset >> q.space.shift) * q.space.pages / q.space.granules
			q.touched += q.media.flash.Touch(q.namespace.lpn(uint32(page)))
		}
	}
}

// look takes in what has become of the namespace since the last batch.
func (q *queue) look() nvmespec.Status {
	ns, status := q.drive.ioNamespaceLocked(0, q.nsid)
	if status != 0 {
		return status
	}
	q.blockBytes = ns.BlockBytes
	if q.namespace == nil || q.generation != q.media.generation {
		q.generation = q.media.generation
		q.namespace = q.media.namespaces[q.nsid]
		if q.namespace == nil {
			return statusInvalidField
		}
		q.space = q.namespace.space(q.lapse)
	}
	return 0
}

// submit decides what becomes of one request; status is that of the namespace.
func (q *queue) submit(r *nvmeioctl.IORequest, status nvmespec.Status) {
	m, at := q.media, int64(r.At)
	if status == 0 {
		status = q.check(r)
	}
	if m.slc != nil {
		m.slc.Idle(m.server.IdleBefore(at), q.lapse)
	}
	c := completion{tag: r.Tag, status: status}
	l := laneOther
	switch {
	case status != 0:
		c.done = at + m.server.Answer()
	case r.Op == nvmeioctl.OpFlush:
		c.done = m.server.Flush(at) + m.flushed()
	case r.Op == nvmeioctl.OpRead:
		l = laneRead
		length := uint64(r.LengthBytes)
		sequential := m.readTails.sequential(q.nsid, uint64(r.OffsetBytes), length)
		m.countRead(length, q.lapse)
		c.done = m.server.Read(at, uint32(length), sequential)
		clear(r.Buf)
	default:
		l = laneWrite
		length := uint64(r.LengthBytes)
		through := m.through || r.FUA && m.volatile
		w := m.write(q.namespace, q.space, q.nsid, uint64(r.OffsetBytes), length, through)
		m.server.Follow(m.flash)
		if w.burst {
			c.done = m.server.Burst(at, uint32(length))
		} else {
			c.done = m.server.Write(at, uint32(length), uint32(w.units), w.sequential)
		}
		if through {
			c.done += m.drainNS
		}
	}
	q.lanes[l].push(c)
	m.busy(at, c.done, q.lapse)
}

// check is what a controller checks of an I/O command.
func (q *queue) check(r *nvmeioctl.IORequest) nvmespec.Status {
	switch r.Op {
	case nvmeioctl.OpFlush:
		return 0
	case nvmeioctl.OpRead, nvmeioctl.OpWrite:
	default:
		return statusInvalidField
	}
	block := int64(q.blockBytes) - 1 // block sizes are powers of two
	length := int64(r.LengthBytes)
	switch {
	case length <= 0 || (r.OffsetBytes|length)&block != 0:
		return statusInvalidField
	case r.OffsetBytes < 0 || uint64(r.OffsetBytes)+uint64(length) > q.space.bytes:
		return statusLBARange
	case r.Op == nvmeioctl.OpWrite && q.media.flash.WornOut():
		return statusReadOnly
	}
	return 0
}

// Reap implements nvmeioctl.IOQueue.
func (q *queue) Reap(results []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	n := 0
	for ; n < len(results) && q.outstanding > 0; n++ {
		best, done := -1, int64(until)
		for i := range q.lanes {
			l := &q.lanes[i]
			if l.head == l.tail {
				continue
			}
			if c := &l.slots[l.head&uint32(len(l.slots)-1)]; c.done < done || (c.done == done && best < 0) {
				best, done = i, c.done
			}
		}
		if best < 0 {
			break
		}
		l := &q.lanes[best]
		c := &l.slots[l.head&uint32(len(l.slots)-1)]
		l.head++
		q.outstanding--
		results[n] = nvmeioctl.IOResult{Tag: c.tag, Done: nvmeioctl.Instant(c.done), Status: c.status}
	}
	return n, nil
}

// Close implements nvmeioctl.IOQueue. What is outstanding has happened; its
// results are lost.
func (q *queue) Close() error {
	q.drive.mu.Lock()
	defer q.drive.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.media.queues--
	}
	return nil
}

var (
	_ nvmeioctl.IOQueue       = (*queue)(nil)
	_ nvmeioctl.DataDiscarder = (*queue)(nil)
)
