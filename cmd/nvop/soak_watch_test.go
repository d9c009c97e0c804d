package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// said collects remarks.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.text, format+"\n", args...)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func someRun() subject {
	return subject{id: "r1", journal: "/j.db", header: &run.Header{Name: "n", Serial: "S 1", Model: "a\"b\\c\nd\x00e", NSID: 2}}
}

// A program that hangs holds nothing up: events beyond the queue are dropped and
// said, and at the end it is killed with everything it started.
func TestEventRunner_hangingProgram(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	var s said
	e := newEventRunner([]string{"/bin/sh", "-c", `sleep 1000 & echo $! >"` + pid + `"; wait`}, s.note)
	e.most, e.atEnd, e.hush = time.Hour, 100*time.Millisecond, 0
	began := time.Now()
	for i := range 2 * eventQueue {
		e.tell(someRun(), []run.Event{{Kind: run.EventPaused, Second: int64(i)}}, nil)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("telling took %s", took)
	}
	child := ""
	for range 500 {
		if text, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(text), "\n") {
			child = strings.TrimSpace(string(text))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.close()
	if !strings.Contains(s.String(), "events behind") {
		t.Errorf("nothing is said of dropped events: %s", s.String())
	}
	if text := s.String(); !strings.Contains(text, "waiting up to 100ms for the event program /bin/sh") ||
		!strings.Contains(text, "killed: it was still at work 100ms after the end") || strings.Contains(text, "context canceled") || strings.Count(text, "\n") != 4 {
		t.Errorf("what is said of the end: %s", text)
	}
	if _, err := strconv.Atoi(child); err != nil {
		t.Fatalf("the program did not begin: %q", child)
	}
	for range 500 {
		state, err := os.ReadFile("/proc/" + child + "/stat")
		if err != nil || bytes.Contains(state, []byte(") Z ")) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %s, which the program started, is still there", child)
}

// What a drive or a user calls things is data, never a command, and reaches the
// program whole; a storm of failed operations is one event.
func TestEventRunner_environment(t *testing.T) {
	dir := t.TempDir()
	var s said
	e := newEventRunner([]string{"/bin/sh", "-c", `printf '%s|%s|%s|%s|%s\n' "$NVOP_EVENT" "$NVOP_EVENT_COUNT" "$NVOP_SERIAL" "$NVOP_EVENT_TEXT" "$NVOP_EXIT_CODE" >>"$0"`, filepath.Join(dir, "out")}, s.note)
	e.most, e.atEnd, e.hush = time.Hour, time.Hour, time.Hour
	subject := someRun()
	subject.header.Serial = `$(touch ` + dir + `/pwned);"'`
	events := []run.Event{{Kind: run.EventIOError, Count: 1, Text: "first"}, {Kind: run.EventStopped, Text: "`id`"}, {Kind: run.EventIOError, Count: 41}}
	e.tell(subject, events, &run.Verdict{ExitCode: 3})
	e.close()
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	want := "stopped|1|" + subject.header.Serial + "|`id`|3\nio_error|42|" + subject.header.Serial + "|first|\n"
	if err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
		t.Error("a serial number was run as a command")
	}
	for _, pair := range eventEnvironment(someRun(), events[0], nil) {
		if strings.ContainsRune(pair, 0) {
			t.Errorf("%q holds a NUL", pair)
		}
	}
	if s.String() != "" {
		t.Error(s.String())
	}
}

// The file is always whole: whoever reads while it is replaced sees the old one or
// the new one; and what cannot be written is said once and ends nothing.
func TestMetricsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.prom")
	var s said
	clock := nvmeioctl.NewSystemClock()
	m := newMetricsFile(path, clock, s.note)
	b := &run.Batch{Rows: []run.Row{{Flags: run.FlagPaused, Write: run.Latency{P99NS: 2_500_000}, Read: run.Latency{P99NS: run.NotAvailable}}}}
	b.Checkpoint.Totals.WriteBytes, b.Checkpoint.Totals.ReadErrors = 1<<40, 7
	m.take(someRun(), b, &run.Sample{TemperatureKelvin: 350, PercentageUsed: 120})
	m.ended(someRun(), run.Verdict{ExitCode: 3, Totals: b.Checkpoint.Totals})
	m.close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	labels := `{run="r1",name="n",serial="S 1",model="a\"b\\c\nd` + "\x00" + `e",nsid="2"} `
	for _, line := range []string{
		"# TYPE nvop_soak_written_bytes_total counter\nnvop_soak_written_bytes_total" + labels + "1099511627776\n",
		"nvop_soak_errors_total" + labels + "7\n", "nvop_soak_paused" + labels + "1\n", "nvop_soak_stalled" + labels + "0\n",
		"nvop_soak_write_latency_p99_seconds" + labels + "0.0025\n", "nvop_soak_temperature_celsius" + labels + "77\n",
		"nvop_soak_percentage_used" + labels + "120\n", "nvop_soak_exit_code" + labels + "3\n", "nvop_soak_running" + labels + "0\n",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "nvop_soak_read_latency_p99_seconds") {
		t.Error("a latency that was not measured has a figure")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".nvop-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	m = newMetricsFile(filepath.Join(filepath.Dir(path), "no", "such", "folder"), clock, s.note)
	m.take(someRun(), b, nil)
	m.ended(someRun(), run.Verdict{})
	m.close()
	if strings.Count(s.String(), "no/such") != 1 {
		t.Errorf("said: %s", s.String())
	}
}

// The worst of several ends is what the command ends with: what broke before what
// was found, and that before what can be resumed.
func TestWorse(t *testing.T) {
	code := func(n int) error {
		if n == 0 {
			return nil
		}
		return &codedError{n, fmt.Errorf("%d", n)}
	}
	for _, c := range [][3]int{{0, 0, 0}, {0, 7, 7}, {7, 3, 3}, {3, 7, 3}, {3, 1, 1}, {1, 6, 1}, {4, 3, 4}} {
		if got := exitCode(worse(code(c[0]), code(c[1]))); got != c[2] {
			t.Errorf("%d and %d: %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestUnitQuote(t *testing.T) {
	for text, want := range map[string]string{
		"/usr/bin/nvop": "/usr/bin/nvop", "a b": `"a b"`, `"q\`: `"\"q\\"`, "100%$X": "100%%$$X", "": `""`, "a;b": `"a;b"`,
	} {
		if got := unitQuote(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
