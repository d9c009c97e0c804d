// Package vendor reads vendor specific health logs through a table of data: whose
// log it is, how its items lie, in which unit they count, and where that is known
// from.
//
// The number of a vendor log means nothing without the vendor: CAh of another
// drive must not be read with this table, so decoding is gated by the PCI vendor
// and by a check of the structure. Units of vendors differ by six orders of
// magnitude; the unit taken and whether it is only assumed come with every value.
package vendor

import (
	"errors"
	"fmt"

	"nvop/nvmeioctl/nvmespec"
)

// PCI vendors of the table.
const (
	Memblaze uint16 = 0x1C5F
	YMTC     uint16 = 0x1E49
)

// ErrUnknownLog: the table has no log for this vendor, number or version.
var ErrUnknownLog = errors.New("no such vendor log in the table")

// Kind is how the raw value of an item is read.
type Kind uint8

// The kinds of items.
const (
	Count       Kind = iota // a number, 48 bits
	Units                   // an amount of data in the unit of the log, 48 bits
	EraseCounts             // minimum, maximum and average erase count, 16 bits each
)

// Item is one row of a log's table.
type Item struct {
	ID   uint8
	Name string
	Kind Kind
}

// Items with a meaning for wear.
const (
	itemEraseCounts = 0xAD
	itemNANDWritten = 0xF4
	itemHostWritten = 0xF5
)

// Log is one layout of a vendor log.
type Log struct {
	// Name identifies the layout: "memblaze-ca-v2".
	Name string
	// VendorID is the PCI vendor, LogID the log page.
	VendorID uint16
	LogID    nvmespec.LogID
	// SizeBytes is the length to ask for.
	SizeBytes int
	// Versioned says that byte 511 is the version, and Version is its value.
	Versioned bool
	Version   uint8
	// ItemBytes is the length of one item: 12 (identifier at 0, normalised at 3,
	// raw at 5) or 10 (0, 1, 2).
	ItemBytes int
	// UnitBytes is what items of kind Units count.
	UnitBytes uint64
	// UnitAssumed says that no maker's document states the unit.
	UnitAssumed bool
	// Verified says that a fixture of a real drive fixes the unit.
	Verified bool
	// Provenance is where the row is known from.
	Provenance string
	// Items are the known items; a log may hold others.
	Items []Item
}

const (
	versionOffset = 511
	unit32MiB     = 32 << 20
)

// Logs is the table.
func Logs() []Log {
	return []Log{
		{Name: "memblaze-ca-v0", VendorID: Memblaze, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 512,
			Versioned: true, Version: 0, ItemBytes: 12, UnitBytes: unit32MiB,
			Provenance: "nvme-cli plugins/memblaze, memblaze-utils.h: unit is 32 MiB", Items: memblazeV0()},
		{Name: "memblaze-ca-v2", VendorID: Memblaze, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 512,
			Versioned: true, Version: 2, ItemBytes: 12, UnitBytes: unit32MiB,
			Provenance: "nvme-cli plugins/memblaze, memblaze-smart-log-add-x.c", Items: memblazeV2()},
		{Name: "memblaze-ca-v3", VendorID: Memblaze, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 512,
			Versioned: true, Version: 3, ItemBytes: 10, UnitBytes: unit32MiB,
			Provenance: "nvme-cli plugins/memblaze, memblaze-smart-log-add-x.c", Items: memblazeV3()},
		{Name: "ymtc-ca", VendorID: YMTC, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 4096,
			ItemBytes: 12, UnitBytes: unit32MiB, UnitAssumed: true,
			Provenance: "nvme-cli plugins/ymtc: Intel's format, so Intel's unit of 32 MiB; to be checked by a calibrated write",
			Items:      ymtcItems()},
		{Name: "intel-ca", VendorID: Intel, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 512, ItemBytes: 12, UnitBytes: unit32MiB, Verified: true,
			Provenance: "nvme-cli plugins/intel; the unit of 32 MiB is what CacheLib asserts of a P3600", Items: intelItems()},
		{Name: "solidigm-ca", VendorID: Solidigm, LogID: nvmespec.LogIDVendorHealth, SizeBytes: 512, ItemBytes: 12, UnitBytes: unit32MiB, UnitAssumed: true,
			Provenance: "nvme-cli plugins/solidigm: Intel's format, so Intel's unit of 32 MiB", Items: intelItems()},
	}
}

// intelItems are those of Intel's and Solidigm's drives, which other tools scan
// for by their identifiers.
func intelItems() []Item {
	return []Item{
		{0xAB, "program_fails", Count}, {0xAC, "erase_fails", Count}, {itemEraseCounts, "erase_counts", EraseCounts},
		{0xB8, "end_to_end_errors", Count}, {0xC7, "crc_errors", Count}, {0xE2, "workload_media_wear_1024ths_percent", Count},
		{0xE3, "workload_host_reads_percent", Count}, {0xE4, "workload_timer_minutes", Count}, {0xEA, "thermal_throttle_raw", Count},
		{0xF0, "retry_buffer_overflows", Count}, {0xF3, "pll_lock_losses", Count},
		{itemNANDWritten, "nand_bytes_written", Units}, {itemHostWritten, "host_bytes_written", Units},
		{0xF6, "host_context_wear_used", Count}, {0xF7, "performance_status", Count}, {0x05, "reallocated_sectors", Count},
		{0x0D, "soft_ecc_error_rate", Count}, {0xAE, "unexpected_power_losses", Count}, {0xF8, "nand_bytes_read", Units},
		{0xF9, "firmware_downgrades_available", Count}, {0xE5, "reads_in_flight", Count}, {0xE6, "writes_in_flight", Count},
		{0xEE, "resku_count", Count}, {0xFA, "host_read_collisions", Count}, {0xFB, "host_write_collisions", Count},
		{0xFC, "xor_passes", Count}, {0xFD, "xor_fails", Count}, {0xFE, "xor_uses", Count},
	}
}

// Items are listed in the order of their places in the log: this project reads
// them by their identifiers, but other tools (nvme-cli 2.3 for Memblaze, and
// for YMTC) by place, so a simulated drive must put each where they look.

func memblazeV0() []Item { return firstItems() }

func memblazeV2() []Item {
	return []Item{
		{0xAB, "program_fails", Count}, {0xAC, "erase_fails", Count}, {itemEraseCounts, "erase_counts", EraseCounts},
		{0xB8, "end_to_end_errors", Count}, {0xC7, "crc_errors", Count}, {0xE2, "workload_media_wear_raw", Count},
		{0xE3, "workload_host_reads_raw", Count}, {0xE4, "workload_timer_raw", Count}, {0xEA, "thermal_throttle_raw", Count},
		{0xF0, "lifetime_write_amplification_raw", Count}, {0xF3, "pll_lock_losses", Count},
		{itemNANDWritten, "nand_bytes_written", Units}, {itemHostWritten, "host_bytes_written", Units},
		{0xF6, "system_area_life_raw", Count}, {0xF9, "firmware_updates", Count},
		{0xFA, "dram_correctable_errors", Count}, {0xFB, "dram_uncorrectable_errors", Count},
		{0xFC, "xor_passes", Count}, {0xFD, "xor_fails", Count}, {0xFE, "xor_uses", Count},
		{0xE5, "reads_in_flight", Count}, {0xE6, "writes_in_flight", Count}, {0xF8, "nand_bytes_read", Units},
		{0xE7, "temperature_raw", Count}, {0xE8, "power_raw", Count}, {0xAF, "power_on_temperature_raw", Count},
		{0xEB, "thermal_throttle_time_raw", Count}, {0xEC, "power_loss_protection_raw", Count}, {0xED, "free_superblocks", Count},
	}
}

func memblazeV3() []Item {
	return []Item{
		{0xAB, "program_fails", Count}, {0xAC, "erase_fails", Count}, {itemEraseCounts, "erase_counts", EraseCounts},
		{0xDF, "end_to_end_errors_raw", Count}, {0xC7, "crc_errors", Count},
		{itemNANDWritten, "nand_bytes_written", Units}, {itemHostWritten, "host_bytes_written", Units},
		{0xD0, "reallocated_sectors", Count}, {0xD1, "uncorrectable_sectors", Count},
		{0xD2, "nand_uncorrectable_errors", Count}, {0xD3, "nand_xor_corrections", Count}, {0xD4, "garbage_collections", Count},
		{0xDA, "die_fails", Count}, {0xDB, "wear_levellings", Count}, {0xDC, "read_disturbs", Count},
		{0xDD, "data_retentions", Count}, {0xDE, "capacitor_health", Count},
	}
}

// ymtcItems are those of Memblaze's version 0, in the same places (nvme-cli
// plugins/ymtc, ymtc-utils.h); bytes read from NAND are FAh.
func ymtcItems() []Item { return firstItems() }

// firstItems are those that Memblaze's version 0 and YMTC share.
func firstItems() []Item {
	return []Item{
		{0xAB, "program_fails", Count}, {0xAC, "erase_fails", Count}, {itemEraseCounts, "erase_counts", EraseCounts},
		{0xB8, "end_to_end_errors", Count}, {0xC7, "crc_errors", Count}, {0xE2, "workload_media_wear_raw", Count},
		{0xE3, "workload_host_reads_raw", Count}, {0xE4, "workload_timer_raw", Count}, {0xEA, "thermal_throttle_raw", Count},
		{0xF0, "retry_buffer_overflows", Count}, {0xF3, "pll_lock_losses", Count},
		{itemNANDWritten, "nand_bytes_written", Units}, {itemHostWritten, "host_bytes_written", Units},
		{0xF6, "system_area_life_raw", Count}, {0xFA, "nand_bytes_read", Units},
		{0xE7, "temperature_raw", Count}, {0xE8, "power_raw", Count}, {0xAF, "power_on_temperature_raw", Count},
		{0xEC, "power_loss_protection_raw", Count}, {0xF2, "read_fails", Count},
		{0xEB, "thermal_throttle_time_raw", Count}, {0xED, "flash_media_errors", Count},
	}
}

// Lookup finds the layouts of a vendor's health log; none is an empty slice.
func Lookup(vendorID uint16) []Log {
	var found []Log
	for _, l := range Logs() {
		if l.VendorID == vendorID {
			found = append(found, l)
		}
	}
	return found
}

// LookupName finds a layout by its name.
func LookupName(name string) (Log, bool) {
	for _, l := range Logs() {
		if l.Name == name {
			return l, true
		}
	}
	return Log{}, false
}

// Value is one item of a log as it was read.
type Value struct {
	ID uint8 `json:"id"`
	// Name is empty for items that the table does not know.
	Name string `json:"name,omitempty"`
	// Normalised is the vendor's 0..100.
	Normalised uint8 `json:"normalised_percent"`
	// Raw is the 48-bit value as it stands on the wire.
	Raw uint64 `json:"raw"`
}

// Wear is the minimum, maximum and average erase count of the blocks; 65535 may
// be a counter that stuck.
type Wear struct {
	Min uint16 `json:"min"`
	Max uint16 `json:"max"`
	Avg uint16 `json:"avg"`
}

// Health is a vendor health log in domain values.
type Health struct {
	Layout      string `json:"layout"`
	VendorID    uint16 `json:"vendor_id"`
	Version     uint8  `json:"version"`
	UnitBytes   uint64 `json:"unit_bytes"`
	UnitAssumed bool   `json:"unit_assumed"`
	// Verified is false where no fixture of a real drive fixes the unit.
	Verified   bool   `json:"verified"`
	Provenance string `json:"provenance"`
	// NANDWrittenBytes and HostWrittenBytes are multiples of UnitBytes, so their
	// ratio is only good over many units.
	NANDWrittenBytes nvmespec.Uint128               `json:"nand_written_bytes"`
	HostWrittenBytes nvmespec.Uint128               `json:"host_written_bytes"`
	NANDReadBytes    nvmespec.Opt[nvmespec.Uint128] `json:"nand_read_bytes"`
	EraseCounts      nvmespec.Opt[Wear]             `json:"erase_counts"`
	// Items are all items in the order of the log.
	Items []Value `json:"items"`
}

// Decode reads a vendor health log. Which layout it is follows from the vendor,
// the log's number and, where it has one, the version byte; bytes that do not
// have the structure are an error.
func Decode(vendorID uint16, id nvmespec.LogID, b []byte) (Health, error) {
	what := fmt.Sprintf("log 0x%02x of vendor 0x%04x", uint8(id), vendorID)
	var known bool
	for _, l := range Logs() {
		if l.VendorID != vendorID || l.LogID != id {
			continue
		}
		known = true
		if len(b) <= versionOffset {
			return Health{}, fmt.Errorf("%s: %w: have %d, need at least %d", what, nvmespec.ErrShort, len(b), versionOffset+1)
		}
		if !l.Versioned || b[versionOffset] == l.Version {
			return l.decode(what, b)
		}
	}
	if known {
		return Health{}, fmt.Errorf("%s: %w: version %d", what, ErrUnknownLog, b[versionOffset])
	}
	return Health{}, fmt.Errorf("%s: %w", what, ErrUnknownLog)
}

// decode reads b as layout l. The structure check: no item twice, and both
// amounts written are there.
func (l Log) decode(what string, b []byte) (Health, error) {
	h := l.empty()
	var seen [256]bool
	for off := 0; off+l.ItemBytes <= versionOffset && len(h.Items) < l.slots(); off += l.ItemBytes {
		v := l.item(b[off : off+l.ItemBytes])
		if v.ID == 0 {
			continue // an unused slot
		}
		if seen[v.ID] {
			return Health{}, fmt.Errorf("%s: %w: item 0x%02x twice", what, nvmespec.ErrInvalidData, v.ID)
		}
		seen[v.ID] = true
		h.Items = append(h.Items, v)
	}
	if !seen[itemNANDWritten] || !seen[itemHostWritten] {
		return Health{}, fmt.Errorf("%s: %w: no amount written, not a log of layout %s", what, nvmespec.ErrInvalidData, l.Name)
	}
	h.summarise(l)
	return h, nil
}

// empty is a log of this layout without items.
func (l Log) empty() Health {
	return Health{Layout: l.Name, VendorID: l.VendorID, Version: l.Version, UnitBytes: l.UnitBytes,
		UnitAssumed: l.UnitAssumed, Verified: l.Verified, Provenance: l.Provenance}
}

// slots is how many items fit.
func (l Log) slots() int { return versionOffset / l.ItemBytes }

// rawOffset is where the raw value lies in an item; the normalised value lies two
// bytes before in items of 12 bytes and one before in items of 10.
func (l Log) rawOffset() (normalised, raw int) {
	if l.ItemBytes == 10 {
		return 1, 2
	}
	return 3, 5
}

// item reads one item.
func (l Log) item(b []byte) Value {
	norm, raw := l.rawOffset()
	v := Value{ID: b[0], Normalised: b[norm]}
	for i := range 6 {
		v.Raw |= uint64(b[raw+i]) << (8 * i)
	}
	if it, ok := l.find(v.ID); ok {
		v.Name = it.Name
	}
	return v
}

func (l Log) find(id uint8) (Item, bool) {
	for _, it := range l.Items {
		if it.ID == id {
			return it, true
		}
	}
	return Item{}, false
}

// summarise sets the named values from the items.
func (h *Health) summarise(l Log) {
	for _, v := range h.Items {
		it, _ := l.find(v.ID)
		amount := nvmespec.U128(v.Raw).Mul64(l.UnitBytes)
		switch {
		case v.ID == itemNANDWritten:
			h.NANDWrittenBytes = amount
		case v.ID == itemHostWritten:
			h.HostWrittenBytes = amount
		case it.Kind == Units:
			h.NANDReadBytes = nvmespec.Some(amount)
		case it.Kind == EraseCounts:
			h.EraseCounts = nvmespec.Some(Wear{Min: uint16(v.Raw), Max: uint16(v.Raw >> 16), Avg: uint16(v.Raw >> 32)})
		}
	}
}

// Append appends the log in its layout, from Items alone; the named values are
// read from there too. A layout that is not in the table is an error.
func (h Health) Append(b []byte) ([]byte, error) {
	l, ok := LookupName(h.Layout)
	if !ok {
		return b, fmt.Errorf("layout %q: %w", h.Layout, ErrUnknownLog)
	}
	if len(h.Items) > l.slots() {
		return b, fmt.Errorf("layout %s: %w: %d items, %d fit", l.Name, nvmespec.ErrInvalidData, len(h.Items), l.slots())
	}
	n := len(b)
	b = append(b, make([]byte, l.SizeBytes)...)
	page := b[n:]
	norm, raw := l.rawOffset()
	for i, v := range h.Items {
		it := page[i*l.ItemBytes : (i+1)*l.ItemBytes]
		it[0], it[norm] = v.ID, v.Normalised
		for k := range 6 {
			it[raw+k] = byte(v.Raw >> (8 * k))
		}
	}
	if l.Versioned {
		page[versionOffset] = l.Version
	}
	return b, nil
}

// Counters is what a simulated drive has to tell in a vendor log.
type Counters struct {
	NANDWrittenBytes nvmespec.Uint128
	HostWrittenBytes nvmespec.Uint128
	NANDReadBytes    nvmespec.Uint128
	EraseCounts      Wear
	// HealthPercent goes into the normalised value of the erase counts.
	HealthPercent uint8
}

// Health builds a log of this layout from counters: every known item, those
// without a counter 0. Amounts are rounded down to units.
func (l Log) Health(c Counters) Health {
	h := l.empty()
	units := func(n nvmespec.Uint128) uint64 {
		q, _ := n.DivMod64(l.UnitBytes)
		if v, ok := q.Uint64(); ok && v < 1<<48 {
			return v
		}
		return 1<<48 - 1
	}
	for _, it := range l.Items {
		v := Value{ID: it.ID, Name: it.Name, Normalised: 100}
		switch {
		case it.ID == itemNANDWritten:
			v.Raw = units(c.NANDWrittenBytes)
		case it.ID == itemHostWritten:
			v.Raw = units(c.HostWrittenBytes)
		case it.Kind == Units:
			v.Raw = units(c.NANDReadBytes)
		case it.Kind == EraseCounts:
			v.Normalised = c.HealthPercent
			v.Raw = uint64(c.EraseCounts.Min) | uint64(c.EraseCounts.Max)<<16 | uint64(c.EraseCounts.Avg)<<32
		}
		h.Items = append(h.Items, v)
	}
	h.summarise(l)
	return h
}

// Kinds are the kinds of raw dumps that DecodeKind reads: those of nvmespec and
// the vendor logs.
func Kinds() []string {
	kinds := nvmespec.Kinds()
	for _, p := range Pages() {
		kinds = append(kinds, p.Name)
	}
	return kinds
}

// DecodeKind reads a raw dump of a kind of Kinds into a value for JSON.
func DecodeKind(kind string, b []byte) (any, error) {
	for _, p := range Pages() {
		if p.Name == kind {
			return DecodePage(kind, b)
		}
	}
	return nvmespec.DecodeKind(kind, b)
}
