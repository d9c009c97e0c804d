package workload

import "math"

// zipf draws ranks below n, rank k with a probability proportional to
// (k+1)^-exponent, by rejection-inversion: constant memory and about one try a
// draw, however large n is (Hörmann and Derflinger, "Rejection-inversion to
// generate variates from monotone discrete distributions", 1996).
//
// Products are rounded before they are added, so that no processor may fuse them
// and one seed gives one history on all.
type zipf struct {
	n, exponent           float64
	first, last, accepted float64
}

// newZipf prepares n ranks, n of at least 1, of an exponent above 0.
func newZipf(n uint64, exponent float64) zipf {
	z := zipf{n: float64(n), exponent: exponent}
	z.first = z.area(1.5) - 1
	z.last = z.area(z.n + 0.5)
	z.accepted = 2 - z.inverse(z.area(2.5)-z.height(2))
	return z
}

// draw is the rank at a position of the stream of a key.
func (z *zipf) draw(key, position uint64) uint64 {
	for try := draw(key, position); ; try = mix64(try + golden) {
		// 53 bits make a number in [0, 1).
		uniform := float64(try>>11) / (1 << 53)
		u := z.last + float64(uniform*(z.first-z.last))
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.accepted || u >= z.area(k+0.5)-z.height(k) {
			return uint64(k) - 1
		}
	}
}

// height is x^-exponent.
func (z *zipf) height(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// area is the integral of height from 1 to x, where an exponent of 1 and those
// near it lose no digits.
func (z *zipf) area(x float64) float64 {
	log := math.Log(x)
	y := float64((1 - z.exponent) * log)
	if math.Abs(y) < 1e-8 {
		return float64(log * (1 + y/2))
	}
	return float64(math.Expm1(y) / y * log)
}

// inverse is the x whose area is a.
func (z *zipf) inverse(a float64) float64 {
	y := max(float64(a*(1-z.exponent)), -1)
	if math.Abs(y) < 1e-8 {
		return math.Exp(float64(a * (1 - y/2)))
	}
	return math.Exp(float64(math.Log1p(y) / y * a))
}
