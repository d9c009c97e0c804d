package run

// State is where a run stands.
type State string

// The states of a run. All but finished and stopped can be resumed.
const (
	StateRunning     State = "running"     // also what a crash leaves behind
	StateInterrupted State = "interrupted" // by the user, or the drive was lost
	StateStopped     State = "stopped"     // by a stop rule
	StateFinished    State = "finished"
)

// Resumable says whether a run in this state can go on.
func (s State) Resumable() bool { return s == StateRunning || s == StateInterrupted }

// WorkerMark is how far one worker has come in its phase. Worker w of W has the
// positions w, w+W, w+2W, ...
type WorkerMark struct {
	// Next is the first position that was not yet submitted.
	Next uint64 `json:"next"`
	// Incomplete are positions below Next that had not completed, rising.
	Incomplete []uint64 `json:"incomplete,omitempty"`
}

// Checkpoint is everything a run needs to go on. It is committed together with
// the rows that it sums, so that nothing is ever counted twice. Positions count
// the operations of a phase from 0, all passes on end.
type Checkpoint struct {
	// Number rises by one with each checkpoint of a run, from 1.
	Number uint64 `json:"number"`
	State  State  `json:"state"`
	// StopReason names the stop rule or the interruption.
	StopReason string `json:"stop_reason,omitempty"`
	// NextSecond is the first second without a row.
	NextSecond int64 `json:"next_second"`
	WallUnixNS int64 `json:"wall_unix_ns"`
	// ClockNS is the drive's calendar, on its own clock: of use only to a
	// simulated drive, whose clock is kept in its file.
	ClockNS int64 `json:"clock_ns"`
	// Phase is the index of the phase, and Pass how many whole passes it has
	// completed.
	Phase uint32 `json:"phase"`
	Pass  uint64 `json:"pass"`
	// LowWater is the lowest position not known complete. Nothing at or above
	// ReservedHigh had been submitted when this checkpoint was committed, nor
	// was before the next one was. Between the two a block may hold the old or
	// the new data.
	LowWater     uint64 `json:"low_water"`
	ReservedHigh uint64 `json:"reserved_high"`
	// Workers is how far each has come, by its index.
	Workers []WorkerMark `json:"workers"`
	// Flushed is, by worker, the position below which everything of this phase
	// had completed when a flush began that has completed: the third mark, beside
	// what was submitted and what has completed. Empty when nothing was flushed.
	Flushed []uint64 `json:"flushed,omitempty"`
	// CrashHigh is how far sessions that crashed in this phase may have gone; 0
	// when none did.
	CrashHigh uint64 `json:"crash_high,omitempty"`
	// Doubts are stretches of positions whose writes may not be on the drive.
	Doubts []Doubt `json:"doubts,omitempty"`
	// Verified is what was compared, of the run and of the phase.
	Verified      Verified `json:"verified,omitzero"`
	PhaseVerified Verified `json:"phase_verified,omitzero"`
	// Totals of the run, and of the phase.
	Totals      Totals `json:"totals"`
	PhaseTotals Totals `json:"phase_totals"`
	// PhaseFirstSecond is the first second of the phase, PhaseActiveNS how
	// long it has been at work and RunActiveNS the run, gaps left out, on the
	// drive's calendar.
	PhaseFirstSecond int64 `json:"phase_first_second"`
	PhaseActiveNS    int64 `json:"phase_active_ns"`
	RunActiveNS      int64 `json:"run_active_ns"`
	// Open are the histograms of the span of seconds that is not complete,
	// PhaseSum those of the phase before it.
	Open     []Histogram `json:"open,omitempty"`
	PhaseSum []Histogram `json:"phase_sum,omitempty"`
	// PhaseLate are those of the phase from when operations were due, under a rate.
	PhaseLate []Histogram `json:"phase_late,omitempty"`
	// Pauses is how often a rule held the workers, PausedNS and PhasePausedNS how
	// long in all and in this phase, on the drive's calendar.
	Pauses        uint64 `json:"pauses,omitempty"`
	PausedNS      int64  `json:"paused_ns,omitempty"`
	PhasePausedNS int64  `json:"phase_paused_ns,omitempty"`
	// Outages is how often nothing could be recorded, so that nothing was done, and
	// OutageNS for how long in all; that is in none of the active times.
	Outages  uint64 `json:"outages,omitempty"`
	OutageNS int64  `json:"outage_ns,omitempty"`
	// Crashes is how often the run went on after a crash, and UncountedOpsMax
	// bounds the operations before them that are in no row ([GapRow]).
	Crashes         uint64 `json:"crashes,omitempty"`
	UncountedOpsMax uint64 `json:"uncounted_ops_max,omitempty"`
	// First is the run's first sample and Measured that at the beginning of
	// the first measured phase: what deltas are taken from.
	First    *Sample `json:"first,omitempty"`
	Measured *Sample `json:"measured,omitempty"`
	// Results are those of the phases that are over.
	Results []PhaseResult `json:"results,omitempty"`
}

// Batch is what is committed at once, all or nothing, at least once a wall
// second. Nothing in it is used by the engine after Commit returns, nor kept
// by the recorder.
type Batch struct {
	Rows       []Row
	Gaps       []GapRow
	Histograms []Histogram
	Samples    []Sample
	Events     []Event
	// Mismatches are blocks that were not as they must be: the first of each
	// kind, not all of many.
	Mismatches []Mismatch
	// Checkpoint replaces the one before. It is always there.
	Checkpoint Checkpoint
	// Verdict is set in the last batch of a session.
	Verdict *Verdict
}
