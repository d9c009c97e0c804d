package nvmeioctl

import (
	"errors"
	"fmt"
	"io/fs"
	"structs"
	"syscall"
	"unsafe"

	"github.com/dswarbrick/go-nvme/ioctl"
	"golang.org/x/sys/unix"
)

// The kernel's structures and request numbers of include/uapi/linux/nvme_ioctl.h.
// They alone are overlays: host layout, real pointers, sizes checked when
// compiling. Offsets are checked in a test against the header's.

// ptrPad fills a pointer up to the 64 bits that the header gives an address.
// All ports that this package is built for are little-endian.
const ptrPad = 8 - unsafe.Sizeof(unsafe.Pointer(nil))

// passthruCmd is struct nvme_passthru_cmd, 72 bytes: kernels before 5.4.
type passthruCmd struct {
	_           structs.HostLayout
	opcode      uint8
	flags       uint8 // must be 0: fused commands are refused with EINVAL
	_           uint16
	nsid        uint32
	cdw2, cdw3  uint32
	metadata    unsafe.Pointer
	_           [ptrPad]byte
	addr        unsafe.Pointer
	_           [ptrPad]byte
	metadataLen uint32
	dataLen     uint32
	cdw         [6]uint32 // dwords 10 to 15
	timeoutMS   uint32    // 0 would mean the kernel's default
	result      uint32
}

// passthruCmd64 is struct nvme_passthru_cmd64, 80 bytes.
type passthruCmd64 struct {
	_           structs.HostLayout
	opcode      uint8
	flags       uint8
	_           uint16
	nsid        uint32
	cdw2, cdw3  uint32
	metadata    unsafe.Pointer
	_           [ptrPad]byte
	addr        unsafe.Pointer
	_           [ptrPad]byte
	metadataLen uint32
	dataLen     uint32
	cdw         [6]uint32
	timeoutMS   uint32
	_           uint32
	result      uint64
}

// A size other than the header's does not compile.
var (
	_ [72]byte = [unsafe.Sizeof(passthruCmd{})]byte{}
	_ [80]byte = [unsafe.Sizeof(passthruCmd64{})]byte{}
)

// The parts of a request number: type and number within it.
const (
	reqType         uintptr = 'N'
	reqNrAdmin      uintptr = 0x41
	reqNrIO         uintptr = 0x43
	reqNrAdmin64    uintptr = 0x47
	reqNrIO64       uintptr = 0x48
	reqID           uintptr = 0x4E40
	reqReset        uintptr = 0x4E44
	reqSubsysReset  uintptr = 0x4E45
	reqRescan       uintptr = 0x4E46
	maxTransferSize         = 1<<32 - 1
)

// Those without a direction (_IO) are literals: go-nvme makes none of them.

// requestOf32 is the request number of the 72-byte form.
func requestOf32(io bool) uintptr {
	nr := reqNrAdmin
	if io {
		nr = reqNrIO
	}
	return ioctl.Iowr(reqType, nr, unsafe.Sizeof(passthruCmd{}))
}

// requestOf64 is the request number of the 80-byte form.
func requestOf64(io bool) uintptr {
	nr := reqNrAdmin64
	if io {
		nr = reqNrIO64
	}
	return ioctl.Iowr(reqType, nr, unsafe.Sizeof(passthruCmd64{}))
}

// fill sets every field from the command; result is cleared.
func (k *passthruCmd64) fill(c *Command, timeoutMS uint32) {
	*k = passthruCmd64{
		opcode: c.Opcode, nsid: c.NSID, cdw2: c.CDW2, cdw3: c.CDW3,
		metadata:    unsafe.Pointer(unsafe.SliceData(c.Metadata)),
		addr:        unsafe.Pointer(unsafe.SliceData(c.Data)),
		metadataLen: uint32(len(c.Metadata)),
		dataLen:     uint32(len(c.Data)),
		cdw:         [6]uint32{c.CDW10, c.CDW11, c.CDW12, c.CDW13, c.CDW14, c.CDW15},
		timeoutMS:   timeoutMS,
	}
	if len(c.Data) == 0 {
		k.addr = nil
	}
	if len(c.Metadata) == 0 {
		k.metadata = nil
	}
}

// from copies the fields that both forms have.
func (k *passthruCmd) from(w *passthruCmd64) {
	*k = passthruCmd{
		opcode: w.opcode, nsid: w.nsid, cdw2: w.cdw2, cdw3: w.cdw3,
		metadata: w.metadata, addr: w.addr,
		metadataLen: w.metadataLen, dataLen: w.dataLen,
		cdw: w.cdw, timeoutMS: w.timeoutMS,
	}
}

// deviceNumber is "major:minor" of a device node.
func deviceNumber(info fs.FileInfo) (string, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("no device number")
	}
	return formatDevice(uint64(st.Rdev)), nil
}

// formatDevice splits a device number as the C library does.
func formatDevice(dev uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
}
