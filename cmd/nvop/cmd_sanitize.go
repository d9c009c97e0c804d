package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

type sanitizeCmd struct {
	Start       sanitizeStartCmd  `cmd:"" help:"Erase all data of the drive for good, in the background."`
	Status      sanitizeStatusCmd `cmd:"" help:"Show how far a sanitize is, or how the last one ended."`
	ExitFailure sanitizeExitCmd   `cmd:"" name:"exit-failure" help:"Leave the state of a failed sanitize."`
}

type sanitizeStartCmd struct {
	driveArg
	Action           string `enum:"block,crypto,overwrite" required:"" help:"block (erase the blocks), crypto (change the key) or overwrite." placeholder:"ACTION"`
	Passes           uint8  `default:"1" help:"How often to overwrite, 1 to 16." placeholder:"N"`
	Pattern          uint32 `default:"0" help:"What to overwrite with, 32 bits." placeholder:"N"`
	Invert           bool   `help:"Invert the pattern between passes."`
	NoDeallocate     bool   `help:"Ask the drive not to deallocate the blocks afterwards."`
	AllowExitFailure bool   `help:"Let sanitize exit-failure give the drive back if it fails (AUSE). Without it only another sanitize does."`
	waitFlags
	Stall time.Duration `default:"15m" help:"Say so when there was no progress for this long." placeholder:"TIME"`
	changeFlags
}

func (sanitizeStartCmd) Help() string {
	return `A sanitize reaches every namespace of the NVM subsystem, attached or not, and every controller. It cannot be stopped: it goes on after a reset and after a loss of power, and the drive refuses almost everything else until it has ended. Drives have been seen to stay in it for days.

Example:
  nvop sanitize start /dev/nvme0 --action crypto --wait --confirm-serial S1234`
}

// fields is the command that the flags ask for.
func (c sanitizeStartCmd) fields() nvmespec.SanitizeFields {
	f := nvmespec.SanitizeFields{AllowUnrestrictedExit: c.AllowExitFailure, NoDeallocate: c.NoDeallocate}
	switch c.Action {
	case "block":
		f.Action = nvmespec.SanitizeBlockErase
	case "crypto":
		f.Action = nvmespec.SanitizeCryptoErase
	default:
		f.Action, f.OverwritePasses, f.OverwritePattern, f.InvertPattern = nvmespec.SanitizeOverwriteMedia, c.Passes, c.Pattern, c.Invert
	}
	return f
}

// sanitizeResult is the state of a sanitize.
type sanitizeResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	Serial  string `json:"serial"`
	// Percent is how much is done, with two decimals; empty where none runs.
	Percent      string                        `json:"percent,omitempty"`
	Capabilities nvmespec.SanitizeCapabilities `json:"capabilities"`
	Log          nvmespec.SanitizeLog          `json:"log"`
	Transaction  string                        `json:"transaction,omitempty"`
	Journal      string                        `json:"journal,omitempty"`
	Notes        []string                      `json:"notes,omitempty"`
}

func (r sanitizeResult) Text(p *render.Page) {
	p.Line("sanitize of %s, serial number %s: %s", r.Address, r.Serial, r.Log.State)
	if r.Percent != "" {
		p.Pairs("progress", r.Percent+" %")
	}
	if r.Log.State != nvmespec.SanitizeNever {
		f := nvmespec.DecodeSanitizeFields(r.Log.Command, 0)
		p.Pairs("action", f.Action.String(), "nothing written since", yesNo(r.Log.GlobalDataErased))
	}
	seconds := func(o nvmespec.Opt[uint32]) string {
		if !o.OK {
			return "not reported"
		}
		return render.Duration(time.Duration(o.Value) * time.Second)
	}
	p.Pairs("block erase takes", seconds(r.Log.BlockEraseSeconds), "crypto erase takes", seconds(r.Log.CryptoEraseSeconds),
		"overwrite takes", seconds(r.Log.OverwriteSeconds))
	if r.Transaction != "" {
		p.Pairs("transaction", r.Transaction)
	}
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
}

// sanitizing is a drive whose sanitize is looked at.
type sanitizing struct {
	a     *app
	d     *drive
	ctrl  nvmespec.Controller
	stall time.Duration
}

func (a *app) withSanitize(ctx context.Context, address string, f traceFlag, do func(s *sanitizing) error) (err error) {
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
	if ctrl.Sanitize == 0 {
		return &nvmeioctl.UnsupportedError{Feature: "a sanitize", Needs: "a drive that announces one (SANICAP)", Have: "nvop format --erase may be there"}
	}
	return do(&sanitizing{a: a, d: d, ctrl: ctrl})
}

func (s *sanitizing) result(l nvmespec.SanitizeLog) sanitizeResult {
	r := sanitizeResult{Schema: "nvop.sanitize/1", Address: s.d.address, Serial: s.ctrl.SerialNumber, Capabilities: s.ctrl.Sanitize, Log: l}
	if l.Running() {
		r.Percent = sanitizePercent(l)
	}
	if l.State == nvmespec.SanitizeFailed {
		r.Notes = append(r.Notes, "the drive refuses almost everything until another sanitize succeeds, or, where it was started with --allow-exit-failure, until nvop sanitize exit-failure")
	}
	return r
}

func sanitizePercent(l nvmespec.SanitizeLog) string {
	n := l.Percent()
	return fmt.Sprintf("%d.%02d", n/100, n%100)
}

// wait looks until no sanitize runs. A sanitize that makes no progress is told of
// and waited for all the same: there is no stopping it.
func (s *sanitizing) wait(ctx context.Context, every time.Duration) (nvmespec.SanitizeLog, error) {
	if err := s.d.goesOn(); err != nil {
		return nvmespec.SanitizeLog{}, err
	}
	progress := render.NewProgress(s.a.err, terminal(s.a.err), 10)
	defer progress.Close()
	last, moved, began := nvmespec.SanitizeLog{}, s.d.clock.Now(), s.d.clock.Now()
	told := moved
	for {
		l, err := admin.SanitizeLog(ctx, s.d.dev)
		now := s.d.clock.Now()
		switch {
		case err != nil && ctx.Err() == nil:
			return l, err
		case err == nil && !l.Running():
			return l, nil
		case err == nil && (l.Progress != last.Progress || l.CompletedPasses != last.CompletedPasses):
			last, moved, told = l, now, now
			progress.Set(int64(l.Percent()/10), fmt.Sprintf("sanitize of drive %s, %s %%", s.ctrl.SerialNumber, sanitizePercent(l)))
		case s.stall > 0 && now.Sub(told) >= s.stall:
			told = now
			s.a.note("no progress since %s, at %s %% after %s: drives have stayed so for days; the sanitize cannot be stopped, a power cycle does not end it",
				render.Duration(now.Sub(moved)), sanitizePercent(last), render.Duration(now.Sub(began)))
		}
		if s.d.clock.Sleep(ctx, every) != nil {
			return l, &codedError{exitPartly, fmt.Errorf("interrupted; the sanitize goes on in the drive, %s %% done (nvop sanitize status %s --wait follows it; it cannot be stopped)",
				sanitizePercent(last), s.d.address)}
		}
	}
}

// conclude prints how a sanitize that was waited for ended.
func (s *sanitizing) conclude(r sanitizeResult) error {
	err := error(nil)
	if r.Transaction != "" {
		err = s.a.printChange(r, r.Transaction)
	} else {
		err = s.a.print(r)
	}
	if err != nil {
		return err
	}
	if r.Log.State == nvmespec.SanitizeFailed {
		return reported{&codedError{exitDriveError, fmt.Errorf("%s: the sanitize failed; the drive is to be sanitized again", s.d.address)}}
	}
	return nil
}

func (c sanitizeStartCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Stall < time.Second {
		return usagef("--stall %s: at least 1s", c.Stall)
	}
	if c.Action != "overwrite" && (c.Passes != 1 || c.Pattern != 0 || c.Invert) {
		return usagef("--passes, --pattern and --invert are for --action overwrite, not for %s", c.Action)
	}
	return a.withSanitize(ctx, c.Drive, c.traceFlag, func(s *sanitizing) error {
		s.stall = c.Stall
		f := c.fields()
		if err := f.Validate(); err != nil {
			return usagef("--passes %d: %v", c.Passes, err)
		}
		if !s.ctrl.Sanitize.Has(f.Action) {
			return &nvmeioctl.UnsupportedError{Feature: "sanitize by " + f.Action.String(), Needs: "a drive that announces it",
				Have: fmt.Sprintf("this one announces %s", capabilityText(s.ctrl.Sanitize))}
		}
		p, err := s.plan(ctx, f)
		if err != nil {
			return err
		}
		return s.start(ctx, c.changeFlags, c.waitFlags, p)
	})
}

func capabilityText(c nvmespec.SanitizeCapabilities) string {
	b, _ := c.MarshalJSON()
	var names []string
	_ = json.Unmarshal(b, &names)
	return fmt.Sprint(names)
}

// plan is the one step, with everything that is lost and that will be different.
func (s *sanitizing) plan(ctx context.Context, f nvmespec.SanitizeFields) (namespace.Plan, error) {
	l, err := admin.SanitizeLog(ctx, s.d.dev)
	if err != nil {
		return namespace.Plan{}, err
	}
	if l.Running() {
		return namespace.Plan{}, refusedf("busy", s.d.address, "nvop sanitize status "+s.d.address+" --wait", "a sanitize runs already, %s %% done", sanitizePercent(l))
	}
	inv, err := s.d.inventory(ctx)
	if err != nil {
		return namespace.Plan{}, err
	}
	step, err := sanitizeStep(f)
	if err != nil {
		return namespace.Plan{}, err
	}
	p := namespace.Plan{
		Schema: namespace.PlanSchema, Title: step.Title, Address: s.d.address, Identity: inv.Identity,
		Steps: []txn.Step{step}, Before: inv.Namespaces, After: inv.Namespaces, Inventory: inv,
		Notes: []string{
			"it reaches every namespace of NVM subsystem " + inv.Identity.SubsystemNQN + ", also those attached to no controller or to others",
			"it cannot be stopped, and goes on after a reset and after a loss of power",
			"until it has ended the drive refuses reads, writes and almost all admin commands",
		},
	}
	p.Destroys = append(p.Destroys, step.Destroys)
	for _, ns := range inv.Namespaces {
		p.Destroys = append(p.Destroys, fmt.Sprintf("all data of namespace %d, %s", ns.NSID, render.Size(ns.SizeBytes())))
	}
	if seconds, ok := l.Estimate(f).Get(); ok {
		p.Notes = append(p.Notes, "the drive says it takes "+render.Duration(time.Duration(seconds)*time.Second))
	} else {
		p.Notes = append(p.Notes, "the drive does not say how long it takes")
	}
	if f.Action != nvmespec.SanitizeExitFailure && !f.AllowUnrestrictedExit {
		p.Notes = append(p.Notes, "if it fails, only another sanitize gives the drive back (--allow-exit-failure would allow to give up)")
	}
	if f.NoDeallocate && s.ctrl.Sanitize.NoDeallocateInhibited() {
		p.Notes = append(p.Notes, "this drive does not follow --no-deallocate (NDI): it refuses it, or deallocates all the same")
	}
	return p, nil
}

// start carries the plan out as every change is, and follows it if asked to. The
// one document is about the sanitize, so what the change prints is taken from it.
func (s *sanitizing) start(ctx context.Context, f changeFlags, w waitFlags, p namespace.Plan) error {
	if f.DryRun {
		return s.a.proceed(ctx, s.d, f, p)
	}
	var doc bytes.Buffer
	quiet := *s.a
	quiet.out, quiet.format = &doc, render.JSON
	if err := quiet.proceed(ctx, s.d, f, p); err != nil {
		return err
	}
	var done changeResult
	if err := json.Unmarshal(doc.Bytes(), &done); err != nil {
		return fmt.Errorf("result of the change: %w", err)
	}
	l, err := admin.SanitizeLog(context.WithoutCancel(ctx), s.d.dev)
	if err == nil && w.Wait {
		l, err = s.wait(ctx, w.Poll)
	}
	if err != nil {
		return doneBut(done.Transaction, err)
	}
	r := s.result(l)
	r.Transaction, r.Journal = done.Transaction, done.Journal
	if l.Running() {
		r.Notes = append(r.Notes, "nvop sanitize status "+s.d.address+" --wait follows it")
	}
	return s.conclude(r)
}

type sanitizeStatusCmd struct {
	driveArg
	waitFlags
	Stall time.Duration `default:"15m" help:"Say so when there was no progress for this long." placeholder:"TIME"`
	traceFlag
}

func (sanitizeStatusCmd) Help() string { return "Example: nvop sanitize status /dev/nvme0 --wait" }

func (c sanitizeStatusCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	return a.withSanitize(ctx, c.Drive, c.traceFlag, func(s *sanitizing) error {
		s.stall = c.Stall
		l, err := admin.SanitizeLog(ctx, s.d.dev)
		if err != nil {
			return err
		}
		waited := c.Wait && l.Running()
		if waited {
			if l, err = s.wait(ctx, c.Poll); err != nil {
				return err
			}
			return s.conclude(s.result(l))
		}
		return a.print(s.result(l))
	})
}

type sanitizeExitCmd struct {
	driveArg
	changeFlags
}

func (sanitizeExitCmd) Help() string {
	return `Only a sanitize that was started with --allow-exit-failure can be left so. The data may still be there.

Example:
  nvop sanitize exit-failure /dev/nvme0 --confirm-serial S1234`
}

func (c sanitizeExitCmd) Run(ctx context.Context, a *app) error {
	return a.withSanitize(ctx, c.Drive, c.traceFlag, func(s *sanitizing) error {
		l, err := admin.SanitizeLog(ctx, s.d.dev)
		if err != nil {
			return err
		}
		if l.State != nvmespec.SanitizeFailed {
			return refusedf("sanitize", s.d.address, "", "no sanitize of this drive has failed (%s): there is no such state to leave", l.State)
		}
		p, err := s.plan(ctx, nvmespec.SanitizeFields{Action: nvmespec.SanitizeExitFailure})
		if err != nil {
			return err
		}
		p.Notes = []string{"the data that the failed sanitize was to erase may still be there"}
		p.Destroys = []string{}
		return s.start(ctx, c.changeFlags, waitFlags{}, p)
	})
}
