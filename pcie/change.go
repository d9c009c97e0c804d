package pcie

import (
	"fmt"
	"slices"
)

// ChangeRequest is what a change should bring about.
type ChangeRequest struct {
	// MaxPayload is the wish for the whole tree below the root port, in bytes;
	// 0 leaves it. Auto wishes the largest that all of it supports.
	MaxPayload Payload `json:"max_payload_bytes,omitempty"`
	Auto       bool    `json:"auto,omitempty"`
	// MaxReadRequest is the wish for the device alone, in bytes; 0 leaves it.
	MaxReadRequest Payload `json:"max_read_request_bytes,omitempty"`
	// Siblings allows to change other endpoints on the same root port. Without,
	// a change that needs it is refused: they would be left with less than the
	// root port completes with.
	Siblings bool `json:"siblings,omitempty"`
	// AllowSmaller leaves endpoints that support less than MaxPayload as they
	// are, where their read requests are no larger than their payload: safe for
	// traffic with the host, not with peers.
	AllowSmaller bool `json:"allow_smaller,omitempty"`
}

// Write is one masked write to the 16-bit Device Control register. Only the
// payload and read request fields are ever in the mask.
type Write struct {
	Function  Address `json:"function"`
	CapOffset uint16  `json:"capability_offset"`
	Mask      uint16  `json:"mask"`
	Old       uint16  `json:"old"`
	New       uint16  `json:"new"`
	// Keep15 is set for bridges to PCI, where bit 15 is a setting (configuration
	// retry); in endpoints it starts a reset and is written as 0.
	Keep15 bool `json:"keep_bit_15,omitempty"`
}

// String is the write as setpci would do it, with its meaning.
func (w Write) String() string {
	what, from, to := "max payload", payloadOf(uint32(w.Old>>5)), payloadOf(uint32(w.New>>5))
	if w.Mask == maskMaxReadRequest {
		what, from, to = "max read request", payloadOf(uint32(w.Old>>12)), payloadOf(uint32(w.New>>12))
	}
	return fmt.Sprintf("%s: %s %d -> %d bytes (setpci -s %s CAP_EXP+8.w=%04x:%04x)", w.Function, what, from, to, w.Function, w.New, w.Mask)
}

// Reversed is the write that undoes w.
func (w Write) Reversed() Write {
	w.Old, w.New = w.New, w.Old
	return w
}

// Setting is one function's sizes when the change was planned.
type Setting struct {
	Function       Address `json:"function"`
	CapOffset      uint16  `json:"capability_offset"`
	MaxPayload     Payload `json:"max_payload_bytes"`
	MaxReadRequest Payload `json:"max_read_request_bytes"`
	Endpoint       bool    `json:"endpoint"`
	// Parent is the function above; absent for the root port.
	Parent *Address `json:"parent,omitempty"`
}

// ChangePlan is an ordered change that creates no hazard at any point of it.
type ChangePlan struct {
	Device Address `json:"device"`
	// MaxPayload and MaxReadRequest are what will hold, in bytes.
	MaxPayload     Payload `json:"max_payload_bytes"`
	MaxReadRequest Payload `json:"max_read_request_bytes"`
	// Before is every function below the root port, and the root port.
	Before []Setting `json:"before"`
	Writes []Write   `json:"writes"`
	// Endpoints are the functions whose traffic is concerned, the device first.
	Endpoints []Address `json:"endpoints"`
	Notes     []string  `json:"notes,omitempty"`
}

// AlreadySo says that there is nothing to write.
func (p ChangePlan) AlreadySo() bool { return len(p.Writes) == 0 }

// RefusedChange says that a change is not safe, or not possible.
type RefusedChange struct {
	Subject string
	Reason  string
	Remedy  string
}

func (e *RefusedChange) Error() string {
	s := "refused: " + e.Subject + ": " + e.Reason
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// ExitCode is the process's exit code for this error.
func (e *RefusedChange) ExitCode() int { return 4 }

// PlanChange plans a change of payload and read request sizes on the path p of
// t. It is pure: it reads nothing and changes nothing. The error is a
// [*RefusedChange].
func PlanChange(t *Topology, p Path, r ChangeRequest) (ChangePlan, error) {
	if err := t.changeable(p); err != nil {
		return ChangePlan{}, err
	}
	c := &planner{t: t, p: p, r: r, tree: append([]*Function{p.Top()}, settable(p.Below)...)}
	if len(p.Hops) == 1 {
		c.tree = []*Function{p.Top()}
	}
	return c.plan()
}

// settable leaves out functions without sizes of their own: no PCI Express,
// inside the root complex, or virtual, whose fields are reserved.
func settable(list []*Function) []*Function {
	var out []*Function
	for _, f := range list {
		virtual := f.Sysfs != nil && f.Sysfs.PhysicalFunction != nil
		if f.Express != nil && f.Express.Type.HasLink() && !virtual {
			out = append(out, f)
		}
	}
	return out
}

func refuse(at Address, remedy, format string, args ...any) *RefusedChange {
	return &RefusedChange{Subject: at.String(), Reason: fmt.Sprintf(format, args...), Remedy: remedy}
}

// changeable refuses paths that must not be touched at all.
func (t *Topology) changeable(p Path) error {
	at := p.Endpoint().Address
	if pl := t.Platform; pl != nil && pl.Lockdown != "" && pl.Lockdown != "none" {
		return refuse(at, "the BIOS setting, or a kernel parameter", "the kernel is locked down (%s): configuration space cannot be written", pl.Lockdown)
	}
	for _, f := range append(slices.Clone(p.Hops), p.Below...) {
		if f.HeaderOnly {
			return refuse(f.Address, "run as root, outside a container", "%s", ErrNoAccess)
		}
	}
	switch {
	case p.Virtual != nil:
		return refuse(*p.Virtual, "name the physical function "+at.String(), "a virtual function has no sizes of its own")
	case !p.readable():
		return refuse(at, "", "the path has a function without a PCI Express capability")
	case !p.Endpoint().Express.Type.IsEndpoint():
		return refuse(at, "", "it is a %s, not the end of a path", p.Endpoint().Express.Type)
	case !p.Complete || len(p.Hops) < 2:
		return refuse(at, "", "the path to the root port is not known")
	}
	if len(t.Problems) > 0 {
		return refuse(at, "", "a function of the same tree could not be read: %v", t.Problems[0])
	}
	for _, f := range append(slices.Clone(p.Hops), settable(p.Below)...) {
		x := f.Express
		if !x.MaxPayload.Valid() || !x.MaxReadRequest.Valid() || !x.MaxPayloadSupported.Valid() {
			return refuse(f.Address, "", "its sizes are reserved encodings")
		}
	}
	return nil
}

// planner collects a plan.
type planner struct {
	t    *Topology
	p    Path
	r    ChangeRequest
	tree []*Function // the root port and all below it that have sizes
	out  ChangePlan
}

func (c *planner) plan() (ChangePlan, error) {
	ep := c.p.Endpoint()
	target, err := c.target()
	if err != nil {
		return ChangePlan{}, err
	}
	c.out = ChangePlan{Device: ep.Address, MaxPayload: target, MaxReadRequest: ep.Express.MaxReadRequest, Endpoints: []Address{ep.Address}}
	if c.r.MaxReadRequest != 0 {
		if err := c.readRequest(); err != nil {
			return ChangePlan{}, err
		}
	}
	for _, f := range c.tree {
		s := Setting{
			Function: f.Address, CapOffset: f.Express.Offset, MaxPayload: f.Express.MaxPayload,
			MaxReadRequest: f.Express.MaxReadRequest, Endpoint: f.Express.Type.IsEndpoint(),
		}
		if up, ok := c.t.Parent(f.Address); ok && f != c.p.Top() {
			s.Parent = &up.Address
		}
		c.out.Before = append(c.out.Before, s)
	}
	if target == 0 {
		c.out.MaxPayload = ep.Express.MaxPayload
		c.writeReadRequest(ep, c.out.MaxReadRequest, ep.Express.MaxReadRequest)
	} else if err := c.writes(target); err != nil {
		return ChangePlan{}, err
	}
	if err := c.out.check(ep.Address); err != nil {
		return ChangePlan{}, err
	}
	c.notes()
	return c.out, nil
}

// target is the payload size to set; 0 for none.
func (c *planner) target() (Payload, error) {
	if !c.r.Auto && c.r.MaxPayload == 0 {
		if c.r.MaxReadRequest == 0 {
			return 0, refuse(c.p.Endpoint().Address, "--mps or --mrrs", "nothing to change was named")
		}
		return 0, nil
	}
	for _, f := range c.tree {
		if f.Express.MixedPayload {
			return 0, refuse(f.Address, "", "it sends to each target by that target's own limit (Mixed_MPS): one size for the tree does not describe it")
		}
	}
	if _, why := c.p.readRequestLimit(); why != "" {
		return 0, refuse(c.p.Top().Address, "", "%s: payload sizes there are left to firmware", why)
	}
	target := c.r.MaxPayload
	if c.r.Auto {
		target = 4096
		for _, f := range c.tree {
			target = min(target, f.limit())
		}
	}
	if !target.Valid() {
		return 0, refuse(c.p.Endpoint().Address, "", "a payload of %d bytes: sizes are the powers of two from 128 to 4096", target)
	}
	for _, f := range c.tree {
		if f.limit() >= target || c.keeps(f, target) {
			continue
		}
		switch {
		case brokenAbove256(f):
			return 0, refuse(f.Address, "at most 256", "it advertises %d bytes but is known to break above 256", f.Express.MaxPayloadSupported)
		case slices.Contains(c.p.Hops, f):
			return 0, refuse(f.Address, "--mps auto", "it supports payloads of %d bytes at most, not %d", f.limit(), target)
		}
		return 0, refuse(f.Address, "--mps auto takes what all support", "it hangs on the same root port and supports payloads of %d bytes at most, not %d: the root port's larger completions would be malformed to it", f.limit(), target)
	}
	return target, nil
}

// keeps says that a function may stay below the target, as [ChangeRequest]
// allows: an endpoint beside the path whose reads come back in small pieces.
func (c *planner) keeps(f *Function, target Payload) bool {
	return c.r.AllowSmaller && f != c.p.Endpoint() && f.Express.Type.IsEndpoint() &&
		f.limit() < target && f.Express.MaxReadRequest <= f.Express.MaxPayload
}

// readRequest checks the wish for the read request size.
func (c *planner) readRequest() error {
	ep, want := c.p.Endpoint(), c.r.MaxReadRequest
	if !want.Valid() {
		return refuse(ep.Address, "", "read requests of %d bytes: sizes are the powers of two from 128 to 4096", want)
	}
	if limit, why := c.p.readRequestLimit(); limit != 0 && want > limit {
		return refuse(c.p.Top().Address, fmt.Sprintf("at most %d", limit), "%s", why)
	}
	c.out.MaxReadRequest = want
	return nil
}

// writes orders the change of payload sizes. First every endpoint's reads are
// made so small that any completion fits everywhere, before and after; then
// senders shrink before receivers, receivers grow before senders; then the
// reads get their size.
func (c *planner) writes(target Payload) error {
	ports, endpoints := c.split()
	smallest := target
	for _, f := range c.tree {
		if !c.keeps(f, target) {
			smallest = min(smallest, f.Express.MaxPayload)
		}
	}
	moves := slices.ContainsFunc(c.tree, func(f *Function) bool { return f.Express.MaxPayload != target && !c.keeps(f, target) })
	if !moves {
		c.writeReadRequest(c.p.Endpoint(), c.out.MaxReadRequest, c.p.Endpoint().Express.MaxReadRequest)
		return nil
	}
	var restore []func()
	for _, f := range endpoints {
		if c.keeps(f, target) {
			continue
		}
		if f != c.p.Endpoint() {
			if !c.r.Siblings {
				return refuse(f.Address, "--siblings, with its traffic stopped too, or a root port of its own",
					"it hangs on the same root port and has to be changed along: the root port would complete its reads with packets it does not take")
			}
			c.out.Endpoints = append(c.out.Endpoints, f.Address)
		}
		now, later := f.Express.MaxReadRequest, f.Express.MaxReadRequest
		if f == c.p.Endpoint() {
			later = c.out.MaxReadRequest
		}
		small := min(now, smallest)
		c.writeReadRequest(f, small, now)
		restore = append(restore, func() { c.writeReadRequest(f, later, small) })
	}
	bottomUp := slices.Clone(ports)
	slices.Reverse(bottomUp)
	for _, phase := range []struct {
		list []*Function
		grow bool
	}{{endpoints, false}, {bottomUp, false}, {ports, true}, {endpoints, true}} {
		for _, f := range phase.list {
			if now := f.Express.MaxPayload; !c.keeps(f, target) && (phase.grow && now < target || !phase.grow && now > target) {
				c.write(f, maskMaxPayload, now.code()<<5, target.code()<<5)
			}
		}
	}
	for _, f := range restore {
		f()
	}
	return nil
}

// split parts the tree into what forwards, top down, and what ends.
func (c *planner) split() (ports, endpoints []*Function) {
	depth := map[*Function]int{}
	for _, f := range c.tree {
		for up, ok := f, true; ok && up != c.p.Top() && depth[f] < maxHops; {
			depth[f]++
			up, ok = c.t.Parent(up.Address)
		}
		if f.Express.Type.IsEndpoint() {
			endpoints = append(endpoints, f)
		} else {
			ports = append(ports, f)
		}
	}
	slices.SortStableFunc(ports, func(a, b *Function) int { return depth[a] - depth[b] })
	// The device is the last to grow: what goes wrong before does not touch it.
	slices.SortStableFunc(endpoints, func(a, b *Function) int {
		return boolInt(a == c.p.Endpoint()) - boolInt(b == c.p.Endpoint())
	})
	return ports, endpoints
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *planner) writeReadRequest(f *Function, to, from Payload) {
	c.write(f, maskMaxReadRequest, from.code()<<12, to.code()<<12)
}

func (c *planner) write(f *Function, mask, from, to uint16) {
	if from == to {
		return
	}
	c.out.Writes = append(c.out.Writes, Write{Function: f.Address, CapOffset: f.Express.Offset, Mask: mask, Old: from, New: to, Keep15: f.Express.Type == ToPCIBridge})
}

// notes says what is not refused but should be known.
func (c *planner) notes() {
	for _, f := range c.tree {
		if s := f.Express.SlotCap; s != nil && s.HotPlug && f.Express.Type == DownstreamPort && c.out.MaxPayload > 128 {
			c.out.Notes = append(c.out.Notes, fmt.Sprintf(
				"%s takes hot-plugged devices: one that supports 128 bytes only would not work there while this holds", f.Address))
		}
		if c.keeps(f, c.out.MaxPayload) {
			c.out.Notes = append(c.out.Notes, fmt.Sprintf(
				"%s stays at %d bytes with read requests of %d: right for the host, wrong for peers that write to it", f.Address, f.Express.MaxPayload, f.Express.MaxReadRequest))
		}
	}
	if !c.out.AlreadySo() {
		c.out.Notes = append(c.out.Notes, "lost at reboot, power cycle and hot-plug; an error recovery keeps it only after the controller was reset, which this does")
	}
}

// sizes are a function's two sizes while a plan is played through.
type sizes struct{ payload, request Payload }

// check plays the writes through and refuses a plan with a state that has a
// hazard which was not there before, or whose end has one on the device's path.
func (p ChangePlan) check(device Address) error {
	state := map[Address]sizes{}
	for _, s := range p.Before {
		state[s.Function] = sizes{s.MaxPayload, s.MaxReadRequest}
	}
	before := p.hazards(state)
	for i, w := range p.Writes {
		s := state[w.Function]
		if w.Mask == maskMaxPayload {
			s.payload = payloadOf(uint32(w.New >> 5))
		} else {
			s.request = payloadOf(uint32(w.New >> 12))
		}
		state[w.Function] = s
		for h := range p.hazards(state) {
			if !before[h] {
				return refuse(w.Function, "nvop pcie audit shows the path; --mps auto makes it uniform", "after write %d (%s) %s would be at risk: %s", i+1, w, h.endpoint, h.rule)
			}
		}
	}
	for h := range p.hazards(state) {
		if h.endpoint == device && p.changesPayload() {
			return refuse(h.at, "", "the change would leave a hazard on the path: %s", h.rule)
		}
	}
	return nil
}

func (p ChangePlan) changesPayload() bool {
	return slices.ContainsFunc(p.Writes, func(w Write) bool { return w.Mask == maskMaxPayload })
}

type hazardAt struct {
	endpoint, at Address
	rule         string
}

// hazards are rules H1 and H2 over a state, for every endpoint of the tree.
func (p ChangePlan) hazards(state map[Address]sizes) map[hazardAt]bool {
	parents := map[Address]*Address{}
	var top Address
	for _, s := range p.Before {
		parents[s.Function] = s.Parent
		if s.Parent == nil {
			top = s.Function
		}
	}
	found := map[hazardAt]bool{}
	root := state[top].payload
	for _, s := range p.Before {
		if !s.Endpoint {
			continue
		}
		ep := state[s.Function]
		for at, hops := &s.Function, 0; at != nil && hops < maxHops; at, hops = parents[*at], hops+1 {
			hop := state[*at].payload
			if ep.payload > hop {
				found[hazardAt{s.Function, *at, RuleTransmitExceeds}] = true
			}
			if hop < root && ep.request > hop {
				found[hazardAt{s.Function, *at, RuleCompletionExceeds}] = true
			}
		}
	}
	return found
}
