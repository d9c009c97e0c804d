package namespace

import (
	"fmt"
	"math/big"
)

// Contradiction is what a spec wants that no drive can be.
type Contradiction struct {
	// Field is the field, as for [Spec.Where].
	Field  string
	Reason string
}

// Contradictions lists what in a spec cannot be together, whatever the drive. A
// spec with one can be read, planned from as far as a drive goes along, and never
// met.
func (s Spec) Contradictions() []Contradiction {
	return append(s.shareContradictions(), s.settingContradictions()...)
}

// shareContradictions are namespaces that together want more than a drive.
func (s Spec) shareContradictions() []Contradiction {
	var list []Contradiction
	all := big.NewRat(100, 1)
	sum, factory, count := new(big.Rat), 0, 0
	last := ""
	for _, n := range s.Namespaces {
		count += n.Count
		switch n.Size.Kind {
		case SizePercent:
			sum.Add(sum, new(big.Rat).Mul(n.Size.amount, big.NewRat(int64(n.Count), 1)))
			last = n.path + ".size"
		case SizeFactory:
			if factory += n.Count; factory == 1 {
				continue
			}
			list = append(list, Contradiction{n.path + ".size", "factory is the capacity of the whole drive: no two namespaces have it"})
		}
	}
	percents := 0
	for _, n := range s.Namespaces {
		if n.Size.Kind == SizePercent {
			percents += n.Count
		}
	}
	switch c := sum.Cmp(all); {
	case c > 0:
		list = append(list, Contradiction{last, fmt.Sprintf("the namespaces together are %s %% of the drive", sum.FloatString(2))})
	case c == 0 && count > percents:
		list = append(list, Contradiction{last, "these namespaces are 100 % of the drive, and there are others"})
	}
	return list
}

// settingContradictions are settings of one feature that exclude each other.
func (s Spec) settingContradictions() []Contradiction {
	var list []Contradiction
	value := func(path string) (int64, bool) {
		for _, w := range s.Settings {
			if w.Path == path && w.Number != noCelsius {
				return w.Number, true
			}
		}
		return 0, false
	}
	below := func(low, high, reason string) {
		a, ok1 := value(low)
		b, ok2 := value(high)
		if ok1 && ok2 && a >= b {
			list = append(list, Contradiction{low, fmt.Sprintf(reason, a, b)})
		}
	}
	below("features.host_thermal.light", "features.host_thermal.heavy", "light throttling from %d C is not below heavy throttling from %d C")
	for sensor := range 9 {
		name := "features.temperature_threshold."
		if sensor > 0 {
			name += fmt.Sprintf("sensor%d_", sensor)
		}
		below(name+"under", name+"over", "a lower threshold of %d C is not below the upper one of %d C: the drive warns at every temperature")
	}
	on, empty := false, false
	for _, w := range s.Settings {
		on = on || w.Path == "features.apst.enabled" && w.Number != 0
		empty = empty || w.Path == "features.apst.transitions" && w.Text == ""
	}
	if on && empty {
		list = append(list, Contradiction{"features.apst.transitions", "autonomous transitions are on and the table of them is empty: they never take place"})
	}
	return list
}
