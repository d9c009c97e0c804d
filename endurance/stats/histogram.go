// Package stats counts and summarises: latency histograms, confidence
// intervals, least squares.
//
// It does no I/O, knows no drive and imports nothing of ours. Everything on
// the path of an operation ([Histogram.Record], [Histogram.RecordBatch])
// allocates nothing.
package stats

import (
	"math/bits"
)

const (
	// subBits is how many bits of a value below its highest one are kept: 128
	// buckets an octave, so a bucket is at most 1/128 = 0.78 % wide.
	subBits = 7
	// rangeBits bounds what a bucket holds: 2^42 ns is 73 minutes.
	rangeBits = 42
	// buckets is the index of the largest value in range, plus one.
	buckets = (rangeBits-subBits-1)<<subBits + 1<<(subBits+1)
)

// MaxInRangeNS is the largest latency that a bucket holds, in nanoseconds (73
// minutes); longer ones are counted in Overflow, and in Max exactly.
const MaxInRangeNS = 1<<rangeBits - 1

// Histogram counts latencies in nanoseconds in buckets whose width is at most
// 0.78 % of the value; minimum, maximum, sum and count are exact. The zero
// value is not ready: make one with [NewHistogram]. Not safe for concurrent use.
//
// HdrHistogram with two significant digits has the same buckets and serves as
// a second opinion in the tests. It is not used itself because a second's
// histogram is merged and cleared once a row, and a simulated drive under time
// lapse makes twenty thousand rows a wall second: Histogram touches only the
// range of buckets in use, HdrHistogram walks all of them (see
// BenchmarkRowCycle), and its maximum is that of a bucket.
type Histogram struct {
	counts []uint64
	// lo and hi bound the buckets in use: [lo, hi). Empty: lo = buckets, hi = 0.
	lo, hi   int
	count    uint64
	overflow uint64
	min, max int64
	// sumHi and sumLo are the 128-bit sum of all values.
	sumHi, sumLo uint64
}

// NewHistogram returns an empty histogram (37 kB).
func NewHistogram() *Histogram {
	h := &Histogram{counts: make([]uint64, buckets)}
	h.clear()
	return h
}

func (h *Histogram) clear() {
	h.lo, h.hi = buckets, 0
	h.count, h.overflow = 0, 0
	h.min, h.max = 1<<63-1, -1
	h.sumHi, h.sumLo = 0, 0
}

// Reset empties the histogram.
func (h *Histogram) Reset() {
	if h.lo < h.hi {
		clear(h.counts[h.lo:h.hi])
	}
	h.clear()
}

// bucketOf returns the bucket of a value in range.
func bucketOf(ns int64) int {
	shift := max(bits.Len64(uint64(ns))-(subBits+1), 0)
	return shift<<subBits + int(uint64(ns)>>shift)
}

// upperBound returns the largest value of a bucket, in nanoseconds.
func upperBound(bucket int) int64 {
	shift := max(bucket>>subBits-1, 0)
	low := int64(bucket-shift<<subBits) << shift
	return low + 1<<shift - 1
}

// Record counts one latency in nanoseconds. A negative one, which only a clock
// that ran backwards can produce, is counted as 0.
func (h *Histogram) Record(ns int64) {
	ns = max(ns, 0)
	h.count++
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, uint64(ns), 0)
	h.sumHi += carry
	h.min = min(h.min, ns)
	h.max = max(h.max, ns)
	if ns > MaxInRangeNS {
		h.overflow++
		return
	}
	i := bucketOf(ns)
	h.counts[i]++
	h.lo = min(h.lo, i)
	h.hi = max(h.hi, i+1)
}

// RecordBatch counts many latencies in nanoseconds; it is cheaper than as many
// calls of Record.
func (h *Histogram) RecordBatch(ns []int64) {
	if len(ns) == 0 {
		return
	}
	counts := h.counts[:buckets]
	low, high := h.min, h.max
	var sum, carries uint64
	for _, v := range ns {
		v = max(v, 0)
		var carry uint64
		sum, carry = bits.Add64(sum, uint64(v), 0)
		carries += carry
		low = min(low, v)
		high = max(high, v)
		if v > MaxInRangeNS {
			h.overflow++
			continue
		}
		counts[bucketOf(v)]++
	}
	h.count += uint64(len(ns))
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, sum, 0)
	h.sumHi += carry + carries
	h.min, h.max = low, high
	h.lo = min(h.lo, bucketOf(min(low, MaxInRangeNS)))
	h.hi = max(h.hi, bucketOf(min(high, MaxInRangeNS))+1)
}

// Merge adds what o counted. o is not changed.
func (h *Histogram) Merge(o *Histogram) {
	if o.count == 0 {
		return
	}
	for i := o.lo; i < o.hi; i++ {
		h.counts[i] += o.counts[i]
	}
	h.lo, h.hi = min(h.lo, o.lo), max(h.hi, o.hi)
	h.count += o.count
	h.overflow += o.overflow
	h.min, h.max = min(h.min, o.min), max(h.max, o.max)
	var carry uint64
	h.sumLo, carry = bits.Add64(h.sumLo, o.sumLo, 0)
	h.sumHi, _ = bits.Add64(h.sumHi, o.sumHi, carry)
}

// Count is how many latencies were counted, those out of range included.
func (h *Histogram) Count() uint64 { return h.count }

// Overflow is how many latencies were longer than [MaxInRangeNS]. When it is
// not 0 a percentile that falls among them is reported as the maximum.
func (h *Histogram) Overflow() uint64 { return h.overflow }

// Min is the exact smallest latency in nanoseconds; false when nothing was counted.
func (h *Histogram) Min() (int64, bool) { return h.min, h.count != 0 }

// Max is the exact largest latency in nanoseconds; false when nothing was counted.
func (h *Histogram) Max() (int64, bool) { return h.max, h.count != 0 }

// Sum is the exact sum of all latencies in nanoseconds, as high and low half.
func (h *Histogram) Sum() (hi, lo uint64) { return h.sumHi, h.sumLo }

// Mean is the mean latency in nanoseconds, rounded down; false when nothing
// was counted.
func (h *Histogram) Mean() (int64, bool) {
	if h.count == 0 {
		return 0, false
	}
	q, _ := bits.Div64(h.sumHi%h.count, h.sumLo, h.count)
	return int64(q), true
}

// Percentile returns the latency in nanoseconds that ppm millionths of the
// operations did not exceed (990,000 for p99, 999,999 for p99.9999): the upper
// bound of the smallest bucket whose cumulative count reaches ceil(ppm*N/10^6),
// clamped to the exact minimum and maximum. It is false, and the percentile not
// available, unless N >= 10/(1-p): fewer operations cannot tell it.
func (h *Histogram) Percentile(ppm uint32) (int64, bool) {
	const million = 1_000_000
	if ppm > million || h.count == 0 {
		return 0, false
	}
	if ppm == million {
		return h.max, true
	}
	hi, lo := bits.Mul64(h.count, uint64(million-ppm))
	if hi == 0 && lo < 10*million {
		return 0, false
	}
	hi, lo = bits.Mul64(h.count, uint64(ppm))
	lo, carry := bits.Add64(lo, million-1, 0)
	rank, _ := bits.Div64(hi+carry, lo, million)
	rank = max(rank, 1)
	var cumulative uint64
	for i := h.lo; i < h.hi; i++ {
		cumulative += h.counts[i]
		if cumulative >= rank {
			return min(max(upperBound(i), h.min), h.max), true
		}
	}
	return h.max, true
}

// Each calls fn for every bucket that is not empty, in rising order, with the
// largest latency of the bucket in nanoseconds and its count.
func (h *Histogram) Each(fn func(upperNS int64, count uint64)) {
	for i := h.lo; i < h.hi; i++ {
		if h.counts[i] != 0 {
			fn(upperBound(i), h.counts[i])
		}
	}
}
