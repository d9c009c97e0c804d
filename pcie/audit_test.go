package pcie

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// audit returns the findings of a tree by rule.
func audit(t *testing.T, tr *tree, device Address) map[string][]Finding {
	t.Helper()
	topo, p := tr.path(t, device)
	found := map[string][]Finding{}
	for _, f := range Audit(topo, p, AuditOptions{}) {
		found[f.Rule] = append(found[f.Rule], f)
	}
	return found
}

func pair(root, ep node) *tree { return newTree(root, nil, nil, []node{ep}) }

// TestAudit_payload holds the payload rules. Numbers in brackets are public
// reports of the situation.
func TestAudit_payload(t *testing.T) {
	n := node{512, 512, 512}
	for name, c := range map[string]struct {
		tree   *tree
		device Address
		rules  map[string]Severity
		absent []string
	}{
		"uniform": {pair(n, n), at(1, 0, 0), nil, []string{RuleTransmitExceeds, RuleCompletionExceeds, RulePeerUnsafe, RulePayloadLow}},
		// A port lowered by hand under a drive that stayed at 512.
		"port below device": {newTree(n, &n, []node{{512, 128, 512}}, []node{n}), at(3, 0, 0), map[string]Severity{RuleTransmitExceeds: Critical, RuleCompletionExceeds: Critical, RulePayloadLow: Advice}, nil},
		// Root port at its power-on default although both could do 256.
		"root default": {pair(node{256, 128, 512}, node{256, 128, 512}), at(1, 0, 0), map[string]Severity{RulePayloadLow: Advice}, []string{RuleTransmitExceeds, RuleCompletionExceeds}},
		// Default mode does not walk switches: 128 behind 256.
		"128 behind 256": {newTree(node{256, 256, 512}, &node{256, 256, 512}, []node{{256, 256, 512}}, []node{{128, 128, 512}}), at(3, 0, 0), map[string]Severity{RuleCompletionExceeds: Critical}, []string{RuleTransmitExceeds, RulePeerUnsafe}},
		// The same with the reads kept small, as pcie_bus_perf does.
		"128 behind 256, reads of 128": {newTree(node{256, 256, 512}, &node{256, 256, 512}, []node{{256, 256, 512}}, []node{{128, 128, 128}}), at(3, 0, 0), map[string]Severity{RulePeerUnsafe: Note}, []string{RuleCompletionExceeds, RuleTransmitExceeds}},
		"sibling blocks":               {newTree(n, &n, []node{n, n}, []node{{512, 256, 512}, {256, 256, 512}}), at(3, 0, 0), map[string]Severity{RulePayloadLow: Note}, nil},
	} {
		found := audit(t, c.tree, c.device)
		for rule, severity := range c.rules {
			if len(found[rule]) == 0 || found[rule][0].Severity != severity {
				t.Errorf("%s: no %s finding of %s: %+v", name, severity, rule, found)
			}
		}
		for _, rule := range c.absent {
			if len(found[rule]) > 0 {
				t.Errorf("%s: %+v", name, found[rule])
			}
		}
	}
	// Small read requests are all that keeps a mixed path safe: no advice to
	// raise them, and no plan that does.
	mixed := newTree(node{256, 256, 512}, &node{256, 256, 512}, []node{{256, 256, 512}}, []node{{128, 128, 128}})
	if f := audit(t, mixed, at(3, 0, 0))[RuleReadRequest]; len(f) != 1 || f[0].Severity != Note || !strings.HasPrefix(f[0].Expected, "at most 128 bytes") ||
		strings.Contains(strings.Join(f[0].Remedy, " "), "--mrrs") {
		t.Errorf("read requests of a mixed path: %+v", f)
	}
	topo, p := mixed.path(t, at(3, 0, 0))
	if plan, err := PlanChange(topo, p, ChangeRequest{MaxReadRequest: 4096}); err == nil {
		t.Errorf("larger read requests on a mixed path: %+v", plan)
	}
	low := audit(t, pair(node{512, 128, 512}, node{512, 128, 512}), at(1, 0, 0))[RulePayloadLow][0]
	if math.Abs(low.LossBytesPerSecond-0.886e9) > 0.01e9 || !strings.Contains(low.Why, "6.61 GB/s") || !strings.Contains(low.Why, "7.49 GB/s") ||
		!slices.Contains(low.Evidence, "firmware left the root port at its reset default of 128 bytes; a BIOS update may change that, either way") {
		t.Errorf("%+v", low)
	}
	// A receiver whose limit is fixed at what it supports takes more than it sends.
	tr := pair(node{512, 128, 512}, n)
	tr.configs[at(0, 3, 0)].put32(expAt+4, 2|1<<5|1<<17)
	if found := audit(t, tr, at(1, 0, 0)); len(found[RuleTransmitExceeds]) > 0 {
		t.Errorf("Rx_MPS_Fixed: %+v", found)
	}
}

func TestAudit_links(t *testing.T) {
	n := node{512, 512, 512}
	for name, c := range map[string]struct {
		device, port [4]uint8 // max speed, max width, speed, width
		spoil        func(*tree)
		rule         string
		severity     Severity
		text         string
	}{
		"ok": {[4]uint8{4, 4, 4, 4}, [4]uint8{4, 4, 4, 4}, nil, "", "", ""},
		// A hot-plugged drive stuck at 2.5 GT/s because the port aims there.
		"stuck at 2.5": {[4]uint8{5, 4, 1, 4}, [4]uint8{5, 4, 1, 4}, func(tr *tree) { tr.configs[at(0, 3, 0)].put16(expAt+0x30, 1) }, RuleLinkDegraded, Critical, "aim at 2.5 GT/s"},
		// A Gen4 drive in a Gen3 slot is no fault.
		"gen3 slot": {[4]uint8{4, 4, 3, 4}, [4]uint8{3, 4, 3, 4}, nil, RuleLinkSlot, Note, "not a fault"},
		// A board that wires two lanes only.
		"two lanes wired": {[4]uint8{4, 4, 4, 2}, [4]uint8{4, 2, 4, 2}, nil, RuleLinkSlot, Note, "not a fault"},
		"lost lanes":      {[4]uint8{4, 4, 4, 1}, [4]uint8{4, 16, 4, 1}, nil, RuleLinkDegraded, Critical, "instead of"},
		// A link that is down, or a device that does not answer: no ceiling, no verdict.
		"down": {[4]uint8{4, 4, 0, 0}, [4]uint8{4, 4, 0, 0}, nil, RuleLinkUnknown, Warning, "the link may be down"},
		"idle": {[4]uint8{4, 4, 1, 4}, [4]uint8{4, 4, 1, 4}, func(tr *tree) { tr.configs[at(0, 3, 0)].put16(expAt+0x12, 1|4<<4|1<<15) }, RuleLinkIdle, Note, ""},
	} {
		tr := pair(n, n)
		set := func(a Address, l [4]uint8) { tr.configs[a].link(Speed(l[0]), Width(l[1]), Speed(l[2]), Width(l[3])) }
		set(at(1, 0, 0), c.device)
		set(at(0, 3, 0), c.port)
		if c.spoil != nil {
			c.spoil(tr)
		}
		found := audit(t, tr, at(1, 0, 0))
		for _, rule := range []string{RuleLinkDegraded, RuleLinkSlot, RuleLinkIdle, RuleLinkUnknown} {
			if (len(found[rule]) > 0) != (rule == c.rule) {
				t.Errorf("%s: %s: %+v", name, rule, found[rule])
			}
		}
		if c.rule != "" && len(found[c.rule]) > 0 {
			f := found[c.rule][0]
			if text := f.Why + strings.Join(f.Evidence, " "); f.Severity != c.severity || !strings.Contains(text, c.text) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	// Both ends' capabilities are told, so that nobody takes a slot for a fault.
	tr := pair(n, n)
	tr.configs[at(1, 0, 0)].link(Gen4, 4, Gen1, 1)
	tr.configs[at(0, 3, 0)].link(Gen4, 16, Gen1, 1)
	if f := audit(t, tr, at(1, 0, 0))[RuleLinkDegraded]; len(f) != 1 || !strings.Contains(strings.Join(f[0].Evidence, " "), "0000:01:00.0 can do 16 GT/s x4, the port 0000:00:03.0 16 GT/s x16") {
		t.Errorf("both ends: %+v", f)
	}
	// The switch's own way up is judged too: 16 GT/s lost there.
	tr = newTree(n, &n, []node{n, n}, []node{n, n})
	tr.configs[at(1, 0, 0)].link(Gen4, 4, Gen3, 4)
	tr.configs[at(0, 3, 0)].link(Gen4, 4, Gen3, 4)
	found := audit(t, tr, at(3, 0, 0))
	if len(found[RuleLinkDegraded]) != 1 || found[RuleLinkDegraded][0].At != at(1, 0, 0) {
		t.Errorf("switch uplink: %+v", found[RuleLinkDegraded])
	}
	if shared := found[RuleSharedUplink]; len(shared) != 1 || !strings.Contains(shared[0].Why, "2 drives") {
		t.Errorf("shared: %+v", shared)
	}
	_, p := tr.path(t, at(3, 0, 0))
	in, narrowest, ok := p.CeilingInput()
	if !ok || in.Speed != Gen3 || narrowest.Address != at(1, 0, 0) {
		t.Errorf("the ceiling is taken from %+v %v", in, ok)
	}
}

// TestJudgeLink_kernelsNumber: "31.504 Gb/s available PCIe bandwidth" is the
// rate after encoding; skip ordered sets take a little more.
func TestJudgeLink_kernelsNumber(t *testing.T) {
	for _, c := range []struct {
		s    Speed
		w    Width
		gbit float64
	}{{Gen3, 4, 31.504}, {Gen4, 4, 63.012}, {Gen3, 2, 15.752}, {Gen1, 4, 8}} {
		if got := RawRate(c.s, c.w) * 8 / 1e9; got > c.gbit || got < c.gbit*0.997 {
			t.Errorf("%s %s: %.3f Gb/s, the kernel says %.3f", c.s, c.w, got, c.gbit)
		}
	}
}

func TestAudit_requestsAndTags(t *testing.T) {
	n := node{512, 512, 512}
	set := func(ep node, spoil func(*config)) map[string][]Finding {
		tr := pair(n, ep)
		if spoil != nil {
			spoil(tr.configs[at(1, 0, 0)])
		}
		return audit(t, tr, at(1, 0, 0))
	}
	if f := set(n, nil)[RuleReadRequest]; len(f) != 1 || f[0].Severity != Note || f[0].LossBytesPerSecond < 0.1e9 {
		t.Errorf("requests of 512: %+v", f)
	}
	if f := set(node{512, 512, 128}, nil)[RuleReadRequest]; len(f) != 1 || f[0].Severity != Advice {
		t.Errorf("requests of 128: %+v", f)
	}
	if f := set(node{512, 512, 4096}, nil)[RuleReadRequest]; len(f) != 0 {
		t.Errorf("requests of 4096: %+v", f)
	}
	// 32 tags of 128 bytes at 1 us: 4.1 GB/s.
	noTags := func(c *config) { c.put16(expAt+8, c16(c, expAt+8)&^(1<<8)) }
	f := set(node{512, 512, 128}, noTags)[RuleExtendedTags]
	if len(f) != 1 || f[0].Severity != Advice || !strings.Contains(f[0].Why, "4.10 GB/s") {
		t.Errorf("no extended tags: %+v", f)
	}
	if f := set(node{512, 512, 4096}, noTags)[RuleExtendedTags]; len(f) != 0 {
		t.Errorf("no extended tags, large requests: %+v", f)
	}
	// The opposite rule of one platform.
	tr := pair(n, node{512, 512, 512})
	tr.configs[at(0, 3, 0)].put32(0, 0x0db08086)
	tr.configs[at(0, 3, 0)].link(Gen5, 2, Gen4, 2)
	if f := audit(t, tr, at(1, 0, 0))[RuleReadRequest]; len(f) != 1 || f[0].Severity != Warning || !strings.Contains(f[0].Expected, "128") {
		t.Errorf("Xeon 6: %+v", f)
	}
}

func c16(c *config, at int) uint16 { return uint16(c.b[at]) | uint16(c.b[at+1])<<8 }

func TestAudit_powerTimeoutErrors(t *testing.T) {
	n := node{512, 512, 512}
	tr := pair(n, n)
	ep := tr.configs[at(1, 0, 0)]
	ep.put16(expAt+0x10, 2)
	ep.put16(expAt+0x28, 1) // 50 to 100 us
	ep.extended(0x100, extAER, 2, 0x200).extended(0x200, extL1SS, 1, 0x300).extended(0x300, extDPC, 1, 0)
	ep.put32(0x104, uint32(MalformedTLP))
	ep.put32(0x11c, 0x60000100) // MWr64 of 1024 bytes
	ep.put32(0x120, 0x010000ff)
	ep.put32(0x204, 0x1f)
	ep.put32(0x208, 0x05)
	ep.put16(0x308, 1)
	found := audit(t, tr, at(1, 0, 0))
	if f := found[RuleASPM]; len(f) != 1 || f[0].Found != "L1, PCI-PM_L1.2, ASPM_L1.2" {
		t.Errorf("ASPM: %+v", f)
	}
	if f := found[RuleTimeout]; len(f) != 1 || f[0].Found != "50us to 100us" || f[0].Severity != Warning {
		t.Errorf("timeout: %+v", f)
	}
	if f := found[RuleErrors]; len(f) != 1 || f[0].Severity != Critical || !strings.Contains(strings.Join(f[0].Evidence, " "), "1024 bytes of data, requester 01:00.0") {
		t.Errorf("errors: %+v", f)
	}
	if f := found[RuleContainment]; len(f) != 1 || f[0].Severity != Critical {
		t.Errorf("containment: %+v", f)
	}
	ep.put16(expAt+0x28, 3) // reserved
	if f := audit(t, tr, at(1, 0, 0))[RuleTimeout]; len(f) != 1 || !strings.Contains(f[0].Found, "reserved") {
		t.Errorf("reserved timeout: %+v", f)
	}
}

// TestDrift: after an error recovery the device came back with the sizes from
// boot while the ports kept the new ones.
func TestDrift(t *testing.T) {
	n := node{512, 512, 4096}
	tr := pair(n, n)
	_, p := tr.path(t, at(1, 0, 0))
	b, ok := p.Baseline()
	if !ok || len(p.Drift(b)) != 0 {
		t.Fatalf("%v %+v", ok, p.Drift(b))
	}
	tr.configs[at(1, 0, 0)].put16(expAt+8, 1<<5|2<<12|1<<4|1<<8|1<<11)
	topo, p := tr.path(t, at(1, 0, 0))
	findings := Audit(topo, p, AuditOptions{Baseline: &b})
	var got []string
	for _, f := range findings {
		if f.Rule == RuleDrift || f.Rule == RuleCompletionExceeds {
			got = append(got, f.Found)
		}
	}
	want := []string{"256 bytes, read requests of 512", "payload 256", "read request 512"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// What is written to a file is what was recorded.
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var read Baseline
	if err := json.Unmarshal(text, &read); err != nil || !slices.Equal(read.Hops, b.Hops) || read.Device != b.Device {
		t.Errorf("%s became %+v: %v", text, read, err)
	}
	// Another path altogether.
	b.Hops[1].Address = at(0, 9, 0)
	if d := p.Drift(b); len(d) != 4 {
		t.Errorf("%+v", d)
	}
}

// TestAudit_policy: a hazard says what the kernel's policy does about it.
func TestAudit_policy(t *testing.T) {
	tree := newTree(node{256, 256, 512}, &node{256, 256, 512}, []node{{256, 256, 512}}, []node{{128, 128, 512}})
	topo, p := tree.path(t, at(3, 0, 0))
	for mode, want := range map[string]string{
		"": "does not touch what is below a switch", "pcie_bus_tune_off": "leaves payload sizes", "pcie_bus_safe": "smallest supported payload",
		"pcie_bus_perf": "packets from peers are not", "pcie_bus_peer2peer": "128 bytes everywhere", "pcie_bus_later": "pci=pcie_bus_later",
	} {
		found := Audit(topo, p, AuditOptions{Platform: &Platform{BusMode: mode}})
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Rule == RuleCompletionExceeds })
		if i < 0 || !strings.Contains(strings.Join(found[i].Evidence, " "), want) {
			t.Errorf("%q: %+v", mode, found)
		}
	}
}

// SYS-13: the payload in force is the smallest setting of the whole path, whatever
// the drive itself has and supports.
func TestCase_SYS13_payloadOfThePath(t *testing.T) {
	_, p := pair(node{512, 128, 512}, node{512, 512, 512}).path(t, at(1, 0, 0))
	if s, ok := p.Payloads(); !ok || s.InForce != 128 || s.PathCapability != 512 {
		t.Errorf("%v %+v", ok, s)
	}
	_, p = pair(node{256, 256, 512}, node{512, 512, 512}).path(t, at(1, 0, 0))
	if s, ok := p.Payloads(); !ok || s.InForce != 256 || s.PathCapability != 256 {
		t.Errorf("%v %+v", ok, s)
	}
}
