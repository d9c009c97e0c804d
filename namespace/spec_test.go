package namespace

import (
	"errors"
	"strings"
	"testing"

	"nvop/nvmeioctl"
)

const goodSpec = `# a drive for a database
version: 1
match:
  serial: SIM001
  model: "MEMBLAZE P7940*"
namespaces:
  - size: 6.4TB
    lba: {data: 4096, metadata: 8}
    shared: true
  - op: 20
    op_of: total
  - idema: 480GB
replace: [1, 0x2]
`

func TestParseSpec_good(t *testing.T) {
	s, err := ParseSpec("drive.yaml", []byte(goodSpec))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Namespaces) != 3 || len(s.Replace) != 2 || s.Replace[1] != 2 {
		t.Fatalf("%+v", s)
	}
	first := s.Namespaces[0]
	if first.Size.Kind != SizeMarketing || *first.Format != (FormatSelector{4096, 8}) || !*first.Shared {
		t.Errorf("first: %+v", first)
	}
	if s.Namespaces[1].Size.Kind != SizeOPTotal || s.Namespaces[2].Size.Kind != SizeMarketing {
		t.Errorf("sizes: %+v", s.Namespaces)
	}
	for id, want := range map[nvmeioctl.Identity]bool{
		{Serial: "SIM001", Model: "MEMBLAZE P7940DT0768M00"}: true,
		{Serial: "SIM002", Model: "MEMBLAZE P7940DT0768M00"}: false,
		{Serial: "SIM001", Model: "OTHER"}:                   false,
	} {
		if s.Match.Matches(Subject{Identity: id}) != want {
			t.Errorf("%+v matches: %v", id, !want)
		}
	}
}

func TestParseSpec_errorsCarryTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, where, reason string }{
		{"version: 1\nnamespaces:\n  - size: 6400\n", "x:3:11", "bare number"},
		{"version: 1\nnamespaces:\n  - size: 6.4T\n", "x:3:11", "can mean two things"},
		{"version: 1\nnamespaces:\n  - size: 6.4TB\n    op: 20\n", "x:4:9", "only one of"},
		{"version: 1\nnamespaces:\n  - lba: {data: 4096}\n", "x:3:8", "needs one of"},
		{"version: 1\nnamespaces:\n  - size: 1TB\n    lba: {data: 513}\n", "x:4:17", "LBA data size"},
		{"version: 1\nnamespaces:\n  - size: 1TB\n    shared: maybe\n", "x:4:13", "neither true nor false"},
		{"version: 1\nnamespaces:\n  - size: 1TB\n    colour: red\n", "x:4:5", "unknown field"},
		{"version: 1\nnamespace: []\n", "x:2:1", "unknown field"},
		{"version: 2\n", "x:1:10", `version "2" is not known`},
		{"namespaces: []\n", "x:1:1", "version: it is missing"},
		{"version: 1\nversion: 1\n", "x:2:1", "already defined"},
		{"version: 0\n  00\n", "x:1:10", "is not known"},
		{"version: 1\nreplace: [0]\n", "x:2:11", "no namespace identifier"},
		{"version: 1\nreplace: [4294967295]\n", "x:2:11", "no namespace identifier"},
		{"version: 1\nnamespaces:\n  - size: [1]\n", "x:3:11", "a single value belongs here"},
		{"version: 1\nnamespaces:\n  - idema: 6.4TiB\n", "x:3:12", "whole number of GB"},
		{"version: 1\nnamespaces:\n  - size: 1TB\n    op_of: user\n", "x:4:12", "belongs to op"},
		{"version: 1\nnamespaces: !000000 000000", "x:2:13", "tags, anchors"},
		{"version: 1\nreplace: &a [1]\n", "x:2:10", "tags, anchors"},
		{"version: [\n", "x:1:", ""},
		{"", "x:", "empty"},
		{"version: 1\n---\nversion: 1\n", "x:", "more than one document"},
	} {
		_, err := ParseSpec("x", []byte(c.text))
		e, ok := errors.AsType[*SpecError](err)
		if !ok || e.ExitCode() != 80 {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.where) || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, want %s ... %s", c.text, err, c.where, c.reason)
		}
	}
}

// fullSpec names every section.
const fullSpec = `version: 1
drives:
  - match: {serial: S1, model: "M*", vendor: 0x1c5f, subsystem: "nqn.*", address: "/dev/nvme*"}
    namespaces:
      - {idema: 800GB, count: 3, lba: {data: 4096, metadata: 8}, protection: {type: 1, first: true}, shared: true, controllers: [0x21, 34]}
      - {max: true, lba: {data: 512}}
    replace: all
    format: {erase: crypto}
    power: {state: 1, vendor_limit: 0, save: true}
    features:
      apst: {enabled: true, transitions: [{from: 0, to: 3, idle_ms: 100}, {from: 1, to: 4, idle_ms: 2000}]}
      temperature_threshold: {over: 70, under: none, sensor2_over: 80}
      timestamp: {skew_seconds_max: 60}
    firmware: {revision: R1, image: fw.bin, sha256: 0000000000000000000000000000000000000000000000000000000000000000, slot: auto, activate: live, allow_live: ["M*"]}
    pcie: {payload_bytes: 512, read_request_bytes: 4096, speed: gen5, width: 4}
    health: {used_percent_max: 80, spare_percent_min: 10, media_errors_max: 0, unsafe_shutdowns_max: 9, temperature_celsius_max: 70, critical_warnings: false}
  - match: {}
    namespaces: []
`

func TestParseSpecs_everySection(t *testing.T) {
	specs, err := ParseSpecs("dir/fleet.yaml", []byte(fullSpec))
	if err != nil || len(specs) != 2 {
		t.Fatalf("%v: %d specs", err, len(specs))
	}
	s := specs[0]
	if len(s.Namespaces) != 2 || s.Namespaces[0].Count != 3 || *s.Namespaces[0].Protection != 9 || len(s.Namespaces[0].Controllers) != 2 {
		t.Errorf("%+v", s.Namespaces)
	}
	if !s.ReplaceAll || s.Erase != EraseCrypto || len(s.Settings) != 8 || s.PCIe != (PCIeSpec{512, 4096, 5, 4}) || s.Match.Vendor != 0x1C5F {
		t.Errorf("%+v", s)
	}
	if f := s.Firmware; f.Image != "dir/fw.bin" || f.Slot != 0 || f.Activate != "live" || len(f.AllowLive) != 1 {
		t.Errorf("%+v", f)
	}
	if h := s.Health; *h.UsedPercentMax != 80 || *h.SparePercentMin != 10 || *h.MediaErrorsMax != 0 || *h.UnsafeShutdownsMax != 9 || *h.TemperatureCelsiusMax != 70 || *h.CriticalWarnings {
		t.Errorf("%+v", h)
	}
	if got := s.Where("features.apst.transitions"); got != "dir/fleet.yaml:11:42" {
		t.Errorf("the transitions are at %s", got)
	}
	if got := s.Where("namespaces[1].shared"); got != "dir/fleet.yaml:6:9" {
		t.Errorf("a field that is not there is at %s", got)
	}
	if specs[1].Namespaces == nil || len(specs[1].Namespaces) != 0 {
		t.Error("no namespaces and no word about namespaces are two things")
	}
}

func TestParseSpecs_newErrorsCarryTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"version: 1\nmatch: {serial: null}\n", "x:2:9: match.serial: it has no value"},
		{"version: 1\nmatch: {serial: \"\"}\n", "x:2:17: match.serial: it has no value"},
		{"version: 1\nmatch: {address: ' '}\n", "x:2:18: match.address: it has no value"},
		{"version: 1\nmatch:\npower: {state: 1}\n", "x:2:1: match: it has no value"},
		{"version: 1\nmatch:\n  model:\n  serial: S\n", "x:3:3: match.model: it has no value"},
		{"version: 1\ndrives:\n  - match: ~\n", "x:3:5: match: it has no value"},
		{"version: 1\ndrives:\n  -\n", "x:3:"},
		{"version: 1\npower: {state: null}\n", "x:2:9: power.state: it has no value"},
		{"version: 1\nfeatures:\n  arbitration:\n    burst_log2: \n", "x:4:5: features.arbitration.burst_log2: it has no value"},
		{"version: 1\nfeatures: {apst: {transitions: }}\n", "x:2:19: features.apst.transitions: it has no value"},
		{"version: 1\nhealth: {media_errors_max: ~}\n", "x:2:10: health.media_errors_max: it has no value"},
		{"version: 1\nfirmware: {revision: R, image: ''}\n", "x:2:32: firmware.image: it has no value"},
		{"version: 1\nnamespaces: [{max: true, controllers: [~]}]\n", "x:2:40: namespaces[0].controllers[0]: it has no value"},
		{"version: 1\nreplace: \n", "x:2:1: replace: it has no value"},
		{"version: 1\npower: {state: 32}\n", "x:2:16: power.state: "},
		{"version: 1\npower: {state: 010}\n", "x:2:16: power.state: a leading zero"},
		{"version: 1\nfeatures: {interrupt_coalescing: {time_us: 150}}\n", "x:2:44: features.interrupt_coalescing.time_us: 150 is no multiple of 100"},
		{"version: 1\nfeatures: {apst: {transitions: [{from: 0, to: 3}]}}\n", "x:2:"},
		{"version: 1\nmatch: {model: \"[\"}\n", "x:2:16: match.model: "},
		{"version: 1\nfirmware: {image: a}\n", "x:2:"},
		{"version: 1\nfirmware: {revision: R, slot: 8}\n", "x:2:31: firmware.slot: "},
		{"version: 1\nfirmware: {revision: R, sha256: 00}\n", "x:2:"},
		{"version: 1\npcie: {payload_bytes: 300}\n", "x:2:23: pcie.payload_bytes: "},
		{"version: 1\npcie: {speed: gen9}\n", "x:2:15: pcie.speed: "},
		{"version: 1\nhealth: {critical_warnings: true}\n", "x:2:29: health.critical_warnings: "},
		{"version: 1\nhealth: {spare_percent_min: 101}\n", "x:2:29: health.spare_percent_min: "},
		{"version: 1\nnamespaces:\n  - {max: true, count: 0}\n", "x:3:24: namespaces[0].count: "},
		{"version: 1\nnamespaces:\n  - {max: true}\n  - {op: 7}\n", "x:4:"},
		{"version: 1\nnamespaces:\n  - {max: true, lba: {data: 512}, protection: {type: 1}}\n", "x:3:"},
		{"version: 1\nnamespaces:\n  - {max: true, shared: false, controllers: [1, 2]}\n", "x:3:"},
		{"version: 1\npower: 1\n", "x:2:8: power: a mapping belongs here"},
		{"version: 1\ndrives: []\n", "x:2:9: drives: the list is empty"},
		{"version: 1\npower: {state: 1}\ndrives: [{}]\n", "x:2:8: power: "},
		{"version: 1\nnamespaces: " + strings.Repeat("[", 100) + "\n", "x:2:1: brackets are nested"},
		{"version: 1\nnamespaces: " + strings.Repeat("- ", 3000) + "\n", "x:2:1: lists are nested"},
	} {
		_, err := ParseSpecs("x", []byte(c.text))
		if e, ok := errors.AsType[*SpecError](err); !ok || !strings.HasPrefix(e.Error(), c.want) || e.ExitCode() != 80 {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(goodSpec))
	f.Add([]byte("version: 1\nnamespaces: [{size: max}]\n"))
	f.Add([]byte("version: 1\nnamespaces: [{shared: true}]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(fullSpec))
	f.Add([]byte("version: 1\ndrives: [{match: {model: \"[\"}}, {features: {apst: {transitions: [{from: 32}]}}}]\n"))
	f.Add([]byte("version: 1\npower:\n- - - - - - -\n? ? ? : :\n"))
	f.Add([]byte("version: 1\nhealth: {media_errors_max: 0x7fffffffffffffff, critical_warnings: ~}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		specs, err := ParseSpecs("x", text)
		if err == nil && len(specs) == 0 {
			t.Fatal("no spec and no error")
		}
		s := Spec{}
		if err == nil {
			s = specs[0]
		}
		if err != nil {
			if _, ok := errors.AsType[*SpecError](err); !ok || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, n := range s.Namespaces {
			if n.Size.Kind == 0 {
				t.Fatalf("a namespace without a size: %+v", n)
			}
		}
	})
}
