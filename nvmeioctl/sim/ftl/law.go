package ftl

import "math"

// UniformWAF is the write amplification of greedy collection under uniform
// random writes, for superblocks of many pages: alpha/(alpha + W0(-alpha
// e^-alpha)) with alpha the flash space over the written space, above 1. Each
// write must choose its page anew: in passes that write every page once in
// random order, far less is valid in a victim, and the drive collects about
// half as much (1.88 where this gives 3.11, [FTL] measured). Source:
// Xiang and Kurkoski 2012; Desnoyers 2014. It is computed as 1/v where v, the
// share of garbage in a victim, is the positive root of v = 1 - e^(-alpha v),
// which needs no special function. +Inf for alpha of 1 and less.
func UniformWAF(alpha float64) float64 {
	if !(alpha > 1) {
		return math.Inf(1)
	}
	// The function is concave and falls at its positive root, so Newton's
	// method from the right comes down to it without overshooting.
	v := 1.0
	for range 64 {
		e := math.Exp(-alpha * v)
		next := v - (1-v-e)/(alpha*e-1)
		if !(next < v) {
			break
		}
		v = next
	}
	return 1 / v
}
