package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl/inuse"
)

// isNoData says that lseek found no data after an offset.
func isNoData(err error) bool { return errors.Is(err, unix.ENXIO) }

// fileIdentity tells a file from another that has taken its name: device and
// inode; "" where they cannot be read.
func fileIdentity(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("inode %d of device %d", st.Ino, st.Dev)
}

// dataIdentities are the names of the data behind a path, the same whatever it is
// called: a file's device and inode, a node's number, and of a loop device its
// backing file's too. Whoever writes under one of them writes to all. None where
// there is no such file.
func dataIdentities(path string) []string {
	var st unix.Stat_t
	if path == "" || unix.Stat(path, &st) != nil {
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		number := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
		return append([]string{"block " + number}, dataIdentities(inuse.Backing("", path))...)
	case unix.S_IFCHR:
		return nil // of those only what keeps nothing is written to
	}
	return []string{fmt.Sprintf("file %d on %d:%d", st.Ino, unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))}
}

// kernelRelease is the running kernel, as uname -sr prints it.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// dataSink says whether a character device is one of memory's that keep nothing
// and do no harm: null, zero and full (Documentation/admin-guide/devices.txt,
// major 1).
func dataSink(path string) bool {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || unix.Major(uint64(st.Rdev)) != 1 {
		return false
	}
	switch unix.Minor(uint64(st.Rdev)) {
	case 3, 5, 7:
		return true
	}
	return false
}
