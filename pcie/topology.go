package pcie

import (
	"fmt"
	"slices"
)

// maxHops bounds a path: a loop of bridges in a hostile dump ends there.
const maxHops = 32

// Topology is a set of functions and who is above whom.
type Topology struct {
	functions map[Address]*Function
	order     []Address
	// parents holds what sysfs showed; without it bus numbers decide.
	parents map[Address]Address
	// bridges finds a bridge by the bus below it.
	bridges map[busNumber]Address
	// unreadable are functions that the kernel shows and that could not be read.
	unreadable map[Address]error

	// Platform is what holds for the whole machine; nil from a dump.
	Platform *Platform
	// Problems are functions and directories that could not be read.
	Problems []error
}

type busNumber struct {
	domain uint32
	bus    uint8
}

// NewTopology joins functions by the bus numbers of their bridges. Of two with
// one address the later counts.
func NewTopology(list []Function) *Topology {
	t := &Topology{functions: map[Address]*Function{}, parents: map[Address]Address{}, bridges: map[busNumber]Address{}, unreadable: map[Address]error{}}
	for i := range list {
		t.add(&list[i])
	}
	return t
}

func (t *Topology) add(f *Function) {
	if _, known := t.functions[f.Address]; !known {
		at, _ := slices.BinarySearchFunc(t.order, f.Address, Address.Compare)
		t.order = slices.Insert(t.order, at, f.Address)
	}
	t.functions[f.Address] = f
	// A secondary bus 0 is a bridge that was never configured, and a bridge
	// does not lead to the bus it is on.
	if b := f.Bridge; b != nil && b.Secondary != 0 && b.Secondary != f.Address.Bus {
		key := busNumber{f.Address.Domain, b.Secondary}
		if other, taken := t.bridges[key]; !taken || f.Address.Compare(other) < 0 {
			t.bridges[key] = f.Address
		}
	}
}

// Functions are all functions, ordered by address.
func (t *Topology) Functions() []*Function {
	list := make([]*Function, len(t.order))
	for i, a := range t.order {
		list[i] = t.functions[a]
	}
	return list
}

// Lookup finds a function.
func (t *Topology) Lookup(a Address) (*Function, bool) {
	f, ok := t.functions[a]
	return f, ok
}

// Parent is the bridge right above a function: the one whose secondary bus it
// is on.
func (t *Topology) Parent(a Address) (*Function, bool) {
	if p, ok := t.parents[a]; ok {
		return t.Lookup(p)
	}
	if up, ok := t.bridges[busNumber{a.Domain, a.Bus}]; ok {
		return t.Lookup(up)
	}
	return nil, false
}

// Endpoints are the functions that end a path, ordered by address.
func (t *Topology) Endpoints() []*Function {
	var list []*Function
	for _, f := range t.Functions() {
		if f.Express != nil && f.Express.Type.IsEndpoint() || f.Express == nil && f.HeaderOnly && f.HeaderType == 0 {
			list = append(list, f)
		}
	}
	return list
}

// Controllers are the NVMe controllers, ordered by address.
func (t *Topology) Controllers() []*Function {
	return slices.DeleteFunc(t.Functions(), func(f *Function) bool { return f.BaseClass() != 0x0108 })
}

// Path is the way from a function to its root port, and what hangs on the
// same root port.
type Path struct {
	// Hops are the functions on the way, the device first, the root port last.
	Hops []*Function `json:"hops"`
	// Complete: the last hop is a root port. Otherwise the dump lacks the rest,
	// or privilege did.
	Complete bool `json:"complete_to_root_port"`
	// Below are all functions under the last hop, those on the path included.
	Below []*Function `json:"-"`
	// VMD is the function that hides this domain from the rest of the system;
	// nil where there is none. It is no hop: no link leads through it.
	VMD *Function `json:"vmd,omitempty"`
	// Physical is the function whose settings count, where the device is a
	// virtual function; nil otherwise. It is the first hop then.
	Physical *Function `json:"-"`
	// Virtual is the address asked for, where that is a virtual function.
	Virtual *Address `json:"virtual_function,omitempty"`
}

// Path finds the way from a to the root port. A virtual function's settings are
// reserved; its path is that of its physical function, where sysfs tells which.
func (t *Topology) Path(a Address) (Path, error) {
	f, ok := t.Lookup(a)
	if !ok {
		return Path{}, fmt.Errorf("%s: %w", a, ErrNotFound)
	}
	var p Path
	if f.Sysfs != nil && f.Sysfs.PhysicalFunction != nil {
		physical, ok := t.Lookup(*f.Sysfs.PhysicalFunction)
		if !ok {
			return Path{}, fmt.Errorf("%s: its physical function %s: %w", a, *f.Sysfs.PhysicalFunction, ErrNotFound)
		}
		p.Virtual, p.Physical, f = &a, physical, physical
	}
	for len(p.Hops) < maxHops {
		p.Hops = append(p.Hops, f)
		if f.isRootPort() {
			p.Complete = true
			break
		}
		up, ok := t.Parent(f.Address)
		if !ok || slices.Contains(p.Hops, up) {
			break
		}
		f = up
	}
	p.Below = t.under(p.Top().Address)
	if f.Sysfs != nil && f.Sysfs.VMD != nil {
		p.VMD, _ = t.Lookup(*f.Sysfs.VMD)
	}
	return p, nil
}

// isRootPort is by type, and by the place in sysfs where privilege hides the type.
func (f *Function) isRootPort() bool {
	if f.Express != nil {
		return f.Express.Type == RootPort
	}
	return f.HeaderOnly && f.Sysfs != nil && f.Sysfs.OnRootBus
}

// under lists every function below a, by parents, a itself left out.
func (t *Topology) under(a Address) []*Function {
	children := map[Address][]*Function{}
	for _, f := range t.Functions() {
		if up, ok := t.Parent(f.Address); ok {
			children[up.Address] = append(children[up.Address], f)
		}
	}
	var list []*Function
	seen := map[Address]bool{a: true}
	for queue := []Address{a}; len(queue) > 0; queue = queue[1:] {
		for _, f := range children[queue[0]] {
			if !seen[f.Address] {
				seen[f.Address] = true
				list = append(list, f)
				queue = append(queue, f.Address)
			}
		}
	}
	slices.SortFunc(list, func(x, y *Function) int { return x.Address.Compare(y.Address) })
	return list
}

// Endpoint is the device at the end.
func (p Path) Endpoint() *Function { return p.Hops[0] }

// Top is the last hop known: the root port of a complete path.
func (p Path) Top() *Function { return p.Hops[len(p.Hops)-1] }

// readable says that every hop's PCI Express capability was read.
func (p Path) readable() bool {
	return !slices.ContainsFunc(p.Hops, func(f *Function) bool { return f.Express == nil })
}

// Payloads is what a path's payload sizes are and could be, in bytes.
type Payloads struct {
	// InForce is the smallest setting on the path: nothing larger passes whole.
	InForce Payload `json:"max_payload_in_force_bytes"`
	// PathCapability is what every hop of the path supports; LimitedBy is the
	// first hop that supports no more.
	PathCapability Payload `json:"path_capability_bytes"`
	LimitedBy      Address `json:"limited_by"`
	// TreeCapability is what every function below the root port, and the root
	// port, supports: the largest size that can be set without a hazard.
	TreeCapability Payload `json:"tree_capability_bytes"`
	// Blocking are the functions off the path that support less than the path.
	Blocking []Address `json:"blocking"`
	// CanRaiseTo is PathCapability where that is more than InForce, SafeRaiseTo
	// is TreeCapability likewise; 0 otherwise.
	CanRaiseTo  Payload `json:"can_raise_to_bytes"`
	SafeRaiseTo Payload `json:"safe_raise_to_bytes"`
}

// Payloads judges the payload sizes of a path; ok is false where a hop's
// capability could not be read.
func (p Path) Payloads() (s Payloads, ok bool) {
	if !p.readable() {
		return Payloads{}, false
	}
	s.Blocking = []Address{}
	s.InForce, s.PathCapability = p.Hops[0].Express.MaxPayload, p.Hops[0].Express.MaxPayloadSupported
	s.LimitedBy = p.Hops[0].Address
	for _, f := range p.Hops {
		s.InForce = min(s.InForce, f.Express.MaxPayload)
		if f.Express.MaxPayloadSupported < s.PathCapability {
			s.PathCapability, s.LimitedBy = f.Express.MaxPayloadSupported, f.Address
		}
	}
	s.TreeCapability = s.PathCapability
	for _, f := range p.Below {
		if f.Express == nil || !f.Express.Type.HasLink() {
			continue
		}
		s.TreeCapability = min(s.TreeCapability, f.Express.MaxPayloadSupported)
		if f.Express.MaxPayloadSupported < s.PathCapability && !slices.Contains(p.Hops, f) {
			s.Blocking = append(s.Blocking, f.Address)
		}
	}
	if s.PathCapability > s.InForce {
		s.CanRaiseTo = s.PathCapability
	}
	if s.TreeCapability > s.InForce {
		s.SafeRaiseTo = s.TreeCapability
	}
	return s, true
}

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
