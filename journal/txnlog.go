package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"nvop/namespace/txn"
)

// The journal is what txn keeps its records in.
var _ txn.Log = (*Journal)(nil)

// NotFoundError says that the journal has no such record.
type NotFoundError struct {
	Kind string // "transaction", "run"
	ID   string
	// Several are those that ID is the name or the beginning of, the newest first,
	// where there is more than one; no more than severalMost of them.
	Several []string
}

// severalMost is how many are listed where a name is not enough.
const severalMost = 16

func (e *NotFoundError) Error() string {
	if len(e.Several) != 0 {
		return fmt.Sprintf("%s %q: more than one is called that or begins like that: %s (name one by its ID)", e.Kind, e.ID, strings.Join(e.Several, ", "))
	}
	return fmt.Sprintf("%s %q: not in the journal", e.Kind, e.ID)
}

// ExitCode is the process's exit code for this error.
func (e *NotFoundError) ExitCode() int { return 1 }

const (
	recordIntent  = "intent"
	recordOutcome = "outcome"
	recordState   = "state"
)

// stepRecord is one row of the steps table.
type stepRecord struct {
	kind       string
	seq        any // int64, or nil for a state
	stepIndex  any
	direction  any
	attempt    any
	result     any
	at         time.Time
	recordJSON string
}

func (r stepRecord) fields(number int64) []any {
	return []any{number, r.kind, r.seq, r.stepIndex, r.direction, r.attempt, r.result, r.at.UnixNano(), r.recordJSON}
}

// stateRecord is what a change of state leaves in the chain.
type stateRecord struct {
	State   txn.State `json:"state"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// BeginTransaction implements [txn.Log]. IDs are "t1", "t2" and so on and are
// never used again.
func (j *Journal) BeginTransaction(ctx context.Context, t txn.Transaction) (string, error) {
	t.State = txn.StateOpen
	plan, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("journal: begin transaction: %w", err)
	}
	var number int64
	err = j.write(ctx, "begin transaction", func(tx *sql.Tx) error {
		drive, err := driveID(ctx, tx, t.Identity.SubsystemNQN, t.Identity.Serial, t.Identity.Model)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO transactions
			(drive_id, cntlid, title, address, state, message, began_at_unix_ns, plan_json, records, head_sha256)
			VALUES (?, ?, ?, ?, ?, '', ?, ?, 0, zeroblob(32))`,
			drive, int64(t.Identity.CNTLID), t.Title, t.Address, string(t.State), t.Began.UnixNano(), string(plan))
		if err != nil {
			return err
		}
		if number, err = res.LastInsertId(); err != nil {
			return err
		}
		head := transactionGenesis(number, string(plan))
		_, err = tx.ExecContext(ctx, `UPDATE transactions SET head_sha256 = ? WHERE transaction_id = ?`, head[:], number)
		return err
	})
	return transactionID(number), err
}

// transactionGenesis is what the chain of a transaction begins with: its plan,
// so that a changed plan breaks the chain.
func transactionGenesis(number int64, plan string) link {
	return nextLink(link{}, "transaction", number, plan)
}

// Intent implements [txn.Log].
func (j *Journal) Intent(ctx context.Context, in txn.Intent) error {
	text, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("journal: record intent: %w", err)
	}
	return j.appendStep(ctx, in.TransactionID, stepRecord{
		kind: recordIntent, seq: int64(in.Seq), stepIndex: int64(in.StepIndex), direction: string(in.Direction),
		attempt: int64(in.Attempt), at: in.At, recordJSON: string(text),
	}, nil)
}

// Outcome implements [txn.Log].
func (j *Journal) Outcome(ctx context.Context, out txn.Outcome) error {
	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("journal: record outcome: %w", err)
	}
	return j.appendStep(ctx, out.TransactionID, stepRecord{
		kind: recordOutcome, seq: int64(out.Seq), stepIndex: int64(out.StepIndex), direction: string(out.Direction),
		result: string(out.Result), at: out.At, recordJSON: string(text),
	}, nil)
}

// SetState implements [txn.Log].
func (j *Journal) SetState(ctx context.Context, id string, state txn.State, message string, at time.Time) error {
	text, err := json.Marshal(stateRecord{State: state, Message: message, At: at})
	if err != nil {
		return fmt.Errorf("journal: record state: %w", err)
	}
	return j.appendStep(ctx, id, stepRecord{kind: recordState, at: at, recordJSON: string(text)},
		func(tx *sql.Tx, number int64) error {
			var ended any
			if state.Finished() {
				ended = at.UnixNano()
			}
			_, err := tx.ExecContext(ctx, `UPDATE transactions SET state = ?, message = ?, ended_at_unix_ns = ?
				WHERE transaction_id = ?`, string(state), message, ended, number)
			return err
		})
}

// appendStep adds a record to the chain of a transaction, and whatever also
// belongs to it, in one commit.
func (j *Journal) appendStep(ctx context.Context, id string, r stepRecord, also func(tx *sql.Tx, number int64) error) error {
	number, err := transactionNumber(id)
	if err != nil {
		return err
	}
	return j.write(ctx, "record "+r.kind, func(tx *sql.Tx) error {
		var records int64
		var head []byte
		err := tx.QueryRowContext(ctx, `SELECT records, head_sha256 FROM transactions WHERE transaction_id = ?`,
			number).Scan(&records, &head)
		if errors.Is(err, sql.ErrNoRows) {
			return &NotFoundError{Kind: "transaction", ID: id}
		}
		if err != nil {
			return err
		}
		prev, err := scanLink(head)
		if err != nil {
			return err
		}
		records++
		next := nextLink(prev, r.fields(records)...)
		if _, err := tx.ExecContext(ctx, `INSERT INTO steps
			(transaction_id, record, kind, seq, step_index, direction, attempt, result, at_unix_ns, record_json, prev_sha256, sha256)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append(append([]any{number}, r.fields(records)...), prev[:], next[:])...); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE transactions SET records = ?, head_sha256 = ? WHERE transaction_id = ?`,
			records, next[:], number); err != nil {
			return err
		}
		if also != nil {
			return also(tx, number)
		}
		return nil
	})
}

// Load implements [txn.Log].
func (j *Journal) Load(ctx context.Context, id string) (txn.History, error) {
	number, err := transactionNumber(id)
	if err != nil {
		return txn.History{}, err
	}
	var h txn.History
	err = j.read(ctx, "load transaction "+id, func(q querier) error {
		ts, err := scanTransactions(ctx, q, `WHERE transaction_id = ?`, number)
		if err != nil {
			return err
		}
		if len(ts) == 0 {
			return &NotFoundError{Kind: "transaction", ID: id}
		}
		h.Transaction = ts[0]
		rows, err := q.QueryContext(ctx, `SELECT kind, record_json FROM steps
			WHERE transaction_id = ? AND kind <> 'state' ORDER BY record`, number)
		if err != nil {
			return err
		}
		return eachRow(rows, func() error { return scanStep(&h, rows) })
	})
	return h, err
}

func scanStep(h *txn.History, rows *sql.Rows) error {
	var kind, text string
	if err := rows.Scan(&kind, &text); err != nil {
		return err
	}
	if kind == recordIntent {
		var in txn.Intent
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			return fmt.Errorf("intent: %w", err)
		}
		h.Intents = append(h.Intents, in)
		return nil
	}
	var out txn.Outcome
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return fmt.Errorf("outcome: %w", err)
	}
	h.Outcomes = append(h.Outcomes, out)
	return nil
}

// Unfinished implements [txn.Log].
func (j *Journal) Unfinished(ctx context.Context, serial string) ([]txn.Transaction, error) {
	var ts []txn.Transaction
	err := j.read(ctx, "list unfinished transactions", func(q querier) (err error) {
		ts, err = scanTransactions(ctx, q, `WHERE state IN ('open', 'rolling_back') AND (?1 = '' OR serial = ?1)
			ORDER BY transaction_id`, serial)
		return err
	})
	return ts, err
}

// Transactions lists all transactions, oldest first.
func (j *Journal) Transactions(ctx context.Context) ([]txn.Transaction, error) {
	var ts []txn.Transaction
	err := j.read(ctx, "list transactions", func(q querier) (err error) {
		ts, err = scanTransactions(ctx, q, `ORDER BY transaction_id`)
		return err
	})
	return ts, err
}

func scanTransactions(ctx context.Context, q querier, where string, args ...any) ([]txn.Transaction, error) {
	rows, err := q.QueryContext(ctx, `SELECT transaction_id, plan_json, state, message, ended_at_unix_ns
		FROM transactions JOIN drives USING (drive_id) `+where, args...)
	if err != nil {
		return nil, err
	}
	var ts []txn.Transaction
	err = eachRow(rows, func() error {
		var number int64
		var plan, state, message string
		var ended sql.NullInt64
		if err := rows.Scan(&number, &plan, &state, &message, &ended); err != nil {
			return err
		}
		var t txn.Transaction
		if err := json.Unmarshal([]byte(plan), &t); err != nil {
			return fmt.Errorf("plan of %s: %w", transactionID(number), err)
		}
		t.ID, t.State, t.Message = transactionID(number), txn.State(state), message
		if ended.Valid {
			t.Ended = time.Unix(0, ended.Int64).UTC()
		}
		ts = append(ts, t)
		return nil
	})
	return ts, err
}

func transactionID(number int64) string { return "t" + strconv.FormatInt(number, 10) }

func transactionNumber(id string) (int64, error) {
	digits, ok := strings.CutPrefix(id, "t")
	number, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || number < 1 || transactionID(number) != id {
		return 0, &NotFoundError{Kind: "transaction", ID: id}
	}
	return number, nil
}
