package namespace

import (
	"fmt"
	"slices"

	"nvop/namespace/txn"
)

// PlanOPSet plans a resize: the namespace is replaced by one of another size,
// which keeps format, sharing, sets, groups and controllers. Other namespaces
// are never touched. A drive without any namespace gets one.
func PlanOPSet(inv Inventory, t OPTarget, o Options) (Plan, error) {
	p := newPlanner(inv, t.Title, o)
	if err := p.checkManagement("changing the size of a namespace"); err != nil {
		return Plan{}, err
	}
	if t.NSID == 0 && len(inv.Namespaces) == 0 {
		shared := t.Shared != nil && *t.Shared
		return PlanCreate(inv, CreateTarget{Size: t.Size, Format: t.Format, Shared: shared, Title: t.Title}, o)
	}
	old, err := p.find(t.NSID)
	if err != nil {
		return Plan{}, err
	}
	if err := p.replace(old, t); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

// replace plans that old becomes what t says, unless it is so already.
func (p *planner) replace(old Namespace, t OPTarget) error {
	want := old
	want.UsedBlocks, want.AllocatedBytes, want.NGUID, want.EUI64 = 0, 0, "", ""
	selector := old.Format.Selector()
	if t.Format != nil {
		selector = *t.Format
	}
	format, err := p.format(selector)
	if err != nil {
		return err
	}
	p.setFormat(&want, format)
	if t.Shared != nil {
		want.NMIC = old.NMIC &^ 1
		if *t.Shared {
			want.NMIC |= 1
		}
		if err := p.checkShared(want); err != nil {
			return err
		}
	}
	if len(want.Controllers) == 0 {
		want.Controllers = []uint16{p.inv.Identity.CNTLID}
	}
	q := p.question(format, old)
	c, err := t.Size.Resolve(q)
	if err != nil {
		return err
	}
	want.SizeBlocks, want.CapacityBlocks = c.Blocks, c.Blocks
	p.plan.Notes = append(p.plan.Notes, c.Notes...)
	if p.inv.Controller.TotalBytes == 0 {
		p.note("the drive does not report its capacity, so the size could not be checked against it")
	}
	if p.sameShape(old, want, c, q, t.Size.Kind) {
		return p.attachMissing(old, want.Controllers)
	}
	if err := p.checkHealth(); err != nil {
		return err
	}
	if err := p.remove(old); err != nil {
		return err
	}
	return p.add(want, c, q)
}

// setFormat gives a namespace a format. Protection information needs metadata:
// it is kept with the format that has the same.
func (p *planner) setFormat(n *Namespace, f LBAFormat) {
	if n.Format.MetadataBytes != f.MetadataBytes {
		if n.Protection != 0 {
			p.note("end-to-end protection type %d is switched off: the metadata size changes", n.Protection&7)
		}
		n.Protection = 0
	}
	extended := n.FLBAS&0x10 != 0 && f.MetadataBytes != 0
	n.Format = f
	n.FLBAS = f.Index & 15
	if extended {
		n.FLBAS |= 0x10
	}
}

// sameShape says that a namespace is already as wanted. For "max" a size
// counts that an earlier step-down may have left.
func (p *planner) sameShape(old, want Namespace, c Capacity, q CapacityQuestion, kind SizeKind) bool {
	if old.Format.Selector() != want.Format.Selector() || old.Shared() != want.Shared() || old.CapacityBlocks != old.SizeBlocks {
		return false
	}
	if old.SizeBlocks == want.SizeBlocks {
		return true
	}
	_, floorBytes := c.stepDown(q, p.opts.StepDownMax)
	if kind == SizeMax && old.SizeBlocks < want.SizeBlocks && old.SizeBytes() >= floorBytes {
		p.note("the namespace has %s, and the drive may not give more: taken for all there is", Bytes(old.SizeBytes()))
		return true
	}
	return false
}

// attachMissing plans that a namespace is attached where it is not yet.
func (p *planner) attachMissing(n Namespace, controllers []uint16) error {
	missing := slices.DeleteFunc(slices.Clone(controllers), func(id uint16) bool { return slices.Contains(n.Controllers, id) })
	if len(missing) == 0 {
		return nil
	}
	all := append(slices.Clone(n.Controllers), missing...)
	slices.Sort(all)
	if err := p.checkControllers(n, all); err != nil {
		return err
	}
	p.touch(n.NSID)
	ref := reference{NSID: n.NSID}
	p.step(KindAttach, fmt.Sprintf("attach namespace %d to controller %s", n.NSID, controllerText(missing)),
		attachmentParams{Namespace: ref, Geometry: n, Controllers: missing}, "", "detaches it",
		func() (txn.Command, error) { return describeAttach(n.NSID, missing) })
	p.setAfter(n.NSID, func(a *Namespace) { a.Controllers = all })
	p.expect = append(p.expect, expectation{Namespace: ref, Geometry: &n, Here: slices.Contains(all, p.inv.Identity.CNTLID)})
	return nil
}

func (p *planner) setAfter(nsid uint32, change func(*Namespace)) {
	for i := range p.after {
		if p.after[i].NSID == nsid {
			change(&p.after[i])
		}
	}
}

// PlanCreate plans a new namespace beside those there are.
func PlanCreate(inv Inventory, t CreateTarget, o Options) (Plan, error) {
	p := newPlanner(inv, t.Title, o)
	if err := p.checkManagement("creating a namespace"); err != nil {
		return Plan{}, err
	}
	if err := p.create(t); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

func (p *planner) create(t CreateTarget) error {
	selector, err := p.defaultFormat(t.Format)
	if err != nil {
		return err
	}
	format, err := p.format(selector)
	if err != nil {
		return err
	}
	n := Namespace{Controllers: t.Controllers}
	if t.Controllers == nil {
		n.Controllers = []uint16{p.inv.Identity.CNTLID}
	}
	if t.Shared {
		n.NMIC = 1
	}
	if err := p.checkShared(n); err != nil {
		return err
	}
	p.setFormat(&n, format)
	q := p.question(format)
	c, err := t.Size.Resolve(q)
	if err != nil {
		return err
	}
	n.SizeBlocks, n.CapacityBlocks = c.Blocks, c.Blocks
	p.plan.Notes = append(p.plan.Notes, c.Notes...)
	return p.add(n, c, q)
}

func (p *planner) defaultFormat(asked *FormatSelector) (FormatSelector, error) {
	if asked != nil {
		return *asked, nil
	}
	for _, n := range p.inv.Namespaces {
		if n.Error == "" {
			p.note("LBA format %s, as namespace %d has it", n.Format, n.NSID)
			return n.Format.Selector(), nil
		}
	}
	var first *LBAFormat
	for _, f := range p.inv.Formats {
		if f.DataBytes == 4096 && f.MetadataBytes == 0 {
			return f.Selector(), nil
		}
		if first == nil && f.DataBytes != 0 && f.MetadataBytes == 0 {
			first = &f
		}
	}
	if first == nil {
		return FormatSelector{}, p.refuse("format", p.inv.Address, "the drive's LBA formats could not be read", "name one")
	}
	return first.Selector(), nil
}

// PlanDelete plans the deletion of the namespaces named.
func PlanDelete(inv Inventory, nsids []uint32, title string, o Options) (Plan, error) {
	p := newPlanner(inv, title, o)
	if err := p.checkManagement("deleting a namespace"); err != nil {
		return Plan{}, err
	}
	if len(nsids) == 0 {
		return Plan{}, p.refuse("namespace", inv.Address, "no namespace was named; the drive has: "+p.list(), "name each one that is to go")
	}
	if err := p.checkHealth(); err != nil {
		return Plan{}, err
	}
	ids := slices.Clone(nsids)
	slices.Sort(ids)
	for _, nsid := range slices.Compact(ids) {
		if nsid == 0 {
			return Plan{}, p.refuse("namespace", inv.Address, "0 is no namespace", "")
		}
		n, err := p.find(nsid)
		if err != nil {
			return Plan{}, err
		}
		if err := p.remove(n); err != nil {
			return Plan{}, err
		}
	}
	return p.finish()
}

// PlanAttach plans an attachment; nil controllers means the one that is open.
func PlanAttach(inv Inventory, nsid uint32, controllers []uint16, title string, o Options) (Plan, error) {
	p := newPlanner(inv, title, o)
	if err := p.checkManagement("attaching a namespace"); err != nil {
		return Plan{}, err
	}
	n, err := p.find(nsid)
	if err != nil {
		return Plan{}, err
	}
	if controllers == nil {
		controllers = []uint16{inv.Identity.CNTLID}
	}
	if len(controllers) == 0 {
		return Plan{}, p.refuse("controllers", inv.Address, "the list of controllers is empty", "")
	}
	if err := p.attachMissing(n, sortedIDs(controllers)); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

// PlanDetach plans a detachment; nil controllers means all it is attached to.
func PlanDetach(inv Inventory, nsid uint32, controllers []uint16, title string, o Options) (Plan, error) {
	p := newPlanner(inv, title, o)
	if err := p.checkManagement("detaching a namespace"); err != nil {
		return Plan{}, err
	}
	n, err := p.find(nsid)
	if err != nil {
		return Plan{}, err
	}
	if controllers == nil {
		controllers = n.Controllers
	}
	controllers = slices.DeleteFunc(sortedIDs(controllers), func(id uint16) bool { return !slices.Contains(n.Controllers, id) })
	if len(controllers) == 0 {
		return p.finish()
	}
	p.touch(n.NSID)
	ref := reference{NSID: n.NSID}
	p.step(KindDetach, fmt.Sprintf("detach namespace %d from controller %s", n.NSID, controllerText(controllers)),
		attachmentParams{Namespace: ref, Geometry: n, Controllers: controllers}, "", "attaches it again",
		func() (txn.Command, error) { return describeDetach(n.NSID, controllers) })
	left := slices.DeleteFunc(slices.Clone(n.Controllers), func(id uint16) bool { return slices.Contains(controllers, id) })
	p.setAfter(n.NSID, func(a *Namespace) { a.Controllers = left })
	if !slices.Contains(left, inv.Identity.CNTLID) {
		p.expect = append(p.expect, expectation{Namespace: ref})
	}
	return p.finish()
}

func sortedIDs(ids []uint16) []uint16 {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}
