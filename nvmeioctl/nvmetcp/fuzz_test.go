package nvmetcp

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// fuzzTarget is a target that is given connections one by one, without a socket.
func fuzzTarget(t testing.TB) *Target {
	t.Helper()
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		t.Fatal("the profile is missing")
	}
	d, err := sim.New(p, sim.Options{Scale: uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17)), Controllers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	second, err := d.OpenController(p.FirstController + 1)
	if err != nil {
		t.Fatal(err)
	}
	target, err := New(t.Context(), Config{
		Controllers: []nvmeioctl.Device{d, second}, Clock: nvmeioctl.NewSystemClock(),
		Limits: Limits{PDU: 2 * time.Second, Handshake: 2 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// peer is a host's end of one connection.
type peer struct {
	t              testing.TB
	host           net.Conn
	cancel         context.CancelFunc
	ended, drained chan struct{}
}

// join makes a connection to the target.
func join(t testing.TB, target *Target) *peer {
	t.Helper()
	host, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := target.admit(ctx, far)
	if c == nil {
		t.Fatal("a connection was not let in")
	}
	p := &peer{t: t, host: host, cancel: cancel, ended: make(chan struct{}), drained: make(chan struct{})}
	go func() {
		defer close(p.ended)
		c.run()
	}()
	return p
}

// greet sends PDUs one by one, each when the one before has been answered, and
// returns the last answer.
func (p *peer) greet(pdus ...[]byte) (answer []byte) {
	p.t.Helper()
	for _, b := range pdus {
		if _, err := p.host.Write(b); err != nil {
			p.t.Fatalf("greeting: %v", err)
		}
		answer = make([]byte, commonBytes)
		if _, err := io.ReadFull(p.host, answer); err != nil {
			p.t.Fatalf("answer to the greeting: %v", err)
		}
		rest := make([]byte, int64(binary.LittleEndian.Uint32(answer[4:]))-commonBytes)
		if _, err := io.ReadFull(p.host, rest); err != nil {
			p.t.Fatalf("answer to the greeting: %v", err)
		}
		answer = append(answer, rest...)
	}
	return answer
}

// play sends a stream and hangs up; whatever comes meanwhile is thrown away.
func (p *peer) play(stream []byte) {
	go func() {
		defer close(p.drained)
		_, _ = io.Copy(io.Discard, p.host)
	}()
	_, _ = p.host.Write(stream)
	_ = p.host.Close()
}

// wait waits for the end of the connection, which must come soon.
func (p *peer) wait(stream []byte) {
	p.t.Helper()
	defer p.cancel()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("the connection does not end; stream % x", stream)
	}
	<-p.drained
}

// play sends a greeting and a stream to the target, and says how many PDUs of
// the stream were taken in. With ofIO the stream is that of an I/O queue beside
// the admin queue that the greeting makes. Nothing may be left behind.
func play(t testing.TB, target *Target, d digests, greeting [][]byte, ofIO bool, stream []byte) (pdus uint64) {
	t.Helper()
	admin := join(t, target)
	answer := admin.greet(greeting[:min(len(greeting), 2)]...)
	if len(greeting) > 2 {
		admin.greet(greeting[2:]...)
	}
	if !ofIO {
		before := target.pdus.Load()
		admin.play(stream)
		admin.wait(stream)
		pdus = target.pdus.Load() - before
	} else {
		q := join(t, target)
		cntlid := binary.LittleEndian.Uint16(answer[commonBytes:])
		taken := q.greet(greeting[0], connectFrame(d, target.SubsystemNQN(), 1, cntlid))
		if status := binary.LittleEndian.Uint16(taken[commonBytes+14:]) >> 1; status != 0 {
			t.Fatalf("an I/O queue was refused: %#x", status)
		}
		before := target.pdus.Load()
		q.play(stream)
		q.wait(stream)
		pdus = target.pdus.Load() - before
		admin.play(nil)
		admin.wait(nil)
	}
	if s := target.Stats(); s.Connections != 0 || s.Sessions != 0 {
		t.Fatalf("left behind: %+v; stream % x", s, stream)
	}
	return pdus
}

// greeting is a valid beginning: the handshake and, if connect, an admin queue
// with an enabled controller, or one of the discovery subsystem.
func greeting(d digests, connect, discovery bool, target *Target) [][]byte {
	ic := make([]byte, icBytes)
	putCommon(ic, pduICReq, 0, icBytes, 0, icBytes)
	if d.header {
		ic[atDigest] |= 1
	}
	if d.data {
		ic[atDigest] |= 2
	}
	if !connect {
		return [][]byte{ic}
	}
	name := target.SubsystemNQN()
	if discovery {
		name = DiscoveryNQN
	}
	cc := make([]byte, sqeBytes)
	cc[0], cc[1], cc[2] = opFabrics, psdtSGL, 1
	binary.LittleEndian.PutUint32(cc[44:], propCC)
	binary.LittleEndian.PutUint32(cc[48:], ccFixedValue|ccEnable)
	return [][]byte{ic, connectFrame(d, name, 0, 0xFFFF), frame(pduCapsuleCmd, cc, nil, 0, d)}
}

// connectFrame is a valid Connect: of the admin queue with a CNTLID of FFFFh, else
// of an I/O queue of that controller.
func connectFrame(d digests, subsystem string, qid, cntlid uint16) []byte {
	s := make([]byte, sqeBytes)
	s[0], s[1], s[4] = opFabrics, psdtSGL, fabricConnect
	binary.LittleEndian.PutUint32(s[32:], connectBytes)
	s[39] = sglInCapsule
	binary.LittleEndian.PutUint16(s[atConnectQID:], qid)
	binary.LittleEndian.PutUint16(s[atConnectSQSize:], 31)
	data := make([]byte, connectBytes)
	binary.LittleEndian.PutUint16(data[atConnectCNTLID:], cntlid)
	copy(data[atConnectSubNQN:], subsystem)
	copy(data[atConnectHostNQN:], "nqn.2014-08.org.nvmexpress:fuzz")
	return frame(pduCapsuleCmd, s, data, 0, d)
}

// frame makes a well-formed PDU around the rest of a header and data.
func frame(typ uint8, rest, data []byte, flags uint8, d digests) []byte {
	b := append(make([]byte, commonBytes), rest...)
	header, length, offset := len(b), len(b), 0
	if d.header {
		flags |= flagHeaderDigest
		length += digestBytes
	}
	if len(data) > 0 {
		offset = length
		length += len(data)
		if d.data {
			flags |= flagDataDigest
			length += digestBytes
		}
	}
	putCommon(b, typ, flags, uint8(header), uint8(offset), uint32(length))
	if d.header {
		b = appendHeaderDigest(b, 0)
	}
	b = append(b, data...)
	if len(data) > 0 && d.data {
		b = binary.LittleEndian.AppendUint32(b, crc32c(data))
	}
	return b
}

// script turns bytes into PDUs: most are well formed around a command that may
// be anything, since one that is not ends the connection; some are not.
type script struct {
	b      []byte
	d      digests
	ofIO   bool // its commands are those of an I/O queue
	stream []byte
	cid    uint16
}

// take takes n bytes, zeros when they run out.
func (s *script) take(n int) []byte {
	part := make([]byte, n)
	s.b = s.b[copy(part, s.b):]
	return part
}

// play makes the whole stream.
func (s *script) play() []byte {
	for len(s.b) > 0 {
		op := s.take(1)[0]
		kind, variant := op%32, op/32
		switch {
		case kind == 0 && variant == 0:
			s.stream = append(s.stream, s.take(int(s.take(1)[0]))...)
		case kind == 0 && variant < 4: // one byte of a header is wrong
			at := len(s.stream)
			s.command(1)
			s.stream[at+int(s.take(1)[0]%commonBytes)] = s.take(1)[0]
		case kind == 0:
			h := s.take(dataHdrBytes - commonBytes)
			s.stream = append(s.stream, frame(pduH2CData, h, s.take(16), variant&flagLastData, s.d)...)
		case kind < 8:
			s.write(variant)
		default:
			s.command(variant)
		}
	}
	return s.stream
}

// entry makes a submission queue entry of few bytes.
func (s *script) entry(opcode uint8, sgl uint8, length int) []byte {
	e := make([]byte, sqeBytes)
	s.cid++
	e[0], e[1] = opcode, psdtSGL
	binary.LittleEndian.PutUint16(e[2:], s.cid%64)
	e[4], e[39] = s.take(1)[0], sgl
	binary.LittleEndian.PutUint32(e[32:], uint32(length))
	for _, at := range []int{40, 41, 42, 43, 44, 45, 48, 52} {
		e[at] = s.take(1)[0]
	}
	if s.ofIO && e[4]%8 != 0 { // a namespace and blocks that there are
		e[4], e[44], e[45] = 1, 0, 0
		if e[52]%4 != 0 {
			e[52] = 0 // CDW13: hints of Write
		}
	}
	return e
}

// fit makes the length of a transfer that of so many blocks, or leaves it as it
// is: one command in eight.
func (s *script) fit(length int) (blocks uint8, bytes int) {
	b := s.take(1)[0]
	if !s.ofIO || b%8 == 0 {
		return b, length
	}
	return b >> 4, (int(b>>4) + 1) * 512
}

// write is a command whose data comes by R2T, and the data: in parts, all of
// it or too little.
func (s *script) write(variant uint8) {
	opcodes := []uint8{0x01, 0x09, 0x0D, 0x11, 0x15, 0x81, 0x19, 0x05}
	if s.ofIO {
		opcodes = []uint8{0x01, 0x01, 0x05, 0x09, 0x19, 0x01, 0x0D, 0x05}
	}
	p := s.take(2)
	blocks, length := s.fit(int(binary.LittleEndian.Uint16(p))%8192&^3 + 4)
	e := s.entry(opcodes[variant], sglTransport, length)
	e[48] = blocks
	s.stream = append(s.stream, frame(pduCapsuleCmd, e, nil, 0, s.d)...)
	parts := int(s.take(1)[0] % 4)
	for i, at := 0, 0; i < parts && at < length; i++ {
		n := min(length-at, max(4, length/parts&^3))
		if i == 2 {
			n = length - at
		}
		h := make([]byte, dataHdrBytes-commonBytes)
		binary.LittleEndian.PutUint16(h[0:], s.cid%64)
		binary.LittleEndian.PutUint16(h[2:], s.cid%64)
		binary.LittleEndian.PutUint32(h[4:], uint32(at))
		binary.LittleEndian.PutUint32(h[8:], uint32(n))
		if wrong := s.take(1)[0]; wrong > 0xF0 { // data that was not asked for
			copy(h[4:8], s.take(4))
		}
		at += n
		flags := uint8(0)
		if at == length {
			flags = flagLastData
		}
		s.stream = append(s.stream, frame(pduH2CData, h, make([]byte, n), flags, s.d)...)
	}
}

// command is a command of any kind, with data in its capsule or for the host.
func (s *script) command(variant uint8) {
	known := []uint8{0x02, 0x06, 0x0A, 0x0C, 0x08, 0x18, 0x09, 0x0D, 0x14, 0x15, 0x80, 0x10, opFabrics, opFabrics, 0x01, 0x00}
	if s.ofIO {
		known = []uint8{0x02, 0x02, 0x02, 0x02, 0x01, 0x01, 0x05, 0x09, 0x00, 0x00, 0x04, 0x08, 0x0C, 0x19, 0x0E, opFabrics}
	}
	opcode := s.take(1)[0]
	if opcode < 0xE0 {
		opcode = known[opcode%16]
	}
	blocks, length := s.fit(int(binary.LittleEndian.Uint16(s.take(2))) % 9000 &^ 3)
	var data []byte
	sgl := uint8(sglTransport)
	switch {
	case variant == 0:
		sgl = s.take(1)[0]
	case variant < 3 && length <= inCapsuleMax:
		sgl, data = sglInCapsule, make([]byte, length)
		copy(data, s.take(min(length, 16)))
	case opcode&3 == 1:
		length = 0
	}
	e := s.entry(opcode, sgl, length)
	if s.ofIO {
		e[48] = blocks
	}
	if variant == 7 && s.take(1)[0] > 0xE0 { // anything may be wrong
		copy(e[1:], s.take(sqeBytes-1))
	}
	s.stream = append(s.stream, frame(pduCapsuleCmd, e, data, 0, s.d)...)
}

// Bits of the first byte of an input of FuzzPDU.
const (
	fuzzHeaderDigest = 1 << iota
	fuzzDataDigest
	fuzzConnect
	fuzzDiscovery
	fuzzNoGreeting
	fuzzIO // of an I/O queue beside the admin queue
)

// playInput plays the stream that an input of FuzzPDU stands for; ofIO says that
// it was that of an I/O queue.
func playInput(t testing.TB, target *Target, b []byte) (pdus uint64, ofIO bool) {
	t.Helper()
	mode := b[0]
	d := digests{header: mode&fuzzHeaderDigest != 0, data: mode&fuzzDataDigest != 0}
	ofIO = mode&fuzzIO != 0
	var begin [][]byte
	switch {
	case ofIO:
		begin = greeting(d, true, false, target)
	case mode&fuzzNoGreeting == 0:
		begin = greeting(d, mode&fuzzConnect != 0, mode&fuzzDiscovery != 0, target)
	}
	return play(t, target, d, begin, ofIO, (&script{b: b[1:], d: d, ofIO: ofIO}).play()), ofIO
}

// FuzzPDU plays hostile streams: the first byte chooses digests and whether a
// valid Connect comes first, of an admin or of an I/O queue.
func FuzzPDU(f *testing.F) {
	target := fuzzTarget(f)
	f.Add([]byte{0})
	f.Add([]byte{7, 3, 0x06, 0, 1, 0, 0, 16, 0, 0, 0, 0, 1})
	f.Add(append([]byte{fuzzNoGreeting, 0, 128}, greeting(digests{}, false, false, target)[0]...))
	f.Add([]byte{7, 11, 0x15, 0, 1, 0, 0, 4, 1, 0, 0, 0, 25, 1, 0, 1, 0, 0, 0, 0, 0})
	for _, mode := range []byte{fuzzIO, fuzzIO | fuzzHeaderDigest | fuzzDataDigest} {
		f.Add([]byte{mode, 8, 0, 0, 2, 0x71, 1, 0, 0, 0, 0, 0, 0, 0, 0})                                                    // a read
		f.Add([]byte{mode, 1, 0, 8, 0x71, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0})                                           // a write by R2T
		f.Add([]byte{mode, 0x28, 4, 0, 2, 0x71, 9, 9, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}) // one in a capsule, a flush
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 4096 {
			return
		}
		playInput(t, target, b)
	})
}

// number is a number from the environment.
func number(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return standard
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRandomPDUs plays random streams of PDUs, most of them those of an I/O queue
// after its Connect: $NVOP_FUZZ_PDUS of them, else few enough for every run of the
// tests. Counted are PDUs that were well formed.
func TestRandomPDUs(t *testing.T) {
	want, seed := number(t, "NVOP_FUZZ_PDUS", 20_000), number(t, "NVOP_FUZZ_SEED", 1)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	target := fuzzTarget(t)
	descriptors := openDescriptors(t)
	ofIO := uint64(0)
	for target.pdus.Load() < want {
		b := make([]byte, 16+random.IntN(1000))
		for i := range b {
			b[i] = byte(random.Uint32())
			if random.IntN(3) == 0 {
				b[i] &= 0x1F // small numbers get further
			}
		}
		b[0] = byte(random.Uint32()) // a quarter of the streams without an I/O queue
		if random.IntN(2) == 0 {
			b[0] |= fuzzIO
		}
		if n, io := playInput(t, target, b); io {
			ofIO += n
		}
	}
	total := target.pdus.Load()
	t.Logf("%d PDUs, %d of them after a valid Connect of an I/O queue, %d commands carried out", total, ofIO, target.commands.Load())
	if ofIO*2 < total {
		t.Error("less than half of the PDUs came after a valid Connect of an I/O queue")
	}
	if now := openDescriptors(t); now > descriptors {
		t.Errorf("%d open descriptors, %d before", now, descriptors)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}
