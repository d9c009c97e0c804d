package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/namespace"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/inuse"
	"nvop/pcie"
)

// soakTarget is what a soak runs on: a namespace of a drive, or a file.
type soakTarget struct {
	region
	address string
	serial  string
	// drive is nil for a file.
	drive *drive
	inv   namespace.Inventory
	ns    namespace.Namespace
	path  string // the block node or file; "" for a simulated drive
	node  string // the generic node of the namespace; "" when there is none
	// buffered says that the page cache, or what takes its place, cannot be
	// bypassed.
	buffered bool
	engine   ioEngine
	header   run.Header
	// held keeps the block node claimed exclusively while a run writes, so that
	// nobody mounts it meanwhile; nil before.
	held   *os.File
	closed bool
}

// soakFlags are what start and resume need beside the job.
type soakFlags struct {
	NSID      nsidFlag `name:"nsid" help:"The namespace (default: the one the address names, or the only one)." placeholder:"N"`
	Overwrite bool     `help:"Allow a file that is not empty to be overwritten."`
	engineFlags
	Reappear time.Duration `default:"60s" help:"How long to wait for a drive that goes away in the midst of it; it is taken up again by its identity, whatever its name. 0s: not at all." placeholder:"TIME"`
	consentFlags
	// resumed is the capacity of a run that is resumed, in bytes, and resumedLBA
	// its logical block.
	resumed    uint64
	resumedLBA uint32
}

// openSoak opens an address for a soak and finds out what is there.
func (a *app) openSoak(ctx context.Context, address string, f soakFlags) (*soakTarget, error) {
	t, err := a.findSoak(ctx, address, f)
	if err != nil {
		return nil, err
	}
	if err := t.chooseEngine(ctx, f.engineFlags); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.header.Engine = t.engine.text(t)
	f.asked(&t.header)
	return t, nil
}

func (a *app) findSoak(ctx context.Context, address string, f soakFlags) (*soakTarget, error) {
	if path, ok := strings.CutPrefix(address, "file:"); ok {
		return openSoakFile(address, path, f)
	}
	if f.Capacity != "" {
		return nil, usagef("--capacity is for file:/dev/null and the like; a drive has a size")
	}
	d, err := a.open(address)
	if err != nil {
		return nil, err
	}
	t := &soakTarget{address: d.durableAddress(), drive: d}
	if err := t.find(ctx, f); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return t, nil
}

// find chooses the namespace and records what the run's numbers depend on.
func (t *soakTarget) find(ctx context.Context, f soakFlags) error {
	d := t.drive
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	nsid, err := oneNSID(uint32(f.NSID), d.nsid)
	if err != nil {
		return err
	}
	ns, err := chooseNamespace(inv, nsid)
	if err != nil {
		return err
	}
	t.inv, t.ns, t.serial = inv, ns, inv.Identity.Serial
	if t.serial == "" {
		return refusedf("identity", d.address, "", "the drive reports no serial number, so it cannot be told from another")
	}
	user := uint64(0)
	for _, n := range inv.Namespaces {
		user += n.SizeBlocks * uint64(n.Format.DataBytes)
	}
	t.region = region{
		capacityBytes: ns.SizeBlocks * uint64(ns.Format.DataBytes), lbaBytes: ns.Format.DataBytes,
		simulated: d.sim != nil, totalBytes: inv.Controller.TotalBytes,
	}
	t.header = run.Header{
		Address: t.address, Simulated: d.sim != nil, SubsystemNQN: inv.Identity.SubsystemNQN, Serial: t.serial,
		Model: inv.Identity.Model, Firmware: inv.Controller.FirmwareRevision, CNTLID: inv.Identity.CNTLID, NSID: ns.NSID,
		NGUID: ns.NGUID, EUI64: ns.EUI64, LBADataBytes: ns.Format.DataBytes, LBAMetadataBytes: ns.Format.MetadataBytes,
		TotalCapacityBytes: run.U128(inv.Controller.TotalBytes), OverProvisioningPermille: -1, PowerState: -1, Link: d.link(),
	}
	if user > 0 && inv.Controller.TotalBytes >= user {
		t.header.OverProvisioningPermille = int64((inv.Controller.TotalBytes - user) * 1000 / user)
	}
	t.settings(ctx)
	return t.findNode()
}

// settings records the power state and APST where the drive tells them.
func (t *soakTarget) settings(ctx context.Context) {
	if ps, err := admin.PowerManagement(ctx, t.drive.dev); err == nil {
		t.header.PowerState = int64(ps.State)
	}
	if apst, err := admin.APST(ctx, t.drive.dev); err == nil {
		t.header.APST = map[bool]string{true: "on", false: "off"}[apst.Transits()]
	}
}

// findNode finds the block node of the namespace on this host.
func (t *soakTarget) findNode() error {
	d := t.drive
	if d.sim != nil {
		return nil
	}
	inv, err := d.host.Discover()
	if err != nil {
		return err
	}
	for _, ns := range inv.NamespacesOf(d.target.Controllers[0].Name) {
		if ns.NSID == t.ns.NSID && ns.Node != "" {
			t.path, t.node = ns.Node, ns.GenericNode
			return nil
		}
	}
	return fmt.Errorf("%s: namespace %d has no block device on this host (is it attached? nvop ns list %s)", d.address, t.ns.NSID, d.address)
}

func chooseNamespace(inv namespace.Inventory, nsid uint32) (namespace.Namespace, error) {
	var usable []namespace.Namespace
	for _, ns := range inv.Namespaces {
		if ns.Error == "" && slices.Contains(ns.Controllers, inv.Identity.CNTLID) {
			usable = append(usable, ns)
		}
	}
	switch {
	case nsid != 0:
		for _, ns := range usable {
			if ns.NSID == nsid {
				return ns, nil
			}
		}
		return namespace.Namespace{}, fmt.Errorf("%s: no namespace %d is attached to controller %d", inv.Address, nsid, inv.Identity.CNTLID)
	case len(usable) == 0:
		return namespace.Namespace{}, fmt.Errorf("%s: no namespace is attached to controller %d", inv.Address, inv.Identity.CNTLID)
	case len(usable) > 1:
		var ids []uint32
		for _, ns := range usable {
			ids = append(ids, ns.NSID)
		}
		return namespace.Namespace{}, usagef("%s has namespaces %s; name one with --nsid", inv.Address, joinNumbers(ids))
	}
	return usable[0], nil
}

// close gives the drive back.
func (t *soakTarget) close() error {
	var err error
	if t.held != nil {
		err = t.held.Close()
		t.held = nil
	}
	if t.drive == nil || t.closed {
		return err
	}
	t.closed = true
	return errors.Join(err, t.drive.close())
}

// hold claims the block node for as long as the target is open. The kernel then
// refuses to mount or claim it; it does not stop NVMe commands.
func (t *soakTarget) hold() error {
	if t.path == "" {
		return nil
	}
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_RDONLY|os.O_EXCL, 0)
	if err != nil {
		return refusedf("in use", t.path, "", "it could not be claimed exclusively: %v", err)
	}
	t.held = f
	return nil
}

// check makes sure, right before anything is written, that this is still the
// drive that was agreed to and that nobody uses it.
func (t *soakTarget) check(ctx context.Context, accepted []inuse.Kind) error {
	if t.drive == nil {
		return t.checkFileUse()
	}
	now, err := namespace.ReadIdentity(ctx, t.drive.dev)
	if err != nil {
		return err
	}
	if now != t.inv.Identity {
		return refusedf("identity", t.drive.address, "", "the drive is now %s %s, controller %d; it was %s %s, controller %d",
			now.Model, now.Serial, now.CNTLID, t.inv.Identity.Model, t.inv.Identity.Serial, t.inv.Identity.CNTLID)
	}
	return t.drive.checkUse([]uint32{t.ns.NSID}, accepted)
}

// checkFileUse refuses a file, or a node given as one, that somebody uses. What it
// holds is a question of its own: of --overwrite.
func (t *soakTarget) checkFileUse() error {
	uses := append(inuse.FindFile("", t.path), inuse.FindNode("", t.path)...)
	return refuseUse(t.address, inuse.Blocking(uses, inuse.Kinds()...))
}

// checkFile refuses a file that holds something.
func (t *soakTarget) checkFile(overwrite bool) error {
	if t.drive != nil || overwrite || t.buffered {
		return nil
	}
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	empty, err := allZero(f, t.capacityBytes)
	if err == nil && !empty {
		err = refusedf("consent", t.address, "add --overwrite to lose it", "the file is not empty")
	}
	return err
}

// sampler reads the drive's health; nil for a file, which has none.
func (t *soakTarget) sampler() endurance.Sampler {
	if t.drive == nil {
		return nil
	}
	return endurance.NewAdminSampler(t.drive.dev, t.ns.NSID)
}

// watchPath looks at the way to the drive while a run lasts: a link that becomes
// slower and errors on the bus are events of the run. nil where there is no PCIe.
func (t *soakTarget) watchPath() (func() []string, error) {
	if t.drive == nil || t.drive.target == nil || t.drive.target.Controllers[0].PCIAddress == "" {
		return nil, nil
	}
	address, err := pcie.ParseAddress(t.drive.target.Controllers[0].PCIAddress)
	if err != nil {
		return nil, err
	}
	watch, err := pcie.Sysfs{Root: t.drive.host.Root}.Watch(address)
	if err != nil {
		return nil, err
	}
	return func() []string {
		var texts []string
		for _, e := range watch.Look() {
			texts = append(texts, fmt.Sprintf("%s: %s", e.At, e.Text))
		}
		return texts
	}, nil
}

// same says whether a recorded run belongs to this target, and why not.
func (t *soakTarget) same(h run.Header) error {
	refuse := func(what string, was, is any) error {
		return refusedf("identity", t.address, "", "%s is %v; the run was on %v", what, is, was)
	}
	switch {
	case h.Serial != t.serial:
		return refuse("the serial number", h.Serial, t.serial)
	case h.SubsystemNQN != t.header.SubsystemNQN:
		return refuse("the subsystem", h.SubsystemNQN, t.header.SubsystemNQN)
	case h.NSID != t.header.NSID:
		return refuse("the namespace", h.NSID, t.header.NSID)
	case h.NGUID != t.header.NGUID || h.EUI64 != t.header.EUI64:
		return refuse("the namespace's identifier", h.NGUID+h.EUI64, t.header.NGUID+t.header.EUI64)
	case h.LBADataBytes != t.header.LBADataBytes || h.LBAMetadataBytes != t.header.LBAMetadataBytes:
		return refuse("the LBA format", lbaOf(h), lbaOf(t.header))
	case h.Job.CapacityBytes != t.capacityBytes:
		return refuse("the capacity", h.Job.CapacityBytes, t.capacityBytes)
	}
	return nil
}

func lbaOf(h run.Header) string {
	return lbaText(namespace.LBAFormat{DataBytes: h.LBADataBytes, MetadataBytes: h.LBAMetadataBytes})
}
