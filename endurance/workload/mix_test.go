package workload

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func jesd(t testing.TB, region uint64, lba, workers uint32) (*Generator, Preset) {
	t.Helper()
	p := JESD219(lba)
	g, err := New(Config{
		Seed: 7, Pattern: Replacement, RegionBytes: region, BlockBytes: p.LargestBytes(), LBABytes: lba, ReadPercent: p.ReadPercent,
		Workers: workers, ReadSizes: p.Sizes, WriteSizes: p.Sizes, AlignBytes: p.AlignBytes, Zones: p.Zones,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// The published figures: 7818 bytes on average, 52.4 % of the bytes in
// operations of 16 KiB and more, 40 % reads, and both exact over a period.
func TestJESD219_sizes(t *testing.T) {
	const region = 7_680_000_000_000 / 4096 * 4096
	g, p := jesd(t, region, 512, 1)
	if p.Name != "jesd219" || p.Deviation != "" {
		t.Errorf("%+v", p)
	}
	for _, first := range []uint64{0, 70_000, 1 << 40 / mixPeriod * mixPeriod} {
		counts := map[bool]map[int32]int{false: {}, true: {}}
		bytes, large := 0.0, 0.0
		for i := range uint64(mixPeriod) {
			op := g.At(0, first+i)
			counts[op.Write][op.LengthBytes]++
			bytes += float64(op.LengthBytes)
			if op.LengthBytes >= 16384 {
				large += float64(op.LengthBytes)
			}
		}
		for _, s := range p.Sizes {
			if r, w := counts[false][int32(s.Bytes)], counts[true][int32(s.Bytes)]; r != int(s.Permyriad)*40/100 || w != int(s.Permyriad)*60/100 {
				t.Errorf("from %d: %d bytes: %d reads and %d writes of %d permyriad", first, s.Bytes, r, w, s.Permyriad)
			}
		}
		if mean := bytes / mixPeriod; math.Abs(mean-7818) > 1 {
			t.Errorf("mean size %.1f", mean)
		}
		if share := large / bytes; math.Abs(share-0.524) > 0.001 {
			t.Errorf("%.4f of the bytes are large", share)
		}
	}
}

func TestJESD219_4Kn(t *testing.T) {
	_, p := jesd(t, 1<<40, 4096, 1)
	want := []Size{{4096, 7700}, {8192, 1000}, {16384, 700}, {32768, 300}, {65536, 300}}
	if len(p.Sizes) != len(want) || p.Name != "jesd219-4kn" || !strings.Contains(p.Deviation, "4Kn") {
		t.Fatalf("%+v", p)
	}
	for i := range want {
		if p.Sizes[i] != want[i] {
			t.Errorf("size %d: %v, want %v", i, p.Sizes[i], want[i])
		}
	}
}

// 5 % of the space gets 50 % of the operations, the next 15 % 30 %, the rest 20 %,
// evenly inside, also with several workers and beyond 2^32 blocks.
func TestJESD219_skew(t *testing.T) {
	for _, c := range []struct {
		region  uint64
		workers uint32
	}{{1 << 30, 1}, {1 << 30, 3}, {61_440_000_000_000 / 4096 * 4096, 8}} {
		g, _ := jesd(t, c.region, 4096, c.workers)
		const n = 200_000
		var zone [3]float64
		var half [6]float64
		edges := [4]float64{0, 0.05, 0.2, 1}
		for i := range uint64(n) {
			at := float64(g.At(0, i).OffsetBytes) / float64(c.region)
			for z := range zone {
				if at >= edges[z] && at < edges[z+1] {
					zone[z]++
					if at < (edges[z]+edges[z+1])/2 {
						half[z]++
					}
				}
			}
		}
		for z, want := range []float64{0.5, 0.3, 0.2} {
			if got := zone[z] / n; math.Abs(got-want) > 0.01 {
				t.Errorf("%+v: zone %d gets %.4f of the operations, want %.2f", c, z, got, want)
			}
			if got := half[z] / zone[z]; math.Abs(got-0.5) > 0.02 {
				t.Errorf("%+v: the first half of zone %d gets %.4f of it", c, z, got)
			}
		}
	}
}

// Cases A6 and A7: whatever the mix, operations are whole aligned blocks within
// the region, operations of different workers never overlap, and those that
// overlap share a cell.
func TestMix_whatOverlapsSharesACell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lba := rapid.SampledFrom([]uint32{512, 4096}).Draw(t, "lba")
		c := Config{
			Seed: rapid.Uint64().Draw(t, "seed"), Pattern: Replacement, LBABytes: lba, Workers: rapid.Uint32Range(1, 5).Draw(t, "workers"),
			ReadPercent: uint8(rapid.IntRange(0, 100).Draw(t, "reads")), AlignBytes: lba * rapid.Uint32Range(1, 9).Draw(t, "align"),
		}
		left := uint32(mixPeriod)
		for i := range rapid.IntRange(1, 4).Draw(t, "sizes") {
			share := rapid.Uint32Range(1, max(left/2, 1)).Draw(t, "share")
			c.ReadSizes = append(c.ReadSizes, Size{Bytes: lba * uint32(1+i*rapid.IntRange(1, 40).Draw(t, "size")), Permyriad: share})
			left -= share
		}
		c.ReadSizes[0].Permyriad += left
		for _, s := range c.ReadSizes {
			c.BlockBytes = max(c.BlockBytes, s.Bytes)
		}
		c.WriteSizes = c.ReadSizes
		if rapid.Bool().Draw(t, "skewed") {
			c.Zones = JESD219(lba).Zones
		} else if rapid.Bool().Draw(t, "zipf") {
			c.ZipfMilli = rapid.Uint32Range(1, 3000).Draw(t, "exponent")
		}
		span := uint64(c.BlockBytes-1)/uint64(c.AlignBytes) + 1
		c.RegionBytes = uint64(lba) * rapid.Uint64Range(2*span*uint64(c.AlignBytes/lba)*uint64(c.Workers), 5000+3*span*uint64(c.AlignBytes/lba)*uint64(c.Workers)).Draw(t, "region")
		g, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		type piece struct {
			worker uint64
			op     Op
		}
		owner := map[uint64]piece{} // of a logical block
		for i := range uint64(300) {
			p := piece{i % uint64(c.Workers), g.Redraw(i, uint32(i%3))}
			at, n := uint64(p.op.OffsetBytes), uint64(p.op.LengthBytes)
			if at%uint64(c.AlignBytes) != 0 || n == 0 || n%uint64(lba) != 0 || at+n > c.RegionBytes {
				t.Fatalf("%+v of a region of %d, aligned to %d", p.op, c.RegionBytes, c.AlignBytes)
			}
			for b := at / uint64(lba); b < (at+n)/uint64(lba); b++ {
				o, ok := owner[b]
				switch {
				case ok && o.worker != p.worker:
					t.Fatalf("block %d belongs to workers %d and %d", b, o.worker, p.worker)
				case ok && (o.op.Block >= p.op.Block+uint64(p.op.Blocks) || p.op.Block >= o.op.Block+uint64(o.op.Blocks)):
					t.Fatalf("%+v and %+v overlap and share no cell", o.op, p.op)
				}
				owner[b] = p
			}
		}
	})
}

// The whole region is in reach, its end as well as its beginning.
func TestMix_reachesEverything(t *testing.T) {
	for _, workers := range []uint32{1, 2, 7} {
		g, err := New(Config{
			Seed: 1, Pattern: Replacement, RegionBytes: 4096 * 1001, BlockBytes: 16384, LBABytes: 4096, Workers: workers,
			WriteSizes: []Size{{4096, 5000}, {16384, 5000}}, ReadSizes: []Size{{4096, 5000}, {16384, 5000}},
		})
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, 1001)
		for i := range uint64(20_000) {
			op := g.At(0, i)
			for b := op.OffsetBytes; b < op.OffsetBytes+int64(op.LengthBytes); b += 4096 {
				seen[b/4096] = true
			}
		}
		for b, ok := range seen {
			if !ok {
				t.Errorf("%d workers: block %d was never touched", workers, b)
			}
		}
		if g.Reach() != 4096*1001 {
			t.Errorf("reach %d", g.Reach())
		}
	}
}

// Popularity follows the law, and the popular blocks lie scattered.
func TestZipf_followsTheLaw(t *testing.T) {
	for _, exponent := range []float64{0.5, 0.99, 1, 1.2, 2} {
		const n, draws = 1000, 200_000
		z := newZipf(n, exponent)
		counts := make([]float64, n)
		for i := range uint64(draws) {
			counts[z.draw(42, i)]++
		}
		sum := 0.0
		for k := 1; k <= n; k++ {
			sum += math.Pow(float64(k), -exponent)
		}
		for _, k := range []int{1, 2, 3, 10, 100} {
			want := math.Pow(float64(k), -exponent) / sum * draws
			if got := counts[k-1]; math.Abs(got-want) > 5*math.Sqrt(want)+1 {
				t.Errorf("exponent %v: rank %d was drawn %.0f times, the law says %.0f", exponent, k, got, want)
			}
		}
	}
	// 61.44 TB in blocks of 4 KiB is beyond 32 bits.
	z := newZipf(15_000_000_000, 0.8)
	high := 0
	for i := range uint64(10_000) {
		if k := z.draw(1, i); k >= 15_000_000_000 {
			t.Fatalf("rank %d", k)
		} else if k > 1<<32 {
			high++
		}
	}
	// 1 - (2^32/15e9)^0.2 of them lie beyond.
	if want := 10_000 * (1 - math.Pow(float64(1<<32)/15e9, 0.2)); math.Abs(float64(high)-want) > 5*math.Sqrt(want) {
		t.Errorf("%d ranks beyond 2^32, the law says %.0f", high, want)
	}
}

// What a generator draws has the exponent that was asked for, of each worker among
// its own blocks, and which blocks are popular does not follow their addresses.
func TestGenerator_zipfHasItsExponent(t *testing.T) {
	for _, exponent := range []float64{0.8, 1.2} {
		for _, workers := range []uint32{1, 3} {
			const blocks, draws = 3000, 300_000
			g, err := New(Config{Seed: 9, Pattern: Replacement, RegionBytes: blocks * 4096, BlockBytes: 4096, LBABytes: 512,
				Workers: workers, ZipfMilli: uint32(exponent * 1000)})
			if err != nil {
				t.Fatal(err)
			}
			counts := make([]map[int64]float64, workers)
			for w := range counts {
				counts[w] = map[int64]float64{}
			}
			for i := range uint64(draws) {
				counts[i%uint64(workers)][g.At(0, i).OffsetBytes]++
			}
			n, each := blocks/int(workers), draws/float64(workers)
			sum := 0.0
			for k := 1; k <= n; k++ {
				sum += math.Pow(float64(k), -exponent)
			}
			for w := range counts {
				list := slices.Sorted(maps.Values(counts[w]))
				slices.Reverse(list)
				for _, k := range []int{1, 2, 5} {
					want := math.Pow(float64(k), -exponent) / sum * each
					if got := list[k-1]; math.Abs(got-want) > 6*math.Sqrt(want) {
						t.Errorf("exponent %v, worker %d of %d: the block of rank %d was drawn %.0f times, the law says %.0f", exponent, w, workers, k, got, want)
					}
				}
				low, all := 0.0, 0.0
				for offset, c := range counts[w] {
					if all += c; offset < blocks*4096/2 {
						low += c
					}
				}
				if share := low / all; share < 0.2 || share > 0.8 {
					t.Errorf("exponent %v, worker %d of %d: %.2f of the draws in the lower half", exponent, w, workers, share)
				}
			}
		}
	}
}

// A phase that ends by bytes has exactly as many operations as that takes.
func TestMix_positionsForBytes(t *testing.T) {
	g, _ := jesd(t, 1<<40, 512, 2)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Uint64Range(1, 400<<20).Draw(t, "bytes")
		read, write := rapid.Bool().Draw(t, "read"), true
		n, ok := g.PositionsFor(want, read, write)
		if !ok {
			t.Fatal("not told")
		}
		sum, last := uint64(0), uint64(0)
		for i := range n {
			op := g.At(0, i)
			if op.Write || read {
				last = uint64(op.LengthBytes)
				sum += last
			} else {
				last = 0
			}
		}
		if sum < want || sum-last >= want {
			t.Fatalf("%d positions transfer %d bytes, the last of them %d; asked for %d", n, sum, last, want)
		}
	})
	if _, ok := g.PositionsFor(math.MaxUint64, true, true); !ok {
		t.Error("18 EB do not fit, but positions do")
	}
	if n, ok := g.PositionsFor(0, true, true); !ok || n != 0 {
		t.Errorf("nothing takes %d positions, %v", n, ok)
	}
}

func TestMix_refuses(t *testing.T) {
	good := Config{Pattern: Replacement, RegionBytes: 1 << 30, BlockBytes: 8192, LBABytes: 4096, ReadSizes: []Size{{4096, 5000}, {8192, 5000}}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"an order with passes": func(c *Config) { c.Pattern = Random },
		"shares":               func(c *Config) { c.ReadSizes = []Size{{4096, 5000}} },
		"part of a block":      func(c *Config) { c.ReadSizes = []Size{{2048, 10000}} },
		"beyond the largest":   func(c *Config) { c.ReadSizes = []Size{{16384, 10000}} },
		"alignment":            func(c *Config) { c.AlignBytes = 512 },
		"room":                 func(c *Config) { c.RegionBytes = 12288 },
		"zones":                func(c *Config) { c.Zones = []Zone{{500, 1000}} },
		"zones and Zipf":       func(c *Config) { c.Zones = JESD219(4096).Zones; c.ZipfMilli = 1000 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func BenchmarkMix(b *testing.B) {
	g, _ := jesd(b, 61_440_000_000_000/4096*4096, 4096, 1)
	b.Run("jesd219", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_ = g.Redraw(uint64(i), 0)
		}
	})
	z, err := New(Config{Pattern: Replacement, RegionBytes: 1 << 45, BlockBytes: 4096, LBABytes: 4096, ZipfMilli: 1200})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("zipf", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_ = z.Redraw(uint64(i), 0)
		}
	})
}
