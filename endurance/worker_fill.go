package endurance

import (
	"fmt"
	"math"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
)

// sequentialAhead is how many operations a worker of a sequential phase may be
// ahead of the slowest one, beyond its depth: so little that all of them together
// are one stream.
const sequentialAhead = 64

// fill makes requests for the free slots, in the order they became free, as far
// as they are due. until is the step's end: in virtual time what is due by then
// can be submitted, in real time what is due now.
func (w *worker) fill(until nvmeioctl.Instant) {
	w.requests = w.requests[:0]
	w.lookAgain()
	w.flushDue(false)
	w.fillSlots(until)
	w.flushDue(true)
}

// fillSlots gives the free slots operations.
func (w *worker) fillSlots(until nvmeioctl.Instant) {
	used := 0
	if w.fatal != nil || w.track.stop.Load() {
		w.exhausted = true
		return
	}
	if w.now != nil {
		until = w.floor
	}
	if w.isHeld(until) {
		return
	}
	w.extend()
	for _, tag := range w.free {
		s := &w.slots[tag]
		at := max(s.free, w.floor)
		if at >= w.deadline {
			w.exhausted = true
			break
		}
		s.due = nvmeioctl.Never
		if w.pace.period != 0 && len(w.retry) == 0 {
			due := w.pace.due(w.next)
			if due > until {
				w.wait(due, until)
				break
			}
			if at, s.due = max(at, due), due; at >= w.deadline {
				w.exhausted = true
				break
			}
		}
		if !w.claim(s) {
			break
		}
		used++
		w.pace.behind(s.due, s.free)
		s.at, s.busy = at, true
		r := nvmeioctl.IORequest{
			Op: nvmeioctl.OpRead, Tag: tag, OffsetBytes: s.op.OffsetBytes, LengthBytes: s.op.LengthBytes, At: at,
		}
		if s.op.Write {
			r.Op = nvmeioctl.OpWrite
		}
		if w.data != nil {
			r.Buf = w.buffers[tag][:s.op.LengthBytes]
			if s.op.Write {
				w.contents(r.Buf, s)
			}
		}
		w.requests = append(w.requests, r)
	}
	if used != 0 {
		w.free = w.free[:copy(w.free, w.free[used:])]
		w.lane.next.Store(w.next)
	}
}

// contents makes what a write transfers.
func (w *worker) contents(b []byte, s *slot) {
	lba := uint64(s.op.OffsetBytes) >> w.lbaShift
	if w.headerOnly {
		w.data.Stamp(b, lba, s.generation)
		return
	}
	w.data.Fill(b, lba, s.generation)
}

// claim gives a slot the worker's next operation. It is false when there is
// none (exhausted) or when the others, or the journal, have to go on first.
func (w *worker) claim(s *slot) bool {
	if n := len(w.retry); n != 0 {
		s.position = w.retry[n-1]
		w.retry = w.retry[:n-1]
		if w.stage.blocks == 0 {
			s.op = w.drawn(s.position)
			s.generation = w.stage.generation(0, s.position)
			return true
		}
		pass := s.position / w.stage.blocks
		w.ordered(s, pass, s.position%w.stage.blocks)
		return true
	}
	if w.next >= w.stage.limit {
		w.exhausted = true
		return false
	}
	if !w.allowed() {
		return false
	}
	s.position = w.next
	if w.stage.blocks == 0 {
		s.op = w.drawn(w.next)
		s.generation = w.stage.generation(0, w.next)
	} else {
		w.ordered(s, w.pass, w.index)
	}
	w.next += w.stride
	w.index += w.stride
	for w.stage.blocks != 0 && w.index >= w.stage.blocks {
		w.index -= w.stage.blocks
		w.pass++
	}
	return true
}

// ordered gives a slot the operation at an index of a pass.
func (w *worker) ordered(s *slot, pass, index uint64) {
	s.op = w.gen.At(pass, index)
	s.generation = w.stage.generation(pass, 0)
	if w.stage.readsBack(pass) {
		s.op.Write = false
	}
}

// allowed says whether the next position may be submitted now: it is below the
// committed mark, the pass before is complete everywhere (or a block could be
// in flight twice), and a sequential stream stays one stream.
func (w *worker) allowed() bool {
	if w.pass > w.passOpen {
		if w.outstanding != 0 || len(w.requests) != 0 {
			return false
		}
		w.lane.pass.Store(w.pass)
		w.passOpen = w.track.slowest(func(l *lane) uint64 { return l.pass.Load() })
		if w.pass > w.passOpen {
			return false
		}
	}
	// After the pass's end, which every worker has to have said it reached
	// before any can go on and move the mark.
	if w.next >= w.high {
		if w.high = w.track.high.Load(); w.next >= w.high {
			return false
		}
	}
	if w.stage.Pattern == run.PatternSequential && w.next > w.aheadOf {
		slow := w.track.slowest(func(l *lane) uint64 { return l.next.Load() })
		w.aheadOf = slow + w.stride*uint64(w.depth+sequentialAhead)
		if slow == math.MaxUint64 || w.aheadOf < slow {
			w.aheadOf = math.MaxUint64
		}
		if w.next > w.aheadOf {
			return false
		}
	}
	return true
}

// drawn is the operation at a position of a phase with replacement: the first
// draw whose block has no write in flight.
func (w *worker) drawn(position uint64) workload.Op {
	op := w.gen.Redraw(position, 0)
	if w.writing == nil {
		return op
	}
	for attempt := uint32(1); w.writing.meets(&op); attempt++ {
		op = w.gen.Redraw(position, attempt)
	}
	if op.Write || w.inspect != nil {
		w.writing.claim(&op)
	}
	return op
}

// stamp gives the requests the time at which they are about to be submitted:
// making their contents is no latency of the drive's.
func (w *worker) stamp() {
	now := w.now()
	for i := range w.requests {
		r := &w.requests[i]
		r.At, w.slots[r.Tag].at = now, now
	}
}

// submit hands the requests over. Those that the queue does not take go back
// among the positions to be done.
func (w *worker) submit() {
	n, err := w.queue.Submit(w.requests)
	n = min(max(n, 0), len(w.requests))
	w.outstanding += n
	if n == len(w.requests) && err == nil {
		return
	}
	for _, r := range w.requests[n:] {
		s := &w.slots[r.Tag]
		w.takeBack(s, r.Tag)
	}
	if err == nil {
		err = fmt.Errorf("the queue took %d of %d requests and %d are outstanding of %d", n, len(w.requests), w.outstanding, w.queue.Depth())
	}
	w.fail(fmt.Errorf("worker %d: submit: %w", w.id, err))
}
