package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// busyDrive is a drive whose background operation never ends: it answers every
// log with the same page, and interrupts the user's patience at the given poll.
type busyDrive struct {
	page   []byte
	polls  int
	after  int
	cancel func()
}

func (b *busyDrive) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if b.polls++; b.polls == b.after {
		b.cancel()
	}
	copy(cmd.Data, b.page)
	return nvmeioctl.Completion{}, nil
}
func (*busyDrive) String() string { return "/dev/nvme9" }
func (*busyDrive) Close() error   { return nil }

func waiting(t *testing.T, page []byte, after int) (ctx context.Context, a *app, d *drive, errout *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	errout = &bytes.Buffer{}
	clock := nvmeioctl.NewVirtualClock(time.Unix(0, 0))
	a = &app{streams: streams{strings.NewReader(""), &bytes.Buffer{}, errout}, clock: clock}
	return ctx, a, &drive{address: "/dev/nvme9", dev: &busyDrive{page: page, after: after, cancel: cancel}, clock: clock}, errout
}

// TestSanitizeWait_stall: no progress is told of, again and again, and waited for;
// an interruption says that the drive goes on (LOG-25).
func TestSanitizeWait_stall(t *testing.T) {
	page := nvmespec.SanitizeLog{State: nvmespec.SanitizeRunning, Progress: 655}.Append(nil)
	ctx, a, d, errout := waiting(t, page, 40)
	s := &sanitizing{a: a, d: d, stall: 15 * time.Minute}
	_, err := s.wait(ctx, time.Minute)
	var coded *codedError
	if !errors.As(err, &coded) || coded.code != exitPartly || !strings.Contains(err.Error(), "goes on in the drive, 0.99 % done") || !strings.Contains(err.Error(), "cannot be stopped") {
		t.Errorf("%v", err)
	}
	if n := strings.Count(errout.String(), "no progress since"); n != 2 {
		t.Errorf("told %d times in 40 minutes:\n%s", n, errout)
	}
}

// TestSelftestWait_interrupted: the test goes on, and how to stop it is said.
func TestSelftestWait_interrupted(t *testing.T) {
	page := nvmespec.SelfTestLog{Current: nvmespec.SelfTestExtended, CompletedPercent: nvmespec.Some[uint8](42)}.Append(nil)
	ctx, a, d, _ := waiting(t, page, 3)
	s := &selftests{a: a, d: d}
	_, err := s.wait(ctx, time.Second)
	if exitCode(err) != exitPartly || !strings.Contains(err.Error(), "goes on in the drive, 42 % done") || !strings.Contains(err.Error(), "nvop selftest abort /dev/nvme9") {
		t.Errorf("%v", err)
	}
}
