package sim

import (
	"context"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

// outcome is what becomes of a command that the faults have taken over.
type outcome struct {
	status nvmespec.Status
	err    error
	taken  bool
}

// faultsBefore lets the faults have a command before it is carried out. after
// are those that come when it has been.
func (r *request) faultsBefore(ctx context.Context) (after []fault.Rule, o outcome) {
	d := r.d
	for _, h := range d.hits(r.cmd.IO, r.cmd.Opcode, r.cmd.CDW10) {
		if h.When.Moment == fault.After {
			after = append(after, h)
			continue
		}
		switch h.Effect.Kind {
		case fault.Fail:
			r.param = paramNone
			return nil, outcome{status: h.Effect.Status, taken: true}
		case fault.Lose:
			return nil, outcome{err: r.unanswered("it never arrived"), taken: true}
		case fault.Delay:
			if err := r.delay(ctx, h.Effect.Time); err != nil {
				return nil, outcome{err: err, taken: true}
			}
		default:
			if err := d.suffer(h.Effect); err != nil {
				d.lastSaveError = err
			}
		}
	}
	d.lookForTrouble()
	switch {
	case d.off:
		return nil, outcome{err: d.cutAt(r.cmd, "before"), taken: true}
	case d.hung:
		return nil, outcome{err: r.unanswered("the controller hangs"), taken: true}
	}
	if s := r.notReady(); s != 0 {
		return nil, outcome{status: s, taken: true}
	}
	return after, outcome{}
}

// faultsAfter lets the faults have a command that was carried out.
func (r *request) faultsAfter(after []fault.Rule, status nvmespec.Status) error {
	var lost error
	for _, h := range after {
		switch h.Effect.Kind {
		case fault.Drop:
			lost = r.unanswered("the answer was lost")
		case fault.Corrupt:
			if status.Code() == 0 && r.cmd.ReadsFromDevice() {
				corruptData(r.cmd.Data)
			}
		default:
			if err := r.d.suffer(h.Effect); err != nil {
				r.d.lastSaveError = err
			}
			if r.d.off {
				return r.d.cutAt(r.cmd, "after")
			}
		}
	}
	r.d.lookForTrouble()
	return lost
}

// corruptData flips one bit in every seventh byte, the first one included:
// enough for a signature or a counter to be wrong and little enough to look like
// data.
func corruptData(b []byte) {
	for i := 0; i < len(b); i += 7 {
		b[i] ^= 1 << (i % 8)
	}
}

// unanswered ends a command that gets no answer. A host over a network resets
// the controller itself, when it likes; for any other the command's time-out
// passes at once, and the kernel has reset the controller.
func (r *request) unanswered(why string) error {
	d := r.d
	if d.hosts == nil {
		d.clock.AdvanceTo(d.clock.Now().Add(min(r.cmd.Timeout, hostPatience)))
		d.hung = false
		d.resetControllerLocked(r.c)
		d.lookForTrouble()
		why += ", and the controller was reset"
	}
	return d.noAnswer(r.cmd, why)
}

// hostPatience bounds how long a host in virtual time waits for an answer,
// whatever time-out a command was given.
const hostPatience = time.Hour

// delay holds a command back.
func (r *request) delay(ctx context.Context, t time.Duration) error {
	if r.d.hosts != nil {
		if err := r.d.wait(ctx, t); err != nil {
			return err
		}
		return r.d.gone()
	}
	if r.spend(t) {
		return nil
	}
	return r.err
}

// notReady is the status of a command while the media is not ready.
func (r *request) notReady() nvmespec.Status {
	if r.d.notReadyNS <= int64(r.d.clock.Now()) {
		return 0
	}
	r.param = paramNone
	if r.cmd.IO {
		return nvmespec.StatusNamespaceNotReady
	}
	switch r.cmd.Opcode {
	case nvmespec.AdminNamespaceManage, nvmespec.AdminFormatNVM, nvmespec.AdminSanitize, nvmespec.AdminDeviceSelfTest,
		nvmespec.AdminFirmwareCommit:
		return nvmespec.StatusAdminMediaNotReady
	}
	return 0
}

// badBlocks fails a command that touches blocks gone bad. Writing blocks that
// cannot be read gives them a new place, so they can be read again.
func (r *request) badBlocks(ns *namespace, lba, blocks uint64, write bool) nvmespec.Status {
	s, at := r.d.badBlocks(ns.NSID, lba, blocks, write)
	if s != 0 {
		r.param, r.badLBA = paramNone, nvmespec.Some(at)
	}
	return s
}

// badBlocks is the status of a command on a range, and the first block at fault.
func (d *Drive) badBlocks(nsid uint32, lba, blocks uint64, write bool) (nvmespec.Status, uint64) {
	f := &d.st.Faults
	if write && f.ReadOnly {
		return statusReadOnly, lba
	}
	if len(f.Bad) == 0 || blocks == 0 {
		return 0, 0
	}
	last := lba + blocks - 1
	first, hit := uint64(0), false
	for i := range f.Bad {
		b := &f.Bad[i]
		if b.NSID != nsid || b.Write != write || b.Last < lba || b.First > last {
			continue
		}
		f.find(b)
		if at := max(b.First, lba); !hit || at < first {
			first, hit = at, true
		}
	}
	switch {
	case hit:
		f.MediaErrors++
		if write {
			return nvmespec.StatusWriteFault | nvmespec.StatusDNR, first
		}
		return nvmespec.StatusUnrecoveredRead | nvmespec.StatusDNR, first
	case write:
		if d.readable(nsid, lba, last) {
			// What a host made unreadable it may count on reading again.
			if err := d.save(); err != nil {
				d.lastSaveError = err
			}
		}
	}
	return 0, 0
}

// find notes that a range has been found unreadable.
func (f *faultState) find(b *badRange) {
	if !b.Write && !b.known() {
		b.Found = true
		f.StatusChanges++
	}
}

// readable takes blocks out of those that cannot be read: they were written. True
// is that some were made so by a host.
func (d *Drive) readable(nsid uint32, first, last uint64) (told bool) {
	f := &d.st.Faults
	var left []badRange
	known := false
	for _, b := range f.Bad {
		if b.NSID != nsid || b.Write || b.Last < first || b.First > last {
			left = append(left, b)
			continue
		}
		told, known = told || b.Told, known || b.known()
		before, after := b, b
		before.Last, after.First = first-1, last+1
		if b.First < first {
			left = append(left, before)
		}
		if b.Last > last {
			left = append(left, after)
		}
	}
	f.Bad = left
	if known {
		f.StatusChanges++
	}
	d.lookForTrouble()
	return told
}

// commandOf is the opcode of a queue's request.
func commandOf(op nvmeioctl.IOOp) uint8 {
	switch op {
	case nvmeioctl.OpRead:
		return nvmespec.IOOpRead
	case nvmeioctl.OpWrite:
		return nvmespec.IOOpWrite
	}
	return nvmespec.IOOpFlush
}
