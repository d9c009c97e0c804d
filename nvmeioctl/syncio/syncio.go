// Package syncio is an IOQueue over plain pread and pwrite.
//
// It works on block devices, character devices and plain files, with O_DIRECT
// where the file allows it. Depth greater than one is a small pool of
// goroutines that the queue owns and waits for in Close. It must not interpret
// the data it moves.
package syncio

import (
	"nvop/nvmeioctl"
)

// DirectMode says whether the page cache is bypassed.
type DirectMode uint8

const (
	// DirectAuto uses O_DIRECT where the file allows it.
	DirectAuto DirectMode = iota
	// DirectOff goes through the page cache.
	DirectOff
	// DirectRequired fails where O_DIRECT is not possible.
	DirectRequired
)

// Options are how a file is opened as a queue.
type Options struct {
	// Depth is how many requests may be outstanding; 0 means 1, at most 1024.
	Depth int
	// Write opens for writing too.
	Write bool
	// Exclusive adds O_EXCL on a block device: refused while it is mounted or
	// otherwise held. It protects from no NVMe command.
	Exclusive bool
	// Direct says whether the page cache is bypassed.
	Direct DirectMode
	// Clock is what results are stamped with; nil means a new SystemClock.
	Clock nvmeioctl.Clock
	// LogicalBlockBytes overrides what the file reports; 0 asks the file.
	LogicalBlockBytes int
	// MaxRequestBytes is the largest LengthBytes, for which bounce buffers are
	// made when requests arrive unaligned; 0 means 1 MiB.
	MaxRequestBytes int
}

// Queue implements nvmeioctl.IOQueue. Like every IOQueue it has one user.
type Queue struct {
	opts Options
}

// Open opens a block device, character device or plain file as a queue.
func Open(path string, opts Options) (*Queue, error) { return &Queue{opts: opts}, nil }

// SizeBytes is the size of the file or device in bytes; 0 for a character
// device, which has none.
func (q *Queue) SizeBytes() int64 { return 0 }

// LogicalBlockBytes is the logical block's data size in bytes: of the block
// device, or 512 for another file.
func (q *Queue) LogicalBlockBytes() int { return 512 }

// AlignBytes is what offsets, lengths and buffer addresses must be multiples
// of to be used without a copy; 1 when the page cache is in between.
func (q *Queue) AlignBytes() int { return 1 }

// Direct says whether O_DIRECT is in effect.
func (q *Queue) Direct() bool { return false }

// Depth implements IOQueue.
func (q *Queue) Depth() int { return max(1, q.opts.Depth) }

// Submit implements IOQueue.
func (q *Queue) Submit(reqs []nvmeioctl.IORequest) (int, error) { return 0, nil }

// Reap implements IOQueue.
func (q *Queue) Reap(results []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	return 0, nil
}

// Close implements IOQueue.
func (q *Queue) Close() error { return nil }

// AlignedBuffer returns a buffer of n bytes whose address is a multiple of
// align (a power of two).
func AlignedBuffer(n, align int) []byte { return make([]byte, n) }
