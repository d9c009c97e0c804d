package run

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrJob is wrapped by every error of [Job.Validate].
var ErrJob = errors.New("job cannot be run")

// ends is how many of the end conditions are set.
func (e End) ends() int {
	n := 0
	for _, set := range []bool{e.Bytes != 0, e.TransferBytes != 0, e.DriveWritesMilli != 0, e.Passes != 0, e.DurationNS != 0} {
		if set {
			n++
		}
	}
	return n
}

// kindOrder gives the kinds of phase the order in which they may appear.
func kindOrder(k PhaseKind) int {
	for i, o := range []PhaseKind{PhasePrepare, PhasePrecondition, PhaseWarmUp, PhaseMeasure, PhaseVerify} {
		if k == o {
			return i
		}
	}
	return -1
}

func jobError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrJob, fmt.Sprintf(format, args...))
}

// Validate says what is wrong with a job: sizes that do not fit, a phase
// without exactly one end, an end that cannot be reached, limits that
// contradict each other. There are no hidden limits.
func (j *Job) Validate() error {
	switch {
	case j.LBABytes < 512 || j.LBABytes&(j.LBABytes-1) != 0:
		return jobError("logical blocks of %d bytes", j.LBABytes)
	case j.RegionBytes() == 0:
		return jobError("a capacity of %d bytes leaves nothing to address at time lapse %d", j.CapacityBytes, j.TimeLapse)
	case j.CapacityBytes > math.MaxInt64:
		return jobError("a capacity of %d bytes is beyond what offsets can address", j.CapacityBytes)
	case j.TimeLapse == 0:
		return jobError("time lapse 0: 1 means none")
	case j.Workers == 0:
		return jobError("no workers")
	case len(j.Phases) == 0:
		return jobError("no phases")
	case j.SampleIntervalNS < 0 || j.StallNS < 0:
		return jobError("negative interval")
	}
	order := 0
	for i := range j.Phases {
		p := &j.Phases[i]
		at := kindOrder(p.Kind)
		if at < 0 {
			return jobError("phase %d: %q is no kind of phase", i, p.Kind)
		}
		if at < order {
			return jobError("phase %d: %s cannot follow %s", i, p.Kind, j.Phases[i-1].Kind)
		}
		order = at
		if err := errors.Join(j.validatePhase(p), j.validateMix(p), validateRate(p)); err != nil {
			return fmt.Errorf("phase %d (%s): %w", i, p.Kind, err)
		}
	}
	if err := errors.Join(j.validateStops(), j.validateTrust()); err != nil {
		return err
	}
	return j.Pause.validate(j.Stops)
}

func (j *Job) validatePhase(p *Phase) error {
	if p.Pattern == PatternNone {
		if p.End.ends() != 0 {
			return jobError("it does nothing, so it has no end")
		}
		return nil
	}
	if err := j.validateVerify(p); err != nil {
		return err
	}
	blocks := j.RegionBytes() / uint64(max(p.BlockBytes, 1))
	switch {
	case p.Pattern != PatternSequential && p.Pattern != PatternRandom && p.Pattern != PatternReplacement:
		return jobError("%q is no pattern", p.Pattern)
	case p.BlockBytes == 0 || p.BlockBytes%j.LBABytes != 0 || p.BlockBytes > 1<<30:
		return jobError("blocks of %d bytes are not whole logical blocks of %d bytes up to 1 GiB", p.BlockBytes, j.LBABytes)
	case p.Depth == 0 || p.Depth > 1<<16:
		return jobError("a depth of %d: 1 to 65536", p.Depth)
	case p.ReadPercent > 100:
		return jobError("%d %% of reads", p.ReadPercent)
	case blocks < uint64(j.Workers):
		return jobError("%d workers share %d blocks", j.Workers, blocks)
	case p.Pattern == PatternReplacement && p.ReadPercent < 100 && blocks/uint64(j.Workers) < 2*uint64(p.Depth):
		return jobError("drawing from %d blocks with %d x %d in flight, two writes of one block would meet", blocks, j.Workers, p.Depth)
	case p.End.DurationNS < 0:
		return jobError("negative duration")
	}
	switch n := p.End.ends(); {
	case n == 0:
		return jobError("it has no end: bytes, drive writes, passes or duration")
	case n > 1:
		return jobError("it has %d ends, which conflict: give one", n)
	case p.End.Passes != 0 && p.Pattern == PatternReplacement:
		return jobError("replacement has no passes: use bytes, drive writes or duration")
	case p.End.DriveWritesMilli != 0 && p.ReadPercent == 100:
		return jobError("it only reads, so it never writes the drive")
	case tooManyDriveWrites(p.End.DriveWritesMilli, j.CapacityBytes):
		return jobError("%d thousandths of a drive write are more bytes than can be counted", p.End.DriveWritesMilli)
	case max(p.End.Bytes, p.End.TransferBytes) > math.MaxInt64:
		return jobError("an end of %d bytes is more than can be counted", max(p.End.Bytes, p.End.TransferBytes))
	}
	return nil
}

// tooManyDriveWrites says that a phase's bytes would not fit a signed 64-bit
// number, as databases have it: 9.2 EB.
func tooManyDriveWrites(milli, capacityBytes uint64) bool {
	hi, lo := bits.Mul64(milli, capacityBytes)
	if hi >= 1000 {
		return true
	}
	bytes, _ := bits.Div64(hi, lo, 1000)
	return bytes > math.MaxInt64
}

func (j *Job) validateStops() error {
	seen := map[StopKind]bool{}
	for _, s := range j.Stops {
		if seen[s.Kind] {
			return jobError("two stop rules for %s conflict", s.Kind.Name())
		}
		seen[s.Kind] = true
		low, high := int64(1), int64(math.MaxInt64)
		switch s.Kind {
		case StopBytes, StopDriveWrites, StopDuration, StopMediaErrors, StopLatency:
		case StopPercentageUsed, StopCriticalWarning:
			high = 255
		case StopSpare:
			low, high = 0, 100
		case StopTemperature:
			low, high = -273, 1000
		default:
			return jobError("%q is no stop rule", s.Kind)
		}
		if s.Limit < low || s.Limit > high {
			return jobError("stop rule %s: %s is not within %s to %s", s.Kind.Name(), s.Kind.Text(s.Limit), s.Kind.Text(low), s.Kind.Text(high))
		}
		if err := j.validateReach(s); err != nil {
			return err
		}
	}
	return nil
}

// validateReach refuses a stop rule that contradicts a phase's end: in the same
// unit, and lower than what one phase alone was asked for.
func (j *Job) validateReach(s StopRule) error {
	for i, p := range j.Phases {
		var asked uint64
		switch {
		case s.Kind == StopBytes && p.ReadPercent < 100:
			asked = p.End.Bytes // what is transferred may be read
		case s.Kind == StopDriveWrites:
			asked = p.End.DriveWritesMilli
		case s.Kind == StopDuration:
			asked = uint64(p.End.DurationNS)
		}
		if asked > uint64(max(s.Limit, 0)) {
			return jobError("stop rule %s conflicts with phase %d, which is to last for %s: give one of them", s, i, s.Kind.Text(int64(min(asked, math.MaxInt64))))
		}
	}
	return nil
}
