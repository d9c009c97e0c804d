package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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
	return txn.Registry{
		KindDetach: attachment{o: o, detach: true},
		KindAttach: attachment{o: o},
		KindDelete: management{},
		KindCreate: management{create: true},
		KindFormat: formatting{},
		KindRescan: rescan{o},
	}
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
