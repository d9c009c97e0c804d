package endurance

import (
	"io"
	"slices"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl/pattern"
)

// Survey is what a few of the logical blocks hold that a run is sure to have
// written.
type Survey struct {
	// Own carry a header of the run. Foreign hold something else.
	Own, Foreign int
	// Blank hold zeros or ones, or could not be read: nothing follows from them.
	Blank int
}

// Replaced says that the contents are not what the run left: of the blocks that
// tell anything, most are not its own.
func (s Survey) Replaced() bool { return s.Foreign > s.Own }

// Survey looks at up to n blocks, spread evenly over the writes that certainly
// reached what r reads. It finds none where the run has written nothing yet, or
// where each of its blocks stands for many.
func (w *Written) Survey(r io.ReaderAt, n int) (Survey, error) {
	var found Survey
	if w.Job.TimeLapse > 1 || w.Job.Verify.Of != nil {
		return found, nil
	}
	h, err := newHistory(&w.Job, &w.Checkpoint, true)
	if err != nil {
		return found, err
	}
	number := run.DataRun(w.StartWallUnixNS, w.Job.Seed, w.Drive)
	block := make([]byte, w.Job.LBABytes)
	for i := range h.strata {
		s := &h.strata[i]
		g, err := workload.New(s.stage.config)
		if err != nil {
			return found, err
		}
		for _, offset := range s.sure(g, max(n/len(h.strata), 1)) {
			if _, err := r.ReadAt(block, offset); err != nil || pattern.IsBlank(block) {
				found.Blank++
			} else if header, ok := pattern.ParseHeader(block); ok && header.Run == number {
				found.Own++
			} else {
				found.Foreign++
			}
		}
	}
	return found, nil
}

// sure is where up to n writes of the phase, spread evenly, certainly went to, in
// bytes. What lies there now is of this write or of a later one of the same run.
func (s *stratum) sure(g *workload.Generator, n int) []int64 {
	const near = 256 // positions to look through for a write: of a hundred at least one is
	var offsets []int64
	past := min(slices.Max(s.next), s.stage.limit)
	step := max(past/uint64(n), 1)
	for i := range uint64(n) {
		for p := i * step; p < past && p < i*step+min(step, near); p++ {
			if s.at(p) != certain {
				continue
			}
			pass, index := uint64(0), p
			if s.stage.blocks != 0 {
				pass, index = p/s.stage.blocks, p%s.stage.blocks
			}
			// A block that is drawn while it is being written is written all the same.
			if op := g.At(pass, index); op.Write && !s.stage.readsBack(pass) {
				offsets = append(offsets, op.OffsetBytes)
				break
			}
		}
	}
	return offsets
}
