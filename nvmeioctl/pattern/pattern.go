package pattern

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrPattern is wrapped by every error of the package.
var ErrPattern = errors.New("block data")

// Config is what the data of a run follow from.
type Config struct {
	// Run is a number of the run's own, so that blocks left by another run with
	// the same seed are not taken for this one's; Seed is the run's seed.
	Run, Seed uint64
	// BlockBytes is the data size of a logical block: a multiple of 512 up to
	// 64 KiB.
	BlockBytes uint32
	// CompressPermille is what a block compresses to, in thousandths of its
	// size: 1 to 1000. 0 and 1000 mean that it does not compress.
	CompressPermille uint16
	// DedupPermille is how many different contents there are, in thousandths of
	// the units written: 1 to 1000. 0 and 1000 mean that all differ.
	DedupPermille uint16
	// DedupUnitBytes is what is deduplicated as one: a multiple of BlockBytes;
	// 0 means 4096, or BlockBytes where that is larger. Writes are whole units.
	DedupUnitBytes uint32
	// RegionBlocks is how many logical blocks the data are for, from which the
	// number of repeated contents follows. Of use only with DedupPermille.
	RegionBlocks uint64
}

// Source makes and checks the blocks of one run. It is safe for concurrent use.
type Source struct {
	config Config
	pool   *pool
	base   uint64
	keep   uint16
	dedup  dedup
	// other is the pool of another seed, the one that was needed last.
	other atomic.Pointer[seededPool]
}

// seededPool is a pool with its seed.
type seededPool struct {
	seed uint64
	pool *pool
}

// poolOf is the pool of a seed. That of another run than the source's is kept
// until one of a third is needed.
func (s *Source) poolOf(seed uint64) *pool {
	if seed == s.config.Seed {
		return s.pool
	}
	if o := s.other.Load(); o != nil && o.seed == seed {
		return o.pool
	}
	o := &seededPool{seed, newPool(seed)}
	s.other.Store(o)
	return o.pool
}

// New checks a configuration and makes the run's pool.
func New(c Config) (*Source, error) {
	if c.CompressPermille == 0 {
		c.CompressPermille = 1000
	}
	if c.DedupPermille == 0 {
		c.DedupPermille = 1000
	}
	if c.DedupUnitBytes == 0 {
		c.DedupUnitBytes = max(4096, c.BlockBytes)
	}
	switch {
	case c.BlockBytes == 0 || c.BlockBytes%SectorBytes != 0 || c.BlockBytes > MaxBlockBytes:
		return nil, fmt.Errorf("%w: logical blocks of %d bytes are not a multiple of 512 up to 65536", ErrPattern, c.BlockBytes)
	case c.CompressPermille > 1000 || c.DedupPermille > 1000:
		return nil, fmt.Errorf("%w: a ratio of %d or %d thousandths: 1 to 1000", ErrPattern, c.CompressPermille, c.DedupPermille)
	case c.DedupPermille < 1000 && c.DedupUnitBytes%c.BlockBytes != 0:
		return nil, fmt.Errorf("%w: a unit of %d bytes is not whole logical blocks of %d", ErrPattern, c.DedupUnitBytes, c.BlockBytes)
	case c.DedupPermille < 1000 && c.RegionBlocks == 0:
		return nil, fmt.Errorf("%w: duplicates need the number of blocks", ErrPattern)
	}
	s := &Source{config: c, pool: newPool(c.Seed), base: base(c.Run, c.Seed), keep: SectorBytes}
	if c.CompressPermille < 1000 {
		var err error
		if s.keep, err = keepBytes(c.BlockBytes, c.CompressPermille); err != nil {
			return nil, err
		}
	}
	s.dedup = newDedup(&c)
	return s, nil
}

// Config returns what the source was made from, with defaults filled in.
func (s *Source) Config() Config { return s.config }

// Header is the header of a logical block in a generation.
func (s *Source) Header(lba, generation uint64) Header {
	h := Header{
		Run: s.config.Run, Seed: s.config.Seed, LBA: lba, Generation: generation,
		BlockBytes: s.config.BlockBytes, KeepBytes: s.keep,
	}
	if s.dedup.units != 0 {
		if content, ok := s.dedup.content(lba, generation); ok {
			h.LBA, h.Generation, h.Duplicate = content, 0, true
		}
	}
	return h
}

// Fill writes successive logical blocks, from number lba on, all in one
// generation, into dst, which holds whole blocks. It allocates nothing.
func (s *Source) Fill(dst []byte, lba, generation uint64) {
	size := int(s.config.BlockBytes)
	for len(dst) >= size {
		h := s.Header(lba, generation)
		s.pool.fill(dst[:size:size], s.base, &h)
		dst = dst[size:]
		lba++
	}
}

// Stamp writes only the headers of successive logical blocks, from number lba on,
// over whatever dst holds, and marks them so: the blocks tell which they are, and
// nothing can be said of their bodies. It allocates nothing.
func (s *Source) Stamp(dst []byte, lba, generation uint64) {
	size := int(s.config.BlockBytes)
	h := Header{Run: s.config.Run, Seed: s.config.Seed, Generation: generation, BlockBytes: s.config.BlockBytes, KeepBytes: s.keep, HeaderOnly: true}
	for len(dst) >= size {
		h.LBA = lba
		h.put(dst)
		dst = dst[size:]
		lba++
	}
}

// Check compares successive logical blocks with what Fill writes, and returns
// how many are right before the first that is not: all of them when nothing is
// wrong. It allocates nothing.
func (s *Source) Check(b []byte, lba, generation uint64) (right int) {
	size := int(s.config.BlockBytes)
	for len(b) >= size {
		h := s.Header(lba, generation)
		if !s.pool.same(b[:size:size], s.base, &h) {
			return right
		}
		b = b[size:]
		lba++
		right++
	}
	return right
}

// Restore makes a block of the source's own run again from its header.
func (s *Source) Restore(dst []byte, h *Header) error {
	if h.Seed != s.config.Seed {
		return fmt.Errorf("%w: a header of another seed", ErrPattern)
	}
	return restore(s.pool, dst, h)
}

// Intact reads a block's header and says whether the whole block is as that
// header says. The header is that of the source's seed, whatever the run; any
// other gives false.
func (s *Source) Intact(block []byte) (Header, bool) {
	h, ok := ParseHeader(block)
	if !ok || h.Seed != s.config.Seed {
		return h, false
	}
	return h, intact(s.pool, block, &h)
}

// Foreign says whether a block is a whole one, as its own header has it, of
// another run than the source's, whatever that run's seed.
func (s *Source) Foreign(block []byte) bool {
	h, ok := ParseHeader(block)
	if !ok || h.Run == s.config.Run && h.Seed == s.config.Seed {
		return false
	}
	return intact(s.poolOf(h.Seed), block, &h)
}

// IsBlank says whether a block is all zeros or all ones, as one is that was never
// written or was deallocated.
func IsBlank(block []byte) bool { return isZero(block) || allOnes(block) }

func restore(p *pool, dst []byte, h *Header) error {
	if !h.valid() || h.HeaderOnly || len(dst) != int(h.BlockBytes) {
		return fmt.Errorf("%w: %d bytes for a block of %d", ErrPattern, len(dst), h.BlockBytes)
	}
	p.fill(dst, base(h.Run, h.Seed), h)
	return nil
}

func intact(p *pool, block []byte, h *Header) bool {
	return len(block) == int(h.BlockBytes) && !h.HeaderOnly && p.same(block, base(h.Run, h.Seed), h)
}
