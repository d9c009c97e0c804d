package nvmeioctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks bounds the symbolic links followed for one path, as the kernel does.
const maxLinks = 40

// under places an absolute path below the host's root.
func (h Host) under(path string) string { return filepath.Join("/", h.Root, path) }

func (h Host) isReal() bool { return h.Root == "" || filepath.Clean(h.Root) == "/" }

// follow resolves every symbolic link in an absolute path and returns a path
// below the root again. An absolute link means the host's root, not ours.
func (h Host) follow(path string) (string, error) {
	done, rest := "/", strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, part)
		info, err := os.Lstat(h.under(next))
		if err != nil && next != filepath.Clean(path) {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", path)
		}
		target, err := os.Readlink(h.under(next))
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// Resolve says what the device node at path means. Symbolic links such as
// those below /dev/disk/by-id are followed. A node is known by its device
// number, so a node made elsewhere by hand resolves too; only in a recorded
// tree, which has no device nodes, is its name looked up. The error is
// fs.ErrNotExist for a missing node, [ErrDeviceGone] for a node that the kernel
// no longer has a device for, and [ErrNotNVMe] for another kind of device, for
// a partition and for a file.
func (h Host) Resolve(path string) (Target, error) {
	if h.isReal() {
		abs, err := filepath.Abs(path)
		if err != nil {
			return Target{}, err
		}
		path = abs
	}
	node, err := h.follow(path)
	if err != nil {
		return Target{}, err
	}
	dir, err := h.sysfsDir(node)
	if err != nil {
		return Target{}, err
	}
	if parent, ok := h.partitionOf(dir); ok {
		return Target{}, fmt.Errorf("%s: %w: it is a partition of /dev/%s", node, ErrNotNVMe, parent)
	}
	inv, err := h.Discover()
	if err != nil {
		return Target{}, err
	}
	target, ok := inv.lookup(filepath.Base(dir))
	if !ok {
		return Target{}, errors.Join(append([]error{fmt.Errorf("%s: %w", node, ErrNotNVMe)}, inv.Problems...)...)
	}
	target.Path = node
	return target, nil
}

// sysfsDir finds the directory of a node's device below /sys.
func (h Host) sysfsDir(node string) (string, error) {
	info, err := os.Lstat(h.under(node))
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeDevice != 0 {
		class := "block"
		if info.Mode()&fs.ModeCharDevice != 0 {
			class = "char"
		}
		number, err := deviceNumber(info)
		if err != nil {
			return "", fmt.Errorf("%s: %w", node, err)
		}
		dir, err := h.follow(filepath.Join("/sys/dev", class, number))
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %w: the kernel has no %s device %s", node, ErrDeviceGone, class, number)
		}
		return dir, err
	}
	if h.isReal() || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: %w: it is no device node", node, ErrNotNVMe)
	}
	name := filepath.Base(node)
	for _, class := range []string{"nvme", "nvme-generic", "block"} {
		if dir, err := h.follow(filepath.Join("/sys/class", class, name)); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s: %w", node, ErrNotNVMe)
}

// partitionOf says which disk a block device is a partition of.
func (h Host) partitionOf(dir string) (disk string, ok bool) {
	if _, err := os.Lstat(h.under(filepath.Join(dir, "partition"))); err != nil {
		return "", false
	}
	return filepath.Base(filepath.Dir(dir)), true
}

// lookup finds the device with the given kernel name.
func (inv Inventory) lookup(name string) (Target, bool) {
	for _, c := range inv.Controllers {
		if c.Name == name {
			return Target{Kind: NodeController, DeviceNumber: c.DeviceNumber, Controllers: []Controller{c}}, true
		}
	}
	for _, ns := range inv.Namespaces {
		t := Target{Namespace: &ns}
		switch {
		case ns.Name == name && name != "":
			t.Kind, t.DeviceNumber = NodeNamespace, ns.DeviceNumber
		case ns.GenericNode == "/dev/"+name:
			t.Kind, t.DeviceNumber = NodeGeneric, ns.GenericDeviceNumber
		default:
			continue
		}
		for _, c := range inv.Controllers {
			if slices.Contains(ns.Controllers, c.Name) {
				t.Controllers = append(t.Controllers, c)
			}
		}
		slices.SortStableFunc(t.Controllers, func(a, b Controller) int {
			return cmp.Compare(notLive(a), notLive(b))
		})
		return t, true
	}
	return Target{}, false
}

func notLive(c Controller) int {
	if c.State == "live" {
		return 0
	}
	return 1
}

// NamespacesOf returns the namespaces that the controller of that name has a
// path to.
func (inv Inventory) NamespacesOf(controller string) []Namespace {
	var list []Namespace
	for _, ns := range inv.Namespaces {
		if slices.Contains(ns.Controllers, controller) {
			list = append(list, ns)
		}
	}
	return list
}

// ControllersOf returns the controllers that a node leads to.
func (h Host) ControllersOf(path string) ([]Controller, error) {
	t, err := h.Resolve(path)
	return t.Controllers, err
}
