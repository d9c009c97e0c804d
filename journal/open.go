package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID marks a SQLite file as a journal of nvop ("nvop" in ASCII), in
// the file's header at byte 68 (SQLite file format, section 1.3.17).
const applicationID = 0x6e766f70

// busyTimeoutMS is how long a writer waits for another process's writer before
// it gives up, in milliseconds. Writers hold the lock for one commit a second,
// so the limit is met only when one hangs.
const busyTimeoutMS = 10_000

// walLimitBytes is the size to which the write-ahead log is cut back after a
// checkpoint, in bytes.
const walLimitBytes = 16 << 20

// Mode says what a journal is opened for.
type Mode int

const (
	// ReadWrite creates a missing journal and brings an older one up to date.
	ReadWrite Mode = iota
	// ReadOnly changes nothing that is recorded and works on a file or in a
	// directory that cannot be written.
	ReadOnly
)

// OpenError says why a file cannot be used as a journal. It wraps
// [fs.ErrNotExist] when there is no such file.
type OpenError struct {
	Path   string
	Reason string
	Err    error // the cause; may be nil
}

func (e *OpenError) Error() string { return "journal " + e.Path + ": " + e.Reason }

func (e *OpenError) Unwrap() error { return e.Err }

// ExitCode is the process's exit code for this error.
func (e *OpenError) ExitCode() int { return 1 }

// Transient says that the same may go well later, without anything changed in
// the journal: no space left, an I/O error, somebody else at work in it.
func (e *OpenError) Transient() bool {
	return hasCode(e.Err, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN)
}

// DefaultPath is where the journal lies when none is named: the system's for
// root, else the user's own. getenv is os.Getenv or a test's stand-in.
func DefaultPath(root bool, getenv func(string) string) (string, error) {
	if root {
		return "/var/lib/nvop/journal.db", nil
	}
	// A relative $XDG_STATE_HOME is to be ignored (XDG Base Directory
	// Specification 0.8).
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "nvop", "journal.db"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "nvop", "journal.db"), nil
	}
	return "", errors.New("no place for the journal: neither XDG_STATE_HOME nor HOME is set; name one with --journal FILE")
}

// Open opens the journal at path. In ReadWrite mode a missing file is created,
// its directory too (0700), and an older file is migrated. The error is an
// [*OpenError] with a message of one line.
func Open(ctx context.Context, path string, mode Mode) (*Journal, error) {
	m, err := embeddedMigrations()
	if err != nil {
		return nil, err
	}
	return openWith(ctx, path, mode, m)
}

func openWith(ctx context.Context, path string, mode Mode, steps []migration) (*Journal, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &OpenError{Path: path, Reason: err.Error(), Err: err}
	}
	if err := checkFile(abs); err != nil {
		if mode == ReadOnly || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := create(ctx, abs, steps); err != nil {
			return nil, err
		}
	}
	if err := checkHeader(ctx, abs, steps); err != nil {
		return nil, err
	}
	if mode == ReadOnly {
		return openReader(ctx, abs, steps)
	}
	return openWriter(ctx, abs, steps)
}

// checkFile refuses what is visibly no journal without opening it.
//
// The file is never opened and closed outside SQLite: POSIX drops all of a
// process's locks on a file when any descriptor of it is closed, and another
// Journal of this process may hold some.
func checkFile(path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &OpenError{Path: path, Reason: "does not exist: nothing has been recorded there", Err: fs.ErrNotExist}
	case err != nil:
		return &OpenError{Path: path, Reason: cause(err), Err: err}
	case !fi.Mode().IsRegular():
		return &OpenError{Path: path, Reason: "is not a regular file"}
	case fi.Size() == 0:
		return &OpenError{Path: path, Reason: "is empty: not a journal, or cut off at the beginning"}
	}
	return nil
}

// checkHeader looks at the header of the main file only, without taking a lock
// and without touching the file, so that another program's file is left as it is.
func checkHeader(ctx context.Context, path string, steps []migration) error {
	db, err := sql.Open("sqlite", dsn(path, "mode=ro&immutable=1"))
	if err != nil {
		return openFailure(path, err)
	}
	err = checkIdentity(ctx, db, path, len(steps))
	if err == nil && fileSize(path+"-wal") == 0 {
		err = checkWhole(ctx, db, path, len(steps))
	}
	if closed := db.Close(); err == nil && closed != nil {
		err = openFailure(path, closed)
	}
	if isDamage(err) && fileSize(path+"-wal") > 0 {
		// A cut during a checkpoint leaves a main file that only makes sense
		// together with its log; the real open decides.
		return nil
	}
	return err
}

// checkWhole looks at a file that has no log beside it: its length must be that
// of whole pages (SQLite itself counts only those), its tables must be there.
func checkWhole(ctx context.Context, db *sql.DB, path string, latest int) error {
	var pageBytes int64
	if err := db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&pageBytes); err != nil {
		return openFailure(path, err)
	}
	if pageBytes <= 0 || fileSize(path)%pageBytes != 0 {
		return &OpenError{Path: path, Reason: "is damaged: cut off within its last page"}
	}
	old, err := isOlder(ctx, db, latest)
	if err != nil || old {
		return openFailure(path, err)
	}
	return checkTables(ctx, db, path)
}

func checkIdentity(ctx context.Context, db *sql.DB, path string, latest int) error {
	var app, version int
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return openFailure(path, err)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return openFailure(path, err)
	}
	switch {
	case app != applicationID:
		return &OpenError{Path: path, Reason: fmt.Sprintf("belongs to another program (SQLite application id %#x)", uint32(app))}
	case version > latest:
		return &OpenError{Path: path, Reason: fmt.Sprintf("was written by a newer nvop (schema version %d, this program knows up to %d)", version, latest)}
	case version < 1:
		return &OpenError{Path: path, Reason: fmt.Sprintf("is damaged: schema version %d", version)}
	}
	return nil
}

func openWriter(ctx context.Context, path string, steps []migration) (*Journal, error) {
	j := &Journal{path: path, file: path, opts: "mode=rw", keepSeconds: secondsKept}
	var err error
	if j.w, err = sql.Open("sqlite", dsn(path, "mode=rw&_txlock=immediate"+
		pragma("busy_timeout", busyTimeoutMS)+
		pragma("journal_mode", "WAL")+
		pragma("synchronous", "FULL")+
		pragma("foreign_keys", 1)+
		pragma("journal_size_limit", walLimitBytes))); err != nil {
		return nil, openFailure(path, err)
	}
	j.w.SetMaxOpenConns(1)
	if err = checkIdentity(ctx, j.w, path, len(steps)); err == nil {
		err = migrate(ctx, j.w, path, steps)
	}
	if err == nil {
		err = checkTables(ctx, j.w, path)
	}
	if err == nil {
		j.r, err = openPool(path, "mode=rw")
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// openReader opens for reading only, by the first way that works: beside a
// writer; as a file that nobody can be writing; as a private copy.
func openReader(ctx context.Context, path string, steps []migration) (*Journal, error) {
	j := &Journal{path: path, file: path, keepSeconds: secondsKept}
	// A reader that may write leaves no side files behind; SQLite falls back to
	// reading by itself when the file is protected.
	opts := []string{"mode=rw", "mode=ro"}
	if fileSize(path+"-wal") == 0 {
		// The log cannot be created here, so nobody else has one.
		opts = append(opts, "mode=ro&immutable=1")
	}
	var first error
	for _, o := range opts {
		db, err := openPool(path, o)
		if err != nil {
			return nil, openFailure(path, err)
		}
		if err = checkIdentity(ctx, db, path, len(steps)); err == nil {
			j.r, j.opts = db, o
			break
		}
		if first == nil {
			first = err
		}
		if err := db.Close(); err != nil {
			return nil, openFailure(path, err)
		}
		if !hasCode(err, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) {
			return nil, err
		}
	}
	if j.r == nil {
		if fileSize(path+"-wal") == 0 {
			return nil, first
		}
		return openCopy(ctx, path, steps)
	}
	old, err := isOlder(ctx, j.r, len(steps))
	if err == nil && old {
		if err := j.Close(); err != nil {
			return nil, openFailure(path, err)
		}
		return openMigratedCopy(ctx, path, j.opts, steps)
	}
	if err == nil {
		err = checkTables(ctx, j.r, path)
	}
	if err != nil {
		return nil, errors.Join(openFailure(path, err), j.Close())
	}
	return j, nil
}

// openCopy opens a private copy of a journal whose write-ahead log holds
// commits but whose directory cannot be written, which SQLite cannot read in
// place. Nobody writes to such a journal, so a plain copy is consistent.
func openCopy(ctx context.Context, path string, steps []migration) (*Journal, error) {
	dir, err := os.MkdirTemp("", "nvop-journal-")
	if err != nil {
		return nil, openFailure(path, err)
	}
	copied := filepath.Join(dir, "journal.db")
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(copied+suffix, path+suffix); err != nil {
			return nil, errors.Join(openFailure(path, err), os.RemoveAll(dir))
		}
	}
	return openScratch(ctx, path, dir, steps)
}

// openMigratedCopy lets a reader see an older journal in today's schema
// without touching it.
func openMigratedCopy(ctx context.Context, path, opts string, steps []migration) (*Journal, error) {
	dir, err := os.MkdirTemp("", "nvop-journal-")
	if err != nil {
		return nil, openFailure(path, err)
	}
	if err := vacuumInto(ctx, path, opts, filepath.Join(dir, "journal.db")); err != nil {
		return nil, errors.Join(openFailure(path, err), os.RemoveAll(dir))
	}
	return openScratch(ctx, path, dir, steps)
}

// vacuumInto writes a copy of the journal at path, as of one moment, to a file
// that does not exist.
func vacuumInto(ctx context.Context, path, opts, to string) (err error) {
	db, err := sql.Open("sqlite", dsn(path, opts+pragma("busy_timeout", busyTimeoutMS)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	return err
}

func openScratch(ctx context.Context, path, dir string, steps []migration) (*Journal, error) {
	j, err := openWriter(ctx, filepath.Join(dir, "journal.db"), steps)
	if err != nil {
		err = openFailure(path, err)
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// Writing to a copy that is thrown away would lose data silently.
	err = j.w.Close()
	j.w, j.path, j.scratch = nil, path, dir
	if err != nil {
		return nil, errors.Join(openFailure(path, err), j.Close())
	}
	return j, nil
}

func openPool(path, opts string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(path, opts+
		pragma("busy_timeout", busyTimeoutMS)+pragma("query_only", 1)))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	return db, nil
}

// dsn names a file to SQLite as a URI, so that no character of a path is taken
// for an option.
func dsn(path, opts string) string {
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: opts}).String()
}

func pragma(name string, value any) string { return fmt.Sprintf("&_pragma=%s(%v)", name, value) }

func fileSize(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// copyFile is not for a file that this process has open through SQLite.
func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// hasCode says whether err is an answer of SQLite with one of the primary
// result codes.
func hasCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	for _, c := range codes {
		if e.Code()&0xff == c {
			return true
		}
	}
	return false
}

func hasAnyCode(err error) bool {
	_, ok := errors.AsType[*sqlite.Error](err)
	return ok
}

func isDamage(err error) bool {
	return hasCode(err, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
}

// openFailure turns an answer of SQLite or of the system into one clear line.
func openFailure(path string, err error) error {
	if _, ok := errors.AsType[*OpenError](err); ok || err == nil {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &OpenError{Path: path, Reason: causeAt(path, err), Err: err}
}

// noSpace is the reason of a full file system.
const noSpace = "cannot be written: no space left on its file system"

func cause(err error) string {
	switch {
	case hasCode(err, sqlite3.SQLITE_NOTADB):
		return "is not a journal: not a SQLite file, or damaged at the beginning"
	case hasCode(err, sqlite3.SQLITE_CORRUPT):
		return "is damaged: cut off or overwritten"
	case hasCode(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
		return fmt.Sprintf("is busy: another process has been writing for %d seconds", busyTimeoutMS/1000)
	case hasCode(err, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
		return "cannot be written"
	case hasCode(err, sqlite3.SQLITE_CANTOPEN):
		return "cannot be opened, or a file beside it cannot be created"
	case hasCode(err, sqlite3.SQLITE_FULL):
		return noSpace
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
