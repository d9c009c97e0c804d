package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/nvmeioctl/inuse"
)

type soakCmd struct {
	Start  soakStartCmd  `cmd:"" help:"Start a soak; it runs until its end, a stop rule or Ctrl-C."`
	Resume soakResumeCmd `cmd:"" help:"Carry on a soak that was interrupted or killed."`
	Stop   soakStopCmd   `cmd:"" help:"Stop a soak that runs in another process; it can be resumed."`
	Status soakStatusCmd `cmd:"" help:"Show where a soak stands."`
	List   soakListCmd   `cmd:"" help:"List the soaks in the journal."`
}

type soakStartCmd struct {
	Address string `arg:"" help:"/dev/nvme0n1, sim:FILE, sim:PROFILE or file:PATH." placeholder:"ADDR"`
	Name    string `help:"What to call the run." placeholder:"NAME"`
	jobFlags
	soakFlags
}

func (soakStartCmd) Help() string {
	return `Everything is journaled at least once a second: after a kill or a reboot, soak resume goes on, and nothing is counted twice.

Example:
  nvop soak start /dev/nvme0n1 --rw randwrite --bs 4KiB --qd 256 --duration 24h --stop temperature=75 --confirm-serial S1234
  nvop soak start sim:drive.nvop --rw randwrite --size 100TB --time-lapse 2048 --confirm-serial SIM1`
}

func (c soakStartCmd) Run(ctx context.Context, a *app) (err error) {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	if strings.ContainsFunc(c.Name, unicode.IsControl) {
		return usagef("--name %q: control characters would spoil every list", c.Name)
	}
	t, err := a.openSoak(ctx, c.Address, c.soakFlags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	job, err := c.job(t.region)
	if err != nil {
		return err
	}
	s, err := a.prepareSoak(ctx, t, c.soakFlags, kinds, job, "soak start --rw "+c.RW)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	h := t.header
	h.Name, h.Job, h.Version, h.Kernel = c.Name, job, version, kernelRelease()
	h.Host, _ = os.Hostname()
	h.StartWallUnixNS = s.wall()
	if s.recorder, err = s.journal.BeginRun(ctx, h); err != nil {
		return err
	}
	return s.run(ctx, nil, h)
}

type soakResumeCmd struct {
	Run_    string `arg:"" name:"run" optional:"" help:"The run, by ID or name (default: the last one)." placeholder:"RUN"`
	Address string `help:"Where the drive is now, if its address has changed." placeholder:"ADDR"`
	soakFlags
}

func (soakResumeCmd) Help() string {
	return "Binds to the same drive by its identity, whatever its node is called now, and needs the same consent as the start.\n\nExample: nvop soak resume r3 --confirm-serial S1234"
}

func (c soakResumeCmd) Run(ctx context.Context, a *app) (err error) {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	info, err := a.findRun(ctx, c.Run_)
	if err != nil {
		return err
	}
	if !info.State.Resumable() {
		return fmt.Errorf("run %s is %s: there is nothing to resume", info.ID, info.State)
	}
	address, err := c.whereIs(info.Header)
	if err != nil {
		return err
	}
	flags := c.soakFlags
	flags.NSID, flags.Overwrite, flags.resumed = info.Header.NSID, true, info.Header.Job.CapacityBytes
	t, err := a.openSoak(ctx, address, flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.same(info.Header); err != nil {
		return err
	}
	s, err := a.prepareSoak(ctx, t, flags, kinds, info.Header.Job, "soak resume "+info.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	recorder, full, err := s.journal.ResumeRun(ctx, info.ID)
	if err != nil {
		return err
	}
	s.recorder = recorder
	return s.run(ctx, &full, full.Header)
}

// whereIs finds the address of the run's drive today: where it was, or the
// controller of this host with its serial number.
func (c soakResumeCmd) whereIs(h run.Header) (string, error) {
	if c.Address != "" || h.Simulated || h.Serial == "file:"+h.Address || h.Model == "file" {
		return cmp.Or(c.Address, h.Address), nil
	}
	return findBySerial(h)
}

// soakSession is a run in this process.
type soakSession struct {
	app      *app
	target   *soakTarget
	kinds    []inuse.Kind
	job      run.Job
	lock     *driveLock
	journal  *journal.Journal
	recorder *journal.Recorder
}

// prepareSoak gets consent, the drive's lock and the journal.
func (a *app) prepareSoak(ctx context.Context, t *soakTarget, f soakFlags, kinds []inuse.Kind, job run.Job, what string) (*soakSession, error) {
	s := &soakSession{app: a, target: t, kinds: kinds, job: job}
	if err := a.notTheJournal(t); err != nil {
		return nil, err
	}
	if s.writes() {
		if err := t.check(ctx, kinds); err != nil {
			return nil, err
		}
		if err := t.checkFile(f.Overwrite); err != nil {
			return nil, err
		}
		if t.drive != nil {
			losses := []string{fmt.Sprintf("destroys all data of namespace %d", t.ns.NSID)}
			if err := a.confirm(ctx, f.consentFlags, t.serial, what, losses); err != nil {
				return nil, err
			}
		}
		if err := t.hold(); err != nil {
			return nil, err
		}
	}
	if err := s.probe(); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = lockDrive(lockDir(a.getenv), t.serial, t.address, what); err != nil {
		return nil, err
	}
	if s.journal, err = a.openJournal(ctx, journal.ReadWrite); err != nil {
		return nil, errors.Join(err, s.lock.release())
	}
	if t.drive != nil {
		if err := noneUnfinished(ctx, s.journal, t.serial); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
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
	q, err := s.target.queues(s.job, s.writes(), s.app.clock)(0)
	if err != nil {
		return err
	}
	return q.Close()
}

func (s *soakSession) writes() bool {
	for _, p := range s.job.Phases {
		if p.Pattern != run.PatternNone && p.ReadPercent < 100 {
			return true
		}
	}
	return false
}

func (s *soakSession) close() error {
	return errors.Join(s.journal.Close(), s.lock.release())
}

// wall is the calendar time of the drive's world.
func (s *soakSession) wall() int64 {
	if s.target.drive != nil {
		return s.target.drive.clock.Wall().UnixNano()
	}
	return s.app.clock.Wall().UnixNano()
}

// run carries the job out and prints what came of it. from is nil for a new run.
func (s *soakSession) run(ctx context.Context, from *journal.Run, h run.Header) error {
	t := s.target
	show := s.app.newProgress(s.recorder.ID())
	cfg := endurance.Config{
		Job: s.job, Recorder: s.recorder, Queues: t.queues(s.job, s.writes(), s.app.clock), Sampler: t.sampler(),
		Processors: t.processors(),
		Observer:   show, Clock: s.app.clock, StartWallUnixNS: h.StartWallUnixNS,
		BeforePhase: func(ctx context.Context, _ int) error {
			if !s.writes() {
				return nil
			}
			return t.check(ctx, s.kinds)
		},
	}
	var err error
	if cfg.Path, err = t.watchPath(); err != nil {
		s.app.note("the PCIe path is not watched: %v", err)
	}
	if from != nil {
		cfg.Resume, cfg.Samples = from.Checkpoint, from.Samples
	}
	verdict, err := s.drive(ctx, cfg)
	show.close()
	r := newSoakResult(s.recorder.ID(), h, verdict, s.journal.Path())
	if perr := s.app.print(r); perr != nil {
		return errors.Join(perr, err)
	}
	if err != nil {
		return reported{&codedError{max(exitCode(err), verdict.ExitCode), err}}
	}
	if verdict.ExitCode != exitOK {
		return reported{&codedError{verdict.ExitCode, fmt.Errorf("run %s: %s: %s%s", s.recorder.ID(), verdict.State, verdict.Reason, resumeHint(s.recorder.ID(), verdict))}}
	}
	return nil
}

func resumeHint(id string, v run.Verdict) string {
	if v.State.Resumable() {
		return "; go on with: nvop soak resume " + id
	}
	return ""
}

// drive runs the engine in the drive's own time.
func (s *soakSession) drive(ctx context.Context, cfg endurance.Config) (run.Verdict, error) {
	d := s.target.drive
	if d == nil || d.sim == nil {
		return endurance.Run(ctx, cfg)
	}
	cfg.SaveDrive = d.sim.Save
	return endurance.Simulate(ctx, cfg, d.sim.Clock())
}
