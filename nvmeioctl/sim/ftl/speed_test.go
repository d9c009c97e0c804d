package ftl

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// bareLoop is the least that a page-mapped model can do for a page the host
// writes: (1+W) random touches of tables of the same size, and nothing else.
func bareLoop(l2p, p2l []uint32, x uint64, n int, waf float64) (sum uint32) {
	extra := uint64(waf * (1 << 32)) // touches beside the first, fixed point
	var owed uint64
	var batch [64]uint32
	for done := 0; done < n; done += len(batch) {
		for i := range batch {
			x = x*6364136223846793005 + 1442695040888963407
			batch[i] = uint32((x >> 32) * uint64(len(l2p)) >> 32)
			sum += l2p[batch[i]]
		}
		for _, lpn := range batch {
			l2p[lpn]++
			for owed += extra; owed >= 1<<32; owed -= 1 << 32 {
				x = x*6364136223846793005 + 1442695040888963407
				p2l[(x>>32)*uint64(len(p2l))>>32]++
			}
		}
	}
	return sum
}

// The victim is the first of those with the fewest valid pages, wherever it lies.
func TestVictim_isTheFirstLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for n := 1; n < 40; n++ {
		f := FTL{score: make([]int32, n)}
		for range 50 {
			want := 0
			for i := range f.score {
				f.score[i] = rng.Int32N(8)
				if rng.IntN(4) == 0 {
					f.score[i] += notVictim
				}
				if f.score[i] < f.score[want] {
					want = i
				}
			}
			if got := f.victim(); f.score[want] < notVictim && got != uint32(want) {
				t.Fatalf("victim %d of %v, not %d", got, f.score, want)
			}
		}
	}
}

// speeds are pages a second of the model and of the bare loop, each the best of
// several turns taken one after the other: a shared machine only ever slows down.
func speeds(t testing.TB, op float64, turns int) (model, bare, sequential float64) {
	n := 1 << 22
	if turns == 1 {
		n = 1 << 20
	}
	g := Geometry{Superblocks: 256, PagesPerSuperblock: 1024}
	pages := uint32(g.EffectivePages() / (1 + op))
	f := mustNew(t, Config{LogicalPages: pages, Geometry: g, RatedCycles: 7000})
	rng := rand.NewPCG(1, 2)
	f.WriteRun(0, pages)
	randomWrites(f, rng, pages, int(3*pages))
	l2p, p2l := make([]uint32, pages), make([]uint32, len(f.p2l))
	waf := UniformWAF(1 + op)
	var list [64]uint32
	x := uint64(1)
	for range turns {
		start := time.Now()
		for range n / len(list) {
			for i := range list {
				x = x*6364136223846793005 + 1442695040888963407
				list[i] = uint32((x >> 32) * uint64(pages) >> 32)
			}
			f.WriteBatch(list[:])
		}
		model = max(model, float64(n)/time.Since(start).Seconds())
		start = time.Now()
		bareLoop(l2p, p2l, 1, n, waf)
		bare = max(bare, float64(n)/time.Since(start).Seconds())
	}
	for range turns {
		start, done := time.Now(), 0
		for ; done < n; done += int(pages) {
			f.WriteRun(0, pages)
		}
		if done > 0 {
			sequential = max(sequential, float64(done)/time.Since(start).Seconds())
		}
	}
	return model, bare, sequential
}

// The core loop keeps up with a loop that only touches memory. The full
// measurement runs with NVOP_LONG=1 on a quiet machine; without, nothing is
// asserted of speed, since a test must not depend on who else is at work.
func TestCore_speed(t *testing.T) {
	long := os.Getenv("NVOP_LONG") != ""
	turns := 1
	if long {
		turns = 40
	}
	if raceDetector {
		t.Skip("the race detector is what would be measured")
	}
	for _, op := range []float64{.145, .37} {
		model, bare, sequential := speeds(t, op, turns)
		t.Logf("OP %.3g %%: %.1f million pages a second, bare loop %.1f: %.2f; sequential %.1f (long %v)",
			100*op, model/1e6, bare/1e6, model/bare, sequential/1e6, long)
		if long && (model < 0.85*bare || sequential < 2*model) {
			t.Errorf("OP %.3g %%: %.2f of the bare loop, sequential %.2f of random", 100*op, model/bare, sequential/model)
		}
	}
}

func BenchmarkCore(b *testing.B) {
	for _, op := range []float64{.145, .37} {
		b.Run(fmt.Sprintf("op=%g%%", 100*op), func(b *testing.B) {
			for b.Loop() {
				model, bare, sequential := speeds(b, op, 3)
				b.ReportMetric(model/1e6, "Mpages/s")
				b.ReportMetric(model/bare, "of-bare")
				b.ReportMetric(sequential/1e6, "seq-Mpages/s")
			}
		})
	}
}
