package sim

import (
	"fmt"
	"os"
	"syscall"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// contentsQueue is an I/O queue of a drive that keeps its contents: the timing
// and the counting of [queue], and the data. Data moves when a request is
// submitted, which is one of the orders in which a drive may carry out requests
// that are outstanding together.
type contentsQueue struct {
	*queue
	kept *keptMedia
}

// newContentsQueue puts contents behind a queue, or says why it cannot. The
// drive's lock is held.
func (d *Drive) newContentsQueue(q *queue) (nvmeioctl.IOQueue, error) {
	ns := d.st.find(q.nsid)
	if ns.ExtendedMetadata && d.st.Profile.Formats[ns.FormatIndex].MetadataBytes != 0 {
		return nil, &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("I/O queue to namespace %d of %s", q.nsid, d.name),
			Needs:   "a format without metadata in the data, on a drive that keeps its contents",
		}
	}
	return &contentsQueue{queue: q, kept: d.kept()}, nil
}

// refuseLapse says why a drive that keeps its contents has no time lapse.
func (d *Drive) refuseLapse(lapse uint32) error {
	if d.kept() == nil || lapse <= 1 {
		return nil
	}
	e := &nvmeioctl.UnsupportedError{
		Feature: fmt.Sprintf("time lapse %d on %s", lapse, d.name), Needs: "a drive that keeps no contents",
		Have: "one write stands for many under a time lapse, and this drive keeps what each of them wrote",
	}
	if d.file != nil {
		e.Have += fmt.Sprintf("; remove %s to give its contents up, or make the drive with --contents none", d.file.path+contentsSuffix)
	}
	return e
}

// DiscardsData implements nvmeioctl.DataDiscarder.
func (q *contentsQueue) DiscardsData() bool { return false }

// Submit implements nvmeioctl.IOQueue.
func (q *contentsQueue) Submit(reqs []nvmeioctl.IORequest) (int, error) {
	d := q.drive
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gone(); err != nil {
		return 0, err
	}
	if q.closed {
		return 0, fmt.Errorf("%s: queue to namespace %d: %w", d.name, q.nsid, os.ErrClosed)
	}
	n := min(len(reqs), q.depth-q.outstanding)
	look := q.look()
	for i := range reqs[:n] {
		r := reqs[i]
		if r.Op != nvmeioctl.OpFlush && len(r.Buf) < int(r.LengthBytes) {
			q.outstanding += i
			return i, fmt.Errorf("%s: request of %d bytes with a buffer of %d: %w", d.name, r.LengthBytes, len(r.Buf), syscall.EINVAL)
		}
		if d.trouble {
			if err := q.submitTroubled(&r, look, q.move); err != nil {
				q.outstanding += i
				return i, err
			}
			continue
		}
		status := look
		if status == 0 {
			status = q.check(&r)
		}
		if status == 0 {
			status = q.move(&r)
		}
		r.Buf = nil // it has been filled
		q.submit(&r, status)
	}
	q.outstanding += n
	return n, nil
}

// move moves the data of a request.
func (q *contentsQueue) move(r *nvmeioctl.IORequest) nvmespec.Status {
	var err error
	status := nvmespec.StatusWriteFault
	switch r.Op {
	case nvmeioctl.OpRead:
		status = nvmespec.StatusUnrecoveredRead
		err = q.kept.read(q.nsid, r.Buf[:r.LengthBytes], uint64(r.OffsetBytes))
	case nvmeioctl.OpWrite:
		through := r.FUA || !q.drive.cacheEnabled(0)
		err = q.kept.write(q.nsid, r.Buf[:r.LengthBytes], uint64(r.OffsetBytes), through)
	default:
		if q.kept.cache != nil {
			err = q.kept.cache.destage(q.nsid)
		}
	}
	if err != nil {
		q.drive.lastSaveError = fmt.Errorf("%s: contents: %w", q.drive.name, err)
		return status | nvmespec.StatusDNR
	}
	return 0
}
