//go:build !amd64

package pattern

func xorInto(dst, src []byte, word uint64)  { xorIntoGo(dst, src, word) }
func isXor(b, src []byte, word uint64) bool { return isXorGo(b, src, word) }
