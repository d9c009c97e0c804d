package workload

import (
	"fmt"
	"math/bits"
	"slices"
)

const (
	// mixPeriod is how many successive positions hold every size of a mix in its
	// exact proportion, as far as whole operations allow.
	mixPeriod = 10_000
	// cellsPerOp is how many cells the largest operation of a mix fills.
	cellsPerOp = 16
	// CellsMost is how many cells an operation touches at most.
	CellsMost = cellsPerOp + 1
	// steepTries is how often a popular block that is busy is drawn anew before
	// any other will do: with a steep law, or in a small zone, all popular ones
	// may be busy.
	steepTries = 64
	// stripesEach is how many stripes each worker has at least, where there is room.
	stripesEach = 16
	// stripeBytes is how large a stripe is where the region is large enough.
	stripeBytes = 1 << 20
)

// Size is one size of a mix of operations.
type Size struct {
	// Bytes is a multiple of LBABytes.
	Bytes uint32
	// Permyriad is how many of 10,000 operations of a direction have it.
	Permyriad uint32
}

// Zone is a part of the region, in the order of addresses, and its part of the
// operations, both in thousandths. Those of all zones add up to 1000.
type Zone struct {
	SpacePermille, AccessPermille uint32
}

// mixed says whether a configuration needs more than blocks of one size, evenly.
func (c *Config) mixed() bool {
	return len(c.ReadSizes) != 0 || len(c.WriteSizes) != 0 || len(c.Zones) != 0 || c.ZipfMilli != 0
}

// mix is the state of a generator whose operations differ in size or whose
// addresses are skewed.
//
// The region is cut into units of the alignment, and the units into stripes that
// the workers have in turn: an operation never leaves its stripe, so operations
// of different workers never overlap. One worker has one stripe, the region.
type mix struct {
	align   uint64
	workers uint64
	// stripe is the length of a stripe and stripes how many there are, the last
	// of which is longer by what is left over; in units.
	stripe, stripes, units uint64
	cellShift              uint8
	sizes                  [2][]Size // of reads, of writes
	zones                  []Zone
	zipf                   []zipf        // of each worker
	scatter                []Permutation // of each worker: where the popular blocks are
	sizeKey, zoneKey       uint64
	// order deals the sizes out within the period it was last asked for.
	order  [2]Permutation
	period uint64
}

const (
	reads = iota
	writes
)

// newMix checks the parts of a configuration that only a mix has.
func newMix(c *Config, key func(n uint64) uint64) (*mix, error) {
	if c.Pattern != Replacement {
		return nil, fmt.Errorf("%w: a mix of sizes and skewed addresses need replacement", ErrWorkload)
	}
	one := []Size{{c.BlockBytes, mixPeriod}}
	m := &mix{workers: uint64(c.Workers), align: uint64(c.AlignBytes), zones: c.Zones, sizeKey: key(0), zoneKey: key(1), period: ^uint64(0)}
	m.sizes = [2][]Size{slices.Clone(c.ReadSizes), slices.Clone(c.WriteSizes)}
	least, largest := c.BlockBytes, uint32(0)
	for d := range m.sizes {
		if len(m.sizes[d]) == 0 {
			m.sizes[d] = one
		}
		sum := uint64(0)
		for _, s := range m.sizes[d] {
			if s.Bytes == 0 || s.Bytes%c.LBABytes != 0 || s.Bytes > c.BlockBytes {
				return nil, fmt.Errorf("%w: operations of %d bytes are not whole logical blocks of %d bytes, up to %d", ErrWorkload, s.Bytes, c.LBABytes, c.BlockBytes)
			}
			sum += uint64(s.Permyriad)
			least, largest = min(least, s.Bytes), max(largest, s.Bytes)
		}
		if sum != mixPeriod {
			return nil, fmt.Errorf("%w: shares add up to %d of %d", ErrWorkload, sum, mixPeriod)
		}
	}
	if m.align == 0 {
		m.align = uint64(least)
	}
	if m.align%uint64(c.LBABytes) != 0 {
		return nil, fmt.Errorf("%w: an alignment of %d bytes is not whole logical blocks", ErrWorkload, m.align)
	}
	if err := m.cut(c.RegionBytes, uint64(largest)); err != nil {
		return nil, err
	}
	return m, m.skew(c, key)
}

// cut divides the region.
func (m *mix) cut(regionBytes, largest uint64) error {
	span := (largest-1)/m.align + 1
	m.units = regionBytes / m.align
	m.stripe, m.stripes = m.units, 1
	if m.workers > 1 {
		m.stripe = max(2*span, min(m.units/(m.workers*stripesEach), max(stripeBytes/m.align, 1)))
		m.stripes = m.units / m.stripe
	}
	if m.units < 2*span || m.stripes < m.workers {
		return fmt.Errorf("%w: operations of up to %d bytes of %d workers do not fit a region of %d bytes", ErrWorkload, largest, m.workers, regionBytes)
	}
	for span>>m.cellShift > cellsPerOp {
		m.cellShift++
	}
	return nil
}

// skew prepares how the addresses are spread.
func (m *mix) skew(c *Config, key func(n uint64) uint64) error {
	space, access := uint32(0), uint32(0)
	for _, z := range c.Zones {
		space, access = space+z.SpacePermille, access+z.AccessPermille
	}
	if len(c.Zones) != 0 && (space != 1000 || access != 1000 || c.ZipfMilli != 0) {
		return fmt.Errorf("%w: zones of %d thousandths of the space and %d of the operations, Zipf %d", ErrWorkload, space, access, c.ZipfMilli)
	}
	if c.ZipfMilli == 0 {
		return nil
	}
	for w := range m.workers {
		n := m.share(w)
		m.zipf = append(m.zipf, newZipf(n, float64(c.ZipfMilli)/1000))
		m.scatter = append(m.scatter, NewPermutation(n, key(2+w)))
	}
	return nil
}

// share is how many units a worker has.
func (m *mix) share(worker uint64) uint64 {
	n := ((m.stripes-worker-1)/m.workers + 1) * m.stripe
	if (m.stripes-1)%m.workers == worker {
		n += m.units - m.stripes*m.stripe
	}
	return n
}

// global turns a unit of a worker into one of the region, from which span units
// lie in one stripe.
func (m *mix) global(worker, local, span uint64) uint64 {
	i := min(local/m.stripe, (m.stripes-worker-1)/m.workers)
	at := worker + i*m.workers
	length := m.stripe
	if at == m.stripes-1 {
		length += m.units - m.stripes*m.stripe
	}
	return at*m.stripe + min(local-i*m.stripe, length-span)
}

// local draws a unit of a worker.
func (m *mix) local(worker, position, key uint64, attempt uint32) uint64 {
	n := m.share(worker)
	if attempt >= steepTries {
		return below(draw(key, position), n)
	}
	if m.zipf != nil {
		return m.scatter[worker].At(m.zipf[worker].draw(key, position))
	}
	first, end := uint64(0), n
	if len(m.zones) != 0 {
		x := uint32(below(draw(m.zoneKey, position), 1000))
		space := uint64(0)
		for _, z := range m.zones {
			first, end = part(n, space), part(n, space+uint64(z.SpacePermille))
			if x < z.AccessPermille {
				break
			}
			x -= z.AccessPermille
			space += uint64(z.SpacePermille)
		}
		end = max(end, first+1)
	}
	return first + below(draw(key, position), end-first)
}

// part is so many thousandths of n.
func part(n, permille uint64) uint64 {
	hi, lo := bits.Mul64(n, permille)
	q, _ := bits.Div64(hi, lo, 1000)
	return q
}

// below maps a random word to [0, n) without modulo bias (Lemire, "Fast random
// integer generation in an interval", 2019).
func below(x, n uint64) uint64 {
	hi, lo := bits.Mul64(x, n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			x = mix64(x + golden)
			hi, lo = bits.Mul64(x, n)
		}
	}
	return hi
}

// size is the size of the operation at a position: rank is its number among the
// operations of its direction in its period, and count how many there are.
func (m *mix) size(direction int, position, rank, count uint64) uint32 {
	sizes := m.sizes[direction]
	if len(sizes) == 1 {
		return sizes[0].Bytes
	}
	if period := position / mixPeriod; period != m.period {
		m.period = period
		m.order = [2]Permutation{}
	}
	o := &m.order[direction]
	if o.N() == 0 {
		*o = NewPermutation(count, draw(m.sizeKey, 2*m.period+uint64(direction)))
	}
	// Compared without dividing: rank/count against shares of 10,000.
	x, sum := o.At(rank)*mixPeriod, uint64(0)
	for _, s := range sizes {
		if sum += uint64(s.Permyriad) * count; x < sum {
			return s.Bytes
		}
	}
	return sizes[len(sizes)-1].Bytes
}

// length is the size of the operation at a position, and its direction.
func (g *Generator) length(position uint64) (bytes uint32, write bool) {
	percent := uint64(g.config.ReadPercent)
	x := g.mixed(position)
	hundred := position % mixPeriod / 100
	if x < percent {
		return g.mix.size(reads, position, hundred*percent+x, 100*percent), false
	}
	return g.mix.size(writes, position, hundred*(100-percent)+x-percent, 100*(100-percent)), true
}

// mixedOp is the operation at a position by the attempt-th draw of its address.
func (g *Generator) mixedOp(position uint64, attempt uint32) Op {
	m := g.mix
	bytes, write := g.length(position)
	worker := uint64(0)
	if m.workers != 1 {
		worker = position % m.workers
	}
	key := g.drawKey
	if attempt != 0 {
		key = draw(g.drawKey, uint64(attempt))
	}
	span := (uint64(bytes)-1)/m.align + 1
	unit := m.global(worker, m.local(worker, position, key, attempt), span)
	first, last := unit>>m.cellShift, (unit+span-1)>>m.cellShift
	return Op{
		Block: first, Blocks: uint32(last - first + 1), OffsetBytes: int64(unit * m.align), LengthBytes: int32(bytes), Write: write,
	}
}

// Reach is how many bytes from the region's beginning operations can touch: all
// of it, but for a rest smaller than the alignment of a mix.
func (g *Generator) Reach() uint64 {
	if g.mix == nil {
		return g.config.RegionBytes
	}
	return g.mix.units * g.mix.align
}

// PositionsFor is the smallest number of positions of a mix that transfer at
// least so many bytes of the directions named. It takes microseconds, however
// large the amount; 0 and false when neither direction moves anything, or when
// the number does not fit.
func (g *Generator) PositionsFor(bytes uint64, read, write bool) (uint64, bool) {
	if g.mix == nil {
		return 0, false
	}
	amount := func(position uint64) uint64 {
		n, w := g.length(position)
		if w && !write || !w && !read {
			return 0
		}
		return uint64(n)
	}
	// Every period has the same sizes, in another order.
	period := uint64(0)
	for i := range uint64(mixPeriod) {
		period += amount(i)
	}
	if period == 0 {
		return 0, false
	}
	whole, rest := bytes/period, bytes%period
	hi, position := bits.Mul64(whole, mixPeriod)
	if hi != 0 || position+mixPeriod < position {
		return 0, false
	}
	for done := uint64(0); done < rest; position++ {
		done += amount(position)
	}
	return position, true
}
