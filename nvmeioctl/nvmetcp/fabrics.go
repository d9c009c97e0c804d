package nvmetcp

import (
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// execute carries out one command and answers it, unless the answer comes
// later (an async event request) or never (a device that hangs).
func (c *conn) execute(cmd *command) {
	c.t.commands.Add(1)
	s := c.queueOf()
	switch {
	case cmd.opcode == opFabrics:
		c.fabrics(s, cmd)
	case c.qid == 0 && s.slot == nil:
		s.alive()
		s.discoveryCommand(cmd)
	case c.qid == 0:
		s.alive()
		s.adminCommand(cmd)
	case !s.ready():
		c.complete(cmd, nvmespec.StatusSequence|nvmespec.StatusDNR, 0)
	default:
		s.submit(c, cmd, true, nil)
	}
}

// fabrics carries out the commands of the transport itself.
func (c *conn) fabrics(s *session, cmd *command) {
	invalid := nvmespec.StatusInvalidField | nvmespec.StatusDNR
	size := 4
	if cmd.cdw[0]&7 == 1 {
		size = 8
	}
	switch {
	case cmd.fabricType() == fabricConnect:
		status, result := c.connect(cmd)
		c.complete(cmd, status, result)
	case cmd.fabricType() == fabricDisconnect && c.qid != 0:
		c.mu.Lock()
		c.leaving = true
		c.mu.Unlock()
		c.complete(cmd, nvmespec.StatusSuccess, 0)
	case c.qid != 0 || cmd.cdw[0]&7 > 1:
		c.complete(cmd, invalid, 0)
	case cmd.fabricType() == fabricPropertyGet:
		s.alive()
		v, ok := s.property(cmd.cdw[1], size)
		if !ok {
			c.complete(cmd, invalid, 0)
			return
		}
		c.complete(cmd, nvmespec.StatusSuccess, v)
	case cmd.fabricType() == fabricPropertySet:
		s.alive()
		v := uint64(cmd.cdw[2]) | uint64(cmd.cdw[3])<<32
		c.complete(cmd, s.setProperty(cmd.cdw[1], size, v), 0)
	default:
		c.complete(cmd, invalid, 0)
	}
}

// badConnect says which parameter of Connect is invalid: an offset into its
// data, or into the command.
func badConnect(at uint16, inData bool) (nvmespec.Status, uint64) {
	result := uint64(at)
	if inData {
		result |= 1 << 16
	}
	return statusConnectInvalid | nvmespec.StatusDNR, result
}

// connect makes the connection a queue.
func (c *conn) connect(cmd *command) (nvmespec.Status, uint64) {
	format, qid := uint16(cmd.cdw[0]), uint16(cmd.cdw[0]>>16)
	entries := int(uint16(cmd.cdw[1])) + 1
	switch {
	case format != 0:
		return statusIncompatibleFormat | nvmespec.StatusDNR, 0
	case len(cmd.data) != connectBytes:
		return statusSGLLength | nvmespec.StatusDNR, 0
	case entries < 2 || entries > c.t.limits.QueueEntries:
		return badConnect(atConnectSQSize, false)
	}
	data, at, ok := decodeConnect(cmd.data)
	if !ok {
		return badConnect(at, true)
	}
	if data.subNQN != DiscoveryNQN && data.subNQN != c.t.cfg.SubsystemNQN {
		c.t.log("%s: asks for subsystem %q, which is not here", c.name, data.subNQN)
		return badConnect(atConnectSubNQN, true)
	}
	if qid != 0 {
		return c.connectIO(data, qid, entries)
	}
	if data.cntlid != 0xFFFF {
		return badConnect(atConnectCNTLID, true) // this is the dynamic model
	}
	return c.connectAdmin(data, entries, time.Duration(cmd.cdw[2])*time.Millisecond)
}

// connectAdmin gives the host a controller.
func (c *conn) connectAdmin(data connectData, entries int, kato time.Duration) (nvmespec.Status, uint64) {
	host := hostKey{nqn: data.host, id: data.hostID}
	var s *session
	if data.subNQN == DiscoveryNQN {
		s = c.t.startDiscovery(c, host)
	} else {
		s = c.t.awaitSession(c, host)
	}
	if s == nil {
		c.t.log("%s: host %s: every controller is in use", c.name, data.host)
		return statusControllerBusy, 0
	}
	if err := s.begin(); err != nil {
		s.deviceFailed("reset", err)
		s.free(true)
		return nvmespec.StatusInternal, 0
	}
	s.remember()
	s.setKeepAlive(kato)
	c.become(s, 0, entries)
	c.t.log("%s: connected from %s", s, c.name)
	return nvmespec.StatusSuccess, uint64(s.id)
}

// awaitSession gives the host a controller, or nil if none becomes free within
// connectPatience: a host that disconnects and connects again at once may come
// before the end of its old connection has been seen.
func (t *Target) awaitSession(c *conn, host hostKey) *session {
	patience := time.NewTimer(connectPatience)
	defer patience.Stop()
	for {
		freed := t.freedSignal()
		if s := t.startSession(c, host); s != nil {
			return s
		}
		select {
		case <-freed:
		case <-patience.C:
			return nil
		case <-c.ctx.Done():
			return nil
		}
	}
}

// freedSignal is closed when the next session gives its controller back.
func (t *Target) freedSignal() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.freed
}

// remember has the controller keep its host, if it can.
func (s *session) remember() {
	if s.slot == nil {
		return
	}
	if k, ok := nvmeioctl.As[HostKeeper](s.slot.dev); ok {
		if err := k.RememberHost(s.host.nqn, s.host.id); err != nil {
			s.t.log("%s: the host will not be remembered: %v", s, err)
		}
	}
}

// begin makes the controller as a new one is: the last host may have left it
// without a reset.
func (s *session) begin() error {
	if s.slot == nil {
		return nil
	}
	s.t.mu.Lock()
	dirty := s.slot.dirty
	s.t.mu.Unlock()
	if r := s.resetter(); dirty && r != nil {
		if err := r.ResetController(s.ctx); err != nil {
			return err
		}
	}
	s.slot.clean(s.t)
	return nil
}

// connectIO adds an I/O queue to a session of the same host.
func (c *conn) connectIO(data connectData, qid uint16, entries int) (nvmespec.Status, uint64) {
	c.t.mu.Lock()
	s := c.t.sessions[data.cntlid]
	c.t.mu.Unlock()
	if s == nil || s.slot == nil || data.subNQN == DiscoveryNQN {
		return badConnect(atConnectCNTLID, true)
	}
	if s.host != (hostKey{nqn: data.host, id: data.hostID}) {
		return statusInvalidHost | nvmespec.StatusDNR, 0
	}
	if !s.ready() {
		return nvmespec.StatusSequence | nvmespec.StatusDNR, 0
	}
	s.mu.Lock()
	taken := s.queues[qid] != nil
	full := int(qid) > s.ioQueues
	if !taken && !full && !s.ended {
		s.queues[qid] = c
	}
	ended := s.ended
	s.mu.Unlock()
	switch {
	case ended:
		return badConnect(atConnectCNTLID, true)
	case taken, full:
		return badConnect(atConnectQID, false)
	}
	c.become(s, qid, entries)
	return nvmespec.StatusSuccess, uint64(s.id)
}

// become makes the connection a queue of a session.
func (c *conn) become(s *session, qid uint16, entries int) {
	c.mu.Lock()
	c.session, c.qid, c.size, c.sqHead = s, qid, entries, 1%uint16(entries)
	c.mu.Unlock()
	c.setDeadline(c.nc.SetReadDeadline, c.silence())
}

// startSession gives a host a controller: the one that it had before, else one
// that nobody has had, else the one not used for longest. A host with several
// connections has several controllers.
func (t *Target) startSession(c *conn, host hostKey) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var best *slot
	rank := func(s *slot) int {
		switch {
		case s.owned && s.owner == host:
			return 2
		case !s.owned:
			return 1
		}
		return 0
	}
	for _, s := range t.slots {
		if s.session != nil {
			continue
		}
		if best == nil || rank(s) > rank(best) || rank(s) == rank(best) && rank(s) == 0 && s.lastUsed < best.lastUsed {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	t.clockNo++
	best.owner, best.owned, best.lastUsed = host, true, t.clockNo
	best.session = newSession(t, best, best.id, host, c)
	t.sessions[best.id] = best.session
	return best.session
}

// adminCommand carries out an admin command: what belongs to the transport
// here, the rest by the device.
func (s *session) adminCommand(cmd *command) {
	c := s.admin
	switch cmd.opcode {
	case nvmespec.AdminKeepAlive:
		c.complete(cmd, nvmespec.StatusSuccess, 0)
		return
	case nvmespec.AdminAsyncEventRequest:
		s.askEvent(cmd)
		return
	case nvmespec.AdminAbort:
		c.complete(cmd, nvmespec.StatusSuccess, s.abort(cmd))
		return
	case nvmespec.AdminCreateSQ, nvmespec.AdminDeleteSQ, nvmespec.AdminCreateCQ, nvmespec.AdminDeleteCQ, nvmespec.AdminDoorbellBufferConfig:
		// Queues are made by Connect.
		c.complete(cmd, nvmespec.StatusInvalidOpcode|nvmespec.StatusDNR, 0)
		return
	}
	if !s.ready() {
		c.complete(cmd, nvmespec.StatusSequence|nvmespec.StatusDNR, 0)
		return
	}
	feature := nvmespec.FeatureID(cmd.cdw[0])
	own := feature == nvmespec.FeatureKeepAlive || feature == nvmespec.FeatureQueueCount
	switch {
	case own && cmd.opcode == nvmespec.AdminSetFeatures:
		status, result := s.setFeature(feature, cmd)
		c.complete(cmd, status, result)
	case own && cmd.opcode == nvmespec.AdminGetFeatures:
		status, result := s.getFeature(feature, cmd)
		c.complete(cmd, status, result)
	default:
		s.submit(c, cmd, false, func(status nvmespec.Status) {
			if status.Code() == 0 {
				s.amend(cmd)
			}
		})
	}
}

// abort carries out Abort: the result is 0 if the command was aborted. One that
// the device has is not taken back.
func (s *session) abort(cmd *command) uint64 {
	sqid, cid := uint16(cmd.cdw[0]), uint16(cmd.cdw[0]>>16)
	c := s.admin
	if sqid != 0 {
		s.mu.Lock()
		c = s.queues[sqid]
		s.mu.Unlock()
	} else if s.abortEvent(cid) {
		return 0
	}
	if c != nil && c.abort(cid) {
		return 0
	}
	return 1
}

// setFeature sets a feature of the transport.
func (s *session) setFeature(id nvmespec.FeatureID, cmd *command) (nvmespec.Status, uint64) {
	if cmd.cdw[0]>>31 != 0 {
		return nvmespec.StatusNotSaveable | nvmespec.StatusDNR, 0
	}
	value := cmd.cdw[1]
	if id == nvmespec.FeatureKeepAlive {
		s.setKeepAlive(time.Duration(value) * time.Millisecond)
		return nvmespec.StatusSuccess, 0
	}
	submission, completion := int(uint16(value)), int(value>>16)
	if submission == 0xFFFF || completion == 0xFFFF {
		return nvmespec.StatusInvalidField | nvmespec.StatusDNR, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queues) > 0 {
		return nvmespec.StatusSequence | nvmespec.StatusDNR, 0
	}
	// A queue here is a pair: as many of either as there are of the fewer.
	s.ioQueues = min(submission+1, completion+1, s.t.limits.IOQueues)
	return nvmespec.StatusSuccess, queueCount(s.ioQueues)
}

func queueCount(n int) uint64 { return uint64(n-1) | uint64(n-1)<<16 }

// getFeature reads a feature of the transport.
func (s *session) getFeature(id nvmespec.FeatureID, cmd *command) (nvmespec.Status, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sel := nvmespec.FeatureSelect(cmd.cdw[0] >> 8 & 7)
	switch {
	case sel > nvmespec.FeatureCapabilities:
		return nvmespec.StatusInvalidField | nvmespec.StatusDNR, 0
	case sel == nvmespec.FeatureCapabilities:
		return nvmespec.StatusSuccess, uint64(nvmespec.FeatureCaps{Changeable: true}.Dword())
	case id == nvmespec.FeatureQueueCount && sel == nvmespec.FeatureCurrent:
		return nvmespec.StatusSuccess, queueCount(s.ioQueues)
	case id == nvmespec.FeatureQueueCount:
		return nvmespec.StatusSuccess, queueCount(s.t.limits.IOQueues)
	case sel == nvmespec.FeatureCurrent:
		return nvmespec.StatusSuccess, uint64(s.kato.Milliseconds())
	}
	return nvmespec.StatusSuccess, 0
}
