package endurance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// verifyPhase reads all of the region in sequence.
func verifyPhase(blockBytes uint32) run.Phase {
	return run.Phase{Kind: run.PhaseVerify, Pattern: run.PatternSequential, ReadPercent: 100, BlockBytes: blockBytes, Depth: 4,
		End: run.End{Passes: 1}, Check: run.CheckReads}
}

// checker carries out sessions of one run on a medium, with cuts.
type checker struct {
	t     *testing.T
	job   run.Job
	disk  *medium
	mem   *memory
	clock *nvmeioctl.VirtualClock
	of    *Written
	// start is when the run began, runs are the names of others.
	start int64
	runs  map[uint64]string
	// mapFile is where the generation map is kept, at each checkpoint.
	mapFile  string
	mapEvery time.Duration
	// committed is called after each commit; may be nil.
	committed func()
}

func newChecker(t *testing.T, job run.Job, disk *medium) *checker {
	return &checker{t: t, job: job, disk: disk, mem: &memory{}, clock: virtualClock(), start: 1}
}

// cutter makes everything after a cut a session that never was.
type cutter struct {
	*memory
	disk *medium
	// cut is how many commits there are until the crash, or if negative until the
	// user interrupts; 0 never.
	cut    int
	cancel context.CancelFunc
	// mapFile is as it was when the crash came: what the rest of the session makes
	// of it never was.
	mapFile   string
	saved     []byte
	committed func()
}

func (c *cutter) Commit(ctx context.Context, b *run.Batch) error {
	if c.cut == 1 {
		if !c.disk.dead.Load() {
			c.saved, _ = os.ReadFile(c.mapFile)
		}
		c.disk.dead.Store(true)
		return errCut
	}
	switch {
	case c.cut > 0:
		c.cut--
	case c.cut < 0:
		if c.cut++; c.cut == 0 {
			c.cancel()
		}
	}
	err := c.memory.Commit(ctx, b)
	if c.committed != nil {
		c.committed()
	}
	return err
}

func (c *checker) session(cut int) (run.Verdict, error) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	recorder := &cutter{memory: c.mem, disk: c.disk, cut: cut, cancel: cancel, mapFile: c.mapFile, committed: c.committed}
	cfg := Config{
		Job: c.job, Recorder: recorder, Queues: c.disk.queues(c.job.MaxDepth()), CheckpointOps: 200, Of: c.of,
		StartWallUnixNS: c.start, Runs: c.runs, MapFile: c.mapFile, mapEvery: c.mapEvery,
	}
	if c.mem.cp.Number != 0 {
		cp := c.mem.cp
		cfg.Resume = &cp
	}
	v, err := Simulate(ctx, cfg, c.clock)
	if errors.Is(err, errCut) {
		c.disk.powerCut()
		if c.mapFile != "" {
			_ = os.Remove(c.mapFile)
			if recorder.saved != nil {
				_ = os.WriteFile(c.mapFile, recorder.saved, 0o600)
			}
		}
	}
	return v, err
}

// finish crashes as often as cuts says and then runs to the end.
func (c *checker) finish(cuts ...int) run.Verdict {
	c.t.Helper()
	for _, cut := range cuts {
		v, err := c.session(cut)
		if err == nil && !v.State.Resumable() {
			return v
		}
		if err != nil && !errors.Is(err, errCut) {
			c.t.Fatalf("after %d commits: %v", cut, err)
		}
	}
	v, err := c.session(0)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// written is what the journal would say of the run.
func (c *checker) written() *Written {
	return &Written{Job: c.job, Checkpoint: c.mem.cp, StartWallUnixNS: c.start, MapFile: c.mapFile}
}

// verifier is another run that verifies this one.
func (c *checker) verifier(blockBytes uint32) *checker {
	j := run.Job{Seed: 999, CapacityBytes: c.job.CapacityBytes, LBABytes: c.job.LBABytes, TimeLapse: 1, Workers: 2, Phases: []run.Phase{verifyPhase(blockBytes)}}
	j.Verify.Of = &run.VerifyOf{Run: "r1", Checkpoint: c.mem.cp.Number}
	v := newChecker(c.t, j, c.disk)
	v.of = c.written()
	return v
}

// drawMap lets the generation map be kept, or not.
func (c *checker) drawMap(t *rapid.T, dir string) {
	if !c.job.Verify.GenerationMap || !rapid.Bool().Draw(t, "the map is kept") {
		return
	}
	c.mapFile = filepath.Join(dir, "map")
	_ = os.Remove(c.mapFile)
	c.mapEvery = rapid.SampledFrom([]time.Duration{1, 0}).Draw(t, "at each checkpoint, at the end only")
}

func drawJob(t *rapid.T) run.Job {
	lba := rapid.SampledFrom([]uint32{512, 4096}).Draw(t, "lba")
	j := run.Job{
		Seed: rapid.Uint64().Draw(t, "seed"), LBABytes: lba, TimeLapse: 1, Workers: rapid.Uint32Range(1, 3).Draw(t, "workers"),
		CapacityBytes: uint64(lba) * rapid.Uint64Range(100, 500).Draw(t, "blocks"),
	}
	if rapid.Bool().Draw(t, "fill") {
		j.Phases = append(j.Phases, run.Phase{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: lba * 16, Depth: 4, End: run.End{Passes: 1}})
	}
	for range rapid.IntRange(1, 2).Draw(t, "phases") {
		p := run.Phase{
			Kind: run.PhaseMeasure, Pattern: rapid.SampledFrom([]run.Pattern{run.PatternRandom, run.PatternSequential, run.PatternReplacement}).Draw(t, "pattern"),
			BlockBytes: lba * rapid.SampledFrom([]uint32{1, 3, 8}).Draw(t, "lbas"), Depth: rapid.Uint32Range(1, 8).Draw(t, "depth"),
		}
		p.End = run.End{Bytes: j.CapacityBytes * rapid.Uint64Range(5, 35).Draw(t, "tenths") / 10}
		if rapid.Bool().Draw(t, "reads") {
			p.ReadPercent, p.Check = 40, run.CheckReads
		} else if p.Pattern != run.PatternReplacement && rapid.Bool().Draw(t, "each pass") {
			p.Check, p.End = run.CheckEachPass, run.End{Passes: 2}
		}
		if p.Pattern == run.PatternReplacement && rapid.Bool().Draw(t, "mixed") {
			p.BlockBytes = lba * 8
			p.Sizes = []run.SizeShare{{Bytes: lba, Permyriad: 5000}, {Bytes: lba * 8, Permyriad: 5000}}
		}
		j.Phases = append(j.Phases, p)
	}
	j.Phases = append(j.Phases, verifyPhase(lba*rapid.SampledFrom([]uint32{1, 7, 32}).Draw(t, "verified at once")))
	j.Verify.GenerationMap = rapid.Bool().Draw(t, "map")
	if rapid.Bool().Draw(t, "only flushed is trusted") {
		j.Verify.Trust, j.Verify.FlushIntervalNS = run.TrustFlushed, 300_000
	}
	return j
}

// Cases A4 to A7, A9 to A12, A14, A1: whatever the order, the mix of sizes, the
// number of workers, the crashes, the cache that was lost and the writes that
// failed, a drive that does its duty is never accused.
func TestVerify_neverAccusesAGoodDrive(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		job := drawJob(rt)
		if err := job.Validate(); err != nil {
			rt.Skip(err)
		}
		disk := newMedium(job.LBABytes, rapid.Uint64().Draw(rt, "luck"))
		disk.volatile = job.Verify.Trust == run.TrustFlushed
		if rapid.Bool().Draw(rt, "writes fail") {
			disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
				if op == nvmeioctl.OpWrite && disk.rng.IntN(100) == 0 {
					return 0x4080, disk.rng.IntN(2) == 0
				}
				return 0, true
			}
		}
		c := newChecker(t, job, disk)
		c.drawMap(rt, dir)
		cuts := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(2, 12), rapid.IntRange(-8, -2)), 0, 5).Draw(rt, "cuts")
		v := c.finish(cuts...)
		if n := v.Verified.Mismatches(); n != 0 {
			rt.Fatalf("%d false reports: %+v\n%+v", n, v.Verified, c.mem.mismatches)
		}
		if disk.overlapped {
			rt.Fatal("two operations on one block were in flight together, one of them a write")
		}
		if v.Verified.Blocks != v.Verified.Right+v.Verified.Unknown+v.Verified.Undecided {
			rt.Fatalf("counts do not add up: %+v", v.Verified)
		}
		if disk.fail == nil && len(cuts) == 0 && v.Verified.Unknown != 0 {
			rt.Fatalf("%d blocks are unknown without a reason", v.Verified.Unknown)
		}
		// Another process, from the journal alone, comes to the same; what only the
		// map knew is not decided there.
		w := c.verifier(job.LBABytes * 5).finish()
		if w.Verified.Mismatches() != 0 || !job.Verify.GenerationMap && w.Verified.Blocks != v.Phases[len(v.Phases)-1].Verified.Blocks {
			rt.Fatalf("verified from the journal: %+v, within the run %+v", w.Verified, v.Phases[len(v.Phases)-1].Verified)
		}
	})
}

// A run that was interrupted, or crashed and never went on, can be verified from
// its journal, and only what is beyond its marks is left out or unknown.
func TestVerify_ofARunThatCrashed(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		job := drawJob(rt)
		if err := job.Validate(); err != nil {
			rt.Skip(err)
		}
		disk := newMedium(job.LBABytes, rapid.Uint64().Draw(rt, "luck"))
		disk.volatile = job.Verify.Trust == run.TrustFlushed
		c := newChecker(t, job, disk)
		c.drawMap(rt, dir)
		for range rapid.IntRange(1, 3).Draw(rt, "sessions") {
			if v, err := c.session(rapid.OneOf(rapid.IntRange(2, 15), rapid.IntRange(-8, -2)).Draw(rt, "cut")); err == nil && !v.State.Resumable() {
				break
			}
		}
		if c.mem.cp.Number == 0 {
			rt.Skip("nothing was committed")
		}
		v := c.verifier(job.LBABytes).finish(rapid.SliceOfN(rapid.IntRange(2, 5), 0, 2).Draw(rt, "cuts of the verifier")...)
		if v.Verified.Mismatches() != 0 {
			rt.Fatalf("false reports %+v\n%+v", v.Verified, c.mem.mismatches)
		}
	})
}

// damage is a way to spoil a block below the engine.
type damage struct {
	kind run.MismatchKind
	lbas []uint64
}

// spoil carries out n corruptions on blocks of their own: raw sectors copied,
// swapped, flipped, half-written, and an older state brought back.
func spoil(m *medium, old map[uint64][]byte, blocks uint64, n int) []damage {
	var all []damage
	order := m.rng.Perm(int(blocks))
	take := func() uint64 {
		lba := uint64(order[0])
		order = order[1:]
		return lba
	}
	for i := 0; len(all) < n && len(order) > 2; i++ {
		a, b := take(), take()
		switch i % 5 {
		case 0:
			m.stored[b] = bytes.Clone(m.stored[a])
			all = append(all, damage{run.MismatchMisdirected, []uint64{b}})
		case 1:
			m.stored[a], m.stored[b] = m.stored[b], m.stored[a]
			all = append(all, damage{run.MismatchMisdirected, []uint64{a, b}})
		case 2:
			v := bytes.Clone(m.stored[a])
			for range 1 + m.rng.IntN(8) {
				v[m.rng.IntN(len(v))] ^= 1 << m.rng.IntN(8)
			}
			if !bytes.Equal(v, m.stored[a]) {
				m.stored[a] = v
				all = append(all, damage{run.MismatchRotten, []uint64{a}})
			}
		case 3:
			if v, was := m.stored[a], old[a]; !bytes.Equal(v, was) {
				cut := 64 + m.rng.IntN(len(v)-128)
				if m.rng.IntN(2) == 0 {
					v, was = was, v
				}
				m.stored[a] = append(bytes.Clone(v[:cut]), was[cut:]...)
				all = append(all, damage{run.MismatchTorn, []uint64{a}})
			}
		default:
			if was := old[a]; !bytes.Equal(m.stored[a], was) {
				m.stored[a] = was
				all = append(all, damage{run.MismatchLost, []uint64{a}})
			}
		}
	}
	return all
}

// 10,000 corruptions made below our code, 1,000 in a short run: all are found,
// and named right, in every order.
func TestVerify_namesEveryCorruption(t *testing.T) {
	total := 1000
	if os.Getenv("NVOP_LONG") != "" {
		total = 10_000
	}
	t.Logf("%d corruptions (10,000 with NVOP_LONG=1)", total)
	found := map[run.MismatchKind]int{}
	for round := uint64(0); total > 0; round++ {
		lba := []uint32{512, 4096}[round%2]
		job := run.Job{Seed: round, CapacityBytes: uint64(lba) * 1999, LBABytes: lba, TimeLapse: 1, Workers: 2}
		pattern := []run.Pattern{run.PatternRandom, run.PatternSequential, run.PatternReplacement}[round%3]
		job.Phases = []run.Phase{
			{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: lba * 16, Depth: 4, End: run.End{Passes: 1}},
			{Kind: run.PhaseMeasure, Pattern: pattern, BlockBytes: lba * 2, Depth: 6, End: run.End{Bytes: job.CapacityBytes * 17 / 10}},
		}
		disk := newMedium(lba, round)
		c := newChecker(t, job, disk)
		// The older state is that of a crash half way.
		if _, err := c.session(6); !errors.Is(err, errCut) {
			t.Fatalf("it was to crash: %v", err)
		}
		old := map[uint64][]byte{}
		for k := range 2000 {
			if b, ok := disk.stored[uint64(k)]; ok {
				old[uint64(k)] = b
			} else {
				old[uint64(k)] = make([]byte, lba)
			}
		}
		c.finish()
		made := spoil(disk, old, 1999, min(300, total))
		total -= len(made)
		want := map[uint64]run.MismatchKind{}
		for _, d := range made {
			for _, lba := range d.lbas {
				want[lba] = d.kind
			}
			found[d.kind]++
		}
		if pattern == run.PatternReplacement {
			// Which write was the last is not known: what is whole is not wrong.
			for lba, kind := range want {
				if kind == run.MismatchLost {
					delete(want, lba)
				}
			}
		}
		check := c.verifier(lba * 8)
		v := check.finish()
		compareFindings(t, fmt.Sprintf("round %d, %s", round, pattern), check.mem, want, &v)
	}
	t.Logf("made and found: %v", found)
}

// compareFindings wants every mismatch listed or counted, and none else.
func compareFindings(t *testing.T, when string, mem *memory, want map[uint64]run.MismatchKind, v *run.Verdict) {
	t.Helper()
	counts := map[run.MismatchKind]uint64{}
	for _, k := range want {
		counts[k]++
	}
	for _, k := range run.MismatchKinds() {
		if got := *v.Verified.Of(k); got != counts[k] {
			t.Errorf("%s: %d blocks are called %s, %d are", when, got, k, counts[k])
		}
	}
	for _, m := range mem.mismatches {
		if want[m.LBA] != m.Kind {
			t.Errorf("%s: LBA %d is called %s, is %q: %s", when, m.LBA, m.Kind, want[m.LBA], m.Text)
		}
		if !strings.Contains(m.Text, fmt.Sprintf("LBA %d", m.LBA)) || len(m.Found) == 0 {
			t.Errorf("%s: %+v does not say what was found", when, m)
		}
	}
	if len(want) != 0 && (v.ExitCode != run.ExitLimits || len(mem.mismatches) == 0) {
		t.Errorf("%s: exit %d with %d mismatches listed of %d", when, v.ExitCode, len(mem.mismatches), len(want))
	}
	if v.Verified.Kept != uint64(len(mem.mismatches)) {
		t.Errorf("%s: %d are said to be kept, %d are", when, v.Verified.Kept, len(mem.mismatches))
	}
}

// Case E2: a block that is wrong when first read and right the second time is stale; one
// that cannot be read is unreadable, and its neighbours in the operation are not.
func TestVerify_staleAndUnreadable(t *testing.T) {
	job := testJob(run.PatternRandom)
	job.Phases = append(job.Phases, verifyPhase(512*32))
	disk := newMedium(512, 1)
	c := newChecker(t, job, disk)
	seen := map[uint64]int{}
	disk.read = func(lba uint64, b []byte) {
		if lba%97 == 5 && b[8] != 0 {
			if seen[lba]++; seen[lba] == 1 {
				b[100]++
			}
		}
	}
	disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
		if op == nvmeioctl.OpRead && lba%1000 == 17 {
			return 0x4281, true
		}
		return 0, true
	}
	v := c.finish()
	blocks := job.CapacityBytes / 512
	stale, unreadable := (blocks-5-1)/97+1, (blocks-17-1)/1000+1
	// One that is in an operation which could not be read was looked at anew.
	if v.Verified.Unreadable != unreadable || v.Verified.Stale == 0 || v.Verified.Stale > stale || v.Verified.Mismatches() != v.Verified.Unreadable+v.Verified.Stale {
		t.Errorf("%+v, want up to %d stale and %d unreadable", v.Verified, stale, unreadable)
	}
	if v.Verified.Blocks != blocks || v.ExitCode != run.ExitLimits {
		t.Errorf("%d blocks of %d were compared, exit %d", v.Verified.Blocks, blocks, v.ExitCode)
	}
	for _, m := range c.mem.mismatches {
		if m.Kind == run.MismatchStale && m.LBA%97 != 5 || m.Kind == run.MismatchUnreadable && (m.LBA%1000 != 17 || m.Status != 0x4281) {
			t.Errorf("%+v", m)
		}
	}
	// The rows count every read that the drive was given.
	if v.Totals.ReadOps+v.Totals.ReadErrors != disk.reads {
		t.Errorf("the drive was given %d reads, the rows have %d and %d that failed", disk.reads, v.Totals.ReadOps, v.Totals.ReadErrors)
	}
	c.mem.check(t)
}

// A write that is acknowledged and never arrives is noticed in the same run,
// after the pass, interleaved and at the end.
func TestVerify_lostWritesInTheSameRun(t *testing.T) {
	for _, check := range []run.Check{run.CheckEachPass, run.CheckReads} {
		job := testJob(run.PatternRandom)
		job.Phases[0].Check, job.Phases[0].End.Passes = check, 6
		if check == run.CheckReads {
			job.Phases[0].ReadPercent = 50
		}
		disk := newMedium(512, 1)
		disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
			return 0, op != nvmeioctl.OpWrite || lba != 2001 // says yes, and does nothing
		}
		v := newChecker(t, job, disk).finish()
		if v.Verified.Lost == 0 || v.Verified.Mismatches() != v.Verified.Lost || v.ExitCode != run.ExitLimits {
			t.Errorf("%s: %+v, exit %d", check, v.Verified, v.ExitCode)
		}
		if check == run.CheckEachPass && (v.Verified.Lost != 6 || v.Verified.Blocks != 6*job.CapacityBytes/512 || v.Totals.WriteBytes != 6*job.CapacityBytes) {
			t.Errorf("each pass: %+v, %+v", v.Verified, v.Totals)
		}
	}
}

// Where the order draws anew, the generation map tells lost blocks, within a run
// that was not interrupted; without it they are not decided, and that is said.
func TestVerify_generationMap(t *testing.T) {
	for _, withMap := range []bool{true, false} {
		for _, fill := range []bool{true, false} {
			job := testJob(run.PatternReplacement)
			job.Phases[0].End = run.End{Bytes: 3 * job.CapacityBytes}
			if fill {
				job.Phases = append([]run.Phase{{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: 65536, Depth: 2, End: run.End{Passes: 1}}}, job.Phases...)
			}
			job.Phases = append(job.Phases, verifyPhase(65536))
			job.Verify.GenerationMap = withMap
			disk := newMedium(512, 1)
			writes := map[uint64]int{}
			disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
				if op != nvmeioctl.OpWrite || lba%100 != 50 {
					return 0, true
				}
				writes[lba]++
				return 0, writes[lba] == 1 // each write after the first is lost
			}
			v := newChecker(t, job, disk).finish()
			lost := uint64(0)
			for _, n := range writes {
				if n > 1 {
					lost++
				}
			}
			if !withMap {
				if v.Verified.Mismatches() != 0 || v.Verified.Undecided == 0 || v.ExitCode != 0 || !strings.Contains(strings.Join(v.Notes, "; "), "draws blocks anew") {
					t.Errorf("without a map: %+v, notes %q", v.Verified, v.Notes)
				}
				continue
			}
			// One in 254 fingerprints is that of the write before.
			if v.Verified.Lost > lost || v.Verified.Lost+2 < lost || v.Verified.Mismatches() != v.Verified.Lost || v.Verified.Undecided != 0 {
				t.Errorf("fill %v: %d of %d lost blocks are found: %+v", fill, v.Verified.Lost, lost, v.Verified)
			}
		}
	}
	j := run.Job{CapacityBytes: 61_440_000_000_000, LBABytes: 4096, TimeLapse: 1, Phases: []run.Phase{{Pattern: run.PatternReplacement, BlockBytes: 4096}}}
	if j.GenerationMapBytes() != 0 {
		t.Error("a map that nobody asked for")
	}
	if j.Verify.GenerationMap = true; j.GenerationMapBytes() != 15_000_000_000 {
		t.Errorf("a map of %d bytes for 61.44 TB in blocks of 4096", j.GenerationMapBytes())
	}
}

// A queue that keeps nothing cannot be verified, and that is said before a byte
// is written.
func TestVerify_needsContents(t *testing.T) {
	job := testJob(run.PatternRandom)
	job.Phases = append(job.Phases, verifyPhase(4096))
	job.Phases[0].Check, job.Phases[0].End.Passes = run.CheckEachPass, 1
	w := newWorld()
	_, err := simulate(t, Config{Job: job, Recorder: &memory{}}, w, virtualClock())
	if !errors.Is(err, errNoContents) || w.ops.Load() != 0 {
		t.Errorf("%v after %d operations", err, w.ops.Load())
	}
}

// A drive that is wrong all over is given each operation twice, not each logical
// block: however much is wrong, verification goes on at the drive's speed. Blocks
// that cannot be read any more in between are looked for one by one.
func TestVerify_wrongAllOver(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []uint64{0, 1} {
		job := testJob(run.PatternRandom)
		job.Phases[0].End.Passes = 1
		c := newChecker(t, job, newMedium(512, 1))
		c.finish()
		for _, b := range c.disk.stored {
			for i := range b {
				b[i] = byte(c.disk.rng.Uint32())
			}
		}
		times := 0
		c.disk.fail = func(_ nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
			if lba == 500 {
				if times++; unreadable != 0 && times > 1 {
					return 0x4281, true
				}
			}
			return 0, true
		}
		before := c.disk.reads
		w := c.verifier(512 * 32)
		v := w.finish()
		blocks := job.CapacityBytes / 512
		ops := (blocks-1)/32 + 1
		want := run.Verified{Blocks: blocks, Unreadable: unreadable, Rotten: v.Verified.Rotten, Lost: v.Verified.Lost, Kept: v.Verified.Kept}
		if v.Verified != want || v.Verified.Mismatches() != blocks || v.ExitCode != run.ExitLimits {
			t.Errorf("%+v", v.Verified)
		}
		if n := c.disk.reads - before; n != 2*ops+32*unreadable {
			t.Errorf("%d reads for %d operations of which nothing is right", n, ops)
		}
		if v.Totals.ReadOps+v.Totals.ReadErrors != c.disk.reads-before {
			t.Errorf("%+v, the drive was given %d reads", v.Totals, c.disk.reads-before)
		}
		w.mem.check(t)
	}
}
