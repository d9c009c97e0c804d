package audit_test

import (
	"strings"
	"testing"

	"nvop/namespace"
	"nvop/namespace/audit"
	"nvop/namespace/firmware"
)

// TestLint: what cannot be met, or never counts, is found; what can is not.
func TestLint(t *testing.T) {
	const rule = "version: 1\ndrives:\n  - match: {model: %}\n    power: {state: 0}\n  - match: {model: %}\n    power: {state: 1}\n"
	models := func(first, second string) string {
		return strings.Replace(strings.Replace(rule, "%", first, 1), "%", second, 1)
	}
	for name, c := range map[string]struct{ text, where, found string }{
		"two of everything":      {"version: 1\nnamespaces: [{size: 100%}, {size: 100%}]\n", "x:2:", "200.00 % of the drive"},
		"three of 40 %":          {"version: 1\nnamespaces: [{size: 40%, count: 3}]\n", "x:2:", "120.00 % of the drive"},
		"more than a drive":      {"version: 1\nnamespaces: [{size: 101%}]\n", "x:2:", "101.00 %"},
		"nothing left":           {"version: 1\nnamespaces: [{size: 100%}, {size: 1GB}]\n", "x:2:", "there are others"},
		"two factory sizes":      {"version: 1\nnamespaces: [{size: factory, count: 2}]\n", "x:2:", ""},
		"thresholds":             {"version: 1\nfeatures: {temperature_threshold: {over: 40, under: 60}}\n", "x:2:", "lower threshold of 60 C"},
		"equal thresholds":       {"version: 1\nfeatures: {temperature_threshold: {over: 40, under: 40}}\n", "x:2:", "lower threshold"},
		"a sensor's":             {"version: 1\nfeatures: {temperature_threshold: {sensor3_over: 40, sensor3_under: 41}}\n", "x:2:", "lower threshold of 41 C"},
		"throttling":             {"version: 1\nfeatures: {host_thermal: {light: 80, heavy: 70}}\n", "x:2:", "light throttling from 80 C"},
		"transitions of nothing": {"version: 1\nfeatures: {apst: {enabled: true, transitions: none}}\n", "x:2:", "never take place"},
		"replace nothing":        {"version: 1\nreplace: [1]\npower: {state: 1}\n", "x:2:", "nothing is deleted"},
		"behind a star":          {models(`"*"`, "MEM1"), "x:5:", "no drive gets here"},
		"behind a prefix":        {models(`"MEM*"`, `"MEMBLAZE P?940*"`), "x:5:", "no drive gets here"},
		"behind its glob":        {models(`"M?M [A-Z]*"`, "MEM X1"), "x:5:", "no drive gets here"},
		"a star behind a star":   {models(`"**"`, `"?"`), "x:5:", "no drive gets here"},
		"behind everything":      {"version: 1\ndrives:\n  - {match: {subsystem: \"*\"}, power: {state: 0}}\n  - {match: {}, power: {state: 1}}\n", "x:4:", "no drive gets here"},
		// What is well is not found.
		"shares":          {"version: 1\nnamespaces: [{size: 60%}, {size: 40%}]\n", "", ""},
		"rest":            {"version: 1\nnamespaces: [{size: 60%}, {max: true}]\n", "", ""},
		"one threshold":   {"version: 1\nfeatures: {temperature_threshold: {over: none, under: 60}}\n", "", ""},
		"two sensors":     {"version: 1\nfeatures: {temperature_threshold: {sensor1_over: 40, sensor2_under: 41}}\n", "", ""},
		"other models":    {models("MEM1", `"*"`), "", ""},
		"other prefix":    {models(`"MEM*"`, `"YMTC*"`), "", ""},
		"a wider one":     {models(`"MEM1*"`, `"MEM*"`), "", ""},
		"a question mark": {models(`"MEM?"`, `"MEM?1"`), "", ""},
		"an ending":       {models(`"*X"`, `"MEM*"`), "", ""},
	} {
		specs, err := namespace.ParseSpecs("x", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		list := audit.Lint(specs)
		switch {
		case c.where == "" && len(list) != 0:
			t.Errorf("%s: %+v", name, list)
		case c.where != "" && (len(list) != 1 || !strings.HasPrefix(list[0].Where, c.where) || !strings.Contains(list[0].Found, c.found)):
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// TestJudge_firmwareThatStays: the right revision that another one replaces at the
// next reset is a finding, as it is a step of the plan; so are slots that cannot be
// read.
func TestJudge_firmwareThatStays(t *testing.T) {
	s := parse(t, "version: 1\nfirmware: {revision: FW1}\n")
	for name, c := range map[string]struct {
		change   func(*firmware.State)
		severity audit.Severity
		found    string
	}{
		"stays":       {func(*firmware.State) {}, "", ""},
		"is replaced": {func(f *firmware.State) { f.Next = 2 }, audit.Drift, "FW1; FW2 in slot 2 runs after the next reset"},
		"stays next":  {func(f *firmware.State) { f.Next = 1 }, "", ""},
		"unreadable":  {func(f *firmware.State) { f.SlotsError = "no such log" }, audit.Unreadable, "could not be read: no such log"},
		"no updates":  {func(f *firmware.State) { f.Supported, f.SlotsError = false, "no such log" }, "", ""},
	} {
		facts := complete()
		state := *facts.Inventory.FirmwareState
		c.change(&state)
		facts.Inventory.FirmwareState = &state
		d := audit.Judge(facts, s)
		switch {
		case c.severity == "" && len(d.Findings) != 0:
			t.Errorf("%s: %+v", name, d.Findings)
		case c.severity != "" && (len(d.Findings) != 1 || d.Findings[0].Severity != c.severity || d.Findings[0].Found != c.found):
			t.Errorf("%s: %+v", name, d.Findings)
		}
		p, err := namespace.PlanSpec(facts.Inventory, s, namespace.Options{})
		if err != nil || p.AlreadySo() != (c.severity != audit.Drift) {
			t.Errorf("%s: %v: %s", name, err, p.Text())
		}
	}
}

// TestJudge_remedies: where apply would refuse, the remedy says why and not "apply".
func TestJudge_remedies(t *testing.T) {
	facts := complete()
	for name, c := range map[string]struct {
		text   string
		change func(*audit.Facts)
		want   string
	}{
		"apply mends it": {"power: {state: 3}\n", nil, "nvop apply /dev/nvme0 -f fleet.yaml"},
		"no slot has it": {"firmware: {revision: FW9}\n", nil, "apply refuses: no slot holds revision FW9"},
		"no image":       {"firmware: {revision: FW9, image: fw9.bin}\n", func(f *audit.Facts) { f.ImageProblem = "no such file" }, "apply refuses: no such file"},
		"the wrong image": {"firmware: {revision: FW9, image: fw9.bin, sha256: 0000000000000000000000000000000000000000000000000000000000000000}\n",
			func(f *audit.Facts) { f.Image = &firmware.Image{Path: "fw9.bin", SizeBytes: 4096, SHA256: "01"} }, "apply refuses: its sha256 is 01"},
		"the right image": {"firmware: {revision: FW9, image: fw9.bin}\n",
			func(f *audit.Facts) { f.Image = &firmware.Image{Path: "fw9.bin", SizeBytes: 4096, SHA256: "01"} }, "nvop apply /dev/nvme0"},
		"an image":              {"firmware: {revision: FW9, image: fw9.bin}\n", nil, "nvop apply /dev/nvme0 -f fleet.yaml"},
		"a hint of a state":     {"power: {state: 4}\n", func(f *audit.Facts) { f.Inventory.Controller.PowerStates[4].NonOperational = true }, "apply refuses: power state 4 is non-operational"},
		"no management":         {"namespaces: [{size: 100GB}]\n", func(f *audit.Facts) { f.Inventory.Controller.NamespaceManagement = false }, "apply refuses: "},
		"on a network":          {"namespaces: [{size: 100GB}]\n", func(f *audit.Facts) { f.Inventory.Transport = "tcp" }, "apply refuses: it is reached over"},
		"one is in the way":     {"namespaces: [{size: 100GB}, {size: 200GB}]\n", nil, "apply refuses: the spec has no place for namespace 1"},
		"it warns":              {"namespaces: [{size: 100GB}]\n", func(f *audit.Facts) { h := *f.Inventory.Health; h.CriticalWarning = 4; f.Inventory.Health = &h }, "apply refuses: the SMART log shows critical warning 0x04"},
		"the other field is it": {"power: {state: 3}\nfirmware: {revision: FW9}\n", nil, "apply refuses: no slot holds"},
	} {
		f := facts
		f.Inventory.Controller.PowerStates = append([]namespace.PowerStateFact{}, facts.Inventory.Controller.PowerStates...)
		if c.change != nil {
			c.change(&f)
		}
		d := audit.Judge(f, parse(t, "version: 1\n"+c.text))
		if len(d.Findings) == 0 {
			t.Errorf("%s: no finding", name)
		}
		for _, finding := range d.Findings {
			if !strings.HasPrefix(finding.Remedy, c.want) {
				t.Errorf("%s: %s: %q, want %q", name, finding.Field, finding.Remedy, c.want)
			}
		}
	}
}
