package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// management creates and deletes. Creating the old geometry undoes deleting,
// deleting what was created undoes creating.
type management struct {
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
		before.SizeBlocks = p.Geometry.SizeBlocks
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
	before.Delete = nsid
	cmd, err := describeDelete(nsid)
	return txn.Prepared{Before: mustJSON(before), Commands: []txn.Command{cmd}}, err
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
		if !errors.Is(err, nvmespec.ErrInsufficientCapacity) {
			return created{}, answer(err)
		}
		smaller, note, ok := m.smaller(ctx, s, n, p)
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
