package endurance

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
)

// paced is a job of one phase with a rate.
func paced(pattern run.Pattern, rate run.Rate, end run.End) run.Job {
	j := testJob(pattern)
	j.CapacityBytes, j.LBABytes = 4096*1000, 4096
	if rate.Arrival == "" {
		rate.Arrival = run.ArrivalOpen
	}
	j.Phases[0].Rate, j.Phases[0].End = rate, end
	return j
}

// A rate is kept in every second, exactly, whatever the arrival, and a phase that
// ends by time lasts that long.
func TestSimulate_rate(t *testing.T) {
	for _, arrival := range []run.Arrival{run.ArrivalOpen, run.ArrivalClosed} {
		for _, workers := range []uint32{1, 2, 5} {
			w, m := newWorld(), &memory{}
			job := paced(run.PatternReplacement, run.Rate{IOPS: 1000, Arrival: arrival}, run.End{DurationNS: 10 * second1})
			job.Workers, job.Phases[0].ReadPercent = workers, 40
			v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
			if err != nil {
				t.Fatal(err)
			}
			m.check(t)
			if len(m.rows) != 10 {
				t.Errorf("%s, %d workers: %d rows of 10 s", arrival, workers, len(m.rows))
			}
			for _, r := range m.rows {
				if n := r.Ops(); n < 999 || n > 1001 {
					t.Errorf("%s, %d workers: second %d has %d operations", arrival, workers, r.Second, n)
				}
			}
			p, _ := v.Measured()
			if p.WriteFromDue == nil || p.WriteFromDue.Operations != p.Write.Operations || p.WriteFromDue.MaxNS < p.Write.MaxNS || p.LittlePermille != 0 {
				t.Errorf("%s: from due %+v, from submission %+v, Little %d", arrival, p.WriteFromDue, p.Write, p.LittlePermille)
			}
		}
	}
}

// The limits of one direction hold the whole mix back; bytes count as bytes; the
// strictest decides.
func TestSimulate_rateOfADirection(t *testing.T) {
	for _, c := range []struct {
		rate run.Rate
		want uint64 // operations a second
	}{
		{run.Rate{WriteIOPS: 600}, 1000},
		{run.Rate{ReadIOPS: 100}, 250},
		{run.Rate{ReadIOPS: 100, WriteIOPS: 60}, 100},
		{run.Rate{BytesPerSecond: 4096 * 500}, 500},
		{run.Rate{WriteBytesPerSecond: 4096 * 600, IOPS: 2000}, 1000},
	} {
		w, m := newWorld(), &memory{}
		job := paced(run.PatternReplacement, c.rate, run.End{DurationNS: 20 * second1})
		job.Phases[0].ReadPercent = 40
		v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Totals.Ops(); got < 20*c.want-20 || got > 20*c.want+1 {
			t.Errorf("%+v: %d operations in 20 s, want %d a second", c.rate, got, c.want)
		}
	}
}

// Case C2: a rate of less than one block a second does not keep the phase from
// ending in time, with rows for every second.
func TestSimulate_deadlineWithoutSubmissions(t *testing.T) {
	w, m := newWorld(), &memory{}
	job := paced(run.PatternSequential, run.Rate{BytesPerSecond: 100}, run.End{DurationNS: 30 * second1})
	v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	// One at once, the next after 41 s.
	if v.State != run.StateFinished || v.Totals.WriteOps != 1 || len(m.rows) != 30 {
		t.Errorf("%s after %d rows, %d operations", v.State, len(m.rows), v.Totals.WriteOps)
	}
}

// Case C3: pacing counts from the phase's start, so the rate does not drop where
// the region begins again.
func TestSimulate_rateAcrossPasses(t *testing.T) {
	for _, pattern := range []run.Pattern{run.PatternSequential, run.PatternRandom} {
		w, m := newWorld(), &memory{}
		job := paced(pattern, run.Rate{IOPS: 300}, run.End{Passes: 6})
		if _, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock()); err != nil {
			t.Fatal(err)
		}
		m.check(t)
		for _, r := range m.rows[:len(m.rows)-1] {
			if n := r.Ops(); n < 299 || n > 301 {
				t.Errorf("%s: second %d has %d operations", pattern, r.Second, n)
			}
		}
		if len(m.rows) != 20 {
			t.Errorf("%s: %d rows for 6000 operations", pattern, len(m.rows))
		}
	}
}

// Case B11, and a drive too slow for the rate: open arrivals wait ever longer, which the latency
// from when they were due shows and the one from submission does not; closed ones
// do not.
func TestSimulate_openAndClosed(t *testing.T) {
	late := map[run.Arrival]*run.Percentiles{}
	for _, arrival := range []run.Arrival{run.ArrivalOpen, run.ArrivalClosed} {
		w, m := newWorld(), &memory{}
		w.service = 5_000_000 // 200 a second
		job := paced(run.PatternReplacement, run.Rate{IOPS: 400, Arrival: arrival}, run.End{DurationNS: 20 * second1})
		job.Workers, job.Phases[0].Depth = 1, 4
		v, err := simulate(t, Config{Job: job, Recorder: m}, w, virtualClock())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := v.Measured()
		late[arrival] = p.WriteFromDue
		if p.Write.MaxNS > 30_000_000 {
			t.Errorf("%s: from submission up to %d ns", arrival, p.Write.MaxNS)
		}
	}
	if open, closed := late[run.ArrivalOpen].MaxNS, late[run.ArrivalClosed].MaxNS; open < 8*second1 || closed > second1/10 {
		t.Errorf("from due: open up to %d ns, closed up to %d ns", open, closed)
	}
}

// After a kill the rate goes on as it was: what was missed is not caught up with.
func TestSimulate_rateAfterAKill(t *testing.T) {
	w, m := newWorld(), &memory{cutAfter: 12}
	job := paced(run.PatternRandom, run.Rate{IOPS: 500}, run.End{Passes: 20})
	cfg := Config{Job: job, Recorder: m, CheckpointOps: 500}
	if _, err := simulate(t, cfg, w, virtualClock()); err == nil {
		t.Fatal("it was not cut")
	}
	cp := m.cp
	m.cutAfter = 0
	before := len(m.rows)
	cfg.Resume = &cp
	v, err := simulate(t, cfg, w, virtualClock())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t)
	for _, r := range m.rows[before : len(m.rows)-1] {
		if n := r.Ops(); n > 502 {
			t.Errorf("second %d has %d operations", r.Second, n)
		}
	}
	if p, _ := v.Measured(); p.WriteFromDue.Operations == 0 || v.Totals.WriteOps != 20_000 {
		t.Errorf("%+v, %d operations", p.WriteFromDue, v.Totals.WriteOps)
	}
}

// The schedule is exact for years, and its arithmetic does not wrap.
func TestPace_after(t *testing.T) {
	p, err := newPace(&run.Phase{BlockBytes: 4096, Rate: run.Rate{IOPS: 1_000_000, Arrival: run.ArrivalOpen}})
	if err != nil {
		t.Fatal(err)
	}
	year := uint64(365 * 86400 * 1_000_000)
	if got := p.after(year); got < 365*86400*second1 || got > 365*86400*second1+second1/10 {
		t.Errorf("after a year of operations: %d ns", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1, 1<<40).Draw(t, "rate")
		p, err := newPace(&run.Phase{BlockBytes: 4096, Rate: run.Rate{IOPS: rate, Arrival: run.ArrivalOpen}})
		if err != nil {
			t.Fatal(err)
		}
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		if a, b = min(a, b), max(a, b); p.after(a) > p.after(b) || p.after(a) < 0 {
			t.Fatalf("operation %d is due at %d, %d at %d", a, p.after(a), b, p.after(b))
		}
	})
	if _, err := newPace(&run.Phase{BlockBytes: 1 << 30, Rate: run.Rate{BytesPerSecond: 1}}); err == nil {
		t.Error("an operation in 34 years is not refused")
	}
}

// ranges is a queue that knows which bytes have a write in flight.
type ranges struct {
	nvmeioctl.IOQueue
	flying  *[][2]int64
	mine    map[uint32][2]int64
	overlap *bool
}

func (q *ranges) Submit(r []nvmeioctl.IORequest) (int, error) {
	for i := range r {
		if r[i].Op != nvmeioctl.OpWrite {
			continue
		}
		span := [2]int64{r[i].OffsetBytes, r[i].OffsetBytes + int64(r[i].LengthBytes)}
		for _, f := range *q.flying {
			if span[0] < f[1] && f[0] < span[1] {
				*q.overlap = true
			}
		}
		*q.flying = append(*q.flying, span)
		q.mine[r[i].Tag] = span
	}
	return q.IOQueue.Submit(r)
}

func (q *ranges) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	n, err := q.IOQueue.Reap(res, until)
	for _, r := range res[:n] {
		span, ok := q.mine[r.Tag]
		if !ok {
			continue
		}
		delete(q.mine, r.Tag)
		for i, f := range *q.flying {
			if f == span {
				*q.flying = append((*q.flying)[:i], (*q.flying)[i+1:]...)
				break
			}
		}
	}
	return n, err
}

func (q *ranges) DiscardsData() bool { return true }

// Cases A4, A6 and A7: with mixed sizes, skewed or not, no two writes in flight
// ever overlap, of one worker or of two.
func TestSimulate_mixNeverOverlaps(t *testing.T) {
	preset := workload.JESD219(512)
	for name, change := range map[string]func(*run.Phase){
		"jesd219": func(p *run.Phase) {
			p.Sizes, p.AlignBytes, p.Zones = nil, preset.AlignBytes, nil
			for _, s := range preset.Sizes {
				p.Sizes = append(p.Sizes, run.SizeShare(s))
			}
			for _, z := range preset.Zones {
				p.Zones = append(p.Zones, run.Zone(z))
			}
		},
		"zipf":       func(p *run.Phase) { p.ZipfMilli = 1500 },
		"steep zipf": func(p *run.Phase) { p.ZipfMilli = 9000 },
		"unaligned":  func(p *run.Phase) { p.AlignBytes = 512 },
	} {
		for _, workers := range []uint32{1, 3} {
			w, m := newWorld(), &memory{}
			job := testJob(run.PatternReplacement)
			job.CapacityBytes, job.Workers = 150<<20, workers
			p := &job.Phases[0]
			p.BlockBytes, p.ReadPercent, p.Depth = 65536, 40, 16
			p.Sizes = []run.SizeShare{{Bytes: 4096, Permyriad: 5000}, {Bytes: 12288, Permyriad: 3000}, {Bytes: 65536, Permyriad: 2000}}
			p.End = run.End{TransferBytes: 100 << 20}
			change(p)
			var flying [][2]int64
			overlap := false
			cfg := Config{Job: job, Recorder: m, Queues: func(int) (nvmeioctl.IOQueue, error) {
				return &ranges{w.queue(job.MaxDepth()), &flying, map[uint32][2]int64{}, &overlap}, nil
			}}
			v, err := Simulate(context.Background(), cfg, virtualClock())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m.check(t)
			if overlap {
				t.Errorf("%s, %d workers: two writes in flight overlap", name, workers)
			}
			moved := v.Totals.ReadBytes + v.Totals.WriteBytes
			if end := p.End.TransferBytes; moved < end || moved > end+uint64(p.BlockBytes) {
				t.Errorf("%s: %d bytes of %d", name, moved, end)
			}
			if share := float64(v.Totals.ReadOps) / float64(v.Totals.Ops()); share < 0.39 || share > 0.41 {
				t.Errorf("%s: %.3f of the operations read", name, share)
			}
		}
	}
}

// JESD219 on a simulated drive under time lapse: the drive counts what the engine
// does, and one seed gives one history.
func TestSimulate_jesd219UnderTimeLapse(t *testing.T) {
	const lapse = 20000
	var written [2]uint64
	for i := range written {
		d := simulatedDrive(t)
		m := &memory{}
		job := soakJob(lapse, 500)
		p := &job.Phases[1]
		preset := workload.JESD219(512)
		p.Workload, p.ReadPercent, p.BlockBytes, p.AlignBytes = preset.Name, preset.ReadPercent, preset.LargestBytes(), preset.AlignBytes
		for _, s := range preset.Sizes {
			p.Sizes = append(p.Sizes, run.SizeShare(s))
		}
		for _, z := range preset.Zones {
			p.Zones = append(p.Zones, run.Zone(z))
		}
		v, err := Simulate(context.Background(), Config{Job: job, Recorder: m, Sampler: NewAdminSampler(d, 1), Queues: driveQueues(d, lapse)}, d.Clock())
		if err != nil {
			t.Fatal(err)
		}
		m.check(t)
		written[i] = v.Totals.WriteBytes
		if v.Totals.Errors() != 0 || v.ExitCode != 0 {
			t.Errorf("%d operations failed, exit %d, %q", v.Totals.Errors(), v.ExitCode, v.Notes)
		}
		first, last := m.samples[0], m.samples[len(m.samples)-1]
		given := last.Host[0].After.Sub(first.Host[0].After).Lo * last.Host[0].UnitBytes
		// Under time lapse an operation counts K times, and so does the rounding.
		if diff := int64(given) - int64(v.Totals.WriteBytes); diff < -512_000*2 || diff > 512_000*2 {
			t.Errorf("the drive was given %d bytes, the engine counted %d", given, v.Totals.WriteBytes)
		}
		if waf, ok := v.WAF.Value(); !ok || waf < 1 {
			t.Errorf("WAF %v, %v", waf, v.WAF)
		}
	}
	if written[0] != written[1] {
		t.Errorf("one seed, two histories: %d and %d bytes", written[0], written[1])
	}
}
