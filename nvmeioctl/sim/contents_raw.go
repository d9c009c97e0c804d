package sim

import (
	"fmt"
	"math"

	"nvop/nvmeioctl"
)

// rawBytesMax bounds one raw edit and a snapshot, in bytes of contents.
const rawBytesMax = 1 << 30

// Raw is the contents of one namespace as they are on the medium, below every
// command, cache and counter: where a bit flips, a block goes to the wrong
// place or an old one comes back without the drive knowing. What is in a
// volatile write cache is not on the medium, and hides an edit until it is
// flushed. Edits happen between commands; it is safe for concurrent use.
//
// Blocks are logical blocks as they are stored: with their metadata where the
// format has it in the data.
type Raw struct {
	d    *Drive
	nsid uint32
}

// Raw gives the contents of a namespace, which need not be attached. The drive
// must keep contents.
func (d *Drive) Raw(nsid uint32) (*Raw, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &Raw{d: d, nsid: nsid}
	_, _, err := r.open()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// open finds the store and the namespace. The drive's lock is held.
func (r *Raw) open() (blockStore, *namespace, error) {
	if err := r.d.lost(); err != nil {
		return nil, nil, err
	}
	k := r.d.kept()
	if k == nil {
		return nil, nil, &nvmeioctl.UnsupportedError{Feature: "raw edit of " + r.d.name, Needs: "a drive that keeps its contents", Have: "this one does not"}
	}
	ns := r.d.st.find(r.nsid)
	if ns == nil {
		return nil, nil, fmt.Errorf("%s: there is no namespace %d", r.d.name, r.nsid)
	}
	return k.store, ns, nil
}

// rawSpan is a range of logical blocks in the store.
type rawSpan struct {
	store         blockStore
	nsid          uint32
	offset, bytes uint64
}

func (s rawSpan) read() ([]byte, error) {
	b := make([]byte, s.bytes)
	return b, s.store.read(s.nsid, b, s.offset)
}

// span checks a range of blocks. The drive's lock is held.
func (r *Raw) span(lba, blocks uint64) (rawSpan, error) {
	store, ns, err := r.open()
	if err != nil {
		return rawSpan{}, err
	}
	stride := r.d.st.stride(ns)
	switch {
	case blocks == 0 || blocks > ns.SizeBlocks || lba > ns.SizeBlocks-blocks:
		return rawSpan{}, fmt.Errorf("%s: namespace %d has no logical blocks %d to %d: it has %d", r.d.name, r.nsid, lba, lba+blocks-1, ns.SizeBlocks)
	case blocks > rawBytesMax/stride:
		return rawSpan{}, fmt.Errorf("%s: raw edit of %d logical blocks: %d bytes at a time are the limit", r.d.name, blocks, rawBytesMax)
	}
	return rawSpan{store: store, nsid: r.nsid, offset: lba * stride, bytes: blocks * stride}, nil
}

// BlockBytes is how many bytes a logical block takes in the contents.
func (r *Raw) BlockBytes() (int, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	_, ns, err := r.open()
	if err != nil {
		return 0, err
	}
	return int(r.d.st.stride(ns)), nil
}

// blocksOf is how many blocks a buffer holds, an error unless they are whole.
func (r *Raw) blocksOf(b []byte) (uint64, error) {
	_, ns, err := r.open()
	if err != nil {
		return 0, err
	}
	stride := r.d.st.stride(ns)
	if uint64(len(b))%stride != 0 {
		return 0, fmt.Errorf("%s: %d bytes are not whole logical blocks of %d", r.d.name, len(b), stride)
	}
	return uint64(len(b)) / stride, nil
}

// Read reads logical blocks from lba on; b holds whole blocks.
func (r *Raw) Read(lba uint64, b []byte) error {
	return r.move(lba, b, func(s rawSpan) error { return s.store.read(s.nsid, b, s.offset) })
}

// Write writes logical blocks from lba on; b holds whole blocks.
func (r *Raw) Write(lba uint64, b []byte) error {
	return r.move(lba, b, func(s rawSpan) error { return s.store.write(s.nsid, b, s.offset) })
}

func (r *Raw) move(lba uint64, b []byte, f func(rawSpan) error) error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	blocks, err := r.blocksOf(b)
	if err != nil {
		return err
	}
	s, err := r.span(lba, blocks)
	if err != nil {
		return err
	}
	return f(s)
}

// Copy puts blocks in the place of others: what was there is gone, as after a
// misdirected write. The ranges may overlap.
func (r *Raw) Copy(from, to, blocks uint64) error {
	return r.pair(from, to, blocks, func(a, b rawSpan, source, _ []byte) error { return b.store.write(b.nsid, source, b.offset) })
}

// Swap exchanges two ranges of blocks, which may not overlap.
func (r *Raw) Swap(a, b, blocks uint64) error {
	if blocks > 0 && max(a, b)-min(a, b) < blocks {
		return fmt.Errorf("%s: swap: the ranges of %d blocks at %d and %d overlap", r.d, blocks, a, b)
	}
	return r.pair(a, b, blocks, func(a, b rawSpan, first, second []byte) error {
		if err := b.store.write(b.nsid, first, b.offset); err != nil {
			return err
		}
		return a.store.write(a.nsid, second, a.offset)
	})
}

// pair calls f with two ranges of blocks and what they hold.
func (r *Raw) pair(a, b, blocks uint64, f func(a, b rawSpan, first, second []byte) error) error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	first, err := r.span(a, blocks)
	if err != nil {
		return err
	}
	second, err := r.span(b, blocks)
	if err != nil {
		return err
	}
	x, err := first.read()
	if err != nil {
		return err
	}
	y, err := second.read()
	if err != nil {
		return err
	}
	return f(first, second, x, y)
}

// Flip inverts one bit of a block, counted from bit 0 of its first byte.
func (r *Raw) Flip(lba, bit uint64) error {
	return r.edit(lba, 1, func(b []byte) error {
		if bit/8 >= uint64(len(b)) {
			return fmt.Errorf("%s: flip: bit %d is not in a block of %d bytes", r.d, bit, len(b))
		}
		b[bit/8] ^= 1 << (bit % 8)
		return nil
	})
}

// Tear makes a write of blocks look half done: the first keepBytes of the range
// stay, the rest is what old has there, or zeros where old is nil. old must hold
// all of the range.
func (r *Raw) Tear(lba, blocks, keepBytes uint64, old *Snapshot) error {
	return r.edit(lba, blocks, func(b []byte) error {
		if keepBytes > uint64(len(b)) {
			return fmt.Errorf("%s: tear: %d bytes are more than the %d of the range", r.d, keepBytes, len(b))
		}
		if old == nil {
			clear(b[keepBytes:])
			return nil
		}
		was, err := old.part(lba, blocks, uint64(len(b)))
		if err != nil {
			return fmt.Errorf("%s: tear: %w", r.d, err)
		}
		copy(b[keepBytes:], was[keepBytes:])
		return nil
	})
}

// edit changes what a range of blocks holds.
func (r *Raw) edit(lba, blocks uint64, change func([]byte) error) error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	s, err := r.span(lba, blocks)
	if err != nil {
		return err
	}
	b, err := s.read()
	if err != nil {
		return err
	}
	if err := change(b); err != nil {
		return err
	}
	return s.store.write(s.nsid, b, s.offset)
}

// Snapshot is what blocks held at a time. It is plain data.
type Snapshot struct {
	// LBA is the first of the blocks.
	LBA uint64
	// BlockBytes is how many bytes each takes.
	BlockBytes uint32
	// Data is what they hold, whole blocks.
	Data []byte
}

// Blocks is how many blocks the snapshot has.
func (s *Snapshot) Blocks() uint64 {
	if s.BlockBytes == 0 {
		return 0
	}
	return uint64(len(s.Data)) / uint64(s.BlockBytes)
}

// part is what the snapshot has of a range that takes so many bytes.
func (s *Snapshot) part(lba, blocks, bytes uint64) ([]byte, error) {
	have := s.Blocks()
	if blocks == 0 || bytes/blocks != uint64(s.BlockBytes) {
		return nil, fmt.Errorf("the snapshot has logical blocks of %d bytes, not of this format", s.BlockBytes)
	}
	if lba < s.LBA || blocks > have || lba-s.LBA > have-blocks {
		return nil, fmt.Errorf("the snapshot has logical blocks %d to %d", s.LBA, s.LBA+have-min(have, 1))
	}
	at := (lba - s.LBA) * uint64(s.BlockBytes)
	return s.Data[at : at+bytes], nil
}

// Snapshot remembers what a range of blocks holds.
func (r *Raw) Snapshot(lba, blocks uint64) (*Snapshot, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	s, err := r.span(lba, blocks)
	if err != nil {
		return nil, err
	}
	stride := s.bytes / blocks
	if stride > math.MaxUint32 {
		return nil, fmt.Errorf("%s: logical blocks of %d bytes", r.d.name, stride)
	}
	b, err := s.read()
	if err != nil {
		return nil, err
	}
	return &Snapshot{LBA: lba, BlockBytes: uint32(stride), Data: b}, nil
}

// Restore brings back what a range of blocks held, as if later writes had
// never reached the medium. The snapshot must have all of the range.
func (r *Raw) Restore(s *Snapshot, lba, blocks uint64) error {
	return r.edit(lba, blocks, func(b []byte) error {
		was, err := s.part(lba, blocks, uint64(len(b)))
		if err != nil {
			return fmt.Errorf("%s: restore: %w", r.d, err)
		}
		copy(b, was)
		return nil
	})
}
