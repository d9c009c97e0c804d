package nvmeioctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotNVMe says that a path names something that is no NVMe controller or
// namespace.
var ErrNotNVMe = errors.New("not an NVMe device")

// Host is a machine as its file systems show it. The root is a value, so that
// a recorded tree can stand for /sys and /dev.
type Host struct {
	// Root is where /sys and /dev are found; "" means "/".
	Root string
}

// Controller is one controller as sysfs shows it; nothing was sent to it.
type Controller struct {
	// Name is the kernel's name: "nvme0". It may change at every boot.
	Name string `json:"name"`
	// Node is the character device: "/dev/nvme0".
	Node     string `json:"node"`
	Serial   string `json:"serial"`
	Model    string `json:"model"`
	Firmware string `json:"firmware"`
	// Transport is "pcie", "tcp", "rdma", "fc", "loop" or "apple-nvme".
	Transport string `json:"transport"`
	// Address is the transport's address: a PCI address or "traddr=...".
	Address string `json:"address"`
	// PCIAddress is domain:bus:device.function; "" when not on PCIe.
	PCIAddress string `json:"pci_address,omitempty"`
	// CNTLID is the controller's number within its subsystem.
	CNTLID       uint16 `json:"cntlid"`
	SubsystemNQN string `json:"subsystem_nqn"`
	// Subsystem is the kernel's name: "nvme-subsys1".
	Subsystem string `json:"subsystem"`
	// NUMANode is -1 when the platform does not say.
	NUMANode int `json:"numa_node"`
	// State is "live", "resetting", "connecting", "dead", ...
	State string `json:"state"`
	// DeviceNumber is "major:minor" of the character device.
	DeviceNumber string `json:"device_number"`
}

// Identity returns what survives a change of node names.
func (c Controller) Identity() Identity {
	return Identity{SubsystemNQN: c.SubsystemNQN, Serial: c.Serial, Model: c.Model, CNTLID: c.CNTLID}
}

// Namespace is one namespace that has a node on this host.
type Namespace struct {
	// Name is the block device's name: "nvme1n1". Neither number in it is a
	// controller or an NSID. It is "" where the kernel made no block device.
	Name string `json:"name"`
	// Node is the block device, "/dev/nvme1n1".
	Node string `json:"node"`
	// GenericNode is the character device, "/dev/ng1n1"; "" when there is none.
	GenericNode string `json:"generic_node,omitempty"`
	// NSID is read from sysfs, never from the name.
	NSID uint32 `json:"nsid"`
	// SizeBytes is the data capacity in bytes.
	SizeBytes uint64 `json:"size_bytes"`
	// LogicalBlockBytes is the data size of a logical block, in bytes; 0 when
	// sysfs does not say.
	LogicalBlockBytes uint32 `json:"logical_block_bytes"`
	// NGUID, EUI64 and UUID are lower-case hexadecimal as sysfs prints them;
	// "" when absent, which includes all zero.
	NGUID string `json:"nguid,omitempty"`
	EUI64 string `json:"eui64,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	// DeviceNumber is "major:minor" of the block device, GenericDeviceNumber of
	// the generic node.
	DeviceNumber        string `json:"device_number"`
	GenericDeviceNumber string `json:"generic_device_number,omitempty"`
	Subsystem           string `json:"subsystem"`
	// Controllers are the names of the controllers of this host that have a
	// path to the namespace, sorted. This is topology, not attachment: ask the
	// drive (Identify CNS 12h) for that.
	Controllers []string `json:"controllers"`
	// Multipath says that the node is the head over hidden path devices.
	Multipath bool `json:"multipath"`
}

// Subsystem is one NVM subsystem seen from this host.
type Subsystem struct {
	Name        string   `json:"name"`
	NQN         string   `json:"nqn"`
	Serial      string   `json:"serial"`
	Model       string   `json:"model"`
	Controllers []string `json:"controllers"`
}

// Inventory is what one look at sysfs found, sorted by name.
type Inventory struct {
	Controllers []Controller `json:"controllers"`
	Namespaces  []Namespace  `json:"namespaces"`
	Subsystems  []Subsystem  `json:"subsystems"`
	// Problems are entries that could not be read; the rest is complete.
	Problems []error `json:"-"`
}

// NodeKind is what a device node gives access to.
type NodeKind uint8

// The kinds of nodes.
const (
	NodeController NodeKind = iota + 1 // /dev/nvme0
	NodeNamespace                      // /dev/nvme0n1, a block device
	NodeGeneric                        // /dev/ng0n1, a character device
)

func (k NodeKind) String() string {
	switch k {
	case NodeController:
		return "controller"
	case NodeNamespace:
		return "namespace"
	case NodeGeneric:
		return "generic namespace"
	}
	return "unknown"
}

// Target is what a path to a device node means.
type Target struct {
	// Path is the node after symbolic links: "/dev/nvme1n1".
	Path string
	Kind NodeKind
	// DeviceNumber is "major:minor" of the node.
	DeviceNumber string
	// Controllers are those that the node leads to: one for a controller node,
	// each path's controller for a namespace. The first live one comes first.
	Controllers []Controller
	// Namespace is nil for a controller node.
	Namespace *Namespace
}

// NSID is the namespace the node stands for, 0 for a controller node.
func (t Target) NSID() uint32 {
	if t.Namespace == nil {
		return 0
	}
	return t.Namespace.NSID
}

// Discover reads all controllers, namespaces and subsystems. An entry that
// cannot be read is a problem in the inventory and does not hide the others;
// the error says that sysfs itself could not be read. A host without the nvme
// driver has an empty inventory.
func (h Host) Discover() (Inventory, error) {
	s := scan{host: h, dirs: map[string]string{}}
	if _, err := os.Stat(h.under("/sys/class")); err != nil {
		return Inventory{}, fmt.Errorf("discover NVMe devices: %w", err)
	}
	s.readControllers()
	s.readSubsystems()
	for i := range s.inv.Controllers {
		c := &s.inv.Controllers[i]
		s.readNamespaces(s.dirs[c.Name], c.Subsystem, []string{c.Name})
	}
	for _, sub := range s.inv.Subsystems {
		s.readNamespaces(s.dirs[sub.Name], sub.Name, nil)
	}
	s.joinPaths()
	byName := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	slices.SortFunc(s.inv.Namespaces, func(a, b Namespace) int {
		return cmp.Or(byName(a.Name, b.Name), byName(a.GenericNode, b.GenericNode))
	})
	return s.inv, nil
}

// scan is one look at sysfs.
type scan struct {
	host Host
	inv  Inventory
	// dirs are the device directories by kernel name, symbolic links resolved.
	dirs  map[string]string
	paths []nsPath
	// wwids are the kernel's unique names of the namespaces, parallel to
	// inv.Namespaces.
	wwids []string
}

// nsPath is a hidden block device: one controller's path to a namespace that
// several controllers share ("nvme1c0n1").
type nsPath struct {
	controller, subsystem, wwid string
	nsid                        uint32
}

func (s *scan) problem(err error) { s.inv.Problems = append(s.inv.Problems, err) }

// list returns the names in a directory, nvme2 before nvme10; a directory that
// does not exist is empty.
func (s *scan) list(dir string) []string {
	entries, err := os.ReadDir(s.host.under(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.problem(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return names
}

// attr reads an attribute. One that does not exist is "": kernels differ.
func (s *scan) attr(dir, name string) string {
	b, err := os.ReadFile(s.host.under(filepath.Join(dir, name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.problem(err)
	}
	return strings.TrimSpace(string(b))
}

// number reads a decimal attribute; absent gives the value for absent.
func (s *scan) number(dir, name string, bits int, absent uint64) uint64 {
	text := s.attr(dir, name)
	if text == "" {
		return absent
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		s.problem(fmt.Errorf("%s: %w", filepath.Join(dir, name), err))
		return absent
	}
	return n
}

func (s *scan) readControllers() {
	for _, name := range s.list("/sys/class/nvme") {
		dir, err := s.host.follow(filepath.Join("/sys/class/nvme", name))
		if err != nil {
			s.problem(err)
			continue
		}
		s.dirs[name] = dir
		c := Controller{
			Name: name, Node: "/dev/" + name,
			Serial: s.attr(dir, "serial"), Model: s.attr(dir, "model"), Firmware: s.attr(dir, "firmware_rev"),
			Transport: s.attr(dir, "transport"), Address: s.attr(dir, "address"),
			SubsystemNQN: s.attr(dir, "subsysnqn"), State: s.attr(dir, "state"), DeviceNumber: s.attr(dir, "dev"),
			CNTLID:   uint16(s.number(dir, "cntlid", 16, 0)),
			NUMANode: s.numaNode(dir),
		}
		if c.Transport == "pcie" {
			c.PCIAddress = c.Address
		}
		if c.Serial == "" {
			s.problem(fmt.Errorf("%s: no serial number in sysfs", c.Node))
		}
		s.inv.Controllers = append(s.inv.Controllers, c)
	}
}

// numaNode is -1 when the platform does not say, which sysfs writes as -1 too.
func (s *scan) numaNode(dir string) int {
	text := s.attr(dir, "numa_node")
	if text == "" {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		s.problem(fmt.Errorf("%s/numa_node: %w", dir, err))
		return -1
	}
	return n
}

func (s *scan) readSubsystems() {
	for _, name := range s.list("/sys/class/nvme-subsystem") {
		dir, err := s.host.follow(filepath.Join("/sys/class/nvme-subsystem", name))
		if err != nil {
			s.problem(err)
			continue
		}
		s.dirs[name] = dir
		sub := Subsystem{Name: name, NQN: s.attr(dir, "subsysnqn"), Serial: s.attr(dir, "serial"), Model: s.attr(dir, "model")}
		for i := range s.inv.Controllers {
			c := &s.inv.Controllers[i]
			// The subsystem's directory has a link to each of its controllers.
			target, err := s.host.follow(filepath.Join(dir, c.Name))
			if err == nil && target == s.dirs[c.Name] {
				c.Subsystem = name
				sub.Controllers = append(sub.Controllers, c.Name)
			}
		}
		s.inv.Subsystems = append(s.inv.Subsystems, sub)
	}
}

// readNamespaces takes what is a namespace among the children of a controller
// or, for multipath heads, of a subsystem. What makes one is its nsid file.
func (s *scan) readNamespaces(dir, subsystem string, controllers []string) {
	names := s.list(dir)
	for _, name := range names {
		child := filepath.Join(dir, name)
		info, err := os.Lstat(s.host.under(child))
		if err != nil || !info.IsDir() {
			continue
		}
		if _, err := os.Lstat(s.host.under(filepath.Join(child, "nsid"))); err != nil {
			continue
		}
		nsid := uint32(s.number(child, "nsid", 32, 0))
		if nsid == 0 {
			s.problem(fmt.Errorf("%s: no namespace ID in sysfs", child))
			continue
		}
		// The generic node has no nsid file in most kernels; it is the sibling
		// with the same numbers.
		generic := strings.Replace(name, "nvme", "ng", 1)
		hasGeneric := generic != name && slices.Contains(names, generic)
		hidden := s.attr(child, "hidden") == "1" || s.attr(child, "dev") == ""
		if hidden && !hasGeneric {
			for _, c := range controllers {
				s.paths = append(s.paths, nsPath{controller: c, subsystem: subsystem, nsid: nsid, wwid: s.attr(child, "wwid")})
			}
			continue
		}
		ns := s.readNamespace(child, nsid)
		if hidden { // a format that the block layer cannot serve: generic node only
			ns.Name, ns.Node, ns.DeviceNumber = "", "", ""
		}
		if hasGeneric {
			ns.GenericNode = "/dev/" + generic
			ns.GenericDeviceNumber = s.attr(filepath.Join(dir, generic), "dev")
		}
		ns.Subsystem, ns.Multipath = subsystem, controllers == nil
		ns.Controllers = append([]string{}, controllers...)
		s.inv.Namespaces = append(s.inv.Namespaces, ns)
		s.wwids = append(s.wwids, s.attr(child, "wwid"))
	}
}

func (s *scan) readNamespace(dir string, nsid uint32) Namespace {
	name := filepath.Base(dir)
	ns := Namespace{
		Name: name, Node: "/dev/" + name, NSID: nsid, DeviceNumber: s.attr(dir, "dev"),
		// The unit of size is 512 bytes whatever the logical block is.
		SizeBytes:         s.number(dir, "size", 54, 0) * 512,
		LogicalBlockBytes: uint32(s.number(dir, "queue/logical_block_size", 32, 0)),
		NGUID:             identifier(s.attr(dir, "nguid"), false),
		EUI64:             identifier(s.attr(dir, "eui"), false),
		UUID:              identifier(s.attr(dir, "uuid"), true),
	}
	// Without a UUID the kernel shows the NGUID in its place.
	if strings.ReplaceAll(ns.UUID, "-", "") == ns.NGUID {
		ns.UUID = ""
	}
	return ns
}

// identifier is lower-case hexadecimal without separators (a UUID keeps its
// dashes), or "" when every digit is zero, which means absent.
func identifier(text string, keepDashes bool) string {
	text = strings.ToLower(strings.ReplaceAll(text, " ", ""))
	if !keepDashes {
		text = strings.ReplaceAll(text, "-", "")
	}
	if strings.Trim(text, "0-") == "" {
		return ""
	}
	return text
}

// joinPaths gives each multipath head the controllers of its hidden paths.
func (s *scan) joinPaths() {
	for i := range s.inv.Namespaces {
		ns := &s.inv.Namespaces[i]
		if !ns.Multipath {
			continue
		}
		for _, p := range s.paths {
			if p.subsystem == ns.Subsystem && p.nsid == ns.NSID && p.wwid == s.wwids[i] &&
				!slices.Contains(ns.Controllers, p.controller) {
				ns.Controllers = append(ns.Controllers, p.controller)
			}
		}
	}
}
