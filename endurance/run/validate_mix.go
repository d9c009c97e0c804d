package run

import "slices"

const (
	// permyriads and permilles are the whole of which shares are parts.
	permyriads = 10_000
	permilles  = 1000
	// maxMixSizes bounds a mix: the largest published one has ten.
	maxMixSizes = 64
	// maxZones bounds the skew: JESD219 has three.
	maxZones = 64
	// maxZipfMilli: beyond an exponent of 10 a thousandth of the accesses is left
	// for all blocks but the first.
	maxZipfMilli = 10_000
)

// Mixed says whether the operations of a phase differ in size or their addresses
// are skewed.
func (p *Phase) Mixed() bool { return len(p.Sizes) != 0 || len(p.Zones) != 0 || p.ZipfMilli != 0 }

// SizesOf are the sizes of one direction; a phase without a mix has one.
func (p *Phase) SizesOf(write bool) []SizeShare {
	switch {
	case write && len(p.WriteSizes) != 0:
		return p.WriteSizes
	case len(p.Sizes) != 0:
		return p.Sizes
	}
	return []SizeShare{{Bytes: p.BlockBytes, Permyriad: permyriads}}
}

// Align is what every offset of the phase is a multiple of, in bytes.
func (p *Phase) Align() uint32 {
	if len(p.Sizes) == 0 {
		return p.BlockBytes
	}
	if p.AlignBytes != 0 {
		return p.AlignBytes
	}
	least := p.BlockBytes
	for _, s := range slices.Concat(p.Sizes, p.WriteSizes) {
		least = min(least, s.Bytes)
	}
	return least
}

// meanScaled is the mean size of an operation of one direction, times 10,000.
func (p *Phase) meanScaled(write bool) uint64 {
	sum := uint64(0)
	for _, s := range p.SizesOf(write) {
		sum += uint64(s.Bytes) * uint64(s.Permyriad)
	}
	return sum
}

// MeanBytes is the mean size of an operation of one direction.
func (p *Phase) MeanBytes(write bool) float64 { return float64(p.meanScaled(write)) / permyriads }

func (j *Job) validateMix(p *Phase) error {
	mixed := p.Mixed() || len(p.WriteSizes) != 0 || p.AlignBytes != 0
	switch {
	case !mixed:
		return nil
	case p.Pattern != PatternReplacement:
		return jobError("a mix of sizes and skewed addresses need the order replacement: in %q every block is visited once", p.Pattern)
	case len(p.Sizes) == 0 && (len(p.WriteSizes) != 0 || p.AlignBytes != 0):
		return jobError("sizes of writes or an alignment without a mix of sizes")
	case len(p.Zones) != 0 && p.ZipfMilli != 0:
		return jobError("zones and a Zipf distribution conflict: give one of them")
	case p.ZipfMilli > maxZipfMilli:
		return jobError("a Zipf exponent of %d thousandths: up to %d", p.ZipfMilli, maxZipfMilli)
	case len(p.WriteSizes) != 0 && (p.ReadPercent == 0 || p.ReadPercent == 100):
		return jobError("sizes of writes apart from those of reads, but only one of them happens")
	}
	if room, need := j.RegionBytes()/uint64(j.Workers), 4*uint64(p.Depth)*uint64(p.BlockBytes); p.ReadPercent != 100 && room < need {
		return jobError("%d bytes for each worker are too little for %d operations of up to %d bytes in flight: two writes of one block would meet", room, p.Depth, p.BlockBytes)
	}
	if err := j.validateZones(p); err != nil {
		return err
	}
	return j.validateSizes(p)
}

func (j *Job) validateSizes(p *Phase) error {
	if len(p.Sizes) == 0 {
		return nil
	}
	if p.AlignBytes%max(j.LBABytes, 1) != 0 {
		return jobError("an alignment of %d bytes is not whole logical blocks of %d bytes", p.AlignBytes, j.LBABytes)
	}
	largest := uint32(0)
	for _, mix := range [][]SizeShare{p.Sizes, p.WriteSizes} {
		sum, seen := uint32(0), map[uint32]bool{}
		for _, s := range mix {
			switch {
			case s.Bytes == 0 || s.Bytes%max(j.LBABytes, 1) != 0:
				return jobError("operations of %d bytes are not whole logical blocks of %d bytes", s.Bytes, j.LBABytes)
			case seen[s.Bytes]:
				return jobError("the mix has the size of %d bytes twice", s.Bytes)
			case s.Permyriad == 0 || s.Permyriad > permyriads:
				return jobError("size of %d bytes: a share of %d of 10,000", s.Bytes, s.Permyriad)
			}
			seen[s.Bytes] = true
			sum += s.Permyriad
			largest = max(largest, s.Bytes)
		}
		if len(mix) > maxMixSizes || len(mix) != 0 && sum != permyriads {
			return jobError("the shares of a mix of %d sizes add up to %d.%02d %%, not to 100 %% of at most %d sizes", len(mix), sum/100, sum%100, maxMixSizes)
		}
	}
	switch {
	case largest != p.BlockBytes:
		return jobError("the largest size of the mix is %d bytes, the block size says %d", largest, p.BlockBytes)
	case uint64(p.Align()) > uint64(largest) || j.RegionBytes() < uint64(largest)*2*uint64(j.Workers):
		return jobError("operations of up to %d bytes at multiples of %d do not fit the region of %d bytes for %d workers", largest, p.Align(), j.RegionBytes(), j.Workers)
	}
	return nil
}

func (j *Job) validateZones(p *Phase) error {
	if len(p.Zones) == 0 {
		return nil
	}
	space, access := uint32(0), uint32(0)
	for i, z := range p.Zones {
		if z.SpacePermille == 0 || z.SpacePermille > permilles || z.AccessPermille > permilles {
			return jobError("zone %d: %d thousandths of the space for %d of the operations", i, z.SpacePermille, z.AccessPermille)
		}
		space += z.SpacePermille
		access += z.AccessPermille
	}
	if space != permilles || access != permilles || len(p.Zones) > maxZones {
		return jobError("%d zones take %d thousandths of the space and %d of the operations; both have to be 1000, of at most %d zones", len(p.Zones), space, access, maxZones)
	}
	// What is in flight must find room in the smallest zone, or two writes of one
	// block would meet and no draw could part them.
	for i, z := range p.Zones {
		room := j.RegionBytes() / uint64(j.Workers) / permilles * uint64(z.SpacePermille)
		if need := 4 * uint64(p.Depth) * (p.meanScaled(true)/permyriads + 1); z.AccessPermille != 0 && room < need {
			return jobError("zone %d has %d bytes for each worker, which is too little for %d operations of %d bytes in flight", i, room, p.Depth, p.meanScaled(true)/permyriads)
		}
	}
	return nil
}

// Limited says whether there is a limit.
func (r Rate) Limited() bool {
	r.Arrival = ""
	return r != Rate{}
}

func validateRate(p *Phase) error {
	r := p.Rate
	switch {
	case r == Rate{}:
		return nil
	case p.Pattern == PatternNone:
		return jobError("it does nothing, so it has no rate")
	case !r.Limited():
		return jobError("an arrival without a rate")
	case r.Arrival != ArrivalOpen && r.Arrival != ArrivalClosed:
		return jobError("%q is no arrival: open or closed", r.Arrival)
	case p.ReadPercent == 0 && (r.ReadIOPS != 0 || r.ReadBytesPerSecond != 0):
		return jobError("a rate of reads, but nothing is read")
	case p.ReadPercent == 100 && (r.WriteIOPS != 0 || r.WriteBytesPerSecond != 0):
		return jobError("a rate of writes, but nothing is written")
	}
	return nil
}

func (p Pause) validate(stops []StopRule) error {
	if p == (Pause{}) {
		return nil
	}
	if p.AtCelsius <= p.ResumeCelsius || p.AtCelsius > 1000 || p.ResumeCelsius < -273 {
		return jobError("a pause at %d C that ends at %d C: it has to end lower than it begins", p.AtCelsius, p.ResumeCelsius)
	}
	for _, s := range stops {
		if s.Kind == StopTemperature && s.Limit <= int64(p.AtCelsius) {
			return jobError("stop rule %s conflicts with the pause at %d C, which would never come: pause below the stop", s, p.AtCelsius)
		}
	}
	return nil
}
