package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// lookEvery is how often a drive that has gone is looked for.
const lookEvery = 500 * time.Millisecond

// run carries the job out, and goes on by itself when the drive goes away and
// comes back, whatever it is called then: it is the same by its identity, and
// nobody uses it.
func (s *soakSession) run(ctx context.Context, show endurance.Observer, watch *soakWatch) (run.Verdict, error) {
	for {
		v, err := s.stretch(ctx, show, watch)
		if !errors.Is(err, nvmeioctl.ErrDeviceGone) || !s.waitsFor() || ctx.Err() != nil {
			return v, err
		}
		if again := s.rebind(ctx); again != nil {
			return v, errors.Join(err, again)
		}
	}
}

// waitsFor says whether the target is one that can come back: a drive of this
// host.
func (s *soakSession) waitsFor() bool {
	return s.flags.Reappear > 0 && s.target.drive != nil && s.target.drive.sim == nil
}

// rebind waits until the run's drive is there again, makes sure that it is the
// same and that nobody uses it, and takes the run up where it was left.
func (s *soakSession) rebind(ctx context.Context) error {
	h := s.header
	s.note("drive %s is gone: waiting %s for it to come back", h.Serial, s.flags.Reappear)
	old := s.target
	if err := old.close(); err != nil {
		s.note("the drive that is gone: %v", err)
	}
	flags := s.flags
	flags.NSID, flags.Overwrite = nsidFlag(h.NSID), true
	flags.resumed, flags.resumedLBA = h.Job.CapacityBytes, h.LBADataBytes
	flags.engineFlags = flags.asBefore(h)
	clock := s.app.clock
	var last error
	for end := clock.Now().Add(s.flags.Reappear); ; {
		if last = s.reopen(ctx, flags); last == nil {
			break
		}
		if refused, ok := errors.AsType[*nvmeioctl.RefusedError](last); ok && refused.Check == "identity" {
			return last // anything else may pass: udev looks at every new drive
		}
		if clock.Now() >= end {
			return fmt.Errorf("drive %s did not come back within %s: %w", h.Serial, s.flags.Reappear, last)
		}
		if err := clock.Sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
	recorder, full, err := s.journal.ResumeRun(ctx, s.recorder.ID())
	if err != nil {
		return err
	}
	s.recorder, s.full = recorder, &full
	s.note("drive %s is back as %s: run %s goes on", h.Serial, s.target.path, recorder.ID())
	return nil
}

// reopen opens the run's drive where it is now. The old target stays the
// session's, closed, until there is a new one.
func (s *soakSession) reopen(ctx context.Context, flags soakFlags) error {
	address, err := findBySerial(s.header)
	if err != nil {
		return err
	}
	t, err := s.app.openSoak(ctx, address, flags)
	if err != nil {
		return err
	}
	err = t.same(s.header)
	if err == nil && s.writes() {
		if err = t.check(ctx, s.kinds); err == nil {
			err = t.hold()
		}
	}
	if err != nil {
		return errors.Join(err, t.close())
	}
	s.target = t
	return nil
}
