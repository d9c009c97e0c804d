package inuse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sampleSize is not a multiple of 64 KiB, so that the places near the end of md
// 0.90 and 1.0 are not at the same spot.
const sampleSize = 1<<20 + 20<<10

// sample is a medium with one signature, written by hand from the on-disk
// formats' own documents.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	b := make([]byte, sampleSize)
	put := func(off int, s string) { copy(b[off:], s) }
	le := binary.LittleEndian
	switch name {
	case "empty":
	case "gpt512":
		put(510, "\x55\xAA")
		b[450] = 0xEE
		put(512, "EFI PART")
	case "gpt4096":
		put(510, "\x55\xAA")
		b[450] = 0xEE
		put(4096, "EFI PART")
	case "gptbackup":
		put(sampleSize-512, "EFI PART")
	case "mbr":
		put(510, "\x55\xAA")
		b[446+16+4] = 0x83
	case "bootsector": // the mark alone, no partition
		put(510, "\x55\xAA")
	case "ext4":
		le.PutUint16(b[1024+0x38:], 0xEF53)
	case "xfs":
		put(0, "XFSB")
	case "btrfs":
		put(0x10040, "_BHRfS_M")
	case "lvm":
		put(512, "LABELONE")
		put(512+24, "LVM2 001")
	case "luks":
		put(0, "LUKS\xba\xbe\x00\x02")
	case "swap":
		put(4086, "SWAPSPACE2")
	case "fat32":
		put(82, "FAT32   ")
		put(510, "\x55\xAA")
		b[450] = 0x20 // boot code, no partition
	case "ntfs":
		put(3, "NTFS    ")
		put(510, "\x55\xAA")
		b[450] = 0x20
	case "md1.1":
		le.PutUint32(b[0:], 0xA92B4EFC)
	case "md1.2":
		le.PutUint32(b[4096:], 0xA92B4EFC)
	case "md1.0": // 8 KiB before the end, on a 4 KiB boundary
		le.PutUint32(b[sampleSize-8192:], 0xA92B4EFC)
	case "md0.90": // the last whole 64 KiB but one
		le.PutUint32(b[1<<20-64<<10:], 0xA92B4EFC)
	case "md0.90 other byte order":
		binary.BigEndian.PutUint32(b[1<<20-64<<10:], 0xA92B4EFC)
	case "zfs", "zfs other byte order":
		put(16<<10+40, "\x00\x00\x00\x20\x00\x00\x00\x20\x00\x00\x00\x04name\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\x00\x04tank")
		if name == "zfs" {
			le.PutUint64(b[128<<10+5<<10:], 0x00BAB10C)
		} else {
			binary.BigEndian.PutUint64(b[128<<10:], 0x00BAB10C)
		}
	case "bcache":
		put(4096+24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")
	default:
		t.Fatalf("no sample %q", name)
	}
	return b
}

func names(list []signature) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s.kind)+" "+s.name)
	}
	return out
}

func TestProbe(t *testing.T) {
	for name, want := range map[string][]string{
		"empty":      nil,
		"bootsector": nil,
		"gpt512":     {"partition-table GPT"}, "gpt4096": {"partition-table GPT"},
		"gptbackup": {"partition-table GPT (backup at the end)"},
		"mbr":       {"partition-table MBR"},
		"ext4":      {"signature ext2/3/4"}, "xfs": {"signature xfs"}, "btrfs": {"signature btrfs"},
		"lvm": {"signature LVM2 physical volume"}, "luks": {"signature LUKS"}, "swap": {"signature swap"},
		"fat32": {"signature fat"}, "ntfs": {"signature ntfs"}, "bcache": {"signature bcache"},
		"md1.1": {"signature md member (1.1)"}, "md1.2": {"signature md member (1.2)"},
		"md1.0": {"signature md member (1.0)"}, "md0.90": {"signature md member (0.90)"},
		"md0.90 other byte order": {"signature md member (0.90)"},
		"zfs":                     {"signature ZFS"}, "zfs other byte order": {"signature ZFS"},
	} {
		got, err := probe(bytes.NewReader(sample(t, name)), sampleSize)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, names(got)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

type brokenMedium struct{ error }

func (b brokenMedium) ReadAt([]byte, int64) (int, error) { return 0, b.error }

func TestProbe_error(t *testing.T) {
	boom := errors.New("boom")
	if _, err := probe(brokenMedium{boom}, 1<<20); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

// An outside witness: what the system's own tools write.
func TestProbe_realTools(t *testing.T) {
	for _, c := range []struct {
		tool string
		args []string
		want string
	}{
		{"mkfs.ext4", []string{"-q", "-F"}, "signature ext2/3/4"},
		{"mkswap", nil, "signature swap"},
		{"mkfs.xfs", []string{"-q", "-f"}, "signature xfs"},
		{"mkfs.btrfs", []string{"-q", "-f"}, "signature btrfs"},
		{"mkfs.vfat", nil, "signature fat"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			path, err := exec.LookPath(c.tool)
			if err != nil {
				t.Skip("not installed")
			}
			file := filepath.Join(t.TempDir(), "medium")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			const size = 512 << 20 // sparse
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), path, append(c.args, file)...).CombinedOutput(); err != nil {
				t.Skipf("%v: %s", err, out)
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			got, err := probe(f, size)
			if err != nil || cmp.Diff([]string{c.want}, names(got)) != "" {
				t.Errorf("%v, %v", names(got), err)
			}
		})
	}
}

func FuzzProbe(f *testing.F) {
	for _, name := range []string{"gpt512", "mbr", "zfs", "md1.0", "fat32"} {
		f.Add(sample(f, name)[:160<<10], int64(160<<10))
	}
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		size = size & (1<<20 - 1) // a device may be shorter or longer than what can be read of it
		list, err := probe(bytes.NewReader(b), size)
		if err != nil {
			t.Fatalf("reading cannot fail here: %v", err)
		}
		for _, s := range list {
			if s.name == "" || s.kind != KindSignature && s.kind != KindPartitionTable || len(s.pool) > 255 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add(`30 27 259:2 / /srv\040data rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, m := range parseMountinfo(s) {
			if m.number == "" || m.fsType == "" {
				t.Errorf("%+v", m)
			}
		}
	})
}
