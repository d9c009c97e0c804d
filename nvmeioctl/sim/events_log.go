package sim

import (
	"errors"
	"slices"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

const (
	// persistentBytes is how long the persistent event log may become (PELS);
	// the oldest events go first.
	persistentBytes = 64 << 10
	// persistentEventsMax bounds what a state file may hold.
	persistentEventsMax = 4096
	// snapshotHours is how often a SMART snapshot is logged, power-on hours.
	snapshotHours = 24
	eventRevision = 1
	eventHead     = 24
)

// persistent is the persistent event log, oldest event first.
type persistent struct {
	// Generation counts changes of the log.
	Generation uint16        `json:"generation"`
	Events     []loggedEvent `json:"events,omitempty"`
	// SnapshotHour is the power-on hour of the last SMART snapshot.
	SnapshotHour uint64 `json:"snapshot_hour,omitempty"`
}

// loggedEvent is one event.
type loggedEvent struct {
	Type       uint8  `json:"type"`
	Controller uint16 `json:"controller"`
	// Time is the timestamp feature at the time, as on the wire.
	Time []byte `json:"time"`
	Data []byte `json:"data"`
}

func (p *persistent) validate() error {
	if len(p.Events) > persistentEventsMax {
		return errors.New("too many persistent events")
	}
	for _, e := range p.Events {
		if len(e.Time) != nvmespec.TimestampSize || len(e.Data) > 1<<12 {
			return errors.New("a persistent event of a wrong length")
		}
	}
	return nil
}

// logged are the types of events that the drives log.
func loggedTypes() []nvmespec.EventType {
	return []nvmespec.EventType{
		nvmespec.EventSMARTSnapshot, nvmespec.EventFirmwareCommit, nvmespec.EventTimestampChange, nvmespec.EventPowerOnReset,
		nvmespec.EventHardwareError, nvmespec.EventChangeNamespace, nvmespec.EventFormatStart, nvmespec.EventFormatCompletion,
		nvmespec.EventSanitizeStart, nvmespec.EventSanitizeComplete, nvmespec.EventSetFeature, nvmespec.EventTelemetryCreate,
		nvmespec.EventThermalExcursion,
	}
}

// timestampAt is the timestamp feature of a controller at an instant.
func (st *state) timestampAt(controller int, ns int64) nvmespec.Timestamp {
	c := &st.Controllers[controller]
	v, set := findFeature(c.Current, featureValue{FID: featureTimestamp})
	t, since := nvmespec.Timestamp{}, c.ResetNS
	if set {
		if d, err := nvmespec.DecodeTimestamp(v.Data); err == nil {
			t, since = d, v.SetNS
			t.Origin = 1
		}
	}
	t.Milliseconds = (t.Milliseconds + uint64(max(ns-since, 0)/1e6)) & (1<<48 - 1)
	return t
}

// logEvent puts an event in the persistent event log of a drive that has one.
func (st *state) logEvent(ns int64, t nvmespec.EventType, controller int, data []byte) {
	if st.Profile.LogAttributes&lpaPersistent == 0 {
		return
	}
	p := &st.Persistent
	p.Generation++
	p.Events = append(p.Events, loggedEvent{
		Type: uint8(t), Controller: st.Profile.FirstController + uint16(controller),
		Time: st.timestampAt(controller, ns).Append(nil), Data: data,
	})
	size := nvmespec.PersistentHeaderSize
	for _, e := range p.Events {
		size += eventHead + len(e.Data)
	}
	drop := 0
	for size > persistentBytes {
		size -= eventHead + len(p.Events[drop].Data)
		drop++
	}
	p.Events = slices.Delete(p.Events, 0, drop)
}

// snapshot logs the SMART log.
func (st *state) logSnapshot(d *Drive) {
	st.Persistent.SnapshotHour = hours(int64(d.clock.Now()))
	st.logEvent(int64(d.clock.Now()), nvmespec.EventSMARTSnapshot, 0, d.smart().Append(nil))
}

// logPowerOn logs that the subsystem was powered on or reset.
func (st *state) logPowerOn(now nvmeioctl.Instant, activated bool) {
	e := nvmespec.ResetEvent{FirmwareRevision: st.Firmware.Running}
	for i := range st.Controllers {
		e.Controllers = append(e.Controllers, nvmespec.ResetInformation{
			ControllerID: st.Profile.FirstController + uint16(i), FirmwareActivated: activated,
			PowerCycle: uint32(st.PowerCycles), PowerOnMilliseconds: uint64(now) / 1e6, Time: st.timestampAt(i, int64(now)),
		})
	}
	st.logEvent(int64(now), nvmespec.EventPowerOnReset, 0, e.Append(nil))
}

// eventsOf is what a successful command leaves in the persistent event log. It is
// called with the state that is about to be saved; start is when the command
// began, before is the state from before it.
func (r *request) eventsOf(before *state, start nvmeioctl.Instant) func(*state, uint32, nvmespec.Status) {
	cmd, d := r.cmd, r.d
	return func(st *state, result uint32, s nvmespec.Status) {
		now := int64(d.clock.Now())
		switch cmd.Opcode {
		case nvmespec.AdminNamespaceManage:
			r.logNamespaces(before, st, now, result)
		case nvmespec.AdminFormatNVM:
			st.logEvent(int64(start), nvmespec.EventFormatStart, r.c, nvmespec.FormatStartEvent{
				NSID: cmd.NSID, Attributes: nvmespec.FormatAttributes(st.Profile.FormatAttributes), Command: cmd.CDW10}.Append(nil))
			st.logEvent(now, nvmespec.EventFormatCompletion, r.c, nvmespec.FormatDoneEvent{NSID: cmd.NSID}.Append(nil))
		case nvmespec.AdminFirmwareCommit:
			st.logEvent(now, nvmespec.EventFirmwareCommit, r.c, nvmespec.FirmwareCommitEvent{
				OldRevision: before.Firmware.Running, NewRevision: st.commitRevision(cmd.CDW10),
				Action: uint8(cmd.CDW10 >> 3 & 7), Slot: uint8(cmd.CDW10 & 7), Status: s.Code()}.Append(nil))
		case nvmespec.AdminSanitize:
			if st.Sanitize.State == nvmespec.SanitizeRunning {
				st.logEvent(now, nvmespec.EventSanitizeStart, r.c, nvmespec.SanitizeStartEvent{
					Capabilities: nvmespec.SanitizeCapabilities(st.Profile.Sanitize), Command: cmd.CDW10, Pattern: cmd.CDW11}.Append(nil))
			}
		case nvmespec.AdminSetFeatures:
			r.logFeature(before, st, now)
		}
	}
}

// commitRevision is the revision that a firmware commit is about.
func (st *state) commitRevision(cdw10 uint32) string {
	if slot := int(cdw10 & 7); slot >= 1 && slot <= len(st.Firmware.Slots) {
		return st.Firmware.Slots[slot-1]
	}
	return st.Firmware.Running
}

func (r *request) logNamespaces(before, st *state, now int64, result uint32) {
	log := func(ns *namespace, command uint32) {
		st.logEvent(now, nvmespec.EventChangeNamespace, r.c, nvmespec.NamespaceEvent{
			Command: command, NSID: ns.NSID, SizeBlocks: ns.SizeBlocks, CapacityBlocks: ns.SizeBlocks, FormatIndex: ns.FormatIndex,
			MetadataExtended: ns.ExtendedMetadata, Protection: ns.Protection, Shared: ns.Shared}.Append(nil))
	}
	if r.cmd.CDW10&15 == nvmespec.SelectCreate {
		if ns := st.find(result); ns != nil {
			log(ns, nvmespec.SelectCreate)
		}
		return
	}
	for i := range before.Namespaces {
		if ns := &before.Namespaces[i]; st.find(ns.NSID) == nil {
			log(ns, nvmespec.SelectDelete)
		}
	}
}

func (r *request) logFeature(before, st *state, now int64) {
	if uint8(r.cmd.CDW10) == featureTimestamp {
		c := &before.Controllers[r.c]
		st.logEvent(now, nvmespec.EventTimestampChange, r.c, nvmespec.TimestampEvent{
			Previous: before.timestampAt(r.c, now), SinceResetMilliseconds: uint64(max(now-c.ResetNS, 0) / 1e6)}.Append(nil))
		return
	}
	e := nvmespec.SetFeatureEvent{Dwords: []uint32{r.cmd.CDW10, r.cmd.CDW11}}
	if f, ok := lookupFeature(&st.Profile, uint8(r.cmd.CDW10)); ok && f.dataBytes > 0 && len(r.cmd.Data) >= f.dataBytes {
		e.Memory = slices.Clone(r.cmd.Data[:f.dataBytes])
	}
	st.logEvent(now, nvmespec.EventSetFeature, r.c, e.Append(nil))
}

// hardwareError is the code that the drives log for a failure of the medium
// (NVM Subsystem Hardware Error Event Codes, 0Ah: unrecoverable media error is
// the vendor's; chosen).
const hardwareErrorCode = 0x0A

// logTrouble logs what a failed command says of the hardware.
func (d *Drive) logTrouble(s nvmespec.Status) {
	if s.SCT() == 2 && s.Code() != nvmespec.StatusCompareFailure && s.Code() != nvmespec.StatusAccessDenied {
		d.st.logEvent(int64(d.clock.Now()), nvmespec.EventHardwareError, 0, nvmespec.HardwareErrorEvent{Code: hardwareErrorCode}.Append(nil))
	}
	d.captureOnError(s)
}

// settleEvents logs what only time brings: a SMART snapshot a day, and that the
// temperature is above the warning threshold. They are saved with the next change.
func (d *Drive) settleEvents(now int64) {
	st := d.st
	if st.Profile.LogAttributes&lpaPersistent == 0 {
		return
	}
	if h := hours(now); h >= st.Persistent.SnapshotHour+snapshotHours {
		st.logSnapshot(d)
	}
	if limit := st.Profile.WarningKelvin; limit != 0 && d.trouble {
		kelvin := d.counters().Kelvin
		if hot := kelvin >= limit; hot && !d.hot {
			st.logEvent(now, nvmespec.EventThermalExcursion, 0, nvmespec.ThermalEvent{OverDegrees: uint8(min(kelvin-limit, 255)), Threshold: 1}.Append(nil))
		}
		d.hot = kelvin >= limit
	}
}

// Actions of the persistent event log (LSP).
const (
	eventsRead      = 0
	eventsEstablish = 1
	eventsRelease   = 2
)

// persistentLog is the persistent event log, newest event first. A reporting
// context is a copy that stands still; a reset of its controller drops it.
func persistentLog(r *request, f nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	page, exists := r.d.contexts[r.c]
	switch f.Specific {
	case eventsRead:
		if !exists {
			_, s := r.fail(nvmespec.StatusSequence, paramCDW10+1)
			return nil, s
		}
	case eventsEstablish:
		if exists {
			_, s := r.fail(nvmespec.StatusSequence, paramCDW10+1)
			return nil, s
		}
		page = r.d.persistentPage(r.c)
		r.d.contexts[r.c] = page
	case eventsRelease:
		delete(r.d.contexts, r.c)
		return make([]byte, nvmespec.PersistentHeaderSize), nvmespec.StatusSuccess
	default:
		_, s := r.fail(nvmespec.StatusInvalidField, paramCDW10+1)
		return nil, s
	}
	return page, nvmespec.StatusSuccess
}

// persistentPage makes the whole log.
func (d *Drive) persistentPage(controller int) []byte {
	st, c := d.st, d.controller(controller)
	now := int64(d.clock.Now())
	l := nvmespec.PersistentLog{Header: nvmespec.PersistentHeader{
		Revision: 1, Time: st.timestampAt(controller, now), PowerOnHours: nvmespec.U128(hours(now)), PowerCycles: st.PowerCycles,
		VendorID: c.VendorID, SubsystemVendorID: c.SubsystemVendorID, SerialNumber: c.SerialNumber, ModelNumber: c.ModelNumber,
		SubsystemNQN: c.SubsystemNQN, Generation: st.Persistent.Generation,
	}.WithSupported(loggedTypes()...)}
	for _, e := range slices.Backward(st.Persistent.Events) {
		at, err := nvmespec.DecodeTimestamp(e.Time)
		if err != nil {
			continue
		}
		l.Events = append(l.Events, nvmespec.PersistentEvent{
			Type: nvmespec.EventType(e.Type), Revision: eventRevision, PortType: 3, ControllerID: e.Controller, Time: at, Data: e.Data})
	}
	return l.Append(nil)
}

// featureEffectsLog is the feature identifiers supported and effects log.
func featureEffectsLog(r *request, _ nvmespec.GetLogFields) ([]byte, nvmespec.Status) {
	const scopeNamespace, scopeController = 1 << 20, 1 << 21
	var e nvmespec.FeatureEffects
	for _, f := range featureSpecs() {
		if f.needs != nil && !f.needs(r.profile()) {
			continue
		}
		e[f.fid] = nvmespec.FeatureSupported | scopeController
		if f.perNamespace {
			e[f.fid] = nvmespec.FeatureSupported | scopeNamespace
		}
	}
	return e.Append(nil), nvmespec.StatusSuccess
}
