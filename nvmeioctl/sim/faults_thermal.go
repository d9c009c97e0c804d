package sim

import "nvop/nvmeioctl/nvmespec"

// thermalCount counts what heat has done: how long the drive was at or above
// its warning and its critical temperature, and how often it got there.
type thermalCount struct {
	// WarningNS is the time at the warning temperature and below the critical
	// one, CriticalNS that at the critical one and above.
	WarningNS  int64 `json:"warning_ns,omitempty"`
	CriticalNS int64 `json:"critical_ns,omitempty"`
	// Times counts the drive getting to each, AboveNS the time there.
	Times   [2]uint32 `json:"times,omitzero"`
	AboveNS [2]int64  `json:"above_ns,omitzero"`
	Above   [2]bool   `json:"above,omitzero"`
	// AtNS is up to when it is counted.
	AtNS int64 `json:"at_ns,omitempty"`
}

// heatUp counts up to now, and says whether the drive has begun or ended to
// throttle. kelvin is the temperature now; heat is how it got there, nil if it
// did not change.
func (t *thermalCount) heatUp(now int64, kelvin uint16, heat *faultRamp, limits [2]uint16) (changed bool) {
	var above [2]int64
	for i, limit := range limits {
		if limit == 0 {
			continue
		}
		if heat != nil {
			above[i] = heat.above(int64(limit)*1000, t.AtNS, now)
		} else if t.Above[i] {
			above[i] = now - t.AtNS
		}
		t.AboveNS[i] += above[i]
		is := kelvin >= limit
		if (is || above[i] > 0) && !t.Above[i] {
			t.Times[i]++
		}
		changed = changed || is != t.Above[i]
		t.Above[i] = is
	}
	t.WarningNS += max(above[0]-above[1], 0)
	t.CriticalNS += above[1]
	t.AtNS = now
	return changed
}

// above is how much of the time from a to b the value is at or above a limit.
func (r *faultRamp) above(limit, a, b int64) int64 {
	a = max(a, r.StartNS)
	if a >= b {
		return 0
	}
	var total int64
	if b > r.EndNS { // it stays where it got
		if r.To >= limit {
			total = b - max(a, r.EndNS)
		}
		b = r.EndNS
	}
	if a >= b {
		return total
	}
	from, to := r.at(a), r.at(b)
	switch {
	case from >= limit && to >= limit:
		return total + b - a
	case from < limit && to < limit:
		return total
	}
	// It crosses the limit once.
	cross := a + int64(float64(b-a)*float64(limit-from)/float64(to-from))
	if to >= limit {
		return total + b - cross
	}
	return total + cross - a
}

// thermal brings the counts up to now.
func (d *Drive) thermal() {
	p, f := &d.st.Profile, &d.st.Faults
	if f.Heat == nil && !f.Thermal.Above[0] && !f.Thermal.Above[1] {
		f.Thermal.AtNS = int64(d.clock.Now())
		return
	}
	m := d.counters()
	if f.Thermal.heatUp(int64(d.clock.Now()), m.Kelvin, f.Heat, [2]uint16{p.WarningKelvin, p.CriticalKelvin}) {
		d.applyPower()
	}
}

// throttled is what of the power heat leaves: a half at the warning
// temperature, a quarter at the critical one (chosen).
func (d *Drive) throttled(milliwatts uint32) uint32 {
	switch t := &d.st.Faults.Thermal; {
	case t.Above[1]:
		return milliwatts / 4
	case t.Above[0]:
		return milliwatts / 2
	}
	return milliwatts
}

// level is the present throttling as the OCP log tells it: 0 none, 1 light, 2
// heavy.
func (t *thermalCount) level() uint8 {
	switch {
	case t.Above[1]:
		return 2
	case t.Above[0]:
		return 1
	}
	return 0
}

// smart puts the counts into a SMART log.
func (t *thermalCount) smart(s nvmespec.SMART) nvmespec.SMART {
	s.WarningTemperatureMinutes, s.CriticalTemperatureMinutes = uint32(t.WarningNS/60e9), uint32(t.CriticalNS/60e9)
	s.ThermalTransitions = t.Times
	s.ThermalSeconds = [2]uint32{uint32(t.AboveNS[0] / 1e9), uint32(t.AboveNS[1] / 1e9)}
	return s
}
