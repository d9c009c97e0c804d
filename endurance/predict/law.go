package predict

import "math"

// LambertW0 is the principal branch of Lambert's W, the solution w >= -1 of
// w*exp(w) = x, for x from -1/e on. Below -1/e it is NaN.
//
// Near -1/e the derivative is infinite, so the series at the branch point
// (Corless et al. 1996, equation 4.22) starts Halley's method there.
func LambertW0(x float64) float64 {
	switch {
	case math.IsNaN(x) || x < -1/math.E-1e-15:
		return math.NaN()
	case x == 0 || math.IsInf(x, 1):
		return x
	case x < 0:
		return lambertNearBranch(math.Sqrt(2*max(0, math.E*x+1)), x)
	}
	w := math.Log1p(x)
	if x > math.E {
		w = math.Log(x) - math.Log(math.Log(x))
	}
	return halley(w, x)
}

// seriesOnly is the distance p = sqrt(2(e*x+1)) from the branch point below
// which the series alone is more exact than an iteration, whose residual is
// lost in rounding there: its first term left out is 2e-14 of the result.
const seriesOnly = 0.02

// lambertNearBranch is W0 for x below 0, given p = sqrt(2(e*x+1)), which the
// caller may know more exactly than x says.
func lambertNearBranch(p, x float64) float64 {
	terms := [...]float64{
		-1, 1, -1. / 3, 11. / 72, -43. / 540, 769. / 17280, -221. / 8505, 680863. / 43545600,
	}
	w := 0.0
	for i := len(terms) - 1; i >= 0; i-- {
		w = w*p + terms[i]
	}
	if p < seriesOnly {
		return w
	}
	if p > 1 { // far from the branch point the series does not converge
		w = x
	}
	return halley(w, x)
}

func halley(w, x float64) float64 {
	for range 64 {
		e := math.Exp(w)
		f := w*e - x
		d := f / (e*(w+1) - (w+2)*f/(2*w+2))
		w -= d
		if !(math.Abs(d) > 1e-15*(1+math.Abs(w))) {
			break
		}
	}
	return w
}

// UniformWAF is the write amplification of greedy or first-in-first-out
// collection under uniform random writes for superblocks of many pages:
// alpha/(alpha + W0(-alpha*exp(-alpha))), alpha being flash space over written
// space. Xiang and Kurkoski, "An improved analytical expression for write
// amplification in NAND flash" (2012); Desnoyers, "Analytic models of SSD write
// performance" (2014). +Inf for alpha of 1 and less.
func UniformWAF(alpha float64) float64 {
	if !(alpha > 1) {
		return math.Inf(1)
	}
	if math.IsInf(alpha, 1) {
		return 1
	}
	// e*x + 1 with x = -alpha*exp(-alpha), without the cancellation near 1.
	excess := -math.Expm1(math.Log1p(alpha-1) - (alpha - 1))
	w := lambertNearBranch(math.Sqrt(2*max(0, excess)), -alpha*math.Exp(-alpha))
	return max(1, alpha/(alpha+w))
}

// FiniteWAF is UniformWAF of greedy collection with p pages a superblock, from
// the balance of a large number of superblocks (Desnoyers 2014; Bux and Iliadis
// 2010): one with i valid pages loses one at a rate proportional to i, so i
// times their number is the same for all i above the victims' level, which lies
// between two whole numbers. p of 0 means many. Fewer pages amplify less: chance
// makes some victims emptier.
func FiniteWAF(alpha float64, p int) float64 {
	switch {
	case p <= 0 || p > finiteMaxPages:
		return UniformWAF(alpha)
	case !(alpha > 1):
		return math.Inf(1)
	}
	share := 1 / alpha
	// From the top: harmonic is the sum of 1/i for i from j+1 to p.
	harmonic := 0.0
	for j := p - 1; j >= 1; j-- {
		harmonic += 1 / float64(j+1)
		// With all of level j present, the valid share of the flash is the mean.
		if (float64(p-j)+1)/((harmonic+1/float64(j))*float64(p)) > share {
			continue
		}
		// (p-j+f) = share*p*(harmonic + f/j), linear in f.
		k := share * float64(p)
		f := (k*harmonic - float64(p-j)) / (1 - k/float64(j))
		f = min(max(f, 0), 1)
		x := (1-f)*float64(j) + f*float64(j-1)
		return float64(p) / (float64(p) - x)
	}
	return 1
}

// finiteMaxPages is beyond what changes a result by a part in 10,000.
const finiteMaxPages = 1 << 17

// FlashFor is the inverse of FiniteWAF: the alpha at which collection costs
// waf, above 1.
func FlashFor(waf float64, p int) float64 {
	if !(waf > 1) {
		return math.Inf(1)
	}
	if p <= 0 || p > finiteMaxPages {
		// A = 1/(1-u) with u = exp(-alpha(1-u)).
		return waf * math.Log(waf/(waf-1))
	}
	lo, hi := 1.0, waf*math.Log(waf/(waf-1))+1
	for range 80 {
		mid := (lo + hi) / 2
		if FiniteWAF(mid, p) > waf {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// DriveWritesPerRing is tau: the drive writes in which the flash is turned over
// once, and the period with which WAF rings after a change; waf is that of
// collection, without the floor.
func DriveWritesPerRing(alpha, waf float64) float64 { return alpha / waf }

// SettlingDriveWrites is how many drive writes of one workload pass until WAF is
// within 1 % of its level: about three rings, and one at the least.
func SettlingDriveWrites(alpha, waf float64) float64 {
	return max(1, 3*DriveWritesPerRing(alpha, waf))
}
