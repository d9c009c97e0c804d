package pcie

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Watch looks at a path again and again while a drive works: what a soak asks
// beside the drive's own health. It reads attributes that need no privilege and
// wake nothing up; configuration space is not touched. It has one user.
type Watch struct {
	sys  Sysfs
	hops []Address
	dirs []string
	last []glance
}

// glance is what one look saw of a hop.
type glance struct {
	gone   bool
	speed  Speed
	width  Width
	errors *ErrorCounters
}

// WatchEvent is a change between two looks.
type WatchEvent struct {
	At Address `json:"at"`
	// Kind is "link" for another speed or width, "aer" for errors counted,
	// "gone" and "back" for the function itself.
	Kind string `json:"kind"`
	// Severity is Warning for a link that became slower and for uncorrectable
	// errors, Critical for a function that is gone, Note otherwise.
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	// Errors are the counters that grew, by the kernel's names with their kind
	// before them ("fatal MalfTLP"), and by how much.
	Errors map[string]uint64 `json:"errors,omitempty"`
}

// Watch begins to watch the path of the function at a.
func (s Sysfs) Watch(a Address) (*Watch, error) {
	p, err := s.place(a)
	if err != nil {
		return nil, err
	}
	w := &Watch{sys: s}
	for _, hop := range p.chain {
		dir, err := s.directory(hop)
		if err != nil {
			return nil, err
		}
		w.hops, w.dirs = append(w.hops, hop), append(w.dirs, dir)
	}
	for i := range w.hops {
		w.last = append(w.last, w.look(i))
	}
	return w, nil
}

func (w *Watch) look(i int) glance {
	if !w.sys.Exists(w.hops[i]) {
		return glance{gone: true}
	}
	return glance{
		speed: parseSpeed(w.sys.text(w.dirs[i], "current_link_speed")), width: parseWidth(w.sys.text(w.dirs[i], "current_link_width")),
		errors: w.sys.errorCounters(w.dirs[i]),
	}
}

// Link is the device's link as last seen; zeros where the kernel does not say.
func (w *Watch) Link() (Speed, Width) {
	g := w.last[len(w.last)-1]
	return g.speed, g.width
}

// Look says what changed since the last look, or since the watch began.
func (w *Watch) Look() []WatchEvent {
	var events []WatchEvent
	for i, hop := range w.hops {
		was, is := w.last[i], w.look(i)
		w.last[i] = is
		switch {
		case is.gone && !was.gone:
			events = append(events, WatchEvent{At: hop, Kind: "gone", Severity: Critical, Text: "the function is gone"})
			continue
		case was.gone && !is.gone:
			events = append(events, WatchEvent{At: hop, Kind: "back", Severity: Note, Text: "the function is back"})
			continue
		case is.gone:
			continue
		}
		if e, changed := linkEvent(hop, was, is); changed {
			events = append(events, e)
		}
		if grown := is.errors.Since(was.errors); was.errors != nil && len(grown) > 0 {
			events = append(events, errorEvent(hop, grown))
		}
	}
	return events
}

func linkEvent(hop Address, was, is glance) (WatchEvent, bool) {
	if was.speed == is.speed && was.width == is.width {
		return WatchEvent{}, false
	}
	e := WatchEvent{At: hop, Kind: "link", Severity: Note, Text: fmt.Sprintf("link %s, was %s", linkText(is.speed, is.width), linkText(was.speed, was.width))}
	if RawRate(is.speed, is.width) < RawRate(was.speed, was.width) {
		e.Severity = Warning
	}
	return e, true
}

func errorEvent(hop Address, grown map[string]uint64) WatchEvent {
	e := WatchEvent{At: hop, Kind: "aer", Severity: Note, Errors: grown}
	var said []string
	for _, name := range slices.Sorted(maps.Keys(grown)) {
		said = append(said, fmt.Sprintf("%s %d", name, grown[name]))
		if !strings.HasPrefix(name, "correctable") {
			e.Severity = Warning
		}
	}
	e.Text = "errors on the link: " + strings.Join(said, ", ")
	return e
}
