package nvmespec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

func TestLists_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	u := o.page(t, "nvme_id_uuid_list_entry").set("header", 2).set128("uuid", 0x0102, 0x0304)
	uuids := o.page(t, "nvme_id_uuid_list").at("entry", 0, u.b...).at("entry", 64, u.b...) // a hole ends the list
	entry := nvmespec.UUIDEntry{Index: 1, Association: 2, UUID: nvmespec.GUID{0: 2, 1: 1, 8: 4, 9: 3}}
	got, err := nvmespec.DecodeUUIDList(uuids.b)
	if d := cmp.Diff(nvmespec.UUIDList{Entries: []nvmespec.UUIDEntry{entry}}, got); d != "" || err != nil {
		t.Errorf("UUIDs: %v\n%s", err, d)
	}
	if got.Find(entry.UUID) != 1 || got.Find(nvmespec.GUID{9}) != 0 {
		t.Error("find a UUID")
	}
	both(t, o.page(t, "nvme_id_uuid_list").at("entry", 0, u.b...), got, nvmespec.DecodeUUIDList)

	d := o.page(t, "nvme_id_domain_attr").set("dom_id", 3).set128("dom_cap", 1, 2).set128("unalloc_dom_cap", 3, 4).set128("max_egrp_dom_cap", 5, 6)
	both(t, o.page(t, "nvme_id_domain_list").set("num", 1).at("domain_attr", 0, d.b...), nvmespec.DomainList{Domains: []nvmespec.Domain{
		{ID: 3, CapacityBytes: u128(1, 2), UnallocatedBytes: u128(3, 4), EnduranceGroupBytesMax: u128(5, 6)}}}, nvmespec.DecodeDomainList)

	both(t, o.page(t, "nvme_id_endurance_group_list").set("num", 2).at("identifier", 0, 1, 0, 9, 1), nvmespec.EnduranceGroupList{Groups: []uint16{1, 0x109}},
		nvmespec.DecodeEnduranceGroupList)

	s := o.page(t, "nvme_nvmset_attr").set("nvmsetid", 1).set("endgid", 2).set("rr4kt", 700).set("ows", 65536).set128("tnvmsetcap", 7, 8).set128("unvmsetcap", 9, 10)
	both(t, o.page(t, "nvme_id_nvmset_list").set("nid", 1).at("ent", 0, s.b...), nvmespec.NVMSetList{Sets: []nvmespec.NVMSet{
		{ID: 1, EnduranceGroupID: 2, RandomRead4KNanoseconds: 70_000, OptimalWriteBytes: 65536, CapacityBytes: u128(7, 8), UnallocatedBytes: u128(9, 10)}}}, nvmespec.DecodeNVMSetList)

	p := o.page(t, "nvme_primary_ctrl_cap").set("cntlid", 1).set("portid", 2).set("crt", 3).set("vqfrt", 4).set("vqrfa", 5).set("vqrfap", 6).set("vqprt", 7).
		set("vqfrsm", 8).set("vqgran", 9).set("vifrt", 14).set("virfa", 15).set("virfap", 16).set("viprt", 17).set("vifrsm", 18).set("vigran", 19)
	both(t, p, nvmespec.PrimaryController{ControllerID: 1, PortID: 2, ResourceTypes: 3,
		Queues:     nvmespec.FlexibleResources{Total: 4, Assigned: 5, AllocatedPrimary: 6, PrivateTotal: 7, SecondaryMax: 8, PreferredGranular: 9},
		Interrupts: nvmespec.FlexibleResources{Total: 14, Assigned: 15, AllocatedPrimary: 16, PrivateTotal: 17, SecondaryMax: 18, PreferredGranular: 19},
	}, nvmespec.DecodePrimaryController)

	sc := o.page(t, "nvme_secondary_ctrl").set("scid", 1).set("pcid", 2).set("scs", 1).set("vfn", 3).set("nvq", 4).set("nvi", 5)
	both(t, o.page(t, "nvme_secondary_ctrl_list").set("num", 1).at("sc_entry", 0, sc.b...), nvmespec.SecondaryControllerList{Controllers: []nvmespec.SecondaryController{
		{ControllerID: 1, PrimaryControllerID: 2, Online: true, VirtualFunction: 3, Queues: 4, Interrupts: 5}}}, nvmespec.DecodeSecondaryControllerList)

	both(t, o.page(t, "nvme_id_iocs").at("iocsc", 0, 1, 0, 0, 0, 0, 0, 0, 0, 5), nvmespec.CommandSetCombinations{Combinations: []uint64{1, 5}},
		nvmespec.DecodeCommandSetCombinations)

	h := o.page(t, "nvme_feat_host_behavior").set("acre", 1).set("etdas", 1).set("lbafee", 1).set("hdisns", 1).set("cdfe", 0x3C)
	both(t, h, nvmespec.HostBehavior{AdvancedRetry: true, ExtendedTelemetry: true, ExtendedLBAFormats: true, DispersedNamespaces: true, CopyFormats: 0x3C},
		nvmespec.DecodeHostBehavior)

	l := o.page(t, "nvme_lba_status_desc").set("dslba", 1<<40).set("nlb", 8).set("status", 2)
	head := o.page(t, "nvme_lba_status").set("nlsd", 1).set("cmpc", 2)
	list := nvmespec.LBAStatusList{Completion: 2, Announced: 1, Ranges: []nvmespec.LBAStatusRange{{StartLBA: 1 << 40, Blocks: 8, Status: 2}}}
	wire := append(bytes.Clone(head.b), l.b...)
	if got, err := nvmespec.DecodeLBAStatusList(wire); err != nil || cmp.Diff(list, got) != "" || !bytes.Equal(list.Append(nil), wire) {
		t.Errorf("LBA status %+v, %v", got, err)
	}
}

// TestLists_tooMany: a count that the page cannot hold is refused.
func TestLists_tooMany(t *testing.T) {
	full := make([]byte, 4096)
	full[0], full[1] = 0xFF, 0xFF
	for kind, want := range map[string]error{"domain-list": nvmespec.ErrInvalidData, "nvm-set-list": nvmespec.ErrInvalidData,
		"secondary-ctrl-list": nvmespec.ErrInvalidData, "endurance-group-list": nvmespec.ErrInvalidData} {
		if _, err := nvmespec.DecodeKind(kind, full); !errors.Is(err, want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestRanges_againstOffsetTable(t *testing.T) {
	o := loadOracle(t)
	dsm := o.page(t, "nvme_dsm_range").set("cattr", 0x407).set("nlb", 9).set("slba", 1<<33)
	ranges := []nvmespec.DatasetRange{{Attributes: 0x407, Blocks: 9, StartLBA: 1 << 33}, {Blocks: 1}}
	b, cdw10, err := nvmespec.AppendDatasetRanges(nil, ranges)
	if err != nil || cdw10 != 1 || !bytes.Equal(b[:16], dsm.b) {
		t.Errorf("dataset management: % x, %d, %v", b, cdw10, err)
	}
	if back, err := nvmespec.DecodeDatasetRanges(b, cdw10); err != nil || cmp.Diff(ranges, back) != "" {
		t.Errorf("back: %+v, %v", back, err)
	}
	tag := [10]byte{1, 2, 3, 4}
	long := [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for format, c := range map[uint8]struct {
		structure string
		r         nvmespec.CopyRange
	}{
		0: {"nvme_copy_range", nvmespec.CopyRange{StartLBA: 1 << 40, Blocks: 65536, ReferenceTag: tag, ApplicationTag: 7, ApplicationTagMask: 8}},
		1: {"nvme_copy_range_f1", nvmespec.CopyRange{StartLBA: 1 << 40, Blocks: 65536, ReferenceTag: long, ApplicationTag: 7, ApplicationTagMask: 8}},
		2: {"nvme_copy_range_f2", nvmespec.CopyRange{SourceNSID: 3, Options: 5, StartLBA: 1 << 40, Blocks: 65536, ReferenceTag: tag, ApplicationTag: 7, ApplicationTagMask: 8}},
		3: {"nvme_copy_range_f3", nvmespec.CopyRange{SourceNSID: 3, Options: 5, StartLBA: 1 << 40, Blocks: 65536, ReferenceTag: long, ApplicationTag: 7, ApplicationTagMask: 8}},
	} {
		p := o.page(t, c.structure).set("slba", 1<<40).set("nlb", 0xFFFF).set("elbat", 7).set("elbatm", 8)
		if format >= 2 {
			p.set("snsid", 3).set("sopt", 5)
		}
		if format%2 == 0 {
			p.at("eilbrt", 0, tag[:4]...)
		} else {
			p.at("elbt", 0, long[:]...)
		}
		b, err := nvmespec.AppendCopyRanges(nil, format, []nvmespec.CopyRange{c.r})
		if err != nil || p.diff(b) != "" {
			t.Errorf("copy format %d: %v\n%s", format, err, p.diff(b))
		}
		if back, err := nvmespec.DecodeCopyRanges(p.b, format, 1); err != nil || cmp.Diff([]nvmespec.CopyRange{c.r}, back) != "" {
			t.Errorf("copy format %d back: %+v, %v", format, back, err)
		}
	}
	for name, err := range map[string]error{
		"no ranges": func() error { _, _, err := nvmespec.AppendDatasetRanges(nil, nil); return err }(),
		"257 ranges": func() error {
			_, _, err := nvmespec.AppendDatasetRanges(nil, make([]nvmespec.DatasetRange, 257))
			return err
		}(),
		"copy format 4":    func() error { _, err := nvmespec.AppendCopyRanges(nil, 4, nil); return err }(),
		"copy of 0 blocks": func() error { _, err := nvmespec.AppendCopyRanges(nil, 0, make([]nvmespec.CopyRange, 1)); return err }(),
	} {
		if !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIODwords: zero-based counts stay in the codec.
func TestIODwords(t *testing.T) {
	a, b, c, err := nvmespec.IOFields{StartLBA: 0x1_2345_6789, Blocks: 65536, Deallocate: true, Protection: 5, FUA: true, LimitedRetry: true}.Dwords()
	if err != nil || a != 0x23456789 || b != 1 || c != 0xFFFF|1<<25|5<<26|1<<30|1<<31 {
		t.Errorf("%#x %#x %#x, %v", a, b, c, err)
	}
	if f := nvmespec.DecodeIOFields(a, b, c); f.Blocks != 65536 || f.StartLBA != 0x123456789 || !f.FUA {
		t.Errorf("%+v", f)
	}
	if _, _, _, err := (nvmespec.IOFields{}).Dwords(); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("no blocks: %v", err)
	}
	f := nvmespec.CopyFields{Destination: 1 << 36, Ranges: 256, Format: 3, FUA: true}
	a, b, c, err = f.Dwords()
	if err != nil || a != 0 || b != 16 || c != 0xFF|3<<8|1<<30 || nvmespec.DecodeCopyFields(a, b, c) != f {
		t.Errorf("copy %#x %#x %#x, %v", a, b, c, err)
	}
	l := nvmespec.LBAStatusFields{StartLBA: 5, MaxBytes: 4096, Blocks: 7, Action: 0x11}
	d, err := l.Dwords()
	if err != nil || d != [4]uint32{5, 0, 1023, 7 | 0x11<<24} || nvmespec.DecodeLBAStatusFields(d) != l {
		t.Errorf("LBA status %x, %v", d, err)
	}
}

// moreKinds are the decoders that FuzzDecodeMore chooses from by its first byte.
func moreKinds() []func(t *testing.T, b []byte) {
	return []func(t *testing.T, b []byte){
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeSelfTestLog) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeSanitizeLog) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeTelemetryHeader) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodePersistentHeader) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeSupportedLogs) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeUUIDList) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeDomainList) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeNVMSetList) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeEnduranceGroupList) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodePrimaryController) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeSecondaryControllerList) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeCommandSetCombinations) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeHostBehavior) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeLBAStatusList) },
		fuzzEvents,
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeANALog) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeLBAStatusLog) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeEnduranceGroupEvents) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeFDPConfigurations) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeFDPHandleUsage) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeFDPStatistics) },
		func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeFDPEvents) },
		fuzzLengths,
	}
}

// fuzzEvents walks a hostile log: it ends, and every event lies within it.
func fuzzEvents(t *testing.T, b []byte) {
	l, err := nvmespec.DecodePersistentLog(b)
	if err != nil {
		return
	}
	size := 0
	for _, e := range l.Events {
		size += 24 + len(e.Vendor) + len(e.Data)
		if v, err := e.Decode(); err != nil && v != nil {
			t.Fatalf("%s: a value with an error", e.Type)
		}
	}
	if size > len(b) {
		t.Fatalf("%d bytes of events in %d", size, len(b))
	}
	if j, err := json.Marshal(l); err != nil || !json.Valid(j) {
		t.Fatalf("JSON: %v", err)
	}
	if again, err := nvmespec.DecodePersistentLog(l.Append(nil)); err != nil || len(again.Events) != len(l.Events) || again.Incomplete != "" {
		t.Fatalf("does not read back: %v, %q", err, again.Incomplete)
	}
}

func FuzzDecodeMore(f *testing.F) {
	o := loadOracle(f)
	var log []byte
	for typ, c := range events(f, o) {
		log = append(log, wireEvent(f, o, uint64(typ), 0, nil, c.wire)...)
	}
	head := o.page(f, "nvme_persistent_event_log").set("lid", 0x0D).set("tnev", 13).set("tll", uint64(512+len(log))).set("lhl", 492)
	for i := range moreKinds() {
		f.Add(uint8(i), make([]byte, 4096))
		f.Add(uint8(i), bytes.Repeat([]byte{0xFF}, 4096))
	}
	f.Add(uint8(14), append(head.b, log...))
	for i, wire := range groupLogs(f, o) {
		f.Add(uint8(15+i), wire)
		f.Add(uint8(22), wire)
	}
	f.Add(uint8(0), o.page(f, "nvme_self_test_log").set("current_operation", 1).at("result", 0, 0x21, 1, 0xF).b)
	f.Add(uint8(2), o.page(f, "nvme_telemetry_log").set("lpi", 8).set("dalb3", 9).b)
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		kinds := moreKinds()
		kinds[int(which)%len(kinds)](t, b)
	})
}
