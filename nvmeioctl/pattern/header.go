package pattern

import (
	"encoding/binary"
	"math/bits"
)

const (
	// HeaderBytes is how much of a block its header takes, from the first byte.
	HeaderBytes = 56
	// SectorBytes is what the size of a block is a multiple of, and what a
	// compressible block repeats its share of zeros in.
	SectorBytes = 512
	// MaxBlockBytes is the largest logical block.
	MaxBlockBytes = 64 << 10

	// magic opens every block: "nvopBLK" and the version of the layout, 1.
	magic = 'n' | 'v'<<8 | 'o'<<16 | 'p'<<24 | 'B'<<32 | 'L'<<40 | 'K'<<48 | 1<<56
)

// Where the words of a header are. All but the magic and the checksum are
// whitened with the checksum: plain numbers would make a block of 512 bytes
// compress by seven percent.
const (
	offMagic      = 0
	offRun        = 8
	offSeed       = 16
	offLBA        = 24
	offGeneration = 32
	offShape      = 40
	offChecksum   = 48
)

// Header is what a block says of itself. The body follows from it.
type Header struct {
	// Run is the number of the run that wrote the block, and Seed that run's.
	Run, Seed uint64
	// LBA is the logical block the block was written to; of a duplicate, the
	// number of the content, which many logical blocks share.
	LBA uint64
	// Generation tells the writes of one logical block apart.
	Generation uint64
	// BlockBytes is the size of the whole block, a multiple of 512 up to 64 KiB.
	BlockBytes uint32
	// KeepBytes is how many bytes of each 512 do not compress, 1 to 512; the
	// rest are zeros. The header is never cut.
	KeepBytes uint16
	// Duplicate says that the content is one of a few that repeat.
	Duplicate bool
	// HeaderOnly says that the body does not follow from the header, so that
	// nothing can be said of it.
	HeaderOnly bool
}

// shape packs the small fields: size in units of 512 (bits 15:0), kept bytes
// (31:16), duplicate (32), header only (33).
func (h *Header) shape() uint64 {
	s := uint64(h.BlockBytes/SectorBytes)&0xFFFF | uint64(h.KeepBytes)<<16
	if h.Duplicate {
		s |= 1 << 32
	}
	if h.HeaderOnly {
		s |= 1 << 33
	}
	return s
}

// checksum is over all the plain words of a header.
func checksum(run, seed, lba, generation, shape uint64) uint64 {
	return mix64(fold(run^0xA0761D6478BD642F, seed^0xE7037ED1A0B428DB) ^
		fold(lba^0x8EBC6AF09C88C6E3, generation^0x589965CC75374CC3) ^
		fold(shape^0x1D8E4E27C47D124F, magic^0xEB44ACCAB455D165))
}

// fold is the product of two words, its halves xored: the mixing step of wyhash.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// white is what the n-th word of a header is xored with.
func white(sum uint64, n int) uint64 { return bits.RotateLeft64(sum*golden, 11*n) }

// put writes the header into the first HeaderBytes of a block.
func (h *Header) put(b []byte) {
	_ = b[HeaderBytes-1]
	shape := h.shape()
	sum := checksum(h.Run, h.Seed, h.LBA, h.Generation, shape)
	binary.LittleEndian.PutUint64(b[offMagic:], magic)
	binary.LittleEndian.PutUint64(b[offRun:], h.Run^white(sum, 1))
	binary.LittleEndian.PutUint64(b[offSeed:], h.Seed^white(sum, 2))
	binary.LittleEndian.PutUint64(b[offLBA:], h.LBA^white(sum, 3))
	binary.LittleEndian.PutUint64(b[offGeneration:], h.Generation^white(sum, 4))
	binary.LittleEndian.PutUint64(b[offShape:], shape^white(sum, 5))
	binary.LittleEndian.PutUint64(b[offChecksum:], sum)
}

// Append appends the HeaderBytes of a header.
func (h *Header) Append(b []byte) []byte {
	var w [HeaderBytes]byte
	h.put(w[:])
	return append(b, w[:]...)
}

// ParseHeader reads the header of a block; false when the bytes are no header,
// are too few, or do not agree with their checksum. The body is not looked at.
func ParseHeader(block []byte) (Header, bool) {
	if len(block) < HeaderBytes || binary.LittleEndian.Uint64(block[offMagic:]) != magic {
		return Header{}, false
	}
	sum := binary.LittleEndian.Uint64(block[offChecksum:])
	word := func(off, n int) uint64 { return binary.LittleEndian.Uint64(block[off:]) ^ white(sum, n) }
	shape := word(offShape, 5)
	h := Header{
		Run: word(offRun, 1), Seed: word(offSeed, 2), LBA: word(offLBA, 3), Generation: word(offGeneration, 4),
		BlockBytes: uint32(shape&0xFFFF) * SectorBytes, KeepBytes: uint16(shape >> 16), Duplicate: shape>>32&1 != 0,
		HeaderOnly: shape>>33&1 != 0,
	}
	ok := checksum(h.Run, h.Seed, h.LBA, h.Generation, shape) == sum && h.valid() && h.shape() == shape
	if !ok {
		return Header{}, false
	}
	return h, true
}

// valid says whether a block could have the header.
func (h *Header) valid() bool {
	return h.BlockBytes != 0 && h.BlockBytes%SectorBytes == 0 && h.BlockBytes <= MaxBlockBytes &&
		h.KeepBytes != 0 && h.KeepBytes <= SectorBytes
}
