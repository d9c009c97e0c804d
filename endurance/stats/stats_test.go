package stats

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"
)

// latencies draws values as drives give them, and some that they should not.
func latencies(t *rapid.T, label string) []int64 {
	value := rapid.OneOf(
		rapid.Int64Range(0, 300), rapid.Int64Range(5_000, 2_000_000), rapid.Int64Range(0, MaxInRangeNS),
		rapid.Int64Range(MaxInRangeNS-1000, MaxInRangeNS+1000), rapid.Int64Range(0, math.MaxInt64),
	)
	return rapid.SliceOfN(value, 0, 400).Draw(t, label)
}

func TestHistogram_bucketsCoverTheRange(t *testing.T) {
	last := -1
	for v := int64(0); v <= MaxInRangeNS; v += 1 + v/1000 {
		b := bucketOf(v)
		if b < last || b > last+1 && v > 0 && b-last > 1 && v < 256 || b >= buckets {
			t.Fatalf("value %d falls into bucket %d after %d", v, b, last)
		}
		u := upperBound(b)
		if u < v || float64(u-v) > 0.008*float64(v) {
			t.Fatalf("value %d is reported as %d", v, u)
		}
		if bucketOf(u) != b || u != MaxInRangeNS && bucketOf(u+1) != b+1 {
			t.Fatalf("bucket %d does not end at %d", b, u)
		}
		last = b
	}
	if bucketOf(MaxInRangeNS) != buckets-1 {
		t.Errorf("the largest value falls into bucket %d of %d", bucketOf(MaxInRangeNS), buckets)
	}
	if time.Duration(MaxInRangeNS) < time.Hour {
		t.Errorf("the range ends at %v", time.Duration(MaxInRangeNS))
	}
}

// One at a time, in batches, in two histograms that are merged, and after a
// reset: always the same, and right against a sorted list.
func TestHistogram_agreesWithASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := latencies(t, "values")
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		one, batch, left, right := NewHistogram(), NewHistogram(), NewHistogram(), NewHistogram()
		batch.RecordBatch(latencies(t, "garbage"))
		batch.Reset()
		batch.RecordBatch(values[:cut])
		batch.RecordBatch(values[cut:])
		for i, v := range values {
			one.Record(v)
			if i < cut {
				left.Record(v)
			} else {
				right.Record(v)
			}
		}
		left.Merge(right)
		want := encoded(one)
		if !bytes.Equal(encoded(batch), want) || !bytes.Equal(encoded(left), want) {
			t.Fatal("single, batched and merged recording differ")
		}
		back, err := DecodeHistogram(want)
		if err != nil || !bytes.Equal(encoded(back), want) {
			t.Fatalf("%v, or the decoded histogram encodes differently", err)
		}
		checkAgainst(t, one, values)
	})
}

func encoded(h *Histogram) []byte { b, _ := h.AppendBinary(nil); return b }

func checkAgainst(t *rapid.T, h *Histogram, values []int64) {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	n := len(sorted)
	if h.Count() != uint64(n) {
		t.Fatalf("count %d of %d", h.Count(), n)
	}
	low, ok := h.Min()
	high, _ := h.Max()
	if ok != (n > 0) || n > 0 && (low != sorted[0] || high != sorted[n-1]) {
		t.Fatalf("extremes %d, %d, %v", low, high, ok)
	}
	for _, ppm := range []uint32{1, 500_000, 900_000, 990_000, 999_000, 999_999, 1_000_000} {
		got, ok := h.Percentile(ppm)
		enough := n > 0 && (ppm == 1_000_000 || n*(1_000_000-int(ppm)) >= 10_000_000)
		if ok != enough {
			t.Fatalf("percentile %d of %d values: available %v", ppm, n, ok)
		}
		if !ok {
			continue
		}
		rank := (n*int(ppm) + 999_999) / 1_000_000
		exact := sorted[max(rank, 1)-1]
		if exact > MaxInRangeNS {
			if got != high {
				t.Fatalf("percentile %d is out of range, reported %d, maximum %d", ppm, got, high)
			}
			continue
		}
		if got < exact || float64(got-exact) > 0.008*float64(exact) || got > high || got < low {
			t.Fatalf("percentile %d is %d, reported %d, extremes %d, %d", ppm, exact, got, low, high)
		}
	}
}

// HdrHistogram with two significant digits as a second opinion on every bucket.
func TestHistogram_agreesWithHdrHistogram(t *testing.T) {
	ours, theirs := NewHistogram(), hdrhistogram.New(1, MaxInRangeNS, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		v := int64(math.Exp(rng.NormFloat64()*2 + 12))
		ours.Record(v)
		if err := theirs.RecordValue(v); err != nil {
			t.Fatal(err)
		}
	}
	for _, ppm := range []uint32{500_000, 900_000, 990_000, 995_000, 999_000, 999_900} {
		got, _ := ours.Percentile(ppm)
		if want := theirs.ValueAtQuantile(float64(ppm) / 10_000); got != want {
			t.Errorf("percentile %d: %d, HdrHistogram has %d", ppm, got, want)
		}
	}
}

// Case B9: a real maximum of 94.396 s, where another tool clips every
// percentile at 17.1 s.
func TestHistogram_longStall(t *testing.T) {
	h := NewHistogram()
	const stall = 94_396_000_000
	for range 20 {
		h.Record(stall)
	}
	if p, ok := h.Percentile(500_000); !ok || p != stall {
		t.Errorf("median %d, %v", p, ok)
	}
	if h.Overflow() != 0 {
		t.Errorf("%d out of range", h.Overflow())
	}
	h.Record(2 * int64(time.Hour))
	if m, _ := h.Max(); h.Overflow() != 1 || m != 2*int64(time.Hour) {
		t.Errorf("overflow %d, maximum %d", h.Overflow(), m)
	}
}

// Case B10: no percentile exceeds the maximum.
func TestHistogram_percentileWithinExtremes(t *testing.T) {
	h := NewHistogram()
	for range 10_000_000 / 1000 {
		h.RecordBatch(slices.Repeat([]int64{54_776_876}, 1000))
	}
	if p, ok := h.Percentile(999_999); !ok || p != 54_776_876 {
		t.Errorf("p99.9999 is %d (%v), maximum 54776876", p, ok)
	}
}

func TestHistogram_sumIsExactBeyond64Bits(t *testing.T) {
	h := NewHistogram()
	for range 5 {
		h.RecordBatch([]int64{math.MaxInt64, math.MaxInt64})
	}
	hi, lo := h.Sum()
	if hi != 4 || lo != math.MaxUint64-9 {
		t.Errorf("sum %d, %d", hi, lo)
	}
	if mean, _ := h.Mean(); mean != math.MaxInt64 {
		t.Errorf("mean %d", mean)
	}
}

func TestHistogram_allocatesNothing(t *testing.T) {
	h, o := NewHistogram(), NewHistogram()
	values := []int64{9000, 10_000, 2_000_000}
	if n := testing.AllocsPerRun(100, func() {
		h.Record(5)
		h.RecordBatch(values)
		o.Merge(h)
		h.Percentile(990_000)
		h.Reset()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDecodeHistogram_refusesDamage(t *testing.T) {
	h := NewHistogram()
	h.RecordBatch([]int64{9000, 9100, 2_000_000, MaxInRangeNS + 5})
	good := encoded(h)
	for i := range good {
		if _, err := DecodeHistogram(good[:i]); err == nil {
			t.Errorf("%d of %d bytes were accepted", i, len(good))
		}
	}
	if _, err := DecodeHistogram(append(slices.Clone(good), 0)); err == nil {
		t.Error("a byte too many was accepted")
	}
	other := slices.Clone(good)
	other[0] = 2
	if _, err := DecodeHistogram(other); err == nil {
		t.Error("another version was accepted")
	}
}

// What decodes must encode to the same bytes again, so no two encodings mean
// the same and no accepted histogram is inconsistent.
func FuzzDecodeHistogram(f *testing.F) {
	h := NewHistogram()
	f.Add(encoded(h))
	h.RecordBatch([]int64{0, 255, 256, 9000, 2_000_000, MaxInRangeNS, MaxInRangeNS + 5})
	f.Add(encoded(h))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHistogram(b)
		if err != nil {
			return
		}
		again, err := DecodeHistogram(encoded(h))
		if err != nil {
			t.Fatalf("decoded once, not twice: %v", err)
		}
		if again.Count() != h.Count() || !bytes.Equal(encoded(again), encoded(h)) {
			t.Fatal("encoding is not stable")
		}
		low, some := h.Min()
		for _, ppm := range []uint32{1, 500_000, 1_000_000} {
			if p, ok := h.Percentile(ppm); ok {
				high, _ := h.Max()
				if !some || p < low || p > high {
					t.Fatalf("percentile %d is %d, extremes %d, %d", ppm, p, low, high)
				}
			}
		}
		h.Merge(again)
		h.Reset()
	})
}

func TestBatchMeans(t *testing.T) {
	if BatchMeans([]float64{1, 2, 3}, 4).Available || BatchMeans(nil, 2).Available {
		t.Error("too few values gave an interval")
	}
	got := BatchMeans([]float64{100, 1, 3, 2, 4, 3, 5, 4, 6}, 4)
	// Batches (1,3) (2,4) (3,5) (4,6): means 2 3 4 5, mean 3.5, s = 1.291.
	if got.Mean != 3.5 || math.Abs(got.HalfWidth-3.182*1.290994/2) > 1e-3 {
		t.Errorf("%+v", got)
	}
	for df, want := range map[int]float64{1: 12.706, 10: 2.228, 11: 2.201, 20: 2.086, 120: 1.980} {
		if got := student95(df); math.Abs(got-want) > 0.001 {
			t.Errorf("t(%d) = %.4f, tables have %.3f", df, got, want)
		}
	}
	// Coverage: 95 % of intervals hold the mean of a correlated series.
	rng := rand.New(rand.NewPCG(3, 4))
	hit := 0
	for range 400 {
		series := make([]float64, 1600)
		x := 0.0
		for i := range series {
			x = 0.8*x + rng.NormFloat64()
			series[i] = 10 + x
		}
		if b := BatchMeans(series, 10); math.Abs(b.Mean-10) <= b.HalfWidth {
			hit++
		}
	}
	if hit < 360 {
		t.Errorf("%d of 400 intervals hold the mean", hit)
	}
}

func BenchmarkRecordBatch(b *testing.B) {
	h := NewHistogram()
	values := make([]int64, 32)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = 500_000 + rng.Int64N(300_000)
	}
	for b.Loop() {
		h.RecordBatch(values)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/value")
}

// A row's life: some two hundred latencies, merged into a minute, percentiles
// read, cleared.
func BenchmarkRowCycle(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]int64, 200)
	for i := range values {
		values[i] = 500_000 + rng.Int64N(300_000)
	}
	b.Run("ours", func(b *testing.B) {
		row, minute := NewHistogram(), NewHistogram()
		for b.Loop() {
			row.RecordBatch(values)
			row.Percentile(950_000)
			minute.Merge(row)
			row.Reset()
		}
	})
	b.Run("HdrHistogram", func(b *testing.B) {
		row, minute := hdrhistogram.New(1, MaxInRangeNS, 2), hdrhistogram.New(1, MaxInRangeNS, 2)
		for b.Loop() {
			for _, v := range values {
				_ = row.RecordValue(v)
			}
			row.ValueAtQuantile(95)
			minute.Merge(row)
			row.Reset()
		}
	})
}

func ExampleHistogram() {
	h := NewHistogram()
	for us := range int64(1000) {
		h.Record((us + 1) * 1000)
	}
	p99, _ := h.Percentile(990_000)
	_, known := h.Percentile(999_900)
	worst, _ := h.Max()
	fmt.Println(p99, known, worst)
	// Output: 991231 false 1000000
}
