package endurance

import (
	"math"
	"sync/atomic"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/pattern"
)

// errorsKept is how many failed operations of a second a worker lists; the rest
// are counted.
const errorsKept = 16

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
	// hold keeps the workers from submitting until it is taken back. With
	// unrecorded it does so because nothing can be recorded, and lostNS is how long
	// that has lasted in all: a phase's time stands still meanwhile.
	hold, unrecorded atomic.Bool
	lostNS           atomic.Int64
	lanes            []lane
	// source is the data of the run, history what was written before the phase,
	// which changes between phases only.
	source  *pattern.Source
	history *history
	// runs are the names of the runs that are known by the number in their blocks.
	runs map[uint64]string
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
