package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DefaultModules are the modules every boot loads, besides what they depend on:
// the host's root over 9p, NVMe, and what a namespace may be used by. Those the
// kernel has built in are passed over.
func DefaultModules() []string {
	return []string{
		"virtio_pci", "9p", "9pnet_virtio",
		// The crypto interface looks these up by name, so that no module
		// names them as a dependency.
		"crc32c_generic", "crct10dif_generic", "crc64-rocksoft",
		"nvme",
		"ext4", "loop", "dm-mod", "md-mod", "raid1",
	}
}

// module is one kernel module, ready to insert.
type module struct {
	name string
	data []byte // the ELF file, not compressed
}

// moduleTree knows where a kernel's modules are.
type moduleTree struct {
	xz      string
	files   map[string]string // canonical name -> path
	builtin map[string]bool   // canonical name -> built in
}

// canonical is a module's name as the kernel keeps it: dashes are underscores.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// moduleName is the canonical name of a module's file, "" for other files.
func moduleName(path string) string {
	base := filepath.Base(path)
	for _, suffix := range []string{".ko", ".ko.xz"} {
		if name, ok := strings.CutSuffix(base, suffix); ok {
			return canonical(name)
		}
	}
	return ""
}

func readModuleTree(kit Kit) (*moduleTree, error) {
	tree := &moduleTree{xz: kit.XZ, files: map[string]string{}, builtin: map[string]bool{}}
	list, err := os.ReadFile(filepath.Join(kit.Modules, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("vm: built-in modules: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if name := moduleName(strings.TrimSpace(line)); name != "" {
			tree.builtin[name] = true
		}
	}
	err = filepath.WalkDir(kit.Modules, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := moduleName(path); name != "" {
			tree.files[name] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("vm: modules: %w", err)
	}
	return tree, nil
}

// load returns the named modules and all they depend on, each after what it
// depends on. A name that this kernel neither has as a file nor built in is an
// error: a guest that lacks a driver fails in ways that are hard to read.
func (t *moduleTree) load(ctx context.Context, names []string) ([]module, error) {
	var out []module
	state := map[string]int{} // 1 being visited, 2 done
	var visit func(name, neededBy string) error
	visit = func(name, neededBy string) error {
		name = canonical(name)
		if state[name] == 2 || t.builtin[name] {
			return nil
		}
		if state[name] == 1 {
			return fmt.Errorf("vm: module %s depends on itself", name)
		}
		path, ok := t.files[name]
		if !ok {
			return fmt.Errorf("vm: module %s (needed by %s) is not in this kernel", name, neededBy)
		}
		state[name] = 1
		data, err := t.read(ctx, path)
		if err != nil {
			return err
		}
		depends, err := moduleDepends(data)
		if err != nil {
			return fmt.Errorf("vm: module %s: %w", name, err)
		}
		for _, dep := range depends {
			if err := visit(dep, name); err != nil {
				return err
			}
		}
		state[name] = 2
		out = append(out, module{name: name, data: data})
		return nil
	}
	for _, name := range names {
		if err := visit(name, "the machine"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read returns a module's ELF file. Packages carry modules compressed; busybox's
// insmod wants them plain.
func (t *moduleTree) read(ctx context.Context, path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("vm: module: %w", err)
		}
		return data, nil
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, t.xz, "-dc", "--", path)
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("vm: decompress %s: %w: %s", path, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return data, nil
}

// moduleDepends reads the "depends" entry of a module's .modinfo section: names
// separated by commas. (The entry is what depmod makes modules.dep of, which an
// unpacked package does not have.)
func moduleDepends(file []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("not an ELF file: %w", err)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf(".modinfo: %w", err)
	}
	var depends []string
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		value, ok := strings.CutPrefix(string(entry), "depends=")
		if !ok || value == "" {
			continue
		}
		depends = append(depends, strings.Split(value, ",")...)
	}
	return depends, nil
}
