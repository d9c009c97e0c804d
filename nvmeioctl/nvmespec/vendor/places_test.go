package vendor_test

import (
	"testing"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// TestHealth_places: nvme-cli reads these logs by place, not by identifier
// (plugins/memblaze/memblaze-utils.h, plugins/ymtc/ymtc-utils.h). A simulated
// drive that packed its items showed 0 bytes written to it.
func TestHealth_places(t *testing.T) {
	for _, c := range []struct {
		layout string
		place  map[byte]int // identifier -> place in units of 12 bytes
	}{
		{"memblaze-ca-v0", map[byte]int{0xAB: 0, 0xAC: 1, 0xAD: 2, 0xB8: 3, 0xC7: 4, 0xEA: 8, 0xF4: 11, 0xF5: 12, 0xFA: 14, 0xE7: 15, 0xEC: 18, 0xED: 21}},
		{"memblaze-ca-v2", map[byte]int{0xAB: 0, 0xAC: 1, 0xAD: 2, 0xB8: 3, 0xC7: 4, 0xEA: 8, 0xF0: 9, 0xF4: 11, 0xF5: 12, 0xF9: 14, 0xF8: 22, 0xE7: 23, 0xEC: 27, 0xED: 28}},
		{"ymtc-ca", map[byte]int{0xAB: 0, 0xAC: 1, 0xAD: 2, 0xB8: 3, 0xC7: 4, 0xEA: 8, 0xF4: 11, 0xF5: 12, 0xFA: 14, 0xE7: 15, 0xEC: 18, 0xED: 21}},
	} {
		l, ok := vendor.LookupName(c.layout)
		if !ok {
			t.Errorf("no layout %s", c.layout)
			continue
		}
		page, err := l.Health(vendor.Counters{
			HostWrittenBytes: nvmespec.U128(5 * 32 << 20), NANDWrittenBytes: nvmespec.U128(7 * 32 << 20), NANDReadBytes: nvmespec.U128(9 * 32 << 20),
		}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for id, place := range c.place {
			if got := page[12*place]; got != id {
				t.Errorf("%s: place %d has item %02xh, nvme-cli looks for %02xh there", c.layout, place, got, id)
			}
		}
		if page[12*11+5] != 7 || page[12*12+5] != 5 {
			t.Errorf("%s: bytes written % x", c.layout, page[12*11:12*13])
		}
	}
}

// TestDecode_ymtcBytesRead: they are item FAh; F8h is Memblaze's.
func TestDecode_ymtcBytesRead(t *testing.T) {
	b := make([]byte, 4096)
	item12(b, 11, 0xF4, 100, 2)
	item12(b, 12, 0xF5, 100, 1)
	item12(b, 14, 0xFA, 100, 3)
	h, err := vendor.Decode(vendor.YMTC, ca, b)
	if r, ok := h.NANDReadBytes.Get(); err != nil || !ok || r != nvmespec.U128(3*32<<20) {
		t.Errorf("bytes read from NAND: %v, %v", h.NANDReadBytes, err)
	}
}
