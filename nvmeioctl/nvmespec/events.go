package nvmespec

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
)

// PersistentHeaderSize is the length of the header of the persistent event log
// (0Dh). Drives of NVMe 1.4 have a shorter header length field but as many bytes.
const PersistentHeaderSize = 512

// Offsets of the header of the persistent event log.
const (
	offPELLID    = 0
	offPELTNEV   = 4
	offPELTLL    = 8
	offPELRV     = 16
	offPELLHL    = 18
	offPELTS     = 20
	offPELPOH    = 28
	offPELPCC    = 44
	offPELVID    = 52
	offPELSSVID  = 54
	offPELSN     = 56
	offPELMN     = 76
	offPELSUBNQN = 116
	offPELGN     = 372
	offPELRCI    = 374
	offPELSEB    = 480
	// pelHeaderRest is what LHL leaves out: it counts the bytes after itself.
	pelHeaderRest = 20
)

// Offsets of the header of one event. EHL counts the bytes after itself.
const (
	offEvETYPE  = 0
	offEvREV    = 1
	offEvEHL    = 2
	offEvEHAI   = 3
	offEvCNTLID = 4
	offEvETS    = 6
	offEvPELPID = 14
	offEvVSIL   = 20
	offEvEL     = 22
	eventHead   = 24
	eventEHLMin = eventHead - 3
)

// PersistentHeader is the header of the persistent event log (0Dh).
type PersistentHeader struct {
	// Events is TNEV, how many events the log has.
	Events uint32 `json:"events"`
	// TotalBytes is TLL, the length of the whole log, this header included.
	TotalBytes uint64 `json:"total_bytes"`
	// Revision is RV.
	Revision uint8 `json:"revision"`
	// HeaderBytes is the length of this header: LHL + 20.
	HeaderBytes uint32 `json:"header_bytes"`
	// Time is when the log was made.
	Time              Timestamp `json:"timestamp"`
	PowerOnHours      Uint128   `json:"power_on_hours"`
	PowerCycles       uint64    `json:"power_cycles"`
	VendorID          uint16    `json:"vendor_id"`
	SubsystemVendorID uint16    `json:"subsystem_vendor_id"`
	SerialNumber      string    `json:"serial_number"`
	ModelNumber       string    `json:"model_number"`
	SubsystemNQN      string    `json:"subsystem_nqn"`
	// Generation is GN, counted up whenever the log changes between contexts.
	Generation uint16 `json:"generation"`
	// ReportingContext is RCI as it stands on the wire; bit 18 says that a
	// context exists already.
	ReportingContext uint32 `json:"reporting_context_raw"`
	// SupportedEvents is SEB: bit n says that events of type n are logged.
	SupportedEvents [32]byte `json:"-"`
}

// Supports says that the drive logs events of a type.
func (h PersistentHeader) Supports(t EventType) bool { return h.SupportedEvents[t/8]>>(t%8)&1 != 0 }

// WithSupported marks a type as logged.
func (h PersistentHeader) WithSupported(types ...EventType) PersistentHeader {
	for _, t := range types {
		h.SupportedEvents[t/8] |= 1 << (t % 8)
	}
	return h
}

// Supported lists the types that are logged.
func (h PersistentHeader) Supported() []EventType {
	types := []EventType{}
	for t := range 256 {
		if h.Supports(EventType(t)) {
			types = append(types, EventType(t))
		}
	}
	return types
}

type persistentPlain PersistentHeader

// MarshalJSON adds the names of the supported events.
func (h PersistentHeader) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		persistentPlain
		Supported []EventType `json:"supported_events"`
	}{persistentPlain(h), h.Supported()})
}

func decodeTimestampAt(p page, off int) Timestamp {
	t, _ := DecodeTimestamp(p.bytes(off, TimestampSize))
	return t
}

func (p page) putTimestamp(off int, t Timestamp) {
	copy(p.bytes(off, TimestampSize), t.Append(nil))
}

// DecodePersistentHeader reads the header. A first byte other than 0Dh, and a
// total shorter than the header, are errors.
func DecodePersistentHeader(b []byte) (PersistentHeader, error) {
	p, err := view(b, PersistentHeaderSize, "persistent event log")
	if err != nil {
		return PersistentHeader{}, err
	}
	h := PersistentHeader{
		Events: p.u32(offPELTNEV), TotalBytes: p.u64(offPELTLL), Revision: p.u8(offPELRV),
		HeaderBytes: uint32(p.u16(offPELLHL)) + pelHeaderRest, Time: decodeTimestampAt(p, offPELTS),
		PowerOnHours: p.u128(offPELPOH), PowerCycles: p.u64(offPELPCC),
		VendorID: p.u16(offPELVID), SubsystemVendorID: p.u16(offPELSSVID),
		SerialNumber: p.text(offPELSN, 20), ModelNumber: p.text(offPELMN, 40), SubsystemNQN: p.ctext(offPELSUBNQN, 256),
		Generation: p.u16(offPELGN), ReportingContext: p.u32(offPELRCI),
	}
	copy(h.SupportedEvents[:], p.bytes(offPELSEB, 32))
	switch {
	case LogID(p.u8(offPELLID)) != LogIDPersistentEvents:
		return PersistentHeader{}, fmt.Errorf("persistent event log: %w: its first byte is 0x%02x", ErrInvalidData, p.u8(offPELLID))
	case h.TotalBytes < PersistentHeaderSize:
		return PersistentHeader{}, fmt.Errorf("persistent event log: %w: a total of %d bytes is less than its header", ErrInvalidData, h.TotalBytes)
	}
	return h, nil
}

// Append appends the 512 bytes of the header.
func (h PersistentHeader) Append(b []byte) []byte {
	b, p := grow(b, PersistentHeaderSize)
	p.put8(offPELLID, uint8(LogIDPersistentEvents))
	p.put32(offPELTNEV, h.Events)
	p.put64(offPELTLL, h.TotalBytes)
	p.put8(offPELRV, h.Revision)
	p.put16(offPELLHL, uint16(min(max(h.HeaderBytes, pelHeaderRest)-pelHeaderRest, 0xFFFF)))
	p.putTimestamp(offPELTS, h.Time)
	p.put128(offPELPOH, h.PowerOnHours)
	p.put64(offPELPCC, h.PowerCycles)
	p.put16(offPELVID, h.VendorID)
	p.put16(offPELSSVID, h.SubsystemVendorID)
	p.putText(offPELSN, 20, h.SerialNumber, ' ')
	p.putText(offPELMN, 40, h.ModelNumber, ' ')
	p.putText(offPELSUBNQN, 256, h.SubsystemNQN, 0)
	p.put16(offPELGN, h.Generation)
	p.put32(offPELRCI, h.ReportingContext)
	copy(p.bytes(offPELSEB, 32), h.SupportedEvents[:])
	return b
}

// EventType is the type of a persistent event.
type EventType uint8

// The event types. NVMe Base Specification 2.x, "Persistent Event Format".
const (
	EventSMARTSnapshot     EventType = 0x01
	EventFirmwareCommit    EventType = 0x02
	EventTimestampChange   EventType = 0x03
	EventPowerOnReset      EventType = 0x04
	EventHardwareError     EventType = 0x05
	EventChangeNamespace   EventType = 0x06
	EventFormatStart       EventType = 0x07
	EventFormatCompletion  EventType = 0x08
	EventSanitizeStart     EventType = 0x09
	EventSanitizeComplete  EventType = 0x0A
	EventSetFeature        EventType = 0x0B
	EventTelemetryCreate   EventType = 0x0C
	EventThermalExcursion  EventType = 0x0D
	EventMediaVerification EventType = 0x0E
	EventVendor            EventType = 0xDE
	EventTCG               EventType = 0xDF
)

// String names the type.
func (t EventType) String() string {
	switch t {
	case EventSMARTSnapshot:
		return "smart-snapshot"
	case EventFirmwareCommit:
		return "firmware-commit"
	case EventTimestampChange:
		return "timestamp-change"
	case EventPowerOnReset:
		return "power-on-or-reset"
	case EventHardwareError:
		return "hardware-error"
	case EventChangeNamespace:
		return "change-namespace"
	case EventFormatStart:
		return "format-start"
	case EventFormatCompletion:
		return "format-completion"
	case EventSanitizeStart:
		return "sanitize-start"
	case EventSanitizeComplete:
		return "sanitize-completion"
	case EventSetFeature:
		return "set-feature"
	case EventTelemetryCreate:
		return "telemetry-create"
	case EventThermalExcursion:
		return "thermal-excursion"
	case EventMediaVerification:
		return "media-verification"
	case EventVendor:
		return "vendor"
	case EventTCG:
		return "tcg"
	}
	return fmt.Sprintf("type 0x%02x", uint8(t))
}

// MarshalText gives what String gives.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (t *EventType) UnmarshalText(b []byte) error {
	v, err := unname(string(b), 256, "", func(i int) string { return EventType(i).String() })
	*t = EventType(v)
	return err
}

// PersistentEvent is one event of the persistent event log.
type PersistentEvent struct {
	Type     EventType `json:"type"`
	Revision uint8     `json:"type_revision"`
	// PortType is EHAI bits 1:0: 0 not reported, 1 port of the subsystem, 2 of
	// the management interface, 3 no port.
	PortType     uint8     `json:"port_type"`
	ControllerID uint16    `json:"controller_id"`
	Time         Timestamp `json:"timestamp"`
	PortID       uint16    `json:"port_id"`
	// Vendor is the vendor specific information, Data the event's own.
	Vendor []byte `json:"vendor,omitempty"`
	Data   []byte `json:"-"`
}

// Append appends the event: its header, what the vendor has to say, its data.
// Vendor information and data that do not fit 65535 bytes together are cut.
func (e PersistentEvent) Append(b []byte) []byte {
	vendor := e.Vendor[:min(len(e.Vendor), 0xFFFF)]
	data := e.Data[:min(len(e.Data), 0xFFFF-len(vendor))]
	b, p := grow(b, eventHead)
	p.put8(offEvETYPE, uint8(e.Type))
	p.put8(offEvREV, e.Revision)
	p.put8(offEvEHL, eventEHLMin)
	p.put8(offEvEHAI, e.PortType&3)
	p.put16(offEvCNTLID, e.ControllerID)
	p.putTimestamp(offEvETS, e.Time)
	p.put16(offEvPELPID, e.PortID)
	p.put16(offEvVSIL, uint16(len(vendor)))
	p.put16(offEvEL, uint16(len(vendor)+len(data)))
	return append(append(b, vendor...), data...)
}

// NextEvent reads the event at the start of b and says how many bytes it takes,
// at least 24. Vendor and Data lie in b. An event whose lengths do not agree, or
// that runs past the end of b, is an error; the second Is [ErrShort].
func NextEvent(b []byte) (e PersistentEvent, n int, err error) {
	p, err := view(b, eventHead, "persistent event")
	if err != nil {
		return PersistentEvent{}, 0, err
	}
	head, vendor, length := int(p.u8(offEvEHL))+3, int(p.u16(offEvVSIL)), int(p.u16(offEvEL))
	switch {
	case head < eventHead:
		return PersistentEvent{}, 0, fmt.Errorf("persistent event: %w: its header has %d bytes, at least %d belong there", ErrInvalidData, head, eventHead)
	case vendor > length:
		return PersistentEvent{}, 0, fmt.Errorf("persistent event: %w: %d bytes of vendor information in %d", ErrInvalidData, vendor, length)
	case head+length > len(b):
		return PersistentEvent{}, 0, fmt.Errorf("persistent event: %w: it has %d bytes, %d are left", ErrShort, head+length, len(b))
	}
	body := page(b)
	return PersistentEvent{
		Type: EventType(p.u8(offEvETYPE)), Revision: p.u8(offEvREV), PortType: p.u8(offEvEHAI) & 3,
		ControllerID: p.u16(offEvCNTLID), Time: decodeTimestampAt(p, offEvETS), PortID: p.u16(offEvPELPID),
		Vendor: body.bytes(head, vendor), Data: body.bytes(head+vendor, length-vendor),
	}, head + length, nil
}

// PersistentLog is a persistent event log with its events, oldest or newest first
// as the drive has them.
type PersistentLog struct {
	Header PersistentHeader  `json:"header"`
	Events []PersistentEvent `json:"events"`
	// Incomplete says why the walk ended before the number of events that the
	// header announces; empty where all are there.
	Incomplete string `json:"incomplete,omitempty"`
}

// Append appends the log; the header's counts follow the events.
func (l PersistentLog) Append(b []byte) []byte {
	start := len(b)
	h := l.Header
	h.Events, h.HeaderBytes = uint32(len(l.Events)), PersistentHeaderSize
	b = h.Append(b)
	for _, e := range l.Events {
		b = e.Append(b)
	}
	page(b[start:]).put64(offPELTLL, uint64(len(b)-start))
	return b
}

// DecodePersistentLog reads a log, or as much of it as b holds. The walk over the
// events is bounded by the header's count, its total length and b: an event that
// makes no sense ends it with a reason, and what was read before stands.
func DecodePersistentLog(b []byte) (PersistentLog, error) {
	h, err := DecodePersistentHeader(b)
	if err != nil {
		return PersistentLog{}, err
	}
	l := PersistentLog{Header: h, Events: []PersistentEvent{}}
	for e, err := range h.Walk(b) {
		if err != nil {
			l.Incomplete = fmt.Sprintf("after %d of %d events: %v", len(l.Events), h.Events, err)
			break
		}
		l.Events = append(l.Events, e)
	}
	return l, nil
}

// Walk goes over the events in b, the bytes of a log from its header on. The last
// pair has the error that ended the walk before all events were seen.
func (h PersistentHeader) Walk(b []byte) iter.Seq2[PersistentEvent, error] {
	return func(yield func(PersistentEvent, error) bool) {
		if h.TotalBytes < uint64(len(b)) {
			b = b[:h.TotalBytes]
		}
		off := max(int(h.HeaderBytes), PersistentHeaderSize)
		for range h.Events {
			if off >= len(b) {
				yield(PersistentEvent{}, fmt.Errorf("%w: the log ends at byte %d", ErrShort, len(b)))
				return
			}
			e, n, err := NextEvent(b[off:])
			if err != nil {
				yield(PersistentEvent{}, fmt.Errorf("at byte %d: %w", off, err))
				return
			}
			if !yield(e, nil) {
				return
			}
			off += n
		}
	}
}

type eventPlain PersistentEvent

// MarshalJSON adds the decoded data, or the bytes where they cannot be decoded.
func (e PersistentEvent) MarshalJSON() ([]byte, error) {
	v, err := e.Decode()
	out := struct {
		eventPlain
		Vendor  string `json:"vendor_hex,omitempty"`
		Value   any    `json:"value,omitempty"`
		RawHex  string `json:"raw_hex,omitempty"`
		Problem string `json:"problem,omitempty"`
	}{eventPlain: eventPlain(e), Vendor: hex.EncodeToString(e.Vendor), Value: v}
	out.eventPlain.Vendor = nil
	if err != nil {
		out.Problem = err.Error()
	}
	if v == nil {
		out.RawHex = hex.EncodeToString(e.Data)
	}
	return json.Marshal(out)
}
