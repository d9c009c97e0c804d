package namespace

import (
	"context"
	"errors"
	"fmt"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// readIDs reads which NSIDs are allocated, ascending. A drive without namespace
// management has no such list: there the active ones are all.
func readIDs(ctx context.Context, dev nvmeioctl.Device, management bool) ([]uint32, error) {
	if !management {
		return admin.ActiveNamespaces(ctx, dev)
	}
	return admin.AllocatedNamespaces(ctx, dev)
}

// readNamespace reads one namespace whole. Without management it is the one
// controller, here, that has it.
func readNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32, management bool, here uint16) (Namespace, error) {
	get, op := admin.IdentifyAllocatedNamespace, "identify allocated namespace"
	if !management {
		get, op = admin.IdentifyNamespace, "identify namespace"
	}
	none := Namespace{NSID: nsid, Controllers: []uint16{}}
	id, err := get(ctx, dev, nsid)
	if err != nil {
		return none, err
	}
	n, err := fromIdentify(nsid, id)
	if err != nil {
		return none, &nvmeioctl.OpError{Op: op, Dev: dev.String(), NSID: nsid, Err: err}
	}
	if !management {
		n.Controllers = []uint16{here}
		return n, nil
	}
	n.Controllers, err = readControllers(ctx, dev, nsid)
	return n, err
}

// readControllers reads which controllers have a namespace: Identify CNS 12h,
// never the host's view of paths.
func readControllers(ctx context.Context, dev nvmeioctl.Device, nsid uint32) ([]uint16, error) {
	ids, err := admin.AttachedControllers(ctx, dev, nsid)
	if ids == nil {
		ids = []uint16{}
	}
	return ids, err
}

// errInactive says that an NSID which a list named has nothing behind it.
var errInactive = errors.New("the namespace does not exist: the drive returned zeros")

// fromIdentify turns what the drive said into an inventory's namespace.
func fromIdentify(nsid uint32, id nvmespec.Namespace) (Namespace, error) {
	if !id.Active() {
		return Namespace{}, errInactive
	}
	f, ok := id.Format()
	if !ok {
		return Namespace{}, fmt.Errorf("the drive names LBA format %d, which it does not list", id.FormatIndex)
	}
	n := Namespace{
		NSID: nsid, SizeBlocks: id.SizeBlocks, CapacityBlocks: id.CapacityBlocks, UsedBlocks: id.UsedBlocks,
		Format: fromFormat(f), FLBAS: uint8(nvmespec.MakeFLBAS(id.FormatIndex, id.MetadataExtended)),
		Protection: id.Protection.Type & 7, NVMSetID: id.NVMSetID, EnduranceGroupID: id.EnduranceGroupID, ANAGroupID: id.ANAGroupID,
		WriteProtected: id.WriteProtected, FormatPercentLeft: id.FormatRemainingPercent.Or(0),
		NGUID: id.NGUID.String(), EUI64: id.EUI64.String(), Controllers: []uint16{},
	}
	if id.Protection.First {
		n.Protection |= 8
	}
	if id.Shared {
		n.NMIC = 1
	}
	n.AllocatedBytes, ok = id.NVMCapacityBytes.Uint64()
	if !ok {
		return Namespace{}, fmt.Errorf("its capacity of %s bytes is beyond 2^64", id.NVMCapacityBytes)
	}
	return n, nil
}

func fromFormat(f nvmespec.LBAFormat) LBAFormat {
	return LBAFormat{Index: f.Index, DataBytes: f.DataBytes, MetadataBytes: uint32(f.MetadataBytes), RelativePerformance: f.RelativePerformance}
}
