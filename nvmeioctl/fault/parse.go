package fault

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// scriptMax bounds a script: rules in it, and bytes of it.
const (
	scriptRulesMax = 1024
	scriptMax      = 1 << 20
)

// Help lists the language, a line each: what is written, and what it does.
func Help() [][2]string {
	return [][2]string{
		{"fail 3rd format with 0x4115", "answer with this status in place of carrying it out"},
		{"fail every nsattach with 0x2004", "every such command, not the 3rd"},
		{"drop 2nd delete", "carry it out, lose the answer"},
		{"lose 1st create", "do not carry it out, give no answer either"},
		{"corrupt log 0x02", "damage the data that it returns"},
		{"delay 2s identify", "hold it back before it is carried out"},
		{"after create power-cut", "the power goes after the command; \"before\": before it"},
		{"before 1000th write hang", "no answers until the controller is reset"},
		{"at 10GB spare 4% over 1h", "after so much was written: the available spare falls"},
		{"at 30s temperature 85C over 10m", "after so long: the composite temperature rises"},
		{"now read-only", "the media is read-only (without a trigger: now)"},
		{"media-error read nsid 1 lba 100-199", "blocks cannot be read until they are written again"},
		{"media-error write nsid 1 lba 100", "a block cannot be written"},
		{"activation 2s", "a firmware activation without reset, and how long it takes"},
		{"after 10th read not-ready 2s", "the media is not ready: commands are to be tried again"},
		{"at 10s attach nsid 2", "a namespace comes late, with its event; \"detach\": it goes"},
		{"counter reset", "the vendor's counters start at 0; \"stuck\", \"unit\" and \"lag\" likewise"},
		{"heal", "end what lasts"},
	}
}

// Parse reads a script: rules separated by ";" or newlines, comments from "#"
// to the end of the line. A rule is an effect and when it happens:
//
//	fail|drop|lose|corrupt [every|Nth] COMMAND ...   to one command
//	delay TIME [every|Nth] COMMAND
//	before|after [Nth] COMMAND EFFECT                at a command
//	at SIZE EFFECT                                   when the host has written so much
//	at TIME EFFECT                                   after so long
//	[now] EFFECT                                     at once
//
// COMMAND is create, delete, nsmanage (either), attach, detach, nsattach
// (either), format, sanitize, identify, log (with an optional number),
// getfeature, setfeature, fwdownload, fwcommit, selftest, read, write, flush,
// deallocate or any. EFFECT is power-cut, hang, spare P% [over TIME], read-only,
// temperature NC [over TIME], media-error [read|write] nsid N lba FIRST[-LAST],
// activation TIME, not-ready TIME, attach nsid N, detach nsid N, counter
// reset|stuck|unit|lag, or heal. [Help] has an example of each.
//
// Each rule counts for itself, from 1. Rules apply in the order written. An
// effect on the drive without an ordinal is at the first such command; "every"
// is an error there.
func Parse(script string) (Plan, error) {
	var plan Plan
	if len(script) > scriptMax {
		return plan, fmt.Errorf("fault script of %d bytes: %d is the limit", len(script), scriptMax)
	}
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			words := strings.Fields(text)
			if len(words) == 0 {
				continue
			}
			p := parser{words: words}
			rule, err := p.rule()
			if err != nil {
				return Plan{}, fmt.Errorf("fault %q: %w", strings.TrimSpace(text), err)
			}
			if plan.rules = append(plan.rules, rule); len(plan.rules) > scriptRulesMax {
				return Plan{}, fmt.Errorf("fault script: %d rules are the limit", scriptRulesMax)
			}
		}
	}
	return plan, nil
}

// parser reads the words of one rule.
type parser struct{ words []string }

// next takes the next word, or "" at the end.
func (p *parser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

// literal takes a word that must be there.
func (p *parser) literal(want, after string) error {
	if w := p.next(); w != want {
		return fmt.Errorf("want %s after %s, have %q", want, after, w)
	}
	return nil
}

// commandEffects are the effects on one command, and when they happen.
func commandEffects() map[string]Rule {
	return map[string]Rule{
		"fail":    {Trigger{Moment: Before}, Effect{Kind: Fail}},
		"drop":    {Trigger{Moment: After}, Effect{Kind: Drop}},
		"lose":    {Trigger{Moment: Before}, Effect{Kind: Lose}},
		"corrupt": {Trigger{Moment: After}, Effect{Kind: Corrupt}},
		"delay":   {Trigger{Moment: Before}, Effect{Kind: Delay}},
	}
}

func (p *parser) rule() (r Rule, err error) {
	word := p.peek()
	if own, ok := commandEffects()[word]; ok {
		p.next()
		r, err = p.commandRule(own)
	} else {
		r, err = p.driveRule()
	}
	if err == nil && len(p.words) > 0 {
		err = fmt.Errorf("%q is too much", strings.Join(p.words, " "))
	}
	return r, err
}

func (p *parser) commandRule(r Rule) (Rule, error) {
	var err error
	if r.Effect.Kind == Delay {
		if r.Effect.Time, err = parseTime(p.next(), "delay"); err != nil {
			return r, err
		}
	}
	if r.When.Nth, err = p.which(false); err != nil {
		return r, err
	}
	if r.When.Target, err = p.target(); err != nil {
		return r, err
	}
	if r.Effect.Kind == Fail {
		r.Effect.Status, err = p.status()
	}
	return r, err
}

// driveRule reads a trigger, which may be left out, and an effect on the drive.
func (p *parser) driveRule() (r Rule, err error) {
	r.When.Moment = Now
	switch p.peek() {
	case "now":
		p.next()
	case "before", "after":
		r.When.Moment = Before
		if p.next() == "after" {
			r.When.Moment = After
		}
		if r.When.Nth, err = p.which(true); err != nil {
			return r, err
		}
		if r.When.Target, err = p.target(); err != nil {
			return r, err
		}
	case "at":
		p.next()
		if err = p.at(&r.When); err != nil {
			return r, err
		}
	}
	r.Effect, err = p.effect()
	return r, err
}

// at reads an amount that was written, or a time.
func (p *parser) at(t *Trigger) error {
	word := p.next()
	if d, err := time.ParseDuration(word); err == nil && d > 0 && d <= timeMax {
		t.Moment, t.Time = AtTime, d
		return nil
	}
	if b, ok := parseBytes(word); ok {
		t.Moment, t.Bytes = AtBytes, b
		return nil
	}
	return fmt.Errorf("%q is no time and no amount; they look like 30s and 10GB", word)
}

// driveEffects are the effects on the drive, by name.
func driveEffects() []string {
	return []string{"power-cut", "hang", "spare", "read-only", "temperature", "media-error", "activation", "not-ready", "attach", "detach", "counter", "heal"}
}

func (p *parser) effect() (e Effect, err error) {
	word := p.next()
	switch word {
	case "power-cut":
		e.Kind = PowerCut
	case "hang":
		e.Kind = Hang
	case "read-only":
		e.Kind = ReadOnly
	case "heal":
		e.Kind = Heal
	case "spare":
		e.Kind = Spare
		if e.Percent, err = parsePercent(p.next()); err == nil {
			e.Time, err = p.over()
		}
	case "temperature":
		e.Kind = Temperature
		if e.Celsius, err = parseCelsius(p.next()); err == nil {
			e.Time, err = p.over()
		}
	case "activation", "not-ready":
		e.Kind = Activation
		if word == "not-ready" {
			e.Kind = NotReady
		}
		e.Time, err = parseTime(p.next(), "time")
	case "media-error":
		e.Kind = MediaError
		err = p.mediaError(&e)
	case "attach", "detach":
		e.Kind = Attach
		if word == "detach" {
			e.Kind = Detach
		}
		e.NSID, err = p.nsid(word)
	case "counter":
		e.Kind = Counter
		e.Counter, err = parseCounter(p.next())
	default:
		err = fmt.Errorf("unknown action %q; those are fail, drop, lose, corrupt and delay, and before, after, at or now with %s", word,
			strings.Join(driveEffects(), ", "))
	}
	return e, err
}

// over reads how long a ramp takes; it may be left out.
func (p *parser) over() (time.Duration, error) {
	if p.peek() != "over" {
		return 0, nil
	}
	p.next()
	return parseTime(p.next(), "time")
}

func (p *parser) mediaError(e *Effect) error {
	switch p.peek() {
	case "write":
		e.Write = true
		p.next()
	case "read":
		p.next()
	}
	var err error
	if e.NSID, err = p.nsid("media-error"); err != nil {
		return err
	}
	if err := p.literal("lba", "the namespace"); err != nil {
		return err
	}
	word := p.next()
	first, last, isRange := strings.Cut(word, "-")
	if !isRange {
		last = first
	}
	var err1, err2 error
	e.First, err1 = strconv.ParseUint(first, 10, 63)
	e.Last, err2 = strconv.ParseUint(last, 10, 63)
	if errors.Join(err1, err2) != nil || e.Last < e.First {
		return fmt.Errorf("%q are no logical blocks; they look like 100 or 100-199", word)
	}
	return nil
}

func (p *parser) nsid(after string) (uint32, error) {
	if err := p.literal("nsid", after); err != nil {
		return 0, err
	}
	word := p.next()
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil || n == 0 || uint32(n) >= nvmespec.BroadcastNSID-1 {
		return 0, fmt.Errorf("%q is no namespace; one looks like 1", word)
	}
	return uint32(n), nil
}

// which reads "every" or an ordinal. Without either a rule is about every
// command, or about the first when it happens once.
func (p *parser) which(once bool) (int, error) {
	word := p.peek()
	if word == "" || word[0] < '0' || word[0] > '9' {
		if word == "every" {
			if once {
				return 0, errors.New("this happens once: leave \"every\" out")
			}
			p.next()
			return 0, nil
		}
		if once {
			return 1, nil
		}
		return 0, nil
	}
	p.next()
	digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1<<40 || word != ordinal(n) {
		return 0, fmt.Errorf("%q is no ordinal; one looks like 1st, 2nd, 3rd or 4th", word)
	}
	return n, nil
}

func (p *parser) target() (Target, error) {
	name := p.next()
	info, ok := lookupTarget(name)
	if !ok {
		var names []string
		for _, t := range targets() {
			names = append(names, t.name)
		}
		return Target{}, fmt.Errorf("unknown command %q; those are %s", name, strings.Join(names, ", "))
	}
	t := Target{Name: name, info: info}
	if name != "log" || !strings.HasPrefix(p.peek(), "0x") {
		return t, nil
	}
	word := p.next()
	n, err := strconv.ParseUint(word[2:], 16, 8)
	if err != nil {
		return t, fmt.Errorf("%q is no log page; one looks like 0x02", word)
	}
	t.Log, t.HasLog = nvmespec.LogID(n), true
	return t, nil
}

func (p *parser) status() (nvmespec.Status, error) {
	if err := p.literal("with", "the command"); err != nil {
		return 0, err
	}
	word := p.next()
	digits, ok := strings.CutPrefix(word, "0x")
	n, err := strconv.ParseUint(digits, 16, 15)
	if s := nvmespec.Status(n); ok && err == nil && s.Code() != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no error status; one looks like 0x4115", word)
}

// timeMax bounds times, so that sums of them fit: ten years.
const timeMax = 10 * 365 * 24 * time.Hour

func parseTime(word, what string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 || d > timeMax {
		return 0, fmt.Errorf("%q is no %s; one looks like 2s or 100ms", word, what)
	}
	return d, nil
}

func parsePercent(word string) (uint8, error) {
	digits, ok := strings.CutSuffix(word, "%")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !ok || err != nil || n > 100 {
		return 0, fmt.Errorf("%q is no percentage; one looks like 4%%", word)
	}
	return uint8(n), nil
}

func parseCelsius(word string) (int, error) {
	digits, ok := strings.CutSuffix(word, "C")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < -60 || n > 200 {
		return 0, fmt.Errorf("%q is no temperature; one looks like 85C", word)
	}
	return n, nil
}

func counterNames() [4]string { return [4]string{"reset", "stuck", "unit", "lag"} }

func parseCounter(word string) (CounterFault, error) {
	for i, name := range counterNames() {
		if name == word {
			return CounterReset + CounterFault(i), nil
		}
	}
	names := counterNames()
	return 0, fmt.Errorf("unknown fault of counters %q; those are %s", word, strings.Join(names[:], ", "))
}

// units are the units of amounts, largest first.
func units() []struct {
	name  string
	bytes uint64
} {
	return []struct {
		name  string
		bytes uint64
	}{
		{"PiB", 1 << 50}, {"PB", 1e15}, {"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
		{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
	}
}

// parseBytes reads an amount of data: a whole number and a unit.
func parseBytes(word string) (uint64, bool) {
	for _, u := range units() {
		digits, ok := strings.CutSuffix(word, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		hi, lo := bits.Mul64(n, u.bytes)
		return lo, err == nil && n > 0 && hi == 0 && lo < 1<<63 && digits == strconv.FormatUint(n, 10)
	}
	return 0, false
}
