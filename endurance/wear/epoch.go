package wear

import "math"

// Span is a stretch of samples whose counters can be compared: [From, To).
type Span struct {
	From, To int
	// Reason says what began it; empty for the first.
	Reason string
}

// Epochs splits samples where a counter stepped back, disappeared or appeared,
// or the drive, its firmware or its format changed.
func Epochs(samples []Sample) []Span {
	var spans []Span
	for i := range samples {
		reason := ""
		if i != 0 {
			if reason = breaks(&samples[i-1], &samples[i]); reason == "" {
				continue
			}
			spans[len(spans)-1].To = i
		}
		spans = append(spans, Span{From: i, To: len(samples), Reason: reason})
	}
	return spans
}

// breaks says why b cannot be compared with a, or nothing.
func breaks(a, b *Sample) string {
	switch {
	case a.Epoch != b.Epoch:
		return "the drive, its firmware or its format changed from " + a.Epoch + " to " + b.Epoch
	case b.PowerOnHours.Less(a.PowerOnHours):
		return "power-on hours stepped back"
	case len(a.Host) != len(b.Host) || len(a.Media) != len(b.Media):
		return "a counter appeared or disappeared"
	}
	for i := range b.Host {
		x, y := &a.Host[i], &b.Host[i]
		if x.Source != y.Source || x.UnitBytes != y.UnitBytes {
			return "the host counter changed to " + y.Source
		}
		if y.Before.Less(x.After) || y.After.Less(y.Before) {
			return y.Source + " stepped back"
		}
	}
	for i := range b.Media {
		x, y := &a.Media[i], &b.Media[i]
		if x.Source != y.Source || x.UnitBytes != y.UnitBytes {
			return "the media counter changed to " + y.Source
		}
		if y.Units.Less(x.Units) {
			return y.Source + " stepped back"
		}
	}
	return ""
}

// pair is the counters that a WAF is computed from, as indices.
type pair struct{ host, media int }

// choose picks the first media counter that is not zero, and the host counter
// with the finest unit that is not.
func choose(s *Sample) (pair, string) {
	if len(s.Media) == 0 {
		return pair{}, "not reported: the drive has no counter of media writes that is known"
	}
	p := pair{host: -1, media: -1}
	for i := range s.Media {
		if !s.Media[i].Units.IsZero() && s.Media[i].UnitBytes != 0 {
			p.media = i
			break
		}
	}
	if p.media < 0 {
		return pair{}, "not reported: " + s.Media[0].Source + " is zero"
	}
	for i := range s.Host {
		h := &s.Host[i]
		if !h.After.IsZero() && h.UnitBytes != 0 && (p.host < 0 || h.UnitBytes < s.Host[p.host].UnitBytes) {
			p.host = i
		}
	}
	if p.host < 0 {
		return pair{}, "not reported: no counter of host writes, or it is zero"
	}
	return p, ""
}

// edges are the samples of a span at which the media counter had just changed.
// Only they say when its value was taken: between the sample before and them.
func edges(samples []Sample, span Span, p pair) []int {
	var at []int
	for i := span.From + 1; i < span.To; i++ {
		if samples[i].Media[p.media].Units != samples[i-1].Media[p.media].Units {
			at = append(at, i)
		}
	}
	return at
}

// stretch sums host and media bytes over pairs of edges, with bounds.
type stretch struct {
	host, media     Count
	hostLow, hostHi float64
	mediaErr        float64
	first, last     int // samples
	pieces          int
}

// add takes in what happened between two edges i < j.
//
// The counter that changed at edge j was taken at some moment between sample
// j-1 and sample j, and so the host had then written between what the host
// counter said before j-1 and after j; the same at i. Each reading of a counter
// may be up to one unit off (some round up, some down), which is how much a
// difference is off at most.
func (s *stretch) add(samples []Sample, p pair, i, j int) {
	unit := float64(samples[j].Host[p.host].UnitBytes)
	before := func(k int) Count { return samples[k].Host[p.host].Before }
	after := func(k int) Count { return samples[k].Host[p.host].After }
	// The means of the two readings, doubled to stay whole.
	host2 := before(j).Add(after(j)).Sub(before(i).Add(after(i)))
	bytes2 := host2.Times(samples[j].Host[p.host].UnitBytes)
	s.host = s.host.Add(Count{Hi: bytes2.Hi >> 1, Lo: bytes2.Lo>>1 | bytes2.Hi<<63})
	s.media = s.media.Add(samples[j].Media[p.media].Units.Sub(samples[i].Media[p.media].Units).Times(samples[j].Media[p.media].UnitBytes))
	// With few edges j-1 may lie before i, and then at i.
	low := 0.0
	if after(i).Less(before(j - 1)) {
		low = before(j-1).Sub(after(i)).Float()*unit - unit
	}
	s.hostLow += max(low, 0)
	s.hostHi += after(j).Sub(before(i-1)).Float()*unit + unit
	s.mediaErr += float64(samples[j].Media[p.media].UnitBytes)
	if s.pieces == 0 {
		s.first = i
	}
	s.last = j
	s.pieces++
}

// waf is what the stretch amounts to.
func (s *stretch) waf(samples []Sample, p pair) WAF {
	if s.pieces == 0 || s.host.IsZero() || s.media.IsZero() {
		return notAvailable("not reported: the media counter changed fewer than two times while the host wrote")
	}
	if s.hostLow <= 0 {
		return notAvailable("not reported: too little was written for the resolution of the counters")
	}
	w := WAF{
		Available: true, HostBytes: s.host, MediaBytes: s.media,
		Value:   s.media.Float() / s.host.Float(),
		Source:  samples[s.last].Media[p.media].Source + " / " + samples[s.last].Host[p.host].Source,
		FirstNS: samples[s.first].TimeNS, LastNS: samples[s.last].TimeNS,
	}
	// The arithmetic itself is good to a part in 10^15.
	w.Low = max(0, (s.media.Float()-s.mediaErr)/s.hostHi*(1-1e-12))
	w.High = (s.media.Float() + s.mediaErr) / s.hostLow * (1 + 1e-12)
	if math.IsInf(w.High, 0) || math.IsNaN(w.High) || math.IsNaN(w.Low) {
		return notAvailable("not reported: too little was written for the resolution of the counters")
	}
	return w
}
