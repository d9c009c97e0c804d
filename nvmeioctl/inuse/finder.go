package inuse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// finder is one look at a machine.
type finder struct {
	root string
	self int
	// devices are the target's by kernel name: disks, partitions, character
	// devices and everything stacked on them.
	devices map[string]*device
	// order is the devices' names in the order they were found, so that a
	// stack's lower parts come first.
	order []string
	uses  []Use
	seen  map[Use]bool
	// ownOpen are the devices that this process has open itself.
	ownOpen map[string]bool
}

// device is one kernel device that the target's data can be reached through.
type device struct {
	name   string
	number string // "major:minor"; "" when sysfs does not say
	char   bool
	// disk is the whole disk that a partition lies on, or the device itself.
	disk string
	// below is the device this one is stacked on; "" for the target's own.
	below string
}

func (d *device) node() string { return "/dev/" + strings.ReplaceAll(d.name, "!", "/") }

// origin is the target's own device at the bottom of a stack.
func (f *finder) origin(d *device) *device {
	for range maxStack {
		if d.below == "" {
			break
		}
		d = f.devices[d.below]
	}
	return d
}

// maxStack bounds how deep devices may be stacked.
const maxStack = 32

func (f *finder) under(path string) string { return filepath.Join("/", f.root, path) }

func (f *finder) add(u Use) {
	if !f.seen[u] {
		f.seen[u] = true
		f.uses = append(f.uses, u)
	}
}

// unknown reports what could not be looked at.
func (f *finder) unknown(subject, what string, err error) {
	f.add(Use{Kind: KindUnknown, Class: AcceptOnly, Subject: subject, Detail: what + ": " + reason(err)})
}

// reason is an error without the path, which the message has already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// read returns a file; ok is false when it does not exist. Any other trouble is
// reported.
func (f *finder) read(path, subject string) (text string, ok bool) {
	b, err := os.ReadFile(f.under(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err != nil {
		f.unknown(subject, "cannot read "+path, err)
		return "", false
	}
	return string(b), true
}

// attr is a one-line file of sysfs, "" when it does not exist.
func (f *finder) attr(path, subject string) string {
	text, _ := f.read(path, subject)
	return strings.TrimSpace(text)
}

// list returns the names in a directory; one that does not exist is empty.
func (f *finder) list(path, subject string) []string {
	entries, err := os.ReadDir(f.under(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.unknown(subject, "cannot list "+path, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (f *finder) exists(path string) bool {
	_, err := os.Lstat(f.under(path))
	return err == nil
}

// addDevice takes a device in once; it says whether it was new.
func (f *finder) addDevice(d *device) bool {
	if f.devices[d.name] != nil {
		return false
	}
	f.devices[d.name] = d
	f.order = append(f.order, d.name)
	return true
}

// addDisks takes in the target's block devices and their partitions.
func (f *finder) addDisks(names []string) {
	for _, name := range names {
		if !f.exists("/sys/class/block/" + name) {
			f.add(Use{
				Kind: KindUnknown, Class: AcceptOnly, Subject: "/dev/" + name,
				Detail: "the kernel has no block device of this name",
			})
			continue
		}
		f.addBlock(name, "")
	}
}

// addBlock takes in a block device with its partitions.
func (f *finder) addBlock(name, below string) {
	dir := "/sys/class/block/" + name
	node := "/dev/" + name
	number := f.attr(dir+"/dev", node)
	if number == "" {
		f.add(Use{Kind: KindUnknown, Class: AcceptOnly, Subject: node, Detail: "sysfs gives no device number"})
	}
	if !f.addDevice(&device{name: name, number: number, disk: name, below: below}) {
		return
	}
	for _, part := range f.list(dir, node) {
		if !f.exists(dir + "/" + part + "/partition") {
			continue
		}
		f.addDevice(&device{
			name: part, number: f.attr(dir+"/"+part+"/dev", "/dev/"+part), disk: name, below: below,
		})
	}
}

// addChars takes in the character devices.
func (f *finder) addChars(names []string) {
	for _, name := range names {
		number := ""
		for _, class := range f.list("/sys/class", "/dev/"+name) {
			if number = f.attr("/sys/class/"+class+"/"+name+"/dev", "/dev/"+name); number != "" {
				break
			}
		}
		if number == "" {
			f.add(Use{
				Kind: KindUnknown, Class: AcceptOnly, Subject: "/dev/" + name,
				Detail: "the kernel has no character device of this name",
			})
			continue
		}
		f.addDevice(&device{name: name, number: number, char: true, disk: name})
	}
}

// block finds the device that a path names: by the node's number, or in a
// recorded tree, which has no device nodes, by its name.
func (f *finder) block(path string) *device {
	path = f.follow(path)
	if info, err := os.Lstat(f.under(path)); err == nil && info.Mode()&fs.ModeDevice != 0 {
		return f.byNumber(numberOf(info), info.Mode()&fs.ModeCharDevice != 0)
	}
	return f.byNode(path)
}

func (f *finder) byNode(path string) *device {
	for _, name := range f.order {
		if d := f.devices[name]; d.node() == path {
			return d
		}
	}
	return nil
}

func (f *finder) byNumber(number string, char bool) *device {
	for _, name := range f.order {
		if d := f.devices[name]; d.number == number && number != "" && d.char == char {
			return d
		}
	}
	return nil
}

// numberOf is "major:minor" of a device node; "" for anything else.
func numberOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return ""
	}
	// The layout of dev_t in the C library's sys/sysmacros.h.
	dev := uint64(st.Rdev)
	major := dev>>8&0xFFF | dev>>32&^0xFFF
	minor := dev&0xFF | dev>>12&^0xFF&0xFFFFFFFF
	return strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
}

// follow resolves symbolic links below the root; a path that cannot be followed
// comes back as it is.
func (f *finder) follow(path string) string {
	at := filepath.Clean(path)
	for range 40 {
		next, changed := f.followOnce(at)
		if !changed {
			break
		}
		at = next
	}
	return at
}

// followOnce replaces the first symbolic link in the path.
func (f *finder) followOnce(path string) (string, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := range parts {
		prefix := "/" + filepath.Join(parts[:i+1]...)
		target, err := os.Readlink(f.under(prefix))
		if err != nil {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(prefix), target)
		}
		return filepath.Join(append([]string{target}, parts[i+1:]...)...), true
	}
	return path, false
}

// describe says where in the stack a device is, for the reader who knows the
// drive's own names only.
func (f *finder) describe(d *device) string {
	o := f.origin(d)
	if o == d {
		return ""
	}
	return fmt.Sprintf(", on top of %s", o.node())
}

// sorted returns the devices for which keep says yes, in the order found.
func (f *finder) where(keep func(*device) bool) []*device {
	var list []*device
	for _, name := range f.order {
		if d := f.devices[name]; keep(d) {
			list = append(list, d)
		}
	}
	return slices.Clip(list)
}
