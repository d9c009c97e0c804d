package endurance

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/endurance/workload"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// loser is a run that draws blocks anew over a drive that loses each write after
// the first of a block, of one block in a hundred.
func loser(t *testing.T) (c *checker, lost func() uint64) {
	job := testJob(run.PatternReplacement)
	job.CapacityBytes = 512 * 5000
	job.Phases[0].BlockBytes, job.Phases[0].End = 512, run.End{Bytes: 3 * job.CapacityBytes / 2}
	// Many seconds, at the end of each of which it can be interrupted, and little
	// that is reserved ahead.
	job.Phases[0].Rate = run.Rate{IOPS: 100, Arrival: run.ArrivalOpen}
	job.Phases = append([]run.Phase{{Kind: run.PhasePrecondition, Pattern: run.PatternSequential, BlockBytes: 65536, Depth: 2, End: run.End{Passes: 1}}}, job.Phases...)
	job.Phases = append(job.Phases, verifyPhase(65536))
	job.Verify.GenerationMap = true
	disk := newMedium(512, 1)
	writes := map[uint64]int{}
	disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
		if op != nvmeioctl.OpWrite || lba%100 != 50 || disk.dead.Load() {
			return 0, true
		}
		writes[lba]++
		return 0, writes[lba] == 1
	}
	c = newChecker(t, job, disk)
	c.mapFile, c.mapEvery = filepath.Join(t.TempDir(), "map"), 1
	return c, func() (n uint64) {
		for _, times := range writes {
			if times > 1 {
				n++
			}
		}
		return n
	}
}

// What the generation map knew before a session ended is known to the next, and to
// another process: after an interruption all of it, after a crash all but what may
// have been written since it was saved, with a damaged file nothing, which is said.
func TestGenerationMap_overInterruptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut  int
		harm func(path string) error
		// decided is how many of a thousand blocks are at least.
		decided uint64
		says    string
	}{
		"none":               {0, nil, 1000, ""},
		"interrupted":        {-12, nil, 1000, ""},
		"crashed":            {12, nil, 600, ""},
		"crashed, not saved": {12, os.Remove, 0, "the file is missing, or was not saved before the crash"},
		"missing":            {-12, os.Remove, 0, "the file is missing"},
		"damaged":            {12, func(path string) error { return flip(path, 5000) }, 0, "it is damaged"},
		"cut short":          {-12, func(path string) error { return os.Truncate(path, 9000) }, 0, "it is cut short"},
		"another's":          {-12, func(path string) error { return os.WriteFile(path, []byte("SQLite format 3"), 0o600) }, 0, "it is none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, lost := loser(t)
			if c.cut != 0 {
				if v, err := r.session(c.cut); err != nil && !errors.Is(err, errCut) || !v.State.Resumable() {
					t.Fatalf("%v, %s", err, v.State)
				}
			}
			if c.harm != nil {
				if err := c.harm(r.mapFile); err != nil {
					t.Fatal(err)
				}
			}
			verdict := r.finish()
			v := verdict.Verified
			blocks := r.job.CapacityBytes / 512
			if v.Mismatches() != v.Lost || v.Blocks != blocks || (v.Blocks-v.Undecided-v.Unknown)*1000 < c.decided*blocks {
				t.Errorf("%+v", v)
			}
			// One in 254 fingerprints is that of the write before.
			if n := lost(); v.Lost > n || (v.Lost+3)*1000 < n*c.decided {
				t.Errorf("%d of %d lost blocks are found: %+v", v.Lost, n, v)
			}
			said := r.mem.said(run.EventMap, "what the generation map knew is lost")
			if (c.harm != nil) != (said != nil) {
				t.Errorf("events %+v", r.mem.events)
			}
			if said != nil && (!strings.Contains(said.Text, c.says) || !slices.ContainsFunc(verdict.Notes, func(n string) bool { return n == said.Text })) {
				t.Errorf("said %q, notes %q", said.Text, verdict.Notes)
			}
			if name == "crashed" && !slices.ContainsFunc(verdict.Notes, func(n string) bool {
				return strings.Contains(n, "operations before a crash that came after the generation map was last saved")
			}) {
				t.Errorf("notes %q", verdict.Notes)
			}
			w := r.verifier(4096).finish()
			if w.Verified != v {
				t.Errorf("another process finds %+v, the run found %+v", w.Verified, v)
			}
			if said != nil && !slices.Contains(w.Notes, said.Text) {
				t.Errorf("another process does not say that %q: %q", said.Text, w.Notes)
			}
		})
	}
}

// flip changes a byte of a file.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	b[0]++
	_, werr := f.WriteAt(b, at)
	return errors.Join(err, werr, f.Close())
}

// A map that cannot be kept is said once, and the run goes on.
func TestGenerationMap_cannotBeKept(t *testing.T) {
	c, _ := loser(t)
	c.mapFile = filepath.Join(t.TempDir(), "missing", "map")
	v := c.finish()
	n := 0
	for _, e := range c.mem.events {
		if e.Kind == run.EventMap && strings.Contains(e.Text, "cannot be kept") {
			n++
		}
	}
	if n != 1 || v.Verified.Undecided != 0 {
		t.Errorf("said %d times, %+v", n, v.Verified)
	}
}

// FuzzGenerationMapLoad feeds hostile files: each is refused, or is a whole map.
func FuzzGenerationMapLoad(f *testing.F) {
	m, err := newGenerationMap(1<<20, 4096, true)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = m.release() }()
	m.set(8192, 8192, 7)
	path := filepath.Join(f.TempDir(), "map")
	if err := m.save(path, mapHead{Run: 5, Phase: 1, Workers: []run.WorkerMark{{Next: 4, Incomplete: []uint64{2}}}}); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:100])
	f.Add([]byte(mapMagic))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := newGenerationMap(1<<20, 4096, false)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = got.release() }()
		h, err := got.load(path, 5)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Fatal(err)
		case err == nil && (h.Run != 5 || h.Bytes != 256 || h.GranuleBytes != 4096):
			t.Fatalf("%+v", h)
		case err == nil && string(text) == string(whole) && (!got.whole || got.at(8192) != 7 || got.at(12288) != 7 || got.at(0) != 0):
			t.Fatalf("%+v, % x", h, got.bytes[:8])
		}
		job := run.Job{Workers: 1, LBABytes: 512, CapacityBytes: 1 << 20, TimeLapse: 1, Phases: []run.Phase{
			{Kind: run.PhaseMeasure, Pattern: run.PatternReplacement, BlockBytes: 4096, Depth: 4, End: run.End{Bytes: 8 << 20}},
		}}
		cp := run.Checkpoint{Workers: []run.WorkerMark{{Next: 100}}, ReservedHigh: 200, State: run.StateRunning}
		if _, _, err := got.recall(path, 5, &job, &cp); err != nil {
			t.Fatal(err)
		}
	})
}

// What may have been written since the map was saved is not known, also where what
// is there is what the map last knew of: a write that was lost right before the
// crash must not pass for right.
func TestGenerationMap_lostSinceItWasSaved(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{8, 9, 10} {
		c, _ := loser(t)
		c.job.Phases = c.job.Phases[:2]
		dropped := map[uint64]bool{}
		var commits atomic.Int64
		c.disk.fail = func(op nvmeioctl.IOOp, lba uint64) (nvmespec.Status, bool) {
			// All that is written after the last commit that goes well is lost.
			if op == nvmeioctl.OpWrite && commits.Load() >= int64(cut)-1 {
				dropped[lba] = true
				return 0, false
			}
			return 0, true
		}
		c.committed = func() { commits.Add(1) }
		if _, err := c.session(cut); !errors.Is(err, errCut) {
			t.Fatalf("it was to crash: %v", err)
		}
		v := c.verifier(4096).finish().Verified
		if len(dropped) < 50 || v.Undecided+v.Unknown < uint64(len(dropped)) || v.Right == 0 || v.Mismatches() != 0 {
			t.Errorf("%d blocks lost their last write: %+v", len(dropped), v)
		}
	}
}

// A worker draws again while it has the block of a draw in flight, now and then more
// often than is looked at when a map is taken up. What it then wrote right before a
// crash accuses nobody: neither where the map knows of an earlier write, nor where
// it knows of none.
func TestGenerationMap_drawnMoreOftenThanLookedAt(t *testing.T) {
	t.Parallel()
	c, _ := loser(t)
	c.disk.fail = nil
	if _, err := c.session(10); !errors.Is(err, errCut) {
		t.Fatalf("it was to crash: %v", err)
	}
	cp, job := &c.mem.cp, &c.job
	m, err := newGenerationMap(job.RegionBytes(), job.GenerationGranuleBytes(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.release() }()
	doubts, remark, err := m.recall(c.mapFile, run.DataRun(c.start, job.Seed, ""), job, cp)
	if err != nil || remark != "" || len(doubts) != 1 || !m.whole || cp.Phase != 1 {
		t.Fatalf("%v %q %+v, phase %d", err, remark, doubts, cp.Phase)
	}
	st, err := newStage(job, 1)
	if err != nil {
		t.Fatal(err)
	}
	source, err := newSource(job, c.start, "")
	if err != nil {
		t.Fatal(err)
	}
	mapped, unmapped := 0, 0
	for lba := range job.CapacityBytes / 512 {
		switch print := m.at(lba * 512); {
		case print == printDoubt || lba%5 != 0:
			continue
		case print == printNone:
			unmapped++
		default:
			mapped++
		}
		source.Fill(c.disk.stored[lba], lba, st.generation(0, cp.ReservedHigh-1-lba%50))
	}
	w := c.verifier(4096)
	v := w.finish().Verified
	if mapped < 20 || unmapped < 20 || v.Mismatches() != 0 || v.Unknown+v.Undecided < uint64(mapped+unmapped) {
		t.Errorf("%d and %d blocks: %+v", mapped, unmapped, v)
	}
}

// The map is saved beside workers that go on, and once more when they have ended:
// then nothing of it is in doubt.
func TestRun_savesTheMap(t *testing.T) {
	t.Parallel()
	d, m := newDisk(), &memory{}
	job := realJob()
	job.Phases[0].Pattern, job.Phases[0].End = run.PatternReplacement, run.End{Bytes: 4 * job.CapacityBytes}
	job.Verify.GenerationMap = true
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := Config{Job: job, Recorder: m, Queues: d.queue(4), Clock: d.clock, StartWallUnixNS: 1,
		MapFile: filepath.Join(t.TempDir(), "map"), mapEvery: time.Millisecond}
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, cfg)
		done <- err
	}()
	number := run.DataRun(1, job.Seed, "")
	load := func() (*generationMap, mapHead, error) {
		g, err := newGenerationMap(job.RegionBytes(), job.GenerationGranuleBytes(), false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.release() })
		h, err := g.load(cfg.MapFile, number)
		return g, h, err
	}
	eventually(t, "it is saved while they work", func() bool {
		_, h, err := load()
		return err == nil && h.Workers[0].Next > 4
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	g, h, err := load()
	if err != nil || !g.whole {
		t.Fatalf("%v %+v", err, h)
	}
	windows, ok, err := unknownSince(&job, &m.cp, &h)
	if err != nil || !ok || len(windows) != 1 || windows[0].draws() != 0 {
		t.Errorf("%v %v: %+v at the end, checkpoint %+v", ok, err, windows, m.cp.Workers)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for offset := range d.written {
		if p := g.at(uint64(offset)); p == printNone || p == printDoubt {
			t.Fatalf("offset %d was written and is not in the map", offset)
		}
	}
}

// A run that was to be verified by its map is not good when the map is gone and
// nothing can be told without: what is wrong with the file is said.
func TestGenerationMap_goneBeforeVerification(t *testing.T) {
	t.Parallel()
	for says, harm := range map[string]func(path string) error{
		"the file is missing":  os.Remove,
		"it is damaged":        func(path string) error { return flip(path, 5000) },
		"it is cut short":      func(path string) error { return os.Truncate(path, 5000) },
		"it is none":           func(path string) error { return os.Truncate(path, 0) },
		"it is of another run": anothers,
		"its head of 184467440737": func(path string) error {
			return overwrite(path, int64(len(mapMagic)), "\xff\xff\xff\xff\xff\xff\xff\xff")
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			r, _ := loser(t)
			r.job.Phases = r.job.Phases[:2]
			r.finish()
			if err := harm(r.mapFile); err != nil {
				t.Fatal(err)
			}
			w := r.verifier(4096)
			v := w.finish()
			if v.ExitCode != run.ExitLimits || v.Verified.Right != 0 || v.Verified.Undecided != v.Verified.Blocks {
				t.Errorf("exit code %d, %+v", v.ExitCode, v.Verified)
			}
			said := w.mem.said(run.EventMap, says)
			all := strings.Join(v.Notes, "\n")
			if said == nil || !strings.Contains(all, says) || !strings.Contains(all, "nothing could be verified") {
				t.Errorf("events %+v, notes %s", w.mem.events, all)
			}
		})
	}
}

// anothers puts the map of another run into a file.
func anothers(path string) error {
	m, err := newGenerationMap(512*5000, 512, true)
	if err != nil {
		return err
	}
	return errors.Join(m.save(path, mapHead{Run: 77}), m.release())
}

// overwrite changes a file in place.
func overwrite(path string, at int64, text string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), at)
	return errors.Join(err, f.Close())
}

// What is forgotten after a crash is what a worker that draws again for blocks in
// flight may have written since the map was saved, and hardly more.
func TestGenerationMap_forgetsNoMoreThanWasWritten(t *testing.T) {
	t.Parallel()
	job := testJob(run.PatternReplacement)
	job.Verify.GenerationMap, job.Workers, job.CapacityBytes = true, 1, 4096*20_000
	p := &job.Phases[0]
	blocks := job.CapacityBytes / uint64(p.BlockBytes)
	const first = 1000
	past := first + blocks/4
	cp := run.Checkpoint{Workers: []run.WorkerMark{{Next: past - 10, Incomplete: []uint64{past - 30}}}, ReservedHigh: past, State: run.StateRunning}
	h := mapHead{Workers: []run.WorkerMark{{Next: first, Incomplete: []uint64{first - 7, first - 3}}}}
	windows, ok, err := unknownSince(&job, &cp, &h)
	if err != nil || !ok || len(windows) != 1 {
		t.Fatalf("%v %v %+v", err, ok, windows)
	}
	m, err := newGenerationMap(job.RegionBytes(), job.GenerationGranuleBytes(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.release() }()
	if ok, err := m.forget(windows); err != nil || !ok {
		t.Fatalf("%v %v", ok, err)
	}
	forgotten := uint64(bytes.Count(m.bytes, []byte{printDoubt}))
	if n := windows[0].draws(); forgotten > n || forgotten < n/2 {
		t.Errorf("%d blocks of %d are forgotten for %d operations", forgotten, blocks, n)
	}
	// A worker that keeps a few in flight, of which those from before the window
	// are what the map says was open.
	g, err := workload.New(windows[0].stage.config)
	if err != nil {
		t.Fatal(err)
	}
	writing, flight := newBlockSet(64), []workload.Op{}
	redrawn := 0
	write := func(position uint64) {
		attempt := uint32(0)
		op := g.Redraw(position, 0)
		for ; writing.meets(&op); redrawn++ {
			attempt++
			op = g.Redraw(position, attempt)
		}
		if attempt < forgetTries && m.at(uint64(op.OffsetBytes)) != printDoubt {
			t.Errorf("position %d, draw %d, is not forgotten", position, attempt)
		}
		writing.claim(&op)
		if flight = append(flight, op); len(flight) > 32 {
			writing.release(&flight[0])
			flight = flight[1:]
		}
	}
	write(first - 7)
	write(first - 3)
	for position := uint64(first); position < past; position++ {
		write(position)
	}
	if redrawn == 0 {
		t.Error("nothing was drawn again: the test says nothing")
	}
}
