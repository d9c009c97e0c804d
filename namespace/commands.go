package namespace

import (
	"fmt"
	"strings"
	"time"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Time-outs of the commands. Deleting a namespace has been seen to take more
// than the kernel's default of 60 s, and a time-out resets the controller in
// the middle of it (cases NS-41, FMT-01, FMT-04).
const (
	attachTimeout = 5 * time.Minute
	manageTimeout = 30 * time.Minute
	formatTimeout = time.Hour
	eraseTimeout  = 10 * time.Hour
)

// formatTimeoutFor is an hour for each 16 TB begun, ten where user data is
// erased: some drives overwrite.
func formatTimeoutFor(totalBytes uint64, erase SecureErase) time.Duration {
	shares := time.Duration(totalBytes/16_000_000_000_000 + 1)
	if erase == EraseUser {
		return shares * eraseTimeout
	}
	return shares * formatTimeout
}

// createSpec is the data of the create command for a namespace like n.
func createSpec(n Namespace) nvmespec.NamespaceCreate {
	return nvmespec.NamespaceCreate{
		SizeBlocks: n.SizeBlocks, CapacityBlocks: n.CapacityBlocks,
		FormatIndex: n.Format.Index, MetadataExtended: nvmespec.FLBAS(n.FLBAS).MetadataExtended(),
		Protection: nvmespec.Protection{Type: n.Protection & 7, First: n.Protection&8 != 0},
		Shared:     n.Shared(), ANAGroupID: n.ANAGroupID, NVMSetID: n.NVMSetID, EnduranceGroupID: n.EnduranceGroupID,
	}
}

func createCommand(n Namespace) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x0d, CDW10: 0, Data: createSpec(n).Append(nil), Timeout: manageTimeout}
}

func deleteCommand(nsid uint32) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x0d, NSID: nsid, CDW10: 1, Timeout: manageTimeout}
}

func attachCommand(nsid uint32, controllers []uint16) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x15, NSID: nsid, CDW10: 0, Data: nvmespec.AppendControllerList(nil, controllers), Timeout: attachTimeout}
}

func detachCommand(nsid uint32, controllers []uint16) *nvmeioctl.Command {
	return &nvmeioctl.Command{Opcode: 0x15, NSID: nsid, CDW10: 1, Data: nvmespec.AppendControllerList(nil, controllers), Timeout: attachTimeout}
}

func formatCommand(nsid uint32, p formatParams) *nvmeioctl.Command {
	return &nvmeioctl.Command{
		Opcode: 0x80, NSID: nsid, Timeout: p.timeout(),
		CDW10: uint32(p.Format.Index&15) | uint32(p.FLBAS>>4&1)<<4 | uint32(p.Protection&7)<<5 |
			uint32(p.Protection>>3&1)<<8 | uint32(p.Erase&7)<<9 | uint32(p.Format.Index>>4&3)<<12,
	}
}

// describe is a command as data, with what its buffer says.
func describeCreate(n Namespace) txn.Command {
	data := fmt.Sprintf("nsze=%d ncap=%d flbas=0x%02x dps=0x%02x nmic=0x%02x anagrpid=%d nvmsetid=%d endgid=%d",
		n.SizeBlocks, n.CapacityBlocks, n.FLBAS, n.Protection, n.NMIC&1, n.ANAGroupID, n.NVMSetID, n.EnduranceGroupID)
	return txn.DescribeCommand("namespace management: create", createCommand(n), data)
}

func describeDelete(nsid uint32) txn.Command {
	return txn.DescribeCommand("namespace management: delete", deleteCommand(nsid), "")
}

func describeAttach(nsid uint32, controllers []uint16) txn.Command {
	return txn.DescribeCommand("namespace attachment: attach", attachCommand(nsid, controllers), "controllers="+controllerText(controllers))
}

func describeDetach(nsid uint32, controllers []uint16) txn.Command {
	return txn.DescribeCommand("namespace attachment: detach", detachCommand(nsid, controllers), "controllers="+controllerText(controllers))
}

func describeFormat(nsid uint32, p formatParams) txn.Command {
	return txn.DescribeCommand("format nvm", formatCommand(nsid, p), "")
}

// controllerText is a list of CNTLIDs, decimal and hexadecimal: "21" alone has
// been taken for 0x21 (case NS-22).
func controllerText(ids []uint16) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("%d (0x%x)", id, id)
	}
	return strings.Join(parts, ", ")
}
