package endurance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmespec/vendor"
)

// AdminSampler reads a drive's health through its admin commands: SMART, and
// whichever of the endurance group, OCP and vendor logs the drive has. A log that
// the drive says it does not have is not asked for again, since every refused
// command is an entry in the drive's error log. Not safe for concurrent use.
type AdminSampler struct {
	dev  nvmeioctl.Device
	nsid uint32
	// absent are the logs that the drive has refused.
	absent map[string]bool
	// misunits says that the endurance group log counts data units of 512,000
	// bytes, not gigabytes; checked says that this was looked at.
	misunits, checked bool
}

// NewAdminSampler returns a sampler of the controller dev; nsid is the namespace
// that the run writes, whose format is watched.
func NewAdminSampler(dev nvmeioctl.Device, nsid uint32) *AdminSampler {
	return &AdminSampler{dev: dev, nsid: nsid, absent: map[string]bool{}}
}

const (
	sourceSMART  = "SMART 02h: data units written"
	sourceOCP    = "OCP C0h: physical media units written"
	sourceVendor = "vendor CAh: NAND bytes written"
	sourceEG     = "endurance group 09h: media units written"
)

// Sample implements [Sampler]: host counter, media counters, host counter again.
func (a *AdminSampler) Sample(ctx context.Context) (run.Sample, error) {
	c, err := admin.IdentifyController(ctx, a.dev)
	if err != nil {
		return run.Sample{}, err
	}
	ns, err := admin.IdentifyNamespace(ctx, a.dev, a.nsid)
	if err != nil {
		return run.Sample{}, err
	}
	before, err := admin.SMARTLog(ctx, a.dev, nvmespec.BroadcastNSID)
	if err != nil {
		return run.Sample{}, err
	}
	media, err := a.media(ctx, &c, &ns, before)
	if err != nil {
		return run.Sample{}, err
	}
	after := before
	if len(media) != 0 {
		if after, err = admin.SMARTLog(ctx, a.dev, nvmespec.BroadcastNSID); err != nil {
			return run.Sample{}, err
		}
	}
	s := plainSMART(&after)
	s.Media = media
	// 0 may mean "nothing yet" or "not counted": which, the last sample tells.
	s.Host = []run.HostCounter{{
		Source: sourceSMART, UnitBytes: nvmespec.DataUnitBytes,
		Before: plain(before.DataUnitsWritten), After: plain(after.DataUnitsWritten),
	}}
	s.Firmware = c.FirmwareRevision
	s.Identity = c.SubsystemNQN + " " + c.SerialNumber
	if f, ok := ns.Format(); ok {
		s.Format = fmt.Sprintf("%d+%d, %d blocks", f.DataBytes, f.MetadataBytes, ns.SizeBlocks)
	}
	settings, err := a.settings(ctx, c.VendorID)
	if err != nil {
		return run.Sample{}, err
	}
	s.Format += settings
	return s, nil
}

// settings are those that a run's numbers depend on, as the end of the format's
// text: a change of any of them begins a new epoch. The power state is left out
// where the drive changes it by itself.
func (a *AdminSampler) settings(ctx context.Context, vendorID uint16) (string, error) {
	text, transits := "", false
	err := a.try("autonomous power state transitions", func() error {
		t, err := admin.APST(ctx, a.dev)
		if transits = err == nil && t.Transits(); err == nil {
			text = map[bool]string{true: "; APST on", false: "; APST off"}[transits]
		}
		return err
	})
	if err != nil || transits {
		return text, err
	}
	if limit, ok := admin.LookupVendorPowerLimit(vendorID); ok {
		err := a.try(limit.Name, func() error {
			v, err := admin.GetFeature(ctx, a.dev, admin.FeatureRequest{Feature: limit.Feature, VendorID: vendorID})
			if err == nil {
				text = fmt.Sprintf("; %s %d", limit.Name, v.Dword&limit.Mask) + text
			}
			return err
		})
		if err != nil {
			return text, err
		}
	}
	err = a.try("power management", func() error {
		p, err := admin.PowerManagement(ctx, a.dev)
		if err == nil {
			text = fmt.Sprintf("; power state %d", p.State) + text
		}
		return err
	})
	return text, err
}

// plain is a counter as package run has it.
func plain(u nvmespec.Uint128) run.Uint128 { return run.Uint128{Hi: u.Hi, Lo: u.Lo} }

func plainSMART(m *nvmespec.SMART) run.Sample {
	s := run.Sample{
		HostReadUnits:         plain(m.DataUnitsRead),
		PercentageUsed:        m.UsedPercent,
		SparePercent:          m.SparePercent,
		SpareThresholdPercent: m.SpareThresholdPercent,
		SpareAvailable:        m.SpareReported(),
		CriticalWarning:       uint8(m.CriticalWarning),
		MediaErrors:           plain(m.MediaErrors),
		UnsafeShutdowns:       plain(m.UnsafeShutdowns),
		PowerCycles:           plain(m.PowerCycles),
		PowerOnHours:          plain(m.PowerOnHours),
		ErrorLogEntries:       plain(m.ErrorLogEntries),
		WarningTempMinutes:    m.WarningTemperatureMinutes,
		CriticalTempMinutes:   m.CriticalTemperatureMinutes,
		ThermalTransitions:    uint64(m.ThermalTransitions[0]) + uint64(m.ThermalTransitions[1]),
		ThermalSeconds:        uint64(m.ThermalSeconds[0]) + uint64(m.ThermalSeconds[1]),
	}
	if t, ok := m.Temperature.Get(); ok {
		s.TemperatureKelvin = t.Kelvin()
	}
	return s
}

// media reads the media counters, the one with the finest unit first.
func (a *AdminSampler) media(ctx context.Context, c *nvmespec.Controller, ns *nvmespec.Namespace, smart nvmespec.SMART) ([]run.MediaCounter, error) {
	var found []run.MediaCounter
	err := a.try(sourceOCP, func() error {
		h, err := admin.OCPHealthLog(ctx, a.dev)
		if err == nil {
			found = append(found, run.MediaCounter{Source: sourceOCP, Units: plain(h.MediaBytesWritten()), UnitBytes: 1})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = a.try(sourceVendor, func() error {
		h, err := admin.VendorHealthLog(ctx, a.dev, c.VendorID)
		if err == nil {
			q, _ := h.NANDWrittenBytes.DivMod64(h.UnitBytes)
			found = append(found, run.MediaCounter{Source: vendorSource(h.Layout, h.UnitAssumed), Units: plain(q), UnitBytes: h.UnitBytes})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	group := ns.EnduranceGroupID
	if group == 0 && c.EnduranceGroupIDMax != 0 {
		group = 1
	}
	if group == 0 {
		return found, nil
	}
	err = a.try(sourceEG, func() error {
		g, err := admin.EnduranceGroupLog(ctx, a.dev, group)
		if err != nil {
			return err
		}
		m := run.MediaCounter{Source: fmt.Sprintf("%s (group %d)", sourceEG, group), Units: plain(g.MediaWrittenGB), UnitBytes: nvmespec.EGUnitBytes}
		if a.dataUnits(g, smart) {
			m.Source, m.UnitBytes = m.Source+", in data units", nvmespec.DataUnitBytes
		}
		found = append(found, m)
		return nil
	})
	return found, err
}

func vendorSource(layout string, assumed bool) string {
	s := sourceVendor + " (" + layout
	if assumed {
		s += ", unit assumed"
	}
	return s + ")"
}

// dataUnits says whether the endurance group log counts data units of 512,000
// bytes. Most drives count 10^9 bytes, as the specification has it, but one
// transcription of it says otherwise: if so its host counter is 1953 times what
// SMART says. It is looked at once, as soon as SMART can tell.
func (a *AdminSampler) dataUnits(g nvmespec.EnduranceGroup, smart nvmespec.SMART) bool {
	const enough = 10_000_000_000 // bytes; ten units of the coarser kind
	if !a.checked && smart.BytesWritten().Float64() > enough && !g.WrittenGB.IsZero() {
		a.misunits = g.BytesWritten().Float64() > 50*smart.BytesWritten().Float64()
		a.checked = true
	}
	return a.misunits
}

// try reads one log unless the drive has said that it does not have it. Anything
// else that goes wrong fails the sample, since a counter that comes and goes
// would look like a new epoch.
func (a *AdminSampler) try(log string, read func() error) error {
	if a.absent[log] {
		return nil
	}
	err := read()
	switch {
	case err == nil:
		return nil
	case admin.IsUnsupported(err), errors.Is(err, nvmespec.ErrInvalidData), errors.Is(err, vendor.ErrUnknownLog):
		a.absent[log] = true
		return nil
	}
	return err
}

// healthReader reads health in a goroutine of its own, so that a drive that does
// not answer delays nothing.
type healthReader struct {
	sampler Sampler
	asks    chan struct{}
	results chan run.Sample
	done    chan struct{}
	// Of the asking goroutine: since when an answer is due, and whether that
	// was told.
	waiting bool
	since   nvmeioctl.Instant
	told    bool
}

func newHealthReader(ctx context.Context, s Sampler) *healthReader {
	h := &healthReader{sampler: s, asks: make(chan struct{}), results: make(chan run.Sample, 1), done: make(chan struct{})}
	if s == nil {
		close(h.done)
		return h
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(h.done)
		for range h.asks {
			h.results <- readHealth(ctx, s)
		}
	}()
	return h
}

func readHealth(ctx context.Context, s Sampler) run.Sample {
	ctx, cancel := context.WithTimeout(ctx, sampleDeadline)
	defer cancel()
	sample, err := s.Sample(ctx)
	if err != nil {
		return run.Sample{Failure: err.Error()}
	}
	return sample
}

// ask starts a reading unless one is under way.
func (h *healthReader) ask(now nvmeioctl.Instant) bool {
	if h.sampler == nil || h.waiting {
		return false
	}
	h.asks <- struct{}{}
	h.waiting, h.since, h.told = true, now, false
	return true
}

// answered notes that a result was taken.
func (h *healthReader) answered() { h.waiting = false }

// overdue says, once, that the drive has not answered in time.
func (h *healthReader) overdue(now nvmeioctl.Instant) string {
	if !h.waiting || h.told || now.Sub(h.since) < sampleDeadline+time.Second {
		return ""
	}
	h.told = true
	return "the drive does not answer: health not read within " + sampleDeadline.String()
}

// stop ends the goroutine, and waits for it unless the drive does not answer.
func (h *healthReader) stop() {
	if h.sampler == nil {
		return
	}
	close(h.asks)
	select {
	case <-h.done:
	case <-time.After(sampleDeadline):
	}
}

// edgeLead is how many seconds before an expected edge of a slow counter, and
// at most how many after, it is read every second.
const edgeLead = 3

// poll decides when health is read: at a steady interval, and every second
// around the moment at which a media counter that changes more rarely than that
// is expected to change. Reading costs the drive something, so it is not done
// every second throughout.
type poll struct {
	interval int64 // seconds
	next     int64
	last     run.Uint128
	known    bool
	// edge is the second at which the counter last changed, and period its
	// distance from the change before; 0 when not known or not slow.
	edge, period int64
}

func newPoll(intervalSeconds int64) poll { return poll{interval: max(intervalSeconds, 1)} }

// due says whether a sample is to be taken in a second.
func (p *poll) due(second int64) bool { return second >= p.next }

// taken notes a sample and plans the next.
func (p *poll) taken(second int64, s *run.Sample) {
	p.next = second + p.interval
	if s.Failure != "" || len(s.Media) == 0 {
		return
	}
	units := s.Media[0].Units
	if p.known && units != p.last {
		// A change within one interval says that the counter is not slow.
		if p.period = 0; p.edge != 0 && second-p.edge > p.interval+1 {
			p.period = second - p.edge
		}
		p.edge = second
	}
	p.last, p.known = units, true
	if p.period == 0 {
		return
	}
	switch expected := p.edge + p.period; {
	case second < expected-edgeLead:
		p.next = min(p.next, expected-edgeLead)
	case second < expected+edgeLead:
		p.next = second + 1
	}
}
