package journal

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nvop/endurance/run"
	"nvop/namespace/txn"
)

// TestMain lets the tests run this program again as a writer that can be killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("NVOP_JOURNAL_TEST_WRITE"); path != "" {
		if err := writeUntilKilled(path, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		// Each case is a run of half an hour.
		if err := f.Value.Set("8"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// said is what the writer says on its output after each thing has been
// recorded, so that the reader knows what must be there.
type said struct {
	Transaction string
	Intents     int
	Outcomes    int
	Run         string
	Checkpoint  uint64
	Totals      run.Totals
}

// writeUntilKilled records steps and batches for ever, continuing what is
// there, and says so after each commit.
func writeUntilKilled(path string, out io.Writer) error {
	ctx := context.Background()
	j, err := Open(ctx, path, ReadWrite)
	if err != nil {
		return err
	}
	var now said
	if now.Transaction, err = j.BeginTransaction(ctx, sampleTransaction()); err != nil {
		return err
	}
	r, s, err := beginOrResume(ctx, j, os.Getenv("NVOP_JOURNAL_TEST_NEW") != "")
	if err != nil {
		return err
	}
	now.Run, now.Checkpoint, now.Totals = r.ID(), s.cp.Number, s.cp.Totals
	say := json.NewEncoder(out)
	for seq := 1; ; seq++ {
		if err := say.Encode(now); err != nil {
			return err
		}
		if err := j.Intent(ctx, txn.Intent{TransactionID: now.Transaction, Seq: seq, Direction: txn.Forward, At: time.Unix(1, 0)}); err != nil {
			return err
		}
		now.Intents++
		if err := say.Encode(now); err != nil {
			return err
		}
		b := nextBatch(s)
		if err := r.Commit(ctx, b); err != nil {
			return err
		}
		now.Checkpoint, now.Totals = b.Checkpoint.Number, b.Checkpoint.Totals
		if err := say.Encode(now); err != nil {
			return err
		}
		if err := j.Outcome(ctx, txn.Outcome{TransactionID: now.Transaction, Seq: seq, Result: txn.ResultDone, At: time.Unix(2, 0)}); err != nil {
			return err
		}
		now.Outcomes++
	}
}

// nextBatch depends on the number of the checkpoint only, so that a resumed
// writer can make the batches again.
func nextBatch(s *synth) *run.Batch {
	b := s.batch(int64(1 + s.cp.Number*131%400))
	b.Events = []run.Event{{Kind: run.EventIOError, Text: fmt.Sprint(b.Checkpoint.Number)}}
	return b
}

// beginOrResume goes on with the run that is there. It commits the last batch
// again, as a caller does that cannot know whether its commit went through.
func beginOrResume(ctx context.Context, j *Journal, fresh bool) (*Recorder, *synth, error) {
	s := newSynth(1)
	s.lean = true
	last, err := j.LastRun(ctx)
	if _, none := errors.AsType[*NotFoundError](err); none || fresh {
		r, err := j.BeginRun(ctx, synthHeader(1))
		return r, s, err
	}
	if err != nil {
		return nil, nil, err
	}
	r, state, err := j.ResumeRun(ctx, last.ID)
	if err != nil || state.Checkpoint == nil {
		return r, s, err
	}
	var b *run.Batch
	for s.cp.Number < state.Checkpoint.Number {
		b = nextBatch(s)
	}
	if s.cp.Totals != state.Checkpoint.Totals {
		return nil, nil, fmt.Errorf("resumed with totals %+v, recorded %+v", state.Checkpoint.Totals, s.cp.Totals)
	}
	return r, s, r.Commit(ctx, b)
}

// TestKill kills a writer at random moments, again and again on the same
// journal: nothing it had said to be recorded may be missing, no batch may be
// torn, and all chains must hold.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	var known []said
	for range rounds {
		known = append(known, killedWriter(t, self, path, randomDelay(t, 250*time.Millisecond), 0))
		checkAfterKill(t, path, known)
	}
	recorded := 0
	for _, k := range known {
		recorded += k.Intents
	}
	if recorded == 0 {
		t.Errorf("nothing was recorded in %d rounds", rounds)
	}
}

// randomDelay is truly random: the moment of a kill cannot be repeated anyway.
func randomDelay(t *testing.T, below time.Duration) time.Duration {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(int64(below)))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n.Int64())
}

// killedWriter kills a writer some time after its first record, but not before it
// has recorded so many steps and checkpoints, and says what it had recorded.
func killedWriter(t *testing.T, self, path string, after time.Duration, least int) said {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "NVOP_JOURNAL_TEST_WRITE="+path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // the clock runs from the first record
		t.Errorf("the writer recorded nothing: %v, %s", cmd.Wait(), stderr.String())
		return said{}
	}
	var due atomic.Bool
	timer := time.AfterFunc(after, func() {
		if due.Store(true); least == 0 {
			_ = cmd.Process.Kill()
		}
	})
	defer timer.Stop()
	var last said
	for ok := true; ok; ok = lines.Scan() {
		var s said
		if json.Unmarshal(lines.Bytes(), &s) == nil { // the last line may be cut
			last = s
		}
		if due.Load() && last.Intents >= least && last.Checkpoint >= uint64(least) {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // it was killed
	if stderr.Len() != 0 {
		t.Errorf("the writer failed: %s", stderr.String())
	}
	return last
}

func checkAfterKill(t *testing.T, path string, known []said) {
	t.Helper()
	ctx := context.Background()
	j, err := Open(ctx, path, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer closeJournal(t, j)
	v, err := j.Verify(ctx)
	if err != nil || !v.OK() {
		t.Fatalf("%v, %v", v.Problems, err)
	}
	for i, k := range known {
		if k.Transaction == "" {
			continue
		}
		h, err := j.Load(ctx, k.Transaction)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Intents) < k.Intents || len(h.Outcomes) < k.Outcomes || len(h.Intents) > k.Intents+1 || len(h.Outcomes) > k.Outcomes+1 {
			t.Errorf("%s: %d intents and %d outcomes are there, %d and %d were recorded", k.Transaction,
				len(h.Intents), len(h.Outcomes), k.Intents, k.Outcomes)
		}
		r, err := j.LoadRun(ctx, k.Run)
		if err != nil {
			t.Fatal(err)
		}
		if r.LastCheckpoint < k.Checkpoint || i == len(known)-1 && r.LastCheckpoint > k.Checkpoint+1 {
			t.Errorf("%s: checkpoint %d is there, %d was recorded", k.Run, r.LastCheckpoint, k.Checkpoint)
		}
		if r.LastCheckpoint == k.Checkpoint && r.Totals != k.Totals {
			t.Errorf("%s: totals %+v, recorded %+v", k.Run, r.Totals, k.Totals)
		}
	}
}

// TestWrite_twoProcesses lets two other processes record at once in one
// journal, until neither has been starved.
func TestWrite_twoProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	t.Setenv("NVOP_JOURNAL_TEST_NEW", "1") // each its own run
	known := make([]said, 2)
	var wg sync.WaitGroup
	for i := range known {
		wg.Go(func() { known[i] = killedWriter(t, self, path, 700*time.Millisecond, 2) })
	}
	wg.Wait()
	checkAfterKill(t, path, known[:1])
	checkAfterKill(t, path, known[1:])
}

// TestRecorder_twiceAtOnce: a run that two processes record is refused to one
// of them, and stays sound.
func TestRecorder_twiceAtOnce(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	a, b := openAt(t, path, ReadWrite), openAt(t, path, ReadWrite)
	first := beginTest(t, a, 1)
	second, _, err := b.ResumeRun(ctx, first.ID())
	if err != nil {
		t.Fatal(err)
	}
	s1, s2 := newSynth(1), newSynth(2)
	s1.lean, s2.lean = true, true
	if err := first.Commit(ctx, s1.batch(5)); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(ctx, s2.batch(5)); err == nil || !strings.Contains(err.Error(), "recorded twice") {
		t.Errorf("%v", err)
	}
	if v, err := a.Verify(ctx); err != nil || !v.OK() {
		t.Errorf("%v, %v", v.Problems, err)
	}
}
