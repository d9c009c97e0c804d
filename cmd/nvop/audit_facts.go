package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"nvop/namespace"
	"nvop/namespace/audit"
	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/pcie"
)

// gatherMax is how many drives are read at a time.
const gatherMax = 16

// specFlag names the desired state.
type specFlag struct {
	File string `short:"f" required:"" help:"The desired state, a YAML file: one spec, or rules for many drives." placeholder:"SPEC"`
}

func (f specFlag) read() ([]namespace.Spec, error) { return readSpecs(f.File) }

// inventoryWith reads what planning needs to know, and these features.
func (d *drive) inventoryWith(ctx context.Context, need namespace.FeatureNeed) (namespace.Inventory, error) {
	inv, err := namespace.ReadInventory(ctx, d.dev, namespace.ReadOptions{Transport: d.transport, Clock: d.clock, Features: need})
	if err == nil {
		inv.Address = d.address
	}
	return inv, err
}

// names are the addresses a spec's match may mean.
func (d *drive) names() []string {
	list := []string{d.address}
	if d.target == nil {
		return list
	}
	for _, c := range d.target.Controllers {
		list = append(list, c.Node, c.PCIAddress)
	}
	return list
}

// subject is what a spec's match looks at.
func (d *drive) subject(inv namespace.Inventory) namespace.Subject {
	return namespace.Subject{Identity: inv.Identity, VendorID: inv.Controller.VendorID, Addresses: d.names()}
}

// pciePath reads the drive's path; nil with the reason where there is none.
func (d *drive) pciePath() (*pcie.Path, string) {
	if d.target == nil || d.target.Controllers[0].PCIAddress == "" {
		return nil, "the drive is not on PCI Express (" + d.transport + ")"
	}
	address, err := pcie.ParseAddress(d.target.Controllers[0].PCIAddress)
	if err != nil {
		return nil, err.Error()
	}
	topo, err := pcie.Sysfs{Root: d.host.Root}.Load(address)
	if err != nil {
		return nil, err.Error()
	}
	path, err := topo.Path(address)
	if err != nil {
		return nil, err.Error()
	}
	return &path, ""
}

// everyDrive are the controllers of this host, one a drive: a drive with several
// controllers here is met through the first.
func everyDrive() ([]string, error) {
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		return nil, err
	}
	var list []string
	seen := map[string]bool{}
	for _, c := range inv.Controllers {
		key := c.SubsystemNQN + "\x00" + c.Serial
		if !seen[key] {
			seen[key] = true
			list = append(list, c.Node)
		}
	}
	return list, nil
}

// fleetArg names drives.
type fleetArg struct {
	Drives []string `arg:"" optional:"" name:"drive" help:"Drives: /dev/nvme0, sim:FILE, ... (default for audit: every drive of this host)." placeholder:"DRIVE"`
}

// eachDrive calls do for every address, several at a time, and waits for all.
func eachDrive(addresses []string, do func(i int, address string)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, gatherMax)
	for i, address := range addresses {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			do(i, address)
		})
	}
	wait.Wait()
}

// judged is one drive's part of an audit.
type judged struct {
	drive audit.Drive
	// rule is the number of the rule it was judged by; -1 for none.
	rule int
	err  error
}

// judgeDrive opens a drive, reads what its rule needs and judges it. Which rule
// that is needs the drive's identity alone, so nothing is read in vain.
func (a *app) judgeDrive(ctx context.Context, address string, specs []namespace.Spec, trace traceFlag) (j judged) {
	j.rule = -1
	d, err := a.open(address)
	if err != nil {
		j.err = err
		return j
	}
	defer func() { j.err = errors.Join(j.err, d.close()) }()
	if j.err = a.dress(d, trace); j.err != nil {
		return j
	}
	facts := audit.Facts{}
	if facts.Inventory, err = d.inventoryWith(ctx, namespace.FeaturesFor(specs...)); err != nil {
		j.err = err
		return j
	}
	subject := d.subject(facts.Inventory)
	spec, rule, ok := audit.Choose(specs, subject)
	if !ok {
		j.drive = audit.Unruled(address, subject, specs[0].File)
		return j
	}
	if spec.PCIe != (namespace.PCIeSpec{}) {
		facts.Path, facts.PathProblem = d.pciePath()
	}
	if f := spec.Firmware; f != nil && f.Image != "" && f.Revision != facts.Inventory.Controller.FirmwareRevision {
		image, err := firmware.LoadImage(f.Image)
		if err != nil {
			facts.ImageProblem = err.Error()
		} else {
			facts.Image = &image
		}
	}
	j.drive, j.rule = audit.Judge(facts, spec), rule
	return j
}

// chooseSpec is the rule for a drive, or a refusal that says that there is none.
func (d *drive) chooseSpec(specs []namespace.Spec, inv namespace.Inventory) (namespace.Spec, error) {
	spec, _, ok := audit.Choose(specs, d.subject(inv))
	if ok {
		return spec, nil
	}
	return spec, refusedf("match", d.address, "nvop spec init "+d.address+" writes a spec for it",
		"no rule of %s is for this drive: %s", specs[0].File, describeMatch(specs, inv))
}

func describeMatch(specs []namespace.Spec, inv namespace.Inventory) string {
	if len(specs) == 1 {
		return fmt.Sprintf("it is for %s, the drive is %q %q", specs[0].Match.Text(), inv.Identity.Serial, inv.Identity.Model)
	}
	return fmt.Sprintf("it has %d, the drive is %q %q", len(specs), inv.Identity.Serial, inv.Identity.Model)
}
