package pcie

import "fmt"

// LinkVerdict is what a link's speed and width mean.
type LinkVerdict string

// The verdicts on a link. Slot-limited is no fault: the port above cannot do
// more than it does, though the device could.
const (
	LinkOK          LinkVerdict = "ok"
	LinkDegraded    LinkVerdict = "degraded"
	LinkSlotLimited LinkVerdict = "slot-limited"
	// LinkIdle: slower than it could be, by the hardware's own will rather than
	// by errors. Some devices do so while idle; read again under load.
	LinkIdle    LinkVerdict = "idle-downshift"
	LinkUnknown LinkVerdict = "unknown"
)

// LinkState is one link of a path: what is between two functions.
type LinkState struct {
	Lower *Function `json:"-"`
	// Upper is the port above; nil when the dump lacks it.
	Upper   *Function   `json:"-"`
	At      Address     `json:"at"`
	Port    *Address    `json:"port,omitempty"`
	Verdict LinkVerdict `json:"verdict"`
	Speed   Speed       `json:"speed_gt_per_second"`
	Width   Width       `json:"width"`
	// ExpectedSpeed and Width are the smaller of what both ends can do.
	ExpectedSpeed Speed `json:"expected_speed_gt_per_second"`
	ExpectedWidth Width `json:"expected_width"`
	// DeviceSpeed and Width are what the lower end alone could do.
	DeviceSpeed Speed `json:"device_speed_gt_per_second"`
	DeviceWidth Width `json:"device_width"`
	// RawBytesPerSecond is the link's rate after encoding; 0 for no data.
	RawBytesPerSecond float64 `json:"raw_bytes_per_second"`
}

// linkOf is a function's link by its registers, or by sysfs where those could
// not be read.
func linkOf(f *Function) (speed, maxSpeed Speed, width, maxWidth Width) {
	if f == nil {
		return
	}
	if f.Express != nil && f.Express.Link != nil {
		l := f.Express.Link
		speed, maxSpeed, width, maxWidth = l.Speed, l.MaxSpeed, l.Width, l.MaxWidth
	} else if s := f.Sysfs; s != nil && f.Express == nil {
		speed, maxSpeed, width, maxWidth = s.Speed, s.MaxSpeed, s.Width, s.MaxWidth
	}
	if !speed.Known() {
		speed = 0
	}
	if !maxSpeed.Known() {
		maxSpeed = 0
	}
	if !width.Known() {
		width = 0
	}
	if !maxWidth.Known() {
		maxWidth = 0
	}
	return
}

// leadsUp says that the function's own link is the one above it. The upstream
// and a downstream port of one switch have none between them.
func (f *Function) leadsUp() bool {
	if f.Express != nil {
		return f.Express.Type.HasLink() && !f.Express.Type.downstream()
	}
	return f.HeaderOnly
}

// Links are the links of a path, the device's first. The way through a switch
// is none. Without privilege the types of ports are unknown; then links are
// told by what sysfs says of speeds.
func (p Path) Links() []LinkState {
	list := []LinkState{}
	for i, f := range p.Hops {
		if !f.leadsUp() {
			continue
		}
		var upper *Function
		if i+1 < len(p.Hops) {
			upper = p.Hops[i+1]
			if upper.Express != nil && !upper.Express.Type.downstream() {
				upper = nil
			}
		}
		// Without types: device, (down, up)*, root. Every second pair is a switch.
		if f.Express == nil && i%2 == 1 {
			continue
		}
		if f.isRootPort() {
			continue
		}
		list = append(list, judgeLink(f, upper))
	}
	return list
}

func judgeLink(lower, upper *Function) LinkState {
	s := LinkState{Lower: lower, Upper: upper, At: lower.Address, Verdict: LinkUnknown}
	var downSpeed, upSpeed, upMax Speed
	var downWidth, upWidth, upMaxWidth Width
	downSpeed, s.DeviceSpeed, downWidth, s.DeviceWidth = linkOf(lower)
	upSpeed, upMax, upWidth, upMaxWidth = linkOf(upper)
	s.Speed, s.Width = downSpeed, downWidth
	if s.Speed == 0 || s.Width == 0 {
		s.Speed, s.Width = upSpeed, upWidth
	}
	s.ExpectedSpeed, s.ExpectedWidth = s.DeviceSpeed, s.DeviceWidth
	if upper != nil {
		s.Port = &upper.Address
		s.ExpectedSpeed, s.ExpectedWidth = lesser(s.DeviceSpeed, upMax), lesser(s.DeviceWidth, upMaxWidth)
	}
	s.RawBytesPerSecond = RawRate(s.Speed, s.Width)
	switch {
	case s.RawBytesPerSecond == 0 || s.ExpectedSpeed == 0 || s.ExpectedWidth == 0:
	case s.Width < s.ExpectedWidth:
		s.Verdict = LinkDegraded
	case s.Speed < s.ExpectedSpeed:
		s.Verdict = LinkDegraded
		if autonomous(lower) || autonomous(upper) {
			s.Verdict = LinkIdle
		}
	case s.ExpectedSpeed < s.DeviceSpeed || s.ExpectedWidth < s.DeviceWidth:
		s.Verdict = LinkSlotLimited
	default:
		s.Verdict = LinkOK
	}
	return s
}

// autonomous says that hardware changed the link for other reasons than errors
// (Link Status bit 15).
func autonomous(f *Function) bool {
	return f != nil && f.Express != nil && f.Express.Link != nil && f.Express.Link.AutoBandwidthChanged && !f.Express.Link.BandwidthChanged
}

// lesser is the smaller of two that are known; a zero is not.
func lesser[T ~uint8](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func linkText(s Speed, w Width) string { return fmt.Sprintf("%s %s", s, w) }
