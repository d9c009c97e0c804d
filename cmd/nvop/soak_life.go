package main

import (
	"fmt"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/predict"
	"nvop/endurance/run"
	"nvop/journal"
)

// lifeResult is what a run's samples say of its drive's life.
type lifeResult struct {
	// WAFConfidence is the half-width of the 95 % interval of WAF by batch means.
	WAFConfidence *float64 `json:"waf_confidence_95,omitempty"`
	Batches       int      `json:"batches,omitempty"`
	// MediaBytesLow and High are what is left until percentage used is 100; nil
	// where it is not known. Steps is how many steps of percentage used were seen.
	MediaBytesLow  *float64 `json:"media_bytes_low"`
	MediaBytesHigh *float64 `json:"media_bytes_high"`
	Steps          int      `json:"percentage_used_steps"`
	Reason         string   `json:"reason,omitempty"`
	// Futures are the same in host bytes, under three workloads.
	Futures []predict.Outlook `json:"futures,omitempty"`
	// UnitBytesLow and High are what a unit of the media counter can be, by what
	// a sequential phase wrote; UnitAgrees says whether the one assumed is.
	UnitBytesLow  *float64 `json:"unit_bytes_low,omitempty"`
	UnitBytesHigh *float64 `json:"unit_bytes_high,omitempty"`
	UnitAgrees    *bool    `json:"unit_agrees,omitempty"`
	unitKnown     []uint64
	assumed       uint64
}

// lifeOf reads a run's samples; nil where there are too few.
func lifeOf(full *journal.Run, waf run.WAF) *lifeResult {
	if len(full.Samples) < 2 {
		return nil
	}
	o := endurance.LifeOf(&full.Header.Job, full.Checkpoint, full.Samples, waf)
	l := &lifeResult{Steps: o.Life.Steps, Reason: o.Life.Reason, Futures: o.Futures, unitKnown: o.Unit.Known, assumed: o.Assumed}
	if o.Scatter.Available {
		l.WAFConfidence, l.Batches = &o.Scatter.HalfWidth, o.Scatter.Batches
	}
	if o.Life.Available {
		l.MediaBytesLow = &o.Life.MediaBytes.Low
		if o.Life.HighKnown {
			l.MediaBytesHigh = &o.Life.MediaBytes.High
		}
	}
	if o.Unit.Available {
		agrees := o.Unit.Agrees(o.Assumed)
		l.UnitBytesLow, l.UnitBytesHigh, l.UnitAgrees = &o.Unit.Bytes.Low, &o.Unit.Bytes.High, &agrees
	}
	return l
}

// text adds the life to a page.
func (l *lifeResult) text(p *render.Page) {
	if l == nil {
		return
	}
	if l.WAFConfidence != nil {
		p.Line("  WAF scatters by +- %.4f (95 %%, %d batches of whole rings)", *l.WAFConfidence, l.Batches)
	}
	switch {
	case l.MediaBytesLow == nil:
		p.Line("  life left: %s", l.Reason)
	default:
		p.Line("  life left, after %d steps of percentage used: %s written to the flash; in host bytes:", l.Steps, bounds(*l.MediaBytesLow, l.MediaBytesHigh))
		for _, f := range l.Futures {
			p.Line("    %-14s  %s, at a WAF of %.2f to %.2f", f.Name, bounds(f.Low, f.High), f.WAF.Low, f.WAF.High)
		}
	}
	switch {
	case l.UnitAgrees == nil:
	case *l.UnitAgrees:
		p.Line("  unit of the media counter: %s, as the sequential phase confirms", render.Count(l.assumed))
	default:
		p.Line("  note: the media counter's unit is taken as %s bytes, but the sequential phase says %.4g to %.4g (known units: %s)",
			render.Count(l.assumed), *l.UnitBytesLow, *l.UnitBytesHigh, fmt.Sprint(l.unitKnown))
	}
}

// bounds is a range of bytes whose upper end may not be known.
func bounds(low float64, high *float64) string {
	if high == nil {
		return "at least " + decimal(low)
	}
	return decimal(low) + " to " + decimal(*high)
}
