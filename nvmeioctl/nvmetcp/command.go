package nvmetcp

import (
	"encoding/binary"

	"nvop/nvmeioctl/nvmespec"
)

// Statuses of NVMe over Fabrics and of SGLs (NVMe Base 2.x, "Status Code").
const (
	statusSGLLength          nvmespec.Status = 0x00F
	statusSGLType            nvmespec.Status = 0x011
	statusSGLOffset          nvmespec.Status = 0x016
	statusKeepAliveInvalid   nvmespec.Status = 0x019
	statusIncompatibleFormat nvmespec.Status = 0x180
	statusControllerBusy     nvmespec.Status = 0x181
	statusConnectInvalid     nvmespec.Status = 0x182
	statusInvalidHost        nvmespec.Status = 0x184
)

// The fabrics command and its types.
const (
	opFabrics         = 0x7F
	fabricPropertySet = 0x00
	fabricConnect     = 0x01
	fabricPropertyGet = 0x04
	fabricDisconnect  = 0x08
)

// SGL descriptor types: type in bits 7:4, subtype in 3:0.
const (
	sglInCapsule = 0x01 // data block, address is an offset into the capsule
	sglTransport = 0x5A // transport data block: R2T or C2HData
)

// Bits of the flags byte of a command.
const (
	flagsFused = 0x03
	flagsPSDT  = 0xC0
	psdtSGL    = 0x40 // SGL, metadata pointer is one contiguous buffer
)

// sqe is a submission queue entry.
type sqe struct {
	opcode, flags uint8
	cid           uint16
	nsid          uint32
	cdw2, cdw3    uint32
	sglAddress    uint64
	sglBytes      uint32
	sglType       uint8
	cdw           [6]uint32 // CDW10 to CDW15
}

func decodeSQE(b []byte) sqe {
	le := binary.LittleEndian
	s := sqe{
		opcode: b[0], flags: b[1], cid: le.Uint16(b[2:]), nsid: le.Uint32(b[4:]),
		cdw2: le.Uint32(b[8:]), cdw3: le.Uint32(b[12:]),
		sglAddress: le.Uint64(b[24:]), sglBytes: le.Uint32(b[32:]), sglType: b[39],
	}
	for i := range s.cdw {
		s.cdw[i] = le.Uint32(b[40+4*i:])
	}
	return s
}

// fabricType is the type of a fabrics command; it lies where others have the NSID.
func (s *sqe) fabricType() uint8 { return uint8(s.nsid) }

// direction is where data travels: bits 1:0 of the opcode, or of the type of a
// fabrics command.
func (s *sqe) direction() direction {
	if s.opcode == opFabrics {
		return direction(s.fabricType() & 3)
	}
	return direction(s.opcode & 3)
}

type direction uint8

const (
	noData direction = iota
	toController
	toHost
	bothWays
)

// transfer says how many bytes of data the command moves, and whether they are
// in its capsule, which holds inCapsule of them. most is the largest transfer.
func (s *sqe) transfer(inCapsule, most uint32) (bytes uint32, fromHost bool, status nvmespec.Status) {
	if s.flags&flagsPSDT != psdtSGL || s.flags&flagsFused != 0 {
		return 0, false, nvmespec.StatusInvalidField | nvmespec.StatusDNR
	}
	dir := s.direction()
	if dir == bothWays {
		// No command that is served here moves data both ways.
		return 0, false, nvmespec.StatusInvalidOpcode | nvmespec.StatusDNR
	}
	switch s.sglType {
	case sglInCapsule:
		switch {
		case s.sglAddress != 0:
			return 0, false, statusSGLOffset | nvmespec.StatusDNR
		case s.sglBytes != inCapsule:
			return 0, false, statusSGLLength | nvmespec.StatusDNR
		case s.sglBytes != 0 && dir != toController:
			return 0, false, nvmespec.StatusInvalidField | nvmespec.StatusDNR
		}
		return s.sglBytes, false, 0
	case sglTransport:
		switch {
		case inCapsule != 0:
			return 0, false, nvmespec.StatusInvalidField | nvmespec.StatusDNR
		case dir == noData:
			// Hosts leave a length here for commands without data.
			return 0, false, 0
		case s.sglBytes > most:
			return 0, false, nvmespec.StatusInvalidField | nvmespec.StatusDNR
		}
		return s.sglBytes, dir == toController && s.sglBytes != 0, 0
	case 0:
		// An all-zero descriptor: no data.
		if s.sglAddress == 0 && s.sglBytes == 0 && inCapsule == 0 {
			return 0, false, 0
		}
	}
	return 0, false, statusSGLType | nvmespec.StatusDNR
}

// connectData is what a host sends with Connect (NVMe Base 2.x, "Connect
// command").
type connectData struct {
	hostID       [16]byte
	cntlid       uint16
	subNQN, host string
}

const (
	connectBytes = 1024
	nqnBytes     = 256
	// nqnMax is the longest NVMe qualified name, its end not counted.
	nqnMax = 223

	atConnectCNTLID  = 16
	atConnectSubNQN  = 256
	atConnectHostNQN = 512
	// Where in the command the queue's number and size lie.
	atConnectQID    = 42
	atConnectSQSize = 44
)

// decodeConnect reads Connect's data. If it is not possible, the offset of the
// field at fault comes back with ok false.
func decodeConnect(b []byte) (c connectData, at uint16, ok bool) {
	copy(c.hostID[:], b)
	c.cntlid = binary.LittleEndian.Uint16(b[atConnectCNTLID:])
	if c.subNQN, ok = decodeNQN(b[atConnectSubNQN:][:nqnBytes]); !ok {
		return c, atConnectSubNQN, false
	}
	if c.host, ok = decodeNQN(b[atConnectHostNQN:][:nqnBytes]); !ok {
		return c, atConnectHostNQN, false
	}
	return c, 0, true
}

// decodeNQN reads a name that NULs end.
func decodeNQN(b []byte) (string, bool) {
	for i, c := range b {
		switch {
		case c == 0:
			return string(b[:i]), i > 0
		case i == nqnMax, c < 0x20, c > 0x7E:
			return "", false
		}
	}
	return "", false
}
