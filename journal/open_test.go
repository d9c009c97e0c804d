package journal

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nvop/namespace/txn"
)

// openTest opens a fresh journal that is closed with the test.
func openTest(tb testing.TB) *Journal {
	tb.Helper()
	return openAt(tb, filepath.Join(tb.TempDir(), "journal.db"), ReadWrite)
}

func openAt(tb testing.TB, path string, mode Mode) *Journal {
	tb.Helper()
	j, err := Open(context.Background(), path, mode)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := j.Close(); err != nil {
			tb.Error(err)
		}
	})
	return j
}

func closeJournal(tb testing.TB, j *Journal) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
}

// clearLine fails unless err is one line that names the journal and exits 1.
func clearLine(t *testing.T, err error, path string) string {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	msg := err.Error()
	if strings.Contains(msg, "\n") || !strings.Contains(msg, path) {
		t.Errorf("not one clear line about %s: %q", path, msg)
	}
	oe, ok := errors.AsType[*OpenError](err)
	if !ok || oe.ExitCode() != 1 {
		t.Errorf("not an OpenError with exit code 1: %#v", err)
	}
	return msg
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestOpen_createsAndReopens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "b?mode=memory&c=d#e%41.db")
	for _, mode := range []Mode{ReadWrite, ReadWrite, ReadOnly} {
		j, err := Open(context.Background(), path, mode)
		if err != nil {
			t.Fatal(err)
		}
		var journalMode string
		var vacuum, sync int
		for pragma, to := range map[string]any{"journal_mode": &journalMode, "auto_vacuum": &vacuum} {
			if err := j.r.QueryRow("PRAGMA " + pragma).Scan(to); err != nil {
				t.Fatal(err)
			}
		}
		if journalMode != "wal" || vacuum != 2 {
			t.Errorf("journal_mode %s, auto_vacuum %d", journalMode, vacuum)
		}
		if mode == ReadWrite {
			if err := j.w.QueryRow("PRAGMA synchronous").Scan(&sync); err != nil || sync != 2 {
				t.Errorf("synchronous %d, %v; want 2 (FULL)", sync, err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, dir); len(got) != 1 || got[0] != filepath.Base(path) {
			t.Errorf("left in the directory: %q", got)
		}
	}
	fi, err := os.Stat(dir)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", fi.Mode(), err)
	}
}

func TestOpen_createdByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			j, err := Open(context.Background(), path, ReadWrite)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := j.BeginTransaction(context.Background(), txn.Transaction{Began: time.Unix(1, 0)}); err != nil {
				t.Error(err)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ts, err := openAt(t, path, ReadOnly).Transactions(context.Background())
	if err != nil || len(ts) != 8 {
		t.Errorf("%d transactions, %v; want 8", len(ts), err)
	}
}

func TestOpen_refusesWhatIsNoJournal(t *testing.T) {
	sqliteFile := func(statements ...string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", dsn(path, "mode=rwc"))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range statements {
				if _, err := db.Exec(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	appID := fmt.Sprintf("PRAGMA application_id = %d", applicationID)
	steps, err := embeddedMigrations()
	if err != nil {
		t.Fatal(err)
	}
	newest := fmt.Sprintf("PRAGMA user_version = %d", len(steps))
	tests := map[string]struct {
		make func(*testing.T, string)
		want string
	}{
		"foreign":       {sqliteFile("CREATE TABLE a (b)"), "belongs to another program"},
		"foreign wal":   {sqliteFile("PRAGMA journal_mode = WAL", "PRAGMA application_id = 7", "CREATE TABLE a (b)"), "belongs to another program (SQLite application id 0x7)"},
		"newer":         {sqliteFile(appID, "CREATE TABLE a (b)", "PRAGMA user_version = 99"), "was written by a newer nvop (schema version 99"},
		"version 0":     {sqliteFile(appID, "CREATE TABLE a (b)"), "schema version 0"},
		"version -1":    {sqliteFile(appID, "CREATE TABLE a (b)", "PRAGMA user_version = -1"), "schema version -1"},
		"no tables":     {sqliteFile(appID, "CREATE TABLE a (b)", newest), "table drives is missing"},
		"text":          {content([]byte(strings.Repeat("this is not a database\n", 400))), "not a SQLite file"},
		"short text":    {content([]byte("hello")), "not a SQLite file"},
		"empty":         {content(nil), "is empty"},
		"directory":     {func(t *testing.T, path string) { _ = os.Mkdir(path, 0o700) }, "not a regular file"},
		"header only":   {content([]byte("SQLite format 3\x00")), "damaged"},
		"zeros":         {content(make([]byte, 8192)), "not a SQLite file"},
		"missing (dir)": {func(*testing.T, string) {}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []Mode{ReadWrite, ReadOnly} {
				dir := t.TempDir()
				path := filepath.Join(dir, "x.db")
				tt.make(t, path)
				before, _ := os.ReadFile(path)
				j, err := Open(context.Background(), path, mode)
				if tt.want == "" {
					if mode == ReadWrite {
						closeJournal(t, j)
						continue
					}
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("not fs.ErrNotExist: %v", err)
					}
				}
				if msg := clearLine(t, err, path); !strings.Contains(msg, tt.want) {
					t.Errorf("got %q, want %q", msg, tt.want)
				}
				after, _ := os.ReadFile(path)
				if !bytes.Equal(before, after) {
					t.Error("the file was changed")
				}
			}
		})
	}
}

func TestDefaultPath(t *testing.T) {
	tests := []struct {
		root bool
		env  map[string]string
		want string
	}{
		{true, map[string]string{"HOME": "/root"}, "/var/lib/nvop/journal.db"},
		{false, map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/nvop/journal.db"},
		{false, map[string]string{"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/nvop/journal.db"},
		{false, map[string]string{"HOME": "/h"}, "/h/.local/state/nvop/journal.db"},
		{false, nil, ""},
	}
	for _, tt := range tests {
		got, err := DefaultPath(tt.root, func(k string) string { return tt.env[k] })
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("DefaultPath(%v, %v) = %q, %v; want %q", tt.root, tt.env, got, err, tt.want)
		}
	}
}

func TestMigrate_stepsForwardAndForReaders(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	first, err := embeddedMigrations()
	if err != nil {
		t.Fatal(err)
	}
	j, err := openWith(ctx, path, ReadWrite, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.BeginTransaction(ctx, txn.Transaction{Began: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)

	broken := append(first[:len(first):len(first)], migration{"bad.sql", "CREATE TABLE later (a INTEGER) STRICT; SELECT no_such_thing"})
	_, err = openWith(ctx, path, ReadWrite, broken)
	if msg := clearLine(t, err, path); !strings.Contains(msg, "bad.sql") {
		t.Errorf("the migration is not named: %q", msg)
	}
	next := append(first[:len(first):len(first)], migration{"next.sql", "CREATE TABLE later (a INTEGER) STRICT; INSERT INTO later VALUES (7)"})
	check := func(j *Journal, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var a int
		if err := j.r.QueryRow("SELECT a FROM later").Scan(&a); err != nil || a != 7 {
			t.Errorf("a = %d, %v", a, err)
		}
		if ts, err := j.Transactions(ctx); err != nil || len(ts) != 1 {
			t.Errorf("%d transactions, %v", len(ts), err)
		}
		scratch := j.scratch
		closeJournal(t, j)
		if scratch != "" && fileSize(scratch) != 0 {
			t.Errorf("%s was left behind", scratch)
		}
	}
	before, _ := os.ReadFile(path)
	check(openWith(ctx, path, ReadOnly, next))
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a reader migrated the file")
	}
	var wg sync.WaitGroup
	for range 6 { // only one of them migrates
		wg.Go(func() {
			j, err := openWith(ctx, path, ReadWrite, next)
			if err != nil {
				t.Error(err)
				return
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	check(openWith(ctx, path, ReadWrite, next))
	check(openWith(ctx, path, ReadOnly, next))
	_, err = openWith(ctx, path, ReadWrite, first)
	if msg := clearLine(t, err, path); !strings.Contains(msg, "newer") {
		t.Errorf("%q", msg)
	}
}

func readWhereNothingCanBeWritten(t *testing.T, dir string) {
	ctx := context.Background()
	for _, name := range []string{"clean.db", "pending.db"} {
		j, err := Open(ctx, filepath.Join(dir, name), ReadOnly)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ts, err := j.Transactions(ctx)
		if err != nil || len(ts) != 1 {
			t.Errorf("%s: %d transactions, %v", name, len(ts), err)
		}
		if _, err := j.BeginTransaction(ctx, txn.Transaction{}); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: recorded in a journal opened for reading: %v", name, err)
		}
		closeJournal(t, j)
		_, err = Open(ctx, filepath.Join(dir, name), ReadWrite)
		clearLine(t, err, name)
	}
	_, err := Open(ctx, filepath.Join(dir, "none.db"), ReadWrite)
	clearLine(t, err, "none.db")
}

// TestOpen_directoryNotWritable runs itself as nobody when the tests run as root.
func TestOpen_directoryNotWritable(t *testing.T) {
	ctx := context.Background()
	if dir := os.Getenv("NVOP_JOURNAL_TEST_READ"); dir != "" {
		readWhereNothingCanBeWritten(t, dir)
		return
	}
	dir, err := os.MkdirTemp("", "nvop-journal-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = os.RemoveAll(dir) })
	clean, live := filepath.Join(dir, "clean.db"), filepath.Join(t.TempDir(), "live.db")
	for _, path := range []string{clean, live} {
		j, err := Open(ctx, path, ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.BeginTransaction(ctx, txn.Transaction{Began: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
		if path == live {
			// What a kill leaves: the commit is only in the log.
			for _, s := range []string{"", "-wal"} {
				if err := copyFile(filepath.Join(dir, "pending.db"+s), path+s); err != nil {
					t.Fatal(err)
				}
			}
		}
		closeJournal(t, j)
	}
	exe := filepath.Join(dir, "test")
	self, err := os.Executable()
	if err == nil {
		err = copyFile(exe, self)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries(t, dir) {
		mode := fs.FileMode(0o444)
		if name == "test" {
			mode = 0o555
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestOpen_directoryNotWritable$", "-test.v")
	cmd.Env = append(os.Environ(), "NVOP_JOURNAL_TEST_READ="+dir)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	before := entries(t, dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
	if got := entries(t, dir); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("left in the directory: %q", got)
	}
}

// tempDir is a directory for one case of a property.
func tempDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "nvop-journal-rapid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
