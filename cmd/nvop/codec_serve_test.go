package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSimServe_replay: a recording is served like a drive, and ends in order.
func TestSimServe_replay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drive.nvoprec")
	if r := call(t, "record", "sim:client-1tb", file, "--mask-serials"); r.code != 0 {
		t.Fatal(r)
	}
	s := startServe(t, "replay:"+file, "--listen", "127.0.0.1:0")
	if d := s.doc; !strings.HasPrefix(d.Serial, "MASKED") || d.Controllers != 1 || d.SubsystemNQN != "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000000" {
		t.Errorf("document %+v", d)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.errout)
	}
	if r := call(t, "sim", "serve", "replay:"+file, "--fault", "fail 1st write with 0x4281"); r.code != exitUsage {
		t.Errorf("faults of a recording: %+v", r)
	}
}
