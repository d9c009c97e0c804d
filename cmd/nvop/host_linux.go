package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isNoData says that lseek found no data after an offset.
func isNoData(err error) bool { return errors.Is(err, unix.ENXIO) }

// kernelRelease is the running kernel, as uname -sr prints it.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
