package workload

import "slices"

// Preset is a published workload, as data.
type Preset struct {
	// Name says which variant it is: "jesd219", "jesd219-4kn".
	Name        string
	ReadPercent uint8
	// Sizes rise. AlignBytes is what offsets are multiples of.
	Sizes      []Size
	AlignBytes uint32
	Zones      []Zone
	// Deviation says how the variant differs from the publication; empty when it
	// does not.
	Deviation string
}

// LargestBytes is the largest size.
func (p *Preset) LargestBytes() uint32 { return p.Sizes[len(p.Sizes)-1].Bytes }

// JESD219 is the enterprise endurance workload of JEDEC JESD219A: 40 % reads,
// mostly of 4 KiB, half of the operations on 5 % of the space, 30 % on 15 % and
// the rest on the rest, uniform within each, at multiples of 4 KiB. The figures
// are those of fio's examples/jesd219.fio and of published descriptions; the
// text of the standard was not at hand.
//
// Sizes below the logical block are rounded up to it: "4Kn variant" where that
// is 4096 bytes, in which the sizes below 4 KiB, a tenth of the operations, are
// 4 KiB.
func JESD219(lbaBytes uint32) Preset {
	lbaBytes = max(lbaBytes, 1)
	p := Preset{
		Name: "jesd219", ReadPercent: 40, AlignBytes: (4096-1)/lbaBytes*lbaBytes + lbaBytes,
		Zones: []Zone{{50, 500}, {150, 300}, {800, 200}},
	}
	for _, s := range []Size{
		{512, 400}, {1024, 100}, {1536, 100}, {2048, 100}, {2560, 100}, {3072, 100}, {3584, 100},
		{4096, 6700}, {8192, 1000}, {16384, 700}, {32768, 300}, {65536, 300},
	} {
		rounded := (s.Bytes-1)/lbaBytes*lbaBytes + lbaBytes
		if rounded != s.Bytes {
			p.Deviation = "sizes below the logical block are rounded up to it"
			p.Name = "jesd219-rounded"
		}
		at := slices.IndexFunc(p.Sizes, func(have Size) bool { return have.Bytes == rounded })
		if at < 0 {
			p.Sizes = append(p.Sizes, Size{Bytes: rounded})
			at = len(p.Sizes) - 1
		}
		p.Sizes[at].Permyriad += s.Permyriad
	}
	if lbaBytes == 4096 {
		p.Name, p.Deviation = "jesd219-4kn", "4Kn variant: sizes below 4 KiB, a tenth of the operations, are 4 KiB"
	}
	return p
}
