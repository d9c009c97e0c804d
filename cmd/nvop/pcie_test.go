package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nvop/pcie"
)

// pcieDump is a dump of this project's own: a switch with two drives whose
// sizes disagree with the ports', and a third drive on a root port.
const pcieDump = "../../pcie/testdata/qemu-A-pcie-bus-tune-off.hex"

// document decodes a result, which must be one document of the schema.
func pcieDocument(t *testing.T, r outcome, schema string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.out))
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal([]byte(r.out), &head); err != nil || head.Schema != schema {
		t.Fatalf("schema %q, want %q: %v\n%s%s", head.Schema, schema, err, r.out, r.errout)
	}
	if err := dec.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func TestPCIe_dump(t *testing.T) {
	r := call(t, "pcie", "path", "--from", pcieDump, "-o", "json")
	var paths struct {
		Devices []struct {
			Address  string `json:"address"`
			Complete bool   `json:"complete_to_root_port"`
			Hops     []struct {
				Address string `json:"address"`
				Payload int    `json:"max_payload_bytes"`
			} `json:"hops"`
			Payloads struct {
				Safe     int      `json:"safe_raise_to_bytes"`
				Blocking []string `json:"blocking"`
			} `json:"payloads"`
			Ceiling struct {
				Read float64 `json:"read_bytes_per_second"`
			} `json:"ceiling"`
		} `json:"devices"`
	}
	pcieDocument(t, r, "nvop.pcie-path/1", &paths)
	if r.code != 0 || len(paths.Devices) != 3 {
		t.Fatalf("exit code %d, %d devices", r.code, len(paths.Devices))
	}
	d := paths.Devices[0]
	if d.Address != "0000:03:00.0" || !d.Complete || len(d.Hops) != 4 || d.Hops[3].Address != "0000:00:03.0" || d.Hops[0].Payload != 128 ||
		d.Payloads.Safe != 256 || len(d.Payloads.Blocking) != 1 || d.Ceiling.Read < 6.5e9 || d.Ceiling.Read > 6.7e9 {
		t.Errorf("%+v", d)
	}

	r = call(t, "pcie", "path", "--from", pcieDump, "03:00.0")
	for _, want := range []string{"* 0000:00:03.0 root port", "   |  `- * 0000:03:00.0 endpoint", "`-   0000:02:01.0", "6.61 GB/s reading", ": ok"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the picture lacks %q:\n%s", want, r.out)
		}
	}
	r = call(t, "pcie", "show", "--from", pcieDump, "03:00.0")
	if r.code != 0 || !strings.Contains(r.out, "128 of 512 bytes") {
		t.Errorf("%d %s%s", r.code, r.out, r.errout)
	}
	// What bug reports bring: the text on standard input, among other text.
	text, err := os.ReadFile(pcieDump)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.txt")
	if err := os.WriteFile(file, append([]byte("Hello,\nmy drive is slow: see below.\n\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := call(t, "pcie", "show", "--from", file, "03:00.0"); r.code != 0 {
		t.Errorf("%d %s", r.code, r.errout)
	}
}

func TestPCIe_auditExitCode(t *testing.T) {
	r := call(t, "pcie", "audit", "--from", pcieDump, "-o", "json")
	var audit struct {
		Worst   string `json:"worst"`
		Devices []struct {
			Findings []struct {
				Rule     string   `json:"rule"`
				Severity string   `json:"severity"`
				At       string   `json:"at"`
				Expected string   `json:"expected"`
				Found    string   `json:"found"`
				Why      string   `json:"why"`
				Remedy   []string `json:"remedy"`
			} `json:"findings"`
		} `json:"devices"`
	}
	pcieDocument(t, r, "nvop.pcie-audit/1", &audit)
	if r.code != exitFindings || audit.Worst != "critical" || strings.Count(r.errout, "\n") != 1 {
		t.Errorf("exit code %d, worst %s, %q", r.code, audit.Worst, r.errout)
	}
	f := audit.Devices[0].Findings[0]
	if f.Rule != "payload.h2-completion-exceeds-port" || f.Expected == "" || f.Found == "" || f.Why == "" || len(f.Remedy) == 0 {
		t.Errorf("%+v", f)
	}
	// A uniform tree: notes only.
	r = call(t, "pcie", "audit", "--from", wholeDump(t, "../../pcie/testdata/qemu-A-default.hex"), "03:00.0")
	if r.code != exitOK || !strings.Contains(r.out, "NOTE: read-request") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.errout)
	}
}

// wholeDump is a dump of 256 bytes a function with an extended space that holds no
// capability.
func wholeDump(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rest strings.Builder
	for at := 0x100; at < 0x1000; at += 16 {
		fmt.Fprintf(&rest, "\n%03x:%s", at, strings.Repeat(" 00", 16))
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(file, []byte(strings.Join(blocks, rest.String()+"\n\n")+rest.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPCIe_auditUnread: what was not read is not in order, and the words say only
// what was judged.
func TestPCIe_auditUnread(t *testing.T) {
	const dump = "../../pcie/testdata/qemu-A-default.hex"
	r := call(t, "pcie", "audit", "--from", dump, "03:00.0")
	if r.code != exitFindings || !strings.Contains(r.out, "WARNING: access at 0000:03:00.0") || !strings.Contains(r.out, "errors (AER)") || strings.Contains(r.out, "in order") {
		t.Errorf("256 bytes: exit code %d: %s%s", r.code, r.out, r.errout)
	}
	// The whole space, without AER in it.
	r = call(t, "pcie", "audit", "--from", wholeDump(t, dump), "03:00.0")
	if r.code != exitOK || strings.Contains(r.out, "access") {
		t.Errorf("whole: exit code %d: %s%s", r.code, r.out, r.errout)
	}
	path := pcie.Path{Hops: []*pcie.Function{{AER: &pcie.AER{}}, {}}}
	if text := judgedText(path); strings.Contains(text, "links") || strings.Contains(text, "errors are in order") || !strings.Contains(text, "1 function of the path without") {
		t.Errorf("a path without links and AER: %s", text)
	}
	// The endpoint alone.
	text, err := os.ReadFile(wholeDump(t, dump))
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "alone.hex")
	for block := range strings.SplitSeq(string(text), "\n\n") {
		if strings.HasPrefix(block, "0000:03:00.0") || strings.HasPrefix(block, "03:00.0") {
			if err := os.WriteFile(alone, []byte(block+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r = call(t, "pcie", "audit", "--from", alone, "03:00.0")
	if r.code != exitFindings || !strings.Contains(r.out, "WARNING: access") || !strings.Contains(r.out, "what lies above is not in the dump") {
		t.Errorf("alone: exit code %d: %s%s", r.code, r.out, r.errout)
	}
}

// TestPCIe_baseline: what was recorded is compared with later.
func TestPCIe_baseline(t *testing.T) {
	file := filepath.Join(t.TempDir(), "good.json")
	args := []string{"pcie", "audit", "--from", wholeDump(t, "../../pcie/testdata/qemu-A-pcie-bus-safe.hex"), "05:00.0"}
	if r := call(t, append(args, "--save-baseline", file)...); r.code != exitOK {
		t.Fatalf("exit code %d: %s", r.code, r.errout)
	}
	if r := call(t, append(args, "--baseline", file)...); r.code != exitOK || strings.Contains(r.out, "drift") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	r := call(t, "pcie", "audit", "--from", wholeDump(t, "../../pcie/testdata/qemu-A-default.hex"), "05:00.0", "--baseline", file)
	if r.code != exitFindings || !strings.Contains(r.out, "WARNING: drift at 0000:05:00.0") || !strings.Contains(r.out, "payload 256; expected payload 512, as recorded") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	if r := call(t, append(args, "--save-baseline", file)...); r.code != exitFailed {
		t.Errorf("a baseline is overwritten: exit code %d", r.code)
	}
	if r := call(t, "pcie", "audit", "--from", pcieDump, "03:00.0", "--baseline", file); r.code != exitFailed || !strings.Contains(r.errout, "no baseline of 0000:03:00.0") {
		t.Errorf("exit code %d: %s", r.code, r.errout)
	}
	if r := call(t, append(args, "--baseline", pcieDump)...); r.code != exitFailed {
		t.Errorf("a dump is taken for a baseline: exit code %d", r.code)
	}
}

func TestPCIe_ceiling(t *testing.T) {
	r := call(t, "pcie", "ceiling", "--link", "gen4x4", "--mrrs", "4096", "--mps", "512", "--read", "7.46GB/s", "--read-4k", "1772k", "--write", "7360MB/s", "-o", "json")
	var doc struct {
		Links []struct {
			InForce struct {
				Read float64 `json:"read_bytes_per_second"`
			} `json:"in_force"`
			ByPayload []struct{} `json:"by_payload"`
			Proofs    []struct {
				Least      int    `json:"least_max_payload_bytes"`
				Conclusion string `json:"conclusion"`
			} `json:"proofs"`
		} `json:"links"`
	}
	pcieDocument(t, r, "nvop.pcie-ceiling/1", &doc)
	if r.code != 0 || len(doc.Links) != 1 || len(doc.Links[0].ByPayload) != 3 || len(doc.Links[0].Proofs) != 3 || doc.Links[0].InForce.Read < 7.4e9 {
		t.Fatalf("%s", r.out)
	}
	for _, proof := range doc.Links[0].Proofs {
		if proof.Least != 512 || !strings.Contains(proof.Conclusion, "at least 512 were in force") {
			t.Errorf("%+v", proof)
		}
	}
	if r := call(t, "pcie", "ceiling", "--from", pcieDump, "04:00.0"); r.code != 0 || !strings.Contains(r.out, "8 GT/s x2") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	for _, bad := range [][]string{
		{"--link", "gen9x4"}, {"--link", "gen4x3"}, {"--link", "gen4x4", "--mps", "300"}, {"--link", "gen4x4", "--read", "7.46"},
		{"--link", "gen4x4", "--read-4k", "lots"}, {"--link", "gen4x4", "--from", pcieDump}, {"--link", "gen4x4", "--completions", "1"},
	} {
		if r := call(t, append([]string{"pcie", "ceiling"}, bad...)...); r.code != exitUsage {
			t.Errorf("%v: exit code %d: %s", bad, r.code, r.errout)
		}
	}
}

// TestPCIe_badSources: what is missing, no dump, or no drive.
func TestPCIe_badSources(t *testing.T) {
	dir := t.TempDir()
	words := filepath.Join(dir, "words")
	if err := os.WriteFile(words, []byte("no dump\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"show", "path", "audit", "ceiling"} {
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{"--from", filepath.Join(dir, "missing")}, exitFailed, "missing"},
			{[]string{"--from", words}, exitFailed, "not a dump of lspci -xxxx"},
			{[]string{"--from", pcieDump, "09:00.0"}, exitFailed, "0000:09:00.0: no such PCI function"},
			{[]string{"--from", pcieDump, "/dev/nvme0"}, exitUsage, "PCI addresses only"},
			{[]string{"--from", pcieDump, "--root", dir}, exitUsage, "two sources"},
			{[]string{"/dev/nvme99"}, exitFailed, "/dev/nvme99"},
			{[]string{"/dev/null"}, exitFailed, "/dev/null"},
			{[]string{"nvme0"}, exitUsage, "use /dev/nvme0"},
			{[]string{"sim:pm9a3-3840"}, exitUnsupported, "no device of this machine"},
			{[]string{"ffff:ff:1f.7"}, exitFailed, "no such PCI function"},
		} {
			r := call(t, append(append([]string{"pcie", command}, c.args...), "-o", "json")...)
			wantFailure(t, r, c.code)
			if !strings.Contains(r.errout, c.says) {
				t.Errorf("%s %v: %s", command, c.args, r.errout)
			}
		}
	}
	for address, code := range map[string]int{
		"sim:" + filepath.Join(dir, "missing"): exitFailed, "/dev/nvme99": exitFailed, "/dev/null": exitFailed, "sim:" + words: exitFailed, "drive": exitUsage,
	} {
		wantFailure(t, call(t, "pcie", "set", address, "--mps", "auto", "-o", "json"), code)
	}
	for _, bad := range [][]string{{}, {"--mps", "300"}, {"--mps", "many"}, {"--mrrs", "100"}, {"--mps", "auto", "--accept", "everything"}} {
		if r := call(t, append([]string{"pcie", "set", "/dev/nvme99"}, bad...)...); r.code != exitUsage && len(bad) != 4 {
			t.Errorf("%v: exit code %d: %s", bad, r.code, r.errout)
		}
	}
}

// TestPCIe_recordedTrees reads trees of other machines: several paths to one
// namespace, a drive on a network, and one without privilege.
func TestPCIe_recordedTrees(t *testing.T) {
	m := newPCIeMachine(t)
	r := call(t, "pcie", "path", "--root", m.root, "/dev/nvme0", "-o", "json")
	var doc struct {
		Devices []struct {
			Controller string     `json:"controller"`
			Address    string     `json:"address"`
			Hops       []struct{} `json:"hops"`
		} `json:"devices"`
	}
	pcieDocument(t, r, "nvop.pcie-path/1", &doc)
	if len(doc.Devices) != 1 || doc.Devices[0].Controller != "nvme0" || doc.Devices[0].Address != "0000:03:00.0" || len(doc.Devices[0].Hops) != 4 {
		t.Errorf("%s", r.out)
	}
	if r := call(t, "pcie", "show", "--root", m.root); r.code != 0 || strings.Count(r.out, "serial number") != 3 {
		t.Errorf("all controllers: exit code %d:\n%s", r.code, r.out)
	}
	// Without privilege each function shows its header alone.
	m.truncate(64)
	r = call(t, "pcie", "audit", "--root", m.root, "/dev/nvme0")
	if r.code != exitFindings || !strings.Contains(r.out, "this does not mean that the capability is missing") || !strings.Contains(r.errout, "could not be judged") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.errout)
	}
	r = call(t, "pcie", "show", "--root", m.root, "/dev/nvme0")
	if r.code != 0 || !strings.Contains(r.out, "CAP_SYS_ADMIN") || strings.Contains(r.out, "no PCI Express capability") {
		t.Errorf("exit code %d:\n%s", r.code, r.out)
	}
	if r := call(t, "pcie", "ceiling", "--root", m.root, "/dev/nvme0"); r.code != exitFailed || !strings.Contains(r.errout, "CAP_SYS_ADMIN") {
		t.Errorf("exit code %d: %s", r.code, r.errout)
	}
	// A controller on a network has no PCI path.
	m.file("/sys/devices/virtual/nvme-fabrics/ctl/nvme9/transport", "tcp\n")
	m.file("/sys/devices/virtual/nvme-fabrics/ctl/nvme9/address", "traddr=192.0.2.1\n")
	m.file("/sys/devices/virtual/nvme-fabrics/ctl/nvme9/serial", "T1\n")
	m.link("/sys/class/nvme/nvme9", "../../devices/virtual/nvme-fabrics/ctl/nvme9")
	m.file("/dev/nvme9", "")
	if r := call(t, "pcie", "show", "--root", m.root, "/dev/nvme9"); r.code != exitUnsupported || !strings.Contains(r.errout, "transport tcp") {
		t.Errorf("exit code %d: %s", r.code, r.errout)
	}
}

// TestPCIe_summary is the line for other commands' pages.
func TestPCIe_summary(t *testing.T) {
	m := newPCIeMachine(t)
	want := "16 GT/s x4 (ok); payload 128 of 512 bytes, read requests of 512; at most 6.61 GB/s reading, 6.59 writing; critical: payload.h2-completion-exceeds-port (nvop pcie audit)"
	if got := pcieSummary(m.root, "0000:03:00.0"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, address := range []string{"", "0000:09:00.0", "traddr=192.0.2.1"} {
		if got := pcieSummary(m.root, address); got != "" {
			t.Errorf("%q: %q", address, got)
		}
	}
}

// TestPCIe_executors: resume and rollback find every kind of step.
func TestPCIe_executors(t *testing.T) {
	s := newPCIeSession(t, "0000:05:00.0")
	ch, err := pcieSetCmd{Device: "/dev/nvme2", MPS: "auto"}.plan(t.Context(), s.drive, s.sysfs())
	if err != nil {
		t.Fatal(err)
	}
	known := pcieExecutors(s.drive, nil)
	for _, step := range ch.steps {
		if known[step.Kind] == nil {
			t.Errorf("no executor for %s", step.Kind)
		}
	}
}
