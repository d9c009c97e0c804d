package inuse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// What is read of a device: enough for every place below.
const (
	headBytes = 384 << 10
	tailBytes = 256 << 10
)

// signature is something that was left on a medium.
type signature struct {
	kind Kind
	name string
	// pool is the name of a ZFS pool.
	pool string
}

// magic is a fixed pattern at a fixed place.
type magic struct {
	offset  int
	pattern string
	name    string
}

// magics are the patterns at the beginning of a device, with their place in
// bytes. Sources: the headers of each file system in the Linux tree and
// libblkid's superblock probes.
func magics() []magic {
	return []magic{
		{1024 + 56, "\x53\xEF", "ext2/3/4"},
		{0, "XFSB", "xfs"},
		{64<<10 + 64, "_BHRfS_M", "btrfs"},
		{0, "LUKS\xBA\xBE", "LUKS"},
		{16 << 10, "SKUL\xBA\xBE", "LUKS (second header)"},
		{3, "NTFS    ", "ntfs"},
		{3, "EXFAT   ", "exfat"},
		{54, "FAT12   ", "fat"},
		{54, "FAT16   ", "fat"},
		{82, "FAT32   ", "fat"},
		{4096 - 10, "SWAPSPACE2", "swap"},
		{4096 - 10, "SWAP-SPACE", "swap"},
		{64<<10 - 10, "SWAPSPACE2", "swap (64 KiB pages)"},
		{4096 + 24, "\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81", "bcache"},
		{1024, "\x10\x20\xF5\xF2", "f2fs"},
		{0, "hsqs", "squashfs"},
		{32<<10 + 1, "CD001", "iso9660"},
		{0, "bluestore block device", "ceph bluestore"},
	}
}

// probe finds signatures on a device of size bytes. It never fails for what the
// bytes are; the error says that they could not be read.
func probe(r io.ReaderAt, size int64) ([]signature, error) {
	head, err := readPart(r, 0, min(headBytes, size))
	if err != nil {
		return nil, err
	}
	tailStart := max(0, size-tailBytes) &^ 4095
	tail, err := readPart(r, tailStart, size-tailStart)
	if err != nil {
		return nil, err
	}
	p := prober{head: head, tail: tail, tailStart: tailStart, size: size}
	p.partitionTables()
	for _, m := range magics() {
		if p.is(m.offset, m.pattern) {
			p.found(KindSignature, m.name)
		}
	}
	p.lvm()
	p.md()
	p.zfs()
	return p.list, nil
}

// readPart reads n bytes at off.
func readPart(r io.ReaderAt, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.ReadAt(b, off)
	if got == len(b) || errors.Is(err, io.EOF) {
		return b[:got], nil
	}
	return nil, err
}

// prober holds the two ends of a device.
type prober struct {
	head, tail      []byte
	tailStart, size int64
	list            []signature
}

func (p *prober) found(kind Kind, name string) {
	p.list = append(p.list, signature{kind: kind, name: name})
}

// is says that pattern lies at off from the beginning.
func (p *prober) is(off int, pattern string) bool {
	return off >= 0 && off+len(pattern) <= len(p.head) && string(p.head[off:off+len(pattern)]) == pattern
}

// at returns n bytes at off, wherever they were read; nil when they were not.
func (p *prober) at(off int64, n int) []byte {
	if off < 0 {
		return nil
	}
	if off+int64(n) <= int64(len(p.head)) {
		return p.head[off : off+int64(n)]
	}
	if off -= p.tailStart; off >= 0 && off+int64(n) <= int64(len(p.tail)) {
		return p.tail[off : off+int64(n)]
	}
	return nil
}

// partitionTables finds GPT, of either block size and at either end, and MBR.
func (p *prober) partitionTables() {
	for _, block := range []int64{512, 4096} {
		if string(p.at(block, 8)) == "EFI PART" {
			p.found(KindPartitionTable, "GPT")
			return
		}
	}
	for _, block := range []int64{512, 4096} {
		if string(p.at(p.size-block, 8)) == "EFI PART" {
			p.found(KindPartitionTable, "GPT (backup at the end)")
			return
		}
	}
	// A boot sector of FAT or NTFS ends like an MBR and is no partition table.
	if !p.is(510, "\x55\xAA") || p.is(54, "FAT") || p.is(82, "FAT32") || p.is(3, "NTFS") || p.is(3, "EXFAT") {
		return
	}
	for i := range 4 {
		if kind := p.head[446+16*i+4]; kind != 0 {
			p.found(KindPartitionTable, "MBR")
			return
		}
	}
}

// lvm finds the label of an LVM physical volume, in one of the first four
// sectors.
func (p *prober) lvm() {
	for off := 0; off < 2048; off += 512 {
		if p.is(off, "LABELONE") && p.is(off+24, "LVM2 001") {
			p.found(KindSignature, "LVM2 physical volume")
			return
		}
	}
}

// md finds superblocks of md members: 1.1 and 1.2 at the beginning, 1.0 and
// 0.90 near the end (include/uapi/linux/raid/md_p.h).
func (p *prober) md() {
	const magic = 0xA92B4EFC
	sectors := p.size / 512
	for _, c := range []struct {
		off  int64
		name string
	}{
		{0, "md member (1.1)"}, {4096, "md member (1.2)"},
		{(sectors - 16) &^ 7 * 512, "md member (1.0)"},
		{p.size&^(64<<10-1) - 64<<10, "md member (0.90)"},
	} {
		// Version 0.90 is in the byte order of the machine that made it.
		b := p.at(c.off, 4)
		if b != nil && (binary.LittleEndian.Uint32(b) == magic || binary.BigEndian.Uint32(b) == magic) {
			p.found(KindSignature, c.name)
		}
	}
}

// zfs finds the ring of uberblocks in the first label; a pool has them in
// either byte order. The pool's name is in the label's list of pairs.
func (p *prober) zfs() {
	const magic = 0x00BAB10C
	for off := 128 << 10; off+8 <= 256<<10 && off+8 <= len(p.head); off += 1 << 10 {
		b := p.head[off : off+8]
		if binary.LittleEndian.Uint64(b) == magic || binary.BigEndian.Uint64(b) == magic {
			p.list = append(p.list, signature{kind: KindSignature, name: "ZFS", pool: p.zfsPool()})
			return
		}
	}
}

// zfsPool reads the pair "name" of the label: XDR, which is big-endian, with
// strings padded to four bytes.
func (p *prober) zfsPool() string {
	const start, end = 16 << 10, 128 << 10
	if len(p.head) < end {
		return ""
	}
	// The length of the pair's name, the name, type 9 (string), one element.
	key := []byte("\x00\x00\x00\x04name\x00\x00\x00\x09\x00\x00\x00\x01")
	label := p.head[start:end]
	i := bytes.Index(label, key)
	if i < 0 || i+len(key)+4 > len(label) {
		return ""
	}
	label = label[i+len(key):]
	n := int(binary.BigEndian.Uint32(label))
	if n > 255 || 4+n > len(label) {
		return ""
	}
	return string(label[4 : 4+n])
}

// findSignatures looks at what is on the disks and their partitions.
func (f *finder) findSignatures() {
	var pools []string
	for _, name := range f.list("/proc/spl/kstat/zfs", "zfs") {
		if f.exists("/proc/spl/kstat/zfs/" + name + "/state") { // the rest are no pools
			pools = append(pools, name)
		}
	}
	for _, d := range f.where(func(d *device) bool { return !d.char && d.below == "" }) {
		size, err := strconv.ParseInt(f.attr("/sys/class/block/"+d.name+"/size", d.node()), 10, 54)
		if err != nil {
			f.unknown(d.node(), "cannot tell its size", err)
			continue
		}
		list, err := f.probeNode(d, size*512)
		if err != nil {
			f.unknown(d.node(), "cannot read what is on it", err)
			continue
		}
		for _, s := range list {
			f.add(useOf(s, d.node(), pools))
		}
	}
}

func (f *finder) probeNode(d *device, size int64) (list []signature, err error) {
	file, err := os.Open(f.under(d.node()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return probe(file, size)
}

// useOf tells a member of an imported pool, which no other list shows, from
// what is only left over.
func useOf(s signature, node string, pools []string) Use {
	u := Use{Kind: s.kind, Class: AcceptOnly, Subject: node, Detail: "has a signature: " + s.name}
	if s.kind == KindPartitionTable {
		u.Detail = "has a partition table: " + s.name
	}
	if s.name != "ZFS" {
		return u
	}
	if s.pool != "" {
		u.Detail += fmt.Sprintf(" pool %q", s.pool)
	}
	for _, pool := range pools {
		// Without a name in the label any imported pool may be the one.
		if pool == s.pool || s.pool == "" {
			u.Kind, u.Class = KindZFS, Never
			u.Detail = fmt.Sprintf("member of the imported ZFS pool %q", pool)
		}
	}
	return u
}
