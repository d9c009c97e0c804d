package jobfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nvop/endurance/run"
	"nvop/endurance/workload"
)

// Region is the drive that a job is built for.
type Region struct {
	CapacityBytes uint64
	LBABytes      uint32
	// AlphaMilli is raw over exported capacity; 0 when not known.
	AlphaMilli uint32
	Simulated  bool
}

const (
	usualDepth       = 32
	usualBlock       = 4096
	usualReadPercent = 70
	// lapseSampleNS: months pass in a minute, so health read once a minute of
	// them is plenty.
	lapseSampleNS = int64(time.Minute)
)

// Job builds the job for a drive. Errors are *Error with the place of the phase,
// and wrap run.ErrJob where the drive cannot be worked like that.
func (f *File) Job(r Region) (run.Job, error) {
	if f.TimeLapse > 1 && !r.Simulated {
		return run.Job{}, fault(Place{}, "time lapse is for simulated drives; a real one has its own time")
	}
	j := run.Job{
		Seed: f.Seed, CapacityBytes: r.CapacityBytes, LBABytes: r.LBABytes, TimeLapse: max(f.TimeLapse, 1), Workers: max(f.Workers, 1),
		Pin: f.Pin, Stops: slices.Clone(f.Stops), Pause: f.Pause, Verify: f.Verify, Data: f.Data, SampleIntervalNS: f.SampleNS, StallNS: f.StallNS,
		AlphaMilli: r.AlphaMilli,
	}
	if j.TimeLapse > 1 && j.SampleIntervalNS == 0 {
		j.SampleIntervalNS = lapseSampleNS
	}
	if err := f.verifiable(); err != nil {
		return run.Job{}, err
	}
	for i := range f.Phases {
		p, err := f.Phases[i].phase(r.LBABytes)
		if err != nil {
			return run.Job{}, err
		}
		j.Phases = append(j.Phases, p)
	}
	if err := j.Validate(); err != nil {
		return run.Job{}, &Error{Place: f.blame(&j), Reason: err.Error(), Err: err}
	}
	return j, nil
}

// verifiable refuses a phase that verifies and has nothing to read, or nothing to
// compare with: it could not fail.
func (f *File) verifiable() error {
	wrote := false
	for i := range f.Phases {
		p := &f.Phases[i]
		switch {
		case p.Kind != run.PhaseVerify:
		case !wrote:
			return fault(p.at, "it verifies what the run wrote, and nothing is written before it that it could compare")
		case p.RW == "" && p.Workload == "":
			return fault(p.at, "a phase that verifies reads: give %s", p.key("rw"))
		case p.Check != run.CheckReads:
			return fault(p.at, "a phase that verifies must check its reads: give %s", p.key("check"))
		}
		wrote = wrote || p.writes()
	}
	return nil
}

// writes says whether any of its operations is a write.
func (p *Phase) writes() bool {
	if p.RW == "randrw" && p.ReadPercent != nil {
		return *p.ReadPercent < 100
	}
	return p.Workload != "" || p.RW == "write" || p.RW == "randwrite" || p.RW == "randrw"
}

// blame finds the phase without which the job can be run.
func (f *File) blame(j *run.Job) Place {
	for i := range j.Phases {
		only := *j
		only.Phases = j.Phases[i : i+1]
		if err := only.Validate(); errors.Is(err, run.ErrJob) {
			return f.Phases[i].at
		}
	}
	return Place{}
}

// phase builds one phase for a drive of a logical block size.
func (p *Phase) phase(lbaBytes uint32) (run.Phase, error) {
	if err := p.contradictions(); err != nil {
		return run.Phase{}, err
	}
	if p.RW == "" && p.Workload == "" {
		return run.Phase{Kind: p.Kind, Pattern: run.PatternNone}, nil
	}
	out := run.Phase{
		Kind: p.Kind, BlockBytes: p.BlockBytes, Depth: p.Depth, Sizes: p.Sizes, WriteSizes: p.WriteSizes, AlignBytes: p.AlignBytes,
		Zones: p.Zones, ZipfMilli: p.ZipfMilli, Rate: p.Rate, Check: p.Check,
	}
	if out.Depth == 0 {
		out.Depth = usualDepth
	}
	if p.Workload != "" {
		preset(&out, workload.JESD219(lbaBytes))
	} else {
		p.plain(&out)
	}
	if out.Rate.Limited() && out.Rate.Arrival == "" {
		out.Rate.Arrival = run.ArrivalOpen
	}
	out.End = p.End
	switch {
	case p.Amount != 0 && out.ReadPercent != 0 && out.ReadPercent != 100:
		out.End.TransferBytes = p.Amount
	case p.Amount != 0:
		out.End.Bytes = p.Amount
	case p.Written != 0:
		out.End.Bytes = p.Written
	}
	return out, nil
}

// plain fills in a workload that is no preset.
func (p *Phase) plain(out *run.Phase) {
	switch p.RW {
	case "read", "randread":
		out.ReadPercent = 100
	case "randrw":
		out.ReadPercent = usualReadPercent
		if p.ReadPercent != nil {
			out.ReadPercent = *p.ReadPercent
		}
	}
	switch {
	case p.RW == "write" || p.RW == "read":
		out.Pattern = run.PatternSequential
	case p.Order == "permutation":
		out.Pattern = run.PatternRandom
	default:
		out.Pattern = run.PatternReplacement
	}
	for _, s := range slices.Concat(p.Sizes, p.WriteSizes) {
		out.BlockBytes = max(out.BlockBytes, s.Bytes)
	}
	if out.BlockBytes == 0 {
		out.BlockBytes = usualBlock
	}
}

// preset fills in a published workload.
func preset(out *run.Phase, w workload.Preset) {
	out.Workload, out.Pattern, out.ReadPercent, out.BlockBytes, out.AlignBytes = w.Name, run.PatternReplacement, w.ReadPercent, w.LargestBytes(), w.AlignBytes
	for _, s := range w.Sizes {
		out.Sizes = append(out.Sizes, run.SizeShare(s))
	}
	for _, z := range w.Zones {
		out.Zones = append(out.Zones, run.Zone(z))
	}
}

// key is what a key of a phase is called where it was written.
func (p *Phase) key(name string) string {
	if !p.Flags {
		return name
	}
	if short, ok := map[string]string{"block": "bs", "depth": "qd"}[name]; ok {
		name = short
	}
	return "--" + strings.ReplaceAll(name, "_", "-")
}

// contradictions finds what excludes or does nothing beside something else. There
// is no silent choice between two things that were written.
func (p *Phase) contradictions() error {
	random := p.RW == "randwrite" || p.RW == "randread" || p.RW == "randrw" || p.Workload != ""
	mixed := p.RW == "randrw" || p.Workload != ""
	conflict := func(a, b string) string {
		return fmt.Sprintf("%s and %s conflict: give one of them", p.key(a), p.key(b))
	}
	preset := func(own string, keys ...string) string {
		for i := range keys {
			keys[i] = p.key(keys[i])
		}
		return fmt.Sprintf("a workload has %s of its own: leave out %s", own, strings.Join(keys, ", "))
	}
	for _, c := range []struct {
		wrong  bool
		reason string
	}{
		{p.Workload != "" && p.Workload != "jesd219", fmt.Sprintf("no workload %q; there is jesd219", p.Workload)},
		{p.Workload != "" && (p.RW != "" || p.ReadPercent != nil), preset("reads and writes", "rw", "read_percent")},
		{p.Workload != "" && (p.BlockBytes != 0 || len(p.Sizes) != 0 || p.AlignBytes != 0), preset("sizes", "block", "bssplit", "align")},
		{p.Workload != "" && (len(p.Zones) != 0 || p.ZipfMilli != 0), preset("addresses", "zones", "zipf")},
		{p.Workload != "" && p.Order != "", preset("order", "order")},
		{p.RW != "" && !slices.Contains([]string{"write", "randwrite", "read", "randread", "randrw"}, p.RW),
			fmt.Sprintf("%s %q: write, randwrite, read, randread or randrw", p.key("rw"), p.RW)},
		{p.RW == "" && p.Workload == "" && p.asks(), fmt.Sprintf("nothing says what is read and written: give %s or %s", p.key("rw"), p.key("workload"))},
		{p.ReadPercent != nil && p.RW != "randrw", fmt.Sprintf("%s is the mix of randrw; %s has none", p.key("read_percent"), p.RW)},
		{p.ReadPercent != nil && *p.ReadPercent > 100, fmt.Sprintf("%s is more than 100", p.key("read_percent"))},
		{p.Order != "" && p.Order != "replacement" && p.Order != "permutation", fmt.Sprintf("%s %q: replacement or permutation", p.key("order"), p.Order)},
		{p.Order != "" && !random, fmt.Sprintf("%s is for what is random; %s goes from the first block to the last", p.key("order"), p.RW)},
		{p.BlockBytes != 0 && len(p.Sizes) != 0, conflict("block", "bssplit")},
		{p.AlignBytes != 0 && len(p.Sizes) == 0 && p.Workload == "", fmt.Sprintf("%s belongs to %s: blocks of one size are aligned to it", p.key("align"), p.key("bssplit"))},
		{len(p.Zones) != 0 && p.ZipfMilli != 0, conflict("zones", "zipf")},
		{p.Rate.Arrival != "" && !p.Rate.Limited(), fmt.Sprintf("%s belongs to a rate, and there is none", p.key("arrival"))},
		{p.Amount != 0 && p.Written != 0, conflict("size", "written")},
		{p.Written != 0 && !mixed, fmt.Sprintf("%s is for a mix of reads and writes: give %s", p.key("written"), p.key("size"))},
		{(p.Amount != 0 || p.Written != 0) && p.End != run.End{}, "there is more than one end: give one"},
	} {
		if c.wrong {
			return fault(p.at, "%s", c.reason)
		}
	}
	return nil
}

// asks says whether a phase wants anything done.
func (p *Phase) asks() bool {
	return p.Order != "" || p.ReadPercent != nil || p.BlockBytes != 0 || len(p.Sizes) != 0 || p.AlignBytes != 0 || len(p.Zones) != 0 ||
		p.ZipfMilli != 0 || p.Depth != 0 || p.Rate != (run.Rate{}) || p.Check != "" || p.Amount != 0 || p.Written != 0 || p.End != (run.End{})
}
