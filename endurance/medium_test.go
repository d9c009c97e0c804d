package endurance

import (
	"bytes"
	"math/rand/v2"
	"sort"
	"sync/atomic"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// medium is a drive that keeps what is written to it, in virtual time. What is
// in its volatile cache is lost when its power fails.
type medium struct {
	lbaBytes uint64
	volatile bool
	stored   map[uint64][]byte
	cached   map[uint64][]byte
	busy     int64
	// dead: completions go on being answered as they would have been, but writes
	// reach the medium by chance. It is how the rest of a session looks from
	// after a crash.
	dead atomic.Bool
	rng  *rand.Rand
	// fail gives the status of an operation on a logical block, and what becomes
	// of its data: kept or not.
	fail func(op nvmeioctl.IOOp, lba uint64) (status nvmespec.Status, keep bool)
	// read changes what a read of a block gives, but not what is stored.
	read            func(lba uint64, b []byte)
	ops, reads      uint64
	inFlight        map[uint64]int // writes and, where reads count, reads
	overlapped      bool
	readsMayOverlap bool
}

func newMedium(lbaBytes uint32, seed uint64) *medium {
	return &medium{lbaBytes: uint64(lbaBytes), stored: map[uint64][]byte{}, cached: map[uint64][]byte{}, inFlight: map[uint64]int{}, rng: rand.New(rand.NewPCG(seed, 1))}
}

func (m *medium) get(lba uint64, b []byte) {
	v, ok := m.cached[lba]
	if !ok {
		v, ok = m.stored[lba]
	}
	if !ok {
		clear(b)
		return
	}
	copy(b, v)
}

func (m *medium) put(lba uint64, b []byte) {
	if m.dead.Load() && m.rng.IntN(2) == 0 {
		return
	}
	if m.volatile && !m.dead.Load() {
		m.cached[lba] = bytes.Clone(b)
		return
	}
	m.stored[lba] = bytes.Clone(b)
	delete(m.cached, lba)
}

// powerCut loses the cache, but for what had found its way to the medium.
func (m *medium) powerCut() {
	for lba, b := range m.cached {
		if m.rng.IntN(3) == 0 {
			m.stored[lba] = b
		}
	}
	clear(m.cached)
	clear(m.inFlight)
	m.dead.Store(false)
	m.busy = 0
}

type mediumRequest struct {
	nvmeioctl.IORequest
	data []byte
	done nvmeioctl.Instant
}

type mediumQueue struct {
	m     *medium
	depth int
	out   []mediumRequest
}

func (m *medium) queues(depth int) QueueFactory {
	return func(int) (nvmeioctl.IOQueue, error) { return &mediumQueue{m: m, depth: depth}, nil }
}

func (q *mediumQueue) Depth() int   { return q.depth }
func (q *mediumQueue) Close() error { return nil }

func (q *mediumQueue) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		if len(q.out) >= q.depth {
			return i, nil
		}
		x := mediumRequest{IORequest: r[i]}
		if x.Op == nvmeioctl.OpWrite {
			x.data = bytes.Clone(x.Buf)
		}
		q.m.enter(&x)
		q.m.busy = max(q.m.busy, int64(x.At)) + 2000
		// Completions overtake each other.
		x.done = nvmeioctl.Instant(q.m.busy + 5000 + q.m.rng.Int64N(20_000))
		q.out = append(q.out, x)
	}
	sort.SliceStable(q.out, func(i, j int) bool { return q.out[i].done < q.out[j].done })
	return len(r), nil
}

// enter notes what is in flight: a write may meet nothing.
func (m *medium) enter(x *mediumRequest) {
	if x.Op == nvmeioctl.OpFlush || x.Op == nvmeioctl.OpRead && m.readsMayOverlap {
		return
	}
	for lba := range m.blocks(x) {
		n := 1
		if x.Op == nvmeioctl.OpWrite {
			n = 1 << 20
		}
		if had := m.inFlight[lba]; had >= 1<<20 || had > 0 && n > 1 {
			m.overlapped = true
		}
		m.inFlight[lba] += n
	}
}

func (m *medium) leave(x *mediumRequest) {
	if x.Op == nvmeioctl.OpFlush || x.Op == nvmeioctl.OpRead && m.readsMayOverlap {
		return
	}
	for lba := range m.blocks(x) {
		if x.Op == nvmeioctl.OpWrite {
			m.inFlight[lba] -= 1 << 20
		} else {
			m.inFlight[lba]--
		}
	}
}

// blocks goes through the logical blocks of a request and their bytes.
func (m *medium) blocks(x *mediumRequest) func(func(uint64, []byte) bool) {
	return func(yield func(uint64, []byte) bool) {
		buf := x.Buf
		if x.Op == nvmeioctl.OpWrite {
			buf = x.data
		}
		first := uint64(x.OffsetBytes) / m.lbaBytes
		for i := range uint64(x.LengthBytes) / m.lbaBytes {
			if !yield(first+i, buf[i*m.lbaBytes:][:m.lbaBytes]) {
				return
			}
		}
	}
}

func (q *mediumQueue) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	n := 0
	for n < len(res) && n < len(q.out) && q.out[n].done <= until {
		x := &q.out[n]
		res[n] = nvmeioctl.IOResult{Tag: x.Tag, Done: x.done, Status: q.m.carryOut(x)}
		q.m.leave(x)
		n++
	}
	q.out = append(q.out[:0], q.out[n:]...)
	return n, nil
}

func (m *medium) carryOut(x *mediumRequest) (status nvmespec.Status) {
	if m.dead.Load() && x.Op == nvmeioctl.OpFlush {
		return 0
	}
	m.ops++
	switch x.Op {
	case nvmeioctl.OpFlush:
		for lba, b := range m.cached {
			m.stored[lba] = b
		}
		clear(m.cached)
	case nvmeioctl.OpRead:
		m.reads++
		for lba, b := range m.blocks(x) {
			m.get(lba, b)
			if m.read != nil {
				m.read(lba, b)
			}
			if m.fail != nil {
				if s, _ := m.fail(x.Op, lba); s != 0 {
					status = s
				}
			}
		}
	default:
		for lba, b := range m.blocks(x) {
			keep := true
			if m.fail != nil {
				var s nvmespec.Status
				if s, keep = m.fail(x.Op, lba); s != 0 {
					status = s
				}
			}
			if keep {
				m.put(lba, b)
			}
		}
	}
	return status
}
