package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/jobfile"
	"nvop/endurance/predict"
	"nvop/endurance/run"
	"nvop/journal"
)

type soakCheckCmd struct {
	File      string   `arg:"" type:"path" help:"The run file." placeholder:"FILE"`
	Addresses []string `arg:"" optional:"" name:"addr" help:"Drives to check it against, where the file names none." placeholder:"ADDR"`
	NSID      nsidFlag `name:"nsid" help:"The namespace (default: the one the address names, or the only one)." placeholder:"N"`
}

func (soakCheckCmd) Help() string {
	return `Reads the drives and changes nothing. What a speed is needed for is told by the journal's runs of the same workload, else left open.

Example:
  nvop soak check month.yaml
  nvop soak check month.yaml /dev/nvme0n1 -o json`
}

func (c soakCheckCmd) Run(ctx context.Context, a *app) (err error) {
	f, err := readJobFile(ctx, c.File)
	if err != nil {
		return err
	}
	if len(c.Addresses) == 0 && len(f.Drives) == 0 {
		if err := a.checkMetrics(f.Metrics); err != nil {
			return err
		}
		return a.print(planOfFile(f))
	}
	drives, err := drivesOf(c.Addresses, f)
	if err != nil {
		return err
	}
	flags := soakFlags{NSID: c.NSID}
	flags.Engine, flags.Accept = engineAuto, f.Accept
	g, err := a.newSoakGroup(flags, watchFlags{OnEvent: f.OnEvent, Metrics: f.Metrics})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for _, d := range drives {
		if err := g.add(ctx, d, f); err != nil {
			return inFile(err, c.File)
		}
	}
	if err := a.notOurs(g.watch.Metrics, g.sessions); err != nil {
		return err
	}
	return a.print(g.plan(ctx, f))
}

type soakSchemaCmd struct{}

func (soakSchemaCmd) Help() string { return "Example: nvop soak schema >nvop-soak.schema.json" }

// soakSchemaResult is a document that is printed as it is, in both views.
type soakSchemaResult struct{ json.RawMessage }

func (r soakSchemaResult) Text(p *render.Page) {
	p.Line("%s", strings.TrimRight(string(r.RawMessage), "\n"))
}

func (soakSchemaCmd) Run(a *app) error { return a.print(soakSchemaResult{jobfile.Schema()}) }

// soakPlan is what a soak comes to before it begins.
type soakPlan struct {
	Schema string      `json:"schema"`
	Name   string      `json:"name,omitempty"`
	Drives []drivePlan `json:"drives"`
	// MemoryBytes is about what the process takes, all drives together.
	MemoryBytes uint64 `json:"memory_bytes"`
}

// drivePlan is one drive's. What cannot be told is nil.
type drivePlan struct {
	Address       string      `json:"address,omitempty"`
	Serial        string      `json:"serial,omitempty"`
	Model         string      `json:"model,omitempty"`
	CapacityBytes uint64      `json:"capacity_bytes,omitempty"`
	Engine        string      `json:"engine,omitempty"`
	TimeLapse     uint32      `json:"time_lapse"`
	Phases        []phasePlan `json:"phases"`
	WriteBytes    *uint64     `json:"write_bytes"`
	ReadBytes     *uint64     `json:"read_bytes"`
	DriveWrites   *float64    `json:"drive_writes"`
	Seconds       *float64    `json:"duration_seconds"`
	// WearPercent is by how much percentage used is expected to rise, with its
	// basis.
	WearPercent *float64 `json:"wear_percent"`
	// WearLow and WearHigh are the range of it where it was predicted.
	WearLow   *float64 `json:"wear_percent_low,omitempty"`
	WearHigh  *float64 `json:"wear_percent_high,omitempty"`
	WearBasis string   `json:"wear_basis"`
	// Past is what was written there before; nil where no drive is named.
	Past *drivePast `json:"past,omitempty"`
	// Data is what is written, where it is not whole blocks that all differ.
	Data  string   `json:"data,omitempty"`
	Rules []string `json:"rules,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

type phasePlan struct {
	Kind        string   `json:"kind"`
	Workload    string   `json:"workload"`
	Ends        string   `json:"ends"`
	Operations  *uint64  `json:"operations"`
	WriteBytes  *uint64  `json:"write_bytes"`
	ReadBytes   *uint64  `json:"read_bytes"`
	DriveWrites *float64 `json:"drive_writes"`
	Seconds     *float64 `json:"duration_seconds"`
	// Basis says what duration or amount was estimated from.
	Basis string `json:"basis,omitempty"`
}

// Text lays the plan out.
func (r soakPlan) Text(p *render.Page) {
	for _, d := range r.Drives {
		if d.Address != "" {
			p.Title("%s: %s %s, %s", d.Address, d.Model, d.Serial, render.Size(d.CapacityBytes))
		}
		var rows [][]string
		for _, x := range d.Phases {
			rows = append(rows, []string{x.Kind, x.Workload, x.Ends, bytesOrOpen(x.WriteBytes), bytesOrOpen(x.ReadBytes), numberOrOpen(x.DriveWrites), hoursOrOpen(x.Seconds), x.Basis})
		}
		p.Grid([]string{"phase", "workload", "ends after", ">written", ">read", ">drive writes", ">time", "estimated from"}, rows)
		wear := "not known"
		if d.WearPercent != nil {
			wear = fmt.Sprintf("percentage used +%.2f", *d.WearPercent)
		}
		if d.WearLow != nil {
			wear += fmt.Sprintf(", %.2f to %.2f", *d.WearLow, *d.WearHigh)
		}
		p.Pairs("written", bytesOrOpen(d.WriteBytes), "drive writes", numberOrOpen(d.DriveWrites), "time", hoursOrOpen(d.Seconds),
			"expected wear", wear+" ("+d.WearBasis+")", "written before", d.Past.text(), "data", d.Data, "engine", d.Engine)
		for _, t := range d.Rules {
			p.Line("  %s", t)
		}
		for _, t := range d.Notes {
			p.Line("  note: %s", t)
		}
	}
	p.Line("  memory: about %s", render.Size(r.MemoryBytes))
}

func bytesOrOpen(v *uint64) string {
	if v == nil {
		return "open"
	}
	return render.Decimal(*v)
}

func numberOrOpen(v *float64) string {
	if v == nil {
		return "open"
	}
	if *v >= 100 {
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.3g", *v)
}

func hoursOrOpen(v *float64) string {
	if v == nil {
		return "open"
	}
	return render.Duration(time.Duration(*v * 1e9))
}

// planOfFile is what can be said of a file without a drive: that it is in order,
// checked against a drive of common size in both block sizes.
func planOfFile(f *jobfile.File) soakPlan {
	d := drivePlan{TimeLapse: max(f.TimeLapse, 1), Rules: rulesOf(f.Stops, f.Pause), WearBasis: "no drive is named", Data: dataText(f.Data)}
	for _, p := range f.Phases {
		d.Phases = append(d.Phases, phasePlan{Kind: string(p.Kind), Workload: strings.TrimSpace(p.Workload + p.RW), Ends: endOfFile(&p)})
	}
	return soakPlan{Schema: "nvop.soak-plan/1", Name: f.Name, Drives: []drivePlan{d}}
}

func endOfFile(p *jobfile.Phase) string {
	end := p.End
	if p.Amount != 0 {
		end.TransferBytes = p.Amount
	}
	if p.Written != 0 {
		end.Bytes = p.Written
	}
	return endText(end)
}

func endText(e run.End) string {
	switch {
	case e.Bytes != 0:
		return render.Decimal(e.Bytes)
	case e.TransferBytes != 0:
		return render.Decimal(e.TransferBytes) + " read and written"
	case e.DriveWritesMilli != 0:
		return fmt.Sprintf("%g drive writes", float64(e.DriveWritesMilli)/1000)
	case e.Passes != 0:
		return fmt.Sprintf("%d passes", e.Passes)
	case e.DurationNS != 0:
		return render.Duration(time.Duration(e.DurationNS))
	}
	return "at once"
}

func rulesOf(stops []run.StopRule, pause run.Pause) []string {
	var rules []string
	for _, s := range stops {
		rules = append(rules, "stops at "+s.String())
	}
	if pause != (run.Pause{}) {
		rules = append(rules, fmt.Sprintf("pauses at %d C, goes on at %d C", pause.AtCelsius, pause.ResumeCelsius))
	}
	return rules
}

// dataText is what is written in a few words; nothing for whole blocks that all
// differ.
func dataText(d run.Data) string {
	if d.HeaderOnly {
		return "headers only: it cannot be verified"
	}
	var parts []string
	if d.CompressPermille != 0 {
		parts = append(parts, fmt.Sprintf("compresses %.3g:1", 1000/float64(d.CompressPermille)))
	}
	if d.DedupPermille != 0 {
		parts = append(parts, fmt.Sprintf("repeats %.3g:1", 1000/float64(d.DedupPermille)))
	}
	return strings.Join(parts, ", ")
}

// phaseText is a phase's workload in a few words.
func phaseText(p *run.Phase) string {
	if p.Pattern == run.PatternNone {
		return "nothing"
	}
	what := string(p.Pattern)
	switch {
	case p.Workload != "":
		what = p.Workload
	case len(p.Sizes) != 0:
		what += fmt.Sprintf(" %d sizes up to %s", len(p.Sizes), kib(p.BlockBytes))
	default:
		what += " " + kib(p.BlockBytes)
	}
	switch p.ReadPercent {
	case 0:
		what += " writes"
	case 100:
		what += " reads"
	default:
		what += fmt.Sprintf(" %d %% reads", p.ReadPercent)
	}
	if p.ZipfMilli != 0 {
		what += fmt.Sprintf(", zipf %g", float64(p.ZipfMilli)/1000)
	}
	if len(p.Zones) != 0 && p.Workload == "" {
		what += fmt.Sprintf(", %d zones", len(p.Zones))
	}
	what += fmt.Sprintf(", QD %d", p.Depth)
	if p.Check != "" {
		what += ", verified"
	}
	return what
}

func kib(n uint32) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return fmt.Sprintf("%d B", n)
}

// plan says what every drive of the group comes to.
func (g *soakGroup) plan(ctx context.Context, f *jobfile.File) soakPlan {
	r := soakPlan{Schema: "nvop.soak-plan/1", Name: f.Name, Drives: []drivePlan{}}
	infos, err := g.past(ctx)
	if err != nil {
		g.app.note("neither speeds nor what was written before are known: %v", err)
	}
	for i, s := range g.sessions {
		d := s.plan(ctx, infos)
		r.Drives = append(r.Drives, d)
		memory := endurance.MemoryBytes(&s.job, s.target.header.Simulated)
		if i > 0 {
			memory -= min(memory, 32<<20) // the program is there once
		}
		if s.target.drive != nil && s.target.drive.sim != nil {
			memory += s.target.drive.sim.MemoryBytes()
		}
		r.MemoryBytes += memory
	}
	return r
}

// plan is what the drive comes to.
func (s *soakSession) plan(ctx context.Context, infos []journal.RunInfo) drivePlan {
	h := &s.target.header
	d := drivePlan{
		Address: h.Address, Serial: h.Serial, Model: h.Model, CapacityBytes: s.job.CapacityBytes, Engine: h.Engine, TimeLapse: s.job.TimeLapse,
		Rules: rulesOf(s.job.Stops, s.job.Pause), Phases: []phasePlan{}, Past: &s.past, Data: dataText(s.job.Data), Notes: s.unfilled(),
	}
	outlook, err := endurance.Outlook(&s.job, func(p *run.Phase) endurance.Speed {
		if speed := speedOf(infos, h, p, s.job.Workers); speed.OpsPerSecond != 0 {
			return speed
		}
		return s.predictedSpeed(p)
	})
	if err != nil {
		d.WearBasis = err.Error()
		return d
	}
	total := endurance.PhaseOutlook{Known: true, DurationKnown: true}
	for _, o := range outlook {
		p := &s.job.Phases[o.Phase]
		x := phasePlan{Kind: string(p.Kind), Workload: phaseText(p), Ends: endText(p.End), Basis: o.Basis}
		if o.Known {
			x.Operations, x.WriteBytes, x.ReadBytes = whole(o.Operations), whole(o.WriteBytes), whole(o.ReadBytes)
			x.DriveWrites = ratio(o.WriteBytes, s.job.CapacityBytes)
		}
		if o.DurationKnown {
			x.Seconds = &o.Seconds
		}
		d.Phases = append(d.Phases, x)
		total.Known, total.DurationKnown = total.Known && o.Known, total.DurationKnown && o.DurationKnown
		total.WriteBytes, total.ReadBytes, total.Seconds = total.WriteBytes+o.WriteBytes, total.ReadBytes+o.ReadBytes, total.Seconds+o.Seconds
	}
	if total.Known {
		d.WriteBytes, d.ReadBytes, d.DriveWrites = whole(total.WriteBytes), whole(total.ReadBytes), ratio(total.WriteBytes, s.job.CapacityBytes)
	}
	if total.DurationKnown {
		d.Seconds = &total.Seconds
	}
	s.wear(ctx, &d, outlook)
	return d
}

func whole(v float64) *uint64 {
	n := uint64(math.Round(v))
	return &n
}

func ratio(bytes float64, capacity uint64) *float64 {
	v := bytes / float64(max(capacity, 1))
	return &v
}

// wear estimates what the writes cost: by the prediction for the drive's design,
// where that is known; else by what the drive's life cost it so far, percentage
// used over bytes written, which has the write amplification of that life in it.
func (s *soakSession) wear(ctx context.Context, d *drivePlan, outlook []endurance.PhaseOutlook) {
	sampler := s.target.sampler()
	switch {
	case sampler == nil:
		d.WearBasis = "a file does not wear"
		return
	case d.WriteBytes == nil:
		d.WearBasis = "how much is written is open"
		return
	case *d.WriteBytes == 0:
		none := 0.0
		d.WearPercent, d.WearBasis = &none, "nothing is written"
		return
	}
	if s.predictedWear(d, outlook) {
		return
	}
	sample, err := sampler.Sample(ctx)
	if err != nil {
		d.WearBasis = "the drive's health was not read: " + err.Error()
		return
	}
	const enough = 2 // percent: one is the resolution
	if sample.PercentageUsed < enough || len(sample.Host) == 0 || sample.Host[0].After.IsZero() {
		d.WearBasis = fmt.Sprintf("percentage used is %d so far, too little to go by; nvop op predict tells from the drive's design", sample.PercentageUsed)
		return
	}
	host := sample.Host[0].After
	written := (float64(host.Hi)*math.Exp2(64) + float64(host.Lo)) * float64(sample.Host[0].UnitBytes)
	v := float64(sample.PercentageUsed) * float64(*d.WriteBytes) / written
	d.WearPercent = &v
	d.WearBasis = fmt.Sprintf("as its life so far: %d %% for %s written", sample.PercentageUsed, render.Decimal(uint64(written)))
}

// prediction is what the drive's design gives for the writes of a phase; false
// where the design is not known, or the workload is none that is predicted.
func (s *soakSession) prediction(p *run.Phase) (predict.SizeAnswer, predict.Drive, bool) {
	if s.target.drive == nil {
		return predict.SizeAnswer{}, predict.Drive{}, false
	}
	d := knownDrive(s.target.header.Model, s.target.inv.Controller.TotalBytes)
	w := predict.Workload{Kind: predict.Uniform, IOBytes: uint64(p.MeanBytes(true))}
	switch {
	case strings.HasPrefix(p.Workload, "jesd219"):
		w = predict.Workload{Kind: predict.JESD219}
	case p.Pattern == run.PatternSequential:
		w = predict.Workload{Kind: predict.Sequential}
	case p.ZipfMilli != 0:
		w.Kind, w.Theta = predict.Zipf, float64(p.ZipfMilli)/1000
	case len(p.Zones) != 0 || p.Pattern == run.PatternNone:
		return predict.SizeAnswer{}, d, false
	}
	answer, err := predict.Predict(predict.Request{Drive: d, Sizes: []uint64{s.job.CapacityBytes}, Workload: w})
	if err != nil || len(answer.Points) != 1 {
		return predict.SizeAnswer{}, d, false
	}
	return answer.Points[0], d, true
}

// predictedSpeed is the rate of the drive's design, for what rates are published
// of: streams of 128 KiB, and random operations of 4 KiB at a depth that keeps the
// drive busy.
func (s *soakSession) predictedSpeed(p *run.Phase) endurance.Speed {
	const basis, busy = "the drive's design", 128
	x, d, ok := s.prediction(p)
	switch {
	case !ok || len(p.Sizes) != 0 || p.Check == run.CheckEachPass || p.Depth*s.job.Workers < busy && p.Pattern != run.PatternSequential:
	case p.Pattern == run.PatternSequential && p.ReadPercent == 0 && d.SequentialWriteBytesPerSecond != 0:
		return endurance.Speed{OpsPerSecond: d.SequentialWriteBytesPerSecond / float64(p.BlockBytes), Basis: basis}
	case p.Pattern != run.PatternSequential && p.BlockBytes == 4096 && p.ReadPercent == 0 && x.RandomWriteIOPS != nil:
		return endurance.Speed{OpsPerSecond: x.RandomWriteIOPS.Mid, Basis: basis}
	case p.Pattern != run.PatternSequential && p.BlockBytes == 4096 && p.ReadPercent == 100 && x.RandomReadIOPS != nil:
		return endurance.Speed{OpsPerSecond: *x.RandomReadIOPS, Basis: basis}
	}
	return endurance.Speed{}
}

// predictedWear adds up what each phase takes of the life that its workload leaves
// the drive.
func (s *soakSession) predictedWear(d *drivePlan, outlook []endurance.PhaseOutlook) bool {
	var low, mid, high float64
	for _, o := range outlook {
		if o.WriteBytes == 0 {
			continue
		}
		x, _, ok := s.prediction(&s.job.Phases[o.Phase])
		if !ok || x.LifetimeHostBytes == nil || x.LifetimeHostBytes.Low <= 0 {
			return false
		}
		low += o.WriteBytes / x.LifetimeHostBytes.High * 100
		mid += o.WriteBytes / x.LifetimeHostBytes.Mid * 100
		high += o.WriteBytes / x.LifetimeHostBytes.Low * 100
	}
	d.WearPercent, d.WearLow, d.WearHigh, d.WearBasis = &mid, &low, &high, "the drive's design: rated cycles and write amplification"
	return true
}

// speedOf looks for the last run of the same workload on this drive, else on one
// of the same model.
func speedOf(infos []journal.RunInfo, h *run.Header, p *run.Phase, workers uint32) endurance.Speed {
	best := endurance.Speed{}
	same := false
	for _, info := range infos {
		if info.Verdict == nil || info.Header.Model != h.Model || info.Header.Job.Workers != workers {
			continue
		}
		drive := info.Header.Serial == h.Serial
		if same && !drive {
			continue
		}
		for _, r := range info.Verdict.Phases {
			if int(r.Phase) >= len(info.Header.Job.Phases) || r.ReadIOPS+r.WriteIOPS == 0 {
				continue
			}
			q := &info.Header.Job.Phases[r.Phase]
			if !endurance.SameWorkload(p, q) || q.Depth != p.Depth || q.Rate.Limited() {
				continue
			}
			same = drive
			best = endurance.Speed{OpsPerSecond: float64(r.ReadIOPS + r.WriteIOPS), Basis: "run " + info.ID}
		}
	}
	return best
}
