package layer

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Traced is a device whose commands are written down. Make one with [Trace].
type Traced struct {
	dev   nvmeioctl.Device
	clock nvmeioctl.Clock
	mu    sync.Mutex // one line at a time
	w     io.Writer
	err   error
}

// Trace writes one line per command, reset and rescan to w, after it ended.
// Durations are those of clock. A writer that fails does not fail the command:
// the first such error is returned by Close.
func Trace(dev nvmeioctl.Device, w io.Writer, clock nvmeioctl.Clock) *Traced {
	return &Traced{dev: dev, w: w, clock: clock}
}

// Submit implements nvmeioctl.Device.
func (t *Traced) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	start := t.clock.Now()
	c, err := t.dev.Submit(ctx, cmd)
	outcome := fmt.Sprintf("status 0x%04x", uint16(c.Status))
	if c.Status.Code() != 0 {
		outcome += " (" + c.Status.Name() + ")"
	}
	if c.Result != 0 {
		outcome += fmt.Sprintf(" result 0x%x", c.Result)
	}
	t.line(FormatCommand(cmd), outcome, start, err)
	return c, err
}

func (t *Traced) line(what, outcome string, start nvmeioctl.Instant, err error) {
	if err != nil {
		outcome = "error: " + err.Error()
	}
	took := t.clock.Now().Sub(start)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, werr := fmt.Fprintf(t.w, "%s: %s -> %s, %v\n", t.dev, what, outcome, took); werr != nil && t.err == nil {
		t.err = fmt.Errorf("trace: %w", werr)
	}
}

// FormatCommand is a command in one line: its name, opcode, namespace, every
// command dword that is not 0, its transfer and its time-out.
func FormatCommand(cmd *nvmeioctl.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s 0x%02x)", nvmespec.CommandName(!cmd.IO, cmd.Opcode), queueName(cmd.IO), cmd.Opcode)
	switch cmd.NSID {
	case 0:
	case nvmespec.BroadcastNSID:
		b.WriteString(" nsid all")
	default:
		fmt.Fprintf(&b, " nsid %d", cmd.NSID)
	}
	for _, d := range []struct {
		name  string
		value uint32
	}{
		{"cdw2", cmd.CDW2}, {"cdw3", cmd.CDW3}, {"cdw10", cmd.CDW10}, {"cdw11", cmd.CDW11},
		{"cdw12", cmd.CDW12}, {"cdw13", cmd.CDW13}, {"cdw14", cmd.CDW14}, {"cdw15", cmd.CDW15},
	} {
		if d.value != 0 {
			fmt.Fprintf(&b, " %s 0x%08x", d.name, d.value)
		}
	}
	if len(cmd.Data) > 0 {
		direction := "in"
		if cmd.WritesToDevice() {
			direction = "out"
		}
		fmt.Fprintf(&b, " data %s %d B", direction, len(cmd.Data))
	}
	if len(cmd.Metadata) > 0 {
		fmt.Fprintf(&b, " metadata %d B", len(cmd.Metadata))
	}
	fmt.Fprintf(&b, " timeout %v", cmd.Timeout)
	return b.String()
}

func queueName(io bool) string {
	if io {
		return "I/O"
	}
	return "admin"
}

func (t *Traced) String() string { return t.dev.String() }

// Close implements nvmeioctl.Device.
func (t *Traced) Close() error {
	err := t.dev.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		err = t.err
	}
	return err
}

// Unwrap implements nvmeioctl.Wrapper.
func (t *Traced) Unwrap() nvmeioctl.Device { return t.dev }

// traced makes a call of the device's Resetter and writes it down.
func (t *Traced) traced(what string, call func(nvmeioctl.Resetter) error) error {
	start := t.clock.Now()
	err := withResetter(t.dev, what, call)
	t.line(what, "done", start, err)
	return err
}

// ResetController implements nvmeioctl.Resetter.
func (t *Traced) ResetController(ctx context.Context) error {
	return t.traced("controller reset", func(r nvmeioctl.Resetter) error { return r.ResetController(ctx) })
}

// ResetSubsystem implements nvmeioctl.Resetter.
func (t *Traced) ResetSubsystem(ctx context.Context) error {
	return t.traced("subsystem reset", func(r nvmeioctl.Resetter) error { return r.ResetSubsystem(ctx) })
}

// Rescan implements nvmeioctl.Resetter.
func (t *Traced) Rescan(ctx context.Context) error {
	return t.traced("rescan", func(r nvmeioctl.Resetter) error { return r.Rescan(ctx) })
}

// withResetter calls the Resetter further in, or says that there is none.
func withResetter(dev nvmeioctl.Device, what string, call func(nvmeioctl.Resetter) error) error {
	r, ok := nvmeioctl.As[nvmeioctl.Resetter](dev)
	if !ok {
		return &nvmeioctl.UnsupportedError{Feature: what, Have: dev.String() + " has none"}
	}
	return call(r)
}
