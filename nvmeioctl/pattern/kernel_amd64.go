package pattern

import "golang.org/x/sys/cpu"

// xorLines writes src xored with a word to dst: n cache lines of 64 bytes.
//
//go:noescape
func xorLines(dst, src *byte, n int, word uint64)

// sameLines says whether n cache lines of 64 bytes at b are src xored with a word.
//
//go:noescape
func sameLines(b, src *byte, n int, word uint64) bool

// xorInto writes src xored with a word to dst, which is as long. The word goes
// on from the first byte of both.
func xorInto(dst, src []byte, word uint64) {
	lines := min(len(dst), len(src)) / 64
	if !cpu.X86.HasAVX2 || lines == 0 {
		xorIntoGo(dst, src, word)
		return
	}
	xorLines(&dst[0], &src[0], lines, word)
	if len(dst) > 64*lines {
		xorIntoGo(dst[64*lines:], src[64*lines:], word)
	}
}

// isXor says whether b is src xored with a word; they are as long.
func isXor(b, src []byte, word uint64) bool {
	lines := min(len(b), len(src)) / 64
	if !cpu.X86.HasAVX2 || lines == 0 {
		return isXorGo(b, src, word)
	}
	return sameLines(&b[0], &src[0], lines, word) && isXorGo(b[64*lines:], src[64*lines:], word)
}
