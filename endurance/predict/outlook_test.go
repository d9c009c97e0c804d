package predict

import "testing"

func TestOutlooks(t *testing.T) {
	// The 7.68 TB drive with 7000 cycles: 65 PB of flash writes.
	const media = 7000 * 9.262e12
	now := Interval{Low: 3.10, Mid: 3.12, High: 3.14}
	for _, alpha := range []float64{1.2058, 0} {
		list := Outlooks(media, media, now, alpha, 1.0, true, 4096)
		if len(list) != 3 {
			t.Fatalf("%+v", list)
		}
		for i, c := range []struct{ inside float64 }{{20.8e15}, {media / 3.4}, {media}} {
			if o := list[i]; c.inside < o.Low*0.999 || o.High == nil || c.inside > *o.High*1.001 {
				t.Errorf("alpha %g, %s: %.3g to %v, expected %.3g inside", alpha, o.Name, o.Low, o.High, c.inside)
			}
		}
	}
	if list := Outlooks(media, 0, now, 0, 0, false, 0); len(list) != 2 || list[0].High != nil {
		t.Errorf("without alpha and upper bound: %+v", list)
	}
}
