package predict

// Kind is a class of workload.
type Kind string

const (
	Uniform    Kind = "uniform"    // random, each block as likely as another
	JESD219    Kind = "jesd219"    // the enterprise workload: skewed, with its mix of sizes
	Zipf       Kind = "zipf"       // rank r as likely as r^-Theta
	Sequential Kind = "sequential" // one stream over all of the capacity
	Mixed      Kind = "mixed"      // random and sequential writes side by side
)

// Workload is a workload. The zero value is uniform random 4 KiB writes over
// all of the capacity.
type Workload struct {
	Kind Kind
	// IOBytes is the size of a write; 0 means 4096. JESD219 has its own mix.
	IOBytes uint64
	// Theta is the exponent of Zipf, 0 to 0.999.
	Theta float64
	// Separation is how well the drive keeps data of different lifetimes apart,
	// 0 (one log) to 1 (perfectly); nil means not known.
	Separation *float64
	// SequentialShare is the part of the bytes of Mixed that is sequential.
	SequentialShare float64
	// MappedRatio is how much of the capacity holds data, the rest being
	// deallocated; 0 means all.
	MappedRatio float64
}
