package ftl

// Buffer is the part of a write buffer that the flash notices: a unit that is
// written again while it waits there is programmed once. It is first in, first
// out: a rewritten unit keeps its place. Units are the caller's, numbered as it
// likes; nothing is kept but which were written last.
//
// It finds nearly all of its units: a unit is looked for in four places of
// four times as many as there are units, and one whose places were taken by
// later units counts as programmed early.
//
// Whether what waits here survives a loss of power is not its concern: whoever
// has a buffer without protection calls [Buffer.Drain] at a flush, where one
// with protection has nothing to do.
//
// The zero value is no buffer. It is not part of any stored state: a drive that
// is loaded starts with an empty one.
type Buffer struct {
	units uint64
	sets  [][ways]buffered // a power of two; nil for no buffer
	seq   uint64           // units that came in
	from  uint64           // what came in before has left
}

// buffered is a unit and when it came in, counted from 1.
type buffered struct{ key, seq uint64 }

// ways is in how many places a unit can be.
const ways = 4

// MaxBufferUnits bounds a buffer: 4 GiB of 4 KiB.
const MaxBufferUnits = 1 << 20

// NewBuffer returns an empty buffer for so many units, at most MaxBufferUnits;
// 0 is no buffer.
func NewBuffer(units uint64) Buffer {
	b := Buffer{units: min(units, MaxBufferUnits)}
	if units > 0 {
		n := uint64(1)
		for n < b.units {
			n *= 2
		}
		b.sets = make([][ways]buffered, n)
	}
	return b
}

// Units is how many units there is room for; 0 for no buffer.
func (b *Buffer) Units() uint64 { return b.units }

// Active says whether there is room for a unit when each stands for lapse.
func (b *Buffer) Active(lapse uint64) bool { return b.units >= lapse && b.sets != nil }

// Absorb takes in a write of a unit and says whether it was there already. Under
// a time lapse each write stands for that many, so the buffer holds as many
// fewer. 1 is none.
func (b *Buffer) Absorb(key, lapse uint64) bool {
	if !b.Active(lapse) {
		return false
	}
	set := b.set(key)
	oldest := &set[0]
	for i := range set {
		e := &set[i]
		if e.key == key {
			if b.waits(e, lapse) {
				return true
			}
			*e = buffered{} // it has left: the first place to take
		}
		if e.seq < oldest.seq {
			oldest = e
		}
	}
	b.seq++
	*oldest = buffered{key, b.seq}
	return false
}

// Forget takes a unit out: it was written past the buffer.
func (b *Buffer) Forget(key uint64) {
	if b.sets == nil {
		return
	}
	set := b.set(key)
	for i := range set {
		if set[i].key == key {
			set[i] = buffered{}
		}
	}
}

// Drain programs what waits, and says whether anything did.
func (b *Buffer) Drain() bool {
	waited := b.seq > b.from
	b.from = b.seq
	return waited
}

func (b *Buffer) waits(e *buffered, lapse uint64) bool {
	return e.seq > b.from && b.seq-e.seq < b.units/lapse
}

func (b *Buffer) set(key uint64) *[ways]buffered {
	return &b.sets[key*0x9E3779B97F4A7C15>>32&uint64(len(b.sets)-1)]
}
