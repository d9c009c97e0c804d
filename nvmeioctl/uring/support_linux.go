package uring

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

// disabledFile is the sysctl that forbids io_uring: 1 to processes outside a
// group, 2 to everyone.
const disabledFile = "/proc/sys/kernel/io_uring_disabled"

// Probe says nil where this kernel lets this process use io_uring, and otherwise
// what forbids it and what to do: its error Is nvmeioctl.ErrNotSupported.
func Probe() error {
	r, err := newRing(thisKernel(), 1, false, false, false)
	if err != nil {
		return err
	}
	return r.close()
}

// refused explains why a ring could not be made.
func refused(errno unix.Errno, wide bool) error {
	disabled := ""
	if text, err := os.ReadFile(disabledFile); err == nil {
		disabled = strings.TrimSpace(string(text))
	}
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return explain(errno, disabled, limit.Cur, wide)
}

// explain is refused, given what the machine says.
func explain(errno unix.Errno, disabled string, memlock uint64, wide bool) error {
	u := &nvmeioctl.UnsupportedError{Feature: "io_uring"}
	switch {
	case errno == unix.EPERM && disabled == "2":
		u.Have = "it is switched off for everyone (sysctl kernel.io_uring_disabled = 2; set it to 0)"
	case errno == unix.EPERM && disabled == "1":
		u.Have = "it is switched off for this user (sysctl kernel.io_uring_disabled = 1; run as root, or join the group of kernel.io_uring_group)"
	case errno == unix.EPERM || errno == unix.EACCES:
		u.Have = "a security policy of this container or service forbids it (seccomp says " + errno.Error() + "; allow io_uring_setup, io_uring_enter and io_uring_register)"
	case errno == unix.ENOSYS:
		u.Needs, u.Have = "Linux 5.15 or later", "this kernel has none, or the seccomp policy of a container hides it"
	case errno == unix.ENOMEM:
		u.Have = fmt.Sprintf("the kernel has no memory for the ring, or the limit of locked memory (RLIMIT_MEMLOCK, %s) is too small; raise it with ulimit -l or LimitMEMLOCK=", memlockText(memlock))
	case errno == unix.EINVAL && wide:
		u.Feature, u.Needs = "NVMe commands through io_uring", "Linux 5.19 or later"
	case errno == unix.EINVAL:
		u.Needs = "Linux 5.15 or later"
		u.Have = "this kernel refuses the ring's flags"
	default:
		return fmt.Errorf("io_uring: %w", os.NewSyscallError("io_uring_setup", errno))
	}
	return u
}

func memlockText(limit uint64) string {
	if limit == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return fmt.Sprintf("%d KiB", limit/1024)
}

func tooOld() error {
	return &nvmeioctl.UnsupportedError{Feature: "io_uring", Needs: "Linux 5.15 or later", Have: "this kernel's lacks waiting with a time limit"}
}

// bufferError explains why buffers could not be registered.
func bufferError(errno unix.Errno, bytes int) error {
	if errno == unix.ENOMEM {
		var limit unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
		return &nvmeioctl.UnsupportedError{
			Feature: "registering the buffers", Needs: fmt.Sprintf("%d KiB of locked memory", (bytes+1023)/1024),
			Have: fmt.Sprintf("the limit (RLIMIT_MEMLOCK) is %s for all rings of the user; raise it with ulimit -l or LimitMEMLOCK=", memlockText(limit.Cur)),
		}
	}
	return fmt.Errorf("register the buffers: %w", os.NewSyscallError("io_uring_register", errno))
}
