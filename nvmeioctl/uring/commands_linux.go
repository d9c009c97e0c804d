package uring

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

const (
	// commandTimeoutMS is how long the kernel waits for an answer before it aborts
	// the command and then resets the controller.
	commandTimeoutMS = 60_000
	// blocksMost is what the number of logical blocks of a command can say (NLB,
	// 16 bits, zero-based).
	blocksMost = 1 << 16
	// Bits of dword 12 of a read or write.
	bitFUA   = 1 << 30
	bitPRACT = 1 << 29
	bitGuard = 1 << 28 // of PRCHK: check the guard
	// requestID is NVME_IOCTL_ID, which says the NSID.
	requestID = 0x4E40
)

// OpenCommands opens the generic node of a namespace (/dev/ng0n1) as a queue of
// NVMe commands (Linux 5.19 and later; registered buffers from 6.1). A request
// is one command: one that is larger than a command can be is refused. What the
// drive answers is the result's Status.
func OpenCommands(path string, ns Commands, opts Options) (*Queue, error) {
	if err := opts.check(path); err != nil {
		return nil, err
	}
	if ns.BlockBytes < 512 || bits.OnesCount32(ns.BlockBytes) != 1 || ns.SizeBlocks == 0 || ns.SizeBlocks > 1<<63/uint64(ns.BlockBytes) {
		return nil, fmt.Errorf("%s: %d blocks of %d bytes: out of range", path, ns.SizeBlocks, ns.BlockBytes)
	}
	flags := unix.O_CLOEXEC | unix.O_RDONLY
	if opts.Write {
		flags = unix.O_CLOEXEC | unix.O_RDWR
	}
	fd, err := unix.Open(path, flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, os.NewSyscallError("open", err))
	}
	f := nvmeioctl.DataFile{
		Path: path, FD: fd, Character: true, Direct: true, AlignBytes: 1,
		SizeBytes: int64(ns.SizeBlocks * uint64(ns.BlockBytes)), LogicalBlockBytes: int(ns.BlockBytes),
	}
	return newQueue(thisKernel(), f, &ns, opts)
}

// checkCommands makes sure that the node is the namespace's and that the kernel
// takes commands for it.
func (q *Queue) checkCommands() error {
	has, err := q.ring.has(opURingCmd)
	if err != nil {
		return err
	}
	if !has {
		return &nvmeioctl.UnsupportedError{Feature: "NVMe commands through io_uring", Needs: "Linux 5.19 or later"}
	}
	nsid, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(q.file.FD), requestID, 0)
	if errno != 0 {
		return errors.Join(errors.New("it is no node of an NVMe namespace"), os.NewSyscallError("ioctl NVME_IOCTL_ID", errno))
	}
	if uint32(nsid) != q.ns.NSID {
		return &nvmeioctl.RefusedError{Check: "identity", Subject: q.file.Path, Reason: fmt.Sprintf("it is the node of namespace %d, not %d", nsid, q.ns.NSID)}
	}
	return nil
}

// inBounds refuses a request that is not one command within the namespace.
func (q *Queue) inBounds(r *nvmeioctl.IORequest) error {
	block := uint64(q.ns.BlockBytes)
	n := uint64(r.LengthBytes)
	switch {
	case n/block > blocksMost || q.ns.MaxTransferBytes != 0 && n > q.ns.MaxTransferBytes:
		most := blocksMost * block
		if q.ns.MaxTransferBytes != 0 {
			most = min(most, q.ns.MaxTransferBytes)
		}
		return fmt.Errorf("%s: a request of %d bytes; one command of this controller transfers %d at most", q.file.Path, n, most)
	case uint64(r.OffsetBytes)/block+n/block > q.ns.SizeBlocks:
		return fmt.Errorf("%s: blocks %d to %d; the namespace has %d", q.file.Path,
			uint64(r.OffsetBytes)/block, uint64(r.OffsetBytes)/block+n/block-1, q.ns.SizeBlocks)
	}
	return nil
}

// pushCommand fills an entry with a command.
func (q *Queue) pushCommand(i uint32, s *slot) {
	e := q.ring.nextWide()
	*e = sqe128{opcode: opURingCmd, fd: int32(q.file.FD), cmdOp: nvmeCmdIO, userData: uint64(i)}
	if q.fixed {
		e.flags, e.fd = sqeFixedFile, 0
	}
	c := &e.cmd
	c.nsid, c.timeoutMS = q.ns.NSID, commandTimeoutMS
	q.ring.tail++
	if s.op == nvmeioctl.OpFlush {
		c.opcode = nvmespec.IOOpFlush
		return
	}
	c.opcode = nvmespec.IOOpRead
	if s.op == nvmeioctl.OpWrite {
		c.opcode = nvmespec.IOOpWrite
	}
	block := uint64(q.ns.BlockBytes)
	lba := uint64(s.off) / block
	c.addr, c.dataLen = uint64(address(s.buf)), uint32(len(s.buf))
	c.cdw[0], c.cdw[1] = uint32(lba), uint32(lba>>32)
	c.cdw[2] = uint32(uint64(len(s.buf))/block) - 1
	if s.fua {
		c.cdw[2] |= bitFUA
	}
	if q.ns.Protect {
		c.cdw[2] |= bitPRACT | bitGuard
		c.cdw[4] = uint32(lba) // the first reference tag, which type 1 wants to be the block's number
	}
	s.fixed = false
	if off := address(s.buf) - q.base; off < q.size && off+uintptr(len(s.buf)) <= q.size && off/regionBytes == (off+uintptr(len(s.buf))-1)/regionBytes {
		e.cmdFlags, e.bufIndex, s.fixed = cmdFixed, uint16(off/regionBytes), true
	}
}
