package sim

import (
	"encoding/binary"
	"hash/crc32"
	"path/filepath"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

func download(offset int, data []byte) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x11, CDW10: uint32(len(data)/4 - 1), CDW11: uint32(offset / 4), Data: data}
}

func commitCommand(slot, action uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x10, CDW10: slot | action<<3}
}

func image(t testing.TB, p Profile, revision string, size int) []byte {
	t.Helper()
	b, err := FirmwareImage(p, revision, size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (h host) load(img []byte, chunk int) {
	h.t.Helper()
	for off := 0; off < len(img); off += chunk {
		h.want(download(off, img[off:min(off+chunk, len(img))]), 0)
	}
}

func (h host) slots() nvmespec.FirmwareSlots {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeFirmwareSlots, h.log(nvmespec.LogIDFirmware, nvmespec.FirmwareSlotsSize))
}

// TestFirmwareStaged: FW-10, FW-25, FW-29. Action 1 becomes active at a reset,
// action 0 never by itself.
func TestFirmwareStaged(t *testing.T) {
	p := profile(t, "pblaze7-7940-7.68tb")
	d := newTestDrive(t, p.Name, nil)
	h := host{t, d}
	if s := h.slots(); s.Active != 1 || s.Next != 0 || s.Revisions[0] != p.Firmware || s.Revisions[1] != "" {
		t.Fatalf("delivered with %+v", s)
	}
	h.load(image(t, p, "0B200200", 64<<10), 16<<10)
	h.want(commitCommand(2, 0), 0)
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.slots(); s.Active != 1 || s.Next != 0 || s.Revisions[1] != "0B200200" {
		t.Fatalf("action 0: %+v", s)
	}
	h.want(commitCommand(2, 2), 0)
	if s := h.slots(); s.Active != 1 || s.Next != 2 {
		t.Fatalf("action 2: %+v", s)
	}
	if h.controller().FirmwareRevision != p.Firmware {
		t.Fatal("it was active before the reset")
	}
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.slots(); s.Active != 2 || s.Next != 0 || h.controller().FirmwareRevision != "0B200200" {
		t.Fatalf("after the reset: %+v", s)
	}
	// Slot 0 lets the drive choose: neither read-only slot 1 nor the active one.
	h.load(image(t, p, "0B300300", 4096), 4096)
	h.want(commitCommand(0, 1), 0)
	if s := h.slots(); s.Next != 3 || s.Revisions[2] != "0B300300" {
		t.Fatalf("slot chosen: %+v", s)
	}
}

// TestFirmwareActivation has the answers of actions and kinds of reset
// (FW-01, FW-04, FW-23).
func TestFirmwareActivation(t *testing.T) {
	for _, c := range []struct {
		reset  FirmwareReset
		live   bool
		action uint32
		want   nvmespec.Status
		// The mildest reset that activates: 0 none needed, 1 controller, 2 subsystem, 3 power.
		needs int
	}{
		{ResetByController, true, 1, 0, 1},
		{ResetByController, true, 3, 0, 0},
		{ResetByController, false, 3, 0x111, 1},
		{ResetBySubsystem, true, 1, 0x110, 2},
		{ResetBySubsystem, true, 3, 0x110, 2},
		{ResetByPowerCycle, true, 1, 0x10b, 3},
		{ResetByPowerCycle, false, 3, 0x10b, 3},
	} {
		d := newTestDrive(t, "pblaze7-7940-7.68tb", func(p *Profile, o *Options) {
			p.ActivatesWithoutReset, o.FirmwareReset = c.live, c.reset
		})
		h := host{t, d}
		h.load(image(t, d.Profile(), "NEW", 4096), 4096)
		h.want(commitCommand(2, c.action), c.want)
		if e := h.errors(); len(e) != 0 {
			t.Errorf("a pending reset is no error: %v", e)
		}
		resets := []func() error{
			func() error { return nil },
			func() error { return d.ResetController(t.Context()) },
			func() error { return d.ResetSubsystem(t.Context()) },
			func() error { return d.PowerCycle(true) },
		}
		for i, reset := range resets {
			if err := reset(); err != nil {
				t.Fatal(err)
			}
			if got := h.controller().FirmwareRevision == "NEW"; got != (i >= c.needs) {
				t.Errorf("%+v: after reset %d active is %v", c, i, got)
			}
		}
	}
}

func TestFirmwareRefused(t *testing.T) {
	p := profile(t, "pblaze7-7940-7.68tb")
	d := newTestDrive(t, p.Name, nil)
	h := host{t, d}
	good := image(t, p, "OK", 8192)
	h.want(commitCommand(2, 1), 0x4107) // nothing downloaded
	h.want(commitCommand(2, 2), 0x4106) // FW-12: an empty slot
	h.want(commitCommand(4, 2), 0x4106)
	h.load(good, 4096)
	h.want(commitCommand(1, 1), 0x4106) // FW-12: slot 1 is read-only
	h.want(commitCommand(4, 1), 0x4106)
	h.want(commitCommand(2, 4), 0x4002)
	h.want(commitCommand(2, 6), 0x4002)
	h.want(nvmeioctl.Command{Opcode: 0x10, CDW10: 1 << 31}, 0x4002)
	h.want(nvmeioctl.Command{Opcode: 0x10, CDW10: 1 << 6}, 0x4002)
	h.want(commitCommand(2, 1), 0) // the image survived the refusals of the slot

	// FW-14, FW-16: pieces must fit the granularity, and not lie on another.
	h.want(download(4096, good[:2048]), 0x4002)
	h.want(download(2048, good[:4096]), 0x4002)
	h.want(download(0, good[:4096]), 0)
	h.want(download(0, good[:4096]), 0x4114)
	h.want(download(0, good), 0x4114)
	h.want(nvmeioctl.Command{Opcode: 0x11, CDW10: 2047, Data: good[:4096]}, 0x4004)
	h.want(nvmeioctl.Command{Opcode: 0x11, CDW10: 1023, CDW11: 0xFFFFFC00, Data: good[:4096]}, 0x4002)
	h.want(commitCommand(2, 1), 0x4107) // half an image
	h.want(commitCommand(2, 1), 0x4107) // which was forgotten
	// In any order, with a gap at first.
	h.want(download(4096, good[4096:]), 0)
	h.want(download(0, good[:4096]), 0)
	h.want(commitCommand(3, 1), 0)

	for name, spoil := range map[string]func([]byte) []byte{
		"flipped":        func(b []byte) []byte { b[5000] ^= 1; return b },
		"magic":          func(b []byte) []byte { b[0] ^= 1; return fix(b) },
		"other vendor":   func(b []byte) []byte { b[8] ^= 1; return fix(b) },
		"longer":         func(b []byte) []byte { binary.LittleEndian.PutUint32(b[12:], 8196); return fix(b) },
		"shorter":        func(b []byte) []byte { binary.LittleEndian.PutUint32(b[12:], 8); return fix(b) },
		"no revision":    func(b []byte) []byte { copy(b[16:24], "        "); return fix(b) },
		"odd revision":   func(b []byte) []byte { b[16] = 7; return fix(b) },
		"odd flags":      func(b []byte) []byte { b[10] = 2; return fix(b) },
		"something else": func(b []byte) []byte { return make([]byte, 8192) },
	} {
		h.load(spoil(append([]byte(nil), good...)), 4096)
		if got := h.raw(commitCommand(2, 1)).Status; got != 0x4107 {
			t.Errorf("%s image: status %#x", name, uint16(got))
		}
	}
	// Padding to the granularity is no damage.
	h.load(append(image(t, p, "PAD", 5000), make([]byte, 3192)...), 4096)
	h.want(commitCommand(2, 1), 0)
	for _, size := range []int{0, 24, 27, 30, 32 << 20} {
		if _, err := FirmwareImage(p, "X", size); err == nil {
			t.Errorf("an image of %d bytes was made", size)
		}
	}
	if _, err := FirmwareImage(p, "TOOLONGREV", 4096); err == nil {
		t.Error("a revision of 10 characters was taken")
	}
}

// TestFirmwareDefective: FW-07. An image that is stored and staged and does not
// start leaves what ran before, and the slot can be loaded again.
func TestFirmwareDefective(t *testing.T) {
	p := profile(t, "pblaze7-7940-7.68tb")
	d := newTestDrive(t, p.Name, nil)
	h := host{t, d}
	bad, err := DefectiveFirmwareImage(p, "BAD", 4096)
	if err != nil {
		t.Fatal(err)
	}
	h.load(bad, 4096)
	h.want(commitCommand(2, 1), 0)
	if s := h.slots(); s.Next != 2 || s.Revisions[1] != "BAD" {
		t.Fatalf("not staged: %+v", s)
	}
	if err := d.PowerCycle(true); err != nil {
		t.Fatal(err)
	}
	if s := h.slots(); s.Active != 1 || s.Next != 0 || s.Revisions[1] != "BAD" || h.controller().FirmwareRevision != p.Firmware {
		t.Fatalf("after the reset: %+v, %s runs", s, h.controller().FirmwareRevision)
	}
	h.load(image(t, p, "GOOD", 4096), 4096)
	h.want(commitCommand(2, 1), 0)
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.controller().FirmwareRevision; got != "GOOD" {
		t.Fatalf("%s runs", got)
	}
}

// TestFirmwareActivationWindow: FW-08. While an activation without reset goes on
// no command is answered, and the hosts were told before.
func TestFirmwareActivationWindow(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	h.load(image(t, d.Profile(), "NEW", 4096), 4096)
	h.want(commitCommand(2, 3), 0)
	committed := d.clock.Now()
	e, err := d.NextEvent(t.Context())
	if err != nil || e != (nvmeioctl.Event{Type: 2, Info: 1, LogPage: 3}) {
		t.Fatalf("event %+v, %v", e, err)
	}
	if got := h.controller().FirmwareRevision; got != "NEW" {
		t.Fatalf("%s runs", got)
	}
	if waited, want := d.clock.Now().Sub(committed), d.Profile().MaxActivation; waited != want {
		t.Errorf("the first command waited %v, want %v", waited, want)
	}
}

// TestFirmwareSurvives: what was downloaded, staged and found defective outlives
// the process that has the drive open.
func TestFirmwareSurvives(t *testing.T) {
	p := profile(t, "pblaze7-7940-7.68tb")
	path := filepath.Join(t.TempDir(), "drive")
	if err := Create(path, p, Options{Scale: 8192}); err != nil {
		t.Fatal(err)
	}
	open := func() (*Drive, host) {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return d, host{t, d}
	}
	bad, err := DefectiveFirmwareImage(p, "BAD", 8192)
	if err != nil {
		t.Fatal(err)
	}
	d, h := open()
	h.want(download(0, bad[:4096]), 0)
	d.Close()
	d, h = open()
	h.want(download(0, bad[:4096]), 0x4114)
	h.want(download(4096, bad[4096:]), 0)
	h.want(commitCommand(2, 1), 0)
	d.Close()
	d, h = open()
	if s := h.slots(); s.Next != 2 {
		t.Fatalf("not staged: %+v", s)
	}
	if err := d.ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := h.slots(); s.Active != 1 || s.Next != 0 {
		t.Fatalf("after the reset: %+v", s)
	}
	d.Close()
}

// fix makes the checksum of a spoiled image right again.
func fix(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(b[:len(b)-4]))
	return b
}
