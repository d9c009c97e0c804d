package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

const (
	compareFailed = nvmespec.StatusCompareFailure | nvmespec.StatusDNR
	unrecovered   = nvmespec.StatusUnrecoveredRead | nvmespec.StatusDNR
	outOfRange    = nvmespec.StatusLBAOutOfRange | nvmespec.StatusDNR
	tooMuch       = nvmespec.StatusCommandSizeLimit | nvmespec.StatusDNR
)

// blocks sends a command that has a range of blocks and no data.
func (h dataHost) blocks(op uint8, lba uint64, blocks uint32) nvmespec.Status {
	h.t.Helper()
	return h.raw(nvmeioctl.Command{IO: true, Opcode: op, NSID: 1, CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: blocks - 1}).Status
}

// copyTo sends a Copy of format 0.
func (h dataHost) copyTo(to uint64, ranges ...nvmespec.CopyRange) nvmespec.Status {
	h.t.Helper()
	data, err := nvmespec.AppendCopyRanges(nil, 0, ranges)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpCopy, NSID: 1, CDW10: uint32(to), CDW11: uint32(to >> 32),
		CDW12: uint32(len(ranges) - 1), Data: data}).Status
}

func wantStatus(t *testing.T, what string, got, want nvmespec.Status) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %#x, want %#x", what, uint16(got), uint16(want))
	}
}

func TestCompare(t *testing.T) {
	_, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	data := dataOf(4*h.block, 1)
	h.write(1, 100, data, 0)
	wantStatus(t, "the same", h.io(nvmespec.IOOpCompare, 1, 100, data, 0), 0)
	wantStatus(t, "never written is zeros", h.io(nvmespec.IOOpCompare, 1, 500, make([]byte, h.block), 0), 0)
	other := bytes.Clone(data)
	other[2*h.block+7] ^= 1
	wantStatus(t, "one bit", h.io(nvmespec.IOOpCompare, 1, 100, other, 0), compareFailed)
	if e := h.errors()[0]; e.LBA != 102 || e.Status != compareFailed || e.Opcode.Value != nvmespec.IOOpCompare {
		t.Errorf("error log: %+v", e)
	}
	if !bytes.Equal(h.read(1, 100, 4), data) {
		t.Error("a comparison has written")
	}
	size := h.namespace(1).SizeBlocks
	wantStatus(t, "beyond the end", h.io(nvmespec.IOOpCompare, 1, size-1, data, 0), outOfRange)
	wantStatus(t, "too few data", h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpCompare, NSID: 1, CDW12: 1, Data: data[:h.block]}).Status,
		nvmespec.StatusDataTransfer|nvmespec.StatusDNR)
}

func TestWriteUncorrectable(t *testing.T) {
	_, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	data := dataOf(8*h.block, 2)
	h.write(1, 200, data, 0)
	wantStatus(t, "verify", h.blocks(nvmespec.IOOpVerify, 200, 8), 0)
	wantStatus(t, "write uncorrectable", h.blocks(nvmespec.IOOpWriteUncorrectable, 202, 3), 0)
	one := make([]byte, h.block)
	for lba, want := range map[uint64]nvmespec.Status{201: 0, 202: unrecovered, 204: unrecovered, 205: 0} {
		wantStatus(t, "read", h.io(nvmespec.IOOpRead, 1, lba, one, 0), want)
		wantStatus(t, "verify", h.blocks(nvmespec.IOOpVerify, lba, 1), want)
	}
	wantStatus(t, "compare", h.io(nvmespec.IOOpCompare, 1, 200, data, 0), unrecovered)
	wantStatus(t, "copy from it", h.copyTo(900, nvmespec.CopyRange{StartLBA: 200, Blocks: 8}), unrecovered)
	if e := h.errors()[0]; e.LBA != 202 {
		t.Errorf("the error log names block %d", e.LBA)
	}
	h.write(1, 203, data[3*h.block:4*h.block], 0) // the middle one
	wantStatus(t, "written again", h.io(nvmespec.IOOpRead, 1, 203, one, 0), 0)
	wantStatus(t, "not written again", h.io(nvmespec.IOOpRead, 1, 204, one, 0), unrecovered)
	h.deallocate(1, 200, 8)
	wantStatus(t, "deallocated", h.blocks(nvmespec.IOOpVerify, 200, 8), 0)
	size := h.namespace(1).SizeBlocks
	wantStatus(t, "beyond the end", h.blocks(nvmespec.IOOpWriteUncorrectable, size, 1), outOfRange)
	wantStatus(t, "verify beyond the end", h.blocks(nvmespec.IOOpVerify, size-1, 2), outOfRange)
	for lba := range uint64(5) { // side by side, they are one range
		wantStatus(t, "write uncorrectable", h.blocks(nvmespec.IOOpWriteUncorrectable, 1000+lba, 1), 0)
	}
	if bad := h.dev.(*Drive).st.Faults.Bad; len(bad) != 1 || bad[0] != (badRange{NSID: 1, First: 1000, Last: 1004, Told: true}) {
		t.Errorf("ranges %+v", bad)
	}
	h.want(formatDword(1, nvmespec.FormatFields{FormatIndex: h.namespace(1).FormatIndex}), 0)
	h.want(nvmeioctl.Command{Opcode: 0x06, NSID: 1, Data: make([]byte, 4096)}, 0)
	if bad := h.dev.(*Drive).st.Faults.Bad; len(bad) != 0 {
		t.Errorf("after a format: %+v", bad)
	}
}

// What was made unreadable is kept by a drive in a file, and so is that it was
// written again, whether or not anybody says goodbye.
func TestWriteUncorrectable_isKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drive")
	p, o := small(profile(t, "pblaze7-7940-7.68tb"))
	if err := Create(file, p, o); err != nil {
		t.Fatal(err)
	}
	d, h := openKeptDrive(t, file)
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "write uncorrectable", h.blocks(nvmespec.IOOpWriteUncorrectable, 10, 2), 0)
	h.write(1, 10, dataOf(h.block, 3), 0)
	b, err := os.ReadFile(file) // as after a kill: nothing more is saved
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := decodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	if bad := stored.Faults.Bad; len(bad) != 1 || bad[0] != (badRange{NSID: 1, First: 11, Last: 11, Told: true}) {
		t.Errorf("stored: %+v", bad)
	}
}

func TestCopy(t *testing.T) {
	_, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	data := dataOf(8*h.block, 4)
	h.write(1, 300, data, 0)
	wantStatus(t, "two ranges", h.copyTo(400, nvmespec.CopyRange{StartLBA: 304, Blocks: 4}, nvmespec.CopyRange{StartLBA: 300, Blocks: 2}), 0)
	want := append(bytes.Clone(data[4*h.block:]), data[:2*h.block]...)
	if !bytes.Equal(h.read(1, 400, 6), want) {
		t.Error("the copy is not what was copied")
	}
	wantStatus(t, "onto itself, one further", h.copyTo(301, nvmespec.CopyRange{StartLBA: 300, Blocks: 8}), 0)
	if !bytes.Equal(h.read(1, 301, 8), data) {
		t.Error("an overlapping copy is not what was there before")
	}
	ns, c := h.namespace(1), h.controller()
	if ns.CopyRangeBlocksMax == 0 || ns.CopyRangesMax == 0 || c.CopyFormats != 1 || c.IO&nvmespec.IOCopy == 0 {
		t.Fatalf("announced: %+v, formats %#x, %v", ns, c.CopyFormats, c.IO)
	}
	many := make([]nvmespec.CopyRange, ns.CopyRangesMax+1)
	for i := range many {
		many[i].Blocks = 1
	}
	wantStatus(t, "as many ranges as there may be", h.copyTo(5000, many[1:]...), 0)
	wantStatus(t, "one range too many", h.copyTo(5000, many...), tooMuch)
	wantStatus(t, "a range too long", h.copyTo(5000, nvmespec.CopyRange{Blocks: uint32(ns.CopyRangeBlocksMax) + 1}), tooMuch)
	long := make([]nvmespec.CopyRange, ns.CopyBlocksMax/uint32(ns.CopyRangeBlocksMax)+1)
	for i := range long {
		long[i].Blocks = uint32(ns.CopyRangeBlocksMax)
	}
	wantStatus(t, "too many blocks", h.copyTo(5000, long...), tooMuch)
	wantStatus(t, "a source beyond the end", h.copyTo(0, nvmespec.CopyRange{StartLBA: ns.SizeBlocks, Blocks: 1}), outOfRange)
	wantStatus(t, "a destination beyond the end", h.copyTo(ns.SizeBlocks-1, nvmespec.CopyRange{Blocks: 2}), outOfRange)
	wantStatus(t, "another format", h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpCopy, NSID: 1, CDW12: 1 << 8, Data: make([]byte, 40)}).Status,
		nvmespec.StatusInvalidField|nvmespec.StatusDNR)
	wantStatus(t, "without its ranges", h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpCopy, NSID: 1, Data: make([]byte, 31)}).Status,
		nvmespec.StatusDataTransfer|nvmespec.StatusDNR)
}

// A drive that announces none of these commands has none of them.
func TestIOCommands_announced(t *testing.T) {
	for _, p := range Profiles() {
		d := newTestDrive(t, p.Name, nil)
		h := dataHost{host{t, d}, int(p.Formats[p.FactoryFormat].DataBytes)}
		effects := decoded(t, nvmespec.DecodeEffects, h.log(nvmespec.LogIDEffects, nvmespec.EffectsSize))
		for op, bit := range map[uint8]nvmespec.OptionalIO{
			nvmespec.IOOpCompare: nvmespec.IOCompare, nvmespec.IOOpWriteUncorrectable: nvmespec.IOWriteUncorrectable,
			nvmespec.IOOpVerify: nvmespec.IOVerify, nvmespec.IOOpCopy: nvmespec.IOCopy,
		} {
			has := h.controller().IO&bit != 0
			if effects.IO[op].Supported() != has {
				t.Errorf("%s: opcode %#x: effects %#x, announced %v", p.Name, op, uint32(effects.IO[op]), has)
			}
			if !has {
				wantStatus(t, p.Name, h.blocks(op, 0, 1), nvmespec.StatusInvalidOpcode|nvmespec.StatusDNR)
			}
		}
	}
}
