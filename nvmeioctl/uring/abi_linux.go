package uring

import (
	"structs"
	"unsafe"
)

// The kernel's structures of include/uapi/linux/io_uring.h and nvme_ioctl.h.
// They are overlays: host layout, sizes checked when compiling.
//
// An entry holds an address as a number, unlike every other structure here: the
// entries are mapped memory that the collector does not know, and a pointer
// stored there is shaded as the old value by the store that replaces it, when
// what it pointed to may be long gone, which ends the program. What an entry
// points to is kept by the slot of its request, and nothing on the heap moves.

// ptrPad fills a pointer up to the 64 bits that the header gives an address.
// All ports that this package is built for are little-endian.
const ptrPad = 8 - unsafe.Sizeof(unsafe.Pointer(nil))

// Flags of io_uring_setup, with the kernel that brought them.
const (
	setupIOPoll       = 1 << 0
	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupCoopTaskrun  = 1 << 8  // 5.19
	setupSQE128       = 1 << 10 // 5.19
	setupCQE32        = 1 << 11 // 5.19
	setupSingleIssuer = 1 << 12 // 6.0
	setupDeferTaskrun = 1 << 13 // 6.1
)

// Features that the kernel reports; all are there from 5.11.
const (
	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8
	featNeeded     = featSingleMmap | featNoDrop | featExtArg
)

// Offsets of the two mappings.
const (
	offRings = 0
	offSQEs  = 0x10000000
)

// Flags of io_uring_enter.
const (
	enterGetEvents      = 1 << 0
	enterExtArg         = 1 << 3
	enterRegisteredRing = 1 << 4 // 5.18: the descriptor is an index of registerRing
)

// Operations of io_uring_register.
const (
	registerBuffers = 0
	registerFiles   = 2
	registerProbe   = 8
	registerRing    = 20
	unregisterRing  = 21
)

// Operations of an entry.
const (
	opFsync      = 3
	opReadFixed  = 4
	opWriteFixed = 5
	opRead       = 22
	opWrite      = 23
	opURingCmd   = 46
)

const (
	sqeFixedFile  = 1 << 0
	fsyncDataSync = 1 << 0
	cmdFixed      = 1 << 0 // IORING_URING_CMD_FIXED, 6.1
	// nvmeCmdIO is NVME_URING_CMD_IO: _IOWR('N', 0x80, struct nvme_uring_cmd).
	nvmeCmdIO = 3<<30 | 72<<16 | 'N'<<8 | 0x80
)

// sqOffsets and cqOffsets say where things are in the first mapping.
type sqOffsets struct {
	_                                                      structs.HostLayout
	head, tail, ringMask, ringEntries, flags, dropped, arr uint32
	_                                                      uint32
	_                                                      uint64
}

type cqOffsets struct {
	_                                                        structs.HostLayout
	head, tail, ringMask, ringEntries, overflow, cqes, flags uint32
	_                                                        uint32
	_                                                        uint64
}

// params is struct io_uring_params.
type params struct {
	_                      structs.HostLayout
	sqEntries, cqEntries   uint32
	flags                  uint32
	sqThreadCPU            uint32
	sqThreadIdle, features uint32
	_                      [4]uint32
	sq                     sqOffsets
	cq                     cqOffsets
}

// sqe is struct io_uring_sqe as read, write, fsync and uring_cmd use it.
type sqe struct {
	_           structs.HostLayout
	opcode      uint8
	flags       uint8
	ioprio      uint16
	fd          int32
	off         uint64
	addr        uint64
	len         uint32
	opFlags     uint32
	userData    uint64
	bufIndex    uint16
	personality uint16
	spliceFD    int32
	_           [2]uint64
}

// sqe128 is the entry of a ring with IORING_SETUP_SQE128: its last 16 bytes and
// those that follow are the command.
type sqe128 struct {
	_        structs.HostLayout
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	cmdOp    uint32
	_        uint32
	addr     uint64
	len      uint32
	cmdFlags uint32
	userData uint64
	bufIndex uint16
	_        uint16
	_        int32
	cmd      nvmeCmd
	_        [8]byte
}

// nvmeCmd is struct nvme_uring_cmd, 72 bytes.
type nvmeCmd struct {
	_           structs.HostLayout
	opcode      uint8
	flags       uint8
	_           uint16
	nsid        uint32
	cdw2, cdw3  uint32
	metadata    uint64
	addr        uint64
	metadataLen uint32
	dataLen     uint32
	cdw         [6]uint32 // dwords 10 to 15
	timeoutMS   uint32
	_           uint32
}

// cqe is struct io_uring_cqe, and cqe32 that of a ring with IORING_SETUP_CQE32.
type cqe struct {
	_        structs.HostLayout
	userData uint64
	res      int32
	flags    uint32
}

type cqe32 struct {
	_ structs.HostLayout
	cqe
	big [2]uint64
}

// getEventsArg is struct io_uring_getevents_arg, which is getEventsSize long:
// what follows is none of the kernel's.
type getEventsArg struct {
	_  structs.HostLayout
	_  uint64 // no signal mask
	_  uint32
	_  uint32
	ts unsafe.Pointer
	_  [ptrPad]byte
	_  uint64
}

const getEventsSize = 24

// timespec is struct __kernel_timespec.
type timespec struct {
	_         structs.HostLayout
	sec, nsec int64
}

// probe is struct io_uring_probe with its operations.
type probe struct {
	_      structs.HostLayout
	lastOp uint8
	opsLen uint8
	_      uint16
	_      [3]uint32
	ops    [64]struct {
		op    uint8
		_     uint8
		flags uint16
		_     uint32
	}
}

// rsrcUpdate is struct io_uring_rsrc_update.
type rsrcUpdate struct {
	_      structs.HostLayout
	offset uint32
	_      uint32
	data   uint64
}

// opSupported is IO_URING_OP_SUPPORTED.
const opSupported = 1

// A size other than the header's does not compile.
var (
	_ [40]byte  = [unsafe.Sizeof(sqOffsets{})]byte{}
	_ [40]byte  = [unsafe.Sizeof(cqOffsets{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(sqe{})]byte{}
	_ [128]byte = [unsafe.Sizeof(sqe128{})]byte{}
	_ [72]byte  = [unsafe.Sizeof(nvmeCmd{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(cqe{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(cqe32{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(getEventsArg{}) - 8]byte{}
	_ [16]byte  = [unsafe.Offsetof(getEventsArg{}.ts)]byte{}
	_ [16]byte  = [unsafe.Sizeof(timespec{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(rsrcUpdate{})]byte{}
	_ [528]byte = [unsafe.Sizeof(probe{})]byte{}
	_ [48]byte  = [unsafe.Offsetof(sqe128{}.cmd)]byte{}
)
