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

// play sends a greeting and a stream to the target as one connection and waits
// for its end, which must come soon and leave nothing behind. The stream comes
// when the greeting has been answered.
func play(t testing.TB, target *Target, greeting [][]byte, stream []byte) {
	t.Helper()
	host, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := target.admit(ctx, far)
	if c == nil {
		t.Fatal("a connection was not let in")
	}
	ended, drained := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.run()
	}()
	for _, b := range greeting {
		if _, err := host.Write(b); err != nil {
			t.Fatalf("greeting: %v", err)
		}
		answer := make([]byte, commonBytes)
		if _, err := io.ReadFull(host, answer); err != nil {
			t.Fatalf("answer to the greeting: %v", err)
		}
		if _, err := io.CopyN(io.Discard, host, int64(binary.LittleEndian.Uint32(answer[4:]))-commonBytes); err != nil {
			t.Fatalf("answer to the greeting: %v", err)
		}
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, host)
	}()
	_, _ = host.Write(stream)
	_ = host.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("the connection does not end; stream % x", stream)
	}
	<-drained
	if s := target.Stats(); s.Connections != 0 || s.Sessions != 0 {
		t.Fatalf("left behind: %+v; stream % x", s, stream)
	}
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
	s := make([]byte, sqeBytes)
	s[0], s[1], s[4] = opFabrics, psdtSGL, fabricConnect
	binary.LittleEndian.PutUint32(s[32:], connectBytes)
	s[39] = sglInCapsule
	binary.LittleEndian.PutUint16(s[44:], 31)
	data := make([]byte, connectBytes)
	data[atConnectCNTLID], data[atConnectCNTLID+1] = 0xFF, 0xFF
	name := target.SubsystemNQN()
	if discovery {
		name = DiscoveryNQN
	}
	copy(data[atConnectSubNQN:], name)
	copy(data[atConnectHostNQN:], "nqn.2014-08.org.nvmexpress:fuzz")
	cc := make([]byte, sqeBytes)
	cc[0], cc[1], cc[2] = opFabrics, psdtSGL, 1
	binary.LittleEndian.PutUint32(cc[44:], propCC)
	binary.LittleEndian.PutUint32(cc[48:], ccFixedValue|ccEnable)
	return [][]byte{ic, frame(pduCapsuleCmd, s, data, 0, d), frame(pduCapsuleCmd, cc, nil, 0, d)}
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
	return e
}

// write is a command whose data comes by R2T, and the data: in parts, all of
// it or too little.
func (s *script) write(variant uint8) {
	opcodes := []uint8{0x01, 0x09, 0x0D, 0x11, 0x15, 0x81, 0x19, 0x05}
	p := s.take(2)
	length := int(binary.LittleEndian.Uint16(p))%8192&^3 + 4
	s.stream = append(s.stream, frame(pduCapsuleCmd, s.entry(opcodes[variant], sglTransport, length), nil, 0, s.d)...)
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
	opcode := s.take(1)[0]
	if opcode < 0xE0 {
		opcode = known[opcode%16]
	}
	length := int(binary.LittleEndian.Uint16(s.take(2))) % 9000 &^ 3
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
	if variant == 7 && s.take(1)[0] > 0xE0 { // anything may be wrong
		copy(e[1:], s.take(sqeBytes-1))
	}
	s.stream = append(s.stream, frame(pduCapsuleCmd, e, data, 0, s.d)...)
}

// FuzzPDU plays hostile streams: the first byte chooses digests and whether a
// valid Connect comes first.
func FuzzPDU(f *testing.F) {
	target := fuzzTarget(f)
	f.Add([]byte{0})
	f.Add([]byte{7, 3, 0x06, 0, 1, 0, 0, 16, 0, 0, 0, 0, 1})
	f.Add(append([]byte{0x10, 0, 128}, greeting(digests{}, false, false, target)[0]...))
	f.Add([]byte{7, 11, 0x15, 0, 1, 0, 0, 4, 1, 0, 0, 0, 25, 1, 0, 1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 4096 {
			return
		}
		d := digests{header: b[0]&1 != 0, data: b[0]&2 != 0}
		var begin [][]byte
		if b[0]&0x10 == 0 {
			begin = greeting(d, b[0]&4 != 0, b[0]&8 != 0, target)
		}
		play(t, target, begin, (&script{b: b[1:], d: d}).play())
	})
}

// TestRandomPDUs plays random streams of PDUs, most after a valid Connect:
// $NVOP_FUZZ_PDUS of them, else few enough for every run of the tests.
func TestRandomPDUs(t *testing.T) {
	want := uint64(20_000)
	if v := os.Getenv("NVOP_FUZZ_PDUS"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = n
	}
	seed := uint64(1)
	if v := os.Getenv("NVOP_FUZZ_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	target := fuzzTarget(t)
	descriptors := openDescriptors(t)
	connected := uint64(0)
	for total := target.pdus.Load(); total < want; {
		b := make([]byte, 16+random.IntN(1000))
		for i := range b {
			b[i] = byte(random.Uint32())
			if random.IntN(3) == 0 {
				b[i] &= 0x1F // small numbers get further
			}
		}
		d := digests{header: b[0]&1 != 0, data: b[0]&2 != 0}
		connect := b[0]&0xE0 != 0
		play(t, target, greeting(d, connect, b[0]&0x1C == 0, target), (&script{b: b[1:], d: d}).play())
		now := target.pdus.Load()
		if connect {
			connected += now - total - 1
		}
		total = now
	}
	total := target.pdus.Load()
	t.Logf("%d PDUs, %d of them after a valid Connect, %d commands carried out", total, connected, target.commands.Load())
	if connected*2 < total {
		t.Error("less than half of the PDUs came after a valid Connect")
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
