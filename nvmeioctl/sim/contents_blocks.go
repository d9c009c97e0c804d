package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"nvop/nvmeioctl/pattern"
)

// A blocksStore keeps of a block that a soak has written only what it cannot
// make again: a record of 8 bytes. All other blocks are kept whole.
//
// A record's upper 16 bits are its kind: 0 is a block of zeros, kindWhole one
// that is kept whole, any other a number in a table of (run, seed, shape,
// distance of the header's block number from where the block lies). The lower
// 48 bits are the block's generation, or the number of its content where
// contents repeat.
//
// So a block of 4 KiB costs 8 bytes of disk, 15 GB for all of a 7.68 TB drive;
// in memory about 10 bytes where blocks lie close together, and 600 where each
// lies alone (records are kept in pages of 64).
const (
	recordBytes = 8
	kindShift   = 48
	valueMax    = 1 << kindShift
	kindWhole   = 0xFFFF
	kindsMax    = kindWhole - 1
	// movedKindsMax bounds the kinds of blocks that do not lie where their
	// header says: misdirected ones are rare, and each is a kind of its own.
	movedKindsMax = 256
	// recordPageBytes is the page of records in memory.
	recordPageBytes = 64 * recordBytes
	// restoredSeeds is of how many runs pools are kept, 320 KiB each.
	restoredSeeds = 8
)

// blockKind is what blocks of one run have in common.
type blockKind struct {
	run, seed, distance uint64
	size                uint32
	keep                uint16
	duplicate           bool
}

// kindBytes is a kind as it is stored: run, seed, distance, size, kept bytes,
// duplicate, and a sum over them.
const kindBytes = 40

func (k *blockKind) append(b []byte) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = le.AppendUint64(b, k.run)
	b = le.AppendUint64(b, k.seed)
	b = le.AppendUint64(b, k.distance)
	b = le.AppendUint32(b, k.size)
	b = le.AppendUint16(b, k.keep)
	dup := uint16(0)
	if k.duplicate {
		dup = 1
	}
	b = le.AppendUint16(b, dup)
	return le.AppendUint64(b, uint64(crc(b[start:])))
}

func decodeKind(b []byte) (blockKind, bool) {
	le := binary.LittleEndian
	k := blockKind{
		run: le.Uint64(b), seed: le.Uint64(b[8:]), distance: le.Uint64(b[16:]),
		size: le.Uint32(b[24:]), keep: le.Uint16(b[28:]), duplicate: le.Uint16(b[30:]) == 1,
	}
	return k, le.Uint64(b[32:]) == uint64(crc(b[:32]))
}

// kindLog is where kinds are kept: appended to, never changed.
type kindLog interface {
	append(b []byte) error
	sync() error
	close() error
}

// errContentsDamaged: what is stored of a block makes no sense.
var errContentsDamaged = errors.New("what is stored of a block is damaged")

type blocksStore struct {
	records, whole blockStore
	log            kindLog // nil: in memory
	// stride is how many bytes a block of a namespace takes, 0 for no such
	// namespace.
	stride   func(nsid uint32) uint64
	restorer *pattern.Restorer
	kinds    []blockKind
	numbers  map[blockKind]uint16
	moved    int
	recs     []byte // scratch
	block    []byte // scratch
}

func newBlocksStore(records, whole blockStore, log kindLog, stride func(uint32) uint64) *blocksStore {
	return &blocksStore{records: records, whole: whole, log: log, stride: stride,
		restorer: pattern.NewRestorer(restoredSeeds), numbers: map[blockKind]uint16{}}
}

// newBlocksMemory keeps everything in memory, of whole blocks at most maxBytes.
func newBlocksMemory(maxBytes int, stride func(uint32) uint64) *blocksStore {
	return newBlocksStore(newMemoryStore(maxBytes, recordPageBytes), newMemoryStore(maxBytes, memoryPageBytes), nil, stride)
}

// loadKinds takes in the table of kinds as it was stored. A part of a kind at
// its end was being written when the process ended, and no record names it.
func (s *blocksStore) loadKinds(b []byte) error {
	for ; len(b) >= kindBytes; b = b[kindBytes:] {
		k, ok := decodeKind(b)
		if !ok {
			return fmt.Errorf("kind %d: %w", len(s.kinds)+1, errContentsDamaged)
		}
		s.addKind(k)
	}
	return nil
}

func (s *blocksStore) addKind(k blockKind) {
	s.kinds = append(s.kinds, k)
	s.numbers[k] = uint16(len(s.kinds))
	if k.distance != 0 {
		s.moved++
	}
}

// kindOf gives the number of a kind; 0 if there is no room for it.
func (s *blocksStore) kindOf(k blockKind) (uint16, error) {
	if n := s.numbers[k]; n != 0 {
		return n, nil
	}
	if len(s.kinds) >= kindsMax || k.distance != 0 && s.moved >= movedKindsMax {
		return 0, nil
	}
	if s.log != nil {
		if err := s.log.append(k.append(nil)); err != nil {
			return 0, err
		}
	}
	s.addKind(k)
	return s.numbers[k], nil
}

// record says how to keep a block that lies at a number.
func (s *blocksStore) record(b []byte, lba uint64) (uint64, error) {
	const whole = uint64(kindWhole) << kindShift
	h, ok := s.restorer.Intact(b)
	if !ok {
		if isZero(b) {
			return 0, nil
		}
		return whole, nil
	}
	k := blockKind{run: h.Run, seed: h.Seed, size: h.BlockBytes, keep: h.KeepBytes, duplicate: h.Duplicate}
	value := h.Generation
	if h.Duplicate {
		if h.Generation != 0 {
			return whole, nil
		}
		value = h.LBA
	} else {
		k.distance = h.LBA - lba
	}
	if value >= valueMax {
		return whole, nil
	}
	n, err := s.kindOf(k)
	if n == 0 || err != nil {
		return whole, err
	}
	return uint64(n)<<kindShift | value, nil
}

// restore makes the block that a record stands for.
func (s *blocksStore) restore(b []byte, record, lba uint64) error {
	n := int(record >> kindShift)
	if n > len(s.kinds) {
		return fmt.Errorf("block %d: %w: kind %d of %d", lba, errContentsDamaged, n, len(s.kinds))
	}
	k := &s.kinds[n-1]
	h := pattern.Header{Run: k.run, Seed: k.seed, BlockBytes: k.size, KeepBytes: k.keep, Duplicate: k.duplicate}
	if h.Duplicate {
		h.LBA = record % valueMax
	} else {
		h.LBA, h.Generation = lba+k.distance, record%valueMax
	}
	if err := s.restorer.Restore(b, &h); err != nil {
		return fmt.Errorf("block %d: %w: %w", lba, errContentsDamaged, err)
	}
	return nil
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// runBlocks bounds how many blocks are handled at a time.
const runBlocks = 1024

// eachRun calls whole for runs of whole blocks of a range, with where in the
// range they begin, and part for what is left at its ends.
func (s *blocksStore) eachRun(nsid uint32, offset, length uint64, whole func(lba, blocks, at uint64) error, part func(lba, from, to, at uint64) error) error {
	size := s.stride(nsid)
	if size == 0 {
		return fmt.Errorf("there is no namespace %d", nsid)
	}
	for at := uint64(0); at < length; {
		lba, from := (offset+at)/size, (offset+at)%size
		if from != 0 || length-at < size {
			to := min(size, from+length-at)
			if err := part(lba, from, to, at); err != nil {
				return err
			}
			at += to - from
			continue
		}
		blocks := min((length-at)/size, runBlocks)
		if err := whole(lba, blocks, at); err != nil {
			return err
		}
		at += blocks * size
	}
	return nil
}

// load reads the records of blocks into the scratch buffer.
func (s *blocksStore) load(nsid uint32, lba, blocks uint64) ([]byte, error) {
	if uint64(cap(s.recs)) < blocks*recordBytes {
		s.recs = make([]byte, runBlocks*recordBytes)
	}
	recs := s.recs[:blocks*recordBytes]
	return recs, s.records.read(nsid, recs, lba*recordBytes)
}

func (s *blocksStore) read(nsid uint32, b []byte, offset uint64) error {
	size := s.stride(nsid)
	return s.eachRun(nsid, offset, uint64(len(b)), func(lba, blocks, at uint64) error {
		return s.readRun(nsid, b[at:at+blocks*size], lba, size)
	}, func(lba, from, to, at uint64) error {
		whole := s.scratch(size)
		if err := s.readRun(nsid, whole, lba, size); err != nil {
			return err
		}
		copy(b[at:], whole[from:to])
		return nil
	})
}

func (s *blocksStore) scratch(size uint64) []byte {
	if uint64(len(s.block)) != size {
		s.block = make([]byte, size)
	}
	return s.block
}

// readRun reads whole blocks.
func (s *blocksStore) readRun(nsid uint32, b []byte, lba, size uint64) error {
	recs, err := s.load(nsid, lba, uint64(len(b))/size)
	if err != nil {
		return err
	}
	for ; len(b) > 0; b, recs, lba = b[size:], recs[recordBytes:], lba+1 {
		r := binary.LittleEndian.Uint64(recs)
		switch r >> kindShift {
		case 0:
			clear(b[:size])
		case kindWhole:
			err = s.whole.read(nsid, b[:size], lba*size)
		default:
			err = s.restore(b[:size:size], r, lba)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *blocksStore) write(nsid uint32, b []byte, offset uint64) error {
	size := s.stride(nsid)
	return s.eachRun(nsid, offset, uint64(len(b)), func(lba, blocks, at uint64) error {
		return s.writeRun(nsid, b[at:at+blocks*size], lba, size)
	}, func(lba, from, to, at uint64) error {
		whole := s.scratch(size)
		if err := s.readRun(nsid, whole, lba, size); err != nil {
			return err
		}
		copy(whole[from:to], b[at:])
		return s.writeRun(nsid, whole, lba, size)
	})
}

// writeRun writes whole blocks. A process that is killed in the middle leaves
// each block as it was or as it is to be: what is kept whole is written first,
// then the records say so, then what was kept whole and is no longer goes.
func (s *blocksStore) writeRun(nsid uint32, b []byte, lba, size uint64) error {
	recs, err := s.load(nsid, lba, uint64(len(b))/size)
	if err != nil {
		return err
	}
	var gone [runBlocks / 64]uint64
	punches := false
	for i := uint64(0); i*size < uint64(len(b)); i++ {
		block := b[i*size : (i+1)*size : (i+1)*size]
		r, err := s.record(block, lba+i)
		if err != nil {
			return err
		}
		if r>>kindShift == kindWhole {
			if err := s.whole.write(nsid, block, (lba+i)*size); err != nil {
				return err
			}
		} else if binary.LittleEndian.Uint64(recs[i*recordBytes:])>>kindShift == kindWhole {
			gone[i/64] |= 1 << (i % 64)
			punches = true
		}
		binary.LittleEndian.PutUint64(recs[i*recordBytes:], r)
	}
	if err := s.records.write(nsid, recs, lba*recordBytes); err != nil {
		return err
	}
	for i := uint64(0); punches && i*size < uint64(len(b)); i++ {
		if gone[i/64]>>(i%64)&1 != 0 {
			if err := s.whole.punch(nsid, (lba+i)*size, size); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *blocksStore) punch(nsid uint32, offset, length uint64) error {
	size := s.stride(nsid)
	if size == 0 || length == 0 {
		return nil
	}
	first, end := (offset+size-1)/size, (offset+length)/size
	if first < end {
		if err := s.records.punch(nsid, first*recordBytes, (end-first)*recordBytes); err != nil {
			return err
		}
		if err := s.whole.punch(nsid, first*size, (end-first)*size); err != nil {
			return err
		}
	}
	// What is left are parts of the first and the last block.
	zero := func(from, to uint64) error {
		if from >= to {
			return nil
		}
		return s.write(nsid, make([]byte, to-from), from)
	}
	if first >= end {
		return zero(offset, offset+length)
	}
	return errors.Join(zero(offset, first*size), zero(end*size, offset+length))
}

func (s *blocksStore) erase(nsid uint32) error {
	return errors.Join(s.records.erase(nsid), s.whole.erase(nsid))
}

// sync makes the table safe before the records that name its entries.
func (s *blocksStore) sync() error {
	if s.log != nil {
		if err := s.log.sync(); err != nil {
			return err
		}
	}
	return errors.Join(s.whole.sync(), s.records.sync())
}

func (s *blocksStore) close() error {
	err := errors.Join(s.records.close(), s.whole.close())
	if s.log != nil {
		err = errors.Join(err, s.log.close())
	}
	return err
}
