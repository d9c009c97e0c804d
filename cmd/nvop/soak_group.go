package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/jobfile"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/nvmeioctl/inuse"
)

// soakGroup is the runs of one process. Before anything is begun, what is wrong
// with one drive ends the whole; from then on each is for itself.
type soakGroup struct {
	app      *app
	flags    soakFlags
	kinds    []inuse.Kind
	watch    watchFlags
	sessions []*soakSession
	journal  *journal.Journal
	// notStarted are runs of resume --all that could not go on, and always says
	// that a list is printed even of one run.
	notStarted []soakResult
	worst      error
	always     bool
}

func (a *app) newSoakGroup(f soakFlags, w watchFlags) (*soakGroup, error) {
	kinds, err := f.kinds()
	if err != nil {
		return nil, err
	}
	if len(w.OnEvent) != 0 {
		if w.OnEvent, err = eventProgram(w.OnEvent); err != nil {
			return nil, err
		}
	}
	if w.Metrics != "" {
		if w.Metrics, err = metricsPath(w.Metrics); err != nil {
			return nil, err
		}
	}
	return &soakGroup{app: a, flags: f, kinds: kinds, watch: w}, nil
}

// add opens a drive and builds its job.
func (g *soakGroup) add(ctx context.Context, d jobfile.Drive, f *jobfile.File) error {
	flags := g.flags
	flags.Accept = append(slices.Clone(flags.Accept), f.Accept...)
	if d.NSID != 0 {
		if flags.NSID != 0 && uint32(flags.NSID) != d.NSID {
			return usagef("%s: --nsid %d and the run file's nsid %d conflict", d.Address, flags.NSID, d.NSID)
		}
		flags.NSID = nsidFlag(d.NSID)
	}
	kinds, err := flags.kinds()
	if err != nil {
		return err
	}
	t, err := g.app.openSoak(ctx, d.Address, flags)
	if err != nil {
		return err
	}
	g.sessions = append(g.sessions, &soakSession{app: g.app, target: t, kinds: kinds, flags: flags})
	if d.Serial != "" && d.Serial != t.serial {
		return refusedf("identity", d.Address, "", "its serial number is %s, the run file says %s", t.serial, d.Serial)
	}
	if err := g.checkTwice(); err != nil {
		return err
	}
	s := g.sessions[len(g.sessions)-1]
	if s.job, err = buildJob(f, t.region); err != nil {
		return err
	}
	return checkRatios(&s.job)
}

// checkTwice refuses what was added last where another name leads to its data.
func (g *soakGroup) checkTwice() error {
	last := g.sessions[len(g.sessions)-1].target
	for _, s := range g.sessions[:len(g.sessions)-1] {
		for _, id := range dataIdentities(s.target.path) {
			if slices.Contains(dataIdentities(last.path), id) {
				return usagef("%s and %s lead to the same data, and it can be soaked once at a time", s.target.address, last.address)
			}
		}
	}
	return nil
}

// failed notes a run that cannot go on, with what it came to so far.
func (g *soakGroup) failed(ctx context.Context, info journal.RunInfo, err error) {
	r, jerr := g.app.standingOf(ctx, info)
	r.Verdict, r.Reason = "not started", err.Error()
	g.notStarted = append(g.notStarted, r)
	g.worst = worse(g.worst, errors.Join(err, jerr))
}

// prepare gets consent for every drive, then takes all locks and the journal.
func (g *soakGroup) prepare(ctx context.Context, what string) (err error) {
	if err := g.checkSerials(); err != nil {
		return err
	}
	for _, s := range g.sessions {
		if err := s.agree(ctx, what); err != nil {
			return err
		}
	}
	if err := g.app.notOurs(g.watch.Metrics, g.sessions); err != nil {
		return err
	}
	if g.journal, err = g.app.openJournal(ctx, journal.ReadWrite); err != nil {
		return err
	}
	for _, s := range g.sessions {
		if err := s.take(ctx, g.journal, what); err != nil {
			return err
		}
	}
	return nil
}

// wouldRefuse says what a start would be refused for, as far as a dry run looks:
// files that belong to somebody else.
func (g *soakGroup) wouldRefuse() error {
	for _, s := range g.sessions {
		if s.target.drive != nil || !s.writes() {
			continue
		}
		if err := errors.Join(g.app.notTheJournal(s.target), s.target.checkFileUse()); err != nil {
			return err
		}
	}
	return g.app.notOurs(g.watch.Metrics, g.sessions)
}

// start begins new runs and carries them out.
func (g *soakGroup) start(ctx context.Context, name string) error {
	group := ""
	if len(g.sessions) > 1 {
		// The same for all, and never that of another group.
		group = fmt.Sprintf("%s-%d", g.sessions[0].target.serial, g.app.clock.Wall().UnixNano())
	}
	for _, s := range g.sessions {
		if err := s.begin(ctx, name, group); err != nil {
			return err
		}
	}
	return g.run(ctx)
}

// resume goes on with the runs that were added. With --all, one that cannot be
// prepared is left out.
func (g *soakGroup) resume(ctx context.Context) (err error) {
	if !g.always {
		if err := g.prepare(ctx, "soak resume "+g.sessions[0].from); err != nil {
			return err
		}
		if err := g.sessions[0].begin(ctx, "", ""); err != nil {
			return err
		}
		return g.run(ctx)
	}
	if err := g.app.notOurs(g.watch.Metrics, g.sessions); err != nil {
		return err
	}
	if len(g.sessions) != 0 {
		if g.journal, err = g.app.openJournal(ctx, journal.ReadWrite); err != nil {
			return err
		}
	}
	going := g.sessions[:0:0]
	var left []error
	for _, s := range g.sessions {
		what := "soak resume " + s.from
		err := s.agreeToFile()
		if err == nil {
			err = s.agree(ctx, what)
		}
		if err == nil {
			err = s.take(ctx, g.journal, what)
		}
		if err == nil {
			err = s.begin(ctx, "", "")
		}
		if err == nil {
			going = append(going, s)
			continue
		}
		g.failed(ctx, s.before, err)
		left = append(left, s.close())
	}
	g.sessions = going
	return errors.Join(g.run(ctx), errors.Join(left...))
}

// run carries all runs out and prints what came of them.
func (g *soakGroup) run(ctx context.Context) error {
	show := g.app.newGroupProgress(g.sessions)
	watch := g.app.newSoakWatch(g.watch, show.note)
	results, errs := make([]soakResult, len(g.sessions)), make([]error, len(g.sessions))
	var members []endurance.Member
	for i, s := range g.sessions {
		s.note = show.note
		members = append(members, endurance.Member{Workers: s.job.Workers, Run: func(ctx context.Context) (run.Verdict, error) {
			return s.run(ctx, show.of(i), watch)
		}})
	}
	endurance.Group(ctx, members, func(i int, o endurance.Outcome) {
		results[i], errs[i] = g.sessions[i].result(o.Verdict, g.sessions[i].roomHint(o.Verdict, o.Err))
		watch.ended(g.sessions[i], o.Verdict)
		show.ended(i, results[i])
	})
	show.close()
	watch.close()
	for _, err := range errs {
		g.worst = worse(g.worst, err)
	}
	if len(results) == 1 && !g.always {
		if err := g.app.print(results[0]); err != nil {
			return errors.Join(err, g.worst)
		}
	} else if err := g.app.print(newGroupResult(append(results, g.notStarted...), exitCode(g.worst))); err != nil {
		return errors.Join(err, g.worst)
	}
	if g.worst != nil {
		return reported{g.worst}
	}
	return nil
}

// close gives everything back.
func (g *soakGroup) close() error {
	var errs []error
	for _, s := range g.sessions {
		errs = append(errs, s.close())
	}
	if g.journal != nil {
		errs = append(errs, g.journal.Close())
	}
	return errors.Join(errs...)
}

// worse is the worse of two ends of runs: what broke before what was found, and
// that before what can be resumed.
func worse(a, b error) error {
	rank := func(err error) int {
		return slices.Index([]int{exitOK, exitResetPending, exitPartly, exitInterrupted, exitFindings, exitUnsupported, exitRefused, exitDriveError, exitFailed}, exitCode(err))
	}
	if a == nil || b != nil && rank(b) > rank(a) {
		return b
	}
	return a
}

// soakGroupResult is the runs of a group.
type soakGroupResult struct {
	Schema string       `json:"schema"`
	Runs   []soakResult `json:"runs"`
	// ExitCode is that of the worst.
	ExitCode int `json:"exit_code"`
}

func newGroupResult(runs []soakResult, code int) soakGroupResult {
	return soakGroupResult{Schema: "nvop.soak-group/1", Runs: append([]soakResult{}, runs...), ExitCode: code}
}

// Text lays the runs out in one table.
func (r soakGroupResult) Text(p *render.Page) {
	if len(r.Runs) == 0 {
		p.Line("there is no soak to go on with")
		return
	}
	var rows [][]string
	for _, x := range r.Runs {
		waf := "-"
		if x.WAF != nil {
			waf = fmt.Sprintf("%.3f", *x.WAF)
		}
		rows = append(rows, []string{x.Run, x.Serial, render.Decimal(x.CapacityBytes), x.State, x.Verdict, render.Decimal(x.WriteBytes), render.Decimal(x.ReadBytes),
			render.Rate(float64(x.WriteIOPS)), render.Rate(float64(x.ReadIOPS)), waf, percentText(x.HealthPercent), x.why()})
	}
	p.Grid([]string{"run", "serial", ">capacity", "state", "verdict", ">written", ">read", ">write IOPS", ">read IOPS", ">WAF", ">health", "reason"}, rows)
	for _, x := range r.Runs {
		for _, n := range x.Notes {
			p.Line("  %s: %s", x.Run, n)
		}
	}
	p.Line("  journal: %s", r.Runs[0].Journal)
}
