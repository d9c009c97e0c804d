package audit

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is the judgement of some drives by a policy.
type Report struct {
	Schema string `json:"schema"`
	// Policy is the file.
	Policy  string  `json:"policy"`
	Drives  []Drive `json:"drives"`
	Skipped []Drive `json:"not_covered"`
	// Findings are those about the policy itself: a rule that fits no drive.
	Findings []Finding `json:"findings"`
	Summary  string    `json:"summary"`
}

// ReportSchema names the JSON form of a Report.
const ReportSchema = "nvop.audit/1"

// Clean says that there is nothing to report.
func (r Report) Clean() bool {
	for _, d := range r.Drives {
		if len(d.Findings) > 0 {
			return false
		}
	}
	return len(r.Findings) == 0
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name  string         `xml:"name,attr"`
	Class string         `xml:"classname,attr"`
	Fail  []junitProblem `xml:"failure,omitempty"`
	Error []junitProblem `xml:"error,omitempty"`
}

type junitProblem struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the report as JUnit XML: a suite a drive, a case a field. What
// could not be read is an error, every other finding a failure.
func (r Report) JUnit(w io.Writer) error {
	all := junitSuites{Name: "nvop audit " + r.Policy}
	add := func(s junitSuite) {
		all.Tests, all.Failures, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors
		all.Suites = append(all.Suites, s)
	}
	for _, d := range r.Drives {
		add(suite(strings.TrimSpace(d.Address+" "+d.Serial), d.Checked, d.Findings))
	}
	if len(r.Findings) > 0 {
		add(suite(r.Policy, nil, r.Findings))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// suite is one drive: the fields judged, and findings under fields of their own.
func suite(name string, checked []string, findings []Finding) junitSuite {
	s := junitSuite{Name: name}
	taken := map[int]bool{}
	fields := append([]string{}, checked...)
	for _, f := range findings {
		known := false
		for _, c := range fields {
			known = known || c == f.Field
		}
		if !known {
			fields = append(fields, f.Field)
		}
	}
	for _, field := range fields {
		c := junitCase{Name: field, Class: name}
		for i, f := range findings {
			if f.Field != field || taken[i] {
				continue
			}
			taken[i] = true
			p := junitProblem{Type: string(f.Severity), Message: f.Text(), Text: f.Where}
			if f.Severity == Unreadable {
				c.Error = append(c.Error, p)
			} else {
				c.Fail = append(c.Fail, p)
			}
		}
		s.Tests++
		if len(c.Fail) > 0 {
			s.Failures++
		}
		if len(c.Error) > 0 {
			s.Errors++
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}

// Text is the finding in one line.
func (f Finding) Text() string {
	text := f.Field
	if f.NSID != 0 {
		text += fmt.Sprintf(" (namespace %d)", f.NSID)
	}
	text += fmt.Sprintf(": expected %s, found %s", f.Expected, f.Found)
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// Prometheus writes the report in the text format that a node exporter's textfile
// collector reads. Each drive has its series also when it has no findings, so
// that an alert can tell "clean" from "not audited".
func (r Report) Prometheus(w io.Writer, now time.Time) error {
	var b strings.Builder
	head := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	head("nvop_audit_findings", "gauge", "Findings of the last audit by severity.")
	for _, d := range r.Drives {
		for _, s := range []Severity{Critical, Drift, Unreadable} {
			n := 0
			for _, f := range d.Findings {
				if f.Severity == s {
					n++
				}
			}
			fmt.Fprintf(&b, "nvop_audit_findings{%s,severity=%s} %d\n", labels(d), escape(string(s)), n)
		}
	}
	head("nvop_audit_finding", "gauge", "One finding of the last audit.")
	for _, d := range r.Drives {
		seen := map[string]bool{}
		for _, f := range d.Findings {
			line := fmt.Sprintf("nvop_audit_finding{%s,severity=%s,field=%s,nsid=\"%d\"} 1\n", labels(d), escape(string(f.Severity)), escape(f.Field), f.NSID)
			if !seen[line] {
				b.WriteString(line)
			}
			seen[line] = true
		}
	}
	head("nvop_audit_policy_findings", "gauge", "Findings about the policy itself: rules that fit no drive.")
	fmt.Fprintf(&b, "nvop_audit_policy_findings{policy=%s} %d\n", escape(r.Policy), len(r.Findings))
	head("nvop_audit_drives", "gauge", "Drives judged by the last audit.")
	fmt.Fprintf(&b, "nvop_audit_drives{policy=%s} %d\n", escape(r.Policy), len(r.Drives))
	head("nvop_audit_timestamp_seconds", "gauge", "When the last audit ended, seconds since 1970.")
	fmt.Fprintf(&b, "nvop_audit_timestamp_seconds{policy=%s} %d\n", escape(r.Policy), now.Unix())
	_, err := io.WriteString(w, b.String())
	return err
}

func labels(d Drive) string {
	return fmt.Sprintf("serial=%s,model=%s,device=%s", escape(d.Serial), escape(d.Model), escape(d.Address))
}

// escape is a label's value: backslash, quote and newline are escaped, everything
// else is as it is.
func escape(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
