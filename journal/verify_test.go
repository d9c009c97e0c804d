package journal

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/namespace/txn"
)

// recordSome fills a journal with a transaction and a run with a verdict whose
// WAF rests on its samples.
func recordSome(tb testing.TB, j *Journal, seed uint64) *Recorder {
	tb.Helper()
	ctx := context.Background()
	id, err := j.BeginTransaction(ctx, sampleTransaction())
	if err != nil {
		tb.Fatal(err)
	}
	for seq := 1; seq <= 3; seq++ {
		if err := j.Intent(ctx, txn.Intent{TransactionID: id, Seq: seq, StepIndex: seq - 1, Direction: txn.Forward, Attempt: 1,
			Before: []byte(`{"nsid":1}`), At: time.Unix(int64(seq), 0).UTC()}); err != nil {
			tb.Fatal(err)
		}
		if err := j.Outcome(ctx, txn.Outcome{TransactionID: id, Seq: seq, StepIndex: seq - 1, Direction: txn.Forward,
			Result: txn.ResultDone, At: time.Unix(int64(seq), 5).UTC()}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := j.SetState(ctx, id, txn.StateDone, "as planned", time.Unix(1_700_000_009, 0)); err != nil {
		tb.Fatal(err)
	}
	r := beginTest(tb, j, seed)
	s := newSynth(seed)
	s.lean, s.verifies = true, true
	for i := range 4 {
		b := s.batch(50)
		b.Events = []run.Event{{Second: int64(i), Kind: run.EventStarted, Text: "a <b> & c"}}
		if i == 1 {
			s.nextPhase(b)
		}
		if i == 3 {
			w := run.WAF{Available: true, Settled: true, ErrorMicro: 20, FirstSecond: 10, LastSecond: 190,
				Source: "OCP C0h: physical media units written / SMART: data units written"}
			samples, err := j.Samples(ctx, r.ID())
			if err != nil {
				tb.Fatal(err)
			}
			if w.Micro, err = recomputeWAF(&w, append(samples, b.Samples...)); err != nil {
				tb.Fatal(err)
			}
			b.Checkpoint.State = run.StateFinished
			b.Verdict = &run.Verdict{State: run.StateFinished, Reason: "finished", Totals: b.Checkpoint.Totals, WAF: w,
				HealthAvailable: true, HealthPercent: 99, SparePercent: 100}
		}
		if err := r.Commit(ctx, b); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

func sampleTransaction() txn.Transaction {
	t := txn.Transaction{Title: "op set --size 6.4TB", Address: "/dev/nvme0", Inventory: []byte(`{"namespaces":[1]}`),
		Began: time.Unix(1_700_000_000, 123).UTC(),
		Steps: []txn.Step{{Index: 0, Kind: "namespace.detach", Title: "detach namespace 1", Params: []byte(`{"nsid":1}`),
			Commands: []txn.Command{{Name: "attach", Opcode: 0x15, NSID: 1, CDW10: 1}}, UndoText: "attach it again"}}}
	t.Identity.Serial, t.Identity.SubsystemNQN, t.Identity.Model, t.Identity.CNTLID = "SN0001", "nqn.2014-08.org.example:a", "Example 7.68TB", 3
	return t
}

func TestVerify_findsNothingInASoundJournal(t *testing.T) {
	j := openTest(t)
	for seed := range uint64(3) {
		recordSome(t, j, seed)
	}
	v, err := j.Verify(context.Background())
	if err != nil || !v.OK() || v.Runs != 3 || v.Transactions != 3 || v.Steps != 21 || v.Events != 15 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestVerify_findsEachDamage changes one thing at a time behind the journal's
// back, each of which must be found.
func TestVerify_findsEachDamage(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.db")
	j, err := Open(context.Background(), base, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	recordSome(t, j, 1)
	closeJournal(t, j)
	tests := []struct{ damage, want string }{
		{"UPDATE steps SET record_json = replace(record_json, 'nsid', 'nsix') WHERE record = 3", "transaction t1: record 3 was changed (first broken link)"},
		{"UPDATE steps SET at_unix_ns = at_unix_ns + 1 WHERE record = 4", "record 4 was changed"},
		{"UPDATE steps SET result = NULL WHERE record = 2", "record 2 was changed"},
		{"DELETE FROM steps WHERE record = 2", "record 2 is missing (first broken link)"},
		{"DELETE FROM steps WHERE record = 7", "6 of 7 records are there: the end is missing"},
		{"UPDATE steps SET sha256 = prev_sha256 WHERE record = 1", "record 1 was changed"},
		{"UPDATE steps SET prev_sha256 = sha256 WHERE record = 5", "record 5 does not follow"},
		{"UPDATE transactions SET plan_json = replace(plan_json, '6.4TB', '6.5TB')", "record 1 does not follow"},
		{"UPDATE transactions SET state = 'open'", `its state is "open"`},
		{"UPDATE transactions SET title = 'op set --size 1TB'", `its columns say "op set --size 1TB"`},
		{"UPDATE transactions SET address = '/dev/nvme9'", `its columns say`},
		{"UPDATE transactions SET cntlid = cntlid + 1", `its columns say`},
		{"UPDATE transactions SET head_sha256 = zeroblob(32)", "the head of the chain is not its last record"},
		{"UPDATE events SET text = 'other' WHERE event = 2", "run r1: event 2 was changed (first broken link)"},
		{"UPDATE events SET lba = 7 WHERE event = 5", "event 5 was changed"},
		{"DELETE FROM events WHERE event = 5", "4 of 5 events are there"},
		{"DELETE FROM events WHERE event = 1", "event 1 is missing"},
		{"UPDATE runs SET header_json = replace(header_json, 'SN0001', 'SN0002')", "event 1 does not follow"},
		{"UPDATE rows SET write_bytes = write_bytes + 1 WHERE second = 77", "its rows sum to"},
		{"UPDATE rows SET write_max_ns = write_max_ns + 1000000000000 WHERE second = 77", "the minute at second 60 does not agree"},
		{"UPDATE rows SET phase = 1 WHERE second = 1", "the minute at second 0 does not agree"},
		{"DELETE FROM rows WHERE second = 150", "its rows sum to"},
		{"DELETE FROM minutes WHERE minute = 1", "histograms hold"},
		{"UPDATE runs SET write_ops = write_ops + 1", "checkpoint 4 has totals"},
		{"UPDATE runs SET next_second = 300", "has lasted for 300"},
		{"UPDATE gaps SET seconds = 1", ""}, // there are none: control
		{"INSERT INTO gaps VALUES (1, 1, 5, 5, 0, '', 0)", "200 seconds of rows and 5 of gaps"},
		{"UPDATE checkpoints SET low_water = low_water - 1 WHERE checkpoint = 3", "checkpoint 3: its columns"},
		{"UPDATE checkpoints SET checkpoint_json = replace(checkpoint_json, '\"next_second\":150', '\"next_second\":20'), next_second = 20 WHERE checkpoint = 3", "its marks go back"},
		{"DELETE FROM checkpoints WHERE checkpoint = 4", "its last checkpoint is 3"},
		{"DELETE FROM checkpoints", "checkpoint 4 is missing"},
		{"DELETE FROM histograms WHERE second = 0 AND is_write = 1", "phase 0: its histograms hold"},
		{"UPDATE histograms SET encoded = x'ff' WHERE second = 0", "cannot be checked further"},
		{"UPDATE verdicts SET verdict_json = replace(verdict_json, '\"rows\":200', '\"rows\":201')", "its verdict has totals"},
		{"DELETE FROM counters WHERE sample = 2", "the inputs of its WAF"},
		{"DELETE FROM samples WHERE sample = 20", "the inputs of its WAF"},
		{"UPDATE counters AS c SET units = (SELECT units FROM counters p WHERE p.sample = 19 AND p.is_media = c.is_media AND p.preference = c.preference) WHERE sample = 20 AND is_media", "its WAF is"},
		{"PRAGMA foreign_keys = 0; DELETE FROM drives", "points to a row of drives that is not there"},
		{"PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE name = 'samples_thinnable'; PRAGMA writable_schema = 0", "file: "},
	}
	for i, tt := range tests {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", i))
		if err := copyFile(path, base); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", dsn(path, "mode=rw"+pragma("foreign_keys", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(tt.damage); err != nil {
			t.Fatalf("%s: %v", tt.damage, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		j := openAt(t, path, ReadOnly)
		v, err := j.Verify(context.Background())
		if err != nil {
			t.Errorf("%s: %v", tt.damage, err)
		}
		if tt.want == "" {
			if !v.OK() {
				t.Errorf("%s: %v", tt.damage, v.Problems)
			}
			continue
		}
		if got := fmt.Sprint(v.Problems); !strings.Contains(got, tt.want) {
			t.Errorf("%s\n got %s\nwant %s", tt.damage, got, tt.want)
		}
	}
}

func TestNextLink_bindsEveryField(t *testing.T) {
	seen := map[link][]any{}
	for _, fields := range [][]any{
		{}, {nil}, {""}, {[]byte{}}, {int64(0)}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {"ab"}, {[]byte("ab")}, {"b", "a"},
		{int64(1)}, {int64(-1)}, {"\x00\x00\x00\x00\x00\x00\x00\x01"}, {nil, nil}, {"a", nil, "b"},
	} {
		l := nextLink(link{}, fields...)
		if other, ok := seen[l]; ok {
			t.Errorf("%#v and %#v have the same hash", other, fields)
		}
		seen[l] = fields
		if nextLink(l, fields...) == l || nextLink(link{1}, fields...) == l {
			t.Errorf("%#v: the link before does not count", fields)
		}
	}
}
