package sim

import (
	"encoding/binary"

	"nvop/nvmeioctl/nvmespec"
)

// ioCommand is one row of the NVM command set as passed through: without
// timing, and with contents where the drive keeps them (see KeepContents).
// Queues are the way to move data fast.
type ioCommand struct {
	opcode  uint8
	needs   func(*Profile) bool
	effects nvmespec.CommandEffects
	used    [6]uint32
	run     func(*request, *namespace) nvmespec.Status
}

func ioCommands() []ioCommand {
	const (
		all = ^uint32(0)
		// Bits of CDW12: LR, FUA, PRINFO, and the number of blocks.
		transfer = 0xFC00FFFF
	)
	zeroes := func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IOWriteZeroes) != 0 }
	deallocates := func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IODatasetManagement) != 0 }
	compares := func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IOCompare) != 0 }
	spoils := func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IOWriteUncorrectable) != 0 }
	verifies := func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IOVerify) != 0 }
	return []ioCommand{
		{opcode: nvmespec.IOOpFlush, run: func(r *request, ns *namespace) nvmespec.Status { return r.flushContents(ns.NSID) }},
		{opcode: nvmespec.IOOpWrite, effects: nvmespec.EffectContent, used: [6]uint32{all, all, transfer, all, all, all}, run: transferData},
		{opcode: nvmespec.IOOpRead, used: [6]uint32{all, all, transfer, all, all, all}, run: transferData},
		{opcode: nvmespec.IOOpWriteZeroes, needs: zeroes, effects: nvmespec.EffectContent, used: [6]uint32{all, all, transfer | 1<<25, all, all, all}, run: writeZeroes},
		{opcode: nvmespec.IOOpDatasetManagement, needs: deallocates, effects: nvmespec.EffectContent, used: [6]uint32{0xFF, 0x7}, run: manageDataset},
		{opcode: nvmespec.IOOpWriteUncorrectable, needs: spoils, effects: nvmespec.EffectContent, used: [6]uint32{all, all, 0xFFFF}, run: writeUncorrectable},
		{opcode: nvmespec.IOOpCompare, needs: compares, used: [6]uint32{all, all, transfer, 0, all, all}, run: compareData},
		{opcode: nvmespec.IOOpVerify, needs: verifies, used: [6]uint32{all, all, transfer, 0, all, all}, run: verifyData},
		{opcode: nvmespec.IOOpCopy, needs: (*Profile).copies, effects: nvmespec.EffectContent, used: [6]uint32{all, all, transfer | 0xFF00, 0, all, all}, run: copyData},
	}
}

// runIO carries out an I/O command.
func (r *request) runIO() (uint32, nvmespec.Status) {
	for _, c := range ioCommands() {
		if c.opcode != r.cmd.Opcode || c.needs != nil && !c.needs(r.profile()) {
			continue
		}
		if s := r.checkReserved(true, c.used); s != 0 {
			return 0, s
		}
		if s := r.d.ioStatus(r.c, r.cmd.NSID); s != 0 {
			if r.cmd.Opcode == nvmespec.IOOpFlush && r.cmd.NSID == nsidAll {
				return 0, r.flushContents(nsidAll)
			}
			return 0, s
		}
		if r.d.dozing {
			r.d.rouse(r.c, 0) // commands of the control path take no time
		}
		return 0, c.run(r, r.state().find(r.cmd.NSID))
	}
	return r.fail(nvmespec.StatusInvalidOpcode, 0)
}

// ioStatus says why a namespace takes no I/O through a controller, 0 if it does.
func (d *Drive) ioStatus(controller int, nsid uint32) nvmespec.Status {
	ns := d.st.find(nsid)
	switch {
	case nsid == 0 || nsid > d.st.Profile.MaxNamespaces:
		return nvmespec.StatusInvalidNamespace | nvmespec.StatusDNR
	case ns == nil || ns.Attached>>controller&1 == 0:
		return nvmespec.StatusInvalidField | nvmespec.StatusDNR
	case d.sanitizeStatus() != 0:
		return d.sanitizeStatus()
	case d.anyFormatting([]uint32{nsid}):
		return nvmespec.StatusFormatInProgress
	}
	return nvmespec.StatusSuccess
}

// ioNamespace is what a data queue must know of a namespace.
type ioNamespace struct {
	SizeBytes  uint64 // user data
	BlockBytes uint32 // data bytes of a logical block
}

// ioNamespaceLocked looks up a namespace for I/O through the controller with
// this index; the status is not 0 where I/O must be refused. The drive's lock
// is held.
func (d *Drive) ioNamespaceLocked(controller int, nsid uint32) (ioNamespace, nvmespec.Status) {
	if s := d.ioStatus(controller, nsid); s != 0 {
		return ioNamespace{}, s
	}
	p, ns := &d.st.Profile, d.st.find(nsid)
	return ioNamespace{SizeBytes: ns.sizeBytes(p), BlockBytes: p.Formats[ns.FormatIndex].DataBytes}, nvmespec.StatusSuccess
}

// blockRange turns blocks into bytes of user data if the namespace has them.
func (r *request) blockRange(ns *namespace, lba, blocks uint64) (offset, length uint64, ok bool) {
	if blocks > ns.SizeBlocks || lba > ns.SizeBlocks-blocks {
		return 0, 0, false
	}
	data := uint64(r.profile().Formats[ns.FormatIndex].DataBytes)
	return lba * data, blocks * data, true
}

// transferData carries out Read and Write. What is read is zeros where the
// drive keeps no contents.
func transferData(r *request, ns *namespace) nvmespec.Status {
	t, s := r.transfer(ns)
	if s != 0 {
		return s
	}
	op := mediaWrite
	if r.cmd.Opcode == nvmespec.IOOpRead {
		op = mediaRead
		clear(t.data)
	}
	if s := r.badBlocks(ns, t.lba, t.blocks, op == mediaWrite); s != 0 {
		return s
	}
	if s := r.d.media.access(op, ns.NSID, t.offset, t.length); s != 0 {
		return s
	}
	return r.moveContents(ns, t.lba, t.data)
}

// transfer is the blocks of a command and the data that go with them.
type transfer struct {
	lba, blocks uint64
	// offset and length are bytes of user data in the namespace.
	offset, length uint64
	// data has the metadata too where the format has them there.
	data []byte
}

// transfer checks the blocks and the data of a command that has one range of blocks.
func (r *request) transfer(ns *namespace) (t transfer, s nvmespec.Status) {
	t.lba, t.blocks = uint64(r.cmd.CDW10)|uint64(r.cmd.CDW11)<<32, uint64(r.cmd.CDW12&0xFFFF)+1
	ok := false
	if t.offset, t.length, ok = r.blockRange(ns, t.lba, t.blocks); !ok {
		_, s = r.fail(nvmespec.StatusLBAOutOfRange, paramCDW10)
		return t, s
	}
	size := t.blocks * r.state().stride(ns)
	if limit := r.profile().MaxTransferBytes; limit != 0 && size > uint64(limit) {
		_, s = r.fail(nvmespec.StatusInvalidField, paramCDW10+8)
		return t, s
	}
	if uint64(len(r.cmd.Data)) < size {
		_, s = r.fail(nvmespec.StatusDataTransfer, paramNone)
		return t, s
	}
	t.data = r.cmd.Data[:size]
	return t, 0
}

// writeZeroes carries out Write Zeroes, as a deallocation: what is deallocated
// reads as zeros.
func writeZeroes(r *request, ns *namespace) nvmespec.Status {
	lba, blocks := uint64(r.cmd.CDW10)|uint64(r.cmd.CDW11)<<32, uint64(r.cmd.CDW12&0xFFFF)+1
	offset, length, ok := r.blockRange(ns, lba, blocks)
	if !ok {
		_, s := r.fail(nvmespec.StatusLBAOutOfRange, paramCDW10)
		return s
	}
	if s := r.badBlocks(ns, lba, blocks, true); s != 0 {
		return s
	}
	if s := r.d.media.access(mediaDeallocate, ns.NSID, offset, length); s != 0 {
		return s
	}
	return r.zeroContents(ns, lba, blocks)
}

// manageDataset carries out Dataset Management: deallocation; its hints are
// accepted and mean nothing.
func manageDataset(r *request, ns *namespace) nvmespec.Status {
	const rangeBytes = 16
	n := int(r.cmd.CDW10&0xFF) + 1
	if len(r.cmd.Data) < n*rangeBytes {
		_, s := r.fail(nvmespec.StatusDataTransfer, paramNone)
		return s
	}
	type span struct{ offset, length, lba, blocks uint64 }
	var spans []span
	for i := range n {
		e := r.cmd.Data[i*rangeBytes:]
		lba, blocks := binary.LittleEndian.Uint64(e[8:]), uint64(binary.LittleEndian.Uint32(e[4:]))
		offset, length, ok := r.blockRange(ns, lba, blocks)
		if !ok {
			_, s := r.fail(nvmespec.StatusLBAOutOfRange, paramNone)
			return s
		}
		spans = append(spans, span{offset, length, lba, blocks})
	}
	if r.cmd.CDW11&4 == 0 {
		return nvmespec.StatusSuccess
	}
	for _, s := range spans {
		if st := r.badBlocks(ns, s.lba, s.blocks, true); st != 0 {
			return st
		}
		if st := r.d.media.access(mediaDeallocate, ns.NSID, s.offset, s.length); st != 0 {
			return st
		}
		if st := r.zeroContents(ns, s.lba, s.blocks); st != 0 {
			return st
		}
	}
	return nvmespec.StatusSuccess
}
