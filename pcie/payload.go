package pcie

import (
	"fmt"
)

// limit is what a function can take, its known errors considered.
func (f *Function) limit() Payload {
	if f.Express == nil {
		return 0
	}
	if brokenAbove256(f) {
		return min(f.Express.MaxPayloadSupported, 256)
	}
	return f.Express.MaxPayloadSupported
}

// brokenAbove256 knows devices that advertise 512 bytes and break above 256
// (Linux drivers/pci/quirks.c, fixup_mpss_256).
func brokenAbove256(f *Function) bool {
	switch [2]uint16{f.VendorID, f.DeviceID} {
	case [2]uint16{0x1924, 0x0703}, [2]uint16{0x1924, 0x6703}, [2]uint16{0x1924, 0x0710}, // Solarflare SFC4000
		[2]uint16{0x1b21, 0x0612}: // ASMedia ASM1062
		return true
	}
	return false
}

// readRequestLimit is the largest read request that the host bridge above a
// path stands, and why; 0 for no known limit.
func (p Path) readRequestLimit() (Payload, string) {
	top := p.Top()
	switch {
	case top.VendorID == 0x8086 && top.DeviceID >= 0x0db0 && top.DeviceID <= 0x0db9 &&
		top.Express != nil && top.Express.Link != nil && top.Express.Link.MaxWidth == 2:
		return 128, "a Xeon 6 root port split to x2 is slow with more than 128 bytes (arch/x86/pci/fixup.c)"
	case top.VendorID == 0x0014:
		return p.Endpoint().Express.MaxReadRequest, "a Loongson host bridge must keep what firmware set (no_inc_mrrs)"
	case top.VendorID == 0x16c3 && top.DeviceID == 0xabcd:
		return 256, "a DesignWare root port of an embedded system (Meson, i.MX6) rejects more"
	}
	return 0, ""
}

// payloadHazards are rules H1, H2 and H3. Writing: every port on the way must
// take what the device sends. Reading: every hop must take what the root port
// completes with, up to the device's read request size.
func (p Path) payloadHazards() []Finding {
	if !p.readable() {
		return nil
	}
	var list []Finding
	ep, top := p.Endpoint().Express, p.Top().Express
	remedy := []string{"nvop pcie set --mps auto", "the BIOS setting for Max Payload Size", "kernel parameter pci=pcie_bus_safe"}
	for _, f := range p.Hops {
		if x := f.Express; !x.MaxPayload.Valid() || !x.MaxReadRequest.Valid() || !x.MaxPayloadSupported.Valid() {
			list = append(list, Finding{
				Rule: RulePayloadReserved, Severity: Warning, At: f.Address, Expected: "128 to 4096 bytes",
				Found: fmt.Sprintf("payload %d of %d, read request %d", x.MaxPayload, x.MaxPayloadSupported, x.MaxReadRequest),
				Why:   "a reserved encoding: what the device makes of it is undefined",
			})
		}
	}
	for _, f := range p.Hops[1:] {
		if ep.MaxPayload > receiveLimit(f) {
			list = append(list, Finding{
				Rule: RuleTransmitExceeds, Severity: Critical, At: f.Address,
				Expected: fmt.Sprintf("a port that takes the %d bytes the device sends", ep.MaxPayload), Found: fmt.Sprintf("%d bytes", f.Express.MaxPayload),
				Why: "the first larger packet is malformed: a fatal error that takes the drive off line", Remedy: remedy,
			})
		}
	}
	hazard := false
	for _, f := range p.Hops[:len(p.Hops)-1] {
		if r := receiveLimit(f); r < top.MaxPayload && ep.MaxReadRequest > r {
			hazard = true
			list = append(list, Finding{
				Rule: RuleCompletionExceeds, Severity: Critical, At: f.Address,
				Expected: fmt.Sprintf("at least %d bytes, as the root port may complete reads with", min(top.MaxPayload, ep.MaxReadRequest)),
				Found:    fmt.Sprintf("%d bytes, read requests of %d", f.Express.MaxPayload, ep.MaxReadRequest),
				Why:      "a completion larger than this hop takes is malformed: a fatal error that takes the drive off line", Remedy: remedy,
			})
		}
	}
	for _, f := range p.Hops[1:] {
		if ep.MaxPayload < f.Express.MaxPayload && !hazard && ep.MaxReadRequest <= ep.MaxPayload {
			list = append(list, Finding{
				Rule: RulePeerUnsafe, Severity: Note, At: p.Endpoint().Address,
				Expected: fmt.Sprintf("%d bytes, as on the way", f.Express.MaxPayload), Found: fmt.Sprintf("%d bytes, read requests of %d", ep.MaxPayload, ep.MaxReadRequest),
				Why: "safe for reads and writes of the host; a peer (GPU direct storage) that writes larger packets to the drive is not",
			})
			break
		}
	}
	return list
}

// receiveLimit is what a function accepts: its setting, or its capability where
// that is fixed.
func receiveLimit(f *Function) Payload {
	if f.Express.RxPayloadFixed {
		return f.Express.MaxPayloadSupported
	}
	return f.Express.MaxPayload
}

// payloadAdvice is rule H4: the payload could be larger.
func (p Path) payloadAdvice(platform *Platform) []Finding {
	s, ok := p.Payloads()
	in, _, known := p.CeilingInput()
	if !ok || s.CanRaiseTo == 0 || len(p.Hops) < 2 || !p.Complete {
		return nil
	}
	f := Finding{
		Rule: RulePayloadLow, Severity: Advice, At: p.Endpoint().Address,
		Expected: fmt.Sprintf("%d bytes, what every hop of the path supports", s.CanRaiseTo), Found: fmt.Sprintf("%d bytes in force", s.InForce),
		Remedy: []string{"nvop pcie set --mps auto (dry run first)", "the BIOS setting for Max Payload Size", "kernel parameter pci=pcie_bus_perf, if the whole tree is alike"},
	}
	target := s.SafeRaiseTo
	switch {
	case target == 0:
		f.Severity = Note
		f.Remedy = []string{"move the drive, or the functions that support less, to a root port of their own"}
		target = s.CanRaiseTo
	case target < s.CanRaiseTo:
		f.Evidence = append(f.Evidence, fmt.Sprintf("safe is %d bytes: functions on the same root port support no more", target))
	}
	for _, a := range s.Blocking {
		f.Evidence = append(f.Evidence, a.String()+" blocks more")
	}
	if top := p.Top().Express; top.MaxPayload == 128 && top.MaxPayloadSupported > 128 {
		f.Evidence = append(f.Evidence, "firmware left the root port at its reset default of 128 bytes")
	}
	if platform != nil && platform.BusMode != "" {
		f.Evidence = append(f.Evidence, "the kernel was started with pci="+platform.BusMode)
	}
	f.Why = "larger packets have less overhead"
	if known {
		now, err := in.Ceiling()
		in.MaxPayload = target
		then, err2 := in.Ceiling()
		if err == nil && err2 == nil {
			f.LossBytesPerSecond = then.Read - now.Read
			f.Why = fmt.Sprintf("at %d bytes the link carries %s of reads at most, at %d bytes %s (within %.0f %%)",
				s.InForce, gbps(now.Read), target, gbps(then.Read), 100*CeilingError)
		}
	}
	return []Finding{f}
}

// readRequestFindings judges the read request size: what writing is bounded by.
func (p Path) readRequestFindings() []Finding {
	in, _, ok := p.CeilingInput()
	if !ok {
		return nil
	}
	x := p.Endpoint().Express
	limit, why := p.readRequestLimit()
	f := Finding{Rule: RuleReadRequest, At: p.Endpoint().Address, Found: fmt.Sprintf("%d bytes", x.MaxReadRequest)}
	if limit != 0 {
		if x.MaxReadRequest <= limit {
			return nil
		}
		f.Severity, f.Expected, f.Why = Warning, fmt.Sprintf("at most %d bytes", limit), why
		f.Remedy = []string{fmt.Sprintf("nvop pcie set --mrrs %d", limit)}
		return []Finding{f}
	}
	now, err := in.Ceiling()
	in.MaxReadRequest = 4096
	then, err2 := in.Ceiling()
	if err != nil || err2 != nil || x.MaxReadRequest == 4096 || then.Write <= now.Write {
		return nil
	}
	// Requests of 512 are the default everywhere: worth a remark, not a fault.
	f.Severity = Note
	if x.MaxReadRequest < 512 {
		f.Severity = Advice
	}
	f.Expected, f.LossBytesPerSecond = "4096 bytes", then.Write-now.Write
	f.Why = fmt.Sprintf("writing is bounded at %s, with 4096 bytes at %s (within %.0f %%)", gbps(now.Write), gbps(then.Write), 100*CeilingError)
	f.Remedy = []string{"nvop pcie set --mrrs 4096", "the BIOS setting for Max Read Request Size"}
	if x.MaxReadRequest == x.MaxPayload {
		f.Evidence = []string{"equal to the payload size, as pci=pcie_bus_perf sets it: that keeps completions small on mixed paths; check the path before raising it"}
	}
	return []Finding{f}
}

// tagFindings judges how many reads can be outstanding.
func (p Path) tagFindings() []Finding {
	in, _, ok := p.CeilingInput()
	if !ok {
		return nil
	}
	c, err := in.Ceiling()
	if err != nil {
		return nil
	}
	x := p.Endpoint().Express
	typical := float64(in.Tags) * float64(in.MaxReadRequest) / roundTrip
	f := Finding{
		At: p.Endpoint().Address, Found: fmt.Sprintf("%d reads of %d bytes can be outstanding", in.Tags, in.MaxReadRequest),
		Why:      fmt.Sprintf("at a round trip of 1 us they carry %s (0.6 us: %s), the link %s", gbps(typical), gbps(c.WriteByTagsHigh), gbps(c.Write)),
		Severity: Note,
	}
	switch {
	case typical >= c.Write:
		return nil
	case x.ExtendedTagSupported && !x.ExtendedTag && in.Tags == 32:
		f.Rule, f.Severity, f.Expected, f.LossBytesPerSecond = RuleExtendedTags, Advice, "256 (extended tags enabled)", c.Write-typical
		f.Remedy = []string{fmt.Sprintf("setpci -s %s CAP_EXP+8.w=0100:0100", p.Endpoint().Address)}
		if limit, why := p.readRequestLimit(); limit == 128 {
			f.Severity, f.Remedy, f.Evidence = Note, nil, []string{why + ": extended tags stay off"}
		}
	case x.Second != nil && x.Second.Tag10Requester && !x.Second.Tag10:
		f.Rule, f.Expected = RuleTenBitTags, "768 (10-bit tags enabled)"
		if top := p.Top().Express; top.Second == nil || !top.Second.Tag10Completer {
			f.Evidence = []string{"the root port does not say that it completes 10-bit tags"}
		}
	default:
		return nil
	}
	return []Finding{f}
}
