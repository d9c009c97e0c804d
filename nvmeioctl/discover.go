package nvmeioctl

import "errors"

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
	// DeviceNumber is "major:minor" of the block device.
	DeviceNumber string `json:"device_number"`
	Subsystem    string `json:"subsystem"`
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
func (h Host) Discover() (Inventory, error) { return Inventory{}, nil }

// Resolve says what the device node at path means. Symbolic links such as
// those below /dev/disk/by-id are followed. The error is fs.ErrNotExist for a
// missing node and [ErrNotNVMe] for another kind of device or file.
func (h Host) Resolve(path string) (Target, error) { return Target{}, ErrNotNVMe }

// ControllersOf returns the controllers that a node leads to.
func (h Host) ControllersOf(path string) ([]Controller, error) {
	t, err := h.Resolve(path)
	return t.Controllers, err
}
