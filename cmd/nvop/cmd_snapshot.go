package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/pcie"
)

const snapshotSchema = "nvop.snapshot/1"

// snapshot is everything that can be read about a drive's configuration.
type snapshot struct {
	Schema    string             `json:"schema"`
	TakenAt   time.Time          `json:"taken_at"`
	Program   string             `json:"program"`
	Address   string             `json:"address"`
	Transport string             `json:"transport,omitempty"`
	Identity  nvmeioctl.Identity `json:"identity"`
	// Controller is Identify Controller whole; nil where it could not be read.
	Controller *nvmespec.Controller `json:"controller,omitempty"`
	// Namespaces are Identify Namespace whole, of those that are allocated.
	Namespaces []snapshotNamespace  `json:"identify_namespaces,omitempty"`
	Inventory  *namespace.Inventory `json:"inventory,omitempty"`
	// Host is what the kernel shows without a command to the drive.
	Host *snapshotHost `json:"host,omitempty"`
	PCIe *pcie.Path    `json:"pcie,omitempty"`
	// Problems are what could not be read, and why.
	Problems []namespace.Problem `json:"not_read"`
}

type snapshotNamespace struct {
	NSID uint32 `json:"nsid"`
	nvmespec.Namespace
}

type snapshotHost struct {
	Controllers []nvmeioctl.Controller `json:"controllers"`
	Namespaces  []nvmeioctl.Namespace  `json:"namespaces"`
}

func (s *snapshot) problem(what string, nsid uint32, err error) {
	s.Problems = append(s.Problems, namespace.Problem{What: what, NSID: nsid, Error: err.Error()})
}

type snapshotCmd struct {
	driveArg
	Out string `help:"Write the document to this file; an existing file is not overwritten." placeholder:"FILE"`
	traceFlag
}

func (snapshotCmd) Help() string {
	return `Reads everything there is about a drive's configuration into one JSON document, and says in it what could not be read and why. Without root it holds what the kernel gives away; it never sends anything but reading commands.

Example:
  nvop snapshot /dev/nvme0 --out before.json
  nvop diff before.json /dev/nvme0`
}

type snapshotResult struct{ snapshot }

func (r snapshotResult) Text(p *render.Page) {
	p.Line("%s  %s  serial %s", r.Address, r.Identity.Model, r.Identity.Serial)
	if r.Inventory != nil {
		p.Pairs("namespaces", fmt.Sprint(len(r.Inventory.Namespaces)), "LBA formats", fmt.Sprint(len(r.Inventory.Formats)),
			"values of features", fmt.Sprint(len(r.Inventory.Features)))
	}
	problems(p, r.Problems)
	p.Line("-o json prints the document, --out FILE keeps it")
}

func (c snapshotCmd) Run(ctx context.Context, a *app) error {
	s, err := a.takeSnapshot(ctx, c.Drive, c.traceFlag)
	if err != nil {
		return err
	}
	if c.Out != "" {
		if _, err := intoNewFile(c.Out, 0o644, func(w io.Writer) error { return render.Write(w, render.JSON, snapshotResult{s}) }); err != nil {
			return err
		}
		a.note("wrote %s", c.Out)
	}
	return a.print(snapshotResult{s})
}

// takeSnapshot reads a drive. One that may not be opened is described from what
// the kernel shows.
func (a *app) takeSnapshot(ctx context.Context, address string, trace traceFlag) (s snapshot, err error) {
	s = snapshot{Schema: snapshotSchema, TakenAt: a.clock.Wall().UTC(), Program: "nvop " + version, Address: address, Problems: []namespace.Problem{}}
	d, err := a.open(address)
	if errors.Is(err, fs.ErrPermission) {
		return s, errors.Join(s.fromHost(address, err), ctx.Err())
	}
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, trace); err != nil {
		return s, err
	}
	s.Transport = d.transport
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return s, err
	}
	s.Controller, s.Identity = &ctrl, admin.IdentityOf(ctrl)
	inv, err := d.inventoryWith(ctx, namespace.AllFeatures())
	if err != nil {
		return s, err
	}
	s.Inventory = &inv
	s.Problems = append(s.Problems, inv.Problems...)
	for _, f := range inv.Features {
		if f.Error != "" && !f.Unsupported {
			s.Problems = append(s.Problems, namespace.Problem{What: "feature " + f.Name, NSID: f.NSID, Error: f.Error})
		}
	}
	s.namespaces(ctx, d)
	s.addHost(d.target)
	if path, why := d.pciePath(); path != nil {
		s.PCIe = path
	} else if d.target != nil && d.target.Controllers[0].PCIAddress != "" {
		s.problem("PCI Express path", 0, errors.New(why))
	}
	return s, ctx.Err()
}

func (s *snapshot) namespaces(ctx context.Context, d *drive) {
	get := admin.IdentifyNamespace
	if s.Inventory.Controller.NamespaceManagement {
		get = admin.IdentifyAllocatedNamespace
	}
	for _, n := range s.Inventory.Namespaces {
		id, err := get(ctx, d.dev, n.NSID)
		if err != nil {
			s.problem("identify namespace", n.NSID, err)
			continue
		}
		s.Namespaces = append(s.Namespaces, snapshotNamespace{NSID: n.NSID, Namespace: id})
	}
}

// addHost adds what the kernel shows of the drive.
func (s *snapshot) addHost(target *nvmeioctl.Target) {
	if target == nil {
		return
	}
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		s.problem("what the kernel shows", 0, err)
		return
	}
	h := &snapshotHost{Controllers: nonNil(target.Controllers), Namespaces: []nvmeioctl.Namespace{}}
	for _, c := range target.Controllers {
		h.Namespaces = append(h.Namespaces, inv.NamespacesOf(c.Name)...)
	}
	s.Host = h
}

// fromHost fills a snapshot of a drive that may not be opened.
func (s *snapshot) fromHost(address string, denied error) error {
	target, err := nvmeioctl.Host{}.Resolve(address)
	if err != nil {
		return err
	}
	if len(target.Controllers) == 0 {
		return denied
	}
	c := target.Controllers[0]
	s.Transport, s.Identity = c.Transport, c.Identity()
	s.addHost(&target)
	s.problem("everything that takes a command to the drive", 0, fmt.Errorf("%w; it needs CAP_SYS_ADMIN and the right to open %s", denied, c.Node))
	d := &drive{target: &target, transport: c.Transport}
	if path, why := d.pciePath(); path != nil {
		s.PCIe = path
	} else if c.PCIAddress != "" {
		s.problem("PCI Express path", 0, errors.New(why))
	}
	return nil
}

// looksLikeAddress tells a drive from a file's name.
func looksLikeAddress(text string) bool {
	return strings.HasPrefix(text, "/dev/") && !givenOpen(text) || strings.HasPrefix(text, "sim:") || strings.HasPrefix(text, "replay:")
}
