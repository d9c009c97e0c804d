package ftl

import (
	"fmt"
	"math"
)

// Layout is how the flash of a drive is built: what its usable bytes, its mapping
// unit and the floor of its write amplification follow from. A superblock is one
// block of every plane of every die. The zero value is a layout that is not known.
type Layout struct {
	// Dies, PlanesPerDie, BlocksPerPlane (those of the nominal capacity) and
	// PagesPerBlock are counts; PageBytes is what a flash page holds of user data.
	Dies           uint64 `json:"dies"`
	PlanesPerDie   uint64 `json:"planes_per_die"`
	BlocksPerPlane uint64 `json:"blocks_per_plane"`
	PagesPerBlock  uint64 `json:"pages_per_block"`
	PageBytes      uint64 `json:"page_bytes"`
	// ExtraBlocks is how many blocks a plane has beyond BlocksPerPlane and the
	// bad ones, as a part of it; 0.05 is usual.
	ExtraBlocks float64 `json:"extra_blocks"`
	// ParityDies is how many dies' worth of each superblock holds parity; 0 for none.
	ParityDies uint64 `json:"parity_dies"`
	// MetadataShare is what the drive programs of its own, its map above all, for
	// each byte of data, as a part of it; 0.004 is an entry of 4 bytes for each
	// 4 KiB unit, written four times.
	MetadataShare float64 `json:"metadata_share"`
	// UnitBytes is the mapping unit (indirection unit), a power of two.
	UnitBytes uint64 `json:"unit_bytes"`
}

// Known says that there is a layout.
func (l Layout) Known() bool { return l != Layout{} }

// Validate says what is wrong with a layout.
func (l Layout) Validate() error {
	for _, n := range []uint64{l.Dies, l.PlanesPerDie, l.BlocksPerPlane, l.PagesPerBlock, l.PageBytes, l.UnitBytes} {
		if n == 0 || n > 1<<20 {
			return fmt.Errorf("layout of the flash: every count must be 1 to a million: %+v", l)
		}
	}
	switch {
	case l.ParityDies >= l.Dies || !(l.ExtraBlocks >= -0.2 && l.ExtraBlocks <= 1):
		return fmt.Errorf("layout of the flash: %d dies of parity of %d, %g extra blocks", l.ParityDies, l.Dies, l.ExtraBlocks)
	case !(l.MetadataShare >= 0 && l.MetadataShare <= 0.2) || l.UnitBytes&(l.UnitBytes-1) != 0:
		return fmt.Errorf("layout of the flash: metadata of %g, mapping units of %d bytes", l.MetadataShare, l.UnitBytes)
	}
	// Beyond any drive, and beyond the arithmetic here.
	if b := float64(l.Dies) * float64(l.PlanesPerDie) * float64(l.BlocksPerPlane) * float64(l.PagesPerBlock) * float64(l.PageBytes); b >= 1<<60 {
		return fmt.Errorf("layout of the flash: %g bytes", b)
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
	return uint64(math.Round(float64(l.NominalBytes()) * (1 + l.ExtraBlocks) * float64(l.Dies-l.ParityDies) / float64(l.Dies)))
}

// SuperblockBytes is what a superblock holds of data.
func (l Layout) SuperblockBytes() uint64 {
	return (l.Dies - l.ParityDies) * l.PlanesPerDie * l.PagesPerBlock * l.PageBytes
}

// Superblocks is how many superblocks there are, the last perhaps in part.
func (l Layout) Superblocks() uint64 {
	return (l.UsableBytes() + l.SuperblockBytes() - 1) / l.SuperblockBytes()
}

// FloorWAF is what parity and metadata cost: sequential writes show it.
func (l Layout) FloorWAF() float64 {
	return float64(l.Dies) / float64(l.Dies-l.ParityDies) * (1 + l.MetadataShare)
}
