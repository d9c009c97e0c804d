package inuse

import (
	"fmt"
	"path/filepath"
	"strings"
)

// findStacks takes in what is stacked on the target, layer by layer: holders as
// sysfs has them, loop devices, running md arrays.
func (f *finder) findStacks() {
	loops := f.loopBackings()
	for i := 0; i < len(f.order) && i < 4096; i++ { // the list grows while it is walked
		d := f.devices[f.order[i]]
		if d.char {
			continue
		}
		for _, holder := range f.list("/sys/class/block/"+d.name+"/holders", d.node()) {
			f.addHolder(d, holder)
		}
		for loop, backing := range loops {
			if f.block(backing) == d {
				f.add(Use{
					Kind: KindHolder, Class: Never, Subject: d.node(),
					Detail: fmt.Sprintf("is the backing file of /dev/%s%s", loop, f.describe(d)),
				})
				f.addBlock(loop, d.name)
			}
		}
	}
	f.findMD()
	f.findBtrfs()
}

// addHolder reports that holder lies on d and looks at it next.
func (f *finder) addHolder(d *device, holder string) {
	dir := "/sys/class/block/" + holder
	u := Use{Kind: KindHolder, Class: Never, Subject: d.node()}
	switch {
	case f.exists(dir + "/md"):
		u.Kind = KindMD
		u.Detail = fmt.Sprintf("member of md array %s (%s)", holder, f.attr(dir+"/md/level", d.node()))
	case f.exists(dir + "/dm"):
		u.Detail = fmt.Sprintf("held by %s: device mapper %q%s",
			holder, f.attr(dir+"/dm/name", d.node()), dmKind(f.attr(dir+"/dm/uuid", d.node())))
	default:
		u.Detail = "held by " + holder
	}
	u.Detail += f.describe(d)
	f.add(u)
	if f.exists(dir) {
		f.addBlock(holder, d.name)
	}
}

// dmKind reads the prefix of a device mapper UUID, which says who made it.
func dmKind(uuid string) string {
	prefix, _, ok := strings.Cut(uuid, "-")
	if !ok {
		return ""
	}
	switch prefix {
	case "LVM":
		return " (LVM)"
	case "CRYPT":
		return " (encrypted)"
	case "mpath":
		return " (multipath)"
	}
	return ""
}

// loopBackings are the backing files of the loop devices. The kernel holds them
// open on behalf of no process.
func (f *finder) loopBackings() map[string]string {
	found := map[string]string{}
	for _, name := range f.list("/sys/class/block", "loop devices") {
		if !strings.HasPrefix(name, "loop") {
			continue
		}
		if file := f.attr("/sys/class/block/"+name+"/loop/backing_file", "/dev/"+name); file != "" {
			found[name] = file
		}
	}
	return found
}

// findMD reads /proc/mdstat: an array that is assembled but not started has its
// members too.
func (f *finder) findMD() {
	text, _ := f.read("/proc/mdstat", "md arrays")
	for line := range strings.Lines(text) {
		array, rest, ok := strings.Cut(line, " : ")
		if !ok || !strings.HasPrefix(array, "md") {
			continue
		}
		state, _, _ := strings.Cut(rest, " ")
		for _, field := range strings.Fields(rest) {
			member, _, isMember := strings.Cut(field, "[")
			d := f.devices[member]
			if isMember && d != nil {
				f.add(Use{
					Kind: KindMD, Class: Never, Subject: d.node(),
					Detail: fmt.Sprintf("member of md array %s, which is %s%s", array, state, f.describe(d)),
				})
			}
		}
	}
}

// findBtrfs looks for members of mounted btrfs file systems: the mount table
// gives these an anonymous device number and names one member only.
func (f *finder) findBtrfs() {
	for _, id := range f.list("/sys/fs/btrfs", "btrfs") {
		for _, name := range f.list("/sys/fs/btrfs/"+id+"/devices", "btrfs") {
			if d := f.devices[name]; d != nil {
				f.add(Use{
					Kind: KindMounted, Class: Never, Subject: d.node(),
					Detail: fmt.Sprintf("member of the mounted btrfs %s%s", id, f.describe(d)),
				})
			}
		}
	}
}

// findExports looks for what the kernel serves to other machines.
func (f *finder) findExports() {
	const nvmet = "/sys/kernel/config/nvmet/subsystems"
	for _, nqn := range f.list(nvmet, "NVMe target") {
		dirs := []string{filepath.Join(nvmet, nqn, "passthru")}
		for _, id := range f.list(filepath.Join(nvmet, nqn, "namespaces"), "NVMe target") {
			dirs = append(dirs, filepath.Join(nvmet, nqn, "namespaces", id))
		}
		for _, dir := range dirs {
			if f.attr(dir+"/enable", "NVMe target") == "1" {
				f.export(f.attr(dir+"/device_path", "NVMe target"), "exported by the kernel's NVMe target as "+nqn)
			}
		}
	}
	const lio = "/sys/kernel/config/target/core"
	for _, hba := range f.list(lio, "SCSI target") {
		for _, name := range f.list(filepath.Join(lio, hba), "SCSI target") {
			path := f.attr(filepath.Join(lio, hba, name, "udev_path"), "SCSI target")
			f.export(path, "exported by the kernel's SCSI target as "+name)
		}
	}
}

func (f *finder) export(path, detail string) {
	if path == "" {
		return
	}
	if d := f.block(path); d != nil {
		f.add(Use{Kind: KindExport, Class: Never, Subject: d.node(), Detail: detail + f.describe(d)})
	}
}

// findDrivers looks at who drives the controllers.
func (f *finder) findDrivers(addresses []string) {
	for _, addr := range addresses {
		dir := "/sys/bus/pci/devices/" + addr
		if !f.exists(dir) {
			f.add(Use{Kind: KindUnknown, Class: AcceptOnly, Subject: addr, Detail: "there is no PCI device at this address"})
			continue
		}
		driver := filepath.Base(f.follow(dir + "/driver"))
		if driver != "driver" && driver != "nvme" { // "driver": the link does not exist
			f.add(Use{
				Kind: KindDriver, Class: Never, Subject: addr,
				Detail: fmt.Sprintf("the driver %s owns the controller", driver),
			})
		}
	}
}
