package ftl

import "fmt"

// Layout is how the flash of a drive is built: what its usable bytes and the
// floor of its write amplification follow from. A superblock is one block of
// every plane of every die.
type Layout struct {
	// Dies, PlanesPerDie, BlocksPerPlane (those of the nominal capacity) and
	// PagesPerBlock are counts; PageBytes is what a flash page holds of user data.
	Dies, PlanesPerDie, BlocksPerPlane, PagesPerBlock uint64
	PageBytes                                         uint64
	// ExtraBlocks is how many blocks a plane has beyond BlocksPerPlane and the
	// bad ones, as a part of it; 0.05 is usual.
	ExtraBlocks float64
	// ParityDies is how many dies' worth of each superblock holds parity; 0 for none.
	ParityDies uint64
}

// Validate says what is wrong with a layout.
func (l Layout) Validate() error {
	for _, n := range []uint64{l.Dies, l.PlanesPerDie, l.BlocksPerPlane, l.PagesPerBlock, l.PageBytes} {
		if n == 0 || n > 1<<20 {
			return fmt.Errorf("layout of the flash: every count must be 1 to a million: %+v", l)
		}
	}
	if l.ParityDies >= l.Dies || !(l.ExtraBlocks >= -0.2 && l.ExtraBlocks <= 1) {
		return fmt.Errorf("layout of the flash: %d dies of parity of %d, %g extra blocks", l.ParityDies, l.Dies, l.ExtraBlocks)
	}
	return nil
}

// NominalBytes is the capacity that the dies are sold with.
func (l Layout) NominalBytes() uint64 {
	return l.Dies * l.PlanesPerDie * l.BlocksPerPlane * l.PagesPerBlock * l.PageBytes
}

// UsableBytes is T: what is left for data and garbage, extra blocks included and
// parity not.
func (l Layout) UsableBytes() uint64 {
	return uint64(float64(l.NominalBytes()) * (1 + l.ExtraBlocks) * float64(l.Dies-l.ParityDies) / float64(l.Dies))
}

// SuperblockBytes is what a superblock holds of data.
func (l Layout) SuperblockBytes() uint64 {
	return (l.Dies - l.ParityDies) * l.PlanesPerDie * l.PagesPerBlock * l.PageBytes
}

// FloorWAF is what parity alone costs: sequential writes show it.
func (l Layout) FloorWAF() float64 { return float64(l.Dies) / float64(l.Dies-l.ParityDies) }
