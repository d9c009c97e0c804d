package pattern

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustNew(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The layout, as a writer in another language made it from its description:
// the first 64 bytes and the sum of the whole.
func TestFill_layoutHasAnOutsideWitness(t *testing.T) {
	for _, c := range []struct {
		run, seed, lba, generation uint64
		size                       uint32
		head, sum                  string
	}{
		{0x1122334455667788, 42, 15_000_000_000, 3<<48 + 7, 512,
			"6e766f70424c4b01df75d9f092904782b1bc12f82db51e2d680ff5ebc36fa9f5aa47cb26af047d4b5a6a3d58367925f060706934a7bb151ee711cd1556f648d1",
			"d1d95b5d6aba6c98efac4eb59d2f6297fe5efac4c0bac0d5bcb8d49ed0530ca2"},
		{1, 2, 3, 4, 4096,
			"6e766f70424c4b016b62160e8646b23fff5113b37030349292ec8f9a988583a1088d647fd4c42c1ce9606826fba326669c0e818e79a513c659a6138915900fae",
			"26b9f88db3daccc183f9d119c92f22a9e2fac530806ba348d5fa1b6429a2a512"},
	} {
		b := make([]byte, c.size)
		mustNew(t, Config{Run: c.run, Seed: c.seed, BlockBytes: c.size}).Fill(b, c.lba, c.generation)
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(b[:64]); got != c.head {
			t.Errorf("LBA %d begins\n%s, want\n%s", c.lba, got, c.head)
		}
		if got := hex.EncodeToString(sum[:]); got != c.sum {
			t.Errorf("LBA %d: sum %s, want %s", c.lba, got, c.sum)
		}
	}
}

// The assembly kernels and their twins agree byte for byte, at any length and
// alignment, and write nothing beyond.
func TestKernels_agreeWithTheirTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 700).Draw(t, "n")
		from := rapid.IntRange(0, 65).Draw(t, "from")
		to := rapid.IntRange(0, 65).Draw(t, "to")
		word := rapid.Uint64().Draw(t, "word")
		src := rapid.SliceOfN(rapid.Byte(), from+n, from+n).Draw(t, "src")[from:]
		a, b := make([]byte, to+n+64), make([]byte, to+n+64)
		xorInto(a[to:to+n], src, word)
		xorIntoGo(b[to:to+n], src, word)
		if !bytes.Equal(a, b) {
			t.Fatalf("%d bytes differ from the twin's", n)
		}
		for i := range n {
			if a[to+i] != src[i]^byte(word>>(i%8*8)) {
				t.Fatalf("byte %d of %d is wrong", i, n)
			}
		}
		if !isXor(a[to:to+n], src, word) || !isXorGo(a[to:to+n], src, word) {
			t.Fatal("what was made is not recognised")
		}
		if n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			a[to+i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			if isXor(a[to:to+n], src, word) || isXorGo(a[to:to+n], src, word) {
				t.Fatalf("a changed bit in byte %d of %d is not seen", i, n)
			}
		}
	})
}

func drawConfig(t *rapid.T) Config {
	c := Config{
		Run: rapid.Uint64().Draw(t, "run"), Seed: uint64(rapid.IntRange(0, 3).Draw(t, "seed")),
		BlockBytes: rapid.SampledFrom([]uint32{512, 1024, 1536, 4096, 65536}).Draw(t, "block bytes"),
	}
	if rapid.Bool().Draw(t, "compresses") {
		c.CompressPermille = uint16(rapid.IntRange(300, 999).Draw(t, "permille"))
	}
	if rapid.Bool().Draw(t, "repeats") {
		c.DedupPermille = uint16(rapid.IntRange(1, 999).Draw(t, "different"))
		c.RegionBlocks = rapid.Uint64Range(1, 1<<50).Draw(t, "region")
		if c.BlockBytes == 1536 {
			c.DedupUnitBytes = 3072
		}
	}
	return c
}

// Anything that is written is recognised, can be made again from its header
// alone, and any changed bit is seen, wherever it is.
func TestSource_fillCheckRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		lba, generation := rapid.Uint64().Draw(t, "lba"), rapid.Uint64Range(0, 1<<60-1).Draw(t, "generation")
		n := rapid.IntRange(1, 3).Draw(t, "blocks")
		b := make([]byte, n*int(c.BlockBytes))
		s.Fill(b, lba, generation)
		if right := s.Check(b, lba, generation); right != n {
			t.Fatalf("%d of %d blocks are right", right, n)
		}
		block := b[(n-1)*int(c.BlockBytes):]
		h, ok := s.Intact(block)
		if !ok || h != s.Header(lba+uint64(n)-1, generation) {
			t.Fatalf("header %+v, intact %v", h, ok)
		}
		again := make([]byte, len(block))
		if err := NewRestorer(1).Restore(again, &h); err != nil || !bytes.Equal(again, block) {
			t.Fatalf("not the same from its header: %v", err)
		}
		i := rapid.IntRange(0, len(b)-1).Draw(t, "i")
		b[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if right := s.Check(b, lba, generation); right != i/int(c.BlockBytes) {
			t.Fatalf("with a bit of byte %d changed, %d blocks are right", i, right)
		}
		if _, ok := NewRestorer(1).Intact(b[i/int(c.BlockBytes)*int(c.BlockBytes):][:c.BlockBytes]); ok {
			t.Fatalf("with a bit of byte %d changed, the block is called intact", i)
		}
	})
}

// Another run, seed, address or generation gives other bytes nearly everywhere.
func TestFill_dependsOnAllOfTheHeader(t *testing.T) {
	fill := func(run, seed, lba, generation uint64) []byte {
		b := make([]byte, 512)
		mustNew(t, Config{Run: run, Seed: seed, BlockBytes: 512}).Fill(b, lba, generation)
		return b
	}
	base := fill(1, 1, 1, 1)
	for name, other := range map[string][]byte{
		"run": fill(2, 1, 1, 1), "seed": fill(1, 2, 1, 1), "LBA": fill(1, 1, 2, 1), "generation": fill(1, 1, 1, 2),
	} {
		if n := differing(base[8:], other[8:]); n < 480 {
			t.Errorf("with another %s only %d of 504 bytes differ", name, n)
		}
	}
}

func TestNew_refusesNonsense(t *testing.T) {
	for name, c := range map[string]Config{
		"no size":                   {},
		"not whole sectors":         {BlockBytes: 520},
		"too large":                 {BlockBytes: 128 << 10},
		"more than it is":           {BlockBytes: 512, CompressPermille: 1001},
		"smaller than its header":   {BlockBytes: 512, CompressPermille: 50},
		"duplicates of nobody":      {BlockBytes: 512, DedupPermille: 250},
		"a unit of half a block":    {BlockBytes: 4096, DedupUnitBytes: 2048, DedupPermille: 500, RegionBlocks: 9},
		"more different than there": {BlockBytes: 512, DedupPermille: 1001, RegionBlocks: 1},
	} {
		if _, err := New(c); !errors.Is(err, ErrPattern) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// deflated is how many bytes a compressor makes of the sample.
func deflated(b []byte) int {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.DefaultCompression)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Len()
}

// Case H6: what is asked for is what a compressor finds, and a count of
// different units, in a sample, within 2 %.
func TestSource_ratiosAreWhatWasAsked(t *testing.T) {
	const sample = 8 << 20
	b := make([]byte, sample)
	for _, c := range []struct {
		block uint32
		ratio uint16
	}{{4096, 1000}, {512, 1000}, {4096, 500}, {4096, 250}, {4096, 143}, {4096, 40}, {512, 500}, {512, 250}, {4096, 800}, {512, 900}, {65536, 333}} {
		s := mustNew(t, Config{Run: 7, Seed: 9, BlockBytes: c.block, CompressPermille: c.ratio})
		s.Fill(b, 1000, 3)
		got := float64(deflated(b[:1<<20])) / (1 << 20) * 1000
		t.Logf("blocks of %d: asked for %d thousandths, deflate finds %.1f", c.block, c.ratio, got)
		if math.Abs(got/float64(c.ratio)-1) > 0.02 {
			t.Errorf("blocks of %d: asked for %d thousandths, deflate finds %.1f", c.block, c.ratio, got)
		}
	}
	for _, different := range []uint16{1000, 750, 250, 125, 10} {
		s := mustNew(t, Config{Run: 7, Seed: 9, BlockBytes: 512, DedupPermille: different, RegionBlocks: sample / 512})
		s.Fill(b, 0, 3)
		units := map[[32]byte]bool{}
		for at := 0; at < sample; at += 4096 {
			units[sha256.Sum256(b[at:at+4096])] = true
		}
		got := float64(len(units)) / (sample / 4096) * 1000
		t.Logf("asked for %d thousandths different, there are %.1f", different, got)
		if d := math.Abs(got - float64(different)); d > 0.02*float64(different) && d > 2 {
			t.Errorf("asked for %d thousandths different, there are %.1f", different, got)
		}
	}
}

// Case H5: by default nothing compresses, also for a compressor that sees many
// blocks at once.
func TestSource_doesNotCompress(t *testing.T) {
	for _, block := range []uint32{512, 4096} {
		b := make([]byte, 1<<20)
		mustNew(t, Config{Run: 3, Seed: 3, BlockBytes: block}).Fill(b, 0, 1)
		if n := deflated(b); n < len(b)*99/100 {
			t.Errorf("blocks of %d: %d bytes deflate to %d", block, len(b), n)
		}
	}
}

func TestPath_allocatesNothing(t *testing.T) {
	for _, c := range []Config{{BlockBytes: 512}, {BlockBytes: 4096, CompressPermille: 400, DedupPermille: 500, RegionBlocks: 1 << 20}} {
		s := mustNew(t, c)
		b := make([]byte, 16<<10)
		lba := uint64(0)
		if n := testing.AllocsPerRun(100, func() {
			s.Fill(b, lba, 5)
			if s.Check(b, lba, 5) == 0 {
				t.Fatal("wrong")
			}
			lba += 32
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func TestRestorer_keepsFewPools(t *testing.T) {
	r := NewRestorer(2)
	b := make([]byte, 512)
	for seed := range uint64(9) {
		h := Header{Seed: seed, LBA: 1, BlockBytes: 512, KeepBytes: 512}
		if err := r.Restore(b, &h); err != nil {
			t.Fatal(err)
		}
		if got, ok := r.Intact(b); !ok || got != h {
			t.Fatalf("seed %d: %+v %v", seed, got, ok)
		}
	}
	if len(r.pools) > 2 {
		t.Errorf("%d pools are kept", len(r.pools))
	}
	if err := r.Restore(b[:511], &Header{BlockBytes: 512, KeepBytes: 512}); !errors.Is(err, ErrPattern) {
		t.Errorf("a block cut short: %v", err)
	}
}

// Whatever bytes come: no panic, and what parses is what would be written.
func FuzzParseHeader(f *testing.F) {
	b := make([]byte, 512)
	s, _ := New(Config{Run: 1, Seed: 2, BlockBytes: 512})
	s.Fill(b, 3, 4)
	f.Add(b)
	f.Add(b[:HeaderBytes])
	f.Add([]byte("nvopBLK\x01"))
	r := NewRestorer(4)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := ParseHeader(b)
		if !ok {
			return
		}
		if got := h.Append(nil); !bytes.Equal(got, b[:HeaderBytes]) {
			t.Fatalf("%+v is written as %x, was %x", h, got, b[:HeaderBytes])
		}
		again := make([]byte, h.BlockBytes)
		if err := r.Restore(again, &h); (err != nil) != h.HeaderOnly {
			t.Fatal(err)
		}
		if h.HeaderOnly {
			if _, intact := r.Intact(b); intact {
				t.Fatal("intact without a body to tell by")
			}
			return
		}
		if _, intact := r.Intact(b); intact != bytes.Equal(again, b) {
			t.Fatalf("intact is %v", intact)
		}
	})
}

func benchmark(b *testing.B, bytes int, f func(i uint64)) {
	b.SetBytes(int64(bytes))
	i := uint64(0)
	for b.Loop() {
		f(i)
		i++
	}
}

func BenchmarkSource(b *testing.B) {
	for _, block := range []uint32{512, 4096} {
		s := mustNew(b, Config{Run: 1, Seed: 2, BlockBytes: block})
		for _, hot := range []bool{true, false} {
			size, name := 64<<20, "cold"
			if hot {
				size, name = 128<<10, "hot"
			}
			buf := make([]byte, size)
			n := uint64(size / int(block))
			s.Fill(buf, 0, 1)
			at := func(i uint64) []byte { return buf[i%n*uint64(block):][:block] }
			suffix := map[uint32]string{512: "512", 4096: "4096"}[block] + "/" + name
			b.Run("Check/"+suffix, func(b *testing.B) {
				benchmark(b, int(block), func(i uint64) {
					if s.Check(at(i), i%n, 1) != 1 {
						b.Fatal("wrong")
					}
				})
			})
			b.Run("Fill/"+suffix, func(b *testing.B) {
				benchmark(b, int(block), func(i uint64) { s.Fill(at(i), i, 2) })
			})
		}
	}
}

func BenchmarkKernels(b *testing.B) {
	src, dst := make([]byte, 4096), make([]byte, 4096)
	b.Run("xor", func(b *testing.B) { benchmark(b, 4096, func(i uint64) { xorInto(dst, src, i) }) })
	b.Run("xorGo", func(b *testing.B) { benchmark(b, 4096, func(i uint64) { xorIntoGo(dst, src, i) }) })
	xorInto(dst, src, 5)
	b.Run("same", func(b *testing.B) { benchmark(b, 4096, func(uint64) { isXor(dst, src, 5) }) })
	b.Run("sameGo", func(b *testing.B) { benchmark(b, 4096, func(uint64) { isXorGo(dst, src, 5) }) })
}

// A stamped block says which it is, and leaves its body alone.
func TestStamp(t *testing.T) {
	s, err := New(Config{Run: 1, Seed: 2, BlockBytes: 512})
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Repeat([]byte{0xA5}, 1024)
	s.Stamp(b, 7, 9)
	for i := range 2 {
		block := b[i*512 : (i+1)*512]
		h, ok := ParseHeader(block)
		if !ok || h.LBA != uint64(7+i) || h.Generation != 9 || !h.HeaderOnly {
			t.Errorf("%+v %v", h, ok)
		}
		if !bytes.Equal(block[HeaderBytes:], bytes.Repeat([]byte{0xA5}, 512-HeaderBytes)) {
			t.Error("the body was written to")
		}
		if _, intact := s.Intact(block); intact || s.Check(block, uint64(7+i), 9) != 0 {
			t.Error("it passes for a block that can be checked")
		}
		if err := s.Restore(make([]byte, 512), &h); err == nil {
			t.Error("made again from nothing")
		}
	}
	if n := testing.AllocsPerRun(10, func() { s.Stamp(b, 1, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
