package layer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// drive is a controller as small as these tests need. Its Identify page is
// filled by offset from the specification, not by our codec.
type drive struct {
	sent   []nvmeioctl.Command
	resets []string
	serial string
	cntlid uint16
	fna    uint8
	nsids  []uint32
	create uint32 // NSID that the next create returns
	status nvmespec.Status
	err    error
}

func newDrive() *drive { return &drive{serial: "S1", cntlid: 7, nsids: []uint32{1, 2}, create: 9} }

func (d *drive) Submit(_ context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if cmd.Opcode == 0x06 && !cmd.IO {
		switch cmd.CDW10 & 0xFF {
		case 0x01:
			binary.LittleEndian.PutUint16(cmd.Data[78:], d.cntlid)
			copy(cmd.Data[4:24], d.serial+strings.Repeat(" ", 20))
			copy(cmd.Data[24:64], "Model"+strings.Repeat(" ", 40))
			copy(cmd.Data[768:], "nqn.test")
			cmd.Data[256] = 1 << 3 // namespace management
			cmd.Data[524] = d.fna
		case 0x02, 0x10:
			for i, id := range d.nsids {
				binary.LittleEndian.PutUint32(cmd.Data[4*i:], id)
			}
		}
		return nvmeioctl.Completion{}, nil
	}
	c := *cmd
	c.Data = bytes.Clone(cmd.Data)
	d.sent = append(d.sent, c)
	if cmd.Opcode == 0x0D && cmd.CDW10 == 0 {
		return nvmeioctl.Completion{Status: d.status, Result: uint64(d.create)}, d.err
	}
	return nvmeioctl.Completion{Status: d.status}, d.err
}

func (d *drive) String() string { return "test:drive" }
func (d *drive) Close() error   { return nil }

func (d *drive) ResetController(context.Context) error { return d.reset("controller") }
func (d *drive) ResetSubsystem(context.Context) error  { return d.reset("subsystem") }
func (d *drive) Rescan(context.Context) error          { return d.reset("rescan") }
func (d *drive) reset(what string) error               { d.resets = append(d.resets, what); return nil }

func testGrant(clock nvmeioctl.Clock) Grant {
	return Grant{
		Identity: nvmeioctl.Identity{SubsystemNQN: "nqn.test", Serial: "S1", Model: "Model", CNTLID: 7},
		Classes:  nvmespec.ClassNamespace | nvmespec.ClassFormat | nvmespec.ClassFeature | nvmespec.ClassWrite,
		NSIDs:    []uint32{1}, Expires: nvmeioctl.Instant(time.Hour), Clock: clock,
	}
}

func virtual() *nvmeioctl.VirtualClock {
	return nvmeioctl.NewVirtualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

// refused fails the test unless err is a RefusedError that says text.
func refused(t *testing.T, what string, err error, text string) {
	t.Helper()
	r, ok := errors.AsType[*nvmeioctl.RefusedError](err)
	if !ok || !strings.Contains(r.Error(), text) {
		t.Errorf("%s: %v, want a refusal that says %q", what, err, text)
	}
}

// Whatever the opcode, nothing that changes a drive passes an empty grant.
func TestGuard_emptyGrantIsReadOnly(t *testing.T) {
	d := newDrive()
	g := Guard(d, Grant{})
	for _, io := range []bool{false, true} {
		for op := range 256 {
			cmd := &nvmeioctl.Command{IO: io, Opcode: uint8(op), NSID: 1, Data: make([]byte, 4096), Timeout: time.Second}
			_, err := g.Submit(t.Context(), cmd)
			// The lists of the specification: reading commands of each set.
			reads := []byte{0x02, 0x06, 0x0A, 0x18, 0x1A, 0x1E, 0x82, 0x86}
			if io {
				reads = []byte{0x00, 0x02, 0x05, 0x0C, 0x0E}
			}
			if bytes.IndexByte(reads, uint8(op)) >= 0 {
				if err != nil {
					t.Errorf("io %v opcode %#x: %v", io, op, err)
				}
				continue
			}
			refused(t, "opcode", err, "not granted")
		}
	}
	for _, c := range d.sent {
		if nvmespec.ClassOf(!c.IO, c.Opcode, c.CDW10) != nvmespec.ClassRead {
			t.Errorf("sent opcode %#x", c.Opcode)
		}
	}
}

func TestGuard_class(t *testing.T) {
	for _, c := range []struct {
		name  string
		cmd   nvmeioctl.Command
		class nvmespec.Class
	}{
		{"set features", nvmeioctl.Command{Opcode: 0x09}, nvmespec.ClassFeature},
		{"create", nvmeioctl.Command{Opcode: 0x0D}, nvmespec.ClassNamespace},
		{"delete", nvmeioctl.Command{Opcode: 0x0D, CDW10: 1, NSID: 1}, nvmespec.ClassNamespace},
		{"attach", nvmeioctl.Command{Opcode: 0x15, NSID: 1}, nvmespec.ClassNamespace},
		{"format", nvmeioctl.Command{Opcode: 0x80, NSID: 1}, nvmespec.ClassFormat},
		{"firmware", nvmeioctl.Command{Opcode: 0x10}, nvmespec.ClassFirmware},
		{"security send", nvmeioctl.Command{Opcode: 0x81}, nvmespec.ClassSecurity},
		{"vendor", nvmeioctl.Command{Opcode: 0xC5}, nvmespec.ClassVendor},
		{"write", nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1}, nvmespec.ClassWrite},
		{"deallocate", nvmeioctl.Command{IO: true, Opcode: 9, NSID: 1}, nvmespec.ClassWrite},
	} {
		c.cmd.Timeout = time.Second
		grant := testGrant(virtual())
		grant.Classes = ^c.class
		d := newDrive()
		_, err := Guard(d, grant).Submit(t.Context(), &c.cmd)
		refused(t, c.name+" without its class", err, c.class.String())
		if len(d.sent) != 0 {
			t.Errorf("%s: sent though refused", c.name)
		}
		grant.Classes = c.class
		if _, err := Guard(d, grant).Submit(t.Context(), &c.cmd); err != nil || len(d.sent) != 1 {
			t.Errorf("%s with its class: %v, %d sent", c.name, err, len(d.sent))
		}
	}
}

func TestGuard_nsid(t *testing.T) {
	for _, c := range []struct {
		name   string
		grants []uint32
		cmd    nvmeioctl.Command
		text   string // "" when it may pass
	}{
		{"named", []uint32{1}, nvmeioctl.Command{Opcode: 0x80, NSID: 1}, ""},
		{"not named", []uint32{1}, nvmeioctl.Command{Opcode: 0x80, NSID: 2}, "namespace 2"},
		{"none named", nil, nvmeioctl.Command{Opcode: 0x80, NSID: 1}, "namespace 1"},
		{"broadcast format", []uint32{1, 2}, nvmeioctl.Command{Opcode: 0x80, NSID: 0xFFFFFFFF}, "every namespace"},
		{"NS-39: broadcast delete", []uint32{1, 2}, nvmeioctl.Command{Opcode: 0x0D, CDW10: 1, NSID: 0xFFFFFFFF}, "every namespace"},
		{"broadcast granted", []uint32{0xFFFFFFFF}, nvmeioctl.Command{Opcode: 0x80, NSID: 0xFFFFFFFF}, ""},
		{"broadcast grants no single one", []uint32{0xFFFFFFFF}, nvmeioctl.Command{Opcode: 0x80, NSID: 1}, "namespace 1"},
		{"sanitize hits all", []uint32{1, 2}, nvmeioctl.Command{Opcode: 0x84}, "every namespace"},
		{"format of namespace 0", []uint32{1}, nvmeioctl.Command{Opcode: 0x80}, "namespace 0"},
		{"delete of namespace 0", []uint32{1}, nvmeioctl.Command{Opcode: 0x0D, CDW10: 1}, "namespace 0"},
		{"controller's feature", nil, nvmeioctl.Command{Opcode: 0x09}, ""},
		{"feature of a namespace", []uint32{1}, nvmeioctl.Command{Opcode: 0x09, NSID: 2}, "namespace 2"},
		{"feature of all", []uint32{1}, nvmeioctl.Command{Opcode: 0x09, NSID: 0xFFFFFFFF}, "every namespace"},
		{"write", []uint32{1}, nvmeioctl.Command{IO: true, Opcode: 1, NSID: 2}, "namespace 2"},
	} {
		grant := testGrant(virtual())
		grant.NSIDs = c.grants
		d := newDrive()
		_, err := Guard(d, grant).Submit(t.Context(), &c.cmd)
		if c.text == "" {
			if err != nil || len(d.sent) != 1 {
				t.Errorf("%s: %v, %d sent", c.name, err, len(d.sent))
			}
			continue
		}
		refused(t, c.name, err, c.text)
		if len(d.sent) != 0 {
			t.Errorf("%s: sent though refused", c.name)
		}
	}
}

func TestGuard_createdNamespaceIsGranted(t *testing.T) {
	d := newDrive()
	g := Guard(d, testGrant(virtual()))
	attach := &nvmeioctl.Command{Opcode: 0x15, NSID: 9}
	_, err := g.Submit(t.Context(), attach)
	refused(t, "attach before create", err, "namespace 9")
	d.status = 0x4115
	if _, err := g.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x0D}); err != nil {
		t.Fatal(err)
	}
	_, err = g.Submit(t.Context(), attach)
	refused(t, "attach after a failed create", err, "namespace 9")
	d.status = 0
	if _, err := g.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x0D}); err != nil {
		t.Fatal(err)
	}
	if _, err = g.Submit(t.Context(), attach); err != nil {
		t.Errorf("attach after create: %v", err)
	}
}

func TestGuard_expiry(t *testing.T) {
	clock := virtual()
	d := newDrive()
	g := Guard(d, testGrant(clock))
	format := &nvmeioctl.Command{Opcode: 0x80, NSID: 1}
	clock.AdvanceTo(nvmeioctl.Instant(time.Hour) - 1)
	if _, err := g.Submit(t.Context(), format); err != nil {
		t.Errorf("in time: %v", err)
	}
	clock.AdvanceTo(nvmeioctl.Instant(time.Hour))
	_, err := g.Submit(t.Context(), format)
	refused(t, "expired", err, "expired")
	for name, change := range map[string]func(*Grant){
		"no clock":  func(g *Grant) { g.Clock = nil },
		"no expiry": func(g *Grant) { g.Expires = 0 },
		"no serial": func(g *Grant) { g.Identity.Serial = "" },
	} {
		grant := testGrant(virtual())
		change(&grant)
		_, err := Guard(d, grant).Submit(t.Context(), format)
		refused(t, name, err, "grant")
	}
	if len(d.sent) != 1 {
		t.Errorf("%d sent", len(d.sent))
	}
}

// NS-06, NS-36: the node may lead to another drive than it did.
func TestGuard_identity(t *testing.T) {
	format := &nvmeioctl.Command{Opcode: 0x80, NSID: 1}
	for name, change := range map[string]func(*Grant){
		"serial":     func(g *Grant) { g.Identity.Serial = "S2" },
		"model":      func(g *Grant) { g.Identity.Model = "Other" },
		"subsystem":  func(g *Grant) { g.Identity.SubsystemNQN = "nqn.other" },
		"controller": func(g *Grant) { g.Identity.CNTLID = 0 },
	} {
		d := newDrive()
		grant := testGrant(virtual())
		change(&grant)
		_, err := Guard(d, grant).Submit(t.Context(), format)
		refused(t, name, err, "another drive answers")
		if len(d.sent) != 0 {
			t.Errorf("%s: sent though refused", name)
		}
	}
	// Swapped between two commands.
	d := newDrive()
	g := Guard(d, testGrant(virtual()))
	if _, err := g.Submit(t.Context(), format); err != nil {
		t.Fatal(err)
	}
	d.serial = "S9"
	_, err := g.Submit(t.Context(), format)
	refused(t, "swapped", err, `"S9"`)

	boom := errors.New("boom")
	grant := testGrant(virtual())
	grant.Identify = func(context.Context, nvmeioctl.Device) (nvmeioctl.Identity, error) { return nvmeioctl.Identity{}, boom }
	if _, err := Guard(d, grant).Submit(t.Context(), format); !errors.Is(err, boom) {
		t.Errorf("identify failed: %v", err)
	}
}

// FMT-11: FNA says that a format hits more than the namespace it names.
func TestGuard_formatScope(t *testing.T) {
	for _, c := range []struct {
		name   string
		fna    uint8
		cdw10  uint32
		grants []uint32
		text   string
	}{
		{"one", 0, 0, []uint32{1}, ""},
		{"FNA all", 1, 0, []uint32{1}, "namespace 2"},
		{"FNA all, all named", 1, 0, []uint32{1, 2}, ""},
		{"FNA all, broadcast named", 1, 0, []uint32{1, 0xFFFFFFFF}, ""},
		{"FNA erases all, no erase", 2, 0, []uint32{1}, ""},
		{"FNA erases all", 2, 1 << 9, []uint32{1}, "namespace 2"},
	} {
		d := newDrive()
		d.fna = c.fna
		grant := testGrant(virtual())
		grant.NSIDs = c.grants
		_, err := Guard(d, grant).Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x80, NSID: 1, CDW10: c.cdw10})
		if c.text != "" {
			refused(t, c.name, err, c.text)
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestGuard_resets(t *testing.T) {
	d := newDrive()
	g := Guard(d, testGrant(virtual()))
	r, ok := nvmeioctl.As[nvmeioctl.Resetter](g)
	if !ok {
		t.Fatal("no Resetter")
	}
	refused(t, "reset", r.ResetController(t.Context()), "not granted")
	refused(t, "subsystem reset", r.ResetSubsystem(t.Context()), "not granted")
	if err := r.Rescan(t.Context()); err != nil {
		t.Error(err)
	}
	grant := testGrant(virtual())
	grant.Resets, grant.SubsystemResets = true, true
	g = Guard(d, grant)
	if err := errors.Join(g.ResetController(t.Context()), g.ResetSubsystem(t.Context())); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"rescan", "controller", "subsystem"}, d.resets); diff != "" {
		t.Error(diff)
	}
	d.serial = "other"
	refused(t, "reset of another drive", g.ResetController(t.Context()), "another drive")
}

func TestDryRun(t *testing.T) {
	d := newDrive()
	dry := DryRun(d)
	page := make([]byte, 4096)
	if _, err := dry.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: page}); err != nil {
		t.Fatal(err)
	}
	if string(page[4:6]) != "S1" {
		t.Error("the dry run did not read the drive")
	}
	list := []byte{1, 0, 7, 0}
	for _, cmd := range []nvmeioctl.Command{
		{Opcode: 0x0D, Data: make([]byte, 4096), Timeout: time.Minute},
		{Opcode: 0x15, NSID: 9, Data: list, Timeout: time.Minute},
		{Opcode: 0xC1}, {Opcode: 0x77}, {IO: true, Opcode: 1, NSID: 1, Data: make([]byte, 512)},
	} {
		if c, err := dry.Submit(t.Context(), &cmd); err != nil || c != (nvmeioctl.Completion{}) {
			t.Errorf("%#x: %+v, %v", cmd.Opcode, c, err)
		}
	}
	list[0] = 0xFF // the recording keeps its own copy
	got := dry.Recorded()
	if len(got) != 5 || got[1].Data[0] != 1 || got[1].NSID != 9 || got[4].Opcode != 1 || len(d.sent) != 0 {
		t.Errorf("recorded %+v, sent %d", got, len(d.sent))
	}
	r, _ := nvmeioctl.As[nvmeioctl.Resetter](dry)
	if err := errors.Join(r.ResetController(t.Context()), r.ResetSubsystem(t.Context()), r.Rescan(t.Context())); err != nil {
		t.Error(err)
	}
	if len(d.resets) != 0 || cmp.Diff(dry.RecordedOthers(), []string{"controller reset", "subsystem reset", "rescan"}) != "" {
		t.Errorf("resets %v, recorded %v", d.resets, dry.RecordedOthers())
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dry.Submit(cancelled, &nvmeioctl.Command{Opcode: 0x80}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestTrace(t *testing.T) {
	d := newDrive()
	var b strings.Builder
	clock := virtual()
	tr := Trace(&slow{d, clock}, &b, clock)
	ctx := t.Context()
	if _, err := tr.Submit(ctx, &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: make([]byte, 4096), Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	d.status = 0x4115
	c, err := tr.Submit(ctx, &nvmeioctl.Command{Opcode: 0x0D, Data: make([]byte, 4096), Timeout: 30 * time.Minute})
	if err != nil || c.Status != 0x4115 || c.Result != 9 {
		t.Fatal(c, err)
	}
	d.err = nvmeioctl.ErrDeviceGone
	if _, err := tr.Submit(ctx, &nvmeioctl.Command{Opcode: 0x80, NSID: 0xFFFFFFFF, CDW10: 0x201, Timeout: time.Hour}); !errors.Is(err, nvmeioctl.ErrDeviceGone) {
		t.Fatal(err)
	}
	if err := tr.ResetController(ctx); err != nil {
		t.Fatal(err)
	}
	name := nvmespec.Status(0x115).Name()
	want := `test:drive: identify (admin 0x06) cdw10 0x00000001 data in 4096 B timeout 1m0s -> status 0x0000, 1ms
test:drive: namespace management (admin 0x0d) data out 4096 B timeout 30m0s -> status 0x4115 (` + name + `) result 0x9, 1ms
test:drive: format NVM (admin 0x80) nsid all cdw10 0x00000201 timeout 1h0m0s -> error: device is gone, 1ms
test:drive: controller reset -> done, 0s
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// slow takes one millisecond of virtual time a command.
type slow struct {
	*drive
	clock *nvmeioctl.VirtualClock
}

func (s *slow) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	s.clock.AdvanceTo(s.clock.Now().Add(time.Millisecond))
	return s.drive.Submit(ctx, cmd)
}

func TestTrace_brokenWriter(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	d := newDrive()
	tr := Trace(d, w, virtual())
	if _, err := tr.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x02, Timeout: 1}); err != nil {
		t.Errorf("the command failed for its trace: %v", err)
	}
	if err := tr.Close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Close: %v", err)
	}
}
