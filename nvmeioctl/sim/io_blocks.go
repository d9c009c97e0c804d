package sim

import (
	"bytes"
	"slices"

	"nvop/nvmeioctl/nvmespec"
)

// What a drive with Copy takes in one command (MSSRL, MCL, MSRC).
const (
	copyRangeBlocks = 1024
	copyBlocks      = 4096
	copyRanges      = 16
)

func (p *Profile) copies() bool { return p.NVMCommands&uint16(nvmespec.IOCopy) != 0 }

// readContents reads what blocks hold, zeros where the drive keeps no contents.
func (r *request) readContents(ns *namespace, lba uint64, b []byte) nvmespec.Status {
	clear(b)
	k := r.d.kept()
	if k == nil {
		return nvmespec.StatusSuccess
	}
	return r.storeStatus(k.read(ns.NSID, b, lba*r.state().stride(ns)), nvmespec.StatusUnrecoveredRead)
}

// compareData carries out Compare: of data, and of the metadata that travel with them.
func compareData(r *request, ns *namespace) nvmespec.Status {
	t, s := r.transfer(ns)
	if s != 0 {
		return s
	}
	if s := r.badBlocks(ns, t.lba, t.blocks, false); s != 0 {
		return s
	}
	if s := r.d.media.access(mediaRead, ns.NSID, t.offset, t.length); s != 0 {
		return s
	}
	held := make([]byte, len(t.data))
	if s := r.readContents(ns, t.lba, held); s != 0 {
		return s
	}
	if bytes.Equal(held, t.data) {
		return nvmespec.StatusSuccess
	}
	at := 0
	for held[at] == t.data[at] {
		at++
	}
	_, s = r.fail(nvmespec.StatusCompareFailure, paramNone)
	r.badLBA = nvmespec.Some(t.lba + uint64(at)/r.state().stride(ns))
	return s
}

// verifyData carries out Verify: a read that transfers nothing.
func verifyData(r *request, ns *namespace) nvmespec.Status {
	lba, blocks := uint64(r.cmd.CDW10)|uint64(r.cmd.CDW11)<<32, uint64(r.cmd.CDW12&0xFFFF)+1
	offset, length, ok := r.blockRange(ns, lba, blocks)
	if !ok {
		_, s := r.fail(nvmespec.StatusLBAOutOfRange, paramCDW10)
		return s
	}
	if s := r.badBlocks(ns, lba, blocks, false); s != 0 {
		return s
	}
	if s := r.d.media.access(mediaRead, ns.NSID, offset, length); s != 0 {
		return s
	}
	// Up to 65536 blocks: a piece at a time.
	stride := r.state().stride(ns)
	piece := min(blocks, 256)
	b := make([]byte, piece*stride)
	for done := uint64(0); done < blocks; done += piece {
		n := min(piece, blocks-done)
		if s := r.readContents(ns, lba+done, b[:n*stride]); s != 0 {
			return s
		}
	}
	return nvmespec.StatusSuccess
}

// writeUncorrectable carries out Write Uncorrectable: reading the blocks fails
// until they are written, deallocated or erased. It is kept over power cycles
// before it is acknowledged.
func writeUncorrectable(r *request, ns *namespace) nvmespec.Status {
	lba, blocks := uint64(r.cmd.CDW10)|uint64(r.cmd.CDW11)<<32, uint64(r.cmd.CDW12&0xFFFF)+1
	if _, _, ok := r.blockRange(ns, lba, blocks); !ok {
		_, s := r.fail(nvmespec.StatusLBAOutOfRange, paramCDW10)
		return s
	}
	if r.state().Faults.ReadOnly {
		_, s := r.fail(statusReadOnly, paramNone)
		return s
	}
	nsid, changed := ns.NSID, false
	_, s := r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		changed = st.Faults.spoil(nsid, lba, lba+blocks-1)
		return 0, nvmespec.StatusSuccess
	})
	r.d.lookForTrouble()
	if s == 0 && !changed {
		_, s = r.fail(nvmespec.StatusInternal, paramNone)
	}
	return s
}

// spoil makes blocks unreadable, as one range with those that they touch. False
// is that there is no room to remember them.
func (f *faultState) spoil(nsid uint32, first, last uint64) bool {
	left := slices.DeleteFunc(slices.Clone(f.Bad), func(b badRange) bool {
		touches := b.Told && b.NSID == nsid && b.First <= last+1 && first <= b.Last+1
		if touches {
			first, last = min(first, b.First), max(last, b.Last)
		}
		return touches
	})
	if len(left) >= badRangesMax {
		return false
	}
	f.Bad = append(left, badRange{NSID: nsid, First: first, Last: last, Told: true})
	f.StatusChanges++
	return true
}

// forgetUncorrectable forgets what Write Uncorrectable did to a namespace whose
// blocks are gone.
func (st *state) forgetUncorrectable(nsid uint32) {
	left := slices.DeleteFunc(slices.Clone(st.Faults.Bad), func(b badRange) bool { return b.Told && b.NSID == nsid })
	if len(left) != len(st.Faults.Bad) {
		st.Faults.Bad = left
		st.Faults.StatusChanges++
	}
}

// copyData carries out Copy with descriptor format 0. All sources are read before
// anything is written, so ranges may overlap, and a copy that fails at a source
// has changed nothing.
func copyData(r *request, ns *namespace) nvmespec.Status {
	f := nvmespec.DecodeCopyFields(r.cmd.CDW10, r.cmd.CDW11, r.cmd.CDW12)
	refuse := func(s nvmespec.Status, param uint16) nvmespec.Status {
		_, s = r.fail(s, param)
		return s
	}
	if f.Format != 0 {
		return refuse(nvmespec.StatusInvalidField, paramCDW10+9)
	}
	if f.Ranges > copyRanges {
		return refuse(nvmespec.StatusCommandSizeLimit, paramCDW10+8)
	}
	sources, err := nvmespec.DecodeCopyRanges(r.cmd.Data, f.Format, int(f.Ranges))
	if err != nil {
		return refuse(nvmespec.StatusDataTransfer, paramNone)
	}
	total := uint64(0)
	for _, s := range sources {
		total += uint64(s.Blocks)
		if s.Blocks > copyRangeBlocks || total > copyBlocks {
			return refuse(nvmespec.StatusCommandSizeLimit, paramNone)
		}
		if _, _, ok := r.blockRange(ns, s.StartLBA, uint64(s.Blocks)); !ok {
			return refuse(nvmespec.StatusLBAOutOfRange, paramNone)
		}
	}
	offset, length, ok := r.blockRange(ns, f.Destination, total)
	if !ok {
		return refuse(nvmespec.StatusLBAOutOfRange, paramCDW10)
	}
	data, s := r.readSources(ns, sources, total)
	if s != 0 {
		return s
	}
	if s := r.badBlocks(ns, f.Destination, total, true); s != 0 {
		return s
	}
	if s := r.d.media.access(mediaWrite, ns.NSID, offset, length); s != 0 {
		return s
	}
	return r.moveContents(ns, f.Destination, data)
}

// readSources reads the source ranges of a Copy one after the other.
func (r *request) readSources(ns *namespace, sources []nvmespec.CopyRange, total uint64) ([]byte, nvmespec.Status) {
	stride := r.state().stride(ns)
	data := make([]byte, 0, total*stride)
	for _, source := range sources {
		lba, blocks := source.StartLBA, uint64(source.Blocks)
		offset, length, _ := r.blockRange(ns, lba, blocks)
		if s := r.badBlocks(ns, lba, blocks, false); s != 0 {
			return nil, s
		}
		if s := r.d.media.access(mediaRead, ns.NSID, offset, length); s != 0 {
			return nil, s
		}
		n := uint64(len(data))
		data = data[:n+blocks*stride]
		if s := r.readContents(ns, lba, data[n:]); s != 0 {
			return nil, s
		}
	}
	return data, nvmespec.StatusSuccess
}
