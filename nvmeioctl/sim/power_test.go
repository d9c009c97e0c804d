package sim

import (
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// readAt is how long a read of 4 KiB takes that is asked for at a time.
func readAt(t *testing.T, q nvmeioctl.IOQueue, at time.Duration) time.Duration {
	t.Helper()
	r := nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 4096, At: nvmeioctl.Instant(at)}
	if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var done [1]nvmeioctl.IOResult
	if n, err := q.Reap(done[:], nvmeioctl.Instant(1<<62)); n != 1 || err != nil || done[0].Status != 0 {
		t.Fatal(n, err, done)
	}
	return done[0].Done.Sub(nvmeioctl.Instant(at))
}

func clientQueue(t *testing.T) (*Drive, host, nvmeioctl.IOQueue) {
	t.Helper()
	d := newTestDrive(t, "client-1tb", nil)
	q, err := d.Queue(1, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return d, host{t, d}, q
}

func (h host) powerState() uint32 {
	h.t.Helper()
	done := h.raw(getFeature(0x02, 0))
	if done.Status != 0 {
		h.t.Fatal(done.Status)
	}
	return uint32(done.Result)
}

// TestPower_nonOperational: PWR-04. A non-operational state is reported until a
// command comes, which waits for the exit latency, is then as fast as before, and
// leaves the drive in the operational state it had.
func TestPower_nonOperational(t *testing.T) {
	_, h, q := clientQueue(t)
	quick := readAt(t, q, time.Second)
	h.want(setFeature(0x02, 1, false), 0)
	h.want(setFeature(0x02, 4, false), 0)
	if got := h.powerState(); got != 4 {
		t.Fatalf("power state %d", got)
	}
	if got, want := readAt(t, q, 2*time.Second), quick+45*time.Millisecond; got != want {
		t.Errorf("the first read took %v, want %v", got, want)
	}
	if got := h.powerState(); got != 1 {
		t.Errorf("power state %d, before it was 1", got)
	}
	if got := readAt(t, q, 3*time.Second); got != quick {
		t.Errorf("the second read took %v, want %v", got, quick)
	}
	// A reset forgets what was not saved.
	h.want(setFeature(0x02, 3, false), 0)
	if err := h.dev.(*Drive).ResetController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.powerState(); got != 0 {
		t.Errorf("power state %d after a reset", got)
	}
}

// TestPower_autonomous: PWR-08. A drive goes to deeper states by itself, as its
// table says, and only where the feature is on.
func TestPower_autonomous(t *testing.T) {
	_, h, q := clientQueue(t)
	quick := readAt(t, q, time.Second)
	var table nvmespec.APST
	set := func() {
		h.want(nvmeioctl.Command{Opcode: 0x09, CDW10: 0x0C, CDW11: table.Dword(), Data: table.Append(nil)}, 0)
	}
	table.Enabled = true
	set()
	if got := readAt(t, q, 100*time.Second); got != quick {
		t.Errorf("an empty table: the read took %v, want %v", got, quick)
	}
	table.Transitions[0] = nvmespec.APSTTransition{Target: 3, IdleMilliseconds: 100}
	table.Transitions[3] = nvmespec.APSTTransition{Target: 4, IdleMilliseconds: 2000}
	set()
	readAt(t, q, 200*time.Second)
	for _, c := range []struct{ at, extra time.Duration }{
		{200*time.Second + 50*time.Millisecond, 0},
		{201 * time.Second, 10 * time.Millisecond},
		{210 * time.Second, 45 * time.Millisecond},
	} {
		if got := readAt(t, q, c.at); got != quick+c.extra {
			t.Errorf("at %v the read took %v, want %v", c.at, got, quick+c.extra)
		}
	}
	if got := h.powerState(); got != 0 {
		t.Errorf("power state %d", got)
	}
	table.Enabled = false
	set()
	if got := readAt(t, q, 300*time.Second); got != quick {
		t.Errorf("turned off: the read took %v, want %v", got, quick)
	}
}
