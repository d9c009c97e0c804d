package sim

import (
	"nvop/nvmeioctl/nvmespec"
)

// powerState is the power state that a controller's feature 02h names; 0 where it
// names none that the model has.
func (c *controllerState) powerState(p *Profile) uint8 {
	if ps := uint8(c.feature(p, featurePower) & 0x1F); int(ps) < len(p.PowerStates) {
		return ps
	}
	return 0
}

// operational is the power state in which a controller does I/O: the one named,
// or the last one that was operational (NVMe Base 2.x, "Power Management").
func (c *controllerState) operational(p *Profile) uint8 {
	ps := c.powerState(p)
	if p.PowerStates[ps].NonOperational {
		ps = c.Operational
	}
	if int(ps) >= len(p.PowerStates) || p.PowerStates[ps].NonOperational {
		return 0
	}
	return ps
}

// applyPower tells the media what the features say: whether writes may wait
// in a volatile cache, and what power they leave it, the least of what the
// controllers allow. A non-operational state allows no I/O; the first command
// ends it, so the rates are those of the state before.
func (d *Drive) applyPower() {
	p := &d.st.Profile
	limit := p.PowerStates[0].MaxMilliwatts
	for i := range d.st.Controllers {
		c := &d.st.Controllers[i]
		limit = min(limit, p.PowerStates[c.operational(p)].MaxMilliwatts)
		if ps := c.feature(p, featureVendorPower) & 0x1F; int(ps) < len(p.PowerStates) {
			limit = min(limit, p.PowerStates[ps].MaxMilliwatts)
		}
	}
	d.dozing = d.mayDoze()
	if m := d.flash(); m != nil {
		m.through = p.VolatileWriteCache && !d.cacheEnabled(0)
	}
	d.media.powerLimited(d.throttled(limit), p.PowerStates[0].MaxMilliwatts)
}

// mayDoze says that an I/O command may find the drive in a non-operational state.
func (d *Drive) mayDoze() bool {
	p := &d.st.Profile
	for i := range d.st.Controllers {
		c := &d.st.Controllers[i]
		if p.PowerStates[c.powerState(p)].NonOperational || c.transitions(p).Transits() {
			return true
		}
	}
	return false
}

// transitions is the table of autonomous transitions of a controller.
func (c *controllerState) transitions(p *Profile) nvmespec.APST {
	f, ok := lookupFeature(p, uint8(nvmespec.FeatureAPST))
	if !ok {
		return nvmespec.APST{}
	}
	v := c.currentValue(p, &f, featureValue{FID: f.fid})
	a, err := nvmespec.DecodeAPST(v.Value, v.Data)
	if err != nil {
		return nvmespec.APST{}
	}
	return a
}

// rouse ends a non-operational state because of an I/O command through a
// controller that has been idle for so long, and says what that costs, in
// nanoseconds: the exit latency of the deepest state it had come to. A state that
// the host has set is left for good; those that the drive goes to by itself are
// not shown.
func (d *Drive) rouse(controller int, idleNS int64) (costNS int64) {
	p := &d.st.Profile
	c := &d.st.Controllers[controller]
	ps := c.powerState(p)
	if p.PowerStates[ps].NonOperational {
		costNS = int64(p.PowerStates[ps].ExitMicroseconds) * 1000
		now := featureValue{FID: featurePower, Value: c.feature(p, featurePower)}
		now.Value = now.Value&^0x1F | uint32(c.operational(p))
		c.Current = putFeature(c.Current, now)
		d.applyPower()
		return costNS
	}
	table := c.transitions(p)
	for range table.Transitions {
		t := table.Transitions[ps]
		after := int64(t.IdleMilliseconds) * 1e6
		if !table.Enabled || t.IdleMilliseconds == 0 || idleNS < after || int(t.Target) >= len(p.PowerStates) {
			break
		}
		ps, idleNS = t.Target, idleNS-after
	}
	if p.PowerStates[ps].NonOperational {
		costNS = int64(p.PowerStates[ps].ExitMicroseconds) * 1000
	}
	return costNS
}
