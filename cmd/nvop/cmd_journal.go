package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/journal"
	"nvop/namespace/txn"
)

type journalCmd struct {
	List    journalListCmd    `cmd:"" help:"List changes and soaks."`
	Show    journalShowCmd    `cmd:"" help:"Show one change or soak whole."`
	Export  journalExportCmd  `cmd:"" help:"Write a soak's records as CSV or JSON lines."`
	Verify  journalVerifyCmd  `cmd:"" help:"Check the journal: the file, the chains of changes and events, the sums of rows; it says what is in none."`
	Compare journalCompareCmd `cmd:"" help:"Compare two soaks: WAF, IOPS, p99."`
	Backup  journalBackupCmd  `cmd:"" help:"Copy the journal to a new file while it is in use."`
	Prune   journalPruneCmd   `cmd:"" help:"Remove old soaks."`
}

// withJournal opens the journal, lets f work with it and closes it.
func (a *app) withJournal(ctx context.Context, mode journal.Mode, f func(j *journal.Journal) error) error {
	j, err := a.openJournal(ctx, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no journal yet: %w", err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f(j), j.Close())
}

// withStanding is withJournal for writing on in a journal that is there.
func (a *app) withStanding(ctx context.Context, f func(j *journal.Journal) error) error {
	j, err := a.openStanding(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(j), j.Close())
}

type journalListCmd struct{}

func (journalListCmd) Help() string { return "Example: nvop journal list" }

// changeInfo is a transaction in short.
type changeInfo struct {
	ID      string    `json:"id"`
	Title   string    `json:"title"`
	Address string    `json:"address"`
	Serial  string    `json:"serial"`
	State   txn.State `json:"state"`
	Began   time.Time `json:"began"`
	Message string    `json:"message,omitempty"`
}

type journalListResult struct {
	Schema  string       `json:"schema"`
	Journal string       `json:"journal"`
	Changes []changeInfo `json:"changes"`
	Soaks   []soakResult `json:"soaks"`
}

func (r journalListResult) Text(p *render.Page) {
	p.Line("journal %s", r.Journal)
	p.Title("changes")
	var rows [][]string
	for _, c := range r.Changes {
		rows = append(rows, []string{c.ID, c.Title, c.Serial, string(c.State), c.Began.Format(time.RFC3339), c.Message})
	}
	p.Grid([]string{"id", "what", "serial", "state", "began", ""}, rows)
	p.Title("soaks")
	soakListResult{Runs: r.Soaks}.Text(p)
}

func (journalListCmd) Run(ctx context.Context, a *app) error {
	path, err := a.journalFile()
	if err != nil {
		return err
	}
	r := journalListResult{Schema: "nvop.journal-list/1", Journal: path, Changes: []changeInfo{}, Soaks: []soakResult{}}
	err = a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		changes, err := j.Transactions(ctx)
		if err != nil {
			return err
		}
		for _, t := range changes {
			r.Changes = append(r.Changes, changeInfo{t.ID, t.Title, t.Address, t.Identity.Serial, t.State, t.Began, t.Message})
		}
		infos, err := j.Runs(ctx)
		for _, info := range infos {
			x, serr := a.standing(ctx, j, info)
			r.Soaks, err = append(r.Soaks, x), errors.Join(err, serr)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.print(r)
}

type journalShowCmd struct {
	ID string `arg:"" help:"A change (t1) or a soak (r1, or its name)." placeholder:"ID"`
}

func (journalShowCmd) Help() string { return "Example: nvop journal show t1" }

type changeHistory struct {
	Schema string `json:"schema"`
	txn.History
}

func (r changeHistory) Text(p *render.Page) {
	t := r.Transaction
	p.Line("change %s: %s", t.ID, t.Title)
	p.Pairs("state", string(t.State), "message", t.Message, "drive", t.Identity.Model+" "+t.Identity.Serial, "address", t.Address,
		"began", t.Began.Format(time.RFC3339), "ended", timeOrNone(t.Ended))
	p.Title("what was recorded, in order")
	outcome := 0
	for _, in := range r.Intents {
		// Further attempts of one taking come before its outcome.
		for outcome < len(r.Outcomes) && r.Outcomes[outcome].Seq < in.Seq && in.Attempt <= 1 {
			r.outcome(p, r.Outcomes[outcome])
			outcome++
		}
		p.Line("  %s  step %d, %s: %s", in.At.Format(time.RFC3339), in.StepIndex+1, in.Direction, t.Steps[in.StepIndex].Title)
		for _, c := range in.Commands {
			p.Line("      %s", c)
		}
		if in.Note != "" {
			p.Line("      %s", in.Note)
		}
	}
	for ; outcome < len(r.Outcomes); outcome++ {
		r.outcome(p, r.Outcomes[outcome])
	}
}

func (r changeHistory) outcome(p *render.Page, o txn.Outcome) {
	text := string(o.Result)
	if o.Error != "" {
		text += ": " + o.Error
	}
	p.Line("  %s  step %d, %s: %s", o.At.Format(time.RFC3339), o.StepIndex+1, o.Direction, text)
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return "not yet"
	}
	return t.Format(time.RFC3339)
}

func (c journalShowCmd) Run(ctx context.Context, a *app) error {
	return a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		h, err := j.Load(ctx, c.ID)
		if err == nil {
			return a.print(changeHistory{"nvop.change-history/1", h})
		}
		if _, missing := errors.AsType[*journal.NotFoundError](err); !missing {
			return err
		}
		info, err := j.FindRun(ctx, c.ID)
		if err != nil {
			return err
		}
		events, err := j.Events(ctx, info.ID)
		if err != nil {
			return err
		}
		gaps, err := j.Gaps(ctx, info.ID)
		if err != nil {
			return err
		}
		stands := statusOf(info, j.Path(), a.runs(info))
		if err := stands.detail(ctx, j, &info); err != nil {
			return err
		}
		return a.print(runHistory{"nvop.run-history/1", stands, info.Header, nonNil(events), nonNil(gaps)})
	})
}

type journalExportCmd struct {
	runArg
	Format string `enum:"csv,jsonl" default:"csv" help:"csv, one table; or jsonl, everything, one JSON document a line." placeholder:"FORMAT"`
	Table  string `enum:"rows,gaps,samples,counters,events,histograms,mismatches" default:"rows" help:"For csv: rows, gaps, samples, counters, events, histograms or mismatches." placeholder:"TABLE"`
	To     string `type:"path" help:"A new file (default: standard output)." placeholder:"FILE"`
}

func (journalExportCmd) Help() string {
	return "Writes CSV or JSON lines whatever -o says.\n\nExample: nvop journal export r1 --table samples --to samples.csv"
}

func (c journalExportCmd) Run(ctx context.Context, a *app) error {
	info, err := a.findRun(ctx, c.Run_)
	if err != nil {
		return err
	}
	return a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) (err error) {
		var out io.Writer = a.out
		if c.To != "" {
			f, err := os.OpenFile(c.To, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		}
		if c.Format == "jsonl" {
			return j.ExportJSON(ctx, out, info.ID)
		}
		return j.ExportCSV(ctx, out, info.ID, journal.Table(c.Table))
	})
}

type journalVerifyCmd struct{}

func (journalVerifyCmd) Help() string {
	return "Checks the file, the chains of changes and events, that a soak's rows add up, and that the samples give its WAF again. " +
		"Columns that are in no chain and no sum are not protected against somebody who edits them: " + strings.Join(notCovered(), "; ") + ". " +
		"Exit code 3 when something is wrong.\n\nExample: nvop journal verify"
}

// notCovered is what no chain and no sum of the journal holds, by table.
func notCovered() []string {
	return []string{
		"rows and minutes: their times (at_unix_ns, mono_ns, active_ns), mean and percentile latencies, operations in flight, temperature and flags",
		"gaps: when and why",
		"samples: all but the counters that WAF rests on, so times, wear, spare, temperatures, media errors and the other health counters",
		"mismatches: the list of blocks that were not as written",
	}
}

type verifyResult struct {
	Schema  string `json:"schema"`
	Journal string `json:"journal"`
	journal.Verification
	// NotCovered is what the checks do not hold.
	NotCovered []string `json:"not_covered"`
}

func (r verifyResult) Text(p *render.Page) {
	p.Line("journal %s", r.Journal)
	p.Tree(r.Verification)
	p.Line("not checked, as no chain and no sum holds it:")
	for _, text := range r.NotCovered {
		p.Line("  %s", text)
	}
}

func (journalVerifyCmd) Run(ctx context.Context, a *app) error {
	return a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		v, err := j.Verify(ctx)
		if err != nil {
			return err
		}
		if err := a.print(verifyResult{"nvop.journal-verify/1", j.Path(), v, notCovered()}); err != nil {
			return err
		}
		if n := len(v.Problems); n > 0 {
			return reported{&codedError{exitFindings, fmt.Errorf("journal %s: %d problems found", j.Path(), n)}}
		}
		return nil
	})
}

type journalCompareCmd struct {
	Before string `arg:"" help:"A soak, by ID or name." placeholder:"BEFORE"`
	After  string `arg:"" help:"Another." placeholder:"AFTER"`
}

func (journalCompareCmd) Help() string {
	return `Each ratio comes with the half of its 95 % interval, from batches of whole rings of garbage collection and from what counters resolve; a difference that is no larger is said to be within the noise. Runs of fewer than eight rings do not tell.

Example: nvop journal compare r1 r2`
}

func (c journalCompareCmd) Run(ctx context.Context, a *app) error {
	return a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		before, err := j.FindRun(ctx, c.Before)
		if err != nil {
			return err
		}
		after, err := j.FindRun(ctx, c.After)
		if err != nil {
			return err
		}
		r, err := compared(ctx, j, &before, &after)
		if err != nil {
			return err
		}
		return a.print(r)
	})
}

type journalBackupCmd struct {
	To string `arg:"" type:"path" help:"The new file; it must not exist." placeholder:"FILE"`
}

func (journalBackupCmd) Help() string { return "Example: nvop journal backup /backup/nvop.db" }

type backupResult struct {
	Schema  string `json:"schema"`
	Journal string `json:"journal"`
	To      string `json:"to"`
	Bytes   int64  `json:"size_bytes"`
	// Maps are the runs whose generation maps lie beside the journal, and are not
	// in the copy.
	Maps []string `json:"generation_maps_not_copied,omitempty"`
}

func (r backupResult) Text(p *render.Page) {
	p.Line("journal %s copied to %s, %s", r.Journal, r.To, render.Decimal(uint64(r.Bytes)))
	for _, id := range r.Maps {
		p.Line("  not copied: the generation map of %s, %s.%s.map; put it beside the copy as %s.%s.map to verify with it", id, r.Journal, id, r.To, id)
	}
}

func (c journalBackupCmd) Run(ctx context.Context, a *app) error {
	return a.withJournal(ctx, journal.ReadOnly, func(j *journal.Journal) error {
		if err := j.Backup(ctx, c.To); err != nil {
			return err
		}
		info, err := os.Stat(c.To)
		if err != nil {
			return err
		}
		maps, err := mapsBeside(ctx, j)
		if err != nil {
			return err
		}
		return a.print(backupResult{"nvop.journal-backup/1", j.Path(), filepath.Clean(c.To), info.Size(), maps})
	})
}

// mapsBeside are the runs of a journal whose generation maps lie beside it.
func mapsBeside(ctx context.Context, j *journal.Journal) (ids []string, err error) {
	infos, err := j.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for i := range infos {
		if _, err := os.Stat(j.GenerationMapFile(infos[i].ID)); err == nil {
			ids = append(ids, infos[i].ID)
		}
	}
	return ids, nil
}

type journalPruneCmd struct {
	Runs      []string `arg:"" optional:"" help:"Soaks to remove, by ID or name." placeholder:"RUN"`
	OlderThan string   `help:"Remove soaks that are over and older than this: 90d, 720h." placeholder:"TIME"`
	Changes   bool     `help:"With --older-than: remove finished changes too."`
	Yes       bool     `help:"Really remove; without it, only say what would be removed."`
}

func (journalPruneCmd) Help() string {
	return "Ages are by the calendar, so soaks of simulated drives, which have one of their own, go by name only. Soaks that can be resumed stay unless named, changes that are half done always.\n\nExample: nvop journal prune --older-than 90d --yes"
}

type pruneResult struct {
	Schema  string `json:"schema"`
	Removed bool   `json:"removed"`
	journal.Pruned
}

func (r pruneResult) Text(p *render.Page) {
	verb := "would be removed (add --yes)"
	if r.Removed {
		verb = "removed"
	}
	p.Line("%s: %d soaks, %d changes", verb, len(r.Runs), len(r.Transactions))
	p.Tree(r.Pruned)
}

// looksLikeID says that a reference has the form of a run's or a change's ID.
func looksLikeID(ref string) bool {
	if len(ref) < 2 || ref[0] != 'r' && ref[0] != 't' {
		return false
	}
	_, err := strconv.ParseUint(ref[1:], 10, 63)
	return err == nil
}

func (c journalPruneCmd) Run(ctx context.Context, a *app) error {
	if len(c.Runs) == 0 && c.OlderThan == "" {
		return usagef("prune what? name soaks, or give --older-than")
	}
	o := journal.PruneOptions{Transactions: c.Changes, DryRun: !c.Yes}
	if c.OlderThan != "" {
		age, err := longDuration(c.OlderThan)
		if err != nil {
			return err
		}
		o.Before = a.clock.Wall().Add(-age)
	}
	return a.withStanding(ctx, func(j *journal.Journal) error {
		for _, ref := range c.Runs {
			info, err := j.FindRun(ctx, ref)
			if err != nil {
				return err
			}
			// What is removed is named whole: an ID or a name that only begins
			// alike must not do.
			if info.ID != ref && info.Header.Name != ref || looksLikeID(ref) && info.ID != ref {
				return fmt.Errorf("no soak %q in the journal (%s begins like it)", ref, info.ID)
			}
			if a.runs(info) {
				return refusedf("in use", "soak "+info.ID, "nvop soak stop "+info.ID, "it is running")
			}
			o.Runs = append(o.Runs, info.ID)
		}
		pruned, err := j.Prune(ctx, o)
		if err != nil {
			return err
		}
		return a.print(pruneResult{"nvop.journal-prune/1", c.Yes, pruned})
	})
}
