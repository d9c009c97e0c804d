package firmware

import (
	"path"
	"strings"
)

// Quirk is what some drives need or do beside the specification.
type Quirk struct {
	// VendorID is the PCI vendor, 0 for any. Model is a glob over the model
	// number, empty for any of the vendor.
	VendorID uint16 `json:"vendor_id,omitempty"`
	Model    string `json:"model,omitempty"`
	// ChunkBytes is the only length of a piece the drive takes; 0 is no quirk.
	ChunkBytes uint32 `json:"chunk_bytes,omitempty"`
	// PadBytes: the image is filled up with FFh to a multiple of this; 0 is no
	// quirk.
	PadBytes uint32 `json:"pad_bytes,omitempty"`
	// Reset is a stronger reset than the drive asks for.
	Reset ResetKind `json:"reset,omitempty"`
	// NeverLive: activation without reset has killed such drives.
	NeverLive bool `json:"never_live,omitempty"`
	// LiveAllowed: activation without reset has been seen to work.
	LiveAllowed bool `json:"live_allowed,omitempty"`
	// Text says what it is about; Source where it is known from.
	Text   string `json:"text"`
	Source string `json:"source"`
}

// Quirks is the table of quirks.
//
// No drive is on the allow-list for live activation: nobody has published a
// model on which it is known to be safe, and one on which it was not.
func Quirks() []Quirk {
	return []Quirk{
		{
			VendorID: 0x1987, ChunkBytes: 4096, PadBytes: 4096, Reset: ResetConventional,
			Text:   "Phison controllers take pieces of one length only, and run a new image after a power cycle",
			Source: "fwupd plugins/nvme/nvme.quirk (force-align, needs-shutdown)",
		},
		{
			VendorID: 0x1344, Model: "Micron_7450*", NeverLive: true,
			Text:   "boot drives died when a new revision was activated while they ran",
			Source: "github.com/ceph/ceph-cm-ansible/pull/866",
		},
		{
			VendorID: 0x1344, Model: "Micron MTFDKBA*", Reset: ResetConventional,
			Text:   "did not come back from a warm restart after an update, and did after a power cycle",
			Source: "github.com/fwupd/firmware-lenovo/issues/526",
		},
		{
			VendorID: 0x1C5C, Model: "*HGP31*",
			Text:   "the commit has been answered with success and the revision stayed the same after a reboot",
			Source: "github.com/linux-nvme/nvme-cli/issues/2576",
		},
		{
			VendorID: 0x025E,
			Text:     "PCIe 5 models do not answer for a while after a commit that activates at once",
			Source:   "github.com/linux-nvme/nvme-cli/issues/3396",
		},
		{
			VendorID: 0x15B7, Model: "*SN520*",
			Text:   "commits of images of other sellers are answered with a command sequence error or an internal error",
			Source: "github.com/linux-nvme/nvme-cli/issues/837",
		},
	}
}

// Applies says that the quirk is one of this drive's.
func (q Quirk) Applies(vendorID uint16, model string) bool {
	if q.VendorID != 0 && q.VendorID != vendorID {
		return false
	}
	return q.Model == "" || globs(q.Model, model)
}

// Quirks are those of the drive.
func (s State) Quirks() []Quirk {
	var list []Quirk
	for _, q := range Quirks() {
		if q.Applies(s.VendorID, s.Model) {
			list = append(list, q)
		}
	}
	return list
}

// globs matches a model number against a glob. A model may hold a slash, which
// means nothing here.
func globs(pattern, model string) bool {
	flat := strings.NewReplacer("/", "_")
	ok, err := path.Match(flat.Replace(pattern), flat.Replace(strings.TrimSpace(model)))
	return err == nil && ok
}

// quirks is what the drive's quirks ask for, taken together.
type quirks struct {
	chunkBytes, padBytes uint32
	reset                ResetKind
	neverLive, live      bool
	why                  string
}

func (s State) gathered() quirks {
	var g quirks
	for _, q := range s.Quirks() {
		if q.ChunkBytes != 0 {
			g.chunkBytes = q.ChunkBytes
		}
		if q.PadBytes != 0 {
			g.padBytes = q.PadBytes
		}
		g.reset = g.reset.stronger(q.Reset)
		if q.NeverLive {
			g.neverLive, g.why = true, q.Text+" ("+q.Source+")"
		}
		g.live = g.live || q.LiveAllowed
	}
	return g
}

// stronger is the stronger of two kinds of reset.
func (k ResetKind) stronger(other ResetKind) ResetKind {
	rank := func(k ResetKind) int {
		switch k {
		case ResetNone:
			return 0
		case ResetController:
			return 1
		case ResetUnknown:
			return 2
		case ResetSubsystem:
			return 3
		}
		return 4
	}
	if rank(other) > rank(k) {
		return other
	}
	return k
}
