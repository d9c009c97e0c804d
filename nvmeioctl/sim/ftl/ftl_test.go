package ftl

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func mustNew(t testing.TB, cfg Config) *FTL {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustCheck(t testing.TB, f *FTL) {
	t.Helper()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
}

// randomWrites writes n uniformly random pages below pages.
func randomWrites(f *FTL, rng *rand.PCG, pages uint32, n int) {
	for range n {
		f.Write(uint32((rng.Uint64() >> 32) * uint64(pages) >> 32))
	}
}

// steadyWAF fills, overwrites at random until settled and measures.
func steadyWAF(f *FTL, rng *rand.PCG, pages uint32, settle, measure float64) float64 {
	f.WriteRun(0, pages)
	randomWrites(f, rng, pages, int(settle*float64(pages)))
	before := f.Counters()
	randomWrites(f, rng, pages, int(measure*float64(pages)))
	after := f.Counters()
	return float64(after.Programs()-before.Programs()) / float64(after.HostPages-before.HostPages)
}

func TestUniformWAF_finiteSuperblockFormula(t *testing.T) {
	ops := []float64{.07, .11, .145, .20, .28, .37, .50}
	geometries := []Geometry{{256, 512}, {300, 1024}, {256, 2048}}
	if raceDetector {
		geometries = geometries[:1]
	}
	for _, g := range geometries {
		for _, op := range ops {
			t.Run(fmt.Sprintf("%dx%d/op=%g%%", g.Superblocks, g.PagesPerSuperblock, 100*op), func(t *testing.T) {
				alpha := 1 + op
				pages := uint32(g.EffectivePages()/alpha + 0.5)
				f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000, Seed: 1})
				waf := steadyWAF(f, rand.NewPCG(uint64(g.PagesPerSuperblock), uint64(op*1000)), pages, 3, 4)
				want := wafGreedy(g.EffectivePages()/float64(pages), int(g.PagesPerSuperblock))
				t.Logf("WAF %.4f, formula %.4f: %+.2f %%", waf, want, 100*(waf/want-1))
				if math.Abs(waf/want-1) > 0.01 {
					t.Errorf("WAF %.4f is not within 1 %% of the formula's %.4f", waf, want)
				}
				mustCheck(t, f)
			})
		}
	}
}

// Passes in random order are not uniform random writes: a page just written
// stays valid until the next pass, so victims hold less that is valid. Measured
// here, so that nobody expects the formula of such a workload.
func TestPermutedPasses_collectLess(t *testing.T) {
	g := Geometry{256, 512}
	pages := uint32(g.EffectivePages() / 1.2058)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
	rng := rand.New(rand.NewPCG(1, 1))
	var before Counters
	for pass := range 8 {
		if pass == 4 {
			before = f.Counters()
		}
		for _, lpn := range rng.Perm(int(pages)) {
			f.Write(uint32(lpn))
		}
	}
	after := f.Counters()
	waf := float64(after.Programs()-before.Programs()) / float64(after.HostPages-before.HostPages)
	if math.Abs(waf-1.876) > 0.03 {
		t.Errorf("WAF %.3f of permuted passes, measured before: 1.876", waf)
	}
}

func BenchmarkWrite_random(b *testing.B) {
	for _, op := range []float64{.07, .206, .28, .50} {
		b.Run(fmt.Sprintf("op=%g%%", 100*op), func(b *testing.B) {
			g, err := FitGeometry(1 << 20)
			if err != nil {
				b.Fatal(err)
			}
			pages := uint32(g.EffectivePages() / (1 + op))
			f := mustNew(b, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
			rng := rand.NewPCG(1, 2)
			f.WriteRun(0, pages)
			randomWrites(f, rng, pages, int(pages))
			var batch [64]uint32
			i := len(batch)
			for b.Loop() {
				if i == len(batch) {
					for j := range batch {
						batch[j] = uint32((rng.Uint64() >> 32) * uint64(pages) >> 32)
					}
					i = 0
				}
				f.Write(batch[i])
				i++
			}
		})
	}
}
