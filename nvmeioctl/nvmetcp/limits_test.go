package nvmetcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetcp"
)

// TestHosts_doNotDisturb: many hosts at once, some that do not read what they
// asked for; the others go on.
func TestHosts_doNotDisturb(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 4), nvmetcp.Limits{PDU: 500 * time.Millisecond}, nil)
	slow := mustConnect(t, r.addr, r.sub, testHost+"0", digestsOn{})
	// A raw queue that asks for 64 x 512 KiB and reads nothing.
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	raw := &queue{nc: nc}
	req := make([]byte, 128)
	req[2] = 128
	le.PutUint32(req[4:], 128)
	c := connecting{qid: 2, sqsize: 127, cntlid: slow.cntlid, sub: r.sub, host: testHost + "0", hostID: 1}
	if err := raw.write(append(req, raw.capsule(c.entry(), c.data())...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, 128+24)); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for i := range 64 {
		s := entry(nvmespec.IOOpRead, 1, 0x5A, 512<<10, 0, 0, 1023)
		le.PutUint16(s[2:], uint16(i+1))
		b = append(b, raw.capsule(s, nil)...)
	}
	if err := raw.write(b); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			dev, err := connectTo(r.addr, r.sub, fmt.Sprint(testHost, i+1), digestsOn{})
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = dev.Close() }()
			data := patterned(64<<10, byte(i))
			for j := range 50 {
				for _, cmd := range []*nvmeioctl.Command{
					ioCommand(nvmespec.IOOpWrite, uint64(i*100000+j*128), data),
					ioCommand(nvmespec.IOOpRead, uint64(i*100000+j*128), make([]byte, len(data))),
				} {
					c, err := dev.Submit(context.Background(), cmd)
					if err != nil || c.Status != 0 || !bytes.Equal(cmd.Data, data) {
						t.Errorf("host %d: %v, %v", i, c.Status, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("300 commands of other hosts took %v", time.Since(began))
	for range 1000 {
		if r.logged("does not take its answers") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !r.logged("does not take its answers") {
		t.Error("a host that does not read is not dropped")
	}
	// Its other queues live.
	mustSubmit(t, slow, &nvmeioctl.Command{Opcode: 0x06, CDW10: 1, Data: make([]byte, 4096), Timeout: time.Minute})
}

func TestLimits_connections(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{Connections: 2, Handshake: 200 * time.Millisecond}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if _, err := dial(r.addr, digestsOn{}); err == nil {
		t.Error("a connection beyond the limit was served")
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, nvmetcp.Stats{})
	// Idle ones are dropped, before and after the handshake.
	q, err := dial(r.addr, digestsOn{})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	<-q.over
	r.waitFor(t, nvmetcp.Stats{})
}

// failing is a device that fails as told.
type failing struct {
	nvmeioctl.Device
	mu  sync.Mutex
	err error
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return nvmeioctl.Completion{}, err
	}
	return f.Device.Submit(ctx, cmd)
}

func (f *failing) Unwrap() nvmeioctl.Device { return f.Device }

// TestDeviceErrors: what a device cannot do becomes a status; what it may or
// may not have done has no answer, and only that.
func TestDeviceErrors(t *testing.T) {
	dev := &failing{}
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, func(d nvmeioctl.Device) nvmeioctl.Device {
		dev.Device = d
		return dev
	})
	host := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	read := func() *pending {
		p, err := host.io.start(entry(nvmespec.IOOpRead, 1, 0x5A, 512), nil, make([]byte, 512), false)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		err    error
		status uint16
	}{
		{&nvmeioctl.RefusedError{Check: "grant", Subject: "x", Reason: "y"}, 0x4015},
		{errors.New("anything"), 0x006},
	} {
		dev.fail(c.err)
		if got, err := host.io.wait(read()); err != nil || got.status != c.status {
			t.Errorf("%v: %+v, %v; want %#x", c.err, got, err, c.status)
		}
	}
	dev.fail(fmt.Errorf("lost: %w", nvmeioctl.ErrIndeterminate))
	lost := read()
	time.Sleep(100 * time.Millisecond)
	dev.fail(nil)
	if c, err := host.io.wait(read()); err != nil || c.status != 0 {
		t.Errorf("after a lost command: %+v, %v", c, err)
	}
	select {
	case c := <-lost.done:
		t.Errorf("a command whose outcome is unknown was answered: %+v", c)
	default:
	}
	dev.fail(fmt.Errorf("cut: %w", nvmeioctl.ErrDeviceGone))
	read()
	for range 500 {
		r.mu.Lock()
		gone := r.gone
		r.mu.Unlock()
		if gone > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.target.SetOffline(true)
	<-host.io.over
	<-host.admin.over
	if _, err := dial(r.addr, digestsOn{}); err == nil {
		t.Error("an offline target takes connections")
	}
	dev.fail(nil)
	r.target.SetOffline(false)
	mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
}

func TestNew_refuses(t *testing.T) {
	d := newDrive(t, "client-1tb", 1)
	clock := nvmeioctl.NewSystemClock()
	for name, c := range map[string]nvmetcp.Config{
		"no controller":      {Clock: clock},
		"no clock":           {Controllers: []nvmeioctl.Device{d}},
		"a controller twice": {Clock: clock, Controllers: []nvmeioctl.Device{d, d}},
		"a bad name":         {Clock: clock, Controllers: []nvmeioctl.Device{d}, SubsystemNQN: "a\nb"},
		"discovery's name":   {Clock: clock, Controllers: []nvmeioctl.Device{d}, SubsystemNQN: nvmetcp.DiscoveryNQN},
		"too many queues":    {Clock: clock, Controllers: []nvmeioctl.Device{d}, Limits: nvmetcp.Limits{IOQueues: 129}},
		"tiny queues":        {Clock: clock, Controllers: []nvmeioctl.Device{d}, Limits: nvmetcp.Limits{QueueEntries: 2}},
		"no memory":          {Clock: clock, Controllers: []nvmeioctl.Device{d}, Limits: nvmetcp.Limits{QueueDataBytes: 4096}},
	} {
		if _, err := nvmetcp.New(t.Context(), c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestConnect_beforeTheOldOneEnds: a host that connects again before the end of
// its old connection has been seen gets the only controller as soon as it is
// free.
func TestConnect_beforeTheOldOneEnds(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, nil)
	old, err := connectTo(r.addr, r.sub, testHost, digestsOn{})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() {
		time.Sleep(200 * time.Millisecond)
		closed <- old.Close()
	}()
	mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestDrop_connectAtOnce: after Drop every controller is free.
func TestDrop_connectAtOnce(t *testing.T) {
	r := serveDrive(t, newDrive(t, "client-1tb", 1), nvmetcp.Limits{}, nil)
	mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	r.target.Drop()
	if s := r.target.Stats(); s.Sessions != 0 {
		t.Errorf("%d sessions after Drop", s.Sessions)
	}
	mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
}
