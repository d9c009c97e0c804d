package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Case is one thing tried in the guest.
type Case struct {
	// Name has no spaces.
	Name string
	// Limit is the case's own deadline; 0 means two minutes.
	Limit time.Duration
	// Run is an ordinary test function. It runs in a process of its own, so
	// that neither a crash nor a hang takes the other cases with it.
	Run func(t *testing.T)
}

func (c Case) limit() time.Duration {
	if c.Limit == 0 {
		return 2 * time.Minute
	}
	return c.Limit
}

const (
	envGuest = "NVOP_VM_GUEST" // set in the guest
	envCase  = "NVOP_VM_CASE"  // in the process of one case: its name

	// guestPort is the serial port that carries the protocol.
	guestPort = "/dev/ttyS1"
	// outputLines bounds what one case may print.
	outputLines = 400
	// killGrace is how long a case may take to end by itself once the testing
	// package's own time-out has hit.
	killGrace = 5 * time.Second
)

// InGuest says that this process runs in a machine started by [Run].
func InGuest() bool { return os.Getenv(envGuest) != "" }

// Guest carries out the cases in the guest; outside one it skips. The test that
// calls it is the one that [Run] is told to start.
func Guest(t *testing.T, cases []Case) {
	if !InGuest() {
		t.Skip("this half of the test runs inside the virtual machine")
	}
	if name := os.Getenv(envCase); name != "" {
		for _, c := range cases {
			if c.Name == name {
				c.Run(t)
				return
			}
		}
		t.Fatalf("there is no case %q", name)
	}
	port, err := os.OpenFile(guestPort, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range cases {
		if err := guestCase(t, port, c); err != nil {
			t.Error(err)
		}
	}
}

// guestCase runs one case in a child and reports it. The error is of the
// reporting, not of the case.
func guestCase(t *testing.T, port io.Writer, c Case) error {
	if _, err := fmt.Fprintf(port, "%scase %s start\n", linePrefix, c.Name); err != nil {
		return fmt.Errorf("vm: report: %w", err)
	}
	begin := time.Now()
	outcome, err := runChild(t.Context(), t.Name(), port, c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(port, "%scase %s %s %d\n", linePrefix, c.Name, outcome, time.Since(begin).Milliseconds())
	if err != nil {
		return fmt.Errorf("vm: report: %w", err)
	}
	return nil
}

func runChild(ctx context.Context, test string, port io.Writer, c Case) (Outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return Failed, fmt.Errorf("vm: own executable: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit()+killGrace)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+test+"$", "-test.v", "-test.count=1",
		"-test.timeout="+c.limit().String())
	cmd.Env = append(os.Environ(), envCase+"="+c.Name)
	// The whole group dies with the case: whatever it started and left behind
	// would hold the drive in the cases that follow.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killGrace
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Failed, fmt.Errorf("vm: %w", err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return Failed, fmt.Errorf("vm: start case: %w", err)
	}
	skipped, copyErr := copyOutput(port, out)
	err = cmd.Wait()
	if copyErr != nil {
		return Failed, copyErr
	}
	if killErr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) {
		return Failed, fmt.Errorf("vm: end what case %s left: %w", c.Name, killErr)
	}
	switch {
	case err != nil:
		_, err = fmt.Fprintf(port, "%s| %v\n", linePrefix, err)
		return Failed, err
	case skipped:
		return Skipped, nil
	}
	return Passed, nil
}

// copyOutput sends what a case prints to the host, as far as the bound goes, and
// says whether the testing package called it skipped.
func copyOutput(port io.Writer, out io.Reader) (skipped bool, err error) {
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		line := scanner.Text()
		if strings.HasPrefix(line, "--- SKIP") {
			skipped = true
		}
		if strings.HasPrefix(line, "=== ") || n >= outputLines {
			continue
		}
		if _, err := fmt.Fprintf(port, "%s| %s\n", linePrefix, line); err != nil {
			return skipped, fmt.Errorf("vm: report: %w", err)
		}
	}
	// A case that was killed breaks its pipe; its exit code tells that.
	if err := scanner.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		return skipped, fmt.Errorf("vm: output of the case: %w", err)
	}
	return skipped, nil
}

// Ask asks the host for something only it can do, as the machine's Ask function
// understands it. There is no answer: wait for the effect.
func Ask(words ...string) error {
	port, err := os.OpenFile(guestPort, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("vm: ask the host: %w", err)
	}
	_, err = fmt.Fprintf(port, "%sask %s\n", linePrefix, strings.Join(words, " "))
	return errors.Join(err, port.Close())
}
