package firmware

import (
	"fmt"

	"nvop/namespace/txn"
	"nvop/nvmeioctl/nvmespec"
)

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
		pl.note("%s; a boot partition is not read back", c.Action)
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
