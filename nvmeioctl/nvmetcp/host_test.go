package nvmetcp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// A small initiator, written from the specification and not from the target's
// codec, so that the two can disagree.

var le = binary.LittleEndian

// digestsOn says which digests the initiator asks for.
type digestsOn struct{ header, data bool }

// queue is one connection of the initiator.
type queue struct {
	nc      net.Conn
	br      *bufio.Reader
	digests digestsOn
	maxData int

	wmu sync.Mutex // of writes to nc

	mu      sync.Mutex
	next    uint16
	pending map[uint16]*pending
	err     error // why the connection is over
	term    []byte
	over    chan struct{}
}

// pending is a command that has no response yet.
type pending struct {
	out, in []byte
	done    chan cqe
}

// cqe is a completion as it came.
type cqe struct {
	result uint64
	sqHead uint16
	status uint16
}

var errTerminated = errors.New("the target ended the connection with a termination request")

// dial connects and carries out the handshake.
func dial(addr string, d digestsOn) (*queue, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	q := &queue{nc: nc, br: bufio.NewReader(nc), digests: d, pending: map[uint16]*pending{}, over: make(chan struct{})}
	req := make([]byte, 128)
	req[0], req[2] = 0x00, 128
	le.PutUint32(req[4:], 128)
	if d.header {
		req[11] |= 1
	}
	if d.data {
		req[11] |= 2
	}
	if _, err := nc.Write(req); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	resp := make([]byte, 128)
	if _, err := io.ReadFull(q.br, resp); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	if resp[0] != 0x01 || resp[2] != 128 || le.Uint32(resp[4:]) != 128 || resp[10] != 0 || resp[11] != req[11] || le.Uint32(resp[12:]) < 4096 {
		return nil, errors.Join(fmt.Errorf("ICResp % x", resp[:16]), nc.Close())
	}
	q.maxData = int(le.Uint32(resp[12:]))
	go q.read()
	return q, nil
}

func (q *queue) close() error {
	err := q.nc.Close()
	<-q.over
	return err
}

func crc(b []byte) []byte {
	return le.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// pdu makes a PDU: the header is completed with flags, offset and length.
func (q *queue) pdu(header, data []byte, flags uint8) []byte {
	h := append([]byte(nil), header...)
	h[1], h[2], h[3] = flags, uint8(len(header)), 0
	length := len(h)
	if q.digests.header {
		h[1] |= 1
		length += 4
	}
	if len(data) > 0 {
		h[3] = uint8(length)
		length += len(data)
		if q.digests.data {
			h[1] |= 2
			length += 4
		}
	}
	le.PutUint32(h[4:], uint32(length))
	if q.digests.header {
		h = append(h, crc(h)...)
	}
	h = append(h, data...)
	if len(data) > 0 && q.digests.data {
		h = append(h, crc(data)...)
	}
	return h
}

func (q *queue) write(b []byte) error {
	q.wmu.Lock()
	defer q.wmu.Unlock()
	_, err := q.nc.Write(b)
	return err
}

// read takes what the target sends until the connection is over.
func (q *queue) read() {
	var err error
	for err == nil {
		err = q.readPDU()
	}
	q.mu.Lock()
	q.err = err
	for _, p := range q.pending {
		close(p.done)
	}
	q.pending = nil
	q.mu.Unlock()
	close(q.over)
}

func (q *queue) readPDU() error {
	common := make([]byte, 8)
	if _, err := io.ReadFull(q.br, common); err != nil {
		return err
	}
	rest := make([]byte, le.Uint32(common[4:])-8)
	if _, err := io.ReadFull(q.br, rest); err != nil {
		return err
	}
	b := append(common, rest...)
	hlen := int(b[2])
	if b[0] == 0x03 {
		q.mu.Lock()
		q.term = b
		q.mu.Unlock()
		return errTerminated
	}
	if q.digests.header != (b[1]&1 != 0) {
		return fmt.Errorf("flags %#x of type %#x do not fit the digests", b[1], b[0])
	}
	if q.digests.header && string(crc(b[:hlen])) != string(b[hlen:hlen+4]) {
		return fmt.Errorf("header digest of type %#x does not match", b[0])
	}
	cid := le.Uint16(b[8:])
	if b[0] == 0x05 {
		cid = le.Uint16(b[20:])
	}
	q.mu.Lock()
	p := q.pending[cid]
	if b[0] == 0x05 {
		delete(q.pending, cid)
	}
	q.mu.Unlock()
	if p == nil {
		return fmt.Errorf("type %#x for command %d, which is not outstanding", b[0], cid)
	}
	switch b[0] {
	case 0x05:
		p.done <- cqe{result: le.Uint64(b[8:]), sqHead: le.Uint16(b[16:]), status: le.Uint16(b[22:]) >> 1}
	case 0x07:
		return q.takeData(p, b)
	case 0x09:
		return q.giveData(p, b)
	default:
		return fmt.Errorf("type %#x", b[0])
	}
	return nil
}

func (q *queue) takeData(p *pending, b []byte) error {
	at, offset, n := int(b[3]), int(le.Uint32(b[12:])), int(le.Uint32(b[16:]))
	end := at + n
	if q.digests.data {
		if string(crc(b[at:end])) != string(b[end:]) {
			return errors.New("data digest does not match")
		}
	} else if end != len(b) {
		return fmt.Errorf("PDU of %d bytes with data from %d to %d", len(b), at, end)
	}
	if offset+n > len(p.in) {
		return fmt.Errorf("%d bytes at %d, %d were asked for", n, offset, len(p.in))
	}
	copy(p.in[offset:], b[at:end])
	return nil
}

func (q *queue) giveData(p *pending, b []byte) error {
	cid, tag, from, n := le.Uint16(b[8:]), le.Uint16(b[10:]), int(le.Uint32(b[12:])), int(le.Uint32(b[16:]))
	if from+n > len(p.out) {
		return fmt.Errorf("R2T for %d bytes at %d of %d", n, from, len(p.out))
	}
	for n > 0 {
		part := min(n, q.maxData)
		flags := uint8(0)
		if part == n {
			flags = 1 << 2
		}
		if err := q.write(q.pdu(dataHeader(cid, tag, from, part), p.out[from:from+part], flags)); err != nil {
			return err
		}
		from, n = from+part, n-part
	}
	return nil
}

func dataHeader(cid, tag uint16, offset, n int) []byte {
	h := make([]byte, 24)
	h[0] = 0x06
	le.PutUint16(h[8:], cid)
	le.PutUint16(h[10:], tag)
	le.PutUint32(h[12:], uint32(offset))
	le.PutUint32(h[16:], uint32(n))
	return h
}

// capsule makes a command capsule around a submission queue entry.
func (q *queue) capsule(sqe, data []byte) []byte {
	return q.pdu(append([]byte{0x04, 0, 0, 0, 0, 0, 0, 0}, sqe...), data, 0)
}

// entry begins a submission queue entry; the identifier comes later.
func entry(opcode uint8, nsid uint32, sgl uint8, length int, cdw ...uint32) []byte {
	s := make([]byte, 64)
	s[0], s[1] = opcode, 0x40
	le.PutUint32(s[4:], nsid)
	le.PutUint32(s[32:], uint32(length))
	s[39] = sgl
	for i, v := range cdw {
		le.PutUint32(s[40+4*i:], v)
	}
	return s
}

// start sends a command. out travels in the capsule if inCapsule.
func (q *queue) start(sqe, out, in []byte, inCapsule bool) (*pending, error) {
	p := &pending{in: in, done: make(chan cqe, 1)}
	q.mu.Lock()
	if q.err != nil {
		q.mu.Unlock()
		return nil, q.err
	}
	for q.pending[q.next] != nil {
		q.next++
	}
	le.PutUint16(sqe[2:], q.next)
	q.pending[q.next] = p
	q.next++
	q.mu.Unlock()
	var data []byte
	if inCapsule {
		data = out
	} else {
		p.out = out
	}
	return p, q.write(q.capsule(sqe, data))
}

// wait waits for a response.
func (q *queue) wait(p *pending) (cqe, error) {
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case c, ok := <-p.done:
		if !ok {
			q.mu.Lock()
			defer q.mu.Unlock()
			return cqe{}, q.err
		}
		return c, nil
	case <-timer.C:
		return cqe{}, errors.New("no response in 20 s")
	}
}

// do sends a command and waits for its response.
func (q *queue) do(sqe, out, in []byte, inCapsule bool) (cqe, error) {
	p, err := q.start(sqe, out, in, inCapsule)
	if err != nil {
		return cqe{}, err
	}
	return q.wait(p)
}

// connecting is what a host says in Connect.
type connecting struct {
	qid, sqsize uint16 // sqsize counts from 0
	kato        uint32
	cntlid      uint16
	sub, host   string
	hostID      byte
}

func (c connecting) data() []byte {
	b := make([]byte, 1024)
	b[0] = c.hostID
	le.PutUint16(b[16:], c.cntlid)
	copy(b[256:], c.sub)
	copy(b[512:], c.host)
	return b
}

func (c connecting) entry() []byte {
	return entry(0x7F, 1, 0x01, 1024, uint32(c.qid)<<16, uint32(c.sqsize), c.kato)
}

func (q *queue) connect(c connecting) (cqe, error) { return q.do(c.entry(), c.data(), nil, true) }

// property reads a property of 4 or 8 bytes.
func (q *queue) property(offset uint32, size int) (uint64, uint16, error) {
	c, err := q.do(entry(0x7F, 4, 0, 0, uint32(size/8), offset), nil, nil, false)
	return c.result, c.status, err
}

func (q *queue) setProperty(offset uint32, v uint64) (uint16, error) {
	c, err := q.do(entry(0x7F, 0, 0, 0, 0, offset, uint32(v), uint32(v>>32)), nil, nil, false)
	return c.status, err
}

const ccEnabled = 6<<16 | 4<<20 | 1

// enable brings the controller up.
func (q *queue) enable() error {
	status, err := q.setProperty(0x14, ccEnabled)
	if err != nil || status != 0 {
		return fmt.Errorf("enable: status %#x, %w", status, err)
	}
	v, _, err := q.property(0x1C, 4)
	if err != nil || v != 1 {
		return fmt.Errorf("CSTS %#x, %w", v, err)
	}
	return nil
}

// remote is a connected controller: a Device whose commands cross the network.
type remote struct {
	admin, io *queue
	cntlid    uint16
}

const testHost = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a"

// connectTo connects a host with an admin and an I/O queue.
func connectTo(addr, sub, host string, d digestsOn) (*remote, error) {
	admin, err := dial(addr, d)
	if err != nil {
		return nil, err
	}
	c := connecting{sqsize: 31, cntlid: 0xFFFF, sub: sub, host: host, hostID: 1}
	r, err := admin.connect(c)
	if err == nil && r.status != 0 {
		err = fmt.Errorf("connect: status %#x, result %#x", r.status, r.result)
	}
	if err == nil {
		err = admin.enable()
	}
	if err != nil {
		return nil, errors.Join(err, admin.close())
	}
	dev := &remote{admin: admin, cntlid: uint16(r.result)}
	c.qid, c.sqsize, c.cntlid = 1, 127, dev.cntlid
	if dev.io, err = dial(addr, d); err != nil {
		return nil, errors.Join(err, admin.close())
	}
	r, err = dev.io.connect(c)
	if err == nil && r.status != 0 {
		err = fmt.Errorf("connect of an I/O queue: status %#x, result %#x", r.status, r.result)
	}
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

func (r *remote) String() string { return "tcp:" + r.admin.nc.RemoteAddr().String() }

func (r *remote) Close() error { return errors.Join(r.io.close(), r.admin.close()) }

// Submit implements nvmeioctl.Device.
func (r *remote) Submit(ctx context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	if err := ctx.Err(); err != nil {
		return nvmeioctl.Completion{}, err
	}
	if cmd.Timeout <= 0 {
		return nvmeioctl.Completion{}, errors.New("no time-out")
	}
	q := r.admin
	if cmd.IO {
		q = r.io
	}
	sgl := uint8(0x5A)
	var in, out []byte
	inCapsule := false
	switch {
	case cmd.ReadsFromDevice():
		in = cmd.Data
	case cmd.WritesToDevice():
		out = cmd.Data
		if inCapsule = len(out) > 0 && len(out) <= 8192; inCapsule {
			sgl = 0x01
		}
	}
	s := entry(cmd.Opcode, cmd.NSID, sgl, len(cmd.Data), cmd.CDW10, cmd.CDW11, cmd.CDW12, cmd.CDW13, cmd.CDW14, cmd.CDW15)
	le.PutUint32(s[8:], cmd.CDW2)
	le.PutUint32(s[12:], cmd.CDW3)
	c, err := q.do(s, out, in, inCapsule)
	if err != nil {
		return nvmeioctl.Completion{}, fmt.Errorf("%s: %w: %w", r, nvmeioctl.ErrDeviceGone, err)
	}
	return nvmeioctl.Completion{Status: nvmespec.Status(c.status), Result: c.result}, nil
}

var _ nvmeioctl.Device = (*remote)(nil)

// mustConnect connects for a test.
func mustConnect(t testing.TB, addr, sub, host string, d digestsOn) *remote {
	t.Helper()
	r, err := connectTo(addr, sub, host, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}
