package namespace

import (
	"context"
	"slices"

	"nvop/namespace/firmware"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// FeatureNeed is which features an inventory reads.
type FeatureNeed struct {
	// Fields are paths of the table of settings; "*" is all of them.
	Fields []string
	// Saved reads the saved values too, where the drive keeps some.
	Saved bool
}

// FeaturesFor is what planning from these specs, and judging by them, has to read.
func FeaturesFor(specs ...Spec) FeatureNeed {
	var need FeatureNeed
	for _, s := range specs {
		for _, want := range s.Settings {
			need.Fields = append(need.Fields, want.Path)
			need.Saved = need.Saved || want.Save
		}
		// A reset takes back what is not saved.
		need.Saved = need.Saved || s.Firmware != nil && s.Firmware.Activate == firmware.ActivateReset
	}
	slices.Sort(need.Fields)
	need.Fields = slices.Compact(need.Fields)
	return need
}

// AllFeatures reads everything the table of settings knows.
func AllFeatures() FeatureNeed { return FeatureNeed{Fields: []string{"*"}, Saved: true} }

func (n FeatureNeed) has(f SettingField) bool {
	return slices.Contains(n.Fields, "*") || slices.Contains(n.Fields, f.Path)
}

// absentFeature says that a drive reports not to have a feature, so that it need
// not be asked.
func (c Controller) absentFeature(f SettingField) bool {
	switch f.Feature {
	case nvmespec.FeatureWriteCache:
		return !c.VolatileWriteCache
	case nvmespec.FeatureAPST:
		return !c.APST
	case nvmespec.FeatureHostThermal:
		return !c.HostThermalManagement
	case nvmespec.FeatureTimestamp:
		return !c.Timestamp
	}
	return f.Vendor != 0 && f.Vendor != c.VendorID
}

// readFeatures reads what is needed, each value once.
func (inv *Inventory) readFeatures(ctx context.Context, dev nvmeioctl.Device, need FeatureNeed) {
	for _, f := range Settings() {
		if !need.has(f) {
			continue
		}
		if !f.PerNamespace {
			inv.readFeature(ctx, dev, f, 0, need.Saved)
			continue
		}
		for _, n := range inv.Namespaces {
			if n.Error == "" && slices.Contains(n.Controllers, inv.Identity.CNTLID) {
				inv.readFeature(ctx, dev, f, n.NSID, need.Saved)
			}
		}
	}
	slices.SortFunc(inv.Features, func(a, b FeatureReading) int { return a.compare(b.FeatureKey) })
}

func (inv *Inventory) readFeature(ctx context.Context, dev nvmeioctl.Device, f SettingField, nsid uint32, saved bool) {
	k := f.key(nsid)
	if _, ok := inv.Feature(k); ok {
		return
	}
	r := FeatureReading{FeatureKey: k, Name: featureName(f)}
	defer func() { inv.Features = append(inv.Features, r) }()
	if inv.Controller.absentFeature(f) {
		r.Unsupported = true
		return
	}
	current, err := getFeature(ctx, dev, k, f.Vendor, nvmespec.FeatureCurrent)
	if err != nil {
		r.Error, r.Unsupported = err.Error(), admin.IsUnsupported(err)
		return
	}
	r.Current = &current
	if !saved || !inv.Controller.SaveFeatures || f.Form == FormClock {
		return
	}
	if kept, err := getFeature(ctx, dev, k, f.Vendor, nvmespec.FeatureSaved); err == nil {
		r.Saved = &kept
	}
}

func featureName(f SettingField) string {
	if info, ok := nvmespec.LookupFeature(f.Feature, f.Vendor); ok {
		return info.Name
	}
	return f.Feature.String()
}

// getFeature reads one value of a feature.
func getFeature(ctx context.Context, dev nvmeioctl.Device, k FeatureKey, vendor uint16, sel nvmespec.FeatureSelect) (FeatureValue, error) {
	v, err := admin.GetFeature(ctx, dev, admin.FeatureRequest{
		Feature: k.Feature, Select: sel, NSID: k.NSID, CDW11: k.Selector, VendorID: vendor})
	if err != nil {
		return FeatureValue{}, err
	}
	return FeatureValue{Dword: v.Dword, Data: v.Data}, nil
}
