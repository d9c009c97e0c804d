package ftl

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// skewed writes n pages: hot of 100 writes go to a tenth of the pages.
func skewed(f *FTL, rng *rand.Rand, pages uint32, hot, n int) {
	tenth := pages / 10
	for range n {
		if rng.IntN(100) < hot {
			f.Write(rng.Uint32N(tenth))
		} else {
			f.Write(tenth + rng.Uint32N(pages-tenth))
		}
	}
}

func skewedWAF(t *testing.T, separates bool, hot int) float64 {
	t.Helper()
	g := Geometry{256, 128}
	pages := uint32(g.EffectivePages() / 1.2)
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, Seed: 1, Separates: separates})
	rng := rand.New(rand.NewPCG(4, uint64(hot)))
	f.WriteRun(0, pages)
	skewed(f, rng, pages, hot, 8*int(pages))
	before := f.Counters()
	skewed(f, rng, pages, hot, 6*int(pages))
	after := f.Counters()
	mustCheck(t, f)
	return float64(after.Programs()-before.Programs()) / float64(after.HostPages-before.HostPages)
}

// Skewed writes cost less where hot and cold data are apart, uniform ones as
// much: there is nothing to tell apart.
func TestApart_skewCostsLess(t *testing.T) {
	for _, c := range []struct {
		name     string
		hot      int
		low, top float64 // WAF apart over WAF together
	}{
		{"90 of 100 to a tenth", 90, 0.3, 0.8},
		{"50 of 100 to a tenth", 50, 0.4, 0.97},
		{"uniform", 10, 0.97, 1.03},
	} {
		together, apart := skewedWAF(t, false, c.hot), skewedWAF(t, true, c.hot)
		t.Logf("%s: WAF %.3f together, %.3f apart", c.name, together, apart)
		if r := apart / together; r < c.low || r > c.top {
			t.Errorf("%s: WAF %.3f together, %.3f apart: %.3f is not within %g to %g", c.name, together, apart, r, c.low, c.top)
		}
	}
}

// What is owed for collection follows the counters, in bytes and back.
func TestApart_debtAndState(t *testing.T) {
	cfg := Config{LogicalPages: 1500, Geometry: Geometry{20, 100}, RatedCycles: 100, Seed: 5, Separates: true, Shrinks: true}
	f := mustNew(t, cfg)
	rng, again := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	second := mustNew(t, cfg)
	last := uint64(0)
	for i := range 200 {
		skewed(f, rng, 1500, 80, 777)
		skewed(second, again, 1500, 80, 777)
		moved, total := f.MovedPages(), f.Counters().CollectedPages+f.Counters().LevelledPages
		if moved < last || moved > total || total-moved > 20*100 {
			t.Fatalf("step %d: moved %d after %d, counters say %d", i, moved, last, total)
		}
		last = moved
		state := marshal(t, f)
		if f = new(FTL); f.UnmarshalBinary(state) != nil {
			t.Fatal(f.UnmarshalBinary(state))
		}
	}
	if !bytes.Equal(marshal(t, f), marshal(t, second)) {
		t.Error("a drive that was saved and loaded went another way")
	}
	if string(marshal(t, f)[:len(codecMagic)]) != codecMagic2 || string(marshal(t, usedFTL(t))[:len(codecMagic)]) != codecMagic {
		t.Error("the version of the state does not say what is in it")
	}
}
