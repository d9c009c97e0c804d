package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/nvmespec"
)

type fwCmd struct {
	List     fwListCmd     `cmd:"" help:"Show the firmware slots: what runs, what runs next, and how an image has to be sent."`
	Update   fwUpdateCmd   `cmd:"" help:"Bring a drive to a firmware revision: transfer an image, commit it, and say which reset activates it."`
	Download fwDownloadCmd `cmd:"" help:"Transfer an image and no more."`
	Commit   fwCommitCmd   `cmd:"" help:"Store or activate what was transferred, or what is in a slot."`
	Verify   fwVerifyCmd   `cmd:"" help:"After a reset: compare the drive with what was done to it."`
}

// firmwareState is a drive's firmware with what this program knows of it.
type firmwareState struct {
	firmware.State
	Quirks []firmware.Quirk `json:"quirks"`
	// Pending is the reset the drive waits for; empty for none.
	Pending firmware.ResetKind `json:"pending,omitempty"`
	// Record is what the journal last says about it, Transaction where.
	Record      *firmware.Record `json:"record,omitempty"`
	Transaction string           `json:"transaction,omitempty"`
}

type fwListCmd struct {
	driveArg
	traceFlag
}

func (fwListCmd) Help() string { return "Example: nvop fw list /dev/nvme0" }

type fwListResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	firmwareState
}

func (r fwListResult) Text(p *render.Page) {
	p.Line("firmware of %s (%s), serial number %s: %s runs from slot %d", r.Address, strings.TrimSpace(r.Model), r.Serial, r.Running, r.Active)
	if r.SlotsError != "" {
		p.Line("the slots cannot be read: %s", r.SlotsError)
	}
	p.Grid(slotHeader(), slotRows(r.State))
	p.Pairs("update without reset", yesNo(r.ActivatesWithoutReset)+mtfaText(r.State),
		"granularity", granularityText(r.State), "largest transfer", transferText(r.MaxTransferBytes),
		"overlaps are noticed", yesNo(r.DetectsOverlap))
	if r.Busy != "" {
		p.Line("busy: %s", r.Busy)
	}
	if r.Pending != firmware.ResetNone {
		revision, slot, _ := r.State.Pending()
		p.Line("pending: revision %s from slot %d after a reset; %s", revision, slot, r.Pending.Remedy())
	}
	if r.Record != nil {
		p.Line("journal: %s, revision %s in slot %d (transaction %s)", r.Record.Phase, r.Record.Revision, r.Record.Slot, r.Transaction)
	}
	for _, q := range r.Quirks {
		p.Line("  note: %s (%s)", q.Text, q.Source)
	}
}

func slotHeader() []string { return []string{">slot", "revision", "hex", "state", "writable"} }

func slotRows(s firmware.State) [][]string {
	var rows [][]string
	for _, slot := range s.Slots {
		var state []string
		if slot.Active {
			state = append(state, "active")
		}
		if slot.Next {
			state = append(state, "next")
		}
		revision := slot.Revision
		if revision == "" {
			revision = "(empty)"
		}
		rows = append(rows, []string{fmt.Sprint(slot.Number), revision, slot.RevisionHex, strings.Join(state, ", "), yesNo(!slot.ReadOnly)})
	}
	return rows
}

func mtfaText(s firmware.State) string {
	if s.ActivationMilliseconds == 0 {
		return ""
	}
	return fmt.Sprintf(", stops for up to %s", time.Duration(s.ActivationMilliseconds)*time.Millisecond)
}

func granularityText(s firmware.State) string {
	switch s.GranularityBytes {
	case 0:
		return "not reported"
	case 4:
		return "no restriction"
	}
	return fmt.Sprintf("%d bytes", s.GranularityBytes)
}

func transferText(limit uint64) string {
	if limit == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d bytes", limit)
}

func (c fwListCmd) Run(ctx context.Context, a *app) (err error) {
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
	return a.print(fwListResult{Schema: "nvop.firmware/1", Address: c.Drive, firmwareState: s})
}

// firmwareState reads a drive's firmware, and what the journal knows of it where
// there is one that can be read.
func (a *app) firmwareState(ctx context.Context, d *drive) (firmwareState, error) {
	s, err := firmware.Read(ctx, d.dev)
	if err != nil {
		return firmwareState{}, err
	}
	r := firmwareState{State: s, Quirks: s.Quirks()}
	if r.Quirks == nil {
		r.Quirks = []firmware.Quirk{}
	}
	if rec, id, ok := firmware.LastRecord(a.firmwareHistories(ctx, s.Serial)); ok {
		r.Record, r.Transaction = &rec, id
	}
	if revision, _, pending := s.Pending(); pending {
		r.Pending = firmware.ResetUnknown
		if r.Record != nil && r.Record.Phase == firmware.PhaseStaged && r.Record.Revision == revision {
			r.Pending = r.Record.Pending
		}
	}
	return r, nil
}

// firmwareHistories are the transactions of a drive that had to do with firmware. A
// journal that is not there, or cannot be read, says nothing: the drive speaks for
// itself.
func (a *app) firmwareHistories(ctx context.Context, serial string) []txn.History {
	var histories []txn.History
	err := a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		list, err := j.Transactions(ctx)
		if err != nil {
			return err
		}
		for _, t := range list {
			if t.Identity.Serial != serial || !hasFirmware(t) {
				continue
			}
			h, err := j.Load(ctx, t.ID)
			if err != nil {
				return err
			}
			histories = append(histories, h)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.note("the journal says nothing about firmware: %v", err)
	}
	return histories
}

func hasFirmware(t txn.Transaction) bool {
	for _, s := range t.Steps {
		if strings.HasPrefix(s.Kind, "firmware.") {
			return true
		}
	}
	return false
}

// fwFlags are those of the commands that change firmware.
type fwFlags struct {
	driveArg
	consentFlags
	traceFlag
	DryRun bool `help:"Read the drive, print the plan with its exact commands, and change nothing." short:"n"`
}

type fwUpdateCmd struct {
	fwFlags
	Image     string   `help:"The image file." placeholder:"FILE" type:"existingfile"`
	Revision  string   `help:"The revision the drive must run, exactly; without it, whatever the image brings." placeholder:"REV"`
	SHA256    string   `name:"sha256" help:"What the image must have." placeholder:"HEX"`
	Slot      uint8    `help:"The slot (default: a writable one that neither runs nor is to run)." placeholder:"N"`
	Activate  string   `default:"stage" enum:"stage,reset,live,store" help:"How far to go: stage (default), reset the controller, live, or only store." placeholder:"stage|reset|live|store"`
	AllowLive []string `help:"A model, as a glob, that may be activated while it runs." placeholder:"MODEL"`
	Pad       bool     `help:"Fill the image up with FFh to the drive's granularity."`
	Again     bool     `help:"Send the image although a slot holds its revision already."`
	Discard   bool     `help:"Go on where the controller holds pieces of an image that was never committed; needs --revision."`
}

func (fwUpdateCmd) Help() string {
	return `The image is sent and committed as one transaction, which can be resumed and undone. The new revision runs after the next reset: exit code 8 says that one is pending, and which kind. After it, nvop fw verify compares.

Nothing is activated while the drive runs unless --activate live is given and the model is on the list of those known to survive it.

Example:
  nvop fw update /dev/nvme0 --image 0B200200.bin --revision 0B200200 --dry-run
  nvop fw update /dev/nvme0 --image 0B200200.bin --revision 0B200200 --confirm-serial S1234`
}

func (c fwUpdateCmd) Run(ctx context.Context, a *app) error {
	w := firmware.Want{Revision: c.Revision, Image: c.Image, SHA256: c.SHA256, Slot: c.Slot, Activate: firmware.Activation(c.Activate)}
	if err := w.Validate(); err != nil {
		return &codedError{exitUsage, err}
	}
	title := "fw update"
	if c.Revision != "" {
		title += " to " + c.Revision
	}
	return a.changeFirmware(ctx, c.fwFlags, title, func(s firmware.State) (firmware.Planned, error) {
		image, err := loadImage(c.Image)
		if err != nil {
			return firmware.Planned{}, err
		}
		// Only a drive knows what revision an image brings; one that was loaded
		// before is known by its sum.
		if w.Revision == "" && image != nil {
			w.Revision = firmware.RevisionOf(a.firmwareHistories(ctx, s.Serial), image.SHA256)
		}
		return firmware.Plan(s, w, image, firmware.Options{AllowLive: c.AllowLive, Again: c.Again, Pad: c.Pad, Discard: c.Discard, AcceptUnread: c.acceptsUnread()})
	})
}

func loadImage(path string) (*firmware.Image, error) {
	if path == "" {
		return nil, nil
	}
	image, err := firmware.LoadImage(path)
	return &image, err
}

type fwDownloadCmd struct {
	fwFlags
	Image  string `required:"" help:"The image file." placeholder:"FILE" type:"existingfile"`
	SHA256 string `name:"sha256" help:"What the image must have." placeholder:"HEX"`
	Pad    bool   `help:"Fill the image up with FFh to the drive's granularity."`
}

func (fwDownloadCmd) Help() string {
	return "The drive holds the image until it is committed or reset. nvop fw update does both as one.\n\nExample: nvop fw download /dev/nvme0 --image 0B200200.bin --confirm-serial S1234"
}

func (c fwDownloadCmd) Run(ctx context.Context, a *app) error {
	return a.changeFirmware(ctx, c.fwFlags, "fw download", func(s firmware.State) (firmware.Planned, error) {
		image, err := firmware.LoadImage(c.Image)
		if err != nil {
			return firmware.Planned{}, err
		}
		if c.SHA256 != "" && !strings.EqualFold(c.SHA256, image.SHA256) {
			return firmware.Planned{}, refusedf("firmware image", image.Path, "fetch the image again", "its sha256 is %s, wanted is %s", image.SHA256, c.SHA256)
		}
		return firmware.PlanDownload(s, image, firmware.Options{Pad: c.Pad, AcceptUnread: c.acceptsUnread()})
	})
}

type fwCommitCmd struct {
	fwFlags
	Slot          uint8    `help:"The slot; needed where an action activates what is in one." placeholder:"N"`
	Action        uint8    `default:"1" help:"0 store, 1 store and activate at the next reset, 2 activate at the next reset, 3 activate at once, 6 and 7 boot partitions." placeholder:"0-7"`
	BootPartition uint8    `help:"The boot partition, 0 or 1, for actions 6 and 7." placeholder:"N"`
	AllowLive     []string `help:"A model, as a glob, that may be activated while it runs (action 3)." placeholder:"MODEL"`
}

func (fwCommitCmd) Help() string {
	return "Action 0 only stores: no reset activates it, unless that slot is the one to run next already (exit code 8). Action 3 needs a drive that reports it, and a model known to survive it.\n\nExample: nvop fw commit /dev/nvme0 --slot 2 --action 2 --confirm-serial S1234"
}

func (c fwCommitCmd) Run(ctx context.Context, a *app) error {
	title := fmt.Sprintf("fw commit --slot %d --action %d", c.Slot, c.Action)
	return a.changeFirmware(ctx, c.fwFlags, title, func(s firmware.State) (firmware.Planned, error) {
		commit := firmware.Commit{Slot: c.Slot, Action: nvmespec.CommitAction(c.Action), BootPartition: c.BootPartition}
		return firmware.PlanCommit(s, commit, firmware.Options{AllowLive: c.AllowLive, AcceptUnread: c.acceptsUnread()})
	})
}
