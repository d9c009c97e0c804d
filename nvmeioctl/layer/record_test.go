package layer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/sim"
)

// drive is a simulated drive for recording.
func drive(t testing.TB, serial string) *sim.Drive {
	t.Helper()
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		t.Fatal("no profile")
	}
	d, err := sim.New(p, sim.Options{Serial: serial, Scale: 14308})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// written is a recording as it comes back from a file.
func written(t testing.TB, rec *layer.Recording) *layer.Recording {
	t.Helper()
	var b bytes.Buffer
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	back, err := layer.ReadRecording(&b)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// TestReplay_conformance: the conformance suite runs against a drive, which is
// recorded, and then against the recording in the drive's place.
func TestReplay_conformance(t *testing.T) {
	d := drive(t, "CONFORM1")
	var recorders []*layer.Recorder
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
		r := layer.Record(stays{d}, d.Clock())
		recorders = append(recorders, r)
		return r
	}, nvmetest.Options{ReadOnly: true})
	next := 0
	t.Run("replayed", func(t *testing.T) {
		nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
			r := layer.NewReplay("replay:conformance", written(t, recorders[next].Recording()))
			next++
			return r
		}, nvmetest.Options{ReadOnly: true})
	})
	if next != len(recorders) || next < 8 {
		t.Errorf("%d of %d conversations were replayed", next, len(recorders))
	}
}

// stays is a device that is not closed by who used it.
type stays struct{ nvmeioctl.Device }

func (stays) Close() error { return nil }

// TestReplay_partsOfLogs: any part of a log whose bytes were recorded is answered,
// whatever the pieces were, and nothing beyond.
func TestReplay_partsOfLogs(t *testing.T) {
	d := drive(t, "PARTS1")
	rec := layer.Record(d, d.Clock())
	read := func(dev nvmeioctl.Device, offset, length, chunk uint64) ([]byte, error) {
		return admin.GetLog(t.Context(), dev, admin.LogRequest{NSID: nvmespec.BroadcastNSID, Extended: true, MaxTransferBytes: chunk,
			Fields: nvmespec.GetLogFields{Log: nvmespec.LogIDEffects, OffsetBytes: offset, LengthBytes: length}})
	}
	whole, err := read(rec, 0, 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	dev := layer.NewReplay("replay:x", written(t, rec.Recording()))
	for _, c := range [][2]uint64{{0, 4096}, {0, 512}, {1024, 1024}, {4, 8}, {4092, 4}} {
		b, err := read(dev, c[0], c[1], 8192)
		if err != nil || !bytes.Equal(b, whole[c[0]:c[0]+c[1]]) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
	for _, c := range [][2]uint64{{4096, 4}, {0, 4100}, {4, 4096}} {
		var missing *layer.NotRecordedError
		if _, err := read(dev, c[0], c[1], 8192); !errors.As(err, &missing) || !errors.Is(err, nvmeioctl.ErrNotSupported) || missing.ExitCode() != 5 {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
}

// TestReplay_order: the same question gets the answers in the order they came,
// and the last one from then on.
func TestReplay_order(t *testing.T) {
	d := drive(t, "ORDER1")
	rec := layer.Record(d, d.Clock())
	for range 3 {
		if _, err := admin.SMARTLog(t.Context(), rec, nvmespec.BroadcastNSID); err != nil {
			t.Fatal(err)
		}
		d.Clock().AdvanceTo(d.Clock().Now().Add(time.Hour))
	}
	dev := layer.NewReplay("replay:x", written(t, rec.Recording()))
	for i, want := range []uint64{0, 1, 2, 2, 2} {
		s, err := admin.SMARTLog(t.Context(), dev, nvmespec.BroadcastNSID)
		if err != nil || s.PowerOnHours.Lo != want {
			t.Errorf("answer %d: %s hours, want %d, %v", i, s.PowerOnHours, want, err)
		}
	}
}

// TestReplay_refuses: what changes a drive, and what was not asked, get one clear
// answer; a host on a network gets a status.
func TestReplay_refuses(t *testing.T) {
	d := drive(t, "REFUSE1")
	rec := layer.Record(d, d.Clock())
	if _, err := admin.IdentifyController(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	dev := layer.NewReplay("replay:x", rec.Recording())
	for name, c := range map[string]struct {
		cmd    nvmeioctl.Command
		status nvmespec.Status
	}{
		"format":     {nvmeioctl.Command{Opcode: 0x80, NSID: 1}, 0x4015},
		"write":      {nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, Data: make([]byte, 512)}, 0x4015},
		"read":       {nvmeioctl.Command{IO: true, Opcode: 2, NSID: 1, Data: make([]byte, 512)}, 0x4015},
		"flush":      {nvmeioctl.Command{IO: true, Opcode: 0, NSID: 1}, 0},
		"feature":    {nvmeioctl.Command{Opcode: 0x0A, CDW10: 2}, 0x4002},
		"log":        {nvmeioctl.Command{Opcode: 0x02, CDW10: 2 | 127<<16, Data: make([]byte, 512)}, 0x4109},
		"self-test":  {nvmeioctl.Command{Opcode: 0x14, CDW10: 1}, 0x4015},
		"no time":    {nvmeioctl.Command{Opcode: 0x06, CDW10: 2, Data: make([]byte, 4096)}, 0x4002},
		"vendor's":   {nvmeioctl.Command{Opcode: 0xC1}, 0x4015},
		"unknown op": {nvmeioctl.Command{Opcode: 0x0B}, 0x4015},
	} {
		cmd := c.cmd
		cmd.Timeout = time.Minute
		_, err := dev.Submit(t.Context(), &cmd)
		var missing *layer.NotRecordedError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "replay:x: ") {
			t.Errorf("%s: %v", name, err)
		}
		done, err := dev.Served().Submit(t.Context(), &cmd)
		if err != nil || done.Status != c.status {
			t.Errorf("%s, served: status %#x, want %#x (%v)", name, uint16(done.Status), uint16(c.status), err)
		}
	}
}

// TestMask: no trace of the serial number and of the identifiers is left, and what
// was the same stays the same.
func TestMask(t *testing.T) {
	d := drive(t, "SECRET-SERIAL-77")
	rec := layer.Record(d, d.Clock())
	ctx := t.Context()
	ctrl, err := admin.IdentifyController(ctx, rec)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := admin.IdentifyNamespace(ctx, rec, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.NamespaceIDs(ctx, rec, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PersistentEvents(ctx, rec, admin.LimitsOf(ctrl), &bytes.Buffer{}, nil); err != nil {
		t.Fatal(err)
	}
	kept := rec.Recording()
	// A vendor's log, whose layout nobody knows, names the drive too.
	vendorLog := append([]byte{9, 9}, "xSECRET-SERIAL-77y"...)
	kept.Exchanges = append(kept.Exchanges, layer.Exchange{Opcode: 2, NSID: 0xFFFFFFFF, CDW10: 0xC5 | 127<<16, Length: 512, Data: vendorLog,
		Error: "sim: SECRET-SERIAL-77 is gone"})
	kept.Address = "sim:/home/me/SECRET-SERIAL-77.nvop"
	kept.Mask()
	var file bytes.Buffer
	if err := kept.Write(&file); err != nil {
		t.Fatal(err)
	}
	back := written(t, kept)
	if !back.Masked || strings.Contains(back.Address, "SECRET") {
		t.Errorf("head: %+v", back.Address)
	}
	for _, e := range back.Exchanges {
		if strings.Contains(e.Error, "SECRET") {
			t.Errorf("error %q", e.Error)
		}
		for what, secret := range map[string][]byte{"serial": []byte("SECRET-SERIAL"), "NQN": []byte(ctrl.SubsystemNQN), "NGUID": ns.NGUID[:], "EUI-64": ns.EUI64[:]} {
			if bytes.Contains(e.Data, secret) {
				t.Errorf("opcode %#x cdw10 %#x: the %s is still there", e.Opcode, e.CDW10, what)
			}
		}
	}
	dev := layer.NewReplay("replay:x", back)
	masked, err := admin.IdentifyController(ctx, dev)
	if err != nil || masked.SerialNumber == ctrl.SerialNumber || len(masked.SerialNumber) != len(ctrl.SerialNumber) || masked.ModelNumber != ctrl.ModelNumber ||
		!strings.HasPrefix(masked.SubsystemNQN, "nqn.2014-08.org.nvmexpress:uuid:") {
		t.Errorf("serial %q, NQN %q, %v", masked.SerialNumber, masked.SubsystemNQN, err)
	}
	n, err := admin.IdentifyNamespace(ctx, dev, 1)
	if err != nil || n.NGUID.IsZero() || n.EUI64.IsZero() || n.SizeBlocks != ns.SizeBlocks {
		t.Errorf("namespace %+v, %v", n, err)
	}
	ids, err := admin.NamespaceIDs(ctx, dev, 1)
	if err != nil || ids.NGUID != n.NGUID || ids.EUI64 != n.EUI64 {
		t.Errorf("descriptors %+v and identify %v %v, %v", ids, n.NGUID, n.EUI64, err)
	}
	var events bytes.Buffer
	h, err := admin.PersistentEvents(ctx, dev, admin.LimitsOf(masked), &events, nil)
	if err != nil || h.SerialNumber != masked.SerialNumber || h.SubsystemNQN != masked.SubsystemNQN {
		t.Errorf("event log of %q, %v", h.SerialNumber, err)
	}
	if l, err := nvmespec.DecodePersistentLog(events.Bytes()); err != nil || l.Incomplete != "" || len(l.Events) == 0 {
		t.Errorf("events: %+v, %v", l.Incomplete, err)
	}
}

// TestMask_shortSerial: a serial number of one letter is hidden where it stands
// and does not take every such letter with it.
func TestMask_shortSerial(t *testing.T) {
	d := drive(t, "M")
	rec := layer.Record(d, d.Clock())
	if _, err := admin.IdentifyController(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	kept := rec.Recording()
	kept.Mask()
	c, err := admin.IdentifyController(t.Context(), layer.NewReplay("x", kept))
	if err != nil || c.ModelNumber != "MEMBLAZE P7940DT0768M00" {
		t.Errorf("model %q, %v", c.ModelNumber, err)
	}
}

// TestReadRecording_refuses: each file that is no recording is refused with a
// reason, not replayed in part.
func TestReadRecording_refuses(t *testing.T) {
	d := drive(t, "FILE1")
	rec := layer.Record(d, d.Clock())
	if _, err := admin.IdentifyController(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := rec.Recording().Write(&file); err != nil {
		t.Fatal(err)
	}
	good := file.String()
	lines := strings.SplitAfter(good, "\n")
	for what, c := range map[string]struct{ text, reason string }{
		"empty":            {"", "empty"},
		"a text":           {"not a drive\n", "does not begin as one"},
		"a state file":     {"nvopsim\x00\x01", "does not begin as one"},
		"newer":            {strings.Replace(lines[0], `"version":1`, `"version":2,"more":true`, 1) + lines[1] + lines[2], "version 2"},
		"cut off":          {lines[0] + lines[1], "cut off"},
		"a line missing":   {lines[0] + lines[2], "checksum"},
		"a byte changed":   {strings.Replace(good, `"status":0`, `"status":2`, 1), "checksum"},
		"something after":  {good + "{}\n", "follows its end"},
		"an unknown field": {lines[0] + `{"opcode":6,"danger":1}` + "\n" + lines[2], "danger"},
		"too much data":    {lines[0] + `{"opcode":6,"length":1,"data":"AAAA","status":0}` + "\n" + lines[2], "3 bytes of data in a buffer of 1"},
		"a huge buffer":    {lines[0] + `{"opcode":6,"length":999999999999,"status":0}` + "\n" + lines[2], "999999999999"},
	} {
		_, err := layer.ReadRecording(strings.NewReader(c.text))
		var bad *layer.RecordingError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", what, err, c.reason)
		}
	}
	if _, err := layer.ReadRecording(strings.NewReader(good)); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// TestRecord_keepsNoUserData: what was written and read of a namespace's blocks is
// not in the file.
func TestRecord_keepsNoUserData(t *testing.T) {
	d := drive(t, "USER1")
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	rec := layer.Record(d, d.Clock())
	secret := bytes.Repeat([]byte("private!"), 64)
	for _, cmd := range []nvmeioctl.Command{
		{IO: true, Opcode: 1, NSID: 1, Data: secret}, {IO: true, Opcode: 2, NSID: 1, Data: make([]byte, 512)},
		{Opcode: 0x09, CDW10: 0x0E, Data: []byte("private!")[:8]},
	} {
		cmd.Timeout = time.Minute
		if _, err := rec.Submit(t.Context(), &cmd); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range rec.Recording().Exchanges {
		if len(e.Data) > 0 {
			t.Errorf("opcode %#x kept %d bytes", e.Opcode, len(e.Data))
		}
	}
}

func FuzzReadRecording(f *testing.F) {
	d := drive(f, "FUZZ1")
	rec := layer.Record(d, d.Clock())
	if _, err := admin.IdentifyController(f.Context(), rec); err != nil {
		f.Fatal(err)
	}
	if _, err := admin.SMARTLog(f.Context(), rec, nvmespec.BroadcastNSID); err != nil {
		f.Fatal(err)
	}
	var file bytes.Buffer
	if err := rec.Recording().Write(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(`{"format":"nvop-recording","version":1,"program":"","address":"","started":"2025-01-01T00:00:00Z","serials_masked":false}` + "\n"))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := layer.ReadRecording(bytes.NewReader(b))
		if err != nil {
			// The checksum stops most mutations: what one line may do is looked at
			// without it.
			var e layer.Exchange
			if json.Unmarshal(b, &e) != nil || e.Length < 0 || e.Length > 1<<16 || len(e.Data) > e.Length {
				return
			}
			rec = &layer.Recording{Exchanges: []layer.Exchange{e, e}}
		}
		dev := layer.NewReplay("x", rec)
		for _, e := range rec.Exchanges {
			if e.Length > 1<<20 {
				continue
			}
			cmd := nvmeioctl.Command{IO: e.IO, Opcode: e.Opcode, NSID: e.NSID, CDW2: e.CDW2, CDW3: e.CDW3, CDW10: e.CDW10, CDW11: e.CDW11,
				CDW12: e.CDW12, CDW13: e.CDW13, CDW14: e.CDW14, CDW15: e.CDW15, Data: make([]byte, e.Length), Timeout: time.Minute}
			_, _ = dev.Submit(t.Context(), &cmd)
			cmd.Data = make([]byte, min(e.Length, 7)) // less than was recorded
			_, _ = dev.Submit(t.Context(), &cmd)
		}
		rec.Mask()
		if err := rec.Write(&bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	})
}

func ExampleRecord() {
	p, _ := sim.LookupProfile("client-1tb")
	drive, err := sim.New(p, sim.Options{Serial: "S4EWNX0R"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drive.Close()
	recorder := layer.Record(drive, drive.Clock())
	ctx := context.Background()
	if _, err := admin.IdentifyController(ctx, recorder); err != nil {
		fmt.Println(err)
		return
	}
	rec := recorder.Recording()
	rec.Mask()
	c, err := admin.IdentifyController(ctx, layer.NewReplay("replay:drive.nvoprec", rec))
	fmt.Println(c.ModelNumber, c.SerialNumber, err)
	// Output: NVOP SIM CLIENT 1TB MASKED00 <nil>
}
