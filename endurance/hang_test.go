package endurance

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nvop/endurance/run"
)

// said is the first event of a kind that holds a text.
func (m *memory) said(kind run.EventKind, text string) *run.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.events {
		if m.events[i].Kind == kind && strings.Contains(m.events[i].Text, text) {
			return &m.events[i]
		}
	}
	return nil
}

// eventually waits until something is so, generously: machines are slow.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Case E6: what hangs is named while it hangs, long before the job's stall time
// or the kernel's, and its end is told too.
func TestRun_hangNamed(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.StallNS = 3600 * second1
	job.Phases[0].End = run.End{Passes: 100}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan run.Verdict, 1)
	go func() {
		v, err := Run(ctx, Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock})
		if err != nil {
			t.Error(err)
		}
		done <- v
	}()
	eventually(t, "something is written", func() bool { return d.bytes.Load() > 0 })
	d.stuck.Store(true)
	eventually(t, "the hang is named", func() bool { return m.said(run.EventHung, "no completion for") != nil })
	e := m.said(run.EventHung, "no completion for")
	if !strings.Contains(e.Text, "the write of 8 blocks at LBA") || !strings.Contains(e.Text, "worker") {
		t.Errorf("%q", e.Text)
	}
	d.stuck.Store(false)
	eventually(t, "the end of the hang is told", func() bool { return m.said(run.EventBack, "all operations have come back") != nil })
	cancel()
	<-done
	m.check(t)
}

// Each operation is reported once, when it becomes a second old, whatever else
// goes well meanwhile.
func TestWatchdog(t *testing.T) {
	w := &worker{id: 3, depth: 4, slots: make([]slot, 4), lbaShift: 9}
	busy := func(i int, at time.Duration, lba int64) {
		w.slots[i].busy, w.slots[i].at = true, 0
		w.slots[i].at = w.slots[i].at.Add(at)
		w.slots[i].op.OffsetBytes, w.slots[i].op.LengthBytes = lba*512, 4096
	}
	var dog watchdog
	look := func(at time.Duration) (hang, bool) {
		return dog.look(w, w.slots[3].free.Add(at))
	}
	busy(0, 100*time.Millisecond, 11)
	busy(1, 900*time.Millisecond, 22)
	if h, said := look(time.Second); said {
		t.Errorf("too early: %+v", h)
	}
	if h, said := look(1200 * time.Millisecond); !said || h.count != 1 || h.op != "the read of 8 blocks at LBA 11" {
		t.Errorf("%+v %v", h, said)
	}
	if h, said := look(1400 * time.Millisecond); said {
		t.Errorf("said twice: %+v", h)
	}
	busy(2, 1000*time.Millisecond, 33)
	if h, said := look(2100 * time.Millisecond); !said || h.count != 2 || h.op != "the read of 8 blocks at LBA 22" {
		t.Errorf("%+v %v", h, said)
	}
	w.slots[0].busy, w.slots[1].busy = false, false
	if h, said := look(2300 * time.Millisecond); said {
		t.Errorf("one is still there: %+v", h)
	}
	w.slots[2].busy = false
	if h, said := look(2500 * time.Millisecond); !said || h.count != 0 || h.now.Sub(h.since) != 2400*time.Millisecond {
		t.Errorf("%+v %v", h, said)
	}
	if h, said := look(2700 * time.Millisecond); said {
		t.Errorf("%+v", h)
	}
}

func TestFruitless(t *testing.T) {
	var f fruitless
	var total run.Totals
	for i := range 3 * failingMost {
		total.WriteErrors += 5
		if i%7 == 0 {
			total.WriteOps++ // now and then one goes well
		}
		if f.add(total) {
			t.Fatal("not all of them failed")
		}
	}
	for range failingMost {
		if f.add(total) {
			t.Fatal("nothing at all happened: that is a stall, not a failure")
		}
	}
	for i := 1; ; i++ {
		total.ReadErrors++
		if f.add(total) {
			if f.seconds < failingMost {
				t.Errorf("after %d seconds", i)
			}
			break
		}
		if i > 2*failingMost {
			t.Fatal("never")
		}
	}
}

// full is an error as the journal's on a full file system.
type full struct{}

func (full) Error() string   { return "no space left" }
func (full) Transient() bool { return true }

// unwell is a recorder that fails for a while.
type unwell struct {
	*memory
	sick  atomic.Bool
	tries atomic.Int32
}

func (u *unwell) Commit(ctx context.Context, b *run.Batch) error {
	if u.sick.Load() {
		u.tries.Add(1)
		return full{}
	}
	return u.memory.Commit(ctx, b)
}

// While the journal cannot be written the soak pauses, keeps counting, says so,
// and goes on by itself; nothing is missing from the rows.
func TestRun_journalFull(t *testing.T) {
	t.Parallel()
	d, u := newDisk(), &unwell{memory: &memory{}}
	job := realJob()
	job.Phases[0].End = run.End{Passes: 1000}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan run.Verdict, 1)
	go func() {
		v, err := Run(ctx, Config{Job: job, Recorder: u, Queues: d.queue(4), Clock: d.clock})
		if err != nil {
			t.Error(err)
		}
		done <- v
	}()
	eventually(t, "something is written", func() bool { return d.bytes.Load() > 0 })
	u.sick.Store(true)
	// The second try comes after the first was told of: the workers are held.
	eventually(t, "commits are tried again", func() bool { return u.tries.Load() >= 3 })
	held := d.bytes.Load()
	eventually(t, "and again", func() bool { return u.tries.Load() >= 4 })
	if now := d.bytes.Load(); now != held {
		t.Errorf("%d bytes were written that cannot be recorded", now-held)
	}
	u.sick.Store(false)
	eventually(t, "it goes on", func() bool { return d.bytes.Load() > held && u.said(run.EventContinued, "recorded again") != nil })
	if e := u.said(run.EventPaused, "no space left"); e == nil {
		t.Error("the pause is not told")
	}
	cancel()
	v := <-done
	u.check(t)
	if v.Totals.WriteBytes != d.bytes.Load() {
		t.Errorf("%d bytes counted, %d written", v.Totals.WriteBytes, d.bytes.Load())
	}
	paused := false
	for _, r := range u.rows {
		paused = paused || r.Flags&run.FlagPaused != 0
	}
	if !paused {
		t.Error("no row says that it paused")
	}
}

// A user who ends the run while nothing can be recorded does not wait for ever.
func TestRun_journalFullAndStopped(t *testing.T) {
	t.Parallel()
	d, u := newDisk(), &unwell{memory: &memory{}}
	job := realJob()
	job.Phases[0].End = run.End{Passes: 1000}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Config{Job: job, Recorder: u, Queues: d.queue(4), Clock: d.clock})
		done <- err
	}()
	eventually(t, "something is written", func() bool { return d.bytes.Load() > 0 })
	u.sick.Store(true)
	eventually(t, "commits are tried again", func() bool { return u.tries.Load() >= 2 })
	cancel()
	select {
	case err := <-done:
		if err == nil || strings.Count(err.Error(), "no space left") != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want it said once", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("it waits for a journal that cannot be written")
	}
}
