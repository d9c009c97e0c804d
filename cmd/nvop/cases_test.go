package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// simFile makes a simulated drive of its own and returns its address and serial.
func simFile(t *testing.T, profile string) (address, serial string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "drive.nvop")
	r := call(t, "sim", "create", file, "--profile", profile, "-o", "json")
	var made simCreateResult
	if err := json.Unmarshal([]byte(r.out), &made); err != nil {
		t.Fatalf("%v: %s", err, r.errout)
	}
	return "sim:" + file, made.Serial
}

// NS-14, SYS-12: notes are part of the one document, or on standard error; never
// between.
func TestCase_NS14_SYS12_oneDocument(t *testing.T) {
	address, _ := simFile(t, "pblaze7-7940-7.68tb")
	r := call(t, "op", "set", address, "--size", "6.4TB", "--dry-run", "-o", "json")
	var doc struct {
		Notes []string `json:"notes"`
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || len(doc.Notes) == 0 || !strings.Contains(doc.Notes[0], "marketing") {
		t.Errorf("%v: %q", err, r.out)
	}
}

// NS-22, NS-23: identifiers are printed decimal and hexadecimal, and taken as
// either; a leading zero and a base that is not said are refused.
func TestCase_NS22_NS23_numbers(t *testing.T) {
	address, serial := simFile(t, "pblaze7-7940-7.68tb")
	if r := call(t, "ns", "list", address); !strings.Contains(r.out, "1 (0x1)") {
		t.Errorf("%s", r.out)
	}
	for text, code := range map[string]int{"01": exitUsage, "1h": exitUsage, "x1": exitUsage, "65536": exitUsage, "1": exitOK, "0x1": exitOK} {
		if r := call(t, "ns", "attach", address, "--nsid", "1", "--controller", text, "--confirm-serial", serial); r.code != code {
			t.Errorf("controller %q: exit code %d, want %d: %s", text, r.code, code, r.errout)
		}
	}
	for _, words := range [][]string{{"ns", "detach"}, {"ns", "delete"}, {"op", "set", "--size", "max"}, {"format"}} {
		for _, nsid := range []string{"0", "-1", "01", "4294967295"} {
			r := call(t, append(words, address, "--nsid="+nsid, "--confirm-serial", serial)...)
			if r.code != exitUsage {
				t.Errorf("%v --nsid %s: exit code %d: %s", words, nsid, r.code, r.errout)
			}
		}
	}
}

// NS-40: a change is one transaction whose exit code says whether the namespace is
// there and attached.
func TestCase_NS40_oneTransaction(t *testing.T) {
	address, serial := simFile(t, "memblaze-p6531-3.84tb")
	r := call(t, "op", "set", address, "--size", "3.2TB", "--confirm-serial", serial, "--fault", "fail every attach with 0x2004")
	if r.code == exitOK || !strings.Contains(r.errout, "attach") {
		t.Errorf("exit code %d: %s", r.code, r.errout)
	}
}

// SYS-11: what a script needs of a create, its NSID, is always in the document.
func TestCase_SYS11_createTellsTheNSID(t *testing.T) {
	address, serial := simFile(t, "pblaze7-7940-7.68tb")
	if r := call(t, "op", "set", address, "--size", "3.2TB", "--confirm-serial", serial); r.code != exitOK {
		t.Fatal(r.errout)
	}
	r := call(t, "ns", "create", address, "--size", "100GB", "--confirm-serial", serial, "-o", "json")
	var doc changeResult
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || len(doc.After) != 2 || doc.After[1].NSID != 2 {
		t.Errorf("%v: %s %s", err, r.out, r.errout)
	}
}

// TestSpec_everyProfile: the spec written from a drive has no findings and an empty
// plan; a rule whose glob fits no drive is a finding.
func TestSpec_everyProfile(t *testing.T) {
	var list []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(call(t, "sim", "profiles", "-o", "json").out), &list); err != nil || len(list) < 5 {
		t.Fatalf("%v: %d profiles", err, len(list))
	}
	for _, p := range list {
		t.Run(p.Name, func(t *testing.T) {
			address, _ := simFile(t, p.Name)
			spec := filepath.Join(t.TempDir(), "spec.yaml")
			if r := call(t, "spec", "init", address, "--out", spec); r.code != exitOK {
				t.Fatalf("spec init: %s", r.errout)
			}
			if r := call(t, "audit", "-f", spec, address); r.code != exitOK {
				t.Errorf("audit: exit code %d: %s", r.code, r.out)
			}
			if r := call(t, "plan", "-f", spec, address, "-o", "json"); !strings.Contains(r.out, `"already_so": true`) {
				t.Errorf("plan: %s%s", r.out, r.errout)
			}
			text, err := os.ReadFile(spec)
			if err != nil {
				t.Fatal(err)
			}
			other := strings.Replace(string(text), "  serial: ", "  model: \"NO SUCH*\"\n  serial: ", 1)
			if err := os.WriteFile(spec, []byte(other), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := call(t, "audit", "-f", spec, address, "-o", "json"); r.code != exitFindings || !strings.Contains(r.out, `"field": "match"`) {
				t.Errorf("a glob that fits no drive: exit code %d: %s", r.code, r.out)
			}
		})
	}
}
