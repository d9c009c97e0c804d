package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

type powerCmd struct {
	List powerListCmd `cmd:"" help:"Show the power states, the one in use, autonomous transitions and the vendor's limit."`
	Set  powerSetCmd  `cmd:"" help:"Change the power state, the workload hint, the vendor's limit or autonomous transitions."`
}

type powerListCmd struct {
	driveArg
	traceFlag
}

func (powerListCmd) Help() string { return "Example: nvop power list /dev/nvme0" }

// powerStateInfo is a power state with its number and what it is in use for.
type powerStateInfo struct {
	State uint8 `json:"power_state"`
	nvmespec.PowerState
	Current bool `json:"current"`
	Saved   bool `json:"saved"`
}

// apstInfo is the table of autonomous transitions.
type apstInfo struct {
	Enabled bool `json:"enabled"`
	// Transits: an idle drive will change its power state by itself. Drives report
	// the feature enabled over an empty table: that is never.
	Transits    bool             `json:"transits"`
	Transitions []apstTransition `json:"transitions"`
}

type apstTransition struct {
	From             uint8  `json:"from_power_state"`
	To               uint8  `json:"to_power_state"`
	IdleMilliseconds uint32 `json:"idle_milliseconds"`
}

// vendorPower is a vendor's limit as it is set.
type vendorPower struct {
	admin.VendorPowerLimit
	Setting admin.Setting `json:"setting"`
	// Power is the published meaning of the present value; nil where none is.
	Power *nvmespec.Microwatts `json:"power_microwatts,omitempty"`
}

type powerResult struct {
	Schema  string           `json:"schema"`
	Address string           `json:"address"`
	Serial  string           `json:"serial"`
	Model   string           `json:"model"`
	States  []powerStateInfo `json:"power_states"`
	// Setting is feature 02h as it stands, Current its meaning.
	Setting admin.Setting            `json:"setting"`
	Current nvmespec.PowerManagement `json:"current"`
	// APST are the autonomous transitions now, APSTSaved after a reset; nil where
	// the drive has none.
	APST      *apstInfo `json:"apst,omitempty"`
	APSTSaved *apstInfo `json:"apst_saved,omitempty"`
	// VendorLimit is the vendor's own limit; nil where none is known.
	VendorLimit *vendorPower `json:"vendor_limit,omitempty"`
	// IntervalPowerRaw is bytes 243:240 of the SMART log as they stand; 0 is not
	// reported.
	IntervalPowerRaw uint32   `json:"interval_power_raw"`
	Notes            []string `json:"notes"`
	Problems         []string `json:"problems"`
}

func (r powerResult) Text(p *render.Page) {
	p.Line("power of %s (%s), serial number %s: state %d in use, workload hint %s", r.Address, strings.TrimSpace(r.Model), r.Serial,
		r.Current.State, workloadText(r.Current.Workload))
	var rows [][]string
	for _, s := range r.States {
		var marks []string
		for _, m := range []struct {
			on   bool
			text string
		}{{s.Current, "in use"}, {s.Saved && r.Setting.SavedDiffers(), "after a reset"}, {s.NonOperational, "non-operational"}} {
			if m.on {
				marks = append(marks, m.text)
			}
		}
		rows = append(rows, []string{fmt.Sprint(s.State), wattsText(s.MaxPower), optPower(s.ActivePower) + activeWorkloadText(s.ActiveWorkload),
			optPower(s.IdlePower), microsText(s.EntryMicroseconds), microsText(s.ExitMicroseconds),
			fmt.Sprintf("%d/%d", s.ReadThroughputRank, s.ReadLatencyRank), fmt.Sprintf("%d/%d", s.WriteThroughputRank, s.WriteLatencyRank),
			strings.Join(marks, ", ")})
	}
	p.Grid([]string{">state", ">max", ">active", ">idle", ">entry", ">exit", ">read rank", ">write rank", ""}, rows)
	if v := r.VendorLimit; v != nil {
		p.Line("%s (feature 0x%02x): value %d%s", v.Name, uint8(v.Feature), v.Setting.Current.Dword&v.Mask, vendorPowerText(v))
		p.Line("  source: %s", v.Source)
	}
	r.apstText(p, "autonomous transitions", r.APST)
	r.apstText(p, "autonomous transitions after a reset", r.APSTSaved)
	for _, n := range r.Notes {
		p.Line("  note: %s", n)
	}
	for _, n := range r.Problems {
		p.Line("  not read: %s", n)
	}
}

func (r powerResult) apstText(p *render.Page, name string, a *apstInfo) {
	switch {
	case a == nil:
		return
	case !a.Transits:
		p.Line("%s: never (%s, %d entries)", name, map[bool]string{true: "enabled", false: "disabled"}[a.Enabled], len(a.Transitions))
	}
	var rows [][]string
	for _, t := range a.Transitions {
		rows = append(rows, []string{fmt.Sprint(t.From), fmt.Sprint(t.To), fmt.Sprintf("%d ms", t.IdleMilliseconds)})
	}
	if len(rows) > 0 {
		p.Title("%s", name)
		p.Grid([]string{">from state", ">to state", ">after idle"}, rows)
	}
}

// wattsText is a power; 0 is not reported.
func wattsText(m nvmespec.Microwatts) string {
	if m == 0 {
		return "not reported"
	}
	return m.String()
}

func microsText(us uint32) string {
	if us == 0 {
		return "not reported"
	}
	return fmt.Sprintf("%d us", us)
}

func workloadText(w uint8) string {
	if w == 0 {
		return "none"
	}
	return fmt.Sprintf("#%d", w)
}

func activeWorkloadText(w uint8) string {
	if w == 0 {
		return ""
	}
	return fmt.Sprintf(" (workload #%d)", w)
}

func vendorPowerText(v *vendorPower) string {
	text := ", which means nothing that is published"
	if v.Power != nil {
		text = ", a limit of " + v.Power.String()
	}
	if v.Setting.SavedDiffers() {
		text += fmt.Sprintf("; after a reset %d", v.Setting.Saved.Dword&v.Mask)
	}
	return text
}

func (c powerListCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	r, err := d.readPower(ctx)
	if err != nil {
		return err
	}
	return a.print(r)
}

// readPower reads everything about a drive's power. What cannot be read is in
// the result.
func (d *drive) readPower(ctx context.Context) (powerResult, error) {
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return powerResult{}, err
	}
	r := powerResult{
		Schema: "nvop.power/1", Address: d.address, Serial: ctrl.SerialNumber, Model: ctrl.ModelNumber,
		States: []powerStateInfo{}, Notes: []string{}, Problems: []string{},
	}
	if r.Setting, err = admin.ReadSetting(ctx, d.dev, ctrl, nvmespec.FeaturePowerManagement); err != nil {
		return r, err
	}
	r.Current = nvmespec.DecodePowerManagement(r.Setting.Current.Dword)
	for i, s := range ctrl.PowerStates {
		info := powerStateInfo{State: uint8(i), PowerState: s, Current: int(r.Current.State) == i}
		if v := r.Setting.Saved; v != nil {
			info.Saved = int(nvmespec.DecodePowerManagement(v.Dword).State) == i
		}
		r.States = append(r.States, info)
	}
	d.readVendorLimit(ctx, ctrl, &r)
	d.readAPST(ctx, ctrl, &r)
	if smart, err := admin.SMARTLog(ctx, d.dev, nvmespec.BroadcastNSID); err == nil {
		r.IntervalPowerRaw = smart.IntervalPowerRaw
	}
	if int(r.Current.State) < len(ctrl.PowerStates) && ctrl.PowerStates[r.Current.State].NonOperational {
		r.Notes = append(r.Notes, "a non-operational state is a hint: the drive leaves it for any command, and may ignore it")
	}
	return r, nil
}

func (d *drive) readVendorLimit(ctx context.Context, ctrl nvmespec.Controller, r *powerResult) {
	limit, ok := admin.LookupVendorPowerLimit(ctrl.VendorID)
	if !ok {
		return
	}
	s, err := admin.ReadSetting(ctx, d.dev, ctrl, limit.Feature)
	if err != nil {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", limit.Name, err))
		return
	}
	v := &vendorPower{VendorPowerLimit: limit, Setting: s}
	if w, ok := limit.Power(s.Current.Dword); ok {
		v.Power = &w
	}
	r.VendorLimit = v
	r.Notes = append(r.Notes, "drives of this vendor take their power limit from this feature and not from the power state alone: look at both")
}

func (d *drive) readAPST(ctx context.Context, ctrl nvmespec.Controller, r *powerResult) {
	if !ctrl.APST {
		return
	}
	s, err := admin.ReadSetting(ctx, d.dev, ctrl, nvmespec.FeatureAPST)
	if err != nil {
		r.Problems = append(r.Problems, fmt.Sprintf("autonomous transitions: %v", err))
		return
	}
	now, err := nvmespec.DecodeAPST(s.Current.Dword, s.Current.Data)
	if err != nil {
		r.Problems = append(r.Problems, fmt.Sprintf("autonomous transitions: %v", err))
		return
	}
	r.APST = newAPSTInfo(now)
	if s.SavedDiffers() {
		if saved, err := nvmespec.DecodeAPST(s.Saved.Dword, s.Saved.Data); err == nil {
			r.APSTSaved = newAPSTInfo(saved)
		}
	}
	r.Notes = append(r.Notes, d.kernelAPST()...)
}

func newAPSTInfo(a nvmespec.APST) *apstInfo {
	info := &apstInfo{Enabled: a.Enabled, Transits: a.Transits(), Transitions: []apstTransition{}}
	for from, t := range a.Transitions {
		if t.Target != 0 || t.IdleMilliseconds != 0 {
			info.Transitions = append(info.Transitions, apstTransition{uint8(from), t.Target, t.IdleMilliseconds})
		}
	}
	return info
}

// kernelAPST says what the kernel's driver does with autonomous transitions: it
// writes its own table whenever it initialises the controller, from a latency that
// may be exceeded (Linux drivers/nvme/host/core.c, nvme_configure_apst).
func (d *drive) kernelAPST() []string {
	if d.target == nil {
		return nil
	}
	text := "the kernel's driver writes its own table of transitions at every reset of the controller; nvme_core.default_ps_max_latency_us on its command line is what it goes by, and 0 keeps it from it"
	for _, c := range d.target.Controllers {
		path := filepath.Join(d.host.Root, "/sys/class/nvme", c.Name, "power/pm_qos_latency_tolerance_us")
		if b, err := os.ReadFile(path); err == nil {
			text += fmt.Sprintf("; for %s it is %s us", c.Name, strings.TrimSpace(string(b)))
		}
	}
	return []string{text}
}
