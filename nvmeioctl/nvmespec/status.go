package nvmespec

// Status is the status field of a completion without its phase bit, as the
// kernel returns it: SC in bits 7:0, SCT in 10:8, CRD in 12:11, More in 13, DNR
// in 14. 0 is success. Source: NVMe Base Specification 2.x, "Status Field".
type Status uint16

// Code is the status without CRD, More and DNR: what statuses are compared by.
func (s Status) Code() Status { return s & 0x7FF }

// Err returns nil for success and a StatusError otherwise.
func (s Status) Err() error {
	if s.Code() == 0 {
		return nil
	}
	return StatusError{Status: s}
}

// StatusError is a status other than success as an error.
type StatusError struct{ Status Status }

func (e StatusError) Error() string { return "nvme status" }
