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

// joined is pages one after the other.
func joined(pages ...*rawPage) []byte {
	var b []byte
	for _, p := range pages {
		b = append(b, p.b...)
	}
	return b
}

// groupLogs are wire images of logs 0Ch, 0Eh, 0Fh and 20h to 23h, by the table of
// offsets alone.
func groupLogs(t testing.TB, o oracle) [][]byte {
	ana := append(joined(o.page(t, "nvme_ana_log").set("chgcnt", 1<<40|7).set("ngrps", 2),
		o.page(t, "nvme_ana_group_desc").set("grpid", 0x01020304).set("nnsids", 2).set("chgcnt", 9).set("state", 2)), 5, 0, 0, 0, 6, 1, 0, 0)
	ana = append(ana, o.page(t, "nvme_ana_group_desc").set("grpid", 8).set("state", 15).b...)
	lba := joined(o.page(t, "nvme_lba_status_log").set("lslplen", 80).set("nlslne", 2).set("estulb", 70000).set("lsgc", 0x0102),
		o.page(t, "nvme_lbas_ns_element").set("neid", 3).set("nlrd", 2).set("ratype", 0x11),
		o.page(t, "nvme_lba_rd").set("rslba", 1<<50).set("rnlb", 1000), o.page(t, "nvme_lba_rd").set("rslba", 15000).set("rnlb", 1<<31),
		o.page(t, "nvme_lbas_ns_element").set("neid", 4).set("nlrd", 0xFFFFFFFF).set("ratype", 0x10))
	groups := append(bytes.Clone(o.page(t, "nvme_eg_event_aggregate_log").set("nr_entries", 2).b), 1, 0, 2, 9)
	configs := joined(o.page(t, "nvme_fdp_config_log").set("n", 1).set("version", 2).set("size", 16+72+64),
		o.page(t, "nvme_fdp_config_desc").set("size", 72).set("fdpa", 0x94).set("vss", 0).set("nrg", 2).set("nruh", 2).set("maxpids", 7).
			set("nnss", 16).set("runs", 13<<30).set("erutl", 86400),
		o.page(t, "nvme_fdp_ruh_desc").set("ruht", 1), o.page(t, "nvme_fdp_ruh_desc").set("ruht", 2),
		o.page(t, "nvme_fdp_config_desc").set("size", 64).set("nrg", 1))
	usage := joined(o.page(t, "nvme_fdp_ruhu_log").set("nruh", 3), o.page(t, "nvme_fdp_ruhu_desc").set("ruha", 1),
		o.page(t, "nvme_fdp_ruhu_desc"), o.page(t, "nvme_fdp_ruhu_desc").set("ruha", 2))
	stats := o.page(t, "nvme_fdp_stats_log").set128("hbmw", 1, 2).set128("mbmw", 3, 4).set128("mbe", 5, 6).b
	one := o.page(t, "nvme_fdp_event").set("type", 3).set("flags", 3).set("pid", 0x0102).set("ts", 1<<48|5000).set("nsid", 9)
	realloc := o.page(t, "nvme_fdp_event_realloc").set("flags", 1).set("nlbam", 300).set("lba", 1<<45)
	two := o.page(t, "nvme_fdp_event").set("type", 0x80).set("flags", 4).set("rgid", 0x0304).set("ruhid", 5).at("type_specific", 0, realloc.b...)
	events := o.page(t, "nvme_fdp_events_log").set("n", 2).at("events", 0, one.b...).at("events", 64, two.b...).b[:64+128]
	return [][]byte{ana, lba, groups, configs, usage, stats, events}
}

// wire holds a decoder and its encoder against a wire image.
func wire[T appender](t *testing.T, b []byte, want T, decode func([]byte) (T, error)) {
	t.Helper()
	got, err := decode(b)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%T: decode: %v\n%s", want, err, d)
	}
	if out := want.Append(nil); !bytes.Equal(out, b) {
		t.Errorf("%T: append:\n%x, want\n%x", want, out, b)
	}
	if _, err := decode(b[:7]); !errors.Is(err, nvmespec.ErrShort) {
		t.Errorf("%T of 7 bytes: %v", want, err)
	}
	if padded, err := decode(append(bytes.Clone(b), make([]byte, 512)...)); err != nil || cmp.Diff(want, padded) != "" {
		t.Errorf("%T: zeros behind it change it: %v\n%s", want, err, cmp.Diff(want, padded))
	}
}

func TestGroupLogs_againstOffsetTable(t *testing.T) {
	w := groupLogs(t, loadOracle(t))
	wire(t, w[0], nvmespec.ANALog{ChangeCount: 1<<40 | 7, Announced: 2, Groups: []nvmespec.ANAGroup{
		{GroupID: 0x01020304, ChangeCount: 9, State: nvmespec.ANANonOptimized, NSIDs: []uint32{5, 0x106}},
		{GroupID: 8, State: nvmespec.ANAChange, NSIDs: []uint32{}}}}, nvmespec.DecodeANALog)
	wire(t, w[1], nvmespec.LBAStatusLog{TotalBytes: 80, Announced: 2, UnrecoverableBlocksEstimate: 70000, Generation: 0x0102, Elements: []nvmespec.LBAStatusElement{
		{NSID: 3, Action: 0x11, Ranges: []nvmespec.LBARange{{StartLBA: 1 << 50, Blocks: 1000}, {StartLBA: 15000, Blocks: 1 << 31}}},
		{NSID: 4, Action: 0x10, WholeNamespace: true, Ranges: []nvmespec.LBARange{}}}}, nvmespec.DecodeLBAStatusLog)
	wire(t, w[2], nvmespec.EnduranceGroupEvents{Announced: 2, Groups: []uint16{1, 0x902}}, nvmespec.DecodeEnduranceGroupEvents)
	wire(t, w[3], nvmespec.FDPConfigurations{Version: 2, TotalBytes: 152, Announced: 2, Configurations: []nvmespec.FDPConfiguration{
		{Valid: true, VolatileWriteCache: true, GroupIdentifierBits: 4, ReclaimGroups: 2, PlacementIDMax: 7, Namespaces: 16, ReclaimUnitBytes: 13 << 30,
			ReclaimUnitSeconds: some[uint32](86400), Handles: []nvmespec.FDPHandleType{nvmespec.FDPInitiallyIsolated, nvmespec.FDPPersistentlyIsolated}},
		{ReclaimGroups: 1, Handles: []nvmespec.FDPHandleType{}}}}, nvmespec.DecodeFDPConfigurations)
	wire(t, w[4], nvmespec.FDPHandleUsage{Announced: 3, Handles: []nvmespec.FDPUse{nvmespec.FDPHostUse, nvmespec.FDPUnused, nvmespec.FDPControllerUse}}, nvmespec.DecodeFDPHandleUsage)
	wire(t, w[5], nvmespec.FDPStatistics{HostBytesWritten: u128(1, 2), MediaBytesWritten: u128(3, 4), MediaBytesErased: u128(5, 6)}, nvmespec.DecodeFDPStatistics)
	wire(t, w[6], nvmespec.FDPEvents{Announced: 2, Events: []nvmespec.FDPEvent{
		{Type: nvmespec.FDPInvalidPlacementID, Time: nvmespec.Timestamp{Milliseconds: 5000, Stopped: true}, PlacementID: some[uint16](0x0102), NSID: some[uint32](9)},
		{Type: nvmespec.FDPMediaReallocated, ReclaimGroup: some[uint16](0x0304), ReclaimUnitHandle: some[uint8](5),
			Reallocation: some(nvmespec.FDPReallocation{Blocks: 300, LBA: some[uint64](1 << 45)})}}}, nvmespec.DecodeFDPEvents)
}

// lengths are what the first bytes of each of groupLogs say of its length.
func lengths() []func([]byte) uint64 {
	fixed := func(n uint64) func([]byte) uint64 { return func([]byte) uint64 { return n } }
	return []func([]byte) uint64{nvmespec.ANALogBytes, nvmespec.LBAStatusLogBytes, nvmespec.EnduranceGroupEventsBytes,
		nvmespec.FDPConfigurationsBytes, nvmespec.FDPHandleUsageBytes, fixed(64), fixed(192)}
}

// fuzzLengths asks for a length of hostile bytes.
func fuzzLengths(t *testing.T, b []byte) {
	for i, length := range lengths() {
		if n := length(b); n < 8 {
			t.Fatalf("log %d of %d bytes has %d", i, len(b), n)
		}
	}
}

// Every log is read in as many pieces as it takes, and a piece is never taken
// for the whole.
func TestGroupLogs_length(t *testing.T) {
	for i, b := range groupLogs(t, loadOracle(t)) {
		length := lengths()[i]
		if got := length(b); got != uint64(len(b)) {
			t.Errorf("log %d: %d bytes, has %d", i, got, len(b))
		}
		for have := 16; have < len(b); {
			n := length(b[:have])
			if n <= uint64(have) || n > uint64(len(b)) {
				t.Fatalf("log %d: after %d bytes it is said to have %d of %d", i, have, n, len(b))
			}
			have = int(n)
		}
	}
}

func TestGroupLogs_missingBytes(t *testing.T) {
	w := groupLogs(t, loadOracle(t))
	ana, err := nvmespec.DecodeANALog(w[0][:16+32+7])
	if err != nil || ana.Announced != 2 || len(ana.Groups) != 0 {
		t.Errorf("half a group: %+v, %v", ana, err)
	}
	lba, err := nvmespec.DecodeLBAStatusLog(w[1][:63])
	if err != nil || lba.Announced != 2 || len(lba.Elements) != 0 {
		t.Errorf("half an element: %+v, %v", lba, err)
	}
	short := bytes.Clone(w[3])
	short[16] = 71 // the first configuration is shorter than its handles
	if _, err := nvmespec.DecodeFDPConfigurations(short); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("a configuration that overlaps the next: %v", err)
	}
	j, err := json.Marshal(mustKind(t, "fdp-events", w[6]))
	if err != nil || !strings.Contains(string(j), `"type":"media reallocated"`) || !strings.Contains(string(j), `"nsid":null`) {
		t.Errorf("%s, %v", j, err)
	}
}

func mustKind(t *testing.T, kind string, b []byte) any {
	t.Helper()
	v, err := nvmespec.DecodeKind(kind, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
