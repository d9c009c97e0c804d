package firmware

import (
	"encoding/hex"
	"fmt"
	"strings"

	"nvop/nvmeioctl"
)

// Activation says how far a firmware update goes.
type Activation string

// The kinds of activation.
const (
	// ActivateStage stores the image and lets the next reset activate it: the
	// default, also as the empty string.
	ActivateStage Activation = "stage"
	// ActivateReset stages and then resets the controller.
	ActivateReset Activation = "reset"
	// ActivateLive activates at once (commit action 3). Only for models on the
	// allow-list.
	ActivateLive Activation = "live"
	// ActivateStore stores the image in its slot and nothing more (commit action
	// 0): no reset activates it, unless that slot is the one to run next already.
	ActivateStore Activation = "store"
)

// Want is the firmware a drive must run.
type Want struct {
	// Revision is the exact revision, at most 8 characters; revisions are never
	// ordered. Empty is allowed with an image only: whatever it brings.
	Revision string `json:"revision,omitempty"`
	// Image is the path of the image file. Empty: the revision must be in a slot.
	Image string `json:"image,omitempty"`
	// SHA256 is what the image must have, 64 hexadecimal digits; empty is not
	// checked.
	SHA256 string `json:"sha256,omitempty"`
	// Slot is where to store, 1..7; 0 chooses a writable slot that neither runs
	// nor is to run, the only slot where there is one.
	Slot uint8 `json:"slot,omitempty"`
	// Activate empty is ActivateStage.
	Activate Activation `json:"activate,omitempty"`
}

// Validate says what is wrong with a want by itself.
func (w Want) Validate() error {
	switch {
	case w.Revision == "" && w.Image == "":
		return fmt.Errorf("firmware: neither a revision nor an image is given")
	case len(w.Revision) > 8 || strings.TrimSpace(w.Revision) != w.Revision:
		return fmt.Errorf("firmware: revision %q is not 1 to 8 characters without surrounding blanks", w.Revision)
	case w.Slot > 7:
		return fmt.Errorf("firmware: slot %d, 1 to 7 are possible", w.Slot)
	case w.SHA256 != "" && w.Image == "":
		return fmt.Errorf("firmware: a sha256 without an image")
	}
	for _, c := range []byte(w.Revision) {
		if c < 0x20 || c > 0x7E {
			return fmt.Errorf("firmware: revision %q has a character that no revision has", w.Revision)
		}
	}
	if b, err := hex.DecodeString(w.SHA256); err != nil || w.SHA256 != "" && len(b) != 32 {
		return fmt.Errorf("firmware: sha256 %q is not 64 hexadecimal digits", w.SHA256)
	}
	switch w.Activate {
	case "", ActivateStage, ActivateReset, ActivateLive, ActivateStore:
		return nil
	}
	return fmt.Errorf("firmware: activate %q; stage, reset, live or store are possible", w.Activate)
}

// activation is the kind of activation, the default made explicit.
func (w Want) activation() Activation {
	if w.Activate == "" {
		return ActivateStage
	}
	return w.Activate
}

// refused is a safety check that said no.
func refused(check, subject, remedy, format string, args ...any) error {
	return &nvmeioctl.RefusedError{Check: check, Subject: subject, Remedy: remedy, Reason: fmt.Sprintf(format, args...)}
}
