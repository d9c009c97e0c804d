package journal

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/endurance/run"
	"nvop/namespace/txn"
)

var update = flag.Bool("update", false, "write the fixture of the newest schema version to testdata")

// useAll calls everything that reads a journal; none may panic.
func useAll(ctx context.Context, j *Journal) error {
	_, err := j.Verify(ctx)
	runs, e := j.Runs(ctx)
	err = errors.Join(err, e)
	ts, e := j.Transactions(ctx)
	err = errors.Join(err, e, j.ExportTransactions(ctx, io.Discard))
	for _, r := range runs {
		_, e1 := j.LoadRun(ctx, r.ID)
		_, e2 := j.Compare(ctx, r.ID, r.ID)
		err = errors.Join(err, e1, e2, j.ExportJSON(ctx, io.Discard, r.ID))
		for _, t := range Tables() {
			err = errors.Join(err, j.ExportCSV(ctx, io.Discard, r.ID, t))
		}
	}
	for _, t := range ts {
		_, e := j.Load(ctx, t.ID)
		err = errors.Join(err, e)
	}
	return err
}

// TestOpen_cutOff cuts a journal at every class of length: within the header,
// at and around the bounds of pages, within the last page. Whatever opens must
// be found damaged on use or by Verify, and every refusal is one clear line.
func TestOpen_cutOff(t *testing.T) {
	ctx := context.Background()
	base := filepath.Join(t.TempDir(), "base.db")
	j, err := Open(ctx, base, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	recordSome(t, j, 1)
	closeJournal(t, j)
	whole, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	size := len(whole)
	lengths := []int{0, 1, 15, 16, 17, 50, 99, 100, 101, 511, 512, 4095, 4096, 4097, 8192, size / 2, size/2/4096*4096 + 1,
		size - 8192, size - 4096, size - 4095, size - 100, size - 1}
	for _, n := range lengths {
		for _, mode := range []Mode{ReadWrite, ReadOnly} {
			path := filepath.Join(t.TempDir(), fmt.Sprintf("cut-%d.db", n))
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := Open(ctx, path, mode)
			if err != nil {
				clearLine(t, err, path)
				continue
			}
			t.Errorf("cut at %d of %d bytes: opened (mode %d); using it gives %v", n, size, mode, useAll(ctx, j))
			closeJournal(t, j)
		}
	}
}

// TestOpen_overwritten overwrites a sector at a time.
func TestOpen_overwritten(t *testing.T) {
	ctx := context.Background()
	base := filepath.Join(t.TempDir(), "base.db")
	j, err := Open(ctx, base, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	recordSome(t, j, 1)
	closeJournal(t, j)
	whole, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	sound := exportAll(t, openAt(t, base, ReadOnly), "r1")
	path := filepath.Join(t.TempDir(), "journal.db")
	silent := 0
	for at := 0; at+512 <= len(whole); at += 512 * 13 {
		b := bytes.Clone(whole)
		for i := range b[at : at+512] {
			b[at+i] ^= 0x5a
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(ctx, path, ReadOnly)
		if err != nil {
			clearLine(t, err, path)
			continue
		}
		v, err := j.Verify(ctx)
		if err == nil && v.OK() {
			// Unused space is nobody's loss.
			for name, text := range exportAll(t, j, "r1") {
				if text != sound[name] {
					silent++
					t.Errorf("sector at %d: %s was changed and nobody noticed", at, name)
				}
			}
		}
		closeJournal(t, j)
	}
}

// smallJournal holds one record of each kind.
func smallJournal(f *testing.F) *Journal {
	f.Helper()
	ctx := context.Background()
	j, err := Open(ctx, filepath.Join(f.TempDir(), "base.db"), ReadWrite)
	if err != nil {
		f.Fatal(err)
	}
	id, err := j.BeginTransaction(ctx, sampleTransaction())
	if err != nil {
		f.Fatal(err)
	}
	if err := j.Intent(ctx, txn.Intent{TransactionID: id, Seq: 1}); err != nil {
		f.Fatal(err)
	}
	r := beginTest(f, j, 1)
	s := newSynth(1)
	s.lean = true
	b := s.batch(2)
	b.Events = []run.Event{{Kind: run.EventStarted}}
	b.Histograms = s.flush()
	b.Gaps = []run.GapRow{{Second: 2, Reason: "resumed"}}
	b.Checkpoint.State = run.StateFinished
	b.Verdict = &run.Verdict{WAF: run.WAF{Available: true}}
	if err := r.Commit(ctx, b); err != nil {
		f.Fatal(err)
	}
	return j
}

// FuzzOpen overwrites a small journal with arbitrary bytes and uses what opens:
// no error matters, a panic does. SQLite's own code is slow when it is
// instrumented for fuzzing, so the journal is as small as one can be.
func FuzzOpen(f *testing.F) {
	ctx := context.Background()
	j := smallJournal(f)
	path := j.Path()
	closeJournal(f, j)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{}, uint32(0))
	f.Add(uint32(100), []byte{13, 0, 0}, uint32(0))
	f.Add(uint32(4096*3), []byte("\x00\xff\x00\xff"), uint32(0))
	f.Add(uint32(0), []byte("no database"), uint32(4096))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(whole[:len(whole)-int(cut%uint32(len(whole)))])
		if int64(at) < int64(len(b)) {
			copy(b[at:], patch)
		}
		path := filepath.Join(t.TempDir(), "fuzz.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(ctx, path, ReadOnly)
		if err != nil {
			clearLine(t, err, path)
			return
		}
		_ = useAll(ctx, j)
		_ = j.Close()
	})
}

// FuzzStored puts arbitrary values where a journal holds encoded ones, past
// SQLite's checks: every reader must answer with an error or a value.
func FuzzStored(f *testing.F) {
	ctx := context.Background()
	j := smallJournal(f)
	f.Cleanup(func() { _ = j.Close() })
	if _, err := j.w.Exec("PRAGMA ignore_check_constraints = 1; PRAGMA synchronous = OFF"); err != nil {
		f.Fatal(err)
	}
	targets := []string{
		"UPDATE counters SET units = ? ", "UPDATE counters SET units_after = ? ",
		"UPDATE samples SET media_errors = ?", "UPDATE events SET sha256 = ? WHERE event = 1",
		"UPDATE steps SET prev_sha256 = ?", "UPDATE histograms SET encoded = ? WHERE second = 0",
		"UPDATE checkpoints SET checkpoint_json = cast(? AS TEXT)", "UPDATE verdicts SET verdict_json = cast(? AS TEXT)",
		"UPDATE runs SET header_json = cast(? AS TEXT)", "UPDATE transactions SET plan_json = cast(? AS TEXT)",
		"UPDATE steps SET record_json = cast(? AS TEXT) WHERE record = 1", "UPDATE runs SET events_head_sha256 = ?",
	}
	for i := range targets {
		f.Add(uint8(i), []byte(`{"number":4,"open":[{"encoded":"/w=="}],"waf":{"available":true,"source":"a / b"}}`))
		f.Add(uint8(i), []byte{1, 2})
	}
	f.Fuzz(func(t *testing.T, target uint8, value []byte) {
		if value == nil {
			value = []byte{}
		}
		tx, err := j.w.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec(targets[int(target)%len(targets)], value); err != nil {
			t.Fatal(err)
		}
		v := Verification{}
		_ = v.transactions(ctx, tx)
		_ = v.runs(ctx, tx)
		var h txn.History
		if rows, err := tx.QueryContext(ctx, `SELECT kind, record_json FROM steps WHERE kind <> 'state'`); err == nil {
			_ = eachRow(rows, func() error { return scanStep(&h, rows) })
		}
		samples, _ := scanSamples(ctx, tx, 1, 0)
		m := Measured{}
		_ = m.phase(ctx, tx, 1)
		if infos, err := scanRuns(ctx, tx, ``); err == nil {
			m.waf(infos[0].Verdict, samples)
		}
		for _, table := range Tables() {
			_ = eachCells(ctx, tx, 1, table, func(c []cell) error { _ = c[0].text(); return nil })
		}
	})
}

// TestMigrate_fromFixtures opens a journal of every schema version there has
// been. -update writes the one of the newest version; released ones are never
// written again.
func TestMigrate_fromFixtures(t *testing.T) {
	ctx := context.Background()
	steps, err := embeddedMigrations()
	if err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join("testdata", fmt.Sprintf("version-%d.db", len(steps)))
	if *update {
		if err := os.Remove(newest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		j, err := Open(ctx, newest, ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		recordSome(t, j, 42)
		closeJournal(t, j)
	}
	for version := range len(steps) {
		fixture := filepath.Join("testdata", fmt.Sprintf("version-%d.db", version+1))
		for _, mode := range []Mode{ReadOnly, ReadWrite} {
			path := filepath.Join(t.TempDir(), "journal.db")
			if err := copyFile(path, fixture); err != nil {
				t.Fatalf("%v (write it with -update)", err)
			}
			j := openAt(t, path, mode)
			v, err := j.Verify(ctx)
			if err != nil || !v.OK() || v.Steps != 7 || v.Events != 5 {
				t.Errorf("%s: %+v, %v", fixture, v, err)
			}
			m, err := j.Measure(ctx, "r1")
			if err != nil || m.WAFRecomputedMicro == nil || *m.WAFRecomputedMicro != m.WAF.Micro {
				t.Errorf("%s: %+v, %v", fixture, m, err)
			}
			h, err := j.Load(ctx, "t1")
			if err != nil {
				t.Fatal(err)
			}
			want := sampleTransaction()
			want.ID, want.State, want.Message, want.Ended = "t1", "done", "as planned", h.Transaction.Ended
			if d := cmp.Diff(want, h.Transaction); d != "" {
				t.Errorf("%s (-recorded +read):\n%s", fixture, d)
			}
		}
	}
}

func TestPrune(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := openAt(t, path, ReadWrite)
	for seed := range uint64(4) {
		recordSome(t, j, seed)
	}
	crashed := beginTest(t, j, 9)
	s := newSynth(9)
	s.lean = true
	s.commitAll(t, crashed, 1000, 4000)
	over := func(id string) bool { _, err := j.FindRun(ctx, id); return err == nil }
	prune := func(o PruneOptions, runs, transactions []string) Pruned {
		t.Helper()
		p, err := j.Prune(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([][]string{runs, transactions}, [][]string{p.Runs, p.Transactions}); d != "" {
			t.Errorf("%+v (-want +got):\n%s", o, d)
		}
		if v, err := j.Verify(ctx); err != nil || !v.OK() {
			t.Errorf("after %+v: %v, %v", o, v.Problems, err)
		}
		return p
	}
	none := []string{}
	prune(PruneOptions{}, none, none)
	late := timeOf(t, j, "r1").AddDate(1, 0, 0)
	prune(PruneOptions{Before: late, Transactions: true, DryRun: true}, []string{"r1", "r2", "r3", "r4"}, []string{"t1", "t2", "t3", "t4"})
	prune(PruneOptions{Before: late.AddDate(-2, 0, 0), Transactions: true}, none, none)
	for _, id := range []string{"r1", "r2"} {
		if err := os.WriteFile(j.GenerationMapFile(id), []byte("map"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prune(PruneOptions{Runs: []string{"r2"}}, []string{"r2"}, none)
	if fileSize(j.GenerationMapFile("r2")) != 0 || fileSize(j.GenerationMapFile("r1")) == 0 {
		t.Error("the generation map of a run that is gone stays, or that of another goes")
	}
	if over("r2") || !over("r1") {
		t.Error("the wrong run was removed")
	}
	if _, err := j.Prune(ctx, PruneOptions{Runs: []string{"r1", "r2"}}); err == nil || !over("r1") {
		t.Errorf("an unknown run is pruned: %v", err)
	}
	prune(PruneOptions{Before: late}, []string{"r1", "r3", "r4"}, none)
	if !over("r5") {
		t.Error("a run that can be resumed was removed")
	}
	if p := prune(PruneOptions{Runs: []string{"r5"}}, []string{"r5"}, none); p.FreedBytes < 300_000 || fileSize(path) > 400_000 {
		t.Errorf("%+v, %d bytes are left", p, fileSize(path))
	}
	if r := beginTest(t, j, 1); r.ID() != "r6" {
		t.Errorf("the next run is %s: a name is used again", r.ID())
	}
}

func TestBackup(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	j := openAt(t, filepath.Join(dir, "journal.db"), ReadWrite)
	recordSome(t, j, 1)
	to := filepath.Join(dir, "copy.db")
	if err := j.Backup(ctx, to); err != nil {
		t.Fatal(err)
	}
	recordSome(t, j, 2)
	b := openAt(t, to, ReadOnly)
	if v, err := b.Verify(ctx); err != nil || !v.OK() || v.Runs != 1 || v.Transactions != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	before, _ := os.ReadFile(to)
	for _, path := range []string{to, j.Path()} {
		err := j.Backup(ctx, path)
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("replaced a file: %v", err)
		}
		clearLine(t, err, path)
	}
	clearLine(t, j.Backup(ctx, filepath.Join(dir, "none", "copy.db")), "none")
	if after, _ := os.ReadFile(to); !bytes.Equal(before, after) {
		t.Error("the first backup was changed")
	}
	w, err := Open(ctx, to, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	recordSome(t, w, 3)
	closeJournal(t, w)
}
