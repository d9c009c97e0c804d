package sim

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// Features that other parts of the drive look at.
const (
	featurePower       = uint8(nvmespec.FeaturePowerManagement)
	featureThreshold   = uint8(nvmespec.FeatureTemperatureThreshold)
	featureEvents      = uint8(nvmespec.FeatureAsyncEvents)
	featureTimestamp   = uint8(nvmespec.FeatureTimestamp)
	featureVendorPower = uint8(nvmespec.FeatureMemblazePower)
	// featureHostBehavior says what the host can cope with.
	featureHostBehavior = uint8(nvmespec.FeatureHostBehavior)
)

// featureValue is a feature that was set. Sub tells apart the values of one
// feature: the temperature thresholds by sensor and direction.
type featureValue struct {
	FID   uint8  `json:"fid"`
	Sub   uint8  `json:"sub"`
	NSID  uint32 `json:"nsid"`
	Value uint32 `json:"value"`
	Data  []byte `json:"data"`
	// SetNS is the drive's clock when it was set: a timestamp runs on from there.
	SetNS int64 `json:"set_ns"`
}

func compareFeatures(a, b featureValue) int {
	return cmp.Or(cmp.Compare(a.FID, b.FID), cmp.Compare(a.Sub, b.Sub), cmp.Compare(a.NSID, b.NSID))
}

func findFeature(values []featureValue, key featureValue) (featureValue, bool) {
	if i, ok := slices.BinarySearchFunc(values, key, compareFeatures); ok {
		return values[i], true
	}
	return featureValue{}, false
}

func putFeature(values []featureValue, v featureValue) []featureValue {
	i, ok := slices.BinarySearchFunc(values, v, compareFeatures)
	if ok {
		values[i] = v
		return values
	}
	return slices.Insert(values, i, v)
}

// featureSpec is what a model does with a feature.
type featureSpec struct {
	fid          uint8
	needs        func(*Profile) bool // nil: every model has it
	saveable     bool
	perNamespace bool
	fixed        bool // it cannot be changed
	dataBytes    int
	// mask has the bits of dword 11 that mean something.
	mask     uint32
	standard func(*Profile, featureValue) featureValue // the default; nil is 0
	check    func(*Profile, featureValue) nvmespec.Status
}

// featureSpecs is the table of features.
func featureSpecs() []featureSpec {
	return []featureSpec{
		{fid: uint8(nvmespec.FeatureArbitration), saveable: true, mask: 0xFFFFFF07,
			standard: value(func(*Profile) uint32 { return nvmespec.Arbitration{BurstLog2: 7}.Dword() })},
		{fid: featurePower, saveable: true, mask: 0xFF, check: checkPowerState},
		{fid: featureThreshold, mask: 0x3FFFFF, standard: defaultThreshold, check: checkThreshold},
		{fid: uint8(nvmespec.FeatureErrorRecovery), saveable: true, perNamespace: true, mask: 0xFFFF},
		{fid: uint8(nvmespec.FeatureWriteCache), needs: func(p *Profile) bool { return p.VolatileWriteCache }, saveable: true, mask: 1,
			standard: value(func(*Profile) uint32 { return nvmespec.WriteCache{Enabled: true}.Dword() })},
		{fid: uint8(nvmespec.FeatureQueueCount), fixed: true, mask: 0xFFFFFFFF,
			standard: value(func(*Profile) uint32 { return nvmespec.QueueCount{Submission: 128, Completion: 128}.Dword() })},
		{fid: uint8(nvmespec.FeatureInterruptCoalescing), saveable: true, mask: 0xFFFF},
		{fid: uint8(nvmespec.FeatureInterruptVector), mask: 0x1FFFF},
		{fid: uint8(nvmespec.FeatureWriteAtomicity), saveable: true, mask: 1},
		{fid: featureEvents, saveable: true, mask: 0x1F | oaesNamespace | oaesFirmware,
			// Chosen: hosts set it anyway, and whoever does not still hears.
			standard: value(func(p *Profile) uint32 { return 0x1F | p.EventSupport&(oaesNamespace|oaesFirmware) })},
		{fid: uint8(nvmespec.FeatureAPST), needs: func(p *Profile) bool { return p.AutonomousTransitions }, saveable: true,
			dataBytes: nvmespec.APSTSize, mask: 1, check: checkAPST},
		{fid: featureTimestamp, needs: func(p *Profile) bool { return p.NVMCommands&uint16(nvmespec.IOTimestamp) != 0 },
			dataBytes: nvmespec.TimestampSize, check: checkTimestamp},
		{fid: featureHostBehavior, needs: (*Profile).extendedFormats, dataBytes: nvmespec.HostBehaviorSize, standard: defaultHostBehavior, check: checkHostBehavior},
		{fid: featureVendorPower, needs: func(p *Profile) bool { return p.VendorPowerFeature }, saveable: true, mask: 0x1F, check: checkPowerState},
	}
}

// value makes a default of a dword.
func value(f func(*Profile) uint32) func(*Profile, featureValue) featureValue {
	return func(p *Profile, v featureValue) featureValue {
		v.Value = f(p)
		return v
	}
}

func lookupFeature(p *Profile, fid uint8) (featureSpec, bool) {
	for _, f := range featureSpecs() {
		if f.fid == fid && (f.needs == nil || f.needs(p)) {
			return f, true
		}
	}
	return featureSpec{}, false
}

// defaultValue is the value that a feature has out of the box.
func (f *featureSpec) defaultValue(p *Profile, key featureValue) featureValue {
	v := featureValue{FID: key.FID, Sub: key.Sub, NSID: key.NSID, Data: make([]byte, f.dataBytes)}
	if f.standard != nil {
		v = f.standard(p, v)
	}
	return v
}

// savedValue is what a feature has after a reset.
func (c *controllerState) savedValue(p *Profile, f *featureSpec, key featureValue) featureValue {
	if v, ok := findFeature(c.Saved, key); ok {
		return v
	}
	return f.defaultValue(p, key)
}

// currentValue is what a feature has now.
func (c *controllerState) currentValue(p *Profile, f *featureSpec, key featureValue) featureValue {
	if v, ok := findFeature(c.Current, key); ok {
		return v
	}
	return c.savedValue(p, f, key)
}

// feature is the current dword of a feature, 0 if the model lacks it.
func (c *controllerState) feature(p *Profile, fid uint8) uint32 {
	f, ok := lookupFeature(p, fid)
	if !ok {
		return 0
	}
	return c.currentValue(p, &f, featureValue{FID: fid}).Value
}

func checkPowerState(p *Profile, v featureValue) nvmespec.Status {
	if int(v.Value&0x1F) >= len(p.PowerStates) {
		return nvmespec.StatusInvalidField
	}
	return nvmespec.StatusSuccess
}

// thresholdKey finds which of the temperature thresholds a dword names.
func thresholdKey(dw uint32) (sub uint8, ok bool) {
	t := nvmespec.DecodeTemperatureThreshold(dw)
	// The drives have the composite temperature only; sensor 15 is all.
	if t.Sensor != 0 && t.Sensor != 15 || dw>>20&3 > 1 {
		return 0, false
	}
	return uint8(dw >> 20 & 3), true
}

// defaultHostBehavior has extended LBA formats enabled, as Linux does at once:
// whoever has the drive without a kernel in between has nobody else to do it.
func defaultHostBehavior(_ *Profile, v featureValue) featureValue {
	v.Data = nvmespec.HostBehavior{ExtendedLBAFormats: true}.Append(nil)
	return v
}

func checkHostBehavior(_ *Profile, v featureValue) nvmespec.Status {
	h, err := nvmespec.DecodeHostBehavior(v.Data)
	if err != nil || h.ExtendedTelemetry || h.DispersedNamespaces || h.CopyFormats != 0 || !bytes.Equal(h.Append(nil), v.Data) {
		return nvmespec.StatusInvalidField
	}
	return nvmespec.StatusSuccess
}

// hasFormat says that the controller's host may use an LBA format.
func (r *request) hasFormat(index uint8) bool {
	return int(index) < r.visibleFormats()
}

// visibleFormats is how many LBA formats the controller's host sees.
func (r *request) visibleFormats() int {
	p := r.profile()
	if !p.extendedFormats() {
		return len(p.Formats)
	}
	f, _ := lookupFeature(p, featureHostBehavior)
	v := r.state().Controllers[r.c].currentValue(p, &f, featureValue{FID: featureHostBehavior})
	if h, err := nvmespec.DecodeHostBehavior(v.Data); err == nil && h.ExtendedLBAFormats {
		return len(p.Formats)
	}
	return plainFormats
}

func defaultThreshold(p *Profile, v featureValue) featureValue {
	if v.Sub == 0 {
		v.Value = uint32(p.WarningKelvin)
	} else {
		v.Value = 1 << 20
	}
	return v
}

func checkThreshold(_ *Profile, v featureValue) nvmespec.Status {
	if _, ok := thresholdKey(v.Value); !ok {
		return nvmespec.StatusInvalidField
	}
	return nvmespec.StatusSuccess
}

func checkAPST(p *Profile, v featureValue) nvmespec.Status {
	t, err := nvmespec.DecodeAPST(v.Value, v.Data)
	if err != nil || !bytes.Equal(t.Append(nil), v.Data) {
		return nvmespec.StatusInvalidField
	}
	for _, e := range t.Transitions {
		if e.Target == 0 {
			continue
		}
		if int(e.Target) >= len(p.PowerStates) || !p.PowerStates[e.Target].NonOperational {
			return nvmespec.StatusInvalidField
		}
	}
	return nvmespec.StatusSuccess
}

func checkTimestamp(_ *Profile, v featureValue) nvmespec.Status {
	if v.Data[6] != 0 || v.Data[7] != 0 {
		return nvmespec.StatusInvalidField
	}
	return nvmespec.StatusSuccess
}

// featureKey finds which value of a feature the command means.
func (r *request) featureKey(f *featureSpec, set bool) (featureValue, nvmespec.Status) {
	key := featureValue{FID: f.fid}
	if f.fid == featureThreshold {
		sub, ok := thresholdKey(r.cmd.CDW11)
		if !ok {
			_, s := r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
			return key, s
		}
		key.Sub = sub
	}
	nsid := r.cmd.NSID
	switch {
	case !f.perNamespace && set && nsid != 0 && nsid != nsidAll:
		_, s := r.fail(nvmespec.StatusNotPerNamespace, paramNSID)
		return key, s
	case !f.perNamespace:
		return key, nvmespec.StatusSuccess
	case nsid == 0, nsid == nsidAll && !set, nsid != nsidAll && nsid > r.profile().MaxNamespaces:
		_, s := r.fail(nvmespec.StatusInvalidNamespace, paramNSID)
		return key, s
	case nsid != nsidAll && !r.active(nsid):
		_, s := r.fail(nvmespec.StatusInvalidField, paramNSID)
		return key, s
	}
	key.NSID = nsid
	return key, nvmespec.StatusSuccess
}

// getFeatures carries out Get Features.
func getFeatures(r *request) (uint32, nvmespec.Status) {
	f, ok := lookupFeature(r.profile(), uint8(r.cmd.CDW10))
	if !ok {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10)
	}
	sel := nvmespec.FeatureSelect(r.cmd.CDW10 >> 8 & 7)
	selects := r.profile().NVMCommands&uint16(nvmespec.IOSaveFeatures) != 0
	if sel > nvmespec.FeatureCapabilities || sel != nvmespec.FeatureCurrent && !selects || r.cmd.CDW14 != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+1)
	}
	if f.fid != featureThreshold && f.fid != uint8(nvmespec.FeatureInterruptVector) && r.cmd.CDW11 != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
	}
	if sel == nvmespec.FeatureCapabilities {
		return nvmespec.FeatureCaps{Saveable: f.saveable, PerNamespace: f.perNamespace, Changeable: !f.fixed}.Dword(), nvmespec.StatusSuccess
	}
	key, s := r.featureKey(&f, false)
	if s != 0 {
		return 0, s
	}
	c, p := &r.state().Controllers[r.c], r.profile()
	var v featureValue
	switch sel {
	case nvmespec.FeatureDefault:
		v = f.defaultValue(p, key)
	case nvmespec.FeatureSaved:
		v = c.savedValue(p, &f, key)
	default:
		v = c.currentValue(p, &f, key)
	}
	if f.dataBytes == 0 {
		return v.Value, nvmespec.StatusSuccess
	}
	data := v.Data
	if f.fid == featureTimestamp {
		data = r.timestamp(v)
	}
	if _, s := r.reply(data); s != 0 {
		return 0, s
	}
	return v.Value, nvmespec.StatusSuccess
}

// timestamp lets a timestamp run on from when it was set.
func (r *request) timestamp(v featureValue) []byte {
	t, err := nvmespec.DecodeTimestamp(v.Data)
	if err != nil {
		t = nvmespec.Timestamp{}
	}
	c, since := &r.state().Controllers[r.c], v.SetNS
	if _, set := findFeature(c.Current, v); set {
		t.Origin = 1
	} else {
		t.Milliseconds, since = 0, c.ResetNS
	}
	elapsed := time.Duration(int64(r.d.clock.Now()) - since)
	t.Milliseconds = (t.Milliseconds + uint64(elapsed.Milliseconds())) & (1<<48 - 1)
	return t.Append(nil)
}

// setFeatures carries out Set Features.
func setFeatures(r *request) (uint32, nvmespec.Status) {
	p := r.profile()
	f, ok := lookupFeature(p, uint8(r.cmd.CDW10))
	if !ok {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10)
	}
	save := r.cmd.CDW10>>31 != 0
	if r.cmd.CDW12 != 0 || r.cmd.CDW13 != 0 || r.cmd.CDW14 != 0 || r.cmd.CDW15 != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+8)
	}
	if save && !f.saveable {
		return r.fail(nvmespec.StatusNotSaveable, paramCDW10+3|7<<8)
	}
	if f.fid == uint8(nvmespec.FeatureQueueCount) {
		// The queues exist: only before the first may their number be set.
		return r.fail(nvmespec.StatusSequence, paramCDW10)
	}
	if f.fixed {
		return r.fail(nvmespec.StatusNotChangeable, paramCDW10)
	}
	key, s := r.featureKey(&f, true)
	if s != 0 {
		return 0, s
	}
	if r.cmd.CDW11&^f.mask != 0 {
		return r.fail(nvmespec.StatusInvalidField, paramCDW10+4)
	}
	if len(r.cmd.Data) < f.dataBytes {
		return r.fail(nvmespec.StatusDataTransfer, paramNone)
	}
	key.Value, key.SetNS = r.cmd.CDW11, int64(r.d.clock.Now())
	key.Data = slices.Clone(r.cmd.Data[:f.dataBytes])
	if f.check != nil {
		if s := f.check(p, key); s != 0 {
			return r.fail(s, paramCDW10+4)
		}
	}
	result, s := r.d.commit(func(st *state) (uint32, nvmespec.Status) {
		st.setFeature(r.c, key, save)
		return 0, nvmespec.StatusSuccess
	})
	if s == nvmespec.StatusSuccess {
		r.d.applyPower()
	}
	return result, s
}

// setFeature stores a value; NSID FFFFFFFFh is every attached namespace.
func (st *state) setFeature(index int, v featureValue, save bool) {
	c := &st.Controllers[index]
	nsids := []uint32{v.NSID}
	if v.NSID == nsidAll {
		nsids = nil
		for i := range st.Namespaces {
			if st.Namespaces[i].Attached>>index&1 != 0 {
				nsids = append(nsids, st.Namespaces[i].NSID)
			}
		}
	}
	if ps := v.Value & 0x1F; v.FID == featurePower && !st.Profile.PowerStates[ps].NonOperational {
		c.Operational = uint8(ps)
	}
	for _, v.NSID = range nsids {
		c.Current = putFeature(c.Current, v)
		if save {
			c.Saved = putFeature(c.Saved, v)
		}
	}
}
