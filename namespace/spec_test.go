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
		{"version: 2\n", "x:1:10", "version 2 is not known"},
		{"namespaces: []\n", "x:1:1", "version: it is missing"},
		{"version: 1\nversion: 1\n", "x:2:1", "already defined"},
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

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(goodSpec))
	f.Add([]byte("version: 1\nnamespaces: [{size: max}]\n"))
	f.Add([]byte("version: 1\nnamespaces: [{shared: true}]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSpec("x", text)
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
