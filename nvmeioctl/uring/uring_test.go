package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/syncio"
	"nvop/nvmeioctl/uring"
)

func TestMain(m *testing.M) {
	if what := os.Getenv("NVOP_URING_CHILD"); what != "" {
		os.Exit(child(what))
	}
	goleak.VerifyTestMain(m)
}

const fileBytes = 1 << 20

func needsRing(t testing.TB) {
	t.Helper()
	if err := uring.Probe(); err != nil {
		t.Skip("no io_uring here:", err)
	}
}

func plainFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "medium")
	if err := os.WriteFile(path, make([]byte, fileBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, opts uring.Options) *uring.Queue {
	t.Helper()
	needsRing(t)
	q, err := uring.Open(path, opts)
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

// What every queue keeps, with and without the page cache, buffers that are
// registered, merely aligned, and not aligned, on one thread and on any.
func TestQueue_conformance(t *testing.T) {
	needsRing(t)
	for _, mode := range []nvmeioctl.DirectMode{nvmeioctl.DirectAuto, nvmeioctl.DirectOff} {
		for _, kind := range []string{"registered", "aligned", "skewed"} {
			for _, one := range []bool{false, true} {
				t.Run(fmt.Sprintf("mode %d %s one thread %v", mode, kind, one), func(t *testing.T) {
					path := plainFile(t)
					area, used := mapped(t, 8<<20), 0
					nvmetest.TestQueue(t, nvmetest.QueueKit{
						BlockBytes: 4096, SizeBytes: fileBytes,
						Open: func(t testing.TB, depth int) nvmeioctl.IOQueue {
							if one {
								onOneThread(t)
							}
							q := open(t, path, uring.Options{Depth: depth, Write: true, Direct: mode, OneThread: one})
							if kind == "registered" {
								if err := q.RegisterBuffers(area); err != nil {
									t.Fatal(err)
								}
							}
							return q
						},
						Buffer: func(n int) []byte {
							if kind == "skewed" {
								return syncio.AlignedBuffer(n+3, 4096)[3:]
							}
							if used+n > len(area) {
								used = 0 // all of before has been checked by now
							}
							b := area[used : used+n : used+n]
							used += (n + 4095) &^ 4095
							clear(b)
							return b
						},
					})
				})
			}
		}
	}
}

func TestQueue_characterDevices(t *testing.T) {
	null := open(t, "/dev/null", uring.Options{Depth: 4, Write: true})
	buf := make([]byte, 4096)
	got := nvmetest.Do(t, null,
		nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, Tag: 1, OffsetBytes: 1 << 40, LengthBytes: 4096, Buf: buf},
		nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, Tag: 2},
		nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, FUA: true, Tag: 4, LengthBytes: 4096, Buf: buf},
		nvmeioctl.IORequest{Op: nvmeioctl.OpRead, Tag: 3, LengthBytes: 4096, Buf: buf})
	if got[1].Err != nil || got[2].Err != nil || got[4].Err != nil || !errors.Is(got[3].Err, io.ErrUnexpectedEOF) {
		t.Errorf("%+v", got)
	}
	if null.Direct() || null.SizeBytes() != 0 || null.LogicalBlockBytes() != 512 || null.AlignBytes() != 1 {
		t.Errorf("direct %v size %d block %d align %d", null.Direct(), null.SizeBytes(), null.LogicalBlockBytes(), null.AlignBytes())
	}
	copy(buf, "full")
	zero := open(t, "/dev/zero", uring.Options{})
	if got := nvmetest.Do(t, zero, nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: 4096, Buf: buf}); got[0].Err != nil || buf[0] != 0 {
		t.Errorf("%+v, % x", got, buf[:4])
	}
	full := open(t, "/dev/full", uring.Options{Write: true})
	for _, fua := range []bool{false, true} {
		got := nvmetest.Do(t, full, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, FUA: fua, LengthBytes: 4096, Buf: buf})
		sys, ok := errors.AsType[*os.SyscallError](got[0].Err)
		if !ok || sys.Syscall != "io_uring write" || !strings.Contains(sys.Error(), "no space left") {
			t.Errorf("FUA %v: %v", fua, got[0].Err)
		}
	}
}

func TestQueue_errors(t *testing.T) {
	path := plainFile(t)
	buf := syncio.AlignedBuffer(8192, 4096)
	q := open(t, path, uring.Options{})
	got := nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: 4096, Buf: buf})
	if sys, ok := errors.AsType[*os.SyscallError](got[0].Err); !ok || sys.Syscall != "io_uring write" {
		t.Errorf("write to a queue for reading: %v", got[0].Err)
	}
	got = nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: fileBytes, LengthBytes: 4096, Buf: buf})
	if !errors.Is(got[0].Err, io.ErrUnexpectedEOF) || errors.Is(got[0].Err, nvmeioctl.ErrDeviceGone) {
		t.Errorf("read beyond the end: %v", got[0].Err)
	}
	// Half of it is there: the rest is asked for, and is not.
	got = nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpRead, OffsetBytes: fileBytes - 4096, LengthBytes: 8192, Buf: buf})
	if !errors.Is(got[0].Err, io.ErrUnexpectedEOF) {
		t.Errorf("read across the end: %v", got[0].Err)
	}
	_, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, LengthBytes: 2 << 20, Buf: make([]byte, 2<<20)}})
	if err == nil || !strings.Contains(err.Error(), "the largest is 1048576") {
		t.Errorf("too long: %v", err)
	}
}

func TestOpen_errors(t *testing.T) {
	needsRing(t)
	dir := t.TempDir()
	for _, c := range []struct {
		path string
		opts uring.Options
		want error
		text string
	}{
		{filepath.Join(dir, "missing"), uring.Options{}, os.ErrNotExist, "missing"},
		{dir, uring.Options{}, nil, "no block device"},
		{"/dev/null", uring.Options{Depth: uring.MaxDepth + 1}, nil, "out of range"},
		{"/dev/null", uring.Options{LogicalBlockBytes: 1000}, nil, "out of range"},
		{"/dev/null", uring.Options{Direct: nvmeioctl.DirectRequired}, nvmeioctl.ErrNotSupported, "direct"},
		{"/dev/null", uring.Options{Polled: true}, nvmeioctl.ErrNotSupported, "poll queues"},
	} {
		_, err := uring.Open(c.path, c.opts)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	for text, c := range map[string]struct {
		path string
		ns   uring.Commands
	}{
		"out of range":       {"/dev/null", uring.Commands{NSID: 1, BlockBytes: 512}},
		"no node of an NVMe": {"/dev/null", uring.Commands{NSID: 1, SizeBlocks: 8, BlockBytes: 512}},
	} {
		_, err := uring.OpenCommands(c.path, c.ns, uring.Options{})
		if err == nil || !strings.Contains(err.Error(), text) && !errors.Is(err, nvmeioctl.ErrNotSupported) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// hanging is a queue on a character device whose reads do not end before the test.
func hanging(t testing.TB) *uring.Queue {
	t.Helper()
	path, typed, ok := quietTerminal(t)
	if !ok {
		t.Skip("no pseudo terminal here")
	}
	q := open(t, path, uring.Options{Depth: 2})
	t.Cleanup(typed)
	return q
}

// Reap gives up at the time it was told, with the request still under way, and
// a time gone by does not wait.
func TestReap_until(t *testing.T) {
	q := hanging(t)
	clock := nvmeioctl.NewSystemClock()
	if n, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, Tag: 5, LengthBytes: 512, Buf: make([]byte, 512)}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	results := make([]nvmeioctl.IOResult, 2)
	start := clock.Now()
	if n, err := q.Reap(results, start.Add(30*time.Millisecond)); n != 0 || err != nil {
		t.Errorf("reaped %d, %v", n, err)
	}
	if took := clock.Now().Sub(start); took < 20*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
	if n, err := q.Reap(results, 0); n != 0 || err != nil {
		t.Errorf("a time gone by: %d, %v", n, err)
	}
}

// The collector stops the world while threads wait in the kernel: neither it nor
// they may be held up, and nothing may be submitted twice.
func TestReap_whileCollecting(t *testing.T) {
	path := plainFile(t)
	q := open(t, path, uring.Options{Depth: 16, Write: true})
	h := hanging(t)
	if _, err := h.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, LengthBytes: 512, Buf: make([]byte, 512)}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		clock := nvmeioctl.NewSystemClock()
		for end := clock.Now().Add(200 * time.Millisecond); clock.Now() < end; {
			runtime.GC()
		}
	}()
	results := make([]nvmeioctl.IOResult, 16)
	for round := 0; ; round++ {
		var reqs []nvmeioctl.IORequest
		for i := range 16 {
			b := syncio.AlignedBuffer(4096, 4096) // garbage, the older of which is collected meanwhile
			b[0], b[4095] = byte(round), byte(i)
			reqs = append(reqs, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, Tag: uint32(i), OffsetBytes: int64(i) * 4096, LengthBytes: 4096, Buf: b})
		}
		for tag, r := range nvmetest.Do(t, q, reqs...) {
			if r.Err != nil {
				t.Fatal(tag, r.Err)
			}
		}
		if n, err := h.Reap(results, 1); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		select {
		case <-done:
		default:
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 16 {
			if got[i*4096] != byte(round) || got[i*4096+4095] != byte(i) {
				t.Errorf("block %d holds % x", i, got[i*4096:i*4096+1])
			}
		}
		return
	}
}

func TestQueue_features(t *testing.T) {
	onOneThread(t)
	q := open(t, "/dev/null", uring.Options{Depth: 2, Write: true, OneThread: true})
	area := mapped(t, 8192)
	if err := q.RegisterBuffers(area); err != nil {
		t.Fatal(err)
	}
	if err := q.RegisterBuffers(area); err == nil {
		t.Error("registered twice")
	}
	f := q.Features()
	if !f.FixedFile || !f.FixedBuffers || f.Polled || f.Commands || !strings.Contains(f.String(), "fixed file, fixed buffers") {
		t.Errorf("%+v: %s", f, f)
	}
	if f.DeferTaskrun && !f.SingleIssuer {
		t.Errorf("%+v", f)
	}
	// Inside and across the end of what is registered.
	outside := bytes.Repeat([]byte{1}, 8192)
	for i, buf := range [][]byte{area[:4096], area[4096:], outside[:512]} {
		if got := nvmetest.Do(t, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, LengthBytes: int32(len(buf)), Buf: buf}); got[0].Err != nil {
			t.Error(i, got[0].Err)
		}
	}
}

// A ring made for one thread says so when another uses it.
func TestQueue_otherThread(t *testing.T) {
	onOneThread(t)
	q := open(t, "/dev/null", uring.Options{Write: true, OneThread: true})
	if !q.Features().SingleIssuer {
		t.Skip("the kernel has no single issuer")
	}
	if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpWrite, LengthBytes: 512, Buf: make([]byte, 512)}}); err != nil {
		t.Fatal(err)
	}
	said := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := q.Reap(make([]nvmeioctl.IOResult, 1), nvmeioctl.Never)
		said <- err
	}()
	if err := <-said; err == nil || !strings.Contains(err.Error(), "thread that did not open it") {
		t.Errorf("%v", err)
	}
}

// Opening a queue on a goroutine that the scheduler moves about, as a trial does,
// leaves nothing out: a ring for one thread refuses what another one asks of it.
func TestOpen_whileMoved(t *testing.T) {
	needsRing(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				q, err := uring.Open("/dev/null", uring.Options{Write: true, OneThread: true})
				if err != nil {
					t.Error(err)
					return
				}
				if !q.Features().FixedFile {
					t.Error("the file could not be registered")
				}
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestQueue_leaksNothing(t *testing.T) {
	needsRing(t)
	path := plainFile(t)
	round := func() {
		q, err := uring.Open(path, uring.Options{Depth: 8, Write: true})
		if err != nil {
			t.Fatal(err)
		}
		skewed := syncio.AlignedBuffer(4097, 4096)[1:]
		if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, LengthBytes: 4096, Buf: skewed}}); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil { // with a request under way
			t.Fatal(err)
		}
		_, _ = uring.Open("/dev/null", uring.Options{Polled: true})
		_, _ = uring.Open(path, uring.Options{LogicalBlockBytes: 8, Direct: nvmeioctl.DirectRequired})
		_, _ = uring.OpenCommands("/dev/null", uring.Commands{NSID: 1, SizeBlocks: 8, BlockBytes: 512}, uring.Options{})
		if err := uring.Probe(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := holds(t)
	for range 20 {
		round()
	}
	if after := holds(t); after.descriptors > before.descriptors || after.rings > before.rings {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

func Example() {
	q, err := uring.Open("/dev/zero", uring.Options{})
	if errors.Is(err, nvmeioctl.ErrNotSupported) {
		fmt.Println("1 1 0 <nil>") // a machine without io_uring: err says why
		return
	}
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
