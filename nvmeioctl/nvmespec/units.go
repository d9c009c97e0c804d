package nvmespec

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
)

// Uint128 is an exact 128-bit counter, as NVMe keeps capacities and lifetimes.
type Uint128 struct{ Lo, Hi uint64 }

// U128 is v as a Uint128.
func U128(v uint64) Uint128 { return Uint128{Lo: v} }

// MaxUint128 is the largest value.
func MaxUint128() Uint128 { return Uint128{Lo: ^uint64(0), Hi: ^uint64(0)} }

// IsZero says that u is 0.
func (u Uint128) IsZero() bool { return u == Uint128{} }

// Uint64 is u where it fits in 64 bits.
func (u Uint128) Uint64() (v uint64, ok bool) { return u.Lo, u.Hi == 0 }

// Cmp compares: -1 for u < v, 0 for equal, +1 for u > v.
func (u Uint128) Cmp(v Uint128) int {
	switch {
	case u.Hi < v.Hi || u.Hi == v.Hi && u.Lo < v.Lo:
		return -1
	case u == v:
		return 0
	}
	return 1
}

// Add is u + v; beyond the largest value it stays there, so that a hostile
// counter cannot wrap to a small number.
func (u Uint128) Add(v Uint128) Uint128 {
	lo, c := bits.Add64(u.Lo, v.Lo, 0)
	hi, c := bits.Add64(u.Hi, v.Hi, c)
	if c != 0 {
		return MaxUint128()
	}
	return Uint128{Lo: lo, Hi: hi}
}

// Sub is u - v; ok is false, and the result 0, where v is larger: a counter
// that stepped back.
func (u Uint128) Sub(v Uint128) (d Uint128, ok bool) {
	lo, b := bits.Sub64(u.Lo, v.Lo, 0)
	hi, b := bits.Sub64(u.Hi, v.Hi, b)
	if b != 0 {
		return Uint128{}, false
	}
	return Uint128{Lo: lo, Hi: hi}, true
}

// Mul64 is u * m, held at the largest value.
func (u Uint128) Mul64(m uint64) Uint128 {
	hi, lo := bits.Mul64(u.Lo, m)
	over, mid := bits.Mul64(u.Hi, m)
	hi, c := bits.Add64(hi, mid, 0)
	if over != 0 || c != 0 {
		return MaxUint128()
	}
	return Uint128{Lo: lo, Hi: hi}
}

// DivMod64 is u / d rounded down, and the rest. d must not be 0; with 0 both
// are 0.
func (u Uint128) DivMod64(d uint64) (q Uint128, r uint64) {
	if d == 0 {
		return Uint128{}, 0
	}
	q.Hi, r = u.Hi/d, u.Hi%d
	q.Lo, r = bits.Div64(r, u.Lo, d)
	return q, r
}

// Float64 is the nearest float; for ratios only, never for counting.
func (u Uint128) Float64() float64 { return float64(u.Hi)*0x1p64 + float64(u.Lo) }

// Big is u as a big integer.
func (u Uint128) Big() *big.Int {
	b := new(big.Int).SetUint64(u.Hi)
	return b.Or(b.Lsh(b, 64), new(big.Int).SetUint64(u.Lo))
}

// String is u in decimal.
func (u Uint128) String() string {
	if u.Hi == 0 {
		return strconv.FormatUint(u.Lo, 10)
	}
	return u.Big().String()
}

// ParseUint128 reads a decimal number of at most 128 bits.
func ParseUint128(s string) (Uint128, error) {
	b, ok := new(big.Int).SetString(s, 10)
	if !ok || b.Sign() < 0 || b.BitLen() > 128 || s[0] == '+' {
		return Uint128{}, fmt.Errorf("%q is not an unsigned 128-bit decimal number", s)
	}
	lo := new(big.Int).And(b, new(big.Int).SetUint64(^uint64(0)))
	return Uint128{Lo: lo.Uint64(), Hi: new(big.Int).Rsh(b, 64).Uint64()}, nil
}

// MarshalText gives the decimal number, which JSON shows as a string: 128-bit
// numbers lose digits in readers that keep numbers as floats.
func (u Uint128) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads a decimal number.
func (u *Uint128) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUint128(string(b))
	return err
}

// Opt is a value that a drive may not report. The zero Opt is not reported; in
// JSON it is null.
type Opt[T any] struct {
	Value T
	// OK says that the value is reported; otherwise Value is the zero of T.
	OK bool
}

// Some is a reported value.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, OK: true} }

// None is a value not reported.
func None[T any]() Opt[T] { return Opt[T]{} }

// Get gives the value and whether it is reported.
func (o Opt[T]) Get() (T, bool) { return o.Value, o.OK }

// Or is the value, or v where it is not reported.
func (o Opt[T]) Or(v T) T {
	if o.OK {
		return o.Value
	}
	return v
}

// MarshalJSON gives the value or null.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.OK {
		return []byte("null"), nil
	}
	return json.Marshal(o.Value)
}

// UnmarshalJSON reads a value or null.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	*o = Opt[T]{}
	if string(b) == "null" {
		return nil
	}
	if err := json.Unmarshal(b, &o.Value); err != nil {
		return err
	}
	o.OK = true
	return nil
}

// someIf is v where it is not the zero of T, which many fields use for "not
// reported".
func someIf[T comparable](v T) Opt[T] {
	var zero T
	if v == zero {
		return Opt[T]{}
	}
	return Some(v)
}

// Celsius is a temperature in whole degrees. On the wire temperatures are
// unsigned Kelvin, 0 for "not reported"; 263 K is -10 and quite valid.
type Celsius int32

// kelvinOffset is what NVMe tools agree on between Kelvin and Celsius.
const kelvinOffset = 273

// Kelvin is the temperature as the wire has it, 0..65535.
func (c Celsius) Kelvin() uint16 { return uint16(min(max(int64(c)+kelvinOffset, 0), 0xFFFF)) }

// celsius turns wire Kelvin into a temperature, if reported.
func celsius(kelvin uint16) Opt[Celsius] {
	if kelvin == 0 {
		return None[Celsius]()
	}
	return Some(Celsius(int32(kelvin) - kelvinOffset))
}

// kelvin is the wire form of a temperature that may not be reported.
func kelvin(c Opt[Celsius]) uint16 {
	if !c.OK {
		return 0
	}
	return c.Value.Kelvin()
}

// Microwatts is a power. The finest step on the wire is 100 uW, the largest
// value 655.35 W.
type Microwatts uint32

// String gives watts with as many digits as the wire can hold.
func (m Microwatts) String() string { return fmt.Sprintf("%d.%04d W", m/1e6, m%1e6/100) }

// GUID is a 16-byte identifier in the order the drive sends it, which for NGUID
// and UUID is the order it is printed in. All zero means absent.
type GUID [16]byte

// IsZero says that the identifier is absent.
func (g GUID) IsZero() bool { return g == GUID{} }

// String is 32 hexadecimal digits, or nothing when absent.
func (g GUID) String() string {
	if g.IsZero() {
		return ""
	}
	return hex.EncodeToString(g[:])
}

// UUID is the identifier in UUID form, or nothing when absent.
func (g GUID) UUID() string {
	if g.IsZero() {
		return ""
	}
	h := hex.EncodeToString(g[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// MarshalText gives what String gives.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (g *GUID) UnmarshalText(b []byte) error { return unhex(g[:], b) }

// EUI64 is an 8-byte identifier in the order it is sent and printed. All zero
// means absent.
type EUI64 [8]byte

// IsZero says that the identifier is absent.
func (e EUI64) IsZero() bool { return e == EUI64{} }

// String is 16 hexadecimal digits, or nothing when absent.
func (e EUI64) String() string {
	if e.IsZero() {
		return ""
	}
	return hex.EncodeToString(e[:])
}

// MarshalText gives what String gives.
func (e EUI64) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (e *EUI64) UnmarshalText(b []byte) error { return unhex(e[:], b) }

// unhex fills dst from hexadecimal text; no text is all zero.
func unhex(dst, text []byte) error {
	clear(dst)
	if len(text) == 0 {
		return nil
	}
	if hex.DecodedLen(len(text)) != len(dst) {
		return fmt.Errorf("%d hexadecimal digits where %d belong", len(text), 2*len(dst))
	}
	_, err := hex.Decode(dst, text)
	return err
}

// FormatBytes gives a size in decimal and in binary units, "7.68 TB (6.99 TiB)":
// drives are sold by the first, operating systems often count in the second, and
// one number alone has misled people. Below 1 kB it is plain bytes.
func FormatBytes(n Uint128) string {
	if n.Hi == 0 && n.Lo < 1000 {
		return fmt.Sprintf("%d B", n.Lo)
	}
	return FormatBytesDecimal(n) + " (" + FormatBytesBinary(n) + ")"
}

// FormatBytesDecimal gives a size in kB, MB, GB, TB or PB with two decimals,
// rounded down.
func FormatBytesDecimal(n Uint128) string {
	return scaled(n, 1000, [...]string{"B", "kB", "MB", "GB", "TB", "PB", "EB"})
}

// FormatBytesBinary gives a size in KiB, MiB, GiB, TiB or PiB with two decimals,
// rounded down.
func FormatBytesBinary(n Uint128) string {
	return scaled(n, 1024, [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"})
}

func scaled(n Uint128, base uint64, names [7]string) string {
	unit, i := uint64(1), 0
	for i < len(names)-1 {
		if q, _ := n.DivMod64(unit); q.Hi == 0 && q.Lo < base {
			break
		}
		unit, i = unit*base, i+1
	}
	if i == 0 {
		return n.String() + " B"
	}
	q, r := n.DivMod64(unit)
	hi, lo := bits.Mul64(r, 100)
	hundredths, _ := bits.Div64(hi, lo, unit)
	return fmt.Sprintf("%s.%02d %s", q, hundredths, names[i])
}

// flagBits turns a bit field into the names of the bits that are set, for JSON.
// A bit without a name is "bit<n>".
func flagBits(v uint32, names []string) []string {
	out := []string{}
	for i := range 32 {
		if v>>i&1 == 0 {
			continue
		}
		if i < len(names) && names[i] != "" {
			out = append(out, names[i])
		} else {
			out = append(out, fmt.Sprintf("bit%d", i))
		}
	}
	return out
}

// parseFlagBits is the inverse of flagBits.
func parseFlagBits(b []byte, names []string) (uint32, error) {
	var set []string
	if err := json.Unmarshal(b, &set); err != nil {
		return 0, err
	}
	var v uint32
	for _, s := range set {
		bit := -1
		for i, n := range names {
			if n == s && n != "" {
				bit = i
			}
		}
		if bit < 0 {
			if n, err := fmt.Sscanf(s, "bit%d", &bit); n != 1 || err != nil || bit < 0 || bit > 31 {
				return 0, fmt.Errorf("unknown flag %q", s)
			}
		}
		v |= 1 << bit
	}
	return v, nil
}

// flags is the wire types of bit fields.
type flags interface {
	~uint8 | ~uint16 | ~uint32
}

// marshalFlags is MarshalJSON of a bit field.
func marshalFlags(v uint32, names []string) ([]byte, error) { return json.Marshal(flagBits(v, names)) }

// unmarshalFlags is UnmarshalJSON of a bit field.
func unmarshalFlags[T flags](f *T, b []byte, names []string) error {
	v, err := parseFlagBits(b, names)
	*f = T(v)
	return err
}

// MultiPath is CMIC, Identify Controller byte 76.
type MultiPath uint8

// The bits of MultiPath.
const (
	MultiPort       MultiPath = 1 << 0 // the subsystem has more than one port
	MultiController MultiPath = 1 << 1 // the subsystem may hold two or more controllers
	VirtualFunction MultiPath = 1 << 2 // this controller belongs to an SR-IOV function
	ANAReporting    MultiPath = 1 << 3 // asymmetric namespace access is reported
)

func (MultiPath) names() []string {
	return []string{"multi_port", "multi_controller", "virtual_function", "ana_reporting"}
}

// MarshalJSON lists the names of the bits set.
func (f MultiPath) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *MultiPath) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// AsyncEvents is OAES, Identify Controller bytes 95:92, and the same bits of the
// Asynchronous Event Configuration feature (0Bh).
type AsyncEvents uint32

// The bits of AsyncEvents this project knows.
const (
	EventNamespaceAttributes AsyncEvents = 1 << 8
	EventFirmwareActivation  AsyncEvents = 1 << 9
	EventANAChange           AsyncEvents = 1 << 11
	EventEnduranceAggregate  AsyncEvents = 1 << 14
)

func (AsyncEvents) names() []string {
	return []string{0: "spare", 1: "temperature", 2: "reliability", 3: "read_only", 4: "backup_failed",
		8: "namespace_attributes", 9: "firmware_activation", 11: "ana_change", 14: "endurance_group_aggregate", 31: ""}
}

// MarshalJSON lists the names of the bits set.
func (f AsyncEvents) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *AsyncEvents) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// Attributes is CTRATT, Identify Controller bytes 99:96.
type Attributes uint32

// The bits of Attributes this project knows.
const (
	AttrNVMSets              Attributes = 1 << 2
	AttrEnduranceGroups      Attributes = 1 << 4
	AttrNamespaceGranularity Attributes = 1 << 7
	AttrUUIDList             Attributes = 1 << 9
	AttrFixedCapacity        Attributes = 1 << 11
	AttrVariableCapacity     Attributes = 1 << 12
	AttrExtendedLBAFormats   Attributes = 1 << 15
)

func (Attributes) names() []string {
	return []string{0: "host_id_128", 1: "non_operational_permissive", 2: "nvm_sets", 3: "read_recovery_levels",
		4: "endurance_groups", 5: "predictable_latency", 6: "traffic_based_keep_alive", 7: "namespace_granularity",
		8: "sq_associations", 9: "uuid_list", 10: "multi_domain", 11: "fixed_capacity", 12: "variable_capacity",
		13: "delete_endurance_group", 14: "delete_nvm_set", 15: "extended_lba_formats", 19: "flexible_data_placement"}
}

// MarshalJSON lists the names of the bits set.
func (f Attributes) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Attributes) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// OptionalAdmin is OACS, Identify Controller bytes 257:256: the optional admin
// commands a controller has.
type OptionalAdmin uint16

// The bits of OptionalAdmin.
const (
	AdminSecurity            OptionalAdmin = 1 << 0
	AdminFormat              OptionalAdmin = 1 << 1
	AdminFirmware            OptionalAdmin = 1 << 2
	AdminNamespaceManagement OptionalAdmin = 1 << 3
	AdminSelfTest            OptionalAdmin = 1 << 4
	AdminDirectives          OptionalAdmin = 1 << 5
	AdminManagementInterface OptionalAdmin = 1 << 6
	AdminVirtualization      OptionalAdmin = 1 << 7
	AdminDoorbellBuffer      OptionalAdmin = 1 << 8
	AdminGetLBAStatus        OptionalAdmin = 1 << 9
)

func (OptionalAdmin) names() []string {
	return []string{"security", "format", "firmware", "namespace_management", "self_test", "directives",
		"management_interface", "virtualization", "doorbell_buffer", "get_lba_status", "lockdown"}
}

// MarshalJSON lists the names of the bits set.
func (f OptionalAdmin) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *OptionalAdmin) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// LogAttributes is LPA, Identify Controller byte 261.
type LogAttributes uint8

// The bits of LogAttributes.
const (
	LogSMARTPerNamespace LogAttributes = 1 << 0
	LogEffects           LogAttributes = 1 << 1 // commands supported and effects log
	LogExtended          LogAttributes = 1 << 2 // Get Log Page takes an offset and 32-bit lengths
	LogTelemetry         LogAttributes = 1 << 3
	LogPersistentEvents  LogAttributes = 1 << 4
	LogSupportedPages    LogAttributes = 1 << 5
	LogTelemetryArea4    LogAttributes = 1 << 6
)

func (LogAttributes) names() []string {
	return []string{"smart_per_namespace", "effects", "extended", "telemetry", "persistent_events",
		"supported_pages", "telemetry_area_4"}
}

// MarshalJSON lists the names of the bits set.
func (f LogAttributes) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *LogAttributes) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// OptionalIO is ONCS, Identify Controller bytes 521:520.
type OptionalIO uint16

// The bits of OptionalIO.
const (
	IOCompare            OptionalIO = 1 << 0
	IOWriteUncorrectable OptionalIO = 1 << 1
	IODatasetManagement  OptionalIO = 1 << 2
	IOWriteZeroes        OptionalIO = 1 << 3
	IOSaveFeatures       OptionalIO = 1 << 4 // the Save and Select fields of features
	IOReservations       OptionalIO = 1 << 5
	IOTimestamp          OptionalIO = 1 << 6
	IOVerify             OptionalIO = 1 << 7
	IOCopy               OptionalIO = 1 << 8
)

func (OptionalIO) names() []string {
	return []string{"compare", "write_uncorrectable", "dataset_management", "write_zeroes", "save_features",
		"reservations", "timestamp", "verify", "copy"}
}

// MarshalJSON lists the names of the bits set.
func (f OptionalIO) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *OptionalIO) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// FormatAttributes is FNA, Identify Controller byte 524: how far a Format NVM
// reaches.
type FormatAttributes uint8

// The bits of FormatAttributes.
const (
	FormatAllNamespaces FormatAttributes = 1 << 0 // a format changes every namespace
	EraseAllNamespaces  FormatAttributes = 1 << 1 // a secure erase erases every namespace
	FormatCryptoErase   FormatAttributes = 1 << 2 // cryptographic erase is supported
	FormatNoBroadcast   FormatAttributes = 1 << 3 // NSID FFFFFFFFh is not accepted
)

func (FormatAttributes) names() []string {
	return []string{"format_all_namespaces", "erase_all_namespaces", "crypto_erase", "no_broadcast"}
}

// MarshalJSON lists the names of the bits set.
func (f FormatAttributes) MarshalJSON() ([]byte, error) { return marshalFlags(uint32(f), f.names()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (f *FormatAttributes) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }

// SanitizeCapabilities is SANICAP, Identify Controller bytes 331:328; bits 31:30
// are NODMMAS.
type SanitizeCapabilities uint32

// The bits of SanitizeCapabilities.
const (
	SanitizeCrypto    SanitizeCapabilities = 1 << 0
	SanitizeBlock     SanitizeCapabilities = 1 << 1
	SanitizeOverwrite SanitizeCapabilities = 1 << 2
)

func (SanitizeCapabilities) names() []string {
	return []string{0: "crypto_erase", 1: "block_erase", 2: "overwrite", 3: "media_verification", 29: "no_deallocate_inhibited", 31: ""}
}

// MarshalJSON lists the names of the bits set.
func (f SanitizeCapabilities) MarshalJSON() ([]byte, error) {
	return marshalFlags(uint32(f), f.names())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *SanitizeCapabilities) UnmarshalJSON(b []byte) error { return unmarshalFlags(f, b, f.names()) }
