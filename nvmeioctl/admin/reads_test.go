package admin_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// readCase is one function that reads: the one command it sends, bytes in, value
// out.
type readCase struct {
	name string
	step step
	nsid uint32 // in errors
	call func(ctx context.Context, dev nvmeioctl.Device) (any, error)
	want any
}

const all = nvmespec.BroadcastNSID

func anyOf[T any](v T, err error) (any, error) { return v, err }

func identifyStep(nsid, cdw10 uint32, in []byte) step {
	return step{op: 0x06, nsid: nsid, cdw10: cdw10, timeout: 60 * time.Second, length: 4096, in: in}
}

func logStep(nsid, cdw10 uint32, in []byte) step {
	return step{op: 0x02, nsid: nsid, cdw10: cdw10, timeout: 60 * time.Second, length: len(in), in: in}
}

func identifyCases() []readCase {
	return []readCase{
		{"identify controller", identifyStep(0, 0x01, page(map[int][]byte{4: []byte("SERIAL"), 24: []byte("MODEL"), 78: le16(0x41), 768: []byte("nqn.x\x00")})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) { return anyOf(admin.Identity(ctx, dev)) },
			nvmeioctl.Identity{SubsystemNQN: "nqn.x", Serial: "SERIAL", Model: "MODEL", CNTLID: 0x41}},
		{"identify controller (NVM command set)", identifyStep(0, 0x06, page(map[int][]byte{1: {4}})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.IdentifyNVMController(ctx, dev))
			},
			nvmespec.NVMController{WriteZeroesBytesMax: 65536}},
		{"identify namespace", identifyStep(7, 0x00, page(map[int][]byte{0: le64(1000), 8: le64(1000), 130: {12}})), 7,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.IdentifyNamespace(ctx, dev, 7))
			},
			nvmespec.Namespace{SizeBlocks: 1000, CapacityBlocks: 1000, Formats: []nvmespec.LBAFormat{{DataBytes: 4096}}}},
		{"identify allocated namespace", identifyStep(8, 0x11, page(map[int][]byte{0: le64(5), 130: {9}})), 8,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.IdentifyAllocatedNamespace(ctx, dev, 8))
			},
			nvmespec.Namespace{SizeBlocks: 5, Formats: []nvmespec.LBAFormat{{DataBytes: 512}}}},
		{"list active namespaces", identifyStep(0, 0x02, page(map[int][]byte{0: le32(1), 4: le32(9)})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.ActiveNamespaces(ctx, dev))
			},
			[]uint32{1, 9}},
		{"list allocated namespaces", identifyStep(0, 0x10, page(map[int][]byte{0: le32(3)})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.AllocatedNamespaces(ctx, dev))
			},
			[]uint32{3}},
		{"list controllers", identifyStep(0, 0x13, page(map[int][]byte{0: le16(2), 2: le16(0x21), 4: le16(0x41)})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.Controllers(ctx, dev))
			},
			[]uint16{0x21, 0x41}},
		{"list attached controllers", identifyStep(5, 0x12, page(map[int][]byte{0: le16(1), 2: le16(0x41)})), 5,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.AttachedControllers(ctx, dev, 5))
			},
			[]uint16{0x41}},
		{"identify namespace descriptors", identifyStep(2, 0x03, page(map[int][]byte{0: {4, 1, 0, 0, 0}})), 2,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.NamespaceIDs(ctx, dev, 2))
			},
			nvmespec.NamespaceIDs{CommandSet: nvmespec.Some[uint8](0)}},
		{"identify namespace granularity", identifyStep(0, 0x16, page(map[int][]byte{32: le64(1 << 30), 40: le64(1 << 20)})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.Granularity(ctx, dev))
			},
			nvmespec.GranularityList{Entries: []nvmespec.Granularity{{SizeBytes: 1 << 30, CapacityBytes: 1 << 20}}}},
		{"identify namespace (NVM command set)", identifyStep(4, 0x05, page(map[int][]byte{0: le64(7)})), 4,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.IdentifyNVMNamespace(ctx, dev, 4))
			},
			nvmespec.NVMNamespace{StorageTagMask: 7}},
		{"identify namespace (command set independent)", identifyStep(4, 0x08, page(map[int][]byte{14: {1}})), 4,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.IdentifyIndependentNamespace(ctx, dev, 4))
			},
			nvmespec.IndependentNamespace{Ready: true}},
	}
}

func logCases() []readCase {
	ctrl := nvmespec.Controller{ErrorLogEntries: 63, Logs: nvmespec.LogExtended, MaxTransferBytes: 128 << 10}
	guid := []byte{0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF}
	eg := logStep(0, 0x09|0x7F<<16, sized(512, map[int][]byte{80: le64(17)}))
	eg.cdw11 = 3 << 16
	return []readCase{
		// RAE (bit 15) is 0 for these and 1 for error and changed namespaces: LOG-01.
		{"get SMART log", logStep(all, 0x02|0x7F<<16, sized(512, map[int][]byte{1: le16(313), 5: {3}})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.SMARTLog(ctx, dev, all))
			},
			nvmespec.SMART{Temperature: nvmespec.Some[nvmespec.Celsius](40), UsedPercent: 3}},
		{"get error log", logStep(all, 0x01|1<<15|0x1F<<16, sized(128, map[int][]byte{0: le64(9), 12: le16(0x115 << 1), 14: le16(0xFFFF), 32: le64(123)})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.ErrorLog(ctx, dev, ctrl, 2))
			},
			[]nvmespec.ErrorEntry{{Count: 9, Status: 0x115, CommandSpecific: 123}}},
		{"get firmware slot log", logStep(all, 0x03|0x7F<<16, sized(512, map[int][]byte{0: {0x21}, 8: []byte("FW1     ")})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.FirmwareLog(ctx, dev))
			},
			nvmespec.FirmwareSlots{Active: 1, Next: 2, Revisions: [7]string{"FW1"}}},
		{"get boot partition log", logStep(all, 0x15|1<<8|3<<16, sized(16, map[int][]byte{0: {0x15}, 4: {0x10, 0, 0, 0x80}})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.BootPartition(ctx, dev, 1))
			},
			nvmespec.BootPartition{Active: 1, SizeBytes: 2 << 20}},
		{"get effects log", logStep(all, 0x05|0x3FF<<16, page(map[int][]byte{4 * 6: {1}})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) { return anyOf(admin.EffectsLog(ctx, dev)) },
			func() (e nvmespec.Effects) { e.Admin[6] = 1; return }()},
		{"get changed namespace list", logStep(all, 0x04|1<<15|0x3FF<<16, page(map[int][]byte{0: le32(2)})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.ChangedNamespaces(ctx, dev, false))
			},
			[]uint32{2}},
		{"get endurance group log", eg, 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.EnduranceGroupLog(ctx, dev, 3))
			},
			nvmespec.EnduranceGroup{MediaWrittenGB: nvmespec.U128(17)}},
		{"get OCP health log", logStep(all, 0xC0|0x7F<<16, sized(512, map[int][]byte{0: le64(77), 128: le16(0xFFFF), 494: le16(3), 496: guid})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.OCPHealthLog(ctx, dev))
			},
			nvmespec.OCPHealth{Layout: nvmespec.OCPDatacenter, Version: 3, PhysicalBytesWritten: nvmespec.U128(77)}},
		{"get vendor health log", logStep(all, 0xCA|0x7F<<16, sized(512, map[int][]byte{0: {0xF4, 0, 0, 100, 0, 2}, 12: {0xF5, 0, 0, 100, 0, 1}})), all,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				h, err := admin.VendorHealthLog(ctx, dev, vendor.Memblaze)
				return h.NANDWrittenBytes, err
			},
			nvmespec.U128(64 << 20)},
	}
}

func featureStep(cdw10 uint32, result uint64, in []byte) step {
	return step{op: 0x0A, cdw10: cdw10, timeout: 60 * time.Second, length: len(in), in: in, result: result}
}

func featureCases() []readCase {
	return []readCase{
		{"get feature power-management", featureStep(0x02, 0x45, nil), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.PowerManagement(ctx, dev))
			},
			nvmespec.PowerManagement{State: 5, Workload: 2}},
		{"get feature write-cache", featureStep(0x06, 1, nil), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) { return anyOf(admin.WriteCache(ctx, dev)) },
			nvmespec.WriteCache{Enabled: true}},
		{"get feature queue-count", featureStep(0x07, 0x001F001F, nil), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) { return anyOf(admin.QueueCount(ctx, dev)) },
			nvmespec.QueueCount{Submission: 32, Completion: 32}},
		{"get feature apst", featureStep(0x0C, 1, sized(256, map[int][]byte{0: le64(3<<3 | 100<<8)})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				a, err := admin.APST(ctx, dev)
				return a.Transitions[0], err
			},
			nvmespec.APSTTransition{Target: 3, IdleMilliseconds: 100}},
		{"get feature timestamp", featureStep(0x0E, 0, sized(8, map[int][]byte{0: le32(99), 6: {2}})), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) { return anyOf(admin.Timestamp(ctx, dev)) },
			nvmespec.Timestamp{Milliseconds: 99, Origin: 1}},
		{"get feature apst", featureStep(0x0C|3<<8, 5, nil), 0,
			func(ctx context.Context, dev nvmeioctl.Device) (any, error) {
				return anyOf(admin.FeatureCapabilities(ctx, dev, nvmespec.FeatureAPST, 0))
			},
			nvmespec.FeatureCaps{Saveable: true, Changeable: true}},
	}
}

func readCases() []readCase {
	return append(append(identifyCases(), logCases()...), featureCases()...)
}

func TestReads_exactCommandAndValue(t *testing.T) { // NS-73
	for _, c := range readCases() {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.call(t.Context(), newScript(t, c.step))
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Errorf("%v\n%s", err, d)
			}
		})
	}
}

func TestReads_errorStatus(t *testing.T) { // SYS-01, SYS-02, LOG-02, LOG-03
	for _, c := range readCases() {
		for _, status := range []nvmespec.Status{0x4002, 0x4001, 0x6109, 0x400B, 0x4006} {
			s := c.step
			s.status = status
			_, err := c.call(t.Context(), newScript(t, s))
			var op *nvmeioctl.OpError
			if !errors.As(err, &op) || op.Op != c.name || op.Dev != "script" || op.NSID != c.nsid {
				t.Errorf("%s, %#x: %v", c.name, uint16(status), err)
				continue
			}
			if op.Err != error(nvmespec.StatusError{Status: status}) {
				t.Errorf("%s: cause %#v", c.name, op.Err)
			}
			code := status.Code()
			if want := code == 0x002 || code == 0x001 || code == 0x109; admin.IsUnsupported(err) != want {
				t.Errorf("%s, %#x: unsupported %v", c.name, uint16(status), !want)
			}
		}
	}
}

func TestReads_failedCall(t *testing.T) { // STYLE: never a status and a call at once
	for _, c := range readCases() {
		s := c.step
		s.err = os.NewSyscallError("ioctl", syscall.EACCES)
		_, err := c.call(t.Context(), newScript(t, s))
		var op *nvmeioctl.OpError
		var status nvmespec.StatusError
		if !errors.As(err, &op) || !errors.Is(err, syscall.EACCES) || errors.As(err, &status) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReads_shortReply(t *testing.T) {
	// Nothing written into the buffer: what that means for each function.
	refuses := map[string]bool{"identify controller": true, "get SMART log": true, "get endurance group log": true,
		"get OCP health log": true, "get vendor health log": true}
	for _, c := range append(identifyCases(), logCases()...) {
		s := c.step
		s.in = nil
		_, err := c.call(t.Context(), newScript(t, s))
		if refuses[c.name] != errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s of an empty reply: %v", c.name, err)
		}
		var op *nvmeioctl.OpError
		if err != nil && !errors.As(err, &op) {
			t.Errorf("%s: no OpError: %v", c.name, err)
		}
	}
}

func TestReads_hostileReply(t *testing.T) {
	ones := make([]byte, 4096)
	for i := range ones {
		ones[i] = 0xFF
	}
	for _, c := range readCases() {
		s := c.step
		s.in = ones
		if _, err := c.call(t.Context(), newScript(t, s)); err != nil { // must not panic; an error has its shape
			var op *nvmeioctl.OpError
			if !errors.As(err, &op) || op.Op != c.name {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

func TestActiveNamespaces_pages(t *testing.T) {
	full := page(nil)
	for i := range 1024 {
		copy(full[4*i:], le32(uint32(i+1)))
	}
	s := newScript(t, identifyStep(0, 2, full), identifyStep(1024, 2, page(map[int][]byte{0: le32(2000)})))
	ids, err := admin.ActiveNamespaces(t.Context(), s)
	if err != nil || len(ids) != 1025 || ids[1024] != 2000 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
	// A controller that gives the same page for ever is stopped.
	s = newScript(t, identifyStep(0, 2, full), identifyStep(1024, 2, full))
	if _, err := admin.ActiveNamespaces(t.Context(), s); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("no progress: %v", err)
	}
	// NSIDs up to the last one end the list without asking above it.
	for i := range 1024 {
		copy(full[4*i:], le32(0xFFFFFFFF-1024+uint32(i)))
	}
	if ids, err := admin.ActiveNamespaces(t.Context(), newScript(t, identifyStep(0, 2, full))); err != nil || len(ids) != 1024 {
		t.Errorf("up to the last: %d, %v", len(ids), err)
	}
}

func TestControllers_pages(t *testing.T) {
	full := page(map[int][]byte{0: le16(2047)})
	for i := range 2047 {
		copy(full[2+2*i:], le16(uint16(i)))
	}
	s := newScript(t, identifyStep(0, 0x13, full), identifyStep(0, 0x13|2047<<16, page(map[int][]byte{0: le16(1), 2: le16(3000)})))
	if ids, err := admin.Controllers(t.Context(), s); err != nil || len(ids) != 2048 || ids[2047] != 3000 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
	s = newScript(t, identifyStep(0, 0x13, full), identifyStep(0, 0x13|2047<<16, full))
	if _, err := admin.Controllers(t.Context(), s); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("no progress: %v", err)
	}
}

func TestIdentifyNamespace_retries(t *testing.T) { // NS-47
	busy := identifyStep(1, 0, nil)
	busy.status = nvmespec.StatusNamespaceNotReady
	good := identifyStep(1, 0, page(map[int][]byte{0: le64(5), 130: {9}}))
	if ns, err := admin.IdentifyNamespace(t.Context(), newScript(t, busy, busy, good), 1); err != nil || ns.SizeBlocks != 5 {
		t.Errorf("%+v, %v", ns, err)
	}
	if _, err := admin.IdentifyNamespace(t.Context(), newScript(t, busy, busy, busy, busy), 1); err == nil {
		t.Error("a status that stays must end the repetition")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := admin.IdentifyNamespace(ctx, newScript(t, busy), 1); err == nil {
		t.Error("cancelled")
	}
	busy.status |= nvmespec.StatusDNR
	if _, err := admin.IdentifyNamespace(t.Context(), newScript(t, busy), 1); err == nil {
		t.Error("do not retry")
	}
}

func TestCommonNamespace_fallsBack(t *testing.T) { // NS-47, NS-55
	mgmt := nvmespec.Controller{Admin: nvmespec.AdminNamespaceManagement}
	good := page(map[int][]byte{25: {1}, 130: {9}, 134: {12}})
	refused := identifyStep(all, 0, nil)
	refused.status = 0x400B
	list := func(cns uint32, ids ...uint32) step {
		b := page(nil)
		for i, id := range ids {
			copy(b[4*i:], le32(id))
		}
		return identifyStep(0, cns, b)
	}
	for name, tc := range map[string]struct {
		ctrl  nvmespec.Controller
		steps []step
		from  uint32
	}{
		"broadcast":                    {mgmt, []step{identifyStep(all, 0, good)}, all},
		"refused, active":              {mgmt, []step{refused, list(2, 3, 4), identifyStep(3, 0, good)}, 3},
		"no formats, active":           {mgmt, []step{identifyStep(all, 0, nil), list(2, 3), identifyStep(3, 0, good)}, 3},
		"refused, only allocated":      {mgmt, []step{refused, list(2), list(0x10, 6), identifyStep(6, 0x11, good)}, 6},
		"without namespace management": {nvmespec.Controller{}, []step{list(2, 1), identifyStep(1, 0, good)}, 1},
	} {
		ns, from, err := admin.CommonNamespace(t.Context(), newScript(t, tc.steps...), tc.ctrl)
		if err != nil || from != tc.from || len(ns.Formats) != 2 {
			t.Errorf("%s: from %d, %d formats, %v", name, from, len(ns.Formats), err)
		}
	}
	if _, _, err := admin.CommonNamespace(t.Context(), newScript(t, refused, list(2), list(0x10)), mgmt); !errors.Is(err, nvmespec.ErrInvalidNamespace) {
		t.Errorf("no namespace at all: %v", err)
	}
	gone := identifyStep(all, 0, nil)
	gone.err = nvmeioctl.ErrDeviceGone
	if _, _, err := admin.CommonNamespace(t.Context(), newScript(t, gone), mgmt); !errors.Is(err, nvmeioctl.ErrDeviceGone) {
		t.Errorf("a failed call is not answered by falling back: %v", err)
	}
}

func TestGetLog_pieces(t *testing.T) { // LOG-05, LOG-07
	mk := func(n int, fill byte) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = fill
		}
		return b
	}
	first := logStep(all, 0x0D|1<<15|0x3FF<<16, mk(4096, 1)) // retains: not the last piece
	second := logStep(all, 0x0D|0xFF<<16, mk(1024, 2))
	second.cdw12, second.cdw13 = 4096+8, 1
	first.cdw12, first.cdw13 = 8, 1
	f := nvmespec.GetLogFields{Log: 0x0D, LengthBytes: 5120, OffsetBytes: 1<<32 + 8}
	b, err := admin.GetLog(t.Context(), newScript(t, first, second), admin.LogRequest{NSID: all, Fields: f, Extended: true})
	if err != nil || len(b) != 5120 || b[4095] != 1 || b[4096] != 2 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	whole := logStep(all, 0x0D|0x4FF<<16, mk(5120, 3))
	whole.cdw12, whole.cdw13 = 8, 1
	if _, err = admin.GetLog(t.Context(), newScript(t, whole), admin.LogRequest{NSID: all, Fields: f, Extended: true, MaxTransferBytes: 8192}); err != nil {
		t.Errorf("one piece within MDTS: %v", err)
	}
	for name, r := range map[string]admin.LogRequest{
		"no length":     {Fields: nvmespec.GetLogFields{Log: 2}},
		"odd length":    {Fields: nvmespec.GetLogFields{Log: 2, LengthBytes: 6}},
		"a gigabyte":    {Fields: nvmespec.GetLogFields{Log: 7, LengthBytes: 1 << 30}, Extended: true},
		"long, plain":   {Fields: nvmespec.GetLogFields{Log: 7, LengthBytes: 8192}},
		"offset, plain": {Fields: nvmespec.GetLogFields{Log: 7, LengthBytes: 4, OffsetBytes: 4}},
	} {
		if _, err := admin.GetLog(t.Context(), newScript(t), r); err == nil {
			t.Errorf("%s: sent", name)
		}
	}
}

func TestErrorLog_limits(t *testing.T) {
	plain := nvmespec.Controller{ErrorLogEntries: 256}
	s := newScript(t, logStep(all, 0x01|1<<15|0x3FF<<16, page(nil)))
	if log, err := admin.ErrorLog(t.Context(), s, plain, 1000); err != nil || len(log) != 0 {
		t.Errorf("without offsets only 64 entries can be read: %v, %v", log, err)
	}
	s = newScript(t, logStep(all, 0x01|1<<15|0xF<<16, make([]byte, 64)))
	if _, err := admin.ErrorLog(t.Context(), s, nvmespec.Controller{}, 0); err != nil {
		t.Errorf("at least one entry: %v", err)
	}
}

func TestRequiredCapacity(t *testing.T) { // NS-04
	c := nvmespec.Controller{ErrorLogEntries: 64}
	entry := func(status uint16, info uint64) step {
		return logStep(all, 0x01|1<<15|0xF<<16, sized(64, map[int][]byte{0: le64(1), 12: le16(status << 1), 32: le64(info)}))
	}
	for name, tc := range map[string]struct {
		step step
		want uint64
		ok   bool
	}{
		"told":          {entry(0x4115, 1_996_898_344_960), 1_996_898_344_960, true},
		"not told":      {entry(0x4115, 0), 0, false},
		"another error": {entry(0x4002, 55), 0, false},
		"no entry":      {logStep(all, 0x01|1<<15|0xF<<16, make([]byte, 64)), 0, false},
	} {
		got, ok, err := admin.RequiredCapacity(t.Context(), newScript(t, tc.step), c)
		if got != tc.want || ok != tc.ok || err != nil {
			t.Errorf("%s: %d, %v, %v", name, got, ok, err)
		}
	}
}

func TestVendorHealthLog_gated(t *testing.T) { // LOG-17
	if _, err := admin.VendorHealthLog(t.Context(), newScript(t), 0x144D); !errors.Is(err, nvmeioctl.ErrNotSupported) || !admin.IsUnsupported(err) {
		t.Errorf("another vendor's CAh must not be read: %v", err)
	}
	garbage := logStep(all, 0xCA|0x7F<<16, sized(512, map[int][]byte{0: []byte("not a log of items at all")}))
	if _, err := admin.VendorHealthLog(t.Context(), newScript(t, garbage), vendor.Memblaze); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("garbage: %v", err)
	}
	version := logStep(all, 0xCA|0x7F<<16, sized(512, map[int][]byte{511: {9}}))
	if _, err := admin.VendorHealthLog(t.Context(), newScript(t, version), vendor.Memblaze); !errors.Is(err, vendor.ErrUnknownLog) {
		t.Errorf("unknown version: %v", err)
	}
	ymtc := logStep(all, 0xCA|0x3FF<<16, page(map[int][]byte{0: {0xF4, 0, 0, 100, 0, 3}, 12: {0xF5, 0, 0, 100, 0, 1}}))
	if h, err := admin.VendorHealthLog(t.Context(), newScript(t, ymtc), vendor.YMTC); err != nil || !h.UnitAssumed || h.NANDWrittenBytes != nvmespec.U128(3*32<<20) {
		t.Errorf("YMTC: %+v, %v", h, err)
	}
}
