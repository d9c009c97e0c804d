package ftl

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is what the layer must look like from outside: which pages hold data.
type model struct {
	mapped []bool
	writes uint64
}

func (m *model) write(lpn, n uint32) {
	for i := range n {
		m.mapped[lpn+i] = true
	}
	m.writes += uint64(n)
}

func (m *model) deallocate(lpn, n uint32) {
	for i := range n {
		m.mapped[lpn+i] = false
	}
}

// drawConfig draws a geometry of any shape and as much logical space as fits,
// so that collection runs all the time.
func drawConfig(t *rapid.T) Config {
	g := Geometry{
		Superblocks:        rapid.Uint32Range(minSuperblocks, 40).Draw(t, "superblocks"),
		PagesPerSuperblock: rapid.Uint32Range(minPages, 150).Draw(t, "pages"),
	}
	most := (g.Superblocks-reserve-2)*g.PagesPerSuperblock - 1
	return Config{
		LogicalPages: rapid.Uint32Range(max(1, most/2), most).Draw(t, "logical"),
		Geometry:     g,
		// Little, so that superblocks fail and levelling works.
		RatedCycles: rapid.SampledFrom([]uint32{0, 1, 20, 3000}).Draw(t, "rated"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
		Shrinks:     rapid.Bool().Draw(t, "shrinks"),
		Separates:   rapid.Bool().Draw(t, "separates"),
	}
}

func TestFTL_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		f, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{mapped: make([]bool, cfg.LogicalPages)}
		for range rapid.IntRange(1, 30).Draw(t, "ops") {
			lpn := rapid.Uint32Range(0, cfg.LogicalPages-1).Draw(t, "lpn")
			n := rapid.Uint32Range(0, cfg.LogicalPages-lpn).Draw(t, "n")
			before, moved := f.Counters(), f.MovedPages()
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				f.Deallocate(lpn, n)
				m.deallocate(lpn, n)
			case 1:
				f.EraseUnused()
			case 2:
				b, err := f.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				if f = new(FTL); f.UnmarshalBinary(b) != nil {
					t.Fatal(f.UnmarshalBinary(b))
				}
			case 3, 4, 5:
				f.WriteRun(lpn, n)
				m.write(lpn, n)
			default:
				rng := rand.NewPCG(uint64(lpn), uint64(n))
				for range 3 * n {
					p := lpn + uint32(rng.Uint64()%uint64(n))
					f.Write(p)
					m.write(p, 1)
				}
			}
			compare(t, f, m)
			after := f.Counters()
			if after.HostPages < before.HostPages || after.CollectedPages < before.CollectedPages ||
				after.LevelledPages < before.LevelledPages || after.Erases < before.Erases || f.MovedPages() < moved {
				t.Fatalf("a counter went back: %+v, then %+v; moved %d, then %d", before, after, moved, f.MovedPages())
			}
		}
	})
}

func compare(t *rapid.T, f *FTL, m *model) {
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	n := uint32(0)
	for lpn, want := range m.mapped {
		if f.Mapped(uint32(lpn)) != want {
			t.Fatalf("page %d: mapped %v, model says %v", lpn, !want, want)
		}
		if want {
			n++
		}
	}
	if n != f.MappedPages() || m.writes != f.Counters().HostPages {
		t.Fatalf("%d pages mapped and %d written, model says %d and %d", f.MappedPages(), f.Counters().HostPages, n, m.writes)
	}
}

// The same writes on two geometries leave the same contents, and a drive whose
// state went through bytes half way goes on as if nothing had happened.
func TestFTL_marshalChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		a, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.NewPCG(cfg.Seed, 7)
		write := func(fs ...*FTL) {
			for range 4 * cfg.LogicalPages {
				lpn := uint32(rng.Uint64() % uint64(cfg.LogicalPages))
				for _, f := range fs {
					f.Write(lpn)
				}
			}
		}
		write(a)
		first := marshal(t, a)
		b := new(FTL)
		if err := b.UnmarshalBinary(first); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, marshal(t, b)) {
			t.Fatal("the bytes of what was read back differ")
		}
		write(a, b)
		if !bytes.Equal(marshal(t, a), marshal(t, b)) {
			t.Fatal("a drive that was saved and loaded went another way")
		}
		if diff := cmp.Diff(a.Wear(), b.Wear()); diff != "" {
			t.Fatal(diff)
		}
	})
}

type fataler interface{ Fatal(...any) }

func marshal(t fataler, f *FTL) []byte {
	b, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func usedFTL(t testing.TB) *FTL {
	f := mustNew(t, Config{LogicalPages: 1500, Geometry: Geometry{20, 100}, RatedCycles: 100, Seed: 5})
	randomWrites(f, rand.NewPCG(1, 1), 1400, 20000)
	f.Deallocate(100, 300)
	return f
}

// Every single byte matters or is refused: no change of a byte may give a
// state that breaks an invariant, and cutting or padding is refused.
func TestUnmarshal_damage(t *testing.T) {
	good := marshal(t, usedFTL(t))
	f := usedFTL(t)
	for n := range good {
		if err := f.UnmarshalBinary(good[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(good), err)
		}
	}
	if err := f.UnmarshalBinary(append(slices.Clone(good), 0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a byte too much: %v", err)
	}
	refused := 0
	for i := range good {
		b := slices.Clone(good)
		b[i] ^= 0x11
		g := new(FTL)
		if err := g.UnmarshalBinary(b); err != nil {
			refused++
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d: %v is not ErrDamaged", i, err)
			}
			continue
		}
		mustCheck(t, g)
	}
	// What passes is the seed, the random source, the rating, the failed
	// blocks, and mappings that stay consistent.
	if refused < len(good)/2 {
		t.Errorf("only %d of %d damaged bytes were noticed", refused, len(good))
	}
	if !bytes.Equal(good, marshal(t, f)) {
		t.Error("refused bytes changed the receiver")
	}
}

func FuzzUnmarshalBinary(f *testing.F) {
	f.Add(marshal(f, usedFTL(f)))
	f.Add(marshal(f, mustNew(f, Config{LogicalPages: 10, Geometry: Geometry{8, 4}})))
	f.Add([]byte(codecMagic))
	worn := mustNew(f, Config{LogicalPages: 1500, Geometry: Geometry{40, 64}, RatedCycles: 30, Seed: 5, Shrinks: true})
	randomWrites(worn, rand.NewPCG(1, 1), 1400, 150000)
	f.Add(marshal(f, worn))
	apart := mustNew(f, Config{LogicalPages: 1500, Geometry: Geometry{40, 64}, Seed: 5, Separates: true})
	randomWrites(apart, rand.NewPCG(1, 1), 1400, 50000)
	f.Add(marshal(f, apart))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := new(FTL)
		if err := l.UnmarshalBinary(b); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("%v is not ErrDamaged", err)
			}
			return
		}
		if !bytes.Equal(b, marshal(t, l)) {
			t.Fatal("accepted bytes do not come out again")
		}
		mustCheck(t, l)
		if l.cfg.LogicalPages > 1<<14 || l.cfg.Geometry.TotalPages() > 1<<16 {
			return
		}
		randomWrites(l, rand.NewPCG(1, 2), l.cfg.LogicalPages, 2*int(l.cfg.Geometry.TotalPages()))
		l.Deallocate(0, l.cfg.LogicalPages)
		l.WriteRun(0, l.cfg.LogicalPages)
		mustCheck(t, l)
	})
}

func TestFTL_determinism(t *testing.T) {
	run := func(seed uint64) []byte {
		f := mustNew(t, Config{LogicalPages: 1500, Geometry: Geometry{20, 100}, RatedCycles: 50, Seed: seed})
		randomWrites(f, rand.NewPCG(9, 9), 1500, 60000)
		return marshal(t, f)
	}
	if !bytes.Equal(run(1), run(1)) {
		t.Error("one seed, two histories")
	}
	a, b := new(FTL), new(FTL)
	if err := errors.Join(a.UnmarshalBinary(run(1)), b.UnmarshalBinary(run(2))); err != nil {
		t.Fatal(err)
	}
	if a.Wear().FailedBlocks == b.Wear().FailedBlocks && a.pcg == b.pcg {
		t.Error("another seed changes nothing")
	}
}
