package pcie

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Sizes of what can be read of a configuration space, in bytes.
const (
	headerBytes = 64   // without privilege
	legacyBytes = 256  // PCI; also PCIe without memory-mapped configuration
	configBytes = 4096 // PCI Express
)

// Loop guards of the two capability lists: more entries do not fit.
const (
	maxCapabilities         = 48
	maxExtendedCapabilities = (configBytes - legacyBytes) / 8
)

// Offsets in the header common to all functions (PCI Local Bus 3.0, 6.1).
const (
	offVendor        = 0x00
	offDevice        = 0x02
	offCommand       = 0x04
	offStatus        = 0x06
	offRevision      = 0x08
	offClass         = 0x09 // three bytes: interface, subclass, base class
	offHeaderType    = 0x0e
	offPrimaryBus    = 0x18 // header type 1
	offSecondaryBus  = 0x19
	offSubordinate   = 0x1a
	offSubVendor     = 0x2c // header type 0
	offCapPointer    = 0x34
	offCardBusCapPtr = 0x14 // header type 2

	statusCapList = 1 << 4
	capIDExpress  = 0x10
	capIDPCIX     = 0x07
)

// view is configuration space as far as it was read. Reading outside gives
// zero; has tells the difference.
type view []byte

func (v view) has(off, n int) bool { return off >= 0 && n >= 0 && off+n <= len(v) }

func (v view) u8(off int) uint8 {
	if !v.has(off, 1) {
		return 0
	}
	return v[off]
}

func (v view) u16(off int) uint16 {
	if !v.has(off, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(v[off:])
}

func (v view) u32(off int) uint32 {
	if !v.has(off, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(v[off:])
}

// Capability is one entry of a function's capability lists.
type Capability struct {
	ID     uint16 `json:"id"`
	Offset uint16 `json:"offset"`
	// Extended says that the entry is in the list at 100h; Version belongs to
	// those alone.
	Extended bool  `json:"extended"`
	Version  uint8 `json:"version,omitempty"`
}

// Bridge is what a header of type 1 says about the buses below it. Secondary 0
// means that the bridge was never configured.
type Bridge struct {
	Primary     uint8 `json:"primary_bus"`
	Secondary   uint8 `json:"secondary_bus"`
	Subordinate uint8 `json:"subordinate_bus"`
}

// Function is one PCI function, decoded.
type Function struct {
	Address Address `json:"address"`
	// Name is what the dump wrote behind the address; "" from sysfs.
	Name        string `json:"name,omitempty"`
	VendorID    uint16 `json:"vendor_id"`
	DeviceID    uint16 `json:"device_id"`
	SubVendorID uint16 `json:"subsystem_vendor_id,omitempty"`
	SubDeviceID uint16 `json:"subsystem_device_id,omitempty"`
	// Class is base class, subclass and interface: 010802h is an NVMe
	// controller, 0604xxh a bridge to another PCI bus.
	Class    uint32 `json:"class"`
	Revision uint8  `json:"revision"`
	// HeaderType is 0 for a device, 1 for a bridge, 2 for CardBus.
	HeaderType    uint8   `json:"header_type"`
	MultiFunction bool    `json:"multi_function"`
	Bridge        *Bridge `json:"bridge,omitempty"`
	// ConfigBytes is how much of configuration space was read.
	ConfigBytes int `json:"config_bytes"`
	// HeaderOnly: there is a capability list but it was not read. This is
	// missing privilege, not a missing capability.
	HeaderOnly bool `json:"header_only"`
	// ExtendedRead: the space from 100h on was read. Without it AER, ACS, L1SS
	// and the like are unknown rather than absent.
	ExtendedRead bool         `json:"extended_read"`
	Capabilities []Capability `json:"capabilities"`
	Express      *Express     `json:"express,omitempty"`
	AER          *AER         `json:"aer,omitempty"`
	ACS          *ACS         `json:"acs,omitempty"`
	DPC          *DPC         `json:"dpc,omitempty"`
	LTR          *LTR         `json:"ltr,omitempty"`
	L1SS         *L1SS        `json:"l1_substates,omitempty"`
	SRIOV        *SRIOV       `json:"sr_iov,omitempty"`
	Secondary    *Secondary   `json:"secondary_express,omitempty"`
	Device3      *Device3     `json:"device3,omitempty"`
	// Problems are contradictions in the function's own lists, for people.
	Problems []string `json:"problems,omitempty"`
	// Sysfs is what the kernel says beside configuration space; nil from a dump.
	Sysfs *Attributes `json:"sysfs,omitempty"`
}

// BaseClass is the upper 16 bits of the class: 0108h is an NVM controller.
func (f *Function) BaseClass() uint16 { return uint16(f.Class >> 8) }

// capability finds the first entry of an extended capability.
func (f *Function) capability(id uint16, extended bool) (Capability, bool) {
	for _, c := range f.Capabilities {
		if c.ID == id && c.Extended == extended {
			return c, true
		}
	}
	return Capability{}, false
}

func (f *Function) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

// Decode decodes the configuration space of the function at a: 64 to 4096
// bytes, whatever could be read. It never trusts a pointer in it. The error is
// [ErrGone] for all ones, and says so for less than a header.
func Decode(a Address, config []byte) (Function, error) {
	v := view(config)
	if len(v) > configBytes {
		v = v[:configBytes]
	}
	if len(v) < headerBytes {
		return Function{}, fmt.Errorf("%s: %d bytes of configuration space; a header has %d", a, len(v), headerBytes)
	}
	if v.u16(offVendor) == 0xffff {
		return Function{}, fmt.Errorf("%s: %w", a, ErrGone)
	}
	f := Function{
		Address: a, VendorID: v.u16(offVendor), DeviceID: v.u16(offDevice),
		Class: v.u32(offRevision) >> 8, Revision: v.u8(offRevision),
		HeaderType: v.u8(offHeaderType) & 0x7f, MultiFunction: v.u8(offHeaderType)&0x80 != 0,
		ConfigBytes: len(v), ExtendedRead: len(v) > legacyBytes, Capabilities: []Capability{},
	}
	switch f.HeaderType {
	case 0:
		f.SubVendorID, f.SubDeviceID = v.u16(offSubVendor), v.u16(offSubVendor+2)
	case 1:
		f.Bridge = &Bridge{Primary: v.u8(offPrimaryBus), Secondary: v.u8(offSecondaryBus), Subordinate: v.u8(offSubordinate)}
	}
	f.readList(v)
	for _, c := range f.Capabilities {
		if c.ID == capIDExpress && f.Express == nil {
			f.decodeExpress(v, int(c.Offset))
		}
	}
	if _, pcix := f.capability(capIDPCIX, false); f.Express != nil || pcix {
		f.readExtendedList(v)
	}
	f.decodeExtended(v)
	return f, nil
}

// readList walks the list of capabilities below 100h.
func (f *Function) readList(v view) {
	if v.u16(offStatus)&statusCapList == 0 {
		return
	}
	start := offCapPointer
	if f.HeaderType == 2 {
		start = offCardBusCapPtr
	}
	seen := map[int]bool{}
	// The two low bits of a pointer are reserved and must be ignored.
	for at := int(v.u8(start)) &^ 3; at != 0; at = int(v.u8(at+1)) &^ 3 {
		switch {
		case at < headerBytes:
			f.problem("a capability pointer leads into the header (%02xh)", at)
			return
		case !v.has(at, 4):
			f.HeaderOnly = len(f.Capabilities) == 0
			if !f.HeaderOnly {
				f.problem("the capability list goes on at %02xh, beyond the %d bytes read", at, len(v))
			}
			return
		case seen[at] || len(seen) >= maxCapabilities:
			f.problem("the capability list is a loop at %02xh", at)
			return
		case v.u8(at) == 0xff:
			f.problem("the capability list is broken at %02xh", at)
			return
		}
		seen[at] = true
		f.Capabilities = append(f.Capabilities, Capability{ID: uint16(v.u8(at)), Offset: uint16(at)})
	}
}

// readExtendedList walks the list of capabilities from 100h on.
func (f *Function) readExtendedList(v view) {
	seen := map[int]bool{}
	for at := legacyBytes; v.has(at, 4); {
		header := v.u32(at)
		if header == 0 || header == 0xffffffff {
			return
		}
		if seen[at] || len(seen) >= maxExtendedCapabilities {
			f.problem("the extended capability list is a loop at %03xh", at)
			return
		}
		seen[at] = true
		f.Capabilities = append(f.Capabilities, Capability{
			ID: uint16(header), Offset: uint16(at), Extended: true, Version: uint8(header>>16) & 0xf,
		})
		next := int(header>>20) &^ 3
		if next == 0 {
			return
		}
		if next < legacyBytes {
			f.problem("an extended capability pointer leads below 100h (%03xh)", next)
			return
		}
		at = next
	}
}

// Bounds of a dump: far above any machine, far below what would hurt.
const (
	maxDumpFunctions = 8192
	maxDumpLine      = 64 << 10
)

// RawFunction is one function of a dump before decoding.
type RawFunction struct {
	Address Address
	Name    string
	// Config holds the bytes dumped. Bytes between those that the dump left out
	// are ff.
	Config []byte
}

// ParseDump reads what `lspci -x`, -xxx or -xxxx print, also mixed with the
// text of -v as bug reports have it: a line with an address and a description,
// then lines of up to sixteen bytes. Everything else is passed over. An
// address that comes twice starts the function anew, as in `lspci -F`.
func ParseDump(r io.Reader) ([]RawFunction, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxDumpLine)
	var list []RawFunction
	byAddress := map[Address]int{}
	current := -1
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" {
			current = -1
			continue
		}
		if a, name, ok := dumpHeader(line); ok {
			i, known := byAddress[a]
			if !known {
				if len(list) == maxDumpFunctions {
					return nil, fmt.Errorf("line %d: more than %d functions", n, maxDumpFunctions)
				}
				i = len(list)
				byAddress[a] = i
				list = append(list, RawFunction{})
			}
			list[i], current = RawFunction{Address: a, Name: name}, i
			continue
		}
		if current < 0 {
			continue
		}
		if err := list[current].add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read dump: %w", err)
	}
	list = slices.DeleteFunc(list, func(f RawFunction) bool { return len(f.Config) == 0 })
	if len(list) == 0 {
		return nil, errors.New("no bytes of configuration space in it; lspci -xxxx as root prints them")
	}
	return list, nil
}

// dumpHeader recognises "01:00.0 Class ..." with or without a domain, and the
// path that `lspci -PP` puts in its place: "00:1c.0/01:00.0 Class ...".
func dumpHeader(line string) (Address, string, bool) {
	text, name, _ := strings.Cut(line, " ")
	first, last := text, text
	if i := strings.LastIndexByte(text, '/'); i >= 0 {
		first, last = text[:strings.IndexByte(text, '/')], text[i+1:]
	}
	a, err := ParseAddress(last)
	if err != nil {
		return Address{}, "", false
	}
	if top, err := ParseAddress(first); err == nil { // the domain is written once
		a.Domain = top.Domain
	}
	return a, strings.TrimSpace(name), true
}

// add takes a line of bytes; another kind of line is passed over.
func (f *RawFunction) add(line string) error {
	text, rest, ok := strings.Cut(line, ": ")
	if !ok || len(text) < 2 || len(text) > 8 {
		return nil
	}
	at, err := strconv.ParseUint(text, 16, 32)
	if err != nil || strings.ContainsAny(text, "+_") {
		return nil
	}
	for i, field := range strings.Fields(rest) {
		b, err := strconv.ParseUint(field, 16, 8)
		if err != nil || len(field) != 2 {
			if i == 0 {
				return nil // words, not bytes
			}
			return fmt.Errorf("%s: %.20q is no byte", f.Address, field)
		}
		if at >= configBytes {
			return fmt.Errorf("%s: more than %d bytes of configuration space", f.Address, configBytes)
		}
		for uint64(len(f.Config)) <= at {
			f.Config = append(f.Config, 0xff)
		}
		f.Config[at] = byte(b)
		at++
	}
	return nil
}

// ReadDump parses a dump and decodes every function in it. What cannot be
// decoded (a device that was gone, a broken header) is in problems and does
// not hide the rest.
func ReadDump(r io.Reader) (t *Topology, problems []error, err error) {
	raw, err := ParseDump(r)
	if err != nil {
		return nil, nil, err
	}
	var list []Function
	for _, rf := range raw {
		f, err := Decode(rf.Address, rf.Config)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		f.Name = rf.Name
		list = append(list, f)
	}
	if len(list) == 0 {
		return nil, problems, fmt.Errorf("no function could be decoded: %w", errors.Join(problems...))
	}
	return NewTopology(list), problems, nil
}
