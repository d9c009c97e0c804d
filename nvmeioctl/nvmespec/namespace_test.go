package nvmespec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

func some[T any](v T) nvmespec.Opt[T] { return nvmespec.Some(v) }

// wireNamespace has a different value in every field the codec models.
func wireNamespace(t testing.TB, o oracle) *rawPage {
	p := o.page(t, "nvme_id_ns")
	p.set("nsze", 0x1_0000_0001).set("ncap", 0x1_0000_0002).set("nuse", 0x1_0000_0003)
	p.set("nsfeat", 0x1B).set("nlbaf", 2).set("nulbaf", 1).set("flbas", 0x13).set("mc", 3).set("dpc", 0x1F).set("dps", 0x0A)
	p.set("nmic", 1).set("rescap", 0xFE).set("fpi", 0x80|37).set("dlfeat", 9)
	p.set("nawun", 6).set("nawupf", 7).set("nacwu", 8).set("nabsn", 0x101).set("nabo", 0x102).set("nabspf", 0x103).set("noiob", 0x104)
	p.set("mssrl", 0x105).set("mcl", 0x10006).set("msrc", 255)
	p.set128("nvmcap", 0x111, 0x222)
	p.set("npwg", 0xFFFF).set("npwa", 7).set("npdg", 15).set("npda", 31).set("nows", 63)
	p.set("anagrpid", 0xA1A2A3A4).set("nsattr", 1).set("nvmsetid", 0x0506).set("endgid", 0x0708)
	p.at("nguid", 0, 0xE1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15).at("eui64", 0, 0x8C, 0x15, 0x53, 1, 2, 3, 4, 5)
	l := o["nvme_lbaf"]
	for i, f := range [][3]byte{{0, 9, 2}, {0, 12, 0}, {8, 9, 3}, {64, 12, 1}} {
		p.at("lbaf", 4*i+l["ms"].off, f[0]).at("lbaf", 4*i+l["ds"].off, f[1]).at("lbaf", 4*i+l["rp"].off, f[2])
	}
	return p
}

func wantNamespace() nvmespec.Namespace {
	return nvmespec.Namespace{
		SizeBlocks: 0x1_0000_0001, CapacityBlocks: 0x1_0000_0002, UsedBlocks: 0x1_0000_0003,
		Features: nvmespec.NamespaceThin | nvmespec.NamespaceAtomics | nvmespec.NamespaceUIDNotReused | nvmespec.NamespaceOptimalIOSizes,
		Formats: []nvmespec.LBAFormat{
			{Index: 0, DataBytes: 512, RelativePerformance: 2}, {Index: 1, DataBytes: 4096},
			{Index: 2, DataBytes: 512, MetadataBytes: 8, RelativePerformance: 3},
			{Index: 3, DataBytes: 4096, MetadataBytes: 64, RelativePerformance: 1}},
		UniqueFormats: 1, FormatIndex: 3, MetadataExtended: true,
		MetadataCapabilities: 3, ProtectionCapabilities: 0x1F, Protection: nvmespec.Protection{Type: 2, First: true},
		Shared: true, ReservationCapabilities: 0xFE, FormatRemainingPercent: some[uint8](37), DeallocateFeatures: 9,
		AtomicWriteBlocks: some[uint32](7), AtomicWritePowerFailBlocks: some[uint32](8), AtomicCompareWriteBlocks: some[uint32](9),
		AtomicBoundaryRaw: 0x101, AtomicBoundaryOffsetRaw: 0x102, AtomicBoundaryPowerFailRaw: 0x103, OptimalIOBoundaryBlocks: 0x104,
		CopyRangeBlocksMax: 0x105, CopyBlocksMax: 0x10006, CopyRangesMax: 256,
		NVMCapacityBytes:                nvmespec.Uint128{Lo: 0x111, Hi: 0x222},
		PreferredWriteGranularityBlocks: some[uint32](65536), PreferredWriteAlignmentBlocks: some[uint32](8),
		PreferredDeallocateGranularityBlocks: some[uint32](16), PreferredDeallocateAlignmentBlocks: some[uint32](32),
		OptimalWriteBlocks: some[uint32](64),
		ANAGroupID:         0xA1A2A3A4, WriteProtected: true, NVMSetID: 0x0506, EnduranceGroupID: 0x0708,
		NGUID: nvmespec.GUID{0xE1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		EUI64: nvmespec.EUI64{0x8C, 0x15, 0x53, 1, 2, 3, 4, 5},
	}
}

func TestNamespace_againstOffsetTable(t *testing.T) {
	page := wireNamespace(t, loadOracle(t))
	got, err := nvmespec.DecodeNamespace(page.b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantNamespace(), got); d != "" {
		t.Errorf("decode (-want +got):\n%s", d)
	}
	if d := page.diff(wantNamespace().Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if got.SizeBytes() != nvmespec.U128(0x1_0000_0001*4096) {
		t.Errorf("size %s: metadata must not count, and all 64 bits must", got.SizeBytes())
	}
	if got.NGUID.String() != "e10102030405060708090a0b0c0d0e0f" || got.EUI64.String() != "8c15530102030405" {
		t.Errorf("identifiers %s %s", got.NGUID, got.EUI64)
	}
}

func TestFLBAS_everyByte(t *testing.T) { // NS-18, NS-19
	o := loadOracle(t)
	for v := range 256 {
		// The table of the specification, read aloud: bits 3:0 are the low part,
		// 6:5 the high part, 4 the place of the metadata, 7 is reserved.
		bits := func(hi, lo int) int { return v >> lo & (1<<(hi-lo+1) - 1) }
		wantIndex, wantExt := uint8(bits(6, 5)*16+bits(3, 0)), bits(4, 4) == 1

		f := nvmespec.FLBAS(v)
		if f.Index() != wantIndex || f.MetadataExtended() != wantExt {
			t.Fatalf("FLBAS %#02x: index %d extended %v, want %d %v", v, f.Index(), f.MetadataExtended(), wantIndex, wantExt)
		}
		if back := nvmespec.MakeFLBAS(wantIndex, wantExt); int(back) != v&0x7F {
			t.Fatalf("FLBAS %#02x encodes as %#02x", v, back)
		}
		// Identify, create and format all go through the same byte or bits.
		page := o.page(t, "nvme_id_ns").set("flbas", uint64(v)).set("nsze", 1).set("nlbaf", 63)
		for i := range 64 {
			page.at("lbaf", 4*i, byte(i), 0, 9, 0)
		}
		ns, err := nvmespec.DecodeNamespace(page.b)
		if err != nil {
			t.Fatal(err)
		}
		format, ok := ns.Format()
		if !ok || format.Index != wantIndex || format.MetadataBytes != uint16(wantIndex) || ns.MetadataExtended != wantExt {
			t.Fatalf("FLBAS %#02x: identify gives %+v, %v", v, format, ok)
		}
		data := nvmespec.NamespaceCreate{SizeBlocks: 1, CapacityBlocks: 1, FormatIndex: wantIndex, MetadataExtended: wantExt}.Append(nil)
		if int(data[26]) != v&0x7F {
			t.Fatalf("FLBAS %#02x: create writes %#02x", v, data[26])
		}
		dw := nvmespec.FormatFields{FormatIndex: wantIndex, MetadataExtended: wantExt}.Dword()
		if want := uint32(bits(3, 0) | bits(4, 4)<<4 | bits(6, 5)<<12); dw != want {
			t.Fatalf("FLBAS %#02x: format dword %#x, want %#x", v, dw, want)
		}
	}
}

func TestNamespace_formatsBounded(t *testing.T) { // NS-62, FMT-24
	o := loadOracle(t)
	for _, tc := range []struct{ nlbaf, nulbaf, want int }{{0, 0, 1}, {1, 0, 2}, {4, 0, 5}, {15, 0, 16}, {63, 0, 64}, {15, 48, 64}, {255, 255, 64}, {60, 200, 64}} {
		page := o.page(t, "nvme_id_ns").set("nsze", 1).set("nlbaf", uint64(tc.nlbaf)).set("nulbaf", uint64(tc.nulbaf))
		for i := range 64 {
			page.at("lbaf", 4*i, byte(i), 0, 9, 0) // each format its own metadata size
		}
		ns, err := nvmespec.DecodeNamespace(page.b)
		if err != nil {
			t.Fatal(err)
		}
		if len(ns.Formats) != tc.want {
			t.Fatalf("NLBAF %d NULBAF %d: %d formats, want %d", tc.nlbaf, tc.nulbaf, len(ns.Formats), tc.want)
		}
		for i := range tc.want { // every listed format can be selected by its sizes
			if f, ok := ns.FindFormat(512, uint16(i)); !ok || int(f.Index) != i {
				t.Fatalf("NLBAF %d NULBAF %d: format %d is not found by size", tc.nlbaf, tc.nulbaf, i)
			}
		}
	}
}

func TestLBAFormat_available(t *testing.T) {
	o := loadOracle(t)
	for ds := range 256 {
		page := o.page(t, "nvme_id_ns").set("nsze", 10).at("lbaf", o["nvme_lbaf"]["ds"].off, byte(ds))
		ns, err := nvmespec.DecodeNamespace(page.b)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := ns.Format()
		if want := ds >= 9 && ds <= 31; ok != want {
			t.Fatalf("LBADS %d: available %v", ds, ok)
		}
		if ok && uint64(f.DataBytes) != 1<<ds {
			t.Fatalf("LBADS %d: %d bytes", ds, f.DataBytes)
		}
		if !ok && !ns.SizeBytes().IsZero() {
			t.Fatalf("LBADS %d: size %s without a format", ds, ns.SizeBytes())
		}
	}
}

func TestNamespace_inactive(t *testing.T) { // NS-54, NS-57
	ns, err := nvmespec.DecodeNamespace(make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := ns.Format(); ok || ns.Active() || !ns.NGUID.IsZero() || !ns.EUI64.IsZero() || ns.NGUID.String() != "" {
		t.Errorf("all zero must be inactive and without identity: %+v", ns)
	}
	if ns.FormatRemainingPercent.OK {
		t.Error("FPI 0 is not reported")
	}
}

func TestNamespace_formatOutsideList(t *testing.T) {
	page := loadOracle(t).page(t, "nvme_id_ns").set("nsze", 10).set("flbas", 3).at("lbaf", 0, 0, 0, 9, 0).at("lbaf", 12, 0, 0, 12, 0)
	ns, err := nvmespec.DecodeNamespace(page.b)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := ns.Format(); ok {
		t.Errorf("format 3 of 1 listed gives %+v", f)
	}
}

func TestNamespaceCreate_golden(t *testing.T) { // NS-60, NS-24
	c := nvmespec.NamespaceCreate{SizeBlocks: 0x0102030405060708, CapacityBlocks: 0x1112131415161718, FormatIndex: 0x25,
		MetadataExtended: true, Protection: nvmespec.Protection{Type: 3, First: true}, Shared: true, ANAGroupID: 0x21222324,
		NVMSetID: 0x3132, EnduranceGroupID: 0x4142, StorageTagMask: 0x5152535455565758, PlacementHandles: []uint16{0x6162, 0x7172}}
	want := make([]byte, 4096)
	copy(want[0:], []byte{8, 7, 6, 5, 4, 3, 2, 1})
	copy(want[8:], []byte{0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11})
	want[26] = 0x5 | 1<<4 | 2<<5
	want[29] = 3 | 1<<3
	want[30] = 1
	copy(want[92:], []byte{0x24, 0x23, 0x22, 0x21})
	copy(want[100:], []byte{0x32, 0x31, 0x42, 0x41})
	copy(want[384:], []byte{0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51})
	copy(want[392:], []byte{2, 0})
	copy(want[512:], []byte{0x62, 0x61, 0x72, 0x71})
	if got := c.Append(nil); !bytes.Equal(got, want) {
		p := loadOracle(t).load(t, "nvme_ns_mgmt_host_sw_specified", want)
		t.Errorf("create data:\n%s", p.diff(got))
	}
	back, err := nvmespec.DecodeNamespaceCreate(want)
	if d := cmp.Diff(c, back); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if !nvmespec.NamespaceCreateReservedClear(want) {
		t.Error("reserved bytes are clear")
	}
	for _, off := range []int{16, 25, 27, 31, 96, 104, 383, 768, 4095} {
		b := slices.Clone(want)
		b[off] = 1
		if nvmespec.NamespaceCreateReservedClear(b) {
			t.Errorf("byte %d is reserved and set", off)
		}
	}
}

func TestNamespaceCreate_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_ns_mgmt_host_sw_specified")
	p.set("nsze", 11).set("ncap", 22).set("flbas", 0x31).set("dps", 1).set("nmic", 1).set("anagrpid", 33).set("nvmsetid", 44).set("endgid", 55).set("lbstm", 66)
	want := nvmespec.NamespaceCreate{SizeBlocks: 11, CapacityBlocks: 22, FormatIndex: 17, MetadataExtended: true,
		Protection: nvmespec.Protection{Type: 1}, Shared: true, ANAGroupID: 33, NVMSetID: 44, EnduranceGroupID: 55, StorageTagMask: 66}
	got, err := nvmespec.DecodeNamespaceCreate(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}

func TestNamespaceCreate_validate(t *testing.T) { // NS-08, NS-09, NS-12, NS-67
	ok := nvmespec.NamespaceCreate{SizeBlocks: 100, CapacityBlocks: 100}
	if err := ok.Validate(false); err != nil {
		t.Errorf("sound: %v", err)
	}
	for name, change := range map[string]func(*nvmespec.NamespaceCreate){
		"size 0":       func(c *nvmespec.NamespaceCreate) { c.SizeBlocks = 0 },
		"capacity 0":   func(c *nvmespec.NamespaceCreate) { c.CapacityBlocks = 0 },
		"capacity low": func(c *nvmespec.NamespaceCreate) { c.CapacityBlocks = 10 },
		"capacity up":  func(c *nvmespec.NamespaceCreate) { c.CapacityBlocks = 1000 },
		"format":       func(c *nvmespec.NamespaceCreate) { c.FormatIndex = 64 },
		"protection":   func(c *nvmespec.NamespaceCreate) { c.Protection.Type = 4 },
		"handles":      func(c *nvmespec.NamespaceCreate) { c.PlacementHandles = make([]uint16, 129) },
	} {
		c := ok
		change(&c)
		if err := c.Validate(false); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %v", name, err)
		}
	}
	thin := nvmespec.NamespaceCreate{SizeBlocks: 100, CapacityBlocks: 10}
	if err := thin.Validate(true); err != nil {
		t.Errorf("thin: %v", err)
	}
}

func TestControllerList_golden(t *testing.T) { // NS-21, NS-24, NS-74
	want := make([]byte, 4096)
	copy(want, []byte{3, 0, 0x21, 0, 0x41, 0, 0x02, 0x01})
	if got := nvmespec.AppendControllerList(nil, []uint16{0x0102, 0x41, 0x21, 0x41}); !bytes.Equal(got, want) {
		t.Errorf("list bytes % x", got[:16])
	}
	ids, err := nvmespec.DecodeControllerList(want)
	if err != nil || !slices.Equal(ids, []uint16{0x21, 0x41, 0x0102}) {
		t.Errorf("decode %v %v", ids, err)
	}
	binary.LittleEndian.PutUint16(want, 2048)
	if _, err := nvmespec.DecodeControllerList(want); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("2048 entries: %v", err)
	}
	full := make([]uint16, 5000)
	for i := range full {
		full[i] = uint16(i)
	}
	b := nvmespec.AppendControllerList(nil, full)
	if ids, err := nvmespec.DecodeControllerList(b); err != nil || len(ids) != 2047 || len(b) != 4096 {
		t.Errorf("full list: %d, %v", len(ids), err)
	}
	copy(want, []byte{2, 0, 5, 0, 5, 0})
	if _, err := nvmespec.DecodeControllerList(want); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("not ascending: %v", err)
	}
}

func TestNamespaceList_bytes(t *testing.T) {
	want := make([]byte, 4096)
	copy(want, []byte{1, 0, 0, 0, 2, 0, 0, 0, 0x78, 0x56, 0x34, 0x12})
	if got := nvmespec.AppendNamespaceList(nil, []uint32{0x12345678, 2, 1, 0, 2}); !bytes.Equal(got, want) {
		t.Errorf("list bytes % x", got[:16])
	}
	ids, err := nvmespec.DecodeNamespaceList(want)
	if err != nil || !slices.Equal(ids, []uint32{1, 2, 0x12345678}) {
		t.Errorf("decode %v %v", ids, err)
	}
	if ids, err := nvmespec.DecodeNamespaceList(bytes.Repeat([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}, 512)); err != nil || !slices.Equal(ids, []uint32{0xFFFFFFFF}) {
		t.Errorf("more than fit: %v %v", ids, err)
	}
	// What a VMware virtual drive answered to Identify CNS 10h: bytes of its
	// Identify Controller page, see maas.io thread 998.
	vmware := make([]byte, 4096)
	copy(vmware, "\xad\x15\xad\x15VMware NVME-0000")
	if _, err := nvmespec.DecodeNamespaceList(vmware); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("VMware's garbage: %v", err)
	}
}

func TestNamespaceIDs_bytes(t *testing.T) {
	b := make([]byte, 4096)
	copy(b, []byte{1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 0, 0, 0xAA, 0xBB, 3, 16, 0, 0,
		16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 4, 1, 0, 0, 2})
	got, err := nvmespec.DecodeNamespaceIDs(b)
	want := nvmespec.NamespaceIDs{EUI64: nvmespec.EUI64{1, 2, 3, 4, 5, 6, 7, 8},
		UUID: nvmespec.GUID{16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, CommandSet: some[uint8](2)}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if got.UUID.UUID() != "100f0e0d-0c0b-0a09-0807-060504030201" {
		t.Errorf("UUID %s", got.UUID.UUID())
	}
	b[1] = 7
	if _, err := nvmespec.DecodeNamespaceIDs(b); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("EUI64 of 7 bytes: %v", err)
	}
	end := make([]byte, 4096)
	for off := 0; off+259 < 4096; off += 259 {
		end[off], end[off+1] = 0x7F, 255
	}
	end[15*259], end[15*259+1] = 0x7F, 255 // the last one runs past the end
	if _, err := nvmespec.DecodeNamespaceIDs(end); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("past the end: %v", err)
	}
}

func TestGranularity_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	p := o.page(t, "nvme_id_ns_granularity_list").set("attributes", 1).set("num_descriptors", 1)
	d := o["nvme_id_ns_granularity_desc"]
	p.at("entry", d["nszegran"].off, 0, 0, 0, 0, 2).at("entry", d["ncapgran"].off, 0, 0, 0, 0, 3)
	p.at("entry", 16+d["nszegran"].off, 0, 0x10).at("entry", 16+d["ncapgran"].off, 0, 0x20)
	want := nvmespec.GranularityList{PerFormat: true, Entries: []nvmespec.Granularity{
		{SizeBytes: 0x200000000, CapacityBytes: 0x300000000}, {SizeBytes: 0x1000, CapacityBytes: 0x2000}}}
	got, err := nvmespec.DecodeGranularityList(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if got.For(1).SizeBytes != 0x1000 || got.For(2) != (nvmespec.Granularity{}) {
		t.Errorf("per format: %+v %+v", got.For(1), got.For(2))
	}
	got.PerFormat = false
	if got.For(63).SizeBytes != 0x200000000 {
		t.Errorf("one for all: %+v", got.For(63))
	}
	p.set("num_descriptors", 255)
	if got, _ = nvmespec.DecodeGranularityList(p.b); len(got.Entries) != 16 {
		t.Errorf("%d entries, 16 fit", len(got.Entries))
	}
}

func TestIndependentNamespace_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_id_independent_id_ns")
	p.set("nsfeat", 0x1F).set("nmic", 1).set("rescap", 0x2A).set("fpi", 0x80|99).set("anagrpid", 0x01020304)
	p.set("nsattr", 1).set("nvmsetid", 0x0506).set("endgid", 0x0708).set("nstat", 1)
	want := nvmespec.IndependentNamespace{Features: 0x1F, Shared: true, ReservationCapabilities: 0x2A,
		FormatRemainingPercent: some[uint8](99), ANAGroupID: 0x01020304, WriteProtected: true, NVMSetID: 0x0506,
		EnduranceGroupID: 0x0708, Ready: true}
	got, err := nvmespec.DecodeIndependentNamespace(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}

func TestNVMCommandSet_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	p := o.page(t, "nvme_nvm_id_ns").set("lbstm", 0x1122334455667788).set("pic", 3).set("npdgl", 0x01020304)
	p.at("elbaf", 0, 0x81, 0, 0, 0).at("elbaf", 4*63, 0x7F, 1, 0, 0)
	want := nvmespec.NVMNamespace{StorageTagMask: 0x1122334455667788, ProtectionCapabilities: 3, DeallocateGranularityBlocks: 0x01020304}
	want.Formats[0] = nvmespec.ExtendedLBAFormat{StorageTagBits: 1, ProtectionFormat: 1}
	want.Formats[63] = nvmespec.ExtendedLBAFormat{StorageTagBits: 0x7F, ProtectionFormat: 2}
	got, err := nvmespec.DecodeNVMNamespace(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	c := o.page(t, "nvme_id_ctrl_nvm").set("vsl", 3).set("wzsl", 4).set("wusl", 5).set("dmrl", 255).set("dmrsl", 0x01020304).set("dmsl", 0x1122334455667788)
	wantC := nvmespec.NVMController{VerifyBytesMax: 32768, WriteZeroesBytesMax: 65536, WriteUncorrectableBytesMax: 131072,
		DeallocateRangesMax: 255, DeallocateRangeBlocksMax: 0x01020304, DeallocateBlocksMax: 0x1122334455667788}
	gotC, err := nvmespec.DecodeNVMController(c.b)
	if d := cmp.Diff(wantC, gotC); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := c.diff(wantC.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}
