package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// archive writes a cpio archive in the "newc" format, the one the kernel unpacks
// as its first root (Documentation/driver-api/early-userspace/buffer-format).
type archive struct {
	w   *bufio.Writer
	ino uint32
	err error
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
)

// add appends one entry. Numbers are eight hexadecimal digits; name and data are
// each padded to a multiple of four bytes, counted from the header's start.
func (a *archive) add(name string, mode uint32, data []byte) {
	if a.err != nil {
		return
	}
	a.ino++
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write(header, name, "\x00", pad(len(header)+len(name)+1))
	if a.err == nil {
		_, a.err = a.w.Write(data)
	}
	a.write(pad(len(data)))
}

func (a *archive) write(parts ...string) {
	for _, s := range parts {
		if a.err != nil {
			return
		}
		_, a.err = a.w.WriteString(s)
	}
}

// close writes the trailer; nothing may be added after it.
func (a *archive) close() error {
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	return a.w.Flush()
}

func pad(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

// writeInitramfs writes the guest's first root: busybox, the modules in the order
// they are to be inserted, init, and the script of the machine's command.
func writeInitramfs(ctx context.Context, w io.Writer, kit Kit, m *Machine) error {
	tree, err := readModuleTree(kit)
	if err != nil {
		return err
	}
	modules, err := tree.load(ctx, m.modules())
	if err != nil {
		return err
	}
	busybox, err := os.ReadFile(kit.Busybox)
	if err != nil {
		return fmt.Errorf("vm: busybox: %w", err)
	}
	a := &archive{w: bufio.NewWriter(w)}
	for _, dir := range []string{"bin", "dev", "h", "modules", "proc", "sys"} {
		a.add(dir, modeDir, nil)
	}
	a.add("bin/busybox", modeFile, busybox)
	var order strings.Builder
	for _, mod := range modules {
		a.add("modules/"+mod.name+".ko", modeFile, mod.data)
		order.WriteString(mod.name + "\n")
	}
	a.add("modules/order", modeFile, []byte(order.String()))
	a.add("run", modeFile, []byte(m.script()))
	a.add("limit", modeFile, fmt.Appendf(nil, "%d\n", int64((m.limit()+orphanGrace).Seconds())))
	a.add("init", modeFile, []byte(initScript))
	if err := a.close(); err != nil {
		return fmt.Errorf("vm: initramfs: %w", err)
	}
	return nil
}

// initScript is the guest's process 1. It puts the host's root below /h with
// live /proc, /sys and /dev, room to write on /run and /mnt (not on /tmp, which
// holds test binaries of the host), runs the command there, reports its exit
// code on the second serial port and switches the machine off.
const initScript = `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
stty -F /dev/ttyS1 raw -echo
say() { echo "nvop-vm: $*" >/dev/ttyS1; }
off() { sync; poweroff -f; sleep 60; }
# The host ends a boot that takes too long; this is for a host that is gone.
(sleep "$(cat /limit)"; echo o >/proc/sysrq-trigger) &
while read -r m; do
	insmod "/modules/$m.ko" || say "note insmod $m: exit code $?"
done </modules/order
if ! mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose hostroot /h; then
	say "note the host's root cannot be mounted"
	say "exit 126"
	off
fi
mount -t proc proc /h/proc
mount -t sysfs sysfs /h/sys
mount -t devtmpfs devtmpfs /h/dev
mkdir -p /h/dev/pts /h/dev/shm
mount -t devpts -o ptmxmode=666 devpts /h/dev/pts
mount -t tmpfs tmpfs /h/dev/shm
mount -t tmpfs -o mode=755 tmpfs /h/run
mount -t tmpfs -o mode=755 tmpfs /h/mnt
mkdir -p /h/run/lock /h/run/tmp /h/run/home
ip link set lo up
cp /run /h/run/nvop-vm-run
say "boot $(cut -d' ' -f1 /proc/uptime)"
chroot /h /bin/sh /run/nvop-vm-run </dev/null
say "exit $?"
off
`

// orphanGrace is how much longer than the host's limit a guest lives by itself.
const orphanGrace = 30 * time.Second

// script is what runs in the guest, below the host's root.
func (m *Machine) script() string {
	var b strings.Builder
	b.WriteString("export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
	b.WriteString("export HOME=/run/home TMPDIR=/run/tmp LC_ALL=C.UTF-8\n")
	for _, env := range m.Env {
		name, value, _ := strings.Cut(env, "=")
		b.WriteString("export " + name + "=" + shellQuote(value) + "\n")
	}
	if m.Dir != "" {
		b.WriteString("cd " + shellQuote(m.Dir) + "\n")
	}
	b.WriteString("exec")
	for _, arg := range m.Command {
		b.WriteString(" " + shellQuote(arg))
	}
	b.WriteString("\n")
	return b.String()
}

// shellQuote makes one word of s for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
