package endurance

import (
	"context"
	"fmt"
	"math"
	"slices"

	"nvop/endurance/run"
)

// scribe commits batches in a goroutine of its own, one at a time.
type scribe struct {
	in   chan *run.Batch
	out  chan error
	busy bool
}

// newScribe starts the goroutine. Its commits are not cut short by ctx: what
// ends a run still has to be recorded.
func newScribe(ctx context.Context, r Recorder) *scribe {
	s := &scribe{in: make(chan *run.Batch), out: make(chan error, 1)}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(s.out)
		for b := range s.in {
			s.out <- r.Commit(ctx, b)
		}
	}()
	return s
}

// stop ends the goroutine and waits for it. Nothing is under way.
func (s *scribe) stop() {
	close(s.in)
	for range s.out {
	}
}

// settle waits for the commit under way and lets the workers go as far as it
// reserved.
func (l *ledger) settle() error {
	if l.scribe.busy {
		l.settled(<-l.scribe.out)
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
}

// commit hands over everything since the last commit, with a checkpoint. It
// waits for the commit before, not for this one.
func (l *ledger) commit(state run.State, clockNS int64, verdict *run.Verdict) error {
	if err := l.settle(); err != nil {
		return err
	}
	l.checkpoint(state, clockNS)
	if l.cfg.SaveDrive != nil {
		if err := l.cfg.SaveDrive(l.cp.Number); err != nil {
			l.failure = fmt.Errorf("save the drive at checkpoint %d: %w", l.cp.Number, err)
			return l.failure
		}
	}
	b := l.batch
	b.Checkpoint, b.Verdict = l.cp, verdict
	l.pending = l.cp.ReservedHigh
	l.batch, l.spare = l.spare, l.batch
	clearBatch(l.batch)
	l.sinceOps = 0
	l.scribe.busy = true
	l.scribe.in <- b
	return nil
}

// clearBatch empties a batch that was committed, keeping its room.
func clearBatch(b *run.Batch) {
	*b = run.Batch{
		Rows: b.Rows[:0], Gaps: b.Gaps[:0], Histograms: b.Histograms[:0], Samples: b.Samples[:0], Events: b.Events[:0],
	}
}

// checkpoint brings the checkpoint up to date.
func (l *ledger) checkpoint(state run.State, clockNS int64) {
	l.cp.Number++
	l.cp.State, l.cp.ClockNS = state, clockNS
	l.cp.WallUnixNS = l.wall(l.cp.NextSecond)
	low, highest := uint64(math.MaxUint64), uint64(0)
	l.cp.Workers = make([]run.WorkerMark, len(l.marks))
	for i, m := range l.marks {
		slices.Sort(m.Incomplete)
		l.cp.Workers[i] = run.WorkerMark{Next: m.Next, Incomplete: slices.Clone(m.Incomplete)}
		highest = max(highest, m.Next)
		low = min(low, m.Next)
		if len(m.Incomplete) != 0 {
			low = min(low, m.Incomplete[0])
		}
	}
	l.cp.LowWater, l.cp.Pass = low, 0
	if l.stage != nil && l.stage.blocks != 0 {
		l.cp.Pass = low / l.stage.blocks
	}
	l.cp.ReservedHigh = max(highest, l.crashHigh)
	if state == run.StateRunning && l.stage != nil {
		l.cp.ReservedHigh = max(l.cp.ReservedHigh, l.reserve(low))
	}
	l.cp.Open = l.encode(&l.open, l.openFirst, l.openRows)
	l.cp.PhaseSum = l.encode(&l.sum, l.cp.PhaseFirstSecond, l.openFirst-l.cp.PhaseFirstSecond)
}

// reserve is how far the workers may go until the next commit: as far as they
// may already, and beyond the slowest of them four seconds of the busiest one
// lately, and at least what the driver asked for. A checkpoint a second then
// never makes them wait.
func (l *ledger) reserve(low uint64) uint64 {
	front := l.track.slowest(func(a *lane) uint64 { return a.next.Load() })
	if front == math.MaxUint64 {
		front = low
	}
	ahead := max(front, low) + max(l.windowSize, 4*l.peakOps)
	return min(max(l.track.high.Load(), ahead), l.stage.limit)
}
