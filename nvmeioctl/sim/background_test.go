package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// pass lets time pass on a drive.
func pass(d *Drive, t time.Duration) { d.Clock().AdvanceTo(d.Clock().Now().Add(t)) }

func sanitizeCommand(cdw10, cdw11 uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x84, CDW10: cdw10, CDW11: cdw11}
}

func (h host) sanitizeLog() nvmespec.SanitizeLog {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeSanitizeLog, h.log(nvmespec.LogIDSanitize, 512))
}

// TestSanitize_life: refused commands, progress, the event, and that the data are
// gone, with the offsets of the log written out.
func TestSanitize_life(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	h := host{t, d}
	data := bytes.Repeat([]byte{0x5A}, 512)
	write := nvmeioctl.Command{IO: true, Opcode: 0x01, NSID: 1, Data: data}
	read := func() nvmeioctl.Command {
		return nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, Data: make([]byte, 512)}
	}
	if b := h.log(0x81, 512); b[2] != 0 || b[3] != 1 || binary.LittleEndian.Uint16(b) != 0xFFFF {
		t.Errorf("never written, never sanitized: % x", b[:8])
	}
	h.want(write, 0)
	if b := h.log(0x81, 512); b[3] != 0 {
		t.Error("all data are said to be erased after a write")
	}
	h.want(nvmeioctl.Command{Opcode: 0x14, NSID: 0xFFFFFFFF, CDW10: 1}, 0) // a self-test, which the sanitize ends
	h.want(sanitizeCommand(2, 0), 0)
	took := time.Duration(h.sanitizeLog().BlockEraseSeconds.Value) * time.Second
	if took < time.Minute {
		t.Fatalf("a block erase of 7.68 TB is said to take %s", took)
	}
	pass(d, took/4)
	b := h.log(0x81, 512)
	if sprog := binary.LittleEndian.Uint16(b); b[2]&7 != 2 || sprog < 16000 || sprog > 16800 || b[4] != 2 {
		t.Errorf("after a quarter: % x", b[:8])
	}
	for what, c := range map[string]nvmeioctl.Command{
		"read": read(), "write": write, "format": {Opcode: 0x80, NSID: 1}, "create": createBlocks(8, 0), "self-test": {Opcode: 0x14, CDW10: 1},
		"sanitize": sanitizeCommand(4, 0), "firmware log": logCommand(t, nvmespec.GetLogFields{Log: 3, LengthBytes: 512}, make([]byte, 512)),
	} {
		if s := h.raw(c).Status; s.Code() != 0x01D {
			t.Errorf("%s while it runs: status %#x, want 01Dh", what, uint16(s))
		}
	}
	h.controller() // identify, SMART and features go on
	h.smart()
	h.want(nvmeioctl.Command{Opcode: 0x0A, CDW10: 2}, 0)
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	if l := h.sanitizeLog(); !l.Running() {
		t.Fatalf("after a loss of power: %+v", l)
	}
	pass(d, took)
	if b := h.log(0x81, 512); b[2]&7 != 1 || b[3] != 1 || binary.LittleEndian.Uint16(b) != 0xFFFF {
		t.Errorf("at its end: % x", b[:8])
	}
	gone := read()
	h.want(gone, 0)
	if !bytes.Equal(gone.Data, make([]byte, 512)) {
		t.Error("the data are still there")
	}
	e, err := d.NextEvent(t.Context())
	if err != nil || e != (nvmeioctl.Event{Type: 6, Info: 1, LogPage: 0x81}) {
		t.Errorf("event %+v, %v", e, err)
	}
	if b := h.log(nvmespec.LogIDSelfTest, 564); b[4] != 1<<4|9 {
		t.Errorf("the self-test that it ended: %#x", b[4])
	}
}

func TestSanitize_refusals(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	for name, c := range map[string]nvmeioctl.Command{
		"no action": sanitizeCommand(0, 0), "action 6": sanitizeCommand(6, 0), "verification": sanitizeCommand(2|1<<10, 0),
		"passes of a block erase": sanitizeCommand(2|1<<4, 0), "pattern of a crypto erase": sanitizeCommand(4, 1),
		"exit verification": sanitizeCommand(5, 0), "namespace": {Opcode: 0x84, CDW10: 2, NSID: 1}, "reserved bit": sanitizeCommand(2|1<<11, 0),
	} {
		if s := h.raw(c).Status; s.Code() != 0x002 {
			t.Errorf("%s: status %#x, want 002h", name, uint16(s))
		}
	}
	h.want(sanitizeCommand(1, 0), 0) // there is no failure to leave
	client := host{t, newTestDrive(t, "client-1tb", nil)}
	client.want(sanitizeCommand(2, 0), 0x4001)
}

// TestSanitize_overwritePasses: 16 passes are 0 on the wire, and count up.
func TestSanitize_overwritePasses(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	l := h.sanitizeLog()
	h.want(sanitizeCommand(3, 0xDEADBEEF), 0)
	pass(d, time.Duration(l.OverwriteSeconds.Value)*time.Second/2)
	if got := h.sanitizeLog(); got.CompletedPasses < 7 || got.CompletedPasses > 8 || !got.Running() {
		t.Errorf("half of 16 passes: %+v", got)
	}
}

// TestSanitize_failure: what a failed one leaves, and the two ways out.
func TestSanitize_failure(t *testing.T) {
	for _, ause := range []uint32{0, 1 << 3} {
		d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
		h := host{t, d}
		d.st.Faults.Bad = []badRange{{NSID: 1, First: 9, Last: 9, Write: true}}
		h.want(sanitizeCommand(2|ause, 0), 0)
		d.st.Faults.Bad = nil
		pass(d, time.Hour)
		if l := h.sanitizeLog(); l.State != nvmespec.SanitizeFailed || l.GlobalDataErased {
			t.Fatalf("AUSE %d: %+v", ause, l)
		}
		h.want(nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, Data: make([]byte, 512)}, 0x401C)
		h.want(nvmeioctl.Command{Opcode: 0x80, NSID: 1}, 0x401C)
		if ause != 0 {
			h.want(sanitizeCommand(1, 0), 0)
		} else {
			h.want(sanitizeCommand(1, 0), 0x401C)
			h.want(sanitizeCommand(2, 0), 0)
			pass(d, time.Hour)
		}
		h.want(nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, Data: make([]byte, 512)}, 0)
	}
}

// TestBackground_survivesProcess: what runs goes on in another process, and what
// ended there is not forgotten.
func TestBackground_survivesProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drive.nvop")
	p, o := small(profile(t, "pblaze7-7940-7.68tb"))
	if err := Create(path, p, o); err != nil {
		t.Fatal(err)
	}
	with := func(do func(d *Drive, h host)) {
		t.Helper()
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		do(d, host{t, d})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	with(func(d *Drive, h host) { h.want(nvmeioctl.Command{Opcode: 0x14, NSID: 0xFFFFFFFF, CDW10: 2}, 0) })
	with(func(d *Drive, h host) {
		if err := d.PowerCycle(false); err != nil { // an extended test goes on
			t.Fatal(err)
		}
		if b := h.log(6, 564); b[0] != 2 {
			t.Errorf("after a loss of power: %x", b[:4])
		}
		pass(d, 13*time.Minute)
		h.log(6, 564)
	})
	with(func(d *Drive, h host) {
		if b := h.log(6, 564); b[0] != 0 || b[4] != 2<<4 {
			t.Errorf("the result of before: %x", b[:8])
		}
		h.want(sanitizeCommand(4, 0), 0)
	})
	with(func(d *Drive, h host) {
		if !h.sanitizeLog().Running() {
			t.Error("the sanitize has stopped with the process")
		}
		pass(d, time.Minute)
		h.sanitizeLog()
	})
	with(func(d *Drive, h host) {
		if l := h.sanitizeLog(); l.State != nvmespec.SanitizeDone {
			t.Errorf("its end is forgotten: %+v", l)
		}
	})
}

func TestSelfTest_findsBadBlocks(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	d.st.Faults.Bad = []badRange{{NSID: 1, First: 77, Last: 80}}
	h.want(nvmeioctl.Command{Opcode: 0x14, NSID: 1, CDW10: 1}, 0)
	pass(d, 3*time.Minute)
	b := h.log(6, 564)
	// Segment 4, and what is valid: NSID, LBA, status code type and code.
	if b[4] != 1<<4|7 || b[5] != 4 || b[6] != 0xF || binary.LittleEndian.Uint64(b[4+16:]) != 77 || b[4+24] != 2 || b[4+25] != 0x81 {
		t.Errorf("result % x", b[4:32])
	}
}

func TestTelemetry(t *testing.T) {
	d := newTestDrive(t, "memblaze-p6531-3.84tb", nil)
	h := host{t, d}
	whole := func(id nvmespec.LogID, lsp uint8) []byte {
		t.Helper()
		head := h.logFields(nvmespec.GetLogFields{Log: id, Specific: lsp, LengthBytes: 512, RetainEvent: true})
		last := binary.LittleEndian.Uint16(head[12:]) // area 3
		return append(head, h.logFields(nvmespec.GetLogFields{Log: id, OffsetBytes: 512, LengthBytes: uint64(last) * 512, RetainEvent: true})...)
	}
	for _, id := range []nvmespec.LogID{0x07, 0x08} {
		b := h.log(id, 512)
		if b[0] != uint8(id) || binary.LittleEndian.Uint16(b[8:]) != 0 || !bytes.Equal(b[5:8], []byte{0x53, 0x15, 0x8c}) {
			t.Errorf("empty telemetry log %#x: %x", id, b[:24])
		}
	}
	first := whole(7, 1)
	if first[381] != 1 || !bytes.Contains(first[512:], []byte(`"generation":1`)) {
		t.Errorf("generation %d, data %q", first[381], first[512:600])
	}
	pass(d, time.Hour)
	if !bytes.Equal(first, whole(7, 0)) {
		t.Error("captured data have changed")
	}
	if again := whole(7, 1); again[381] != 2 || bytes.Equal(first[512:], again[512:]) {
		t.Errorf("a second capture: generation %d", again[381])
	}
	// The controller captures at the first failure of the medium, until told that
	// its data were read.
	d.captureOnError(nvmespec.StatusUnrecoveredRead)
	d.captureOnError(nvmespec.StatusUnrecoveredRead)
	if b := h.log(8, 512); b[382] != 1 || b[383] != 1 {
		t.Errorf("controller-initiated: available %d, generation %d", b[382], b[383])
	}
	h.logFields(nvmespec.GetLogFields{Log: 8, LengthBytes: 512}) // without keeping the event
	if b := h.log(8, 512); b[382] != 0 {
		t.Error("still said to be unread")
	}
	d.captureOnError(nvmespec.StatusUnrecoveredRead)
	if b := h.log(8, 512); b[382] != 1 || b[383] != 2 {
		t.Errorf("captured anew: available %d, generation %d", b[382], b[383])
	}
}

// events reads the persistent event log as a host does.
func (h host) events() nvmespec.PersistentLog {
	h.t.Helper()
	head := h.logFields(nvmespec.GetLogFields{Log: 0x0D, Specific: 1, LengthBytes: 512})
	total := binary.LittleEndian.Uint64(head[8:])
	b := h.logFields(nvmespec.GetLogFields{Log: 0x0D, LengthBytes: (total + 3) &^ 3})
	h.logFields(nvmespec.GetLogFields{Log: 0x0D, Specific: 2, LengthBytes: 512})
	return decoded(h.t, nvmespec.DecodePersistentLog, b)
}

// TestEventLog: what happens to a drive is in its persistent event log, newest
// first.
func TestEventLog(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 0x0E, Data: []byte{0, 0, 0, 0, 0x90, 1, 0, 0}}, 0) // timestamp
	pass(d, time.Second)
	h.want(nvmeioctl.Command{Opcode: 0x80, NSID: 1, CDW10: 1}, 0)
	h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 2, CDW11: 1}, 0)
	h.want(deleteCommand(1), 0)
	h.want(createBlocks(1<<20, 0), 0)
	h.want(sanitizeCommand(4, 0), 0)
	pass(d, time.Minute)
	h.sanitizeLog()
	h.logFields(nvmespec.GetLogFields{Log: 7, Specific: 1, LengthBytes: 512})
	if err := d.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	l := h.events()
	var got []string
	for _, e := range l.Events {
		v, err := e.Decode()
		if err != nil || v == nil {
			t.Errorf("%s: %v, %v", e.Type, v, err)
		}
		got = append(got, e.Type.String())
		if !l.Header.Supports(e.Type) {
			t.Errorf("%s is logged and not announced", e.Type)
		}
	}
	want := "[power-on-or-reset telemetry-create sanitize-completion sanitize-start change-namespace change-namespace set-feature " +
		"format-completion format-start timestamp-change smart-snapshot power-on-or-reset]"
	if fmt.Sprint(got) != want || l.Incomplete != "" || int(l.Header.Events) != len(got) {
		t.Errorf("events %v, want %s (%s)", got, want, l.Incomplete)
	}
	done, _ := l.Events[2].Decode()
	if s := done.(nvmespec.SanitizeDoneEvent); s.State != nvmespec.SanitizeDone {
		t.Errorf("completion %+v", s)
	}
	if start, end := l.Events[8].Time, l.Events[7].Time; end.Milliseconds <= start.Milliseconds || start.Origin != 1 {
		t.Errorf("format from %+v to %+v", start, end)
	}
	// A log that stands still while it is read, LOG-09.
	h.logFields(nvmespec.GetLogFields{Log: 0x0D, Specific: 1, LengthBytes: 512})
	before := h.logFields(nvmespec.GetLogFields{Log: 0x0D, LengthBytes: 512})
	h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 2, CDW11: 0}, 0)
	if !bytes.Equal(before, h.logFields(nvmespec.GetLogFields{Log: 0x0D, LengthBytes: 512})) {
		t.Error("the log changes within a context")
	}
	second := nvmespec.GetLogFields{Log: 0x0D, Specific: 1, LengthBytes: 512}
	h.want(logCommand(t, second, make([]byte, 512)), 0x400C)
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.want(logCommand(t, nvmespec.GetLogFields{Log: 0x0D, LengthBytes: 512}, make([]byte, 512)), 0x400C)
}

// TestEventLog_bounded: old events go, and the log never has more than it says it
// may.
func TestEventLog_bounded(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	for range 300 {
		pass(d, 25*time.Hour)
		h.smart()
	}
	l := h.events()
	if l.Header.TotalBytes > h.controller().PersistentEventLogBytes || len(l.Events) < 100 {
		t.Errorf("%d events in %d bytes", len(l.Events), l.Header.TotalBytes)
	}
	for _, e := range l.Events {
		if e.Type != nvmespec.EventSMARTSnapshot {
			t.Errorf("%s has outlived %d newer ones", e.Type, len(l.Events))
		}
	}
}

// TestOldState: a drive that an older version made is read, and has what it had.
func TestOldState(t *testing.T) {
	p, o := small(profile(t, "pblaze7-7940-7.68tb"))
	p.Sanitize = 0
	d, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := json.Marshal(d.st)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(admin, &fields); err != nil {
		t.Fatal(err)
	}
	for _, newer := range []string{"sanitize", "telemetry", "persistent_events"} {
		if _, ok := fields[newer]; !ok {
			t.Errorf("no field %q", newer)
		}
		delete(fields, newer)
	}
	if admin, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if d.st, err = decodeAdmin(admin); err != nil {
		t.Fatalf("a state without them: %v", err)
	}
	h := host{t, d}
	if l := h.events(); len(l.Events) != 0 || l.Header.Generation != 0 {
		t.Errorf("events of a drive that logged none: %+v", l.Header)
	}
	h.want(sanitizeCommand(2, 0), 0x4001)
	if c := h.controller(); c.Sanitize != 0 {
		t.Errorf("SANICAP %#x", uint32(c.Sanitize))
	}
}

// TestExtendedFormats: formats above 15 are there for hosts that enabled them, in
// the two parts of FLBAS and of the format command.
func TestExtendedFormats(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(p *Profile, o *Options) {
		for len(p.Formats) < 40 {
			p.Formats = append(p.Formats, Format{DataBytes: 4096, MetadataBytes: uint16(len(p.Formats)), RelativePerformance: 1})
		}
	})
	h := host{t, d}
	if c := h.controller(); uint32(c.Attributes)>>15&1 != 1 {
		t.Errorf("CTRATT %#x", uint32(c.Attributes))
	}
	raw := h.identify(nvmespec.CNSNamespace, 0xFFFFFFFF)
	if raw[25] != 39 || raw[128+4*39] != 39 || raw[128+4*39+2] != 12 {
		t.Errorf("NLBAF %d, the last format % x", raw[25], raw[128+4*39:128+4*40])
	}
	// Format 37 = 25h: low four bits 5, high two bits 2.
	h.want(nvmeioctl.Command{Opcode: 0x80, NSID: 1, CDW10: 5 | 2<<12}, 0)
	if raw := h.identify(nvmespec.CNSNamespace, 1); raw[26] != 5|2<<5 {
		t.Errorf("FLBAS %#x", raw[26])
	}
	h.want(deleteCommand(1), 0)
	h.want(createBlocks(1000, 33), 0)
	if n := h.allocatedNamespace(1); n.FormatIndex != 33 {
		t.Errorf("format %d", n.FormatIndex)
	}
	h.want(nvmeioctl.Command{Opcode: 0x80, NSID: 1, CDW10: 8 | 2<<12}, 0x4002) // not attached
	off := make([]byte, 512)
	h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 0x16, Data: off}, 0)
	if raw := h.identify(nvmespec.CNSNamespace, 0xFFFFFFFF); raw[25] != 15 {
		t.Errorf("NLBAF %d with extended formats off", raw[25])
	}
	h.want(createBlocks(1000, 33), 0x410A)
	off[2] = 2
	h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 0x16, Data: off}, 0x4002)
}
