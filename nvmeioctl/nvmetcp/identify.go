package nvmetcp

import (
	"encoding/binary"
	"math/bits"

	"nvop/nvmeioctl/nvmespec"
)

// Fabrics fields of Identify Controller.
const (
	typeIO        = 1
	typeDiscovery = 2
	// keepAliveUnits is the granularity of the keep-alive timer: 1 s.
	keepAliveUnits = 10
	// sglSupport: SGLs of any alignment, offsets into the capsule, and the
	// transport's own data blocks.
	sglSupport = 1<<0 | 1<<20 | 1<<21
	// hostID128 is CTRATT bit 0: host identifiers have 128 bits.
	hostID128 = 1 << 0
	// disconnects is OFCS bit 0: the Disconnect command is there.
	disconnects = 1 << 0
	// effectKeepAlive is where the commands effects log has Keep Alive.
	effectKeepAlive = 4 * int(nvmespec.AdminKeepAlive)
)

// amend puts into what the device has answered what only the transport knows.
func (s *session) amend(cmd *command) {
	switch {
	case cmd.opcode == nvmespec.AdminIdentify && nvmespec.CNS(cmd.cdw[0]) == nvmespec.CNSController:
		if len(cmd.data) >= identifyBytes {
			s.amendIdentify(cmd.data)
		}
	case cmd.opcode == nvmespec.AdminGetLogPage && nvmespec.LogID(cmd.cdw[0]) == nvmespec.LogIDEffects:
		offset := uint64(cmd.cdw[2]) | uint64(cmd.cdw[3])<<32
		if at := uint64(effectKeepAlive); offset <= at && at-offset+4 <= uint64(len(cmd.data)) {
			cmd.data[at-offset] |= 1 // supported
		}
	}
}

// amendIdentify makes the page of a drive that of a controller on a fabric.
func (s *session) amendIdentify(page []byte) {
	le := binary.LittleEndian
	page[offMDTS] = uint8(bits.Len32(s.slot.maxTransfer/4096) - 1)
	page[offCTRATT] |= hostID128
	page[offCNTRLTYPE] = typeIO
	s.t.putFabrics(page)
	clear(page[offSUBNQN:][:nqnBytes])
	copy(page[offSUBNQN:], s.t.cfg.SubsystemNQN)
	le.PutUint16(page[offKAS:], keepAliveUnits)
}

// putFabrics fills in the fields that every controller on a fabric has.
func (t *Target) putFabrics(page []byte) {
	le := binary.LittleEndian
	le.PutUint16(page[offMAXCMD:], uint16(t.limits.QueueEntries))
	le.PutUint32(page[offSGLS:], sglSupport)
	le.PutUint32(page[offIOCCSZ:], (sqeBytes+inCapsuleMax)/16)
	le.PutUint32(page[offIORCSZ:], cqeBytes/16)
	le.PutUint16(page[offICDOFF:], 0)
	page[offFCATT] = 0 // controllers are dynamic
	page[offMSDBD] = 1
	le.PutUint16(page[offOFCS:], disconnects)
}
