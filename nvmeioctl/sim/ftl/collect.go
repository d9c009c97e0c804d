package ftl

import "math/bits"

// openHost gives the host's frontier an erased superblock and then collects
// until the reserve is whole again. It is the only place where pages move, so
// that between two calls the layer is at rest.
func (f *FTL) openHost() {
	filled := uint64(f.hostFill())
	f.closeFrontier(&f.host)
	f.count.HostPages += filled
	f.openFrontier(&f.host, stateHost)
	f.prefill()
	before := f.count.CollectedPages + f.count.LevelledPages
	for f.freeLen < reserve {
		f.collectOne()
	}
	f.level()
	if f.retires() {
		f.retire()
	}
	moved := f.count.CollectedPages + f.count.LevelledPages - before
	f.episode(moved)
}

// episode takes in what an opening of a superblock for the host has moved.
func (f *FTL) episode(moved uint64) {
	now := f.hostPages()
	f.due.episode(moved, now-f.due.mark, f.cfg.Geometry.PagesPerSuperblock)
	f.due.mark = now
}

// prefill makes all pages of the host's frontier that are to be written valid in
// advance: writing then changes what was there before and nothing else.
func (f *FTL) prefill() {
	for p := f.host.next; p < f.host.end; {
		n := min(64-p&63, f.host.end-p)
		f.valid[p>>6] |= (^uint64(0) >> (64 - n)) << (p & 63)
		p += n
	}
	f.score[f.host.block] += int32(f.host.end - f.host.next)
}

func (f *FTL) closeFrontier(w *frontier) {
	if w.block == noBlock {
		return
	}
	f.close(w.block, f.cfg.Geometry.PagesPerSuperblock)
	w.block, w.next, w.end = noBlock, 0, 0
}

// close makes a superblock with its first n pages programmed a possible victim.
func (f *FTL) close(block, n uint32) {
	f.fill[block] = n
	f.state[block] = stateClosed
	f.closed[block] = f.hostSuperblocks()
	f.score[block] -= notVictim
}

func (f *FTL) openFrontier(w *frontier, s state) {
	block := f.takeFree(0)
	f.state[block] = s
	w.block = block
	w.next = block << f.shift
	w.end = w.next + f.cfg.Geometry.PagesPerSuperblock
}

// takeFree removes the i-th oldest superblock of the free list, which must
// have one. The oldest first: a last-in-first-out list leaves some superblocks
// without wear for ever.
func (f *FTL) takeFree(i uint32) uint32 {
	n := uint32(len(f.free))
	block := f.free[(f.freeHead+i)%n]
	for ; i > 0; i-- {
		f.free[(f.freeHead+i)%n] = f.free[(f.freeHead+i-1)%n]
	}
	f.freeHead = (f.freeHead + 1) % n
	f.freeLen--
	return block
}

// victim is the closed superblock with the fewest valid pages, the first of
// equals. A scan beats ordered lists here, since a write then updates a counter
// and nothing else.
func (f *FTL) victim() uint32 {
	best, least := 0, notVictim
	i := 0
	for ; i+8 <= len(f.score); i += 8 { // few groups of eight have the least so far
		g := (*[8]int32)(f.score[i:])
		if min(min(g[0], g[1]), min(g[2], g[3]), min(g[4], g[5]), min(g[6], g[7])) >= least {
			continue
		}
		for k, s := range g {
			if s < least {
				best, least = i+k, s
			}
		}
	}
	for ; i < len(f.score); i++ {
		if s := f.score[i]; s < least {
			best, least = i, s
		}
	}
	return uint32(best)
}

// collectOne moves what is valid in a victim to the collection frontier and
// erases the victim.
func (f *FTL) collectOne() {
	var v uint32
	if !f.cfg.Separates {
		v = f.victim()
	} else {
		v = f.victimApart()
		f.apart.collected(f.hostSuperblocks() - f.closed[v])
	}
	f.count.CollectedPages += uint64(f.score[v])
	f.score[v] = notVictim
	first := (v << f.shift) >> 6
	for i := first; i < first+1<<f.shift>>6; i++ {
		word := f.valid[i]
		f.valid[i] = 0
		for word != 0 {
			if f.collect.next == f.collect.end {
				f.closeFrontier(&f.collect)
				f.openFrontier(&f.collect, stateCollect)
			}
			word = f.collectWord(i<<6, word)
		}
	}
	f.erase(v)
}

// dense is from how many valid pages of 64 on it is faster to look at all than
// to find each.
const dense = 20

// collectWord moves the pages whose bits are set in word, which are numbered
// from first on, as far as the frontier has room, and returns the bits of the
// rest. Half of all work is done here.
func (f *FTL) collectWord(first uint32, word uint64) uint64 {
	l2p, to := f.l2p, f.collect.next
	n := min(uint32(bits.OnesCount64(word)), f.collect.end-to)
	from := (*[64]uint32)(f.p2l[first:])
	list := f.p2l[to:][:n]
	if n == uint32(bits.OnesCount64(word)) && n >= dense {
		var lpns [64]uint32
		at := uint64(0)
		for i := 0; i < len(from); i += 8 { // eight by eight: the loop itself would cost as much
			part := (*[8]uint32)(from[i:])
			lpns[at&63] = part[0] // stays below the number looked at
			at += word & 1
			lpns[at&63] = part[1]
			at += word >> 1 & 1
			lpns[at&63] = part[2]
			at += word >> 2 & 1
			lpns[at&63] = part[3]
			at += word >> 3 & 1
			lpns[at&63] = part[4]
			at += word >> 4 & 1
			lpns[at&63] = part[5]
			at += word >> 5 & 1
			lpns[at&63] = part[6]
			at += word >> 6 & 1
			lpns[at&63] = part[7]
			at += word >> 7 & 1
			word >>= 8
		}
		for i := range list {
			lpn := lpns[i&63]
			l2p[lpn] = to + uint32(i)
			list[i] = lpn
		}
	}
	for i := 0; word != 0 && i < len(list); i++ {
		lpn := from[bits.TrailingZeros64(word)&63]
		l2p[lpn] = to + uint32(i)
		list[i] = lpn
		word &= word - 1
	}
	to += n
	mask := ^uint64(0) >> (64 - n)
	at, shift := f.collect.next>>6, f.collect.next&63
	f.valid[at] |= mask << shift
	if rest := mask >> (64 - shift); rest != 0 { // all of it shifted out if shift is 0
		f.valid[at+1] |= rest
	}
	f.score[f.collect.block] += int32(n)
	f.collect.next = to
	return word
}

// move programs page to with the data of page from, whose bit and score the
// caller has dealt with.
func (f *FTL) move(from, to uint32) {
	lpn := f.p2l[from]
	f.l2p[lpn] = to
	f.p2l[to] = lpn
	f.valid[to>>6] |= 1 << (to & 63)
	f.score[to>>f.shift]++
}

// erase returns a superblock without valid pages to the free list.
func (f *FTL) erase(block uint32) {
	f.erases[block]++
	f.count.Erases++
	f.fill[block] = 0
	f.health.erased(f.erases[block], &f.pcg)
	f.state[block] = stateFree
	n := uint32(len(f.free))
	f.free[(f.freeHead+f.freeLen)%n] = block
	f.freeLen++
}

// retire gives up an erased superblock, and collects for another in its place:
// with the reserve whole there is always room for that.
func (f *FTL) retire() {
	f.state[f.takeFree(0)] = stateRetired
	f.retired++
	for f.freeLen < reserve {
		f.collectOne()
	}
}

// retires says whether an erased superblock is to be given up: a
// superblock's worth of blocks has failed since the last, and the rest has room
// for all that is mapped.
func (f *FTL) retires() bool {
	return f.cfg.Shrinks && min(f.health.failed, f.health.spares)/blocksPerSuperblock > f.retired &&
		uint64(f.cfg.LogicalPages) < f.cfg.Geometry.room(f.retired+1)
}

// debt spreads the cost of collection over the host's writes. The model
// collects a superblock at a time, in one instant; a drive does it a little
// with each write. So what an episode moved is owed, and each page the host
// writes afterwards pays a part: rates and counters come out smooth, nothing is
// lost and nothing is counted twice. Integers keep it exact.
type debt struct {
	owed uint64 // moved pages not yet paid for at the last episode, times debtUnit
	pay  uint64 // what a host page pays, times debtUnit
	mark uint64 // pages the host had written at the last episode
}

const (
	debtUnit = 1 << 20
	// debtSpan is over how many superblocks of host writes an episode's debt
	// is spread (exponentially). Four level out the whole numbers of victims an
	// episode has and lag by 1.5 % of a drive write.
	debtSpan = 4
)

// episode is called when the host has written paid pages since the last, at
// most two superblocks of p pages each.
func (d *debt) episode(moved, paid uint64, p uint32) {
	d.owed -= d.pay * paid
	d.owed += moved * debtUnit
	d.pay = d.owed / (debtSpan * uint64(p))
}

// MovesPerHostPage is how many pages are moved, at present, for each page the
// host writes: write amplification less one, smoothed over a few superblocks.
func (f *FTL) MovesPerHostPage() float64 { return float64(f.due.pay) / debtUnit }

// MovedPages is how many pages collection and wear levelling have moved, less
// what is still owed by the host's next writes; see [FTL.MovesPerHostPage]. It
// never decreases and follows the sum of the counters a few superblocks behind.
func (f *FTL) MovedPages() uint64 {
	total := (f.count.CollectedPages + f.count.LevelledPages) * debtUnit
	return (total - f.due.owed + f.due.pay*(f.hostPages()-f.due.mark)) / debtUnit
}

// hostFill is how many pages of the host's frontier are programmed.
func (f *FTL) hostFill() uint32 {
	if f.host.block == noBlock {
		return 0
	}
	return f.host.next - f.host.block<<f.shift
}

// hostSuperblocks is how many superblocks the host has filled: the layer's own
// measure of time.
func (f *FTL) hostSuperblocks() uint32 {
	return uint32(f.hostPages() / uint64(f.cfg.Geometry.PagesPerSuperblock))
}
