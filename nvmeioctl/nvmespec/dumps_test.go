package nvmespec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

// update rewrites the golden files, which are then reviewed as a difference.
var update = flag.Bool("update", false, "rewrite testdata/golden")

// dumps says what each raw dump is.
func dumps() map[string]string {
	return map[string]string{
		"active-ns-list": "ns-list", "alloc-ns-list": "ns-list", "attached-ctrls-1": "ctrl-list", "ctrl-list": "ctrl-list",
		"changed-ns-log": "changed-ns", "effects-log": "effects", "error-log": "error", "fw-log": "fw", "smart-log": "smart",
		"id-ctrl": "id-ctrl", "id-ctrl-csi-nvm": "id-ctrl-nvm", "id-ns-1": "id-ns", "id-ns-1-after-format4": "id-ns",
		"id-ns-2-detached": "id-ns", "id-ns-7-inactive": "id-ns", "id-ns-alloc-1": "id-ns", "id-ns-alloc-2-detached": "id-ns",
		"id-ns-csi-nvm-1": "id-ns-nvm", "ns-descs-1": "ns-descs",
	}
}

func readDump(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "qemu-7.2-linux-6.12", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDumps_golden(t *testing.T) {
	files, err := filepath.Glob("testdata/qemu-7.2-linux-6.12/*.bin")
	if err != nil || len(files) != len(dumps()) {
		t.Fatalf("%d dumps, %d are described: %v", len(files), len(dumps()), err)
	}
	for name, kind := range dumps() {
		v, err := nvmespec.DecodeKind(kind, readDump(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got = append(got, '\n')
		path := filepath.Join("testdata", "golden", name+".json")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestDumps_controllerByTable reads QEMU's page by the table alone and compares
// what the codec says of it.
func TestDumps_controllerByTable(t *testing.T) {
	raw := loadOracle(t).load(t, "nvme_id_ctrl", readDump(t, "id-ctrl"))
	c, err := nvmespec.DecodeController(raw.b)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]uint64{
		"vid": uint64(c.VendorID), "ssvid": uint64(c.SubsystemVendorID), "cntlid": uint64(c.ControllerID), "ver": uint64(c.Version),
		"oaes": uint64(c.Events), "ctratt": uint64(c.Attributes), "oacs": uint64(c.Admin), "acl": uint64(c.AbortLimit) - 1,
		"aerl": uint64(c.AsyncEventLimit) - 1, "lpa": uint64(c.Logs), "elpe": uint64(c.ErrorLogEntries) - 1,
		"npss": uint64(len(c.PowerStates)) - 1, "nn": uint64(c.NamespaceIDMax), "oncs": uint64(c.IO), "fna": uint64(c.Format),
		"wctemp": uint64(c.WarningTemperature.Value + 273), "cctemp": uint64(c.CriticalTemperature.Value + 273),
		"sgls": uint64(c.SGL), "mnan": uint64(c.AllowedNamespacesMax), "rab": uint64(c.ArbitrationBurstLog2), "cmic": uint64(c.MultiPath),
	} {
		if want := raw.get(name); got != want {
			t.Errorf("%s: %#x, the table reads %#x", name, got, want)
		}
	}
	if mdts := raw.get("mdts"); c.MaxTransferBytes != 4096<<mdts {
		t.Errorf("mdts %d is %d bytes", mdts, c.MaxTransferBytes)
	}
	f := raw.field("sn")
	if want := string(bytes.TrimRight(raw.b[f.off:f.off+f.size], " ")); c.SerialNumber != want {
		t.Errorf("serial %q, want %q", c.SerialNumber, want)
	}
}

func TestDumps_namespacesByTable(t *testing.T) {
	o := loadOracle(t)
	for _, name := range []string{"id-ns-1", "id-ns-1-after-format4", "id-ns-alloc-1", "id-ns-alloc-2-detached"} {
		raw := o.load(t, "nvme_id_ns", readDump(t, name))
		ns, err := nvmespec.DecodeNamespace(raw.b)
		if err != nil {
			t.Fatal(err)
		}
		if ns.SizeBlocks != raw.get("nsze") || ns.CapacityBlocks != raw.get("ncap") || ns.UsedBlocks != raw.get("nuse") || len(ns.Formats) != int(raw.get("nlbaf"))+1 {
			t.Errorf("%s: %+v", name, ns)
		}
		format, ok := ns.Format()
		lbads := raw.b[raw.field("lbaf").off+4*int(raw.get("flbas")&15)+2]
		if !ok || format.DataBytes != 1<<lbads {
			t.Errorf("%s: format %+v, LBADS %d", name, format, lbads)
		}
	}
	before, _ := nvmespec.DecodeNamespace(readDump(t, "id-ns-1"))
	after, _ := nvmespec.DecodeNamespace(readDump(t, "id-ns-1-after-format4"))
	if before.SizeBytes() != after.SizeBytes() || before.SizeBlocks != 8*after.SizeBlocks { // LIST-01
		t.Errorf("512 to 4096 bytes: %s to %s bytes, %d to %d blocks", before.SizeBytes(), after.SizeBytes(), before.SizeBlocks, after.SizeBlocks)
	}
	for _, name := range []string{"id-ns-2-detached", "id-ns-7-inactive"} {
		if ns, err := nvmespec.DecodeNamespace(readDump(t, name)); err != nil || ns.Active() {
			t.Errorf("%s: active %v, %v", name, ns.Active(), err)
		}
	}
}

func TestDumps_lists(t *testing.T) {
	for name, want := range map[string][]uint32{"active-ns-list": {1, 2}, "alloc-ns-list": {1, 2}, "changed-ns-log": nil} {
		if got, err := nvmespec.DecodeNamespaceList(readDump(t, name)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"ctrl-list", "attached-ctrls-1"} {
		if got, err := nvmespec.DecodeControllerList(readDump(t, name)); err != nil || len(got) == 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	s, err := nvmespec.DecodeSMART(readDump(t, "smart-log")) // SMART-12
	if temp, ok := s.Temperature.Get(); err != nil || !ok || temp != 50 {
		t.Errorf("QEMU reports 323 K: %v, %v", s.Temperature, err)
	}
}

func TestDecodeKind_refusals(t *testing.T) {
	for _, kind := range nvmespec.Kinds() {
		if _, err := nvmespec.DecodeKind(kind, nil); !errors.Is(err, nvmespec.ErrShort) {
			t.Errorf("%s of nothing: %v", kind, err)
		}
		if _, err := nvmespec.DecodeKind(kind, make([]byte, 7)); !errors.Is(err, nvmespec.ErrShort) {
			t.Errorf("%s of 7 bytes: %v", kind, err)
		}
	}
	if _, err := nvmespec.DecodeKind("nonsense", nil); !errors.Is(err, nvmespec.ErrUnknownKind) {
		t.Errorf("unknown kind: %v", err)
	}
}
