package nvmetcp

import (
	"encoding/binary"
	"net"
	"strconv"

	"nvop/nvmeioctl/nvmespec"
)

const (
	// firstDiscoveryID is the first CNTLID given to discovery controllers; they
	// are apart from the drive's.
	firstDiscoveryID = 0x8000
	lastDiscoveryID  = 0xFFEF
	// discoveryMax is how many discovery controllers there are at a time.
	discoveryMax = 32
	// discoveryVersion is the NVMe version of discovery controllers: 1.4.
	discoveryVersion = 0x00010400

	logDiscovery = 0x70
	// The log is a header and one entry of this size each.
	discoveryEntryBytes = 1024

	transportTCP = 3
	familyIPv4   = 1
	familyIPv6   = 2
	subsystemNVM = 2
	// notSpecified is TREQ of a target without a secure channel. "Not required"
	// (2) would say that there is one: nvme-cli then asks for TLS.
	notSpecified  = 0
	adminSizeMin  = 32
	anyController = 0xFFFF // dynamic model
)

// startDiscovery gives a host a discovery controller of its own.
func (t *Target) startDiscovery(c *conn, host hostKey) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.sessions {
		if s.slot == nil {
			n++
		}
	}
	if n >= discoveryMax {
		return nil
	}
	for t.taken(t.nextID) {
		t.nextID = nextDiscoveryID(t.nextID)
	}
	s := newSession(t, nil, t.nextID, host, c)
	t.nextID = nextDiscoveryID(t.nextID)
	t.sessions[s.id] = s
	return s
}

func nextDiscoveryID(id uint16) uint16 {
	if id == lastDiscoveryID {
		return firstDiscoveryID
	}
	return id + 1
}

// taken says that a CNTLID belongs to a controller. The target's lock is held.
func (t *Target) taken(id uint16) bool {
	for _, s := range t.slots {
		if s.id == id {
			return true
		}
	}
	return t.sessions[id] != nil
}

// discoveryCommand carries out an admin command of a discovery controller.
func (s *session) discoveryCommand(cmd *command) {
	c := s.admin
	answer := func(page []byte) {
		copy(cmd.data, page)
		c.complete(cmd, nvmespec.StatusSuccess, 0)
	}
	invalid := nvmespec.StatusInvalidField | nvmespec.StatusDNR
	if !s.ready() && cmd.opcode != nvmespec.AdminKeepAlive {
		c.complete(cmd, nvmespec.StatusSequence|nvmespec.StatusDNR, 0)
		return
	}
	switch cmd.opcode {
	case nvmespec.AdminKeepAlive:
		c.complete(cmd, nvmespec.StatusSuccess, 0)
	case nvmespec.AdminAsyncEventRequest:
		s.askEvent(cmd) // what is served does not change, so there is no event
	case nvmespec.AdminAbort:
		c.complete(cmd, nvmespec.StatusSuccess, s.abort(cmd))
	case nvmespec.AdminIdentify:
		if nvmespec.CNS(cmd.cdw[0]) != nvmespec.CNSController || len(cmd.data) != identifyBytes {
			c.complete(cmd, invalid, 0)
			return
		}
		answer(s.identifyDiscovery())
	case nvmespec.AdminGetLogPage:
		page := s.discoveryLog()
		offset := uint64(cmd.cdw[2]) | uint64(cmd.cdw[3])<<32
		switch {
		case uint8(cmd.cdw[0]) != logDiscovery:
			c.complete(cmd, nvmespec.StatusInvalidLogPage|nvmespec.StatusDNR, 0)
		case offset%4 != 0 || offset >= uint64(len(page)):
			c.complete(cmd, invalid, 0)
		default:
			answer(page[offset:])
		}
	case nvmespec.AdminSetFeatures, nvmespec.AdminGetFeatures:
		s.discoveryFeature(cmd)
	default:
		c.complete(cmd, nvmespec.StatusInvalidOpcode|nvmespec.StatusDNR, 0)
	}
}

// discoveryFeature is the keep-alive timer, and the event configuration, which
// hosts set and which can only be 0 here.
func (s *session) discoveryFeature(cmd *command) {
	id := nvmespec.FeatureID(cmd.cdw[0])
	status, result := nvmespec.StatusInvalidField|nvmespec.StatusDNR, uint64(0)
	set := cmd.opcode == nvmespec.AdminSetFeatures
	switch {
	case id == nvmespec.FeatureKeepAlive && set:
		status, result = s.setFeature(id, cmd)
	case id == nvmespec.FeatureKeepAlive:
		status, result = s.getFeature(id, cmd)
	case id == nvmespec.FeatureAsyncEvents:
		status = nvmespec.StatusSuccess
	}
	s.admin.complete(cmd, status, result)
}

// identifyDiscovery is Identify Controller of a discovery controller.
func (s *session) identifyDiscovery() []byte {
	page := make([]byte, identifyBytes)
	le := binary.LittleEndian
	pad := func(at, n int, text string) {
		for i := range n {
			page[at+i] = ' '
		}
		copy(page[at:at+n], text)
	}
	pad(4, 20, "discovery") // serial number
	pad(24, 40, "nvop NVMe/TCP discovery")
	pad(64, 8, "1")
	page[offMDTS] = uint8(20 - 12) // 1 MiB
	le.PutUint16(page[offCNTLID:], s.id)
	le.PutUint32(page[offVER:], discoveryVersion)
	page[offCTRATT] = hostID128
	page[offCNTRLTYPE] = typeDiscovery
	page[offAERL] = 3
	page[offLPA] = 1 << 2 // logs by offset, of any length
	le.PutUint16(page[offKAS:], keepAliveUnits)
	s.t.putFabrics(page)
	copy(page[offSUBNQN:], DiscoveryNQN)
	return page
}

// discoveryLog is the log with the one subsystem that is served here, at the
// address by which the host has come.
func (s *session) discoveryLog() []byte {
	page := make([]byte, 2*discoveryEntryBytes)
	le := binary.LittleEndian
	le.PutUint64(page[0:], 1) // generation: it never changes
	le.PutUint64(page[8:], 1) // entries
	e := page[discoveryEntryBytes:]
	host, port, family := localAddress(s.admin.nc)
	e[0], e[1], e[2], e[3] = transportTCP, family, subsystemNVM, notSpecified
	le.PutUint16(e[4:], 1) // port
	le.PutUint16(e[6:], anyController)
	le.PutUint16(e[8:], adminSizeMin)
	text := func(at, n int, v string) {
		for i := range n {
			e[at+i] = ' '
		}
		copy(e[at:at+n], v)
	}
	text(32, 32, port)
	copy(e[256:512], s.t.cfg.SubsystemNQN)
	text(512, 256, host)
	return page
}

// localAddress is the address by which the host has come.
func localAddress(nc net.Conn) (host, port string, family uint8) {
	a, ok := nc.LocalAddr().(*net.TCPAddr)
	if !ok {
		return "", "", familyIPv4
	}
	family = familyIPv4
	if a.IP.To4() == nil {
		family = familyIPv6
	}
	return a.IP.String(), strconv.Itoa(a.Port), family
}
