package run

// EventKind names what happened.
type EventKind string

// The kinds of event.
const (
	EventStarted      EventKind = "started"
	EventResumed      EventKind = "resumed"
	EventPhaseStarted EventKind = "phase_started"
	EventPhaseEnded   EventKind = "phase_ended"
	EventStopped      EventKind = "stopped"     // a stop rule, named in Text
	EventInterrupted  EventKind = "interrupted" // by the user; resumable
	EventFinished     EventKind = "finished"
	EventIOError      EventKind = "io_error"
	EventDeviceGone   EventKind = "device_gone"
	EventStalled      EventKind = "stalled"
	EventMoving       EventKind = "moving"   // completions after a stall
	EventHung         EventKind = "hung"     // operations have been in flight for a second
	EventBack         EventKind = "back"     // what hung has completed
	EventMismatch     EventKind = "mismatch" // the first block of a kind that is not as it must be
	EventSampleFailed EventKind = "sample_failed"
	EventEpoch        EventKind = "epoch"           // counters cannot be compared across it
	EventPaused       EventKind = "paused"          // by a rule, until the drive has cooled down
	EventContinued    EventKind = "continued"       // after a pause
	EventUnsteady     EventKind = "steady_left"     // the rate left its steady state; Text hints at the cause
	EventSteady       EventKind = "steady"          // the rate is steady, or steady again
	EventClock        EventKind = "clock_jumped"    // the wall clock was set, or the machine slept
	EventHeld         EventKind = "process_held"    // the process did not run for a while
	EventMap          EventKind = "generation_map"  // it cannot be kept, or what it knew is lost
	EventSetting      EventKind = "setting_changed" // power state, APST, LBA format: numbers before and after do not compare
	EventLink         EventKind = "link"            // the PCI Express path: speed, width, errors, gone, back
)

// Event is something that happened once.
type Event struct {
	Second     int64     `json:"second"`
	WallUnixNS int64     `json:"wall_unix_ns"`
	Kind       EventKind `json:"kind"`
	// Text is for people.
	Text string `json:"text"`
	// Of an io_error: Op is "read" or "write", LBA the first logical block,
	// Blocks how many, Status the drive's status field without the phase bit
	// (0 when the call itself failed; then Text says how), and Count how many
	// like it this stands for, since not each of a storm is listed.
	Op     string `json:"op,omitempty"`
	LBA    uint64 `json:"lba,omitempty"`
	Blocks uint32 `json:"blocks,omitempty"`
	Status uint16 `json:"status,omitempty"`
	Count  uint64 `json:"count,omitempty"`
}
