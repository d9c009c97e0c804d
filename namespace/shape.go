package namespace

import (
	"fmt"
	"slices"
	"strings"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
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
	if t.Protection != nil {
		want.Protection = *t.Protection
		if err := p.checkProtection(want.Protection, format); err != nil {
			return err
		}
	}
	if t.Controllers != nil {
		want.Controllers = t.Controllers
	}
	q := p.question(format, old)
	c, err := t.resolve(q)
	if err != nil {
		return err
	}
	want.SizeBlocks, want.CapacityBlocks = c.Blocks, c.Blocks
	p.plan.Notes = append(p.plan.Notes, c.Notes...)
	if p.inv.Controller.TotalBytes == 0 {
		if err := p.checkGrowth(old, c); err != nil {
			return err
		}
		p.note("the drive does not report its capacity, so the size could not be checked against it")
	}
	if p.sameShape(old, want, c, q) {
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

func (t OPTarget) resolve(q CapacityQuestion) (Capacity, error) {
	if t.capacity != nil {
		return *t.capacity, nil
	}
	return t.Size.Resolve(q)
}

// checkGrowth refuses a larger namespace where it is not known whether there is
// room: the old one would be gone when the drive refuses.
func (p *planner) checkGrowth(old Namespace, c Capacity) error {
	if c.Bytes <= old.SizeBytes() || p.opts.AcceptUnknownCapacity {
		return nil
	}
	return p.refuse("capacity", p.inv.Address,
		fmt.Sprintf("the drive does not report its capacity (TNVMCAP is 0), so it is not known whether %s fit where %s are now; the old namespace would be gone when the drive refuses", Bytes(c.Bytes), Bytes(old.SizeBytes())),
		"--accept-unknown-capacity tries it all the same")
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

// sameShape says that a namespace is already as wanted. A size counts that an
// earlier step down may have left.
func (p *planner) sameShape(old, want Namespace, c Capacity, q CapacityQuestion) bool {
	if old.Format.Selector() != want.Format.Selector() || old.Shared() != want.Shared() || old.CapacityBlocks != old.SizeBlocks ||
		old.Protection != want.Protection {
		return false
	}
	if old.SizeBlocks == want.SizeBlocks {
		return true
	}
	if p.withinGrant(old, c, q) {
		p.noteGrant(old, c)
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
	if err := p.checkHealth(); err != nil {
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
	left := slices.DeleteFunc(slices.Clone(n.Controllers), func(id uint16) bool { return slices.Contains(controllers, id) })
	p.detach(n, controllers, left)
	return p.finish()
}

// detach plans that a namespace leaves some controllers; left are those it has then.
func (p *planner) detach(n Namespace, controllers, left []uint16) {
	p.touch(n.NSID)
	ref := reference{NSID: n.NSID}
	p.step(KindDetach, fmt.Sprintf("detach namespace %d from controller %s", n.NSID, controllerText(controllers)),
		attachmentParams{Namespace: ref, Geometry: n, Controllers: controllers}, "", "attaches it again",
		func() (txn.Command, error) { return describeDetach(n.NSID, controllers) })
	p.setAfter(n.NSID, func(a *Namespace) { a.Controllers = left })
	if !slices.Contains(left, p.inv.Identity.CNTLID) && slices.Contains(n.Controllers, p.inv.Identity.CNTLID) {
		p.expect = append(p.expect, expectation{Namespace: ref})
	}
}

func sortedIDs(ids []uint16) []uint16 {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

// PlanFormat plans a Format NVM. Its scope is what the drive makes of it: on
// some all namespaces change, whichever is named, and then all have to be named.
// A namespace that is attached nowhere is attached for the time of the format.
func PlanFormat(inv Inventory, t FormatTarget, o Options) (Plan, error) {
	p := newPlanner(inv, t.Title, o)
	if !inv.Controller.FormatNVM {
		return Plan{}, &nvmeioctl.UnsupportedError{Feature: "formatting", Needs: "the Format NVM command", Have: "this drive does not have it (OACS bit 1 is 0)"}
	}
	if err := p.checkIdle(); err != nil {
		return Plan{}, err
	}
	if err := p.checkHealth(); err != nil {
		return Plan{}, err
	}
	if t.Erase == EraseCrypto && !inv.Controller.CryptographicErase {
		return Plan{}, &nvmeioctl.UnsupportedError{Feature: "cryptographic erase", Needs: "FNA bit 2", Have: "choose user data erase, which overwrites, instead"}
	}
	affected, err := p.formatScope(t)
	if err != nil {
		return Plan{}, err
	}
	params, err := p.formatParams(t, affected)
	if err != nil {
		return Plan{}, err
	}
	if err := p.formatSteps(params); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

// formatScope is the namespaces that a format changes.
func (p *planner) formatScope(t FormatTarget) ([]Namespace, error) {
	c := p.inv.Controller
	all := c.FormatAllNamespaces || t.Erase != EraseNone && c.EraseAllNamespaces
	if t.NSID == nvmespec.BroadcastNSID || all && len(p.inv.Namespaces) == 1 {
		if t.NSID != nvmespec.BroadcastNSID && t.NSID != 0 {
			if _, err := p.find(t.NSID); err != nil {
				return nil, err
			}
		}
		return p.readable()
	}
	n, err := p.find(t.NSID)
	if err != nil {
		return nil, err
	}
	if all {
		return nil, p.refuse("scope", p.inv.Address,
			"this drive formats ALL namespaces, whichever is named: "+p.list(), "name all namespaces to format them all")
	}
	return []Namespace{n}, nil
}

// readable is all namespaces, none of which may be unknown.
func (p *planner) readable() ([]Namespace, error) {
	if len(p.inv.Namespaces) == 0 {
		return nil, p.refuse("namespace", p.inv.Address, "the drive has no namespace", "")
	}
	for _, n := range p.inv.Namespaces {
		if n.Error != "" {
			return nil, p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it could not be read: "+n.Error, "")
		}
	}
	return slices.Clone(p.inv.Namespaces), nil
}

func (p *planner) formatParams(t FormatTarget, affected []Namespace) (formatParams, error) {
	first := affected[0]
	want := first
	selector := first.Format.Selector()
	if t.Format != nil {
		selector = *t.Format
	}
	biggest := uint64(0)
	for _, n := range affected {
		biggest = max(biggest, n.SizeBytes())
		if n.WriteProtected {
			return formatParams{}, p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it is write protected", "")
		}
		if t.Format == nil && n.Format.Selector() != selector {
			return formatParams{}, p.refuse("format", p.inv.Address, "the namespaces have different LBA formats", "name the one they should all get")
		}
	}
	format, err := p.format(selector)
	if err != nil {
		return formatParams{}, err
	}
	p.setFormat(&want, format)
	if t.Protection != nil {
		want.Protection = *t.Protection
	}
	nsid := first.NSID
	if broadcast := len(affected) > 1 || t.NSID == nvmespec.BroadcastNSID; broadcast {
		if p.inv.Controller.NoBroadcastFormat {
			if len(affected) > 1 {
				return formatParams{}, &nvmeioctl.UnsupportedError{Feature: "formatting all namespaces at once", Needs: "a drive that accepts it (FNA bit 3)", Have: "name one namespace"}
			}
		} else {
			nsid = nvmespec.BroadcastNSID
		}
	}
	return formatParams{
		NSID: nsid, Affected: affected, Format: format, FLBAS: want.FLBAS, Protection: want.Protection, Erase: t.Erase,
		TimeoutMS: admin.FormatTimeout(max(p.inv.Controller.TotalBytes, biggest), t.Erase).Milliseconds(),
	}, nil
}

func (p *planner) formatSteps(params formatParams) error {
	here := []uint16{p.inv.Identity.CNTLID}
	var lent []Namespace
	var names, lost []string
	for _, n := range params.Affected {
		p.touch(n.NSID)
		names = append(names, fmt.Sprint(n.NSID))
		lost = append(lost, fmt.Sprintf("%d (%s)", n.NSID, Bytes(n.SizeBytes())))
		if len(n.Controllers) > 0 {
			continue
		}
		if !p.inv.Controller.NamespaceManagement {
			return p.refuse("attachment", fmt.Sprintf("namespace %d", n.NSID), "it is attached to no controller, so it cannot be formatted", "")
		}
		lent = append(lent, n)
		p.step(KindAttach, fmt.Sprintf("attach namespace %d for the time of the format", n.NSID),
			attachmentParams{Namespace: reference{NSID: n.NSID}, Geometry: n, Controllers: here}, "", "detaches it",
			func() (txn.Command, error) { return describeAttach(n.NSID, here) })
	}
	label := "namespace " + strings.Join(names, ", ")
	if len(names) > 1 {
		label = "ALL namespaces: " + strings.Join(names, ", ")
	}
	p.step(KindFormat, fmt.Sprintf("format %s with %s%s", label, params.Format, eraseText(params.Erase)), params,
		"all data of namespace "+strings.Join(lost, ", "), undoFormatText(params),
		func() (txn.Command, error) { return describeFormat(params) })
	for _, n := range lent {
		p.step(KindDetach, fmt.Sprintf("detach namespace %d again", n.NSID),
			attachmentParams{Namespace: reference{NSID: n.NSID}, Geometry: n, Controllers: here, Reformatted: true}, "", "attaches it",
			func() (txn.Command, error) { return describeDetach(n.NSID, here) })
	}
	for _, n := range params.Affected {
		want := reformatted(n, params)
		p.setAfter(n.NSID, func(a *Namespace) { *a = want })
		if slices.Contains(n.Controllers, p.inv.Identity.CNTLID) {
			p.expect = append(p.expect, expectation{Namespace: reference{NSID: n.NSID}, Geometry: &want, Here: true})
		}
	}
	return nil
}

// reformatted is what a namespace is expected to be after a format: as many
// bytes, in other blocks. The drive may choose otherwise.
func reformatted(n Namespace, p formatParams) Namespace {
	want := n
	want.SizeBlocks = n.SizeBytes() / uint64(p.Format.DataBytes)
	want.CapacityBlocks = want.SizeBlocks
	want.UsedBlocks, want.AllocatedBytes = 0, 0
	want.Format, want.FLBAS, want.Protection = p.Format, p.FLBAS, p.Protection
	return want
}

func eraseText(e SecureErase) string {
	switch e {
	case EraseUser:
		return ", user data erase"
	case EraseCrypto:
		return ", cryptographic erase"
	}
	return ""
}

func undoFormatText(p formatParams) string {
	for _, n := range p.Affected {
		if n.Format.Selector() != p.Format.Selector() {
			return "formats back to the old LBA format; the data cannot be brought back"
		}
	}
	return "nothing: the LBA format stays the same; the data cannot be brought back"
}
