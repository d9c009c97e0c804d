package nvmeioctl

import (
	"context"
)

// Passthru is the kernel's passthrough to one device node. It implements
// Device, Resetter and EventSource and is safe for concurrent use.
type Passthru struct {
	target Target
}

// Open opens the node of a controller (/dev/nvme0) or of a namespace
// (/dev/nvme0n1, /dev/ng0n1) for commands. Symbolic links are followed.
func Open(path string) (*Passthru, error) { return Host{}.Open(path) }

// Open is like the function of the same name, below the host's root.
func (h Host) Open(path string) (*Passthru, error) { return nil, ErrNotNVMe }

// Target says what the open node means.
func (p *Passthru) Target() Target { return p.target }

// NSID asks the kernel which namespace the node stands for
// (NVME_IOCTL_ID); an UnsupportedError for a controller node.
func (p *Passthru) NSID() (uint32, error) { return 0, nil }

// Submit implements Device.
func (p *Passthru) Submit(ctx context.Context, cmd *Command) (Completion, error) {
	return Completion{}, ErrNotNVMe
}

func (p *Passthru) String() string { return p.target.Path }

// Close implements Device.
func (p *Passthru) Close() error { return nil }

// ResetController implements Resetter.
func (p *Passthru) ResetController(ctx context.Context) error { return ErrNotNVMe }

// ResetSubsystem implements Resetter.
func (p *Passthru) ResetSubsystem(ctx context.Context) error { return ErrNotNVMe }

// Rescan implements Resetter.
func (p *Passthru) Rescan(ctx context.Context) error { return ErrNotNVMe }

// NextEvent implements EventSource.
func (p *Passthru) NextEvent(ctx context.Context) (Event, error) { return Event{}, ErrNotNVMe }
