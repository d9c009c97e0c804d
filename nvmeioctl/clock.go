package nvmeioctl

import (
	"context"
	"sync"
	"time"
)

// Instant is a time on a [Clock], in nanoseconds since that clock's own
// beginning. Instants of different clocks cannot be compared.
type Instant int64

// Never is later than every instant.
const Never = Instant(1<<63 - 1)

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Clock is the time of the world a drive lives in. It is safe for concurrent use.
type Clock interface {
	// Now never goes backwards and does not jump when the wall clock is set.
	Now() Instant
	// Wall is the calendar time of now, UTC.
	Wall() time.Time
	// Sleep returns after d on this clock, or with ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
}

// SystemClock is the monotonic clock of this machine. Make one with [NewSystemClock].
type SystemClock struct{ start time.Time }

// NewSystemClock starts a clock at 0.
func NewSystemClock() *SystemClock { return &SystemClock{start: time.Now()} }

// Now implements Clock.
func (c *SystemClock) Now() Instant { return Instant(time.Since(c.start)) }

// Wall implements Clock.
func (c *SystemClock) Wall() time.Time { return time.Now().UTC() }

// Sleep implements Clock.
func (c *SystemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// VirtualClock is the clock of a simulated world: it moves only when somebody
// sleeps on it or advances it, and then at once.
type VirtualClock struct {
	mu   sync.Mutex
	now  Instant
	wall time.Time
}

// NewVirtualClock starts at instant 0, which is the calendar time wall.
func NewVirtualClock(wall time.Time) *VirtualClock { return &VirtualClock{wall: wall.UTC()} }

// Now implements Clock.
func (c *VirtualClock) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Wall implements Clock.
func (c *VirtualClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall.Add(time.Duration(c.now))
}

// Sleep implements Clock by advancing it.
func (c *VirtualClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.AdvanceTo(c.Now().Add(d))
	return nil
}

// AdvanceTo moves the clock to t; an earlier t changes nothing.
func (c *VirtualClock) AdvanceTo(t Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, t)
}
