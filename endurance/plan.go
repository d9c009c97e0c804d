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
	// pace is how fast it goes at most.
	pace pace
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
		ReadPercent: p.ReadPercent, Workers: job.Workers, ZipfMilli: p.ZipfMilli,
	}
	if p.Mixed() {
		s.config.AlignBytes = p.Align()
		s.config.ReadSizes, s.config.WriteSizes = sizes(p.SizesOf(false)), sizes(p.SizesOf(true))
		for _, z := range p.Zones {
			s.config.Zones = append(s.config.Zones, workload.Zone(z))
		}
	}
	g, err := workload.New(s.config)
	if err != nil {
		return nil, fmt.Errorf("phase %d: %w", index, err)
	}
	if p.Pattern != run.PatternReplacement {
		s.blocks = g.Blocks()
	}
	if s.pace, err = newPace(&p); err != nil {
		return nil, fmt.Errorf("phase %d: %w", index, err)
	}
	s.limit, err = s.positions(job, g)
	return s, err
}

func sizes(from []run.SizeShare) []workload.Size {
	var to []workload.Size
	for _, s := range from {
		to = append(to, workload.Size(s))
	}
	return to
}

// positions is how many operations end the phase. A phase that ends by bytes
// writes (or, if it only reads, reads) at least that many, visits of a short
// last block aside, and at most a hundred operations more: the same number
// whatever the order of completions and however often it was interrupted. Of a
// mix of sizes it is the smallest number that does.
func (s *stage) positions(job *run.Job, g *workload.Generator) (uint64, error) {
	tooMany := func(n uint64, what string) error {
		return fmt.Errorf("phase %d: %w: %d %s are too many", s.index, run.ErrJob, n, what)
	}
	switch {
	case s.End.DurationNS != 0:
		return math.MaxUint64, nil
	case s.End.Passes != 0:
		passes := s.End.Passes
		if s.Check == run.CheckEachPass {
			passes *= 2 // each is read back
		}
		hi, lo := bits.Mul64(passes, s.blocks)
		if hi != 0 || passes < s.End.Passes {
			return 0, tooMany(s.End.Passes, "passes")
		}
		return lo, nil
	}
	want := max(s.End.Bytes, s.End.TransferBytes)
	if s.End.DriveWritesMilli != 0 {
		hi, lo := bits.Mul64(s.End.DriveWritesMilli, job.CapacityBytes)
		if hi >= 1000 {
			return 0, tooMany(s.End.DriveWritesMilli, "thousandths of a drive write")
		}
		want, _ = bits.Div64(hi, lo, 1000)
	}
	k := uint64(job.TimeLapse)
	share := uint64(100 - s.ReadPercent)
	if share == 0 || s.End.TransferBytes != 0 {
		share = 100
	}
	if s.Mixed() {
		n, ok := g.PositionsFor((want-1)/k+1, s.ReadPercent == 100 || s.End.TransferBytes != 0, true)
		if !ok {
			return 0, tooMany(want, "bytes")
		}
		return n, nil
	}
	n, ok := s.evenPositions(want, k, share)
	if !ok {
		return 0, tooMany(want, "bytes")
	}
	return n, nil
}

// evenPositions is the number where all operations have one size, share of 100
// of which count, k times each.
func (s *stage) evenPositions(want, k, share uint64) (uint64, bool) {
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
		return 0, false
	}
	n, _ := bits.Div64(hi, lo, unit)
	if share != 100 {
		n += 100 // a hundred is exact, part of one is not
	}
	return whole + n, true
}
