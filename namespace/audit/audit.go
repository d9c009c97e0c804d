// Package audit judges drives by a policy: facts in, findings out. It does no
// I/O; the command line gathers the facts.
//
// What could not be read is a finding of its own and never a pass. A drive that
// passes has no findings.
package audit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nvop/namespace"
	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/pcie"
)

// Severity is how bad a finding is.
type Severity string

// The severities, worst first. Critical: the drive or its data is at risk.
// Drift: the drive is not as the policy says. Unreadable: it could not be judged.
const (
	Critical   Severity = "critical"
	Drift      Severity = "drift"
	Unreadable Severity = "unreadable"
)

// Finding is one thing an audit has to say.
type Finding struct {
	Severity Severity `json:"severity"`
	// Field is the policy's field: "features.write_cache.enabled". "match" where a
	// rule fits no drive or a drive no rule.
	Field string `json:"field"`
	// Where is the place of the field in the policy: "fleet.yaml:12:5".
	Where string `json:"where"`
	// NSID is the namespace concerned; 0 for the drive as a whole.
	NSID     uint32 `json:"nsid,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	// Remedy is a command, or what else to do; may be empty.
	Remedy string `json:"remedy,omitempty"`
}

// Facts are what is known of one drive.
type Facts struct {
	Inventory namespace.Inventory
	// Path is the drive's PCI Express path; nil where there is none or it could
	// not be read, and PathProblem says why.
	Path        *pcie.Path
	PathProblem string
	// Image is the firmware image that the spec names, nil where it was not looked
	// at; ImageProblem says why it cannot be used.
	Image        *firmware.Image
	ImageProblem string
}

// Drive is the judgement of one drive.
type Drive struct {
	Address string `json:"address"`
	Serial  string `json:"serial"`
	Model   string `json:"model"`
	// Rule is the place of the rule the drive was judged by; empty for none.
	Rule string `json:"rule,omitempty"`
	// Checked are the fields that were judged, those with findings too.
	Checked  []string  `json:"checked"`
	Findings []Finding `json:"findings"`
}

// judge collects the findings about one drive.
type judge struct {
	facts Facts
	spec  namespace.Spec
	out   Drive
	// mend is apply's command, or why apply refuses; empty until it is needed.
	mend string
}

// Judge judges a drive by a spec. Whether the spec is for the drive is the
// caller's question, see [Choose].
func Judge(f Facts, s namespace.Spec) Drive {
	inv := f.Inventory
	j := &judge{facts: f, spec: s, out: Drive{
		Address: inv.Address, Serial: inv.Identity.Serial, Model: inv.Identity.Model, Rule: s.Where("match"),
		Checked: []string{}, Findings: []Finding{},
	}}
	j.namespaces()
	j.settings()
	j.firmware()
	j.pcie()
	j.health()
	slices.SortStableFunc(j.out.Findings, func(a, b Finding) int { return rank(a.Severity) - rank(b.Severity) })
	return j.out
}

// Choose finds the first spec that is for a drive; false for none.
func Choose(specs []namespace.Spec, s namespace.Subject) (namespace.Spec, int, bool) {
	i := slices.IndexFunc(specs, func(spec namespace.Spec) bool { return spec.Match.Matches(s) })
	if i < 0 {
		return namespace.Spec{}, -1, false
	}
	return specs[i], i, true
}

// Unmatched is the finding about a rule that fits none of the drives.
func Unmatched(s namespace.Spec) Finding {
	return Finding{Severity: Drift, Field: "match", Where: s.Where("match"), Expected: "a drive: " + s.Match.Text(), Found: "none",
		Remedy: "nvop list shows the drives of this host"}
}

// Unruled is the judgement of a drive that no rule is for.
func Unruled(address string, s namespace.Subject, file string) Drive {
	return Drive{Address: address, Serial: s.Identity.Serial, Model: s.Identity.Model, Checked: []string{"match"}, Findings: []Finding{{
		Severity: Drift, Field: "match", Where: file, Expected: "a rule for this drive", Found: "none matches it",
		Remedy: "nvop spec init " + address + " writes one",
	}}}
}

// Unopened is the judgement of a drive that could not be read at all.
func Unopened(address, file string, err error) Drive {
	return Drive{Address: address, Checked: []string{"drive"}, Findings: []Finding{{
		Severity: Unreadable, Field: "drive", Where: file, Expected: "a drive that can be read", Found: err.Error(),
	}}}
}

func rank(s Severity) int { return slices.Index([]Severity{Critical, Drift, Unreadable}, s) }

func (j *judge) add(f Finding) {
	if f.Where == "" {
		f.Where = j.spec.Where(f.Field)
	}
	j.out.Findings = append(j.out.Findings, f)
}

func (j *judge) check(field string) {
	if !slices.Contains(j.out.Checked, field) {
		j.out.Checked = append(j.out.Checked, field)
	}
}

func (j *judge) command() string {
	return fmt.Sprintf("nvop apply %s -f %s", j.facts.Inventory.Address, j.spec.File)
}

// apply is the command that mends what plan and apply can, or what is in its way:
// apply does all of a spec or nothing.
func (j *judge) apply() string {
	if j.mend != "" {
		return j.mend
	}
	spec := j.spec
	var o namespace.Options
	if spec.Firmware != nil && spec.Firmware.Image != "" {
		switch {
		case j.facts.ImageProblem != "":
			j.mend = "apply refuses: " + j.facts.ImageProblem
			return j.mend
		case j.facts.Image == nil:
			spec.Firmware = nil // as it is not known, it is not in the way
		default:
			o.Images = map[string]firmware.Image{spec.Firmware.Image: *j.facts.Image}
		}
	}
	j.mend = j.command()
	// The match was the caller's question.
	spec.Match = namespace.Match{}
	if _, err := namespace.PlanSpec(j.facts.Inventory, spec, o); err != nil {
		j.mend = "apply refuses: " + reason(err)
	}
	return j.mend
}

// reason is why a plan cannot be made, without what a finding says already.
func reason(err error) string {
	r, ok := errors.AsType[*nvmeioctl.RefusedError](err)
	switch {
	case !ok:
		return err.Error()
	case r.Remedy == "":
		return r.Reason
	}
	return r.Reason + "; " + r.Remedy
}

func (j *judge) unreadable(field string, nsid uint32, expected, why string) {
	j.add(Finding{Severity: Unreadable, Field: field, NSID: nsid, Expected: expected, Found: "could not be read: " + why})
}

func (j *judge) namespaces() {
	if j.spec.Namespaces == nil {
		return
	}
	j.check("namespaces")
	inv := j.facts.Inventory
	for _, p := range inv.Problems {
		if p.What == namespace.ProblemNamespaceList {
			j.unreadable("namespaces", 0, "a list of namespaces", p.Error)
			return
		}
	}
	desired, left, err := namespace.JudgeNamespaces(inv, j.spec)
	if i := slices.IndexFunc(inv.Namespaces, func(n namespace.Namespace) bool { return n.Error != "" }); err != nil && i >= 0 {
		j.unreadable("namespaces", inv.Namespaces[i].NSID, "namespaces this drive can have", inv.Namespaces[i].Error)
		return
	}
	if err != nil {
		j.add(Finding{Severity: Drift, Field: "namespaces", Expected: "namespaces this drive can have", Found: err.Error()})
		return
	}
	for _, d := range desired {
		path := d.Spec.Path()
		j.check(path)
		switch {
		case d.Found == nil:
			j.add(Finding{Severity: Drift, Field: path, Expected: "a namespace of " + d.Spec.Size.Text, Found: "none", Remedy: j.apply()})
		case d.Found.Error != "":
			j.unreadable(path, d.Found.NSID, "a namespace of "+d.Spec.Size.Text, d.Found.Error)
		}
		for _, m := range d.Differs {
			j.add(Finding{Severity: Drift, Field: path + "." + m.What, NSID: m.NSID, Expected: m.Want, Found: m.Found, Remedy: j.apply()})
		}
	}
	for _, n := range left {
		if n.Error != "" {
			j.unreadable("namespaces", n.NSID, "no such namespace", n.Error)
			continue
		}
		j.add(Finding{Severity: Drift, Field: "namespaces", NSID: n.NSID, Expected: "no such namespace", Found: n.String(),
			Remedy: fmt.Sprintf("add it to the spec, or replace: [%d] and %s", n.NSID, j.command())})
	}
}

func (j *judge) settings() {
	inv := j.facts.Inventory
	for _, want := range j.spec.Settings {
		f, ok := namespace.LookupSetting(want.Path)
		if !ok {
			continue
		}
		j.check(f.Path)
		nsids := []uint32{0}
		if f.PerNamespace {
			nsids = nil
			for _, n := range inv.Namespaces {
				if slices.Contains(n.Controllers, inv.Identity.CNTLID) {
					nsids = append(nsids, n.NSID)
				}
			}
		}
		for _, nsid := range nsids {
			j.setting(f, want, nsid)
		}
	}
}

func (j *judge) setting(f namespace.SettingField, want namespace.Setting, nsid uint32) {
	expected := f.Format(want)
	if f.Form == namespace.FormClock {
		expected = fmt.Sprintf("at most %d s off", want.Number)
	}
	if want.Save {
		expected += ", kept over power cycles"
	}
	reading, ok := j.facts.Inventory.Feature(namespace.FeatureKey{Feature: f.Feature, Selector: f.Selector, NSID: nsid})
	if !ok {
		j.unreadable(f.Path, nsid, expected, "it was not asked for")
		return
	}
	judged := j.facts.Inventory.Judge(f, want, reading)
	switch {
	case judged.Same:
	case judged.Problem != "":
		j.unreadable(f.Path, nsid, expected, judged.Problem)
	case judged.Unsupported:
		j.add(Finding{Severity: Drift, Field: f.Path, NSID: nsid, Expected: expected, Found: judged.Found})
	case f.Fixed != "":
		j.add(Finding{Severity: Drift, Field: f.Path, NSID: nsid, Expected: expected, Found: judged.Found, Remedy: f.Fixed + ": see the parameters of its nvme module"})
	default:
		j.add(Finding{Severity: Drift, Field: f.Path, NSID: nsid, Expected: expected, Found: judged.Found, Remedy: j.apply()})
	}
}

func (j *judge) firmware() {
	want := j.spec.Firmware
	if want == nil {
		return
	}
	j.check("firmware.revision")
	found := j.facts.Inventory.Controller.FirmwareRevision
	if found == want.Revision {
		j.stays(found)
		return
	}
	f := Finding{Severity: Drift, Field: "firmware.revision", Expected: want.Revision, Found: found, Remedy: j.apply()}
	if s := j.facts.Inventory.FirmwareState; s != nil {
		if revision, slot, ok := s.Pending(); ok {
			f.Found += fmt.Sprintf("; %s in slot %d waits for a reset", revision, slot)
			if revision == want.Revision {
				f.Remedy = "nvop reset " + j.facts.Inventory.Address + ", or a power cycle"
			}
		}
	}
	j.add(f)
}

// stays judges whether the revision that runs, as wanted, runs after the next reset
// too.
func (j *judge) stays(revision string) {
	const field = "firmware.revision"
	s := j.facts.Inventory.FirmwareState
	if s == nil || !s.Supported {
		return
	}
	expected := revision + ", after a reset too"
	next, slot, pending := s.Pending()
	switch {
	case s.SlotsError != "":
		j.unreadable(field, 0, expected, s.SlotsError)
	case pending && next != revision:
		j.add(Finding{Severity: Drift, Field: field, Expected: expected, Found: fmt.Sprintf("%s; %s in slot %d runs after the next reset", revision, next, slot), Remedy: j.apply()})
	}
}

func (j *judge) health() {
	h, facts := j.spec.Health, j.facts.Inventory.Health
	limit := func(field string, wanted bool, expected string, reported bool, bad bool, found string) {
		if !wanted {
			return
		}
		j.check(field)
		switch {
		case facts == nil:
			j.unreadable(field, 0, expected, j.problem(namespace.ProblemSMART))
		case !reported:
			j.unreadable(field, 0, expected, "the drive does not report it")
		case bad:
			j.add(Finding{Severity: Critical, Field: field, Expected: expected, Found: found, Remedy: "nvop show " + j.facts.Inventory.Address + "; plan to replace the drive"})
		}
	}
	is := func(p *uint8) int { return int(or(p)) }
	var now namespace.Health
	if facts != nil {
		now = *facts
	}
	limit("health.used_percent_max", h.UsedPercentMax != nil, fmt.Sprintf("at most %d %%", is(h.UsedPercentMax)), true,
		int(now.UsedPercent) > is(h.UsedPercentMax), fmt.Sprintf("%d %%", now.UsedPercent))
	limit("health.spare_percent_min", h.SparePercentMin != nil, fmt.Sprintf("at least %d %%", is(h.SparePercentMin)), now.SpareReported,
		int(now.SparePercent) < is(h.SparePercentMin), fmt.Sprintf("%d %%", now.SparePercent))
	media, mediaFits := now.MediaErrors.Uint64()
	limit("health.media_errors_max", h.MediaErrorsMax != nil, "at most "+decimal(h.MediaErrorsMax), true,
		!mediaFits || media > or(h.MediaErrorsMax), now.MediaErrors.String())
	unsafeCount, unsafeFits := now.UnsafeShutdowns.Uint64()
	limit("health.unsafe_shutdowns_max", h.UnsafeShutdownsMax != nil, "at most "+decimal(h.UnsafeShutdownsMax), true,
		!unsafeFits || unsafeCount > or(h.UnsafeShutdownsMax), now.UnsafeShutdowns.String())
	limit("health.temperature_celsius_max", h.TemperatureCelsiusMax != nil, fmt.Sprintf("at most %d C", or(h.TemperatureCelsiusMax)),
		now.TemperatureCelsius != nil, or(now.TemperatureCelsius) > or(h.TemperatureCelsiusMax), fmt.Sprintf("%d C", or(now.TemperatureCelsius)))
	limit("health.critical_warnings", h.CriticalWarnings != nil, "none", true, now.CriticalWarning != 0, fmt.Sprintf("0x%02x", now.CriticalWarning))
}

// problem is why something could not be read.
func (j *judge) problem(what string) string {
	for _, p := range j.facts.Inventory.Problems {
		if p.What == what {
			return p.Error
		}
	}
	return "it was not read"
}

func or[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func decimal(p *uint64) string { return strconv.FormatUint(or(p), 10) }

// Summary is a report's findings by severity: "2 critical, 1 drift".
func Summary(drives []Drive, more []Finding) string {
	count := map[Severity]int{}
	for _, f := range more {
		count[f.Severity]++
	}
	for _, d := range drives {
		for _, f := range d.Findings {
			count[f.Severity]++
		}
	}
	var parts []string
	for _, s := range []Severity{Critical, Drift, Unreadable} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	if parts == nil {
		return "no findings"
	}
	return strings.Join(parts, ", ")
}
