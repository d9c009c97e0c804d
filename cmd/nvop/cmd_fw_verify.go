package main

import (
	"context"
	"errors"
	"fmt"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/admin"
)

type fwVerifyCmd struct {
	driveArg
	traceFlag
	Revision string `help:"The revision that should run (default: what the journal says)." placeholder:"REV"`
}

func (fwVerifyCmd) Help() string {
	return `Compares the drive with what the journal last says about its firmware: active, still staged (exit code 8), or failed (exit code 3). What has come to an end is written down.

Example: nvop fw verify /dev/nvme0`
}

type fwVerifyResult struct {
	Schema    string             `json:"schema"`
	Address   string             `json:"address"`
	Judgement firmware.Judgement `json:"judgement"`
	firmwareState
	// Recorded says that the journal has the judgement now.
	Recorded string `json:"recorded,omitempty"`
}

func (r fwVerifyResult) Text(p *render.Page) {
	p.Line("%s: %s", r.Judgement.Phase, r.Judgement.Text)
	if r.Judgement.Remedy != "" {
		p.Line("  %s", r.Judgement.Remedy)
	}
	p.Grid(slotHeader(), slotRows(r.State))
}

func (c fwVerifyCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	s, err := a.firmwareState(ctx, d)
	if err != nil {
		return err
	}
	r := fwVerifyResult{Schema: "nvop.firmware-verify/1", Address: c.Drive, firmwareState: s, Judgement: c.judge(s)}
	if s.Record != nil && r.Judgement.Phase != s.Record.Phase && (r.Judgement.Phase == firmware.PhaseActive || r.Judgement.Phase == firmware.PhaseFailed) {
		if id, err := a.recordVerified(ctx, d, *s.Record, r.Judgement.Phase); err != nil {
			a.note("the judgement is not written down: %v", err)
		} else {
			r.Recorded = id
		}
	}
	if err := a.print(r); err != nil {
		return err
	}
	switch r.Judgement.Phase {
	case firmware.PhaseFailed:
		return reported{&codedError{exitFindings, fmt.Errorf("%s: %s", c.Drive, r.Judgement.Text)}}
	case firmware.PhaseStaged:
		return pendingError(r.Judgement.Pending)
	}
	return nil
}

// judge compares with the revision asked for, else with the journal, else the
// drive with itself.
func (c fwVerifyCmd) judge(s firmwareState) firmware.Judgement {
	revision, slot, pending := s.State.Pending()
	switch {
	case s.Record != nil && s.Record.Phase == firmware.PhaseActive && pending && s.Record.Revision == s.Running && c.Revision == "":
		return firmware.Judgement{Phase: firmware.PhaseStaged, Pending: s.Pending, Remedy: s.Pending.Remedy(),
			Text: fmt.Sprintf("revision %s runs; slot %d with revision %s runs after a reset, by no finished update of this program", s.Running, slot, revision)}
	case s.Record != nil && (c.Revision == "" || c.Revision == s.Record.Revision):
		return firmware.Judge(*s.Record, s.State)
	case c.Revision != "" && c.Revision == s.Running:
		return firmware.Judgement{Phase: firmware.PhaseActive, Text: fmt.Sprintf("revision %s runs from slot %d", s.Running, s.Active)}
	case pending && (c.Revision == "" || c.Revision == revision):
		return firmware.Judgement{Phase: firmware.PhaseStaged, Pending: s.Pending, Remedy: s.Pending.Remedy(),
			Text: fmt.Sprintf("revision %s runs; slot %d with revision %s runs after a reset, by no record of this program", s.Running, slot, revision)}
	case c.Revision != "":
		return firmware.Judgement{Phase: firmware.PhaseFailed, Remedy: "nvop fw update", Text: fmt.Sprintf("revision %s runs and not %s", s.Running, c.Revision)}
	}
	return firmware.Judgement{Phase: firmware.PhaseActive,
		Text: fmt.Sprintf("revision %s runs from slot %d; nothing is staged, and the journal has no update of this drive", s.Running, s.Active)}
}

// recordVerified writes down what became of a staged image, as a transaction
// that sends nothing and is named by the judgement.
func (a *app) recordVerified(ctx context.Context, d *drive, rec firmware.Record, judged firmware.Phase) (id string, err error) {
	identity, err := admin.Identity(ctx, d.dev)
	if err != nil {
		return "", err
	}
	lock, err := lockDrive(lockDir(a.getenv), identity.Serial, d.durableAddress(), "fw verify")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	j, err := a.openJournal(ctx, journal.ReadWrite)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	step, err := firmware.VerifyStep(rec)
	if err != nil {
		return "", err
	}
	p := namespace.Plan{Title: "fw verify: " + string(judged), Identity: identity, NSIDs: []uint32{}}
	t := txn.Transaction{Title: p.Title, Address: d.durableAddress(), Identity: identity, Steps: []txn.Step{step}}
	report, err := a.runner(d, j, p, nil).Run(ctx, t)
	return report.ID, err
}
