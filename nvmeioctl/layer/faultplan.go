package layer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// FaultPlan is a parsed fault expression. It is immutable; its zero value has no
// faults.
type FaultPlan struct{ rules []faultRule }

type faultAction uint8

const (
	actFail faultAction = iota + 1
	actDrop
	actLose
	actCutBefore
	actCutAfter
	actCorrupt
	actDelay
)

type faultRule struct {
	action faultAction
	nth    int // counted from 1; 0 is every
	target faultTarget
	status nvmespec.Status
	delay  time.Duration
}

// faultTarget is which commands a rule is about.
type faultTarget struct {
	name string
	// log is the LID of a "log" with a number.
	log    nvmespec.LogID
	hasLog bool
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

func (t faultTarget) matches(cmd *nvmeioctl.Command) bool {
	info, ok := lookupTarget(t.name)
	switch {
	case !ok:
		return false
	case info.any:
		return true
	case cmd.IO != info.io || cmd.Opcode != info.opcode:
		return false
	case info.sel >= 0 && int(cmd.CDW10&15) != info.sel:
		return false
	}
	return !t.hasLog || nvmespec.LogID(cmd.CDW10) == t.log
}

func (t faultTarget) String() string {
	if t.hasLog {
		return fmt.Sprintf("%s 0x%02x", t.name, uint8(t.log))
	}
	return t.name
}

// ParseFaults parses a fault expression: rules separated by ";" or newlines,
// comments from "#" to the end of the line.
//
//	fail 3rd format with 0x4115    this status in place of carrying it out
//	fail every nsattach with 0x2004
//	drop 2nd delete                carried out, the answer lost
//	lose 1st create                not carried out, no answer either
//	after create power-cut         carried out, then the power goes
//	before 2nd attach power-cut    the power goes first
//	corrupt log 0x02               the data comes back damaged
//	delay 2s identify              slept before it is sent
//
// A rule is about every such command, or the Nth; each rule counts for itself,
// from 1. The commands are create, delete, nsmanage (either), attach, detach,
// nsattach (either), format, sanitize, identify, log (with an optional number),
// getfeature, setfeature, fwdownload, fwcommit, selftest, read, write, flush,
// deallocate and any. Rules apply in the order written. A power cut without an
// ordinal is at the first such command; "every" is an error there.
func ParseFaults(expr string) (FaultPlan, error) {
	var plan FaultPlan
	for line := range strings.Lines(expr) {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			words := strings.Fields(text)
			if len(words) == 0 {
				continue
			}
			p := faultParser{words: words}
			rule, err := p.rule()
			if err != nil {
				return FaultPlan{}, fmt.Errorf("fault %q: %w", strings.TrimSpace(text), err)
			}
			plan.rules = append(plan.rules, rule)
		}
	}
	return plan, nil
}

// faultParser reads the words of one rule.
type faultParser struct{ words []string }

// next takes the next word, or "" at the end.
func (p *faultParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *faultParser) rule() (r faultRule, err error) {
	action := p.next()
	switch action {
	case "fail":
		r.action = actFail
	case "drop":
		r.action = actDrop
	case "lose":
		r.action = actLose
	case "after":
		r.action = actCutAfter
	case "before":
		r.action = actCutBefore
	case "corrupt":
		r.action = actCorrupt
	case "delay":
		r.action = actDelay
		if r.delay, err = parseDelay(p.next()); err != nil {
			return r, err
		}
	default:
		return r, fmt.Errorf("unknown action %q; those are fail, drop, lose, before, after, corrupt and delay", action)
	}
	if r.nth, err = p.which(r.action); err != nil {
		return r, err
	}
	if r.target, err = p.target(); err != nil {
		return r, err
	}
	switch r.action {
	case actFail:
		r.status, err = p.status()
	case actCutAfter, actCutBefore:
		if w := p.next(); w != "power-cut" {
			err = fmt.Errorf("want power-cut after the command, have %q", w)
		}
	}
	if err == nil && len(p.words) > 0 {
		err = fmt.Errorf("%q is too much", strings.Join(p.words, " "))
	}
	return r, err
}

func parseDelay(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no delay; one looks like 2s or 100ms", word)
	}
	return d, nil
}

// which reads "every" or an ordinal. Without either a rule is about every
// command, or about the first when it cuts the power.
func (p *faultParser) which(action faultAction) (int, error) {
	once := action == actCutAfter || action == actCutBefore
	if len(p.words) == 0 || p.words[0] == "" || p.words[0][0] < '0' || p.words[0][0] > '9' {
		if len(p.words) > 0 && p.words[0] == "every" {
			if once {
				return 0, fmt.Errorf("the power goes once: leave \"every\" out")
			}
			p.next()
			return 0, nil
		}
		if once {
			return 1, nil
		}
		return 0, nil
	}
	word := p.next()
	digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1<<20 || word != ordinal(n) {
		return 0, fmt.Errorf("%q is no ordinal; one looks like 1st, 2nd, 3rd or 4th", word)
	}
	return n, nil
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

func (p *faultParser) target() (faultTarget, error) {
	name := p.next()
	if _, ok := lookupTarget(name); !ok {
		var names []string
		for _, t := range targets() {
			names = append(names, t.name)
		}
		return faultTarget{}, fmt.Errorf("unknown command %q; those are %s", name, strings.Join(names, ", "))
	}
	t := faultTarget{name: name}
	if name != "log" || len(p.words) == 0 || !strings.HasPrefix(p.words[0], "0x") {
		return t, nil
	}
	word := p.next()
	n, err := strconv.ParseUint(word[2:], 16, 8)
	if err != nil {
		return t, fmt.Errorf("%q is no log page; one looks like 0x02", word)
	}
	t.log, t.hasLog = nvmespec.LogID(n), true
	return t, nil
}

func (p *faultParser) status() (nvmespec.Status, error) {
	if w := p.next(); w != "with" {
		return 0, fmt.Errorf("want \"with STATUS\" after the command, have %q", w)
	}
	word := p.next()
	digits, ok := strings.CutPrefix(word, "0x")
	n, err := strconv.ParseUint(digits, 16, 15)
	if s := nvmespec.Status(n); ok && err == nil && s.Code() != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no error status; one looks like 0x4115", word)
}

// String is the plan as an expression that parses to the same plan.
func (p FaultPlan) String() string {
	var rules []string
	for _, r := range p.rules {
		rules = append(rules, r.String())
	}
	return strings.Join(rules, "; ")
}

func (r faultRule) String() string {
	which := "every "
	if r.nth > 0 {
		which = ordinal(r.nth) + " "
	}
	target := which + r.target.String()
	switch r.action {
	case actFail:
		return fmt.Sprintf("fail %s with 0x%04x", target, uint16(r.status))
	case actDrop:
		return "drop " + target
	case actLose:
		return "lose " + target
	case actCutAfter:
		return "after " + target + " power-cut"
	case actCutBefore:
		return "before " + target + " power-cut"
	case actCorrupt:
		return "corrupt " + target
	case actDelay:
		return fmt.Sprintf("delay %v %s", r.delay, target)
	}
	return ""
}
