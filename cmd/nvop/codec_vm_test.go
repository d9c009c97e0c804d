package main_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// tcpCodecCases are what nvme-cli reads of the logs that run in the background,
// beside what nvop prints of them, and recordings behind a real kernel.
func tcpCodecCases() []vm.Case {
	return []vm.Case{
		{Name: "tcp/codec-logs", Limit: 3 * time.Minute, Run: guestTCPCodecLogs},
		{Name: "tcp/codec-background", Limit: 3 * time.Minute, Run: guestTCPCodecBackground},
		{Name: "tcp/codec-record", Limit: 4 * time.Minute, Run: guestTCPCodecRecord},
		{Name: "tcp/codec-io", Limit: 3 * time.Minute, Run: guestTCPCodecIO},
	}
}

// wantMatch fails unless a tool's output matches.
func wantMatch(t *testing.T, out string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("no %q in\n%s", p, out)
		}
	}
}

// guestTCPCodecLogs: telemetry byte for byte, persistent events by number and
// kind, the lists of what is supported.
func guestTCPCodecLogs(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "CODEC1"))
	node := s.connect(t)
	ours, theirs := filepath.Join(stateDir(t), "ours.bin"), filepath.Join(stateDir(t), "theirs.bin")
	doc := document(t, "telemetry", node, "--out", ours)
	if text(doc["bytes"]) != "150016" {
		t.Errorf("telemetry: %v", doc)
	}
	tool(t, "nvme", "telemetry-log", node, "--output-file="+theirs, "--host-generate=0", "--data-area=3")
	a, err1 := os.ReadFile(ours)
	b, err2 := os.ReadFile(theirs)
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("nvme-cli reads %d bytes of telemetry, nvop %d; equal %v; %v %v", len(b), len(a), bytes.Equal(a, b), err1, err2)
	}
	events := document(t, "log", node, "events")
	total, size := text(dig(events, "value.header.events")), text(dig(events, "value.header.total_bytes"))
	out := tool(t, "nvme", "persistent-event-log", node, "-a", "1", "-l", size)
	wantMatch(t, out, `Total Number of Events: `+total+`\n`, `Telemetry`, `(?i)power.?on`, `CODEC1`)
	tool(t, "nvme", "persistent-event-log", node, "-a", "2")
	out = tool(t, "nvme", "supported-log-pages", node)
	wantMatch(t, out, `(?i)\b0?x?0?d\b`, `(?i)81`)
	out = tool(t, "nvme", "fid-support-effects-log", node)
	wantMatch(t, out, `(?i)02`)
	cli(t, says{"nsfeat": "8", "nstat": "1"}, "cmdset-ind-id-ns", node, "-n", "1")
	out = tool(t, "nvme", "nvm-id-ns", node, "-n", "1", "-o", "json")
	wantMatch(t, out, `"lbstm"`)
	// Reading has not cleared or changed anything: the same again.
	if again := document(t, "log", node, "events"); text(dig(again, "value.header.events")) != total {
		t.Errorf("%s events after reading, %s before", text(dig(again, "value.header.events")), total)
	}
}

// guestTCPCodecBackground: a short self-test and a sanitize through the kernel,
// in a minute of the drive's time a second.
func guestTCPCodecBackground(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "CODEC2"), "--clock-rate", "60")
	node := s.connect(t)
	doc := document(t, "selftest", "start", node, "--wait", "--poll", "200ms")
	if text(doc["state"]) != "passed" {
		t.Errorf("self-test: %v", doc)
	}
	cli(t, says{"Current Device Self-Test Operation": "0", "List of Valid Reports.0.Self test result": "0", "List of Valid Reports.0.Self test code": "1"}, "self-test-log", node)
	wantMatch(t, tool(t, "nvme", "sanitize-log", node), `SSTAT\) : +0\n`, `Crypto Erase +: +10\n`)
	tool(t, "dd", "if=/dev/urandom", "of="+blockNode(t, "CODEC2", 1), "bs=1M", "count=4", "oflag=direct")
	doc = document(t, "sanitize", "start", node, "--action", "crypto", "--wait", "--poll", "200ms", "--confirm-serial", "CODEC2")
	if text(dig(doc, "log.state")) != "completed" || text(dig(doc, "log.global_data_erased")) != "true" {
		t.Errorf("sanitize: %v", doc)
	}
	wantMatch(t, tool(t, "nvme", "sanitize-log", node), `SPROG\) : +65535\n`, `SSTAT\) : +0x1\n`, `SCDW10\) : +0x4\n`)
	zeros := tool(t, "dd", "if="+blockNode(t, "CODEC2", 1), "bs=1M", "count=4", "iflag=direct", "status=none")
	if strings.Trim(zeros, "\x00") != "" {
		t.Error("the data are still there")
	}
	// Started by nvme-cli, seen by nvop; commands are refused meanwhile.
	tool(t, "nvme", "sanitize", node, "-a", "2")
	if doc := document(t, "sanitize", "status", node); text(dig(doc, "log.state")) == "in progress" {
		want(t, 6, "selftest", "start", node)
		document(t, "sanitize", "status", node, "--wait", "--poll", "200ms")
	}
	if doc := document(t, "sanitize", "status", node); text(dig(doc, "log.state")) != "completed" {
		t.Errorf("after nvme-cli's: %v", doc)
	}
	document(t, "reset", node, "--confirm-serial", "CODEC2")
	if doc := document(t, "rescan", node); text(dig(doc, "shown_nsids.0")) != "1" {
		t.Errorf("rescan: %v", doc)
	}
}

// guestTCPCodecRecord: a drive recorded through the kernel and served from the
// recording is the same to nvme-cli.
func guestTCPCodecRecord(t *testing.T) {
	s := serve(t, makeDrive(t, "memblaze-p6531-3.84tb", "--serial", "CODEC3"))
	node := s.connect(t)
	file := filepath.Join(stateDir(t), "drive.nvoprec")
	document(t, "record", node, file)
	idctrl := tool(t, "nvme", "id-ctrl", node, "-o", "json")
	s.disconnect(t)
	s.stop(t)
	r := serve(t, "replay:"+file)
	again := r.connect(t)
	if got := tool(t, "nvme", "id-ctrl", again, "-o", "json"); got != idctrl {
		t.Errorf("id-ctrl of the recording:\n%s\nof the drive:\n%s", got, idctrl)
	}
	cli(t, says{"available_spare": "<nil>", "avail_spare": "100", "power_cycles": "1"}, "smart-log", again)
	want(t, 0, "log", again, "events")
	want(t, 0, "show", again)
	want(t, 6, "format", again, "--nsid", "1", "--lba", "4096", "--accept", "unknown", "--confirm-serial", "CODEC3")
}

// guestTCPCodecIO: what nvme-cli says of comparing, verifying, copying and
// spoiling blocks, and what the block layer then reads.
func guestTCPCodecIO(t *testing.T) {
	s := serve(t, makeDrive(t, "pblaze7-7940-7.68tb", "--serial", "CODEC4"))
	s.connect(t)
	disk := blockNode(t, "CODEC4", 1)
	bytesOf := func(lba string) string {
		return tool(t, "dd", "if="+disk, "bs=512", "skip="+lba, "count=8", "iflag=direct", "status=none")
	}
	dir := stateDir(t)
	data, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
	one := bytes.Repeat([]byte("nvop"), 1024)
	if err := errors.Join(os.WriteFile(data, one, 0o600), os.WriteFile(other, bytes.ToUpper(one), 0o600)); err != nil {
		t.Fatal(err)
	}
	tool(t, "dd", "if="+data, "of="+disk, "bs=512", "seek=64", "count=8", "oflag=direct", "status=none")
	compare := func(file string) []string {
		return []string{"compare", disk, "--start-block=64", "--block-count=7", "--data-size=4096", "--data=" + file}
	}
	tool(t, "nvme", compare(data)...)
	fails(t, `(?i)compare.failure|0x[24]?4?285`, "nvme", compare(other)...)
	tool(t, "nvme", "verify", disk, "--start-block=64", "--block-count=7")
	tool(t, "nvme", "copy", disk, "--sdlba=128", "--slbs=64", "--blocks=7", "--format=0")
	if bytesOf("128") != string(one) {
		t.Error("the copy is not what was copied")
	}
	tool(t, "nvme", "write-uncor", disk, "--start-block=130", "--block-count=1")
	fails(t, `(?i)unrecovered|media|0x[24]?4?281`, "nvme", "verify", disk, "--start-block=128", "--block-count=7")
	fails(t, `(?i)error`, "dd", "if="+disk, "of=/dev/null", "bs=512", "skip=128", "count=8", "iflag=direct", "status=none")
	tool(t, "dd", "if="+data, "of="+disk, "bs=512", "seek=128", "count=8", "oflag=direct", "status=none")
	tool(t, "nvme", "verify", disk, "--start-block=128", "--block-count=7")
	if bytesOf("128") != string(one) {
		t.Error("what was written again does not read")
	}
	fails(t, `(?i)lba.out.of.range|LBA_RANGE|capacity|0x[24]?0?80`, "nvme", "verify", disk, "--start-block=0xffffffffff", "--block-count=0")
}

// fails runs a tool that must fail and say what matches.
func fails(t *testing.T, pattern, name string, args ...string) {
	t.Helper()
	r := attempt(t, nil, name, args...)
	if r.code == 0 {
		t.Errorf("%s %q succeeds: %v", name, args, r)
		return
	}
	wantMatch(t, r.stdout+r.stderr, pattern)
}
