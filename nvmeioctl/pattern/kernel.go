package pattern

import "encoding/binary"

// xorIntoGo writes src xored with a word to dst, which is as long.
func xorIntoGo(dst, src []byte, word uint64) {
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
	for i := range min(len(dst), len(src)) {
		dst[i] = src[i] ^ byte(word>>(8*i))
	}
}

// isXorGo says whether b is src xored with a word.
func isXorGo(b, src []byte, word uint64) bool {
	for len(b) >= 64 && len(src) >= 64 {
		x, s := (*[64]byte)(b), (*[64]byte)(src)
		diff := binary.LittleEndian.Uint64(x[0:8]) ^ binary.LittleEndian.Uint64(s[0:8]) ^ word
		diff |= binary.LittleEndian.Uint64(x[8:16]) ^ binary.LittleEndian.Uint64(s[8:16]) ^ word
		diff |= binary.LittleEndian.Uint64(x[16:24]) ^ binary.LittleEndian.Uint64(s[16:24]) ^ word
		diff |= binary.LittleEndian.Uint64(x[24:32]) ^ binary.LittleEndian.Uint64(s[24:32]) ^ word
		diff |= binary.LittleEndian.Uint64(x[32:40]) ^ binary.LittleEndian.Uint64(s[32:40]) ^ word
		diff |= binary.LittleEndian.Uint64(x[40:48]) ^ binary.LittleEndian.Uint64(s[40:48]) ^ word
		diff |= binary.LittleEndian.Uint64(x[48:56]) ^ binary.LittleEndian.Uint64(s[48:56]) ^ word
		diff |= binary.LittleEndian.Uint64(x[56:64]) ^ binary.LittleEndian.Uint64(s[56:64]) ^ word
		if diff != 0 {
			return false
		}
		b, src = b[64:], src[64:]
	}
	for len(b) >= 8 && len(src) >= 8 {
		if binary.LittleEndian.Uint64(b) != binary.LittleEndian.Uint64(src)^word {
			return false
		}
		b, src = b[8:], src[8:]
	}
	for i := range min(len(b), len(src)) {
		if b[i] != src[i]^byte(word>>(8*i)) {
			return false
		}
	}
	return true
}
