package nvmeioctl

import (
	"context"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// Command is one NVMe command, in the terms of the submission queue entry
// (NVMe Base Specification 2.x, "Submission Queue Entry").
type Command struct {
	// IO sends the command to an I/O queue instead of the admin queue. The
	// same opcode means different things in the two sets.
	IO     bool
	Opcode uint8
	// NSID is the namespace the command addresses; 0 means none and
	// 0xFFFFFFFF all of them.
	NSID                                     uint32
	CDW2, CDW3                               uint32
	CDW10, CDW11, CDW12, CDW13, CDW14, CDW15 uint32
	// Data is the transfer buffer. Bits 1:0 of the opcode give the direction:
	// 01b host to controller, 10b controller to host. The device does not keep
	// it after Submit returns.
	Data []byte
	// Metadata is the separate metadata buffer of an I/O command; nil for none.
	Metadata []byte
	// Timeout bounds the command in the kernel. A timeout resets the
	// controller and leaves the outcome unknown, so it is explicit and
	// generous; 0 is refused.
	Timeout time.Duration
}

// WritesToDevice says that Data travels from host to controller.
func (c *Command) WritesToDevice() bool { return c.Opcode&3 == 1 }

// ReadsFromDevice says that Data travels from controller to host.
func (c *Command) ReadsFromDevice() bool { return c.Opcode&3 == 2 }

// Completion is what the controller answered.
type Completion struct {
	// Status is the status field without the phase bit; 0 is success.
	Status nvmespec.Status
	// Result is command specific: dword 0 of the completion, and dword 1 in
	// the upper half where the kernel returns it.
	Result uint64
}

// Err returns nil for success and the status as a [nvmespec.StatusError]
// otherwise.
func (c Completion) Err() error { return c.Status.Err() }

// Device submits commands to one controller, one at a time.
//
// Implementations are safe for concurrent use; commands are then carried out
// in some order.
type Device interface {
	// Submit sends cmd and waits for its completion. The context counts only
	// until submission: a command that has been sent cannot be taken back.
	//
	// The error says that no answer came (a *os.SyscallError, a *RefusedError,
	// an error that Is [ErrIndeterminate] or [ErrDeviceGone]); what the
	// controller answered, success or not, is in the Completion with a nil
	// error. A zero Status is success only together with a nil error.
	Submit(ctx context.Context, cmd *Command) (Completion, error)
	// String names the device as the user did: "/dev/nvme0", "sim:drive.nvop".
	String() string
	Close() error
}

// Wrapper is implemented by decorators.
type Wrapper interface{ Unwrap() Device }

// As finds the first device in the chain of decorators, outermost first, that
// implements T: how an optional interface is looked up. A decorator that must
// not be bypassed implements T itself.
func As[T any](dev Device) (T, bool) {
	for dev != nil {
		if t, ok := dev.(T); ok {
			return t, true
		}
		w, ok := dev.(Wrapper)
		if !ok {
			break
		}
		dev = w.Unwrap()
	}
	var zero T
	return zero, false
}

// Resetter is what a controller can be told outside the command set.
type Resetter interface {
	// ResetController resets the controller (CC.EN) and waits until it is ready.
	ResetController(ctx context.Context) error
	// ResetSubsystem resets the whole NVM subsystem (NSSR). Drives have been
	// seen to vanish after it; never called without being asked for.
	ResetSubsystem(ctx context.Context) error
	// Rescan asks the host to look for changed namespaces. It is asynchronous:
	// poll for what is expected.
	Rescan(ctx context.Context) error
}

// Event is an asynchronous event notification of the controller.
type Event struct {
	// Type is bits 2:0 of completion dword 0 (0 error, 1 SMART, 2 notice).
	Type uint8
	// Info is bits 15:8, its meaning by type.
	Info uint8
	// LogPage is the log page that clears the event, bits 23:16.
	LogPage uint8
}

// EventSource delivers asynchronous events.
type EventSource interface {
	// NextEvent waits for the next event until ctx is done.
	NextEvent(ctx context.Context) (Event, error)
}

// Identity says which controller this is, in terms that survive a reboot and a
// change of node names. See DESIGN: nvmeXnY is neither.
type Identity struct {
	SubsystemNQN string `json:"subsystem_nqn"`
	Serial       string `json:"serial"`
	Model        string `json:"model"`
	// CNTLID is the controller's number within its subsystem.
	CNTLID uint16 `json:"cntlid"`
}
