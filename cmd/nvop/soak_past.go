package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance/run"
	"nvop/journal"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/nvmespec"
)

// drivePast is what the journal knows of what was written to a namespace since it
// was last created, formatted or sanitized: which fills need not be done again, and
// whether what is read was ever written.
type drivePast struct {
	// Fills is how often every block was written by a phase that visits each once a
	// pass; LastFill is the run that did so last.
	Fills    uint64 `json:"fills"`
	LastFill string `json:"last_fill,omitempty"`
	// WriteBytes is what all runs wrote, those that were killed as far as they had
	// a verdict.
	WriteBytes uint64 `json:"write_bytes"`
}

// past reads the journal for what it knows of the drives of the group.
func (g *soakGroup) past(ctx context.Context) (infos []journal.RunInfo, err error) {
	j, err := g.app.openJournal(ctx, journal.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if infos, err = j.Runs(ctx); err != nil {
		return nil, err
	}
	changes, err := j.Transactions(ctx)
	for _, s := range g.sessions {
		s.past = pastOf(infos, changes, s)
	}
	return infos, err
}

// lookBack notes what is to be said of reading what was never written.
func (g *soakGroup) lookBack(ctx context.Context) error {
	if _, err := g.past(ctx); err != nil {
		return err
	}
	for _, s := range g.sessions {
		if s.remarks = s.unfilled(); len(s.remarks) != 0 {
			g.app.note("%s: %s", s.target.address, s.remarks[0])
		}
	}
	return nil
}

// pastOf adds up the runs on a session's namespace as it is now.
func pastOf(infos []journal.RunInfo, changes []txn.Transaction, s *soakSession) drivePast {
	var emptied time.Time
	for i := range changes {
		if t := &changes[i]; t.Identity.Serial == s.target.serial && empties(t) {
			emptied = t.Began
		}
	}
	var p drivePast
	for _, info := range infos {
		h := &info.Header
		if h.StartWallUnixNS < emptied.UnixNano() && !emptied.IsZero() || h.Address == "" || s.target.same(*h) != nil || info.Verdict == nil {
			continue
		}
		p.WriteBytes += info.Verdict.Totals.WriteBytes
		whole := h.Job.RegionBytes() * uint64(h.Job.TimeLapse)
		for _, r := range info.Verdict.Phases {
			if int(r.Phase) < len(h.Job.Phases) && covers(&h.Job.Phases[r.Phase]) && r.Totals.WriteBytes >= whole {
				p.Fills, p.LastFill = p.Fills+r.Totals.WriteBytes/whole, info.ID
			}
		}
	}
	return p
}

// covers says whether a phase writes every block once a pass.
func covers(p *run.Phase) bool {
	return p.ReadPercent == 0 && (p.Pattern == run.PatternSequential || p.Pattern == run.PatternRandom)
}

// empties says whether a change took away what was on the drive, or may have.
func empties(t *txn.Transaction) bool {
	for _, step := range t.Steps {
		for _, c := range step.Commands {
			if class := nvmespec.ClassOf(!c.IO, c.Opcode, c.CDW10); step.Destroys != "" && class&(nvmespec.ClassFormat|nvmespec.ClassNamespace) != 0 {
				return t.State != txn.StateCancelled
			}
		}
	}
	return false
}

// unfilled says that the job reads before everything was written: what was never
// written a drive answers without reading, faster than anything else.
func (s *soakSession) unfilled() []string {
	filled := s.past.Fills != 0 || s.target.buffered
	for i := range s.job.Phases {
		p := &s.job.Phases[i]
		switch {
		case p.Pattern == run.PatternNone || p.Kind == run.PhaseVerify || filled:
		case p.ReadPercent != 0:
			return []string{fmt.Sprintf("phase %d (%s) reads, and no full fill is known since the namespace or file was last created or formatted: what was never written is read faster than anything else (fill it first: --fill 1, or a precondition phase)", i, p.Kind)}
		default:
			whole := s.job.RegionBytes() * uint64(s.job.TimeLapse)
			filled = covers(p) && (p.End.Passes != 0 || p.End.DriveWritesMilli >= 1000 || p.End.Bytes >= whole)
		}
	}
	return nil
}

// text says it in a line.
func (p *drivePast) text() string {
	if p == nil {
		return ""
	}
	const since = "since it was last created or formatted, as far as this journal knows"
	if p.Fills == 0 {
		return fmt.Sprintf("%s and no full fill %s", render.Decimal(p.WriteBytes), since)
	}
	return fmt.Sprintf("%s, %d full fills among it, the last by run %s, %s", render.Decimal(p.WriteBytes), p.Fills, p.LastFill, since)
}
