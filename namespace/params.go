package namespace

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
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

// createCommand creates a namespace like n.
func createCommand(n Namespace) (*nvmeioctl.Command, error) {
	return admin.CreateNamespaceCommand(nvmespec.NamespaceCreate{
		SizeBlocks: n.SizeBlocks, CapacityBlocks: n.CapacityBlocks,
		FormatIndex: n.Format.Index, MetadataExtended: nvmespec.FLBAS(n.FLBAS).MetadataExtended(),
		Protection: protection(n.Protection), Shared: n.Shared(),
		ANAGroupID: n.ANAGroupID, NVMSetID: n.NVMSetID, EnduranceGroupID: n.EnduranceGroupID,
	}, admin.NamespaceTimeout)
}

func formatCommand(p formatParams) (*nvmeioctl.Command, error) {
	return admin.FormatCommand(p.NSID, nvmespec.FormatFields{
		FormatIndex: p.Format.Index, MetadataExtended: nvmespec.FLBAS(p.FLBAS).MetadataExtended(),
		Protection: protection(p.Protection), Erase: p.Erase,
	}, p.timeout())
}

// protection reads the DPS byte.
func protection(dps uint8) nvmespec.Protection {
	return nvmespec.Protection{Type: dps & 7, First: dps&8 != 0}
}

// describeCreate and its like are commands as data, with what the buffer says.
func describeCreate(n Namespace) (txn.Command, error) {
	cmd, err := createCommand(n)
	if err != nil {
		return txn.Command{}, err
	}
	data := fmt.Sprintf("nsze=%d ncap=%d flbas=0x%02x dps=0x%02x nmic=0x%02x anagrpid=%d nvmsetid=%d endgid=%d",
		n.SizeBlocks, n.CapacityBlocks, n.FLBAS, n.Protection, n.NMIC&1, n.ANAGroupID, n.NVMSetID, n.EnduranceGroupID)
	return txn.DescribeCommand("namespace management: create", cmd, data), nil
}

func describeDelete(nsid uint32) (txn.Command, error) {
	cmd, err := admin.DeleteNamespaceCommand(nsid, admin.NamespaceTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace management: delete", cmd, ""), nil
}

func describeAttach(nsid uint32, controllers []uint16) (txn.Command, error) {
	cmd, err := admin.AttachCommand(nsid, controllers, admin.AttachTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace attachment: attach", cmd, "controllers="+controllerText(controllers)), nil
}

func describeDetach(nsid uint32, controllers []uint16) (txn.Command, error) {
	cmd, err := admin.DetachCommand(nsid, controllers, admin.AttachTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace attachment: detach", cmd, "controllers="+controllerText(controllers)), nil
}

// describeAttachLater is an attachment of a namespace that a step creates.
func describeAttachLater(createdBy int, controllers []uint16) (txn.Command, error) {
	const standIn = 1 // any valid identifier: the builder refuses 0
	cmd, err := describeAttach(standIn, controllers)
	cmd.NSID, cmd.NSIDFrom = 0, fmt.Sprintf("created by step %d", createdBy+1)
	return cmd, err
}

func describeFormat(p formatParams) (txn.Command, error) {
	cmd, err := formatCommand(p)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("format nvm", cmd, ""), nil
}

// controllerText is a list of CNTLIDs, decimal and hexadecimal: "21" alone has
// been taken for 0x21 (case NS-22).
func controllerText(ids []uint16) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("%d (0x%x)", id, id)
	}
	return strings.Join(parts, ", ")
}
