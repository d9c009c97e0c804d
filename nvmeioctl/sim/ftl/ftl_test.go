package ftl

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"nvop/endurance/predict"
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

// ops are the over-provisioning of the accuracy tests.
func ops() []float64 { return []float64{.07, .11, .145, .20, .28, .37, .50} }

func TestUniformWAF_finiteSuperblockFormula(t *testing.T) {
	geometries := []Geometry{{256, 512}, {300, 1024}}
	if os.Getenv("NVOP_LONG") != "" {
		geometries = append(geometries, Geometry{512, 512}, Geometry{256, 2048}, Geometry{1024, 1024}, Geometry{256, 4096}, Geometry{1024, 4096})
	}
	list := ops()
	if raceDetector {
		geometries, list = geometries[:1], list[4:5]
	}
	worst := 0.0
	for _, g := range geometries {
		for _, op := range list {
			alpha := 1 + op
			pages := uint32(g.EffectivePages()/alpha + 0.5)
			f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000, Seed: 1})
			measure := 4 * max(1, 2048/float64(g.PagesPerSuperblock))
			waf := steadyWAF(f, rand.NewPCG(uint64(g.PagesPerSuperblock), uint64(op*1000)), pages, 3, measure)
			want := wafGreedy(g.EffectivePages()/float64(pages), int(g.PagesPerSuperblock))
			off := waf/want - 1
			worst = max(worst, math.Abs(off))
			if math.Abs(off) > 0.005 {
				t.Errorf("%dx%d, OP %.3g %%: WAF %.4f is %+.2f %% off the formula's %.4f", g.Superblocks, g.PagesPerSuperblock, 100*op, waf, 100*off, want)
			}
			mustCheck(t, f)
		}
	}
	t.Logf("%d geometries: at most %.2f %% off", len(geometries), 100*worst)
}

// The mean field of the same number of superblocks knows all but the finite
// number of pages: with many pages they agree.
func TestUniformWAF_meanField(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	g := Geometry{256, 4096}
	list := []float64{.07, .145, .28, .37, .50}
	if os.Getenv("NVOP_LONG") != "" {
		list = ops()
	}
	worst := 0.0
	for _, op := range list {
		pages := uint32(g.EffectivePages()/(1+op) + 0.5)
		f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000, Seed: 1})
		waf := steadyWAF(f, rand.NewPCG(3, uint64(op*1000)), pages, 3, 4)
		field, err := predict.NewMeanField(predict.FieldConfig{
			Superblocks: int(g.Superblocks), SpareSuperblocks: reserve, Alpha: g.EffectivePages() / float64(pages), Full: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		field.Run(3)
		off := waf/field.Run(12) - 1
		worst = max(worst, math.Abs(off))
		if math.Abs(off) > 0.002 {
			t.Errorf("OP %.3g %%: WAF %.4f is %+.2f %% off the mean field", 100*op, waf, 100*off)
		}
	}
	t.Logf("%d sizes: at most %.2f %% off", len(list), 100*worst)
}

// Writing page by page and in batches is the same.
func TestWriteBatch_isWrite(t *testing.T) {
	cfg := Config{LogicalPages: 1500, Geometry: Geometry{20, 100}, RatedCycles: 100, Seed: 5}
	a, b := mustNew(t, cfg), mustNew(t, cfg)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		list := make([]uint32, rng.IntN(300))
		for i := range list {
			list[i] = rng.Uint32N(rng.Uint32N(1500) + 1)
			a.Write(list[i])
		}
		b.WriteBatch(list)
	}
	mustCheck(t, b)
	if !bytes.Equal(marshal(t, a), marshal(t, b)) {
		t.Error("a batch leaves another state")
	}
}

// Writing a run and writing its pages one by one is the same, whatever they
// replace: nothing, a stream's pages, or pages from everywhere.
func TestWriteRun_isWrite(t *testing.T) {
	for _, cfg := range []Config{
		{LogicalPages: 1500, Geometry: Geometry{20, 100}, RatedCycles: 100, Seed: 5},
		{LogicalPages: 1900, Geometry: Geometry{20, 128}, RatedCycles: 100, Seed: 5}, // page numbers without gaps
		{LogicalPages: 1500, Geometry: Geometry{20, 100}, Seed: 5, Separates: true},
	} {
		a, b := mustNew(t, cfg), mustNew(t, cfg)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 400 {
			lpn := rng.Uint32N(cfg.LogicalPages)
			n := rng.Uint32N(cfg.LogicalPages - lpn + 1)
			switch {
			case i%8 == 0:
				lpn, n = 0, cfg.LogicalPages
			case i%50 == 7:
				a.Deallocate(lpn, n)
				b.Deallocate(lpn, n)
				continue
			case i%3 == 0:
				n = min(n, 1)
			}
			for p := range n {
				a.Write(lpn + p)
			}
			b.WriteRun(lpn, n)
			if i%20 == 0 && !bytes.Equal(marshal(t, a), marshal(t, b)) {
				t.Fatalf("%+v: a run leaves another state, run %d", cfg, i)
			}
		}
		mustCheck(t, b)
		if !bytes.Equal(marshal(t, a), marshal(t, b)) {
			t.Errorf("%+v: a run leaves another state", cfg)
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
