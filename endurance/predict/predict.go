package predict

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrRequest is wrapped by every error about what was asked.
var ErrRequest = errors.New("prediction")

// Assumptions by their ID.
const (
	ofUsable     = "usable_flash"
	ofFloor      = "floor"
	ofRatio      = "collect_ratio"
	ofPoint      = "measurement"
	ofLaw        = "law"
	ofSeparation = "separation"
	ofCycles     = "cycles"
	ofMix        = "mix"
	ofBuffer     = "write_buffer"
	ofCache      = "slc_cache"
)

const (
	maxSizes            = 4096
	defaultWarranty     = 5
	daysPerYear         = 365
	defaultReadPercent  = 70
	defaultCycles       = 7000
	defaultMixFactor    = 0.87
	inferredCyclesLow   = 5000. / 7000
	inferredCyclesHigh  = 10000. / 7000
	publishedCyclesEdge = 0.02
	// The harmonic law of mixes was off by -19 to +8 % before the factor.
	mixError = 0.15
)

// Predict answers a request. Sizes at or above the flash are an error, as is a
// request without what the law needs; both wrap [ErrRequest].
func Predict(r Request) (Answer, error) {
	if err := r.validate(); err != nil {
		return Answer{}, err
	}
	m, err := newModel(r.Drive, r.Points)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Schema: Schema, Points: []SizeAnswer{}, Assumptions: []Assumption{}, Calibrated: len(r.Points), Notes: m.notes}
	for _, size := range r.Sizes {
		s, err := m.answer(&r, size)
		if err != nil {
			return Answer{}, err
		}
		a.Points = append(a.Points, s)
	}
	a.Assumptions = m.assumptions(&r)
	return a, nil
}

func (r *Request) validate() error {
	if len(r.Sizes) == 0 || len(r.Sizes) > maxSizes {
		return fmt.Errorf("%w: %d sizes are not within 1 to %d", ErrRequest, len(r.Sizes), maxSizes)
	}
	d := &r.Drive
	switch {
	case r.WarrantyYears < 0 || r.WarrantyYears > 100 || math.IsNaN(r.WarrantyYears):
		return fmt.Errorf("%w: a warranty of %g years is not within 0 to 100", ErrRequest, r.WarrantyYears)
	case r.MixReadPercent < 0 || r.MixReadPercent > 100 || math.IsNaN(r.MixReadPercent):
		return fmt.Errorf("%w: %g %% of reads are not within 0 to 100", ErrRequest, r.MixReadPercent)
	case d.FloorWAF != 0 && !(d.FloorWAF >= 1 && d.FloorWAF <= 1.2):
		return fmt.Errorf("%w: a floor of %g is not within 1 to 1.2", ErrRequest, d.FloorWAF)
	case d.Cycles < 0 || d.Cycles > 1e7 || math.IsNaN(d.Cycles):
		return fmt.Errorf("%w: %g cycles are not within 0 to 10 million", ErrRequest, d.Cycles)
	case d.RawBytes > 1<<60 || d.UsableBytes > 1<<60 || d.IndirectionBytes > 1<<30:
		return fmt.Errorf("%w: flash of more than an exbibyte, or mapping units of more than a gibibyte", ErrRequest)
	case d.BufferBytes > 1<<50 || d.CacheBytes > 1<<60 || !(d.CacheWriteBytesPerSecond >= 0) || d.CacheWriteBytesPerSecond > 1e15:
		return fmt.Errorf("%w: a write buffer of %d bytes, an SLC cache of %d at %g bytes a second", ErrRequest, d.BufferBytes, d.CacheBytes, d.CacheWriteBytesPerSecond)
	case d.PagesPerSuperblock < 0 || d.PagesPerSuperblock != 0 && d.PagesPerSuperblock < 4:
		return fmt.Errorf("%w: %d pages a superblock are fewer than 4", ErrRequest, d.PagesPerSuperblock)
	}
	return r.Workload.validate()
}

// answer is what one size gives.
func (m *model) answer(r *Request, size uint64) (SizeAnswer, error) {
	if size == 0 || float64(size)*1.005 >= m.best.usable {
		return SizeAnswer{}, fmt.Errorf("%w: %d bytes leave no spare area: the usable flash is about %.0f bytes", ErrRequest, size, m.best.usable)
	}
	w := &r.Workload
	mapped := float64(size) * w.mapped()
	s := SizeAnswer{CapacityBytes: size, OPOfUserPercent: 100 * (m.nominal - float64(size)) / float64(size)}
	if c := m.drive.CapacityBytes; c != 0 {
		op := 100 * (float64(c) - float64(size)) / float64(size)
		s.SetOPPercent = &op
	}
	waf := m.wafOf(w, mapped)
	s.WAF = &waf
	s.SettlingDriveWrites = SettlingDriveWrites(m.best.usable/mapped, max(1, waf.Mid/m.best.floor/w.UnitFactor(m.drive.unit())))
	if m.rates != 0 {
		iops := m.iops(mapped)
		s.RandomWriteIOPS = &iops
	}
	if iops, bytes, ok := m.drive.burst(); ok {
		s.BurstWriteIOPS, s.BurstBytes = &iops, bytes
	}
	if m.drive.RandomReadIOPS > 0 {
		reads := m.drive.RandomReadIOPS
		s.RandomReadIOPS = &reads
		s.MixedIOPS = m.mixed(r, s.RandomWriteIOPS)
	}
	m.life(r, &s)
	return s, nil
}

// wafOf is the WAF of a workload over mapped bytes.
func (m *model) wafOf(w *Workload, mapped float64) Interval {
	units := w.UnitFactor(m.drive.unit())
	collect := func(c *member) float64 {
		if w.Kind == Sequential {
			return 1
		}
		return FiniteWAF(c.usable/mapped, m.drive.PagesPerSuperblock)
	}
	of := func(c *member) float64 { return c.floor * collect(c) * units }
	mid := of(&m.best)
	low, high := mid, mid
	var byUsable, byFloor Interval // with the other at its best
	byUsable.Low, byUsable.High, byFloor.Low, byFloor.High = mid, mid, mid, mid
	last, value := math.NaN(), 0.0
	for i := range m.members {
		c := &m.members[i]
		if c.usable != last {
			last, value = c.usable, collect(c)
		}
		v := value * units * c.floor
		low, high = min(low, v), max(high, v)
		byUsable.include(value * units * m.best.floor)
		byFloor.include(collectBest(mid, m.best.floor) * c.floor)
	}
	x := Interval{Low: low, Mid: mid, High: high}
	law := m.lawMargin(mapped)
	spreads := []spread{{ofUsable, byUsable.width() / mid}, {ofFloor, byFloor.width() / mid}, {ofLaw, 2 * law}}
	if m.wafs != 0 {
		spreads[0].of = ofPoint
	}
	if w.Kind != "" && w.Kind != Uniform && w.Kind != Sequential {
		alpha := m.best.usable / mapped
		s := m.skew(w.over(mapped, m.drive.unit()), alpha)
		x.Low, x.Mid, x.High = x.Low*s.Low, x.Mid*s.Mid, x.High*s.High
		spreads = append(spreads, spread{ofSeparation, (s.High - s.Low) / s.Mid})
	}
	if w.Kind == Sequential {
		law = 0
		spreads = spreads[1:2]
	}
	x.Low, x.High = max(x.Low*(1-law), units), x.High*(1+law)
	x.Mid = max(x.Mid, x.Low)
	x.DominatedBy = widest(spreads)
	// What is found in a buffer is not programmed.
	rest := 1 - m.drive.buffered(w, mapped)
	x.Low, x.Mid, x.High = x.Low*rest, x.Mid*rest, x.High*rest
	return x
}

// skew is that of the workload on this drive.
func (m *model) skew(w *Workload, alpha float64) Interval {
	if w.Separation != nil || !m.drive.Separates {
		return w.skew(alpha)
	}
	at := func(separation float64) Interval {
		v := *w
		v.Separation = &separation
		return v.skew(alpha)
	}
	return Interval{Low: at(separatesHigh).Low, Mid: at(separatesMid).Mid, High: at(separatesLow).High}
}

func collectBest(waf, floor float64) float64 { return waf / floor }

// iops is the rate of uniform random 4 KiB writes over mapped bytes.
func (m *model) iops(mapped float64) Interval {
	of := func(c *member, ratio, a float64) float64 {
		return 1 / (a * m.cost(ratio, m.waf(c.usable, c.floor, mapped)))
	}
	mid := of(&m.best, m.best.ratio, m.best.aMid)
	x := Interval{Low: mid, Mid: mid, High: mid}
	byPoint := x
	byPoint.include(of(&m.best, m.best.ratio, m.best.aLow))
	byPoint.include(of(&m.best, m.best.ratio, m.best.aHigh))
	byUsable, byRatio := x, x
	last, alone := math.NaN(), 0.0
	near := func(v, best float64, p prior) bool {
		return math.Abs(v-best) <= (p.high-p.low)/(otherSteps-1)*0.51
	}
	for i := range m.members {
		c := &m.members[i]
		if c.usable != last {
			last, alone = c.usable, m.waf(c.usable, 1, mapped)
		}
		cost := m.cost(c.ratio, alone*c.floor)
		x.include(1 / (c.aLow * cost))
		x.include(1 / (c.aHigh * cost))
		if near(c.ratio, m.best.ratio, m.ratio) {
			byUsable.include(1 / (c.aMid * cost))
		}
		if math.Abs(c.usable-m.best.usable) < 0.002*m.best.usable {
			byRatio.include(1 / (c.aMid * cost))
		}
	}
	law := m.lawMargin(mapped)
	x.Low, x.High = x.Low*(1-law), x.High*(1+law)
	x.DominatedBy = widest([]spread{
		{ofUsable, byUsable.width() / mid}, {ofRatio, byRatio.width() / mid}, {ofPoint, byPoint.width() / mid}, {ofLaw, 2 * law},
	})
	return x
}

// mixed is the rate of mixed reads and writes: the harmonic law, since they
// share the drive, times what they disturb each other.
func (m *model) mixed(r *Request, writes *Interval) *Interval {
	if writes == nil {
		return nil
	}
	reads := r.MixReadPercent / 100
	if r.MixReadPercent == 0 {
		reads = defaultReadPercent / 100.
	}
	factor, spreadOfMix := m.drive.MixFactor, mixError
	if factor == 0 {
		factor = defaultMixFactor
	}
	rate := func(w, f float64) float64 { return f / (reads/m.drive.RandomReadIOPS + (1-reads)/w) }
	x := Interval{Low: rate(writes.Low, factor*(1-spreadOfMix)), Mid: rate(writes.Mid, factor), High: rate(writes.High, min(factor*(1+spreadOfMix), max(1, factor*1.08)))}
	x.DominatedBy = widest([]spread{
		{ofMix, 2 * spreadOfMix}, {writes.DominatedBy, (rate(writes.High, factor) - rate(writes.Low, factor)) / x.Mid},
	})
	return &x
}

// life fills in what the drive lasts: the cycles, the rating, and which ends first.
func (m *model) life(r *Request, s *SizeAnswer) {
	years := r.WarrantyYears
	if years == 0 {
		years = defaultWarranty
	}
	cycles := m.cycles()
	// T*cycles is what the flash takes; W says how much of it the host gets. T
	// and W hang together, but W has the larger part.
	bytes := func(c, waf float64) float64 { return c * m.best.usable / waf }
	x := Interval{Low: bytes(cycles.Low, s.WAF.High), Mid: bytes(cycles.Mid, s.WAF.Mid), High: bytes(cycles.High, s.WAF.Low)}
	x.DominatedBy = widest([]spread{{ofCycles, cycles.width() / cycles.Mid}, {s.WAF.DominatedBy, s.WAF.width() / s.WAF.Mid}})
	s.LifetimeHostBytes = &x
	perDay := 1 / (float64(s.CapacityBytes) * daysPerYear * years)
	s.DWPD = &Interval{Low: x.Low * perDay, Mid: x.Mid * perDay, High: x.High * perDay, DominatedBy: x.DominatedBy}
	s.Binds = "cycles"
	for _, rating := range m.drive.Ratings {
		// The same size within what labels round.
		if math.Abs(float64(rating.CapacityBytes)/float64(s.CapacityBytes)-1) > 0.005 {
			continue
		}
		rated := rating.HostBytes
		s.RatedHostBytes = &rated
		switch {
		case rated <= x.Low:
			s.Binds = "rated"
		case rated < x.High:
			s.Binds = "either"
		}
	}
}

func (m *model) cycles() Interval {
	c := m.drive.Cycles
	switch {
	case c == 0:
		c = defaultCycles
	case m.drive.CyclesPublished:
		return Interval{Low: c * (1 - publishedCyclesEdge), Mid: c, High: c * (1 + publishedCyclesEdge)}
	}
	return Interval{Low: c * inferredCyclesLow, Mid: c, High: c * inferredCyclesHigh}
}

func (x *Interval) include(v float64) { x.Low, x.High = min(x.Low, v), max(x.High, v) }

func (x *Interval) width() float64 { return x.High - x.Low }

// spread is how much of an answer's width an assumption makes, relative.
type spread struct {
	of    string
	width float64
}

func widest(s []spread) string {
	best := slices.MaxFunc(s, func(a, b spread) int {
		switch {
		case a.width < b.width:
			return -1
		case a.width > b.width:
			return 1
		}
		return 0
	})
	return best.of
}

// assumptions are all that the answers rest on.
func (m *model) assumptions(r *Request) []Assumption {
	var list []Assumption
	add := func(id, format string, args ...any) {
		list = append(list, Assumption{ID: id, Text: fmt.Sprintf(format, args...)})
	}
	low, high := m.best.usable, m.best.usable
	w0 := Interval{Low: m.best.floor, High: m.best.floor}
	ratio := Interval{Low: m.best.ratio, High: m.best.ratio}
	for i := range m.members {
		c := &m.members[i]
		low, high = min(low, c.usable), max(high, c.usable)
		w0.include(c.floor)
		ratio.include(c.ratio)
	}
	source := "as on drives of three makers"
	if m.wafs != 0 {
		source = "as the measured WAF says"
	} else if m.drive.RawInferred {
		source += "; the nominal capacity is inferred from the drive's"
	}
	add(ofUsable, "garbage collection works in %.3f to %.3f TB of flash, best guess %.3f TB, %s", low/1e12, high/1e12, m.best.usable/1e12, source)
	add(ofFloor, "parity and metadata cost a factor of %.3f to %.3f, best guess %.3f", w0.Low, w0.High, m.best.floor)
	if m.rates != 0 {
		add(ofRatio, "moving a page costs %.2f to %.2f programs beside its own, best guess %.2f", ratio.Low, ratio.High, m.best.ratio)
	}
	for _, o := range m.seen {
		m.pointText(&o, add)
	}
	add(ofLaw, "the law of uniform random writes and greedy collection; it met measured drives within %.2g %% between sizes", 100*lawError)
	m.separationText(r, add)
	m.bufferText(r, add)
	c := m.cycles()
	switch {
	case m.drive.Cycles == 0:
		add(ofCycles, "%.0f to %.0f program/erase cycles, best guess %.0f, as of enterprise TLC: the drive's are not known", c.Low, c.High, c.Mid)
	case m.drive.CyclesPublished:
		add(ofCycles, "%.0f program/erase cycles, as published", c.Mid)
	default:
		add(ofCycles, "%.0f to %.0f program/erase cycles, best guess %.0f, inferred", c.Low, c.High, c.Mid)
	}
	if m.drive.RandomReadIOPS > 0 && m.rates != 0 {
		add(ofMix, "mixed reads and writes share the drive (harmonic law), within %.0f %%; reads alone do not change", 100*mixError)
	}
	return list
}

// separationText says how far data of different lifetimes is taken to be apart.
func (m *model) separationText(r *Request, add func(string, string, ...any)) {
	k, s := r.Workload.Kind, r.Workload.Separation
	switch {
	case k != JESD219 && k != Zipf && k != Mixed:
	case s != nil:
		add(ofSeparation, "the drive keeps data of different lifetimes apart to %.2g of what is possible", *s)
	case m.drive.Separates:
		add(ofSeparation, "the drive keeps data of different lifetimes apart, to %.2g to %.2g of what is possible, best guess %.2g", separatesLow, separatesHigh, separatesMid)
	default:
		add(ofSeparation, "how well the drive keeps data of different lifetimes apart is not known: from perfectly to not at all, best guess not beyond its own collection")
	}
}

// bufferText says what a write buffer and an SLC cache are taken to do.
func (m *model) bufferText(r *Request, add func(string, string, ...any)) {
	d := &m.drive
	if d.BufferBytes != 0 {
		h := d.buffered(&r.Workload, float64(r.Sizes[0])*r.Workload.mapped())
		add(ofBuffer, "a write buffer of %.1f MB programs what is rewritten in it once: %.2g %% of this workload's writes at %.3f TB", float64(d.BufferBytes)/1e6, 100*h, float64(r.Sizes[0])/1e12)
	}
	if iops, bytes, ok := d.burst(); ok {
		add(ofCache, "writing goes on: an SLC cache takes %.0f GB at %.0f random writes a second after a rest, and none of it then; what goes through it is programmed once more, which a counter of flash writes shows (a WAF higher by up to 1) and the rated cycles do not",
			float64(bytes)/1e9, iops)
	}
}

func (m *model) pointText(o *observation, add func(string, string, ...any)) {
	kind := "measured"
	if o.rated {
		kind = "published"
	}
	size := float64(o.CapacityBytes) / 1e12
	if o.WAF != 0 {
		add(ofPoint, "WAF %.3f within %.2g %% at %.3f TB, %s", o.WAF, 100*o.wafError, size, kind)
	}
	if o.IOPS != 0 {
		add(ofPoint, "%.0f random writes a second within %.2g %% at %.3f TB, %s", o.IOPS, 100*o.iopsError, size, kind)
	}
}
