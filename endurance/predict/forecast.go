package predict

import (
	"fmt"
	"math"
)

// Future is a question about a drive's wear.
type Future struct {
	// UsableBytes is T, CapacityBytes what is exported and, by MappedRatio of
	// the workload, written.
	UsableBytes, CapacityBytes float64
	// FloorWAF is w0; 0 means 1.
	FloorWAF float64
	// UnitBytes is the mapping unit; 0 means 4096.
	UnitBytes uint64
	// Cycles is the rated program/erase cycles.
	Cycles float64
	// UsedRatio is how much of them is used to begin with; 1 is all.
	UsedRatio float64
	Workload  Workload
	// HostBytes is how far to look; 0 means until the cycles are used up.
	HostBytes float64
	// LostAtRating is the share of the flash that has failed when the rated
	// cycles are done, by a Weibull law of shape 8; spare blocks do not make up
	// for it, T shrinks. 0 for none.
	LostAtRating float64
}

// Stage is a stretch of a drive's future.
type Stage struct {
	// HostBytes and DriveWrites have been written at its end since the beginning.
	HostBytes   float64 `json:"host_bytes"`
	DriveWrites float64 `json:"drive_writes"`
	// WAF over the stretch.
	WAF float64 `json:"waf"`
	// UsedRatio of the rated cycles at its end.
	UsedRatio float64 `json:"used_ratio"`
	// UsableBytes at its end.
	UsableBytes float64 `json:"usable_bytes"`
}

// Course is a drive's future.
type Course struct {
	Stages []Stage `json:"stages"`
	// SteadyWAF is where WAF settles.
	SteadyWAF float64 `json:"steady_waf"`
	// SettlingDriveWrites is after how much WAF, over an eighth of a drive write, stays
	// within 1 % of SteadyWAF.
	SettlingDriveWrites float64 `json:"settling_drive_writes"`
	// HostBytes and UsedRatio at the end.
	HostBytes float64 `json:"host_bytes"`
	UsedRatio float64 `json:"used_ratio"`
}

const (
	transientStep = 0.125 // drive writes a stage
	weibullShape  = 8
	futureStages  = 200
)

// Forecast follows a drive that was filled in order and is then written by one
// workload: by the mean field until WAF has settled, and from there on by the
// rate that it settled at, which a shrinking T raises. Uniform, JESD219 and Zipf
// only; a sequential workload has nothing to settle.
func Forecast(q Future) (Course, error) {
	if err := q.check(); err != nil {
		return Course{}, err
	}
	c := Course{UsedRatio: q.UsedRatio}
	alpha := q.UsableBytes / (q.CapacityBytes * q.Workload.mapped())
	factor := q.FloorWAF * q.Workload.UnitFactor(q.UnitBytes)
	c.SteadyWAF = factor
	if q.Workload.Kind != Sequential {
		if err := c.settle(&q, alpha, factor); err != nil {
			return Course{}, err
		}
	}
	c.wearOn(&q, alpha)
	return c, nil
}

func (q *Future) check() error {
	if q.FloorWAF == 0 {
		q.FloorWAF = 1
	}
	if q.UnitBytes == 0 {
		q.UnitBytes = 4096
	}
	for _, v := range []float64{q.UsableBytes, q.CapacityBytes, q.Cycles} {
		if !(v > 0) || v > 1e21 {
			return fmt.Errorf("%w: flash, capacity and cycles of a forecast must be positive", ErrRequest)
		}
	}
	switch {
	case !(q.FloorWAF >= 1 && q.FloorWAF <= 1.2):
		return fmt.Errorf("%w: a floor of %g is not within 1 to 1.2", ErrRequest, q.FloorWAF)
	case q.UsableBytes <= q.CapacityBytes*1.005:
		return fmt.Errorf("%w: %g bytes leave no spare area in %g of flash", ErrRequest, q.CapacityBytes, q.UsableBytes)
	case !(q.UsedRatio >= 0 && q.UsedRatio < 10) || !(q.HostBytes >= 0) || !(q.LostAtRating >= 0 && q.LostAtRating < 0.5):
		return fmt.Errorf("%w: what is used, written or lost is out of range", ErrRequest)
	}
	return q.Workload.validate()
}

// add appends a stretch.
func (c *Course) add(q *Future, host, waf, usable float64) {
	c.HostBytes += host
	c.UsedRatio += host * waf / usable / q.Cycles
	c.Stages = append(c.Stages, Stage{
		HostBytes: c.HostBytes, DriveWrites: c.HostBytes / q.CapacityBytes, WAF: waf, UsedRatio: c.UsedRatio, UsableBytes: usable,
	})
}

// settle runs the mean field over the transient.
func (c *Course) settle(q *Future, alpha, factor float64) error {
	field, err := NewMeanField(FieldConfig{Alpha: alpha, Full: true, Workload: *q.Workload.over(q.CapacityBytes*q.Workload.mapped(), q.UnitBytes)})
	if err != nil {
		return err
	}
	mapped := q.CapacityBytes * q.Workload.mapped()
	length := max(8, 3*SettlingDriveWrites(alpha, UniformWAF(alpha)))
	var wafs []float64
	for w := 0.0; w < length && (q.HostBytes == 0 || c.HostBytes < q.HostBytes); w += transientStep {
		waf := factor * field.Run(transientStep)
		step := transientStep * mapped
		if q.HostBytes != 0 {
			step = min(step, q.HostBytes-c.HostBytes)
		}
		c.add(q, step, waf, q.UsableBytes)
		wafs = append(wafs, waf)
	}
	c.SteadyWAF = factor * field.Run(max(2, 4*DriveWritesPerRing(alpha, UniformWAF(alpha))))
	for i := len(wafs) - 1; i >= 0 && math.Abs(wafs[i]/c.SteadyWAF-1) <= 0.01; i-- {
		c.SettlingDriveWrites = float64(i) * transientStep
	}
	return nil
}

// wearOn goes on from there to the end.
func (c *Course) wearOn(q *Future, alpha float64) {
	end := 1.0 // of the cycles
	used := c.UsedRatio
	if q.HostBytes != 0 {
		end = used + (q.HostBytes-c.HostBytes)*c.SteadyWAF/q.UsableBytes/q.Cycles + 10
	}
	step := 1. / futureStages
	if q.HostBytes != 0 {
		step = max(step, (end-used-10)/futureStages)
	}
	settled := c.SteadyWAF
	for c.UsedRatio < end && (q.HostBytes == 0 || c.HostBytes < q.HostBytes) {
		x := c.UsedRatio + step/2
		usable := q.UsableBytes * (1 - q.LostAtRating*math.Pow(x, weibullShape))
		a := alpha * usable / q.UsableBytes
		if a < 1.005 {
			return // what is left holds no more than the data
		}
		waf := settled
		if q.Workload.Kind != Sequential {
			waf *= UniformWAF(a) / UniformWAF(alpha)
		}
		host := min(step, end-c.UsedRatio) * q.Cycles * usable / waf
		if q.HostBytes != 0 {
			host = min(host, q.HostBytes-c.HostBytes)
		}
		before := c.HostBytes
		if c.add(q, host, waf, usable); !(c.HostBytes > before) {
			return
		}
	}
}
