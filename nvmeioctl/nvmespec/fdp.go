package nvmespec

import (
	"fmt"
)

// Offsets of the flexible data placement logs (20h..23h). NVMe Base Specification
// 2.1, "FDP Configurations" and the three that follow it.
const (
	offFDPCN        = 0
	offFDPCVersion  = 2
	offFDPCSize     = 4
	fdpConfigHeader = 16
	offFDPDSize     = 0
	offFDPDFDPA     = 2
	offFDPDVSS      = 3
	offFDPDNRG      = 4
	offFDPDNRUH     = 8
	offFDPDMAXPIDS  = 10
	offFDPDNNSS     = 12
	offFDPDRUNS     = 16
	offFDPDERUTL    = 24
	fdpConfig       = 64
	fdpHandle       = 4

	offFDPUNRUH    = 0
	fdpUsageHeader = 8
	fdpUsage       = 8

	offFDPSHBMW = 0
	offFDPSMBMW = 16
	offFDPSMBE  = 32
	// FDPStatisticsSize is the length of log 22h.
	FDPStatisticsSize = 64

	offFDPENum     = 0
	fdpEventHeader = 64
	offFDPEType    = 0
	offFDPEFlags   = 1
	offFDPEPID     = 2
	offFDPETime    = 4
	offFDPENSID    = 12
	offFDPEData    = 16
	offFDPERGID    = 32
	offFDPERUHID   = 34
	fdpEvent       = 64
	offFDPRFlags   = 0
	offFDPRNLBAM   = 2
	offFDPRLBA     = 4
	// FDPEventsMax is how many events log 23h holds.
	FDPEventsMax = 63
	// FDPEventsSize is the length of log 23h.
	FDPEventsSize = fdpEventHeader + FDPEventsMax*fdpEvent
)

// FDPHandleType is how a reclaim unit handle keeps data apart (RUHT).
type FDPHandleType uint8

// The types; 0 is not a handle.
const (
	FDPInitiallyIsolated    FDPHandleType = 1
	FDPPersistentlyIsolated FDPHandleType = 2
)

// String is the type in words; a number where it is reserved.
func (t FDPHandleType) String() string {
	switch t {
	case FDPInitiallyIsolated:
		return "initially isolated"
	case FDPPersistentlyIsolated:
		return "persistently isolated"
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}

// MarshalText gives what String gives.
func (t FDPHandleType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// FDPConfiguration is one way in which an endurance group can place data.
type FDPConfiguration struct {
	// Valid is FDPCV: the configuration can be enabled.
	Valid bool `json:"valid"`
	// VolatileWriteCache is FDPVWC: data in it may be placed later.
	VolatileWriteCache bool `json:"volatile_write_cache"`
	// GroupIdentifierBits is RGIF: how many high bits of a placement identifier
	// name the reclaim group, 0..15.
	GroupIdentifierBits uint8  `json:"reclaim_group_identifier_bits"`
	ReclaimGroups       uint32 `json:"reclaim_groups"`
	// PlacementIDMax is MAXPIDS: the highest index of a placement handle of a
	// namespace.
	PlacementIDMax uint16 `json:"placement_id_max"`
	// Namespaces is how many namespaces can be.
	Namespaces uint32 `json:"namespaces"`
	// ReclaimUnitBytes is the nominal size of a reclaim unit.
	ReclaimUnitBytes uint64 `json:"reclaim_unit_bytes"`
	// ReclaimUnitSeconds is ERUTL: how long the drive lets a unit wait to be
	// filled; none where it sets no limit (0).
	ReclaimUnitSeconds Opt[uint32]     `json:"reclaim_unit_seconds"`
	Handles            []FDPHandleType `json:"reclaim_unit_handles"`
	// Vendor are the vendor's bytes at the end, at most 255.
	Vendor []byte `json:"vendor_specific,omitempty"`
}

// FDPConfigurations is log 20h, of an endurance group.
type FDPConfigurations struct {
	Version uint8 `json:"log_version"`
	// TotalBytes is the length of the log.
	TotalBytes uint32 `json:"total_bytes"`
	// Announced is how many configurations the drive says there are, 1..65536;
	// zero-based on the wire. It is more than Configurations where bytes are missing.
	Announced      uint32             `json:"announced"`
	Configurations []FDPConfiguration `json:"configurations"`
}

// DecodeFDPConfigurations reads the configurations that are whole in b. One that
// is shorter than what it says is in it is an error: nothing after it can be found.
func DecodeFDPConfigurations(b []byte) (FDPConfigurations, error) {
	p, err := view(b, max(fdpConfigHeader, len(b)), "FDP configurations log")
	if err != nil {
		return FDPConfigurations{}, err
	}
	l := FDPConfigurations{Version: p.u8(offFDPCVersion), TotalBytes: p.u32(offFDPCSize), Announced: uint32(p.u16(offFDPCN)) + 1, Configurations: []FDPConfiguration{}}
	off := fdpConfigHeader
	for i := range l.Announced {
		if !p.has(off, fdpConfig) {
			break
		}
		size := int(p.u16(off + offFDPDSize))
		if need := fdpConfig + fdpHandle*int(p.u16(off+offFDPDNRUH)) + int(p.u8(off+offFDPDVSS)); size < need {
			return FDPConfigurations{}, fmt.Errorf("FDP configurations log: %w: configuration %d of %d bytes has %d bytes in it", ErrInvalidData, i, size, need)
		}
		if !p.has(off, size) {
			break
		}
		l.Configurations = append(l.Configurations, decodeFDPConfiguration(page(p.bytes(off, size))))
		off += size
	}
	return l, nil
}

func decodeFDPConfiguration(p page) FDPConfiguration {
	fdpa := p.u8(offFDPDFDPA)
	c := FDPConfiguration{
		Valid: fdpa>>7 != 0, VolatileWriteCache: fdpa>>4&1 != 0, GroupIdentifierBits: fdpa & 15,
		ReclaimGroups: p.u32(offFDPDNRG), PlacementIDMax: p.u16(offFDPDMAXPIDS), Namespaces: p.u32(offFDPDNNSS),
		ReclaimUnitBytes: p.u64(offFDPDRUNS), Handles: make([]FDPHandleType, p.u16(offFDPDNRUH)),
	}
	if s := p.u32(offFDPDERUTL); s != 0 {
		c.ReclaimUnitSeconds = Some(s)
	}
	for i := range c.Handles {
		c.Handles[i] = FDPHandleType(p.u8(fdpConfig + fdpHandle*i))
	}
	if n := int(p.u8(offFDPDVSS)); n > 0 {
		c.Vendor = append([]byte{}, p.bytes(fdpConfig+fdpHandle*len(c.Handles), n)...)
	}
	return c
}

// FDPConfigurationsBytes is the length of log 20h as its first 8 bytes have it.
func FDPConfigurationsBytes(b []byte) uint64 {
	return uint64(max(page(b).u32(offFDPCSize), fdpConfigHeader))
}

// Append appends the log. A configuration is as long as what is in it, to a
// multiple of 8 bytes; TotalBytes stays what it is.
func (l FDPConfigurations) Append(b []byte) []byte {
	b, p := grow(b, fdpConfigHeader)
	p.put16(offFDPCN, uint16(l.Announced-1))
	p.put8(offFDPCVersion, l.Version)
	p.put32(offFDPCSize, l.TotalBytes)
	for _, c := range l.Configurations {
		vendor := c.Vendor[:min(len(c.Vendor), 255)]
		// The length has 16 bits, which this is near the end of with 16 thousand handles.
		size := min((fdpConfig+fdpHandle*len(c.Handles)+len(vendor)+7)&^7, 0xFFFF)
		b, p = grow(b, size)
		p.put16(offFDPDSize, uint16(size))
		p.put8(offFDPDFDPA, bit8(c.Valid, 7)|bit8(c.VolatileWriteCache, 4)|c.GroupIdentifierBits&15)
		p.put8(offFDPDVSS, uint8(len(vendor)))
		p.put32(offFDPDNRG, c.ReclaimGroups)
		p.put16(offFDPDNRUH, uint16(len(c.Handles)))
		p.put16(offFDPDMAXPIDS, c.PlacementIDMax)
		p.put32(offFDPDNNSS, c.Namespaces)
		p.put64(offFDPDRUNS, c.ReclaimUnitBytes)
		p.put32(offFDPDERUTL, c.ReclaimUnitSeconds.Or(0))
		for i, h := range c.Handles {
			p.put8(fdpConfig+fdpHandle*i, uint8(h))
		}
		copy(p.bytes(fdpConfig+fdpHandle*len(c.Handles), len(vendor)), vendor)
	}
	return b
}

// FDPUse is who uses a reclaim unit handle (RUHA).
type FDPUse uint8

// The uses.
const (
	FDPUnused         FDPUse = 0
	FDPHostUse        FDPUse = 1 // a host named it when it created a namespace
	FDPControllerUse  FDPUse = 2 // the controller chose it for a namespace without any
	fdpUseNamesBefore        = 3
)

// String is the use in words; a number where it is reserved.
func (u FDPUse) String() string {
	if u < fdpUseNamesBefore {
		return [...]string{"unused", "host", "controller"}[u]
	}
	return fmt.Sprintf("0x%02x", uint8(u))
}

// MarshalText gives what String gives.
func (u FDPUse) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// FDPHandleUsage is log 21h, of an endurance group, by reclaim unit handle.
type FDPHandleUsage struct {
	// Announced is how many handles the drive says there are; more than Handles
	// where bytes are missing.
	Announced uint16   `json:"announced"`
	Handles   []FDPUse `json:"reclaim_unit_handles"`
}

// DecodeFDPHandleUsage reads as many handles as both the log and b have.
func DecodeFDPHandleUsage(b []byte) (FDPHandleUsage, error) {
	p, err := view(b, max(fdpUsageHeader, len(b)), "FDP reclaim unit handle usage log")
	if err != nil {
		return FDPHandleUsage{}, err
	}
	l := FDPHandleUsage{Announced: p.u16(offFDPUNRUH), Handles: []FDPUse{}}
	for i := range min(int(l.Announced), (len(p)-fdpUsageHeader)/fdpUsage) {
		l.Handles = append(l.Handles, FDPUse(p.u8(fdpUsageHeader+fdpUsage*i)))
	}
	return l, nil
}

// FDPHandleUsageBytes is the length of log 21h as its first 2 bytes have it.
func FDPHandleUsageBytes(b []byte) uint64 {
	return fdpUsageHeader + fdpUsage*uint64(page(b).u16(offFDPUNRUH))
}

// Append appends the log: 8 bytes, and 8 a handle.
func (l FDPHandleUsage) Append(b []byte) []byte {
	b, p := grow(b, fdpUsageHeader+fdpUsage*len(l.Handles))
	p.put16(offFDPUNRUH, l.Announced)
	for i, u := range l.Handles {
		p.put8(fdpUsageHeader+fdpUsage*i, uint8(u))
	}
	return b
}

// FDPStatistics is log 22h, of an endurance group, in bytes since the counters
// were reset. Write amplification of placed data is MediaBytesWritten over
// HostBytesWritten.
type FDPStatistics struct {
	// HostBytesWritten is HBMW, with metadata.
	HostBytesWritten Uint128 `json:"host_bytes_written"`
	// MediaBytesWritten is MBMW, by hosts and by the drive itself.
	MediaBytesWritten Uint128 `json:"media_bytes_written"`
	MediaBytesErased  Uint128 `json:"media_bytes_erased"`
}

// DecodeFDPStatistics reads the 64 bytes of the log.
func DecodeFDPStatistics(b []byte) (FDPStatistics, error) {
	p, err := view(b, FDPStatisticsSize, "FDP statistics log")
	return FDPStatistics{HostBytesWritten: p.u128(offFDPSHBMW), MediaBytesWritten: p.u128(offFDPSMBMW), MediaBytesErased: p.u128(offFDPSMBE)}, err
}

// Append appends the 64 bytes of the log.
func (s FDPStatistics) Append(b []byte) []byte {
	b, p := grow(b, FDPStatisticsSize)
	p.put128(offFDPSHBMW, s.HostBytesWritten)
	p.put128(offFDPSMBMW, s.MediaBytesWritten)
	p.put128(offFDPSMBE, s.MediaBytesErased)
	return b
}

// FDPEventType is what an FDP event tells.
type FDPEventType uint8

// The types: those from 80h on are the controller's, the others are about what
// hosts do.
const (
	FDPUnitNotFilled      FDPEventType = 0x00
	FDPUnitTimeExceeded   FDPEventType = 0x01
	FDPResetChangedHandle FDPEventType = 0x02
	FDPInvalidPlacementID FDPEventType = 0x03
	FDPMediaReallocated   FDPEventType = 0x80
	FDPHandleChanged      FDPEventType = 0x81
)

// String is the type in words; a number where it is not known.
func (t FDPEventType) String() string {
	switch t {
	case FDPUnitNotFilled:
		return "reclaim unit not fully written"
	case FDPUnitTimeExceeded:
		return "reclaim unit time limit exceeded"
	case FDPResetChangedHandle:
		return "reset modified reclaim unit handles"
	case FDPInvalidPlacementID:
		return "invalid placement identifier"
	case FDPMediaReallocated:
		return "media reallocated"
	case FDPHandleChanged:
		return "implicitly modified reclaim unit handle"
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}

// MarshalText gives what String gives.
func (t FDPEventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// FDPReallocation is what an event of type FDPMediaReallocated adds.
type FDPReallocation struct {
	// Blocks is how many blocks were moved.
	Blocks uint16 `json:"blocks"`
	// LBA is one of them, where the drive names it.
	LBA Opt[uint64] `json:"lba"`
}

// FDPEvent is one event.
type FDPEvent struct {
	Type FDPEventType `json:"type"`
	Time Timestamp    `json:"time"`
	// What does not belong to an event is none, as its flags have it.
	PlacementID       Opt[uint16]          `json:"placement_id"`
	NSID              Opt[uint32]          `json:"nsid"`
	ReclaimGroup      Opt[uint16]          `json:"reclaim_group"`
	ReclaimUnitHandle Opt[uint8]           `json:"reclaim_unit_handle"`
	Reallocation      Opt[FDPReallocation] `json:"reallocation"`
}

// FDPEvents is log 23h, of an endurance group: those about hosts or those of the
// controller, as the Log Specific Field asks.
type FDPEvents struct {
	// Announced is how many events the drive says there are; at most FDPEventsMax
	// are in a log, and more than Events where bytes are missing.
	Announced uint32     `json:"announced"`
	Events    []FDPEvent `json:"events"`
}

// FDPHostEvents in the Log Specific Field asks for events about hosts.
const FDPHostEvents uint8 = 1

// DecodeFDPEvents reads the events that are whole in b.
func DecodeFDPEvents(b []byte) (FDPEvents, error) {
	p, err := view(b, max(fdpEventHeader, len(b)), "FDP events log")
	if err != nil {
		return FDPEvents{}, err
	}
	l := FDPEvents{Announced: p.u32(offFDPENum), Events: []FDPEvent{}}
	for i := range min(int64(l.Announced), int64(len(p)-fdpEventHeader)/fdpEvent, FDPEventsMax) {
		l.Events = append(l.Events, decodeFDPEvent(page(p.bytes(fdpEventHeader+fdpEvent*int(i), fdpEvent))))
	}
	return l, nil
}

func decodeFDPEvent(p page) FDPEvent {
	flags := p.u8(offFDPEFlags)
	e := FDPEvent{Type: FDPEventType(p.u8(offFDPEType)), Time: decodeTimestampAt(p, offFDPETime)}
	if flags&1 != 0 {
		e.PlacementID = Some(p.u16(offFDPEPID))
	}
	if flags>>1&1 != 0 {
		e.NSID = Some(p.u32(offFDPENSID))
	}
	if flags>>2&1 != 0 {
		e.ReclaimGroup, e.ReclaimUnitHandle = Some(p.u16(offFDPERGID)), Some(p.u8(offFDPERUHID))
	}
	if e.Type == FDPMediaReallocated {
		d := page(p.bytes(offFDPEData, 16))
		r := FDPReallocation{Blocks: d.u16(offFDPRNLBAM)}
		if d.u8(offFDPRFlags)&1 != 0 {
			r.LBA = Some(d.u64(offFDPRLBA))
		}
		e.Reallocation = Some(r)
	}
	return e
}

// Append appends the log: 64 bytes, and 64 an event.
func (l FDPEvents) Append(b []byte) []byte {
	b, p := grow(b, fdpEventHeader+fdpEvent*len(l.Events))
	p.put32(offFDPENum, l.Announced)
	for i, e := range l.Events {
		q := page(p.bytes(fdpEventHeader+fdpEvent*i, fdpEvent))
		q.put8(offFDPEType, uint8(e.Type))
		q.put8(offFDPEFlags, bit8(e.PlacementID.OK, 0)|bit8(e.NSID.OK, 1)|bit8(e.ReclaimGroup.OK, 2))
		q.put16(offFDPEPID, e.PlacementID.Or(0))
		q.putTimestamp(offFDPETime, e.Time)
		q.put32(offFDPENSID, e.NSID.Or(0))
		q.put16(offFDPERGID, e.ReclaimGroup.Or(0))
		q.put8(offFDPERUHID, e.ReclaimUnitHandle.Or(0))
		if r, ok := e.Reallocation.Get(); ok {
			q.put8(offFDPEData+offFDPRFlags, bit8(r.LBA.OK, 0))
			q.put16(offFDPEData+offFDPRNLBAM, r.Blocks)
			q.put64(offFDPEData+offFDPRLBA, r.LBA.Or(0))
		}
	}
	return b
}
