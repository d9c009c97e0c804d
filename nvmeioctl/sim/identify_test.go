package sim

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim/ftl"
)

func TestProfilesAreValid(t *testing.T) {
	names := map[string]bool{}
	for _, p := range Profiles() {
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		if names[p.Name] {
			t.Errorf("%s is there twice", p.Name)
		}
		names[p.Name] = true
		// Exactly what the profile says must come back through the codec.
		h := host{t, newTestDrive(t, p.Name, nil)}
		c := h.controller()
		if c.VendorID != p.VendorID || c.ModelNumber != p.Model || c.FirmwareRevision != p.Firmware || c.OUI != p.OUI ||
			c.MaxTransferBytes != uint64(p.MaxTransferBytes) || int(c.ErrorLogEntries) != p.ErrorLogEntries || c.NamespaceIDMax != p.MaxNamespaces ||
			len(c.PowerStates) != len(p.PowerStates) || c.FirmwareSlotCount != p.FirmwareSlots {
			t.Errorf("%s: identify controller differs: %+v", p.Name, c)
		}
		n := h.namespace(1)
		if len(n.Formats) != len(p.Formats) || n.FormatIndex != p.FactoryFormat || n.SizeBytes() != nvmespec.U128(p.CapacityBytes) {
			t.Errorf("%s: identify namespace differs: %+v", p.Name, n)
		}
		if !strings.HasPrefix(c.SerialNumber, "SIM") || len(c.SerialNumber) > 20 {
			t.Errorf("%s: serial number %q", p.Name, c.SerialNumber)
		}
	}
	for _, want := range []string{"pblaze7-7940-7.68tb", "pe321-6.4tb", "pe501-61.44tb", "memblaze-p6531-3.84tb", "client-1tb"} {
		if !names[want] {
			t.Errorf("profile %s is missing", want)
		}
	}
	if _, ok := LookupProfile("pblaze8"); ok {
		t.Error("there is no pblaze8")
	}
}

// TestPublishedFigures pins the figures the issue names.
func TestPublishedFigures(t *testing.T) {
	p := profile(t, "pblaze7-7940-7.68tb")
	if p.VendorID != 0x1c5f || p.CapacityBytes != 7_681_501_126_656 || p.MaxNamespaces != 128 || p.FirmwareSlots != 3 || !p.Slot1ReadOnly ||
		!p.ActivatesWithoutReset || len(p.PowerStates) != 5 || p.PowerStates[0].MaxMilliwatts != 25_000 {
		t.Errorf("pblaze7: %+v", p)
	}
	var formats []string
	for _, f := range p.Formats {
		formats = append(formats, nvmespec.LBAFormat{DataBytes: f.DataBytes, MetadataBytes: f.MetadataBytes}.String())
	}
	if want := []string{"512", "4096", "512+8", "4096+8", "4096+64"}; !slices.Equal(formats, want) {
		t.Errorf("formats %v, want %v", formats, want)
	}
	f := p.Flash
	if ratio := float64(f.UsableBytes) / float64(8*tib); ratio < 1.0529 || ratio > 1.0531 {
		t.Errorf("T is %.4f x 8 TiB", ratio)
	}
	if f.CollectRatio != 0 || f.RandomWriteIOPS != 411e3 || f.RandomReadIOPS != 2828e3 || f.SequentialReadBytesPerSecond != 14.1e9 || f.SequentialWriteBytesPerSecond != 11e9 {
		t.Errorf("rates: %+v", f)
	}
	if p := profile(t, "pe321-6.4tb"); p.VendorID != 0x1e49 || p.CapacityBytes != 6_401_252_745_216 {
		t.Errorf("pe321: %+v", p)
	}
	if p := profile(t, "pe501-61.44tb"); p.Flash.CellBits != 4 || p.Flash.RatedCycles != 5000 || p.Flash.IndirectionBytes != 16384 {
		t.Errorf("pe501: %+v", p)
	}
}

// Each model says how its flash is built, and all else follows from that: what
// was published or inferred of T, of the mapping unit and of the floor.
func TestProfiles_layouts(t *testing.T) {
	for _, c := range []struct {
		name            string
		nominal, usable uint64
		unit            uint32
		floor           float64
		superblocks     uint64
	}{
		{"pblaze7-7940-7.68tb", 8 * tib, 9_262_285_952_385, 4096, 1.02, 1096},
		{"pe321-6.4tb", 8 * tib, 9_235_897_673_318, 4096, 1.02, 547},
		{"pe501-61.44tb", 64 * tib, 71_500_000_000_000, 16384, 1.02, 2114},
		{"memblaze-p6531-3.84tb", 4 * tib, 4_617_948_836_659, 4096, 1.02, 547},
		{"client-1tb", tib, tib, 4096, 1.03, 512},
	} {
		p := profile(t, c.name)
		f := p.Flash
		if f.NominalBytes != c.nominal || f.UsableBytes != c.usable || f.IndirectionBytes != c.unit || math.Abs(f.FloorWAF-c.floor) > 1e-12 || f.Layout.Superblocks() != c.superblocks {
			t.Errorf("%s: %d bytes of %d, units of %d, floor %g, %d superblocks", c.name, f.UsableBytes, f.NominalBytes, f.IndirectionBytes, f.FloorWAF, f.Layout.Superblocks())
		}
		for what, change := range map[string]func(f *Flash){
			"T": func(f *Flash) { f.UsableBytes++ }, "nominal": func(f *Flash) { f.NominalBytes *= 2 }, "floor": func(f *Flash) { f.FloorWAF = 1.011 },
			"unit": func(f *Flash) { f.IndirectionBytes *= 2 }, "dies": func(f *Flash) { f.Layout.Dies = 0 },
		} {
			bad := p
			if change(&bad.Flash); bad.Validate() == nil {
				t.Errorf("%s: another %s than the layout's was accepted", c.name, what)
			}
		}
		// As drives are that were made before there were layouts.
		p.Flash.Layout = ftl.Layout{}
		p.Flash.UsableBytes += 4096
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestP6531IsTheDrive compares the profile with what smartctl printed of the
// real drive.
func TestP6531IsTheDrive(t *testing.T) {
	root := os.Getenv("NVOP_FIXTURES")
	if root == "" {
		t.Skip("NVOP_FIXTURES is not set: the smartctl output of the real drive is not here")
	}
	text, err := os.ReadFile(filepath.Join(root, "nvme/linuxhw/MEMBLAZE_P6531DT0384Y00.smartctl-x.txt"))
	if err != nil {
		t.Fatal(err)
	}
	h := host{t, newTestDrive(t, "memblaze-p6531-3.84tb", nil)}
	c, n := h.controller(), h.namespace(1)
	field := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:\s+(.*)$`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("no field %q", name)
		}
		return m[1]
	}
	number := func(name string) uint64 {
		first, _, _ := strings.Cut(field(name), " ")
		v, err := strconv.ParseUint(strings.ReplaceAll(first, ",", ""), 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	frmw := uint64(c.FirmwareSlotCount) << 1
	if c.FirmwareSlot1ReadOnly {
		frmw |= 1
	}
	if c.FirmwareActivatesWithoutReset {
		frmw |= 1 << 4
	}
	hex := func(name string) uint64 {
		m := regexp.MustCompile(`(?m)^` + name + ` \((0x[0-9a-f]+)\):`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("no field %q", name)
		}
		v, err := strconv.ParseUint(m[1], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, k := range []struct {
		name      string
		got, want uint64
	}{
		{"vendor", uint64(c.VendorID), number("PCI Vendor/Subsystem ID")},
		{"OUI", uint64(c.OUI), number("IEEE OUI Identifier")},
		{"TNVMCAP", c.TotalCapacityBytes.Lo, number("Total NVM Capacity")},
		{"UNVMCAP", c.UnallocatedCapacityBytes.Lo, number("Unallocated NVM Capacity")},
		{"CNTLID", uint64(c.ControllerID), number("Controller ID")},
		{"NN", uint64(c.NamespaceIDMax), number("Number of Namespaces")},
		{"size", n.SizeBytes().Lo, number("Namespace 1 Size/Capacity")},
		{"FRMW", frmw, hex("Firmware Updates")},
		{"OACS", uint64(c.Admin), hex("Optional Admin Commands")},
		{"ONCS", uint64(c.IO), hex("Optional NVM Commands")},
		{"LPA", uint64(c.Logs), hex("Log Page Attributes")},
		{"NSFEAT", uint64(n.Features), hex("Namespace 1 Features")},
		{"MDTS", c.MaxTransferBytes / 4096, number("Maximum Data Transfer Size")},
		{"WCTEMP", uint64(c.WarningTemperature.Value), number("Warning  Comp. Temp. Threshold")},
		{"CCTEMP", uint64(c.CriticalTemperature.Value), number("Critical Comp. Temp. Threshold")},
		{"spare threshold", uint64(h.smart().SpareThresholdPercent), 5},
	} {
		if k.got != k.want {
			t.Errorf("%s is %#x, the drive's is %#x", k.name, k.got, k.want)
		}
	}
	if c.ModelNumber != field("Model Number") || c.FirmwareRevision != field("Firmware Version") || c.Version.String() != field("NVMe Version")+".0" {
		t.Errorf("model %q, firmware %q, version %s", c.ModelNumber, c.FirmwareRevision, c.Version)
	}
	watts := regexp.MustCompile(`(?m)^ \d \+ +([0-9.]+)W`).FindAllStringSubmatch(string(text), -1)
	if len(watts) != len(c.PowerStates) {
		t.Fatalf("%d power states, the drive has %d", len(c.PowerStates), len(watts))
	}
	for i, w := range watts {
		if v, _ := strconv.ParseFloat(w[1], 64); uint32(v*1e6) != uint32(c.PowerStates[i].MaxPower) {
			t.Errorf("power state %d: %s, the drive has %s W", i, c.PowerStates[i].MaxPower, w[1])
		}
	}
	formats := regexp.MustCompile(`(?m)^ \d [+-] +(\d+) +(\d+) +(\d)$`).FindAllStringSubmatch(string(text), -1)
	if len(formats) != len(n.Formats) {
		t.Fatalf("%d formats, the drive has %d", len(n.Formats), len(formats))
	}
	for i, m := range formats {
		f := n.Formats[i]
		if got := []string{strconv.Itoa(int(f.DataBytes)), strconv.Itoa(int(f.MetadataBytes)), strconv.Itoa(int(f.RelativePerformance))}; !slices.Equal(got, m[1:]) {
			t.Errorf("format %d: %v, the drive has %v", i, got, m[1:])
		}
	}
}

func TestIdentifyStatuses(t *testing.T) {
	const all = 0xFFFFFFFF
	for _, c := range []struct {
		profile string
		nsid    uint32
		cdw10   uint32
		cdw11   uint32
		cdw14   uint32
		want    nvmespec.Status
	}{
		{"pblaze7-7940-7.68tb", 1, 0x00, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 2, 0x00, 0, 0, 0}, // NS-57: inactive is success
		{"pblaze7-7940-7.68tb", 0x7777, 0x00, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", 0, 0x00, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", all, 0x00, 0, 0, 0}, // NS-55
		{"memblaze-p6531-3.84tb", all, 0x00, 0, 0, 0},
		{"client-1tb", all, 0x00, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", 0, 0x01, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 1, 0x01, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x02, 0, 0, 0},
		{"pblaze7-7940-7.68tb", all, 0x02, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", all - 1, 0x10, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", 1, 0x03, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 2, 0x03, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 129, 0x03, 0, 0, 0x400b},
		{"pblaze7-7940-7.68tb", 1, 0x04, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 1, 0x05, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 2, 0x05, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 1, 0x05, 1 << 24, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x06, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 1, 0x08, 0, 0, 0},
		{"memblaze-p6531-3.84tb", 1, 0x05, 0, 0, 0x4002}, // NVMe 1.4
		{"memblaze-p6531-3.84tb", 0, 0x06, 0, 0, 0x4002},
		{"memblaze-p6531-3.84tb", 1, 0x08, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x10, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 1, 0x11, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 1, 0x12, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 2, 0x12, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x13, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 0, 0x13 | 2<<16, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 0, 0x01 | 2<<16, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x16, 0, 0, 0x4002}, // it does not report granularity
		{"pe321-6.4tb", 0, 0x16, 0, 0, 0},
		{"pblaze7-7940-7.68tb", 0, 0x17, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0xFF, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x01 | 1<<8, 0, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x01, 1, 0, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x01, 0, 1, 0x4002},
		{"pblaze7-7940-7.68tb", 0, 0x01, 0, 0x80, 0x4002},
	} {
		h := host{t, newTestDrive(t, c.profile, nil)}
		done := h.raw(nvmeioctl.Command{Opcode: 0x06, NSID: c.nsid, CDW10: c.cdw10, CDW11: c.cdw11, CDW14: c.cdw14, Data: make([]byte, 4096)})
		if done.Status != c.want {
			t.Errorf("%s: identify %#x of %#x: status %#x, want %#x", c.profile, c.cdw10, c.nsid, uint16(done.Status), uint16(c.want))
		}
	}
}

func TestIdentifyContents(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	if b := h.identify(nvmespec.CNSNamespace, 2); !slices.Equal(b, make([]byte, 4096)) {
		t.Error("an inactive namespace is not all zero")
	}
	common := h.namespace(0xFFFFFFFF)
	if common.SizeBlocks != 0 || len(common.Formats) != 5 || common.Formats[4].MetadataBytes != 64 {
		t.Errorf("common capabilities: %+v", common)
	}
	n := h.namespace(1)
	ids := decoded(t, nvmespec.DecodeNamespaceIDs, h.identify(nvmespec.CNSDescriptors, 1))
	if ids.NGUID != n.NGUID || ids.EUI64 != n.EUI64 || ids.CommandSet != nvmespec.Some(uint8(0)) {
		t.Errorf("descriptors %+v of %v %v", ids, n.NGUID, n.EUI64)
	}
	if c := h.controllers(nvmespec.CNSControllers, 0); !slices.Equal(c, []uint16{1}) {
		t.Errorf("controllers %v", c)
	}
	data := make([]byte, 4096)
	h.want(nvmeioctl.Command{Opcode: 0x06, CDW10: 0x13 | 2<<16, Data: data}, 0)
	if c := decoded(t, nvmespec.DecodeControllerList, data); len(c) != 0 {
		t.Errorf("controllers from 2 on: %v", c)
	}
	ind := decoded(t, nvmespec.DecodeIndependentNamespace, h.identify(nvmespec.CNSIndependentNamespace, 1))
	if !ind.Ready || ind.Shared || ind.EnduranceGroupID != 1 {
		t.Errorf("independent: %+v", ind)
	}
	h.want(nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: make([]byte, 512)}, 0x4004)
}

// TestSameSeedSameDrive: identifiers follow from profile and seed.
func TestSameSeedSameDrive(t *testing.T) {
	serial := func(seed uint64) (string, nvmespec.GUID) {
		h := host{t, newTestDrive(t, "client-1tb", func(_ *Profile, o *Options) { o.Seed = seed })}
		return h.controller().SerialNumber, h.namespace(1).NGUID
	}
	s1, g1 := serial(1)
	s2, g2 := serial(1)
	s3, g3 := serial(2)
	if s1 != s2 || g1 != g2 || s1 == s3 || g1 == g3 {
		t.Errorf("serials %s %s %s, identifiers %v %v %v", s1, s2, s3, g1, g2, g3)
	}
	for _, o := range []Options{{Serial: strings.Repeat("x", 21)}, {Serial: "a\n"}, {Serial: " a"}, {Controllers: 9}, {Controllers: -1},
		{ReservedBytes: 1 << 50}, {FirmwareReset: 3}} {
		if _, err := New(profile(t, "client-1tb"), o); err == nil {
			t.Errorf("options %+v were taken", o)
		}
	}
}

func TestAdminStatuses(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	for _, c := range []struct {
		cmd  nvmeioctl.Command
		want nvmespec.Status
	}{
		{nvmeioctl.Command{Opcode: 0x03}, 0x4001},
		{nvmeioctl.Command{Opcode: 0x18}, 0x4001}, // keep alive: not on PCIe
		{nvmeioctl.Command{Opcode: 0x84}, 0x4002}, // sanitize without an action
		{nvmeioctl.Command{Opcode: 0xC0}, 0x4001},
		{nvmeioctl.Command{Opcode: 0x00, CDW10: 1}, 0x4101},
		{nvmeioctl.Command{Opcode: 0x01, CDW10: 1}, 0x4101},
		{nvmeioctl.Command{Opcode: 0x0C}, 0x4105},
		{nvmeioctl.Command{Opcode: 0x08, CDW10: 1}, 0},
		{nvmeioctl.Command{Opcode: 0x08, NSID: 1}, 0x4002},
		{nvmeioctl.Command{Opcode: 0x06, CDW10: 1, CDW3: 1}, 0x4002},
		{nvmeioctl.Command{IO: true, Opcode: 0x7F, NSID: 1}, 0x4001},
		{nvmeioctl.Command{IO: true, Opcode: 0x00, NSID: 1}, 0},
		{nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, Data: make([]byte, 512)}, 0},
		{nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, Data: make([]byte, 511)}, 0x4004},
		{nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 2, Data: make([]byte, 512)}, 0x4002},
		{nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 0, Data: make([]byte, 512)}, 0x400b},
		{nvmeioctl.Command{IO: true, Opcode: 0x01, NSID: 1, CDW11: 1 << 16, Data: make([]byte, 512)}, 0x4080},
		{nvmeioctl.Command{IO: true, Opcode: 0x01, NSID: 1, CDW12: 0xFFFF, Data: make([]byte, 512)}, 0x4002},
		{nvmeioctl.Command{IO: true, Opcode: 0x01, NSID: 1, CDW12: 7, Data: make([]byte, 4096)}, 0},
		{nvmeioctl.Command{IO: true, Opcode: 0x09, NSID: 1, CDW11: 4, Data: make([]byte, 16)}, 0},
		{nvmeioctl.Command{IO: true, Opcode: 0x09, NSID: 1, CDW10: 1, CDW11: 4, Data: make([]byte, 16)}, 0x4004},
	} {
		if done := h.raw(c.cmd); done.Status != c.want {
			t.Errorf("opcode %#x io %v: status %#x, want %#x", c.cmd.Opcode, c.cmd.IO, uint16(done.Status), uint16(c.want))
		}
	}
	if s := h.smart(); s.HostWrites.Lo != 1 || s.HostReads.Lo != 1 || s.DataUnitsWritten.Lo != 1 {
		t.Errorf("counters: %+v", s)
	}
	big := nvmeioctl.Command{Opcode: 0x02, CDW10: 2, Data: make([]byte, 1<<20), Timeout: 1}
	if _, err := h.dev.Submit(t.Context(), &big); err == nil {
		t.Error("a transfer above MDTS was taken")
	}
}
