package admin

import (
	"context"
	"fmt"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// FeatureRequest is which value of which feature to read.
type FeatureRequest struct {
	Feature nvmespec.FeatureID
	Select  nvmespec.FeatureSelect
	// NSID is the namespace of a namespace specific feature, else 0.
	NSID uint32
	// CDW11 is the feature's own dword: the sensor of a temperature threshold.
	CDW11 uint32
	// VendorID is the drive's PCI vendor, for vendor features; 0 for unknown.
	VendorID uint16
}

// FeatureValue is the value of a feature as the drive gave it.
type FeatureValue struct {
	Feature nvmespec.FeatureID     `json:"feature"`
	Select  nvmespec.FeatureSelect `json:"select"`
	// Dword is completion dword 0.
	Dword uint32 `json:"dword"`
	// Data is what was transferred; nil for features without data.
	Data []byte `json:"data,omitempty"`
}

// Decode gives the value in the feature's own type, the capabilities where those
// were asked for.
func (v FeatureValue) Decode() (any, error) {
	if v.Select == nvmespec.FeatureCapabilities {
		return nvmespec.DecodeFeatureCaps(v.Dword), nil
	}
	return nvmespec.DecodeFeature(v.Feature, v.Dword, v.Data)
}

// GetFeatureCommand builds a Get Features. The length of the data follows from
// the table of features: it differs by feature and direction.
func GetFeatureCommand(r FeatureRequest) *nvmeioctl.Command {
	f := nvmespec.GetFeatureFields{Feature: r.Feature, Select: r.Select, CDW11: r.CDW11}
	cmd := &nvmeioctl.Command{Opcode: nvmespec.AdminGetFeatures, NSID: r.NSID, CDW10: f.CDW10(), CDW11: f.CDW11,
		Timeout: FeatureTimeout}
	info, ok := nvmespec.LookupFeature(r.Feature, r.VendorID)
	if ok && info.GetBytes > 0 && r.Select != nvmespec.FeatureCapabilities {
		cmd.Data = make([]byte, info.GetBytes)
	}
	return cmd
}

// GetFeature reads a feature.
func GetFeature(ctx context.Context, dev nvmeioctl.Device, r FeatureRequest) (FeatureValue, error) {
	cmd := GetFeatureCommand(r)
	c, err := submit(ctx, dev, "get feature "+r.Feature.String(), cmd)
	if err != nil {
		return FeatureValue{}, err
	}
	return FeatureValue{Feature: r.Feature, Select: r.Select, Dword: uint32(c.Result), Data: cmd.Data}, nil
}

// FeatureCapabilities reads what may be done with a feature. Controllers without
// nvmespec.IOSaveFeatures do not have the question.
func FeatureCapabilities(ctx context.Context, dev nvmeioctl.Device, id nvmespec.FeatureID, nsid uint32) (nvmespec.FeatureCaps, error) {
	v, err := GetFeature(ctx, dev, FeatureRequest{Feature: id, Select: nvmespec.FeatureCapabilities, NSID: nsid})
	return nvmespec.DecodeFeatureCaps(v.Dword), err
}

// FeatureChange is a feature's new value.
type FeatureChange struct {
	Feature nvmespec.FeatureID `json:"feature"`
	// Save keeps the value over power cycles.
	Save bool   `json:"save"`
	NSID uint32 `json:"nsid"`
	// Dword is the feature's own dword 11.
	Dword uint32 `json:"dword"`
	// Data is what the feature takes besides; its length is checked against the
	// table of features.
	Data []byte `json:"data,omitempty"`
	// VendorID is the drive's PCI vendor, for vendor features; 0 for unknown.
	VendorID uint16 `json:"vendor_id"`
}

// SetFeatureCommand builds a Set Features. Data of a wrong length is an error:
// the controller would read what lies behind it.
func SetFeatureCommand(f FeatureChange) (*nvmeioctl.Command, error) {
	if info, ok := nvmespec.LookupFeature(f.Feature, f.VendorID); ok && info.SetBytes != len(f.Data) {
		return nil, fmt.Errorf("set feature %s: %w: %d bytes of data, needs %d", f.Feature, nvmespec.ErrInvalidData, len(f.Data), info.SetBytes)
	}
	fields := nvmespec.SetFeatureFields{Feature: f.Feature, Save: f.Save}
	cmd := &nvmeioctl.Command{Opcode: nvmespec.AdminSetFeatures, NSID: f.NSID, CDW10: fields.CDW10(), CDW11: f.Dword,
		Timeout: FeatureTimeout}
	if len(f.Data) > 0 {
		cmd.Data = append([]byte(nil), f.Data...)
	}
	return cmd, nil
}

// SetFeature changes a feature and gives completion dword 0, in which some
// features answer (the queue count: what was granted).
func SetFeature(ctx context.Context, dev nvmeioctl.Device, f FeatureChange) (uint32, error) {
	op := "set feature " + f.Feature.String()
	cmd, err := SetFeatureCommand(f)
	if err != nil {
		return 0, opError(op, dev, f.NSID, err)
	}
	c, err := submit(ctx, dev, op, cmd)
	return uint32(c.Result), err
}

// typedFeature reads the current value of a feature that is a dword.
func typedFeature[T any](ctx context.Context, dev nvmeioctl.Device, id nvmespec.FeatureID, decode func(uint32) T) (T, error) {
	v, err := GetFeature(ctx, dev, FeatureRequest{Feature: id})
	if err != nil {
		var zero T
		return zero, err
	}
	return decode(v.Dword), nil
}

// PowerManagement reads the power state the drive is in. Non-operational states
// are only a hint that a drive may ignore.
func PowerManagement(ctx context.Context, dev nvmeioctl.Device) (nvmespec.PowerManagement, error) {
	return typedFeature(ctx, dev, nvmespec.FeaturePowerManagement, nvmespec.DecodePowerManagement)
}

// WriteCache reads whether the volatile write cache is on.
func WriteCache(ctx context.Context, dev nvmeioctl.Device) (nvmespec.WriteCache, error) {
	return typedFeature(ctx, dev, nvmespec.FeatureWriteCache, nvmespec.DecodeWriteCache)
}

// QueueCount reads how many I/O queues are allocated.
func QueueCount(ctx context.Context, dev nvmeioctl.Device) (nvmespec.QueueCount, error) {
	return typedFeature(ctx, dev, nvmespec.FeatureQueueCount, nvmespec.DecodeQueueCount)
}

// APST reads the autonomous power state transitions.
func APST(ctx context.Context, dev nvmeioctl.Device) (nvmespec.APST, error) {
	v, err := GetFeature(ctx, dev, FeatureRequest{Feature: nvmespec.FeatureAPST})
	if err != nil {
		return nvmespec.APST{}, err
	}
	a, err := nvmespec.DecodeAPST(v.Dword, v.Data)
	return a, opError("get feature apst", dev, 0, err)
}

// Timestamp reads the drive's clock.
func Timestamp(ctx context.Context, dev nvmeioctl.Device) (nvmespec.Timestamp, error) {
	v, err := GetFeature(ctx, dev, FeatureRequest{Feature: nvmespec.FeatureTimestamp})
	if err != nil {
		return nvmespec.Timestamp{}, err
	}
	t, err := nvmespec.DecodeTimestamp(v.Data)
	return t, opError("get feature timestamp", dev, 0, err)
}
