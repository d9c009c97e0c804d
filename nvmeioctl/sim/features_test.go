package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

func getFeature(fid, sel uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x0A, CDW10: fid | sel<<8}
}

func setFeature(fid, value uint32, save bool) nvmeioctl.Command {
	c := nvmeioctl.Command{Opcode: 0x09, CDW10: fid, CDW11: value}
	if save {
		c.CDW10 |= 1 << 31
	}
	return c
}

// TestFeatureValues: current, default and saved are three values, and a reset
// brings back the saved one (PWR-09).
func TestFeatureValues(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	three := func(current, standard, saved uint32) {
		t.Helper()
		for sel, want := range []uint32{current, standard, saved} {
			if got := h.want(getFeature(2, uint32(sel)), 0); got != want {
				t.Errorf("select %d: %d, want %d", sel, got, want)
			}
		}
	}
	three(0, 0, 0)
	h.want(setFeature(2, 3, false), 0)
	three(3, 0, 0)
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	three(0, 0, 0)
	h.want(setFeature(2, 2, true), 0)
	h.want(setFeature(2, 4, false), 0)
	three(4, 0, 2)
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	three(2, 0, 2)
	if s := h.smart(); s.UnsafeShutdowns.Lo != 1 || s.PowerCycles.Lo != 2 {
		t.Errorf("after a power cut: %+v", s)
	}
	if err := d.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if s := h.smart(); s.UnsafeShutdowns.Lo != 1 || s.PowerCycles.Lo != 3 {
		t.Errorf("after a clean power cycle: %+v", s)
	}
}

func TestFeatureStatuses(t *testing.T) {
	p7, client, p6 := "pblaze7-7940-7.68tb", "client-1tb", "memblaze-p6531-3.84tb"
	nsid := func(c nvmeioctl.Command, n uint32) nvmeioctl.Command { c.NSID = n; return c }
	data := func(c nvmeioctl.Command, n int) nvmeioctl.Command { c.Data = make([]byte, n); return c }
	for _, c := range []struct {
		profile string
		cmd     nvmeioctl.Command
		want    nvmespec.Status
		result  uint32
	}{
		{p7, getFeature(2, 3), 0, 5}, // saveable and changeable
		{p7, getFeature(5, 3), 0, 7},
		{p7, getFeature(7, 3), 0, 0},
		{p7, getFeature(4, 3), 0, 4},
		{p7, getFeature(2, 4), 0x4002, 0},
		{p7, getFeature(0x7F, 0), 0x4002, 0},
		{p7, getFeature(6, 0), 0x4002, 0}, // no volatile cache
		{client, getFeature(6, 0), 0, 1},
		{p7, setFeature(2, 5, false), 0x4002, 0}, // no such power state
		{p7, setFeature(2, 4|7<<5, false), 0, 0}, // with a workload hint
		{p7, setFeature(2, 1<<8, false), 0x4002, 0},
		{p7, nsid(setFeature(2, 1, false), 1), 0x410f, 0},
		{p7, nsid(setFeature(2, 1, false), 0xFFFFFFFF), 0, 0},
		{p7, setFeature(4, 0x150, true), 0x410d, 0},
		{p7, setFeature(4, 0x150, false), 0, 0},
		{p7, setFeature(4, 0x150|2<<16, false), 0x4002, 0}, // there is no sensor 2
		{p7, setFeature(7, 0, false), 0x400c, 0},
		{p7, setFeature(7, 0, true), 0x410d, 0},
		{p7, nsid(setFeature(5, 100, true), 1), 0, 0},
		{p7, nsid(setFeature(5, 100, true), 0xFFFFFFFF), 0, 0},
		{p7, setFeature(5, 100, true), 0x400b, 0},
		{p7, nsid(setFeature(5, 100, true), 2), 0x4002, 0},
		{p7, nsid(setFeature(5, 100, true), 500), 0x400b, 0},
		{p7, nsid(getFeature(5, 0), 0xFFFFFFFF), 0x400b, 0},
		{p7, nsid(getFeature(5, 0), 1), 0, 0},
		{p7, getFeature(0x0B, 0), 0, 0x31F},
		{p7, setFeature(0x0B, 1<<10, false), 0x4002, 0},
		{p7, getFeature(0x0C, 0), 0x4002, 0}, // no autonomous transitions
		{client, data(getFeature(0x0C, 0), 256), 0, 0},
		{client, getFeature(0x0C, 0), 0x4004, 0},
		{client, data(setFeature(0x0C, 1, true), 256), 0, 0},
		{p7, data(getFeature(0x0E, 0), 8), 0, 0},
		{p7, data(setFeature(0x0E, 0, false), 8), 0, 0},
		{p7, data(setFeature(0x0E, 0, true), 8), 0x410d, 0},
		{p7, setFeature(0xC6, 1, true), 0, 0}, // PWR-11
		{p7, setFeature(0xC6, 5, true), 0x4002, 0},
		{client, setFeature(0xC6, 1, true), 0x4002, 0},
		{p6, setFeature(2, 7, false), 0, 0},
		{p6, setFeature(2, 8, false), 0x4002, 0},
		{p7, nvmeioctl.Command{Opcode: 0x09, CDW10: 2, CDW12: 1}, 0x4002, 0},
		{p7, nvmeioctl.Command{Opcode: 0x09, CDW10: 2, CDW14: 1}, 0x4002, 0},
		{p7, nvmeioctl.Command{Opcode: 0x09, CDW10: 2 | 1<<8}, 0x4002, 0},
		{p7, nvmeioctl.Command{Opcode: 0x0A, CDW10: 2, CDW11: 1}, 0x4002, 0},
		{p7, nvmeioctl.Command{Opcode: 0x0A, CDW10: 2, CDW14: 1}, 0x4002, 0},
	} {
		h := host{t, newTestDrive(t, c.profile, nil)}
		done := h.raw(c.cmd)
		if done.Status != c.want || uint32(done.Result) != c.result {
			t.Errorf("%s: opcode %#x dwords %#x %#x NSID %#x: status %#x result %#x, want %#x and %#x", c.profile, c.cmd.Opcode, c.cmd.CDW10,
				c.cmd.CDW11, c.cmd.NSID, uint16(done.Status), done.Result, uint16(c.want), c.result)
		}
	}
}

func TestAPSTTable(t *testing.T) {
	h := host{t, newTestDrive(t, "client-1tb", nil)}
	table := nvmespec.APST{Enabled: true}
	table.Transitions[0] = nvmespec.APSTTransition{Target: 3, IdleMilliseconds: 100}
	set := setFeature(0x0C, table.Dword(), false)
	set.Data = table.Append(nil)
	h.want(set, 0)
	get := getFeature(0x0C, 0)
	get.Data = make([]byte, 256)
	dw := h.want(get, 0)
	if got, err := nvmespec.DecodeAPST(dw, get.Data); err != nil || got != table {
		t.Errorf("table came back as %+v, %v", got, err)
	}
	table.Transitions[0].Target = 2 // an operational state
	set.Data = table.Append(nil)
	h.want(set, 0x4002)
	set.Data[0] = 1 // reserved
	h.want(set, 0x4002)
}

// TestTimestamp runs on with the drive's clock.
func TestTimestamp(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	get := func() nvmespec.Timestamp {
		c := getFeature(0x0E, 0)
		c.Data = make([]byte, 8)
		h.want(c, 0)
		return decoded(t, nvmespec.DecodeTimestamp, c.Data)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(5 * time.Second))
	if got := get(); got.Milliseconds != 5000 || got.Origin != 0 {
		t.Fatalf("since power-on: %+v", got)
	}
	set := setFeature(0x0E, 0, false)
	set.Data = make([]byte, 8)
	binary.LittleEndian.PutUint64(set.Data, 1_700_000_000_000)
	h.want(set, 0)
	d.Clock().AdvanceTo(nvmeioctl.Instant(7 * time.Second))
	if got := get(); got.Milliseconds != 1_700_000_002_000 || got.Origin != 1 {
		t.Fatalf("after setting: %+v", got)
	}
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get(); got.Milliseconds != 0 || got.Origin != 0 {
		t.Fatalf("after a reset: %+v", got)
	}
}

// TestEvents: an attached namespace that changes is told once, until the list
// is read.
func TestEvents(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(_ *Profile, o *Options) { o.Controllers = 2 })
	h := host{t, d}
	none := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if e, err := d.NextEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("event %+v, error %v", e, err)
		}
	}
	none()
	h.want(detachCommand(1, 1), 0)
	h.want(attachCommand(1, 1), 0)
	e, err := d.NextEvent(t.Context())
	if err != nil || e != (nvmeioctl.Event{Type: 2, Info: 0, LogPage: 4}) {
		t.Fatalf("event %+v, %v", e, err)
	}
	none()
	list := func(retain bool) []uint32 {
		t.Helper()
		b := h.logFields(nvmespec.GetLogFields{Log: nvmespec.LogIDChangedNamespaces, LengthBytes: 4096, RetainEvent: retain})
		return decoded(t, nvmespec.DecodeNamespaceList, b)
	}
	if l := list(true); !slices.Equal(l, []uint32{1}) {
		t.Fatalf("changed: %v", l)
	}
	h.want(detachCommand(1, 1), 0)
	none() // still masked
	if l := list(false); !slices.Equal(l, []uint32{1}) {
		t.Fatalf("changed: %v", l)
	}
	if l := list(true); len(l) != 0 {
		t.Fatalf("after reading: %v", l)
	}
	h.want(attachCommand(1, 1), 0)
	if e, err := d.NextEvent(t.Context()); err != nil || e.LogPage != 4 {
		t.Fatalf("event %+v, %v", e, err)
	}
	list(false)
	// A format is told to the other controllers only.
	second, err := d.OpenController(2)
	if err != nil {
		t.Fatal(err)
	}
	h.want(formatDword(1, nvmespec.FormatFields{FormatIndex: 1}), 0)
	none()
	if e, err := second.(nvmeioctl.EventSource).NextEvent(t.Context()); err != nil || e.LogPage != 4 {
		t.Fatalf("event of the second controller %+v, %v", e, err)
	}
	// And not at all where the host does not want to hear.
	h.want(setFeature(0x0B, 0, false), 0)
	h.want(detachCommand(1, 1), 0)
	none()
	if l := list(true); !slices.Equal(l, []uint32{1}) {
		t.Fatalf("changed: %v", l)
	}
}

// TestEventWakes: an event ends a wait that began before it.
func TestEventWakes(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	got := make(chan error, 1)
	go func() {
		_, err := d.NextEvent(t.Context())
		got <- err
	}()
	h.want(detachCommand(1, 1), 0)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := d.NextEvent(t.Context())
		got <- err
	}()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil {
		t.Fatal("a closed drive gave an event")
	}
}
