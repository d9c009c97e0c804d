package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// VisibleFunc says whether the host shows a namespace as wanted: a node with
// this NSID of this drive, of this size and logical block size, or none where
// want.Present is false. It is asked again until it says yes or the wait is over.
type VisibleFunc func(ctx context.Context, want Visible) (bool, error)

// Visible is what a host should show of a namespace.
type Visible struct {
	Identity nvmeioctl.Identity
	NSID     uint32
	// Present false asks whether the namespace is gone.
	Present bool
	// SizeBytes and BlockBytes are the size and the data of a logical block.
	SizeBytes  uint64
	BlockBytes uint32
}

// ExecutorOptions are what the executors need besides the drive.
type ExecutorOptions struct {
	// Visible is asked after a rescan; nil means that there is no host to ask.
	Visible VisibleFunc
	// WaitMax bounds the wait for Visible; 0 means 30 s.
	WaitMax time.Duration
	// FirmwareProgress is told how far the transfer of an image is, in bytes; nil
	// for nobody.
	FirmwareProgress func(done, total uint64)
	// FormatProgress is told which percentage of a format remains, 1 to 100, on
	// drives that report it (FPI bit 7), while it goes on; nil for nobody. It is
	// called from another goroutine while the step is taken.
	FormatProgress func(percentLeft uint8)
	// AcceptUnproven takes a namespace that appeared while a create was interrupted
	// for the one created, although it shows signs of being somebody else's.
	AcceptUnproven bool
	// AcceptUnread goes on with firmware although it cannot be read whether a
	// sanitize or a self-test is in progress.
	AcceptUnread bool
}

const (
	defaultWait = 30 * time.Second
	pollPause   = 100 * time.Millisecond
)

// Executors are the kinds of step this package plans.
func Executors(o ExecutorOptions) txn.Registry {
	if o.WaitMax == 0 {
		o.WaitMax = defaultWait
	}
	registry := txn.Registry{
		KindFeature: featureSetter{},
		KindDetach:  attachment{o: o, detach: true},
		KindAttach:  attachment{o: o},
		KindDelete:  management{o: o},
		KindCreate:  management{o: o, create: true},
		KindFormat:  formatting{o},
		KindRescan:  rescan{o},
	}
	maps.Copy(registry, firmware.Executors(firmware.ExecutorOptions{Progress: o.FirmwareProgress, AcceptUnread: o.AcceptUnread}))
	return registry
}

// answer looks at what a mutating command returned. Some statuses do not say
// whether the command was carried out: those become indeterminate, and the
// drive is asked.
func answer(err error) error {
	status, ok := errors.AsType[nvmespec.StatusError](err)
	if !ok {
		return err
	}
	const pathRelated = 3 // status code type: the host or the path gave up
	switch code := status.Status.Code(); {
	case code == nvmespec.StatusInternal, code == nvmespec.StatusAborted, code == nvmespec.StatusPowerLoss,
		code == nvmespec.StatusAbortedSQDeletion, code == nvmespec.StatusDataTransfer, code.SCT() == pathRelated:
		return fmt.Errorf("%w: %w", nvmeioctl.ErrIndeterminate, err)
	}
	return err
}

// resolve finds the namespace a step is about.
func (r reference) resolve(s *txn.Scope) (nsid uint32, err error) {
	if r.CreatedBy == nil {
		return r.NSID, nil
	}
	made, ok, err := createdBy(s, *r.CreatedBy, txn.Forward)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("step %d has not created its namespace", *r.CreatedBy+1)
	}
	return made.NSID, nil
}

// createdBy is what a step created when taken in this direction.
func createdBy(s *txn.Scope, index int, dir txn.Direction) (created, bool, error) {
	state, ok := s.StateOf(index, dir)
	if !ok || len(state) == 0 || string(state) == "null" {
		return created{}, false, nil
	}
	var made created
	if err := json.Unmarshal(state, &made); err != nil {
		return created{}, false, fmt.Errorf("what step %d left in the journal: %w", index+1, err)
	}
	return made, true, nil
}

// same says that found is the namespace looked for. Identifiers decide where
// both have them; zero ones mean absent and prove nothing.
func same(want, found Namespace, reformatted bool) bool {
	if want.NGUID != "" && found.NGUID != "" && want.NGUID != found.NGUID ||
		want.EUI64 != "" && found.EUI64 != "" && want.EUI64 != found.EUI64 || want.Shared() != found.Shared() {
		return false
	}
	if reformatted {
		return true
	}
	return want.SizeBlocks == found.SizeBlocks && want.CapacityBlocks == found.CapacityBlocks && want.Format.Selector() == found.Format.Selector()
}

// look reads a namespace if it is allocated.
func look(ctx context.Context, s *txn.Scope, nsid uint32) (Namespace, bool, error) {
	ids, err := admin.AllocatedNamespaces(ctx, s.Device)
	if err != nil || !slices.Contains(ids, nsid) {
		return Namespace{}, false, err
	}
	n, err := readNamespace(ctx, s.Device, nsid, true, s.Transaction().Identity.CNTLID)
	return n, err == nil, err
}

// changed refuses a namespace that is not the one planned for.
func changed(s *txn.Scope, nsid uint32, want, found Namespace) error {
	return &nvmeioctl.RefusedError{
		Check: "identity", Subject: fmt.Sprintf("%s namespace %d", s.Device, nsid),
		Reason: fmt.Sprintf("it is not the one planned for: found %s, planned %s", found, want),
		Remedy: "somebody changed the drive in between: look at it before going on",
	}
}

// attachment attaches and detaches. Attaching undoes detaching and the other
// way round, so one executor does both.
type attachment struct {
	o ExecutorOptions
	// detach says that Forward detaches.
	detach bool
}

func (a attachment) attaches(s *txn.Scope) bool { return a.detach == (s.Direction == txn.Backward) }

// attachmentBefore is what Prepare found and decided.
type attachmentBefore struct {
	NSID uint32 `json:"nsid"`
	// Send are the controllers that the command names; none when there is
	// nothing to do.
	Send []uint16 `json:"send"`
	// Found are the controllers that had the namespace.
	Found []uint16 `json:"found"`
}

// target finds the namespace: after an undone delete it may have another NSID.
func (a attachment) target(s *txn.Scope, p attachmentParams) (uint32, error) {
	if p.DeletedBy != nil && s.Direction == txn.Backward {
		made, ok, err := createdBy(s, *p.DeletedBy, txn.Backward)
		if err != nil || ok {
			return made.NSID, err
		}
	}
	return p.Namespace.resolve(s)
}

// Prepare implements txn.Executor.
func (a attachment) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, err := decodeParams[attachmentParams](s.Step)
	if err != nil {
		return txn.Prepared{}, err
	}
	nsid, err := a.target(s, p)
	if err != nil {
		return txn.Prepared{}, err
	}
	n, exists, err := look(ctx, s, nsid)
	if err != nil {
		return txn.Prepared{}, err
	}
	before := attachmentBefore{NSID: nsid, Found: n.Controllers}
	if !exists {
		if a.attaches(s) {
			return txn.Prepared{}, fmt.Errorf("namespace %d cannot be attached: it does not exist", nsid)
		}
		return txn.Prepared{Before: mustJSON(before), Note: "the namespace is gone: nothing to detach"}, nil
	}
	if !a.recognises(s, p, n) {
		return txn.Prepared{}, changed(s, nsid, p.Geometry, n)
	}
	before.Send = slices.DeleteFunc(slices.Clone(p.Controllers), func(id uint16) bool {
		return slices.Contains(n.Controllers, id) == a.attaches(s)
	})
	if len(before.Send) == 0 {
		return txn.Prepared{Before: mustJSON(before), Note: "already so: nothing to send"}, nil
	}
	describe := describeDetach
	if a.attaches(s) {
		describe = describeAttach
	}
	cmd, err := describe(nsid, before.Send)
	return txn.Prepared{Before: mustJSON(before), Commands: []txn.Command{cmd}}, err
}

// recognises says that a namespace is the one the step is about. What a step of
// this transaction created is compared with what that step left: the size may
// have been stepped down and the identifiers are new.
func (a attachment) recognises(s *txn.Scope, p attachmentParams, n Namespace) bool {
	made, ok := created{}, false
	switch {
	case p.Namespace.CreatedBy != nil:
		made, ok, _ = createdBy(s, *p.Namespace.CreatedBy, txn.Forward)
	case p.DeletedBy != nil && s.Direction == txn.Backward:
		made, ok, _ = createdBy(s, *p.DeletedBy, txn.Backward)
	}
	want := p.Geometry
	if ok {
		want.SizeBlocks, want.CapacityBlocks, want.NGUID, want.EUI64 = made.SizeBlocks, made.SizeBlocks, made.NGUID, made.EUI64
	}
	return same(want, n, p.Reformatted)
}

// Take implements txn.Executor.
func (a attachment) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	var before attachmentBefore
	if err := json.Unmarshal(s.Before, &before); err != nil {
		return nil, fmt.Errorf("what was prepared: %w", err)
	}
	if len(before.Send) > 0 {
		if err := a.send(ctx, s, before); err != nil {
			return nil, err
		}
	}
	if a.detach && s.Direction == txn.Backward {
		// The last act of a rollback: the host should see the old namespace.
		return nil, a.o.waitFor(ctx, s, before.NSID)
	}
	return nil, nil
}

// send sends the command. "Already attached" and "not attached" count as done
// only if reading back agrees (case NS-75).
func (a attachment) send(ctx context.Context, s *txn.Scope, before attachmentBefore) error {
	do, harmless := admin.Detach, nvmespec.ErrNamespaceNotAttached
	if a.attaches(s) {
		do, harmless = admin.Attach, nvmespec.ErrAlreadyAttached
	}
	err := do(ctx, s.Device, before.NSID, before.Send, admin.AttachTimeout)
	if !errors.Is(err, harmless) {
		return answer(err)
	}
	now, rerr := readControllers(context.WithoutCancel(ctx), s.Device, before.NSID)
	if rerr != nil {
		return fmt.Errorf("%w: %w; read back: %w", nvmeioctl.ErrIndeterminate, err, rerr)
	}
	for _, id := range before.Send {
		if slices.Contains(now, id) != a.attaches(s) {
			return err
		}
	}
	return nil
}

// Verify implements txn.Executor.
func (a attachment) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	p, err := decodeParams[attachmentParams](s.Step)
	if err != nil {
		return txn.Unknown, nil, err
	}
	nsid, err := a.target(s, p)
	if err != nil {
		return txn.Unknown, nil, err
	}
	n, exists, err := look(ctx, s, nsid)
	switch {
	case err != nil:
		return txn.Unknown, nil, err
	case !exists && a.attaches(s):
		return txn.NotDone, nil, nil
	case !exists:
		return txn.Done, nil, nil
	case !a.recognises(s, p, n):
		return txn.Unknown, nil, nil
	}
	right := 0
	for _, id := range p.Controllers {
		if slices.Contains(n.Controllers, id) == a.attaches(s) {
			right++
		}
	}
	switch right {
	case len(p.Controllers):
		return txn.Done, nil, nil
	case 0:
		return txn.NotDone, nil, nil
	}
	return txn.Partly, nil, nil
}

// Repeatable implements txn.Executor: what is unknown here is which namespace
// it is, and that one is left alone.
func (a attachment) Repeatable(txn.Direction) bool { return false }

// management creates and deletes. Creating the old geometry undoes deleting,
// deleting what was created undoes creating.
type management struct {
	o ExecutorOptions
	// create says that Forward creates.
	create bool
}

func (m management) creates(s *txn.Scope) bool { return m.create == (s.Direction == txn.Forward) }

// managementBefore is what Prepare found and decided.
type managementBefore struct {
	// Allocated are the NSIDs there were: what comes in addition was created
	// by the command.
	Allocated []uint32 `json:"allocated"`
	// Delete is the namespace that the command deletes; 0 when there is
	// nothing to delete or when it creates.
	Delete uint32 `json:"delete,omitempty"`
	// SizeBlocks is the size that the command asks for.
	SizeBlocks uint64 `json:"size_blocks,omitempty"`
	// Written is what the drive had counted as written by hosts before a create;
	// empty where it could not be read.
	Written string `json:"written,omitempty"`
}

// geometry is what a create in this scope makes: the wanted geometry with its
// bounds, or the old one exactly.
func (m management) geometry(s *txn.Scope) (createParams, error) {
	if m.create {
		return decodeParams[createParams](s.Step)
	}
	p, err := decodeParams[deleteParams](s.Step)
	return createParams{Geometry: p.Geometry, FloorBlocks: p.Geometry.SizeBlocks}, err
}

// victim is the namespace a delete in this scope deletes, and how it looks;
// false when there is none.
func (m management) victim(s *txn.Scope) (uint32, Namespace, bool, error) {
	if !m.create {
		p, err := decodeParams[deleteParams](s.Step)
		return p.Geometry.NSID, p.Geometry, true, err
	}
	p, err := decodeParams[createParams](s.Step)
	if err != nil {
		return 0, Namespace{}, false, err
	}
	made, ok, err := createdBy(s, s.Step.Index, txn.Forward)
	want := p.Geometry
	want.SizeBlocks, want.CapacityBlocks, want.NGUID, want.EUI64 = made.SizeBlocks, made.SizeBlocks, made.NGUID, made.EUI64
	return made.NSID, want, ok, err
}

// Prepare implements txn.Executor.
func (m management) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	ids, err := admin.AllocatedNamespaces(ctx, s.Device)
	if err != nil {
		return txn.Prepared{}, err
	}
	before := managementBefore{Allocated: ids}
	if m.creates(s) {
		p, err := m.geometry(s)
		if err != nil {
			return txn.Prepared{}, err
		}
		before.SizeBlocks, before.Written = p.Geometry.SizeBlocks, m.written(ctx, s)
		cmd, err := describeCreate(p.Geometry)
		return txn.Prepared{Before: mustJSON(before), Commands: []txn.Command{cmd}}, err
	}
	nsid, want, ok, err := m.victim(s)
	if err != nil {
		return txn.Prepared{}, err
	}
	if !ok || !slices.Contains(ids, nsid) {
		return txn.Prepared{Before: mustJSON(before), Note: "the namespace is gone: nothing to delete"}, nil
	}
	found, err := readNamespace(ctx, s.Device, nsid, true, s.Transaction().Identity.CNTLID)
	if err != nil {
		return txn.Prepared{}, err
	}
	if !same(want, found, false) {
		return txn.Prepared{}, changed(s, nsid, want, found)
	}
	note := ""
	if m.create && want.NGUID+want.EUI64 == "" && found.NGUID+found.EUI64 != "" {
		if err := m.ours(ctx, s, found, ""); err != nil {
			return txn.Prepared{}, err
		}
	}
	if m.create {
		note = fmt.Sprintf("namespace %s (%s)", found.name(), Bytes(found.SizeBytes()))
	}
	before.Delete = nsid
	cmd, err := describeDelete(nsid)
	return txn.Prepared{Before: mustJSON(before), Commands: []txn.Command{cmd}, Note: note}, err
}

// Take implements txn.Executor.
func (m management) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	var before managementBefore
	if err := json.Unmarshal(s.Before, &before); err != nil {
		return nil, fmt.Errorf("what was prepared: %w", err)
	}
	if !m.creates(s) {
		if before.Delete == 0 {
			return nil, nil
		}
		return nil, answer(admin.DeleteNamespace(ctx, s.Device, before.Delete, admin.NamespaceTimeout))
	}
	p, err := m.geometry(s)
	if err != nil {
		return nil, err
	}
	made, err := m.createWithin(ctx, s, p, before)
	if err != nil {
		if !m.create {
			g := p.Geometry
			err = fmt.Errorf("the old namespace could not be created again: %w; its geometry is kept in the journal: nsze=%d ncap=%d lba=%s dps=0x%02x nmic=0x%02x",
				err, g.SizeBlocks, g.CapacityBlocks, g.Format, g.Protection, g.NMIC)
		}
		return nil, err
	}
	return mustJSON(made), nil
}

// createWithin creates a namespace, smaller where the drive says that it has
// not enough capacity, within the bounds that the plan announced. Each attempt
// is recorded before it is sent.
func (m management) createWithin(ctx context.Context, s *txn.Scope, p createParams, before managementBefore) (created, error) {
	n := p.Geometry
	for {
		cmd, err := createCommand(n)
		if err != nil {
			return created{}, err
		}
		done, err := admin.Submit(ctx, s.Device, "create namespace", cmd)
		if err == nil {
			nsid, err := admin.CreatedNSID(done)
			if err != nil {
				// It was created, under a number the drive did not tell.
				return created{}, fmt.Errorf("%w: %w", nvmeioctl.ErrIndeterminate, err)
			}
			return m.identifiers(ctx, s, created{NSID: nsid, SizeBlocks: n.SizeBlocks}), nil
		}
		smaller, note, ok := uint64(0), "", false
		switch {
		case errors.Is(err, nvmespec.ErrInsufficientCapacity):
			smaller, note, ok = m.smaller(ctx, s, n, p)
		case errors.Is(err, nvmespec.ErrInvalidField):
			smaller, note, ok = aligned(n, p)
		default:
			return created{}, answer(err)
		}
		if !ok {
			return created{}, err
		}
		n.SizeBlocks, n.CapacityBlocks = smaller, smaller
		before.SizeBlocks = smaller
		described, derr := describeCreate(n)
		if derr != nil {
			return created{}, derr
		}
		if err := s.Attempt(ctx, txn.Prepared{Before: mustJSON(before), Commands: []txn.Command{described}, Note: note}); err != nil {
			return created{}, err
		}
	}
}

// aligned is the size rounded down to 1 MiB: some controllers refuse any other as
// an invalid field, without reporting a granularity (case NS-13). False where it is
// one already, or the plan announced no smaller size.
func aligned(n Namespace, p createParams) (blocks uint64, note string, ok bool) {
	unit := lcm(oneMiB, uint64(n.Format.DataBytes)) / uint64(max(n.Format.DataBytes, 1))
	blocks = n.SizeBlocks - n.SizeBlocks%max(unit, 1)
	if p.StepBlocks == 0 || blocks == n.SizeBlocks || blocks < p.FloorBlocks || blocks == 0 {
		return 0, "", false
	}
	return blocks, fmt.Sprintf("refused as an invalid field: trying %s blocks instead of %s, a multiple of 1 MiB", grouped(blocks), grouped(n.SizeBlocks)), true
}

// smaller is the next size to try after a refusal for lack of capacity; false
// when the plan announced none. The drive's error log may tell how much was
// lacking, which saves steps (case NS-04).
func (m management) smaller(ctx context.Context, s *txn.Scope, n Namespace, p createParams) (blocks uint64, note string, ok bool) {
	if p.StepBlocks == 0 || n.SizeBlocks < p.FloorBlocks || n.SizeBlocks-p.FloorBlocks < p.StepBlocks {
		return 0, "", false
	}
	steps := uint64(1)
	note = "refused for lack of capacity"
	if lacking, ok := m.lacking(ctx, s); ok {
		stepBytes := mulCapped(p.StepBlocks, uint64(n.Format.DataBytes))
		steps = max(1, lacking/stepBytes)
		if lacking%stepBytes != 0 && lacking > stepBytes {
			steps++
		}
		note += fmt.Sprintf(", the drive lacks %s", Bytes(lacking))
	}
	steps = min(steps, (n.SizeBlocks-p.FloorBlocks)/p.StepBlocks)
	blocks = n.SizeBlocks - steps*p.StepBlocks
	return blocks, fmt.Sprintf("%s: trying %s blocks instead of %s", note, grouped(blocks), grouped(n.SizeBlocks)), true
}

// lacking is by how much the capacity that a refused create would have needed
// exceeds what is unallocated. The log only saves steps: failing to read it is
// no failure.
func (m management) lacking(ctx context.Context, s *txn.Scope) (uint64, bool) {
	c, err := admin.IdentifyController(ctx, s.Device)
	if err != nil {
		return 0, false
	}
	needed, ok, err := admin.RequiredCapacity(ctx, s.Device, c)
	free, fits := c.UnallocatedCapacityBytes.Uint64()
	if err != nil || !ok || !fits || needed <= free {
		return 0, false
	}
	return needed - free, true
}

// identifiers adds the new namespace's identifiers where they can be read: they
// tell it from others later, but it exists without.
func (m management) identifiers(ctx context.Context, s *txn.Scope, made created) created {
	id, err := admin.IdentifyAllocatedNamespace(context.WithoutCancel(ctx), s.Device, made.NSID)
	if err == nil {
		made.NGUID, made.EUI64 = id.NGUID.String(), id.EUI64.String()
	}
	return made
}

// Verify implements txn.Executor.
func (m management) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if m.creates(s) {
		return m.verifyCreated(ctx, s)
	}
	nsid, want, ok, err := m.victim(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if !ok {
		return txn.Done, nil, nil // nothing was created, so there is nothing to delete
	}
	found, exists, err := look(ctx, s, nsid)
	switch {
	case err != nil:
		return txn.Unknown, nil, err
	case !exists:
		return txn.Done, nil, nil
	case same(want, found, false):
		return txn.NotDone, nil, nil
	}
	return txn.Unknown, nil, nil
}

// verifyCreated looks for the namespace that a create made: under the NSID that
// is recorded, else as the one that was not there before.
func (m management) verifyCreated(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	p, err := m.geometry(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	made, ok, err := createdBy(s, s.Step.Index, s.Direction)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if ok {
		found, exists, err := look(ctx, s, made.NSID)
		if err != nil || !exists {
			return txn.NotDone, nil, err
		}
		if made.fits(p, found) {
			return txn.Done, mustJSON(made), nil
		}
		return txn.Unknown, nil, nil
	}
	if len(s.Before) == 0 {
		return txn.NotDone, nil, nil
	}
	var before managementBefore
	if err := json.Unmarshal(s.Before, &before); err != nil {
		return txn.Unknown, nil, fmt.Errorf("what was prepared: %w", err)
	}
	return m.findNew(ctx, s, p, before)
}

func (m management) findNew(ctx context.Context, s *txn.Scope, p createParams, before managementBefore) (txn.Verdict, json.RawMessage, error) {
	ids, err := admin.AllocatedNamespaces(ctx, s.Device)
	if err != nil {
		return txn.Unknown, nil, err
	}
	fresh := slices.DeleteFunc(ids, func(id uint32) bool { return slices.Contains(before.Allocated, id) })
	if len(fresh) == 0 {
		return txn.NotDone, nil, nil
	}
	if len(fresh) > 1 {
		return txn.Unknown, nil, nil
	}
	n, err := readNamespace(ctx, s.Device, fresh[0], true, s.Transaction().Identity.CNTLID)
	if err != nil {
		return txn.Unknown, nil, err
	}
	made := created{NSID: n.NSID, SizeBlocks: n.SizeBlocks, NGUID: n.NGUID, EUI64: n.EUI64}
	if before.SizeBlocks != n.SizeBlocks || !made.fits(p, n) {
		return txn.Unknown, nil, nil
	}
	if err := m.ours(ctx, s, n, before.Written); err != nil {
		return txn.Unknown, nil, err
	}
	return txn.Done, mustJSON(made), nil
}

// fits says that a namespace is what was created.
func (c created) fits(p createParams, n Namespace) bool {
	want := p.Geometry
	want.SizeBlocks, want.CapacityBlocks, want.NGUID, want.EUI64 = c.SizeBlocks, c.SizeBlocks, c.NGUID, c.EUI64
	return n.SizeBlocks >= p.FloorBlocks && n.SizeBlocks <= p.Geometry.SizeBlocks && same(want, n, false)
}

// Repeatable implements txn.Executor: a second create would make a second
// namespace, a second delete could meet another one.
func (m management) Repeatable(txn.Direction) bool { return false }
