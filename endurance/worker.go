package endurance

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"sync/atomic"
	"syscall"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/pattern"
)

const (
	// errorsKept is how many failed operations of a second a worker lists; the
	// rest are counted.
	errorsKept = 16
	// sequentialAhead is how many operations a worker of a sequential phase may
	// be ahead of the slowest one, beyond its depth: so little that all of them
	// together are one stream.
	sequentialAhead = 64
)

const (
	dirRead = iota
	dirWrite
	directions
)

// ioFailure is one operation that did not succeed.
type ioFailure struct {
	op     workload.Op
	status uint16
	err    error
	flush  bool
}

// tally is what one worker did in one second, and where it then stood. A worker
// has a few of them, which travel to the ledger and back.
type tally struct {
	// worker is whose tally this is; second is the run's second it belongs to,
	// and through the last second it knows to be over.
	worker          int
	second, through int64
	ops, bytes      [directions]uint64
	errors          [directions]uint64
	hist            [directions]*stats.Histogram
	// late are latencies from when an operation was due, under a rate; nil until
	// there are some.
	late     [directions]*stats.Histogram
	failures []ioFailure
	mark     run.WorkerMark
	inFlight uint32
	lastDone nvmeioctl.Instant
	drained  bool
	// waited says that the phase's time ran out while nothing was due.
	waited bool
	// verified counts what was compared, mismatches are those listed.
	verified   run.Verified
	mismatches []run.Mismatch
	// flushed is the position below which everything had completed when a flush
	// began that has completed.
	flushed uint64
	// merged says that it holds more than its second, since no other was free.
	merged bool
	// finished is the last tally of a phase; fatal says why it came early.
	finished bool
	fatal    error
}

func newTally(worker, depth int) *tally {
	t := &tally{worker: worker, failures: make([]ioFailure, 0, errorsKept)}
	t.mark.Incomplete = make([]uint64, 0, 2*depth)
	for d := range t.hist {
		t.hist[d] = stats.NewHistogram()
	}
	return t
}

func (t *tally) reset() {
	t.ops, t.bytes, t.errors = [directions]uint64{}, [directions]uint64{}, [directions]uint64{}
	for d, h := range t.hist {
		h.Reset()
		if t.late[d] != nil {
			t.late[d].Reset()
		}
	}
	t.failures = t.failures[:0]
	t.verified, t.mismatches, t.flushed = run.Verified{}, t.mismatches[:0], 0
	t.mark.Incomplete = t.mark.Incomplete[:0]
	t.drained, t.waited, t.merged, t.finished, t.fatal = false, false, false, false, nil
}

// empty says whether nothing completed.
func (t *tally) empty() bool {
	return t.ops == [directions]uint64{} && t.errors == [directions]uint64{}
}

// lane is what one worker lets the others see, on a cache line of its own. It
// is touched a few times a batch, never per operation.
type lane struct {
	// next is the worker's next position.
	next atomic.Uint64
	// pass says that the worker has completed all of its passes below it.
	pass atomic.Uint64
	_    [48]byte
}

// track is what the workers of a phase share.
type track struct {
	// high is the committed reserved high-water mark: nothing at or above it
	// may be submitted.
	high atomic.Uint64
	// stop ends submission; what is outstanding is still waited for.
	stop atomic.Bool
	// hold keeps the workers from submitting until it is taken back.
	hold  atomic.Bool
	lanes []lane
	// source is the data of the run, history what was written before the phase,
	// which changes between phases only.
	source  *pattern.Source
	history *history
	// crashHigh is how far a session that crashed in this phase may have gone.
	// resumed is, by worker, where this session went on in the phase: everything
	// from there on it did itself.
	crashHigh uint64
	resumed   []uint64
	// generations is nil unless the job keeps a generation map.
	generations *generationMap
	doubts      doubtList
}

// slowest is the smallest value of one field of all lanes.
func (t *track) slowest(field func(*lane) uint64) uint64 {
	low := uint64(math.MaxUint64)
	for i := range t.lanes {
		low = min(low, field(&t.lanes[i]))
	}
	return low
}

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
	w.stage, w.gen, w.lbaShift, w.deadline = s, gen, uint8(bits.TrailingZeros32(lbaBytes)), deadline
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

// close ends the tally: it says where the worker stands, and next takes its
// place for the second that is beginning.
func (w *worker) close(next *tally, through, nextSecond int64) *tally {
	t := w.tally
	t.through = through
	t.inFlight = uint32(w.outstanding)
	t.mark.Next = w.next
	t.mark.Incomplete = append(t.mark.Incomplete[:0], w.retry...)
	for i := range w.slots[:w.depth] {
		if w.slots[i].busy && !w.slots[i].flush {
			t.mark.Incomplete = append(t.mark.Incomplete, w.slots[i].position)
		}
	}
	t.flushed = w.flush.below
	t.fatal = w.fatal
	t.drained = w.exhausted
	if next != nil {
		next.second = nextSecond
		next.lastDone = t.lastDone
	}
	w.tally = next
	return t
}
