package admin_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// A log of 15 bytes and 5 more behind an announced end: read in pieces that
// follow one another, and cut.
func TestGetSizedLog(t *testing.T) {
	length := func(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) }
	read := func(offset, n uint32, in []byte) step {
		return step{op: 0x02, nsid: 0xFFFFFFFF, cdw10: 0x0E | 1<<15 | (n/4-1)<<16, cdw12: offset, timeout: admin.LogTimeout, in: in, length: int(n)}
	}
	r := admin.LogRequest{NSID: nvmespec.BroadcastNSID, Extended: true, MaxTransferBytes: 4096,
		Fields: nvmespec.GetLogFields{Log: nvmespec.LogIDLBAStatus, RetainEvent: true, LengthBytes: 8}}
	s := newScript(t, read(0, 8, []byte{15, 0, 0, 0, 4, 5, 6, 7}), read(8, 8, []byte{8, 9, 10, 11, 12, 13, 14, 15}))
	b, err := admin.GetSizedLog(t.Context(), s, r, length)
	if err != nil || !bytes.Equal(b, []byte{15, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}) {
		t.Errorf("%v, %v", b, err)
	}
	s = newScript(t, read(0, 8, []byte{5, 0, 0, 0, 4, 5, 6, 7}))
	if b, err = admin.GetSizedLog(t.Context(), s, r, length); err != nil || len(b) != 5 {
		t.Errorf("a shorter one: %v, %v", b, err)
	}
	s = newScript(t, read(0, 8, []byte{255, 255, 255, 255, 4, 5, 6, 7}))
	if _, err = admin.GetSizedLog(t.Context(), s, r, length); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("4 GiB of log: %v", err)
	}
	s = newScript(t, step{op: 0x02, nsid: 0xFFFFFFFF, cdw10: 0x0E | 1<<15 | 1<<16, timeout: admin.LogTimeout, length: 8, status: nvmespec.StatusInvalidLogPage})
	if _, err = admin.GetSizedLog(t.Context(), s, r, length); !errors.Is(err, nvmespec.ErrInvalidLogPage) {
		t.Errorf("no such log: %v", err)
	}
	r.Extended = false
	s = newScript(t, read(0, 8, []byte{15, 0, 0, 0, 4, 5, 6, 7}))
	if _, err = admin.GetSizedLog(t.Context(), s, r, length); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("without offsets: %v", err)
	}
}
