package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"nvop/endurance/run"
	"nvop/endurance/stats"
)

// synth makes the batches of a run that never happened, as the engine would:
// rows that add up, histograms by minute, samples, marks that rise. The same
// seed gives the same batches.
type synth struct {
	rng *rand.Rand
	cp  run.Checkpoint
	// lean leaves most of the latency histogram out, to be fast.
	lean bool
	// pool are seconds of latencies to draw from, which is as wide as making
	// each anew and faster; nil makes each anew.
	pool []*stats.Histogram
	// sampleEvery is the interval of samples in seconds; 0 means none.
	sampleEvery int64
	// mediaEvery is how often the media counter moves, in seconds.
	mediaEvery int64
	media      run.Uint128
	host       run.Uint128
	open       [2]*stats.Histogram
	openFrom   int64
	// verifies makes it compare, and find mismatches, which it remembers.
	verifies   bool
	mismatches []run.Mismatch
}

func newSynth(seed uint64) *synth {
	return &synth{
		rng: rand.New(rand.NewPCG(seed, 7)), sampleEvery: 10, mediaEvery: 1,
		cp:   run.Checkpoint{State: run.StateRunning},
		open: [2]*stats.Histogram{stats.NewHistogram(), stats.NewHistogram()},
	}
}

func synthHeader(seed uint64) run.Header {
	return run.Header{
		Name: fmt.Sprintf("soak-%d", seed), StartWallUnixNS: 1_700_000_000_000_000_000, Address: "/dev/nvme0n1",
		SubsystemNQN: "nqn.2014-08.org.example:a", Serial: "SN0001", Model: "Example 7.68TB", Firmware: "1.0",
		NSID: 1, LBADataBytes: 4096, TotalCapacityBytes: run.Uint128{Hi: 1, Lo: 7_681_501_126_656}, OverProvisioningPermille: -1,
		PowerState: 0, Host: "host", Kernel: "6.12", Version: "0",
		Job: run.Job{Seed: seed | 1<<63, CapacityBytes: 7_681_501_126_656, LBABytes: 4096, TimeLapse: 1, Workers: 1,
			Phases: []run.Phase{
				{Kind: run.PhaseWarmUp, Pattern: run.PatternRandom, BlockBytes: 4096, Depth: 32, End: run.End{DurationNS: 1e15}},
				{Kind: run.PhaseMeasure, Pattern: run.PatternRandom, ReadPercent: 30, BlockBytes: 4096, Depth: 32, End: run.End{Bytes: 1 << 60}},
			}},
	}
}

// latencies spread over two decades and more, as a busy drive's do.
func (s *synth) latencies(n int) *stats.Histogram {
	h := stats.NewHistogram()
	for range n {
		h.Record(int64(20_000 * (1 + s.rng.ExpFloat64()*s.rng.ExpFloat64()*20)))
	}
	return h
}

// fill makes the latencies of each second those of 20,000 operations.
func (s *synth) fill() {
	for range 64 {
		s.pool = append(s.pool, s.latencies(20_000))
	}
}

func (s *synth) latency(h *stats.Histogram, n int) run.Latency {
	var second *stats.Histogram
	if s.pool != nil {
		second = s.pool[s.rng.IntN(len(s.pool))]
	} else {
		second = s.latencies(n)
	}
	h.Merge(second)
	l := run.Latency{Operations: second.Count(), MeanNS: -1, P99NS: -1, P999NS: -1, MaxNS: -1}
	for _, v := range []struct {
		to *int64
		of func() (int64, bool)
	}{
		{&l.MeanNS, second.Mean}, {&l.MaxNS, second.Max},
		{&l.P99NS, func() (int64, bool) { return second.Percentile(990_000) }},
		{&l.P999NS, func() (int64, bool) { return second.Percentile(999_000) }},
	} {
		if x, ok := v.of(); ok {
			*v.to = x
		}
	}
	return l
}

// batch makes the next n seconds.
func (s *synth) batch(n int64) *run.Batch {
	b := &run.Batch{}
	for range n {
		sec := s.cp.NextSecond
		perSecond := 1200
		if s.lean {
			perSecond = 3
		}
		row := run.Row{
			Second: sec, WallUnixNS: 1_700_000_000_000_000_000 + sec*1e9, MonoNS: (sec + 1) * 1e9, Phase: s.cp.Phase,
			ActiveNS: 1e9, InFlight: uint32(s.rng.IntN(33)), Flags: run.RowFlags(1 << s.rng.IntN(4)),
		}
		if sec > 5 {
			row.TemperatureCelsius, row.TemperatureAvailable = 40+int32(s.rng.IntN(9)), true
		}
		row.Read = s.latency(s.open[0], s.rng.IntN(perSecond/3+1))
		row.Write = s.latency(s.open[1], perSecond)
		row.ReadOps, row.WriteOps = row.Read.Operations*400, row.Write.Operations*400
		row.ReadBytes, row.WriteBytes = row.ReadOps*4096, row.WriteOps*4096
		row.WriteErrors = uint64(s.rng.IntN(2))
		b.Rows = append(b.Rows, row)
		s.cp.Totals.Add(row.Counts)
		s.cp.Totals.Rows++
		s.host = s.host.Add(run.U128(row.WriteBytes))
		if s.sampleEvery > 0 && sec%s.sampleEvery == 0 {
			b.Samples = append(b.Samples, s.sample(sec))
		}
		s.cp.NextSecond++
		if s.cp.NextSecond%60 == 0 {
			b.Histograms = append(b.Histograms, s.flush()...)
		}
	}
	s.finish(b)
	return b
}

func (s *synth) finish(b *run.Batch) {
	s.cp.Number++
	if s.verifies {
		s.verify(b)
	}
	s.cp.WallUnixNS = 1_700_000_000_000_000_000 + s.cp.NextSecond*1e9
	s.cp.LowWater, s.cp.ReservedHigh = s.cp.Totals.WriteOps, s.cp.Totals.WriteOps+1024
	s.cp.Workers = []run.WorkerMark{{Next: s.cp.LowWater + 7, Incomplete: []uint64{s.cp.LowWater, s.cp.LowWater + 3}}}
	s.cp.Open = nil
	for w, h := range s.open {
		if h.Count() > 0 {
			s.cp.Open = append(s.cp.Open, s.encode(h, w == 1))
		}
	}
	b.Checkpoint = s.cp
}

// verify finds something wrong now and then.
func (s *synth) verify(b *run.Batch) {
	v := run.Verified{Blocks: 1000, Right: 990, Unknown: 3, Undecided: 2}
	for i, k := range []run.MismatchKind{run.MismatchLost, run.MismatchMisdirected, run.MismatchUnreadable, run.MismatchTorn, run.MismatchRotten} {
		*v.Of(k)++
		m := run.Mismatch{Second: s.cp.NextSecond, WallUnixNS: 1_700_000_000_000_000_000 + s.cp.NextSecond*1e9, Kind: k, LBA: s.rng.Uint64N(1 << 40), Text: "it was like that"}
		if k == run.MismatchUnreadable {
			m.Status = 0x4281
		} else {
			m.ExpectedGeneration, m.FoundHeader, m.FoundGeneration, m.FoundRun = 1<<48+7, i%2 == 0, 1<<48+6, 1<<63+5
			m.OffsetBytes, m.Bytes, m.Expected, m.Found = 100, 3, []byte{1, 2, 3}, []byte{3, 2, 1}
			if !m.FoundHeader {
				m.FoundGeneration, m.FoundRun = 0, 0
			}
		}
		if s.cp.Number < 4 {
			b.Mismatches = append(b.Mismatches, m)
			v.Kept++
		}
	}
	s.mismatches = append(s.mismatches, b.Mismatches...)
	s.cp.Verified.Add(&v)
	s.cp.Flushed = []uint64{s.cp.Totals.WriteOps}
}

func (s *synth) encode(h *stats.Histogram, write bool) run.Histogram {
	enc, err := h.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	return run.Histogram{Phase: s.cp.Phase, Write: write, Second: s.openFrom, Seconds: s.cp.NextSecond - s.openFrom, Encoded: enc}
}

func (s *synth) flush() []run.Histogram {
	var hs []run.Histogram
	for w, h := range s.open {
		if h.Count() > 0 {
			hs = append(hs, s.encode(h, w == 1))
		}
		h.Reset()
	}
	s.openFrom = s.cp.NextSecond
	return hs
}

// nextPhase ends the phase at a second's end.
func (s *synth) nextPhase(b *run.Batch) {
	b.Histograms = append(b.Histograms, s.flush()...)
	s.cp.Results = append(s.cp.Results, run.PhaseResult{Phase: s.cp.Phase, Kind: run.PhaseWarmUp,
		Read: run.Percentiles{P99NS: run.NotAvailable}, Write: run.Percentiles{P99NS: 99_000}, WriteIOPS: 400_000})
	s.cp.Phase++
	b.Events = append(b.Events, run.Event{Second: s.cp.NextSecond, WallUnixNS: 1, Kind: run.EventPhaseStarted, Text: "phase 2"})
	s.cp.Open = nil
	b.Checkpoint = s.cp
}

func (s *synth) sample(sec int64) run.Sample {
	if s.mediaEvery > 0 && sec%s.mediaEvery == 0 {
		s.media = s.host.Add(s.host)
	}
	units := run.Uint128{Hi: s.host.Hi, Lo: s.host.Lo / 512_000}
	return run.Sample{
		Second: sec, WallUnixNS: 1_700_000_000_000_000_000 + sec*1e9, DurationNS: 81_000, EngineWriteBytes: s.cp.Totals.WriteBytes,
		Host: []run.HostCounter{
			{Source: "SMART: data units written", UnitBytes: 512_000, Before: units, After: units.Add(run.U128(1))},
			{Source: "endurance group: data units written", UnitBytes: 1e9, Before: units, After: units},
		},
		Media: []run.MediaCounter{
			{Source: "endurance group: media units written", Units: run.Uint128{Hi: 5, Lo: s.media.Lo / 1e9}, UnitBytes: 1e9},
			{Source: "OCP C0h: physical media units written", Units: s.media, UnitBytes: 1},
		},
		HostReadUnits: run.U128(uint64(sec)), PercentageUsed: 1, SparePercent: 100, SpareThresholdPercent: 10,
		TemperatureKelvin: 315, PowerOnHours: run.U128(uint64(sec / 3600)), Firmware: "1.0", Identity: "nqn SN0001",
	}
}

// commitAll records batches of n seconds until the run has lasted for seconds.
func (s *synth) commitAll(tb testing.TB, r *Recorder, n, seconds int64) {
	tb.Helper()
	for s.cp.NextSecond < seconds {
		if err := r.Commit(context.Background(), s.batch(n)); err != nil {
			tb.Fatal(err)
		}
	}
}

func beginTest(tb testing.TB, j *Journal, seed uint64) *Recorder {
	tb.Helper()
	r, err := j.BeginRun(context.Background(), synthHeader(seed))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
