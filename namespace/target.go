package namespace

import "nvop/nvmeioctl/nvmespec"

// Options are what a caller may allow a plan.
type Options struct {
	// AllowFabrics lets capacity change on transports other than PCIe and the
	// simulator.
	AllowFabrics bool
	// AcceptCriticalWarning lets data be destroyed on a drive whose SMART log
	// shows a critical warning.
	AcceptCriticalWarning bool
	// StepDownMax is how many times a size that the drive refuses for lack of
	// capacity may be made smaller; 0 means 64. Negative means never.
	StepDownMax int
}

// FormatSelector chooses an LBA format by what it is.
type FormatSelector struct {
	// DataBytes is 512, 4096, ...
	DataBytes uint32 `json:"data_bytes"`
	// MetadataBytes is usually 0, 8 or 64.
	MetadataBytes uint32 `json:"metadata_bytes"`
}

// OPTarget is one namespace with another size.
type OPTarget struct {
	// NSID is the namespace to replace; 0 means the only one there is.
	NSID uint32
	Size Size
	// Format is the LBA format; nil keeps the present one.
	Format *FormatSelector
	// Shared is NMIC bit 0; nil keeps what is there.
	Shared *bool
	// Title is what the user asked for: "op set --size 6.4TB".
	Title string
}

// CreateTarget is a new namespace.
type CreateTarget struct {
	Size Size
	// Format nil means the format of the first namespace of the drive, else
	// 4096 bytes without metadata, else the first format without metadata.
	Format *FormatSelector
	// Shared sets NMIC bit 0.
	Shared bool
	// Controllers it is attached to; nil means the one that is open. An empty
	// list that is not nil leaves it detached.
	Controllers []uint16
	Title       string
}

// SecureErase is the SES field of Format NVM.
type SecureErase = nvmespec.EraseKind

// The values of SES.
const (
	EraseNone   = nvmespec.EraseNone
	EraseUser   = nvmespec.EraseUserData
	EraseCrypto = nvmespec.EraseCrypto
)

// FormatTarget is a Format NVM.
type FormatTarget struct {
	// NSID is the namespace; 0 means the only one, 0xFFFFFFFF all.
	NSID uint32
	// Format nil keeps the present one.
	Format *FormatSelector
	Erase  SecureErase
	Title  string
}
