package nvmespec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

func TestPersistentHeader_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_persistent_event_log")
	p.set("lid", 0x0D).set("tnev", 7).set("tll", 1<<33).set("rv", 3).set("lhl", 492).set("ts", 0x02_0000_0000_1234).set128("poh", 5, 6).set("pcc", 8)
	p.set("vid", 0x1C5F).set("ssvid", 0x1E49).text("sn", "SN1", ' ').text("mn", "MODEL", ' ').text("subnqn", "nqn.x", 0).set("gen_number", 9).set("rci", 1<<18)
	p.at("seb", 1, 0x80)
	h := nvmespec.PersistentHeader{Events: 7, TotalBytes: 1 << 33, Revision: 3, HeaderBytes: 512,
		Time: nvmespec.Timestamp{Milliseconds: 0x1234, Origin: 1}, PowerOnHours: u128(5, 6), PowerCycles: 8, VendorID: 0x1C5F, SubsystemVendorID: 0x1E49,
		SerialNumber: "SN1", ModelNumber: "MODEL", SubsystemNQN: "nqn.x", Generation: 9, ReportingContext: 1 << 18}.WithSupported(15)
	p.set("ts", 0x1234).at("ts", 6, 2) // the attributes are byte 6
	both(t, p, h, nvmespec.DecodePersistentHeader)
	for what, change := range map[string]func(){"another log": func() { p.set("lid", 2) }, "shorter than its header": func() { p.set("lid", 0x0D).set("tll", 511) }} {
		change()
		if _, err := nvmespec.DecodePersistentHeader(p.b); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// wireEvent is an event written by the table alone; extra lengthens its header,
// as later revisions may.
func wireEvent(t testing.TB, o oracle, typ uint64, extra int, vendor, data []byte) []byte {
	p := o.page(t, "nvme_persistent_event_entry")
	p.set("etype", typ).set("etype_rev", 2).set("ehl", uint64(21+extra)).set("ehai", 1).set("cntlid", 0x21).set("ets", 99).at("ets", 6, 2)
	p.set("pelpid", 3).set("vsil", uint64(len(vendor))).set("el", uint64(len(vendor)+len(data)))
	return bytes.Join([][]byte{p.b, make([]byte, extra), vendor, data}, nil)
}

// events are one of each type, written by the table, and what they mean.
func events(t testing.TB, o oracle) map[nvmespec.EventType]struct {
	wire []byte
	want any
} {
	type pair = struct {
		wire []byte
		want any
	}
	fw := o.page(t, "nvme_fw_commit_event").text("old_fw_rev", "OLD", ' ').text("new_fw_rev", "NEW12345", ' ').set("fw_commit_action", 3).set("fw_slot", 2).
		set("sct_fw", 1).set("sc_fw", 0x0B).set("vndr_assign_fw_commit_rc", 0x7788)
	ts := o.page(t, "nvme_time_stamp_change_event").set("previous_timestamp", 55).set("ml_secs_since_reset", 1<<34)
	por := o.page(t, "nvme_power_on_reset_info_list").set("cid", 4).set("fw_act", 1).set("op_in_prog", 2).set("ctrl_power_cycle", 77).
		set("power_on_ml_seconds", 88).set("ctrl_time_stamp", 99)
	hw := o.page(t, "nvme_nss_hw_err_event").set("nss_hw_err_event_code", 0x0A)
	ns := o.page(t, "nvme_change_ns_event").set("nsmgt_cdw10", 1).set("nsze", 1<<35).set("nscap", 1<<34).set("flbas", 0x35).set("dps", 0x0A).set("nmic", 1).
		set("ana_grp_id", 6).set("nvmset_id", 7).set("nsid", 8)
	fs := o.page(t, "nvme_format_nvm_start_event").set("nsid", 0xFFFFFFFF).set("fna", 5).set("format_nvm_cdw10", 0x201)
	fc := o.page(t, "nvme_format_nvm_compln_event").set("nsid", 2).set("smallest_fpi", 10).set("format_nvm_status", 1).set("compln_info", 9).set("status_field", 0x10A<<1)
	ss := o.page(t, "nvme_sanitize_start_event").set("sani_cap", 7).set("sani_cdw10", 4).set("sani_cdw11", 0xA5)
	sc := o.page(t, "nvme_sanitize_compln_event").set("sani_prog", 0xFFFF).set("sani_status", 0x101).set("cmpln_info", 3)
	sf := o.page(t, "nvme_set_feature_event").set("layout", 2|1<<3|4<<16)
	th := o.page(t, "nvme_thermal_exc_event").set("over_temp", 12).set("threshold", 1)
	smart := o.page(t, "nvme_smart_log").set("temperature", 300)
	tel := o.page(t, "nvme_telemetry_log").set("lpi", 7).set("hostdgn", 3)
	return map[nvmespec.EventType]pair{
		1: {smart.b, nvmespec.SMART{Temperature: some[nvmespec.Celsius](27)}},
		2: {fw.b, nvmespec.FirmwareCommitEvent{OldRevision: "OLD", NewRevision: "NEW12345", Action: 3, Slot: 2, Status: 0x10B, VendorCode: 0x7788}},
		3: {ts.b, nvmespec.TimestampEvent{Previous: nvmespec.Timestamp{Milliseconds: 55}, SinceResetMilliseconds: 1 << 34}},
		4: {append([]byte("FW 1    "), por.b...), nvmespec.ResetEvent{FirmwareRevision: "FW 1", Controllers: []nvmespec.ResetInformation{
			{ControllerID: 4, FirmwareActivated: true, OperationInProgress: 2, PowerCycle: 77, PowerOnMilliseconds: 88, Time: nvmespec.Timestamp{Milliseconds: 99}}}}},
		5: {append(hw.b, 1, 2, 3), nvmespec.HardwareErrorEvent{Code: 0x0A, Information: []byte{1, 2, 3}}},
		6: {ns.b, nvmespec.NamespaceEvent{Command: 1, NSID: 8, SizeBlocks: 1 << 35, CapacityBlocks: 1 << 34, FormatIndex: 0x15, MetadataExtended: true,
			Protection: nvmespec.Protection{Type: 2, First: true}, Shared: true, ANAGroupID: 6, NVMSetID: 7}},
		7:  {fs.b, nvmespec.FormatStartEvent{NSID: 0xFFFFFFFF, Attributes: 5, Command: 0x201}},
		8:  {fc.b, nvmespec.FormatDoneEvent{NSID: 2, SmallestRemainingPercent: 10, FormatStatus: 1, Information: 9, Status: 0x10A}},
		9:  {ss.b, nvmespec.SanitizeStartEvent{Capabilities: 7, Command: 4, Pattern: 0xA5}},
		10: {sc.b, nvmespec.SanitizeDoneEvent{Progress: 0xFFFF, Status: 0x101, State: nvmespec.SanitizeDone, Information: 3}},
		11: {append(append(sf.b, 0x0E, 0, 0, 0x80, 1, 0, 0, 0), 5, 6, 7, 8, 0x42, 0, 0, 0), nvmespec.SetFeatureEvent{Dwords: []uint32{0x8000000E, 1}, Memory: []byte{5, 6, 7, 8}, Result: some[uint32](0x42)}},
		12: {tel.b, nvmespec.TelemetryHeader{Log: 7, HostGeneration: 3}},
		13: {th.b, nvmespec.ThermalEvent{OverDegrees: 12, Threshold: 1}},
	}
}

func TestEvents_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	for typ, c := range events(t, o) {
		wire := wireEvent(t, o, uint64(typ), 4, []byte{0xAA, 0xBB}, c.wire)
		e, n, err := nvmespec.NextEvent(append(wire, 0xEE))
		if err != nil || n != len(wire) {
			t.Errorf("%s: %d of %d bytes, %v", typ, n, len(wire), err)
			continue
		}
		if e.Type != typ || e.ControllerID != 0x21 || e.PortID != 3 || e.PortType != 1 || e.Time != (nvmespec.Timestamp{Milliseconds: 99, Origin: 1}) || !bytes.Equal(e.Vendor, []byte{0xAA, 0xBB}) {
			t.Errorf("%s: header %+v", typ, e)
		}
		got, err := e.Decode()
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", typ, err, d)
		}
		if a, ok := c.want.(appender); !ok || !bytes.Equal(a.Append(nil), c.wire) {
			t.Errorf("%s: does not encode to the page of the table", typ)
		}
		e.Data = e.Data[:len(e.Data)-1]
		if v, err := e.Decode(); typ != nvmespec.EventHardwareError && typ != nvmespec.EventPowerOnReset && typ != nvmespec.EventSetFeature && (!errors.Is(err, nvmespec.ErrShort) || v != nil) {
			t.Errorf("%s, a byte short: %v, %v", typ, v, err)
		}
	}
	if v, err := (nvmespec.PersistentEvent{Type: 0xDE, Data: []byte{1}}).Decode(); v != nil || err != nil {
		t.Errorf("vendor's: %v, %v", v, err)
	}
}

// TestPersistentLog_walk: the walk over events is bounded by what is there, not by
// what the drive says (LOG-09).
func TestPersistentLog_walk(t *testing.T) {
	o := loadOracle(t)
	var list []nvmespec.PersistentEvent
	for typ, c := range events(t, o) {
		list = append(list, nvmespec.PersistentEvent{Type: typ, Data: c.wire})
	}
	whole := nvmespec.PersistentLog{Header: nvmespec.PersistentHeader{SerialNumber: "S"}, Events: list}.Append(nil)
	l, err := nvmespec.DecodePersistentLog(whole)
	if err != nil || l.Incomplete != "" || len(l.Events) != len(list) || l.Header.TotalBytes != uint64(len(whole)) {
		t.Fatalf("%d events of %d, %q, %v", len(l.Events), len(list), l.Incomplete, err)
	}
	if j, err := json.Marshal(l); err != nil || !json.Valid(j) || !strings.Contains(string(j), `"thermal-excursion"`) {
		t.Errorf("JSON: %v", err)
	}
	for n := 512; n < len(whole); n += 7 {
		l, err := nvmespec.DecodePersistentLog(whole[:n])
		if err != nil || l.Incomplete == "" || len(l.Events) >= len(list) {
			t.Fatalf("cut at %d: %d events, %q, %v", n, len(l.Events), l.Incomplete, err)
		}
	}
	for what, change := range map[string]func(b []byte){
		"more events than there are": func(b []byte) { b[4], b[7] = 0xFF, 0xFF },
		"an event without a header":  func(b []byte) { b[512+2] = 3 },
		"an endless event":           func(b []byte) { b[512+22], b[512+23] = 0xFF, 0xFF },
		"vendor part above all":      func(b []byte) { b[512+20], b[512+21] = 0xFF, 0xFF },
		"a total below the events":   func(b []byte) { copy(b[8:], []byte{0x10, 2, 0, 0}) },
	} {
		b := bytes.Clone(whole)
		change(b)
		if l, err := nvmespec.DecodePersistentLog(b); err != nil || l.Incomplete == "" {
			t.Errorf("%s: %q, %v", what, l.Incomplete, err)
		}
	}
}
