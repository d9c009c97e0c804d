package workload

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Case D3: every n up to a few hundred, both directions, by exhaustion: an order
// visits each block once before it comes round.
func TestPermutation_isABijection(t *testing.T) {
	for n := uint64(1); n < 300; n++ {
		for key := range uint64(3) {
			p := NewPermutation(n, key)
			seen := make([]bool, n)
			for i := range n {
				b := p.At(i)
				if b >= n || seen[b] {
					t.Fatalf("n=%d key=%d: position %d gives %d, out of range or twice", n, key, i, b)
				}
				seen[b] = true
				if back := p.Position(b); back != i {
					t.Fatalf("n=%d key=%d: position %d gives block %d, whose position is %d", n, key, i, b, back)
				}
			}
		}
	}
}

// Beyond 2^32 blocks nothing can be exhausted: the inverse has to bring every
// position back, from both ends and the middle, and stay in range.
func TestPermutation_inverseForAnyN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, math.MaxInt64).Draw(t, "n")
		if rapid.Bool().Draw(t, "power of two and one") {
			n = 1<<rapid.IntRange(0, 62).Draw(t, "bits") + 1
		}
		p := NewPermutation(n, rapid.Uint64().Draw(t, "key"))
		i := rapid.Uint64Range(0, n-1).Draw(t, "i")
		b := p.At(i)
		if b >= n {
			t.Fatalf("At(%d) = %d of %d", i, b, n)
		}
		if back := p.Position(b); back != i {
			t.Fatalf("Position(At(%d)) = %d", i, back)
		}
	})
}

// Cases D1, D2: with 2^34 and more blocks every part of the drive is reached;
// a 31 or 32 bit generator leaves most of it untouched.
func TestGenerator_reachesAllOfALargeDrive(t *testing.T) {
	for _, pattern := range []Pattern{Random, Replacement} {
		for _, blocks := range []uint64{15e9, 1 << 40} {
			g, err := New(Config{Seed: 7, Pattern: pattern, RegionBytes: blocks * 4096, BlockBytes: 4096, LBABytes: 4096, Workers: 3})
			if err != nil {
				t.Fatal(err)
			}
			const parts, draws = 1024, 64 * 1024
			var hits [parts]int
			odd := 0
			for i := range uint64(draws) {
				b := g.At(0, i*(blocks/draws/2)).Block
				hits[b/(blocks/parts+1)]++
				odd += int(b & 1)
			}
			// Mean 64, standard deviation 8.
			for part, n := range hits {
				if n < 64-6*8 || n > 64+6*8 {
					t.Errorf("pattern %d, %d blocks: part %d of %d hit %d times of 64 expected", pattern, blocks, part, parts, n)
				}
			}
			if d := odd - draws/2; d*d > 36*draws/4 {
				t.Errorf("pattern %d: %d of %d blocks are odd", pattern, odd, draws)
			}
		}
	}
}

// Successive blocks of a permutation must look independent: the share of rises,
// the serial correlation and the frequency of small steps are those of chance.
func TestPermutation_looksRandom(t *testing.T) {
	const n = 400_009
	for key := range uint64(16) {
		p := NewPermutation(n, key)
		var sum, rises, near float64
		last := p.At(n - 1)
		for i := range uint64(n) {
			b := p.At(i)
			sum += (float64(b)/n - 0.5) * (float64(last)/n - 0.5)
			if b > last {
				rises++
			}
			if d := int64(b) - int64(last); d < n/100 && d > -n/100 {
				near++
			}
			last = b
		}
		if corr := sum / n * 12; math.Abs(corr) > 0.005 {
			t.Errorf("key %d: serial correlation %.4f", key, corr)
		}
		if math.Abs(rises/n-0.5) > 0.005 {
			t.Errorf("key %d: %.4f of the steps rise", key, rises/n)
		}
		if math.Abs(near/n-0.0199) > 0.001 {
			t.Errorf("key %d: %.4f of the steps are under 1 %%, 0.0199 by chance", key, near/n)
		}
	}
}

// Any region, block size and number of workers: the workers together cover every
// byte of a pass exactly once, including a tail, and so does any later pass.
func TestGenerator_coversEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lba := rapid.SampledFrom([]uint32{512, 4096}).Draw(t, "lba")
		bs := lba * rapid.Uint32Range(1, 32).Draw(t, "lbas")
		region := uint64(lba) * rapid.Uint64Range(1, 3000).Draw(t, "region")
		blocks := (region-1)/uint64(bs) + 1
		workers := rapid.Uint32Range(1, uint32(min(blocks, 9))).Draw(t, "workers")
		c := Config{
			Seed: rapid.Uint64().Draw(t, "seed"), Pattern: rapid.SampledFrom([]Pattern{Sequential, Random}).Draw(t, "pattern"),
			RegionBytes: region, BlockBytes: bs, LBABytes: lba, Workers: workers,
		}
		pass := rapid.Uint64Range(0, 5).Draw(t, "pass")
		covered := make([]bool, region/uint64(lba))
		for w := range workers {
			g, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			for i := uint64(w); i < g.Blocks(); i += uint64(workers) {
				op := g.At(pass, i)
				if index, ok := g.Locate(pass, op.Block); !ok || index != i {
					t.Fatalf("block %d is located at %d, is at %d", op.Block, index, i)
				}
				for b := op.OffsetBytes; b < op.OffsetBytes+int64(op.LengthBytes); b += int64(lba) {
					if covered[b/int64(lba)] {
						t.Fatalf("LBA %d is visited twice", b/int64(lba))
					}
					covered[b/int64(lba)] = true
				}
			}
		}
		for lba, ok := range covered {
			if !ok {
				t.Fatalf("LBA %d of %d is never visited", lba, len(covered))
			}
		}
	})
}

// The same configuration gives the same operations from any position in any
// order; another seed or pass gives another order.
func TestGenerator_isAFunctionOfThePosition(t *testing.T) {
	c := Config{Seed: 5, Pattern: Random, RegionBytes: 4096 * 1000, BlockBytes: 4096, LBABytes: 512, ReadPercent: 30}
	a, _ := New(c)
	b, _ := New(c)
	for i := uint64(0); i < 1000; i++ {
		_ = b.At(i%3, 999-i) // b jumps about first
	}
	same := 0
	for i := uint64(0); i < 1000; i++ {
		x := a.At(1, i)
		if y := b.At(1, i); x != y {
			t.Fatalf("position %d: %+v and %+v", i, x, y)
		}
		if a.At(2, i).Block == x.Block {
			same++
		}
	}
	c.Seed = 6
	other, _ := New(c)
	for i := uint64(0); i < 1000; i++ {
		if other.At(1, i).Block == a.At(1, i).Block {
			same++
		}
	}
	if same > 20 {
		t.Errorf("%d of 2000 operations agree between passes and seeds", same)
	}
}

func TestGenerator_mixIsExact(t *testing.T) {
	for percent := range uint8(101) {
		g, err := New(Config{Seed: uint64(percent), Pattern: Sequential, RegionBytes: 4096 * 77, BlockBytes: 4096, LBABytes: 4096, ReadPercent: percent})
		if err != nil {
			t.Fatal(err)
		}
		reads := [10]int{}
		for p := range uint64(1000) {
			if !g.At(p/77, p%77).Write {
				reads[p/100]++
			}
		}
		for hundred, n := range reads {
			if n != int(percent) {
				t.Errorf("%d %%: the %d. hundred has %d reads", percent, hundred, n)
			}
		}
	}
}

// Replacement: uniform over all blocks with any number of workers (chi-square),
// each worker within its own blocks, redraws uniform as well.
func TestGenerator_replacementIsUniform(t *testing.T) {
	const blocks, draws = 1000, 200_000
	for _, workers := range []uint32{1, 3, 7} {
		g, err := New(Config{Seed: 11, Pattern: Replacement, RegionBytes: blocks * 4096, BlockBytes: 4096, LBABytes: 4096, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		for attempt := range uint32(2) {
			var hits [blocks]float64
			for p := range uint64(draws) {
				op := g.Redraw(p, attempt)
				if op.Block%uint64(workers) != p%uint64(workers) {
					t.Fatalf("position %d of %d workers draws block %d", p, workers, op.Block)
				}
				hits[op.Block]++
			}
			chi := 0.0
			for _, n := range hits {
				chi += (n - draws/blocks) * (n - draws/blocks) / (draws / blocks)
			}
			// 999 degrees of freedom: mean 999, standard deviation 45. Three or
			// seven workers do not share 1000 blocks evenly, by up to 0.6 %.
			if chi > 999+6*45 || chi < 999-6*45 {
				t.Errorf("%d workers, draw %d: chi-square %.0f for 999 degrees of freedom", workers, attempt, chi)
			}
		}
	}
}

func TestNew_refusesNonsense(t *testing.T) {
	good := Config{Pattern: Random, RegionBytes: 1 << 20, BlockBytes: 4096, LBABytes: 512}
	for name, breakIt := range map[string]func(*Config){
		"no pattern":             func(c *Config) { c.Pattern = 0 },
		"no logical block":       func(c *Config) { c.LBABytes = 0 },
		"half a logical block":   func(c *Config) { c.BlockBytes = 4096 + 256 },
		"no block":               func(c *Config) { c.BlockBytes = 0 },
		"no region":              func(c *Config) { c.RegionBytes = 0 },
		"ragged region":          func(c *Config) { c.RegionBytes = 1<<20 + 1 },
		"more than all reads":    func(c *Config) { c.ReadPercent = 101 },
		"more workers than work": func(c *Config) { c.Workers = 257 },
	} {
		c := good
		breakIt(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestPath_allocatesNothing(t *testing.T) {
	g, _ := New(Config{Pattern: Random, RegionBytes: 1 << 30, BlockBytes: 4096, LBABytes: 4096, ReadPercent: 30})
	i := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		_ = g.At(i/1000, i)
		i++
	}); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}

func BenchmarkAt(b *testing.B) {
	for name, c := range map[string]Config{
		"sequential":  {Pattern: Sequential},
		"random":      {Pattern: Random},
		"replacement": {Pattern: Replacement},
		"mixed":       {Pattern: Random, ReadPercent: 70},
	} {
		b.Run(name, func(b *testing.B) {
			c.RegionBytes, c.BlockBytes, c.LBABytes = 7_681_501_126_656, 4096, 512
			g, err := New(c)
			if err != nil {
				b.Fatal(err)
			}
			i := uint64(0)
			for b.Loop() {
				_ = g.At(0, i)
				i++
			}
		})
	}
}

func ExampleGenerator() {
	// A drive of seven blocks and a short one, written in random order.
	g, err := New(Config{Seed: 1, Pattern: Random, RegionBytes: 7*4096 + 512, BlockBytes: 4096, LBABytes: 512})
	if err != nil {
		fmt.Println(err)
		return
	}
	visited := 0
	for i := range g.Blocks() {
		op := g.At(0, i)
		visited += int(op.LengthBytes)
	}
	fmt.Println(g.Blocks(), "operations,", visited, "bytes")
	// Output: 8 operations, 29184 bytes
}
