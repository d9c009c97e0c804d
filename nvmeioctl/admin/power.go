package admin

import (
	"bytes"
	"context"
	"errors"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// VendorPowerLimit is a vendor's own power limit, set by a vendor feature beside
// the power states of the specification.
type VendorPowerLimit struct {
	// VendorID is the PCI vendor whose drives have it.
	VendorID uint16 `json:"vendor_id"`
	// Feature is where it is set, Mask which bits of the dword it has.
	Feature nvmespec.FeatureID `json:"fid"`
	Mask    uint32             `json:"mask"`
	Name    string             `json:"name"`
	// Values are those whose meaning is published; what other values mean is not
	// known.
	Values []VendorPowerValue `json:"values"`
	// Source is where it is known from.
	Source string `json:"source"`
}

// VendorPowerValue is one published value of a limit.
type VendorPowerValue struct {
	Value uint32 `json:"value"`
	// Power is the limit.
	Power nvmespec.Microwatts `json:"power_microwatts"`
}

// VendorPowerLimits is the table of vendors' power limits (cases PWR-11).
func VendorPowerLimits() []VendorPowerLimit {
	return []VendorPowerLimit{{
		VendorID: 0x1C5F, Feature: nvmespec.FeatureMemblazePower, Mask: 0x1F, Name: "Memblaze power limit",
		Values: []VendorPowerValue{{Value: 0, Power: 25_000_000}},
		Source: "a public GPU server manual: nvmemgr setfeature --ctrl nvme0 --featureid 198 --value 0 is the 25 W mode",
	}}
}

// LookupVendorPowerLimit finds a vendor's power limit.
func LookupVendorPowerLimit(vendorID uint16) (VendorPowerLimit, bool) {
	for _, l := range VendorPowerLimits() {
		if l.VendorID == vendorID {
			return l, true
		}
	}
	return VendorPowerLimit{}, false
}

// Power is the published meaning of a value; false where there is none.
func (l VendorPowerLimit) Power(dword uint32) (nvmespec.Microwatts, bool) {
	for _, v := range l.Values {
		if v.Value == dword&l.Mask {
			return v.Power, true
		}
	}
	return 0, false
}

// Setting is a feature's values: what holds now, what comes back after a reset,
// and what the drive was delivered with.
type Setting struct {
	Current FeatureValue  `json:"current"`
	Saved   *FeatureValue `json:"saved,omitempty"`
	Default *FeatureValue `json:"default,omitempty"`
	// Capabilities are nil where the controller cannot be asked.
	Capabilities *nvmespec.FeatureCaps `json:"capabilities,omitempty"`
}

// SavedDiffers says that a reset brings another value than the present one.
func (s Setting) SavedDiffers() bool {
	return s.Saved != nil && (s.Saved.Dword != s.Current.Dword || !bytes.Equal(s.Saved.Data, s.Current.Data))
}

// ReadSetting reads a feature's values. What a controller does not tell is left
// out; an error is that the present value cannot be read.
func ReadSetting(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller, id nvmespec.FeatureID) (Setting, error) {
	req := FeatureRequest{Feature: id, VendorID: c.VendorID}
	now, err := GetFeature(ctx, dev, req)
	if err != nil {
		return Setting{}, err
	}
	s := Setting{Current: now}
	if c.IO&nvmespec.IOSaveFeatures == 0 {
		return s, nil
	}
	for _, other := range []struct {
		sel  nvmespec.FeatureSelect
		into **FeatureValue
	}{{nvmespec.FeatureSaved, &s.Saved}, {nvmespec.FeatureDefault, &s.Default}} {
		req.Select = other.sel
		v, err := GetFeature(ctx, dev, req)
		switch {
		case err == nil:
			*other.into = &v
		case errors.Is(err, nvmeioctl.ErrDeviceGone), errors.Is(err, nvmeioctl.ErrIndeterminate), ctx.Err() != nil:
			return s, err
		}
	}
	caps, err := FeatureCapabilities(ctx, dev, id, 0)
	if err == nil {
		s.Capabilities = &caps
	}
	return s, nil
}
