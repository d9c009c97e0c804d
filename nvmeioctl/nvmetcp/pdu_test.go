package nvmetcp_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/nvmetcp"
)

// raw is a connection on which a test writes what it likes.
type raw struct {
	t  *testing.T
	nc net.Conn
	// q frames PDUs; it reads nothing.
	q *queue
}

// dialRaw connects; ic carries out the handshake.
func dialRaw(t *testing.T, addr string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, nc: nc, q: &queue{nc: nc}}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.nc.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// read reads one PDU; io.EOF at the end.
func (r *raw) read() ([]byte, error) {
	b := make([]byte, 8)
	if _, err := io.ReadFull(r.nc, b); err != nil {
		return nil, err
	}
	b = append(b, make([]byte, le.Uint32(b[4:])-8)...)
	_, err := io.ReadFull(r.nc, b[8:])
	return b, err
}

func (r *raw) mustRead(typ uint8) []byte {
	r.t.Helper()
	b, err := r.read()
	if err != nil || b[0] != typ {
		r.t.Fatalf("want a PDU of type %#x, have % x, %v", typ, b, err)
	}
	return b
}

func icReq(d digestsOn) []byte {
	b := make([]byte, 128)
	b[2] = 128
	le.PutUint32(b[4:], 128)
	if d.header {
		b[11] |= 1
	}
	if d.data {
		b[11] |= 2
	}
	return b
}

// greet carries out the handshake and, on request, connects an admin queue of
// 32 entries with the controller enabled.
func (r *raw) greet(d digestsOn, sub string) {
	r.t.Helper()
	r.write(icReq(d))
	r.mustRead(0x01)
	r.q.digests = d
	if sub == "" {
		return
	}
	c := connecting{sqsize: 31, cntlid: 0xFFFF, sub: sub, host: testHost, hostID: 1}
	for _, b := range [][]byte{
		r.q.capsule(c.entry(), c.data()),
		r.q.capsule(entry(0x7F, 0, 0, 0, 0, 0x14, ccEnabled), nil),
	} {
		r.write(b)
		if got := r.mustRead(0x05); le.Uint16(got[22:]) != 0 {
			r.t.Fatalf("response % x", got)
		}
	}
}

// termination expects a termination request and the end of the connection.
func (r *raw) termination(status uint16, info uint32, header []byte) {
	r.t.Helper()
	b := r.mustRead(0x03)
	if got := le.Uint16(b[8:]); got != status {
		r.t.Errorf("fatal error status %d, want %d", got, status)
	}
	if got := le.Uint32(b[10:]); status != 2 && status != 4 && got != info {
		r.t.Errorf("information %#x, want %#x", got, info)
	}
	if b[2] != 24 || len(b) > 24+128 || !bytes.HasPrefix(header, b[24:]) || len(b) == 24 {
		r.t.Errorf("the header sent back is % x, the PDU began % x", b[24:], header[:min(len(header), 24)])
	}
	if _, err := r.read(); err != io.EOF {
		r.t.Errorf("after the termination request: %v", err)
	}
}

func change(b []byte, at int, v ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], v)
	return b
}

// TestBadPDU: every way in which a PDU can be wrong ends its connection with
// the right status, and nothing else: another host goes on meanwhile.
func TestBadPDU(t *testing.T) {
	drive := newDrive(t, "pblaze7-7940-7.68tb", 2)
	r := serveDrive(t, drive, nvmetcp.Limits{}, nil)
	other := mustConnect(t, r.addr, r.sub, testHost+"other", digestsOn{})
	q := &queue{}
	hd := &queue{digests: digestsOn{header: true}}
	identify := entry(0x06, 0, 0x5A, 4096, 1)
	capsule := q.capsule(identify, nil)
	inline := q.capsule(entry(0x0D, 0, 0x01, 4096), make([]byte, 4096))
	data := q.pdu(dataHeader(1, 1, 0, 512), make([]byte, 512), 4)
	damaged := hd.capsule(identify, nil)
	damaged[72] ^= 1
	const none, greeted, connected = 0, 1, 2
	for _, c := range []struct {
		name   string
		state  int
		d      digestsOn
		pdu    []byte
		status uint16
		info   uint32
	}{
		{name: "a command first", pdu: capsule, status: 2},
		{name: "a response", pdu: change(icReq(digestsOn{}), 0, 0x01), status: 1, info: 0},
		{name: "IC header length", pdu: change(icReq(digestsOn{}), 2, 127), status: 1, info: 2},
		{name: "IC length", pdu: change(icReq(digestsOn{}), 4, 127), status: 1, info: 4},
		{name: "IC flags", pdu: change(icReq(digestsOn{}), 1, 1), status: 1, info: 1},
		{name: "IC data offset", pdu: change(icReq(digestsOn{}), 3, 8), status: 1, info: 3},
		{name: "PDU format version", pdu: change(icReq(digestsOn{}), 8, 1), status: 6, info: 8},
		{name: "host alignment", pdu: change(icReq(digestsOn{}), 10, 32), status: 1, info: 10},
		{name: "unknown digest", pdu: change(icReq(digestsOn{}), 11, 4), status: 1, info: 11},

		{name: "a second IC", state: connected, pdu: icReq(digestsOn{}), status: 2},
		{name: "a type that only controllers send", state: greeted, pdu: change(capsule, 0, 0x05), status: 1, info: 0},
		{name: "a type that there is not", state: connected, pdu: change(capsule, 0, 0x77), status: 1, info: 0},
		{name: "capsule header length", state: connected, pdu: change(capsule, 2, 64), status: 1, info: 2},
		{name: "capsule length", state: connected, pdu: change(capsule, 4, 73), status: 1, info: 4},
		{name: "capsule length 0", state: connected, pdu: change(capsule, 4, 0), status: 1, info: 4},
		{name: "capsule length of 4 GiB", state: connected, pdu: change(inline, 4, 0xFF, 0xFF, 0xFF, 0xFF), status: 1, info: 4},
		{name: "a digest nobody agreed on", state: connected, pdu: change(capsule, 1, 1), status: 1, info: 1},
		{name: "a flag that there is not", state: connected, pdu: change(capsule, 1, 0x80), status: 1, info: 1},
		{name: "data before the header's end", state: connected, pdu: change(inline, 3, 68), status: 1, info: 3},
		{name: "data not aligned", state: connected, pdu: change(inline, 3, 74), status: 1, info: 3},
		{name: "more data than a capsule takes", state: connected, pdu: q.capsule(entry(0x0D, 0, 0x01, 8196), make([]byte, 8196)), status: 1, info: 4},
		{name: "a header digest missing", state: connected, d: digestsOn{header: true}, pdu: capsule, status: 1, info: 1},
		{name: "a header digest wrong", state: connected, d: digestsOn{header: true}, pdu: damaged, status: 3, info: le.Uint32(damaged[72:])},
		{name: "data nobody asked for", state: connected, pdu: data, status: 1, info: 10},
		{name: "data without an offset", state: connected, pdu: change(data, 3, 0), status: 1, info: 3},
		{name: "data PDU of no data", state: connected, pdu: change(data[:24], 4, 24, 0, 0, 0), status: 1, info: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialRaw(t, r.addr)
			switch c.state {
			case greeted:
				conn.greet(c.d, "")
			case connected:
				conn.greet(c.d, r.sub)
			}
			conn.write(c.pdu)
			conn.termination(c.status, c.info, c.pdu)
			_ = conn.nc.Close()
			r.waitFor(t, nvmetcp.Stats{Connections: 2, Sessions: 1})
			mustSubmit(t, other, ioCommand(nvmespec.IOOpRead, 0, make([]byte, 512)))
		})
	}
}

// asked connects and has the target ask for 1024 bytes of command 7.
func asked(t *testing.T, r *rig, d digestsOn) *raw {
	t.Helper()
	conn := dialRaw(t, r.addr)
	conn.greet(d, r.sub)
	s := entry(0x15, 1, 0x5A, 1024)
	s[2] = 7
	conn.write(conn.q.capsule(s, nil))
	b := conn.mustRead(0x09)
	if le.Uint16(b[8:]) != 7 || le.Uint16(b[10:]) != 7 || le.Uint32(b[12:]) != 0 || le.Uint32(b[16:]) != 1024 {
		t.Fatalf("R2T % x", b)
	}
	return conn
}

// TestBadData: data for an R2T that is not what was asked for.
func TestBadData(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	for _, c := range []struct {
		name      string
		cid, tag  uint16
		offset, n int
		last      uint8
		status    uint16
		info      uint32
		datal     uint32 // 0: n
	}{
		{name: "another command", cid: 8, tag: 7, n: 1024, last: 4, status: 1, info: 8},
		{name: "another tag", cid: 7, tag: 8, n: 1024, last: 4, status: 1, info: 10},
		{name: "a hole", cid: 7, tag: 7, offset: 512, n: 512, last: 4, status: 4},
		{name: "beyond the end", cid: 7, tag: 7, n: 1028, last: 4, status: 4},
		{name: "not marked as the last", cid: 7, tag: 7, n: 1024, status: 1, info: 1},
		{name: "marked as the last too early", cid: 7, tag: 7, n: 512, last: 4, status: 1, info: 1},
		{name: "a length that is not its own", cid: 7, tag: 7, n: 1024, last: 4, datal: 512, status: 1, info: 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := asked(t, r, digestsOn{})
			h := dataHeader(c.cid, c.tag, c.offset, c.n)
			if c.datal != 0 {
				le.PutUint32(h[16:], c.datal)
			}
			b := conn.q.pdu(h, make([]byte, c.n), c.last)
			conn.write(b)
			conn.termination(c.status, c.info, b)
			_ = conn.nc.Close()
			r.waitFor(t, nvmetcp.Stats{})
		})
	}
}

// TestDataDigest_mismatch fails the command with a transient transport error
// and leaves the connection as it is, in the capsule and by R2T.
func TestDataDigest_mismatch(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	conn := asked(t, r, digestsOn{data: true})
	b := conn.q.pdu(dataHeader(7, 7, 0, 512), make([]byte, 512), 0)
	b[len(b)-1] ^= 1
	conn.write(b)
	conn.write(conn.q.pdu(dataHeader(7, 7, 512, 512), make([]byte, 512), 4))
	if got := conn.mustRead(0x05); le.Uint16(got[22:])>>1 != 0x022 || le.Uint16(got[20:]) != 7 {
		t.Errorf("response % x", got)
	}
	b = conn.q.capsule(entry(0x0D, 0, 0x01, 4096), make([]byte, 4096))
	b[len(b)-1] ^= 1
	conn.write(b)
	if got := conn.mustRead(0x05); le.Uint16(got[22:])>>1 != 0x022 {
		t.Errorf("response % x", got)
	}
	conn.write(conn.q.capsule(entry(0x18, 0, 0, 0), nil))
	if got := conn.mustRead(0x05); le.Uint16(got[22:]) != 0 {
		t.Errorf("keep-alive afterwards: % x", got)
	}
}

// TestAlignment: data for the host begins where the host wants it, and data
// from the host may begin later than it must.
func TestAlignment(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	for _, hpda := range []uint8{0, 7, 31} {
		conn := dialRaw(t, r.addr)
		conn.write(change(icReq(digestsOn{header: true}), 10, hpda))
		conn.mustRead(0x01)
		conn.q.digests.header = true
		c := connecting{sqsize: 31, cntlid: 0xFFFF, sub: r.sub, host: testHost, hostID: 1}
		h := append([]byte{0x04, 1, 72, 128, 0, 0, 0, 0}, c.entry()...)
		le.PutUint32(h[4:], 128+1024)
		h = append(h, crc(h)...)
		h = append(h, make([]byte, 128-len(h))...)
		conn.write(append(h, c.data()...))
		if got := conn.mustRead(0x05); le.Uint16(got[22:]) != 0 {
			t.Fatalf("connect: % x", got)
		}
		conn.write(conn.q.capsule(entry(0x7F, 0, 0, 0, 0, 0x14, ccEnabled), nil))
		conn.mustRead(0x05)
		conn.write(conn.q.capsule(entry(0x06, 0, 0x5A, 4096, 1), nil))
		b := conn.mustRead(0x07)
		align := (int(hpda) + 1) * 4
		if pdo := int(b[3]); pdo%align != 0 || pdo < 28 || pdo >= 28+align || len(b) != pdo+4096 {
			t.Errorf("alignment of %d bytes: data at %d in %d bytes", align, pdo, len(b))
		}
		_ = conn.nc.Close()
		r.waitFor(t, nvmetcp.Stats{})
	}
}

// TestSGL: descriptors that cannot be are refused by status.
func TestSGL(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	dev := mustConnect(t, r.addr, r.sub, testHost, digestsOn{})
	at := func(b []byte, i int, v byte) []byte { b[i] = v; return b }
	small := make([]byte, 512)
	for _, c := range []struct {
		name      string
		s, out    []byte
		inCapsule bool
		status    uint16
	}{
		{"PRPs", at(entry(0x06, 0, 0x5A, 4096, 1), 1, 0), nil, false, 0x4002},
		{"fused", at(entry(0x06, 0, 0x5A, 4096, 1), 1, 0x41), nil, false, 0x4002},
		{"keyed", entry(0x06, 0, 0x40, 4096, 1), nil, false, 0x4011},
		{"an offset into the capsule", at(entry(0x15, 1, 0x01, 512), 24, 4), small, true, 0x4016},
		{"a length that is not the data's", entry(0x15, 1, 0x01, 256), small, true, 0x400F},
		{"data in the capsule of a read", entry(0x06, 0, 0x01, 512, 1), small, true, 0x4002},
		{"data in the capsule and by R2T", entry(0x15, 1, 0x5A, 512), small, true, 0x4002},
		{"both ways", entry(0x7B, 0, 0x5A, 512), nil, false, 0x4001},
	} {
		got, err := dev.admin.do(c.s, c.out, make([]byte, 4096), c.inCapsule)
		if err != nil || got.status != c.status {
			t.Errorf("%s: %+v, %v; want %#x", c.name, got, err, c.status)
		}
	}
}

// TestQueueOverflow: a host that has more commands outstanding than its queue
// has entries has lost count.
func TestQueueOverflow(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	conn := dialRaw(t, r.addr)
	conn.greet(digestsOn{}, r.sub)
	var b []byte
	for i := range 33 { // they wait for their data, so none is over
		s := entry(0x15, 1, 0x5A, 1024)
		binary.LittleEndian.PutUint16(s[2:], uint16(i))
		b = append(b, conn.q.capsule(s, nil)...)
	}
	conn.write(b)
	for range 32 {
		conn.mustRead(0x09)
	}
	if got := conn.mustRead(0x03); le.Uint16(got[8:]) != 2 {
		t.Errorf("termination % x", got)
	}
}

// TestCommandID_conflict: an identifier that is taken fails the new command.
func TestCommandID_conflict(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	conn := asked(t, r, digestsOn{})
	s := entry(0x18, 0, 0, 0)
	s[2] = 7
	conn.write(conn.q.capsule(s, nil))
	if got := conn.mustRead(0x05); le.Uint16(got[22:])>>1 != 0x4003 {
		t.Errorf("response % x", got)
	}
}

// TestHostTermination: a host that gives up is let go without an answer.
func TestHostTermination(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{}, nil)
	conn := dialRaw(t, r.addr)
	conn.greet(digestsOn{}, r.sub)
	b := make([]byte, 24)
	b[0], b[2], b[4], b[8] = 0x02, 24, 24, 1
	conn.write(b)
	if _, err := conn.read(); err != io.EOF {
		t.Errorf("after a termination request: %v", err)
	}
	r.waitFor(t, nvmetcp.Stats{})
}

// TestStall: a PDU that stops in its middle is given up.
func TestStall(t *testing.T) {
	r := serveDrive(t, newDrive(t, "pblaze7-7940-7.68tb", 1), nvmetcp.Limits{PDU: 100 * time.Millisecond}, nil)
	conn := dialRaw(t, r.addr)
	conn.greet(digestsOn{}, r.sub)
	conn.write(conn.q.capsule(entry(0x18, 0, 0, 0), nil)[:40])
	if _, err := conn.read(); err != io.EOF {
		t.Errorf("a PDU that does not end: %v", err)
	}
	r.waitFor(t, nvmetcp.Stats{})
}
