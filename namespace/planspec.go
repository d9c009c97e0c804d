package namespace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// PlanSpec plans whatever the drive lacks of the spec, what costs least when it
// fails first: firmware, whose failure loses nothing; settings, which can be set
// back; namespaces, whose data is lost; settings of namespaces.
//
// Existing namespaces that the spec has no place for are deleted only when its
// replace list names them, except that the only namespace of a drive may become
// the only one of a spec. A spec for another drive is refused, as far as an
// inventory tells: the addresses a drive has are the caller's question.
func PlanSpec(inv Inventory, s Spec, o Options) (Plan, error) {
	p := newPlanner(inv, "apply "+s.File, o)
	match := s.Match
	match.Address = ""
	if !match.Matches(Subject{Identity: inv.Identity, VendorID: inv.Controller.VendorID}) {
		return Plan{}, p.refuseField(s, "match", fmt.Sprintf("the spec is for %s, the drive is %q %q", s.Match.Text(), inv.Identity.Serial, inv.Identity.Model), "")
	}
	p.plan.Reads = FeaturesFor(s)
	for _, part := range []func(Spec) error{p.specFirmware, p.controllerSettings, p.specNamespaces, p.namespaceSettings} {
		if err := part(s); err != nil {
			return Plan{}, err
		}
	}
	return p.finish()
}

// refuseField is a refusal that names the field and its place in the spec.
func (p *planner) refuseField(s Spec, field, reason, remedy string) error {
	return p.refuse("spec", fmt.Sprintf("%s: %s: %s", s.Where(field), field, p.inv.Address), reason, remedy)
}

func (p *planner) specFirmware(s Spec) error {
	if s.Firmware == nil {
		return nil
	}
	if p.inv.FirmwareState == nil {
		return p.refuseField(s, "firmware", "the drive's firmware slots were not read", "")
	}
	want := *s.Firmware
	var image *firmware.Image
	if i, ok := p.opts.Images[want.Image]; ok && want.Image != "" {
		image = &i
	}
	planned, err := firmware.Plan(*p.inv.FirmwareState, want.Want, image, firmware.Options{AllowLive: want.AllowLive, AcceptUnread: p.opts.AcceptUnread})
	if err != nil {
		return fmt.Errorf("%s: firmware: %w", s.Where("firmware"), err)
	}
	for _, step := range planned.Steps {
		p.resets = p.resets || step.Kind == firmware.KindActivate
		step.Index = len(p.plan.Steps)
		p.plan.Steps = append(p.plan.Steps, step)
	}
	p.plan.Destroys = append(p.plan.Destroys, planned.Destroys...)
	p.plan.Notes = append(p.plan.Notes, planned.Notes...)
	p.plan.Pending = planned.Pending
	p.noteUnsaved(s)
	if planned.Disturbs {
		for _, n := range p.inv.Namespaces {
			p.touch(n.NSID)
		}
	}
	return nil
}

// noteUnsaved says which settings the reset that is still to come takes back. What
// the plan's own reset takes back is set after it.
func (p *planner) noteUnsaved(s Spec) {
	what := "the reset that activates the firmware takes back"
	switch {
	case p.resets:
		what = "should the drive ask for a power cycle instead of a controller reset, that takes back"
	case p.plan.Pending == firmware.ResetNone:
		return
	}
	var lost []string
	for _, want := range s.Settings {
		if f, ok := LookupSetting(want.Path); ok && !want.Save && f.Fixed == "" {
			lost = append(lost, want.Path)
		}
	}
	if len(lost) > 0 {
		p.note("%s what is not saved (%s): save it, or apply the spec again afterwards", what, strings.Join(lost, ", "))
	}
}

func (p *planner) controllerSettings(s Spec) error {
	return p.settings(s, func(f SettingField) bool { return !f.PerNamespace }, target{})
}

// namespaceSettings sets the settings of namespaces, those that the plan creates
// too.
func (p *planner) namespaceSettings(s Spec) error {
	only := func(f SettingField) bool { return f.PerNamespace }
	for _, n := range p.after {
		if n.NSID == 0 || n.Error != "" || !slices.Contains(n.Controllers, p.inv.Identity.CNTLID) || p.isNew(n) {
			continue
		}
		if err := p.settings(s, only, target{nsid: n.NSID}); err != nil {
			return err
		}
	}
	for _, c := range p.created {
		if err := p.settings(s, only, target{nsid: 1, createdBy: &c}); err != nil {
			return err
		}
	}
	return nil
}

// isNew says that the namespace with this NSID is one that the plan creates: on a
// drive with one NSID it can be known.
func (p *planner) isNew(n Namespace) bool {
	_, before := p.inv.byNSID(n.NSID)
	return !before || len(p.created) > 0 && p.inv.Controller.MaxNSID == 1
}

// target is what a setting belongs to: the controller, a namespace, or one that a
// step creates, whose values are not known yet.
type target struct {
	nsid      uint32
	createdBy *int
}

// settings plans the settings that differ, one step a feature.
func (p *planner) settings(s Spec, only func(SettingField) bool, t target) error {
	done := map[FeatureKey]bool{}
	for _, want := range s.Settings {
		f, ok := LookupSetting(want.Path)
		if !ok || !only(f) {
			continue
		}
		key := f.key(t.nsid)
		if f.Fixed != "" {
			if r, ok := p.inv.Feature(key); !ok || !p.inv.Judge(f, want, r).Same {
				p.note("%s is not as wanted, and is judged by an audit only: %s", f.Path, f.Fixed)
				p.plan.JudgedOnly = append(p.plan.JudgedOnly, f.Path)
			}
			continue
		}
		if done[key] {
			continue
		}
		done[key] = true
		if err := p.feature(s, f, key, t); err != nil {
			return err
		}
	}
	return nil
}

// feature plans one feature with all that the spec wants of it.
func (p *planner) feature(s Spec, of SettingField, key FeatureKey, t target) error {
	reading, known := p.inv.Feature(key)
	if t.createdBy != nil {
		reading, known = FeatureReading{FeatureKey: key, Current: &FeatureValue{}}, true
	}
	if !known {
		return p.refuseField(s, of.Path, "the feature was not read", "")
	}
	c := featureChange{FeatureParams: FeatureParams{Selector: of.Selector, CreatedBy: t.createdBy}}
	c.Feature, c.NSID, c.VendorID = of.Feature, key.NSID, of.Vendor
	value := reading.Current
	for _, want := range s.Settings {
		f, ok := LookupSetting(want.Path)
		if !ok || f.key(key.NSID) != key {
			continue
		}
		judged := p.inv.Judge(f, want, reading)
		if p.resets && judged.Same && !reading.keeps(f, want) {
			judged.Same, judged.Found = false, judged.Found+" until the controller is reset"
		}
		switch {
		case judged.Same && t.createdBy == nil:
			c.Save = c.Save || want.Save
			continue
		case judged.Unsupported:
			return &nvmeioctl.UnsupportedError{Feature: s.Where(f.Path) + ": " + f.Path, Needs: "a drive that has it", Have: judged.Found}
		case judged.Problem != "":
			return p.refuseField(s, f.Path, "it could not be read: "+judged.Problem, "")
		}
		if err := p.checkPower(s, f, want); err != nil {
			return err
		}
		if err := p.checkDeallocated(s, f, want, t); err != nil {
			return err
		}
		next, err := f.Put(*value, want, p.inv.TakenAt)
		if err != nil {
			return err
		}
		value = &next
		c.add(f, want, judged, t)
	}
	if len(c.parts) == 0 {
		return nil
	}
	c.Dword, c.Data = value.Dword, value.Data
	return p.featureStep(c, of, t)
}

// keeps says that a value as wanted is still so after a controller reset: it is the
// saved one. Which one is saved may not be known.
func (r FeatureReading) keeps(f SettingField, want Setting) bool {
	if r.Unsupported {
		return true
	}
	if r.Saved == nil {
		return false
	}
	saved, err := f.Read(*r.Saved, time.Time{})
	return err == nil && f.Form != FormClock && f.Same(want, saved)
}

// featureChange is a feature's step in the making.
type featureChange struct {
	FeatureParams
	parts []string
}

func (c *featureChange) add(f SettingField, want Setting, judged Judgement, t target) {
	c.Save = c.Save || want.Save
	c.Clock = f.Form == FormClock
	part := f.Name() + " " + f.Format(want)
	if t.createdBy != nil {
		c.Mask |= f.mask()
	} else {
		part += " (was " + judged.Found + ")"
	}
	c.parts = append(c.parts, part)
}

func (p *planner) featureStep(c featureChange, f SettingField, t target) error {
	where := ""
	switch {
	case t.createdBy != nil:
		where = " of the new namespace"
	case t.nsid != 0:
		where = fmt.Sprintf(" of namespace %d", t.nsid)
	}
	kept := ""
	if c.Save {
		kept = ", kept over power cycles"
	}
	if c.Clock {
		c.Data = nil
	}
	step, err := FeatureStep(fmt.Sprintf("set %s%s: %s%s", f.Group(), where, strings.Join(c.parts, ", "), kept), c.FeatureParams)
	if err != nil {
		return err
	}
	step.Index = len(p.plan.Steps)
	p.plan.Steps = append(p.plan.Steps, step)
	if c.Feature == nvmespec.FeatureAPST {
		p.note("the kernel's driver sets autonomous transitions anew at each reset: nvme_core.default_ps_max_latency_us=0 stops that")
	}
	return nil
}

// checkPower refuses power states that are no policy: those the drive has not, and
// non-operational ones, which a drive may ignore (case PWR-04).
func (p *planner) checkPower(s Spec, f SettingField, want Setting) error {
	states := p.inv.Controller.PowerStates
	if f.Path != "power.state" || len(states) == 0 {
		return nil
	}
	if want.Number >= int64(len(states)) {
		return &nvmeioctl.UnsupportedError{Feature: fmt.Sprintf("%s: power.state %d", s.Where(f.Path), want.Number),
			Needs: "a drive that has it", Have: fmt.Sprintf("this one has states 0 to %d", len(states)-1)}
	}
	if states[want.Number].NonOperational {
		return p.refuseField(s, f.Path, fmt.Sprintf("power state %d is non-operational: a hint that the drive may ignore, not a state to hold it to", want.Number),
			"choose an operational one")
	}
	return nil
}

// checkDeallocated refuses errors of deallocated blocks where the namespace cannot
// have them. For one to be created it has to be known before the old one is gone.
func (p *planner) checkDeallocated(s Spec, f SettingField, want Setting, t target) error {
	if f.Path != "features.error_recovery.deallocated_errors" || want.Number == 0 {
		return nil
	}
	can, which := p.inv.Controller.DeallocatedErrors, "a new namespace of this drive"
	if n, ok := p.inv.byNSID(t.nsid); ok && t.createdBy == nil {
		can, which = n.DeallocatedErrors, fmt.Sprintf("namespace %d", n.NSID)
	}
	if can {
		return nil
	}
	return &nvmeioctl.UnsupportedError{Feature: s.Where(f.Path) + ": " + f.Path, Needs: "a drive that has it", Have: which + " has not (NSFEAT bit 2 is 0)"}
}

// Judgement is how a drive's value compares with the one wanted.
type Judgement struct {
	Same bool
	// Found is the value for people.
	Found string
	// Unsupported says that the drive does not have the feature, Problem why it
	// could not be read; both are never the same as wanted.
	Unsupported bool
	Problem     string
}

// Judge compares one setting with what was read. A drive without a feature that
// is to be off has it off.
func (inv Inventory) Judge(f SettingField, want Setting, r FeatureReading) Judgement {
	switch {
	case r.Unsupported && f.Form == FormBoolean && want.Number == 0 && !f.PerNamespace:
		return Judgement{Same: true, Found: "false: this drive does not have it"}
	case r.Unsupported:
		return Judgement{Unsupported: true, Found: "this drive does not have it"}
	case r.Error != "":
		return Judgement{Problem: r.Error}
	case r.Current == nil:
		return Judgement{Problem: "it was not read"}
	}
	now, err := f.Read(*r.Current, inv.TakenAt)
	if err != nil {
		return Judgement{Problem: err.Error()}
	}
	j := Judgement{Same: f.Same(want, now), Found: f.Format(now)}
	if !j.Same || !want.Save {
		return j
	}
	if r.Saved == nil {
		return Judgement{Unsupported: true, Found: "this drive does not keep it over power cycles"}
	}
	saved, err := f.Read(*r.Saved, inv.TakenAt)
	if err != nil {
		return Judgement{Problem: err.Error()}
	}
	if !f.Same(want, saved) {
		j.Same, j.Found = false, fmt.Sprintf("%s now, %s after a power cycle", f.Format(now), f.Format(saved))
	}
	return j
}
