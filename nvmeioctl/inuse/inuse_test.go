package inuse

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is a root under construction: lines of "path = content" or "path ->
// link target".
type machine struct {
	t    *testing.T
	root string
}

// newMachine has two drives: nvme0n1 with two partitions and nvme1n1 with none,
// nothing of which is in use.
func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir()}
	m.add(
		"/proc/self/mountinfo = 27 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
		"/proc/self/ns/mnt -> mnt:[1]",
		"/proc/swaps = Filename Type Size Used Priority",
		"/sys/class/nvme/nvme0/dev = 242:0", "/sys/class/nvme-generic/ng0n1/dev = 241:0",
		"/sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/nvme",
	)
	m.disk("nvme0n1", "259:0", "")
	m.disk("nvme0n1p1", "259:1", "nvme0n1")
	m.disk("nvme0n1p2", "259:2", "nvme0n1")
	m.disk("nvme1n1", "259:10", "")
	return m
}

func (m machine) target() Target {
	return Target{Disks: []string{"nvme0n1"}, Chars: []string{"nvme0", "ng0n1"}, PCIAddresses: []string{"0000:01:00.0"}}
}

func (m machine) add(lines ...string) {
	m.t.Helper()
	for _, line := range lines {
		path, link, isLink := strings.Cut(line, " -> ")
		content := ""
		if !isLink {
			path, content, _ = strings.Cut(line, " = ")
		}
		path = filepath.Join(m.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Fatal(err)
		}
		var err error
		if isLink {
			_ = os.Remove(path)
			err = os.Symlink(link, path)
		} else {
			err = os.WriteFile(path, []byte(strings.ReplaceAll(content, "|", "\n")+"\n"), 0o644)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// disk makes a block device of 1 MiB, or a partition of parent.
func (m machine) disk(name, number, parent string) {
	m.t.Helper()
	dir := "/sys/devices/" + name
	if parent != "" {
		dir = "/sys/devices/" + parent + "/" + name
		m.add(dir + "/partition = 1")
	}
	m.add(dir+"/dev = "+number, dir+"/size = 2048", "/sys/class/block/"+name+" -> ../.."+strings.TrimPrefix(dir, "/sys"))
	m.write("/dev/"+name, nil)
	if err := os.Truncate(filepath.Join(m.root, "dev", name), 1<<20); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) write(path string, b []byte) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(m.root, path)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.root, path), b, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func lines(uses []Use) []string {
	var list []string
	for _, u := range uses {
		list = append(list, fmt.Sprintf("%s %s %s: %s", u.Class, u.Kind, u.Subject, u.Detail))
	}
	return list
}

func TestFind_free(t *testing.T) {
	m := newMachine(t)
	if uses := Find(m.root, m.target()); len(uses) != 0 {
		t.Errorf("an unused drive: %q", lines(uses))
	}
}

// FMT-05, FMT-06: each use on its own must be found, and only for the drive
// that has it: nvme1n1 stays free throughout.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		name  string
		build []string
		want  []string
	}{
		{"mounted partition", []string{
			`/proc/self/mountinfo = 27 1 254:0 / / rw - ext4 /dev/vda rw|30 27 259:2 / /srv\040data rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw`,
		}, []string{"never mounted /dev/nvme0n1p2: mounted at /srv data (xfs)"}},
		{"the number counts, not the name", []string{
			"/proc/self/mountinfo = 30 27 259:99 / /srv rw - tmpfs nvme0n1 rw",
		}, nil},
		{"boot drive", []string{
			"/proc/self/mountinfo = 30 27 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw",
		}, []string{
			"never boot /dev/nvme0n1: this machine runs from it: it backs /boot/efi",
			"never mounted /dev/nvme0n1p1: mounted at /boot/efi (vfat)",
		}},
		{"mounted in a container only", []string{
			"/proc/77/ns/mnt -> mnt:[2]",
			"/proc/77/mountinfo = 30 27 259:1 / / rw - ext4 /dev/nvme0n1p1 rw",
		}, []string{"never mounted /dev/nvme0n1p1: mounted at / (ext4) in the mount namespace of process 77"}},
		{"swap", []string{"/proc/swaps = Filename Type Size Used Priority|/dev/nvme0n1p2 partition 1 0 -2"},
			[]string{"never swap /dev/nvme0n1p2: swapped on"}},
		{"swap by another name", []string{
			"/dev/disk/by-label/swap -> ../../nvme0n1p2",
			"/proc/swaps = Filename Type Size Used Priority|/dev/disk/by-label/swap partition 1 0 -2",
		}, []string{"never swap /dev/nvme0n1p2: swapped on"}},
		{"LVM on LUKS on a partition, root", []string{
			"/sys/class/block/nvme0n1p2/holders/dm-0 -> ../x",
			"/sys/devices/dm-0/dev = 253:0", "/sys/devices/dm-0/dm/name = crypt", "/sys/devices/dm-0/dm/uuid = CRYPT-LUKS2-x",
			"/sys/class/block/dm-0 -> ../../devices/dm-0", "/sys/devices/dm-0/holders/dm-1 -> ../x",
			"/sys/devices/dm-1/dev = 253:1", "/sys/devices/dm-1/dm/name = vg-root", "/sys/devices/dm-1/dm/uuid = LVM-x",
			"/sys/class/block/dm-1 -> ../../devices/dm-1",
			"/proc/self/mountinfo = 30 27 253:1 / / rw - ext4 /dev/mapper/vg-root rw",
		}, []string{
			`never holder /dev/dm-0: held by dm-1: device mapper "vg-root" (LVM), on top of /dev/nvme0n1p2`,
			"never mounted /dev/dm-1: mounted at / (ext4), on top of /dev/nvme0n1p2",
			"never boot /dev/nvme0n1: this machine runs from it: it backs /",
			`never holder /dev/nvme0n1p2: held by dm-0: device mapper "crypt" (encrypted)`,
		}},
		{"md array", []string{
			"/sys/class/block/nvme0n1/holders/md0 -> ../x",
			"/sys/devices/md0/dev = 9:0", "/sys/devices/md0/md/level = raid1", "/sys/class/block/md0 -> ../../devices/md0",
			"/proc/mdstat = Personalities : [raid1]|md0 : active raid1 nvme1n9[1] nvme0n1[0]|      1 blocks",
		}, []string{
			"never md /dev/nvme0n1: member of md array md0 (raid1)",
			"never md /dev/nvme0n1: member of md array md0, which is active",
		}},
		{"inactive md array has no holder", []string{
			"/proc/mdstat = Personalities :|md127 : inactive nvme0n1p1[0](S)|      1 blocks super 1.2",
		}, []string{"never md /dev/nvme0n1p1: member of md array md127, which is inactive"}},
		{"second member of a btrfs", []string{
			"/sys/fs/btrfs/0123/devices/nvme0n1p1 -> ../x", "/sys/fs/btrfs/features/x = 1",
		}, []string{"never mounted /dev/nvme0n1p1: member of the mounted btrfs 0123"}},
		{"btrfs mounts have anonymous numbers", []string{
			"/proc/self/mountinfo = 30 27 0:44 / /data rw - btrfs /dev/nvme0n1p1 rw",
		}, []string{"never mounted /dev/nvme0n1p1: mounted at /data (btrfs)"}},
		{"loop device", []string{
			"/sys/devices/loop3/dev = 7:3", "/sys/devices/loop3/loop/backing_file = /dev/nvme0n1p1",
			"/sys/class/block/loop3 -> ../../devices/loop3",
		}, []string{"never holder /dev/nvme0n1p1: is the backing file of /dev/loop3"}},
		{"NVMe target", []string{
			"/sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1/device_path = /dev/nvme0n1",
			"/sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1/enable = 1",
			"/sys/kernel/config/nvmet/subsystems/nqn.b/namespaces/1/device_path = /dev/nvme0n1p1",
			"/sys/kernel/config/nvmet/subsystems/nqn.b/namespaces/1/enable = 0",
			"/sys/kernel/config/nvmet/subsystems/nqn.c/passthru/device_path = /dev/nvme0",
			"/sys/kernel/config/nvmet/subsystems/nqn.c/passthru/enable = 1",
		}, []string{
			"never export /dev/nvme0: exported by the kernel's NVMe target as nqn.c",
			"never export /dev/nvme0n1: exported by the kernel's NVMe target as nqn.a",
		}},
		{"SCSI target", []string{"/sys/kernel/config/target/core/iblock_0/disk/udev_path = /dev/nvme0n1"},
			[]string{"never export /dev/nvme0n1: exported by the kernel's SCSI target as disk"}},
		{"vfio", []string{"/sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/vfio-pci"},
			[]string{"never driver 0000:01:00.0: the driver vfio-pci owns the controller"}},
		{"openers", []string{
			"/proc/50/comm = smartd", "/proc/50/fd/3 -> /dev/nvme0", "/proc/50/fdinfo/3 = pos:\t0|flags:\t0100000",
			"/proc/51/comm = fio", "/proc/51/fd/7 -> /dev/nvme0n1p2", "/proc/51/fdinfo/7 = pos:\t0|flags:\t0140002",
			"/proc/52/comm = old", "/proc/52/fd/1 -> /dev/ng0n1 (deleted)", "/proc/52/fdinfo/1 = flags:\t0100001",
			"/proc/53/comm = odd", "/proc/53/fd/1 -> /dev/nvme0n1", "/proc/53/fdinfo/1 = nothing",
			"/proc/54/comm = other", "/proc/54/fd/1 -> /dev/nvme1n1", "/proc/54/fdinfo/1 = flags:\t02",
			"/proc/54/fd/2 -> socket:[1]", "/proc/54/fd/3 -> /tmp/file",
		}, []string{
			"never writer /dev/ng0n1: open for writing",
			"never writer /dev/nvme0n1: open, and for what is not known",
			"never writer /dev/nvme0n1p2: open for writing",
			"accept-only reader /dev/nvme0: open for reading",
		}},
		{"own files do not count", []string{
			fmt.Sprintf("/proc/%d/fd/3 -> /dev/nvme0n1", os.Getpid()), fmt.Sprintf("/proc/%d/fdinfo/3 = flags:\t02", os.Getpid()),
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.add(c.build...)
			if d := cmp.Diff(c.want, lines(Find(m.root, m.target()))); d != "" {
				t.Error(d)
			}
			other := Find(m.root, Target{Disks: []string{"nvme1n1"}})
			for _, u := range other {
				if u.Process != "other" {
					t.Errorf("the other drive: %q", lines([]Use{u}))
				}
			}
		})
	}
}

func TestFind_openerHasProcess(t *testing.T) {
	m := newMachine(t)
	m.add("/proc/50/comm = smartd", "/proc/50/fd/3 -> /dev/nvme0", "/proc/50/fdinfo/3 = flags:\t0100000")
	uses := Find(m.root, m.target())
	if len(uses) != 1 || uses[0].PID != 50 || uses[0].Process != "smartd" {
		t.Fatalf("%+v", uses)
	}
	b, err := json.Marshal(uses[0])
	if err != nil || string(b) != `{"kind":"reader","class":"accept-only","subject":"/dev/nvme0","detail":"open for reading","pid":50,"process":"smartd"}` {
		t.Errorf("%s %v", b, err)
	}
}

// What cannot be looked at is said, and stands in the way until accepted.
func TestFind_unknown(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(filepath.Join(m.root, "/proc/self/mountinfo")); err != nil {
		t.Fatal(err)
	}
	m.add("/sys/devices/nvme0n1/nvme0n1p1/size = many")
	if err := os.Remove(filepath.Join(m.root, "/dev/nvme0n1p2")); err != nil {
		t.Fatal(err)
	}
	target := m.target()
	target.Disks = append(target.Disks, "nvme5n1")
	target.Chars = append(target.Chars, "nvme5")
	target.PCIAddresses = append(target.PCIAddresses, "0000:05:00.0")
	// A directory where a file should be fails for root too.
	if err := os.MkdirAll(filepath.Join(m.root, "/proc/swaps/x"), 0o755); err == nil {
		t.Fatal("/proc/swaps was no file")
	}
	if err := os.Remove(filepath.Join(m.root, "/proc/swaps")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(m.root, "/proc/swaps"), 0o755); err != nil {
		t.Fatal(err)
	}
	uses := Find(m.root, target)
	want := []string{
		"accept-only unknown /dev/nvme0n1p1: cannot tell its size: strconv.ParseInt: parsing \"many\": invalid syntax",
		"accept-only unknown /dev/nvme0n1p2: cannot read what is on it: no such file or directory",
		"accept-only unknown /dev/nvme5: the kernel has no character device of this name",
		"accept-only unknown /dev/nvme5n1: the kernel has no block device of this name",
		"accept-only unknown 0000:05:00.0: there is no PCI device at this address",
		"accept-only unknown mounts: cannot read /proc/self/mountinfo: file does not exist",
		"accept-only unknown swap: cannot read /proc/swaps: is a directory",
	}
	if d := cmp.Diff(want, lines(uses)); d != "" {
		t.Error(d)
	}
	if len(Blocking(uses)) != len(want) || len(Blocking(uses, KindUnknown)) != 0 {
		t.Error("an unknown must block until it is accepted")
	}
}

func TestFind_unreadableProcess(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every process: the mode bits mean nothing to it")
	}
	m := newMachine(t)
	m.add("/proc/60/comm = secret", "/proc/60/fd/3 -> /dev/nvme0")
	dir := filepath.Join(m.root, "/proc/60/fd")
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	uses := Find(m.root, m.target())
	if len(uses) != 1 || uses[0].Kind != KindUnknown || !strings.Contains(uses[0].Detail, "1 processes") {
		t.Errorf("%q", lines(uses))
	}
}

func TestFind_signaturesAndPools(t *testing.T) {
	m := newMachine(t)
	m.write("/dev/nvme0n1", sample(t, "gpt512"))
	m.write("/dev/nvme0n1p1", sample(t, "ext4"))
	m.write("/dev/nvme0n1p2", sample(t, "zfs"))
	want := []string{
		"accept-only partition-table /dev/nvme0n1: has a partition table: GPT",
		"accept-only signature /dev/nvme0n1p1: has a signature: ext2/3/4",
		`accept-only signature /dev/nvme0n1p2: has a signature: ZFS pool "tank"`,
	}
	if d := cmp.Diff(want, lines(Find(m.root, m.target()))); d != "" {
		t.Error(d)
	}
	m.add("/proc/spl/kstat/zfs/other/state = ONLINE")
	if d := cmp.Diff(want, lines(Find(m.root, m.target()))); d != "" {
		t.Error("another pool is imported:", d)
	}
	m.add("/proc/spl/kstat/zfs/tank/state = ONLINE")
	uses := Find(m.root, m.target())
	if uses[0].Kind != KindZFS || uses[0].Class != Never || uses[0].Subject != "/dev/nvme0n1p2" {
		t.Errorf("%q", lines(uses))
	}
}

func TestBlocking(t *testing.T) {
	uses := []Use{
		{Kind: KindMounted, Class: Never}, {Kind: KindReader, Class: AcceptOnly}, {Kind: KindSignature, Class: AcceptOnly},
	}
	if got := Blocking(uses); len(got) != 3 {
		t.Errorf("%+v", got)
	}
	// A Never cannot be accepted away, not even by its kind.
	if got := Blocking(uses, append(Kinds(), KindMounted)...); len(got) != 1 || got[0].Kind != KindMounted {
		t.Errorf("%+v", got)
	}
	if got := Blocking(nil); got != nil {
		t.Errorf("%+v", got)
	}
}

// The running machine: a child that holds a device open is found by number.
func TestFind_thisMachine(t *testing.T) {
	if _, err := os.Stat("/sys/class/mem/full/dev"); err != nil {
		t.Skip("no /sys/class/mem/full on this machine")
	}
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("cannot open /dev/full: ", err)
	}
	defer func() { _ = file.Close() }()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Skip("cannot start a child: ", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for _, u := range Find("", Target{Chars: []string{"full"}}) {
		if u.PID == cmd.Process.Pid {
			if u.Kind != KindWriter || u.Class != Never || u.Subject != "/dev/full" {
				t.Errorf("%+v", u)
			}
			return
		}
		if u.PID == os.Getpid() {
			t.Errorf("found ourselves: %+v", u)
		}
	}
	t.Error("the child that has /dev/full open for writing was not found")
}

func TestNumberOf(t *testing.T) {
	info, err := os.Stat("/dev/full")
	if err != nil {
		t.Skip(err)
	}
	if got := numberOf(info); got != "1:7" {
		t.Errorf("/dev/full is %s", got)
	}
}
