package firmware_test

import (
	"testing"

	"nvop/namespace/firmware"
	"nvop/namespace/txn"
)

// TestJudge has what a drive may have made of what was staged in slot 2 while A
// ran from slot 1 (FW-05, FW-07, FW-29).
func TestJudge(t *testing.T) {
	cycles := func(n uint64) *uint64 { return &n }
	staged := firmware.Record{Phase: firmware.PhaseStaged, Revision: "B", Slot: 2, Previous: "A", PreviousSlot: 1,
		Pending: firmware.ResetConventional, NextSeen: true, PowerCycles: cycles(5)}
	blind := staged
	blind.NextSeen = false
	stored := staged
	stored.Phase, stored.Pending = firmware.PhaseStored, firmware.ResetNone
	ran := staged
	ran.Phase, ran.Pending = firmware.PhaseActive, firmware.ResetNone
	for _, c := range []struct {
		name   string
		record firmware.Record
		slots  []string
		cycles uint64
		want   firmware.Phase
	}{
		{"nothing happened yet", staged, []string{"A*", "B>"}, 5, firmware.PhaseStaged},
		{"it runs", staged, []string{"A", "B*"}, 6, firmware.PhaseActive},
		{"a power cycle, and it still waits", staged, []string{"A*", "B>"}, 6, firmware.PhaseFailed},
		{"a reset, and it does not wait any more", staged, []string{"A*", "B"}, 5, firmware.PhaseFailed},
		{"somebody staged another", staged, []string{"A*", "B", "C>"}, 5, firmware.PhaseFailed},
		{"somebody overwrote the slot", staged, []string{"A*", "C>"}, 5, firmware.PhaseFailed},
		{"another revision runs", staged, []string{"A", "B", "C*"}, 6, firmware.PhaseFailed},
		{"the drive does not tell, no power cycle", blind, []string{"A*", "B"}, 5, firmware.PhaseStaged},
		{"the drive does not tell, a power cycle", blind, []string{"A*", "B"}, 6, firmware.PhaseFailed},
		{"stored and untouched", stored, []string{"A*", "B"}, 9, firmware.PhaseStored},
		{"it ran and does not any more", ran, []string{"A*", "B"}, 6, firmware.PhaseFailed},
		{"it runs from another slot", staged, []string{"A", "", "B*"}, 6, firmware.PhaseActive},
	} {
		s := slots(c.slots...)
		s.PowerCycles = cycles(c.cycles)
		j := firmware.Judge(c.record, s)
		if j.Phase != c.want || j.Text == "" || j.Phase == firmware.PhaseStaged && j.Pending != firmware.ResetConventional {
			t.Errorf("%s: %+v, want %s", c.name, j, c.want)
		}
	}
}

// TestJudge_otherName: a controller may name another revision than the slot that
// runs (QEMU does).
func TestJudge_otherName(t *testing.T) {
	s := slots("A", "B*")
	s.Running = "7.2.22"
	r := firmware.Record{Phase: firmware.PhaseStaged, Revision: "B", Slot: 2, Previous: "7.2.21", PreviousSlot: 1}
	if j := firmware.Judge(r, s); j.Phase != firmware.PhaseActive {
		t.Errorf("%+v", j)
	}
	r.PreviousSlot = 2 // a single slot: only the name tells
	if j := firmware.Judge(r, s); j.Phase == firmware.PhaseActive {
		t.Errorf("%+v", j)
	}
}

// TestLastRecord: the last word counts, a refused step says nothing, and an undone
// one takes back what it said.
func TestLastRecord(t *testing.T) {
	step := txn.Step{Kind: firmware.KindUpdate}
	history := func(id string, outs ...txn.Outcome) txn.History {
		return txn.History{Transaction: txn.Transaction{ID: id, Steps: []txn.Step{step}}, Outcomes: outs}
	}
	said := func(revision string, dir txn.Direction, result txn.Result) txn.Outcome {
		o := txn.Outcome{Direction: dir, Result: result}
		if revision != "" {
			o.State = []byte(mustJSON(t, firmware.Record{Phase: firmware.PhaseStaged, Revision: revision}))
		}
		return o
	}
	one := history("t1", said("ONE", txn.Forward, txn.ResultDone))
	refused := history("t2", said("", txn.Forward, txn.ResultRefused))
	undone := history("t3", said("TWO", txn.Forward, txn.ResultDone), said("", txn.Backward, txn.ResultDone))
	if r, id, ok := firmware.LastRecord([]txn.History{one, refused}); !ok || r.Revision != "ONE" || id != "t1" {
		t.Errorf("%+v %s %v", r, id, ok)
	}
	if r, _, ok := firmware.LastRecord([]txn.History{one, undone}); ok {
		t.Errorf("an undone update still speaks: %+v", r)
	}
	if _, _, ok := firmware.LastRecord(nil); ok {
		t.Error("nothing was said")
	}
	other := txn.History{Transaction: txn.Transaction{ID: "t4", Steps: []txn.Step{{Kind: "namespace.create"}}}, Outcomes: []txn.Outcome{{Result: txn.ResultDone, State: []byte(`{"phase":"x"}`)}}}
	if r, _, ok := firmware.LastRecord([]txn.History{one, other}); !ok || r.Revision != "ONE" {
		t.Errorf("another kind of step spoke of firmware: %+v", r)
	}
}
