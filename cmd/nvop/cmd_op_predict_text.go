package main

import (
	"fmt"
	"math"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/predict"
	"nvop/namespace"
)

// predictResult is a prediction and the course of its quantities over sizes.
type predictResult struct {
	predict.Answer
	// What is the drive in words.
	What     string `json:"drive"`
	Workload string `json:"workload"`
	// curve is for the terminal: best guesses at evenly spaced sizes. brief leaves
	// it out, and what the prediction rests on.
	curve []predict.SizeAnswer
	brief bool
}

// curvePoints is how wide the curves are.
const curvePoints = 40

// fasterThanReads says that points have more random writes a second than the drive
// has reads: no flash programs faster than it reads.
func fasterThanReads(q *predict.Request) (notes []string) {
	for _, p := range q.Points {
		if reads := q.Drive.RandomReadIOPS; reads != 0 && p.IOPS > reads {
			notes = append(notes, fmt.Sprintf("a calibration of %s random writes a second is above the %s random reads of the drive: were these writes of 4 KiB, over the whole of it and long enough?",
				render.Rate(p.IOPS), render.Rate(reads)))
		}
	}
	return notes
}

// predictionOf answers a question, and for the curves the same at sizes between
// the largest and half of the smallest.
func predictionOf(q predict.Request, what string) (predictResult, error) {
	answer, err := predict.Predict(q)
	if err != nil {
		return predictResult{}, predictError(err)
	}
	r := predictResult{Answer: answer, What: what, Workload: string(predict.Uniform)}
	r.Notes = append(r.Notes, fasterThanReads(&q)...)
	high, low := uint64(0), uint64(math.MaxUint64)
	for _, s := range q.Sizes {
		high, low = max(high, s), min(low, s)
	}
	high = max(high, q.Drive.CapacityBytes)
	low = min(low, high/2)
	q.Sizes = nil
	for i := range uint64(curvePoints) {
		q.Sizes = append(q.Sizes, high-(high-low)/(curvePoints-1)*i)
	}
	if c, err := predict.Predict(q); err == nil {
		r.curve = c.Points
	}
	return r, nil
}

// planPrediction is what a change of size would do, for the sizes before and
// after; nil where nothing can be told.
func planPrediction(inv namespace.Inventory, p namespace.Plan) *predictResult {
	if p.OverProvisioning == nil {
		return nil
	}
	drive := knownDrive(inv.Identity.Model, inv.Controller.TotalBytes)
	now := uint64(0)
	for _, ns := range p.Before {
		now += ns.SizeBlocks * uint64(ns.Format.DataBytes)
	}
	q := predict.Request{Drive: drive}
	for _, size := range []uint64{now, p.OverProvisioning.UserBytes} {
		if size != 0 && (len(q.Sizes) == 0 || q.Sizes[0] != size) {
			q.Sizes = append(q.Sizes, size)
		}
	}
	r, err := predictionOf(q, inv.Identity.Model)
	if err != nil {
		return nil
	}
	r.brief = true
	return &r
}

// Text lays the prediction out.
func (r predictResult) Text(p *render.Page) {
	p.Line("prediction for %s, %s writes; low to high around the best guess", r.What, r.Workload)
	r.grid(p)
	for i := range r.Points {
		s := &r.Points[i]
		if s.RatedHostBytes != nil {
			p.Line("  %s is warranted for %s of writes: %s", render.Decimal(s.CapacityBytes), decimal(*s.RatedHostBytes), bindsText(s.Binds))
		}
	}
	if r.brief {
		p.Line("  nvop op predict tells what this rests on, and narrows it by what was measured")
		return
	}
	r.curves(p)
	p.Line("\nwhat this rests on (the last column names what makes WAF, rate and life uncertain):")
	for _, a := range r.Assumptions {
		p.Line("  %s: %s", a.ID, a.Text)
	}
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
	if r.Calibrated == 0 {
		p.Line("  one measured point narrows this: --calibrate waf=W,iops=N,at=SIZE, or --run RUN of a soak with random writes")
	}
}

func bindsText(binds string) string {
	switch binds {
	case "rated":
		return "the warranty ends before the flash does"
	case "either":
		return "about where the flash ends"
	}
	return "the flash ends before the warranty does"
}

func (r predictResult) grid(p *render.Page) {
	var rows [][]string
	for i := range r.Points {
		s := &r.Points[i]
		rows = append(rows, []string{
			render.Size(s.CapacityBytes), percentOf(&s.OPOfUserPercent), percentOf(s.SetOPPercent),
			ranged(s.WAF, func(v float64) string { return fmt.Sprintf("%.2f", v) }),
			ranged(s.RandomWriteIOPS, render.Rate), ranged(s.MixedIOPS, render.Rate),
			ranged(s.LifetimeHostBytes, decimal), ranged(s.DWPD, func(v float64) string { return fmt.Sprintf("%.1f", v) }),
			because(s.WAF, s.RandomWriteIOPS, s.LifetimeHostBytes),
		})
	}
	p.Grid([]string{">size", ">OP of flash", ">op set", ">WAF", ">random write IOPS", ">mixed IOPS", ">lifetime", ">DWPD", "by"}, rows)
	if r.Points[0].RandomReadIOPS != nil {
		p.Line("  random reads: %s IOPS at every size", render.Rate(*r.Points[0].RandomReadIOPS))
	}
	if s := &r.Points[0]; s.BurstWriteIOPS != nil {
		p.Line("  random writes after a rest: %s IOPS for %s, into the SLC cache", render.Rate(*s.BurstWriteIOPS), render.Decimal(s.BurstBytes))
	}
}

func percentOf(v *float64) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.1f %%", *v)
}

func decimal(v float64) string { return render.Decimal(uint64(v)) }

// ranged is the best guess with its range.
func ranged(x *predict.Interval, text func(float64) string) string {
	if x == nil {
		return "n/a"
	}
	return fmt.Sprintf("%s (%s-%s)", text(x.Mid), text(x.Low), text(x.High))
}

// because names the assumptions that dominate, each once.
func because(list ...*predict.Interval) string {
	var names []string
	for _, x := range list {
		if x != nil && !strings.Contains(strings.Join(names, " "), x.DominatedBy) {
			names = append(names, x.DominatedBy)
		}
	}
	return strings.Join(names, ", ")
}

// curves draws each quantity over the sizes, largest at the left, as bars.
func (r predictResult) curves(p *render.Page) {
	if len(r.curve) == 0 {
		return
	}
	first, last := &r.curve[0], &r.curve[len(r.curve)-1]
	p.Line("\nfrom %s (OP %.0f %%) at the left to %s (OP %.0f %%) at the right:",
		render.Decimal(first.CapacityBytes), first.OPOfUserPercent, render.Decimal(last.CapacityBytes), last.OPOfUserPercent)
	var lines []string
	for _, c := range []struct {
		name string
		of   func(s *predict.SizeAnswer) *predict.Interval
		text func(float64) string
	}{
		{"WAF", func(s *predict.SizeAnswer) *predict.Interval { return s.WAF }, func(v float64) string { return fmt.Sprintf("%.2f", v) }},
		{"random write IOPS", func(s *predict.SizeAnswer) *predict.Interval { return s.RandomWriteIOPS }, render.Rate},
		{"mixed IOPS", func(s *predict.SizeAnswer) *predict.Interval { return s.MixedIOPS }, render.Rate},
		{"lifetime", func(s *predict.SizeAnswer) *predict.Interval { return s.LifetimeHostBytes }, decimal},
		{"DWPD", func(s *predict.SizeAnswer) *predict.Interval { return s.DWPD }, func(v float64) string { return fmt.Sprintf("%.1f", v) }},
	} {
		if c.of(first) == nil {
			continue
		}
		var values []float64
		for i := range r.curve {
			values = append(values, c.of(&r.curve[i]).Mid)
		}
		lines = append(lines, c.name, fmt.Sprintf("%s  %s to %s", bars(values), c.text(values[0]), c.text(values[len(values)-1])))
	}
	p.Pairs(lines...)
}

// bars draws values between their least and their greatest.
func bars(values []float64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if high > low {
			i = int((v - low) / (high - low) * float64(len(blocks)-1))
		}
		b.WriteRune(blocks[i])
	}
	return b.String()
}
