package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/layer"
	"nvop/nvmeioctl/nvmespec"
)

type recordCmd struct {
	driveArg
	File        string `arg:"" type:"path" help:"Where to keep the conversation; it must not exist yet." placeholder:"FILE"`
	MaskSerials bool   `help:"Replace serial numbers and identifiers by others, the same ones throughout."`
	traceFlag
}

func (recordCmd) Help() string {
	return `Reads all that this program can read of a drive, changes nothing, and keeps commands and answers. No user data are read. replay:FILE then stands for the drive in every command that reads, so a bug report can carry it.

Example:
  nvop record /dev/nvme0 drive.nvoprec --mask-serials
  nvop show replay:drive.nvoprec`
}

// recordResult is what was kept.
type recordResult struct {
	Schema   string   `json:"schema"`
	Address  string   `json:"address"`
	Serial   string   `json:"serial"`
	File     string   `json:"file"`
	Bytes    int64    `json:"bytes"`
	Commands int      `json:"commands"`
	Refused  int      `json:"refused"`
	Masked   bool     `json:"serials_masked"`
	Unread   []string `json:"unread"`
}

func (r recordResult) Text(p *render.Page) {
	p.Line("%d commands of %s, serial number %s, are in %s (%d bytes)", r.Commands, r.Address, r.Serial, r.File, r.Bytes)
	p.Line("%d of them the drive refused, as drives do that lack something", r.Refused)
	if r.Masked {
		p.Line("serial numbers and identifiers are masked, in the file as above")
	} else {
		p.Line("the file names the drive by its serial number; --mask-serials hides it")
	}
	for _, u := range r.Unread {
		p.Line("  could not be read: %s", u)
	}
}

func (c recordCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	// A mistake here must not change the drive.
	recorder := layer.Record(layer.DryRun(d.dev), d.clock)
	d.dev = recorder
	conv := &conversation{ctx: ctx, dev: recorder}
	if err := conv.all(d); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &codedError{exitInterrupted, errors.New("interrupted; nothing was kept")}
	}
	rec := recorder.Recording()
	rec.Program = "nvop " + version
	if c.MaskSerials {
		rec.Mask()
	}
	size, err := intoNewFile(c.File, 0o600, rec.Write)
	if err != nil {
		return err
	}
	return a.print(c.result(rec, conv, size))
}

// result is read from the recording itself, so that it says what the file says.
func (c recordCmd) result(rec *layer.Recording, conv *conversation, size int64) recordResult {
	r := recordResult{Schema: "nvop.record/1", Address: c.Drive, Serial: conv.ctrl.SerialNumber, File: c.File, Bytes: size,
		Commands: len(rec.Exchanges), Masked: rec.Masked, Unread: append([]string{}, conv.unread...)}
	for _, e := range rec.Exchanges {
		if nvmespec.Status(e.Status).Code() != 0 {
			r.Refused++
		}
	}
	if rec.Masked {
		r.Address = rec.Address
		if ctrl, err := admin.IdentifyController(conv.ctx, layer.NewReplay("recording", rec)); err == nil {
			for i := range r.Unread {
				r.Unread[i] = strings.ReplaceAll(r.Unread[i], r.Serial, ctrl.SerialNumber)
			}
			r.Serial = ctrl.SerialNumber
		}
	}
	return r
}

// conversation asks a drive all there is to ask without changing it.
type conversation struct {
	ctx  context.Context
	dev  nvmeioctl.Device
	ctrl nvmespec.Controller
	// unread is what failed for another reason than that the drive lacks it.
	unread []string
}

// note keeps a failure that is worth telling: what a drive refuses as not known
// to it is part of the conversation.
func (c *conversation) note(err error) {
	if err == nil || admin.IsUnsupported(err) || errors.Is(err, nvmespec.ErrInvalidNamespace) || c.ctx.Err() != nil {
		return
	}
	c.unread = append(c.unread, strings.Join(strings.Fields(err.Error()), " "))
}

// all asks everything. Only a drive that does not say who it is ends it.
func (c *conversation) all(d *drive) error {
	ctrl, err := admin.IdentifyController(c.ctx, c.dev)
	if err != nil {
		return err
	}
	c.ctrl = ctrl
	// What the other commands ask, as they ask it.
	_, err = d.inventory(c.ctx)
	c.note(err)
	c.identify()
	c.namespaces()
	c.logs()
	c.features()
	return nil
}

// ask sends an Identify whose answer is only to be kept.
func (c *conversation) ask(nsid uint32, f nvmespec.IdentifyFields) {
	if c.ctx.Err() != nil {
		return
	}
	_, err := admin.Submit(c.ctx, c.dev, fmt.Sprintf("identify CNS %02xh", uint8(f.CNS)), admin.IdentifyCommand(nsid, f))
	c.note(err)
}

// since2 says that the drive knows what came with NVMe 2.0.
func (c *conversation) since2() bool { return c.ctrl.Version >= nvmespec.MakeVersion(2, 0, 0) }

// has says that the controller announces all of these attributes.
func (c *conversation) has(a nvmespec.Attributes) bool { return c.ctrl.Attributes&a == a }

// identify asks what the controller announces and no more: every refusal is an
// entry in the drive's error log, which somebody may be watching.
func (c *conversation) identify() {
	const multiDomain = 1 << 10
	virtual := c.ctrl.Admin&nvmespec.AdminVirtualization != 0
	for _, q := range []struct {
		cns  nvmespec.CNS
		nsid uint32
		ask  bool
	}{
		{nvmespec.CNSController, 0, true},
		{nvmespec.CNSNVMController, 0, c.since2()},
		{nvmespec.CNSNVMSets, 0, c.has(nvmespec.AttrNVMSets)},
		{nvmespec.CNSGranularity, 0, c.has(nvmespec.AttrNamespaceGranularity)},
		{nvmespec.CNSUUIDList, 0, c.has(nvmespec.AttrUUIDList)},
		{nvmespec.CNSDomains, 0, c.has(multiDomain)},
		{nvmespec.CNSEnduranceGroups, 0, c.has(nvmespec.AttrEnduranceGroups) && c.since2()},
		{nvmespec.CNSPrimaryController, 0, virtual},
		{nvmespec.CNSSecondaryControllers, 0, virtual},
		{nvmespec.CNSNamespace, nvmespec.BroadcastNSID, c.ctrl.HasNamespaceManagement()},
	} {
		if !q.ask {
			continue
		}
		f := nvmespec.IdentifyFields{CNS: q.cns}
		if q.cns == nvmespec.CNSPrimaryController {
			f.ControllerID = c.ctrl.ControllerID
		}
		c.ask(q.nsid, f)
	}
	if c.ctrl.HasNamespaceManagement() {
		_, err := admin.Controllers(c.ctx, c.dev)
		c.note(err)
	}
}

func (c *conversation) namespaces() {
	active, err := admin.ActiveNamespaces(c.ctx, c.dev)
	c.note(err)
	all := slices.Clone(active)
	if c.ctrl.HasNamespaceManagement() {
		allocated, err := admin.AllocatedNamespaces(c.ctx, c.dev)
		c.note(err)
		all = append(all, allocated...)
	}
	slices.Sort(all)
	for _, nsid := range slices.Compact(all) {
		cns := []nvmespec.CNS{nvmespec.CNSNamespace, nvmespec.CNSActiveNamespaces}
		if slices.Contains(active, nsid) {
			cns = append(cns, nvmespec.CNSDescriptors)
			if c.since2() {
				cns = append(cns, nvmespec.CNSNVMNamespace, nvmespec.CNSIndependentNamespace)
			}
		}
		if c.ctrl.HasNamespaceManagement() {
			cns = append(cns, nvmespec.CNSAllocatedNamespace, nvmespec.CNSAttachedControllers)
		}
		for _, n := range cns {
			c.ask(nsid, nvmespec.IdentifyFields{CNS: n})
		}
	}
	// How the drive answers for a namespace that is not there.
	for nsid := uint32(1); nsid <= min(c.ctrl.NamespaceIDMax, 2048); nsid++ {
		if !slices.Contains(all, nsid) {
			c.ask(nsid, nvmespec.IdentifyFields{CNS: nvmespec.CNSNamespace})
			break
		}
	}
}

// announced says that the drive may have a log: by its own list of logs, else by
// what the controller announces.
func (c *conversation) announced(page logPage, list *nvmespec.SupportedLogs) bool {
	if page.needs != nil && page.needs(c.ctrl) != nil {
		return false
	}
	if list != nil {
		return list.Supports(page.id)
	}
	switch page.id {
	case nvmespec.LogIDSupported:
		return c.ctrl.Logs&nvmespec.LogSupportedPages != 0
	case nvmespec.LogIDEffects:
		return c.ctrl.Logs&nvmespec.LogEffects != 0
	case nvmespec.LogIDTelemetryHost, nvmespec.LogIDTelemetryController:
		return c.ctrl.Logs&nvmespec.LogTelemetry != 0
	case nvmespec.LogIDPersistentEvents:
		return c.ctrl.Logs&nvmespec.LogPersistentEvents != 0
	case nvmespec.LogIDChangedNamespaces:
		return c.ctrl.Events&nvmespec.EventNamespaceAttributes != 0
	case nvmespec.LogIDSelfTest:
		return c.ctrl.Admin&nvmespec.AdminSelfTest != 0
	case nvmespec.LogIDSanitize:
		return c.ctrl.Sanitize != 0
	case nvmespec.LogIDEnduranceGroup:
		return c.has(nvmespec.AttrEnduranceGroups)
	case nvmespec.LogIDFeatureEffects:
		return c.since2()
	}
	return true
}

// logs reads every log that log can name, and the vendor's own.
func (c *conversation) logs() {
	var list *nvmespec.SupportedLogs
	if c.ctrl.Logs&nvmespec.LogSupportedPages != 0 {
		l, err := admin.SupportedLogs(c.ctx, c.dev)
		c.note(err)
		if err == nil {
			list = &l
		}
	}
	for _, page := range logPages() {
		if c.ctx.Err() != nil {
			return
		}
		if !c.announced(page, list) {
			continue
		}
		groups := []uint16{0}
		if page.group {
			groups = groups[:0]
			for g := uint16(1); g <= min(c.ctrl.EnduranceGroupIDMax, 16); g++ {
				groups = append(groups, g)
			}
		}
		for _, group := range groups {
			_, err := page.read(c.ctx, c.dev, c.ctrl, group)
			c.note(err)
		}
	}
	if c.ctrl.Logs&nvmespec.LogSMARTPerNamespace != 0 {
		active, _ := admin.ActiveNamespaces(c.ctx, c.dev)
		for _, nsid := range active[:min(len(active), 64)] {
			_, err := admin.SMARTLog(c.ctx, c.dev, nsid)
			c.note(err)
		}
	}
}

// mayHave says that the controller does not rule a feature out.
func (c *conversation) mayHave(info nvmespec.FeatureInfo) bool {
	k := &c.ctrl
	switch info.ID {
	case nvmespec.FeatureWriteCache:
		return k.VolatileWriteCache
	case nvmespec.FeatureAPST:
		return k.APST
	case nvmespec.FeatureHostMemoryBuffer:
		return k.HostMemoryPreferredBytes != 0
	case nvmespec.FeatureTimestamp:
		return k.IO&nvmespec.IOTimestamp != 0
	case nvmespec.FeatureKeepAlive:
		return k.KeepAliveMilliseconds != 0
	case nvmespec.FeatureHostThermal:
		return k.HostThermalManagement
	case nvmespec.FeatureNonOperational:
		return c.has(1 << 1)
	case nvmespec.FeatureReadRecoveryLevel:
		return c.has(1 << 3)
	case nvmespec.FeatureHostBehavior:
		return c.has(nvmespec.AttrExtendedLBAFormats) || k.RetryDelayMilliseconds != [3]uint32{} || k.Logs&nvmespec.LogTelemetryArea4 != 0
	case nvmespec.FeatureSanitizeConfig:
		return k.Sanitize != 0
	case nvmespec.FeatureEnduranceEvents:
		return c.has(nvmespec.AttrEnduranceGroups)
	case nvmespec.FeatureHostID:
		return k.IO&nvmespec.IOReservations != 0
	case nvmespec.FeatureWriteProtection:
		return k.WriteProtection&1 != 0
	}
	return info.Vendor == 0 || info.Vendor == k.VendorID
}

func (c *conversation) features() {
	selects := []nvmespec.FeatureSelect{nvmespec.FeatureCurrent}
	if c.ctrl.IO&nvmespec.IOSaveFeatures != 0 {
		selects = append(selects, nvmespec.FeatureDefault, nvmespec.FeatureSaved, nvmespec.FeatureCapabilities)
	}
	active, _ := admin.ActiveNamespaces(c.ctx, c.dev)
	sensors := c.sensors()
	for _, info := range nvmespec.Features() {
		if !c.mayHave(info) {
			continue
		}
		for _, r := range featureQuestions(info, active, sensors) {
			for _, sel := range selects {
				if c.ctx.Err() != nil {
					return
				}
				r.Select, r.VendorID = sel, c.ctrl.VendorID
				_, err := admin.GetFeature(c.ctx, c.dev, r)
				c.note(err)
				if err != nil && sel == nvmespec.FeatureCurrent {
					break // the drive does not have it
				}
			}
		}
	}
}

// sensors are the temperature sensors that the drive shows, from 1 on; 0 is the
// composite temperature.
func (c *conversation) sensors() []uint32 {
	list := []uint32{0}
	smart, err := admin.SMARTLog(c.ctx, c.dev, nvmespec.BroadcastNSID)
	c.note(err)
	for i, t := range smart.Sensors {
		if t.OK {
			list = append(list, uint32(i+1))
		}
	}
	return list
}

// featureQuestions are the values that one feature has.
func featureQuestions(info nvmespec.FeatureInfo, active, sensors []uint32) []admin.FeatureRequest {
	list := []admin.FeatureRequest{{Feature: info.ID}}
	switch {
	case info.ID == nvmespec.FeatureTemperatureThreshold:
		const under, sensorAt = 1 << 20, 16
		list = list[:0]
		for _, n := range sensors {
			list = append(list, admin.FeatureRequest{Feature: info.ID, CDW11: n << sensorAt},
				admin.FeatureRequest{Feature: info.ID, CDW11: n<<sensorAt | under})
		}
	case info.PerNamespace:
		list = list[:0]
		for _, nsid := range active[:min(len(active), 16)] {
			list = append(list, admin.FeatureRequest{Feature: info.ID, NSID: nsid})
		}
	}
	return list
}
