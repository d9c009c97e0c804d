package journal

import (
	"io/fs"
	"os"
)

// identify remembers which file the journal is, for present.
func (r *Recorder) identify() *Recorder {
	if info, err := os.Stat(r.j.path); err == nil {
		r.file = info
	}
	return r
}

// present says whether the journal's file still has its name. SQLite goes on
// writing into one that was deleted or replaced, and all of it is gone when the
// last descriptor is closed.
func (r *Recorder) present() error {
	if r.file == nil {
		return nil
	}
	info, err := os.Stat(r.j.path)
	if err == nil && os.SameFile(info, r.file) {
		return nil
	}
	if err != nil && !os.IsNotExist(err) {
		return nil // a look that failed says nothing about the file
	}
	return &OpenError{
		Path: r.j.path, Err: fs.ErrNotExist,
		Reason: "was deleted or replaced while a run was being recorded in it: the run ends here, and can be resumed only from a copy (nvop journal backup)",
	}
}
