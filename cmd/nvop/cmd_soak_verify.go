package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/endurance"
	"nvop/endurance/jobfile"
	"nvop/endurance/run"
	"nvop/journal"
)

// mismatchesShown is how many mismatches a result lists; the journal has more.
const mismatchesShown = 16

type soakVerifyCmd struct {
	Subject string `arg:"" optional:"" help:"The run, by ID or name, or the drive, whose last soak is meant (default: the last run)." placeholder:"RUN|ADDR"`
	Address string `help:"Where the drive is now, if its address has changed." placeholder:"ADDR"`
	BS      string `name:"bs" default:"128KiB" help:"Size of a read." placeholder:"SIZE"`
	QD      uint32 `name:"qd" default:"32" help:"Reads each worker keeps outstanding." placeholder:"N"`
	Workers uint32 `default:"1" help:"Queues that read side by side, each on a thread of its own." placeholder:"N"`
	Pin     bool   `help:"Tie each worker's thread to one processor."`
	Trust   string `enum:"completed,flushed," default:"" help:"Which writes must have survived a crash: completed, or only those flushed (after the power of a drive without power-loss protection failed). Default: as the soak had it." placeholder:"WHAT"`
	watchFlags
	soakFlags
}

func (soakVerifyCmd) Help() string {
	return `Reads the whole drive once and compares every logical block with what the soak wrote there last. All that is needed is the journal: what a block must hold follows from the seed and from how far the soak had come, in constant memory, however large the drive. Nothing is written. The verification is a run of its own, which can be interrupted and resumed.

A block that is not right is read again and named: lost (it holds an earlier write, twice), stale (a second read is right), misdirected (an intact block of another address), torn (parts of two writes), rotten (changed bits), unreadable. The journal keeps LBA, expected and found generation and the bytes that differ. Exit code 3 says that there are such blocks, or that nothing at all could be decided. A block of another run is called so, by that run's ID where the journal knows it.

Blocks whose last write failed, or was under way in a crash, are unknown: the old content, the new, and at logical blocks a part of each are accepted, and counted apart. Where the order drew blocks anew (--order replacement) it is not known which write of a block was the last: lost and stale blocks are then not told, the other kinds are, and the result says so. With --generation-map it is known: the map is kept in a file beside the journal, and taken up by resume and verify; after a crash the blocks that may have been written since it was saved are undecided. Where its file is missing, damaged or of another run that is said, and the exit code is 3 if nothing can be told without it; journal backup does not copy it. It is saved every second where it is small, and writes 4 MiB a second at most. A permutation (--order permutation) visits each block once a pass, and everything is told.

Example:
  nvop soak verify r3
  nvop soak verify /dev/nvme0n1 --workers 4`
}

func (c soakVerifyCmd) Run(ctx context.Context, a *app) (err error) {
	g, err := a.newSoakGroup(c.soakFlags, c.watchFlags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	info, err := c.find(ctx, a)
	if err != nil {
		return err
	}
	job, err := c.job(info)
	if err != nil {
		return err
	}
	if err := g.addRun(ctx, info, c.Address); err != nil {
		return err
	}
	s := g.sessions[0]
	s.job, s.from = job, ""
	if err := g.prepare(ctx, "soak verify "+info.ID); err != nil {
		return err
	}
	// Under the drive's lock: it may have gone on until just now.
	full, err := g.journal.LoadRun(ctx, info.ID)
	if err != nil {
		return err
	}
	if full.Checkpoint == nil {
		return fmt.Errorf("run %s has not written anything yet", info.ID)
	}
	if err := notOverwritten(ctx, g.journal, info); err != nil {
		return err
	}
	s.job.Verify.Of.Checkpoint = full.Checkpoint.Number
	return g.start(ctx, "verify "+info.ID)
}

// find finds the run that is meant.
func (c soakVerifyCmd) find(ctx context.Context, a *app) (journal.RunInfo, error) {
	if !strings.ContainsAny(c.Subject, ":/") && c.Subject != "" {
		return a.findRun(ctx, c.Subject)
	}
	j, err := a.openJournal(ctx, journal.ReadOnly)
	if err != nil {
		return journal.RunInfo{}, err
	}
	infos, err := j.Runs(ctx)
	if err = errors.Join(err, j.Close()); err != nil {
		return journal.RunInfo{}, err
	}
	same := func(run.Header) bool { return true }
	if c.Subject != "" {
		flags := c.soakFlags
		t, err := a.openSoak(ctx, c.Subject, flags)
		if err != nil {
			return journal.RunInfo{}, err
		}
		same = func(h run.Header) bool { return t.same(h) == nil }
		if err := t.close(); err != nil {
			return journal.RunInfo{}, err
		}
	}
	for i := len(infos) - 1; i >= 0; i-- {
		if h := &infos[i].Header; wrote(&h.Job) && same(*h) {
			return infos[i], nil
		}
	}
	return journal.RunInfo{}, fmt.Errorf("the journal has no soak that wrote to %s", orNone(c.Subject))
}

// notOverwritten refuses to look for what a later run has written over.
func notOverwritten(ctx context.Context, j *journal.Journal, of journal.RunInfo) error {
	infos, err := j.Runs(ctx)
	if err != nil {
		return err
	}
	later := false
	for _, i := range infos {
		if later && i.LastCheckpoint > 0 && wrote(&i.Header.Job) && i.Header.Drive() == of.Header.Drive() {
			return fmt.Errorf("run %s has written to this drive after run %s, over what that one wrote; verify it instead: nvop soak verify %s", i.ID, of.ID, i.ID)
		}
		later = later || i.ID == of.ID
	}
	return nil
}

// wrote says whether a job writes.
func wrote(j *run.Job) bool {
	for i := range j.Phases {
		if p := &j.Phases[i]; p.Pattern != run.PatternNone && p.ReadPercent < 100 {
			return true
		}
	}
	return false
}

// job is the reading of everything that another run wrote.
func (c soakVerifyCmd) job(info journal.RunInfo) (run.Job, error) {
	of := &info.Header.Job
	switch {
	case !wrote(of):
		return run.Job{}, usagef("run %s wrote nothing, so there is nothing to verify", info.ID)
	case of.TimeLapse > 1:
		return run.Job{}, usagef("run %s was under time lapse %d, where each block stands for many and nothing is kept", info.ID, of.TimeLapse)
	case of.Data.HeaderOnly:
		return run.Job{}, usagef("run %s wrote headers only: nothing can be said of the bodies", info.ID)
	}
	block, err := jobfile.Block(c.BS)
	if err != nil {
		return run.Job{}, usagef("--bs: %v", err)
	}
	j := run.Job{
		Seed: of.Seed, CapacityBytes: of.CapacityBytes, LBABytes: of.LBABytes, TimeLapse: 1, Workers: c.Workers, Pin: c.Pin,
		Verify: run.Verify{Of: &run.VerifyOf{Run: info.ID}},
		Phases: []run.Phase{{
			Kind: run.PhaseVerify, Pattern: run.PatternSequential, ReadPercent: 100, BlockBytes: block, Depth: c.QD,
			End: run.End{Passes: 1}, Check: run.CheckReads,
		}},
	}
	switch c.Trust {
	case "":
		j.Verify.Trust = of.Verify.Trust
	case string(run.TrustFlushed):
		j.Verify.Trust = run.TrustFlushed
	}
	if err := j.Validate(); err != nil {
		return run.Job{}, &codedError{exitUsage, err}
	}
	return j, nil
}

// written is what a run that verifies another compares with.
func (s *soakSession) written(ctx context.Context) (*endurance.Written, error) {
	of := s.job.Verify.Of
	if of == nil {
		return nil, nil
	}
	full, err := s.journal.LoadRun(ctx, of.Run)
	if err != nil {
		return nil, err
	}
	if full.Checkpoint == nil || full.Checkpoint.Number != of.Checkpoint {
		return nil, fmt.Errorf("run %s has gone on since its verification began; begin a new one: nvop soak verify %s", of.Run, of.Run)
	}
	w := &endurance.Written{Job: full.Header.Job, Checkpoint: *full.Checkpoint, StartWallUnixNS: full.Header.StartWallUnixNS, Drive: full.Header.Drive(),
		MapFile: s.journal.GenerationMapFile(of.Run)}
	w.Job.Verify.Trust = s.job.Verify.Trust
	return w, nil
}

// knownRuns are the names of the runs of a journal by the number that each puts
// into its blocks.
func knownRuns(ctx context.Context, j *journal.Journal) (map[uint64]string, error) {
	infos, err := j.Runs(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[uint64]string, len(infos))
	for i := range infos {
		h := &infos[i].Header
		names[run.DataRun(h.StartWallUnixNS, h.Job.Seed, h.Drive())] = infos[i].ID
	}
	return names, nil
}

// verifiedResult is what was compared, in a result.
type verifiedResult struct {
	// Of is the run whose writes were compared; empty when it is this one.
	Of string `json:"of,omitempty"`
	run.Verified
	// MismatchesTotal sums the kinds.
	MismatchesTotal uint64 `json:"mismatches_total"`
	// Mismatches are the first; the journal has those that were kept.
	Mismatches []run.Mismatch `json:"mismatches,omitempty"`
}

func newVerified(h *run.Header, v *run.Verified) *verifiedResult {
	if v.Blocks == 0 && h.Job.Verify.Of == nil {
		return nil
	}
	r := &verifiedResult{Verified: *v, MismatchesTotal: v.Mismatches()}
	if of := h.Job.Verify.Of; of != nil {
		r.Of = of.Run
	}
	return r
}

// list adds the first mismatches that the journal has.
func (v *verifiedResult) list(ctx context.Context, j *journal.Journal, id string) error {
	if v == nil || v.MismatchesTotal == 0 {
		return nil
	}
	all, err := j.Mismatches(ctx, id)
	v.Mismatches = all[:min(len(all), mismatchesShown)]
	return err
}

// text sums up what was compared.
func (v *verifiedResult) text() string {
	if v == nil {
		return ""
	}
	s := fmt.Sprintf("%s logical blocks, %s right", render.Count(v.Blocks), render.Count(v.Right))
	if v.Of != "" {
		s = "run " + v.Of + ": " + s
	}
	for _, k := range run.MismatchKinds() {
		if n := *v.Verified.Of(k); n != 0 {
			s += fmt.Sprintf(", %s %s", render.Count(n), strings.ToUpper(string(k)))
		}
	}
	if v.Unknown != 0 {
		s += fmt.Sprintf(", %s unknown", render.Count(v.Unknown))
	}
	if v.Undecided != 0 {
		s += fmt.Sprintf(", %s undecided: not known to be the last write", render.Count(v.Undecided))
	}
	if v.Unwritten != 0 {
		s += fmt.Sprintf(", of those %s hold nothing of this run", render.Count(v.Unwritten))
	}
	return s
}
