package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"nvop/nvmeioctl/sim/ftl"
)

// The flash section of a state file, little endian:
//
//	magic       8 bytes
//	drive       bytes a map page stands for, of a mapping unit, of capacity (u64)
//	counts      hostCounts.fields (u64 each)
//	SLC cache   version 2, of a drive that has one: level, programmed (u64)
//	namespaces  how many (u32), then each: NSID (u32), size (u64), extents (u32),
//	            then each: logical page, pages (u32)
//	flash       package ftl's, to the end
const (
	mediaMagic  = "nvopMED\x01"
	mediaMagic2 = "nvopMED\x02"
)

// magic is that of the version this drive's section has.
func (m *flashMedia) magic() string {
	if m.slc != nil {
		return mediaMagic2
	}
	return mediaMagic
}

// MarshalBinary implements media.
func (m *flashMedia) MarshalBinary() ([]byte, error) {
	le := binary.LittleEndian
	b := make([]byte, 0, 1<<12+5*int(m.flash.Config().LogicalPages))
	b = append(b, m.magic()...)
	for _, v := range []uint64{m.unitBytes, m.iuBytes, m.capacity} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range m.count.fields() {
		b = le.AppendUint64(b, *v)
	}
	if m.slc != nil {
		b = le.AppendUint64(b, m.slc.Level())
		b = le.AppendUint64(b, m.slc.Programmed())
	}
	b = le.AppendUint32(b, uint32(len(m.namespaces)))
	for _, nsid := range m.nsids() {
		n := m.namespaces[nsid]
		b = le.AppendUint32(b, nsid)
		b = le.AppendUint64(b, n.sizeBytes)
		b = le.AppendUint32(b, uint32(len(n.extents)))
		for _, e := range n.extents {
			b = le.AppendUint32(b, e.lpn)
			b = le.AppendUint32(b, e.pages)
		}
	}
	return m.flash.AppendBinary(b)
}

var errMediaDamaged = errors.New("flash section is damaged")

// mediaReader hands out little-endian numbers; after the end it gives zeros.
type mediaReader struct {
	b     []byte
	short bool
}

func (r *mediaReader) u64() uint64 {
	if len(r.b) < 8 {
		r.short, r.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *mediaReader) u32() uint32 {
	if len(r.b) < 4 {
		r.short, r.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// UnmarshalBinary implements media. The bytes must be of a drive of the same
// profile and scale.
func (m *flashMedia) UnmarshalBinary(data []byte) error {
	if len(data) < len(mediaMagic) || string(data[:len(mediaMagic)]) != m.magic() {
		return fmt.Errorf("%w: no header of this version in its %d bytes", errMediaDamaged, len(data))
	}
	r := &mediaReader{b: data[len(mediaMagic):]}
	for _, want := range []uint64{m.unitBytes, m.iuBytes, m.capacity} {
		if got := r.u64(); got != want {
			return fmt.Errorf("%w: it is of another drive (%d, not %d)", errMediaDamaged, got, want)
		}
	}
	var count hostCounts
	for _, v := range count.fields() {
		*v = r.u64()
	}
	var slc ftl.SLC
	if m.slc != nil {
		slc = *m.slc
		if err := slc.Restore(r.u64(), r.u64()); err != nil {
			return fmt.Errorf("%w: %w", errMediaDamaged, err)
		}
	}
	namespaces, err := m.decodeNamespaces(r)
	if err != nil {
		return err
	}
	flash := &ftl.FTL{}
	if err := flash.UnmarshalBinary(r.b); err != nil {
		return fmt.Errorf("%w: %w", errMediaDamaged, err)
	}
	if flash.Config() != m.flash.Config() {
		return fmt.Errorf("%w: its flash is of another drive", errMediaDamaged)
	}
	var mapped uint64
	for _, n := range namespaces {
		n.countMapped(flash)
		mapped += n.mapped
	}
	if mapped != uint64(flash.MappedPages()) {
		return fmt.Errorf("%w: data outside of every namespace", errMediaDamaged)
	}
	m.flash, m.count, m.namespaces = flash, count, namespaces
	if m.slc != nil {
		*m.slc = slc
	}
	m.buffer.Drain()
	m.generation++
	return nil
}

func (m *flashMedia) decodeNamespaces(r *mediaReader) (map[uint32]*nsMap, error) {
	logical := uint64(m.flash.Config().LogicalPages)
	namespaces := map[uint32]*nsMap{}
	var all []extent
	last := uint32(0)
	for range r.u32() {
		nsid := r.u32()
		n := &nsMap{sizeBytes: r.u64(), salt: mix64(m.seed ^ uint64(nsid)<<32)}
		for range r.u32() {
			e := extent{lpn: r.u32(), pages: r.u32()}
			if r.short || e.pages == 0 || uint64(e.lpn)+uint64(e.pages) > logical {
				return nil, fmt.Errorf("%w: namespace %d has pages beyond the map", errMediaDamaged, nsid)
			}
			n.extents = append(n.extents, e)
		}
		if r.short || nsid <= last || n.sizeBytes == 0 || n.sizeBytes > m.capacity {
			return nil, fmt.Errorf("%w: namespace %d of %d bytes", errMediaDamaged, nsid, n.sizeBytes)
		}
		last = nsid
		n.finish()
		if n.pages > uint64(m.pagesFor(n.sizeBytes)) {
			return nil, fmt.Errorf("%w: namespace %d has %d map pages", errMediaDamaged, nsid, n.pages)
		}
		namespaces[nsid] = n
		all = append(all, n.extents...)
	}
	slices.SortFunc(all, func(a, b extent) int { return int(int64(a.lpn) - int64(b.lpn)) })
	for i := 1; i < len(all); i++ {
		if all[i].lpn < all[i-1].lpn+all[i-1].pages {
			return nil, fmt.Errorf("%w: map page %d has two namespaces", errMediaDamaged, all[i].lpn)
		}
	}
	return namespaces, nil
}

func (n *nsMap) countMapped(f *ftl.FTL) {
	n.mapped = 0
	for _, e := range n.extents {
		for lpn := e.lpn; lpn < e.lpn+e.pages; lpn++ {
			if f.Mapped(lpn) {
				n.mapped++
			}
		}
	}
}

// mulDiv is a*b/c without overflow between; the result must fit.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}
