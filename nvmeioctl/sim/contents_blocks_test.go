package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/pattern"
)

func soakData(t testing.TB, c pattern.Config) *pattern.Source {
	t.Helper()
	s, err := pattern.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A blocks store is a store: whatever is written, punched and read, of nvop's
// blocks and of others, whole and in part, it gives what a plain store gives.
func TestBlocksStore_isAStore(t *testing.T) {
	sources := []*pattern.Source{
		soakData(t, pattern.Config{Run: 1, Seed: 7, BlockBytes: 4096}),
		soakData(t, pattern.Config{Run: 2, Seed: 7, BlockBytes: 4096, CompressPermille: 500}),
		soakData(t, pattern.Config{Run: 3, Seed: 8, BlockBytes: 4096, DedupPermille: 100, RegionBlocks: 64}),
		soakData(t, pattern.Config{Run: 4, Seed: 9, BlockBytes: 512}),
	}
	const size, blocks = 4096, 96
	rapid.Check(t, func(rt *rapid.T) {
		stride := func(uint32) uint64 { return size }
		got, want := newBlocksMemory(1<<26, stride), newMemoryStore(1<<26, memoryPageBytes)
		fail := func(what string, err error) {
			if err != nil {
				rt.Fatalf("%s: %v", what, err)
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			lba := rapid.Uint64Range(0, blocks-1).Draw(rt, "lba")
			n := rapid.Uint64Range(1, blocks-lba).Draw(rt, "blocks")
			b, offset := make([]byte, n*size), lba*size
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0, 1, 2: // blocks of a soak, where they belong or elsewhere
				s := rapid.SampledFrom(sources).Draw(rt, "source")
				s.Fill(b, lba+rapid.SampledFrom([]uint64{0, 0, 5, 1 << 50}).Draw(rt, "moved"), rapid.SampledFrom([]uint64{0, 1, 77, 1 << 50}).Draw(rt, "generation"))
				if rapid.Bool().Draw(rt, "rot") {
					b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] ^= 1
				}
			case 3: // others
				rand.NewChaCha8([32]byte{byte(lba)}).Read(b)
			case 4: // a part of a block and of the next
				from := rapid.Uint64Range(0, n*size-1).Draw(rt, "from")
				b, offset = b[:rapid.Uint64Range(1, n*size-from).Draw(rt, "bytes")], offset+from
				for i := range b {
					b[i] = byte(i)
				}
			case 5: // zeros
			case 6:
				from := rapid.Uint64Range(0, n*size-1).Draw(rt, "from")
				length := rapid.Uint64Range(1, n*size-from).Draw(rt, "bytes")
				fail("punch", got.punch(1, offset+from, length))
				fail("punch", want.punch(1, offset+from, length))
				continue
			}
			fail("write", got.write(1, b, offset))
			fail("write", want.write(1, b, offset))
		}
		x, y := make([]byte, blocks*size), make([]byte, blocks*size)
		fail("read", got.read(1, x, 0))
		fail("read", want.read(1, y, 0))
		if !bytes.Equal(x, y) {
			rt.Fatal("it reads differently")
		}
		from := rapid.Uint64Range(0, blocks*size-1).Draw(rt, "from")
		part := make([]byte, rapid.Uint64Range(1, blocks*size-from).Draw(rt, "bytes"))
		fail("read a part", got.read(1, part, from))
		if !bytes.Equal(part, y[from:from+uint64(len(part))]) {
			rt.Fatal("a part of it reads differently")
		}
	})
}

// What is not a soak's takes space, and gives it back when a soak's takes its
// place.
func TestBlocksStore_keepsOnlyRecords(t *testing.T) {
	const size = 4096
	s := newBlocksMemory(1<<26, func(uint32) uint64 { return size })
	src := soakData(t, pattern.Config{Run: 1, Seed: 7, BlockBytes: size})
	whole := s.whole.(*memoryStore)
	b := bytes.Repeat([]byte("others' "), memoryPageBytes/8)
	if err := s.write(1, b, 0); err != nil || len(whole.pages) != 1 {
		t.Fatalf("%v, %d pages of whole blocks", err, len(whole.pages))
	}
	src.Fill(b, 0, 3)
	for at := 0; at < len(b); at += size { // block by block, so that each punches its own
		if err := s.write(1, b[at:at+size], uint64(at)); err != nil {
			t.Fatal(err)
		}
	}
	zero := true
	for _, p := range whole.pages {
		zero = zero && isZero(p)
	}
	if !zero {
		t.Error("whole blocks stay where a soak has overwritten them")
	}
	if len(s.kinds) != 1 {
		t.Errorf("one run has %d kinds", len(s.kinds))
	}
}

// Misdirected blocks are kept whole once there are too many kinds of them.
func TestBlocksStore_boundsItsTable(t *testing.T) {
	const size = 512
	s := newBlocksMemory(1<<26, func(uint32) uint64 { return size })
	src := soakData(t, pattern.Config{Run: 1, Seed: 7, BlockBytes: size})
	b, got := make([]byte, size), make([]byte, size)
	for i := range uint64(2 * movedKindsMax) {
		src.Fill(b, i*i, 1)
		if err := s.write(1, b, i*size); err != nil {
			t.Fatal(err)
		}
		if err := s.read(1, got, i*size); err != nil || !bytes.Equal(b, got) {
			t.Fatalf("block %d: %v, equal %v", i, err, bytes.Equal(b, got))
		}
	}
	if len(s.kinds) > movedKindsMax+1 {
		t.Errorf("%d kinds", len(s.kinds))
	}
}

// blocksDrive makes a drive in a file that keeps blocks.
func blocksDrive(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drive.nvop")
	p, o := small(profile(t, "pblaze7-7940-7.68tb"))
	p.FactoryFormat = 1 // 4096 bytes
	o.Contents = ContentsBlocks
	if err := Create(path, p, o); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBlocks_surviveTheProcess(t *testing.T) {
	path := blocksDrive(t)
	src := soakData(t, pattern.Config{Run: 5, Seed: 11, BlockBytes: 4096})
	want := make([]byte, 40*4096)
	src.Fill(want, 100, 9)
	copy(want[4096*20:], bytes.Repeat([]byte("other"), 900)) // one of them is another's, one torn
	d, h := openKeptDrive(t, path)
	h.block = 4096
	h.write(1, 100, want, 0)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, h = openKeptDrive(t, path)
	h.block = 4096
	if got := h.read(1, 100, 40); !bytes.Equal(got, want) {
		t.Error("another process reads something else")
	}
	var disk int64
	for _, f := range []string{"ns1.0", "records/ns1.0", "kinds"} {
		var st fileUse
		st.of(t, filepath.Join(path+contentsSuffix, f))
		disk += st.bytes
	}
	if disk > 64<<10 {
		t.Errorf("%d bytes of disk for 38 records and 2 blocks", disk)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// A damaged table is noticed when the drive is opened.
	kinds := filepath.Join(path+contentsSuffix, kindsFile)
	b, err := os.ReadFile(kinds)
	if err != nil {
		t.Fatal(err)
	}
	b[3] ^= 1
	if err := os.WriteFile(kinds, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged table: %v", err)
	}
	// A table that has lost its end: the blocks it named are medium errors, not
	// other data.
	if err := os.Truncate(kinds, kindBytes/2); err != nil {
		t.Fatal(err)
	}
	_, h = openKeptDrive(t, path)
	if s := h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpRead, NSID: 1, CDW10: 100, Data: make([]byte, 4096)}).Status; s.Code() != nvmespec.StatusUnrecoveredRead {
		t.Errorf("a block whose kind is lost: %v", s)
	}
}

// A queue of a drive that keeps its contents moves data, and refuses a time lapse.
func TestContentsQueue(t *testing.T) {
	for _, mode := range []ContentsMode{ContentsSparse, ContentsBlocks} {
		d := newTestDrive(t, "client-1tb", func(p *Profile, o *Options) {
			p.FactoryFormat, o.Contents = 0, mode
		})
		if _, err := d.Queue(1, 8, 2); !errors.Is(err, nvmeioctl.ErrNotSupported) || !strings.Contains(fmt.Sprint(err), "time lapse") {
			t.Errorf("time lapse with contents: %v", err)
		}
		q, err := d.Queue(1, 8, 1)
		if err != nil {
			t.Fatal(err)
		}
		if disc, ok := q.(nvmeioctl.DataDiscarder); !ok || disc.DiscardsData() {
			t.Error("a queue with contents says that it discards data")
		}
		src := soakData(t, pattern.Config{Run: 5, Seed: 11, BlockBytes: 512})
		b, got := make([]byte, 4096), make([]byte, 4096)
		src.Fill(b, 80, 2)
		io := func(op nvmeioctl.IOOp, buf []byte, length int) nvmespec.Status {
			t.Helper()
			n, err := q.Submit([]nvmeioctl.IORequest{{Op: op, OffsetBytes: 80 * 512, LengthBytes: int32(length), Buf: buf}})
			if err != nil || n != 1 {
				t.Fatalf("%d, %v", n, err)
			}
			var r [1]nvmeioctl.IOResult
			if n, err := q.Reap(r[:], nvmeioctl.Never); n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			return r[0].Status
		}
		if s := io(nvmeioctl.OpWrite, b, 4096); s != 0 {
			t.Fatal(s)
		}
		if s := io(nvmeioctl.OpRead, got, 4096); s != 0 || !bytes.Equal(b, got) {
			t.Fatalf("status %v, equal %v", s, bytes.Equal(b, got))
		}
		if s := io(nvmeioctl.OpFlush, nil, 0); s != 0 {
			t.Fatal(s)
		}
		if s := io(nvmeioctl.OpRead, make([]byte, 4096), 4000); s == 0 {
			t.Error("a part of a block was read")
		}
		if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpWrite, LengthBytes: 4096}}); err == nil {
			t.Error("a write without a buffer")
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContents_modes(t *testing.T) {
	for name, want := range map[string]ContentsMode{"": ContentsOnDemand, "none": ContentsNone, "sparse": ContentsSparse, "blocks": ContentsBlocks} {
		if m, err := ParseContentsMode(name); err != nil || m != want || m.String() != name {
			t.Errorf("%q: %v, %v", name, m, err)
		}
	}
	if _, err := ParseContentsMode("all"); err == nil {
		t.Error("a mode called all")
	}
	d := newTestDrive(t, "client-1tb", func(_ *Profile, o *Options) { o.Contents = ContentsNone })
	if err := d.KeepContents(); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("contents none: %v", err)
	}
	d = newTestDrive(t, "client-1tb", nil)
	q, err := d.Queue(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.KeepContents(); err == nil {
		t.Error("contents are kept behind the back of a queue that discards them")
	}
	if err := errors.Join(q.Close(), d.KeepContents()); err != nil {
		t.Error(err)
	}
}

// TestBlocks_twoMillion is the cost of a huge soak: so many distinct blocks of
// 4 KiB through a queue, all read back and checked. NVOP_LONG=1 writes two
// million, otherwise it is a hundredth of that.
func TestBlocks_twoMillion(t *testing.T) {
	blocks := 20_000
	if os.Getenv("NVOP_LONG") != "" {
		blocks = 2_000_000
	}
	t.Logf("%d blocks", blocks)
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(p *Profile, o *Options) { p.FactoryFormat, o.Contents = 1, ContentsBlocks })
	q, err := d.Queue(1, 64, 1)
	if err != nil {
		t.Fatal(err)
	}
	src := soakData(t, pattern.Config{Run: 5, Seed: 11, BlockBytes: 4096})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	buf := make([]byte, 4096)
	var r [1]nvmeioctl.IOResult
	one := func(op nvmeioctl.IOOp, lba int) {
		if n, err := q.Submit([]nvmeioctl.IORequest{{Op: op, OffsetBytes: int64(lba) * 4096, LengthBytes: 4096, Buf: buf}}); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if n, err := q.Reap(r[:], nvmeioctl.Never); n != 1 || err != nil || r[0].Status != 0 {
			t.Fatalf("block %d: %d, %v, status %v", lba, n, err, r[0].Status)
		}
	}
	for i := range blocks {
		src.Fill(buf, uint64(i), 3)
		one(nvmeioctl.OpWrite, i)
	}
	grown := int64(heap()) - int64(before)
	for i := range blocks {
		one(nvmeioctl.OpRead, i)
		if src.Check(buf, uint64(i), 3) != 1 {
			t.Fatalf("block %d is not what was written", i)
		}
	}
	t.Logf("%d bytes of memory a block", grown/int64(blocks))
	if grown > int64(blocks)*32+4<<20 {
		t.Errorf("%d blocks take %d bytes of memory", blocks, grown)
	}
}

// BenchmarkContents is reading and writing a drive that keeps contents.
func BenchmarkContents(b *testing.B) {
	src := soakData(b, pattern.Config{Run: 5, Seed: 11, BlockBytes: 4096})
	for _, mode := range []ContentsMode{ContentsSparse, ContentsBlocks} {
		for _, where := range []string{"memory", "file"} {
			d := newTestDrive(b, "pblaze7-7940-7.68tb", func(p *Profile, o *Options) { p.FactoryFormat, o.Contents = 1, mode })
			if where == "file" {
				path := filepath.Join(b.TempDir(), "drive.nvop")
				if err := Create(path, d.Profile(), Options{Scale: d.st.Options.Scale, Contents: mode}); err != nil {
					b.Fatal(err)
				}
				d, _ = openKeptDrive(b, path)
			}
			q, err := d.Queue(1, 1, 1)
			if err != nil {
				b.Fatal(err)
			}
			const blocks = 1 << 14
			buf := make([]byte, 4096)
			var r [1]nvmeioctl.IOResult
			for _, op := range []nvmeioctl.IOOp{nvmeioctl.OpWrite, nvmeioctl.OpRead} {
				b.Run(fmt.Sprintf("%s/%s/%d", mode, where, op), func(b *testing.B) {
					b.SetBytes(4096)
					for i := 0; b.Loop(); i++ {
						if op == nvmeioctl.OpWrite {
							src.Fill(buf, uint64(i%blocks), uint64(i/blocks))
						}
						if _, err := q.Submit([]nvmeioctl.IORequest{{Op: op, OffsetBytes: int64(i%blocks) * 4096, LengthBytes: 4096, Buf: buf}}); err != nil {
							b.Fatal(err)
						}
						if _, err := q.Reap(r[:], nvmeioctl.Never); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
