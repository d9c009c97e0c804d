package endurance

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

const (
	// heldLeast is how long the ledger, which looks at the clock fifty times a
	// second, has to be away before the process counts as held: stopped by a
	// signal, or starved.
	heldLeast = 3 * time.Second
	// jumpLeast is how far the wall clock has to move against the monotonic one
	// before that is an event: less is what a time daemon does.
	jumpLeast = time.Second
)

// lookout is what the ledger's goroutine last saw of the clocks.
type lookout struct {
	seen bool
	at   nvmeioctl.Instant
	// wall and asleep are then the wall clock, and how long the machine has
	// slept since it booted, in nanoseconds.
	wall, asleep int64
	// back is when the process last came back from being held; the seconds from
	// heldFrom to before heldTo were then lost, unless a worker ran in them.
	back             nvmeioctl.Instant
	heldFrom, heldTo int64
}

// asleep is how long the machine has been suspended since it booted: what the
// clock that counts that is ahead of the one that does not.
func asleep() int64 {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	return boot.Nano() - mono.Nano()
}

// lookAround notices that the wall clock jumped, that the machine slept, that the
// process was held: none of it may pass for a quiet drive.
func (m *machine) lookAround() {
	slept := asleep
	if m.cfg.asleep != nil {
		slept = m.cfg.asleep
	}
	now := lookout{seen: true, at: m.clock.Now(), wall: m.clock.Wall().UnixNano(), asleep: slept(),
		back: m.look.back, heldFrom: m.look.heldFrom, heldTo: m.look.heldTo}
	was := m.look
	m.look = now
	if !was.seen {
		return
	}
	away := now.at.Sub(was.at)
	sleep := time.Duration(now.asleep - was.asleep)
	jumped := time.Duration(now.wall-was.wall) - away
	second := m.secondOf(now.at)
	switch {
	case sleep >= jumpLeast:
		text := fmt.Sprintf("the machine slept for %.0f s", sleep.Seconds())
		m.ledger.batch.Gaps = append(m.ledger.batch.Gaps, run.GapRow{Second: m.ledger.cp.NextSecond, WallUnixNS: now.wall, Reason: text})
		m.ledger.event(second, run.EventClock, text+"; the run's seconds do not count that")
	case jumped >= jumpLeast || jumped <= -jumpLeast:
		m.ledger.event(second, run.EventClock, fmt.Sprintf("the wall clock was set by %+.1f s; the run's seconds go on as they were", jumped.Seconds()))
	}
	if away >= heldLeast {
		m.look.back, m.look.heldFrom, m.look.heldTo = now.at, m.secondOf(was.at)+1, second
	}
}

// skip puts a gap in the place of seconds in which the process did not run: rows
// of zeros would say that the drive stood still. A second in which any worker did
// run has a row.
func (m *machine) skip(second int64) bool {
	k := &m.look
	if second < k.heldFrom || second >= k.heldTo {
		return false
	}
	for _, t := range m.threads {
		if t.through < k.heldTo-1 {
			return false
		}
		for _, y := range t.arrived {
			if y.second >= second && y.second < k.heldTo && !y.empty() {
				return false
			}
		}
	}
	seconds := k.heldTo - second
	m.ledger.gap(run.GapRow{Second: second, Seconds: seconds, WallUnixNS: m.wallOf(k.heldTo), Reason: "the process did not run"})
	m.ledger.event(k.heldTo, run.EventHeld, fmt.Sprintf("the process did not run for about %d s: stopped by a signal, or the machine was overloaded", seconds))
	k.heldFrom, k.heldTo = 0, 0
	return true
}
