package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
)

type resetCmd struct {
	driveArg
	Subsystem bool `help:"Reset the whole NVM subsystem instead of one controller. Drives have vanished from the bus after it."`
	consentFlags
	traceFlag
	DryRun bool `help:"Say what would be done, and do nothing." short:"n"`
}

func (resetCmd) Help() string {
	return `Features go back to their saved values, and firmware that waits for this kind of reset becomes active. Commands in flight are lost or repeated, so a drive in use is refused.

Example:
  nvop reset /dev/nvme0 --confirm-serial S1234`
}

// resetResult is what a reset left.
type resetResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	Serial  string `json:"serial"`
	Kind    string `json:"kind"`
	Done    bool   `json:"done"`
	// FirmwareBefore and FirmwareAfter tell whether the reset activated firmware.
	FirmwareBefore string `json:"firmware_before"`
	FirmwareAfter  string `json:"firmware_after,omitempty"`
	// FirmwareStaged is the revision that a reset was to activate; empty for none.
	FirmwareStaged string `json:"firmware_staged,omitempty"`
	Transaction    string `json:"transaction,omitempty"`
	Journal        string `json:"journal,omitempty"`
}

func (r resetResult) Text(p *render.Page) {
	if !r.Done {
		p.Line("would do a %s of %s, serial number %s", r.Kind, r.Address, r.Serial)
		return
	}
	p.Line("%s of %s, serial number %s: the drive answers (transaction %s)", r.Kind, r.Address, r.Serial, r.Transaction)
	if r.FirmwareAfter != r.FirmwareBefore {
		p.Line("firmware %s is active now, it was %s", r.FirmwareAfter, r.FirmwareBefore)
	}
	if r.passedOver() {
		p.Line("firmware %s was staged and is not active: %s runs; nvop fw verify %s says more", r.FirmwareStaged, r.FirmwareAfter, r.Address)
	}
}

// passedOver says that staged firmware does not run after the reset.
func (r resetResult) passedOver() bool {
	return r.Done && r.FirmwareStaged != "" && r.FirmwareAfter != r.FirmwareStaged
}

// resetPatience bounds the wait for a controller to answer after a reset.
const resetPatience = 2 * time.Minute

func (c resetCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	if _, ok := nvmeioctl.As[nvmeioctl.Resetter](d.dev); !ok {
		return &nvmeioctl.UnsupportedError{Feature: "a reset of " + c.Drive, Needs: "a drive"}
	}
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return err
	}
	r := resetResult{Schema: "nvop.reset/1", Address: c.Drive, Serial: ctrl.SerialNumber, Kind: resetParams{c.Subsystem}.title(), FirmwareBefore: ctrl.FirmwareRevision}
	if c.DryRun {
		return a.print(r)
	}
	// A slot log that cannot be read says nothing, and forbids no reset.
	if s, err := firmware.Read(ctx, d.dev); err == nil {
		r.FirmwareStaged, _, _ = s.Pending()
	}
	if err := c.reset(ctx, a, d, admin.IdentityOf(ctrl), &r); err != nil {
		return err
	}
	if err := a.printChange(r, r.Transaction); err != nil {
		return err
	}
	if r.passedOver() {
		return reported{&codedError{exitFindings, fmt.Errorf("%s: the reset is done, and firmware %s was not activated by it: %s runs", c.Drive, r.FirmwareStaged, r.FirmwareAfter)}}
	}
	return nil
}

// reset asks for consent and carries the reset out as a transaction of one step.
// One that is half done already does not forbid it: it may be what that waits for.
func (c resetCmd) reset(ctx context.Context, a *app, d *drive, identity nvmeioctl.Identity, r *resetResult) (err error) {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	if err := d.checkUse(nil, kinds); err != nil {
		return err
	}
	losses := []string{"commands in flight are lost or repeated; features that are not saved go back"}
	if err := a.confirm(ctx, c.consentFlags, identity.Serial, r.Kind, losses); err != nil {
		return err
	}
	lock, err := lockDrive(lockDir(a.getenv), identity.Serial, d.durableAddress(), r.Kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	j, err := a.openJournal(ctx, journal.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	step, err := resetStep(resetParams{Subsystem: c.Subsystem})
	if err != nil {
		return err
	}
	t := txn.Transaction{Title: r.Kind, Address: d.durableAddress(), Identity: identity, Steps: []txn.Step{step}}
	report, err := a.runner(d, j, namespace.Plan{Title: r.Kind, Identity: identity}, kinds).Run(ctx, t)
	if err != nil {
		return err
	}
	var after resetState
	if err := json.Unmarshal(report.States[0], &after); err != nil {
		return fmt.Errorf("what the reset left: %w", err)
	}
	r.Done, r.FirmwareAfter, r.Transaction, r.Journal = true, after.Firmware, report.ID, j.Path()
	return nil
}

type rescanCmd struct {
	driveArg
	Patience time.Duration `default:"10s" help:"How long to wait for the host to show what the drive has." placeholder:"TIME"`
	traceFlag
}

func (rescanCmd) Help() string {
	return "Has the kernel look for namespaces that came, went or changed, and waits until it shows them. It changes nothing on the drive.\n\nExample:\n  nvop rescan /dev/nvme0"
}

// rescanResult compares the drive with what the host shows.
type rescanResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	Serial  string `json:"serial"`
	// Active are the namespaces attached to the controller; Shown those that the
	// host shows, null where there is no host.
	Active []uint32 `json:"active_nsids"`
	Shown  []uint32 `json:"shown_nsids"`
}

func (r rescanResult) Text(p *render.Page) {
	p.Line("%s, serial number %s", r.Address, r.Serial)
	p.Pairs("the drive has", nsidsText(r.Active))
	if r.Shown != nil {
		p.Pairs("the host shows", nsidsText(r.Shown))
	}
}

func nsidsText(ids []uint32) string {
	if len(ids) == 0 {
		return "no namespaces"
	}
	return fmt.Sprintf("namespaces %v", ids)
}

func (c rescanCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Patience < 0 || c.Patience > time.Hour {
		return usagef("--patience %s: 0 to 1h is possible", c.Patience)
	}
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	resetter, ok := nvmeioctl.As[nvmeioctl.Resetter](d.dev)
	if !ok {
		return &nvmeioctl.UnsupportedError{Feature: "a rescan of " + c.Drive, Needs: "a drive"}
	}
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return err
	}
	if err := resetter.Rescan(ctx); err != nil {
		return err
	}
	active, err := admin.ActiveNamespaces(ctx, d.dev)
	if err != nil {
		return err
	}
	r := rescanResult{Schema: "nvop.rescan/1", Address: c.Drive, Serial: ctrl.SerialNumber, Active: append([]uint32{}, active...)}
	if d.target != nil {
		if r.Shown, err = c.shown(ctx, d, active); err != nil {
			return err
		}
	}
	if err := a.print(r); err != nil {
		return err
	}
	if r.Shown != nil && !slices.Equal(r.Shown, r.Active) {
		return reported{&codedError{exitFindings, fmt.Errorf("%s: the host does not show what the drive has after %s", c.Drive, c.Patience)}}
	}
	return nil
}

// shown waits until the host shows the namespaces, and says which it shows.
func (c rescanCmd) shown(ctx context.Context, d *drive, want []uint32) ([]uint32, error) {
	for deadline := d.clock.Now().Add(c.Patience); ; {
		inv, err := d.host.Discover()
		if err != nil {
			return nil, err
		}
		ids := []uint32{}
		for _, ns := range inv.NamespacesOf(d.target.Controllers[0].Name) {
			ids = append(ids, ns.NSID)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if slices.Equal(ids, want) || d.clock.Now() >= deadline {
			return ids, nil
		}
		if err := d.clock.Sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
