package vendor

import (
	"fmt"
	"slices"

	"nvop/nvmeioctl/nvmespec"
)

// More PCI vendors of the tables.
const (
	Intel    uint16 = 0x8086
	Solidigm uint16 = 0x025E
	Samsung  uint16 = 0x144D
	Micron   uint16 = 0x1344
	WDC      uint16 = 0x1C58 // HGST, of Western Digital
	WDC2     uint16 = 0x1B96
	SanDisk  uint16 = 0x15B7
)

// Meaning is what a field tells, where other parts of the program use it.
type Meaning uint8

// The meanings.
const (
	Plain         Meaning = iota
	NANDWritten           // what reached the medium
	NANDWrittenSL         // what of it reached single-level cells; comes on top
	HostWritten           // what the host wrote
	NANDRead              // what was read from the medium
	EraseMin
	EraseMax
	EraseAvg
)

// Field is one field of a log with fixed places.
type Field struct {
	Name string
	// Offset and Bytes are where it lies; 1 to 16 bytes, little-endian.
	Offset, Bytes int
	// UnitBytes is what an amount of data counts; 0 is a plain number.
	UnitBytes uint64
	Meaning   Meaning
}

// FixedLog is a vendor log whose fields lie at fixed places.
type FixedLog struct {
	// Name identifies the layout: "samsung-ca".
	Name string
	// VendorIDs are the PCI vendors, LogID the log page.
	VendorIDs []uint16
	LogID     nvmespec.LogID
	// SizeBytes is the length to ask for.
	SizeBytes int
	// Starts are the first bytes of items that this layout begins with; empty
	// where it begins with a number. NotStarts must not be there.
	Starts, NotStarts []byte
	// Verified says that a fixture of a real drive fixes the units; otherwise
	// they are only what other programs take them for.
	Verified bool
	// Provenance is where the row is known from.
	Provenance string
	Fields     []Field
}

// FixedLogs is the table of logs with fixed places.
func FixedLogs() []FixedLog {
	wdc := []uint16{WDC, WDC2, SanDisk}
	return []FixedLog{
		{Name: "samsung-ca", VendorIDs: []uint16{Samsung}, LogID: 0xCA, SizeBytes: 512, NotStarts: []byte{0xAB}, Verified: true,
			Provenance: "output of Samsung's plugin quoted by CacheLib, which asserts bytes (PM983, PM9A3)", Fields: samsungFields()},
		{Name: "samsung-ca-items", VendorIDs: []uint16{Samsung}, LogID: 0xCA, SizeBytes: 512, Starts: []byte{0xAB},
			Provenance: "FreeBSD nvmecontrol, samsung.c", Fields: samsungItemFields()},
		{Name: "micron-fb", VendorIDs: []uint16{Micron}, LogID: 0xFB, SizeBytes: 512,
			Provenance: "nvme-cli plugins/micron, hyperscale NAND statistics", Fields: []Field{
				{"nand_tlc_bytes_written", 0, 16, 1, NANDWritten}, {"nand_slc_bytes_written", 16, 16, 1, NANDWrittenSL}}},
		{Name: "micron-d0", VendorIDs: []uint16{Micron}, LogID: 0xD0, SizeBytes: 512,
			Provenance: "nvme-cli plugins/micron, init_d0_log_page", Fields: []Field{
				{"namespace_size_changes", 4, 4, 0, Plain}, {"bad_blocks", 12, 4, 0, Plain}, {"erase_fails", 96, 8, 0, Plain},
				{"program_fails", 144, 16, 0, Plain}, {"nand_bytes_written", 176, 8, 1, NANDWritten}}},
		{Name: "micron-e1", VendorIDs: []uint16{Micron}, LogID: 0xE1, SizeBytes: 512,
			Provenance: "nvme-cli plugins/micron, extended health log E1h", Fields: []Field{
				{"total_erases", 80, 8, 0, Plain}, {"nand_bytes_written", 176, 8, 1, NANDWritten},
				{"erase_count_min", 244, 4, 0, EraseMin}, {"erase_count_avg", 248, 4, 0, EraseAvg}, {"erase_count_max", 252, 4, 0, EraseMax}}},
		{Name: "micron-c6", VendorIDs: []uint16{Micron}, LogID: 0xC6, SizeBytes: 512,
			Provenance: "nvme-cli plugins/micron, C6_log_page; the unit of its counts is not stated", Fields: []Field{
				{"nand_tlc_writes_raw", 240, 8, 0, Plain}, {"nand_slc_writes_raw", 248, 8, 0, Plain},
				{"host_slc_writes_raw", 256, 8, 0, Plain}, {"host_tlc_writes_raw", 264, 8, 0, Plain}}},
		{Name: "wdc-ca", VendorIDs: wdc, LogID: 0xCA, SizeBytes: 512,
			Provenance: "nvme-cli plugins/wdc, struct wdc_ssd_ca_perf_stats", Fields: wdcCAFields()},
		{Name: "wdc-d0", VendorIDs: wdc, LogID: 0xD0, SizeBytes: 512,
			Provenance: "nvme-cli plugins/wdc, struct wdc_ssd_d0_smart_log; pages of a size that is not stated", Fields: wdcD0Fields()},
		{Name: "wdc-fb", VendorIDs: wdc, LogID: 0xFB, SizeBytes: 512,
			Provenance: "nvme-cli plugins/wdc, struct wdc_nand_stats", Fields: []Field{
				{"nand_tlc_bytes_written", 0, 16, 1, NANDWritten}, {"nand_slc_bytes_written", 16, 16, 1, NANDWrittenSL},
				{"program_fails", 32, 4, 0, Plain}, {"erase_fails", 36, 4, 0, Plain}, {"bad_blocks", 40, 4, 0, Plain}}},
	}
}

func samsungFields() []Field {
	return []Field{
		{"nand_bytes_written", 0, 16, 1, NANDWritten}, {"nand_bytes_read", 16, 16, 1, NANDRead},
		{"system_data_used_percent", 64, 1, 0, Plain}, {"erase_count_min", 65, 4, 0, EraseMin}, {"erase_count_max", 69, 4, 0, EraseMax},
		{"refreshes", 73, 8, 0, Plain}, {"phy_errors", 107, 2, 0, Plain}, {"free_blocks_percent", 119, 1, 0, Plain},
		{"capacitor_health_percent", 140, 2, 0, Plain}, {"endurance_estimate_raw", 142, 16, 0, Plain},
		{"security_version", 158, 8, 0, Plain}, {"log_version", 166, 2, 0, Plain},
	}
}

func samsungItemFields() []Field {
	return []Field{
		{"lifetime_write_amplification_raw", 256, 4, 0, Plain}, {"trailing_hour_write_amplification_raw", 260, 4, 0, Plain},
		{"host_bytes_written", 264, 16, 1, HostWritten}, {"nand_bytes_written", 280, 16, 1, NANDWritten}, {"host_bytes_read", 296, 16, 1, Plain},
	}
}

func wdcCAFields() []Field {
	return []Field{
		{"nand_bytes_written", 0x00, 16, 1, NANDWritten}, {"nand_bytes_read", 0x10, 16, 1, NANDRead}, {"bad_blocks_raw", 0x20, 8, 0, Plain},
		{"uncorrectable_reads", 0x28, 8, 0, Plain}, {"soft_ecc_errors", 0x30, 8, 0, Plain}, {"end_to_end_detected", 0x38, 4, 0, Plain},
		{"end_to_end_corrected", 0x3C, 4, 0, Plain}, {"system_data_used_percent", 0x40, 1, 0, Plain},
		{"erase_count_max", 0x41, 4, 0, EraseMax}, {"erase_count_min", 0x45, 4, 0, EraseMin}, {"refreshes", 0x49, 8, 0, Plain},
		{"program_fails_raw", 0x51, 8, 0, Plain}, {"erase_fails_raw", 0x59, 8, 0, Plain}, {"system_erase_fails_raw", 0x61, 8, 0, Plain},
		{"thermal_throttle_status", 0x69, 1, 0, Plain}, {"thermal_throttles", 0x6A, 1, 0, Plain}, {"pcie_correctable_errors", 0x6B, 8, 0, Plain},
		{"incomplete_shutdowns", 0x73, 4, 0, Plain}, {"free_blocks_percent", 0x77, 1, 0, Plain},
	}
}

func wdcD0Fields() []Field {
	return []Field{
		{"reallocated_blocks", 0x04, 4, 0, Plain}, {"power_on_hours", 0x08, 4, 0, Plain}, {"uncorrectable_errors", 0x0C, 4, 0, Plain},
		{"lifetime_write_amplification_raw", 0x10, 4, 0, Plain}, {"trailing_hour_write_amplification_raw", 0x14, 4, 0, Plain},
		{"reserve_blocks", 0x18, 4, 0, Plain}, {"program_fails", 0x1C, 4, 0, Plain}, {"erase_fails", 0x20, 4, 0, Plain},
		{"die_fails", 0x24, 4, 0, Plain}, {"link_downgrades", 0x28, 4, 0, Plain}, {"clean_shutdowns", 0x2C, 4, 0, Plain},
		{"unclean_shutdowns", 0x30, 4, 0, Plain}, {"temperature_raw", 0x34, 4, 0, Plain}, {"temperature_max_raw", 0x38, 4, 0, Plain},
		{"retired_blocks", 0x3C, 4, 0, Plain}, {"read_disturb_reallocations", 0x40, 4, 0, Plain}, {"nand_pages_written_raw", 0x44, 8, 0, Plain},
		{"capacitor_health_raw", 0x4C, 4, 0, Plain}, {"host_pages_written_raw", 0x50, 8, 0, Plain}, {"host_pages_read_raw", 0x58, 8, 0, Plain},
		{"thermal_throttles", 0x60, 4, 0, Plain}, {"erase_cycles_left_percent", 0x64, 4, 0, Plain},
	}
}

// FieldValue is one field as it was read.
type FieldValue struct {
	Name string `json:"name"`
	// Raw is the number as it stands on the wire.
	Raw nvmespec.Uint128 `json:"raw"`
	// Bytes is the amount in bytes, for fields that count data.
	Bytes nvmespec.Opt[nvmespec.Uint128] `json:"bytes"`
}

// Report is a vendor log with fixed places in domain values.
type Report struct {
	Layout string         `json:"layout"`
	Log    nvmespec.LogID `json:"log"`
	// Verified is false where no fixture of a real drive fixes the units.
	Verified         bool                           `json:"verified"`
	Provenance       string                         `json:"provenance"`
	NANDWrittenBytes nvmespec.Opt[nvmespec.Uint128] `json:"nand_written_bytes"`
	HostWrittenBytes nvmespec.Opt[nvmespec.Uint128] `json:"host_written_bytes"`
	NANDReadBytes    nvmespec.Opt[nvmespec.Uint128] `json:"nand_read_bytes"`
	EraseCountMin    nvmespec.Opt[uint64]           `json:"erase_count_min"`
	EraseCountMax    nvmespec.Opt[uint64]           `json:"erase_count_max"`
	EraseCountAvg    nvmespec.Opt[uint64]           `json:"erase_count_avg"`
	Fields           []FieldValue                   `json:"fields"`
}

// matches says that b begins as the layout does.
func (l FixedLog) matches(b []byte) bool {
	return (len(l.Starts) == 0 || len(b) > 0 && slices.Contains(l.Starts, b[0])) && !(len(b) > 0 && slices.Contains(l.NotStarts, b[0]))
}

// decode reads b as layout l.
func (l FixedLog) decode(b []byte) (Report, error) {
	if len(b) < l.SizeBytes {
		return Report{}, fmt.Errorf("log %s: %w: have %d, need %d", l.Name, nvmespec.ErrShort, len(b), l.SizeBytes)
	}
	if !slices.ContainsFunc(b[:l.SizeBytes], func(c byte) bool { return c != 0 }) {
		return Report{}, fmt.Errorf("log %s: %w: every value is zero", l.Name, nvmespec.ErrInvalidData)
	}
	r := Report{Layout: l.Name, Log: l.LogID, Verified: l.Verified, Provenance: l.Provenance, Fields: []FieldValue{}}
	for _, f := range l.Fields {
		v := FieldValue{Name: f.Name, Raw: number(b[f.Offset : f.Offset+f.Bytes])}
		if f.UnitBytes != 0 {
			v.Bytes = nvmespec.Some(v.Raw.Mul64(f.UnitBytes))
		}
		r.Fields = append(r.Fields, v)
		r.summarise(f.Meaning, v)
	}
	return r, nil
}

func (r *Report) summarise(m Meaning, v FieldValue) {
	switch m {
	case NANDWritten:
		r.NANDWrittenBytes = v.Bytes
	case NANDWrittenSL:
		r.NANDWrittenBytes = nvmespec.Some(r.NANDWrittenBytes.Or(nvmespec.Uint128{}).Add(v.Bytes.Value))
	case HostWritten:
		r.HostWrittenBytes = v.Bytes
	case NANDRead:
		r.NANDReadBytes = v.Bytes
	case EraseMin:
		r.EraseCountMin = nvmespec.Some(v.Raw.Lo)
	case EraseMax:
		r.EraseCountMax = nvmespec.Some(v.Raw.Lo)
	case EraseAvg:
		r.EraseCountAvg = nvmespec.Some(v.Raw.Lo)
	}
}

// number reads a little-endian number of at most 16 bytes.
func number(b []byte) nvmespec.Uint128 {
	var v nvmespec.Uint128
	for i, c := range b {
		if i < 8 {
			v.Lo |= uint64(c) << (8 * i)
		} else {
			v.Hi |= uint64(c) << (8 * (i - 8))
		}
	}
	return v
}

// DecodeFixed reads a log with fixed places: which layout follows from the
// vendor, the log's number and how it begins.
func DecodeFixed(vendorID uint16, id nvmespec.LogID, b []byte) (Report, error) {
	for _, l := range FixedLogs() {
		if slices.Contains(l.VendorIDs, vendorID) && l.LogID == id && l.matches(b) {
			return l.decode(b)
		}
	}
	return Report{}, fmt.Errorf("log 0x%02x of vendor 0x%04x: %w", uint8(id), vendorID, ErrUnknownLog)
}

// Page is a vendor log that can be asked for: one name for all its layouts.
type Page struct {
	// Name is what the command line calls it and the kind of its dumps:
	// "memblaze-ca".
	Name      string
	VendorIDs []uint16
	LogID     nvmespec.LogID
	SizeBytes int
	// Verified is false where no fixture of a real drive fixes the units.
	Verified bool
}

// Pages is every vendor log in the tables.
func Pages() []Page {
	const ca = nvmespec.LogIDVendorHealth
	pages := []Page{
		{"memblaze-ca", []uint16{Memblaze}, ca, 512, false},
		{"ymtc-ca", []uint16{YMTC}, ca, 4096, false},
		{"intel-ca", []uint16{Intel}, ca, 512, true},
		{"solidigm-ca", []uint16{Solidigm}, ca, 512, false},
	}
	for _, l := range FixedLogs() {
		if len(l.Starts) == 0 { // the others are layouts of a page that is there already
			pages = append(pages, Page{l.Name, l.VendorIDs, l.LogID, l.SizeBytes, l.Verified})
		}
	}
	return pages
}

// PagesOf are the vendor logs of one vendor, the health log first.
func PagesOf(vendorID uint16) []Page {
	var found []Page
	for _, p := range Pages() {
		if slices.Contains(p.VendorIDs, vendorID) {
			found = append(found, p)
		}
	}
	return found
}

// DecodePage reads a log of a name of Pages: a Health or a Report.
func DecodePage(name string, b []byte) (any, error) {
	for _, p := range Pages() {
		if p.Name != name {
			continue
		}
		if len(Lookup(p.VendorIDs[0])) > 0 && p.LogID == nvmespec.LogIDVendorHealth {
			h, err := Decode(p.VendorIDs[0], p.LogID, b)
			if err != nil {
				return nil, err
			}
			return h, nil
		}
		if len(b) == 0 {
			return nil, fmt.Errorf("log %s: %w: no bytes", name, nvmespec.ErrShort)
		}
		r, err := DecodeFixed(p.VendorIDs[0], p.LogID, b)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknownLog, name)
}
