package ftl

import "math/rand/v2"

const (
	unmapped = ^uint32(0)
	// notVictim is added to the score of a superblock that collection must not
	// choose, so that choosing is a search for the least number and counting
	// valid pages needs no test of the state.
	notVictim = int32(1) << 30
	noBlock   = ^uint32(0)
)

// state is what a superblock is used for.
type state uint8

const (
	stateFree    state = iota // erased, in the free list
	stateHost                 // the host's frontier
	stateCollect              // the frontier of collection
	stateClosed               // written; a victim when its turn comes
	stateRetired              // its blocks stand for those that failed
)

// frontier is where the next page of a stream is programmed.
type frontier struct {
	block     uint32 // noBlock before the first write
	next, end uint32 // page numbers
}

// Counters only grow. Their unit is map pages, and erasures of superblocks.
type Counters struct {
	// HostPages were programmed because the host wrote them.
	HostPages uint64
	// CollectedPages were programmed because garbage collection moved them.
	CollectedPages uint64
	// LevelledPages were programmed because wear levelling moved them.
	LevelledPages uint64
	// Erases of superblocks.
	Erases uint64
}

// Programs is every page programmed.
func (c Counters) Programs() uint64 { return c.HostPages + c.CollectedPages + c.LevelledPages }

// FTL is the translation layer and the flash under it. Make one with [New] or
// with UnmarshalBinary on a zero value. It is not safe for concurrent use.
type FTL struct {
	cfg   Config
	shift uint

	l2p    []uint32 // page number by logical page, or unmapped
	p2l    []uint32 // logical page by page number; meaningful where the bit is set
	valid  []uint64 // bit by page number: holds current data
	score  []int32  // valid pages by superblock, plus notVictim unless closed
	erases []uint32 // by superblock
	fill   []uint32 // pages programmed since the erase, by superblock; open ones lag
	state  []state  // by superblock
	closed []uint32 // how many superblocks the host had filled when it was closed

	free     []uint32 // ring of erased superblocks, oldest first
	freeHead uint32
	freeLen  uint32

	// The host's frontier counts as valid from its opening: that a page of it is
	// still to be written shows in next alone.
	host, collect frontier
	mapped        uint32
	count         Counters
	due           debt
	health        health
	apart         apart
	retired       uint32 // superblocks
	pcg           rand.PCG
}

// New returns an erased drive.
func New(cfg Config) (*FTL, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &FTL{}
	f.allocate(cfg)
	for i := range f.l2p {
		f.l2p[i] = unmapped
	}
	for i := range f.score {
		f.score[i] = notVictim
		f.free[i] = uint32(i)
	}
	f.freeLen = cfg.Geometry.Superblocks
	f.pcg.Seed(cfg.Seed, 0x6e766f702d66746c)
	return f, nil
}

// allocate makes the tables of a validated configuration, all zero.
func (f *FTL) allocate(cfg Config) {
	f.cfg, f.shift = cfg, cfg.Geometry.shift()
	blocks := uint64(cfg.Geometry.Superblocks)
	pages := blocks << f.shift
	f.l2p = make([]uint32, cfg.LogicalPages)
	f.p2l = make([]uint32, pages)
	f.valid = make([]uint64, pages/64)
	f.score = make([]int32, blocks)
	f.erases = make([]uint32, blocks)
	f.fill = make([]uint32, blocks)
	f.state = make([]state, blocks)
	f.closed = make([]uint32, blocks)
	f.free = make([]uint32, blocks)
	f.host.block, f.collect.block = noBlock, noBlock
	f.health = newHealth(cfg)
}

// Config returns what the FTL was made from.
func (f *FTL) Config() Config { return f.cfg }

// Write programs one page for the host. Collection that this makes necessary
// happens within the call. lpn must be below LogicalPages.
func (f *FTL) Write(lpn uint32) {
	if f.cfg.Separates && f.cold(lpn) {
		f.writeCold(lpn)
		return
	}
	if f.host.next == f.host.end {
		f.openHost()
	}
	page := f.host.next
	f.host.next = page + 1
	old := f.l2p[lpn]
	f.l2p[lpn] = page
	f.p2l[page] = lpn
	if old == unmapped {
		f.mapped++
		return
	}
	f.valid[old>>6] &^= 1 << (old & 63)
	f.score[old>>(f.shift&31)]--
}

// batch is how many writes are worked off together.
const batch = 64

// WriteBatch is Write of each page in turn, and faster: the waits for what
// random writes read overlap.
func (f *FTL) WriteBatch(lpns []uint32) {
	if f.cfg.Separates {
		for _, lpn := range lpns {
			f.Write(lpn)
		}
		return
	}
	for len(lpns) > 0 {
		if f.host.next == f.host.end {
			f.openHost()
		}
		n := min(len(lpns), batch, int(f.host.end-f.host.next))
		f.writeSome(lpns[:n])
		lpns = lpns[n:]
	}
}

// writeSome writes at most batch pages, for which the frontier has room. First
// the map, whose entries do not wait for each other, then what they replaced.
func (f *FTL) writeSome(lpns []uint32) {
	var olds [batch]uint32
	page := f.host.next
	l2p, p2l := f.l2p, f.p2l[page:][:len(lpns)]
	for i, lpn := range lpns {
		olds[i&(batch-1)] = l2p[lpn]
		l2p[lpn] = page + uint32(i)
		p2l[i] = lpn
	}
	f.host.next = page + uint32(len(lpns))
	valid, score, shift := f.valid, f.score, f.shift&31
	for i := range lpns {
		old := olds[i&(batch-1)]
		if old == unmapped {
			f.mapped++
			continue
		}
		valid[old>>6] &^= 1 << (old & 63)
		score[old>>shift]--
	}
}

// Touch reads what a Write of the page would read first, so that it is in the
// processor's caches by then. The result means nothing.
func (f *FTL) Touch(lpn uint32) uint64 {
	page := f.l2p[lpn]
	if page == unmapped {
		return 0
	}
	return f.valid[page>>6]
}

// WriteRun writes n logical pages from lpn on, in order.
func (f *FTL) WriteRun(lpn, n uint32) {
	if f.cfg.Separates {
		for ; n > 0; lpn, n = lpn+1, n-1 {
			f.Write(lpn)
		}
		return
	}
	for n > 0 {
		if f.host.next == f.host.end {
			f.openHost()
		}
		k := min(n, batch, f.host.end-f.host.next)
		if !f.overwrite(lpn, k) {
			var list [batch]uint32
			for i := range k {
				list[i] = lpn + i
			}
			f.writeSome(list[:k])
		}
		lpn, n = lpn+k, n-k
	}
}

// overwrite writes at most batch pages from lpn on, for which the frontier has
// room, where what they replace lies side by side in one superblock, as a stream
// left it; else it does nothing and is false.
func (f *FTL) overwrite(lpn, n uint32) bool {
	l2p := f.l2p[lpn:][:n]
	first, apart := l2p[0], uint32(0)
	for i, old := range l2p {
		apart |= old - uint32(i) ^ first
	}
	block := first >> f.shift
	if apart != 0 || first == unmapped || block != (first+n-1)>>f.shift {
		return false
	}
	page := f.host.next
	p2l := f.p2l[page:][:n]
	for i := range l2p {
		l2p[i] = page + uint32(i)
		p2l[i] = lpn + uint32(i)
	}
	f.host.next = page + n
	for p, end := first, first+n; p < end; {
		k := min(64-p&63, end-p)
		f.valid[p>>6] &^= (^uint64(0) >> (64 - k)) << (p & 63)
		p += k
	}
	f.score[block] -= int32(n)
	return true
}

// Deallocate forgets n logical pages from lpn on. It costs the flash nothing.
func (f *FTL) Deallocate(lpn, n uint32) {
	for i, old := range f.l2p[lpn : lpn+n] {
		if old == unmapped {
			continue
		}
		f.l2p[lpn+uint32(i)] = unmapped
		f.valid[old>>6] &^= 1 << (old & 63)
		f.score[old>>f.shift]--
		f.mapped--
	}
}

// Mapped says whether the logical page holds data.
func (f *FTL) Mapped(lpn uint32) bool { return f.l2p[lpn] != unmapped }

// MappedPages is how many logical pages hold data.
func (f *FTL) MappedPages() uint32 { return f.mapped }

// Counters returns what has been done since the drive was new.
func (f *FTL) Counters() Counters {
	c := f.count
	c.HostPages = f.hostPages()
	return c
}

// hostPages is what the host has written: count.HostPages is of the superblocks
// before the frontier, so that a write has one number less to change.
func (f *FTL) hostPages() uint64 { return f.count.HostPages + uint64(f.hostFill()) }
