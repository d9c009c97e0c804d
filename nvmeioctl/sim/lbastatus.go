package sim

import (
	"cmp"
	"math"
	"slices"

	"nvop/nvmeioctl/nvmespec"
)

// Actions of Get LBA Status (ATYPE, NVM Command Set 1.x).
const (
	lbaStatusScan  = 0x10 // look at the medium as well
	lbaStatusKnown = 0x11 // say what is known without
)

// getLBAStatus carries out Get LBA Status: which blocks of a range cannot be read.
func getLBAStatus(r *request) (uint32, nvmespec.Status) {
	f := nvmespec.DecodeLBAStatusFields([4]uint32{r.cmd.CDW10, r.cmd.CDW11, r.cmd.CDW12, r.cmd.CDW13})
	if f.Action != lbaStatusScan && f.Action != lbaStatusKnown {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+15)
	}
	if s := r.d.ioStatus(r.c, r.cmd.NSID); s != 0 {
		r.param = paramNSID
		return 0, s
	}
	size := r.state().find(r.cmd.NSID).SizeBlocks
	if f.StartLBA >= size || uint64(f.Blocks) > size-f.StartLBA {
		return r.fail(nvmespec.StatusLBAOutOfRange, paramCDW10)
	}
	last := size - 1
	if f.Blocks != 0 {
		last = f.StartLBA + uint64(f.Blocks) - 1
	}
	if f.Action == lbaStatusScan {
		r.state().Faults.scan(r.cmd.NSID, f.StartLBA, last)
	}
	const header, descriptor = 8, 16
	fits := int(max(f.MaxBytes, header)-header) / descriptor
	list := nvmespec.LBAStatusList{Completion: 2, Ranges: r.state().Faults.unreadable(r.cmd.NSID, f.StartLBA, last, f.Action == lbaStatusScan)}
	if len(list.Ranges) > fits {
		list.Completion, list.Ranges = 1, list.Ranges[:fits]
	}
	list.Announced = uint32(len(list.Ranges))
	b := list.Append(nil)
	return r.reply(b[:min(len(b), int(f.MaxBytes))])
}

// scan looks at the medium: what cannot be read is known from then on.
func (f *faultState) scan(nsid uint32, first, last uint64) {
	for i := range f.Bad {
		if b := &f.Bad[i]; b.NSID == nsid && b.First <= last && b.Last >= first {
			f.find(b)
		}
	}
}

// unreadable are the blocks from first to last of a namespace that cannot be
// read, as the fewest ranges in order: those that are known, and with scan those
// that only a look at the medium finds.
func (f *faultState) unreadable(nsid uint32, first, last uint64, scan bool) []nvmespec.LBAStatusRange {
	var bad []badRange
	for _, b := range f.Bad {
		if b.NSID != nsid || b.Write || !b.known() && !scan || b.Last < first || b.First > last {
			continue
		}
		bad = append(bad, badRange{First: max(b.First, first), Last: min(b.Last, last)})
	}
	slices.SortFunc(bad, func(a, b badRange) int { return cmp.Compare(a.First, b.First) })
	var list []nvmespec.LBAStatusRange
	for i := 0; i < len(bad); {
		from, to := bad[i].First, bad[i].Last
		for i++; i < len(bad) && bad[i].First <= to+1; i++ {
			to = max(to, bad[i].Last)
		}
		for n := to - from + 1; n > 0; { // a range has 32 bits of blocks
			part := min(n, math.MaxUint32)
			list = append(list, nvmespec.LBAStatusRange{StartLBA: from, Blocks: uint32(part)})
			from, n = from+part, n-part
		}
	}
	return list
}

// lbaStatusLog is where it is worth asking: the blocks known to be unreadable.
func lbaStatusLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	const header, element = 16, 16
	st := r.state()
	l := nvmespec.LBAStatusLog{TotalBytes: header, Generation: st.Faults.StatusChanges}
	blocks := uint64(0)
	for i := range st.Namespaces {
		ns := &st.Namespaces[i]
		if ns.Attached>>r.c&1 == 0 {
			continue
		}
		e := nvmespec.LBAStatusElement{NSID: ns.NSID, Action: lbaStatusKnown}
		for _, b := range st.Faults.unreadable(ns.NSID, 0, ns.SizeBlocks-1, false) {
			e.Ranges = append(e.Ranges, nvmespec.LBARange{StartLBA: b.StartLBA, Blocks: b.Blocks})
			blocks += uint64(b.Blocks)
		}
		if len(e.Ranges) > 0 {
			l.Elements = append(l.Elements, e)
			l.TotalBytes += element + element*uint32(len(e.Ranges))
		}
	}
	l.Announced, l.UnrecoverableBlocksEstimate = uint32(len(l.Elements)), uint32(min(blocks, math.MaxUint32))
	return l.Append(nil), nvmespec.StatusSuccess
}
