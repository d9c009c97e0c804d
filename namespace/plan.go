package namespace

import (
	"errors"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
)

// Plan is how to get from an inventory to a target.
type Plan struct {
	Schema   string             `json:"schema"`
	Title    string             `json:"title"`
	Address  string             `json:"address"`
	Identity nvmeioctl.Identity `json:"identity"`
	// Steps are to be carried out in order; none when the drive is already so.
	Steps []txn.Step `json:"steps"`
	// Destroys lists what is lost for good, one sentence each.
	Destroys []string `json:"destroys"`
	// Notes tell what was rounded, assumed or will change besides.
	Notes []string `json:"notes"`
	// NSIDs are the existing namespaces the plan touches.
	NSIDs []uint32 `json:"nsids"`
	// Before and After are the allocated namespaces, now and then. A namespace
	// to be created has NSID 0 where its identifier cannot be known.
	Before []Namespace `json:"before"`
	After  []Namespace `json:"after"`
	// OverProvisioning is what the plan leaves, both definitions.
	OverProvisioning *OverProvisioning `json:"over_provisioning,omitempty"`
	// Inventory is what was planned from; drift is measured against it.
	Inventory Inventory `json:"inventory"`
}

// OverProvisioning is spare capacity in both definitions, in hundredths of a
// percent, rounded down.
type OverProvisioning struct {
	TotalBytes uint64 `json:"total_bytes"`
	UserBytes  uint64 `json:"user_bytes"`
	// OfUserPercent is (total-user)/user, a decimal such as "20.00".
	OfUserPercent string `json:"of_user_percent"`
	// OfTotalPercent is (total-user)/total.
	OfTotalPercent string `json:"of_total_percent"`
}

// AlreadySo says that there is nothing to do.
func (p Plan) AlreadySo() bool { return len(p.Steps) == 0 }

// Transaction is the plan as txn carries it out.
func (p Plan) Transaction() (txn.Transaction, error) { return txn.Transaction{}, errors.New("not yet") }

// Text is the plan for people.
func (p Plan) Text() string { return "" }

// Options are what a caller may allow a plan.
type Options struct {
	// AllowFabrics lets capacity change on transports other than PCIe and the
	// simulator.
	AllowFabrics bool
	// AcceptCriticalWarning lets a drive be formatted whose SMART log shows a
	// critical warning.
	AcceptCriticalWarning bool
	// StepDownMax is how many times a size that the drive refuses for lack of
	// capacity may be made smaller; 0 means 64. Negative means never.
	StepDownMax int
}

// FormatSelector chooses an LBA format by what it is.
type FormatSelector struct {
	// DataBytes is 512, 4096, ...
	DataBytes uint32 `json:"data_bytes" yaml:"data"`
	// MetadataBytes is usually 0, 8 or 64.
	MetadataBytes uint32 `json:"metadata_bytes" yaml:"metadata"`
}

// OPTarget is one namespace with another size.
type OPTarget struct {
	// NSID is the namespace to replace; 0 means the only one there is.
	NSID uint32
	Size Size
	// Format is the LBA format; nil keeps the present one.
	Format *FormatSelector
	// Title is what the user asked for: "op set --size 6.4TB".
	Title string
}

// CreateTarget is a new namespace.
type CreateTarget struct {
	Size Size
	// Format nil means the format most namespaces of the drive have, else the
	// first 4096-byte format without metadata, else 512.
	Format *FormatSelector
	// Shared sets NMIC bit 0.
	Shared bool
	// Controllers it is attached to; nil means the one that is open. An empty
	// list that is not nil leaves it detached.
	Controllers []uint16
	Title       string
}

// SecureErase is the SES field of Format NVM.
type SecureErase uint8

// The values of SES.
const (
	EraseNone   SecureErase = 0
	EraseUser   SecureErase = 1
	EraseCrypto SecureErase = 2
)

// FormatTarget is a Format NVM.
type FormatTarget struct {
	// NSID is the namespace; 0 means the only one, 0xFFFFFFFF all.
	NSID uint32
	// Format nil keeps the present one.
	Format *FormatSelector
	Erase  SecureErase
	Title  string
}

// PlanOPSet plans a resize: the namespace is replaced by one of another size.
// Other namespaces are never touched.
func PlanOPSet(inv Inventory, t OPTarget, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanCreate plans a new namespace.
func PlanCreate(inv Inventory, t CreateTarget, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanDelete plans the deletion of the namespaces named.
func PlanDelete(inv Inventory, nsids []uint32, title string, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanAttach plans an attachment; nil controllers means the one that is open.
func PlanAttach(inv Inventory, nsid uint32, controllers []uint16, title string, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanDetach plans a detachment; nil controllers means all it is attached to.
func PlanDetach(inv Inventory, nsid uint32, controllers []uint16, title string, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanFormat plans a Format NVM.
func PlanFormat(inv Inventory, t FormatTarget, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}

// PlanSpec plans whatever the drive lacks of the spec.
func PlanSpec(inv Inventory, s Spec, o Options) (Plan, error) {
	return Plan{}, errors.New("not yet")
}
