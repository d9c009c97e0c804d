package journal

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/endurance/run"
)

// What verification found comes back as it was recorded, and its sums are those
// of the last checkpoint.
func TestVerification_comesBack(t *testing.T) {
	ctx := context.Background()
	j := openAt(t, filepath.Join(t.TempDir(), "journal.db"), ReadWrite)
	h := synthHeader(3)
	h.Job.Verify = run.Verify{Trust: run.TrustFlushed, FlushIntervalNS: 1e9, Of: &run.VerifyOf{Run: "r7", Checkpoint: 99}}
	h.Job.Phases[0].Check = run.CheckReads
	r, err := j.BeginRun(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := j.Verification(ctx, r.ID()); v != nil || err != nil {
		t.Errorf("before anything was compared: %+v, %v", v, err)
	}
	s := newSynth(3)
	s.lean, s.verifies = true, true
	s.commitAll(t, r, 10, 60)
	v, err := j.Verification(ctx, r.ID())
	if err != nil {
		t.Fatal(err)
	}
	want := &VerificationRecord{Of: h.Job.Verify.Of, Trust: run.TrustFlushed, Verified: s.cp.Verified}
	if d := cmp.Diff(want, v); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	list, err := j.Mismatches(ctx, r.ID())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s.mismatches, list); d != "" {
		t.Errorf("mismatches (-recorded +read):\n%s", d)
	}
	if v, err := j.Verify(ctx); err != nil || !v.OK() {
		t.Errorf("%+v, %v", v.Problems, err)
	}
	var csv, lines bytes.Buffer
	if err := j.ExportCSV(ctx, &csv, r.ID(), TableMismatches); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(csv.String(), "\n"); n != 1+len(list) || !strings.Contains(csv.String(), ",010203,030201,") {
		t.Errorf("%d lines for %d mismatches:\n%s", n, len(list), &csv)
	}
	if err := j.ExportJSON(ctx, &lines, r.ID()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvop.journal.mismatch/1", "nvop.journal.verification/1"} {
		if !strings.Contains(lines.String(), name) {
			t.Errorf("no %s is exported", name)
		}
	}
}

// A journal in which somebody has made a mismatch disappear says so.
func TestVerification_tampered(t *testing.T) {
	ctx := context.Background()
	for statement, says := range map[string]string{
		`DELETE FROM mismatches WHERE mismatch = 2`:                                                       "of 15 recorded mismatches are there",
		`UPDATE verifications SET lost_blocks = 0`:                                                        "it counts",
		`UPDATE verifications SET lost_blocks = 0, right_blocks = right_blocks + lost_blocks`:             "was verified and the run",
		`UPDATE mismatches SET found_run = 'nobody' WHERE mismatch = 1`:                                   `run "nobody"`,
		`DELETE FROM verifications`:                                                                       "compared nothing",
		`UPDATE mismatches SET expected_hex = 'xyz' WHERE mismatch = 1`:                                   "mismatch of LBA",
		`UPDATE verifications SET verified_blocks = verified_blocks + 1, right_blocks = 1 + right_blocks`: "was verified and the run",
	} {
		j := openAt(t, filepath.Join(t.TempDir(), "journal.db"), ReadWrite)
		recordSome(t, j, 5)
		if _, err := j.w.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
		v, err := j.Verify(ctx)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range v.Problems {
			found = found || strings.Contains(p.What, says)
		}
		if !found {
			t.Errorf("%s: %v", statement, v.Problems)
		}
	}
}
