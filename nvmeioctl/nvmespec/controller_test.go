package nvmespec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

// wireController is a controller page with a different value in every field that
// the codec models, by the table alone.
func wireController(t testing.TB, o oracle) *rawPage {
	p := o.page(t, "nvme_id_ctrl")
	p.set("vid", 0x1C5F).set("ssvid", 0x1234)
	p.text("sn", "SN0123456789ABCDEF-z", ' ').text("mn", "PBlaze7 7940 7.68TB", ' ').text("fr", "00A1B2C3", ' ')
	p.set("rab", 6).set("ieee", 0x8C1553).set("cmic", 0x0B).set("mdts", 7).set("cntlid", 0x41)
	p.set("ver", 0x020001).set("rtd3r", 1_000_007).set("rtd3e", 2_000_003).set("oaes", 0x4B00).set("ctratt", 0x8292)
	p.set("rrls", 0xA55A).set("cntrltype", 1).set("crdt1", 11).set("crdt2", 222).set("crdt3", 3333)
	p.at("fguid", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	p.set("oacs", 0x03DE).set("acl", 3).set("aerl", 7).set("frmw", 0x37).set("lpa", 0x5E).set("elpe", 62)
	p.set("npss", 1).set("avscc", 1).set("apsta", 1).set("wctemp", 346).set("cctemp", 353).set("mtfa", 77)
	p.set("hmpre", 0x1111).set("hmmin", 0x222).set128("tnvmcap", 0x11, 0x22).set128("unvmcap", 0x33, 0x44)
	p.set("rpmbs", 0xCAFE0001).set("edstt", 49).set("dsto", 1).set("fwug", 2).set("kas", 5).set("hctma", 1)
	p.set("mntmt", 273).set("mxtmt", 370).set("sanicap", 0xA0000003).set("hmminds", 0x77).set("hmmaxd", 0x1F)
	p.set("nsetidmax", 0x0102).set("endgidmax", 0x0304).set("anatt", 10).set("anacap", 0x5F)
	p.set("anagrpmax", 0x0A0B0C0D).set("nanagrpid", 0x01020304).set("pels", 0x99).set("domainid", 0x2122)
	p.set("mptfawr", 88).set128("megcap", 0x55, 0x66)
	p.set("sqes", 0x76).set("cqes", 0x54).set("maxcmd", 0x400).set("nn", 128).set("oncs", 0x15F).set("fuses", 1)
	p.set("fna", 0x0E).set("vwc", 0x07).set("awun", 0xFFFF).set("awupf", 0).set("icsvscc", 1).set("nwpc", 7).set("acwu", 4)
	p.set("ocfs", 0x0F).set("sgls", 0x000F0002).set("mnan", 64).set128("maxdna", 0x77, 0x88).set("maxcna", 0x0BAD)
	p.text("subnqn", "nqn.2024-01.com.example:drive", 0)
	p.set("ioccsz", 4).set("iorcsz", 1).set("icdoff", 3).set("fcatt", 1).set("msdbd", 16).set("ofcs", 1)
	psd := o["nvme_id_psd"]
	p.at("psd", psd["mp"].off, 0xC4, 0x09) // 2500 x 10 mW
	p.at("psd", psd["enlat"].off, 0x10, 0x27).at("psd", psd["exlat"].off, 0x11, 0x27)
	p.at("psd", psd["rrt"].off, 1, 2, 3, 4)
	p.at("psd", psd["idlp"].off, 0x21, 0x03).at("psd", psd["ips"].off, 1<<6)       // 801 x 100 uW
	p.at("psd", psd["actp"].off, 0x98, 0x08).at("psd", psd["apws"].off, 2<<6|0x05) // 2200 x 10 mW, workload 5
	const second = 32
	p.at("psd", second+psd["mp"].off, 201, 0).at("psd", second+psd["flags"].off, 3) // 201 x 100 uW, no I/O
	return p
}

// wantController is what that page means.
func wantController() nvmespec.Controller {
	u := func(lo, hi uint64) nvmespec.Uint128 { return nvmespec.Uint128{Lo: lo, Hi: hi} }
	return nvmespec.Controller{
		VendorID: 0x1C5F, SubsystemVendorID: 0x1234,
		SerialNumber: "SN0123456789ABCDEF-z", ModelNumber: "PBlaze7 7940 7.68TB", FirmwareRevision: "00A1B2C3",
		ArbitrationBurstLog2: 6, OUI: 0x8C1553,
		MultiPath:        nvmespec.MultiPort | nvmespec.MultiController | nvmespec.ANAReporting,
		MaxTransferBytes: 128 * 4096, ControllerID: 0x41, Version: nvmespec.MakeVersion(2, 0, 1),
		RTD3ResumeMicroseconds: 1_000_007, RTD3EntryMicroseconds: 2_000_003,
		Events:             nvmespec.EventNamespaceAttributes | nvmespec.EventFirmwareActivation | nvmespec.EventANAChange | nvmespec.EventEnduranceAggregate,
		Attributes:         nvmespec.AttrEnduranceGroups | nvmespec.AttrNamespaceGranularity | nvmespec.AttrUUIDList | nvmespec.AttrExtendedLBAFormats | 1<<1,
		ReadRecoveryLevels: 0xA55A, Type: 1,
		FRUGUID:                nvmespec.GUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		RetryDelayMilliseconds: [3]uint32{1100, 22200, 333300},
		Admin:                  0x03DE, AbortLimit: 4, AsyncEventLimit: 8,
		FirmwareSlotCount: 3, FirmwareSlot1ReadOnly: true, FirmwareActivatesWithoutReset: true, FirmwareDetectsOverlap: true,
		Logs:            nvmespec.LogEffects | nvmespec.LogExtended | nvmespec.LogTelemetry | nvmespec.LogPersistentEvents | nvmespec.LogTelemetryArea4,
		ErrorLogEntries: 63, AdminVendorFormat: true, APST: true,
		WarningTemperature: nvmespec.Some[nvmespec.Celsius](73), CriticalTemperature: nvmespec.Some[nvmespec.Celsius](80),
		ActivationMillisecondsMax:       nvmespec.Some[uint32](7700),
		ActivationCommitMillisecondsMax: nvmespec.Some[uint32](8800),
		HostMemoryPreferredBytes:        0x1111 * 4096, HostMemoryMinBytes: 0x222 * 4096,
		TotalCapacityBytes: u(0x11, 0x22), UnallocatedCapacityBytes: u(0x33, 0x44),
		RPMB: 0xCAFE0001, SelfTestMinutes: 49, SelfTestOptions: 1,
		FirmwareGranularityBytes: nvmespec.Some[uint32](8192), KeepAliveMilliseconds: 500,
		HostThermalManagement: true, ThermalMinimum: nvmespec.Some[nvmespec.Celsius](0), ThermalMaximum: nvmespec.Some[nvmespec.Celsius](97),
		Sanitize:                     nvmespec.SanitizeCrypto | nvmespec.SanitizeBlock | 0xA0000000,
		HostMemoryDescriptorMinBytes: 0x77 * 4096, HostMemoryDescriptorsMax: 0x1F,
		NVMSetIDMax: 0x0102, EnduranceGroupIDMax: 0x0304, ANATransitionSeconds: 10, ANACapabilities: 0x5F,
		ANAGroupIDMax: 0x0A0B0C0D, ANAGroupCount: 0x01020304, PersistentEventLogBytes: 0x99 * 65536, DomainID: 0x2122,
		EnduranceGroupCapacityBytesMax: u(0x55, 0x66),
		SQEntryBytesMin:                64, SQEntryBytesMax: 128, CQEntryBytesMin: 16, CQEntryBytesMax: 32,
		OutstandingCommandsMax: 0x400, NamespaceIDMax: 128, IO: 0x15F, FusedOperations: 1,
		Format:             nvmespec.EraseAllNamespaces | nvmespec.FormatCryptoErase | nvmespec.FormatNoBroadcast,
		VolatileWriteCache: true, FlushAllBehavior: 3,
		AtomicWriteBlocks: 65536, AtomicWritePowerFailBlocks: 1, AtomicCompareWriteBlocks: 5,
		IOVendorFormat: true, WriteProtection: 7, CopyFormats: 0x0F, SGL: 0x000F0002, AllowedNamespacesMax: 64,
		DomainAttachmentsMax: u(0x77, 0x88), ControllerAttachmentsMax: 0x0BAD,
		SubsystemNQN:        "nqn.2024-01.com.example:drive",
		CommandCapsuleBytes: 64, ResponseCapsuleBytes: 16, InCapsuleDataOffsetBytes: 48,
		FabricsAttributes: 1, SGLDescriptorsMax: 16, FabricsCommands: 1,
		PowerStates: []nvmespec.PowerState{
			{MaxPower: 25_000_000, EntryMicroseconds: 10000, ExitMicroseconds: 10001,
				ReadThroughputRank: 1, ReadLatencyRank: 2, WriteThroughputRank: 3, WriteLatencyRank: 4,
				IdlePower: nvmespec.Some[nvmespec.Microwatts](80_100), ActivePower: nvmespec.Some[nvmespec.Microwatts](22_000_000),
				ActiveWorkload: 5},
			{MaxPower: 20_100, NonOperational: true},
		},
	}
}

func TestController_againstOffsetTable(t *testing.T) {
	page := wireController(t, loadOracle(t))
	got, err := nvmespec.DecodeController(page.b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantController(), got); d != "" {
		t.Errorf("decode (-want +got):\n%s", d)
	}
	if d := page.diff(wantController().Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}

func TestController_notReported(t *testing.T) {
	o := loadOracle(t)
	page := o.page(t, "nvme_id_ctrl").set("vid", 1)
	got, err := nvmespec.DecodeController(page.b)
	if err != nil {
		t.Fatal(err)
	}
	if got.WarningTemperature.OK || got.CriticalTemperature.OK || got.ActivationMillisecondsMax.OK || got.FirmwareGranularityBytes.OK {
		t.Errorf("0 must be not reported: %+v", got)
	}
	if got.MaxTransferBytes != 0 {
		t.Errorf("MDTS 0 is no limit, got %d", got.MaxTransferBytes)
	}
	if len(got.PowerStates) != 1 || got.PowerStates[0].IdlePower.OK || got.PowerStates[0].ActivePower.OK {
		t.Errorf("power states %+v", got.PowerStates)
	}
	page.set("fwug", 0xFF).set("npss", 255).set("mdts", 255)
	if got, err = nvmespec.DecodeController(page.b); err != nil {
		t.Fatal(err)
	}
	if g, ok := got.FirmwareGranularityBytes.Get(); !ok || g != 4 {
		t.Errorf("FWUG FFh is no restriction beyond dwords, got %d, %v", g, ok)
	}
	if len(got.PowerStates) != nvmespec.MaxPowerStates {
		t.Errorf("NPSS 255 gives %d power states, the table has 32", len(got.PowerStates))
	}
	if got.MaxTransferBytes != 0 {
		t.Errorf("MDTS 255 gives %d bytes", got.MaxTransferBytes)
	}
}

func TestController_hostileText(t *testing.T) { // SYS-07
	page := loadOracle(t).page(t, "nvme_id_ctrl").set("vid", 1)
	page.text("sn", "AB\nCD\x1b[31m\xff", ' ').text("mn", "  model\x00\x00", 0).text("fr", "12345678", ' ')
	page.text("subnqn", "nqn.x\x00garbage", 'Z')
	got, err := nvmespec.DecodeController(page.b)
	if err != nil {
		t.Fatal(err)
	}
	if got.SerialNumber != "AB?CD?[31m?" || got.ModelNumber != "model" || got.FirmwareRevision != "12345678" || got.SubsystemNQN != "nqn.x" {
		t.Errorf("got %q %q %q %q", got.SerialNumber, got.ModelNumber, got.FirmwareRevision, got.SubsystemNQN)
	}
}

func TestController_refusals(t *testing.T) {
	if _, err := nvmespec.DecodeController(make([]byte, 4095)); !errors.Is(err, nvmespec.ErrShort) {
		t.Errorf("4095 bytes: %v", err)
	}
	if _, err := nvmespec.DecodeController(make([]byte, 4096)); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("all zero: %v", err)
	}
}

func TestPowerState_scales(t *testing.T) { // PWR-01, PWR-06
	o := loadOracle(t)
	page := o.page(t, "nvme_id_ctrl").set("vid", 1)
	psd := o["nvme_id_psd"]
	for _, tc := range []struct {
		ips  byte
		want string
	}{{0 << 6, "none"}, {1 << 6, "0.0080 W"}, {2 << 6, "0.8000 W"}, {3 << 6, "none"}, {0x3F, "none"}} {
		page.at("psd", psd["idlp"].off, 80, 0).at("psd", psd["ips"].off, tc.ips)
		c, err := nvmespec.DecodeController(page.b)
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if p, ok := c.PowerStates[0].IdlePower.Get(); ok {
			got = p.String()
		}
		if got != tc.want {
			t.Errorf("IPS %02x: %s, want %s", tc.ips, got, tc.want)
		}
	}
	// The two scales of the largest power, and the finest: 200 with MXPS is 0.02 W.
	page.at("psd", psd["mp"].off, 0xFF, 0xFF).at("psd", psd["flags"].off, 0)
	c, _ := nvmespec.DecodeController(page.b)
	if got := c.PowerStates[0].MaxPower.String(); got != "655.3500 W" {
		t.Errorf("largest power: %s", got)
	}
}

func TestVersion_text(t *testing.T) {
	var v nvmespec.Version
	if err := v.UnmarshalText([]byte("1.2.1")); err != nil || v != 66049 || v.String() != "1.2.1" {
		t.Errorf("%v %v", v, err)
	}
	if err := v.UnmarshalText([]byte("x")); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("error %v", err)
	}
}
