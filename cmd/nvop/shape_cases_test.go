package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// meanwhile does something when the SMART log is read for the nth time: between the
// plan and its first step.
type meanwhile struct {
	nvmeioctl.Device
	n       int
	do      func()
	formats int
}

func (m *meanwhile) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	switch {
	case cmd.Opcode == nvmespec.AdminFormatNVM:
		m.formats++
	case cmd.Opcode == nvmespec.AdminGetLogPage && nvmespec.LogID(cmd.CDW10&0xFF) == nvmespec.LogIDSMART:
		if m.n--; m.n == 0 {
			m.do()
		}
	}
	return m.Device.Submit(ctx, cmd)
}

// FMT-09, FMT-26: the kernel lets a format through while a namespace is held open,
// so who uses the drive is looked for again right before the command: an opener that
// came after consent stops it, and nothing is sent. A mere reader, such as udev, is
// waited for first.
func TestCase_FMT09_FMT26_openersAreLookedForAgain(t *testing.T) {
	const device = "0000:05:00.0"
	for name, c := range map[string]struct {
		flags string
		says  string
	}{"nobody": {"", ""}, "a writer": {"02", "process 4242, fio"}, "a reader that stays": {"0100000", "process 4242, fio"}} {
		t.Run(name, func(t *testing.T) {
			s := newPCIeSession(t, device)
			node := "/dev/" + s.names[device]
			m := &meanwhile{Device: s.drive.dev, n: 2, do: func() {
				if c.flags == "" {
					return
				}
				s.file("/proc/4242/comm", "fio\n")
				s.file("/proc/4242/fdinfo/7", "flags:\t"+c.flags+"\n")
				s.link("/proc/4242/fd/7", node)
			}}
			s.drive.dev = m
			inv, err := s.drive.inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p, err := namespace.PlanFormat(inv, namespace.FormatTarget{NSID: 1, Title: "format"}, namespace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m.n = 1
			began := s.drive.clock.Now()
			err = s.app.carryOut(t.Context(), s.drive, changeFlags{consentFlags: consentFlags{ConfirmSerial: s.serial}}, p)
			if c.says == "" {
				// This host shows no block device: only the command counts.
				if m.formats != 1 {
					t.Errorf("%d formats: %v", m.formats, err)
				}
				return
			}
			if err == nil || exitCode(err) != exitRefused || !strings.Contains(err.Error(), c.says) || m.formats != 0 {
				t.Errorf("exit code %d, %d formats: %v", exitCode(err), m.formats, err)
			}
			if waited := s.drive.clock.Now().Sub(began); strings.Contains(name, "reader") != (waited >= readerPatience) {
				t.Errorf("waited %s", waited)
			}
		})
	}
}

// SMART-18: a command for all namespaces is called so, not by a number or by -1.
func TestCase_SMART18_all(t *testing.T) {
	address, _ := simFile(t, "pblaze7-7940-7.68tb")
	r := call(t, "log", address, "smart", "--fault", "fail every log 0x02 with 0x4109")
	if r.code != exitUnsupported || !strings.Contains(r.errout, "(all namespaces)") || strings.Contains(r.errout, "4294967295") || strings.Contains(r.errout, "-1") {
		t.Errorf("exit code %d: %s", r.code, r.errout)
	}
	if got := nsidText(nvmespec.BroadcastNSID); got != "all" {
		t.Errorf("%q", got)
	}
}

// SMART-17: every namespace and its LBA format is in the inventory on a drive with
// several, by Identify CNS 10h and 11h.
func TestCase_SMART17_everyNamespace(t *testing.T) {
	address, serial := simFile(t, "pblaze7-7940-7.68tb")
	spec := filepath.Join(t.TempDir(), "spec.yaml")
	if err := os.WriteFile(spec, []byte("version: 1\nreplace: all\nnamespaces: [{size: 1TB, lba: {data: 512}}, {size: 2TB, lba: {data: 4096}}, {size: 500GB, lba: {data: 4096, metadata: 8}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := call(t, "apply", address, "-f", spec, "--confirm-serial", serial); r.code != exitOK {
		t.Fatal(r.errout)
	}
	r := call(t, "show", address)
	for _, want := range []string{"1.00 TB", "2.00 TB", "500.11 GB", "4096+8"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%s is not shown:\n%s", want, r.out)
		}
	}
}
