package sim

import (
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// profile gives a profile by name.
func profile(t testing.TB, name string) Profile {
	t.Helper()
	p, ok := LookupProfile(name)
	if !ok {
		t.Fatalf("no profile %q", name)
	}
	return p
}

// small makes a drive cheap to build: the flash of a test drive need not be
// true to scale.
func small(p Profile) (Profile, Options) {
	return p, Options{Scale: uint32(max(1, p.CapacityBytes/uint64(p.Flash.IndirectionBytes)/(1<<17)))}
}

// newTestDrive makes a drive in memory.
func newTestDrive(t testing.TB, name string, change func(*Profile, *Options)) *Drive {
	t.Helper()
	p, o := small(profile(t, name))
	if change != nil {
		change(&p, &o)
	}
	d, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// host sends commands to a device.
type host struct {
	t   testing.TB
	dev nvmeioctl.Device
}

// raw sends a command; the timeout is filled in.
func (h host) raw(c nvmeioctl.Command) nvmeioctl.Completion {
	h.t.Helper()
	if c.Timeout == 0 {
		c.Timeout = time.Hour
	}
	done, err := h.dev.Submit(h.t.Context(), &c)
	if err != nil {
		h.t.Fatalf("opcode %#x: %v", c.Opcode, err)
	}
	return done
}

// want sends a command and checks the whole status word.
func (h host) want(c nvmeioctl.Command, s nvmespec.Status) uint32 {
	h.t.Helper()
	done := h.raw(c)
	if done.Status != s {
		h.t.Fatalf("opcode %#x: status %#x, want %#x", c.Opcode, uint16(done.Status), uint16(s))
	}
	return uint32(done.Result)
}

func (h host) identify(cns nvmespec.CNS, nsid uint32) []byte {
	h.t.Helper()
	data := make([]byte, 4096)
	h.want(nvmeioctl.Command{Opcode: 0x06, NSID: nsid, CDW10: uint32(cns), Data: data}, 0)
	return data
}

func (h host) controller() nvmespec.Controller {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeController, h.identify(nvmespec.CNSController, 0))
}

func (h host) namespace(nsid uint32) nvmespec.Namespace {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeNamespace, h.identify(nvmespec.CNSNamespace, nsid))
}

func (h host) allocatedNamespace(nsid uint32) nvmespec.Namespace {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeNamespace, h.identify(nvmespec.CNSAllocatedNamespace, nsid))
}

func (h host) list(cns nvmespec.CNS, after uint32) []uint32 {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeNamespaceList, h.identify(cns, after))
}

func (h host) controllers(cns nvmespec.CNS, nsid uint32) []uint16 {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeControllerList, h.identify(cns, nsid))
}

// log reads n bytes of a log page, retaining its event.
func (h host) log(id nvmespec.LogID, n uint64) []byte {
	h.t.Helper()
	return h.logFields(nvmespec.GetLogFields{Log: id, LengthBytes: n, RetainEvent: true})
}

func (h host) logFields(f nvmespec.GetLogFields) []byte {
	h.t.Helper()
	data := make([]byte, f.LengthBytes)
	h.want(logCommand(h.t, f, data), 0)
	return data
}

func logCommand(t testing.TB, f nvmespec.GetLogFields, data []byte) nvmeioctl.Command {
	t.Helper()
	w, err := f.Dwords()
	if err != nil {
		t.Fatal(err)
	}
	return nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: w.CDW10, CDW11: w.CDW11, CDW12: w.CDW12, CDW13: w.CDW13, CDW14: w.CDW14, Data: data}
}

func (h host) smart() nvmespec.SMART {
	h.t.Helper()
	return decoded(h.t, nvmespec.DecodeSMART, h.log(nvmespec.LogIDSMART, nvmespec.SMARTSize))
}

func (h host) errors() []nvmespec.ErrorEntry {
	h.t.Helper()
	n := uint64(h.controller().ErrorLogEntries) * 64
	return decoded(h.t, nvmespec.DecodeErrorLog, h.log(nvmespec.LogIDError, n))
}

// decoded decodes or fails.
func decoded[T any](t testing.TB, decode func([]byte) (T, error), b []byte) T {
	t.Helper()
	v, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Commands that change the drive.

func createCommand(c nvmespec.NamespaceCreate) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x0D, Data: c.Append(nil)}
}

func createBlocks(blocks uint64, format uint8) nvmeioctl.Command {
	return createCommand(nvmespec.NamespaceCreate{SizeBlocks: blocks, CapacityBlocks: blocks, FormatIndex: format})
}

func deleteCommand(nsid uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x0D, NSID: nsid, CDW10: 1}
}

func attachCommand(nsid uint32, cntlids ...uint16) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x15, NSID: nsid, Data: nvmespec.AppendControllerList(nil, cntlids)}
}

func detachCommand(nsid uint32, cntlids ...uint16) nvmeioctl.Command {
	c := attachCommand(nsid, cntlids...)
	c.CDW10 = 1
	return c
}

func formatDword(nsid uint32, f nvmespec.FormatFields) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: 0x80, NSID: nsid, CDW10: f.Dword()}
}
