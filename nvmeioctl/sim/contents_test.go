package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// dataHost moves blocks of a namespace by commands.
type dataHost struct {
	host
	block int
}

func (h dataHost) io(op uint8, nsid uint32, lba uint64, data []byte, cdw12 uint32) nvmespec.Status {
	h.t.Helper()
	return h.raw(nvmeioctl.Command{
		IO: true, Opcode: op, NSID: nsid, CDW10: uint32(lba), CDW11: uint32(lba >> 32),
		CDW12: uint32(len(data)/h.block-1) | cdw12, Data: data,
	}).Status
}

func (h dataHost) write(nsid uint32, lba uint64, data []byte, cdw12 uint32) {
	h.t.Helper()
	if s := h.io(nvmespec.IOOpWrite, nsid, lba, data, cdw12); s != 0 {
		h.t.Fatalf("write of block %d: %v", lba, s)
	}
}

func (h dataHost) read(nsid uint32, lba uint64, blocks int) []byte {
	h.t.Helper()
	b := bytes.Repeat([]byte{0xEE}, blocks*h.block)
	if s := h.io(nvmespec.IOOpRead, nsid, lba, b, 0); s != 0 {
		h.t.Fatalf("read of block %d: %v", lba, s)
	}
	return b
}

func (h dataHost) flush(nsid uint32) {
	h.t.Helper()
	if s := h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpFlush, NSID: nsid}).Status; s != 0 {
		h.t.Fatalf("flush: %v", s)
	}
}

func (h dataHost) deallocate(nsid uint32, lba uint64, blocks uint32) {
	h.t.Helper()
	r := make([]byte, 16)
	binary.LittleEndian.PutUint32(r[4:], blocks)
	binary.LittleEndian.PutUint64(r[8:], lba)
	if s := h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpDatasetManagement, NSID: nsid, CDW11: 4, Data: r}).Status; s != 0 {
		h.t.Fatalf("deallocate: %v", s)
	}
}

func dataOf(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ seed
	}
	return b
}

// newKeptDrive makes a drive that keeps its contents in memory.
func newKeptDrive(t testing.TB, name string, change func(*Profile, *Options)) (*Drive, dataHost) {
	t.Helper()
	d := newTestDrive(t, name, change)
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	return d, dataHost{host{t, d}, 512}
}

// openKeptDrive opens the drive in a file.
func openKeptDrive(t testing.TB, path string) (*Drive, dataHost) {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, dataHost{host{t, d}, 512}
}

func createKeptDrive(t testing.TB, name string) (string, *Drive, dataHost) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drive.nvop")
	p, o := small(profile(t, name))
	if err := Create(path, p, o); err != nil {
		t.Fatal(err)
	}
	d, h := openKeptDrive(t, path)
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	return path, d, h
}

// TestContents_surviveTheProcess: what is acknowledged is there after a kill,
// which saves nothing, even far out and across the border of two files.
func TestContents_surviveTheProcess(t *testing.T) {
	path, d, h := createKeptDrive(t, "pblaze7-7940-7.68tb")
	border := uint64(chunkBytes / 512)
	last := uint64(idema7680GB/512 - 4)
	for i, lba := range []uint64{0, 5, border - 2, last} {
		h.write(1, lba, dataOf(4*512, byte(i)), 0)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, h = openKeptDrive(t, path)
	for i, lba := range []uint64{0, 5, border - 2, last} {
		if got := h.read(1, lba, 4); !bytes.Equal(got, dataOf(4*512, byte(i))) {
			t.Errorf("block %d has other data after the process ended", lba)
		}
	}
	if got := h.read(1, 1<<20, 2); !bytes.Equal(got, make([]byte, 1024)) {
		t.Error("what was never written is not zero")
	}
	// A raw sector can be edited below the drive: it lies at its number times its size.
	raw, err := os.OpenFile(filepath.Join(path+contentsSuffix, "ns1.0"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.WriteAt([]byte{0xAB}, 5*512); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	if got := h.read(1, 5, 1); got[0] != 0xAB || !bytes.Equal(got[1:], dataOf(4*512, 1)[1:512]) {
		t.Error("an edit of the raw sector is not what is read")
	}
}

// TestContents_endWithTheirNamespace: nothing that was written outlives a
// format, a delete, or a deallocation, with the contents kept by this process
// or found by another.
func TestContents_endWithTheirNamespace(t *testing.T) {
	path, d, h := createKeptDrive(t, "pblaze7-7940-7.68tb")
	zero := make([]byte, 8*512)
	put := func() {
		h.write(1, 0, dataOf(8*512, 1), 0)
		h.write(1, uint64(chunkBytes/512), dataOf(8*512, 2), 0)
	}
	gone := func(what string) {
		t.Helper()
		for _, lba := range []uint64{0, uint64(chunkBytes / 512)} {
			if !bytes.Equal(h.read(1, lba, 8), zero) {
				t.Errorf("after %s block %d still has data", what, lba)
			}
		}
	}
	must := func(c nvmeioctl.Command) {
		t.Helper()
		if s := h.raw(c).Status; s != 0 {
			t.Fatal(s)
		}
	}
	put()
	must(nvmeioctl.Command{Opcode: nvmespec.AdminFormatNVM, NSID: 1})
	gone("a format")
	put()
	h.deallocate(1, 0, 8)
	h.deallocate(1, uint64(chunkBytes/512), 8)
	gone("a deallocation")
	put()
	// Another process, which never asked to keep contents.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, h = openKeptDrive(t, path)
	must(nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceManage, NSID: 1, CDW10: nvmespec.SelectDelete})
	size := uint64(idema6400GB / 512)
	must(nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceManage, CDW10: nvmespec.SelectCreate,
		Data: nvmespec.NamespaceCreate{SizeBlocks: size, CapacityBlocks: size}.Append(nil)})
	must(nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceAttach, NSID: 1, CDW10: nvmespec.SelectAttach,
		Data: nvmespec.AppendControllerList(nil, []uint16{d.Profile().FirstController})})
	gone("a delete and a create")
	files, err := filepath.Glob(filepath.Join(path+contentsSuffix, "ns*"))
	if err != nil || len(files) != 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

// TestContents_writeCache: a volatile write cache loses at a power cut what was
// not flushed, and nothing else.
func TestContents_writeCache(t *testing.T) {
	zero := make([]byte, 8*512)
	data := dataOf(8*512, 3)
	for _, c := range []struct {
		name, profile string
		cdw12         uint32
		before        func(*Drive, dataHost)
		clean, kept   bool
	}{
		{name: "unflushed", profile: "client-1tb"},
		{name: "flushed", profile: "client-1tb", before: func(_ *Drive, h dataHost) { h.flush(1) }, kept: true},
		{name: "flushed by broadcast", profile: "client-1tb", before: func(_ *Drive, h dataHost) { h.flush(nsidAll) }, kept: true},
		{name: "force unit access", profile: "client-1tb", cdw12: forceUnitAccess, kept: true},
		{name: "clean", profile: "client-1tb", clean: true, kept: true},
		{name: "power-loss protection", profile: "pblaze7-7940-7.68tb", kept: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, h := newKeptDrive(t, c.profile, nil)
			h.write(1, 3, data, c.cdw12)
			if !bytes.Equal(h.read(1, 3, 8), data) {
				t.Fatal("what was written is not what is read")
			}
			if c.before != nil {
				c.before(d, h)
			}
			if err := d.PowerCycle(c.clean); err != nil {
				t.Fatal(err)
			}
			want := zero
			if c.kept {
				want = data
			}
			if got := h.read(1, 3, 8); !bytes.Equal(got, want) {
				t.Errorf("after the power cut: kept %v, want %v", bytes.Equal(got, data), c.kept)
			}
		})
	}
}

// TestContents_writeCacheDisabled: without the cache every write is through.
func TestContents_writeCacheDisabled(t *testing.T) {
	d, h := newKeptDrive(t, "client-1tb", nil)
	if s := h.raw(nvmeioctl.Command{Opcode: nvmespec.AdminSetFeatures, CDW10: uint32(nvmespec.FeatureWriteCache)}).Status; s != 0 {
		t.Fatal(s)
	}
	h.write(1, 0, dataOf(512, 9), 0)
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(h.read(1, 0, 1), dataOf(512, 9)) {
		t.Error("a write was lost though the cache was disabled")
	}
}

// queueIO has a queue carry out one request.
func queueIO(t interface{ Fatalf(string, ...any) }, q nvmeioctl.IOQueue, r nvmeioctl.IORequest) {
	if n, err := q.Submit([]nvmeioctl.IORequest{r}); n != 1 || err != nil {
		t.Fatalf("submit: %d, %v", n, err)
	}
	var got [1]nvmeioctl.IOResult
	if n, err := q.Reap(got[:], nvmeioctl.Never); n != 1 || err != nil || got[0].Status != 0 {
		t.Fatalf("reap: %d, %v, status %v", n, err, got[0].Status)
	}
}

// TestContents_model compares a drive with a plain array under any sequence of
// commands; with a cache, also over power cuts: exactly what was neither flushed
// nor forced through is lost, to the block.
func TestContents_model(t *testing.T) {
	const blocks = 64
	for _, name := range []string{"pblaze7-7940-7.68tb", "client-1tb", "client-1tb/blocks"} {
		t.Run(name, func(t *testing.T) {
			model, mode, _ := strings.Cut(name, "/")
			d, h := newKeptDrive(t, model, func(p *Profile, o *Options) {
				p.NVMCommands |= uint16(nvmespec.IOWriteZeroes)
				o.Contents, _ = ParseContentsMode(mode)
			})
			q, err := d.Queue(1, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			volatile := d.Profile().VolatileWriteCache
			rapid.Check(t, func(rt *rapid.T) {
				if s := h.raw(nvmeioctl.Command{Opcode: nvmespec.AdminFormatNVM, NSID: 1}).Status; s != 0 {
					rt.Fatal(s)
				}
				now := make([]byte, blocks*512)     // what is read
				durable := make([]byte, blocks*512) // what a power cut leaves
				for range rapid.IntRange(1, 40).Draw(rt, "steps") {
					lba := rapid.IntRange(0, blocks-1).Draw(rt, "lba")
					n := rapid.IntRange(1, blocks-lba).Draw(rt, "blocks")
					part := now[lba*512:][:n*512]
					switch rapid.IntRange(0, 8).Draw(rt, "op") {
					case 0, 1:
						data := dataOf(n*512, byte(rapid.IntRange(1, 255).Draw(rt, "seed")))
						h.write(1, uint64(lba), data, 0)
						copy(part, data)
					case 2:
						h.deallocate(1, uint64(lba), uint32(n))
						clear(part)
						clear(durable[lba*512:][:n*512]) // deallocation is at once
					case 3:
						c := nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpWriteZeroes, NSID: 1, CDW10: uint32(lba), CDW12: uint32(n - 1)}
						if s := h.raw(c).Status; s != 0 {
							rt.Fatal(s)
						}
						clear(part)
						clear(durable[lba*512:][:n*512])
					case 4:
						h.flush(1)
						copy(durable, now)
					case 5:
						if err := d.PowerCycle(false); err != nil {
							rt.Fatal(err)
						}
						if volatile {
							copy(now, durable)
						}
					case 6, 7: // through the cache, by a command and by a queue
						data := dataOf(n*512, byte(rapid.IntRange(1, 255).Draw(rt, "seed")))
						if rapid.Bool().Draw(rt, "queue") {
							queueIO(rt, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, FUA: true, OffsetBytes: int64(lba) * 512, LengthBytes: int32(n) * 512, Buf: data})
						} else {
							h.write(1, uint64(lba), data, forceUnitAccess)
						}
						copy(part, data)
						copy(durable[lba*512:][:n*512], data)
					case 8: // a queue's writes wait in the cache, its flush is all of it
						if rapid.Bool().Draw(rt, "flush") {
							queueIO(rt, q, nvmeioctl.IORequest{Op: nvmeioctl.OpFlush})
							copy(durable, now)
							break
						}
						data := dataOf(n*512, byte(rapid.IntRange(1, 255).Draw(rt, "seed")))
						queueIO(rt, q, nvmeioctl.IORequest{Op: nvmeioctl.OpWrite, OffsetBytes: int64(lba) * 512, LengthBytes: int32(n) * 512, Buf: data})
						copy(part, data)
					}
					if !bytes.Equal(h.read(1, uint64(lba), n), part) {
						rt.Fatalf("blocks %d to %d differ", lba, lba+n-1)
					}
				}
				if !bytes.Equal(h.read(1, 0, blocks), now) {
					rt.Fatal("the contents differ")
				}
			})
		})
	}
}

// TestContents_extendedMetadata: metadata in the data comes back with it.
func TestContents_extendedMetadata(t *testing.T) {
	_, h := newKeptDrive(t, "pblaze7-7940-7.68tb", nil)
	const index, extended = 2, 1 << 4 // 512 + 8
	if s := h.raw(nvmeioctl.Command{Opcode: nvmespec.AdminFormatNVM, NSID: 1, CDW10: index | extended}).Status; s != 0 {
		t.Fatal(s)
	}
	h.block = 520
	a, b := dataOf(2*520, 1), dataOf(520, 2)
	h.write(1, 10, a, 0)
	h.write(1, 12, b, 0)
	if got := h.read(1, 10, 3); !bytes.Equal(got, append(bytes.Clone(a), b...)) {
		t.Error("blocks of 520 bytes do not come back")
	}
}

func TestContents_memoryIsBounded(t *testing.T) {
	m := newMemoryStore(2*memoryPageBytes, memoryPageBytes)
	if err := m.write(1, make([]byte, 2*memoryPageBytes), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.write(1, []byte{1}, 2*memoryPageBytes); !errors.Is(err, errContentsFull) {
		t.Errorf("a third page: %v", err)
	}
	if err := m.punch(1, 0, memoryPageBytes); err != nil {
		t.Fatal(err)
	}
	if err := m.write(1, []byte{1}, 2*memoryPageBytes); err != nil {
		t.Errorf("after a page was given back: %v", err)
	}
}

// TestContents_failingStoreIsAMediumError: the host's storage failing is told
// as the drive's medium failing, not as success.
func TestContents_failingStoreIsAMediumError(t *testing.T) {
	d, h := newKeptDrive(t, "client-1tb", nil)
	d.kept().store = newMemoryStore(0, memoryPageBytes)
	d.kept().cache.store = d.kept().store
	h.write(1, 0, dataOf(4096, 1), 0)
	if s := h.raw(nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpFlush, NSID: 1}).Status; s.Code() != 0x280 {
		t.Errorf("flush to a full store: %v", s)
	}
}

func TestContents_folderOfAnother(t *testing.T) {
	path, d, _ := createKeptDrive(t, "client-1tb")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+contentsSuffix, contentsOwner), []byte("OTHER\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a drive took the contents of another")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p, o := small(profile(t, "client-1tb"))
	if err := Create(path, p, o); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a new drive beside old contents: %v", err)
	}
}
