package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/sim"
)

// soakSession is one run in this process.
type soakSession struct {
	app    *app
	target *soakTarget
	kinds  []inuse.Kind
	job    run.Job
	flags  soakFlags
	// from is the run that is resumed, empty for a new one, and before how it stood.
	from string
	// replaced says that a file's contents may be others than the run left there.
	replaced bool
	before   journal.RunInfo
	header   run.Header
	// lock is that of the drive or path, and locks those of the data behind a
	// path, whatever else leads there.
	lock     *driveLock
	locks    []*driveLock
	journal  *journal.Journal
	recorder *journal.Recorder
	// past is what the journal knew of the drive before, and remarks what is to be
	// said of the job on it.
	past    drivePast
	remarks []string
	// note writes a remark while the run lasts; several goroutines do.
	note func(format string, args ...any)
	full *journal.Run
}

// agree gets consent and makes sure that the drive can be soaked.
func (s *soakSession) agree(ctx context.Context, what string) error {
	t := s.target
	if err := s.app.notTheJournal(t); err != nil {
		return err
	}
	if s.writes() {
		if err := t.check(ctx, s.kinds); err != nil {
			return err
		}
		if err := t.checkFile(s.flags.Overwrite); err != nil {
			return err
		}
		if t.drive != nil {
			consent := s.flags.consentFlags
			consent.ConfirmSerial = serialFor(consent.ConfirmSerial, t.serial)
			losses := []string{fmt.Sprintf("destroys all data of namespace %d", t.ns.NSID)}
			if err := s.app.confirm(ctx, consent, t.serial, what, losses); err != nil {
				return s.consentRemedy(err)
			}
		}
		if err := t.hold(); err != nil {
			return err
		}
	}
	return s.probe()
}

// consentRemedy names what a run can be looked at with before it is resumed, which
// has no --dry-run.
func (s *soakSession) consentRemedy(err error) error {
	e, ok := errors.AsType[*nvmeioctl.RefusedError](err)
	if !ok || s.from == "" || s.flags.ConfirmSerial != "" {
		return err
	}
	e.Remedy = fmt.Sprintf("add --confirm-serial %s (nvop soak status %s shows what goes on)", s.target.serial, s.from)
	return err
}

// serialFor picks a drive's serial number out of a list of them; where it is not
// among them the list stays, and will not be taken for it.
func serialFor(list, serial string) string {
	if named(list, serial) {
		return serial
	}
	return list
}

// named says whether a list of serial numbers holds one, which may have commas of
// its own where it is that of a file.
func named(list, serial string) bool { return strings.Contains(","+list+",", ","+serial+",") }

// checkSerials refuses serial numbers that are none of the drives': whoever gave
// one meant another drive than these, whatever else would allow the run.
func (g *soakGroup) checkSerials() error {
	rest, want := ","+g.flags.ConfirmSerial+",", []string{}
	for _, s := range g.sessions {
		for want = append(want, s.target.serial); named(strings.Trim(rest, ","), s.target.serial); {
			rest = strings.Replace(rest, ","+s.target.serial+",", ",", 1)
		}
	}
	if rest = strings.Trim(rest, ", "); rest == "" {
		return nil
	}
	return refusedf("consent", "drive "+strings.Join(want, ", "), "nvop show prints a drive's serial number; a file's is what the run is on: file:PATH",
		"--confirm-serial says %q; nothing was changed", rest)
}

// agreeToFile refuses to go on with a file that a list of what may be gone on with
// does not name. A file needs no consent where there is no list.
func (s *soakSession) agreeToFile() error {
	if list := s.flags.ConfirmSerial; s.target.drive == nil && s.writes() && list != "" && !named(list, s.target.serial) {
		return refusedf("consent", "drive "+s.target.serial, "", "--confirm-serial says %q; nothing was changed", list)
	}
	return nil
}

// take takes the drive's lock and looks for changes that were not finished.
func (s *soakSession) take(ctx context.Context, j *journal.Journal, what string) (err error) {
	s.journal = j
	if s.lock, err = lockDrive(lockDir(s.app.getenv), s.target.serial, s.target.address, what); err != nil {
		return err
	}
	if s.target.drive != nil {
		return noneUnfinished(ctx, j, s.target.serial)
	}
	if s.locks, err = lockData(lockDir(s.app.getenv), s.target.path, what); err != nil {
		return err
	}
	return s.checkContents(ctx)
}

// checkContents refuses to go on with a file whose contents have been replaced
// since, which neither its name nor its inode tells.
func (s *soakSession) checkContents(ctx context.Context) (err error) {
	const blocks = 64
	if s.from == "" || s.replaced || !s.writes() {
		return nil
	}
	full, err := s.journal.LoadRun(ctx, s.from)
	if err != nil || full.Checkpoint == nil {
		return err
	}
	h := &full.Header
	w := endurance.Written{Job: h.Job, Checkpoint: *full.Checkpoint, StartWallUnixNS: h.StartWallUnixNS, Drive: h.Drive()}
	f, err := os.Open(s.target.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	found, err := w.Survey(f, blocks)
	if err != nil || !found.Replaced() {
		return err
	}
	return refusedf("contents", s.target.address, "add --overwrite to lose what is there now",
		"it holds something else than run %s left there: of %d logical blocks that the run wrote, %d are not its own", s.from, found.Own+found.Foreign, found.Foreign)
}

// notTheJournal refuses to soak the file in which the soak is recorded.
func (a *app) notTheJournal(t *soakTarget) error {
	path, err := a.journalFile()
	if err != nil || t.path == "" {
		return err
	}
	journalInfo, jerr := os.Stat(path)
	info, err := os.Stat(t.path)
	if err == nil && jerr == nil && os.SameFile(info, journalInfo) {
		return refusedf("target", t.address, "", "it is the journal itself")
	}
	return err
}

// probe opens a queue and closes it again, so that what cannot be opened is
// said before a run is recorded.
func (s *soakSession) probe() error {
	if d := s.target.drive; d != nil && d.sim != nil && s.job.Checks() && s.job.Verify.Of == nil {
		if err := s.fitsMemory(); err != nil {
			return err
		}
		// What is to be compared has to be kept, from now on.
		if err := d.sim.KeepContents(); err != nil {
			return err
		}
	}
	q, err := s.target.queues(s.job, s.writes(), s.app.clock)(0)
	if err != nil {
		return err
	}
	if d, ok := q.(nvmeioctl.DataDiscarder); ok && d.DiscardsData() && s.job.Checks() {
		err = &nvmeioctl.UnsupportedError{Feature: "comparing what is on " + s.target.address, Needs: "a drive that keeps its contents", Have: "this one kept none"}
	}
	return errors.Join(err, q.Close())
}

// fitsMemory refuses to compare more than a drive that lives in memory can keep.
func (s *soakSession) fitsMemory() error {
	const most = 1 << 30 // what package sim keeps without a file
	if !passing(s.target.address) {
		return nil
	}
	outlook, err := endurance.Outlook(&s.job, nil)
	if err != nil {
		return err
	}
	written := 0.0
	for _, o := range outlook {
		written += o.WriteBytes
	}
	if min(written, float64(s.job.CapacityBytes)) <= most {
		return nil
	}
	return &nvmeioctl.UnsupportedError{
		Feature: fmt.Sprintf("comparing %s that %s is to keep", render.Decimal(uint64(min(written, float64(s.job.CapacityBytes)))), s.target.address),
		Needs:   "a drive in a file (nvop sim create)", Have: "one that lives as long as this command keeps 1 GiB at most, in memory",
	}
}

// passing says whether an address is that of a simulated drive that lives as long
// as its command.
func passing(address string) bool {
	name, ok := strings.CutPrefix(address, "sim:")
	if !ok {
		return false
	}
	if _, err := os.Stat(name); err == nil {
		return false
	}
	_, known := sim.LookupProfile(name)
	return known
}

func (s *soakSession) writes() bool {
	for _, p := range s.job.Phases {
		if p.Pattern != run.PatternNone && p.ReadPercent < 100 {
			return true
		}
	}
	return false
}

// close gives lock and drive back.
func (s *soakSession) close() error {
	err := s.target.close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.release())
	}
	for _, l := range s.locks {
		err = errors.Join(err, l.release())
	}
	return err
}

// wall is the calendar time of the drive's world.
func (s *soakSession) wall() int64 {
	if s.target.drive != nil {
		return s.target.drive.clock.Wall().UnixNano()
	}
	return s.app.clock.Wall().UnixNano()
}

// begin records a new run, or takes up the one to be resumed.
func (s *soakSession) begin(ctx context.Context, name, group string) (err error) {
	if s.from != "" {
		var full journal.Run
		if s.recorder, full, err = s.journal.ResumeRun(ctx, s.from); err == nil {
			s.full, s.header = &full, full.Header
		}
		return err
	}
	h := s.target.header
	h.Name, h.Group, h.Job, h.Version, h.Kernel = name, group, s.job, version, kernelRelease()
	if h.Host, err = os.Hostname(); err != nil {
		h.Host = ""
	}
	h.StartWallUnixNS = s.wall()
	s.header = h
	s.recorder, err = s.journal.BeginRun(ctx, h)
	return err
}

// stretch carries the job out until it is over or interrupted.
func (s *soakSession) stretch(ctx context.Context, show endurance.Observer, watch *soakWatch) (run.Verdict, error) {
	t := s.target
	cfg := endurance.Config{
		Job: s.job, Recorder: watch.recorder(s), Queues: t.queues(s.job, s.writes(), s.app.clock), Sampler: t.sampler(),
		Processors: t.processors(), Observer: show, Clock: s.app.clock, StartWallUnixNS: s.header.StartWallUnixNS,
		Drive: s.header.Drive(),
		BeforePhase: func(ctx context.Context, _ int) error {
			if !s.writes() {
				return nil
			}
			return t.check(ctx, s.kinds)
		},
	}
	var err error
	if cfg.Path, err = t.watchPath(); err != nil {
		s.note("the PCIe path is not watched: %v", err)
	}
	if cfg.Of, err = s.written(ctx); err != nil {
		return run.Verdict{State: run.StateInterrupted, Reason: err.Error(), ExitCode: run.ExitInterrupted}, err
	}
	if s.full != nil {
		cfg.Resume, cfg.Samples = s.full.Checkpoint, s.full.Samples
	}
	cfg.MapFile = s.journal.GenerationMapFile(s.recorder.ID())
	if s.job.Checks() {
		if cfg.Runs, err = knownRuns(ctx, s.journal); err != nil {
			s.note("blocks of other runs are not named: %v", err)
		}
	}
	d := t.drive
	if d == nil || d.sim == nil {
		return endurance.Run(ctx, cfg)
	}
	cfg.SaveDrive = d.sim.Save
	return endurance.Simulate(ctx, cfg, d.sim.Clock())
}

// result is what came of it, and the error that the command ends with.
func (s *soakSession) result(v run.Verdict, err error) (soakResult, error) {
	id := s.recorder.ID()
	r := newSoakResult(id, s.header, v, s.journal.Path())
	r.Notes = append(slices.Clone(s.remarks), r.Notes...)
	err = errors.Join(err, r.Verified.list(context.Background(), s.journal, id))
	info, ierr := s.journal.FindRun(context.Background(), id)
	r.elapsed(info.Seconds)
	err = errors.Join(err, ierr)
	switch {
	case err != nil:
		return r, &codedError{max(exitCode(err), v.ExitCode), err}
	case r.Verified != nil && r.Verified.MismatchesTotal != 0 && v.ExitCode == run.ExitLimits:
		return r, &codedError{v.ExitCode, fmt.Errorf("run %s: %d logical blocks are not as they were written", id, r.Verified.MismatchesTotal)}
	case v.ExitCode != exitOK:
		return r, &codedError{v.ExitCode, fmt.Errorf("run %s: %s%s", id, outcomeText(v), s.resumeHint(id, v))}
	}
	return r, nil
}

// outcomeText says how a run that did not pass ended, and why that is not good.
func outcomeText(v run.Verdict) string {
	if v.State == run.StateFinished {
		return "finished, and failed: " + strings.Join(v.Notes, "; ")
	}
	if v.Reason == "" || v.Reason == string(v.State) {
		return string(v.State)
	}
	return fmt.Sprintf("%s: %s", v.State, v.Reason)
}

func (s *soakSession) resumeHint(id string, v run.Verdict) string {
	if v.State.Resumable() && !passing(s.header.Address) {
		return "; go on with: nvop soak resume " + id
	}
	return ""
}
