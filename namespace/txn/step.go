package txn

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nvop/nvmeioctl"
)

// Step is one mutation as data. It can be stored, shown and carried out later
// by another process.
type Step struct {
	// Index is the step's place in its transaction, from 0.
	Index int `json:"index"`
	// Kind finds the [Executor]: "namespace.create".
	Kind string `json:"kind"`
	// Title says in one line what the step does.
	Title string `json:"title"`
	// Params is what the executor needs to do, undo and verify the step in
	// another process, as the executor's own JSON.
	Params json.RawMessage `json:"params"`
	// Commands are the commands as planned. A value that is known only later
	// (the identifier of a namespace yet to be created) is named in NSIDFrom.
	Commands []Command `json:"commands"`
	// Destroys says what is lost for good; empty when nothing is.
	Destroys string `json:"destroys,omitempty"`
	// UndoText says what a rollback does about the step, honestly: "cannot be
	// undone", "creates the old size again; the data is gone".
	UndoText string `json:"undo"`
	// TimeoutMS bounds each command of the step, in milliseconds.
	TimeoutMS int64 `json:"timeout_ms"`
}

// Command is an NVMe command as data, for display and for the journal.
type Command struct {
	Name   string `json:"name"`
	IO     bool   `json:"io,omitempty"`
	Opcode uint8  `json:"opcode"`
	NSID   uint32 `json:"nsid"`
	// NSIDFrom says where the NSID comes from when it is not known yet:
	// "step 3". Empty when NSID is exact.
	NSIDFrom string `json:"nsid_from,omitempty"`
	CDW2     uint32 `json:"cdw2,omitempty"`
	CDW3     uint32 `json:"cdw3,omitempty"`
	CDW10    uint32 `json:"cdw10"`
	CDW11    uint32 `json:"cdw11"`
	CDW12    uint32 `json:"cdw12"`
	CDW13    uint32 `json:"cdw13"`
	CDW14    uint32 `json:"cdw14"`
	CDW15    uint32 `json:"cdw15"`
	// DataBytes is the length of the data transfer; 0 for none.
	DataBytes int `json:"data_bytes,omitempty"`
	// DataSummary says what the data holds: "nsze=12502446768 ncap=12502446768 flbas=0".
	DataSummary string `json:"data,omitempty"`
	TimeoutMS   int64  `json:"timeout_ms"`
}

// DescribeCommand turns cmd into data.
func DescribeCommand(name string, cmd *nvmeioctl.Command, dataSummary string) Command {
	return Command{
		Name: name, IO: cmd.IO, Opcode: cmd.Opcode, NSID: cmd.NSID,
		CDW2: cmd.CDW2, CDW3: cmd.CDW3,
		CDW10: cmd.CDW10, CDW11: cmd.CDW11, CDW12: cmd.CDW12,
		CDW13: cmd.CDW13, CDW14: cmd.CDW14, CDW15: cmd.CDW15,
		DataBytes: len(cmd.Data), DataSummary: dataSummary,
		TimeoutMS: cmd.Timeout.Milliseconds(),
	}
}

// String is the command in one line, its dwords in hexadecimal.
func (c Command) String() string {
	nsid := fmt.Sprintf("0x%x", c.NSID)
	if c.NSIDFrom != "" {
		nsid = "(" + c.NSIDFrom + ")"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: opcode 0x%02x nsid %s cdw10 0x%08x cdw11 0x%08x cdw12 0x%08x cdw13 0x%08x cdw14 0x%08x cdw15 0x%08x",
		c.Name, c.Opcode, nsid, c.CDW10, c.CDW11, c.CDW12, c.CDW13, c.CDW14, c.CDW15)
	if c.DataBytes > 0 {
		fmt.Fprintf(&b, ", %d bytes of data", c.DataBytes)
		if c.DataSummary != "" {
			b.WriteString(" (" + c.DataSummary + ")")
		}
	}
	fmt.Fprintf(&b, ", timeout %s", time.Duration(c.TimeoutMS)*time.Millisecond)
	return b.String()
}

// Direction is which way a step is taken.
type Direction string

// The two directions.
const (
	Forward  Direction = "do"
	Backward Direction = "undo"
)

// State is the state of a transaction.
type State string

// The states of a transaction. Open and RollingBack are unfinished.
const (
	StateOpen        State = "open"
	StateRollingBack State = "rolling_back"
	StateDone        State = "done"
	StateRolledBack  State = "rolled_back"
	// StateCancelled: ended before any command was sent.
	StateCancelled State = "cancelled"
)

// Finished says that nothing is left to do.
func (s State) Finished() bool {
	return s == StateDone || s == StateRolledBack || s == StateCancelled
}

// Transaction is what is to be done, as stored when it begins. It holds
// everything needed to undo it: the old geometry is in the steps' parameters.
type Transaction struct {
	// ID is chosen by the log: short enough to type.
	ID string `json:"id"`
	// Title says in one line what the transaction is for: "op set --size 6.4TB".
	Title string `json:"title"`
	// Address is the device as the user gave it.
	Address string `json:"address"`
	// Identity is the controller the transaction belongs to.
	Identity nvmeioctl.Identity `json:"identity"`
	Steps    []Step             `json:"steps"`
	// Inventory is the state of the drive before the first step, as the
	// planner's own JSON; kept for people and for audits.
	Inventory json.RawMessage `json:"inventory,omitempty"`
	State     State           `json:"state"`
	// Began is when the transaction began, UTC.
	Began time.Time `json:"began"`
	// Ended is when it finished; zero while it is unfinished.
	Ended time.Time `json:"ended,omitzero"`
	// Message says how it ended, for people.
	Message string `json:"message,omitempty"`
}

// Intent is recorded before a command is sent.
type Intent struct {
	TransactionID string `json:"transaction_id"`
	// Seq numbers the intents of a transaction from 1.
	Seq       int       `json:"seq"`
	StepIndex int       `json:"step_index"`
	Direction Direction `json:"direction"`
	// Attempt counts the attempts of one taking of the step from 1: more than
	// one when a refused size is stepped down.
	Attempt int `json:"attempt"`
	// Before is what was read before the command, as the executor's own JSON;
	// verification after a crash compares with it.
	Before json.RawMessage `json:"before,omitempty"`
	// Commands are the commands about to be sent, all values known.
	Commands []Command `json:"commands,omitempty"`
	// Note says why, where that is not obvious: "0x115: 4096 bytes too many".
	Note string    `json:"note,omitempty"`
	At   time.Time `json:"at"`
}

// Result is how the taking of a step ended.
type Result string

// The results of a step.
const (
	// ResultDone: carried out and answered with success, or found to be so.
	ResultDone Result = "done"
	// ResultRefused: the drive answered with an error status; nothing changed.
	ResultRefused Result = "refused"
	// ResultNotDone: found not to be carried out.
	ResultNotDone Result = "not_done"
	// ResultUnknown: no answer, and reading back did not tell.
	ResultUnknown Result = "unknown"
)

// Outcome is recorded after a command was answered, or after its effect was
// established by reading back.
type Outcome struct {
	TransactionID string `json:"transaction_id"`
	// Seq is the number of the first intent this is the outcome of: later
	// attempts of the same taking share one outcome.
	Seq       int       `json:"seq"`
	StepIndex int       `json:"step_index"`
	Direction Direction `json:"direction"`
	Result    Result    `json:"result"`
	// State is what later steps need (the identifier of the namespace
	// created), as the executor's own JSON.
	State json.RawMessage `json:"state,omitempty"`
	// Error is the error's text; empty for success.
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at"`
}

// History is a transaction with everything recorded about it, in order.
type History struct {
	Transaction Transaction `json:"transaction"`
	Intents     []Intent    `json:"intents"`
	Outcomes    []Outcome   `json:"outcomes"`
}
