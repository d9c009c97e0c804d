package run

// NotAvailable stands for a latency that cannot be told: nothing completed, or
// too little for the percentile. It is never 0.
const NotAvailable = -1

// RowFlags marks what a reader of a row must know.
type RowFlags uint32

// The flags of a row.
const (
	// FlagPolled: health was read during this second, which can dent the rate.
	FlagPolled RowFlags = 1 << iota
	// FlagStalled: nothing has completed for longer than the job allows.
	FlagStalled
	// FlagDrained: the phase ended in this second, and what was outstanding
	// then is counted here.
	FlagDrained
	// FlagLate: completions of earlier seconds are counted here, because a
	// worker was stuck when those seconds were written.
	FlagLate
	// FlagPaused: the workers were held in this second, by a rule so that the drive
	// could cool down, or because nothing could be recorded.
	FlagPaused
)

// Latency sums up the latencies of one direction over one second, submission
// to completion, in nanoseconds. Under time lapse they are not scaled, and
// Operations counts what was measured, not what it stands for.
type Latency struct {
	// Operations is how many latencies were measured.
	Operations uint64 `json:"operations"`
	// The following are NotAvailable when they cannot be told: percentiles
	// need at least 10/(1-p) operations.
	MeanNS int64 `json:"mean_ns"`
	P99NS  int64 `json:"p99_ns"`
	P999NS int64 `json:"p999_ns"`
	MaxNS  int64 `json:"max_ns"`
}

// Counts counts operations and bytes. Under time lapse K an operation counts K
// times, as it does in the drive's own counters.
type Counts struct {
	ReadOps    uint64 `json:"read_ops"`
	WriteOps   uint64 `json:"write_ops"`
	ReadBytes  uint64 `json:"read_bytes"`
	WriteBytes uint64 `json:"write_bytes"`
	// ReadErrors and WriteErrors are operations that did not succeed; they are
	// in none of the four above. Not scaled.
	ReadErrors  uint64 `json:"read_errors"`
	WriteErrors uint64 `json:"write_errors"`
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.ReadOps += o.ReadOps
	c.WriteOps += o.WriteOps
	c.ReadBytes += o.ReadBytes
	c.WriteBytes += o.WriteBytes
	c.ReadErrors += o.ReadErrors
	c.WriteErrors += o.WriteErrors
}

// Ops is reads and writes together.
func (c Counts) Ops() uint64 { return c.ReadOps + c.WriteOps }

// Errors is read and write errors together.
func (c Counts) Errors() uint64 { return c.ReadErrors + c.WriteErrors }

// Totals sums the rows of a run: always exactly, and equal to what the engine
// transferred.
type Totals struct {
	Counts
	// Rows is how many rows there are.
	Rows uint64 `json:"rows"`
}

// Row is one second of the drive's calendar. There is exactly one for every
// second of a run that is not in a [GapRow].
type Row struct {
	// Second counts seconds since the run began, from 0, gaps included.
	Second int64 `json:"second"`
	// WallUnixNS is the calendar time of the second's beginning.
	WallUnixNS int64 `json:"wall_unix_ns"`
	// MonoNS is the monotonic time of the second's end since this session
	// (start or resume) began, on the drive's calendar.
	MonoNS int64 `json:"mono_ns"`
	// Phase is the index of the phase in the job.
	Phase uint32 `json:"phase"`
	// ActiveNS is how much of the second the phase was at work, on the drive's
	// calendar: 10^9 except in the first and last second of a phase, and less, or
	// 0, while nothing could be recorded. A drain after the phase's end can make
	// it more.
	ActiveNS int64 `json:"active_ns"`
	Counts
	Read  Latency `json:"read"`
	Write Latency `json:"write"`
	// InFlight is how many operations were outstanding at the end.
	InFlight uint32 `json:"in_flight"`
	// TemperatureCelsius is from the latest sample; false when there is none.
	TemperatureCelsius   int32    `json:"temperature_celsius"`
	TemperatureAvailable bool     `json:"temperature_available"`
	Flags                RowFlags `json:"flags"`
}

// GapRow stands for seconds for which there are no rows.
type GapRow struct {
	// Second is the first second without a row, and Seconds how many there
	// are; 0 when less than a second was lost, or when the run's clock stood
	// still with the machine, which the reason says.
	Second  int64 `json:"second"`
	Seconds int64 `json:"seconds"`
	// WallUnixNS is when the run went on.
	WallUnixNS int64 `json:"wall_unix_ns"`
	// Reason: "resumed after a crash", "resumed after an interruption", "the
	// process did not run", "the machine slept for 3600 s".
	Reason string `json:"reason"`
	// UncountedOpsMax bounds the operations that were carried out before the
	// gap and are in no row, those of the reserved window. Not scaled.
	UncountedOpsMax uint64 `json:"uncounted_ops_max"`
}

// Histogram is the latencies of one direction over a span of seconds of one
// phase. The spans of a phase and direction do not overlap, and together hold
// every latency of the phase's rows.
type Histogram struct {
	Phase   uint32 `json:"phase"`
	Write   bool   `json:"write"`
	Second  int64  `json:"second"`
	Seconds int64  `json:"seconds"`
	// Encoded is decoded by stats.DecodeHistogram.
	Encoded []byte `json:"encoded"`
}
