package pattern

import (
	"fmt"
	"math/bits"
)

const (
	// zerosCost is what a compressor needs for the zeros of one sector, and
	// magicSaves what it saves by the first bytes of every block being the same,
	// in bytes. Both as deflate has them.
	zerosCost  = 4
	magicSaves = 5
)

// keepBytes is how much of each sector must not compress for a block to come to
// so many thousandths of its size.
func keepBytes(blockBytes uint32, permille uint16) (uint16, error) {
	sectors := int(blockBytes / SectorBytes)
	want := int(blockBytes)*int(permille)/1000 - zerosCost*sectors + magicSaves
	keep := (want + sectors/2) / sectors
	if keep < HeaderBytes && sectors > 1 {
		keep = (want - HeaderBytes + (sectors-1)/2) / (sectors - 1)
	}
	least := HeaderBytes + zerosCost*sectors + sectors - 1
	if keep < 1 || sectors == 1 && keep < HeaderBytes {
		return 0, fmt.Errorf("%w: blocks of %d bytes with their headers cannot compress to %d thousandths; %d is the least",
			ErrPattern, blockBytes, permille, (least*1000)/int(blockBytes)+1)
	}
	return uint16(min(keep, SectorBytes)), nil
}

// dedup decides which units repeat a content of a few. Of U units written,
// U*permille/1000 contents are different. A twentieth of those are the contents
// that repeat (vdbench's default share of duplicate sets), the others are each
// there once.
type dedup struct {
	// units is how many units the region has; 0 when nothing repeats.
	units uint64
	// sets is how many contents repeat, once the share of units that have one of
	// their own, of 2^64.
	sets, once uint64
	// blocks is how many logical blocks a unit has.
	blocks uint64
	key    uint64
}

func newDedup(c *Config) dedup {
	if c.DedupPermille >= 1000 {
		return dedup{}
	}
	d := dedup{blocks: uint64(c.DedupUnitBytes / c.BlockBytes), key: draw(mix64(c.Seed), 1)}
	d.units = max(c.RegionBlocks/d.blocks, 1)
	d.sets = max(d.units/20_000*uint64(c.DedupPermille)+d.units%20_000*uint64(c.DedupPermille)/20_000, 1)
	// Once each: 19 twentieths of the different contents; all others repeat.
	d.once, _ = bits.Div64(950*uint64(c.DedupPermille), 0, 1_000_000)
	return d
}

// content is the number of the content that a logical block repeats in a
// generation; false when it has one of its own.
func (d *dedup) content(lba, generation uint64) (uint64, bool) {
	unit := lba / d.blocks
	// A sequence that wraps around once for each unit with a content of its own,
	// so that their number is exact in any stretch; each generation begins
	// elsewhere.
	if unit*d.once+mix64(d.key^generation) < d.once {
		return 0, false
	}
	key := mix64(draw(d.key, unit) + generation*golden)
	set, _ := bits.Mul64(mix64(key+golden), d.sets)
	return set*d.blocks + lba%d.blocks, true
}
