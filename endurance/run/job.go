// Package run is the plain data of a soak, shared by the engine that makes it,
// the journal that keeps it and the commands that show it: what was asked
// ([Job]), what happened ([Row], [GapRow], [Sample], [Event], [Histogram]),
// where it stands ([Checkpoint]) and how it ended ([Verdict]).
//
// It holds no behaviour beyond checking and summing, and imports only stats.
// Quantities are integers in base units, with the unit in the name.
package run

// Pattern is the order in which a phase visits the blocks of its region.
type Pattern string

// The patterns.
const (
	// PatternNone does nothing: a phase that is over at once.
	PatternNone Pattern = "none"
	// PatternSequential goes from the first block to the last, with one cursor
	// for all workers, and begins again.
	PatternSequential Pattern = "sequential"
	// PatternRandom visits every block exactly once a pass, in an order that
	// is a keyed permutation.
	PatternRandom Pattern = "random"
	// PatternReplacement draws each block anew, uniformly: some are visited
	// often, some never (1/e of them after one drive write).
	PatternReplacement Pattern = "replacement"
)

// PhaseKind is what a phase is for.
type PhaseKind string

// The kinds of phase, in the order in which they may appear.
const (
	PhasePrepare      PhaseKind = "prepare"
	PhasePrecondition PhaseKind = "precondition"
	PhaseWarmUp       PhaseKind = "warm_up"
	PhaseMeasure      PhaseKind = "measure"
	PhaseVerify       PhaseKind = "verify"
)

// End is when a phase is over: exactly one field is not 0.
type End struct {
	// Bytes counts bytes written, or bytes read where the phase only reads.
	Bytes uint64 `json:"bytes,omitempty"`
	// TransferBytes counts bytes read and bytes written together.
	TransferBytes uint64 `json:"transfer_bytes,omitempty"`
	// DriveWritesMilli counts bytes written in thousandths of the capacity.
	DriveWritesMilli uint64 `json:"drive_writes_milli,omitempty"`
	// Passes counts visits of the whole region.
	Passes uint64 `json:"passes,omitempty"`
	// DurationNS is time on the drive's calendar, in nanoseconds: under time
	// lapse K it passes K times as fast as latencies do.
	DurationNS int64 `json:"duration_ns,omitempty"`
}

// Phase is one stage of a job.
type Phase struct {
	Kind    PhaseKind `json:"kind"`
	Pattern Pattern   `json:"pattern"`
	// ReadPercent is how many of 100 operations read, 0 to 100; the others write.
	ReadPercent uint8 `json:"read_percent"`
	// BlockBytes is the size of an operation, a multiple of the LBA data size.
	// In a phase with Sizes it is the largest of them.
	BlockBytes uint32 `json:"block_bytes"`
	// Depth is how many operations each worker keeps outstanding.
	Depth uint32 `json:"depth"`
	// End is when the phase is over. Unset for PatternNone.
	End End `json:"end"`

	// Workload is the name of the preset that the following came from
	// ("jesd219", "jesd219-4kn"); empty when there was none.
	Workload string `json:"workload,omitempty"`
	// Sizes mixes operations of several sizes; empty means that all have
	// BlockBytes. They hold for reads and, unless WriteSizes is set, for writes.
	// Only for PatternReplacement: an order that visits every block exactly once
	// has blocks of one size.
	Sizes      []SizeShare `json:"sizes,omitempty"`
	WriteSizes []SizeShare `json:"write_sizes,omitempty"`
	// AlignBytes is what every offset is a multiple of, itself a multiple of the
	// LBA data size. 0 means the smallest size. Only with Sizes.
	AlignBytes uint32 `json:"align_bytes,omitempty"`
	// Zones skew the addresses: each takes a part of the region, one after the
	// other from its beginning, and a part of the operations. Empty means evenly.
	// Only for PatternReplacement.
	Zones []Zone `json:"zones,omitempty"`
	// ZipfMilli is the exponent of a Zipf distribution of addresses, in
	// thousandths; 0 means none. The popular blocks lie scattered over the
	// region. Only for PatternReplacement, and not together with Zones.
	ZipfMilli uint32 `json:"zipf_milli,omitempty"`
	// Rate limits the phase.
	Rate Rate `json:"rate,omitzero"`
	// Check says what is compared with what must be there.
	Check Check `json:"check,omitempty"`
}

// SizeShare is one size of a mix.
type SizeShare struct {
	// Bytes is the size of an operation, a multiple of the LBA data size.
	Bytes uint32 `json:"bytes"`
	// Permyriad is how many of 10,000 operations of a direction have it. Those
	// of a mix add up to 10,000.
	Permyriad uint32 `json:"permyriad"`
}

// Zone is a part of the region, and a part of the operations. Both of all zones
// of a phase add up to 1000.
type Zone struct {
	SpacePermille  uint32 `json:"space_permille"`
	AccessPermille uint32 `json:"access_permille"`
}

// Arrival is how operations arrive under a rate.
type Arrival string

// The arrivals.
const (
	// ArrivalOpen keeps to the schedule: an operation is due at its time whatever
	// became of those before, and what came late is caught up with.
	ArrivalOpen Arrival = "open"
	// ArrivalClosed lets the schedule slip when the drive is behind: time lost is
	// not made up for.
	ArrivalClosed Arrival = "closed"
)

// Rate is how fast a phase is to go at most, over all workers. 0 of anything
// means no limit. Operations are due at even distances that follow from the
// phase's start; the strictest limit decides. The limits of one direction hold
// the whole mix back, so that it stays the mix that was asked for. Time lapse
// changes nothing: K times the operations take K times the time of the calendar.
type Rate struct {
	IOPS      uint64 `json:"iops,omitempty"`
	ReadIOPS  uint64 `json:"read_iops,omitempty"`
	WriteIOPS uint64 `json:"write_iops,omitempty"`
	// Bytes a second.
	BytesPerSecond      uint64 `json:"bytes_per_second,omitempty"`
	ReadBytesPerSecond  uint64 `json:"read_bytes_per_second,omitempty"`
	WriteBytesPerSecond uint64 `json:"write_bytes_per_second,omitempty"`
	// Arrival is set when, and only when, there is a limit.
	Arrival Arrival `json:"arrival,omitempty"`
}

// Pause holds the workers while the drive is too hot. A pause is part of the
// run: it has rows, which say so, and its time counts.
type Pause struct {
	// AtCelsius pauses at this composite temperature or above, ResumeCelsius
	// goes on at this or below. Both 0 means no such rule.
	AtCelsius     int32 `json:"at_celsius"`
	ResumeCelsius int32 `json:"resume_celsius"`
}

// StopKind names a stop rule.
type StopKind string

// The stop rules. Each ends the run cleanly when its limit is reached.
const (
	// StopBytes: host bytes written by the run.
	StopBytes StopKind = "bytes"
	// StopDriveWrites: the same in thousandths of the capacity.
	StopDriveWrites StopKind = "drive_writes_milli"
	// StopDuration: time of the run on the drive's calendar, in nanoseconds.
	StopDuration StopKind = "duration_ns"
	// StopPercentageUsed: percentage used as the drive reports it (0 to 255).
	StopPercentageUsed StopKind = "percentage_used"
	// StopSpare: available spare at or below the limit, in percent.
	StopSpare StopKind = "spare_percent"
	// StopTemperature: composite temperature in degrees Celsius.
	StopTemperature StopKind = "temperature_celsius"
	// StopMediaErrors: media errors since the run began.
	StopMediaErrors StopKind = "media_errors"
	// StopCriticalWarning: any bit of the mask that was not set when the run began.
	StopCriticalWarning StopKind = "critical_warning_mask"
	// StopLatency: the longest latency of a second, in nanoseconds.
	StopLatency StopKind = "latency_ns"
)

// StopRule is one limit.
type StopRule struct {
	Kind StopKind `json:"kind"`
	// Limit is in the unit that the kind names.
	Limit int64 `json:"limit"`
}

// Job is what a soak was asked to do.
type Job struct {
	// Seed decides the order of blocks, the mix and the data.
	Seed uint64 `json:"seed"`
	// CapacityBytes is the size of the namespace.
	CapacityBytes uint64 `json:"capacity_bytes"`
	// LBABytes is the data size of a logical block.
	LBABytes uint32 `json:"lba_bytes"`
	// TimeLapse is K: each operation stands for K, and the drive's calendar
	// runs K times as fast as latencies. 1 on every real drive.
	TimeLapse uint32 `json:"time_lapse"`
	// Workers is how many queues work in parallel, each on a thread of its own.
	Workers uint32 `json:"workers"`
	// Pin ties each worker's thread to one processor.
	Pin bool `json:"pin"`
	// Phases in order.
	Phases []Phase `json:"phases"`
	// Stops are the stop rules, at most one of each kind.
	Stops []StopRule `json:"stops,omitempty"`
	// Pause is the rule that lets a hot drive cool down.
	Pause Pause `json:"pause,omitzero"`
	// Verify is how what was written is told and checked.
	Verify Verify `json:"verify,omitzero"`
	// Data is how compressible what is written is.
	Data Data `json:"data,omitzero"`
	// SampleIntervalNS is how often health is read, on the drive's calendar;
	// 0 means 10 s.
	SampleIntervalNS int64 `json:"sample_interval_ns"`
	// StallNS is how long nothing may complete, in the time of latencies,
	// before the run is called stalled; 0 means 30 s.
	StallNS int64 `json:"stall_ns"`
	// AlphaMilli is raw over exported capacity in thousandths (T/U, 1206 for
	// 20.6 %), from which the settling time of the workload follows; 0 when
	// not known, and the largest settling time of common drives is then used.
	AlphaMilli uint32 `json:"alpha_milli"`
}

// RegionBytes is the part of the namespace that operations address: all of it,
// or under time lapse K the scaled space of one K-th, whole logical blocks.
func (j *Job) RegionBytes() uint64 {
	k := uint64(max(j.TimeLapse, 1))
	lba := uint64(max(j.LBABytes, 1))
	return j.CapacityBytes / k / lba * lba
}

// Header is what a run's numbers depend on, recorded once at its start.
type Header struct {
	// Name is what the user calls the run.
	Name string `json:"name"`
	// Group is the same for all runs that were started together; empty for a run
	// of its own.
	Group string `json:"group,omitempty"`
	// StartWallUnixNS is when the run began, calendar time of the drive's
	// world, in nanoseconds since 1970 UTC.
	StartWallUnixNS int64  `json:"start_wall_unix_ns"`
	Address         string `json:"address"`
	Simulated       bool   `json:"simulated"`
	SubsystemNQN    string `json:"subsystem_nqn"`
	Serial          string `json:"serial"`
	Model           string `json:"model"`
	Firmware        string `json:"firmware"`
	CNTLID          uint16 `json:"cntlid"`
	NSID            uint32 `json:"nsid"`
	// NGUID and EUI64 in hexadecimal; empty when the drive reports none.
	NGUID string `json:"nguid,omitempty"`
	EUI64 string `json:"eui64,omitempty"`
	// LBADataBytes and LBAMetadataBytes are the format in use.
	LBADataBytes     uint32 `json:"lba_data_bytes"`
	LBAMetadataBytes uint32 `json:"lba_metadata_bytes"`
	// TotalCapacityBytes is TNVMCAP; 0 when not reported.
	TotalCapacityBytes Uint128 `json:"total_capacity_bytes"`
	// OverProvisioningPermille is (total - user) / user; -1 when not known.
	OverProvisioningPermille int64 `json:"over_provisioning_permille"`
	// PowerState is the number of the power state; -1 when not known.
	PowerState int64 `json:"power_state"`
	// APST says whether autonomous power state transitions are on; empty when
	// not known.
	APST string `json:"apst,omitempty"`
	// Link is the PCIe link as the user reads it ("32 GT/s x4"); empty when none.
	Link string `json:"link,omitempty"`
	// Engine is how data is moved, and why that way where another was not
	// possible; empty for a simulated drive.
	Engine string `json:"engine,omitempty"`
	// EngineAsked is how the user asked for data to be moved by name; empty where
	// that was left to be chosen. Buffered and Polled are what was asked beside it:
	// a run that goes on does so in the same way.
	EngineAsked string `json:"engine_asked,omitempty"`
	Buffered    bool   `json:"buffered,omitempty"`
	Polled      bool   `json:"polled,omitempty"`
	Host        string `json:"host,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	// Version of nvop.
	Version string `json:"version,omitempty"`
	Job     Job    `json:"job"`
}

// MaxDepth is the largest depth of any phase: what a worker's queue must hold.
func (j *Job) MaxDepth() int {
	depth := uint32(1)
	for i := range j.Phases {
		depth = max(depth, j.Phases[i].Depth)
	}
	return int(depth)
}
