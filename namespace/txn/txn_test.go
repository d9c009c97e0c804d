package txn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// toy is a drive with named values. Commands go through Submit so that faults
// can be placed there; the value to set travels in Data.
type toy struct {
	identity nvmeioctl.Identity
	values   map[string]string
	// fault is asked before each command is carried out: apply says whether
	// it is carried out, err is what comes back in place of an answer, status
	// what the drive answers.
	fault func(n int, key, value string) (apply bool, status nvmespec.Status, err error)
	sent  int
}

func newToy() *toy {
	return &toy{
		identity: nvmeioctl.Identity{SubsystemNQN: "nqn.test", Serial: "S1", Model: "toy", CNTLID: 7},
		values:   map[string]string{"a": "a0", "b": "b0", "c": "c0"},
	}
}

func (d *toy) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	key, value, _ := strings.Cut(string(cmd.Data), "=")
	d.sent++
	if d.fault != nil {
		apply, status, err := d.fault(d.sent, key, value)
		if apply {
			d.values[key] = value
		}
		return nvmeioctl.Completion{Status: status}, err
	}
	d.values[key] = value
	return nvmeioctl.Completion{}, nil
}

func (d *toy) String() string { return "toy:" }
func (d *toy) Close() error   { return nil }

func (d *toy) clone() *toy {
	c := *d
	c.values = map[string]string{}
	for k, v := range d.values {
		c.values[k] = v
	}
	return &c
}

// answered is a drive's error status, as nvmespec.StatusError will be.
type answered struct{ status nvmespec.Status }

func (e answered) Error() string { return fmt.Sprintf("status 0x%03x", uint16(e.status)) }
func (e answered) ExitCode() int { return 6 }

type params struct{ Key, From, To string }

// setter is an executor over a toy. deaf makes Verify unable to tell.
type setter struct {
	drive            *toy
	deaf, repeatable bool
}

func (e setter) want(s *txn.Scope) (key, value, other string) {
	var p params
	if err := json.Unmarshal(s.Step.Params, &p); err != nil {
		panic(err)
	}
	if s.Direction == txn.Backward {
		return p.Key, p.From, p.To
	}
	return p.Key, p.To, p.From
}

func (e setter) Prepare(_ context.Context, s *txn.Scope) (txn.Prepared, error) {
	key, value, _ := e.want(s)
	return txn.Prepared{
		Before:   json.RawMessage(`{"was":"` + e.drive.values[key] + `"}`),
		Commands: []txn.Command{{Name: "set", Opcode: 9, DataSummary: key + "=" + value}},
	}, nil
}

func (e setter) Take(ctx context.Context, s *txn.Scope) (json.RawMessage, error) {
	key, value, _ := e.want(s)
	done, err := s.Device.Submit(ctx, &nvmeioctl.Command{Opcode: 9, Data: []byte(key + "=" + value), Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	if done.Status.Code() != 0 {
		return nil, answered{done.Status}
	}
	return json.RawMessage(`"` + value + `"`), nil
}

func (e setter) Verify(_ context.Context, s *txn.Scope) (txn.Verdict, json.RawMessage, error) {
	key, value, other := e.want(s)
	if e.deaf && !s.Answered {
		return txn.Unknown, nil, nil
	}
	switch e.drive.values[key] {
	case value:
		return txn.Done, json.RawMessage(`"` + value + `"`), nil
	case other:
		return txn.NotDone, nil, nil
	}
	return txn.Unknown, nil, nil
}

func (e setter) Repeatable(txn.Direction) bool { return e.repeatable }

func runner(d *toy, log txn.Log) *txn.Runner {
	return &txn.Runner{
		Device: d, Clock: nvmeioctl.NewVirtualClock(time.Unix(0, 0)), Log: log,
		Registry: txn.Registry{"set": setter{drive: d}},
		Identify: func(context.Context, nvmeioctl.Device) (nvmeioctl.Identity, error) { return d.identity, nil },
		Describe: func(context.Context, nvmeioctl.Device) (string, error) {
			return "values " + d.values["a"] + d.values["b"] + d.values["c"], nil
		},
	}
}

func transaction() txn.Transaction {
	t := txn.Transaction{Title: "test", Identity: newToy().identity}
	for i, key := range []string{"a", "b", "c"} {
		p, _ := json.Marshal(params{Key: key, From: key + "0", To: key + "1"})
		t.Steps = append(t.Steps, txn.Step{Index: i, Kind: "set", Title: "set " + key, Params: p, UndoText: "sets it back"})
	}
	return t
}

func (d *toy) all() string { return d.values["a"] + " " + d.values["b"] + " " + d.values["c"] }

const before, after = "a0 b0 c0", "a1 b1 c1"

func exitCode(err error) int {
	if coder, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coder.ExitCode()
	}
	return 1
}

func TestRun_doesAndRecordsEveryStep(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	var seen []string
	r.Notify = func(e txn.Event) { seen = append(seen, fmt.Sprint(e.Step.Index, e.Phase)) }
	rep, err := r.Run(t.Context(), transaction())
	if err != nil || rep.State != txn.StateDone || d.all() != after {
		t.Fatalf("state %q, values %q, error %v", rep.State, d.all(), err)
	}
	if string(rep.States[2]) != `"c1"` {
		t.Errorf("state of step 3 is %s", rep.States[2])
	}
	h, err := log.Load(t.Context(), rep.ID)
	if err != nil || len(h.Intents) != 3 || len(h.Outcomes) != 3 || h.Transaction.State != txn.StateDone {
		t.Fatalf("history %+v, %v", h, err)
	}
	want := []string{"0before_intent", "0after_intent", "0after_take", "0after_outcome", "0after_verify"}
	if len(seen) != 15 || !slices.Equal(seen[:5], want) {
		t.Errorf("events %v", seen)
	}
	if open, _ := log.Unfinished(t.Context(), "S1"); len(open) != 0 {
		t.Errorf("unfinished: %v", open)
	}
	// A second resume changes nothing.
	if _, err := r.Resume(t.Context(), rep.ID); err != nil || d.sent != 3 {
		t.Errorf("resume of a finished transaction: %d commands, %v", d.sent, err)
	}
}

// cutAt ends the run at the n-th event.
func cutAt(n int) func(txn.Event) error {
	return func(txn.Event) error {
		n--
		if n == 0 {
			return errCut
		}
		return nil
	}
}

var errCut = errors.New("cut")

// fork copies a log and a drive, as two machines restored from one snapshot.
func fork(t *testing.T, log *txn.MemoryLog, id string) *copyLog {
	t.Helper()
	h, err := log.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return &copyLog{h: h}
}

type copyLog struct {
	txn.Log
	h txn.History
}

func (l *copyLog) Intent(_ context.Context, in txn.Intent) error {
	l.h.Intents = append(l.h.Intents, in)
	return nil
}

func (l *copyLog) Outcome(_ context.Context, out txn.Outcome) error {
	l.h.Outcomes = append(l.h.Outcomes, out)
	return nil
}

func (l *copyLog) SetState(_ context.Context, _ string, s txn.State, _ string, _ time.Time) error {
	l.h.Transaction.State = s
	return nil
}

func (l *copyLog) Load(context.Context, string) (txn.History, error) { return l.h, nil }

func TestRun_cutAnywhereThenResumeOrRollback(t *testing.T) {
	const events = 15
	for n := 1; n <= events; n++ {
		d, log := newToy(), &txn.MemoryLog{}
		r := runner(d, log)
		r.Cut = cutAt(n)
		if _, err := r.Run(t.Context(), transaction()); !errors.Is(err, errCut) {
			t.Fatalf("cut %d: error %v", n, err)
		}
		one, two := d.clone(), d.clone()
		if rep, err := runner(one, fork(t, log, "1")).Resume(t.Context(), "1"); err != nil || one.all() != after || rep.State != txn.StateDone {
			t.Errorf("cut %d, resume: %q, %v", n, one.all(), err)
		}
		if rep, err := runner(two, fork(t, log, "1")).Rollback(t.Context(), "1"); err != nil || two.all() != before || rep.State != txn.StateRolledBack {
			t.Errorf("cut %d, rollback: %q, %v", n, two.all(), err)
		}
		// A rollback that is itself cut goes on, by either command.
		for m := 1; m <= events; m++ {
			three := d.clone()
			flog := fork(t, log, "1")
			r := runner(three, flog)
			r.Cut = cutAt(m)
			_, err := r.Rollback(t.Context(), "1")
			if err != nil && !errors.Is(err, errCut) {
				t.Fatalf("cut %d, rollback cut %d: %v", n, m, err)
			}
			if _, err := runner(three, flog).Resume(t.Context(), "1"); err != nil || three.all() != before {
				t.Errorf("cut %d, rollback cut %d, resume: %q, %v", n, m, three.all(), err)
			}
		}
	}
}

func TestRun_intentIsDurableBeforeTheCommand(t *testing.T) {
	d := newToy()
	log := &failingLog{failIntentAt: 2}
	_, err := runner(d, log).Run(t.Context(), transaction())
	if d.sent != 1 {
		t.Errorf("%d commands sent although the second intent could not be recorded", d.sent)
	}
	if exitCode(err) != 7 {
		t.Errorf("error %v", err)
	}
}

type failingLog struct {
	txn.MemoryLog
	failIntentAt, n int
}

func (l *failingLog) Intent(ctx context.Context, in txn.Intent) error {
	if l.n++; l.n == l.failIntentAt {
		return errors.New("disk full")
	}
	return l.MemoryLog.Intent(ctx, in)
}

func TestRun_refusedStepIsRolledBack(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	d.fault = func(n int, key, value string) (bool, nvmespec.Status, error) {
		if value == "c1" {
			return false, 0x4115, nil
		}
		return true, 0, nil
	}
	_, err := runner(d, log).Run(t.Context(), transaction())
	rolled, ok := errors.AsType[*txn.RolledBackError](err)
	if !ok || exitCode(err) != 6 || d.all() != before {
		t.Fatalf("error %v (exit %d), values %q", err, exitCode(err), d.all())
	}
	if rolled.Step.Index != 2 || !strings.Contains(err.Error(), "status 0x4115") {
		t.Errorf("message %q", err)
	}
	if open, _ := log.Unfinished(t.Context(), ""); len(open) != 0 {
		t.Errorf("unfinished: %v", open)
	}
}

func TestRun_refusedStepLeftForResume(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	refuse := true
	d.fault = func(n int, key, value string) (bool, nvmespec.Status, error) {
		if value == "c1" && refuse {
			return false, 0x4115, nil
		}
		return true, 0, nil
	}
	r := runner(d, log)
	r.LeaveRefused = true
	_, err := r.Run(t.Context(), transaction())
	if exitCode(err) != 7 || d.all() != "a1 b1 c0" {
		t.Fatalf("error %v, values %q", err, d.all())
	}
	for _, part := range []string{"nvop resume 1", "nvop rollback 1", "values a1b1c0", "step 3 (set c)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message lacks %q: %v", part, err)
		}
	}
	refuse = false
	if _, err := r.Resume(t.Context(), "1"); err != nil || d.all() != after {
		t.Errorf("resume: %q, %v", d.all(), err)
	}
}

func TestRun_refusedForEverNamesTheStep(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	d.fault = func(n int, key, value string) (bool, nvmespec.Status, error) {
		if value == "c1" || value == "b0" {
			return false, 0x4115, nil
		}
		return true, 0, nil
	}
	_, err := runner(d, log).Run(t.Context(), transaction())
	if exitCode(err) != 7 || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{"set b", "step 3 was refused", "nvop rollback 1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message lacks %q: %v", part, err)
		}
	}
}

func TestRun_firstStepRefusedChangesNothing(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	d.fault = func(int, string, string) (bool, nvmespec.Status, error) { return false, 0x4001, nil }
	_, err := runner(d, log).Run(t.Context(), transaction())
	if exitCode(err) != 6 || d.sent != 1 {
		t.Fatalf("error %v, %d commands", err, d.sent)
	}
	if h, _ := log.Load(t.Context(), "1"); h.Transaction.State != txn.StateCancelled {
		t.Errorf("state %q", h.Transaction.State)
	}
}

func TestRun_lostAnswerIsReadBack(t *testing.T) {
	for _, applied := range []bool{true, false} {
		d, log := newToy(), &txn.MemoryLog{}
		d.fault = func(n int, key, value string) (bool, nvmespec.Status, error) {
			if n == 2 {
				return applied, 0, fmt.Errorf("set: %w", nvmeioctl.ErrIndeterminate)
			}
			return true, 0, nil
		}
		r := runner(d, log)
		_, err := r.Run(t.Context(), transaction())
		if applied {
			if err != nil || d.all() != after || d.sent != 3 {
				t.Errorf("carried out: %q after %d commands, %v", d.all(), d.sent, err)
			}
			continue
		}
		if exitCode(err) != 7 || !errors.Is(err, nvmeioctl.ErrIndeterminate) {
			t.Errorf("not carried out: %v", err)
		}
		if _, err := r.Resume(t.Context(), "1"); err != nil || d.all() != after {
			t.Errorf("resume: %q, %v", d.all(), err)
		}
	}
}

func TestRun_unknownOutcome(t *testing.T) {
	for _, repeatable := range []bool{false, true} {
		d, log := newToy(), &txn.MemoryLog{}
		lose := true
		d.fault = func(n int, key, value string) (bool, nvmespec.Status, error) {
			if key == "b" && lose {
				lose = false
				return true, 0, nvmeioctl.ErrIndeterminate
			}
			return true, 0, nil
		}
		r := runner(d, log)
		r.Registry = txn.Registry{"set": setter{drive: d, deaf: true, repeatable: repeatable}}
		if _, err := r.Run(t.Context(), transaction()); exitCode(err) != 7 {
			t.Fatalf("error %v", err)
		}
		_, err := r.Resume(t.Context(), "1")
		if repeatable && (err != nil || d.all() != after) {
			t.Errorf("repeatable: %q, %v", d.all(), err)
		}
		if !repeatable && (exitCode(err) != 7 || !strings.Contains(err.Error(), "does not tell")) {
			t.Errorf("not repeatable: %v", err)
		}
	}
}

func TestRun_otherDriveIsRefused(t *testing.T) {
	// Before the first step: nothing was changed, exit 4.
	d, log := newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	d.identity.Serial = "S2"
	if _, err := r.Run(t.Context(), transaction()); exitCode(err) != 4 || d.sent != 0 {
		t.Errorf("error %v, %d commands", err, d.sent)
	}
	// In the middle: nothing more is sent.
	d, log = newToy(), &txn.MemoryLog{}
	r = runner(d, log)
	r.Notify = func(e txn.Event) {
		if e.Direction == txn.Forward && e.Step.Index == 1 && e.Phase == txn.PhaseAfterVerify {
			d.identity.CNTLID = 8
		}
	}
	_, err := r.Run(t.Context(), transaction())
	refused, ok := errors.AsType[*nvmeioctl.RefusedError](err)
	if !ok || refused.Check != "identity" || exitCode(err) != 7 || d.sent != 2 {
		t.Errorf("error %v, %d commands", err, d.sent)
	}
	if _, err := r.Rollback(t.Context(), "1"); exitCode(err) != 7 || d.sent != 2 {
		t.Errorf("rollback on another drive: %v, %d commands", err, d.sent)
	}
	d.identity.CNTLID = 7
	if _, err := r.Resume(t.Context(), "1"); err != nil || d.all() != after {
		t.Errorf("the right drive is back, but resume: %q, %v", d.all(), err)
	}
}

func TestRun_preStepRefusalSendsNothing(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	var infos []txn.StepInfo
	r.PreStep = func(_ context.Context, info txn.StepInfo) (nvmeioctl.Device, error) {
		infos = append(infos, info)
		return nil, &nvmeioctl.RefusedError{Check: "in use", Subject: "toy:", Reason: "mounted"}
	}
	if _, err := r.Run(t.Context(), transaction()); exitCode(err) != 4 || d.sent != 0 {
		t.Errorf("error %v, %d commands", err, d.sent)
	}
	if len(infos) != 1 || len(infos[0].Commands) != 1 || infos[0].Commands[0].DataSummary != "a=a1" {
		t.Errorf("pre-step was told %+v", infos)
	}
}

func TestRun_interrupted(t *testing.T) {
	// Before anything: 130 and nothing recorded as open.
	ctx, cancel := context.WithCancel(t.Context())
	d, log := newToy(), &txn.MemoryLog{}
	cancel()
	if _, err := runner(d, log).Run(ctx, transaction()); exitCode(err) != 130 || d.sent != 0 {
		t.Errorf("error %v, %d commands", err, d.sent)
	}
	// Between intent and command: still nothing changed.
	ctx, cancel = context.WithCancel(t.Context())
	d, log = newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	r.Notify = func(e txn.Event) {
		if e.Phase == txn.PhaseAfterIntent {
			cancel()
		}
	}
	if _, err := r.Run(ctx, transaction()); exitCode(err) != 130 || d.sent != 0 {
		t.Errorf("error %v, %d commands", err, d.sent)
	}
	if open, _ := log.Unfinished(t.Context(), ""); len(open) != 0 {
		t.Errorf("unfinished: %v", open)
	}
	// While the second command runs: it is waited for, recorded, and the rest
	// is left for resume.
	ctx, cancel = context.WithCancel(t.Context())
	d, log = newToy(), &txn.MemoryLog{}
	d.fault = func(n int, _, _ string) (bool, nvmespec.Status, error) {
		if n == 2 {
			cancel()
		}
		return true, 0, nil
	}
	r = runner(d, log)
	if _, err := r.Run(ctx, transaction()); exitCode(err) != 7 || d.all() != "a1 b1 c0" {
		t.Errorf("error %v, values %q", err, d.all())
	}
	if _, err := r.Resume(t.Context(), "1"); err != nil || d.all() != after {
		t.Errorf("resume: %q, %v", d.all(), err)
	}
}

func TestRun_successThatReadsBackOtherwise(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	d.fault = func(n int, _, _ string) (bool, nvmespec.Status, error) { return n != 2, 0, nil }
	_, err := runner(d, log).Run(t.Context(), transaction())
	if exitCode(err) != 7 || !strings.Contains(err.Error(), "reading back") {
		t.Errorf("error %v", err)
	}
}

func TestRollback_ofDoneTransaction(t *testing.T) {
	d, log := newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	if _, err := r.Run(t.Context(), transaction()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Rollback(t.Context(), "1"); err != nil || d.all() != before {
		t.Errorf("rollback: %q, %v", d.all(), err)
	}
	sent := d.sent
	if _, err := r.Rollback(t.Context(), "1"); err != nil || d.sent != sent {
		t.Errorf("second rollback: %v", err)
	}
}

// A rollback that is refused before anything is undone leaves the transaction
// as it was: done, or open in the direction it was going.
func TestRollback_refusedAtOnce(t *testing.T) {
	no := func(context.Context, txn.StepInfo) (nvmeioctl.Device, error) {
		return nil, &nvmeioctl.RefusedError{Check: "in use", Subject: "toy:", Reason: "mounted"}
	}
	d, log := newToy(), &txn.MemoryLog{}
	r := runner(d, log)
	if _, err := r.Run(t.Context(), transaction()); err != nil {
		t.Fatal(err)
	}
	r.PreStep = no
	if _, err := r.Rollback(t.Context(), "1"); exitCode(err) != 4 || d.all() != after {
		t.Errorf("error %v, values %q", err, d.all())
	}
	if open, _ := log.Unfinished(t.Context(), ""); len(open) != 0 {
		t.Errorf("unfinished: %v", open)
	}

	d, log = newToy(), &txn.MemoryLog{}
	r = runner(d, log)
	r.Cut = cutAt(7)
	if _, err := r.Run(t.Context(), transaction()); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	r.Cut, r.PreStep = nil, no
	if _, err := r.Rollback(t.Context(), "1"); exitCode(err) != 7 || !strings.Contains(err.Error(), "nvop resume 1") {
		t.Errorf("error %v", err)
	}
	r.PreStep = nil
	if _, err := r.Resume(t.Context(), "1"); err != nil || d.all() != after {
		t.Errorf("resume: %q, %v", d.all(), err)
	}
}

func TestBegin_refusesWhatItCannotRun(t *testing.T) {
	r := runner(newToy(), &txn.MemoryLog{})
	tx := transaction()
	tx.Steps[1].Kind = "unheard of"
	if _, err := r.Begin(t.Context(), tx); err == nil {
		t.Error("unknown kind accepted")
	}
	if _, err := r.Begin(t.Context(), txn.Transaction{}); err == nil {
		t.Error("empty transaction accepted")
	}
}
