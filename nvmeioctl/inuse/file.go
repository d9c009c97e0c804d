package inuse

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// FindFile returns every use that forbids writing to a regular file on the machine
// whose file systems are below root ("" means "/"): loop devices on it, swap, other
// processes that have it open for writing. Files are told apart by device and
// inode, whatever they are called. What it holds is not looked at, and who only
// reads it does no harm; the open files of processes that may not be looked at are
// left out, for a plain file is no matter of the whole machine's. A path that is no
// regular file has no uses.
func FindFile(root, path string) []Use { return findFile(root, path, "") }

// findFile leaves one loop device out.
func findFile(root, path, exceptLoop string) []Use {
	f := finder{root: root, self: os.Getpid(), devices: map[string]*device{}, seen: map[Use]bool{}}
	info, err := os.Stat(f.under(path))
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	for _, loop := range f.loopsOn(info) {
		if loop != exceptLoop {
			f.add(Use{Kind: KindHolder, Class: Never, Subject: path, Detail: "is the backing file of /dev/" + loop})
		}
	}
	text, _ := f.read("/proc/swaps", "swap")
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], "/") && f.isFile(unescape(fields[0]), info) {
			f.add(Use{Kind: KindSwap, Class: Never, Subject: path, Detail: "swapped on"})
		}
	}
	for _, pid := range f.processes() {
		f.findWriters(pid, path, info)
	}
	slices.SortFunc(f.uses, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.PID, b.PID))
	})
	return f.uses
}

// FindNode returns the uses of what a block device node leads to, whatever the node
// is called, and where that is a loop device, of its backing file too. A node that
// is none has no uses.
func FindNode(root, path string) []Use {
	f := finder{root: root}
	info, err := os.Stat(f.under(path))
	if err != nil || info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return nil
	}
	link, err := os.Readlink(f.under("/sys/dev/block/" + numberOf(info)))
	if err != nil {
		return []Use{{Kind: KindUnknown, Class: AcceptOnly, Subject: path, Detail: "sysfs does not know the device: " + reason(err)}}
	}
	name := link[strings.LastIndexByte(link, '/')+1:]
	uses := Find(root, Target{Disks: []string{name}})
	if file := Backing(root, path); file != "" {
		uses = append(uses, findFile(root, file, loopOf(link))...)
	}
	return uses
}

// Backing is the backing file of a loop device, or of the one that a partition lies
// on, as the kernel has its path; "" for any other node.
func Backing(root, path string) string {
	f := finder{root: root}
	info, err := os.Stat(f.under(path))
	if err != nil || numberOf(info) == "" || info.Mode()&fs.ModeCharDevice != 0 {
		return ""
	}
	link, err := os.Readlink(f.under("/sys/dev/block/" + numberOf(info)))
	if err != nil || loopOf(link) == "" {
		return ""
	}
	text, _ := os.ReadFile(f.under("/sys/class/block/" + loopOf(link) + "/loop/backing_file"))
	return strings.TrimSuffix(string(text), "\n")
}

// loopOf is the loop device in a path of sysfs: that of "block/loop0/loop0p1" is
// loop0.
func loopOf(link string) string {
	_, rest, _ := strings.Cut(link, "/block/")
	name, _, _ := strings.Cut(rest, "/")
	if !strings.HasPrefix(name, "loop") {
		return ""
	}
	return name
}

// loopsOn are the loop devices whose backing file it is.
func (f *finder) loopsOn(info fs.FileInfo) []string {
	var found []string
	for loop, backing := range f.loopBackings() {
		// What is gone by name can still be asked of the device.
		if f.isFile(backing, info) || f.under("/") == "/" && backs(f.under("/dev/"+loop), info) {
			found = append(found, loop)
		}
	}
	return found
}

// isFile says whether a path is of the file, by device and inode.
func (f *finder) isFile(path string, info fs.FileInfo) bool {
	other, err := os.Stat(f.under(path))
	return err == nil && os.SameFile(other, info)
}

// findWriters looks for the file among those that a process has open for writing.
func (f *finder) findWriters(pid int, path string, info fs.FileInfo) {
	dir := "/proc/" + strconv.Itoa(pid)
	entries, err := os.ReadDir(f.under(dir + "/fd"))
	if err != nil {
		return
	}
	for _, e := range entries {
		link, err := os.Readlink(f.under(dir + "/fd/" + e.Name()))
		if err != nil || !strings.HasPrefix(link, "/") || !f.isFile(dir+"/fd/"+e.Name(), info) {
			continue
		}
		b, err := os.ReadFile(f.under(dir + "/fdinfo/" + e.Name()))
		if mode, known := accessMode(string(b)); errors.Is(err, fs.ErrNotExist) || known && mode == syscall.O_RDONLY {
			continue // closed meanwhile, or a mere reader
		}
		name, _ := os.ReadFile(f.under(dir + "/comm"))
		f.add(Use{
			Kind: KindWriter, Class: Never, Subject: path, PID: pid, Process: strings.TrimSpace(string(name)),
			Detail: "open for writing",
		})
	}
}
