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
}

func (r compareResult) Text(p *render.Page) {
	b, a := r.Before, r.After
	row := func(name string, before, after string, ratio *int64) []string {
		text := "-"
		if ratio != nil {
			text = fmt.Sprintf("%.3f", float64(*ratio)/1e6)
		}
		return []string{name, before, after, text}
	}
	p.Grid([]string{"", ">" + b.ID + " " + b.Name, ">" + a.ID + " " + a.Name, ">after/before"}, [][]string{
		row("capacity", render.Size(b.CapacityBytes), render.Size(a.CapacityBytes), nil),
		row("host written", render.Decimal(b.HostWriteBytes), render.Decimal(a.HostWriteBytes), nil),
		row("WAF", wafOf(b), wafOf(a), r.WAFRatioMicro),
		row("write IOPS", rateOf(b.WriteIOPS), rateOf(a.WriteIOPS), r.WriteIOPSRatioMicro),
		row("read IOPS", rateOf(b.ReadIOPS), rateOf(a.ReadIOPS), r.ReadIOPSRatioMicro),
		row("write p99", timeOf(b.WriteP99NS), timeOf(a.WriteP99NS), r.WriteP99RatioMicro),
		row("read p99", timeOf(b.ReadP99NS), timeOf(a.ReadP99NS), r.ReadP99RatioMicro),
		row("health", percentText(b.HealthPercent), percentText(a.HealthPercent), nil),
	})
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
