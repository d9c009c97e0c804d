package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"nvop/endurance/run"
	"nvop/namespace"
)

// jobFlags say what a soak does.
type jobFlags struct {
	RW          string   `name:"rw" enum:"write,randwrite,read,randread,randrw" required:"" help:"write, randwrite, read, randread or randrw." placeholder:"KIND"`
	ReadPercent uint8    `default:"70" help:"Reads of 100 operations of randrw." placeholder:"N"`
	BS          string   `name:"bs" default:"4KiB" help:"Size of an operation: 4KiB, 128k, 1M (k and M alone are binary here)." placeholder:"SIZE"`
	QD          uint32   `name:"qd" default:"32" help:"Operations each worker keeps outstanding." placeholder:"N"`
	Workers     uint32   `default:"1" help:"Queues that work side by side, each on a thread of its own." placeholder:"N"`
	Pin         bool     `help:"Tie each worker's thread to one processor."`
	Order       string   `enum:"replacement,permutation" default:"replacement" help:"Random order: replacement draws each block anew, as drives are rated; permutation visits every block exactly once a pass." placeholder:"ORDER"`
	Size        string   `xor:"end" help:"End after this much was transferred: 100GB, 2TiB; taken literally." placeholder:"SIZE"`
	Duration    string   `xor:"end" help:"End after this time of the drive's clock: 90s, 24h, 7d." placeholder:"TIME"`
	DriveWrites float64  `xor:"end" help:"End after this many drive writes." placeholder:"N"`
	Passes      uint64   `xor:"end" help:"End after this many passes over the namespace." placeholder:"N"`
	Fill        uint64   `help:"Sequential passes to write first." placeholder:"N"`
	WarmUp      float64  `help:"Drive writes of the same workload that are not measured, after the fill." placeholder:"N"`
	Verify      string   `enum:"none" default:"none" help:"What is verified: none in this version." placeholder:"none"`
	Stop        []string `help:"Stop rule, may be repeated: bytes=1PB, drive-writes=3, hours=24, used=10, spare=10, temperature=75, media-errors=1, critical-warning, latency=10ms." placeholder:"RULE" sep:"none"`
	TimeLapse   uint32   `default:"1" help:"Simulated drives only: each operation stands for K, the drive's clock runs K times as fast, and health is read every minute of it." placeholder:"K"`
	Seed        uint64   `default:"1" help:"Decides order, mix and data: one seed, one history on a simulated drive." placeholder:"N"`
}

// region is what the job runs on.
type region struct {
	capacityBytes uint64
	lbaBytes      uint32
	simulated     bool
	// totalBytes is the drive's capacity; 0 when not known.
	totalBytes uint64
}

// job turns the flags into phases for a region.
func (f jobFlags) job(r region) (run.Job, error) {
	if f.TimeLapse > 1 && !r.simulated {
		return run.Job{}, usagef("--time-lapse is for simulated drives; a real one has its own time")
	}
	block, err := blockSize(f.BS)
	if err != nil {
		return run.Job{}, err
	}
	measure := run.Phase{Kind: run.PhaseMeasure, Pattern: f.pattern(), ReadPercent: f.readPercent(), BlockBytes: block, Depth: f.QD}
	if measure.End, err = f.end(); err != nil {
		return run.Job{}, err
	}
	const threads = 4096
	if !r.simulated && uint64(f.QD)*uint64(f.Workers) > threads {
		return run.Job{}, usagef("--qd %d with --workers %d: every operation outstanding takes a thread here, and %d of them are the limit", f.QD, f.Workers, threads)
	}
	if !(f.WarmUp >= 0 && f.DriveWrites >= 0) {
		return run.Job{}, usagef("--warm-up and --drive-writes are not negative")
	}
	j := run.Job{
		Seed: f.Seed, CapacityBytes: r.capacityBytes, LBABytes: r.lbaBytes, TimeLapse: max(f.TimeLapse, 1),
		Workers: f.Workers, Pin: f.Pin,
	}
	if j.TimeLapse > 1 {
		// Months pass in a minute: health read once a minute of them is plenty.
		j.SampleIntervalNS = int64(time.Minute)
	}
	if f.Fill > 0 {
		j.Phases = append(j.Phases, run.Phase{
			Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: max(block, 128<<10), Depth: f.QD,
			End: run.End{Passes: f.Fill},
		})
	}
	if f.WarmUp > 0 {
		warm := measure
		warm.Kind, warm.End = run.PhaseWarmUp, run.End{DriveWritesMilli: milli(f.WarmUp)}
		j.Phases = append(j.Phases, warm)
	}
	j.Phases = append(j.Phases, measure)
	for _, text := range f.Stop {
		rule, err := stopRule(text)
		if err != nil {
			return run.Job{}, err
		}
		j.Stops = append(j.Stops, rule)
	}
	if err := j.Validate(); err != nil {
		return run.Job{}, &codedError{exitUsage, err}
	}
	return j, nil
}

func (f jobFlags) pattern() run.Pattern {
	switch {
	case f.RW == "write" || f.RW == "read":
		return run.PatternSequential
	case f.Order == "permutation":
		return run.PatternRandom
	}
	return run.PatternReplacement
}

func (f jobFlags) readPercent() uint8 {
	switch f.RW {
	case "read", "randread":
		return 100
	case "randrw":
		return f.ReadPercent
	}
	return 0
}

func milli(v float64) uint64 { return uint64(math.Ceil(v * 1000)) }

// end reads the one condition that ends the measured phase.
func (f jobFlags) end() (run.End, error) {
	switch {
	case f.Size != "":
		n, err := literalBytes("--size", f.Size)
		return run.End{Bytes: n}, err
	case f.Duration != "":
		d, err := longDuration(f.Duration)
		return run.End{DurationNS: int64(d)}, err
	case f.DriveWrites > 0:
		return run.End{DriveWritesMilli: milli(f.DriveWrites)}, nil
	case f.Passes > 0:
		return run.End{Passes: f.Passes}, nil
	}
	return run.End{}, usagef("when is the soak over? give one of --size, --duration, --drive-writes, --passes")
}

// literalBytes reads a number of bytes with its unit, never as a marketing
// capacity: it is an amount of data, not the size of a drive.
func literalBytes(flag, text string) (uint64, error) {
	size, err := namespace.ParseSize(text, true)
	if err != nil {
		return 0, err
	}
	n, ok := size.Bytes()
	if !ok || n == 0 {
		return 0, usagef("%s %q: give a number of bytes with a unit, such as 100GB or 2TiB", flag, text)
	}
	return n, nil
}

// blockSize reads the size of an operation. k and M alone are KiB and MiB, as
// every I/O tool has them.
func blockSize(text string) (uint32, error) {
	long := text
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			long = text[:n-1] + "KiB"
		case 'm', 'M':
			long = text[:n-1] + "MiB"
		}
	}
	v, err := literalBytes("--bs", long)
	if err != nil {
		return 0, err
	}
	if v > 64<<20 {
		return 0, usagef("--bs %q: more than 64 MiB", text)
	}
	return uint32(v), nil
}

// longDuration reads a duration; unlike Go's own it knows days.
func longDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, usagef("duration %q: give a number with a unit, such as 90s, 24h or 7d", text)
}

// stopRule reads one stop rule.
func stopRule(text string) (run.StopRule, error) {
	name, value, has := strings.Cut(text, "=")
	bad := func(why string) (run.StopRule, error) {
		return run.StopRule{}, usagef("--stop %q: %s", text, why)
	}
	if name == "critical-warning" {
		if has {
			return bad("takes no value")
		}
		return run.StopRule{Kind: run.StopCriticalWarning, Limit: 0xFF}, nil
	}
	if !has {
		return bad("write it as NAME=VALUE")
	}
	switch name {
	case "bytes":
		n, err := literalBytes("--stop bytes", value)
		if err != nil || n > math.MaxInt64 {
			return bad("give a number of bytes with a unit")
		}
		return run.StopRule{Kind: run.StopBytes, Limit: int64(n)}, nil
	case "latency":
		d, err := longDuration(value)
		return run.StopRule{Kind: run.StopLatency, Limit: int64(d)}, err
	}
	kinds := map[string]struct {
		kind   run.StopKind
		factor float64
		suffix string
	}{
		"drive-writes": {run.StopDriveWrites, 1000, ""}, "hours": {run.StopDuration, float64(time.Hour), "h"},
		"used": {run.StopPercentageUsed, 1, "%"}, "spare": {run.StopSpare, 1, "%"},
		"temperature": {run.StopTemperature, 1, "C"}, "media-errors": {run.StopMediaErrors, 1, ""},
	}
	k, ok := kinds[name]
	if !ok {
		return bad("no such rule; there are bytes, drive-writes, hours, used, spare, temperature, media-errors, critical-warning, latency")
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(value, k.suffix), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*k.factor > 1e18 {
		return bad(fmt.Sprintf("%q is not a number", value))
	}
	return run.StopRule{Kind: k.kind, Limit: int64(math.Ceil(v * k.factor))}, nil
}
