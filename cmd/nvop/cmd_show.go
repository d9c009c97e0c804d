package main

import (
	"context"
	"errors"
	"slices"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/namespace"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/inuse"
	"nvop/nvmeioctl/nvmespec"
)

type showCmd struct {
	driveArg
	traceFlag
}

func (showCmd) Help() string {
	return "Reads a drive and shows what a reviewer would put on one page. Changes nothing.\n\nExample: nvop show /dev/nvme0 -o json"
}

// showResult is one drive on a page.
type showResult struct {
	Schema    string `json:"schema"`
	Address   string `json:"address"`
	Serial    string `json:"serial"`
	Model     string `json:"model"`
	Firmware  string `json:"firmware"`
	Transport string `json:"transport"`
	Subsystem string `json:"subsystem_nqn"`
	CNTLID    uint16 `json:"cntlid"`
	VendorID  uint16 `json:"vendor_id"`
	Version   string `json:"nvme_version"`
	// Link is the PCIe link in use and what the drive can do.
	Link string `json:"pcie_link,omitempty"`

	TotalBytes       uint64                      `json:"total_capacity_bytes"`
	UnallocatedBytes uint64                      `json:"unallocated_capacity_bytes"`
	UserBytes        uint64                      `json:"user_capacity_bytes"`
	OverProvisioning *namespace.OverProvisioning `json:"over_provisioning,omitempty"`
	MaxNamespaces    uint32                      `json:"max_namespaces"`
	Namespaces       []namespace.Namespace       `json:"namespaces"`
	Formats          []namespace.LBAFormat       `json:"formats"`
	FirmwareSlots    *namespace.Firmware         `json:"firmware_slots,omitempty"`
	SlotCount        uint8                       `json:"firmware_slot_count"`
	Slot1ReadOnly    bool                        `json:"firmware_slot_1_read_only"`
	PowerStates      []nvmespec.PowerState       `json:"power_states"`
	PowerState       *uint8                      `json:"power_state,omitempty"`
	APST             string                      `json:"apst,omitempty"`
	WriteCache       string                      `json:"write_cache"`
	Health           *nvmespec.SMART             `json:"health,omitempty"`
	// LifetimeWAF is media bytes over host bytes since manufacture; nil where
	// the drive does not tell, with the reason beside it.
	LifetimeWAF       *float64 `json:"lifetime_waf"`
	LifetimeWAFReason string   `json:"lifetime_waf_reason,omitempty"`
	LifetimeWAFSource string   `json:"lifetime_waf_source,omitempty"`

	// Features are the settings that matter, in the words of a spec.
	Features []showFeature `json:"features"`
	// DriveWrites is how many times the user capacity was written by the host
	// since manufacture, and DriveWritesPerDay so often a day of power-on time; nil
	// where that cannot be told.
	DriveWrites       *float64 `json:"drive_writes"`
	DriveWritesPerDay *float64 `json:"drive_writes_per_day"`

	Uses     []inuse.Use         `json:"uses"`
	Problems []namespace.Problem `json:"problems,omitempty"`
}

func (c showCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	r, err := d.page(ctx)
	if err != nil {
		return err
	}
	return a.print(r)
}

// shownFields are the settings that the page shows.
func shownFields() []string {
	return []string{
		"power.state", "power.vendor_limit", "features.write_cache.enabled", "features.apst.enabled", "features.temperature_threshold.over",
		"features.temperature_threshold.under", "features.host_thermal.light", "features.host_thermal.heavy",
		"features.interrupt_coalescing.threshold", "features.interrupt_coalescing.time_us", "features.arbitration.burst_log2",
		"features.error_recovery.retry_ms", "features.timestamp.skew_seconds_max", "features.queues.submission", "features.queues.completion",
	}
}

// showFeature is one setting as a drive has it now.
type showFeature struct {
	Field string `json:"field"`
	NSID  uint32 `json:"nsid,omitempty"`
	Value string `json:"value"`
	// Saved is the value after a power cycle, where that is another one.
	Saved string `json:"saved,omitempty"`
}

// features lists what was read of the settings that a reviewer looks at.
func (r *showResult) features(inv namespace.Inventory) {
	r.Features = []showFeature{}
	for _, f := range namespace.Settings() {
		for _, reading := range inv.Features {
			if reading.Feature != f.Feature || reading.Selector != f.Selector || reading.Current == nil {
				continue
			}
			value, err := f.Read(*reading.Current, inv.TakenAt)
			if err != nil {
				continue
			}
			shown := showFeature{Field: f.Path, NSID: reading.NSID, Value: f.Format(value)}
			if reading.Saved != nil {
				if saved, err := f.Read(*reading.Saved, inv.TakenAt); err == nil && saved != value {
					shown.Saved = f.Format(saved)
				}
			}
			r.Features = append(r.Features, shown)
		}
	}
}

// endurance is what the host has written, in drive writes.
func (r *showResult) endurance() {
	if r.Health == nil || r.UserBytes == 0 {
		return
	}
	writes := r.Health.BytesWritten().Float64() / float64(r.UserBytes)
	r.DriveWrites = &writes
	if hours := r.Health.PowerOnHours.Float64(); hours >= 24 {
		perDay := writes / hours * 24
		r.DriveWritesPerDay = &perDay
	}
}

// page reads everything the page shows. Only a controller that cannot be
// identified is an error; all else that cannot be read is listed as a problem.
func (d *drive) page(ctx context.Context) (showResult, error) {
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return showResult{}, err
	}
	inv, err := d.inventoryWith(ctx, namespace.FeatureNeed{Fields: shownFields(), Saved: true})
	if err != nil {
		return showResult{}, err
	}
	r := showResult{
		Schema: "nvop.show/1", Address: d.address, Serial: ctrl.SerialNumber, Model: ctrl.ModelNumber, Firmware: ctrl.FirmwareRevision,
		Transport: d.transport, Subsystem: ctrl.SubsystemNQN, CNTLID: ctrl.ControllerID, VendorID: ctrl.VendorID,
		Version: ctrl.Version.String(), Link: d.link(), TotalBytes: inv.Controller.TotalBytes,
		UnallocatedBytes: inv.Controller.UnallocatedBytes, MaxNamespaces: inv.Controller.MaxNSID, Namespaces: nonNil(inv.Namespaces),
		Formats: nonNil(inv.Formats), FirmwareSlots: inv.Firmware, SlotCount: ctrl.FirmwareSlotCount,
		Slot1ReadOnly: ctrl.FirmwareSlot1ReadOnly, PowerStates: ctrl.PowerStates, Problems: inv.Problems,
	}
	if n := inv.Controller.MaxNamespaces; n != 0 {
		r.MaxNamespaces = n
	}
	for _, ns := range inv.Namespaces {
		r.UserBytes += ns.SizeBlocks * uint64(ns.Format.DataBytes)
	}
	r.OverProvisioning = namespace.OverProvision(r.TotalBytes, r.UserBytes)
	r.settings(ctx, d, ctrl)
	r.features(inv)
	r.wear(ctx, d)
	r.endurance()
	uses, err := d.uses(nil)
	if err != nil {
		r.Problems = append(r.Problems, namespace.Problem{What: "use of the drive", Error: err.Error()})
	}
	r.Uses = nonNil(uses)
	return r, nil
}

// settings reads the features that matter to a reader.
func (r *showResult) settings(ctx context.Context, d *drive, ctrl nvmespec.Controller) {
	problem := func(what string, err error) {
		if err != nil && !admin.IsUnsupported(err) {
			r.Problems = append(r.Problems, namespace.Problem{What: what, Error: err.Error()})
		}
	}
	ps, err := admin.PowerManagement(ctx, d.dev)
	if err == nil {
		r.PowerState = &ps.State
	}
	problem("power state", err)
	r.APST = "not supported"
	if ctrl.APST {
		apst, err := admin.APST(ctx, d.dev)
		problem("autonomous power state transitions", err)
		switch {
		case err != nil:
			r.APST = "not read"
		case apst.Transits():
			r.APST = "enabled"
		case apst.Enabled:
			r.APST = "enabled with an empty table: no transition ever"
		default:
			r.APST = "disabled"
		}
	}
	r.WriteCache = "none (no volatile write cache)"
	if ctrl.VolatileWriteCache {
		cache, err := admin.WriteCache(ctx, d.dev)
		problem("write cache", err)
		r.WriteCache = map[bool]string{true: "enabled", false: "disabled"}[cache.Enabled]
		if err != nil {
			r.WriteCache = "not read"
		}
	}
}

// wear reads health and what the counters say of the drive's whole life.
func (r *showResult) wear(ctx context.Context, d *drive) {
	smart, err := admin.SMARTLog(ctx, d.dev, nvmespec.BroadcastNSID)
	if err != nil {
		r.Problems = append(r.Problems, namespace.Problem{What: "SMART log", Error: err.Error()})
		r.LifetimeWAFReason = "not reported: the SMART log could not be read"
		return
	}
	r.Health = &smart
	waf := lifetimeWAF(ctx, d, r.Namespaces)
	if value, ok := waf.Value(); ok {
		r.LifetimeWAF, r.LifetimeWAFSource = &value, waf.Source
	}
	r.LifetimeWAFReason = waf.Reason
}

// lifetimeWAF reads the counters once. The sampler watches a namespace's format
// too, so it needs one that is attached.
func lifetimeWAF(ctx context.Context, d *drive, list []namespace.Namespace) run.WAF {
	i := slices.IndexFunc(list, func(ns namespace.Namespace) bool { return ns.Error == "" && len(ns.Controllers) > 0 })
	if i < 0 {
		return run.WAF{Reason: "not reported: no namespace is attached"}
	}
	sample, err := endurance.NewAdminSampler(d.dev, list[i].NSID).Sample(ctx)
	if err != nil {
		return run.WAF{Reason: "not reported: " + err.Error()}
	}
	return endurance.LifetimeWAF(&sample)
}

// link is the PCIe path in one line; "" where there is none.
func (d *drive) link() string {
	if d.target == nil || d.target.Controllers[0].PCIAddress == "" {
		return ""
	}
	return pcieSummary(d.host.Root, d.target.Controllers[0].PCIAddress)
}
