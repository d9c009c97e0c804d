package sim

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// TestLogsByModel: each model has its logs and answers 0x109 for the others.
func TestLogsByModel(t *testing.T) {
	every := []nvmespec.LogID{0x01, 0x02, 0x03, 0x04, 0x05, 0x06}
	more := map[string][]nvmespec.LogID{
		"pblaze7-7940-7.68tb":   {0x00, 0x07, 0x08, 0x09, 0x0D, 0x0E, 0x12, 0x81, 0xCA},
		"pe321-6.4tb":           {0x07, 0x08, 0x0D, 0x81, 0xCA},
		"pe501-61.44tb":         {0x00, 0x07, 0x08, 0x09, 0x0D, 0x0E, 0x12, 0x81, 0xC0, 0xCA},
		"memblaze-p6531-3.84tb": {0x07, 0x08, 0x0D, 0x81, 0xCA},
		"client-1tb":            {},
	}
	for name, logs := range more {
		h := host{t, newTestDrive(t, name, nil)}
		has := map[nvmespec.LogID]bool{}
		for _, id := range append(logs, every...) {
			has[id] = true
		}
		for id := range 256 {
			f := nvmespec.GetLogFields{Log: nvmespec.LogID(id), LengthBytes: 512, RetainEvent: true}
			switch id {
			case 0x09:
				f.LogSpecificID = 1
			case 0x0D:
				f.Specific = 1 // it is read within a context
			}
			want := nvmespec.Status(0x4109)
			if has[f.Log] {
				want = 0
			}
			if got := h.raw(logCommand(t, f, make([]byte, 512))).Status; got != want {
				t.Errorf("%s: log %#x: status %#x, want %#x", name, id, uint16(got), uint16(want))
			}
		}
		if has[0] {
			list := h.log(nvmespec.LogIDSupported, 1024)
			for id := range 256 {
				if got := binary.LittleEndian.Uint32(list[4*id:])&1 != 0; got != has[nvmespec.LogID(id)] {
					t.Errorf("%s: the list says %v of log %#x", name, got, id)
				}
			}
		}
	}
}

func TestLogFields(t *testing.T) {
	p7, client := "pblaze7-7940-7.68tb", "client-1tb"
	cmd := func(nsid, cdw10, cdw11, cdw12, cdw14 uint32, n int) nvmeioctl.Command {
		return nvmeioctl.Command{Opcode: 0x02, NSID: nsid, CDW10: cdw10, CDW11: cdw11, CDW12: cdw12, CDW14: cdw14, Data: make([]byte, n)}
	}
	const all, smart = 0xFFFFFFFF, 2 | 127<<16
	for _, c := range []struct {
		profile string
		cmd     nvmeioctl.Command
		want    nvmespec.Status
	}{
		{p7, cmd(all, smart, 0, 0, 0, 512), 0},
		{p7, cmd(0, smart, 0, 0, 0, 512), 0},
		{p7, cmd(1, smart, 0, 0, 0, 512), 0x4002}, // no log per namespace
		{p7, cmd(129, smart, 0, 0, 0, 512), 0x400b},
		{p7, cmd(all, smart, 0, 508, 0, 512), 0},
		{p7, cmd(all, smart, 0, 512, 0, 512), 0x4002},
		{p7, cmd(all, smart, 0, 1<<20, 0, 512), 0x4002},
		{p7, cmd(all, smart, 0, 2, 0, 512), 0x4002},
		{p7, cmd(all, smart, 0, 0, 0, 508), 0x4004},
		{p7, cmd(all, smart|1<<8, 0, 0, 0, 512), 0x4002},
		{p7, cmd(all, smart, 1<<16, 0, 0, 512), 0x4002},
		{p7, cmd(all, smart, 0, 0, 1, 512), 0x4002},
		{p7, cmd(all, smart, 0, 0, 1<<23, 512), 0x4002},
		{p7, cmd(all, smart, 0, 0, 1<<24, 512), 0x4002},
		{p7, cmd(all, smart, 0, 0, 1<<8, 512), 0x4002},
		{p7, cmd(all, 9|127<<16, 0, 0, 0, 512), 0x4002},
		{p7, cmd(all, 9|127<<16, 1<<16, 0, 0, 512), 0},
		{p7, cmd(all, 9|127<<16, 2<<16, 0, 0, 512), 0x4002},
		{p7, cmd(all, 0x0D|1<<8|127<<16, 0, 0, 0, 512), 0},
		{p7, cmd(all, 0x0D|3<<8|127<<16, 0, 0, 0, 512), 0x4002},
		{client, cmd(all, 9|127<<16, 1<<16, 0, 0, 512), 0x4109},
	} {
		h := host{t, newTestDrive(t, c.profile, nil)}
		if got := h.raw(c.cmd).Status; got != c.want {
			t.Errorf("%s: NSID %#x, dwords %#x %#x %#x, %#x: status %#x, want %#x", c.profile, c.cmd.NSID, c.cmd.CDW10, c.cmd.CDW11,
				c.cmd.CDW12, c.cmd.CDW14, uint16(got), uint16(c.want))
		}
	}
}

// TestLogInPieces: a log read in pieces is the log, and nothing follows it.
func TestLogInPieces(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	whole := h.log(nvmespec.LogIDEffects, 4096)
	var pieces []byte
	for off := uint64(0); off < 4096; off += 1000 {
		n := min(1000, 4096-off)
		pieces = append(pieces, h.logFields(nvmespec.GetLogFields{Log: nvmespec.LogIDEffects, LengthBytes: n, OffsetBytes: off})...)
	}
	if !bytes.Equal(whole, pieces) {
		t.Error("the effects log differs when read in pieces")
	}
	tail := h.logFields(nvmespec.GetLogFields{Log: nvmespec.LogIDEffects, LengthBytes: 4096, OffsetBytes: 4092})
	if !bytes.Equal(tail[4:], make([]byte, 4092)) {
		t.Error("something follows the end of the log")
	}
}

func TestEffects(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	e := decoded(t, nvmespec.DecodeEffects, h.log(nvmespec.LogIDEffects, nvmespec.EffectsSize))
	for op := range 256 {
		// What the log calls supported must not answer invalid opcode.
		done := h.raw(nvmeioctl.Command{Opcode: uint8(op), NSID: 0x7777, CDW13: 1, Data: make([]byte, 4096)})
		if got := done.Status.Code() != 1; got != e.Admin[op].Supported() {
			t.Errorf("admin command %#x: supported %v, status %#x", op, e.Admin[op].Supported(), uint16(done.Status))
		}
	}
	if e.Admin[0x0D]&nvmespec.EffectNamespaceInventory == 0 || e.Admin[0x80]&nvmespec.EffectContent == 0 || e.Admin[0x80].Exclusion() != 2 ||
		e.Admin[0x02] != nvmespec.EffectSupported || e.IO[1]&nvmespec.EffectContent == 0 {
		t.Errorf("effects: %#x %#x", e.Admin[0x0D], e.Admin[0x80])
	}
	client := host{t, newTestDrive(t, "client-1tb", nil)}
	e = decoded(t, nvmespec.DecodeEffects, client.log(nvmespec.LogIDEffects, nvmespec.EffectsSize))
	if e.Admin[0x0D].Supported() || e.Admin[0x15].Supported() {
		t.Error("the client drive claims namespace management")
	}
}

// TestErrorLog: newest first, as many as the model keeps, counted for life.
func TestErrorLog(t *testing.T) {
	d := newTestDrive(t, "memblaze-p6531-3.84tb", nil)
	h := host{t, d}
	if e := h.errors(); len(e) != 0 {
		t.Fatalf("a new drive has errors: %v", e)
	}
	for i := range 70 {
		h.want(nvmeioctl.Command{Opcode: 0x06, CDW10: uint32(0x40 + i), Data: make([]byte, 4096)}, 0x4002)
	}
	h.want(nvmeioctl.Command{Opcode: 0x06, NSID: 0x7777, Data: make([]byte, 4096)}, 0x400b)
	h.want(nvmeioctl.Command{Opcode: 0x06, CDW10: 1, CDW12: 1 << 9, Data: make([]byte, 4096)}, 0x4002)
	log := h.errors()
	if len(log) != 63 || log[0].Count != 72 || log[62].Count != 10 {
		t.Fatalf("%d entries, from %d to %d", len(log), log[0].Count, log[len(log)-1].Count)
	}
	// The second reserved byte of CDW12, bit 1.
	if e := log[0]; e.ParameterByte != nvmespec.Some(uint8(49)) || e.ParameterBit != 1 || e.Status != 0x4002 {
		t.Errorf("newest entry: %+v", e)
	}
	if e := log[1]; e.NSID != 0x7777 || e.Status != 0x400b || e.ParameterByte != nvmespec.Some(uint8(4)) || e.QueueID != 0 {
		t.Errorf("second entry: %+v", e)
	}
	if n := h.smart().ErrorLogEntries.Lo; n != 72 {
		t.Errorf("SMART counts %d", n)
	}
}

// TestCountersByVendor: the same writes in every log that tells of them.
func TestCountersByVendor(t *testing.T) {
	const blocks, size = 4096, 64 << 10
	for _, name := range []string{"pblaze7-7940-7.68tb", "pe501-61.44tb", "pe321-6.4tb", "memblaze-p6531-3.84tb"} {
		d := newTestDrive(t, name, nil)
		h := host{t, d}
		n := h.namespace(1)
		f, _ := n.Format()
		per := uint32(size / f.DataBytes)
		for i := range uint32(blocks) {
			h.want(nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, CDW10: i * per, CDW12: per - 1, Data: make([]byte, size)}, 0)
		}
		const written = uint64(blocks * size)
		s := h.smart()
		if s.HostWrites.Lo != blocks || s.DataUnitsWritten.Lo != (written+511_999)/512_000 {
			t.Errorf("%s: SMART %v commands, %v units", name, s.HostWrites, s.DataUnitsWritten)
		}
		p := d.Profile()
		v, err := vendor.Decode(p.VendorID, 0xCA, h.log(nvmespec.LogIDVendorHealth, 512))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v.HostWrittenBytes.Lo != written || v.NANDWrittenBytes.Lo < written || v.NANDWrittenBytes.Lo > written*11/10 {
			t.Errorf("%s: vendor log host %v, NAND %v, wrote %d", name, v.HostWrittenBytes, v.NANDWrittenBytes, written)
		}
		if p.EnduranceGroup {
			g := decoded(t, nvmespec.DecodeEnduranceGroup, h.logFields(nvmespec.GetLogFields{Log: 9, LengthBytes: 512, LogSpecificID: 1}))
			if g.WrittenGB.Lo != 1 || g.MediaWrittenGB.Lo != 1 || g.HostWrites != s.HostWrites || g.TotalCapacityBytes.Lo != p.CapacityBytes {
				t.Errorf("%s: endurance group %+v", name, g)
			}
		}
		if p.OCPLog {
			o := decoded(t, nvmespec.DecodeOCPHealth, h.log(nvmespec.LogIDOCPHealth, 512))
			if o.PhysicalBytesWritten.Lo < written || o.PhysicalBytesWritten.Lo > written*11/10 {
				t.Errorf("%s: OCP %v", name, o.PhysicalBytesWritten)
			}
		}
	}
}

// TestHours: hours follow the drive's clock, and the percentage used is
// updated at most once in each.
func TestHours(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	d.media = &wornMedia{media: d.media, used: 0.035, spare: 1}
	if s := h.smart(); s.UsedPercent != 0 {
		t.Fatalf("before the first hour %d %% are used", s.UsedPercent)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(time.Hour))
	if s := h.smart(); s.UsedPercent != 3 || s.PowerOnHours.Lo != 1 {
		t.Fatalf("after an hour: %+v", s)
	}
	d.media = &wornMedia{media: d.media, used: 3, spare: 0.04}
	if s := h.smart(); s.UsedPercent != 3 {
		t.Fatalf("within the hour: %d", s.UsedPercent)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(2 * time.Hour))
	s := h.smart()
	if s.UsedPercent != 255 || s.SparePercent != 4 || s.CriticalWarning != nvmespec.WarningSpare {
		t.Fatalf("worn out: %+v", s)
	}
	if e, err := d.NextEvent(t.Context()); err != nil || e != (nvmeioctl.Event{Type: 1, Info: 2, LogPage: 2}) {
		t.Fatalf("event %+v, %v", e, err)
	}
	// Temperature: the composite threshold is a feature.
	h.want(setFeature(4, 300, false), 0)
	if s := h.smart(); s.CriticalWarning&nvmespec.WarningTemperature == 0 {
		t.Fatalf("above the threshold: %+v", s)
	}
}

// TestWornOut: a drive whose flash is used up says that it is read-only, and is.
func TestWornOut(t *testing.T) {
	d := newTestDrive(t, "client-1tb", func(p *Profile, _ *Options) {
		p.Flash.RatedCycles = 10
		p.Flash.BufferBytes, p.Flash.SLCShare = 0, 0 // they are not what wears
	})
	h := host{t, d}
	size := h.namespace(1).SizeBytes().Lo
	var status nvmespec.Status
	for range 100 {
		d.mu.Lock()
		status = d.media.access(mediaWrite, 1, 0, size)
		d.mu.Unlock()
		if status != 0 {
			break
		}
	}
	if status.Code() != nvmespec.StatusReadOnlyRange {
		t.Fatalf("100 passes over flash of 10 cycles: status %#x", uint16(status))
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(time.Hour))
	s := h.smart()
	if s.CriticalWarning&nvmespec.WarningReadOnly == 0 || s.UsedPercent < 50 {
		t.Fatalf("worn out: %+v", s)
	}
	h.want(nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, CDW12: 7, Data: make([]byte, 4096)}, status)
	h.want(nvmeioctl.Command{IO: true, Opcode: 2, NSID: 1, CDW12: 7, Data: make([]byte, 4096)}, 0)
}

// wornMedia is media with another wear.
type wornMedia struct {
	media
	used, spare float64
}

func (w *wornMedia) counters() mediaCounters {
	m := w.media.counters()
	m.UsedRatio, m.SpareRatio = w.used, w.spare
	return m
}

func TestSelfTest(t *testing.T) {
	d := newTestDrive(t, "memblaze-p6531-3.84tb", nil)
	h := host{t, d}
	start := func(code, nsid uint32) nvmeioctl.Command {
		return nvmeioctl.Command{Opcode: 0x14, NSID: nsid, CDW10: code}
	}
	log := func() []byte { return h.log(nvmespec.LogIDSelfTest, 564) }
	if b := log(); b[0] != 0 || b[4]&0xF != 0xF {
		t.Fatalf("LOG-21: idle drive reports %x", b[:8])
	}
	h.want(start(3, 0), 0x4002)
	h.want(start(1, 99), 0x400b)
	h.want(start(1, 0xFFFFFFFF), 0)
	h.want(start(2, 0), 0x411d)
	d.Clock().AdvanceTo(d.Clock().Now().Add(time.Minute))
	if b := log(); b[0] != 1 || b[1] != 50 {
		t.Fatalf("after half the time: %x", b[:4])
	}
	d.Clock().AdvanceTo(d.Clock().Now().Add(time.Minute))
	if b := log(); b[0] != 0 || b[4] != 1<<4 {
		t.Fatalf("after all of it: %x", b[:8])
	}
	h.want(start(2, 0), 0)
	h.want(start(0xF, 0), 0)
	if b := log(); b[0] != 0 || b[4] != 2<<4|1 || b[32] != 1<<4 {
		t.Fatalf("aborted: %x", b[:40])
	}
}
