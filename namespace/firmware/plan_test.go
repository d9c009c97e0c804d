package firmware_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// smallPieces makes a step send pieces of 4096 bytes, so that a test has many.
func smallPieces(t testing.TB, raw json.RawMessage) json.RawMessage {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	m["chunk_bytes"] = 4096
	return json.RawMessage(mustJSON(t, m))
}

// slots makes a state from revisions: "!" read-only, "*" active, ">" next.
func slots(texts ...string) firmware.State {
	s := firmware.State{Supported: true, Model: "X", Serial: "S", GranularityBytes: 4096, MaxTransferBytes: 1 << 19}
	for i, text := range texts {
		n := uint8(i + 1)
		slot := firmware.Slot{Number: n, Revision: strings.Trim(text, "!*>"), ReadOnly: strings.Contains(text, "!"),
			Active: strings.Contains(text, "*"), Next: strings.Contains(text, ">")}
		if slot.Active {
			s.Active, s.Running = n, slot.Revision
		}
		if slot.Next {
			s.Next = n
		}
		s.Slots = append(s.Slots, slot)
	}
	return s
}

// TestPlan_slot: FW-12, FW-27. Which slot an image goes to.
func TestPlan_slot(t *testing.T) {
	img := firmware.Image{Path: "/x", SizeBytes: 8192, SHA256: strings.Repeat("0", 64)}
	for _, c := range []struct {
		name  string
		slots []string
		ask   uint8
		want  uint8
		exit  int
	}{
		{"an empty one", []string{"A!*", "B", ""}, 0, 3, 0},
		{"none empty", []string{"A!*", "B", "C"}, 0, 2, 0},
		{"the second runs", []string{"A!", "B*", "C"}, 0, 3, 0},
		{"one is staged", []string{"A!*", "B>", "C"}, 0, 3, 0},
		{"only the staged one is left", []string{"A!*", "B>"}, 0, 2, 0},
		{"a single slot", []string{"A*"}, 0, 1, 0},
		{"a single read-only slot", []string{"A!*"}, 0, 0, 5},
		{"read-only and the one that runs", []string{"A!", "B*"}, 0, 2, 0},
		{"newer-looking revisions are not ordered", []string{"Z*", "A", "M"}, 0, 2, 0},
		{"asked for", []string{"A!*", "B", "C"}, 3, 3, 0},
		{"asked for read-only", []string{"A!*", "B", "C"}, 1, 0, 4},
		{"asked for what is not there", []string{"A!*", "B"}, 3, 0, 4},
		{"no slots at all", nil, 0, 0, 5},
	} {
		p, err := firmware.Plan(slots(c.slots...), firmware.Want{Revision: "NEW", Image: "/x", Slot: c.ask}, &img, firmware.Options{})
		if code := exitCode(err); err != nil && code != c.exit || err == nil && c.exit != 0 {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && p.Slot != c.want {
			t.Errorf("%s: slot %d, want %d", c.name, p.Slot, c.want)
		}
	}
}

// TestPlan_alreadySo has what needs no command, and what only looks so.
func TestPlan_alreadySo(t *testing.T) {
	img := firmware.Image{Path: "/x", SizeBytes: 8192, SHA256: strings.Repeat("0", 64)}
	for _, c := range []struct {
		name  string
		slots []string
		want  firmware.Want
		so    bool
		steps int
		exit  int
	}{
		{"runs", []string{"A*", "B"}, firmware.Want{Revision: "A"}, true, 0, 0},
		{"runs, another is staged", []string{"A*", "B>"}, firmware.Want{Revision: "A"}, false, 1, 0},
		{"is staged", []string{"A*", "B>"}, firmware.Want{Revision: "B"}, true, 0, 0},
		{"is staged, and should run", []string{"A*", "B>"}, firmware.Want{Revision: "B", Activate: firmware.ActivateReset}, false, 2, 0},
		{"lies in a slot", []string{"A*", "B"}, firmware.Want{Revision: "B"}, false, 1, 0},
		{"nowhere, no image", []string{"A*", "B"}, firmware.Want{Revision: "C"}, false, 0, 4},
		{"case and blanks count", []string{"A*", "B"}, firmware.Want{Revision: "a"}, false, 0, 4},
		{"nothing asked", []string{"A*"}, firmware.Want{}, false, 0, 1},
		{"sum of another image", []string{"A*", "B"}, firmware.Want{Revision: "C", Image: "/x", SHA256: strings.Repeat("1", 64)}, false, 0, 4},
		{"stored already", []string{"A*", "B"}, firmware.Want{Revision: "B", Activate: firmware.ActivateStore}, true, 0, 0},
	} {
		var image *firmware.Image
		if c.want.Image != "" {
			image = &img
		}
		p, err := firmware.Plan(slots(c.slots...), c.want, image, firmware.Options{})
		if err != nil {
			if exitCode(err) != c.exit {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if c.exit != 0 || p.AlreadySo != c.so || len(p.Steps) != c.steps {
			t.Errorf("%s: %s", c.name, mustJSON(t, p))
		}
	}
}

// TestPlan_refusesWhileBusy: a sanitize must not be disturbed, a self-test not be
// ended by a reset.
func TestPlan_refusesWhileBusy(t *testing.T) {
	s := slots("A*", "B")
	s.Busy = "a sanitize is in progress"
	if _, err := firmware.Plan(s, firmware.Want{Revision: "B"}, nil, firmware.Options{}); exitCode(err) != 4 {
		t.Errorf("sanitize: %v", err)
	}
	s = slots("A*", "B")
	s.SelfTest = true
	if _, err := firmware.Plan(s, firmware.Want{Revision: "B"}, nil, firmware.Options{}); err != nil {
		t.Errorf("staging disturbs no self-test: %v", err)
	}
	if _, err := firmware.Plan(s, firmware.Want{Revision: "B", Activate: firmware.ActivateReset}, nil, firmware.Options{}); exitCode(err) != 4 {
		t.Errorf("reset: %v", err)
	}
	s.Supported = false
	if _, err := firmware.Plan(s, firmware.Want{Revision: "B"}, nil, firmware.Options{}); exitCode(err) != 5 {
		t.Errorf("unsupported: %v", err)
	}
}

// TestPlan_commitActions: FW-09, FW-23, FW-29. Every commit action from 0 to 7,
// accepted or refused, and the dword it becomes.
func TestPlan_commitActions(t *testing.T) {
	s := slots("A!*", "B", "C")
	s.ActivatesWithoutReset = true
	allow := firmware.Options{AllowLive: []string{"X"}}
	want := map[nvmespec.CommitAction]uint32{0: 0x02, 1: 0x0A, 2: 0x12, 3: 0x1A, 6: 0x32, 7: 0x3A}
	for a := range nvmespec.CommitAction(8) {
		p, err := firmware.PlanCommit(s, firmware.Commit{Slot: 2, Action: a}, allow)
		dword, ok := want[a]
		if ok != (err == nil) {
			t.Errorf("action %d: %v", a, err)
			continue
		}
		if !ok {
			if exitCode(err) != 4 {
				t.Errorf("action %d: exit %d", a, exitCode(err))
			}
			continue
		}
		cmd := p.Steps[0].Commands[len(p.Steps[0].Commands)-1]
		if cmd.Opcode != 0x10 || cmd.CDW10 != dword {
			t.Errorf("action %d: %s, want cdw10 %#x", a, cmd, dword)
		}
	}
	for _, c := range []firmware.Commit{{Slot: 0, Action: 2}, {Slot: 0, Action: 3}, {Slot: 4, Action: 2}, {Slot: 1, Action: 0}, {Slot: 1, Action: 1}} {
		if p, err := firmware.PlanCommit(s, c, allow); err == nil {
			t.Errorf("%+v: %s", c, mustJSON(t, p))
		}
	}
	if _, err := firmware.PlanCommit(s, firmware.Commit{Slot: 2, Action: 3}, firmware.Options{}); exitCode(err) != 4 {
		t.Errorf("action 3 without the allow-list: %v", err)
	}
	if p, err := firmware.PlanCommit(s, firmware.Commit{Action: 1}, firmware.Options{}); err != nil || p.Slot != 2 {
		t.Errorf("a slot is chosen here and not by the drive (FW-27): %d, %v", p.Slot, err)
	}
}

// TestPlan_pieces: FW-14, FW-18, FW-22. Whatever the limits of a drive and the
// size of an image, the drive gets the image: each piece within the limits, at
// the offset of what went before, in order, and no more.
func TestPlan_pieces(t *testing.T) {
	type limits struct{ granularity, transfer uint32 }
	drives := map[limits]*rig{}
	rapid.Check(t, func(rt *rapid.T) {
		// A multiple of the granularity, or not.
		granularity := rapid.SampledFrom([]uint32{0, ^uint32(0), 4096, 8192, 12288, 65536}).Draw(rt, "granularity")
		limit := rapid.SampledFrom([]uint32{0, 8192, 16384, 131072, 524288}).Draw(rt, "transfer limit")
		size := 4 * rapid.IntRange(7, 60_000).Draw(rt, "dwords")
		r := drives[limits{granularity, limit}]
		if r == nil {
			r = newRig(t, func(p *sim.Profile, _ *sim.Options) {
				p.FirmwareGranularityBytes, p.MaxTransferBytes = granularity, limit
			})
			drives[limits{granularity, limit}] = r
		}
		r.sent, r.log = nil, &txn.MemoryLog{}
		img := r.image("NEW", size)
		p := r.plan(firmware.Want{Revision: "NEW", Slot: 2}, &img, firmware.Options{Pad: true, Again: true})
		if granularity != ^uint32(0) && limit != 0 && granularity > limit {
			return // such a drive cannot be loaded: its own limits exclude each other
		}
		if _, err := r.run(p); err != nil {
			rt.Fatal(err)
		}
		next := uint64(0)
		for _, c := range r.sent {
			if c.Opcode != nvmespec.AdminFirmwareDownload {
				continue
			}
			f := nvmespec.DecodeFirmwareDownloadFields(c.CDW10, c.CDW11)
			if f.OffsetBytes != next || limit != 0 && f.LengthBytes > uint64(limit) || f.LengthBytes > 128<<10 {
				rt.Fatalf("piece %+v after %d bytes", f, next)
			}
			next += f.LengthBytes
		}
		if next < uint64(size) || next >= uint64(size)+max(uint64(granularity&^3), 4096, 65536) {
			rt.Fatalf("%d bytes sent of %d", next, size)
		}
		if s := r.state(); s.Slots[1].Revision != "NEW" {
			rt.Fatalf("state %+v", s)
		}
	})
}

// TestPlan_neitherReported: a drive that tells neither MDTS nor FWUG gets pieces
// of 4096 bytes.
func TestPlan_neitherReported(t *testing.T) {
	r := newRig(t, func(p *sim.Profile, _ *sim.Options) { p.FirmwareGranularityBytes, p.MaxTransferBytes = 0, 0 })
	img := r.image("NEW", 4096*3+512)
	r.must(r.plan(firmware.Want{Revision: "NEW"}, &img, firmware.Options{}))
	if len(r.sent) != 5 || r.sent[0].CDW10 != 1023 || r.sent[3].CDW10 != 127 || r.sent[3].CDW11 != 3*1024 {
		t.Errorf("sent %+v", r.sent)
	}
}

// TestQuirks: FW-24. Each quirk has a source, and applies to the drives meant.
func TestQuirks(t *testing.T) {
	for _, q := range firmware.Quirks() {
		if q.Text == "" || q.Source == "" || q.VendorID == 0 && q.Model == "" {
			t.Errorf("%+v", q)
		}
	}
	s := slots("A*", "B")
	s.VendorID, s.Model = 0x1987, "Corsair MP600"
	img := firmware.Image{Path: "/x", SizeBytes: 5000, SHA256: strings.Repeat("0", 64)}
	p, err := firmware.Plan(s, firmware.Want{Revision: "NEW", Image: "/x", Activate: firmware.ActivateReset}, &img, firmware.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(p.Steps[0].Params), `"size_bytes":8192,"chunk_bytes":4096`) || p.Pending != firmware.ResetConventional || len(p.Steps) != 1 {
		t.Errorf("planned %s", mustJSON(t, p))
	}
	s.VendorID = 0x1C5F
	if len(s.Quirks()) != 0 {
		t.Errorf("quirks of another vendor: %+v", s.Quirks())
	}
}

func TestLoadImage_refuses(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{"empty": 0, "odd": 4097, "huge": firmware.ImageBytesMax + 4} {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil { // a hole takes no room
			t.Fatal(err)
		}
		f.Close()
		if _, err := firmware.LoadImage(path); exitCode(err) != 4 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := firmware.LoadImage(dir); exitCode(err) != 4 {
		t.Errorf("a folder: %v", err)
	}
	if _, err := firmware.LoadImage(filepath.Join(dir, "none")); err == nil || exitCode(err) != 1 {
		t.Errorf("missing: %v", err)
	}
}

// TestState_ofADrive: FW-20, FW-25. Seven slots at most, revisions as text and
// in hexadecimal, and only those slots that the drive has.
func TestState_ofADrive(t *testing.T) {
	log := nvmespec.FirmwareSlots{Active: 2, Next: 3, Revisions: [7]string{"1.0", "2.0", "", "", "", "", "7"}}
	s := firmware.FromIdentify(nvmespec.Controller{FirmwareSlotCount: 3, FirmwareSlot1ReadOnly: true, FirmwareRevision: "2.0"}, &log)
	if len(s.Slots) != 3 || !s.Slots[0].ReadOnly || s.Slots[0].RevisionHex != "312e30" || !s.Slots[1].Active || !s.Slots[2].Next {
		t.Errorf("state %+v", s)
	}
	if s := firmware.FromIdentify(nvmespec.Controller{FirmwareRevision: "2.0"}, &log); len(s.Slots) != 3 {
		t.Errorf("a drive that reports no number of slots: %+v", s.Slots)
	}
}
