package endurance

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// place ties the calling thread to processors: to those close to the drive,
// near, as far as the process may use them, or, when one is true, to the n-th of
// them, counted around. near may be nil: then all are meant. changed says that
// the thread is no longer like others.
func place(n int, near []int, one bool) (changed bool, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return false, fmt.Errorf("place worker %d: read the processors allowed: %w", n, err)
	}
	allowed := near[:0:0]
	for _, cpu := range near {
		if all.IsSet(cpu) {
			allowed = append(allowed, cpu)
		}
	}
	if len(allowed) == 0 {
		for cpu := range len(all) * 64 {
			if all.IsSet(cpu) {
				allowed = append(allowed, cpu)
			}
		}
	}
	if !one && len(allowed) == all.Count() {
		return false, nil
	}
	if one {
		allowed = allowed[n%len(allowed):][:1]
	}
	var set unix.CPUSet
	for _, cpu := range allowed {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return false, fmt.Errorf("place worker %d on processors %v: %w", n, allowed, err)
	}
	return true, nil
}

// equip gives a worker its buffers, one a slot, in one mapping of its own: the
// kernel reads and writes them long after the call. A queue that keeps no
// contents needs none.
func (w *worker) equip(job *run.Job) error {
	if d, ok := w.queue.(nvmeioctl.DataDiscarder); ok && d.DiscardsData() {
		return nil
	}
	block := 0
	for _, p := range job.Phases {
		block = max(block, int(p.BlockBytes))
	}
	const page = 4096
	each := (block + page - 1) / page * page
	if each == 0 {
		return nil
	}
	all, err := unix.Mmap(-1, 0, each*len(w.slots), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("worker %d: map %d buffers of %d bytes: %w", w.id, len(w.slots), each, err)
	}
	w.mapping = all
	w.buffers = make([][]byte, len(w.slots))
	for i := range w.buffers {
		w.buffers[i] = all[i*each : i*each+block : i*each+block]
	}
	w.data = w.track.source
	if w.headerOnly = job.Data.HeaderOnly; w.headerOnly {
		// The bodies that stay: each slot's is another one.
		lbas := uint64(each) / uint64(max(job.LBABytes, 1))
		for i := range w.slots {
			w.data.Fill(all[i*each:(i+1)*each], uint64(i)*lbas, 0)
		}
	}
	w.flush.every = time.Duration(job.Verify.FlushIntervalNS)
	return nil
}

// release closes the queue and gives the buffers back. Nothing may be
// outstanding any more.
func (w *worker) release() error {
	err := w.queue.Close()
	if w.mapping != nil && w.outstanding == 0 {
		if unmapErr := unix.Munmap(w.mapping); err == nil && unmapErr != nil {
			err = fmt.Errorf("worker %d: unmap buffers: %w", w.id, unmapErr)
		}
		w.mapping, w.buffers = nil, nil
	}
	return err
}
