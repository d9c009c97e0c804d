package nvmespec_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

func u128(lo, hi uint64) nvmespec.Uint128 { return nvmespec.Uint128{Lo: lo, Hi: hi} }

func TestSMART_againstOffsetTable(t *testing.T) { // SMART-01: the upper halves are not 0
	p := loadOracle(t).page(t, "nvme_smart_log")
	p.set("critical_warning", 0x15).set("temperature", 263).set("avail_spare", 90).set("spare_thresh", 10)
	p.set("percent_used", 255).set("endu_grp_crit_warn_sumry", 0x0D)
	for i, name := range []string{"data_units_read", "data_units_written", "host_reads", "host_writes", "ctrl_busy_time",
		"power_cycles", "power_on_hours", "unsafe_shutdowns", "media_errors", "num_err_log_entries"} {
		p.set128(name, uint64(1000+i), uint64(1+i))
	}
	p.set("warning_temp_time", 71).set("critical_comp_time", 72)
	p.at("temp_sensor", 0, 0x39, 0x01).at("temp_sensor", 14, 0xFF, 0xFF) // sensors 1 and 8; 2 to 7 absent
	p.set("thm_temp1_trans_count", 81).set("thm_temp2_trans_count", 82).set("thm_temp1_total_time", 83).set("thm_temp2_total_time", 84)
	p.set("op_lifetime_energy_consumed", 1<<40).set("interval_power_measurement", 86)
	want := nvmespec.SMART{
		CriticalWarning: nvmespec.WarningSpare | nvmespec.WarningReliability | nvmespec.WarningBackupFailed,
		Temperature:     some[nvmespec.Celsius](-10), SparePercent: 90, SpareThresholdPercent: 10, UsedPercent: 255,
		EnduranceGroupWarning: 0x0D,
		DataUnitsRead:         u128(1000, 1), DataUnitsWritten: u128(1001, 2), HostReads: u128(1002, 3), HostWrites: u128(1003, 4),
		BusyMinutes: u128(1004, 5), PowerCycles: u128(1005, 6), PowerOnHours: u128(1006, 7), UnsafeShutdowns: u128(1007, 8),
		MediaErrors: u128(1008, 9), ErrorLogEntries: u128(1009, 10),
		WarningTemperatureMinutes: 71, CriticalTemperatureMinutes: 72,
		ThermalTransitions: [2]uint32{81, 82}, ThermalSeconds: [2]uint32{83, 84},
		LifetimeEnergyRaw: 1 << 40, IntervalPowerRaw: 86,
	}
	want.Sensors[0], want.Sensors[7] = some[nvmespec.Celsius](40), some[nvmespec.Celsius](65535-273)
	got, err := nvmespec.DecodeSMART(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if got.HealthPercent() != 0 {
		t.Errorf("health at 255 %% used: %d", got.HealthPercent())
	}
}

func TestSMART_meaning(t *testing.T) {
	base := nvmespec.SMART{Temperature: some[nvmespec.Celsius](30)}
	if _, err := nvmespec.DecodeSMART(make([]byte, 512)); !errors.Is(err, nvmespec.ErrInvalidData) { // LOG-01
		t.Errorf("all zero: %v", err)
	}
	if _, err := nvmespec.DecodeSMART(make([]byte, 511)); !errors.Is(err, nvmespec.ErrShort) { // SMART-19
		t.Errorf("short: %v", err)
	}
	if base.SpareReported() || base.SpareLow() { // SMART-15
		t.Error("spare 0 of threshold 0 is not reported, not exhausted")
	}
	low := base
	low.SparePercent, low.SpareThresholdPercent = 5, 10
	if !low.SpareReported() || !low.SpareLow() {
		t.Error("spare 5 of threshold 10 is low")
	}
	units := base // SMART-11: 512000 bytes whatever the format
	units.DataUnitsWritten = u128(116_375_603, 0)
	if got := units.BytesWritten(); got != u128(116_375_603*512_000, 0) {
		t.Errorf("bytes written %s", got)
	}
	b, err := json.Marshal(units) // SMART-13, SMART-04
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sensors_celsius":[null,null,`, `"data_units_written":"116375603"`, `"temperature_celsius":30`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("JSON lacks %s: %s", want, b)
		}
	}
	for kelvin, want := range map[uint16]int{1: -272, 263: -10, 273: 0, 313: 40, 65535: 65262} { // SMART-05, SMART-07
		p := loadOracle(t).page(t, "nvme_smart_log").set("temperature", uint64(kelvin))
		s, err := nvmespec.DecodeSMART(p.b)
		if got, ok := s.Temperature.Get(); err != nil || !ok || int(got) != want || got.Kelvin() != kelvin {
			t.Errorf("%d K is %d C, want %d", kelvin, got, want)
		}
	}
}

func TestErrorEntry_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_error_log_page")
	p.set("error_count", 1<<40).set("sqid", 0x0102).set("cmdid", 0x0304).set("status_field", 0x4115<<1|1)
	p.set("parm_error_location", 0x0528).set("lba", 1<<41).set("nsid", 0x01020304).set("vs", 0xCA).set("trtype", 3)
	p.set("csi", 0x02).set("opcode", 0x0D).set("cs", 6_401_252_745_216).set("trtype_spec_info", 0x0708)
	want := nvmespec.ErrorEntry{Count: 1 << 40, QueueID: 0x0102, CommandID: 0x0304, Status: 0x4115,
		ParameterByte: some[uint8](0x28), ParameterBit: 5, LBA: 1 << 41, NSID: 0x01020304, VendorLog: 0xCA,
		TransportType: 3, CommandSpecific: 6_401_252_745_216, TransportSpecific: 0x0708}
	got, err := nvmespec.DecodeErrorEntry(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("version 0 has no opcode: %v\n%s", err, d)
	}
	p.set("log_page_version", 1)
	want.LogVersion, want.CommandSet, want.Opcode = 1, some[uint8](2), some[uint8](0x0D)
	if got, err = nvmespec.DecodeErrorEntry(p.b); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("version 1: %v\n%s", err, cmp.Diff(want, got))
	}
	p.set("status_field", 0x4115<<1) // the phase tag is not ours to write
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if !errors.Is(got.Status.Err(), nvmespec.ErrInsufficientCapacity) {
		t.Errorf("status %v", got.Status)
	}
}

func TestErrorLog_unused(t *testing.T) {
	e := nvmespec.ErrorEntry{Count: 7, Status: 2, ParameterByte: some[uint8](0)}
	b := nvmespec.AppendErrorLog(nil, []nvmespec.ErrorEntry{e}, 4)
	if len(b) != 256 {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := nvmespec.DecodeErrorLog(append(b, 1, 2, 3)) // a rest shorter than an entry
	if d := cmp.Diff([]nvmespec.ErrorEntry{e}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if _, err := nvmespec.DecodeErrorLog(make([]byte, 63)); !errors.Is(err, nvmespec.ErrShort) {
		t.Errorf("short: %v", err)
	}
}

func TestFirmwareSlots_againstOffsetTable(t *testing.T) { // FW-20, FW-25
	p := loadOracle(t).page(t, "nvme_firmware_slot").set("afi", 0x32)
	p.at("frs", 0, []byte("1.0     ")...).at("frs", 8, []byte("0A403300")...).at("frs", 16, []byte("        ")...).at("frs", 48, []byte("seventh ")...)
	want := nvmespec.FirmwareSlots{Active: 2, Next: 3, Revisions: [7]string{"1.0", "0A403300", "", "", "", "", "seventh"}}
	got, err := nvmespec.DecodeFirmwareSlots(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	p.at("frs", 16, make([]byte, 8)...) // written as NULs
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}

func TestEffects_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	p := o.page(t, "nvme_cmd_effects_log")
	p.at("acs", 4*0x80, 0x07, 0, 0x02, 0).at("acs", 4*255, 1, 0, 0, 0).at("iocs", 4*1, 0x03, 0, 0, 0)
	var want nvmespec.Effects
	want.Admin[0x80] = (nvmespec.EffectSupported | nvmespec.EffectContent | nvmespec.EffectNamespaceCapabilities).WithExclusion(2)
	want.Admin[255] = nvmespec.EffectSupported
	want.IO[1] = nvmespec.EffectSupported | nvmespec.EffectContent
	got, err := nvmespec.DecodeEffects(p.b)
	if got != want || err != nil {
		t.Errorf("decode: %v\n%s", err, cmp.Diff(want, got))
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	b, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(b), `{"opcode":128,"name":"format NVM","logical_block_content_change":true,"namespace_capability_change":true,"namespace_inventory_change":false,"controller_capability_change":false,"submission_exclusion":2,"raw":131079}`) {
		t.Errorf("JSON: %v %s", err, b)
	}
}

func TestEnduranceGroup_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_endurance_group_log")
	p.set("critical_warning", 0x08).set("endurance_group_features", 1).set("avl_spare", 99).set("avl_spare_threshold", 7)
	p.set("percent_used", 101).set("domain_identifier", 0x0102)
	for i, name := range []string{"endurance_estimate", "data_units_read", "data_units_written", "media_units_written",
		"host_read_cmds", "host_write_cmds", "media_data_integrity_err", "num_err_info_log_entries", "total_end_grp_cap", "unalloc_end_grp_cap"} {
		p.set128(name, uint64(100+i), uint64(i))
	}
	want := nvmespec.EnduranceGroup{CriticalWarning: nvmespec.WarningReadOnly, Features: 1, SparePercent: 99, SpareThresholdPercent: 7,
		UsedPercent: 101, DomainID: 0x0102, EstimateGB: u128(100, 0), ReadGB: u128(101, 1), WrittenGB: u128(102, 2),
		MediaWrittenGB: u128(103, 3), HostReads: u128(104, 4), HostWrites: u128(105, 5), MediaErrors: u128(106, 6),
		ErrorLogEntries: u128(107, 7), TotalCapacityBytes: u128(108, 8), UnallocatedCapacityBytes: u128(109, 9)}
	got, err := nvmespec.DecodeEnduranceGroup(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	g := nvmespec.EnduranceGroup{MediaWrittenGB: u128(17_316, 0), WrittenGB: u128(5_357, 0)}
	if g.MediaBytesWritten() != u128(17_316_000_000_000, 0) || g.BytesWritten() != u128(5_357_000_000_000, 0) {
		t.Errorf("the unit is 10^9 bytes: %s, %s", g.MediaBytesWritten(), g.BytesWritten())
	}
	if _, err := nvmespec.DecodeEnduranceGroup(make([]byte, 512)); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("all zero: %v", err)
	}
}

func TestOCPHealth_againstOffsetTable(t *testing.T) { // LOG-13
	o := loadOracle(t)
	p := o.page(t, "ocp_c0")
	p.set128("pmuw", 1, 2).set128("pmur", 3, 4).set("bad_user_raw", 0x010203040506).set("bad_user_norm", 0x0708)
	p.set("bad_sys_raw", 0x111213141516).set("bad_sys_norm", 0x1718).set("xor", 21).set("uecc", 22).set("soft_ecc", 23)
	p.set("e2e_det", 24).set("e2e_corr", 25).set("sys_used", 26).set("refresh", 0x31323334353637).set("erase_max", 41).set("erase_min", 42)
	p.set("throttle_events", 43).set("throttle_status", 44).set("pcie_corr", 45).set("incomplete_shutdowns", 46).set("free_blocks", 47)
	p.set("cap_health", 114).set("unaligned", 51).set("svn", 52).set("nuse", 53).set128("plp_starts", 54, 55)
	p.set128("endurance_estimate", 56, 57).set("link_retrain", 58).set("ps_changes", 59).set("erase_avg", 61).set("version", 4)
	p.at("guid", 0, 0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF)
	want := nvmespec.OCPHealth{Layout: nvmespec.OCPDatacenter, Version: 4, PhysicalBytesWritten: u128(1, 2), PhysicalBytesRead: u128(3, 4),
		BadUserBlocks: 0x010203040506, BadUserBlocksNormalised: 0x0708, BadSystemBlocks: 0x111213141516, BadSystemBlocksNormalised: 0x1718,
		XORRecoveries: 21, UncorrectableReads: 22, SoftECCErrors: 23, EndToEndDetected: 24, EndToEndCorrected: 25, SystemDataUsedPercent: 26,
		Refreshes: 0x31323334353637, EraseCountMax: 41, EraseCountMin: 42, EraseCountAvg: 61, ThermalThrottles: 43, ThermalThrottleStatus: 44,
		PCIeCorrectableErrors: 45, IncompleteShutdowns: 46, FreeBlocksPercent: 47, CapacitorHealthPercent: some[uint16](114),
		UnalignedIO: 51, SecurityVersion: 52, UsedBlocks: 53, PLPStarts: u128(54, 55), EstimateBytes: u128(56, 57), LinkRetrains: 58, PowerStateChanges: 59}
	got, err := nvmespec.DecodeOCPHealth(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if p.set("cap_health", 0xFFFF); true {
		if got, _ = nvmespec.DecodeOCPHealth(p.b); got.CapacitorHealthPercent.OK {
			t.Error("FFFFh is not reported")
		}
	}
	p.set("version", 0)
	if _, err := nvmespec.DecodeOCPHealth(p.b); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("version 0: %v", err)
	}
	p.set("version", 4).at("guid", 3, 0x29)
	if _, err := nvmespec.DecodeOCPHealth(p.b); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("unknown GUID: %v", err)
	}
}

func TestOCPHealth_hyperscale(t *testing.T) {
	p := loadOracle(t).page(t, "hyperscale_c0")
	p.set128("pmuw_tlc", 1, 2).set128("pmuw_slc", 3, 4).set("bad_user_norm", 0x0102).set("bad_user_raw", 0x111213141516)
	p.set("xor", 21).set("uecc", 22).set("e2e_corr", 1<<40).set("e2e_det", 1<<41).set("sys_used", 23)
	p.set("erase_min", 31).set("erase_max", 32).set("erase_avg", 33).set("pcie_corr", 34).set("free_blocks", 35).set("svn", 36).set("nuse", 37)
	p.set("soft_ecc", 38).set("refresh", 1<<60).set("bad_sys_norm", 41).set("bad_sys_raw", 42).set128("endurance_estimate", 5, 6)
	p.set("throttle_events", 0x0304).set("unaligned", 43).set128("pmur", 7, 8).set("link_retrain", 44).set("ps_changes", 45).set("version", 1)
	p.at("guid", 0, 0x65, 0x43, 0x88, 0x78, 0xAC, 0xD8, 0x78, 0xA1, 0x66, 0x42, 0x1E, 0x0F, 0x92, 0xD7, 0x6D, 0xC4)
	want := nvmespec.OCPHealth{Layout: nvmespec.OCPHyperscale, Version: 1, PhysicalBytesWritten: u128(1, 2), SLCBytesWritten: some(u128(3, 4)),
		PhysicalBytesRead: u128(7, 8), BadUserBlocks: 0x111213141516, BadUserBlocksNormalised: 0x0102, BadSystemBlocks: 42, BadSystemBlocksNormalised: 41,
		XORRecoveries: 21, UncorrectableReads: 22, SoftECCErrors: 38, EndToEndDetected: 1 << 41, EndToEndCorrected: 1 << 40, SystemDataUsedPercent: 23,
		Refreshes: 1 << 60, EraseCountMin: 31, EraseCountMax: 32, EraseCountAvg: 33, ThermalThrottles: 0x0304, PCIeCorrectableErrors: 34,
		FreeBlocksPercent: 35, UnalignedIO: 43, SecurityVersion: 36, UsedBlocks: 37, EstimateBytes: u128(5, 6), LinkRetrains: 44, PowerStateChanges: 45}
	got, err := nvmespec.DecodeOCPHealth(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if got.MediaBytesWritten() != u128(4, 6) {
		t.Errorf("TLC and SLC together: %s", got.MediaBytesWritten())
	}
}

func TestChangedNamespaces_isANamespaceList(t *testing.T) {
	b := nvmespec.AppendNamespaceList(nil, []uint32{3, 9})
	v, err := nvmespec.DecodeKind("changed-ns", b)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := v.(nvmespec.NamespaceList); !ok || !slices.Equal(l.NSIDs, []uint32{3, 9}) {
		t.Errorf("%#v", v)
	}
}
