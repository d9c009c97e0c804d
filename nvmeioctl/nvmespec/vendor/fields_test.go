package vendor_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// le writes n bytes of a number at an offset.
func le(b []byte, off, n int, v uint64) {
	for i := range min(n, 8) {
		b[off+i] = byte(v >> (8 * i))
	}
}

// TestFixedLogs_table: fields lie within their page, none over another, and each
// page has a name and a provenance of its own.
func TestFixedLogs_table(t *testing.T) {
	names := map[string]bool{}
	for _, l := range vendor.FixedLogs() {
		if names[l.Name] || l.Provenance == "" || len(l.VendorIDs) == 0 || len(l.Fields) == 0 {
			t.Errorf("row %+v", l)
		}
		names[l.Name] = true
		taken, fields := make([]string, l.SizeBytes), map[string]bool{}
		for _, f := range l.Fields {
			if f.Bytes < 1 || f.Bytes > 16 || fields[f.Name] || f.Meaning != vendor.Plain && strings.HasSuffix(f.Name, "_raw") {
				t.Errorf("%s: field %+v", l.Name, f)
			}
			fields[f.Name] = true
			for i := range f.Bytes {
				if at := f.Offset + i; at >= l.SizeBytes || taken[at] != "" {
					t.Errorf("%s: %s at %d runs over %s", l.Name, f.Name, at, taken[min(at, l.SizeBytes-1)])
					break
				}
				taken[f.Offset+i] = f.Name
			}
		}
	}
}

// TestDecodeFixed_places: the places that specs and headers name, written out.
func TestDecodeFixed_places(t *testing.T) {
	for name, c := range map[string]struct {
		vid        uint16
		log        nvmespec.LogID
		at         map[int]uint64
		nand, host uint64
	}{
		"wdc CA": {vendor.WDC, 0xCA, map[int]uint64{0: 1000, 0x10: 2000, 0x41: 9, 0x45: 3}, 1000, 0},
		"wdc FB": {vendor.WDC2, 0xFB, map[int]uint64{0: 1000, 16: 24}, 1024, 0},
		// The item-like layout begins with item ABh.
		"samsung items": {vendor.Samsung, 0xCA, map[int]uint64{0: 0xAB, 264: 500, 280: 700}, 700, 500},
		"micron D0":     {vendor.Micron, 0xD0, map[int]uint64{4: 2, 176: 77}, 77, 0},
		"micron FB":     {vendor.Micron, 0xFB, map[int]uint64{0: 5, 16: 6}, 11, 0},
		"micron E1":     {vendor.Micron, 0xE1, map[int]uint64{80: 1, 176: 88, 244: 1, 248: 2, 252: 3}, 88, 0},
	} {
		b := make([]byte, 512)
		for off, v := range c.at {
			le(b, off, 4, v)
		}
		r, err := vendor.DecodeFixed(c.vid, c.log, b)
		if err != nil || r.NANDWrittenBytes.Value != nvmespec.U128(c.nand) || r.HostWrittenBytes.Value != nvmespec.U128(c.host) || r.Verified {
			t.Errorf("%s: NAND %v, host %v, verified %v, %v", name, r.NANDWrittenBytes, r.HostWrittenBytes, r.Verified, err)
		}
	}
	b := make([]byte, 512)
	b[15] = 1 // the highest byte of a 128-bit count
	if r, err := vendor.DecodeFixed(vendor.WDC, 0xCA, b); err != nil || r.NANDWrittenBytes.Value != (nvmespec.Uint128{Hi: 1 << 56}) {
		t.Errorf("128 bits: %v, %v", r.NANDWrittenBytes, err)
	}
	e1 := make([]byte, 512)
	le(e1, 244, 4, 7)
	le(e1, 248, 4, 8)
	le(e1, 252, 4, 9)
	if r, _ := vendor.DecodeFixed(vendor.Micron, 0xE1, e1); r.EraseCountMin.Value != 7 || r.EraseCountAvg.Value != 8 || r.EraseCountMax.Value != 9 {
		t.Errorf("erase counts %+v", r)
	}
}

func TestDecodeFixed_refusals(t *testing.T) { // LOG-17
	some := make([]byte, 512)
	some[0] = 1
	for name, c := range map[string]struct {
		vid  uint16
		log  nvmespec.LogID
		b    []byte
		want error
	}{
		"another vendor": {vendor.Memblaze, 0xFB, some, vendor.ErrUnknownLog}, "another log": {vendor.Micron, 0xC5, some, vendor.ErrUnknownLog},
		"all zero": {vendor.WDC, 0xCA, make([]byte, 512), nvmespec.ErrInvalidData}, "short": {vendor.WDC, 0xCA, some[:511], nvmespec.ErrShort},
		"empty": {vendor.Samsung, 0xCA, nil, nvmespec.ErrShort},
	} {
		if _, err := vendor.DecodeFixed(c.vid, c.log, c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPages: what is verified by a fixture, and that each page can be read.
func TestPages(t *testing.T) {
	var verified []string
	for _, p := range vendor.Pages() {
		if p.Verified {
			verified = append(verified, p.Name)
		}
		if !slices.Contains(vendor.Kinds(), p.Name) {
			t.Errorf("%s is no kind", p.Name)
		}
	}
	if !slices.Equal(verified, []string{"intel-ca", "samsung-ca"}) {
		t.Errorf("verified: %v", verified)
	}
	if p := vendor.PagesOf(vendor.Micron); len(p) != 4 {
		t.Errorf("Micron's: %v", p)
	}
	if _, err := vendor.DecodePage("nonsense", nil); !errors.Is(err, vendor.ErrUnknownLog) {
		t.Errorf("%v", err)
	}
}

// TestFixture_cachelibSamsung: places and bytes are those of two real drives'
// output, whose first number CacheLib's test asserts as bytes.
func TestFixture_cachelibSamsung(t *testing.T) {
	dir := os.Getenv("NVOP_FIXTURES")
	if dir == "" {
		t.Skip("NVOP_FIXTURES is not set: the fixtures of real drives are not there")
	}
	text, err := os.ReadFile(filepath.Join(dir, "nvme", "cachelib", "vendor-nand-writes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	field := regexp.MustCompile(`\[(\d+):(\d+)\] [^:]+: (\d+)`)
	drives := 0
	for section := range strings.SplitSeq(string(text), "== ") {
		if !strings.HasPrefix(section, "samsung") {
			continue
		}
		drives++
		m := regexp.MustCompile(`expected=(\d+)`).FindStringSubmatch(section)
		b := make([]byte, 512)
		var values []uint64
		for _, f := range field.FindAllStringSubmatch(section, -1) {
			last, _ := strconv.Atoi(f[1])
			first, _ := strconv.Atoi(f[2])
			v, _ := strconv.ParseUint(f[3], 10, 64)
			le(b, first, last-first+1, v)
			values = append(values, v)
		}
		r, err := vendor.DecodeFixed(vendor.Samsung, 0xCA, b)
		if err != nil || r.NANDWrittenBytes.Value.String() != m[1] || !r.Verified {
			t.Errorf("%v bytes, CacheLib expects %s: %v", r.NANDWrittenBytes, m[1], err)
		}
		for _, v := range values {
			if !slices.ContainsFunc(r.Fields, func(f vendor.FieldValue) bool { return f.Raw == nvmespec.U128(v) }) {
				t.Errorf("%d of the drive's output is in no field", v)
			}
		}
	}
	if drives != 2 {
		t.Errorf("%d Samsung drives in the fixture", drives)
	}
}

func FuzzDecodePage(f *testing.F) {
	for i := range vendor.Pages() {
		f.Add(uint8(i), make([]byte, 512))
		f.Add(uint8(i), []byte(strings.Repeat("\xAB\x01", 2048)))
		f.Add(uint8(i), []byte(strings.Repeat("\xAB\x01", 128))) // shorter than any page
		f.Add(uint8(i), []byte(strings.Repeat("\x01\x02", 128)))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		pages := vendor.Pages()
		v, err := vendor.DecodePage(pages[int(which)%len(pages)].Name, b)
		if (err == nil) != (v != nil) {
			t.Fatalf("value %v, error %v", v, err)
		}
		if j, err := json.Marshal(v); err != nil || !json.Valid(j) {
			t.Fatalf("JSON: %v", err)
		}
	})
}
