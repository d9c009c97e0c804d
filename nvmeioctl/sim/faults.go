package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
)

// Bounds of what a drive may be told to suffer.
const (
	armedRulesMax = 1024
	badRangesMax  = 4096
)

// faultState is what a drive was told to suffer and has not got over. It is
// saved with the drive, so that any process that opens it meets it.
type faultState struct {
	Rules []armedRule `json:"rules,omitempty"`
	// Spare is the available spare in thousandths of a percent, Heat the
	// composite temperature in thousandths of a kelvin; nil is the model's own.
	Spare    *faultRamp `json:"spare,omitempty"`
	Heat     *faultRamp `json:"heat,omitempty"`
	ReadOnly bool       `json:"read_only,omitempty"`
	Bad      []badRange `json:"bad,omitempty"`
	// MediaErrors counts commands that failed at bad blocks.
	MediaErrors uint64       `json:"media_errors,omitempty"`
	Thermal     thermalCount `json:"thermal,omitzero"`
	// StatusChanges counts how often the blocks that are known to be unreadable
	// have become others (LSGC of log 0Eh); it wraps around.
	StatusChanges uint16 `json:"lba_status_changes,omitempty"`
	// Counter is how the vendor's counters misbehave; nil is not at all.
	Counter *counterTrouble `json:"counter,omitempty"`
}

// armedRule is a rule that waits for its time, and what it has counted.
type armedRule struct {
	Text string `json:"rule"`
	// Count is how many commands it has matched.
	Count int `json:"count,omitempty"`
	// SinceNS and SinceBytes are the drive's clock and what the host had
	// written when it was armed.
	SinceNS    int64  `json:"since_ns"`
	SinceBytes uint64 `json:"since_bytes"`

	rule fault.Rule
}

// faultRamp is a value that moves from one to another.
type faultRamp struct {
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`
}

// at is the value at a time.
func (r *faultRamp) at(ns int64) int64 {
	switch {
	case ns >= r.EndNS:
		return r.To
	case ns <= r.StartNS:
		return r.From
	}
	share := float64(ns-r.StartNS) / float64(r.EndNS-r.StartNS)
	return r.From + int64(share*float64(r.To-r.From))
}

// badRange is blocks that cannot be read, or cannot be written.
type badRange struct {
	NSID  uint32 `json:"nsid"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Write bool   `json:"write,omitempty"`
	// Told says that a host made them so (Write Uncorrectable): not the flash is
	// bad but what is in it, and that goes when it is erased.
	Told bool `json:"told,omitempty"`
	// Found says that the drive knows of it: something that was read was not readable.
	Found bool `json:"found,omitempty"`
}

// known says that the drive can say of the range, without a look at the medium,
// that it cannot be read.
func (b *badRange) known() bool { return !b.Write && (b.Told || b.Found) }

// clone shares nothing that changes.
func (f *faultState) clone() faultState {
	c := *f
	c.Rules, c.Bad = slices.Clone(f.Rules), slices.Clone(f.Bad)
	return c // ramps are replaced, never changed
}

// compile reads the rules' texts, and checks all else: the state may be hostile.
func (f *faultState) compile() error {
	if len(f.Rules) > armedRulesMax || len(f.Bad) > badRangesMax {
		return errors.New("too many faults")
	}
	for i := range f.Rules {
		p, err := fault.Parse(f.Rules[i].Text)
		if err != nil {
			return err
		}
		if len(p.Rules()) != 1 || f.Rules[i].Count < 0 {
			return fmt.Errorf("fault %q is not one rule", f.Rules[i].Text)
		}
		f.Rules[i].rule = p.Rules()[0]
	}
	if f.Counter != nil && (f.Counter.Kind < fault.CounterReset || f.Counter.Kind > fault.CounterLag) {
		return errors.New("unknown fault of counters")
	}
	for _, b := range f.Bad {
		if b.First > b.Last || b.NSID == 0 {
			return errors.New("bad blocks out of order")
		}
	}
	for _, r := range []*faultRamp{f.Spare, f.Heat} {
		if r != nil && (r.EndNS < r.StartNS || min(r.From, r.To) < 0 || max(r.From, r.To) > 1e6) {
			return errors.New("a faulty value is out of range")
		}
	}
	return nil
}

// lookForTrouble notes whether anything is armed or wrong.
func (d *Drive) lookForTrouble() {
	f := &d.st.Faults
	d.trouble = len(f.Rules) > 0 || len(f.Bad) > 0 || f.ReadOnly || f.Spare != nil || f.Heat != nil || f.Counter != nil || d.hung || d.off || d.notReadyNS > 0
}

// Arm adds the rules of a plan; their counts and times begin now. What is to
// happen now has happened when it returns. Rules are saved with the drive.
func (d *Drive) Arm(plan fault.Plan) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	d.settle()
	if len(d.st.Faults.Rules)+len(plan.Rules()) > armedRulesMax {
		return fmt.Errorf("%s: %d rules of faults are the limit", d.name, armedRulesMax)
	}
	var now []fault.Effect
	err := d.change(func(st *state) {
		for _, r := range plan.Rules() {
			if r.When.Moment == fault.Now {
				now = append(now, r.Effect)
				continue
			}
			st.Faults.Rules = append(st.Faults.Rules, armedRule{
				Text: r.String(), SinceNS: int64(d.clock.Now()), SinceBytes: d.writtenBytes(), rule: r})
		}
	})
	for _, e := range now {
		err = errors.Join(err, d.suffer(e))
	}
	return err
}

// Disarm forgets all rules that wait. What has happened stays: see the effect
// "heal".
func (d *Drive) Disarm() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	return d.change(func(st *state) { st.Faults.Rules = nil })
}

// Faults lists what is armed and what is wrong, in the language of package fault.
func (d *Drive) Faults() (armed, wrong []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &d.st.Faults
	for _, r := range f.Rules {
		armed = append(armed, r.Text)
	}
	now := int64(d.clock.Now())
	say := func(yes bool, e fault.Effect) {
		if yes {
			wrong = append(wrong, e.String())
		}
	}
	say(d.off, fault.Effect{Kind: fault.PowerCut})
	say(d.hung, fault.Effect{Kind: fault.Hang})
	if r := f.Spare; r != nil {
		say(true, fault.Effect{Kind: fault.Spare, Percent: uint8(r.To / 1000), Time: time.Duration(max(r.EndNS-now, 0))})
	}
	say(f.ReadOnly, fault.Effect{Kind: fault.ReadOnly})
	if r := f.Heat; r != nil {
		say(true, fault.Effect{Kind: fault.Temperature, Celsius: int(r.To/1000) - 273, Time: time.Duration(max(r.EndNS-now, 0))})
	}
	for _, b := range f.Bad {
		say(true, fault.Effect{Kind: fault.MediaError, NSID: b.NSID, First: b.First, Last: b.Last, Write: b.Write})
	}
	if f.Counter != nil {
		say(true, fault.Effect{Kind: fault.Counter, Counter: f.Counter.Kind})
	}
	say(d.notReadyNS > now, fault.Effect{Kind: fault.NotReady, Time: time.Duration(d.notReadyNS - now)})
	return armed, wrong
}

// ServeHosts says that hosts have the drive over a network, and live by clock:
// a delay is slept there, and a command without an answer gets none at once,
// since the host has a time-out of its own and resets the controller itself. Nil
// is the drive's virtual time again, in which a hang lasts until the command's
// time-out resets the controller.
func (d *Drive) ServeHosts(clock nvmeioctl.Clock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = clock
}

// PowerOff says that a fault has cut the power.
func (d *Drive) PowerOff() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// PowerOn gives the power back after a fault has cut it.
func (d *Drive) PowerOn() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	d.off = false
	d.lookForTrouble()
	d.notify()
	return nil
}

// Shutdown is an orderly end of a drive's day: what is in a volatile cache goes
// to the medium, and the drive is saved. Faults do not keep it from that.
func (d *Drive) Shutdown() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.lost(); err != nil {
		return err
	}
	if k := d.kept(); k != nil && k.cache != nil {
		if err := k.cache.destage(nsidAll); err != nil {
			return fmt.Errorf("%s: contents: %w", d.name, err)
		}
	}
	return d.save()
}

// Tick takes in what the clock has brought and wakes those who wait for an
// event. Who moves the clock of a drive that hosts have calls it.
func (d *Drive) Tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost() == nil {
		d.settle()
		d.notify()
	}
}

// ProcessingPaused says that the controllers stop for a firmware activation
// (CSTS.PP).
func (d *Drive) ProcessingPaused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.st.Firmware.BusyUntilNS > int64(d.clock.Now())
}

// writtenBytes is what the host has written.
func (d *Drive) writtenBytes() uint64 {
	if f := d.flash(); f != nil {
		return f.count.writeBytes
	}
	return 0
}

// change changes the state and saves it. On an error nothing has changed.
func (d *Drive) change(f func(*state)) error {
	before := d.st
	d.st = before.clone()
	f(d.st)
	if err := d.save(); err != nil {
		d.st, d.lastSaveError = before, err
		d.lookForTrouble()
		return err
	}
	d.lookForTrouble()
	d.notify()
	return nil
}

// due lets happen what waited for a time or an amount.
func (d *Drive) due() {
	now, written := int64(d.clock.Now()), d.writtenBytes()
	var effects []fault.Effect
	d.st.Faults.Rules = slices.DeleteFunc(d.st.Faults.Rules, func(a armedRule) bool {
		w := &a.rule.When
		hit := w.Moment == fault.AtTime && now-a.SinceNS >= int64(w.Time) ||
			w.Moment == fault.AtBytes && written-a.SinceBytes >= w.Bytes
		if hit {
			effects = append(effects, a.rule.Effect)
		}
		return hit
	})
	for _, e := range effects {
		if err := d.suffer(e); err != nil {
			d.lastSaveError = err
		}
	}
}

// hits counts a command and gives the rules whose turn it is; those that happen
// once are forgotten.
func (d *Drive) hits(io bool, opcode uint8, cdw10 uint32) []fault.Rule {
	var hits []fault.Rule
	rules := d.st.Faults.Rules
	gone := false
	for i := range rules {
		a := &rules[i]
		if !a.rule.Matches(io, opcode, cdw10) {
			continue
		}
		a.Count++
		if nth := a.rule.When.Nth; nth == 0 || nth == a.Count {
			hits = append(hits, a.rule)
			gone = gone || nth != 0
		}
	}
	if gone {
		d.st.Faults.Rules = slices.DeleteFunc(rules, func(a armedRule) bool {
			nth := a.rule.When.Nth
			return nth != 0 && a.Count >= nth
		})
	}
	return hits
}

// suffer lets an effect on the drive happen. The lock is held.
func (d *Drive) suffer(e fault.Effect) error {
	now := int64(d.clock.Now())
	switch e.Kind {
	case fault.PowerCut:
		return d.cutPower()
	case fault.Hang:
		d.hung = true
	case fault.NotReady:
		d.notReadyNS = now + int64(e.Time)
	case fault.Activation:
		return d.change(func(st *state) {
			st.Firmware.BusyUntilNS = now + int64(e.Time)
			st.firmwareActivating()
		})
	case fault.Attach, fault.Detach:
		return d.attachLate(e)
	case fault.Counter:
		return d.counterFault(e.Counter)
	case fault.Heal:
		d.thermal() // up to now
		d.hung, d.notReadyNS = false, 0
		err := d.change(func(st *state) { st.Faults = st.Faults.healed() })
		d.applyPower()
		d.warnAnew()
		return err
	case fault.Spare, fault.Temperature, fault.ReadOnly, fault.MediaError:
		if e.Kind == fault.MediaError {
			if err := d.checkBad(e); err != nil {
				return err
			}
		}
		d.thermal() // up to now
		spare, heat := int64(d.counters().SpareRatio*100_000), int64(d.counters().Kelvin)*1000
		err := d.change(func(st *state) { st.Faults.set(e, now, spare, heat) })
		d.settle() // it may be a reason to warn at once
		return err
	}
	d.lookForTrouble()
	d.notify()
	return nil
}

// healed is without what lasts; what was counted stays counted.
func (f *faultState) healed() faultState {
	h := faultState{Rules: f.Rules, MediaErrors: f.MediaErrors, Thermal: f.Thermal, StatusChanges: f.StatusChanges}
	if slices.ContainsFunc(f.Bad, func(b badRange) bool { return b.known() }) {
		h.StatusChanges++
	}
	h.Thermal.Above = [2]bool{}
	return h
}

// set takes in a condition that lasts; spare and heat are what they were.
func (f *faultState) set(e fault.Effect, now, spare, heat int64) {
	ramp := func(from, to int64) *faultRamp {
		return &faultRamp{From: min(max(from, 0), 1e6), To: to, StartNS: now, EndNS: now + int64(e.Time)}
	}
	switch e.Kind {
	case fault.Spare:
		f.Spare = ramp(spare, int64(e.Percent)*1000)
	case fault.Temperature:
		f.Heat = ramp(heat, (int64(e.Celsius)+273)*1000)
	case fault.ReadOnly:
		f.ReadOnly = true
	case fault.MediaError:
		f.Bad = append(f.Bad, badRange{NSID: e.NSID, First: e.First, Last: e.Last, Write: e.Write})
	}
}

// checkBad says why blocks cannot go bad.
func (d *Drive) checkBad(e fault.Effect) error {
	ns := d.st.find(e.NSID)
	switch {
	case ns == nil:
		return fmt.Errorf("%s: fault %q: there is no namespace %d", d.name, e, e.NSID)
	case e.Last >= ns.SizeBlocks:
		return fmt.Errorf("%s: fault %q: namespace %d has %d logical blocks", d.name, e, e.NSID, ns.SizeBlocks)
	case len(d.st.Faults.Bad) >= badRangesMax:
		return fmt.Errorf("%s: %d ranges of bad blocks are the limit", d.name, badRangesMax)
	}
	return nil
}

// attachLate attaches a namespace to the controllers that may have it, or
// detaches it from all.
func (d *Drive) attachLate(e fault.Effect) error {
	ns := d.st.find(e.NSID)
	if ns == nil {
		return fmt.Errorf("%s: fault %q: there is no namespace %d", d.name, e, e.NSID)
	}
	mask := uint8(1<<len(d.st.Controllers) - 1)
	if !ns.Shared {
		mask = 1
	}
	changed := mask &^ ns.Attached
	if e.Kind == fault.Detach {
		mask, changed = 0, ns.Attached
	} else if !ns.Shared && ns.Attached != 0 {
		mask, changed = ns.Attached, 0
	}
	return d.change(func(st *state) {
		st.find(e.NSID).Attached = mask
		st.namespaceChanged(changed, e.NSID)
	})
}

// cutPower takes the power away: what is in a volatile cache is lost now, and
// the shutdown is counted as an unsafe one. The drive answers nothing until
// PowerOn, or until it is opened again.
func (d *Drive) cutPower() error {
	if d.off {
		return nil
	}
	err := d.change(func(st *state) { d.powerCycledState(st, false) })
	d.off, d.hung, d.notReadyNS = true, false, 0
	d.lookForTrouble()
	d.notify()
	return err
}

// powerCycledState is what losing and getting back power does.
func (d *Drive) powerCycledState(st *state, clean bool) {
	st.PowerCycles++
	if !clean {
		st.UnsafeShutdowns++
	}
	d.powerCycled(clean)
	running := st.Firmware.Running
	st.resetAll(d.clock.Now(), ResetByPowerCycle)
	st.logPowerOn(d.clock.Now(), st.Firmware.Running != running)
	clear(d.contexts)
}

// counters is what the media count, and what the faults make of it.
func (d *Drive) counters() mediaCounters {
	m := d.media.counters()
	f, now := &d.st.Faults, int64(d.clock.Now())
	if f.Spare != nil {
		// Half a thousandth of a percent keeps rounding down from losing one.
		m.SpareRatio = min((float64(f.Spare.at(now))+0.5)/100_000, 1)
	}
	if f.Heat != nil {
		m.Kelvin = uint16((f.Heat.at(now) + 500) / 1000)
	}
	m.MediaErrors += f.MediaErrors
	return m
}

// faultWarnings are the critical warnings that the model knows nothing of.
func (d *Drive) faultWarnings() nvmespec.CriticalWarning {
	if d.st.Faults.ReadOnly {
		return nvmespec.WarningReadOnly
	}
	return 0
}

// unpowered is what is answered without power: nothing.
func (d *Drive) unpowered() error {
	return fmt.Errorf("%s: %w (fault: the power is off)", d.name, nvmeioctl.ErrDeviceGone)
}

// noAnswer is what the kernel says of a command that it gave up waiting for.
func (d *Drive) noAnswer(cmd *nvmeioctl.Command, why string) error {
	return fmt.Errorf("%s: command %02xh: %w (fault: %s)", d.name, cmd.Opcode, nvmeioctl.ErrIndeterminate, why)
}

// cutAt is what the kernel says of a command during which the power went: whether
// it was carried out cannot be told.
func (d *Drive) cutAt(cmd *nvmeioctl.Command, when string) error {
	return fmt.Errorf("%w: %w", d.noAnswer(cmd, "the power was cut "+when+" it"), nvmeioctl.ErrDeviceGone)
}

// wait lets time pass in the host's world, with the lock given up.
func (d *Drive) wait(ctx context.Context, t time.Duration) error {
	hosts := d.hosts
	d.mu.Unlock()
	defer d.mu.Lock()
	return hosts.Sleep(ctx, t)
}
