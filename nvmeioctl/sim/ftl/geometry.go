package ftl

import (
	"fmt"
	"math"
	"math/bits"
)

// Limits of the model. They bound what a damaged state can make us allocate.
const (
	// MaxLogicalPages is the largest logical space.
	MaxLogicalPages = 1 << 22
	// MaxFlashPages bounds superblocks times pages per superblock.
	MaxFlashPages = 1 << 23
	// MaxPagesPerSuperblock bounds one superblock.
	MaxPagesPerSuperblock = 1 << 15
	minSuperblocks        = 8
	minPages              = 4

	// reserve is how many erased superblocks there are whenever the host may
	// write. Two, because collection takes one before it gives one back.
	reserve = 2
	// openShare is how much of a superblock is erased but of no use, on average,
	// at the moment a victim is chosen: half of the collection frontier.
	openShare = 0.5
)

// Geometry is the shape of the flash: how many superblocks (the unit of
// erasing) of how many pages (the unit of mapping).
type Geometry struct {
	Superblocks        uint32
	PagesPerSuperblock uint32
}

// EffectivePages is the space, in pages, in which garbage collection works:
// what a closed formula calls T. It excludes the reserve and the open part of
// the frontier, which a full-size drive has too, but where they are negligible
// (measured: without this correction the model of 256 superblocks is 3 % off).
func (g Geometry) EffectivePages() float64 {
	return (float64(g.Superblocks) - reserve - openShare) * float64(g.PagesPerSuperblock)
}

// TotalPages is how many pages there are.
func (g Geometry) TotalPages() uint64 {
	return uint64(g.Superblocks) * uint64(g.PagesPerSuperblock)
}

// Size targets of FitGeometry: an error of one part in Superblocks is the price
// of a small map, so there are at least 256 of them; more pages a superblock
// bring the result closer to the large-block limit, and 4096 are close enough
// (WAF 0.03 % low) while scanning the superblocks for a victim stays cheap.
const (
	fitSuperblocks = 256
	fitMinPages    = 512
	fitMaxPages    = 4096
)

// MinFlashPages is the smallest flash FitGeometry accepts.
const MinFlashPages = (fitSuperblocks - reserve - openShare) * fitMinPages

// FitGeometry chooses a geometry whose EffectivePages is as close to flashPages
// as whole pages and superblocks allow, at least 256 superblocks of 512 pages.
func FitGeometry(flashPages uint64) (Geometry, error) {
	t := float64(flashPages)
	if t < MinFlashPages {
		return Geometry{}, fmt.Errorf("flash of %d pages: a faithful model needs %d superblocks of %d pages at least",
			flashPages, fitSuperblocks, fitMinPages)
	}
	if flashPages > MaxFlashPages*9/10 {
		return Geometry{}, fmt.Errorf("flash of %d pages is beyond the model's %d", flashPages, MaxFlashPages*9/10)
	}
	most := math.Floor(t / (fitSuperblocks - reserve - openShare))
	most = min(most, fitMaxPages)
	least := max(math.Ceil(most*3/4), fitMinPages)
	best, bestError := Geometry{}, math.Inf(1)
	for p := most; p >= least; p-- {
		g := Geometry{
			Superblocks:        uint32(math.Round(t/p + reserve + openShare)),
			PagesPerSuperblock: uint32(p),
		}
		e := math.Abs(g.EffectivePages() - t)
		if e < bestError && g.Superblocks >= fitSuperblocks {
			best, bestError = g, e
		}
	}
	if bestError > t/1000 {
		return Geometry{}, fmt.Errorf("flash of %d pages: no geometry comes within 0.1 %%", flashPages)
	}
	return best, nil
}

// Config is what an FTL is made from.
type Config struct {
	// LogicalPages is how many pages the host can address.
	LogicalPages uint32
	Geometry     Geometry
	// RatedCycles is how often a superblock may be erased in its rated life;
	// 0 means that wear is counted but never rated (UsedRatio is 0, nothing fails).
	RatedCycles uint32
	// Seed decides which blocks fail, and when.
	Seed uint64
	// Shrinks says that failed blocks are lost to the flash: each time a
	// superblock's worth of them has failed, a superblock is retired, T shrinks
	// and write amplification rises. Without it spare blocks make up for them
	// until none are left.
	Shrinks bool
	// Separates says that pages which are rewritten rarely are kept apart from
	// those that are rewritten often: the former are programmed next to what
	// collection moves. Skewed writes then cost less. See [FTL.Write].
	Separates bool
}

// Validate says what is wrong with a configuration. A valid one never stalls:
// whatever the host writes, collection finds a superblock with garbage in it.
func (c Config) Validate() error {
	g := c.Geometry
	switch {
	case g.Superblocks < minSuperblocks || g.PagesPerSuperblock < minPages:
		return fmt.Errorf("flash of %d superblocks of %d pages is below the smallest, %d of %d",
			g.Superblocks, g.PagesPerSuperblock, minSuperblocks, minPages)
	case g.PagesPerSuperblock > MaxPagesPerSuperblock || g.TotalPages() > MaxFlashPages:
		return fmt.Errorf("flash of %d superblocks of %d pages is beyond the model's %d pages",
			g.Superblocks, g.PagesPerSuperblock, MaxFlashPages)
	case c.LogicalPages == 0 || c.LogicalPages > MaxLogicalPages:
		return fmt.Errorf("%d logical pages are not within 1 to %d", c.LogicalPages, MaxLogicalPages)
	}
	room := g.room(0)
	if uint64(c.LogicalPages) >= room {
		return fmt.Errorf("%d logical pages leave no spare area: this flash has room for fewer than %d",
			c.LogicalPages, room)
	}
	return nil
}

// room is how many logical pages there must be fewer than, with so many
// superblocks retired.
func (g Geometry) room(retired uint32) uint64 {
	if retired+reserve+2 >= g.Superblocks {
		return 0
	}
	return uint64(g.Superblocks-retired-reserve-2) * uint64(g.PagesPerSuperblock)
}

// shift is the base-two logarithm of the distance between the first page
// numbers of neighbouring superblocks. Page numbers have gaps so that the
// superblock of a page is a shift away and its bitmap starts at a word.
func (g Geometry) shift() uint {
	return uint(bits.Len32(max(g.PagesPerSuperblock, 64) - 1))
}
