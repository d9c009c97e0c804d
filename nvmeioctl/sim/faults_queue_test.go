package sim

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// queueHost sends requests of 4 KiB to a queue, one at a time.
type queueHost struct {
	t   testing.TB
	q   nvmeioctl.IOQueue
	now nvmeioctl.Instant
}

func hostOfQueue(t testing.TB, d *Drive) *queueHost {
	t.Helper()
	q, err := d.Queue(1, 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return &queueHost{t: t, q: q}
}

// one carries out one request and says how long it took.
func (h *queueHost) one(op nvmeioctl.IOOp, unit int, buf []byte) (nvmespec.Status, time.Duration) {
	h.t.Helper()
	n, err := h.q.Submit([]nvmeioctl.IORequest{{Op: op, OffsetBytes: int64(unit) * 4096, LengthBytes: 4096, Buf: buf, At: h.now}})
	if n != 1 || err != nil {
		h.t.Fatalf("submit: %d, %v", n, err)
	}
	var r [1]nvmeioctl.IOResult
	if n, err := h.q.Reap(r[:], nvmeioctl.Never); n != 1 || err != nil {
		h.t.Fatalf("reap: %d, %v", n, err)
	}
	took := r[0].Done.Sub(h.now)
	h.now = r[0].Done
	return r[0].Status, took
}

// Both kinds of queue meet the same faults.
func eachQueue(t *testing.T, f func(*testing.T, *Drive, *queueHost)) {
	for _, mode := range []ContentsMode{ContentsNone, ContentsSparse} {
		t.Run(mode.String(), func(t *testing.T) {
			d := newTestDrive(t, "pblaze7-7940-7.68tb", func(_ *Profile, o *Options) { o.Contents = mode })
			f(t, d, hostOfQueue(t, d))
		})
	}
}

func TestFaultsQueue_commands(t *testing.T) {
	eachQueue(t, func(t *testing.T, d *Drive, h *queueHost) {
		buf := make([]byte, 4096)
		if err := d.Arm(plan(t, "fail 2nd write with 0x4280; delay 1s 3rd write; lose 4th write; before 5th write hang; media-error nsid 1 lba 800; after 7th write not-ready 2s")); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			want nvmespec.Status
			slow time.Duration
		}{{0, 0}, {0x4280, 0}, {0, time.Second}, {0, 30 * time.Second}, {0, 30 * time.Second}, {0, 0}, {0, 0}, {0, 2 * time.Second}, {0, 0}} {
			s, took := h.one(nvmeioctl.OpWrite, i, buf)
			if s != c.want || took < c.slow || took > c.slow+900*time.Millisecond {
				t.Errorf("write %d: status %#x after %v, want %#x after %v", i+1, uint16(s), took, uint16(c.want), c.slow)
			}
		}
		if s, _ := h.one(nvmeioctl.OpRead, 100, buf); s != 0x4281 { // blocks 800 to 807
			t.Errorf("read of a bad block: %#x", uint16(s))
		}
		if s, _ := h.one(nvmeioctl.OpWrite, 100, buf); s != 0 {
			t.Errorf("write of a bad block: %#x", uint16(s))
		}
		if s, _ := h.one(nvmeioctl.OpRead, 100, buf); s != 0 {
			t.Errorf("read of a block that was bad: %#x", uint16(s))
		}
		m := host{t, d}.smart()
		if log := (host{t, d}).errors(); m.MediaErrors.Lo != 1 || len(log) == 0 || log[0].LBA != 800 || log[0].NSID != 1 {
			t.Errorf("%v media errors, log %+v", m.MediaErrors, log)
		}
		if err := d.Arm(plan(t, "read-only")); err != nil {
			t.Fatal(err)
		}
		if s, _ := h.one(nvmeioctl.OpWrite, 0, buf); s != statusReadOnly {
			t.Errorf("write to read-only media: %#x", uint16(s))
		}
	})
}

// A power cut in the middle of a batch takes what came before it.
func TestFaultsQueue_powerCut(t *testing.T) {
	eachQueue(t, func(t *testing.T, d *Drive, h *queueHost) {
		if err := d.Arm(plan(t, "before 3rd write power-cut")); err != nil {
			t.Fatal(err)
		}
		var reqs []nvmeioctl.IORequest
		for i := range 5 {
			reqs = append(reqs, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: int64(i) * 4096, LengthBytes: 4096, Buf: dataOf(4096, byte(i))})
		}
		n, err := h.q.Submit(reqs)
		if n != 2 || !errors.Is(err, nvmeioctl.ErrDeviceGone) {
			t.Fatalf("%d requests, %v", n, err)
		}
		if _, err := h.q.Submit(reqs); !errors.Is(err, nvmeioctl.ErrDeviceGone) {
			t.Errorf("without power: %v", err)
		}
		var r [8]nvmeioctl.IOResult
		if n, err := h.q.Reap(r[:], nvmeioctl.Never); n != 2 || err != nil {
			t.Errorf("%d results, %v", n, err)
		}
		if err := d.PowerOn(); err != nil {
			t.Fatal(err)
		}
		if s, _ := h.one(nvmeioctl.OpWrite, 9, make([]byte, 4096)); s != 0 {
			t.Errorf("with power again: %v", s)
		}
		if s := (host{t, d}).smart(); s.UnsafeShutdowns.Lo != 1 {
			t.Errorf("%v unsafe shutdowns", s.UnsafeShutdowns)
		}
	})
}

// What is triggered by an amount comes when a queue has written it.
func TestFaultsQueue_byAmount(t *testing.T) {
	eachQueue(t, func(t *testing.T, d *Drive, h *queueHost) {
		h.one(nvmeioctl.OpWrite, 0, make([]byte, 4096)) // does not count
		if err := d.Arm(plan(t, "at 12KiB spare 50%")); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			_, wrong := d.Faults()
			if got, want := slices.Equal(wrong, []string{"spare 50%"}), i == 4; got != want {
				t.Errorf("after %d writes: %q", i, wrong)
			}
			h.one(nvmeioctl.OpWrite, i, make([]byte, 4096))
		}
	})
}

func TestFaultsQueue_corrupt(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(_ *Profile, o *Options) { o.Contents = ContentsBlocks })
	h := hostOfQueue(t, d)
	if err := d.Arm(plan(t, "corrupt 2nd read")); err != nil {
		t.Fatal(err)
	}
	data, got := dataOf(4096, 3), make([]byte, 4096)
	h.one(nvmeioctl.OpWrite, 0, data)
	for i, want := range []bool{true, false, true} {
		h.one(nvmeioctl.OpRead, 0, got)
		if bytes.Equal(got, data) != want {
			t.Errorf("read %d is right: %v", i+1, !want)
		}
	}
}

// A state with hostile faults is refused.
func TestFaultState_compile(t *testing.T) {
	for name, f := range map[string]faultState{
		"no rule":         {Rules: []armedRule{{Text: "break"}}},
		"two rules":       {Rules: []armedRule{{Text: "hang; hang"}}},
		"negative count":  {Rules: []armedRule{{Text: "drop any", Count: -1}}},
		"too many rules":  {Rules: make([]armedRule, armedRulesMax+1)},
		"too many ranges": {Bad: make([]badRange, badRangesMax+1)},
		"backward range":  {Bad: []badRange{{NSID: 1, First: 2, Last: 1}}},
		"no namespace":    {Bad: []badRange{{First: 1, Last: 1}}},
		"backward ramp":   {Spare: &faultRamp{StartNS: 2, EndNS: 1}},
		"hot as the sun":  {Heat: &faultRamp{To: 5_800_000_000}},
		"odd counter":     {Counter: &counterTrouble{Kind: 99}},
	} {
		if err := f.compile(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
