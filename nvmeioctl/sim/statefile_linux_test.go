package sim

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// newTestFile makes a drive in a file.
func newTestFile(t testing.TB, name string, change func(*Profile, *Options)) string {
	t.Helper()
	p, o := small(profile(t, name))
	if change != nil {
		change(&p, &o)
	}
	path := filepath.Join(t.TempDir(), "drive.nvop")
	if err := Create(path, p, o); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string) *Drive {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reopen opens the file as a process does after the one that had it was
// killed: a copy, since the lock is still held here.
func reopen(t testing.TB, path string) *Drive {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(copied, contents(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, copied)
}

func TestReadingLeavesTheFile(t *testing.T) {
	path := newTestFile(t, "pblaze7-7940-7.68tb", nil)
	before := contents(t, path)
	d := open(t, path)
	h := host{t, d}
	h.controller()
	h.namespace(1)
	h.smart()
	h.log(nvmespec.LogIDEffects, 4096)
	h.want(getFeature(2, 0), 0)
	h.want(nvmeioctl.Command{Opcode: 0x06, CDW10: 0x44, Data: make([]byte, 4096)}, 0x4002)
	h.want(logCommand(t, nvmespec.GetLogFields{Log: 0x55, LengthBytes: 4}, make([]byte, 4)), 0x4109)
	h.want(nvmeioctl.Command{Opcode: 0x99}, 0x4001)
	d.Clock().AdvanceTo(nvmeioctl.Instant(10 * time.Hour))
	h.smart()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, contents(t, path)) {
		t.Fatal("reading changed the file")
	}
	if names := dirNames(t, path); !slices.Equal(names, []string{"drive.nvop"}) {
		t.Fatalf("files left: %v", names)
	}
}

func dirNames(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestEveryCommandIsDurable: after each command the file holds its outcome,
// even if the process ends at once.
func TestEveryCommandIsDurable(t *testing.T) {
	path := newTestFile(t, "pblaze7-7940-7.68tb", nil)
	d := open(t, path)
	h := host{t, d}
	p := d.Profile()
	for i, c := range []nvmeioctl.Command{
		deleteCommand(1), createBlocks(1<<30, 1), attachCommand(1, 1), formatDword(1, nvmespec.FormatFields{FormatIndex: 3}),
		setFeature(2, 3, false), setFeature(0xC6, 1, true), detachCommand(1, 1), createBlocks(8, 0),
		download(0, image(t, p, "NEW", 4096)), commitCommand(2, 1), {Opcode: 0x14, CDW10: 1},
	} {
		h.want(c, 0)
		again := reopen(t, path)
		if !equalStates(t, d.st, again.st) {
			t.Fatalf("command %d (%#x): the file holds another state", i, c.Opcode)
		}
		if again.Clock().Now() != d.Clock().Now() {
			t.Fatalf("command %d: the clock is at %d, the file says %d", i, d.Clock().Now(), again.Clock().Now())
		}
	}
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	if again := reopen(t, path); !equalStates(t, d.st, again.st) {
		t.Fatal("a power cycle is not in the file")
	}
	// A command that changes nothing but fails leaves its error.
	h.want(createBlocks(1<<50, 0), 0x6115)
	if again := (host{t, reopen(t, path)}); again.errors()[0].CommandSpecific == 0 {
		t.Fatal("a failed create left no error entry in the file")
	}
	// As does a download: two processes may share one image.
	h.want(download(0, image(t, p, "TWO", 4096)), 0)
	(host{t, reopen(t, path)}).want(commitCommand(2, 1), 0)
}

// equalStates compares what is stored.
func equalStates(t testing.TB, a, b *state) bool {
	t.Helper()
	x, err1 := encodeState(a, nil)
	y, err2 := encodeState(b, nil)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

// TestFailedSave: a command that cannot be saved has not happened.
func TestFailedSave(t *testing.T) {
	path := newTestFile(t, "pblaze7-7940-7.68tb", nil)
	d := open(t, path)
	h := host{t, d}
	h.want(deleteCommand(1), 0)
	h.want(createBlocks(1<<30, 1), 0)
	h.want(attachCommand(1, 1), 0)
	h.want(nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, CDW12: 15, Data: make([]byte, 64<<10)}, 0)
	if err := d.Save(7); err != nil {
		t.Fatal(err)
	}
	before, file := d.st.clone(), contents(t, path)
	flash, err := d.media.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("disk full")
	d.saveFault = func() error { return boom }
	for _, c := range []nvmeioctl.Command{
		deleteCommand(1), deleteCommand(0xFFFFFFFF), createBlocks(8, 0), detachCommand(1, 1), formatDword(1, nvmespec.FormatFields{}),
		setFeature(2, 1, true), download(0, image(t, d.Profile(), "NEW", 4096)), {Opcode: 0x14, CDW10: 1},
	} {
		done := h.raw(c)
		if done.Status != 0x0006 {
			t.Errorf("opcode %#x: status %#x, want internal error", c.Opcode, uint16(done.Status))
		}
		if !errors.Is(d.SaveError(), boom) {
			t.Errorf("opcode %#x: the reason is %v", c.Opcode, d.SaveError())
		}
	}
	if err := d.Save(8); !errors.Is(err, boom) || d.Checkpoint() != 7 {
		t.Errorf("save: %v, checkpoint %d", err, d.Checkpoint())
	}
	if err := d.PowerCycle(false); !errors.Is(err, boom) {
		t.Errorf("power cycle: %v", err)
	}
	d.saveFault = nil
	if !slices.Equal(d.st.Namespaces, before.Namespaces) || len(d.st.Controllers[0].Saved) != 0 || d.st.PowerCycles != 1 {
		t.Error("a command that failed changed the drive")
	}
	if now, err := d.media.MarshalBinary(); err != nil || !bytes.Equal(now, flash) {
		t.Errorf("a command that failed changed the flash (%v)", err)
	}
	if !bytes.Equal(file, contents(t, path)) {
		t.Error("a failed save changed the file")
	}
	h.want(deleteCommand(1), 0)
}

// TestUnwritableFolder is a failed save without help from inside.
func TestUnwritableFolder(t *testing.T) {
	path := newTestFile(t, "memblaze-p6531-3.84tb", nil)
	d := open(t, path)
	h := host{t, d}
	moved := filepath.Dir(path) + "-moved"
	if err := os.Rename(filepath.Dir(path), moved); err != nil {
		t.Fatal(err)
	}
	done := h.raw(deleteCommand(1))
	if err := os.Rename(moved, filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if done.Status != 0x0006 || !errors.Is(d.SaveError(), fs.ErrNotExist) {
		t.Fatalf("status %#x, %v", uint16(done.Status), d.SaveError())
	}
	if !h.namespace(1).Active() {
		t.Fatal("the namespace is gone")
	}
	h.want(deleteCommand(1), 0)
}

// TestKilled kills a process that changes a drive: what it reported as done is
// in the file, and the file is whole.
func TestKilled(t *testing.T) {
	path := newTestFile(t, "pblaze7-7940-7.68tb", nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		cmd := exec.Command(exe, "-test.run=^TestKilledChild$", "-test.timeout=20s")
		cmd.Env = append(os.Environ(), "NVOP_TEST_DRIVE="+path)
		out, err := cmd.StdoutPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		var last uint64
		lines := bufio.NewScanner(out)
		for n := 0; n < 3+2*round && lines.Scan(); {
			if v, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
				last, n = v, n+1
			}
		}
		time.Sleep(time.Duration(round) * 3 * time.Millisecond) // another place to be cut at
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if v, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
				last = v
			}
		}
		if err := ignoreExit(cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		d := open(t, path)
		if last == 0 || d.Checkpoint() < last || d.Checkpoint() > last+1 {
			t.Fatalf("round %d: %d was done, the file is at %d", round, last, d.Checkpoint())
		}
		// Each round may have been cut between a create and its checkpoint.
		if n, ids := len(d.st.Namespaces), d.st.IdentifiersUsed; n > 1 || ids < last || ids > last+2+uint64(round) {
			t.Fatalf("round %d: %d namespaces, %d identifiers used after %d", round, n, ids, last)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range dirNames(t, path) {
		if name != "drive.nvop" && name != "drive.nvop.tmp" {
			t.Errorf("file left: %s", name)
		}
	}
}

// TestKilledChild is the process that TestKilled kills: it resizes for ever.
func TestKilledChild(t *testing.T) {
	path := os.Getenv("NVOP_TEST_DRIVE")
	if path == "" {
		t.Skip("only TestKilled runs this")
	}
	d := open(t, path)
	h := host{t, d}
	for n := d.Checkpoint() + 1; ; n++ {
		if len(d.st.Namespaces) > 0 {
			h.want(deleteCommand(1), 0)
		}
		h.want(createBlocks(n, 0), 0)
		if err := d.Save(n); err != nil {
			t.Fatal(err)
		}
		fmt.Println(n)
	}
}

func TestCheckpoint(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	d := open(t, path)
	h := host{t, d}
	h.want(nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, CDW12: 7, Data: make([]byte, 4096)}, 0)
	d.Clock().AdvanceTo(nvmeioctl.Instant(90 * time.Minute))
	if err := d.Save(42); err != nil {
		t.Fatal(err)
	}
	h.want(nvmeioctl.Command{IO: true, Opcode: 1, NSID: 1, CDW12: 7, Data: make([]byte, 4096)}, 0)
	if err := d.Close(); err != nil { // as a kill would
		t.Fatal(err)
	}
	again := open(t, path)
	s := (host{t, again}).smart()
	if again.Checkpoint() != 42 || s.HostWrites.Lo != 1 || s.PowerOnHours.Lo != 1 {
		t.Fatalf("checkpoint %d, %v writes, %v hours", again.Checkpoint(), s.HostWrites, s.PowerOnHours)
	}
}

// TestInUse: one opener at a time, across saves, and the lock is never left.
func TestInUse(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	d := open(t, path)
	inUse := func() {
		t.Helper()
		_, err := Open(path)
		e, ok := errors.AsType[*StateError](err)
		if !ok || e.Kind != StateInUse || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), path) {
			t.Fatalf("second open: %v", err)
		}
	}
	inUse()
	(host{t, d}).want(formatDword(1, nvmespec.FormatFields{FormatIndex: 1}), 0)
	inUse()
	if err := d.Save(1); err != nil {
		t.Fatal(err)
	}
	inUse()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
	if _, err := d.Submit(t.Context(), &nvmeioctl.Command{Opcode: 6, Timeout: 1}); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("submit after close: %v", err)
	}
	// A refused open must not keep the lock.
	whole := contents(t, path)
	if err := os.WriteFile(path, whole[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Open(path); err == nil || strings.Contains(err.Error(), "in use") {
			t.Fatalf("truncated file: %v", err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

// TestOpenLeaksNothing: neither refused nor successful opens keep a file open.
func TestOpenLeaksNothing(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	bad := filepath.Join(filepath.Dir(path), "bad")
	if err := os.WriteFile(bad, []byte(stateMagic), 0o600); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		return len(entries)
	}
	before := count()
	for range 10 {
		d := open(t, path)
		(host{t, d}).want(setFeature(2, 1, true), 0)
		for _, p := range []string{bad, path, bad + "none"} {
			if _, err := Open(p); err == nil {
				t.Fatalf("%s was opened", p)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after > before {
		t.Fatalf("%d files are open, %d were", after, before)
	}
}

// TestInUseByAnotherProcess: the lock is one between processes.
func TestInUseByAnotherProcess(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	flockTool, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("the program flock is not installed")
	}
	cmd := exec.Command(flockTool, "-x", "-n", path, "sh", "-c", "echo locked; read x")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if err := errors.Join(in.Close(), ignoreExit(cmd.Wait())); err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*StateError](err); !ok || e.Kind != StateInUse || e.ExitCode() != 4 {
		t.Fatalf("open while locked: %v", err)
	}
	open(t, path)
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

func TestCreateRefusesWhatIsThere(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	before := contents(t, path)
	p, o := small(profile(t, "pe321-6.4tb"))
	if err := Create(path, p, o); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("create over a drive: %v", err)
	}
	if !bytes.Equal(before, contents(t, path)) || len(dirNames(t, path)) != 1 {
		t.Fatal("a refused create left something")
	}
	if err := Create(filepath.Join(filepath.Dir(path), "none", "x"), p, o); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("create in a folder that is not there: %v", err)
	}
	if _, err := Open(filepath.Join(filepath.Dir(path), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open what is not there: %v", err)
	}
	if _, err := Open(filepath.Dir(path)); err == nil {
		t.Fatal("a folder was opened")
	}
}

// TestLinkedFile: a symbolic link to a drive stays one.
func TestLinkedFile(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	d := open(t, link)
	(host{t, d}).want(formatDword(1, nvmespec.FormatFields{FormatIndex: 1}), 0)
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Fatalf("the link is now %v, %v", fi.Mode(), err)
	}
	if n := (host{t, reopen(t, path)}).namespace(1); n.FormatIndex != 1 {
		t.Fatal("the drive behind the link is unchanged")
	}
}

// TestDamagedFiles: what is wrong with a file is one clear line, each its own.
func TestDamagedFiles(t *testing.T) {
	path := newTestFile(t, "client-1tb", nil)
	whole := contents(t, path)
	table := stateHeadBytes + 2*sectionBytes
	newer := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(newer[8:], stateVersion+1)
	binary.LittleEndian.PutUint32(newer[16:], crc(newer[:16]))
	cut := func(n int) []byte { return whole[:n] }
	flip := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		return b
	}
	cases := []struct {
		name string
		b    []byte
		kind StateProblem
	}{
		{"empty", nil, TruncatedState},
		{"4 bytes", cut(4), TruncatedState},
		{"magic only", cut(8), TruncatedState},
		{"in the header", cut(20), TruncatedState},
		{"header only", cut(stateHeadBytes), TruncatedState},
		{"in the table", cut(table - 1), TruncatedState},
		{"without the table's checksum", cut(table + 5), TruncatedState},
		{"no sections", cut(table + 32), TruncatedState},
		{"in the first section", cut(table + 32 + 100), TruncatedState},
		{"last byte missing", cut(len(whole) - 1), TruncatedState},
		{"byte added", append(bytes.Clone(whole), 0), DamagedState},
		{"magic", flip(1), NotAState},
		{"text file", []byte("hello, world, this is a text file\n"), NotAState},
		{"version flipped", flip(8), DamagedState},
		{"section count", flip(12), DamagedState},
		{"header checksum", flip(17), DamagedState},
		{"header padding", flip(21), DamagedState},
		{"table name", flip(stateHeadBytes), DamagedState},
		{"table length", flip(stateHeadBytes + 8), DamagedState},
		{"table checksum", flip(table + 3), DamagedState},
		{"admin section", flip(table + 32 + 10), DamagedState},
		{"flash section", flip(len(whole) - 10), DamagedState},
		{"newer", newer, NewerState},
	}
	texts := map[StateProblem]string{}
	for _, c := range cases {
		if err := os.WriteFile(path, c.b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		e, ok := errors.AsType[*StateError](err)
		if !ok || e.Kind != c.kind {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text := err.Error()
		if !strings.HasPrefix(text, path+": ") || strings.Contains(text, "\n") || !strings.HasSuffix(text, ")") {
			t.Errorf("%s: %q is not one line with file and remedy", c.name, text)
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(text, path+": "), ":")
		if before, ok := texts[c.kind]; ok && before != kind {
			t.Errorf("%s: %q and %q for one problem", c.name, before, kind)
		}
		texts[c.kind] = kind
		if !bytes.Equal(contents(t, path), c.b) && len(c.b) > 0 {
			t.Errorf("%s: opening changed the file", c.name)
		}
	}
	seen := map[string]bool{}
	for _, text := range texts {
		if seen[text] {
			t.Errorf("%q means two problems", text)
		}
		seen[text] = true
	}
	if len(texts) != 4 {
		t.Errorf("%d problems were told apart", len(texts))
	}
}

// TestPossibleButWrong: checksums that match do not make a state possible.
func TestPossibleButWrong(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	flash, err := d.media.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*state){
		"two with one number":  func(s *state) { s.Namespaces = append(s.Namespaces, s.Namespaces[0]) },
		"number beyond":        func(s *state) { s.Namespaces[0].NSID = 129 },
		"more than capacity":   func(s *state) { s.Namespaces[0].AllocatedBytes++ },
		"larger than its part": func(s *state) { s.Namespaces[0].SizeBlocks++ },
		"no such format":       func(s *state) { s.Namespaces[0].FormatIndex = 9 },
		"no such controller":   func(s *state) { s.Namespaces[0].Attached = 2 },
		"other flash":          func(s *state) { s.Namespaces = nil },
		"no controllers":       func(s *state) { s.Controllers = nil },
		"options changed":      func(s *state) { s.Options.Serial = "" },
		"profile changed":      func(s *state) { s.Profile.Formats = nil },
		"clock":                func(s *state) { s.NowNS = -1 },
		"slot":                 func(s *state) { s.Firmware.Active = 3 },
		"power state": func(s *state) {
			s.Controllers[0].Current = []featureValue{{FID: featurePower, Value: 31, Data: []byte{}}}
		},
		"feature": func(s *state) { s.Controllers[0].Saved = []featureValue{{FID: 0x99}} },
	} {
		st := d.st.clone()
		spoil(st)
		b, err := encodeState(st, flash)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openDrive("x", b); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := encodeState(d.st, flash[:len(flash)/2])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDrive("x", b); err == nil {
		t.Error("half a flash was taken")
	}
}
