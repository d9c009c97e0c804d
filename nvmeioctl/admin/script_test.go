package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
)

// step is one command expected and what is answered.
type step struct {
	op                                       uint8
	nsid                                     uint32
	cdw10, cdw11, cdw12, cdw13, cdw14, cdw15 uint32
	timeout                                  time.Duration
	out                                      []byte // data that must arrive; nil for none
	in                                       []byte // answered data, may be shorter than the buffer
	length                                   int    // of the buffer of a command that reads
	status                                   nvmespec.Status
	result                                   uint64
	err                                      error
}

// script is a device that expects its steps in order.
type script struct {
	t     *testing.T
	steps []step
	sent  int
}

func newScript(t *testing.T, steps ...step) *script {
	s := &script{t: t, steps: steps}
	t.Cleanup(func() {
		if s.sent != len(s.steps) {
			t.Errorf("%d of %d commands were sent", s.sent, len(s.steps))
		}
	})
	return s
}

func (s *script) String() string { return "script" }
func (s *script) Close() error   { return nil }

func (s *script) Submit(_ context.Context, cmd *nvmeioctl.Command) (nvmeioctl.Completion, error) {
	s.t.Helper()
	if s.sent >= len(s.steps) {
		s.t.Errorf("unexpected command %d: opcode %#02x", s.sent+1, cmd.Opcode)
		return nvmeioctl.Completion{Status: nvmespec.StatusInternal | nvmespec.StatusDNR}, nil
	}
	want := s.steps[s.sent]
	s.sent++
	got := fmt.Sprintf("io %v op %02x nsid %x cdw2 %x %x cdw10 %x %x %x %x %x %x timeout %v metadata %d", cmd.IO, cmd.Opcode, cmd.NSID,
		cmd.CDW2, cmd.CDW3, cmd.CDW10, cmd.CDW11, cmd.CDW12, cmd.CDW13, cmd.CDW14, cmd.CDW15, cmd.Timeout, len(cmd.Metadata))
	wantText := fmt.Sprintf("io false op %02x nsid %x cdw2 0 0 cdw10 %x %x %x %x %x %x timeout %v metadata 0", want.op, want.nsid,
		want.cdw10, want.cdw11, want.cdw12, want.cdw13, want.cdw14, want.cdw15, want.timeout)
	if got != wantText {
		s.t.Errorf("command %d:\n got %s\nwant %s", s.sent, got, wantText)
	}
	if cmd.WritesToDevice() {
		if !bytes.Equal(cmd.Data, want.out) {
			s.t.Errorf("command %d: %d bytes of data differ from the %d expected", s.sent, len(cmd.Data), len(want.out))
		}
	} else if len(cmd.Data) != want.length {
		s.t.Errorf("command %d: buffer of %d bytes, want %d", s.sent, len(cmd.Data), want.length)
	}
	if cmd.ReadsFromDevice() {
		copy(cmd.Data, want.in)
	}
	return nvmeioctl.Completion{Status: want.status, Result: want.result}, want.err
}

// page is 4096 bytes with content at offsets: a page written without nvmespec.
func page(at map[int][]byte) []byte { return sized(4096, at) }

func sized(n int, at map[int][]byte) []byte {
	b := make([]byte, n)
	for off, data := range at {
		copy(b[off:], data)
	}
	return b
}

func le16(v uint16) []byte { return []byte{byte(v), byte(v >> 8)} }
func le32(v uint32) []byte { return append(le16(uint16(v)), le16(uint16(v>>16))...) }
func le64(v uint64) []byte { return append(le32(uint32(v)), le32(uint32(v>>32))...) }
