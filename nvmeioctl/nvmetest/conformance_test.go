package nvmetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/sim"
)

func openSim(t *testing.T, name string) nvmeioctl.Device {
	t.Helper()
	p, ok := sim.LookupProfile(name)
	if !ok {
		t.Fatalf("no profile %q", name)
	}
	d, err := sim.New(p, sim.Options{Serial: "CONFORM1", Seed: 1, Controllers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The simulated drives pass the suite, each profile of them.
func TestDevice_simulated(t *testing.T) {
	for _, p := range sim.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device { return openSim(t, p.Name) }, nvmetest.Options{})
		})
	}
}

func TestDevice_readOnlySendsNoChange(t *testing.T) {
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
		return &broken{Device: openSim(t, "pblaze7-7940-7.68tb"), t: t, how: "watch"}
	}, nvmetest.Options{ReadOnly: true})
}

// broken is a drive with one fault, as drives and libraries have had them.
type broken struct {
	nvmeioctl.Device
	t   *testing.T
	how string
}

func (b *broken) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if b.how == "ctx" {
		ctx = context.WithoutCancel(ctx)
	}
	if b.how == "timeout" && cmd.Timeout == 0 {
		return nvmeioctl.Completion{}, nil
	}
	attach := cmd.Opcode == 0x15
	switch {
	case b.how == "watch" && (cmd.Opcode == 0x0D || attach || cmd.Opcode == 0x80 || cmd.Opcode == 0x09):
		b.t.Errorf("the read-only suite sends opcode %#x", cmd.Opcode)
	case b.how == "empty list succeeds" && attach && cmd.Data[0] == 0:
		return nvmeioctl.Completion{}, nil
	case b.how == "delete does nothing" && cmd.Opcode == 0x0D && cmd.CDW10 == 1:
		return nvmeioctl.Completion{}, nil
	case b.how == "format does nothing" && cmd.Opcode == 0x80 && cmd.CDW10 != 15 && cmd.NSID == 1:
		return nvmeioctl.Completion{}, nil
	case b.how == "feature lost" && cmd.Opcode == 0x09 && cmd.CDW10 == 4:
		return nvmeioctl.Completion{}, nil
	}
	c, err := b.Device.Submit(ctx, cmd)
	switch {
	case b.how == "status swallowed":
		c.Status = 0
	case b.how == "list not ascending" && cmd.Opcode == 6 && cmd.CDW10&0xFF == 0x10 && len(cmd.Data) >= 8:
		copy(cmd.Data, "\x09\x00\x00\x00\x03\x00\x00\x00")
	case b.how == "inactive not zero" && cmd.Opcode == 6 && cmd.CDW10&0xFF == 0 && cmd.NSID != 1 && c.Status == 0:
		cmd.Data[0] = 1
	case b.how == "half a page" && cmd.Opcode == 6 && cmd.CDW10&0xFF == 1:
		copy(cmd.Data[3900:], strings.Repeat(string(rune('A'+cmd.Data[3900]%2)), 100))
	case b.how == "already attached is success" && c.Status&0x7FF == 0x118:
		c.Status = 0
	case b.how == "create names no NSID" && cmd.Opcode == 0x0D && cmd.CDW10 == 0:
		c.Result = 0
	case b.how == "error log says nothing" && cmd.Opcode == 2 && cmd.CDW10&0xFF == 1:
		clear(cmd.Data)
	}
	return c, err
}

// The suite must notice each fault: it runs on the faulty drive in a process of
// its own, which has to fail.
func TestDevice_noticesFaults(t *testing.T) {
	const env = "NVMETEST_BROKEN"
	if how := os.Getenv(env); how != "" {
		nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
			return &broken{Device: openSim(t, "pblaze7-7940-7.68tb"), t: t, how: how}
		}, nvmetest.Options{})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{
		"none", "ctx", "timeout", "status swallowed", "empty list succeeds", "delete does nothing", "format does nothing",
		"feature lost", "list not ascending", "inactive not zero", "half a page", "already attached is success",
		"create names no NSID", "error log says nothing",
	} {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestDevice_noticesFaults$")
		cmd.Env = append(os.Environ(), env+"="+how)
		out, err := cmd.CombinedOutput()
		_, failed := err.(*exec.ExitError)
		if want := how != "none"; failed != want || strings.Contains(string(out), "panic:") {
			t.Errorf("drive with fault %q: the suite failed: %v, want %v (%v)\n%s", how, failed, want, err, out)
		}
	}
}
