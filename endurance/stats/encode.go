package stats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// histogramVersion is the first byte of an encoded histogram.
const histogramVersion = 1

// errHistogram is wrapped by every error of DecodeHistogram.
var errHistogram = errors.New("histogram is damaged")

// AppendBinary appends the compact form: a version byte, then as varints
// overflow, minimum, maximum, sum (high, low), the number of buckets that are
// not empty, and for each the distance from the one before and its count. A
// typical second takes a few hundred bytes. It implements
// encoding.BinaryAppender and never fails.
func (h *Histogram) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, histogramVersion)
	if h.count == 0 {
		return binary.AppendUvarint(b, 0), nil
	}
	b = binary.AppendUvarint(b, h.count)
	for _, v := range []uint64{h.overflow, uint64(h.min), uint64(h.max), h.sumHi, h.sumLo} {
		b = binary.AppendUvarint(b, v)
	}
	used := uint64(0)
	for _, n := range h.counts[min(h.lo, h.hi):h.hi] {
		if n != 0 {
			used++
		}
	}
	b = binary.AppendUvarint(b, used)
	last := 0
	for i := h.lo; i < h.hi; i++ {
		if h.counts[i] == 0 {
			continue
		}
		b = binary.AppendUvarint(b, uint64(i-last))
		b = binary.AppendUvarint(b, h.counts[i])
		last = i
	}
	return b, nil
}

// reader takes varints from a slice; the first failure sticks.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err = fmt.Errorf("%w: cut short", errHistogram)
		return 0
	}
	r.b = r.b[n:]
	return v
}

// DecodeHistogram reads what AppendBinary wrote. It refuses what no histogram
// can be: counts that do not add up, buckets out of range or order, a minimum
// above the maximum, trailing bytes.
func DecodeHistogram(b []byte) (*Histogram, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", errHistogram)
	}
	if b[0] != histogramVersion {
		return nil, fmt.Errorf("%w: version %d is not known", errHistogram, b[0])
	}
	h := NewHistogram()
	r := &reader{b: b[1:]}
	count := r.uvarint()
	if count != 0 {
		h.decodeBody(r, count)
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errHistogram, len(r.b))
	}
	return h, nil
}

func (h *Histogram) decodeBody(r *reader, count uint64) {
	overflow, low, high := r.uvarint(), r.uvarint(), r.uvarint()
	sumHi, sumLo := r.uvarint(), r.uvarint()
	used := r.uvarint()
	if r.err == nil && (used > buckets || low > high || high > 1<<63-1) {
		r.err = fmt.Errorf("%w: %d buckets, minimum %d, maximum %d", errHistogram, used, low, high)
	}
	bucket, total := uint64(0), overflow
	for i := uint64(0); i < used && r.err == nil; i++ {
		step, n := r.uvarint(), r.uvarint()
		bucket += step
		if r.err == nil && (step >= buckets || bucket >= buckets || n == 0 || (i > 0 && step == 0)) {
			r.err = fmt.Errorf("%w: bucket %d holds %d", errHistogram, bucket, n)
			return
		}
		if r.err != nil {
			return
		}
		var carry uint64
		total, carry = bits.Add64(total, n, 0)
		if carry != 0 {
			r.err = fmt.Errorf("%w: counts overflow", errHistogram)
			return
		}
		h.counts[bucket] = n
		h.lo, h.hi = min(h.lo, int(bucket)), max(h.hi, int(bucket)+1)
	}
	if r.err == nil && total != count {
		r.err = fmt.Errorf("%w: buckets hold %d of %d", errHistogram, total, count)
	}
	h.count, h.overflow = count, overflow
	h.min, h.max = int64(low), int64(high)
	h.sumHi, h.sumLo = sumHi, sumLo
	if r.err == nil && !h.plausible() {
		r.err = fmt.Errorf("%w: extremes or sum do not fit the buckets", errHistogram)
	}
}

// plausible says whether minimum, maximum and sum can belong to the counts.
func (h *Histogram) plausible() bool {
	if h.lo < h.hi {
		if h.min > MaxInRangeNS || bucketOf(h.min) != h.lo {
			return false
		}
		if h.overflow == 0 && (h.max > MaxInRangeNS || bucketOf(h.max) != h.hi-1) {
			return false
		}
	} else if h.min <= MaxInRangeNS {
		return false
	}
	if (h.overflow != 0) != (h.max > MaxInRangeNS) {
		return false
	}
	lowHi, lowLo := bits.Mul64(h.count, uint64(h.min))
	highHi, highLo := bits.Mul64(h.count, uint64(h.max))
	below := h.sumHi < lowHi || (h.sumHi == lowHi && h.sumLo < lowLo)
	above := h.sumHi > highHi || (h.sumHi == highHi && h.sumLo > highLo)
	return !below && !above
}
