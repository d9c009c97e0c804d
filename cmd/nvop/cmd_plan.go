package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nvop/journal"
	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
)

type planCmd struct {
	fleetArg
	specFlag
	traceFlag
	All                   bool     `help:"Plan for every drive of this host that a rule is for."`
	Out                   string   `help:"Write the plans to this file, for apply to carry out exactly; an existing file is not overwritten." placeholder:"FILE"`
	AllowFabrics          bool     `help:"Allow capacity changes on a drive that is not on PCIe."`
	AcceptCriticalWarning bool     `help:"Allow changes to a drive whose SMART log shows a critical warning."`
	AcceptUnknownCapacity bool     `help:"Allow a larger namespace on a drive that does not report its capacity."`
	Accept                []string `help:"unknown: plan although a log of the drive that says whether it is safe could not be read." placeholder:"KIND"`
}

func (planCmd) Help() string {
	return `Reads drives and prints what apply would do, with the exact commands. It changes nothing.

Example:
  nvop plan /dev/nvme0 -f spec.yaml
  nvop plan --all -f fleet.yaml --out plan.json`
}

func (c planCmd) Run(ctx context.Context, a *app) error {
	specs, err := c.read()
	if err != nil {
		return err
	}
	addresses, err := c.addresses(c.All)
	if err != nil {
		return err
	}
	accept := consentFlags{Accept: c.Accept}
	if _, err := accept.kinds(); err != nil {
		return err
	}
	o := namespace.Options{AllowFabrics: c.AllowFabrics, AcceptUnread: accept.acceptsUnread(), AcceptCriticalWarning: c.AcceptCriticalWarning, AcceptUnknownCapacity: c.AcceptUnknownCapacity}
	if o.Images, err = loadImages(specs); err != nil {
		return err
	}
	items := a.planFleet(ctx, addresses, specs, c.traceFlag, o, c.All)
	defer closeFleet(items)
	if len(addresses) == 1 && !c.All && items[0].err != nil {
		return items[0].err
	}
	if c.Out != "" {
		file := namespace.NewPlanFile(plansOf(items), c.File, a.clock.Wall())
		if len(file.Plans) == 0 {
			return refusedf("plan", c.File, "", "there is no drive to plan for")
		}
		if err := writePlanFile(c.Out, file); err != nil {
			return err
		}
		a.note("wrote %s, digest %s; carry it out with: nvop apply %s --confirm-digest %s", c.Out, file.Digest, c.Out, file.Digest[:digestShown])
	}
	if len(addresses) == 1 && !c.All {
		p := items[0].plan
		p.Pending = a.knownReset(ctx, p)
		return a.print(planResult{Plan: p, AlreadySo: p.AsWanted()})
	}
	return a.printPlans(ctx, items)
}

// againFlags are those of resume and rollback.
type againFlags struct {
	ID      string `arg:"" optional:"" help:"The transaction, as it was printed or as nvop journal list shows it (default: the only unfinished one)."`
	Address string `help:"Where the drive is now, if its address has changed." placeholder:"DRIVE"`
	consentFlags
	traceFlag
}

type resumeCmd struct{ againFlags }

func (resumeCmd) Help() string {
	return "Carries on a change that was interrupted: what was done is found out from the drive itself. A namespace that may be another's is not taken over (exit code 7) unless --accept unknown is given.\n\nExample: nvop resume t3 --confirm-serial S1234"
}

func (c resumeCmd) Run(ctx context.Context, a *app) error {
	return a.again(ctx, c.againFlags, "resume", (*txn.Runner).Resume)
}

type rollbackCmd struct {
	againFlags
	Abandon bool `help:"Give the change up as it stands: nothing is sent to the drive, and other changes are possible again."`
}

func (rollbackCmd) Help() string {
	return "Undoes a change that was interrupted: a namespace of the old size comes back. Its data does not. A namespace that may be another's is not deleted (exit code 7) unless --accept unknown is given.\n\nExample: nvop rollback t3 --confirm-serial S1234"
}

func (c rollbackCmd) Run(ctx context.Context, a *app) error {
	if c.Abandon {
		return a.abandon(ctx, c.againFlags)
	}
	return a.again(ctx, c.againFlags, "rollback", (*txn.Runner).Rollback)
}

// meant finds the transaction that is meant: the one named, or the only
// unfinished one.
func meant(ctx context.Context, j *journal.Journal, id string) (txn.Transaction, error) {
	if id != "" {
		h, err := j.Load(ctx, id)
		return h.Transaction, err
	}
	open, err := j.Unfinished(ctx, "")
	switch {
	case err != nil:
		return txn.Transaction{}, err
	case len(open) == 0:
		return txn.Transaction{}, errors.New("no transaction is unfinished")
	case len(open) > 1:
		return txn.Transaction{}, usagef("%d transactions are unfinished; name one (nvop journal list shows them)", len(open))
	}
	return open[0], nil
}

// again takes an unfinished transaction on, in one direction or the other.
func (a *app) again(ctx context.Context, f againFlags, verb string, take func(*txn.Runner, context.Context, string) (txn.Report, error)) (err error) {
	kinds, err := f.kinds()
	if err != nil {
		return err
	}
	j, err := a.openStanding(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	t, err := meant(ctx, j, f.ID)
	if err != nil {
		return err
	}
	if t.State.Finished() {
		return fmt.Errorf("transaction %s (%s) is %s: there is nothing to %s", t.ID, t.Title, t.State, verb)
	}
	if err := intact(ctx, j, t.ID); err != nil {
		return err
	}
	address := t.Address
	if f.Address != "" {
		address = f.Address
	}
	what := fmt.Sprintf("%s of transaction %s (%s)", verb, t.ID, t.Title)
	if err := a.confirmAgain(ctx, f, t, what, consequences(t, verb)); err != nil {
		return err
	}
	d, err := a.open(address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, f.traceFlag); err != nil {
		return err
	}
	if err := d.changeable(); err != nil {
		return err
	}
	lock, err := lockDrive(lockDir(a.getenv), t.Identity.Serial, d.durableAddress(), what)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	p := namespace.Plan{Title: what, Identity: t.Identity, NSIDs: touched(t)}
	report, err := take(a.runnerAgain(d, j, p, kinds, f.acceptsUnread()), ctx, t.ID)
	if err != nil {
		return err
	}
	return a.printAgain(ctx, d, j, t, report)
}

// confirmAgain is confirm for what is recorded already: the journal shows what was
// planned and done, since there is no dry run of it.
func (a *app) confirmAgain(ctx context.Context, f againFlags, t txn.Transaction, what string, losses []string) error {
	err := a.confirm(ctx, f.consentFlags, t.Identity.Serial, what, losses)
	if r, ok := errors.AsType[*nvmeioctl.RefusedError](err); ok && strings.Contains(r.Remedy, "--dry-run") {
		own := *r
		own.Remedy = fmt.Sprintf("add --confirm-serial %s after reading what nvop journal show %s prints", t.Identity.Serial, t.ID)
		return &own
	}
	return err
}

// intact refuses a transaction whose record was changed or is not all there: what
// it says of the drive cannot be relied on.
func intact(ctx context.Context, j *journal.Journal, id string) error {
	v, err := j.VerifyTransaction(ctx, id)
	if err != nil || v.OK() {
		return err
	}
	return refusedf("journal", "journal "+j.Path(), "nvop journal verify says what is wrong; nvop rollback "+id+" --abandon leaves the drive as it is",
		"the record of transaction %s is broken, so nothing is sent to the drive: %s", id, v.Problems[0].What)
}

// abandon closes a transaction that can neither go on nor be undone, because
// somebody else has changed the drive meanwhile. The record stays.
func (a *app) abandon(ctx context.Context, f againFlags) error {
	return a.withStanding(ctx, func(j *journal.Journal) (err error) {
		t, err := meant(ctx, j, f.ID)
		if err != nil {
			return err
		}
		if t.State.Finished() {
			return fmt.Errorf("transaction %s (%s) is %s: there is nothing to abandon", t.ID, t.Title, t.State)
		}
		what := fmt.Sprintf("abandoning transaction %s (%s)", t.ID, t.Title)
		if err := a.confirmAgain(ctx, f, t, what, []string{"the drive is left as it is now"}); err != nil {
			return err
		}
		// A change that is running holds the drive's lock.
		lock, err := lockDrive(lockDir(a.getenv), t.Identity.Serial, t.Address, what)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.release()) }()
		// It may have ended while consent was given.
		if now, err := j.Load(ctx, t.ID); err != nil {
			return err
		} else if now.Transaction.State.Finished() {
			return fmt.Errorf("transaction %s (%s) is %s: there is nothing to abandon", t.ID, t.Title, now.Transaction.State)
		}
		if err := j.SetState(ctx, t.ID, txn.StateCancelled, "abandoned by the user; the drive was left as it was", a.clock.Wall()); err != nil {
			return err
		}
		return a.printChange(changeResult{
			Schema: "nvop.change/1", Address: t.Address, Serial: t.Identity.Serial, State: "abandoned",
			Transaction: t.ID, Title: t.Title, NotRead: true, Journal: j.Path(),
		}, t.ID)
	})
}

// consequences says what taking a transaction on does, step by step.
func consequences(t txn.Transaction, verb string) []string {
	var list []string
	for _, s := range t.Steps {
		switch {
		case verb == "rollback":
			list = append(list, s.Title+": "+s.UndoText)
		case s.Destroys != "":
			list = append(list, s.Title+" destroys "+s.Destroys)
		}
	}
	return list
}

// touched are the namespaces that a stored transaction names; nil, which means
// all, when one of its commands reaches beyond them or a step stops the whole
// controller.
func touched(t txn.Transaction) []uint32 {
	list := []uint32{}
	for _, s := range t.Steps {
		if firmware.Disturbs(s) {
			return nil
		}
		for _, c := range s.Commands {
			if c.NSID == 0xFFFFFFFF {
				return nil
			}
			if c.NSID != 0 {
				list = append(list, c.NSID)
			}
		}
	}
	return list
}

func (a *app) printAgain(ctx context.Context, d *drive, j *journal.Journal, t txn.Transaction, report txn.Report) error {
	now, err := d.inventory(context.WithoutCancel(ctx))
	if err != nil {
		return doneBut(report.ID, err)
	}
	state := "changed"
	if report.State == txn.StateRolledBack {
		state = "rolled back"
	}
	r := changeResult{
		Schema: "nvop.change/1", Address: d.address, Serial: t.Identity.Serial, Changed: true, State: state,
		Transaction: report.ID, Title: t.Title, After: now.Namespaces, OverProvisioning: now.OverProvisioning(), Notes: append(report.Lost, report.Left...), Journal: j.Path(),
	}
	if report.State == txn.StateDone {
		r.Notes = append(r.Notes, namespace.Lowered(t.Steps, report.States)...)
	}
	perr := a.printChange(r, report.ID)
	if wrong := namespace.VerifyTransaction(t, report, now); len(wrong) > 0 {
		return errors.Join(perr, reported{driftError(d.address, wrong)})
	}
	return errors.Join(perr, pendingError(firmware.PendingAfter(t.Steps, report.States)))
}
