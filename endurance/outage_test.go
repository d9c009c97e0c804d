package endurance

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"nvop/endurance/run"
)

// told is an observer that keeps each change of what it is told of the journal.
type told struct {
	mu      sync.Mutex
	trouble []string
}

func (o *told) Progress(p *run.Progress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.trouble); n == 0 && p.Trouble != "" || n != 0 && o.trouble[n-1] != p.Trouble {
		o.trouble = append(o.trouble, p.Trouble)
	}
}

// A journal that cannot be written for a while in the midst of a phase of two
// seconds: the phase is at work for two seconds all the same, what it was held for
// is none of them, its rows say so, its events are in order, and whoever watches
// is told when it begins and when it ends.
func TestRun_outageIsNoTimeAtWork(t *testing.T) {
	t.Parallel()
	d, u, o := newDisk(), &unwell{memory: &memory{}}, &told{}
	job := realJob()
	job.Phases[0].Pattern, job.Phases[0].End = run.PatternReplacement, run.End{DurationNS: 2 * second1}
	done, began := make(chan run.Verdict, 1), d.clock.Now()
	go func() {
		v, err := Run(context.Background(), Config{Job: job, Recorder: u, Queues: d.queue(4), Clock: d.clock, Observer: o})
		if err != nil {
			t.Error(err)
		}
		done <- v
	}()
	eventually(t, "something is written", func() bool { return d.bytes.Load() > 0 })
	u.sick.Store(true)
	eventually(t, "longer than the whole phase nothing can be recorded", func() bool { return u.tries.Load() >= 3 })
	select {
	case v := <-done:
		t.Fatalf("it ended meanwhile: %+v", v)
	default:
	}
	u.sick.Store(false)
	v := <-done
	whole := int64(d.clock.Now().Sub(began))
	u.check(t)
	p, _ := v.Measured()
	if p.ActiveNS < second1 || p.ActiveNS+u.cp.OutageNS > whole || u.cp.RunActiveNS != p.ActiveNS || u.cp.Outages != 1 || u.cp.OutageNS < second1*3/2 {
		t.Errorf("at work for %d ns of %d, nothing could be recorded for %d", p.ActiveNS, whole, u.cp.OutageNS)
	}
	sum, paused := int64(0), 0
	for _, r := range u.rows {
		sum += r.ActiveNS
		if r.Flags&run.FlagPaused != 0 {
			paused++
		}
		if r.ActiveNS == second1 && r.Flags&run.FlagPaused != 0 {
			t.Errorf("row %+v", r)
		}
	}
	if sum != p.ActiveNS || paused == 0 || u.cp.PausedNS != 0 {
		t.Errorf("the rows are at work for %d ns, %d of them say that they paused", sum, paused)
	}
	last := int64(0)
	for _, e := range u.events {
		if e.Second < last {
			t.Errorf("%s of second %d follows second %d", e.Kind, e.Second, last)
		}
		last = e.Second
	}
	if len(o.trouble) != 2 || !strings.Contains(o.trouble[0], "no space left") || o.trouble[1] != "" {
		t.Errorf("told: %q", o.trouble)
	}
	if !strings.Contains(strings.Join(v.Notes, "; "), "nothing could be recorded, so nothing was done; that is not counted") || v.ExitCode != 0 {
		t.Errorf("exit %d, notes %q", v.ExitCode, v.Notes)
	}
}

// A simulated run tells it too, and its history is what it is without: in the
// drive's time nothing passes.
func TestSimulate_outageIsTold(t *testing.T) {
	var logs [2]string
	for i := range logs {
		u, o := &unwell{memory: &memory{}}, &told{}
		if i == 1 {
			u.sick.Store(true)
			time.AfterFunc(50*time.Millisecond, func() { u.sick.Store(false) })
		}
		w := newWorld()
		if _, err := simulate(t, Config{Job: testJob(run.PatternRandom), Recorder: u, Observer: o, StartWallUnixNS: 1}, w, virtualClock()); err != nil {
			t.Fatal(err)
		}
		logs[i] = string(u.log)
		if want := 2 * i; len(o.trouble) != want {
			t.Errorf("told: %q", o.trouble)
		}
	}
	if logs[0] != logs[1] {
		t.Error("the history is another one")
	}
}
