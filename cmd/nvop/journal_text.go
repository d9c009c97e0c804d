package main

import (
	"fmt"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/run"
	"nvop/journal"
)

// runHistory is a soak with what happened to it.
type runHistory struct {
	Schema string       `json:"schema"`
	Soak   soakResult   `json:"soak"`
	Header run.Header   `json:"header"`
	Events []run.Event  `json:"events"`
	Gaps   []run.GapRow `json:"gaps"`
}

func (r runHistory) Text(p *render.Page) {
	r.Soak.Text(p)
	p.Title("what it ran on")
	p.Tree(r.Header)
	p.Title("events")
	var rows [][]string
	for _, e := range r.Events {
		rows = append(rows, []string{render.Duration(time.Duration(e.Second) * time.Second), string(e.Kind), e.Text})
	}
	p.Grid([]string{">after", "kind", ""}, rows)
	p.Title("gaps")
	rows = nil
	for _, g := range r.Gaps {
		rows = append(rows, []string{render.Duration(time.Duration(g.Second) * time.Second), fmt.Sprintf("%d s", g.Seconds), g.Reason, render.Count(g.UncountedOpsMax)})
	}
	p.Grid([]string{">after", ">length", "reason", ">uncounted operations at most"}, rows)
}

type compareResult struct {
	Schema string `json:"schema"`
	journal.Comparison
	NoiseBefore *noiseResult    `json:"noise_before"`
	NoiseAfter  *noiseResult    `json:"noise_after"`
	Differences []runDifference `json:"differences"`
}

func (r compareResult) Text(p *render.Page) {
	b, a := r.Before, r.After
	row := func(name string, before, after string, quantity string) []string {
		ratio, half, verdict := "-", "-", "-"
		for _, d := range r.Differences {
			if d.Quantity != quantity || d.Ratio == nil {
				continue
			}
			ratio, verdict = fmt.Sprintf("%.3f", *d.Ratio), d.Verdict
			if d.HalfWidth != nil {
				half = fmt.Sprintf("%.3f", *d.HalfWidth)
			}
		}
		return []string{name, before, after, ratio, half, verdict}
	}
	p.Grid([]string{"", ">" + b.ID + " " + b.Name, ">" + a.ID + " " + a.Name, ">after/before", ">+-", "after is"}, [][]string{
		row("capacity", render.Size(b.CapacityBytes), render.Size(a.CapacityBytes), ""),
		row("host written", render.Decimal(b.HostWriteBytes), render.Decimal(a.HostWriteBytes), ""),
		row("WAF", wafOf(b), wafOf(a), "waf"),
		row("write IOPS", rateOf(b.WriteIOPS), rateOf(a.WriteIOPS), "write_iops"),
		row("read IOPS", rateOf(b.ReadIOPS), rateOf(a.ReadIOPS), "read_iops"),
		row("write p99", timeOf(b.WriteP99NS), timeOf(a.WriteP99NS), "write_latency_p99"),
		row("read p99", timeOf(b.ReadP99NS), timeOf(a.ReadP99NS), "read_latency_p99"),
		row("health", percentText(b.HealthPercent), percentText(a.HealthPercent), ""),
	})
	p.Line("  +- is half of the 95 %% interval of the ratio, by batches of whole rings of garbage collection; - is not told")
	for _, n := range []struct {
		id    string
		noise *noiseResult
	}{{b.ID, r.NoiseBefore}, {a.ID, r.NoiseAfter}} {
		if n.noise == nil {
			continue
		}
		for _, reason := range n.noise.Reasons {
			p.Line("  note: scatter of %s not told %s", n.id, reason)
		}
	}
	if b.Serial != a.Serial {
		p.Line("  note: two drives: %s and %s", b.Serial, a.Serial)
	}
}

func wafOf(m journal.Measured) string {
	if v, ok := m.WAF.Value(); ok {
		return fmt.Sprintf("%.3f", v)
	}
	return "n/a"
}

func rateOf(v *uint64) string {
	if v == nil {
		return "n/a"
	}
	return render.Rate(float64(*v))
}

func timeOf(ns *int64) string {
	if ns == nil {
		return "n/a"
	}
	return render.Duration(time.Duration(*ns))
}
