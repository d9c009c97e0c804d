package inuse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// processes are the numbers of all processes, without this one.
func (f *finder) processes() []int {
	var list []int
	for _, name := range f.list("/proc", "processes") {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && pid != f.self {
			list = append(list, pid)
		}
	}
	return list
}

// findOpeners looks through the open files of all processes.
func (f *finder) findOpeners() {
	f.ownOpen = map[string]bool{}
	denied, first := 0, 0
	for _, pid := range f.processes() {
		if err := f.openFiles(pid, f.addOpener); errors.Is(err, fs.ErrPermission) {
			if denied++; first == 0 {
				first = pid
			}
		}
	}
	if denied > 0 {
		f.unknown("open files", fmt.Sprintf("cannot see the open files of %d processes, such as %d", denied, first), fs.ErrPermission)
	}
	// A process may not see its own only when /proc is not there, which the list
	// of processes has reported.
	_ = f.openFiles(f.self, func(d *device, _, _ int) { f.ownOpen[d.name] = true })
}

// openFiles calls found for each open file of the process that is one of the
// target's devices.
func (f *finder) openFiles(pid int, found func(d *device, pid, fd int)) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(f.under(dir))
	if err != nil {
		return err
	}
	var denied error
	for _, e := range entries {
		path := f.under(dir + "/" + e.Name())
		link, err := os.Readlink(path)
		if errors.Is(err, fs.ErrPermission) {
			denied = err // the list may be readable where the files are not
		}
		if err != nil || !strings.HasPrefix(link, "/") {
			continue // closed meanwhile, or a pipe or socket
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if d := f.opened(path, link); d != nil && d.below == "" {
			found(d, pid, fd)
		}
	}
	return denied
}

// opened says which device an open file is: by its number, whatever name it was
// opened under and even if that is gone, or by the name in the link.
func (f *finder) opened(path, link string) *device {
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeDevice != 0 {
		if d := f.byNumber(numberOf(info), info.Mode()&fs.ModeCharDevice != 0); d != nil {
			return d
		}
	}
	return f.byNode(strings.TrimSuffix(link, " (deleted)"))
}

func (f *finder) addOpener(d *device, pid, fd int) {
	dir := "/proc/" + strconv.Itoa(pid)
	name, _ := os.ReadFile(f.under(dir + "/comm"))
	u := Use{
		Kind: KindReader, Class: AcceptOnly, Subject: d.node(), PID: pid, Process: strings.TrimSpace(string(name)),
		Detail: "open for reading",
	}
	b, err := os.ReadFile(f.under(fmt.Sprintf("%s/fdinfo/%d", dir, fd)))
	mode, known := accessMode(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // closed meanwhile
	case err != nil || !known:
		// What is not known to be a reader is taken for a writer.
		u.Kind, u.Class, u.Detail = KindWriter, Never, "open, and for what is not known"
	case mode != syscall.O_RDONLY:
		u.Kind, u.Class, u.Detail = KindWriter, Never, "open for writing"
	}
	f.add(u)
}

// accessMode reads the octal "flags:" line of an fdinfo file.
func accessMode(text string) (mode int, ok bool) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "flags:")
		if !found {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(rest), 8, 64)
		return int(flags & syscall.O_ACCMODE), err == nil
	}
	return 0, false
}

// findExclusive asks the kernel whether anything in it holds a device
// exclusively: what catches holders that no file of sysfs tells of. It tells
// nothing when this process itself has the device open.
func (f *finder) findExclusive() {
	for _, d := range f.where(func(d *device) bool { return !d.char && d.below == "" }) {
		if f.ownOpen[d.name] || f.ownOpen[d.disk] || f.ownOpensPartition(d) {
			continue
		}
		// Opening for reading leaves udev alone when it is closed again.
		file, err := os.OpenFile(f.under(d.node()), os.O_RDONLY|os.O_EXCL, 0)
		switch {
		case err == nil:
			_ = file.Close() // nothing was written
		case errors.Is(err, syscall.EBUSY):
			f.add(Use{Kind: KindHolder, Class: Never, Subject: d.node(), Detail: "the kernel holds it exclusively"})
		}
		// Other errors are those of reading its signatures, reported there.
	}
}

// ownOpensPartition says whether this process has a part of the disk open.
func (f *finder) ownOpensPartition(disk *device) bool {
	for name := range f.ownOpen {
		if f.devices[name].disk == disk.name {
			return true
		}
	}
	return false
}
