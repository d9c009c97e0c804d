package audit

import (
	"fmt"

	"nvop/namespace"
)

// Lint lists what specs say that is allowed and probably not meant: a rule that no
// drive can reach, a spec that says nothing, settings that contradict each other.
func Lint(specs []namespace.Spec) []Finding {
	list := []Finding{}
	for i, s := range specs {
		add := func(field, found string) {
			list = append(list, Finding{Severity: Drift, Field: field, Where: s.Where(field), Expected: "a spec that can be met", Found: found})
		}
		for k := range i {
			if covers(specs[k].Match, s.Match) {
				add("match", fmt.Sprintf("no drive gets here: the rule at %s takes every drive this one is for, and the first that fits counts", specs[k].Where("match")))
				break
			}
		}
		if empty(s) {
			add("match", "the rule says nothing about its drives")
		}
		lintThermal(s, add)
		if s.Firmware != nil && s.Firmware.Activate == "live" && len(s.Firmware.AllowLive) == 0 {
			add("firmware.activate", "live is refused unless allow_live names the model, or it is known to be safe")
		}
		if s.Firmware != nil && s.Firmware.Image != "" && s.Firmware.SHA256 == "" {
			add("firmware.image", "an image without sha256 is not protected against being exchanged")
		}
	}
	return list
}

// covers says that a matches every drive that b matches, as far as that can be
// told from the text.
func covers(a, b namespace.Match) bool {
	same := func(x, y string) bool { return x == "" || x == y }
	return same(a.Serial, b.Serial) && same(a.Model, b.Model) && same(a.Subsystem, b.Subsystem) && same(a.Address, b.Address) &&
		(a.Vendor == 0 || a.Vendor == b.Vendor)
}

func empty(s namespace.Spec) bool {
	return s.Namespaces == nil && len(s.Settings) == 0 && s.Firmware == nil && s.PCIe == (namespace.PCIeSpec{}) && s.Health == (namespace.HealthSpec{})
}

// lintThermal looks at the order of the two throttling temperatures: a drive
// refuses them the other way round.
func lintThermal(s namespace.Spec, add func(field, found string)) {
	value := map[string]int64{}
	for _, w := range s.Settings {
		value[w.Path] = w.Number
	}
	light, a := value["features.host_thermal.light"]
	heavy, b := value["features.host_thermal.heavy"]
	const none = -273
	if a && b && light != none && heavy != none && light >= heavy {
		add("features.host_thermal.light", fmt.Sprintf("light throttling from %d C is not below heavy throttling from %d C", light, heavy))
	}
}
