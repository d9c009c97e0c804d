package admin

import (
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// IOTimeout is for I/O commands that a controller may take long over: writing
// zeroes and deallocating a large range have taken minutes.
const IOTimeout = 10 * time.Minute

// ioCommand builds a command with the dwords that most I/O commands share.
func ioCommand(opcode uint8, nsid uint32, f nvmespec.IOFields, data []byte) (*nvmeioctl.Command, error) {
	op := nvmespec.CommandName(false, opcode)
	if err := checkTarget(op, nsid); err != nil {
		return nil, err
	}
	cdw10, cdw11, cdw12, err := f.Dwords()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return &nvmeioctl.Command{IO: true, Opcode: opcode, NSID: nsid, CDW10: cdw10, CDW11: cdw11, CDW12: cdw12, Data: data, Timeout: IOTimeout}, nil
}

// WriteZeroesCommand builds a Write Zeroes; f.Deallocate asks to deallocate too.
// It may be limited: see nvmespec.NVMController.
func WriteZeroesCommand(nsid uint32, f nvmespec.IOFields) (*nvmeioctl.Command, error) {
	return ioCommand(nvmespec.IOOpWriteZeroes, nsid, f, nil)
}

// WriteUncorrectableCommand builds a Write Uncorrectable: reading the blocks fails
// until they are written again.
func WriteUncorrectableCommand(nsid uint32, f nvmespec.IOFields) (*nvmeioctl.Command, error) {
	return ioCommand(nvmespec.IOOpWriteUncorrectable, nsid, f, nil)
}

// VerifyCommand builds a Verify: the controller reads blocks and checks them
// without transferring data.
func VerifyCommand(nsid uint32, f nvmespec.IOFields) (*nvmeioctl.Command, error) {
	return ioCommand(nvmespec.IOOpVerify, nsid, f, nil)
}

// CompareCommand builds a Compare of blocks with data; blocks that differ are
// status 285h. The data are not copied.
func CompareCommand(nsid uint32, f nvmespec.IOFields, data []byte) (*nvmeioctl.Command, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("compare: %w: no data", nvmespec.ErrInvalidData)
	}
	return ioCommand(nvmespec.IOOpCompare, nsid, f, data)
}

// DeallocateCommand builds a Dataset Management that deallocates 1..256 ranges.
// The controller may limit how many and how large: see nvmespec.NVMController.
func DeallocateCommand(nsid uint32, ranges []nvmespec.DatasetRange) (*nvmeioctl.Command, error) {
	if err := checkTarget("deallocate", nsid); err != nil {
		return nil, err
	}
	data, cdw10, err := nvmespec.AppendDatasetRanges(nil, ranges)
	if err != nil {
		return nil, err
	}
	return &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpDatasetManagement, NSID: nsid, CDW10: cdw10, CDW11: nvmespec.DatasetDeallocate,
		Data: data, Timeout: IOTimeout}, nil
}

// CopyCommand builds a Copy of source ranges to f.Destination; f.Ranges follows
// from ranges. Which formats a controller takes is in Controller.CopyFormats.
func CopyCommand(nsid uint32, f nvmespec.CopyFields, ranges []nvmespec.CopyRange) (*nvmeioctl.Command, error) {
	if err := checkTarget("copy", nsid); err != nil {
		return nil, err
	}
	data, err := nvmespec.AppendCopyRanges(nil, f.Format, ranges)
	if err != nil {
		return nil, err
	}
	f.Ranges = uint16(min(len(ranges), nvmespec.CopyRangesMax+1))
	cdw10, cdw11, cdw12, err := f.Dwords()
	if err != nil {
		return nil, err
	}
	return &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpCopy, NSID: nsid, CDW10: cdw10, CDW11: cdw11, CDW12: cdw12, Data: data, Timeout: IOTimeout}, nil
}
