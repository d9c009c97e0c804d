package nvmeioctl

import "nvop/nvmeioctl/nvmespec"

// IOOp is what an [IORequest] does.
type IOOp uint8

// The operations of a data path.
const (
	OpRead IOOp = iota + 1
	OpWrite
	OpFlush
)

// IORequest is one operation on the data of a namespace.
type IORequest struct {
	Op IOOp
	// FUA asks that a write reach the medium before it completes.
	FUA bool
	// Tag comes back in the result and is the caller's own.
	Tag uint32
	// OffsetBytes is where the transfer starts; a multiple of the logical
	// block's data size.
	OffsetBytes int64
	// LengthBytes is how much is transferred; a multiple of the logical
	// block's data size. 0 for a flush.
	LengthBytes int32
	// Buf is the data, LengthBytes long. It may be nil only where the queue
	// is a [DataDiscarder]. It belongs to the queue until the result is reaped.
	Buf []byte
	// At is when the request was made, on the queue's clock.
	At Instant
}

// IOResult is how one [IORequest] ended.
type IOResult struct {
	Tag uint32
	// Done is when the completion was seen, on the queue's clock. Real queues
	// read the clock once a batch.
	Done Instant
	// Status is the drive's answer, 0 for success.
	Status nvmespec.Status
	// Err is a failed call (*os.SyscallError); nil when the drive answered.
	Err error
}

// IOQueue moves data in batches. It has one user: it is not safe for
// concurrent use. Nothing is allocated per request.
type IOQueue interface {
	// Depth is how many requests may be outstanding.
	Depth() int
	// Submit takes the first n requests, in order, and says how many. It takes
	// fewer only when Depth is reached or err is set.
	Submit(reqs []IORequest) (n int, err error)
	// Reap waits until at least one outstanding request has completed or until
	// the clock shows until, whichever is first, and fills results with what
	// has completed, oldest completion first. With nothing outstanding it
	// returns 0 at once.
	Reap(results []IOResult, until Instant) (n int, err error)
	Close() error
}

// DataDiscarder is implemented by a queue that keeps no contents, so that the
// caller need not fill buffers (a simulated drive without contents).
type DataDiscarder interface{ DiscardsData() bool }

// BufferRegistrar is implemented by a queue that moves data faster from and to
// memory that it was told of before.
type BufferRegistrar interface {
	// RegisterBuffers names the memory, mapped by the caller, that most requests
	// will use, before the first of them. It must stay mapped until Close has
	// returned. An error changes nothing but the speed.
	RegisterBuffers(memory []byte) error
}
