package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
)

type nsCmd struct {
	List   nsListCmd   `cmd:"" help:"List the namespaces of a drive."`
	Create nsCreateCmd `cmd:"" help:"Create a namespace and attach it."`
	Delete nsDeleteCmd `cmd:"" help:"Delete namespaces and their data."`
	Attach nsAttachCmd `cmd:"" help:"Attach a namespace to controllers."`
	Detach nsDetachCmd `cmd:"" help:"Detach a namespace from controllers."`
}

type nsListCmd struct {
	driveArg
	traceFlag
}

func (nsListCmd) Help() string {
	return "Attachment is what the drive says of each namespace (Identify CNS 12h), not what this host sees.\n\nExample: nvop ns list /dev/nvme0"
}

type nsListResult struct {
	Schema           string                `json:"schema"`
	Address          string                `json:"address"`
	Serial           string                `json:"serial"`
	TotalBytes       uint64                `json:"total_capacity_bytes"`
	UnallocatedBytes uint64                `json:"unallocated_capacity_bytes"`
	Namespaces       []namespace.Namespace `json:"namespaces"`
	Problems         []namespace.Problem   `json:"problems,omitempty"`
}

func (r nsListResult) Text(p *render.Page) {
	p.Pairs("drive", r.Address+" "+r.Serial, "total", sizeOrNone(r.TotalBytes), "unallocated", render.Size(r.UnallocatedBytes))
	p.Grid(namespaceHeader(), namespaceRows(r.Namespaces))
	problems(p, r.Problems)
}

func sizeOrNone(bytes uint64) string {
	if bytes == 0 {
		return "not reported"
	}
	return render.Size(bytes)
}

func problems(p *render.Page, list []namespace.Problem) {
	for _, problem := range list {
		p.Line("  not read: %s: %s", problem.What, problem.Error)
	}
}

func (c nsListCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	return a.print(nsListResult{
		Schema: "nvop.ns-list/1", Address: c.Drive, Serial: inv.Identity.Serial,
		TotalBytes: inv.Controller.TotalBytes, UnallocatedBytes: inv.Controller.UnallocatedBytes,
		Namespaces: inv.Namespaces, Problems: inv.Problems,
	})
}

type nsCreateCmd struct {
	driveArg
	Size     string   `required:"" help:"Size: 800GB, 1TiB, 10%, max. Whole GB and TB from 50 GB on are marketing capacities." placeholder:"SIZE"`
	Exact    bool     `help:"Take --size literally, not as a marketing capacity."`
	LBA      string   `name:"lba" help:"LBA format by data and metadata size, such as 4096 or 4096+8." placeholder:"DATA[+META]"`
	Shared   bool     `help:"Let more than one controller have it. This cannot be changed later."`
	Attach   []string `help:"Controllers to attach it to, decimal or 0x hexadecimal (default: the one that is open)." placeholder:"CNTLID"`
	NoAttach bool     `help:"Leave it detached."`
	changeFlags
}

func (nsCreateCmd) Help() string {
	return "Example:\n  nvop ns create /dev/nvme0 --size 800GB --lba 4096 --confirm-serial S1234"
}

func (c nsCreateCmd) Run(ctx context.Context, a *app) error {
	size, err := namespace.ParseSize(c.Size, c.Exact)
	if err != nil {
		return err
	}
	lba, err := lbaSelector(c.LBA)
	if err != nil {
		return err
	}
	controllers, err := controllerIDs(c.Attach)
	if err != nil {
		return err
	}
	if c.NoAttach {
		if controllers != nil {
			return usagef("--attach and --no-attach exclude each other")
		}
		controllers = []uint16{}
	}
	return a.change(ctx, c.Drive, c.changeFlags, func(inv namespace.Inventory, _ uint32) (namespace.Plan, error) {
		return namespace.PlanCreate(inv, namespace.CreateTarget{
			Size: size, Format: lba, Shared: c.Shared, Controllers: controllers, Title: "ns create --size " + c.Size,
		}, c.options())
	})
}

type nsDeleteCmd struct {
	driveArg
	NSID []nsidFlag `name:"nsid" help:"Namespaces to delete (default: the one the address names)." placeholder:"N"`
	changeFlags
}

func (nsDeleteCmd) Help() string {
	return "Example: nvop ns delete /dev/nvme0 --nsid 2 --confirm-serial S1234"
}

func (c nsDeleteCmd) Run(ctx context.Context, a *app) error {
	return a.change(ctx, c.Drive, c.changeFlags, func(inv namespace.Inventory, named uint32) (namespace.Plan, error) {
		var nsids []uint32
		for _, n := range c.NSID {
			nsids = append(nsids, uint32(n))
		}
		if len(nsids) == 0 && named != 0 {
			nsids = []uint32{named}
		}
		if len(nsids) == 0 {
			return namespace.Plan{}, usagef("which namespace? name it with --nsid, or by its node")
		}
		return namespace.PlanDelete(inv, nsids, fmt.Sprintf("ns delete %s", joinNumbers(nsids)), c.options())
	})
}

func joinNumbers(list []uint32) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, strconv.FormatUint(uint64(n), 10))
	}
	return strings.Join(parts, ",")
}

// attachFlags are shared by attach and detach.
type attachFlags struct {
	driveArg
	NSID       nsidFlag `name:"nsid" help:"The namespace (default: the one the address names)." placeholder:"N"`
	Controller []string `help:"Controller identifiers, decimal or 0x hexadecimal." placeholder:"CNTLID"`
	changeFlags
}

// plan finds out what is meant and lets make plan it.
func (f attachFlags) run(ctx context.Context, a *app, verb string, make func(namespace.Inventory, uint32, []uint16, string, namespace.Options) (namespace.Plan, error)) error {
	controllers, err := controllerIDs(f.Controller)
	if err != nil {
		return err
	}
	return a.change(ctx, f.Drive, f.changeFlags, func(inv namespace.Inventory, named uint32) (namespace.Plan, error) {
		nsid, err := oneNSID(uint32(f.NSID), named)
		if err != nil {
			return namespace.Plan{}, err
		}
		if nsid == 0 {
			return namespace.Plan{}, usagef("which namespace? name it with --nsid")
		}
		return make(inv, nsid, controllers, fmt.Sprintf("ns %s %d", verb, nsid), f.options())
	})
}

type nsAttachCmd struct{ attachFlags }

func (nsAttachCmd) Help() string {
	return "Without --controller, attaches it to the controller that is open.\n\nExample: nvop ns attach /dev/nvme0 --nsid 2 --confirm-serial S1234"
}

func (c nsAttachCmd) Run(ctx context.Context, a *app) error {
	return c.run(ctx, a, "attach", namespace.PlanAttach)
}

type nsDetachCmd struct{ attachFlags }

func (nsDetachCmd) Help() string {
	return "Without --controller, detaches it from all. The data stays.\n\nExample: nvop ns detach /dev/nvme0 --nsid 2 --confirm-serial S1234"
}

func (c nsDetachCmd) Run(ctx context.Context, a *app) error {
	return c.run(ctx, a, "detach", namespace.PlanDetach)
}

// controllerIDs reads controller identifiers. A leading zero is refused: some
// tools take it for octal.
func controllerIDs(texts []string) ([]uint16, error) {
	var list []uint16
	for _, text := range texts {
		digits, base := text, 10
		if rest, ok := strings.CutPrefix(text, "0x"); ok {
			digits, base = rest, 16
		} else if len(text) > 1 && text[0] == '0' {
			return nil, usagef("controller %q: a leading 0 is ambiguous; write decimal or 0x hexadecimal", text)
		}
		n, err := strconv.ParseUint(digits, base, 16)
		if err != nil {
			return nil, usagef("controller %q: not a number from 0 to 65535, decimal or 0x hexadecimal", text)
		}
		list = append(list, uint16(n))
	}
	return list, nil
}
