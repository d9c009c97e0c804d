package syncio

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
)

// file is an open file and how its data is moved.
type file struct{ nvmeioctl.DataFile }

// vector is the argument of pwritev2. It is kept in the slot, on the heap, so
// that a write with FUA allocates nothing.
type vector struct{ iov unix.Iovec }

// do carries one request out.
func (f *file) do(s *slot, buf []byte) error {
	switch s.req.Op {
	case nvmeioctl.OpRead:
		return f.read(buf, s.req.OffsetBytes)
	case nvmeioctl.OpWrite:
		return f.write(s, buf, s.req.OffsetBytes)
	}
	return f.Flush()
}

func (f *file) read(buf []byte, off int64) error {
	for len(buf) > 0 {
		n, err := unix.Pread(f.FD, buf, off)
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
		return unix.Pwrite(f.FD, buf, off)
	}
	s.call.iov.Base = &buf[0]
	s.call.iov.SetLen(len(buf))
	// JUSTIFICATION: unix.Pwritev2 makes its vector anew at each call.
	// SAFETY: the vector is on the heap and holds a real pointer to buf, which
	// the caller keeps until the result is reaped.
	n, _, errno := unix.Syscall6(unix.SYS_PWRITEV2, uintptr(f.FD), uintptr(unsafe.Pointer(&s.call.iov)), 1,
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
	n, err := unix.Pwrite(f.FD, buf, off)
	if err != nil {
		return n, err
	}
	err = unix.Fdatasync(f.FD)
	if err == unix.EINVAL && f.Character {
		err = nil
	}
	return n, err
}

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
