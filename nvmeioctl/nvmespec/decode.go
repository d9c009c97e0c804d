// Package nvmespec is the pure codec of NVMe: structures, units, opcodes,
// statuses, and what each command changes or destroys. It does no I/O.
//
// Device bytes are read once, by explicit little-endian offset, into domain
// values: units converted, zero-based fields made one-based, "not reported" made
// explicit ([Opt]), 128-bit counters exact ([Uint128]). Every structure has one
// Decode and one Append side by side, so that the host and a simulated drive
// speak through the same table; the tests hold that table against outside
// witnesses. Decoding is tolerant (reserved bits belong to later revisions of
// the specification); encoding writes every reserved byte as zero.
//
// Offsets are named off<Structure><MNEMONIC> after the NVMe Base Specification
// 2.x, the NVM Command Set Specification 1.x and the OCP Datacenter NVMe SSD
// specification; the mnemonic is how a reviewer finds the row.
package nvmespec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of decoding, to test with errors.Is.
var (
	// ErrShort: fewer bytes than the structure has.
	ErrShort = errors.New("too few bytes")
	// ErrInvalidData: the bytes are not what the structure may hold.
	ErrInvalidData = errors.New("invalid data")
)

// page is a bounded view of device bytes. Reads beyond its end give zero, so no
// offset from a device can make a decoder panic; the length is checked once, by
// view.
type page []byte

// view checks that b holds a structure of size bytes.
func view(b []byte, size int, what string) (page, error) {
	if len(b) < size {
		return nil, fmt.Errorf("%s: %w: have %d, need %d", what, ErrShort, len(b), size)
	}
	return page(b[:size:size]), nil
}

// grow appends size zero bytes to b and gives a view of them to fill.
func grow(b []byte, size int) ([]byte, page) {
	n := len(b)
	b = append(b, make([]byte, size)...)
	return b, page(b[n : n+size : n+size])
}

// has says that n bytes lie at off.
func (p page) has(off, n int) bool { return off >= 0 && n >= 0 && off <= len(p)-n }

// bytes is the n bytes at off, or nothing when they are not there.
func (p page) bytes(off, n int) []byte {
	if !p.has(off, n) {
		return nil
	}
	return p[off : off+n : off+n]
}

// uint reads n bytes (at most 8) as a little-endian number.
func (p page) uint(off, n int) uint64 {
	var v uint64
	for i, c := range p.bytes(off, n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func (p page) u8(off int) uint8   { return uint8(p.uint(off, 1)) }
func (p page) u16(off int) uint16 { return uint16(p.uint(off, 2)) }
func (p page) u32(off int) uint32 { return uint32(p.uint(off, 4)) }
func (p page) u64(off int) uint64 { return p.uint(off, 8) }
func (p page) u128(off int) Uint128 {
	return Uint128{Lo: p.u64(off), Hi: p.u64(off + 8)}
}

// put writes the low n bytes (at most 8) of v.
func (p page) put(off, n int, v uint64) {
	for i := range p.bytes(off, n) {
		p[off+i] = byte(v >> (8 * i))
	}
}

func (p page) put8(off int, v uint8)   { p.put(off, 1, uint64(v)) }
func (p page) put16(off int, v uint16) { p.put(off, 2, uint64(v)) }
func (p page) put32(off int, v uint32) { p.put(off, 4, uint64(v)) }
func (p page) put64(off int, v uint64) { p.put(off, 8, v) }
func (p page) put128(off int, v Uint128) {
	p.put64(off, v.Lo)
	p.put64(off+8, v.Hi)
}

// text reads a fixed-width ASCII field. Drives have been seen with newlines and
// control characters in it, so what is not 20h..7Eh becomes '?'; padding by
// spaces or NULs is cut on both sides.
func (p page) text(off, n int) string { return cleanText(p.bytes(off, n)) }

// ctext reads a NUL-terminated field of at most n bytes in the same way.
func (p page) ctext(off, n int) string {
	b := p.bytes(off, n)
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return cleanText(b)
}

func cleanText(b []byte) string {
	s := strings.Trim(string(b), " \x00")
	out := []byte(s)
	for i, c := range out {
		if c < 0x20 || c > 0x7E {
			out[i] = '?'
		}
	}
	return string(out)
}

// putText writes s into a field of n bytes, cut or padded with pad.
func (p page) putText(off, n int, s string, pad byte) {
	f := p.bytes(off, n)
	k := copy(f, s)
	for i := k; i < len(f); i++ {
		f[i] = pad
	}
}

// allZero says that no byte is set.
func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// ErrUnknownKind: DecodeKind does not know the kind.
var ErrUnknownKind = errors.New("unknown kind")

// kind is one kind of raw dump.
type kind struct {
	name   string
	decode func([]byte) (any, error)
}

// of turns a typed decoder into one for any value.
func of[T any](decode func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		v, err := decode(b)
		if err != nil {
			return nil, err
		}
		return v, nil
	}
}

// NamespaceList is a list of NSIDs for JSON.
type NamespaceList struct {
	NSIDs []uint32 `json:"nsids"`
}

// ControllerList is a list of controller identifiers for JSON.
type ControllerList struct {
	ControllerIDs []uint16 `json:"controller_ids"`
}

// ErrorLog is an error log for JSON.
type ErrorLog struct {
	Entries []ErrorEntry `json:"entries"`
}

func kinds() []kind {
	list := func(b []byte) (any, error) {
		ids, err := DecodeNamespaceList(b)
		if err != nil {
			return nil, err
		}
		return NamespaceList{NSIDs: append([]uint32{}, ids...)}, nil
	}
	return []kind{
		{"id-ctrl", of(DecodeController)},
		{"id-ctrl-nvm", of(DecodeNVMController)},
		{"id-ns", of(DecodeNamespace)},
		{"id-ns-nvm", of(DecodeNVMNamespace)},
		{"id-ns-independent", of(DecodeIndependentNamespace)},
		{"ns-list", list},
		{"ctrl-list", func(b []byte) (any, error) {
			ids, err := DecodeControllerList(b)
			if err != nil {
				return nil, err
			}
			return ControllerList{ControllerIDs: append([]uint16{}, ids...)}, nil
		}},
		{"ns-descs", of(DecodeNamespaceIDs)},
		{"granularity", of(DecodeGranularityList)},
		{"create-ns", of(DecodeNamespaceCreate)},
		{"smart", of(DecodeSMART)},
		{"error", func(b []byte) (any, error) {
			log, err := DecodeErrorLog(b)
			if err != nil {
				return nil, err
			}
			return ErrorLog{Entries: append([]ErrorEntry{}, log...)}, nil
		}},
		{"fw", of(DecodeFirmwareSlots)},
		{"effects", of(DecodeEffects)},
		{"changed-ns", list},
		{"endurance-group", of(DecodeEnduranceGroup)},
		{"ocp-c0", of(DecodeOCPHealth)},
		{"apst", func(b []byte) (any, error) { return of(func(b []byte) (APST, error) { return DecodeAPST(1, b) })(b) }},
		{"timestamp", of(DecodeTimestamp)},
		{"host-behavior", of(DecodeHostBehavior)},
		{"self-test", of(DecodeSelfTestLog)},
		{"sanitize", of(DecodeSanitizeLog)},
		{"telemetry-host", telemetryOf(LogIDTelemetryHost)},
		{"telemetry-ctrl", telemetryOf(LogIDTelemetryController)},
		{"events", of(DecodePersistentLog)},
		{"supported-logs", of(DecodeSupportedLogs)},
		{"feature-effects", of(DecodeFeatureEffects)},
		{"uuid-list", of(DecodeUUIDList)},
		{"nvm-set-list", of(DecodeNVMSetList)},
		{"domain-list", of(DecodeDomainList)},
		{"endurance-group-list", of(DecodeEnduranceGroupList)},
		{"primary-ctrl-caps", of(DecodePrimaryController)},
		{"secondary-ctrl-list", of(DecodeSecondaryControllerList)},
		{"id-iocs", of(DecodeCommandSetCombinations)},
		{"lba-status", of(DecodeLBAStatusList)},
		{"ana", of(DecodeANALog)},
		{"lba-status-log", of(DecodeLBAStatusLog)},
		{"endurance-group-events", of(DecodeEnduranceGroupEvents)},
		{"fdp-configs", of(DecodeFDPConfigurations)},
		{"fdp-usage", of(DecodeFDPHandleUsage)},
		{"fdp-stats", of(DecodeFDPStatistics)},
		{"fdp-events", of(DecodeFDPEvents)},
	}
}

// telemetryOf reads the header of one of the two telemetry logs.
func telemetryOf(id LogID) func([]byte) (any, error) {
	return of(func(b []byte) (TelemetryHeader, error) {
		h, err := DecodeTelemetryHeader(b)
		if err == nil && h.Log != id {
			return TelemetryHeader{}, fmt.Errorf("telemetry log: %w: it is %s, not %s", ErrInvalidData, h.Log, id)
		}
		return h, err
	})
}

// Kinds are the kinds of raw dumps that DecodeKind reads, as nvme-cli saves them
// with --raw-binary.
func Kinds() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// DecodeKind reads a raw dump of a kind of Kinds into a value that marshals to
// JSON with units in its names.
func DecodeKind(name string, b []byte) (any, error) {
	for _, k := range kinds() {
		if k.name == name {
			return k.decode(b)
		}
	}
	return nil, fmt.Errorf("%w %q: have %s", ErrUnknownKind, name, strings.Join(Kinds(), ", "))
}
