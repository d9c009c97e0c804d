package nvmespec

import (
	"fmt"
	"time"
)

// powerStateSize is the length of a power state descriptor.
const powerStateSize = 32

// Offsets of a power state descriptor. NVMe Base Specification 2.x, "Power State
// Descriptor Data Structure".
const (
	offPSDMP    = 0
	offPSDFlags = 3
	offPSDENLAT = 4
	offPSDEXLAT = 8
	offPSDRRT   = 12
	offPSDRRL   = 13
	offPSDRWT   = 14
	offPSDRWL   = 15
	offPSDIDLP  = 16
	offPSDIPS   = 18
	offPSDACTP  = 20
	offPSDAPW   = 22
)

// PowerState is a power state descriptor. EPFRT, FQVT and what follows them are
// not modelled.
type PowerState struct {
	// MaxPower is MP with its scale MXPS, in steps of 10 mW or 100 uW; 0 is not
	// reported.
	MaxPower Microwatts `json:"max_power_microwatts"`
	// NonOperational (NOPS): no I/O commands are processed in this state.
	NonOperational bool `json:"non_operational"`
	// EntryMicroseconds and ExitMicroseconds are ENLAT and EXLAT; 0 is not reported.
	EntryMicroseconds uint32 `json:"entry_microseconds"`
	ExitMicroseconds  uint32 `json:"exit_microseconds"`
	// Relative ranks, 0..31, lower is better: RRT, RRL, RWT, RWL.
	ReadThroughputRank  uint8 `json:"read_throughput_rank"`
	ReadLatencyRank     uint8 `json:"read_latency_rank"`
	WriteThroughputRank uint8 `json:"write_throughput_rank"`
	WriteLatencyRank    uint8 `json:"write_latency_rank"`
	// IdlePower is IDLP with its scale IPS (byte 18, bits 7:6).
	IdlePower Opt[Microwatts] `json:"idle_power_microwatts"`
	// ActivePower is ACTP with its scale APS (byte 22, bits 7:6).
	ActivePower Opt[Microwatts] `json:"active_power_microwatts"`
	// ActiveWorkload is APW, the workload ActivePower was measured with; 0 is none.
	ActiveWorkload uint8 `json:"active_workload"`
}

// The two scales of powers.
const (
	powerCoarse = 10_000 // microwatts
	powerFine   = 100
)

func decodePowerState(b []byte) PowerState {
	p := page(b)
	flags := p.u8(offPSDFlags)
	scale := Microwatts(powerCoarse)
	if flags&1 != 0 {
		scale = powerFine
	}
	return PowerState{
		MaxPower:            Microwatts(p.u16(offPSDMP)) * scale,
		NonOperational:      flags>>1&1 != 0,
		EntryMicroseconds:   p.u32(offPSDENLAT),
		ExitMicroseconds:    p.u32(offPSDEXLAT),
		ReadThroughputRank:  p.u8(offPSDRRT) & 31,
		ReadLatencyRank:     p.u8(offPSDRRL) & 31,
		WriteThroughputRank: p.u8(offPSDRWT) & 31,
		WriteLatencyRank:    p.u8(offPSDRWL) & 31,
		IdlePower:           scaledPower(p.u16(offPSDIDLP), p.u8(offPSDIPS)>>6),
		ActivePower:         scaledPower(p.u16(offPSDACTP), p.u8(offPSDAPW)>>6),
		ActiveWorkload:      p.u8(offPSDAPW) & 7,
	}
}

func (s PowerState) put(b []byte) {
	p := page(b)
	mp, fine := powerWire(s.MaxPower)
	p.put16(offPSDMP, mp)
	p.put8(offPSDFlags, bit8(fine, 0)|bit8(s.NonOperational, 1))
	p.put32(offPSDENLAT, s.EntryMicroseconds)
	p.put32(offPSDEXLAT, s.ExitMicroseconds)
	p.put8(offPSDRRT, s.ReadThroughputRank&31)
	p.put8(offPSDRRL, s.ReadLatencyRank&31)
	p.put8(offPSDRWT, s.WriteThroughputRank&31)
	p.put8(offPSDRWL, s.WriteLatencyRank&31)
	v, scale := scaledPowerWire(s.IdlePower)
	p.put16(offPSDIDLP, v)
	p.put8(offPSDIPS, scale<<6)
	v, scale = scaledPowerWire(s.ActivePower)
	p.put16(offPSDACTP, v)
	p.put8(offPSDAPW, scale<<6|s.ActiveWorkload&7)
}

// scaledPower reads a power with a 2-bit scale: 1 is 0.0001 W, 2 is 0.01 W, else
// not reported.
func scaledPower(v uint16, scale uint8) Opt[Microwatts] {
	switch scale {
	case 1:
		return Some(Microwatts(v) * powerFine)
	case 2:
		return Some(Microwatts(v) * powerCoarse)
	}
	return None[Microwatts]()
}

func scaledPowerWire(o Opt[Microwatts]) (v uint16, scale uint8) {
	if !o.OK {
		return 0, 0
	}
	v, fine := powerWire(o.Value)
	if fine {
		return v, 1
	}
	return v, 2
}

// powerWire takes the coarse scale where it is exact or the fine one cannot hold
// the value.
func powerWire(m Microwatts) (v uint16, fine bool) {
	if m%powerCoarse == 0 || m/powerFine > 0xFFFF {
		return uint16(min(m/powerCoarse, 0xFFFF)), false
	}
	return uint16(m / powerFine), true
}

// FeatureID is a feature identifier (FID).
type FeatureID uint8

// The features this project knows. NVMe Base Specification 2.x, "Feature
// Identifiers".
const (
	FeatureArbitration          FeatureID = 0x01
	FeaturePowerManagement      FeatureID = 0x02
	FeatureLBARangeType         FeatureID = 0x03
	FeatureTemperatureThreshold FeatureID = 0x04
	FeatureErrorRecovery        FeatureID = 0x05
	FeatureWriteCache           FeatureID = 0x06
	FeatureQueueCount           FeatureID = 0x07
	FeatureInterruptCoalescing  FeatureID = 0x08
	FeatureInterruptVector      FeatureID = 0x09
	FeatureWriteAtomicity       FeatureID = 0x0A
	FeatureAsyncEvents          FeatureID = 0x0B
	FeatureAPST                 FeatureID = 0x0C
	FeatureHostMemoryBuffer     FeatureID = 0x0D
	FeatureTimestamp            FeatureID = 0x0E
	FeatureKeepAlive            FeatureID = 0x0F
	FeatureHostThermal          FeatureID = 0x10
	FeatureNonOperational       FeatureID = 0x11
	FeatureReadRecoveryLevel    FeatureID = 0x12
	FeatureHostBehavior         FeatureID = 0x16
	FeatureSanitizeConfig       FeatureID = 0x17
	FeatureEnduranceEvents      FeatureID = 0x18
	FeatureSoftwareProgress     FeatureID = 0x80
	FeatureHostID               FeatureID = 0x81
	FeatureWriteProtection      FeatureID = 0x84
	// FeatureMemblazePower is a vendor feature: PBlaze drives take their power
	// limit here (0 is 25 W) and not through feature 02h. Source: a public GPU
	// server manual, `nvmemgr setfeature --featureid 198 --value 0`.
	FeatureMemblazePower FeatureID = 0xC6
)

// FeatureInfo is what is known of a feature.
type FeatureInfo struct {
	ID FeatureID `json:"id"`
	// Name is the word used on the command line: "power-management".
	Name string `json:"name"`
	// GetBytes and SetBytes are the lengths of the data that Get and Set
	// Features transfer; they differ for the host memory buffer. 0 is none.
	GetBytes int `json:"get_bytes"`
	SetBytes int `json:"set_bytes"`
	// PerNamespace says that the feature belongs to a namespace.
	PerNamespace bool `json:"per_namespace"`
	// Vendor is the PCI vendor the number means this at; 0 for standard ones.
	Vendor uint16 `json:"vendor"`
}

// Features is the table of known features, by number.
func Features() []FeatureInfo {
	return []FeatureInfo{
		{ID: FeatureArbitration, Name: "arbitration"},
		{ID: FeaturePowerManagement, Name: "power-management"},
		{ID: FeatureLBARangeType, Name: "lba-range-type", GetBytes: 4096, SetBytes: 4096, PerNamespace: true},
		{ID: FeatureTemperatureThreshold, Name: "temperature-threshold"},
		{ID: FeatureErrorRecovery, Name: "error-recovery", PerNamespace: true},
		{ID: FeatureWriteCache, Name: "write-cache"},
		{ID: FeatureQueueCount, Name: "queue-count"},
		{ID: FeatureInterruptCoalescing, Name: "interrupt-coalescing"},
		{ID: FeatureInterruptVector, Name: "interrupt-vector"},
		{ID: FeatureWriteAtomicity, Name: "write-atomicity"},
		{ID: FeatureAsyncEvents, Name: "async-events"},
		{ID: FeatureAPST, Name: "apst", GetBytes: APSTSize, SetBytes: APSTSize},
		{ID: FeatureHostMemoryBuffer, Name: "host-memory-buffer", GetBytes: 4096},
		{ID: FeatureTimestamp, Name: "timestamp", GetBytes: TimestampSize, SetBytes: TimestampSize},
		{ID: FeatureKeepAlive, Name: "keep-alive"},
		{ID: FeatureHostThermal, Name: "host-thermal-management"},
		{ID: FeatureNonOperational, Name: "non-operational-power"},
		{ID: FeatureReadRecoveryLevel, Name: "read-recovery-level"},
		{ID: FeatureHostBehavior, Name: "host-behavior", GetBytes: 512, SetBytes: 512},
		{ID: FeatureSanitizeConfig, Name: "sanitize-config"},
		{ID: FeatureEnduranceEvents, Name: "endurance-events"},
		{ID: FeatureSoftwareProgress, Name: "software-progress"},
		{ID: FeatureHostID, Name: "host-id", GetBytes: 16, SetBytes: 16},
		{ID: FeatureWriteProtection, Name: "write-protection", PerNamespace: true},
		{ID: FeatureMemblazePower, Name: "memblaze-power", Vendor: 0x1C5F},
	}
}

// LookupFeature finds a feature by number. A vendor's feature is found only for
// that vendor; vendorID 0 is an unknown vendor.
func LookupFeature(id FeatureID, vendorID uint16) (FeatureInfo, bool) {
	for _, f := range Features() {
		if f.ID == id && (f.Vendor == 0 || f.Vendor == vendorID) {
			return f, true
		}
	}
	return FeatureInfo{}, false
}

// LookupFeatureName finds a feature by its name.
func LookupFeatureName(name string) (FeatureInfo, bool) {
	for _, f := range Features() {
		if f.Name == name {
			return f, true
		}
	}
	return FeatureInfo{}, false
}

// String is the name of a standard feature, or its number.
func (id FeatureID) String() string {
	if f, ok := LookupFeature(id, 0); ok {
		return f.Name
	}
	return fmt.Sprintf("0x%02x", uint8(id))
}

// FeatureSelect is the Select field of Get Features: which value is asked for.
type FeatureSelect uint8

// The values of FeatureSelect.
const (
	FeatureCurrent      FeatureSelect = 0
	FeatureDefault      FeatureSelect = 1
	FeatureSaved        FeatureSelect = 2
	FeatureCapabilities FeatureSelect = 3
)

// FeatureCaps is what Get Features answers to FeatureCapabilities.
type FeatureCaps struct {
	Saveable     bool `json:"saveable"`
	PerNamespace bool `json:"per_namespace"`
	Changeable   bool `json:"changeable"`
}

// DecodeFeatureCaps reads the completion dword.
func DecodeFeatureCaps(dw uint32) FeatureCaps {
	return FeatureCaps{Saveable: dw&1 != 0, PerNamespace: dw>>1&1 != 0, Changeable: dw>>2&1 != 0}
}

// Dword is the wire form.
func (c FeatureCaps) Dword() uint32 {
	return uint32(bit8(c.Saveable, 0) | bit8(c.PerNamespace, 1) | bit8(c.Changeable, 2))
}

// PowerManagement is feature 02h, dword 11.
type PowerManagement struct {
	// State is the power state, 0..31 (PS).
	State uint8 `json:"power_state"`
	// Workload is the workload hint, 0..7 (WH).
	Workload uint8 `json:"workload_hint"`
}

// DecodePowerManagement reads the dword.
func DecodePowerManagement(dw uint32) PowerManagement {
	return PowerManagement{State: uint8(dw & 31), Workload: uint8(dw >> 5 & 7)}
}

// Dword is the wire form.
func (f PowerManagement) Dword() uint32 { return uint32(f.State&31) | uint32(f.Workload&7)<<5 }

// TemperatureThreshold is feature 04h, dword 11.
type TemperatureThreshold struct {
	// Temperature is the threshold (TMPTH, Kelvin on the wire).
	Temperature Opt[Celsius] `json:"temperature_celsius"`
	// Sensor is 0 for the composite temperature, 1..8 a sensor, 15 all (TMPSEL).
	Sensor uint8 `json:"sensor"`
	// Under asks for the lower threshold instead of the upper (THSEL).
	Under bool `json:"under"`
}

// DecodeTemperatureThreshold reads the dword.
func DecodeTemperatureThreshold(dw uint32) TemperatureThreshold {
	return TemperatureThreshold{Temperature: celsius(uint16(dw)), Sensor: uint8(dw >> 16 & 15), Under: dw>>20&3 == 1}
}

// Dword is the wire form.
func (f TemperatureThreshold) Dword() uint32 {
	return uint32(kelvin(f.Temperature)) | uint32(f.Sensor&15)<<16 | uint32(bit8(f.Under, 0))<<20
}

// WriteCache is feature 06h, dword 11.
type WriteCache struct {
	Enabled bool `json:"enabled"`
}

// DecodeWriteCache reads the dword.
func DecodeWriteCache(dw uint32) WriteCache { return WriteCache{Enabled: dw&1 != 0} }

// Dword is the wire form.
func (f WriteCache) Dword() uint32 { return uint32(bit8(f.Enabled, 0)) }

// QueueCount is feature 07h, in a Set dword 11 and in the answer: how many I/O
// queues, one-based, 1..65536.
type QueueCount struct {
	Submission uint32 `json:"submission_queues"`
	Completion uint32 `json:"completion_queues"`
}

// DecodeQueueCount reads the dword.
func DecodeQueueCount(dw uint32) QueueCount {
	return QueueCount{Submission: dw&0xFFFF + 1, Completion: dw>>16 + 1}
}

// Dword is the wire form.
func (f QueueCount) Dword() uint32 {
	return uint32(zeroBased16(f.Submission)) | uint32(zeroBased16(f.Completion))<<16
}

// Arbitration is feature 01h, dword 11.
type Arbitration struct {
	// BurstLog2 is the arbitration burst as the exponent of a power of two
	// commands, 0..7; 7 is no limit (AB).
	BurstLog2 uint8 `json:"burst_log2"`
	// LowWeight, MediumWeight and HighWeight are commands a round, one-based.
	LowWeight    uint16 `json:"low_weight"`
	MediumWeight uint16 `json:"medium_weight"`
	HighWeight   uint16 `json:"high_weight"`
}

// DecodeArbitration reads the dword.
func DecodeArbitration(dw uint32) Arbitration {
	return Arbitration{BurstLog2: uint8(dw & 7), LowWeight: uint16(dw>>8&0xFF) + 1,
		MediumWeight: uint16(dw>>16&0xFF) + 1, HighWeight: uint16(dw>>24) + 1}
}

// Dword is the wire form.
func (f Arbitration) Dword() uint32 {
	w := func(n uint16) uint32 { return uint32(min(max(n, 1), 256) - 1) }
	return uint32(f.BurstLog2&7) | w(f.LowWeight)<<8 | w(f.MediumWeight)<<16 | w(f.HighWeight)<<24
}

// ErrorRecovery is feature 05h, dword 11.
type ErrorRecovery struct {
	// RetryMilliseconds limits retries (TLER, 100 ms units on the wire); 0 is no limit.
	RetryMilliseconds uint32 `json:"retry_milliseconds"`
	// DeallocatedErrors asks for an error on reading deallocated blocks (DULBE).
	DeallocatedErrors bool `json:"deallocated_errors"`
}

// DecodeErrorRecovery reads the dword.
func DecodeErrorRecovery(dw uint32) ErrorRecovery {
	return ErrorRecovery{RetryMilliseconds: dw & 0xFFFF * 100, DeallocatedErrors: dw>>16&1 != 0}
}

// Dword is the wire form.
func (f ErrorRecovery) Dword() uint32 {
	return min(f.RetryMilliseconds/100, 0xFFFF) | uint32(bit8(f.DeallocatedErrors, 0))<<16
}

// InterruptCoalescing is feature 08h, dword 11.
type InterruptCoalescing struct {
	// Threshold is how many completions make an interrupt, one-based, 1..256 (THR).
	Threshold uint16 `json:"threshold_entries"`
	// Microseconds is the longest delay (TIME, 100 us units on the wire); 0 is none.
	Microseconds uint32 `json:"time_microseconds"`
}

// DecodeInterruptCoalescing reads the dword.
func DecodeInterruptCoalescing(dw uint32) InterruptCoalescing {
	return InterruptCoalescing{Threshold: uint16(dw&0xFF) + 1, Microseconds: dw >> 8 & 0xFF * 100}
}

// Dword is the wire form.
func (f InterruptCoalescing) Dword() uint32 {
	return uint32(min(max(f.Threshold, 1), 256)-1) | min(f.Microseconds/100, 0xFF)<<8
}

// APSTSize is the length of the data of feature 0Ch.
const APSTSize = 256

// APST is feature 0Ch: dword 11 and 256 bytes of data.
type APST struct {
	// Enabled is the feature's own switch (APSTE).
	Enabled bool `json:"enabled"`
	// Transitions are the entries by power state, 32 of them.
	Transitions [MaxPowerStates]APSTTransition `json:"transitions"`
}

// APSTTransition says where a drive goes from one power state when idle.
type APSTTransition struct {
	// Target is the power state to go to, 0..31 (ITPS).
	Target uint8 `json:"target_power_state"`
	// IdleMilliseconds is how long the drive waits, 24 bits (ITPT); 0 is no
	// transition.
	IdleMilliseconds uint32 `json:"idle_milliseconds"`
}

// Transits says whether the drive will ever change its power state by itself.
// Drives report the feature enabled over an all-zero table: that is never.
func (a APST) Transits() bool {
	for _, t := range a.Transitions {
		if t.Target != 0 && t.IdleMilliseconds != 0 {
			return a.Enabled
		}
	}
	return false
}

// DecodeAPST reads the feature from its dword and data. Fewer than 256 bytes
// leave the missing entries empty; less than one entry is an error.
func DecodeAPST(dw uint32, b []byte) (APST, error) {
	if len(b) < 8 {
		return APST{}, fmt.Errorf("APST table: %w: have %d, need %d", ErrShort, len(b), APSTSize)
	}
	a := APST{Enabled: dw&1 != 0}
	p := page(b)
	for i := range a.Transitions {
		v := p.u64(8 * i)
		a.Transitions[i] = APSTTransition{Target: uint8(v >> 3 & 31), IdleMilliseconds: uint32(v >> 8 & 0xFFFFFF)}
	}
	return a, nil
}

// Dword is dword 11.
func (a APST) Dword() uint32 { return uint32(bit8(a.Enabled, 0)) }

// Append appends the 256 bytes of data.
func (a APST) Append(b []byte) []byte {
	b, p := grow(b, APSTSize)
	for i, t := range a.Transitions {
		p.put64(8*i, uint64(t.Target&31)<<3|uint64(t.IdleMilliseconds&0xFFFFFF)<<8)
	}
	return b
}

// TimestampSize is the length of the data of feature 0Eh.
const TimestampSize = 8

// Timestamp is feature 0Eh.
type Timestamp struct {
	// Milliseconds since 1970-01-01 UTC when set by a host, else since the
	// controller was reset; 48 bits.
	Milliseconds uint64 `json:"milliseconds"`
	// Origin is 0 for cleared at reset, 1 for set by a host.
	Origin uint8 `json:"origin"`
	// Stopped says that the clock may have stood still (SYNCH).
	Stopped bool `json:"stopped"`
}

// Time is the calendar time, where a host has set the clock.
func (t Timestamp) Time() (time.Time, bool) {
	return time.UnixMilli(int64(t.Milliseconds & (1<<48 - 1))).UTC(), t.Origin == 1
}

// DecodeTimestamp reads the 8 bytes.
func DecodeTimestamp(b []byte) (Timestamp, error) {
	p, err := view(b, TimestampSize, "timestamp")
	if err != nil {
		return Timestamp{}, err
	}
	attr := p.u8(6)
	return Timestamp{Milliseconds: p.uint(0, 6), Stopped: attr&1 != 0, Origin: attr >> 1 & 7}, nil
}

// Append appends the 8 bytes.
func (t Timestamp) Append(b []byte) []byte {
	b, p := grow(b, TimestampSize)
	p.put(0, 6, t.Milliseconds)
	p.put8(6, bit8(t.Stopped, 0)|t.Origin&7<<1)
	return b
}

// DecodeFeature reads a feature's value, the completion dword and the data of Get
// Features, into its type for JSON. Features without a type give a RawFeature.
func DecodeFeature(id FeatureID, dw uint32, data []byte) (any, error) {
	switch id {
	case FeatureArbitration:
		return DecodeArbitration(dw), nil
	case FeaturePowerManagement:
		return DecodePowerManagement(dw), nil
	case FeatureTemperatureThreshold:
		return DecodeTemperatureThreshold(dw), nil
	case FeatureErrorRecovery:
		return DecodeErrorRecovery(dw), nil
	case FeatureWriteCache:
		return DecodeWriteCache(dw), nil
	case FeatureQueueCount:
		return DecodeQueueCount(dw), nil
	case FeatureInterruptCoalescing:
		return DecodeInterruptCoalescing(dw), nil
	case FeatureAsyncEvents:
		return AsyncEventConfig{Events: AsyncEvents(dw)}, nil
	case FeatureAPST:
		return DecodeAPST(dw, data)
	case FeatureTimestamp:
		return DecodeTimestamp(data)
	case FeatureHostBehavior:
		return DecodeHostBehavior(data)
	}
	return RawFeature{Dword: dw, Data: data}, nil
}

// AsyncEventConfig is feature 0Bh: which events the controller may notify.
type AsyncEventConfig struct {
	Events AsyncEvents `json:"events"`
}

// Dword is the wire form.
func (f AsyncEventConfig) Dword() uint32 { return uint32(f.Events) }

// RawFeature is the value of a feature that this project gives no type.
type RawFeature struct {
	Dword uint32 `json:"dword"`
	Data  []byte `json:"data,omitempty"`
}
