package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"nvop/endurance/jobfile"
	"nvop/endurance/run"
	"nvop/namespace"
	"nvop/nvmeioctl/pattern"
)

// jobFlags say what a soak does: a run file with one measured phase. What is not
// given has no value here, so that a flag that would be ignored can be told.
type jobFlags struct {
	RW          string   `name:"rw" enum:"write,randwrite,read,randread,randrw," default:"" help:"write, randwrite, read, randread or randrw." placeholder:"KIND"`
	Workload    string   `enum:"jesd219," default:"" help:"A published workload instead of --rw: jesd219, the enterprise endurance workload (40 % reads, its sizes, half of the operations on 5 % of the space; 4Kn variant on 4096 byte blocks)." placeholder:"NAME"`
	ReadPercent *uint8   `help:"Reads of 100 operations of randrw (default: 70)." placeholder:"N"`
	BS          string   `name:"bs" help:"Size of an operation: 4KiB, 128k, 1M (k and M alone are binary here; default: 4KiB)." placeholder:"SIZE"`
	BSSplit     string   `name:"bssplit" help:"A mix of sizes: 4k/60:64k/40, and after a comma that of writes." placeholder:"SIZE/PERCENT:..."`
	Align       string   `help:"What offsets of --bssplit are multiples of (default: its smallest size)." placeholder:"SIZE"`
	Zones       string   `help:"Skewed addresses: 50/5:30/15:20/80 gives half of the operations to the first 5 % of the space." placeholder:"OPS/SPACE:..."`
	Zipf        string   `help:"Skewed addresses by a Zipf law with this exponent: 1.2. Popular blocks lie scattered." placeholder:"EXPONENT"`
	QD          uint32   `name:"qd" default:"32" help:"Operations each worker keeps outstanding." placeholder:"N"`
	Workers     uint32   `default:"1" help:"Queues that work side by side, each on a thread of its own." placeholder:"N"`
	Pin         bool     `help:"Tie each worker's thread to one processor."`
	Order       string   `enum:"replacement,permutation," default:"" help:"Random order: replacement (default) draws each block anew, as drives are rated, and reaches 63.2 % of them in a drive write; permutation visits every block exactly once a pass." placeholder:"ORDER"`
	Size        string   `xor:"end" help:"End after this much: written, of what only reads read, of randrw and workloads both together. Literal: 100GB, 2TiB." placeholder:"SIZE"`
	Written     string   `xor:"end" help:"End a mix after this much was written." placeholder:"SIZE"`
	Duration    string   `xor:"end" help:"End after this time of the drive's clock: 90s, 24h, 7d." placeholder:"TIME"`
	DriveWrites string   `xor:"end" help:"End after this many drive writes." placeholder:"N"`
	Passes      limit    `xor:"end" help:"End after this many passes over the namespace." placeholder:"N"`
	Fill        uint64   `help:"Sequential passes to write first." placeholder:"N"`
	WarmUp      string   `help:"Drive writes of the same workload that are not measured, after the fill." placeholder:"N"`
	Data        string   `enum:"full,headers" default:"full" help:"What is written: full makes every block anew, so that it can be verified at any time; headers writes only each block's header over a body that stays, which takes less of the processor and cannot be verified." placeholder:"KIND"`
	Compress    string   `name:"compress-ratio" help:"What is written compresses by this ratio: 2, 2.5:1 (default: not at all)." placeholder:"RATIO"`
	Dedup       string   `name:"dedup-ratio" help:"What is written repeats, in units of 4 KiB, by this ratio: 4, 4:1 (default: all differ). Fewer mistakes are told among what repeats." placeholder:"RATIO"`
	Verify      string   `enum:"none,reads,passes,end" default:"none" help:"What is compared with what was written: none; reads (all that the workload reads); passes (each pass is read back; permutation or write); end (a pass that reads everything once, at the end)." placeholder:"WHAT"`
	Trust       string   `enum:"completed,flushed" default:"completed" help:"Which writes must have survived a crash: completed, or only those flushed (drives without power-loss protection)." placeholder:"WHAT"`
	FlushEvery  string   `help:"Flush each worker's writes at this interval." placeholder:"TIME"`
	GenMap      bool     `name:"generation-map" help:"A byte of memory for each block, and as much in a file beside the journal, so that lost and stale blocks are told where the order draws anew."`
	Stop        []string `help:"Stop rule, may be repeated: bytes=1PB, drive-writes=3, hours=24, used=10, spare=10, temperature=75, media-errors=1, critical-warning, latency=10ms." placeholder:"RULE" sep:"none"`
	Pause       string   `help:"Let the drive cool down: pause at the first temperature, go on at the second (default: 5 degrees below)." placeholder:"C[:C]"`
	TimeLapse   limit    `help:"Simulated drives only: each operation stands for K, the drive's clock runs K times as fast, and health is read every minute of it." placeholder:"K"`
	Seed        uint64   `default:"1" help:"Decides order, mix and data: one seed, one history on a simulated drive." placeholder:"N"`
	rateFlags
}

// rateFlags say how fast it goes at most.
type rateFlags struct {
	IOPS           limit  `name:"iops" help:"At most this many operations a second, over all workers." placeholder:"N"`
	ReadIOPS       limit  `name:"read-iops" help:"At most this many reads a second; holds the whole mix back." placeholder:"N"`
	WriteIOPS      limit  `name:"write-iops" help:"At most this many writes a second; holds the whole mix back." placeholder:"N"`
	Bandwidth      string `help:"At most this much a second: 500MB." placeholder:"SIZE"`
	ReadBandwidth  string `help:"At most this much read a second." placeholder:"SIZE"`
	WriteBandwidth string `help:"At most this much written a second." placeholder:"SIZE"`
	Arrival        string `enum:"open,closed," default:"" help:"Under a rate: open (default) keeps to the schedule and catches up; closed lets it slip when the drive is behind." placeholder:"KIND"`
}

// limit is a number on the command line that is at least 1: 0 would mean that
// there is none, and whoever writes it may mean the opposite.
type limit uint64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *limit) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || v < 1 || v > math.MaxInt64 {
		return fmt.Errorf("%q is no whole number of 1 or more; without the flag there is no limit", text)
	}
	*n = limit(v)
	return nil
}

// region is what the job runs on.
type region struct {
	capacityBytes uint64
	lbaBytes      uint32
	simulated     bool
	// totalBytes is the drive's capacity; 0 when not known.
	totalBytes uint64
}

func (r region) jobfile() jobfile.Region {
	return jobfile.Region{CapacityBytes: r.capacityBytes, LBABytes: r.lbaBytes, Simulated: r.simulated}
}

// flagReader reads flags and keeps the first error.
type flagReader struct{ err error }

func flagValue[T any](r *flagReader, flag, text string, read func(string) (T, error)) T {
	var zero T
	if text == "" {
		return zero
	}
	v, err := read(text)
	if err != nil {
		if r.err == nil {
			r.err = usagef("%s: %v", flag, err)
		}
		return zero
	}
	return v
}

// file turns the flags into what a run file would say.
func (f jobFlags) file() (*jobfile.File, error) {
	r := &flagReader{}
	p := jobfile.Phase{
		Kind: run.PhaseMeasure, Workload: f.Workload, RW: f.RW, ReadPercent: f.ReadPercent, Order: f.Order, Depth: f.QD,
		Flags:      true,
		BlockBytes: flagValue(r, "--bs", f.BS, jobfile.Block), AlignBytes: flagValue(r, "--align", f.Align, jobfile.Block),
		Zones: flagValue(r, "--zones", f.Zones, jobfile.Zones), ZipfMilli: uint32(flagValue(r, "--zipf", f.Zipf, jobfile.Milli)),
		Rate:   f.rate(r),
		Amount: flagValue(r, "--size", f.Size, jobfile.Bytes), Written: flagValue(r, "--written", f.Written, jobfile.Bytes),
	}
	p.End = run.End{
		DriveWritesMilli: flagValue(r, "--drive-writes", f.DriveWrites, jobfile.Milli), Passes: uint64(f.Passes),
		DurationNS: int64(flagValue(r, "--duration", f.Duration, jobfile.Duration)),
	}
	if f.BSSplit != "" {
		var err error
		if p.Sizes, p.WriteSizes, err = jobfile.Split(f.BSSplit); err != nil {
			return nil, usagef("--bssplit: %v", err)
		}
	}
	switch {
	case f.RW == "" && f.Workload == "":
		return nil, usagef("what is read and written? give --rw or --workload, or a run file with --file")
	case p.Amount == 0 && p.Written == 0 && p.End == run.End{} && r.err == nil:
		return nil, usagef("when is the soak over? give one of --size, --written, --duration, --drive-writes, --passes")
	case f.QD == 0 || f.Workers == 0 || f.Workers > 4096:
		return nil, usagef("--qd and --workers are at least 1, workers 4096 at most")
	case f.TimeLapse > math.MaxUint32:
		return nil, usagef("--time-lapse %d is more than any drive has blocks for", f.TimeLapse)
	}
	file := &jobfile.File{
		Seed: f.Seed, Workers: f.Workers, Pin: f.Pin, TimeLapse: uint32(f.TimeLapse), Phases: f.phases(r, p),
		Pause:  flagValue(r, "--pause", f.Pause, jobfile.PauseRule),
		Verify: run.Verify{FlushIntervalNS: int64(flagValue(r, "--flush-every", f.FlushEvery, jobfile.Duration)), GenerationMap: f.GenMap},
	}
	file.Data = run.Data{
		HeaderOnly:       f.Data == jobfile.DataHeaders,
		CompressPermille: flagValue(r, "--compress-ratio", f.Compress, jobfile.Ratio), DedupPermille: flagValue(r, "--dedup-ratio", f.Dedup, jobfile.Ratio),
	}
	if file.Data.HeaderOnly && f.Compress+f.Dedup != "" {
		return nil, usagef("%s", jobfile.HeadersHaveNoRatio("--compress-ratio", "--dedup-ratio"))
	}
	if f.GenMap && f.Verify == "none" {
		return nil, usagef("--generation-map tells lost blocks from stale ones, but nothing is verified: add --verify")
	}
	if f.Trust == "flushed" {
		file.Verify.Trust = run.TrustFlushed
	}
	for _, text := range f.Stop {
		name, value, given := strings.Cut(text, "=")
		rule, err := jobfile.StopRule(name, value)
		if err == nil && given == (name == "critical-warning") {
			err = errors.New("write it as NAME=VALUE, critical-warning alone")
		}
		if err != nil {
			return nil, usagef("--stop %q: %v", text, err)
		}
		file.Stops = append(file.Stops, rule)
	}
	return file, r.err
}

func (f rateFlags) rate(r *flagReader) run.Rate {
	return run.Rate{
		IOPS: uint64(f.IOPS), ReadIOPS: uint64(f.ReadIOPS), WriteIOPS: uint64(f.WriteIOPS), Arrival: run.Arrival(f.Arrival),
		BytesPerSecond:      flagValue(r, "--bandwidth", f.Bandwidth, jobfile.Bytes),
		ReadBytesPerSecond:  flagValue(r, "--read-bandwidth", f.ReadBandwidth, jobfile.Bytes),
		WriteBytesPerSecond: flagValue(r, "--write-bandwidth", f.WriteBandwidth, jobfile.Bytes),
	}
}

// phases are the measured one with what comes before and after it.
func (f jobFlags) phases(r *flagReader, measure jobfile.Phase) []jobfile.Phase {
	var all []jobfile.Phase
	const stream = 128 << 10
	if f.Fill > 0 {
		all = append(all, jobfile.Phase{
			Kind: run.PhasePrecondition, RW: "write", BlockBytes: max(measure.BlockBytes, stream), Depth: f.QD, End: run.End{Passes: f.Fill},
		})
	}
	if milli := flagValue(r, "--warm-up", f.WarmUp, jobfile.Milli); milli > 0 {
		warm := measure
		warm.Kind, warm.End, warm.Amount, warm.Written = run.PhaseWarmUp, run.End{DriveWritesMilli: milli}, 0, 0
		all = append(all, warm)
	}
	switch f.Verify {
	case "reads":
		measure.Check = run.CheckReads
	case "passes":
		measure.Check = run.CheckEachPass
	}
	all = append(all, measure)
	if f.Verify == "end" {
		all = append(all, jobfile.Phase{
			Kind: run.PhaseVerify, RW: "read", BlockBytes: stream, Depth: f.QD, Check: run.CheckReads, End: run.End{Passes: 1},
		})
	}
	return all
}

// buildJob builds the job of one target; what is wrong with it is a usage error.
func buildJob(f *jobfile.File, r region) (run.Job, error) {
	job, err := f.Job(r.jobfile())
	if err != nil {
		return job, &codedError{exitUsage, err}
	}
	return job, nil
}

// checkRatios refuses data that cannot be made: the headers of small blocks alone
// are more than what some ratios leave.
func checkRatios(j *run.Job) error {
	if j.Data.CompressPermille == 0 {
		return nil
	}
	_, err := pattern.New(pattern.Config{
		Seed: j.Seed, BlockBytes: j.LBABytes, CompressPermille: j.Data.CompressPermille, RegionBlocks: j.RegionBytes() / uint64(j.LBABytes),
	})
	if err != nil {
		return usagef("a compression ratio of %.3g: %w", 1000/float64(j.Data.CompressPermille), err)
	}
	return nil
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

// longDuration reads a duration; unlike Go's own it knows days.
func longDuration(text string) (time.Duration, error) {
	d, err := jobfile.Duration(text)
	if err != nil {
		return 0, &codedError{exitUsage, fmt.Errorf("%w", err)}
	}
	return d, nil
}
