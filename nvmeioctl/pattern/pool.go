package pattern

import (
	"bytes"
	"encoding/binary"
	"sync"
)

// poolBytes of random words serve every block: enough that a compressor's
// window does not see it come round within a command, small enough to stay in a
// processor's second-level cache.
const poolBytes = 256 << 10

// golden is 2^64 over the golden ratio, odd: the step of SplitMix64.
const golden = 0x9E3779B97F4A7C15

// mix64 is a bijection of 64-bit words in which every input bit changes every
// output bit with probability one half: the output function of SplitMix64
// (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// draw is the n-th word of the SplitMix64 stream of a key.
func draw(key, n uint64) uint64 { return mix64(key + (n+1)*golden) }

// base is what run and seed contribute to the word of a block.
func base(run, seed uint64) uint64 { return mix64(seed) ^ draw(golden, run) }

// pool is the random bytes of a seed. They are not changed once made.
type pool struct {
	bytes []byte
	// index finds a place by what lies there; it is made when it is first needed.
	once  sync.Once
	index *[1 << indexBits]uint16
}

// indexBits make the index three times as large as there are words.
const indexBits = 17

// slot is where the index has two words that follow each other, by what they
// differ in: xoring both with a third does not change that.
func slot(difference uint64) uint64 { return difference * golden >> (64 - indexBits) }

// find is where a stretch of the pool begins that gives, four words long and at an
// offset in it, what was found there xored with one and the same word.
func (p *pool) find(at int, found [4]uint64) (offset int, word uint64, ok bool) {
	p.once.Do(p.makeIndex)
	load := func(at int) uint64 { return binary.LittleEndian.Uint64(p.bytes[at:]) }
	for i := slot(found[0] ^ found[1]); p.index[i] != 0; i = (i + 1) % uint64(len(p.index)) {
		from := int(p.index[i]-1) * 8
		offset := from - at
		if offset < 0 || offset >= poolBytes || offset%64 != 0 {
			continue
		}
		word := found[0] ^ load(from)
		if found[1]^load(from+8) == word && found[2]^load(from+16) == word && found[3]^load(from+24) == word {
			return offset, word, true
		}
	}
	return 0, 0, false
}

func (p *pool) makeIndex() {
	p.index = new([1 << indexBits]uint16)
	for at := 0; at+32 <= len(p.bytes); at += 8 {
		i := slot(binary.LittleEndian.Uint64(p.bytes[at:]) ^ binary.LittleEndian.Uint64(p.bytes[at+8:]))
		for p.index[i] != 0 {
			i = (i + 1) % uint64(len(p.index))
		}
		p.index[i] = uint16(at/8 + 1) // below 2^16, by the sizes of pool and block
	}
}

func newPool(seed uint64) *pool {
	p := &pool{bytes: make([]byte, poolBytes+MaxBlockBytes)}
	for i := 0; i < len(p.bytes); i += 8 {
		binary.LittleEndian.PutUint64(p.bytes[i:], draw(seed, uint64(i)))
	}
	return p
}

// stretch is the part of the pool that a block's body is made from, and the
// word it is xored with. It begins at a cache line.
func (p *pool) stretch(base uint64, h *Header) ([]byte, uint64) {
	lba := h.LBA
	if h.Duplicate {
		lba = ^lba
	}
	key := mix64(draw(base, lba) + h.Generation*golden)
	offset := int(key>>32) % poolBytes &^ 63
	return p.bytes[offset : offset+int(h.BlockBytes)], mix64(key)
}

// fill makes a block. dst is as long as the header says.
func (p *pool) fill(dst []byte, base uint64, h *Header) {
	src, word := p.stretch(base, h)
	if h.KeepBytes == SectorBytes {
		xorInto(dst, src, word)
	} else {
		for at := 0; at < len(dst); at += SectorBytes {
			keep := kept(at, int(h.KeepBytes))
			xorInto(dst[at:at+keep], src[at:at+keep], word)
			clear(dst[at+keep : at+SectorBytes])
		}
	}
	h.put(dst)
}

// same says whether a block is what fill makes.
func (p *pool) same(b []byte, base uint64, h *Header) bool {
	src, word := p.stretch(base, h)
	var want [HeaderBytes]byte
	h.put(want[:])
	if !bytes.Equal(b[:HeaderBytes], want[:]) {
		return false
	}
	if h.KeepBytes == SectorBytes {
		return binary.LittleEndian.Uint64(b[HeaderBytes:])^word == binary.LittleEndian.Uint64(src[HeaderBytes:]) &&
			isXor(b[64:], src[64:], word)
	}
	for at := 0; at < len(b); at += SectorBytes {
		from, keep := 0, kept(at, int(h.KeepBytes))
		if at == 0 {
			from = HeaderBytes
		}
		if !isXor(b[at+from:at+keep], src[at+from:at+keep], word) || !isZero(b[at+keep:at+SectorBytes]) {
			return false
		}
	}
	return true
}

// kept is how much of the sector at an offset does not compress. The header is
// never cut.
func kept(at, keep int) int {
	if at == 0 {
		return max(keep, HeaderBytes)
	}
	return keep
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// Restorer makes blocks again from their headers, of whatever run. It keeps the
// pools of a few seeds, 320 KiB each. It is safe for concurrent use.
type Restorer struct {
	limit int
	mu    sync.RWMutex
	pools map[uint64]*pool
}

// NewRestorer keeps the pools of at most so many seeds, at least one; when there
// are more, one of them is made anew now and then.
func NewRestorer(seeds int) *Restorer {
	return &Restorer{limit: max(seeds, 1), pools: make(map[uint64]*pool)}
}

func (r *Restorer) pool(seed uint64) *pool {
	r.mu.RLock()
	p := r.pools[seed]
	r.mu.RUnlock()
	if p != nil {
		return p
	}
	p = newPool(seed)
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.pools[seed]; q != nil {
		return q
	}
	if len(r.pools) >= r.limit {
		for old := range r.pools {
			delete(r.pools, old)
			break
		}
	}
	r.pools[seed] = p
	return p
}

// Restore makes a block again from its header. dst is as long as the header says.
func (r *Restorer) Restore(dst []byte, h *Header) error { return restore(r.pool(h.Seed), dst, h) }

// Intact reads a block's header and says whether the whole block is as that
// header says, so that the header alone need be kept. Bytes of others cost a
// comparison of eight bytes.
func (r *Restorer) Intact(block []byte) (Header, bool) {
	h, ok := ParseHeader(block)
	if !ok || len(block) != int(h.BlockBytes) {
		return h, false
	}
	return h, intact(r.pool(h.Seed), block, &h)
}
