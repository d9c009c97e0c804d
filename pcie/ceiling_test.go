package pcie

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func ceiling(t *testing.T, s Speed, w Width, mps, mrrs Payload) Ceiling {
	t.Helper()
	c, err := CeilingInput{Speed: s, Width: w, MaxPayload: mps, MaxReadRequest: mrrs}.Ceiling()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCeiling_table holds figures that were computed independently of this
// code, for four lanes: sequential read, sequential write with read requests
// of 512 and of 4096 (GB/s), 4K reads (thousands per second).
func TestCeiling_table(t *testing.T) {
	for speed, row := range map[Speed][4][3]string{
		Gen3: {{"3.30", "3.59", "3.75"}, {"3.30", "3.53", "3.66"}, {"3.38", "3.62", "3.75"}, {"786", "851", "888"}},
		Gen4: {{"6.61", "7.17", "7.49"}, {"6.59", "7.06", "7.32"}, {"6.75", "7.24", "7.51"}, {"1571", "1702", "1776"}},
		Gen5: {{"13.22", "14.35", "14.99"}, {"13.19", "14.12", "14.63"}, {"13.50", "14.47", "15.01"}, {"3142", "3404", "3551"}},
		Gen6: {{"26.1", "27.7", "28.5"}, {"26.8", "28.0", "28.7"}, {"26.8", "28.0", "28.7"}, {"6297", "6662", "6861"}},
	} {
		for i, mps := range []Payload{128, 256, 512} {
			c, big := ceiling(t, speed, 4, mps, 512), ceiling(t, speed, 4, mps, 4096)
			for k, got := range []float64{c.Read / 1e9, c.Write / 1e9, big.Write / 1e9, c.Read4K / 1e3} {
				want := row[k][i]
				var value float64
				if _, err := fmt.Sscan(want, &value); err != nil {
					t.Fatal(err)
				}
				// The last digit printed may be rounded either way.
				unit := map[bool]float64{true: 1, false: 0.01}[k == 3]
				if speed == Gen6 && k != 3 {
					unit = 0.1
				}
				if math.Abs(got-value) > unit*0.85 {
					t.Errorf("%s, payload %d, column %d: %.4f, want %s", speed, mps, k, got, want)
				}
			}
		}
	}
	c := ceiling(t, Gen4, 4, 512, 512)
	for name, pair := range map[string][2]float64{
		"hard read 128": {ceiling(t, Gen4, 4, 128, 512).ReadHard, 6.62e9}, "hard read 512": {c.ReadHard, 7.50e9},
		"hard write 128": {ceiling(t, Gen4, 4, 128, 4096).WriteHard, 6.79e9}, "hard write 512": {ceiling(t, Gen4, 4, 512, 4096).WriteHard, 7.56e9},
		"hard read gen5 256": {ceiling(t, Gen5, 4, 256, 512).ReadHard, 14.37e9},
	} {
		if math.Abs(pair[0]-pair[1]) > 0.007e9 {
			t.Errorf("%s: %.3f, want %.3f", name, pair[0]/1e9, pair[1]/1e9)
		}
	}
	// A root complex that answers in 64 bytes.
	for speed, want := range map[Speed]float64{Gen4: 5.95e9, Gen5: 11.9e9} {
		c, err := CeilingInput{Speed: speed, Width: 4, MaxPayload: 512, MaxReadRequest: 4096, CompletionBytes: 64}.Ceiling()
		if err != nil || math.Abs(c.Write-want) > 0.01e9 {
			t.Errorf("%s, completions of 64: %.3f %v", speed, c.Write/1e9, err)
		}
	}
	if a, b := ceiling(t, Gen3, 8, 256, 512), ceiling(t, Gen4, 4, 256, 512); math.Abs(a.Read-b.Read) > 1 {
		t.Errorf("gen3 x8 %.0f, gen4 x4 %.0f", a.Read, b.Read)
	}
	// The gains of larger payloads.
	for _, g := range []struct {
		from, to Payload
		percent  float64
	}{{128, 256, 8.6}, {256, 512, 4.5}, {128, 512, 13.4}} {
		if got := 100 * (ceiling(t, Gen4, 4, g.to, 512).Read/ceiling(t, Gen4, 4, g.from, 512).Read - 1); math.Abs(got-g.percent) > 0.06 {
			t.Errorf("%d to %d: %.2f %%, want %.1f", g.from, g.to, got, g.percent)
		}
	}
	// Two lanes less: a drive on one lane of 5 GT/s (a blog's 374 MB/s).
	if got := ceiling(t, Gen2, 1, 128, 512).Read; math.Abs(got-0.42e9) > 0.005e9 {
		t.Errorf("gen2 x1: %.3f", got/1e9)
	}
	if got := ceiling(t, Gen2, 1, 128, 128).Write; math.Abs(got-0.39e9) > 0.005e9 {
		t.Errorf("gen2 x1, read requests of 128: %.3f", got/1e9)
	}
	// 32 tags of 128 bytes: 4.1 GB/s at 1 us.
	c, err := CeilingInput{Speed: Gen4, Width: 4, MaxPayload: 128, MaxReadRequest: 128, Tags: 32}.Ceiling()
	if err != nil || c.WriteByTagsLow > 4.1e9 || c.WriteByTagsHigh < 4.1e9 {
		t.Errorf("tags: %.2f to %.2f %v", c.WriteByTagsLow/1e9, c.WriteByTagsHigh/1e9, err)
	}
}

// TestExplain_publishedFigures: what vendors and reviewers measured, against
// the model, in percent of the ceiling at 128, 256 and 512 bytes.
func TestExplain_publishedFigures(t *testing.T) {
	const any = 0
	for _, c := range []struct {
		name     string
		workload Workload
		measured float64
		speed    Speed
		mrrs     Payload
		percent  [3]float64
		least    Payload
	}{
		{"PE321 sequential read", SequentialRead, 7.46e9, Gen4, 512, [3]float64{112.9, 104.0, 99.5}, 512},
		{"PE321 4K read", RandomRead4K, 1772e3, Gen4, 512, [3]float64{112.8, 104.1, 99.8}, 512},
		{"PE321 sequential write, requests of 512", SequentialWrite, 7.36e9, Gen4, 512, [3]float64{111.6, any, 100.6}, 512},
		{"PE321 sequential write, requests of 4096", SequentialWrite, 7.36e9, Gen4, 4096, [3]float64{any, 101.7, 98.1}, 512},
		{"PE501 sequential read", SequentialRead, 14.228e9, Gen5, 512, [3]float64{107.7, 99.2, 94.9}, 256},
		{"PE501 4K read", RandomRead4K, 3350e3, Gen5, 512, [3]float64{106.6, 98.4, 94.3}, 256},
		{"PBlaze7 7940 sequential read", SequentialRead, 14.0e9, Gen5, 512, [3]float64{105.9, 97.6, 93.4}, 256},
		{"PBlaze7 7940 4K read", RandomRead4K, 2828e3, Gen5, 512, [3]float64{90.0, 83.1, 79.6}, 128},
		{"Micron 9650, the vendor's claim", SequentialRead, 28e9, Gen6, 512, [3]float64{107, 101, 98.2}, 512},
	} {
		list, least, err := Explain(c.workload, c.measured, CeilingInput{Speed: c.speed, Width: 4, MaxReadRequest: c.mrrs})
		if err != nil {
			t.Fatal(err)
		}
		if least != c.least {
			t.Errorf("%s: allows %d bytes, want %d", c.name, least, c.least)
		}
		for i, want := range c.percent {
			if got := 100 * list[i].Fraction; want != any && math.Abs(got-want) > 0.25 {
				t.Errorf("%s at %d bytes: %.1f %%, want %.1f", c.name, list[i].MaxPayload, got, want)
			}
		}
	}
	if _, least, err := Explain(SequentialRead, 9e9, CeilingInput{Speed: Gen4, Width: 4, MaxReadRequest: 512}); err != nil || least != 0 {
		t.Errorf("an impossible figure allows %d (%v)", least, err)
	}
	if _, _, err := Explain("dancing", 1, CeilingInput{Speed: Gen4, Width: 4, MaxReadRequest: 512}); err == nil {
		t.Error("a workload without a model has one")
	}
}

// TestCeiling_properties: nothing is faster than its bound, and more of
// anything is never slower.
func TestCeiling_properties(t *testing.T) {
	payload := rapid.SampledFrom([]Payload{128, 256, 512, 1024, 2048, 4096})
	rapid.Check(t, func(t *rapid.T) {
		in := CeilingInput{
			Speed: Speed(rapid.IntRange(1, 6).Draw(t, "speed")), Width: rapid.SampledFrom([]Width{1, 2, 4, 8, 16}).Draw(t, "width"),
			MaxPayload: payload.Draw(t, "mps"), MaxReadRequest: payload.Draw(t, "mrrs"), ECRC: rapid.Bool().Draw(t, "ecrc"),
			Flit: rapid.Bool().Draw(t, "flit"),
		}
		c, err := in.Ceiling()
		if err != nil {
			t.Fatal(err)
		}
		if c.Read > c.ReadHard || c.ReadHard > c.Raw || c.Write > c.WriteHard || c.WriteHard > c.Raw || c.Read4K > c.Read4KHard || c.Read4K*4096 > c.ReadHard {
			t.Fatalf("%+v", c)
		}
		for _, grow := range []func(*CeilingInput){
			func(in *CeilingInput) { in.MaxPayload = min(2*in.MaxPayload, 4096) },
			func(in *CeilingInput) { in.MaxReadRequest = min(2*in.MaxReadRequest, 4096) },
			func(in *CeilingInput) { in.Width *= 2 },
			func(in *CeilingInput) { in.ECRC = false },
		} {
			more := in
			grow(&more)
			m, err := more.Ceiling()
			if err != nil {
				t.Fatal(err)
			}
			if m.Read < c.Read || m.Write < c.Write || m.Read4K < c.Read4K {
				t.Fatalf("%+v is slower than %+v", m, c)
			}
		}
	})
	for _, bad := range []CeilingInput{
		{}, {Speed: Gen4, Width: 0, MaxPayload: 128, MaxReadRequest: 128}, {Speed: 7, Width: 4, MaxPayload: 128, MaxReadRequest: 128},
		{Speed: Gen4, Width: 63, MaxPayload: 128, MaxReadRequest: 128}, {Speed: Gen4, Width: 4, MaxPayload: 8192, MaxReadRequest: 128},
		{Speed: Gen4, Width: 4, MaxPayload: 128, MaxReadRequest: 100}, {Speed: Gen4, Width: 4, MaxPayload: 128, MaxReadRequest: 128, CompletionBytes: 1},
	} {
		if c, err := bad.Ceiling(); err == nil {
			t.Errorf("%+v has the ceiling %+v", bad, c)
		}
	}
}
