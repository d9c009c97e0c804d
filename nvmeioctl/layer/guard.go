package layer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Grant is what a person consented to. The zero value grants reading only.
type Grant struct {
	// Identity is the drive that was consented to. Serial is required for any
	// change; SubsystemNQN and Model count when not empty, CNTLID always.
	Identity nvmeioctl.Identity
	// Classes are the kinds of change that are allowed. Reading always is.
	Classes nvmespec.Class
	// NSIDs are the namespaces that may be changed. 0xFFFFFFFF, all of them, is
	// granted only by naming it, and it grants no single one. A namespace that
	// is created through the guard is granted by that.
	NSIDs []uint32
	// Expires is when the grant ends, on Clock; the zero instant has passed, and
	// nvmeioctl.Never never does.
	Expires nvmeioctl.Instant
	Clock   nvmeioctl.Clock
	// Resets allows a controller reset, SubsystemResets a subsystem reset.
	Resets, SubsystemResets bool
	// Identify reads who the drive is, right before each change; nil means
	// Identify Controller.
	Identify func(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error)
}

// Guarded is a device that refuses what was not granted. Make one with [Guard].
type Guarded struct {
	dev   nvmeioctl.Device
	grant Grant
	mu    sync.Mutex
	// nsids are those of the grant and those created since.
	nsids []uint32
}

// Guard lets reading through, and of the rest only what the grant names. What
// it refuses is a *nvmeioctl.RefusedError, and nothing of it was sent. Right
// before each change it asks the drive who it is.
func Guard(dev nvmeioctl.Device, grant Grant) *Guarded {
	return &Guarded{dev: dev, grant: grant, nsids: slices.Clone(grant.NSIDs)}
}

// Submit implements nvmeioctl.Device.
func (g *Guarded) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	class := nvmespec.ClassOf(!cmd.IO, cmd.Opcode, cmd.CDW10)
	if class == nvmespec.ClassRead {
		return g.dev.Submit(ctx, cmd)
	}
	name := nvmespec.CommandName(!cmd.IO, cmd.Opcode)
	if class&^g.grant.Classes != 0 || class == 0 {
		return nvmeioctl.Completion{}, g.refuse(fmt.Sprintf("%s is not granted: it is of class %s and the grant has %s",
			name, class, orNone(g.grant.Classes)))
	}
	if err := g.checkTime(name); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if err := g.checkNSID(name, class, cmd); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if err := g.checkIdentity(ctx); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if err := g.checkScope(ctx, cmd); err != nil {
		return nvmeioctl.Completion{}, err
	}
	c, err := g.dev.Submit(ctx, cmd)
	if err == nil && c.Status.Code() == 0 && isCreate(cmd) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.nsids = append(g.nsids, uint32(c.Result))
	}
	return c, err
}

func isCreate(cmd *nvmeioctl.Command) bool {
	return !cmd.IO && cmd.Opcode == nvmespec.AdminNamespaceManage && cmd.CDW10&15 == nvmespec.SelectCreate
}

func orNone(c nvmespec.Class) string {
	if c == 0 {
		return "none"
	}
	return c.String()
}

func (g *Guarded) refuse(reason string) error {
	return &nvmeioctl.RefusedError{Check: "grant", Subject: g.dev.String(), Reason: reason}
}

func (g *Guarded) checkTime(name string) error {
	if g.grant.Clock == nil {
		return g.refuse(name + ": the grant has no clock to expire by")
	}
	if now := g.grant.Clock.Now(); now >= g.grant.Expires {
		return g.refuse(fmt.Sprintf("%s: the grant has expired %v ago", name, now.Sub(g.grant.Expires)))
	}
	return nil
}

func (g *Guarded) granted(nsid uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.nsids, nsid)
}

// checkNSID refuses a namespace that the grant does not name. NSID 0 means the
// controller, where a command may be for that.
func (g *Guarded) checkNSID(name string, class nvmespec.Class, cmd *nvmeioctl.Command) error {
	nsid := cmd.NSID
	switch {
	case isCreate(cmd):
		return nil // it has no namespace yet, and the field is reserved
	case !cmd.IO && cmd.Opcode == nvmespec.AdminSanitize:
		nsid = nvmespec.BroadcastNSID // it ignores the field and hits everything
	case nsid == 0 && !cmd.IO && class&(nvmespec.ClassNamespace|nvmespec.ClassFormat) == 0:
		return nil
	}
	if g.granted(nsid) {
		return nil
	}
	if nsid == nvmespec.BroadcastNSID {
		return g.refuse(name + " would hit every namespace, and the grant does not name all")
	}
	return g.refuse(fmt.Sprintf("%s: namespace %d is not in the grant", name, nsid))
}

// identifyTimeout bounds the guard's own reads.
const identifyTimeout = time.Minute

// IdentifyController asks the controller who it is.
func IdentifyController(ctx context.Context, dev nvmeioctl.Device) (nvmeioctl.Identity, error) {
	c, err := readController(ctx, dev)
	return nvmeioctl.Identity{
		SubsystemNQN: c.SubsystemNQN, Serial: c.SerialNumber, Model: c.ModelNumber, CNTLID: c.ControllerID,
	}, err
}

func readController(ctx context.Context, dev nvmeioctl.Device) (nvmespec.Controller, error) {
	b, err := identify(ctx, dev, nvmespec.CNSController, 0)
	if err != nil {
		return nvmespec.Controller{}, err
	}
	return nvmespec.DecodeController(b)
}

func identify(ctx context.Context, dev nvmeioctl.Device, cns nvmespec.CNS, nsid uint32) ([]byte, error) {
	cdw10, cdw11, cdw14 := nvmespec.IdentifyFields{CNS: cns}.Dwords()
	b := make([]byte, nvmespec.IdentifySize)
	c, err := dev.Submit(ctx, &nvmeioctl.Command{
		Opcode: nvmespec.AdminIdentify, NSID: nsid, CDW10: cdw10, CDW11: cdw11, CDW14: cdw14,
		Data: b, Timeout: identifyTimeout,
	})
	if err == nil {
		err = c.Err()
	}
	if err != nil {
		return nil, &nvmeioctl.OpError{Op: "identify before a change", Dev: dev.String(), NSID: nsid, Err: err}
	}
	return b, nil
}

// checkIdentity refuses another drive than the one consented to.
func (g *Guarded) checkIdentity(ctx context.Context) error {
	want := g.grant.Identity
	if want.Serial == "" {
		return g.refuse("the grant names no serial number")
	}
	read := g.grant.Identify
	if read == nil {
		read = IdentifyController
	}
	have, err := read(ctx, g.dev)
	if err != nil {
		return err
	}
	// Before NVMe 1.2.1 a controller reports no subsystem, and the kernel makes
	// up a name that the drive does not know.
	for _, c := range []struct{ what, want, have string }{
		{"serial number", want.Serial, have.Serial},
		{"model", want.Model, have.Model},
		{"subsystem", want.SubsystemNQN, have.SubsystemNQN},
		{"controller ID", fmt.Sprint(want.CNTLID), fmt.Sprint(have.CNTLID)},
	} {
		if c.want != "" && c.want != c.have && (c.what != "subsystem" || c.have != "") {
			return &nvmeioctl.RefusedError{
				Check: "identity", Subject: g.dev.String(),
				Reason: fmt.Sprintf("another drive answers: its %s is %q and was %q", c.what, c.have, c.want),
				Remedy: "look at the drive again and make a new plan",
			}
		}
	}
	return nil
}

// listNamespaces reads a whole list, 1024 at a time. The loop is bounded: a list
// that does not go up is an error.
func listNamespaces(ctx context.Context, dev nvmeioctl.Device, cns nvmespec.CNS) ([]uint32, error) {
	var all []uint32
	for after := uint32(0); len(all) < 1<<20; {
		b, err := identify(ctx, dev, cns, after)
		if err != nil {
			return nil, err
		}
		ids, err := nvmespec.DecodeNamespaceList(b)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
		if len(ids) < nvmespec.NamespaceListMax {
			return all, nil
		}
		last := ids[len(ids)-1]
		if last <= after {
			return nil, fmt.Errorf("%s: the list of namespaces does not end", dev)
		}
		after = last
	}
	return nil, fmt.Errorf("%s: the list of namespaces is too long", dev)
}

// checkScope refuses a format that, by what the controller says of itself, hits
// namespaces which the grant does not name.
func (g *Guarded) checkScope(ctx context.Context, cmd *nvmeioctl.Command) error {
	if cmd.IO || cmd.Opcode != nvmespec.AdminFormatNVM || g.grant.Identify != nil {
		return nil
	}
	c, err := readController(ctx, g.dev)
	if err != nil {
		return err
	}
	all := c.Format&nvmespec.FormatAllNamespaces != 0
	if nvmespec.DecodeFormatFields(cmd.CDW10).Erase != nvmespec.EraseNone {
		all = all || c.Format&nvmespec.EraseAllNamespaces != 0
	}
	if !all || g.granted(nvmespec.BroadcastNSID) {
		return nil
	}
	// Where namespaces are managed, those attached nowhere are hit as well.
	cns := nvmespec.CNSActiveNamespaces
	if c.Admin&nvmespec.AdminNamespaceManagement != 0 {
		cns = nvmespec.CNSAllocatedNamespaces
	}
	ids, err := listNamespaces(ctx, g.dev, cns)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !g.granted(id) {
			return g.refuse(fmt.Sprintf(
				"this drive formats every namespace at once (FNA 0x%x), and namespace %d is not in the grant", uint8(c.Format), id))
		}
	}
	return nil
}

func (g *Guarded) String() string { return g.dev.String() }

// Close implements nvmeioctl.Device.
func (g *Guarded) Close() error { return g.dev.Close() }

// Unwrap implements nvmeioctl.Wrapper. What must not be bypassed, Guarded
// implements itself.
func (g *Guarded) Unwrap() nvmeioctl.Device { return g.dev }

// guarded checks a reset like a command and passes it on.
func (g *Guarded) guarded(ctx context.Context, what string, ok bool, call func(nvmeioctl.Resetter) error) error {
	if !ok {
		return g.refuse("a " + what + " is not granted")
	}
	if err := g.checkTime(what); err != nil {
		return err
	}
	if err := g.checkIdentity(ctx); err != nil {
		return err
	}
	return withResetter(g.dev, what, call)
}

// ResetController implements nvmeioctl.Resetter.
func (g *Guarded) ResetController(ctx context.Context) error {
	return g.guarded(ctx, "controller reset", g.grant.Resets,
		func(r nvmeioctl.Resetter) error { return r.ResetController(ctx) })
}

// ResetSubsystem implements nvmeioctl.Resetter.
func (g *Guarded) ResetSubsystem(ctx context.Context) error {
	return g.guarded(ctx, "subsystem reset", g.grant.SubsystemResets,
		func(r nvmeioctl.Resetter) error { return r.ResetSubsystem(ctx) })
}

// Rescan implements nvmeioctl.Resetter. It changes nothing on the drive and
// needs no grant.
func (g *Guarded) Rescan(ctx context.Context) error {
	return withResetter(g.dev, "rescan", func(r nvmeioctl.Resetter) error { return r.Rescan(ctx) })
}
