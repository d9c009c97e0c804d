package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

type powerSetCmd struct {
	driveArg
	State          *uint8  `help:"The power state, by its number." placeholder:"N"`
	Workload       *uint8  `help:"The workload hint, 0 (none) to 7." placeholder:"N"`
	NonOperational bool    `help:"Allow a state in which the drive does no I/O: a hint that it may ignore."`
	VendorLimit    *uint32 `help:"The value of the vendor's own power limit (Memblaze: 0 is 25 W)." placeholder:"N"`
	APST           string  `name:"apst" enum:",on,off" default:"" help:"Turn autonomous transitions on or off." placeholder:"on|off"`
	Transitions    string  `help:"The table of autonomous transitions: FROM>TO@IDLEms, blanks between, or none." placeholder:"TABLE"`
	Save           bool    `help:"Keep it over resets and power cycles."`
	changeFlags
}

func (powerSetCmd) Help() string {
	return `Power does not touch data, so use of the drive is not looked at. What is set without --save is lost at the next reset.

Example:
  nvop power set /dev/nvme0 --state 2 --save --confirm-serial S1234
  nvop power set /dev/nvme0 --apst on --transitions "0>3@100ms 1>3@100ms 2>3@100ms 3>4@2000ms" --confirm-serial S1234`
}

// powerChange is one feature to be set.
type powerChange struct {
	title   string
	feature nvmespec.FeatureID
	params  namespace.FeatureParams
}

func (c powerSetCmd) Run(ctx context.Context, a *app) (err error) {
	if c.State == nil && c.Workload == nil && c.VendorLimit == nil && c.APST == "" && c.Transitions == "" {
		return usagef("nothing to change: give --state, --workload, --vendor-limit, --apst or --transitions")
	}
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	if !c.DryRun {
		if err := d.changeable(); err != nil {
			return err
		}
	}
	p, err := c.plan(ctx, d)
	if err != nil {
		return err
	}
	return a.proceed(ctx, d, c.changeFlags, p)
}

// words are the flags again, for the title.
func (c powerSetCmd) words() string {
	words := "power set"
	if c.State != nil {
		words += fmt.Sprintf(" --state %d", *c.State)
	}
	if c.Workload != nil {
		words += fmt.Sprintf(" --workload %d", *c.Workload)
	}
	if c.VendorLimit != nil {
		words += fmt.Sprintf(" --vendor-limit %d", *c.VendorLimit)
	}
	if c.APST != "" {
		words += " --apst " + c.APST
	}
	if c.Transitions != "" {
		words += fmt.Sprintf(" --transitions %q", c.Transitions)
	}
	if c.Save {
		words += " --save"
	}
	return words
}

// plan reads the drive and says what has to be set.
func (c powerSetCmd) plan(ctx context.Context, d *drive) (namespace.Plan, error) {
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return namespace.Plan{}, err
	}
	changes, err := c.changes(ctx, d, ctrl)
	if err != nil {
		return namespace.Plan{}, err
	}
	inv, err := d.inventory(ctx)
	if err != nil {
		return namespace.Plan{}, err
	}
	p := namespace.Plan{
		Schema: namespace.PlanSchema, Title: c.words(), Address: d.address, Identity: inv.Identity,
		Steps: []txn.Step{}, Before: inv.Namespaces, After: inv.Namespaces, Inventory: inv, NSIDs: []uint32{},
	}
	for _, ch := range changes {
		if err := c.saveable(ctx, d, ctrl, ch); err != nil {
			return p, err
		}
		so, err := namespace.FeatureIs(ctx, d.dev, ch.params)
		if err != nil {
			return p, err
		}
		if so {
			p.Notes = append(p.Notes, "already so: "+ch.title)
			continue
		}
		step, err := namespace.FeatureStep(ch.title, ch.params)
		if err != nil {
			return p, err
		}
		step.Index = len(p.Steps)
		p.Steps = append(p.Steps, step)
	}
	p.Notes = append(p.Notes, c.notes(d, ctrl)...)
	return p, nil
}

// notes say what the change does not do, and what may undo it.
func (c powerSetCmd) notes(d *drive, ctrl nvmespec.Controller) []string {
	var list []string
	if !c.Save {
		list = append(list, "not saved: a reset brings back what is saved")
	}
	if c.APST != "" || c.Transitions != "" {
		list = append(list, d.kernelAPST()...)
	}
	if _, ok := admin.LookupVendorPowerLimit(ctrl.VendorID); ok && c.State != nil && c.VendorLimit == nil {
		list = append(list, "drives of this vendor have a power limit of their own besides: nvop power list shows it")
	}
	if c.State != nil && int(*c.State) < len(ctrl.PowerStates) && ctrl.PowerStates[*c.State].NonOperational {
		list = append(list, "a non-operational state is a hint: the drive leaves it for any command, and may ignore it; measure it")
	}
	return list
}

// changes are the features to be set.
func (c powerSetCmd) changes(ctx context.Context, d *drive, ctrl nvmespec.Controller) ([]powerChange, error) {
	var list []powerChange
	for _, find := range []func(context.Context, *drive, nvmespec.Controller) (*powerChange, error){c.stateChange, c.vendorChange, c.apstChange} {
		ch, err := find(ctx, d, ctrl)
		if err != nil {
			return nil, err
		}
		if ch != nil {
			list = append(list, *ch)
		}
	}
	return list, nil
}

func (c powerSetCmd) stateChange(ctx context.Context, d *drive, ctrl nvmespec.Controller) (*powerChange, error) {
	if c.State == nil && c.Workload == nil {
		return nil, nil
	}
	now, err := admin.PowerManagement(ctx, d.dev)
	if err != nil {
		return nil, err
	}
	want := now
	if c.State != nil {
		want.State = *c.State
	}
	if c.Workload != nil {
		want.Workload = *c.Workload
	}
	switch {
	case int(want.State) >= len(ctrl.PowerStates):
		return nil, &nvmeioctl.UnsupportedError{Feature: fmt.Sprintf("power state %d", want.State), Needs: "a state that the drive has",
			Have: fmt.Sprintf("it has 0 to %d", len(ctrl.PowerStates)-1)}
	case want.Workload > 7:
		return nil, usagef("--workload %d: 0 to 7 are possible", want.Workload)
	case ctrl.PowerStates[want.State].NonOperational && !c.NonOperational:
		return nil, refusedf("power state", d.address, "take an operational state, or add --non-operational",
			"state %d is non-operational: the drive does no I/O in it, and may ignore it", want.State)
	}
	title := fmt.Sprintf("set power state %d (%s)", want.State, wattsText(ctrl.PowerStates[want.State].MaxPower))
	if want.Workload != 0 {
		title += fmt.Sprintf(", workload hint %d", want.Workload)
	}
	return c.change(title, ctrl, nvmespec.FeaturePowerManagement, want.Dword(), nil), nil
}

func (c powerSetCmd) change(title string, ctrl nvmespec.Controller, id nvmespec.FeatureID, dword uint32, data []byte) *powerChange {
	if c.Save {
		title += ", saved"
	}
	return &powerChange{title: title, feature: id, params: namespace.FeatureParams{FeatureChange: admin.FeatureChange{
		Feature: id, Save: c.Save, Dword: dword, Data: data, VendorID: ctrl.VendorID}}}
}

func (c powerSetCmd) vendorChange(ctx context.Context, d *drive, ctrl nvmespec.Controller) (*powerChange, error) {
	if c.VendorLimit == nil {
		return nil, nil
	}
	limit, ok := admin.LookupVendorPowerLimit(ctrl.VendorID)
	if !ok {
		return nil, &nvmeioctl.UnsupportedError{Feature: "a vendor power limit", Needs: "a drive whose vendor's limit is known", Have: fmt.Sprintf("PCI vendor 0x%04x is not", ctrl.VendorID)}
	}
	if *c.VendorLimit&^limit.Mask != 0 {
		return nil, usagef("--vendor-limit %d: 0 to %d are possible", *c.VendorLimit, limit.Mask)
	}
	title := fmt.Sprintf("set the %s to %d", limit.Name, *c.VendorLimit)
	if w, ok := limit.Power(*c.VendorLimit); ok {
		title += " (" + w.String() + ")"
	} else {
		title += " (its meaning is not published)"
	}
	return c.change(title, ctrl, limit.Feature, *c.VendorLimit, nil), nil
}

func (c powerSetCmd) apstChange(ctx context.Context, d *drive, ctrl nvmespec.Controller) (*powerChange, error) {
	if c.APST == "" && c.Transitions == "" {
		return nil, nil
	}
	if !ctrl.APST {
		return nil, &nvmeioctl.UnsupportedError{Feature: "autonomous power state transitions", Needs: "a drive that reports them (APSTA)"}
	}
	now, err := admin.APST(ctx, d.dev)
	if err != nil {
		return nil, err
	}
	want := now
	if c.Transitions != "" {
		if want.Transitions, err = transitions(c.Transitions, ctrl); err != nil {
			return nil, err
		}
	}
	if c.APST != "" {
		want.Enabled = c.APST == "on"
	}
	if want.Enabled && !want.Transits() {
		return nil, refusedf("autonomous transitions", d.address, "give --transitions", "the table is empty, so that they would be on and never take place")
	}
	title := "turn autonomous transitions off"
	if want.Enabled {
		title = fmt.Sprintf("turn autonomous transitions on, %d entries", len(newAPSTInfo(want).Transitions))
	}
	return c.change(title, ctrl, nvmespec.FeatureAPST, want.Dword(), want.Append(nil)), nil
}

// transitions reads a table of transitions: each from a state the drive has to a
// non-operational one that it has.
func transitions(text string, ctrl nvmespec.Controller) (table [nvmespec.MaxPowerStates]nvmespec.APSTTransition, err error) {
	if text == "none" {
		return table, nil
	}
	for part := range strings.FieldsSeq(text) {
		var from, to uint8
		var idle uint32
		n, err := fmt.Sscanf(part, "%d>%d@%dms", &from, &to, &idle)
		switch {
		case err != nil || n != 3 || part != fmt.Sprintf("%d>%d@%dms", from, to, idle) || idle == 0 || idle > 0xFFFFFF:
			return table, usagef("--transitions %q: not FROM>TO@IDLEms with 1 to 16777215 ms, like 0>3@100ms", part)
		case int(from) >= len(ctrl.PowerStates) || int(to) >= len(ctrl.PowerStates):
			return table, usagef("--transitions %q: the drive has states 0 to %d", part, len(ctrl.PowerStates)-1)
		case !ctrl.PowerStates[to].NonOperational:
			return table, usagef("--transitions %q: state %d is operational; transitions lead to non-operational states", part, to)
		case to <= from:
			return table, usagef("--transitions %q: a transition leads to a lower power state", part)
		case table[from].IdleMilliseconds != 0:
			return table, usagef("--transitions %q: state %d is there twice", part, from)
		}
		table[from] = nvmespec.APSTTransition{Target: to, IdleMilliseconds: idle}
	}
	return table, nil
}

// saveable refuses what the drive says that it cannot keep or change, before it is
// sent.
func (c powerSetCmd) saveable(ctx context.Context, d *drive, ctrl nvmespec.Controller, ch powerChange) error {
	if ctrl.IO&nvmespec.IOSaveFeatures == 0 {
		if c.Save {
			return &nvmeioctl.UnsupportedError{Feature: "keeping a setting over resets", Needs: "a drive that reports it (ONCS bit 4)"}
		}
		return nil
	}
	caps, err := admin.FeatureCapabilities(ctx, d.dev, ch.feature, 0)
	if err != nil {
		return nil // what may be done with it is not told: the drive answers to the command
	}
	switch {
	case !caps.Changeable:
		return &nvmeioctl.UnsupportedError{Feature: ch.title, Needs: "a feature that can be changed", Have: "the drive reports it as fixed"}
	case c.Save && !caps.Saveable:
		return &nvmeioctl.UnsupportedError{Feature: ch.title, Needs: "a feature that can be saved", Have: "the drive reports that it cannot; leave out --save"}
	}
	return nil
}
