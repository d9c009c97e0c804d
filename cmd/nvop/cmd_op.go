package main

import (
	"context"
	"errors"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/nvmeioctl/layer"
)

type opCmd struct {
	Predict opPredictCmd `cmd:"" help:"Predict WAF, rates and life at other sizes, without writing."`
	Plan    opPlanCmd    `cmd:"" help:"Show what another size would bring, and the plan to get there."`
	Set     opSetCmd     `cmd:"" help:"Give a namespace another size, to change over-provisioning."`
}

// opPlanCmd is op set --dry-run.
type opPlanCmd struct{ opSetCmd }

func (opPlanCmd) Help() string {
	return "Reads the drive, predicts what the size brings, and prints the plan with its exact commands. Nothing is changed.\n\nExample: nvop op plan /dev/nvme0 --size 6.4TB"
}

func (c opPlanCmd) Run(ctx context.Context, a *app) error {
	c.DryRun = true
	return c.opSetCmd.Run(ctx, a)
}

// opPlanResult is a plan after the prediction of what it brings.
type opPlanResult struct {
	planResult
	Prediction *predictResult `json:"prediction,omitempty"`
}

func (r opPlanResult) Text(p *render.Page) {
	if r.Prediction != nil {
		r.Prediction.Text(p)
		p.Line("")
	}
	r.planResult.Text(p)
}

type opSetCmd struct {
	driveArg
	To    string   `arg:"" optional:"" name:"size" help:"The same as --size: 6.4TB, max, factory ..." placeholder:"SIZE"`
	Size  string   `help:"New size: 6.4TB, 5.82TiB, 12502446768blocks, 80%, max or factory. Whole GB and TB are marketing capacities." xor:"target" placeholder:"SIZE"`
	OP    string   `name:"op" help:"New over-provisioning: 20% means (total-user)/user." xor:"target" placeholder:"PERCENT"`
	IDEMA string   `name:"idema" help:"New size by the IDEMA count of a marketing capacity: 6.4TB." xor:"target" placeholder:"CAPACITY"`
	OPOf  string   `name:"op-of" enum:"user,total" default:"user" help:"What --op is a share of."`
	Exact bool     `help:"Take --size literally, not as a marketing capacity."`
	NSID  nsidFlag `name:"nsid" help:"The namespace to replace (default: the only one)." placeholder:"N"`
	LBA   string   `name:"lba" help:"LBA format by data and metadata size, such as 4096 or 4096+8 (default: the present one)." placeholder:"DATA[+META]"`
	changeFlags
}

func (opSetCmd) Help() string {
	return `Deletes the namespace and creates it again with the new size, as one transaction: the old geometry is journaled first, each step is verified by reading back, and after any interruption "nvop resume" goes on and "nvop rollback" brings the old size back. The data is lost either way.

Example:
  nvop op plan /dev/nvme0 --size 6.4TB
  nvop op set /dev/nvme0 --size 6.4TB --confirm-serial S1234`
}

func (c opSetCmd) size() (namespace.Size, error) {
	switch {
	case c.OP != "":
		return namespace.ParseOP(c.OP, c.OPOf == "total")
	case c.IDEMA != "":
		return namespace.ParseIDEMA(c.IDEMA)
	}
	return namespace.ParseSize(c.Size, c.Exact)
}

func (c opSetCmd) title() string {
	switch {
	case c.OP != "":
		return "op set --op " + c.OP + " --op-of " + c.OPOf
	case c.IDEMA != "":
		return "op set --idema " + c.IDEMA
	}
	return "op set --size " + c.Size
}

// oneNSID joins the namespace a flag names with the one the address names.
func oneNSID(flag, named uint32) (uint32, error) {
	if flag != 0 && named != 0 && flag != named {
		return 0, usagef("--nsid %d, but the address names namespace %d", flag, named)
	}
	return max(flag, named), nil
}

// lbaSelector reads --lba; nil where it is not given.
func lbaSelector(text string) (*namespace.FormatSelector, error) {
	if text == "" {
		return nil, nil
	}
	f, err := namespace.ParseFormat(text)
	return &f, err
}

func (c opSetCmd) Run(ctx context.Context, a *app) error {
	given := 0
	for _, text := range []string{c.To, c.Size, c.OP, c.IDEMA} {
		if text != "" {
			given++
		}
	}
	if given != 1 {
		return usagef("op set takes one target: --size, --op or --idema")
	}
	c.Size += c.To
	size, err := c.size()
	if err != nil {
		return err
	}
	lba, err := lbaSelector(c.LBA)
	if err != nil {
		return err
	}
	plan := func(inv namespace.Inventory, named uint32) (namespace.Plan, error) {
		nsid, err := oneNSID(uint32(c.NSID), named)
		if err != nil {
			return namespace.Plan{}, err
		}
		return namespace.PlanOPSet(inv, namespace.OPTarget{NSID: nsid, Size: size, Format: lba, Title: c.title()}, c.options())
	}
	if c.DryRun {
		return c.rehearse(ctx, a, plan)
	}
	return a.change(ctx, c.Drive, c.changeFlags, plan)
}

// rehearse reads the drive and shows the prediction and the plan.
func (c opSetCmd) rehearse(ctx context.Context, a *app, plan planner) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	d.dev = layer.DryRun(d.dev) // even a mistake in planning sends nothing
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	p, err := plan(inv, d.nsid)
	if err != nil {
		return err
	}
	return a.print(opPlanResult{planResult: planResult{Plan: p, AlreadySo: p.AlreadySo()}, Prediction: planPrediction(inv, p)})
}
