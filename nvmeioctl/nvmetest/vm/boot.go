package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Machine is one boot.
type Machine struct {
	// Name is used in file names and messages.
	Name string
	// MemoryMiB and CPUs of the guest; 0 means 2048 and 2.
	MemoryMiB, CPUs int
	// Devices are further arguments of QEMU; see [Drive] and [Subsystem].
	Devices []string
	// Modules replaces [DefaultModules] when it is not nil.
	Modules []string
	// Command runs in the guest below the host's root, in the folder Dir with
	// the environment Env ("NAME=value") added.
	Command []string
	Dir     string
	Env     []string
	// Limit bounds the whole boot; 0 means 3 minutes.
	Limit time.Duration
	// Ask carries out what a case asked for with [Ask]; nil refuses all.
	Ask func(q *QMP, words []string) error
	// Progress is told of each case as it ends; nil for nobody. A boot takes
	// minutes where the machine is slow or shared.
	Progress func(CaseResult)
}

func (m *Machine) modules() []string {
	if m.Modules != nil {
		return m.Modules
	}
	return DefaultModules()
}

func (m *Machine) limit() time.Duration {
	if m.Limit == 0 {
		return 3 * time.Minute
	}
	return m.Limit
}

// Result is what came of one boot.
type Result struct {
	Report
	// Wall is how long the boot took on the host, from QEMU's start to its end.
	Wall time.Duration
	// Console is the file with what the guest's console showed.
	Console string
}

// exitGrace is how long QEMU may take to switch off after the guest has said
// that it is done.
const exitGrace = 15 * time.Second

// consoleTail is how many lines of the console an error quotes.
const consoleTail = 25

// Boot runs the machine until it switches itself off. Files go to dir, which the
// caller removes. An error means that the boot died or could not begin; its text
// ends with the console's last lines.
func (k Kit) Boot(ctx context.Context, m Machine, dir string) (*Result, error) {
	if len(m.Command) == 0 {
		return nil, errors.New("vm: a machine needs a command")
	}
	ctx, cancel := context.WithTimeout(ctx, m.limit())
	defer cancel()
	initramfs := filepath.Join(dir, m.Name+".cpio")
	if err := k.packInitramfs(ctx, &m, initramfs); err != nil {
		return nil, err
	}
	res := &Result{Console: filepath.Join(dir, m.Name+".console")}
	begin := time.Now()
	err := k.run(ctx, &m, initramfs, res)
	res.Wall = time.Since(begin)
	if err == nil && !res.Exited {
		err = fmt.Errorf("vm: machine %s died before its command ended", m.Name)
	}
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("vm: machine %s: stopped after %v", m.Name, res.Wall.Round(time.Second)), err)
	}
	if err != nil {
		err = fmt.Errorf("%w\nlast lines of %s:\n%s", err, res.Console, tail(res.Console, consoleTail))
	}
	return res, err
}

func (k Kit) packInitramfs(ctx context.Context, m *Machine, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("vm: initramfs: %w", err)
	}
	return errors.Join(writeInitramfs(ctx, f, k, m), f.Close())
}

// run starts QEMU, follows the guest's lines until the last one and waits for
// QEMU's end. The guest's lines come through a pipe that QEMU inherits, because
// its standard streams carry QMP.
func (k Kit) run(ctx context.Context, m *Machine, initramfs string, res *Result) (err error) {
	lines, guestEnd, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("vm: pipe: %w", err)
	}
	defer func() { err = errors.Join(err, lines.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.QEMU, k.arguments(m, initramfs, res.Console)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.ExtraFiles = []*os.File{guestEnd}
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return errors.Join(fmt.Errorf("vm: %w", err), guestEnd.Close())
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(fmt.Errorf("vm: %w", err), guestEnd.Close())
	}
	if err := errors.Join(cmd.Start(), guestEnd.Close()); err != nil {
		return fmt.Errorf("vm: start QEMU: %w", err)
	}
	qmp := newQMP(stdin, stdout)
	err = qmp.handshake()
	if err == nil {
		err = follow(lines, m, qmp, &res.Report)
	}
	// From here the guest is switching itself off. QEMU 7.2 has been seen to
	// crash then, so how it ends says nothing once the exit line is there.
	stop := time.AfterFunc(exitGrace, cancel)
	defer stop.Stop()
	if err != nil {
		cancel()
	}
	// QEMU must not block on its end of the pipe while it is waited for.
	_, _ = io.Copy(io.Discard, lines)
	if waitErr := cmd.Wait(); waitErr != nil && !res.Exited {
		err = errors.Join(err, fmt.Errorf("vm: QEMU: %w: %s", waitErr, bytes.TrimSpace(stderr.Bytes())))
	}
	return err
}

// follow reads the guest's lines until its command has ended or the pipe breaks,
// and does what it asks for.
func follow(r io.Reader, m *Machine, qmp *QMP, report *Report) error {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		known := len(report.Cases)
		ask, err := report.line(scanner.Text())
		if err != nil {
			report.Notes = append(report.Notes, err.Error())
			continue
		}
		if m.Progress != nil && len(report.Cases) > known {
			m.Progress(report.Cases[known])
		}
		if ask != nil {
			if m.Ask == nil {
				return fmt.Errorf("vm: machine %s cannot be asked for %q", m.Name, ask)
			}
			if err := m.Ask(qmp, ask); err != nil {
				return fmt.Errorf("vm: machine %s was asked for %q: %w", m.Name, ask, err)
			}
		}
		if report.Exited {
			return nil
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("vm: lines of the guest: %w", err)
	}
	return nil
}

// arguments is QEMU's command line. Hardware virtualisation is never used: not
// every machine has it, and where it is emulated itself it has hung in firmware.
func (k Kit) arguments(m *Machine, initramfs, console string) []string {
	memory, cpus := m.MemoryMiB, m.CPUs
	if memory == 0 {
		memory = 2048
	}
	if cpus == 0 {
		cpus = 2
	}
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max",
		"-m", strconv.Itoa(memory), "-smp", strconv.Itoa(cpus),
		"-display", "none", "-no-reboot", "-nic", "none", "-qmp", "stdio",
		"-kernel", k.Kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 panic=-1 quiet loglevel=5",
		"-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
		"-serial", "file:" + escape(console),
		// The first extra file of a child is its descriptor 3.
		"-serial", "file:/proc/self/fd/3",
	}
	return append(args, m.Devices...)
}

// escape doubles commas, which separate options on QEMU's command line.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\r\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
