package journal

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// spaceLeast is how many bytes have to be free for SQLite to go on: it makes its
// files longer by up to 32 KiB at once, one after the other.
const spaceLeast = 128 << 10

// fullSystem says whether the file system that a path lies on has no room, or no
// room for another file.
func fullSystem(path string) bool {
	var s unix.Statfs_t
	if unix.Statfs(filepath.Dir(path), &s) != nil {
		return false
	}
	return int64(s.Bavail)*s.Bsize < spaceLeast || s.Files != 0 && s.Ffree == 0
}

// causeAt is cause for what was to be written to a file: where SQLite only says
// that an operation of the system failed, it says which, or that the file system
// is full, which SQLite does not always tell.
func causeAt(path string, err error) string {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return cause(err)
	}
	switch primary := e.Code() & 0xFF; {
	case primary == sqlite3.SQLITE_FULL:
		return noSpace
	case primary != sqlite3.SQLITE_IOERR && primary != sqlite3.SQLITE_CANTOPEN:
		return cause(err)
	case fullSystem(path):
		return noSpace
	case primary == sqlite3.SQLITE_CANTOPEN:
		return cause(err)
	}
	what := map[int]string{
		sqlite3.SQLITE_IOERR_READ: "reading", sqlite3.SQLITE_IOERR_SHORT_READ: "reading", sqlite3.SQLITE_IOERR_WRITE: "writing",
		sqlite3.SQLITE_IOERR_FSYNC: "flushing", sqlite3.SQLITE_IOERR_DIR_FSYNC: "flushing its directory",
		sqlite3.SQLITE_IOERR_TRUNCATE: "shortening it", sqlite3.SQLITE_IOERR_FSTAT: "looking at it", sqlite3.SQLITE_IOERR_DELETE: "removing a file beside it",
		sqlite3.SQLITE_IOERR_SHMOPEN: "opening the file -shm beside it", sqlite3.SQLITE_IOERR_SHMSIZE: "making the file -shm beside it longer",
		sqlite3.SQLITE_IOERR_SHMMAP: "mapping the file -shm beside it", sqlite3.SQLITE_IOERR_LOCK: "locking it", sqlite3.SQLITE_IOERR_NOMEM: "there is no memory for it",
	}[e.Code()]
	if what == "" {
		what = fmt.Sprintf("SQLite's code is %d", e.Code())
	}
	return "the file system fails: I/O error, " + what
}
