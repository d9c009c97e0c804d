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

	host, collect frontier
	mapped        uint32
	count         Counters
	due           debt
	health        health
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
	if f.host.next == f.host.end {
		f.openHost()
	}
	page := f.host.next
	f.host.next++
	f.count.HostPages++
	old := f.l2p[lpn]
	f.l2p[lpn] = page
	f.p2l[page] = lpn
	f.valid[page>>6] |= 1 << (page & 63)
	f.score[page>>f.shift]++
	if old == unmapped {
		f.mapped++
		return
	}
	f.valid[old>>6] &^= 1 << (old & 63)
	f.score[old>>f.shift]--
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
	for end := lpn + n; lpn < end; lpn++ {
		f.Write(lpn)
	}
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
func (f *FTL) Counters() Counters { return f.count }
