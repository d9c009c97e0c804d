package nvmeioctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree builds a file system from testdata/sysfs/NAME.txt: lines of
// "path = content" or "path -> link target".
func tree(t *testing.T, name string) Host {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "sysfs", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		plant(t, root, line)
	}
	return Host{Root: root}
}

func plant(t *testing.T, root, line string) {
	t.Helper()
	path, link, isLink := strings.Cut(line, " -> ")
	content := ""
	if !isLink {
		path, content, _ = strings.Cut(line, " =")
		content = strings.TrimPrefix(content, " ")
	}
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	err := error(nil)
	if isLink {
		err = os.Symlink(link, path)
	} else {
		err = os.WriteFile(path, []byte(content+"\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiscover_single(t *testing.T) {
	inv, err := tree(t, "single").Discover()
	if err != nil {
		t.Fatal(err)
	}
	want := Inventory{
		Controllers: []Controller{{
			Name: "nvme0", Node: "/dev/nvme0", Serial: "S1", Model: "PBlaze7 7940", Firmware: "2.1.0",
			Transport: "pcie", Address: "0000:01:00.0", PCIAddress: "0000:01:00.0", CNTLID: 1,
			SubsystemNQN: "nqn.2014-08.org.nvmexpress:one", Subsystem: "nvme-subsys0", NUMANode: 0,
			State: "live", DeviceNumber: "242:0",
		}},
		Namespaces: []Namespace{{
			Name: "nvme0n1", Node: "/dev/nvme0n1", GenericNode: "/dev/ng0n1", NSID: 3,
			SizeBytes: 7681501126656, LogicalBlockBytes: 4096, EUI64: "0025380000000001",
			DeviceNumber: "259:0", GenericDeviceNumber: "241:0", Subsystem: "nvme-subsys0",
			Controllers: []string{"nvme0"},
		}},
		Subsystems: []Subsystem{{
			Name: "nvme-subsys0", NQN: "nqn.2014-08.org.nvmexpress:one", Serial: "S1", Model: "PBlaze7 7940",
			Controllers: []string{"nvme0"},
		}},
	}
	if d := cmp.Diff(want, inv); d != "" {
		t.Error(d)
	}
}

// NS-32: the first number of a namespace's name is the subsystem's.
func TestDiscover_multipath(t *testing.T) {
	inv, err := tree(t, "multipath").Discover()
	if err != nil || len(inv.Problems) != 0 {
		t.Fatal(err, inv.Problems)
	}
	type row struct {
		Name        string
		NSID        uint32
		Controllers []string
		NGUID, UUID string
	}
	var got []row
	for _, ns := range inv.Namespaces {
		if !ns.Multipath || ns.Subsystem != "nvme-subsys1" {
			t.Errorf("%s: multipath %v, subsystem %q", ns.Name, ns.Multipath, ns.Subsystem)
		}
		got = append(got, row{ns.Name, ns.NSID, ns.Controllers, ns.NGUID, ns.UUID})
	}
	want := []row{
		// The kernel shows the NGUID as UUID when there is no UUID.
		{"nvme1n1", 2, []string{"nvme1"}, "123456789abcdef0123456789abcdef0", ""},
		{"nvme1n2", 1, []string{"nvme0", "nvme1"}, "", "aaaaaaaa-0000-0000-0000-000000000001"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := inv.NamespacesOf("nvme0"); len(n) != 1 || n[0].NSID != 1 {
		t.Errorf("namespaces of nvme0: %+v", n)
	}
}

func TestDiscover_fabrics(t *testing.T) {
	inv, err := tree(t, "tcp").Discover()
	if err != nil || len(inv.Problems) != 0 {
		t.Fatal(err, inv.Problems)
	}
	c := inv.Controllers[0]
	if c.Transport != "tcp" || c.PCIAddress != "" || c.NUMANode != -1 || !strings.HasPrefix(c.Address, "traddr=") {
		t.Errorf("%+v", c)
	}
	ns := inv.Namespaces[0]
	if ns.Name != "nvme0n1" || ns.SizeBytes != 1<<20 || !cmp.Equal(ns.Controllers, []string{"nvme0"}) {
		t.Errorf("%+v", ns)
	}
}

// NS-72: what is wrong with one entry does not hide the others.
func TestDiscover_oldKernelAndDamage(t *testing.T) {
	inv, err := tree(t, "old").Discover()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range inv.Controllers {
		names = append(names, c.Name)
	}
	for _, ns := range inv.Namespaces {
		names = append(names, ns.Name+ns.GenericNode)
	}
	want := []string{"nvme0", "nvme1", "nvme2", "nvme10", "/dev/ng10n2", "nvme0n1", "nvme1n1", "nvme10n1"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	var text []string
	for _, p := range inv.Problems {
		text = append(text, p.Error())
	}
	all := strings.Join(text, "\n")
	for _, want := range []string{"/dev/nvme1: no serial number", "cntlid", "nvme2n1", "nvme7"} {
		if !strings.Contains(all, want) {
			t.Errorf("problems do not mention %q:\n%s", want, all)
		}
	}
}

func TestDiscover_noDriver(t *testing.T) {
	root := t.TempDir()
	if _, err := (Host{Root: root}).Discover(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without /sys: %v", err)
	}
	plant(t, root, "/sys/class/block/sda = ")
	inv, err := Host{Root: root}.Discover()
	if err != nil || len(inv.Controllers)+len(inv.Namespaces)+len(inv.Problems) != 0 {
		t.Errorf("without the driver: %+v, %v", inv, err)
	}
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		tree, path, want string
		kind             NodeKind
		nsid             uint32
		controllers      string
		device           string
	}{
		{"single", "/dev/nvme0", "/dev/nvme0", NodeController, 0, "nvme0", "242:0"},
		{"single", "/dev/nvme0n1", "/dev/nvme0n1", NodeNamespace, 3, "nvme0", "259:0"},
		{"single", "/dev/ng0n1", "/dev/ng0n1", NodeGeneric, 3, "nvme0", "241:0"},
		{"single", "/dev/disk/by-id/nvme-PBlaze7_S1", "/dev/nvme0n1", NodeNamespace, 3, "nvme0", "259:0"},
		{"single", "/dev/absolute", "/dev/nvme0n1", NodeNamespace, 3, "nvme0", "259:0"},
		{"single", "/dev/disk/../nvme0", "/dev/nvme0", NodeController, 0, "nvme0", "242:0"},
		{"multipath", "/dev/nvme1n1", "/dev/nvme1n1", NodeNamespace, 2, "nvme1", "259:1"},
		// The live controller comes first.
		{"multipath", "/dev/nvme1n2", "/dev/nvme1n2", NodeNamespace, 1, "nvme1 nvme0", "259:3"},
		{"multipath", "/dev/ng1n2", "/dev/ng1n2", NodeGeneric, 1, "nvme1 nvme0", "241:1"},
		{"tcp", "/dev/nvme0n1", "/dev/nvme0n1", NodeNamespace, 1, "nvme0", "259:1"},
		{"old", "/dev/ng10n2", "/dev/ng10n2", NodeGeneric, 9, "nvme10", "241:9"},
	} {
		target, err := tree(t, c.tree).Resolve(c.path)
		if err != nil {
			t.Errorf("%s %s: %v", c.tree, c.path, err)
			continue
		}
		var names []string
		for _, ctrl := range target.Controllers {
			names = append(names, ctrl.Name)
		}
		if target.Path != c.want || target.Kind != c.kind || target.NSID() != c.nsid ||
			strings.Join(names, " ") != c.controllers || target.DeviceNumber != c.device {
			t.Errorf("%s %s: %+v, controllers %v", c.tree, c.path, target, names)
		}
	}
}

func TestResolve_errors(t *testing.T) {
	h := tree(t, "single")
	for _, c := range []struct {
		path string
		want error
		text string
	}{
		{"/dev/nvme9", fs.ErrNotExist, "nvme9"},
		{"/dev/nvme0n1p1", ErrNotNVMe, "partition of /dev/nvme0n1"},
		{"/dev/plain", ErrNotNVMe, ""},
		{"/dev/null", ErrNotNVMe, ""},
		{"/dev", ErrNotNVMe, ""},
		{"/dev/loop", nil, "too many symbolic links"},
	} {
		_, err := h.Resolve(c.path)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	for _, path := range []string{"/dev/null", t.TempDir()} {
		if _, err := (Host{}).Resolve(path); !errors.Is(err, ErrNotNVMe) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("real %s: %v", path, err)
		}
	}
	if _, err := (Host{}).ControllersOf("/dev/nvme-does-not-exist"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing node: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	inv, err := tree(t, "single").Discover()
	if err != nil {
		t.Fatal(err)
	}
	want := Identity{SubsystemNQN: "nqn.2014-08.org.nvmexpress:one", Serial: "S1", Model: "PBlaze7 7940", CNTLID: 1}
	if got := inv.Controllers[0].Identity(); got != want {
		t.Errorf("%+v", got)
	}
}
