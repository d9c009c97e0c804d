package run

import (
	"encoding/json"
	"strings"
	"testing"
)

// Case A8: blocks are told apart by drive, namespace, start and seed, so that two
// drives soaked in one process, begun at the same instant with one seed, are not
// taken for each other.
func TestDataRun_tellsDrivesApart(t *testing.T) {
	seen := map[uint64]string{}
	for _, h := range []Header{{Serial: "A", NSID: 1}, {Serial: "B", NSID: 1}, {Serial: "A", NSID: 2}, {Serial: "A", NSID: 1, SubsystemNQN: "nqn.x"}} {
		for _, start := range []int64{0, 1_700_000_000_000_000_000, 1_700_000_000_000_000_001} {
			for _, seed := range []uint64{1, 2} {
				r := DataRun(start, seed, h.Drive())
				if other, is := seen[r]; is {
					t.Errorf("%s and %s have one number", h.Drive(), other)
				}
				seen[r] = h.Drive()
			}
		}
	}
}

func TestVerified_adds(t *testing.T) {
	a := Verified{Blocks: 5, Right: 2, Unknown: 1, Lost: 1, Torn: 1, Kept: 2}
	b := Verified{Blocks: 3, Undecided: 1, Stale: 1, Unreadable: 1}
	a.Add(&b)
	if want := (Verified{Blocks: 8, Right: 2, Unknown: 1, Undecided: 1, Lost: 1, Stale: 1, Torn: 1, Unreadable: 1, Kept: 2}); a != want || a.Mismatches() != 4 {
		t.Errorf("%+v, %d mismatches", a, a.Mismatches())
	}
	for _, k := range MismatchKinds() {
		v := Verified{}
		if *v.Of(k)++; v.Mismatches() != 1 {
			t.Errorf("%s is not counted", k)
		}
	}
}

func TestMismatch_jsonIsHex(t *testing.T) {
	m := Mismatch{Kind: MismatchRotten, Expected: Hex{0xDE, 0xAD}, Found: Hex{0xDE, 0xAF}}
	b, err := json.Marshal(m)
	if err != nil || !strings.Contains(string(b), `"expected_hex":"dead","found_hex":"deaf"`) {
		t.Fatalf("%v: %s", err, b)
	}
	var back Mismatch
	if err := json.Unmarshal(b, &back); err != nil || string(back.Found) != "\xDE\xAF" {
		t.Errorf("%v: %+v", err, back)
	}
	if err := back.Expected.UnmarshalText([]byte("xy")); err == nil {
		t.Error("no hexadecimal digits were accepted")
	}
}

func TestGenerationText(t *testing.T) {
	for generation, want := range map[uint64]string{7: "generation 7", 2<<48 + 9: "generation 9 of phase 2"} {
		if got := GenerationText(generation); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The map's memory is planned for, whatever the mix.
func TestGenerationMapBytes(t *testing.T) {
	j := Job{CapacityBytes: 1 << 30, LBABytes: 512, TimeLapse: 1, Verify: Verify{GenerationMap: true}}
	j.Phases = []Phase{{Pattern: PatternReplacement, BlockBytes: 65536, Sizes: []SizeShare{{Bytes: 4096, Permyriad: 5000}, {Bytes: 65536, Permyriad: 5000}}}}
	if n := j.GenerationMapBytes(); n != 1<<30/4096 {
		t.Errorf("%d bytes for a mix of 4 and 64 KiB", n)
	}
	j.Phases = append(j.Phases, Phase{Pattern: PatternReplacement, BlockBytes: 1536})
	if n := j.GenerationMapBytes(); n != 1<<30/512 {
		t.Errorf("%d bytes with blocks of 1536 beside", n)
	}
	j.Phases = []Phase{{Pattern: PatternRandom, BlockBytes: 4096}, {Pattern: PatternReplacement, BlockBytes: 4096, ReadPercent: 100}}
	if n := j.GenerationMapBytes(); n != 0 {
		t.Errorf("%d bytes where nothing is drawn anew", n)
	}
}
