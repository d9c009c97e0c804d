package wear

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever unit a counter has, a sequential write of enough finds it.
func TestCalibrateUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom(knownUnits()).Draw(t, "unit")
		waf := rapid.Float64Range(1.0, 1.09).Draw(t, "waf")
		wrote := rapid.Float64Range(float64(unit)*100+1e9, 1e13).Draw(t, "wrote")
		c := &counted{
			host: rapid.Float64Range(0, 1e15).Draw(t, "host"), media: rapid.Float64Range(1e12, 1e15).Draw(t, "media"),
			hostUnit: 512_000, hostUp: true, mediaUnit: unit, mediaUp: rapid.Bool().Draw(t, "up"),
		}
		c.reported = c.media
		first := c.sample(0)
		c.host, c.media = c.host+wrote, c.media+wrote*waf
		c.reported = c.media
		last := c.sample(second)
		// The unit is what is not known: it is declared wrongly.
		first.Media[0].UnitBytes, last.Media[0].UnitBytes = 7, 7
		u := CalibrateUnit(&first, &last)
		if !u.Available || !u.Agrees(unit) {
			t.Fatalf("unit %d, WAF %.3f: %+v", unit, waf, u)
		}
		if len(u.Known) == 0 || u.Agrees(unit*2) || u.Agrees(unit/2) && unit > 1 {
			t.Fatalf("unit %d is not told from its double and half: %+v", unit, u)
		}
	})
}

func TestCalibrateUnit_refuses(t *testing.T) {
	at := func(host, media uint64) Sample {
		return Sample{Epoch: "x", Host: []Host{{Source: "h", UnitBytes: 512_000, Before: N(host), After: N(host)}},
			Media: []Media{{Source: "m", UnitBytes: 1, Units: N(media)}}}
	}
	for name, pair := range map[string][2]Sample{
		"too little":   {at(1, 1), at(100, 10)},
		"stepped back": {at(100, 1000), at(200, 10)},
		"no counter":   {at(1, 0), {Epoch: "x", Host: at(9, 0).Host}},
	} {
		if u := CalibrateUnit(&pair[0], &pair[1]); u.Available || u.Reason == "" {
			t.Errorf("%s: %+v", name, u)
		}
	}
}
