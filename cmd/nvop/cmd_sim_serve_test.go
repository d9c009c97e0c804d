package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// growing is a buffer that is read while it is written.
type growing struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

func (g *growing) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// serving is a running sim serve.
type serving struct {
	doc    simServeResult
	errout *growing
	stop   func() int
}

// startServe starts the command in this process and reads its document.
func startServe(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, w := io.Pipe()
	s := &serving{errout: &growing{}}
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, append([]string{"sim", "serve", "-o", "json"}, args...), streams{strings.NewReader(""), w, s.errout}, func(string) string { return "" })
		_ = w.Close()
	}()
	ended := false
	s.stop = func() int {
		if ended {
			return 0
		}
		ended = true
		cancel()
		_, _ = io.Copy(io.Discard, out)
		return <-code
	}
	t.Cleanup(func() { s.stop() })
	if err := json.NewDecoder(out).Decode(&s.doc); err != nil {
		t.Fatalf("no document: %v; %s", err, s.errout)
	}
	return s
}

// TestSimServe: it prints how to connect, answers, keeps others out of the
// file, and ends in order with the drive saved.
func TestSimServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drive.nvop")
	if r := call(t, "sim", "create", file, "--profile", "client-1tb", "--controllers", "2"); r.code != 0 {
		t.Fatal(r)
	}
	s := startServe(t, file, "--listen", "127.0.0.1:0", "--nqn", "nqn.2024-01.org.example:x", "--clock-rate", "3600")
	if d := s.doc; d.Schema != "nvop.sim-serve/1" || d.Address != "127.0.0.1" || d.Controllers != 2 || d.SubsystemNQN != "nqn.2024-01.org.example:x" ||
		d.Connect != "nvme connect -t tcp -a 127.0.0.1 -s "+d.Port+" -n nqn.2024-01.org.example:x" {
		t.Errorf("document %+v", d)
	}
	if w := s.errout.String(); strings.Contains(w, "warning") {
		t.Errorf("a warning on loopback: %s", w)
	}
	nc, err := net.Dial("tcp", net.JoinHostPort(s.doc.Address, s.doc.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	request := make([]byte, 128)
	request[2], request[4] = 128, 128
	if _, err := nc.Write(request); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 128)
	if _, err := io.ReadFull(nc, answer); err != nil || answer[0] != 1 {
		t.Errorf("answer % x, %v", answer[:8], err)
	}
	if r := call(t, "show", "sim:"+file); r.code != exitRefused || !strings.Contains(r.errout, "in use") {
		t.Errorf("the file while it is served: %+v", r)
	}
	time.Sleep(1100 * time.Millisecond) // an hour of the drive
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.errout)
	}
	r := call(t, "log", "sim:"+file, "smart", "-o", "json")
	if r.code != 0 || !strings.Contains(strings.ReplaceAll(r.out, " ", ""), `"power_on_hours":"1"`) {
		t.Errorf("after an hour of its time the drive says: %+v", r)
	}
	if _, err := os.Stat(file + ".data"); err != nil {
		t.Errorf("its contents: %v", err)
	}
}

func TestSimServe_warnsBeyondLoopback(t *testing.T) {
	s := startServe(t, "sim:client-1tb", "--listen", "0.0.0.0:0")
	if w := s.errout.String(); !strings.Contains(w, "warning") || !strings.Contains(w, "without a password") {
		t.Errorf("stderr %q", w)
	}
	if !strings.Contains(s.doc.Connect, "-a ADDRESS ") {
		t.Errorf("connect by %q", s.doc.Connect)
	}
}

func TestSimServe_refuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"sim:client-1tb", "--fault", "break everything"}, exitUsage, "fault"},
		{[]string{"sim:client-1tb", "--clock-rate", "0"}, exitUsage, "clock-rate"},
		{[]string{"sim:client-1tb", "--nqn", "nqn.2014-08.org.nvmexpress.discovery"}, exitFailed, "name"},
		{[]string{"sim:client-1tb", "--listen", taken.Addr().String()}, exitFailed, "in use"},
		{[]string{"sim:client-1tb", "--listen", "nowhere"}, exitFailed, "nowhere"},
		{[]string{filepath.Join(t.TempDir(), "none.nvop")}, exitFailed, "no such file"},
		{[]string{"/dev/null"}, exitFailed, "state"},
	} {
		r := call(t, append([]string{"sim", "serve"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.errout, c.says) || strings.Count(r.errout, "\n") != 1 {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}
