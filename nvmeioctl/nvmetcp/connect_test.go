package nvmetcp_test

import (
	"strings"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetcp"
)

// TestConnect_invalid: each parameter that cannot be, and how the host is told
// which it was.
func TestConnect_invalid(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	live := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	good := connecting{sqsize: 31, cntlid: 0xFFFF, sub: r.sub, host: testHost, hostID: 1}
	const inData = 1 << 16
	for _, c := range []struct {
		name   string
		change func(*connecting)
		entry  func([]byte)
		status uint16
		result uint64
	}{
		{name: "every controller is in use", change: func(*connecting) {}, status: 0x181},
		{name: "another subsystem", change: func(c *connecting) { c.sub = "nqn.2024-01.org.example:x" }, status: 0x4182, result: 256 | inData},
		{name: "no subsystem", change: func(c *connecting) { c.sub = "" }, status: 0x4182, result: 256 | inData},
		{name: "no host", change: func(c *connecting) { c.host = "" }, status: 0x4182, result: 512 | inData},
		{name: "a host's name without an end", change: func(c *connecting) { c.host = strings.Repeat("n", 256) }, status: 0x4182, result: 512 | inData},
		{name: "a static controller", change: func(c *connecting) { c.cntlid = 1 }, status: 0x4182, result: 16 | inData},
		{name: "a queue of one entry", change: func(c *connecting) { c.sqsize = 0 }, status: 0x4182, result: 44},
		{name: "a queue too large", change: func(c *connecting) { c.sqsize = 128 }, status: 0x4182, result: 44},
		{name: "a format unknown", change: func(*connecting) {}, entry: func(b []byte) { b[40] = 1 }, status: 0x4180},
		{name: "an I/O queue of nobody", change: func(c *connecting) { c.qid, c.cntlid = 1, 99 }, status: 0x4182, result: 16 | inData},
		{name: "an I/O queue of another host", change: func(c *connecting) { c.qid, c.cntlid, c.hostID = 2, live.cntlid, 7 }, status: 0x4184},
		{name: "an I/O queue that is there", change: func(c *connecting) { c.qid, c.cntlid = 1, live.cntlid }, status: 0x4182, result: 42},
		{name: "an I/O queue too many", change: func(c *connecting) { c.qid, c.cntlid = 17, live.cntlid }, status: 0x4182, result: 42},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := dial(r.addr, digestsOn{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = q.close() }()
			want := good
			c.change(&want)
			s := want.entry()
			if c.entry != nil {
				c.entry(s)
			}
			got, err := q.do(s, want.data(), nil, true)
			if err != nil || got.status != c.status || got.result != c.result {
				t.Errorf("status %#x, result %#x, %v; want %#x, %#x", got.status, got.result, err, c.status, c.result)
			}
			// Nothing but Connect is taken now.
			if _, status, err := q.property(0x1C, 4); err != nil || status != 0x400C {
				t.Errorf("a command before Connect: status %#x, %v", status, err)
			}
		})
	}
	// The live host has not noticed.
	mustSubmit(t, live, &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: make([]byte, 4096), Timeout: time.Minute})
}

// TestHosts_keepTheirControllers: who comes back finds the controller that it
// had, and with it what is attached to it.
func TestHosts_keepTheirControllers(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 3), nvmetcp.Limits{}, nil)
	name := func(c byte) string {
		return "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-0000000000" + string([]byte{c, c})
	}
	a := mustConnect(t, r.addr, r.sub, name('a'), digestsOn{})
	b := mustConnect(t, r.addr, r.sub, name('b'), digestsOn{})
	second := mustConnect(t, r.addr, r.sub, name('a'), digestsOn{})
	ids := []uint16{a.cntlid, b.cntlid, second.cntlid}
	if ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
		t.Fatalf("controllers %v", ids)
	}
	for _, dev := range []*remote{second, b, a} {
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.waitFor(t, nvmetcp.Stats{})
	b2 := mustConnect(t, r.addr, r.sub, name('b'), digestsOn{})
	if b2.cntlid != ids[1] {
		t.Errorf("host b had controller %d and comes back to %d", ids[1], b2.cntlid)
	}
	// A third host takes the place of one that is away.
	c := mustConnect(t, r.addr, r.sub, name('c'), digestsOn{})
	if c.cntlid == b2.cntlid {
		t.Errorf("host c has the controller of host b")
	}
}
