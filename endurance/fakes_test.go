package endurance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a recorder that keeps everything, checks what must always hold, and
// can fail after so many commits.
type memory struct {
	mu         sync.Mutex
	rows       []run.Row
	gaps       []run.GapRow
	histograms []run.Histogram
	samples    []run.Sample
	events     []run.Event
	mismatches []run.Mismatch
	cp         run.Checkpoint
	verdict    *run.Verdict
	commits    int
	cutAfter   int // 0 never
	log        []byte
}

var errCut = errors.New("the power went")

func (m *memory) Commit(_ context.Context, b *run.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cutAfter != 0 && m.commits >= m.cutAfter {
		return errCut
	}
	m.commits++
	if b.Checkpoint.Number != m.cp.Number+1 {
		return fmt.Errorf("checkpoint %d follows %d", b.Checkpoint.Number, m.cp.Number)
	}
	m.rows = append(m.rows, b.Rows...)
	m.gaps = append(m.gaps, b.Gaps...)
	m.histograms = append(m.histograms, b.Histograms...)
	m.samples = append(m.samples, b.Samples...)
	m.events = append(m.events, b.Events...)
	m.mismatches = append(m.mismatches, b.Mismatches...)
	m.cp = b.Checkpoint
	if b.Verdict != nil {
		v := *b.Verdict
		m.verdict = &v
	}
	log, err := json.Marshal(b)
	m.log = append(append(m.log, log...), '\n')
	return err
}

// check verifies what holds after every commit: rows add up to the totals,
// seconds are complete, marks are in order.
func (m *memory) check(t *testing.T) {
	t.Helper()
	var sum run.Totals
	next := int64(0)
	gaps := append([]run.GapRow(nil), m.gaps...)
	for _, r := range m.rows {
		for len(gaps) != 0 && gaps[0].Second == next {
			next += gaps[0].Seconds
			gaps = gaps[1:]
		}
		if r.Second != next {
			t.Fatalf("row of second %d where %d was due", r.Second, next)
		}
		next++
		sum.Add(r.Counts)
		sum.Rows++
	}
	if sum != m.cp.Totals {
		t.Fatalf("rows add up to %+v, totals are %+v", sum, m.cp.Totals)
	}
	var phases run.Totals
	for _, p := range m.cp.Results {
		phases.Add(p.Totals.Counts)
		phases.Rows += p.Totals.Rows
	}
	if n := len(m.cp.Results); n == 0 || m.cp.Results[n-1].Phase != m.cp.Phase {
		phases.Add(m.cp.PhaseTotals.Counts)
		phases.Rows += m.cp.PhaseTotals.Rows
	}
	// A second in which health was waited for before a phase belongs to none, and
	// nothing happened in it.
	if phases.Rows < m.cp.Totals.Rows {
		phases.Rows = m.cp.Totals.Rows
	}
	if phases != m.cp.Totals {
		t.Fatalf("phases add up to %+v, totals are %+v", phases, m.cp.Totals)
	}
	if m.cp.LowWater > m.cp.ReservedHigh {
		t.Fatalf("low-water mark %d is above the reserved one %d", m.cp.LowWater, m.cp.ReservedHigh)
	}
}

// world is a virtual drive: what was written how often, and a server that takes
// its time. It outlives queues, as a drive does.
type world struct {
	service   int64 // ns an operation occupies the drive
	latency   int64 // ns beyond that
	blockSize int64
	written   map[int64]int
	reads     map[int64]int
	inFlight  map[int64]int // writes by offset
	overlap   bool
	bytes     uint64
	ops       atomic.Uint64
	busy      int64
	// fail gives the status of the n-th operation.
	fail   func(n uint64) (nvmespec.Status, error)
	opened int
}

func newWorld() *world {
	return &world{service: 2000, latency: 9000, blockSize: 4096, written: map[int64]int{}, reads: map[int64]int{}, inFlight: map[int64]int{}}
}

func (w *world) queue(depth int) nvmeioctl.IOQueue {
	if w.opened == 0 {
		w.busy = 0
	}
	w.opened++
	return &virtualQueue{world: w, depth: depth}
}

type virtualResult struct {
	nvmeioctl.IOResult
	offset int64
	write  bool
}

type virtualQueue struct {
	world *world
	depth int
	out   []virtualResult
}

func (q *virtualQueue) Depth() int         { return q.depth }
func (q *virtualQueue) DiscardsData() bool { return true }
func (q *virtualQueue) Close() error       { q.world.opened--; return nil }
func (q *virtualQueue) Submit(r []nvmeioctl.IORequest) (int, error) {
	w := q.world
	for i := range r {
		if len(q.out) >= q.depth {
			return i, nil
		}
		n := w.ops.Add(1)
		x := virtualResult{offset: r[i].OffsetBytes, write: r[i].Op == nvmeioctl.OpWrite}
		x.Tag = r[i].Tag
		if w.fail != nil {
			x.Status, x.Err = w.fail(n)
		}
		w.busy = max(w.busy, int64(r[i].At)) + w.service
		x.Done = nvmeioctl.Instant(w.busy + w.latency)
		if x.write {
			if w.inFlight[x.offset]++; w.inFlight[x.offset] > 1 {
				w.overlap = true
			}
		}
		if x.Status == 0 && x.Err == nil {
			w.bytes += uint64(r[i].LengthBytes)
			if x.write {
				w.written[x.offset]++
			} else {
				w.reads[x.offset]++
			}
		}
		q.out = append(q.out, x)
	}
	sort.SliceStable(q.out, func(i, j int) bool { return q.out[i].Done < q.out[j].Done })
	return len(r), nil
}

func (q *virtualQueue) Reap(res []nvmeioctl.IOResult, until nvmeioctl.Instant) (int, error) {
	n := 0
	for n < len(res) && n < len(q.out) && q.out[n].Done <= until {
		res[n] = q.out[n].IOResult
		if q.out[n].write {
			q.world.inFlight[q.out[n].offset]--
		}
		n++
	}
	q.out = append(q.out[:0], q.out[n:]...)
	return n, nil
}

// testJob writes a small region at random, in passes.
func testJob(patterns ...run.Pattern) run.Job {
	j := run.Job{Seed: 42, CapacityBytes: 4096*1000 + 512, LBABytes: 512, TimeLapse: 1, Workers: 2}
	for i, p := range patterns {
		kind := run.PhaseMeasure
		if i < len(patterns)-1 {
			kind = run.PhasePrecondition
		}
		j.Phases = append(j.Phases, run.Phase{Kind: kind, Pattern: p, BlockBytes: 4096, Depth: 8, End: run.End{Passes: 3}})
	}
	return j
}
