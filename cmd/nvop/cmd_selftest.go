package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/nvmespec"
)

type selftestCmd struct {
	Start  selftestStartCmd  `cmd:"" help:"Start a self-test."`
	Abort  selftestAbortCmd  `cmd:"" help:"Stop the self-test that runs."`
	Status selftestStatusCmd `cmd:"" help:"Show the self-test that runs and the results of the last ones."`
}

// waitFlags are those of commands that can wait for what runs in the background.
type waitFlags struct {
	Wait bool          `help:"Wait for the end, with progress. An interruption stops the waiting, not the drive."`
	Poll time.Duration `default:"2s" help:"How often to look while waiting." placeholder:"TIME"`
}

func (w waitFlags) check() error {
	if w.Poll < 100*time.Millisecond || w.Poll > time.Hour {
		return usagef("--poll %s: 100ms to 1h is possible", w.Poll)
	}
	return nil
}

type selftestStartCmd struct {
	driveArg
	Extended bool   `help:"The extended test instead of the short one."`
	NSID     uint32 `name:"nsid" help:"Test this namespace with the controller (default: all namespaces)." placeholder:"N"`
	waitFlags
	traceFlag
}

func (selftestStartCmd) Help() string {
	return `A self-test changes no data; the drive is slower meanwhile, and firmware faults in it have stopped drives. It runs in the background and ends by itself; a format, a sanitize or a reset ends it early.

Example:
  nvop selftest start /dev/nvme0 --wait`
}

// selftestResult is the state of self-tests.
type selftestResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	Serial  string `json:"serial"`
	// State says it in a word: "idle", "running", "passed", "failed", "aborted".
	State string `json:"state"`
	// ExtendedMinutes is how long an extended test takes by the drive's word.
	ExtendedMinutes uint16               `json:"extended_minutes"`
	Log             nvmespec.SelfTestLog `json:"log"`
}

func (r selftestResult) Text(p *render.Page) {
	p.Line("self-tests of %s, serial number %s", r.Address, r.Serial)
	if r.Log.Running() {
		p.Pairs("running", fmt.Sprintf("%s test, %d %% done", r.Log.Current, r.Log.CompletedPercent.Or(0)))
	} else {
		p.Pairs("running", "none")
	}
	var rows [][]string
	for i, t := range r.Log.Results {
		where := ""
		if v, ok := t.FailingLBA.Get(); ok {
			where = fmt.Sprintf("LBA %d", v)
		}
		if v, ok := t.NSID.Get(); ok {
			where += " of namespace " + nsidText(v)
		}
		if t.Outcome == nvmespec.SelfTestFailedSegment {
			where += fmt.Sprintf(" segment %d", t.SegmentNumber)
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), t.Code.String(), t.Outcome.String(), fmt.Sprint(t.PowerOnHours), where})
	}
	p.Grid([]string{">", "test", "result", ">power-on hours", "where"}, rows)
}

// selftests is a drive whose self-tests are looked at.
type selftests struct {
	a    *app
	d    *drive
	ctrl nvmespec.Controller
}

// withSelftests opens a drive that has self-tests.
func (a *app) withSelftests(ctx context.Context, address string, f traceFlag, do func(s *selftests) error) (err error) {
	d, err := a.open(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, f); err != nil {
		return err
	}
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return err
	}
	if ctrl.Admin&nvmespec.AdminSelfTest == 0 {
		return &nvmeioctl.UnsupportedError{Feature: "a self-test", Needs: "a drive with the device self-test command (OACS bit 4)"}
	}
	return do(&selftests{a, d, ctrl})
}

// log reads the self-test log; some drives announce self-tests and refuse it.
func (s *selftests) log(ctx context.Context) (nvmespec.SelfTestLog, error) {
	l, err := admin.SelfTestLog(ctx, s.d.dev)
	if err != nil && admin.IsUnsupported(err) {
		return l, &codedError{exitUnsupported, fmt.Errorf("the drive announces self-tests and has no log of them: %w", err)}
	}
	return l, err
}

// allow opens the guard for self-tests of a namespace, or of all, and nothing else.
func (s *selftests) allow(nsid uint32) {
	s.d.dev = layer.Guard(s.d.dev, layer.Grant{
		Identity: admin.IdentityOf(s.ctrl), Classes: nvmespec.ClassSelfTest, Expires: s.d.expiry(), Clock: s.d.clock,
		NSIDs: []uint32{nsid},
	})
}

// result is the document about a log. ours says that its newest result is of a
// test that this command started, stopped or waited for.
func (s *selftests) result(l nvmespec.SelfTestLog, ours bool) selftestResult {
	r := selftestResult{Schema: "nvop.selftest/1", Address: s.d.address, Serial: s.ctrl.SerialNumber, State: "idle",
		ExtendedMinutes: s.ctrl.SelfTestMinutes, Log: l}
	switch {
	case l.Running():
		r.State = "running"
	case !ours || len(l.Results) == 0:
	case l.Results[0].Outcome == nvmespec.SelfTestPassed:
		r.State = "passed"
	case l.Results[0].Outcome.Failed():
		r.State = "failed"
	default:
		r.State = "aborted"
	}
	return r
}

// wait looks until no test runs.
func (s *selftests) wait(ctx context.Context, every time.Duration) (nvmespec.SelfTestLog, error) {
	if err := s.d.goesOn(); err != nil {
		return nvmespec.SelfTestLog{}, err
	}
	progress := render.NewProgress(s.a.err, terminal(s.a.err), 10)
	defer progress.Close()
	shown := -1
	for {
		l, err := s.log(ctx)
		if err != nil && ctx.Err() == nil {
			return l, err
		}
		if err == nil && !l.Running() {
			return l, nil
		}
		if done := int(l.CompletedPercent.Or(0)); err == nil && done != shown {
			shown = done
			progress.Set(int64(done)*10, fmt.Sprintf("%s self-test of drive %s", l.Current, s.ctrl.SerialNumber))
		}
		if s.d.clock.Sleep(ctx, every) != nil {
			return l, &codedError{exitPartly, fmt.Errorf("interrupted; the self-test goes on in the drive, %d %% done (nvop selftest status %s --wait follows it, nvop selftest abort %s stops it)",
				max(shown, 0), s.d.address, s.d.address)}
		}
	}
}

// conclude prints the result of a test that was waited for.
func (s *selftests) conclude(l nvmespec.SelfTestLog) error {
	r := s.result(l, true)
	perr := s.a.print(r)
	switch r.State {
	case "failed":
		return errors.Join(perr, reported{&codedError{exitFindings, fmt.Errorf("%s: the self-test %s", s.d.address, l.Results[0].Outcome)}})
	case "aborted":
		return errors.Join(perr, reported{&codedError{exitFailed, fmt.Errorf("%s: the self-test was %s", s.d.address, l.Results[0].Outcome)}})
	}
	return perr
}

// begun is an error after a test was started all the same; nil stays nil.
func begun(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the self-test was started, but its state could not be shown: %w", err)
}

func (c selftestStartCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	return a.withSelftests(ctx, c.Drive, c.traceFlag, func(s *selftests) error {
		nsid, err := oneNSID(c.NSID, s.d.nsid)
		if err != nil {
			return err
		}
		if nsid == 0 {
			nsid = nvmespec.BroadcastNSID
		}
		code := nvmespec.SelfTestShort
		if c.Extended {
			code = nvmespec.SelfTestExtended
		}
		s.allow(nsid)
		if err := admin.StartSelfTest(ctx, s.d.dev, nsid, code); err != nil {
			if errors.Is(err, nvmespec.ErrSelfTestInProgress) {
				return fmt.Errorf("%w (nvop selftest status %s shows it)", err, c.Drive)
			}
			return err
		}
		if c.Wait {
			l, err := s.wait(ctx, c.Poll)
			if err != nil {
				return err
			}
			return s.conclude(l)
		}
		l, err := s.log(ctx)
		if err != nil {
			return begun(err)
		}
		return begun(a.print(s.result(l, false)))
	})
}

type selftestAbortCmd struct {
	driveArg
	traceFlag
}

func (selftestAbortCmd) Help() string { return "Example: nvop selftest abort /dev/nvme0" }

func (c selftestAbortCmd) Run(ctx context.Context, a *app) error {
	return a.withSelftests(ctx, c.Drive, c.traceFlag, func(s *selftests) error {
		before, err := s.log(ctx)
		if err != nil {
			return err
		}
		if before.Running() {
			s.allow(nvmespec.BroadcastNSID)
			if err := admin.AbortSelfTest(ctx, s.d.dev); err != nil {
				return err
			}
		}
		l, err := s.log(ctx)
		if err != nil {
			return err
		}
		return a.print(s.result(l, before.Running()))
	})
}

type selftestStatusCmd struct {
	driveArg
	waitFlags
	traceFlag
}

func (selftestStatusCmd) Help() string {
	return "Example: nvop selftest status /dev/nvme0 -o json"
}

func (c selftestStatusCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	return a.withSelftests(ctx, c.Drive, c.traceFlag, func(s *selftests) error {
		l, err := s.log(ctx)
		if err != nil {
			return err
		}
		if !c.Wait || !l.Running() {
			return a.print(s.result(l, false))
		}
		if l, err = s.wait(ctx, c.Poll); err != nil {
			return err
		}
		return s.conclude(l)
	})
}
