package predict

import (
	"fmt"
	"math"
)

// Kind is a class of workload.
type Kind string

const (
	Uniform    Kind = "uniform"    // random, each block as likely as another
	JESD219    Kind = "jesd219"    // the enterprise workload: skewed, with its mix of sizes
	Zipf       Kind = "zipf"       // rank r as likely as r^-Theta
	Sequential Kind = "sequential" // one stream over all of the capacity
	Mixed      Kind = "mixed"      // random and sequential writes side by side
)

// Workload is a workload. The zero value is uniform random 4 KiB writes over
// all of the capacity.
type Workload struct {
	Kind Kind
	// IOBytes is the size of a write; 0 means 4096. JESD219 has its own mix.
	IOBytes uint64
	// Theta is the exponent of Zipf, 0 to 0.999.
	Theta float64
	// Separation is how well the drive keeps data of different lifetimes apart,
	// 0 (one log) to 1 (perfectly); nil means not known.
	Separation *float64
	// SequentialShare is the part of the bytes of Mixed that is sequential.
	SequentialShare float64
	// MappedRatio is how much of the capacity holds data, the rest being
	// deallocated; 0 means all.
	MappedRatio float64

	// units is how many mapping units are written, where that is known: Zipf's ranks.
	units float64
}

// over is the workload over so many bytes in units.
func (w *Workload) over(mapped float64, unit uint64) *Workload {
	v := *w
	v.units = mapped / float64(unit)
	return &v
}

// jesdGreedy is how far greedy collection that keeps what it moves apart from
// what the host writes lies from uniform towards the theory of a first-in-
// first-out log, under skew: 0.41 to 0.51 by an exact simulation at OP 7 to 50 %.
const jesdGreedy = 0.47

// How far a drive that is known to keep data of different lifetimes apart does so:
// what the simulated drive, which infers a page's lifetime from the one before,
// reached of what perfect separation would at OP 7 to 50 %. It was 0.40 to 0.50
// under JESD219, 0.16 to 0.50 under zipf 0.8 and 0.39 to 0.67 under zipf 0.95.
const (
	separatesLow  = 0.15
	separatesMid  = 0.45
	separatesHigh = 0.7
)

// class is a part of the logical space with traffic of its own; both are
// shares of the whole.
type class struct{ space, traffic float64 }

// jesdClasses is JESD219A's enterprise skew: half of all writes go to the first
// 5 %, 30 % to the next 15 %, the rest to the rest.
func jesdClasses() []class { return []class{{.05, .5}, {.15, .3}, {.80, .2}} }

// zipfClasses cuts a Zipf law over many blocks into classes of geometrically
// growing space.
func zipfClasses(theta float64) []class {
	const n = 24
	var out []class
	lo := 0.0
	for i := range n {
		hi := math.Pow(2, float64(i-n+1))
		share := func(x float64) float64 { return math.Pow(x, 1-theta) } // of the first x of the ranks
		out = append(out, class{space: hi - lo, traffic: share(hi) - share(lo)})
		lo = hi
	}
	return out
}

// zipfRanks are the classes of a Zipf law over n ranks, rank k as likely as
// k^-theta: ranks 1, 2 to 3, 4 to 7 and so on. Many blocks are not the same as
// endlessly many: near an exponent of 1 the first ranks of those have nearly all of
// the traffic.
func zipfRanks(theta, n float64) []class {
	sum := func(from, to float64) float64 { // of k^-theta for from <= k < to
		s := 0.0
		for ; from < to && from < 64; from++ {
			s += math.Pow(from, -theta)
		}
		if from < to { // midpoints of the rest
			s += (math.Pow(to-.5, 1-theta) - math.Pow(from-.5, 1-theta)) / (1 - theta)
		}
		return s
	}
	n = max(1, math.Floor(n))
	all := sum(1, n+1)
	var out []class
	for lo := 1.0; lo <= n; lo *= 2 {
		hi := min(2*lo, n+1)
		out = append(out, class{space: (hi - lo) / n, traffic: sum(lo, hi) / all})
	}
	return out
}

// zipf are the classes of Zipf.
func (w *Workload) zipf() []class {
	if w.units >= 1 {
		return zipfRanks(w.Theta, w.units)
	}
	return zipfClasses(w.Theta)
}

// mixedLogWAF is collection from one first-in-first-out log that all classes
// share (Desnoyers 2014): a page of class k reaches the end of the log, tau
// drive writes later, valid with probability exp(-traffic*tau/space).
func mixedLogWAF(alpha float64, classes []class) float64 {
	return logWAF(alpha, func(tau float64) float64 {
		a := 0.0
		for _, c := range classes {
			a += c.traffic / -math.Expm1(-c.traffic*tau/c.space)
		}
		return a
	})
}

// logWAF solves waf(tau)*tau = alpha for a log that turns over in tau drive writes.
func logWAF(alpha float64, waf func(tau float64) float64) float64 {
	if !(alpha > 1) {
		return math.Inf(1)
	}
	// A stream makes waf*tau fall where the log comes to outlast it, so there may
	// be several solutions; a drive that is filled in order starts at the longest.
	const steps = 256
	lo, hi := 0.0, alpha
	for i := steps - 1; i > 0; i-- {
		if lo = alpha * float64(i) / steps; waf(lo)*lo <= alpha {
			break
		}
		hi = lo
		lo = 0
	}
	for range 60 {
		tau := (lo + hi) / 2
		if waf(tau)*tau > alpha {
			hi = tau
		} else {
			lo = tau
		}
	}
	return waf((lo + hi) / 2)
}

// separatedWAF is collection when each class has flash of its own, split such
// that the whole is least: the gain of more flash per page is then the same in
// all classes.
func separatedWAF(alpha float64, classes []class) float64 {
	if !(alpha > 1) {
		return math.Inf(1)
	}
	// A class whose victims are garbage by v has alpha = -ln(1-v)/v, and its
	// WAF falls by slope(v) per alpha: from infinity at 0 to 0 at 1.
	alphaOf := func(v float64) float64 { return -math.Log1p(-v) / v }
	slope := func(v float64) float64 { return (1 - v) / (v * (1 - alphaOf(v)*(1-v))) }
	const eps = 1e-9
	garbage := func(gain float64, c class) float64 {
		lo, hi := eps, 1-eps
		for range 50 {
			v := (lo + hi) / 2
			if slope(v)*c.traffic/c.space > gain {
				lo = v
			} else {
				hi = v
			}
		}
		return (lo + hi) / 2
	}
	lo, hi := -40.0, 40.0 // ln of the common gain
	for range 60 {
		mid := (lo + hi) / 2
		used := 0.0
		for _, c := range classes {
			used += c.space * alphaOf(garbage(math.Exp(mid), c))
		}
		if used > alpha {
			lo = mid
		} else {
			hi = mid
		}
	}
	waf := 0.0
	for _, c := range classes {
		waf += c.traffic / garbage(math.Exp((lo+hi)/2), c)
	}
	return waf
}

// streamedWAF is collection from one log into which a stream over all of the
// space and random writes go, the stream with a share of the bytes. A page the
// stream wrote lives until the stream comes round or a random write hits it.
func streamedWAF(alpha, stream float64) float64 {
	random := 1 - stream
	return logWAF(alpha, func(tau float64) float64 {
		a := 0.0
		for n := range 10000 {
			t := float64(n) * tau
			left := 1 - stream*t // until the stream has passed everywhere
			if left <= 0 {
				break
			}
			alive := math.Exp(-random * t)
			a += alive * (stream + random*left)
			if alive < 1e-9 {
				break
			}
		}
		return a
	})
}

// skew is the WAF of collection relative to that of uniform random writes at
// the same alpha: the range by how well lifetimes are kept apart, and the best
// guess.
func (w *Workload) skew(alpha float64) Interval {
	uniform := UniformWAF(alpha)
	if math.IsInf(uniform, 1) {
		return Interval{Low: 1, Mid: 1, High: 1}
	}
	var apart, one, together float64
	switch w.Kind {
	case JESD219, Zipf:
		classes := jesdClasses()
		if w.Kind == Zipf {
			classes = w.zipf()
		}
		apart, together = separatedWAF(alpha, classes), mixedLogWAF(alpha, classes)
		one = uniform + jesdGreedy*(together-uniform)
	case Mixed:
		one = streamedWAF(alpha, w.SequentialShare)
		apart = min(one, w.SequentialShare+(1-w.SequentialShare)*uniform)
		together = max(one, uniform)
	case Sequential:
		return Interval{Low: 1 / uniform, Mid: 1 / uniform, High: 1 / uniform}
	default:
		return Interval{Low: 1, Mid: 1, High: 1}
	}
	if s := w.Separation; s != nil {
		mid := (1-*s)*one + *s*apart
		// What an exact simulation scatters by around this.
		const scatter = 0.04
		return Interval{Low: mid * (1 - scatter) / uniform, Mid: mid / uniform, High: mid * (1 + scatter) / uniform}
	}
	return Interval{Low: apart / uniform, Mid: one / uniform, High: together / uniform}
}

// sizeShare is a size of the mix of a workload.
type sizeShare struct {
	bytes uint64
	share float64
}

// jesdSizes is the mix of JESD219A's enterprise workload.
func jesdSizes() []sizeShare {
	return []sizeShare{
		{512, .04}, {1024, .01}, {1536, .01}, {2048, .01}, {2560, .01}, {3072, .01}, {3584, .01},
		{4096, .67}, {8192, .10}, {16384, .07}, {32768, .03}, {65536, .03},
	}
}

// UnitFactor is how much is programmed for each byte that is written because a
// write of a part of a mapping unit completes the unit: writes are at random
// and aligned to their size.
func (w *Workload) UnitFactor(unitBytes uint64) float64 {
	unit := max(unitBytes, 1)
	switch w.Kind {
	case Sequential:
		return 1
	case JESD219:
		asked, programmed := 0.0, 0.0
		for _, s := range jesdSizes() {
			asked += s.share * float64(s.bytes)
			programmed += s.share * float64((s.bytes+unit-1)/unit*unit)
		}
		return programmed / asked
	}
	n := w.IOBytes
	if n == 0 {
		n = 4096
	}
	factor := float64((n+unit-1)/unit*unit) / float64(n)
	if w.Kind == Mixed {
		return w.SequentialShare + (1-w.SequentialShare)*factor
	}
	return factor
}

// validate says what is wrong with a workload.
func (w *Workload) validate() error {
	switch w.Kind {
	case "", Uniform, JESD219, Sequential:
	case Zipf:
		if !(w.Theta >= 0 && w.Theta < 1) {
			return fmt.Errorf("%w: a zipf exponent of %g is not within 0 to 0.999", ErrRequest, w.Theta)
		}
	case Mixed:
		if !(w.SequentialShare >= 0 && w.SequentialShare <= 1) {
			return fmt.Errorf("%w: a sequential share of %g is not within 0 to 1", ErrRequest, w.SequentialShare)
		}
	default:
		return fmt.Errorf("%w: no workload class %q: uniform, jesd219, zipf, sequential or mixed", ErrRequest, w.Kind)
	}
	if s := w.Separation; s != nil && !(*s >= 0 && *s <= 1) {
		return fmt.Errorf("%w: a separation of %g is not within 0 to 1", ErrRequest, *s)
	}
	if !(w.MappedRatio >= 0 && w.MappedRatio <= 1) {
		return fmt.Errorf("%w: a mapped share of %g is not within 0 to 1", ErrRequest, w.MappedRatio)
	}
	if w.IOBytes > 1<<30 {
		return fmt.Errorf("%w: a write of %d bytes is beyond a gibibyte", ErrRequest, w.IOBytes)
	}
	return nil
}

// mapped is the share of the capacity that holds data.
func (w *Workload) mapped() float64 {
	if w.MappedRatio == 0 {
		return 1
	}
	return w.MappedRatio
}
