package namespace

import (
	"encoding/json"
	"fmt"
	"time"

	"nvop/namespace/txn"
)

// The kinds of step. They are stored in journals: never reuse one for another
// meaning.
const (
	KindDetach = "namespace.detach"
	KindDelete = "namespace.delete"
	KindCreate = "namespace.create"
	KindAttach = "namespace.attach"
	KindFormat = "namespace.format"
	KindRescan = "namespace.rescan"
)

// reference says which namespace a step is about: an NSID, or the one that an
// earlier step of the transaction creates.
type reference struct {
	NSID uint32 `json:"nsid,omitempty"`
	// CreatedBy is the index of the creating step; nil when NSID is known.
	CreatedBy *int `json:"created_by_step,omitempty"`
}

// attachmentParams are the parameters of attach and detach.
type attachmentParams struct {
	Namespace reference `json:"namespace"`
	// Geometry is what the namespace looks like; a namespace that looks
	// different is not touched.
	Geometry    Namespace `json:"geometry"`
	Controllers []uint16  `json:"controllers"`
	// DeletedBy is the step that deletes the namespace later: undoing that
	// step may bring it back under another NSID. nil for none.
	DeletedBy *int `json:"deleted_by_step,omitempty"`
	// Reformatted says that a format between makes size and format differ
	// from Geometry.
	Reformatted bool `json:"reformatted,omitempty"`
}

// deleteParams hold the whole geometry of the namespace to delete: what undo
// creates again.
type deleteParams struct {
	Geometry Namespace `json:"geometry"`
}

type createParams struct {
	Geometry Namespace `json:"geometry"`
	// StepBlocks is by how much the size shrinks when the drive refuses it for
	// lack of capacity, and FloorBlocks how far.
	StepBlocks  uint64 `json:"step_blocks"`
	FloorBlocks uint64 `json:"floor_blocks"`
}

type formatParams struct {
	// NSID is sent in the command; 0xFFFFFFFF for all.
	NSID uint32 `json:"nsid"`
	// Affected are all namespaces that change, as they were.
	Affected []Namespace `json:"affected"`
	Format   LBAFormat   `json:"format"`
	// FLBAS gives bit 4, metadata with the data; Protection is DPS.
	FLBAS      uint8       `json:"flbas"`
	Protection uint8       `json:"protection"`
	Erase      SecureErase `json:"secure_erase"`
	TimeoutMS  int64       `json:"timeout_ms"`
}

func (p formatParams) timeout() time.Duration { return time.Duration(p.TimeoutMS) * time.Millisecond }

// rescanParams say what the host should show at the end.
type rescanParams struct {
	Expect []expectation `json:"expect"`
}

type expectation struct {
	Namespace reference `json:"namespace"`
	// Geometry is nil where the namespace should be gone.
	Geometry *Namespace `json:"geometry,omitempty"`
	// Here says that the controller that is open should have it.
	Here bool `json:"here"`
}

// created is what a create step, and the undo of a delete step, leave for others.
type created struct {
	NSID       uint32 `json:"nsid"`
	SizeBlocks uint64 `json:"size_blocks"`
	NGUID      string `json:"nguid,omitempty"`
	EUI64      string `json:"eui64,omitempty"`
}

func decodeParams[T any](step txn.Step) (T, error) {
	var p T
	if err := json.Unmarshal(step.Params, &p); err != nil {
		return p, fmt.Errorf("step %d (%s): parameters: %w", step.Index+1, step.Kind, err)
	}
	return p, nil
}

func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of this package always marshal
	}
	return text
}
