package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace/audit"
)

type auditCmd struct {
	fleetArg
	specFlag
	traceFlag
	JUnit      string `name:"junit" help:"Write the findings as JUnit XML too." placeholder:"FILE"`
	Prometheus string `help:"Write the findings in the text format of a Prometheus textfile collector too." placeholder:"FILE"`
}

func (auditCmd) Help() string {
	return `Judges drives by a spec, the same that plan and apply bring about, and sends reading commands only. Exit code 3 means findings: the drive is not as it should be, or could not be judged. Without a drive, every drive of this host is judged; each rule has to fit at least one. The files of --junit and --prometheus may be new, empty or an older such report; anything else is not replaced (exit code 4).

Example:
  nvop audit -f fleet.yaml
  nvop audit -f fleet.yaml /dev/nvme0 -o json --prometheus /var/lib/node_exporter/nvop.prom`
}

// auditResult is what an audit found.
type auditResult struct{ audit.Report }

func (r auditResult) Text(p *render.Page) {
	for _, d := range r.Drives {
		state := fmt.Sprintf("ok, %d fields judged", len(d.Checked))
		if len(d.Findings) > 0 {
			state = audit.Summary([]audit.Drive{d}, nil)
		}
		p.Line("%s  %s  %s: %s", d.Address, orNone(d.Serial), d.Model, state)
		if len(d.Findings) > 0 {
			p.Grid(findingHeader(), findingRows(d.Findings))
		}
	}
	for _, d := range r.Skipped {
		p.Line("%s  %s  %s: not covered by the policy", d.Address, d.Serial, d.Model)
	}
	if len(r.Findings) > 0 {
		p.Title("about the policy")
		p.Grid(findingHeader(), findingRows(r.Findings))
	}
	p.Line("%s: %s", r.Policy, r.Summary)
}

func findingHeader() []string {
	return []string{"severity", "field", ">nsid", "expected", "found", "where", "remedy"}
}

func findingRows(list []audit.Finding) [][]string {
	var rows [][]string
	for _, f := range list {
		nsid := ""
		if f.NSID != 0 {
			nsid = fmt.Sprint(f.NSID)
		}
		rows = append(rows, []string{string(f.Severity), f.Field, nsid, f.Expected, f.Found, f.Where, f.Remedy})
	}
	return rows
}

// How older reports begin, which may be replaced.
const (
	junitBegins      = xml.Header + `<testsuites name="nvop audit `
	prometheusBegins = "# HELP nvop_audit_"
)

// checkOutputs refuses files that the reports must not replace.
func (c auditCmd) checkOutputs(a *app, addresses []string) error {
	inputs := []string{c.File}
	if path, err := a.journalFile(); err == nil {
		inputs = append(inputs, path, path+"-wal", path+"-shm")
	}
	for _, address := range addresses {
		for _, kind := range []string{"sim:", "replay:"} {
			if name, ok := strings.CutPrefix(address, kind); ok {
				inputs = append(inputs, name)
			}
		}
	}
	if c.JUnit == "-" || c.Prometheus == "-" {
		return usagef("a report is written as a file: - is no file (-o json prints the findings)")
	}
	for _, out := range []struct{ path, begins string }{{c.JUnit, junitBegins}, {c.Prometheus, prometheusBegins}} {
		if out.path == "" {
			continue
		}
		if err := mayReplace(out.path, out.begins, inputs...); err != nil {
			return err
		}
		inputs = append(inputs, out.path)
	}
	return nil
}

func (c auditCmd) Run(ctx context.Context, a *app) error {
	specs, err := c.read()
	if err != nil {
		return err
	}
	addresses, named := c.Drives, len(c.Drives) > 0
	if !named {
		if addresses, err = everyDrive(); err != nil {
			return err
		}
	}
	if err := c.checkOutputs(a, addresses); err != nil {
		return err
	}
	results := make([]judged, len(addresses))
	quiet := a.shared()
	eachDrive(addresses, func(i int, address string) { results[i] = quiet.judgeDrive(ctx, address, specs, c.traceFlag) })
	if ctx.Err() != nil {
		return &codedError{exitInterrupted, errors.New("interrupted")}
	}
	r := auditResult{audit.Report{Schema: audit.ReportSchema, Policy: c.File, Drives: []audit.Drive{}, Skipped: []audit.Drive{}, Findings: []audit.Finding{}}}
	matched, unread := map[int]bool{}, false
	for i, j := range results {
		switch {
		case exitCode(j.err) == exitUsage:
			return j.err // no drive was named
		case j.err != nil:
			unread = true // a rule may be for this one
			r.Drives = append(r.Drives, audit.Unopened(addresses[i], c.File, j.err))
		case j.rule < 0 && !named:
			r.Skipped = append(r.Skipped, j.drive)
		default:
			r.Drives = append(r.Drives, j.drive)
		}
		matched[j.rule] = true
	}
	for i, s := range specs {
		switch f := audit.Unmatched(s); {
		case matched[i] || named && (len(specs) > 1 || unread):
		case unread:
			f.Severity, f.Found = audit.Unreadable, "none of those that could be read"
			r.Findings = append(r.Findings, f)
		default:
			r.Findings = append(r.Findings, f)
		}
	}
	a.halfDone(ctx, r.Drives)
	return c.report(a, r)
}

// halfDone names the remedy of drives whose change was interrupted: apply refuses
// them until that has an end. A journal that cannot be read says nothing.
func (a *app) halfDone(ctx context.Context, drives []audit.Drive) {
	mends := func(f audit.Finding) bool { return strings.HasPrefix(f.Remedy, "nvop apply ") }
	if !slices.ContainsFunc(drives, func(d audit.Drive) bool { return slices.ContainsFunc(d.Findings, mends) }) {
		return
	}
	err := a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		for _, d := range drives {
			open, err := j.Unfinished(ctx, d.Serial)
			if err != nil {
				return err
			}
			for i := range d.Findings {
				if len(open) > 0 && d.Serial != "" && mends(d.Findings[i]) {
					d.Findings[i].Remedy = fmt.Sprintf("transaction %s is half done: nvop resume %[1]s, or nvop rollback %[1]s", open[0].ID)
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.note("the journal says nothing about interrupted changes: %v", err)
	}
}

// report prints the audit and writes its files.
func (c auditCmd) report(a *app, r auditResult) error {
	r.Summary = audit.Summary(r.Drives, r.Findings)
	if c.JUnit != "" {
		if err := writeWhole(c.JUnit, r.JUnit); err != nil {
			return err
		}
	}
	if c.Prometheus != "" {
		if err := writeWhole(c.Prometheus, func(w io.Writer) error { return r.Prometheus(w, a.clock.Wall()) }); err != nil {
			return err
		}
	}
	if err := a.print(r); err != nil {
		return err
	}
	if !r.Clean() {
		return reported{&codedError{exitFindings, fmt.Errorf("%s: %s", c.File, r.Summary)}}
	}
	return nil
}

// writeWhole writes a file beside its place and moves it there, so that a reader
// never sees half of it. See [mayReplace] for what it may replace.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	if path, err = replaceable(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err = errors.Join(write(f), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
