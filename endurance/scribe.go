package endurance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nvop/endurance/run"
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

// troubled holds the workers while a commit fails: nothing may be written to the
// drive that cannot be recorded. Rows go on, and are recorded when it goes well.
func (m *machine) troubled(err error) {
	l := m.ledger
	if l.waiting {
		return
	}
	l.waiting, m.troubleSince = true, m.clock.Now()
	m.track.hold.Store(true)
	l.event(m.secondOf(m.troubleSince), run.EventPaused, fmt.Sprintf("nothing can be recorded, so nothing is done: %v; tried again every second", err))
	m.report(true)
}

// recovered lets the workers go on after a commit went well again.
func (m *machine) recovered() {
	l := m.ledger
	if !l.waiting {
		return
	}
	l.waiting = false
	m.track.hold.Store(l.rules.held)
	now := m.clock.Now()
	l.event(m.secondOf(now), run.EventContinued, fmt.Sprintf("it can be recorded again, after %.0f s", now.Sub(m.troubleSince).Seconds()))
}

// settled takes the outcome of the commit under way.
func (m *machine) settled(err error) {
	m.ledger.settled(err)
	if err == nil {
		m.recovered()
	}
}
