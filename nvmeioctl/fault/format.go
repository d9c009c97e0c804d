package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// String is the plan as a script that parses to the same plan.
func (p Plan) String() string {
	var rules []string
	for _, r := range p.rules {
		rules = append(rules, r.String())
	}
	return strings.Join(rules, "; ")
}

// String is the rule as a script that parses to the same rule.
func (r Rule) String() string {
	target := r.When.command()
	switch r.Effect.Kind {
	case Fail:
		return fmt.Sprintf("fail %s with 0x%04x", target, uint16(r.Effect.Status))
	case Drop:
		return "drop " + target
	case Lose:
		return "lose " + target
	case Corrupt:
		return "corrupt " + target
	case Delay:
		return fmt.Sprintf("delay %v %s", r.Effect.Time, target)
	}
	return r.When.String() + " " + r.Effect.String()
}

// command is which commands the trigger is about: "3rd write".
func (t Trigger) command() string {
	if t.Nth > 0 {
		return ordinal(t.Nth) + " " + t.Target.String()
	}
	return "every " + t.Target.String()
}

// String is the trigger as a rule begins with it.
func (t Trigger) String() string {
	switch t.Moment {
	case Before:
		return "before " + t.command()
	case After:
		return "after " + t.command()
	case AtBytes:
		return "at " + formatBytes(t.Bytes)
	case AtTime:
		return "at " + t.Time.String()
	}
	return "now"
}

// String is the effect as a rule ends with it.
func (e Effect) String() string {
	over := ""
	if e.Time > 0 {
		over = " over " + e.Time.String()
	}
	switch e.Kind {
	case PowerCut:
		return "power-cut"
	case Hang:
		return "hang"
	case Spare:
		return fmt.Sprintf("spare %d%%%s", e.Percent, over)
	case ReadOnly:
		return "read-only"
	case Temperature:
		return fmt.Sprintf("temperature %dC%s", e.Celsius, over)
	case MediaError:
		kind := "read"
		if e.Write {
			kind = "write"
		}
		return fmt.Sprintf("media-error %s nsid %d lba %d-%d", kind, e.NSID, e.First, e.Last)
	case Activation:
		return "activation " + e.Time.String()
	case NotReady:
		return "not-ready " + e.Time.String()
	case Attach:
		return fmt.Sprintf("attach nsid %d", e.NSID)
	case Detach:
		return fmt.Sprintf("detach nsid %d", e.NSID)
	case Counter:
		return "counter " + e.Counter.String()
	case Heal:
		return "heal"
	}
	return Rule{Effect: e}.kindName()
}

// kindName names an effect on a command, which has no text without its command.
func (r Rule) kindName() string {
	for name, own := range commandEffects() {
		if own.Effect.Kind == r.Effect.Kind {
			return name
		}
	}
	return "nothing"
}

// String names the fault as the language does.
func (c CounterFault) String() string {
	names := counterNames()
	if i := int(c) - int(CounterReset); i >= 0 && i < len(names) {
		return names[i]
	}
	return "unknown"
}

func (t Target) String() string {
	if t.HasLog {
		return fmt.Sprintf("%s 0x%02x", t.Name, uint8(t.Log))
	}
	return t.Name
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// formatBytes writes an amount in the largest unit that it is a multiple of.
func formatBytes(n uint64) string {
	for _, u := range units() {
		if n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(n, 10) + "B"
}
