// Package audit judges drives by a policy: facts in, findings out. It does no
// I/O; the command line gathers the facts.
//
// What could not be read is a finding of its own and never a pass. A drive that
// passes has no findings.
package audit

import (
	"nvop/namespace"
	"nvop/pcie"
)

// Severity is how bad a finding is.
type Severity string

// The severities, worst first. Critical: the drive or its data is at risk.
// Drift: the drive is not as the policy says. Unreadable: it could not be judged.
const (
	Critical   Severity = "critical"
	Drift      Severity = "drift"
	Unreadable Severity = "unreadable"
)

// Finding is one thing an audit has to say.
type Finding struct {
	Severity Severity `json:"severity"`
	// Field is the policy's field: "features.write_cache.enabled". "match" where a
	// rule fits no drive or a drive no rule.
	Field string `json:"field"`
	// Where is the place of the field in the policy: "fleet.yaml:12:5".
	Where string `json:"where"`
	// NSID is the namespace concerned; 0 for the drive as a whole.
	NSID     uint32 `json:"nsid,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	// Remedy is a command, or what else to do; may be empty.
	Remedy string `json:"remedy,omitempty"`
}

// Facts are what is known of one drive.
type Facts struct {
	Inventory namespace.Inventory
	// Path is the drive's PCI Express path; nil where there is none or it could
	// not be read, and PathProblem says why.
	Path        *pcie.Path
	PathProblem string
}
