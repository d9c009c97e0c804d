package ftl

import (
	"errors"
	"fmt"
	"math"
)

// ErrSLC is wrapped by what says that an SLC cache cannot be as asked for.
var ErrSLC = errors.New("SLC cache")

// SLC is a part of the flash that is programmed with one bit a cell: writes go
// there at its own rate until it is full, and past it after that. While nothing
// else is to be done what is in it is folded, that is programmed a second time,
// into the rest of the flash: room for another burst, at the cost of one more
// program of every byte that went through it. What the host rewrites before it
// is folded is folded all the same.
//
// Its cells wear on an account of their own (they endure many times as much),
// so the erasures of the [FTL] do not have them.
type SLC struct {
	capacity uint64 // bytes
	fold     uint64 // bytes a ns, times 2^slcBits
	level    uint64 // bytes that are not folded yet
	programs uint64 // bytes that went through it
}

const slcBits = 16

// NewSLC returns an empty cache of so many bytes that folds so many a second,
// less than 1e12.
func NewSLC(capacity uint64, foldBytesPerSecond float64) (*SLC, error) {
	fold := math.Round(foldBytesPerSecond / 1e9 * (1 << slcBits))
	if capacity == 0 || capacity >= 1<<60 || !(fold >= 1) || foldBytesPerSecond >= 1e12 {
		return nil, fmt.Errorf("%w of %d bytes that folds %g a second", ErrSLC, capacity, foldBytesPerSecond)
	}
	return &SLC{capacity: capacity, fold: uint64(fold)}, nil
}

// Write takes in n bytes, and says whether there was room.
func (s *SLC) Write(n uint64) bool {
	if n > s.capacity-s.level {
		return false
	}
	s.level += n
	s.programs += n
	return true
}

// Idle folds for ns, each of which stands for lapse.
func (s *SLC) Idle(ns int64, lapse uint64) {
	if ns <= 0 || s.level == 0 {
		return
	}
	const most = 1 << 40 // 18 minutes; keeps the product within 64 bits
	n := uint64(min(ns, most)) * s.fold >> slcBits
	if n > s.level/lapse {
		s.level = 0
		return
	}
	s.level -= n * lapse
}

// Level is how many bytes wait to be folded, Programmed how many have been
// programmed into the cache since it was new.
func (s *SLC) Level() uint64      { return s.level }
func (s *SLC) Programmed() uint64 { return s.programs }

// Restore sets Level and Programmed as they were stored.
func (s *SLC) Restore(level, programmed uint64) error {
	if level > s.capacity || level > programmed {
		return fmt.Errorf("%w of %d bytes holds %d of %d", ErrSLC, s.capacity, level, programmed)
	}
	s.level, s.programs = level, programmed
	return nil
}
