package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Enabled says that the user asked for virtual machines, with NVOP_VM=1. A boot
// takes ten seconds and more, too much for every go test ./... .
func Enabled() bool { return os.Getenv("NVOP_VM") == "1" }

// Require returns the kit. It skips when virtual machines were not asked for;
// once they were, a part that is missing is a failure: a run that meant to test
// against the kernel must not pass without having done so.
func Require(t testing.TB) Kit {
	t.Helper()
	if InGuest() {
		t.Skip("this half of the test runs on the host")
	}
	if !Enabled() {
		t.Skip("a virtual machine is started only with NVOP_VM=1 (.ci/vm-prepare installs what it needs)")
	}
	kit, err := Find("")
	if err != nil {
		t.Fatal(err)
	}
	return kit
}

// Run boots the machine with this test binary as its command, which carries out
// the cases in the test function named guestTest (see [Guest]), and reports each
// as a subtest. Command of m is set by Run.
func Run(t *testing.T, kit Kit, m Machine, guestTest string, cases []Case) *Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m.Command = []string{self, "-test.run=^" + guestTest + "$", "-test.count=1", "-test.timeout=0"}
	if m.Dir == "" {
		if m.Dir, err = os.Getwd(); err != nil {
			t.Fatal(err)
		}
	}
	m.Env = append([]string{envGuest + "=1"}, m.Env...)
	if m.Progress == nil {
		m.Progress = func(c CaseResult) {
			t.Logf("machine %s: %s %s, %.1f s", m.Name, c.Name, c.Outcome, c.Duration.Seconds())
		}
	}
	res, err := kit.Boot(t.Context(), m, dir)
	t.Cleanup(func() {
		if t.Failed() && res != nil {
			keepConsole(t, m.Name, res.Console)
		}
	})
	if res == nil {
		t.Fatal(err)
	}
	t.Logf("machine %s: kernel %s, command started %.1f s after power on, %d cases, %.1f s in all",
		m.Name, kit.Version(), res.BootSeconds, len(res.Cases), res.Wall.Seconds())
	for _, note := range res.Notes {
		t.Logf("machine %s: note: %s", m.Name, note)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { report(t, res.Case(c.Name)) })
	}
	if err != nil {
		t.Error(err)
	} else if res.ExitCode != 0 && !t.Failed() {
		t.Errorf("machine %s: the command in the guest ended with exit code %d", m.Name, res.ExitCode)
	}
	return res
}

// report turns what the guest said of a case into the result of a subtest.
func report(t *testing.T, c CaseResult) {
	t.Helper()
	text := fmt.Sprintf("%.1f s in the guest", c.Duration.Seconds())
	if len(c.Output) > 0 {
		text += "\n" + strings.Join(c.Output, "\n")
	}
	switch c.Outcome {
	case Passed:
		t.Log(text)
	case Skipped:
		t.Skip(text)
	case Missing:
		t.Fatalf("the guest never said how this case ended\n%s", strings.Join(c.Output, "\n"))
	default:
		t.Fatal(text)
	}
}

// keepConsole puts the console of a failed boot where it outlives the test.
func keepConsole(t *testing.T, name, console string) {
	cache, err := CacheDir()
	if err != nil {
		t.Log(err)
		return
	}
	kept := filepath.Join(cache, "failed", name+".console")
	b, err := os.ReadFile(console)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(kept), 0o755)
	}
	if err == nil {
		err = os.WriteFile(kept, b, 0o644)
	}
	if err != nil {
		t.Logf("keep the console: %v", err)
		return
	}
	t.Logf("the console of machine %s is kept in %s", name, kept)
}
