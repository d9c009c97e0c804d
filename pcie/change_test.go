package pcie

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tree is a root port, a switch with some downstream ports and an endpoint
// below each, built from registers.
type tree struct {
	configs map[Address]*config
}

func at(bus, device, function uint8) Address { return Address{0, bus, device, function} }

// node is a function's sizes: capability, payload, read request.
type node struct{ supported, mps, mrrs int }

// newTree builds root, switch and endpoints. Without a switch the only
// endpoint hangs on the root port.
func newTree(root node, upstream *node, down, endpoints []node) *tree {
	t := &tree{configs: map[Address]*config{}}
	add := func(a Address, typ PortType, n node) *config {
		c := newConfig(typ, n.supported, n.mps, n.mrrs)
		t.configs[a] = c
		return c
	}
	if upstream == nil {
		add(at(0, 3, 0), RootPort, root).buses(0, 1, 1)
		add(at(1, 0, 0), Endpoint, endpoints[0])
		return t
	}
	add(at(0, 3, 0), RootPort, root).buses(0, 1, 20)
	add(at(1, 0, 0), UpstreamPort, *upstream).buses(1, 2, 20)
	for i, d := range down {
		add(at(2, uint8(i), 0), DownstreamPort, d).buses(2, uint8(3+i), uint8(3+i))
		add(at(uint8(3+i), 0, 0), Endpoint, endpoints[i])
	}
	return t
}

func (tr *tree) topology(t interface{ Fatal(...any) }) *Topology {
	var list []Function
	for a, c := range tr.configs {
		f, err := Decode(a, c.b)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return NewTopology(list)
}

func (tr *tree) path(t interface{ Fatal(...any) }, a Address) (*Topology, Path) {
	topo := tr.topology(t)
	p, err := topo.Path(a)
	if err != nil {
		t.Fatal(err)
	}
	return topo, p
}

// apply writes into the registers, as setpci would.
func (tr *tree) apply(w Write) {
	c := tr.configs[w.Function]
	old := uint16(c.b[w.CapOffset+8]) | uint16(c.b[w.CapOffset+9])<<8
	c.put16(int(w.CapOffset)+8, old&^w.Mask|w.New)
}

// risks counts what the packets of an endpoint could break, by following them:
// a packet of the largest size at each hop. It shares nothing with the planner.
func risks(t interface{ Fatal(...any) }, tr *tree) map[string]bool {
	topo := tr.topology(t)
	found := map[string]bool{}
	for _, ep := range topo.Endpoints() {
		p, err := topo.Path(ep.Address)
		if err != nil {
			t.Fatal(err)
		}
		written := int(ep.Express.MaxPayload)
		completed := min(int(p.Top().Express.MaxPayload), int(ep.Express.MaxReadRequest))
		for _, hop := range p.Hops {
			if hop != ep && written > int(hop.Express.MaxPayload) {
				found[fmt.Sprintf("%s writes %s", ep.Address, hop.Address)] = true
			}
			if completed > int(hop.Express.MaxPayload) {
				found[fmt.Sprintf("%s reads %s", ep.Address, hop.Address)] = true
			}
		}
	}
	return found
}

// TestPlanChange_neverAddsARisk: whatever the tree was like, no write of a plan
// puts traffic at risk that was not before, forward or while rolling back, and
// the end is what was asked for.
func TestPlanChange_neverAddsARisk(t *testing.T) {
	size := rapid.SampledFrom([]int{128, 256, 512, 1024, 4096})
	planned := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) node {
			n := node{supported: size.Draw(t, name+" supported"), mrrs: size.Draw(t, name+" mrrs")}
			n.mps = min(size.Draw(t, name+" mps"), n.supported)
			return n
		}
		var up *node
		count := 1
		if rapid.Bool().Draw(t, "switch") {
			n := draw("up")
			up, count = &n, rapid.IntRange(1, 3).Draw(t, "drives")
		}
		var down, endpoints []node
		for i := range count {
			down, endpoints = append(down, draw(fmt.Sprint("down", i))), append(endpoints, draw(fmt.Sprint("ep", i)))
		}
		tr := newTree(draw("root"), up, down, endpoints)
		device := at(1, 0, 0)
		if up != nil {
			device = at(3, 0, 0)
		}
		r := ChangeRequest{
			MaxPayload: Payload(rapid.SampledFrom([]int{0, 128, 256, 512, 1024}).Draw(t, "want")), Auto: rapid.Bool().Draw(t, "auto"),
			MaxReadRequest: Payload(rapid.SampledFrom([]int{0, 128, 512, 4096}).Draw(t, "want mrrs")),
			Siblings:       rapid.Bool().Draw(t, "siblings"), AllowSmaller: rapid.Bool().Draw(t, "smaller"),
		}
		topo, p := tr.path(t, device)
		plan, err := PlanChange(topo, p, r)
		if err != nil {
			if _, ok := errors.AsType[*RefusedChange](err); !ok {
				t.Fatal(err)
			}
			return
		}
		planned++
		before := risks(t, tr)
		play := func(w Write) {
			tr.apply(w)
			for risk := range risks(t, tr) {
				if !before[risk] {
					t.Fatalf("after %s: %s", w, risk)
				}
			}
		}
		for _, w := range plan.Writes {
			if w.Mask != 0x00e0 && w.Mask != 0x7000 || w.New&^w.Mask != 0 || w.Old == w.New {
				t.Fatalf("%+v", w)
			}
			play(w)
		}
		_, now := tr.path(t, device)
		x := now.Endpoint().Express
		if x.MaxPayload != plan.MaxPayload || x.MaxReadRequest != plan.MaxReadRequest {
			t.Fatalf("ends at %d and %d, planned %d and %d", x.MaxPayload, x.MaxReadRequest, plan.MaxPayload, plan.MaxReadRequest)
		}
		if r.MaxReadRequest != 0 && x.MaxReadRequest != r.MaxReadRequest || r.MaxPayload != 0 && !r.Auto && x.MaxPayload != r.MaxPayload {
			t.Fatalf("asked for %+v, got %d and %d", r, x.MaxPayload, x.MaxReadRequest)
		}
		for _, w := range slices.Backward(plan.Writes) {
			play(w.Reversed())
		}
		for a, c := range tr.configs {
			f, _ := topo.Lookup(a)
			if g, err := Decode(a, c.b); err != nil || g.Express.DevCtl != f.Express.DevCtl {
				t.Fatalf("%s: not restored: %04x, was %04x", a, g.Express.DevCtl, f.Express.DevCtl)
			}
		}
	})
	if planned < 10 {
		t.Errorf("only %d plans were made", planned)
	}
}

// TestPlanChange_order is the order of a raise on a path with a switch.
func TestPlanChange_order(t *testing.T) {
	n := node{512, 128, 512}
	tr := newTree(n, &n, []node{n}, []node{{512, 128, 512}})
	topo, p := tr.path(t, at(3, 0, 0))
	plan, err := PlanChange(topo, p, ChangeRequest{Auto: true, MaxReadRequest: 4096})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range plan.Writes {
		got = append(got, fmt.Sprintf("%s %04x:%04x", w.Function, w.New, w.Mask))
	}
	want := []string{
		"0000:03:00.0 0000:7000", // reads of 128 first
		"0000:00:03.0 0040:00e0", "0000:01:00.0 0040:00e0", "0000:02:00.0 0040:00e0", "0000:03:00.0 0040:00e0",
		"0000:03:00.0 5000:7000",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if s := plan.Writes[1].String(); s != "0000:00:03.0: max payload 128 -> 512 bytes (setpci -s 0000:00:03.0 CAP_EXP+8.w=0040:00e0)" {
		t.Error(s)
	}
	for _, w := range plan.Writes {
		tr.apply(w)
	}
	topo, p = tr.path(t, at(3, 0, 0))
	if again, err := PlanChange(topo, p, ChangeRequest{Auto: true, MaxReadRequest: 4096}); err != nil || !again.AlreadySo() {
		t.Errorf("again: %+v %v", again.Writes, err)
	}
	// Lowering goes the other way round.
	plan, err = PlanChange(topo, p, ChangeRequest{MaxPayload: 256})
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, w := range plan.Writes {
		got = append(got, fmt.Sprintf("%s %04x:%04x", w.Function, w.New, w.Mask))
	}
	want = []string{
		"0000:03:00.0 1000:7000", "0000:03:00.0 0020:00e0", "0000:02:00.0 0020:00e0", "0000:01:00.0 0020:00e0", "0000:00:03.0 0020:00e0",
		"0000:03:00.0 5000:7000",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestPlanChange_refusals(t *testing.T) {
	n := node{512, 128, 512}
	plain := func() *tree { return newTree(n, nil, nil, []node{n}) }
	for name, c := range map[string]struct {
		tree   *tree
		device Address
		spoil  func(*tree, *Topology)
		r      ChangeRequest
		want   string
	}{
		"nothing asked":      {plain(), at(1, 0, 0), nil, ChangeRequest{}, "nothing to change"},
		"no size":            {plain(), at(1, 0, 0), nil, ChangeRequest{MaxPayload: 300}, "powers of two"},
		"no request size":    {plain(), at(1, 0, 0), nil, ChangeRequest{MaxReadRequest: 8192}, "powers of two"},
		"beyond the device":  {newTree(n, nil, nil, []node{{256, 128, 512}}), at(1, 0, 0), nil, ChangeRequest{MaxPayload: 512}, "supports payloads of 256 bytes at most"},
		"beyond a port":      {newTree(node{256, 128, 512}, nil, nil, []node{n}), at(1, 0, 0), nil, ChangeRequest{MaxPayload: 512}, "0000:00:03.0: it supports payloads of 256"},
		"beyond a sibling":   {newTree(n, &n, []node{n, n}, []node{n, {128, 128, 512}}), at(3, 0, 0), nil, ChangeRequest{MaxPayload: 512, Siblings: true}, "0000:04:00.0: it hangs on the same root port"},
		"touches a sibling":  {newTree(n, &n, []node{n, n}, []node{n, n}), at(3, 0, 0), nil, ChangeRequest{MaxPayload: 512}, "--siblings"},
		"not an endpoint":    {plain(), at(0, 3, 0), nil, ChangeRequest{Auto: true}, "not the end of a path"},
		"known to be broken": {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) { tr.configs[at(1, 0, 0)].put32(0, 0x06121b21) }, ChangeRequest{MaxPayload: 512}, "known to break above 256"},
		"Loongson":           {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) { tr.configs[at(0, 3, 0)].put32(0, 0x7a090014) }, ChangeRequest{MaxReadRequest: 4096}, "Loongson"},
		"Meson":              {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) { tr.configs[at(0, 3, 0)].put32(0, 0xabcd16c3) }, ChangeRequest{MaxReadRequest: 512}, "rejects more"},
		"Xeon 6 x2": {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) {
			tr.configs[at(0, 3, 0)].put32(0, 0x0db08086)
			tr.configs[at(0, 3, 0)].link(Gen5, 2, Gen4, 2)
		}, ChangeRequest{MaxReadRequest: 512}, "Xeon 6"},
		"quirk bridge, payload": {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) { tr.configs[at(0, 3, 0)].put32(0, 0x7a090014) }, ChangeRequest{Auto: true}, "left to firmware"},
		"mixed payloads": {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) {
			tr.configs[at(1, 0, 0)].put32(expAt+4, 2|1<<29)
		}, ChangeRequest{Auto: true}, "Mixed_MPS"},
		"reserved":    {plain(), at(1, 0, 0), func(tr *tree, _ *Topology) { tr.configs[at(0, 3, 0)].put16(expAt+8, 7<<5) }, ChangeRequest{Auto: true}, "reserved"},
		"locked down": {plain(), at(1, 0, 0), func(_ *tree, topo *Topology) { topo.Platform = &Platform{Lockdown: "integrity"} }, ChangeRequest{Auto: true}, "locked down (integrity)"},
		"unreadable":  {plain(), at(1, 0, 0), func(_ *tree, topo *Topology) { topo.Problems = []error{ErrGone} }, ChangeRequest{Auto: true}, "could not be read"},
		"virtual": {plain(), at(1, 0, 0), func(_ *tree, topo *Topology) {
			if f, ok := topo.Lookup(at(1, 0, 0)); ok {
				pf := at(1, 0, 0)
				f.Sysfs = &Attributes{PhysicalFunction: &pf}
			}
		}, ChangeRequest{Auto: true}, "virtual function"},
		"reads beyond a hop": {newTree(node{512, 512, 512}, nil, nil, []node{{128, 128, 128}}), at(1, 0, 0), nil, ChangeRequest{MaxReadRequest: 512}, "would be at risk"},
	} {
		if c.spoil != nil {
			c.spoil(c.tree, NewTopology(nil))
		}
		topo := c.tree.topology(t)
		if c.spoil != nil {
			c.spoil(c.tree, topo)
		}
		p, err := topo.Path(c.device)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := PlanChange(topo, p, c.r)
		refused, ok := errors.AsType[*RefusedChange](err)
		if !ok || !strings.Contains(refused.Error(), c.want) || refused.ExitCode() != 4 {
			t.Errorf("%s: %v (plan %v), want %q", name, err, plan.Writes, c.want)
		}
	}
}

// TestPlanChange_noPrivilege: with 64 bytes the refusal speaks of access.
func TestPlanChange_noPrivilege(t *testing.T) {
	n := node{512, 128, 512}
	tr := newTree(n, nil, nil, []node{n})
	var list []Function
	for a, c := range tr.configs {
		f, err := Decode(a, c.b[:64])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	topo := NewTopology(list)
	p, err := topo.Path(at(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PlanChange(topo, p, ChangeRequest{Auto: true}); err == nil || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
		t.Error(err)
	}
}
