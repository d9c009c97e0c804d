package journal

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nvop/endurance"
	"nvop/endurance/run"
	"nvop/endurance/stats"
)

var _ endurance.Recorder = (*Recorder)(nil)

func TestRecorder_givesBackWhatWasRecorded(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "journal.db")
	j := openAt(t, path, ReadWrite)
	r := beginTest(t, j, 3)
	if r.ID() != "r1" {
		t.Errorf("the first run is %s", r.ID())
	}
	s := newSynth(3)
	s.lean = true
	var want run.Batch
	for i := range 5 {
		b := s.batch(37)
		b.Events = append(b.Events, run.Event{Second: int64(i), WallUnixNS: 5, Kind: run.EventIOError, Text: "lost",
			Op: "read", LBA: 1<<64 - 1, Blocks: 8, Status: 0x281, Count: 3})
		if i == 2 {
			b.Samples = append(b.Samples, run.Sample{Second: 90, Failure: "no answer"})
			b.Gaps = append(b.Gaps, run.GapRow{Second: 1, Seconds: 0, WallUnixNS: 9, Reason: "resumed after a crash", UncountedOpsMax: 12})
			s.nextPhase(b)
		}
		if i == 4 {
			b.Checkpoint.State, b.Checkpoint.StopReason = run.StateInterrupted, "interrupted"
			b.Verdict = &run.Verdict{State: run.StateInterrupted, Reason: "interrupted", ExitCode: 7, Totals: b.Checkpoint.Totals,
				WAF: run.WAF{Available: true, Micro: 2_000_000, HostBytes: run.U128(7), MediaBytes: run.Uint128{Hi: 1}}}
		}
		if err := r.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
		want.Rows = append(want.Rows, b.Rows...)
		want.Samples = append(want.Samples, b.Samples...)
		want.Events = append(want.Events, b.Events...)
		want.Gaps = append(want.Gaps, b.Gaps...)
		want.Checkpoint, want.Verdict = b.Checkpoint, b.Verdict
	}
	for _, j := range []*Journal{j, openAt(t, path, ReadOnly)} {
		var rows []run.Row
		if err := j.EachRow(ctx, "r1", func(r Row) error {
			if r.Seconds != 1 {
				t.Errorf("second %d stands for %d", r.Second, r.Seconds)
			}
			rows = append(rows, r.Row)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		got, err := j.LoadRun(ctx, "r1")
		if err != nil {
			t.Fatal(err)
		}
		events, err := j.Events(ctx, "r1")
		if err != nil {
			t.Fatal(err)
		}
		gaps, err := j.Gaps(ctx, "r1")
		if err != nil {
			t.Fatal(err)
		}
		for what, d := range map[string]string{
			"rows": cmp.Diff(want.Rows, rows), "samples": cmp.Diff(want.Samples, got.Samples),
			"events": cmp.Diff(want.Events, events), "gaps": cmp.Diff(want.Gaps, gaps),
			"checkpoint": cmp.Diff(&want.Checkpoint, got.Checkpoint), "verdict": cmp.Diff(want.Verdict, got.Verdict),
			"header": cmp.Diff(synthHeader(3), got.Header),
			"totals": cmp.Diff(want.Checkpoint.Totals, got.Totals), "state": cmp.Diff(run.StateInterrupted, got.State),
		} {
			if d != "" {
				t.Errorf("%s (-recorded +read):\n%s", what, d)
			}
		}
	}
}

func TestRecorder_repeatsAndRefusals(t *testing.T) {
	ctx := context.Background()
	j := openTest(t)
	r := beginTest(t, j, 1)
	s := newSynth(1)
	s.lean = true
	first, second := s.batch(10), s.batch(10)
	commit := func(b *run.Batch) error { return r.Commit(ctx, b) }
	if err := errors.Join(commit(first), commit(first), commit(second), commit(second)); err != nil {
		t.Fatal(err)
	}
	if i, err := j.FindRun(ctx, "r1"); err != nil || i.Totals != second.Checkpoint.Totals || i.Seconds != 20 {
		t.Fatalf("%+v, %v", i, err)
	}
	change := func(f func(b *run.Batch)) *run.Batch {
		c := newSynth(1)
		c.lean = true
		c.batch(10)
		c.batch(10)
		b := c.batch(10)
		f(b)
		return b
	}
	for name, tt := range map[string]struct {
		b    *run.Batch
		want string
	}{
		"other twin":       {change(func(b *run.Batch) { b.Checkpoint.Number = 2 }), "recorded twice"},
		"number skipped":   {change(func(b *run.Batch) { b.Checkpoint.Number = 4 }), "last one recorded is 2"},
		"number old":       {change(func(b *run.Batch) { b.Checkpoint.Number = 1 }), "last one recorded is 2"},
		"row missing":      {change(func(b *run.Batch) { b.Rows = b.Rows[1:] }), "rows sum to"},
		"total off":        {change(func(b *run.Batch) { b.Checkpoint.Totals.ReadErrors++ }), "rows sum to"},
		"row repeated":     {change(func(b *run.Batch) { b.Rows[1].Second = b.Rows[0].Second }), "row of second 20 after second 20"},
		"row of the past":  {change(func(b *run.Batch) { b.Rows[0].Second = 19 }), "row of second 19"},
		"row of tomorrow":  {change(func(b *run.Batch) { b.Rows[9].Second = 30 }), "before second 30"},
		"marks crossed":    {change(func(b *run.Batch) { b.Checkpoint.LowWater = b.Checkpoint.ReservedHigh + 1 }), "marks go back"},
		"too big":          {change(func(b *run.Batch) { b.Checkpoint.Pass = 1 << 63 }), "more than the journal can hold"},
		"broken histogram": {change(func(b *run.Batch) { b.Histograms = []run.Histogram{{}, {}} }), ""},
	} {
		if err := commit(tt.b); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
	last := change(func(b *run.Batch) { b.Checkpoint.State = run.StateFinished })
	if err := errors.Join(commit(last), commit(last)); err != nil {
		t.Fatal(err)
	}
	over := change(func(b *run.Batch) { b.Checkpoint.Number = 4 })
	if err := commit(over); err == nil || !strings.Contains(err.Error(), "the run is over (finished)") {
		t.Errorf("recorded after the end: %v", err)
	}
	if _, _, err := j.ResumeRun(ctx, "r1"); err == nil {
		t.Error("a finished run can be resumed")
	}
}

func TestFindRun(t *testing.T) {
	ctx := context.Background()
	j := openTest(t)
	for _, name := range []string{"nightly", "night", "weekly", "weekly", "r2", "wear"} {
		h := synthHeader(1)
		h.Name = name
		if _, err := j.BeginRun(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	for ref, want := range map[string]string{"r1": "r1", "night": "r2", "nightl": "r1", "nig": "", "weekly": "", "wea": "r6",
		"r2": "r2", "r9": "", "": "", "x": "", "r01": "", "%": ""} {
		got, err := j.FindRun(ctx, ref)
		if got.ID != want || (err == nil) != (want != "") {
			t.Errorf("FindRun(%q) = %s, %v; want %q", ref, got.ID, err, want)
		}
		if nf, ok := errors.AsType[*NotFoundError](err); want == "" && (!ok || nf.ExitCode() != 1) {
			t.Errorf("FindRun(%q): %v", ref, err)
		}
	}
	for ref, want := range map[string][]string{"weekly": {"r4", "r3"}, "nig": {"r2", "r1"}, "x": nil} {
		_, err := j.FindRun(ctx, ref)
		if nf, ok := errors.AsType[*NotFoundError](err); !ok || !slices.Equal(nf.Several, want) || !strings.Contains(err.Error(), strings.Join(want, ", ")) {
			t.Errorf("FindRun(%q): %v, want it to list %v", ref, err, want)
		}
	}
	if last, err := j.LastRun(ctx); err != nil || last.ID != "r6" {
		t.Errorf("last: %s, %v", last.ID, err)
	}
}

type minuteKey struct {
	minute, phase int64
	write         bool
}

// plainSums is what a run came to, kept in the plainest way.
type plainSums struct {
	t       *rapid.T
	counts  map[minuteKey]run.Counts // write is false
	flags   map[minuteKey]run.RowFlags
	minutes map[minuteKey]*stats.Histogram
	phases  map[minuteKey]*stats.Histogram // minute is 0
}

func newPlainSums(t *rapid.T) *plainSums {
	return &plainSums{t: t, counts: map[minuteKey]run.Counts{}, flags: map[minuteKey]run.RowFlags{},
		minutes: map[minuteKey]*stats.Histogram{}, phases: map[minuteKey]*stats.Histogram{}}
}

func (p *plainSums) merge(to map[minuteKey]*stats.Histogram, k minuteKey, encoded []byte) {
	d, err := stats.DecodeHistogram(encoded)
	if err != nil {
		p.t.Fatal(err)
	}
	if to[k] == nil {
		to[k] = stats.NewHistogram()
	}
	to[k].Merge(d)
}

func (p *plainSums) add(b *run.Batch) {
	for _, h := range b.Histograms {
		p.merge(p.minutes, minuteKey{h.Second / 60, int64(h.Phase), h.Write}, h.Encoded)
		p.merge(p.phases, minuteKey{0, int64(h.Phase), h.Write}, h.Encoded)
	}
	for _, row := range b.Rows {
		k := minuteKey{row.Second / 60, int64(row.Phase), false}
		c := p.counts[k]
		c.Add(row.Counts)
		p.counts[k] = c
		p.flags[k] |= row.Flags
	}
}

func (p *plainSums) checkMinute(row *Row) {
	k := minuteKey{row.Second / 60, int64(row.Phase), false}
	if row.Counts != p.counts[k] || row.Flags != p.flags[k] {
		p.t.Errorf("minute at %d does not add up: %+v, flags %d, not %d", row.Second, row.Counts, row.Flags, p.flags[k])
	}
	k.write = true
	h := p.minutes[k]
	p99, _ := h.Percentile(990_000)
	if h.Count() < 1000 {
		p99 = run.NotAvailable
	}
	mean, _ := h.Mean()
	longest, _ := h.Max()
	if row.Write.P99NS != p99 || row.Write.MeanNS != mean || row.Write.MaxNS != longest || row.Write.Operations != h.Count() {
		p.t.Errorf("minute at %d: %+v; want p99 %d, mean %d, max %d of %d", row.Second, row.Write, p99, mean, longest, h.Count())
	}
}

// checkPhases compares whole phases; open is what the last checkpoint holds open.
func (p *plainSums) checkPhases(j *Journal, id string, open []run.Histogram) {
	for _, o := range open {
		p.merge(p.phases, minuteKey{0, int64(o.Phase), o.Write}, o.Encoded)
	}
	for k, h := range p.phases {
		got, err := j.PhaseHistogram(context.Background(), id, uint32(k.phase), k.write)
		if err != nil {
			p.t.Fatal(err)
		}
		a, _ := h.AppendBinary(nil)
		if b, _ := got.AppendBinary(nil); !bytes.Equal(a, b) {
			p.t.Errorf("phase %d: the histograms do not merge to what was recorded", k.phase)
		}
	}
}

// TestThin_keepsSumsAndMergesHistograms thins runs of any batch size and
// compares with plain sums of what was recorded.
func TestThin_keepsSumsAndMergesHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		j, err := Open(ctx, filepath.Join(tempDir(t), "journal.db"), ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		j.keepSeconds = 600
		if _, err := j.w.Exec("PRAGMA synchronous = OFF"); err != nil { // no power is cut here
			t.Fatal(err)
		}
		r, err := j.BeginRun(ctx, synthHeader(1))
		if err != nil {
			t.Fatal(err)
		}
		s := newSynth(rapid.Uint64().Draw(t, "seed"))
		s.sampleEvery = 0
		for n := range 16 {
			s.pool = append(s.pool, s.latencies(1+n*3))
		}
		sums := newPlainSums(t)
		recordThinned(t, r, s, sums)
		var total run.Totals
		minutes := 0
		if err := j.EachRow(ctx, r.ID(), func(row Row) error {
			total.Add(row.Counts)
			total.Rows += uint64(row.Seconds)
			if row.Second < (s.cp.NextSecond-j.keepSeconds)/600*600 {
				minutes++
				sums.checkMinute(&row)
			} else if row.Seconds != 1 {
				t.Errorf("second %d is thinned too early", row.Second)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if total != s.cp.Totals || minutes < 10 {
			t.Errorf("rows sum to %+v, recorded %+v; %d minutes", total, s.cp.Totals, minutes)
		}
		sums.checkPhases(j, r.ID(), s.cp.Open)
		if v, err := j.Verify(ctx); err != nil || !v.OK() {
			t.Errorf("%v, %v", v.Problems, err)
		}
	})
}

// recordThinned records half an hour with a change of phase, in batches of one
// size, beginning after a gap.
func recordThinned(t *rapid.T, r *Recorder, s *synth, sums *plainSums) {
	phaseAt := rapid.Int64Range(1, 1500).Draw(t, "phase")
	size := rapid.Int64Range(100, 2500).Draw(t, "batch")
	start := rapid.Int64Range(0, 3000).Draw(t, "start")
	s.cp.NextSecond, s.openFrom = start, start
	for first := true; s.cp.NextSecond < start+2000; first = false {
		b := s.batch(min(size, phaseAt))
		if phaseAt -= int64(len(b.Rows)); phaseAt <= 0 {
			phaseAt = 1 << 40
			s.nextPhase(b)
		}
		if first {
			b.Gaps = []run.GapRow{{Second: 0, Seconds: start}}
		}
		sums.add(b)
		if err := r.Commit(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThin_keepsEdges: of samples every 10 s and a media counter that moves
// every 60 s, the edges and the sample before each stay, and the WAF computed
// from what stays is the one computed from all.
func TestThin_keepsEdges(t *testing.T) {
	ctx := context.Background()
	j := openTest(t)
	j.keepSeconds = 600
	r := beginTest(t, j, 1)
	s := newSynth(1)
	s.lean, s.mediaEvery = true, 60
	var all []run.Sample
	for s.cp.NextSecond < 7200 {
		b := s.batch(100)
		for i := range b.Samples {
			switch b.Samples[i].Second {
			case 3030: // health differs once
				b.Samples[i].SparePercent = 99
			case 3330:
				b.Samples[i] = run.Sample{Second: 3330, Failure: "no answer"}
			}
		}
		all = append(all, b.Samples...)
		if err := r.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := j.Samples(ctx, r.ID())
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]bool{3020: true, 3030: true, 3040: true, 3320: false, 3330: true, 3340: true}
	for sec := int64(0); sec < 7200; sec += 10 {
		if sec%60 == 0 || sec%60 == 50 || sec >= 6600 {
			want[sec] = true
		}
	}
	got := map[int64]bool{}
	for _, k := range kept {
		got[k.Second] = true
		if !want[k.Second] {
			t.Errorf("the sample of second %d is kept", k.Second)
		}
	}
	for sec, wanted := range want {
		if wanted && !got[sec] {
			t.Errorf("the sample of second %d is gone", sec)
		}
	}
	capacity := s.cp.Totals.WriteBytes / 5
	a, b := endurance.MeasureWAF(all, capacity, 1200, 0), endurance.MeasureWAF(kept, capacity, 1200, 0)
	if d := cmp.Diff(a, b); d != "" || !a.Available {
		t.Errorf("WAF of all and of kept samples:\n%s%+v", d, a)
	}
}

// TestMerger_spansThatCrossMinutes: such a histogram is merged but tells of no
// minute.
func TestMerger_spansThatCrossMinutes(t *testing.T) {
	s := newSynth(1)
	m := newMerger()
	var total uint64
	for _, at := range [][2]int64{{0, 60}, {60, 30}, {90, 30}, {120, 70}, {190, 50}, {590, 20}, {610, 50}} {
		h := s.latencies(100)
		enc, err := h.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		total += h.Count()
		if err := m.add(&run.Histogram{Second: at[0], Seconds: at[1], Encoded: enc}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.flush(); err != nil {
		t.Fatal(err)
	}
	got := map[int64]int64{}
	for _, l := range m.minutes {
		got[l.minute] = l.count
	}
	if d := cmp.Diff(map[int64]int64{0: 100, 1: 200, 3: 100, 10: 100}, got); d != "" {
		t.Errorf("minutes (-want +got):\n%s", d)
	}
	spans := [][2]int64{}
	for _, h := range m.merged {
		d, err := stats.DecodeHistogram(h.Encoded)
		if err != nil {
			t.Fatal(err)
		}
		total -= d.Count()
		spans = append(spans, [2]int64{h.Second, h.Seconds})
	}
	if d := cmp.Diff([][2]int64{{0, 610}, {610, 50}}, spans); d != "" || total != 0 {
		t.Errorf("spans (-want +got):\n%s%d latencies missing", d, total)
	}
}

// TestThin_histogramsThatMissSome: a minute of which the histograms hold only a
// part has no percentiles, and its neighbour has.
func TestThin_histogramsThatMissSome(t *testing.T) {
	ctx := context.Background()
	j := openTest(t)
	j.keepSeconds = 0
	r := beginTest(t, j, 1)
	s := newSynth(1)
	s.sampleEvery = 0
	s.pool = []*stats.Histogram{s.latencies(500)}
	for s.cp.NextSecond < 600 {
		b := s.batch(60)
		if b.Checkpoint.Number == 2 { // seconds 60 to 119 are said to be in a span that crosses
			for i := range b.Histograms {
				b.Histograms[i].Seconds = 70
			}
		}
		if b.Checkpoint.Number == 4 {
			half, err := s.latencies(5000).AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Histograms[0].Encoded = half
		}
		if err := r.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	var missing []int64
	if err := j.EachRow(ctx, r.ID(), func(row Row) error {
		if row.Seconds != 60 {
			t.Errorf("second %d stands for %d", row.Second, row.Seconds)
		}
		if row.Read.P99NS == run.NotAvailable {
			missing = append(missing, row.Second)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int64{60, 180}, missing); d != "" {
		t.Errorf("minutes without p99 (-want +got):\n%s", d)
	}
}
