// Package journal keeps what was done to drives and what they did: every
// transaction step, every second of a soak, every counter sample, in one SQLite
// file.
//
// The file is the memory of nvop. A step's intent is on the medium before the
// command is sent; the rows of a soak are committed together with the
// checkpoint that covers them, once per wall second, so after kill -9 the two
// agree. Steps and events are chained by sha256, each link holding the hash of
// the one before, and the head of each chain is kept apart from it, so a
// changed, missing or cut-off link is found by [Journal.Verify]. Old rows are
// thinned to minutes; sums stay exact and latency histograms are merged, never
// averaged.
//
// The package must not touch a drive, read a clock or decide anything: times
// come in with the data. It is the only package with SQL. SCHEMA.md describes
// the tables.
//
// A [Journal] is safe for concurrent use, also across processes: writers take
// turns, readers never wait for them.
package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Journal is an open journal file.
type Journal struct {
	path string
	// w has one connection; nil when the journal is read-only.
	w *sql.DB
	// r serves readers, so that a long export does not hold up a commit.
	r *sql.DB
	// scratch is the directory of a private copy; empty when there is none.
	scratch string
	// file and opts are what SQLite was told to open; file is path except
	// where a private copy is read.
	file, opts string
	// keepSeconds is [secondsKept] outside tests.
	keepSeconds int64
}

// Path is the absolute name of the journal's file.
func (j *Journal) Path() string { return j.path }

// Close closes the journal. What was committed stays.
func (j *Journal) Close() error {
	var err error
	if j.r != nil {
		err = j.r.Close()
	}
	if j.w != nil {
		err = errors.Join(err, j.w.Close())
	}
	if j.scratch != "" {
		err = errors.Join(err, os.RemoveAll(j.scratch))
	}
	return err
}

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
		return &OpenError{Path: j.path, Reason: causeAt(j.path, err), Err: fmt.Errorf("%s: %w", what, err)}
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

// link is one place in a hash chain: the sha256 of the record before and of
// this record with it.
type link [sha256.Size]byte

// nextLink hashes a record onto the chain. The fields are bound by length, so
// that no text can be moved from one to its neighbour; an integer is eight
// bytes, big-endian. nil (SQL NULL) differs from empty.
func nextLink(prev link, fields ...any) link {
	h := sha256.New()
	h.Write(prev[:])
	var n [9]byte
	for _, f := range fields {
		var tag byte
		var b []byte
		switch v := f.(type) {
		case nil:
			tag = 'n'
		case int64:
			tag, b = 'i', binary.BigEndian.AppendUint64(nil, uint64(v))
		case int:
			tag, b = 'i', binary.BigEndian.AppendUint64(nil, uint64(int64(v)))
		case string:
			tag, b = 's', []byte(v)
		case []byte:
			tag, b = 'b', v
		default:
			// A programmer's mistake: no data of a drive reaches this.
			panic(fmt.Sprintf("journal: cannot hash a %T", f))
		}
		n[0] = tag
		binary.BigEndian.PutUint64(n[1:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	var l link
	h.Sum(l[:0])
	return l
}

// scanLink reads a stored link; one of another length is damage.
func scanLink(b []byte) (link, error) {
	if len(b) != sha256.Size {
		return link{}, fmt.Errorf("a hash of %d bytes instead of %d", len(b), sha256.Size)
	}
	return link(b), nil
}
