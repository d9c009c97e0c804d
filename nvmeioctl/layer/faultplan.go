package layer

import "nvop/nvmeioctl/fault"

// FaultPlan is a parsed fault script: see package fault. It is immutable; its
// zero value has no faults.
type FaultPlan = fault.Plan

// ParseFaults parses a fault script, in the language of package fault.
func ParseFaults(script string) (FaultPlan, error) { return fault.Parse(script) }

// Armer is a drive that carries out faults of its own model, as the simulated
// one does: [Fault] leaves it what does not happen to a single command.
type Armer interface {
	// Arm adds the rules of the plan; their counts and times begin now.
	Arm(plan fault.Plan) error
}
