package namespace_test

import (
	"context"
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
