package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/run"
)

// linesEvery is how many reports, about one a wall second, lie between two
// lines where progress is not drawn on a terminal.
const linesEvery = 10

// groupProgress watches the runs of a group for the user: of one run all there
// is, of several what they do together.
type groupProgress struct {
	mu   sync.Mutex
	out  *render.Progress
	runs []progressOf
	app  *app
}

// progressOf is what is known of one run.
type progressOf struct {
	name string
	last run.Progress
	told bool
	over bool
}

func (a *app) newGroupProgress(sessions []*soakSession) *groupProgress {
	g := &groupProgress{out: render.NewProgress(a.err, terminal(a.err), linesEvery*max(len(sessions), 1)), app: a}
	for _, s := range sessions {
		g.runs = append(g.runs, progressOf{name: s.recorder.ID()})
	}
	return g
}

// memberProgress is the observer of one run.
type memberProgress struct {
	group *groupProgress
	at    int
}

func (g *groupProgress) of(i int) endurance.Observer { return memberProgress{g, i} }

// Progress implements endurance.Observer.
func (m memberProgress) Progress(p *run.Progress) {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.runs[m.at]
	switch was := r.last.Trouble; {
	case was == "" && p.Trouble != "":
		g.app.note("run %s is paused, since nothing can be recorded: %s; tried again every second", r.name, p.Trouble)
	case was != "" && p.Trouble == "" && p.State == run.StateRunning:
		g.app.note("run %s goes on: it can be recorded again", r.name)
	}
	r.last, r.told = *p, true
	if len(g.runs) == 1 {
		g.out.Set(p.DonePermille, r.name+" "+progressText(p))
		return
	}
	g.out.Set(g.together())
}

// ended notes that a run is over, and says so while others go on.
func (g *groupProgress) ended(i int, r soakResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[i].over = true
	if len(g.runs) > 1 {
		g.app.note("run %s on %s has ended: %s, %s", r.Run, r.Serial, r.Verdict, r.Reason)
	}
}

// note writes a remark between two drawings of the progress.
func (g *groupProgress) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.app.note(format, args...)
}

func (g *groupProgress) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.Close()
}

// together sums the runs up.
func (g *groupProgress) together() (int64, string) {
	sum, least, going, left := run.Progress{}, int64(1000), 0, int64(run.NotAvailable)
	hottest, hot := int32(0), false
	for i := range g.runs {
		r := &g.runs[i]
		if !r.told {
			least = 0
			continue
		}
		p := &r.last
		sum.Totals.Add(p.Totals.Counts)
		if r.over {
			continue
		}
		going++
		least = min(least, p.DonePermille)
		sum.WriteIOPS += p.WriteIOPS
		sum.ReadIOPS += p.ReadIOPS
		sum.WriteBytesPerSecond += p.WriteBytesPerSecond
		sum.ReadBytesPerSecond += p.ReadBytesPerSecond
		left = max(left, p.LeftNS)
		if p.Sample != nil {
			if c, ok := p.Sample.TemperatureCelsius(); ok && (!hot || c > hottest) {
				hottest, hot = c, true
			}
		}
	}
	parts := append([]string{fmt.Sprintf("%d of %d runs", going, len(g.runs))}, rates(&sum)...)
	parts = append(parts, render.Decimal(sum.Totals.WriteBytes+sum.Totals.ReadBytes))
	if hot {
		parts = append(parts, fmt.Sprintf("hottest %d C", hottest))
	}
	if left != run.NotAvailable {
		parts = append(parts, render.Duration(time.Duration(left))+" left")
	}
	return least, strings.Join(parts, ", ")
}

func rates(p *run.Progress) []string {
	var parts []string
	if p.WriteIOPS > 0 {
		parts = append(parts, fmt.Sprintf("write %s IOPS %s/s", render.Rate(float64(p.WriteIOPS)), render.Decimal(p.WriteBytesPerSecond)))
	}
	if p.ReadIOPS > 0 {
		parts = append(parts, fmt.Sprintf("read %s IOPS %s/s", render.Rate(float64(p.ReadIOPS)), render.Decimal(p.ReadBytesPerSecond)))
	}
	return parts
}

// progressText is one run in a line.
func progressText(p *run.Progress) string {
	parts := append([]string{string(p.Kind)}, rates(p)...)
	if p.Trouble != "" {
		parts = append(parts, "paused: nothing can be recorded")
	} else if p.Row.Flags&run.FlagPaused != 0 {
		parts = append(parts, "paused to cool down")
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
	return strings.Join(parts, ", ")
}
