// Package uring is an IOQueue over io_uring: to a block device, character device
// or plain file by reads and writes, or to an NVMe namespace's generic node
// (/dev/ng0n1) by NVMe commands.
//
// It is a thin ring without a library: one system call a batch, the file and the
// buffers registered, nothing allocated per request. It must not interpret the
// data it moves, nor decide about consent: who opens for writing has a grant.
package uring

import (
	"nvop/nvmeioctl"
)

// MaxDepth is the greatest Options.Depth.
const MaxDepth = 16384

// Options are how a queue is opened.
type Options struct {
	// Depth is how many requests may be outstanding; 0 means 1, at most MaxDepth.
	Depth int
	// Write opens for writing too.
	Write bool
	// Exclusive adds O_EXCL on a block device: refused while it is mounted or
	// otherwise held. It protects from no NVMe command.
	Exclusive bool
	// Direct says whether the page cache is bypassed. Not for OpenCommands.
	Direct nvmeioctl.DirectMode
	// Clock is what results are stamped with and Reap's limit is on; nil means a
	// new SystemClock. It must run in real time, since the I/O does.
	Clock nvmeioctl.Clock
	// LogicalBlockBytes overrides what the file reports; 0 asks the file. Not for
	// OpenCommands.
	LogicalBlockBytes int
	// MaxRequestBytes is the largest LengthBytes; 0 means 1 MiB.
	MaxRequestBytes int
	// OneThread says that Open and every use of the queue come from one OS thread
	// (runtime.LockOSThread), which lets the kernel (6.0 and later) leave out
	// locks and defer work to that thread. Use from another then fails.
	OneThread bool
	// Polled asks the driver for completions instead of waiting for interrupts. It
	// needs a device with poll queues (nvme.poll_queues) and O_DIRECT, and keeps a
	// processor busy.
	Polled bool
}

// Commands are what OpenCommands has to know of the namespace: it sends what it
// is told and splits nothing.
type Commands struct {
	// NSID is the namespace; it must be the node's.
	NSID uint32
	// SizeBlocks is NSZE, in logical blocks.
	SizeBlocks uint64
	// BlockBytes is the data size of a logical block, in bytes.
	BlockBytes uint32
	// MaxTransferBytes is the largest transfer of one command, in bytes, by MDTS;
	// 0 where the controller reports no limit.
	MaxTransferBytes uint64
	// Protect sets PRACT: the controller makes, checks and strips protection
	// information by itself. For formats with protection information and eight
	// bytes of metadata; no other metadata is possible.
	Protect bool
}
