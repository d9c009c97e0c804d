package pcie

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a tree of files that looks like sysfs, with a model of the
// registers behind the configuration files: a plain file keeps what hardware
// would not.
type machine struct {
	t    *testing.T
	root string
	// failAt makes the n-th write fail, counted from 1; 0 never.
	failAt, writes int
	fail           error
	// deaf functions ignore writes.
	deaf map[string]bool
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir(), deaf: map[string]bool{}}
	m.file("/sys/bus/pci/devices/.keep", "")
	return m
}

func (m *machine) sysfs() Sysfs { return Sysfs{Root: m.root, OpenConfig: m.open} }

func (m *machine) file(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(path, target string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		m.t.Fatal(err)
	}
}

// function puts a function in a directory below /sys/devices and links it.
func (m *machine) function(dir string, config []byte, attributes map[string]string) {
	m.t.Helper()
	m.file("/sys/devices/"+dir+"/config", string(config))
	for name, text := range attributes {
		m.file("/sys/devices/"+dir+"/"+name, text+"\n")
	}
	m.link("/sys/bus/pci/devices/"+filepath.Base(dir), "../../../devices/"+dir)
}

// plant puts a whole topology there.
func (m *machine) plant(bridge string, tr *tree) {
	topo := tr.topology(m.t)
	for a, c := range tr.configs {
		dir := a.String()
		for f, ok := topo.Parent(a); ok; f, ok = topo.Parent(f.Address) {
			dir = f.Address.String() + "/" + dir
		}
		m.function(bridge+"/"+dir, c.b, nil)
	}
}

// modelled is a configuration space whose Device Control keeps what hardware
// keeps: the fields that are writable, and no payload above the capability.
type modelled struct {
	*os.File
	m    *machine
	name string
}

func (m *machine) open(path string, write bool) (ConfigFile, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return &modelled{f, m, filepath.Base(filepath.Dir(path))}, nil
}

func (c *modelled) WriteAt(b []byte, off int64) (int, error) {
	c.m.writes++
	if c.m.writes == c.m.failAt {
		return 0, c.m.fail
	}
	if len(b) != 2 || off != expAt+8 {
		c.m.t.Errorf("%s: a write of %d bytes at %02xh", c.name, len(b), off)
		return 0, fs.ErrInvalid
	}
	value := binary.LittleEndian.Uint16(b)
	if value&(1<<15) != 0 {
		c.m.t.Errorf("%s: a Function Level Reset was written", c.name)
	}
	if c.m.deaf[c.name] {
		return 2, nil
	}
	var now [12]byte
	if _, err := c.ReadAt(now[:], expAt); err != nil {
		return 0, err
	}
	const writable = 0x7fff
	old := binary.LittleEndian.Uint16(now[8:])
	if value>>5&7 > binary.LittleEndian.Uint16(now[4:])&7 {
		value = value&^0xe0 | old&0xe0
	}
	value = value&writable | old&^writable
	return c.File.WriteAt([]byte{byte(value), byte(value >> 8)}, off)
}

func switchTree() *tree {
	n := node{512, 512, 512}
	return newTree(n, &n, []node{n, n}, []node{{512, 256, 512}, {256, 256, 512}})
}

func TestSysfs_path(t *testing.T) {
	m := newMachine(t)
	m.plant("pci0000:00", switchTree())
	topo, err := m.sysfs().Load(at(3, 0, 0))
	if err != nil || len(topo.Problems) > 0 {
		t.Fatal(err, topo.Problems)
	}
	p, err := topo.Path(at(3, 0, 0))
	if err != nil || !p.Complete || len(p.Hops) != 4 || len(p.Below) != 5 {
		t.Fatalf("%d hops, %d below, %v", len(p.Hops), len(p.Below), err)
	}
	if _, err := m.sysfs().Load(at(9, 0, 0)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a function that is not there: %v", err)
	}
	// A bus number that register and kernel disagree on: the kernel's tree counts.
	m = newMachine(t)
	tr := switchTree()
	m.plant("pci0000:00", tr)
	tr.configs[at(2, 0, 0)].buses(2, 77, 77)
	m.file("/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/0000:02:00.0/config", string(tr.configs[at(2, 0, 0)].b))
	topo, err = m.sysfs().Load(at(3, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = topo.Path(at(3, 0, 0)); err != nil || len(p.Hops) != 4 {
		t.Errorf("%d hops: %v", len(p.Hops), err)
	}
}

// TestSysfs_unprivileged: 64 bytes of each. The path and the link are told all
// the same, and nothing is said to be missing that was not looked at.
func TestSysfs_unprivileged(t *testing.T) {
	m := newMachine(t)
	tr := switchTree()
	for _, c := range tr.configs {
		c.b = c.b[:64]
	}
	topo := tr.topology(t)
	for a, c := range tr.configs {
		dir := a.String()
		for f, ok := topo.Parent(a); ok; f, ok = topo.Parent(f.Address) {
			dir = f.Address.String() + "/" + dir
		}
		speed := map[string]string{"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "4", "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "4"}
		if a == at(3, 0, 0) || a == at(2, 0, 0) {
			speed["current_link_speed"], speed["current_link_width"] = "8 GT/s", "2"
		}
		m.function("pci0000:00/"+dir, c.b, speed)
	}
	topo, err := m.sysfs().Load(at(3, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	p, err := topo.Path(at(3, 0, 0))
	if err != nil || !p.Complete || len(p.Hops) != 4 {
		t.Fatalf("%d hops, complete %v, %v", len(p.Hops), p.Complete, err)
	}
	links := p.Links()
	if len(links) != 2 || links[0].Verdict != LinkDegraded || links[1].Verdict != LinkOK {
		t.Errorf("%+v", links)
	}
	if _, ok := p.Payloads(); ok {
		t.Error("payload sizes are told that were not read")
	}
	findings := Audit(topo, p, AuditOptions{})
	if !slices.ContainsFunc(findings, func(f Finding) bool {
		return f.Rule == RuleAccess && strings.Contains(f.Why, "does not mean that the capability is missing")
	}) {
		t.Errorf("%+v", findings)
	}
}

// TestSysfs_vmd: the domain behind a VMD ends at its own root port; the VMD is
// named but is no hop.
func TestSysfs_vmd(t *testing.T) {
	m := newMachine(t)
	vmd := newConfig(IntegratedEndpoint, 256, 128, 512)
	m.function("pci0000:59/0000:59:00.5", vmd.b, nil)
	n := node{512, 256, 512}
	dir := "pci0000:59/0000:59:00.5/pci10000:80/10000:80:01.0"
	m.function(dir, newConfig(RootPort, n.supported, n.mps, n.mrrs).buses(0x80, 0x81, 0x81).b, nil)
	m.function(dir+"/10000:81:00.0", newConfig(Endpoint, n.supported, n.mps, n.mrrs).b, nil)
	a, _ := ParseAddress("10000:81:00.0")
	topo, err := m.sysfs().Load(a)
	if err != nil {
		t.Fatal(err)
	}
	p, err := topo.Path(a)
	if err != nil || len(p.Hops) != 2 || !p.Complete || p.VMD == nil || p.VMD.Address.String() != "0000:59:00.5" {
		t.Errorf("%+v %v", p, err)
	}
}

// TestSysfs_virtualFunction: a virtual function answers ffff for its IDs, which
// is not a device that is gone, and its sizes are the physical function's.
func TestSysfs_virtualFunction(t *testing.T) {
	m := newMachine(t)
	n := node{512, 256, 512}
	m.plant("pci0000:00", newTree(n, nil, nil, []node{n}))
	vf := newConfig(Endpoint, 512, 128, 128)
	vf.put32(0, 0xffffffff)
	dir := "pci0000:00/0000:00:03.0/0000:01:00.1"
	m.function(dir, vf.b, map[string]string{"vendor": "0x144d", "device": "0xa824"})
	m.link("/sys/devices/"+dir+"/physfn", "../0000:01:00.0")
	topo, err := m.sysfs().Load(at(1, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	p, err := topo.Path(at(1, 0, 1))
	if err != nil || p.Virtual == nil || p.Endpoint().Address != at(1, 0, 0) || p.Endpoint().Express.MaxPayload != 256 {
		t.Fatalf("%+v %v", p, err)
	}
	if f, _ := topo.Lookup(at(1, 0, 1)); f.VendorID != 0x144d || f.DeviceID != 0xa824 {
		t.Errorf("IDs %04x:%04x", f.VendorID, f.DeviceID)
	}
	// The virtual function's reserved fields do not count as a sibling's.
	p, err = topo.Path(at(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := PlanChange(topo, p, ChangeRequest{Auto: true})
	if err != nil || plan.MaxPayload != 512 || len(plan.Endpoints) != 1 {
		t.Errorf("%+v %v", plan, err)
	}
}

func TestSysfs_gone(t *testing.T) {
	m := newMachine(t)
	m.plant("pci0000:00", switchTree())
	gone := string(bytes.Repeat([]byte{0xff}, 4096))
	base := "/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/"
	// A sibling that is gone is a problem, and no change is planned then.
	m.file(base+"0000:02:01.0/0000:04:00.0/config", gone)
	topo, err := m.sysfs().Load(at(3, 0, 0))
	if err != nil || len(topo.Problems) != 1 || !errors.Is(topo.Problems[0], ErrGone) {
		t.Fatal(err, topo.Problems)
	}
	p, err := topo.Path(at(3, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PlanChange(topo, p, ChangeRequest{Auto: true, Siblings: true}); err == nil {
		t.Error("a change is planned on a tree that cannot be read")
	}
	// The device or a hop that is gone is an error.
	m.file(base+"0000:02:00.0/config", gone)
	if _, err := m.sysfs().Load(at(3, 0, 0)); !errors.Is(err, ErrGone) {
		t.Errorf("a hop that is gone: %v", err)
	}
}

func TestSysfs_attributes(t *testing.T) {
	m := newMachine(t)
	n := node{512, 256, 512}
	m.plant("pci0000:00", newTree(n, nil, nil, []node{n}))
	dir := "/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/"
	for name, text := range map[string]string{
		"current_link_speed": "Unknown", "current_link_width": "255", "max_link_speed": "8 GT/s", "max_link_width": "0",
		"numa_node": "-1", "local_cpulist": "0-1", "link/l1_aspm": "1", "link/l0s_aspm": "0",
		"aer_dev_correctable": "RxErr 0\nBadTLP 3\nTOTAL_ERR_COR 3", "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0",
		"aer_dev_fatal": "Malformed TLP 2\nTOTAL_ERR_FATAL 2",
	} {
		m.file(dir+name, text+"\n")
	}
	m.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
	m.file("/sys/module/pcie_aspm/parameters/policy", "[default] performance powersave powersupersave \n")
	m.file("/proc/cmdline", "quiet pci=nomsi,pcie_bus_perf root=/dev/sda1\n")
	m.file("/sys/devices/system/node/node0/distance", "10 21\n")
	m.file("/sys/devices/system/node/node1/distance", "21 10\n")
	topo, err := m.sysfs().Load(at(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	f, _ := topo.Lookup(at(1, 0, 0))
	s := f.Sysfs
	if s.Speed != 0 || s.Width != 0 || s.MaxSpeed != Gen3 || s.MaxWidth != 0 || s.NUMANode != -1 || s.LocalCPUs != "0-1" || !slices.Equal(s.PowerSaving, []string{"l1_aspm"}) {
		t.Errorf("%+v", s)
	}
	if g := s.Errors.Since(nil); len(g) != 2 || g["correctable BadTLP"] != 3 || g["fatal Malformed TLP"] != 2 {
		t.Errorf("%v", g)
	}
	if *topo.Platform != (Platform{Lockdown: "integrity", BusMode: "pcie_bus_perf", ASPMPolicy: "default", NUMANodes: 2}) {
		t.Errorf("%+v", topo.Platform)
	}
	if d := m.sysfs().remoteDistance(0); d != 21 {
		t.Errorf("distance %d", d)
	}
	p, err := topo.Path(at(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	findings := Audit(topo, p, AuditOptions{})
	for rule, severity := range map[string]Severity{RuleErrors: Critical, RuleNUMA: Note} {
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Rule == rule && f.Severity == severity }) {
			t.Errorf("no %s finding of %s in %+v", severity, rule, findings)
		}
	}
	if Worst(findings) != Critical {
		t.Errorf("the worst is %s", Worst(findings))
	}
}

// TestWriteRegister: only the bits of the mask change, what is not kept is
// reported, and nothing else can be written.
func TestWriteRegister(t *testing.T) {
	m := newMachine(t)
	tr := newTree(node{512, 512, 512}, nil, nil, []node{{256, 128, 512}})
	tr.configs[at(1, 0, 0)].put16(expAt+8, 0x2910|1<<15) // a device in trouble
	m.plant("pci0000:00", tr)
	s := m.sysfs()
	w := Write{Function: at(1, 0, 0), CapOffset: expAt, Mask: 0x00e0, Old: 0, New: 0x20}
	if err := s.WriteRegister(w); err != nil {
		t.Fatal(err)
	}
	control, _, err := s.DeviceControl(at(1, 0, 0), expAt)
	if err != nil || control&0x7fff != 0x2930 {
		t.Errorf("%04x %v", control, err)
	}
	if ok, err := s.Holds(w); err != nil || !ok {
		t.Error("does not hold", err)
	}
	w.New = 0x40 // above what the device supports
	err = s.WriteRegister(w)
	kept, ok := errors.AsType[*NotKeptError](err)
	if !ok || kept.ExitCode() != 6 {
		t.Errorf("%v", err)
	}
	writes := m.writes
	for _, bad := range []Write{
		{Function: at(1, 0, 0), CapOffset: expAt, Mask: 0x8000, New: 0x8000}, {Function: at(1, 0, 0), CapOffset: expAt, Mask: 0xffff},
		{Function: at(1, 0, 0), CapOffset: expAt}, {Function: at(1, 0, 0), CapOffset: expAt, Mask: 0xe0, New: 0x100},
		{Function: at(1, 0, 0), CapOffset: 0x40, Mask: 0xe0, New: 0x20}, {Function: at(7, 0, 0), CapOffset: expAt, Mask: 0xe0},
	} {
		if err := s.WriteRegister(bad); err == nil || m.writes != writes {
			t.Errorf("%+v: %v, %d writes", bad, err, m.writes-writes)
		}
	}
	m.failAt, m.fail = m.writes+1, fs.ErrPermission
	if err := s.WriteRegister(w); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "locked down") {
		t.Error(err)
	}
}
