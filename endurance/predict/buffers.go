package predict

// bufferHit is the share of written mapping units that are found in a write buffer
// that holds units of them, first in, first out, of a space of so many, and need
// not be programmed for that.
//
// A unit written with probability q a write stays until so many others have come
// in, which takes units/(1-h) writes when a share h of all does not come in; it is
// found q*units/(1-h) times meanwhile and then comes in anew. Exact for many
// units (Gelenbe 1973). Classes need not have all of the traffic: a stream's units
// come in and are never found.
func bufferHit(classes []class, units, space float64) float64 {
	if !(units > 0) || !(space > 0) {
		return 0
	}
	if units >= space {
		units = space
	}
	found := func(h float64) float64 {
		sum := 0.0
		for _, c := range classes {
			x := c.traffic / (c.space * space) * units / (1 - h)
			sum += c.traffic * x / (1 + x)
		}
		return sum
	}
	lo, hi := 0.0, 1-1e-12 // found(h)-h falls from above to below 0
	for range 60 {
		if h := (lo + hi) / 2; found(h) > h {
			lo = h
		} else {
			hi = h
		}
	}
	return lo
}

// buffered is bufferHit of a workload over mapped bytes.
func (d *Drive) buffered(w *Workload, mapped float64) float64 {
	var classes []class
	switch w.Kind {
	case Sequential:
		return 0
	case JESD219:
		classes = jesdClasses()
	case Zipf:
		classes = w.over(mapped, d.unit()).zipf()
	case Mixed:
		classes = []class{{1, 1 - w.SequentialShare}}
	default:
		classes = []class{{1, 1}}
	}
	unit := float64(d.unit())
	return bufferHit(classes, float64(d.BufferBytes)/unit, mapped/unit)
}

// burst is what an SLC cache gives: so many bytes at a rate of its own. The
// answers themselves are of writing that goes on, for which it is full.
func (d *Drive) burst() (iops float64, bytes uint64, ok bool) {
	if d.CacheBytes == 0 || !(d.CacheWriteBytesPerSecond > 0) {
		return 0, 0, false
	}
	return d.CacheWriteBytesPerSecond / 4096, d.CacheBytes, true
}
