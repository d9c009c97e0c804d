package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// TestResize walks the road of the main job: 7.68 TB becomes 6.4 TB.
func TestResize(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	c := h.controller()
	if got := c.UnallocatedCapacityBytes; !got.IsZero() || c.TotalCapacityBytes != nvmespec.U128(7_681_501_126_656) {
		t.Fatalf("delivered with %v of %v unallocated", got, c.TotalCapacityBytes)
	}
	before := h.namespace(1)
	h.want(deleteCommand(1), 0)
	if c := h.controller(); c.UnallocatedCapacityBytes != c.TotalCapacityBytes {
		t.Fatalf("after delete %v of %v unallocated", c.UnallocatedCapacityBytes, c.TotalCapacityBytes)
	}
	blocks := uint64(6_401_252_745_216 / 512)
	if nsid := h.want(createBlocks(blocks, 0), 0); nsid != 1 {
		t.Fatalf("new namespace is %d", nsid)
	}
	if n := h.namespace(1); n.Active() {
		t.Fatal("a namespace is active before it is attached")
	}
	h.want(attachCommand(1, 1), 0)
	n := h.namespace(1)
	if n.SizeBytes() != nvmespec.U128(6_401_252_745_216) || n.CapacityBlocks != blocks {
		t.Fatalf("size is %v", n.SizeBytes())
	}
	if n.NGUID == before.NGUID || n.EUI64 == before.EUI64 || n.NGUID.IsZero() {
		t.Fatal("a new namespace must have new identifiers")
	}
	if free := h.controller().UnallocatedCapacityBytes; free != nvmespec.U128(7_681_501_126_656-6_401_252_745_216) {
		t.Fatalf("unallocated %v", free)
	}
}

// TestCreateRefused has every reason to refuse a namespace with its status.
func TestCreateRefused(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	h.want(deleteCommand(1), 0)
	good := nvmespec.NamespaceCreate{SizeBlocks: 1 << 20, CapacityBlocks: 1 << 20}
	with := func(change func(*nvmespec.NamespaceCreate)) nvmeioctl.Command {
		c := good
		change(&c)
		return createCommand(c)
	}
	poke := func(at int, v byte) nvmeioctl.Command {
		c := createCommand(good)
		c.Data[at] |= v
		return c
	}
	cmd := func(change func(*nvmeioctl.Command)) nvmeioctl.Command {
		c := createCommand(good)
		change(&c)
		return c
	}
	huge := uint64(1) << 63
	cases := []struct {
		name string
		cmd  nvmeioctl.Command
		want nvmespec.Status
	}{
		{"NS-08 size 0", with(func(c *nvmespec.NamespaceCreate) { c.SizeBlocks, c.CapacityBlocks = 0, 0 }), 0x4002},
		{"NS-09 only capacity", with(func(c *nvmespec.NamespaceCreate) { c.SizeBlocks = 0 }), 0x4002},
		{"capacity 0", with(func(c *nvmespec.NamespaceCreate) { c.CapacityBlocks = 0 }), 0x4002},
		{"NS-67 thin", with(func(c *nvmespec.NamespaceCreate) { c.CapacityBlocks-- }), 0x411b},
		{"format beyond", with(func(c *nvmespec.NamespaceCreate) { c.FormatIndex = 5 }), 0x410a},
		{"format beyond 16", with(func(c *nvmespec.NamespaceCreate) { c.FormatIndex = 16 }), 0x410a},
		{"extended without metadata", with(func(c *nvmespec.NamespaceCreate) { c.MetadataExtended = true }), 0x410a},
		{"protection without metadata", with(func(c *nvmespec.NamespaceCreate) { c.Protection.Type = 1 }), 0x410a},
		{"protection type 4", with(func(c *nvmespec.NamespaceCreate) { c.FormatIndex, c.Protection.Type = 3, 4 }), 0x410a},
		{"shared with one controller", with(func(c *nvmespec.NamespaceCreate) { c.Shared = true }), 0x4002},
		{"ANA group", with(func(c *nvmespec.NamespaceCreate) { c.ANAGroupID = 1 }), 0x4002},
		{"NVM set", with(func(c *nvmespec.NamespaceCreate) { c.NVMSetID = 1 }), 0x4002},
		{"endurance group 2", with(func(c *nvmespec.NamespaceCreate) { c.EnduranceGroupID = 2 }), 0x4002},
		{"storage tag", with(func(c *nvmespec.NamespaceCreate) { c.StorageTagMask = 1 }), 0x4002},
		{"placement", with(func(c *nvmespec.NamespaceCreate) { c.PlacementHandles = []uint16{0} }), 0x4002},
		{"reserved byte 16", poke(16, 1), 0x4002},
		{"reserved byte 31", poke(31, 1), 0x4002},
		{"reserved byte 4095", poke(4095, 0x80), 0x4002},
		{"FLBAS bit 7", poke(26, 0x80), 0x4002},
		{"DPS bit 4", poke(29, 0x10), 0x4002},
		{"NMIC bit 1", poke(30, 2), 0x4002},
		{"NSID given", cmd(func(c *nvmeioctl.Command) { c.NSID = 1 }), 0x4002},
		{"select 2", cmd(func(c *nvmeioctl.Command) { c.CDW10 = 2 }), 0x4002},
		{"CDW10 reserved", cmd(func(c *nvmeioctl.Command) { c.CDW10 = 0x10 }), 0x4002},
		{"CDW11 reserved", cmd(func(c *nvmeioctl.Command) { c.CDW11 = 1 }), 0x4002},
		{"CDW15 reserved", cmd(func(c *nvmeioctl.Command) { c.CDW15 = 1 }), 0x4002},
		{"CDW2 reserved", cmd(func(c *nvmeioctl.Command) { c.CDW2 = 1 }), 0x4002},
		{"other command set", cmd(func(c *nvmeioctl.Command) { c.CDW11 = 2 << 24 }), 0x4129},
		{"short data", cmd(func(c *nvmeioctl.Command) { c.Data = c.Data[:512] }), 0x4004},
		{"NS-01 bytes taken for blocks", createBlocks(7_681_501_126_656, 0), 0x6115},
		{"beyond 64 bits", with(func(c *nvmespec.NamespaceCreate) { c.SizeBlocks, c.CapacityBlocks = huge, huge }), 0x6115},
	}
	for _, c := range cases {
		before := *d.st
		done := h.raw(c.cmd)
		if done.Status != c.want {
			t.Errorf("%s: status %#x, want %#x", c.name, uint16(done.Status), uint16(c.want))
		}
		if len(d.st.Namespaces) != 0 || d.st.IdentifiersUsed != before.IdentifiersUsed {
			t.Errorf("%s: it changed the drive", c.name)
		}
		if done.Result != 0 {
			t.Errorf("%s: result %#x", c.name, done.Result)
		}
	}
	h.want(createCommand(good), 0)
}

// TestCapacityError: NS-02, NS-04. What 0x115 needed is in the error log.
func TestCapacityError(t *testing.T) {
	const reserve = 64 << 20
	d := newTestDrive(t, "memblaze-p6531-3.84tb", func(_ *Profile, o *Options) { o.ReservedBytes = reserve })
	h := host{t, d}
	total := h.controller().TotalCapacityBytes.Lo
	h.want(deleteCommand(1), 0)
	if free := h.controller().UnallocatedCapacityBytes.Lo; free != total {
		t.Fatalf("unallocated %d of %d", free, total)
	}
	h.want(createBlocks(total/512, 0), 0x6115)
	e := h.errors()
	if len(e) == 0 || e[0].Status != 0x6115 || e[0].CommandSpecific != total || e[0].Opcode != nvmespec.Some(uint8(0x0D)) {
		t.Fatalf("error log: %+v", e)
	}
	if got := h.smart().ErrorLogEntries.Lo; got != e[0].Count {
		t.Fatalf("SMART counts %d errors, the log %d", got, e[0].Count)
	}
	h.want(createBlocks((total-reserve)/512, 0), 0)
	// NS-37: with NN = 1 there is no number for a second one.
	h.want(createBlocks(8, 0), 0x4116)
}

// TestGranularity: capacity is taken in whole units, and told where asked for.
func TestGranularity(t *testing.T) {
	const unit = 1 << 30
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(_ *Profile, o *Options) { o.AllocationBytes = unit })
	h := host{t, d}
	if h.controller().Attributes&nvmespec.AttrNamespaceGranularity == 0 {
		t.Fatal("granularity is not announced")
	}
	g := decoded(t, nvmespec.DecodeGranularityList, h.identify(nvmespec.CNSGranularity, 0))
	if got := g.For(0); got.SizeBytes != unit || got.CapacityBytes != unit {
		t.Fatalf("granularity %+v", got)
	}
	h.want(deleteCommand(1), 0)
	total := h.controller().TotalCapacityBytes.Lo
	h.want(createBlocks(1, 0), 0)
	if n := h.allocatedNamespace(1); n.NVMCapacityBytes.Lo != unit || n.SizeBlocks != 1 {
		t.Fatalf("one block takes %v bytes", n.NVMCapacityBytes)
	}
	if free := h.controller().UnallocatedCapacityBytes.Lo; free != total-unit {
		t.Fatalf("unallocated %d", free)
	}
	rest := (total - unit) / unit * unit
	h.want(createBlocks(rest/512+1, 0), 0x6115)
	if e := h.errors()[0]; e.CommandSpecific != rest+unit {
		t.Fatalf("needed %d, want %d", e.CommandSpecific, rest+unit)
	}
	h.want(createBlocks(rest/512, 0), 0)
}

// TestNumbers: the lowest free NSID is taken, lists ascend, and there is an end.
func TestNumbers(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	h.want(deleteCommand(0xFFFFFFFF), 0)
	if l := h.list(nvmespec.CNSAllocatedNamespaces, 0); len(l) != 0 {
		t.Fatalf("after deleting all: %v", l)
	}
	for i := range uint32(128) {
		if nsid := h.want(createBlocks(8, 0), 0); nsid != i+1 {
			t.Fatalf("namespace %d got number %d", i+1, nsid)
		}
	}
	h.want(createBlocks(8, 0), 0x4116)
	h.want(deleteCommand(77), 0)
	h.want(deleteCommand(3), 0)
	if nsid := h.want(createBlocks(8, 0), 0); nsid != 3 {
		t.Fatalf("the lowest free number is 3, not %d", nsid)
	}
	if l := h.list(nvmespec.CNSAllocatedNamespaces, 75); !slices.Equal(l[:3], []uint32{76, 78, 79}) {
		t.Fatalf("list after 75: %v", l)
	}
	if l := h.list(nvmespec.CNSActiveNamespaces, 0); len(l) != 0 {
		t.Fatalf("active without attachment: %v", l)
	}
	h.want(attachCommand(9, 1), 0)
	if l := h.list(nvmespec.CNSActiveNamespaces, 0); !slices.Equal(l, []uint32{9}) {
		t.Fatalf("active: %v", l)
	}
}

func TestDeleteRefused(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	h.want(deleteCommand(0), 0x400b)
	h.want(deleteCommand(129), 0x400b)
	h.want(deleteCommand(0x7777), 0x400b)
	h.want(deleteCommand(2), 0x4002)
	c := deleteCommand(1)
	c.CDW11 = 1 << 24
	h.want(c, 0x4002)
	if !h.namespace(1).Active() {
		t.Fatal("a refused delete deleted")
	}
}

// TestAttachment: NS-20, NS-25, NS-27, NS-74, NS-75.
func TestAttachment(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", func(_ *Profile, o *Options) { o.Controllers = 2 })
	h := host{t, d}
	second, err := d.OpenController(2)
	if err != nil {
		t.Fatal(err)
	}
	h2 := host{t, second}
	if a, b := h.controller(), h2.controller(); a.ControllerID != 1 || b.ControllerID != 2 || a.SubsystemNQN != b.SubsystemNQN ||
		a.SerialNumber != b.SerialNumber || a.MultiPath&nvmespec.MultiController == 0 {
		t.Fatalf("controllers %+v and %+v", a, b)
	}
	if c := h.controllers(nvmespec.CNSAttachedControllers, 1); !slices.Equal(c, []uint16{1, 2}) {
		t.Fatalf("delivered attached to %v", c)
	}
	h.want(deleteCommand(1), 0)
	create := func(shared bool) uint32 {
		return h.want(createCommand(nvmespec.NamespaceCreate{SizeBlocks: 1 << 20, CapacityBlocks: 1 << 20, Shared: shared}), 0)
	}
	private, shared := create(false), create(true)

	h.want(attachCommand(private), 0x411c)
	h.want(attachCommand(private, 7), 0x411c)
	h.want(attachCommand(private, 0), 0x411c)
	for _, list := range []string{"\x02\x00\x02\x00\x01\x00", "\x02\x00\x01\x00\x01\x00", "\xff\xff\x01\x00", "\x00\x08\x01\x00"} {
		c := attachCommand(shared, 1)
		copy(c.Data, list)
		h.want(c, 0x411c)
	}
	dirty := attachCommand(private, 1)
	dirty.Data[10] = 1
	h.want(dirty, 0x411c)
	h.want(attachCommand(0, 1), 0x400b)
	h.want(attachCommand(0xFFFFFFFF, 1), 0x400b)
	h.want(attachCommand(9, 1), 0x4002)
	bad := attachCommand(private, 1)
	bad.CDW10 = 2
	h.want(bad, 0x4002)
	short := attachCommand(private, 1)
	short.Data = short.Data[:2]
	h.want(short, 0x4004)

	h.want(detachCommand(private, 1), 0x411a)
	h.want(attachCommand(private, 1), 0)
	h.want(attachCommand(private, 1), 0x4118)
	h.want(attachCommand(private, 2), 0x4119)
	h.want(attachCommand(shared, 1), 0)
	h.want(attachCommand(shared, 1, 2), 0x4118) // one of two is enough to refuse
	if c := h.controllers(nvmespec.CNSAttachedControllers, shared); !slices.Equal(c, []uint16{1}) {
		t.Fatalf("a refused attach attached: %v", c)
	}
	h.want(attachCommand(shared, 2), 0)
	if !h2.namespace(shared).Active() || h2.namespace(private).Active() {
		t.Fatal("the second controller sees what is not its own")
	}
	h.want(detachCommand(shared, 1, 2), 0)
	if h2.namespace(shared).Active() {
		t.Fatal("detached and active")
	}
	if n := h2.allocatedNamespace(shared); n.SizeBlocks != 1<<20 {
		t.Fatalf("a detached namespace lost its size: %+v", n)
	}
	if _, err := d.OpenController(3); err == nil {
		t.Fatal("there is no controller 3")
	}
}

// TestNoManagement: NS-63.
func TestNoManagement(t *testing.T) {
	h := host{t, newTestDrive(t, "client-1tb", nil)}
	h.want(createBlocks(8, 0), 0x4001)
	h.want(deleteCommand(1), 0x4001)
	h.want(attachCommand(1, 0), 0x4001)
	for _, cns := range []uint32{0x10, 0x11, 0x12, 0x13, 0x16} {
		h.want(nvmeioctl.Command{Opcode: 0x06, NSID: 1, CDW10: cns, Data: make([]byte, 4096)}, 0x4002)
	}
	h.want(nvmeioctl.Command{Opcode: 0x06, NSID: 0xFFFFFFFF, Data: make([]byte, 4096)}, 0x400b)
}

func TestFormat(t *testing.T) {
	h := host{t, newTestDrive(t, "pblaze7-7940-7.68tb", nil)}
	before := h.namespace(1)
	for i, f := range h.namespace(1).Formats {
		h.want(formatDword(1, nvmespec.FormatFields{FormatIndex: f.Index}), 0)
		n := h.namespace(1)
		if n.FormatIndex != uint8(i) || n.SizeBytes() != before.SizeBytes() || n.NGUID != before.NGUID {
			t.Fatalf("format %d: %v bytes in format %d", i, n.SizeBytes(), n.FormatIndex)
		}
	}
	h.want(formatDword(1, nvmespec.FormatFields{FormatIndex: 3, MetadataExtended: true, Protection: nvmespec.Protection{Type: 1, First: true}, Erase: nvmespec.EraseCrypto}), 0)
	if n := h.namespace(1); !n.MetadataExtended || n.Protection != (nvmespec.Protection{Type: 1, First: true}) {
		t.Fatalf("format with protection: %+v", n)
	}
}

func TestFormatRefused(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	h.want(detachCommand(1, 1), 0)
	h.want(formatDword(1, nvmespec.FormatFields{}), 0x4002) // NS-43
	h.want(attachCommand(1, 1), 0)
	f := func(nsid, dword uint32) nvmeioctl.Command {
		return nvmeioctl.Command{Opcode: 0x80, NSID: nsid, CDW10: dword}
	}
	cases := []struct {
		cmd  nvmeioctl.Command
		want nvmespec.Status
	}{
		{f(1, 5), 0x410a},
		{f(1, 15), 0x410a},
		{f(1, 1<<12), 0x410a},
		{f(1, 1<<4), 0x410a},
		{f(1, 1<<5), 0x410a},
		{f(1, 3|4<<5), 0x410a},
		{f(1, 3<<9), 0x4002},
		{f(1, 7<<9), 0x4002},
		{f(1, 1<<14), 0x4002},
		{f(1, 1<<31), 0x4002},
		{f(0, 0), 0x400b},
		{f(129, 0), 0x400b},
		{f(2, 0), 0x4002},
	}
	for _, c := range cases {
		if got := h.raw(c.cmd).Status; got != c.want {
			t.Errorf("format of %d with %#x: %#x, want %#x", c.cmd.NSID, c.cmd.CDW10, uint16(got), uint16(c.want))
		}
	}
	if n := h.namespace(1); n.FormatIndex != 0 {
		t.Fatal("a refused format formatted")
	}
}

// TestFormatScope: FMT-11, FNA decides how far a format reaches.
func TestFormatScope(t *testing.T) {
	for _, c := range []struct {
		fna   uint8
		nsid  uint32
		erase nvmespec.EraseKind
		want  [3]uint8 // formats of 1, 2 and of 3, which is not attached
		s     nvmespec.Status
	}{
		{0, 1, 0, [3]uint8{1, 0, 0}, 0},
		{0, 0xFFFFFFFF, 0, [3]uint8{1, 1, 0}, 0},
		{fnaNoBroadcast, 0xFFFFFFFF, 0, [3]uint8{0, 0, 0}, 0x400b},
		{fnaFormatAll, 1, 0, [3]uint8{1, 1, 1}, 0},
		{fnaEraseAll, 1, 0, [3]uint8{1, 0, 0}, 0},
		{fnaEraseAll, 1, 1, [3]uint8{1, 1, 1}, 0},
		{0, 1, 2, [3]uint8{0, 0, 0}, 0x4002}, // FMT-17: no cryptographic erase
	} {
		d := newTestDrive(t, "pblaze7-7940-7.68tb", func(p *Profile, _ *Options) { p.FormatAttributes = c.fna })
		h := host{t, d}
		h.want(deleteCommand(1), 0)
		for range 3 {
			h.want(createBlocks(1<<20, 0), 0)
		}
		h.want(attachCommand(1, 1), 0)
		h.want(attachCommand(2, 1), 0)
		h.want(formatDword(c.nsid, nvmespec.FormatFields{FormatIndex: 1, Erase: c.erase}), c.s)
		for i, want := range c.want {
			if n := h.allocatedNamespace(uint32(i + 1)); n.FormatIndex != want {
				t.Errorf("FNA %#x, NSID %#x, SES %d: namespace %d has format %d", c.fna, c.nsid, c.erase, i+1, n.FormatIndex)
			}
		}
	}
}

// TestFormatProgress: FMT-01. Others see how much of a format remains, and may
// not touch the namespace meanwhile.
func TestFormatProgress(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	if n := h.namespace(1); n.FormatRemainingPercent != nvmespec.Some(uint8(0)) {
		t.Fatalf("idle: %v", n.FormatRemainingPercent)
	}
	var seen []uint8
	d.onStep = func() {
		hook := d.onStep
		d.onStep = nil
		defer func() { d.onStep = hook }()
		seen = append(seen, h.namespace(1).FormatRemainingPercent.Value)
		h.want(formatDword(1, nvmespec.FormatFields{}), 0x0084)
		h.want(deleteCommand(1), 0x0084)
		h.want(detachCommand(1, 1), 0x0084)
		h.want(nvmeioctl.Command{IO: true, Opcode: 2, NSID: 1, Data: make([]byte, 512)}, 0x0084)
	}
	start := d.Clock().Now()
	h.want(formatDword(1, nvmespec.FormatFields{FormatIndex: 1, Erase: nvmespec.EraseUserData}), 0)
	d.onStep = nil
	if len(seen) < 4 || !slices.IsSortedFunc(seen, func(a, b uint8) int { return int(b) - int(a) }) || seen[0] < 80 || seen[len(seen)-1] != 0 {
		t.Fatalf("progress: %v", seen)
	}
	if took := d.Clock().Now().Sub(start); took < time.Minute {
		t.Fatalf("erasing 7.68 TB took %s", took)
	}
	if n := h.namespace(1); n.FormatRemainingPercent != nvmespec.Some(uint8(0)) || n.FormatIndex != 1 {
		t.Fatalf("afterwards: %+v", n)
	}
}

// TestTimeout: FMT-02. A command that takes longer than its timeout ends in a
// controller reset, an unknown outcome and, as measured, no change.
func TestTimeout(t *testing.T) {
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	h := host{t, d}
	cmd := formatDword(1, nvmespec.FormatFields{FormatIndex: 1, Erase: nvmespec.EraseUserData})
	cmd.Timeout = 3 * time.Second
	start := d.Clock().Now()
	_, err := d.Submit(t.Context(), &cmd)
	if !errors.Is(err, nvmeioctl.ErrIndeterminate) {
		t.Fatalf("error is %v", err)
	}
	if took := d.Clock().Now().Sub(start); took != cmd.Timeout {
		t.Fatalf("it took %s", took)
	}
	if n := h.namespace(1); n.FormatIndex != 0 || n.FormatRemainingPercent.Value != 0 {
		t.Fatalf("after the time-out: %+v", n)
	}
	cmd.Timeout = 0
	if _, err := d.Submit(t.Context(), &cmd); err == nil {
		t.Fatal("a command without timeout was taken")
	}
}
