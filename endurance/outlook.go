package endurance

import (
	"math"

	"nvop/endurance/run"
)

// Speed is how fast a drive is expected to work a phase; 0 of either means not
// known.
type Speed struct {
	// OpsPerSecond is reads and writes together.
	OpsPerSecond float64
	// Basis says where that comes from.
	Basis string
}

// PhaseOutlook is what a phase comes to before it is begun.
type PhaseOutlook struct {
	Phase int
	// Known is false when the amounts cannot be told: it ends by time, and the
	// speed is not known. DurationKnown is false when the time cannot.
	Known, DurationKnown bool
	// Operations, ReadBytes and WriteBytes under time lapse count K-fold.
	Operations, ReadBytes, WriteBytes float64
	// Seconds is how long it takes, on the drive's calendar.
	Seconds float64
	// Basis says what the unknown of the two was worked out from; empty where
	// both follow from the job.
	Basis string
}

// Outlook works out what the phases of a valid job come to: bytes, operations and
// time, as far as they follow from the job, its rates and the speed that is
// expected of each phase.
func Outlook(job *run.Job, speed func(p *run.Phase) Speed) ([]PhaseOutlook, error) {
	var all []PhaseOutlook
	for i := range job.Phases {
		s, err := newStage(job, i)
		if err != nil {
			return nil, err
		}
		all = append(all, s.outlook(job, speed))
	}
	return all, nil
}

func (s *stage) outlook(job *run.Job, speed func(p *run.Phase) Speed) PhaseOutlook {
	o := PhaseOutlook{Phase: s.index, Known: true, DurationKnown: true}
	if s.Pattern == run.PatternNone {
		return o
	}
	expected := Speed{}
	if speed != nil {
		expected = speed(&s.Phase)
	}
	rate := expected.OpsPerSecond
	if s.pace.period != 0 {
		limit := second1 * (1 << paceBits) / float64(s.pace.period)
		if rate == 0 || limit < rate {
			rate, expected.Basis = limit, "the rate that was asked for"
		}
	}
	if s.limit == math.MaxUint64 {
		o.Seconds = float64(s.End.DurationNS) / second1
		o.Operations, o.Known, o.Basis = rate*o.Seconds, rate != 0, expected.Basis
	} else {
		o.Operations = float64(s.limit) * float64(job.TimeLapse)
		if o.DurationKnown = rate != 0; o.DurationKnown {
			o.Seconds, o.Basis = o.Operations/rate, expected.Basis
		}
	}
	reads := float64(s.ReadPercent) / 100
	if s.Check == run.CheckEachPass {
		reads = 0.5 // every pass that writes is read back
	}
	o.ReadBytes = o.Operations * reads * s.MeanBytes(false)
	o.WriteBytes = o.Operations * (1 - reads) * s.MeanBytes(true)
	if whole := float64(s.blocks) * float64(s.BlockBytes); s.blocks != 0 {
		// The last block of a pass may be a short one.
		part := float64(s.config.RegionBytes) / whole
		o.ReadBytes, o.WriteBytes = o.ReadBytes*part, o.WriteBytes*part
	}
	return o
}

// MemoryBytes is about how much memory a run of the job takes: buffers and
// statistics of its workers, and what bounded histories add. It does not grow with
// the drive or with time.
func MemoryBytes(job *run.Job, simulated bool) uint64 {
	const (
		base      = 32 << 20 // the program, the journal's cache, samples and batches
		histogram = 37 << 10
		slotBytes = 256
	)
	block := uint64(0)
	for i := range job.Phases {
		block = max(block, uint64(job.Phases[i].BlockBytes))
	}
	depth := uint64(job.MaxDepth())
	each := uint64(talliesPerWorker)*2*directions*histogram + depth*slotBytes
	if !simulated {
		each += depth * ((block + 4095) / 4096 * 4096)
	}
	return base + uint64(job.Workers)*each + job.GenerationMapBytes()
}

// VerdictSoFar is what can be said of a run that has no verdict, because it is at
// work or was killed, from what its journal has: WAF of the present workload,
// health, deltas, and the phases that are over. False when nothing was committed.
func VerdictSoFar(job *run.Job, cp *run.Checkpoint, samples []run.Sample) (run.Verdict, bool) {
	if cp == nil || int(cp.Phase) >= len(job.Phases) {
		return run.Verdict{}, false
	}
	at := *cp
	cfg := Config{Job: *job, Resume: &at, Samples: samples}
	l := newLedger(&cfg, &track{lanes: make([]lane, job.Workers)})
	stage, err := newStage(job, int(cp.Phase))
	if err != nil || l.restore() != nil {
		return run.Verdict{}, false
	}
	l.stage = stage
	return *l.verdict(cp.State, cp.StopReason), true
}
