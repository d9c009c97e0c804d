package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/nvmeioctl"
)

// runArg names a run.
type runArg struct {
	Run_ string `arg:"" name:"run" optional:"" help:"The run, by ID or name (default: the last one)." placeholder:"RUN"`
}

// findRun finds a run in the journal, the last one where none is named.
func (a *app) findRun(ctx context.Context, ref string) (info journal.RunInfo, err error) {
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return info, errors.New("there is no journal yet, so no run")
	}
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if ref == "" {
		return j.LastRun(ctx)
	}
	return j.FindRun(ctx, ref)
}

// findBySerial finds the controller of this host that is the run's drive now,
// and the address of the run's namespace on it.
func findBySerial(h run.Header) (string, error) {
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		return "", err
	}
	for _, c := range inv.Controllers {
		if c.Serial == h.Serial && c.SubsystemNQN == h.SubsystemNQN && c.CNTLID == h.CNTLID {
			return c.Node, nil
		}
	}
	return "", fmt.Errorf("drive %s (%s) is not on this host: %w", h.Serial, h.Model, nvmeioctl.ErrDeviceGone)
}

type soakStopCmd struct {
	runArg
	Wait time.Duration `default:"60s" help:"How long to wait until it has stopped." placeholder:"TIME"`
}

func (soakStopCmd) Help() string {
	return "Asks the process that runs the soak to end as Ctrl-C would: what is outstanding is waited for and everything is saved. The runs that one process has side by side stop together.\n\nExample: nvop soak stop r3"
}

func (c soakStopCmd) Run(ctx context.Context, a *app) error {
	info, err := a.findRun(ctx, c.Run_)
	if err != nil {
		return err
	}
	path := lockPath(lockDir(a.getenv), info.Header.Serial, info.Header.Address)
	pid, what, err := lockHolder(path)
	if err != nil {
		return err
	}
	if pid == 0 || !strings.HasPrefix(what, "soak ") {
		return fmt.Errorf("run %s (%s) is not running on this host", info.ID, info.State)
	}
	others, err := a.runsOf(ctx, pid, info.ID)
	if err != nil {
		return err
	}
	if len(others) != 0 {
		a.note("%s is one of the runs of process %d: %s stop with it", info.ID, pid, strings.Join(others, ", "))
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for deadline := a.clock.Now().Add(c.Wait); ; {
		now, _, err := lockHolder(path)
		if err != nil {
			return err
		}
		if now != pid {
			break
		}
		if a.clock.Now() > deadline {
			return fmt.Errorf("process %d was asked to stop and has not ended within %s", pid, c.Wait)
		}
		if err := a.clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	r, err := a.status(ctx, info.ID)
	if err != nil {
		return err
	}
	r.StoppedToo = others
	return a.print(r)
}

// runsOf lists the runs that a process is at work on, but for one.
func (a *app) runsOf(ctx context.Context, pid int, but string) (ids []string, err error) {
	infos, err := a.allRuns(ctx)
	for _, info := range infos {
		if info.State != run.StateRunning || info.ID == but {
			continue
		}
		holder, what, err := lockHolder(lockPath(lockDir(a.getenv), info.Header.Serial, info.Header.Address))
		if err == nil && holder == pid && strings.HasPrefix(what, "soak ") {
			ids = append(ids, info.ID)
		}
	}
	return ids, err
}

// lockHolder says which process holds a drive's lock and what for; 0 for none.
func lockHolder(path string) (pid int, what string, err error) {
	held, err := isLocked(path)
	if err != nil || !held {
		return 0, "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, "", err
	}
	number, what, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(text)), "process "), ", ")
	pid, err = strconv.Atoi(number)
	if err != nil {
		return 0, "", fmt.Errorf("drive lock %s: it does not say who holds it", path)
	}
	return pid, what, nil
}

type soakStatusCmd struct{ runArg }

func (soakStatusCmd) Help() string { return "Example: nvop soak status r3 -o json" }

func (c soakStatusCmd) Run(ctx context.Context, a *app) error {
	r, err := a.status(ctx, c.Run_)
	if err != nil {
		return err
	}
	return a.print(r)
}

// status is a run as its journal has it, in detail.
func (a *app) status(ctx context.Context, ref string) (r soakResult, err error) {
	info, err := a.findRun(ctx, ref)
	if err != nil {
		return r, err
	}
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	r = statusOf(info, j.Path(), a.runs(info))
	return r, r.detail(ctx, j, &info)
}

// told says whether a run's verdict tells how it stands. It does not where the run
// is at work or was killed: what it would say is in the journal then.
func told(info journal.RunInfo) bool { return info.Verdict != nil && info.State != run.StateRunning }

// standing is a run as its journal has it.
func (a *app) standing(ctx context.Context, j *journal.Journal, info journal.RunInfo) (soakResult, error) {
	r := statusOf(info, j.Path(), a.runs(info))
	if told(info) {
		return r, nil
	}
	full, err := j.LoadRun(ctx, info.ID)
	if err == nil {
		r.soFar(&full)
	}
	return r, err
}

// standingOf is the same for a run whose journal is not open; where it cannot be
// read, what is known of the run.
func (a *app) standingOf(ctx context.Context, info journal.RunInfo) (r soakResult, err error) {
	path, _ := a.journalFile()
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if err != nil {
		return statusOf(info, path, false), err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return a.standing(ctx, j, info)
}

// soFar fills in what the journal has of a run without a verdict: time at work,
// WAF of the present workload, health, and the phases that are over.
func (r *soakResult) soFar(full *journal.Run) run.WAF {
	v, ok := endurance.VerdictSoFar(&full.Header.Job, full.Checkpoint, full.Samples)
	if !ok {
		return run.WAF{}
	}
	r.DurationSeconds = float64(full.Checkpoint.RunActiveNS) / 1e9
	r.elapsed(full.Seconds)
	r.waf(v.WAF)
	if m, ok := v.Measured(); ok {
		r.measured(m)
	}
	r.health(&v)
	return v.WAF
}

// allRuns lists the runs of the journal, oldest first; none where there is no
// journal.
func (a *app) allRuns(ctx context.Context) (infos []journal.RunInfo, err error) {
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return j.Runs(ctx)
}

// runs says whether a process of this host is at work on the run's drive.
func (a *app) runs(info journal.RunInfo) bool {
	pid, what, err := lockHolder(lockPath(lockDir(a.getenv), info.Header.Serial, info.Header.Address))
	return err == nil && pid != 0 && strings.HasPrefix(what, "soak ") && info.State == run.StateRunning
}

// statusOf is a run as its journal has it. A run that says it is running while
// no process is was killed: it can be resumed.
func statusOf(info journal.RunInfo, path string, running bool) soakResult {
	v := run.Verdict{State: info.State, Reason: info.StopReason, Totals: info.Totals}
	if info.Verdict != nil {
		v = *info.Verdict
	}
	r := newSoakResult(info.ID, info.Header, v, path)
	r.totals(info.Totals)
	r.State = string(info.State)
	r.elapsed(info.Seconds)
	switch {
	case running:
		r.Verdict = "running"
	case info.State == run.StateRunning:
		r.Verdict, r.Reason = "interrupted", "no process is at work on it: killed, or the host restarted"
	}
	return r
}

type soakListCmd struct{}

func (soakListCmd) Help() string { return "Example: nvop soak list" }

type soakListResult struct {
	Schema string       `json:"schema"`
	Runs   []soakResult `json:"runs"`
}

func (r soakListResult) Text(p *render.Page) {
	var rows [][]string
	for _, x := range r.Runs {
		waf := "-"
		if x.WAF != nil {
			waf = fmt.Sprintf("%.3f", *x.WAF)
		}
		rows = append(rows, []string{x.Run, x.Name, x.Serial, render.Decimal(x.CapacityBytes), render.Decimal(x.WriteBytes),
			render.Decimal(x.ReadBytes), waf, x.State, x.Verdict})
	}
	p.Grid([]string{"run", "name", "serial", ">capacity", ">written", ">read", ">WAF", "state", "verdict"}, rows)
}

func (soakListCmd) Run(ctx context.Context, a *app) (err error) {
	r := soakListResult{Schema: "nvop.soak-list/1", Runs: []soakResult{}}
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return a.print(r)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	infos, err := j.Runs(ctx)
	if err != nil {
		return err
	}
	for _, info := range infos {
		x, err := a.standing(ctx, j, info)
		if err != nil {
			return err
		}
		r.Runs = append(r.Runs, x)
	}
	return a.print(r)
}
