package nvmespec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

// both holds a decoder and its encoder against a page written by the table of
// offsets alone.
func both[T appender](t *testing.T, p *rawPage, want T, decode func([]byte) (T, error)) {
	t.Helper()
	got, err := decode(p.b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("decode: %v\n%s", err, d)
	}
	if d := p.diff(want.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if _, err := decode(p.b[:len(p.b)-1]); !errors.Is(err, nvmespec.ErrShort) {
		t.Errorf("one byte short: %v", err)
	}
}

func TestSelfTestLog_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	one := o.page(t, "nvme_st_result")
	one.set("dsts", 2<<4|7).set("seg", 5).set("vdi", 0xF).set("poh", 1<<40|3).set("nsid", 4).set("flba", 1<<50).set("sct", 2).set("sc", 0x81).set("vs", 0xBEEF)
	p := o.page(t, "nvme_self_test_log")
	p.set("current_operation", 2).set("completion", 37).at("result", 0, one.b...)
	for i := 1; i < 20; i++ {
		p.at("result", 28*i, 0x0F)
	}
	both(t, p, nvmespec.SelfTestLog{
		Current: nvmespec.SelfTestExtended, CompletedPercent: some[uint8](37),
		Results: []nvmespec.SelfTestResult{{Code: nvmespec.SelfTestExtended, Outcome: nvmespec.SelfTestFailedSegment, SegmentNumber: 5, PowerOnHours: 1<<40 | 3,
			NSID: some[uint32](4), FailingLBA: some[uint64](1 << 50), StatusType: some[uint8](2), StatusCode: some[uint8](0x81), VendorSpecific: 0xBEEF}},
	}, nvmespec.DecodeSelfTestLog)
}

func TestSelfTestLog_meaning(t *testing.T) {
	b := make([]byte, 564)
	b[1] = 88 // LOG-21: a percentage without a test
	l, err := nvmespec.DecodeSelfTestLog(b)
	if err != nil || l.Running() || l.CompletedPercent.OK || len(l.Results) != 0 {
		t.Errorf("idle, entries all zero: %+v, %v", l, err)
	}
	for o, failed := range map[nvmespec.SelfTestOutcome]bool{0: false, 1: false, 2: false, 4: false, 5: true, 6: true, 7: true, 8: false, 9: false} {
		if o.Failed() != failed || strings.Contains(o.String(), "0x") {
			t.Errorf("outcome %d: %v, %s", o, o.Failed(), o)
		}
	}
}

func TestSanitizeLog_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_sanitize_log_page")
	p.set("sprog", 0x4000).set("sstat", 2|9<<3|1<<8|1<<9).set("scdw10", 0x123).set("eto", 1000).set("etbe", 0).set("etce", 0xFFFFFFFF)
	p.set("etond", 4).set("etbend", 5).set("etcend", 6).set("etpvds", 7).set("ssi", 0x31)
	both(t, p, nvmespec.SanitizeLog{
		Progress: 0x4000, State: nvmespec.SanitizeRunning, CompletedPasses: 9, GlobalDataErased: true, VerificationCancelled: true, Command: 0x123,
		OverwriteSeconds: some[uint32](1000), BlockEraseSeconds: some[uint32](0), OverwriteNoDeallocateSeconds: some[uint32](4),
		BlockNoDeallocateSeconds: some[uint32](5), CryptoNoDeallocateSeconds: some[uint32](6), PostVerificationDeallocateSec: some[uint32](7), StateInformation: 0x31,
	}, nvmespec.DecodeSanitizeLog)
	l, _ := nvmespec.DecodeSanitizeLog(p.b)
	if l.Percent() != 2500 {
		t.Errorf("a quarter is %d hundredths of a percent", l.Percent())
	}
	if got := l.Estimate(nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 3}); got != some[uint32](188) { // 1000 s for 16 passes
		t.Errorf("three passes take %v", got)
	}
}

func TestSanitizeFields(t *testing.T) {
	for _, c := range []struct {
		f     nvmespec.SanitizeFields
		cdw10 uint32
		cdw11 uint32
	}{
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeBlockErase}, 2, 0},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeCryptoErase, AllowUnrestrictedExit: true, NoDeallocate: true}, 4 | 1<<3 | 1<<9, 0},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 16, InvertPattern: true, OverwritePattern: 0xA5A5A5A5}, 3 | 1<<8, 0xA5A5A5A5},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 2, VerifyMedia: true}, 3 | 2<<4 | 1<<10, 0},
		{nvmespec.SanitizeFields{Action: nvmespec.SanitizeExitFailure}, 1, 0},
	} {
		if err := c.f.Validate(); err != nil {
			t.Errorf("%+v: %v", c.f, err)
		}
		if a, b := c.f.Dwords(); a != c.cdw10 || b != c.cdw11 {
			t.Errorf("%+v: dwords %#x %#x, want %#x %#x", c.f, a, b, c.cdw10, c.cdw11)
		}
		if back := nvmespec.DecodeSanitizeFields(c.cdw10, c.cdw11); back != c.f {
			t.Errorf("%#x: %+v, want %+v", c.cdw10, back, c.f)
		}
	}
	for _, f := range []nvmespec.SanitizeFields{
		{}, {Action: 6}, {Action: nvmespec.SanitizeBlockErase, OverwritePasses: 1}, {Action: nvmespec.SanitizeOverwriteMedia},
		{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 17}, {Action: nvmespec.SanitizeExitFailure, NoDeallocate: true},
		{Action: nvmespec.SanitizeCryptoErase, OverwritePattern: 1},
	} {
		if err := f.Validate(); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	caps := nvmespec.SanitizeCrypto | 2<<30 | 1<<29
	if caps.Has(nvmespec.SanitizeBlockErase) || !caps.Has(nvmespec.SanitizeCryptoErase) || !caps.NoDeallocateInhibited() || caps.NoDeallocateModifies() != 2 {
		t.Errorf("capabilities %#x", uint32(caps))
	}
}

func TestTelemetryHeader_againstOffsetTable(t *testing.T) {
	p := loadOracle(t).page(t, "nvme_telemetry_log")
	p.set("lpi", 7).set("ieee", 0xABCDEF).set("dalb1", 3).set("dalb2", 3).set("dalb3", 0xFFFF).set("dalb4", 0x12345).set("ths", 1).set("hostdgn", 9)
	p.set("ctrlavail", 1).set("ctrldgn", 200).text("rsnident", "why", 0)
	h := nvmespec.TelemetryHeader{Log: 7, OUI: 0xABCDEF, LastBlocks: [4]uint32{3, 3, 0xFFFF, 0x12345}, HostScope: 1, HostGeneration: 9,
		ControllerDataAvailable: true, ControllerGeneration: 200}
	copy(h.Reason[:], "why")
	both(t, p, h, nvmespec.DecodeTelemetryHeader)
	// LOG-11: n blocks end at block n, and the header is one more.
	if h.SizeBytes(1) != 4*512 || h.SizeBytes(3) != 0x10000*512 || h.SizeBytes(4) != 0x12346*512 || h.SizeBytes(0) != 512 || h.Areas() != 4 {
		t.Errorf("sizes %d %d %d, areas %d", h.SizeBytes(1), h.SizeBytes(3), h.SizeBytes(4), h.Areas())
	}
	if got := h.AreaBytes(); got != [4]uint64{3 * 512, 0, (0xFFFF - 3) * 512, (0x12345 - 0xFFFF) * 512} {
		t.Errorf("areas %v", got)
	}
	empty := nvmespec.TelemetryHeader{Log: 8, LastBlocks: [4]uint32{5, 0, 0, 0}}
	if empty.Areas() != 1 || empty.SizeBytes(3) != 6*512 {
		t.Errorf("area 1 alone: %d areas, %d bytes", empty.Areas(), empty.SizeBytes(3))
	}
	p.set("lpi", 2)
	if _, err := nvmespec.DecodeTelemetryHeader(p.b); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("another log: %v", err)
	}
	if _, err := nvmespec.DecodeKind("telemetry-ctrl", h.Append(nil)); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("the other telemetry log: %v", err)
	}
}

func TestSupport_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	p := o.page(t, "nvme_supported_log_pages")
	p.at("lid_support", 4*2, 1).at("lid_support", 4*0x0D, 3, 0, 7, 0)
	logs := nvmespec.SupportedLogs{2: 1, 0x0D: 3 | 7<<16}
	both(t, p, logs, nvmespec.DecodeSupportedLogs)
	if !logs.Supports(nvmespec.LogIDPersistentEvents) || logs.Supports(nvmespec.LogIDSanitize) {
		t.Error("what is supported")
	}
	f := o.page(t, "nvme_fid_supported_effects_log")
	f.at("fid_support", 4*6, 0x11, 0, 0x20, 0) // supported, controller capability change, scope controller
	effects := nvmespec.FeatureEffects{6: nvmespec.FeatureSupported | nvmespec.FeatureController | 1<<21}
	both(t, f, effects, nvmespec.DecodeFeatureEffects)
	if j, err := effects.MarshalJSON(); err != nil || !strings.Contains(string(j), `"write-cache"`) || !strings.Contains(string(j), `["controller"]`) {
		t.Errorf("%s, %v", j, err)
	}
}

// TestNames: each name is read back as the value it names.
func TestNames(t *testing.T) {
	for i := range 256 {
		var id nvmespec.LogID
		if err := id.UnmarshalText([]byte(nvmespec.LogID(i).String())); err != nil || int(id) != i {
			t.Errorf("log %#x: %v, %v", i, id, err)
		}
		var e nvmespec.EventType
		if err := e.UnmarshalText([]byte(nvmespec.EventType(i).String())); err != nil || int(e) != i {
			t.Errorf("event %#x: %v, %v", i, e, err)
		}
	}
	for i := range 16 {
		var c nvmespec.SelfTestCode
		var o nvmespec.SelfTestOutcome
		if c.UnmarshalText(fmt.Append(nil, nvmespec.SelfTestCode(i))) != nil || int(c) != i || o.UnmarshalText(fmt.Append(nil, nvmespec.SelfTestOutcome(i))) != nil || int(o) != i {
			t.Errorf("self-test %d: %v %v", i, c, o)
		}
	}
	for i := range 8 {
		var a nvmespec.SanitizeAction
		var s nvmespec.SanitizeState
		if a.UnmarshalText(fmt.Append(nil, nvmespec.SanitizeAction(i))) != nil || int(a) != i || s.UnmarshalText(fmt.Append(nil, nvmespec.SanitizeState(i))) != nil || int(s) != i {
			t.Errorf("sanitize %d: %v %v", i, a, s)
		}
	}
}
