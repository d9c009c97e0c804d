package endurance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// retryEvery is how long lies between two tries of a commit that failed for a
// reason that may pass.
const retryEvery = time.Second

// scribe commits batches in a goroutine of its own, one at a time. What fails
// for a reason that may pass, such as a full file system, is tried again until
// it goes well, the user ends the run, or giveUp says that nothing is to be
// waited for.
type scribe struct {
	in   chan *run.Batch
	out  chan error
	busy bool
	// trouble says why the commit under way is being tried again.
	trouble chan error
	given   chan struct{}
	once    sync.Once
}

// newScribe starts the goroutine. Its commits are not cut short by ctx: what
// ends a run still has to be recorded. ctx ends the trying again.
func newScribe(ctx context.Context, r Recorder) *scribe {
	s := &scribe{in: make(chan *run.Batch), out: make(chan error, 1), trouble: make(chan error, 1), given: make(chan struct{})}
	go func() {
		defer close(s.out)
		for b := range s.in {
			s.out <- s.persist(ctx, r, b)
		}
	}()
	return s
}

// persist commits a batch. A repetition is safe: a batch is recorded whole, once,
// or not at all.
func (s *scribe) persist(ctx context.Context, r Recorder, b *run.Batch) error {
	for {
		err := r.Commit(context.WithoutCancel(ctx), b)
		if err == nil || !mayPass(err) {
			return err
		}
		select {
		case s.trouble <- err:
		default: // the one before has not been looked at
		}
		select {
		case <-time.After(retryEvery):
		case <-s.given:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// mayPass says whether a recorder's error is one that may pass.
func mayPass(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Transient() bool
	}](err)
	return ok && t.Transient()
}

// giveUp ends the trying again, now and later: what fails then has failed.
func (s *scribe) giveUp() { s.once.Do(func() { close(s.given) }) }

// stop ends the goroutine and waits for it. Nothing is under way.
func (s *scribe) stop() {
	close(s.in)
	for range s.out {
	}
}

// settle waits for the commit under way, however often it is tried again, and lets
// the workers go as far as it reserved.
func (l *ledger) settle() error {
	for l.scribe.busy {
		select {
		case err := <-l.scribe.out:
			l.settled(err)
		case err := <-l.scribe.trouble:
			l.troubled(err)
		}
	}
	return l.failure
}

// settled takes the outcome of the commit under way.
func (l *ledger) settled(err error) {
	l.scribe.busy = false
	if err != nil {
		if l.failure == nil {
			l.failure = fmt.Errorf("record checkpoint %d: %w", l.cp.Number, err)
		}
		return
	}
	l.track.high.Store(l.pending)
	if !l.waiting {
		return
	}
	l.waiting, l.trouble = false, ""
	if l.onRecovered != nil {
		l.onRecovered()
	}
}

// troubled notes that the commit under way failed and is tried again.
func (l *ledger) troubled(err error) {
	if l.waiting {
		return
	}
	l.waiting, l.trouble = true, err.Error()
	if l.onTrouble != nil {
		l.onTrouble(err)
	}
}

// outage is a stretch of time in which nothing could be recorded; to is Never
// while it lasts.
type outage struct{ from, to nvmeioctl.Instant }

// within is how much of a stretch lies in the outage.
func (o outage) within(from, to nvmeioctl.Instant) int64 {
	return max(int64(min(to, o.to)-max(from, o.from)), 0)
}

// troubled holds the workers while a commit fails: nothing may be written to the
// drive that cannot be recorded. Rows go on, and are recorded when it goes well;
// the time is none at work, and does not count towards the end of a phase.
func (m *machine) troubled(err error) {
	l := m.ledger
	now := m.clock.Now()
	m.outages = append(m.outages, outage{from: now, to: nvmeioctl.Never})
	m.track.unrecorded.Store(true)
	m.track.hold.Store(true)
	l.cp.Outages++
	l.event(m.secondOf(now), run.EventPaused, fmt.Sprintf("nothing can be recorded, so nothing is done: %v; tried again every second", err))
	m.report(true)
}

// recovered lets the workers go on after a commit went well again.
func (m *machine) recovered() {
	l := m.ledger
	now := m.clock.Now()
	o := &m.outages[len(m.outages)-1]
	o.to = now
	l.cp.OutageNS += int64(now - o.from)
	// In this order: who sees that it may go on knows how long it was held.
	m.track.lostNS.Add(int64(now - o.from))
	m.track.hold.Store(l.rules.held)
	m.track.unrecorded.Store(false)
	l.event(m.secondOf(now), run.EventContinued, fmt.Sprintf("it can be recorded again, after %.1f s", now.Sub(o.from).Seconds()))
	m.report(true)
}

// outageWithin is how much of a stretch lies in outages. Those that ended before
// the rows that are still to be made are forgotten.
func (m *machine) outageWithin(from, to nvmeioctl.Instant) int64 {
	oldest := m.startOf(m.ledger.cp.NextSecond)
	m.outages = slices.DeleteFunc(m.outages, func(o outage) bool { return o.to <= oldest })
	n := int64(0)
	for _, o := range m.outages {
		n += o.within(from, to)
	}
	return n
}

// tellTrouble lets a simulated run say that nothing can be recorded, and that it
// can be again. It is no event: one seed gives one history, and in the drive's
// time nothing passes meanwhile.
func (m *simulation) tellTrouble() {
	m.ledger.onTrouble = func(error) { m.report(true) }
	m.ledger.onRecovered = func() { m.report(true) }
}
