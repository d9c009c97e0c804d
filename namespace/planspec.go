package namespace

import (
	"fmt"
	"slices"
)

// PlanSpec plans whatever the drive lacks of the spec. Existing namespaces that
// the spec has no place for are deleted only when its replace list names them,
// except that the only namespace of a drive may become the only one of a spec.
func PlanSpec(inv Inventory, s Spec, o Options) (Plan, error) {
	const title = "apply spec"
	p := newPlanner(inv, title, o)
	if !s.Match.Matches(inv.Identity) {
		return Plan{}, p.refuse("match", inv.Address, fmt.Sprintf("the spec is for serial %q model %q, the drive is %q %q",
			s.Match.Serial, s.Match.Model, inv.Identity.Serial, inv.Identity.Model), "")
	}
	if len(s.Namespaces) == 0 {
		return p.finish()
	}
	if err := p.checkManagement("the spec's list of namespaces"); err != nil {
		return Plan{}, err
	}
	if len(s.Namespaces) == 1 && len(inv.Namespaces) <= 1 {
		want := s.Namespaces[0]
		return PlanOPSet(inv, OPTarget{Size: want.Size, Format: want.Format, Shared: want.Shared, Title: title}, o)
	}
	if err := p.several(s); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

// several keeps the namespaces that are as the spec wants one, deletes those
// it may, and creates what is missing.
func (p *planner) several(s Spec) error {
	kept := map[uint32]bool{}
	var missing []NamespaceSpec
	for _, want := range s.Namespaces {
		if len(s.Namespaces) > 1 && !absolute(want.Size.Kind) {
			return p.refuse("spec", "size "+want.Size.Text, "it depends on what other namespaces take", "with several namespaces give each its size")
		}
		n, ok := p.findLike(want, kept)
		if !ok {
			missing = append(missing, want)
			continue
		}
		kept[n.NSID] = true
		here := n.Controllers
		if len(here) == 0 {
			here = []uint16{p.inv.Identity.CNTLID}
		}
		if err := p.attachMissing(n, here); err != nil {
			return err
		}
	}
	var gone []Namespace
	for _, n := range p.inv.Namespaces {
		if kept[n.NSID] {
			continue
		}
		if !slices.Contains(s.Replace, n.NSID) {
			return p.refuse("spec", fmt.Sprintf("namespace %d", n.NSID),
				"the spec has no place for it and does not name it as one to replace; the drive has: "+p.list(), fmt.Sprintf("add it to the spec: replace: [%d]", n.NSID))
		}
		gone = append(gone, n)
	}
	if len(gone) > 0 {
		if err := p.checkHealth(); err != nil {
			return err
		}
	}
	for _, n := range gone {
		if n.Error != "" {
			return p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it could not be read: "+n.Error, "")
		}
		if err := p.remove(n); err != nil {
			return err
		}
	}
	return p.createAll(missing, gone)
}

// createAll plans new namespaces, counting what each takes.
func (p *planner) createAll(missing []NamespaceSpec, gone []Namespace) error {
	taken := uint64(0)
	for _, want := range missing {
		selector, err := p.defaultFormat(want.Format)
		if err != nil {
			return err
		}
		format, err := p.format(selector)
		if err != nil {
			return err
		}
		q := p.question(format, gone...)
		q.AvailableBytes -= min(q.AvailableBytes, taken)
		c, err := want.Size.Resolve(q)
		if err != nil {
			return err
		}
		n := Namespace{SizeBlocks: c.Blocks, CapacityBlocks: c.Blocks, Controllers: []uint16{p.inv.Identity.CNTLID}}
		if want.Shared != nil && *want.Shared {
			n.NMIC = 1
		}
		if err := p.checkShared(n); err != nil {
			return err
		}
		p.setFormat(&n, format)
		p.plan.Notes = append(p.plan.Notes, c.Notes...)
		if err := p.add(n, c, q); err != nil {
			return err
		}
		taken = addCapped(taken, c.Bytes)
	}
	return nil
}

// absolute says that a size does not depend on what else is on the drive.
func absolute(k SizeKind) bool {
	switch k {
	case SizeBytes, SizeMarketing, SizeBlocks, SizePercent:
		return true
	}
	return false
}

// findLike finds a namespace that is as wanted and not yet kept for another.
func (p *planner) findLike(want NamespaceSpec, kept map[uint32]bool) (Namespace, bool) {
	for _, n := range p.inv.Namespaces {
		if n.Error != "" || kept[n.NSID] {
			continue
		}
		if want.Format != nil && n.Format.Selector() != *want.Format || want.Shared != nil && n.Shared() != *want.Shared {
			continue
		}
		c, err := want.Size.Resolve(p.question(n.Format, n))
		if err == nil && c.Blocks == n.SizeBlocks {
			return n, true
		}
	}
	return Namespace{}, false
}
