package inuse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// mount is one line of a mountinfo file (proc(5)).
type mount struct {
	number, point, fsType, source string
}

// parseMountinfo reads a mountinfo file; lines of another form are skipped.
func parseMountinfo(text string) []mount {
	var list []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 {
			continue
		}
		list = append(list, mount{number: l[2], point: unescape(l[4]), fsType: r[0], source: unescape(r[1])})
	}
	return list
}

// unescape undoes the octal escapes that /proc writes for white space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// findMounts looks in every mount namespace there is: what only a container has
// mounted is in use as well.
func (f *finder) findMounts() {
	text, ok := f.read("/proc/self/mountinfo", "mounts")
	if !ok {
		f.unknown("mounts", "cannot read /proc/self/mountinfo", fs.ErrNotExist)
	}
	f.matchMounts(text, "")
	own, _ := os.Readlink(f.under("/proc/self/ns/mnt"))
	done := []string{own}
	denied := 0
	for _, pid := range f.processes() {
		dir := "/proc/" + strconv.Itoa(pid)
		ns, err := os.Readlink(f.under(dir + "/ns/mnt"))
		if errors.Is(err, fs.ErrPermission) {
			denied++
		}
		if err != nil || slices.Contains(done, ns) {
			continue
		}
		b, err := os.ReadFile(f.under(dir + "/mountinfo"))
		if err != nil {
			continue // the process has ended; another of its namespace is looked at
		}
		done = append(done, ns)
		f.matchMounts(string(b), fmt.Sprintf(" in the mount namespace of process %d", pid))
	}
	if denied > 0 {
		f.unknown("mounts", fmt.Sprintf("cannot see the mount namespaces of %d processes", denied), fs.ErrPermission)
	}
}

func (f *finder) matchMounts(text, where string) {
	for _, m := range parseMountinfo(text) {
		d := f.byNumber(m.number, false)
		if d == nil && strings.HasPrefix(m.source, "/") {
			d = f.block(m.source) // file systems with anonymous numbers
		}
		if d == nil || d.char {
			continue
		}
		f.add(Use{
			Kind: KindMounted, Class: Never, Subject: d.node(),
			Detail: fmt.Sprintf("mounted at %s (%s)%s%s", m.point, m.fsType, where, f.describe(d)),
		})
		if where == "" && isBootPoint(m.point) {
			f.add(Use{
				Kind: KindBoot, Class: Never, Subject: f.devices[f.origin(d).disk].node(),
				Detail: fmt.Sprintf("this machine runs from it: it backs %s", m.point),
			})
		}
	}
}

func isBootPoint(point string) bool {
	return slices.Contains([]string{"/", "/usr", "/boot", "/boot/efi", "/efi"}, point)
}

// findSwaps reads /proc/swaps. A swap file is found by its file system's mount.
func (f *finder) findSwaps() {
	text, _ := f.read("/proc/swaps", "swap")
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "/") {
			continue
		}
		if d := f.block(unescape(fields[0])); d != nil {
			f.add(Use{Kind: KindSwap, Class: Never, Subject: d.node(), Detail: "swapped on" + f.describe(d)})
		}
	}
}
