package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nvop/endurance/run"
	"nvop/journal"
)

// passes is an error that may pass, as a journal's on a full disk.
type passes struct{}

func (passes) Error() string   { return "no space left on its file system" }
func (passes) Transient() bool { return true }

// A run that ended because there was no room says what to do, once; of another end
// it is not said.
func TestSoak_fullDiskHint(t *testing.T) {
	ctx := context.Background()
	j, err := journal.Open(ctx, filepath.Join(t.TempDir(), "journal.db"), journal.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s := &soakSession{header: run.Header{Address: "file:/a", Serial: "file:/a", Job: run.Job{CapacityBytes: 4096, Phases: []run.Phase{{}}}}}
	if s.recorder, err = j.BeginRun(ctx, s.header); err != nil {
		t.Fatal(err)
	}
	const hint = "; make room for it; go on with: nvop soak resume r1"
	interrupted := run.Verdict{State: run.StateInterrupted}
	for _, c := range []struct {
		v    run.Verdict
		err  error
		want bool
	}{
		{interrupted, fmt.Errorf("record checkpoint 6: %w", passes{}), true},
		{interrupted, fmt.Errorf("save the drive: %w", syscall.ENOSPC), true},
		{interrupted, errors.New("the drive was lost"), false},
		{run.Verdict{State: run.StateFinished}, passes{}, false},
	} {
		if got := s.roomHint(c.v, c.err); !errors.Is(got, c.err) || strings.HasSuffix(got.Error(), hint) != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if got := s.roomHint(interrupted, nil); got != nil {
		t.Error(got)
	}
}
