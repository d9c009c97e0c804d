package nvmetcp_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/fault"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetcp"
	"nvop/nvmeioctl/sim"
)

// A host gets the controller that it had when the drive is served again by
// another process, whatever the order in which hosts come back: what is attached
// to its controller is attached to it.
func TestHostKeeper_overRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drive.nvop")
	p, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	const controllers = 3
	scale := uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17))
	if err := sim.Create(path, p, sim.Options{Scale: scale, Controllers: controllers}); err != nil {
		t.Fatal(err)
	}
	host := func(i int) string { return fmt.Sprintf("%s%d", testHost[:len(testHost)-1], i) }
	had := map[int]uint16{}
	for round := range 3 {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			d, err := sim.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			r := serveDrive(t, d, nvmetcp.Limits{}, nil)
			for i := range controllers {
				n := (i + 2*round) % controllers
				dev := mustConnect(t, r.addr, r.sub, host(n), digestsOn{})
				if round == 0 {
					had[n] = dev.cntlid
				} else if dev.cntlid != had[n] {
					t.Errorf("host %d has controller %d now, it had %d", n, dev.cntlid, had[n])
				}
			}
		})
	}
}

// The host is told by CSTS that a firmware activation goes on.
func TestProcessingPaused(t *testing.T) {
	d := newDrive(t, "pblaze7-7940-7.68tb", 1)
	r := serveDrive(t, d, nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	plan, err := fault.Parse("activation 5s")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Arm(plan); err != nil {
		t.Fatal(err)
	}
	if v, _, err := dev.admin.property(0x1C, 4); err != nil || v != 1|1<<5 {
		t.Errorf("CSTS %#x, %v", v, err)
	}
	d.Clock().AdvanceTo(nvmeioctl.Instant(5 * time.Second))
	if v, _, err := dev.admin.property(0x1C, 4); err != nil || v != 1 {
		t.Errorf("CSTS %#x after the activation, %v", v, err)
	}
}

// A drive that hangs answers nothing until its host has reset it, and then works.
func TestHang_endsByTheHostsReset(t *testing.T) {
	d := newDrive(t, "pblaze7-7940-7.68tb", 1)
	d.ServeHosts(nvmeioctl.NewSystemClock())
	r := serveDrive(t, d, nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	plan, err := fault.Parse("before 2nd read hang")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Arm(plan); err != nil {
		t.Fatal(err)
	}
	read := &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpRead, NSID: 1, Data: make([]byte, 512), Timeout: time.Minute}
	if c, err := dev.Submit(t.Context(), read); err != nil || c.Status != 0 {
		t.Fatal(c, err)
	}
	// This one will never be answered.
	if _, err := dev.io.start(entry(nvmespec.IOOpRead, 1, 0x5A, 512, 0, 0, 0), nil, make([]byte, 512), false); err != nil {
		t.Fatal(err)
	}
	hangs := func() bool {
		_, wrong := d.Faults()
		return slices.Equal(wrong, []string{"hang"})
	}
	for range 3000 { // until it has arrived
		if hangs() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !hangs() {
		t.Fatal("the drive does not hang")
	}
	// The transport's own commands are answered.
	if _, _, err := dev.admin.property(0x1C, 4); err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, nvmetcp.Stats{})
	again := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if c, err := again.Submit(t.Context(), read); err != nil || c.Status != 0 {
		t.Errorf("after the reset: %v, %v", c.Status, err)
	}
	if hangs() {
		t.Error("it still hangs")
	}
}
