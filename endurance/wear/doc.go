// Package wear turns readings of a drive's counters into write amplification,
// health and life, each with the error that resolution and delay of the
// counters leave.
//
// It is pure and imports nothing of ours. It never clamps, interpolates or
// guesses: what a drive does not report is not available, with a reason, and
// no result is ever infinite or not a number.
package wear

import "math/bits"

// Count is a 128-bit counter.
type Count struct{ Hi, Lo uint64 }

// N returns v as a Count.
func N(v uint64) Count { return Count{Lo: v} }

// Less says whether c is below d.
func (c Count) Less(d Count) bool { return c.Hi < d.Hi || (c.Hi == d.Hi && c.Lo < d.Lo) }

// Sub returns c - d, modulo 2^128.
func (c Count) Sub(d Count) Count {
	lo, borrow := bits.Sub64(c.Lo, d.Lo, 0)
	hi, _ := bits.Sub64(c.Hi, d.Hi, borrow)
	return Count{Hi: hi, Lo: lo}
}

// Add returns c + d, modulo 2^128.
func (c Count) Add(d Count) Count {
	lo, carry := bits.Add64(c.Lo, d.Lo, 0)
	hi, _ := bits.Add64(c.Hi, d.Hi, carry)
	return Count{Hi: hi, Lo: lo}
}

// Times returns c * unit, modulo 2^128.
func (c Count) Times(unit uint64) Count {
	hi, lo := bits.Mul64(c.Lo, unit)
	return Count{Hi: hi + c.Hi*unit, Lo: lo}
}

// IsZero says whether c is 0.
func (c Count) IsZero() bool { return c == Count{} }

// Float returns c, rounded to 53 bits.
func (c Count) Float() float64 { return float64(c.Hi)*(1<<64) + float64(c.Lo) }

// Host is a counter of what the host wrote, read before and after the media
// counters.
type Host struct {
	Source        string
	UnitBytes     uint64
	Before, After Count // in units
}

// Media is a counter of what was written to the flash.
type Media struct {
	Source    string
	UnitBytes uint64
	Units     Count
}

// Sample is one reading of a drive's counters. Samples are in order of time.
type Sample struct {
	// TimeNS is when the reading began, on any clock, in nanoseconds.
	TimeNS int64
	// Epoch is whatever makes counters incomparable when it changes: identity,
	// firmware revision, format.
	Epoch string
	// PowerOnHours only ever rises within an epoch.
	PowerOnHours Count
	// Host and Media in order of preference; empty when not reported.
	Host  []Host
	Media []Media
	// PercentageUsed (0 to 255) and SparePercent as reported.
	PercentageUsed uint8
	SparePercent   uint8
}

// WAF is media bytes per host byte.
type WAF struct {
	// Available is false when it cannot be told; Reason says why.
	Available bool
	Reason    string
	// Value is the estimate; the true one is within Low to High, which hold
	// what the resolution and the delay of the counters can have done.
	Value, Low, High float64
	// Source names the media and the host counter.
	Source string
	// HostBytes and MediaBytes are what Value was computed from.
	HostBytes, MediaBytes Count
	// FirstNS and LastNS are the times of the samples it was computed from.
	FirstNS, LastNS int64
}

// Error is the larger distance of Value from Low and High.
func (w WAF) Error() float64 { return max(w.Value-w.Low, w.High-w.Value) }

func notAvailable(reason string) WAF { return WAF{Reason: reason} }
