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
