package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/pcie"
)

// title names a device: the node and the address, where those are two things.
func (d pcieDevice) title() string {
	parts := []string{d.Device}
	if d.Controller != "" && d.Device != "/dev/"+d.Controller {
		parts = append(parts, "through "+d.Controller)
	}
	if d.Address.String() != d.Device {
		parts = append(parts, "at "+d.Address.String())
	}
	if d.Serial != "" {
		parts = append(parts, "serial number "+d.Serial)
	}
	return strings.Join(parts, ", ")
}

func problemLines(p *render.Page, problems []string) {
	for _, problem := range problems {
		p.Line("  not read: %s", problem)
	}
}

func (r pcieShowResult) Text(p *render.Page) {
	for _, d := range r.Devices {
		p.Title("%s", d.title())
		if d.Virtual != nil {
			p.Line("  a virtual function; what follows is its physical function %s", d.Function.Address)
		}
		f := d.Function
		p.Pairs("device", fmt.Sprintf("%04x:%04x, class %06x, revision %02x", f.VendorID, f.DeviceID, f.Class, f.Revision), "description", f.Name)
		if f.HeaderOnly {
			p.Line("  %s", pcie.ErrNoAccess)
		}
		expressText(p, f)
		extendedText(p, f)
		attributesText(p, f.Sysfs)
		for _, problem := range f.Problems {
			p.Line("  contradiction: %s", problem)
		}
	}
	if pl := r.Platform; pl != nil {
		p.Title("machine")
		p.Pairs("lockdown", pl.Lockdown, "payload policy", pl.BusMode, "ASPM policy", pl.ASPMPolicy)
		if *pl == (pcie.Platform{}) {
			p.Line("  nothing said")
		}
	}
	problemLines(p, r.Problems)
}

func onOff(supported, on bool) string {
	switch {
	case on:
		return "enabled"
	case supported:
		return "disabled (supported)"
	}
	return "not supported"
}

func expressText(p *render.Page, f *pcie.Function) {
	x := f.Express
	if x == nil {
		if !f.HeaderOnly {
			p.Line("  no PCI Express capability")
		}
		return
	}
	flit := "not supported"
	if x.FlitCapable {
		flit = "supported, not active"
	}
	if x.Flit() {
		flit = "active"
	}
	p.Pairs(
		"type", fmt.Sprintf("%s, capability version %d", x.Type, x.Version),
		"max payload", fmt.Sprintf("%d of %d bytes", x.MaxPayload, x.MaxPayloadSupported),
		"max read request", fmt.Sprintf("%d bytes", x.MaxReadRequest),
		"extended tags", onOff(x.ExtendedTagSupported, x.ExtendedTag),
		"outstanding reads", fmt.Sprint(x.Tags()),
		"relaxed ordering", yesNo(x.RelaxedOrdering), "no snoop", yesNo(x.NoSnoop),
		"function level reset", yesNo(x.FunctionLevelReset), "flit mode", flit,
	)
	if l := x.Link; l != nil {
		p.Pairs("link", fmt.Sprintf("%s %s of %s %s", l.Speed, l.Width, l.MaxSpeed, l.MaxWidth),
			"ASPM", fmt.Sprintf("%s of %s", l.ASPM, l.ASPMSupported))
	}
	if s := x.Second; s != nil {
		low, high := s.TimeoutRange()
		timeout := fmt.Sprintf("%s to %s", low, high)
		if s.TimeoutDisabled {
			timeout = "disabled"
		}
		p.Pairs("10-bit tags", onOff(s.Tag10Requester, s.Tag10), "completion timeout", timeout, "LTR", onOff(s.LTRSupported, s.LTR))
	}
}

func extendedText(p *render.Page, f *pcie.Function) {
	if f.Express != nil && !f.ExtendedRead {
		p.Line("  extended capabilities (AER, ACS, L1 substates) were not read: %d bytes only", f.ConfigBytes)
		return
	}
	none := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, " ")
	}
	if a := f.AER; a != nil {
		p.Pairs("errors, uncorrectable", none(a.Uncorrectable.Names()), "errors, correctable", none(a.Correctable.Names()))
		if h := a.Header; h != nil {
			p.Pairs("logged packet", fmt.Sprintf("%s, %d bytes of data, requester %s, address %#x", h.Kind, h.PayloadBytes, h.Requester, h.Address))
		}
	}
	if l := f.L1SS; l != nil {
		p.Pairs("L1 substates", fmt.Sprintf("%s of %s", none(l.Enabled.Names()), none(l.Supported.Names())))
	}
	if l := f.LTR; l != nil {
		p.Pairs("latency tolerance", fmt.Sprintf("%d ns snooped, %d ns not", l.SnoopNS, l.NoSnoopNS))
	}
	if s := f.SRIOV; s != nil {
		p.Pairs("virtual functions", fmt.Sprintf("%d of %d", s.NumVFs, s.TotalVFs))
	}
	if a := f.ACS; a != nil {
		p.Pairs("ACS", fmt.Sprintf("control %04x of %04x", a.Control, a.Capability))
	}
	if d := f.DPC; d != nil {
		p.Pairs("containment triggered", yesNo(d.Triggered))
	}
}

func attributesText(p *render.Page, s *pcie.Attributes) {
	if s == nil {
		return
	}
	node := "not said by the platform"
	if s.NUMANode >= 0 {
		node = fmt.Sprintf("%d, CPUs %s", s.NUMANode, s.LocalCPUs)
	}
	p.Pairs("driver", s.Driver, "NUMA node", node)
	if s.Speed.Known() || s.MaxSpeed.Known() {
		p.Pairs("link, by the kernel", fmt.Sprintf("%s %s of %s %s", s.Speed, s.Width, s.MaxSpeed, s.MaxWidth))
	}
	if s.Errors != nil {
		grown, said := s.Errors.Since(nil), []string{}
		for _, name := range slices.Sorted(maps.Keys(grown)) {
			said = append(said, fmt.Sprintf("%s %d", name, grown[name]))
		}
		if len(said) == 0 {
			said = []string{"none"}
		}
		p.Pairs("errors counted", strings.Join(said, ", "))
	}
}

func (r pciePathResult) Text(p *render.Page) {
	for _, d := range r.Devices {
		p.Title("%s", d.title())
		if d.Virtual != nil {
			p.Line("  a virtual function: the path is its physical function's, %s", d.Hops[0].Address)
		}
		if d.VMD != nil {
			p.Line("  behind the VMD %s", *d.VMD)
		}
		if !d.Complete {
			p.Line("  the way ends before the root port: the rest is not known")
		}
		d.drawTree(p)
		for _, l := range d.Links {
			port := "a port that is not known"
			if l.Port != nil {
				port = l.Port.String()
			}
			p.Line("  link %s - %s: %s %s, expected %s %s: %s", l.At, port, l.Speed, l.Width, l.ExpectedSpeed, l.ExpectedWidth, l.Verdict)
		}
		if s := d.Payloads; s != nil {
			p.Pairs("payload in force", fmt.Sprintf("%d bytes", s.InForce),
				"the path supports", fmt.Sprintf("%d bytes (limited by %s)", s.PathCapability, s.LimitedBy),
				"all below the root port", fmt.Sprintf("%d bytes", s.TreeCapability))
		} else {
			p.Line("  payload sizes could not be read: %s", pcie.ErrNoAccess)
		}
		if c := d.Ceiling; c != nil {
			p.Pairs("ceiling", fmt.Sprintf("%.2f GB/s reading, %.2f GB/s writing, %s 4K reads per second (within %.0f %%)",
				c.Read/1e9, c.Write/1e9, render.Rate(c.Read4K), 100*c.ErrorFraction))
		}
	}
	problemLines(p, r.Problems)
}

// drawTree draws the root port and everything below it; the way is marked.
func (d pciePathOf) drawTree(p *render.Page) {
	children := map[pcie.Address][]pcieHop{}
	for _, h := range d.Tree[1:] {
		if h.parent != nil {
			children[*h.parent] = append(children[*h.parent], h)
		}
	}
	var draw func(h pcieHop, lead, branch string, depth int)
	draw = func(h pcieHop, lead, branch string, depth int) {
		p.Line("  %s%s%s", lead, branch, hopText(h))
		if depth > 32 {
			return
		}
		below := lead
		switch branch {
		case "|- ":
			below += "|  "
		case "`- ":
			below += "   "
		}
		list := children[h.Address]
		for i, child := range list {
			branch := "|- "
			if i == len(list)-1 {
				branch = "`- "
			}
			draw(child, below, branch, depth+1)
		}
	}
	draw(d.Tree[0], "", "", 0)
}

func hopText(h pcieHop) string {
	mark := " "
	if h.OnPath {
		mark = "*"
	}
	text := fmt.Sprintf("%s %s %s [%04x:%04x]", mark, h.Address, h.Type, h.VendorID, h.DeviceID)
	if h.Speed.Known() && h.Width.Known() {
		text += fmt.Sprintf(", %s %s", h.Speed, h.Width)
	}
	if h.Supported != 0 {
		text += fmt.Sprintf(", payload %d of %d, read requests %d", h.MaxPayload, h.Supported, h.MaxReadRequest)
	}
	return text
}

func (r pcieAuditResult) Text(p *render.Page) {
	for _, d := range r.Devices {
		p.Title("%s", d.title())
		if len(d.Findings) == 0 {
			p.Line("  nothing to say: %s", judgedText(d.path))
		}
		for _, f := range d.Findings {
			p.Line("  %s: %s at %s", strings.ToUpper(string(f.Severity)), f.Rule, f.At)
			p.Line("    found %s%s", f.Found, prefixed("; expected ", f.Expected))
			p.Line("    %s", f.Why)
			for _, e := range f.Evidence {
				p.Line("    evidence: %s", e)
			}
			for _, m := range f.Remedy {
				p.Line("    remedy: %s", m)
			}
		}
	}
	problemLines(p, r.Problems)
}

// judgedText says what an audit without findings has looked at, and no more.
func judgedText(path pcie.Path) string {
	words, unread := "payload sizes, read requests, tags", 0
	if len(path.Links()) > 0 {
		words = "links, " + words
	}
	for _, f := range path.Hops {
		if f.AER == nil && f.Sysfs == nil {
			unread++
		}
	}
	if unread > 0 {
		return fmt.Sprintf("%s are in order; %s of the path without error reporting (AER), so errors were not judged", words, plural(unread, "function"))
	}
	return words + " and errors are in order"
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
