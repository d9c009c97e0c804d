package nvmetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// Opener opens the device under test afresh; the suite closes it.
type Opener func(t *testing.T) nvmeioctl.Device

// Options are what the suite may do and what it must put up with.
type Options struct {
	// ReadOnly leaves out everything that changes the drive.
	ReadOnly bool
	// MayLackCreate accepts a controller that announces namespace management
	// and answers invalid opcode to it, as QEMU's does.
	MayLackCreate bool
	// SingleTimeout bounds each command; 0 means half an hour, which the slowest
	// create has needed.
	SingleTimeout time.Duration
}

// suite is one device under test.
type suite struct {
	dev  nvmeioctl.Device
	opts Options
	ctrl nvmespec.Controller
}

// TestDevice runs the conformance suite on a device: what every controller must
// answer, with the statuses of the NVMe Base Specification 2.x and of real
// controllers behind a real kernel. Without ReadOnly it destroys everything on
// the drive.
func TestDevice(t *testing.T, open Opener, opts Options) {
	if opts.SingleTimeout == 0 {
		opts.SingleTimeout = 30 * time.Minute
	}
	run := func(name string, f func(*suite, *testing.T)) {
		t.Run(name, func(t *testing.T) {
			s := &suite{dev: open(t), opts: opts}
			t.Cleanup(func() {
				if err := s.dev.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			ctrl, err := admin.IdentifyController(t.Context(), s.dev)
			if err != nil {
				t.Fatal(err)
			}
			s.ctrl = ctrl
			f(s, t)
		})
	}
	run("IdentifyController", (*suite).identifyController)
	run("Contract", (*suite).contract)
	run("StatusIsNeverSwallowed", (*suite).statuses)
	run("InactiveNamespace", (*suite).inactiveNamespace)
	run("NamespaceLists", (*suite).namespaceLists)
	run("ActiveNamespaces", (*suite).activeNamespaces)
	run("Logs", (*suite).logs)
	run("Features", (*suite).features)
	if opts.ReadOnly {
		return
	}
	run("FeatureReadback", (*suite).featureReadback)
	run("NamespaceLife", (*suite).namespaceLife)
	run("NamespaceLimits", (*suite).namespaceLimits)
	run("Format", (*suite).format)
}

// submit sends a command that must be answered, whatever the answer is.
func (s *suite) submit(t *testing.T, cmd nvmeioctl.Command) nvmeioctl.Completion {
	t.Helper()
	cmd.Timeout = s.opts.SingleTimeout
	c, err := s.dev.Submit(t.Context(), &cmd)
	if err != nil {
		t.Fatalf("%s: %v", nvmespec.CommandName(!cmd.IO, cmd.Opcode), err)
	}
	return c
}

// expect fails unless the controller answers with one of the codes; CRD, More
// and DNR are not compared.
func (s *suite) expect(t *testing.T, what string, cmd nvmeioctl.Command, codes ...nvmespec.Status) nvmeioctl.Completion {
	t.Helper()
	c := s.submit(t, cmd)
	if !slices.Contains(codes, c.Status.Code()) {
		t.Errorf("%s: status 0x%04x (%s), want %#03x", what, uint16(c.Status), c.Status.Name(), codes)
	}
	if failed := c.Status.Code() != 0; failed != (c.Err() != nil) {
		t.Errorf("%s: status 0x%04x and error %v disagree", what, uint16(c.Status), c.Err())
	}
	return c
}

// Statuses of the specification's tables, as numbers, so that a slip in the
// codec's names does not go unseen.
const (
	scSuccess            nvmespec.Status = 0x000
	scInvalidOpcode      nvmespec.Status = 0x001
	scInvalidField       nvmespec.Status = 0x002
	scInvalidNamespace   nvmespec.Status = 0x00B
	scInvalidLogPage     nvmespec.Status = 0x109
	scInvalidFormat      nvmespec.Status = 0x10A
	scInsufficientSpace  nvmespec.Status = 0x115
	scNSIDUnavailable    nvmespec.Status = 0x116
	scAlreadyAttached    nvmespec.Status = 0x118
	scPrivate            nvmespec.Status = 0x119
	scNotAttached        nvmespec.Status = 0x11A
	scControllerListBad  nvmespec.Status = 0x11C
	opIdentify                           = 0x06
	opGetLog                             = 0x02
	opSetFeatures                        = 0x09
	opGetFeatures                        = 0x0A
	opNSManagement                       = 0x0D
	opNSAttachment                       = 0x15
	opFormat                             = 0x80
	opReserved                           = 0x0B // in no revision of the specification
	featureTempThreshold                 = 0x04
)

func identifyCmd(cns, nsid uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: opIdentify, NSID: nsid, CDW10: cns, Data: make([]byte, 4096)}
}

func (s *suite) identifyController(t *testing.T) {
	c := s.ctrl
	if c.SerialNumber == "" || c.ModelNumber == "" {
		t.Errorf("serial %q, model %q", c.SerialNumber, c.ModelNumber)
	}
	if c.NamespaceIDMax == 0 {
		t.Error("NN is 0")
	}
	again, err := admin.IdentifyController(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	if admin.IdentityOf(again) != admin.IdentityOf(c) {
		t.Errorf("identity %+v, then %+v", admin.IdentityOf(c), admin.IdentityOf(again))
	}
	// The whole page is written: a buffer that was not zero must not shine through.
	dirty := bytes.Repeat([]byte{0xA5}, 4096)
	clean := identifyCmd(0x01, 0)
	s.expect(t, "identify controller", nvmeioctl.Command{Opcode: opIdentify, CDW10: 1, Data: dirty}, scSuccess)
	s.expect(t, "identify controller", clean, scSuccess)
	if !bytes.Equal(dirty, clean.Data) {
		t.Error("identify does not fill its page")
	}
	ids, err := admin.Controllers(t.Context(), s.dev)
	switch {
	case admin.IsUnsupported(err):
		t.Log("no controller list: ", err)
	case err != nil:
		t.Error(err)
	case !slices.Contains(ids, c.ControllerID):
		t.Errorf("controller %d is not in its own subsystem's list %v", c.ControllerID, ids)
	}
}

// contract is what Device promises about commands that are not sent.
func (s *suite) contract(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := identifyCmd(0x01, 0)
	cmd.Timeout = s.opts.SingleTimeout
	if _, err := s.dev.Submit(ctx, &cmd); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it was sent: %v", err)
	}
	if !bytes.Equal(cmd.Data, make([]byte, 4096)) {
		t.Error("a command that was not sent wrote its buffer")
	}
	cmd.Timeout = 0
	if _, err := s.dev.Submit(t.Context(), &cmd); err == nil {
		t.Error("a command without a time-out was taken")
	}
	if s.dev.String() == "" {
		t.Error("the device has no name")
	}
}

// statuses is the fault of every Go library looked at: a status that is lost
// makes a failed command look like success.
func (s *suite) statuses(t *testing.T) {
	if nn := s.ctrl.NamespaceIDMax; nn < 0xFFFFFFFE {
		s.expect(t, "identify a namespace beyond NN", identifyCmd(0x00, nn+1), scInvalidNamespace)
		if _, err := admin.IdentifyNamespace(t.Context(), s.dev, nn+1); err == nil {
			t.Error("identify of an invalid namespace is no error")
		}
	}
	s.expect(t, "identify namespace 0", identifyCmd(0x00, 0), scInvalidNamespace)
	s.expect(t, "an opcode that there is not", nvmeioctl.Command{Opcode: opReserved}, scInvalidOpcode)
	s.expect(t, "a CNS that there is not", identifyCmd(0xBF, 0), scInvalidField)
}

// inactiveNamespace: success and zeros, never a size of 0 bytes.
func (s *suite) inactiveNamespace(t *testing.T) {
	active, err := admin.ActiveNamespaces(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	for nsid := uint32(1); nsid <= min(s.ctrl.NamespaceIDMax, 2048); nsid++ {
		if slices.Contains(active, nsid) {
			continue
		}
		cmd := identifyCmd(0x00, nsid)
		for i := range cmd.Data {
			cmd.Data[i] = 0xA5
		}
		s.expect(t, "identify an inactive namespace", cmd, scSuccess)
		if !bytes.Equal(cmd.Data, make([]byte, 4096)) {
			t.Errorf("namespace %d is inactive and its page is not zero", nsid)
		}
		ns, err := admin.IdentifyNamespace(t.Context(), s.dev, nsid)
		if err != nil || ns.Active() {
			t.Errorf("namespace %d: active %v, %v", nsid, ns.Active(), err)
		}
		return
	}
	t.Skip("every namespace is active")
}

// namespaceLists: ascending, and only what is greater than the NSID given.
func (s *suite) namespaceLists(t *testing.T) {
	for _, cns := range []uint32{0x02, 0x10} {
		cmd := identifyCmd(cns, 0)
		c := s.submit(t, cmd)
		if cns == 0x10 && c.Status.Code() == scInvalidField {
			continue // no namespace management
		}
		if c.Status != 0 {
			t.Errorf("CNS %#x: %v", cns, c.Err())
			continue
		}
		ids, err := nvmespec.DecodeNamespaceList(cmd.Data)
		if err != nil || !slices.IsSorted(ids) {
			t.Errorf("CNS %#x: %v, %v", cns, ids, err)
		}
		for i, id := range ids {
			after := identifyCmd(cns, id)
			s.expect(t, "list after one", after, scSuccess)
			rest, err := nvmespec.DecodeNamespaceList(after.Data)
			if err != nil || !slices.Equal(rest, ids[i+1:]) {
				t.Errorf("CNS %#x after %d: %v, want %v (%v)", cns, id, rest, ids[i+1:], err)
			}
		}
		s.expect(t, "list after the last NSID there can be", identifyCmd(cns, 0xFFFFFFFF), scInvalidNamespace)
	}
}

// activeNamespaces: what is active has a size and a format of its own.
func (s *suite) activeNamespaces(t *testing.T) {
	active, err := admin.ActiveNamespaces(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, nsid := range active {
		ns, err := admin.IdentifyNamespace(t.Context(), s.dev, nsid)
		if err != nil || !ns.Active() {
			t.Errorf("namespace %d: active %v, %v", nsid, ns.Active(), err)
			continue
		}
		if f, ok := ns.Format(); !ok || f.DataBytes < 512 {
			t.Errorf("namespace %d: format %+v, %v", nsid, f, ok)
		}
	}
}

func (s *suite) logs(t *testing.T) {
	smart := nvmeioctl.Command{Opcode: opGetLog, NSID: 0xFFFFFFFF, CDW10: 0x02 | 127<<16, Data: make([]byte, 512)}
	s.expect(t, "SMART log", smart, scSuccess)
	if _, err := admin.SMARTLog(t.Context(), s.dev, 0xFFFFFFFF); err != nil {
		t.Error(err)
	}
	if _, err := admin.FirmwareLog(t.Context(), s.dev); err != nil {
		t.Error(err)
	}
	if _, err := admin.ErrorLog(t.Context(), s.dev, s.ctrl, 1); err != nil {
		t.Error(err)
	}
	// Controllers answer either to a page that is not there.
	s.expect(t, "a log that there is not",
		nvmeioctl.Command{Opcode: opGetLog, NSID: 0xFFFFFFFF, CDW10: 0x7F | 127<<16, Data: make([]byte, 512)},
		scInvalidLogPage, scInvalidField)
	if s.ctrl.Logs&nvmespec.LogExtended != 0 {
		beyond := smart
		beyond.CDW12 = 1 << 20
		s.expect(t, "SMART log beyond its end", beyond, scInvalidField)
	}
}

func (s *suite) features(t *testing.T) {
	s.expect(t, "number of queues", nvmeioctl.Command{Opcode: opGetFeatures, CDW10: 0x07}, scSuccess)
	s.expect(t, "a feature that there is not", nvmeioctl.Command{Opcode: opGetFeatures, CDW10: 0x7E}, scInvalidField)
}

// featureReadback sets the composite temperature's upper threshold, which every
// controller has, and puts it back.
func (s *suite) featureReadback(t *testing.T) {
	get := nvmeioctl.Command{Opcode: opGetFeatures, CDW10: featureTempThreshold}
	set := nvmeioctl.Command{Opcode: opSetFeatures, CDW10: featureTempThreshold}
	before := uint32(s.expect(t, "get threshold", get, scSuccess).Result) & 0xFFFF
	set.CDW11 = before - 1
	s.expect(t, "set threshold", set, scSuccess)
	if got := uint32(s.expect(t, "get threshold", get, scSuccess).Result) & 0xFFFF; got != before-1 {
		t.Errorf("threshold %d K after %d K was set", got, before-1)
	}
	set.CDW11 = before
	s.expect(t, "restore threshold", set, scSuccess)
	s.expect(t, "set a feature that there is not", nvmeioctl.Command{Opcode: opSetFeatures, CDW10: 0x7E}, scInvalidField)
}
