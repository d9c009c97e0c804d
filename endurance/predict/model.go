package predict

import (
	"fmt"
	"math"
)

// prior is what is believed of a constant before anything is measured: a best
// guess, how far it goes on either side, and how firmly it is held.
type prior struct{ low, mid, high, sigma float64 }

func (p prior) penalty(v float64) float64 { return (v - p.mid) / p.sigma * (v - p.mid) / p.sigma }

// at is the i-th of n values from low to high.
func (p prior) at(i, n int) float64 {
	if n < 2 {
		return p.mid
	}
	return p.low + (p.high-p.low)*float64(i)/float64(n-1)
}

// Limits of the constants. The flash that collection works in was 1.036, 1.053
// and 1.053 times the nominal binary capacity on three drives of three makers;
// the floor 1.02 to 1.041; b/a 0 on one drive and 0.405 on another, and the best
// guess lies between, where it is least wrong of either. One measured point does
// not tell b/a: any a and b with the same a*W + b*(W-1) give it.
const (
	usableLow, usableMid, usableHigh = 1.03, 1.05, 1.075
	floorLow, floorMid, floorHigh    = 1.0, 1.025, 1.05
	ratioLow, ratioMid, ratioHigh    = 0.0, 0.2, 0.5
	ratioSigma                       = 0.15
	// inferredRaw is how much wider the limits are where the nominal capacity
	// itself is a guess.
	inferredRaw = 0.02
	// Errors of what was measured, where none is stated: the scatter of half a
	// drive write is 0.4 %, tools differ by 2.5 % in rates.
	defaultWAFError, defaultIOPSError = 0.01, 0.025
	publishedIOPSError                = 0.05
	// lawError is how far the law itself was off between sizes of one drive, by
	// the distance of the sizes: sizes below the measured one are told within
	// 0.75 %, sizes twice above within 4 %.
	lawError, lawErrorUpwards = 0.0075, 0.05
	// searched is how far from the nominal capacity a measured WAF may put the
	// usable flash before it must be said that something is wrong.
	searchedLow, searchedHigh = 0.85, 1.35
)

// observation is a point as the model uses it.
type observation struct {
	Point
	wafError, iopsError float64 // relative
	rated               bool    // of a data sheet, not measured
}

// model is a drive with everything that is believed of it.
type model struct {
	drive    Drive
	nominal  float64 // of raw flash, as the basis of OP; may be 0
	usable   prior   // T in bytes
	floor    prior
	ratio    prior
	seen     []observation
	wafs     int // observations with a WAF
	rates    int // and with a rate
	members  []member
	best     member
	notes    []string
	relaxed  float64
	unitSize float64 // sub-unit factor of the 4 KiB writes that points are measured with
}

// member is one set of constants that agrees with what was seen: T, w0, r, and
// the limits of a, in seconds a programmed page.
type member struct {
	usable, floor, ratio float64
	aLow, aMid, aHigh    float64
	penalty              float64
}

// newModel gathers what is believed. The error says what is missing or wrong.
func newModel(d Drive, points []Point) (*model, error) {
	m := &model{drive: d, nominal: float64(d.RawBytes)}
	u := Workload{}
	m.unitSize = u.UnitFactor(d.unit())
	if err := m.observe(points); err != nil {
		return nil, err
	}
	if err := m.believe(); err != nil {
		return nil, err
	}
	m.fit()
	return m, nil
}

func (d *Drive) unit() uint64 {
	if d.IndirectionBytes == 0 {
		return 4096
	}
	return d.IndirectionBytes
}

func (m *model) observe(points []Point) error {
	add := func(p Point, rated bool) error {
		o := observation{Point: p, wafError: p.WAFError / p.WAF, iopsError: p.IOPSError, rated: rated}
		switch {
		case p.CapacityBytes == 0:
			return fmt.Errorf("%w: a calibration point needs its capacity", ErrRequest)
		case p.WAF == 0 && p.IOPS == 0 && p.FloorWAF == 0:
			return fmt.Errorf("%w: the calibration point at %d bytes measures nothing", ErrRequest, p.CapacityBytes)
		case p.WAF < 0 || p.WAF > 1000 || math.IsNaN(p.WAF):
			return fmt.Errorf("%w: a WAF of %g is not within 1 to 1000", ErrRequest, p.WAF)
		case p.WAF != 0 && p.WAF < m.unitSize:
			return fmt.Errorf("%w: a WAF of %g of random 4 KiB writes is below %g, which mapping units of %d bytes cost alone; the law does not cover drives that compress",
				ErrRequest, p.WAF, m.unitSize, m.drive.unit())
		case p.IOPS < 0 || p.IOPS > 1e9 || math.IsNaN(p.IOPS):
			return fmt.Errorf("%w: %g writes a second are not within 0 to 10^9", ErrRequest, p.IOPS)
		case p.FloorWAF != 0 && !(p.FloorWAF >= 1 && p.FloorWAF <= 1.2):
			return fmt.Errorf("%w: a floor of %g is not within 1 to 1.2", ErrRequest, p.FloorWAF)
		}
		if p.WAFError == 0 {
			o.wafError = defaultWAFError
		}
		// The law is no better than that.
		o.wafError = max(o.wafError, lawError)
		if p.IOPSError == 0 {
			o.iopsError = defaultIOPSError
			if rated {
				o.iopsError = publishedIOPSError
			}
		}
		m.seen = append(m.seen, o)
		return nil
	}
	measured := 0
	for _, p := range points {
		if err := add(p, false); err != nil {
			return err
		}
		if p.IOPS != 0 {
			measured++
		}
	}
	if measured == 0 {
		for _, p := range m.drive.Published {
			if err := add(p, true); err != nil {
				return err
			}
		}
	}
	for _, o := range m.seen {
		if o.WAF != 0 {
			m.wafs++
		}
		if o.IOPS != 0 {
			m.rates++
		}
	}
	return nil
}

func (m *model) believe() error {
	d := &m.drive
	m.floor = prior{floorLow, floorMid, floorHigh, 0.0125}
	if d.FloorWAF != 0 {
		m.floor = prior{max(1, d.FloorWAF-0.02), d.FloorWAF, d.FloorWAF + 0.02, 0.01}
	}
	for _, o := range m.seen {
		if o.FloorWAF != 0 {
			m.floor = prior{max(1, o.FloorWAF-0.005), o.FloorWAF, o.FloorWAF + 0.005, 0.0025}
		}
	}
	m.ratio = prior{ratioLow, ratioMid, ratioHigh, ratioSigma}
	if m.rates > 1 {
		m.ratio.high = 1 // points tell
	}
	switch {
	case d.UsableBytes != 0:
		t := float64(d.UsableBytes)
		m.usable = prior{t * usableLow / usableMid, t, t * usableHigh / usableMid, t * 0.0125}
		if m.nominal == 0 {
			m.nominal = t / usableMid
		}
	case d.RawBytes != 0:
		t := m.nominal
		m.usable = prior{t * usableLow, t * usableMid, t * usableHigh, t * 0.0125}
		if d.RawInferred {
			m.usable.low, m.usable.high = m.usable.low-t*inferredRaw, m.usable.high+t*inferredRaw
		}
	case m.wafs != 0:
		for _, o := range m.seen {
			if o.WAF != 0 {
				t := float64(o.CapacityBytes) * FlashFor(max(o.WAF/m.unitSize/m.floor.mid, 1.001), d.PagesPerSuperblock)
				m.usable = prior{t * 0.8, t, t * 1.25, t}
			}
		}
	default:
		return fmt.Errorf("%w: the raw flash is not known: name it, or a profile, or a measured WAF", ErrRequest)
	}
	return nil
}

// waf is that of uniform random 4 KiB writes at a size. The size may be scaled
// for what is mapped.
func (m *model) waf(usable, floor, size float64) float64 {
	return m.unitSize * floor * FiniteWAF(usable/size, m.drive.PagesPerSuperblock)
}

// cost is the time of a random write in units of a.
func (m *model) cost(ratio, waf float64) float64 { return waf + ratio*max(0, waf-m.unitSize) }

// Numbers of values tried for T, w0 and r.
const (
	usableSteps     = 81
	wideUsableSteps = 1201
	otherSteps      = 11
)

// fit finds the members: all constants within the limits that agree with what
// was seen. If there are none, the errors are doubled until there are.
func (m *model) fit() {
	grid := m.usable
	steps := usableSteps
	if m.wafs != 0 {
		// What was measured overrules the guess.
		c := m.nominal
		if c == 0 {
			c = m.usable.mid / usableMid
		}
		grid.low, grid.high = c*searchedLow, c*searchedHigh
		steps = wideUsableSteps
	}
	for m.relaxed = 1; m.relaxed <= 64; m.relaxed *= 2 {
		if m.try(grid, steps); len(m.members) != 0 {
			break
		}
	}
	if len(m.members) == 0 {
		// No constants can do it: the law without the measurements.
		m.notes = append(m.notes, "the calibration points contradict the law altogether and were not used")
		m.seen, m.wafs, m.rates, m.relaxed = nil, 0, 0, 1
		m.try(m.usable, usableSteps)
		return
	}
	if m.relaxed > 1 {
		m.notes = append(m.notes, fmt.Sprintf("the calibration points agree with the law only within %.0f times their errors", m.relaxed))
	}
	if m.wafs != 0 {
		m.refine()
		if u := m.best.usable / m.nominal; m.nominal != 0 && (u < usableLow-0.02 || u > usableHigh+0.02) {
			m.notes = append(m.notes, fmt.Sprintf("the points put the usable flash at %.3f times the nominal capacity; 1.03 to 1.075 is usual: is the nominal capacity right, and was the whole of it written?", u))
		}
	}
}

// refine tries again between the outermost members, more finely.
func (m *model) refine() {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range m.members {
		low, high = min(low, m.members[i].usable), max(high, m.members[i].usable)
	}
	step := (searchedHigh - searchedLow) / (wideUsableSteps - 1) * m.usable.mid
	was := m.members
	if m.try(prior{low: low - step, high: high + step}, usableSteps); len(m.members) == 0 {
		m.members = was
	}
}

func (m *model) try(grid prior, steps int) {
	m.members = m.members[:0]
	m.best = member{penalty: math.Inf(1)}
	alone := make([]float64, len(m.seen)) // collection at each point
	for i := range steps {
		t := grid.at(i, steps)
		ok := true
		for k, o := range m.seen {
			alone[k] = m.waf(t, 1, float64(o.CapacityBytes))
			ok = ok && !math.IsInf(alone[k], 1)
		}
		if !ok {
			continue
		}
		for j := range otherSteps {
			w0 := m.floor.at(j, otherSteps)
			p := m.usable.penalty(t) + m.floor.penalty(w0)
			if m.agrees(alone, w0, &p) {
				m.timed(alone, member{usable: t, floor: w0, penalty: p})
			}
		}
	}
}

// agrees says whether the WAF of all points is met, and adds to the penalty.
func (m *model) agrees(alone []float64, floor float64, penalty *float64) bool {
	for k, o := range m.seen {
		if o.WAF == 0 {
			continue
		}
		off := math.Log(alone[k]*floor/o.WAF) / (o.wafError * m.relaxed)
		if math.Abs(off) > 1 {
			return false
		}
		*penalty += 4 * off * off // the error is two deviations
	}
	return true
}

// timed completes a member with all r and a that agree with the rates.
func (m *model) timed(alone []float64, c member) {
	if m.rates == 0 {
		m.keep(c)
		return
	}
	for j := range otherSteps {
		r := m.ratio.at(j, otherSteps)
		lo, hi, sum, weight := 0.0, math.Inf(1), 0.0, 0.0
		for k, o := range m.seen {
			if o.IOPS == 0 {
				continue
			}
			a := 1 / o.IOPS / m.cost(r, alone[k]*c.floor)
			e := o.iopsError * m.relaxed
			lo, hi = max(lo, a/(1+e)), min(hi, a*(1+e))
			sum, weight = sum+math.Log(a)/(e*e), weight+1/(e*e)
		}
		if lo > hi {
			continue
		}
		n := c
		n.ratio, n.aLow, n.aHigh = r, lo, hi
		n.aMid = min(max(math.Exp(sum/weight), lo), hi)
		n.penalty += m.ratio.penalty(r)
		for k, o := range m.seen {
			if o.IOPS != 0 {
				off := math.Log(n.aMid*m.cost(r, alone[k]*c.floor)*o.IOPS) / (o.iopsError * m.relaxed)
				n.penalty += 4 * off * off
			}
		}
		m.keep(n)
	}
}

func (m *model) keep(c member) {
	m.members = append(m.members, c)
	if c.penalty < m.best.penalty {
		m.best = c
	}
}

// lawMargin is how far the law may be off at a size, given where it was
// calibrated.
func (m *model) lawMargin(size float64) float64 {
	if m.wafs == 0 {
		return lawError
	}
	nearest := 0.0
	for _, o := range m.seen {
		if o.WAF != 0 {
			nearest = max(nearest, float64(o.CapacityBytes))
		}
	}
	return lawError + lawErrorUpwards*max(0, math.Log2(size/nearest))
}
