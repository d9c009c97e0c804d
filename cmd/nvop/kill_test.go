package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// skipUnderRace skips what works with nvop processes of its own: they are this
// binary, and what they share is files, which the race detector does not see.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("skipped under the race detector: processes are killed by the clock, and slow ones show nothing; the plain run has it")
	}
}

// workshop is a folder with a simulated drive and a journal, worked on by nvop
// processes of their own.
type workshop struct {
	t      *testing.T
	dir    string
	serial string
}

func newWorkshop(t *testing.T, profile string, more ...string) *workshop {
	t.Helper()
	w := &workshop{t: t, dir: t.TempDir()}
	var made simCreateResult
	w.must(&made, append([]string{"sim", "create", "drive.nvop", "--profile", profile}, more...)...)
	w.serial = made.Serial
	return w
}

// copy is another workshop in the same state.
func (w *workshop) copy() *workshop {
	w.t.Helper()
	c := &workshop{t: w.t, dir: w.t.TempDir(), serial: w.serial}
	if err := os.CopyFS(c.dir, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// command is an nvop process, not started yet. The test binary is nvop when it
// is called so.
func (w *workshop) command(args ...string) *exec.Cmd {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append(append([]string{"nvop"}, args...), "--journal", "journal.db")
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir, "XDG_RUNTIME_DIR="+w.dir)
	return cmd
}

// run runs nvop and reads its document.
func (w *workshop) run(result any, args ...string) (code int, stderr string) {
	w.t.Helper()
	var out, errout bytes.Buffer
	cmd := w.command(append(args, "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() == 0 {
		if err := json.Unmarshal(out.Bytes(), result); err != nil {
			w.t.Fatalf("nvop %s: %v\n%s", strings.Join(args, " "), err, &out)
		}
	}
	return cmd.ProcessState.ExitCode(), errout.String()
}

func (w *workshop) must(result any, args ...string) {
	w.t.Helper()
	if code, stderr := w.run(result, args...); code != 0 {
		history, _ := w.command("journal", "show", "t1").CombinedOutput()
		w.t.Fatalf("nvop %s: exit code %d\n%s\n%s", strings.Join(args, " "), code, stderr, history)
	}
}

// killAfter starts nvop, kills it with -9 after a while, and says whether it
// was still at work.
func (w *workshop) killAfter(wait time.Duration, args ...string) bool {
	w.t.Helper()
	cmd := w.command(args...)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(wait)
	if err := cmd.Process.Kill(); err != nil && !strings.Contains(err.Error(), "finished") {
		w.t.Fatal(err)
	}
	err := cmd.Wait()
	return err != nil && strings.Contains(err.Error(), "killed")
}

// attached wants exactly one namespace, attached, of one of these sizes.
func (w *workshop) attached(when string, blocks ...uint64) {
	w.t.Helper()
	var list nsListResult
	w.must(&list, "ns", "list", "sim:drive.nvop")
	if len(list.Namespaces) != 1 || len(list.Namespaces[0].Controllers) != 1 {
		w.t.Fatalf("%s: namespaces %+v", when, list.Namespaces)
	}
	for _, b := range blocks {
		if list.Namespaces[0].SizeBlocks == b {
			return
		}
	}
	w.t.Fatalf("%s: %d blocks, want one of %v", when, list.Namespaces[0].SizeBlocks, blocks)
}

// TestKill_resize: killed with -9 at any moment, a resize can be carried on and
// undone, and either way the drive ends with an attached namespace. NN = 1: the
// old namespace has to go before the new one comes.
func TestKill_resize(t *testing.T) {
	skipUnderRace(t)
	const before, after = 7_501_476_528, 6_251_233_968
	start := newWorkshop(t, "memblaze-p6531-3.84tb")
	resize := []string{"op", "set", "sim:drive.nvop", "--size", "3.2TB", "--confirm-serial", start.serial}
	began := time.Now()
	whole := start.copy()
	whole.must(&changeResult{}, resize...)
	span := time.Since(began)
	states := map[string]int{}
	const rounds = 16
	// A machine that was busy when the whole was timed is quicker now.
	for i := 0; i < rounds || states["inside"] == 0 && i < 6*rounds; i++ {
		w := start.copy()
		if !w.killAfter(span*time.Duration(i%rounds+1)/rounds, resize...) {
			span = span * 3 / 4
		}
		var list journalListResult
		w.must(&list, "journal", "list")
		if len(list.Changes) == 0 || list.Changes[0].State.Finished() {
			states["outside"]++
			w.attached("killed outside the transaction", before, after)
			continue
		}
		states["inside"]++
		undo := w.copy()
		w.must(&changeResult{}, "resume", "--confirm-serial", w.serial)
		w.attached("resumed", after)
		undo.must(&changeResult{}, "rollback", "--address", "sim:drive.nvop", "--confirm-serial", w.serial)
		undo.attached("rolled back", before)
		for _, x := range []*workshop{w, undo} {
			x.must(&verifyResult{}, "journal", "verify")
		}
	}
	t.Logf("%d kills inside the transaction, %d outside", states["inside"], states["outside"])
	if states["inside"] == 0 {
		t.Error("no kill hit the transaction: the test shows nothing")
	}
}

// TestKill_soak: a soak killed with -9 and resumed counts nothing twice, and
// what was lost is a gap of its own.
func TestKill_soak(t *testing.T) {
	skipUnderRace(t)
	w := newWorkshop(t, "pblaze7-7940-7.68tb", "--scale", "8192")
	start := []string{"soak", "start", "sim:drive.nvop", "--rw", "randwrite", "--qd", "256", "--size", "800TB",
		"--time-lapse", "8192", "--confirm-serial", w.serial}
	if !w.killAfter(time.Second, start...) {
		t.Fatal("the soak ended before it could be killed: the test shows nothing")
	}
	for range 2 {
		var status soakResult
		w.must(&status, "soak", "status")
		if status.Verdict != "interrupted" {
			t.Fatalf("after a kill the soak is %s, %s", status.State, status.Verdict)
		}
		if !w.killAfter(700*time.Millisecond, "soak", "resume", "--confirm-serial", w.serial) {
			t.Fatal("the resumed soak ended before it could be killed")
		}
	}
	var done soakResult
	w.must(&done, "soak", "resume", "--confirm-serial", w.serial)
	if done.Verdict != "pass" || done.WriteBytes < 799_990_000_000_000 || done.WriteBytes > 800_010_000_000_000 {
		t.Errorf("resumed to %s with %d bytes written", done.Verdict, done.WriteBytes)
	}
	var check verifyResult
	w.must(&check, "journal", "verify")
	var history runHistory
	w.must(&history, "journal", "show", "r1")
	// A session that was killed before its first commit, on a busy machine, left
	// nothing and recorded nothing: the next one's gap is that of both.
	if n := len(history.Gaps); n < 1 || n > 3 {
		t.Errorf("%d gaps recorded for 3 kills: %+v", n, history.Gaps)
	}
	w.hostCounterCovers(done, history)
}

// hostCounterCovers compares the run's bytes with the drive's own counter: the
// drive may have carried out more, by no more than what the gaps admit.
func (w *workshop) hostCounterCovers(done soakResult, history runHistory) {
	w.t.Helper()
	var shown showResult
	w.must(&shown, "show", "sim:drive.nvop")
	counted := shown.Health.BytesWritten().Float64()
	admitted := 0.0
	for _, g := range history.Gaps {
		admitted += float64(g.UncountedOpsMax) * 4096 * float64(done.TimeLapse)
	}
	const unit = 512_000
	if counted+unit < float64(done.WriteBytes) || counted > float64(done.WriteBytes)+admitted+unit {
		w.t.Errorf("the drive counted %.0f bytes, the run %d, and the gaps admit %.0f", counted, done.WriteBytes, admitted)
	}
}
