package namespace_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

// slowFormat answers a format only after its progress was told twice, and reports
// one meanwhile: most real drives answer when the format is done.
type slowFormat struct {
	nvmeioctl.Device
	formatting atomic.Bool
	twice      chan struct{}
}

func (d *slowFormat) Unwrap() nvmeioctl.Device { return d.Device }

func (d *slowFormat) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if cmd.Opcode == nvmespec.AdminFormatNVM {
		d.formatting.Store(true)
		<-d.twice
		d.formatting.Store(false)
	}
	done, err := d.Device.Submit(ctx, cmd)
	// Identify Namespace, byte 32 (FPI): bit 7 supported, the rest is what remains.
	cns := nvmespec.CNS(cmd.CDW10)
	if cmd.Opcode == nvmespec.AdminIdentify && (cns == nvmespec.CNSNamespace || cns == nvmespec.CNSAllocatedNamespace) && d.formatting.Load() {
		cmd.Data[32] = 0x80 | 42
	}
	return done, err
}

// TestFormat_progress: FMT-01. A format whose command is not answered for long
// tells how far it is, and its time limit is explicit and generous.
func TestFormat_progress(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan, err := namespace.PlanFormat(r.inventory(), namespace.FormatTarget{Format: &namespace.FormatSelector{DataBytes: 4096}}, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := plan.Transaction()
	if err != nil {
		t.Fatal(err)
	}
	if tx.Steps[0].TimeoutMS < 3600*1000 || tx.Steps[0].Commands[0].TimeoutMS != tx.Steps[0].TimeoutMS {
		t.Errorf("time limits %d and %d ms: an hour at least", tx.Steps[0].TimeoutMS, tx.Steps[0].Commands[0].TimeoutMS)
	}
	dev := &slowFormat{Device: r, twice: make(chan struct{})}
	var mu sync.Mutex
	var told []uint8
	runner := r.runner()
	runner.Device = dev
	runner.Registry = namespace.Executors(namespace.ExecutorOptions{FormatProgress: func(left uint8) {
		mu.Lock()
		defer mu.Unlock()
		if told = append(told, left); len(told) == 2 {
			close(dev.twice)
		}
	}})
	if _, err := runner.Run(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if told[0] != 42 || told[1] != 42 {
		t.Errorf("told %v", told)
	}
}

// planFormat plans a format to 4096 bytes.
func planFormat(t *testing.T, r *rig) namespace.Plan {
	t.Helper()
	plan, err := namespace.PlanFormat(r.inventory(), namespace.FormatTarget{Format: &namespace.FormatSelector{DataBytes: 4096}}, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestFormat_refusedSaysWhy: FMT-10, FMT-18, FMT-23. A format that the drive lists
// and refuses is an error with the drive's exit code, says what may be the matter,
// and is sent once.
func TestFormat_refusedSaysWhy(t *testing.T) {
	for _, status := range []nvmespec.Status{0x410A, 0x4001} {
		r := newRig(t, oneNamespace, sim.Options{})
		r.fault = func(int, *nvmeioctl.Command) (bool, nvmespec.Status, error) { return false, status, nil }
		_, err := r.run(planFormat(t, r))
		if exitCode(err) != 6 || len(r.sent) != 1 || !strings.Contains(err.Error(), "locked or frozen") {
			t.Errorf("status %#x: exit %d after %d commands: %v", uint16(status), exitCode(err), len(r.sent), err)
		}
	}
}

// TestFormat_successIsReadBack: FMT-14, FMT-20. Success is what the drive has
// afterwards, and not what it answered.
func TestFormat_successIsReadBack(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	plan := planFormat(t, r)
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		// Carried out, and not to the format that was asked for.
		cmd.CDW10 &^= 0xF
		return true, 0, nil
	}
	if _, err := r.run(plan); exitCode(err) != 7 || !strings.Contains(err.Error(), "reading back") {
		t.Errorf("error %v", err)
	}
}

// TestFormat_inProgress: FMT-07. A drive that is still formatting gets no second
// format.
func TestFormat_inProgress(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	tx, err := planFormat(t, r).Transaction()
	if err != nil {
		t.Fatal(err)
	}
	dev := &slowFormat{Device: r}
	dev.formatting.Store(true)
	runner := r.runner()
	runner.Device = dev
	if _, err := runner.Run(t.Context(), tx); exitCode(err) != 4 || len(r.sent) != 0 || !strings.Contains(err.Error(), "42 %") {
		t.Errorf("after %d commands: %v", len(r.sent), err)
	}
}

// TestFormat_interrupted: FMT-22. Before anything is sent an interruption ends it.
func TestFormat_interrupted(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	tx, err := planFormat(t, r).Transaction()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.runner().Run(ctx, tx); exitCode(err) != 130 || len(r.sent) != 0 {
		t.Errorf("after %d commands: %v", len(r.sent), err)
	}
}

// TestFormat_sickDrive: FMT-19. Data of a drive that warns is not erased without
// saying so.
func TestFormat_sickDrive(t *testing.T) {
	r := newRig(t, oneNamespace, sim.Options{})
	inv := r.inventory()
	inv.Health.CriticalWarning = 4
	target := namespace.FormatTarget{Erase: namespace.EraseUser}
	if _, err := namespace.PlanFormat(inv, target, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("error %v", err)
	}
	if _, err := namespace.PlanFormat(inv, target, namespace.Options{AcceptCriticalWarning: true}); err != nil {
		t.Errorf("accepted: %v", err)
	}
}
