package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/layer"
)

// fwChangeResult is what a change of firmware would do, or did.
type fwChangeResult struct {
	Schema      string `json:"schema"`
	Address     string `json:"address"`
	Serial      string `json:"serial"`
	Title       string `json:"title"`
	Changed     bool   `json:"changed"`
	AlreadySo   bool   `json:"already_so"`
	State       string `json:"state"`
	Transaction string `json:"transaction,omitempty"`
	firmware.Planned
	// Record is what the last step left; nil for a plan.
	Record *firmware.Record `json:"record,omitempty"`
	// Before and After are the slots.
	Before  []firmware.Slot `json:"before"`
	After   []firmware.Slot `json:"after"`
	Running string          `json:"running"`
	Journal string          `json:"journal,omitempty"`
}

func (r fwChangeResult) Text(p *render.Page) {
	p.Line("%s: %s (drive %s%s)", r.State, r.Title, r.Serial, prefixed(", transaction ", r.Transaction))
	if !r.Changed {
		for _, step := range r.Steps {
			p.Line("step %d: %s", step.Index+1, step.Title)
			for _, cmd := range step.Commands {
				p.Line("  %s", cmd)
			}
			if step.Destroys != "" {
				p.Line("  destroys: %s", step.Destroys)
			}
			p.Line("  undo: %s", step.UndoText)
		}
	}
	p.Grid(slotHeader(), slotRows(firmware.State{Slots: r.After}))
	if r.Record != nil && r.Record.Note != "" {
		p.Line("  note: %s", r.Record.Note)
	}
	switch {
	case r.Pending == firmware.ResetNone:
	case !r.Changed && !r.AlreadySo:
		p.Line("afterwards a reset is needed: %s, then nvop fw verify %s", r.Pending.Remedy(), r.Address)
	default:
		p.Line("revision %s runs; a reset is pending: %s, then nvop fw verify %s", r.Running, r.Pending.Remedy(), r.Address)
	}
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
}

// pendingError is the exit code of what is done and waits for a reset.
func pendingError(k firmware.ResetKind) error {
	if k == firmware.ResetNone {
		return nil
	}
	return reported{&codedError{exitResetPending, fmt.Errorf("done; the new firmware waits for a reset: %s", k.Remedy())}}
}

// imageProgress tells how far the transfer of an image is.
func (a *app) imageProgress() func(done, total uint64) {
	told := uint64(0)
	return func(done, total uint64) {
		const steps = 10
		if tenth := done * steps / max(total, 1); tenth != told {
			told = tenth % steps
			a.note("firmware image: %s of %s sent", render.Size(done), render.Size(total))
		}
	}
}

// changeFirmware plans and, with consent, carries a change of firmware out.
func (a *app) changeFirmware(ctx context.Context, f fwFlags, title string, plan func(firmware.State) (firmware.Planned, error)) (err error) {
	d, err := a.open(f.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, f.traceFlag); err != nil {
		return err
	}
	if f.DryRun {
		d.dev = layer.DryRun(d.dev) // even a mistake in planning sends nothing
	} else if err := d.changeable(); err != nil {
		return err
	}
	s, err := firmware.Read(ctx, d.dev)
	if err != nil {
		return err
	}
	p, err := plan(s)
	if err != nil {
		return err
	}
	r := fwChangeResult{
		Schema: "nvop.firmware-change/1", Address: d.address, Serial: s.Serial, Title: title, Planned: p,
		Before: s.Slots, After: s.Slots, Running: s.Running,
	}
	switch {
	case p.AlreadySo:
		r.AlreadySo, r.State, r.Pending = true, "already so", a.recordedReset(ctx, s, p.Pending)
		if err := a.print(r); err != nil {
			return err
		}
		return pendingError(r.Pending)
	case f.DryRun:
		r.State = "planned only, nothing was changed"
		return a.print(r)
	}
	return a.carryOutFirmware(ctx, d, f, s, r)
}

// recordedReset is the reset that a staged image waits for, as the drive asked for it
// when it was staged: the drive itself does not say so again.
func (a *app) recordedReset(ctx context.Context, s firmware.State, pending firmware.ResetKind) firmware.ResetKind {
	revision, _, ok := s.Pending()
	if pending != firmware.ResetUnknown || !ok {
		return pending
	}
	if rec, _, ok := firmware.LastRecord(a.firmwareHistories(ctx, s.Serial)); ok && rec.Phase == firmware.PhaseStaged && rec.Revision == revision {
		return rec.Pending
	}
	return pending
}

// knownReset is recordedReset for a plan of a spec.
func (a *app) knownReset(ctx context.Context, p namespace.Plan) firmware.ResetKind {
	if s := p.Inventory.FirmwareState; s != nil && p.AlreadySo() {
		return a.recordedReset(ctx, *s, p.Pending)
	}
	return p.Pending
}

// carryOutFirmware runs a plan: use where it disturbs, consent, lock,
// transaction, and what the drive waits for.
func (a *app) carryOutFirmware(ctx context.Context, d *drive, f fwFlags, s firmware.State, r fwChangeResult) (err error) {
	kinds, err := f.kinds()
	if err != nil {
		return err
	}
	nsids := []uint32{} // staging disturbs nobody
	if r.Disturbs {
		nsids = nil
	}
	if err := d.checkUse(nsids, kinds); err != nil {
		return err
	}
	if err := a.confirm(ctx, f.consentFlags, s.Serial, r.Title, fwLosses(r.Planned)); err != nil {
		return err
	}
	lock, err := lockDrive(lockDir(a.getenv), s.Serial, d.durableAddress(), r.Title)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	j, err := a.openJournal(ctx, journal.ReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	identity, err := a.sameFirmware(ctx, d, s)
	if err != nil {
		return err
	}
	if err := noneUnfinished(ctx, j, s.Serial); err != nil {
		return err
	}
	before, err := json.Marshal(s)
	if err != nil {
		return err
	}
	t := txn.Transaction{Title: r.Title, Address: d.durableAddress(), Identity: identity, Steps: r.Steps, Inventory: before}
	report, err := a.runner(d, j, namespace.Plan{Title: r.Title, Identity: identity, NSIDs: nsids}, kinds).Run(ctx, t)
	if err != nil {
		return err
	}
	return a.finishFirmware(ctx, d, j, report, r)
}

// fwLosses says before consent what is lost and what cannot be undone.
func fwLosses(p firmware.Planned) []string {
	var list []string
	for _, d := range p.Destroys {
		list = append(list, "lost: "+d)
	}
	for _, step := range p.Steps {
		if strings.HasPrefix(step.UndoText, "cannot be undone") {
			list = append(list, step.Title+": "+step.UndoText)
		}
	}
	return list
}

// sameFirmware reads the drive again: time has passed since the plan was made.
func (a *app) sameFirmware(ctx context.Context, d *drive, s firmware.State) (nvmeioctl.Identity, error) {
	identity, err := admin.Identity(ctx, d.dev)
	if err != nil {
		return identity, err
	}
	now, err := firmware.Read(ctx, d.dev)
	if err != nil {
		return identity, err
	}
	if now.Running != s.Running || now.Active != s.Active || now.Next != s.Next || !slices.Equal(now.Slots, s.Slots) {
		return identity, &codedError{exitFindings, fmt.Errorf("%s: the firmware slots are not as planned: make a new plan", d.address)}
	}
	return identity, nil
}

// finishFirmware prints what a change left, and ends with what is pending.
func (a *app) finishFirmware(ctx context.Context, d *drive, j *journal.Journal, report txn.Report, r fwChangeResult) error {
	now, err := firmware.Read(context.WithoutCancel(ctx), d.dev) // the change is done: say so
	if err != nil {
		return doneBut(report.ID, err)
	}
	r.Changed, r.State, r.Transaction, r.Journal = true, "changed", report.ID, j.Path()
	r.After, r.Running = now.Slots, now.Running
	r.Pending = firmware.PendingAfter(r.Steps, report.States)
	if last := len(r.Steps) - 1; last >= 0 && last < len(report.States) {
		if rec, ok := firmware.DecodeRecord(r.Steps[last], report.States[last]); ok {
			r.Record, r.State = &rec, string(rec.Phase)
			r.Revision = rec.Revision
		}
	}
	if err := a.printChange(r, report.ID); err != nil {
		return errors.Join(err, pendingError(r.Pending))
	}
	return pendingError(r.Pending)
}
