package endurance

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"syscall"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/pattern"
)

// slot is one operation in flight.
type slot struct {
	op       workload.Op
	position uint64
	// generation of the data written: 1 + the pass, or + the position where
	// there are none, above it the phase.
	generation uint64
	at         nvmeioctl.Instant
	// due is when it was to be submitted; never without a rate.
	due nvmeioctl.Instant
	// free is when the slot became free: its last completion.
	free nvmeioctl.Instant
	busy bool
	// flush says that the slot flushes, look that its operation is read again.
	flush bool
	look  *secondLook
}

// worker keeps one queue busy. It is stepped by a driver and knows neither
// threads nor whether its time is real.
type worker struct {
	id      int
	queue   nvmeioctl.IOQueue
	data    *pattern.Source // nil when the queue keeps no contents
	buffers [][]byte        // one a slot; nil without data
	mapping []byte          // what they are cut from
	// headerOnly says that the rest of a block stays as it is in the buffer.
	headerOnly bool
	track      *track
	lane       *lane

	stage *stage
	gen   *workload.Generator
	// lbaShift is the binary logarithm of the logical block's size.
	lbaShift uint8
	stride   uint64
	// next is the next position; pass and index are it, taken apart.
	next, pass, index uint64
	// retry are positions that were submitted in an earlier session and not
	// known complete.
	retry []uint64
	// high and passOpen are the latest seen of the shared limits, aheadOf that
	// of a sequential phase.
	high, passOpen, aheadOf uint64
	// writing are the blocks with a write in flight, where draws could meet; with
	// those being read too, where what is read is checked.
	writing *blockSet
	// inspect compares what is read; nil where nothing is checked. looks are the
	// slots that have to read again.
	inspect *inspector
	looks   []uint32
	// flush makes what was written trusted.
	flush flusher
	// pace says when the next operation is due.
	pace schedule

	deadline nvmeioctl.Instant
	// lostNS is how far the deadline has been moved for what could not be recorded.
	lostNS int64
	// now reads the clock where time is real; nil in virtual time.
	now func() nvmeioctl.Instant
	// floor is the earliest time of a submission: now, where time is real.
	floor nvmeioctl.Instant
	// rowEnd is when the current second is over, and roll what then happens at
	// an instant: it closes the tally and moves rowEnd beyond the instant.
	rowEnd nvmeioctl.Instant
	roll   func(now nvmeioctl.Instant)

	depth       int
	slots       []slot
	free        []uint32
	requests    []nvmeioctl.IORequest
	results     []nvmeioctl.IOResult
	latencies   [directions][]int64
	late        [directions][]int64
	outstanding int
	// reaped is how many completions the last step took, lastDone the latest.
	reaped    int
	lastDone  nvmeioctl.Instant
	exhausted bool
	tally     *tally
	fatal     error
}

// position of a worker after a step.
type standing uint8

const (
	// working: something is outstanding or has just completed.
	working standing = iota
	// blocked: nothing is outstanding, and others have to go on first.
	blocked
	// idle: nothing is outstanding, and nothing is due before pace.wake.
	idle
	// finished: nothing is outstanding nor will be.
	finished
)

// newWorker prepares a worker for phases of up to depth operations in flight.
// batch is how many completions are taken at once.
func newWorker(id, depth, batch int, queue nvmeioctl.IOQueue, t *track) *worker {
	w := &worker{
		id: id, queue: queue, track: t, lane: &t.lanes[id], stride: uint64(len(t.lanes)),
		slots: make([]slot, depth), free: make([]uint32, 0, depth),
		requests: make([]nvmeioctl.IORequest, 0, depth),
		results:  make([]nvmeioctl.IOResult, min(depth, batch)),
	}
	for d := range w.latencies {
		w.latencies[d] = make([]int64, 0, len(w.results))
		w.late[d] = make([]int64, 0, len(w.results))
	}
	return w
}

// deepEnough says that a queue cannot hold what the job wants in flight.
func deepEnough(id int, q nvmeioctl.IOQueue, depth int) error {
	if have := q.Depth(); have < depth {
		return fmt.Errorf("queue %d holds %d requests, the job wants %d in flight", id, have, depth)
	}
	return nil
}

// begin starts a phase at an instant, from a mark: Next is the worker's own
// index in a phase that has not begun. low is the lowest position that any
// worker had not completed.
func (w *worker) begin(s *stage, lbaBytes uint32, mark run.WorkerMark, low uint64, start, deadline nvmeioctl.Instant) error {
	gen, err := workload.New(s.config)
	if err != nil {
		return err
	}
	if w.inspect, err = w.newInspector(s, lbaBytes); err != nil {
		return err
	}
	w.stage, w.gen, w.lbaShift = s, gen, uint8(bits.TrailingZeros32(lbaBytes))
	w.deadline, w.lostNS = deadline, w.track.lostNS.Load()
	w.next, w.pass, w.index = mark.Next, 0, mark.Next
	if s.blocks != 0 {
		w.pass, w.index = mark.Next/s.blocks, mark.Next%s.blocks
		w.passOpen = low / s.blocks
	} else {
		w.passOpen = math.MaxUint64
	}
	w.retry = append(w.retry[:0], mark.Incomplete...)
	w.high, w.aheadOf = w.track.high.Load(), 0
	w.lane.next.Store(w.lowest())
	w.lane.pass.Store(w.passOpen)
	w.writing = nil
	if s.Pattern == run.PatternReplacement && s.ReadPercent < 100 {
		cells := 1
		if len(s.Sizes) != 0 || len(s.WriteSizes) != 0 {
			cells = workload.CellsMost
		}
		// As small as can be: it has to stay in the first level of the cache.
		w.writing = newBlockSet(int(s.Depth) * cells)
	}
	w.looks, w.flush = w.looks[:0], flusher{every: w.flush.every, due: start.Add(w.flush.every)}
	w.pace.begin(s.pace, low, start)
	w.floor = max(w.floor, start)
	w.depth = int(s.Depth)
	w.free = w.free[:0]
	for i := range w.depth {
		w.slots[i] = slot{free: start}
		w.free = append(w.free, uint32(i))
	}
	w.outstanding, w.exhausted, w.fatal = 0, false, nil
	return nil
}

// lowest is the lowest position not complete, when nothing is in flight.
func (w *worker) lowest() uint64 {
	low := w.next
	for _, p := range w.retry {
		low = min(low, p)
	}
	return low
}

// step fills the queue, submits, takes what has completed until an instant and
// accounts for it. It is all of the I/O path, and allocates nothing.
func (w *worker) step(until nvmeioctl.Instant) standing {
	w.pace.wake = nvmeioctl.Never
	w.fill(until)
	if len(w.requests) != 0 {
		if w.now != nil {
			w.stamp()
		}
		w.submit()
	}
	if w.outstanding == 0 {
		if w.exhausted || w.fatal != nil {
			w.lane.next.Store(math.MaxUint64)
			w.lane.pass.Store(math.MaxUint64)
			return finished
		}
		if w.pace.wake != nvmeioctl.Never {
			return idle
		}
		return blocked
	}
	n, err := w.queue.Reap(w.results, min(until, w.pace.wake))
	done := w.results[:min(max(n, 0), len(w.results))]
	if w.reaped = len(done); w.reaped != 0 {
		w.lastDone = done[len(done)-1].Done
	}
	for len(done) != 0 {
		in := len(done)
		if done[in-1].Done >= w.rowEnd {
			// Some belong to the next second: they arrive oldest first.
			in = sort.Search(in, func(i int) bool { return done[i].Done >= w.rowEnd })
		}
		w.account(done[:in])
		if done = done[in:]; len(done) != 0 {
			w.roll(done[0].Done)
		}
	}
	if err != nil {
		w.fail(fmt.Errorf("worker %d: reap: %w", w.id, err))
		// Nothing says that what is outstanding will ever come back, nor that the
		// kernel is done with the buffers: they stay mapped.
		w.outstanding, w.mapping = 0, nil
	}
	return working
}

func (w *worker) fail(err error) {
	if w.fatal == nil {
		w.fatal = err
	}
}

// account counts completions of the current second.
func (w *worker) account(results []nvmeioctl.IOResult) {
	t := w.tally
	for i := range results {
		r := &results[i]
		if uint(r.Tag) >= uint(len(w.slots)) || !w.slots[r.Tag].busy {
			w.fail(fmt.Errorf("worker %d: the queue completed request %d, which is not outstanding", w.id, r.Tag))
			continue
		}
		s := &w.slots[r.Tag]
		if s.flush {
			w.flushed(t, s, r)
			continue
		}
		d := dirRead
		if s.op.Write {
			d = dirWrite
		}
		if r.Status == 0 && r.Err == nil {
			w.latencies[d] = append(w.latencies[d], int64(r.Done.Sub(s.at)))
			if s.due != nvmeioctl.Never {
				w.late[d] = append(w.late[d], int64(r.Done.Sub(s.due)))
			}
			t.bytes[d] += uint64(s.op.LengthBytes)
		} else {
			w.failed(t, s.op, d, r)
		}
		w.outstanding--
		t.lastDone = max(t.lastDone, r.Done)
		s.free = r.Done
		if d == dirWrite {
			w.flush.dirty = true
			if w.track.generations != nil && w.stage.blocks == 0 {
				w.noteGeneration(s, r.Status == 0 && r.Err == nil)
			}
		} else if w.inspect != nil && w.looksAgain(t, s, r) {
			w.looks = append(w.looks, r.Tag)
			continue
		}
		w.done(s, r.Tag)
	}
	for d := range w.latencies {
		if n := len(w.latencies[d]); n != 0 {
			t.ops[d] += uint64(n)
			t.hist[d].RecordBatch(w.latencies[d])
			w.latencies[d] = w.latencies[d][:0]
		}
		if len(w.late[d]) != 0 {
			if t.late[d] == nil {
				t.late[d] = stats.NewHistogram() // once a tally
			}
			t.late[d].RecordBatch(w.late[d])
			w.late[d] = w.late[d][:0]
		}
	}
}

// failed counts an operation that did not succeed apart from those that did. A
// drive that is gone ends the worker; its operation stays to be done.
func (w *worker) failed(t *tally, op workload.Op, d int, r *nvmeioctl.IOResult) {
	t.errors[d]++
	if len(t.failures) < cap(t.failures) {
		t.failures = append(t.failures, ioFailure{op: op, status: uint16(r.Status), err: r.Err})
	}
	if isGone(r.Err) {
		w.retry = append(w.retry, w.slots[r.Tag].position)
		w.fail(fmt.Errorf("worker %d: %w", w.id, r.Err))
	} else if d == dirWrite {
		p := w.slots[r.Tag].position
		w.track.doubts.add(run.Doubt{Phase: uint32(w.stage.index), First: p, Past: p + 1, Failed: true})
	}
}

// done gives a slot back whose operation is over.
func (w *worker) done(s *slot, tag uint32) {
	if w.writing != nil && (s.op.Write || w.inspect != nil) {
		w.writing.release(&s.op)
	}
	s.busy = false
	w.free = append(w.free, tag)
}

// takeBack keeps what a request was for that the queue did not take.
func (w *worker) takeBack(s *slot, tag uint32) {
	switch {
	case s.flush:
		s.flush, w.flush.busy = false, false
		s.busy = false
		w.free = append(w.free, tag)
	case s.look != nil:
		w.looks = append(w.looks, tag)
	default:
		w.done(s, tag)
		w.retry = append(w.retry, s.position)
	}
}

// isGone says whether an error means that the drive is no longer there.
func isGone(err error) bool {
	return errors.Is(err, nvmeioctl.ErrDeviceGone) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}
