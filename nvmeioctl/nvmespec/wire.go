package nvmespec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors of decoding, to test with errors.Is.
var (
	// ErrShort: fewer bytes than the structure has.
	ErrShort = errors.New("too few bytes")
	// ErrInvalidData: the bytes are not what the structure may hold.
	ErrInvalidData = errors.New("invalid data")
)

// page is a bounded view of device bytes. Reads beyond its end give zero, so no
// offset from a device can make a decoder panic; the length is checked once, by
// view.
type page []byte

// view checks that b holds a structure of size bytes.
func view(b []byte, size int, what string) (page, error) {
	if len(b) < size {
		return nil, fmt.Errorf("%s: %w: have %d, need %d", what, ErrShort, len(b), size)
	}
	return page(b[:size:size]), nil
}

// grow appends size zero bytes to b and gives a view of them to fill.
func grow(b []byte, size int) ([]byte, page) {
	n := len(b)
	b = append(b, make([]byte, size)...)
	return b, page(b[n : n+size : n+size])
}

// has says that n bytes lie at off.
func (p page) has(off, n int) bool { return off >= 0 && n >= 0 && off <= len(p)-n }

// bytes is the n bytes at off, or nothing when they are not there.
func (p page) bytes(off, n int) []byte {
	if !p.has(off, n) {
		return nil
	}
	return p[off : off+n : off+n]
}

// uint reads n bytes (at most 8) as a little-endian number.
func (p page) uint(off, n int) uint64 {
	var v uint64
	for i, c := range p.bytes(off, n) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func (p page) u8(off int) uint8   { return uint8(p.uint(off, 1)) }
func (p page) u16(off int) uint16 { return uint16(p.uint(off, 2)) }
func (p page) u32(off int) uint32 { return uint32(p.uint(off, 4)) }
func (p page) u64(off int) uint64 { return p.uint(off, 8) }
func (p page) u128(off int) Uint128 {
	return Uint128{Lo: p.u64(off), Hi: p.u64(off + 8)}
}

// put writes the low n bytes (at most 8) of v.
func (p page) put(off, n int, v uint64) {
	for i := range p.bytes(off, n) {
		p[off+i] = byte(v >> (8 * i))
	}
}

func (p page) put8(off int, v uint8)   { p.put(off, 1, uint64(v)) }
func (p page) put16(off int, v uint16) { p.put(off, 2, uint64(v)) }
func (p page) put32(off int, v uint32) { p.put(off, 4, uint64(v)) }
func (p page) put64(off int, v uint64) { p.put(off, 8, v) }
func (p page) put128(off int, v Uint128) {
	p.put64(off, v.Lo)
	p.put64(off+8, v.Hi)
}

// text reads a fixed-width ASCII field. Drives have been seen with newlines and
// control characters in it, so what is not 20h..7Eh becomes '?'; padding by
// spaces or NULs is cut on both sides.
func (p page) text(off, n int) string { return cleanText(p.bytes(off, n)) }

// ctext reads a NUL-terminated field of at most n bytes in the same way.
func (p page) ctext(off, n int) string {
	b := p.bytes(off, n)
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return cleanText(b)
}

func cleanText(b []byte) string {
	s := strings.Trim(string(b), " \x00")
	out := []byte(s)
	for i, c := range out {
		if c < 0x20 || c > 0x7E {
			out[i] = '?'
		}
	}
	return string(out)
}

// putText writes s into a field of n bytes, cut or padded with pad.
func (p page) putText(off, n int, s string, pad byte) {
	f := p.bytes(off, n)
	k := copy(f, s)
	for i := k; i < len(f); i++ {
		f[i] = pad
	}
}

// allZero says that no byte is set.
func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
