package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// resized is a drive of the profile's flash with size bytes of capacity.
func resized(t testing.TB, name string, size uint64, o Options) *Drive {
	t.Helper()
	p, ok := LookupProfile(name)
	if !ok {
		t.Fatalf("no profile %q", name)
	}
	if size != 0 {
		p.CapacityBytes = size
	}
	d, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func openQueue(t testing.TB, d *Drive, nsid uint32, depth int, lapse uint32) nvmeioctl.IOQueue {
	t.Helper()
	q, err := d.Queue(nsid, depth, lapse)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// mediaOf reads the drive's counters as a log page would.
func mediaOf(d *Drive) mediaCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.media.counters()
}

// worker keeps a queue full, as the soak engine does: each slot submits its
// next operation at the moment its last one was done.
type worker struct {
	q       nvmeioctl.IOQueue
	next    func(r *nvmeioctl.IORequest)
	reqs    []nvmeioctl.IORequest
	results []nvmeioctl.IOResult
	started bool

	ops     int
	last    nvmeioctl.Instant
	latency time.Duration // summed
	at      []nvmeioctl.Instant
}

func newWorker(q nvmeioctl.IOQueue, next func(*nvmeioctl.IORequest)) *worker {
	n := q.Depth()
	w := &worker{q: q, next: next, reqs: make([]nvmeioctl.IORequest, n),
		results: make([]nvmeioctl.IOResult, n), at: make([]nvmeioctl.Instant, n)}
	for i := range w.reqs {
		w.reqs[i].Tag = uint32(i)
		next(&w.reqs[i])
	}
	return w
}

// run submits and reaps until n more operations are done. It measures from zero.
func (w *worker) run(t testing.TB, n int) {
	t.Helper()
	w.ops, w.latency = 0, 0
	if !w.started {
		w.started = true
		w.submit(t, w.reqs)
	}
	for w.ops < n {
		done, err := w.q.Reap(w.results, nvmeioctl.Never)
		if err != nil || done == 0 {
			t.Fatalf("reaped %d: %v", done, err)
		}
		for i, r := range w.results[:done] {
			if r.Err != nil || r.Status != 0 {
				t.Fatalf("status %#x, error %v", r.Status, r.Err)
			}
			w.latency += r.Done.Sub(w.at[r.Tag])
			w.last = max(w.last, r.Done)
			w.reqs[i].Tag, w.reqs[i].At = r.Tag, r.Done
			w.next(&w.reqs[i])
		}
		w.ops += done
		w.submit(t, w.reqs[:done])
	}
}

func (w *worker) submit(t testing.TB, reqs []nvmeioctl.IORequest) {
	for i := range reqs {
		w.at[reqs[i].Tag] = reqs[i].At
	}
	if n, err := w.q.Submit(reqs); n != len(reqs) || err != nil {
		t.Fatalf("submitted %d of %d: %v", n, len(reqs), err)
	}
}

// perSecond runs n operations and gives their rate and mean latency.
func (w *worker) perSecond(t testing.TB, n int) (float64, time.Duration) {
	t.Helper()
	from := w.last
	w.run(t, n)
	return float64(w.ops) / w.last.Sub(from).Seconds(), w.latency / time.Duration(w.ops)
}

func randomOps(op nvmeioctl.IOOp, rng *rand.PCG, space uint64, length int32) func(*nvmeioctl.IORequest) {
	n := space / uint64(length)
	return func(r *nvmeioctl.IORequest) {
		r.Op, r.LengthBytes = op, length
		r.OffsetBytes = int64(mulHigh(rng.Uint64(), n)) * int64(length)
	}
}

func sequentialOps(op nvmeioctl.IOOp, space uint64, length int32) func(*nvmeioctl.IORequest) {
	n, at := int64(space/uint64(length)), int64(0)
	return func(r *nvmeioctl.IORequest) {
		r.Op, r.LengthBytes, r.OffsetBytes = op, length, at%n*int64(length)
		at++
	}
}

// scaledSpace is the address space of a namespace under a lapse, whole blocks.
func scaledSpace(d *Drive, lapse uint32) uint64 {
	return d.Profile().CapacityBytes / uint64(lapse) &^ 4095
}

// skipUnderRace skips a test of millions of operations on one goroutine, where
// the race detector finds nothing and takes minutes.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
}

// fill writes the whole scaled space of namespace 1 once, in order.
func fill(t testing.TB, d *Drive, space uint64, lapse uint32) {
	t.Helper()
	q, err := d.Queue(1, 32, lapse)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(q, sequentialOps(nvmeioctl.OpWrite, space, 4096))
	w.run(t, int(space/4096))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// steady fills the drive, overwrites it at random until it has settled, and
// measures the next part drive writes: WAF by the counters, operations a second.
func steady(t testing.TB, d *Drive, lapse uint32, settle, measure float64) (waf, iops float64) {
	t.Helper()
	return steadySize(t, d, d.Profile().CapacityBytes, lapse, settle, measure)
}

// steadySize does it on a namespace 1 of size bytes.
func steadySize(t testing.TB, d *Drive, size uint64, lapse uint32, settle, measure float64) (waf, iops float64) {
	t.Helper()
	space := size / uint64(lapse) &^ 4095
	fill(t, d, space, lapse)
	q := openQueue(t, d, 1, 256, lapse)
	w := newWorker(q, randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, uint64(lapse)), space, 4096))
	w.run(t, int(settle*float64(space/4096)))
	before := mediaOf(d)
	iops, _ = w.perSecond(t, int(measure*float64(space/4096)))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return wafBetween(before, mediaOf(d)), iops
}

func wafBetween(a, b mediaCounters) float64 {
	media, _ := b.MediaWriteBytes.Sub(a.MediaWriteBytes)
	host, _ := b.HostWriteBytes.Sub(a.HostWriteBytes)
	return media.Float64() / host.Float64()
}

// within says that got is within share of want.
func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	t.Logf("%s: %.4g, expected %.4g: %+.2f %%", what, got, want, 100*(got/want-1))
	if !(math.Abs(got/want-1) <= share) {
		t.Errorf("%s: %.6g is not within %g %% of %.6g", what, got, 100*share, want)
	}
}

// The drive of the published figures, before and after a resize by its own
// commands: write amplification by the formula, IOPS as published, and both
// from the counters that a host sees.
func TestDrive_pblaze7Resize(t *testing.T) {
	skipUnderRace(t)
	const name, lapse = "pblaze7-7940-7.68tb", 14000
	d := resized(t, name, 0, Options{Scale: 7000}) // 270 thousand map pages
	w0 := d.Profile().Flash.FloorWAF
	waf1, iops1 := steady(t, d, lapse, 2.5, 2)
	h := host{t, d}
	h.want(deleteCommand(1), 0)
	h.want(createBlocks(idema6400GB/512, 0), 0)
	h.want(attachCommand(1, 1), 0)
	if n := mediaOf(d).MappedBytes[1]; n != 0 {
		t.Errorf("%d bytes of the new namespace are allocated", n)
	}
	waf2, iops2 := steadySize(t, d, idema6400GB, lapse, 2.5, 2)
	within(t, "WAF at 7.68 TB", waf1, w0*3.116, 0.03)
	within(t, "WAF at 6.4 TB", waf2, w0*1.829, 0.03)
	within(t, "ratio", waf1/waf2, 1.70, 0.03)
	within(t, "IOPS at 7.68 TB", iops1, 411e3, 0.05)
	within(t, "IOPS at 6.4 TB", iops2, 700e3, 0.05)
	// Wear: what was programmed over what the flash holds and bears.
	m := mediaOf(d)
	p := d.Profile().Flash
	used := m.MediaWriteBytes.Float64() / w0 / float64(p.UsableBytes) / float64(p.RatedCycles)
	within(t, "used ratio", m.UsedRatio, used, 0.1) // the flash's present contents are not erased yet
}

// A queue sees what becomes of its namespace.
func TestQueue_namespaceChanges(t *testing.T) {
	d := resized(t, "pblaze7-7940-7.68tb", 0, Options{Scale: 7000})
	h := host{t, d}
	q := openQueue(t, d, 1, 4, 1)
	last := int64(d.Profile().CapacityBytes) - 4096
	io := func(offset int64) nvmespec.Status {
		r := []nvmeioctl.IORequest{{Op: nvmeioctl.OpWrite, OffsetBytes: offset, LengthBytes: 4096}}
		var res [1]nvmeioctl.IOResult
		if n, err := q.Submit(r); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := q.Reap(res[:], nvmeioctl.Never); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return res[0].Status
	}
	if s := io(last); s != 0 {
		t.Fatalf("status %#x", s)
	}
	h.want(detachCommand(1, 1), 0)
	if s := io(0); s == 0 {
		t.Error("a detached namespace takes writes")
	}
	h.want(deleteCommand(1), 0)
	if s := io(0); s == 0 {
		t.Error("a deleted namespace takes writes")
	}
	h.want(createBlocks(idema6400GB/512, 0), 0)
	if s := io(0); s == 0 {
		t.Error("a namespace that is not attached takes writes")
	}
	h.want(attachCommand(1, 1), 0)
	if s := io(last); s != statusLBARange {
		t.Errorf("beyond the smaller namespace: status %#x", s)
	}
	if s := io(0); s != 0 {
		t.Errorf("status %#x", s)
	}
	if n := mediaOf(d).HostWriteCommands; n != nvmespec.U128(2) {
		t.Errorf("%v writes counted, 2 were carried out", n)
	}
}

// A drive whose spare blocks are used up can be read and not written.
func TestQueue_wornOut(t *testing.T) {
	skipUnderRace(t)
	p := profile(t, "client-1tb")
	p.Flash.RatedCycles = 1
	d, err := New(p, Options{Scale: 1800})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const lapse = 3600
	space := scaledSpace(d, lapse)
	q := openQueue(t, d, 1, 1, lapse)
	next := randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), space, 4096)
	var res [1]nvmeioctl.IOResult
	one := func(r nvmeioctl.IORequest) nvmespec.Status {
		if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := q.Reap(res[:], nvmeioctl.Never); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return res[0].Status
	}
	var r nvmeioctl.IORequest
	writes := uint64(0)
	for ; writes < 20*space/4096; writes++ {
		if next(&r); one(r) != 0 {
			break
		}
	}
	if res[0].Status != statusReadOnly || mediaOf(d).SpareRatio != 0 {
		t.Errorf("after %d writes: status %#x, spare %g", writes, res[0].Status, mediaOf(d).SpareRatio)
	}
	r.Op = nvmeioctl.OpRead
	if s := one(r); s != 0 {
		t.Errorf("read of a worn drive: status %#x", s)
	}
	if n := mediaOf(d).HostWriteCommands; n != nvmespec.U128(writes*lapse) {
		t.Errorf("%v writes counted, %d were carried out", n, writes*lapse)
	}
}

// A drive that is closed and opened again half way goes on as one that is not.
func TestQueue_continuesFromFile(t *testing.T) {
	skipUnderRace(t)
	p := profile(t, "client-1tb")
	const lapse = 1800
	soak := func(d *Drive, seed uint64) {
		q, err := d.Queue(1, 32, lapse)
		if err != nil {
			t.Fatal(err)
		}
		newWorker(q, randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, seed), scaledSpace(d, lapse), 4096)).run(t, 300_000)
		if err := errors.Join(q.Close(), d.Save(seed)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(reopen bool) []byte {
		path := filepath.Join(t.TempDir(), "drive")
		if err := Create(path, p, Options{Scale: 1800, Seed: 4}); err != nil {
			t.Fatal(err)
		}
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		soak(d, 1)
		if reopen {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d, err = Open(path); err != nil {
				t.Fatal(err)
			}
		}
		soak(d, 2)
		b, err := d.media.MarshalBinary()
		if err := errors.Join(err, d.Close()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(run(false), run(true)) {
		t.Error("the flash is another after closing and opening")
	}
}

// One drive, any lapse: one to one, sampled, and several map pages an operation.
func TestQueue_lapseDoesNotChangeWAF(t *testing.T) {
	skipUnderRace(t)
	const name, scale = "pblaze7-7940-7.68tb", 7000 // 270 thousand map pages
	var base float64
	for _, lapse := range []uint32{scale, 2000, 6000, 10000, 20000} {
		waf, _ := steady(t, resized(t, name, idema6400GB, Options{Scale: scale, Seed: uint64(lapse)}), lapse, 2, 2)
		if lapse == scale {
			base = waf
			continue
		}
		share := 0.01
		if lapse < scale {
			share = 0.02 // sampled
		}
		within(t, fmt.Sprintf("WAF at lapse %d", lapse), waf, base, share)
	}
}

func TestQueue_sequentialAtFloor(t *testing.T) {
	const lapse = 14000
	d := resized(t, "pblaze7-7940-7.68tb", 0, Options{Scale: 7000})
	space := scaledSpace(d, lapse)
	w := newWorker(openQueue(t, d, 1, 64, lapse), sequentialOps(nvmeioctl.OpWrite, space, 131072))
	rate, _ := w.perSecond(t, int(2*space/131072))
	within(t, "bytes a second", rate*131072, 11e9, 0.005)
	before := mediaOf(d)
	rate, _ = w.perSecond(t, int(space/131072))
	within(t, "bytes a second of the third pass", rate*131072, 11e9, 0.005)
	within(t, "WAF", wafBetween(before, mediaOf(d)), d.Profile().Flash.FloorWAF, 1e-6)
}

func TestQueue_publishedRates(t *testing.T) {
	const lapse = 1000
	d := resized(t, "pblaze7-7940-7.68tb", 0, Options{Scale: 7000})
	space := scaledSpace(d, lapse)
	for _, c := range []struct {
		name   string
		depth  int
		next   func(*nvmeioctl.IORequest)
		scale  float64 // of the result
		want   float64
		lapses uint32
	}{
		{"random read", 512, randomOps(nvmeioctl.OpRead, rand.NewPCG(1, 1), space, 4096), 1, 2828e3, lapse},
		{"sequential read", 64, sequentialOps(nvmeioctl.OpRead, space, 131072), 131072, 14.1e9, lapse},
		{"sequential write", 64, sequentialOps(nvmeioctl.OpWrite, space, 131072), 131072, 11e9, lapse},
		{"read at depth 1", 1, randomOps(nvmeioctl.OpRead, rand.NewPCG(1, 2), space, 4096), 1, 1e6 / 54, lapse},
		{"write at depth 1", 1, randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 3), space, 4096), 1, 1e6 / 9, lapse},
	} {
		q := openQueue(t, d, 1, c.depth, c.lapses)
		rate, latency := newWorker(q, c.next).perSecond(t, 50000)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		within(t, c.name, rate*c.scale, c.want, 0.005)
		within(t, c.name+": latency", latency.Seconds(), float64(c.depth)/rate, 0.02)
	}
}

// The mix of the drive's own rates in its present state, by the harmonic law.
func TestQueue_mixIsHarmonic(t *testing.T) {
	skipUnderRace(t)
	const lapse = 14000
	d := resized(t, "pblaze7-7940-7.68tb", idema6400GB, Options{Scale: 7000})
	_, writes := steady(t, d, lapse, 2, 0.5)
	space := scaledSpace(d, lapse)
	rng := rand.NewPCG(3, 3)
	write := randomOps(nvmeioctl.OpWrite, rng, space, 4096)
	read := randomOps(nvmeioctl.OpRead, rng, space, 4096)
	mix := func(r *nvmeioctl.IORequest) {
		if rng.Uint64()%10 < 7 {
			read(r)
		} else {
			write(r)
		}
	}
	got, _ := newWorker(openQueue(t, d, 1, 512, lapse), mix).perSecond(t, 200000)
	within(t, "70/30", got, 1/(0.7/2828e3+0.3/writes), 0.02)
}

// Counters are exact, K-fold, and never go back.
func TestQueue_countersExact(t *testing.T) {
	const lapse = 333
	d := resized(t, "client-1tb", 0, Options{Scale: 1200})
	space := scaledSpace(d, lapse)
	q := openQueue(t, d, 1, 8, lapse)
	rng := rand.New(rand.NewPCG(1, 1))
	w := newWorker(q, func(*nvmeioctl.IORequest) {})
	var want [4]uint64
	last := mediaOf(d)
	for range 2000 {
		r := nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 512 * (1 + rng.Int32N(300))}
		i := 0
		if rng.IntN(2) == 0 {
			r.Op, i = nvmeioctl.OpWrite, 2
		}
		r.OffsetBytes = 512 * rng.Int64N((int64(space)-int64(r.LengthBytes))/512)
		want[i] += lapse
		want[i+1] += uint64(r.LengthBytes) * lapse
		if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := q.Reap(w.results, nvmeioctl.Never); n != 1 || err != nil || w.results[0].Status != 0 {
			t.Fatal(n, err, w.results[0])
		}
		now := mediaOf(d)
		for _, c := range [][2]nvmespec.Uint128{
			{last.HostReadBytes, now.HostReadBytes}, {last.HostWriteBytes, now.HostWriteBytes},
			{last.MediaReadBytes, now.MediaReadBytes}, {last.MediaWriteBytes, now.MediaWriteBytes},
		} {
			if c[1].Cmp(c[0]) < 0 {
				t.Fatalf("%v after %v", c[1], c[0])
			}
		}
		if now.BusyNS < last.BusyNS || now.UsedRatio < last.UsedRatio {
			t.Fatalf("%+v after %+v", now, last)
		}
		last = now
	}
	got := [4]nvmespec.Uint128{last.HostReadCommands, last.HostReadBytes, last.HostWriteCommands, last.HostWriteBytes}
	for i := range want {
		if got[i] != nvmespec.U128(want[i]) {
			t.Errorf("counter %d: %v, expected %d", i, got[i], want[i])
		}
	}
	if last.MediaWriteBytes.Cmp(last.HostWriteBytes) < 0 {
		t.Errorf("media %v, host %v", last.MediaWriteBytes, last.HostWriteBytes)
	}
}

// A write of a part of a mapping unit costs the whole unit, unless it belongs
// to a stream.
func TestQueue_partOfAUnit(t *testing.T) {
	const lapse = 1000
	d := resized(t, "pe501-61.44tb", 0, Options{})
	space := scaledSpace(d, lapse)
	w0 := d.Profile().Flash.FloorWAF
	for _, c := range []struct {
		name string
		next func(*nvmeioctl.IORequest)
		want float64
	}{
		{"random 4 KiB", randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), space, 4096), 4 * w0},
		{"random 16 KiB", randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 2), space&^16383, 16384), w0},
		{"sequential 4 KiB", sequentialOps(nvmeioctl.OpWrite, space, 4096), w0},
	} {
		q := openQueue(t, d, 1, 64, lapse)
		before := mediaOf(d)
		newWorker(q, c.next).run(t, 30000)
		within(t, c.name, wafBetween(before, mediaOf(d)), c.want, 0.001)
	}
}

func TestQueue_statuses(t *testing.T) {
	d := resized(t, "client-1tb", 0, Options{})
	size := int64(d.Profile().CapacityBytes)
	q := openQueue(t, d, 1, 4, 1)
	for _, c := range []struct {
		name string
		r    nvmeioctl.IORequest
		want nvmespec.Status
	}{
		{"last block", nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: size - 512, LengthBytes: 512}, 0},
		{"past the end", nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: size - 512, LengthBytes: 1024}, statusLBARange},
		{"far past the end", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: math.MaxInt64 &^ 511, LengthBytes: 512}, statusLBARange},
		{"before the start", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: -512, LengthBytes: 512}, statusLBARange},
		{"misaligned offset", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: 100, LengthBytes: 512}, statusInvalidField},
		{"misaligned length", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 100}, statusInvalidField},
		{"no length", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite}, statusInvalidField},
		{"negative length", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: -512}, statusInvalidField},
		{"no operation", nvmeioctl.IORequest{LengthBytes: 512}, statusInvalidField},
		{"flush", nvmeioctl.IORequest{Op: nvmeioctl.OpFlush}, 0},
		{"forced write", nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, FUA: true, LengthBytes: 512}, 0},
	} {
		c.r.At, c.r.Tag = 1000, 77
		if n, err := q.Submit([]nvmeioctl.IORequest{c.r}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var res [1]nvmeioctl.IOResult
		n, err := q.Reap(res[:], nvmeioctl.Never)
		if n != 1 || err != nil || res[0].Status != c.want || res[0].Tag != 77 || res[0].Done <= 1000 {
			t.Errorf("%s: %d, %v, %+v; expected status %#x", c.name, n, err, res[0], c.want)
		}
	}
	if got := mediaOf(d); got.HostWriteCommands != nvmespec.U128(1) || got.HostReadCommands != nvmespec.U128(1) {
		t.Errorf("refused commands were counted: %+v", got)
	}
}

func TestQueue_open(t *testing.T) {
	d := resized(t, "pblaze7-7940-7.68tb", 0, Options{})
	for _, depth := range []int{0, -1, maxQueueDepth + 1} {
		if _, err := d.Queue(1, depth, 1); err == nil {
			t.Errorf("depth %d was accepted", depth)
		}
	}
	var status nvmespec.StatusError
	for _, nsid := range []uint32{0, 2, 0xFFFFFFFF} {
		if _, err := d.Queue(nsid, 1, 1); !errors.As(err, &status) {
			t.Errorf("namespace %d: %v", nsid, err)
		}
	}
	most := uint32(d.Profile().CapacityBytes / 4096 / MinLapseUnits)
	openQueue(t, d, 1, 1, most)
	_, err := d.Queue(1, 1, most+1)
	if !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(err.Error(), fmt.Sprint(most)) {
		t.Errorf("lapse %d: %v does not name %d", most+1, err, most)
	}
	q := openQueue(t, d, 1, 3, 0)
	if q.Depth() != 3 || !q.(nvmeioctl.DataDiscarder).DiscardsData() {
		t.Error("depth or discarding")
	}
	reqs := make([]nvmeioctl.IORequest, 5)
	for i := range reqs {
		reqs[i] = nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 4096}
	}
	for _, want := range []int{3, 0} {
		if n, err := q.Submit(reqs); n != want || err != nil {
			t.Errorf("took %d, %v; expected %d", n, err, want)
		}
	}
	res := make([]nvmeioctl.IOResult, 5)
	if n, err := q.Reap(res, 10); n != 0 || err != nil {
		t.Errorf("reaped %d at 10 ns, %v", n, err)
	}
	if n, err := q.Reap(res, nvmeioctl.Never); n != 3 || err != nil {
		t.Errorf("reaped %d, %v", n, err)
	}
	if n, err := q.Reap(res, nvmeioctl.Never); n != 0 || err != nil {
		t.Errorf("reaped %d of nothing, %v", n, err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if _, err := q.Submit(reqs); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed queue took requests: %v", err)
	}
}

// Results come in order of time over all kinds, and only what is done.
func TestQueue_reapOrder(t *testing.T) {
	d := resized(t, "client-1tb", 0, Options{})
	q := openQueue(t, d, 1, 64, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	var at, last nvmeioctl.Instant
	outstanding := map[uint32]bool{}
	tag := uint32(0)
	res := make([]nvmeioctl.IOResult, 7)
	for range 5000 {
		var reqs []nvmeioctl.IORequest
		for range rng.IntN(8) {
			at += nvmeioctl.Instant(rng.IntN(30000))
			tag++
			reqs = append(reqs, nvmeioctl.IORequest{Op: nvmeioctl.IOOp(1 + rng.IntN(4)), Tag: tag, At: at,
				OffsetBytes: 4096 * rng.Int64N(1000), LengthBytes: 4096 * (1 + rng.Int32N(40))})
		}
		n, err := q.Submit(reqs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs[:n] {
			outstanding[r.Tag] = true
		}
		n, err = q.Reap(res, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res[:n] {
			if r.Done > at || !outstanding[r.Tag] {
				t.Fatalf("%+v at %d", r, at)
			}
			if r.Done < last {
				t.Fatalf("%+v after one at %d", r, last)
			}
			last = r.Done
			delete(outstanding, r.Tag)
		}
	}
}

// A queue with a clock of its own while another is open and idle.
func TestQueue_earlierClock(t *testing.T) {
	d := resized(t, "client-1tb", 0, Options{})
	w := newWorker(openQueue(t, d, 1, 1, 1), randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), 1<<30, 4096))
	w.reqs[0].At = nvmeioctl.Instant(time.Hour)
	w.run(t, 10)
	_, latency := newWorker(openQueue(t, d, 1, 1, 1), randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 2), 1<<30, 4096)).perSecond(t, 1000)
	if latency != 15*time.Microsecond {
		t.Errorf("latency %v: the drive is still busy with an earlier clock", latency)
	}
}

func TestQueue_newClock(t *testing.T) {
	d := resized(t, "client-1tb", 0, Options{})
	for range 3 {
		q := openQueue(t, d, 1, 1, 1)
		_, latency := newWorker(q, randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), 1<<30, 4096)).perSecond(t, 1000)
		if latency != 15*time.Microsecond {
			t.Errorf("latency %v: the drive is still busy with an earlier clock", latency)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueue_allocatesNothing(t *testing.T) {
	d := resized(t, "client-1tb", 0, Options{})
	w := newWorker(openQueue(t, d, 1, 64, 100), randomOps(nvmeioctl.OpWrite, rand.NewPCG(1, 1), 1<<30, 4096))
	w.run(t, 1000)
	if n := testing.AllocsPerRun(100, func() { w.run(t, 64) }); n != 0 {
		t.Errorf("%g allocations for 64 operations", n)
	}
}
