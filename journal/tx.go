package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrReadOnly is returned when something is to be recorded in a journal that
// was opened for reading.
var ErrReadOnly = errors.New("the journal was opened for reading only")

// write runs f in one transaction that holds the write lock from its beginning
// (BEGIN IMMEDIATE) and is on the medium when write returns.
func (j *Journal) write(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	if j.w == nil {
		return fmt.Errorf("journal %s: %s: %w", j.path, what, ErrReadOnly)
	}
	tx, err := j.w.BeginTx(ctx, nil)
	if err != nil {
		return j.failed(what, err)
	}
	if err := f(tx); err != nil {
		if rb := tx.Rollback(); rb != nil && !errors.Is(rb, sql.ErrTxDone) {
			err = errors.Join(err, rb)
		}
		return j.failed(what, err)
	}
	return j.failed(what, tx.Commit())
}

// read runs f in one read transaction: all of its queries see the same moment.
func (j *Journal) read(ctx context.Context, what string, f func(q querier) error) error {
	tx, err := j.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return j.failed(what, err)
	}
	err = f(tx)
	if rb := tx.Rollback(); rb != nil && !errors.Is(rb, sql.ErrTxDone) {
		err = errors.Join(err, rb)
	}
	return j.failed(what, err)
}

// failed says what was being done to which journal, once and in one line.
func (j *Journal) failed(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*NotFoundError](err); ok {
		return err
	}
	if hasAnyCode(err) {
		return &OpenError{Path: j.path, Reason: cause(err), Err: fmt.Errorf("%s: %w", what, err)}
	}
	return fmt.Errorf("journal %s: %s: %w", j.path, what, err)
}

// eachRow calls f for every row and closes rows.
func eachRow(rows *sql.Rows, f func() error) error {
	for rows.Next() {
		if err := f(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// driveID finds or adds the drive with this identity.
func driveID(ctx context.Context, tx *sql.Tx, nqn, serial, model string) (int64, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO drives (subsystem_nqn, serial, model) VALUES (?, ?, ?)
		ON CONFLICT DO NOTHING`, nqn, serial, model); err != nil {
		return 0, err
	}
	var id int64
	err := tx.QueryRowContext(ctx, `SELECT drive_id FROM drives WHERE serial = ? AND subsystem_nqn = ? AND model = ?`,
		serial, nqn, model).Scan(&id)
	return id, err
}
