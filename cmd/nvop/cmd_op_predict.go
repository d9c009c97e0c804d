package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nvop/endurance/predict"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/namespace"
	"nvop/nvmeioctl/sim"
)

type opPredictCmd struct {
	Drive  string   `arg:"" optional:"" help:"The drive; it is only read." placeholder:"DRIVE"`
	Model  string   `help:"A known drive model in place of a drive; nvop sim profiles lists them." placeholder:"PROFILE"`
	Raw    string   `help:"Nominal flash of the drive, the binary capacity of its dies: 8TiB." placeholder:"SIZE"`
	Usable string   `help:"Flash that garbage collection works in, where it is known itself." placeholder:"SIZE"`
	Size   []string `help:"Sizes to predict, by commas: 6.4TB,5.12TB. Whole GB and TB are marketing capacities (default: six from the capacity down)." placeholder:"SIZE,..."`
	Exact  bool     `help:"Take sizes literally, not as marketing capacities."`

	Calibrate []string `sep:"none" help:"Something measured under random 4 KiB writes: waf=1.89,iops=160K,at=745GiB; also floor=1.03, the WAF of sequential writes. Repeatable." placeholder:"KEY=VALUE,..."`
	Runs      []string `help:"Calibrate on soaks in the journal, by ID or name." name:"run" placeholder:"RUN,..."`

	Workload   string   `default:"uniform" help:"What WAF and life are for: uniform, jesd219, zipf:0.8, sequential, or mixed:0.3, the sequential share." placeholder:"CLASS"`
	IO         string   `name:"io" help:"Size of a random write (default: 4KiB)." placeholder:"SIZE"`
	Separation *float64 `help:"How well the drive keeps data of different lifetimes apart, 0 to 1 (default: not known)." placeholder:"S"`
	Mapped     float64  `default:"100" help:"Percent of the size that holds data." placeholder:"PERCENT"`
	Unit       string   `help:"Mapping unit of the drive (default: 4KiB)." placeholder:"SIZE"`
	Floor      float64  `help:"WAF of sequential writes." placeholder:"WAF"`
	Cycles     float64  `help:"Rated program/erase cycles." placeholder:"N"`
	Years      float64  `default:"5" help:"Warranty, for drive writes a day." placeholder:"N"`
	Reads      float64  `default:"70" help:"Percent of reads in the mixed rate." placeholder:"PERCENT"`
}

func (opPredictCmd) Help() string {
	return `Predicts write amplification (WAF), rates and life at other sizes of a drive, without writing. Every answer is a range; each says which assumption makes it wide. One measured point narrows it: soak the drive with --rw randwrite and give the run, or give the figures.

Example:
  nvop op predict /dev/nvme0 --size 6.4TB,5.12TB
  nvop op predict --model pblaze7-7940-7.68tb --calibrate iops=411K,at=7.68TB --size 6.4TB
  nvop op predict --raw 1TiB --calibrate waf=1.888,iops=159545,at=745.06GiB --size 596.05GiB -o json`
}

// predictedSizes are the shares of the capacity that are shown when no size is
// asked for: OP 0, 7, 20, 33, 50 and 100 % of what op set takes.
func predictedSizes() []float64 { return []float64{1, 1 / 1.07, 1 / 1.2, 0.75, 1 / 1.5, 0.5} }

// Run predicts.
func (c opPredictCmd) Run(ctx context.Context, a *app) error {
	q, what, err := c.request(ctx, a)
	if err != nil {
		return err
	}
	r, err := predictionOf(q, what)
	if err != nil {
		return err
	}
	r.Workload = c.Workload
	return a.print(r)
}

// predictError makes what was asked wrongly a usage error.
func predictError(err error) error {
	if errors.Is(err, predict.ErrRequest) {
		return &codedError{exitUsage, err}
	}
	return err
}

// request gathers the question.
func (c opPredictCmd) request(ctx context.Context, a *app) (q predict.Request, what string, err error) {
	given := 0
	for _, text := range []string{c.Drive, c.Model, c.Raw + c.Usable} {
		if text != "" {
			given++
		}
	}
	if given == 0 || c.Drive != "" && c.Model != "" {
		return q, "", usagef("op predict takes a drive, --model or --raw")
	}
	if q.Drive, what, err = c.drive(ctx, a); err != nil {
		return q, "", err
	}
	if err := c.constants(&q); err != nil {
		return q, "", err
	}
	if q.Points, err = c.points(ctx, a, &q.Drive); err != nil {
		return q, "", err
	}
	if q.Workload, err = c.workload(); err != nil {
		return q, "", err
	}
	q.WarrantyYears, q.MixReadPercent = c.Years, c.Reads
	q.Sizes, err = c.sizes(&q)
	return q, what, err
}

// drive is what is known of the drive, and what it is called.
func (c opPredictCmd) drive(ctx context.Context, a *app) (d predict.Drive, what string, err error) {
	switch {
	case c.Drive != "":
		inv, err := a.look(ctx, c.Drive)
		if err != nil {
			return d, "", err
		}
		d = knownDrive(inv.Identity.Model, inv.Controller.TotalBytes)
		return d, inv.Identity.Model + " " + inv.Identity.Serial, nil
	case c.Model != "":
		p, ok := sim.LookupProfile(c.Model)
		if !ok {
			return d, "", usagef("--model %s: no model of that name (nvop sim profiles lists them)", c.Model)
		}
		return profileDrive(p), p.Model, nil
	}
	return d, "a drive", nil
}

// look reads a drive without keeping it open.
func (a *app) look(ctx context.Context, address string) (inv namespace.Inventory, err error) {
	d, err := a.open(address)
	if err != nil {
		return inv, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.inventory(ctx)
}

// knownDrive is what is known of a drive by its model; of an unknown one its
// flash is inferred: the next power of two, which is what dies add up to.
func knownDrive(model string, totalBytes uint64) predict.Drive {
	for _, p := range sim.Profiles() {
		if p.Model == model && (totalBytes == 0 || p.CapacityBytes == totalBytes) {
			return profileDrive(p)
		}
	}
	d := predict.Drive{CapacityBytes: totalBytes, RawInferred: true}
	for raw := uint64(1 << 30); raw < 1<<60 && totalBytes != 0; raw *= 2 {
		if raw > totalBytes {
			d.RawBytes = raw
			break
		}
	}
	return d
}

// profileDrive is what is known of a model.
func profileDrive(p sim.Profile) predict.Drive {
	f := p.Flash
	d := predict.Drive{
		RawBytes: f.NominalBytes, CapacityBytes: p.CapacityBytes, IndirectionBytes: uint64(f.IndirectionBytes),
		FloorWAF: f.FloorWAF, Cycles: float64(f.RatedCycles), CyclesPublished: f.CyclesPublished,
		RandomReadIOPS: f.RandomReadIOPS, MixFactor: f.MixFactor,
		BufferBytes: f.BufferBytes, CacheBytes: p.SLCBytes(), CacheWriteBytesPerSecond: f.SLCWriteBytesPerSecond, Separates: f.Separates,
		Published: []predict.Point{{CapacityBytes: f.RandomWriteBytes, IOPS: f.RandomWriteIOPS}},
	}
	// Where the dies are what such drives have, the usual share of them is as
	// good a guess as the profile's.
	if x := float64(f.UsableBytes) / float64(max(f.NominalBytes, 1)); x < 1.03 || x > 1.075 {
		d.UsableBytes = f.UsableBytes
	}
	for _, r := range f.Ratings {
		d.Ratings = append(d.Ratings, predict.Rating{CapacityBytes: r.CapacityBytes, HostBytes: float64(r.HostBytes)})
	}
	return d
}

// constants lets the flags overrule what is known of the drive.
func (c opPredictCmd) constants(q *predict.Request) error {
	for _, f := range []struct {
		flag, text string
		to         *uint64
	}{{"--raw", c.Raw, &q.Drive.RawBytes}, {"--usable", c.Usable, &q.Drive.UsableBytes}, {"--unit", c.Unit, &q.Drive.IndirectionBytes}} {
		if f.text == "" {
			continue
		}
		n, err := bytesOf(f.flag, f.text)
		if err != nil {
			return err
		}
		*f.to = n
		if f.flag == "--raw" {
			q.Drive.RawInferred, q.Drive.UsableBytes = false, 0
		}
	}
	if c.Floor != 0 {
		q.Drive.FloorWAF = c.Floor
	}
	if c.Cycles != 0 {
		q.Drive.Cycles, q.Drive.CyclesPublished = c.Cycles, true
	}
	return nil
}

// bytesOf reads a size that is no capacity of a namespace.
func bytesOf(flag, text string) (uint64, error) {
	s, err := namespace.ParseSize(text, true)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", flag, err)
	}
	n, ok := s.Bytes()
	if !ok || n == 0 {
		return 0, usagef("%s %s: a size in bytes, such as 8TiB", flag, text)
	}
	return n, nil
}

// capacity reads a size as op set does, for a drive of that total capacity.
func (c opPredictCmd) capacity(text string, total uint64) (uint64, error) {
	s, err := namespace.ParseSize(text, c.Exact)
	if err != nil {
		return 0, err
	}
	if n, ok := s.Bytes(); ok {
		return n, nil
	}
	if total == 0 && s.Kind != namespace.SizeMarketing {
		return 0, usagef("size %s: of what? The drive's capacity is not known", text)
	}
	question := namespace.CapacityQuestion{BlockBytes: 512, TotalBytes: total, AvailableBytes: total}
	if s.Kind == namespace.SizeMarketing {
		question.TotalBytes, question.AvailableBytes = 0, 0 // a prediction may exceed the drive
	}
	r, err := s.Resolve(question)
	return r.Bytes, err
}

func (c opPredictCmd) sizes(q *predict.Request) ([]uint64, error) {
	var sizes []uint64
	for _, text := range c.Size {
		n, err := c.capacity(text, q.Drive.CapacityBytes)
		if err != nil {
			return nil, err
		}
		if n < 4096 {
			return nil, usagef("size %s: not even one block of 4096 bytes", text)
		}
		if have := q.Drive.CapacityBytes; have != 0 && n > have {
			return nil, refusedf("capacity", "size "+text, "", "%s is more than the drive's %s", namespace.Bytes(n), namespace.Bytes(have))
		}
		sizes = append(sizes, n)
	}
	if len(sizes) != 0 {
		return sizes, nil
	}
	top := float64(q.Drive.CapacityBytes)
	if top == 0 {
		// The share of the flash that drives of one write a day export.
		top = 0.873 * max(float64(q.Drive.RawBytes), float64(q.Drive.UsableBytes)/1.05)
	}
	for _, share := range predictedSizes() {
		sizes = append(sizes, uint64(top*share)/4096*4096)
	}
	return sizes, nil
}

// points are those of --calibrate and of runs.
func (c opPredictCmd) points(ctx context.Context, a *app, d *predict.Drive) ([]predict.Point, error) {
	var points []predict.Point
	for _, text := range c.Calibrate {
		p, err := c.point(text)
		if err == nil {
			err = measurable(p, d)
		}
		if err != nil {
			return nil, fmt.Errorf("--calibrate %s: %w", text, err)
		}
		points = append(points, p)
	}
	if len(c.Runs) == 0 {
		return points, nil
	}
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	for _, ref := range c.Runs {
		p, err := runPoint(ctx, j, ref)
		if err != nil {
			return nil, fmt.Errorf("--run %s: %w", ref, err)
		}
		points = append(points, p)
	}
	return points, nil
}

// measurable refuses a point that was measured at a size that the drive cannot have.
func measurable(p predict.Point, d *predict.Drive) error {
	have, what := d.CapacityBytes, "the drive's"
	if have == 0 && !d.RawInferred {
		have, what = d.RawBytes, "the flash's"
	}
	if have != 0 && p.CapacityBytes > have {
		return usagef("at: %s is more than %s %s", namespace.Bytes(p.CapacityBytes), what, namespace.Bytes(have))
	}
	return nil
}

// point reads waf=1.89,iops=160K,floor=1.03,at=745GiB.
func (c opPredictCmd) point(text string) (p predict.Point, err error) {
	for _, pair := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return p, usagef("%q is not KEY=VALUE", pair)
		}
		switch key {
		case "at":
			p.CapacityBytes, err = c.capacity(value, 0)
		case "waf":
			p.WAF, err = plainNumber(value)
		case "floor":
			p.FloorWAF, err = plainNumber(value)
		case "iops":
			p.IOPS, err = plainNumber(value)
		default:
			err = usagef("no key %q: at, waf, iops or floor", key)
		}
		if err != nil {
			return p, err
		}
	}
	if p.CapacityBytes == 0 {
		return p, usagef("at=SIZE says at which size it was measured")
	}
	return p, nil
}

// plainNumber reads a positive number with K or M after it, as rates are written.
func plainNumber(text string) (float64, error) {
	factor := 1.0
	digits := text
	switch {
	case strings.HasSuffix(strings.ToUpper(text), "K"):
		factor, digits = 1e3, text[:len(text)-1]
	case strings.HasSuffix(strings.ToUpper(text), "M"):
		factor, digits = 1e6, text[:len(text)-1]
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(v > 0) || v > 1e12 {
		return 0, usagef("%q is not a positive number", text)
	}
	return v * factor, nil
}

// runPoint is what a soak measured, where it measured what the law is about.
func runPoint(ctx context.Context, j *journal.Journal, ref string) (p predict.Point, err error) {
	info, err := j.FindRun(ctx, ref)
	if err != nil {
		return p, err
	}
	m, err := j.Measure(ctx, info.ID)
	if err != nil {
		return p, err
	}
	job := info.Header.Job
	if m.Phase < 0 || int(m.Phase) >= len(job.Phases) {
		return p, errors.New("the run measured nothing")
	}
	phase := job.Phases[m.Phase]
	if phase.Pattern != run.PatternReplacement || phase.BlockBytes != 4096 || phase.ReadPercent != 0 {
		return p, fmt.Errorf("run %s measured no uniform random 4 KiB writes drawn anew (soak start --rw randwrite --order replacement), which alone the law is about", info.ID)
	}
	p.CapacityBytes = m.CapacityBytes
	if m.WriteIOPS != nil {
		p.IOPS = float64(*m.WriteIOPS)
	}
	if w, ok := m.WAF.Value(); ok && m.WAF.Settled {
		p.WAF, p.WAFError = w, float64(m.WAF.ErrorMicro)/1e6
	}
	if p.WAF == 0 && m.WAF.Reason == "" && !m.WAF.Settled {
		return p, fmt.Errorf("run %s has not settled: %s", info.ID, m.WAF.Rule)
	}
	return p, nil
}

// workload reads the class.
func (c opPredictCmd) workload() (w predict.Workload, err error) {
	name, value, has := strings.Cut(c.Workload, ":")
	w.Kind = predict.Kind(name)
	if has {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return w, usagef("--workload %s: %q is not a number", c.Workload, value)
		}
		switch w.Kind {
		case predict.Zipf:
			w.Theta = v
		case predict.Mixed:
			w.SequentialShare = v
		default:
			return w, usagef("--workload %s: only zipf and mixed take a number", c.Workload)
		}
	} else if w.Kind == predict.Zipf || w.Kind == predict.Mixed {
		return w, usagef("--workload %s takes a number: zipf:0.8, mixed:0.3", name)
	}
	if c.IO != "" {
		if w.IOBytes, err = bytesOf("--io", c.IO); err != nil {
			return w, err
		}
	}
	w.Separation = c.Separation
	if !(c.Mapped > 0) {
		return w, usagef("--mapped %g: percent of the size, above 0", c.Mapped)
	}
	w.MappedRatio = c.Mapped / 100
	return w, nil
}
