package endurance

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// generationMap is a byte for each granule of the region, by which the last write
// of a block is told where the order draws blocks anew: a fingerprint of its
// generation. A byte is changed only by the worker that the block belongs to.
type generationMap struct {
	bytes   []byte
	granule uint64
	// whole says that it has been kept since the run began: what is not in it was
	// not written in a phase that draws anew.
	whole bool
	// lost says, for the user, what became of what it knew before; forgot is how
	// many operations before crashes it may not know of. Both stay with it.
	lost   string
	forgot uint64
}

const (
	// printNone: not written since the map began; printDoubt: the write failed.
	printNone  = 0
	printDoubt = 255
)

// fingerprint is 1 to 254: a generation that was lost is taken for the last one
// once in 254 times.
func fingerprint(generation uint64) byte { return byte(1 + generation%254) }

// newGenerationMap maps the memory, which is touched only where blocks are written.
func newGenerationMap(regionBytes, granule uint64, whole bool) (*generationMap, error) {
	n := (regionBytes-1)/granule + 1
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("generation map: %d bytes of memory, one for each %d bytes of the drive: %w", n, granule, err)
	}
	return &generationMap{bytes: b, granule: granule, whole: whole}, nil
}

// clear makes the map empty, without touching its memory.
func (m *generationMap) clear() error {
	return unix.Madvise(m.bytes, unix.MADV_DONTNEED)
}

// release gives the memory back. No worker may be at work any more.
func (m *generationMap) release() error {
	if m == nil || m.bytes == nil {
		return nil
	}
	b := m.bytes
	m.bytes = nil
	return unix.Munmap(b)
}

// at is the byte of the granule in which an offset lies.
func (m *generationMap) at(offsetBytes uint64) byte { return m.bytes[offsetBytes/m.granule] }

// set notes the last write of a stretch.
func (m *generationMap) set(offsetBytes int64, lengthBytes int32, print byte) {
	first := uint64(offsetBytes) / m.granule
	past := (uint64(offsetBytes) + uint64(lengthBytes) - 1) / m.granule
	for i := first; i <= past; i++ {
		m.bytes[i] = print
	}
}
