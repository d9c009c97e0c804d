package predict

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// By another program beforehand: theory of one log, and of perfect separation;
// the exact simulation's greedy collection without separation.
func TestSkew_jesd219Table(t *testing.T) {
	for _, c := range []struct{ op, apart, greedy, together float64 }{
		{.07, 4.92, 8.11, 8.53}, {.145, 2.75, 4.435, 4.77}, {.28, 1.79, 2.755, 3.03},
		{.374, 1.54, 2.29, 2.53}, {.50, 1.36, 1.92, 2.15},
	} {
		w := Workload{Kind: JESD219}
		s, u := w.skew(1+c.op), UniformWAF(1+c.op)
		for _, v := range []struct {
			name                 string
			got, want, tolerance float64
		}{
			{"separated", s.Low * u, c.apart, .006}, {"greedy", s.Mid * u, c.greedy, .02 * c.greedy}, {"one log", s.High * u, c.together, .006},
		} {
			if math.Abs(v.got-v.want) > v.tolerance {
				t.Errorf("OP %g, %s: %.3f, expected %.3f", c.op, v.name, v.got, v.want)
			}
		}
	}
}

// Ranks in classes have the traffic that their sums have, and endlessly many more
// of it at the top.
func TestZipfRanks(t *testing.T) {
	for _, theta := range []float64{0, 0.5, 0.8, 0.95, 0.999} {
		for _, n := range []int{1, 2, 63, 64, 1000, 200_000} {
			weights := make([]float64, n)
			all := 0.0
			for k := range weights {
				weights[k] = math.Pow(float64(k+1), -theta)
				all += weights[k]
			}
			space, traffic, at := 0.0, 0.0, 0
			for _, c := range zipfRanks(theta, float64(n)) {
				ranks := int(math.Round(c.space * float64(n)))
				sum := 0.0
				for range ranks {
					sum += weights[at]
					at++
				}
				if math.Abs(c.traffic-sum/all) > 1e-5 {
					t.Errorf("theta %g, %d ranks: %d up to %d have %.6f, in fact %.6f", theta, n, ranks, at, c.traffic, sum/all)
				}
				space, traffic = space+c.space, traffic+c.traffic
			}
			if at != n || math.Abs(space-1) > 1e-9 || math.Abs(traffic-1) > 1e-9 {
				t.Errorf("theta %g, %d ranks: %d ranks, space %g, traffic %g", theta, n, at, space, traffic)
			}
		}
	}
	if top := zipfRanks(0.95, 1.9e9)[0].traffic; top > 0.03 || zipfClasses(0.95)[0].traffic < 0.4 {
		t.Errorf("the first of two billion ranks has %.3f", top)
	}
}

func TestUnitFactor(t *testing.T) {
	jesd := Workload{Kind: JESD219}
	for unit, want := range map[uint64]float64{4096: 1.032, 8192: 1.435, 16384: 2.347, 32768: 4.32, 65536: 8.38} {
		if got := jesd.UnitFactor(unit); math.Abs(got/want-1) > 0.001 {
			t.Errorf("JESD219 on units of %d: %.3f, expected %.3f", unit, got, want)
		}
	}
	for _, c := range []struct {
		w    Workload
		unit uint64
		want float64
	}{
		{Workload{}, 4096, 1}, {Workload{}, 16384, 4}, {Workload{IOBytes: 512}, 4096, 8}, {Workload{IOBytes: 131072}, 16384, 1},
		{Workload{Kind: Sequential, IOBytes: 512}, 16384, 1}, {Workload{Kind: Mixed, SequentialShare: .5}, 16384, 2.5},
	} {
		if got := c.w.UnitFactor(c.unit); got != c.want {
			t.Errorf("%+v on units of %d: %g, expected %g", c.w, c.unit, got, c.want)
		}
	}
}

// Whatever the classes, they are ordered: separation helps, and without skew
// there is nothing to separate.
func TestSkew_order(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alpha := rapid.Float64Range(1.03, 4).Draw(t, "alpha")
		w := Workload{Kind: rapid.SampledFrom([]Kind{JESD219, Zipf, Mixed, Uniform, Sequential}).Draw(t, "kind")}
		w.Theta = rapid.Float64Range(0, .99).Draw(t, "theta")
		w.SequentialShare = rapid.Float64Range(0, 1).Draw(t, "sequential")
		s := w.skew(alpha)
		if !(s.Low > 0 && s.Low <= s.Mid*(1+1e-9) && s.Mid <= s.High*(1+1e-9)) {
			t.Fatalf("%+v at %g: %+v", w, alpha, s)
		}
		if u := UniformWAF(alpha); s.Low*u < 1-1e-6 {
			t.Fatalf("%+v at %g: a WAF of %g", w, alpha, s.Low*u)
		}
	})
	for _, alpha := range []float64{1.07, 1.3, 2} {
		same := []class{{.3, .3}, {.7, .7}}
		u := UniformWAF(alpha)
		if a, b := mixedLogWAF(alpha, same), separatedWAF(alpha, same); math.Abs(a/u-1) > 1e-6 || math.Abs(b/u-1) > 1e-4 {
			t.Errorf("alpha %g: equal classes give %g and %g, uniform is %g", alpha, a, b, u)
		}
		if a := streamedWAF(alpha, 0); math.Abs(a/u-1) > 1e-5 {
			t.Errorf("alpha %g: no stream gives %g, uniform is %g", alpha, a, u)
		}
		if a := streamedWAF(alpha, 1); math.Abs(a-1) > 1e-6 {
			t.Errorf("alpha %g: nothing but a stream gives %g", alpha, a)
		}
	}
}
