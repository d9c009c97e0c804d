package sim

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// StateProblem is what keeps a state file from being opened.
type StateProblem uint8

// The problems.
const (
	NotAState      StateProblem = iota + 1 // the file is something else
	TruncatedState                         // its end is missing
	DamagedState                           // its bytes have changed
	NewerState                             // a newer program wrote it
	StateInUse                             // another process has it open
)

// StateError says why a state file cannot be opened, in one line with what to do.
type StateError struct {
	Path   string
	Kind   StateProblem
	Detail string
}

func (e *StateError) Error() string {
	var what, remedy string
	switch e.Kind {
	case NotAState:
		what, remedy = "not the state of a simulated drive", "name another file, or create a drive in a new one"
	case TruncatedState:
		what, remedy = "the state of this drive is truncated", "restore the file from a copy, or create the drive anew"
	case NewerState:
		what, remedy = "written by a newer version of this program", "use that version"
	case StateInUse:
		what, remedy = "in use by another process", "wait until it ends, or stop it"
	default:
		what, remedy = "the state of this drive is damaged", "restore the file from a copy, or create the drive anew"
	}
	s := e.Path + ": " + what
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s + " (" + remedy + ")"
}

// ExitCode is the process's exit code for this error: a file that somebody has is
// refused, not broken.
func (e *StateError) ExitCode() int {
	if e.Kind == StateInUse {
		return 4
	}
	return 1
}

func damaged(detail string) error { return &StateError{Kind: DamagedState, Detail: detail} }

func truncated(have, want int) error {
	return &StateError{Kind: TruncatedState, Detail: fmt.Sprintf("%d of %d bytes are there", have, want)}
}

func crc(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// stateBytesMax bounds what is read of a file that claims to be a drive.
const stateBytesMax = 1 << 31

// stateFile is a locked state file. The lock is on the file that the path
// names now: a save puts a new, locked file in its place.
type stateFile struct {
	path string // without symbolic links
	f    *os.File
	mode fs.FileMode
}

// openStateFile locks a state file and reads it.
func openStateFile(path string) (*stateFile, []byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := lockState(real, path)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &StateError{Path: path, Kind: NotAState, Detail: "it is no regular file"}
	}
	if err == nil && fi.Size() > stateBytesMax {
		err = &StateError{Path: path, Kind: NotAState, Detail: "it is far too large"}
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, stateBytesMax))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &stateFile{path: real, f: f, mode: fi.Mode().Perm()}, b, nil
}

// lockState opens and locks the file that path names. A writer may put
// another file in its place between the two; then it begins anew.
func lockState(path, shown string) (*os.File, error) {
	for range 100 {
		// O_NONBLOCK: opening a named pipe must not wait for a writer.
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = &StateError{Path: shown, Kind: StateInUse}
			}
			return nil, errors.Join(err, f.Close())
		}
		mine, err1 := f.Stat()
		named, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			return f, nil
		}
		if err := errors.Join(err1, f.Close()); err != nil {
			return nil, err
		}
		if err2 != nil {
			return nil, err2
		}
	}
	return nil, &StateError{Path: shown, Kind: StateInUse}
}

func flock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return os.NewSyscallError("flock", err)
	}
	return nil
}

// replace puts b in the place of the file: after a crash at any moment the
// path names the old bytes or the new ones. replaced says which, also on an
// error.
func (s *stateFile) replace(b []byte) (replaced bool, err error) {
	tmp := s.path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, s.mode)
	if err != nil {
		return false, err
	}
	err = flock(f)
	if err == nil {
		err = writeSynced(f, b)
	}
	if err == nil {
		err = os.Rename(tmp, s.path)
	}
	if err != nil {
		return false, errors.Join(err, os.Remove(tmp), f.Close())
	}
	old := s.f
	s.f = f
	return true, errors.Join(syncDir(filepath.Dir(s.path)), old.Close())
}

func (s *stateFile) close() error { return s.f.Close() }

// createStateFile makes a new file with b in it; it must not exist.
func createStateFile(path string, b []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new*")
	if err != nil {
		return err
	}
	err = writeSynced(f, b)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		// A link, unlike a rename, does not replace what is there.
		err = os.Link(f.Name(), path)
	}
	err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

func writeSynced(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
