package nvmeioctl

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DirectMode says whether the page cache is bypassed.
type DirectMode uint8

const (
	// DirectAuto uses O_DIRECT where the file allows it.
	DirectAuto DirectMode = iota
	// DirectOff goes through the page cache.
	DirectOff
	// DirectRequired fails where O_DIRECT is not possible.
	DirectRequired
)

// DataOptions are how a file is opened for data.
type DataOptions struct {
	// Write opens for writing too.
	Write bool
	// Exclusive adds O_EXCL on a block device: refused while it is mounted or
	// otherwise held. It protects from no NVMe command.
	Exclusive bool
	// Direct says whether the page cache is bypassed.
	Direct DirectMode
	// LogicalBlockBytes overrides what the file reports; 0 asks the file.
	LogicalBlockBytes int
}

// DataFile is an open block device, character device or plain file with what
// the queues that move its data have to know of it.
type DataFile struct {
	// Path is the name it was opened by.
	Path string
	// FD is the open descriptor; it is Close that closes it.
	FD int
	// Character is true for a character device, which has no size and is always
	// buffered; Block for a block device.
	Character, Block bool
	// Direct says whether O_DIRECT is in effect.
	Direct bool
	// SizeBytes is the size when it was opened, in bytes; 0 for a character device.
	SizeBytes int64
	// LogicalBlockBytes is the smallest unit of a transfer, in bytes: of the block
	// device, or of direct I/O for another file, at least 512.
	LogicalBlockBytes int
	// AlignBytes is what the addresses of buffers must be multiples of; 1 when
	// the page cache is in between.
	AlignBytes int
}

// OpenData opens a block device, character device or plain file for data.
func OpenData(path string, opts DataOptions) (DataFile, error) {
	flags := unix.O_CLOEXEC | unix.O_RDONLY
	if opts.Write {
		flags = unix.O_CLOEXEC | unix.O_RDWR
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return DataFile{}, fmt.Errorf("%s: %w", path, os.NewSyscallError("stat", err))
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFBLK && kind != unix.S_IFCHR && kind != unix.S_IFREG {
		return DataFile{}, fmt.Errorf("%s: it is no block device, character device or plain file", path)
	}
	if opts.Exclusive && kind == unix.S_IFBLK {
		flags |= unix.O_EXCL
	}
	f := DataFile{Path: path, FD: -1, Character: kind == unix.S_IFCHR, Block: kind == unix.S_IFBLK}
	if err := f.open(flags, opts.Direct); err != nil {
		return DataFile{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.measure(opts.LogicalBlockBytes); err != nil {
		return DataFile{}, errors.Join(fmt.Errorf("%s: %w", path, err), unix.Close(f.FD))
	}
	return f, nil
}

// open tries O_DIRECT first where it is wanted.
func (f *DataFile) open(flags int, mode DirectMode) error {
	if mode != DirectOff && !f.Character {
		fd, err := openDataRetry(f.Path, flags|unix.O_DIRECT)
		if err == nil {
			f.FD, f.Direct = fd, true
			return nil
		}
		if err != unix.EINVAL {
			return os.NewSyscallError("open", err)
		}
	}
	if mode == DirectRequired {
		return &UnsupportedError{Feature: "direct I/O", Have: "the file system or device of this file refuses it"}
	}
	fd, err := openDataRetry(f.Path, flags)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	f.FD = fd
	return nil
}

func openDataRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// measure finds size, block and alignment.
func (f *DataFile) measure(override int) error {
	var stx unix.Statx_t
	const mask = unix.STATX_SIZE | unix.STATX_DIOALIGN
	if err := unix.Statx(f.FD, "", unix.AT_EMPTY_PATH, mask, &stx); err != nil {
		return os.NewSyscallError("statx", err)
	}
	f.LogicalBlockBytes, f.AlignBytes = 512, 1
	if f.Block {
		size, err := blockSize64(f.FD)
		if err != nil {
			return os.NewSyscallError("ioctl BLKGETSIZE64", err)
		}
		f.SizeBytes = size
		if f.LogicalBlockBytes, err = unix.IoctlGetInt(f.FD, unix.BLKSSZGET); err != nil {
			return os.NewSyscallError("ioctl BLKSSZGET", err)
		}
	} else if !f.Character {
		f.SizeBytes = int64(stx.Size)
	}
	if f.Direct {
		f.align(&stx)
	}
	if override != 0 {
		if f.Direct && override%f.LogicalBlockBytes != 0 {
			return fmt.Errorf("blocks of %d bytes are no multiple of the %d that direct I/O needs", override, f.LogicalBlockBytes)
		}
		f.LogicalBlockBytes = override
	}
	return nil
}

// align finds what direct I/O asks of addresses and offsets.
func (f *DataFile) align(stx *unix.Statx_t) {
	// Kernels before 6.1 do not tell; a page is enough everywhere then.
	f.AlignBytes = max(f.LogicalBlockBytes, 4096)
	offset := f.LogicalBlockBytes
	if !f.Block {
		offset = 4096
	}
	if stx.Mask&unix.STATX_DIOALIGN != 0 && stx.Dio_offset_align != 0 {
		f.AlignBytes, offset = int(stx.Dio_mem_align), int(stx.Dio_offset_align)
	}
	f.LogicalBlockBytes = max(f.LogicalBlockBytes, offset)
}

// blockSize64 is the size of a block device in bytes.
func blockSize64(fd int) (int64, error) {
	var size uint64
	// JUSTIFICATION: x/sys has no ioctl that fills 64 bits on every port.
	// SAFETY: the kernel writes 8 bytes to size during the call only.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, errno
	}
	return int64(size), nil
}

// Gone says whether a block device that had a size has none any more, which is
// what becomes of a drive that was removed while it was open: reads then end
// early, writes find no space left and the rest is EIO. It is a system call, for
// after an error.
func (f *DataFile) Gone() bool {
	if !f.Block || f.SizeBytes == 0 {
		return false
	}
	size, err := blockSize64(f.FD)
	return err != nil || size == 0
}

// Flush is fdatasync; a character device has nothing to flush and says EINVAL.
func (f *DataFile) Flush() error {
	for {
		err := unix.Fdatasync(f.FD)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL && f.Character:
			return nil
		}
		return os.NewSyscallError("fdatasync", err)
	}
}

// Close closes the descriptor.
func (f *DataFile) Close() error {
	if err := unix.Close(f.FD); err != nil {
		return fmt.Errorf("%s: %w", f.Path, os.NewSyscallError("close", err))
	}
	return nil
}
