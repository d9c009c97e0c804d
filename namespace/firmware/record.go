package firmware

import (
	"encoding/json"
	"fmt"
	"strings"

	"nvop/namespace/txn"
	"nvop/nvmeioctl/nvmespec"
)

// Phase is where a firmware image is.
type Phase string

// The phases of an image.
const (
	// PhaseAbsent: no slot holds it.
	PhaseAbsent Phase = "absent"
	// PhaseDownloaded: transferred to the controller and lost at a reset.
	PhaseDownloaded Phase = "downloaded"
	// PhaseStored: in a slot, and nothing activates it.
	PhaseStored Phase = "stored"
	// PhaseStaged: in a slot, and runs after a reset.
	PhaseStaged Phase = "staged"
	// PhaseActive: it runs.
	PhaseActive Phase = "active"
	// PhaseFailed: it should run and does not.
	PhaseFailed Phase = "failed"
)

// Record is what a step left, kept in the journal as the step's outcome.
type Record struct {
	Phase Phase `json:"phase"`
	// Revision is what is meant to run, and Slot where it lies.
	Revision string `json:"revision"`
	Slot     uint8  `json:"slot"`
	// Previous is the revision that ran when the step was taken, from PreviousSlot.
	Previous     string `json:"previous_revision"`
	PreviousSlot uint8  `json:"previous_slot"`
	SHA256       string `json:"sha256,omitempty"`
	// Pending is the reset that activates it, for PhaseStaged.
	Pending ResetKind `json:"pending,omitempty"`
	// Status is the status word that the drive answered the commit with.
	Status nvmespec.Status `json:"status"`
	// NextSeen: the slot log names the slot as the next one. Some drives do not.
	NextSeen bool `json:"next_seen"`
	// Mixed: the controller reported that pieces of several images were mixed.
	Mixed bool `json:"mixed,omitempty"`
	// PowerCycles is the drive's count at that moment; nil if unknown.
	PowerCycles *uint64 `json:"power_cycles,omitempty"`
	Note        string  `json:"note,omitempty"`
}

// DecodeRecord reads a step's outcome; false when the step is none of firmware or
// left nothing.
func DecodeRecord(step txn.Step, state json.RawMessage) (Record, bool) {
	var r Record
	if !strings.HasPrefix(step.Kind, "firmware.") || len(state) == 0 || json.Unmarshal(state, &r) != nil || r.Phase == "" {
		return Record{}, false
	}
	return r, true
}

// PendingAfter says which reset the drive waits for after a transaction, from what
// its steps left (txn.Report.States, parallel to steps); ResetNone if none.
func PendingAfter(steps []txn.Step, states []json.RawMessage) ResetKind {
	pending := ResetNone
	for i, step := range steps {
		if i >= len(states) {
			break
		}
		if r, ok := DecodeRecord(step, states[i]); ok {
			pending = ResetNone
			if r.Phase == PhaseStaged {
				pending = r.Pending
			}
		}
	}
	return pending
}

// LastRecord is what the journal last says about a drive's firmware: from the
// histories of its transactions, oldest first. An undone step says nothing.
func LastRecord(histories []txn.History) (r Record, transaction string, ok bool) {
	for _, h := range histories {
		for _, out := range h.Outcomes {
			if out.StepIndex < 0 || out.StepIndex >= len(h.Transaction.Steps) || out.Result != txn.ResultDone {
				continue
			}
			step := h.Transaction.Steps[out.StepIndex]
			if out.Direction == txn.Backward && strings.HasPrefix(step.Kind, "firmware.") {
				r, ok = DecodeRecord(step, out.State)
				transaction = h.Transaction.ID
				continue
			}
			if rec, is := DecodeRecord(step, out.State); is {
				r, transaction, ok = rec, h.Transaction.ID, true
			}
		}
	}
	return r, transaction, ok
}

// RevisionOf is the revision that an image with this sum brought to the drive of
// these histories; empty where none of them loaded it.
func RevisionOf(histories []txn.History, sha256 string) string {
	revision := ""
	for _, h := range histories {
		for _, out := range h.Outcomes {
			if out.StepIndex < 0 || out.StepIndex >= len(h.Transaction.Steps) || out.Result != txn.ResultDone {
				continue
			}
			if r, ok := DecodeRecord(h.Transaction.Steps[out.StepIndex], out.State); ok && r.SHA256 == sha256 && r.Revision != "" {
				revision = r.Revision
			}
		}
	}
	return revision
}

// Judgement is what a drive makes of a record.
type Judgement struct {
	Phase Phase `json:"phase"`
	// Pending is the reset it waits for, for PhaseStaged.
	Pending ResetKind `json:"pending,omitempty"`
	Text    string    `json:"text"`
	Remedy  string    `json:"remedy,omitempty"`
}

// Judge compares a record with the drive: what was staged may run by now, wait
// still, or have failed. Revisions are compared as they are.
func Judge(r Record, s State) Judgement {
	slot, known := s.Slot(r.Slot)
	holds := known && slot.Revision == r.Revision
	switch {
	case r.Phase == PhaseDownloaded:
		return Judgement{Phase: PhaseDownloaded, Text: "an image was transferred and not committed; a controller does not tell whether it still has it",
			Remedy: "transfer it again and commit it"}
	case s.Running == r.Revision && r.Phase != PhaseStored && (!known || s.Active == 0 || s.Active == r.Slot):
		return Judgement{Phase: PhaseActive, Text: fmt.Sprintf("revision %s runs from slot %d", r.Revision, r.Slot)}
	case s.Running == r.Revision && r.Phase != PhaseStored:
		return Judgement{Phase: PhaseActive, Text: fmt.Sprintf("revision %s runs, from slot %d and not %d", r.Revision, s.Active, r.Slot)}
	case holds && s.Active == r.Slot && r.PreviousSlot != r.Slot && r.Phase != PhaseStored:
		return Judgement{Phase: PhaseActive, Text: fmt.Sprintf("slot %d with revision %s runs; the controller itself names revision %s", r.Slot, r.Revision, s.Running)}
	case !known && s.SlotsError != "":
		return Judgement{Phase: PhaseFailed, Text: "the slots cannot be read: " + s.SlotsError}
	case !holds:
		return Judgement{Phase: PhaseFailed, Remedy: "load the image again",
			Text: fmt.Sprintf("slot %d should hold revision %s and holds %q; revision %s runs", r.Slot, r.Revision, slot.Revision, s.Running)}
	case r.Phase == PhaseStored:
		return judgeStored(r, s)
	case r.Phase == PhaseFailed:
		return Judgement{Phase: PhaseFailed, Text: fmt.Sprintf("revision %s should run and revision %s runs", r.Revision, s.Running)}
	case r.Phase == PhaseActive:
		return Judgement{Phase: PhaseFailed, Text: fmt.Sprintf("revision %s ran and revision %s runs now", r.Revision, s.Running)}
	}
	return judgeStaged(r, s)
}

// judgeStored tells an image that lies in its slot from one that runs next, or runs
// by now, by what was done since.
func judgeStored(r Record, s State) Judgement {
	_, next, pending := s.Pending()
	switch {
	case pending && next == r.Slot:
		return Judgement{Phase: PhaseStaged, Pending: ResetUnknown, Remedy: ResetUnknown.Remedy(),
			Text: fmt.Sprintf("revision %s was only stored, but slot %d is the one to run next: a reset activates it; revision %s runs", r.Revision, r.Slot, s.Running)}
	case s.Active == r.Slot && s.Running == r.Revision:
		return Judgement{Phase: PhaseActive, Text: fmt.Sprintf("revision %s was only stored, and runs from slot %d", r.Revision, r.Slot)}
	case s.Active == r.Slot:
		return Judgement{Phase: PhaseStored,
			Text: fmt.Sprintf("revision %s is in slot %d, from which revision %s runs; the drive may load it when it starts again", r.Revision, r.Slot, s.Running)}
	}
	return Judgement{Phase: PhaseStored, Text: fmt.Sprintf("revision %s is in slot %d, and nothing activates it", r.Revision, r.Slot)}
}

// judgeStaged tells a slot that still waits from one that was passed over (cases
// FW-05, FW-07).
func judgeStaged(r Record, s State) Judgement {
	cycled := r.PowerCycles != nil && s.PowerCycles != nil && *s.PowerCycles > *r.PowerCycles
	switch {
	case s.Next == r.Slot && !cycled:
		return Judgement{Phase: PhaseStaged, Pending: r.Pending, Remedy: r.Pending.Remedy(),
			Text: fmt.Sprintf("revision %s is staged in slot %d; revision %s runs until a %s", r.Revision, r.Slot, s.Running, r.Pending.what())}
	case s.Next == r.Slot:
		return Judgement{Phase: PhaseFailed, Remedy: "ask the drive's maker; commit the slot again to try once more",
			Text: fmt.Sprintf("revision %s is still only staged in slot %d after a power cycle; revision %s runs", r.Revision, r.Slot, s.Running)}
	case s.Next != 0 && s.Next != s.Active:
		return Judgement{Phase: PhaseFailed, Remedy: fmt.Sprintf("commit slot %d again", r.Slot),
			Text: fmt.Sprintf("slot %d runs next and not slot %d with revision %s", s.Next, r.Slot, r.Revision)}
	case !r.NextSeen && !cycled:
		return Judgement{Phase: PhaseStaged, Pending: r.Pending, Remedy: r.Pending.Remedy(),
			Text: fmt.Sprintf("revision %s is in slot %d; the drive does not tell which slot runs next; revision %s runs", r.Revision, r.Slot, s.Running)}
	}
	return Judgement{Phase: PhaseFailed, Remedy: fmt.Sprintf("commit slot %d again, or ask the drive's maker", r.Slot),
		Text: fmt.Sprintf("the drive no longer waits for slot %d and still runs revision %s: revision %s was not activated", r.Slot, s.Running, r.Revision)}
}

// what is the reset in words.
func (k ResetKind) what() string {
	switch k {
	case ResetController:
		return "controller reset"
	case ResetSubsystem:
		return "subsystem reset or power cycle"
	case ResetConventional:
		return "power cycle"
	}
	return "reset"
}
