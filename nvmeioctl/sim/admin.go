package sim

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

const (
	nsidAll = nvmespec.BroadcastNSID
	// dataBytes is the length of the structures that commands transfer.
	dataBytes = 4096
	// Where in a command an error lies, as the error log tells it: a byte in
	// bits 7:0, a bit in 10:8.
	paramNone  = 0xFFFF
	paramNSID  = 4
	paramCDW10 = 40
)

// request is one command while it is carried out. The drive's lock is held.
type request struct {
	d   *Drive
	c   int // index of the controller that has it
	cmd *nvmeioctl.Command
	// specific and param go to the error log if the command fails.
	specific uint64
	param    uint16
	// badLBA is the first logical block at fault, where it is not the first of
	// the command.
	badLBA nvmespec.Opt[uint64]
	// err ends the command without a completion.
	err error
}

// state is the drive's state.
func (r *request) state() *state { return r.d.st }

func (r *request) profile() *Profile { return &r.d.st.Profile }

// fail gives a status that a retry would not change, and says which byte of
// the command was at fault.
func (r *request) fail(s nvmespec.Status, param uint16) (uint32, nvmespec.Status) {
	r.param = param
	return 0, s | nvmespec.StatusDNR
}

// adminCommand is one row of the admin command set.
type adminCommand struct {
	opcode  uint8
	needs   func(*Profile) bool // nil: every model has it
	changes bool                // it changes the drive, so its outcome is saved
	// nsid says that the NSID field means something.
	nsid bool
	// used has the bits of CDW10 to CDW15 that mean something; all others
	// must be zero.
	used    [6]uint32
	effects nvmespec.CommandEffects
	run     func(*request) (uint32, nvmespec.Status)
}

// adminCommands is the admin command set, by opcode.
func adminCommands() []adminCommand {
	const all = ^uint32(0)
	namespaces := (*Profile).namespaceManagement
	return []adminCommand{
		{opcode: nvmespec.AdminDeleteSQ, used: [6]uint32{all}, run: queueCommand},
		{opcode: nvmespec.AdminCreateSQ, used: [6]uint32{all, all, all}, run: queueCommand},
		{opcode: nvmespec.AdminGetLogPage, nsid: true, used: [6]uint32{0xFFFFFFFF, 0xFFFFFFFF, all, all, 0xFF80007F}, run: getLog},
		{opcode: nvmespec.AdminDeleteCQ, used: [6]uint32{all}, run: queueCommand},
		{opcode: nvmespec.AdminCreateCQ, used: [6]uint32{all, all}, run: queueCommand},
		{opcode: nvmespec.AdminIdentify, nsid: true, used: [6]uint32{0xFFFF00FF, 0xFF00FFFF, 0, 0, 0x7F}, run: identify},
		{opcode: nvmespec.AdminAbort, used: [6]uint32{all}, run: abort},
		{opcode: nvmespec.AdminSetFeatures, nsid: true, changes: true, used: [6]uint32{0x800000FF, all, all, all, 0x7F, all}, run: setFeatures},
		{opcode: nvmespec.AdminGetFeatures, nsid: true, used: [6]uint32{0x7FF, all, 0, 0, 0x7F}, run: getFeatures},
		{opcode: nvmespec.AdminAsyncEventRequest, run: asyncEventRequest},
		{opcode: nvmespec.AdminNamespaceManage, needs: namespaces, changes: true, nsid: true, used: [6]uint32{0xF, 0xFF000000}, effects: effectNamespaces, run: manageNamespaces},
		{opcode: nvmespec.AdminFirmwareCommit, needs: (*Profile).firmwareCommands, changes: true, used: [6]uint32{0x8000003F}, effects: effectFirmware, run: commitFirmware},
		{opcode: nvmespec.AdminFirmwareDownload, needs: (*Profile).firmwareCommands, changes: true, used: [6]uint32{all, all}, run: downloadFirmware},
		{opcode: nvmespec.AdminSanitize, needs: (*Profile).sanitizes, changes: true, used: [6]uint32{0x7FF, all}, effects: effectSanitize, run: startSanitize},
		{opcode: nvmespec.AdminDeviceSelfTest, needs: (*Profile).selfTest, changes: true, nsid: true, used: [6]uint32{0xF}, run: startSelfTest},
		{opcode: nvmespec.AdminNamespaceAttach, needs: namespaces, changes: true, nsid: true, used: [6]uint32{0xF}, effects: effectAttachment, run: attachNamespace},
		{opcode: nvmespec.AdminLBAStatus, needs: (*Profile).lbaStatus, nsid: true, used: [6]uint32{all, all, all, 0xFF00FFFF}, run: getLBAStatus},
		{opcode: nvmespec.AdminFormatNVM, needs: (*Profile).formatSupported, changes: true, nsid: true, used: [6]uint32{0x3FFF}, effects: effectFormat, run: formatNVM},
	}
}

func lookupAdmin(p *Profile, opcode uint8) (adminCommand, bool) {
	for _, a := range adminCommands() {
		if a.opcode == opcode && (a.needs == nil || a.needs(p)) {
			return a, true
		}
	}
	return adminCommand{}, false
}

// submit carries out one command for the controller with index c.
func (d *Drive) submit(ctx context.Context, c int, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if cmd.Timeout <= 0 {
		return nvmeioctl.Completion{}, &nvmeioctl.RefusedError{Check: "time-out", Subject: d.name,
			Reason: fmt.Sprintf("command %02xh has no timeout", cmd.Opcode), Remedy: "a timeout resets the controller, so give one that is long enough"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if err := d.activating(ctx); err != nil {
		return nvmeioctl.Completion{}, err
	}
	d.settle()
	if max := d.st.Profile.MaxTransferBytes; max != 0 && uint64(len(cmd.Data)) > uint64(max) {
		// The kernel does not pass such a command on.
		return nvmeioctl.Completion{}, tooLarge(len(cmd.Data), max)
	}
	r := &request{d: d, c: c, cmd: cmd, param: paramNone}
	var result uint32
	var status nvmespec.Status
	var after []fault.Rule
	changes := false
	if d.trouble {
		var o outcome
		armed := len(d.st.Faults.Rules)
		after, o = r.faultsBefore(ctx)
		if o.taken && o.err == nil {
			d.recordError(r, o.status)
		}
		if o.taken && !d.off && len(d.st.Faults.Rules) < armed {
			// The command saves nothing, and a rule that is used up must not wait
			// for the next process as well.
			d.noteFailure(d.save())
		}
		if o.taken {
			return nvmeioctl.Completion{Status: o.status}, o.err
		}
	}
	if cmd.IO {
		result, status = r.runIO()
	} else {
		result, status, changes = r.runAdmin()
	}
	if r.err != nil {
		return nvmeioctl.Completion{}, r.err
	}
	if status.Code() != 0 && !pendingReset(status) {
		d.recordError(r, status)
		d.logTrouble(status)
		if r.badLBA.OK {
			d.st.Errors.Entries[0].LBA = r.badLBA.Value
		}
		if changes {
			// What a failed command leaves behind is an entry in the error
			// log; a drive keeps it.
			if _, s := d.commit(noChange); s != 0 {
				status = s
			}
		}
	}
	if len(after) > 0 {
		if err := r.faultsAfter(after, status); err != nil {
			return nvmeioctl.Completion{}, err
		}
	}
	return nvmeioctl.Completion{Status: status, Result: uint64(result)}, r.err
}

// noChange is a transaction that only saves.
func noChange(*state) (uint32, nvmespec.Status) { return 0, nvmespec.StatusSuccess }

// pendingReset says that a status reports success that waits for a reset.
func pendingReset(s nvmespec.Status) bool {
	c := s.Code()
	return c == nvmespec.StatusNeedsReset || c == nvmespec.StatusNeedsSubsystemReset || c == nvmespec.StatusNeedsControllerReset
}

// runAdmin checks what all commands have in common and runs the command.
func (r *request) runAdmin() (uint32, nvmespec.Status, bool) {
	a, ok := lookupAdmin(r.profile(), r.cmd.Opcode)
	if !ok {
		result, s := r.fail(nvmespec.StatusInvalidOpcode, 0)
		return result, s, false
	}
	if s := r.checkReserved(a.nsid, a.used); s != 0 {
		return 0, s, a.changes
	}
	if s := r.duringSanitize(); s != 0 {
		return 0, s, false
	}
	if a.changes {
		// What the command leaves in the persistent event log is saved with it.
		r.d.onCommit = r.eventsOf(r.d.st, r.d.clock.Now())
		defer func() { r.d.onCommit = nil }()
	}
	result, s := a.run(r)
	return result, s, a.changes
}

// checkReserved refuses a command with a bit set that means nothing.
func (r *request) checkReserved(nsid bool, used [6]uint32) nvmespec.Status {
	if !nsid && r.cmd.NSID != 0 {
		_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
		return s
	}
	words := [8]uint32{r.cmd.CDW2, r.cmd.CDW3, r.cmd.CDW10, r.cmd.CDW11, r.cmd.CDW12, r.cmd.CDW13, r.cmd.CDW14, r.cmd.CDW15}
	for i, w := range words {
		at, mask := 8+4*i, uint32(0)
		if i >= 2 {
			at, mask = paramCDW10+4*(i-2), used[i-2]
		}
		if extra := w &^ mask; extra != 0 {
			bit := bits.TrailingZeros32(extra)
			_, s := r.fail(nvmespec.StatusInvalidField, uint16(at+bit/8)|uint16(bit%8)<<8)
			return s
		}
	}
	return nvmespec.StatusSuccess
}

// reply copies a structure to the host. Real hardware transfers what the
// command says whatever the buffer holds, so a short buffer is an error here.
func (r *request) reply(b []byte) (uint32, nvmespec.Status) {
	if len(r.cmd.Data) < len(b) {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	copy(r.cmd.Data, b)
	return 0, nvmespec.StatusSuccess
}

// commit changes the state by change and saves it. If change fails or the
// state cannot be saved, nothing has changed.
func (d *Drive) commit(change func(*state) (uint32, nvmespec.Status)) (uint32, nvmespec.Status) {
	before := d.st
	d.st = before.clone()
	result, s := change(d.st)
	if s.Code() != 0 && !pendingReset(s) {
		d.st = before
		return 0, s
	}
	if d.onCommit != nil {
		d.onCommit(d.st, result, s)
	}
	if err := d.save(); err != nil {
		d.st = before
		d.lastSaveError = err
		return 0, nvmespec.StatusInternal
	}
	d.notify()
	return result, s
}

// commitMedia is commit for a change of the media too.
func (d *Drive) commitMedia(change func(*state) (uint32, nvmespec.Status)) (uint32, nvmespec.Status) {
	if d.file == nil {
		return d.commit(change)
	}
	flash, err := d.media.MarshalBinary()
	if err != nil {
		d.lastSaveError = err
		return 0, nvmespec.StatusInternal
	}
	result, s := d.commit(change)
	if s.Code() != 0 && !d.closed {
		if err := d.media.UnmarshalBinary(flash); err != nil {
			// What the flash holds is unknown; a drive that cannot tell must
			// not answer.
			d.lastSaveError = err
			d.closed, d.broken = true, err
		}
	}
	return result, s
}

// spend lets the time pass that a command takes, with the lock given up so
// that others see the drive at work. It is false if the command timed out:
// the host has then reset the controller, and nothing has changed.
func (r *request) spend(d time.Duration) bool {
	drive, limit := r.d, r.cmd.Timeout
	start := drive.clock.Now()
	const steps = 16
	for i := range steps {
		at := d * time.Duration(i+1) / steps
		if at > limit {
			break
		}
		drive.clock.AdvanceTo(start.Add(at))
		drive.unlockedStep()
	}
	if err := drive.gone(); err != nil {
		r.err = err
		return false
	}
	if d <= limit {
		return true
	}
	drive.clock.AdvanceTo(start.Add(limit))
	drive.resetControllerLocked(r.c)
	r.err = fmt.Errorf("%s: command %02xh: no answer within %s, controller was reset: %w", drive.name, r.cmd.Opcode, limit, nvmeioctl.ErrIndeterminate)
	return false
}

// unlockedStep lets others have the drive for a moment.
func (d *Drive) unlockedStep() {
	d.mu.Unlock()
	defer d.mu.Lock()
	if d.onStep != nil {
		d.onStep()
	}
}

// queueCommand answers the commands that make and delete I/O queues. The host
// driver owns the queues; a passed-through command never has a valid one.
func queueCommand(r *request) (uint32, nvmespec.Status) {
	return r.fail(nvmespec.StatusInvalidQueue, paramCDW10)
}

// abort says that the command was not aborted, which is always allowed.
func abort(*request) (uint32, nvmespec.Status) { return 1, nvmespec.StatusSuccess }

// asyncEventRequest is refused: the host driver has used up all that may be
// outstanding. Events come through NextEvent.
func asyncEventRequest(r *request) (uint32, nvmespec.Status) {
	return r.fail(nvmespec.StatusAsyncEventLimit, paramNone)
}
