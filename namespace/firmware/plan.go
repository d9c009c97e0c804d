package firmware

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// Options are what a caller may allow a plan.
type Options struct {
	// AllowLive are globs of models that may be activated live besides those of
	// the table of quirks.
	AllowLive []string
	// Again sends the image although a slot holds its revision already.
	Again bool
	// Pad fills the image up with FFh to the drive's granularity.
	Pad bool
	// Discard goes on where the controller holds pieces of an image that was
	// never committed; the revision must be named then.
	Discard bool
	// AcceptUnread goes on although it could not be read whether a sanitize or a
	// self-test is in progress.
	AcceptUnread bool
}

// Planned is how to get from a state to a want.
type Planned struct {
	// Steps are numbered from 0; a caller that appends them to others numbers
	// them again. None when there is nothing to send.
	Steps []txn.Step `json:"steps"`
	// AlreadySo: the drive runs what is wanted, or it is staged and stage was
	// wanted.
	AlreadySo bool `json:"already_so"`
	// Pending is the reset the drive waits for after the steps (or already, with
	// none): a result with a pending reset is exit code 8. The answer of the drive
	// may ask for a stronger one, see [PendingAfter].
	Pending ResetKind `json:"pending,omitempty"`
	// Revision and Slot are what will run and where it lies; Revision is empty
	// where only the image knows.
	Revision string `json:"revision,omitempty"`
	Slot     uint8  `json:"slot,omitempty"`
	// Destroys lists what is lost: the revision that the slot holds now.
	Destroys []string `json:"destroys,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	// Disturbs: the controller stops while it activates, so nobody should use
	// the drive: its users have to be looked for.
	Disturbs bool `json:"disturbs"`
}

// planner is what Plan works with.
type planner struct {
	s      State
	w      Want
	image  *Image
	o      Options
	quirks quirks
	p      Planned
}

// Plan says how to get from a state to a want. It is pure: image is what
// LoadImage gave for Want.Image, nil without one.
func Plan(s State, w Want, image *Image, o Options) (Planned, error) {
	if err := w.Validate(); err != nil {
		return Planned{}, err
	}
	if w.Image != "" && image == nil {
		return Planned{}, fmt.Errorf("firmware: the image %s was not looked at", w.Image)
	}
	pl := &planner{s: s, w: w, image: image, o: o, quirks: s.gathered(), p: Planned{Steps: []txn.Step{}, Revision: w.Revision}}
	for _, q := range s.Quirks() {
		pl.note("known of this model: %s (%s)", q.Text, q.Source)
	}
	if done := pl.already(); done {
		return pl.p, nil
	}
	if err := pl.check(); err != nil {
		return Planned{}, err
	}
	if err := pl.load(); err != nil {
		return Planned{}, err
	}
	return pl.p, nil
}

func (pl *planner) note(format string, args ...any) {
	pl.p.Notes = append(pl.p.Notes, fmt.Sprintf(format, args...))
}

// already says that nothing is to be sent: what is wanted runs and stays, or it
// is staged and no more than that was wanted.
func (pl *planner) already() bool {
	s, w := pl.s, pl.w
	if w.Revision == "" || pl.o.Again {
		return false
	}
	revision, slot, pending := s.Pending()
	switch {
	case w.activation() == ActivateStore:
		i := slices.IndexFunc(s.Slots, func(x Slot) bool {
			return x.Revision == w.Revision && (w.Slot == 0 || w.Slot == x.Number)
		})
		if i < 0 {
			return false
		}
		pl.p.Slot = s.Slots[i].Number
		if pending && slot == pl.p.Slot {
			pl.p.Pending = ResetUnknown.stronger(pl.quirks.reset)
			pl.note("slot %d is the one to run next: a reset activates revision %s", slot, revision)
		}
	case s.Running == w.Revision && (!pending || revision == w.Revision):
		pl.p.Slot = s.Active
	case pending && revision == w.Revision && w.activation() == ActivateStage:
		pl.p.Slot, pl.p.Pending = slot, ResetUnknown.stronger(pl.quirks.reset)
		pl.note("revision %s is staged in slot %d already and runs after a reset", revision, slot)
	default:
		return false
	}
	pl.p.AlreadySo = true
	return true
}

// check refuses what cannot or must not be.
func (pl *planner) check() error {
	s, w := pl.s, pl.w
	if !s.Supported {
		return &nvmeioctl.UnsupportedError{Feature: "a firmware update", Needs: "the firmware commands (OACS bit 2)",
			Have: fmt.Sprintf("%s does not have them", s.subject())}
	}
	if pl.image != nil && w.SHA256 != "" && !strings.EqualFold(w.SHA256, pl.image.SHA256) {
		return refused("firmware image", pl.image.Path, "fetch the image again", "its sha256 is %s, wanted is %s", pl.image.SHA256, w.SHA256)
	}
	act := w.activation()
	if err := s.idle(s.subject(), act == ActivateReset || act == ActivateLive, pl.o.AcceptUnread); err != nil {
		return err
	}
	if act != ActivateLive {
		return nil
	}
	switch {
	case !s.ActivatesWithoutReset:
		return &nvmeioctl.UnsupportedError{Feature: "activation without a reset", Needs: "a drive that reports it (FRMW bit 4)",
			Have: fmt.Sprintf("%s does not; stage it instead", s.subject())}
	case pl.quirks.neverLive:
		return refused("live activation", s.subject(), "stage it and restart", "%s", pl.quirks.why)
	case !pl.quirks.live && !slices.ContainsFunc(pl.o.AllowLive, func(g string) bool { return globs(g, s.Model) }):
		return refused("live activation", s.subject(), "stage it and restart, or name the model as safe",
			"the model is on no list of those known to survive activation while they run")
	}
	return nil
}

// load makes the steps that bring the revision into place.
func (pl *planner) load() error {
	s, w := pl.s, pl.w
	p := params{Revision: w.Revision, Action: pl.action(), Reset: pl.quirks.reset, Wait: pl.activationWait(), Before: before(s)}
	if have, ok := pl.holding(); ok {
		p.Slot = have.Number
		if p.Action == nvmespec.CommitStoreActivate {
			p.Action = nvmespec.CommitActivate
		}
		if have.Active && have.Revision == s.Running {
			return pl.stay(p)
		}
	} else {
		if pl.o.Discard && w.Revision == "" {
			return refused("firmware image", s.subject(), "name the revision",
				"what another update has left can only be told from this image by the revision")
		}
		if pl.image == nil {
			return refused("firmware image", s.subject(), "give the image file",
				"no slot holds revision %s; there are %s", w.Revision, slotText(s))
		}
		slot, err := pl.choose()
		if err != nil {
			return err
		}
		p.Slot, p.Image, p.Discard = slot.Number, pl.image, pl.o.Discard
		if err := pl.fit(&p); err != nil {
			return err
		}
		pl.loses(slot)
	}
	pl.p.Slot = p.Slot
	step, err := p.step(KindUpdate, s)
	if err != nil {
		return err
	}
	pl.p.Steps = append(pl.p.Steps, step)
	return pl.after(p)
}

// stay makes what runs the one to run after the next reset as well.
func (pl *planner) stay(p params) error {
	p.Action = nvmespec.CommitActivate
	revision, slot, _ := pl.s.Pending()
	pl.note("revision %s is staged in slot %d and would run after the next reset; what runs now is made to stay", revision, slot)
	step, err := p.step(KindUpdate, pl.s)
	pl.p.Slot, pl.p.Steps = p.Slot, append(pl.p.Steps, step)
	return err
}

// after adds what follows the commit.
func (pl *planner) after(p params) error {
	strongest := ResetController.stronger(pl.quirks.reset)
	switch pl.w.activation() {
	case ActivateStore:
		switch slot, _ := pl.s.Slot(p.Slot); {
		case slot.Next && (!slot.Active || pl.s.Running != p.Revision):
			pl.p.Pending = strongest
			pl.note("slot %d is the one to run next already: a reset activates what is stored in it", p.Slot)
		case slot.Active:
			pl.note("slot %d is the one that runs: the drive goes on with revision %s, and may load what the slot holds then when it starts again", p.Slot, pl.s.Running)
		default:
			pl.note("the image is only stored: no reset activates it")
		}
	case ActivateLive:
		pl.p.Disturbs = true
		pl.note("the controller stops for up to %s while it activates", p.Wait)
	case ActivateReset:
		if strongest != ResetController {
			pl.p.Pending = strongest
			pl.note("this model needs a power cycle: the controller is not reset")
			return nil
		}
		pl.p.Disturbs = true
		a := activation{Back: 1, Revision: p.Revision, Slot: p.Slot, Wait: p.Wait, Before: p.Before}
		step, err := a.step(len(pl.p.Steps))
		if err != nil {
			return err
		}
		pl.p.Steps = append(pl.p.Steps, step)
		pl.note("the drive may ask for a power cycle instead of a controller reset; then revision %s stays in place until one", pl.s.Running)
	default:
		pl.p.Pending = strongest
		pl.note("the drive goes on with revision %s until it is reset", pl.s.Running)
	}
	return nil
}

// action is the commit action for an image that is to be stored.
func (pl *planner) action() nvmespec.CommitAction {
	switch pl.w.activation() {
	case ActivateStore:
		return nvmespec.CommitStore
	case ActivateLive:
		return nvmespec.CommitActivateNow
	}
	return nvmespec.CommitStoreActivate
}

// activationWait is how long the controller may be away when it activates: what
// it says of itself and a margin, two minutes where it says nothing.
func (pl *planner) activationWait() time.Duration {
	ms := time.Duration(pl.s.ActivationMilliseconds+pl.s.ProcessingMilliseconds) * time.Millisecond
	if ms == 0 {
		return 2 * time.Minute
	}
	return ms + 30*time.Second
}

// holding finds a slot that has the revision already.
func (pl *planner) holding() (Slot, bool) {
	if pl.w.Revision == "" || pl.o.Again || pl.w.activation() == ActivateStore {
		return Slot{}, false
	}
	// The one that runs first: going back to it loses nothing.
	for _, active := range []bool{true, false} {
		for _, slot := range pl.s.Slots {
			if slot.Revision == pl.w.Revision && slot.Active == active && (pl.w.Slot == 0 || pl.w.Slot == slot.Number) {
				return slot, true
			}
		}
	}
	return Slot{}, false
}

// choose finds the slot to store an image in (cases FW-12, FW-27): writable,
// neither running nor to run next, an empty one first. Revisions are not ordered,
// so no slot is the oldest. Where there is no such slot, the one staged is
// replaced, and on a drive with a single writable slot the one that runs.
func (pl *planner) choose() (Slot, error) {
	s := pl.s
	if s.SlotsError != "" {
		return Slot{}, refused("firmware slot", s.subject(), "", "its slots cannot be read: %s", s.SlotsError)
	}
	if pl.w.Slot != 0 {
		slot, ok := s.Slot(pl.w.Slot)
		switch {
		case !ok:
			return Slot{}, refused("firmware slot", s.subject(), "", "slot %d does not exist; there are %s", pl.w.Slot, slotText(s))
		case slot.ReadOnly:
			return Slot{}, refused("firmware slot", s.subject(), "take another slot", "slot %d is read-only", pl.w.Slot)
		}
		return slot, nil
	}
	suits := []func(Slot) bool{
		func(x Slot) bool { return !x.Active && !x.Next && x.Revision == "" },
		func(x Slot) bool { return !x.Active && !x.Next },
		func(x Slot) bool { return !x.Active },
		func(Slot) bool { return true },
	}
	for _, suit := range suits {
		for _, slot := range s.Slots {
			if !slot.ReadOnly && suit(slot) {
				return slot, nil
			}
		}
	}
	return Slot{}, &nvmeioctl.UnsupportedError{Feature: "a firmware update", Needs: "a writable slot",
		Have: fmt.Sprintf("%s has %s", s.subject(), slotText(s))}
}

// loses says what storing into a slot loses.
func (pl *planner) loses(slot Slot) {
	if slot.Revision == "" {
		return
	}
	text := fmt.Sprintf("revision %s in slot %d", slot.Revision, slot.Number)
	switch {
	case slot.Active:
		text += ", the one that runs: there is no way back but its image"
	case slot.Next:
		text += ", which was staged"
	}
	pl.p.Destroys = append(pl.p.Destroys, text)
}

// chunkMax bounds a piece where the drive does not: what every kernel passes on.
const chunkMax = 128 << 10

// fit decides how the image is cut: pieces of at most the drive's transfer limit,
// a multiple of its granularity. Where it reports no granularity, 4096 bytes are
// what every drive takes.
func (pl *planner) fit(p *params) error {
	s, size := pl.s, uint64(pl.image.SizeBytes)
	limit := uint64(chunkMax)
	if s.MaxTransferBytes != 0 {
		limit = min(limit, s.MaxTransferBytes)
	}
	granularity := uint64(s.GranularityBytes)
	switch {
	case pl.quirks.chunkBytes != 0:
		p.ChunkBytes = min(uint64(pl.quirks.chunkBytes), limit)
	case granularity == 0:
		p.ChunkBytes = min(4096, limit)
	case granularity > limit:
		p.ChunkBytes = limit
		pl.note("the drive wants pieces of %d bytes and takes transfers of at most %d", granularity, limit)
	default:
		p.ChunkBytes = limit / granularity * granularity
	}
	p.SizeBytes = size
	pad := uint64(pl.quirks.padBytes)
	if pl.o.Pad {
		pad = max(pad, granularity, 4)
	}
	if pad > 0 && size%pad != 0 {
		p.SizeBytes = (size + pad - 1) / pad * pad
		pl.note("the image is filled up with FFh from %d to %d bytes", size, p.SizeBytes)
	} else if granularity > 4 && size%granularity != 0 {
		pl.note("%d bytes are not a multiple of the drive's granularity of %d: the last piece is shorter, which a drive may refuse", size, granularity)
	}
	if p.ChunkBytes == 0 || p.ChunkBytes%4 != 0 {
		return fmt.Errorf("firmware: pieces of %d bytes are impossible on %s", p.ChunkBytes, s.subject())
	}
	pl.note("image %s: %d bytes, sha256 %s, in %d pieces of %d bytes", pl.image.Path, size, pl.image.SHA256, p.pieces(), p.ChunkBytes)
	return nil
}

// slotText lists the slots in words.
func slotText(s State) string {
	if len(s.Slots) == 0 {
		return "no slots"
	}
	var parts []string
	for _, slot := range s.Slots {
		text := fmt.Sprintf("slot %d", slot.Number)
		if slot.Revision == "" {
			text += " empty"
		} else {
			text += " with " + slot.Revision
		}
		if slot.ReadOnly {
			text += " read-only"
		}
		if slot.Active {
			text += " active"
		}
		if slot.Next {
			text += " next"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// step makes the transaction step of these parameters.
func (p params) step(kind string, s State) (txn.Step, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return txn.Step{}, err
	}
	step := txn.Step{Kind: kind, Params: raw, TimeoutMS: p.commitTimeout().Milliseconds(), UndoText: p.undoText(s)}
	what := "firmware"
	if p.Revision != "" {
		what = "firmware " + p.Revision
	}
	switch {
	case kind == KindDownload:
		step.Title = "transfer a firmware image"
	case p.Image != nil:
		step.Title = fmt.Sprintf("load %s into slot %d, %s", what, p.Slot, p.actionText())
	default:
		step.Title = fmt.Sprintf("%s: slot %d, %s", what, p.Slot, p.Action)
	}
	if p.Image != nil {
		step.Commands = append(step.Commands, p.describeDownload())
	}
	if kind != KindDownload {
		cmd, err := p.describeCommit()
		if err != nil {
			return txn.Step{}, err
		}
		step.Commands = append(step.Commands, cmd)
		if old, ok := s.Slot(p.Slot); ok && p.stores() && old.Revision != "" {
			step.Destroys = fmt.Sprintf("revision %s in slot %d", old.Revision, old.Number)
		}
	}
	return step, nil
}

func (p params) actionText() string {
	switch p.Action {
	case nvmespec.CommitStore:
		if !p.Before.slot(p.Slot).Next {
			return "not to be activated"
		}
	case nvmespec.CommitActivateNow:
		return "and activate it at once"
	}
	return "to run after the next reset"
}

// undoText says honestly what a rollback can do.
func (p params) undoText(s State) string {
	active, ok := s.Slot(s.Active)
	switch {
	case p.Action >= nvmespec.CommitBootPartition:
		return "cannot be undone: what the boot partition held is not kept"
	case p.Action == nvmespec.CommitStore && s.Next != p.Slot:
		return "not needed: nothing activates it; what the slot held before is not brought back"
	case !ok || s.Active == p.Slot && p.stores():
		return "cannot be undone: the slot of the revision that runs is overwritten"
	case p.Action == nvmespec.CommitActivateNow:
		return fmt.Sprintf("stages slot %d with revision %s again, which runs after a reset", s.Active, active.Revision)
	}
	text := fmt.Sprintf("makes slot %d with revision %s the next to run again", s.Active, active.Revision)
	if old, ok := s.Slot(p.Slot); ok && p.stores() && old.Revision != "" {
		text += fmt.Sprintf("; revision %s in slot %d is not brought back", old.Revision, p.Slot)
	}
	return text
}

// describeDownload is the downloads as one entry of a plan: the first command,
// and how the others follow.
func (p params) describeDownload() txn.Command {
	first := min(p.ChunkBytes, p.SizeBytes)
	cdw10, cdw11, _ := nvmespec.FirmwareDownloadFields{LengthBytes: first}.Dwords()
	cmd := txn.Command{
		Name: "firmware image download", Opcode: nvmespec.AdminFirmwareDownload, CDW10: cdw10, CDW11: cdw11,
		DataBytes: int(first), TimeoutMS: admin.DownloadTimeout.Milliseconds(),
	}
	cmd.DataSummary = fmt.Sprintf("sha256 %s", p.Image.SHA256)
	if n := p.pieces(); n > 1 {
		last := p.SizeBytes - (n-1)*p.ChunkBytes
		cmd.Name = fmt.Sprintf("firmware image download, %d times", n)
		cmd.DataSummary += fmt.Sprintf(", cdw11 up by 0x%x each time, the last piece %d bytes", p.ChunkBytes/4, last)
	}
	return cmd
}

func (p params) describeCommit() (txn.Command, error) {
	cmd, err := admin.CommitCommand(p.fields(), p.commitTimeout())
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("firmware commit", cmd, ""), nil
}

// PlanDownload says how to transfer an image and no more.
func PlanDownload(s State, image Image, o Options) (Planned, error) {
	pl := &planner{s: s, w: Want{Image: image.Path}, image: &image, o: o, quirks: s.gathered(), p: Planned{Steps: []txn.Step{}}}
	if err := pl.check(); err != nil {
		return Planned{}, err
	}
	p := params{Image: &image, Wait: pl.activationWait(), Before: before(s)}
	if err := pl.fit(&p); err != nil {
		return Planned{}, err
	}
	pl.note("a reset makes the controller forget it; nvop fw commit stores it")
	step, err := p.step(KindDownload, s)
	step.UndoText = "not needed: a controller forgets what is not committed at its next reset"
	pl.p.Steps = append(pl.p.Steps, step)
	return pl.p, err
}

// Commit is what a Firmware Commit is asked for.
type Commit struct {
	// Slot is 1..7. 0 chooses the slot as for an image, for actions that store;
	// what only activates has to name it.
	Slot   uint8
	Action nvmespec.CommitAction
	// BootPartition is 0 or 1, for actions 6 and 7.
	BootPartition uint8
}

// PlanCommit says how to store or activate what is downloaded or in a slot: each
// commit action as it applies (cases FW-09, FW-23, FW-29).
func PlanCommit(s State, c Commit, o Options) (Planned, error) {
	pl := &planner{s: s, w: Want{Slot: c.Slot}, o: o, quirks: s.gathered(), p: Planned{Steps: []txn.Step{}}}
	p := params{Slot: c.Slot, Action: c.Action, BootPartition: c.BootPartition, Reset: pl.quirks.reset, Wait: pl.activationWait(), Before: before(s)}
	if _, err := p.describeCommit(); err != nil {
		return Planned{}, refused("commit action", s.subject(), "take 0, 1, 2, 3, 6 or 7", "%v", err)
	}
	switch c.Action {
	case nvmespec.CommitActivateNow:
		pl.w.Activate = ActivateLive
	case nvmespec.CommitStore:
		pl.w.Activate = ActivateStore
	}
	if err := pl.check(); err != nil {
		return Planned{}, err
	}
	if p.boot() {
		pl.note("%s; which boot partition is active is read back afterwards, what it holds is not", c.Action)
		pl.p.Destroys = []string{fmt.Sprintf("what boot partition %d holds, if the action replaces it", c.BootPartition)}
	} else if err := pl.commitSlot(&p); err != nil {
		return Planned{}, err
	}
	pl.p.Slot = p.Slot
	step, err := p.step(KindUpdate, s)
	if err != nil {
		return Planned{}, err
	}
	pl.p.Steps = append(pl.p.Steps, step)
	if p.boot() {
		return pl.p, nil
	}
	return pl.p, pl.after(p)
}

// commitSlot checks the slot of a commit.
func (pl *planner) commitSlot(p *params) error {
	stores := p.Action == nvmespec.CommitStore || p.Action == nvmespec.CommitStoreActivate
	switch slot, ok := pl.s.Slot(p.Slot); {
	case stores:
		chosen, err := pl.choose()
		if err != nil {
			return err
		}
		p.Slot = chosen.Number
		pl.loses(chosen)
	case p.Slot == 0:
		return refused("firmware slot", pl.s.subject(), "name the slot", "an action that activates what is there has to name its slot; there are %s", slotText(pl.s))
	case !ok || slot.Revision == "":
		return refused("firmware slot", pl.s.subject(), "", "slot %d holds nothing; there are %s", p.Slot, slotText(pl.s))
	case p.Action == nvmespec.CommitActivate:
		p.Revision, pl.p.Revision = slot.Revision, slot.Revision
		if slot.Active && slot.Revision == pl.s.Running && (pl.s.Next == 0 || pl.s.Next == slot.Number) {
			pl.note("slot %d runs already", slot.Number)
		}
	}
	return nil
}
