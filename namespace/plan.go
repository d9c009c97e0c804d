package namespace

import (
	"encoding/json"
	"fmt"
	"strings"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// PlanSchema names the JSON form of a Plan.
const PlanSchema = "nvop.plan/1"

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
	// OverProvisioning is what the plan leaves, both definitions; nil where
	// the drive reports no total capacity.
	OverProvisioning *OverProvisioning `json:"over_provisioning,omitempty"`
	// Pending is the reset that the drive waits for after the plan, for its new
	// firmware to run; empty for none.
	Pending firmware.ResetKind `json:"pending_reset,omitempty"`
	// JudgedOnly are fields that are not as wanted and that no step can set: an
	// audit finds them still.
	JudgedOnly []string `json:"judged_only,omitempty"`
	// Reads are the features that the plan depends on.
	Reads FeatureNeed `json:"reads,omitzero"`
	// Inventory is what was planned from; drift is measured against it.
	Inventory Inventory `json:"inventory"`
}

// OverProvisioning is spare capacity in both definitions, rounded to
// hundredths of a percent.
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

// AsWanted says that there is nothing to do, and nothing that no step could do.
func (p Plan) AsWanted() bool { return p.AlreadySo() && len(p.JudgedOnly) == 0 }

// Standing says in words how a drive stands for which there is nothing to do.
func (p Plan) Standing() string {
	switch {
	case p.Pending != firmware.ResetNone:
		return fmt.Sprintf("reset pending (%s)", p.Pending.Remedy())
	case len(p.JudgedOnly) > 0:
		return "nothing to change, but not as wanted: " + strings.Join(p.JudgedOnly, ", ") + " (judged by an audit only)"
	}
	return "already so"
}

// Transaction is the plan as txn carries it out.
func (p Plan) Transaction() (txn.Transaction, error) {
	inventory, err := json.Marshal(p.Inventory)
	if err != nil {
		return txn.Transaction{}, fmt.Errorf("encode the inventory: %w", err)
	}
	return txn.Transaction{Title: p.Title, Address: p.Address, Identity: p.Identity, Steps: p.Steps, Inventory: inventory}, nil
}

// Text is the plan for people, several lines, the last one ended too.
func (p Plan) Text() string {
	var b strings.Builder
	id := p.Identity
	fmt.Fprintf(&b, "%s\ndrive: %s, %s, serial %s, controller %d\n", p.Title, p.Address, id.Model, id.Serial, id.CNTLID)
	writeNamespaces(&b, "now", p.Before)
	if p.AlreadySo() {
		fmt.Fprintf(&b, "%s: nothing to do\n", p.Standing())
	} else {
		writeNamespaces(&b, "then", p.After)
	}
	if op := p.OverProvisioning; op != nil {
		fmt.Fprintf(&b, "over-provisioning then: %s %% of the user capacity, %s %% of the total of %s\n",
			op.OfUserPercent, op.OfTotalPercent, Bytes(op.TotalBytes))
	}
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "step %d: %s\n", step.Index+1, step.Title)
		for _, cmd := range step.Commands {
			fmt.Fprintf(&b, "  %s\n", cmd)
		}
		if step.Destroys != "" {
			fmt.Fprintf(&b, "  destroys: %s\n", step.Destroys)
		}
		fmt.Fprintf(&b, "  undo: %s\n", step.UndoText)
	}
	if len(p.JudgedOnly) > 0 && !p.AlreadySo() {
		fmt.Fprintf(&b, "not as wanted afterwards either, judged by an audit only: %s\n", strings.Join(p.JudgedOnly, ", "))
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.String()
}

func writeNamespaces(b *strings.Builder, when string, all []Namespace) {
	if len(all) == 0 {
		fmt.Fprintf(b, "%s: no namespaces\n", when)
	}
	for _, n := range all {
		fmt.Fprintf(b, "%s: %s\n", when, n)
	}
}

// String is the namespace in one line.
func (n Namespace) String() string {
	name := fmt.Sprintf("namespace %d", n.NSID)
	if n.NSID == 0 {
		name = "new namespace"
	}
	if n.Error != "" {
		return name + ": " + n.Error
	}
	where := "attached to no controller"
	if len(n.Controllers) > 0 {
		where = "attached to controller " + controllerText(n.Controllers)
	}
	shared := "private"
	if n.Shared() {
		shared = "shared"
	}
	return fmt.Sprintf("%s: %s blocks of %s, %s, %s, %s", name, grouped(n.SizeBlocks), n.Format, Bytes(n.SizeBytes()), shared, where)
}

// Selector is what a format is chosen by.
func (f LBAFormat) Selector() FormatSelector {
	return FormatSelector{DataBytes: f.DataBytes, MetadataBytes: f.MetadataBytes}
}

// String is "4096" or "512+8".
func (f LBAFormat) String() string { return f.Selector().String() }

// SizeBytes is NSZE times the LBA data size: what the user has. It stays at the
// largest 64-bit number where a drive reports nonsense.
func (n Namespace) SizeBytes() uint64 { return mulCapped(n.SizeBlocks, uint64(n.Format.DataBytes)) }

// takenBytes is what the namespace takes of the drive's capacity: NVMCAP where
// reported, which is not the size on some drives (case NS-65).
func (n Namespace) takenBytes() uint64 {
	if n.AllocatedBytes != 0 {
		return n.AllocatedBytes
	}
	return n.SizeBytes()
}

func mulCapped(a, b uint64) uint64 {
	if a != 0 && b > ^uint64(0)/a {
		return ^uint64(0)
	}
	return a * b
}

func addCapped(a, b uint64) uint64 {
	if a > ^uint64(0)-b {
		return ^uint64(0)
	}
	return a + b
}

// Options are what a caller may allow a plan.
type Options struct {
	// AllowFabrics lets capacity change on transports other than PCIe and the
	// simulator.
	AllowFabrics bool
	// AcceptCriticalWarning lets data be destroyed on a drive whose SMART log
	// shows a critical warning.
	AcceptCriticalWarning bool
	// AcceptUnread goes on although a log that says whether it is safe to (SMART,
	// sanitize, self-test, firmware slots) could not be read.
	AcceptUnread bool
	// StepDownMax is how many times a size that the drive refuses for lack of
	// capacity may be made smaller; 0 means 64. Negative means never.
	StepDownMax int
	// AcceptUnknownCapacity lets a namespace grow on a drive that does not report
	// its capacity: the old one is gone before the drive may refuse the size.
	AcceptUnknownCapacity bool
	// Images are the firmware images by path, as they were loaded.
	Images map[string]firmware.Image
}

// FormatSelector chooses an LBA format by what it is.
type FormatSelector struct {
	// DataBytes is 512, 4096, ...
	DataBytes uint32 `json:"data_bytes"`
	// MetadataBytes is usually 0, 8 or 64.
	MetadataBytes uint32 `json:"metadata_bytes"`
}

// OPTarget is one namespace with another size.
type OPTarget struct {
	// NSID is the namespace to replace; 0 means the only one there is.
	NSID uint32
	Size Size
	// Format is the LBA format; nil keeps the present one.
	Format *FormatSelector
	// Shared is NMIC bit 0; nil keeps what is there.
	Shared *bool
	// Protection is DPS; nil keeps what is there as far as the format has room.
	Protection *uint8
	// Controllers are those it is attached to; nil keeps those there are, a
	// detached namespace stays detached.
	Controllers []uint16
	// capacity is the size where it was resolved already.
	capacity *Capacity
	// Title is what the user asked for: "op set --size 6.4TB".
	Title string
}

// CreateTarget is a new namespace.
type CreateTarget struct {
	Size Size
	// Format nil means the format of the first namespace of the drive, else
	// 4096 bytes without metadata, else the first format without metadata.
	Format *FormatSelector
	// Shared sets NMIC bit 0.
	Shared bool
	// Controllers it is attached to; nil means the one that is open. An empty
	// list that is not nil leaves it detached.
	Controllers []uint16
	Title       string
}

// SecureErase is the SES field of Format NVM.
type SecureErase = nvmespec.EraseKind

// The values of SES.
const (
	EraseNone   = nvmespec.EraseNone
	EraseUser   = nvmespec.EraseUserData
	EraseCrypto = nvmespec.EraseCrypto
)

// FormatTarget is a Format NVM.
type FormatTarget struct {
	// NSID is the namespace; 0 means the only one, 0xFFFFFFFF all.
	NSID uint32
	// Format nil keeps the present one.
	Format *FormatSelector
	// Protection is DPS; nil keeps what is there as far as the format has room.
	Protection *uint8
	Erase      SecureErase
	Title      string
}
