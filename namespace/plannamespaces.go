package namespace

import (
	"fmt"
	"slices"
)

// want is one desired namespace on one drive.
type want struct {
	NamespaceSpec
	// spare is, for a size that depends on the drive, what the other desired
	// namespaces take, and share by how many it is divided.
	spare uint64
	share uint64
}

// absolute says that a size does not depend on what else is on the drive.
func absolute(k SizeKind) bool {
	switch k {
	case SizeBytes, SizeMarketing, SizeBlocks, SizePercent, SizeFactory:
		return true
	}
	return false
}

// expand lists the desired namespaces one by one.
func (p *planner) expand(s Spec) ([]want, error) {
	var list []want
	taken := uint64(0)
	for _, n := range s.Namespaces {
		for range n.Count {
			list = append(list, want{NamespaceSpec: n, share: uint64(n.Count)})
		}
		if !absolute(n.Size.Kind) {
			continue
		}
		format, err := p.wantedFormat(n, nil)
		if err != nil {
			return nil, err
		}
		c, err := n.Size.Resolve(p.whole(format))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Where(n.path), n.path, err)
		}
		taken = addCapped(taken, mulCapped(c.Bytes, uint64(n.Count)))
	}
	for i := range list {
		list[i].spare = taken
	}
	return list, nil
}

// wantedFormat is the LBA format a desired namespace has: the one named, else that
// of the namespace it is compared with, else the drive's default.
func (p *planner) wantedFormat(n NamespaceSpec, like *Namespace) (LBAFormat, error) {
	if n.Format == nil && like != nil {
		return like.Format, nil
	}
	selector := n.Format
	if selector == nil {
		f, err := p.quietDefault()
		if err != nil {
			return LBAFormat{}, err
		}
		selector = &f
	}
	return p.format(*selector)
}

// quietDefault is defaultFormat without its note.
func (p *planner) quietDefault() (FormatSelector, error) {
	notes := p.plan.Notes
	f, err := p.defaultFormat(nil)
	p.plan.Notes = notes
	return f, err
}

// whole is the question in which all of the drive is to be had.
func (p *planner) whole(f LBAFormat) CapacityQuestion { return p.question(f, p.inv.Namespaces...) }

// resolve is how large a desired namespace is in a format. What depends on the
// drive is what the others leave, divided evenly.
func (w want) resolve(q CapacityQuestion) (Capacity, error) {
	if absolute(w.Size.Kind) || q.TotalBytes == 0 {
		return w.Size.Resolve(q)
	}
	q.OtherBytes = w.spare
	q.AvailableBytes -= min(q.AvailableBytes, w.spare)
	if w.share <= 1 {
		return w.Size.Resolve(q)
	}
	all, err := w.Size.Resolve(q)
	if err != nil {
		return Capacity{}, err
	}
	unit := max(all.UnitBytes, 1)
	each := all.RequestedBytes / w.share / unit * unit
	if each == 0 {
		return Capacity{}, w.Size.refuse(fmt.Sprintf("divided by %d it is less than %s", w.share, Bytes(unit)))
	}
	return Capacity{Blocks: each / uint64(q.BlockBytes), Bytes: each, RequestedBytes: all.RequestedBytes / w.share, UnitBytes: unit, Notes: all.Notes}, nil
}

// likeness is how near an existing namespace is to a desired one.
type likeness uint8

const (
	different likeness = iota
	// formattable: only the LBA format or the protection differs, and a format of
	// this namespace makes it so.
	formattable
	// granted: its size is what an earlier step down left of the one wanted.
	granted
	alike
)

// compare says how near n is to what is wanted.
func (p *planner) compare(n Namespace, w want, erase SecureErase) likeness {
	if n.Error != "" || w.Shared != nil && n.Shared() != *w.Shared || n.CapacityBlocks != n.SizeBlocks {
		return different
	}
	format, err := p.wantedFormat(w.NamespaceSpec, &n)
	if err != nil {
		return different
	}
	q := p.whole(format)
	c, err := w.resolve(q)
	if err != nil {
		return different
	}
	sameFormat := format.Selector() == n.Format.Selector() && (w.Protection == nil || *w.Protection == n.Protection)
	sameBytes := c.Bytes == n.SizeBytes() || p.withinGrant(n, c, q)
	if sameFormat && c.Bytes == n.SizeBytes() {
		return alike
	}
	if sameFormat && sameBytes {
		return granted
	}
	if !sameFormat && sameBytes && p.formatsAlone(erase) {
		return formattable
	}
	return different
}

// withinGrant says that a namespace is what an earlier step down left: smaller
// within the steps that a plan announces. Without this, each apply would destroy
// the namespace to be refused the size once more.
func (p *planner) withinGrant(n Namespace, c Capacity, q CapacityQuestion) bool {
	_, floorBytes := c.stepDown(q, p.opts.StepDownMax)
	return n.SizeBytes() < c.Bytes && n.SizeBytes() >= floorBytes
}

// noteGrant says that a namespace is left as it is although it is smaller than asked.
func (p *planner) noteGrant(n Namespace, c Capacity) {
	p.note("namespace %d has %s, %s bytes less than asked: within what a plan may step down by when the drive grants no more, so it counts as that size",
		n.NSID, Bytes(n.SizeBytes()), grouped(c.Bytes-n.SizeBytes()))
}

// formatsAlone says that a format changes one namespace and not the others.
func (p *planner) formatsAlone(erase SecureErase) bool {
	c := p.inv.Controller
	all := c.FormatAllNamespaces || erase != EraseNone && c.EraseAllNamespaces
	return c.FormatNVM && (!all || len(p.inv.Namespaces) == 1)
}

// pairing is which existing namespace becomes which desired one.
type pairing struct {
	kept, formats map[int]Namespace // by the index of the desired one
	missing       []int
	gone          []Namespace
}

// pair finds a place for as many existing namespaces as possible: those that are
// as wanted first, then those that only need a format.
func (p *planner) pair(wants []want, erase SecureErase) pairing {
	pair := pairing{kept: map[int]Namespace{}, formats: map[int]Namespace{}}
	used := map[uint32]bool{}
	for _, near := range []likeness{alike, granted, formattable} {
		for i, w := range wants {
			_, a := pair.kept[i]
			_, b := pair.formats[i]
			if a || b {
				continue
			}
			for _, n := range p.inv.Namespaces {
				if used[n.NSID] || p.compare(n, w, erase) != near {
					continue
				}
				used[n.NSID] = true
				if near != formattable {
					pair.kept[i] = n
				} else {
					pair.formats[i] = n
				}
				break
			}
		}
	}
	for i := range wants {
		_, a := pair.kept[i]
		_, b := pair.formats[i]
		if !a && !b {
			pair.missing = append(pair.missing, i)
		}
	}
	for _, n := range p.inv.Namespaces {
		if !used[n.NSID] {
			pair.gone = append(pair.gone, n)
		}
	}
	return pair
}

// specNamespaces plans the namespaces of a spec.
func (p *planner) specNamespaces(s Spec) error {
	if s.Namespaces == nil {
		return nil
	}
	if err := p.checkNamespacesKnown(s); err != nil {
		return err
	}
	wants, err := p.expand(s)
	if err != nil {
		return err
	}
	for _, w := range wants {
		if reason := p.unknownControllers(w.Controllers); reason != "" {
			return p.refuseField(s, w.path+".controllers", reason, "")
		}
	}
	pair := p.pair(wants, s.Erase)
	if len(pair.missing)+len(pair.gone) > 0 {
		if err := p.checkManagement(s.Where("namespaces") + ": the spec's list of namespaces"); err != nil {
			return err
		}
	}
	if err := p.checkReplace(s, wants, pair); err != nil {
		return err
	}
	for i, w := range wants {
		n, ok := pair.kept[i]
		if !ok {
			continue
		}
		if c, err := w.resolve(p.whole(n.Format)); err == nil && p.withinGrant(n, c, p.whole(n.Format)) {
			p.noteGrant(n, c)
		}
		if err := p.connect(s, n, w); err != nil {
			return err
		}
	}
	for i, w := range wants {
		n, ok := pair.formats[i]
		if !ok {
			continue
		}
		if err := p.reformat(s, n, w); err != nil {
			return err
		}
	}
	return p.exchange(s, wants, pair)
}

func (p *planner) checkNamespacesKnown(s Spec) error {
	for _, problem := range p.inv.Problems {
		if problem.What == ProblemNamespaceList {
			return p.refuseField(s, "namespaces", "the list of namespaces could not be read: "+problem.Error, "")
		}
	}
	return nil
}

// checkReplace refuses to delete what the spec does not give up.
func (p *planner) checkReplace(s Spec, wants []want, pair pairing) error {
	becomes := len(p.inv.Namespaces) == 1 && len(wants) == 1
	for _, n := range pair.gone {
		if n.Error != "" {
			return p.refuseField(s, "namespaces", fmt.Sprintf("namespace %d could not be read: %s", n.NSID, n.Error), "")
		}
		if !becomes && !s.ReplaceAll && !slices.Contains(s.Replace, n.NSID) {
			return p.refuseField(s, "namespaces", fmt.Sprintf("the spec has no place for namespace %d and does not name it as one to replace; the drive has: %s", n.NSID, p.list()),
				fmt.Sprintf("add it to the spec: replace: [%d]", n.NSID))
		}
	}
	return nil
}

// connect attaches a namespace where it should be and detaches it where it should
// not.
func (p *planner) connect(s Spec, n Namespace, w want) error {
	target := w.Controllers
	if target == nil {
		target = n.Controllers
		if len(target) == 0 {
			target = []uint16{p.inv.Identity.CNTLID}
		}
	}
	if slices.Equal(target, n.Controllers) {
		return nil
	}
	if err := p.checkManagement(s.Where(w.path) + ": " + w.path + ": attaching a namespace"); err != nil {
		return err
	}
	if err := p.attachMissing(n, target); err != nil {
		return err
	}
	extra := slices.DeleteFunc(slices.Clone(n.Controllers), func(id uint16) bool { return slices.Contains(target, id) })
	if len(extra) > 0 {
		p.detach(n, extra, target)
	}
	return nil
}

// reformat plans a format that makes a namespace as wanted: it keeps its NSID.
func (p *planner) reformat(s Spec, n Namespace, w want) error {
	if err := p.checkIdle(); err != nil {
		return err
	}
	if err := p.checkHealth(); err != nil {
		return err
	}
	if s.Erase == EraseCrypto && !p.inv.Controller.CryptographicErase {
		return p.refuseField(s, "format.erase", "the drive has no cryptographic erase (FNA bit 2 is 0)", "erase: user overwrites instead")
	}
	format, err := p.wantedFormat(w.NamespaceSpec, &n)
	if err != nil {
		return err
	}
	selector := format.Selector()
	params, err := p.formatParams(FormatTarget{NSID: n.NSID, Format: &selector, Protection: w.Protection, Erase: s.Erase}, []Namespace{n})
	if err != nil {
		return err
	}
	if err := p.checkProtection(params.Protection, format); err != nil {
		return err
	}
	if err := p.formatSteps(params); err != nil {
		return err
	}
	return p.connect(s, n, w)
}

// exchange deletes what has to go and creates what is missing.
func (p *planner) exchange(s Spec, wants []want, pair pairing) error {
	if len(pair.gone)+len(pair.missing) > 0 {
		if err := p.checkHealth(); err != nil {
			return err
		}
	}
	if len(pair.gone) == 1 && len(pair.missing) == 1 {
		return p.become(s, pair.gone[0], wants[pair.missing[0]])
	}
	for _, n := range pair.gone {
		if err := p.remove(n); err != nil {
			return err
		}
	}
	taken := uint64(0)
	for _, i := range pair.missing {
		c, err := p.createWanted(s, wants[i], pair.gone, taken)
		if err != nil {
			return err
		}
		taken = addCapped(taken, c.Bytes)
	}
	return nil
}

// become plans that one namespace is replaced by another, which keeps what the
// spec does not name.
func (p *planner) become(s Spec, old Namespace, w want) error {
	format, err := p.wantedFormat(w.NamespaceSpec, &old)
	if err != nil {
		return err
	}
	selector := format.Selector()
	c, err := w.resolve(p.whole(format))
	if err != nil {
		return fmt.Errorf("%s: %s: %w", s.Where(w.path), w.path, err)
	}
	controllers := w.Controllers
	if controllers == nil && len(old.Controllers) == 0 {
		controllers = []uint16{p.inv.Identity.CNTLID}
	}
	return p.replace(old, OPTarget{
		Size: w.Size, Format: &selector, Shared: w.Shared, Protection: w.Protection, Controllers: controllers, capacity: &c,
	})
}

func (p *planner) createWanted(s Spec, w want, gone []Namespace, taken uint64) (Capacity, error) {
	format, err := p.wantedFormat(w.NamespaceSpec, nil)
	if err != nil {
		return Capacity{}, err
	}
	c, err := w.resolve(p.whole(format))
	if err != nil {
		return Capacity{}, fmt.Errorf("%s: %s: %w", s.Where(w.path), w.path, err)
	}
	q := p.question(format, gone...)
	q.AvailableBytes -= min(q.AvailableBytes, taken)
	if q.TotalBytes != 0 && c.Bytes > q.AvailableBytes {
		return c, p.refuseField(s, w.path, fmt.Sprintf("%s is more than the %s that is left", Bytes(c.Bytes), Bytes(q.AvailableBytes)), "")
	}
	n := Namespace{SizeBlocks: c.Blocks, CapacityBlocks: c.Blocks, Controllers: w.Controllers}
	if n.Controllers == nil {
		n.Controllers = []uint16{p.inv.Identity.CNTLID}
	}
	if w.Shared != nil && *w.Shared || len(n.Controllers) > 1 && w.Shared == nil {
		n.NMIC = 1
	}
	if err := p.checkShared(n); err != nil {
		return c, err
	}
	p.setFormat(&n, format)
	if w.Protection != nil {
		n.Protection = *w.Protection
	}
	if err := p.checkProtection(n.Protection, format); err != nil {
		return c, err
	}
	p.plan.Notes = append(p.plan.Notes, c.Notes...)
	return c, p.add(n, c, q)
}

// checkProtection refuses end-to-end protection that the drive or the format does
// not have: a create with it would fail after the old namespace is gone.
func (p *planner) checkProtection(dps uint8, f LBAFormat) error {
	kind := dps & 7
	if kind == 0 {
		return nil
	}
	have := p.inv.Controller.ProtectionCapabilities
	need := have>>(kind-1)&1 != 0
	if dps&protectionFirst != 0 {
		need = need && have>>4&1 != 0
	} else {
		need = need && have>>3&1 != 0
	}
	switch {
	case f.MetadataBytes < 8:
		return p.refuse("protection", p.inv.Address, fmt.Sprintf("end-to-end protection needs at least 8 bytes of metadata, LBA format %s has %d", f, f.MetadataBytes), "")
	case !need:
		return p.unsupported(fmt.Sprintf("end-to-end protection type %d", kind), "a drive that reports it",
			fmt.Sprintf("this one's capabilities (DPC) are 0x%02x", have))
	}
	return nil
}

// Desired is what a spec wants of a drive's namespaces beside what it has, for an
// audit: pairs of the two, one of which may be missing.
type Desired struct {
	Spec NamespaceSpec
	// Path is the field: "namespaces[0]", or with its number where several are
	// alike: "namespaces[0] (2 of 4)".
	Path string
	// Found is the namespace there is; nil where there is none.
	Found *Namespace
	// Differs are the fields that are not as wanted.
	Differs []Mismatch
}

// JudgeNamespaces compares a drive's namespaces with a spec. left are those that
// the spec has no place for.
func JudgeNamespaces(inv Inventory, s Spec) (list []Desired, left []Namespace, err error) {
	p := newPlanner(inv, "", Options{})
	wants, err := p.expand(s)
	if err != nil {
		return nil, nil, err
	}
	pair := p.pair(wants, EraseNone)
	rest := slices.Clone(pair.gone)
	for i, w := range wants {
		d := Desired{Spec: w.NamespaceSpec, Path: w.path}
		if w.Count > 1 {
			d.Path = fmt.Sprintf("%s (of %d alike)", w.path, w.Count)
		}
		n, ok := pair.kept[i]
		if !ok {
			n, ok = pair.formats[i]
		}
		if !ok && len(rest) > 0 {
			// Judged against any other, so that the finding says what is wrong.
			n, ok, rest = rest[0], true, rest[1:]
		}
		if ok {
			d.Found = &n
			d.Differs = p.differences(n, w)
		}
		list = append(list, d)
	}
	return list, rest, nil
}

// differences lists what of a namespace is not as wanted, by field.
func (p *planner) differences(n Namespace, w want) []Mismatch {
	d := &differ{}
	if n.Error != "" {
		return nil
	}
	format, err := p.wantedFormat(w.NamespaceSpec, &n)
	if err != nil {
		d.compare(n.NSID, "lba", *w.Format, n.Format.Selector())
		return d.found
	}
	q := p.whole(format)
	if c, err := w.resolve(q); err != nil {
		d.compare(n.NSID, w.sizeField(), w.Size.Text+" ("+err.Error()+")", Bytes(n.SizeBytes()))
	} else if c.Bytes != n.SizeBytes() && !p.withinGrant(n, c, q) {
		d.compare(n.NSID, w.sizeField(), Bytes(c.Bytes), Bytes(n.SizeBytes()))
	}
	if n.CapacityBlocks != n.SizeBlocks {
		d.compare(n.NSID, w.sizeField(), "capacity equal to size", fmt.Sprintf("capacity of %d blocks, size of %d", n.CapacityBlocks, n.SizeBlocks))
	}
	if w.Format != nil {
		d.compare(n.NSID, "lba.data", w.Format.DataBytes, n.Format.DataBytes)
		d.compare(n.NSID, "lba.metadata", w.Format.MetadataBytes, n.Format.MetadataBytes)
	}
	if w.Protection != nil {
		d.compare(n.NSID, "protection", protectionText(*w.Protection), protectionText(n.Protection))
	}
	if w.Shared != nil {
		d.compare(n.NSID, "shared", *w.Shared, n.Shared())
	}
	if w.Controllers != nil {
		d.compare(n.NSID, "controllers", orNoControllers(w.Controllers), orNoControllers(n.Controllers))
	} else if len(n.Controllers) == 0 {
		d.compare(n.NSID, "controllers", "attached", "attached to none")
	}
	return d.found
}

// sizeField is the word by which the size was given.
func (n NamespaceSpec) sizeField() string {
	switch n.Size.Kind {
	case SizeOPUser, SizeOPTotal:
		return "op"
	}
	return "size"
}

func protectionText(dps uint8) string {
	if dps&7 == 0 {
		return "none"
	}
	if dps&protectionFirst != 0 {
		return fmt.Sprintf("type %d, first bytes", dps&7)
	}
	return fmt.Sprintf("type %d, last bytes", dps&7)
}

func orNoControllers(ids []uint16) string {
	if len(ids) == 0 {
		return "none"
	}
	return controllerText(ids)
}
