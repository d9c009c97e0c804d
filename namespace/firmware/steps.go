package firmware

import (
	"encoding/json"

	"nvop/namespace/txn"
)

// The kinds of steps.
const (
	KindUpdate   = "firmware.update"   // download and commit
	KindDownload = "firmware.download" // download only
	KindCommit   = "firmware.commit"   // commit what is downloaded, or activate a slot
	KindActivate = "firmware.activate" // reset the controller and look
	KindVerify   = "firmware.verify"   // compare the drive with an earlier record
)

// Executors are the executors of the kinds of steps that Plan makes.
func Executors() txn.Registry { return txn.Registry{} }

// PendingAfter says which reset the drive waits for after a transaction, from what
// its steps left (txn.Report.States, parallel to steps); ResetNone if none.
func PendingAfter(steps []txn.Step, states []json.RawMessage) ResetKind { return ResetNone }
