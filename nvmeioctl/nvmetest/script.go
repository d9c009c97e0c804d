// Package nvmetest is the test kit of everything that talks to a drive: a
// scripted device, a conformance suite for devices, golden files. It is
// imported from tests only.
package nvmetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// ErrScript is what a Script answers to a command that it did not expect.
var ErrScript = errors.New("the script expects no such command")

// Step is one expected command and its reply.
type Step struct {
	// Name says what the step is, for messages; may be empty.
	Name string
	// Want is the command expected. All dwords, NSID, opcode, queue and time-out
	// are compared exactly. Data is compared when it travels to the device; for a
	// command that reads, only its length is.
	Want nvmeioctl.Command
	// AnyTimeout accepts every time-out but 0.
	AnyTimeout bool
	// Reply is copied into the caller's buffer; it may be shorter, and the rest
	// of the buffer then keeps what was in it (a short answer).
	Reply  []byte
	Status nvmespec.Status
	Result uint64
	// Err is returned in place of an answer. The reply is copied all the same.
	Err error
}

// Script is a device that expects given commands in order. It fails its test
// with a diff on the first command that differs, and at the end of the test
// when steps are left. It is safe for concurrent use.
type Script struct {
	t      testing.TB
	mu     sync.Mutex
	steps  []Step
	next   int
	failed bool
	closed int
}

// NewScript returns a device that expects steps, in order.
func NewScript(t testing.TB, steps ...Step) *Script {
	s := &Script{t: t, steps: steps}
	t.Cleanup(s.finish)
	return s
}

// finish reports what was not asked for.
func (s *Script) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return // the first difference tells more
	}
	for _, step := range s.steps[s.next:] {
		s.t.Errorf("script: not sent: %s", step.title())
	}
}

func (s Step) title() string {
	name := nvmespec.CommandName(!s.Want.IO, s.Want.Opcode)
	if s.Name != "" {
		name = s.Name + ": " + name
	}
	return fmt.Sprintf("%s (opcode 0x%02x, NSID 0x%x, CDW10 0x%08x)", name, s.Want.Opcode, s.Want.NSID, s.Want.CDW10)
}

// Submit implements nvmeioctl.Device.
func (s *Script) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	s.t.Helper()
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= len(s.steps) {
		got := Step{Want: *cmd}
		return s.fail(fmt.Sprintf("one command too many, after %d: %s", s.next, got.title()))
	}
	step := s.steps[s.next]
	if diff := compare(step, cmd); diff != "" {
		return s.fail(fmt.Sprintf("step %d, %s (-want +got):\n%s", s.next, step.title(), diff))
	}
	s.next++
	copy(cmd.Data, step.Reply)
	if step.Err != nil {
		return nvmeioctl.Completion{}, step.Err
	}
	return nvmeioctl.Completion{Status: step.Status, Result: step.Result}, nil
}

func (s *Script) fail(text string) (nvmeioctl.Completion, error) {
	s.t.Helper()
	s.failed = true
	s.t.Errorf("script: %s", text)
	return nvmeioctl.Completion{}, fmt.Errorf("%w: %s", ErrScript, text)
}

// compare describes how a command differs from the step's.
func compare(step Step, cmd *nvmeioctl.Command) string {
	want, got := step.Want, *cmd
	var b strings.Builder
	if step.AnyTimeout {
		if want.Timeout = got.Timeout; got.Timeout <= 0 {
			b.WriteString("  no time-out\n")
		}
	}
	wantData, gotData := want.Data, got.Data
	want.Data, got.Data = nil, nil
	b.WriteString(cmp.Diff(want, got))
	switch {
	case len(wantData) != len(gotData):
		fmt.Fprintf(&b, "  data: want %d bytes, got %d\n", len(wantData), len(gotData))
	case cmd.WritesToDevice() && !bytes.Equal(wantData, gotData):
		b.WriteString("  data:\n" + diffBytes(wantData, gotData))
	}
	return b.String()
}

// diffBytes shows the lines of 16 bytes in which two buffers differ, at most
// sixteen of them.
func diffBytes(want, got []byte) string {
	var b strings.Builder
	shown := 0
	for off := 0; off < max(len(want), len(got)); off += 16 {
		w, g := line(want, off), line(got, off)
		if w == g {
			continue
		}
		if shown++; shown > 16 {
			b.WriteString("  ...\n")
			break
		}
		fmt.Fprintf(&b, "  -%04x %s\n  +%04x %s\n", off, w, off, g)
	}
	return b.String()
}

func line(b []byte, off int) string {
	if off >= len(b) {
		return ""
	}
	return hex.EncodeToString(b[off:min(off+16, len(b))])
}

func (s *Script) String() string { return "script:" + s.t.Name() }

// Close implements nvmeioctl.Device.
func (s *Script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

// Closed says how often the device was closed.
func (s *Script) Closed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Left is how many steps have not been consumed.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps) - s.next
}
