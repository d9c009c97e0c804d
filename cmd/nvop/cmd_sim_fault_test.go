package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// faultOf runs sim fault and gives its document.
func faultOf(t *testing.T, args ...string) simFaultResult {
	t.Helper()
	r := call(t, append(append([]string{"sim", "fault"}, args...), "-o", "json")...)
	var doc simFaultResult
	if err := json.Unmarshal([]byte(r.out), &doc); r.code != 0 || err != nil {
		t.Fatalf("sim fault %q: %+v, %v", args, r, err)
	}
	return doc
}

// A drive that is served suffers at run time what it is told to, and what cannot
// be is told to who asked.
func TestSimFault_ofAServedDrive(t *testing.T) {
	// The path of the socket is longer than the kernel takes.
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-folder-name/", 6))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "drive.nvop")
	if r := call(t, "sim", "create", file, "--profile", "client-1tb"); r.code != 0 {
		t.Fatal(r)
	}
	// What a killed server has left.
	if err := os.WriteFile(file+controlSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, file, "--listen", "127.0.0.1:0", "--outage", "1ms", "--fault", "at 10h read-only")
	if doc := faultOf(t, file); !doc.Served || !slices.Equal(doc.Armed, []string{"at 10h0m0s read-only"}) || len(doc.Wrong) != 0 {
		t.Errorf("%+v", doc)
	}
	if doc := faultOf(t, file, "spare 3%;", "before 5th write hang"); !doc.Served || len(doc.Armed) != 2 || !slices.Equal(doc.Wrong, []string{"spare 3%"}) {
		t.Errorf("%+v", doc)
	}
	if r := call(t, "sim", "fault", file, "attach nsid 9", "-o", "json"); r.code != exitFailed || !strings.Contains(r.errout, "no namespace 9") {
		t.Errorf("%+v", r)
	}
	// A power cut without a host is noticed and ends.
	faultOf(t, file, "power-cut")
	for range 3000 {
		if strings.Contains(s.errout.String(), "has its power again") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(s.errout.String(), "has its power again") {
		t.Errorf("the power cut did not end:\n%s", s.errout)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.errout)
	}
	if _, err := os.Lstat(file + controlSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	// The drive has it all in its file.
	if doc := faultOf(t, file); doc.Served || len(doc.Armed) != 2 || !slices.Equal(doc.Wrong, []string{"spare 3%"}) {
		t.Errorf("after the end: %+v", doc)
	}
	if r := call(t, "log", "sim:"+file, "smart", "-o", "json"); !strings.Contains(strings.ReplaceAll(r.out, " ", ""), `"unsafe_shutdowns":"1"`) {
		t.Errorf("the power cut is not counted: %+v", r)
	}
}

// Edits of a served drive are what its hosts read.
func TestSimEdit_ofAServedDrive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "drive.nvop")
	if r := call(t, "sim", "create", file, "--profile", "client-1tb"); r.code != 0 {
		t.Fatal(r)
	}
	s := startServe(t, file, "--listen", "127.0.0.1:0")
	snap := filepath.Join(dir, "old.blocks")
	for _, args := range [][]string{
		{"snapshot", "--lba", "8", "--blocks", "8", "--snapshot", snap},
		{"flip", "--lba", "9", "--bit", "3"},
		{"copy", "--lba", "9", "--to", "10"},
		{"swap", "--lba", "9", "--to", "12"},
		{"restore", "--lba", "10", "--blocks", "1", "--snapshot", snap},
	} {
		r := call(t, append(append([]string{"sim", "edit", file}, args...), "-o", "json")...)
		if r.code != 0 || !strings.Contains(strings.ReplaceAll(r.out, " ", ""), `"served":true`) {
			t.Fatalf("%q: %+v", args, r)
		}
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("exit code %d: %s", code, s.errout)
	}
	d, err := sim.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	raw, err := d.Raw(1)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8*512)
	if err := raw.Read(8, got); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 8*512)
	want[4*512] = 8 // the flipped block, swapped from 9 to 12
	if !bytes.Equal(got, want) {
		t.Error("the drive has other contents than were edited")
	}
}

// A drive that another process has, and does not serve, is told so.
func TestSimFault_ofADriveInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drive.nvop")
	if r := call(t, "sim", "create", file, "--profile", "client-1tb"); r.code != 0 {
		t.Fatal(r)
	}
	d, err := sim.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for _, args := range [][]string{{"fault", file, "hang"}, {"edit", file, "flip", "--lba", "0"}} {
		r := call(t, append(append([]string{"sim"}, args...), "-o", "json")...)
		wantFailure(t, r, exitRefused)
		if !strings.Contains(r.errout, "in use by another process") || !strings.Contains(r.errout, "sim serve") {
			t.Errorf("%q: %s", args, r.errout)
		}
	}
	// A second soak of it is refused as that of a file is.
	j := filepath.Join(t.TempDir(), "journal.db")
	r := call(t, "soak", "start", "sim:"+file, "--rw", "write", "--size", "1MB", "--journal", j, "-o", "json")
	wantFailure(t, r, exitRefused)
	if !strings.Contains(r.errout, "in use by another process") {
		t.Error(r.errout)
	}
}

// A server that is stopped is not waited for, and when it goes on it does not do
// what it was said not to have done.
func TestSimFault_ofAStoppedServer(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := "drive.nvop"
	if r := call(t, "sim", "create", file, "--profile", "client-1tb"); r.code != 0 {
		t.Fatal(r)
	}
	d, err := sim.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	ln, err := net.Listen("unix", file+controlSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	r := call(t, "sim", "fault", file, "spare 3%", "-o", "json")
	wantFailure(t, r, exitFailed)
	if !strings.Contains(r.errout, "did not answer within 5s") || !strings.Contains(r.errout, "nothing was done") {
		t.Error(r.errout)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	(&server{app: &app{clock: nvmeioctl.NewSystemClock()}, drive: d}).answer(conn)
	if armed, wrong := d.Faults(); len(armed)+len(wrong) != 0 {
		t.Errorf("it was done after all: %q, %q", armed, wrong)
	}
}

// Whatever comes over the socket, the server goes on.
func TestSimControl_hostile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := "drive.nvop"
	if r := call(t, "sim", "create", file, "--profile", "client-1tb"); r.code != 0 {
		t.Fatal(r)
	}
	startServe(t, file, "--listen", "127.0.0.1:0")
	for _, line := range []string{"", "\n", "{\n", "[]\n", `{"do":"burn"}` + "\n", `{"do":"edit"}` + "\n",
		`{"do":"edit","edit":{"action":"copy","nsid":1,"lba":18446744073709551615,"blocks":18446744073709551615}}` + "\n",
		`{"do":"edit","edit":{"action":"tear","nsid":1,"blocks":1,"keep":9223372036854775807}}` + "\n",
		`{"do":"edit","edit":{"action":"restore","nsid":1,"blocks":1,"snapshot":{"LBA":0,"BlockBytes":0,"Data":""}}}` + "\n",
		`{"do":"arm","script":"` + strings.Repeat("x", 1000) + `"}` + "\n"} {
		conn, err := net.Dial("unix", file+controlSuffix)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(line, "\n") {
			var r simReply
			if err := json.NewDecoder(conn).Decode(&r); err != nil || r.Error == "" || r.ExitCode == 0 {
				t.Errorf("%.60q: %+v, %v", line, r, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if doc := faultOf(t, file); !doc.Served || len(doc.Wrong) != 0 {
		t.Errorf("%+v", doc)
	}
}

func TestSnapshotFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	want := &sim.Snapshot{LBA: 7, BlockBytes: 512, Data: bytes.Repeat([]byte{1, 2}, 512)}
	if err := writeSnapshot(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readSnapshot(path)
	if err != nil || got.LBA != 7 || got.BlockBytes != 512 || !bytes.Equal(got.Data, want.Data) {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := writeSnapshot(path, want); err == nil {
		t.Error("a snapshot was overwritten")
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "short": good[:20], "cut": good[:len(good)-1], "longer": append(slices.Clone(good), 0),
		"flipped": append(append(slices.Clone(good[:30]), good[30]^1), good[31:]...), "other": []byte(strings.Repeat("x", 100)),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSnapshot(path); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
