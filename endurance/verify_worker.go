package endurance

import (
	"errors"
	"hash/maphash"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// errNoContents: the queue keeps nothing that could be compared.
var errNoContents = errors.New("this drive keeps no contents, so nothing that is read can be checked")

// newInspector prepares the checks of a stage; nil where there are none.
func (w *worker) newInspector(s *stage, lbaBytes uint32) (*inspector, error) {
	if s.Check == run.CheckNone {
		return nil, nil
	}
	if w.data == nil {
		return nil, errNoContents
	}
	l, err := newLookup(w.track.history, s, w.track.resumed, w.track.crashHigh, w.track.generations)
	if err != nil {
		return nil, err
	}
	return &inspector{source: w.data, lookup: l, lba: uint64(lbaBytes), run: w.data.Config().Run, runs: w.track.runs, seed: maphash.MakeSeed()}, nil
}

// looksAgain compares what a read gave, and says whether the slot has to read
// again: parts of its operation.
func (w *worker) looksAgain(t *tally, s *slot, r *nvmeioctl.IOResult) bool {
	x := w.inspect
	if w.fatal != nil && isGone(r.Err) {
		w.restore(s)
		return false // the operation stays to be done
	}
	if live := x.lookup.live; live != nil {
		// What failed meanwhile, on whatever worker, was noted before the pass
		// that it belongs to was over.
		live.doubts = w.track.doubts.all()
		if w.stage.blocks != 0 {
			x.lookup.livePass = s.position / w.stage.blocks
		}
	}
	if s.look == nil {
		if r.Status == 0 && r.Err == nil {
			s.look = x.read(t, w.buffers[r.Tag][:s.op.LengthBytes], s.op.OffsetBytes)
		} else {
			s.look = x.unread(s.op.OffsetBytes, s.op.LengthBytes)
		}
		if s.look == nil || len(s.look.suspects) == 0 {
			s.look = nil
			return false
		}
		s.look.op = opOf{s.op.OffsetBytes, s.op.LengthBytes}
		return true
	}
	if s.look.together {
		if s.look.together = false; r.Status != 0 || r.Err != nil {
			return true // one by one, to find out which can be read
		}
		first := s.look.suspects[0].lba
		for i := range s.look.suspects {
			y := &s.look.suspects[i]
			x.again(t, y, w.buffers[r.Tag][(y.lba-first)*x.lba:][:x.lba], r)
		}
		w.restore(s)
		return false
	}
	x.again(t, &s.look.suspects[s.look.at], w.buffers[r.Tag][:x.lba], r)
	if s.look.at++; s.look.at < len(s.look.suspects) {
		return true
	}
	w.restore(s)
	return false
}

// restore gives a slot the operation back that it was looking at again.
func (w *worker) restore(s *slot) {
	if s.look != nil {
		s.op.OffsetBytes, s.op.LengthBytes = s.look.op.offsetBytes, s.look.op.lengthBytes
		s.look = nil
	}
}

// lookAgain makes requests for the slots that have to read again.
func (w *worker) lookAgain() {
	if len(w.looks) == 0 || w.fatal != nil {
		return
	}
	for _, tag := range w.looks {
		s := &w.slots[tag]
		lba, blocks := s.look.stretch()
		s.op.OffsetBytes, s.op.LengthBytes = int64(lba*w.inspect.lba), int32(blocks*w.inspect.lba)
		s.at, s.due = max(s.free, w.floor), 0
		w.requests = append(w.requests, nvmeioctl.IORequest{
			Op: nvmeioctl.OpRead, Tag: tag, OffsetBytes: s.op.OffsetBytes, LengthBytes: s.op.LengthBytes,
			Buf: w.buffers[tag][:s.op.LengthBytes], At: s.at,
		})
	}
	w.looks = w.looks[:0]
}

// noteGeneration remembers the last write of the blocks of an operation.
func (w *worker) noteGeneration(s *slot, ok bool) {
	print := byte(printDoubt)
	if ok {
		print = fingerprint(s.generation)
	}
	w.track.generations.set(s.op.OffsetBytes, s.op.LengthBytes, print)
}

// flusher makes what a worker wrote trusted, now and then.
type flusher struct {
	every time.Duration // 0 never
	due   nvmeioctl.Instant
	// dirty says that something was written since the last flush began, busy
	// that one is under way, and last that the one at the end has begun.
	dirty, busy, last bool
	// upTo is what the flush under way makes trusted; below what is.
	upTo, below uint64
}

// flushDue makes a request for a flush where it is time for one: before other
// operations take all slots, or, last, where nothing else is left to do.
func (w *worker) flushDue(last bool) {
	f := &w.flush
	if f.every == 0 || !f.dirty || f.busy || w.fatal != nil || len(w.free) == 0 {
		return
	}
	tag := w.free[0]
	s := &w.slots[tag]
	at := max(s.free, w.floor)
	end := w.exhausted && w.outstanding == 0 && len(w.requests) == 0
	if last && (!end || f.last) || !last && at < f.due {
		return
	}
	w.free = w.free[:copy(w.free, w.free[1:])]
	f.last = last
	f.dirty, f.busy, f.due = false, true, at.Add(f.every)
	f.upTo = w.lowest()
	for i := range w.slots[:w.depth] {
		if w.slots[i].busy {
			f.upTo = min(f.upTo, w.slots[i].position)
		}
	}
	s.at, s.busy, s.flush = at, true, true
	s.position = f.upTo
	w.requests = append(w.requests, nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, Tag: tag, At: at})
}

// flushed takes the outcome of a flush. One that failed makes nothing trusted,
// and is an error of the drive's as any other.
func (w *worker) flushed(t *tally, s *slot, r *nvmeioctl.IOResult) {
	w.outstanding--
	t.lastDone = max(t.lastDone, r.Done)
	s.flush, s.busy, s.free = false, false, r.Done
	w.free = append(w.free, r.Tag)
	w.flush.busy = false
	if r.Status == 0 && r.Err == nil {
		w.flush.below = max(w.flush.below, w.flush.upTo)
		return
	}
	w.flush.dirty = true
	t.errors[dirWrite]++
	if len(t.failures) < cap(t.failures) {
		t.failures = append(t.failures, ioFailure{status: uint16(r.Status), err: r.Err, flush: true})
	}
	if isGone(r.Err) {
		w.fail(r.Err)
	}
}
