package pattern

import (
	"bytes"
	"encoding/binary"
)

// Finding is what a block turns out to be.
type Finding uint8

// The findings.
const (
	// Right: exactly what is expected.
	Right Finding = iota
	// Intact: a whole block of this run at its place, where no generation is
	// expected.
	Intact
	// Blank: nothing of any run, where none need be: never written, perhaps.
	Blank
	// Lost: what was there before the expected write, or a write of another run,
	// or nothing.
	Lost
	// Misdirected: a whole block of another address.
	Misdirected
	// Torn: part of one write and part of another.
	Torn
	// Rotten: bits have changed.
	Rotten
)

// String names a finding.
func (f Finding) String() string {
	names := [...]string{"right", "intact", "blank", "lost", "misdirected", "torn", "rotten"}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown"
}

// Expected is what is known of a block that is looked at.
type Expected struct {
	// Generation is that of its last write; of meaning only when Known.
	Generation uint64
	Known      bool
	// Or are further generations that may be there as well, the latest first: of
	// writes before that one, which is in doubt. The last of them certainly was.
	// Only when Known.
	Or []uint64
	// Before are generations that the block had earlier, the latest first, as far
	// as they are known. They make findings more certain, and need not be all.
	Before []uint64
	// First says that the run may not have written the block before the expected
	// write, or, where none is Known, at all: anything may have been there.
	First bool
}

// Diagnosis is a finding with what it rests on.
type Diagnosis struct {
	Finding Finding
	// Header is the one found, when HasHeader.
	Header    Header
	HasHeader bool
	// OffsetBytes is where the block first differs from what is expected, or
	// from what its own header says where nothing is; Bytes is how many bytes
	// do. Both are 0 when there is nothing to compare with.
	OffsetBytes, Bytes uint32
	// Want is the content it was compared with; nil when there is none. Against
	// is its generation: of several that may be there the one that the block is
	// nearest to, or that it must hold at least.
	Want    []byte
	Against uint64
	// Other is the generation of the part that is of another write, of a torn
	// block; of meaning only when HasOther.
	Other    uint64
	HasOther bool
}

// leastPart is how many bytes at the beginning or end of a block have to be of
// another write for the block to be called torn: changed bits never look so.
const leastPart = 32

// Diagnose says what a block is that should be logical block lba. It is for the
// few that Check does not find right, and allocates.
func (s *Source) Diagnose(block []byte, lba uint64, e Expected) Diagnosis {
	x := examination{s: s, block: block, lba: lba, e: e}
	d := x.whole()
	if d.Finding == Right || d.Finding == Intact {
		return d
	}
	x.compare(&d)
	return d
}

// content is one thing that a block, or a part of it, may be.
type content struct {
	bytes      []byte
	generation uint64
	own        bool // of this run at this address
}

// examination is one block under the lens.
type examination struct {
	s        *Source
	block    []byte
	lba      uint64
	e        Expected
	contents []content
}

// make adds the content of a generation of the block itself.
func (x *examination) make(generation uint64) []byte {
	for _, c := range x.contents {
		if c.own && c.generation == generation {
			return c.bytes
		}
	}
	b := make([]byte, x.s.config.BlockBytes)
	x.s.Fill(b, x.lba, generation)
	x.contents = append(x.contents, content{bytes: b, generation: generation, own: true})
	return b
}

// allowed are the generations that the block may have.
func (x *examination) allowed() []uint64 {
	if !x.e.Known {
		return nil
	}
	return append([]uint64{x.e.Generation}, x.e.Or...)
}

// whole decides what needs no comparison of parts.
func (x *examination) whole() Diagnosis {
	var d Diagnosis
	d.Header, d.HasHeader = ParseHeader(x.block)
	for _, g := range x.allowed() {
		if bytes.Equal(x.block, x.make(g)) {
			d.Finding = Right
			return d
		}
	}
	if d.HasHeader && x.intact(&d.Header) {
		d.Finding = x.another(&d.Header)
		return d
	}
	if IsBlank(x.block) {
		d.Finding = Lost
		if !x.e.Known && x.e.First {
			d.Finding = Blank
		}
		return d
	}
	d.Finding = x.parts(&d)
	return d
}

// intact says whether the block is whole as its own header has it, of whatever
// run.
func (x *examination) intact(h *Header) bool {
	return intact(x.s.poolOf(h.Seed), x.block, h)
}

// another names a block that is whole but not the expected one.
func (x *examination) another(h *Header) Finding {
	c := &x.s.config
	if h.Run != c.Run || h.Seed != c.Seed {
		if h.LBA == x.lba || h.Duplicate || x.e.First {
			if !x.e.Known && x.e.First {
				return Blank
			}
			return Lost
		}
		return Misdirected
	}
	if !h.Duplicate {
		switch {
		case h.LBA != x.lba:
			return Misdirected
		case !x.e.Known:
			return Intact
		}
		return Lost
	}
	if !x.e.Known {
		return Intact
	}
	for _, g := range x.e.Before {
		if x.s.Header(x.lba, g) == *h {
			return Lost
		}
	}
	return Misdirected
}

// parts tells a block that is made of several writes from one whose bits have
// changed.
func (x *examination) parts(d *Diagnosis) Finding {
	for _, g := range x.e.Before {
		x.make(g)
	}
	known := false // something of the block is of this run
	if d.HasHeader && d.Header.Seed == x.s.config.Seed && len(x.block) == int(d.Header.BlockBytes) {
		b := make([]byte, len(x.block))
		_ = restore(x.s.pool, b, &d.Header) // its length is right
		own := d.Header.Run == x.s.config.Run && d.Header.LBA == x.lba && !d.Header.Duplicate
		x.contents = append(x.contents, content{bytes: b, generation: d.Header.Generation, own: own})
		known = true
	}
	for at := 0; at < len(x.block); at += SectorBytes {
		known = x.identify(at) || known
	}
	zero, ones := make([]byte, len(x.block)), bytes.Repeat([]byte{0xFF}, len(x.block))
	x.contents = append(x.contents, content{bytes: zero}, content{bytes: ones})
	if x.torn(d) {
		return Torn
	}
	if !known && x.matching() < len(x.block)/4 {
		// Nothing of it is of this run: what was there before, perhaps.
		switch {
		case x.e.First && !x.e.Known:
			return Blank
		case x.e.First:
			return Lost
		}
	}
	return Rotten
}

// matching is the most bytes in which the block agrees with anything expected.
func (x *examination) matching() int {
	most := 0
	for _, c := range x.contents {
		if c.own {
			most = max(most, len(x.block)-differing(x.block, c.bytes))
		}
	}
	return most
}

// torn says whether the beginning of the block is of one content and the rest of
// another, or each sector of one of several.
func (x *examination) torn(d *Diagnosis) bool {
	head, tail := 0, 0
	headOf, tailOf := -1, -1
	for i, c := range x.contents {
		if n := commonPrefix(x.block, c.bytes); n > head {
			head, headOf = n, i
		}
		if n := commonSuffix(x.block, c.bytes); n > tail {
			tail, tailOf = n, i
		}
	}
	if headOf >= 0 && tailOf >= 0 && headOf != tailOf && head >= leastPart && tail >= leastPart && head+tail >= len(x.block) {
		x.other(d, headOf)
		x.other(d, tailOf)
		return true
	}
	used := map[int]bool{}
	for at := 0; at < len(x.block); at += SectorBytes {
		of := -1
		for i, c := range x.contents {
			if bytes.Equal(x.block[at:at+SectorBytes], c.bytes[at:at+SectorBytes]) {
				of = i
				break
			}
		}
		if of < 0 {
			return false
		}
		used[of] = true
	}
	for i := range used {
		x.other(d, i)
	}
	return len(used) > 1
}

// other notes the generation of a part that is not of the expected write.
func (x *examination) other(d *Diagnosis, i int) {
	c := &x.contents[i]
	if c.own && !(x.e.Known && c.generation == x.e.Generation) && !(d.HasHeader && !x.e.Known && c.generation == d.Header.Generation) {
		d.Other, d.HasOther = c.generation, true
	}
}

// identify finds out which write a sector's body is of, although no header says
// so: with the right stretch of the pool the word it was xored with comes out,
// the same all over, and the generation follows from the word.
func (x *examination) identify(at int) bool {
	from := at
	if at == 0 {
		from = (HeaderBytes + 7) &^ 7
	}
	// At both ends of the sector's incompressible part, since either may be whole.
	keep := kept(at, int(x.s.keep))
	last := (at + keep - 32) &^ 7
	found := false
	for _, i := range []int{from, last} {
		if i >= from && i+32 <= len(x.block) {
			found = x.identifyAt(i) || found
		}
	}
	return found
}

func (x *examination) identifyAt(i int) bool {
	word := func(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	o, k, ok := x.s.pool.find(i, [4]uint64{word(x.block, i), word(x.block, i+8), word(x.block, i+16), word(x.block, i+24)})
	if ok {
		x.remember(o, k)
	}
	return ok
}

// remember adds the content that has a stretch and a word.
func (x *examination) remember(offset int, k uint64) {
	// The way back: word -> key -> position in the stream of this address.
	key := unmix64(k)
	generation := (unmix64(key) - draw(x.s.base, x.lba)) * goldenInverse
	// A generation is a small number; of another address it would be any.
	if generation>>60 == 0 {
		h := x.s.Header(x.lba, generation)
		if _, word := x.s.pool.stretch(x.s.base, &h); word == k {
			x.make(generation)
			return
		}
	}
	b := make([]byte, len(x.block))
	xorInto(b, x.s.pool.bytes[offset:offset+len(b)], k)
	if x.s.keep != SectorBytes {
		for at := 0; at < len(b); at += SectorBytes {
			clear(b[at+kept(at, int(x.s.keep)) : at+SectorBytes])
		}
	}
	// The header of a write of another address is not known: what is there goes.
	copy(b[:HeaderBytes], x.block)
	x.contents = append(x.contents, content{bytes: b})
}

// compare says where the block differs from what it should be.
func (x *examination) compare(d *Diagnosis) {
	switch {
	case x.e.Known:
		d.Against = x.nearest(d.Finding)
	case d.HasHeader && d.Header.Run == x.s.config.Run && d.Header.LBA == x.lba:
		d.Against = d.Header.Generation
	default:
		return
	}
	d.Want = x.make(d.Against)
	d.OffsetBytes = uint32(commonPrefix(x.block, d.Want))
	d.Bytes = uint32(differing(x.block, d.Want))
}

// nearest is the generation, of those that may be there, that a block with changed
// bits or of several parts is to be compared with: the one that it has most in
// common with. What is whole has nothing in common with any of them, and is
// compared with the one that must be there at least.
func (x *examination) nearest(f Finding) uint64 {
	all := x.allowed()
	best := all[len(all)-1]
	if f != Rotten && f != Torn {
		return best
	}
	least := len(x.block) + 1
	for _, g := range all {
		if n := differing(x.block, x.make(g)); n < least {
			best, least = g, n
		}
	}
	return best
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func differing(a, b []byte) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func allOnes(b []byte) bool {
	for _, x := range b {
		if x != 0xFF {
			return false
		}
	}
	return true
}

// goldenInverse is the inverse of golden modulo 2^64.
const goldenInverse = 0xF1DE83E19937733D

// unmix64 is the inverse of mix64.
func unmix64(x uint64) uint64 {
	x ^= x>>31 ^ x>>62
	x *= 0x319642B2D24D8EC3
	x ^= x>>27 ^ x>>54
	x *= 0x96DE1B173F119089
	return x ^ x>>30 ^ x>>60
}
