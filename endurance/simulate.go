package endurance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

const (
	// simBatch is how many completions a virtual worker takes at once: more
	// would let requests be submitted further out of their order in time.
	simBatch = 32
	// simSlack is how far a worker may run ahead of the others' time, in
	// nanoseconds.
	simSlack = 50_000
	// defaultCheckpointOps between two checkpoints take half a wall second, as
	// do as many pages of the drive's map.
	defaultCheckpointOps = 1 << 21
	// contentsCheckpointOps do, where the drive keeps what is written to it.
	contentsCheckpointOps = 1 << 15
	// mapPages is about how many pages the map of a simulated drive has.
	mapPages = 1 << 20
	// maxBatchRows bounds what a commit holds where rows are nearly empty.
	maxBatchRows = 1 << 14
)

// simulation is the simulated driver: one loop in virtual time.
//
// Workers live in micro time u, the time of latencies, which begins at 0 with
// the session. The drive's calendar V runs K times as fast; a row is a second
// of V.
type simulation struct {
	*session
	drive   *nvmeioctl.VirtualClock
	base    nvmeioctl.Instant // V when u was 0
	baseUTC int64             // its calendar time
	workers []*worker
	spares  []*tally
	times   []nvmeioctl.Instant
	blocked []bool
	done    []bool
	tallies []*tally
	ops     uint64 // between checkpoints
	second  int64  // the current one
	// drainRows counts rows since submission was stopped.
	drainRows int64
	// steps counts those of workers.
	steps uint64
}

// Simulate carries out a job on queues in virtual time, in the caller's
// goroutine, faster than the time it simulates. drive is the drive's calendar:
// it is advanced to the workers' time, TimeLapse times as fast, before the
// drive is sampled or saved. It ends as [Run] does.
func Simulate(ctx context.Context, cfg Config, drive *nvmeioctl.VirtualClock) (run.Verdict, error) {
	s, err := newSession(ctx, &cfg, drive.Wall())
	if err != nil {
		return run.Verdict{}, err
	}
	m := &simulation{session: s, drive: drive, base: drive.Now(), baseUTC: drive.Wall().UnixNano()}
	defer m.close()
	m.tellTrouble()
	if err := m.open(); err != nil {
		return s.abandon(err)
	}
	gap := int64(0)
	if cfg.Resume != nil {
		gap = max(0, (int64(m.base)-cfg.Resume.ClockNS+second1-1)/second1)
	}
	s.opening(gap)
	m.second = s.ledger.first
	s.ledger.origin = m.baseUTC - m.second*second1
	m.run(ctx)
	s.keepMapLast(true)
	return s.finish(m.advance(m.second))
}

// open opens the queues.
func (m *simulation) open() error {
	depth := m.job.MaxDepth()
	n := int(m.job.Workers)
	m.times, m.blocked, m.done = make([]nvmeioctl.Instant, n), make([]bool, n), make([]bool, n)
	for i := range n {
		q, err := m.cfg.Queues(i)
		if err != nil {
			return fmt.Errorf("open queue %d: %w", i, err)
		}
		w := newWorker(i, depth, simBatch, q, m.track)
		w.rowEnd = nvmeioctl.Never
		m.workers = append(m.workers, w)
		if err := errors.Join(deepEnough(i, q, depth), w.equip(m.job)); err != nil {
			return err
		}
		w.tally = newTally(i, depth)
		m.spares = append(m.spares, newTally(i, depth))
	}
	return nil
}

// close closes the queues. What a virtual queue has to say about it changes
// nothing any more.
func (m *simulation) close() {
	for _, w := range m.workers {
		_ = w.release()
	}
	_ = m.track.generations.release()
}

// start is when a second of the run begins, in u.
func (m *simulation) start(second int64) nvmeioctl.Instant {
	hi, lo := bits.Mul64(uint64(second-m.ledger.first), second1)
	k := uint64(m.job.TimeLapse)
	lo, carry := bits.Add64(lo, k-1, 0)
	u, _ := bits.Div64(hi+carry, lo, k)
	return nvmeioctl.Instant(u)
}

// advance moves the drive's calendar to the beginning of a second.
func (m *simulation) advance(second int64) int64 {
	v := m.base + nvmeioctl.Instant((second-m.ledger.first)*second1)
	m.drive.AdvanceTo(v)
	return int64(v)
}

// run goes through the phases.
func (m *simulation) run(ctx context.Context) {
	m.sample(ctx)
	for i := m.firstPhase; i < len(m.stages) && m.state == run.StateRunning; i++ {
		if m.cfg.BeforePhase != nil {
			if err := m.cfg.BeforePhase(ctx, i); err != nil {
				m.interrupt(fmt.Sprintf("before phase %d", i), err)
				return
			}
		}
		resumed := m.midPhase && i == m.firstPhase
		m.ledger.beginPhase(m.stages[i], m.second, resumed)
		if m.stages[i].Pattern != run.PatternNone {
			m.phase(ctx, resumed)
			m.sample(ctx)
		}
		if m.state == run.StateRunning {
			m.ledger.endPhase()
		}
	}
}

// phase carries out one phase, from the beginning of a second.
func (m *simulation) phase(ctx context.Context, resumed bool) {
	begin := m.start(m.second)
	if err := m.begin(begin, resumed); err != nil {
		m.interrupt("the phase cannot begin", err)
		return
	}
	m.drainRows = 0
	for {
		over := m.until(ctx, m.start(m.second+1))
		for _, w := range m.workers {
			if w.fatal != nil {
				m.lost(w.fatal)
			}
		}
		m.row(over)
		if over {
			return
		}
		m.after(ctx)
		if m.drained() {
			m.interrupt("operations did not come back", errors.New("outstanding operations were given up"))
			return
		}
	}
}

// drained says that waiting for what is outstanding has taken too long.
func (m *simulation) drained() bool {
	if !m.track.stop.Load() {
		return false
	}
	m.drainRows++
	return m.drainRows*second1/int64(m.job.TimeLapse) > m.job.StallNS
}

// begin sets the workers to the phase's start and reserves what they may do.
func (m *simulation) begin(begin nvmeioctl.Instant, resumed bool) error {
	l := m.ledger
	deadline := nvmeioctl.Never
	if d := l.stage.End.DurationNS; d != 0 {
		k := int64(m.job.TimeLapse)
		deadline = begin + nvmeioctl.Instant((max(d-l.cp.PhaseActiveNS, 0)+k-1)/k)
	}
	m.ops = m.checkpointOps()
	l.windowSize = 2 * m.ops
	m.track.high.Store(0)
	low := uint64(math.MaxUint64)
	for i := range l.marks {
		m.track.lanes[i].next.Store(l.marks[i].Next)
		low = min(low, l.marks[i].Next)
		for _, p := range l.marks[i].Incomplete {
			low = min(low, p)
		}
	}
	if err := m.commit(); err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	for i, w := range m.workers {
		if err := w.begin(l.stage, m.job.LBABytes, l.marks[i], low, begin, deadline); err != nil {
			return err
		}
		w.tally.second = m.second
		m.times[i], m.blocked[i], m.done[i] = begin, false, false
	}
	return nil
}

// checkpointOps is how many operations of the phase lie between two checkpoints.
// It depends on nothing but the job, so that one seed gives one history. Under
// time lapse, and with large blocks, an operation touches many pages of the map
// and takes that much longer.
func (m *simulation) checkpointOps() uint64 {
	if m.cfg.CheckpointOps != 0 {
		return m.cfg.CheckpointOps
	}
	if m.workers[0].data != nil {
		return contentsCheckpointOps
	}
	page := max(m.job.CapacityBytes/mapPages, 4096)
	touched := uint64(m.job.TimeLapse) * uint64(m.ledger.stage.BlockBytes) / page
	return max(defaultCheckpointOps/(1+touched), 1)
}

// commit commits with the drive's calendar at the beginning of the second.
func (m *simulation) commit() error {
	err := m.ledger.commit(run.StateRunning, m.advance(m.second), nil)
	if err == nil {
		m.keepMap()
	}
	return err
}

// until steps the workers, the earliest first, until all have reached an
// instant. It is true when none has anything left to do in the phase.
func (m *simulation) until(ctx context.Context, end nvmeioctl.Instant) bool {
	stuck := 0
	for {
		m.heed(ctx)
		first, next := m.earliest(end)
		if first < 0 {
			if m.finished() {
				return true
			}
			if !m.anyBlockedAlone(end) {
				return false
			}
			// Everybody is at the pass's end, and now everybody has said so.
			if stuck++; stuck > 2 {
				m.lost(errors.New("no worker can go on"))
				return true
			}
			m.wake(m.latest())
			continue
		}
		w := m.workers[first]
		m.reserve(w)
		switch w.step(min(end-1, next+simSlack)) {
		case finished:
			stuck = 0
			m.done[first] = true
			m.wake(m.times[first])
		case blocked:
			m.blocked[first] = true
		case idle:
			stuck = 0
			m.times[first] = max(min(end, w.pace.wake), min(end-1, next+simSlack)+1)
		default:
			stuck = 0
			if w.reaped != 0 {
				m.times[first] = max(m.times[first], w.lastDone)
				m.wake(m.times[first])
			} else {
				m.times[first] = min(end-1, next+simSlack) + 1
			}
		}
	}
}

// heed looks, in the midst of a second, whether the run is to end, and tells where
// it stands: a second can take minutes of this machine where a fast drive keeps what
// is written to it.
func (m *simulation) heed(ctx context.Context) {
	const often = 64 // steps that only count take less than a microsecond each
	if m.steps++; m.steps%often != 0 && m.workers[0].data == nil {
		return
	}
	if ctx.Err() != nil && m.state == run.StateRunning {
		m.interrupt("interrupted", nil)
		m.ledger.event(max(m.ledger.cp.NextSecond-1, 0), run.EventInterrupted, "interrupted by the user")
	}
	m.report(false)
}

// earliest finds the worker with the smallest time before end that can be
// stepped, and the time of the one after it.
func (m *simulation) earliest(end nvmeioctl.Instant) (first int, next nvmeioctl.Instant) {
	first, next = -1, end
	best := end
	for i, t := range m.times {
		if m.blocked[i] || m.done[i] || t >= next {
			continue
		}
		if t < best {
			first, best, next = i, t, best
		} else {
			next = t
		}
	}
	return first, next
}

// wake lets blocked workers look again, at the time of what may have freed them.
func (m *simulation) wake(now nvmeioctl.Instant) {
	for i, b := range m.blocked {
		if b {
			m.blocked[i] = false
			m.times[i] = max(m.times[i], now)
			m.workers[i].floor = max(m.workers[i].floor, now)
		}
	}
}

func (m *simulation) finished() bool {
	for _, d := range m.done {
		if !d {
			return false
		}
	}
	return true
}

// anyBlockedAlone says that nobody is on the way who could free the blocked: all
// that are not done are blocked.
func (m *simulation) anyBlockedAlone(end nvmeioctl.Instant) bool {
	for i := range m.workers {
		if !m.done[i] && !m.blocked[i] && m.times[i] >= end {
			return false
		}
	}
	return true
}

// reserve makes sure that a worker can fill its queue: at the committed mark it
// waits for the journal in the time of this machine, while in virtual time
// nothing passes.
func (m *simulation) reserve(w *worker) {
	need := min(w.next+w.stride*uint64(w.depth), m.ledger.stage.limit)
	if m.track.high.Load() >= need || m.track.stop.Load() {
		return
	}
	err := m.ledger.settle()
	if err == nil && m.track.high.Load() < need {
		m.ledger.need = need
		if err = m.commit(); err == nil {
			err = m.ledger.settle()
		}
	}
	if err != nil {
		m.interrupt("the journal or the drive's file cannot be written", err)
	}
}

// latest is the largest time of any worker.
func (m *simulation) latest() nvmeioctl.Instant {
	latest := nvmeioctl.Instant(0)
	for _, t := range m.times {
		latest = max(latest, t)
	}
	return latest
}

// row closes the current second. When the phase is over it ends with the last
// completion, and no row is made of a second in which nothing happened.
func (m *simulation) row(over bool) {
	begin := m.start(m.second)
	active := int64(second1)
	if over {
		last, some := begin, false
		for _, w := range m.workers {
			last = max(last, w.tally.lastDone)
			some = some || !w.tally.empty() || w.tally.waited
		}
		if !some && last <= begin {
			return
		}
		active = min(max(int64(last-begin)*int64(m.job.TimeLapse), 1), second1)
	}
	m.tallies = m.tallies[:0]
	for i, w := range m.workers {
		t := w.close(m.spares[i], m.second, m.second+1)
		m.tallies = append(m.tallies, t)
	}
	m.ledger.row(rowTime{second: m.second, wallUnixNS: m.baseUTC + (m.second-m.ledger.first)*second1, activeNS: active}, m.tallies)
	for i, t := range m.tallies {
		t.reset()
		m.spares[i] = t
	}
	m.second++
}

// after does what is due at the beginning of a second.
func (m *simulation) after(ctx context.Context) {
	if m.poll.due(m.second) {
		m.sample(ctx)
	}
	m.observe(ctx)
	if m.ledger.sinceOps >= m.ops || len(m.ledger.batch.Rows) >= maxBatchRows {
		if err := m.commit(); err != nil {
			m.interrupt("the journal or the drive's file cannot be written", err)
		}
	}
	m.report(false)
}

// sample reads the drive's health at the beginning of the current second.
func (m *simulation) sample(ctx context.Context) {
	if m.cfg.Sampler == nil {
		return
	}
	m.advance(m.second)
	s, err := m.cfg.Sampler.Sample(context.WithoutCancel(ctx))
	if err != nil {
		s = run.Sample{Failure: err.Error()}
	}
	m.poll.taken(m.second, &s)
	m.ledger.sample(s, m.second, m.baseUTC+(m.second-m.ledger.first)*second1)
}
