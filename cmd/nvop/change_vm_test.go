package main_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmetest/vm"
)

// changeCases change drives: by format, by attachment, and by a resize that
// QEMU refuses in the middle.
func changeCases() []vm.Case {
	return []vm.Case{
		{Name: "change/format", Run: guestFormat},
		{Name: "change/format-typed-serial", Run: guestFormatTyped},
		{Name: "change/dry-run-changes-nothing", Run: guestDryRun},
		{Name: "change/detach-attach", Run: guestAttach},
		{Name: "change/op-set-refused-by-drive", Run: guestOPSet},
		{Name: "change/ns-create-delete-refused-by-drive", Run: guestCreateDelete},
	}
}

// blockBytes asks nvme-cli for the data size of a namespace's blocks.
func blockBytes(t *testing.T, node, nsid string) string {
	t.Helper()
	out := tool(t, "nvme", "id-ns", node, "-n", nsid, "-H")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "(in use)") {
			_, rest, _ := strings.Cut(line, "Data Size:")
			size, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return size
		}
	}
	t.Fatalf("nvme-cli shows no format in use:\n%s", out)
	return ""
}

func guestFormat(t *testing.T) {
	wipe(t)
	ctrl := controllerNode(t, plainSerial)
	for _, size := range []string{"4096", "512"} {
		doc := document(t, "format", ctrl, "--lba", size, "--confirm-serial", plainSerial)
		if doc["changed"] != true || text(doc["serial"]) != plainSerial {
			t.Errorf("format to %s: %v", size, doc)
		}
		if got := sysfs("block", blockName(t, plainSerial, 1), "queue/logical_block_size"); got != size {
			t.Errorf("the kernel sees blocks of %s bytes, want %s", got, size)
		}
		if got := blockBytes(t, ctrl, "1"); got != size {
			t.Errorf("nvme-cli sees blocks of %s bytes, want %s", got, size)
		}
		// Namespaces keep their capacity in bytes, in blocks of the new size.
		list := document(t, "list")
		for _, ns := range objects(t, list, "namespaces") {
			if text(ns["name"]) == blockName(t, plainSerial, 1) && text(ns["logical_block_bytes"]) != size {
				t.Errorf("nvop list after the format: %v", ns)
			}
		}
	}
	// A data size no format of the drive has.
	if r := nvop(t, "format", ctrl, "--lba", "520", "--confirm-serial", plainSerial); r.code == 0 {
		t.Errorf("format to a size the drive does not have: %v", r)
	}
	if r := nvop(t, "format", ctrl, "--lba", "4096+13", "--confirm-serial", plainSerial); r.code == 0 {
		t.Errorf("format to a metadata size the drive does not have: %v", r)
	}
	if got := blockBytes(t, ctrl, "1"); got != "512" {
		t.Errorf("a refused format left blocks of %s bytes", got)
	}
}

// typed runs nvop on a terminal and types a line when it asks.
func typed(t *testing.T, line string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	words := append([]string{os.Getenv(envBinary), "--journal", stateDir(t) + "/journal.db"}, args...)
	cmd := exec.CommandContext(ctx, "script", "-q", "-e", "-c", strings.Join(words, " "), "/dev/null")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Typed ahead: the terminal keeps it until the prompt reads. The pipe stays
	// open, or script would end the terminal first.
	if _, err := in.Write([]byte(line + "\n")); err != nil {
		t.Error(err)
	}
	err = cmd.Wait()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return ran{stdout: out.String(), code: cmd.ProcessState.ExitCode()}
}

func guestFormatTyped(t *testing.T) {
	wipe(t)
	ctrl := controllerNode(t, plainSerial)
	if r := typed(t, spareSerial, "format", ctrl, "--lba", "4096"); r.code != 4 {
		t.Errorf("another drive's serial typed: want exit code 4, got %v", r)
	}
	if got := blockBytes(t, ctrl, "1"); got != "512" {
		t.Fatalf("a refused format left blocks of %s bytes", got)
	}
	if r := typed(t, plainSerial, "format", ctrl, "--lba", "4096"); r.code != 0 || !strings.Contains(r.stdout, plainSerial) {
		t.Errorf("the serial typed: want exit code 0, got %v", r)
	}
	if got := blockBytes(t, ctrl, "1"); got != "4096" {
		t.Errorf("blocks of %s bytes, want 4096", got)
	}
	want(t, 0, "format", ctrl, "--lba", "512", "--confirm-serial", plainSerial)
}

// guestDryRun: a dry run really reads the drive and sends nothing that changes it.
func guestDryRun(t *testing.T) {
	wipe(t)
	ctrl := controllerNode(t, plainSerial)
	before := tool(t, "nvme", "id-ns", ctrl, "-n", "1", "--raw-binary")
	r := want(t, 0, "format", ctrl, "--lba", "4096", "--dry-run", "--trace")
	if !strings.Contains(strings.ToLower(r.stdout), "0x80") {
		t.Errorf("the plan does not show Format NVM (80h): %v", r)
	}
	if !strings.Contains(r.stderr, "06") {
		t.Errorf("the trace shows no Identify, so the drive was not read: %v", r)
	}
	if after := tool(t, "nvme", "id-ns", ctrl, "-n", "1", "--raw-binary"); after != before {
		t.Error("the namespace has changed")
	}
	shared := controllerNode(t, sharedDrive)
	r = want(t, 0, "op", "set", shared, "--nsid", "1", "--size", "128MiB", "--dry-run")
	for _, opcode := range []string{"0x0d", "0x15"} {
		if !strings.Contains(strings.ToLower(r.stdout), opcode) {
			t.Errorf("the plan of a resize does not show opcode %s: %v", opcode, r)
		}
	}
	attachedToBoth(t, "1")
}

// attachedToBoth asks nvme-cli whether both controllers have the namespace, and
// the kernel whether it shows it.
func attachedToBoth(t *testing.T, nsid string) {
	t.Helper()
	doc := nvmeCLI(t, "list-ctrl", controllerNode(t, sharedDrive), "-n", nsid)
	if n := len(objects(t, doc, "ctrl_list")); n != 2 {
		t.Errorf("namespace %s is attached to %d controllers, want 2", nsid, n)
	}
	eventually(t, "the node of namespace "+nsid, func() bool {
		name := blockName(t, sharedDrive, int(nsid[0]-'0'))
		return name != "" && sysfs("block", name, "size") == "524288"
	})
}

func guestAttach(t *testing.T) {
	ctrl := controllerNode(t, sharedDrive)
	second := "/dev/" + controllersBySerial(t, sharedDrive)[1]
	mark := []byte("this data outlives a detachment")
	writeAt(t, blockNode(t, sharedDrive, 3), mark)
	doc := document(t, "ns", "detach", ctrl, "--nsid", "3", "--confirm-serial", sharedDrive)
	if doc["changed"] != true {
		t.Errorf("detach: %v", doc)
	}
	if name := blockName(t, sharedDrive, 3); name != "" {
		t.Errorf("%s is still there", name)
	}
	if n := len(objects(t, nvmeCLI(t, "list-ns", ctrl), "nsid_list")); n != 2 {
		t.Errorf("%d namespaces are active, want 2", n)
	}
	if n := len(objects(t, nvmeCLI(t, "list-ns", ctrl, "--all"), "nsid_list")); n != 3 {
		t.Errorf("%d namespaces are allocated, want 3", n)
	}
	again := document(t, "ns", "detach", ctrl, "--nsid", "3", "--confirm-serial", sharedDrive)
	if again["already_so"] != true {
		t.Errorf("detach again: %v", again)
	}
	var ids []string
	for _, name := range controllersBySerial(t, sharedDrive) {
		ids = append(ids, "--controller", sysfs("class/nvme", name, "cntlid"))
	}
	want(t, 0, append([]string{"ns", "attach", second, "--nsid", "3", "--confirm-serial", sharedDrive}, ids...)...)
	attachedToBoth(t, "3")
	got := make([]byte, len(mark))
	f, err := os.Open(blockNode(t, sharedDrive, 3))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ReadAt(got, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil || string(got) != string(mark) {
		t.Errorf("after the detachment: %q, %v", got, err)
	}
	tool(t, "wipefs", "-q", "-a", blockNode(t, sharedDrive, 3))
}

func writeAt(t *testing.T, node string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(node, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guestOPSet: QEMU says that it has namespace management and refuses both halves
// of it with 0x4001. The old namespace must come out whole, with its data.
func guestOPSet(t *testing.T) {
	ctrl := controllerNode(t, sharedDrive)
	mark := []byte("this data outlives a refused resize")
	writeAt(t, blockNode(t, sharedDrive, 1), mark)
	before := tool(t, "nvme", "id-ns", ctrl, "-n", "1", "--raw-binary")
	r := want(t, 6, "op", "set", ctrl, "--nsid", "1", "--size", "128MiB", "--confirm-serial", sharedDrive)
	if strings.Contains(r.stderr, "goroutine") {
		t.Errorf("%v", r)
	}
	if after := tool(t, "nvme", "id-ns", ctrl, "-n", "1", "--raw-binary"); after != before {
		t.Error("the namespace has changed")
	}
	for _, nsid := range []string{"1", "2", "3"} {
		attachedToBoth(t, nsid)
	}
	got := make([]byte, len(mark))
	f, err := os.Open(blockNode(t, sharedDrive, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ReadAt(got, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil || string(got) != string(mark) {
		t.Errorf("after the refused resize: %q, %v", got, err)
	}
	// Nothing is left to resume that would stand in the way of the next change.
	r = want(t, 6, "op", "set", ctrl, "--nsid", "1", "--size", "128MiB", "--confirm-serial", sharedDrive)
	attachedToBoth(t, "1")
	if strings.Contains(r.stderr, "unfinished") {
		t.Errorf("a rolled back transaction counts as unfinished: %v", r)
	}
	// QEMU does not report its capacity, so what is too much may be known from
	// the drive's answer only. Either way nothing is lost.
	if r = nvop(t, "op", "set", ctrl, "--nsid", "1", "--size", "1TiB", "--confirm-serial", sharedDrive); r.code != 4 && r.code != 6 {
		t.Errorf("more than the drive has: want exit code 4 or 6, got %v", r)
	}
	attachedToBoth(t, "1")
	want(t, 80, "op", "set", ctrl, "--nsid", "1", "--size", "128", "--confirm-serial", sharedDrive)
}

func guestCreateDelete(t *testing.T) {
	ctrl := controllerNode(t, sharedDrive)
	r := nvop(t, "ns", "delete", ctrl, "--nsid", "2", "--confirm-serial", sharedDrive)
	if r.code != 6 {
		t.Errorf("delete: want exit code 6, got %v", r)
	}
	attachedToBoth(t, "2")
	// The drive has no unallocated capacity; asking for some is refused or
	// answered with an error, never carried out.
	if r = nvop(t, "ns", "create", ctrl, "--size", "64MiB", "--confirm-serial", sharedDrive); r.code != 4 && r.code != 6 {
		t.Errorf("create: want exit code 4 or 6, got %v", r)
	}
	if n := len(objects(t, nvmeCLI(t, "list-ns", ctrl, "--all"), "nsid_list")); n != 3 {
		t.Errorf("%d namespaces are allocated, want 3", n)
	}
}
