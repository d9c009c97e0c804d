package workload

import "encoding/binary"

const (
	// poolBytes of random words serve every block: enough that a compressor's
	// window does not see it come round within a command, small enough to stay
	// in a processor's second-level cache.
	poolBytes = 256 << 10
	// maxLBABytes is the largest logical block Data fills in one piece.
	maxLBABytes = 64 << 10
)

// Data fills blocks with incompressible bytes that follow from (seed, LBA,
// generation) alone, so that they can be told again when they are read back.
//
// A block is a stretch of a random pool, xored with a word of its own. A plain
// copy of the pool would be found by a compressor with a long window; with the
// xor it stays incompressible. Safe for concurrent use.
type Data struct {
	seed uint64
	pool []byte
}

// NewData makes the pool of a seed.
func NewData(seed uint64) *Data {
	d := &Data{seed: seed, pool: make([]byte, poolBytes+maxLBABytes)}
	for i := 0; i < len(d.pool); i += 8 {
		binary.LittleEndian.PutUint64(d.pool[i:], draw(seed, uint64(i)))
	}
	return d
}

// Fill writes the content of successive logical blocks of lbaBytes, a multiple
// of 8 up to 64 KiB, from number lba on, in their given generation, into dst,
// which holds whole blocks.
func (d *Data) Fill(dst []byte, lba, generation uint64, lbaBytes int) {
	for len(dst) >= lbaBytes {
		d.fillBlock(dst[:lbaBytes], lba, generation)
		dst = dst[lbaBytes:]
		lba++
	}
}

// block returns a block's stretch of the pool and its word.
func (d *Data) block(size int, lba, generation uint64) ([]byte, uint64) {
	key := mix64(draw(d.seed, lba) + generation*golden)
	offset := int(key>>32) % poolBytes &^ 7
	return d.pool[offset : offset+size], mix64(key)
}

func (d *Data) fillBlock(dst []byte, lba, generation uint64) {
	src, word := d.block(len(dst), lba, generation)
	// Arrays of constant size let the compiler drop every bounds check.
	for len(dst) >= 64 && len(src) >= 64 {
		d, s := (*[64]byte)(dst), (*[64]byte)(src)
		binary.LittleEndian.PutUint64(d[0:8], binary.LittleEndian.Uint64(s[0:8])^word)
		binary.LittleEndian.PutUint64(d[8:16], binary.LittleEndian.Uint64(s[8:16])^word)
		binary.LittleEndian.PutUint64(d[16:24], binary.LittleEndian.Uint64(s[16:24])^word)
		binary.LittleEndian.PutUint64(d[24:32], binary.LittleEndian.Uint64(s[24:32])^word)
		binary.LittleEndian.PutUint64(d[32:40], binary.LittleEndian.Uint64(s[32:40])^word)
		binary.LittleEndian.PutUint64(d[40:48], binary.LittleEndian.Uint64(s[40:48])^word)
		binary.LittleEndian.PutUint64(d[48:56], binary.LittleEndian.Uint64(s[48:56])^word)
		binary.LittleEndian.PutUint64(d[56:64], binary.LittleEndian.Uint64(s[56:64])^word)
		dst, src = dst[64:], src[64:]
	}
	for len(dst) >= 8 && len(src) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src)^word)
		dst, src = dst[8:], src[8:]
	}
}
