package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nvop/namespace"
	"nvop/nvmeioctl"
)

type applyCmd struct {
	Drives        []string `arg:"" optional:"" name:"drive" help:"Drives, or one file that nvop plan --out wrote." placeholder:"DRIVE|PLAN"`
	File          string   `short:"f" help:"The desired state, a YAML file: one spec, or rules for many drives." placeholder:"SPEC"`
	All           bool     `help:"Every drive of this host that a rule is for."`
	Jobs          int      `default:"4" help:"How many drives are changed at a time." placeholder:"N"`
	ConfirmDigest string   `help:"Agree to exactly the plans with this digest, as plan --out and --dry-run print it (at least 12 digits)." placeholder:"DIGEST"`
	changeFlags
}

func (applyCmd) Help() string {
	return `Many drives are changed side by side, each by itself. After the first unexpected result no further drive is begun; those that were are carried to their end, and a table tells of each.

Example:
  nvop apply /dev/nvme0 -f spec.yaml --confirm-serial S1234
  nvop apply --all -f fleet.yaml --dry-run
  nvop apply plan.json --confirm-digest 0123456789ab`
}

func (c applyCmd) Run(ctx context.Context, a *app) error {
	if c.Jobs < 1 {
		return usagef("--jobs %d: at least 1", c.Jobs)
	}
	if c.File == "" {
		return c.fromPlan(ctx, a)
	}
	specs, err := readSpecs(c.File)
	if err != nil {
		return err
	}
	addresses, err := fleetArg{c.Drives}.addresses(c.All)
	if err != nil {
		return err
	}
	o := c.options()
	if o.Images, err = loadImages(specs); err != nil {
		return err
	}
	items := a.planFleet(ctx, addresses, specs, c.traceFlag, o, c.All)
	defer closeFleet(items)
	if len(items) == 1 && !c.All {
		if items[0].err != nil {
			return items[0].err
		}
		if err := items[0].drive.changeable(); err != nil && !c.DryRun {
			return err
		}
		if c.ConfirmDigest == "" {
			return a.proceed(ctx, items[0].drive, c.changeFlags, items[0].plan)
		}
	}
	if c.DryRun {
		return a.printPlans(ctx, items)
	}
	return c.carryOut(ctx, a, items, driftError)
}

// fromPlan carries out a file of plans.
func (c applyCmd) fromPlan(ctx context.Context, a *app) error {
	if len(c.Drives) != 1 || c.All {
		return usagef("apply takes -f SPEC and drives (or --all), or one file that nvop plan --out wrote")
	}
	if looksLikeAddress(c.Drives[0]) {
		return usagef("apply %s: to which state? name the spec with -f SPEC", c.Drives[0])
	}
	text, err := readInput(c.Drives[0])
	if err != nil {
		return err
	}
	file, err := namespace.ParsePlanFile(c.Drives[0], text)
	if err != nil {
		return err
	}
	items := make([]*fleetItem, len(file.Plans))
	quiet := a.shared()
	addresses := make([]string, len(file.Plans))
	for i, p := range file.Plans {
		addresses[i] = p.Address
	}
	eachDrive(addresses, func(i int, _ string) { items[i] = quiet.reopen(ctx, file.Plans[i], c.traceFlag) })
	defer closeFleet(items)
	// A plan that no longer fits is refused before anything is changed anywhere.
	var drift []string
	for _, item := range items {
		if r, ok := errors.AsType[*nvmeioctl.RefusedError](item.err); ok {
			drift = append(drift, r.Subject+": "+r.Reason)
		} else if item.err != nil {
			drift = append(drift, item.err.Error())
		}
	}
	if len(drift) > 0 {
		return refusedf("plan", c.Drives[0], "make the plan again", "%s", strings.Join(drift, "; "))
	}
	if c.DryRun {
		return a.printPlans(ctx, items)
	}
	return c.carryOut(ctx, a, items, driftRefused)
}

// reopen finds the drive of a plan, under the address it had or another, and looks
// whether it is as it was.
func (a *app) reopen(ctx context.Context, p namespace.Plan, trace traceFlag) *fleetItem {
	item := &fleetItem{address: p.Address, plan: p}
	item.drive, item.err = a.openIdentity(ctx, p.Address, p.Identity)
	if item.err != nil {
		return item
	}
	if item.err = a.dress(item.drive, trace); item.err != nil {
		return item
	}
	now, err := item.drive.inventoryWith(ctx, p.Reads)
	if err != nil {
		item.err = err
		return item
	}
	if drift := p.Drift(now); len(drift) > 0 {
		item.err = driftRefused(item.drive.address, drift)
	}
	return item
}

// openIdentity opens a drive by what it is: node names change at every boot.
func (a *app) openIdentity(ctx context.Context, address string, want nvmeioctl.Identity) (*drive, error) {
	d, err := a.open(address)
	if err == nil {
		id, ierr := namespace.ReadIdentity(ctx, d.dev)
		if ierr == nil && id == want {
			return d, nil
		}
		err = errors.Join(ierr, d.close())
		if err == nil {
			err = fmt.Errorf("%s is now drive %s, the plan is for %s", address, id.Serial, want.Serial)
		}
	}
	host, derr := nvmeioctl.Host{}.Discover()
	if derr != nil || !strings.HasPrefix(address, "/") {
		return nil, err
	}
	i := slices.IndexFunc(host.Controllers, func(c nvmeioctl.Controller) bool { return c.Identity() == want })
	if i < 0 || host.Controllers[i].Node == address {
		return nil, err
	}
	return a.open(host.Controllers[i].Node)
}

// carryOut agrees to all plans at once and carries them out side by side.
func (c applyCmd) carryOut(ctx context.Context, a *app, items []*fleetItem, drifted driftFunc) error {
	kinds, err := c.kinds()
	if err != nil {
		return err
	}
	for _, item := range items {
		if item.err == nil && !item.plan.AlreadySo() {
			item.err = item.drive.checkUse(item.plan.NSIDs, kinds)
		}
	}
	due := slices.DeleteFunc(slices.Clone(items), func(i *fleetItem) bool { return i.err != nil || i.plan.AlreadySo() })
	if len(due) > 0 {
		if err := c.agree(ctx, a, items, due); err != nil {
			return err
		}
		a.runFleet(ctx, due, c.Jobs, kinds, drifted)
	}
	return a.printFleet(ctx, items)
}

// agree is consent for many drives: the digest of all the plans, or for one drive
// its serial number.
func (c applyCmd) agree(ctx context.Context, a *app, items, due []*fleetItem) error {
	digest := namespace.Digest(plansOf(items))
	if c.ConfirmDigest == "" && len(due) == 1 && len(items) == 1 {
		p := due[0].plan
		return a.confirm(ctx, c.consentFlags, p.Identity.Serial, p.Title, p.Destroys)
	}
	refused := func(reason, remedy string) error {
		return refusedf("consent", plural(len(due), "drive"), remedy, "%s", reason)
	}
	if c.ConfirmSerial != "" {
		return refused("--confirm-serial agrees to one drive", "agree to all by --confirm-digest "+digest[:digestShown])
	}
	if given := len(c.ConfirmDigest); given > 0 && given < digestShown {
		return refused(fmt.Sprintf("--confirm-digest %s is too short: at least %d digits of the digest are needed; nothing was changed", c.ConfirmDigest, digestShown),
			"plan --out and --dry-run print it")
	}
	if c.ConfirmDigest != "" {
		if !strings.HasPrefix(digest, strings.ToLower(c.ConfirmDigest)) {
			return refused(fmt.Sprintf("--confirm-digest says %s, the plans are now %s; nothing was changed", c.ConfirmDigest, digest[:digestShown]),
				"look at the plans again: --dry-run prints them")
		}
		return nil
	}
	if !terminal(a.in) || !terminal(a.err) {
		return refused("changing them needs consent", "add --confirm-digest "+digest[:digestShown]+" after reading what --dry-run prints")
	}
	for _, item := range due {
		fmt.Fprintf(a.err, "drive %s (%s): %s\n", item.plan.Identity.Serial, item.address, plural(len(item.plan.Steps), "step"))
		for _, loss := range item.plan.Destroys {
			fmt.Fprintf(a.err, "  %s\n", loss)
		}
	}
	fmt.Fprintf(a.err, "Type %s to go on: ", digest[:digestShown])
	typed, err := readLine(ctx, a.in)
	if ctx.Err() != nil {
		return &codedError{exitInterrupted, errors.New("interrupted; nothing was changed")}
	}
	if err != nil || strings.TrimSpace(typed) != digest[:digestShown] {
		return refused("something else was typed; nothing was changed", "")
	}
	return nil
}
