package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nvop/nvmeioctl/sim"
)

// A served drive's file is locked, so what is to be done to it at run time goes
// through the process that serves it: over a socket beside the file, one request
// and one answer a connection, each one line of JSON, the answer after an empty
// line that says that the request is there. Who may open the socket is who may
// write the file.
const (
	controlSuffix = ".control"
	// controlMax bounds a request and an answer, in bytes: a snapshot of
	// editBytesMax in base64.
	controlMax = 2*editBytesMax + 1<<20
	// controlTime bounds a connection, and controlWait how long the process that is
	// asked may take to say that it has the request.
	controlTime = time.Minute
	controlWait = 5 * time.Second
)

// simAction is what can be done to a drive from beside it.
type simAction struct {
	// Do is "list", "arm", "disarm" or "edit".
	Do     string   `json:"do"`
	Script string   `json:"script,omitempty"`
	Edit   *simEdit `json:"edit,omitempty"`
}

// simReply is what came of it.
type simReply struct {
	Error    string   `json:"error,omitempty"`
	ExitCode int      `json:"exit_code,omitempty"`
	Armed    []string `json:"armed,omitempty"`
	Wrong    []string `json:"wrong,omitempty"`
	// Snapshot is what an edit "snapshot" has read.
	Snapshot *sim.Snapshot `json:"snapshot,omitempty"`
	// BlockBytes is how many bytes an edited block takes.
	BlockBytes int `json:"block_bytes,omitempty"`
}

// apply carries out an action on a drive that this process has.
func (act simAction) apply(d *sim.Drive) (r simReply, err error) {
	switch act.Do {
	case "list":
	case "arm":
		plan, err := parseScript(act.Script)
		if err != nil {
			return r, err
		}
		if err := d.Arm(plan); err != nil {
			return r, err
		}
	case "disarm":
		if err := d.Disarm(); err != nil {
			return r, err
		}
	case "edit":
		if act.Edit == nil {
			return r, errors.New("an edit without its blocks")
		}
		if r.Snapshot, r.BlockBytes, err = act.Edit.apply(d); err != nil {
			return r, err
		}
		if err := d.Save(d.Checkpoint()); err != nil {
			return r, err
		}
	default:
		return r, fmt.Errorf("unknown request %q", act.Do)
	}
	r.Armed, r.Wrong = d.Faults()
	return r, nil
}

// act carries out an action on the drive in a file: by itself, or by the process
// that serves it.
func (a *app) act(ctx context.Context, file string, act simAction) (r simReply, served bool, err error) {
	path := strings.TrimPrefix(file, "sim:")
	d, err := sim.Open(path)
	if e, ok := errors.AsType[*sim.StateError](err); ok && e.Kind == sim.StateInUse {
		r, err = a.askServer(ctx, path, act)
		return r, true, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, profile := sim.LookupProfile(path); profile {
			return r, false, usagef("%s: a drive that lives as long as a command has no file; make one with nvop sim create", file)
		}
		return r, false, fmt.Errorf("%s: no such file", path)
	}
	if err != nil {
		return r, false, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	r, err = act.apply(d)
	return r, false, err
}

// socketPath is a name for the socket beside a drive's file that is short enough
// for the kernel, which takes 107 bytes: by a descriptor of its folder. It is
// good until the folder is closed.
func socketPath(file string) (path string, dir *os.File, err error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", nil, err
	}
	dir, err = os.Open(filepath.Dir(real))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(real)+controlSuffix), dir, nil
}

// askServer has the process that serves a drive carry out an action.
func (a *app) askServer(ctx context.Context, file string, act simAction) (r simReply, err error) {
	path, dir, err := socketPath(file)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return r, &sim.StateError{Path: file, Kind: sim.StateInUse, Detail: "it is not nvop sim serve, which could be asked"}
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(a.clock.Wall().Add(controlWait)); err != nil {
		return r, err
	}
	err = json.NewEncoder(conn).Encode(act)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return r, fmt.Errorf("%s: the process that serves it did not answer within %s (is it stopped?); nothing was done", file, controlWait)
	}
	if err != nil {
		return r, fmt.Errorf("%s: ask the process that serves it: %w", file, err)
	}
	if err := conn.SetDeadline(a.clock.Wall().Add(controlTime)); err != nil {
		return r, err
	}
	if err := json.NewDecoder(io.LimitReader(conn, controlMax)).Decode(&r); err != nil {
		return r, fmt.Errorf("%s: the process that serves it gave no answer: %w", file, err)
	}
	if r.Error != "" {
		return r, &codedError{max(r.ExitCode, exitFailed), errors.New(r.Error)}
	}
	return r, nil
}

// control answers on the socket beside the drive's file until ctx is done.
func (s *server) control(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		s.answer(conn)
	}
}

// answer carries out one request.
func (s *server) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(s.app.clock.Wall().Add(controlTime)); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, controlMax)).ReadBytes('\n')
	if err != nil {
		return
	}
	// Who has given up meanwhile has said that nothing was done.
	if _, err := conn.Write([]byte("\n")); err != nil {
		return
	}
	var act simAction
	var r simReply
	if err = json.Unmarshal(line, &act); err == nil {
		r, err = act.apply(s.drive)
	}
	if err != nil {
		r = simReply{Error: err.Error(), ExitCode: exitCode(err)}
	} else {
		s.app.note("asked to %s", act)
	}
	s.checkPower()
	_ = json.NewEncoder(conn).Encode(r) // who asked may be gone
}

// String says what was asked.
func (act simAction) String() string {
	switch act.Do {
	case "arm":
		return fmt.Sprintf("suffer %q", act.Script)
	case "edit":
		return "edit the contents: " + act.Edit.String()
	case "list":
		return "list the faults"
	}
	return act.Do
}

// controlSocket is the socket beside the file of a drive that is served.
type controlSocket struct {
	ln   net.Listener
	path string
}

// openControl opens the socket. An old one is of a process that was killed: this
// one has the file now. A drive without a file has none.
func (s *server) openControl(file string) (*controlSocket, error) {
	real, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path, dir, err := socketPath(real)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		// A read-only file system has no room for it; the drive can be served.
		s.app.note("no control socket, so no nvop sim fault and edit while it is served: %v", err)
		return nil, nil
	}
	// Its name is by a descriptor that is closed now: close removes it.
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	c := &controlSocket{ln: ln, path: real + controlSuffix}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close(), c.close())
	}
	return c, nil
}

func (c *controlSocket) close() error {
	if c == nil {
		return nil
	}
	_ = c.ln.Close() // it may be closed already
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
