package ftl

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// pblaze7 are the published figures of the drive the model is calibrated on.
func pblaze7() Rates {
	return Rates{
		ReadLatency: 54 * time.Microsecond, WriteLatency: 9 * time.Microsecond,
		RandomReadIOPS: 2828e3, SequentialReadBytes: 14.1e9, SequentialWriteBytes: 11e9,
		ProgramNS: 1000, MoveReadNS: 0,
	}
}

func mustServer(t testing.TB, r Rates) *Server {
	t.Helper()
	s, err := NewServer(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type times []int64

func (h times) Len() int           { return len(h) }
func (h times) Less(i, j int) bool { return h[i] < h[j] }
func (h times) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *times) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *times) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// closedLoop keeps depth commands outstanding and returns the commands a
// second and the mean latency.
func closedLoop(depth, n int, op func(at int64) int64) (perSecond float64, latency time.Duration) {
	h := make(times, depth)
	var sum, last int64
	for range n {
		at := h[0]
		done := op(at)
		sum += done - at
		last = max(last, done)
		h[0] = done
		heap.Fix(&h, 0)
	}
	return float64(n) / (float64(last) / 1e9), time.Duration(sum / int64(n))
}

func TestServer_publishedRates(t *testing.T) {
	for _, c := range []struct {
		name  string
		depth int
		want  float64 // per second
		op    func(s *Server, at int64) int64
	}{
		{"random read", 512, 2828e3, func(s *Server, at int64) int64 { return s.Read(at, 4096, false) }},
		{"sequential read", 512, 14.1e9 / 131072, func(s *Server, at int64) int64 { return s.Read(at, 131072, true) }},
		{"sequential write", 512, 11e9 / 131072, func(s *Server, at int64) int64 { return s.Write(at, 131072, 32, true) }},
		{"random write, nothing moved", 256, 1e6, func(s *Server, at int64) int64 { return s.Write(at, 4096, 1, false) }},
		{"read at depth 1", 1, 1e9 / 54e3, func(s *Server, at int64) int64 { return s.Read(at, 4096, false) }},
		{"write at depth 1", 1, 1e9 / 9e3, func(s *Server, at int64) int64 { return s.Write(at, 4096, 1, false) }},
	} {
		s := mustServer(t, pblaze7())
		got, latency := closedLoop(c.depth, 200000, func(at int64) int64 { return c.op(s, at) })
		if math.Abs(got/c.want-1) > 0.002 {
			t.Errorf("%s: %.0f a second, published %.0f", c.name, got, c.want)
		}
		// Little's law.
		if l := float64(c.depth) / got * 1e9; math.Abs(float64(latency)/l-1) > 0.01 {
			t.Errorf("%s: latency %v at depth %d and %.0f a second", c.name, latency, c.depth, got)
		}
	}
}

func TestServer_mixIsHarmonic(t *testing.T) {
	for _, share := range []float64{0.3, 0.7, 0.95} {
		s := mustServer(t, pblaze7())
		rng := rand.New(rand.NewPCG(1, 1))
		got, _ := closedLoop(512, 300000, func(at int64) int64 {
			if rng.Float64() < share {
				return s.Read(at, 4096, false)
			}
			return s.Write(at, 4096, 1, false)
		})
		want := 1 / (share/2828e3 + (1-share)/1e6)
		if math.Abs(got/want-1) > 0.005 {
			t.Errorf("%g reads: %.0f a second, harmonic law %.0f", share, got, want)
		}
	}
}

// The published pair: 411K at 7.68 TB gives 700K at 6.4 TB of the same flash.
func TestServer_randomWritesFollowCollection(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	const flash = 8 << 40 * 1.053
	for _, ratio := range []float64{0, 0.405} {
		r := pblaze7()
		r.ProgramNS, r.MoveReadNS = CalibrateProgram(411e3, UniformWAF(flash/7.68e12), ratio)
		g, err := FitGeometry(300_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ size, want float64 }{{7.68e12, 411e3}, {6.401252745216e12, 700e3}} {
			pages := uint32(g.EffectivePages() * c.size / flash)
			f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
			s := mustServer(t, r)
			rng := rand.NewPCG(1, uint64(c.size))
			f.WriteRun(0, pages)
			randomWrites(f, rng, pages, 3*int(pages))
			got, _ := closedLoop(256, int(pages), func(at int64) int64 {
				randomWrites(f, rng, pages, 1)
				s.Follow(f)
				return s.Write(at, 4096, 1, false)
			})
			want := c.want
			if ratio > 0 && want == 700e3 {
				want = 755e3 // b weighs less where less is moved
			}
			t.Logf("%.2f TB, b/a %g: %.0f IOPS, expected %.0f", c.size/1e12, ratio, got, want)
			if math.Abs(got/want-1) > 0.02 {
				t.Errorf("%.2f TB, b/a %g: %.0f IOPS, expected %.0f", c.size/1e12, ratio, got, want)
			}
		}
	}
}

// Of one kind, a later command never completes before an earlier one, whatever
// the sizes and times of arrival.
func TestServer_order(t *testing.T) {
	s := mustServer(t, pblaze7())
	rng := rand.New(rand.NewPCG(1, 1))
	var at, lastRead, lastWrite int64
	for range 100000 {
		at += rng.Int64N(20000)
		arrive := max(0, at-rng.Int64N(100000))
		n := uint32(512 << rng.IntN(12))
		seq := rng.IntN(2) == 0
		done, last := int64(0), &lastRead
		if rng.IntN(2) == 0 {
			done = s.Read(arrive, n, seq)
		} else {
			done, last = s.Write(arrive, n, (n+4095)/4096, seq), &lastWrite
		}
		if done < *last || done <= arrive {
			t.Fatalf("done at %d, the one before at %d, arrived at %d", done, *last, arrive)
		}
		*last = done
	}
}

func TestServer_power(t *testing.T) {
	s := mustServer(t, pblaze7())
	for _, c := range []struct {
		limit, full uint32
		want        float64
	}{{12, 25, 2828e3 * 12 / 25}, {1, 25, 2828e3 / 12.5}, {25, 25, 2828e3}, {30, 25, 2828e3}, {0, 0, 2828e3}} {
		s.Reset()
		s.SetPower(c.limit, c.full)
		got, _ := closedLoop(512, 100000, func(at int64) int64 { return s.Read(at, 4096, false) })
		if math.Abs(got/c.want-1) > 0.01 {
			t.Errorf("%d of %d: %.0f a second, expected %.0f", c.limit, c.full, got, c.want)
		}
	}
}

func TestRates_validate(t *testing.T) {
	for _, breakIt := range []func(*Rates){
		func(r *Rates) { r.ProgramNS = 0 }, func(r *Rates) { r.RandomReadIOPS = math.NaN() },
		func(r *Rates) { r.SequentialReadBytes = math.Inf(1) }, func(r *Rates) { r.MoveReadNS = -1 },
		func(r *Rates) { r.WriteLatency = -1 }, func(r *Rates) { r.SequentialWriteBytes = -1 },
	} {
		r := pblaze7()
		breakIt(&r)
		if _, err := NewServer(r); err == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}
