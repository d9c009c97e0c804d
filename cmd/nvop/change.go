package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/layer"
)

// changeFlags are those of every command that changes a drive.
type changeFlags struct {
	consentFlags
	traceFlag
	DryRun                bool `help:"Read the drive, print the plan with its exact commands, and change nothing." short:"n"`
	AllowFabrics          bool `help:"Allow capacity changes on a drive that is not on PCIe."`
	AcceptCriticalWarning bool `help:"Allow changes to a drive whose SMART log shows a critical warning."`
	AcceptUnknownCapacity bool `help:"Allow a larger namespace on a drive that does not report its capacity."`
}

func (f changeFlags) options() namespace.Options {
	return namespace.Options{AllowFabrics: f.AllowFabrics, AcceptUnread: f.acceptsUnread(), AcceptCriticalWarning: f.AcceptCriticalWarning, AcceptUnknownCapacity: f.AcceptUnknownCapacity}
}

// planner makes a plan from what a drive is. named is the namespace the address
// names, 0 for a controller.
type planner func(inv namespace.Inventory, named uint32) (namespace.Plan, error)

// planResult shows a plan that is not carried out.
type planResult struct {
	namespace.Plan
	Changed   bool `json:"changed"`
	AlreadySo bool `json:"already_so"`
}

func (r planResult) Text(p *render.Page) {
	if len(r.Steps) == 0 {
		p.Line("%s: %s", r.Standing(), r.Title)
	}
	p.Line("%s", strings.TrimRight(r.Plan.Text(), "\n"))
}

// changeResult is what a change did.
type changeResult struct {
	Schema    string `json:"schema"`
	Address   string `json:"address"`
	Serial    string `json:"serial"`
	Changed   bool   `json:"changed"`
	AlreadySo bool   `json:"already_so"`
	State     string `json:"state"`
	// PendingReset is the kind of reset that new firmware waits for.
	PendingReset string `json:"pending_reset,omitempty"`
	Transaction  string `json:"transaction,omitempty"`
	Title        string `json:"title"`
	// JudgedOnly are fields of a spec that are not as wanted and that no step sets.
	JudgedOnly []string              `json:"judged_only,omitempty"`
	Before     []namespace.Namespace `json:"before"`
	After      []namespace.Namespace `json:"after"`
	// NotRead says that the drive was not looked at: Before and After are null then.
	NotRead          bool                        `json:"not_read,omitempty"`
	OverProvisioning *namespace.OverProvisioning `json:"over_provisioning,omitempty"`
	Notes            []string                    `json:"notes,omitempty"`
	Journal          string                      `json:"journal,omitempty"`
}

func (r changeResult) Text(p *render.Page) {
	switch {
	case r.Transaction == "":
		p.Line("%s: %s (drive %s)", r.State, r.Title, r.Serial)
	default:
		p.Line("%s: %s (drive %s, transaction %s)", r.State, r.Title, r.Serial, r.Transaction)
	}
	if r.NotRead {
		p.Pairs("namespaces", "not read")
	} else {
		p.Grid(namespaceHeader(), namespaceRows(r.After))
	}
	if op := r.OverProvisioning; op != nil {
		p.Pairs("over-provisioning", fmt.Sprintf("%s%% of user capacity, %s%% of total", op.OfUserPercent, op.OfTotalPercent))
	}
	if len(r.JudgedOnly) > 0 && r.Transaction != "" {
		p.Line("  not as wanted, judged by an audit only: %s", strings.Join(r.JudgedOnly, ", "))
	}
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
}

func namespaceHeader() []string {
	return []string{">nsid", ">size", ">blocks", ">lba", "attached to", "shared", "nguid"}
}

func namespaceRows(list []namespace.Namespace) [][]string {
	var rows [][]string
	for _, ns := range list {
		if ns.Error != "" {
			rows = append(rows, []string{fmt.Sprint(ns.NSID), "unreadable", "", "", "", "", ns.Error})
			continue
		}
		var attached []string
		for _, c := range ns.Controllers {
			attached = append(attached, fmt.Sprintf("%d (0x%x)", c, c))
		}
		if attached == nil {
			attached = []string{"none"}
		}
		rows = append(rows, []string{
			fmt.Sprint(ns.NSID), render.Size(ns.SizeBlocks * uint64(ns.Format.DataBytes)), render.Count(ns.SizeBlocks),
			lbaText(ns.Format), strings.Join(attached, ", "), yesNo(ns.Shared()), ns.NGUID,
		})
	}
	return rows
}

func lbaText(f namespace.LBAFormat) string {
	if f.MetadataBytes == 0 {
		return fmt.Sprint(f.DataBytes)
	}
	return fmt.Sprintf("%d+%d", f.DataBytes, f.MetadataBytes)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// journalFile is where the journal lies.
func (a *app) journalFile() (string, error) {
	if a.journalPath != "" {
		return a.journalPath, nil
	}
	return journal.DefaultPath(os.Geteuid() == 0, a.getenv)
}

// openJournal opens the journal.
func (a *app) openJournal(ctx context.Context, mode journal.Mode) (*journal.Journal, error) {
	path, err := a.journalFile()
	if err != nil {
		return nil, err
	}
	return journal.Open(ctx, path, mode)
}

// openStanding opens a journal to write on in what it holds: one that is not there
// is an error and is not made.
func (a *app) openStanding(ctx context.Context) (*journal.Journal, error) {
	path, err := a.journalFile()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no journal %s, so nothing is recorded in it: %w", path, fs.ErrNotExist)
	}
	return journal.Open(ctx, path, journal.ReadWrite)
}

// change plans and, with consent, carries the plan out as a transaction.
func (a *app) change(ctx context.Context, address string, f changeFlags, plan planner) (err error) {
	d, err := a.open(address)
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
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	p, err := plan(inv, d.nsid)
	if err != nil {
		return err
	}
	return a.proceed(ctx, d, f, p)
}

// proceed shows a plan that is not to be carried out, says that there is nothing
// to do, or carries it out.
func (a *app) proceed(ctx context.Context, d *drive, f changeFlags, p namespace.Plan) error {
	p.Pending = a.knownReset(ctx, p)
	if f.DryRun {
		return a.print(planResult{Plan: p, AlreadySo: p.AsWanted()})
	}
	if p.AlreadySo() {
		if err := a.print(changeResult{
			Schema: "nvop.change/1", Address: d.address, Serial: p.Identity.Serial, AlreadySo: p.AsWanted(), State: p.Standing(),
			PendingReset: string(p.Pending), Title: p.Title, JudgedOnly: p.JudgedOnly, Before: p.Before, After: p.After, OverProvisioning: p.OverProvisioning, Notes: p.Notes,
		}); err != nil {
			return err
		}
		return pendingError(p.Pending)
	}
	return a.carryOut(ctx, d, f, p)
}

// carryOut runs a plan: consent, use, lock, transaction, verification.
func (a *app) carryOut(ctx context.Context, d *drive, f changeFlags, p namespace.Plan) (err error) {
	kinds, err := f.kinds()
	if err != nil {
		return err
	}
	if err := d.checkUse(p.NSIDs, kinds); err != nil {
		return err
	}
	if err := a.confirm(ctx, f.consentFlags, p.Identity.Serial, p.Title, p.Destroys); err != nil {
		return err
	}
	return a.printDone(a.execute(ctx, d, p, kinds, driftError))
}

// printChange prints the result of a change that was made. Where it cannot be
// written the change is made all the same, and that must be known.
func (a *app) printChange(v render.Texter, transaction string) error {
	if err := a.print(v); err != nil {
		return fmt.Errorf("the change was done (transaction %s), its result could not be printed: %w", transaction, err)
	}
	return nil
}

// doneBut is an error after a change that was made all the same.
func doneBut(transaction string, err error) error {
	return fmt.Errorf("the change was done (transaction %s), but what the drive is now could not be read: %w", transaction, err)
}

// printDone prints what a change did, if it did; the error is what is still due.
func (a *app) printDone(r *changeResult, err error) error {
	if r == nil {
		return err
	}
	if perr := a.printChange(*r, r.Transaction); perr != nil {
		return errors.Join(perr, err)
	}
	if err != nil {
		return reported{err}
	}
	return nil
}

// execute carries out a plan that was agreed to. A result means that the change
// was made; an error with it says what is not as planned, or that a reset is
// pending. drifted says how a drive that changed since the plan is refused.
func (a *app) execute(ctx context.Context, d *drive, p namespace.Plan, kinds []inuse.Kind, drifted func(string, []namespace.Mismatch) error) (r *changeResult, err error) {
	if err := d.changeable(); err != nil {
		return nil, err
	}
	lock, err := lockDrive(lockDir(a.getenv), p.Identity.Serial, d.durableAddress(), p.Title)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	j, err := a.openJournal(ctx, journal.ReadWrite)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	// Time has passed since the plan was made: a prompt was answered, a lock
	// was waited for.
	now, err := d.inventoryWith(ctx, p.Reads)
	if err != nil {
		return nil, err
	}
	if drift := p.Drift(now); len(drift) > 0 {
		return nil, drifted(d.address, drift)
	}
	if err := noneUnfinished(ctx, j, p.Identity.Serial); err != nil {
		return nil, err
	}
	t, err := p.Transaction()
	if err != nil {
		return nil, err
	}
	t.Address = d.durableAddress()
	report, err := a.runner(d, j, p, kinds).Run(ctx, t)
	if err != nil {
		return nil, err
	}
	return a.finish(ctx, d, j, p, report)
}

// noneUnfinished refuses a new change while an older one is half done: its
// record of the old geometry would no longer be true.
func noneUnfinished(ctx context.Context, j *journal.Journal, serial string) error {
	open, err := j.Unfinished(ctx, serial)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return nil
	}
	return refusedf("unfinished transaction", "drive "+serial,
		fmt.Sprintf("nvop resume %s, or nvop rollback %s", open[0].ID, open[0].ID),
		"transaction %s (%s) is half done", open[0].ID, open[0].Title)
}

// runner builds what carries out transactions on a drive.
func (a *app) runner(d *drive, j *journal.Journal, p namespace.Plan, accepted []inuse.Kind) *txn.Runner {
	return a.runnerAgain(d, j, p, accepted, false)
}

// runnerAgain is runner for a transaction that was interrupted: unproven accepts
// that a namespace is its own which may be another's.
func (a *app) runnerAgain(d *drive, j *journal.Journal, p namespace.Plan, accepted []inuse.Kind, unproven bool) *txn.Runner {
	o := namespace.ExecutorOptions{FirmwareProgress: a.imageProgress(), AcceptUnread: slices.Contains(accepted, inuse.KindUnknown), AcceptUnproven: unproven}
	if d.target != nil {
		o.Visible = d.visible
		o.FormatProgress = a.formatProgress()
	}
	registry := namespace.Executors(o)
	registry[sanitizeKind] = sanitizer{}
	registry[resetKind] = resetter{}
	maps.Copy(registry, pcieExecutors(d, accepted))
	return &txn.Runner{
		Device: d.dev, Clock: d.clock, Log: steadyLog{j}, Registry: registry,
		Identify: namespace.ReadIdentity, Describe: namespace.DescribeDrive,
		PreStep: d.preStep(consent{
			identity: p.Identity, accept: accepted, touches: p.NSIDs, expires: d.expiry(),
		}),
		Notify: a.progressOf,
	}
}

// steadyLog is the journal of a change, whose records are finished whatever
// happens meanwhile: an interruption stops the change between two steps and must
// not stop what is written down of it.
type steadyLog struct{ j *journal.Journal }

func (l steadyLog) BeginTransaction(ctx context.Context, t txn.Transaction) (string, error) {
	return l.j.BeginTransaction(context.WithoutCancel(ctx), t)
}

func (l steadyLog) Intent(ctx context.Context, in txn.Intent) error {
	return l.j.Intent(context.WithoutCancel(ctx), in)
}

func (l steadyLog) Outcome(ctx context.Context, out txn.Outcome) error {
	return l.j.Outcome(context.WithoutCancel(ctx), out)
}

func (l steadyLog) SetState(ctx context.Context, id string, state txn.State, message string, at time.Time) error {
	return l.j.SetState(context.WithoutCancel(ctx), id, state, message, at)
}

func (l steadyLog) Load(ctx context.Context, id string) (txn.History, error) {
	return l.j.Load(context.WithoutCancel(ctx), id)
}

func (l steadyLog) Unfinished(ctx context.Context, serial string) ([]txn.Transaction, error) {
	return l.j.Unfinished(context.WithoutCancel(ctx), serial)
}

// progressOf tells on standard error how a transaction goes.
func (a *app) progressOf(e txn.Event) {
	if e.Phase != txn.PhaseAfterIntent {
		return
	}
	verb := ""
	if e.Direction == txn.Backward {
		verb = "undo "
	}
	note := ""
	if e.Note != "" {
		note = ": " + e.Note
	}
	a.note("step %d of %d: %s%s%s", e.Step.Index+1, e.Steps, verb, e.Step.Title, note)
}

// finish verifies what a transaction left.
func (a *app) finish(ctx context.Context, d *drive, j *journal.Journal, p namespace.Plan, report txn.Report) (*changeResult, error) {
	now, err := d.inventory(context.WithoutCancel(ctx)) // the change is done: say so
	if err != nil {
		return nil, doneBut(report.ID, err)
	}
	r := &changeResult{
		Schema: "nvop.change/1", Address: d.address, Serial: p.Identity.Serial, Changed: true, State: "changed",
		Transaction: report.ID, Title: p.Title, JudgedOnly: p.JudgedOnly, Before: p.Before, After: now.Namespaces,
		OverProvisioning: now.OverProvisioning(), Notes: append(slices.Clone(p.Notes), namespace.Lowered(p.Steps, report.States)...), Journal: j.Path(),
	}
	if wrong := p.Verify(now); len(wrong) > 0 {
		return r, driftError(d.address, wrong)
	}
	if pending := firmware.PendingAfter(p.Steps, report.States); pending != firmware.ResetNone {
		r.State, r.PendingReset = "changed, reset pending", string(pending)
		return r, &codedError{exitResetPending, fmt.Errorf("%s: the new firmware runs after a reset (%s): %s", d.address, pending, pending.Remedy())}
	}
	return r, nil
}

// driftError says how a drive differs from what a plan expects.
func driftError(address string, list []namespace.Mismatch) error {
	return &codedError{exitFindings, fmt.Errorf("%s: the drive is not as planned: %s", address, driftText(list))}
}

// driftRefused refuses a plan that was kept in a file and is for a drive as it no
// longer is.
func driftRefused(address string, list []namespace.Mismatch) error {
	return refusedf("drift", address, "make the plan again", "the drive is not as it was when the plan was made: %s", driftText(list))
}

func driftText(list []namespace.Mismatch) string {
	var parts []string
	for _, m := range list {
		part := fmt.Sprintf("%s is %s, expected %s", m.What, m.Found, m.Want)
		if m.NSID != 0 {
			part = fmt.Sprintf("namespace %d: %s", m.NSID, part)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}
