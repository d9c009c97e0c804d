package audit_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nvop/namespace"
	"nvop/namespace/audit"
	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/pcie"
)

// now is when the drives of these tests were read.
func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// complete is a drive that has everything a spec can name.
func complete() audit.Facts {
	formats := []namespace.LBAFormat{
		{Index: 0, DataBytes: 512, RelativePerformance: 2}, {Index: 1, DataBytes: 4096},
		{Index: 2, DataBytes: 512, MetadataBytes: 8}, {Index: 3, DataBytes: 4096, MetadataBytes: 8},
	}
	const blocks = 1_562_805_846 / 2 * 2
	n := namespace.Namespace{
		NSID: 1, SizeBlocks: blocks, CapacityBlocks: blocks, Format: formats[3], FLBAS: 3, Protection: 1, NMIC: 1,
		AllocatedBytes: blocks * 4096, NGUID: "01000000000000008c15530000000001", Controllers: []uint16{1, 2},
		DeallocatedErrors: true,
	}
	temperature := 40
	inv := namespace.Inventory{
		Schema: namespace.InventorySchema, TakenAt: now(), Address: "/dev/nvme0", Transport: "pcie",
		Identity: nvmeioctl.Identity{SubsystemNQN: "nqn.2014-08.org.example:1", Serial: "S1", Model: "MODEL 1", CNTLID: 1},
		Controller: namespace.Controller{
			FirmwareRevision: "FW1", NamespaceManagement: true, FormatNVM: true, CryptographicErase: true, MultiController: true,
			MaxNSID: 16, MaxNamespaces: 16, TotalBytes: 7_681_501_126_656, UnallocatedBytes: 7_681_501_126_656 - blocks*4096,
			VendorID: 0x1C5F, SaveFeatures: true, VolatileWriteCache: true, APST: true, HostThermalManagement: true, Timestamp: true,
			DeallocatedErrors: true, SubsystemControllers: []uint16{1, 2, 3},
			ProtectionCapabilities: 0x1F, PowerStates: make([]namespace.PowerStateFact, 32),
		},
		Formats: formats, Namespaces: []namespace.Namespace{n},
		Health: &namespace.Health{SparePercent: 90, SpareThresholdPercent: 10, SpareReported: true, UsedPercent: 5, TemperatureCelsius: &temperature,
			MediaErrors: nvmespec.U128(3), UnsafeShutdowns: nvmespec.U128(7)},
		FirmwareState: &firmware.State{
			Supported: true, Model: "MODEL 1", Serial: "S1", Running: "FW1", Active: 1, ActivatesWithoutReset: true,
			Slots: []firmware.Slot{{Number: 1, Revision: "FW1", Active: true}, {Number: 2, Revision: "FW2"}, {Number: 3}},
		},
	}
	for _, f := range namespace.Settings() {
		key := namespace.FeatureKey{Feature: f.Feature, Selector: f.Selector}
		if f.PerNamespace {
			key.NSID = 1
		}
		if _, ok := inv.Feature(key); ok {
			continue
		}
		v := namespace.FeatureValue{Dword: 0x01020102}
		switch f.Feature {
		case nvmespec.FeatureAPST:
			a := nvmespec.APST{Enabled: true}
			a.Transitions[0] = nvmespec.APSTTransition{Target: 3, IdleMilliseconds: 100}
			v = namespace.FeatureValue{Dword: a.Dword(), Data: a.Append(nil)}
		case nvmespec.FeatureTimestamp:
			at := now().Add(-30 * time.Second)
			v = namespace.FeatureValue{Data: nvmespec.Timestamp{Milliseconds: uint64(at.UnixMilli()), Origin: 1}.Append(nil)}
		case nvmespec.FeatureTemperatureThreshold:
			v.Dword = 350 | f.Selector
		}
		saved := v
		inv.Features = append(inv.Features, namespace.FeatureReading{FeatureKey: key, Name: f.Feature.String(), Current: &v, Saved: &saved})
	}
	return audit.Facts{Inventory: inv, Path: path()}
}

// path is a drive right below its root port, gen4 x4, payloads of 256, reads of 512.
func path() *pcie.Path {
	link := func() *pcie.Link { return &pcie.Link{Speed: pcie.Gen4, MaxSpeed: pcie.Gen4, Width: 4, MaxWidth: 4} }
	device := &pcie.Function{Address: pcie.Address{Bus: 1}, Express: &pcie.Express{
		Type: pcie.Endpoint, MaxPayload: 256, MaxPayloadSupported: 512, MaxReadRequest: 512, Link: link()}}
	port := &pcie.Function{Express: &pcie.Express{Type: pcie.RootPort, MaxPayload: 256, MaxPayloadSupported: 256, Link: link()}}
	return &pcie.Path{Hops: []*pcie.Function{device, port}, Complete: true}
}

// specOf is the spec a drive has, as text; health limits that WriteSpec leaves out
// are added, so that every field is there.
func specOf(f audit.Facts) string {
	text := namespace.WriteSpec(f.Inventory, audit.PCIeOf(f.Path))
	return text + "  unsafe_shutdowns_max: 7\n  temperature_celsius_max: 40\n"
}

func parse(t rapid.TB, text string) namespace.Spec {
	t.Helper()
	s, err := namespace.ParseSpec("fleet.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

func TestJudge_whatADriveHasHasNoFindings(t *testing.T) {
	facts := complete()
	s := parse(t, specOf(facts))
	d := audit.Judge(facts, s)
	if len(d.Findings) != 0 {
		t.Fatalf("%+v\n%s", d.Findings, specOf(facts))
	}
	p, err := namespace.PlanSpec(facts.Inventory, s, namespace.Options{})
	if err != nil || !p.AlreadySo() {
		t.Fatalf("%v\n%s", err, p.Text())
	}
	if len(s.Settings) != len(namespace.Settings()) {
		t.Errorf("%d of %d settings are in the spec", len(s.Settings), len(namespace.Settings()))
	}
	for _, f := range namespace.Settings() {
		if !slices.Contains(d.Checked, f.Path) {
			t.Errorf("%s was not judged", f.Path)
		}
	}
}

// TestSettings_changingAnyOne: whatever setting is changed to whatever other
// value, the audit names that field alone, and the plan has that step alone, whose
// dword has the value in its place and every other bit as it was.
func TestSettings_changingAnyOne(t *testing.T) {
	facts := complete()
	base := parse(t, specOf(facts))
	fields := namespace.Settings()
	for _, f := range fields {
		changeOne(t, facts, base, f, func(low, _ int64) int64 { return low })
		changeOne(t, facts, base, f, func(_, high int64) int64 { return high })
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(fields).Draw(t, "field")
		changeOne(t, facts, base, f, func(low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, "value") })
	})
}

// changeOne changes one field to a value that choose picks from a range.
func changeOne(t rapid.TB, facts audit.Facts, s namespace.Spec, f namespace.SettingField, choose func(low, high int64) int64) {
	t.Helper()
	i := slices.IndexFunc(s.Settings, func(w namespace.Setting) bool { return w.Path == f.Path })
	want := other(f, s.Settings[i], choose)
	if want == s.Settings[i] {
		return
	}
	s.Settings = slices.Clone(s.Settings)
	s.Settings[i] = want
	oneFinding(t, facts, s, f.Path, audit.Drift)
	p := planned(t, facts, s)
	if f.Fixed != "" {
		if len(p.Steps) != 0 {
			t.Fatalf("%s cannot be set: %s", f.Path, p.Text())
		}
		return
	}
	if len(p.Steps) != 1 || p.Steps[0].Kind != namespace.KindFeature || !strings.Contains(p.Steps[0].Title, f.Group()) ||
		!strings.Contains(p.Steps[0].Title, f.Name()) {
		t.Fatalf("%s: %s", f.Path, p.Text())
	}
	settled(t, f, want, facts.Inventory, p.Steps[0])
}

// other is another value of a field.
func other(f namespace.SettingField, was namespace.Setting, choose func(low, high int64) int64) namespace.Setting {
	next := was
	switch f.Form {
	case namespace.FormBoolean:
		next.Number = 1 - was.Number
	case namespace.FormTransitions:
		next.Text = []string{"", "0>4@100ms", "0>3@200ms", "0>3@100ms 1>3@100ms"}[choose(0, 3)]
	case namespace.FormClock:
		next.Number = choose(1, 29)
	default:
		step := int64(1)
		if strings.HasSuffix(f.Path, "retry_ms") || strings.HasSuffix(f.Path, "time_us") {
			step = 100
		}
		next.Number = choose(f.Min/step, f.Max/step) * step
	}
	return next
}

// settled reads the value back from the dwords of the step.
func settled(t rapid.TB, f namespace.SettingField, want namespace.Setting, inv namespace.Inventory, step txn.Step) {
	if f.Form == namespace.FormTransitions || f.Form == namespace.FormClock {
		return
	}
	nsid := uint32(0)
	if f.PerNamespace {
		nsid = 1
	}
	was, _ := inv.Feature(namespace.FeatureKey{Feature: f.Feature, Selector: f.Selector, NSID: nsid})
	cmd := step.Commands[0]
	got, err := f.Read(namespace.FeatureValue{Dword: cmd.CDW11, Data: was.Current.Data}, now())
	if err != nil || !f.Same(want, got) || cmd.CDW10 != uint32(f.Feature) || cmd.NSID != nsid || cmd.Opcode != nvmespec.AdminSetFeatures {
		t.Fatalf("%s wanted %s, sent %s (%v)", f.Path, f.Format(want), f.Format(got), cmd)
	}
	for _, g := range namespace.Settings() {
		if g.Feature != f.Feature || g.Selector != f.Selector || g.Path == f.Path || g.Form == namespace.FormTransitions {
			continue
		}
		before, _ := g.Read(*was.Current, now())
		after, _ := g.Read(namespace.FeatureValue{Dword: cmd.CDW11}, now())
		if before != after {
			t.Fatalf("setting %s changed %s from %s to %s", f.Path, g.Path, g.Format(before), g.Format(after))
		}
	}
}

func oneFinding(t rapid.TB, facts audit.Facts, s namespace.Spec, field string, severity audit.Severity) {
	t.Helper()
	d := audit.Judge(facts, s)
	if len(d.Findings) != 1 || d.Findings[0].Field != field || d.Findings[0].Severity != severity {
		t.Fatalf("%s: %+v", field, d.Findings)
	}
	if f := d.Findings[0]; !strings.HasPrefix(f.Where, "fleet.yaml:") || f.Expected == f.Found || f.Expected == "" || f.Found == "" {
		t.Fatalf("%s: %+v", field, f)
	}
}

func planned(t rapid.TB, facts audit.Facts, s namespace.Spec) namespace.Plan {
	t.Helper()
	p, err := namespace.PlanSpec(facts.Inventory, s, namespace.Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// TestFields_changingAnyOther is the same for every field that is no setting: each
// by its own replacement in the text.
func TestFields_changingAnyOther(t *testing.T) {
	facts := complete()
	base := specOf(facts)
	// The spec names settings of namespaces, which a new one has to be given.
	replace := "detach delete create attach feature.set rescan"
	for _, c := range []struct {
		field, old, new, steps string
		severity               audit.Severity
	}{
		{"namespaces[0].size", "idema: 6400GB", "idema: 3200GB", replace, audit.Drift},
		{"namespaces[0].size", "idema: 6400GB", "size: 6TiB", replace, audit.Drift},
		{"namespaces[0].size", "idema: 6400GB", "max: true", replace, audit.Drift},
		{"namespaces[0].op", "idema: 6400GB", "op: 50", replace, audit.Drift},
		{"namespaces[0]", "idema: 6400GB", "idema: 800GB\n    count: 2", "", audit.Drift}, // the second of two, see below
		{"namespaces[0].lba.data", "data: 4096", "data: 512", "format rescan", audit.Drift},
		{"namespaces[0].lba.metadata", "metadata: 8}\n    protection: {type: 1, first: false}", "metadata: 0}", "format rescan", audit.Drift},
		{"namespaces[0].protection", "{type: 1, first: false}", "{type: 0}", "format rescan", audit.Drift},
		{"namespaces[0].protection", "{type: 1, first: false}", "{type: 1, first: true}", "format rescan", audit.Drift},
		{"namespaces[0].shared", "shared: true\n    controllers: [1, 2]", "shared: false", "-", audit.Drift}, // two controllers: refused
		{"namespaces[0].controllers", "controllers: [1, 2]", "controllers: [1]", "detach", audit.Drift},
		{"namespaces[0].controllers", "controllers: [1, 2]", "controllers: [1, 2, 3]", "attach rescan", audit.Drift},
		{"namespaces[0].controllers", "controllers: [1, 2]", "controllers: []", "detach rescan", audit.Drift},
		{"firmware.revision", `"FW1"`, `"FW2"`, "firmware", audit.Drift},
		{"pcie.payload_bytes", "payload_bytes: 256", "payload_bytes: 512", "", audit.Drift},
		{"pcie.read_request_bytes", "read_request_bytes: 512", "read_request_bytes: 4096", "", audit.Drift},
		{"pcie.speed", "speed: gen4", "speed: gen5", "", audit.Drift},
		{"pcie.width", "width: 4", "width: 8", "", audit.Drift},
		{"health.used_percent_max", "used_percent_max: 100", "used_percent_max: 4", "", audit.Critical},
		{"health.spare_percent_min", "spare_percent_min: 10", "spare_percent_min: 91", "", audit.Critical},
		{"health.media_errors_max", "media_errors_max: 3", "media_errors_max: 2", "", audit.Critical},
		{"health.unsafe_shutdowns_max", "unsafe_shutdowns_max: 7", "unsafe_shutdowns_max: 6", "", audit.Critical},
		{"health.temperature_celsius_max", "temperature_celsius_max: 40", "temperature_celsius_max: 39", "", audit.Critical},
	} {
		text := strings.Replace(base, c.old, c.new, 1)
		if text == base {
			t.Fatalf("%s: %q is not in\n%s", c.field, c.old, base)
		}
		s := parse(t, text)
		if strings.Contains(c.new, "count") {
			if d := audit.Judge(facts, s); len(d.Findings) != 2 || !strings.HasPrefix(d.Findings[0].Field, c.field) || !strings.HasPrefix(d.Findings[1].Field, c.field) {
				t.Errorf("%s: %+v", c.new, d.Findings)
			}
			continue
		}
		oneFinding(t, facts, s, c.field, c.severity)
		p, err := namespace.PlanSpec(facts.Inventory, s, namespace.Options{})
		if got := kinds(p, err); got != c.steps {
			t.Errorf("%s: %q, want %q (%v)", c.new, got, c.steps, err)
		}
	}
}

// kinds are a plan's steps in words, "-" for a refusal.
func kinds(p namespace.Plan, err error) string {
	if err != nil {
		return "-"
	}
	var all []string
	for _, step := range p.Steps {
		kind := strings.TrimPrefix(step.Kind, "namespace.")
		if strings.HasPrefix(kind, "firmware.") {
			kind = "firmware"
		}
		if len(all) == 0 || all[len(all)-1] != kind {
			all = append(all, kind)
		}
	}
	return strings.Join(all, " ")
}

// A manner is no state: alone it changes nothing and is no finding.
func TestFields_mannersAreNoState(t *testing.T) {
	facts := complete()
	for _, more := range []string{"format: {erase: crypto}\n", "replace: all\n", "replace: [1]\n"} {
		s := parse(t, specOf(facts)+more)
		if d := audit.Judge(facts, s); len(d.Findings) != 0 {
			t.Errorf("%s: %+v", more, d.Findings)
		}
		if p := planned(t, facts, s); !p.AlreadySo() {
			t.Errorf("%s: %s", more, p.Text())
		}
	}
}

// What could not be read is never a pass, whatever it is.
func TestJudge_unreadableIsAFinding(t *testing.T) {
	s := parse(t, specOf(complete()))
	for _, c := range []struct {
		name  string
		spoil func(*audit.Facts)
		field []string
	}{
		{"namespace list", func(f *audit.Facts) {
			f.Inventory.Namespaces = nil
			f.Inventory.Problems = []namespace.Problem{{What: namespace.ProblemNamespaceList, Error: "EACCES"}}
		}, []string{"namespaces"}},
		{"namespace", func(f *audit.Facts) {
			f.Inventory.Namespaces = []namespace.Namespace{{NSID: 1, Error: "no"}}
		}, []string{"namespaces"}},
		{"SMART", func(f *audit.Facts) { f.Inventory.Health = nil },
			[]string{"health.used_percent_max", "health.spare_percent_min", "health.media_errors_max", "health.unsafe_shutdowns_max", "health.temperature_celsius_max", "health.critical_warnings"}},
		{"spare of an emulated drive", func(f *audit.Facts) {
			f.Inventory.Health.SparePercent, f.Inventory.Health.SpareThresholdPercent, f.Inventory.Health.SpareReported = 0, 0, false
		}, []string{"health.spare_percent_min"}},
		{"temperature 0 K", func(f *audit.Facts) { f.Inventory.Health.TemperatureCelsius = nil }, []string{"health.temperature_celsius_max"}},
		{"PCIe path", func(f *audit.Facts) { f.Path, f.PathProblem = nil, "no root" },
			[]string{"pcie.payload_bytes", "pcie.read_request_bytes", "pcie.speed", "pcie.width"}},
	} {
		facts := complete()
		c.spoil(&facts)
		var fields []string
		for _, f := range audit.Judge(facts, s).Findings {
			fields = append(fields, f.Field)
			if f.Severity != audit.Unreadable {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		if !slices.Equal(fields, c.field) {
			t.Errorf("%s: %v, want %v", c.name, fields, c.field)
		}
	}
	for i, r := range complete().Inventory.Features {
		for _, spoil := range []func(*namespace.FeatureReading){
			func(r *namespace.FeatureReading) { r.Current, r.Error = nil, "EACCES" },
			func(r *namespace.FeatureReading) { r.Current, r.Unsupported = nil, true },
		} {
			facts := complete()
			spoil(&facts.Inventory.Features[i])
			// A drive without a feature that is to be off has it off.
			off := facts.Inventory.Features[i].Unsupported && slices.ContainsFunc(s.Settings, func(w namespace.Setting) bool {
				f, _ := namespace.LookupSetting(w.Path)
				return f.Feature == r.Feature && f.Form == namespace.FormBoolean && w.Number == 0
			})
			if len(audit.Judge(facts, s).Findings) == 0 && !off {
				t.Errorf("%+v passes", facts.Inventory.Features[i])
			}
		}
	}
}

// A value that is right now and not kept is a finding where the spec wants it kept.
func TestJudge_savedValues(t *testing.T) {
	facts := complete()
	text := strings.Replace(specOf(facts), "  write_cache:\n", "  write_cache:\n    save: true\n", 1)
	s := parse(t, text)
	if d := audit.Judge(facts, s); len(d.Findings) != 0 {
		t.Fatalf("%+v", d.Findings)
	}
	for i, r := range facts.Inventory.Features {
		if r.Feature == nvmespec.FeatureWriteCache {
			facts.Inventory.Features[i].Saved = &namespace.FeatureValue{Dword: r.Saved.Dword ^ 1}
		}
	}
	oneFinding(t, facts, s, "features.write_cache.enabled", audit.Drift)
	p := planned(t, facts, s)
	if len(p.Steps) != 1 || p.Steps[0].Commands[0].CDW10 != 0x80000006 {
		t.Errorf("%s", p.Text())
	}
}

func TestChoose_firstRuleThatFits(t *testing.T) {
	specs, err := namespace.ParseSpecs("fleet.yaml", []byte(`version: 1
drives:
  - match: {model: "MODEL [23]"}
  - match: {vendor: 0x1c5f, address: "/dev/nvme*"}
  - match: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	subject := namespace.Subject{Identity: complete().Inventory.Identity, VendorID: 0x1C5F, Addresses: []string{"/dev/nvme0", "0000:01:00.0"}}
	if _, i, ok := audit.Choose(specs, subject); !ok || i != 1 {
		t.Errorf("rule %d %v", i, ok)
	}
	subject.Addresses = nil
	if _, i, ok := audit.Choose(specs, subject); !ok || i != 2 {
		t.Errorf("rule %d %v", i, ok)
	}
	if f := audit.Unmatched(specs[0]); f.Where != "fleet.yaml:3:12" && !strings.HasPrefix(f.Where, "fleet.yaml:3:") {
		t.Errorf("%+v", f)
	}
}

func hostile() audit.Report {
	return audit.Report{Schema: audit.ReportSchema, Policy: `a"b\c`, Drives: []audit.Drive{
		{Address: "/dev/nvme0", Serial: "S\"1\n", Model: `M\`, Checked: []string{"power.state", "namespaces"}, Findings: []audit.Finding{
			{Severity: audit.Drift, Field: "namespaces", Where: "x:1:1", Expected: "<a>", Found: "]]>&", Remedy: "nvop apply"},
			{Severity: audit.Unreadable, Field: "health.used_percent_max", Where: "x:2:1", Expected: "1", Found: "no"},
		}},
		{Address: "/dev/nvme1", Serial: "S2", Checked: []string{"power.state"}},
	}}
}

func TestReport_junit(t *testing.T) {
	var out bytes.Buffer
	if err := hostile().JUnit(&out); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Tests != 4 || doc.Failures != 1 || doc.Errors != 1 || len(doc.Suites) != 2 || len(doc.Suites[0].Cases) != 3 {
		t.Errorf("%+v\n%s", doc, &out)
	}
}

func TestReport_prometheus(t *testing.T) {
	var out bytes.Buffer
	if err := hostile().Prometheus(&out, now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`nvop_audit_findings{serial="S\"1\n",model="M\\",device="/dev/nvme0",severity="drift"} 1`,
		`nvop_audit_findings{serial="S2",model="",device="/dev/nvme1",severity="drift"} 0`,
		`nvop_audit_finding{serial="S\"1\n",model="M\\",device="/dev/nvme0",severity="drift",field="namespaces",nsid="0"} 1`,
		"nvop_audit_timestamp_seconds{policy=\"a\\\"b\\\\c\"} 1772366400\n",
	} {
		if !strings.Contains(out.String(), want+"") {
			t.Errorf("%s is not in\n%s", want, &out)
		}
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "#") && strings.Count(line, " ") < 1 {
			t.Errorf("no sample: %q", line)
		}
	}
}

func TestUnopened_isAFinding(t *testing.T) {
	d := audit.Unopened("/dev/nvme9", "p.yaml", errors.New("no such device"))
	r := audit.Report{Drives: []audit.Drive{d}}
	if r.Clean() || audit.Summary(r.Drives, nil) != "1 unreadable" {
		t.Errorf("%+v", r)
	}
}

func ExampleJudge() {
	facts := complete()
	spec, err := namespace.ParseSpec("fleet.yaml", []byte("version: 1\nfeatures:\n  write_cache: {enabled: true}\n"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for _, f := range audit.Judge(facts, spec).Findings {
		fmt.Println(f.Where, f.Text())
	}
	// Output: fleet.yaml:3:26 features.write_cache.enabled: expected true, found false; nvop apply /dev/nvme0 -f fleet.yaml
}
