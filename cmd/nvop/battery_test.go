package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outcome is what one call of the program did.
type outcome struct {
	code        int
	out, errout string
}

// call runs the program in this process, with a home of its own.
func call(t *testing.T, args ...string) outcome {
	t.Helper()
	home := t.TempDir()
	env := map[string]string{"HOME": home, "XDG_STATE_HOME": home, "XDG_RUNTIME_DIR": home}
	var out, errout bytes.Buffer
	args = append(args, "--journal", filepath.Join(home, "journal.db"))
	code := execute(context.Background(), args, streams{strings.NewReader(""), &out, &errout}, func(k string) string { return env[k] })
	return outcome{code, out.String(), errout.String()}
}

// commands are the words of every command there is.
func commands(t *testing.T) [][]string {
	t.Helper()
	parser, err := newParser(&grammar{}, streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	var list [][]string
	for _, leaf := range parser.Model.Leaves(true) {
		list = append(list, strings.Fields(leaf.FullPath())[1:])
	}
	if len(list) < 30 {
		t.Fatalf("only %d commands found", len(list))
	}
	return list
}

// TestBattery_help: every command explains itself and gives an example.
func TestBattery_help(t *testing.T) {
	for _, words := range commands(t) {
		t.Run(strings.Join(words, " "), func(t *testing.T) {
			r := call(t, append(words, "--help")...)
			if r.code != 0 || !strings.Contains(r.out, "Usage: nvop "+strings.Join(words, " ")) {
				t.Errorf("exit code %d, stderr %q, stdout:\n%s", r.code, r.errout, r.out)
			}
			if !strings.Contains(r.out, "Example") {
				t.Errorf("no example:\n%s", r.out)
			}
		})
	}
}

// TestBattery_badFlag: an unknown flag is a usage error, as JSON too.
func TestBattery_badFlag(t *testing.T) {
	for _, words := range commands(t) {
		t.Run(strings.Join(words, " "), func(t *testing.T) {
			r := call(t, append(words, "--no-such-flag", "-o", "json")...)
			wantFailure(t, r, exitUsage)
		})
	}
}

// wantFailure wants the exit code, one line on stderr, and one document with
// the same code on stdout.
func wantFailure(t *testing.T, r outcome, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.errout)
	}
	if strings.Count(r.errout, "\n") != 1 || !strings.HasPrefix(r.errout, "nvop: ") {
		t.Errorf("stderr is not one line: %q", r.errout)
	}
	var doc failure
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatalf("stdout is not one JSON document: %v\n%s", err, r.out)
	}
	if doc.Schema != "nvop.error/1" || doc.ExitCode != r.code || doc.Error == "" {
		t.Errorf("document %+v, exit code %d", doc, r.code)
	}
}

// onDrive are the commands that take a drive, with what else they need.
func onDrive(spec string) map[string][]string {
	return map[string][]string{
		"show": {}, "log": {"smart"}, "feature get": {"power-management"},
		"feature set": {"power-management", "--value", "1"}, "ns list": {}, "ns create": {"--size", "1GB"},
		"ns delete": {"--nsid", "1"}, "ns attach": {"--nsid", "1"}, "ns detach": {"--nsid", "1"},
		"op set": {"--size", "max"}, "op plan": {"--size", "max"}, "op predict": {}, "format": {}, "plan": {"-f", spec}, "apply": {"-f", spec},
		"audit": {"-f", spec}, "spec init": {}, "snapshot": {},
		"pcie set":   {"--mps", "auto"},
		"soak start": {"--rw", "randwrite", "--size", "1MB"},
		"fw list":    {}, "power list": {}, "power set": {"--state", "1"}, "fw verify": {}, "fw update": {"--revision", "X"}, "fw download": {"--image", spec}, "fw commit": {"--slot", "2"},
		"selftest start": {}, "selftest abort": {}, "selftest status": {}, "sanitize start": {"--action", "block"},
		"sanitize status": {}, "sanitize exit-failure": {}, "reset": {}, "rescan": {},
		"telemetry": {"--out", filepath.Join(filepath.Dir(spec), "kept.telemetry")},
		"record":    {filepath.Join(filepath.Dir(spec), "kept.nvoprec")},
	}
}

// TestBattery_badDrive: what is missing, no drive, or unreadable is one clear
// line that names it, and exit code 1.
func TestBattery_badDrive(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "spec.yaml")
	text := filepath.Join(dir, "text")
	for path, content := range map[string]string{spec: "version: 1\nnamespaces:\n  - size: max\n", text: "not a drive\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := map[string]string{
		"missing simulated": "sim:" + filepath.Join(dir, "missing"), "missing device": "/dev/nvme99",
		"not a device": "/dev/null", "a text": "sim:" + text, "a folder": "sim:" + dir,
	}
	for words, more := range onDrive(spec) {
		for name, address := range bad {
			t.Run(words+" "+name, func(t *testing.T) {
				args := append(strings.Fields(words), address)
				r := call(t, append(append(args, more...), "-o", "json")...)
				if words == "audit" {
					// What cannot be read is a finding, in the report that was asked for.
					if r.code != exitFindings || !strings.Contains(r.out, `"severity": "unreadable"`) || !strings.Contains(r.out, strings.TrimPrefix(address, "sim:")) {
						t.Errorf("exit code %d: %s%s", r.code, r.out, r.errout)
					}
					return
				}
				wantFailure(t, r, exitFailed)
				if !strings.Contains(r.errout, strings.TrimPrefix(address, "sim:")) {
					t.Errorf("the line does not name %s: %s", address, r.errout)
				}
			})
		}
		t.Run(words+" no address", func(t *testing.T) {
			r := call(t, append(append(strings.Fields(words), "drive"), more...)...)
			if r.code != exitUsage {
				t.Errorf("exit code %d, want %d: %s", r.code, exitUsage, r.errout)
			}
		})
	}
}

// TestBattery_coversEveryDriveCommand: a new command that takes a drive is in
// the battery too.
func TestBattery_coversEveryDriveCommand(t *testing.T) {
	parser, err := newParser(&grammar{}, streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	known := onDrive("")
	for _, leaf := range parser.Model.Leaves(true) {
		if len(leaf.Positional) == 0 {
			continue
		}
		words := strings.Join(strings.Fields(leaf.FullPath())[1:], " ")
		first := strings.ToLower(leaf.Positional[0].Name)
		if _, ok := known[words]; !ok && (first == "drive" || first == "address") {
			t.Errorf("command %q takes a drive and is not in the battery", words)
		}
	}
}
