package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl/nvmespec"
)

// Text lays the page out.
func (r showResult) Text(p *render.Page) {
	p.Line("%s  %s", r.Model, r.Address)
	p.Pairs(
		"serial", r.Serial, "firmware", r.Firmware, "vendor", fmt.Sprintf("0x%04x", r.VendorID), "NVMe", r.Version,
		"controller", fmt.Sprintf("%d (0x%x) of %s", r.CNTLID, r.CNTLID, orNone(r.Subsystem)), "transport", r.Transport, "PCIe link", r.Link,
	)
	r.capacityText(p)
	p.Title("LBA formats")
	p.Grid([]string{">index", ">data", ">metadata", "performance", "in use"}, r.formatRows())
	r.firmwareText(p)
	r.powerText(p)
	r.featureText(p)
	r.healthText(p)
	if len(r.Uses) > 0 {
		p.Title("in use")
		p.Grid([]string{"kind", "subject", "detail", "process", "can be accepted"}, useRows(r.Uses))
	}
	problems(p, r.Problems)
}

func orNone(s string) string {
	if s == "" {
		return "not reported"
	}
	return s
}

func (r showResult) capacityText(p *render.Page) {
	p.Title("capacity")
	op := ""
	if r.OverProvisioning != nil {
		op = fmt.Sprintf("%s%% of user capacity, %s%% of total", r.OverProvisioning.OfUserPercent, r.OverProvisioning.OfTotalPercent)
	}
	p.Pairs("total", sizeOrNone(r.TotalBytes), "in namespaces", render.Size(r.UserBytes), "unallocated", render.Size(r.UnallocatedBytes),
		"over-provisioning", op, "namespaces at most", fmt.Sprint(r.MaxNamespaces))
	p.Grid(namespaceHeader(), namespaceRows(r.Namespaces))
}

func (r showResult) formatRows() [][]string {
	best := uint8(255)
	for _, f := range r.Formats {
		best = min(best, f.RelativePerformance)
	}
	var rows [][]string
	for _, f := range r.Formats {
		var users []string
		for _, ns := range r.Namespaces {
			if ns.Error == "" && ns.Format.Index == f.Index {
				users = append(users, fmt.Sprintf("namespace %d", ns.NSID))
			}
		}
		perf := []string{"best", "better", "good", "degraded"}[f.RelativePerformance&3]
		if f.RelativePerformance == best && perf != "best" {
			perf += " (the best there is)"
		}
		rows = append(rows, []string{fmt.Sprint(f.Index), fmt.Sprint(f.DataBytes), fmt.Sprint(f.MetadataBytes), perf, strings.Join(users, ", ")})
	}
	return rows
}

func (r showResult) firmwareText(p *render.Page) {
	if r.FirmwareSlots == nil {
		return
	}
	p.Title("firmware slots")
	var rows [][]string
	for i := range int(r.SlotCount) {
		revision := ""
		if i < len(r.FirmwareSlots.Revisions) {
			revision = r.FirmwareSlots.Revisions[i]
		}
		var marks []string
		if i+1 == int(r.FirmwareSlots.ActiveSlot) {
			marks = append(marks, "active")
		}
		if i+1 == int(r.FirmwareSlots.NextSlot) {
			marks = append(marks, "next at reset")
		}
		if i == 0 && r.Slot1ReadOnly {
			marks = append(marks, "read-only")
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), orEmpty(revision), strings.Join(marks, ", ")})
	}
	p.Grid([]string{">slot", "revision", ""}, rows)
}

func orEmpty(s string) string {
	if s == "" {
		return "(empty)"
	}
	return s
}

func (r showResult) powerText(p *render.Page) {
	p.Title("power states")
	var rows [][]string
	for i, s := range r.PowerStates {
		var marks []string
		if r.PowerState != nil && int(*r.PowerState) == i {
			marks = append(marks, "in use")
		}
		if s.NonOperational {
			marks = append(marks, "non-operational")
		}
		limit := "not reported"
		if s.MaxPower != 0 {
			limit = s.MaxPower.String()
		}
		rows = append(rows, []string{fmt.Sprint(i), limit, optPower(s.ActivePower), optPower(s.IdlePower),
			fmt.Sprint(s.EntryMicroseconds), fmt.Sprint(s.ExitMicroseconds), strings.Join(marks, ", ")})
	}
	p.Grid([]string{">state", ">max", ">active", ">idle", ">entry us", ">exit us", ""}, rows)
	p.Pairs("autonomous transitions", r.APST, "write cache", r.WriteCache)
}

// featureText shows features in the words of a spec, a line a feature.
func (r showResult) featureText(p *render.Page) {
	if len(r.Features) == 0 {
		return
	}
	p.Title("features")
	var pairs []string
	for _, f := range r.Features {
		name := strings.TrimPrefix(f.Field, "features.")
		if name == "timestamp.skew_seconds_max" {
			name = "timestamp (seconds off)"
		}
		if f.NSID != 0 {
			name += fmt.Sprintf(" of namespace %d", f.NSID)
		}
		value := f.Value
		if f.Saved != "" {
			value += " (" + f.Saved + " after a power cycle)"
		}
		pairs = append(pairs, name, value)
	}
	p.Pairs(pairs...)
}

func (r showResult) enduranceText() string {
	if r.DriveWrites == nil {
		return ""
	}
	text := fmt.Sprintf("%.2f drive writes", *r.DriveWrites)
	if r.DriveWritesPerDay != nil {
		text += fmt.Sprintf(", %.3f a day", *r.DriveWritesPerDay)
	}
	return text
}

// warningText is the critical warning in the words of its JSON.
func warningText(w nvmespec.CriticalWarning) string {
	b, err := json.Marshal(w)
	var names []string
	if err != nil || json.Unmarshal(b, &names) != nil {
		return fmt.Sprintf("0x%02x", uint8(w))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func optPower(o nvmespec.Opt[nvmespec.Microwatts]) string {
	if v, ok := o.Get(); ok {
		return v.String()
	}
	return "-"
}

func (r showResult) healthText(p *render.Page) {
	p.Title("health")
	s := r.Health
	if s == nil {
		p.Line("  not read")
		return
	}
	temperature := "not reported"
	if c, ok := s.Temperature.Get(); ok {
		temperature = fmt.Sprintf("%d C", c)
	}
	spare := "not reported"
	if s.SpareReported() {
		spare = fmt.Sprintf("%d %% (threshold %d %%)", s.SparePercent, s.SpareThresholdPercent)
	}
	waf := r.LifetimeWAFReason
	if r.LifetimeWAF != nil {
		waf = fmt.Sprintf("%.3f (%s)", *r.LifetimeWAF, r.LifetimeWAFSource)
	}
	p.Pairs(
		"health", fmt.Sprintf("%d %% (percentage used %d %%)", 100-int(s.UsedPercent), s.UsedPercent),
		"available spare", spare, "temperature", temperature, "critical warning", warningText(s.CriticalWarning),
		"host written", nvmespec.FormatBytes(s.BytesWritten()), "host read", nvmespec.FormatBytes(s.BytesRead()),
		"endurance", r.enduranceText(), "lifetime WAF", waf, "power-on hours", render.CountBig(s.PowerOnHours.Big()), "power cycles", render.CountBig(s.PowerCycles.Big()),
		"unsafe shutdowns", render.CountBig(s.UnsafeShutdowns.Big()), "media errors", render.CountBig(s.MediaErrors.Big()),
		"error log entries", render.CountBig(s.ErrorLogEntries.Big()),
	)
}
