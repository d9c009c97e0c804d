package nvmetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"nvop/nvmeioctl"
)

// QueueKit is a queue under test.
type QueueKit struct {
	// Open opens a queue for writing over the same contents each time, all zero
	// at first. The suite closes it.
	Open func(t testing.TB, depth int) nvmeioctl.IOQueue
	// BlockBytes is the logical block and SizeBytes the size of the contents, at
	// least 64 blocks.
	BlockBytes int
	SizeBytes  int64
	// Buffer makes a buffer that the queue can use without a copy.
	Buffer func(n int) []byte
}

// TestQueue is what every IOQueue in real time has to keep: contents, tags,
// order, depth, refusals, and no allocation. Each depth is a test of its own.
func TestQueue(t *testing.T, kit QueueKit) {
	for _, depth := range []int{1, 3, 32} {
		t.Run(fmt.Sprintf("depth %d", depth), func(t *testing.T) {
			t.Run("model", func(t *testing.T) { kit.model(t, depth) })
			t.Run("depth", func(t *testing.T) { kit.depth(t, depth) })
			t.Run("refusals", func(t *testing.T) { kit.refusals(t, depth) })
			t.Run("allocations", func(t *testing.T) { kit.allocations(t, depth) })
			t.Run("close", func(t *testing.T) { kit.closing(t, depth) })
		})
	}
}

// Do carries requests out on a queue, each with a tag of its own, and returns how
// they ended by their tags. Completions have to come in the order of their stamps.
func Do(t testing.TB, q nvmeioctl.IOQueue, reqs ...nvmeioctl.IORequest) map[uint32]nvmeioctl.IOResult {
	t.Helper()
	got := map[uint32]nvmeioctl.IOResult{}
	results := make([]nvmeioctl.IOResult, 8)
	for sent := 0; len(got) < len(reqs); {
		n, err := q.Submit(reqs[sent:])
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		if n, err = q.Reap(results, nvmeioctl.Never); err != nil || n == 0 {
			t.Fatalf("reaped %d: %v", n, err)
		}
		for i, r := range results[:n] {
			if _, twice := got[r.Tag]; twice {
				t.Fatalf("tag %d twice", r.Tag)
			}
			if i > 0 && r.Done < results[i-1].Done {
				t.Errorf("completions out of order: %d after %d", r.Done, results[i-1].Done)
			}
			got[r.Tag] = r
		}
	}
	return got
}

func (k QueueKit) open(t testing.TB, depth int) nvmeioctl.IOQueue {
	t.Helper()
	q := k.Open(t, depth)
	t.Cleanup(func() {
		if err := q.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return q
}

// flight is one operation of the model test.
type flight struct {
	req  nvmeioctl.IORequest
	want []byte
}

// model compares a random mix with a plain slice. No two operations on the same
// block are in flight together.
func (k QueueKit) model(t *testing.T, depth int) {
	q := k.open(t, depth)
	const blocks, most = 64, 4
	contents := k.read(t, q, 0, blocks*k.BlockBytes)
	rnd := rand.New(rand.NewPCG(uint64(depth), 7))
	flying := map[uint32]flight{}
	busy := map[int]bool{}
	results := make([]nvmeioctl.IOResult, max(1, depth/2))
	var last nvmeioctl.Instant
	for tag := uint32(1); tag < 200 || len(flying) != 0; {
		var batch []nvmeioctl.IORequest
		for len(flying) < depth && tag < 200 && rnd.IntN(5) != 0 {
			f, ok := k.draw(rnd, tag, blocks, most, busy, contents)
			if !ok {
				break
			}
			flying[tag] = f
			batch = append(batch, f.req)
			tag++
		}
		if n, err := q.Submit(batch); n != len(batch) || err != nil {
			t.Fatalf("took %d of %d: %v", n, len(batch), err)
		}
		n, err := q.Reap(results, nvmeioctl.Never)
		if err != nil || n == 0 && len(flying) != 0 {
			t.Fatalf("reaped %d with %d outstanding: %v", n, len(flying), err)
		}
		for _, r := range results[:n] {
			if r.Done < last {
				t.Errorf("tag %d done at %d, after one done at %d", r.Tag, r.Done, last)
			}
			last = r.Done
			k.landed(t, r, flying, busy)
		}
	}
	if got := k.read(t, q, 0, len(contents)); !bytes.Equal(got, contents) {
		t.Error("the contents are not what was written")
	}
}

// draw makes an operation on blocks that no other is on.
func (k QueueKit) draw(rnd *rand.Rand, tag uint32, blocks, most int, busy map[int]bool, contents []byte) (flight, bool) {
	if rnd.IntN(16) == 0 {
		return flight{req: nvmeioctl.IORequest{Op: nvmeioctl.OpFlush, Tag: tag}}, true
	}
	n := 1 + rnd.IntN(most)
	at := rnd.IntN(blocks - n + 1)
	for b := at; b < at+n; b++ {
		if busy[b] {
			return flight{}, false
		}
	}
	for b := at; b < at+n; b++ {
		busy[b] = true
	}
	part := contents[at*k.BlockBytes : (at+n)*k.BlockBytes]
	r := nvmeioctl.IORequest{
		Op: nvmeioctl.OpRead, Tag: tag, OffsetBytes: int64(at * k.BlockBytes), LengthBytes: int32(len(part)), Buf: k.Buffer(len(part)),
	}
	f := flight{}
	if rnd.IntN(2) == 0 {
		r.Op, r.FUA = nvmeioctl.OpWrite, rnd.IntN(4) == 0
		for i := range r.Buf {
			r.Buf[i] = byte(rnd.Uint32())
		}
		copy(part, r.Buf)
	} else {
		f.want = bytes.Clone(part)
	}
	f.req = r
	return f, true
}

// landed checks one result.
func (k QueueKit) landed(t *testing.T, r nvmeioctl.IOResult, flying map[uint32]flight, busy map[int]bool) {
	t.Helper()
	f, ok := flying[r.Tag]
	if !ok {
		t.Fatalf("tag %d is not outstanding", r.Tag)
	}
	delete(flying, r.Tag)
	if r.Err != nil || r.Status != 0 {
		t.Errorf("tag %d: status %v, %v", r.Tag, r.Status, r.Err)
	}
	if f.want != nil && !bytes.Equal(f.req.Buf, f.want) {
		t.Errorf("tag %d read something else at %d", r.Tag, f.req.OffsetBytes)
	}
	first := int(f.req.OffsetBytes) / k.BlockBytes
	for b := range int(f.req.LengthBytes) / k.BlockBytes {
		delete(busy, first+b)
	}
}

// read reads with one operation at a time.
func (k QueueKit) read(t *testing.T, q nvmeioctl.IOQueue, off, n int) []byte {
	t.Helper()
	out := make([]byte, 0, n)
	results := make([]nvmeioctl.IOResult, 1)
	for ; len(out) < n; off += k.BlockBytes {
		buf := k.Buffer(k.BlockBytes)
		if took, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpRead, OffsetBytes: int64(off), LengthBytes: int32(k.BlockBytes), Buf: buf}}); took != 1 || err != nil {
			t.Fatal(took, err)
		}
		if got, err := q.Reap(results, nvmeioctl.Never); got != 1 || err != nil || results[0].Err != nil || results[0].Status != 0 {
			t.Fatal(got, err, results[0])
		}
		out = append(out, buf...)
	}
	return out
}

// batch is reads of the first blocks.
func (k QueueKit) batch(n int) []nvmeioctl.IORequest {
	reqs := make([]nvmeioctl.IORequest, n)
	for i := range reqs {
		reqs[i] = nvmeioctl.IORequest{
			Op: nvmeioctl.OpRead, Tag: uint32(i), OffsetBytes: int64(i % 64 * k.BlockBytes), LengthBytes: int32(k.BlockBytes), Buf: k.Buffer(k.BlockBytes),
		}
	}
	return reqs
}

// depth says that a full queue takes no more, and that a result makes room.
func (k QueueKit) depth(t *testing.T, depth int) {
	q := k.open(t, depth)
	if q.Depth() < depth {
		t.Fatalf("depth %d", q.Depth())
	}
	depth = q.Depth()
	reqs := k.batch(depth + 2)
	if n, err := q.Submit(reqs); n != depth || err != nil {
		t.Fatalf("took %d of %d, %v", n, len(reqs), err)
	}
	if n, err := q.Submit(reqs[depth:]); n != 0 || err != nil {
		t.Fatalf("a full queue took %d, %v", n, err)
	}
	results := make([]nvmeioctl.IOResult, 1)
	for left := depth; left != 0; left-- {
		if n, err := q.Reap(results, nvmeioctl.Never); n != 1 || err != nil || results[0].Err != nil {
			t.Fatalf("%d, %v, %+v", n, err, results[0])
		}
	}
	if n, err := q.Reap(results, nvmeioctl.Never); n != 0 || err != nil {
		t.Errorf("nothing outstanding: %d, %v", n, err)
	}
	if n, err := q.Submit(reqs[:1]); n != 1 || err != nil {
		t.Fatalf("took %d, %v", n, err)
	}
	if n, err := q.Reap(nil, nvmeioctl.Never); n != 0 || err != nil {
		t.Errorf("no room for results: %d, %v", n, err)
	}
}

// refusals says that a malformed request is not taken, and those before it are.
func (k QueueKit) refusals(t *testing.T, depth int) {
	q := k.open(t, depth+1)
	block, buf := int32(k.BlockBytes), k.Buffer(k.BlockBytes)
	good := nvmeioctl.IORequest{Op: nvmeioctl.OpRead, LengthBytes: block, Buf: buf}
	for name, r := range map[string]nvmeioctl.IORequest{
		"no operation":    {LengthBytes: block, Buf: buf},
		"no length":       {Op: nvmeioctl.OpRead, Buf: buf},
		"negative length": {Op: nvmeioctl.OpRead, LengthBytes: -block, Buf: buf},
		"short buffer":    {Op: nvmeioctl.OpRead, LengthBytes: 2 * block, Buf: buf},
		"odd offset":      {Op: nvmeioctl.OpRead, OffsetBytes: 1, LengthBytes: block, Buf: buf},
		"negative offset": {Op: nvmeioctl.OpRead, OffsetBytes: -int64(block), LengthBytes: block, Buf: buf},
		"odd length":      {Op: nvmeioctl.OpRead, LengthBytes: block - 1, Buf: buf},
	} {
		if n, err := q.Submit([]nvmeioctl.IORequest{good, r}); n != 1 || err == nil {
			t.Errorf("%s: took %d, %v", name, n, err)
		}
		if n, err := q.Reap(make([]nvmeioctl.IOResult, 4), nvmeioctl.Never); n != 1 || err != nil {
			t.Fatalf("%s: reaped %d, %v", name, n, err)
		}
	}
}

// allocations says that a round of submit and reap allocates nothing.
func (k QueueKit) allocations(t *testing.T, depth int) {
	q := k.open(t, depth)
	reqs := k.batch(depth)
	results := make([]nvmeioctl.IOResult, depth)
	round := func() {
		if n, err := q.Submit(reqs); n != len(reqs) || err != nil {
			t.Fatal(n, err)
		}
		for left := len(reqs); left > 0; {
			n, err := q.Reap(results, nvmeioctl.Never)
			if err != nil || results[0].Err != nil {
				t.Fatal(err, results[0].Err)
			}
			left -= n
		}
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// closing says that Close waits for what is under way, and is the end.
func (k QueueKit) closing(t *testing.T, depth int) {
	q := k.open(t, depth)
	if _, err := q.Submit(k.batch(depth)); err != nil {
		t.Fatal(err)
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
