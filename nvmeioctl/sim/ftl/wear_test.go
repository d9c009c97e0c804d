package ftl

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSequential_atFloor(t *testing.T) {
	for _, op := range []float64{.07, .20, .50} {
		g := Geometry{256, 512}
		pages := uint32(g.EffectivePages() / (1 + op))
		f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
		for range 5 {
			f.WriteRun(0, pages)
		}
		c := f.Counters()
		if c.CollectedPages != 0 || c.LevelledPages != 0 || f.MovesPerHostPage() != 0 {
			t.Errorf("OP %g: sequential overwrite moved %+v", op, c)
		}
		mustCheck(t, f)
	}
}

// A drive that was filled at random and then overwritten in order comes down
// to the floor again, and all that was moved is accounted for.
func TestSequential_afterRandom(t *testing.T) {
	g := Geometry{256, 512}
	pages := uint32(g.EffectivePages() / 1.2)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
	f.WriteRun(0, pages)
	randomWrites(f, rand.NewPCG(1, 1), pages, 3*int(pages))
	if rate := f.MovesPerHostPage(); math.Abs(rate/2.18-1) > 0.1 {
		t.Errorf("%.3f moves a page, expected about 2.18", rate)
	}
	f.WriteRun(0, pages)
	f.WriteRun(0, pages)
	before := f.Counters()
	f.WriteRun(0, pages)
	after := f.Counters()
	if n := after.Programs() - before.Programs(); n != uint64(pages) {
		t.Errorf("%d pages programmed for %d", n, pages)
	}
	if total := after.CollectedPages + after.LevelledPages; f.MovedPages() > total || f.MovedPages() < total-2 {
		t.Errorf("%d pages moved, %d paid for", total, f.MovedPages())
	}
	if f.MovesPerHostPage() > 1e-6 {
		t.Errorf("still %g moves a page", f.MovesPerHostPage())
	}
}

// What is owed is never lost: over any long run the smoothed count follows the
// counters within the span it is spread over.
func TestMovedPages_followsCounters(t *testing.T) {
	g := Geometry{64, 256}
	pages := uint32(g.EffectivePages() / 1.3)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g})
	rng := rand.NewPCG(1, 1)
	last := uint64(0)
	for range 200 {
		randomWrites(f, rng, pages, 777)
		total, moved := f.Counters().CollectedPages, f.MovedPages()
		// At the rate of about 1.4 moves a page, 4 superblocks owe 1434 pages;
		// the whole numbers of victims add a superblock or two.
		if moved < last || moved > total || total-moved > 3*4*256 {
			t.Fatalf("moved %d after %d, counters say %d", moved, last, total)
		}
		last = moved
	}
}

func TestWear_evenUnderUniformWrites(t *testing.T) {
	g := Geometry{256, 512}
	pages := uint32(g.EffectivePages() / 1.2)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 1000})
	randomWrites(f, rand.NewPCG(1, 1), pages, 30*int(pages))
	w := f.Wear()
	c := f.Counters()
	if w.MinErases == 0 || float64(w.MaxErases) > w.MeanErases*1.15 {
		t.Errorf("uniform writes wear unevenly: %+v", w)
	}
	// Each programmed page was erased, but for what is on the flash now.
	want := float64(c.Programs())/float64(g.TotalPages()) - 1
	if math.Abs(w.MeanErases-want) > 1.1 {
		t.Errorf("mean of %.2f erases, %.2f programs a page", w.MeanErases, want)
	}
	if got := f.PercentageUsed(); got != uint64(w.MeanErases/10) || w.UsedRatio != w.MeanErases/1000 {
		t.Errorf("used %d %%, ratio %g of %.1f erases and 1000 rated", got, w.UsedRatio, w.MeanErases)
	}
}

// Ninety percent cold data: without levelling the hot tenth of the flash wears
// many times faster (measured elsewhere: 2.95 to 4.7 times the mean).
func TestWear_staticLevelling(t *testing.T) {
	g := Geometry{256, 128}
	pages := uint32(g.EffectivePages() / 1.145)
	run := func(rated uint32) (*FTL, float64) {
		f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: rated})
		f.WriteRun(0, pages)
		rng := rand.NewPCG(2, 2)
		for range 40 {
			randomWrites(f, rng, pages/10, int(pages))
		}
		c := f.Counters()
		mustCheck(t, f)
		return f, float64(c.Programs()) / float64(c.HostPages)
	}
	none, wafNone := run(0)
	levelled, waf := run(1200)
	gap := func(f *FTL) uint32 { return f.Wear().MaxErases - f.Wear().MinErases }
	t.Logf("none %+v WAF %.3f; levelled %+v WAF %.3f", none.Wear(), wafNone, levelled.Wear(), waf)
	if none.Wear().MinErases > 1 {
		t.Errorf("cold data moved without levelling: %+v", none.Wear())
	}
	if threshold := levelThreshold(1200); gap(levelled) > 3*threshold {
		t.Errorf("levelled to a gap of %d erases, threshold %d", gap(levelled), threshold)
	}
	if waf > wafNone*1.1 {
		t.Errorf("levelling raised WAF from %.3f to %.3f", wafNone, waf)
	}
}

func TestWear_spareFallsAfterTheRating(t *testing.T) {
	g := Geometry{64, 64}
	pages := uint32(g.EffectivePages() / 1.3)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 300, Seed: 3})
	rng := rand.NewPCG(1, 1)
	last, atRating := 1.0, -1.0
	for !f.WornOut() && f.Wear().UsedRatio < 1.5 {
		randomWrites(f, rng, pages, int(pages))
		w := f.Wear()
		if w.SpareRatio > last || w.SpareRatio < 0 {
			t.Fatalf("spare went from %g to %g", last, w.SpareRatio)
		}
		last = w.SpareRatio
		if w.UsedRatio < 0.4 && w.SpareRatio < 0.97 {
			t.Fatalf("spare %g at %g of the rated life", w.SpareRatio, w.UsedRatio)
		}
		if w.UsedRatio >= 1 && atRating < 0 {
			atRating = w.SpareRatio
		}
		if w.UsedRatio > 2 {
			t.Fatal("twice the rated life and blocks are left")
		}
	}
	// One block in a hundred of two in a hundred: half, give or take chance.
	if math.Abs(atRating-0.5) > 0.2 {
		t.Errorf("spare %g at the rated life, expected about 0.5", atRating)
	}
	if f.Wear().SpareRatio != 0 {
		t.Errorf("worn out with spare %g", f.Wear().SpareRatio)
	}
}

func TestEraseUnused(t *testing.T) {
	f := usedFTL(t)
	before := f.Wear()
	f.Deallocate(0, f.Config().LogicalPages)
	f.EraseUnused()
	mustCheck(t, f)
	if f.MappedPages() != 0 || f.FreeSuperblocks() < f.Config().Geometry.Superblocks-2 {
		t.Errorf("%d pages mapped, %d superblocks free", f.MappedPages(), f.FreeSuperblocks())
	}
	if f.Wear().MeanErases <= before.MeanErases {
		t.Error("erasing cost no cycle")
	}
	f.WriteRun(0, f.Config().LogicalPages)
	mustCheck(t, f)
}

func TestFitGeometry(t *testing.T) {
	for flash := uint64(MinFlashPages) + 1; flash <= MaxFlashPages*9/10; flash = flash*101/100 + 7 {
		g, err := FitGeometry(flash)
		if err != nil {
			t.Fatalf("%d pages: %v", flash, err)
		}
		off := g.EffectivePages()/float64(flash) - 1
		if math.Abs(off) > 1e-3 || (flash > 200_000 && math.Abs(off) > 2e-4) || g.Superblocks < 256 || g.PagesPerSuperblock < 512 || g.PagesPerSuperblock > 4096 {
			t.Errorf("%d pages: %+v is %.4f %% off", flash, g, 100*off)
		}
	}
	for _, flash := range []uint64{0, 1, MinFlashPages - 1, MaxFlashPages, 1 << 60} {
		if g, err := FitGeometry(flash); err == nil {
			t.Errorf("%d pages: %+v", flash, g)
		}
	}
}

func TestConfig_validate(t *testing.T) {
	g := Geometry{16, 64}
	for _, c := range []Config{
		{}, {LogicalPages: 0, Geometry: g}, {LogicalPages: 12 * 64, Geometry: g},
		{LogicalPages: 1, Geometry: Geometry{7, 64}}, {LogicalPages: 1, Geometry: Geometry{16, 3}},
		{LogicalPages: 1, Geometry: Geometry{1 << 31, 1 << 31}},
		{LogicalPages: MaxLogicalPages + 1, Geometry: Geometry{1 << 11, 1 << 12}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	// The fullest drive that is accepted still makes progress.
	f := mustNew(t, Config{LogicalPages: 12*64 - 1, Geometry: g})
	f.WriteRun(0, 12*64-1)
	randomWrites(f, rand.NewPCG(1, 1), 12*64-1, 5000)
	mustCheck(t, f)
}

// Where failed blocks are lost, the flash shrinks as the drive wears and write
// amplification rises by what the law says; in the end no spare blocks are left
// and the drive can only be read.
func TestShrinks_writeAmplificationRises(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	g := Geometry{300, 256}
	pages := uint32(g.EffectivePages() / 1.2)
	waf := func(shrinks bool) (early, late float64, f *FTL) {
		f = mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 120, Seed: 3, Shrinks: shrinks})
		rng := rand.NewPCG(1, 2)
		early = steadyWAF(f, rng, pages, 2, 2)
		for !f.WornOut() && f.Wear().UsedRatio < 1.5 {
			randomWrites(f, rng, pages, int(pages))
			mustCheck(t, f)
		}
		before := f.Counters()
		randomWrites(f, rng, pages, 2*int(pages))
		after := f.Counters()
		return early, float64(after.Programs()-before.Programs()) / float64(after.HostPages-before.HostPages), f
	}
	early, late, f := waf(true)
	w := f.Wear()
	left := g
	left.Superblocks -= w.RetiredSuperblocks
	rise := UniformWAF(left.EffectivePages()/float64(pages)) / UniformWAF(g.EffectivePages()/float64(pages))
	t.Logf("%d superblocks retired at %.2f of the rating: WAF %.3f, then %.3f; the law says it rises by %.3f", w.RetiredSuperblocks, w.UsedRatio, early, late, rise)
	if w.RetiredSuperblocks < 5 || math.Abs(late/early/rise-1) > 0.03 || rise < 1.05 {
		t.Errorf("%d superblocks retired: WAF %.3f, then %.3f, the law says it rises by %.3f", w.RetiredSuperblocks, early, late, rise)
	}
	if w.SpareRatio != 0 || w.UsedRatio < 0.9 || w.UsedRatio > 1.3 {
		t.Errorf("worn out with %+v", w)
	}
	if early, late, f = waf(false); f.Wear().RetiredSuperblocks != 0 || math.Abs(late/early-1) > 0.04 {
		t.Errorf("with spare blocks: WAF %.3f, then %.3f, %+v", early, late, f.Wear())
	}
}
