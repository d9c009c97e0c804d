package layer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

func plan(t *testing.T, expr string) FaultPlan {
	t.Helper()
	p, err := ParseFaults(expr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outcome is what happened to one command, in a word.
func outcome(c nvmeioctl.Completion, err error) string {
	switch {
	case errors.Is(err, nvmeioctl.ErrIndeterminate) && errors.Is(err, nvmeioctl.ErrDeviceGone):
		return "cut"
	case errors.Is(err, nvmeioctl.ErrIndeterminate):
		return "unknown"
	case errors.Is(err, nvmeioctl.ErrDeviceGone):
		return "gone"
	case err != nil:
		return err.Error()
	case c.Status != 0:
		return c.Status.Code().Name()
	}
	return "ok"
}

var (
	create   = nvmeioctl.Command{Opcode: 0x0D, Timeout: time.Minute}
	deletion = nvmeioctl.Command{Opcode: 0x0D, CDW10: 1, NSID: 1, Timeout: time.Minute}
	attach   = nvmeioctl.Command{Opcode: 0x15, NSID: 1, Timeout: time.Minute}
	detach   = nvmeioctl.Command{Opcode: 0x15, CDW10: 1, NSID: 1, Timeout: time.Minute}
	format   = nvmeioctl.Command{Opcode: 0x80, NSID: 1, Timeout: time.Minute}
)

func TestFault(t *testing.T) {
	insufficient := nvmespec.Status(0x115).Name()
	for _, c := range []struct {
		expr string
		cmds []nvmeioctl.Command
		want string
		sent int
	}{
		{"", []nvmeioctl.Command{create, format}, "ok ok", 2},
		{"fail 3rd format with 0x4115", []nvmeioctl.Command{format, create, format, format, format}, "ok ok ok " + insufficient + " ok", 4},
		{"fail every nsattach with 0x2115", []nvmeioctl.Command{attach, detach, format}, insufficient + " " + insufficient + " ok", 1},
		{"fail attach with 0x115", []nvmeioctl.Command{attach, detach, attach}, insufficient + " ok " + insufficient, 1},
		{"drop 2nd delete", []nvmeioctl.Command{deletion, create, deletion, deletion}, "ok ok unknown ok", 4},
		{"lose 1st create", []nvmeioctl.Command{create, create}, "unknown ok", 1},
		{"after create power-cut", []nvmeioctl.Command{deletion, create, attach}, "ok cut gone", 2},
		{"before create power-cut", []nvmeioctl.Command{deletion, create, attach}, "ok cut gone", 1},
		{"after 2nd any power-cut", []nvmeioctl.Command{deletion, create, attach}, "ok cut gone", 2},
		{"fail 1st create with 0x115; drop 2nd create", []nvmeioctl.Command{create, create, create}, insufficient + " unknown ok", 2},
	} {
		d := newDrive()
		f := Fault(d, plan(t, c.expr), virtual())
		var got []string
		for _, cmd := range c.cmds {
			got = append(got, outcome(f.Submit(t.Context(), &cmd)))
		}
		if text := strings.Join(got, " "); text != c.want || len(d.sent) != c.sent {
			t.Errorf("%s: %q with %d carried out, want %q with %d", c.expr, text, len(d.sent), c.want, c.sent)
		}
	}
}

func TestFault_errorsLookLikeTheKernels(t *testing.T) {
	f := Fault(newDrive(), plan(t, "drop create"), virtual())
	_, err := f.Submit(t.Context(), &create)
	if sys, ok := errors.AsType[*os.SyscallError](err); !ok || sys.Syscall != "ioctl" {
		t.Errorf("%v", err)
	}
}

func TestFault_corruptAndDelay(t *testing.T) {
	clock := virtual()
	d := newDrive()
	f := Fault(d, plan(t, "delay 2s 2nd identify; corrupt 1st identify; corrupt log 0x02"), clock)
	page := func() []byte {
		b := make([]byte, 4096)
		if _, err := f.Submit(t.Context(), &nvmeioctl.Command{Opcode: 6, CDW10: 1, Data: b, Timeout: 1}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	bad, at1 := page(), clock.Now()
	good, at2 := page(), clock.Now()
	if bytes.Equal(bad, good) || string(good[4:6]) != "S1" {
		t.Errorf("the first page is not damaged: %q %q", bad[:24], good[:24])
	}
	if at1 != 0 || at2 != nvmeioctl.Instant(2*time.Second) {
		t.Errorf("delays: %v, %v", at1, at2)
	}
	log := make([]byte, 16)
	for _, lid := range []uint32{1, 2} {
		clear(log)
		if _, err := f.Submit(t.Context(), &nvmeioctl.Command{Opcode: 2, CDW10: lid, Data: log, Timeout: 1}); err != nil {
			t.Fatal(err)
		}
		if damaged := !bytes.Equal(log, make([]byte, 16)); damaged != (lid == 2) {
			t.Errorf("log %d damaged: %v", lid, damaged)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Submit(cancelled, &create); !errors.Is(err, context.Canceled) || len(d.sent) != 2 {
		t.Errorf("cancelled: %v, %d sent", err, len(d.sent))
	}
}

// cycled is a drive that can lose power.
type cycled struct {
	*drive
	cycles []bool
}

func (c *cycled) PowerCycle(clean bool) error { c.cycles = append(c.cycles, clean); return nil }

func TestFault_powerOn(t *testing.T) {
	d := &cycled{drive: newDrive()}
	f := Fault(d, plan(t, "after create power-cut"), virtual())
	if err := f.PowerOn(); err != nil || len(d.cycles) != 0 {
		t.Errorf("power on while on: %v, %v", err, d.cycles)
	}
	_, _ = f.Submit(t.Context(), &create)
	if err := f.ResetController(t.Context()); !f.PowerOff() || !errors.Is(err, nvmeioctl.ErrDeviceGone) {
		t.Errorf("reset without power: %v", err)
	}
	if err := f.PowerOn(); err != nil || len(d.cycles) != 1 || d.cycles[0] {
		t.Errorf("%v, cycles (clean?) %v", err, d.cycles)
	}
	if got := outcome(f.Submit(t.Context(), &create)); got != "ok" {
		t.Errorf("after the cut: %s", got)
	}
	if err := errors.Join(f.ResetController(t.Context()), f.ResetSubsystem(t.Context()), f.Rescan(t.Context())); err != nil || len(d.resets) != 3 {
		t.Errorf("%v, %v", err, d.resets)
	}
}

// armer is a drive that has a model of its own.
type armer struct {
	*drive
	armed string
}

func (a *armer) Arm(p fault.Plan) error { a.armed = p.String(); return nil }

func TestFault_leavesTheDriveWhatIsItsOwn(t *testing.T) {
	script := "now read-only; drop 1st create; at 10GB hang; after create power-cut"
	a := &armer{drive: newDrive()}
	f := Fault(a, plan(t, script), virtual())
	if want := "now read-only; at 10GB hang"; a.armed != want {
		t.Errorf("armed %q, want %q", a.armed, want)
	}
	if got := outcome(f.Submit(t.Context(), &create)); got == "ok" {
		t.Errorf("the first create got an answer")
	}
	// A drive without a model: nothing may look as if it had happened.
	d := newDrive()
	f = Fault(d, plan(t, script), virtual())
	if _, err := f.Submit(t.Context(), &create); !errors.Is(err, nvmeioctl.ErrNotSupported) || len(d.sent) != 0 {
		t.Errorf("%v, %d sent", err, len(d.sent))
	}
}
