package endurance

import (
	"fmt"
	"math"
	"slices"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl/pattern"
)

// Written is a run as its journal has it: all that is needed to tell what every
// block must hold.
type Written struct {
	Job             run.Job
	Checkpoint      run.Checkpoint
	StartWallUnixNS int64
	// Drive is that of the run's header, as in [Config].
	Drive string
	// MapFile is the file of its generation map, as in [Config]; without one what
	// only the map tells is not decided.
	MapFile string
}

// newSource makes the data of a run.
func newSource(job *run.Job, startWallUnixNS int64, drive string) (*pattern.Source, error) {
	return pattern.New(pattern.Config{
		Run: run.DataRun(startWallUnixNS, job.Seed, drive), Seed: job.Seed, BlockBytes: job.LBABytes,
		CompressPermille: job.Data.CompressPermille, DedupPermille: job.Data.DedupPermille,
		RegionBlocks: job.RegionBytes() / uint64(job.LBABytes),
	})
}

// stratum is what one phase has written: over what those before it have, and
// under what those after it have.
type stratum struct {
	stage *stage
	// next is, by worker, the first position that was not submitted; incomplete
	// those below that did not complete, rising.
	next       []uint64
	incomplete [][]uint64
	// reserved is how far a session that crashed may have gone, flushed from
	// where on completed writes are not trusted.
	reserved, flushed uint64
	// doubts may be of other phases too.
	doubts []run.Doubt
}

// standing of a position.
type certainty uint8

const (
	absent certainty = iota // never submitted
	doubtful
	certain
)

// at says whether the write at a position is on the drive.
func (s *stratum) at(position uint64) certainty {
	w := position % uint64(len(s.next))
	if position >= s.next[w] {
		if position < s.reserved {
			return doubtful
		}
		return absent
	}
	if position >= s.flushed {
		return doubtful
	}
	if s.incomplete != nil {
		if _, is := slices.BinarySearch(s.incomplete[w], position); is {
			return doubtful
		}
	}
	for i := range s.doubts {
		if d := &s.doubts[i]; position >= d.First && position < d.Past && d.Phase == uint32(s.stage.index) {
			return doubtful
		}
	}
	return certain
}

// past is the first position that was certainly not submitted.
func (s *stratum) past() uint64 {
	return min(max(slices.Max(s.next), s.reserved), s.stage.limit)
}

// history is what a run has written so far: strata, the oldest first. It is not
// changed once workers have it.
type history struct {
	strata   []stratum
	lbaBytes uint64
	// stepBlocks is the largest number of logical blocks of which all of a group
	// have the same history: the smallest operation of any phase.
	stepBytes uint64
}

// newHistory works out what the phases that are over have written, and with
// current the one that is under way, as its marks have it.
func newHistory(job *run.Job, cp *run.Checkpoint, current bool) (*history, error) {
	h := &history{lbaBytes: uint64(job.LBABytes)}
	for i := range job.Phases {
		p := &job.Phases[i]
		if i > int(cp.Phase) || p.Pattern == run.PatternNone || p.ReadPercent == 100 {
			continue
		}
		over := slices.IndexFunc(cp.Results, func(r run.PhaseResult) bool { return r.Phase == uint32(i) })
		if over < 0 && !(current && i == int(cp.Phase)) {
			continue
		}
		st, err := newStage(job, i)
		if err != nil {
			return nil, err
		}
		s := stratum{stage: st, flushed: math.MaxUint64}
		if over >= 0 {
			s.ended(cp.Results[over].Next, int(job.Workers))
		} else if err := s.interrupted(job, cp); err != nil {
			return nil, err
		}
		for _, d := range cp.Doubts {
			if d.Phase == uint32(i) {
				s.doubts = append(s.doubts, d)
			}
		}
		h.add(s)
	}
	return h, nil
}

// add puts a stratum on top.
func (h *history) add(s stratum) {
	h.strata = append(h.strata, s)
	size := uint64(s.stage.BlockBytes)
	if s.stage.blocks == 0 {
		size = h.lbaBytes // operations may lie anywhere
	}
	// The boundaries of all phases have to be boundaries: the greatest common
	// divisor of their sizes.
	for a := h.stepBytes; a != 0; {
		size, a = a, size%a
	}
	h.stepBytes = size
}

// ended is a phase that is over: everything up to its limit, or where its time
// ran out.
func (s *stratum) ended(next []uint64, workers int) {
	s.next = slices.Clone(next)
	for len(s.next) < workers {
		s.next = append(s.next, s.stage.limit)
	}
}

// interrupted is a phase in the midst of which the run stands.
func (s *stratum) interrupted(job *run.Job, cp *run.Checkpoint) error {
	if len(cp.Workers) != int(job.Workers) {
		return fmt.Errorf("the checkpoint has %d workers, the job %d", len(cp.Workers), job.Workers)
	}
	for _, m := range cp.Workers {
		s.next = append(s.next, m.Next)
		s.incomplete = append(s.incomplete, slices.Sorted(slices.Values(m.Incomplete)))
	}
	s.reserved = cp.CrashHigh
	if cp.State == run.StateRunning { // a crash leaves this behind
		s.reserved = cp.ReservedHigh
		if job.Verify.Trust == run.TrustFlushed {
			s.flushed = flushedBelow(cp)
		}
	}
	return nil
}

// flushedBelow is the position below which everything is flushed.
func flushedBelow(cp *run.Checkpoint) uint64 {
	if len(cp.Flushed) == 0 {
		return 0
	}
	return slices.Min(cp.Flushed)
}

// lookup finds out what a block must hold. It has generators of its own, so each
// worker has one; it allocates nothing.
type lookup struct {
	h    *history
	gens []*workload.Generator
	// live is the stratum of the phase under way, of which the passes below
	// livePass are complete, and reserved is how far a session that crashed may
	// have gone; nil when it does not write. Its generator is the last of gens.
	live     *stratum
	livePass uint64
	// resumed is, by worker, from where on this session did everything itself.
	resumed []uint64
	// uniform is the generation that all blocks have, when all do.
	uniform   uint64
	isUniform bool
	step      uint64 // bytes of equal history
	// generations is nil without a map.
	generations *generationMap
}

// newLookup prepares the look-ups of a stage. The stage's own writes are below
// everything else's only when it writes at all.
func newLookup(h *history, s *stage, resumed []uint64, crashHigh uint64, m *generationMap) (*lookup, error) {
	l := &lookup{h: h, step: h.stepBytes, generations: m}
	add := func(c workload.Config) error {
		g, err := workload.New(c)
		l.gens = append(l.gens, g)
		return err
	}
	for i := range h.strata {
		if err := add(h.strata[i].stage.config); err != nil {
			return nil, err
		}
	}
	if s.ReadPercent < 100 {
		top := &history{lbaBytes: h.lbaBytes, stepBytes: h.stepBytes}
		top.add(stratum{stage: s, next: slices.Repeat([]uint64{math.MaxUint64}, len(resumed)), flushed: math.MaxUint64, reserved: crashHigh})
		l.live, l.step, l.resumed = &top.strata[0], top.stepBytes, slices.Clone(resumed)
		if err := add(s.config); err != nil {
			return nil, err
		}
	} else {
		l.uniform, l.isUniform = h.uniform()
	}
	return l, nil
}

// inDoubt says whether the write of a generation, in a phase that draws blocks
// anew, may or may not be on the drive: it failed, or was under way in a crash.
func (l *lookup) inDoubt(generation uint64) bool {
	phase, position := int(generation>>48), generation&(1<<48-1)-1
	if l.live != nil && l.live.stage.index == phase {
		return l.live.stage.blocks == 0 && l.live.at(position) == doubtful
	}
	for i := range l.h.strata {
		if s := &l.h.strata[i]; s.stage.index == phase {
			return s.stage.blocks == 0 && s.at(position) == doubtful
		}
	}
	return false
}

// uniform is the generation that every block has after whole passes of a phase
// that only wrote.
func (h *history) uniform() (uint64, bool) {
	if len(h.strata) == 0 {
		return 0, false
	}
	s := &h.strata[len(h.strata)-1]
	low := slices.Min(s.next)
	if s.stage.blocks == 0 || s.stage.ReadPercent != 0 || len(s.doubts) != 0 || s.reserved != 0 || s.flushed != math.MaxUint64 ||
		slices.ContainsFunc(s.incomplete, func(p []uint64) bool { return len(p) != 0 }) {
		return 0, false
	}
	past := s.past()
	// A worker's next position lies up to one stride beyond the end.
	if past == 0 || past%s.stage.blocks != 0 || low < past {
		return 0, false
	}
	pass := past/s.stage.blocks - 1
	if s.stage.readsBack(pass) {
		pass--
	}
	return s.stage.generation(pass, 0), true
}

// written is one write that a block may have had.
type write struct {
	generation uint64
	certainty  certainty
	// open says that the order draws anew: the block may have been written then,
	// any number of times, with a generation from this one on.
	open bool
	// print is the fingerprint of the last write of an open phase, by the map; 0
	// when it is not known.
	print byte
}

// trail goes through the writes of a block, the latest first.
type trail struct {
	l     *lookup
	lba   uint64
	at    int // stratum, from the top; len(gens)-1 is the live one if there is one
	pass  uint64
	begun bool
}

func (l *lookup) trail(lba uint64) trail { return trail{l: l, lba: lba, at: len(l.gens) - 1} }

// next is the write before; false when there is none.
func (t *trail) next() (write, bool) {
	for ; t.at >= 0; t.at, t.begun = t.at-1, false {
		s := t.l.live
		if t.at < len(t.l.h.strata) {
			s = &t.l.h.strata[t.at]
		}
		if s.stage.blocks == 0 {
			if t.begun || s.past() == 0 {
				continue
			}
			t.begun = true
			w := write{generation: s.stage.generation(0, 0), certainty: doubtful, open: true}
			if m := t.l.generations; m != nil {
				switch w.print = m.at(t.lba * t.l.h.lbaBytes); w.print {
				case printNone:
					if m.whole {
						continue // not written in such a phase
					}
				case printDoubt:
					w.print = printNone
				default:
					w.certainty = certain
				}
			}
			return w, true
		}
		if w, ok := t.ordered(s); ok {
			return w, true
		}
	}
	return write{}, false
}

// rewritten says whether this session made the last write of a block: then what a
// session that crashed may have written is gone.
func (l *lookup) rewritten(lba uint64) bool {
	s, g := l.live.stage, l.gens[len(l.gens)-1]
	first := slices.Min(l.resumed)
	for pass := l.livePass; pass > 0 && pass*s.blocks > first; {
		if pass--; s.readsBack(pass) {
			continue
		}
		index, ok := g.Locate(pass, lba*l.h.lbaBytes/uint64(s.BlockBytes))
		if !ok {
			return false
		}
		if s.ReadPercent != 0 && !g.At(pass, index).Write {
			continue
		}
		position := pass*s.blocks + index
		return position >= l.resumed[position%uint64(len(l.resumed))]
	}
	return false
}

// ordered is the next write of a phase with passes.
func (t *trail) ordered(s *stratum) (write, bool) {
	if !t.begun {
		t.begun = true
		if s == t.l.live {
			t.pass = t.l.livePass
			if s.reserved != 0 && !t.l.rewritten(t.lba) {
				t.pass = max(t.pass, (s.reserved-1)/s.stage.blocks+1)
			}
		} else if past := s.past(); past == 0 {
			t.pass = 0
		} else {
			t.pass = (past-1)/s.stage.blocks + 1
		}
	}
	g := t.l.gens[t.at]
	block := t.lba * t.l.h.lbaBytes / uint64(s.stage.BlockBytes)
	for t.pass > 0 {
		t.pass--
		if s.stage.readsBack(t.pass) {
			continue
		}
		index, ok := g.Locate(t.pass, block)
		if !ok {
			return write{}, false
		}
		if s.stage.ReadPercent != 0 && !g.At(t.pass, index).Write {
			continue
		}
		position := t.pass*s.stage.blocks + index
		c := s.at(position)
		if s == t.l.live && t.pass >= t.l.livePass {
			// A session that crashed may have been there before, and no other.
			if c = absent; position < s.reserved {
				c = doubtful
			}
		}
		if c != absent {
			return write{generation: s.stage.generation(t.pass, 0), certainty: c}, true
		}
	}
	return write{}, false
}

// beliefMost is how many writes of a block are looked at one by one: those in
// doubt, and the one that is certain.
const beliefMost = 6

// belief is what is known of a block.
type belief struct {
	writes [beliefMost]write
	n      int
	// bottom says that what is below the last of writes is not known: the block
	// may never have been written before.
	bottom bool
	// gap says that before the last of writes there are more in doubt than are
	// listed: any generation from that of the last on may be there.
	gap bool
}

// believe collects the writes of a block down to the first that is certain, and
// with more those before it.
func (l *lookup) believe(lba uint64, more int) belief {
	var b belief
	t := l.trail(lba)
	sure := false
	for b.n < beliefMost {
		w, ok := t.next()
		if !ok {
			b.bottom = true
			return b
		}
		b.writes[b.n] = w
		b.n++
		if w.certainty == certain {
			sure = true
			if more--; more < 0 {
				return b
			}
		}
	}
	if sure {
		return b
	}
	// A small region, a crash, and many passes within what was reserved.
	for b.gap = true; ; {
		w, ok := t.next()
		if !ok {
			b.bottom = true
			return b
		}
		if w.certainty == certain {
			b.writes[b.n-1] = w
			return b
		}
	}
}
