package endurance

import (
	"errors"
	"fmt"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// hang is what a worker has in flight that does not come back.
type hang struct {
	worker int
	// op is the oldest operation of those that became as old as hangAfter since
	// the last look, count how many they are; 0 means that all have come back.
	op    string
	count int
	since nvmeioctl.Instant
	now   nvmeioctl.Instant
}

const (
	// hangAfter is how old an operation in flight is when it is reported.
	hangAfter = time.Second
	// hangLook is how often a worker looks at what it has in flight.
	hangLook = 200 * time.Millisecond
)

// watchdog is a worker's look at what it has in flight. It lives on the worker's
// thread.
type watchdog struct {
	next nvmeioctl.Instant // when to look
	last nvmeioctl.Instant // when it was last looked
	hung nvmeioctl.Instant // since when something hangs; 0 when nothing does
}

// look finds the operations that have just become too old.
func (d *watchdog) look(w *worker, now nvmeioctl.Instant) (h hang, said bool) {
	from, to := d.last.Add(-hangAfter), now.Add(-hangAfter)
	if d.last == 0 {
		from = -1
	}
	d.last, d.next = now, now.Add(hangLook)
	h = hang{worker: w.id, now: now, since: nvmeioctl.Never}
	oldest, old := -1, false
	for i := range w.slots[:w.depth] {
		s := &w.slots[i]
		if !s.busy || s.at > to {
			continue
		}
		old = true
		if s.at <= from {
			continue // reported before
		}
		h.count++
		if s.at < h.since {
			oldest, h.since = i, s.at
		}
	}
	switch {
	case oldest >= 0:
		h.op = w.describe(&w.slots[oldest])
		if d.hung == 0 {
			d.hung = h.since
		}
		return h, true
	case !old && d.hung != 0:
		h.since, d.hung = d.hung, 0
		return h, true
	}
	return h, false
}

// describe names an operation as the user knows it.
func (w *worker) describe(s *slot) string {
	if s.flush {
		return "a flush"
	}
	kind := "read"
	if s.op.Write {
		kind = "write"
	}
	return fmt.Sprintf("the %s of %d blocks at LBA %d", kind, uint64(s.op.LengthBytes)>>w.lbaShift, uint64(s.op.OffsetBytes)>>w.lbaShift)
}

// hanging notes what a worker has in flight that does not come back.
func (m *machine) hanging(h hang) {
	second := m.secondOf(h.now)
	if h.count == 0 {
		m.ledger.event(second, run.EventBack, fmt.Sprintf("worker %d: all operations have come back, the longest after %.1f s", h.worker, h.now.Sub(h.since).Seconds()))
		return
	}
	text := fmt.Sprintf("no completion for %.1f s: %s", h.now.Sub(h.since).Seconds(), h.op)
	if h.count > 1 {
		text += fmt.Sprintf(" and %d more", h.count-1)
	}
	m.ledger.event(second, run.EventHung, fmt.Sprintf("%s (worker %d)", text, h.worker))
}

// failingMost is how many seconds in a row may have nothing but errors.
const failingMost = 10

// fruitless counts the seconds in a row in which nothing but errors came back.
type fruitless struct {
	before  run.Totals
	seconds int
}

// add takes in the totals after another second and says whether it is enough.
func (f *fruitless) add(t run.Totals) bool {
	done, failed := t.Ops()-f.before.Ops(), t.ReadErrors+t.WriteErrors-f.before.ReadErrors-f.before.WriteErrors
	f.before = t
	switch {
	case done != 0:
		f.seconds = 0
	case failed != 0:
		f.seconds++
	}
	return f.seconds >= failingMost
}

// failing ends a run in which every operation has failed for a while: the drive
// has gone read-only, or answers nothing but errors.
func (m *machine) failing() {
	if m.fruitless.add(m.ledger.cp.Totals) && m.state == run.StateRunning {
		m.interrupt(fmt.Sprintf("every operation has failed for %d s", failingMost), errors.New("every operation fails: is the drive read-only? the events say what it answered"))
	}
}
