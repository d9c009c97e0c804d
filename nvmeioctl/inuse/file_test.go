package inuse

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// treeOf writes a tree of files that looks like a machine.
func treeOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A file is in use by what is on it, whatever it is called there.
func TestFindFile_whateverItIsCalled(t *testing.T) {
	root := treeOf(t, map[string]string{
		"srv/disk.img": "x", "srv/free.img": "y", "srv/a file": "s",
		"sys/class/block/loop3/loop/backing_file": "/srv/link.img\n",
		"sys/class/block/loop4/loop/backing_file": "/srv/other.img\n",
		"proc/swaps":         "Filename\t\t\t\tType\t\tSize\n/srv/a\\040file file 1023996 0 -2\n",
		"proc/41/comm":       "editor\n",
		"proc/41/fdinfo/3":   "pos:\t0\nflags:\t0100002\n",
		"proc/41/fdinfo/4":   "pos:\t0\nflags:\t0100000\n",
		"proc/41/fd/nothing": "",
	})
	for link, to := range map[string]string{"proc/41/fd/3": "srv/disk.img", "proc/41/fd/4": "srv/free.img"} {
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(root, "srv/disk.img"), filepath.Join(root, "srv/link.img")); err != nil {
		t.Fatal(err)
	}
	said := func(path string) (list []string) {
		for _, u := range FindFile(root, path) {
			if u.Class != Never || u.Subject != path {
				t.Errorf("%+v", u)
			}
			list = append(list, string(u.Kind)+" "+u.Detail+" "+u.Process)
		}
		return list
	}
	if got := said("/srv/disk.img"); !slices.Equal(got, []string{"holder is the backing file of /dev/loop3 ", "writer open for writing editor"}) {
		t.Errorf("%q", got)
	}
	if got := said("/srv/a file"); !slices.Equal(got, []string{"swap swapped on "}) {
		t.Errorf("%q", got)
	}
	if got := said("/srv/free.img"); got != nil {
		t.Errorf("%q", got)
	}
}

func TestLoopOf(t *testing.T) {
	for link, want := range map[string]string{
		"../../devices/virtual/block/loop0": "loop0", "../../devices/virtual/block/loop12/loop12p1": "loop12",
		"../../devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1": "", "../../devices/pci/block/vda/vda1": "",
	} {
		if got := loopOf(link); got != want {
			t.Errorf("%s: %q", link, got)
		}
	}
}

// A loop device of this machine: found by the name it was given, by another, and
// by the device itself when its file is gone by name.
func TestFindFile_loopDevice(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "disk.img"), filepath.Join(dir, "other.img")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(name, other); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", name).Output()
	if err != nil {
		t.Skipf("no loop device can be made here: %v", err)
	}
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "-d", node).Run(); err != nil {
			t.Error(err)
		}
	})
	if got := Backing("", node); got != name {
		t.Errorf("the backing file of %s is %q", node, got)
	}
	find := func() bool {
		return slices.ContainsFunc(FindFile("", other), func(u Use) bool { return strings.Contains(u.Detail, node) })
	}
	if !find() {
		t.Errorf("%s is not found on %s", node, other)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if !find() {
		t.Errorf("%s is not found on %s once the name it had is gone", node, other)
	}
	if uses := FindNode("", node); slices.ContainsFunc(uses, func(u Use) bool { return u.Class == Never }) {
		t.Errorf("%v", uses)
	}
}
