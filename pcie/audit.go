package pcie

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Severity is how bad a finding is.
type Severity string

// The severities. Critical: data or the drive is at risk, or a link lost what
// it could do. Advice: bandwidth that can be had. A note is no fault.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Advice   Severity = "advice"
	Note     Severity = "note"
)

// The rules by name.
const (
	RuleAccess            = "access"
	RuleTransmitExceeds   = "payload.h1-transmit-exceeds-port"
	RuleCompletionExceeds = "payload.h2-completion-exceeds-port"
	RulePeerUnsafe        = "payload.h3-peer-to-peer-unsafe"
	RulePayloadLow        = "payload.h4-could-be-larger"
	RulePayloadReserved   = "payload.reserved-encoding"
	RuleReadRequest       = "read-request"
	RuleExtendedTags      = "tags.extended"
	RuleTenBitTags        = "tags.10-bit"
	RuleLinkDegraded      = "link.degraded"
	RuleLinkSlot          = "link.slot-limited"
	RuleLinkIdle          = "link.idle-downshift"
	RuleLinkUnknown       = "link.unknown"
	RuleSharedUplink      = "link.shared-uplink"
	RuleASPM              = "aspm"
	RuleTimeout           = "completion-timeout"
	RuleErrors            = "aer"
	RuleContainment       = "dpc"
	RuleNUMA              = "numa"
	RuleDrift             = "drift"
)

// Finding is one thing an audit has to say.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	At       Address  `json:"at"`
	Expected string   `json:"expected"`
	Found    string   `json:"found"`
	// Why says why it matters, in GB/s where it costs bandwidth.
	Why string `json:"why"`
	// LossBytesPerSecond is what the model says it costs; 0 for none or unknown.
	LossBytesPerSecond float64 `json:"loss_bytes_per_second,omitempty"`
	// Evidence is what else points to it: counters, logged packet headers.
	Evidence []string `json:"evidence,omitempty"`
	Remedy   []string `json:"remedy,omitempty"`
}

// AuditOptions is what an audit is told beside the path.
type AuditOptions struct {
	// Baseline is what was recorded earlier; nil for none.
	Baseline *Baseline
	// Sharing are other drives' paths through the same ports, for the shared
	// bandwidth; those below the root port are found without.
	Platform *Platform
}

// Audit judges a path: its links, its payload sizes and what limits it. The
// worst findings come first.
func Audit(t *Topology, p Path, o AuditOptions) []Finding {
	if o.Platform == nil {
		o.Platform = t.Platform
	}
	list := p.accessFindings()
	list = append(list, p.linkFindings()...)
	list = append(list, p.payloadHazards(o.Platform)...)
	list = append(list, p.payloadAdvice(o.Platform)...)
	list = append(list, p.readRequestFindings()...)
	list = append(list, p.tagFindings()...)
	list = append(list, sharedUplinks(t, p)...)
	list = append(list, p.powerFindings(o.Platform)...)
	list = append(list, p.timeoutFindings()...)
	list = append(list, p.errorFindings()...)
	list = append(list, p.numaFindings(t, o.Platform)...)
	if o.Baseline != nil {
		list = append(list, p.Drift(*o.Baseline)...)
	}
	order := []Severity{Critical, Warning, Advice, Note}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return list
}

// Worst is the severity of the first of sorted findings; "" for none.
func Worst(list []Finding) Severity {
	if len(list) == 0 {
		return ""
	}
	return list[0].Severity
}

func gbps(bytesPerSecond float64) string { return fmt.Sprintf("%.2f GB/s", bytesPerSecond/1e9) }

func (p Path) accessFindings() []Finding {
	var list []Finding
	for _, f := range p.Hops {
		switch {
		case f.HeaderOnly:
			list = append(list, Finding{
				Rule: RuleAccess, Severity: Warning, At: f.Address, Expected: "all of configuration space",
				Found: fmt.Sprintf("%d bytes", f.ConfigBytes),
				Why:   "payload sizes, tags and errors cannot be judged; this does not mean that the capability is missing", Remedy: []string{"run as root, outside a container"},
			})
			return list
		case f.Express == nil:
			list = append(list, Finding{
				Rule: RuleAccess, Severity: Warning, At: f.Address, Expected: "a PCI Express capability", Found: "none",
				Why: "the path cannot be judged beyond this function",
			})
		}
	}
	if short := p.withoutExtended(); len(short) > 0 && len(list) == 0 {
		list = append(list, Finding{
			Rule: RuleAccess, Severity: Warning, At: short[0].Address, Expected: "4096 bytes of configuration space",
			Found:  fmt.Sprintf("%d bytes, at %s of the path", short[0].ConfigBytes, countText(len(short), "function")),
			Why:    "the extended capabilities were not read: errors (AER), containment (DPC) and what else lies there cannot be judged",
			Remedy: []string{"lspci -xxxx as root writes all of it; a machine without enhanced configuration access has no more to give"},
		})
	}
	if !p.Complete && p.readable() && p.Endpoint().Express.Type.HasLink() {
		f := Finding{
			Rule: RuleAccess, Severity: Warning, At: p.Top().Address, Expected: "a path up to the root port",
			Found: "it ends at a " + p.Top().Express.Type.String(), Why: "what lies above is not in the dump and is not judged",
			Remedy: []string{"dump the whole tree: lspci -xxxx without -s"},
		}
		if p.Top().Sysfs != nil {
			// A virtual machine may put a drive on its root bus, with nothing above.
			f.Severity, f.Why, f.Remedy = Note, "this machine shows nothing above it, so that is not judged", nil
		}
		list = append(list, f)
	}
	if p.Virtual != nil {
		list = append(list, Finding{
			Rule: RuleAccess, Severity: Note, At: *p.Virtual, Expected: "", Found: "a virtual function",
			Why: "its payload and read request sizes are reserved; those of the physical function " + p.Endpoint().Address.String() + " count",
		})
	}
	return list
}

// withoutExtended are the functions of the path with a PCI Express capability, and so
// with an extended configuration space, of which that was not read.
func (p Path) withoutExtended() []*Function {
	var list []*Function
	for _, f := range p.Hops {
		if f.Express != nil && !f.ExtendedRead {
			list = append(list, f)
		}
	}
	return list
}

func countText(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func (p Path) linkFindings() []Finding {
	var list []Finding
	for _, l := range p.Links() {
		f := Finding{
			At: l.At, Expected: linkText(l.ExpectedSpeed, l.ExpectedWidth), Found: linkText(l.Speed, l.Width),
			LossBytesPerSecond: max(RawRate(l.ExpectedSpeed, l.ExpectedWidth)-l.RawBytesPerSecond, 0),
		}
		f.Why = fmt.Sprintf("the link carries %s raw instead of %s", gbps(l.RawBytesPerSecond), gbps(RawRate(l.ExpectedSpeed, l.ExpectedWidth)))
		if _, speed, _, width := linkOf(l.Upper); speed.Known() && l.Port != nil {
			f.Evidence = []string{fmt.Sprintf("%s can do %s, the port %s %s", l.At, linkText(l.DeviceSpeed, l.DeviceWidth), l.Port, linkText(speed, width))}
		}
		switch l.Verdict {
		case LinkDegraded:
			f.Rule, f.Severity = RuleLinkDegraded, Critical
			f.Remedy = []string{"reseat the drive and its cable, or riser; look for a bad lane or retimer"}
			l.explainSpeed(&f)
		case LinkIdle:
			f.Rule, f.Severity = RuleLinkIdle, Note
			f.Remedy = []string{"read the link again while the drive works"}
		case LinkSlotLimited:
			f.Rule, f.Severity, f.Expected = RuleLinkSlot, Note, linkText(l.DeviceSpeed, l.DeviceWidth)
			f.LossBytesPerSecond = RawRate(l.DeviceSpeed, l.DeviceWidth) - l.RawBytesPerSecond
			f.Why = fmt.Sprintf("not a fault: the port can do no more; the drive alone could do %s raw", gbps(RawRate(l.DeviceSpeed, l.DeviceWidth)))
			f.Remedy = []string{"another slot, if more is wanted"}
		case LinkUnknown:
			if !l.shows() {
				continue // an access finding says that the registers could not be read
			}
			f.Rule, f.Severity, f.LossBytesPerSecond = RuleLinkUnknown, Warning, 0
			f.Why = "Link Status and Link Capabilities name no speed or no width: the link may be down, and cannot be judged"
			f.Remedy = []string{"read it again; if it stays so, reseat the drive"}
		default:
			continue
		}
		list = append(list, f)
	}
	return list
}

// shows says that the link's registers were read, whatever is in them.
func (l LinkState) shows() bool {
	return l.Lower != nil && l.Lower.Express != nil && l.Lower.Express.Link != nil
}

// explainSpeed adds why a link may be slow, where registers tell.
func (l LinkState) explainSpeed(f *Finding) {
	up := l.Upper
	if up == nil || up.Express == nil || up.Express.Second == nil {
		return
	}
	second, at := up.Express.Second, up.Address.String()
	if t := second.TargetSpeed; t.Known() && t < l.ExpectedSpeed {
		f.Evidence = append(f.Evidence, fmt.Sprintf("the port %s is told to aim at %s only (Link Control 2)", at, t))
		f.Remedy = []string{
			fmt.Sprintf("setpci -s %s CAP_EXP+30.w=%04x:000f and then, to retrain, setpci -s %s CAP_EXP+10.w=0020:0020", at, uint8(l.ExpectedSpeed), at),
			"look in BIOS for a forced link speed of this slot",
		}
	}
	if up.Express.Link != nil && up.Express.Link.BandwidthChanged {
		f.Evidence = append(f.Evidence, "the port's Link Status says that speed or width was lowered to keep the link reliable")
	}
}

// sharedUplinks looks for ports that several drives' links come together at.
func sharedUplinks(t *Topology, p Path) []Finding {
	var list []Finding
	for _, l := range p.Links()[min(1, len(p.Links())):] {
		sum, drives := 0.0, 0
		for _, f := range p.Below {
			if f.BaseClass() != 0x0108 {
				continue
			}
			other, err := t.Path(f.Address)
			links := other.Links()
			if err != nil || len(links) == 0 || !slices.ContainsFunc(links[1:], func(o LinkState) bool { return o.At == l.At }) {
				continue
			}
			sum, drives = sum+links[0].RawBytesPerSecond, drives+1
		}
		if drives < 2 || sum <= l.RawBytesPerSecond || l.RawBytesPerSecond == 0 {
			continue
		}
		list = append(list, Finding{
			Rule: RuleSharedUplink, Severity: Note, At: l.At,
			Expected: gbps(sum) + " raw, the sum of the drives' own links", Found: gbps(l.RawBytesPerSecond) + " raw",
			Why:    fmt.Sprintf("%d drives share this link: at full load each has %s", drives, gbps(l.RawBytesPerSecond/float64(drives))),
			Remedy: []string{"measure the drives one at a time, or spread them over root ports"},
		})
	}
	return list
}

func (p Path) powerFindings(platform *Platform) []Finding {
	var list []Finding
	for _, f := range p.Hops {
		if f.Express == nil || f.Express.Link == nil {
			continue
		}
		states := []string{}
		if a := f.Express.Link.ASPM; a != 0 {
			states = append(states, a.String())
		}
		if f.L1SS != nil {
			states = append(states, f.L1SS.Enabled.Names()...)
		}
		if len(states) == 0 || f.Express.Link.ASPM == 0 {
			continue
		}
		finding := Finding{
			Rule: RuleASPM, Severity: Note, At: f.Address, Expected: "none, where latency counts", Found: strings.Join(states, ", "),
			Why:    "the first command after idling waits until the link is awake: microseconds from L1, up to a millisecond from L1.2",
			Remedy: []string{"kernel parameter pcie_aspm.policy=performance, or echo performance > /sys/module/pcie_aspm/parameters/policy"},
		}
		if platform != nil && platform.ASPMPolicy != "" {
			finding.Evidence = []string{"the kernel's ASPM policy is " + platform.ASPMPolicy}
		}
		list = append(list, finding)
	}
	return list
}

func (p Path) timeoutFindings() []Finding {
	x := p.Endpoint().Express
	if x == nil || x.Second == nil {
		return nil
	}
	_, high := x.Second.TimeoutRange()
	switch {
	case x.Second.TimeoutDisabled:
		return []Finding{{
			Rule: RuleTimeout, Severity: Note, At: p.Endpoint().Address, Expected: "completion timeout enabled", Found: "disabled",
			Why: "a lost completion hangs the drive for ever instead of being reported",
		}}
	case high == 0:
		return []Finding{{
			Rule: RuleTimeout, Severity: Warning, At: p.Endpoint().Address, Expected: "a defined completion timeout", Found: timeoutText(x.Second),
			Why: "what the drive does about a lost completion is undefined",
		}}
	case high.Microseconds() < 10000:
		return []Finding{{
			Rule: RuleTimeout, Severity: Warning, At: p.Endpoint().Address, Expected: "at least 10ms", Found: timeoutText(x.Second),
			Why: "a busy memory controller takes longer at times: reads then fail that would have been answered",
		}}
	}
	return nil
}

// errorFindings looks at what went wrong so far: the kernel's counters, status
// bits, and logged headers as evidence.
func (p Path) errorFindings() []Finding {
	var list []Finding
	for i, f := range p.Hops {
		if f.DPC != nil && f.DPC.Triggered {
			list = append(list, Finding{
				Rule: RuleContainment, Severity: Critical, At: f.Address, Expected: "not triggered", Found: fmt.Sprintf("triggered, status %04x", f.DPC.Status),
				Why: "the port holds the link below it down after an error", Remedy: []string{"clear the cause, then the kernel's recovery or a rescan brings the link back"},
			})
		}
		if finding, ok := p.errorsOf(i, f); ok {
			list = append(list, finding)
		}
	}
	return list
}

func (p Path) errorsOf(hop int, f *Function) (Finding, bool) {
	finding := Finding{Rule: RuleErrors, Severity: Note, At: f.Address, Expected: "no errors"}
	var counted []string
	malformed := f.AER != nil && f.AER.Uncorrectable&MalformedTLP != 0
	if f.Sysfs != nil {
		grown := f.Sysfs.Errors.Since(nil)
		for _, name := range slices.Sorted(maps.Keys(grown)) {
			counted = append(counted, fmt.Sprintf("%s %d", name, grown[name]))
			malformed = malformed || strings.HasPrefix(name, "fatal Malf") || strings.HasPrefix(name, "nonfatal Malf")
			if !strings.HasPrefix(name, "correctable") {
				finding.Severity = Warning
			}
		}
	}
	if f.AER != nil {
		if u := f.AER.Uncorrectable.Names(); len(u) > 0 {
			counted = append(counted, "status: uncorrectable "+strings.Join(u, " "))
			// Unsupported requests are what probing an empty slot leaves behind.
			if f.AER.Uncorrectable&^UnsupportedRequest != 0 {
				finding.Severity = Warning
			}
		}
		if c := f.AER.Correctable.Names(); len(c) > 0 {
			counted = append(counted, "status: correctable "+strings.Join(c, " "))
		}
		finding.Evidence = p.headerEvidence(hop, f)
	}
	if len(counted) == 0 {
		return finding, false
	}
	finding.Found = strings.Join(counted, ", ")
	finding.Why = "errors cost replays and, when uncorrectable, the link"
	if malformed {
		finding.Severity = Critical
		finding.Why = "a packet larger than this port accepts arrived: payload sizes on the path disagree, or did"
		finding.Remedy = []string{"nvop pcie set DEV --mps auto, then look whether the counter still grows"}
	}
	return finding, true
}

// headerEvidence decodes a logged header and compares it with the port.
func (p Path) headerEvidence(hop int, f *Function) []string {
	if f.AER.FlitLogged {
		return []string{"a header was logged in Flit Mode, whose layout is not decoded here"}
	}
	h := f.AER.Header
	if h == nil || f.AER.Uncorrectable == 0 {
		return nil
	}
	text := fmt.Sprintf("logged header: %s, %d bytes of data, requester %s, address %#x", h.Kind, h.PayloadBytes, h.Requester, h.Address)
	if f.Express != nil && h.PayloadBytes > int(f.Express.MaxPayload) {
		text += fmt.Sprintf(": more than the %d bytes that hop %d accepts", f.Express.MaxPayload, hop)
	}
	return []string{text}
}

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
func (p Path) payloadHazards(platform *Platform) []Finding {
	if !p.readable() {
		return nil
	}
	var list []Finding
	ep, top := p.Endpoint().Express, p.Top().Express
	remedy := []string{"nvop pcie set DEV --mps auto", "the BIOS setting for Max Payload Size", "kernel parameter pci=pcie_bus_safe"}
	var policy []string
	if platform != nil {
		policy = []string{explainBusMode(platform.BusMode)}
	}
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
				Why: "the first larger packet is malformed: a fatal error that takes the drive off line", Remedy: remedy, Evidence: policy,
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
				Why:      "a completion larger than this hop takes is malformed: a fatal error that takes the drive off line", Remedy: remedy, Evidence: policy,
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
		Remedy: []string{"nvop pcie set DEV --mps auto (a dry run unless --apply)", "the BIOS setting for Max Payload Size", "kernel parameter pci=pcie_bus_perf, if the whole tree is alike"},
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
		f.Evidence = append(f.Evidence, "firmware left the root port at its reset default of 128 bytes; a BIOS update may change that, either way")
	}
	if platform != nil {
		f.Evidence = append(f.Evidence, explainBusMode(platform.BusMode))
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
		f.Remedy = []string{fmt.Sprintf("nvop pcie set DEV --mrrs %d", limit)}
		return []Finding{f}
	}
	now, err := in.Ceiling()
	in.MaxReadRequest = 4096
	then, err2 := in.Ceiling()
	if err != nil || err2 != nil || x.MaxReadRequest == 4096 || then.Write <= now.Write {
		return nil
	}
	f.Severity = Note
	if hop, mixed := p.completionsBound(); mixed {
		f.Expected = fmt.Sprintf("at most %d bytes while payload sizes differ", receiveLimit(hop))
		if x.MaxReadRequest > receiveLimit(hop) {
			return nil // rule H2 says so
		}
		f.Why = fmt.Sprintf("writing is bounded at %s, but larger read requests would bring completions of up to %d bytes, which %s does not take",
			gbps(now.Write), p.Top().Express.MaxPayload, hop.Address)
		f.Remedy = []string{"make the payload of the path one size first: nvop pcie set DEV --mps auto"}
		return []Finding{f}
	}
	// Requests of 512 are the default everywhere: worth a remark, not a fault.
	if x.MaxReadRequest < 512 {
		f.Severity = Advice
	}
	f.Expected, f.LossBytesPerSecond = "4096 bytes", then.Write-now.Write
	f.Why = fmt.Sprintf("writing is bounded at %s, with 4096 bytes at %s (within %.0f %%)", gbps(now.Write), gbps(then.Write), 100*CeilingError)
	f.Remedy = []string{"nvop pcie set DEV --mrrs 4096", "the BIOS setting for Max Read Request Size"}
	if x.MaxReadRequest == x.MaxPayload {
		f.Evidence = []string{"equal to the payload size, as pci=pcie_bus_perf sets it: that keeps completions small on mixed paths; check the path before raising it"}
	}
	return []Finding{f}
}

// completionsBound is the hop that takes less than the root port may complete
// reads with, if there is one: small read requests alone protect it.
func (p Path) completionsBound() (hop *Function, mixed bool) {
	for _, f := range p.Hops[:len(p.Hops)-1] {
		if receiveLimit(f) < p.Top().Express.MaxPayload && (hop == nil || receiveLimit(f) < receiveLimit(hop)) {
			hop = f
		}
	}
	return hop, hop != nil
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

// Baseline is what a path was when it was good: for telling later what changed
// behind one's back (an error recovery, a reset, a firmware update).
type Baseline struct {
	Schema string        `json:"schema"`
	Device Address       `json:"device"`
	Hops   []BaselineHop `json:"hops"`
}

// BaselineSchema names the layout of a Baseline.
const BaselineSchema = "nvop.pcie-baseline/1"

// BaselineHop is one hop's settings.
type BaselineHop struct {
	Address        Address `json:"address"`
	VendorID       uint16  `json:"vendor_id"`
	DeviceID       uint16  `json:"device_id"`
	MaxPayload     Payload `json:"max_payload_bytes"`
	MaxReadRequest Payload `json:"max_read_request_bytes"`
	ExtendedTag    bool    `json:"extended_tag_enabled"`
	Speed          Speed   `json:"speed_gt_per_second"`
	Width          Width   `json:"width"`
	ASPM           ASPM    `json:"aspm"`
}

// Baseline records a path; ok is false where a hop could not be read.
func (p Path) Baseline() (b Baseline, ok bool) {
	if !p.readable() {
		return Baseline{}, false
	}
	b = Baseline{Schema: BaselineSchema, Device: p.Endpoint().Address}
	for _, f := range p.Hops {
		h := BaselineHop{
			Address: f.Address, VendorID: f.VendorID, DeviceID: f.DeviceID, MaxPayload: f.Express.MaxPayload,
			MaxReadRequest: f.Express.MaxReadRequest, ExtendedTag: f.Express.ExtendedTag,
		}
		if l := f.Express.Link; l != nil {
			h.Speed, h.Width, h.ASPM = l.Speed, l.Width, l.ASPM
		}
		b.Hops = append(b.Hops, h)
	}
	return b, true
}

// Drift says how the path differs from a baseline.
func (p Path) Drift(b Baseline) []Finding {
	now, ok := p.Baseline()
	if !ok {
		return nil
	}
	var list []Finding
	say := func(at Address, what, was, is string) {
		list = append(list, Finding{
			Rule: RuleDrift, Severity: Warning, At: at, Expected: what + " " + was + ", as recorded", Found: what + " " + is,
			Why:    "settings changed since the baseline: an error recovery, a reset or firmware put other values there",
			Remedy: []string{"nvop pcie set DEV brings payload sizes back", "record a new baseline if the change was meant"},
		})
	}
	found := map[Address]BaselineHop{}
	for _, h := range now.Hops {
		found[h.Address] = h
	}
	for _, was := range b.Hops {
		is, ok := found[was.Address]
		if !ok {
			say(was.Address, "hop", was.Address.String(), "is not on the path any more")
			continue
		}
		delete(found, was.Address)
		for _, c := range []struct {
			what    string
			was, is any
		}{
			{"device", fmt.Sprintf("%04x:%04x", was.VendorID, was.DeviceID), fmt.Sprintf("%04x:%04x", is.VendorID, is.DeviceID)},
			{"payload", was.MaxPayload, is.MaxPayload}, {"read request", was.MaxReadRequest, is.MaxReadRequest},
			{"extended tags", was.ExtendedTag, is.ExtendedTag}, {"link", linkText(was.Speed, was.Width), linkText(is.Speed, is.Width)},
			{"ASPM", was.ASPM.String(), is.ASPM.String()},
		} {
			if c.was != c.is {
				say(was.Address, c.what, fmt.Sprint(c.was), fmt.Sprint(c.is))
			}
		}
	}
	for _, h := range now.Hops {
		if _, extra := found[h.Address]; extra {
			say(h.Address, "hop", "absent", "is on the path now")
		}
	}
	return list
}
