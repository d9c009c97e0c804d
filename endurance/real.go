package endurance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

const (
	// talliesPerWorker is how many seconds a worker can be ahead of the ledger.
	talliesPerWorker = 6
	// tickEvery is how often the ledger looks at the clock.
	tickEvery = 20 * time.Millisecond
	// stepMost bounds how long a worker waits for completions, and so how late
	// it can close a second or see that it is to stop.
	stepMost = 100 * time.Millisecond
	// blockedPause is how long a worker sleeps when others have to go on first.
	blockedPause = 50 * time.Microsecond
	// rowGrace is how long a second's row waits for workers that do not answer.
	rowGrace = 2 * time.Second
	// sampleDeadline bounds a reading of health.
	sampleDeadline = 5 * time.Second
)

// assignment is a phase for a thread.
type assignment struct {
	stage           *stage
	mark            run.WorkerMark
	low             uint64
	start, deadline nvmeioctl.Instant
}

// thread is a worker with an OS thread of its own.
type thread struct {
	worker *worker
	assign chan assignment
	free   chan *tally
	// slower says why the queue does without registered buffers; nil when it
	// has them, or has no use for them.
	slower error
	// Of the ledger's goroutine: tallies that have arrived, how far the worker
	// says it is, what it had in flight.
	arrived  []*tally
	through  int64
	inFlight uint32
}

// machine is the real driver: a thread a worker, and the ledger in the caller's
// goroutine.
type machine struct {
	*session
	clock   nvmeioctl.Clock
	base    nvmeioctl.Instant // when second first began
	threads []*thread
	running sync.WaitGroup
	tallies chan *tally
	health  *healthReader
	// over is how many threads have finished the phase.
	over       int
	fatal      error
	lastCommit nvmeioctl.Instant
	stopped    nvmeioctl.Instant // when submission was stopped
	begun      nvmeioctl.Instant // when the phase was given to the threads
	lostThread bool
	// hangs is what does not come back; outages are when nothing could be recorded,
	// as far as there are no rows of it yet.
	hangs     chan hang
	outages   []outage
	fruitless fruitless
	look      lookout
}

// Run carries out a job on real queues, one thread a worker, until it is
// finished, a stop rule ends it, ctx is done or the drive is lost. In every
// case outstanding operations are waited for and all is committed. The verdict
// is valid also with an error; its ExitCode is the run's.
//
// A worker whose thread never comes back from the kernel is left behind, and
// the run is then interrupted.
func Run(ctx context.Context, cfg Config) (run.Verdict, error) {
	if cfg.Clock == nil {
		cfg.Clock = nvmeioctl.NewSystemClock()
	}
	if cfg.Job.TimeLapse > 1 {
		return run.Verdict{}, fmt.Errorf("%w: time lapse %d on a real drive", run.ErrJob, cfg.Job.TimeLapse)
	}
	s, err := newSession(ctx, &cfg, cfg.Clock.Wall())
	if err != nil {
		return run.Verdict{}, err
	}
	// A worker that waits in the kernel may hold its P, and the ledger, the
	// journal and the health reader must run all the same.
	if need, have := int(cfg.Job.Workers)+2, runtime.GOMAXPROCS(0); have < need {
		runtime.GOMAXPROCS(need)
		defer runtime.GOMAXPROCS(have)
	}
	m := &machine{session: s, clock: cfg.Clock, tallies: make(chan *tally, talliesPerWorker*int(cfg.Job.Workers))}
	m.hangs = make(chan hang, 2*cfg.Job.Workers)
	s.ledger.onTrouble, s.ledger.onRecovered = m.troubled, m.recovered
	if err := m.open(); err != nil {
		m.dismiss()
		m.running.Wait()
		return s.abandon(err)
	}
	m.health = newHealthReader(ctx, cfg.Sampler)
	gap := int64(0)
	if cfg.Resume != nil {
		gap = max(0, (m.clock.Wall().UnixNano()-cfg.Resume.WallUnixNS)/second1)
	}
	s.opening(gap)
	for _, t := range m.threads {
		if t.slower != nil {
			s.ledger.event(s.ledger.first, run.EventSetting, fmt.Sprintf("slower than it could be: %v", t.slower))
			break // all for the same reason
		}
	}
	m.base = m.clock.Now()
	s.ledger.origin = m.clock.Wall().UnixNano() - s.ledger.first*second1
	m.run(ctx)
	s.keepMapLast(!m.lostThread)
	v, err := s.finish(0)
	m.health.stop()
	m.dismiss()
	if !m.lostThread {
		m.running.Wait()
		err = errors.Join(err, m.track.generations.release())
	}
	return v, err
}

// open starts the threads and waits until each has its queue.
func (m *machine) open() error {
	ready := make(chan error, m.job.Workers)
	for i := range int(m.job.Workers) {
		t := &thread{assign: make(chan assignment, 1), free: make(chan *tally, talliesPerWorker)}
		m.threads = append(m.threads, t)
		m.running.Add(1)
		go m.work(i, t, ready)
	}
	var errs []error
	for range m.threads {
		errs = append(errs, <-ready)
	}
	return errors.Join(errs...)
}

// dismiss lets the threads end once they have nothing left to do.
func (m *machine) dismiss() {
	for _, t := range m.threads {
		close(t.assign)
	}
}

// work is a thread's life: it opens the queue, on the thread that will use it,
// and carries out one assignment after the other.
func (m *machine) work(id int, t *thread, ready chan<- error) {
	defer m.running.Done()
	runtime.LockOSThread()
	changed, err := place(id, m.cfg.Processors, m.job.Pin)
	if err != nil {
		ready <- err
		return
	}
	if !changed {
		// Otherwise not unlocked: the runtime ends a thread that was changed.
		defer runtime.UnlockOSThread()
	}
	q, err := m.cfg.Queues(id)
	if err != nil {
		ready <- fmt.Errorf("open queue %d: %w", id, err)
		return
	}
	depth := m.job.MaxDepth()
	w := newWorker(id, depth, depth, q, m.track)
	if err := errors.Join(deepEnough(id, q, depth), w.equip(m.job)); err != nil {
		ready <- errors.Join(err, w.release())
		return
	}
	defer func() { _ = w.release() }() // nothing is outstanding; what closing says changes nothing
	if r, ok := q.(nvmeioctl.BufferRegistrar); ok && w.mapping != nil {
		t.slower = r.RegisterBuffers(w.mapping)
	}
	t.worker = w
	for range talliesPerWorker {
		t.free <- newTally(id, depth)
	}
	w.now = m.clock.Now
	w.roll = func(now nvmeioctl.Instant) { m.roll(t, now) }
	ready <- nil
	for a := range t.assign {
		m.carryOut(t, a)
	}
}

// carryOut is one phase on a worker's thread.
func (m *machine) carryOut(t *thread, a assignment) {
	w := t.worker
	w.tally = <-t.free
	w.tally.second = m.secondOf(a.start)
	w.rowEnd = m.startOf(w.tally.second + 1)
	if err := w.begin(a.stage, m.job.LBABytes, a.mark, a.low, a.start, a.deadline); err != nil {
		w.fail(err)
	}
	dog := watchdog{next: a.start}
	for w.reaped = 0; ; {
		// The time of the last completion is as good as now, and costs nothing.
		now := w.lastDone
		if w.reaped == 0 {
			now = m.clock.Now()
		}
		if now >= w.rowEnd {
			w.roll(now)
		}
		if now >= dog.next {
			if h, said := dog.look(w, now); said {
				select {
				case m.hangs <- h:
				default: // the ledger is behind: the rows will show it
				}
			}
		}
		w.floor = now
		switch w.step(min(w.rowEnd, now.Add(stepMost))) {
		case finished:
			last := w.close(nil, math.MaxInt64, 0)
			last.finished = true
			m.tallies <- last
			return
		case blocked:
			w.reaped = 0
			_ = m.clock.Sleep(context.Background(), blockedPause)
		case idle:
			w.reaped = 0
			m.nap(min(w.rowEnd, now.Add(stepMost), w.pace.wake))
		}
	}
}

// roll closes a worker's second. When the ledger is so far behind that no tally
// is free, the worker counts on in the one it has.
func (m *machine) roll(t *thread, now nvmeioctl.Instant) {
	w := t.worker
	second := m.secondOf(now)
	w.rowEnd = m.startOf(second + 1)
	select {
	case next := <-t.free:
		m.tallies <- w.close(next, second-1, second)
	default:
		w.tally.merged = true
	}
}

func (m *machine) startOf(second int64) nvmeioctl.Instant {
	return m.base + nvmeioctl.Instant((second-m.ledger.first)*second1)
}

func (m *machine) secondOf(t nvmeioctl.Instant) int64 {
	return m.ledger.first + int64(max(t-m.base, 0))/second1
}

// run goes through the phases.
func (m *machine) run(ctx context.Context) {
	m.sampleNow()
	for i := m.firstPhase; i < len(m.stages) && m.state == run.StateRunning; i++ {
		if m.cfg.BeforePhase != nil {
			if err := m.cfg.BeforePhase(ctx, i); err != nil {
				m.interrupt(fmt.Sprintf("before phase %d", i), err)
				return
			}
		}
		resumed := m.midPhase && i == m.firstPhase
		if m.stages[i].Pattern == run.PatternNone {
			m.ledger.beginPhase(m.stages[i], m.ledger.cp.NextSecond, resumed)
			m.ledger.endPhase()
			continue
		}
		m.align(ctx)
		m.ledger.beginPhase(m.stages[i], m.ledger.cp.NextSecond, resumed)
		if err := m.phase(ctx); err != nil {
			m.interrupt("the phase cannot begin", err)
			return
		}
		m.sampleNow()
		if m.state == run.StateRunning {
			m.ledger.endPhase()
		}
	}
}

// align waits for the beginning of a second, so that every row belongs to one
// phase, and makes rows of the seconds that pass meanwhile.
func (m *machine) align(ctx context.Context) {
	second := m.ledger.cp.NextSecond
	if now := m.clock.Now(); second != m.ledger.first || now > m.startOf(second).Add(second1/2) {
		second = max(second, m.secondOf(now)+1)
		_ = m.clock.Sleep(ctx, m.startOf(second).Sub(now))
	}
	for m.ledger.cp.NextSecond < second {
		m.ledger.row(rowTime{second: m.ledger.cp.NextSecond, wallUnixNS: m.wallOf(m.ledger.cp.NextSecond)}, nil)
	}
}

// wallOf is the calendar time of a second's beginning by the calendar of now.
func (m *machine) wallOf(second int64) int64 {
	return m.clock.Wall().UnixNano() - int64(m.clock.Now()-m.startOf(second))
}

// phase carries out one phase, which begins with the second that has no row yet.
func (m *machine) phase(ctx context.Context) error {
	l := m.ledger
	start := m.startOf(l.cp.NextSecond)
	low := m.reset()
	if err := m.commit(); err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	m.over, m.begun = 0, max(m.clock.Now(), start)
	deadline := nvmeioctl.Never
	if d := l.stage.End.DurationNS; d != 0 {
		deadline = m.begun.Add(time.Duration(max(d-l.cp.PhaseActiveNS, 0)))
	}
	for i, t := range m.threads {
		t.through, t.inFlight = l.cp.NextSecond-1, 0
		mark := l.marks[i]
		mark.Incomplete = append([]uint64(nil), mark.Incomplete...)
		t.assign <- assignment{stage: l.stage, mark: mark, low: low, start: start, deadline: deadline}
	}
	m.keep(ctx)
	return nil
}

// reset gives the lanes the phase's marks and returns the lowest position that
// is not complete.
func (m *machine) reset() uint64 {
	m.track.high.Store(0)
	low := uint64(math.MaxUint64)
	for i, mark := range m.ledger.marks {
		m.track.lanes[i].next.Store(mark.Next)
		m.track.lanes[i].pass.Store(0)
		low = min(low, mark.Next)
		for _, p := range mark.Incomplete {
			low = min(low, p)
		}
	}
	return low
}

func (m *machine) commit() error {
	m.lastCommit = m.clock.Now()
	return m.ledger.commit(run.StateRunning, 0, nil)
}

// keep keeps the books until all threads have finished the phase.
func (m *machine) keep(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	done := ctx.Done()
	m.look = lookout{}
	for m.over < len(m.threads) {
		select {
		case t := <-m.tallies:
			m.arrive(t)
		case err := <-m.ledger.scribe.out:
			m.ledger.settled(err)
		case err := <-m.ledger.scribe.trouble:
			m.ledger.troubled(err)
		case h := <-m.hangs:
			m.hanging(h)
		case s := <-m.health.results:
			m.sampled(s)
		case <-done:
			done = nil
		case <-tick.C:
		}
		m.lookAround()
		m.rows()
		m.observe(ctx)
		if m.fatal != nil {
			m.lost(m.fatal)
			m.fatal = nil
		}
		m.due()
		if m.givenUp() {
			return
		}
	}
	m.last()
}

// arrive takes in a tally.
func (m *machine) arrive(y *tally) {
	t := m.threads[y.worker]
	t.arrived = append(t.arrived, y)
	t.through, t.inFlight = y.through, y.inFlight
	if y.finished {
		m.over++
	}
	if y.fatal != nil && m.fatal == nil {
		m.fatal = y.fatal
	}
}

// rows makes the rows of all seconds that every worker is past, or that have
// waited long enough for those that do not answer. The last ones of a phase are
// left to last.
func (m *machine) rows() {
	for m.over < len(m.threads) {
		second := m.ledger.cp.NextSecond
		complete, silent := true, uint32(0)
		for _, t := range m.threads {
			if t.through < second {
				complete = false
				silent += max(t.inFlight, 1)
			}
		}
		if !complete && m.clock.Now() < max(m.startOf(second+1), m.look.back).Add(rowGrace) {
			return
		}
		if m.skip(second) {
			continue
		}
		m.row(second, m.startOf(second+1), silent)
	}
}

// row makes one row, until an instant, of what has arrived for it, or late for one
// before it.
func (m *machine) row(second int64, until nvmeioctl.Instant, silent uint32) {
	var tallies []*tally
	for _, t := range m.threads {
		rest := t.arrived[:0]
		for _, y := range t.arrived {
			if y.second <= second {
				tallies = append(tallies, y)
			} else {
				rest = append(rest, y)
			}
		}
		t.arrived = rest
	}
	t := rowTime{second: second, wallUnixNS: m.wallOf(second), silent: silent}
	t.activeNS, t.outageNS = m.active(second, until)
	m.ledger.row(t, tallies)
	for _, y := range tallies {
		y.reset()
		m.threads[y.worker].free <- y
	}
	m.failing()
	m.report(false)
}

// last makes the rows that are left when all threads have finished: up to the
// second of the last completion.
func (m *machine) last() {
	begin := m.startOf(m.ledger.cp.NextSecond)
	end, waiting := begin, false
	for _, t := range m.threads {
		for _, y := range t.arrived {
			end = max(end, y.lastDone)
			waiting = waiting || !y.empty() || y.waited
		}
	}
	if !waiting {
		m.forget()
		return
	}
	for final := m.secondOf(end); m.ledger.cp.NextSecond < final; {
		m.row(m.ledger.cp.NextSecond, m.startOf(m.ledger.cp.NextSecond+1), 0)
	}
	second := m.ledger.cp.NextSecond
	m.row(second, min(end, m.startOf(second+1)), 0)
	m.forget()
}

// active is how much of a second, until an instant, the phase was at work, and in
// how much of it nothing could be recorded.
func (m *machine) active(second int64, until nvmeioctl.Instant) (activeNS, outageNS int64) {
	from := max(m.startOf(second), m.begun)
	if outageNS = m.outageWithin(from, until); outageNS != 0 {
		return max(int64(until-from)-outageNS, 0), outageNS
	}
	return max(int64(until-from), 1), 0
}

// forget takes in what empty tallies say of the marks, and frees all of them.
func (m *machine) forget() {
	for i, t := range m.threads {
		for _, y := range t.arrived {
			m.ledger.flushedTo(i, y.flushed)
			m.ledger.marks[i] = run.WorkerMark{Next: y.mark.Next, Incomplete: append([]uint64(nil), y.mark.Incomplete...)}
			y.reset()
			t.free <- y
		}
		t.arrived = t.arrived[:0]
	}
}

// due does what the clock asks for: health, a commit each second, an early one
// when the workers come near the reserved mark.
func (m *machine) due() {
	now := m.clock.Now()
	if m.poll.due(m.secondOf(now)) && m.health.ask(now) {
		// Should it fail to answer, the next is asked for at the usual interval.
		m.poll.next = m.secondOf(now) + m.poll.interval
	}
	m.ledger.polling = m.health.waiting
	if text := m.health.overdue(now); text != "" {
		m.ledger.sample(run.Sample{Failure: text}, m.secondOf(now), m.wallOf(m.secondOf(now)))
	}
	m.keepMap(now)
	l := m.ledger
	if l.scribe.busy || l.failure != nil {
		return
	}
	early := false
	if high := m.track.high.Load(); high < l.stage.limit && !m.track.stop.Load() {
		front := m.track.slowest(func(a *lane) uint64 { return a.next.Load() })
		if front != math.MaxUint64 && high < front+l.windowSize/2 {
			early = true
			if now.Sub(m.lastCommit) < 2*time.Second {
				l.windowSize *= 2
			}
		}
	}
	if early || now.Sub(m.lastCommit) >= time.Second {
		if err := m.commit(); err != nil {
			m.interrupt("the journal or the drive's file cannot be written", err)
		}
	}
}

// givenUp says that a thread has not come back long after it was told to stop.
func (m *machine) givenUp() bool {
	if !m.track.stop.Load() {
		return false
	}
	now := m.clock.Now()
	if m.stopped == 0 {
		m.stopped = now
	}
	if now.Sub(m.stopped) < time.Duration(m.job.StallNS) {
		return false
	}
	m.lostThread = true
	m.interrupt("operations did not come back", fmt.Errorf("%d workers wait for the kernel and were left behind", len(m.threads)-m.over))
	return true
}

// sampleNow reads health while no I/O is under way, or until the deadline.
func (m *machine) sampleNow() {
	if m.cfg.Sampler == nil || m.lostThread {
		return
	}
	// One may be under way, from before the I/O ended.
	for !m.health.ask(m.clock.Now()) {
		if !m.await() {
			return
		}
	}
	m.await()
}

// await waits for the reading under way, as long as it may take.
func (m *machine) await() bool {
	select {
	case s := <-m.health.results:
		m.sampled(s)
		return true
	case <-time.After(sampleDeadline + time.Second):
	}
	if text := m.health.overdue(nvmeioctl.Never); text != "" {
		second := m.secondOf(m.clock.Now())
		m.ledger.sample(run.Sample{Failure: text}, second, m.wallOf(second))
	}
	return false
}

// sampled takes in what the health reader read.
func (m *machine) sampled(s run.Sample) {
	m.health.answered()
	s.DurationNS = int64(m.clock.Now() - m.health.since)
	second := m.secondOf(m.health.since)
	m.poll.taken(second, &s)
	m.ledger.sample(s, second, m.wallOf(second))
}
