package pcie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sysfs is a machine as its file systems show it. The root is a value, so that
// a recorded tree can stand for /sys and /proc.
type Sysfs struct {
	// Root is where sys and proc are found; "" means "/".
	Root string
	// OpenConfig opens a file of configuration space; nil opens it as it is. A
	// test puts a model of the registers here, since a plain file keeps what
	// hardware would not.
	OpenConfig func(path string, write bool) (ConfigFile, error)
}

// Attributes is what sysfs says of a function beside its configuration space.
// All of it can be read without privilege.
type Attributes struct {
	// Speed, Width and their maxima; 0 where the kernel does not say. The
	// maxima are the function's own.
	Speed    Speed `json:"speed_gt_per_second"`
	Width    Width `json:"width"`
	MaxSpeed Speed `json:"max_speed_gt_per_second"`
	MaxWidth Width `json:"max_width"`
	// NUMANode is -1 when the platform does not say.
	NUMANode int `json:"numa_node"`
	// RemoteDistance is how far the farthest NUMA node is from the function's,
	// as firmware gives it: 10 is local. 0 when not said.
	RemoteDistance int    `json:"numa_remote_distance,omitempty"`
	LocalCPUs      string `json:"local_cpus,omitempty"`
	Driver         string `json:"driver,omitempty"`
	// Errors are the kernel's AER counters since the device appeared; nil where
	// there are none: no AER capability, or firmware keeps AER to itself.
	Errors *ErrorCounters `json:"aer_counters,omitempty"`
	// PowerSaving are the link's enabled states by the kernel's names:
	// "l1_aspm", "l1_2_aspm", "clkpm". nil where the kernel does not say.
	PowerSaving []string `json:"power_saving,omitempty"`
	// PhysicalFunction is set for a virtual function.
	PhysicalFunction *Address `json:"physical_function,omitempty"`
	// VMD is the function through which this domain is reached; nil for none.
	VMD *Address `json:"vmd,omitempty"`
	// OnRootBus: the function is right below the host bridge.
	OnRootBus bool `json:"on_root_bus"`
}

// ErrorCounters are AER counters by the kernel's names ("MalfTLP").
type ErrorCounters struct {
	Correctable map[string]uint64 `json:"correctable"`
	NonFatal    map[string]uint64 `json:"nonfatal"`
	Fatal       map[string]uint64 `json:"fatal"`
}

// Platform is what holds for the whole machine.
type Platform struct {
	// Lockdown is "none", "integrity" or "confidentiality"; "" when the kernel
	// has no lockdown. Under the latter two nobody can write configuration space.
	Lockdown string `json:"lockdown,omitempty"`
	// BusMode is the payload policy on the kernel's command line, such as
	// "pcie_bus_perf"; "" for the kernel's built-in one.
	BusMode string `json:"pcie_bus_mode,omitempty"`
	// ASPMPolicy is the kernel's policy in force: "default", "performance", ...
	ASPMPolicy string `json:"aspm_policy,omitempty"`
	// NUMANodes is how many nodes are online; 0 when not said.
	NUMANodes int `json:"numa_nodes,omitempty"`
}

func (s Sysfs) under(path string) string { return filepath.Join("/", s.Root, path) }

func (s Sysfs) deviceLink(a Address) string {
	return filepath.Join("/sys/bus/pci/devices", a.String())
}

// Exists says whether the kernel shows a function at a.
func (s Sysfs) Exists(a Address) bool {
	_, err := os.Lstat(s.under(s.deviceLink(a)))
	return err == nil
}

// directory is where the function lies in the tree of devices.
func (s Sysfs) directory(a Address) (string, error) {
	link := s.deviceLink(a)
	info, err := os.Lstat(s.under(link))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", a, ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", a, err)
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return link, nil
	}
	target, err := os.Readlink(s.under(link))
	if err != nil {
		return "", fmt.Errorf("%s: %w", a, err)
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(link), target)
	}
	return filepath.Clean(target), nil
}

// place is where a function is: its directory, the way down to it from the
// host bridge, and the VMD the host bridge belongs to.
type place struct {
	dir string
	// chain are the functions from the one on the root bus to the function.
	chain []Address
	vmd   *Address
}

func (s Sysfs) place(a Address) (place, error) {
	dir, err := s.directory(a)
	if err != nil {
		return place{}, err
	}
	p := place{dir: dir}
	for _, part := range strings.Split(dir, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") { // a host bridge
			if n := len(p.chain); n > 0 {
				p.vmd = &p.chain[n-1]
			}
			p.chain = nil
			continue
		}
		if f, err := ParseAddress(part); err == nil {
			p.chain = append(p.chain, f)
		}
	}
	if len(p.chain) == 0 {
		p.chain = []Address{a}
	}
	return p, nil
}

// Load reads the functions at the given addresses with everything above them,
// and everything that hangs on the same root ports: payload sizes are a matter
// of the whole tree. A function that cannot be read is an error if it is asked
// for or above one that is; others are in the topology's Problems.
func (s Sysfs) Load(addresses ...Address) (*Topology, error) {
	t := NewTopology(nil)
	t.Platform = s.platform()
	for _, a := range addresses {
		p, err := s.place(a)
		if err != nil {
			return nil, err
		}
		// The directory of the function on the root bus holds the whole tree.
		up := p.dir
		for range len(p.chain) - 1 {
			up = filepath.Dir(up)
		}
		if _, known := t.Lookup(p.chain[0]); !known {
			s.walk(t, up, p, 0)
		}
		if err := s.needed(t, p); err != nil {
			return nil, err
		}
		if p.vmd != nil {
			if _, known := t.Lookup(*p.vmd); !known {
				if f, err := s.function(*p.vmd, filepath.Dir(filepath.Dir(up))); err == nil {
					t.add(&f)
				}
			}
		}
		f, _ := t.Lookup(a)
		if pf := f.Sysfs.PhysicalFunction; pf != nil {
			if _, known := t.Lookup(*pf); !known {
				return nil, fmt.Errorf("%s: its physical function %s: %w", a, *pf, ErrNotFound)
			}
		}
	}
	return t, nil
}

// needed reports a hop that could not be read.
func (s Sysfs) needed(t *Topology, p place) error {
	for _, a := range p.chain {
		if _, ok := t.Lookup(a); ok {
			continue
		}
		if err, ok := t.unreadable[a]; ok {
			return err
		}
		return fmt.Errorf("%s: %w", a, ErrNotFound)
	}
	return nil
}

// walk reads the function in dir and all below it.
func (s Sysfs) walk(t *Topology, dir string, p place, depth int) {
	a, err := ParseAddress(filepath.Base(dir))
	if err != nil || depth > maxHops {
		return
	}
	f, err := s.function(a, dir)
	if err != nil {
		t.unreadable[a] = err
		t.Problems = append(t.Problems, err)
	} else {
		f.Sysfs.OnRootBus, f.Sysfs.VMD = depth == 0, p.vmd
		t.add(&f)
	}
	entries, err := os.ReadDir(s.under(dir))
	if err != nil {
		t.Problems = append(t.Problems, err)
		return
	}
	for _, e := range entries {
		child, err := ParseAddress(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		t.parents[child] = a
		s.walk(t, filepath.Join(dir, e.Name()), p, depth+1)
	}
}

// function reads one function.
func (s Sysfs) function(a Address, dir string) (Function, error) {
	config, err := s.config(dir)
	if err != nil {
		return Function{}, fmt.Errorf("%s: %w", a, err)
	}
	attributes := s.attributes(dir)
	// A virtual function answers ffff for both IDs; the kernel knows them.
	if attributes.PhysicalFunction != nil && len(config) >= headerBytes && binary.LittleEndian.Uint32(config) == 0xffffffff &&
		slices.ContainsFunc(config, func(b byte) bool { return b != 0xff }) {
		for i, name := range []string{"vendor", "device"} {
			n, err := strconv.ParseUint(s.text(dir, name), 0, 16)
			if err != nil {
				return Function{}, fmt.Errorf("%s: virtual function without %s in sysfs", a, name)
			}
			binary.LittleEndian.PutUint16(config[2*i:], uint16(n))
		}
	}
	f, err := Decode(a, config)
	f.Sysfs = attributes
	return f, err
}

func (s Sysfs) config(dir string) ([]byte, error) {
	f, err := s.openConfig(dir, false)
	if err != nil {
		return nil, err
	}
	config, err := io.ReadAll(io.NewSectionReader(f, 0, configBytes))
	return config, errors.Join(err, f.Close())
}

// text reads an attribute; "" when it is not there or cannot be read.
func (s Sysfs) text(dir, name string) string {
	b, err := os.ReadFile(s.under(filepath.Join(dir, name)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s Sysfs) attributes(dir string) *Attributes {
	a := &Attributes{
		Speed: parseSpeed(s.text(dir, "current_link_speed")), Width: parseWidth(s.text(dir, "current_link_width")),
		MaxSpeed: parseSpeed(s.text(dir, "max_link_speed")), MaxWidth: parseWidth(s.text(dir, "max_link_width")),
		NUMANode: -1, LocalCPUs: s.text(dir, "local_cpulist"), Errors: s.errorCounters(dir),
	}
	if n, err := strconv.Atoi(s.text(dir, "numa_node")); err == nil {
		a.NUMANode, a.RemoteDistance = n, s.remoteDistance(n)
	}
	if target, err := os.Readlink(s.under(filepath.Join(dir, "driver"))); err == nil {
		a.Driver = filepath.Base(target)
	}
	if target, err := os.Readlink(s.under(filepath.Join(dir, "physfn"))); err == nil {
		if pf, err := ParseAddress(filepath.Base(target)); err == nil {
			a.PhysicalFunction = &pf
		}
	}
	for _, name := range []string{"l0s_aspm", "l1_aspm", "l1_1_aspm", "l1_2_aspm", "l1_1_pcipm", "l1_2_pcipm", "clkpm"} {
		switch s.text(dir, "link/"+name) {
		case "1":
			a.PowerSaving = append(a.PowerSaving, name)
		case "0":
			a.PowerSaving = append([]string{}, a.PowerSaving...)
		}
	}
	return a
}

// parseSpeed reads "16.0 GT/s PCIe" of new kernels and "8 GT/s" of old ones;
// "Unknown" and anything else is no data.
func parseSpeed(text string) Speed {
	number, _, _ := strings.Cut(text, " ")
	gt, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	for s := Gen1; s <= Gen6; s++ {
		if s.GTPerSecond() == gt {
			return s
		}
	}
	return 0
}

// parseWidth reads a number of lanes; 0, 63 and 255 are no data.
func parseWidth(text string) Width {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || !Width(n).Known() {
		return 0
	}
	return Width(n)
}

func (s Sysfs) errorCounters(dir string) *ErrorCounters {
	correctable := parseCounters(s.text(dir, "aer_dev_correctable"))
	if correctable == nil {
		return nil
	}
	return &ErrorCounters{
		Correctable: correctable, NonFatal: parseCounters(s.text(dir, "aer_dev_nonfatal")), Fatal: parseCounters(s.text(dir, "aer_dev_fatal")),
	}
}

// parseCounters reads lines of a name, which older kernels write in several
// words, and a number. The totals are left out. nil for no text.
func parseCounters(text string) map[string]uint64 {
	if text == "" {
		return nil
	}
	counters := map[string]uint64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "TOTAL_ERR") {
			continue
		}
		if n, err := strconv.ParseUint(line[i+1:], 10, 64); err == nil {
			counters[strings.TrimSpace(line[:i])] = n
		}
	}
	return counters
}

// Since says how much each counter grew from before to now; only growth is
// listed, as "fatal MalfTLP". A counter that went back was cleared, and counts
// from 0.
func (e *ErrorCounters) Since(before *ErrorCounters) map[string]uint64 {
	grown := map[string]uint64{}
	if e == nil {
		return grown
	}
	if before == nil {
		before = &ErrorCounters{}
	}
	for _, c := range []struct {
		kind        string
		now, before map[string]uint64
	}{
		{"correctable", e.Correctable, before.Correctable}, {"nonfatal", e.NonFatal, before.NonFatal}, {"fatal", e.Fatal, before.Fatal},
	} {
		for _, name := range slices.Sorted(maps.Keys(c.now)) {
			n := c.now[name]
			if was := c.before[name]; was <= n {
				n -= was
			}
			if n > 0 {
				grown[c.kind+" "+name] = n
			}
		}
	}
	return grown
}

func (s Sysfs) platform() *Platform {
	p := &Platform{
		Lockdown:   bracketed(s.text("/sys/kernel/security", "lockdown")),
		ASPMPolicy: bracketed(s.text("/sys/module/pcie_aspm/parameters", "policy")),
	}
	for _, word := range strings.Fields(s.text("/proc", "cmdline")) {
		options, ok := strings.CutPrefix(word, "pci=")
		if !ok {
			continue
		}
		for _, option := range strings.Split(options, ",") {
			if strings.HasPrefix(option, "pcie_bus_") {
				p.BusMode = option // the last one counts
			}
		}
	}
	entries, err := os.ReadDir(s.under("/sys/devices/system/node"))
	for _, e := range entries {
		if n := strings.TrimPrefix(e.Name(), "node"); err == nil && n != e.Name() {
			if _, err := strconv.Atoi(n); err == nil {
				p.NUMANodes++
			}
		}
	}
	return p
}

// bracketed picks the choice in force: "none [integrity] confidentiality".
func bracketed(text string) string {
	_, rest, ok := strings.Cut(text, "[")
	if !ok {
		return ""
	}
	choice, _, _ := strings.Cut(rest, "]")
	return choice
}

// remoteDistance is the distance from a node to the farthest one.
func (s Sysfs) remoteDistance(node int) int {
	if node < 0 {
		return 0
	}
	far := 0
	for _, field := range strings.Fields(s.text(fmt.Sprintf("/sys/devices/system/node/node%d", node), "distance")) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0
		}
		far = max(far, n)
	}
	return far
}

// ConfigFile is an open configuration space.
type ConfigFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// NotKeptError says that a register did not take the value written: real
// hardware ignores what it does not support, and a locked-down kernel makes
// some tools report success.
type NotKeptError struct {
	Write Write
	// Found is the register after the write.
	Found uint16
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("%s: the register reads %04x afterwards, not %04x under the mask %04x", e.Write, e.Found, e.Write.New, e.Write.Mask)
}

// ExitCode is the process's exit code for this error: the hardware said no.
func (e *NotKeptError) ExitCode() int { return 6 }

// openConfig opens a function's configuration space.
func (s Sysfs) openConfig(dir string, write bool) (ConfigFile, error) {
	path := s.under(filepath.Join(dir, "config"))
	if s.OpenConfig != nil {
		return s.OpenConfig(path, write)
	}
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	return os.OpenFile(path, flag, 0)
}

// DeviceControl reads Device Control and Device Status of a function whose PCI
// Express capability is at offset.
func (s Sysfs) DeviceControl(a Address, offset uint16) (control, status uint16, err error) {
	dir, err := s.directory(a)
	if err != nil {
		return 0, 0, err
	}
	f, err := s.openConfig(dir, false)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	control, status, err = readControl(f, a, offset)
	return control, status, errors.Join(err, f.Close())
}

// readControl reads both registers after making sure that the capability is
// still there: another device may sit at the address by now.
func readControl(f ConfigFile, a Address, offset uint16) (control, status uint16, err error) {
	var head [2]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	if binary.LittleEndian.Uint16(head[:]) == 0xffff {
		return 0, 0, fmt.Errorf("%s: %w", a, ErrGone)
	}
	var b [offExpLnkCap]byte
	if _, err := f.ReadAt(b[:], int64(offset)); err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrNoAccess
		}
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	if b[0] != capIDExpress {
		return 0, 0, fmt.Errorf("%s: no PCI Express capability at %02xh any more", a, offset)
	}
	return binary.LittleEndian.Uint16(b[offExpDevCtl:]), binary.LittleEndian.Uint16(b[offExpDevSta:]), nil
}

// WriteRegister carries out w: the register is read, the bits under the mask
// are replaced, 16 bits are written, and the register is read back. The error
// is a [*NotKeptError] when it did not take the value.
func (s Sysfs) WriteRegister(w Write) error {
	if w.Mask == 0 || w.Mask&^(maskMaxPayload|maskMaxReadRequest) != 0 || w.New&^w.Mask != 0 {
		return fmt.Errorf("%s: writing %04x under the mask %04x: only payload and read request sizes may be written", w.Function, w.New, w.Mask)
	}
	dir, err := s.directory(w.Function)
	if err != nil {
		return err
	}
	f, err := s.openConfig(dir, true)
	if err != nil {
		return s.writeError(w, err)
	}
	err = s.writeMasked(f, w)
	return errors.Join(err, f.Close())
}

func (s Sysfs) writeMasked(f ConfigFile, w Write) error {
	control, _, err := readControl(f, w.Function, w.CapOffset)
	if err != nil {
		return err
	}
	// Bit 15 starts a Function Level Reset in an endpoint; it reads as 0 there
	// and must never be written as read from a device in trouble.
	const initiateReset = 1 << 15
	value := control&^w.Mask&^initiateReset | w.New
	if w.Keep15 {
		value |= control & initiateReset
	}
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], value)
	if _, err := f.WriteAt(b[:], int64(w.CapOffset)+offExpDevCtl); err != nil {
		return s.writeError(w, err)
	}
	found, _, err := readControl(f, w.Function, w.CapOffset)
	if err != nil {
		return err
	}
	if found&w.Mask != w.New {
		return &NotKeptError{Write: w, Found: found}
	}
	return nil
}

// writeError says why the kernel may have refused.
func (s Sysfs) writeError(w Write, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w (writing needs CAP_SYS_ADMIN and a kernel that is not locked down)", w, err)
	}
	return fmt.Errorf("%s: %w", w, err)
}

// Holds says whether the register has the value that w writes.
func (s Sysfs) Holds(w Write) (bool, error) {
	control, _, err := s.DeviceControl(w.Function, w.CapOffset)
	return err == nil && control&w.Mask == w.New, err
}

// Pending says which of the functions still wait for answers to their reads.
func (s Sysfs) Pending(list []Setting) ([]Address, error) {
	var pending []Address
	for _, f := range list {
		if !f.Endpoint {
			continue
		}
		_, status, err := s.DeviceControl(f.Function, f.CapOffset)
		if err != nil {
			return nil, err
		}
		if status&(1<<5) != 0 {
			pending = append(pending, f.Function)
		}
	}
	return pending, nil
}

// Changed says how the sizes of functions differ from what was planned from.
func (s Sysfs) Changed(list []Setting) ([]string, error) {
	var changed []string
	for _, f := range list {
		control, _, err := s.DeviceControl(f.Function, f.CapOffset)
		if err != nil {
			return nil, err
		}
		payload, request := payloadOf(uint32(control>>5)), payloadOf(uint32(control>>12))
		if payload != f.MaxPayload || request != f.MaxReadRequest {
			changed = append(changed, fmt.Sprintf("%s has payload %d and read requests %d, not %d and %d", f.Function, payload, request, f.MaxPayload, f.MaxReadRequest))
		}
	}
	return changed, nil
}

// Errors reads the AER counters of functions; those without are left out.
func (s Sysfs) Errors(list []Setting) (map[Address]*ErrorCounters, error) {
	counters := map[Address]*ErrorCounters{}
	for _, f := range list {
		dir, err := s.directory(f.Function)
		if err != nil {
			return nil, err
		}
		if c := s.errorCounters(dir); c != nil {
			counters[f.Function] = c
		}
	}
	return counters, nil
}
