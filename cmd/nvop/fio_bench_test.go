package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// duel is one case in which this program and fio do the same to one target. What
// is compared is the processor time of the whole process, start and end
// included, for each operation.
type duel struct {
	name string
	// most is the ratio that is promised.
	most float64
	// target is "null", "zero", "loop" or "file"; a file is page-cached.
	target string
	// nvop are the flags after the address, fio those after the file name.
	nvop, fio string
	// fioFill prepares what fio reads; this program fills first by itself, which
	// counts.
	fioFill string
}

// tuned is fio at its best: the file and the buffers registered, in one process,
// many operations a system call, and no map of what was visited.
const tuned = "--ioengine=io_uring --thread --fixedbufs --registerfiles --norandommap --iodepth_batch_submit=32 --iodepth_batch_complete_min=32"

const plain = "--ioengine=io_uring --thread --fixedbufs --registerfiles --norandommap"

func duels() []duel {
	return []duel{
		{name: "4K write /dev/null QD128, fio tuned", most: 0.70, target: "null",
			nvop: "--rw randwrite --bs 4KiB --qd 128 --data headers", fio: tuned + " --rw=randwrite --bs=4k --iodepth=128"},
		{name: "4K read /dev/zero QD128, fio tuned", most: 0.75, target: "zero",
			nvop: "--rw randread --bs 4KiB --qd 128", fio: tuned + " --rw=randread --bs=4k --iodepth=128"},
		{name: "4K write /dev/null QD1, fio tuned", most: 0.75, target: "null",
			nvop: "--rw randwrite --bs 4KiB --qd 1 --data headers", fio: plain + " --rw=randwrite --bs=4k --iodepth=1"},
		{name: "4K read /dev/zero QD1, fio tuned", most: 0.75, target: "zero",
			nvop: "--rw randread --bs 4KiB --qd 1", fio: plain + " --rw=randread --bs=4k --iodepth=1"},
		{name: "4K write loop on tmpfs QD128, fio default batching", most: 0.60, target: "loop",
			nvop: "--rw randwrite --bs 4KiB --qd 128 --data headers --overwrite", fio: plain + " --rw=randwrite --bs=4k --iodepth=128 --direct=1"},
		{name: "verifiable 4K write /dev/null QD128, fio verify=crc32c", most: 0.38, target: "null",
			nvop: "--rw randwrite --bs 4KiB --qd 128", fio: tuned + " --rw=randwrite --bs=4k --iodepth=128 --verify=crc32c --do_verify=0"},
		{name: "verifiable 128K write /dev/null QD32, fio verify=crc32c", most: 0.16, target: "null",
			nvop: "--rw write --bs 128KiB --qd 32", fio: tuned + " --rw=write --bs=128k --iodepth=32 --verify=crc32c --do_verify=0"},
		{name: "verified 4K read page cache QD128, fio verify=crc32c", most: 0.60, target: "file",
			nvop: "--fill 1 --rw read --verify reads --bs 4KiB --qd 128 --buffered --overwrite",
			fio:  tuned + " --rw=read --bs=4k --iodepth=128 --verify=crc32c --invalidate=0 --iomem_align=4k", fioFill: "--rw=write --bs=4k"},
		{name: "verified 128K read page cache QD32, fio verify=crc32c", most: 0.45, target: "file",
			nvop: "--fill 1 --rw read --verify reads --bs 128KiB --qd 32 --buffered --overwrite",
			fio:  tuned + " --rw=read --bs=128k --iodepth=32 --verify=crc32c --invalidate=0 --iomem_align=4k", fioFill: "--rw=write --bs=128k"},
	}
}

// TestFio runs both alternately, A B B A, and prints the ratios. It is a
// benchmark of minutes and needs fio, so it runs only where NVOP_FIO says how
// many rounds; it fails no build, since what it measures depends on the machine.
func TestFio(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("NVOP_FIO"))
	if rounds <= 0 {
		t.Skip("NVOP_FIO=5 compares with fio, five rounds of A B B A a case (.ci/bench-fio)")
	}
	version, err := exec.Command("fio", "--version").Output()
	if err != nil {
		t.Skip("no fio here:", err)
	}
	b := newFioBench(t)
	t.Logf("processor time per operation against %s, median of %d rounds (least to greatest)", strings.TrimSpace(string(version)), rounds)
	only := os.Getenv("NVOP_FIO_ONLY")
	for _, d := range duels() {
		if !strings.Contains(d.name, only) {
			continue
		}
		var ratios, ours, theirs []float64
		for range rounds {
			a1, f1, f2, a2 := b.nvop(t, d), b.fio(t, d), b.fio(t, d), b.nvop(t, d)
			ours, theirs = append(ours, (a1+a2)/2), append(theirs, (f1+f2)/2)
			ratios = append(ratios, (a1+a2)/(f1+f2))
		}
		verdict := "kept"
		slices.Sort(ratios)
		if median(ratios) > d.most {
			verdict = "MISSED"
		}
		t.Logf("%-52s %.2f (%.2f to %.2f), promised %.2f: %s; %.0f against %.0f ns", d.name,
			median(ratios), ratios[0], ratios[len(ratios)-1], d.most, verdict, median(ours), median(theirs))
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// fioBench is where the two meet.
type fioBench struct {
	dir, binary string
	runs        int
	loop, file  string
	loopSize    uint64
	seconds     int
}

func newFioBench(t *testing.T) *fioBench {
	b := &fioBench{dir: t.TempDir(), seconds: 4}
	b.binary = filepath.Join(b.dir, "nvop")
	if out, err := exec.Command("go", "build", "-o", b.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.file = filepath.Join(b.dir, "medium")
	b.makeLoop(t)
	return b
}

// makeLoop puts a loop device over a file of tmpfs, with direct I/O: the only
// target without a drive where operations are truly under way.
func (b *fioBench) makeLoop(t *testing.T) {
	const size = 512 << 20
	backing, err := os.CreateTemp("/dev/shm", "nvop-bench-")
	if err != nil {
		t.Logf("no loop device: %v", err)
		return
	}
	t.Cleanup(func() { _ = os.Remove(backing.Name()) })
	if err := backing.Truncate(size); err != nil {
		t.Fatal(err)
	}
	_ = backing.Close()
	out, err := exec.Command("losetup", "--find", "--show", "--direct-io=on", "--sector-size=4096", backing.Name()).CombinedOutput()
	if err != nil {
		t.Logf("no loop device: %v: %s", err, out)
		return
	}
	b.loop, b.loopSize = strings.TrimSpace(string(out)), size
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", b.loop).Run() })
}

func (b *fioBench) target(t *testing.T, d duel) string {
	switch d.target {
	case "null":
		return "/dev/null"
	case "zero":
		return "/dev/zero"
	case "loop":
		if b.loop == "" {
			t.Skip("no loop device")
		}
		return b.loop
	}
	return b.file
}

// fileBytes is the size of the page-cached file.
const fileBytes = 256 << 20

// blank makes the page-cached file anew.
func (b *fioBench) blank(t *testing.T) {
	t.Helper()
	_ = os.Remove(b.file)
	f, err := os.Create(b.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(fileBytes), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// perOp is the processor time of a process for each operation, in nanoseconds.
func perOp(cmd *exec.Cmd, ops uint64) float64 {
	return float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / float64(ops)
}

func (b *fioBench) nvop(t *testing.T, d duel) float64 {
	t.Helper()
	b.runs++
	path := b.target(t, d)
	if d.target == "file" {
		b.blank(t)
	}
	args := []string{"--journal", filepath.Join(b.dir, fmt.Sprintf("journal-%d.db", b.runs)), "-o", "json", "soak", "start", "file:" + path}
	if d.target == "null" || d.target == "zero" {
		args = append(args, "--capacity", "64GiB")
	}
	args = append(args, strings.Fields(d.nvop)...)
	args = append(args, "--duration", fmt.Sprintf("%ds", b.seconds))
	cmd := exec.Command(b.binary, args...)
	cmd.Stderr = nil
	before := loopOps(b.loop)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	var doc struct {
		ReadOps  uint64 `json:"read_ops"`
		WriteOps uint64 `json:"write_ops"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatal(err)
	}
	ops := doc.ReadOps + doc.WriteOps
	if d.target == "loop" {
		b.counted(t, before, ops)
	}
	return perOp(cmd, ops)
}

// counted compares with the kernel's own count of operations, to which looking
// at the device adds a few.
func (b *fioBench) counted(t *testing.T, before, ops uint64) {
	t.Helper()
	got := loopOps(b.loop) - before
	if got < ops || got > ops+64 {
		t.Errorf("%d operations, /sys/block counts %d", ops, got)
	}
}

// loopOps is how many reads and writes the kernel counts (/sys/block/X/stat,
// fields 1 and 5), and those it merged with another (2 and 6).
func loopOps(node string) uint64 {
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(node), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0
	}
	sum := uint64(0)
	for _, i := range []int{0, 1, 4, 5} {
		n, _ := strconv.ParseUint(fields[i], 10, 64)
		sum += n
	}
	return sum
}

func (b *fioBench) fio(t *testing.T, d duel) float64 {
	t.Helper()
	size := "64g"
	switch d.target {
	case "loop":
		size = "512m"
	case "file":
		size = strconv.Itoa(fileBytes)
		b.blank(t)
		fill := append([]string{"--name=bench", "--filename=" + b.file, "--size=" + size, "--verify=crc32c", "--do_verify=0"}, strings.Fields(d.fioFill)...)
		layout := exec.Command("fio", fill...)
		layout.Dir = b.dir // where it leaves its state
		if out, err := layout.CombinedOutput(); err != nil {
			t.Fatalf("fio %v: %v: %s", fill, err, out)
		}
	}
	args := []string{"--name=bench", "--output-format=json", "--filename=" + b.target(t, d), "--size=" + size}
	args = append(args, strings.Fields(d.fio)...)
	args = append(args, "--time_based", fmt.Sprintf("--runtime=%d", b.seconds))
	cmd := exec.Command("fio", args...)
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fio %v: %v: %s", args, err, out)
	}
	var doc struct {
		Jobs []struct {
			Read, Write struct {
				Ops uint64 `json:"total_ios"`
			}
		}
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v: %.200s", err, out)
	}
	return perOp(cmd, doc.Jobs[0].Read.Ops+doc.Jobs[0].Write.Ops)
}
