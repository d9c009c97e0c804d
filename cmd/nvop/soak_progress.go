package main

import (
	"fmt"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/run"
)

// linesEvery is how many reports, about one a wall second, lie between two
// lines where progress is not drawn on a terminal.
const linesEvery = 10

// soakProgress watches a run for the user.
type soakProgress struct {
	out *render.Progress
	// what begins each line: the run, or what the demo is at.
	what string
}

func (a *app) newProgress(what string) *soakProgress {
	return &soakProgress{out: render.NewProgress(a.err, terminal(a.err), linesEvery), what: what}
}

// Progress implements endurance.Observer.
func (s *soakProgress) Progress(p *run.Progress) {
	parts := []string{s.what + " " + string(p.Kind)}
	if p.WriteIOPS > 0 {
		parts = append(parts, fmt.Sprintf("write %s IOPS %s/s", render.Rate(float64(p.WriteIOPS)), render.Decimal(p.WriteBytesPerSecond)))
	}
	if p.ReadIOPS > 0 {
		parts = append(parts, fmt.Sprintf("read %s IOPS %s/s", render.Rate(float64(p.ReadIOPS)), render.Decimal(p.ReadBytesPerSecond)))
	}
	parts = append(parts, render.Decimal(p.Totals.WriteBytes+p.Totals.ReadBytes))
	if value, ok := p.WAF.Value(); ok {
		parts = append(parts, fmt.Sprintf("WAF %.3f", value))
	}
	if p.Sample != nil {
		if health, ok := p.Sample.HealthPercent(); ok {
			parts = append(parts, fmt.Sprintf("health %d %%", health))
		}
		if c, ok := p.Sample.TemperatureCelsius(); ok {
			parts = append(parts, fmt.Sprintf("%d C", c))
		}
	}
	if p.LeftNS != run.NotAvailable {
		parts = append(parts, render.Duration(time.Duration(p.LeftNS))+" left")
	}
	s.out.Set(p.DonePermille, strings.Join(parts, ", "))
}

func (s *soakProgress) close() { s.out.Close() }
