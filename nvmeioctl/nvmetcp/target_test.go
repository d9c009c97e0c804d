package nvmetcp_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetcp"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a target that serves over loopback.
type rig struct {
	target *nvmetcp.Target
	drive  *sim.Drive
	addr   string
	sub    string
	mu     sync.Mutex
	lines  []string
	gone   int
}

func (r *rig) log(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *rig) logged(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, part) {
			return true
		}
	}
	return false
}

// newDrive makes a small drive that keeps its contents.
func newDrive(t testing.TB, name string, controllers int) *sim.Drive {
	t.Helper()
	p, ok := sim.LookupProfile(name)
	if !ok {
		t.Fatalf("no profile %q", name)
	}
	d, err := sim.New(p, sim.Options{Scale: uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17)), Controllers: controllers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	return d
}

// serveDrive serves all controllers of a drive; wrap may put something around
// each.
func serveDrive(t testing.TB, d *sim.Drive, limits nvmetcp.Limits, wrap func(nvmeioctl.Device) nvmeioctl.Device) *rig {
	t.Helper()
	var devices []nvmeioctl.Device
	for id := d.Profile().FirstController; ; id++ {
		dev, err := d.OpenController(id)
		if err != nil {
			break
		}
		if wrap != nil {
			dev = wrap(dev)
		}
		devices = append(devices, dev)
	}
	r := serveDevices(t, limits, devices...)
	r.drive = d
	return r
}

func serveDevices(t testing.TB, limits nvmetcp.Limits, devices ...nvmeioctl.Device) *rig {
	t.Helper()
	r := &rig{}
	target, err := nvmetcp.New(t.Context(), nvmetcp.Config{
		Controllers: devices, Clock: nvmeioctl.NewSystemClock(), Log: r.log, Limits: limits,
		Gone: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- target.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if s := target.Stats(); s.Connections != 0 || s.Sessions != 0 {
			t.Errorf("after the end: %+v", s)
		}
	})
	r.target, r.addr, r.sub = target, ln.Addr().String(), target.SubsystemNQN()
	return r
}

func allDigests() []digestsOn {
	return []digestsOn{{}, {header: true}, {data: true}, {header: true, data: true}}
}

// TestConformance runs the suite on simulated drives across the network.
func TestConformance(t *testing.T) {
	for i, p := range sim.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			r := serveDrive(t, newDrive(t, p.Name, 1), nvmetcp.Limits{}, nil)
			nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
				dev, err := connectTo(r.addr, r.sub, testHost, allDigests()[i%4])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.waitFor(t, nvmetcp.Stats{}) })
				return dev
			}, nvmetest.Options{})
		})
	}
}

// waitFor waits until the target has as many connections and sessions.
func (r *rig) waitFor(t testing.TB, want nvmetcp.Stats) {
	t.Helper()
	for range 500 {
		got := r.target.Stats()
		if got.Connections == want.Connections && got.Sessions == want.Sessions {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("have %+v, want %+v", r.target.Stats(), want)
}

func ioCommand(op uint8, lba uint64, data []byte) *nvmeioctl.Command {
	return &nvmeioctl.Command{IO: true, Opcode: op, NSID: 1, CDW10: uint32(lba), CDW11: uint32(lba >> 32), CDW12: uint32(len(data)/512 - 1), Data: data, Timeout: time.Minute}
}

func mustSubmit(t testing.TB, dev nvmeioctl.Device, cmd *nvmeioctl.Command) nvmeioctl.Completion {
	t.Helper()
	c, err := dev.Submit(t.Context(), cmd)
	if err == nil {
		err = c.Err()
	}
	if err != nil {
		t.Fatalf("opcode %#x: %v", cmd.Opcode, err)
	}
	return c
}

func patterned(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>9)*31 ^ byte(i) ^ seed
	}
	return b
}

// TestData_everySizeAndDigest moves data in the capsule, by one PDU and by
// several, with every choice of digests.
func TestData_everySizeAndDigest(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	for i, d := range allDigests() {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			dev := mustConnect(t, r.addr, r.sub, testHost, d)
			for j, n := range []int{512, 4096, 8192, 8704, 128 << 10, 132 << 10, 512 << 10} {
				data, lba := patterned(n, byte(i*16+j)), uint64(j*2048)
				mustSubmit(t, dev, ioCommand(nvmespec.IOOpWrite, lba, data))
				got := make([]byte, n)
				mustSubmit(t, dev, ioCommand(nvmespec.IOOpRead, lba, got))
				if !bytes.Equal(got, data) {
					t.Errorf("%d bytes come back different", n)
				}
			}
			// More than the drive takes at once.
			c, err := dev.Submit(t.Context(), ioCommand(nvmespec.IOOpRead, 0, make([]byte, 1<<20)))
			if err != nil || c.Status.Code() != nvmespec.StatusInvalidField {
				t.Errorf("a transfer above the limit: %v, %v", c.Status, err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
			r.waitFor(t, nvmetcp.Stats{})
		})
	}
}

// TestData_fullQueue keeps a queue full with more data than fits in its memory.
func TestData_fullQueue(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{QueueDataBytes: 1 << 20}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	const size = 256 << 10
	var started []*pending
	for i := range 100 {
		s := entry(nvmespec.IOOpWrite, 1, 0x5A, size, uint32(i*size/512), 0, size/512-1)
		p, err := dev.io.start(s, patterned(size, byte(i)), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, p)
	}
	for i, p := range started {
		if c, err := dev.io.wait(p); err != nil || c.status != 0 {
			t.Fatalf("write %d: %+v, %v", i, c, err)
		}
	}
	got := make([]byte, size)
	for _, i := range []int{0, 57, 99} {
		mustSubmit(t, dev, ioCommand(nvmespec.IOOpRead, uint64(i*size/512), got))
		if !bytes.Equal(got, patterned(size, byte(i))) {
			t.Errorf("write %d is not what is read", i)
		}
	}
}

// TestIdentify_fabricsFields reads by offset what Linux insists on
// (drivers/nvme/host/core.c, nvme_init_identify and
// nvme_check_ctrl_fabric_info).
func TestIdentify_fabricsFields(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	page := make([]byte, 4096)
	mustSubmit(t, dev, &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: page, Timeout: time.Minute})
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"CNTLID", uint64(le.Uint16(page[78:])), uint64(dev.cntlid)},
		{"CNTRLTYPE", uint64(page[111]), 1},
		{"KAS", uint64(le.Uint16(page[320:])), 10},
		{"MAXCMD", uint64(le.Uint16(page[514:])), 128},
		{"SGLS", uint64(le.Uint32(page[536:])), 0x300001},
		{"IOCCSZ", uint64(le.Uint32(page[1792:])), 516},
		{"IORCSZ", uint64(le.Uint32(page[1796:])), 1},
		{"ICDOFF", uint64(le.Uint16(page[1800:])), 0},
		{"MSDBD", uint64(page[1803]), 1},
		{"MDTS", uint64(page[77]), 7},
		{"TNVMCAP", le.Uint64(page[280:]), 7681501126656},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
	}
	if got := string(bytes.TrimRight(page[768:1024], "\x00")); got != r.sub {
		t.Errorf("SUBNQN %q, want %q", got, r.sub)
	}
	effects := make([]byte, 4096)
	mustSubmit(t, dev, &nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 5 | 1023<<16, Data: effects, Timeout: time.Minute})
	if le.Uint32(effects[4*0x18:])&1 == 0 {
		t.Error("the effects log does not have Keep Alive")
	}
}

func TestProperties(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	for _, c := range []struct {
		offset uint32
		size   int
		want   uint64
		status uint16
	}{
		{0x00, 8, 127 | 1<<16 | 60<<24 | 1<<36 | 1<<37, 0},
		{0x08, 4, 0x00020000, 0},
		{0x14, 4, ccEnabled, 0},
		{0x1C, 4, 1, 0},
		{0x20, 4, 0, 0},
		{0x00, 4, 0, 0x4002},
		{0x24, 4, 0, 0x4002},
		{0xFFFFFFFC, 8, 0, 0x4002},
	} {
		v, status, err := dev.admin.property(c.offset, c.size)
		if err != nil || v != c.want || status != c.status {
			t.Errorf("property %#x of %d bytes: %#x, status %#x, %v; want %#x, %#x", c.offset, c.size, v, status, err, c.want, c.status)
		}
	}
	if status, err := dev.admin.setProperty(0x00, 1); err != nil || status != 0x4002 {
		t.Errorf("CAP can be written: status %#x, %v", status, err)
	}
	// A property command on an I/O queue is invalid.
	if _, status, err := dev.io.property(0x1C, 4); err != nil || status != 0x4002 {
		t.Errorf("property on an I/O queue: status %#x, %v", status, err)
	}
}

// TestEvents: a change through one controller is told to the host of the other,
// which reads the changed-namespace log.
func TestEvents(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 2), nvmetcp.Limits{}, nil)
	one := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	two := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	waiting, err := two.admin.start(entry(0x0C, 0, 0, 0), nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	mustSubmit(t, one, &nvmeioctl.Command{Opcode: 0x80, NSID: 1, Timeout: time.Minute})
	c, err := two.admin.wait(waiting)
	if err != nil || c.status != 0 || c.result != 2|0<<8|4<<16 {
		t.Fatalf("event %+v, %v", c, err)
	}
	log := make([]byte, 4096)
	mustSubmit(t, two, &nvmeioctl.Command{Opcode: 0x02, NSID: 0xFFFFFFFF, CDW10: 4 | 1023<<16, Data: log, Timeout: time.Minute})
	if le.Uint32(log) != 1 || le.Uint32(log[4:]) != 0 {
		t.Errorf("changed namespaces % x", log[:8])
	}
}

// TestAbort: an async event request is aborted; what is not there is not.
func TestAbort(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	s := entry(0x0C, 0, 0, 0)
	p, err := dev.admin.start(s, nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	abort := func(cid uint16) uint64 {
		c, err := dev.admin.do(entry(0x08, 0, 0, 0, uint32(cid)<<16), nil, nil, false)
		if err != nil || c.status != 0 {
			t.Fatalf("abort: %+v, %v", c, err)
		}
		return c.result
	}
	var result uint64 = 1
	for range 100 { // the request may not have been taken in yet
		if result = abort(le.Uint16(s[2:])); result == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if c, err := dev.admin.wait(p); result != 0 || err != nil || c.status != 0x007 {
		t.Errorf("result %d; the request ended with %+v, %v", result, c, err)
	}
	if abort(12345) != 1 {
		t.Error("a command that is not there was aborted")
	}
	// Four may wait; a fifth is one too many.
	for range 4 {
		if _, err := dev.admin.start(entry(0x0C, 0, 0, 0), nil, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if c, err := dev.admin.do(entry(0x0C, 0, 0, 0), nil, nil, false); err != nil || c.status != 0x4105 {
		t.Errorf("a fifth request: %+v, %v", c, err)
	}
}

// TestReset: disabling the controller resets the drive's, ends I/O queues and
// frees it for a new connection while the old one is still open.
func TestReset(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	set := &nvmeioctl.Command{Opcode: 0x09, CDW10: 0x04, CDW11: 300, Timeout: time.Minute}
	get := &nvmeioctl.Command{Opcode: 0x0A, CDW10: 0x04, Timeout: time.Minute}
	mustSubmit(t, dev, set)
	if _, err := dev.admin.start(entry(0x0C, 0, 0, 0), nil, nil, false); err != nil {
		t.Fatal(err)
	}
	if status, err := dev.admin.setProperty(0x14, ccEnabled&^1); err != nil || status != 0 {
		t.Fatalf("disable: %#x, %v", status, err)
	}
	if v, _, err := dev.admin.property(0x1C, 4); err != nil || v != 0 {
		t.Errorf("CSTS %#x, %v", v, err)
	}
	<-dev.io.over
	if c, err := dev.Submit(t.Context(), get); err != nil || c.Status.Code() != nvmespec.StatusSequence {
		t.Errorf("a command to a disabled controller: %v, %v", c.Status, err)
	}
	again := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if got := mustSubmit(t, again, get).Result; got == 300 {
		t.Error("the reset has not put the feature back")
	}
	// The old connection cannot have it back now.
	if status, err := dev.admin.setProperty(0x14, ccEnabled); err != nil || status != 0 {
		t.Fatalf("enable: %#x, %v", status, err)
	}
	if v, _, err := dev.admin.property(0x1C, 4); err != nil || v != 2 {
		t.Errorf("CSTS %#x, %v: the controller belongs to another connection", v, err)
	}
}

// TestReset_afterALostHost: a host that vanishes leaves a controller that is
// reset before the next one gets it.
func TestReset_afterALostHost(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	mustSubmit(t, dev, &nvmeioctl.Command{Opcode: 0x09, CDW10: 0x04, CDW11: 300, Timeout: time.Minute})
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, nvmetcp.Stats{})
	dev = mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if got := mustSubmit(t, dev, &nvmeioctl.Command{Opcode: 0x0A, CDW10: 0x04, Timeout: time.Minute}).Result; got == 300 {
		t.Error("a feature of the last host is still set")
	}
}

func TestShutdown_flushes(t *testing.T) {
	d := newDrive(t, "client-1tb", 1)
	r := serveDrive(t, d, nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	data := patterned(4096, 5)
	mustSubmit(t, dev, ioCommand(nvmespec.IOOpWrite, 0, data))
	if status, err := dev.admin.setProperty(0x14, ccEnabled|1<<14); err != nil || status != 0 {
		t.Fatal(status, err)
	}
	if v, _, err := dev.admin.property(0x1C, 4); err != nil || v>>2&3 != 2 {
		t.Errorf("CSTS %#x after a shutdown, %v", v, err)
	}
	if err := d.PowerCycle(false); err != nil {
		t.Fatal(err)
	}
	dev = mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	got := make([]byte, 4096)
	mustSubmit(t, dev, ioCommand(nvmespec.IOOpRead, 0, got))
	if !bytes.Equal(got, data) {
		t.Error("the shutdown has lost data")
	}
}

func TestSubsystemReset(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 2), nvmetcp.Limits{}, nil)
	one := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	two := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	_, _ = one.admin.setProperty(0x20, 0x4E564D65) // the answer may be lost with the connection
	for _, q := range []*queue{one.admin, one.io, two.admin, two.io} {
		<-q.over
	}
	r.waitFor(t, nvmetcp.Stats{})
}

func TestFeatures_ofTheTransport(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	admin, err := dial(r.addr, digestsOn{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.close() }()
	c, err := admin.connect(connecting{sqsize: 31, cntlid: 0xFFFF, sub: r.sub, host: testHost, kato: 30000})
	if err != nil || c.status != 0 {
		t.Fatal(c, err)
	}
	if err := admin.enable(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		opcode       uint8
		cdw10, cdw11 uint32
		status       uint16
		result       uint64
	}{
		{0x0A, 0x0F, 0, 0, 30000},
		{0x09, 0x0F, 60000, 0, 0},
		{0x0A, 0x0F, 0, 0, 60000},
		{0x0A, 0x0F | 3<<8, 0, 0, 4},
		{0x09, 0x0F | 1<<31, 0, 0x410D, 0},
		{0x09, 0x07, 3 | 5<<16, 0, 3 | 3<<16},
		{0x0A, 0x07, 0, 0, 3 | 3<<16},
		{0x09, 0x07, 0xFFFF, 0x4002, 0},
		{0x09, 0x07, 200 | 200<<16, 0, 15 | 15<<16},
		{0x18, 0, 0, 0, 0},
		{0x01, 0, 0, 0x4001, 0}, // Create I/O Submission Queue
	} {
		c, err := admin.do(entry(f.opcode, 0, 0, 0, f.cdw10, f.cdw11), nil, nil, false)
		if err != nil || c.status != f.status || c.result != f.result {
			t.Errorf("opcode %#x, %#x, %#x: %+v, %v", f.opcode, f.cdw10, f.cdw11, c, err)
		}
	}
}

func TestKeepAlive_expires(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, nil)
	q, err := dial(r.addr, digestsOn{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.close() }()
	if c, err := q.connect(connecting{sqsize: 31, cntlid: 0xFFFF, sub: r.sub, host: testHost, kato: 500}); err != nil || c.status != 0 {
		t.Fatal(c, err)
	}
	for range 6 { // 1.5 s; without, a host is dropped after 1 s
		time.Sleep(250 * time.Millisecond)
		if c, err := q.do(entry(0x18, 0, 0, 0), nil, nil, false); err != nil || c.status != 0 {
			t.Fatalf("keep-alive: %+v, %v", c, err)
		}
	}
	select {
	case <-q.over:
	case <-time.After(10 * time.Second):
		t.Fatal("a silent host is not dropped")
	}
	r.waitFor(t, nvmetcp.Stats{})
	if !r.logged("no keep-alive") {
		t.Errorf("the log does not say why: %q", r.lines)
	}
}

func TestDisconnect_endsTheQueue(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if c, err := dev.io.do(entry(0x7F, 8, 0, 0), nil, nil, false); err != nil || c.status != 0 {
		t.Fatalf("disconnect: %+v, %v", c, err)
	}
	<-dev.io.over
	r.waitFor(t, nvmetcp.Stats{Connections: 1, Sessions: 1})
	mustSubmit(t, dev, &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: make([]byte, 4096), Timeout: time.Minute})
}

func TestDiscovery(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{Idle: 300 * time.Millisecond}, nil)
	q, err := dial(r.addr, digestsOn{header: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.close() }()
	if c, err := q.connect(connecting{sqsize: 31, cntlid: 0xFFFF, sub: nvmetcp.DiscoveryNQN, host: testHost}); err != nil || c.status != 0 {
		t.Fatal(c, err)
	}
	if err := q.enable(); err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	if c, err := q.do(entry(0x06, 0, 0x5A, 4096, 1), nil, page, false); err != nil || c.status != 0 || page[111] != 2 {
		t.Errorf("identify: %+v, %v, type %d", c, err, page[111])
	}
	log := make([]byte, 2048)
	if c, err := q.do(entry(0x02, 0, 0x5A, 2048, 0x70|511<<16), nil, log, false); err != nil || c.status != 0 {
		t.Fatalf("log: %+v, %v", c, err)
	}
	host, port, _ := net.SplitHostPort(r.addr)
	e := log[1024:]
	text := func(b []byte) string { return strings.TrimRight(string(b), " \x00") }
	if le.Uint64(log[8:]) != 1 || e[0] != 3 || e[1] != 1 || e[2] != 2 || e[3] != 0 || le.Uint16(e[6:]) != 0xFFFF || le.Uint16(e[8:]) < 32 ||
		text(e[32:64]) != port || text(e[256:512]) != r.sub || text(e[512:768]) != host {
		t.Errorf("discovery entry % x", e[:600])
	}
	for _, c := range []struct {
		s      []byte
		status uint16
	}{
		{entry(0x02, 0, 0x5A, 4, 0x02), 0x4109},
		{entry(0x02, 0, 0x5A, 4, 0x70, 0, 4096), 0x4002},
		{entry(0x09, 0, 0, 0, 0x0B, 0), 0},
		{entry(0x09, 0, 0, 0, 0x04, 0), 0x4002},
		{entry(0x0D, 0, 0, 0), 0x4001},
		{entry(0x18, 0, 0, 0), 0},
	} {
		got, err := q.do(c.s, nil, make([]byte, 4096), false)
		if err != nil || got.status != c.status {
			t.Errorf("opcode %#x: %+v, %v; want %#x", c.s[0], got, err, c.status)
		}
	}
	<-q.over // idle
	r.waitFor(t, nvmetcp.Stats{})
}
