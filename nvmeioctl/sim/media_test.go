package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim/ftl"
)

// knobMedia is a small flash with one namespace, written full.
func knobMedia(t *testing.T, change func(*Flash)) *flashMedia {
	t.Helper()
	p := pblaze7()
	p.CapacityBytes, p.MaxNamespaces = 1<<30, 1
	p.Flash.Layout = ftl.Layout{}
	p.Flash.UsableBytes, p.Flash.RandomWriteBytes = 5<<28, 1<<30
	change(&p.Flash)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	m, err := newFlashMedia(&p, Options{Scale: 1, Seed: 1}, nvmeioctl.NewVirtualClock(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	m.namespaceCreated(1, p.CapacityBytes)
	return m
}

// mediaPerHost is the WAF of n writes of length bytes, by the media's counters.
func mediaPerHost(m *flashMedia, n int, length uint64, at func(i int) uint64) float64 {
	before := m.counters()
	for i := range n {
		if s := m.access(mediaWrite, 1, at(i), length); s != 0 {
			return -1
		}
	}
	after := m.counters()
	return (after.MediaWriteBytes.Float64() - before.MediaWriteBytes.Float64()) /
		(after.HostWriteBytes.Float64() - before.HostWriteBytes.Float64())
}

func TestCompression_isBelowOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const size, units = 1 << 30, 1 << 18
	random := func(int) uint64 { return uint64(rng.Uint32N(units)) * 4096 }
	var waf [2]float64
	for i, ratio := range []float64{0, 0.5} {
		m := knobMedia(t, func(f *Flash) { f.CompressionRatio = ratio })
		sequential := mediaPerHost(m, size/131072, 131072, func(i int) uint64 { return uint64(i) * 131072 })
		if want := 1.02 * (1 - float64(i)/2); sequential < want*0.999 || sequential > want*1.001 {
			t.Errorf("compression to %g: sequential WAF %.4f, expected %.4f", ratio, sequential, want)
		}
		mediaPerHost(m, 2*units, 4096, random)
		waf[i] = mediaPerHost(m, units, 4096, random)
	}
	// Half the size: 2.5 times the flash instead of 1.25 of it, half the bytes.
	if waf[0] < 2.5 || waf[1] > 0.62 || waf[1] < 0.5 {
		t.Errorf("random WAF %.3f without, %.3f with compression", waf[0], waf[1])
	}
}

// What wears out: spare falls to nothing, the flash shrinks on the way, and then
// writes are refused while reads are not.
func TestEndOfLife_isReadOnly(t *testing.T) {
	m := knobMedia(t, func(f *Flash) { f.RatedCycles, f.Shrinks = 12, true })
	last := 1.0
	for pass := 0; !m.flash.WornOut(); pass++ {
		if pass > 100 {
			t.Fatal("it never wears out")
		}
		if w := mediaPerHost(m, 8192, 131072, func(i int) uint64 { return uint64(i) * 131072 }); w < 0 {
			break
		}
		spare := m.counters().SpareRatio
		if spare > last {
			t.Errorf("spare rose from %g to %g", last, spare)
		}
		last = spare
	}
	if c := m.counters(); c.SpareRatio != 0 || c.UsedRatio < 0.8 {
		t.Errorf("worn out with %+v", c)
	}
	if m.flash.Wear().RetiredSuperblocks == 0 {
		t.Error("no superblock was retired")
	}
	if s := m.access(mediaWrite, 1, 0, 4096); s != statusReadOnly {
		t.Errorf("a write gives status 0x%x", uint16(s))
	}
	if s := m.access(mediaRead, 1, 0, 4096); s != 0 {
		t.Errorf("a read gives status 0x%x", uint16(s))
	}
	// It survives being saved.
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	n := knobMedia(t, func(f *Flash) { f.RatedCycles, f.Shrinks = 12, true })
	if err := n.UnmarshalBinary(b); err != nil || !n.flash.WornOut() {
		t.Errorf("after loading: %v, worn out %v", err, n.flash.WornOut())
	}
}
