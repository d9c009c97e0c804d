package sim

import "nvop/nvmeioctl/nvmespec"

// media is what the control path needs of the data path: the flash, what is
// stored in it, and what has been counted. The drive calls it with its lock
// held.
//
// Its calls cannot fail: the control path has checked everything before it
// calls. Before a command that changes the media, a drive with a file takes
// MarshalBinary, and gives it back to UnmarshalBinary if the state could not
// be saved, so the two must be exact opposites.
type media interface {
	// counters is everything counted since manufacture, as of now on the
	// drive's clock.
	counters() mediaCounters
	// namespaceCreated says that NSID now has sizeBytes of user data, none
	// of it written.
	namespaceCreated(nsid uint32, sizeBytes uint64)
	// namespaceDeleted says that the NSID and all its data are gone.
	namespaceDeleted(nsid uint32)
	// namespaceFormatted deallocates everything in the NSID, which has
	// sizeBytes of user data afterwards. erase says that the flash itself is
	// erased (secure erase of user data), which costs a cycle.
	namespaceFormatted(nsid uint32, sizeBytes uint64, erase bool)
	// powerLimited says that the drive may draw at most milliwatts of the
	// milliwatts of its first power state.
	powerLimited(milliwatts, fullMilliwatts uint32)
	// access carries out one I/O command without timing or contents: it counts
	// it and updates the map. offset and length are bytes of user data.
	access(op mediaOp, nsid uint32, offset, length uint64) nvmespec.Status

	// MarshalBinary and UnmarshalBinary are the flash section of the state
	// file. UnmarshalBinary is given hostile bytes and must not panic; on an
	// error it leaves the media as it was.
	MarshalBinary() ([]byte, error)
	UnmarshalBinary(data []byte) error
}

// mediaOp is an operation of media.access.
type mediaOp uint8

const (
	mediaRead mediaOp = iota + 1
	mediaWrite
	mediaDeallocate
)

// mediaCounters is what logs report of the flash. Counts are exact here; the
// logs round them as the specification says.
type mediaCounters struct {
	// Host bytes and commands are what data units and host commands count;
	// deallocations and write zeroes are not in them.
	HostReadBytes, HostWriteBytes       nvmespec.Uint128
	HostReadCommands, HostWriteCommands nvmespec.Uint128
	// Media bytes are what was programmed into and read from NAND, for
	// whatever reason.
	MediaReadBytes, MediaWriteBytes nvmespec.Uint128
	// Erase counts over all superblocks.
	MinErases, MaxErases uint32
	AverageErases        float64
	// UsedRatio is the part of the rated life that is used; 1 is 100 percent,
	// and it may be more.
	UsedRatio float64
	// SpareRatio is the part of the spare blocks that is left, 0 to 1.
	SpareRatio float64
	// BadBlocks have been retired; FreeBlocks are superblocks that can be
	// written at once, of TotalBlocks.
	BadBlocks, FreeBlocks, TotalBlocks uint64
	MediaErrors                        uint64
	// BusyNS is how long I/O commands were outstanding, in nanoseconds.
	BusyNS uint64
	// MappedBytes is how much of each NSID's user data is allocated (NUSE).
	MappedBytes map[uint32]uint64
	// Kelvin is the composite temperature.
	Kelvin uint16
}
