package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// The host that connects, so that it is the same one in every case.
const (
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:3f1d5a0e-5f7d-4d5c-9d3e-6e76706f7031"
	// envOnly chooses cases by parts of their names; see chosen.
	envOnly = "NVOP_VM_ONLY"
	hostID  = "3f1d5a0e-5f7d-4d5c-9d3e-6e76706f7031"
)

// tcpCases are what the kernel's NVMe/TCP initiator, nvme-cli, smartctl and fio
// say of a simulated drive. Each case serves its own drive.
func tcpCases() []vm.Case {
	cases := slices.Concat(tcpReadCases(), tcpChangeCases(), tcpFirmwareCases(), tcpHolderCases(), tcpSpecCases(), tcpSoakCases(), tcpFaultCases(), tcpCodecCases(), tcpVerifyCases())
	if os.Getenv(envOnly) == "" {
		cases = slices.DeleteFunc(cases, func(c vm.Case) bool { return slices.Contains(longTCPCases(), c.Name) })
	}
	return chosen(cases)
}

// longTCPCases take a minute and more each in an emulated machine, or depend on
// its pace. They run when NVOP_VM_ONLY names them.
func longTCPCases() []string {
	return []string{
		"tcp/codec-record", "tcp/codec-background", "tcp/soak-two-drives", "tcp/fault-soak", "tcp/fault-edit",
		"tcp/verify-killed", "tcp/verify-61tb-memory", "tcp/spec-audit",
		"tcp/spec-kill-at-format-rollback", "tcp/spec-kill-at-setfeature-resume", "tcp/fw-kill-at-fwdownload-resume",
	}
}

// TestVMTCP boots a machine without a drive; simulated ones are served to its
// own kernel over loopback.
func TestVMTCP(t *testing.T) {
	kit := vm.Require(t)
	binary := filepath.Join(t.TempDir(), "nvop")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nvop: %v\n%s", err, out)
	}
	machine := vm.Machine{
		Name: "tcp", Limit: suiteLimit, MemoryMiB: 3072,
		Modules: append(vm.DefaultModules(), "nvme_tcp"),
		Env:     []string{envBinary + "=" + binary, envOnly + "=" + os.Getenv(envOnly)},
	}
	vm.Run(t, kit, machine, "TestVMTCPGuest", tcpCases())
}

// TestVMTCPGuest is the other half of TestVMTCP, inside the machine.
func TestVMTCPGuest(t *testing.T) { vm.Guest(t, tcpCases()) }

// served is a simulated drive that this machine serves to itself.
type served struct {
	file, nqn, serial, port string
	cmd                     *exec.Cmd
	log                     *syncBuffer
}

// syncBuffer collects what a program prints while it runs.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// makeDrive makes a simulated drive in a file of this case.
func makeDrive(t *testing.T, profile string, args ...string) string {
	t.Helper()
	file := filepath.Join(stateDir(t), "drive.nvop")
	// A map of about 130,000 units: every command that changes the drive saves it.
	scale := map[string]string{
		"pblaze7-7940-7.68tb": "14308", "pe321-6.4tb": "11924", "pe501-61.44tb": "28616", "memblaze-p6531-3.84tb": "7154", "client-1tb": "1864",
	}[profile]
	want(t, 0, append([]string{"sim", "create", file, "--profile", profile, "--scale", scale}, args...)...)
	return file
}

// serve starts to serve a drive and returns once it can be connected to.
func serve(t *testing.T, file string, args ...string) *served {
	t.Helper()
	s := &served{file: file, log: &syncBuffer{}}
	args = append([]string{"sim", "serve", file, "--listen", "127.0.0.1:0", "-o", "json"}, args...)
	s.cmd = exec.Command(os.Getenv(envBinary), args...)
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("what the server said:\n%s", s.log)
		}
	})
	var doc struct {
		Serial       string `json:"serial"`
		Port         string `json:"port"`
		SubsystemNQN string `json:"subsystem_nqn"`
	}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&doc); err != nil {
		_ = s.cmd.Process.Kill()
		t.Fatalf("the server printed no document: %v\n%s", err, s.log)
	}
	s.nqn, s.serial, s.port = doc.SubsystemNQN, doc.Serial, doc.Port
	return s
}

// stop interrupts the server as Ctrl-C does and waits for its end.
func (s *served) stop(t *testing.T) {
	if s.cmd == nil {
		return
	}
	cmd := s.cmd
	s.cmd = nil
	_ = cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v\n%s", err, s.log)
	}
}

// kill ends the server as kill -9 does.
func (s *served) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// connect has the kernel connect and returns the controller's node. It is
// disconnected when the case ends.
func (s *served) connect(t *testing.T, args ...string) string {
	t.Helper()
	tool(t, "nvme", append([]string{"connect", "-t", "tcp", "-a", "127.0.0.1", "-s", s.port, "-n", s.nqn, "-q", hostNQN, "-I", hostID}, args...)...)
	t.Cleanup(func() { s.disconnect(t) })
	eventually(t, "the controller is live", func() bool {
		for _, name := range controllersOf(s.nqn) {
			if sysfs("class/nvme", name, "state") != "live" {
				return false
			}
		}
		return len(controllersOf(s.nqn)) > 0
	})
	return "/dev/" + controllersOf(s.nqn)[0]
}

func (s *served) disconnect(t *testing.T) {
	t.Helper()
	attempt(t, nil, "nvme", "disconnect", "-n", s.nqn)
}

// controllersOf asks sysfs for the controllers of a subsystem.
func controllersOf(nqn string) []string {
	dirs, _ := filepath.Glob("/sys/class/nvme/nvme*")
	var names []string
	for _, dir := range dirs {
		if name := filepath.Base(dir); sysfs("class/nvme", name, "subsysnqn") == nqn {
			names = append(names, name)
		}
	}
	return names
}
