package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// Controller properties (NVMe Base 2.x, "Controller Properties"), by offset.
const (
	propCAP  = 0x00
	propVS   = 0x08
	propCC   = 0x14
	propCSTS = 0x1C
	propNSSR = 0x20

	// nssrMagic written to NSSR resets the subsystem: "NVMe".
	nssrMagic = 0x4E564D65
)

// Fields of CC and CSTS.
const (
	ccEnable     = 1 << 0
	ccFixed      = 0x00F0_3FF0 // CSS, MPS, AMS, and the sizes of queue entries
	ccFixedValue = 6<<16 | 4<<20
	ccSizes      = 0x00FF_0000
	ccShutdown   = 3 << 14

	cstsReady        = 1 << 0
	cstsFatal        = 1 << 1
	cstsShutdownDone = 2 << 2
	cstsPaused       = 1 << 5
)

// session is a host that has a controller: the association of NVMe over
// Fabrics. It begins with an admin queue's Connect and ends with that queue's
// connection.
type session struct {
	t      *Target
	slot   *slot // nil for a discovery controller
	id     uint16
	host   hostKey
	admin  *conn
	ctx    context.Context
	cancel context.CancelFunc

	// ccMu holds back a second write of CC while one is carried out.
	ccMu sync.Mutex

	mu     sync.Mutex
	cc     uint32
	csts   uint32
	kato   time.Duration
	expiry *time.Timer
	ended  bool
	// ioQueues is how many there may be; Set Features can lower it.
	ioQueues int
	queues   map[uint16]*conn // I/O queues by number
	events   []*command       // outstanding async event requests, oldest first
	// eventAsked wakes who delivers events when a request has come.
	eventAsked chan struct{}
	// stopEvents ends the delivery of events when the controller is disabled.
	stopEvents context.CancelFunc
}

// newSession is a session that no host can see yet.
func newSession(t *Target, sl *slot, id uint16, host hostKey, c *conn) *session {
	s := &session{
		t: t, slot: sl, id: id, host: host, admin: c, ioQueues: t.limits.IOQueues,
		queues: map[uint16]*conn{}, eventAsked: make(chan struct{}, 1), stopEvents: func() {},
	}
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	return s
}

// String names the session for the log.
func (s *session) String() string {
	if s.slot == nil {
		return "discovery " + s.host.nqn
	}
	return fmt.Sprintf("controller %d, host %s", s.id, s.host.nqn)
}

// keepAlive is the keep-alive time-out, 0 if there is none.
func (s *session) keepAlive() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kato
}

// setKeepAlive starts the keep-alive timer anew with another time-out. The
// timer is lenient: it runs twice as long as the host has been promised, since
// hosts send about once a time-out and may be slow.
func (s *session) setKeepAlive(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	s.kato = timeout
	if timeout > 0 && !s.ended {
		s.expiry = time.AfterFunc(2*timeout, func() {
			s.t.log("%s: no keep-alive for %s: dropped", s, 2*timeout)
			s.end()
		})
	}
}

// alive says that the host has been heard of.
func (s *session) alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry != nil && !s.ended {
		s.expiry.Reset(2 * s.kato)
	}
}

// queueEnded says that a queue's connection is over.
func (s *session) queueEnded(c *conn) {
	if c == s.admin {
		s.end()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[c.qid] == c {
		delete(s.queues, c.qid)
	}
}

// end ends the session and all its connections. The controller is free for
// another host.
func (s *session) end() {
	s.mu.Lock()
	ended := s.ended
	s.ended = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	enabled := s.cc&ccEnable != 0
	conns := []*conn{s.admin}
	for _, c := range s.queues {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	if ended {
		return
	}
	s.free(enabled)
	s.cancel()
	for _, c := range conns {
		c.cancel()
	}
	s.t.log("%s: disconnected", s)
}

// free gives the controller back. dirty says that it has not been reset.
func (s *session) free(dirty bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.sessions[s.id] == s {
		delete(s.t.sessions, s.id)
	}
	if s.slot != nil && s.slot.session == s {
		s.slot.session = nil
		s.slot.dirty = dirty
		close(s.t.freed)
		s.t.freed = make(chan struct{})
	}
}

// ready says that the controller is enabled.
func (s *session) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.csts&cstsReady != 0
}

// property reads a property of size bytes, 4 or 8.
func (s *session) property(offset uint32, size int) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case offset == propCAP && size == 8:
		return s.capabilities(), true
	case offset == propVS && size == 4:
		if s.slot == nil {
			return discoveryVersion, true
		}
		return uint64(s.slot.version), true
	case offset == propCC && size == 4:
		return uint64(s.cc), true
	case offset == propCSTS && size == 4:
		return uint64(s.csts) | s.paused(), true
	case offset == propNSSR && size == 4 && s.resetter() != nil:
		return 0, true
	}
	return 0, false
}

// paused is CSTS.PP, processing paused, for a device that tells: a firmware
// activation without reset goes on.
func (s *session) paused() uint64 {
	if s.slot == nil {
		return 0
	}
	type pauser interface{ ProcessingPaused() bool }
	if p, ok := nvmeioctl.As[pauser](s.slot.dev); ok && p.ProcessingPaused() {
		return cstsPaused
	}
	return 0
}

// capabilities is CAP: queues must be contiguous, the controller is ready
// within 30 s, it has the NVM command set and pages of 4 KiB.
func (s *session) capabilities() uint64 {
	const (
		contiguous     = 1 << 16
		readyIn30s     = 60 << 24
		subsystemReset = 1 << 36
		commandSetNVM  = 1 << 37
	)
	v := uint64(s.t.limits.QueueEntries-1) | contiguous | readyIn30s | commandSetNVM
	if s.resetter() != nil {
		v |= subsystemReset
	}
	return v
}

// resetter is what resets the device, nil if nothing does.
func (s *session) resetter() nvmeioctl.Resetter {
	if s.slot == nil {
		return nil
	}
	r, ok := nvmeioctl.As[nvmeioctl.Resetter](s.slot.dev)
	if !ok {
		return nil
	}
	return r
}

// setProperty writes a property and says whether there is one to write.
func (s *session) setProperty(offset uint32, size int, value uint64) nvmespec.Status {
	switch {
	case offset == propCC && size == 4:
		return s.setCC(uint32(value))
	case offset == propNSSR && size == 4 && s.resetter() != nil:
		if value == nssrMagic {
			s.resetSubsystem()
		}
		return nvmespec.StatusSuccess
	}
	return nvmespec.StatusInvalidField | nvmespec.StatusDNR
}

// setCC enables, disables or shuts down the controller. Disabling it is a
// controller reset.
func (s *session) setCC(v uint32) nvmespec.Status {
	s.ccMu.Lock()
	defer s.ccMu.Unlock()
	s.mu.Lock()
	was := s.cc
	s.cc = v
	s.mu.Unlock()
	switch {
	case v&ccEnable != 0 && was&ccEnable == 0:
		s.enable(v)
	case v&ccEnable == 0 && was&ccEnable != 0:
		if !s.disable() {
			return nvmespec.StatusInternal
		}
	}
	if v&ccShutdown != 0 && was&ccShutdown == 0 {
		s.shutDown()
	}
	return nvmespec.StatusSuccess
}

func (s *session) enable(cc uint32) {
	mine := s.reclaim()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !mine {
		s.csts = cstsFatal
		return
	}
	if sizes := cc & ccSizes; sizes != ccFixedValue && (s.slot != nil || sizes != 0) || cc&ccFixed&^ccSizes != 0 {
		s.csts = cstsFatal
		s.t.log("%s: enabled with a configuration that cannot be: CC %#08x", s, cc)
		return
	}
	s.csts = cstsReady
	if s.slot == nil {
		return
	}
	source, ok := nvmeioctl.As[nvmeioctl.EventSource](s.slot.dev)
	if !ok || s.ended {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.stopEvents = cancel
	s.admin.wg.Go(func() { s.deliver(ctx, source) })
}

// disable is a controller reset as the host sees it: what is outstanding is
// forgotten, I/O queues end, and the controller is free for a new association.
func (s *session) disable() bool {
	s.mu.Lock()
	s.stopEvents()
	forgotten := s.events
	s.events = nil
	var conns []*conn
	for _, c := range s.queues {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, cmd := range forgotten {
		s.admin.drop(cmd)
	}
	for _, c := range conns {
		c.cancel()
	}
	ok := true
	if r := s.resetter(); r != nil && s.reclaim() {
		if err := r.ResetController(s.ctx); err != nil {
			s.deviceFailed("reset", err)
			ok = false
		}
	}
	s.mu.Lock()
	s.csts &^= cstsReady
	s.mu.Unlock()
	// Hosts connect anew after this, often before the old connection's end
	// has been seen here.
	s.free(!ok)
	return ok
}

// reclaim gets back the controller that a reset has freed, and says whether it
// is this host's.
func (s *session) reclaim() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.slot == nil {
		return true
	}
	if s.slot.session == nil {
		s.slot.session, s.slot.owner, s.slot.owned = s, s.host, true
		s.t.sessions[s.id] = s
	}
	return s.slot.session == s
}

// shutDown prepares the device for the power to go: what is in its cache goes
// to the medium.
func (s *session) shutDown() {
	if s.slot != nil {
		cmd := &nvmeioctl.Command{IO: true, Opcode: nvmespec.IOOpFlush, NSID: nvmespec.BroadcastNSID, Timeout: commandTimeout}
		if _, err := s.slot.dev.Submit(s.ctx, cmd); err != nil {
			s.deviceFailed("shut down", err)
		}
	}
	s.mu.Lock()
	s.csts |= cstsShutdownDone
	s.mu.Unlock()
	s.free(true)
}

// resetSubsystem resets the whole subsystem: every host loses its controller.
func (s *session) resetSubsystem() {
	s.t.log("%s: asked for a subsystem reset", s)
	if err := s.resetter().ResetSubsystem(s.ctx); err != nil {
		s.deviceFailed("subsystem reset", err)
	}
	s.t.mu.Lock()
	var all []*session
	for _, other := range s.t.sessions {
		if other.slot != nil {
			all = append(all, other)
		}
	}
	s.t.mu.Unlock()
	for _, other := range all {
		other.end()
		other.slot.clean(s.t)
	}
}

// clean says that the controller has just been reset.
func (sl *slot) clean(t *Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.dirty = false
}

// deviceFailed takes note of a call to the device that did not succeed.
func (s *session) deviceFailed(what string, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.t.log("%s: %s: %v", s, what, err)
	if errors.Is(err, nvmeioctl.ErrDeviceGone) && s.t.cfg.Gone != nil {
		s.t.cfg.Gone()
	}
}

// deliver answers async event requests with the device's events.
func (s *session) deliver(ctx context.Context, source nvmeioctl.EventSource) {
	for {
		select {
		case <-s.eventAsked:
		case <-ctx.Done():
			return
		}
		for s.eventsAsked() {
			e, err := source.NextEvent(ctx)
			if err != nil {
				if ctx.Err() == nil {
					s.deviceFailed("wait for an event", err)
				}
				return
			}
			for !s.answerEvent(e) {
				// The request was aborted meanwhile; the event is for the next.
				select {
				case <-s.eventAsked:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

func (s *session) eventsAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events) > 0
}

// answerEvent gives an event to the oldest request, if there is one.
func (s *session) answerEvent(e nvmeioctl.Event) bool {
	s.mu.Lock()
	if len(s.events) == 0 {
		s.mu.Unlock()
		return false
	}
	cmd := s.events[0]
	s.events = s.events[1:]
	s.mu.Unlock()
	s.admin.complete(cmd, nvmespec.StatusSuccess, uint64(e.Type)|uint64(e.Info)<<8|uint64(e.LogPage)<<16)
	return true
}

// askEvent keeps an async event request until there is an event.
func (s *session) askEvent(cmd *command) {
	limit := 4
	if s.slot != nil {
		limit = s.slot.aerLimit
	}
	s.mu.Lock()
	over := len(s.events) >= limit
	if !over {
		s.events = append(s.events, cmd)
	}
	s.mu.Unlock()
	if over {
		s.admin.complete(cmd, nvmespec.StatusAsyncEventLimit|nvmespec.StatusDNR, 0)
		return
	}
	select {
	case s.eventAsked <- struct{}{}:
	default:
	}
}

// abortEvent ends an async event request and says whether it was one.
func (s *session) abortEvent(cid uint16) bool {
	s.mu.Lock()
	var cmd *command
	for i, e := range s.events {
		if e.cid == cid {
			cmd = e
			s.events = append(s.events[:i:i], s.events[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if cmd != nil {
		s.admin.complete(cmd, nvmespec.StatusAborted, 0)
	}
	return cmd != nil
}

// submit has the device carry out a command and answers the host.
func (s *session) submit(c *conn, cmd *command, io bool, finish func(nvmespec.Status)) {
	n := nvmeioctl.Command{
		IO: io, Opcode: cmd.opcode, NSID: cmd.nsid, CDW2: cmd.cdw2, CDW3: cmd.cdw3,
		CDW10: cmd.cdw[0], CDW11: cmd.cdw[1], CDW12: cmd.cdw[2],
		CDW13: cmd.cdw[3], CDW14: cmd.cdw[4], CDW15: cmd.cdw[5],
		Data: cmd.data, Timeout: commandTimeout,
	}
	done, err := s.slot.dev.Submit(cmd.ctx, &n)
	if err == nil {
		if finish != nil {
			finish(done.Status)
		}
		c.complete(cmd, done.Status, done.Result)
		return
	}
	status, answered := statusOf(err)
	s.deviceFailed(nvmespec.CommandName(!io, cmd.opcode), err)
	if answered {
		c.complete(cmd, status, 0)
	}
}

// statusOf is how a host is told that the device was not reached. Where the
// outcome is unknown it is not told anything: it will time out, as it would
// with a drive that hangs.
func statusOf(err error) (status nvmespec.Status, answered bool) {
	switch {
	case errors.Is(err, nvmeioctl.ErrIndeterminate), errors.Is(err, nvmeioctl.ErrDeviceGone),
		errors.Is(err, os.ErrClosed), errors.Is(err, context.Canceled):
		return 0, false
	case errors.Is(err, syscall.EINVAL):
		return nvmespec.StatusInvalidField | nvmespec.StatusDNR, true
	}
	if _, ok := errors.AsType[*nvmeioctl.RefusedError](err); ok {
		return nvmespec.StatusOperationDenied | nvmespec.StatusDNR, true
	}
	return nvmespec.StatusInternal, true
}
