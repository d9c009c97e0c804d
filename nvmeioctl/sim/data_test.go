package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim/ftl"
)

// smallMedia is a flash of 3 GB mapped unit by unit, so that every write shows.
func smallMedia(t interface{ Fatal(...any) }, seed uint64) *flashMedia {
	p := pblaze7()
	p.CapacityBytes, p.MaxNamespaces = 1<<30, 8
	p.Flash.Layout = ftl.Layout{}
	p.Flash.UsableBytes = 3 << 29
	p.Flash.RandomWriteBytes = 1 << 30
	m, err := newFlashMedia(&p, Options{Scale: 2, Seed: seed}, nvmeioctl.NewVirtualClock(time.Unix(0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mediaModel keeps which map pages hold data, namespace by namespace.
type mediaModel struct {
	mapped        map[uint32][]bool
	size          map[uint32]uint64
	written, read uint64
	streams       tails // a write that continues a stream is not rounded to units
}

// room is how much capacity no namespace has.
func (mm *mediaModel) room(capacity uint64) uint64 {
	for _, s := range mm.size {
		capacity -= s
	}
	return capacity
}

// access repeats on the model what it does to the media.
func (mm *mediaModel) access(t *rapid.T, m *flashMedia, nsid uint32) {
	size := mm.size[nsid]
	offset := 512 * rapid.Uint64Range(0, size/512-1).Draw(t, "offset")
	length := 512 * rapid.Uint64Range(1, min((size-offset)/512, 1<<15)).Draw(t, "length")
	kind := rapid.SampledFrom([]mediaOp{mediaRead, mediaWrite, mediaWrite, mediaWrite, mediaDeallocate}).Draw(t, "kind")
	if s := m.access(kind, nsid, offset, length); s != 0 {
		t.Fatalf("status %#x", s)
	}
	lo, hi := offset, offset+length
	switch kind {
	case mediaRead:
		mm.read += length
		return
	case mediaWrite:
		mm.written += length
		if !mm.streams.sequential(nsid, offset, length) {
			lo, hi = lo&^4095, (hi+4095)&^4095
		}
	}
	// Where every point lies, the slow way.
	n := m.namespaces[nsid]
	granules := (n.sizeBytes + 511) / 512
	for i := range n.pages {
		point := i*granules + mulHigh(mix64(n.salt^i), granules) // in 512 bytes/n.pages
		if lo/512*n.pages <= point && point < (hi+511)/512*n.pages {
			mm.mapped[nsid][i] = kind == mediaWrite
		}
	}
}

// The media against the model through creating, deleting, formatting, writing,
// deallocating, saving and loading.
func TestFlashMedia_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := smallMedia(t, rapid.Uint64().Draw(t, "seed"))
		mm := &mediaModel{mapped: map[uint32][]bool{}, size: map[uint32]uint64{}}
		empty := func(nsid uint32) { mm.mapped[nsid] = make([]bool, m.namespaces[nsid].pages) }
		for range rapid.IntRange(1, 40).Draw(t, "ops") {
			nsid := rapid.Uint32Range(1, 6).Draw(t, "nsid")
			exists := mm.size[nsid] != 0
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op == 0 && exists:
				m.namespaceDeleted(nsid)
				delete(mm.mapped, nsid)
				delete(mm.size, nsid)
			case op == 1 && exists:
				m.namespaceFormatted(nsid, mm.size[nsid], rapid.Bool().Draw(t, "erase"))
				empty(nsid)
			case op == 2:
				m = reloaded(t, m)
				mm.streams = tails{}
			case exists:
				mm.access(t, m, nsid)
			case mm.room(m.capacity) >= 4096:
				mm.size[nsid] = 4096 * rapid.Uint64Range(1, mm.room(m.capacity)/4096).Draw(t, "size")
				m.namespaceCreated(nsid, mm.size[nsid])
				empty(nsid)
			}
		}
		mm.compare(t, m)
	})
}

// reloaded is the media after a way through bytes.
func reloaded(t *rapid.T, m *flashMedia) *flashMedia {
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	n := smallMedia(t, m.seed)
	if err := n.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if again, _ := n.MarshalBinary(); !bytes.Equal(b, again) {
		t.Fatal("the bytes of what was read back differ")
	}
	return n
}

func (mm *mediaModel) compare(t *rapid.T, m *flashMedia) {
	if err := m.flash.Check(); err != nil {
		t.Fatal(err)
	}
	c := m.counters()
	if len(c.MappedBytes) != len(mm.size) {
		t.Fatalf("namespaces %v, model has %v", c.MappedBytes, mm.size)
	}
	for nsid, pages := range mm.mapped {
		n, count := m.namespaces[nsid], uint64(0)
		for i, want := range pages {
			if m.flash.Mapped(n.lpn(uint32(i))) != want {
				t.Fatalf("namespace %d, map page %d: model says %v", nsid, i, want)
			}
			if want {
				count++
			}
		}
		if n.pages == 0 || n.mapped != count || c.MappedBytes[nsid] != mulDiv(mm.size[nsid], count, n.pages) {
			t.Fatalf("namespace %d: %d of %d pages mapped, %d bytes; model says %d pages of %d bytes",
				nsid, n.mapped, n.pages, c.MappedBytes[nsid], count, mm.size[nsid])
		}
	}
	if c.HostWriteBytes != nvmespec.U128(mm.written) || c.HostReadBytes != nvmespec.U128(mm.read) {
		t.Fatalf("wrote %v and read %v, model says %d and %d", c.HostWriteBytes, c.HostReadBytes, mm.written, mm.read)
	}
}

// Whatever the lapse, one pass over the address space in pieces of any size
// writes every map page exactly once.
func TestSpace_passCoversEachPageOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &nsMap{
			sizeBytes: 512 * rapid.Uint64Range(1<<10, maxGranules-1).Draw(t, "blocks"),
			salt:      rapid.Uint64().Draw(t, "salt"),
			extents:   []extent{{0, rapid.Uint32Range(1, 5000).Draw(t, "pages")}},
		}
		n.finish()
		s := n.space(rapid.Uint64Range(1, max(1, n.sizeBytes>>13)).Draw(t, "lapse"))
		step := max(1, s.bytes/rapid.Uint64Range(1, 3000).Draw(t, "pieces")) &^ 511
		step = max(step, 512)
		seen := make([]int, n.pages)
		for at := uint64(0); at < s.bytes; at += step {
			lo, hi := s.scaled(at, min(at+step, s.bytes))
			for i := lo / s.granules; i*s.granules < hi; i++ {
				if n.covers(&s, i, lo, hi) {
					seen[i]++
				}
			}
		}
		for i, c := range seen {
			if c != 1 {
				t.Fatalf("map page %d written %d times", i, c)
			}
		}
	})
}

func TestFlashScale(t *testing.T) {
	for _, p := range Profiles() {
		cfg, scale, err := flashScale(&p, Options{})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		unit := float64(scale) * float64(p.Flash.IndirectionBytes)
		alpha := cfg.Geometry.EffectivePages() * unit / float64(p.CapacityBytes)
		within(t, p.Name+": alpha", alpha, float64(p.Flash.UsableBytes)/float64(p.CapacityBytes), 2e-4)
		if cfg.Geometry.Superblocks < 256 || cfg.Geometry.PagesPerSuperblock < 512 {
			t.Errorf("%s: %+v is too small", p.Name, cfg.Geometry)
		}
		within(t, p.Name+": map pages", float64(cfg.LogicalPages), 1<<20, 0.01)
		for _, s := range []uint32{1, uint32(scale * 13), 1<<32 - 1} {
			if _, _, err := flashScale(&p, Options{Scale: s}); err == nil {
				t.Errorf("%s: scale %d was accepted", p.Name, s)
			}
		}
	}
}

func TestFlashMedia_fragments(t *testing.T) {
	m := smallMedia(t, 1)
	quarter := m.capacity / 4
	for nsid := uint32(1); nsid <= 4; nsid++ {
		m.namespaceCreated(nsid, quarter)
	}
	m.namespaceDeleted(1)
	m.namespaceDeleted(3)
	m.namespaceCreated(5, 2*quarter) // two holes
	n := m.namespaces[5]
	if len(n.extents) != 2 || n.pages != uint64(m.pagesFor(2*quarter)) {
		t.Fatalf("%d pages in %v", n.pages, n.extents)
	}
	if s := m.access(mediaWrite, 5, 0, 2*quarter); s != 0 {
		t.Fatalf("status %#x", s)
	}
	want := map[uint32]uint64{2: 0, 4: 0, 5: 2 * quarter}
	if diff := cmp.Diff(want, m.counters().MappedBytes); diff != "" {
		t.Error(diff)
	}
}

func TestFlashMedia_accessStatuses(t *testing.T) {
	m := smallMedia(t, 1)
	m.namespaceCreated(1, 1<<20)
	for _, c := range []struct {
		nsid           uint32
		offset, length uint64
		want           nvmespec.Status
	}{
		{1, 0, 1 << 20, 0}, {1, 1 << 20, 0, 0}, {1, 1 << 20, 512, statusLBARange}, {1, 0, 1<<20 + 1, statusLBARange},
		{1, ^uint64(0), 2, statusLBARange}, {2, 0, 512, statusInvalidField},
	} {
		if got := m.access(mediaWrite, c.nsid, c.offset, c.length); got != c.want {
			t.Errorf("%+v: status %#x", c, got)
		}
	}
}

func usedMedia(t interface{ Fatal(...any) }) *flashMedia {
	m := smallMedia(t, 7)
	m.namespaceCreated(1, 1<<28)
	m.namespaceCreated(3, 1<<27)
	for i := range uint64(300) {
		m.access(mediaWrite, 1, i*7919%1000*4096, 1<<14)
		m.access(mediaRead, 3, i*4096, 4096)
	}
	return m
}

func TestFlashMedia_damage(t *testing.T) {
	m := usedMedia(t)
	good, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	head := len(good) - 300 // cut anywhere before the flash, and a few in it
	for n := range len(good) {
		if n > 400 && n < head && n%997 != 0 {
			continue
		}
		if err := m.UnmarshalBinary(good[:n]); !errors.Is(err, errMediaDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(good), err)
		}
	}
	other := smallMedia(t, 8) // another seed is another drive
	if err := other.UnmarshalBinary(good); !errors.Is(err, errMediaDamaged) {
		t.Errorf("another drive's state: %v", err)
	}
	again, err := m.MarshalBinary()
	if err != nil || !bytes.Equal(good, again) {
		t.Errorf("refused bytes changed the media: %v", err)
	}
}

func FuzzFlashMediaUnmarshal(f *testing.F) {
	good, err := usedMedia(f).MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	// Two namespaces with the same map pages: the second's extent moved to 0.
	overlap := slices.Clone(good)
	second := len(mediaMagic) + 3*8 + 8*len(new(hostCounts).fields()) + 4 + (4 + 8 + 4 + 8)
	binary.LittleEndian.PutUint32(overlap[second+4+8+4:], 0)
	f.Add(overlap)
	f.Add([]byte(mediaMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := smallMedia(t, 7)
		if err := m.UnmarshalBinary(b); err != nil {
			if !errors.Is(err, errMediaDamaged) {
				t.Fatalf("%v is not errMediaDamaged", err)
			}
			return
		}
		again, err := m.MarshalBinary()
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("accepted bytes do not come out again: %v", err)
		}
		for _, nsid := range m.nsids() {
			size := m.namespaces[nsid].sizeBytes
			m.access(mediaWrite, nsid, 0, size)
			m.access(mediaDeallocate, nsid, 0, size/2)
		}
		m.namespaceCreated(9, 1<<20)
		var mapped uint64
		for _, n := range m.namespaces {
			mapped += n.mapped
		}
		if mapped != uint64(m.flash.MappedPages()) {
			t.Fatalf("%d pages mapped in namespaces, %d in the flash", mapped, m.flash.MappedPages())
		}
		if err := m.flash.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// At the default scale a save costs a few milliseconds and megabytes.
func BenchmarkFlashMedia_marshal(b *testing.B) {
	d := resized(b, "pblaze7-7940-7.68tb", 0, Options{})
	fill(b, d, scaledSpace(d, 2000), 2000)
	var n int
	for b.Loop() {
		data, err := d.media.MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		n = len(data)
	}
	b.ReportMetric(float64(n), "bytes")
}

func TestTails(t *testing.T) {
	var s tails
	steps := []struct {
		nsid           uint32
		offset, length uint64
		want           bool
	}{
		{1, 0, 4096, false}, {1, 4096, 4096, true}, {2, 8192, 4096, false}, {1, 8192, 512, true},
		{1, 1 << 40, 4096, false}, {1, 8704, 512, true}, {1, 1<<40 + 4096, 4096, true}, {1, 8704, 512, false},
	}
	for i, c := range steps {
		if got := s.sequential(c.nsid, c.offset, c.length); got != c.want {
			t.Errorf("step %d, %+v: %v", i, c, got)
		}
	}
	// Sixteen interleaved streams are streams nearly always.
	missed := 0
	for i := range uint64(1000) {
		for stream := range uint64(16) {
			if !s.sequential(1, stream<<36+i*131072, 131072) && i > 0 {
				missed++
			}
		}
	}
	if missed > 16000/20 {
		t.Errorf("%d of 16000 missed", missed)
	}
}

func TestHeat(t *testing.T) {
	h := heat{milliKelvin: idleKelvin * 1000}
	now, busy := int64(0), uint64(0)
	var seen []uint16
	for range 60 {
		now += int64(time.Minute)
		busy += uint64(time.Minute)
		h.advance(now, busy)
		seen = append(seen, h.kelvin())
	}
	if !slices.IsSorted(seen) || seen[0] > idleKelvin+6 || seen[59] != busyKelvin {
		t.Errorf("busy for an hour: %v", seen)
	}
	h.advance(now+int64(10*time.Hour), busy)
	if h.kelvin() != idleKelvin {
		t.Errorf("idle for ten hours: %d K", h.kelvin())
	}
}

// One write, and how long a drive would have taken for it.
func ExampleDrive_Queue() {
	p, _ := LookupProfile("pblaze7-7940-7.68tb")
	drive, err := New(p, Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drive.Close()
	q, err := drive.Queue(1, 1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	if _, err := q.Submit([]nvmeioctl.IORequest{{Op: nvmeioctl.OpWrite, LengthBytes: 4096}}); err != nil {
		fmt.Println(err)
		return
	}
	var results [1]nvmeioctl.IOResult
	n, err := q.Reap(results[:], nvmeioctl.Never)
	fmt.Println(n, err, results[0].Status, time.Duration(results[0].Done))
	// Output: 1 <nil> success (0x000) 9µs
}
