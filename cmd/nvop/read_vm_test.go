package main_test

import (
	"bytes"
	"fmt"
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
		{Name: "read/controller-fields-agree", Run: guestControllerFields},
		{Name: "read/namespace-fields-agree", Run: guestNamespaceFields},
		{Name: "read/health-fields-agree", Run: guestHealthFields},
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
	if want := []string{plainSerial, slowSerial, spareSerial, sharedDrive, sharedDrive}; !slices.Equal(found, want) {
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
	for _, name := range []string{"smart", "error", "fw", "effects", "changed-ns"} {
		doc := document(t, "log", node, name)
		if text(doc["serial"]) != plainSerial || doc["value"] == nil {
			t.Errorf("log %s: %v", name, doc)
		}
		if r := want(t, 0, "log", node, name); strings.TrimSpace(r.stdout) == "" {
			t.Errorf("log %s prints nothing", name)
		}
	}
	want(t, 80, "log", node, "no-such-log")
	// The drive's answer to a log that it does not have is no failure of the drive.
	want(t, 5, "log", node, "ocp-c0")
	want(t, 5, "log", node, "memblaze-ca")
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
// reads by itself, bytes and meaning.
func guestDecode(t *testing.T) {
	node := controllerNode(t, plainSerial)
	for _, c := range []struct {
		kind string
		save []string
		log  bool
	}{
		{"id-ctrl", []string{"id-ctrl", node}, false},
		{"id-ns", []string{"id-ns", node, "-n", "1"}, false},
		{"smart", []string{"smart-log", node}, true},
		{"error", []string{"error-log", node}, true},
		{"fw", []string{"fw-log", node}, true},
		// nvme-cli 2.3 saves nothing of effects-log.
		{"effects", []string{"get-log", node, "--log-id=5", "--log-len=4096"}, true},
	} {
		t.Run(c.kind, func(t *testing.T) {
			file := saveRaw(t, c.kind, c.save...)
			doc := document(t, "decode", c.kind, file)
			if text(doc["log"]) != c.kind || doc["value"] == nil {
				t.Errorf("document %v", doc)
			}
			if c.kind == "id-ctrl" && text(deep(doc, "value", "serial_number")) != plainSerial {
				t.Errorf("serial number %v", deep(doc, "value", "serial_number"))
			}
			if !c.log {
				return
			}
			saved := filepath.Join(t.TempDir(), "own.bin")
			own := document(t, "log", node, c.kind, "--save", saved)
			if a, b := text(doc["value"]), text(own["value"]); a != b {
				t.Errorf("decoded from nvme-cli's file:\n%s\nread by nvop:\n%s", a, b)
			}
			sameStart(t, file, saved)
		})
	}
	truncated := filepath.Join(t.TempDir(), "short.bin")
	if err := os.WriteFile(truncated, make([]byte, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, 1, "decode", "id-ctrl", truncated)
}

// sameStart compares two dumps as far as both go: tools differ in how much of a
// log they read.
func sameStart(t *testing.T, theirs, ours string) {
	t.Helper()
	a, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	n := min(len(a), len(b))
	if n == 0 || !bytes.Equal(a[:n], b[:n]) {
		t.Errorf("nvme-cli and nvop saved different bytes (%d and %d)", len(a), len(b))
	}
}

// field is one value as our codec and as nvme-cli read it.
type field struct {
	name         string
	ours, theirs any
}

func compare(t *testing.T, fields []field) {
	t.Helper()
	for _, f := range fields {
		if fmt.Sprint(f.ours) != fmt.Sprint(f.theirs) {
			t.Errorf("%s: %v, nvme-cli says %v", f.name, f.ours, f.theirs)
		}
	}
}

// number is a number in nvme-cli's JSON, which quotes the wide ones.
func number(t *testing.T, doc map[string]any, key string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text(doc[key]), 10, 64)
	if err != nil {
		t.Fatalf("nvme-cli's %s: %v", key, err)
	}
	return n
}

func rawBytes(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(saveRaw(t, name, args...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// guestControllerFields compares our codec with nvme-cli's, field by field, on
// the bytes of a running controller.
func guestControllerFields(t *testing.T) {
	node := controllerNode(t, sharedDrive)
	c, err := nvmespec.DecodeController(rawBytes(t, "id-ctrl", "id-ctrl", node))
	if err != nil {
		t.Fatal(err)
	}
	id := nvmeCLI(t, "id-ctrl", node)
	n := func(key string) uint64 { t.Helper(); return number(t, id, key) }
	compare(t, []field{
		{"vid", c.VendorID, n("vid")},
		{"ssvid", c.SubsystemVendorID, n("ssvid")},
		{"sn", c.SerialNumber, text(id["sn"])},
		{"mn", c.ModelNumber, text(id["mn"])},
		{"fr", c.FirmwareRevision, text(id["fr"])},
		{"rab", c.ArbitrationBurstLog2, n("rab")},
		{"ieee", c.OUI, n("ieee")},
		{"cmic", uint64(c.MultiPath), n("cmic")},
		{"mdts", c.MaxTransferBytes, uint64(4096) << n("mdts")},
		{"cntlid", c.ControllerID, n("cntlid")},
		{"ver", uint64(c.Version), n("ver")},
		{"rtd3r", c.RTD3ResumeMicroseconds, n("rtd3r")},
		{"oaes", uint64(c.Events), n("oaes")},
		{"ctratt", uint64(c.Attributes), n("ctratt")},
		{"cntrltype", c.Type, n("cntrltype")},
		{"oacs", uint64(c.Admin), n("oacs")},
		{"acl", c.AbortLimit, n("acl") + 1},
		{"aerl", c.AsyncEventLimit, n("aerl") + 1},
		{"frmw", c.FirmwareSlotCount, n("frmw") >> 1 & 7},
		{"lpa", uint64(c.Logs), n("lpa")},
		{"elpe", c.ErrorLogEntries, n("elpe") + 1},
		{"npss", len(c.PowerStates), n("npss") + 1},
		{"tnvmcap", c.TotalCapacityBytes, text(id["tnvmcap"])},
		{"unvmcap", c.UnallocatedCapacityBytes, text(id["unvmcap"])},
		{"nn", c.NamespaceIDMax, n("nn")},
		{"mnan", c.AllowedNamespacesMax, n("mnan")},
		{"oncs", uint64(c.IO), n("oncs")},
		{"fna", uint64(c.Format), n("fna")},
		{"ocfs", c.CopyFormats, n("ocfs")},
		{"sgls", c.SGL, n("sgls")},
		{"subnqn", c.SubsystemNQN, text(id["subnqn"])},
	})
}

func guestNamespaceFields(t *testing.T) {
	node := controllerNode(t, sharedDrive)
	ns, err := nvmespec.DecodeNamespace(rawBytes(t, "id-ns", "id-ns", node, "-n", "2"))
	if err != nil {
		t.Fatal(err)
	}
	id := nvmeCLI(t, "id-ns", node, "-n", "2")
	n := func(key string) uint64 { t.Helper(); return number(t, id, key) }
	compare(t, []field{
		{"nsze", ns.SizeBlocks, n("nsze")},
		{"ncap", ns.CapacityBlocks, n("ncap")},
		{"nuse", ns.UsedBlocks, n("nuse")},
		{"nsfeat", uint64(ns.Features), n("nsfeat")},
		{"nlbaf", len(ns.Formats), n("nlbaf") + 1},
		{"flbas", ns.FormatIndex, n("flbas") & 15},
		{"mc", ns.MetadataCapabilities, n("mc")},
		{"dpc", ns.ProtectionCapabilities, n("dpc")},
		{"nmic", ns.Shared, n("nmic")&1 != 0},
		{"dlfeat", ns.DeallocateFeatures, n("dlfeat")},
		{"nvmcap", ns.NVMCapacityBytes, text(id["nvmcap"])},
		{"npdg", ns.PreferredDeallocateGranularityBlocks.Value, n("npdg") + 1},
		{"npda", ns.PreferredDeallocateAlignmentBlocks.Value, n("npda") + 1},
	})
	for i, theirs := range objects(t, id, "lbafs") {
		if i >= len(ns.Formats) {
			break
		}
		ours := ns.Formats[i]
		compare(t, []field{
			{fmt.Sprintf("lbaf %d ms", i), ours.MetadataBytes, number(t, theirs, "ms")},
			{fmt.Sprintf("lbaf %d ds", i), ours.DataBytes, uint64(1) << number(t, theirs, "ds")},
			{fmt.Sprintf("lbaf %d index", i), ours.Index, i},
		})
	}
}

// guestHealthFields moves some data first, so that the counters are not all 0.
func guestHealthFields(t *testing.T) {
	wipe(t)
	node := controllerNode(t, plainSerial)
	tool(t, "dd", "if=/dev/zero", "of="+blockNode(t, plainSerial, 1), "bs=1M", "count=8", "oflag=direct", "status=none")
	log, err := nvmespec.DecodeSMART(rawBytes(t, "smart", "smart-log", node))
	if err != nil {
		t.Fatal(err)
	}
	theirs := nvmeCLI(t, "smart-log", node)
	n := func(key string) uint64 { t.Helper(); return number(t, theirs, key) }
	compare(t, []field{
		{"critical_warning", uint64(log.CriticalWarning), n("critical_warning")},
		{"temperature", int(log.Temperature.Value) + 273, n("temperature")},
		{"percent_used", log.UsedPercent, n("percent_used")},
		{"data_units_read", log.DataUnitsRead, n("data_units_read")},
		{"data_units_written", log.DataUnitsWritten, n("data_units_written")},
		{"host_read_commands", log.HostReads, n("host_read_commands")},
		{"host_write_commands", log.HostWrites, n("host_write_commands")},
		{"power_on_hours", log.PowerOnHours, n("power_on_hours")},
		{"media_errors", log.MediaErrors, n("media_errors")},
	})
	// A third reader, which counts from the same structure by itself.
	smartctl := decodeOne(t, attempt(t, nil, "smartctl", "-j", "-A", node).stdout)
	third, ok := smartctl["nvme_smart_health_information_log"].(map[string]any)
	if !ok {
		t.Fatalf("smartctl: %v", smartctl)
	}
	if fmt.Sprint(log.DataUnitsWritten) != text(third["data_units_written"]) || number(t, third, "data_units_written") == 0 {
		t.Errorf("data units written: %v, smartctl says %v", log.DataUnitsWritten, third["data_units_written"])
	}
	slots, err := nvmespec.DecodeFirmwareSlots(rawBytes(t, "fw", "fw-log", node))
	if err != nil {
		t.Fatal(err)
	}
	// QEMU's log says "1.0" whatever its Identify data says; nvme-cli shows the same.
	if slots.Active != 1 || slots.Revisions[0] != "1.0" {
		t.Errorf("firmware slots %+v", slots)
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
		}
		doc := decodeOne(t, want(t, c.code, "show", c.path, "-o", "json").stdout)
		if text(doc["exit_code"]) != strconv.Itoa(c.code) {
			t.Errorf("nvop show %s: error document %v", c.path, doc)
		}
	}
}
