// Package jobfile is what a soak is asked to do, as a person writes it: a run
// file in YAML, or the flags of a command line, which are the same thing with one
// measured phase. It reads ([Parse]), checks for contradictions, and builds the
// [run.Job] of a drive ([File.Job]).
//
// Nothing that was written is ignored: a key that has no effect is an error, with
// its line and column. The package is pure: it opens no file and no drive.
package jobfile

import (
	"fmt"

	"nvop/endurance/run"
)

// Version is the one this package reads.
const Version = 1

// File is a soak of one or more drives.
type File struct {
	// Name is what the run is called.
	Name string
	// Drives are what is soaked, each for itself; empty where the command line
	// names them.
	Drives []Drive
	// Accept are the kinds of use that are no obstacle, as --accept has them.
	Accept []string
	// OnEvent is the command that is run for each event, and its arguments.
	OnEvent []string
	// Metrics is the textfile for a Prometheus node exporter.
	Metrics string

	Seed      uint64
	Workers   uint32
	Pin       bool
	TimeLapse uint32
	// SampleNS is how often health is read, and StallNS how long nothing may
	// complete; 0 means the usual.
	SampleNS, StallNS int64
	Phases            []Phase
	Stops             []run.StopRule
	Pause             run.Pause
	Verify            run.Verify
	// Data is what is written: whole blocks or headers only, and how far it
	// compresses and repeats.
	Data run.Data
}

// Drive is one of them.
type Drive struct {
	Address string
	// NSID is the namespace; 0 means the only one, or that of the address.
	NSID uint32
	// Serial is what the drive has to say; empty means any.
	Serial string
	at     Place
}

// Phase is one phase as it is written. What is not set takes its usual value.
type Phase struct {
	Kind run.PhaseKind
	// Workload is a preset: "jesd219". It stands for RW, ReadPercent, BlockBytes,
	// Split, AlignBytes and Zones.
	Workload string
	// RW is write, randwrite, read, randread or randrw; empty for a phase that
	// does nothing.
	RW string
	// ReadPercent is how many of 100 operations of randrw read; nil means 70.
	ReadPercent *uint8
	// Order is replacement (usual) or permutation, of what is random.
	Order string
	// BlockBytes is the size of operations; 0 means 4 KiB.
	BlockBytes uint32
	// Sizes and WriteSizes mix several.
	Sizes, WriteSizes []run.SizeShare
	AlignBytes        uint32
	Zones             []run.Zone
	ZipfMilli         uint32
	// Depth is how many operations each worker keeps outstanding; 0 means 32.
	Depth uint32
	Rate  run.Rate
	Check run.Check
	// Amount ends the phase after so many bytes: what is written, of what only
	// reads what is read, and of a mix both together. Written counts what is
	// written of a mix.
	Amount, Written uint64
	// End has the other conditions.
	End run.End
	// Flags says that it comes from a command line: keys are then named as flags.
	Flags bool
	at    Place
}

// Place is where something was written; the zero value is nowhere.
type Place struct{ Line, Column int }

// Error says what is wrong and where.
type Error struct {
	// File is the file's name; empty for a command line.
	File string
	Place
	Reason string
	// Err is what was wrong by itself; may be nil.
	Err error
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	switch {
	case e.File == "":
		return e.Reason
	case e.Line == 0:
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// ExitCode is the process's exit code for this error.
func (e *Error) ExitCode() int { return 80 }

func fault(at Place, format string, args ...any) error {
	return &Error{Place: at, Reason: fmt.Sprintf(format, args...)}
}
