package admin

import (
	"context"
	"fmt"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// checkTarget refuses NSIDs that name no single namespace. All of them at once is
// never what a change of namespaces means.
func checkTarget(op string, nsid uint32) error {
	if nsid != 0 && nsid != nvmespec.BroadcastNSID {
		return nil
	}
	return &nvmeioctl.RefusedError{Check: "target", Subject: op, Reason: fmt.Sprintf("NSID 0x%x is not one namespace", nsid),
		Remedy: "name the namespace"}
}

// CreateNamespaceCommand builds the Namespace Management command that creates a
// namespace. timeout 0 is NamespaceTimeout. A size of 0, and a capacity unlike
// the size, are refused.
func CreateNamespaceCommand(ns nvmespec.NamespaceCreate, timeout time.Duration) (*nvmeioctl.Command, error) {
	if err := ns.Validate(false); err != nil {
		return nil, err
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceManage, CDW10: nvmespec.SelectCreate,
		Data: ns.Append(nil), Timeout: orDefault(timeout, NamespaceTimeout)}, nil
}

// CreateNamespace creates a namespace, attached to no controller, and gives the
// NSID the controller chose.
func CreateNamespace(ctx context.Context, dev nvmeioctl.Device, ns nvmespec.NamespaceCreate, timeout time.Duration) (nsid uint32, err error) {
	const op = "create namespace"
	cmd, err := CreateNamespaceCommand(ns, timeout)
	if err != nil {
		return 0, opError(op, dev, 0, err)
	}
	c, err := submit(ctx, dev, op, cmd)
	if err != nil {
		return 0, err
	}
	nsid, err = CreatedNSID(c)
	return nsid, opError(op, dev, 0, err)
}

// CreatedNSID is the NSID in the completion of a create. A controller that names
// none has left the state unknown.
func CreatedNSID(c nvmeioctl.Completion) (uint32, error) {
	nsid := uint32(c.Result)
	if nsid == 0 || nsid == nvmespec.BroadcastNSID {
		return 0, fmt.Errorf("%w: the controller created NSID 0x%x; list the namespaces again", nvmespec.ErrInvalidData, nsid)
	}
	return nsid, nil
}

// DeleteNamespaceCommand builds the Namespace Management command that deletes one
// namespace and its data. timeout 0 is NamespaceTimeout. Deleting all namespaces
// by NSID FFFFFFFFh is refused.
func DeleteNamespaceCommand(nsid uint32, timeout time.Duration) (*nvmeioctl.Command, error) {
	if err := checkTarget("delete namespace", nsid); err != nil {
		return nil, err
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceManage, NSID: nsid, CDW10: nvmespec.SelectDelete,
		Timeout: orDefault(timeout, NamespaceTimeout)}, nil
}

// DeleteNamespace deletes a namespace and its data.
func DeleteNamespace(ctx context.Context, dev nvmeioctl.Device, nsid uint32, timeout time.Duration) error {
	cmd, err := DeleteNamespaceCommand(nsid, timeout)
	return run(ctx, dev, "delete namespace", nsid, cmd, err)
}

// AttachCommand builds the Namespace Attachment command that attaches a namespace
// to controllers. timeout 0 is AttachTimeout. The list must not be empty: an
// empty one has made controllers report success and attach nothing.
func AttachCommand(nsid uint32, controllers []uint16, timeout time.Duration) (*nvmeioctl.Command, error) {
	return attachment("attach namespace", nsid, controllers, nvmespec.SelectAttach, timeout)
}

// DetachCommand builds the Namespace Attachment command that detaches a namespace
// from controllers, under the same conditions.
func DetachCommand(nsid uint32, controllers []uint16, timeout time.Duration) (*nvmeioctl.Command, error) {
	return attachment("detach namespace", nsid, controllers, nvmespec.SelectDetach, timeout)
}

func attachment(op string, nsid uint32, controllers []uint16, sel uint32, timeout time.Duration) (*nvmeioctl.Command, error) {
	if err := checkTarget(op, nsid); err != nil {
		return nil, err
	}
	if n := len(controllers); n == 0 || n > nvmespec.ControllerListMax {
		return nil, fmt.Errorf("%s: %w: a list of %d controllers, 1 to %d are possible", op, nvmespec.ErrInvalidData, n, nvmespec.ControllerListMax)
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminNamespaceAttach, NSID: nsid, CDW10: sel,
		Data: nvmespec.AppendControllerList(nil, controllers), Timeout: orDefault(timeout, AttachTimeout)}, nil
}

// Attach attaches a namespace to controllers. A namespace already attached is
// status 118h, an error that Is nvmespec.ErrAlreadyAttached: it counts as done
// only if AttachedControllers agrees.
func Attach(ctx context.Context, dev nvmeioctl.Device, nsid uint32, controllers []uint16, timeout time.Duration) error {
	cmd, err := AttachCommand(nsid, controllers, timeout)
	return run(ctx, dev, "attach namespace", nsid, cmd, err)
}

// Detach detaches a namespace from controllers. One not attached is status 11Ah,
// an error that Is nvmespec.ErrNamespaceNotAttached.
func Detach(ctx context.Context, dev nvmeioctl.Device, nsid uint32, controllers []uint16, timeout time.Duration) error {
	cmd, err := DetachCommand(nsid, controllers, timeout)
	return run(ctx, dev, "detach namespace", nsid, cmd, err)
}

// FormatCommand builds a Format NVM. nsid FFFFFFFFh formats all namespaces, where
// the controller accepts it; whether a single one does so too is in
// Controller.Format. The timeout is explicit, see FormatTimeout: 0 is refused.
func FormatCommand(nsid uint32, f nvmespec.FormatFields, timeout time.Duration) (*nvmeioctl.Command, error) {
	switch {
	case nsid == 0:
		return nil, checkTarget("format", nsid)
	case f.FormatIndex >= nvmespec.MaxLBAFormats:
		return nil, fmt.Errorf("format: %w: LBA format %d", nvmespec.ErrInvalidData, f.FormatIndex)
	case f.Erase > nvmespec.EraseCrypto:
		return nil, fmt.Errorf("format: %w: secure erase setting %d", nvmespec.ErrInvalidData, f.Erase)
	case f.Protection.Type > 3:
		return nil, fmt.Errorf("format: %w: protection type %d", nvmespec.ErrInvalidData, f.Protection.Type)
	case timeout <= 0:
		return nil, fmt.Errorf("format: %w: no timeout given", nvmespec.ErrInvalidData)
	}
	return &nvmeioctl.Command{Opcode: nvmespec.AdminFormatNVM, NSID: nsid, CDW10: f.Dword(), Timeout: timeout}, nil
}

// Format formats a namespace, destroying its data.
func Format(ctx context.Context, dev nvmeioctl.Device, nsid uint32, f nvmespec.FormatFields, timeout time.Duration) error {
	cmd, err := FormatCommand(nsid, f, timeout)
	return run(ctx, dev, "format", nsid, cmd, err)
}

// run sends a command whose builder may have refused.
func run(ctx context.Context, dev nvmeioctl.Device, op string, nsid uint32, cmd *nvmeioctl.Command, err error) error {
	if err != nil {
		return opError(op, dev, nsid, err)
	}
	_, err = submit(ctx, dev, op, cmd)
	return err
}
