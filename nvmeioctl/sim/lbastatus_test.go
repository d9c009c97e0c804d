package sim

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

// lbaStatus sends Get LBA Status by its dwords as the specification lays them
// out, and reads the list by offset.
func (h dataHost) lbaStatus(action uint8, lba uint64, blocks uint16, room uint32) (completion uint8, ranges [][2]uint64) {
	h.t.Helper()
	data := make([]byte, room)
	h.want(nvmeioctl.Command{Opcode: 0x86, NSID: 1, CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: room/4 - 1,
		CDW13: uint32(blocks) | uint32(action)<<24, Data: data}, 0)
	for i := range int(binary.LittleEndian.Uint32(data)) {
		e := data[8+16*i:]
		ranges = append(ranges, [2]uint64{binary.LittleEndian.Uint64(e), uint64(binary.LittleEndian.Uint32(e[8:]))})
	}
	return data[4] & 7, ranges
}

func armed(t *testing.T, d *Drive, script string) {
	t.Helper()
	plan, err := fault.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Arm(plan); err != nil {
		t.Fatal(err)
	}
}

func TestGetLBAStatus(t *testing.T) {
	d, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	size := h.namespace(1).SizeBlocks
	wantStatus(t, "write uncorrectable", h.blocks(nvmespec.IOOpWriteUncorrectable, 100, 8), 0)
	wantStatus(t, "write uncorrectable", h.blocks(nvmespec.IOOpWriteUncorrectable, size-1, 1), 0)
	armed(t, d, "media-error read nsid 1 lba 50-59; media-error read nsid 1 lba 104-119; media-error write nsid 1 lba 7-8")
	for _, c := range []struct {
		name       string
		action     uint8
		lba        uint64
		blocks     uint16
		room       uint32
		completion uint8
		want       [][2]uint64
	}{
		{"what is known", 0x11, 0, 0, 4096, 2, [][2]uint64{{100, 8}, {size - 1, 1}}},
		{"a look at a part of the medium", 0x10, 200, 10, 4096, 2, nil},
		{"which finds nothing", 0x11, 0, 0, 4096, 2, [][2]uint64{{100, 8}, {size - 1, 1}}},
		{"a look at the medium", 0x10, 0, 0, 4096, 2, [][2]uint64{{50, 10}, {100, 20}, {size - 1, 1}}},
		{"which is known then", 0x11, 0, 0, 4096, 2, [][2]uint64{{50, 10}, {100, 20}, {size - 1, 1}}},
		{"a range", 0x10, 55, 50, 4096, 2, [][2]uint64{{55, 5}, {100, 5}}},
		{"a range with none", 0x10, 200, 65535, 4096, 2, nil},
		{"no room for all", 0x10, 0, 0, 24, 1, [][2]uint64{{50, 10}}},
		{"room to the byte", 0x10, 0, 200, 40, 2, [][2]uint64{{50, 10}, {100, 20}}},
		{"room for none", 0x10, 0, 0, 8, 1, nil},
	} {
		completion, got := h.lbaStatus(c.action, c.lba, c.blocks, c.room)
		if diff := cmp.Diff(c.want, got); diff != "" || completion != c.completion {
			t.Errorf("%s: completion %d, want %d; %s", c.name, completion, c.completion, diff)
		}
	}
	// A list that has room for its first dword only.
	h.want(nvmeioctl.Command{Opcode: 0x86, NSID: 1, CDW13: 0x10 << 24, Data: make([]byte, 4)}, 0)
	h.lbaLog(t, 4, [][2]uint64{{50, 10}, {100, 20}, {size - 1, 1}}) // two that were told, two found
	h.write(1, 100, dataOf(10*h.block, 1), 0)
	if _, got := h.lbaStatus(0x10, 0, 0, 4096); len(got) != 3 {
		t.Errorf("blocks that were written: %v", got)
	}
	h.lbaLog(t, 5, [][2]uint64{{50, 10}, {110, 10}, {size - 1, 1}})
	armed(t, d, "heal")
	if _, got := h.lbaStatus(0x10, 0, 0, 4096); len(got) != 0 {
		t.Errorf("after healing: %v", got)
	}
	h.lbaLog(t, 6, nil)

	// Reading finds too.
	armed(t, d, "media-error read nsid 1 lba 7-9")
	h.lbaLog(t, 6, nil)
	wantStatus(t, "a read", h.io(nvmespec.IOOpRead, 1, 8, make([]byte, h.block), 0), unrecovered)
	wantStatus(t, "another", h.io(nvmespec.IOOpRead, 1, 7, make([]byte, h.block), 0), unrecovered)
	h.lbaLog(t, 7, [][2]uint64{{7, 3}})
}

// lbaLog checks log 0Eh by offset: one namespace, or none.
func (h dataHost) lbaLog(t *testing.T, generation uint16, want [][2]uint64) {
	t.Helper()
	b := h.log(0x0E, 128)
	var got [][2]uint64
	length, elements, blocks := uint32(16), uint32(0), uint64(0)
	if len(want) > 0 {
		elements, length = 1, uint32(32+16*len(want))
		if binary.LittleEndian.Uint32(b[16:]) != 1 || b[24] != 0x11 {
			t.Errorf("element % x", b[16:32])
		}
		for i := range int(binary.LittleEndian.Uint32(b[20:])) {
			e := b[32+16*i:]
			got = append(got, [2]uint64{binary.LittleEndian.Uint64(e), uint64(binary.LittleEndian.Uint32(e[8:]))})
			blocks += uint64(binary.LittleEndian.Uint32(e[8:]))
		}
	}
	if binary.LittleEndian.Uint32(b) != length || binary.LittleEndian.Uint32(b[4:]) != elements || uint64(binary.LittleEndian.Uint32(b[8:])) != blocks || binary.LittleEndian.Uint16(b[14:]) != generation {
		t.Errorf("header % x, want %d bytes, %d elements, generation %d", b[:16], length, elements, generation)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestGetLBAStatus_refuses(t *testing.T) {
	_, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	size := h.namespace(1).SizeBlocks
	ask := func(nsid uint32, lba uint64, dw13 uint32) nvmespec.Status {
		return h.raw(nvmeioctl.Command{Opcode: 0x86, NSID: nsid, CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: 1023, CDW13: dw13, Data: make([]byte, 4096)}).Status
	}
	invalid := nvmespec.StatusInvalidField | nvmespec.StatusDNR
	wantStatus(t, "another action", ask(1, 0, 0x12<<24), invalid)
	wantStatus(t, "a reserved bit", ask(1, 0, 0x10<<24|1<<16), invalid)
	wantStatus(t, "no such namespace", ask(2, 0, 0x10<<24), invalid)
	wantStatus(t, "broadcast", ask(0xFFFFFFFF, 0, 0x10<<24), nvmespec.StatusInvalidNamespace|nvmespec.StatusDNR)
	wantStatus(t, "beyond the end", ask(1, size, 0x10<<24), outOfRange)
	wantStatus(t, "over the end", ask(1, size-5, 0x10<<24|6), outOfRange)
	wantStatus(t, "up to the end", ask(1, size-5, 0x10<<24|5), 0)

	old := newTestDrive(t, "memblaze-p6531-3.84tb", nil)
	o := host{t, old}
	o.want(nvmeioctl.Command{Opcode: 0x86, NSID: 1, CDW12: 1023, CDW13: 0x10 << 24, Data: make([]byte, 4096)}, nvmespec.StatusInvalidOpcode|nvmespec.StatusDNR)
	if o.controller().Admin&nvmespec.AdminGetLBAStatus != 0 || h.controller().Admin&nvmespec.AdminGetLBAStatus == 0 {
		t.Error("OACS does not say what there is")
	}
}

// Whatever is bad, the ranges are in order, apart from one another, and cover
// exactly what a block by block look finds.
func TestUnreadable_isTheUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f faultState
		for range rapid.IntRange(0, 8).Draw(t, "ranges") {
			first := rapid.Uint64Range(0, 60).Draw(t, "first")
			f.Bad = append(f.Bad, badRange{NSID: rapid.Uint32Range(1, 2).Draw(t, "nsid"), First: first, Last: first + rapid.Uint64Range(0, 20).Draw(t, "more"),
				Write: rapid.Bool().Draw(t, "write"), Told: rapid.Bool().Draw(t, "told"), Found: rapid.Bool().Draw(t, "found")})
		}
		first := rapid.Uint64Range(0, 80).Draw(t, "from")
		last := first + rapid.Uint64Range(0, 80).Draw(t, "length")
		scan := rapid.Bool().Draw(t, "scan")
		list := f.unreadable(1, first, last, scan)
		in := func(lba uint64) (n int) {
			for _, r := range list {
				if lba >= r.StartLBA && lba < r.StartLBA+uint64(r.Blocks) {
					n++
				}
			}
			return n
		}
		for lba := range uint64(200) {
			want := 0
			for _, b := range f.Bad {
				if b.NSID == 1 && !b.Write && (b.Told || b.Found || scan) && lba >= b.First && lba <= b.Last && lba >= first && lba <= last {
					want = 1
				}
			}
			if in(lba) != want {
				t.Fatalf("block %d is in %d ranges of %+v", lba, in(lba), list)
			}
		}
		for i := 1; i < len(list); i++ {
			if list[i].StartLBA <= list[i-1].StartLBA+uint64(list[i-1].Blocks) {
				t.Fatalf("ranges touch: %+v", list)
			}
		}
	})
	f := faultState{Bad: []badRange{{NSID: 1, First: 1, Last: 3 << 32, Told: true}}}
	list := f.unreadable(1, 0, math.MaxUint64, false)
	sum := uint64(0)
	for _, r := range list {
		sum += uint64(r.Blocks)
	}
	if sum != 3<<32 || list[len(list)-1].StartLBA+uint64(list[len(list)-1].Blocks) != 3<<32+1 {
		t.Errorf("more blocks than 32 bits hold: %+v", list)
	}
}
