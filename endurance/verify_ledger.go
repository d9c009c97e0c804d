package endurance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"nvop/endurance/run"
)

const (
	// doubtsMost is how many doubts are kept apart; beyond it those that lie
	// closest together become one, which makes more blocks unknown than need be.
	doubtsMost = 1024
	// mismatchesKept is how many mismatches of each kind a run records one by
	// one; all are counted.
	mismatchesKept = 1024
)

// doubtList is the doubts of a run. Reading it costs one load; it changes only
// when a write fails.
type doubtList struct {
	mu   sync.Mutex
	list atomic.Pointer[[]run.Doubt]
}

// all is the doubts so far, not to be changed.
func (d *doubtList) all() []run.Doubt {
	if p := d.list.Load(); p != nil {
		return *p
	}
	return nil
}

// add notes a doubt.
func (d *doubtList) add(doubt run.Doubt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doubt.First >= doubt.Past {
		return
	}
	list := mergeDoubts(append(slices.Clone(d.all()), doubt))
	d.list.Store(&list)
}

// mergeDoubts sorts doubts, makes one of those that touch, and keeps their
// number bounded.
func mergeDoubts(list []run.Doubt) []run.Doubt {
	slices.SortFunc(list, func(a, b run.Doubt) int {
		switch {
		case a.Phase != b.Phase:
			return int(a.Phase) - int(b.Phase)
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
	list = joinDoubts(list, 0)
	for gap := uint64(1); len(list) > doubtsMost; gap *= 4 {
		list = joinDoubts(list, gap)
	}
	return list
}

// joinDoubts makes one of neighbours with at most gap positions between them.
// A gap near the largest number joins all of a phase.
func joinDoubts(list []run.Doubt, gap uint64) []run.Doubt {
	out := list[:0]
	for _, d := range list {
		if n := len(out); n != 0 && out[n-1].Phase == d.Phase && (d.First <= out[n-1].Past || d.First-out[n-1].Past <= gap) &&
			(gap != 0 || out[n-1].Failed == d.Failed) {
			out[n-1].Past = max(out[n-1].Past, d.Past)
			out[n-1].Failed = out[n-1].Failed && d.Failed
			continue
		}
		out = append(out, d)
	}
	return out
}

// prepareChecks works out, at the beginning of a phase, what lies on the drive.
func (l *ledger) prepareChecks() {
	var err error
	l.cp.Doubts, l.track.crashHigh = l.track.doubts.all(), l.crashHigh
	l.track.resumed = l.track.resumed[:0]
	for i := range l.marks {
		l.track.resumed = append(l.track.resumed, l.marks[i].Next)
	}
	if of := l.cfg.Of; of != nil {
		l.track.history, err = newHistory(&of.Job, &of.Checkpoint, true)
	} else {
		l.track.history, err = newHistory(l.job, &l.cp, false)
	}
	if err != nil && l.failure == nil {
		l.failure = fmt.Errorf("work out what was written: %w", err)
	}
}

// doubt notes, on resume after a crash, which writes may not be on the drive and
// will not be made again: with only flushed ones trusted, those that completed
// since the last flush; where the order draws anew, those under way, since
// another block may be drawn now.
func (l *ledger) doubt() {
	list := slices.Clone(l.cp.Doubts)
	if l.cfg.Resume != nil && l.cp.State == run.StateRunning && int(l.cp.Phase) < len(l.job.Phases) {
		d := run.Doubt{Phase: l.cp.Phase, First: l.cp.LowWater, Past: l.cp.ReservedHigh}
		p := &l.job.Phases[l.cp.Phase]
		if l.job.Verify.Trust == run.TrustFlushed {
			d.First = min(d.First, flushedBelow(&l.cp))
		}
		if p.ReadPercent < 100 && d.First < d.Past && (l.job.Verify.Trust == run.TrustFlushed || p.Pattern == run.PatternReplacement) {
			list = append(list, d)
		}
	}
	list = mergeDoubts(list)
	l.track.doubts.list.Store(&list)
}

// flushedTo takes in how far a worker's writes are flushed.
func (l *ledger) flushedTo(worker int, position uint64) {
	if position == 0 || l.job.Verify.FlushIntervalNS == 0 {
		return
	}
	if len(l.cp.Flushed) != len(l.marks) {
		l.cp.Flushed = make([]uint64, len(l.marks))
	}
	l.cp.Flushed[worker] = max(l.cp.Flushed[worker], position)
}

// verified takes in what a worker compared in a second.
func (l *ledger) verified(second int64, y *tally) {
	l.flushedTo(y.worker, y.flushed)
	if y.verified == (run.Verified{}) {
		return
	}
	for i := range y.mismatches {
		m := &y.mismatches[i]
		m.Second, m.WallUnixNS = second, l.wall(second)
		if l.listed[m.Kind] >= mismatchesKept {
			continue
		}
		if l.listed == nil {
			l.listed = map[run.MismatchKind]int{}
		}
		if l.listed[m.Kind]++; l.listed[m.Kind] == 1 {
			l.event(second, run.EventMismatch, fmt.Sprintf("%s: %s", m.Kind, m.Text))
		}
		y.verified.Kept++
		l.batch.Mismatches = append(l.batch.Mismatches, *m)
	}
	l.cp.Verified.Add(&y.verified)
	l.cp.PhaseVerified.Add(&y.verified)
}

// verifyNotes says what came of the checks, and what could not be told.
func (l *ledger) verifyNotes(v *run.Verdict, bad func(format string, args ...any)) {
	for _, kind := range run.MismatchKinds() {
		if n := *v.Verified.Of(kind); n != 0 {
			bad("%d logical blocks are %s", n, kind)
		}
	}
	note := func(format string, args ...any) { v.Notes = append(v.Notes, fmt.Sprintf(format, args...)) }
	whole := slices.ContainsFunc(v.Phases, func(p run.PhaseResult) bool { return p.Kind == run.PhaseVerify })
	decided := v.Verified.Decided()
	if l.mapped() {
		// The map was to tell: that nothing but the place is wrong is not enough.
		decided = v.Verified.Right+v.Verified.Mismatches() != 0
	}
	switch found := v.Verified.Blocks - min(v.Verified.Blocks, v.Verified.Unwritten); {
	case decided || !l.job.Checks() && !whole:
	case whole && found == 0:
		bad("nothing could be verified: nothing of what was read is known to have been written by the run, nor looks like it")
	case whole || found != 0:
		bad("nothing could be verified: of %d logical blocks that were read, none is known to hold what was written there last", v.Verified.Blocks)
	default:
		note("nothing was verified: nothing that was read had been written by the run before")
	}
	if n := v.Verified.Unknown; n != 0 {
		note("%d logical blocks may hold the old or the new content: their last write failed, or was under way in a crash", n)
	}
	if n := v.Verified.Undecided; n != 0 {
		note("of %d logical blocks it cannot be told whether they are the last that was written, since %s; misdirected, torn, rotten and unreadable ones are told all the same", n, l.whyUndecided())
	}
	if m := l.track.generations; m != nil && m.lost != "" && l.job.Checks() {
		note("%s", m.lost)
	}
}

// mapped says whether what is verified was written with a generation map.
func (l *ledger) mapped() bool {
	if of := l.cfg.Of; of != nil {
		return of.Job.GenerationGranuleBytes() != 0
	}
	return l.job.GenerationGranuleBytes() != 0
}

// whyUndecided says what keeps blocks from being told right or lost.
func (l *ledger) whyUndecided() string {
	m := l.track.generations
	switch {
	case m == nil || !l.mapped():
		return "the order draws blocks anew"
	case m.lost != "":
		return "the order draws blocks anew and the generation map is of no use"
	case m.forgot != 0:
		return fmt.Sprintf("they may have been written by up to %d operations before a crash that came after the generation map was last saved", m.forgot)
	}
	return "their last write failed or was under way in a crash"
}
