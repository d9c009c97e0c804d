package namespace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// initSkewSeconds is how exact a clock has to be for WriteSpec to hold a drive to it.
const initSkewSeconds = 60

// WriteSpec is the spec that a drive has now, as YAML: an audit by it finds
// nothing, and a plan from it is empty. What the drive does not have, and what
// moves by itself, is left out. inv should have been read with [AllFeatures].
func WriteSpec(inv Inventory, path PCIeSpec) string {
	w := &specWriter{}
	w.line(0, "# %s, serial %s, firmware %s, as it was at %s", inv.Identity.Model, inv.Identity.Serial, inv.Controller.FirmwareRevision,
		inv.TakenAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	w.line(0, "version: %d", SpecVersion)
	w.line(0, "match:")
	w.line(1, "serial: %s", quoted(inv.Identity.Serial))
	w.namespaces(inv)
	w.settings(inv)
	if revision := inv.Controller.FirmwareRevision; revision != "" && revision == strings.TrimSpace(revision) {
		w.line(0, "firmware:")
		w.line(1, "revision: %s", quoted(revision))
	}
	w.pcie(path)
	w.health(inv.Health)
	return w.b.String()
}

type specWriter struct{ b strings.Builder }

func (w *specWriter) line(indent int, format string, args ...any) {
	w.b.WriteString(strings.Repeat("  ", indent))
	fmt.Fprintf(&w.b, format+"\n", args...)
}

// quoted is text as a YAML string that nothing takes for a number.
func quoted(text string) string { return strconv.Quote(text) }

func (w *specWriter) namespaces(inv Inventory) {
	for _, problem := range inv.Problems {
		if problem.What == ProblemNamespaceList {
			w.line(0, "# the namespaces could not be read: %s", oneLine(problem.Error))
			return
		}
	}
	if len(inv.Namespaces) == 0 {
		w.line(0, "namespaces: []")
		return
	}
	for _, n := range inv.Namespaces {
		if n.Error != "" || n.CapacityBlocks != n.SizeBlocks || n.SizeBlocks == 0 {
			w.line(0, "# the namespaces are left out: namespace %d cannot be described (%s)", n.NSID, oneLine(orThin(n)))
			return
		}
	}
	w.line(0, "namespaces:")
	for i := 0; i < len(inv.Namespaces); {
		text := namespaceText(inv, inv.Namespaces[i])
		count := 1
		for i+count < len(inv.Namespaces) && namespaceText(inv, inv.Namespaces[i+count]) == text {
			count++
		}
		lines := strings.Split(text, "\n")
		w.line(1, "- %s", lines[0])
		for _, line := range lines[1:] {
			w.line(2, "%s", line)
		}
		if count > 1 {
			w.line(2, "count: %d", count)
		}
		i += count
	}
}

func orThin(n Namespace) string {
	if n.Error != "" {
		return n.Error
	}
	return "its capacity is not its size"
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// namespaceText is one namespace in lines of YAML.
func namespaceText(inv Inventory, n Namespace) string {
	lines := []string{sizeText(n)}
	lines = append(lines, fmt.Sprintf("lba: {data: %d, metadata: %d}", n.Format.DataBytes, n.Format.MetadataBytes))
	if n.Protection&7 != 0 {
		lines = append(lines, fmt.Sprintf("protection: {type: %d, first: %t}", n.Protection&7, n.Protection&protectionFirst != 0))
	} else {
		lines = append(lines, "protection: {type: 0}")
	}
	lines = append(lines, fmt.Sprintf("shared: %t", n.Shared()))
	if !slices.Equal(n.Controllers, []uint16{inv.Identity.CNTLID}) {
		var ids []string
		for _, id := range n.Controllers {
			ids = append(ids, strconv.Itoa(int(id)))
		}
		lines = append(lines, "controllers: ["+strings.Join(ids, ", ")+"]")
	}
	return strings.Join(lines, "\n")
}

// sizeText is a size as people know it where it is a marketing capacity, else in
// bytes, exactly.
func sizeText(n Namespace) string {
	bytes := n.SizeBytes()
	if gb, whole, ok := largestIDEMA(bytes); ok && whole == bytes {
		return fmt.Sprintf("idema: %dGB", gb)
	}
	return fmt.Sprintf("size: %dB", bytes)
}

func (w *specWriter) settings(inv Inventory) {
	group, section := "", ""
	for _, f := range Settings() {
		value, ok := inv.held(f)
		if !ok {
			continue
		}
		top, name, _ := strings.Cut(f.Group(), ".")
		if top != section {
			w.line(0, "%s:", top)
			section = top
		}
		indent := 1
		if name != "" {
			indent = 2
			if f.Group() != group {
				w.line(1, "%s:", name)
			}
		}
		group = f.Group()
		w.value(indent, f, value)
	}
}

func (w *specWriter) value(indent int, f SettingField, s Setting) {
	if f.Form != FormTransitions {
		w.line(indent, "%s: %s", f.Name(), f.Format(s))
		return
	}
	if s.Text == "" {
		w.line(indent, "%s: []", f.Name())
		return
	}
	w.line(indent, "%s:", f.Name())
	for part := range strings.FieldsSeq(s.Text) {
		var from, to, idle int
		if _, err := fmt.Sscanf(part, "%d>%d@%dms", &from, &to, &idle); err == nil {
			w.line(indent+1, "- {from: %d, to: %d, idle_ms: %d}", from, to, idle)
		}
	}
}

// held is the value of a setting that a drive can be held to; false where it has
// none, its namespaces disagree, or the value is no policy.
func (inv Inventory) held(f SettingField) (Setting, bool) {
	var found *Setting
	for _, r := range inv.Features {
		if r.Feature != f.Feature || r.Selector != f.Selector || r.Current == nil {
			continue
		}
		s, err := f.Read(*r.Current, inv.TakenAt)
		if err != nil || found != nil && *found != s {
			return Setting{}, false
		}
		found = &s
	}
	if found == nil {
		return Setting{}, false
	}
	switch {
	case f.Form == FormClock && (found.Number < 0 || found.Number > initSkewSeconds):
		return Setting{}, false
	case f.Form == FormClock:
		found.Number = initSkewSeconds
	case f.Path == "power.state":
		states := inv.Controller.PowerStates
		if found.Number >= int64(len(states)) || states[found.Number].NonOperational {
			return Setting{}, false
		}
	}
	return *found, true
}

func (w *specWriter) pcie(p PCIeSpec) {
	if p == (PCIeSpec{}) {
		return
	}
	w.line(0, "pcie:")
	if p.PayloadBytes != 0 {
		w.line(1, "payload_bytes: %d", p.PayloadBytes)
	}
	if p.ReadRequestBytes != 0 {
		w.line(1, "read_request_bytes: %d", p.ReadRequestBytes)
	}
	if g := int(p.Generation); g >= 1 && g <= len(speedWords()) {
		w.line(1, "speed: %s", speedWords()[g-1])
	}
	if p.Width != 0 {
		w.line(1, "width: %d", p.Width)
	}
}

func (w *specWriter) health(h *Health) {
	if h == nil {
		return
	}
	w.line(0, "health:")
	w.line(1, "used_percent_max: %d", max(100, h.UsedPercent))
	if h.SpareReported {
		w.line(1, "spare_percent_min: %d", min(h.SpareThresholdPercent, h.SparePercent))
	}
	if n, ok := h.MediaErrors.Uint64(); ok && n < 1<<63 {
		w.line(1, "media_errors_max: %d", n)
	}
	if h.CriticalWarning == 0 {
		w.line(1, "critical_warnings: false")
	}
}
