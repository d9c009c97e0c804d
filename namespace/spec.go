package namespace

import (
	"fmt"
	"path"
	"slices"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
)

// SpecVersion is the version of the spec's language that this program reads.
const SpecVersion = 1

// Limits of a spec, so that a hostile file cannot take the machine.
const (
	specMaxBytes      = 1 << 20
	specMaxRules      = 4096
	specMaxNamespaces = 1024
)

// Spec is the desired state of the drives that Match selects. What a spec does
// not name is left as it is and not judged.
type Spec struct {
	// File is where the spec was read from, for messages.
	File string
	// Version of the spec's language: 1.
	Version int
	// Match says which drives the spec is for; an empty field matches all.
	Match Match
	// Namespaces are all the namespaces the drive should have; nil leaves them as
	// they are, so that a spec may be about other things. An empty list that is
	// not nil wants none.
	Namespaces []NamespaceSpec
	// Replace names the existing namespaces that may be deleted to get there, and
	// ReplaceAll all of them. Neither is needed where the only namespace becomes
	// another one.
	Replace    []uint32
	ReplaceAll bool
	// Erase is the secure erase that a format uses, wherever the spec needs one.
	// It is a manner, not a state: alone it changes nothing.
	Erase SecureErase
	// Settings are power states and features, in the order of the table.
	Settings []Setting
	// Firmware is nil where the spec says nothing of it.
	Firmware *FirmwareSpec
	// PCIe and Health are judged by an audit only.
	PCIe   PCIeSpec
	Health HealthSpec

	places map[string]Place
}

// Place is where something is written, counted from 1; the zero value means that
// it is not known.
type Place struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Place is where a field was written: "features.write_cache.enabled". A field
// that was not has the place of the nearest one that holds it.
func (s Spec) Place(field string) Place {
	for {
		if p, ok := s.places[field]; ok {
			return p
		}
		i := len(field) - 1
		for i >= 0 && field[i] != '.' && field[i] != '[' {
			i--
		}
		if i < 0 {
			return s.places[""]
		}
		field = field[:i]
	}
}

// Where is the file, line and column of a field, as editors take it:
// "drive.yaml:12:5".
func (s Spec) Where(field string) string {
	p := s.Place(field)
	if p.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d:%d", s.File, p.Line, p.Column)
}

// Match selects drives. Every field that is not empty has to fit. Model, Address
// and Subsystem are globs with *, ? and [...].
type Match struct {
	// Serial is the exact serial number.
	Serial string
	// Model is a glob over the model number.
	Model string
	// Vendor is the PCI vendor; 0 is any.
	Vendor uint16
	// Subsystem is a glob over the subsystem NQN.
	Subsystem string
	// Address is a glob over the address as the user or the host gives it, or
	// over the PCI address.
	Address string
}

// Subject is what a Match looks at.
type Subject struct {
	Identity nvmeioctl.Identity
	VendorID uint16
	// Addresses are the drive's names: "/dev/nvme0", "0000:01:00.0".
	Addresses []string
}

// Matches says whether the spec is for this drive. VendorID 0 and a missing
// address fit no selector that names one.
func (m Match) Matches(s Subject) bool {
	return (m.Serial == "" || m.Serial == s.Identity.Serial) &&
		(m.Model == "" || glob(m.Model, s.Identity.Model)) &&
		(m.Vendor == 0 || m.Vendor == s.VendorID) &&
		(m.Subsystem == "" || glob(m.Subsystem, s.Identity.SubsystemNQN)) &&
		(m.Address == "" || slices.ContainsFunc(s.Addresses, func(a string) bool { return glob(m.Address, a) }))
}

// glob matches a pattern in which * means any characters, a slash too: model
// numbers and NQNs are no file names.
func glob(pattern, text string) bool {
	hide := func(s string) string {
		b := []byte(s)
		for i, c := range b {
			if c == '/' {
				b[i] = 1
			}
		}
		return string(b)
	}
	ok, err := path.Match(hide(pattern), hide(text))
	return err == nil && ok
}

// Text is the match for people: `serial S1, model "MEM*"`, or "every drive".
func (m Match) Text() string {
	text := ""
	add := func(name, value string) {
		if value == "" {
			return
		}
		if text != "" {
			text += ", "
		}
		text += name + " " + value
	}
	add("serial", m.Serial)
	add("model", m.Model)
	if m.Vendor != 0 {
		add("vendor", fmt.Sprintf("0x%04x", m.Vendor))
	}
	add("subsystem", m.Subsystem)
	add("address", m.Address)
	if text == "" {
		return "every drive"
	}
	return text
}

// NamespaceSpec is one desired namespace, or several alike.
type NamespaceSpec struct {
	Size Size
	// Count is how many of them there are, at least 1. A size that depends on the
	// drive (max, op, a percentage of over-provisioning) is what all together have.
	Count int
	// Format nil keeps what is there.
	Format *FormatSelector
	// Protection nil keeps what is there: end-to-end protection as DPS has it,
	// bits 2:0 the type (0 to 3), bit 3 first bytes of the metadata.
	Protection *uint8
	// Shared nil keeps what is there; a new namespace is then not shared.
	Shared *bool
	// Controllers are the CNTLIDs it is attached to, these and no others; nil
	// keeps those there are and adds the controller that is open where there is
	// none. An empty list that is not nil wants it detached.
	Controllers []uint16

	path string // "namespaces[0]"
}

// Path is the field that holds the namespace, "namespaces[0]".
func (n NamespaceSpec) Path() string { return n.path }

// FirmwareSpec is the firmware a drive should run.
type FirmwareSpec struct {
	firmware.Want
	// AllowLive are the models (globs) whose drives may activate while they run.
	AllowLive []string
}

// PCIeSpec is what the path to the drive should be; zero fields are not judged.
type PCIeSpec struct {
	// PayloadBytes is the Max_Payload_Size in force on the path, 128 to 4096.
	PayloadBytes uint16
	// ReadRequestBytes is the drive's Max_Read_Request_Size, 128 to 4096.
	ReadRequestBytes uint16
	// Generation is the speed of the drive's link: 1 (2.5 GT/s) to 6 (64 GT/s).
	Generation uint8
	// Width is the number of lanes, 1 to 32.
	Width uint8
}

// HealthSpec are limits for what wears or breaks; nil fields are not judged.
type HealthSpec struct {
	// UsedPercentMax is the largest percentage used, 0 to 255.
	UsedPercentMax *uint8
	// SparePercentMin is the smallest available spare, 0 to 100.
	SparePercentMin *uint8
	// MediaErrorsMax and UnsafeShutdownsMax are the largest counts.
	MediaErrorsMax     *uint64
	UnsafeShutdownsMax *uint64
	// TemperatureCelsiusMax is the highest composite temperature.
	TemperatureCelsiusMax *int
	// CriticalWarnings false wants the critical warning byte to be zero.
	CriticalWarnings *bool
}

// SpecError says where a spec is wrong.
type SpecError struct {
	File string
	// Line and Column count from 1; 0 where the place is not known.
	Line, Column int
	// Field is what is wrong: "namespaces[0].size"; empty for the file itself.
	Field  string
	Reason string
}

func (e *SpecError) Error() string {
	text := e.Reason
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Line == 0 {
		return e.File + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, text)
}

// ExitCode is the process's exit code for this error.
func (e *SpecError) ExitCode() int { return 80 }
