package endurance

import (
	"fmt"
	"math"
	"math/bits"

	"nvop/endurance/run"
	"nvop/endurance/workload"
)

// second1 is one second of a calendar, in nanoseconds.
const second1 = 1_000_000_000

// defaults of a job.
const (
	defaultSampleNS = 10 * second1
	defaultStallNS  = 30 * second1
)

// stage is one phase with all that follows from it.
type stage struct {
	index int
	run.Phase
	config workload.Config
	// blocks is the positions of a pass, or 0 when there are no passes.
	blocks uint64
	// limit is how many positions the phase has, or math.MaxUint64 when time
	// ends it.
	limit uint64
}

// newStage works out a phase of a valid job.
func newStage(job *run.Job, index int) (*stage, error) {
	p := job.Phases[index]
	s := &stage{index: index, Phase: p}
	if p.Pattern == run.PatternNone {
		return s, nil
	}
	patterns := map[run.Pattern]workload.Pattern{
		run.PatternSequential: workload.Sequential, run.PatternRandom: workload.Random, run.PatternReplacement: workload.Replacement,
	}
	s.config = workload.Config{
		// Each phase has an order of its own.
		Seed: job.Seed + uint64(index)*0x9E3779B97F4A7C15, Pattern: patterns[p.Pattern],
		RegionBytes: job.RegionBytes(), BlockBytes: p.BlockBytes, LBABytes: job.LBABytes,
		ReadPercent: p.ReadPercent, Workers: job.Workers,
	}
	g, err := workload.New(s.config)
	if err != nil {
		return nil, fmt.Errorf("phase %d: %w", index, err)
	}
	if p.Pattern != run.PatternReplacement {
		s.blocks = g.Blocks()
	}
	s.limit, err = s.positions(job)
	return s, err
}

// positions is how many operations end the phase. A phase that ends by bytes
// writes (or, if it only reads, reads) at least that many, visits of a short
// last block aside, and at most a hundred operations more: the same number
// whatever the order of completions and however often it was interrupted.
func (s *stage) positions(job *run.Job) (uint64, error) {
	if s.End.DurationNS != 0 {
		return math.MaxUint64, nil
	}
	if s.End.Passes != 0 {
		hi, lo := bits.Mul64(s.End.Passes, s.blocks)
		if hi != 0 {
			return 0, fmt.Errorf("phase %d: %w: %d passes are too many", s.index, run.ErrJob, s.End.Passes)
		}
		return lo, nil
	}
	want := s.End.Bytes
	if s.End.DriveWritesMilli != 0 {
		hi, lo := bits.Mul64(s.End.DriveWritesMilli, job.CapacityBytes)
		if hi >= 1000 {
			return 0, fmt.Errorf("phase %d: %w: %d thousandths of a drive write are too many", s.index, run.ErrJob, s.End.DriveWritesMilli)
		}
		want, _ = bits.Div64(hi, lo, 1000)
	}
	k := uint64(job.TimeLapse)
	share := uint64(100 - s.ReadPercent)
	if share == 0 {
		share = 100
	}
	passBytes := s.config.RegionBytes * k
	var whole, rest uint64
	if s.blocks != 0 && share == 100 {
		whole, rest = want/passBytes*s.blocks, want%passBytes
		if rest != 0 && s.config.RegionBytes%uint64(s.BlockBytes) != 0 {
			whole++ // the short block may be among them
		}
	} else {
		rest = want
	}
	// ceil(rest * 100 / (block * K * share)) in 128 bits.
	hi, lo := bits.Mul64(rest, 100)
	unit := uint64(s.BlockBytes) * k * share
	lo, carry := bits.Add64(lo, unit-1, 0)
	hi += carry
	if hi >= unit {
		return 0, fmt.Errorf("phase %d: %w: %d bytes are too many", s.index, run.ErrJob, want)
	}
	n, _ := bits.Div64(hi, lo, unit)
	if share != 100 {
		n += 100 // a hundred is exact, part of one is not
	}
	return whole + n, nil
}
