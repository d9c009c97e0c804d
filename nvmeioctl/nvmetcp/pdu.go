package nvmetcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// PDU types (NVMe/TCP 1.0, "PDU-Type").
const (
	pduICReq       = 0x00
	pduICResp      = 0x01
	pduH2CTermReq  = 0x02
	pduC2HTermReq  = 0x03
	pduCapsuleCmd  = 0x04
	pduCapsuleResp = 0x05
	pduH2CData     = 0x06
	pduC2HData     = 0x07
	pduR2T         = 0x09
)

// Flags of a PDU's common header.
const (
	flagHeaderDigest = 1 << 0
	flagDataDigest   = 1 << 1
	flagLastData     = 1 << 2
)

// Lengths in bytes. The header of a PDU includes the common header.
const (
	commonBytes     = 8
	icBytes         = 128
	capsuleCmdBytes = commonBytes + sqeBytes
	capsuleRspBytes = commonBytes + cqeBytes
	dataHdrBytes    = 24
	termHdrBytes    = 24
	digestBytes     = 4
	sqeBytes        = 64
	cqeBytes        = 16
	// termDataMax is how much of a faulty PDU a termination request carries
	// back, and the most that one from a host may carry.
	termDataMax = 128
	// headerMax bounds a header with its digest and padding: PDO is one byte.
	headerMax = 255
)

// Fatal error statuses of a termination request (NVMe/TCP 1.0, "Fatal Error
// Status"). The first three carry where the fault is.
const (
	fatalInvalidField  = 0x01 // fatalAt is the offset of the field
	fatalSequence      = 0x02
	fatalHeaderDigest  = 0x03 // fatalAt is the digest that came
	fatalOutOfRange    = 0x04 // data transfer out of range
	fatalLimitExceeded = 0x05 // data transfer limit exceeded
	fatalUnsupported   = 0x06 // unsupported parameter; fatalAt is its offset
)

// Offsets of fields in PDU headers, as termination requests name them.
const (
	atType  = 0
	atFlags = 1
	atHLEN  = 2
	atPDO   = 3
	atPLEN  = 4

	atPFV    = 8
	atHPDA   = 10
	atDigest = 11
	atMAXR2T = 12

	atCCCID = 8
	atTTAG  = 10
	atDATAO = 12
	atDATAL = 16
)

// pduError is a PDU that ends its connection.
type pduError struct {
	status uint16 // a fatal error status
	at     uint32 // the offset of the field, or the digest
	what   string
	header []byte // what has been read of the PDU's header
}

func (e *pduError) Error() string {
	return fmt.Sprintf("bad PDU: %s (fatal error status %d, information %#x)", e.what, e.status, e.at)
}

func badField(at uint32, format string, args ...any) error {
	return &pduError{status: fatalInvalidField, at: at, what: fmt.Sprintf(format, args...)}
}

func fatal(status uint16, format string, args ...any) error {
	return &pduError{status: status, what: fmt.Sprintf(format, args...)}
}

// commonHeader is the first 8 bytes of every PDU.
type commonHeader struct {
	typ, flags   uint8
	headerBytes  uint8  // HLEN
	dataOffset   uint8  // PDO; 0 without data
	pduBytes     uint32 // PLEN, of the whole PDU
	digest, ddig bool   // what the connection has agreed on
}

// digests are what a connection has agreed on.
type digests struct{ header, data bool }

// decodeCommon reads a common header and checks it against the type: what a
// host may send, how long it is and where its data lies. limit bounds the data.
func decodeCommon(b []byte, d digests, limit uint32) (commonHeader, error) {
	h := commonHeader{
		typ: b[0], flags: b[1], headerBytes: b[2], dataOffset: b[3],
		pduBytes: binary.LittleEndian.Uint32(b[4:]), digest: d.header, ddig: d.data,
	}
	switch h.typ {
	case pduICReq:
		return h, h.checkPlain(icBytes, icBytes)
	case pduH2CTermReq:
		return h, h.checkPlain(termHdrBytes, termHdrBytes+termDataMax)
	case pduCapsuleCmd:
		return h, h.checkData(capsuleCmdBytes, limit)
	case pduH2CData:
		if h.dataOffset == 0 {
			return h, badField(atPDO, "data without an offset")
		}
		return h, h.checkData(dataHdrBytes, limit)
	}
	return h, badField(atType, "type %#02x is not one a host sends", h.typ)
}

// checkPlain checks a PDU that has neither digests nor data in the usual place.
func (h *commonHeader) checkPlain(header uint8, most uint32) error {
	switch {
	case h.headerBytes != header:
		return badField(atHLEN, "header of %d bytes, want %d", h.headerBytes, header)
	case h.flags != 0:
		return badField(atFlags, "flags %#02x", h.flags)
	case h.dataOffset != 0:
		return badField(atPDO, "data offset %d", h.dataOffset)
	case h.pduBytes < uint32(header) || h.pduBytes > most:
		return badField(atPLEN, "length %d", h.pduBytes)
	}
	return nil
}

// checkData checks a PDU that may have digests and data.
func (h *commonHeader) checkData(header uint8, limit uint32) error {
	if h.headerBytes != header {
		return badField(atHLEN, "header of %d bytes, want %d", h.headerBytes, header)
	}
	known := uint8(flagHeaderDigest | flagDataDigest)
	if h.typ == pduH2CData {
		known |= flagLastData
	}
	hasData := h.dataOffset != 0
	switch {
	case h.flags&^known != 0,
		h.flags&flagHeaderDigest != 0 != h.digest,
		h.flags&flagDataDigest != 0 != (h.ddig && hasData):
		return badField(atFlags, "flags %#02x do not fit what was agreed on", h.flags)
	}
	end := h.headerEnd()
	if !hasData {
		if h.pduBytes != end {
			return badField(atPLEN, "length %d without data, want %d", h.pduBytes, end)
		}
		return nil
	}
	switch offset := uint32(h.dataOffset); {
	case offset < end || offset%4 != 0:
		return badField(atPDO, "data offset %d", offset)
	case h.pduBytes <= offset+h.trailer():
		return badField(atPLEN, "length %d leaves no data", h.pduBytes)
	case h.pduBytes-offset-h.trailer() > limit:
		return badField(atPLEN, "%d bytes of data, %d is the limit", h.pduBytes-offset-h.trailer(), limit)
	}
	return nil
}

// headerEnd is where the header ends, its digest included.
func (h *commonHeader) headerEnd() uint32 {
	if h.flags&flagHeaderDigest != 0 {
		return uint32(h.headerBytes) + digestBytes
	}
	return uint32(h.headerBytes)
}

func (h *commonHeader) trailer() uint32 {
	if h.flags&flagDataDigest != 0 {
		return digestBytes
	}
	return 0
}

// dataBytes is how long the data is.
func (h *commonHeader) dataBytes() uint32 {
	if h.dataOffset == 0 {
		return 0
	}
	return h.pduBytes - uint32(h.dataOffset) - h.trailer()
}

// icReq is what a host proposes when it connects.
type icReq struct {
	// hostAlign is to what data for the host must be aligned, in bytes (HPDA
	// counts dwords from 0).
	hostAlign uint8
	digests   digests
	// maxR2T is how many R2Ts of a command may be outstanding.
	maxR2T uint32
}

// decodeICReq reads the 128 bytes of an ICReq. Reserved bytes are not looked
// at: later revisions may use them.
func decodeICReq(b []byte) (icReq, error) {
	if v := binary.LittleEndian.Uint16(b[atPFV:]); v != 0 {
		return icReq{}, &pduError{status: fatalUnsupported, at: atPFV, what: fmt.Sprintf("PDU format version %d", v)}
	}
	if b[atHPDA] > 31 {
		return icReq{}, badField(atHPDA, "alignment %d", b[atHPDA])
	}
	if b[atDigest]&^3 != 0 {
		return icReq{}, badField(atDigest, "digests %#02x", b[atDigest])
	}
	r := icReq{hostAlign: (b[atHPDA] + 1) * 4, maxR2T: binary.LittleEndian.Uint32(b[atMAXR2T:])}
	if r.maxR2T != ^uint32(0) {
		r.maxR2T++
	}
	r.digests = digests{header: b[atDigest]&1 != 0, data: b[atDigest]&2 != 0}
	return r, nil
}

// appendICResp makes the answer. Data for the controller need not be aligned to
// more than a dword; maxData is the most data of one H2CData PDU.
func appendICResp(b []byte, d digests, maxData uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, icBytes)...)
	p := b[at:]
	putCommon(p, pduICResp, 0, icBytes, 0, icBytes)
	if d.header {
		p[11] |= 1
	}
	if d.data {
		p[11] |= 2
	}
	binary.LittleEndian.PutUint32(p[12:], maxData)
	return b
}

func putCommon(p []byte, typ, flags, hlen, pdo uint8, plen uint32) {
	p[0], p[1], p[2], p[3] = typ, flags, hlen, pdo
	binary.LittleEndian.PutUint32(p[4:], plen)
}

// h2cData is the header of host-to-controller data.
type h2cData struct {
	cid, tag      uint16
	offset, bytes uint32
	last          bool
}

func decodeH2CData(b []byte) h2cData {
	le := binary.LittleEndian
	return h2cData{
		cid: le.Uint16(b[atCCCID:]), tag: le.Uint16(b[atTTAG:]),
		offset: le.Uint32(b[atDATAO:]), bytes: le.Uint32(b[atDATAL:]), last: b[1]&flagLastData != 0,
	}
}

// appendHeaderDigest ends a header that began at from.
func appendHeaderDigest(b []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32c(b[from:]))
}

// appendR2T asks the host for data of a command. The tag comes back with it.
func appendR2T(b []byte, d digests, cid, tag uint16, offset, bytes uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, dataHdrBytes)...)
	p := b[at:]
	le := binary.LittleEndian
	le.PutUint16(p[8:], cid)
	le.PutUint16(p[10:], tag)
	le.PutUint32(p[12:], offset)
	le.PutUint32(p[16:], bytes)
	if !d.header {
		putCommon(p, pduR2T, 0, dataHdrBytes, 0, dataHdrBytes)
		return b
	}
	putCommon(p, pduR2T, flagHeaderDigest, dataHdrBytes, 0, dataHdrBytes+digestBytes)
	return appendHeaderDigest(b, at)
}

// appendC2HHeader begins controller-to-host data: the header and what pads it
// to the host's alignment. The data follows, and its digest if agreed on.
func appendC2HHeader(b []byte, d digests, align uint8, cid uint16, bytes uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, dataHdrBytes)...)
	p := b[at:]
	le := binary.LittleEndian
	le.PutUint16(p[8:], cid)
	le.PutUint32(p[16:], bytes)
	flags, end := uint8(flagLastData), uint32(dataHdrBytes)
	if d.header {
		flags |= flagHeaderDigest
		end += digestBytes
	}
	offset := (end + uint32(align) - 1) / uint32(align) * uint32(align)
	length := offset + bytes
	if d.data {
		flags |= flagDataDigest
		length += digestBytes
	}
	putCommon(p, pduC2HData, flags, dataHdrBytes, uint8(offset), length)
	if d.header {
		b = appendHeaderDigest(b, at)
	}
	return append(b, make([]byte, offset-end)...)
}

// completion is a completion queue entry.
type completion struct {
	result uint64
	sqHead uint16
	cid    uint16
	status uint16 // as nvmespec.Status has it, without the phase bit
}

// appendResponse makes a response capsule.
func appendResponse(b []byte, d digests, c completion) []byte {
	at := len(b)
	b = append(b, make([]byte, capsuleRspBytes)...)
	p := b[at:]
	le := binary.LittleEndian
	le.PutUint64(p[8:], c.result)
	le.PutUint16(p[16:], c.sqHead)
	le.PutUint16(p[20:], c.cid)
	le.PutUint16(p[22:], c.status<<1)
	if !d.header {
		putCommon(p, pduCapsuleResp, 0, capsuleRspBytes, 0, capsuleRspBytes)
		return b
	}
	putCommon(p, pduCapsuleResp, flagHeaderDigest, capsuleRspBytes, 0, capsuleRspBytes+digestBytes)
	return appendHeaderDigest(b, at)
}

// appendTermination makes a termination request that sends the faulty PDU's
// header back.
func appendTermination(b []byte, e *pduError) []byte {
	at := len(b)
	back := e.header[:min(len(e.header), termDataMax)]
	b = append(b, make([]byte, termHdrBytes)...)
	p := b[at:]
	putCommon(p, pduC2HTermReq, 0, termHdrBytes, 0, uint32(termHdrBytes+len(back)))
	binary.LittleEndian.PutUint16(p[8:], e.status)
	binary.LittleEndian.PutUint32(p[10:], e.at)
	return append(b, back...)
}

// crc32c is the digest of headers and data (RFC 3720, "CRC32C").
func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli()) }

// castagnoli is built once by the standard library and kept there.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
