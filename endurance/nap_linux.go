package endurance

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

const (
	// napGrain is how late the runtime's own timers may be: they are rounded up
	// to a millisecond.
	napGrain = 2 * time.Millisecond
	// napLeast is not worth a system call.
	napLeast = 2 * time.Microsecond
)

// nap waits on a worker's thread until an instant: by the clock as long as it is
// far, and near it by the kernel's timer, so that a rate is kept to microseconds.
func (m *machine) nap(until nvmeioctl.Instant) {
	left := until.Sub(m.clock.Now())
	if left > napGrain {
		_ = m.clock.Sleep(context.Background(), left-napGrain)
		left = until.Sub(m.clock.Now())
	}
	if left > napLeast && left <= napGrain {
		ts := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&ts, nil) // cut short by a signal: the caller looks at the clock again
	}
}
