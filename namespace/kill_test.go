package namespace_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl/sim"
)

// fileLog is a txn.Log in a file of JSON lines, one transaction, so that it
// outlives a killed process. A line that a kill cut short is not counted.
type fileLog struct{ path string }

type logLine struct {
	Begin   *txn.Transaction `json:"begin,omitempty"`
	Intent  *txn.Intent      `json:"intent,omitempty"`
	Outcome *txn.Outcome     `json:"outcome,omitempty"`
	State   txn.State        `json:"state,omitempty"`
}

func (l fileLog) add(line logLine) error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return err
}

func (l fileLog) BeginTransaction(_ context.Context, t txn.Transaction) (string, error) {
	t.ID = "k1"
	return t.ID, l.add(logLine{Begin: &t})
}

func (l fileLog) Intent(_ context.Context, in txn.Intent) error { return l.add(logLine{Intent: &in}) }

func (l fileLog) Outcome(_ context.Context, out txn.Outcome) error {
	return l.add(logLine{Outcome: &out})
}

func (l fileLog) SetState(_ context.Context, _ string, s txn.State, _ string, _ time.Time) error {
	return l.add(logLine{State: s})
}

func (l fileLog) Load(context.Context, string) (txn.History, error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return txn.History{}, err
	}
	var h txn.History
	lines := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line logLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return h, err
		}
		switch {
		case line.Begin != nil:
			h.Transaction = *line.Begin
		case line.Intent != nil:
			h.Intents = append(h.Intents, *line.Intent)
		case line.Outcome != nil:
			h.Outcomes = append(h.Outcomes, *line.Outcome)
		default:
			h.Transaction.State = line.State
		}
	}
	return h, lines.Err()
}

func (l fileLog) Unfinished(context.Context, string) ([]txn.Transaction, error) { return nil, nil }

const killEnv = "NVOP_TEST_KILL_DIR"

func openKilled(t *testing.T, dir string) *rig {
	t.Helper()
	d, err := sim.Open(filepath.Join(dir, "drive"))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, drive: d}
}

// TestKill_child is the process that TestKill kills; by itself it does nothing.
func TestKill_child(t *testing.T) {
	dir := os.Getenv(killEnv)
	if dir == "" {
		t.Skip("runs as the child of TestKill only")
	}
	r := openKilled(t, dir)
	plan, err := opSet(0, "50%", nil)(r, r.inventory())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := plan.Transaction()
	if err != nil {
		t.Fatal(err)
	}
	runner := r.runner()
	runner.Log = fileLog{filepath.Join(dir, "log")}
	runner.Notify = func(e txn.Event) {
		fmt.Printf("event %d %s\n", e.Step.Index, e.Phase)
		time.Sleep(2 * time.Millisecond) // room for the kill to land
	}
	if _, err := runner.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
}

// TestKill kills -9 a process in the middle of a resize of a drive in a file, at
// a time nobody chose, and another goes on or back.
func TestKill(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, seed))
	p, _ := sim.LookupProfile(oneNamespace)
	options := sim.Options{Scale: uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17))}
	killed := 0
	for i := range 10 {
		dir := t.TempDir()
		if err := sim.Create(filepath.Join(dir, "drive"), p, options); err != nil {
			t.Fatal(err)
		}
		r := openKilled(t, dir)
		before := r.inventory()
		plan, err := opSet(0, "50%", nil)(r, before)
		if err != nil {
			t.Fatal(err)
		}
		r.drive.Close()
		if !killChild(t, dir, rng.IntN(24), time.Duration(rng.IntN(2500))*time.Microsecond) {
			continue
		}
		killed++
		r = openKilled(t, dir)
		runner := r.runner()
		runner.Log = fileLog{filepath.Join(dir, "log")}
		if i%2 == 0 {
			_, err = runner.Resume(t.Context(), "k1")
			if bad := plan.Verify(r.inventory()); err != nil || len(bad) != 0 {
				t.Errorf("kill %d (seed %d), resume: %v, %v", i, seed, err, bad)
			}
		} else {
			_, err = runner.Rollback(t.Context(), "k1")
			if got := shape(r.inventory()); err != nil || got != shape(before) {
				t.Errorf("kill %d (seed %d), rollback: %v, %s", i, seed, err, got)
			}
		}
		r.drive.Close()
	}
	if killed == 0 {
		t.Error("no process was killed in the middle")
	}
}

// killChild starts a resize in another process, waits for so many events and a
// moment more, and kills it. False when it had ended by then.
func killChild(t *testing.T, dir string, events int, moment time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill_child$")
	cmd.Env = append(os.Environ(), killEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range events + 1 {
		if !lines.Scan() {
			break
		}
	}
	time.Sleep(moment)
	_ = cmd.Process.Kill() // it may have ended by itself
	return cmd.Wait() != nil
}
