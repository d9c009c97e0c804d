package vm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The guest speaks in lines on its second serial port, where no message of the
// kernel can break into a line:
//
//	nvop-vm: boot SECONDS            the command is about to run
//	nvop-vm: case NAME start
//	nvop-vm: | TEXT                  what the running case printed
//	nvop-vm: case NAME pass|fail|skip MILLISECONDS
//	nvop-vm: ask WORD...             something only the host can do
//	nvop-vm: note TEXT
//	nvop-vm: exit CODE               the command has ended; the last line
const linePrefix = "nvop-vm: "

// Outcome is how a case ended.
type Outcome string

// The outcomes. Missing is a case that was asked for and never reported.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
	Missing Outcome = "missing"
)

// CaseResult is one case as the guest reported it.
type CaseResult struct {
	Name    string
	Outcome Outcome
	// Duration is the time the case took in the guest.
	Duration time.Duration
	// Output is what the case printed, line by line, cut to a bounded length.
	Output []string
}

// Report is what the guest said during one boot.
type Report struct {
	// BootSeconds is the guest's uptime when the command started; 0 when it
	// never did.
	BootSeconds float64
	// Exited says that the command ended and reported ExitCode. A boot without
	// it died, whatever the cases before said.
	Exited   bool
	ExitCode int
	Cases    []CaseResult
	Notes    []string

	started string // the case that has started and not ended
	output  []string
}

// line takes one line of the guest and returns the words of an "ask" line. Lines
// that are not of the protocol are kept as notes: they show what went wrong.
func (r *Report) line(s string) (ask []string, err error) {
	s = strings.TrimRight(s, "\r\n")
	rest, ok := strings.CutPrefix(s, linePrefix)
	if !ok {
		if s != "" {
			r.Notes = append(r.Notes, "not understood: "+s)
		}
		return nil, nil
	}
	verb, rest, _ := strings.Cut(rest, " ")
	switch verb {
	case "|":
		r.output = append(r.output, rest)
	case "note":
		r.Notes = append(r.Notes, rest)
	case "ask":
		return strings.Fields(rest), nil
	case "boot":
		r.BootSeconds, err = strconv.ParseFloat(rest, 64)
	case "exit":
		r.ExitCode, err = strconv.Atoi(rest)
		r.Exited = err == nil
	case "case":
		err = r.caseLine(strings.Fields(rest))
	default:
		r.Notes = append(r.Notes, "not understood: "+s)
	}
	if err != nil {
		return nil, fmt.Errorf("vm: line %q of the guest: %w", s, err)
	}
	return nil, nil
}

func (r *Report) caseLine(words []string) error {
	if len(words) == 2 && words[1] == "start" {
		r.started, r.output = words[0], nil
		return nil
	}
	if len(words) != 3 {
		return fmt.Errorf("%d words, want NAME OUTCOME MILLISECONDS", len(words))
	}
	ms, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return err
	}
	outcome := Outcome(words[1])
	if outcome != Passed && outcome != Failed && outcome != Skipped {
		return fmt.Errorf("unknown outcome")
	}
	r.Cases = append(r.Cases, CaseResult{
		Name: words[0], Outcome: outcome,
		Duration: time.Duration(ms) * time.Millisecond, Output: r.output,
	})
	r.started, r.output = "", nil
	return nil
}

// Case returns what is known of one case. A case that started and did not end
// is missing, with the output it had.
func (r *Report) Case(name string) CaseResult {
	for _, c := range r.Cases {
		if c.Name == name {
			return c
		}
	}
	c := CaseResult{Name: name, Outcome: Missing}
	if name == r.started {
		c.Output = r.output
	}
	return c
}
