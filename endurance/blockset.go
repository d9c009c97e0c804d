package endurance

import "nvop/endurance/workload"

// blockSet is a small set of block numbers by open addressing, at most a
// quarter full.
type blockSet struct {
	cells []uint64 // block + 1; 0 is empty
	mask  uint64
}

func newBlockSet(capacity int) *blockSet {
	size := 8
	for size < 4*capacity {
		size *= 2
	}
	return &blockSet{cells: make([]uint64, size), mask: uint64(size - 1)}
}

func (s *blockSet) home(block uint64) uint64 { return (block * 0x9E3779B97F4A7C15) >> 32 & s.mask }

func (s *blockSet) has(block uint64) bool {
	for i := s.home(block); s.cells[i] != 0; i = (i + 1) & s.mask {
		if s.cells[i] == block+1 {
			return true
		}
	}
	return false
}

// meets says whether any cell of an operation is in the set.
func (s *blockSet) meets(op *workload.Op) bool {
	if op.Blocks == 1 {
		return s.has(op.Block)
	}
	for i := range uint64(op.Blocks) {
		if s.has(op.Block + i) {
			return true
		}
	}
	return false
}

// claim adds all cells of an operation, release takes them out.
func (s *blockSet) claim(op *workload.Op) {
	for i := range uint64(op.Blocks) {
		s.add(op.Block + i)
	}
}

func (s *blockSet) release(op *workload.Op) {
	for i := range uint64(op.Blocks) {
		s.remove(op.Block + i)
	}
}

func (s *blockSet) add(block uint64) {
	i := s.home(block)
	for s.cells[i] != 0 {
		i = (i + 1) & s.mask
	}
	s.cells[i] = block + 1
}

// remove takes a block out and moves those behind it up, so that no search ends
// early at the hole.
func (s *blockSet) remove(block uint64) {
	i := s.home(block)
	for s.cells[i] != block+1 {
		if s.cells[i] == 0 {
			return
		}
		i = (i + 1) & s.mask
	}
	s.cells[i] = 0
	for j := (i + 1) & s.mask; s.cells[j] != 0; j = (j + 1) & s.mask {
		home := s.home(s.cells[j] - 1)
		if (j-home)&s.mask >= (j-i)&s.mask {
			s.cells[i], s.cells[j] = s.cells[j], 0
			i = j
		}
	}
}
