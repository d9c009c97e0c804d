package endurance

import (
	"fmt"

	"golang.org/x/sys/unix"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
)

// pin ties the calling thread to the n-th of the processors that the process
// may use, counted around.
func pin(n int) error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("pin worker %d: read the processors allowed: %w", n, err)
	}
	left := n % max(all.Count(), 1)
	for cpu := 0; cpu < len(all)*64; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if left == 0 {
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("pin worker %d to processor %d: %w", n, cpu, err)
			}
			return nil
		}
		left--
	}
	return nil
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
	w.data = workload.NewData(job.Seed)
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
