package run

// Exit codes of a run.
const (
	ExitDone        = 0
	ExitLimits      = 3 // a limit was exceeded or an operation failed
	ExitInterrupted = 7 // can be resumed
)

// WAF is a write amplification, in millionths, with what it rests on.
type WAF struct {
	// Available is false when it cannot be told; Reason says why.
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
	// Micro is media bytes per host byte, times 10^6; ErrorMicro bounds what
	// the resolution and the delay of the counters can have added or taken.
	Micro      int64 `json:"micro"`
	ErrorMicro int64 `json:"error_micro"`
	// Source names both counters.
	Source string `json:"source,omitempty"`
	// HostBytes and MediaBytes are what it was computed from.
	HostBytes  Uint128 `json:"host_bytes"`
	MediaBytes Uint128 `json:"media_bytes"`
	// FirstSecond and LastSecond are the samples it was computed from.
	FirstSecond int64 `json:"first_second"`
	LastSecond  int64 `json:"last_second"`
	// Settled says whether the workload had settled; Rule says by which rule.
	Settled bool   `json:"settled"`
	Rule    string `json:"rule,omitempty"`
}

// Value is the WAF as a number; false when it is not available.
func (w WAF) Value() (float64, bool) { return float64(w.Micro) / 1e6, w.Available }

// Percentiles of latency in nanoseconds; NotAvailable where they cannot be told.
type Percentiles struct {
	Operations uint64 `json:"operations"`
	MeanNS     int64  `json:"mean_ns"`
	P50NS      int64  `json:"p50_ns"`
	P90NS      int64  `json:"p90_ns"`
	P99NS      int64  `json:"p99_ns"`
	P999NS     int64  `json:"p999_ns"`
	P9999NS    int64  `json:"p9999_ns"`
	P99999NS   int64  `json:"p99999_ns"`
	MinNS      int64  `json:"min_ns"`
	MaxNS      int64  `json:"max_ns"`
	// Overflow is how many latencies were out of the histogram's range.
	Overflow uint64 `json:"overflow"`
}

// PhaseResult is what one phase came to.
type PhaseResult struct {
	Phase uint32    `json:"phase"`
	Kind  PhaseKind `json:"kind"`
	// FirstSecond is the first second of the phase.
	FirstSecond int64       `json:"first_second"`
	Totals      Totals      `json:"totals"`
	ActiveNS    int64       `json:"active_ns"`
	Read        Percentiles `json:"read"`
	Write       Percentiles `json:"write"`
	// ReadFromDue and WriteFromDue are latencies from the moment an operation was
	// due under a rate to its completion; nil where there is no rate. Read and
	// Write are from submission.
	ReadFromDue  *Percentiles `json:"read_from_due,omitempty"`
	WriteFromDue *Percentiles `json:"write_from_due,omitempty"`
	// ReadIOPS and WriteIOPS are operations per second of the time at work.
	ReadIOPS  uint64 `json:"read_iops"`
	WriteIOPS uint64 `json:"write_iops"`
	// LittlePermille is IOPS times mean latency over operations in flight, in
	// thousandths: 1000 +-30 is what Little's law allows a sound measurement.
	// 0 when nothing was measured.
	LittlePermille int64 `json:"little_permille"`
	// Next is, by worker, the first position that was not submitted, where they
	// stopped short of the phase's last one: by time, or a rule.
	Next []uint64 `json:"next,omitempty"`
	// Verified is what the phase compared.
	Verified Verified `json:"verified,omitzero"`
}

// Deltas are what changed on the drive during the run.
type Deltas struct {
	Available          bool    `json:"available"`
	MediaErrors        Uint128 `json:"media_errors"`
	UnsafeShutdowns    Uint128 `json:"unsafe_shutdowns"`
	PowerCycles        Uint128 `json:"power_cycles"`
	ErrorLogEntries    Uint128 `json:"error_log_entries"`
	ThermalTransitions uint64  `json:"thermal_transitions"`
	ThermalSeconds     uint64  `json:"thermal_seconds"`
	WarningTempMinutes uint32  `json:"warning_temp_minutes"`
	// CriticalWarnings are the bits set at the end that were not at the start.
	CriticalWarnings uint8 `json:"critical_warnings"`
	PercentageUsed   int64 `json:"percentage_used"`
}

// LimitResult says whether one stop rule's limit was reached.
type LimitResult struct {
	Rule StopRule `json:"rule"`
	// Reached ends the run; Value is the last seen, in the rule's unit.
	Reached bool  `json:"reached"`
	Value   int64 `json:"value"`
	// Available is false when the drive never reported the quantity.
	Available bool `json:"available"`
}

// Verdict is how a run ended.
type Verdict struct {
	State State `json:"state"`
	// Reason in words: "finished", the name of the stop rule, "interrupted".
	Reason string `json:"reason"`
	// ExitCode is one of the Exit constants.
	ExitCode int           `json:"exit_code"`
	Totals   Totals        `json:"totals"`
	Phases   []PhaseResult `json:"phases"`
	// WAF of the settled part of the measured phases; Lifetime of the whole
	// life of the drive as its counters have it.
	WAF      WAF    `json:"waf"`
	Lifetime WAF    `json:"lifetime"`
	Deltas   Deltas `json:"deltas"`
	// HealthPercent is 100 - percentage used at the end; SparePercent as
	// reported. HealthAvailable is false when nothing was read.
	HealthAvailable bool          `json:"health_available"`
	HealthPercent   int64         `json:"health_percent"`
	SparePercent    int64         `json:"spare_percent"`
	Limits          []LimitResult `json:"limits,omitempty"`
	// Verified is what the run compared.
	Verified Verified `json:"verified,omitzero"`
	// Notes are for people: what could not be told, what looks odd.
	Notes []string `json:"notes,omitempty"`
}

// Measured returns the result of the last measured phase; false when there is none.
func (v *Verdict) Measured() (PhaseResult, bool) {
	for i := len(v.Phases) - 1; i >= 0; i-- {
		if v.Phases[i].Kind == PhaseMeasure {
			return v.Phases[i], true
		}
	}
	return PhaseResult{}, false
}

// Progress is what a watcher of a run sees, about once a wall second.
type Progress struct {
	State State     `json:"state"`
	Phase uint32    `json:"phase"`
	Kind  PhaseKind `json:"kind"`
	// Second is that of the last row. Row is that row.
	Second int64  `json:"second"`
	Row    Row    `json:"row"`
	Totals Totals `json:"totals"`
	// DonePermille is how much of the phase is done, 0 to 1000.
	DonePermille int64 `json:"done_permille"`
	// Trouble says why nothing can be recorded at the moment, so that nothing is
	// done; empty when all is well.
	Trouble string `json:"trouble,omitempty"`
	// LeftNS estimates the wall time until the phase ends, in nanoseconds;
	// NotAvailable when it cannot be told.
	LeftNS int64 `json:"left_ns"`
	// ReadIOPS and WriteIOPS are the means since the last report, and
	// WriteBytesPerSecond that of bytes, all on the drive's calendar.
	ReadIOPS            uint64 `json:"read_iops"`
	WriteIOPS           uint64 `json:"write_iops"`
	ReadBytesPerSecond  uint64 `json:"read_bytes_per_second"`
	WriteBytesPerSecond uint64 `json:"write_bytes_per_second"`
	// WAF is that of the phase so far.
	WAF WAF `json:"waf"`
	// Sample is the latest; nil when there is none.
	Sample *Sample `json:"sample,omitempty"`
}
