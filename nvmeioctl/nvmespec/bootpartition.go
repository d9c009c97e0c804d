package nvmespec

// BootPartitionHeaderSize is the length of the boot partition log before the
// partition's data.
const BootPartitionHeaderSize = 16

// Offsets of the boot partition log page (15h), NVMe Base Specification 2.x, "Boot
// Partition".
const (
	offBootLID    = 0
	offBootBPINFO = 4
)

// bootPartitionUnit is what BPSZ counts.
const bootPartitionUnit = 128 << 10

// BootPartition is the header of the boot partition log.
type BootPartition struct {
	// Active is the boot partition that is read at power on, 0 or 1. Wire: ABPID,
	// BPINFO bit 31.
	Active uint8 `json:"active"`
	// SizeBytes is how large each partition is; 0 means that there is none. Wire:
	// BPSZ, BPINFO bits 14:0, in units of 128 KiB.
	SizeBytes uint64 `json:"size_bytes"`
}

// DecodeBootPartition reads the header of the log.
func DecodeBootPartition(b []byte) (BootPartition, error) {
	p, err := view(b, BootPartitionHeaderSize, "boot partition log")
	if err != nil {
		return BootPartition{}, err
	}
	info := p.u32(offBootBPINFO)
	return BootPartition{Active: uint8(info >> 31), SizeBytes: uint64(info&0x7FFF) * bootPartitionUnit}, nil
}

// Append adds the header as a drive sends it.
func (v BootPartition) Append(b []byte) []byte {
	b, p := grow(b, BootPartitionHeaderSize)
	p.put8(offBootLID, uint8(LogIDBootPartition))
	p.put32(offBootBPINFO, uint32(v.Active&1)<<31|uint32(v.SizeBytes/bootPartitionUnit)&0x7FFF)
	return b
}
