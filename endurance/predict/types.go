package predict

// Schema names the JSON document that [Answer] is.
const Schema = "nvop.predict/1"

// Interval holds an estimate and the range of the true value.
type Interval struct {
	Low  float64 `json:"low"`
	Mid  float64 `json:"mid"`
	High float64 `json:"high"`
	// DominatedBy is the ID of the assumption that contributes most to the
	// width; empty where nothing is assumed.
	DominatedBy string `json:"dominated_by,omitempty"`
}

// Drive is what is known of a drive. The zero value of every field but one of
// RawBytes and UsableBytes means "not known".
type Drive struct {
	// RawBytes is the nominal flash: the binary capacity of the dies, 8 TiB for
	// a drive sold as 7.68 TB. Usable flash is taken as 1.03 to 1.075 times it.
	RawBytes uint64
	// RawInferred says that RawBytes was guessed from the capacity.
	RawInferred bool
	// UsableBytes is T where it is known itself; it replaces the guess from RawBytes.
	UsableBytes uint64
	// CapacityBytes is the total NVM capacity (TNVMCAP).
	CapacityBytes uint64
	// IndirectionBytes is the mapping unit; 0 means 4096.
	IndirectionBytes uint64
	// PagesPerSuperblock makes the law that of finite superblocks; 0 means many.
	PagesPerSuperblock int
	// FloorWAF is the write amplification of sequential writes, 1 to 1.1.
	FloorWAF float64
	// Cycles is the rated program/erase cycles; CyclesPublished says that the
	// maker states them.
	Cycles          float64
	CyclesPublished bool
	// RandomReadIOPS is 4 KiB random reads, which over-provisioning does not change.
	RandomReadIOPS float64
	// MixFactor scales the harmonic law of mixed reads and writes.
	MixFactor float64
	// SequentialWriteBytesPerSecond is the rate of 128 KiB streams.
	SequentialWriteBytesPerSecond float64
	// BufferBytes is a write buffer in which a mapping unit that is written again
	// is programmed once; 0 is none, or not known.
	BufferBytes uint64
	// CacheBytes is an SLC cache, which takes bursts at CacheWriteBytesPerSecond
	// until it is full; 0 is none, or not known.
	CacheBytes               uint64
	CacheWriteBytesPerSecond float64
	// Separates says that the drive keeps data that is rewritten often apart from
	// the rest; false is not known. Workload.Separation overrules it.
	Separates bool
	// Published are figures of a data sheet or a review: used as points are, but
	// trusted less.
	Published []Point
	// Ratings are what the maker warrants at sizes.
	Ratings []Rating
}

// Point is something measured at one size, in the steady state of uniform
// random 4 KiB writes over all of it. What is 0 was not measured.
type Point struct {
	CapacityBytes uint64
	// WAF and WAFError, the largest distance of the true value from it; an
	// error of 0 means not stated, and 1 % is taken.
	WAF, WAFError float64
	// IOPS and IOPSError, as a part of it; 0 means not stated, and 2.5 % is taken.
	IOPS, IOPSError float64
	// FloorWAF is the write amplification of sequential writes.
	FloorWAF float64
}

// Rating is a warranted endurance.
type Rating struct {
	CapacityBytes uint64
	// HostBytes may be written over the warranty.
	HostBytes float64
}

// Request is a question.
type Request struct {
	Drive Drive
	// Points calibrate the drive's model.
	Points []Point
	// Sizes are the exported capacities asked about, in bytes.
	Sizes []uint64
	// Workload is what WAF and life are asked for; rates are always those of
	// uniform random 4 KiB writes. The zero value is uniform random 4 KiB.
	Workload Workload
	// WarrantyYears is over how many years DWPD counts; 0 means 5.
	WarrantyYears float64
	// MixReadPercent is the share of reads of the mixed rate; 0 means 70.
	MixReadPercent float64
}

// Assumption is something an answer rests on.
type Assumption struct {
	// ID is what DominatedBy refers to: "usable_flash", "floor", "collect_ratio" ...
	ID string `json:"id"`
	// Text says it for people.
	Text string `json:"text"`
}

// SizeAnswer is what a size gives. What cannot be told is nil.
type SizeAnswer struct {
	CapacityBytes uint64 `json:"capacity_bytes"`
	// OPOfUserPercent is (nominal raw - capacity)/capacity.
	OPOfUserPercent float64 `json:"op_of_user_percent"`
	// SetOPPercent is (TNVMCAP - capacity)/capacity: what op set --op takes.
	SetOPPercent *float64 `json:"set_op_percent,omitempty"`

	WAF             *Interval `json:"waf"`
	RandomWriteIOPS *Interval `json:"random_write_iops"`
	RandomReadIOPS  *float64  `json:"random_read_iops"`
	MixedIOPS       *Interval `json:"mixed_iops"`
	// BurstWriteIOPS is the rate of random 4 KiB writes that an SLC cache takes,
	// for BurstBytes after a rest; nil without one. RandomWriteIOPS is the rate
	// once it is full.
	BurstWriteIOPS *float64 `json:"burst_write_iops,omitempty"`
	BurstBytes     uint64   `json:"burst_bytes,omitempty"`
	// LifetimeHostBytes is what the host can write until the rated cycles are
	// used up: the P/E bound.
	LifetimeHostBytes *Interval `json:"lifetime_host_bytes"`
	DWPD              *Interval `json:"dwpd"`
	// RatedHostBytes is what the maker warrants at this size; nil when not known.
	RatedHostBytes *float64 `json:"rated_host_bytes"`
	// Binds is "rated" where the rating ends before the cycles do, "cycles"
	// where it is the other way round or there is no rating, "either" where the
	// interval leaves it open.
	Binds string `json:"binds"`
	// SettlingDriveWrites is how long the WAF takes to settle to 1 %.
	SettlingDriveWrites float64 `json:"settling_drive_writes"`
}

// Answer is the answer to a Request, and the JSON document nvop.predict/1.
type Answer struct {
	Schema      string       `json:"schema"`
	Points      []SizeAnswer `json:"points"`
	Assumptions []Assumption `json:"assumptions"`
	// Calibrated is how many points narrowed it.
	Calibrated int `json:"calibrated"`
	// Notes are what a reader must know, such as points that contradict the law.
	Notes []string `json:"notes,omitempty"`
}
