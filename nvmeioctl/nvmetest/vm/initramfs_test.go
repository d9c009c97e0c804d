package vm

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The witness for the archive's format is cpio itself.
func TestArchive_cpioReadsIt(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	var buf bytes.Buffer
	a := &archive{w: bufio.NewWriter(&buf)}
	a.add("dir", modeDir, nil)
	contents := []string{"", "a", "ab", "abc", "abcd", "abcde"}
	for i, c := range contents {
		a.add("dir/"+strings.Repeat("f", i+1), modeFile, []byte(c))
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "-i", "--quiet", "--no-absolute-filenames")
	cmd.Dir, cmd.Stdin = dir, &buf
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range contents {
		got, err := os.ReadFile(filepath.Join(dir, "dir", strings.Repeat("f", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("file %d: %q, want %q", i, got, want)
		}
	}
}

// The witness for the quoting is a shell.
func TestScript_shellSeesTheArguments(t *testing.T) {
	args := []string{"a b", "it's", "$HOME", "`x`", "", "*", "back\\slash", "new\nline"}
	m := Machine{Command: append([]string{"/usr/bin/env", "printf", `%s\n--\n`}, args...), Env: []string{"A=b c'd"}, Dir: "/"}
	m.Command = append(m.Command, "end")
	out, err := exec.Command("/bin/sh", "-c", m.script()).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join(append(args, "end"), "\n--\n") + "\n--\n"
	if string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
	m = Machine{Command: []string{"/bin/sh", "-c", `printf %s "$A"`}, Env: m.Env}
	if out, err = exec.Command("/bin/sh", "-c", m.script()).Output(); err != nil || string(out) != "b c'd" {
		t.Errorf("environment: %q, %v", out, err)
	}
}

// Against a real kernel, when there is one: every module comes after what it
// depends on, and modinfo agrees about what that is.
func TestModules_orderAgreesWithModinfo(t *testing.T) {
	kit, err := Find("")
	if err != nil {
		t.Skip(err)
	}
	modinfo, err := exec.LookPath("modinfo")
	if err != nil {
		t.Skip("modinfo is not installed")
	}
	tree, err := readModuleTree(kit)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := tree.load(t.Context(), DefaultModules())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range modules {
		out, err := exec.Command(modinfo, "-F", "depends", tree.files[m.name]).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.FieldsFunc(strings.TrimSpace(string(out)), func(r rune) bool { return r == ',' }) {
			if dep = canonical(dep); !seen[dep] && !tree.builtin[dep] {
				t.Errorf("%s comes before %s, which it depends on", m.name, dep)
			}
		}
		seen[m.name] = true
	}
	for _, want := range []string{"nvme", "nvme_core", "ext4", "9p", "raid1"} {
		if !seen[want] && !tree.builtin[want] {
			t.Errorf("%s is not among %d modules", want, len(modules))
		}
	}
	if _, err := tree.load(t.Context(), []string{"no-such-module"}); err == nil || !strings.Contains(err.Error(), "no_such_module") {
		t.Errorf("unknown module: %v", err)
	}
}

func TestModuleDepends_refusesWhatIsNoModule(t *testing.T) {
	if _, err := moduleDepends([]byte("plain text")); err == nil {
		t.Error("no error")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	if _, err := moduleDepends(self); err == nil {
		t.Error("an ELF file that is no module: no error")
	}
}

func TestSubsystem_arguments(t *testing.T) {
	got := Subsystem{Serial: "S", Controllers: 2, Images: []string{"a,b", "c"}}.Arguments()
	want := []string{
		"-device", "nvme-subsys,id=S,nqn=S",
		"-device", "nvme,id=S-c0,serial=S,subsys=S",
		"-device", "nvme,id=S-c1,serial=S,subsys=S",
		"-drive", "file=a,,b,if=none,id=S-n1,format=raw",
		"-device", "nvme-ns,drive=S-n1,bus=S-c0,nsid=1,shared=on",
		"-drive", "file=c,if=none,id=S-n2,format=raw",
		"-device", "nvme-ns,drive=S-n2,bus=S-c0,nsid=2,shared=on",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestSlowDrive_throttlesTheDrive(t *testing.T) {
	got := SlowDrive("S", "i", 1<<20)
	want := []string{"-drive", "file=i,if=none,id=S-d,format=raw,throttling.bps-write=1048576", "-device", "nvme,id=S,serial=S,drive=S-d"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
