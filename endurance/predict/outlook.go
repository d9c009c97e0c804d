package predict

// Outlook is how much longer a drive lasts under one workload.
type Outlook struct {
	// Name of the workload: "this workload", "jesd219", "sequential".
	Name string   `json:"name"`
	WAF  Interval `json:"waf"`
	// HostBytes more can be written by the host; High is nil where no upper
	// bound is known.
	Low  float64  `json:"low_host_bytes"`
	High *float64 `json:"high_host_bytes"`
}

// Outlooks are three futures of a drive that can program mediaLow to mediaHigh
// more bytes (0: no upper bound known): under the workload of now, whose WAF was
// measured, under JESD219 and under sequential writes. alpha is flash over
// written space; 0 where it is not known, and it then follows from the WAF,
// which is that of uniform random writes if uniform is set. floor of 0 is not
// known; unit of 0 is 4096 bytes.
func Outlooks(mediaLow, mediaHigh float64, now Interval, alpha, floor float64, uniform bool, unit uint64) []Outlook {
	w0 := Interval{Low: floorLow, Mid: floorMid, High: floorHigh}
	if floor != 0 {
		w0 = Interval{Low: floor, Mid: floor, High: floor}
	}
	if unit == 0 {
		unit = 4096
	}
	list := []Outlook{{Name: "this workload", WAF: now}}
	random := Workload{}
	base := now.Mid / w0.Mid / random.UnitFactor(unit)
	if alpha <= 1 && uniform && base > 1.001 {
		alpha = FlashFor(base, 0)
	}
	if alpha > 1.005 {
		jesd := Workload{Kind: JESD219}
		s, u, f := jesd.skew(alpha), UniformWAF(alpha), jesd.UnitFactor(unit)
		list = append(list, Outlook{Name: string(JESD219), WAF: Interval{
			Low: w0.Low * s.Low * u * f, Mid: w0.Mid * s.Mid * u * f, High: w0.High * s.High * u * f, DominatedBy: ofSeparation,
		}})
	}
	w0.DominatedBy = ofFloor
	list = append(list, Outlook{Name: string(Sequential), WAF: w0})
	for i := range list {
		o := &list[i]
		o.Low = mediaLow / o.WAF.High
		if mediaHigh > 0 && o.WAF.Low > 0 {
			high := mediaHigh / o.WAF.Low
			o.High = &high
		}
	}
	return list
}
