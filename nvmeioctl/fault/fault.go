package fault

import (
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// Moment is when a rule takes effect.
type Moment uint8

// The moments.
const (
	// Now is when the rule is armed.
	Now Moment = iota + 1
	// Before and After are the Nth of the commands that the rule is about,
	// before it is carried out or after.
	Before
	After
	// AtBytes is when the host has written so much since the rule was armed.
	AtBytes
	// AtTime is so long after the rule was armed, on the drive's clock.
	AtTime
)

// Trigger is when a rule takes effect.
type Trigger struct {
	Moment Moment
	// Nth is which of the commands, counted from 1; 0 is each of them. For
	// Before and After only.
	Nth    int
	Target Target
	// Bytes that the host has written, for AtBytes.
	Bytes uint64
	// Time on the drive's clock, for AtTime.
	Time time.Duration
}

// EffectKind is what happens.
type EffectKind uint8

// The effects. The first five happen to one command, the others to the drive.
const (
	// Fail answers a command with Status in place of carrying it out.
	Fail EffectKind = iota + 1
	// Drop carries a command out and loses the answer.
	Drop
	// Lose does not carry a command out, and gives no answer.
	Lose
	// Corrupt damages the data that a command returns.
	Corrupt
	// Delay holds a command back for Time before it is carried out.
	Delay
	// PowerCut takes the power away: what is in a volatile cache is lost.
	PowerCut
	// Hang stops all answers until the controller is reset.
	Hang
	// Spare brings the available spare to Percent, over Time.
	Spare
	// ReadOnly makes the media read-only, as at the end of life.
	ReadOnly
	// Temperature brings the composite temperature to Celsius, over Time.
	Temperature
	// MediaError makes logical blocks First to Last of NSID unreadable until
	// they are written again, or unwritable where Write is set.
	MediaError
	// Activation is a firmware activation without reset that takes Time: the
	// controllers stop, and tell those hosts that asked to hear of it.
	Activation
	// NotReady is media that is not ready for Time: I/O commands are answered
	// with Namespace Not Ready, admin commands that need the media with Admin
	// Command Media Not Ready, both to be tried again.
	NotReady
	// Attach attaches NSID, which exists, to all controllers that it may be
	// attached to, as a namespace that comes late does. Detach is the opposite.
	Attach
	Detach
	// Counter makes a counter of the vendor's log misbehave: see CounterFault.
	Counter
	// Heal ends what lasts: the drive is again as its model says.
	Heal
)

// CounterFault is how a drive's own counters of its flash misbehave.
type CounterFault uint8

// The faults of counters, as they were seen on real drives.
const (
	// CounterReset lets the counters begin anew at 0.
	CounterReset CounterFault = iota + 1
	// CounterStuck lets erase counts read FFFFh (65535) and never move.
	CounterStuck
	// CounterUnit counts bytes in another unit than the log's layout says.
	CounterUnit
	// CounterLag shows the counters as they were an hour ago.
	CounterLag
)

// Effect is what happens. Fields that its kind does not name are zero.
type Effect struct {
	Kind EffectKind
	// Status is what Fail answers, not 0.
	Status nvmespec.Status
	// Time is how long: a delay, a ramp (0 is at once), an activation.
	Time time.Duration
	// Percent of spare that is left, 0 to 100.
	Percent uint8
	// Celsius is the temperature that is reached, -60 to 200.
	Celsius int
	// NSID and the logical blocks First to Last of it, both included.
	NSID        uint32
	First, Last uint64
	// Write says that MediaError is about writes.
	Write bool
	// Counter is for the kind Counter.
	Counter CounterFault
}

// OnCommand says that the effect happens to one command, not to the drive.
func (e Effect) OnCommand() bool { return e.Kind >= Fail && e.Kind <= Delay }

// Rule is one effect and when it happens. Make one with [Parse].
type Rule struct {
	When   Trigger
	Effect Effect
}

// Once says that the rule is done when it has taken effect.
func (r Rule) Once() bool { return r.When.Nth != 0 || r.When.Moment > After || r.When.Moment == Now }

// Matches says whether the rule counts a command. cdw10 is its dword 10.
func (r Rule) Matches(io bool, opcode uint8, cdw10 uint32) bool {
	return (r.When.Moment == Before || r.When.Moment == After) && r.When.Target.Matches(io, opcode, cdw10)
}

// Plan is a script: rules in the order written. Its zero value has none.
type Plan struct{ rules []Rule }

// NewPlan makes a plan of rules.
func NewPlan(rules ...Rule) Plan { return Plan{rules: rules} }

// Rules are the rules of the plan, which must not be changed.
func (p Plan) Rules() []Rule { return p.rules }

// Split takes the plan apart: what happens to one command, which any device can
// suffer, or power cuts at one; and what only a drive's own model can do.
func (p Plan) Split() (device, drive Plan) {
	for _, r := range p.rules {
		cut := r.Effect.Kind == PowerCut && (r.When.Moment == Before || r.When.Moment == After)
		if r.Effect.OnCommand() || cut {
			device.rules = append(device.rules, r)
		} else {
			drive.rules = append(drive.rules, r)
		}
	}
	return device, drive
}

// Target is which commands a rule is about.
type Target struct {
	Name string
	// Log is the number of a log page, where HasLog is set.
	Log    nvmespec.LogID
	HasLog bool

	info targetInfo
}

// targetInfo says what a target's name means.
type targetInfo struct {
	name   string
	any    bool
	io     bool
	opcode uint8
	// sel is the value of CDW10 bits 3:0; -1 is any.
	sel int
}

func targets() []targetInfo {
	return []targetInfo{
		{name: "create", opcode: nvmespec.AdminNamespaceManage, sel: nvmespec.SelectCreate},
		{name: "delete", opcode: nvmespec.AdminNamespaceManage, sel: nvmespec.SelectDelete},
		{name: "nsmanage", opcode: nvmespec.AdminNamespaceManage, sel: -1},
		{name: "attach", opcode: nvmespec.AdminNamespaceAttach, sel: nvmespec.SelectAttach},
		{name: "detach", opcode: nvmespec.AdminNamespaceAttach, sel: nvmespec.SelectDetach},
		{name: "nsattach", opcode: nvmespec.AdminNamespaceAttach, sel: -1},
		{name: "format", opcode: nvmespec.AdminFormatNVM, sel: -1},
		{name: "sanitize", opcode: nvmespec.AdminSanitize, sel: -1},
		{name: "identify", opcode: nvmespec.AdminIdentify, sel: -1},
		{name: "log", opcode: nvmespec.AdminGetLogPage, sel: -1},
		{name: "getfeature", opcode: nvmespec.AdminGetFeatures, sel: -1},
		{name: "setfeature", opcode: nvmespec.AdminSetFeatures, sel: -1},
		{name: "fwdownload", opcode: nvmespec.AdminFirmwareDownload, sel: -1},
		{name: "fwcommit", opcode: nvmespec.AdminFirmwareCommit, sel: -1},
		{name: "selftest", opcode: nvmespec.AdminDeviceSelfTest, sel: -1},
		{name: "read", io: true, opcode: nvmespec.IOOpRead, sel: -1},
		{name: "write", io: true, opcode: nvmespec.IOOpWrite, sel: -1},
		{name: "flush", io: true, opcode: nvmespec.IOOpFlush, sel: -1},
		{name: "deallocate", io: true, opcode: nvmespec.IOOpDatasetManagement, sel: -1},
		{name: "any", any: true},
	}
}

func lookupTarget(name string) (targetInfo, bool) {
	for _, t := range targets() {
		if t.name == name {
			return t, true
		}
	}
	return targetInfo{}, false
}

// Matches says whether a command is one of the target's.
func (t Target) Matches(io bool, opcode uint8, cdw10 uint32) bool {
	i := &t.info
	switch {
	case i.any:
		return true
	case i.name == "" || io != i.io || opcode != i.opcode:
		return false
	case i.sel >= 0 && int(cdw10&15) != i.sel:
		return false
	}
	return !t.HasLog || nvmespec.LogID(cdw10&0xFF) == t.Log
}
