package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

// driveLock is the one lock a drive has, across processes: a soak and a resize
// exclude each other, and so do two soaks. The kernel drops it when the process
// ends however it ends, so nothing is left to clean up.
type driveLock struct{ f *os.File }

// lockDir is where the locks lie. Real drives need root, so one place serves
// all who can change one.
func lockDir(getenv func(string) string) string {
	if os.Geteuid() == 0 {
		return "/run/lock/nvop"
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "nvop")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("nvop-%d", os.Geteuid()))
}

// lockPath is the lock file of a drive: a real one is known by its serial
// number, a simulated one or a plain file by where it lies.
func lockPath(dir, serial, address string) string {
	name := serial
	if strings.HasPrefix(address, "sim:") || strings.HasPrefix(address, "file:") {
		sum := sha256.Sum256([]byte(address))
		name = "file-" + hex.EncodeToString(sum[:12])
	}
	return filepath.Join(dir, lockName(name))
}

// lockDrive takes the lock of the drive with this serial number at this durable
// address, or says who has it.
func lockDrive(dir, serial, address, purpose string) (*driveLock, error) {
	if serial == "" {
		return nil, &nvmeioctl.RefusedError{Check: "identity", Subject: "drive", Reason: "it reports no serial number, so it cannot be told from another"}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("drive lock: %w", err)
	}
	return lockFile(lockPath(dir, serial, address), "drive "+serial, purpose)
}

// lockData takes the locks of the data behind a path, of which a path's own lock
// knows nothing: the same file may have several names, and a loop device.
func lockData(dir, path, purpose string) (locks []*driveLock, err error) {
	for _, identity := range dataIdentities(path) {
		sum := sha256.Sum256([]byte(identity))
		l, err := lockFile(filepath.Join(dir, lockName("data-"+hex.EncodeToString(sum[:12]))), path, purpose)
		if err != nil {
			for _, l := range locks {
				err = errors.Join(err, l.release())
			}
			return nil, err
		}
		locks = append(locks, l)
	}
	return locks, nil
}

// lockFile takes the lock at path, which is that of subject.
func lockFile(path, subject, purpose string) (*driveLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("drive lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		if cerr := f.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("drive lock %s: %w", path, err)
		}
		return nil, &nvmeioctl.RefusedError{
			Check: "lock", Subject: subject,
			Reason: "another nvop is working on it: " + strings.TrimSpace(string(holder)),
			Remedy: "wait for it, or stop it",
		}
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("drive lock: %w", err), f.Close())
	}
	if _, err := fmt.Fprintf(f, "process %d, %s\n", os.Getpid(), purpose); err != nil {
		return nil, errors.Join(fmt.Errorf("drive lock: %w", err), f.Close())
	}
	return &driveLock{f: f}, nil
}

// isLocked says whether a process holds the lock at path; a lock that was never
// taken is free.
func isLocked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// lockName makes a file name of a serial number, which a drive may fill with
// anything.
func lockName(serial string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return '_'
	}, serial)
	return clean + ".lock"
}

// release gives the lock back. The file stays: removing it would let two
// processes hold locks on two files of one name.
func (l *driveLock) release() error { return l.f.Close() }
