package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
)

// streams are the process's three files, so that tests can give their own.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// app is what every command is given.
type app struct {
	streams
	format render.Format
	// journalPath is --journal as given; empty means the default place.
	journalPath string
	clock       nvmeioctl.Clock
	getenv      func(string) string
}

// print renders a command's one result on standard output.
func (a *app) print(v render.Texter) error { return render.Write(a.out, a.format, v) }

// note writes a remark to standard error, where it cannot get into a document.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.err, "nvop: "+format+"\n", args...) }

// terminal says that w is one, and so that progress may be drawn on it.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// grammar is the whole command line.
type grammar struct {
	Output  string `short:"o" enum:"table,json" default:"table" help:"Show the result as a table or as one JSON document." placeholder:"table|json"`
	Journal string `help:"Journal file (default: /var/lib/nvop/journal.db for root, else $XDG_STATE_HOME/nvop/journal.db)." placeholder:"FILE"`

	List     listCmd     `cmd:"" help:"List controllers and namespaces of this host." group:"know"`
	Show     showCmd     `cmd:"" help:"Show one drive on a page." group:"know"`
	Log      logCmd      `cmd:"" help:"Read a log page." group:"know"`
	Decode   decodeCmd   `cmd:"" help:"Read a raw dump as nvme-cli saves it." group:"know"`
	Record   recordCmd   `cmd:"" help:"Keep a whole reading conversation with a drive in a file." group:"know"`
	Snapshot snapshotCmd `cmd:"" help:"Keep everything that can be read about a drive's configuration." group:"know"`
	Diff     diffCmd     `cmd:"" help:"Compare two snapshots, or a snapshot with a drive; exit code 3 if they differ." group:"know"`
	Feature  featureCmd  `cmd:"" help:"Read or change a feature." group:"know"`

	SelfTest  selftestCmd  `cmd:"" name:"selftest" help:"Start, stop and read the drive's self-tests." group:"know"`
	Telemetry telemetryCmd `cmd:"" help:"Read the drive's telemetry into a file." group:"know"`
	PCIe      pcieCmd      `cmd:"" name:"pcie" help:"Look at, judge and change the PCI Express path of a drive." group:"know"`

	NS       nsCmd       `cmd:"" name:"ns" help:"List, create, delete, attach and detach namespaces." group:"shape"`
	Op       opCmd       `cmd:"" help:"Predict and change over-provisioning." group:"shape"`
	Format   formatCmd   `cmd:"" help:"Format namespaces: change the LBA format, erase." group:"shape"`
	Firmware fwCmd       `cmd:"" name:"fw" help:"List, update, commit and verify firmware." group:"shape"`
	Power    powerCmd    `cmd:"" help:"Show and change power states and limits." group:"shape"`
	Sanitize sanitizeCmd `cmd:"" help:"Erase all data of a drive for good, and follow it." group:"shape"`
	Reset    resetCmd    `cmd:"" help:"Reset a controller or a subsystem." group:"shape"`
	Rescan   rescanCmd   `cmd:"" help:"Have the host look at the namespaces again." group:"shape"`
	Spec     specCmd     `cmd:"" help:"Write, check and describe desired states." group:"shape"`
	Plan     planCmd     `cmd:"" help:"Show how a drive would be brought to a desired state." group:"shape"`
	Apply    applyCmd    `cmd:"" help:"Bring a drive to a desired state." group:"shape"`
	Audit    auditCmd    `cmd:"" help:"Judge drives by a desired state; exit code 3 for findings." group:"shape"`
	Resume   resumeCmd   `cmd:"" help:"Carry on an interrupted change." group:"shape"`
	Rollback rollbackCmd `cmd:"" help:"Undo an interrupted change." group:"shape"`

	Soak       soakCmd    `cmd:"" help:"Soak a drive: write for hours or months, and record what it does." group:"wear"`
	JournalCmd journalCmd `cmd:"" name:"journal" help:"What was done to drives and what they did." group:"wear"`

	Demo       demoCmd       `cmd:"" help:"Soak, resize and soak a simulated drive: a petabyte in under a minute." group:"other"`
	Sim        simCmd        `cmd:"" help:"Simulated drives." group:"other"`
	Completion completionCmd `cmd:"" help:"Shell completion." group:"other"`
	Version    versionCmd    `cmd:"" help:"Print the version." group:"other"`
}

// exitNow carries kong's wish to end (after --help) out of the parser.
type exitNow struct{ code int }

// execute is the whole program: it never exits the process, so tests can call it.
func execute(ctx context.Context, args []string, s streams, getenv func(string) string) (code int) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exitNow:
			code = e.code
		default:
			panic(e)
		}
	}()
	a := &app{streams: s, clock: nvmeioctl.NewSystemClock(), getenv: getenv}
	a.format = wantedFormat(args)
	g := &grammar{}
	parser, err := newParser(g, s)
	if err != nil {
		return a.fail(fmt.Errorf("command line grammar: %w", err))
	}
	complete(parser, getenv)
	kctx, err := parser.Parse(args)
	if err != nil {
		if coded, ok := errors.AsType[*codedError](err); ok {
			return a.fail(coded)
		}
		return a.fail(&codedError{exitUsage, err})
	}
	a.format, a.journalPath = render.Format(g.Output), g.Journal
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(a); err != nil {
		if ctx.Err() != nil && exitCode(err) == exitFailed {
			err = &codedError{exitInterrupted, err}
		}
		return a.fail(err)
	}
	return exitOK
}

func newParser(g *grammar, s streams) (*kong.Kong, error) {
	return kong.New(g,
		kong.Name("nvop"),
		kong.Description("Reconfigure, wear and audit NVMe drives through raw NVMe commands.\n\n"+
			"A drive is /dev/nvme0, /dev/nvme0n1, /dev/ng0n1, sim:FILE (a simulated drive kept in a file) or sim:PROFILE (one that lives as long as the command); commands that read also take replay:FILE (a recorded conversation), and soak takes file:PATH."),
		kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { panic(exitNow{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "know", Title: "Know a drive"},
			{Key: "shape", Title: "Shape a drive"},
			{Key: "wear", Title: "Wear a drive"},
			{Key: "other", Title: "Other"},
		}),
	)
}

// wantedFormat looks for -o json before the command line is parsed, so that a
// usage error too is a JSON document when JSON was asked for.
func wantedFormat(args []string) render.Format {
	for i, arg := range args {
		switch {
		case arg == "--":
			return render.Table
		case arg == "-ojson", arg == "-o=json", arg == "--output=json":
			return render.JSON
		case (arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == "json":
			return render.JSON
		}
	}
	return render.Table
}

// failure is the document printed instead of a result.
type failure struct {
	Schema   string `json:"schema"`
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}

func (failure) Text(*render.Page) {}

// reported is an error whose result has been printed already: the document is
// on standard output, only the line and the code are still due.
type reported struct{ error }

func (e reported) Unwrap() error { return e.error }

// fail prints one line about err, as JSON too where that was asked for, and
// returns the exit code.
func (a *app) fail(err error) int {
	code := exitCode(err)
	line := strings.Join(strings.Fields(err.Error()), " ")
	if _, done := errors.AsType[reported](err); a.format == render.JSON && !done {
		if werr := render.Write(a.out, render.JSON, failure{"nvop.error/1", line, code}); werr != nil {
			line += "; and the error document could not be written: " + werr.Error()
		}
	}
	if code == exitUsage {
		line += " (nvop --help lists the commands)"
	}
	fmt.Fprintln(a.err, "nvop: "+line)
	return code
}
