package main

import (
	"context"
	"errors"
	"fmt"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Exit codes are a promise to scripts; README lists them.
const (
	exitOK           = 0
	exitFailed       = 1   // missing device, damaged or newer file
	exitFindings     = 3   // findings, drift, a failed limit, a mismatch
	exitRefused      = 4   // a safety check or missing consent
	exitUnsupported  = 5   // drive or kernel lacks it
	exitDriveError   = 6   // the drive answered with an error status
	exitPartly       = 7   // partly done and resumable
	exitResetPending = 8   // done, a reset is pending
	exitUsage        = 80  // bad command line
	exitInterrupted  = 130 // interrupted before anything began
)

// codedError is an error with an exit code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }
func (e *codedError) ExitCode() int { return e.code }

// usagef is a mistake on the command line.
func usagef(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

// refusedf is a safety check that said no.
func refusedf(check, subject, remedy, format string, args ...any) error {
	return &nvmeioctl.RefusedError{Check: check, Subject: subject, Remedy: remedy, Reason: fmt.Sprintf(format, args...)}
}

// plural is a number with its word: "1 drive", "2 drives".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// exitCode finds the code an error asks for.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode()
	}
	if _, ok := errors.AsType[nvmespec.StatusError](err); ok {
		return exitDriveError
	}
	switch {
	case errors.Is(err, nvmeioctl.ErrNotSupported):
		return exitUnsupported
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}
