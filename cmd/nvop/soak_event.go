package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"nvop/endurance/run"
)

const (
	// eventQueue is how many events wait for the program before new ones are
	// dropped, and counted.
	eventQueue = 256
	// eventMost is how long the program may take for one event.
	eventMost = 30 * time.Second
	// eventsAtEnd is how long the last events are waited for, and eventsHush for how
	// long of that without a word.
	eventsAtEnd = 30 * time.Second
	eventsHush  = 500 * time.Millisecond
)

// eventProgram finds the program of --on-event. It is run as it is: nothing
// interprets its name or its arguments.
func eventProgram(args []string) ([]string, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, usagef("--on-event %q: no such program, or it cannot be run (arguments are given by --on-event again): %v", args[0], err)
	}
	return append([]string{path}, args[1:]...), nil
}

// eventArguments is the program of --on-event with its arguments, as a command line of
// another process has to give them: found now, wherever it will run then.
func eventArguments(args []string) ([]string, error) {
	found, err := eventProgram(args)
	if err != nil {
		return nil, err
	}
	if found[0], err = filepath.Abs(found[0]); err != nil {
		return nil, err
	}
	var flags []string
	for _, x := range found {
		flags = append(flags, "--on-event="+x)
	}
	return flags, nil
}

// subject is the run that something is told of.
type subject struct {
	id, journal string
	header      *run.Header
}

func (s *soakSession) subject() subject {
	return subject{id: s.recorder.ID(), journal: s.journal.Path(), header: &s.header}
}

// eventRunner runs a program for one event after the other, in a goroutine of its
// own. The run never waits for it.
type eventRunner struct {
	args  []string
	note  func(format string, args ...any)
	queue chan []string // environments
	done  chan struct{}
	stop  context.CancelFunc
	// most is how long the program may take, atEnd the last events, and hush how
	// long of that nothing is said.
	most, atEnd, hush time.Duration
	failed            int
	// cut counts events that were queued when the wait at the end was over.
	cut int
	// dropped counts events that found the queue full.
	dropped atomic.Int64
}

func newEventRunner(args []string, note func(string, ...any)) *eventRunner {
	ctx, stop := context.WithCancel(context.Background())
	e := &eventRunner{args: args, note: note, queue: make(chan []string, eventQueue), done: make(chan struct{}), stop: stop, most: eventMost, atEnd: eventsAtEnd, hush: eventsHush}
	go func() {
		defer close(e.done)
		// The kernel takes the death of the thread that started a program for that of
		// this process: it has to be one that stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for env := range e.queue {
			if ctx.Err() != nil {
				e.cut++
				continue
			}
			e.one(ctx, env)
		}
	}()
	return e
}

// tell queues events. Failed operations of one commit are one event that says how
// many there are: a storm of them must not crowd out the end. It is called by the
// commits of several runs, each in turn for itself.
func (e *eventRunner) tell(of subject, events []run.Event, v *run.Verdict) {
	failed := run.Event{}
	for _, x := range events {
		if x.Kind != run.EventIOError {
			e.put(eventEnvironment(of, x, v))
			continue
		}
		count := failed.Count + max(x.Count, 1)
		if failed.Kind == "" {
			failed = x
		}
		failed.Count = count
	}
	if failed.Kind != "" {
		e.put(eventEnvironment(of, failed, nil))
	}
}

// put never waits.
func (e *eventRunner) put(env []string) {
	select {
	case e.queue <- env:
	default:
		if e.dropped.Add(1) == 1 {
			e.note("events are not told to %s: it is %d events behind", e.args[0], eventQueue)
		}
	}
}

// one runs the program once. It has no terminal, its output goes nowhere, and when
// its time is over it is killed with all it started. Where this process is killed,
// the program is too.
func (e *eventRunner) one(atEnd context.Context, env []string) {
	ctx, cancel := context.WithTimeout(atEnd, e.most)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.args[0], e.args[1:]...)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return
	}
	if e.failed++; e.failed > 3 {
		return // said often enough; the journal has the events
	}
	switch {
	case atEnd.Err() != nil:
		err = fmt.Errorf("killed: it was still at work %s after the end", e.atEnd)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("killed: it took longer than %s for one event", e.most)
	}
	e.note("--on-event %s: %v", e.args[0], err)
}

// close waits for what is queued, but not forever, and says so where it takes long.
func (e *eventRunner) close() {
	close(e.queue)
	timer := time.AfterFunc(e.atEnd, e.stop)
	defer timer.Stop()
	hush := time.NewTimer(e.hush)
	defer hush.Stop()
	select {
	case <-e.done:
	case <-hush.C:
		e.note("waiting up to %s for the event program %s", e.atEnd, e.args[0])
	}
	<-e.done
	e.stop()
	if n := e.dropped.Load() + int64(e.cut); n != 0 || e.failed > 3 {
		e.note("--on-event %s: %d events were not told, %d times it failed", e.args[0], n, e.failed)
	}
}

// eventEnvironment is what the program is told.
func eventEnvironment(of subject, x run.Event, v *run.Verdict) []string {
	h := of.header
	pairs := []string{
		"NVOP_EVENT", string(x.Kind), "NVOP_EVENT_TEXT", x.Text, "NVOP_EVENT_SECOND", strconv.FormatInt(x.Second, 10),
		"NVOP_EVENT_TIME", time.Unix(0, x.WallUnixNS).UTC().Format(time.RFC3339), "NVOP_EVENT_COUNT", strconv.FormatUint(max(x.Count, 1), 10),
		"NVOP_RUN", of.id, "NVOP_RUN_NAME", h.Name, "NVOP_GROUP", h.Group, "NVOP_ADDRESS", h.Address, "NVOP_SERIAL", h.Serial,
		"NVOP_MODEL", h.Model, "NVOP_NSID", strconv.FormatUint(uint64(h.NSID), 10), "NVOP_JOURNAL", of.journal,
	}
	if v != nil {
		pairs = append(pairs, "NVOP_STATE", string(v.State), "NVOP_REASON", v.Reason, "NVOP_EXIT_CODE", strconv.Itoa(v.ExitCode))
	}
	var env []string
	for i := 0; i < len(pairs); i += 2 {
		// A drive may report anything as its name; an environment holds no NUL.
		env = append(env, pairs[i]+"="+strings.ReplaceAll(pairs[i+1], "\x00", " "))
	}
	return env
}
