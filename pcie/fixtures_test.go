package pcie

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixtureDirs are the dumps of this project and, where they are, those of
// others. The JSON beside each dump was made from lspci's own text, so it is a
// witness that does not share code with the decoder.
func fixtureDirs(t *testing.T) []string {
	dirs := []string{"testdata"}
	if root := os.Getenv("NVOP_FIXTURES"); root != "" {
		return append(dirs, filepath.Join(root, "pcie"))
	}
	t.Log("NVOP_FIXTURES is not set: only the dumps in testdata are checked, those of other machines are not")
	return dirs
}

// eachDump runs a test for every dump.
func eachDump(t *testing.T, test func(t *testing.T, base string, topo *Topology)) {
	t.Helper()
	count := 0
	for _, dir := range fixtureDirs(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.hex"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			count++
			t.Run(filepath.Base(filepath.Dir(file))+"/"+strings.TrimSuffix(filepath.Base(file), ".hex"), func(t *testing.T) {
				f, err := os.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				topo, problems, err := ReadDump(f)
				if err != nil || len(problems) > 0 {
					t.Fatal(err, problems)
				}
				test(t, strings.TrimSuffix(file, ".hex"), topo)
			})
		}
	}
	if count == 0 {
		t.Fatal("no dumps found")
	}
}

func readJSON(t *testing.T, path string, into any) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return false
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(path, err)
	}
	return true
}

type object = map[string]any

// TestDumps_decodeAsLspci compares every field that lspci prints.
func TestDumps_decodeAsLspci(t *testing.T) {
	eachDump(t, func(t *testing.T, base string, topo *Topology) {
		var want []object
		if !readJSON(t, base+".expected.json", &want) {
			t.Skip("no expected values beside the dump")
		}
		if len(want) != len(topo.Functions()) {
			t.Errorf("%d functions, lspci shows %d", len(topo.Functions()), len(want))
		}
		for _, w := range want {
			a, err := ParseAddress(w["bdf"].(string))
			if err != nil {
				t.Fatal(err)
			}
			f, ok := topo.Lookup(a)
			if !ok {
				t.Errorf("%s is missing", a)
				continue
			}
			if diff := cmp.Diff(w, asLspci(t, f)); diff != "" {
				t.Errorf("%s (lspci -, ours +):\n%s", a, diff)
			}
		}
	})
}

// asLspci says of a function what lspci -vvv would, by the same rules of
// leaving out.
func asLspci(t *testing.T, f *Function) object {
	o := object{"bdf": f.Address.String(), "class": fmt.Sprintf("%04x", f.BaseClass()), "access_denied": f.HeaderOnly}
	if b := f.Bridge; b != nil {
		o["bridge"] = object{"primary": hex2(b.Primary), "secondary": hex2(b.Secondary), "subordinate": hex2(b.Subordinate)}
	}
	if f.Express != nil {
		o["pcie"] = expressAsLspci(f)
	}
	if a := f.AER; a != nil {
		o["aer"] = object{
			"offset": offset(a.Offset), "ver": float64(a.Version), "first_error": fmt.Sprintf("%02x", a.FirstError),
			"ue_status": sorted(a.Uncorrectable.Names()), "ue_mask": sorted(a.UncorrectableMask.Names()),
			"ue_severity": sorted(a.UncorrectableFatal.Names()), "ce_status": sorted(a.Correctable.Names()),
			"ce_mask":    sorted(a.CorrectableMask.Names()),
			"header_log": fmt.Sprintf("%08x %08x %08x %08x", a.HeaderLog[0], a.HeaderLog[1], a.HeaderLog[2], a.HeaderLog[3]),
		}
	}
	if a := f.ACS; a != nil {
		names := [32]string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}
		o["acs"] = object{"offset": offset(a.Offset), "cap": sorted(bitNames(uint32(a.Capability), &names)), "ctl": sorted(bitNames(uint32(a.Control), &names))}
	}
	if l := f.LTR; l != nil {
		o["ltr"] = object{"snoop": fmt.Sprintf("%dns", l.SnoopNS), "nosnoop": fmt.Sprintf("%dns", l.NoSnoopNS)}
	}
	if s := f.L1SS; s != nil {
		capable := s.Supported.Names()
		if s.Capable {
			capable = append(capable, "L1_PM_Substates")
		}
		l := object{"offset": offset(s.Offset), "cap": sorted(capable), "ctl1": sorted(s.Enabled.Names())}
		if s.Supported&4 != 0 {
			l["ltr_threshold"] = fmt.Sprintf("%dns", s.ThresholdNS)
		}
		o["l1ss"] = l
	}
	if d := f.Device3; d != nil {
		o["dev3"] = object{
			"offset": offset(d.Offset), "tag14_completer": d.Tag14Completer, "tag14_requester": d.Tag14Requester,
			"tag14_enabled": d.Tag14, "initial_width": fmt.Sprintf("x%d", 1<<d.InitialWidthCode),
		}
	}
	return o
}

func hex2(n uint8) string       { return fmt.Sprintf("%02x", n) }
func offset(at uint16) string   { return fmt.Sprintf("0x%x", at) }
func bytesOf(p Payload) float64 { return float64(p) }
func sorted(list []string) any {
	slices.Sort(list)
	out := []any{}
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

func lspciType(x *Express) string {
	slot := map[bool]string{true: " (Slot+)", false: " (Slot-)"}[x.Slot]
	return map[PortType]string{
		Endpoint: "Endpoint", LegacyEndpoint: "Legacy Endpoint", RootPort: "Root Port" + slot, UpstreamPort: "Upstream Port",
		DownstreamPort: "Downstream Port" + slot, ToPCIBridge: "PCI-Express to PCI/PCI-X Bridge",
		FromPCIBridge:      "PCI/PCI-X to PCI-Express Bridge" + slot,
		IntegratedEndpoint: "Root Complex Integrated Endpoint", EventCollector: "Root Complex Event Collector",
	}[x.Type]
}

func expressAsLspci(f *Function) object {
	x := f.Express
	o := object{
		"cap_offset": offset(x.Offset), "version": float64(x.Version), "type": lspciType(x), "flit_supported": x.FlitCapable,
		"mps_supported": bytesOf(x.MaxPayloadSupported), "exttag_supported": x.ExtendedTagSupported, "flr": nil, "rbe": x.RoleBasedErrors,
		"mps": bytesOf(x.MaxPayload), "mrrs": bytesOf(x.MaxReadRequest), "relaxed_ordering": x.RelaxedOrdering,
		"exttag_enabled": x.ExtendedTag, "no_snoop": x.NoSnoop, "rep_corr": x.ReportCorrectable, "rep_nonfatal": x.ReportNonFatal,
		"rep_fatal": x.ReportFatal, "rep_unsup": x.ReportUnsupported, "sta_corr": x.CorrectableDetected,
		"sta_nonfatal": x.NonFatalDetected, "sta_fatal": x.FatalDetected, "sta_unsup": x.UnsupportedDetected,
		"sta_transpend": x.TransactionsPending, "sta_auxpwr": x.AuxPower,
	}
	if x.Type.IsEndpoint() || x.Type == IntegratedEndpoint {
		o["flr"] = x.FunctionLevelReset
	}
	if x.Link != nil {
		maps.Copy(o, linkAsLspci(x))
	}
	if s := x.Second; s != nil {
		port := x.Type == RootPort || x.Type == DownstreamPort
		ari := func(b bool) any {
			if !port {
				return nil
			}
			return b
		}
		o["devcap2"] = object{
			"cto_ranges": rangesText(s.TimeoutRanges), "cto_disable_supported": s.TimeoutDisableSupported, "ltr": s.LTRSupported,
			"tag10_completer": s.Tag10Completer, "tag10_requester": s.Tag10Requester, "arifwd": ari(s.ARISupported),
		}
		o["devctl2"] = object{
			"cto": timeoutText(s), "cto_disabled": s.TimeoutDisabled, "ltr": s.LTR, "tag10_enabled": s.Tag10,
			"ido_req": s.IDORequest, "arifwd": ari(s.ARI),
		}
		if x.Link == nil {
			return o
		}
		o["lnksta2_eq_complete"], o["lnksta2_flit"], o["lnksta2_retimer"] = s.EqualizationDone, s.FlitActive, s.Retimer
		if !x.Type.IsEndpoint() || f.Address.Device == 0 && f.Address.Function == 0 {
			o["lnkctl2_target"] = speedText(max(s.TargetSpeed, Gen1))
			o["lnkctl2_speed_disable"] = s.AutoSpeedDisabled
			if s.LnkCap2 != 0 {
				o["lnkcap2_speeds"] = vectorText(s.SpeedVector)
			}
		}
	}
	return o
}

func linkAsLspci(x *Express) object {
	l := x.Link
	port := x.Type == RootPort || x.Type == DownstreamPort || x.Type == FromPCIBridge
	note := func(status, capability int) any {
		switch {
		case status > capability:
			return "overdriven"
		case status == capability || port:
			return nil
		}
		return "downgraded"
	}
	capSpeed := Speed(l.LnkCap & 0xf) // lspci does not look at the vector here
	var rcb any
	if x.Type == RootPort || x.Type.IsEndpoint() || x.Type == ToPCIBridge {
		rcb = fmt.Sprint(l.ReadBoundaryBytes)
	}
	supported := map[ASPM]string{0: "not supported", 1: "L0s", 2: "L1", 3: "L0s L1"}[l.ASPMSupported]
	enabled := map[ASPM]string{0: "Disabled", 1: "L0s Enabled", 2: "L1 Enabled", 3: "L0s L1 Enabled"}[l.ASPM]
	return object{
		"link_cap": object{
			"port": float64(l.Port), "speed": speedText(capSpeed), "width": l.MaxWidth.String(), "aspm": supported,
			"dll_active_reporting": l.DLLActiveReporting, "bw_notification": l.BandwidthNotify,
		},
		"link_sta": object{
			"speed": speedText(l.Speed), "speed_note": note(int(l.Speed), int(capSpeed)), "width": l.Width.String(),
			"width_note": note(int(l.Width), int(l.MaxWidth)), "dll_active": l.DLLActive, "training": l.Training,
		},
		"link_ctl": object{
			"aspm": enabled, "rcb": rcb, "disabled": l.Disabled, "commclk": l.CommonClock,
			"hw_auto_width_disable": l.AutoWidthDisabled, "flit_disable": l.FlitDisabled,
		},
	}
}

func speedText(s Speed) string {
	if !s.Known() {
		return "unknown"
	}
	return strings.ReplaceAll(s.String(), " ", "")
}

func vectorText(v uint8) string {
	top := Speed(0)
	for s := Gen1; s <= Gen6; s++ {
		if v&(1<<(s-1)) != 0 {
			top = s
		}
	}
	switch top {
	case 0:
		return "Unknown"
	case Gen1:
		return "2.5GT/s"
	}
	return "2.5-" + speedText(top)
}

func rangesText(r uint8) string {
	text := ""
	for i, name := range []string{"A", "B", "C", "D"} {
		if r&(1<<i) != 0 {
			text += name
		}
	}
	if text == "" {
		return "Not Supported"
	}
	return "Range " + text
}

// hazard and pathWant are the witness's words for a path.
type hazard struct {
	Kind string `json:"kind"`
	At   string `json:"at"`
}

type pathWant struct {
	Endpoint    string           `json:"endpoint"`
	Chain       []string         `json:"chain"`
	Complete    bool             `json:"complete_to_root_port"`
	MPSChain    []int            `json:"mps_chain"`
	CapChain    []int            `json:"cap_chain"`
	MRRS        int              `json:"mrrs"`
	PathCapMin  int              `json:"path_cap_min"`
	LimitingCap string           `json:"limiting_cap"`
	EPMPS       int              `json:"ep_mps"`
	CanRaiseTo  *int             `json:"can_raise_to"`
	SafeRaiseTo *int             `json:"safe_raise_to"`
	SubtreeMin  int              `json:"subtree_cap_min"`
	Blocking    []string         `json:"siblings_blocking_path_cap"`
	Hazards     []hazard         `json:"hazards"`
	Links       []map[string]any `json:"links"`
}

// TestDumps_paths compares the verdict on every path, and that there are no
// other paths.
func TestDumps_paths(t *testing.T) {
	eachDump(t, func(t *testing.T, base string, topo *Topology) {
		var want, got []pathWant
		if !readJSON(t, base+".paths.json", &want) && !readJSON(t, base+".expected.json", &[]object{}) {
			t.Skip("no expected values beside the dump")
		}
		for _, f := range topo.Endpoints() {
			p, err := topo.Path(f.Address)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Hops) > 1 {
				got = append(got, describePath(t, p))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(witness -, ours +):\n%s", diff)
		}
	})
}

func describePath(t *testing.T, p Path) pathWant {
	t.Helper()
	s, ok := p.Payloads()
	if !ok {
		t.Fatalf("%s: not readable", p.Endpoint().Address)
	}
	w := pathWant{
		Endpoint: p.Endpoint().Address.String(), Complete: p.Complete, MRRS: int(p.Endpoint().Express.MaxReadRequest),
		PathCapMin: int(s.PathCapability), LimitingCap: s.LimitedBy.String(), EPMPS: int(p.Endpoint().Express.MaxPayload),
		SubtreeMin: int(s.TreeCapability), Blocking: []string{}, Hazards: []hazard{},
	}
	pointer := func(p Payload) *int {
		if p == 0 {
			return nil
		}
		n := int(p)
		return &n
	}
	w.CanRaiseTo, w.SafeRaiseTo = pointer(s.CanRaiseTo), pointer(s.SafeRaiseTo)
	for _, a := range s.Blocking {
		w.Blocking = append(w.Blocking, a.String())
	}
	for _, f := range p.Hops {
		w.Chain = append(w.Chain, f.Address.String())
		w.MPSChain, w.CapChain = append(w.MPSChain, int(f.Express.MaxPayload)), append(w.CapChain, int(f.Express.MaxPayloadSupported))
		w.Links = append(w.Links, map[string]any{
			"at": f.Address.String(), "sta": speedText(f.Express.Link.Speed), "w": f.Express.Link.Width.String(),
			"cap": speedText(Speed(f.Express.Link.LnkCap & 0xf)), "cw": f.Express.Link.MaxWidth.String(),
		})
	}
	for _, finding := range p.payloadHazards(nil) {
		kind := map[string]string{RuleTransmitExceeds: "EP_TX_EXCEEDS_PORT_RX", RuleCompletionExceeds: "COMPLETION_EXCEEDS_RX"}[finding.Rule]
		if kind != "" {
			w.Hazards = append(w.Hazards, hazard{kind, finding.At.String()})
		}
	}
	return w
}
