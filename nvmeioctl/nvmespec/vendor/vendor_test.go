package vendor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

const ca = nvmespec.LogIDVendorHealth

// item12 writes an item of 12 bytes as the makers' headers lay it out: 3 bytes of
// identifier, 2 of normalised value, 7 of raw value.
func item12(b []byte, slot int, id, norm byte, raw ...byte) {
	it := b[12*slot : 12*slot+12]
	it[0], it[3] = id, norm
	copy(it[5:11], raw)
}

// item10 writes an item of 10 bytes: identifier, normalised, 6 raw, 2 reserved.
func item10(b []byte, slot int, id, norm byte, raw ...byte) {
	it := b[10*slot : 10*slot+10]
	it[0], it[1] = id, norm
	copy(it[2:8], raw)
}

func TestDecode_memblazeVersion2(t *testing.T) {
	b := make([]byte, 512)
	item12(b, 0, 0xAB, 100, 1)
	item12(b, 2, 0xAD, 93, 0x10, 0x01, 0x30, 0x01, 0x20, 0x01) // min 0x110, max 0x130, avg 0x120
	item12(b, 9, 0xF0, 100, 0x7B)
	item12(b, 11, 0xF4, 99, 6, 5, 4, 3, 2, 1)
	item12(b, 12, 0xF5, 98, 1, 0, 0, 0, 0, 0)
	item12(b, 22, 0xF8, 97, 9)
	item12(b, 41, 0x77, 1, 2) // unknown, in the last slot
	b[511] = 2
	h, err := vendor.Decode(vendor.Memblaze, ca, b)
	if err != nil {
		t.Fatal(err)
	}
	if h.Layout != "memblaze-ca-v2" || h.Version != 2 || h.UnitAssumed || h.UnitBytes != 33_554_432 {
		t.Errorf("%+v", h)
	}
	if h.NANDWrittenBytes != nvmespec.U128(0x010203040506).Mul64(32<<20) || h.HostWrittenBytes != nvmespec.U128(32<<20) {
		t.Errorf("NAND %s, host %s", h.NANDWrittenBytes, h.HostWrittenBytes)
	}
	if r, ok := h.NANDReadBytes.Get(); !ok || r != nvmespec.U128(9*32<<20) {
		t.Errorf("read %v", h.NANDReadBytes)
	}
	if w, ok := h.EraseCounts.Get(); !ok || w != (vendor.Wear{Min: 0x110, Max: 0x130, Avg: 0x120}) {
		t.Errorf("erase counts %+v", h.EraseCounts)
	}
	if len(h.Items) != 7 || h.Items[6] != (vendor.Value{ID: 0x77, Normalised: 1, Raw: 2}) {
		t.Errorf("items %+v", h.Items)
	}
}

func TestDecode_versionsDiffer(t *testing.T) {
	b := make([]byte, 512)
	item12(b, 0, 0xF4, 100, 2)
	item12(b, 1, 0xF5, 100, 1)
	item12(b, 2, 0xFA, 100, 7) // NAND read in version 0, DRAM errors in version 2
	b[511] = 0
	v0, err := vendor.Decode(vendor.Memblaze, ca, b)
	if r, ok := v0.NANDReadBytes.Get(); err != nil || !ok || r != nvmespec.U128(7*32<<20) {
		t.Errorf("version 0: %v, %v", v0.NANDReadBytes, err)
	}
	b[511] = 2
	if v2, err := vendor.Decode(vendor.Memblaze, ca, b); err != nil || v2.NANDReadBytes.OK {
		t.Errorf("version 2: %v, %v", v2.NANDReadBytes, err)
	}

	c := make([]byte, 512)
	item10(c, 2, 0xAD, 90, 1, 0, 3, 0, 2, 0)
	item10(c, 5, 0xF4, 100, 0, 1)
	item10(c, 50, 0xF5, 100, 5) // the last slot before the version
	c[511] = 3
	v3, err := vendor.Decode(vendor.Memblaze, ca, c)
	if err != nil || v3.NANDWrittenBytes != nvmespec.U128(256*32<<20) || v3.HostWrittenBytes != nvmespec.U128(5*32<<20) ||
		v3.EraseCounts.Value != (vendor.Wear{Min: 1, Max: 3, Avg: 2}) {
		t.Errorf("version 3: %+v, %v", v3, err)
	}
}

func TestDecode_refusals(t *testing.T) { // LOG-17
	good := make([]byte, 4096)
	item12(good, 0, 0xF4, 100, 2)
	item12(good, 1, 0xF5, 100, 1)
	for name, tc := range map[string]struct {
		vendor uint16
		log    nvmespec.LogID
		change func(b []byte) []byte
		want   error
	}{
		"another vendor's":  {0x1BB1, ca, nil, vendor.ErrUnknownLog},
		"another log":       {vendor.Memblaze, 0xCB, nil, vendor.ErrUnknownLog},
		"version 1":         {vendor.Memblaze, ca, func(b []byte) []byte { b[511] = 1; return b }, vendor.ErrUnknownLog},
		"short":             {vendor.Memblaze, ca, func(b []byte) []byte { return b[:511] }, nvmespec.ErrShort},
		"empty":             {vendor.Memblaze, ca, func(b []byte) []byte { return nil }, nvmespec.ErrShort},
		"all zero":          {vendor.Memblaze, ca, func(b []byte) []byte { return make([]byte, 512) }, nvmespec.ErrInvalidData},
		"item twice":        {vendor.YMTC, ca, func(b []byte) []byte { item12(b, 5, 0xF4, 1, 1); return b }, nvmespec.ErrInvalidData},
		"no host amount":    {vendor.YMTC, ca, func(b []byte) []byte { item12(b, 1, 0xF6, 1, 1); return b }, nvmespec.ErrInvalidData},
		"version 3 of this": {vendor.Memblaze, ca, func(b []byte) []byte { b[511] = 3; return b }, nvmespec.ErrInvalidData},
	} {
		b := slices.Clone(good)
		if tc.change != nil {
			b = tc.change(b)
		}
		if _, err := vendor.Decode(tc.vendor, tc.log, b); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h, err := vendor.Decode(vendor.YMTC, ca, good); err != nil || !h.UnitAssumed || h.Layout != "ymtc-ca" {
		t.Errorf("YMTC's unit is assumed: %+v, %v", h, err)
	}
}

func TestLogs_table(t *testing.T) {
	names := map[string]bool{}
	for _, l := range vendor.Logs() {
		if names[l.Name] || l.Provenance == "" || l.UnitBytes == 0 || l.ItemBytes != 10 && l.ItemBytes != 12 {
			t.Errorf("row %+v", l)
		}
		names[l.Name] = true
		seen := map[uint8]bool{}
		for _, it := range l.Items {
			if seen[it.ID] || it.Name == "" || it.ID == 0 {
				t.Errorf("%s: item %+v", l.Name, it)
			}
			seen[it.ID] = true
		}
		if !seen[0xF4] || !seen[0xF5] || !seen[0xAD] {
			t.Errorf("%s lacks an item for wear", l.Name)
		}
	}
	if len(vendor.Lookup(vendor.Memblaze)) != 3 || len(vendor.Lookup(0x144D)) != 0 {
		t.Error("lookup by vendor")
	}
}

func TestHealth_encodeForSimulator(t *testing.T) {
	c := vendor.Counters{NANDWrittenBytes: nvmespec.U128(10*32<<20 + 1), HostWrittenBytes: nvmespec.U128(9*32<<20 - 1),
		NANDReadBytes: nvmespec.U128(3 * 32 << 20), EraseCounts: vendor.Wear{Min: 1, Max: 9, Avg: 5}, HealthPercent: 97}
	for _, l := range vendor.Logs() {
		b, err := l.Health(c).Append([]byte{0xEE})
		if err != nil || len(b) != l.SizeBytes+1 || b[0] != 0xEE {
			t.Fatalf("%s: %d bytes, %v", l.Name, len(b), err)
		}
		h, err := vendor.Decode(l.VendorID, l.LogID, b[1:])
		if err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		if h.NANDWrittenBytes != nvmespec.U128(10*32<<20) || h.HostWrittenBytes != nvmespec.U128(8*32<<20) || h.EraseCounts.Value != c.EraseCounts {
			t.Errorf("%s: amounts go down to whole units: %+v", l.Name, h)
		}
		if len(h.Items) != len(l.Items) {
			t.Errorf("%s: %d items of %d", l.Name, len(h.Items), len(l.Items))
		}
	}
	huge := vendor.Counters{NANDWrittenBytes: nvmespec.MaxUint128()}
	l, _ := vendor.LookupName("ymtc-ca")
	if h := l.Health(huge); h.NANDWrittenBytes != nvmespec.U128(1<<48-1).Mul64(32<<20) {
		t.Errorf("more than 48 bits: %s", h.NANDWrittenBytes)
	}
	if _, err := (vendor.Health{Layout: "nonsense"}).Append(nil); !errors.Is(err, vendor.ErrUnknownLog) {
		t.Errorf("unknown layout: %v", err)
	}
	if _, err := (vendor.Health{Layout: "ymtc-ca", Items: make([]vendor.Value, 43)}).Append(nil); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("too many items: %v", err)
	}
}

func TestDecodeKind(t *testing.T) {
	for _, kind := range vendor.Kinds() {
		if _, err := vendor.DecodeKind(kind, nil); !errors.Is(err, nvmespec.ErrShort) {
			t.Errorf("%s of nothing: %v", kind, err)
		}
	}
	l, _ := vendor.LookupName("memblaze-ca-v3")
	b, _ := l.Health(vendor.Counters{NANDWrittenBytes: nvmespec.U128(1 << 40)}).Append(nil)
	v, err := vendor.DecodeKind("memblaze-ca", b)
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(v)
	for _, want := range []string{`"nand_written_bytes":"1099511627776"`, `"unit_bytes":33554432`, `"nand_read_bytes":null`, `"layout":"memblaze-ca-v3"`} {
		if err != nil || !strings.Contains(string(j), want) {
			t.Errorf("JSON lacks %s: %s", want, j)
		}
	}
}

// TestFixture_cachelibUnit: CacheLib's own test says what Intel's log in this
// format amounts to in bytes, which Memblaze's and YMTC's logs follow.
func TestFixture_cachelibUnit(t *testing.T) {
	dir := os.Getenv("NVOP_FIXTURES")
	if dir == "" {
		t.Skip("NVOP_FIXTURES is not set: the fixtures of real drives are not there")
	}
	text, err := os.ReadFile(filepath.Join(dir, "nvme", "cachelib", "vendor-nand-writes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)== intel.*?expected=(\d+).*?nand_bytes_written.*?sectors: (\d+).*?host_bytes_written.*?sectors: (\d+).*?min: (\d+), max: (\d+), avg: (\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no Intel log in the fixture")
	}
	num := func(i int) uint64 {
		v, err := strconv.ParseUint(string(m[i]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	raw := func(v uint64) []byte {
		return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32), byte(v >> 40)}
	}
	b := make([]byte, 512)
	item12(b, 2, 0xAD, 70, byte(num(4)), byte(num(4)>>8), byte(num(5)), byte(num(5)>>8), byte(num(6)), byte(num(6)>>8))
	item12(b, 11, 0xF4, 100, raw(num(2))...)
	item12(b, 12, 0xF5, 100, raw(num(3))...)
	if h, err := vendor.Decode(vendor.Intel, ca, b); err != nil || h.NANDWrittenBytes != nvmespec.U128(num(1)) || !h.Verified || h.UnitAssumed {
		t.Errorf("Intel's own: %+v, %v", h, err)
	}
	h, err := vendor.Decode(vendor.Memblaze, ca, b)
	if err != nil || h.NANDWrittenBytes != nvmespec.U128(num(1)) {
		t.Errorf("%s bytes, CacheLib expects %d: %v", h.NANDWrittenBytes, num(1), err)
	}
	if h.EraseCounts.Value != (vendor.Wear{Min: 3523, Max: 3603, Avg: 3562}) {
		t.Errorf("erase counts %+v", h.EraseCounts.Value)
	}
}

func FuzzDecode(f *testing.F) {
	for _, l := range vendor.Logs() {
		b, err := l.Health(vendor.Counters{NANDWrittenBytes: nvmespec.U128(1 << 50), EraseCounts: vendor.Wear{Min: 1, Max: 2, Avg: 3}}).Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(l.VendorID, b)
	}
	byHand := make([]byte, 512) // seeds that the encoder had no part in
	item12(byHand, 0, 0xF4, 99, 1, 2, 3, 4, 5, 6)
	item12(byHand, 1, 0xF5, 98, 6, 5, 4, 3, 2, 1)
	item12(byHand, 2, 0x42, 1, 9)
	f.Add(vendor.YMTC, byHand)
	f.Add(uint16(0), []byte{})
	f.Add(vendor.Memblaze, bytes.Repeat([]byte{0xFF}, 512))
	f.Fuzz(func(t *testing.T, vid uint16, b []byte) {
		h, err := vendor.Decode(vid, ca, b)
		if err != nil {
			return
		}
		out, err := h.Append(nil)
		if err != nil {
			t.Fatalf("does not encode: %v", err)
		}
		back, err := vendor.Decode(vid, ca, out)
		if err != nil || !reflect.DeepEqual(h, back) {
			t.Fatalf("comes back different: %v\n%+v\n%+v", err, h, back)
		}
		if again, err := back.Append(nil); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("bytes are not stable: %v", err)
		}
	})
}
