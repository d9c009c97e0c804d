package predict

import (
	"math"
	"testing"
)

// The prototype's figures: rated cycles of 7000, no floor.
func TestForecast_lifetime(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	const usable = 9.262e12
	for _, c := range []struct{ size, cycles, want float64 }{
		{7.681501126656e12, 5000, 14.9e15}, {7.681501126656e12, 7000, 20.8e15}, {7.681501126656e12, 10000, 29.7e15},
		{6.401252745216e12, 5000, 25.3e15}, {6.401252745216e12, 7000, 35.4e15}, {6.401252745216e12, 10000, 50.6e15},
		{5.12e12, 7000, 47.7e15},
	} {
		f, err := Forecast(Future{UsableBytes: usable, CapacityBytes: c.size, Cycles: c.cycles})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(f.HostBytes/c.want-1) > 0.01 || math.Abs(f.UsedRatio-1) > 1e-9 {
			t.Errorf("%.2f TB, %.0f cycles: %.2f PB at %.3f used, expected %.1f PB", c.size/1e12, c.cycles, f.HostBytes/1e15, f.UsedRatio, c.want/1e15)
		}
		last := Stage{}
		for _, s := range f.Stages {
			if s.HostBytes <= last.HostBytes || s.UsedRatio <= last.UsedRatio || s.WAF < 1 {
				t.Fatalf("%+v follows %+v", s, last)
			}
			last = s
		}
	}
}

func TestForecast_petabytes(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	for _, w := range []Workload{{}, {Kind: JESD219}, {Kind: Zipf, Theta: .8}, {Kind: Sequential}} {
		q := Future{UsableBytes: 9.262e12, CapacityBytes: 6.4e12, Cycles: 7000, FloorWAF: 1.02, Workload: w, HostBytes: 1e15}
		f, err := Forecast(q)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(f.HostBytes/1e15-1) > 1e-9 {
			t.Errorf("%s: %.3g bytes", w.Kind, f.HostBytes)
		}
		if want := 1e15 * f.SteadyWAF / 9.262e12 / 7000; math.Abs(f.UsedRatio/want-1) > 0.02 {
			t.Errorf("%s: %.4f used, a WAF of %.3f makes %.4f", w.Kind, f.UsedRatio, f.SteadyWAF, want)
		}
		// Wearing out makes the end come sooner.
		q.HostBytes = 0
		whole, err := Forecast(q)
		if err != nil {
			t.Fatal(err)
		}
		q.LostAtRating = 0.05
		less, err := Forecast(q)
		if err != nil {
			t.Fatal(err)
		}
		if !(less.HostBytes < whole.HostBytes*0.999) {
			t.Errorf("%s: %.3g bytes with flash failing, %.3g without", w.Kind, less.HostBytes, whole.HostBytes)
		}
	}
}

func TestForecast_settling(t *testing.T) {
	for _, c := range []struct{ alpha, low, high float64 }{{1.145, .5, 1.5}, {1.374, 1, 2.5}, {1.6, 1.5, 4}} {
		f, err := Forecast(Future{UsableBytes: c.alpha * 1e12, CapacityBytes: 1e12, Cycles: 3000, HostBytes: 2e13})
		if err != nil {
			t.Fatal(err)
		}
		if s := f.SettlingDriveWrites; s < c.low || s > c.high {
			t.Errorf("alpha %g: settles after %.1f drive writes, expected %g to %g", c.alpha, s, c.low, c.high)
		}
	}
}

func TestForecast_refuses(t *testing.T) {
	good := Future{UsableBytes: 2e12, CapacityBytes: 1e12, Cycles: 1000}
	for _, breakIt := range []func(*Future){
		func(q *Future) { q.UsableBytes = 1e12 }, func(q *Future) { q.Cycles = 0 }, func(q *Future) { q.FloorWAF = 0.5 },
		func(q *Future) { q.CapacityBytes = math.NaN() }, func(q *Future) { q.HostBytes = -1 }, func(q *Future) { q.UsedRatio = math.NaN() },
		func(q *Future) { q.Workload.Kind = Mixed }, func(q *Future) { q.Workload.Kind = "oltp" }, func(q *Future) { q.LostAtRating = 1 },
	} {
		q := good
		breakIt(&q)
		if _, err := Forecast(q); err == nil {
			t.Errorf("%+v was accepted", q)
		}
	}
}

func benchmarkForecast(b *testing.B, bytes float64, kind Kind) {
	for b.Loop() {
		if _, err := Forecast(Future{UsableBytes: 9.262e12, CapacityBytes: 6.4e12, Cycles: 7000, Workload: Workload{Kind: kind}, HostBytes: bytes}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForecast_1PB(b *testing.B)         { benchmarkForecast(b, 1e15, Uniform) }
func BenchmarkForecast_35PB(b *testing.B)        { benchmarkForecast(b, 35e15, Uniform) }
func BenchmarkForecast_35PBJESD219(b *testing.B) { benchmarkForecast(b, 35e15, JESD219) }

// The whole of it page by page, so to speak: no extrapolation.
func BenchmarkMeanField_1PB(b *testing.B) {
	for b.Loop() {
		f, err := NewMeanField(FieldConfig{Alpha: 9.262 / 6.4, Full: true})
		if err != nil {
			b.Fatal(err)
		}
		f.Run(1e15 / 6.4e12)
	}
}
