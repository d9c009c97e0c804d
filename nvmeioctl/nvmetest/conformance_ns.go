package nvmetest

import (
	"encoding/binary"
	"slices"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// The data structures here are written by offset from the specification, so
// that a slip in the codec, which a simulated drive shares, does not cancel out.

// createCmd is a create of a namespace of that many blocks.
func createCmd(blocks uint64, flbas, nmic uint8) nvmeioctl.Command {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint64(b[0:], blocks)
	binary.LittleEndian.PutUint64(b[8:], blocks)
	b[26], b[30] = flbas, nmic
	return nvmeioctl.Command{Opcode: opNSManagement, Data: b}
}

func deleteCmd(nsid uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: opNSManagement, NSID: nsid, CDW10: 1}
}

// attachCmd attaches to, or with sel 1 detaches from, the controllers.
func attachCmd(sel, nsid uint32, cntlids ...uint16) nvmeioctl.Command {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint16(b, uint16(len(cntlids)))
	for i, id := range cntlids {
		binary.LittleEndian.PutUint16(b[2+2*i:], id)
	}
	return nvmeioctl.Command{Opcode: opNSAttachment, NSID: nsid, CDW10: sel, Data: b}
}

func formatCmd(nsid, cdw10 uint32) nvmeioctl.Command {
	return nvmeioctl.Command{Opcode: opFormat, NSID: nsid, CDW10: cdw10}
}

// hasManagement skips a drive without namespace management, after checking that
// it says so when asked all the same.
func (s *suite) hasManagement(t *testing.T) {
	t.Helper()
	if s.ctrl.Admin&nvmespec.AdminNamespaceManagement == 0 {
		s.expect(t, "create on a drive without namespace management", createCmd(1<<21, 0, 0), scInvalidOpcode)
		t.Skip("the drive has no namespace management")
	}
	if s.opts.MayLackCreate {
		if c := s.submit(t, createCmd(0, 0, 0)); c.Status.Code() == scInvalidOpcode {
			t.Skip("the drive announces namespace management and has no create")
		}
	}
}

// clear deletes every namespace.
func (s *suite) clear(t *testing.T) {
	t.Helper()
	ids, err := admin.AllocatedNamespaces(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		s.expect(t, "delete", deleteCmd(id), scSuccess)
	}
	s.refresh(t)
}

// refresh reads the controller again: UNVMCAP has changed.
func (s *suite) refresh(t *testing.T) {
	t.Helper()
	c, err := admin.IdentifyController(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	s.ctrl = c
}

// room is the size of a namespace that the drive has room for, in blocks of
// format 0: the granularity it reports, or 1 GiB, and the bytes of a block.
func (s *suite) room(t *testing.T) (blocks uint64, blockBytes uint64) {
	t.Helper()
	common, _, err := admin.CommonNamespace(t.Context(), s.dev, s.ctrl)
	if err != nil {
		t.Fatal(err)
	}
	blockBytes = uint64(common.Formats[0].DataBytes)
	size := uint64(1 << 30)
	if list, err := admin.Granularity(t.Context(), s.dev); err == nil {
		if g := list.For(0).SizeBytes; g != 0 {
			size = g
		}
	}
	return size / blockBytes, blockBytes
}

func (s *suite) mustCreate(t *testing.T, blocks uint64, nmic uint8) uint32 {
	t.Helper()
	c := s.expect(t, "create", createCmd(blocks, 0, nmic), scSuccess)
	nsid := uint32(c.Result)
	if nsid == 0 || nsid > s.ctrl.NamespaceIDMax {
		t.Fatalf("create: NSID %d of %d", nsid, s.ctrl.NamespaceIDMax)
	}
	return nsid
}

// lists fails unless nsid is in the active and allocated lists as said.
func (s *suite) lists(t *testing.T, when string, nsid uint32, wantAllocated, wantActive bool) {
	t.Helper()
	allocated, err := admin.AllocatedNamespaces(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	active, err := admin.ActiveNamespaces(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Contains(allocated, nsid); got != wantAllocated {
		t.Errorf("%s: namespace %d allocated: %v", when, nsid, got)
	}
	if got := slices.Contains(active, nsid); got != wantActive {
		t.Errorf("%s: namespace %d active: %v", when, nsid, got)
	}
}

// namespaceLife goes once through create, attach, detach and delete, with every
// wrong turn on the way.
func (s *suite) namespaceLife(t *testing.T) {
	s.hasManagement(t)
	s.clear(t)
	empty := s.ctrl.UnallocatedCapacityBytes
	me := s.ctrl.ControllerID
	blocks, blockBytes := s.room(t)
	nsid := s.mustCreate(t, blocks, 0)
	s.lists(t, "created", nsid, true, false)
	if ns, err := admin.IdentifyAllocatedNamespace(t.Context(), s.dev, nsid); err != nil || ns.SizeBlocks != blocks {
		t.Errorf("created with %d blocks, has %d: %v", blocks, ns.SizeBlocks, err)
	}
	if ns, err := admin.IdentifyNamespace(t.Context(), s.dev, nsid); err != nil || ns.Active() {
		t.Errorf("not attached, active %v: %v", ns.Active(), err)
	}
	s.refresh(t)
	if used, ok := empty.Sub(s.ctrl.UnallocatedCapacityBytes); !ok || used.Lo < blocks*blockBytes {
		t.Errorf("UNVMCAP fell by %v for a namespace of %d bytes", used, blocks*blockBytes)
	}

	stranger := me + 1
	if ids, err := admin.Controllers(t.Context(), s.dev); err == nil {
		for slices.Contains(ids, stranger) {
			stranger++
		}
	}
	s.expect(t, "attach to nobody", attachCmd(0, nsid), scControllerListBad)
	s.expect(t, "attach to a controller that there is not", attachCmd(0, nsid, stranger), scControllerListBad)
	s.expect(t, "detach what is not attached", attachCmd(1, nsid, me), scNotAttached)
	s.lists(t, "after refusals", nsid, true, false)
	s.expect(t, "attach", attachCmd(0, nsid, me), scSuccess)
	s.lists(t, "attached", nsid, true, true)
	s.expect(t, "attach twice", attachCmd(0, nsid, me), scAlreadyAttached)
	if ids, err := admin.AttachedControllers(t.Context(), s.dev, nsid); err != nil || !slices.Equal(ids, []uint16{me}) {
		t.Errorf("attached to %v, want %d: %v", ids, me, err)
	}
	s.privateNamespace(t, nsid)
	s.expect(t, "detach", attachCmd(1, nsid, me), scSuccess)
	s.lists(t, "detached", nsid, true, false)
	s.expect(t, "detach twice", attachCmd(1, nsid, me), scNotAttached)
	s.expect(t, "attach again", attachCmd(0, nsid, me), scSuccess)
	s.expect(t, "delete what is attached", deleteCmd(nsid), scSuccess)
	s.lists(t, "deleted", nsid, false, false)
	s.expect(t, "delete twice", deleteCmd(nsid), scInvalidNamespace, scInvalidField)
	s.expect(t, "attach what was deleted", attachCmd(0, nsid, me), scInvalidNamespace, scInvalidField)
	s.refresh(t)
	if s.ctrl.UnallocatedCapacityBytes != empty {
		t.Errorf("UNVMCAP is %v after all was deleted and was %v", s.ctrl.UnallocatedCapacityBytes, empty)
	}
	// A drive is not left without a namespace.
	s.expect(t, "attach", attachCmd(0, s.mustCreate(t, blocks, 0), me), scSuccess)
}

// privateNamespace: one that is attached cannot be shared with a second
// controller when it was created private.
func (s *suite) privateNamespace(t *testing.T, nsid uint32) {
	t.Helper()
	ids, err := admin.Controllers(t.Context(), s.dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != s.ctrl.ControllerID {
			s.expect(t, "attach a private namespace to a second controller", attachCmd(0, nsid, id), scPrivate)
			return
		}
	}
}

// namespaceLimits: what does not fit is refused and says what it needs.
func (s *suite) namespaceLimits(t *testing.T) {
	s.hasManagement(t)
	s.clear(t)
	blocks, blockBytes := s.room(t)
	s.expect(t, "create without a size", createCmd(0, 0, 0), scInvalidField)
	s.expect(t, "create with a format that there is not", createCmd(blocks, 0x0F, 0), scInvalidFormat, scInvalidField)

	tooMany := s.ctrl.UnallocatedCapacityBytes.Lo/blockBytes + blocks
	s.expect(t, "create beyond the capacity", createCmd(tooMany, 0, 0), scInsufficientSpace)
	need, ok, err := admin.RequiredCapacity(t.Context(), s.dev, s.ctrl)
	if err != nil || !ok || need < tooMany*blockBytes {
		t.Errorf("the error log says %d bytes are needed (%v) for a namespace of %d: %v", need, ok, tooMany*blockBytes, err)
	}

	if nn := s.ctrl.NamespaceIDMax; nn <= 16 {
		for range nn {
			s.mustCreate(t, blocks, 0)
		}
		s.expect(t, "create one more than NN", createCmd(blocks, 0, 0), scNSIDUnavailable)
		s.clear(t)
	}
	s.expect(t, "attach", attachCmd(0, s.mustCreate(t, blocks, 0), s.ctrl.ControllerID), scSuccess)
}

// format goes to another block size and back, where the drive has one.
func (s *suite) format(t *testing.T) {
	if s.ctrl.Admin&nvmespec.AdminFormat == 0 {
		s.expect(t, "format on a drive without it", formatCmd(1, 0), scInvalidOpcode)
		t.Skip("the drive has no format command")
	}
	active, err := admin.ActiveNamespaces(t.Context(), s.dev)
	if err != nil || len(active) == 0 {
		t.Fatal(active, err)
	}
	nsid := active[0]
	ns, err := admin.IdentifyNamespace(t.Context(), s.dev, nsid)
	if err != nil {
		t.Fatal(err)
	}
	sizeBefore := ns.SizeBytes()
	was := ns.FormatIndex
	other := was
	for _, f := range ns.Formats {
		if f.Available() && f.MetadataBytes == 0 && f.Index != was && f.Index < 16 {
			other = f.Index
		}
	}
	s.expect(t, "format with a format that there is not", formatCmd(nsid, 0x0F), scInvalidFormat, scInvalidField)
	s.expect(t, "format of a namespace beyond NN", formatCmd(s.ctrl.NamespaceIDMax+1, uint32(was)), scInvalidNamespace)
	for _, index := range []uint8{other, was} {
		s.expect(t, "format", formatCmd(nsid, uint32(index)), scSuccess)
		now, err := admin.IdentifyNamespace(t.Context(), s.dev, nsid)
		if err != nil {
			t.Fatal(err)
		}
		if got := now.FormatIndex; got != index {
			t.Errorf("formatted to %d, and the namespace has format %d", index, got)
		}
		f, _ := now.Format()
		if f.MetadataBytes == 0 && now.SizeBytes().Cmp(sizeBefore) > 0 {
			t.Errorf("the namespace grew from %v to %v bytes by a format", sizeBefore, now.SizeBytes())
		}
	}
}
