package ftl

import (
	"math"
	"testing"
)

// 64 dies of 1 Tb: 8 TiB nominal, and what is inferred of a drive with 5.3 %
// more and 2 % of parity.
func TestLayout(t *testing.T) {
	l := Layout{Dies: 64, PlanesPerDie: 4, BlocksPerPlane: 1 << 10, PagesPerBlock: 1 << 11, PageBytes: 16 << 10, ExtraBlocks: 0.07, ParityDies: 1, MetadataShare: 0.004, UnitBytes: 4096}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	if l.NominalBytes() != 8<<40 {
		t.Errorf("%d bytes nominal", l.NominalBytes())
	}
	if x := float64(l.UsableBytes()) / (8 << 40); math.Abs(x-1.0533) > 0.0001 {
		t.Errorf("usable is %.4f of nominal", x)
	}
	if w := l.FloorWAF(); math.Abs(w-1.0159*1.004) > 0.0001 {
		t.Errorf("floor %.4f", w)
	}
	if n := l.Superblocks(); n != 1096 {
		t.Errorf("%d superblocks", n)
	}
	if (Layout{}).Known() || !l.Known() {
		t.Error("what is known is mistaken")
	}
	for _, breakIt := range []func(*Layout){
		func(l *Layout) { l.Dies = 0 }, func(l *Layout) { l.ParityDies = 64 }, func(l *Layout) { l.ExtraBlocks = math.NaN() }, func(l *Layout) { l.PageBytes = 1 << 40 },
		func(l *Layout) { l.UnitBytes = 3 }, func(l *Layout) { l.MetadataShare = 1 }, func(l *Layout) { l.MetadataShare = math.NaN() },
		func(l *Layout) { l.Dies, l.PagesPerBlock, l.PageBytes = 1<<20, 1<<20, 1<<20 },
	} {
		bad := l
		breakIt(&bad)
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
