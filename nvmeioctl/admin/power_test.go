package admin_test

import (
	"testing"

	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// TestVendorPowerLimits: PWR-11. The limit is data with a source, belongs to a
// vendor, and only what is published has a meaning.
func TestVendorPowerLimits(t *testing.T) {
	for _, l := range admin.VendorPowerLimits() {
		if l.Source == "" || l.VendorID == 0 || l.Feature < 0xC0 || len(l.Values) == 0 {
			t.Errorf("%+v", l)
		}
		if info, ok := nvmespec.LookupFeature(l.Feature, l.VendorID); !ok || info.Vendor != l.VendorID {
			t.Errorf("feature 0x%02x is not in the table of features", uint8(l.Feature))
		}
	}
	l, ok := admin.LookupVendorPowerLimit(0x1C5F)
	if !ok {
		t.Fatal("no limit of Memblaze")
	}
	if w, ok := l.Power(0); !ok || w != 25_000_000 {
		t.Errorf("value 0 is %v, %v", w, ok)
	}
	if w, ok := l.Power(3); ok {
		t.Errorf("value 3 is published as %v", w)
	}
	if _, ok := admin.LookupVendorPowerLimit(0x144D); ok {
		t.Error("a limit of another vendor")
	}
}

// TestReadSetting reads the triple with the exact commands, and leaves out what a
// controller cannot be asked (PWR-09: current against saved, compared as bytes).
func TestReadSetting(t *testing.T) {
	get := func(cdw10 uint32, result uint64, status nvmespec.Status) step {
		return step{op: 0x0A, cdw10: cdw10, timeout: admin.FeatureTimeout, result: result, status: status}
	}
	c := nvmespec.Controller{IO: nvmespec.IOSaveFeatures}
	dev := newScript(t, get(0x002, 3, 0), get(0x202, 1, 0), get(0x102, 0, 0), get(0x302, 5, 0))
	s, err := admin.ReadSetting(t.Context(), dev, c, nvmespec.FeaturePowerManagement)
	if err != nil || s.Current.Dword != 3 || s.Saved == nil || s.Saved.Dword != 1 || s.Default == nil || !s.SavedDiffers() ||
		s.Capabilities == nil || !s.Capabilities.Saveable || !s.Capabilities.Changeable {
		t.Errorf("%+v, %v", s, err)
	}
	dev = newScript(t, get(0x002, 3, 0))
	s, err = admin.ReadSetting(t.Context(), dev, nvmespec.Controller{}, nvmespec.FeaturePowerManagement)
	if err != nil || s.Saved != nil || s.Default != nil || s.Capabilities != nil || s.SavedDiffers() {
		t.Errorf("%+v, %v", s, err)
	}
	dev = newScript(t, get(0x002, 3, 0), get(0x202, 0, 0x4002), get(0x102, 0, 0x4002), get(0x302, 0, 0x4002))
	s, err = admin.ReadSetting(t.Context(), dev, c, nvmespec.FeaturePowerManagement)
	if err != nil || s.Saved != nil || s.Default != nil || s.Capabilities != nil {
		t.Errorf("%+v, %v", s, err)
	}
	dev = newScript(t, get(0x002, 0, 0x4002))
	if _, err := admin.ReadSetting(t.Context(), dev, c, nvmespec.FeaturePowerManagement); err == nil {
		t.Error("an unreadable feature was read")
	}
}
