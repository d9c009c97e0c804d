package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/run"
)

// soakResult is how a soak stands or ended. Figures are those of the measured
// phase, totals those of the run.
type soakResult struct {
	Schema  string `json:"schema"`
	Run     string `json:"run"`
	Name    string `json:"name,omitempty"`
	Group   string `json:"group,omitempty"`
	Address string `json:"address"`
	Serial  string `json:"serial"`
	Model   string `json:"model"`
	NSID    uint32 `json:"nsid,omitempty"`
	// Engine is how data was moved, and why that way.
	Engine string `json:"engine,omitempty"`
	State  string `json:"state"`
	// Verdict is "pass", "fail" (a limit or an error), "interrupted" (can be
	// resumed) or "running".
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`

	CapacityBytes uint64 `json:"capacity_bytes"`
	TimeLapse     uint32 `json:"time_lapse"`
	// DurationSeconds is how long the run was at work, thermal pauses among it;
	// ElapsedSeconds is from its beginning to its last second, with the gaps in
	// which nothing was done. Both are on the drive's calendar.
	DurationSeconds float64 `json:"duration_seconds"`
	ElapsedSeconds  float64 `json:"elapsed_seconds"`
	ReadOps         uint64  `json:"read_ops"`
	WriteOps        uint64  `json:"write_ops"`
	ReadBytes       uint64  `json:"read_bytes"`
	WriteBytes      uint64  `json:"write_bytes"`
	ReadErrors      uint64  `json:"read_errors"`
	WriteErrors     uint64  `json:"write_errors"`
	ReadIOPS        uint64  `json:"read_iops"`
	WriteIOPS       uint64  `json:"write_iops"`

	// WAF is nil where it cannot be told; WAFReason says why.
	WAF         *float64 `json:"waf"`
	WAFError    *float64 `json:"waf_error,omitempty"`
	WAFSource   string   `json:"waf_source,omitempty"`
	WAFReason   string   `json:"waf_reason,omitempty"`
	Settled     bool     `json:"settled"`
	SettledRule string   `json:"settled_rule,omitempty"`

	ReadLatency  *latencyResult `json:"read_latency,omitempty"`
	WriteLatency *latencyResult `json:"write_latency,omitempty"`
	// ReadFromDue and WriteFromDue are from when an operation was due under a
	// rate; the two above are from submission.
	ReadFromDue  *latencyResult `json:"read_latency_from_due,omitempty"`
	WriteFromDue *latencyResult `json:"write_latency_from_due,omitempty"`

	HealthPercent *int64            `json:"health_percent"`
	SparePercent  *int64            `json:"spare_percent"`
	Verified      *verifiedResult   `json:"verified,omitempty"`
	Deltas        *run.Deltas       `json:"deltas,omitempty"`
	Limits        []run.LimitResult `json:"limits,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	// Life is shown by soak status.
	Life *lifeResult `json:"life,omitempty"`
	// Noise is by how much rates and latencies scatter.
	Noise *noiseResult `json:"noise,omitempty"`
	// StoppedToo are the other runs that soak stop has ended, of the same process.
	StoppedToo []string `json:"stopped_too,omitempty"`
	Journal    string   `json:"journal"`
}

// latencyResult is submission to completion; nil where too little was measured
// for the percentile.
type latencyResult struct {
	MeanNS  *int64 `json:"mean_ns"`
	P50NS   *int64 `json:"p50_ns"`
	P99NS   *int64 `json:"p99_ns"`
	P999NS  *int64 `json:"p99_9_ns"`
	P9999NS *int64 `json:"p99_99_ns"`
	MaxNS   *int64 `json:"max_ns"`
}

func newLatency(p run.Percentiles) *latencyResult {
	if p.Operations == 0 {
		return nil
	}
	known := func(ns int64) *int64 {
		if ns == run.NotAvailable {
			return nil
		}
		return &ns
	}
	return &latencyResult{known(p.MeanNS), known(p.P50NS), known(p.P99NS), known(p.P999NS), known(p.P9999NS), known(p.MaxNS)}
}

func verdictWord(v run.Verdict) string {
	switch {
	case v.State.Resumable():
		return "interrupted"
	case v.ExitCode == run.ExitDone:
		return "pass"
	}
	return "fail"
}

func newSoakResult(id string, h run.Header, v run.Verdict, journal string) soakResult {
	r := soakResult{
		Schema: "nvop.soak/1", Run: id, Name: h.Name, Group: h.Group, Address: h.Address, Serial: h.Serial, Model: h.Model, NSID: h.NSID, Engine: h.Engine,
		State: string(v.State), Verdict: verdictWord(v), Reason: v.Reason, CapacityBytes: h.Job.CapacityBytes,
		TimeLapse: h.Job.TimeLapse, Limits: v.Limits, Notes: v.Notes, Journal: journal,
	}
	r.totals(v.Totals)
	for _, p := range v.Phases {
		r.DurationSeconds += float64(p.ActiveNS) / 1e9
	}
	if m, ok := v.Measured(); ok {
		r.measured(m)
	}
	r.waf(v.WAF)
	r.health(&v)
	r.Verified = newVerified(&h, &v.Verified)
	return r
}

// elapsed takes how many seconds there are between beginning and end. A run that
// did not last a whole one was at work for no longer than it took.
func (r *soakResult) elapsed(seconds int64) {
	r.ElapsedSeconds = max(float64(seconds), r.DurationSeconds)
}

// why is the reason, where it says more than the state.
func (r soakResult) why() string {
	if r.Reason == r.State {
		return ""
	}
	return r.Reason
}

// durationText is the time at work, and since the beginning where that is longer.
func (r soakResult) durationText() string {
	text := render.Duration(time.Duration(r.DurationSeconds * 1e9))
	if r.ElapsedSeconds >= r.DurationSeconds+2 {
		text += fmt.Sprintf(" at work, %s from beginning to end", render.Duration(time.Duration(r.ElapsedSeconds*1e9)))
	}
	return text
}

// measured takes the figures of the measured phase.
func (r *soakResult) measured(m run.PhaseResult) {
	r.ReadIOPS, r.WriteIOPS = m.ReadIOPS, m.WriteIOPS
	r.ReadLatency, r.WriteLatency = newLatency(m.Read), newLatency(m.Write)
	if m.ReadFromDue != nil {
		r.ReadFromDue, r.WriteFromDue = newLatency(*m.ReadFromDue), newLatency(*m.WriteFromDue)
	}
}

// health takes what the drive says of itself.
func (r *soakResult) health(v *run.Verdict) {
	if v.HealthAvailable {
		r.HealthPercent, r.SparePercent = &v.HealthPercent, &v.SparePercent
	}
	if v.Deltas.Available {
		r.Deltas = &v.Deltas
	}
}

func (r *soakResult) totals(t run.Totals) {
	r.ReadOps, r.WriteOps, r.ReadBytes, r.WriteBytes = t.ReadOps, t.WriteOps, t.ReadBytes, t.WriteBytes
	r.ReadErrors, r.WriteErrors = t.ReadErrors, t.WriteErrors
}

func (r *soakResult) waf(w run.WAF) {
	r.WAFReason = w.Reason
	if value, ok := w.Value(); ok {
		bound := float64(w.ErrorMicro) / 1e6
		r.WAF, r.WAFError, r.WAFSource = &value, &bound, w.Source
		r.Settled, r.SettledRule = w.Settled, w.Rule
	}
}

// wafText is a WAF with what it rests on, or why there is none.
func (r soakResult) wafText() string {
	if r.WAF == nil {
		return orNone(r.WAFReason)
	}
	settled := "not settled"
	if r.Settled {
		settled = "settled"
	}
	return fmt.Sprintf("%.3f +- %.3f, %s (%s)", *r.WAF, *r.WAFError, settled, r.WAFSource)
}

// Text lays the result out.
func (r soakResult) Text(p *render.Page) {
	stands := r.State
	if r.Verdict != r.State {
		stands += ", " + r.Verdict
	}
	p.Line("soak %s on %s %s: %s", r.Run, r.Model, r.Serial, stands)
	lapse := ""
	if r.TimeLapse > 1 {
		lapse = fmt.Sprintf("%d: each operation stands for as many", r.TimeLapse)
	}
	p.Pairs(
		"reason", r.why(), "address", r.Address, "engine", r.Engine, "capacity", render.Size(r.CapacityBytes), "time lapse", lapse,
		"duration", r.durationText(),
		"written", amount(r.WriteOps, r.WriteBytes, r.WriteErrors, r.WriteIOPS), "read", amount(r.ReadOps, r.ReadBytes, r.ReadErrors, r.ReadIOPS),
		"WAF", r.wafText(), "write latency", r.WriteLatency.text(), "read latency", r.ReadLatency.text(),
		"write latency from due", r.WriteFromDue.text(), "read latency from due", r.ReadFromDue.text(),
		"verified", r.Verified.text(), "health", percentText(r.HealthPercent), "spare", percentText(r.SparePercent), "changed meanwhile", deltaText(r.Deltas),
	)
	r.Noise.text(p)
	r.Life.text(p)
	for _, l := range r.Limits {
		state := "not reached"
		if l.Reached {
			state = "reached"
		}
		if !l.Available {
			state = "not reported by the drive"
		}
		p.Line("  limit %s: %s", l.Rule, state)
	}
	if r.Verified != nil {
		for _, m := range r.Verified.Mismatches {
			p.Line("  %s: %s", m.Kind, m.Text)
		}
	}
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
	if len(r.StoppedToo) != 0 {
		p.Line("  stopped too, as runs of the same process: %s", strings.Join(r.StoppedToo, ", "))
	}
	p.Line("  journal: %s", r.Journal)
}

// roomHint adds what to do to an error that may pass: a journal or a drive's file
// that cannot be written, most often because its disk is full.
func (s *soakSession) roomHint(v run.Verdict, err error) error {
	e, ok := errors.AsType[interface {
		error
		Transient() bool
	}](err)
	hint := s.resumeHint(s.recorder.ID(), v)
	if hint == "" || !errors.Is(err, syscall.ENOSPC) && (!ok || !e.Transient()) {
		return err
	}
	return fmt.Errorf("%w; make room for it%s", err, hint)
}

func amount(ops, bytes, failed, iops uint64) string {
	if ops == 0 && failed == 0 {
		return ""
	}
	s := fmt.Sprintf("%s in %s operations", render.Size(bytes), render.Count(ops))
	if iops > 0 {
		s += ", " + render.Rate(float64(iops)) + " IOPS"
	}
	if failed > 0 {
		s += ", " + render.Count(failed) + " failed"
	}
	return s
}

func (l *latencyResult) text() string {
	if l == nil {
		return ""
	}
	one := func(ns *int64) string {
		if ns == nil {
			return "n/a"
		}
		return render.Duration(time.Duration(*ns))
	}
	return fmt.Sprintf("mean %s, p50 %s, p99 %s, p99.9 %s, max %s", one(l.MeanNS), one(l.P50NS), one(l.P99NS), one(l.P999NS), one(l.MaxNS))
}

func percentText(v *int64) string {
	if v == nil {
		return "not reported"
	}
	return fmt.Sprintf("%d %%", *v)
}

func deltaText(d *run.Deltas) string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("media errors %s, unsafe shutdowns %s, thermal transitions %d, new warnings 0x%02x, percentage used +%d",
		d.MediaErrors, d.UnsafeShutdowns, d.ThermalTransitions, d.CriticalWarnings, d.PercentageUsed)
}
