package ftl

// apart tells pages that are rewritten often from those that are not, by the
// rule that a page lives as long as its data before it did (Wang et al.,
// "Separating Data via Block Invalidation Time Inference", FAST 2022, without
// its further classes): what is replaced sooner than superblocks are collected
// on average was hot, and so will be what replaces it.
type apart struct {
	// life is the age at which superblocks are collected, in superblocks of host
	// writes times apartUnit, smoothed over apartSpan of them.
	life uint64
}

const (
	apartUnit = 1 << 16
	apartSpan = 16
	// apartMost bounds life: ages have 32 bits.
	apartMost = 1 << 32 * apartUnit
)

// collected takes in the age of a victim.
func (a *apart) collected(age uint32) {
	a.life += uint64(age)*apartUnit/apartSpan - a.life/apartSpan
}

// hot says whether data of this age, in superblocks of host writes, was
// replaced early.
func (a *apart) hot(age uint32) bool { return uint64(age)*apartUnit < a.life }

// cold says whether the host's write of a page goes to the frontier of
// collection: it replaces data that has been there for long.
func (f *FTL) cold(lpn uint32) bool {
	old := f.l2p[lpn]
	if old == unmapped {
		return false
	}
	block := old >> f.shift
	return f.state[block] == stateClosed && !f.apart.hot(f.hostSuperblocks()-f.closed[block])
}

// writeCold programs a mapped page for the host at the frontier of collection.
func (f *FTL) writeCold(lpn uint32) {
	if f.collect.next == f.collect.end {
		f.openCold()
	}
	old, page := f.l2p[lpn], f.collect.next
	f.collect.next = page + 1
	f.valid[old>>6] &^= 1 << (old & 63)
	f.score[old>>f.shift]--
	f.p2l[page] = lpn
	f.l2p[lpn] = page
	f.valid[page>>6] |= 1 << (page & 63)
	f.score[page>>f.shift]++
	f.count.HostPages++
}

// openCold gives the frontier of collection an erased superblock, and makes the
// reserve whole again; what that moves may fill the frontier anew.
func (f *FTL) openCold() {
	before := f.count.CollectedPages
	for f.collect.next == f.collect.end {
		f.closeFrontier(&f.collect)
		f.openFrontier(&f.collect, stateCollect)
		for f.freeLen < reserve {
			f.collectOne()
		}
	}
	f.episode(f.count.CollectedPages - before)
}

// victimApart is the closed superblock that is best collected now where hot and
// cold data are apart: that with the most garbage for its cost, times its age.
// By garbage alone hot superblocks would be collected as full as cold ones, and
// keeping them apart would gain nothing (measured: 2 %). Cost and benefit:
// Rosenblum and Ousterhout 1992.
func (f *FTL) victimApart() uint32 {
	best, most := noBlock, uint64(0)
	now, pages := f.hostSuperblocks(), int32(f.cfg.Geometry.PagesPerSuperblock)
	for i, valid := range f.score {
		if valid >= pages { // nothing to gain, or not closed
			continue
		}
		age := uint64(now-f.closed[i]) + 1
		// Below 2^63: 2^15 pages, 2^32 ages, 2^16 of precision.
		if gain := uint64(pages-valid) * age << 16 / uint64(pages+valid); gain > most {
			best, most = uint32(i), gain
		}
	}
	if best == noBlock {
		return f.victim()
	}
	return best
}
