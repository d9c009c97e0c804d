package audit

import (
	"fmt"
	"strings"

	"nvop/namespace"
	"nvop/nvmeioctl"
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
		for _, c := range s.Contradictions() {
			add(c.Field, c.Reason)
		}
		if s.Namespaces == nil && (s.ReplaceAll || len(s.Replace) > 0) {
			add("replace", "without namespaces nothing takes the place of what it names, and nothing is deleted")
		}
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
	return (a.Serial == "" || a.Serial == b.Serial) && coversGlob(a.Model, b.Model) && coversGlob(a.Subsystem, b.Subsystem) &&
		coversGlob(a.Address, b.Address) && (a.Vendor == 0 || a.Vendor == b.Vendor)
}

// coversGlob says that glob a matches all that glob b does; an empty one matches
// everything.
func coversGlob(a, b string) bool {
	const special = "*?[\\"
	switch head := strings.TrimRight(a, "*"); {
	case a == b, head == "":
		return true
	case b == "":
		return false
	case !strings.ContainsAny(b, special):
		return namespace.Match{Model: a}.Matches(namespace.Subject{Identity: nvmeioctl.Identity{Model: b}})
	case head == a || strings.ContainsAny(head, special):
		return false // which of two such globs is the wider cannot be told so simply
	default:
		// "MEM*" takes what begins with MEM, whatever follows.
		begin := b[:strings.IndexAny(b, special)]
		return strings.HasPrefix(begin, head)
	}
}

func empty(s namespace.Spec) bool {
	return s.Namespaces == nil && len(s.Settings) == 0 && s.Firmware == nil && s.PCIe == (namespace.PCIeSpec{}) && s.Health == (namespace.HealthSpec{})
}
