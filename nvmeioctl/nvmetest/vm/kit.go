// Package vm runs test cases in a virtual machine: a real Linux kernel with its
// NVMe driver, and QEMU's NVMe controllers as drives nobody minds losing.
//
// A [Kit] is what a boot needs of the host (QEMU, busybox, an unpacked kernel).
// A [Machine] is one boot. The guest sees the host's root file system read-only
// and runs the calling test binary again, so the cases are ordinary Go functions
// in the same file as the test that starts them: [Run] starts them from the host,
// [Guest] carries them out in the guest.
//
// The package is imported from tests only. It must not touch a drive of the
// host: every device it hands to QEMU is a file it made itself.
package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Kit is what a boot needs of the host.
type Kit struct {
	// QEMU, Busybox and XZ are programs, by absolute path. Busybox is static:
	// it runs in an otherwise empty initramfs.
	QEMU, Busybox, XZ string
	// Kernel is the kernel's image.
	Kernel string
	// Modules is the folder of the kernel's modules, lib/modules/VERSION.
	Modules string
}

// Version is the kernel's version, as uname -r shows it.
func (k Kit) Version() string { return filepath.Base(k.Modules) }

// CacheDir is where .ci/vm-prepare unpacks the kernel: $NVOP_VM_CACHE, else
// nvop-vm in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("NVOP_VM_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("vm: cache folder: %w", err)
	}
	return filepath.Join(dir, "nvop-vm"), nil
}

// Find looks for the parts. kernelDir is a kernel package unpacked with dpkg-deb
// -x; empty means $NVOP_VM_KERNEL, else "kernel" in [CacheDir]. The error names
// every part that is missing.
func Find(kernelDir string) (Kit, error) {
	var kit Kit
	var missing []string
	need := func(field *string, names ...string) {
		for _, name := range names {
			if path, err := exec.LookPath(name); err == nil {
				*field = path
				return
			}
		}
		missing = append(missing, names[0])
	}
	need(&kit.QEMU, "qemu-system-x86_64")
	need(&kit.Busybox, "busybox")
	need(&kit.XZ, "xz")
	if kernelDir == "" {
		kernelDir = os.Getenv("NVOP_VM_KERNEL")
	}
	if kernelDir == "" {
		cache, err := CacheDir()
		if err != nil {
			return Kit{}, err
		}
		kernelDir = filepath.Join(cache, "kernel")
	}
	if err := kit.findKernel(kernelDir); err != nil {
		missing = append(missing, err.Error())
	}
	if len(missing) > 0 {
		return Kit{}, fmt.Errorf("vm: not found: %s (run .ci/vm-prepare)", strings.Join(missing, "; "))
	}
	return kit, nil
}

// findKernel fills in the newest kernel of an unpacked package.
func (k *Kit) findKernel(dir string) error {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return fmt.Errorf("kernel folder %q: %w", dir, err)
	}
	if len(images) == 0 {
		return fmt.Errorf("a kernel image in %s", filepath.Join(dir, "boot"))
	}
	sort.Strings(images)
	k.Kernel = images[len(images)-1]
	version := strings.TrimPrefix(filepath.Base(k.Kernel), "vmlinuz-")
	// Newer packages keep /lib inside /usr.
	for _, lib := range []string{"lib", "usr/lib"} {
		modules := filepath.Join(dir, lib, "modules", version)
		if st, err := os.Stat(modules); err == nil && st.IsDir() {
			k.Modules = modules
			return nil
		}
	}
	return fmt.Errorf("modules of kernel %s in %s", version, dir)
}
