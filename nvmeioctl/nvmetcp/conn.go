package nvmetcp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"nvop/nvmeioctl/nvmespec"
)

// conn is one TCP connection, which becomes one queue by its Connect command.
//
// Three kinds of goroutine work on it: the reader (run), which alone reads the
// socket and starts commands; the writer, which alone writes to it once the
// handshake is over; and one for each command being carried out, at most as
// many as the queue has entries. run waits for all of them.
type conn struct {
	t      *Target
	nc     net.Conn
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	br     *bufio.Reader
	agreed digests
	align  uint8
	// writing says that the writer runs; the reader's own.
	writing bool

	// out is what the writer sends. It never fills up: see entries.
	out chan reply
	// entries holds one token for each command from its capsule's arrival
	// until its response is written. There are twice as many as a queue has
	// entries, since a host may use an entry again as soon as it sees the
	// response, before the writer gets to count it.
	entries chan struct{}

	mu       sync.Mutex
	session  *session // nil until Connect
	qid      uint16
	size     int // entries of the queue
	sqHead   uint16
	commands map[uint16]*command
	// dataBytes is the memory that commands have for data; those that would
	// need too much wait, first come first served.
	dataBytes int
	waiting   []*command
	// leaving says that the host has disconnected: the next response is the last.
	leaving bool
}

// command is one command of a host.
type command struct {
	sqe
	data     []byte
	bytes    uint32
	fromHost bool   // the data comes by R2T
	received uint32 // of it
	bad      bool   // a data digest did not match
	cost     int    // what it has of dataBytes
	ctx      context.Context
	cancel   context.CancelFunc
}

// reply is what the writer sends for one command.
type reply struct {
	head, data, tail []byte
	cost             int
	// final is set for a response: the command is over.
	final bool
	// last ends the connection once it is written.
	last bool
}

func newConn(ctx context.Context, t *Target, nc net.Conn) *conn {
	c := &conn{
		t: t, nc: nc, name: nc.RemoteAddr().String(), br: bufio.NewReaderSize(nc, 32<<10),
		size: 1, commands: map[uint16]*command{}, align: 4,
		out:     make(chan reply, 4*t.limits.QueueEntries+16),
		entries: make(chan struct{}, 2*t.limits.QueueEntries),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// linger is how long a host may take to close a connection that is over.
const linger = time.Second

// errHostEnded says that the host ended the connection in order.
var errHostEnded = errors.New("host ended the connection")

// run serves the connection until it ends.
func (c *conn) run() {
	stop := context.AfterFunc(c.ctx, func() { _ = c.nc.Close() })
	err := c.handshake()
	if err == nil {
		c.writing = true
		c.wg.Go(c.write)
		err = c.serve()
	}
	c.end(err)
	c.cancel()
	stop()
	_ = c.nc.Close()
	c.wg.Wait()
	if s := c.queueOf(); s != nil {
		s.queueEnded(c) // a Connect may have been under way at the first time
	}
	c.t.forget(c)
}

// end takes leave of the host: a faulty PDU is answered with a termination
// request, and the session learns that its queue is gone.
func (c *conn) end(err error) {
	s := c.queueOf()
	if bad, ok := errors.AsType[*pduError](err); ok {
		c.t.log("%s: %v", c.name, bad)
		c.terminate(bad)
	} else if err != nil && s == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.t.log("%s: %v", c.name, err)
	}
	if s != nil {
		s.queueEnded(c)
	}
}

// queueOf is the session whose queue the connection is, nil before Connect.
func (c *conn) queueOf() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// terminate sends a termination request and gives the host a moment to read
// it: closing at once with data unread would reset the connection and might
// take the request with it.
func (c *conn) terminate(bad *pduError) {
	b := appendTermination(nil, bad)
	if c.writing {
		select {
		case c.out <- reply{head: b, last: true}:
		case <-c.ctx.Done():
			return
		}
	} else {
		c.setDeadline(c.nc.SetWriteDeadline, linger)
		if _, err := c.nc.Write(b); err != nil {
			return
		}
		c.closeWrite()
	}
	c.setDeadline(c.nc.SetReadDeadline, linger)
	_, _ = io.CopyN(io.Discard, c.nc, 1<<20)
}

func (c *conn) closeWrite() {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// setDeadline sets a deadline that is after from now; 0 is none. An error means
// that the connection is closed, which the next read or write tells too.
func (c *conn) setDeadline(set func(time.Time) error, after time.Duration) {
	if after == 0 {
		_ = set(time.Time{})
		return
	}
	_ = set(c.t.cfg.Clock.Wall().Add(after))
}

// handshake carries out the exchange of ICReq and ICResp.
func (c *conn) handshake() error {
	c.setDeadline(c.nc.SetReadDeadline, c.t.limits.Handshake)
	b := make([]byte, icBytes)
	if _, err := io.ReadFull(c.br, b[:commonBytes]); err != nil {
		return fmt.Errorf("connection request: %w", err)
	}
	h, err := decodeCommon(b, digests{}, 0)
	if err == nil && h.typ != pduICReq {
		err = fatal(fatalSequence, "type %#02x before the connection request", h.typ)
	}
	if err != nil {
		return faulty(err, b[:commonBytes])
	}
	if _, err := io.ReadFull(c.br, b[commonBytes:]); err != nil {
		return fmt.Errorf("connection request: %w", err)
	}
	r, err := decodeICReq(b)
	if err != nil {
		return faulty(err, b)
	}
	c.agreed, c.align = r.digests, r.hostAlign
	c.setDeadline(c.nc.SetWriteDeadline, c.t.limits.PDU)
	if _, err := c.nc.Write(appendICResp(nil, c.agreed, hostDataMax)); err != nil {
		return fmt.Errorf("connection response: %w", err)
	}
	return nil
}

// faulty puts into a PDU's error what was read of its header.
func faulty(err error, header []byte) error {
	if bad, ok := errors.AsType[*pduError](err); ok {
		bad.header = header
	}
	return err
}

// serve reads PDUs until the connection ends or one is bad.
func (c *conn) serve() error {
	header := make([]byte, headerMax)
	for {
		h, b, err := c.readHeader(header)
		if err != nil {
			return err
		}
		switch h.typ {
		case pduCapsuleCmd:
			err = c.capsule(h, b)
		case pduH2CData:
			err = c.hostData(h, b)
		case pduH2CTermReq:
			c.t.log("%s: host ended the connection with fatal error status %d", c.name, binary.LittleEndian.Uint16(b[8:]))
			return errHostEnded
		default:
			err = fatal(fatalSequence, "a second connection request")
		}
		if err != nil {
			return faulty(err, b)
		}
	}
}

// readHeader reads a PDU up to its data. Between PDUs a host may be silent:
// whether it lives is the keep-alive timer's business, once it has connected.
func (c *conn) readHeader(buf []byte) (commonHeader, []byte, error) {
	c.setDeadline(c.nc.SetReadDeadline, c.silence())
	if _, err := io.ReadFull(c.br, buf[:commonBytes]); err != nil {
		return commonHeader{}, nil, err
	}
	c.setDeadline(c.nc.SetReadDeadline, c.t.limits.PDU)
	limit := uint32(hostDataMax)
	if buf[0] == pduCapsuleCmd {
		limit = inCapsuleMax
	}
	h, err := decodeCommon(buf, c.agreed, limit)
	if err != nil {
		return h, nil, faulty(err, buf[:commonBytes])
	}
	if h.typ == pduICReq {
		return h, buf[:commonBytes], nil
	}
	end := int(h.headerEnd())
	if _, err := io.ReadFull(c.br, buf[commonBytes:end]); err != nil {
		return h, nil, err
	}
	b := buf[:h.headerBytes]
	if end > len(b) {
		if have := binary.LittleEndian.Uint32(buf[len(b):]); have != crc32c(b) {
			return h, nil, &pduError{status: fatalHeaderDigest, at: have, what: "header digest does not match", header: b}
		}
	}
	if pad := int(h.dataOffset) - end; h.dataOffset != 0 && pad > 0 {
		if _, err := io.CopyN(io.Discard, c.br, int64(pad)); err != nil {
			return h, nil, err
		}
	}
	c.t.pdus.Add(1)
	return h, b, nil
}

// silence is how long the host may be silent now.
func (c *conn) silence() time.Duration {
	s := c.queueOf()
	switch {
	case s == nil:
		return c.t.limits.Handshake
	case s.slot == nil && s.keepAlive() == 0:
		return c.t.limits.Idle
	}
	return 0
}

// readData reads a PDU's data into b and says whether its digest matches.
func (c *conn) readData(b []byte) (intact bool, err error) {
	if _, err := io.ReadFull(c.br, b); err != nil {
		return false, err
	}
	if !c.agreed.data {
		return true, nil
	}
	var digest [digestBytes]byte
	if _, err := io.ReadFull(c.br, digest[:]); err != nil {
		return false, err
	}
	return binary.LittleEndian.Uint32(digest[:]) == crc32c(b), nil
}

// capsule takes a command capsule and starts its command.
func (c *conn) capsule(h commonHeader, b []byte) error {
	cmd := &command{sqe: decodeSQE(b[commonBytes:])}
	if n := h.dataBytes(); n != 0 {
		cmd.data = make([]byte, n)
		intact, err := c.readData(cmd.data)
		if err != nil {
			return err
		}
		cmd.bad = !intact
	}
	select {
	case c.entries <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	status, err := c.accept(cmd, h.dataBytes())
	if err != nil {
		return err
	}
	if status != 0 {
		c.send(cmd, status, 0, nil)
		return nil
	}
	if cmd.bad {
		c.complete(cmd, nvmespec.StatusTransientTransport, 0)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, cmd)
	c.startWaiting()
	return nil
}

// accept checks a command and registers it.
func (c *conn) accept(cmd *command, inCapsule uint32) (nvmespec.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.commands) >= c.size {
		return 0, fatal(fatalSequence, "more commands than the queue's %d entries", c.size)
	}
	c.sqHead = uint16((int(c.sqHead) + 1) % c.size)
	most := uint32(inCapsuleMax)
	connect := cmd.opcode == opFabrics && cmd.fabricType() == fabricConnect
	switch {
	case c.session == nil != connect:
		return nvmespec.StatusSequence | nvmespec.StatusDNR, nil
	case c.session != nil && c.session.slot != nil:
		most = c.session.slot.maxTransfer
	}
	if _, taken := c.commands[cmd.cid]; taken {
		return nvmespec.StatusCommandIDConflict | nvmespec.StatusDNR, nil
	}
	var status nvmespec.Status
	cmd.bytes, cmd.fromHost, status = cmd.transfer(inCapsule, most)
	if status != 0 {
		return status, nil
	}
	if cmd.data == nil {
		cmd.cost = int(cmd.bytes)
	}
	cmd.ctx, cmd.cancel = context.WithCancel(c.ctx)
	c.commands[cmd.cid] = cmd
	return 0, nil
}

// startWaiting starts the commands whose data there is room for, in order.
// c.mu is held.
func (c *conn) startWaiting() {
	for len(c.waiting) > 0 {
		cmd := c.waiting[0]
		if c.dataBytes > 0 && c.dataBytes+cmd.cost > c.t.limits.QueueDataBytes {
			return
		}
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		c.dataBytes += cmd.cost
		if cmd.cost > 0 {
			cmd.data = make([]byte, cmd.bytes)
		}
		if cmd.fromHost {
			c.push(reply{head: appendR2T(nil, c.agreed, cmd.cid, cmd.cid, 0, cmd.bytes)})
		} else {
			c.wg.Go(func() { c.execute(cmd) })
		}
	}
}

// hostData takes data that an R2T asked for. The tag of an R2T is its
// command's identifier.
func (c *conn) hostData(h commonHeader, b []byte) error {
	d := decodeH2CData(b)
	c.mu.Lock()
	cmd := c.commands[d.tag]
	if cmd != nil && (!cmd.fromHost || cmd.data == nil || cmd.received == cmd.bytes) {
		cmd = nil // it waits for no data
	}
	c.mu.Unlock()
	n := h.dataBytes()
	switch {
	case cmd == nil:
		return badField(atTTAG, "tag %#x is not one of an R2T", d.tag)
	case d.cid != cmd.cid:
		return badField(atCCCID, "command %#x, the R2T was for %#x", d.cid, cmd.cid)
	case d.bytes != n:
		return badField(atDATAL, "data length %d in a PDU with %d bytes of data", d.bytes, n)
	case d.offset != cmd.received || n > cmd.bytes-cmd.received:
		return fatal(fatalOutOfRange, "data at %d, %d bytes; the next is %d of %d", d.offset, n, cmd.received, cmd.bytes)
	case d.last != (n == cmd.bytes-cmd.received):
		return badField(atFlags, "the last-data flag is %v with %d bytes to come", d.last, cmd.bytes-cmd.received-n)
	}
	intact, err := c.readData(cmd.data[d.offset:][:n])
	if err != nil {
		return err
	}
	cmd.bad = cmd.bad || !intact
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd.received += n
	if cmd.received < cmd.bytes {
		return nil
	}
	c.wg.Go(func() {
		if cmd.bad {
			c.complete(cmd, nvmespec.StatusTransientTransport, 0)
			return
		}
		c.execute(cmd)
	})
	return nil
}

// complete ends a command: its data goes to the host if it asked for some and
// the command succeeded, and its response.
func (c *conn) complete(cmd *command, status nvmespec.Status, result uint64) {
	c.mu.Lock()
	if c.commands[cmd.cid] != cmd {
		c.mu.Unlock()
		return // aborted meanwhile
	}
	delete(c.commands, cmd.cid)
	c.mu.Unlock()
	cmd.cancel()
	var data []byte
	if status.Code() == 0 && cmd.direction() == toHost {
		data = cmd.data
	}
	c.send(cmd, status, result, data)
}

// send writes a response, after data if there is some.
func (c *conn) send(cmd *command, status nvmespec.Status, result uint64, data []byte) {
	r := reply{cost: cmd.cost, final: true}
	if len(data) > 0 {
		r.head = appendC2HHeader(nil, c.agreed, c.align, cmd.cid, uint32(len(data)))
		r.data = data
		if c.agreed.data {
			r.tail = binary.LittleEndian.AppendUint32(nil, crc32c(data))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.last = c.leaving
	r.tail = appendResponse(r.tail, c.agreed, completion{result: result, sqHead: c.sqHead, cid: cmd.cid, status: uint16(status)})
	c.push(r)
}

// push gives the writer something to send. There is always room: see entries.
func (c *conn) push(r reply) {
	select {
	case c.out <- r:
	case <-c.ctx.Done():
	}
}

// write is the writer.
func (c *conn) write() {
	defer c.cancel()
	w := bufio.NewWriterSize(c.nc, 64<<10)
	for {
		var r reply
		select {
		case r = <-c.out:
		case <-c.ctx.Done():
			return
		}
		c.setDeadline(c.nc.SetWriteDeadline, c.t.limits.PDU)
		for _, b := range [][]byte{r.head, r.data, r.tail} {
			if _, err := w.Write(b); err != nil {
				c.writeFailed(err)
				return
			}
		}
		if len(c.out) == 0 || r.last {
			if err := w.Flush(); err != nil {
				c.writeFailed(err)
				return
			}
		}
		if r.last {
			c.closeWrite()
			timer := time.NewTimer(linger)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-c.ctx.Done():
			}
			return
		}
		if r.final {
			<-c.entries
			c.release(r.cost)
		}
	}
}

func (c *conn) writeFailed(err error) {
	if c.ctx.Err() == nil {
		c.t.log("%s: host does not take its answers: %v", c.name, err)
	}
}

// release gives back memory of a command and starts what has waited for it.
func (c *conn) release(cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dataBytes -= cost
	c.startWaiting()
}

// drop forgets a command without an answer, as a reset does.
func (c *conn) drop(cmd *command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commands[cmd.cid] == cmd {
		delete(c.commands, cmd.cid)
		cmd.cancel()
		c.dataBytes -= cmd.cost
		<-c.entries
	}
}

// abort ends a command that has not been started or only waits, and says
// whether it was there to abort.
func (c *conn) abort(cid uint16) bool {
	c.mu.Lock()
	cmd := c.commands[cid]
	aborted := false
	for i, w := range c.waiting {
		if w == cmd && cmd != nil {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			cmd.cost = 0 // it has none yet
			aborted = true
			break
		}
	}
	c.mu.Unlock()
	if aborted {
		c.complete(cmd, nvmespec.StatusAborted, 0)
	}
	return aborted
}
