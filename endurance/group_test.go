package endurance

import (
	"context"
	"errors"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// Three drives in one run: one vanishes, one has errors, one is fine. Each ends
// as it would alone.
func TestGroup_isolates(t *testing.T) {
	t.Parallel()
	var disks []*disk
	var stores []*memory
	var members []Member
	for i := range 3 {
		d, m := newDisk(), &memory{}
		switch i {
		case 0:
			time.AfterFunc(200*time.Millisecond, func() { d.gone.Store(true) })
		case 1:
			d.failLBA = 80
		}
		disks, stores = append(disks, d), append(stores, m)
		job := realJob()
		members = append(members, Member{Workers: job.Workers, Run: func(ctx context.Context) (run.Verdict, error) {
			return Run(ctx, Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
		}})
	}
	var order []int
	out := Group(context.Background(), members, func(i int, _ Outcome) { order = append(order, i) })
	if len(order) != 3 || order[0] != 0 {
		t.Errorf("they ended in the order %v", order)
	}
	if !errors.Is(out[0].Err, nvmeioctl.ErrDeviceGone) || out[0].Verdict.ExitCode != run.ExitInterrupted {
		t.Errorf("the one that vanished: %+v", out[0])
	}
	if out[1].Err != nil || out[1].Verdict.ExitCode != run.ExitLimits || out[1].Verdict.Totals.WriteOps != 1999 {
		t.Errorf("the one with an error: %+v", out[1])
	}
	if out[2].Err != nil || out[2].Verdict.ExitCode != 0 || len(disks[2].written) != 2000 {
		t.Errorf("the good one: %+v", out[2])
	}
	for i, m := range stores {
		if m.verdict == nil {
			t.Errorf("run %d has no verdict", i)
		}
		m.check(t)
	}
}

// What a job comes to is what it then does.
func TestOutlook_isWhatHappens(t *testing.T) {
	for name, change := range map[string]func(*run.Phase){
		"passes":   func(*run.Phase) {},
		"bytes":    func(p *run.Phase) { p.Pattern, p.End = run.PatternReplacement, run.End{Bytes: 9 << 20} },
		"transfer": func(p *run.Phase) { p.ReadPercent, p.End = 30, run.End{TransferBytes: 9 << 20} },
		"time and rate": func(p *run.Phase) {
			p.End, p.Rate = run.End{DurationNS: 7 * second1}, run.Rate{IOPS: 100, Arrival: run.ArrivalOpen}
		},
		"each pass read back": func(p *run.Phase) { p.Check, p.End = run.CheckEachPass, run.End{Passes: 3} },
		"each pass read back, by time": func(p *run.Phase) {
			p.Check, p.End, p.Rate = run.CheckEachPass, run.End{DurationNS: 160 * second1}, run.Rate{IOPS: 100, Arrival: run.ArrivalOpen}
		},
		"a short block at each pass's end": func(p *run.Phase) { p.BlockBytes, p.Depth, p.End = 1<<20, 1, run.End{Passes: 7} },
		"mix": func(p *run.Phase) {
			p.Pattern, p.End, p.ReadPercent, p.BlockBytes = run.PatternReplacement, run.End{Bytes: 20 << 20}, 50, 16384
			p.Sizes = []run.SizeShare{{Bytes: 4096, Permyriad: 7500}, {Bytes: 16384, Permyriad: 2500}}
			p.Depth = 2
		},
	} {
		w, m := newWorld(), &memory{}
		job := testJob(run.PatternRandom)
		change(&job.Phases[0])
		plan, err := Outlook(&job, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cfg := Config{Job: job, Recorder: m, Queues: func(int) (nvmeioctl.IOQueue, error) { return w.queue(job.MaxDepth()), nil }}
		if job.Checks() {
			cfg.Queues = newMedium(job.LBABytes, 1).queues(job.MaxDepth())
		}
		v, err := Simulate(context.Background(), cfg, virtualClock())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		o := plan[0]
		near := func(what string, got uint64, want float64) {
			if d := float64(got) - want; d > 0.02*want+4096*8 || d < -0.02*want-4096*8 {
				t.Errorf("%s: %d %s, foreseen %.0f", name, got, what, want)
			}
		}
		if !o.Known {
			t.Fatalf("%s: %+v", name, o)
		}
		near("operations", v.Totals.Ops(), o.Operations)
		near("bytes read", v.Totals.ReadBytes, o.ReadBytes)
		near("bytes written", v.Totals.WriteBytes, o.WriteBytes)
	}
	// Without a speed a phase that ends by time comes to nothing that is known.
	job := testJob(run.PatternRandom)
	job.Phases[0].End = run.End{DurationNS: second1}
	if plan, err := Outlook(&job, nil); err != nil || plan[0].Known || !plan[0].DurationKnown {
		t.Errorf("%+v, %v", plan, err)
	}
	plan, err := Outlook(&job, func(*run.Phase) Speed { return Speed{1000, "a guess"} })
	if err != nil || !plan[0].Known || plan[0].Operations != 1000 || plan[0].Basis != "a guess" {
		t.Errorf("%+v, %v", plan, err)
	}
	if n := MemoryBytes(&job, false); n < 32<<20 || n > 64<<20 {
		t.Errorf("%d bytes of memory", n)
	}
}
