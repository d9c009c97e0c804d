package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/sim"
)

// drive is an address opened for control.
type drive struct {
	// address is what the user wrote.
	address string
	dev     nvmeioctl.Device
	clock   nvmeioctl.Clock
	// transport is "pcie", "tcp", ..., "sim" or "replay".
	transport string
	// nsid is the namespace the address names; 0 for a controller.
	nsid uint32
	// sim is set for a simulated drive.
	sim *sim.Drive
	// target is set for a drive of this host.
	target *nvmeioctl.Target
	host   nvmeioctl.Host
}

// durableAddress is the address as it must be kept in the journal, where
// another process finds it from another directory.
func (d *drive) durableAddress() string {
	name, ok := strings.CutPrefix(d.address, "sim:")
	if d.transport == "replay" {
		name, _ := strings.CutPrefix(d.address, "replay:")
		if abs, err := filepath.Abs(name); err == nil {
			return "replay:" + abs
		}
	}
	if !ok {
		return d.address
	}
	if abs, err := filepath.Abs(name); err == nil {
		if _, err := os.Stat(abs); err == nil {
			return "sim:" + abs
		}
	}
	return d.address
}

// close closes the drive. If a simulated one has failed because of this host (its
// file system is full, say), that is what the user must hear of.
func (d *drive) close() error {
	var cause error
	if d.sim != nil {
		if cause = d.sim.SaveError(); cause != nil {
			cause = fmt.Errorf("(the drive failed because of this host: %w)", cause)
		}
	}
	return errors.Join(cause, d.dev.Close())
}

// driveArg is the positional argument of most commands.
type driveArg struct {
	Drive string `arg:"" help:"The drive: /dev/nvme0, /dev/nvme0n1, sim:FILE, sim:PROFILE, or replay:FILE for commands that read." placeholder:"DRIVE"`
}

// traceFlag lets a user see every command that is sent.
type traceFlag struct {
	Trace bool   `help:"Write every command sent to the drive to standard error."`
	Fault string `hidden:"" help:"Simulated drives: misbehave as this expression says." placeholder:"EXPR"`
}

// open opens an address. Admin commands always go through a controller node:
// deleting a namespace through its own node has deadlocked kernels.
func (a *app) open(address string) (*drive, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	switch {
	case ok && scheme == "sim":
		return a.openSim(address, rest)
	case ok && scheme == "replay":
		return a.openReplay(address, rest)
	case ok && scheme == "file":
		return nil, usagef("%s: a file has a data path only; it can be soaked, not configured", address)
	case strings.HasPrefix(address, "/"):
		return a.openHost(address)
	case ok:
		return nil, usagef("%s: unknown kind of address %q; use /dev/..., sim:FILE, sim:PROFILE or replay:FILE", address, scheme+":")
	}
	return nil, usagef("%s: not an address; use /dev/%s, sim:%s", address, address, address)
}

func (a *app) openSim(address, name string) (*drive, error) {
	d := &drive{address: address, transport: "sim"}
	_, err := os.Stat(name)
	switch {
	case err == nil:
		d.sim, err = sim.Open(name)
	case errors.Is(err, fs.ErrNotExist):
		profile, known := sim.LookupProfile(name)
		if !known {
			return nil, fmt.Errorf("%s: no such file, and no profile of that name (nvop sim profiles lists them)", address)
		}
		d.sim, err = sim.New(profile, sim.Options{})
	}
	if err != nil {
		return nil, err
	}
	d.dev, d.clock = d.sim, d.sim.Clock()
	return d, nil
}

// goesOn refuses to wait for what a recording will not do.
func (d *drive) goesOn() error {
	if d.transport != "replay" {
		return nil
	}
	return &nvmeioctl.UnsupportedError{Feature: "waiting for a recording", Needs: "a drive: what was recorded does not go on"}
}

// openReplay opens a recorded conversation, which answers reading commands.
func (a *app) openReplay(address, name string) (*drive, error) {
	f, err := openInput(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rec, err := layer.ReadRecording(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// A recording lives at the time when it was made.
	return &drive{address: address, transport: "replay", clock: nvmeioctl.NewVirtualClock(rec.Started), dev: layer.NewReplay(address, rec)}, nil
}

func (a *app) openHost(path string) (*drive, error) {
	d := &drive{address: path, clock: a.clock}
	target, err := d.host.Resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such device (nvop list shows what is there)", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(target.Controllers) == 0 {
		return nil, fmt.Errorf("%s: no controller of this host leads to it: %w", path, nvmeioctl.ErrDeviceGone)
	}
	controller := target.Controllers[0]
	dev, err := d.host.Open(controller.Node)
	if err != nil {
		return nil, err
	}
	d.dev, d.target, d.transport, d.nsid = dev, &target, controller.Transport, target.NSID()
	return d, nil
}

// dress wraps the drive's device as the flags ask: commands are written down,
// and a simulated drive misbehaves.
func (a *app) dress(d *drive, f traceFlag) error {
	if f.Fault != "" {
		if d.sim == nil {
			return usagef("--fault is for simulated drives")
		}
		plan, err := layer.ParseFaults(f.Fault)
		if err != nil {
			return &codedError{exitUsage, err}
		}
		d.dev = layer.Fault(d.dev, plan, d.clock)
	}
	if f.Trace {
		d.dev = layer.Trace(d.dev, a.err, d.clock)
	}
	return nil
}

// inventory reads what planning needs to know.
func (d *drive) inventory(ctx context.Context) (namespace.Inventory, error) {
	inv, err := namespace.ReadInventory(ctx, d.dev, namespace.ReadOptions{Transport: d.transport, Clock: d.clock})
	if err == nil {
		inv.Address = d.address
	}
	return inv, err
}

// uses finds who uses the namespaces named on this host; nil means all of the
// drive's, an empty list none: the change touches no data. A simulated drive has
// no users but the process that has it open.
func (d *drive) uses(nsids []uint32) ([]inuse.Use, error) {
	if d.target == nil || nsids != nil && len(nsids) == 0 {
		return nil, nil
	}
	inv, err := d.host.Discover()
	if err != nil {
		return nil, err
	}
	t := inuse.Target{}
	for _, c := range d.siblings(inv) {
		t.Chars = append(t.Chars, c.Name)
		if c.PCIAddress != "" {
			t.PCIAddresses = append(t.PCIAddresses, c.PCIAddress)
		}
		for _, ns := range inv.NamespacesOf(c.Name) {
			if nsids != nil && !slices.Contains(nsids, ns.NSID) {
				continue
			}
			if ns.Name != "" && !slices.Contains(t.Disks, ns.Name) {
				t.Disks = append(t.Disks, ns.Name)
			}
			if name := strings.TrimPrefix(ns.GenericNode, "/dev/"); name != "" && !slices.Contains(t.Chars, name) {
				t.Chars = append(t.Chars, name)
			}
		}
	}
	return inuse.Find(d.host.Root, t), nil
}

// siblings are the controllers of this host that lead to the same drive: a
// user of the data may have come through any of them.
func (d *drive) siblings(inv nvmeioctl.Inventory) []nvmeioctl.Controller {
	own := d.target.Controllers[0]
	var list []nvmeioctl.Controller
	for _, c := range inv.Controllers {
		if c.Name == own.Name || c.SubsystemNQN == own.SubsystemNQN && c.Serial == own.Serial {
			list = append(list, c)
		}
	}
	return list
}

// visible asks this host whether it shows a namespace as wanted.
func (d *drive) visible(_ context.Context, want namespace.Visible) (bool, error) {
	inv, err := d.host.Discover()
	if err != nil {
		return false, err
	}
	for _, c := range d.siblings(inv) {
		for _, ns := range inv.NamespacesOf(c.Name) {
			if ns.NSID != want.NSID {
				continue
			}
			if !want.Present {
				return false, nil
			}
			if ns.SizeBytes == want.SizeBytes && ns.LogicalBlockBytes == want.BlockBytes {
				return true, nil
			}
		}
	}
	return !want.Present, nil
}
