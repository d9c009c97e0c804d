package firmware

import (
	"nvop/namespace/txn"
)

// Options are what a caller may allow a plan.
type Options struct {
	// AllowLive are globs of models that may be activated live besides those of
	// the table of quirks.
	AllowLive []string
	// AllowSame sends an image although the drive runs its revision already.
	AllowSame bool
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

// Plan says how to get from a state to a want. It is pure: image is what
// LoadImage gave for Want.Image, nil without one.
func Plan(s State, w Want, image *Image, o Options) (Planned, error) {
	if err := w.Validate(); err != nil {
		return Planned{}, err
	}
	if s.Running == w.Revision {
		return Planned{AlreadySo: true, Revision: s.Running, Slot: s.Active}, nil
	}
	return Planned{}, refused("firmware", s.subject(), "", "planning firmware is not built yet")
}
