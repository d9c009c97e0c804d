package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// intoNewFile has fill write a file that must not exist yet, so that what was kept
// before is not lost to a name typed twice. A file that was not filled to its end is
// removed: the next try would be refused because of it.
func intoNewFile(path string, perm fs.FileMode, fill func(w io.Writer) error) (size int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return 0, err
	}
	err = fill(f)
	if info, serr := f.Stat(); serr == nil {
		size = info.Size()
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(path))
	}
	return size, nil
}

// saveNew writes bytes to a file that must not exist yet; no name, no file.
func saveNew(path string, perm fs.FileMode, raw []byte) error {
	if path == "" {
		return nil
	}
	_, err := intoNewFile(path, perm, func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})
	return err
}

// mayReplace says whether a report may be written as the file that an option
// names, in place of what is there: nothing, an empty file, or an older report,
// known by how it begins. Everything else is refused, for a name typed wrong costs
// a journal or a drive: what is no regular file, what cannot be read, and each of
// the inputs, which are files that the command itself uses; an empty name among
// them is none. A symbolic link stands for what it points to (see [replaceable]).
func mayReplace(path string, begins string, inputs ...string) error {
	refuse := func(format string, args ...any) error {
		return refusedf("output file", path, "name a new file, or an older report of the same kind", format, args...)
	}
	target, err := replaceable(path)
	if err != nil {
		return refuse("%v", err)
	}
	for _, in := range inputs {
		if in != "" && isSameFile(target, in) {
			return refuse("this command uses it as %s", in)
		}
	}
	info, err := os.Stat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return refuse("%v", err)
	case !info.Mode().IsRegular():
		return refuse("it is no regular file (%s)", info.Mode())
	case info.Size() == 0:
		return nil
	}
	f, err := os.Open(target)
	if err != nil {
		return refuse("what it holds cannot be read: %v", err)
	}
	head, err := io.ReadAll(io.LimitReader(f, int64(len(begins))))
	if err = errors.Join(err, f.Close()); err != nil {
		return refuse("what it holds cannot be read: %v", err)
	}
	if !bytes.Equal(head, []byte(begins)) {
		return refuse("it exists and is no such report: it does not begin with %q", begins)
	}
	return nil
}

// replaceable is the file that a name stands for: a symbolic link's target, so that
// replacing it leaves the link. A link that leads nowhere is an error.
func replaceable(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		return target, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, lerr := os.Lstat(path); lerr == nil {
		return "", errors.New("it is a symbolic link that leads nowhere")
	}
	return path, nil
}

// isSameFile says that two names are of one file: by device and inode, and by
// directory and name where a file is not there yet.
func isSameFile(a, b string) bool {
	ia, erra := os.Stat(a)
	ib, errb := os.Stat(b)
	if erra == nil && errb == nil {
		return os.SameFile(ia, ib)
	}
	if (erra == nil) != (errb == nil) {
		return false
	}
	da, erra := os.Stat(filepath.Dir(a))
	db, errb := os.Stat(filepath.Dir(b))
	return erra == nil && errb == nil && os.SameFile(da, db) && filepath.Base(a) == filepath.Base(b)
}
