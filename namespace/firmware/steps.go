package firmware

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// The kinds of steps.
const (
	KindUpdate   = "firmware.update"   // transfer an image, if any, and commit
	KindDownload = "firmware.download" // transfer only
	KindActivate = "firmware.activate" // reset the controller and look
	KindVerify   = "firmware.verify"   // compare the drive with an earlier record
)

// ExecutorOptions are what steps may need from outside.
type ExecutorOptions struct {
	// Progress is told how many bytes of an image have been transferred; nil for
	// nobody.
	Progress func(done, total uint64)
	// AcceptUnread goes on although it cannot be read whether a sanitize or a
	// self-test is in progress.
	AcceptUnread bool
}

// Executors are the executors of the kinds of steps that this package makes.
func Executors(o ExecutorOptions) txn.Registry {
	return txn.Registry{
		KindUpdate: updater{o}, KindDownload: updater{o}, KindActivate: activator{o}, KindVerify: verifier{},
	}
}

// Disturbs says that the controller stops while it takes a step, so that the
// drive's users have to be looked for.
func Disturbs(step txn.Step) bool {
	if step.Kind == KindActivate {
		return true
	}
	p, err := decode[params](step)
	return step.Kind == KindUpdate && (err != nil || p.Action == nvmespec.CommitActivateNow)
}

// was is the state of the slots before a step.
type was struct {
	Running string `json:"running"`
	Active  uint8  `json:"active_slot"`
	Next    uint8  `json:"next_slot"`
	Slots   []Slot `json:"slots"`
	// PowerCycles is nil where unknown.
	PowerCycles *uint64 `json:"power_cycles,omitempty"`
}

func before(s State) was {
	return was{Running: s.Running, Active: s.Active, Next: s.Next, Slots: s.Slots, PowerCycles: s.PowerCycles}
}

func (w was) slot(number uint8) Slot {
	slot, _ := State{Slots: w.Slots}.Slot(number)
	return slot
}

// params are the parameters of KindUpdate and KindDownload.
type params struct {
	// Image is nil where what a slot holds is committed.
	Image *Image `json:"image,omitempty"`
	// SizeBytes is the image with its padding, ChunkBytes the length of a piece.
	SizeBytes  uint64 `json:"size_bytes,omitempty"`
	ChunkBytes uint64 `json:"chunk_bytes,omitempty"`
	// Discard goes on over pieces of an image that was never committed.
	Discard bool `json:"discard,omitempty"`
	// Revision is what the slot must hold afterwards; empty where only the image
	// knows.
	Revision string `json:"revision,omitempty"`
	// Slot is never 0 for an image: it is chosen here and not by the drive.
	Slot          uint8                 `json:"slot"`
	Action        nvmespec.CommitAction `json:"action"`
	BootPartition uint8                 `json:"boot_partition,omitempty"`
	// Reset is the stronger reset that this model needs; empty for none.
	Reset ResetKind `json:"reset,omitempty"`
	// Wait is how long the controller may be away when it activates at once.
	Wait   time.Duration `json:"wait_ns"`
	Before was           `json:"before"`
}

func (p params) fields() nvmespec.FirmwareCommitFields {
	return nvmespec.FirmwareCommitFields{Slot: p.Slot, Action: p.Action, BootPartition: p.BootPartition}
}

func (p params) pieces() uint64 { return (p.SizeBytes + p.ChunkBytes - 1) / p.ChunkBytes }

// stores says that the slot's content is replaced.
func (p params) stores() bool {
	return p.Image != nil || p.Action == nvmespec.CommitStore || p.Action == nvmespec.CommitStoreActivate
}

func (p params) boot() bool { return p.Action >= nvmespec.CommitBootPartition }

// commitTimeout is generous: a timeout resets the controller in the middle.
func (p params) commitTimeout() time.Duration { return admin.CommitTimeout + p.Wait }

func decode[T any](step txn.Step) (T, error) {
	var p T
	if err := json.Unmarshal(step.Params, &p); err != nil {
		return p, fmt.Errorf("parameters of step %d: %w", step.Index+1, err)
	}
	return p, nil
}

// bytes reads the image again and makes sure that it still is the one planned.
func (p params) bytes() ([]byte, error) {
	b, err := readImage(p.Image.Path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != p.Image.SHA256 {
		return nil, refused("firmware image", p.Image.Path, "put the image back that the plan was made for",
			"its sha256 is %x, planned was %s", sum, p.Image.SHA256)
	}
	if pad := int64(p.SizeBytes) - int64(len(b)); pad > 0 {
		b = append(b, bytes.Repeat([]byte{0xFF}, int(pad))...)
	}
	return b, nil
}

// updater transfers and commits; undoing is making the old slot the next one.
type updater struct{ o ExecutorOptions }

// Prepare implements txn.Executor.
func (u updater) Prepare(ctx context.Context, s *txn.Scope) (txn.Prepared, error) {
	p, err := decode[params](s.Step)
	if err != nil {
		return txn.Prepared{}, err
	}
	now, err := Read(ctx, s.Device)
	if err != nil {
		return txn.Prepared{}, err
	}
	raw, err := json.Marshal(before(now))
	if err != nil {
		return txn.Prepared{}, err
	}
	prep := txn.Prepared{Before: raw}
	if s.Direction == txn.Backward {
		back, needed, err := u.back(s, p, now)
		if err != nil || !needed {
			prep.Note = "nothing of it is staged: nothing to undo"
			return prep, err
		}
		cmd, err := back.describeCommit()
		prep.Commands = []txn.Command{cmd}
		return prep, err
	}
	if err := now.idle(s.Device.String(), Disturbs(s.Step), u.o.AcceptUnread); err != nil {
		return prep, err
	}
	if err := u.unchanged(s, p, now); err != nil {
		return prep, err
	}
	if p.Image != nil {
		if _, err := p.bytes(); err != nil {
			return prep, err
		}
		prep.Commands = append(prep.Commands, p.describeDownload())
	}
	if s.Step.Kind == KindUpdate {
		cmd, err := p.describeCommit()
		if err != nil {
			return prep, err
		}
		prep.Commands = append(prep.Commands, cmd)
	}
	return prep, nil
}

// unchanged refuses where the slots are not as planned, so that a commit would
// hit what must stay: a reset in between may have made the chosen slot the one
// that runs.
func (updater) unchanged(s *txn.Scope, p params, now State) error {
	if p.boot() || s.Step.Kind == KindDownload {
		return nil
	}
	slot, _ := now.Slot(p.Slot)
	switch {
	case p.stores() && now.Active == p.Slot && p.Before.Active != p.Slot:
		return refused("firmware slot", s.Device.String(), "make a new plan", "slot %d runs now, and did not when this was planned", p.Slot)
	case !p.stores() && p.Revision != "" && slot.Revision != p.Revision:
		return refused("firmware slot", s.Device.String(), "make a new plan", "slot %d holds %q and not revision %s", p.Slot, slot.Revision, p.Revision)
	}
	return nil
}

// Take implements txn.Executor.
func (u updater) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	p, err := decode[params](s.Step)
	if err != nil {
		return nil, err
	}
	if s.Direction == txn.Backward {
		return u.takeBack(ctx, s, p)
	}
	mixed := 0
	if p.Image != nil {
		image, err := p.bytes()
		if err != nil {
			return nil, err
		}
		// A step that has begun goes to its end: pieces without a commit would be
		// in the way of the next update.
		ctx = context.WithoutCancel(ctx)
		if mixed, err = u.transfer(ctx, s, p, image); err != nil {
			return nil, err
		}
		if s.Step.Kind == KindDownload {
			return json.Marshal(p.record(PhaseDownloaded))
		}
		cmd, err := p.describeCommit()
		if err != nil {
			return nil, err
		}
		note := fmt.Sprintf("transferred %d bytes in %d pieces; commit", p.SizeBytes, p.pieces())
		if err := s.Attempt(ctx, txn.Prepared{Commands: []txn.Command{cmd}, Note: note}); err != nil {
			return nil, err
		}
	}
	done, err := u.commit(ctx, s, p)
	if mixed > 0 && errors.Is(err, nvmespec.ErrInvalidFirmwareImage) {
		// What an interrupted attempt left did not fit together with this one; the
		// refusal has made the controller forget it, so the whole is sent again.
		return u.again(ctx, s, p)
	}
	if err != nil {
		return nil, err
	}
	return u.settle(ctx, s, p, done)
}

// again transfers and commits once more, to a controller that holds nothing.
func (u updater) again(ctx context.Context, s *txn.Scope, p params) (json.RawMessage, error) {
	image, err := p.bytes()
	if err != nil {
		return nil, err
	}
	cmd, err := p.describeCommit()
	if err != nil {
		return nil, err
	}
	prep := txn.Prepared{Commands: []txn.Command{p.describeDownload(), cmd}, Note: "what an earlier attempt left did not fit; once more from the start"}
	if err := s.Attempt(ctx, prep); err != nil {
		return nil, err
	}
	if _, err := u.transfer(ctx, s, p, image); err != nil {
		return nil, err
	}
	done, err := u.commit(ctx, s, p)
	if err != nil {
		return nil, err
	}
	return u.settle(ctx, s, p, done)
}

// transfer sends the image piece by piece and counts those the controller has
// already, from an attempt of this transaction that was interrupted. Pieces of
// somebody else's image end it at the first one.
func (u updater) transfer(ctx context.Context, s *txn.Scope, p params, image []byte) (held int, err error) {
	total := uint64(len(image))
	for off := uint64(0); off < total; {
		piece := image[off:min(off+p.ChunkBytes, total)]
		err := admin.DownloadFirmware(ctx, s.Device, off, piece, admin.DownloadTimeout)
		switch {
		case err == nil:
		case !errors.Is(err, nvmespec.StatusError{Status: nvmespec.StatusOverlappingRange}):
			return held, explain(answer(err))
		case !s.Retaken() && !p.Discard:
			return held, fmt.Errorf("%w: the controller holds pieces of another image: another update may be going on, or was given up; a controller reset discards them, --discard goes on over them", err)
		default:
			held++
		}
		off += uint64(len(piece))
		if u.o.Progress != nil {
			u.o.Progress(off, total)
		}
	}
	return held, nil
}

func (u updater) commit(ctx context.Context, s *txn.Scope, p params) (admin.Committed, error) {
	done, err := admin.CommitFirmware(ctx, s.Device, p.fields(), p.commitTimeout())
	return done, explain(answer(err))
}

// answer looks at what a command returned. Some statuses do not say whether it
// was carried out: those become indeterminate, and the drive is asked.
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

// explain says what to do about an answer of the drive.
func explain(err error) error {
	status, ok := errors.AsType[nvmespec.StatusError](err)
	if !ok {
		return err
	}
	hint := ""
	switch status.Status.Code() {
	case nvmespec.StatusInvalidFirmwareSlot:
		hint = "the slot is read-only, empty or does not exist"
	case nvmespec.StatusInvalidFirmwareImage:
		hint = "the drive does not accept the image: it is damaged, for another model or seller, or not whole"
	case nvmespec.StatusActivationTime:
		hint = "activating without a reset would take longer than the drive promises: stage it instead"
	case nvmespec.StatusActivationProhibited:
		hint = "the drive does not let this revision be activated: going back to an older one may be forbidden"
	case nvmespec.StatusOverlappingRange:
		hint = "the controller holds pieces of another image; a controller reset discards them"
	case nvmespec.StatusBootPartitionLocked:
		hint = "the boot partition is write protected"
	case nvmespec.StatusSequence:
		hint = "drives answer so to images of another seller, or while firmware is locked"
	case nvmespec.StatusInvalidField:
		hint = "a piece may not have the length the drive wants: try filling the image up (--pad)"
	case nvmespec.StatusSanitizeInProgress, nvmespec.StatusSelfTestInProgress, nvmespec.StatusFormatInProgress:
		hint = "wait until it has ended"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// Repeatable implements txn.Executor: a commit of the same image into the same
// slot can be sent twice.
func (updater) Repeatable(txn.Direction) bool { return true }
