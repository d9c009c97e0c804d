package admin_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

func TestBackground_exactCommands(t *testing.T) {
	const minute = time.Minute
	selfTest := sized(564, map[int][]byte{0: {1}, 1: {20}, 4: {0x10}})
	sanitize := sized(512, map[int][]byte{0: {0, 0x80}, 2: {2}, 4: {2}})
	uuids := page(map[int][]byte{32 + 16: {7}})
	for name, c := range map[string]struct {
		step step
		call func(ctx context.Context, dev nvmeioctl.Device) (bool, error)
	}{
		"short self-test of all": {step{op: 0x14, nsid: 0xFFFFFFFF, cdw10: 1, timeout: 2 * minute}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			return true, admin.StartSelfTest(ctx, dev, nvmespec.BroadcastNSID, nvmespec.SelfTestShort)
		}},
		"abort": {step{op: 0x14, nsid: 0xFFFFFFFF, cdw10: 0xF, timeout: 2 * minute}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			return true, admin.AbortSelfTest(ctx, dev)
		}},
		"self-test log": {step{op: 2, nsid: 0xFFFFFFFF, cdw10: 6 | 140<<16, timeout: minute, length: 564, in: selfTest}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.SelfTestLog(ctx, dev)
			return l.Running() && l.CompletedPercent.Value == 20 && l.Results[0].Outcome == nvmespec.SelfTestPassed, err
		}},
		"crypto erase": {step{op: 0x84, cdw10: 4 | 1<<3, timeout: 10 * minute}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			return true, admin.Sanitize(ctx, dev, nvmespec.SanitizeFields{Action: nvmespec.SanitizeCryptoErase, AllowUnrestrictedExit: true})
		}},
		"overwrite": {step{op: 0x84, cdw10: 3 | 2<<4, cdw11: 0x55, timeout: 10 * minute}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			return true, admin.Sanitize(ctx, dev, nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 2, OverwritePattern: 0x55})
		}},
		"sanitize log": {step{op: 2, nsid: 0xFFFFFFFF, cdw10: 0x81 | 127<<16, timeout: minute, length: 512, in: sanitize}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.SanitizeLog(ctx, dev)
			return l.Running() && l.Percent() == 5000, err
		}},
		"supported logs": {step{op: 2, nsid: 0xFFFFFFFF, cdw10: 255 << 16, timeout: minute, length: 1024, in: sized(1024, map[int][]byte{8: {1}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.SupportedLogs(ctx, dev)
			return l.Supports(nvmespec.LogIDSMART), err
		}},
		"feature effects": {step{op: 2, nsid: 0xFFFFFFFF, cdw10: 0x12 | 255<<16, timeout: minute, length: 1024, in: sized(1024, map[int][]byte{8: {1}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.FeatureEffects(ctx, dev)
			return l.Supports(nvmespec.FeaturePowerManagement), err
		}},
		"UUIDs": {step{op: 6, cdw10: 0x17, timeout: minute, length: 4096, in: uuids}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.UUIDList(ctx, dev)
			return len(l.Entries) == 1, err
		}},
		"NVM sets": {step{op: 6, cdw10: 4, timeout: minute, length: 4096, in: page(map[int][]byte{0: {1}, 128: {5}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.NVMSets(ctx, dev)
			return len(l.Sets) == 1 && l.Sets[0].ID == 5, err
		}},
		"domains": {step{op: 6, cdw10: 0x18, timeout: minute, length: 4096, in: page(map[int][]byte{0: {1}, 128: {5}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.Domains(ctx, dev)
			return len(l.Domains) == 1 && l.Domains[0].ID == 5, err
		}},
		"endurance groups": {step{op: 6, cdw10: 0x19, timeout: minute, length: 4096, in: page(map[int][]byte{0: {1}, 2: {5}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.EnduranceGroups(ctx, dev)
			return len(l.Groups) == 1 && l.Groups[0] == 5, err
		}},
		"primary controller": {step{op: 6, cdw10: 0x14 | 9<<16, timeout: minute, length: 4096, in: page(map[int][]byte{0: {9}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.PrimaryController(ctx, dev, 9)
			return l.ControllerID == 9, err
		}},
		"secondary controllers": {step{op: 6, cdw10: 0x15, timeout: minute, length: 4096, in: page(map[int][]byte{0: {1}, 32: {9}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.SecondaryControllers(ctx, dev)
			return len(l.Controllers) == 1 && l.Controllers[0].ControllerID == 9, err
		}},
		"LBA status": {step{op: 0x86, nsid: 1, cdw10: 5, cdw12: 15, cdw13: 0x11 << 24, timeout: minute, length: 64, in: sized(64, map[int][]byte{0: {1}, 16: {8}})}, func(ctx context.Context, dev nvmeioctl.Device) (bool, error) {
			l, err := admin.LBAStatus(ctx, dev, 1, nvmespec.LBAStatusFields{StartLBA: 5, MaxBytes: 64, Action: 0x11})
			return len(l.Ranges) == 1 && l.Ranges[0].Blocks == 8, err
		}},
	} {
		if ok, err := c.call(t.Context(), newScript(t, c.step)); err != nil || !ok {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		failing := c.step
		failing.status, failing.in = 0x401D, nil
		_, err := c.call(t.Context(), newScript(t, failing))
		var op *nvmeioctl.OpError
		if !errors.Is(err, nvmespec.ErrSanitizeInProgress) || !errors.As(err, &op) {
			t.Errorf("%s, a status: %v", name, err)
		}
		failing.err = nvmeioctl.ErrIndeterminate
		if _, err := c.call(t.Context(), newScript(t, failing)); !errors.Is(err, nvmeioctl.ErrIndeterminate) {
			t.Errorf("%s, no answer: %v", name, err)
		}
	}
}

func TestBackground_refusedBeforeSending(t *testing.T) {
	for name, err := range map[string]error{
		"self-test code 4": admin.StartSelfTest(t.Context(), newScript(t), 0, 4),
		"no action":        admin.Sanitize(t.Context(), newScript(t), nvmespec.SanitizeFields{}),
		"17 passes":        admin.Sanitize(t.Context(), newScript(t), nvmespec.SanitizeFields{Action: nvmespec.SanitizeOverwriteMedia, OverwritePasses: 17}),
	} {
		if !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const logOp, all32 = 0x02, 0xFFFFFFFF

// piece is one Get Log Page as the script expects it.
func piece(id, lsp uint8, rae bool, offset uint64, data []byte) step {
	numd := uint32(len(data)/4 - 1)
	s := step{op: logOp, nsid: all32, cdw10: uint32(id) | uint32(lsp)<<8 | (numd&0xFFFF)<<16, cdw11: numd >> 16, cdw12: uint32(offset), cdw13: uint32(offset >> 32),
		timeout: time.Minute, length: len(data), in: data}
	if rae {
		s.cdw10 |= 1 << 15
	}
	return s
}

func filled(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// TestTelemetry_pieces: header with Create, then the areas in pieces of what the
// controller transfers (LOG-07, LOG-11), never clearing an event, and a look at
// the generation at the end.
func TestTelemetry_pieces(t *testing.T) {
	head := sized(512, map[int][]byte{0: {7}, 8: {2}, 10: {20}, 12: {20}, 381: {3}})
	body := filled(20*512, 1)
	limits := admin.LogLimits{Extended: true, MaxTransferBytes: 4096}
	steps := []step{piece(7, 1, true, 0, head), piece(7, 0, true, 512, body[:4096]), piece(7, 0, true, 512+4096, body[4096:8192]),
		piece(7, 0, true, 512+8192, body[8192:]), piece(7, 0, true, 0, head)}
	var out bytes.Buffer
	var told []uint64
	h, err := admin.Telemetry(t.Context(), newScript(t, steps...), admin.TelemetryRequest{Limits: limits,
		Progress: func(done, total uint64) { told = append(told, done, total) }}, &out)
	if err != nil || h.Areas() != 2 || !bytes.Equal(out.Bytes(), append(bytes.Clone(head), body...)) {
		t.Errorf("%d bytes, areas %d, %v", out.Len(), h.Areas(), err)
	}
	if len(told) != 6 || told[4] != 21*512 || told[5] != 21*512 {
		t.Errorf("progress %v", told)
	}
	// Area 1 alone, of what was captured before.
	out.Reset()
	steps = []step{piece(7, 0, true, 0, head), piece(7, 0, true, 512, body[:1024]), piece(7, 0, true, 0, head)}
	if _, err := admin.Telemetry(t.Context(), newScript(t, steps...), admin.TelemetryRequest{Keep: true, Area: 1, Limits: limits}, &out); err != nil || out.Len() != 3*512 {
		t.Errorf("area 1: %d bytes, %v", out.Len(), err)
	}
	// New data came meanwhile.
	later := bytes.Clone(head)
	later[381] = 4
	steps = []step{piece(7, 0, true, 0, head), piece(7, 0, true, 512, body[:1024]), piece(7, 0, true, 0, later)}
	if _, err := admin.Telemetry(t.Context(), newScript(t, steps...), admin.TelemetryRequest{Keep: true, Area: 1, Limits: limits}, &out); err == nil {
		t.Error("a changed generation goes unnoticed")
	}
	// Controller-initiated, its event cleared at the very end only.
	ctrl := sized(512, map[int][]byte{0: {8}, 8: {1}, 382: {1}, 383: {9}})
	steps = []step{piece(8, 0, true, 0, ctrl), piece(8, 0, true, 512, body[:512]), piece(8, 0, false, 0, ctrl)}
	if _, err := admin.Telemetry(t.Context(), newScript(t, steps...), admin.TelemetryRequest{Controller: true, Acknowledge: true, Limits: limits}, &out); err != nil {
		t.Errorf("controller-initiated: %v", err)
	}
}

func TestTelemetry_problems(t *testing.T) {
	head := sized(512, map[int][]byte{0: {7}, 8: {2}})
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		steps []step
		r     admin.TelemetryRequest
		w     *failWriter
		want  error
	}{
		"no offsets":      {[]step{piece(7, 1, true, 0, head)}, admin.TelemetryRequest{}, &failWriter{}, nvmeioctl.ErrNotSupported},
		"another log":     {[]step{piece(7, 1, true, 0, sized(512, map[int][]byte{0: {8}}))}, admin.TelemetryRequest{}, &failWriter{}, nvmespec.ErrInvalidData},
		"absurdly large":  {[]step{piece(7, 1, true, 0, sized(512, map[int][]byte{0: {7}, 16: {0xFF, 0xFF, 0xFF, 0xFF}}))}, admin.TelemetryRequest{Limits: admin.LogLimits{Extended: true}}, &failWriter{}, nvmespec.ErrInvalidData},
		"a full disk":     {[]step{piece(7, 1, true, 0, head)}, admin.TelemetryRequest{Limits: admin.LogLimits{Extended: true}}, &failWriter{err: full}, full},
		"area of no kind": {[]step{piece(7, 1, true, 0, head)}, admin.TelemetryRequest{Area: 5}, &failWriter{}, nvmespec.ErrInvalidData},
	} {
		if _, err := admin.Telemetry(t.Context(), newScript(t, c.steps...), c.r, c.w); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failWriter struct{ err error }

func (w *failWriter) Write(b []byte) (int, error) { return len(b), w.err }

// eventsHead is the header of a log of so many bytes.
func eventsHead(total uint64) []byte {
	return sized(512, map[int][]byte{0: {0x0D}, 4: {1}, 8: le64(total), 18: {236, 1}})
}

// TestPersistentEvents_context: established, read in whole dwords, cut to its
// length, and released on every way out (LOG-09).
func TestPersistentEvents_context(t *testing.T) {
	limits := admin.LogLimits{Extended: true, MaxTransferBytes: 1 << 20}
	release := piece(0x0D, 2, true, 0, make([]byte, 512))
	body := filled(100, 3) // 25 dwords
	for name, c := range map[string]struct {
		steps []step
		total int
		want  error
	}{
		"a log of no whole dwords": {[]step{piece(0x0D, 1, true, 0, eventsHead(512+99)), piece(0x0D, 0, true, 512, body), release}, 512 + 99, nil},
		"a context of somebody's":  {[]step{{op: 2, nsid: all32, cdw10: 0x0D | 1<<8 | 1<<15 | 127<<16, timeout: time.Minute, length: 512, status: 0x400C}, release, piece(0x0D, 1, true, 0, eventsHead(512)), release}, 512, nil},
		"no log of events":         {[]step{piece(0x0D, 1, true, 0, make([]byte, 512)), release}, 0, nvmespec.ErrInvalidData},
		"an endless log":           {[]step{piece(0x0D, 1, true, 0, eventsHead(1<<60)), release}, 0, nvmespec.ErrInvalidData},
		"an error in the middle": {[]step{piece(0x0D, 1, true, 0, eventsHead(612)), {op: 2, nsid: all32, cdw10: 0x0D | 1<<15 | 24<<16, cdw12: 512, timeout: time.Minute, length: 100, status: 0x6}, release},
			512, nvmespec.StatusError{Status: 6}},
	} {
		var out bytes.Buffer
		_, err := admin.PersistentEvents(t.Context(), newScript(t, c.steps...), limits, &out, nil)
		if out.Len() != c.total || c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %d bytes, %v", name, out.Len(), err)
		}
	}
}

// TestPersistentEvents_interrupted: the context is given up although ctx is done.
func TestPersistentEvents_interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dev := newScript(t, piece(0x0D, 1, true, 0, eventsHead(1<<20)), piece(0x0D, 0, true, 512, filled(128<<10, 0)), piece(0x0D, 2, true, 0, make([]byte, 512)))
	_, err := admin.PersistentEvents(ctx, dev, admin.LogLimits{Extended: true}, &bytes.Buffer{}, func(uint64, uint64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPersistentEvents_plain: without offsets one read from the start is all.
func TestPersistentEvents_plain(t *testing.T) {
	whole := append(eventsHead(612), filled(100, 5)...)
	release := piece(0x0D, 2, true, 0, make([]byte, 512))
	var out bytes.Buffer
	_, err := admin.PersistentEvents(t.Context(), newScript(t, piece(0x0D, 1, true, 0, whole[:512]), piece(0x0D, 0, true, 0, whole), release), admin.LogLimits{}, &out, nil)
	if err != nil || !bytes.Equal(out.Bytes(), whole) {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	if _, err := admin.PersistentEvents(t.Context(), newScript(t, piece(0x0D, 1, true, 0, eventsHead(8192)), release), admin.LogLimits{}, &out, nil); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("long without offsets: %v", err)
	}
}

func TestVendorLog(t *testing.T) {
	for _, p := range vendor.Pages() {
		s := piece(uint8(p.LogID), 0, false, 0, make([]byte, p.SizeBytes)) // all zero is no log
		if _, err := admin.VendorLog(t.Context(), newScript(t, s), p); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
