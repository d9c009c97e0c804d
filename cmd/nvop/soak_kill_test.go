package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/endurance/run"
)

// killPlan is how much a soak that is killed does: little by default, all of it
// with NVOP_LONG=1.
type killPlan struct {
	operations uint64
	kills      int
	wait       func() time.Duration
}

func newKillPlan(t *testing.T, seed uint64) killPlan {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	most := 1300 // milliseconds
	p := killPlan{operations: 40_000, kills: 2, wait: func() time.Duration { return time.Duration(200+rng.IntN(most)) * time.Millisecond }}
	if os.Getenv("NVOP_LONG") != "" {
		p.operations, p.kills, most = 10_000_000, 100, 2300
	}
	t.Logf("%d operations, killed %d times (10,000,000 and 100 with NVOP_LONG=1); moments from seed %d", p.operations, p.kills, seed)
	return p
}

// carryOut starts a soak, kills it with -9 again and again, and lets it end. It
// returns how it ended and how often it was killed at work.
func (p killPlan) carryOut(w *workshop, resume []string, start ...string) (done soakResult, killed int) {
	w.t.Helper()
	args, inMidst := start, 0
	for range 3 * p.kills {
		if killed == p.kills || !w.killAfter(p.wait(), args...) {
			break
		}
		var runs soakListResult
		w.must(&runs, "soak", "list")
		if len(runs.Runs) == 0 {
			continue // killed before the run was recorded
		}
		killed++
		args = resume
		if runs.Runs[0].ReadOps != 0 {
			inMidst++
		}
	}
	w.t.Logf("of %d kills at work %d were beyond the fill", killed, inMidst)
	if os.Getenv("NVOP_LONG") != "" && inMidst < killed/2 {
		w.t.Errorf("only %d of %d kills hit the random phase", inMidst, killed)
	}
	if killed == 0 {
		w.must(&done, args...)
		return done, 0
	}
	var status soakResult
	if w.must(&status, "soak", "status"); status.State == string(run.StateFinished) {
		return status, killed
	}
	w.must(&done, resume...)
	return done, killed
}

// admitted is the most operations that the gaps of a run may hide.
func (w *workshop) admitted(id string) (ops uint64, gaps int) {
	w.t.Helper()
	var history runHistory
	w.must(&history, "journal", "show", id)
	for _, g := range history.Gaps {
		ops += g.UncountedOpsMax
	}
	return ops, len(history.Gaps)
}

// verifyAll compares the whole drive with what the run wrote, from the journal
// alone, in a process of its own.
func (w *workshop) verifyAll(id string, blocks uint64) {
	w.t.Helper()
	var v soakResult
	w.must(&v, "soak", "verify", id)
	if v.Verified == nil || v.Verified.MismatchesTotal != 0 || v.Verified.Right != blocks || v.Verified.Unknown != 0 {
		w.t.Errorf("verified from the journal: %+v, want %d blocks right", v.Verified, blocks)
	}
}

// loopDevice is a loop device over a file in memory.
func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a loop device needs root")
	}
	dir := "/dev/shm"
	if _, err := os.Stat(dir); err != nil {
		dir = t.TempDir()
	}
	f, err := os.CreateTemp(dir, "nvop-loop-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", f.Name()).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", node).Run() })
	return node
}

// counted is what a block device was given: bytes read and written.
func counted(t *testing.T, node string) (readBytes, writeBytes uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(node), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	number := func(i int) uint64 {
		v, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v * 512
	}
	return number(2), number(6)
}

// Cases A4, A5, A9 to A13, B2, B4: a verified random soak of a block device,
// killed with -9 at random moments and resumed. Nobody is accused wrongly, and
// rows lack no more than what the gaps admit; without kills they are exactly what
// the kernel counted.
func TestKill_verifiedSoakOfALoopDevice(t *testing.T) {
	skipUnderRace(t)
	const size = 64 << 20
	for _, kills := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", kills), func(t *testing.T) {
			node := loopDevice(t, size)
			w := &workshop{t: t, dir: t.TempDir()}
			plan := newKillPlan(t, 5)
			if !kills {
				plan.kills = 0
			}
			// A fill first, so that each block is known from the start.
			start := []string{"soak", "start", "file:" + node, "--rw", "randrw", "--read-percent", "30", "--order", "permutation", "--qd", "64",
				"--fill", "1", "--size", strconv.FormatUint(plan.operations*4096, 10) + "B", "--verify", "reads", "--overwrite"}
			readBefore, writtenBefore := counted(t, node)
			var done soakResult
			killed := 0
			if kills {
				done, killed = plan.carryOut(w, []string{"soak", "resume"}, start...)
			} else {
				w.must(&done, start...)
			}
			readAfter, writtenAfter := counted(t, node)
			if done.Verdict != "pass" || done.Verified == nil || done.Verified.MismatchesTotal != 0 || !kills && done.Verified.Unknown != 0 {
				t.Errorf("it ended as %s, %s: %+v", done.Verdict, done.Reason, done.Verified)
			}
			ops, gaps := w.admitted("r1")
			// Killed before its first commit a session has submitted nothing.
			if gaps > killed {
				t.Errorf("%d kills and %d gaps", killed, gaps)
			}
			wrote, read := writtenAfter-writtenBefore, readAfter-readBefore
			t.Logf("killed %d times; the rows have %d operations, the device got %d bytes more than they say and the gaps admit %d",
				killed, done.ReadOps+done.WriteOps, wrote+read-done.WriteBytes-done.ReadBytes, ops*131072)
			// The kernel looks at a device that is opened or closed: partition tables, udev.
			const looks = 16 << 20
			if wrote < done.WriteBytes || wrote > done.WriteBytes+ops*131072 {
				t.Errorf("the device was written %d bytes, the rows say %d and the gaps admit %d operations", wrote, done.WriteBytes, ops)
			}
			if read < done.ReadBytes || read > done.ReadBytes+ops*4096+looks*uint64(1+killed) {
				t.Errorf("the device was read %d bytes, the rows say %d and the gaps admit %d operations", read, done.ReadBytes, ops)
			}
			if !kills && wrote != done.WriteBytes {
				t.Errorf("without a kill the device was written %d bytes and the rows say %d", wrote, done.WriteBytes)
			}
			w.verifyAll("r1", size/512)
			var check verifyResult
			w.must(&check, "journal", "verify")
		})
	}
}

// The same over a simulated drive whose file outlives the process, with its
// contents. A rate keeps a second of the drive's clock, after which there is
// something to go on from, shorter than one of the machine's.
func TestKill_verifiedSoakOfASimulatedDrive(t *testing.T) {
	skipUnderRace(t)
	w := newWorkshop(t, "pblaze7-7940-7.68tb", "--contents", "blocks")
	plan := newKillPlan(t, 6)
	var format changeResult
	w.must(&format, "op", "set", "sim:drive.nvop", "--size", "64MiB", "--exact", "--confirm-serial", w.serial)
	start := []string{"soak", "start", "sim:drive.nvop", "--rw", "randrw", "--read-percent", "30", "--order", "permutation", "--qd", "64",
		"--fill", "1", "--size", strconv.FormatUint(plan.operations*4096, 10) + "B", "--verify", "reads", "--iops", "20000", "--confirm-serial", w.serial}
	done, killed := plan.carryOut(w, []string{"soak", "resume", "--confirm-serial", w.serial}, start...)
	if done.Verdict != "pass" || done.Verified == nil || done.Verified.MismatchesTotal != 0 {
		t.Errorf("it ended as %s, %s: %+v", done.Verdict, done.Reason, done.Verified)
	}
	t.Logf("killed %d times, %d operations, %+v", killed, done.ReadOps+done.WriteOps, done.Verified)
	w.verifyAll("r1", 64<<20/512)
	var history runHistory
	w.must(&history, "journal", "show", "r1")
	if len(history.Gaps) > killed {
		t.Errorf("%d kills and %d gaps", killed, len(history.Gaps))
	}
}
