package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// The drives of the virtual machine, by serial number. Node names are left to
// the kernel, which gives them in no fixed order.
const (
	plainSerial = "NVOPPLAIN" // one controller, one namespace of its own
	sharedDrive = "NVOPSUB"   // two controllers, three shared namespaces
	spareSerial = "NVOPSPARE" // one controller, one namespace: partner of md
	slowSerial  = "NVOPSLOW"  // one controller, one namespace that writes slowly

	vmNamespaceBytes = 256 << 20
	// envBinary names the program under test in the guest.
	envBinary = "NVOP_VM_BINARY"
	// suiteLimit bounds all boots together.
	suiteLimit = 15 * time.Minute
)

// vmCases are all cases, in the order in which they run in one boot: what only
// reads first, what changes a drive's geometry last, and what takes a drive away
// in the end.
//
// longVMCases run only when NVOP_VM_ONLY names them.
func vmCases() []vm.Case {
	cases := slices.Concat(kernelCases(), readCases(), refusalCases(), changeCases(), soakCases(), uringCases(), resetCases(), uringLossCases())
	if os.Getenv(envOnly) == "" {
		cases = slices.DeleteFunc(cases, func(c vm.Case) bool { return slices.Contains(longVMCases(), c.Name) })
	}
	return chosen(cases)
}

// longVMCases show little that shorter ones do not, and take half a minute each.
func longVMCases() []string { return []string{"uring/block-node", "uring/protection"} }

// chosen leaves out the cases whose names contain none of the words of
// NVOP_VM_ONLY, which are separated by commas; without words all stay.
func chosen(cases []vm.Case) []vm.Case {
	words := strings.FieldsFunc(os.Getenv(envOnly), func(r rune) bool { return r == ',' })
	if len(words) == 0 {
		return cases
	}
	return slices.DeleteFunc(cases, func(c vm.Case) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(c.Name, word) })
	})
}

// TestVM runs this program and its packages against the NVMe driver of a real
// kernel and QEMU's controllers.
func TestVM(t *testing.T) {
	kit := vm.Require(t)
	dir := t.TempDir()
	binary := filepath.Join(dir, "nvop")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nvop: %v\n%s", err, out)
	}
	var devices []string
	image := func(name string) string {
		path, err := vm.Image(dir, name, vmNamespaceBytes)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	devices = append(devices, vm.Drive(plainSerial, image("plain"))...)
	devices = append(devices, vm.Drive(spareSerial, image("spare"))...)
	devices = append(devices, vm.SlowDrive(slowSerial, image("slow"), 8<<20)...)
	devices = append(devices, vm.Subsystem{
		Serial: sharedDrive, Controllers: 2,
		Images: []string{image("sub1"), image("sub2"), image("sub3")},
	}.Arguments()...)
	machine := vm.Machine{
		Name: "nvop", Devices: devices, Limit: suiteLimit,
		Env: []string{envBinary + "=" + binary, envOnly + "=" + os.Getenv(envOnly)},
		Ask: answer,
	}
	vm.Run(t, kit, machine, "TestVMGuest", vmCases())
}

// TestVMGuest is the other half of TestVM, inside the machine.
func TestVMGuest(t *testing.T) { vm.Guest(t, vmCases()) }

// answer does what only the host can do for a case.
func answer(q *vm.QMP, words []string) error {
	if len(words) == 3 && words[0] == "critical-warning" {
		bits, err := strconv.ParseUint(words[2], 0, 8)
		if err != nil {
			return err
		}
		return q.SetProperty(words[1], "smart_critical_warning", bits)
	}
	return fmt.Errorf("unknown request")
}

// ran is what a program did.
type ran struct {
	stdout, stderr string
	code           int
}

func (r ran) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
}

// tool runs a program of the host inside the guest and fails the case when the
// program fails.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	r := attempt(t, nil, name, args...)
	// A controller that the kernel is bringing back cannot be opened for a moment.
	for range 20 {
		if r.code == 0 || !strings.Contains(r.stderr, "Resource temporarily unavailable") {
			break
		}
		time.Sleep(250 * time.Millisecond)
		r = attempt(t, nil, name, args...)
	}
	if r.code != 0 {
		t.Fatalf("%s %q: %v", name, args, r)
	}
	return r.stdout
}

// attempt runs a program with extra environment and says how it ended. It may be
// called while a case is cleaning up, when the case's own context is over.
func attempt(t *testing.T, env []string, name string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 50*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return ran{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// nvop runs the program under test with a journal of this case alone. Starting on
// one processor takes a third of the time in an emulated machine; soaks take more
// by themselves.
func nvop(t *testing.T, args ...string) ran {
	t.Helper()
	r := attempt(t, []string{"XDG_STATE_HOME=" + stateDir(t), "GOMAXPROCS=1"}, os.Getenv(envBinary),
		append([]string{"--journal", filepath.Join(stateDir(t), "journal.db")}, args...)...)
	if r.code < 0 || strings.Contains(r.stderr, "panic:") || strings.Contains(r.stderr, "goroutine ") {
		t.Fatalf("nvop %q crashed: %v", args, r)
	}
	return r
}

// stateDir is in memory: the guest's root is read-only.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("/run", "nvop-vm", filepath.Base(os.Getenv("NVOP_VM_CASE")))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// want runs nvop and fails unless it ends with the code. What it prints must be
// one clear line on standard error when it fails.
func want(t *testing.T, code int, args ...string) ran {
	t.Helper()
	r := nvop(t, args...)
	if r.code != code {
		t.Fatalf("nvop %q: want exit code %d, got %v", args, code, r)
	}
	if code != 0 && strings.TrimSpace(r.stderr) == "" {
		t.Errorf("nvop %q: exit code %d without a word on standard error", args, code)
	}
	return r
}

// document runs nvop for JSON and returns the one document on its standard output.
func document(t *testing.T, args ...string) map[string]any {
	t.Helper()
	r := want(t, 0, append(args, "-o", "json")...)
	return decodeOne(t, r.stdout)
}

func decodeOne(t *testing.T, s string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("not a JSON document: %v\n%s", err, s)
	}
	if dec.More() {
		t.Fatalf("more than one JSON document:\n%s", s)
	}
	return doc
}

// nvmeCLI runs nvme-cli, a reader that shares no code with ours, for JSON.
func nvmeCLI(t *testing.T, args ...string) map[string]any {
	t.Helper()
	return decodeOne(t, tool(t, "nvme", append(args, "-o", "json")...))
}

// sysfs reads one attribute, "" when it is not there.
func sysfs(path ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{"/sys"}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// controllersBySerial asks sysfs directly for the names of a drive's
// controllers, in order of their CNTLID.
func controllersBySerial(t *testing.T, serial string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/sys/class/nvme/nvme*")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, dir := range dirs {
		if name := filepath.Base(dir); sysfs("class/nvme", name, "serial") == serial {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatalf("no controller with serial %s", serial)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.Atoi(sysfs("class/nvme", a, "cntlid"))
		y, _ := strconv.Atoi(sysfs("class/nvme", b, "cntlid"))
		return x - y
	})
	return names
}

// controllerNode is the node of a drive's first controller.
func controllerNode(t *testing.T, serial string) string {
	t.Helper()
	return "/dev/" + controllersBySerial(t, serial)[0]
}

// blockName asks sysfs for the block device of a drive's namespace; "" when
// there is none.
func blockName(t *testing.T, serial string, nsid int) string {
	t.Helper()
	dirs, err := filepath.Glob("/sys/block/nvme*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		// Only heads have a size worth looking at; hidden paths have a "c".
		if strings.Contains(strings.TrimPrefix(name, "nvme"), "c") {
			continue
		}
		if sysfs("block", name, "device/serial") == serial && sysfs("block", name, "nsid") == strconv.Itoa(nsid) {
			return name
		}
	}
	return ""
}

// blockNode is the node of a namespace that must be there.
func blockNode(t *testing.T, serial string, nsid int) string {
	t.Helper()
	name := blockName(t, serial, nsid)
	if name == "" {
		t.Fatalf("drive %s has no block device for namespace %d", serial, nsid)
	}
	return "/dev/" + name
}

// eventually polls for what the kernel does in its own time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 100 {
		if cond() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("it did not come: %s", what)
}

// deep returns the value at a path of keys, nil when a key is missing.
func deep(doc any, keys ...string) any {
	for _, key := range keys {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil
		}
		doc = m[key]
	}
	return doc
}

// text makes a JSON value comparable however it was written.
func text(v any) string { return strings.TrimSpace(fmt.Sprint(v)) }
