package predict

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The table was computed by another program beforehand, to the digits kept.
func TestWAF_publishedTable(t *testing.T) {
	for _, c := range []struct{ op, many, p64, p256, p1024, p16384 float64 }{
		{.07, 7.817, 7.010, 7.597, 7.761, 7.814},
		{.11, 5.224, 4.859, 5.126, 5.199, 5.222},
		{.145, 4.131, 3.904, 4.070, 4.115, 4.130},
		{.20, 3.188, 3.053, 3.153, 3.179, 3.187},
		{.28, 2.481, 2.403, 2.461, 2.476, 2.481},
		{.333, 2.202, 2.141, 2.187, 2.198, 2.202},
		{.374, 2.041, 1.990, 2.028, 2.038, 2.041},
		{.50, 1.716, 1.681, 1.707, 1.714, 1.716},
		{1.0, 1.255, 1.239, 1.251, 1.254, 1.255},
	} {
		for p, want := range map[int]float64{0: c.many, 64: c.p64, 256: c.p256, 1024: c.p1024, 16384: c.p16384} {
			if got := FiniteWAF(1+c.op, p); math.Abs(got-want) > 0.0012 {
				t.Errorf("OP %g, %d pages: %.4f, published %.3f", c.op, p, got, want)
			}
		}
	}
}

// The victim's valid share u solves u = exp(-alpha(1-u)): the definition, which
// uses no special function.
func TestUniformWAF_solvesItsEquation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alpha := 1 + math.Exp(rapid.Float64Range(-16, 3.5).Draw(t, "ln(alpha-1)"))
		a := UniformWAF(alpha)
		v := 1 / a // the share of garbage in a victim
		// v + expm1(-alpha v) = 0, relative to v.
		if r := (v + math.Expm1(-alpha*v)) / v; math.Abs(r) > 1e-8*min(1, 0.1+(alpha-1)) && math.Abs(r) > 3e-13 {
			t.Fatalf("alpha %.12f: WAF %.12f leaves %g", alpha, a, r)
		}
		if back := FlashFor(a, 0); a > 1+1e-9 && math.Abs(back/alpha-1) > 1e-6 {
			t.Fatalf("alpha %.12f: WAF %.9f comes from %.12f", alpha, a, back)
		}
	})
	for _, alpha := range []float64{1, 0.5, 0, -1, math.NaN()} {
		if !math.IsInf(UniformWAF(alpha), 1) || !math.IsInf(FiniteWAF(alpha, 64), 1) {
			t.Errorf("alpha %g: no space must be infinite", alpha)
		}
	}
	if a := UniformWAF(math.Inf(1)); a != 1 {
		t.Errorf("endless space: %g", a)
	}
}

func TestLambertW0(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.Float64Range(-0.999, 30).Draw(t, "w")
		x := w * math.Exp(w)
		// Near the branch x holds w only to the root of the rounding.
		tolerance := 1e-12*(1+math.Abs(w)) + 3e-16/(1+w)
		if got := LambertW0(x); math.Abs(got-w) > tolerance {
			t.Fatalf("W0(%g) = %.15f, not %.15f", x, got, w)
		}
	})
	if got := LambertW0(-1 / math.E); math.Abs(got+1) > 1e-7 {
		t.Errorf("at the branch point: %g", got)
	}
	if !math.IsNaN(LambertW0(-1)) || !math.IsNaN(LambertW0(math.NaN())) {
		t.Error("outside of the domain it must be NaN")
	}
}

func TestFiniteWAF_isMonotonous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(4, 5000).Draw(t, "pages")
		alpha := rapid.Float64Range(1.01, 6).Draw(t, "alpha")
		a, more, many := FiniteWAF(alpha, p), FiniteWAF(alpha*1.01, p), UniformWAF(alpha)
		if a < 1 || more > a || a > many*(1+1e-9) {
			t.Fatalf("alpha %g, %d pages: %g; with more flash %g; many pages %g", alpha, p, a, more, many)
		}
		if back := FlashFor(a, p); a > 1.0001 && math.Abs(back/alpha-1) > 1e-6 {
			t.Fatalf("alpha %g, %d pages: WAF %g comes from %g", alpha, p, a, back)
		}
	})
}

func ExampleUniformWAF() {
	const raw = 8 << 40 * 1.053
	for _, user := range []float64{7.68e12, 6.4e12} {
		fmt.Printf("%.2f TB: %.2f\n", user/1e12, UniformWAF(raw/user))
	}
	// Output:
	// 7.68 TB: 3.12
	// 6.40 TB: 1.83
}

func BenchmarkUniformWAF(b *testing.B) {
	for b.Loop() {
		_ = UniformWAF(1.2058)
	}
}
