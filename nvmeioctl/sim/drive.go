package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
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
	// to namespaces, as some real drives do: one that reports 2,000,398,934,016
	// unallocated bytes has refused a namespace of that size.
	ReservedBytes uint64 `json:"reserved_bytes"`
	// FirmwareReset is what it takes to activate a firmware image.
	FirmwareReset FirmwareReset `json:"firmware_reset"`
	// Contents is how the drive keeps what is written to it.
	Contents ContentsMode `json:"contents,omitempty"`
}

// FirmwareReset is the kind of reset that activates a committed firmware image.
type FirmwareReset uint8

// Kinds of reset, from the mildest. A stronger one does what a milder one does.
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

	mu    sync.Mutex
	st    *state // replaced by commit, changed in place for what need not be saved
	media media
	file  *stateFile // nil in memory
	// closed stops all answers: after Close, and after a save that left the
	// file in an unknown state (then broken says why).
	closed bool
	broken error
	// lastSaveError is why the last command was answered with an internal error.
	lastSaveError error
	formatting    map[uint32]progress
	// trouble says that a fault is armed or goes on; see faults.go. The power
	// may be off, the controllers may hang, or the media not be ready until a
	// time. These end with the process.
	trouble, off, hung bool
	notReadyNS         int64
	stallUntil         nvmeioctl.Instant // on the queues' clock
	dozing             bool              // an I/O command may find it in a non-operational state
	hosts              nvmeioctl.Clock
	// warned are the critical warnings that hosts have been told of.
	warned nvmespec.CriticalWarning
	wake   chan struct{} // closed and replaced when something happened
	// contexts are the persistent event logs that controllers are reading, by
	// the index of the controller: each stands still until it is released.
	contexts map[int][]byte
	// onCommit adds to a state what its command leaves in the event log.
	onCommit func(st *state, result uint32, s nvmespec.Status)
	hot      bool // the temperature is above the warning threshold

	// Tests look in while a command takes its time, and make saves fail.
	onStep    func()
	saveFault func() error
}

// New makes a drive that lives in memory. It is delivered with one namespace
// of all its capacity, attached to its controllers.
func New(p Profile, o Options) (*Drive, error) {
	st, err := newState(p, o)
	if err != nil {
		return nil, err
	}
	d, err := newDrive("sim:"+p.Name, st)
	if err != nil {
		return nil, err
	}
	for i := range st.Namespaces {
		d.media.namespaceCreated(st.Namespaces[i].NSID, st.Namespaces[i].sizeBytes(&st.Profile))
	}
	if st.Options.Contents >= ContentsSparse {
		if err := d.keepContents(); err != nil {
			return nil, err
		}
	}
	st.logPowerOn(0, false)
	st.logSnapshot(d)
	return d, nil
}

// newDrive puts a drive around a state, with media that hold nothing.
func newDrive(name string, st *state) (*Drive, error) {
	d := &Drive{
		name: name, st: st, clock: nvmeioctl.NewVirtualClock(st.Options.Start),
		formatting: map[uint32]progress{}, wake: make(chan struct{}), contexts: map[int][]byte{},
	}
	d.clock.AdvanceTo(nvmeioctl.Instant(st.NowNS))
	m, err := newFlashMedia(&st.Profile, st.Options, d.clock)
	if err != nil {
		return nil, err
	}
	d.media = m
	d.lookForTrouble()
	return d, nil
}

// Create makes a drive in a file, which must not exist.
func Create(path string, p Profile, o Options) error {
	if err := refuseContents(path); err != nil {
		return err
	}
	d, err := New(p, o)
	if err != nil {
		return err
	}
	b, err := d.encode()
	if err != nil {
		return err
	}
	if err := createStateFile(path, b); err != nil {
		return fmt.Errorf("create simulated drive: %w", err)
	}
	return nil
}

// Open opens the drive in a file and keeps every other process, and every
// other Drive of this one, out of it until Close. What is wrong with a file is
// a *StateError; a file that is not there is an fs.ErrNotExist.
func Open(path string) (*Drive, error) {
	f, b, err := openStateFile(path)
	if err != nil {
		return nil, err
	}
	d, err := openDrive(path, b)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	d.file = f
	if err := d.findContents(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return d, nil
}

// openDrive makes the drive that a state file holds.
func openDrive(path string, b []byte) (*Drive, error) {
	at := func(err error) error {
		if e, ok := errors.AsType[*StateError](err); ok {
			e.Path = path
			return e
		}
		return &StateError{Path: path, Kind: DamagedState, Detail: err.Error()}
	}
	st, flash, err := decodeState(b)
	if err != nil {
		return nil, at(err)
	}
	d, err := newDrive("sim:"+path, st)
	if err != nil {
		return nil, at(err)
	}
	if err := d.media.UnmarshalBinary(flash); err != nil {
		return nil, at(err)
	}
	var nsids []uint32
	for i := range st.Namespaces {
		nsids = append(nsids, st.Namespaces[i].NSID)
	}
	if have := slices.Sorted(maps.Keys(d.media.counters().MappedBytes)); !slices.Equal(have, nsids) {
		return nil, at(errors.New("its flash belongs to other namespaces"))
	}
	d.applyPower()
	return d, nil
}

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

// Save writes the drive's state, all that was written to it included, with
// the number of the checkpoint that it belongs to. For a drive in memory it
// only remembers the number. If it fails, the file is as it was.
func (d *Drive) Save(checkpoint uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	before := d.st.Checkpoint
	d.st.Checkpoint = checkpoint
	if err := d.save(); err != nil {
		d.st.Checkpoint = before
		return err
	}
	return nil
}

// Checkpoint is the number given to the last Save, 0 if there was none.
func (d *Drive) Checkpoint() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.st.Checkpoint
}

// encode makes the bytes of the state file. The lock is held, or nobody else
// has the drive.
func (d *Drive) encode() ([]byte, error) {
	d.st.NowNS = int64(d.clock.Now())
	flash, err := d.media.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("%s: encode the flash: %w", d.name, err)
	}
	return encodeState(d.st, flash)
}

// save puts the state into the file, if there is one. On an error the file
// is as it was, or the drive is broken.
func (d *Drive) save() error {
	if d.saveFault != nil {
		if err := d.saveFault(); err != nil {
			return err
		}
	}
	if d.file == nil {
		return nil
	}
	b, err := d.encode()
	if err != nil {
		return err
	}
	replaced, err := d.file.replace(b)
	if err == nil {
		d.lastSaveError = nil
		return nil
	}
	err = fmt.Errorf("%s: save: %w", d.name, err)
	if replaced {
		// The new state is in place but may not survive a crash of the host:
		// neither the old nor the new one can be promised any more.
		d.closed, d.broken = true, err
	}
	return err
}

// SaveError is why a command was answered with an internal error or a failure of
// the medium that is the host's own: its file system is full, read-only or
// failing. Nil if none was, or if the drive has been saved since.
func (d *Drive) SaveError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastSaveError
}

// gone says why the drive does not answer.
func (d *Drive) gone() error {
	if d.off {
		return d.unpowered()
	}
	return d.lost()
}

// lost says why the drive is not there any more, with power or without.
func (d *Drive) lost() error {
	switch {
	case d.broken != nil:
		return fmt.Errorf("%s: %w: %w", d.name, nvmeioctl.ErrDeviceGone, d.broken)
	case d.closed:
		return fmt.Errorf("%s: %w", d.name, os.ErrClosed)
	}
	return nil
}

// Submit implements nvmeioctl.Device for the first controller.
func (d *Drive) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return d.submit(ctx, 0, cmd)
}

// NextEvent implements nvmeioctl.EventSource for the first controller.
func (d *Drive) NextEvent(ctx context.Context) (nvmeioctl.Event, error) { return d.nextEvent(ctx, 0) }

// ResetController implements nvmeioctl.Resetter for the first controller:
// features go back to their saved values, and firmware that waits for a
// controller reset becomes active.
func (d *Drive) ResetController(ctx context.Context) error {
	return d.reset(ctx, func(st *state) { st.resetController(0, d.clock.Now(), ResetByController) })
}

// ResetSubsystem implements nvmeioctl.Resetter.
func (d *Drive) ResetSubsystem(ctx context.Context) error {
	return d.reset(ctx, func(st *state) {
		running := st.Firmware.Running
		st.resetAll(d.clock.Now(), ResetBySubsystem)
		st.logPowerOn(d.clock.Now(), st.Firmware.Running != running)
	})
}

// PowerCycle takes the power away and gives it back. clean says that the host
// announced it; otherwise it counts as an unsafe shutdown.
func (d *Drive) PowerCycle(clean bool) error {
	if d.PowerOff() {
		return d.PowerOn() // it was counted when the power went
	}
	return d.reset(context.Background(), func(st *state) { d.powerCycledState(st, clean) })
}

// Rescan implements nvmeioctl.Resetter. There is no host whose view of the
// drive could be stale.
func (d *Drive) Rescan(ctx context.Context) error { return ctx.Err() }

func (d *Drive) reset(ctx context.Context, change func(*state)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return err
	}
	d.settle()
	if err := d.gone(); err != nil {
		return err
	}
	before := d.st
	d.st = before.clone()
	change(d.st)
	clear(d.contexts)
	if err := d.save(); err != nil {
		d.st = before
		return err
	}
	d.hung = false
	d.lookForTrouble()
	d.applyPower()
	d.notify()
	return nil
}

// resetControllerLocked resets a controller whose command timed out. It is not
// saved by itself: a process that ends here finds the drive as it was before.
func (d *Drive) resetControllerLocked(index int) {
	d.st = d.st.clone()
	d.st.resetController(index, d.clock.Now(), ResetByController)
	d.applyPower()
}

// resetAll resets every controller.
func (st *state) resetAll(now nvmeioctl.Instant, kind FirmwareReset) {
	for i := range st.Controllers {
		st.resetController(i, now, kind)
	}
}

// resetController forgets what a reset of a controller makes it forget.
func (st *state) resetController(index int, now nvmeioctl.Instant, kind FirmwareReset) {
	c := &st.Controllers[index]
	*c = controllerState{Saved: c.Saved, ResetNS: int64(now), Host: c.Host}
	st.SelfTest.reset(int64(now))
	if kind >= st.Options.FirmwareReset {
		st.Firmware.activateNext()
	}
	st.Firmware.Parts, st.Firmware.BusyUntilNS = nil, 0
}

// settle brings the state up to the clock: self-tests end, and the percentage
// used is updated once an hour. None of it is worth saving by itself.
func (d *Drive) settle() {
	now := int64(d.clock.Now())
	ended := d.settleSelfTest(now)
	ended = d.settleSanitize(now) || ended
	if d.trouble {
		d.due()
		d.thermal()
		d.lag()
	}
	if h := hours(now); h != d.st.UsedHour {
		m := d.counters()
		d.st.UsedHour, d.st.PercentUsed = h, percent(m.UsedRatio)
		for i := range d.st.Controllers {
			d.st.Controllers[i].warn(&d.st.Profile, uint8(d.warnings(m)))
		}
	}
	if d.trouble {
		d.warnAnew()
	}
	d.settleEvents(now)
	if ended {
		// What ran in the background has ended: a drive does not forget that.
		// Nothing else here is saved, so that a soak's checkpoints stay in step.
		if err := d.save(); err != nil {
			d.lastSaveError = err
		}
		d.notify()
	}
}

// warnAnew tells hosts of critical warnings that they have not been told of.
func (d *Drive) warnAnew() {
	w := d.warnings(d.counters())
	if fresh := w &^ d.warned; fresh != 0 {
		for i := range d.st.Controllers {
			d.st.Controllers[i].warn(&d.st.Profile, uint8(fresh))
		}
	}
	d.warned = w
}

// OpenController gives a controller of the subsystem by its CNTLID. It is a
// Device, Resetter and EventSource; closing it leaves the drive open.
func (d *Drive) OpenController(cntlid uint16) (nvmeioctl.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := int(cntlid) - int(d.st.Profile.FirstController)
	if i < 0 || i >= len(d.st.Controllers) {
		return nil, fmt.Errorf("%s: there is no controller %d", d.name, cntlid)
	}
	return &controller{Drive: d, index: i, name: fmt.Sprintf("%s#%d", d.name, cntlid)}, nil
}

// controller is one controller of a drive that has several.
type controller struct {
	*Drive
	index int
	name  string
}

func (c *controller) String() string { return c.name }

// Close does nothing: the drive is closed by who opened it.
func (c *controller) Close() error { return nil }

func (c *controller) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	return c.submit(ctx, c.index, cmd)
}

// LastHost is the network host that had the controller last. See nvmetcp: a
// host is given the same controller again, so that what is attached to it stays.
func (c *controller) LastHost() (nqn string, id [16]byte, ok bool) { return c.lastHost(c.index) }

// RememberHost says that a network host has the controller now, and saves it.
func (c *controller) RememberHost(nqn string, id [16]byte) error {
	return c.rememberHost(c.index, nqn, id)
}

// LastHost is that of the first controller.
func (d *Drive) LastHost() (nqn string, id [16]byte, ok bool) { return d.lastHost(0) }

// RememberHost is that of the first controller.
func (d *Drive) RememberHost(nqn string, id [16]byte) error { return d.rememberHost(0, nqn, id) }

func (d *Drive) lastHost(index int) (string, [16]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.st.Controllers[index].Host
	return h.NQN, h.ID, h.NQN != ""
}

func (d *Drive) rememberHost(index int, nqn string, id [16]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	h := networkHost{NQN: nqn, ID: id}
	if nqn == "" || len(nqn) > hostNQNMax || !printable(nqn) {
		return fmt.Errorf("%s: %q is no name of a host", d.name, nqn)
	}
	if d.st.Controllers[index].Host == h {
		return nil
	}
	return d.change(func(st *state) { st.Controllers[index].Host = h })
}

func (c *controller) NextEvent(ctx context.Context) (nvmeioctl.Event, error) {
	return c.nextEvent(ctx, c.index)
}

func (c *controller) ResetController(ctx context.Context) error {
	return c.reset(ctx, func(st *state) { st.resetController(c.index, c.clock.Now(), ResetByController) })
}

// Close gives the drive's file free. It saves nothing: commands that changed
// the drive are saved, and what was written since the last Save is given up
// like the work of a process that is killed. The drive does not answer
// afterwards.
func (d *Drive) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && d.broken == nil || d.file == nil && d.broken != nil {
		return fmt.Errorf("%s: %w", d.name, os.ErrClosed)
	}
	d.closed = true
	d.notify()
	if d.file == nil {
		return nil
	}
	err := errors.Join(d.closeContents(), d.file.close())
	d.file = nil
	return err
}

// tooLarge is what the kernel answers to a transfer above the drive's limit.
func tooLarge(bytes int, limit uint32) error {
	return fmt.Errorf("transfer of %d bytes, %d is the limit: %w", bytes, limit, os.NewSyscallError("ioctl", syscall.EINVAL))
}

var (
	_ nvmeioctl.Device      = (*Drive)(nil)
	_ nvmeioctl.Resetter    = (*Drive)(nil)
	_ nvmeioctl.EventSource = (*Drive)(nil)
	_ nvmeioctl.Device      = (*controller)(nil)
	_ nvmeioctl.Resetter    = (*controller)(nil)
	_ nvmeioctl.EventSource = (*controller)(nil)
)
