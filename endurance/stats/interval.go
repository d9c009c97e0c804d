package stats

import "math"

// Interval is a mean with the half-width of its 95 % confidence interval.
type Interval struct {
	Mean, HalfWidth float64
	// Batches is how many batches it rests on.
	Batches int
	// Available is false when fewer than two batches could be made.
	Available bool
}

// BatchMeans estimates a steady-state mean from values that follow one another
// in time and so are not independent: it cuts them into batches equal parts,
// leaving the oldest remainder out, takes the mean of each and applies Student's
// t to the means (Law and Kelton, "Simulation Modeling and Analysis"). At least
// 8 batches, each longer than the values remember, make a sound interval.
func BatchMeans(values []float64, batches int) Interval {
	if batches < 2 || len(values) < batches {
		return Interval{}
	}
	size := len(values) / batches
	values = values[len(values)-size*batches:]
	means := make([]float64, batches)
	for i := range means {
		for _, v := range values[i*size : (i+1)*size] {
			means[i] += v / float64(size)
		}
	}
	return meanOf(means)
}

// meanOf is the mean of independent values with its 95 % interval.
func meanOf(values []float64) Interval {
	n := float64(len(values))
	mean := 0.0
	for _, v := range values {
		mean += v / n
	}
	square := 0.0
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	return Interval{
		Mean: mean, HalfWidth: student95(len(values)-1) * math.Sqrt(square/(n-1)/n), Batches: len(values), Available: true,
	}
}

// student95 is the two-sided 95 % quantile of Student's t with df degrees of
// freedom: tabulated to 10, beyond by Cornish and Fisher's expansion, which is
// good to three decimals from there on.
func student95(df int) float64 {
	table := [...]float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if df < len(table) {
		return table[max(df, 1)]
	}
	const z = 1.959964
	n := float64(df)
	const z3, z5 = z * z * z, z * z * z * z * z
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z5*z*z+19*z5+17*z3-15*z)/(384*n*n*n)
}
