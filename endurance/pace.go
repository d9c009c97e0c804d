package endurance

import (
	"fmt"
	"math/bits"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

const (
	// paceBits is how many bits of a period are below the nanosecond: a year of
	// operations at a microsecond each is then off by a thirtieth of a second.
	paceBits = 20
	// holdLook is how often a worker that is held looks whether it still is.
	holdLook = 10 * time.Millisecond
	// longestPeriod of a rate, in nanoseconds: less than that is no soak.
	longestPeriod = 4 * 3600 * second1
)

// pace is the schedule of a phase with a rate: the operation at a position is due
// at so many periods after the first. It follows from the position alone, so
// neither a pass's end nor a slow second shifts it.
type pace struct {
	// period is the distance of two successive positions, of all workers, in
	// nanoseconds times 2^paceBits; 0 means that there is no rate.
	period uint64
	// closed lets the schedule slip when the drive is behind.
	closed bool
}

// newPace works out the strictest limit of a phase.
func newPace(p *run.Phase) (pace, error) {
	r := p.Rate
	if !r.Limited() {
		return pace{}, nil
	}
	reads, writes := float64(p.ReadPercent)/100, float64(100-p.ReadPercent)/100
	readBytes, writeBytes := reads*p.MeanBytes(false), writes*p.MeanBytes(true)
	period := 0.0
	limit := func(each float64, rate uint64) {
		if rate != 0 {
			period = max(period, each/float64(rate))
		}
	}
	limit(1, r.IOPS)
	limit(reads, r.ReadIOPS)
	limit(writes, r.WriteIOPS)
	limit(readBytes+writeBytes, r.BytesPerSecond)
	limit(readBytes, r.ReadBytesPerSecond)
	limit(writeBytes, r.WriteBytesPerSecond)
	if period *= second1; period > longestPeriod {
		return pace{}, fmt.Errorf("%w: a rate of less than one operation in four hours", run.ErrJob)
	}
	// Rounded up: a rate is a limit.
	return pace{period: uint64(period*(1<<paceBits)) + 1, closed: r.Arrival == run.ArrivalClosed}, nil
}

// after is when the n-th operation is due, counted from the first.
func (p *pace) after(n uint64) nvmeioctl.Instant {
	hi, lo := bits.Mul64(n, p.period)
	if hi>>(paceBits-1) != 0 {
		return nvmeioctl.Never / 2
	}
	return nvmeioctl.Instant(hi<<(64-paceBits) | lo>>paceBits)
}

// schedule is a worker's place in the pace of a phase.
type schedule struct {
	pace
	// start is when the position first was due in this session, slip how much
	// later everything is due by now.
	start nvmeioctl.Instant
	first uint64
	slip  nvmeioctl.Instant
	// wake is when something is next to be done by a worker that waits: for the
	// next operation to be due, or for a rule to let it go on.
	wake nvmeioctl.Instant
	// held says that a rule holds the worker, since heldAt and at least to heldTo.
	held           bool
	heldAt, heldTo nvmeioctl.Instant
}

// begin sets the schedule at the start of a phase or of the rest of one: first is
// the lowest position not complete.
func (s *schedule) begin(p pace, first uint64, start nvmeioctl.Instant) {
	*s = schedule{pace: p, start: start, first: first}
}

// due is when the operation at a position is to be submitted.
func (s *schedule) due(position uint64) nvmeioctl.Instant {
	if position < s.first {
		return s.start
	}
	return s.start + s.slip + s.after(position-s.first)
}

// behind lets a closed schedule slip: the slot of an operation became free only
// after it was due.
func (s *schedule) behind(due, free nvmeioctl.Instant) {
	if s.closed && free > due {
		s.slip += free - due
	}
}

// hold notes that a rule holds the worker.
func (s *schedule) hold(now nvmeioctl.Instant) {
	if !s.held {
		s.held, s.heldAt = true, now
	}
	s.heldTo = now + 1
}

// release notes that the rule lets it go on: what was due meanwhile is not caught
// up with.
func (s *schedule) release(now nvmeioctl.Instant) {
	if s.held {
		s.slip += max(now-s.heldAt, 0)
		s.held = false
	}
}

// isHeld says whether a rule keeps the worker from submitting.
func (w *worker) isHeld(until nvmeioctl.Instant) bool {
	if !w.track.hold.Load() {
		if w.pace.held {
			now := until
			if w.now == nil {
				now = w.pace.heldTo
			}
			w.pace.release(now)
			w.floor = max(w.floor, now)
		}
		return false
	}
	w.pace.hold(until)
	switch {
	case w.now == nil:
		w.wait(until+1, until)
	case w.track.unrecorded.Load():
		w.pace.wake = until.Add(holdLook) // the phase's time stands still
	default:
		w.extend()
		w.wait(until.Add(holdLook), until)
	}
	return true
}

// extend moves the phase's end by how long nothing could be recorded.
func (w *worker) extend() {
	if lost := w.track.lostNS.Load(); lost != w.lostNS {
		if w.deadline != nvmeioctl.Never {
			w.deadline += nvmeioctl.Instant(lost - w.lostNS)
		}
		w.lostNS = lost
	}
}

// wait notes that nothing is due before an instant. The end of the phase's time
// does not wait for an operation: from then on only what is outstanding is.
func (w *worker) wait(wake, now nvmeioctl.Instant) {
	if now+1 >= w.deadline {
		w.exhausted, w.tally.waited = true, true
		w.tally.lastDone = max(w.tally.lastDone, w.deadline)
		return
	}
	w.pace.wake = min(wake, w.deadline)
	if w.now == nil {
		w.pace.wake = min(wake, w.deadline-1) // before the second that the deadline begins
	}
}
