package uring_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/uring"
)

// quietTerminal is the path of a terminal on which nobody types, so that its
// reads wait until typed is called.
func quietTerminal(t testing.TB) (path string, typed func(), ok bool) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", nil, false
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return "", nil, false
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return "", nil, false
	}
	return fmt.Sprintf("/dev/pts/%d", n), func() { _, _ = master.WriteString("\x04") }, true
}

// child is what the test binary does as a process with limits of its own.
func child(what string) int {
	switch what {
	case "seccomp":
		if err := denyRings(); err != nil {
			fmt.Println("no seccomp:", err)
			return 2
		}
		err := uring.Probe()
		fmt.Println(err)
		if _, oerr := uring.Open("/dev/null", uring.Options{}); !errors.Is(oerr, nvmeioctl.ErrNotSupported) {
			return 3
		}
	case "memlock":
		q, err := uring.Open("/dev/null", uring.Options{})
		if err != nil {
			fmt.Println(err)
			return 2
		}
		m, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return 2
		}
		fmt.Println(q.RegisterBuffers(m))
	}
	return 0
}

// denyRings makes io_uring_setup fail with EPERM in this process, as the default
// policy of containers does.
func denyRings() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: unix.SYS_IO_URING_SETUP},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

func runChild(t *testing.T, what string, attr *syscall.SysProcAttr, before string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", before+`exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "NVOP_URING_CHILD="+what)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("%s: %v: %s", what, err, out)
	}
	return string(out)
}

// A container's policy is named, and what to do.
func TestOpen_seccomp(t *testing.T) {
	needsRing(t)
	out := runChild(t, "seccomp", nil, "")
	if !strings.Contains(out, "security policy") || !strings.Contains(out, "io_uring_setup") {
		t.Errorf("%s", out)
	}
}

// The limit of locked memory is named, with how to raise it, and the queue goes
// on without.
func TestRegisterBuffers_memlock(t *testing.T) {
	needsRing(t)
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody with a limit")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The binary lies where only its owner may look: run it through an open file.
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/bin/sh", "-c", "ulimit -l 64; exec /proc/self/fd/3")
	cmd.Env = append(os.Environ(), "NVOP_URING_CHILD=memlock")
	cmd.ExtraFiles = []*os.File{f}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "RLIMIT_MEMLOCK") || !strings.Contains(string(out), "needs 1024 KiB of locked memory") {
		t.Errorf("%s", out)
	}
}
