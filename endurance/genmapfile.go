package endurance

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"nvop/endurance/run"
	"nvop/endurance/workload"
)

// The file of a generation map: a line that says what it is, the length of its
// head (8 bytes, little-endian), the head (JSON), zeros up to a multiple of
// mapAlign, the map, and the CRC-32C of all of it (4 bytes, little-endian). It is
// written beside its place and moved there, so it is always one whole map.
const (
	mapMagic = "nvop generation map 1\n"
	mapAlign = 4096
	mapChunk = 1 << 20
	// mapHeadMost bounds what is read of a head: the marks of 4096 workers.
	mapHeadMost = 64 << 20
)

// errMapFile is wrapped by what is wrong with a file.
var errMapFile = errors.New("generation map")

// mapHead is what a saved map knows, and of what it is.
type mapHead struct {
	// Run is the number in the blocks of the run ([run.DataRun]).
	Run uint64 `json:"run"`
	// GranuleBytes and Bytes are what a byte stands for and how many there are.
	GranuleBytes uint64 `json:"granule_bytes"`
	Bytes        uint64 `json:"bytes"`
	Whole        bool   `json:"whole"`
	// Everything of phases before Phase is in the map, and what the workers had
	// completed of it. What came later may be in it or not.
	Phase   uint32           `json:"phase"`
	Workers []run.WorkerMark `json:"workers"`
	// Lost and Forgot are of the map ([generationMap]).
	Lost   string `json:"lost,omitempty"`
	Forgot uint64 `json:"forgot,omitempty"`
}

// save writes the map to a file. Workers may go on meanwhile.
func (m *generationMap) save(path string, h mapHead) (err error) {
	h.GranuleBytes, h.Bytes, h.Whole, h.Lost, h.Forgot = m.granule, uint64(len(m.bytes)), m.whole, m.lost, m.forgot
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(beside))
			return
		}
		if err = os.Rename(beside, path); err == nil {
			err = syncDir(filepath.Dir(path))
		}
	}()
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	text := append([]byte(mapMagic), binary.LittleEndian.AppendUint64(nil, uint64(len(head)))...)
	text = append(text, head...)
	text = append(text, make([]byte, (mapAlign-len(text)%mapAlign)%mapAlign)...)
	if _, err := f.Write(text); err != nil {
		return err
	}
	sum := crc32.Update(0, castagnoli(), text)
	chunk, zeros := make([]byte, mapChunk), make([]byte, mapChunk)
	at := int64(len(text))
	for rest := m.bytes; len(rest) != 0; {
		// A copy, so that the checksum is of what is written.
		b := chunk[:copy(chunk, rest)]
		rest = rest[len(b):]
		sum = crc32.Update(sum, castagnoli(), b)
		if !bytes.Equal(b, zeros[:len(b)]) { // where nothing was written there is a hole
			if _, err := f.WriteAt(b, at); err != nil {
				return err
			}
		}
		at += int64(len(b))
	}
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint32(nil, sum), at); err != nil {
		return err
	}
	return f.Sync()
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load fills an empty map from its file. An error that is not fs.ErrNotExist says
// why the file is of no use; the map may then hold anything.
func (m *generationMap) load(path string, number uint64) (h mapHead, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	bad := func(format string, args ...any) (mapHead, error) {
		return mapHead{}, fmt.Errorf("%w %s: %s", errMapFile, path, fmt.Sprintf(format, args...))
	}
	start := make([]byte, len(mapMagic)+8)
	if _, err := io.ReadFull(f, start); err != nil || string(start[:len(mapMagic)]) != mapMagic {
		return bad("it is none")
	}
	n := binary.LittleEndian.Uint64(start[len(mapMagic):])
	if n > mapHeadMost {
		return bad("its head of %d bytes is too long", n)
	}
	size := (len(start) + int(n) + mapAlign - 1) / mapAlign * mapAlign
	text := append(start, make([]byte, size-len(start))...)
	if _, err := io.ReadFull(f, text[len(start):]); err != nil {
		return bad("it is cut short")
	}
	if err := json.Unmarshal(text[len(start):len(start)+int(n)], &h); err != nil {
		return bad("its head: %v", err)
	}
	if h.Run != number || h.GranuleBytes != m.granule || h.Bytes != uint64(len(m.bytes)) {
		return bad("it is of another run")
	}
	sum := crc32.Update(0, castagnoli(), text)
	chunk, zeros := make([]byte, mapChunk), make([]byte, mapChunk)
	for rest := m.bytes; len(rest) != 0; {
		b := chunk[:min(len(chunk), len(rest))]
		if _, err := io.ReadFull(f, b); err != nil {
			return bad("it is cut short")
		}
		sum = crc32.Update(sum, castagnoli(), b)
		if !bytes.Equal(b, zeros[:len(b)]) { // what stays untouched takes no memory
			copy(rest, b)
		}
		rest = rest[len(b):]
	}
	var stored [4]byte
	if _, err := io.ReadFull(f, stored[:]); err != nil || binary.LittleEndian.Uint32(stored[:]) != sum {
		return bad("it is damaged: its checksum is wrong")
	}
	m.whole, m.lost, m.forgot = h.Whole, h.Lost, h.Forgot
	return h, nil
}

const (
	// forgetMost is how many positions are drawn again at most to find out which
	// blocks may have been written since a map was saved: a minute or two. Beyond
	// that nothing is known any more.
	forgetMost = 1 << 30
	// forgetTries is how many draws of a position are looked at, at most: a worker
	// draws anew as long as it has the block in flight. Should it have drawn more often,
	// the doubt about the position still keeps the drive from being accused.
	forgetTries = 4
)

// window is the writes of a phase that a map may not know of: of worker w those
// from first[w] to before past[w], and those of incomplete.
type window struct {
	stage       *stage
	first, past []uint64
	incomplete  []uint64
	// gapless says that all that was in flight when an operation of the window was
	// drawn is of the window too.
	gapless bool
}

// doubt is the window as a stretch of positions.
func (w *window) doubt() run.Doubt {
	d := run.Doubt{Phase: uint32(w.stage.index), First: math.MaxUint64}
	take := func(first, past uint64) {
		if first < past {
			d.First, d.Past = min(d.First, first), max(d.Past, past)
		}
	}
	for k, first := range w.first {
		take(first, w.past[k])
	}
	for _, p := range w.incomplete {
		take(p, p+1)
	}
	return d
}

// draws is how many positions it has.
func (w *window) draws() uint64 {
	n := uint64(len(w.incomplete))
	for k, first := range w.first {
		if first < w.past[k] {
			n += (w.past[k]-first-1)/uint64(len(w.first)) + 1
		}
	}
	return n
}

// unknownSince is what a saved map may not know of a run that stands at a
// checkpoint; false when the two do not go together.
func unknownSince(job *run.Job, cp *run.Checkpoint, h *mapHead) ([]window, bool, error) {
	n := int(job.Workers)
	if len(h.Workers) != n || len(cp.Workers) != n || h.Phase > cp.Phase || int(cp.Phase) >= len(job.Phases) {
		return nil, false, nil
	}
	var all []window
	for i := h.Phase; i <= cp.Phase; i++ {
		p := &job.Phases[i]
		if p.Pattern != run.PatternReplacement || p.ReadPercent == 100 {
			continue
		}
		st, err := newStage(job, int(i))
		if err != nil {
			return nil, false, err
		}
		w := window{stage: st, first: make([]uint64, n), past: make([]uint64, n), gapless: job.Verify.Trust != run.TrustFlushed}
		for k := range n {
			w.first[k] = uint64(k)
			if i == h.Phase {
				w.first[k] = h.Workers[k].Next
				w.incomplete = append(w.incomplete, h.Workers[k].Incomplete...)
			}
		}
		over := slices.IndexFunc(cp.Results, func(r run.PhaseResult) bool { return r.Phase == i })
		switch {
		case over >= 0:
			for k := range n {
				w.past[k] = st.limit
				if next := cp.Results[over].Next; len(next) == n {
					w.past[k] = next[k]
				}
			}
		case i == cp.Phase:
			w.stands(job, cp)
		}
		all = append(all, w)
	}
	return all, true, nil
}

// stands takes in how far the phase is under way, and what a crash has left open.
func (w *window) stands(job *run.Job, cp *run.Checkpoint) {
	reserved := cp.CrashHigh
	if cp.State == run.StateRunning {
		reserved = max(reserved, cp.ReservedHigh)
	}
	for k := range w.first {
		w.past[k] = max(cp.Workers[k].Next, reserved)
		w.first[k] = min(w.first[k], cp.Workers[k].Next)
		w.incomplete = append(w.incomplete, cp.Workers[k].Incomplete...)
	}
	if cp.State != run.StateRunning {
		return
	}
	if job.Verify.Trust != run.TrustFlushed {
		return
	}
	for k := range w.first {
		flushed := uint64(k)
		if len(cp.Flushed) == len(w.first) {
			flushed = cp.Flushed[k]
		}
		w.first[k] = min(w.first[k], flushed)
	}
}

// forget marks every block that may have been written in a window: what it holds
// is not known. It is false when that would take too long.
func (m *generationMap) forget(windows []window) (bool, error) {
	total := uint64(0)
	for i := range windows {
		total += windows[i].draws()
	}
	if total > forgetMost {
		return false, nil
	}
	for i := range windows {
		w := &windows[i]
		g, err := workload.New(w.stage.config)
		if err != nil {
			return false, err
		}
		// What it draws again for is in doubt itself, so it has been marked: reads
		// in flight and the cells of a mix are not seen there.
		p := w.stage.Phase
		seen := w.gapless && !p.Mixed() && (p.ReadPercent == 0 || p.Check == run.CheckNone)
		mark := func(position uint64) {
			for attempt := range uint32(forgetTries) {
				op := g.Redraw(position, attempt)
				again := !seen || m.at(uint64(op.OffsetBytes)) == printDoubt
				if op.Write {
					m.set(op.OffsetBytes, op.LengthBytes, printDoubt)
				}
				if !again {
					return
				}
			}
		}
		for _, p := range w.incomplete {
			mark(p)
		}
		stride := uint64(len(w.first))
		for k, first := range w.first {
			// A worker's positions leave the worker's number as remainder.
			if r := first % stride; r != uint64(k) {
				first += (uint64(k) - r + stride) % stride
			}
			for p := first; p < w.past[k]; p += stride {
				mark(p)
			}
		}
	}
	return true, nil
}

// recall takes up the map of a run that stands at a checkpoint, as far as its file
// has it, and returns the writes that it may not know of. Without a file it is as
// one that was saved at the beginning, empty. remark says what the user has to
// know; a map of which nothing is known any more is empty, and not whole.
func (m *generationMap) recall(path string, number uint64, job *run.Job, cp *run.Checkpoint) (doubts []run.Doubt, remark string, err error) {
	h, err := m.load(path, number)
	if err != nil {
		remark = m.lose(path, err, cp)
		if err := m.clear(); err != nil {
			return nil, "", err
		}
		h = mapHead{Workers: make([]run.WorkerMark, job.Workers)}
		for k := range h.Workers {
			h.Workers[k].Next = uint64(k)
		}
		m.whole = true
	}
	return m.settle(&h, job, cp, remark)
}

// lose notes that the file of the map is of no use, and says so to the user.
func (m *generationMap) lose(path string, err error, cp *run.Checkpoint) string {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w %s: the file is missing", errMapFile, path)
		if cp.State == run.StateRunning {
			err = fmt.Errorf("%w, or was not saved before the crash", err)
		}
	}
	m.lost = fmt.Sprintf("what the generation map knew is lost: %v", err)
	return m.lost
}

// settle makes a map that was taken up one of how the run stands at a checkpoint:
// what may have been written since is in doubt.
func (m *generationMap) settle(h *mapHead, job *run.Job, cp *run.Checkpoint, remark string) ([]run.Doubt, string, error) {
	windows, ok, err := unknownSince(job, cp, h)
	if err == nil && ok {
		ok, err = m.forget(windows)
	}
	if err != nil {
		return nil, "", err
	}
	if !ok {
		if remark == "" {
			remark = "what the generation map knew is lost: too much may have been written since it was saved"
		}
		m.whole, m.lost = false, remark
		return nil, remark, m.clear()
	}
	var doubts []run.Doubt
	for i := range windows {
		m.forgot += windows[i].draws()
		if d := windows[i].doubt(); d.First < d.Past {
			doubts = append(doubts, d)
		}
	}
	return doubts, remark, nil
}
