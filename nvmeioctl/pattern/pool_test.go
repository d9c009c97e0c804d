package pattern

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// The index finds each place of the pool, whatever word it was xored with, and what
// a search of all of it finds, and nothing in what is not there.
func TestPool_findsWhatASearchFinds(t *testing.T) {
	p := newPool(42)
	search := func(at int, found [4]uint64) (int, uint64, bool) {
		for o := 0; o < poolBytes; o += 64 {
			k := found[0] ^ binary.LittleEndian.Uint64(p.bytes[o+at:])
			same := true
			for i := 1; i < 4; i++ {
				same = same && found[i]^binary.LittleEndian.Uint64(p.bytes[o+at+8*i:]) == k
			}
			if same {
				return o, k, true
			}
		}
		return 0, 0, false
	}
	rapid.Check(t, func(t *rapid.T) {
		at := 8 * rapid.IntRange(0, MaxBlockBytes/8-4).Draw(t, "at")
		offset := 64 * rapid.IntRange(0, poolBytes/64-1).Draw(t, "offset")
		word := rapid.Uint64().Draw(t, "word")
		// A shift takes it off the lines where stretches begin, or out of the pool.
		shift := rapid.SampledFrom([]int{0, 0, 8, 32}).Draw(t, "shift")
		var found [4]uint64
		for i := range found {
			if from := offset + at + shift + 8*i; from+8 <= len(p.bytes) {
				found[i] = binary.LittleEndian.Uint64(p.bytes[from:]) ^ word
			}
		}
		if rapid.Bool().Draw(t, "changed") {
			found[rapid.IntRange(0, 3).Draw(t, "i")] ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
		}
		o, k, ok := p.find(at, found)
		wo, wk, wok := search(at, found)
		if o != wo || k != wk || ok != wok {
			t.Fatalf("found %d %x %v, a search finds %d %x %v", o, k, ok, wo, wk, wok)
		}
	})
	if _, _, ok := p.find(0, [4]uint64{}); ok {
		t.Error("zeros are found")
	}
}
