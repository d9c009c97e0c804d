package vm

import (
	"fmt"
	"os"
	"path/filepath"
)

// Image makes a sparse file to be a drive's contents and returns its path. The
// size is in bytes.
func Image(dir, name string, sizeBytes int64) (string, error) {
	path := filepath.Join(dir, name+".img")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("vm: image: %w", err)
	}
	err = f.Truncate(sizeBytes)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("vm: image %s: %w", path, err)
	}
	return path, nil
}

// Drive returns QEMU's arguments for a controller with one namespace of its own.
// Its id, for [QMP.SetProperty], is the serial. Such a controller refuses
// namespace attachment with 0x4002.
func Drive(serial, image string) []string {
	return []string{
		"-drive", fmt.Sprintf("file=%s,if=none,id=%s-d,format=raw", escape(image), serial),
		"-device", fmt.Sprintf("nvme,id=%s,serial=%s,drive=%s-d", serial, serial, serial),
	}
}

// SlowDrive is like [Drive], with writes held down to a number of bytes a second:
// a Format, which writes zeros, then outlasts its time-out.
func SlowDrive(serial, image string, writeBytesPerSecond int64) []string {
	args := Drive(serial, image)
	args[1] += fmt.Sprintf(",throttling.bps-write=%d", writeBytesPerSecond)
	return args
}

// Subsystem is an NVM subsystem with several controllers and namespaces.
type Subsystem struct {
	// Serial is that of every controller (QEMU refuses different ones), names
	// the subsystem in its NQN (nqn.2019-08.org.qemu:SERIAL) and begins the
	// controllers' ids: SERIAL-c0, SERIAL-c1.
	Serial string
	// Controllers is how many there are, at least 1. They share all namespaces.
	Controllers int
	// Images are the namespaces' contents; the first is NSID 1.
	Images []string
}

// Arguments returns the subsystem on QEMU's command line. In this form
// attaching and detaching work; creating is 0x4001.
func (s Subsystem) Arguments() []string {
	args := []string{"-device", fmt.Sprintf("nvme-subsys,id=%s,nqn=%s", s.Serial, s.Serial)}
	for i := range s.Controllers {
		args = append(args, "-device",
			fmt.Sprintf("nvme,id=%s-c%d,serial=%s,subsys=%s", s.Serial, i, s.Serial, s.Serial))
	}
	for i, image := range s.Images {
		drive := fmt.Sprintf("%s-n%d", s.Serial, i+1)
		args = append(args,
			"-drive", fmt.Sprintf("file=%s,if=none,id=%s,format=raw", escape(image), drive),
			"-device", fmt.Sprintf("nvme-ns,drive=%s,bus=%s-c0,nsid=%d,shared=on", drive, s.Serial, i+1))
	}
	return args
}
