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

// formatting formats; undoing is formatting back to the old LBA format.
type formatting struct{ o ExecutorOptions }

// wanted is what to format with in the scope's direction; false when there is
// nothing to undo, or no single old format to go back to.
func (formatting) wanted(s *txn.Scope) (formatParams, bool, error) {
	p, err := decodeParams[formatParams](s.Step)
	if err != nil || s.Direction == txn.Forward {
		return p, true, err
	}
	old := p.Affected[0]
	for _, n := range p.Affected {
		if n.Format.Selector() != old.Format.Selector() || n.FLBAS != old.FLBAS || n.Protection != old.Protection {
			return p, false, errors.New("the namespaces had different LBA formats before, and this drive formats all at once: it cannot be undone")
		}
	}
	same := old.Format.Selector() == p.Format.Selector()
	p.Format, p.FLBAS, p.Protection, p.Erase = old.Format, old.FLBAS, old.Protection, EraseNone
	return p, !same, nil
}

// Prepare implements txn.Executor.
func (f formatting) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, needed, err := f.wanted(s)
	if err != nil {
		return txn.Prepared{}, err
	}
	if !needed {
		return txn.Prepared{Note: "the LBA format is the old one: nothing to undo"}, nil
	}
	for _, old := range p.Affected {
		n, err := f.read(ctx, s, old.NSID)
		if err != nil {
			return txn.Prepared{}, err
		}
		if !same(old, n, true) {
			return txn.Prepared{}, changed(s, old.NSID, old, n)
		}
		if n.FormatPercentLeft != 0 {
			return txn.Prepared{}, &nvmeioctl.RefusedError{Check: "busy", Subject: fmt.Sprintf("%s namespace %d", s.Device, n.NSID),
				Reason: fmt.Sprintf("a format is in progress, %d %% remain", n.FormatPercentLeft), Remedy: "wait until it has ended"}
		}
	}
	cmd, err := describeFormat(p)
	return txn.Prepared{Commands: []txn.Command{cmd}}, err
}

// read reads a namespace, with or without namespace management.
func (formatting) read(ctx context.Context, s *txn.Scope, nsid uint32) (Namespace, error) {
	c, err := admin.IdentifyController(ctx, s.Device)
	if err != nil {
		return Namespace{}, err
	}
	return readNamespace(ctx, s.Device, nsid, c.HasNamespaceManagement(), c.ControllerID)
}

// Take implements txn.Executor.
func (f formatting) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	p, needed, err := f.wanted(s)
	if err != nil || !needed {
		return nil, err
	}
	cmd, err := formatCommand(p)
	if err != nil {
		return nil, err
	}
	stop := f.watch(ctx, s, p)
	_, err = admin.Submit(ctx, s.Device, "format", cmd)
	stop()
	if err != nil {
		return nil, explainFormat(ctx, s, answer(err))
	}
	return nil, f.wait(ctx, s, p)
}

// explainFormat says what to do where a drive refuses a format that it lists
// itself: it is never tried again (case FMT-10).
func explainFormat(ctx context.Context, s *txn.Scope, err error) error {
	if !errors.Is(err, nvmespec.ErrInvalidFormat) && !errors.Is(err, nvmespec.ErrInvalidOpcode) && !errors.Is(err, nvmespec.ErrInvalidField) {
		return err
	}
	hint := "the drive lists this format and refuses it: it may be locked or frozen for security, or its firmware forbids it"
	if c, cerr := admin.IdentifyController(context.WithoutCancel(ctx), s.Device); cerr == nil && c.Admin&nvmespec.AdminSecurity != 0 {
		hint += "; it has security commands: a suspend and resume of the machine may unfreeze it, a PSID revert unlock it"
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// watchPause is the time between two looks at a format that is being carried out.
const watchPause = 2 * time.Second

// watch tells how far a format is while its command has not been answered: many
// drives answer only when it is done, hours later. What cannot be read meanwhile
// is not told. stop ends it and waits for its end.
func (f formatting) watch(ctx context.Context, s *txn.Scope, p formatParams) (stop func()) {
	if f.o.FormatProgress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s.Clock.Sleep(ctx, watchPause) == nil {
			left := uint8(0)
			for _, old := range p.Affected {
				n, err := f.read(ctx, s, old.NSID)
				if err != nil {
					left = 0
					break
				}
				left = max(left, n.FormatPercentLeft)
			}
			if left > 0 {
				f.o.FormatProgress(left)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// wait waits while the drive says that the format goes on.
func (f formatting) wait(ctx context.Context, s *txn.Scope, p formatParams) error {
	deadline := s.Clock.Now().Add(p.timeout())
	for {
		left := uint8(0)
		for _, old := range p.Affected {
			n, err := f.read(ctx, s, old.NSID)
			if err != nil {
				return err
			}
			left = max(left, n.FormatPercentLeft)
		}
		if left == 0 {
			return nil
		}
		if f.o.FormatProgress != nil {
			f.o.FormatProgress(left)
		}
		if s.Clock.Now() >= deadline {
			return fmt.Errorf("%w: the format goes on after %s, %d %% remain", nvmeioctl.ErrIndeterminate, p.timeout(), left)
		}
		if err := s.Clock.Sleep(ctx, pollPause); err != nil {
			return err
		}
	}
}

// Verify implements txn.Executor. Whether data was erased cannot be read back,
// nor a format to the format there was: without an answer those are unknown.
func (f formatting) Verify(ctx context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	p, needed, err := f.wanted(s)
	if err != nil {
		return txn.Unknown, nil, err
	}
	if !needed {
		return txn.Done, nil, nil
	}
	right, tells := 0, s.Answered || p.Erase == EraseNone
	for _, old := range p.Affected {
		n, err := f.read(ctx, s, old.NSID)
		if err != nil {
			return txn.Unknown, nil, err
		}
		if n.FormatPercentLeft != 0 {
			return txn.Unknown, nil, nil
		}
		if n.Format.Selector() == p.Format.Selector() && n.Protection == p.Protection {
			right++
		}
		if s.Direction == txn.Forward && old.Format.Selector() == p.Format.Selector() {
			tells = tells && s.Answered
		}
	}
	switch {
	case right == len(p.Affected) && tells:
		return txn.Done, nil, nil
	case right == len(p.Affected):
		return txn.Unknown, nil, nil
	case right == 0:
		return txn.NotDone, nil, nil
	}
	return txn.Partly, nil, nil
}

// Repeatable implements txn.Executor: the data is gone or is to go anyway.
func (formatting) Repeatable(txn.Direction) bool { return true }

// rescan asks the host to look again and waits until it shows what is expected.
type rescan struct{ o ExecutorOptions }

// Prepare implements txn.Executor.
func (rescan) Prepare(context.Context, *txn.Scope) (txn.Prepared, error) { return txn.Prepared{}, nil }

// Take implements txn.Executor.
func (r rescan) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	if s.Direction == txn.Backward {
		return nil, nil // the steps undone after this one look themselves
	}
	p, err := decodeParams[rescanParams](s.Step)
	if err != nil {
		return nil, err
	}
	wants, err := r.wants(s, p)
	if err != nil {
		return nil, err
	}
	return nil, r.o.waitAll(ctx, s, wants)
}

// wants turns expectations into what the host should show: a namespace that
// should be gone does not count where a new one has its NSID.
func (r rescan) wants(s *txn.Scope, p rescanParams) ([]Visible, error) {
	var wants []Visible
	var present []uint32
	for _, e := range p.Expect {
		nsid, err := e.Namespace.resolve(s)
		if err != nil {
			return nil, err
		}
		if e.Geometry != nil && (!e.Here || !showable(e.Geometry.Format)) {
			present = append(present, nsid) // another host's affair, or nothing to see
			continue
		}
		w := Visible{Identity: s.Transaction().Identity, NSID: nsid}
		if g := e.Geometry; g != nil {
			w.Present, w.BlockBytes, w.SizeBytes = true, g.Format.DataBytes, g.SizeBytes()
			present = append(present, nsid)
			if by := e.Namespace.CreatedBy; by != nil {
				made, _, err := createdBy(s, *by, txn.Forward)
				if err != nil {
					return nil, err
				}
				w.SizeBytes = mulCapped(made.SizeBlocks, uint64(g.Format.DataBytes))
			}
		}
		wants = append(wants, w)
	}
	return slices.DeleteFunc(wants, func(w Visible) bool { return !w.Present && slices.Contains(present, w.NSID) }), nil
}

// showable says that a host shows a namespace of this format with its size:
// Linux makes the size 0 where the block layer cannot use the metadata, and may
// not take blocks larger than a page.
func showable(f LBAFormat) bool { return f.MetadataBytes == 0 && f.DataBytes <= 4096 }

// Verify implements txn.Executor: looking again is never known to be done
// unless it was just done.
func (rescan) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	if s.Answered || s.Direction == txn.Backward {
		return txn.Done, nil, nil
	}
	return txn.NotDone, nil, nil
}

// Repeatable implements txn.Executor.
func (rescan) Repeatable(txn.Direction) bool { return true }

// waitFor waits until the host shows a namespace as the drive has it.
func (o ExecutorOptions) waitFor(ctx context.Context, s *txn.Scope, nsid uint32) error {
	n, exists, err := look(ctx, s, nsid)
	if err != nil || !exists || !showable(n.Format) || !slices.Contains(n.Controllers, s.Transaction().Identity.CNTLID) {
		return err
	}
	return o.waitAll(ctx, s, []Visible{{
		Identity: s.Transaction().Identity, NSID: nsid, Present: true, SizeBytes: n.SizeBytes(), BlockBytes: n.Format.DataBytes}})
}

// waitAll rescans and waits until the host shows all that is wanted. Waiting is
// for a state, with a bound, never for a time (cases NS-29, NS-49).
func (o ExecutorOptions) waitAll(ctx context.Context, s *txn.Scope, wants []Visible) error {
	if host, ok := nvmeioctl.As[nvmeioctl.Resetter](s.Device); ok {
		if err := host.Rescan(ctx); err != nil && !errors.Is(err, nvmeioctl.ErrNotSupported) {
			return fmt.Errorf("ask the host to look again: %w", err)
		}
	}
	if o.Visible == nil {
		return nil
	}
	deadline := s.Clock.Now().Add(o.WaitMax)
	for _, want := range wants {
		for {
			ok, err := o.Visible(ctx, want)
			if err != nil {
				return fmt.Errorf("look for namespace %d on this host: %w", want.NSID, err)
			}
			if ok {
				break
			}
			if s.Clock.Now() >= deadline {
				return notVisible(want, o)
			}
			if err := s.Clock.Sleep(ctx, pollPause); err != nil {
				return err
			}
		}
	}
	return nil
}

func notVisible(want Visible, o ExecutorOptions) error {
	if !want.Present {
		return fmt.Errorf("the drive no longer has namespace %d, but this host still shows it after %s: something may hold it open, or a controller reset is needed", want.NSID, o.WaitMax)
	}
	return fmt.Errorf("the drive has namespace %d (%s in blocks of %d), but this host does not show it so after %s: a controller reset may be needed",
		want.NSID, Bytes(want.SizeBytes), want.BlockBytes, o.WaitMax)
}
