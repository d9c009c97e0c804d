package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeKit is a kit whose QEMU is a shell script. The script speaks QMP on its
// standard streams and for the guest on descriptor 3, and is given QEMU's
// arguments; $console is the file the console is to go to.
func fakeKit(t *testing.T, script string) Kit {
	t.Helper()
	dir := t.TempDir()
	modules := filepath.Join(dir, "lib/modules/6.0-test")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(modules, "modules.builtin"), "kernel/fs/ninep.ko\n")
	write(filepath.Join(dir, "busybox"), "not really")
	const preamble = `#!/bin/sh
for a; do case $a in file:*.console) console=${a#file:};; esac; done
echo '{"QMP": {"version": {}}}'
read -r capabilities
echo '{"return": {}}'
guest() { echo "nvop-vm: $*" >&3; }
`
	write(filepath.Join(dir, "qemu"), preamble+script)
	return Kit{QEMU: filepath.Join(dir, "qemu"), Busybox: filepath.Join(dir, "busybox"), XZ: "false", Kernel: "none", Modules: modules}
}

func fakeMachine() Machine {
	return Machine{Name: "fake", Modules: []string{"ninep"}, Command: []string{"true"}, Limit: 20 * time.Second}
}

func TestBoot_reportsCases(t *testing.T) {
	kit := fakeKit(t, `
guest boot 8.50
guest case one start
guest '| said this'
guest case one pass 1500
guest case two start
guest case two fail 20
guest exit 1
`)
	m := fakeMachine()
	var told []string
	m.Progress = func(c CaseResult) { told = append(told, c.Name) }
	res, err := kit.Boot(t.Context(), m, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(told, " ") != "one two" {
		t.Errorf("told of %q", told)
	}
	if res.BootSeconds != 8.5 || !res.Exited || res.ExitCode != 1 {
		t.Errorf("boot %v, exited %v, code %d", res.BootSeconds, res.Exited, res.ExitCode)
	}
	one := res.Case("one")
	if one.Outcome != Passed || one.Duration != 1500*time.Millisecond || len(one.Output) != 1 || one.Output[0] != "said this" {
		t.Errorf("case one: %+v", one)
	}
	if two := res.Case("two"); two.Outcome != Failed || len(two.Output) != 0 {
		t.Errorf("case two: %+v", two)
	}
	if three := res.Case("three"); three.Outcome != Missing {
		t.Errorf("a case the guest never named: %+v", three)
	}
}

// A kernel panic ends QEMU without the exit line; QEMU itself then exits with 0.
func TestBoot_deathIsAnError(t *testing.T) {
	kit := fakeKit(t, `
echo 'Kernel panic - not syncing: test' >"$console"
guest boot 8
guest case one start
guest case one pass 1
guest case two start
guest '| the last thing it said'
`)
	res, err := kit.Boot(t.Context(), fakeMachine(), t.TempDir())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"died", "Kernel panic - not syncing: test"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if two := res.Case("two"); two.Outcome != Missing || len(two.Output) != 1 {
		t.Errorf("the case that was running: %+v", two)
	}
}

func TestBoot_startFailureNamesReason(t *testing.T) {
	kit := fakeKit(t, "")
	if err := os.WriteFile(kit.QEMU, []byte("#!/bin/sh\necho 'bad device' >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := kit.Boot(t.Context(), fakeMachine(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "bad device") || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("error %v", err)
	}
}

func TestBoot_limitStopsAHang(t *testing.T) {
	kit := fakeKit(t, "guest boot 8\nexec sleep 60\n")
	m := fakeMachine()
	m.Limit = 500 * time.Millisecond
	res, err := kit.Boot(t.Context(), m, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "stopped after") {
		t.Fatalf("error %v", err)
	}
	if res.Wall > 10*time.Second {
		t.Errorf("it took %v", res.Wall)
	}
}

func TestBoot_asks(t *testing.T) {
	const script = `
guest ask heat drive0
read -r command
case $command in
*qom-set*) echo '{"timestamp": 0, "event": "X"}'; echo '{"return": {}}'; guest note "$command"; guest exit 0;;
esac
`
	m := fakeMachine()
	m.Ask = func(q *QMP, words []string) error {
		if len(words) != 2 || words[0] != "heat" {
			t.Errorf("asked for %q", words)
		}
		return q.SetProperty(words[1], "smart_critical_warning", 1)
	}
	res, err := fakeKit(t, script).Boot(t.Context(), m, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], `"path":"/machine/peripheral/drive0"`) {
		t.Errorf("command of the host: %q", res.Notes)
	}
	m.Ask = nil
	if _, err := fakeKit(t, script).Boot(t.Context(), m, t.TempDir()); err == nil || !strings.Contains(err.Error(), "cannot be asked") {
		t.Errorf("a machine without Ask: error %v", err)
	}
}

func TestQMP_errorIsReturned(t *testing.T) {
	var sent strings.Builder
	q := newQMP(&sent, strings.NewReader(`{"error": {"class": "GenericError", "desc": "no such property"}}`+"\n"))
	if err := q.SetProperty("d", "p", 1); err == nil || !strings.Contains(err.Error(), "no such property") {
		t.Fatalf("error %v", err)
	}
	if _, err := q.Execute("stop", nil); err == nil {
		t.Fatal("no error after the end of the stream")
	}
}

func TestFind_namesWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	empty := t.TempDir()
	_, err := Find(empty)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"qemu-system-x86_64", "busybox", "xz", "a kernel image in " + empty} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestFind_takesNewestKernel(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"boot", "usr/lib/modules/6.12.2-x"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"vmlinuz-6.12.1-x", "vmlinuz-6.12.2-x"} {
		if err := os.WriteFile(filepath.Join(dir, "boot", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var kit Kit
	if err := kit.findKernel(dir); err != nil {
		t.Fatal(err)
	}
	if kit.Version() != "6.12.2-x" || filepath.Base(kit.Kernel) != "vmlinuz-6.12.2-x" {
		t.Errorf("%+v", kit)
	}
}
