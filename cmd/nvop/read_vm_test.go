package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetest/vm"
)

// readCases run the reading commands; nvme-cli and sysfs are the witnesses.
func readCases() []vm.Case {
	return []vm.Case{
		{Name: "read/list", Run: guestList},
		{Name: "read/ns-list", Run: guestNSList},
		{Name: "read/show", Run: guestShow},
		{Name: "read/log", Run: guestLog},
		{Name: "read/decode", Run: guestDecode},
		{Name: "read/fields-agree-with-nvme-cli", Run: guestFields},
		{Name: "read/no-such-device", Run: guestNoDevice},
	}
}

// objects returns the list of objects at a key of a document.
func objects(t *testing.T, doc map[string]any, key string) []map[string]any {
	t.Helper()
	list, ok := doc[key].([]any)
	if !ok {
		t.Fatalf("document has no list %q: %v", key, doc)
	}
	var out []map[string]any
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			t.Fatalf("%q holds %v", key, item)
		}
		out = append(out, m)
	}
	return out
}

func guestList(t *testing.T) {
	doc := document(t, "list")
	var found []string
	for _, c := range objects(t, doc, "controllers") {
		name := text(c["name"])
		found = append(found, text(c["serial"]))
		if text(c["serial"]) != sysfs("class/nvme", name, "serial") ||
			text(c["pci_address"]) != sysfs("class/nvme", name, "address") ||
			text(c["cntlid"]) != sysfs("class/nvme", name, "cntlid") ||
			text(c["firmware"]) != sysfs("class/nvme", name, "firmware_rev") {
			t.Errorf("controller %v is not what sysfs says", c)
		}
	}
	slices.Sort(found)
	if want := []string{plainSerial, spareSerial, sharedDrive, sharedDrive}; !slices.Equal(found, want) {
		t.Errorf("serials %v, want %v", found, want)
	}
	for _, ns := range objects(t, doc, "namespaces") {
		name := text(ns["name"])
		sectors, err := strconv.ParseUint(sysfs("block", name, "size"), 10, 64)
		if err != nil {
			t.Errorf("namespace %v: sysfs knows no such disk: %v", ns, err)
			continue
		}
		// The size in sysfs is in units of 512 bytes whatever the block is.
		if text(ns["size_bytes"]) != strconv.FormatUint(sectors*512, 10) || text(ns["nsid"]) != sysfs("block", name, "nsid") {
			t.Errorf("namespace %v is not what sysfs says", ns)
		}
	}
	if r := want(t, 0, "list"); !strings.Contains(r.stdout, plainSerial) || !strings.Contains(r.stdout, blockNode(t, sharedDrive, 3)) {
		t.Errorf("table lacks a drive: %v", r)
	}
}

// guestNSList holds attachment, which is what the drive says and no node shows,
// against nvme-cli's reading of Identify CNS 12h.
func guestNSList(t *testing.T) {
	node := controllerNode(t, sharedDrive)
	doc := document(t, "ns", "list", node)
	list := objects(t, doc, "namespaces")
	if len(list) != 3 || text(doc["serial"]) != sharedDrive {
		t.Fatalf("ns list of %s: %v", node, doc)
	}
	for _, ns := range list {
		nsid := text(ns["nsid"])
		theirs := nvmeCLI(t, "list-ctrl", node, "-n", nsid)
		var ids []string
		for _, c := range objects(t, theirs, "ctrl_list") {
			ids = append(ids, text(c["ctrl_id"]))
		}
		var ours []string
		if attached, ok := ns["controllers"].([]any); ok {
			for _, id := range attached {
				ours = append(ours, text(id))
			}
		}
		if len(ours) != 2 || !slices.Equal(ours, ids) {
			t.Errorf("namespace %s is attached to %v, nvme-cli says %v", nsid, ours, ids)
		}
		idns := nvmeCLI(t, "id-ns", node, "-n", nsid)
		if text(ns["size_blocks"]) != text(idns["nsze"]) {
			t.Errorf("namespace %s has %v blocks, nvme-cli says %v", nsid, ns["size_blocks"], idns["nsze"])
		}
	}
	// A namespace's own node leads to the same drive.
	if same := document(t, "ns", "list", blockNode(t, sharedDrive, 2)); text(same["serial"]) != sharedDrive {
		t.Errorf("ns list by a namespace's node: %v", same)
	}
}

func guestShow(t *testing.T) {
	for _, serial := range []string{plainSerial, sharedDrive} {
		if doc := document(t, "show", controllerNode(t, serial)); text(doc["serial"]) != serial {
			t.Errorf("show: serial %v, want %s", doc["serial"], serial)
		}
		if r := want(t, 0, "show", blockNode(t, serial, 1)); !strings.Contains(r.stdout, serial) {
			t.Errorf("show by the namespace's node: %v", r)
		}
	}
	r := want(t, 0, "show", "--trace", controllerNode(t, plainSerial))
	if !strings.Contains(r.stderr, "06") {
		t.Errorf("a trace without an Identify (06h): %v", r)
	}
}

func guestLog(t *testing.T) {
	node := controllerNode(t, plainSerial)
	for _, name := range []string{"smart", "error", "fw-slot", "effects"} {
		doc := document(t, "log", node, name)
		if !strings.HasPrefix(text(doc["schema"]), "nvop.") {
			t.Errorf("log %s: schema %v", name, doc["schema"])
		}
		if r := want(t, 0, "log", node, name); strings.TrimSpace(r.stdout) == "" {
			t.Errorf("log %s prints nothing", name)
		}
	}
	if r := nvop(t, "log", node, "no-such-log"); r.code != 80 {
		t.Errorf("an unknown log: want exit code 80, got %v", r)
	}
}

// saveRaw has nvme-cli write a structure to a file as it came from the drive.
func saveRaw(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".bin")
	out := tool(t, "nvme", append(args, "--raw-binary")...)
	if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// guestDecode decodes what nvme-cli saved and compares it with what this program
// reads by itself.
func guestDecode(t *testing.T) {
	node := controllerNode(t, plainSerial)
	for _, c := range []struct {
		kind string
		save []string
		log  string
	}{
		{"id-ctrl", []string{"id-ctrl", node}, ""},
		{"id-ns", []string{"id-ns", node, "-n", "1"}, ""},
		{"smart", []string{"smart-log", node}, "smart"},
		{"error", []string{"error-log", node}, "error"},
		{"fw-slot", []string{"fw-log", node}, "fw-slot"},
		{"effects", []string{"effects-log", node}, "effects"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			doc := document(t, "decode", c.kind, saveRaw(t, c.kind, c.save...))
			if c.kind == "id-ctrl" && !strings.Contains(text(doc), plainSerial) {
				t.Errorf("serial number is not in %v", doc)
			}
			if c.log == "" {
				return
			}
			own := document(t, "log", node, c.log)
			if a, b := text(payload(doc)), text(payload(own)); a != b && c.log != "smart" {
				t.Errorf("decoded from nvme-cli's file:\n%s\nread by nvop:\n%s", a, b)
			}
		})
	}
}

// payload is a document without what says where it came from.
func payload(doc map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range doc {
		if !slices.Contains([]string{"schema", "address", "file", "source", "kind", "name", "serial", "read_at", "log"}, k) {
			out[k] = v
		}
	}
	return out
}

// guestFields compares our codec with nvme-cli's, field by field, on the bytes
// of a running controller.
func guestFields(t *testing.T) {
	node := controllerNode(t, sharedDrive)
	raw, err := os.ReadFile(saveRaw(t, "id-ctrl", "id-ctrl", node))
	if err != nil {
		t.Fatal(err)
	}
	c, err := nvmespec.DecodeController(raw)
	if err != nil {
		t.Fatal(err)
	}
	id := nvmeCLI(t, "id-ctrl", node)
	number := func(doc map[string]any, key string) uint64 {
		n, err := strconv.ParseUint(text(doc[key]), 10, 64)
		if err != nil {
			t.Fatalf("nvme-cli's %s: %v", key, err)
		}
		return n
	}
	for _, f := range []struct {
		key    string
		ours   any
		theirs any
	}{
		{"vid", uint64(c.VendorID), number(id, "vid")},
		{"ssvid", uint64(c.SubsystemVendorID), number(id, "ssvid")},
		{"sn", c.SerialNumber, text(id["sn"])},
		{"mn", c.ModelNumber, text(id["mn"])},
		{"fr", c.FirmwareRevision, text(id["fr"])},
		{"ieee", uint64(c.OUI), number(id, "ieee")},
		{"cmic", uint64(c.MultiPath), number(id, "cmic")},
		{"mdts", c.MaxTransferBytes, uint64(4096) << number(id, "mdts")},
		{"cntlid", uint64(c.ControllerID), number(id, "cntlid")},
		{"ver", uint64(c.Version), number(id, "ver")},
		{"oacs", uint64(c.Admin), number(id, "oacs")},
		{"acl", uint64(c.AbortLimit), number(id, "acl") + 1},
		{"aerl", uint64(c.AsyncEventLimit), number(id, "aerl") + 1},
		{"lpa", uint64(c.Logs), number(id, "lpa")},
		{"elpe", uint64(c.ErrorLogEntries), number(id, "elpe") + 1},
		{"npss", uint64(len(c.PowerStates)), number(id, "npss") + 1},
		{"nn", uint64(c.NamespaceIDMax), number(id, "nn")},
		{"oncs", uint64(c.IO), number(id, "oncs")},
		{"fna", uint64(c.Format), number(id, "fna")},
		{"subnqn", c.SubsystemNQN, text(id["subnqn"])},
		{"tnvmcap", c.TotalCapacityBytes.String(), text(id["tnvmcap"])},
		{"unvmcap", c.UnallocatedCapacityBytes.String(), text(id["unvmcap"])},
	} {
		if f.ours != f.theirs {
			t.Errorf("%s: %v, nvme-cli says %v", f.key, f.ours, f.theirs)
		}
	}
}

// guestNoDevice: a device that is not there, and files that are no device.
func guestNoDevice(t *testing.T) {
	for _, c := range []struct {
		path string
		code int
	}{
		{"/dev/nvme99", 1}, {"/dev/null", 1}, {"/etc/passwd", 1}, {"/dev", 1},
		{"nvme0", 80}, {"weird:thing", 80},
	} {
		for _, command := range [][]string{{"show", c.path}, {"ns", "list", c.path}, {"format", c.path, "--lba", "4096", "--confirm-serial", plainSerial}} {
			r := want(t, c.code, command...)
			if r.stdout != "" {
				t.Errorf("nvop %q prints on standard output: %v", command, r)
			}
			if lines := strings.Split(strings.TrimSpace(r.stderr), "\n"); len(lines) != 1 || !strings.Contains(r.stderr, c.path) {
				t.Errorf("nvop %q: not one line that names it: %v", command, r)
			}
			doc := decodeOne(t, want(t, c.code, append(command, "-o", "json")...).stdout)
			if text(doc["exit_code"]) != strconv.Itoa(c.code) {
				t.Errorf("nvop %q: error document %v", command, doc)
			}
		}
	}
}
