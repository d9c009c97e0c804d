package namespace

import (
	"context"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
)

// VisibleFunc says whether the host shows a namespace: a node with this NSID of
// this drive, of this size and logical block size. present false asks whether
// it is gone. It is called again until it says yes or the wait is over.
type VisibleFunc func(ctx context.Context, want Visible) (bool, error)

// Visible is what a host should show of a namespace.
type Visible struct {
	Identity   nvmeioctl.Identity
	NSID       uint32
	Present    bool
	SizeBytes  uint64
	BlockBytes uint32
}

// ExecutorOptions are what the executors need besides the drive.
type ExecutorOptions struct {
	// Visible is asked after a rescan; nil means that there is no host to ask.
	Visible VisibleFunc
	// WaitMax bounds the wait for Visible; 0 means 30 s.
	WaitMax time.Duration
}

// Executors are the kinds of step this package plans.
func Executors(o ExecutorOptions) txn.Registry { return nil }
