package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// DiscoveryNQN is the well-known name of every discovery subsystem.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// Limits bound what hosts can take. A field that is 0 has its default.
type Limits struct {
	// Connections is how many TCP connections are served at a time; more are
	// closed at once. Default 256.
	Connections int
	// IOQueues is how many I/O queues a controller has, 1 to 128. Default 16.
	IOQueues int
	// QueueEntries is the largest submission queue, 16 to 1024. Default 128.
	QueueEntries int
	// QueueDataBytes is how much command data a queue may have in memory; more
	// commands wait. At least the largest transfer. Default 4 MiB. All hosts
	// together can take Connections times this.
	QueueDataBytes int
	// Handshake is how long a connection may take until its Connect command
	// has come. Default 10 s.
	Handshake time.Duration
	// PDU is how long a PDU that has begun may take to arrive, and how long a
	// host may take to accept one that is written to it. Default 20 s.
	PDU time.Duration
	// Idle is how long a discovery controller without keep-alive may be idle.
	// Default 2 min.
	Idle time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	after := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Connections, 256)
	def(&l.IOQueues, 16)
	def(&l.QueueEntries, 128)
	def(&l.QueueDataBytes, 4<<20)
	after(&l.Handshake, 10*time.Second)
	after(&l.PDU, 20*time.Second)
	after(&l.Idle, 2*time.Minute)
	return l
}

func (l Limits) validate() error {
	switch {
	case l.Connections < 1:
		return fmt.Errorf("limit of connections: %d is less than 1", l.Connections)
	case l.IOQueues < 1 || l.IOQueues > 128:
		return fmt.Errorf("limit of I/O queues: %d is not 1 to 128", l.IOQueues)
	case l.QueueEntries < 16 || l.QueueEntries > 1024:
		return fmt.Errorf("limit of queue entries: %d is not 16 to 1024", l.QueueEntries)
	case l.QueueDataBytes < maxTransferCap:
		return fmt.Errorf("limit of data in a queue: %d bytes is less than one transfer (%d)", l.QueueDataBytes, maxTransferCap)
	case l.Handshake < 0 || l.PDU < 0 || l.Idle < 0:
		return errors.New("limit of time: negative")
	}
	return nil
}

const (
	// maxTransferCap is the largest transfer whatever the device allows; a
	// device with more, or without a limit, is given this one.
	maxTransferCap = 1 << 20
	// inCapsuleMax is how much data a command capsule may carry: what Linux
	// assumes of admin queues, and announces for I/O queues as IOCCSZ.
	inCapsuleMax = 8 << 10
	// hostDataMax is the most data of one H2CData PDU (MAXH2CDATA).
	hostDataMax = 128 << 10
	// connectPatience is how long a Connect waits for a controller.
	connectPatience = 2 * time.Second
)

// Config is what a target serves.
type Config struct {
	// SubsystemNQN names the subsystem to hosts; empty takes the name that the
	// first controller reports.
	SubsystemNQN string
	// Controllers are the subsystem's controllers, at least one, in the order
	// in which hosts get them. Each host keeps its controller, so that what is
	// attached to it stays attached: as long as the target lives, or for good
	// where the controller is a [HostKeeper].
	Controllers []nvmeioctl.Device
	// Clock tells deadlines; it must be the machine's.
	Clock nvmeioctl.Clock
	// Log is told what happens to hosts, one line a call, without a line end;
	// nil for nobody. It may be called from several goroutines.
	Log func(line string)
	// Gone is called when a device has said that it is gone
	// (nvmeioctl.ErrDeviceGone): all hosts have lost it. It may be called more
	// than once, and must not wait for the target. Nil for nobody.
	Gone   func()
	Limits Limits
}

// HostKeeper is a controller that remembers which host had it, beyond the life of
// a target.
type HostKeeper interface {
	LastHost() (nqn string, id [16]byte, ok bool)
	RememberHost(nqn string, id [16]byte) error
}

// Target is an NVM subsystem on the network. It is safe for concurrent use.
type Target struct {
	cfg    Config
	limits Limits

	mu       sync.Mutex
	slots    []*slot
	sessions map[uint16]*session // by CNTLID
	conns    map[*conn]struct{}
	offline  bool
	nextID   uint16 // of discovery controllers
	clockNo  uint64 // counts connects, to find the slot unused for longest
	// freed is closed, and made anew, when a controller has lost its host.
	freed chan struct{}

	// commands and pdus count what hosts have sent that was well formed.
	commands, pdus atomic.Uint64
}

// New makes a target. It identifies the controllers.
func New(ctx context.Context, cfg Config) (*Target, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	if err := cfg.Limits.validate(); err != nil {
		return nil, fmt.Errorf("nvme/tcp target: %w", err)
	}
	if len(cfg.Controllers) == 0 || cfg.Clock == nil {
		return nil, errors.New("nvme/tcp target: it needs a controller and a clock")
	}
	t := &Target{
		cfg: cfg, limits: cfg.Limits, nextID: firstDiscoveryID,
		sessions: map[uint16]*session{}, conns: map[*conn]struct{}{}, freed: make(chan struct{}),
	}
	for _, dev := range cfg.Controllers {
		s, err := newSlot(ctx, dev)
		if err != nil {
			return nil, fmt.Errorf("nvme/tcp target: %w", err)
		}
		for _, other := range t.slots {
			if other.id == s.id {
				return nil, fmt.Errorf("nvme/tcp target: two controllers have CNTLID %d", s.id)
			}
		}
		t.slots = append(t.slots, s)
	}
	if t.cfg.SubsystemNQN == "" {
		t.cfg.SubsystemNQN = t.slots[0].nqn
	}
	if _, ok := decodeNQN(append([]byte(t.cfg.SubsystemNQN), 0)); !ok || t.cfg.SubsystemNQN == DiscoveryNQN {
		return nil, fmt.Errorf("nvme/tcp target: %q cannot be the name of a subsystem", t.cfg.SubsystemNQN)
	}
	return t, nil
}

// SubsystemNQN is the name by which hosts connect.
func (t *Target) SubsystemNQN() string { return t.cfg.SubsystemNQN }

// Serve accepts connections until ctx is done, then drops all hosts, waits for
// what they had running and returns nil. It closes the listener. An error means
// that no connection can be accepted any more.
func (t *Target) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var failed error
	for {
		nc, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = nc.Close()
			}
			break
		}
		if err != nil {
			if temporary(err) {
				_ = t.cfg.Clock.Sleep(ctx, 50*time.Millisecond)
				continue
			}
			failed = fmt.Errorf("nvme/tcp target: accept: %w", err)
			_ = ln.Close()
			break
		}
		c := t.admit(ctx, nc)
		if c == nil {
			_ = nc.Close()
			continue
		}
		wg.Go(c.run)
	}
	cancel()
	t.Drop()
	wg.Wait()
	return failed
}

// temporary says that accepting may work again: descriptors ran out, or a host
// gave up before it was accepted.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// admit registers a connection, unless there are too many.
func (t *Target) admit(ctx context.Context, nc net.Conn) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offline || len(t.conns) >= t.limits.Connections {
		return nil
	}
	c := newConn(ctx, t, nc)
	t.conns[c] = struct{}{}
	return c
}

func (t *Target) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Drop ends every connection, as a power cut of the drive does. Hosts may
// connect again at once.
func (t *Target) Drop() {
	t.mu.Lock()
	var all []*conn
	for c := range t.conns {
		all = append(all, c)
	}
	var sessions []*session
	for _, s := range t.sessions {
		sessions = append(sessions, s)
	}
	t.mu.Unlock()
	for _, s := range sessions {
		s.end()
	}
	for _, c := range all {
		c.cancel()
	}
}

// SetOffline drops all hosts and turns new ones away until it is called with
// false.
func (t *Target) SetOffline(offline bool) {
	t.mu.Lock()
	t.offline = offline
	t.mu.Unlock()
	if offline {
		t.Drop()
	}
}

// Stats are what a target has at the moment.
type Stats struct {
	Connections int
	// Sessions are hosts that have a controller, discovery included.
	Sessions int
	// Commands of hosts that were carried out since the target was made.
	Commands uint64
}

// Stats counts.
func (t *Target) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Connections: len(t.conns), Sessions: len(t.sessions), Commands: t.commands.Load()}
}

func (t *Target) log(format string, args ...any) {
	if t.cfg.Log != nil {
		t.cfg.Log(fmt.Sprintf(format, args...))
	}
}

// slot is one of the subsystem's controllers.
type slot struct {
	id  uint16
	dev nvmeioctl.Device
	nqn string
	// maxTransfer bounds a command's data, in bytes.
	maxTransfer uint32
	version     uint32
	aerLimit    int

	// With the target's lock held:
	owner    hostKey // the host that has had it last
	owned    bool
	session  *session
	lastUsed uint64
	// dirty says that the last session ended without a reset, so that the
	// next must begin with one.
	dirty bool
}

// hostKey is what makes two hosts the same.
type hostKey struct {
	nqn string
	id  [16]byte
}

// Offsets in Identify Controller (NVMe Base 2.x) of what a target must know
// or change.
const (
	offMDTS      = 77
	offCNTLID    = 78
	offVER       = 80
	offCTRATT    = 96
	offCNTRLTYPE = 111
	offLPA       = 261
	offAERL      = 259
	offKAS       = 320
	offMAXCMD    = 514
	offSGLS      = 536
	offSUBNQN    = 768
	offIOCCSZ    = 1792
	offIORCSZ    = 1796
	offICDOFF    = 1800
	offFCATT     = 1802
	offMSDBD     = 1803
	offOFCS      = 1804

	identifyBytes = 4096
)

func newSlot(ctx context.Context, dev nvmeioctl.Device) (*slot, error) {
	page := make([]byte, identifyBytes)
	cmd := &nvmeioctl.Command{Opcode: nvmespec.AdminIdentify, CDW10: uint32(nvmespec.CNSController), Data: page, Timeout: commandTimeout}
	done, err := dev.Submit(ctx, cmd)
	if err == nil {
		err = done.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: identify controller: %w", dev, err)
	}
	c, err := nvmespec.DecodeController(page)
	if err != nil {
		return nil, fmt.Errorf("%s: identify controller: %w", dev, err)
	}
	s := &slot{
		id: c.ControllerID, dev: dev, nqn: c.SubsystemNQN, version: uint32(c.Version),
		aerLimit: int(page[offAERL]) + 1, maxTransfer: maxTransferCap,
	}
	if c.MaxTransferBytes != 0 {
		s.maxTransfer = uint32(min(c.MaxTransferBytes, maxTransferCap))
	}
	if k, ok := nvmeioctl.As[HostKeeper](dev); ok {
		s.owner.nqn, s.owner.id, s.owned = k.LastHost()
	}
	return s, nil
}

// commandTimeout is given to commands of hosts, which have time-outs of their
// own: a device that counts time must not give up before the host does.
const commandTimeout = 24 * time.Hour
