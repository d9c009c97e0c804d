package namespace

import (
	"fmt"
	"strings"

	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// createCommand creates a namespace like n.
func createCommand(n Namespace) (*nvmeioctl.Command, error) {
	return admin.CreateNamespaceCommand(nvmespec.NamespaceCreate{
		SizeBlocks: n.SizeBlocks, CapacityBlocks: n.CapacityBlocks,
		FormatIndex: n.Format.Index, MetadataExtended: nvmespec.FLBAS(n.FLBAS).MetadataExtended(),
		Protection: protection(n.Protection), Shared: n.Shared(),
		ANAGroupID: n.ANAGroupID, NVMSetID: n.NVMSetID, EnduranceGroupID: n.EnduranceGroupID,
	}, admin.NamespaceTimeout)
}

func formatCommand(p formatParams) (*nvmeioctl.Command, error) {
	return admin.FormatCommand(p.NSID, nvmespec.FormatFields{
		FormatIndex: p.Format.Index, MetadataExtended: nvmespec.FLBAS(p.FLBAS).MetadataExtended(),
		Protection: protection(p.Protection), Erase: p.Erase,
	}, p.timeout())
}

// protection reads the DPS byte.
func protection(dps uint8) nvmespec.Protection {
	return nvmespec.Protection{Type: dps & 7, First: dps&8 != 0}
}

// describeCreate and its like are commands as data, with what the buffer says.
func describeCreate(n Namespace) (txn.Command, error) {
	cmd, err := createCommand(n)
	if err != nil {
		return txn.Command{}, err
	}
	data := fmt.Sprintf("nsze=%d ncap=%d flbas=0x%02x dps=0x%02x nmic=0x%02x anagrpid=%d nvmsetid=%d endgid=%d",
		n.SizeBlocks, n.CapacityBlocks, n.FLBAS, n.Protection, n.NMIC&1, n.ANAGroupID, n.NVMSetID, n.EnduranceGroupID)
	return txn.DescribeCommand("namespace management: create", cmd, data), nil
}

func describeDelete(nsid uint32) (txn.Command, error) {
	cmd, err := admin.DeleteNamespaceCommand(nsid, admin.NamespaceTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace management: delete", cmd, ""), nil
}

func describeAttach(nsid uint32, controllers []uint16) (txn.Command, error) {
	cmd, err := admin.AttachCommand(nsid, controllers, admin.AttachTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace attachment: attach", cmd, "controllers="+controllerText(controllers)), nil
}

func describeDetach(nsid uint32, controllers []uint16) (txn.Command, error) {
	cmd, err := admin.DetachCommand(nsid, controllers, admin.AttachTimeout)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("namespace attachment: detach", cmd, "controllers="+controllerText(controllers)), nil
}

// describeAttachLater is an attachment of a namespace that a step creates.
func describeAttachLater(createdBy int, controllers []uint16) (txn.Command, error) {
	const standIn = 1 // any valid identifier: the builder refuses 0
	cmd, err := describeAttach(standIn, controllers)
	cmd.NSID, cmd.NSIDFrom = 0, fmt.Sprintf("created by step %d", createdBy+1)
	return cmd, err
}

func describeFormat(p formatParams) (txn.Command, error) {
	cmd, err := formatCommand(p)
	if err != nil {
		return txn.Command{}, err
	}
	return txn.DescribeCommand("format nvm", cmd, ""), nil
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
