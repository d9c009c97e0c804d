package nvmespec_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// fixtures is the folder of captured answers and outputs that may not be copied
// into this project.
func fixtures(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("NVOP_FIXTURES")
	if dir == "" {
		t.Skip("NVOP_FIXTURES is not set: the fixtures of real drives are not there")
	}
	return filepath.Join(dir, "nvme")
}

func readFixture(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{fixtures(t)}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// param is what another program's reader says of the same drive: a WD SN550.
func wdParams(t *testing.T) func(name string) string {
	var doc struct {
		NVMe struct {
			Parameters map[string]struct {
				Value any `json:"value"`
			} `json:"parameters"`
		} `json:"nvme"`
	}
	if err := json.Unmarshal(readFixture(t, "nvmetools", "nvme.info.json"), &doc); err != nil {
		t.Fatal(err)
	}
	return func(name string) string {
		t.Helper()
		p, ok := doc.NVMe.Parameters[name]
		if !ok {
			t.Fatalf("nvme.info.json has no %q", name)
		}
		return strings.TrimSpace(strings.ReplaceAll(fmt.Sprint(p.Value), ",", ""))
	}
}

// wdRaw is the bytes in that program's file, which go with its parameters.
func wdRaw(t *testing.T, name string) []byte {
	t.Helper()
	var doc struct {
		Raw map[string][]string `json:"raw hex data"`
	}
	if err := json.Unmarshal(readFixture(t, "nvmetools", "nvme.info.json"), &doc); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, line := range doc.Raw[name] {
		columns := strings.Split(line, "|") // offset, 8 bytes, 8 bytes and text, text
		words := strings.Fields(columns[1])
		for _, w := range append(words, strings.Fields(columns[2])[:8]...) {
			v, err := strconv.ParseUint(w, 16, 8)
			if err != nil {
				return b // ".." ends a short answer
			}
			b = append(b, byte(v))
		}
	}
	return b
}

// supported is that program's word for a bit.
func supported(set bool) string {
	if set {
		return "Supported"
	}
	return "Not Supported"
}

// watts is that program's way to write a power.
func watts(p nvmespec.Opt[nvmespec.Microwatts]) string {
	if !p.OK || p.Value == 0 {
		return "Not Reported"
	}
	return strconv.FormatFloat(float64(p.Value)/1e6, 'f', -1, 64) + " Watts"
}

func compareParams(t *testing.T, param func(string) string, got map[string]any) {
	t.Helper()
	for name, v := range got {
		if want := param(name); fmt.Sprint(v) != want {
			t.Errorf("%s: %q, the other reader says %q", name, fmt.Sprint(v), want)
		}
	}
}

func TestFixture_realController(t *testing.T) {
	param := wdParams(t)
	c, err := nvmespec.DecodeController(readFixture(t, "nvmetools", "id-ctrl.bin"))
	if err != nil {
		t.Fatal(err)
	}
	oui := fmt.Sprintf("%02x-%02x-%02x", c.OUI>>16, c.OUI>>8&0xFF, c.OUI&0xFF)
	compareParams(t, param, map[string]any{
		"PCI Vendor ID (VID)":             fmt.Sprintf("0x%X", c.VendorID),
		"PCI Subsystem Vendor ID (SSVID)": fmt.Sprintf("0x%X", c.SubsystemVendorID),
		"Serial Number (SN)":              c.SerialNumber, "Model Number (MN)": c.ModelNumber, "Firmware Revision (FR)": c.FirmwareRevision,
		"IEEE OUI Identifier (IEEE)":                        oui,
		"NVM Subsystem NVMe Qualified Name (SUBNQN)":        c.SubsystemNQN,
		"Controller ID (CNTLID)":                            c.ControllerID,
		"Version (VER)":                                     c.Version,
		"Abort Command Limit (ACL)":                         c.AbortLimit,
		"Asynchronous Event Request Limit (AERL)":           c.AsyncEventLimit,
		"Error Log Page Entries (ELPE)":                     c.ErrorLogEntries,
		"Atomic Write Unit Normal (AWUN)":                   c.AtomicWriteBlocks,
		"Atomic Write Unit Power Fail (AWUPF)":              c.AtomicWritePowerFailBlocks,
		"Number of Namespaces (NN)":                         c.NamespaceIDMax,
		"Maximum Number Allowed Namespaces (MNAN)":          c.AllowedNamespacesMax,
		"Number of Power States Support (NPSS)":             len(c.PowerStates),
		"NVM Set Identifier Maximum (NSETIDMAX)":            c.NVMSetIDMax,
		"Endurance Group Identifier Maximum (ENDGIDMAX)":    c.EnduranceGroupIDMax,
		"Firmware Slots":                                    c.FirmwareSlotCount,
		"Firmware Activation Without Reset":                 supported(c.FirmwareActivatesWithoutReset),
		"Firmware Update Granularity (FWUG)":                fmt.Sprintf("%d KiB", c.FirmwareGranularityBytes.Value/1024),
		"Maximum Time for Firmware Activation (MTFA)":       fmt.Sprintf("%d mS", c.ActivationMillisecondsMax.Value),
		"Warning Composite Temperature Threshold (WCTEMP)":  fmt.Sprintf("%d C", c.WarningTemperature.Value),
		"Critical Composite Temperature Threshold (CCTEMP)": fmt.Sprintf("%d C", c.CriticalTemperature.Value),
		"Minimum Thermal Management Temperature (MNTMT)":    fmt.Sprintf("%d C", c.ThermalMinimum.Value),
		"Maximum Thermal Management Temperature (MXTMT)":    fmt.Sprintf("%d C", c.ThermalMaximum.Value),
		"Extended Device Self-test Time (EDSTT)":            fmt.Sprintf("%d Min", c.SelfTestMinutes),
		"Host Memory Buffer Preferred Size (HMPRE)":         fmt.Sprintf("%d (%d KiB)", c.HostMemoryPreferredBytes/4096, c.HostMemoryPreferredBytes/1024),
		"Host Memory Buffer Minimum Size (HMMIN)":           fmt.Sprintf("%d (%d KiB)", c.HostMemoryMinBytes/4096, c.HostMemoryMinBytes/1024),
		"Host Memory Maximum Descriptors Entries (HMMAXD)":  c.HostMemoryDescriptorsMax,
		"RTD3 Resume Latency (RTD3R)":                       fmt.Sprintf("%d uS (%.3f sec)", c.RTD3ResumeMicroseconds, float64(c.RTD3ResumeMicroseconds)/1e6),
		"RTD3 Entry Latency (RTD3E)":                        fmt.Sprintf("%d uS (%.3f sec)", c.RTD3EntryMicroseconds, float64(c.RTD3EntryMicroseconds)/1e6),
		"Persistent Event Log Size (PELS)":                  fmt.Sprintf("%d KiB", c.PersistentEventLogBytes/1024),
		"Maximum Data Transfer Size (MDTS)":                 fmt.Sprintf("7 (2^7=%d)", c.MaxTransferBytes/4096),
		"Required Submission Queue Entry Size":              fmt.Sprintf("6 (2^6=%d)", c.SQEntryBytesMin),
		"Maximum Completion Queue Entry Size":               fmt.Sprintf("4 (2^4=%d)", c.CQEntryBytesMax),
		"Autonomous Power State Transition":                 supported(c.APST),
		"Volatile Write Cache (VWC)":                        supported(c.VolatileWriteCache),
		"Volatile Write Cache Flush All NSID":               supported(c.FlushAllBehavior == 3),
		"Namespace Management and Attachment Commands":      supported(c.HasNamespaceManagement()),
		"Format NVM Command":                                supported(c.Admin&nvmespec.AdminFormat != 0),
		"Device Self-test Command":                          supported(c.Admin&nvmespec.AdminSelfTest != 0),
		"Security Send and Security Receive Command":        supported(c.Admin&nvmespec.AdminSecurity != 0),
		"Firmware Commit and Image Download Commands":       supported(c.Admin&nvmespec.AdminFirmware != 0),
		"Extended Data for Get Log Page":                    supported(c.Logs&nvmespec.LogExtended != 0),
		"Commands Supported and Effects Log Page":           supported(c.Logs&nvmespec.LogEffects != 0),
		"SMART/Health Log Page per Namespace":               supported(c.Logs&nvmespec.LogSMARTPerNamespace != 0),
		"Persistent Event Log":                              supported(c.Logs&nvmespec.LogPersistentEvents != 0),
		"Crypto Erase":                                      supported(c.Format&nvmespec.FormatCryptoErase != 0),
		"Format All Namespaces":                             supported(c.Format&nvmespec.FormatAllNamespaces != 0),
		"Block Erase Sanitize":                              supported(c.Sanitize&nvmespec.SanitizeBlock != 0),
		"Crypto Erase Sanitize":                             supported(c.Sanitize&nvmespec.SanitizeCrypto != 0),
		"Write Zeroes NVM Command":                          supported(c.IO&nvmespec.IOWriteZeroes != 0),
		"Timestamp Feature":                                 supported(c.IO&nvmespec.IOTimestamp != 0),
		"Save/Select Fields in Features Command":            supported(c.IO&nvmespec.IOSaveFeatures != 0),
		"Host Controlled Thermal Management (HCTMA)":        supported(c.HostThermalManagement),
		"Namespace Granularity":                             supported(c.Attributes&nvmespec.AttrNamespaceGranularity != 0),
		"Endurance Groups":                                  supported(c.Attributes&nvmespec.AttrEnduranceGroups != 0),
		"Namespace Attribute Notices":                       supported(c.Events&nvmespec.EventNamespaceAttributes != 0),
		"Firmware Activation Notices":                       supported(c.Events&nvmespec.EventFirmwareActivation != 0),
	})
	for i, ps := range c.PowerStates {
		name := func(s string) string { return fmt.Sprintf("Power State %d %s", i, s) }
		nops := map[bool]string{true: "True", false: "False"}[ps.NonOperational]
		compareParams(t, param, map[string]any{
			name("Maximum Power (MP)"): watts(nvmespec.Some(ps.MaxPower)), name("Idle Power (IDLP)"): watts(ps.IdlePower),
			name("Active Power (ACTP)"): watts(ps.ActivePower), name("Non-Operational State (NOPS)"): nops,
			name("Relative Read Throughput (RRT)"): ps.ReadThroughputRank, name("Relative Read Latency (RRL)"): ps.ReadLatencyRank,
			name("Relative Write Throughput (RWT)"): ps.WriteThroughputRank, name("Relative Write Latency (RWL)"): ps.WriteLatencyRank,
		})
	}
}

func TestFixture_realNamespaceAndLogs(t *testing.T) {
	param := wdParams(t)
	ns, err := nvmespec.DecodeNamespace(readFixture(t, "nvmetools", "id-ns-1.bin"))
	if err != nil {
		t.Fatal(err)
	}
	n := func(s string) string { return "Namespace 1 " + s }
	nguid, eui := ns.NGUID.String(), ns.EUI64.String()
	compareParams(t, param, map[string]any{
		n("Size in LBA (NSZE)"): ns.SizeBlocks, n("Capacity (NCAP)"): ns.CapacityBlocks, n("Utilization (NUSE)"): ns.UsedBlocks,
		n("NVM Capacity (NVMCAP)"): ns.NVMCapacityBytes, n("Number of LBA Formats (NLBAF)"): len(ns.Formats),
		n("Active LBA Format"): ns.FormatIndex, n("LBA 1 Data Size (LBADS)"): fmt.Sprintf("12 (2^12=%d)", ns.Formats[1].DataBytes),
		n("Format Percent Complete"): ns.FormatRemainingPercent.Value, n("Shared"): supported(ns.Shared),
		n("Thin Provisioning"):                       supported(ns.Features&nvmespec.NamespaceThin != 0),
		n("Atomic Writes"):                           supported(ns.Features&nvmespec.NamespaceAtomics != 0),
		n("Globally Unique Identifier (NGUID)"):      nguid[:16] + "-" + nguid[16:22] + "-" + nguid[22:],
		n("IEEE Extended Unique Identifier (EUI64)"): eui[:6] + "-" + eui[6:],
		n("Atomic Boundary Size Normal (NABSN)"):     ns.AtomicBoundaryRaw,
		n("Format Progress Indicator"):               supported(ns.FormatRemainingPercent.OK),
	})
	s, err := nvmespec.DecodeSMART(wdRaw(t, "log page 0x02"))
	if err != nil {
		t.Fatal(err)
	}
	// The separate dump was taken 46 power-on hours later.
	later, err := nvmespec.DecodeSMART(readFixture(t, "nvmetools", "log-02-smart.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := later.PowerOnHours.Sub(s.PowerOnHours); !ok || d != nvmespec.U128(46) || later.DataUnitsWritten.Cmp(s.DataUnitsWritten) <= 0 {
		t.Errorf("later dump: %s hours, %s units", later.PowerOnHours, later.DataUnitsWritten)
	}
	compareParams(t, param, map[string]any{
		"Data Units Read": s.DataUnitsRead, "Data Units Written": s.DataUnitsWritten, "Host Read Commands": s.HostReads,
		"Host Write Commands": s.HostWrites, "Power Cycles": s.PowerCycles, "Power On Hours": s.PowerOnHours,
		"Unsafe Shutdowns": s.UnsafeShutdowns, "Media and Data Integrity Errors": s.MediaErrors,
		"Number of Error Information Log Entries": s.ErrorLogEntries,
		"Percentage Used":                         fmt.Sprintf("%d %%", s.UsedPercent),
		"Available Spare":                         fmt.Sprintf("%d %%", s.SparePercent),
		"Available Spare Threshold":               fmt.Sprintf("%d %%", s.SpareThresholdPercent),
		"Composite Temperature":                   fmt.Sprintf("%d C", s.Temperature.Value),
		"Controller Busy Time":                    fmt.Sprintf("%s Min", s.BusyMinutes),
		"Warning Composite Temperature Time":      fmt.Sprintf("%d Min", s.WarningTemperatureMinutes),
		"Critical Composite Temperature Time":     fmt.Sprintf("%d Min", s.CriticalTemperatureMinutes),
		"Data Written":                            fmt.Sprintf("%.3f GB", s.BytesWritten().Float64()/1e9),
		"Data Read":                               fmt.Sprintf("%.3f GB", s.BytesRead().Float64()/1e9),
	})
	fw, err := nvmespec.DecodeFirmwareSlots(readFixture(t, "nvmetools", "log-03-fw.bin"))
	if err != nil {
		t.Fatal(err)
	}
	compareParams(t, param, map[string]any{"Firmware Active Slot": fw.Active, "Firmware Slot 1 Revision": fw.Revisions[0],
		"Firmware Slot 2 Revision": fw.Revisions[1]})
	log, err := nvmespec.DecodeErrorLog(readFixture(t, "nvmetools", "log-01-error.bin"))
	if err != nil {
		t.Fatal(err)
	}
	compareParams(t, param, map[string]any{"Current Number Of Errors": len(log)})
	effects, err := nvmespec.DecodeEffects(readFixture(t, "nvmetools", "log-05-effects.bin"))
	if err != nil || !effects.Admin[nvmespec.AdminFormatNVM].Supported() || effects.Admin[nvmespec.AdminNamespaceManage].Supported() {
		t.Errorf("effects: %v %#x", err, effects.Admin)
	}
	dword := func(name string) uint32 { return binary.LittleEndian.Uint32(wdRaw(t, name)) }
	over := nvmespec.DecodeTemperatureThreshold(dword("Feature 04h: Composite Over Threshold"))
	under := nvmespec.DecodeTemperatureThreshold(dword("Feature 04h: Composite Under Threshold"))
	arbitration := nvmespec.DecodeArbitration(dword("Feature 01h: Arbitration"))
	ts, err := nvmespec.DecodeTimestamp(wdRaw(t, "Feature 0Eh: Timestamp"))
	if err != nil {
		t.Fatal(err)
	}
	compareParams(t, param, map[string]any{
		"Composite Temperature Over Threshold":  fmt.Sprintf("%d C", over.Temperature.Value),
		"Composite Temperature Under Threshold": fmt.Sprintf("%d C", under.Temperature.Value), // SMART-05: below 0
		"Arbitration Burst (AB)":                fmt.Sprintf("%d (2^4=16)", arbitration.BurstLog2),
		"High Priority Weight (HPW)":            arbitration.HighWeight,
		"Current Power State (PS)":              nvmespec.DecodePowerManagement(dword("Feature 02h: Power Management")).State,
		"Aggregation Threshold (THR)":           nvmespec.DecodeInterruptCoalescing(dword("Feature 08h: Interrupt Coalescing")).Threshold,
		"Timestamp":                             fmt.Sprintf("%d mS", ts.Milliseconds),
		"Timestamp Stopped":                     map[bool]string{true: "True", false: "False"}[ts.Stopped],
		"Timestamp Origin":                      map[uint8]string{1: "Host Programmed"}[ts.Origin],
	})
	apst, err := nvmespec.DecodeAPST(1, readFixture(t, "nvmetools", "feature-0c-apst-first32.bin"))
	if err != nil || !apst.Transits() {
		t.Fatalf("APST: %+v, %v", apst, err)
	}
	compareParams(t, param, map[string]any{
		"Power State 0 Idle Transition Power State (ITPS)":   apst.Transitions[0].Target,
		"Power State 0 Idle Time Prior to Transition (ITPT)": fmt.Sprintf("%d mS", apst.Transitions[0].IdleMilliseconds),
		"Power State 3 Idle Transition Power State (ITPS)":   apst.Transitions[3].Target,
		"Power State 3 Idle Time Prior to Transition (ITPT)": fmt.Sprintf("%d mS", apst.Transitions[3].IdleMilliseconds),
	})
}

// smartctlDoc is what is compared of a smartctl JSON.
type smartctlDoc struct {
	Model   string  `json:"model_name"`
	CNTLID  uint64  `json:"nvme_controller_id"`
	OUI     uint64  `json:"nvme_ieee_oui_identifier"`
	NN      uint64  `json:"nvme_number_of_namespaces"`
	Total   *uint64 `json:"nvme_total_capacity"`
	Free    *uint64 `json:"nvme_unallocated_capacity"`
	Version *struct {
		Text  string `json:"string"`
		Value uint64 `json:"value"`
	} `json:"nvme_version"`
	PCI struct {
		ID        uint64 `json:"id"`
		Subsystem uint64 `json:"subsystem_id"`
	} `json:"nvme_pci_vendor"`
	Log        map[string]json.RawMessage `json:"nvme_smart_health_information_log"`
	Status     struct{ Passed bool }      `json:"smart_status"`
	Namespaces []struct {
		ID        uint32                         `json:"id"`
		BlockSize uint64                         `json:"formatted_lba_size"`
		Size      struct{ Blocks, Bytes uint64 } `json:"size"`
		Capacity  struct{ Blocks, Bytes uint64 } `json:"capacity"`
		Used      struct{ Blocks, Bytes uint64 } `json:"utilization"`
	} `json:"nvme_namespaces"`
}

func (d smartctlDoc) number(t *testing.T, key string) uint64 {
	t.Helper()
	raw, ok := d.Log[key]
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return v
}

// TestFixture_smartctl writes pages from what smartctl said of 35 real drives, by
// the table of offsets alone, and reads them with the codec.
func TestFixture_smartctl(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures(t), "smartctl_exporter", "*.json"))
	if err != nil || len(files) != 35 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	o := loadOracle(t)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			var doc smartctlDoc
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			checkSmartctlLog(t, o, doc)
			checkSmartctlIdentify(t, o, doc)
		})
	}
}

func checkSmartctlLog(t *testing.T, o oracle, doc smartctlDoc) {
	p := o.page(t, "nvme_smart_log")
	names := map[string]string{"critical_warning": "critical_warning", "available_spare": "avail_spare",
		"available_spare_threshold": "spare_thresh", "percentage_used": "percent_used", "data_units_read": "data_units_read",
		"data_units_written": "data_units_written", "host_reads": "host_reads", "host_writes": "host_writes",
		"controller_busy_time": "ctrl_busy_time", "power_cycles": "power_cycles", "power_on_hours": "power_on_hours",
		"unsafe_shutdowns": "unsafe_shutdowns", "media_errors": "media_errors", "num_err_log_entries": "num_err_log_entries",
		"warning_temp_time": "warning_temp_time", "critical_comp_time": "critical_comp_time"}
	for key, field := range names {
		p.set(field, doc.number(t, key))
	}
	p.set("temperature", doc.number(t, "temperature")+273)
	var sensors []*int
	if raw, ok := doc.Log["temperature_sensors"]; ok {
		if err := json.Unmarshal(raw, &sensors); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range sensors {
		if s != nil {
			k := *s + 273
			p.at("temp_sensor", 2*i, byte(k), byte(k>>8))
		}
	}
	s, err := nvmespec.DecodeSMART(p.b)
	if err != nil {
		t.Fatal(err)
	}
	for key, got := range map[string]nvmespec.Uint128{"data_units_read": s.DataUnitsRead, "data_units_written": s.DataUnitsWritten,
		"host_reads": s.HostReads, "host_writes": s.HostWrites, "controller_busy_time": s.BusyMinutes, "power_cycles": s.PowerCycles,
		"power_on_hours": s.PowerOnHours, "unsafe_shutdowns": s.UnsafeShutdowns, "media_errors": s.MediaErrors,
		"num_err_log_entries": s.ErrorLogEntries, "critical_warning": nvmespec.U128(uint64(s.CriticalWarning)),
		"available_spare": nvmespec.U128(uint64(s.SparePercent)), "available_spare_threshold": nvmespec.U128(uint64(s.SpareThresholdPercent)),
		"percentage_used": nvmespec.U128(uint64(s.UsedPercent)), "temperature": nvmespec.U128(uint64(s.Temperature.Value)),
		"warning_temp_time": nvmespec.U128(uint64(s.WarningTemperatureMinutes)), "critical_comp_time": nvmespec.U128(uint64(s.CriticalTemperatureMinutes))} {
		if got != nvmespec.U128(doc.number(t, key)) {
			t.Errorf("%s: %s, smartctl says %d", key, got, doc.number(t, key))
		}
	}
	for i, got := range s.Sensors {
		if i < len(sensors) && sensors[i] != nil {
			if !got.OK || int(got.Value) != *sensors[i] {
				t.Errorf("sensor %d: %v, smartctl says %d", i+1, got, *sensors[i])
			}
		} else if got.OK {
			t.Errorf("sensor %d: %v, smartctl has none", i+1, got)
		}
	}
	if d := p.diff(s.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	// What the numbers mean: the verdict is the critical warning, a healthy spare
	// is not low, and commands moved between 512 bytes and 16 MiB each.
	if doc.Status.Passed != (s.CriticalWarning == 0) {
		t.Errorf("passed %v, critical warning %v", doc.Status.Passed, s.CriticalWarning)
	}
	if s.SpareReported() && s.SpareLow() != (s.CriticalWarning&nvmespec.WarningSpare != 0) {
		t.Errorf("spare %d of %d, warning %v", s.SparePercent, s.SpareThresholdPercent, s.CriticalWarning)
	}
	if w := s.HostWrites.Float64(); w > 1e6 {
		if per := s.BytesWritten().Float64() / w; per < 512 || per > 16<<20 {
			t.Errorf("%.0f bytes a write: the unit of data units is wrong", per)
		}
	}
}

func checkSmartctlIdentify(t *testing.T, o oracle, doc smartctlDoc) {
	p := o.page(t, "nvme_id_ctrl").set("vid", doc.PCI.ID).set("ssvid", doc.PCI.Subsystem).set("cntlid", doc.CNTLID)
	p.set("ieee", doc.OUI).set("nn", doc.NN).text("mn", doc.Model, ' ').text("sn", "REDACTED", ' ')
	if doc.Version != nil {
		p.set("ver", doc.Version.Value)
	}
	if doc.Total != nil {
		p.set("tnvmcap", *doc.Total).set("unvmcap", *doc.Free)
	}
	c, err := nvmespec.DecodeController(p.b)
	if err != nil {
		t.Fatal(err)
	}
	if c.ModelNumber != doc.Model || uint64(c.VendorID) != doc.PCI.ID || uint64(c.SubsystemVendorID) != doc.PCI.Subsystem ||
		uint64(c.ControllerID) != doc.CNTLID || uint64(c.OUI) != doc.OUI || uint64(c.NamespaceIDMax) != doc.NN {
		t.Errorf("identify %+v, smartctl %+v", c, doc)
	}
	if doc.Total != nil && (c.TotalCapacityBytes != nvmespec.U128(*doc.Total) || c.UnallocatedCapacityBytes != nvmespec.U128(*doc.Free)) {
		t.Errorf("capacity %s, %s", c.TotalCapacityBytes, c.UnallocatedCapacityBytes)
	}
	if v := doc.Version; v != nil && v.Value != 0 && !strings.HasPrefix(c.Version.String(), strings.TrimSuffix(v.Text, ".0")) {
		t.Errorf("version %s, smartctl says %s", c.Version, v.Text)
	}
	for _, n := range doc.Namespaces {
		ns := o.page(t, "nvme_id_ns").set("nsze", n.Size.Blocks).set("ncap", n.Capacity.Blocks).set("nuse", n.Used.Blocks)
		lbads := byte(0)
		for 1<<lbads < n.BlockSize {
			lbads++
		}
		ns.set("nlbaf", 1).set("flbas", 1).at("lbaf", 4, 0, 0, lbads, 0)
		got, err := nvmespec.DecodeNamespace(ns.b)
		if err != nil {
			t.Fatal(err)
		}
		if got.SizeBytes() != nvmespec.U128(n.Size.Bytes) { // LIST-01
			t.Errorf("namespace %d: %s bytes, smartctl says %d", n.ID, got.SizeBytes(), n.Size.Bytes)
		}
	}
}

// TestFixture_smartctlText reads the tables of drives with namespace management:
// Memblaze, Solidigm and Micron, power states and LBA formats among them.
func TestFixture_smartctlText(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures(t), "linuxhw", "*.txt"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	o := loadOracle(t)
	value := func(text, label string) string {
		m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(label) + `\s*(.*)$`).FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		return strings.TrimSpace(m[1])
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			checkTextFormats(t, o, text)
			checkTextPower(t, o, text)
			// The amounts in brackets are smartctl's own conversion of data units.
			for label, off := range map[string]string{"Data Units Written:": "data_units_written", "Data Units Read:": "data_units_read"} {
				m := regexp.MustCompile(`^([\d,]+) \[([\d.]+) ([TG]B)\]`).FindStringSubmatch(value(text, label))
				if m == nil {
					t.Fatalf("%s: no amount", label)
				}
				units, _ := strconv.ParseUint(strings.ReplaceAll(m[1], ",", ""), 10, 64)
				s, err := nvmespec.DecodeSMART(o.page(t, "nvme_smart_log").set(off, units).b)
				if err != nil {
					t.Fatal(err)
				}
				got := s.BytesWritten().Add(s.BytesRead()).Float64() / map[string]float64{"TB": 1e12, "GB": 1e9}[m[3]]
				want, _ := strconv.ParseFloat(m[2], 64)
				if got < want*0.995 || got > want*1.01 {
					t.Errorf("%s %d units are %.3f %s, smartctl says %s", label, units, got, m[3], m[2])
				}
			}
		})
	}
}

func checkTextFormats(t *testing.T, o oracle, text string) {
	rows := regexp.MustCompile(`(?m)^ *(\d+) ([+-]) +(\d+) +(\d+) +(\d)$`).FindAllStringSubmatch(text, -1)
	if len(rows) < 2 {
		t.Fatalf("%d LBA formats", len(rows))
	}
	p := o.page(t, "nvme_id_ns").set("nsze", 1).set("nlbaf", uint64(len(rows)-1))
	for i, r := range rows {
		data, _ := strconv.Atoi(r[3])
		meta, _ := strconv.Atoi(r[4])
		rp, _ := strconv.Atoi(r[5])
		lbads := 0
		for 1<<lbads < data {
			lbads++
		}
		p.at("lbaf", 4*i, byte(meta), byte(meta>>8), byte(lbads), byte(rp))
		if r[2] == "+" {
			p.set("flbas", uint64(i))
		}
	}
	ns, err := nvmespec.DecodeNamespace(p.b)
	if err != nil || len(ns.Formats) != len(rows) {
		t.Fatalf("%d formats, %v", len(ns.Formats), err)
	}
	for i, r := range rows { // LIST-05: data, metadata, performance and use tell formats apart
		f := ns.Formats[i]
		current, _ := ns.Format()
		got := fmt.Sprintf("%d %d %d %v", f.DataBytes, f.MetadataBytes, f.RelativePerformance, current.Index == f.Index)
		if want := fmt.Sprintf("%s %s %s %v", r[3], r[4], r[5], r[2] == "+"); got != want {
			t.Errorf("format %d: %s, smartctl says %s", i, got, want)
		}
	}
}

func checkTextPower(t *testing.T, o oracle, text string) {
	rows := regexp.MustCompile(`(?m)^ *(\d+) ([+-]) +([\d.]+)W +(\S+) +(\S+) +(\d) +(\d) +(\d) +(\d) +(\d+) +(\d+)$`).FindAllStringSubmatch(text, -1)
	if len(rows) == 0 {
		t.Fatal("no power states")
	}
	p := o.page(t, "nvme_id_ctrl").set("vid", 1).set("npss", uint64(len(rows)-1))
	psd := o["nvme_id_psd"]
	for i, r := range rows {
		w, _ := strconv.ParseFloat(r[3], 64)
		centi := int(w*100 + 0.5)
		at := func(name string, b ...byte) { p.at("psd", 32*i+psd[name].off, b...) }
		at("mp", byte(centi), byte(centi>>8))
		if r[2] == "-" {
			at("flags", 2)
		}
	}
	c, err := nvmespec.DecodeController(p.b)
	if err != nil || len(c.PowerStates) != len(rows) {
		t.Fatalf("%d power states, %v", len(c.PowerStates), err)
	}
	for i, r := range rows {
		if got := strings.TrimSuffix(c.PowerStates[i].MaxPower.String(), "00 W"); got != r[3] {
			t.Errorf("power state %d: %s W, smartctl says %s W", i, got, r[3])
		}
	}
}

func TestFixture_cachelibOCP(t *testing.T) {
	text := string(readFixture(t, "cachelib", "vendor-nand-writes.txt"))
	m := regexp.MustCompile(`Physical media units written\s*:\s*0 (\d+)`).FindStringSubmatch(text)
	want := regexp.MustCompile(`WUS4BB019D4M9E7.*expected=(\d+)`).FindStringSubmatch(text)
	if m == nil || want == nil {
		t.Fatal("no OCP log in the fixture")
	}
	raw, _ := strconv.ParseUint(m[1], 10, 64)
	p := loadOracle(t).page(t, "ocp_c0").set("pmuw", raw).set("version", 2)
	p.at("guid", 0, 0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF)
	h, err := nvmespec.DecodeOCPHealth(p.b)
	if err != nil || h.MediaBytesWritten().String() != want[1] {
		t.Errorf("%s bytes, CacheLib expects %s: %v", h.MediaBytesWritten(), want[1], err)
	}
}
