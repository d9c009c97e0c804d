package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// The drives of the machine with a tree of PCI Express ports.
const (
	switchSerial = "NVOPSWITCH" // behind a switch
	besideSerial = "NVOPBESIDE" // behind the same switch
	portSerial   = "NVOPPORT"   // on a root port of its own; unplugged on the way
	twoSerial    = "NVOPTWO"    // two controllers on two root ports
)

// pcieVMCases run in this order: what takes devices away, and the lockdown,
// which no kernel gives back, come last.
func pcieVMCases() []vm.Case {
	return chosen([]vm.Case{
		{Name: "pcie/path-through-a-switch", Run: guestPCIePath},
		{Name: "pcie/registers-agree-with-the-kernel", Run: guestPCIeRegisters},
		{Name: "pcie/multipath", Run: guestPCIeMultipath},
		{Name: "pcie/audit-by-spec", Run: guestPCIeSpec},
		{Name: "pcie/no-privilege", Run: guestPCIeUnprivileged},
		{Name: "pcie/set-is-not-kept", Run: guestPCIeSetNotKept},
		{Name: "pcie/error-injection", Limit: 3 * time.Minute, Run: guestPCIeErrors},
		{Name: "pcie/hot-unplug", Run: guestPCIeUnplug},
		{Name: "pcie/hot-add", Run: guestPCIeHotAdd},
		{Name: "pcie/lockdown", Run: guestPCIeLockdown},
	})
}

// TestVMPCIe runs the pcie commands in a machine with root ports and a switch.
func TestVMPCIe(t *testing.T) {
	kit := vm.Require(t)
	dir := t.TempDir()
	binary := filepath.Join(dir, "nvop")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nvop: %v\n%s", err, out)
	}
	devices := []string{
		"-machine", "q35",
		"-device", "pcie-root-port,id=rp0,chassis=1,slot=1,bus=pcie.0,addr=0x8",
		"-device", "x3130-upstream,id=up0,bus=rp0",
		"-device", "xio3130-downstream,id=dn0,bus=up0,chassis=2,slot=1",
		"-device", "xio3130-downstream,id=dn1,bus=up0,chassis=2,slot=2",
		"-device", "pcie-root-port,id=rp1,chassis=3,slot=3,bus=pcie.0,addr=0x9",
		"-device", "pcie-root-port,id=rp2,chassis=4,slot=4,bus=pcie.0,addr=0xa",
		"-device", "pcie-root-port,id=rp3,chassis=5,slot=5,bus=pcie.0,addr=0xb",
	}
	images := map[string]string{}
	for _, d := range []struct{ serial, bus string }{{switchSerial, "dn0"}, {besideSerial, "dn1"}, {portSerial, "rp1"}} {
		image, err := vm.Image(dir, d.serial, 32<<20)
		if err != nil {
			t.Fatal(err)
		}
		images[d.serial] = image
		drive := vm.Drive(d.serial, image)
		drive[len(drive)-1] += ",bus=" + d.bus
		devices = append(devices, drive...)
	}
	image, err := vm.Image(dir, "two", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	devices = append(devices,
		"-device", "nvme-subsys,id=two,nqn=two",
		"-device", "nvme,id=two0,serial="+twoSerial+",subsys=two,bus=rp2",
		"-device", "nvme,id=two1,serial="+twoSerial+",subsys=two,bus=rp3",
		"-drive", "file="+image+",if=none,id=two-d,format=raw",
		"-device", "nvme-ns,drive=two-d,bus=two0,nsid=1,shared=on",
	)
	machine := vm.Machine{
		Name: "pcie", Devices: devices, Limit: suiteLimit, Env: []string{envBinary + "=" + binary, envOnly + "=" + os.Getenv(envOnly)},
		Ask: func(q *vm.QMP, words []string) error { return answerPCIe(q, images, words) },
	}
	vm.Run(t, kit, machine, "TestVMPCIeGuest", pcieVMCases())
}

// TestVMPCIeGuest is the other half of TestVMPCIe, inside the machine.
func TestVMPCIeGuest(t *testing.T) { vm.Guest(t, pcieVMCases()) }

// answerPCIe does what only the host can do: put errors on a link, take a drive
// out and put it in again.
func answerPCIe(q *vm.QMP, images map[string]string, words []string) error {
	execute := func(command string, arguments map[string]any) error {
		_, err := q.Execute(command, arguments)
		return err
	}
	switch {
	case len(words) == 3 && words[0] == "inject":
		return execute("human-monitor-command", map[string]any{"command-line": "pcie_aer_inject_error " + words[1] + " " + words[2]})
	case len(words) == 2 && words[0] == "unplug":
		return execute("device_del", map[string]any{"id": words[1]})
	case len(words) == 3 && words[0] == "plug":
		serial := words[1]
		err := execute("blockdev-add", map[string]any{
			"driver": "raw", "node-name": "again-" + serial,
			"file": map[string]any{"driver": "file", "filename": images[serial]},
		})
		if err != nil {
			return err
		}
		return execute("device_add", map[string]any{
			"driver": "nvme", "id": serial, "serial": serial, "drive": "again-" + serial, "bus": words[2],
		})
	}
	return fmt.Errorf("unknown request")
}

func pathDevices(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	return objects(t, document(t, append([]string{"pcie", "path"}, args...)...), "devices")
}

// hopsOf asks sysfs for the functions on the way to a controller, the device
// first.
func hopsOf(t *testing.T, name string) []string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(filepath.Join("/sys/class/nvme", name, "device"))
	if err != nil {
		t.Fatal(err)
	}
	var hops []string
	for _, part := range strings.Split(dir, "/") {
		if strings.Count(part, ":") == 2 {
			hops = append(hops, part)
		}
	}
	slices.Reverse(hops)
	return hops
}

func guestPCIePath(t *testing.T) {
	for serial, types := range map[string][]string{
		switchSerial: {"endpoint", "switch downstream port", "switch upstream port", "root port"},
		portSerial:   {"endpoint", "root port"},
	} {
		name := controllersBySerial(t, serial)[0]
		list := pathDevices(t, "/dev/"+name)
		if len(list) != 1 || list[0]["complete_to_root_port"] != true {
			t.Fatalf("%s: %v", serial, list)
		}
		var addresses, found []string
		for _, hop := range objects(t, list[0], "hops") {
			addresses, found = append(addresses, text(hop["address"])), append(found, text(hop["type"]))
		}
		if want := hopsOf(t, name); !slices.Equal(addresses, want) || !slices.Equal(found, types) {
			t.Errorf("%s: hops %v (%v), sysfs says %v", serial, addresses, found, want)
		}
	}
	r := want(t, 0, "pcie", "path", "/dev/"+controllersBySerial(t, switchSerial)[0])
	beside := sysfs("class/nvme", controllersBySerial(t, besideSerial)[0], "address")
	if !strings.Contains(r.stdout, "  "+beside+" endpoint") {
		t.Errorf("the picture lacks the drive beside, %s:\n%s", beside, r.stdout)
	}
}

// guestPCIeRegisters compares with what the kernel made of the same registers.
func guestPCIeRegisters(t *testing.T) {
	for _, dir := range []string{switchSerial, portSerial} {
		name := controllersBySerial(t, dir)[0]
		doc := objects(t, document(t, "pcie", "show", "/dev/"+name), "devices")[0]
		f, ok := doc["function"].(map[string]any)
		if !ok {
			t.Fatalf("no function in %v", doc)
		}
		x, ok := f["express"].(map[string]any)
		if !ok {
			t.Fatalf("no PCI Express capability in %v", f)
		}
		link, ok := x["link"].(map[string]any)
		if !ok {
			t.Fatalf("no link in %v", x)
		}
		device := []string{"class/nvme", name, "device"}
		number := func(file string) string {
			text, _, _ := strings.Cut(sysfs(append(device, file)...), " ")
			return strings.TrimSuffix(text, ".0")
		}
		for field, file := range map[string]string{"speed_gt_per_second": "current_link_speed", "width": "current_link_width", "max_width": "max_link_width"} {
			if got, want := text(link[field]), number(file); got != want {
				t.Errorf("%s: %s is %s, the kernel says %s", name, field, got, want)
			}
		}
		vendor, err := strconv.ParseUint(sysfs(append(device, "vendor")...), 0, 16)
		if err != nil || text(f["vendor_id"]) != strconv.FormatUint(vendor, 10) {
			t.Errorf("%s: vendor %v, the kernel says %d (%v)", name, f["vendor_id"], vendor, err)
		}
	}
}

// guestPCIeMultipath: one node, two ways.
func guestPCIeMultipath(t *testing.T) {
	list := pathDevices(t, blockNode(t, twoSerial, 1))
	if len(list) != 2 || text(list[0]["address"]) == text(list[1]["address"]) {
		t.Fatalf("want two paths: %v", list)
	}
	var found []string
	for _, d := range list {
		found = append(found, text(d["address"]))
	}
	slices.Sort(found)
	var want []string
	for _, name := range controllersBySerial(t, twoSerial) {
		want = append(want, sysfs("class/nvme", name, "address"))
	}
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("paths at %v, sysfs says %v", found, want)
	}
}

// guestPCIeSpec: what a spec says of the path is judged by what the kernel shows.
func guestPCIeSpec(t *testing.T) {
	node := "/dev/" + controllersBySerial(t, portSerial)[0]
	spec := filepath.Join(stateDir(t), "spec.yaml")
	write := func(payload, width string) {
		t.Helper()
		text := "version: 1\nmatch:\n  serial: \"" + portSerial + "\"\npcie:\n  payload_bytes: " + payload + "\n  width: " + width + "\n"
		if err := os.WriteFile(spec, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	width := sysfs("class/nvme", filepath.Base(node), "device/current_link_width")
	write("128", width)
	want(t, 0, "audit", "-f", spec, node)
	write("512", width)
	r := want(t, 3, "audit", "-f", spec, node)
	if !strings.Contains(r.stdout, "pcie.payload_bytes") || !strings.Contains(r.stdout, "spec.yaml:5") || !strings.Contains(r.stdout, "nvop pcie set") || strings.Contains(r.stdout, "pcie.width") {
		t.Errorf("%v", r)
	}
	write("128", "16")
	if r := want(t, 3, "audit", "-f", spec, node); !strings.Contains(r.stdout, "pcie.width") {
		t.Errorf("%v", r)
	}
}

// guestPCIeUnprivileged: another user sees the header alone, and is told so.
func guestPCIeUnprivileged(t *testing.T) {
	node := "/dev/" + controllersBySerial(t, switchSerial)[0]
	// The binary lies where its builder alone may look.
	program, err := os.ReadFile(os.Getenv(envBinary))
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join("/run", "nvop-for-all")
	if err := os.WriteFile(binary, program, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ran {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		var out, errout strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errout
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return ran{out.String(), errout.String(), cmd.ProcessState.ExitCode()}
	}
	r := run("pcie", "audit", node)
	if r.code != 3 || !strings.Contains(r.stdout, "this does not mean that the capability is missing") {
		t.Errorf("audit: %v", r)
	}
	r = run("pcie", "show", node)
	if r.code != 0 || !strings.Contains(r.stdout, "CAP_SYS_ADMIN") || strings.Contains(r.stdout, "no PCI Express capability") {
		t.Errorf("show: %v", r)
	}
	r = run("pcie", "path", node)
	if r.code != 0 || strings.Count(r.stdout, "* ") != 4 {
		t.Errorf("path: %v", r)
	}
}

// guestPCIeSetNotKept: these functions ignore writes of their sizes, as real
// hardware does with what it does not support. Reading back notices, and the
// change is undone.
func guestPCIeSetNotKept(t *testing.T) {
	node := "/dev/" + controllersBySerial(t, portSerial)[0]
	r := want(t, 0, "pcie", "set", node, "--mrrs", "512")
	if !strings.Contains(r.stdout, "planned only") || !strings.Contains(r.stdout, "setpci -s") {
		t.Errorf("dry run: %v", r)
	}
	want(t, 4, "pcie", "set", node, "--mps", "512", "--apply", "--confirm-serial", portSerial)
	want(t, 4, "pcie", "set", node, "--mrrs", "512", "--apply")
	r = want(t, 6, "pcie", "set", node, "--mrrs", "512", "--apply", "--confirm-serial", portSerial)
	if !strings.Contains(r.stderr, "the register reads") || !strings.Contains(r.stderr, "was undone") {
		t.Errorf("%v", r)
	}
	tool(t, "dd", "if="+blockNode(t, portSerial, 1), "of=/dev/null", "bs=4k", "count=1", "iflag=direct")
}

// guestPCIeErrors: a malformed packet is injected while the drive is soaked. The
// kernel counts it and resets the link, the soak goes on with the error among its
// events, and the audit speaks of it where it was seen.
func guestPCIeErrors(t *testing.T) {
	name := controllersBySerial(t, switchSerial)[0]
	port := hopsOf(t, name)[1]
	if sysfs("bus/pci/devices", port, "aer_dev_fatal") == "" {
		t.Skip("this kernel counts no errors of the port: AER belongs to firmware")
	}
	if r := nvop(t, "pcie", "audit", "/dev/"+name); strings.Contains(r.stdout, "CRITICAL") {
		t.Fatalf("before the injection: %v", r)
	}
	injected := make(chan error, 1)
	go func() {
		time.Sleep(5 * time.Second)
		injected <- vm.Ask("inject", "dn0", "MALF_TLP")
	}()
	want(t, 0, "soak", "start", blockNode(t, switchSerial, 1), "--rw", "randread", "--bs", "4KiB", "--qd", "1",
		"--duration", "25s", "--name", "errors", "--confirm-serial", switchSerial)
	if err := <-injected; err != nil {
		t.Fatal(err)
	}
	if r := want(t, 0, "journal", "export", "errors", "--table", "events"); !strings.Contains(r.stdout, port+": errors on the link: ") || !strings.Contains(r.stdout, "fatal MalfTLP 1") {
		t.Errorf("no event of %s: %v", port, r)
	}
	waitUntil(t, "the kernel counts the error", func() bool {
		return strings.Contains(sysfs("bus/pci/devices", port, "aer_dev_fatal"), "MalfTLP 1")
	})
	waitUntil(t, "the drive is live again", func() bool { return sysfs("class/nvme", name, "state") == "live" })
	r := want(t, 3, "pcie", "audit", "/dev/"+name)
	if !strings.Contains(r.stdout, "CRITICAL: aer at "+port) || !strings.Contains(r.stdout, "fatal MalfTLP 1") {
		t.Errorf("%v", r)
	}
}

// waitUntil polls; the machine is slow.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 300 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("waited in vain until %s", what)
}

// guestPCIeUnplug: a drive that was taken out is gone, the others are not.
func guestPCIeUnplug(t *testing.T) {
	name := controllersBySerial(t, portSerial)[0]
	address := sysfs("class/nvme", name, "address")
	if err := vm.Ask("unplug", portSerial); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the drive is out", func() bool { return sysfs("bus/pci/devices", address, "vendor") == "" })
	if r := want(t, 1, "pcie", "show", address); !strings.Contains(r.stderr, "no such PCI function") {
		t.Errorf("%v", r)
	}
	want(t, 1, "pcie", "show", "/dev/"+name)
	if r := want(t, 0, "pcie", "path"); strings.Contains(r.stdout, address) || !strings.Contains(r.stdout, switchSerial) {
		t.Errorf("%v", r)
	}
}

// guestPCIeHotAdd: a drive that was put in again is known by its serial number,
// wherever the kernel put it, and its path is judged anew.
func guestPCIeHotAdd(t *testing.T) {
	if err := vm.Ask("plug", portSerial, "rp1"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the drive is in again", func() bool {
		states, err := filepath.Glob("/sys/class/nvme/nvme*/state")
		return err == nil && slices.ContainsFunc(states, func(state string) bool {
			name := filepath.Base(filepath.Dir(state))
			return sysfs("class/nvme", name, "serial") == portSerial && sysfs("class/nvme", name, "state") == "live"
		})
	})
	name := controllersBySerial(t, portSerial)[0]
	devices := pathDevices(t, "/dev/"+name)
	if len(devices) != 1 || devices[0]["complete_to_root_port"] != true || text(devices[0]["address"]) != sysfs("class/nvme", name, "address") {
		t.Errorf("%v", devices)
	}
	if r := nvop(t, "pcie", "audit", "/dev/"+name); r.code != 0 && r.code != 3 || strings.Contains(r.stdout, "CRITICAL") {
		t.Errorf("%v", r)
	}
	if r := want(t, 0, "list"); !strings.Contains(r.stdout, portSerial) {
		t.Errorf("%v", r)
	}
}

// guestPCIeLockdown: a locked-down kernel still lets registers be read; a change
// is refused before anything is tried.
func guestPCIeLockdown(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/security/lockdown"); err != nil {
		tool(t, "mount", "-t", "securityfs", "securityfs", "/sys/kernel/security")
	}
	if err := os.WriteFile("/sys/kernel/security/lockdown", []byte("integrity"), 0); err != nil {
		t.Skipf("this kernel cannot be locked down: %v", err)
	}
	node := "/dev/" + controllersBySerial(t, twoSerial)[0]
	r := want(t, 4, "pcie", "set", node, "--mrrs", "512", "--apply", "--confirm-serial", twoSerial)
	if !strings.Contains(r.stderr, "locked down (integrity)") {
		t.Errorf("%v", r)
	}
	if r := want(t, 0, "pcie", "show", node); !strings.Contains(r.stdout, "lockdown") || !strings.Contains(r.stdout, "max payload") {
		t.Errorf("%v", r)
	}
}
