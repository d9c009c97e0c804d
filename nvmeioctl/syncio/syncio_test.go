package syncio_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/syncio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fileBytes = 1 << 20

func plainFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	if err := os.WriteFile(path, make([]byte, fileBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, opts syncio.Options) *syncio.Queue {
	t.Helper()
	q, err := syncio.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return q
}

// Each mode and depth keeps what was written, with aligned buffers and without.
func TestQueue_roundTrip(t *testing.T) {
	for _, depth := range []int{0, 1, 3, 16} {
		for _, mode := range []syncio.DirectMode{syncio.DirectAuto, syncio.DirectOff} {
			for _, skew := range []int{0, 1} {
				t.Run(fmt.Sprintf("depth %d mode %d skew %d", depth, mode, skew), func(t *testing.T) {
					q := open(t, plainFile(t), syncio.Options{Depth: depth, Write: true, Direct: mode})
					if q.Depth() != max(1, depth) || q.SizeBytes() != fileBytes {
						t.Errorf("depth %d, size %d", q.Depth(), q.SizeBytes())
					}
					const length = 8192
					var writes, reads []nvmeioctl.IORequest
					for i := range 40 {
						b := syncio.AlignedBuffer(length+skew, 4096)[skew:]
						copy(b, bytes.Repeat([]byte{byte(i + 1)}, length))
						writes = append(writes, nvmeioctl.IORequest{
							Op: nvmeioctl.OpWrite, Tag: uint32(i), OffsetBytes: int64(i) * length, LengthBytes: length, Buf: b, FUA: i%5 == 0,
						})
						reads = append(reads, nvmeioctl.IORequest{
							Op: nvmeioctl.OpRead, Tag: uint32(i), OffsetBytes: int64(i) * length, LengthBytes: length,
							Buf: syncio.AlignedBuffer(length+skew, 4096)[skew:],
						})
					}
					for tag, r := range nvmetest.Do(t, q, writes...) {
						if r.Err != nil || r.Status != 0 {
							t.Errorf("write %d: %v", tag, r.Err)
						}
					}
					if r := nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, Tag: 7}); r[7].Err != nil {
						t.Error(r)
					}
					for tag, r := range nvmetest.Do(t, q, reads...) {
						if r.Err != nil || !bytes.Equal(reads[tag].Buf, writes[tag].Buf) {
							t.Errorf("read %d: %v, % x", tag, r.Err, reads[tag].Buf[:4])
						}
					}
				})
			}
		}
	}
}

func TestQueue_characterDevices(t *testing.T) {
	null := open(t, "/dev/null", syncio.Options{Depth: 4, Write: true})
	buf := make([]byte, 4096)
	got := nvmetest.Do(t, null,
		nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, Tag: 1, OffsetBytes: 1 << 40, LengthBytes: 4096, Buf: buf},
		nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, Tag: 2},
		nvmeioctl.IORequest{Op: nvmeioctl.OpRead, Tag: 3, LengthBytes: 4096, Buf: buf})
	if got[1].Err != nil || got[2].Err != nil || !errors.Is(got[3].Err, io.ErrUnexpectedEOF) {
		t.Errorf("%+v", got)
	}
	if null.Direct() || null.SizeBytes() != 0 || null.LogicalBlockBytes() != 512 || null.AlignBytes() != 1 {
		t.Errorf("direct %v size %d block %d align %d", null.Direct(), null.SizeBytes(), null.LogicalBlockBytes(), null.AlignBytes())
	}
	copy(buf, "full")
	zero := open(t, "/dev/zero", syncio.Options{})
	if got := nvmetest.Do(t, zero, nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 4096, Buf: buf}); got[0].Err != nil || buf[0] != 0 {
		t.Errorf("%+v, % x", got, buf[:4])
	}
	full := open(t, "/dev/full", syncio.Options{Write: true})
	for _, fua := range []bool{false, true} {
		got := nvmetest.Do(t, full, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, FUA: fua, LengthBytes: 4096, Buf: buf})
		sys, ok := errors.AsType[*os.SyscallError](got[0].Err)
		if !ok || sys.Syscall != "pwrite" || !strings.Contains(sys.Error(), "no space left") {
			t.Errorf("FUA %v: %v", fua, got[0].Err)
		}
	}
}

func TestQueue_errors(t *testing.T) {
	path := plainFile(t)
	buf := make([]byte, 4096)
	q := open(t, path, syncio.Options{Direct: syncio.DirectOff})
	got := nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 4096, Buf: buf})
	if sys, ok := errors.AsType[*os.SyscallError](got[0].Err); !ok || sys.Syscall != "pwrite" {
		t.Errorf("write to a queue for reading: %v", got[0].Err)
	}
	got = nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: fileBytes, LengthBytes: 4096, Buf: buf})
	if _, ok := errors.AsType[*os.SyscallError](got[0].Err); !ok || !errors.Is(got[0].Err, io.ErrUnexpectedEOF) {
		t.Errorf("read beyond the end: %v", got[0].Err)
	}
	for name, r := range map[string]nvmeioctl.IORequest{
		"no operation":    {LengthBytes: 512, Buf: buf},
		"no length":       {Op: nvmeioctl.OpRead, Buf: buf},
		"short buffer":    {Op: nvmeioctl.OpRead, LengthBytes: 8192, Buf: buf},
		"too long":        {Op: nvmeioctl.OpRead, LengthBytes: 2 << 20, Buf: make([]byte, 2<<20)},
		"odd offset":      {Op: nvmeioctl.OpRead, OffsetBytes: 1, LengthBytes: 512, Buf: buf},
		"negative offset": {Op: nvmeioctl.OpRead, OffsetBytes: -512, LengthBytes: 512, Buf: buf},
		"odd length":      {Op: nvmeioctl.OpRead, LengthBytes: 513, Buf: buf},
	} {
		if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 0 || err == nil {
			t.Errorf("%s: took %d, %v", name, n, err)
		}
	}
	if n, err := q.Reap(make([]nvmeioctl.IOResult, 1), nvmeioctl.Never); n != 0 || err != nil {
		t.Errorf("nothing outstanding: %d, %v", n, err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	_, serr := q.Submit(nil)
	_, rerr := q.Reap(nil, 0)
	if !errors.Is(serr, os.ErrClosed) || !errors.Is(rerr, os.ErrClosed) || !errors.Is(q.Close(), os.ErrClosed) {
		t.Errorf("after Close: %v, %v", serr, rerr)
	}
}

func TestOpen_errors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		path string
		opts syncio.Options
		want error
		text string
	}{
		{filepath.Join(dir, "missing"), syncio.Options{}, os.ErrNotExist, "missing"},
		{dir, syncio.Options{}, nil, "no block device"},
		{"/dev/null", syncio.Options{Depth: 5000}, nil, "out of range"},
		{"/dev/null", syncio.Options{Direct: syncio.DirectRequired}, nvmeioctl.ErrNotSupported, "direct"},
	} {
		_, err := syncio.Open(c.path, c.opts)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}

// Reap gives up at the time it was told, with the request still under way.
func TestReap_until(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "medium")
	if err := os.WriteFile(fifo, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	clock := &stuckClock{SystemClock: nvmeioctl.NewSystemClock(), hold: make(chan struct{})}
	q := open(t, fifo, syncio.Options{Depth: 2, Clock: clock, Direct: syncio.DirectOff})
	// The worker stamps its result with the clock, which holds it up.
	if n, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, Tag: 5, LengthBytes: 512, Buf: make([]byte, 512)}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	results := make([]nvmeioctl.IOResult, 2)
	start := clock.SystemClock.Now()
	n, err := q.Reap(results, start.Add(30*time.Millisecond))
	if took := clock.SystemClock.Now().Sub(start); n != 0 || err != nil || took < 25*time.Millisecond {
		t.Errorf("reaped %d, %v after %v", n, err, took)
	}
	if n, err := q.Reap(results, 0); n != 0 || err != nil {
		t.Errorf("a time gone by must not wait: %d, %v", n, err)
	}
	close(clock.hold)
	if n, err := q.Reap(results, nvmeioctl.Never); n != 1 || err != nil || results[0].Tag != 5 {
		t.Errorf("%d, %v, %+v", n, err, results[0])
	}
}

// stuckClock tells the test's goroutine the time and keeps the others waiting.
type stuckClock struct {
	*nvmeioctl.SystemClock
	hold chan struct{}
}

func (c *stuckClock) Now() nvmeioctl.Instant {
	if calledByWorker() {
		<-c.hold
	}
	return c.SystemClock.Now()
}

func TestSubmit_takesWhatFits(t *testing.T) {
	q := open(t, plainFile(t), syncio.Options{Depth: 2})
	reqs := make([]nvmeioctl.IORequest, 5)
	for i := range reqs {
		reqs[i] = nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 4096, Buf: make([]byte, 4096)}
	}
	if n, err := q.Submit(reqs); n != 2 || err != nil {
		t.Errorf("took %d, %v", n, err)
	}
	if n, err := q.Submit(reqs[2:]); n != 0 || err != nil {
		t.Errorf("took %d more, %v", n, err)
	}
	// Close waits for what is under way.
}

func TestQueue_allocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		depth int
		skew  int
		fua   bool
	}{{"inline", 1, 0, false}, {"pool", 4, 0, false}, {"bounced", 1, 1, false}, {"FUA", 1, 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			q := open(t, plainFile(t), syncio.Options{Depth: c.depth, Write: true})
			reqs := make([]nvmeioctl.IORequest, c.depth)
			for i := range reqs {
				reqs[i] = nvmeioctl.IORequest{
					Op: nvmeioctl.OpWrite, FUA: c.fua, OffsetBytes: int64(i) * 4096, LengthBytes: 4096,
					Buf: syncio.AlignedBuffer(4096+c.skew, 4096)[c.skew:],
				}
			}
			results := make([]nvmeioctl.IOResult, c.depth)
			round := func() {
				if n, err := q.Submit(reqs); n != len(reqs) || err != nil {
					t.Fatal(n, err)
				}
				for left := len(reqs); left > 0; {
					n, err := q.Reap(results, nvmeioctl.Instant(time.Hour))
					if err != nil || results[0].Err != nil {
						t.Fatal(err, results[0].Err)
					}
					left -= n
				}
			}
			round() // bounce buffers are made once
			if n := testing.AllocsPerRun(50, round); n != 0 {
				t.Errorf("%v allocations a round", n)
			}
		})
	}
}

func TestQueue_leaksNoDescriptor(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	path := plainFile(t)
	before := count()
	for range 20 {
		q, err := syncio.Open(path, syncio.Options{Depth: 8, Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, LengthBytes: 4096, Buf: make([]byte, 4096)}}); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil { // with a request under way
			t.Fatal(err)
		}
		_, _ = syncio.Open("/dev/null", syncio.Options{Direct: syncio.DirectRequired})
		_, _ = syncio.Open(path, syncio.Options{LogicalBlockBytes: 7, Direct: syncio.DirectRequired})
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestAlignedBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 10000).Draw(t, "n")
		align := 1 << rapid.IntRange(0, 13).Draw(t, "log2 align")
		b := syncio.AlignedBuffer(n, align)
		if len(b) != n || cap(b) < n {
			t.Fatalf("length %d", len(b))
		}
		if n > 0 && address(b)%uintptr(align) != 0 {
			t.Fatalf("address %#x", address(b))
		}
	})
}

// Whatever the order of requests, the file holds what a plain slice would.
func TestQueue_againstModel(t *testing.T) {
	path := plainFile(t)
	rapid.Check(t, func(t *rapid.T) {
		if err := os.WriteFile(path, make([]byte, 64<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := syncio.Open(path, syncio.Options{Depth: rapid.IntRange(1, 4).Draw(t, "depth"), Write: true})
		if err != nil {
			t.Fatal(err)
		}
		model := make([]byte, 64<<10)
		results := make([]nvmeioctl.IOResult, 4)
		for i := range rapid.IntRange(1, 20).Draw(t, "operations") {
			off := rapid.IntRange(0, 15).Draw(t, "block") * 4096
			skew := rapid.IntRange(0, 1).Draw(t, "skew")
			buf := syncio.AlignedBuffer(4096+skew, 4096)[skew:]
			r := nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: int64(off), LengthBytes: 4096, Buf: buf}
			if rapid.Bool().Draw(t, "write") {
				r.Op = nvmeioctl.OpWrite
				buf[0], buf[4095] = byte(i), byte(i)
				copy(model[off:], buf)
			}
			if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if n, err := q.Reap(results, nvmeioctl.Never); n != 1 || err != nil || results[0].Err != nil {
				t.Fatal(n, err, results[0].Err)
			}
			if !bytes.Equal(buf, model[off:off+4096]) {
				t.Fatalf("operation %d at %d", i, off)
			}
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func Example() {
	q, err := syncio.Open("/dev/zero", syncio.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = q.Close() }()
	buf := []byte(strings.Repeat("x", 512))
	if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, Tag: 1, LengthBytes: 512, Buf: buf}}); err != nil {
		fmt.Println(err)
		return
	}
	results := make([]nvmeioctl.IOResult, 1)
	n, err := q.Reap(results, nvmeioctl.Never)
	fmt.Println(n, results[0].Tag, buf[0], err)
	// Output: 1 1 0 <nil>
}

func TestQueue_conformance(t *testing.T) {
	for _, mode := range []syncio.DirectMode{syncio.DirectAuto, syncio.DirectOff} {
		t.Run(fmt.Sprintf("mode %d", mode), func(t *testing.T) {
			path := plainFile(t)
			nvmetest.TestQueue(t, nvmetest.QueueKit{
				BlockBytes: 4096, SizeBytes: fileBytes,
				Open: func(t testing.TB, depth int) nvmeioctl.IOQueue {
					return open(t, path, syncio.Options{Depth: depth, Write: true, Direct: mode})
				},
				Buffer: func(n int) []byte { return syncio.AlignedBuffer(n, 4096) },
			})
		})
	}
}
