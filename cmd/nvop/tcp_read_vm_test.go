package main_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpReadCases compare what other people's tools read of a simulated drive
// through the kernel with what its profile says. The numbers are written out
// here, not taken from the profile or its codec: host and simulator share
// those, so they could be wrong together.
func tcpReadCases() []vm.Case {
	return []vm.Case{
		{Name: "tcp/read-pblaze7", Limit: 2 * time.Minute, Run: guestTCPReadPBlaze7},
		{Name: "tcp/read-p6531", Limit: 2 * time.Minute, Run: guestTCPReadP6531},
		{Name: "tcp/read-pe321", Limit: 2 * time.Minute, Run: guestTCPReadPE321},
		{Name: "tcp/read-pe501", Limit: 2 * time.Minute, Run: guestTCPReadPE501},
		{Name: "tcp/read-client", Limit: 2 * time.Minute, Run: guestTCPReadClient},
		{Name: "tcp/discover", Run: guestTCPDiscover},
		{Name: "tcp/conformance", Limit: 3 * time.Minute, Run: guestTCPConformance},
	}
}

// says is what a tool is to say: keys joined by dots, and the value as text.
type says map[string]string

// dig returns the value at a path such as "psds.0.max_power".
func dig(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// cli runs nvme-cli for JSON and compares.
func cli(t *testing.T, want says, args ...string) {
	t.Helper()
	compareDocument(t, strings.Join(args, " "), tool(t, "nvme", append(args, "-o", "json")...), want)
}

func compareDocument(t *testing.T, what, out string, want says) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(out))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		t.Errorf("%s: %v\n%s", what, err, out)
		return
	}
	for path, v := range want {
		if got := text(dig(doc, path)); got != v {
			t.Errorf("%s: %s is %q, the profile says %q", what, path, got, v)
		}
	}
}

// feature reads a feature with nvme-cli and returns the value; sel is 0
// current, 1 default, 2 saved, 3 capabilities.
func feature(t *testing.T, node string, fid, sel int, args ...string) string {
	t.Helper()
	out := tool(t, "nvme", append([]string{"get-feature", node, "-f", fmt.Sprint(fid), "-s", fmt.Sprint(sel)}, args...)...)
	if m := regexp.MustCompile(`[Vv]alue: ?(0x)?([0-9a-fA-F]+)`).FindStringSubmatch(out); m != nil {
		n, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%#x", n)
	}
	return strings.Join(strings.Fields(out), " ")
}

func features(t *testing.T, node string, want map[[2]int]string) {
	t.Helper()
	for k, v := range want {
		if got := feature(t, node, k[0], k[1]); !strings.Contains(got, v) {
			t.Errorf("feature %#x, select %d: %q, want %q", k[0], k[1], got, v)
		}
	}
}

// smartctl runs smartctl, which has its own decoder, and compares.
func smartctl(t *testing.T, node string, want says) {
	t.Helper()
	compareDocument(t, "smartctl -a -j", tool(t, "smartctl", "-a", "-j", node), want)
}

func guestTCPReadPBlaze7(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "RSP7"))
	node := s.connect(t)
	const model = "MEMBLAZE P7940DT0768M00"
	cli(t, says{
		"Devices.0.ModelNumber": model, "Devices.0.SerialNumber": "RSP7", "Devices.0.Firmware": "0B100100",
		"Devices.0.PhysicalSize": "7681501126656", "Devices.0.MaximumLBA": "15002931888", "Devices.0.SectorSize": "512",
		"Devices.0.UsedBytes": "7681501126656", "Devices.0.NameSpace": "1",
	}, "list")
	cli(t, says{
		"Devices.0.Subsystems.0.SubsystemNQN": s.nqn, "Devices.0.Subsystems.0.Controllers.0.Transport": "tcp",
		"Devices.0.Subsystems.0.Controllers.0.SerialNumber": "RSP7", "Devices.0.HostNQN": hostNQN,
		"Devices.0.Subsystems.0.Controllers.0.Namespaces.0.PhysicalSize": "7681501126656",
	}, "list", "-v")
	cli(t, says{
		"vid": "7263", "ssvid": "7263", "sn": "RSP7", "mn": model, "fr": "0B100100", "ieee": "9180499", // 0x8c1553
		"mdts": "7", "cntlid": "1", "ver": "131072", "oaes": "768", "cntrltype": "1", "oacs": "542", "acl": "3", "aerl": "3",
		"frmw": "55", "lpa": "62", "elpe": "62", "npss": "4", "apsta": "0", "wctemp": "346", "cctemp": "353", "mtfa": "50",
		"tnvmcap": "7681501126656", "unvmcap": "0", "edstt": "12", "fwug": "1", "kas": "10", "sqes": "102", "cqes": "68",
		"maxcmd": "128", "nn": "128", "oncs": "471", "fna": "4", "vwc": "0", "sgls": "3145729", "mnan": "128", "subnqn": s.nqn,
		"ioccsz": "516", "iorcsz": "1", "icdoff": "0", "msdbd": "1", "ofcs": "1", "endgidmax": "1", "ctratt": "17",
		"psds.0.max_power": "2500", "psds.1.max_power": "1800", "psds.4.max_power": "1200", "psds.4.flags": "0", "psds.4.read_tput": "4",
	}, "id-ctrl", node)
	cli(t, says{
		"nsze": "15002931888", "ncap": "15002931888", "nuse": "15002931888", "nsfeat": "8", "nlbaf": "4", "flbas": "0", "mc": "3", "dpc": "31", "dps": "0",
		"nmic": "0", "fpi": "128", "dlfeat": "1", "nvmcap": "7681501126656", "endgid": "1",
		"lbafs.0.ds": "9", "lbafs.0.ms": "0", "lbafs.0.rp": "2", "lbafs.1.ds": "12", "lbafs.1.ms": "0", "lbafs.2.ds": "9", "lbafs.2.ms": "8",
		"lbafs.3.ds": "12", "lbafs.3.ms": "8", "lbafs.4.ds": "12", "lbafs.4.ms": "64", "lbafs.5": "<nil>",
	}, "id-ns", node, "-n", "1")
	cli(t, says{"nsid_list.0.nsid": "1", "nsid_list.1": "<nil>"}, "list-ns", node, "--all")
	cli(t, says{"ctrl_list.0.ctrl_id": "1", "num_ctrl": "1"}, "list-ctrl", node)
	cli(t, says{"critical_warning": "0", "temperature": "308", "avail_spare": "100", "spare_thresh": "5", "percent_used": "0",
		"power_cycles": "1", "unsafe_shutdowns": "0", "media_errors": "0", "data_units_written": "0", "num_err_log_entries": "0"}, "smart-log", node)
	cli(t, says{"avl_spare": "100", "avl_spare_threshold": "5", "critical_warning": "0", "percent_used": "0", "media_units_written": "0",
		// 8 TiB/1000*1053 bytes of flash, 7000 times, in units of 10^9 bytes, rounded up.
		"endurance_estimate": "64836002"}, "endurance-log", node, "-g", "1")
	cli(t, says{"nstat": "1", "endgid": "1", "nsfeat": "8"}, "cmdset-ind-id-ns", node, "-n", "1")
	cli(t, says{"log_id": "13", "pci_vid": "7263", "sn": "RSP7", "mn": model, "power_cycle_count": "1", "subnqn": s.nqn}, "persistent-event-log", node, "-a", "1", "-l", "512")
	identifiers(t, node, filepath.Base(blockNode(t, "RSP7", 1)))
	effects(t, node)
	features(t, node, map[[2]int]string{
		{0x01, 0}: "0x7", {0x01, 1}: "0x7", {0x01, 2}: "0x7", {0x01, 3}: "0x5",
		{0x02, 0}: "0x0", {0x02, 3}: "0x5",
		{0x04, 0}: "0x15a", {0x04, 1}: "0x15a",
		{0x07, 0}: "0x10001",                   // two CPUs, two queues
		{0x0B, 1}: "0x31f", {0x0B, 0}: "0x300", // Linux asks for what it knows
		{0x0F, 3}: "0x4",
		{0xC6, 0}: "0x0",
	})
	errorLog(t, node)
	counters(t, node, blockNode(t, "RSP7", 1))
	selfTest(t, node)
	smartctl(t, node, says{
		"model_name": model, "serial_number": "RSP7", "firmware_version": "0B100100", "nvme_pci_vendor.id": "7263",
		"nvme_ieee_oui_identifier": "9180499", "nvme_total_capacity": "7681501126656", "nvme_unallocated_capacity": "0",
		"nvme_controller_id": "1", "nvme_version.string": "2.0", "nvme_number_of_namespaces": "128",
		"smart_status.passed": "true", "temperature.current": "35", "nvme_smart_health_information_log.available_spare_threshold": "5",
	})
}

// identifiers: NGUID and EUI-64 begin with the vendor's OUI where the
// specification puts it, are the same in both places, and make the kernel's wwid.
func identifiers(t *testing.T, node, block string) {
	t.Helper()
	ns := nvmeCLI(t, "id-ns", node, "-n", "1")
	descs := nvmeCLI(t, "ns-descs", node, "-n", "1")
	nguid, eui := text(ns["nguid"]), text(ns["eui64"])
	if len(nguid) != 32 || nguid[16:22] != "8c1553" || len(eui) != 16 || eui[:6] != "8c1553" {
		t.Errorf("NGUID %s, EUI-64 %s: the OUI is 8c1553", nguid, eui)
	}
	if text(dig(descs, "ns-descs.0.eui64")) != eui || text(dig(descs, "ns-descs.1.nguid")) != nguid || text(dig(descs, "ns-descs.2.csi")) != "0" {
		t.Errorf("descriptors %v, identify says %s and %s", descs, eui, nguid)
	}
	plain := strings.NewReplacer("-", "", "eui.", "", "uuid.", "").Replace(sysfs("block", block, "wwid"))
	if plain != nguid && plain != eui {
		t.Errorf("the kernel's wwid is %s", sysfs("block", block, "wwid"))
	}
}

// effects: nvme-cli's decoding of the commands effects log.
func effects(t *testing.T, node string) {
	t.Helper()
	out := tool(t, "nvme", "effects-log", node, "-c", "0", "-H")
	for _, want := range []string{"Identify", "Namespace Management", "Namespace Attachment", "Format NVM", "Keep Alive", "Firmware Commit", "Device Self-test", "Flush", "Write", "Read", "Dataset Management"} {
		if !strings.Contains(out, want) {
			t.Errorf("the effects log does not have %s:\n%s", want, out)
			return
		}
	}
}

// errorLog makes the drive refuse a command and finds it in the log: which
// status, and which byte of the command was at fault.
func errorLog(t *testing.T, node string) {
	t.Helper()
	if r := attempt(t, nil, "nvme", "id-ns-granularity", node); !strings.Contains(r.stderr+r.stdout, "0x4002") {
		t.Errorf("a CNS the drive does not have: %v", r)
	}
	cli(t, says{"errors.0.error_count": "1", "errors.0.status_field": fmt.Sprint(0x4002), "errors.0.sqid": "0", "errors.0.parm_error_location": "40", "errors.1.error_count": "0"}, "error-log", node, "-e", "2")
	cli(t, says{"num_err_log_entries": "1"}, "smart-log", node)
}

// counters writes 64 MiB and finds them in the logs.
func counters(t *testing.T, node, block string) {
	t.Helper()
	tool(t, "dd", "if=/dev/zero", "of="+block, "bs=1M", "count=64", "oflag=direct")
	// 67,108,864 bytes are 131.07 units of 512,000, rounded up.
	cli(t, says{"data_units_written": "132"}, "smart-log", node)
	cli(t, says{"data_units_written": "1", "media_units_written": "1"}, "endurance-log", node, "-g", "1")
}

// selfTest starts a short self-test, which takes two minutes of the drive's
// time, and reads its progress.
func selfTest(t *testing.T, node string) {
	t.Helper()
	tool(t, "nvme", "device-self-test", node, "-s", "1")
	cli(t, says{"Current Device Self-Test Operation": "1"}, "self-test-log", node)
	tool(t, "nvme", "device-self-test", node, "-s", "0xf")
	cli(t, says{"Current Device Self-Test Operation": "0", "List of Valid Reports.0.Self test result": "1", "List of Valid Reports.0.Self test code": "1"}, "self-test-log", node)
}

// guestTCPReadP6531 is the drive whose smartctl output is published; Memblaze's
// plugin, in this nvme-cli, knows its vendor log by position and counts in units
// of 32 MiB.
func guestTCPReadP6531(t *testing.T) {
	s := serve(t, makeDrive(t, "memblaze-p6531-3.84tb", "--serial", "RSP6"))
	node := s.connect(t)
	cli(t, says{
		"mn": "MEMBLAZE P6531DT0384Y00", "fr": "0A403300", "ver": "66560", "nn": "1", "npss": "7", "psds.0.max_power": "1400",
		"psds.7.max_power": "600", "tnvmcap": "3840755982336", "lpa": "30", "elpe": "62", "mdts": "7",
	}, "id-ctrl", node)
	smartctl(t, node, says{"model_name": "MEMBLAZE P6531DT0384Y00", "firmware_version": "0A403300", "nvme_version.string": "1.4", "nvme_total_capacity": "3840755982336"})
	tool(t, "dd", "if=/dev/zero", "of="+blockNode(t, "RSP6", 1), "bs=1M", "count=64", "oflag=direct")
	out := tool(t, "nvme", "memblaze", "smart-log-add", node)
	for _, name := range []string{"host_bytes_written", "nand_bytes_written"} {
		if !regexp.MustCompile(name + ` *: +[0-9]+% +sectors: 2\n`).MatchString(out) {
			t.Errorf("the plugin does not see 2 units of 32 MiB as %s:\n%s", name, out)
		}
	}
	if out := tool(t, "nvme", "memblaze", "get-pm-status", node); !strings.Contains(out, "value: 00000000") {
		t.Errorf("power management: %s", out)
	}
}

// guestTCPReadPE321 is the same for YMTC's plugin.
func guestTCPReadPE321(t *testing.T) {
	s := serve(t, makeDrive(t, "pe321-6.4tb", "--serial", "RSY3"))
	node := s.connect(t)
	cli(t, says{
		"vid": "7753", "mn": "YMTC PE321 6.4TB", "fr": "P3210100", "ver": "66560", "nn": "64", "npss": "2", "mdts": "8",
		"tnvmcap": "6401252745216", "ctratt": "129",
	}, "id-ctrl", node)
	if out := tool(t, "nvme", "id-ns-granularity", node, "-o", "json"); !strings.Contains(out, "8192") {
		t.Errorf("granularity: %s", out)
	}
	tool(t, "dd", "if=/dev/zero", "of="+blockNode(t, "RSY3", 1), "bs=1M", "count=96", "oflag=direct")
	out := tool(t, "nvme", "ymtc", "smart-log-add", node)
	for _, name := range []string{"host_bytes_written", "nand_bytes_written"} {
		if !regexp.MustCompile(name + ` *: +[0-9]+% +\D*3\n`).MatchString(out) {
			t.Errorf("the plugin does not see 3 units of 32 MiB as %s:\n%s", name, out)
		}
	}
}

func guestTCPReadPE501(t *testing.T) {
	s := serve(t, makeDrive(t, "pe501-61.44tb", "--serial", "RSY5"))
	node := s.connect(t)
	cli(t, says{
		"vid": "7753", "mn": "YMTC PE501 61.44TB", "fr": "P5010100", "ieee": "3939913", "mdts": "8", "cntlid": "0", "ver": "131072",
		"npss": "2", "tnvmcap": "61451933147136", "nn": "128", "lpa": "62", "psds.0.max_power": "2500", "psds.2.max_power": "1500",
	}, "id-ctrl", node)
	cli(t, says{"nsze": "15002913366", "flbas": "1", "nvmcap": "61451933147136", "lbafs.1.ds": "12", "lbafs.1.ms": "0"}, "id-ns", node, "-n", "1")
	block := filepath.Base(blockNode(t, "RSY5", 1))
	if size := sysfs("block", block, "size"); size != strconv.FormatUint(61451933147136/512, 10) {
		t.Errorf("the kernel sees %s sectors", size)
	}
	if got := sysfs("block", block, "queue/logical_block_size"); got != "4096" {
		t.Errorf("the kernel sees blocks of %s bytes", got)
	}
	// 4 KiB at random into mapping units of 16 KiB: the flash programs four times as much.
	tool(t, "dd", "if=/dev/zero", "of=/dev/"+block, "bs=4096", "count=1", "seek=1000", "oflag=direct")
	out := tool(t, "nvme", "ocp", "smart-add-log", node, "-o", "json")
	if !strings.Contains(out, "16711") && !strings.Contains(out, "16384") { // 16,384 bytes x 1.02
		t.Errorf("physical media units written: %s", out)
	}
	smartctl(t, node, says{"model_name": "YMTC PE501 61.44TB", "nvme_total_capacity": "61451933147136", "nvme_pci_vendor.id": "7753"})
}

func guestTCPReadClient(t *testing.T) {
	s := serve(t, makeDrive(t, "client-1tb", "--serial", "RSC1"))
	node := s.connect(t)
	cli(t, says{
		"vid": "6966", "ssvid": "6900", "mn": "NVOP SIM CLIENT 1TB", "fr": "C1000001", "ieee": "5395456", "mdts": "8", "cntlid": "0",
		"ver": "66560", "oacs": "22", "nn": "1", "vwc": "1", "apsta": "1", "npss": "4", "fna": "7", "frmw": "36", "tnvmcap": "1000204886016",
		"wctemp": "353", "cctemp": "358", "mtfa": "0", "elpe": "63",
		"psds.0.max_power": "800", "psds.0.flags": "0", "psds.3.flags": "2", "psds.3.max_power": "5", "psds.3.entry_lat": "5000", "psds.3.exit_lat": "10000",
		"psds.4.flags": "3", "psds.4.max_power": "50", "psds.4.exit_lat": "45000",
	}, "id-ctrl", node)
	features(t, node, map[[2]int]string{{0x06, 0}: "0x1", {0x06, 3}: "0x5"})
	if got := sysfs("block", filepath.Base(blockNode(t, "RSC1", 1)), "queue/write_cache"); got != "write back" {
		t.Errorf("the kernel says of the write cache: %q", got)
	}
	// No namespace management: refused by the drive, 0x4001.
	if r := attempt(t, nil, "nvme", "delete-ns", node, "-n", "1"); !strings.Contains(r.stderr+r.stdout, "0x4001") {
		t.Errorf("delete-ns: %v", r)
	}
	cli(t, says{"nsze": "1953525168"}, "id-ns", node, "-n", "1")
}

func guestTCPDiscover(t *testing.T) {
	s := serve(t, makeDrive(t, "client-1tb"), "--nqn", "nqn.2024-01.org.example:rehearsal")
	cli(t, says{
		"records.0.trtype": "tcp", "records.0.adrfam": "ipv4", "records.0.subtype": "nvme subsystem", "records.0.traddr": "127.0.0.1",
		"records.0.trsvcid": s.port, "records.0.subnqn": "nqn.2024-01.org.example:rehearsal", "records.1": "<nil>",
	}, "discover", "-t", "tcp", "-a", "127.0.0.1", "-s", s.port, "-q", hostNQN, "-I", hostID)
	t.Cleanup(func() { s.disconnect(t) })
	tool(t, "nvme", "connect-all", "-t", "tcp", "-a", "127.0.0.1", "-s", s.port, "-q", hostNQN, "-I", hostID)
	eventually(t, "the subsystem is connected", func() bool { return len(controllersOf(s.nqn)) == 1 })
}

// guestTCPConformance runs the whole suite through the kernel.
func guestTCPConformance(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb"))
	node := s.connect(t)
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device { return openNode(t, node) }, nvmetest.Options{})
}
