package journal

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"nvop/endurance/run"
)

// VerificationRecord is what a run compared and found.
type VerificationRecord struct {
	// Of is the run that was verified, nil when it was this one itself.
	Of *run.VerifyOf `json:"of,omitempty"`
	// Trust is which writes were believed to be there after a crash.
	Trust    run.Trust    `json:"trust,omitempty"`
	Verified run.Verified `json:"verified"`
}

func mismatchColumns() []string {
	return []string{"run_id", "mismatch", "second", "at_unix_ns", "kind", "lba", "expected_generation", "found_generation",
		"found_lba", "found_run", "offset_bytes", "differing_bytes", "expected_hex", "found_hex", "status", "text"}
}

// mismatches records blocks that are not as they must be.
func (c *commit) mismatches(ctx context.Context, bind *binder, list []run.Mismatch) error {
	if len(list) == 0 {
		return nil
	}
	var last int64
	if err := c.tx.QueryRowContext(ctx, `SELECT ifnull(max(mismatch), 0) FROM mismatches WHERE run_id = ?`, c.run).Scan(&last); err != nil {
		return err
	}
	return insertMany(ctx, c, "mismatches", mismatchColumns(), len(list), func(args []any, i int) []any {
		m := &list[i]
		var expected, generation, lba, number, status any
		if m.ExpectedGeneration != 0 {
			expected = bind.u64("generation", m.ExpectedGeneration)
		}
		if m.FoundHeader {
			// What a block says of itself may be anything: it keeps its bits.
			generation, lba, number = int64(m.FoundGeneration), int64(m.FoundLBA), fmt.Sprintf("%016x", m.FoundRun)
		}
		if m.Kind == run.MismatchUnreadable {
			status = int64(m.Status)
		}
		return append(args, c.run, last+1+int64(i), m.Second, m.WallUnixNS, string(m.Kind), bind.u64("LBA", m.LBA),
			expected, generation, lba, number, int64(m.OffsetBytes), int64(m.Bytes),
			hex.EncodeToString(m.Expected), hex.EncodeToString(m.Found), status, m.Text)
	})
}

func verificationColumns() []string {
	names := []string{"verified_blocks", "right_blocks", "unknown_blocks", "undecided_blocks"}
	for _, k := range run.MismatchKinds() {
		names = append(names, string(k)+"_blocks")
	}
	return append(names, "kept_mismatches")
}

// verification keeps the sums of what was compared, once something was.
func (c *commit) verification(ctx context.Context, bind *binder, cp *run.Checkpoint) error {
	v := cp.Verified
	if v.Blocks == 0 {
		return nil
	}
	counts := []uint64{v.Blocks, v.Right, v.Unknown, v.Undecided}
	for _, k := range run.MismatchKinds() {
		counts = append(counts, *v.Of(k))
	}
	counts = append(counts, v.Kept)
	set, args := "", []any{}
	for i, name := range verificationColumns() {
		if i > 0 {
			set += ", "
		}
		set += name + " = ?"
		args = append(args, bind.u64(name, counts[i]))
	}
	done, err := c.tx.ExecContext(ctx, `UPDATE verifications SET `+set+` WHERE run_id = ?`, append(args, c.run)...)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 0 {
		return err
	}
	job, err := jobOf(ctx, c.tx, c.run)
	if err != nil {
		return err
	}
	var of, ofCheckpoint any
	if o := job.Verify.Of; o != nil {
		of, ofCheckpoint = o.Run, bind.u64("checkpoint", o.Checkpoint)
	}
	columns := append([]string{"run_id", "of_run", "of_checkpoint", "trust"}, verificationColumns()...)
	args = append([]any{c.run, of, ofCheckpoint, string(job.Verify.Trust)}, args...)
	_, err = c.tx.ExecContext(ctx, insertSQL("verifications", columns, 1), args...)
	return err
}

// jobOf is the job of a run.
func jobOf(ctx context.Context, q querier, number int64) (run.Job, error) {
	infos, err := scanRuns(ctx, q, `WHERE run_id = ?`, number)
	if err != nil || len(infos) != 1 {
		return run.Job{}, err
	}
	return infos[0].Header.Job, nil
}

// Verification is what a run compared; nil when it compared nothing.
func (j *Journal) Verification(ctx context.Context, id string) (*VerificationRecord, error) {
	var record *VerificationRecord
	err := j.readRun(ctx, "read verification", id, func(q querier, number int64) (err error) {
		record, err = scanVerification(ctx, q, number)
		return err
	})
	return record, err
}

func scanVerification(ctx context.Context, q querier, number int64) (*VerificationRecord, error) {
	r := &VerificationRecord{}
	var of sql.NullString
	var checkpoint sql.NullInt64
	v := &r.Verified
	err := q.QueryRowContext(ctx, `SELECT of_run, of_checkpoint, trust, verified_blocks, right_blocks, unknown_blocks,
		undecided_blocks, lost_blocks, stale_blocks, misdirected_blocks, torn_blocks, rotten_blocks, unreadable_blocks,
		kept_mismatches FROM verifications WHERE run_id = ?`, number).Scan(&of, &checkpoint, &r.Trust, &v.Blocks, &v.Right,
		&v.Unknown, &v.Undecided, &v.Lost, &v.Stale, &v.Misdirected, &v.Torn, &v.Rotten, &v.Unreadable, &v.Kept)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if of.Valid {
		r.Of = &run.VerifyOf{Run: of.String, Checkpoint: uint64(checkpoint.Int64)}
	}
	return r, err
}

// Mismatches returns the blocks that a run found not as they must be, in the
// order in which it did. Not all of many are recorded one by one.
func (j *Journal) Mismatches(ctx context.Context, id string) ([]run.Mismatch, error) {
	var list []run.Mismatch
	err := j.readRun(ctx, "read mismatches", id, func(q querier, number int64) error {
		return eachMismatch(ctx, q, number, func(m *run.Mismatch) error {
			list = append(list, *m)
			return nil
		})
	})
	return list, err
}

func eachMismatch(ctx context.Context, q querier, number int64, f func(*run.Mismatch) error) error {
	rows, err := q.QueryContext(ctx, `SELECT second, at_unix_ns, kind, lba, ifnull(expected_generation, 0), found_generation,
		found_lba, found_run, offset_bytes, differing_bytes, expected_hex, found_hex, ifnull(status, 0), text
		FROM mismatches WHERE run_id = ? ORDER BY mismatch`, number)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var m run.Mismatch
		var lba, expected int64
		var generation, foundLBA sql.NullInt64
		var foundRun sql.NullString
		var want, found string
		if err := rows.Scan(&m.Second, &m.WallUnixNS, &m.Kind, &lba, &expected, &generation, &foundLBA, &foundRun,
			&m.OffsetBytes, &m.Bytes, &want, &found, &m.Status, &m.Text); err != nil {
			return err
		}
		m.LBA, m.ExpectedGeneration = uint64(lba), uint64(expected)
		m.FoundHeader, m.FoundGeneration, m.FoundLBA = generation.Valid, uint64(generation.Int64), uint64(foundLBA.Int64)
		var err error
		if foundRun.Valid {
			if m.FoundRun, err = strconv.ParseUint(foundRun.String, 16, 64); err != nil {
				return fmt.Errorf("mismatch of LBA %d: run %q: %w", m.LBA, foundRun.String, err)
			}
		}
		if m.Expected, err = unhex(want); err != nil {
			return fmt.Errorf("mismatch of LBA %d: %w", m.LBA, err)
		}
		if m.Found, err = unhex(found); err != nil {
			return fmt.Errorf("mismatch of LBA %d: %w", m.LBA, err)
		}
		return f(&m)
	})
}

func unhex(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	return hex.DecodeString(text)
}

func mismatchCells(m *run.Mismatch) []cell {
	cells := []cell{{"second", m.Second}, {"time", timeText(m.WallUnixNS)}, {"kind", string(m.Kind)}, {"lba", m.LBA},
		{"expected_generation", m.ExpectedGeneration}, {"found_generation", m.FoundGeneration}, {"found_lba", m.FoundLBA},
		{"found_run", fmt.Sprintf("%016x", m.FoundRun)}, {"offset_bytes", int64(m.OffsetBytes)}, {"differing_bytes", int64(m.Bytes)},
		{"expected_hex", hex.EncodeToString(m.Expected)}, {"found_hex", hex.EncodeToString(m.Found)},
		{"status", int64(m.Status)}, {"text", m.Text}}
	if m.ExpectedGeneration == 0 {
		cells[4].value = nil
	}
	if !m.FoundHeader {
		cells[5].value, cells[6].value, cells[7].value = nil, nil, nil
	}
	if m.Kind != run.MismatchUnreadable {
		cells[12].value = nil
	}
	return cells
}

// verification: the counts of what was compared add up, and as many mismatches
// are there as it says.
func (c *runCheck) verification(ctx context.Context) error {
	r, err := scanVerification(ctx, c.q, c.number)
	if err != nil {
		return err
	}
	kept := uint64(0)
	if err := eachMismatch(ctx, c.q, c.number, func(*run.Mismatch) error { kept++; return nil }); err != nil {
		c.v.add(c.where, "%v", err)
		return nil
	}
	if r == nil {
		if kept != 0 {
			c.v.add(c.where, "it has %d mismatches and compared nothing", kept)
		}
		return nil
	}
	v := &r.Verified
	if v.Kept != kept {
		c.v.add(c.where, "%d of %d recorded mismatches are there", kept, v.Kept)
	}
	if sum := v.Right + v.Unknown + v.Undecided + v.Mismatches(); sum != v.Blocks {
		c.v.add(c.where, "of %d blocks that were compared it counts %d", v.Blocks, sum)
	}
	if c.cp == nil {
		return nil
	}
	said := c.cp.Verified
	if said.Unwritten > said.Undecided+said.Unknown {
		c.v.add(c.where, "checkpoint %d: of %d blocks of which nothing is known %d were not written", c.cp.Number, said.Undecided+said.Unknown, said.Unwritten)
	}
	if said.Unwritten = 0; said != *v { // it is in the checkpoint alone
		c.v.add(c.where, "checkpoint %d says %+v was verified and the run %+v", c.cp.Number, c.cp.Verified, *v)
	}
	return nil
}
