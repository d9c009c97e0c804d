package namespace

// Mismatch is a difference between what a plan promised and what is.
type Mismatch struct {
	NSID  uint32 `json:"nsid"`
	What  string `json:"what"`
	Want  string `json:"want"`
	Found string `json:"found"`
}

// Drift lists what changed on the drive since the plan was made, as far as the
// plan depends on it.
func (p Plan) Drift(now Inventory) []Mismatch { return nil }

// Verify compares a drive with what the plan promised. Sizes may be smaller by
// the step-downs the plan announced.
func (p Plan) Verify(now Inventory) []Mismatch { return nil }
