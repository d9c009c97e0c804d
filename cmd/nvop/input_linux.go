package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// inputBytesMax bounds what is read whole: no spec, plan, snapshot or script is
// anywhere near it.
const inputBytesMax = 256 << 20

// openInput opens a file that a user named to be read. Opening a named pipe waits
// for a writer, for ever where there is none, and opening a device may do anything:
// only regular files are opened, and what the shell gave this process open already
// (/dev/stdin, and /dev/fd/N for its <(command)).
func openInput(path string) (*os.File, error) {
	given := givenOpen(path)
	if !given {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if err := regular(path, info); err != nil {
			return nil, err
		}
	}
	// Another thing may lie there by now: it is not waited for, and looked at again.
	flag := os.O_RDONLY | unix.O_CLOEXEC
	if !given {
		flag |= unix.O_NONBLOCK
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil || given {
		return f, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// givenOpen says that a name stands for what this process was given open.
func givenOpen(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// regular says what is there instead of a file.
func regular(path string, info fs.FileInfo) error {
	what := "something else"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s: it is %s and not a file", path, what)
}

// readInput reads a file that a user named whole.
func readInput(path string) ([]byte, error) {
	f, err := openInput(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, inputBytesMax+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > inputBytesMax {
		return nil, fmt.Errorf("%s: longer than %d bytes, which nothing is that belongs here", path, inputBytesMax)
	}
	return text, nil
}
