package sim

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

func plan(t testing.TB, script string) fault.Plan {
	t.Helper()
	p, err := fault.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// faultyDrive makes a drive with contents that is to suffer a script.
func faultyDrive(t testing.TB, name, script string) (*Drive, dataHost) {
	t.Helper()
	d, h := newKeptDrive(t, name, nil)
	if err := d.Arm(plan(t, script)); err != nil {
		t.Fatal(err)
	}
	return d, h
}

// event gives the next event, or fails: it must be there already.
func (h host) event() nvmeioctl.Event {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	e, err := h.dev.(nvmeioctl.EventSource).NextEvent(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

func TestFaults_onCommands(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "fail 2nd write with 0x4280; lose 3rd write; drop 4th write; corrupt 1st read; delay 3s flush")
	one, two := dataOf(512, 1), dataOf(512, 2)
	h.write(1, 0, one, 0)
	if s := h.io(nvmespec.IOOpWrite, 1, 0, two, 0); s != 0x4280 {
		t.Errorf("2nd write: %v", s)
	}
	if e := decoded(t, nvmespec.DecodeErrorLog, h.log(nvmespec.LogIDError, 64)); len(e) != 1 || e[0].Status != 0x4280 {
		t.Errorf("error log: %+v", e)
	}
	submit := func(op uint8, data []byte) error {
		_, err := d.Submit(t.Context(), &nvmeioctl.Command{IO: true, Opcode: op, NSID: 1, Data: data, Timeout: time.Minute})
		return err
	}
	start := d.clock.Now()
	if err := submit(nvmespec.IOOpWrite, two); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Errorf("3rd write: %v", err)
	}
	if waited := d.clock.Now().Sub(start); waited != time.Minute {
		t.Errorf("it took %v until the time-out of a minute", waited)
	}
	if got := h.read(1, 0, 1); slices.Equal(got, one) || slices.Equal(got, two) {
		t.Error("the first read was not damaged")
	}
	if got := h.read(1, 0, 1); !slices.Equal(got, one) {
		t.Error("a lost write arrived, or the second read was damaged")
	}
	if err := submit(nvmespec.IOOpWrite, two); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Errorf("4th write: %v", err)
	}
	if got := h.read(1, 0, 1); !slices.Equal(got, two) {
		t.Error("a write whose answer was lost did not arrive")
	}
	start = d.clock.Now()
	h.flush(1)
	if waited := d.clock.Now().Sub(start); waited != 3*time.Second {
		t.Errorf("flush was held back for %v", waited)
	}
}

// A power cut loses what is in a volatile cache, and is counted once, whether the
// power comes back in this process or in the next.
func TestFaults_powerCut(t *testing.T) {
	for name, keeps := range map[string]bool{"client-1tb": false, "pblaze7-7940-7.68tb": true} {
		path, d, h := createKeptDrive(t, name)
		h.write(1, 0, dataOf(512, 1), 0)
		h.flush(1)
		if err := d.Arm(plan(t, "after 2nd write power-cut")); err != nil {
			t.Fatal(err)
		}
		h.write(1, 1, dataOf(512, 2), 0)
		_, err := d.Submit(t.Context(), &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpWrite, NSID: 1, CDW10: 2, Data: dataOf(512, 3), Timeout: time.Minute})
		if !errors.Is(err, nvmeioctl.ErrDeviceGone) || !errors.Is(err, nvmeioctl.ErrIndeterminate) || !d.PowerOff() {
			t.Fatalf("write at the cut: %v", err)
		}
		for what, err := range map[string]error{
			"reset": d.ResetController(t.Context()), "event": func() error { _, err := d.NextEvent(t.Context()); return err }(),
		} {
			if !errors.Is(err, nvmeioctl.ErrDeviceGone) {
				t.Errorf("%s without power: %v", what, err)
			}
		}
		if err := d.Save(7); err != nil {
			t.Errorf("what it has counted cannot be saved while it is off: %v", err)
		}
		if name == "client-1tb" {
			if err := d.PowerOn(); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			_, h = openKeptDrive(t, path)
		}
		if s := h.smart(); s.UnsafeShutdowns.Lo != 1 || s.PowerCycles.Lo != 2 {
			t.Errorf("%s: %v unsafe shutdowns, %v power cycles", name, s.UnsafeShutdowns, s.PowerCycles)
		}
		for lba, want := range []bool{true, keeps, keeps} {
			if got := slices.Equal(h.read(1, uint64(lba), 1), dataOf(512, byte(lba+1))); got != want {
				t.Errorf("%s: block %d is there: %v, want %v", name, lba, got, want)
			}
		}
	}
}

// A hang ends with the reset that the command's time-out brings, or with the
// host's own.
func TestFaults_hang(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "before 2nd read hang")
	h.read(1, 0, 1)
	cmd := &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpRead, NSID: 1, Data: make([]byte, 512), Timeout: 30 * time.Second}
	if _, err := d.Submit(t.Context(), cmd); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Fatalf("a hung drive: %v", err)
	}
	if d.clock.Now() != nvmeioctl.Instant(30*time.Second) {
		t.Errorf("it gave up at %v", d.clock.Now())
	}
	h.read(1, 0, 1)

	d.ServeHosts(nvmeioctl.NewVirtualClock(time.Time{}))
	if err := d.Arm(plan(t, "hang")); err != nil {
		t.Fatal(err)
	}
	before := d.clock.Now()
	for range 3 {
		if _, err := d.Submit(t.Context(), cmd); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
			t.Fatalf("a hung drive that is served: %v", err)
		}
	}
	if _, wrong := d.Faults(); d.clock.Now() != before || !slices.Equal(wrong, []string{"hang"}) {
		t.Errorf("the drive decided itself how long the host waits; wrong: %q", wrong)
	}
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.read(1, 0, 1)
}

func TestFaults_mediaError(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "media-error read nsid 1 lba 10-19; media-error write nsid 1 lba 30")
	read := func(lba, blocks int) nvmespec.Status {
		return h.io(nvmespec.IOOpRead, 1, uint64(lba), make([]byte, blocks*512), 0)
	}
	write := func(lba, blocks int) nvmespec.Status {
		return h.io(nvmespec.IOOpWrite, 1, uint64(lba), make([]byte, blocks*512), 0)
	}
	for i, c := range []struct {
		got, want nvmespec.Status
		lba       uint64
	}{
		{read(0, 10), 0, 0},
		{read(5, 8), 0x4281, 10},
		{read(19, 4), 0x4281, 19},
		{read(20, 8), 0, 0},
		{write(28, 8), 0x4280, 30},
		{write(12, 2), 0, 0}, // it gives them a new place
		{read(12, 2), 0, 0},
		{read(11, 2), 0x4281, 11},
		{read(13, 2), 0x4281, 14},
		{read(30, 1), 0, 0},
	} {
		if c.got != c.want {
			t.Errorf("%d: status %#x, want %#x", i, uint16(c.got), uint16(c.want))
		}
	}
	var lbas []uint64
	for _, e := range decoded(t, nvmespec.DecodeErrorLog, h.log(nvmespec.LogIDError, 63*64)) {
		lbas = append(lbas, e.LBA)
		if e.NSID != 1 || !slices.Contains([]nvmespec.Status{0x4281, 0x4280}, e.Status) {
			t.Errorf("%+v", e)
		}
	}
	if want := []uint64{14, 11, 30, 19, 10}; !slices.Equal(lbas, want) {
		t.Errorf("error log has blocks %v, want %v", lbas, want)
	}
	if s := h.smart(); s.MediaErrors.Lo != 5 || s.ErrorLogEntries.Lo != 5 {
		t.Errorf("%v media errors, %v entries", s.MediaErrors, s.ErrorLogEntries)
	}
	if err := d.Arm(plan(t, "heal")); err != nil {
		t.Fatal(err)
	}
	if s := read(10, 10); s != 0 {
		t.Errorf("healed: %v", s)
	}
	if s := h.smart(); s.MediaErrors.Lo != 5 {
		t.Errorf("healing forgets: %v media errors", s.MediaErrors)
	}
	if err := d.Arm(plan(t, "media-error nsid 1 lba 99999999999999")); err == nil {
		t.Error("blocks beyond the end went bad")
	}
	if err := d.Arm(plan(t, "media-error nsid 9 lba 1")); err == nil {
		t.Error("blocks of no namespace went bad")
	}
}

// The spare falls over an hour: the warning and its event come when it is below
// the threshold, once.
func TestFaults_spare(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "at 1h spare 4% over 1h")
	for _, c := range []struct {
		minutes int
		spare   uint8
		event   bool
	}{{0, 100, false}, {60, 100, false}, {90, 52, false}, {119, 5, false}, {120, 4, true}, {600, 4, false}} {
		d.Clock().AdvanceTo(nvmeioctl.Instant(time.Duration(c.minutes) * time.Minute))
		d.Tick()
		threshold := d.Profile().Flash.SpareThresholdPercent
		if c.event {
			if e := h.event(); e != (nvmeioctl.Event{Type: 1, Info: infoSpare, LogPage: logSMART}) {
				t.Errorf("event %+v", e)
			}
		}
		s := h.smart()
		if s.SparePercent != c.spare || s.CriticalWarning&nvmespec.WarningSpare != 0 != (c.spare < threshold) {
			t.Errorf("after %d minutes: %d %% spare (threshold %d), warning %#x, want %d %%", c.minutes, s.SparePercent, threshold, s.CriticalWarning, c.spare)
		}
	}
}

// Heat: warning, event, minutes, transitions, and a drive that is slower.
func TestFaults_temperature(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "temperature 83C over 10m") // warning at 73, critical at 80 degrees
	advance := func(d *Drive, minutes int) {
		d.Clock().AdvanceTo(d.Clock().Now().Add(time.Duration(minutes) * time.Minute))
		d.Tick()
	}
	advance(d, 5)
	if s := h.smart(); s.CriticalWarning != 0 || s.Temperature.Value < 50 || s.Temperature.Value > 65 {
		t.Fatalf("half way: %v, warning %#x", s.Temperature, s.CriticalWarning)
	}
	advance(d, 5)
	if e := h.event(); e != (nvmeioctl.Event{Type: 1, Info: infoTemperature, LogPage: logSMART}) {
		t.Errorf("event %+v", e)
	}
	advance(d, 60)
	s := h.smart()
	if s.CriticalWarning != nvmespec.WarningTemperature || s.Temperature.Value != 83 {
		t.Fatalf("hot: %v, warning %#x", s.Temperature, s.CriticalWarning)
	}
	// From 35 to 83 degrees in 10 minutes: 73 after 7.9, 80 after 9.4 minutes.
	if s.WarningTemperatureMinutes != 1 || s.CriticalTemperatureMinutes != 60 || s.ThermalTransitions != [2]uint32{1, 1} {
		t.Errorf("%d minutes warm, %d hot, transitions %v", s.WarningTemperatureMinutes, s.CriticalTemperatureMinutes, s.ThermalTransitions)
	}
	if sec := s.ThermalSeconds; sec[0] < 62*60 || sec[0] > 63*60 || sec[1] < 60*60 || sec[1] > 61*60 {
		t.Errorf("thermal seconds %v", sec)
	}
	if got := d.throttled(1000); got != 250 {
		t.Errorf("a critically hot drive may draw %d of 1000 mW", got)
	}
	if err := d.Arm(plan(t, "heal")); err != nil {
		t.Fatal(err)
	}
	advance(d, 60)
	after := h.smart()
	if after.CriticalWarning != 0 || after.ThermalSeconds != s.ThermalSeconds || d.throttled(1000) != 1000 {
		t.Errorf("healed: warning %#x, seconds %v", after.CriticalWarning, after.ThermalSeconds)
	}
}

func TestFaults_readOnly(t *testing.T) {
	_, h := faultyDrive(t, "pblaze7-7940-7.68tb", "read-only")
	if e := h.event(); e != (nvmeioctl.Event{Type: 1, Info: infoReliability, LogPage: logSMART}) {
		t.Errorf("event %+v", e)
	}
	if s := h.io(nvmespec.IOOpWrite, 1, 0, make([]byte, 512), 0); s != statusReadOnly {
		t.Errorf("write: %v", s)
	}
	h.read(1, 0, 1)
	if s := h.smart(); s.CriticalWarning != nvmespec.WarningReadOnly {
		t.Errorf("warning %#x", s.CriticalWarning)
	}
}

func TestFaults_lateNamespace(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "at 10s attach nsid 1; at 20s attach nsid 9")
	if err := d.Arm(plan(t, "detach nsid 1")); err != nil {
		t.Fatal(err)
	}
	want := nvmeioctl.Event{Type: 2, Info: 0, LogPage: logChanged}
	changed := func() []uint32 {
		list, err := nvmespec.DecodeNamespaceList(h.logFields(nvmespec.GetLogFields{Log: nvmespec.LogIDChangedNamespaces, LengthBytes: 4096}))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if e := h.event(); e != want || !slices.Equal(changed(), []uint32{1}) {
		t.Errorf("detached: event %+v", e)
	}
	if s := h.io(nvmespec.IOOpRead, 1, 0, make([]byte, 512), 0); s != 0x4002 {
		t.Errorf("read of a namespace that is not attached: %v", s)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(11 * time.Second))
	d.Tick()
	if e := h.event(); e != want || !slices.Equal(changed(), []uint32{1}) {
		t.Errorf("attached: event %+v", e)
	}
	h.read(1, 0, 1)
	d.Clock().AdvanceTo(nvmeioctl.Instant(21 * time.Second))
	d.Tick()
	if err := d.SaveError(); err == nil || !strings.Contains(err.Error(), "no namespace 9") {
		t.Errorf("a namespace that does not exist was attached: %v", err)
	}
}

func TestFaults_notReadyAndActivation(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "not-ready 2s")
	if s := h.io(nvmespec.IOOpRead, 1, 0, make([]byte, 512), 0); s != nvmespec.StatusNamespaceNotReady {
		t.Errorf("read: %#x", uint16(s))
	}
	if s := h.raw(nvmeioctl.Command{Opcode: nvmespec.AdminFormatNVM, NSID: 1}).Status; s != nvmespec.StatusAdminMediaNotReady {
		t.Errorf("format: %#x", uint16(s))
	}
	h.controller() // needs no media
	d.Clock().AdvanceTo(nvmeioctl.Instant(2 * time.Second))
	h.read(1, 0, 1)

	if err := d.Arm(plan(t, "activation 5s")); err != nil {
		t.Fatal(err)
	}
	if e := h.event(); e != (nvmeioctl.Event{Type: 2, Info: 1, LogPage: 3}) || !d.ProcessingPaused() {
		t.Errorf("event %+v, paused %v", e, d.ProcessingPaused())
	}
	h.read(1, 0, 1) // it waits
	if now := d.Clock().Now(); now != nvmeioctl.Instant(7*time.Second) || d.ProcessingPaused() {
		t.Errorf("it is %v, paused %v", now, d.ProcessingPaused())
	}
}

// A drive that is served holds commands back until the activation is over.
func TestFaults_activationOfAServedDrive(t *testing.T) {
	d, _ := faultyDrive(t, "pblaze7-7940-7.68tb", "activation 5s")
	steps := &steppedClock{VirtualClock: nvmeioctl.NewVirtualClock(time.Time{}), drive: d}
	d.ServeHosts(steps)
	host{t, d}.controller()
	if now := d.Clock().Now(); now < nvmeioctl.Instant(5*time.Second) || steps.slept == 0 {
		t.Errorf("it is %v", now)
	}
	if d.ProcessingPaused() {
		t.Error("still paused")
	}
}

// steppedClock moves a drive's clock when somebody sleeps, as who serves it does.
type steppedClock struct {
	*nvmeioctl.VirtualClock
	drive *Drive
	slept int
}

func (c *steppedClock) Sleep(_ context.Context, t time.Duration) error {
	c.slept++
	c.drive.Clock().AdvanceTo(c.drive.Clock().Now().Add(t))
	return nil
}

func TestFaults_counters(t *testing.T) {
	d, h := faultyDrive(t, "pblaze7-7940-7.68tb", "counter stuck")
	q, err := d.Queue(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		queueIO(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: int64(i) << 20, LengthBytes: 1 << 20, Buf: make([]byte, 1<<20)})
	}
	if m := d.vendorCounters(); m.MaxErases != 65535 || d.media.counters().MaxErases == 65535 {
		t.Errorf("stuck: %d erases", m.MaxErases)
	}
	whole := d.media.counters().HostWriteBytes.Lo
	for script, want := range map[string]uint64{"counter reset": 0, "counter unit": whole / 32, "counter lag": whole, "heal": whole} {
		if err := d.Arm(plan(t, script)); err != nil {
			t.Fatal(err)
		}
		if got := d.vendorCounters().HostWriteBytes.Lo; got != want {
			t.Errorf("%s: %d bytes, want %d", script, got, want)
		}
	}
	h.log(nvmespec.LogIDVendorHealth, 512) // it can be encoded whatever they say
	// A lag is caught up once an hour.
	if err := d.Arm(plan(t, "counter lag")); err != nil {
		t.Fatal(err)
	}
	queueIO(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 4096, Buf: make([]byte, 4096)})
	d.Tick()
	if got := d.vendorCounters().HostWriteBytes.Lo; got != whole {
		t.Errorf("at once: %d", got)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(time.Hour))
	d.Tick()
	if got := d.vendorCounters().HostWriteBytes.Lo; got != whole+4096 {
		t.Errorf("an hour later: %d", got)
	}
}

// The faults of a drive are in its file: another process meets them, and counts on.
func TestFaults_surviveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drive.nvop")
	p, o := small(profile(t, "pblaze7-7940-7.68tb"))
	if err := Create(path, p, o); err != nil {
		t.Fatal(err)
	}
	d, h := openKeptDrive(t, path)
	if err := d.Arm(plan(t, "fail 3rd write with 0x4280; at 1h hang; now spare 7%; read-only; media-error nsid 1 lba 5; counter unit; temperature 60C")); err != nil {
		t.Fatal(err)
	}
	if err := d.Arm(plan(t, "heal; spare 7%; media-error nsid 1 lba 5")); err != nil {
		t.Fatal(err)
	}
	h.write(1, 0, make([]byte, 512), 0)
	if err := errors.Join(d.Save(1), d.Close()); err != nil {
		t.Fatal(err)
	}
	d, h = openKeptDrive(t, path)
	armed, wrong := d.Faults()
	if want := []string{"fail 3rd write with 0x4280", "at 1h0m0s hang"}; !slices.Equal(armed, want) {
		t.Errorf("armed %q, want %q", armed, want)
	}
	if want := []string{"spare 7%", "media-error read nsid 1 lba 5-5"}; !slices.Equal(wrong, want) {
		t.Errorf("wrong %q, want %q", wrong, want)
	}
	h.write(1, 0, make([]byte, 512), 0)
	if s := h.io(nvmespec.IOOpWrite, 1, 0, make([]byte, 512), 0); s != 0x4280 {
		t.Errorf("3rd write: %v", s)
	}
	if s := h.smart(); s.SparePercent != 7 {
		t.Errorf("%d %% spare", s.SparePercent)
	}
	if err := d.Disarm(); err != nil {
		t.Fatal(err)
	}
	if armed, _ := d.Faults(); len(armed) != 0 {
		t.Errorf("armed %q", armed)
	}
}
