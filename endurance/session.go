package endurance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// session is one stretch of a run, from its start or a resume to its end: what
// both drivers share.
type session struct {
	cfg    *Config
	job    *run.Job
	track  *track
	ledger *ledger
	stages []*stage
	// firstPhase is where the session begins, resumed in the midst of it or not.
	firstPhase int
	midPhase   bool
	// reason is why submission was stopped early; state what the run then is.
	reason string
	state  run.State
	err    error
	// lastReport is when the observer was last told, and what then stood.
	lastReport nvmeioctl.Instant
	reported   run.Totals
	poll       poll
	// keeper keeps the generation map; nil without one. mapDoubts are the writes
	// that the map that was taken up may not know of, mapRemark what is to be said.
	keeper    *mapKeeper
	mapDoubts []run.Doubt
	mapRemark string
}

// newSession checks a job and opens its books. now is the calendar time.
func newSession(ctx context.Context, cfg *Config, now time.Time) (*session, error) {
	if cfg.Recorder == nil || cfg.Queues == nil {
		return nil, errors.New("endurance: a run needs a recorder and queues")
	}
	job := &cfg.Job
	if job.SampleIntervalNS == 0 {
		job.SampleIntervalNS = defaultSampleNS
	}
	if job.StallNS == 0 {
		job.StallNS = defaultStallNS
	}
	if err := job.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = nvmeioctl.NewSystemClock()
	}
	if cfg.StartWallUnixNS == 0 {
		cfg.StartWallUnixNS = now.UnixNano()
	}
	s := &session{cfg: cfg, job: job, track: &track{lanes: make([]lane, job.Workers), runs: cfg.Runs}, state: run.StateRunning}
	for i := range job.Phases {
		st, err := newStage(job, i)
		if err != nil {
			return nil, err
		}
		s.stages = append(s.stages, st)
	}
	if err := s.prepareData(); err != nil {
		return nil, err
	}
	s.ledger = newLedger(cfg, s.track)
	if err := s.resume(); err != nil {
		return nil, err
	}
	s.poll = newPoll(job.SampleIntervalNS / second1)
	s.ledger.scribe = newScribe(ctx, cfg.Recorder)
	return s, nil
}

// prepareData makes the data that the run writes, or that the run wrote which is
// verified.
func (s *session) prepareData() (err error) {
	of := s.cfg.Of
	if (of != nil) != (s.job.Verify.Of != nil) {
		return errors.New("endurance: a run that verifies another needs that one, and no other does")
	}
	if of == nil {
		if err := s.prepareMap(); err != nil {
			return err
		}
		s.track.source, err = newSource(s.job, s.cfg.StartWallUnixNS, s.cfg.Drive)
		return err
	}
	if of.Job.CapacityBytes != s.job.CapacityBytes || of.Job.LBABytes != s.job.LBABytes || of.Job.TimeLapse > 1 {
		return fmt.Errorf("%w: the run to be verified addressed other blocks", run.ErrJob)
	}
	if err := s.borrowMap(); err != nil {
		return err
	}
	s.track.source, err = newSource(&of.Job, of.StartWallUnixNS, of.Drive)
	return err
}

// resume finds where an earlier session left off.
func (s *session) resume() error {
	if err := s.ledger.restore(); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	cp := s.cfg.Resume
	if cp == nil {
		return nil
	}
	if !cp.State.Resumable() {
		return fmt.Errorf("resume: the run is over (%s)", cp.State)
	}
	if int(cp.Phase) >= len(s.stages) {
		return fmt.Errorf("resume: the checkpoint is in phase %d of %d", cp.Phase, len(s.stages))
	}
	for _, d := range s.mapDoubts {
		s.track.doubts.add(d)
	}
	s.firstPhase, s.midPhase = int(cp.Phase), true
	if n := len(cp.Results); n != 0 && cp.Results[n-1].Phase == cp.Phase {
		s.firstPhase, s.midPhase = s.firstPhase+1, false
	}
	s.ledger.stage = s.stages[cp.Phase]
	return nil
}

// opening records the start of the session; gap is how many seconds have no rows
// because nothing ran, on resume.
func (s *session) opening(gap int64) {
	l := s.ledger
	cp := s.cfg.Resume
	if cp == nil {
		l.event(0, run.EventStarted, "started")
		s.sayMap()
		return
	}
	row := run.GapRow{Second: l.first, Seconds: gap, Reason: "resumed after an interruption"}
	if cp.State == run.StateRunning {
		row.Reason = "resumed after a crash"
		for _, m := range cp.Workers {
			row.UncountedOpsMax += uint64(len(m.Incomplete))
			if cp.ReservedHigh > m.Next {
				row.UncountedOpsMax += (cp.ReservedHigh-m.Next-1)/uint64(len(cp.Workers)) + 1
			}
		}
		l.cp.Crashes++
		l.cp.UncountedOpsMax += row.UncountedOpsMax
	}
	l.first += gap
	l.cp.NextSecond = l.first
	row.WallUnixNS = l.wall(l.first)
	l.batch.Gaps = append(l.batch.Gaps, row)
	text := row.Reason
	if row.UncountedOpsMax != 0 {
		text += ": " + uncounted(row.UncountedOpsMax, 1, l.lapse)
	}
	l.event(l.first, run.EventResumed, text)
	s.sayMap()
	if gap != 0 {
		// A histogram's span has no holes.
		l.closeSpan()
	}
}

// sayMap notes what has to be known of a generation map that was taken up.
func (s *session) sayMap() {
	if s.mapRemark != "" {
		s.ledger.event(s.ledger.first, run.EventMap, s.mapRemark)
	}
}

// interrupt stops submission for a reason that leaves the run resumable.
func (s *session) interrupt(reason string, err error) {
	s.track.stop.Store(true)
	if s.state == run.StateRunning || s.state == run.StateStopped {
		s.state, s.reason = run.StateInterrupted, reason
	}
	if s.err == nil {
		s.err = err
	}
}

// observe does what is due after a row: stop rules, the user's wish.
func (s *session) observe(ctx context.Context) {
	reason := s.ledger.judge()
	if reason == "" {
		reason = s.ledger.rules.reached
	}
	if reason != "" && s.state == run.StateRunning {
		s.state, s.reason = run.StateStopped, reason
		s.track.stop.Store(true)
		s.ledger.event(s.ledger.cp.NextSecond-1, run.EventStopped, reason)
	}
	s.cool()
	if ctx.Err() != nil && s.state == run.StateRunning {
		s.interrupt("interrupted", nil)
		s.ledger.event(s.ledger.cp.NextSecond-1, run.EventInterrupted, "interrupted by the user")
	}
	if s.ledger.failure != nil {
		s.interrupt("the journal or the drive's file cannot be written", s.ledger.failure)
	}
}

// lost ends the run because a queue failed; it can be resumed.
func (s *session) lost(err error) {
	if s.state != run.StateInterrupted {
		s.ledger.event(max(s.ledger.cp.NextSecond-1, 0), run.EventDeviceGone, err.Error())
	}
	s.interrupt("the drive was lost", err)
}

// finish commits the end and returns the verdict.
func (s *session) finish(clockNS int64) (run.Verdict, error) {
	l := s.ledger
	l.scribe.giveUp()
	if s.state == run.StateRunning {
		s.state, s.reason = run.StateFinished, "finished"
		l.event(max(l.cp.NextSecond-1, 0), run.EventFinished, "finished")
	}
	l.cp.StopReason = s.reason
	v := l.verdict(s.state, s.reason)
	if s.err != nil {
		v.Notes = append(v.Notes, s.err.Error())
	}
	err := l.commit(s.state, clockNS, v)
	if err == nil {
		err = l.settle()
	}
	l.scribe.stop()
	s.report(true)
	if err != nil && errors.Is(s.err, err) {
		err = nil // the failure that ended the run is that of its last commit
	}
	return *v, errors.Join(s.err, err)
}

// abandon ends a session that has not begun.
func (s *session) abandon(err error) (run.Verdict, error) {
	s.ledger.scribe.stop()
	err = errors.Join(err, s.track.generations.release())
	return run.Verdict{State: run.StateInterrupted, Reason: err.Error(), ExitCode: run.ExitInterrupted}, err
}

// report tells the observer where the run stands, once a second of its clock.
func (s *session) report(always bool) {
	if s.cfg.Observer == nil {
		return
	}
	now := s.cfg.Clock.Now()
	l := s.ledger
	wall := now.Sub(s.lastReport)
	if wall < time.Second && !always {
		return
	}
	p := run.Progress{
		State: s.state, Phase: l.cp.Phase, Totals: l.cp.Totals, Second: l.cp.NextSecond - 1, LeftNS: run.NotAvailable,
		WAF: l.workloadWAF(), Sample: l.latest, Trouble: l.trouble,
	}
	if l.stage != nil {
		p.Kind = l.stage.Kind
		p.DonePermille = l.donePermille()
	}
	if n := len(l.batch.Rows); n != 0 {
		p.Row = l.batch.Rows[n-1]
	} else if n := len(l.spare.Rows); n != 0 && !l.scribe.busy {
		p.Row = l.spare.Rows[n-1]
	}
	if rows := l.cp.Totals.Rows - s.reported.Rows; rows != 0 {
		p.ReadIOPS = (l.cp.Totals.ReadOps - s.reported.ReadOps) / rows
		p.WriteIOPS = (l.cp.Totals.WriteOps - s.reported.WriteOps) / rows
		p.ReadBytesPerSecond = (l.cp.Totals.ReadBytes - s.reported.ReadBytes) / rows
		p.WriteBytesPerSecond = (l.cp.Totals.WriteBytes - s.reported.WriteBytes) / rows
		p.LeftNS = l.leftNS(rows, wall)
	}
	s.cfg.Observer.Progress(&p)
	s.lastReport, s.reported = now, l.cp.Totals
}

// donePermille is how much of the phase is done.
func (l *ledger) donePermille() int64 {
	if l.stage.limit == math.MaxUint64 {
		return min(1000, l.cp.PhaseActiveNS/max(l.stage.End.DurationNS/1000, 1))
	}
	if l.stage.limit == 0 {
		return 1000
	}
	done := uint64(0)
	for _, m := range l.marks {
		done += m.Next / uint64(len(l.marks))
	}
	return int64(min(1000, uint64(float64(done)/float64(l.stage.limit)*1000)))
}

// leftNS estimates the wall time until the phase ends from what the last rows
// did in the last stretch of wall time.
func (l *ledger) leftNS(rows uint64, wall time.Duration) int64 {
	var left float64
	if l.stage == nil {
		return run.NotAvailable
	}
	if l.stage.limit == math.MaxUint64 {
		left = float64(l.stage.End.DurationNS-l.cp.PhaseActiveNS) / second1 / float64(rows)
	} else {
		ops := float64(l.cp.PhaseTotals.Ops()) / float64(l.lapse)
		if ops == 0 || l.cp.PhaseTotals.Rows == 0 {
			return run.NotAvailable
		}
		left = (float64(l.stage.limit) - ops) / (ops / float64(l.cp.PhaseTotals.Rows)) / float64(rows)
	}
	return int64(max(left, 0) * float64(wall))
}
