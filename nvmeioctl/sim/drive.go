package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Options are what differs between two drives of one model. The zero value is
// a usable drive.
type Options struct {
	// Serial is the serial number, 1 to 20 printable ASCII characters; empty
	// derives one from the profile and the seed.
	Serial string `json:"serial"`
	// Seed decides identifiers and everything the flash model draws.
	Seed uint64 `json:"seed"`
	// Scale is how many mapping units one unit of the simulated map stands
	// for; 0 chooses about one million map units.
	Scale uint32 `json:"scale"`
	// Start is the calendar time at which the drive is first powered on; zero
	// is 2025-01-01 00:00 UTC.
	Start time.Time `json:"start"`
	// Controllers is how many controllers the subsystem has, 1 to 8; 0 is 1.
	Controllers int `json:"controllers"`
	// AllocationBytes replaces the profile's allocation unit and makes the
	// controller report it; 0 keeps the profile's.
	AllocationBytes uint64 `json:"allocation_bytes"`
	// ReservedBytes of the capacity are reported as unallocated but refused
	// to namespaces, as some real drives do (cases NS-04).
	ReservedBytes uint64 `json:"reserved_bytes"`
	// FirmwareReset is what it takes to activate a firmware image.
	FirmwareReset FirmwareReset `json:"firmware_reset"`
}

// FirmwareReset is the kind of reset that activates a committed firmware image.
type FirmwareReset uint8

// Kinds of reset, from the mildest.
const (
	// ResetByController is any controller reset.
	ResetByController FirmwareReset = iota
	// ResetBySubsystem is an NVM subsystem reset; the commit answers 0x110.
	ResetBySubsystem
	// ResetByPowerCycle is a conventional reset or power cycle; the commit
	// answers 0x10b.
	ResetByPowerCycle
)

// Drive is a simulated drive, and the first controller of its NVM subsystem.
// It is safe for concurrent use, except that an I/O queue has one user.
type Drive struct {
	name  string
	clock *nvmeioctl.VirtualClock

	mu     sync.Mutex
	st     *state
	media  media
	closed bool
}

// New makes a drive that lives in memory. It is delivered with one namespace
// of all its capacity, attached to its controllers.
func New(p Profile, o Options) (*Drive, error) {
	st, err := newState(p, o)
	if err != nil {
		return nil, err
	}
	d := &Drive{name: "sim:" + p.Name, st: st, clock: nvmeioctl.NewVirtualClock(st.Options.Start)}
	d.media = newMedia(&st.Profile, st.Options, d.clock)
	return d, nil
}

// Create makes a drive in a file, which must not exist.
func Create(path string, p Profile, o Options) error {
	return errors.New("not supported yet")
}

// Open opens the drive in a file and keeps every other process, and every
// other Drive of this one, out of it until Close.
func Open(path string) (*Drive, error) { return nil, errors.New("not supported yet") }

// Clock is the drive's time. It shows how long the drive has been powered on.
func (d *Drive) Clock() *nvmeioctl.VirtualClock { return d.clock }

// Profile is the model of the drive.
func (d *Drive) Profile() Profile {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.st.Profile
}

// String implements nvmeioctl.Device.
func (d *Drive) String() string { return d.name }

// Save writes the drive's state with the number of the checkpoint that it
// belongs to. For a drive in memory it only remembers the number.
func (d *Drive) Save(checkpoint uint64) error { return nil }

// Checkpoint is the number given to the last Save, 0 if there was none.
func (d *Drive) Checkpoint() uint64 { return 0 }

// Submit implements nvmeioctl.Device.
func (d *Drive) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return nvmeioctl.Completion{Status: 0x4001}, nil
}

// ResetController implements nvmeioctl.Resetter.
func (d *Drive) ResetController(ctx context.Context) error { return ctx.Err() }

// ResetSubsystem implements nvmeioctl.Resetter.
func (d *Drive) ResetSubsystem(ctx context.Context) error { return ctx.Err() }

// Rescan implements nvmeioctl.Resetter; there is no host whose view could be stale.
func (d *Drive) Rescan(ctx context.Context) error { return ctx.Err() }

// PowerCycle takes the power away and gives it back. clean says that the host
// announced it; otherwise it counts as an unsafe shutdown.
func (d *Drive) PowerCycle(clean bool) error { return nil }

// NextEvent implements nvmeioctl.EventSource.
func (d *Drive) NextEvent(ctx context.Context) (nvmeioctl.Event, error) {
	<-ctx.Done()
	return nvmeioctl.Event{}, ctx.Err()
}

// OpenController gives another controller of the subsystem as a device.
func (d *Drive) OpenController(cntlid uint16) (nvmeioctl.Device, error) {
	return nil, fmt.Errorf("%s: no controller %d", d.name, cntlid)
}

// Close gives the drive's file free. The drive does not answer afterwards.
func (d *Drive) Close() error { return nil }

var (
	_ nvmeioctl.Device      = (*Drive)(nil)
	_ nvmeioctl.Resetter    = (*Drive)(nil)
	_ nvmeioctl.EventSource = (*Drive)(nil)
)

// ioNamespace is what a data queue must know of a namespace.
type ioNamespace struct {
	SizeBytes  uint64 // user data
	BlockBytes uint32 // data bytes of a logical block
}

// ioNamespaceLocked looks up a namespace for I/O through the controller with
// this index; the status is not 0 where I/O must be refused. The drive's lock
// is held.
func (d *Drive) ioNamespaceLocked(controller int, nsid uint32) (ioNamespace, nvmespec.Status) {
	return ioNamespace{}, 0x400b
}
