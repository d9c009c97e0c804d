package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

type featureCmd struct {
	Get featureGetCmd `cmd:"" help:"Read a feature: current, default and saved value, and what may be done with it."`
	Set featureSetCmd `cmd:"" help:"Change a feature."`
}

// featureArg names a feature.
type featureArg struct {
	Feature string   `arg:"" help:"Name or number: power-management, write-cache, temperature-threshold, apst, 0x06 ..." placeholder:"FEATURE"`
	NSID    nsidFlag `name:"nsid" help:"The namespace, for a feature that belongs to one (default: the one the address names)." placeholder:"N"`
}

// find says which feature is meant on a drive of this vendor.
func (f featureArg) find(vendorID uint16) (nvmespec.FeatureInfo, error) {
	if info, ok := nvmespec.LookupFeatureName(f.Feature); ok {
		if info.Vendor != 0 && info.Vendor != vendorID {
			return info, &nvmeioctl.UnsupportedError{
				Feature: "feature " + f.Feature, Needs: fmt.Sprintf("a drive of PCI vendor 0x%04x", info.Vendor),
				Have: fmt.Sprintf("this one is of 0x%04x", vendorID),
			}
		}
		return info, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(f.Feature, "0x"), 16, 8)
	if err != nil || !strings.HasPrefix(f.Feature, "0x") {
		return nvmespec.FeatureInfo{}, usagef("no feature is called %q; there are %s, and 0x.. for any other", f.Feature, featureNames())
	}
	id := nvmespec.FeatureID(n)
	if info, ok := nvmespec.LookupFeature(id, vendorID); ok {
		return info, nil
	}
	return nvmespec.FeatureInfo{ID: id, Name: f.Feature}, nil
}

func featureNames() string {
	var names []string
	for _, f := range nvmespec.Features() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// scope is the NSID a feature's commands carry.
func (f featureArg) scope(info nvmespec.FeatureInfo, named uint32) (uint32, error) {
	if !info.PerNamespace {
		return uint32(f.NSID), nil
	}
	nsid, err := oneNSID(uint32(f.NSID), named)
	if err == nil && nsid == 0 {
		err = usagef("feature %s belongs to a namespace; name it with --nsid", info.Name)
	}
	return nsid, err
}

type featureGetCmd struct {
	driveArg
	featureArg
	traceFlag
}

func (featureGetCmd) Help() string {
	return "Example: nvop feature get /dev/nvme0 power-management -o json"
}

// featureValue is one of a feature's values, or why it could not be read.
type featureValue struct {
	Dword uint32 `json:"dword"`
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

type featureResult struct {
	Schema       string                `json:"schema"`
	Address      string                `json:"address"`
	Serial       string                `json:"serial"`
	Feature      string                `json:"feature"`
	FID          uint8                 `json:"fid"`
	NSID         uint32                `json:"nsid,omitempty"`
	Current      featureValue          `json:"current"`
	Default      *featureValue         `json:"default,omitempty"`
	Saved        *featureValue         `json:"saved,omitempty"`
	Capabilities *nvmespec.FeatureCaps `json:"capabilities,omitempty"`
}

func (r featureResult) Text(p *render.Page) {
	p.Line("feature %s (0x%02x) of %s, serial number %s", r.Feature, r.FID, r.Address, r.Serial)
	show := func(name string, v *featureValue) {
		switch {
		case v == nil:
		case v.Error != "":
			p.Pairs(name, "not available: "+v.Error)
		default:
			p.Pairs(name, fmt.Sprintf("0x%08x", v.Dword))
			p.Tree(v.Value)
		}
	}
	show("current", &r.Current)
	show("default", r.Default)
	show("saved", r.Saved)
	if c := r.Capabilities; c != nil {
		p.Pairs("saveable", yesNo(c.Saveable), "changeable", yesNo(c.Changeable), "per namespace", yesNo(c.PerNamespace))
	}
}

func (c featureGetCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return err
	}
	info, err := c.find(ctrl.VendorID)
	if err != nil {
		return err
	}
	nsid, err := c.scope(info, d.nsid)
	if err != nil {
		return err
	}
	r := featureResult{Schema: "nvop.feature/1", Address: c.Drive, Serial: ctrl.SerialNumber, Feature: info.Name, FID: uint8(info.ID), NSID: nsid}
	req := admin.FeatureRequest{Feature: info.ID, NSID: nsid, VendorID: ctrl.VendorID}
	if r.Current, err = readFeature(ctx, d.dev, req); err != nil {
		return err
	}
	if ctrl.IO&nvmespec.IOSaveFeatures != 0 {
		r.more(ctx, d.dev, req)
	}
	return a.print(r)
}

// more reads what only controllers with saveable features can tell. A feature
// that lacks one of the values has its status in place of it.
func (r *featureResult) more(ctx context.Context, dev nvmeioctl.Device, req admin.FeatureRequest) {
	read := func(sel nvmespec.FeatureSelect) *featureValue {
		req.Select = sel
		v, err := readFeature(ctx, dev, req)
		if err != nil {
			v.Error = err.Error()
		}
		return &v
	}
	r.Default, r.Saved = read(nvmespec.FeatureDefault), read(nvmespec.FeatureSaved)
	if caps, err := admin.FeatureCapabilities(ctx, dev, req.Feature, req.NSID); err == nil {
		r.Capabilities = &caps
	}
}

func readFeature(ctx context.Context, dev nvmeioctl.Device, req admin.FeatureRequest) (featureValue, error) {
	v, err := admin.GetFeature(ctx, dev, req)
	if err != nil {
		return featureValue{}, err
	}
	value, err := v.Decode()
	return featureValue{Dword: v.Dword, Value: value}, err
}

type featureSetCmd struct {
	driveArg
	featureArg
	Value string `required:"" help:"The feature's dword, decimal or 0x hexadecimal." placeholder:"DWORD"`
	Save  bool   `help:"Keep the value over power cycles."`
	changeFlags
}

func (featureSetCmd) Help() string {
	return "A feature does not touch data, so use of the drive is not looked at. Features that the kernel's driver owns are refused.\n\nExample:\n  nvop feature set /dev/nvme0 power-management --value 1 --confirm-serial S1234"
}

// kernelOwns says which features a host's driver relies on: changing them
// behind its back breaks it, or lets the drive write into memory it was not given.
func kernelOwns(id nvmespec.FeatureID) bool {
	switch id {
	case nvmespec.FeatureHostMemoryBuffer, nvmespec.FeatureQueueCount, nvmespec.FeatureInterruptVector,
		nvmespec.FeatureAsyncEvents, nvmespec.FeatureKeepAlive, nvmespec.FeatureHostID, nvmespec.FeatureHostBehavior:
		return true
	}
	return false
}

func (c featureSetCmd) Run(ctx context.Context, a *app) (err error) {
	dword, err := strconv.ParseUint(c.Value, 0, 32)
	if err != nil || len(c.Value) > 1 && c.Value[0] == '0' && c.Value[1] != 'x' {
		return usagef("--value %q: not a number from 0 to 0xffffffff, decimal or 0x hexadecimal", c.Value)
	}
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	if !c.DryRun {
		if err := d.changeable(); err != nil {
			return err
		}
	}
	p, err := c.plan(ctx, d, uint32(dword))
	if err != nil {
		return err
	}
	return a.proceed(ctx, d, c.changeFlags, p)
}

// plan reads the feature and says what has to be done.
func (c featureSetCmd) plan(ctx context.Context, d *drive, dword uint32) (namespace.Plan, error) {
	ctrl, err := admin.IdentifyController(ctx, d.dev)
	if err != nil {
		return namespace.Plan{}, err
	}
	info, err := c.find(ctrl.VendorID)
	if err != nil {
		return namespace.Plan{}, err
	}
	if kernelOwns(info.ID) {
		return namespace.Plan{}, refusedf("feature", d.address, "", "feature %s belongs to the kernel's driver", info.Name)
	}
	if info.SetBytes != 0 {
		return namespace.Plan{}, &nvmeioctl.UnsupportedError{Feature: "setting feature " + info.Name, Needs: fmt.Sprintf("%d bytes of data, which this command does not take", info.SetBytes)}
	}
	nsid, err := c.scope(info, d.nsid)
	if err != nil {
		return namespace.Plan{}, err
	}
	inv, err := d.inventory(ctx)
	if err != nil {
		return namespace.Plan{}, err
	}
	p := namespace.Plan{
		Schema: "nvop.plan/1", Title: fmt.Sprintf("feature set %s --value %s", info.Name, c.Value), Address: d.address,
		Identity: inv.Identity, Before: inv.Namespaces, After: inv.Namespaces, Inventory: inv, NSIDs: []uint32{},
	}
	change := admin.FeatureChange{Feature: info.ID, NSID: nsid, Dword: dword, Save: c.Save, VendorID: ctrl.VendorID}
	so, err := featureIs(ctx, d.dev, change)
	if err != nil || so {
		return p, err
	}
	step, err := featureStep(info, change)
	p.Steps = []txn.Step{step}
	return p, err
}

// featureIs says whether the drive has the value already, saved too if asked.
func featureIs(ctx context.Context, dev nvmeioctl.Device, f admin.FeatureChange) (bool, error) {
	return namespace.FeatureIs(ctx, dev, namespace.FeatureParams{FeatureChange: f})
}

func featureStep(info nvmespec.FeatureInfo, f admin.FeatureChange) (txn.Step, error) {
	return namespace.FeatureStep(fmt.Sprintf("set feature %s to 0x%08x", info.Name, f.Dword), namespace.FeatureParams{FeatureChange: f})
}
