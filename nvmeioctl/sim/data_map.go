package sim

// extent is a run of map pages that a namespace has.
type extent struct{ lpn, pages uint32 }

// nsMap is the part of the map that belongs to a namespace.
//
// Each map page is represented by one point of the namespace's address space,
// chosen by a hash within the page's share of it. A write changes the map page
// if it covers the point. So a command that covers all of the share always
// does, one that covers a thousandth does once in a thousand, a pass over the
// namespace changes every map page exactly once, and all this holds at every
// time lapse, whatever the ratio of lapse and scale. What happens between the
// points is counted, not simulated.
type nsMap struct {
	sizeBytes uint64
	salt      uint64
	extents   []extent
	pages     uint64 // sum over extents
	mapped    uint64 // of them
	shift     uint   // the address space is measured in 1<<shift bytes
}

// maxGranules bounds the address space in granules, so that granules times
// pages fit 64 bits.
const maxGranules = 1 << 40

// finish derives what follows from size and extents.
func (n *nsMap) finish() {
	n.pages = 0
	for _, e := range n.extents {
		n.pages += uint64(e.pages)
	}
	n.shift = 9
	for n.sizeBytes>>n.shift >= maxGranules {
		n.shift++
	}
}

// mappedBytes is how much of the namespace's data the map says is allocated.
func (n *nsMap) mappedBytes() uint64 {
	if n.mapped == 0 || n.pages == 0 {
		return 0
	}
	return mulDiv(n.sizeBytes, n.mapped, n.pages)
}

// lpn is the logical page of the namespace's i-th map page.
func (n *nsMap) lpn(i uint32) uint32 {
	for _, e := range n.extents {
		if i < e.pages {
			return e.lpn + i
		}
		i -= e.pages
	}
	panic("sim: map page beyond its namespace")
}

// space is the address space of a namespace under a time lapse: 1/lapse of its
// size, all of which stands for all of the namespace.
type space struct {
	lapse    uint64
	bytes    uint64 // offsets are below
	granules uint64 // the same, rounded up
	shift    uint
	pages    uint64
}

func (n *nsMap) space(lapse uint64) space {
	b := n.sizeBytes / lapse
	return space{
		lapse:    lapse,
		bytes:    b,
		granules: max(1, (b+1<<n.shift-1)>>n.shift),
		shift:    n.shift,
		pages:    n.pages,
	}
}

// scaled turns a range of bytes, rounded outwards to granules, to the scale in
// which the i-th map page has the share [i*granules, (i+1)*granules).
func (s *space) scaled(offset, end uint64) (lo, hi uint64) {
	lo = offset >> s.shift
	hi = min((end+1<<s.shift-1)>>s.shift, s.granules)
	return lo * s.pages, hi * s.pages
}

// covers says whether the scaled range holds the point of the i-th map page.
func (n *nsMap) covers(s *space, i, lo, hi uint64) bool {
	p := i*s.granules + mulHigh(mix64(n.salt^i), s.granules)
	return p >= lo && p < hi
}

// program writes the map pages whose point is in the scaled range.
func (m *flashMedia) program(n *nsMap, s space, lo, hi uint64) {
	before := m.flash.MappedPages()
	for i := lo / s.granules; i*s.granules < hi; i++ {
		if n.covers(&s, i, lo, hi) {
			m.flash.Write(n.lpn(uint32(i)))
		}
	}
	n.mapped += uint64(m.flash.MappedPages() - before)
}

// deallocate forgets the map pages whose point is in the scaled range.
func (m *flashMedia) deallocate(n *nsMap, s space, lo, hi uint64) {
	m.buffer.Drain() // what is written there next is new
	before := m.flash.MappedPages()
	for i := lo / s.granules; i*s.granules < hi; i++ {
		if n.covers(&s, i, lo, hi) {
			m.flash.Deallocate(n.lpn(uint32(i)), 1)
		}
	}
	n.mapped -= uint64(before - m.flash.MappedPages())
}
