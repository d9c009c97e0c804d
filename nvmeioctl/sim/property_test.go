package sim

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// TestAnyOrder: whatever is created, deleted, attached, detached, formatted
// and reset, in whatever order, the drive keeps its promises.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"pblaze7-7940-7.68tb", "memblaze-p6531-3.84tb", "pe321-6.4tb"}).Draw(rt, "profile")
		d := newTestDrive(t, name, func(p *Profile, o *Options) {
			p.MaxNamespaces = min(p.MaxNamespaces, 4)
			o.Controllers = rapid.IntRange(1, 3).Draw(rt, "controllers")
			o.AllocationBytes = rapid.SampledFrom([]uint64{0, 4096, 1 << 30, 8 << 30}).Draw(rt, "unit")
		})
		m := &model{d: d, p: d.Profile(), ids: map[nvmespec.GUID]bool{}}
		m.check(rt)
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			before, events := d.st.clone(), d.st.Errors.Count
			done := m.step(rt)
			if done.Status.Code() != 0 && !slices.Equal(before.Namespaces, d.st.Namespaces) {
				rt.Fatalf("status %#x, but the namespaces changed", uint16(done.Status))
			}
			if failed := done.Status.Code() != 0; failed != (d.st.Errors.Count == events+1) {
				rt.Fatalf("status %#x, error count %d after %d", uint16(done.Status), d.st.Errors.Count, events)
			}
			m.check(rt)
		}
		m.checkSaved(rt)
	})
}

// model drives a drive and checks it from outside.
type model struct {
	d   *Drive
	p   Profile
	ids map[nvmespec.GUID]bool // seen on any namespace, ever
	was map[uint32]nvmespec.GUID
}

func (m *model) send(rt *rapid.T, c nvmeioctl.Command) nvmeioctl.Completion {
	c.Timeout = 24 * time.Hour
	done, err := m.d.Submit(context.Background(), &c)
	if err != nil {
		rt.Fatal(err)
	}
	return done
}

func (m *model) step(rt *rapid.T) nvmeioctl.Completion {
	nsid := rapid.SampledFrom([]uint32{0, 1, 2, 3, 4, 5, 0xFFFFFFFF}).Draw(rt, "nsid")
	cntlids := rapid.SliceOfN(rapid.Uint16Range(m.p.FirstController, m.p.FirstController+3), 0, 3).Draw(rt, "cntlids")
	format := rapid.Uint8Range(0, 5).Draw(rt, "format")
	switch rapid.IntRange(0, 5).Draw(rt, "op") {
	case 0, 1:
		blocks := rapid.OneOf(rapid.Uint64Range(0, 100), rapid.Uint64Range(1<<20, 1<<34), rapid.Uint64()).Draw(rt, "blocks")
		c := nvmespec.NamespaceCreate{SizeBlocks: blocks, CapacityBlocks: blocks, FormatIndex: format, Shared: rapid.Bool().Draw(rt, "shared")}
		return m.send(rt, createCommand(c))
	case 2:
		return m.send(rt, deleteCommand(nsid))
	case 3:
		return m.send(rt, attachCommand(nsid, cntlids...))
	case 4:
		return m.send(rt, detachCommand(nsid, cntlids...))
	}
	f := nvmespec.FormatFields{FormatIndex: format, Erase: nvmespec.EraseKind(rapid.Uint8Range(0, 3).Draw(rt, "erase"))}
	return m.send(rt, formatDword(nsid, f))
}

func (m *model) page(rt *rapid.T, cns nvmespec.CNS, nsid uint32) []byte {
	c := nvmeioctl.Command{Opcode: 0x06, NSID: nsid, CDW10: uint32(cns), Data: make([]byte, 4096)}
	if done := m.send(rt, c); done.Status != 0 {
		rt.Fatalf("identify %#x of %d: %#x", cns, nsid, uint16(done.Status))
	}
	return c.Data
}

// check holds the invariants against what the drive answers.
func (m *model) check(rt *rapid.T) {
	if err := m.d.st.validate(); err != nil {
		rt.Fatal(err)
	}
	c, err := nvmespec.DecodeController(m.page(rt, nvmespec.CNSController, 0))
	if err != nil {
		rt.Fatal(err)
	}
	all, err := nvmespec.DecodeNamespaceList(m.page(rt, nvmespec.CNSAllocatedNamespaces, 0))
	if err != nil {
		rt.Fatal(err) // not ascending
	}
	active, err := nvmespec.DecodeNamespaceList(m.page(rt, nvmespec.CNSActiveNamespaces, 0))
	if err != nil {
		rt.Fatal(err)
	}
	sum := c.UnallocatedCapacityBytes
	now := map[uint32]nvmespec.GUID{}
	for _, nsid := range all {
		n, err := nvmespec.DecodeNamespace(m.page(rt, nvmespec.CNSAllocatedNamespace, nsid))
		if err != nil {
			rt.Fatal(err)
		}
		sum = sum.Add(n.NVMCapacityBytes)
		if n.NVMCapacityBytes.Cmp(n.SizeBytes()) < 0 || !n.Active() {
			rt.Fatalf("namespace %d: %v of %v allocated", nsid, n.SizeBytes(), n.NVMCapacityBytes)
		}
		now[nsid] = n.NGUID
		if m.was[nsid] != n.NGUID && m.ids[n.NGUID] {
			rt.Fatalf("namespace %d has the identifier of another", nsid)
		}
		m.ids[n.NGUID] = true
		attached, err := nvmespec.DecodeControllerList(m.page(rt, nvmespec.CNSAttachedControllers, nsid))
		if err != nil {
			rt.Fatal(err)
		}
		if slices.Contains(attached, c.ControllerID) != slices.Contains(active, nsid) {
			rt.Fatalf("namespace %d: attached to %v, active %v", nsid, attached, active)
		}
		if !n.Shared && len(attached) > 1 {
			rt.Fatalf("private namespace %d is attached to %v", nsid, attached)
		}
	}
	m.was = now
	if sum != c.TotalCapacityBytes {
		rt.Fatalf("namespaces and unallocated are %v of %v", sum, c.TotalCapacityBytes)
	}
	if len(m.d.media.counters().MappedBytes) != len(all) {
		rt.Fatal("the flash has other namespaces than the controller")
	}
}

// checkSaved: saving and opening is the identity, to the byte.
func (m *model) checkSaved(rt *rapid.T) {
	b, err := m.d.encode()
	if err != nil {
		rt.Fatal(err)
	}
	again, err := openDrive("x", b)
	if err != nil {
		rt.Fatal(err)
	}
	b2, err := again.encode()
	if err != nil {
		rt.Fatal(err)
	}
	if !bytes.Equal(b, b2) {
		rt.Fatal("saving what was opened gives other bytes")
	}
}

// FuzzSubmit: no command makes a drive panic or break its promises.
func FuzzSubmit(f *testing.F) {
	for _, a := range adminCommands() {
		f.Add(a.opcode, false, uint32(1), uint32(0), uint32(1), uint32(0), uint32(0), []byte{1, 0, 1, 0})
	}
	for _, c := range ioCommands() {
		f.Add(c.opcode, true, uint32(1), uint32(0), uint32(0), uint32(0), uint32(0), make([]byte, 64))
	}
	create := nvmespec.NamespaceCreate{SizeBlocks: 8, CapacityBlocks: 8}.Append(nil)
	f.Add(uint8(0x0D), false, uint32(0), uint32(0), uint32(0), uint32(0), uint32(0), create[:512])
	f.Add(uint8(0x80), false, uint32(1), uint32(0), uint32(0x203), uint32(0), uint32(0), []byte{})
	f.Add(uint8(0x02), false, uint32(0xFFFFFFFF), uint32(0), uint32(127<<16|2), uint32(0), uint32(0), make([]byte, 512))
	p := profile(f, "pblaze7-7940-7.68tb")
	f.Fuzz(func(t *testing.T, opcode uint8, io bool, nsid, cdw2, cdw10, cdw11, cdw12 uint32, data []byte) {
		st, err := newState(p, Options{Controllers: 2})
		if err != nil {
			t.Fatal(err)
		}
		d := bareDrive(st)
		buf := make([]byte, 4096)
		copy(buf, data)
		if len(data)%2 == 1 {
			buf = buf[:min(len(data), 4096)]
		}
		cmd := nvmeioctl.Command{IO: io, Opcode: opcode, NSID: nsid, CDW2: cdw2, CDW10: cdw10, CDW11: cdw11, CDW12: cdw12, Data: buf, Timeout: 24 * time.Hour}
		done, err := d.Submit(t.Context(), &cmd)
		if err != nil {
			t.Fatal(err)
		}
		if done.Status != 0 && done.Status.Code() == 0 {
			t.Fatalf("status %#x is success with flags", uint16(done.Status))
		}
		if done.Status.Code() == nvmespec.StatusInternal {
			t.Fatal("internal error")
		}
		if err := d.st.validate(); err != nil {
			t.Fatal(err)
		}
		if b, err := d.encode(); err != nil {
			t.Fatal(err)
		} else if st2, _, err := decodeState(b); err != nil || !equalStates(t, d.st, st2) {
			t.Fatalf("after opcode %#x the state does not come back: %v", opcode, err)
		}
	})
}

// FuzzDecodeState: no file makes decoding panic, and what is accepted is whole.
func FuzzDecodeState(f *testing.F) {
	st, err := newState(profile(f, "client-1tb"), Options{})
	if err != nil {
		f.Fatal(err)
	}
	b, err := encodeState(st, []byte("flash"))
	if err != nil {
		f.Fatal(err)
	}
	sections, err := splitState(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, false)
	f.Add(b[:60], false)
	f.Add(sections[sectionAdmin], true)
	f.Add([]byte(`{"profile":{}}`), true)
	f.Fuzz(func(t *testing.T, b []byte, admin bool) {
		var st *state
		var err error
		if admin {
			// The admin section alone: checksums keep a fuzzer out of it.
			st, err = decodeAdmin(b)
		} else {
			st, _, err = decodeState(b)
		}
		if err != nil {
			return
		}
		again, err := encodeState(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		if st2, _, err := decodeState(again); err != nil || !equalStates(t, st, st2) {
			t.Fatalf("a state that was read is not read again: %v", err)
		}
		h := host{t, bareDrive(st)}
		h.controller()
		h.raw(nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 2 | 127<<16, Data: make([]byte, 512)})
	})
}

// bareDrive is a drive without flash, cheap to make.
func bareDrive(st *state) *Drive {
	d := &Drive{name: "bare", st: st, clock: nvmeioctl.NewVirtualClock(st.Options.Start), media: idleMedia{},
		formatting: map[uint32]progress{}, wake: make(chan struct{})}
	d.clock.AdvanceTo(nvmeioctl.Instant(st.NowNS))
	return d
}

// idleMedia is media without flash.
type idleMedia struct{}

func (idleMedia) counters() mediaCounters                                { return mediaCounters{SpareRatio: 1, Kelvin: 300} }
func (idleMedia) namespaceCreated(uint32, uint64)                        {}
func (idleMedia) namespaceDeleted(uint32)                                {}
func (idleMedia) namespaceFormatted(uint32, uint64, bool)                {}
func (idleMedia) powerLimited(uint32, uint32)                            {}
func (idleMedia) access(mediaOp, uint32, uint64, uint64) nvmespec.Status { return 0 }
func (idleMedia) MarshalBinary() ([]byte, error)                         { return nil, nil }
func (idleMedia) UnmarshalBinary([]byte) error                           { return nil }
