package nvmetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
)

// recorder is a test whose failures are looked at instead of reported.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Name() string      { return "recorder" }
func (r *recorder) Cleanup(f func())  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) { r.failures = append(r.failures, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) finish() string {
	for _, f := range r.cleanups {
		f()
	}
	return strings.Join(r.failures, "\n")
}

func steps() []nvmetest.Step {
	return []nvmetest.Step{
		{
			Name: "who", Want: nvmeioctl.Command{Opcode: 6, CDW10: 1, Data: make([]byte, 8), Timeout: time.Minute},
			Reply: []byte("abc"), Result: 5,
		},
		{Want: nvmeioctl.Command{Opcode: 0x0D, Data: []byte{1, 2, 3, 4}, Timeout: time.Hour}, AnyTimeout: true, Status: 0x4115},
		{Want: nvmeioctl.Command{Opcode: 0x80, NSID: 1, Timeout: time.Hour}, Err: nvmeioctl.ErrIndeterminate},
	}
}

func TestScript_followed(t *testing.T) {
	r := &recorder{TB: t}
	s := nvmetest.NewScript(r, steps()...)
	buf := []byte("01234567")
	c, err := s.Submit(t.Context(), &nvmeioctl.Command{Opcode: 6, CDW10: 1, Data: buf, Timeout: time.Minute})
	if err != nil || c.Result != 5 || string(buf) != "abc34567" { // a short answer leaves the rest alone
		t.Errorf("%+v %v %q", c, err, buf)
	}
	c, err = s.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x0D, Data: []byte{1, 2, 3, 4}, Timeout: time.Second})
	if err != nil || c.Status != 0x4115 {
		t.Errorf("%+v %v", c, err)
	}
	if s.Left() != 1 {
		t.Errorf("%d left", s.Left())
	}
	_, err = s.Submit(t.Context(), &nvmeioctl.Command{Opcode: 0x80, NSID: 1, Timeout: time.Hour})
	if !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Error(err)
	}
	if err := s.Close(); err != nil || s.Closed() != 1 {
		t.Error(err, s.Closed())
	}
	if text := r.finish(); text != "" {
		t.Errorf("a script that was followed fails: %s", text)
	}
}

// Each field that is compared must make a difference.
func TestScript_differs(t *testing.T) {
	good := nvmeioctl.Command{Opcode: 0x0D, NSID: 1, CDW10: 1, Data: []byte{1, 2, 3, 4}, Timeout: time.Hour}
	for name, c := range map[string]struct {
		change func(*nvmeioctl.Command)
		text   string
	}{
		"opcode":     {func(c *nvmeioctl.Command) { c.Opcode = 0x0E }, "Opcode"},
		"queue":      {func(c *nvmeioctl.Command) { c.IO = true }, "IO"},
		"NSID":       {func(c *nvmeioctl.Command) { c.NSID = 2 }, "NSID"},
		"CDW10":      {func(c *nvmeioctl.Command) { c.CDW10 = 0 }, "CDW10"},
		"CDW15":      {func(c *nvmeioctl.Command) { c.CDW15 = 9 }, "CDW15"},
		"time-out":   {func(c *nvmeioctl.Command) { c.Timeout = time.Second }, "Timeout"},
		"data":       {func(c *nvmeioctl.Command) { c.Data = []byte{1, 2, 9, 4} }, "01020904"},
		"short data": {func(c *nvmeioctl.Command) { c.Data = c.Data[:3] }, "want 4 bytes, got 3"},
		"metadata":   {func(c *nvmeioctl.Command) { c.Metadata = []byte{1} }, "Metadata"},
	} {
		r := &recorder{TB: t}
		s := nvmetest.NewScript(r, nvmetest.Step{Want: good})
		cmd := good
		c.change(&cmd)
		if _, err := s.Submit(t.Context(), &cmd); !errors.Is(err, nvmetest.ErrScript) {
			t.Errorf("%s: %v", name, err)
		}
		if text := r.finish(); !strings.Contains(text, c.text) || strings.Contains(text, "not sent") {
			t.Errorf("%s: the failure says %q", name, text)
		}
	}
}

func TestScript_endsEarlyOrLate(t *testing.T) {
	r := &recorder{TB: t}
	nvmetest.NewScript(r, steps()...)
	if text := r.finish(); !strings.Contains(text, "not sent: who: identify") || strings.Count(text, "not sent") != 3 {
		t.Errorf("unconsumed: %q", text)
	}
	r = &recorder{TB: t}
	s := nvmetest.NewScript(r)
	if _, err := s.Submit(t.Context(), &nvmeioctl.Command{Opcode: 6}); !errors.Is(err, nvmetest.ErrScript) {
		t.Error(err)
	}
	if text := r.finish(); !strings.Contains(text, "too many") {
		t.Errorf("%q", text)
	}
	r = &recorder{TB: t}
	s = nvmetest.NewScript(r, nvmetest.Step{Want: nvmeioctl.Command{Opcode: 6}, AnyTimeout: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Submit(ctx, &nvmeioctl.Command{Opcode: 6, Timeout: 1}); !errors.Is(err, context.Canceled) || s.Left() != 1 {
		t.Errorf("%v, %d left", err, s.Left())
	}
	// Any time-out does not mean none.
	if _, err := s.Submit(t.Context(), &nvmeioctl.Command{Opcode: 6}); !errors.Is(err, nvmetest.ErrScript) {
		t.Errorf("without a time-out: %v", err)
	}
}

func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "file")
	r := &recorder{TB: t}
	nvmetest.Golden(r, path, []byte("a\nb\n"), false)
	if text := r.finish(); !strings.Contains(text, "-update") {
		t.Errorf("missing: %q", text)
	}
	nvmetest.Golden(t, path, []byte("a\nb\n"), true)
	nvmetest.Golden(t, path, []byte("a\nb\n"), false)
	r = &recorder{TB: t}
	nvmetest.Golden(r, path, []byte("a\nc\n"), false)
	if text := r.finish(); text == "" {
		t.Error("a difference was not seen")
	}
	r = &recorder{TB: t}
	nvmetest.Golden(r, path, []byte("\xff\xfe"), false)
	if text := r.finish(); !strings.Contains(text, "fffe") {
		t.Errorf("binary: %q", text)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "a\nb\n" {
		t.Errorf("comparing wrote the file: %q %v", b, err)
	}
}
