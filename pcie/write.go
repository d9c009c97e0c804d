package pcie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ConfigFile is an open configuration space.
type ConfigFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// NotKeptError says that a register did not take the value written: real
// hardware ignores what it does not support, and a locked-down kernel makes
// some tools report success.
type NotKeptError struct {
	Write Write
	// Found is the register after the write.
	Found uint16
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("%s: the register reads %04x afterwards, not %04x under the mask %04x", e.Write, e.Found, e.Write.New, e.Write.Mask)
}

// ExitCode is the process's exit code for this error: the hardware said no.
func (e *NotKeptError) ExitCode() int { return 6 }

// openConfig opens a function's configuration space.
func (s Sysfs) openConfig(dir string, write bool) (ConfigFile, error) {
	path := s.under(filepath.Join(dir, "config"))
	if s.OpenConfig != nil {
		return s.OpenConfig(path, write)
	}
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	return os.OpenFile(path, flag, 0)
}

// DeviceControl reads Device Control and Device Status of a function whose PCI
// Express capability is at offset.
func (s Sysfs) DeviceControl(a Address, offset uint16) (control, status uint16, err error) {
	dir, err := s.directory(a)
	if err != nil {
		return 0, 0, err
	}
	f, err := s.openConfig(dir, false)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	control, status, err = readControl(f, a, offset)
	return control, status, errors.Join(err, f.Close())
}

// readControl reads both registers after making sure that the capability is
// still there: another device may sit at the address by now.
func readControl(f ConfigFile, a Address, offset uint16) (control, status uint16, err error) {
	var head [2]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	if binary.LittleEndian.Uint16(head[:]) == 0xffff {
		return 0, 0, fmt.Errorf("%s: %w", a, ErrGone)
	}
	var b [offExpLnkCap]byte
	if _, err := f.ReadAt(b[:], int64(offset)); err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrNoAccess
		}
		return 0, 0, fmt.Errorf("%s: %w", a, err)
	}
	if b[0] != capIDExpress {
		return 0, 0, fmt.Errorf("%s: no PCI Express capability at %02xh any more", a, offset)
	}
	return binary.LittleEndian.Uint16(b[offExpDevCtl:]), binary.LittleEndian.Uint16(b[offExpDevSta:]), nil
}

// WriteRegister carries out w: the register is read, the bits under the mask
// are replaced, 16 bits are written, and the register is read back. The error
// is a [*NotKeptError] when it did not take the value.
func (s Sysfs) WriteRegister(w Write) error {
	if w.Mask == 0 || w.Mask&^(maskMaxPayload|maskMaxReadRequest) != 0 || w.New&^w.Mask != 0 {
		return fmt.Errorf("%s: writing %04x under the mask %04x: only payload and read request sizes may be written", w.Function, w.New, w.Mask)
	}
	dir, err := s.directory(w.Function)
	if err != nil {
		return err
	}
	f, err := s.openConfig(dir, true)
	if err != nil {
		return s.writeError(w, err)
	}
	err = s.writeMasked(f, w)
	return errors.Join(err, f.Close())
}

func (s Sysfs) writeMasked(f ConfigFile, w Write) error {
	control, _, err := readControl(f, w.Function, w.CapOffset)
	if err != nil {
		return err
	}
	// Bit 15 starts a Function Level Reset in an endpoint; it reads as 0 there
	// and must never be written as read from a device in trouble.
	const initiateReset = 1 << 15
	value := control&^w.Mask&^initiateReset | w.New
	if w.Keep15 {
		value |= control & initiateReset
	}
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], value)
	if _, err := f.WriteAt(b[:], int64(w.CapOffset)+offExpDevCtl); err != nil {
		return s.writeError(w, err)
	}
	found, _, err := readControl(f, w.Function, w.CapOffset)
	if err != nil {
		return err
	}
	if found&w.Mask != w.New {
		return &NotKeptError{Write: w, Found: found}
	}
	return nil
}

// writeError says why the kernel may have refused.
func (s Sysfs) writeError(w Write, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w (writing needs CAP_SYS_ADMIN and a kernel that is not locked down)", w, err)
	}
	return fmt.Errorf("%s: %w", w, err)
}

// Holds says whether the register has the value that w writes.
func (s Sysfs) Holds(w Write) (bool, error) {
	control, _, err := s.DeviceControl(w.Function, w.CapOffset)
	return err == nil && control&w.Mask == w.New, err
}

// Pending says which of the functions still wait for answers to their reads.
func (s Sysfs) Pending(list []Setting) ([]Address, error) {
	var pending []Address
	for _, f := range list {
		if !f.Endpoint {
			continue
		}
		_, status, err := s.DeviceControl(f.Function, f.CapOffset)
		if err != nil {
			return nil, err
		}
		if status&(1<<5) != 0 {
			pending = append(pending, f.Function)
		}
	}
	return pending, nil
}

// Changed says how the sizes of functions differ from what was planned from.
func (s Sysfs) Changed(list []Setting) ([]string, error) {
	var changed []string
	for _, f := range list {
		control, _, err := s.DeviceControl(f.Function, f.CapOffset)
		if err != nil {
			return nil, err
		}
		payload, request := payloadOf(uint32(control>>5)), payloadOf(uint32(control>>12))
		if payload != f.MaxPayload || request != f.MaxReadRequest {
			changed = append(changed, fmt.Sprintf("%s has payload %d and read requests %d, not %d and %d", f.Function, payload, request, f.MaxPayload, f.MaxReadRequest))
		}
	}
	return changed, nil
}

// Errors reads the AER counters of functions; those without are left out.
func (s Sysfs) Errors(list []Setting) (map[Address]*ErrorCounters, error) {
	counters := map[Address]*ErrorCounters{}
	for _, f := range list {
		dir, err := s.directory(f.Function)
		if err != nil {
			return nil, err
		}
		if c := s.errorCounters(dir); c != nil {
			counters[f.Function] = c
		}
	}
	return counters, nil
}
