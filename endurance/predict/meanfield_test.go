package predict

import (
	"math"
	"testing"
)

// Another program's figures at 256 superblocks, which sits above the law of
// endlessly many by a part in 256.
func TestMeanField_steady(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	for _, c := range []struct{ alpha, want float64 }{{1.07, 7.8468}, {1.145, 4.1433}, {1.374, 2.0460}} {
		f, err := NewMeanField(FieldConfig{Alpha: c.alpha, Full: true})
		if err != nil {
			t.Fatal(err)
		}
		f.Run(6)
		if a := f.Run(20); math.Abs(a/c.want-1) > 0.0005 {
			t.Errorf("alpha %g: %.4f, expected %.4f", c.alpha, a, c.want)
		}
		f, err = NewMeanField(FieldConfig{Alpha: c.alpha, Full: true, Superblocks: 1024})
		if err != nil {
			t.Fatal(err)
		}
		f.Run(3)
		if a := f.Run(3); math.Abs(a/UniformWAF(c.alpha)-1) > 0.002 {
			t.Errorf("alpha %g, 1024 superblocks: %.4f, the law says %.4f", c.alpha, a, UniformWAF(c.alpha))
		}
	}
}

// A real drive (public data: 745 GiB written at random after a sequential fill),
// WAF per half drive write: nothing but T and w0 of its steady state goes in.
func TestMeanField_transientOfARealDrive(t *testing.T) {
	f, err := NewMeanField(FieldConfig{Alpha: 1078. / 745.06, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1.190, 2.045, 1.887, 1.891} {
		if got := 1.035 * f.Run(.5); math.Abs(got/want-1) > 0.027 {
			t.Errorf("half drive write %d: %.3f, measured %.3f", i, got, want)
		}
	}
	if n := f.DriveWrites(); math.Abs(n-2) > 0.03 {
		t.Errorf("%g drive writes", n)
	}
}

// What is valid is what was written: after long enough all of it.
func TestMeanField_conserves(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	for _, w := range []Workload{{}, {Kind: JESD219}, {Kind: Zipf, Theta: .9}} {
		for _, full := range []bool{false, true} {
			f, err := NewMeanField(FieldConfig{Alpha: 1.3, Workload: w, Full: full})
			if err != nil {
				t.Fatal(err)
			}
			f.Run(30)
			f.rescale()
			sum := 0.0
			for _, v := range f.valid {
				sum += v
			}
			if low := 0.995; sum > f.drive*1.0001 || (w.Kind == "" || full) && sum < low*f.drive {
				t.Errorf("%s, full %v: %.3f superblocks are valid, the drive has %.3f", w.Kind, full, sum, f.drive)
			}
		}
	}
}

func TestMeanField_skewIsAboveTheExact(t *testing.T) {
	if raceDetector {
		t.Skip("long and single-threaded: runs without the race detector")
	}
	for _, c := range []struct{ op, exact float64 }{{.07, 8.05}, {.145, 4.435}, {.28, 2.755}, {.374, 2.29}, {.50, 1.92}} {
		f, err := NewMeanField(FieldConfig{Alpha: 1 + c.op, Full: true, Workload: Workload{Kind: JESD219}})
		if err != nil {
			t.Fatal(err)
		}
		f.Run(8)
		if a := f.Run(8); a < c.exact*0.99 || a > c.exact*1.055 {
			t.Errorf("OP %g: %.3f, an exact simulation gives %.3f", c.op, a, c.exact)
		}
	}
}
