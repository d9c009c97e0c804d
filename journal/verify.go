package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"nvop/endurance/run"
	"nvop/endurance/stats"
	"nvop/namespace/txn"
)

// maxProblems bounds what Verify lists; a damaged file has more than anybody reads.
const maxProblems = 100

// Problem is something that does not hold in a journal.
type Problem struct {
	// Where is the file, a transaction or a run: "transaction t3".
	Where string `json:"where"`
	// What does not hold, for people; a broken chain names its first broken link.
	What string `json:"what"`
}

func (p Problem) String() string { return p.Where + ": " + p.What }

// Verification is what Verify looked at and found.
type Verification struct {
	Transactions int `json:"transactions"`
	Steps        int `json:"steps"`
	Runs         int `json:"runs"`
	Events       int `json:"events"`
	// Problems is empty when all holds; at most 100 are listed.
	Problems []Problem `json:"problems"`
}

// OK says that no problem was found.
func (v *Verification) OK() bool { return len(v.Problems) == 0 }

func (v *Verification) add(where, format string, args ...any) {
	if len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, Problem{Where: where, What: fmt.Sprintf(format, args...)})
	}
}

// Verify checks a journal as a whole: the file (SQLite's own check and foreign
// keys), the hash chains of steps and events from their first link to their
// recorded head, and of every run that its rows add up to its totals and to
// its checkpoint, that no second is missing, that minutes agree with seconds,
// that histograms hold every latency counted, that marks rise, and that the
// samples which the verdict's WAF rests on are there and give it again.
// Damage is in the result, not an error.
func (j *Journal) Verify(ctx context.Context) (Verification, error) {
	v := Verification{Problems: []Problem{}}
	err := j.read(ctx, "verify", func(q querier) error {
		checks := []struct {
			where string
			f     func(context.Context, querier) error
		}{
			{"file", v.file}, {"transactions", v.transactions}, {"runs", v.runs},
		}
		for _, c := range checks {
			if err := c.f(ctx, q); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				v.add(c.where, "cannot be checked further: %s", cause(err))
			}
		}
		return nil
	})
	if isDamage(err) {
		v.add("file", "%s", cause(err))
		err = nil
	}
	return v, err
}

func (v *Verification) file(ctx context.Context, q querier) error {
	rows, err := q.QueryContext(ctx, "PRAGMA integrity_check(20)")
	if err != nil {
		return err
	}
	if err := eachRow(rows, func() error {
		var line string
		err := rows.Scan(&line)
		if err == nil && line != "ok" {
			v.add("file", "%s", line)
		}
		return err
	}); err != nil {
		return err
	}
	if rows, err = q.QueryContext(ctx, "PRAGMA foreign_key_check"); err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var table, parent string
		var row, key any
		err := rows.Scan(&table, &row, &parent, &key)
		if err == nil {
			v.add("file", "a row of %s points to a row of %s that is not there", table, parent)
		}
		return err
	})
}

func (v *Verification) transactions(ctx context.Context, q querier) error {
	ids, err := numbers(ctx, q, `SELECT transaction_id FROM transactions ORDER BY transaction_id`)
	if err != nil {
		return err
	}
	for _, number := range ids {
		v.Transactions++
		where := "transaction " + transactionID(number)
		if err := v.transaction(ctx, q, number, where); err != nil {
			if ctx.Err() != nil {
				return err
			}
			v.add(where, "cannot be checked further: %s", cause(err))
		}
	}
	return nil
}

// VerifyTransaction checks one transaction as [Journal.Verify] does: its chain from
// the plan to the recorded head, so that nothing was changed and nothing is missing.
func (j *Journal) VerifyTransaction(ctx context.Context, id string) (Verification, error) {
	v := Verification{Transactions: 1, Problems: []Problem{}}
	number, err := transactionNumber(id)
	if err != nil {
		return v, err
	}
	where := "transaction " + id
	err = j.read(ctx, "verify "+where, func(q querier) error { return v.transaction(ctx, q, number, where) })
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = &NotFoundError{Kind: "transaction", ID: id}
	case isDamage(err):
		v.add(where, "%s", cause(err))
		err = nil
	}
	return v, err
}

func (v *Verification) transaction(ctx context.Context, q querier, number int64, where string) error {
	var plan, state, message string
	var records int64
	var head []byte
	var copied copiedColumns
	if err := q.QueryRowContext(ctx, `SELECT plan_json, state, message, records, head_sha256, title, address, cntlid, began_at_unix_ns
		FROM transactions WHERE transaction_id = ?`, number).Scan(&plan, &state, &message, &records, &head,
		&copied.title, &copied.address, &copied.cntlid, &copied.began); err != nil {
		return err
	}
	rows, err := q.QueryContext(ctx, `SELECT record, kind, seq, step_index, direction, attempt, result, at_unix_ns,
		record_json, prev_sha256, sha256 FROM steps WHERE transaction_id = ? ORDER BY record`, number)
	if err != nil {
		return err
	}
	c := chain{v: v, where: where, what: "record", last: transactionGenesis(number, plan)}
	want := stateRecord{State: "open"}
	err = eachRow(rows, func() error {
		v.Steps++
		var fields [9]any
		var prev, this []byte
		if err := rows.Scan(&fields[0], &fields[1], &fields[2], &fields[3], &fields[4], &fields[5], &fields[6],
			&fields[7], &fields[8], &prev, &this); err != nil {
			return err
		}
		record, _ := fields[0].(int64)
		if text, _ := fields[8].(string); fields[1] == recordState {
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				c.broken("record %d: %s", record, err)
			}
		}
		c.next(record, prev, this, fields[:]...)
		return nil
	})
	if err != nil {
		return err
	}
	c.end(records, head)
	if string(want.State) != state || want.Message != message {
		c.broken("its state is %q (%q) and its records say %q (%q)", state, message, want.State, want.Message)
	}
	return copied.check(&c, plan)
}

// copiedColumns are what a transaction has in columns too, beside its plan, which
// the chain holds.
type copiedColumns struct {
	title, address string
	cntlid, began  int64
}

func (k copiedColumns) check(c *chain, plan string) error {
	var t txn.Transaction
	if err := json.Unmarshal([]byte(plan), &t); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if held := (copiedColumns{t.Title, t.Address, int64(t.Identity.CNTLID), t.Began.UnixNano()}); k != held {
		c.broken("its columns say %q on %q, controller %d, begun at %d, and its plan %q on %q, controller %d, begun at %d",
			k.title, k.address, k.cntlid, k.began, held.title, held.address, held.cntlid, held.began)
	}
	return nil
}

// chain follows a hash chain and reports its first broken link.
type chain struct {
	v      *Verification
	where  string
	what   string
	last   link
	count  int64
	failed bool
}

func (c *chain) broken(format string, args ...any) {
	if !c.failed {
		c.failed = true
		c.v.add(c.where, format, args...)
	}
}

func (c *chain) next(number int64, prev, this []byte, fields ...any) {
	c.count++
	hash := nextLink(c.last, fields...)
	switch {
	case number != c.count:
		c.broken("%s %d is missing (first broken link)", c.what, c.count)
	case string(prev) != string(c.last[:]):
		c.broken("%s %d does not follow on what comes before it (first broken link)", c.what, number)
	case string(this) != string(hash[:]):
		c.broken("%s %d was changed (first broken link)", c.what, number)
	}
	c.last = hash
}

func (c *chain) end(records int64, head []byte) {
	if c.count != records {
		c.broken("%d of %d %ss are there: the end is missing", c.count, records, c.what)
	}
	if string(head) != string(c.last[:]) {
		c.broken("the head of the chain is not its last %s", c.what)
	}
}

func (v *Verification) runs(ctx context.Context, q querier) error {
	ids, err := numbers(ctx, q, `SELECT run_id FROM runs ORDER BY run_id`)
	if err != nil {
		return err
	}
	for _, number := range ids {
		v.Runs++
		c := runCheck{v: v, q: q, number: number, where: "run " + runID(number)}
		if err := c.all(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			v.add(c.where, "cannot be checked further: %s", cause(err))
		}
	}
	return nil
}

// runCheck checks one run.
type runCheck struct {
	v      *Verification
	q      querier
	number int64
	where  string
	state  runState
	cp     *run.Checkpoint
}

func (c *runCheck) all(ctx context.Context) error {
	var err error
	if c.state, err = loadRunState(ctx, c.q, c.number); err != nil {
		return err
	}
	var failed error
	for _, f := range []func(context.Context) error{c.events, c.checkpoints, c.sums, c.coverage, c.minutes,
		c.histograms, c.verification, c.verdict} {
		// One table that cannot be read does not spare the others.
		if err := f(ctx); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (c *runCheck) events(ctx context.Context) error {
	var header string
	if err := c.q.QueryRowContext(ctx, `SELECT header_json FROM runs WHERE run_id = ?`, c.number).Scan(&header); err != nil {
		return err
	}
	ch := chain{v: c.v, where: c.where, what: "event", last: runGenesis(c.number, header)}
	if err := eachEvent(ctx, c.q, c.number, func(event int64, e *run.Event, prev, this link) error {
		c.v.Events++
		ch.next(event, prev[:], this[:], eventFields(event, e)...)
		return nil
	}); err != nil {
		return err
	}
	ch.end(c.state.events, c.state.head[:])
	return nil
}

// checkpoints: the last one is the run's, and marks rise among those kept.
func (c *runCheck) checkpoints(ctx context.Context) error {
	rows, err := c.q.QueryContext(ctx, `SELECT checkpoint, checkpoint_json, next_second, phase, pass, low_water, reserved_high
		FROM checkpoints WHERE run_id = ? ORDER BY checkpoint`, c.number)
	if err != nil {
		return err
	}
	err = eachRow(rows, func() error {
		var number uint64
		var text string
		var cp, col run.Checkpoint
		if err := rows.Scan(&number, &text, &col.NextSecond, &col.Phase, &col.Pass, &col.LowWater, &col.ReservedHigh); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &cp); err != nil {
			return fmt.Errorf("checkpoint %d: %w", number, err)
		}
		if cp.Number != number || cp.NextSecond != col.NextSecond || cp.Phase != col.Phase || cp.Pass != col.Pass ||
			cp.LowWater != col.LowWater || cp.ReservedHigh != col.ReservedHigh {
			c.v.add(c.where, "checkpoint %d: its columns are not what it says", number)
		}
		if cp.LowWater > cp.ReservedHigh {
			c.v.add(c.where, "checkpoint %d: low water %d is above reserved high %d", number, cp.LowWater, cp.ReservedHigh)
		}
		if p := c.cp; p != nil {
			same := cp.Phase == p.Phase
			if cp.Number != p.Number+1 || cp.NextSecond < p.NextSecond || cp.Phase < p.Phase ||
				same && (cp.LowWater < p.LowWater || cp.Pass < p.Pass) {
				c.v.add(c.where, "checkpoint %d: its marks go back behind those of checkpoint %d", number, p.Number)
			}
		}
		c.cp = &cp
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case c.cp == nil && c.state.checkpoint != 0:
		c.v.add(c.where, "checkpoint %d is missing", c.state.checkpoint)
	case c.cp == nil:
	case c.cp.Number != uint64(c.state.checkpoint) || c.cp.NextSecond != c.state.nextSecond || string(c.cp.State) != c.state.state:
		c.v.add(c.where, "its last checkpoint is %d (%s, second %d) and the run says %d (%s, second %d)", c.cp.Number,
			c.cp.State, c.cp.NextSecond, c.state.checkpoint, c.state.state, c.state.nextSecond)
	}
	return nil
}

const sumColumns = `ifnull(sum(read_ops), 0), ifnull(sum(write_ops), 0), ifnull(sum(read_bytes), 0),
	ifnull(sum(write_bytes), 0), ifnull(sum(read_errors), 0), ifnull(sum(write_errors), 0)`

// sums: rows as they are read (minutes, then seconds) = totals = checkpoint.
func (c *runCheck) sums(ctx context.Context) error {
	var minutes, seconds run.Totals
	for _, s := range []struct {
		query string
		to    *run.Totals
		from  int64
	}{
		{`SELECT ifnull(sum(seconds), 0), ` + sumColumns + ` FROM minutes WHERE run_id = ? AND minute < ?`, &minutes, c.state.thinnedTo / thinSeconds},
		{`SELECT count(*), ` + sumColumns + ` FROM rows WHERE run_id = ? AND second >= ?`, &seconds, c.state.thinnedTo},
	} {
		if err := c.q.QueryRowContext(ctx, s.query, c.number, s.from).Scan(&s.to.Rows, &s.to.ReadOps, &s.to.WriteOps,
			&s.to.ReadBytes, &s.to.WriteBytes, &s.to.ReadErrors, &s.to.WriteErrors); err != nil {
			return err
		}
	}
	sum := seconds
	sum.Add(minutes.Counts)
	sum.Rows += minutes.Rows
	if sum != c.state.totals {
		c.v.add(c.where, "its rows sum to %+v and its totals are %+v", sum, c.state.totals)
	}
	if c.cp != nil && c.cp.Totals != c.state.totals {
		c.v.add(c.where, "checkpoint %d has totals %+v and the run %+v", c.cp.Number, c.cp.Totals, c.state.totals)
	}
	return nil
}

// coverage: every second is in one row or one gap.
func (c *runCheck) coverage(ctx context.Context) error {
	var rows, gaps int64
	if err := c.q.QueryRowContext(ctx, `SELECT rows_total, (SELECT ifnull(sum(seconds), 0) FROM gaps g WHERE g.run_id = runs.run_id)
		FROM runs WHERE run_id = ?`, c.number).Scan(&rows, &gaps); err != nil {
		return err
	}
	if rows+gaps != c.state.nextSecond {
		c.v.add(c.where, "%d seconds of rows and %d of gaps make %d, and the run has lasted for %d", rows, gaps, rows+gaps, c.state.nextSecond)
	}
	var stray int64
	if err := c.q.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM rows WHERE run_id = ?1 AND (second < ?2 OR second >= ?3))
		+ (SELECT count(*) FROM minutes WHERE run_id = ?1 AND first_second >= ?3)`, c.number, c.state.thinnedTo,
		c.state.nextSecond).Scan(&stray); err != nil {
		return err
	}
	if stray != 0 {
		c.v.add(c.where, "%d rows are of seconds that were thinned or have not come", stray)
	}
	return nil
}

// minutes: as long as the seconds are there, the minutes agree with them.
func (c *runCheck) minutes(ctx context.Context) error {
	wrong, err := numbers(ctx, c.q, `SELECT m.minute FROM minutes m LEFT JOIN (
			SELECT second / ?3 AS minute, phase, count(*) AS seconds, sum(read_ops) AS ro, sum(write_ops) AS wo,
				sum(read_bytes) AS rb, sum(write_bytes) AS wb, sum(read_measured_ops) AS rm, sum(write_measured_ops) AS wm,
				max(read_max_ns) AS rx, max(write_max_ns) AS wx
			FROM rows WHERE run_id = ?1 GROUP BY second / ?3, phase) s ON s.minute = m.minute AND s.phase = m.phase
		WHERE m.run_id = ?1 AND m.minute >= ?2 AND (m.seconds, m.read_ops, m.write_ops, m.read_bytes, m.write_bytes,
			m.read_measured_ops, m.write_measured_ops, m.read_max_ns, m.write_max_ns)
			IS NOT (s.seconds, s.ro, s.wo, s.rb, s.wb, s.rm, s.wm, s.rx, s.wx)
		ORDER BY m.minute LIMIT 3`, c.number, c.state.thinnedTo/thinSeconds, thinSeconds)
	for _, m := range wrong {
		c.v.add(c.where, "the minute at second %d does not agree with its seconds", m*thinSeconds)
	}
	return err
}

// histograms: together, with the span still open, they hold what the rows measured.
func (c *runCheck) histograms(ctx context.Context) error {
	type key struct {
		phase int64
		write bool
	}
	counted := map[key]uint64{}
	add := func(h *run.Histogram, d *stats.Histogram) error {
		counted[key{int64(h.Phase), h.Write}] += d.Count()
		return nil
	}
	if err := eachHistogram(ctx, c.q, c.number, add); err != nil {
		return err
	}
	if c.cp != nil {
		for i := range c.cp.Open {
			d, err := stats.DecodeHistogram(c.cp.Open[i].Encoded)
			if err != nil {
				return fmt.Errorf("checkpoint %d: %w", c.cp.Number, err)
			}
			if err := add(&c.cp.Open[i], d); err != nil {
				return err
			}
		}
	}
	rows, err := c.q.QueryContext(ctx, `SELECT phase, sum(read_measured_ops), sum(write_measured_ops) FROM minutes
		WHERE run_id = ? GROUP BY phase`, c.number)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error {
		var phase int64
		var measured [2]uint64
		if err := rows.Scan(&phase, &measured[0], &measured[1]); err != nil {
			return err
		}
		for w, want := range measured {
			if got := counted[key{phase, w == 1}]; got != want {
				c.v.add(c.where, "phase %d: its histograms hold %d latencies of %ss, its rows measured %d", phase, got, direction(w == 1), want)
			}
		}
		return nil
	})
}

// verdict: it is about the totals of its checkpoint, and its WAF can be told
// again from the samples.
func (c *runCheck) verdict(ctx context.Context) error {
	var number int64
	infos, err := scanRuns(ctx, c.q, `WHERE run_id = ?`, c.number)
	if err != nil || len(infos) != 1 || infos[0].Verdict == nil {
		return err
	}
	if err := c.q.QueryRowContext(ctx, `SELECT max(checkpoint) FROM verdicts WHERE run_id = ?`, c.number).Scan(&number); err != nil {
		return err
	}
	v := infos[0].Verdict
	if number == c.state.checkpoint && v.Totals != c.state.totals {
		c.v.add(c.where, "its verdict has totals %+v and its rows %+v", v.Totals, c.state.totals)
	}
	if !v.WAF.Available {
		return nil
	}
	samples, err := scanSamples(ctx, c.q, c.number, 0)
	if err != nil {
		return err
	}
	micro, err := recomputeWAF(&v.WAF, samples)
	switch {
	case errors.Is(err, errEpochs):
	case err != nil:
		c.v.add(c.where, "the inputs of its WAF: %v", err)
	case abs(micro-v.WAF.Micro) > max(v.WAF.ErrorMicro, 1):
		c.v.add(c.where, "its WAF is %d millionths and the counters say %d, which is more than its error of %d apart",
			v.WAF.Micro, micro, v.WAF.ErrorMicro)
	}
	return nil
}

func abs(v int64) int64 { return max(v, -v) }
