package namespace

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// Setting is what a spec wants of one field of one feature.
type Setting struct {
	// Path is the field: "features.write_cache.enabled".
	Path string
	// Number is the value in the field's own unit; 0 and 1 for false and true.
	Number int64
	// Text is the value where it is no number: a table of transitions.
	Text string
	// Save wants the value kept over power cycles too.
	Save bool
}

// SettingForm is what the value of a setting looks like.
type SettingForm uint8

// The forms. FormCelsius is a number, or "none" for a threshold that is off.
const (
	FormBoolean SettingForm = iota + 1
	FormNumber
	FormCelsius
	// FormTransitions is a list of {from, to, idle_ms}.
	FormTransitions
	// FormClock is the largest difference, in seconds, between the drive's clock
	// and the host's.
	FormClock
)

// noCelsius is the number of a threshold that is off: 0 Kelvin on the wire.
const noCelsius = -273

// SettingField is one line of the table of settings: a field of a spec, and where
// a feature of the drive holds it.
type SettingField struct {
	// Path is the field; what comes before the last dot is its group, which shares
	// the word "save".
	Path string
	// Doc says what it is, with its unit.
	Doc     string
	Feature nvmespec.FeatureID
	// Vendor is the PCI vendor whose drives have it; 0 for all.
	Vendor uint16
	// Selector is told to Get Features in dword 11, and is part of what is set:
	// which of several thresholds is meant.
	Selector uint32
	// PerNamespace fields belong to each attached namespace.
	PerNamespace bool
	Form         SettingForm
	// Fixed says why the field cannot be set; empty where it can. It is judged
	// all the same.
	Fixed string
	// Min and Max bound the value.
	Min, Max int64

	shift, width uint8
	// The value is wire*scale + offset.
	scale, offset int64
}

// Group is the feature's name in a spec: "features.write_cache".
func (f SettingField) Group() string { return f.Path[:strings.LastIndexByte(f.Path, '.')] }

// Name is the last part of the path.
func (f SettingField) Name() string { return f.Path[strings.LastIndexByte(f.Path, '.')+1:] }

func (f SettingField) key(nsid uint32) FeatureKey {
	return FeatureKey{Feature: f.Feature, Selector: f.Selector, NSID: nsid}
}

// flag, number and celsius make lines of the table.
func flag(path string, id nvmespec.FeatureID, bit uint8, doc string) SettingField {
	return SettingField{Path: path, Doc: doc, Feature: id, Form: FormBoolean, Max: 1, shift: bit, width: 1, scale: 1}
}

func number(path string, id nvmespec.FeatureID, shift, width uint8, scale, offset int64, doc string) SettingField {
	return SettingField{Path: path, Doc: doc, Feature: id, Form: FormNumber, Min: offset, Max: (1<<width-1)*scale + offset,
		shift: shift, width: width, scale: scale, offset: offset}
}

func celsiusField(path string, id nvmespec.FeatureID, shift uint8, selector uint32, doc string) SettingField {
	return SettingField{Path: path, Doc: doc, Feature: id, Form: FormCelsius, Selector: selector, Min: noCelsius, Max: 0xFFFF + noCelsius,
		shift: shift, width: 16, scale: 1, offset: noCelsius}
}

const (
	memblazeVendor = 0x1C5F
	// thresholdUnder is THSEL 1 in dword 11 of feature 04h.
	thresholdUnder = 1 << 20
	driverOwns     = "it belongs to the kernel's driver"
	wearPowerNote  = "PCI vendor 0x1c5f only: those drives take their limit here and not by the power state; 0 is 25 W"
)

// Settings is the table of all settings, in the order in which they are shown and
// set. Features of the host's driver are judged only. Source of the layouts: NVMe
// Base Specification 2.x, "Feature Specific Information", by feature identifier.
func Settings() []SettingField { return slices.Clone(settingTable) }

// settingTable is read only.
var settingTable = makeSettings()

func makeSettings() []SettingField {
	const (
		arb, power, err, cache = nvmespec.FeatureArbitration, nvmespec.FeaturePowerManagement, nvmespec.FeatureErrorRecovery, nvmespec.FeatureWriteCache
		irq, thermal           = nvmespec.FeatureInterruptCoalescing, nvmespec.FeatureHostThermal
	)
	list := []SettingField{
		number("power.state", power, 0, 5, 1, 0, "power state, an operational one"),
		number("power.workload", power, 5, 3, 1, 0, "workload hint, 0 for none"),
		number("power.vendor_limit", nvmespec.FeatureMemblazePower, 0, 5, 1, 0, "vendor power limit (feature C6h); "+wearPowerNote),
		number("features.arbitration.burst_log2", arb, 0, 3, 1, 0, "arbitration burst, a power of two commands; 7 is no limit"),
		number("features.arbitration.low_weight", arb, 8, 8, 1, 1, "commands a round of the low priority class"),
		number("features.arbitration.medium_weight", arb, 16, 8, 1, 1, "commands a round of the medium priority class"),
		number("features.arbitration.high_weight", arb, 24, 8, 1, 1, "commands a round of the high priority class"),
		flag("features.write_cache.enabled", cache, 0, "volatile write cache"),
		flag("features.apst.enabled", nvmespec.FeatureAPST, 0, "autonomous power state transitions; the kernel's driver sets them anew at each reset"),
		{Path: "features.apst.transitions", Doc: "where an idle drive goes from each power state", Feature: nvmespec.FeatureAPST, Form: FormTransitions},
		celsiusField("features.host_thermal.light", thermal, 16, 0, "temperature from which the drive throttles lightly (TMT1), degrees Celsius or none"),
		celsiusField("features.host_thermal.heavy", thermal, 0, 0, "temperature from which the drive throttles heavily (TMT2), degrees Celsius or none"),
		number("features.interrupt_coalescing.threshold", irq, 0, 8, 1, 1, "completions that make an interrupt"),
		number("features.interrupt_coalescing.time_us", irq, 8, 8, 100, 0, "longest delay of an interrupt, microseconds in steps of 100"),
		flag("features.write_atomicity.normal_disabled", nvmespec.FeatureWriteAtomicity, 0, "the host needs no atomicity beyond that of a power failure"),
		flag("features.non_operational_power.permissive", nvmespec.FeatureNonOperational, 0, "background work may exceed a non-operational state's power"),
		flag("features.sanitize.no_deallocate_warns", nvmespec.FeatureSanitizeConfig, 0, "a sanitize that may not deallocate succeeds with a warning"),
		number("features.error_recovery.retry_ms", err, 0, 16, 100, 0, "limit of retries, milliseconds in steps of 100; 0 is no limit"),
		flag("features.error_recovery.deallocated_errors", err, 16, "reading deallocated blocks is an error"),
		{Path: "features.timestamp.skew_seconds_max", Doc: "largest difference between the drive's clock and the host's, seconds", Feature: nvmespec.FeatureTimestamp, Form: FormClock, Min: 1, Max: 1 << 31},
		number("features.queues.submission", nvmespec.FeatureQueueCount, 0, 16, 1, 1, "I/O submission queues; audit only"),
		number("features.queues.completion", nvmespec.FeatureQueueCount, 16, 16, 1, 1, "I/O completion queues; audit only"),
	}
	for i := range list {
		switch f := &list[i]; f.Feature {
		case nvmespec.FeatureMemblazePower:
			f.Vendor = memblazeVendor
		case nvmespec.FeatureErrorRecovery:
			f.PerNamespace = true
		case nvmespec.FeatureQueueCount:
			f.Fixed = driverOwns
		}
	}
	return append(list, thresholds()...)
}

// thresholds are the temperature thresholds: over and under, of the composite
// temperature and of each sensor.
func thresholds() []SettingField {
	const group = "features.temperature_threshold."
	var list []SettingField
	for sensor := range uint32(9) {
		name, what := "", "the composite temperature"
		if sensor > 0 {
			name, what = fmt.Sprintf("sensor%d_", sensor), fmt.Sprintf("sensor %d", sensor)
		}
		list = append(list,
			celsiusField(group+name+"over", nvmespec.FeatureTemperatureThreshold, 0, sensor<<16, "upper threshold of "+what+", degrees Celsius or none"),
			celsiusField(group+name+"under", nvmespec.FeatureTemperatureThreshold, 0, sensor<<16|thresholdUnder, "lower threshold of "+what+", degrees Celsius or none"))
	}
	return list
}

// LookupSetting finds a line of the table by its path.
func LookupSetting(path string) (SettingField, bool) {
	for i := range settingTable {
		if settingTable[i].Path == path {
			return settingTable[i], true
		}
	}
	return SettingField{}, false
}

func (f SettingField) mask() uint32 { return uint32((uint64(1)<<f.width - 1) << f.shift) }

// Read is the field's value in what a drive answered. now is the host's time, for
// a clock.
func (f SettingField) Read(v FeatureValue, now time.Time) (Setting, error) {
	s := Setting{Path: f.Path}
	switch f.Form {
	case FormTransitions:
		a, err := nvmespec.DecodeAPST(v.Dword, v.Data)
		s.Text = transitionsText(a)
		return s, err
	case FormClock:
		t, err := nvmespec.DecodeTimestamp(v.Data)
		if err != nil {
			return s, err
		}
		at, set := t.Time()
		s.Number = int64(now.Sub(at).Abs() / time.Second)
		if !set {
			s.Number = -1 // no host has set the clock since the last reset
		}
		return s, nil
	}
	s.Number = int64(v.Dword&f.mask()>>f.shift)*f.scale + f.offset
	return s, nil
}

// Put is a feature's value with this field changed. now is what a clock is set to.
func (f SettingField) Put(v FeatureValue, want Setting, now time.Time) (FeatureValue, error) {
	v.Data = slices.Clone(v.Data)
	switch f.Form {
	case FormTransitions:
		a, err := parseTransitions(want.Text)
		if err != nil {
			return v, err
		}
		a.Enabled = v.Dword&1 != 0
		v.Data = a.Append(nil)
		return v, nil
	case FormClock:
		v.Dword, v.Data = 0, nvmespec.Timestamp{Milliseconds: uint64(now.UnixMilli()) & (1<<48 - 1)}.Append(nil)
		return v, nil
	}
	if f.Feature == nvmespec.FeatureTemperatureThreshold {
		v.Dword &= 0xFFFF
	}
	wire := uint32((want.Number-f.offset)/f.scale) << f.shift
	v.Dword = v.Dword&^f.mask() | wire&f.mask() | f.Selector
	return v, nil
}

// Same says that a value read satisfies the one wanted.
func (f SettingField) Same(want, found Setting) bool {
	switch f.Form {
	case FormTransitions:
		return want.Text == found.Text
	case FormClock:
		return found.Number >= 0 && found.Number <= want.Number
	}
	return want.Number == found.Number
}

// Format is a value for people and for YAML.
func (f SettingField) Format(s Setting) string {
	switch {
	case f.Form == FormBoolean:
		return strconv.FormatBool(s.Number != 0)
	case f.Form == FormCelsius && s.Number == noCelsius:
		return "none"
	case f.Form == FormTransitions && s.Text == "":
		return "none"
	case f.Form == FormTransitions:
		return s.Text
	case f.Form == FormClock && s.Number < 0:
		return "never set since the last reset"
	}
	return strconv.FormatInt(s.Number, 10)
}

// transitionsText is a table in one line: "0>3@100ms 1>3@100ms".
func transitionsText(a nvmespec.APST) string {
	var parts []string
	for from, t := range a.Transitions {
		if t.Target != 0 || t.IdleMilliseconds != 0 {
			parts = append(parts, fmt.Sprintf("%d>%d@%dms", from, t.Target, t.IdleMilliseconds))
		}
	}
	return strings.Join(parts, " ")
}

func parseTransitions(text string) (nvmespec.APST, error) {
	var a nvmespec.APST
	for part := range strings.FieldsSeq(text) {
		var from, to uint8
		var idle uint32
		if _, err := fmt.Sscanf(part, "%d>%d@%dms", &from, &to, &idle); err != nil || from > 31 || to > 31 || idle > 0xFFFFFF {
			return a, fmt.Errorf("%q is no transition between power states", part)
		}
		a.Transitions[from] = nvmespec.APSTTransition{Target: to, IdleMilliseconds: idle}
	}
	return a, nil
}

// FeatureKey names one value of a feature.
type FeatureKey struct {
	Feature nvmespec.FeatureID `json:"fid"`
	// Selector is dword 11 of Get Features.
	Selector uint32 `json:"selector,omitempty"`
	// NSID is 0 for a feature of the controller.
	NSID uint32 `json:"nsid,omitempty"`
}

func (k FeatureKey) compare(o FeatureKey) int {
	return cmp.Or(cmp.Compare(k.Feature, o.Feature), cmp.Compare(k.Selector, o.Selector), cmp.Compare(k.NSID, o.NSID))
}

// FeatureValue is a feature's dword and data.
type FeatureValue struct {
	Dword uint32   `json:"dword"`
	Data  HexBytes `json:"data,omitempty"`
}

// HexBytes are bytes that JSON shows in hexadecimal.
type HexBytes []byte

// MarshalText implements encoding.TextMarshaler.
func (b HexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(b)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *HexBytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

// FeatureReading is one value of a feature as it was read.
type FeatureReading struct {
	FeatureKey
	Name string `json:"name"`
	// Current is nil where it could not be read; Error says why.
	Current *FeatureValue `json:"current,omitempty"`
	// Saved is nil where it was not asked for or cannot be told.
	Saved *FeatureValue `json:"saved,omitempty"`
	Error string        `json:"error,omitempty"`
	// Unsupported says that the drive does not have the feature.
	Unsupported bool `json:"unsupported,omitempty"`
}

// Feature finds a reading.
func (inv Inventory) Feature(k FeatureKey) (FeatureReading, bool) {
	for _, f := range inv.Features {
		if f.FeatureKey == k {
			return f, true
		}
	}
	return FeatureReading{}, false
}
