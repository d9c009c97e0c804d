package layer

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
)

// Faulty is a device that misbehaves as planned. Make one with [Fault].
type Faulty struct {
	dev   nvmeioctl.Device
	rules []fault.Rule
	clock nvmeioctl.Clock
	// unarmed is why the drive cannot do what the plan asks of it.
	unarmed error
	mu      sync.Mutex
	// counts are how many commands each rule has matched so far.
	counts []int
	off    bool
}

// Fault makes dev misbehave as planned. Delays are slept on clock. It belongs
// innermost, right around the drive. It is safe for concurrent use.
//
// What happens to single commands, power cuts included, happens here, whatever
// the device is. All else of the plan is armed in the drive, if it is an
// [Armer]; if it is not, no command gets an answer.
func Fault(dev nvmeioctl.Device, plan FaultPlan, clock nvmeioctl.Clock) *Faulty {
	here, drive := plan.Split()
	f := &Faulty{dev: dev, rules: here.Rules(), clock: clock, counts: make([]int, len(here.Rules()))}
	if len(drive.Rules()) == 0 {
		return f
	}
	if a, ok := nvmeioctl.As[Armer](dev); ok {
		f.unarmed = a.Arm(drive)
	} else {
		f.unarmed = &nvmeioctl.UnsupportedError{Feature: fmt.Sprintf("fault %q on %s", drive, dev), Needs: "a simulated drive"}
	}
	return f
}

// Submit implements nvmeioctl.Device.
func (f *Faulty) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if f.unarmed != nil {
		return nvmeioctl.Completion{}, f.unarmed
	}
	hits, off := f.match(cmd)
	if off {
		return nvmeioctl.Completion{}, f.gone()
	}
	for _, r := range hits {
		switch {
		case r.When.Moment == fault.After:
		case r.Effect.Kind == fault.Delay:
			if err := f.clock.Sleep(ctx, r.Effect.Time); err != nil {
				return nvmeioctl.Completion{}, err
			}
		case r.Effect.Kind == fault.Fail:
			return nvmeioctl.Completion{Status: r.Effect.Status}, nil
		case r.Effect.Kind == fault.Lose:
			return nvmeioctl.Completion{}, f.noAnswer(cmd, "never arrived")
		case r.Effect.Kind == fault.PowerCut:
			f.cut()
			return nvmeioctl.Completion{}, fmt.Errorf("%w: %w", f.noAnswer(cmd, "the power was cut before it"), nvmeioctl.ErrDeviceGone)
		}
	}
	c, err := f.dev.Submit(ctx, cmd)
	if err != nil {
		return c, err
	}
	for _, r := range hits {
		switch {
		case r.When.Moment == fault.Before:
		case r.Effect.Kind == fault.Drop:
			return nvmeioctl.Completion{}, f.noAnswer(cmd, "the answer was lost")
		case r.Effect.Kind == fault.PowerCut:
			f.cut()
			return nvmeioctl.Completion{}, fmt.Errorf("%w: %w", f.noAnswer(cmd, "the power was cut after it"), nvmeioctl.ErrDeviceGone)
		case r.Effect.Kind == fault.Corrupt:
			if c.Status.Code() == 0 {
				corrupt(cmd.Data)
			}
		}
	}
	return c, nil
}

// match counts the command against each rule and returns those whose turn it is.
func (f *Faulty) match(cmd *nvmeioctl.Command) (hits []fault.Rule, off bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return nil, true
	}
	for i, r := range f.rules {
		if !r.Matches(cmd.IO, cmd.Opcode, cmd.CDW10) {
			continue
		}
		f.counts[i]++
		if r.When.Nth == 0 || r.When.Nth == f.counts[i] {
			hits = append(hits, r)
		}
	}
	return hits, false
}

// noAnswer is what the kernel says of a command that it gave up waiting for.
func (f *Faulty) noAnswer(cmd *nvmeioctl.Command, why string) error {
	return fmt.Errorf("%w (fault: %s: %s): %w", nvmeioctl.ErrIndeterminate, FormatCommand(cmd), why,
		&os.SyscallError{Syscall: "ioctl", Err: syscall.EINTR})
}

func (f *Faulty) gone() error {
	return fmt.Errorf("%w (fault: the power is off): %w", nvmeioctl.ErrDeviceGone,
		&os.SyscallError{Syscall: "ioctl", Err: syscall.ENODEV})
}

// corrupt flips one bit in every seventh byte, the first one included: enough
// for a signature or a counter to be wrong and little enough to look like data.
func corrupt(b []byte) {
	for i := 0; i < len(b); i += 7 {
		b[i] ^= 1 << (i % 8)
	}
}

func (f *Faulty) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
}

// PowerOff says whether a rule has cut the power.
func (f *Faulty) PowerOff() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.off
}

// PowerOn ends a power cut. A drive that can lose power (it has a method
// PowerCycle(clean bool) error, as the simulated one) does so, not cleanly.
// Rules go on counting where they were.
func (f *Faulty) PowerOn() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.off {
		return nil
	}
	f.off = false
	type cycler interface{ PowerCycle(clean bool) error }
	if c, ok := nvmeioctl.As[cycler](f.dev); ok {
		return c.PowerCycle(false)
	}
	return nil
}

func (f *Faulty) String() string { return f.dev.String() }

// Close implements nvmeioctl.Device.
func (f *Faulty) Close() error { return f.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper.
func (f *Faulty) Unwrap() nvmeioctl.Device { return f.dev }

// powered passes a request on unless the power is off.
func (f *Faulty) powered(what string, call func(nvmeioctl.Resetter) error) error {
	if f.PowerOff() {
		return f.gone()
	}
	return withResetter(f.dev, what, call)
}

// ResetController implements nvmeioctl.Resetter.
func (f *Faulty) ResetController(ctx context.Context) error {
	return f.powered("controller reset", func(r nvmeioctl.Resetter) error { return r.ResetController(ctx) })
}

// ResetSubsystem implements nvmeioctl.Resetter.
func (f *Faulty) ResetSubsystem(ctx context.Context) error {
	return f.powered("subsystem reset", func(r nvmeioctl.Resetter) error { return r.ResetSubsystem(ctx) })
}

// Rescan implements nvmeioctl.Resetter.
func (f *Faulty) Rescan(ctx context.Context) error {
	return f.powered("rescan", func(r nvmeioctl.Resetter) error { return r.Rescan(ctx) })
}
