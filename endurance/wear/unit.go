package wear

import "math"

// Unit is what a counter's unit turned out to be.
type Unit struct {
	Available bool
	Reason    string
	// Bytes is the range of what one unit can be: the flash took at least what
	// the host wrote and at most a tenth more.
	Bytes Interval
	// Known are the units in use that are within it, in bytes, the likeliest
	// first.
	Known []uint64
	// Ratio is media over host bytes if the unit is Known[0], or Bytes.Low if
	// none is known.
	Ratio float64
}

// sequentialWAF is what sequential writes cost: parity and metadata, 1.00 to
// 1.05 on drives measured, and some room.
const sequentialWAFMax = 1.10

// knownUnits are units that drives count the flash in, the commonest first:
// 32 MiB (Intel's layout and all that copied it), bytes (OCP, Samsung), 10^9
// bytes (endurance group), data units, 500 KiB (Seagate), GiB, and the sizes of
// flash pages and mapping units.
func knownUnits() []uint64 {
	return []uint64{32 << 20, 1, 1_000_000_000, 512_000, 500 << 10, 1 << 30, 1 << 20, 1 << 12, 1 << 14, 1 << 16, 512, 1_000_000}
}

// CalibrateUnit tells the unit of a media counter from two samples between which
// the host wrote sequentially over flash without garbage: of a drive that was
// formatted, or written sequentially before. Units differ by six orders of
// magnitude and labels lie, so a tool that was told no unit can measure it, and
// one that assumed it can check.
func CalibrateUnit(first, last *Sample) Unit {
	two := []Sample{*first, *last}
	if spans := Epochs(two); len(spans) != 1 {
		return Unit{Reason: "not reported: " + spans[1].Reason}
	}
	p, reason := choose(last)
	if reason != "" {
		return Unit{Reason: reason}
	}
	unit := float64(last.Host[p.host].UnitBytes)
	least := (last.Host[p.host].Before.Sub(first.Host[p.host].After).Float() - 1) * unit
	most := (last.Host[p.host].After.Sub(first.Host[p.host].Before).Float() + 1) * unit
	count := last.Media[p.media].Units.Sub(first.Media[p.media].Units).Float()
	// Each end of a difference of counters may be a unit off.
	const enough = 20
	if count < enough || !(least > 0) {
		return Unit{Reason: "not reported: the media counter moved by fewer than 20 units"}
	}
	u := Unit{Available: true, Bytes: Interval{Low: least / (count + 1), High: most * sequentialWAFMax / (count - 1)}}
	for _, k := range knownUnits() {
		if v := float64(k); v >= u.Bytes.Low && v <= u.Bytes.High {
			u.Known = append(u.Known, k)
		}
	}
	u.Ratio = 1
	if len(u.Known) != 0 {
		u.Ratio = float64(u.Known[0]) * count / ((least + most) / 2)
	}
	if math.IsInf(u.Bytes.High, 0) || math.IsNaN(u.Bytes.High) {
		return Unit{Reason: "not reported: the counters are out of range"}
	}
	return u
}

// Agrees says whether the unit a counter is taken to have is possible.
func (u Unit) Agrees(unitBytes uint64) bool {
	v := float64(unitBytes)
	return u.Available && v >= u.Bytes.Low && v <= u.Bytes.High
}
