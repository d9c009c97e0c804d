package journal

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nvop/namespace/txn"
)

func TestLog_givesBackWhatWasRecorded(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := openAt(t, path, ReadWrite)
	want := txn.History{Transaction: sampleTransaction()}
	id, err := j.BeginTransaction(ctx, want.Transaction)
	if err != nil || id != "t1" {
		t.Fatalf("%q, %v", id, err)
	}
	other := sampleTransaction()
	other.Identity.Serial = "SN0002"
	if id, err := j.BeginTransaction(ctx, other); err != nil || id != "t2" {
		t.Fatalf("%q, %v", id, err)
	}
	want.Transaction.ID, want.Transaction.State = id, txn.StateOpen
	for seq := 1; seq <= 4; seq++ {
		in := txn.Intent{TransactionID: id, Seq: seq, StepIndex: 2, Direction: txn.Backward, Attempt: seq,
			Before: json.RawMessage(`{"a":"<&>"}`), Commands: []txn.Command{{Name: "create", Opcode: 0x0d, NSID: 1<<32 - 1}},
			Note: "why", At: time.Unix(1_700_000_000+int64(seq), 999_999_999).UTC()}
		if err := j.Intent(ctx, in); err != nil {
			t.Fatal(err)
		}
		in.Before = json.RawMessage(`{"a":"\u003c\u0026\u003e"}`) // the same JSON
		want.Intents = append(want.Intents, in)
		out := txn.Outcome{TransactionID: id, Seq: seq, StepIndex: 2, Direction: txn.Backward, Result: txn.ResultUnknown,
			State: json.RawMessage(`{"nsid":7}`), Error: "no answer", At: in.At.Add(time.Second)}
		if err := j.Outcome(ctx, out); err != nil {
			t.Fatal(err)
		}
		want.Outcomes = append(want.Outcomes, out)
	}
	check := func(j *Journal, unfinished ...string) {
		t.Helper()
		got, err := j.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-recorded +read:\n%s", d)
		}
		var ids []string
		for _, serial := range []string{"", "SN0001", "SN0002", "x"} {
			ts, err := j.Unfinished(ctx, serial)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range ts {
				ids = append(ids, serial+":"+u.ID)
			}
		}
		if d := cmp.Diff(unfinished, ids); d != "" {
			t.Errorf("unfinished (-want +got):\n%s", d)
		}
	}
	check(j, ":t1", ":t2", "SN0001:t1", "SN0002:t2")
	step := func(state txn.State, ended bool) {
		t.Helper()
		at := time.Unix(1_700_000_100, 7).UTC()
		if err := j.SetState(ctx, id, state, "because", at); err != nil {
			t.Fatal(err)
		}
		want.Transaction.State, want.Transaction.Message = state, "because"
		if ended {
			want.Transaction.Ended = at
		}
	}
	step(txn.StateRollingBack, false)
	check(j, ":t1", ":t2", "SN0001:t1", "SN0002:t2")
	step(txn.StateRolledBack, true)
	check(j, ":t2", "SN0002:t2")
	check(openAt(t, path, ReadOnly), ":t2", "SN0002:t2")
}

func TestLog_unknownTransaction(t *testing.T) {
	ctx := context.Background()
	j := openTest(t)
	for _, id := range []string{"", "t", "t0", "t1", "t01", "t-1", "1", "r1", "t99999999999999999999"} {
		_, err := j.Load(ctx, id)
		for _, err := range []error{err, j.Intent(ctx, txn.Intent{TransactionID: id}), j.Outcome(ctx, txn.Outcome{TransactionID: id}),
			j.SetState(ctx, id, txn.StateDone, "", time.Unix(0, 0))} {
			if nf, ok := errors.AsType[*NotFoundError](err); !ok || nf.ExitCode() != 1 {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
}
