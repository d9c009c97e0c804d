package inuse

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// backs asks a loop device whether the file is its backing file (LOOP_GET_STATUS64,
// loop(4)); false where the device cannot be asked.
func backs(node string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	f, err := os.Open(node)
	if err != nil {
		return false
	}
	defer f.Close()
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	return err == nil && status.Device == uint64(st.Dev) && status.Inode == st.Ino
}
