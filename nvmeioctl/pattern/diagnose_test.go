package pattern

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestMix_isUndone(t *testing.T) {
	one := uint64(golden)
	if one*goldenInverse != 1 {
		t.Fatal("not the inverse of the golden word")
	}
	rapid.Check(t, func(t *rapid.T) {
		if x := rapid.Uint64().Draw(t, "x"); unmix64(mix64(x)) != x {
			t.Fatalf("%x comes back as %x", x, unmix64(mix64(x)))
		}
	})
}

// Each way in which a block can go wrong is named, of any size, with and without
// knowledge of what was there before.
func TestDiagnose_namesWhatHappened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]uint32{512, 1024, 4096}).Draw(t, "size")
		c := Config{Run: 11, Seed: 4, BlockBytes: size}
		if rapid.Bool().Draw(t, "compresses") {
			c.CompressPermille = 500
		}
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		lba := rapid.Uint64Range(0, 1<<40).Draw(t, "lba")
		generation := rapid.Uint64Range(3, 1<<50).Draw(t, "generation")
		older := generation - rapid.Uint64Range(1, 3).Draw(t, "age")
		make_ := func(lba, generation uint64) []byte {
			b := make([]byte, size)
			s.Fill(b, lba, generation)
			return b
		}
		want, old := make_(lba, generation), make_(lba, older)
		elsewhere := make_(lba+rapid.Uint64Range(1, 1<<30).Draw(t, "distance"), generation)
		most := int(size) - leastPart
		if c.CompressPermille != 0 {
			most = SectorBytes/2 - 2*leastPart // beyond are zeros, which are the same in both
		}
		cut := rapid.IntRange(leastPart+HeaderBytes, most).Draw(t, "cut")
		flipped := bytes.Clone(want)
		for range rapid.IntRange(1, 6).Draw(t, "bits") {
			flipped[rapid.IntRange(0, int(size)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		e := Expected{Generation: generation, Known: true}
		if rapid.Bool().Draw(t, "knows the generation before") {
			e.Before = []uint64{older}
		}
		unknown := Expected{}
		for _, c := range []struct {
			name  string
			block []byte
			e     Expected
			want  Finding
		}{
			{"as written", want, e, Right},
			{"as written, of unknown generation", want, unknown, Intact},
			{"an older state", old, e, Lost},
			{"never written", make([]byte, size), e, Lost},
			{"never written, and need not be", make([]byte, size), Expected{First: true}, Blank},
			{"of another address", elsewhere, e, Misdirected},
			{"of another address, of unknown generation", elsewhere, unknown, Misdirected},
			{"half new, half old", splice(want, old, cut), e, Torn},
			{"half old, half new", splice(old, want, cut), e, Torn},
			{"half new, half old, of unknown generation", splice(want, old, cut), unknown, Torn},
			{"half of another address", splice(want, elsewhere, cut), e, Torn},
			{"bits changed", flipped, e, Rotten},
			{"bits changed, of unknown generation", flipped, unknown, Rotten},
		} {
			if bytes.Equal(c.block, want) && c.want != Right && c.want != Intact {
				continue // the flips undid each other
			}
			d := s.Diagnose(c.block, lba, c.e)
			if d.Finding != c.want {
				t.Fatalf("%s is called %s: %+v", c.name, d.Finding, d)
			}
			if c.want == Torn && c.e.Known && !bytes.Equal(c.block[cut:], elsewhere[cut:]) && (!d.HasOther || d.Other != older) {
				t.Fatalf("%s: the other part is of generation %d (%v), not %d", c.name, d.Other, d.HasOther, older)
			}
			if c.want == Rotten && c.e.Known && (d.Bytes == 0 || want[d.OffsetBytes] == c.block[d.OffsetBytes]) {
				t.Fatalf("%s: %d bytes from %d on", c.name, d.Bytes, d.OffsetBytes)
			}
		}
	})
}

// What another run left is not taken for this one's.
func TestDiagnose_anotherRun(t *testing.T) {
	s := mustNew(t, Config{Run: 1, Seed: 4, BlockBytes: 4096})
	b := make([]byte, 4096)
	for _, other := range []Config{{Run: 2, Seed: 4, BlockBytes: 4096}, {Run: 1, Seed: 5, BlockBytes: 4096}} {
		mustNew(t, other).Fill(b, 9, 7)
		if d := s.Diagnose(b, 9, Expected{Generation: 7, Known: true}); d.Finding != Lost {
			t.Errorf("the same address of another run: %s", d.Finding)
		}
		if d := s.Diagnose(b, 9, Expected{First: true}); d.Finding != Blank {
			t.Errorf("left by another run where nothing was written: %s", d.Finding)
		}
		if d := s.Diagnose(b, 10, Expected{Generation: 7, Known: true}); d.Finding != Misdirected {
			t.Errorf("another address of another run: %s", d.Finding)
		}
	}
	foreign := bytes.Repeat([]byte("somebody's file system "), 200)[:4096]
	if d := s.Diagnose(foreign, 9, Expected{Generation: 1, Known: true, First: true}); d.Finding != Lost {
		t.Errorf("what was there before the first write: %s", d.Finding)
	}
	if d := s.Diagnose(foreign, 9, Expected{Generation: 9, Known: true, Before: []uint64{8}}); d.Finding != Rotten {
		t.Errorf("noise where two writes of this run were: %s", d.Finding)
	}
}

func TestDiagnose_duplicates(t *testing.T) {
	s := mustNew(t, Config{Run: 1, Seed: 4, BlockBytes: 4096, DedupPermille: 10, RegionBlocks: 1 << 20})
	b := make([]byte, 4096)
	for lba := range uint64(50) {
		if !s.Header(lba, 5).Duplicate || s.Header(lba, 4) == s.Header(lba, 5) {
			continue
		}
		s.Fill(b, lba, 4)
		if d := s.Diagnose(b, lba, Expected{Generation: 5, Known: true, Before: []uint64{4}}); d.Finding != Lost {
			t.Errorf("LBA %d holds the content before: %s", lba, d.Finding)
		}
	}
}

// Hostile bytes: no panic, and never right unless they are.
func FuzzDiagnose(f *testing.F) {
	s, _ := New(Config{Run: 1, Seed: 2, BlockBytes: 512})
	b := make([]byte, 512)
	s.Fill(b, 3, 4)
	f.Add(b, uint64(3), uint64(4), true)
	f.Add(b[:200], uint64(3), uint64(5), false)
	f.Fuzz(func(t *testing.T, data []byte, lba, generation uint64, known bool) {
		block := make([]byte, 512)
		copy(block, data)
		d := s.Diagnose(block, lba, Expected{Generation: generation, Known: known, First: lba&1 != 0, Before: []uint64{generation - 1}})
		right := s.Check(block, lba, generation) == 1
		if (d.Finding == Right) != (right && known) {
			t.Fatalf("%s, and right is %v", d.Finding, right)
		}
		if int(d.OffsetBytes) > 512 || d.Bytes > 512 {
			t.Fatalf("a difference of %d bytes at %d", d.Bytes, d.OffsetBytes)
		}
	})
}

// splice is the beginning of one block and the rest of another.
func splice(a, b []byte, cut int) []byte { return append(bytes.Clone(a[:cut]), b[cut:]...) }
