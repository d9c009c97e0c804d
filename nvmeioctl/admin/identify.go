package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// identifyTries bounds how often an Identify of a namespace is sent while the
// controller answers that it may be tried again: some drives need it shortly
// after start.
const identifyTries = 4

// identifyPause is the wait before the first repetition; it doubles.
const identifyPause = 50 * time.Millisecond

// IdentifyCommand builds an Identify for nsid.
func IdentifyCommand(nsid uint32, f nvmespec.IdentifyFields) *nvmeioctl.Command {
	cdw10, cdw11, cdw14 := f.Dwords()
	return &nvmeioctl.Command{Opcode: nvmespec.AdminIdentify, NSID: nsid, CDW10: cdw10, CDW11: cdw11, CDW14: cdw14,
		Data: make([]byte, nvmespec.IdentifySize), Timeout: IdentifyTimeout}
}

// identify sends one Identify and decodes the answer.
func identify[T any](ctx context.Context, dev nvmeioctl.Device, op string, nsid uint32, f nvmespec.IdentifyFields,
	decode func([]byte) (T, error)) (T, error) {
	var zero T
	cmd := IdentifyCommand(nsid, f)
	if _, err := submit(ctx, dev, op, cmd); err != nil {
		return zero, err
	}
	v, err := decode(cmd.Data)
	if err != nil {
		return zero, opError(op, dev, nsid, err)
	}
	return v, nil
}

// identifyRetrying is identify with bounded repetition of retryable statuses.
func identifyRetrying[T any](ctx context.Context, dev nvmeioctl.Device, op string, nsid uint32, f nvmespec.IdentifyFields,
	decode func([]byte) (T, error)) (T, error) {
	clock := nvmeioctl.NewSystemClock()
	pause := identifyPause
	for try := 1; ; try++ {
		v, err := identify(ctx, dev, op, nsid, f, decode)
		var status nvmespec.StatusError
		if err == nil || try == identifyTries || !errors.As(err, &status) || !status.Retryable() {
			return v, err
		}
		if sleepErr := clock.Sleep(ctx, pause); sleepErr != nil {
			return v, err
		}
		pause *= 2
	}
}

// IdentifyController reads the controller's structure (CNS 01h).
func IdentifyController(ctx context.Context, dev nvmeioctl.Device) (nvmespec.Controller, error) {
	return identify(ctx, dev, "identify controller", 0, nvmespec.IdentifyFields{CNS: nvmespec.CNSController},
		nvmespec.DecodeController)
}

// IdentifyNVMController reads the limits of the NVM command set (CNS 06h).
func IdentifyNVMController(ctx context.Context, dev nvmeioctl.Device) (nvmespec.NVMController, error) {
	return identify(ctx, dev, "identify controller (NVM command set)", 0,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSNVMController}, nvmespec.DecodeNVMController)
}

// IdentifyNamespace reads a namespace attached to this controller (CNS 00h). An
// NSID that is not active gives a structure with Active false and no error.
func IdentifyNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.Namespace, error) {
	return identifyRetrying(ctx, dev, "identify namespace", nsid,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSNamespace}, nvmespec.DecodeNamespace)
}

// IdentifyAllocatedNamespace reads a namespace that exists, attached or not (CNS
// 11h). Only controllers with namespace management have it.
func IdentifyAllocatedNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.Namespace, error) {
	return identifyRetrying(ctx, dev, "identify allocated namespace", nsid,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSAllocatedNamespace}, nvmespec.DecodeNamespace)
}

// CommonNamespace reads what all namespaces of a controller have in common, above
// all its LBA formats: Identify of NSID FFFFFFFFh, which controllers with
// namespace management answer even where no namespace exists. Where that fails or
// lists no format, an active namespace stands in, else an allocated one. from is
// the NSID that answered.
func CommonNamespace(ctx context.Context, dev nvmeioctl.Device, c nvmespec.Controller) (ns nvmespec.Namespace, from uint32, err error) {
	const op = "identify common namespace capabilities"
	var first error
	if c.HasNamespaceManagement() {
		ns, first = identifyRetrying(ctx, dev, op, nvmespec.BroadcastNSID,
			nvmespec.IdentifyFields{CNS: nvmespec.CNSNamespace}, nvmespec.DecodeNamespace)
		if first == nil && anyFormat(ns) {
			return ns, nvmespec.BroadcastNSID, nil
		}
		var status nvmespec.StatusError
		if first != nil && !errors.As(first, &status) {
			return nvmespec.Namespace{}, 0, first
		}
	}
	ids, err := ActiveNamespaces(ctx, dev)
	if err != nil {
		return nvmespec.Namespace{}, 0, errors.Join(first, err)
	}
	get := IdentifyNamespace
	if len(ids) == 0 && c.HasNamespaceManagement() {
		get = IdentifyAllocatedNamespace
		if ids, err = AllocatedNamespaces(ctx, dev); err != nil {
			return nvmespec.Namespace{}, 0, errors.Join(first, err)
		}
	}
	if len(ids) == 0 {
		return nvmespec.Namespace{}, 0, opError(op, dev, nvmespec.BroadcastNSID,
			errors.Join(errors.New("no namespace exists to read the LBA formats from"), first))
	}
	ns, err = get(ctx, dev, ids[0])
	return ns, ids[0], err
}

func anyFormat(ns nvmespec.Namespace) bool {
	for _, f := range ns.Formats {
		if f.Available() {
			return true
		}
	}
	return false
}

// ActiveNamespaces lists the NSIDs attached to this controller, ascending (CNS 02h).
func ActiveNamespaces(ctx context.Context, dev nvmeioctl.Device) ([]uint32, error) {
	return namespaceList(ctx, dev, "list active namespaces", nvmespec.CNSActiveNamespaces)
}

// AllocatedNamespaces lists the NSIDs that exist, attached or not (CNS 10h). Only
// controllers with namespace management have it.
func AllocatedNamespaces(ctx context.Context, dev nvmeioctl.Device) ([]uint32, error) {
	return namespaceList(ctx, dev, "list allocated namespaces", nvmespec.CNSAllocatedNamespaces)
}

// listPages bounds the pages of a list: a million namespaces, far beyond any drive.
const listPages = 1024

// namespaceList reads a list page by page; each page lists what is above the NSID
// of the command, so it has to make progress.
func namespaceList(ctx context.Context, dev nvmeioctl.Device, op string, cns nvmespec.CNS) ([]uint32, error) {
	var ids []uint32
	var last uint32
	for range listPages {
		page, err := identify(ctx, dev, op, last, nvmespec.IdentifyFields{CNS: cns}, nvmespec.DecodeNamespaceList)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 && page[0] <= last {
			return nil, opError(op, dev, 0, fmt.Errorf("%w: list above %d starts with %d", nvmespec.ErrInvalidData, last, page[0]))
		}
		ids = append(ids, page...)
		if len(page) < nvmespec.NamespaceListMax {
			return ids, nil
		}
		if last = page[len(page)-1]; last >= nvmespec.BroadcastNSID-1 {
			return ids, nil
		}
	}
	return nil, opError(op, dev, 0, fmt.Errorf("%w: more than %d pages", nvmespec.ErrInvalidData, listPages))
}

// Controllers lists the identifiers of the subsystem's controllers, ascending
// (CNS 13h).
func Controllers(ctx context.Context, dev nvmeioctl.Device) ([]uint16, error) {
	return controllerList(ctx, dev, "list controllers", 0, nvmespec.CNSControllers)
}

// AttachedControllers lists the controllers that a namespace is attached to (CNS
// 12h).
func AttachedControllers(ctx context.Context, dev nvmeioctl.Device, nsid uint32) ([]uint16, error) {
	return controllerList(ctx, dev, "list attached controllers", nsid, nvmespec.CNSAttachedControllers)
}

func controllerList(ctx context.Context, dev nvmeioctl.Device, op string, nsid uint32, cns nvmespec.CNS) ([]uint16, error) {
	var ids []uint16
	start := uint16(0)
	for {
		page, err := identify(ctx, dev, op, nsid, nvmespec.IdentifyFields{CNS: cns, ControllerID: start},
			nvmespec.DecodeControllerList)
		if err != nil {
			return nil, err
		}
		if len(page) > 0 && page[0] < start {
			return nil, opError(op, dev, nsid, fmt.Errorf("%w: list from %d starts with %d", nvmespec.ErrInvalidData, start, page[0]))
		}
		ids = append(ids, page...)
		// A full page goes on above its last identifier; ascending order bounds it.
		if len(page) < nvmespec.ControllerListMax || page[len(page)-1] == 0xFFFF {
			return ids, nil
		}
		start = page[len(page)-1] + 1
	}
}

// NamespaceIDs reads the identification descriptors of a namespace (CNS 03h).
func NamespaceIDs(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.NamespaceIDs, error) {
	return identify(ctx, dev, "identify namespace descriptors", nsid,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSDescriptors}, nvmespec.DecodeNamespaceIDs)
}

// Granularity reads what namespace sizes should be multiples of (CNS 16h).
// Controllers without AttrNamespaceGranularity do not have it.
func Granularity(ctx context.Context, dev nvmeioctl.Device) (nvmespec.GranularityList, error) {
	return identify(ctx, dev, "identify namespace granularity", 0,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSGranularity}, nvmespec.DecodeGranularityList)
}

// IdentifyNVMNamespace reads the NVM command set's part of a namespace (CNS 05h).
func IdentifyNVMNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.NVMNamespace, error) {
	return identifyRetrying(ctx, dev, "identify namespace (NVM command set)", nsid,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSNVMNamespace}, nvmespec.DecodeNVMNamespace)
}

// IdentifyIndependentNamespace reads the part of a namespace that no command set
// changes, readiness among it (CNS 08h).
func IdentifyIndependentNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32) (nvmespec.IndependentNamespace, error) {
	return identifyRetrying(ctx, dev, "identify namespace (command set independent)", nsid,
		nvmespec.IdentifyFields{CNS: nvmespec.CNSIndependentNamespace}, nvmespec.DecodeIndependentNamespace)
}
