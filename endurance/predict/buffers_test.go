package predict

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// fifoHit plays writes of classes against a first-in-first-out buffer.
func fifoHit(classes []class, units, space, writes int) float64 {
	rng := rand.New(rand.NewPCG(5, 5))
	queue, in := make([]int, units), make([]bool, space+1)
	for i := range queue {
		queue[i] = space // nothing
	}
	at, hits := 0, 0
	for range writes {
		u, lo, key := rng.Float64(), 0.0, space
		for _, c := range classes {
			if u < c.traffic {
				key = min(int((lo+rng.Float64()*c.space)*float64(space)), space-1)
				break
			}
			u -= c.traffic
			lo += c.space
		}
		if key < space && in[key] {
			hits++
			continue
		}
		in[queue[at]] = false
		queue[at], in[key] = key, true
		at = (at + 1) % units
	}
	return float64(hits) / float64(writes)
}

func TestBufferHit_equalsQueue(t *testing.T) {
	const space = 20_000
	for name, classes := range map[string][]class{
		"uniform": {{1, 1}}, "jesd219": jesdClasses(), "zipf 0.9": zipfClasses(0.9), "zipf 0.95 of as many": zipfRanks(0.95, space), "half a stream": {{1, 0.5}},
	} {
		for _, units := range []int{20, 400, 6000} {
			got, want := bufferHit(classes, float64(units), space), fifoHit(classes, units, space, 400_000)
			// A thousandth is the noise of so many writes.
			if math.Abs(got-want) > 0.02*want+0.0015 {
				t.Errorf("%s, %d units of %d: %.4f found, a queue finds %.4f", name, units, space, got, want)
			}
		}
	}
	if h := bufferHit(jesdClasses(), 0, 100); h != 0 {
		t.Errorf("%g found in no buffer", h)
	}
	if h := bufferHit([]class{{1, 1}}, 200, 100); !(h > 0.999 && h <= 1) {
		t.Errorf("%g found where all fits", h)
	}
}

func told(a Answer, id string) string {
	for _, x := range a.Assumptions {
		if x.ID == id {
			return x.Text
		}
	}
	return ""
}

// A write buffer of a ten-thousandth of the drive changes nothing under uniform
// writes, and saves what zipf rewrites; the answer says so.
func TestPredict_writeBuffer(t *testing.T) {
	ask := func(buffer uint64, w Workload) Answer {
		d := pblaze7()
		d.BufferBytes = buffer
		return predict(t, Request{Drive: d, Sizes: []uint64{idema7680GB}, Workload: w})
	}
	for _, c := range []struct {
		w         Workload
		low, high float64 // WAF with the buffer over that without
	}{
		{Workload{}, 0.9998, 0.99999}, {Workload{Kind: JESD219}, 0.999, 0.9999}, {Workload{Kind: Zipf, Theta: 0.95}, 0.4, 0.9}, {Workload{Kind: Sequential}, 1, 1},
	} {
		without, with := ask(0, c.w), ask(idema7680GB/10_000, c.w)
		r := with.Points[0].WAF.Mid / without.Points[0].WAF.Mid
		if r < c.low || r > c.high {
			t.Errorf("%s: %.5f of the WAF, expected %g to %g", c.w.Kind, r, c.low, c.high)
		}
		if told(without, "write_buffer") != "" || !strings.Contains(told(with, "write_buffer"), "768.2 MB") {
			t.Errorf("%s: %q", c.w.Kind, told(with, "write_buffer"))
		}
	}
}

func TestPredict_slcCache(t *testing.T) {
	d := pblaze7()
	d.CacheBytes, d.CacheWriteBytesPerSecond = 100e9, 6e9
	a := predict(t, Request{Drive: d, Sizes: []uint64{idema7680GB}})
	p := a.Points[0]
	if p.BurstWriteIOPS == nil || math.Abs(*p.BurstWriteIOPS-6e9/4096) > 1 || p.BurstBytes != 100e9 || !strings.Contains(told(a, "slc_cache"), "once more") {
		t.Errorf("%v, %d, %q", p.BurstWriteIOPS, p.BurstBytes, told(a, "slc_cache"))
	}
	without := predict(t, Request{Drive: pblaze7(), Sizes: []uint64{idema7680GB}}).Points[0]
	if *without.WAF != *p.WAF || without.BurstWriteIOPS != nil {
		t.Error("writing that goes on is another with a cache that is full")
	}
}

// A drive that is known to separate is narrower than one that may, and has inside
// what the simulated drive that separates measured.
func TestPredict_separates(t *testing.T) {
	for _, c := range []struct {
		w   Workload
		op  float64
		waf float64 // of the simulated drive, page by page
	}{
		{Workload{Kind: JESD219}, .07, 6.596}, {Workload{Kind: JESD219}, .145, 3.591}, {Workload{Kind: JESD219}, .28, 2.281}, {Workload{Kind: JESD219}, .50, 1.699},
		{Workload{Kind: Zipf, Theta: .8}, .145, 3.872}, {Workload{Kind: Zipf, Theta: .8}, .28, 2.503},
		{Workload{Kind: Zipf, Theta: .95}, .07, 5.449}, {Workload{Kind: Zipf, Theta: .95}, .145, 3.240}, {Workload{Kind: Zipf, Theta: .95}, .50, 1.721},
	} {
		const usable = 297.5 * 512 * 4096 // of that simulation: Zipf depends on how many ranks there are
		ask := func(separates bool) (Interval, string) {
			a := predict(t, Request{Drive: Drive{UsableBytes: usable, FloorWAF: 1, Separates: separates}, Sizes: []uint64{uint64(usable / (1 + c.op))}, Workload: c.w})
			return *a.Points[0].WAF, told(a, "separation")
		}
		open, _ := ask(false)
		known, text := ask(true)
		if !contains(known, c.waf) || known.Low < open.Low || known.High > open.High || !strings.Contains(text, "0.15 to 0.7") {
			t.Errorf("%s at OP %g: %+v, not known %+v, measured %g: %s", c.w.Kind, c.op, known, open, c.waf, text)
		}
	}
}
