package namespace

import (
	"fmt"
	"slices"
	"strings"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// planner collects the steps of one plan. What it returns depends on the
// inventory and the target alone.
type planner struct {
	inv  Inventory
	opts Options
	plan Plan
	// after is what the drive will be, by the order of creation.
	after  []Namespace
	expect []expectation
	// created are the steps that create a namespace for this controller.
	created []int
	// resets says that the plan resets the controller before it sets features.
	resets bool
	err    error
}

func newPlanner(inv Inventory, title string, o Options) *planner {
	p := &planner{inv: inv, opts: o, after: slices.Clone(inv.Namespaces)}
	p.plan = Plan{
		Schema: PlanSchema, Title: title, Address: inv.Address, Identity: inv.Identity,
		Steps: []txn.Step{}, Destroys: []string{}, Notes: []string{}, NSIDs: []uint32{},
		Before: slices.Clone(inv.Namespaces), Inventory: inv,
	}
	return p
}

func (p *planner) refuse(check, subject, reason, remedy string) error {
	return &nvmeioctl.RefusedError{Check: check, Subject: subject, Reason: reason, Remedy: remedy}
}

func (p *planner) unsupported(feature, needs, have string) error {
	return &nvmeioctl.UnsupportedError{Feature: feature, Needs: needs, Have: have}
}

func (p *planner) note(format string, args ...any) {
	p.plan.Notes = append(p.plan.Notes, fmt.Sprintf(format, args...))
}

// step appends a step with its command and returns its index. A command that
// cannot be built is remembered: finish refuses the plan then.
func (p *planner) step(kind, title string, params any, destroys, undo string, build func() (txn.Command, error)) int {
	index := len(p.plan.Steps)
	step := txn.Step{
		Index: index, Kind: kind, Title: title, Params: mustJSON(params),
		Commands: []txn.Command{}, Destroys: destroys, UndoText: undo,
	}
	if build != nil {
		cmd, err := build()
		if err != nil && p.err == nil {
			p.err = fmt.Errorf("plan step %d: %w", index+1, err)
		}
		step.Commands = append(step.Commands, cmd)
		step.TimeoutMS = cmd.TimeoutMS
	}
	p.plan.Steps = append(p.plan.Steps, step)
	if destroys != "" {
		p.plan.Destroys = append(p.plan.Destroys, destroys)
	}
	return index
}

// finish completes the plan: what the host should show, what is left over.
func (p *planner) finish() (Plan, error) {
	if p.err != nil {
		return Plan{}, p.err
	}
	if len(p.plan.Steps) > 0 && len(p.expect) > 0 {
		p.step(KindRescan, "look for the namespaces again and wait until the host shows them", rescanParams{Expect: p.expect},
			"", "nothing to undo", nil)
	}
	user := uint64(0)
	for _, n := range p.after {
		user = addCapped(user, n.SizeBytes())
	}
	p.plan.After = p.after
	p.plan.OverProvisioning = OverProvision(p.inv.Controller.TotalBytes, user)
	return p.plan, nil
}

// touch records that an existing namespace is concerned.
func (p *planner) touch(nsid uint32) {
	if !slices.Contains(p.plan.NSIDs, nsid) {
		p.plan.NSIDs = append(p.plan.NSIDs, nsid)
		slices.Sort(p.plan.NSIDs)
	}
}

// find returns the namespace to work on: the one named, or the only one.
func (p *planner) find(nsid uint32) (Namespace, error) {
	if nsid == 0 && len(p.inv.Namespaces) != 1 {
		if len(p.inv.Namespaces) == 0 {
			return Namespace{}, p.refuse("namespace", p.inv.Address, "the drive has no namespace", "create one with: nvop ns create")
		}
		return Namespace{}, p.refuse("namespace", p.inv.Address,
			fmt.Sprintf("the drive has %d namespaces and none was named: %s", len(p.inv.Namespaces), p.list()), "name one with --nsid")
	}
	for _, n := range p.inv.Namespaces {
		if n.NSID != nsid && nsid != 0 {
			continue
		}
		if n.Error != "" {
			return Namespace{}, p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it could not be read: "+n.Error, "")
		}
		return n, nil
	}
	return Namespace{}, p.refuse("namespace", fmt.Sprintf("namespace %d", nsid), "the drive has no such namespace; it has: "+p.list(), "")
}

func (p *planner) list() string {
	if len(p.inv.Namespaces) == 0 {
		return "none"
	}
	parts := make([]string, len(p.inv.Namespaces))
	for i, n := range p.inv.Namespaces {
		parts[i] = fmt.Sprintf("%d (%s)", n.NSID, Bytes(n.SizeBytes()))
		if n.Error != "" {
			parts[i] = fmt.Sprintf("%d (unreadable)", n.NSID)
		}
	}
	return strings.Join(parts, ", ")
}

// checkManagement refuses capacity changes where they cannot or should not be.
func (p *planner) checkManagement(feature string) error {
	c := p.inv.Controller
	if !c.NamespaceManagement {
		return &nvmeioctl.UnsupportedError{Feature: feature, Needs: "namespace management", Have: "this drive has no namespace management (OACS bit 3 is 0)"}
	}
	if err := p.checkTransport(); err != nil {
		return err
	}
	for _, problem := range p.inv.Problems {
		if problem.What == ProblemNamespaceList {
			return p.refuse("inventory", p.inv.Address, "the list of namespaces could not be read: "+problem.Error, "")
		}
	}
	if s := p.inv.FirmwareState; s != nil && s.Supported {
		if err := p.checkWasRead(ProblemFirmwareSlots, "so another firmware may be waiting for a reset"); err != nil {
			return err
		}
	}
	return p.checkIdle()
}

func (p *planner) checkTransport() error {
	switch p.inv.Transport {
	case "pcie", "sim", "replay": // a recording can be planned from, and is never changed
		return nil
	}
	if p.opts.AllowFabrics {
		return nil
	}
	return p.refuse("transport", p.inv.Address,
		fmt.Sprintf("it is reached over %q: another host may own what lies behind it", p.inv.Transport), "only a PCIe drive is changed unless told otherwise")
}

// checkIdle refuses while the drive is busy with something that changes it.
func (p *planner) checkIdle() error {
	if p.inv.Controller.SanitizeInProgress {
		return p.refuse("busy", p.inv.Address, "a sanitize operation is in progress", "wait until it has ended")
	}
	if err := p.checkWasRead(ProblemSanitize, "so a sanitize may be in progress"); err != nil {
		return err
	}
	if p.inv.SelfTestRunning {
		return p.refuse("busy", p.inv.Address, "a self-test is in progress, which the change would end", "wait until it has ended, or stop it with: nvop selftest abort")
	}
	for _, n := range p.inv.Namespaces {
		if n.FormatPercentLeft != 0 {
			return p.refuse("busy", fmt.Sprintf("namespace %d", n.NSID),
				fmt.Sprintf("a format is in progress, %d %% remain", n.FormatPercentLeft), "wait until it has ended")
		}
	}
	return nil
}

// checkHealth refuses to destroy data on a drive that warns: a format or a
// create may fail on it for good (case FMT-19).
func (p *planner) checkHealth() error {
	if p.opts.AcceptCriticalWarning {
		return nil
	}
	if err := p.checkWasRead(ProblemSMART, "so the drive may have a critical warning"); err != nil {
		return err
	}
	if p.inv.Health == nil || p.inv.Health.CriticalWarning == 0 {
		return nil
	}
	return p.refuse("health", p.inv.Address,
		fmt.Sprintf("the SMART log shows critical warning 0x%02x; what is destroyed now may not come back", p.inv.Health.CriticalWarning),
		"--accept-critical-warning goes on all the same")
}

// checkWasRead refuses where a log that decides whether it is safe to go on could
// not be read: what was not looked at is not good.
func (p *planner) checkWasRead(log, so string) error {
	if p.opts.AcceptUnread {
		return nil
	}
	if why, unread := p.inv.unread(log); unread {
		return p.refuse("unread", p.inv.Address, fmt.Sprintf("the %s could not be read, %s: %s", log, so, why), "--accept unknown goes on all the same")
	}
	return nil
}

// format finds the LBA format by what it is.
func (p *planner) format(want FormatSelector) (LBAFormat, error) {
	var best *LBAFormat
	var have []string
	for _, f := range p.inv.Formats {
		if f.DataBytes == 0 {
			continue // not available
		}
		have = append(have, f.String())
		if f.Selector() == want && (best == nil || f.RelativePerformance < best.RelativePerformance) {
			best = &f
		}
	}
	if best == nil {
		return LBAFormat{}, &nvmeioctl.UnsupportedError{Feature: "LBA format " + want.String(), Needs: "a drive that lists it", Have: "this one lists " + strings.Join(have, ", ")}
	}
	if best.Index > 15 && !p.inv.Controller.ExtendedFormats {
		return LBAFormat{}, &nvmeioctl.UnsupportedError{
			Feature: fmt.Sprintf("LBA format %s with index %d", want, best.Index),
			Needs:   "a drive with extended LBA formats (CTRATT bit 15), and a host that has enabled them (feature host-behavior, LBAFEE)"}
	}
	return *best, nil
}

// remove plans that a namespace goes.
func (p *planner) remove(n Namespace) error {
	if n.WriteProtected {
		return p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it is write protected", "")
	}
	p.touch(n.NSID)
	ref := reference{NSID: n.NSID}
	deletedBy := len(p.plan.Steps)
	if len(n.Controllers) > 0 {
		deletedBy++
		p.step(KindDetach, fmt.Sprintf("detach namespace %d from controller %s", n.NSID, controllerText(n.Controllers)),
			attachmentParams{Namespace: ref, Geometry: n, Controllers: n.Controllers, DeletedBy: &deletedBy},
			"", "attaches it again", func() (txn.Command, error) { return describeDetach(n.NSID, n.Controllers) })
	}
	p.step(KindDelete, fmt.Sprintf("delete namespace %d", n.NSID), deleteParams{Geometry: n},
		fmt.Sprintf("all data of namespace %d (%s)", n.NSID, Bytes(n.SizeBytes())),
		"creates a namespace of the old size, format and sharing again; its data and its identifiers cannot be brought back",
		func() (txn.Command, error) { return describeDelete(n.NSID) })
	p.after = slices.DeleteFunc(p.after, func(a Namespace) bool { return a.NSID == n.NSID })
	// Where a new namespace gets the same NSID, the last step looks for that.
	p.expect = append(p.expect, expectation{Namespace: ref})
	return nil
}

// add plans a new namespace like n. q and maxSteps say how it may shrink.
func (p *planner) add(n Namespace, c Capacity, q CapacityQuestion) error {
	if err := p.checkControllers(n, n.Controllers); err != nil {
		return err
	}
	if limit := p.maxNamespaces(); uint64(len(p.after)) >= limit {
		return p.refuse("namespaces", p.inv.Address, fmt.Sprintf("the drive can hold %d namespaces and has them: %s", limit, p.list()), "delete one first")
	}
	n.NSID = 0
	stepBytes, floorBytes := c.stepDown(q, p.opts.StepDownMax)
	params := createParams{Geometry: n, StepBlocks: stepBytes / uint64(q.BlockBytes), FloorBlocks: floorBytes / uint64(q.BlockBytes)}
	if params.FloorBlocks < n.SizeBlocks {
		p.note("if the drive refuses the size for lack of capacity, it is made smaller in steps of %s, to no less than %s",
			Bytes(stepBytes), Bytes(floorBytes))
	}
	index := p.step(KindCreate, fmt.Sprintf("create a namespace of %s blocks of %s (%s)", grouped(n.SizeBlocks), n.Format, Bytes(n.SizeBytes())),
		params, "", "deletes it", func() (txn.Command, error) { return describeCreate(n) })
	ref := reference{CreatedBy: &index}
	if len(n.Controllers) > 0 {
		p.step(KindAttach, "attach the new namespace to controller "+controllerText(n.Controllers),
			attachmentParams{Namespace: ref, Geometry: n, Controllers: n.Controllers}, "", "detaches it",
			func() (txn.Command, error) { return describeAttachLater(index, n.Controllers) })
		if slices.Contains(n.Controllers, p.inv.Identity.CNTLID) {
			p.created = append(p.created, index)
		}
		p.expect = append(p.expect, expectation{Namespace: ref, Geometry: &n, Here: slices.Contains(n.Controllers, p.inv.Identity.CNTLID)})
	}
	if p.inv.Controller.MaxNSID == 1 {
		n.NSID = 1
	}
	p.after = append(p.after, n)
	p.note("the new namespace has new identifiers: links under /dev/disk/by-id and entries that name them have to be changed")
	if p.inv.Controller.MultiController && !n.Shared() {
		p.note("the subsystem may have several controllers, and a private namespace can be attached to one of them only; this cannot be changed later")
	}
	return nil
}

// maxNamespaces is how many namespaces there may be.
func (p *planner) maxNamespaces() uint64 {
	if n := p.inv.Controller.MaxNamespaces; n != 0 {
		return uint64(n)
	}
	return uint64(p.inv.Controller.MaxNSID)
}

// checkShared refuses a shared namespace where nothing could share it.
func (p *planner) checkShared(n Namespace) error {
	if !n.Shared() || p.inv.Controller.MultiController {
		return nil
	}
	return &nvmeioctl.UnsupportedError{Feature: "a shared namespace", Needs: "a subsystem with several controllers", Have: "this one has one (CMIC bit 1 is 0)"}
}

func (p *planner) checkControllers(n Namespace, controllers []uint16) error {
	if len(controllers) > nvmespec.ControllerListMax {
		return p.refuse("controllers", p.inv.Address, fmt.Sprintf("%d controllers do not fit a list", len(controllers)), "")
	}
	if len(controllers) > 1 && !n.Shared() {
		return p.refuse("controllers", p.inv.Address, "a private namespace cannot be attached to more than one controller", "create it shared")
	}
	if reason := p.unknownControllers(controllers); reason != "" {
		return p.refuse("controllers", p.inv.Address, reason, "")
	}
	return nil
}

// unknownControllers says which controllers the subsystem does not have: an
// attachment to them would fail after the old namespace is gone. Empty is good.
func (p *planner) unknownControllers(controllers []uint16) string {
	known := p.inv.knownControllers()
	missing := slices.DeleteFunc(slices.Clone(controllers), func(id uint16) bool { return slices.Contains(known, id) })
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("the subsystem is not known to have controller %s; it has %s", controllerText(missing), controllerText(known))
}

// question is what a size of this format is resolved against when the
// namespaces in freed go.
func (p *planner) question(f LBAFormat, freed ...Namespace) CapacityQuestion {
	c := p.inv.Controller
	q := CapacityQuestion{
		BlockBytes: f.DataBytes, GranularityBytes: f.granularity(c.TotalBytes),
		TotalBytes: c.TotalBytes, AvailableBytes: c.UnallocatedBytes,
	}
	gone := map[uint32]bool{}
	for _, n := range freed {
		q.AvailableBytes = addCapped(q.AvailableBytes, n.takenBytes())
		gone[n.NSID] = true
	}
	q.AvailableBytes = min(q.AvailableBytes, c.TotalBytes)
	for _, n := range p.inv.Namespaces {
		if !gone[n.NSID] {
			q.OtherBytes = addCapped(q.OtherBytes, n.SizeBytes())
		}
	}
	return q
}
