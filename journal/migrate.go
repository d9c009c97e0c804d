package journal

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"
)

// The migrations are append-only: a file that has been released never changes,
// because journals that went through it exist.
//
//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration brings a journal from version n-1 to n.
type migration struct {
	name string
	sql  string
}

func embeddedMigrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var ms []migration
	for i, name := range names { // Glob sorts
		if !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("migration %s is out of sequence", name)
		}
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		ms = append(ms, migration{name: filepath.Base(name), sql: string(text)})
	}
	return ms, nil
}

func userVersion(ctx context.Context, q querier) (int, error) {
	var v int
	err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

func isOlder(ctx context.Context, db *sql.DB, latest int) (bool, error) {
	v, err := userVersion(ctx, db)
	return v < latest, err
}

// migrate brings db up to date, each step in its own transaction together with
// the version number, so that a cut leaves one version or the next.
func migrate(ctx context.Context, db *sql.DB, path string, steps []migration) error {
	for {
		done, err := migrateStep(ctx, db, steps)
		if err != nil {
			if _, ok := errors.AsType[*OpenError](err); ok {
				return err
			}
			return &OpenError{Path: path, Reason: "cannot be migrated: " + causeAt(path, err), Err: err}
		}
		if done {
			return nil
		}
	}
}

func migrateStep(ctx context.Context, db *sql.DB, steps []migration) (done bool, err error) {
	// The usual case takes no write lock.
	v, err := userVersion(ctx, db)
	if err != nil || v >= len(steps) {
		return true, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	// Another process may have migrated while this one waited for the lock.
	if v, err = userVersion(ctx, tx); err != nil {
		return false, err
	}
	if v < len(steps) {
		if _, err = tx.ExecContext(ctx, steps[v].sql); err != nil {
			return false, fmt.Errorf("%s: %w", steps[v].name, err)
		}
		if _, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", v+1)); err != nil {
			return false, err
		}
	}
	return false, tx.Commit()
}

// create makes an empty journal under another name and links it into place, so
// that no process ever sees half a journal and two that create at once end up
// with one file.
func create(ctx context.Context, path string, steps []migration) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &OpenError{Path: path, Reason: "cannot be created: " + causeAt(path, err), Err: err}
	}
	scratch, err := os.MkdirTemp(dir, ".journal-")
	if err != nil {
		return &OpenError{Path: path, Reason: "cannot be created: " + causeAt(path, err), Err: err}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	fresh := filepath.Join(scratch, "new.db")
	if err := createAt(ctx, fresh, steps); err != nil {
		return &OpenError{Path: path, Reason: "cannot be created: " + causeAt(path, err), Err: err}
	}
	if err := publish(fresh, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return &OpenError{Path: path, Reason: "cannot be created: " + causeAt(path, err), Err: err}
	}
	return syncDir(dir)
}

// publish gives a file its final name without replacing another.
func publish(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file system without hard links (FAT, some network ones).
	if _, statErr := os.Lstat(to); !errors.Is(statErr, fs.ErrNotExist) {
		return errors.Join(fs.ErrExist, statErr)
	}
	return os.Rename(from, to)
}

func createAt(ctx context.Context, path string, steps []migration) (err error) {
	db, err := sql.Open("sqlite", dsn(path, "mode=rwc&_txlock=immediate"+
		pragma("auto_vacuum", "INCREMENTAL")+
		pragma("synchronous", "FULL")+
		pragma("foreign_keys", 1)))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
		return err
	}
	if err := migrate(ctx, db, path, steps); err != nil {
		return err
	}
	// WAL mode is kept in the file. It comes last: until here nothing is in a
	// side file, so the header that everybody checks first is in the main file.
	_, err = db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkTables refuses a file that has lost a table, before a command is half
// way through.
func checkTables(ctx context.Context, db *sql.DB, path string) error {
	for _, t := range tables() {
		rows, err := db.QueryContext(ctx, "SELECT * FROM "+t+" LIMIT 0")
		if err == nil {
			err = errors.Join(rows.Err(), rows.Close())
		}
		if hasCode(err, sqlite3.SQLITE_ERROR) {
			return &OpenError{Path: path, Reason: "is damaged: table " + t + " is missing", Err: err}
		}
		if err != nil {
			return openFailure(path, err)
		}
	}
	return nil
}

// tables are the tables of the newest version.
func tables() []string {
	return []string{"drives", "transactions", "steps", "runs", "phases", "rows", "minutes", "gaps", "histograms", "samples",
		"counter_sources", "counters", "events", "checkpoints", "verdicts"}
}

// querier is what *sql.DB, *sql.Conn and *sql.Tx have in common for reading.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
