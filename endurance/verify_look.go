package endurance

import (
	"fmt"
	"hash/maphash"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/pattern"
)

const (
	// mismatchesListed is how many blocks that are wrong a worker lists in a
	// second; the rest are counted.
	mismatchesListed = 256
	// differenceBytes is how much of a difference is kept.
	differenceBytes = 64
)

// suspect is a block that was not right when it was first read.
type suspect struct {
	lba uint64
	// first is what it looked like; nil when it could not be read.
	first *run.Mismatch
	// sum is that of what was read first, of meaning only with first.
	sum uint64
}

// secondLook reads the suspects of one operation again: what is right then was
// stale, and what is not is named. All at once, with what lies between them; block
// by block where some cannot be read.
type secondLook struct {
	suspects []suspect
	at       int
	together bool
	op       opOf
}

// stretch is what is to be read next.
func (l *secondLook) stretch() (lba, blocks uint64) {
	lba = l.suspects[l.at].lba
	if l.together {
		return lba, l.suspects[len(l.suspects)-1].lba - lba + 1
	}
	return lba, 1
}

// opOf is what a slot was doing before it looked again.
type opOf struct {
	offsetBytes int64
	lengthBytes int32
}

// inspector compares what a worker reads.
type inspector struct {
	source *pattern.Source
	lookup *lookup
	lba    uint64 // bytes of a logical block
	run    uint64
	// runs are the names of the runs that are known by the number in their blocks.
	runs map[uint64]string
	// seed is that of the sums of suspects.
	seed maphash.Seed
}

// read compares a whole operation that was read, and lists the blocks that have
// to be read again. It allocates only when some have.
func (x *inspector) read(t *tally, b []byte, offsetBytes int64) *secondLook {
	var look *secondLook
	v := &t.verified
	lba := uint64(offsetBytes) / x.lba
	for len(b) != 0 {
		n := x.stretch(lba, len(b))
		part := b[:n]
		for len(part) != 0 {
			right, bad := x.compare(v, part, lba)
			part = part[right*int(x.lba):]
			lba += uint64(right)
			if bad {
				if m := x.diagnose(part[:x.lba], lba); m.Kind == "" {
					// One of the contents that it may have: a second look would only
					// say so again.
					x.excused(v, part[:x.lba], lba)
				} else {
					if look == nil {
						look = &secondLook{together: true}
					}
					look.suspects = append(look.suspects, suspect{lba: lba, first: &m, sum: maphash.Bytes(x.seed, part[:x.lba])})
				}
				part = part[x.lba:]
				lba++
			}
		}
		b = b[n:]
	}
	return look
}

// unread makes suspects of all blocks of an operation that could not be read.
func (x *inspector) unread(offsetBytes int64, lengthBytes int32) *secondLook {
	look := &secondLook{}
	first := uint64(offsetBytes) / x.lba
	for i := range uint64(lengthBytes) / x.lba {
		if b := x.lookup.believe(first+i, 0); b.n != 0 {
			look.suspects = append(look.suspects, suspect{lba: first + i})
		}
	}
	return look
}

// stretch is how many bytes from a block on share one history, at most so many.
func (x *inspector) stretch(lba uint64, bytes int) int {
	step := x.lookup.step
	if x.lookup.isUniform || step == 0 {
		return bytes
	}
	return int(min(uint64(bytes), step-lba*x.lba%step))
}

// compare compares blocks that share a history, up to the first that is wrong,
// and counts those before it.
func (x *inspector) compare(v *run.Verified, b []byte, lba uint64) (right int, bad bool) {
	n := len(b) / int(x.lba)
	w := write{generation: x.lookup.uniform, certainty: certain}
	if !x.lookup.isUniform {
		t := x.lookup.trail(lba)
		var some bool
		if w, some = t.next(); !some {
			return n, false // never written: there is nothing to compare with
		}
	}
	if w.certainty == certain && !w.open {
		right = x.source.Check(b, lba, w.generation)
		v.Blocks += uint64(right)
		v.Right += uint64(right)
		return right, right < n
	}
	for right < n {
		if !x.acceptable(v, b[right*int(x.lba):][:x.lba], lba+uint64(right)) {
			return right, true
		}
		right++
	}
	return right, false
}

// acceptable judges a block of which it is not certain what it must hold.
func (x *inspector) acceptable(v *run.Verified, block []byte, lba uint64) bool {
	b := x.lookup.believe(lba, 0)
	open := false
	for i := range b.writes[:b.n] {
		w := &b.writes[i]
		if w.open && w.print != printNone {
			return x.printed(v, block, lba, w)
		}
		if open = open || w.open; w.open {
			continue
		}
		if x.source.Check(block, lba, w.generation) == 1 {
			x.undecided(v, open)
			return true
		}
	}
	if b.maybeNever() && x.left(block) {
		x.undecided(v, open)
		v.Unwritten++
		return true
	}
	if !open && !b.gap {
		return false
	}
	h, ok := x.source.Intact(block)
	if !ok || h.Run != x.run || h.LBA != lba && !h.Duplicate {
		return false
	}
	if !h.Duplicate && h.Generation < b.floor() {
		return false
	}
	x.undecided(v, open)
	return true
}

// printed judges a block of whose last write the fingerprint is known.
func (x *inspector) printed(v *run.Verified, block []byte, lba uint64, w *write) bool {
	h, ok := x.source.Intact(block)
	if !ok || h.Run != x.run || !h.Duplicate && (h.LBA != lba || fingerprint(h.Generation) != w.print) {
		return false
	}
	v.Blocks++
	v.Right++
	return true
}

// left says whether a block is what may be where this run never wrote: all zeros
// or all ones, or whole and of another run. What is neither is looked at closely.
func (x *inspector) left(block []byte) bool {
	return pattern.IsBlank(block) || x.source.Foreign(block)
}

// floor is the least generation that a block may have.
func (b *belief) floor() uint64 {
	if b.bottom || b.n == 0 {
		return 0
	}
	return b.writes[b.n-1].generation
}

// maybeNever says that the block may never have been written.
func (b *belief) maybeNever() bool {
	if !b.bottom {
		return false
	}
	for i := range b.writes[:b.n] {
		if b.writes[i].certainty == certain {
			return false
		}
	}
	return true
}

// undecided counts a block of which it is not known whether it is right: open
// says that it is for the order, which draws blocks anew, not for a doubt.
func (x *inspector) undecided(v *run.Verified, open bool) {
	v.Blocks++
	if open {
		v.Undecided++
	} else {
		v.Unknown++
	}
}

// again judges a block that was read a second time, and lists what is wrong.
func (x *inspector) again(t *tally, s *suspect, block []byte, r *nvmeioctl.IOResult) {
	v := &t.verified
	if r.Status != 0 || r.Err != nil {
		x.unreadable(t, s, r)
		return
	}
	if s.first != nil && x.lookup.live == nil && maphash.Bytes(x.seed, block) == s.sum {
		// What it must hold does not change either: it is what it was.
		x.wrong(t, s.first)
		return
	}
	before := *v
	right, bad := x.compare(v, block, s.lba)
	if right == 0 && bad {
		m := x.diagnose(block, s.lba)
		if m.Kind != "" {
			x.wrong(t, &m)
			return
		}
		x.excused(v, block, s.lba)
		return
	}
	// It is right now. Was it wrong before, or did it only fail to be read?
	if s.first == nil || s.first.Kind == "" {
		return
	}
	m := *s.first
	m.Text += fmt.Sprintf("; looked %s first, and a second read was right", m.Kind)
	m.Kind = run.MismatchStale
	*v = before // compare has counted it as something else
	x.wrong(t, &m)
}

// excused counts a block that is not exactly anything, and may be.
func (x *inspector) excused(v *run.Verified, block []byte, lba uint64) {
	b := x.lookup.believe(lba, 0)
	x.undecided(v, b.n == 0 || !b.anyDoubt())
	if h, ok := pattern.ParseHeader(block); b.maybeNever() && (!ok || h.Run != x.run) {
		v.Unwritten++
	}
}

func (x *inspector) unreadable(t *tally, s *suspect, r *nvmeioctl.IOResult) {
	m := run.Mismatch{Kind: run.MismatchUnreadable, LBA: s.lba, Status: uint16(r.Status)}
	b := x.lookup.believe(s.lba, 0)
	e, _ := b.expected()
	if e.Known && len(e.Or) == 0 {
		m.ExpectedGeneration = e.Generation
	}
	why := fmt.Sprintf("status 0x%04x", uint16(r.Status))
	if r.Err != nil {
		why = r.Err.Error()
	}
	m.Text = fmt.Sprintf("LBA %d: %s; cannot be read: %s", s.lba, expectation(&e), why)
	x.wrong(t, &m)
}

// wrong counts a mismatch and lists it.
func (x *inspector) wrong(t *tally, m *run.Mismatch) {
	t.verified.Blocks++
	*t.verified.Of(m.Kind)++
	if len(t.mismatches) < mismatchesListed {
		t.mismatches = append(t.mismatches, *m)
	}
}

// readsBack says whether a pass reads what the one before it wrote.
func (s *stage) readsBack(pass uint64) bool { return s.Check == run.CheckEachPass && pass&1 != 0 }

// passes is how many passes of the user's so many passes of positions are.
func (s *stage) passes(n uint64) uint64 {
	if s.Check == run.CheckEachPass {
		return n / 2
	}
	return n
}

// generation is that of a write: above 48 bits the phase, below them the pass,
// or the position where there are none.
func (s *stage) generation(pass, position uint64) uint64 {
	base := uint64(s.index)<<48 + 1
	if s.blocks == 0 {
		return base + position
	}
	return base + s.passes(pass)
}
