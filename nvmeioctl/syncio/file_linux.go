package syncio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

// file is an open descriptor and what is known of it.
type file struct {
	path     string
	fd       int
	char     bool
	direct   bool
	size     int64
	block    int
	memAlign int
}

// vector is the argument of pwritev2. It is kept in the slot, on the heap, so
// that a write with FUA allocates nothing.
type vector struct{ iov unix.Iovec }

func openFile(path string, opts Options) (f file, err error) {
	flags := unix.O_CLOEXEC | unix.O_RDONLY
	if opts.Write {
		flags = unix.O_CLOEXEC | unix.O_RDWR
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return file{}, os.NewSyscallError("stat", err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFBLK && kind != unix.S_IFCHR && kind != unix.S_IFREG {
		return file{}, errors.New("it is no block device, character device or plain file")
	}
	if opts.Exclusive && kind == unix.S_IFBLK {
		flags |= unix.O_EXCL
	}
	f = file{path: path, fd: -1, char: kind == unix.S_IFCHR}
	if err := f.open(flags, opts.Direct); err != nil {
		return file{}, err
	}
	if err := f.measure(kind, opts.LogicalBlockBytes); err != nil {
		return file{}, errors.Join(err, unix.Close(f.fd))
	}
	return f, nil
}

// open tries O_DIRECT first where it is wanted.
func (f *file) open(flags int, mode DirectMode) error {
	if mode != DirectOff && !f.char {
		fd, err := openRetry(f.path, flags|unix.O_DIRECT)
		if err == nil {
			f.fd, f.direct = fd, true
			return nil
		}
		if err != unix.EINVAL {
			return os.NewSyscallError("open", err)
		}
	}
	if mode == DirectRequired {
		return &nvmeioctl.UnsupportedError{Feature: "direct I/O", Have: "the file system or device of this file refuses it"}
	}
	fd, err := openRetry(f.path, flags)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	f.fd = fd
	return nil
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// measure finds size, block and alignment.
func (f *file) measure(kind uint32, override int) error {
	var stx unix.Statx_t
	const mask = unix.STATX_SIZE | unix.STATX_DIOALIGN
	if err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, mask, &stx); err != nil {
		return os.NewSyscallError("statx", err)
	}
	f.block, f.memAlign = 512, 1
	switch kind {
	case unix.S_IFBLK:
		size, err := blockSize64(f.fd)
		if err != nil {
			return os.NewSyscallError("ioctl BLKGETSIZE64", err)
		}
		f.size = size
		if f.block, err = unix.IoctlGetInt(f.fd, unix.BLKSSZGET); err != nil {
			return os.NewSyscallError("ioctl BLKSSZGET", err)
		}
	case unix.S_IFREG:
		f.size = int64(stx.Size)
	}
	if f.direct {
		// Kernels before 6.1 do not tell; a page is enough everywhere then.
		f.memAlign = max(f.block, 4096)
		offsetAlign := f.block
		if kind == unix.S_IFREG {
			offsetAlign = 4096
		}
		if stx.Mask&unix.STATX_DIOALIGN != 0 && stx.Dio_offset_align != 0 {
			f.memAlign, offsetAlign = int(stx.Dio_mem_align), int(stx.Dio_offset_align)
		}
		f.block = max(f.block, offsetAlign)
	}
	if override != 0 {
		if f.direct && override%f.block != 0 {
			return fmt.Errorf("blocks of %d bytes are no multiple of the %d that direct I/O needs", override, f.block)
		}
		f.block = override
	}
	return nil
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

// do carries one request out.
func (f *file) do(s *slot, buf []byte) error {
	switch s.req.Op {
	case nvmeioctl.OpRead:
		return f.read(buf, s.req.OffsetBytes)
	case nvmeioctl.OpWrite:
		return f.write(s, buf, s.req.OffsetBytes)
	}
	return f.flush()
}

func (f *file) read(buf []byte, off int64) error {
	for len(buf) > 0 {
		n, err := unix.Pread(f.fd, buf, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("pread", err)
		case n == 0:
			return os.NewSyscallError("pread", io.ErrUnexpectedEOF)
		}
		buf, off = buf[n:], off+int64(n)
	}
	return nil
}

func (f *file) write(s *slot, buf []byte, off int64) error {
	for len(buf) > 0 {
		n, err := f.writeSome(s, buf, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("pwrite", err)
		case n == 0:
			return os.NewSyscallError("pwrite", io.ErrShortWrite)
		}
		buf, off = buf[n:], off+int64(n)
	}
	return nil
}

func (f *file) writeSome(s *slot, buf []byte, off int64) (int, error) {
	if !s.req.FUA {
		return unix.Pwrite(f.fd, buf, off)
	}
	s.call.iov.Base = &buf[0]
	s.call.iov.SetLen(len(buf))
	// JUSTIFICATION: unix.Pwritev2 makes its vector anew at each call.
	// SAFETY: the vector is on the heap and holds a real pointer to buf, which
	// the caller keeps until the result is reaped.
	n, _, errno := unix.Syscall6(unix.SYS_PWRITEV2, uintptr(f.fd), uintptr(unsafe.Pointer(&s.call.iov)), 1,
		uintptr(off), uintptr(uint64(off)>>32), unix.RWF_DSYNC)
	s.call.iov.Base = nil
	if errno == unix.EOPNOTSUPP { // character devices, some file systems
		return f.writeAndSync(buf, off)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// writeAndSync does in two calls what FUA does in one.
func (f *file) writeAndSync(buf []byte, off int64) (int, error) {
	n, err := unix.Pwrite(f.fd, buf, off)
	if err != nil {
		return n, err
	}
	err = unix.Fdatasync(f.fd)
	if err == unix.EINVAL && f.char {
		err = nil
	}
	return n, err
}

// flush is fdatasync; a character device has nothing to flush and says EINVAL.
func (f *file) flush() error {
	for {
		err := unix.Fdatasync(f.fd)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL && f.char:
			return nil
		}
		return os.NewSyscallError("fdatasync", err)
	}
}

func (f *file) close() error { return os.NewSyscallError("close", unix.Close(f.fd)) }

// address is where a buffer begins.
func address(b []byte) uintptr {
	// JUSTIFICATION: the alignment of an address is a property of its number.
	// SAFETY: the number is not turned into a pointer again.
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

func aligned(b []byte, align int) bool { return align <= 1 || address(b)%uintptr(align) == 0 }

// AlignedBuffer returns a buffer of n bytes whose address is a multiple of
// align (a power of two).
func AlignedBuffer(n, align int) []byte {
	if align <= 1 {
		return make([]byte, n)
	}
	b := make([]byte, n+align)
	skip := (align - int(address(b)%uintptr(align))) % align
	return b[skip : skip+n : skip+n]
}
