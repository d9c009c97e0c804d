package uring

import (
	"nvop/nvmeioctl"
)

// Queue implements nvmeioctl.IOQueue.
type Queue struct{}

// Open opens a block device, character device or plain file as a queue.
func Open(path string, opts Options) (*Queue, error) {
	return nil, &nvmeioctl.UnsupportedError{Feature: "io_uring", Have: "it is not there yet"}
}

// OpenCommands opens the generic node of a namespace (/dev/ng0n1) as a queue of
// NVMe commands.
func OpenCommands(path string, ns Commands, opts Options) (*Queue, error) {
	return nil, &nvmeioctl.UnsupportedError{Feature: "io_uring", Have: "it is not there yet"}
}

// Probe says nil where this kernel lets this process use io_uring, and otherwise
// what forbids it and what to do.
func Probe() error { return nil }
