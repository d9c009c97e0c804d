package sim

import (
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

// ioTimeout is how long the kernel waits for the answer to an I/O command before
// it resets the controller and asks again (nvme_core.io_timeout).
const ioTimeout = 30 * time.Second

// submitTroubled carries out a request while faults are armed or go on. move
// moves its data and may be nil. An error says that the power is off, and that
// the request was not taken.
//
// A command without an answer is what the kernel makes of it: after its time-out
// the controller is reset and the command sent again, so what the queue's user
// sees is a request, and all that come meanwhile, that took so long.
func (q *queue) submitTroubled(req *nvmeioctl.IORequest, status nvmespec.Status, move func(*nvmeioctl.IORequest) nvmespec.Status) error {
	d, r := q.drive, *req
	d.due()
	var after []fault.Rule
	for _, h := range d.hits(true, commandOf(r.Op), 0) {
		switch e := h.Effect; {
		case e.Kind == fault.Fail:
			status = e.Status
		case e.Kind == fault.Delay:
			r.At = r.At.Add(e.Time)
		case e.Kind == fault.Lose, e.Kind == fault.Drop:
			d.hung = true
		case h.When.Moment == fault.After:
			after = append(after, h)
		default:
			d.noteFailure(d.suffer(e))
		}
	}
	if d.off {
		return d.unpowered()
	}
	r.At = max(r.At, d.stalled(r.At))
	if status == 0 {
		status = q.check(&r)
	}
	if status == 0 && r.Op != nvmeioctl.OpFlush {
		status = q.badBlocks(&r)
	}
	if status == 0 && move != nil {
		status = move(&r)
	}
	if move != nil {
		r.Buf = nil
	}
	q.submit(&r, status)
	for _, h := range after {
		if h.Effect.Kind != fault.Corrupt {
			d.noteFailure(d.suffer(h.Effect))
		} else if r.Op == nvmeioctl.OpRead && status == 0 {
			corruptData(req.Buf)
		}
	}
	d.lookForTrouble()
	return nil
}

// noteFailure keeps why a fault could not happen or be saved.
func (d *Drive) noteFailure(err error) {
	if err != nil {
		d.lastSaveError = err
	}
}

// stalled is until when nothing is carried out, on the queues' clock: a hang
// begins or goes on, or the controllers stop for a time.
func (d *Drive) stalled(at nvmeioctl.Instant) nvmeioctl.Instant {
	now := d.clock.Now()
	if d.hung {
		d.stallUntil = max(d.stallUntil, at.Add(ioTimeout))
		d.hung = false
		d.resetControllerLocked(0)
	}
	if left := nvmeioctl.Instant(d.notReadyNS).Sub(now); left > 0 {
		d.stallUntil, d.notReadyNS = max(d.stallUntil, at.Add(left)), 0
	}
	if left := nvmeioctl.Instant(d.st.Firmware.BusyUntilNS).Sub(now); left > 0 {
		d.stallUntil, d.st.Firmware.BusyUntilNS = max(d.stallUntil, at.Add(left)), 0
	}
	return d.stallUntil
}

// badBlocks fails a request that touches bad blocks, and puts it in the error log.
func (q *queue) badBlocks(r *nvmeioctl.IORequest) nvmespec.Status {
	lba, blocks := uint64(r.OffsetBytes)/uint64(q.blockBytes), uint64(r.LengthBytes)/uint64(q.blockBytes)
	s, at := q.drive.badBlocks(q.nsid, lba, blocks, r.Op == nvmeioctl.OpWrite)
	if s != 0 {
		cmd := &nvmeioctl.Command{IO: true, Opcode: commandOf(r.Op), NSID: q.nsid, CDW10: uint32(at), CDW11: uint32(at >> 32)}
		q.drive.recordError(&request{d: q.drive, cmd: cmd, param: paramNone}, s)
	}
	return s
}
