package ftl

import (
	"math"
	"math/rand/v2"
)

// Wear is the state of the flash.
type Wear struct {
	// MinErases, MaxErases and MeanErases are over superblocks.
	MinErases, MaxErases uint32
	MeanErases           float64
	// UsedRatio is MeanErases over the rated cycles: 1 is the rated life, and it
	// goes beyond. 0 without a rating. Percentage used is its floor in percent.
	UsedRatio float64
	// SpareRatio is how much of the spare blocks is left, 1 to 0.
	SpareRatio float64
	// FailedBlocks have been replaced by spare ones, or found none.
	FailedBlocks uint32
	// RetiredSuperblocks are lost to failed blocks; see [Config.Shrinks].
	RetiredSuperblocks uint32
}

// Wear returns the state of the flash.
func (f *FTL) Wear() Wear {
	w := Wear{MinErases: math.MaxUint32, FailedBlocks: f.health.failed, RetiredSuperblocks: f.retired}
	for _, n := range f.erases {
		w.MinErases = min(w.MinErases, n)
		w.MaxErases = max(w.MaxErases, n)
	}
	w.MeanErases = float64(f.count.Erases) / float64(len(f.erases))
	if f.cfg.RatedCycles != 0 {
		w.UsedRatio = w.MeanErases / float64(f.cfg.RatedCycles)
	}
	w.SpareRatio = f.health.spareRatio()
	return w
}

// WornOut says that blocks failed and no spare ones are left: the drive can
// only be read.
func (f *FTL) WornOut() bool { return f.health.failed >= f.health.spares }

// PercentageUsed is the floor of UsedRatio in percent, by integers.
func (f *FTL) PercentageUsed() uint64 {
	if f.cfg.RatedCycles == 0 {
		return 0
	}
	return f.count.Erases * 100 / (uint64(len(f.erases)) * uint64(f.cfg.RatedCycles))
}

// health fails blocks. A superblock stands for blocksPerSuperblock blocks, one
// a die; a block's life follows a Weibull law of shape 8 by which one block in
// a hundred has failed when the rated cycles are done. A drive has two spare
// blocks for a hundred, so at its rated life half of them are left and a few
// percent later none are. The numbers are the model's own: no maker publishes
// theirs.
type health struct {
	rated  uint32
	spares uint32 // to begin with
	failed uint32
}

const (
	blocksPerSuperblock = 64
	failedAtRating      = 0.01
	spareShare          = 0.02
	// failsFrom is the wear, as a part of the rating, below which nothing fails:
	// there the law gives less than one block in 10 million an erase.
	failsFrom = 0.25
)

func newHealth(cfg Config) health {
	blocks := uint64(cfg.Geometry.Superblocks) * blocksPerSuperblock
	return health{rated: cfg.RatedCycles, spares: max(1, uint32(float64(blocks)*spareShare))}
}

func (h *health) spareRatio() float64 {
	return float64(h.spares-min(h.failed, h.spares)) / float64(h.spares)
}

// erased decides whether a block fails at the n-th erasure of its superblock.
func (h *health) erased(n uint32, pcg *rand.PCG) {
	if h.rated == 0 {
		return
	}
	x := float64(n) / float64(h.rated)
	if x < failsFrom {
		return
	}
	x2 := x * x
	x4 := x2 * x2
	x7 := x4 * x2 * x
	p := blocksPerSuperblock * failedAtRating * 8 * x7 / float64(h.rated)
	// 53 bits, as rand.Float64 does.
	if float64(pcg.Uint64()>>11)/(1<<53) < p && h.failed < math.MaxUint32 {
		h.failed++
	}
}

// levelThreshold is how far, in erasures, the least worn superblock with data
// may fall behind the most worn free one: 1.5 % of the rating, so that the
// writes it costs are lost in the noise.
func levelThreshold(rated uint32) uint32 { return max(16, rated/64) }

// level moves cold data from a little worn superblock to the most worn free
// one: there it rests the flash that has worked most, and gives the other back
// to work. Cold is what has not been collected for as long as the host takes to
// write the whole flash; data that is written evenly never gets that old, and
// to move anything warmer would wear the flash for nothing. At most one a call.
func (f *FTL) level() {
	if f.cfg.RatedCycles == 0 || f.freeLen < reserve {
		return
	}
	n := uint32(len(f.free))
	worn := uint32(0)
	for i := uint32(1); i < f.freeLen; i++ {
		if f.erases[f.free[(f.freeHead+i)%n]] > f.erases[f.free[(f.freeHead+worn)%n]] {
			worn = i
		}
	}
	limit := f.erases[f.free[(f.freeHead+worn)%n]]
	threshold := levelThreshold(f.cfg.RatedCycles)
	now := f.hostSuperblocks()
	if limit <= threshold || now < n {
		return
	}
	limit -= threshold
	cold := noBlock
	for i, e := range f.erases {
		if e < limit && f.state[i] == stateClosed && f.closed[i] < now-n && f.score[i] > 0 {
			cold, limit = uint32(i), e
		}
	}
	if cold != noBlock {
		f.swap(cold, f.takeFree(worn))
	}
}

// swap copies what is valid in cold to the erased superblock to, closes that
// and erases cold.
func (f *FTL) swap(cold, to uint32) {
	f.score[cold] = notVictim
	next := to << f.shift
	first := cold << f.shift
	for p := first; p < first+f.fill[cold]; p++ {
		if f.valid[p>>6]&(1<<(p&63)) == 0 {
			continue
		}
		f.valid[p>>6] &^= 1 << (p & 63)
		f.move(p, next)
		next++
	}
	n := next - to<<f.shift
	f.count.LevelledPages += uint64(n)
	f.close(to, n)
	f.erase(cold)
}

// FreeSuperblocks is how many superblocks can be written at once: those that
// are erased and those without a valid page, which need no more than erasing.
func (f *FTL) FreeSuperblocks() uint32 {
	n := f.freeLen
	for _, s := range f.score {
		if s == 0 {
			n++
		}
	}
	return n
}

// EraseUnused erases every superblock that holds programmed pages and no valid
// one, as a secure erase does after everything has been deallocated. The
// frontiers stay.
func (f *FTL) EraseUnused() {
	for i, s := range f.score {
		if s == 0 {
			f.score[i] = notVictim
			f.erase(uint32(i))
		}
	}
}
