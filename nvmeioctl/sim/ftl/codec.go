package ftl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The encoded form, little endian:
//
//	magic            8 bytes
//	configuration    logical pages, superblocks, pages each, rated cycles (u32), seed (u64);
//	                 version 2: flags (u32), not 0, bit 0 shrinks, bit 1 separates;
//	                 if it separates: age of victims, pages not paid for (u64)
//	counters         host, collected, levelled, erases, owed, pay (u64), failed blocks (u32)
//	random source    16 bytes
//	superblocks      each: erases, pages programmed, time of closing (u32), state (u8)
//	free list        the free superblocks (u32), oldest first
//	map              chunks of 1024 logical pages: 0, or 1 and the page numbers (u32)
//
// Everything else follows from these, so there is nothing to disagree with them.
const (
	codecMagic  = "nvopFTL\x01"
	codecMagic2 = "nvopFTL\x02" // the same with flags; written where there are any
	flagShrinks = 1 << 0
	flagApart   = 1 << 1
	headerBytes = len(codecMagic) + 4*4 + 8 + 6*8 + 4 + 16
	blockBytes  = 13
	chunkPages  = 1024
	pcgPrefix   = "pcg:"
)

// ErrDamaged is wrapped by every error of UnmarshalBinary.
var ErrDamaged = errors.New("state of the flash model is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// MarshalBinary implements encoding.BinaryMarshaler: everything that decides
// what the drive does next. Equal states give equal bytes.
func (f *FTL) MarshalBinary() ([]byte, error) {
	return f.AppendBinary(make([]byte, 0, headerBytes+blockBytes*len(f.state)+4*len(f.state)+
		len(f.l2p)/chunkPages+1+4*len(f.l2p)))
}

// AppendBinary implements encoding.BinaryAppender.
func (f *FTL) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	flags := uint32(0)
	if f.cfg.Shrinks {
		flags |= flagShrinks
	}
	if f.cfg.Separates {
		flags |= flagApart
	}
	magic := codecMagic
	if flags != 0 {
		magic = codecMagic2
	}
	b = append(b, magic...)
	b = le.AppendUint32(b, f.cfg.LogicalPages)
	b = le.AppendUint32(b, f.cfg.Geometry.Superblocks)
	b = le.AppendUint32(b, f.cfg.Geometry.PagesPerSuperblock)
	b = le.AppendUint32(b, f.cfg.RatedCycles)
	b = le.AppendUint64(b, f.cfg.Seed)
	if flags != 0 {
		b = le.AppendUint32(b, flags)
	}
	if f.cfg.Separates {
		b = le.AppendUint64(b, f.apart.life)
		b = le.AppendUint64(b, f.hostPages()-f.due.mark)
	}
	for _, n := range []uint64{f.hostPages(), f.count.CollectedPages, f.count.LevelledPages,
		f.count.Erases, f.due.owed, f.due.pay} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, f.health.failed)
	pcg, err := f.pcg.MarshalBinary()
	if err != nil {
		return nil, err
	}
	b = append(b, pcg[len(pcgPrefix):]...)
	for i := range f.state {
		b = le.AppendUint32(b, f.erases[i])
		b = le.AppendUint32(b, f.filled(uint32(i)))
		b = le.AppendUint32(b, f.closed[i])
		b = append(b, byte(f.state[i]))
	}
	for i := range f.freeLen {
		b = le.AppendUint32(b, f.free[(f.freeHead+i)%uint32(len(f.free))])
	}
	for i := 0; i < len(f.l2p); i += chunkPages {
		b = appendChunk(b, f.l2p[i:min(i+chunkPages, len(f.l2p))])
	}
	return b, nil
}

func appendChunk(b []byte, chunk []uint32) []byte {
	empty := true
	for _, p := range chunk {
		empty = empty && p == unmapped
	}
	if empty {
		return append(b, 0)
	}
	b = append(b, 1)
	for _, p := range chunk {
		b = binary.LittleEndian.AppendUint32(b, p)
	}
	return b
}

// filled is how many pages of a superblock have been programmed since its erase.
func (f *FTL) filled(block uint32) uint32 {
	switch block {
	case f.host.block:
		return f.host.next - block<<f.shift
	case f.collect.block:
		return f.collect.next - block<<f.shift
	}
	return f.fill[block]
}

// reader hands out a slice piece by piece; after the end it gives zeros and
// short is set.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// UnmarshalBinary implements encoding.BinaryUnmarshaler. Bytes that no
// MarshalBinary wrote give an error that wraps [ErrDamaged] and leave f as it
// was; what is accepted satisfies [FTL.Check].
func (f *FTL) UnmarshalBinary(b []byte) error {
	if len(b) < headerBytes || string(b[:len(codecMagic)]) != codecMagic && string(b[:len(codecMagic)]) != codecMagic2 {
		return damaged("no header of this version in its %d bytes", len(b))
	}
	r := &reader{b: b[len(codecMagic):]}
	cfg := Config{LogicalPages: r.u32()}
	cfg.Geometry.Superblocks = r.u32()
	cfg.Geometry.PagesPerSuperblock = r.u32()
	cfg.RatedCycles = r.u32()
	cfg.Seed = r.u64()
	if string(b[:len(codecMagic)]) == codecMagic2 {
		flags := r.u32()
		if flags == 0 || flags&^(flagShrinks|flagApart) != 0 {
			return damaged("flags 0x%x are not of this version", flags)
		}
		cfg.Shrinks, cfg.Separates = flags&flagShrinks != 0, flags&flagApart != 0
	}
	var life, unpaid uint64
	if cfg.Separates {
		life, unpaid = r.u64(), r.u64()
	}
	if err := cfg.Validate(); err != nil {
		return damaged("%v", err)
	}
	// Before anything of that size is allocated: the rest must at least hold
	// the superblocks and a byte a chunk.
	chunks := (int(cfg.LogicalPages) + chunkPages - 1) / chunkPages
	if len(r.b) < int(cfg.Geometry.Superblocks)*blockBytes+chunks {
		return damaged("%d bytes are too few for its geometry", len(b))
	}
	n := &FTL{}
	n.allocate(cfg)
	for _, p := range []*uint64{&n.count.HostPages, &n.count.CollectedPages, &n.count.LevelledPages,
		&n.count.Erases, &n.due.owed, &n.due.pay} {
		*p = r.u64()
	}
	n.apart.life = life
	n.due.mark = n.count.HostPages - unpaid
	n.health.failed = r.u32()
	if err := n.pcg.UnmarshalBinary(append([]byte(pcgPrefix), r.take(16)...)); err != nil {
		return damaged("%v", err)
	}
	for _, step := range []func(*reader) error{n.decodeBlocks, n.decodeFree, n.decodeMap} {
		if err := step(r); err != nil {
			return err
		}
	}
	if fill := uint64(n.hostFill()); n.count.HostPages < fill {
		return damaged("the host wrote %d pages and its frontier holds %d", n.count.HostPages, fill)
	} else {
		n.count.HostPages -= fill
	}
	if !cfg.Separates {
		n.due.mark = n.count.HostPages
	}
	if n.host.block != noBlock {
		n.prefill()
	}
	if r.short || len(r.b) != 0 {
		return damaged("%d bytes do not end where its map does", len(b))
	}
	if err := n.Check(); err != nil {
		return damaged("%v", err)
	}
	*f = *n
	return nil
}

func (f *FTL) decodeBlocks(r *reader) error {
	pages := f.cfg.Geometry.PagesPerSuperblock
	now := uint32(f.count.HostPages / uint64(pages)) // the frontier is not known yet
	for i := range f.state {
		f.erases[i], f.fill[i], f.closed[i] = r.u32(), r.u32(), r.u32()
		f.state[i] = state(r.take(1)[0])
		if f.fill[i] > pages || f.closed[i] > now {
			return damaged("superblock %d holds %d pages of %d, closed at %d", i, f.fill[i], pages, f.closed[i])
		}
		var w *frontier
		switch f.state[i] {
		case stateFree:
			f.score[i] = notVictim
			f.freeLen++
			continue
		case stateRetired:
			if !f.cfg.Shrinks {
				return damaged("superblock %d is retired", i)
			}
			f.score[i] = notVictim
			f.retired++
			continue
		case stateClosed:
			continue
		case stateHost:
			w = &f.host
		case stateCollect:
			w = &f.collect
		default:
			return damaged("superblock %d is in state %d", i, f.state[i])
		}
		if w.block != noBlock {
			return damaged("superblocks %d and %d are the same frontier", w.block, i)
		}
		f.score[i] = notVictim
		w.block = uint32(i)
		first := w.block << f.shift
		w.next, w.end = first+f.fill[i], first+pages
	}
	return nil
}

func (f *FTL) decodeFree(r *reader) error {
	seen := make([]bool, len(f.state))
	for i := range f.freeLen {
		block := r.u32()
		if block >= uint32(len(f.state)) || f.state[block] != stateFree || seen[block] {
			return damaged("superblock %d in the free list is not free, or twice there", block)
		}
		seen[block] = true
		f.free[i] = block
	}
	return nil
}

func (f *FTL) decodeMap(r *reader) error {
	for i := 0; i < len(f.l2p); i += chunkPages {
		chunk := f.l2p[i:min(i+chunkPages, len(f.l2p))]
		switch r.take(1)[0] {
		case 0:
			for j := range chunk {
				chunk[j] = unmapped
			}
			continue
		case 1:
		default:
			return damaged("chunk at logical page %d is of no known kind", i)
		}
		if len(r.b) < 4*len(chunk) {
			return damaged("it ends within the map")
		}
		before := f.mapped
		for j := range chunk {
			chunk[j] = r.u32()
			if err := f.place(uint32(i+j), chunk[j]); err != nil {
				return err
			}
		}
		if f.mapped == before {
			return damaged("chunk at logical page %d is empty and does not say so", i)
		}
	}
	return nil
}

// place enters one mapping into the tables that follow from the map.
func (f *FTL) place(lpn, page uint32) error {
	if page == unmapped {
		return nil
	}
	block := page >> f.shift
	if block >= uint32(len(f.state)) || page-block<<f.shift >= f.fill[block] {
		return damaged("logical page %d is on page %d, which is not programmed", lpn, page)
	}
	if f.valid[page>>6]&(1<<(page&63)) != 0 {
		return damaged("logical pages %d and %d are on one page", lpn, f.p2l[page])
	}
	f.valid[page>>6] |= 1 << (page & 63)
	f.p2l[page] = lpn
	f.score[block]++
	f.mapped++
	return nil
}

// Check verifies what must hold between two calls, whatever happened before:
// the two maps are each other's inverse, the counts of valid pages are right
// and sum to the mapped pages, every superblock is in exactly one role, the
// reserve is whole, and the counters agree with the flash. It returns the first
// violation. It costs a pass over all tables.
func (f *FTL) Check() error {
	var mapped uint32
	for lpn, page := range f.l2p {
		if page == unmapped {
			continue
		}
		mapped++
		if f.p2l[page] != uint32(lpn) || f.valid[page>>6]&(1<<(page&63)) == 0 {
			return fmt.Errorf("logical page %d is on page %d, which knows nothing of it", lpn, page)
		}
	}
	if mapped != f.mapped {
		return fmt.Errorf("%d logical pages are mapped, counted %d", mapped, f.mapped)
	}
	if err := f.checkBlocks(); err != nil {
		return err
	}
	return f.checkCounters()
}

func (f *FTL) checkBlocks() error {
	var valid, inUse, free, retired uint32
	var erases uint64
	words := uint32(1) << f.shift >> 6
	for i := range f.state {
		block := uint32(i)
		score := f.score[i]
		if f.state[i] != stateClosed {
			score -= notVictim
		}
		n := 0
		for w := block * words; w < (block+1)*words; w++ {
			n += bits.OnesCount64(f.valid[w])
		}
		if block == f.host.block { // valid in advance
			ahead := f.host.end - f.host.next
			n, score = n-int(ahead), score-int32(ahead)
		}
		if int(score) != n || uint32(n) > f.filled(block) {
			return fmt.Errorf("superblock %d has %d valid pages of %d programmed, counted %d",
				i, n, f.filled(block), score)
		}
		switch f.state[i] {
		case stateFree:
			free++
			if f.fill[i] != 0 {
				return fmt.Errorf("superblock %d is free and programmed", i)
			}
		case stateRetired:
			retired++
			if f.fill[i] != 0 {
				return fmt.Errorf("superblock %d is retired and programmed", i)
			}
		case stateHost, stateCollect:
			inUse++
			if block != f.host.block && block != f.collect.block {
				return fmt.Errorf("superblock %d is a frontier and is not", i)
			}
		}
		valid += uint32(n)
		erases += uint64(f.erases[i])
	}
	switch {
	case valid != f.mapped:
		return fmt.Errorf("%d pages are valid, %d mapped", valid, f.mapped)
	case free != f.freeLen || free < reserve:
		return fmt.Errorf("%d superblocks are free, %d in the list, reserve %d", free, f.freeLen, reserve)
	case retired != f.retired || retired > 0 && uint64(f.cfg.LogicalPages) >= f.cfg.Geometry.room(retired):
		return fmt.Errorf("%d superblocks are retired, counted %d", retired, f.retired)
	case inUse > 2 || (f.collect.block != noBlock && f.host.block == noBlock):
		return fmt.Errorf("%d frontiers", inUse)
	case erases != f.count.Erases:
		return fmt.Errorf("superblocks were erased %d times, counted %d", erases, f.count.Erases)
	}
	return nil
}

// checkCounters compares the counters with what the flash shows: what was
// programmed is still there or was erased, at most a superblock an erase.
func (f *FTL) checkCounters() error {
	pages := uint64(f.cfg.Geometry.PagesPerSuperblock)
	var now uint64
	for i := range f.state {
		now += uint64(f.filled(uint32(i)))
	}
	c := f.Counters()
	const most = 1 << 42 // keeps debtUnit times a sum of counters within 64 bits
	if c.HostPages >= most || c.CollectedPages >= most || c.LevelledPages >= most || c.Erases >= most {
		return errors.New("a counter is beyond any drive's life")
	}
	if c.Programs() < now || c.Programs() > now+c.Erases*pages {
		return fmt.Errorf("%d pages were programmed; %d are, and %d superblocks were erased",
			c.Programs(), now, c.Erases)
	}
	if !f.cfg.Separates && c.HostPages%pages != uint64(f.hostFill())%pages {
		return fmt.Errorf("the host wrote %d pages and its frontier holds %d", c.HostPages, f.hostFill())
	}
	if f.due.mark > c.HostPages || c.HostPages-f.due.mark > 2*pages || f.apart.life > apartMost {
		return errors.New("what the host has to pay for collection is beyond two superblocks, or the age of victims beyond any")
	}
	if f.due.owed > (c.CollectedPages+c.LevelledPages)*debtUnit || f.due.pay != f.due.owed/(debtSpan*pages) {
		return errors.New("more is owed for collection than was collected")
	}
	return nil
}
