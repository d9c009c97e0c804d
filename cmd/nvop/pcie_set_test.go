package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
	"nvop/pcie"
)

// pcieMachine is a tree of files that looks like sysfs, planted from a dump,
// with a model of Device Control behind it: it keeps what hardware keeps.
type pcieMachine struct {
	t    *testing.T
	root string
	dirs map[pcie.Address]string
	// names are the controllers by PCI address.
	names map[string]string
	topo  *pcie.Topology

	// failAt makes the n-th write fail with fail, counted from 1.
	writes, failAt int
	fail           error
	deaf           map[pcie.Address]bool
	// log is what was written, in order.
	log []string
	// saved is what the kernel would restore after an error: Device Control as
	// it was when the controller was last reset.
	saved map[pcie.Address]uint16
}

func newPCIeMachine(t *testing.T) *pcieMachine {
	t.Helper()
	m := &pcieMachine{t: t, root: t.TempDir(), dirs: map[pcie.Address]string{}, names: map[string]string{}, deaf: map[pcie.Address]bool{}, saved: map[pcie.Address]uint16{}}
	f, err := os.Open(pcieDump)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := pcie.ParseDump(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []pcie.Function
	for _, r := range raw {
		fn, err := pcie.Decode(r.Address, r.Config)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fn)
	}
	m.topo = pcie.NewTopology(list)
	controllers := 0
	for _, r := range raw {
		dir := r.Address.String()
		for up, ok := m.topo.Parent(r.Address); ok; up, ok = m.topo.Parent(up.Address) {
			dir = up.Address.String() + "/" + dir
		}
		dir = "/sys/devices/pci0000:00/" + dir
		m.dirs[r.Address] = dir
		m.file(dir+"/config", string(r.Config))
		m.file(dir+"/aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n")
		m.file(dir+"/aer_dev_nonfatal", "CmpltTO 0\nTOTAL_ERR_NONFATAL 0\n")
		m.file(dir+"/aer_dev_fatal", "MalfTLP 0\nTOTAL_ERR_FATAL 0\n")
		m.link("/sys/bus/pci/devices/"+r.Address.String(), "../../.."+strings.TrimPrefix(dir, "/sys"))
		if fn, _ := m.topo.Lookup(r.Address); fn.BaseClass() != 0x0108 {
			continue
		}
		name := fmt.Sprintf("nvme%d", controllers)
		m.names[r.Address.String()] = name
		controllers++
		for attribute, text := range map[string]string{
			"serial": "S" + name, "model": "M", "transport": "pcie", "address": r.Address.String(), "state": "live", "cntlid": "0", "dev": "1:1", "subsysnqn": "nqn." + name,
		} {
			m.file(dir+"/nvme/"+name+"/"+attribute, text+"\n")
		}
		m.link("/sys/class/nvme/"+name, "../.."+strings.TrimPrefix(dir, "/sys")+"/nvme/"+name)
		m.file("/dev/"+name, "")
	}
	for _, path := range []string{"/proc/mounts", "/proc/swaps", "/proc/mdstat", "/proc/self/mountinfo"} {
		m.file(path, "")
	}
	return m
}

func (m *pcieMachine) file(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *pcieMachine) link(path, target string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		m.t.Fatal(err)
	}
}

// truncate leaves n bytes of every configuration space.
func (m *pcieMachine) truncate(n int64) {
	m.t.Helper()
	for _, dir := range m.dirs {
		if err := os.Truncate(filepath.Join(m.root, dir, "config"), n); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *pcieMachine) sysfs() pcie.Sysfs { return pcie.Sysfs{Root: m.root, OpenConfig: m.open} }

// pcieFile is one modelled configuration space.
type pcieFile struct {
	*os.File
	m       *pcieMachine
	address pcie.Address
}

func (m *pcieMachine) open(path string, write bool) (pcie.ConfigFile, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	a, err := pcie.ParseAddress(filepath.Base(filepath.Dir(path)))
	if err != nil {
		return nil, err
	}
	return &pcieFile{f, m, a}, nil
}

func (f *pcieFile) WriteAt(b []byte, off int64) (int, error) {
	f.m.writes++
	if f.m.writes == f.m.failAt {
		return 0, f.m.fail
	}
	fn, _ := f.m.topo.Lookup(f.address)
	if len(b) != 2 || off != int64(fn.Express.Offset)+8 {
		f.m.t.Errorf("%s: %d bytes written at %02xh", f.address, len(b), off)
		return 0, fs.ErrInvalid
	}
	value := binary.LittleEndian.Uint16(b)
	if value&(1<<15) != 0 {
		f.m.t.Errorf("%s: a Function Level Reset was written", f.address)
	}
	f.m.log = append(f.m.log, fmt.Sprintf("%s %04x", f.address, value))
	if f.m.deaf[f.address] {
		return 2, nil
	}
	var now [2]byte
	if _, err := f.ReadAt(now[:], off); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint16(now[:])
	const writable = 0x70ef // the rest of the register is read-only in this model
	if uint32(value>>5&7) > fn.Express.DevCap&7 {
		value = value&^0xe0 | old&0xe0
	}
	value = value&writable | old&^uint16(writable)
	return f.File.WriteAt([]byte{byte(value), byte(value >> 8)}, off)
}

// control reads Device Control of every function.
func (m *pcieMachine) control() map[pcie.Address]uint16 {
	m.t.Helper()
	all := map[pcie.Address]uint16{}
	for a := range m.dirs {
		fn, _ := m.topo.Lookup(a)
		control, _, err := m.sysfs().DeviceControl(a, fn.Express.Offset)
		if err != nil {
			m.t.Fatal(err)
		}
		all[a] = control
	}
	return all
}

// restore puts Device Control of every function back.
func (m *pcieMachine) restore(all map[pcie.Address]uint16) {
	m.t.Helper()
	for a, value := range all {
		fn, _ := m.topo.Lookup(a)
		f, err := os.OpenFile(filepath.Join(m.root, m.dirs[a], "config"), os.O_RDWR, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{byte(value), byte(value >> 8)}, int64(fn.Express.Offset)+8); err != nil {
			m.t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// pcieDrive is a simulated drive that sits in the machine.
type pcieDrive struct {
	nvmeioctl.Device
	m *pcieMachine
	// onRead is called before each command of the I/O set; empty answers it
	// without data.
	onRead   func()
	empty    bool
	resets   int
	failIn   int
	failWith error
}

func (d *pcieDrive) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if cmd.IO {
		if cmd.Opcode != 2 && cmd.Opcode != 5 {
			d.m.t.Errorf("I/O command %02xh sent: only reading is harmless", cmd.Opcode)
		}
		if d.onRead != nil {
			d.onRead()
		}
		if d.empty {
			return nvmeioctl.Completion{}, nil
		}
	}
	return d.Device.Submit(ctx, cmd)
}

func (d *pcieDrive) ResetController(ctx context.Context) error {
	d.resets++
	if d.resets == d.failIn {
		return d.failWith
	}
	d.m.saved = d.m.control()
	r, ok := nvmeioctl.As[nvmeioctl.Resetter](d.Device)
	if !ok {
		return errors.New("no resetter")
	}
	return r.ResetController(ctx)
}

func (d *pcieDrive) ResetSubsystem(context.Context) error { return errors.New("never") }
func (d *pcieDrive) Rescan(context.Context) error         { return nil }

// pcieSession is everything a change needs.
type pcieSession struct {
	*pcieMachine
	dev    *pcieDrive
	drive  *drive
	app    *app
	serial string
	out    bytes.Buffer
	errout bytes.Buffer
}

func newPCIeSession(t *testing.T, address string) *pcieSession {
	t.Helper()
	m := newPCIeMachine(t)
	s := &pcieSession{pcieMachine: m, serial: fmt.Sprintf("PCIE%d", os.Getpid())} // root's locks are by serial, for all processes
	home := t.TempDir()
	profile := sim.Profiles()[0]
	dev, err := sim.New(profile, sim.Options{Serial: s.serial, Start: time.Unix(1700000000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	s.dev = &pcieDrive{Device: dev, m: m}
	name := m.names[address]
	c := nvmeioctl.Controller{Name: name, Node: "/dev/" + name, Transport: "pcie", PCIAddress: address, Address: address, Serial: s.serial}
	s.drive = &drive{
		address: "/dev/nvme0", dev: s.dev, clock: dev.Clock(), transport: "pcie", host: nvmeioctl.Host{Root: m.root},
		target: &nvmeioctl.Target{Path: c.Node, Kind: nvmeioctl.NodeController, Controllers: []nvmeioctl.Controller{c}},
	}
	s.app = &app{
		streams: streams{strings.NewReader(""), &s.out, &s.errout}, format: render.JSON, clock: dev.Clock(),
		journalPath: filepath.Join(home, "journal.db"), getenv: func(k string) string { return map[string]string{"XDG_RUNTIME_DIR": home}[k] },
	}
	return s
}

// set runs the command as if carried out with consent.
func (s *pcieSession) set(c pcieSetCmd) error {
	s.out.Reset()
	c.Device = "/dev/nvme0"
	return c.set(context.Background(), s.app, s.drive, s.sysfs())
}

func (s *pcieSession) consented(c pcieSetCmd) pcieSetCmd {
	c.Apply, c.ConfirmSerial, c.Quiesced = true, s.serial, true
	return c
}

func (s *pcieSession) result(t *testing.T) pcieSetResult {
	t.Helper()
	var r pcieSetResult
	text := strings.NewReplacer(`"ceiling_before"`, `"x"`, `"ceiling_after"`, `"y"`).Replace(s.out.String())
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v\n%s", err, s.out.String())
	}
	return r
}

func (s *pcieSession) findings(t *testing.T, device string) map[string]bool {
	t.Helper()
	a, err := pcie.ParseAddress(device)
	if err != nil {
		t.Fatal(err)
	}
	topo, err := s.sysfs().Load(a)
	if err != nil {
		t.Fatal(err)
	}
	p, err := topo.Path(a)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range pcie.Audit(topo, p, pcie.AuditOptions{}) {
		found[f.Rule] = true
	}
	return found
}

// TestPCIeSet_repairs: an audit finds completions that the drive does not take;
// a change makes the path uniform and faster, and sticks.
func TestPCIeSet_repairs(t *testing.T) {
	const device = "0000:05:00.0" // alone on a root port
	s := newPCIeSession(t, device)
	if !s.findings(t, device)[pcie.RuleCompletionExceeds] {
		t.Fatal("the audit does not find the hazard")
	}
	before := s.control()
	c := pcieSetCmd{MPS: "auto", MRRS: 4096}
	if err := s.set(c); err != nil {
		t.Fatal(err)
	}
	if r := s.result(t); r.Changed || !strings.HasPrefix(r.State, "planned only") || len(r.Writes) != 4 || r.Plan.MaxPayload != 512 ||
		!strings.Contains(r.Writes[0], "max read request 512 -> 128") || len(r.Persist) < 3 {
		t.Errorf("dry run: %+v", r)
	}
	if s.writes != 0 || !maps.Equal(before, s.control()) || s.dev.resets != 0 {
		t.Fatal("the dry run changed something")
	}
	if err := s.set(s.consented(c)); err != nil {
		t.Fatal(err)
	}
	r := s.result(t)
	if !r.Changed || r.State != "changed" || r.Transaction == "" {
		t.Errorf("%+v", r)
	}
	found := s.findings(t, device)
	for _, rule := range []string{pcie.RuleCompletionExceeds, pcie.RuleTransmitExceeds, pcie.RulePayloadLow, pcie.RuleReadRequest} {
		if found[rule] {
			t.Errorf("afterwards: %s", rule)
		}
	}
	after := s.control()
	if !maps.Equal(after, s.saved) || s.dev.resets != 1 {
		t.Errorf("the kernel's copy is not the new state (%d resets)", s.dev.resets)
	}
	touched := 0
	for a, was := range before {
		if after[a] != was {
			touched++
		}
		if (after[a]^was)&^0x70e0 != 0 {
			t.Errorf("%s: %04x became %04x: other bits changed", a, was, after[a])
		}
	}
	if touched != 2 {
		t.Errorf("%d functions changed", touched)
	}
	if err := s.set(s.consented(c)); err != nil || !s.result(t).AlreadySo {
		t.Errorf("again: %v %s", err, s.out.String())
	}
}

// TestPCIeSet_siblings: under a switch the other drive is changed along, with
// its own size kept in mind.
func TestPCIeSet_siblings(t *testing.T) {
	s := newPCIeSession(t, "0000:03:00.0")
	err := s.set(s.consented(pcieSetCmd{MPS: "auto"}))
	if err == nil || exitCode(err) != exitRefused || !strings.Contains(err.Error(), "--siblings") {
		t.Fatalf("%v", err)
	}
	if err := s.set(s.consented(pcieSetCmd{MPS: "512"})); err == nil || exitCode(err) != exitRefused || !strings.Contains(err.Error(), "0000:04:00.0") {
		t.Fatalf("%v", err)
	}
	if s.writes != 0 {
		t.Fatal("written although refused")
	}
	if err := s.set(pcieSetCmd{MPS: "auto", Siblings: true}); err != nil {
		t.Fatal(err)
	}
	if r := s.result(t); r.Plan.MaxPayload != 256 || len(r.Plan.Endpoints) != 2 {
		t.Errorf("%+v", r.Plan)
	}
}

// TestPCIeSet_rollsBack: whatever step fails, the old sizes are back, the
// kernel's copy too, and the journal has nothing left to do.
func TestPCIeSet_rollsBack(t *testing.T) {
	const device = "0000:05:00.0"
	bump := func(s *pcieSession, file, text string) func() {
		return func() { s.file(s.dirs[mustAddress(t, "0000:00:04.0")]+"/"+file, text) }
	}
	for name, c := range map[string]struct {
		spoil func(*pcieSession)
		says  string
		code  int
	}{
		"first write fails":  {func(s *pcieSession) { s.failAt, s.fail = 1, fs.ErrPermission }, "permission", exitFailed},
		"second write fails": {func(s *pcieSession) { s.failAt, s.fail = 2, errors.New("I/O error") }, "I/O error", exitFailed},
		"last write fails":   {func(s *pcieSession) { s.failAt, s.fail = 4, errors.New("I/O error") }, "I/O error", exitFailed},
		"device is deaf":     {func(s *pcieSession) { s.deaf[mustAddress(t, device)] = true }, "the register reads", exitDriveError},
		"port is deaf":       {func(s *pcieSession) { s.deaf[mustAddress(t, "0000:00:04.0")] = true }, "the register reads", exitDriveError},
		"reset fails": {func(s *pcieSession) {
			s.dev.failIn, s.dev.failWith = 1, nvmeioctl.ErrIndeterminate
		}, "outcome unknown", exitFailed},
		"malformed packets": {func(s *pcieSession) {
			s.dev.onRead = bump(s, "aer_dev_fatal", "MalfTLP 1\nTOTAL_ERR_FATAL 1\n")
		}, "0000:00:04.0: fatal MalfTLP 1", exitDriveError},
		"completion time-outs": {func(s *pcieSession) {
			s.dev.onRead = bump(s, "aer_dev_nonfatal", "CmpltTO 2\nTOTAL_ERR_NONFATAL 2\n")
		}, "nonfatal CmpltTO 2", exitDriveError},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPCIeSession(t, device)
			before := s.control()
			c.spoil(s)
			err := s.set(s.consented(pcieSetCmd{MPS: "auto", MRRS: 4096}))
			rolled, ok := errors.AsType[*txn.RolledBackError](err)
			if !ok || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v", err)
			}
			if got := exitCode(err); got != c.code && got != exitDriveError {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			if now := s.control(); !maps.Equal(before, now) {
				t.Errorf("sizes are not back: %v, were %v", now, before)
			}
			if !maps.Equal(s.saved, before) {
				t.Error("the kernel's copy is not the old state")
			}
			j, err := journal.Open(t.Context(), s.app.journalPath, journal.ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			h, err := j.Load(t.Context(), rolled.ID)
			if err != nil || h.Transaction.State != txn.StateRolledBack {
				t.Errorf("transaction is %s, %v", h.Transaction.State, err)
			}
		})
	}
}

func mustAddress(t *testing.T, text string) pcie.Address {
	t.Helper()
	a, err := pcie.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestPCIeSet_correctable: a correctable error during the trial is recorded
// and is no reason to go back.
func TestPCIeSet_correctable(t *testing.T) {
	s := newPCIeSession(t, "0000:05:00.0")
	s.dev.onRead = func() {
		s.file(s.dirs[mustAddress(t, "0000:05:00.0")]+"/aer_dev_correctable", "RxErr 1\nTOTAL_ERR_COR 1\n")
	}
	if err := s.set(s.consented(pcieSetCmd{MPS: "256"})); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(t.Context(), s.app.journalPath, journal.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	h, err := j.Load(t.Context(), s.result(t).Transaction)
	if err != nil || !slices.ContainsFunc(h.Outcomes, func(o txn.Outcome) bool { return strings.Contains(string(o.State), "correctable RxErr") }) {
		t.Errorf("%+v %v", h.Outcomes, err)
	}
}

// TestPCIeSet_cutAnywhere: after a kill at any point of any step the change can
// be carried on, and it can be undone.
func TestPCIeSet_cutAnywhere(t *testing.T) {
	const device = "0000:05:00.0"
	cut := errors.New("cut")
	s := newPCIeSession(t, device)
	s.dev.empty = true
	before := s.control()
	for _, back := range []bool{false, true} {
		for n := 1; ; n++ {
			s.restore(before)
			ch, err := pcieSetCmd{Device: "/dev/nvme0", MPS: "auto", MRRS: 4096}.plan(t.Context(), s.drive, s.sysfs())
			if err != nil {
				t.Fatal(err)
			}
			x := pcieExecutor{sys: s.sysfs(), drive: s.drive, quiesced: true}
			count := 0
			log := &txn.MemoryLog{}
			r := &txn.Runner{
				Device: s.dev, Clock: s.drive.clock, Log: log, Registry: x.executors(),
				Identify: func(context.Context, nvmeioctl.Device) (nvmeioctl.Identity, error) { return ch.identity, nil },
				Cut: func(txn.Event) error {
					if count++; count == n {
						return cut
					}
					return nil
				},
			}
			id, err := r.Begin(t.Context(), txn.Transaction{Title: "t", Identity: ch.identity, Steps: ch.steps})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Resume(t.Context(), id)
			if err == nil {
				if n < 20 {
					t.Errorf("only %d points to cut at", n)
				}
				break
			}
			if !errors.Is(err, cut) {
				t.Fatalf("cut %d: %v", n, err)
			}
			r.Cut = nil
			if back {
				_, err = r.Rollback(t.Context(), id)
			} else {
				_, err = r.Resume(t.Context(), id)
			}
			if err != nil {
				t.Fatalf("cut %d, back %v: %v", n, back, err)
			}
			now := s.control()
			if back != maps.Equal(before, now) {
				t.Errorf("cut %d, back %v: %v", n, back, now)
			}
			if found := s.findings(t, device); !back && (found[pcie.RuleCompletionExceeds] || found[pcie.RulePayloadLow]) {
				t.Errorf("cut %d: %v", n, found)
			}
		}
	}
}

// TestPCIeSet_refuses: use, missing consent, drift, lockdown, privilege.
func TestPCIeSet_refuses(t *testing.T) {
	const device = "0000:05:00.0"
	for name, c := range map[string]struct {
		spoil func(*pcieSession, *pcieSetCmd)
		says  string
	}{
		"another serial": {func(_ *pcieSession, c *pcieSetCmd) { c.ConfirmSerial = "OTHER" }, "--confirm-serial says"},
		"no consent":     {func(_ *pcieSession, c *pcieSetCmd) { c.ConfirmSerial = "" }, "needs consent"},
		"locked down": {func(s *pcieSession, _ *pcieSetCmd) {
			s.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n")
		}, "locked down (confidentiality)"},
		"no privilege": {func(s *pcieSession, _ *pcieSetCmd) { s.truncate(64) }, "CAP_SYS_ADMIN"},
		"beyond":       {func(_ *pcieSession, c *pcieSetCmd) { c.MPS = "1024" }, "512 bytes at most"},
		"reads outstanding": {func(s *pcieSession, _ *pcieSetCmd) {
			fn, _ := s.topo.Lookup(mustAddress(t, device))
			f, err := os.OpenFile(filepath.Join(s.root, s.dirs[fn.Address], "config"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte{1 << 5}, int64(fn.Express.Offset)+0xa); err != nil {
				t.Fatal(err)
			}
		}, "keeps waiting"},
		"in use": {func(s *pcieSession, c *pcieSetCmd) {
			c.Quiesced = false
			s.file("/sys/kernel/config/.keep", "")
			dir := s.dirs[mustAddress(t, device)]
			s.link(dir+"/driver", "../../../../bus/pci/drivers/vfio-pci")
		}, "vfio"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPCIeSession(t, device)
			cmd := s.consented(pcieSetCmd{MPS: "auto"})
			c.spoil(s, &cmd)
			err := s.set(cmd)
			if err == nil || exitCode(err) != exitRefused || !strings.Contains(err.Error(), c.says) {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
			if s.writes != 0 || s.dev.resets != 0 {
				t.Errorf("%d writes, %d resets although refused", s.writes, s.dev.resets)
			}
		})
	}
	if r := call(t, "pcie", "set", "sim:"+sim.Profiles()[0].Name, "--mps", "auto"); r.code != exitUnsupported {
		t.Errorf("a simulated drive: exit code %d: %s", r.code, r.errout)
	}
}
