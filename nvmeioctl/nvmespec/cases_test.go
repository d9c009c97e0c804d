package nvmespec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// LOG-19, SYS-09: what a drive sends is little-endian, byte by byte, whatever the
// host is: the error log's fields and the words of other logs.
func TestCase_LOG19_SYS09_littleEndian(t *testing.T) {
	b := make([]byte, 64)
	copy(b, []byte{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44, 0x02, 0x41, 0x55, 0x66})
	copy(b[16:], []byte{0xF0, 0xDE, 0xBC, 0x9A, 0x78, 0x56, 0x34, 0x12, 0x0A, 0x0B, 0x0C, 0x0D})
	log, err := nvmespec.DecodeErrorLog(b)
	if err != nil || len(log) != 1 {
		t.Fatalf("%v: %+v", err, log)
	}
	e := log[0]
	if e.Count != 0x0807060504030201 || e.QueueID != 0x2211 || e.CommandID != 0x4433 || e.LBA != 0x123456789ABCDEF0 || e.NSID != 0x0D0C0B0A {
		t.Errorf("%+v", e)
	}
}

// SMART-03: the size of a namespace is 64 bits without a sign, also where it is
// printed.
func TestCase_SMART03_sizesHaveNoSign(t *testing.T) {
	b := make([]byte, nvmespec.IdentifySize)
	for i := range 24 {
		b[i] = 0xFF
	}
	b[7], b[15], b[23] = 0x80, 0x80, 0x80
	n, err := nvmespec.DecodeNamespace(b)
	if err != nil || n.SizeBlocks != 0x80FFFFFFFFFFFFFF {
		t.Fatalf("%v: %d", err, n.SizeBlocks)
	}
	text, err := json.Marshal(n)
	if err != nil || !strings.Contains(string(text), "9295429630892703743") || strings.Contains(string(text), ":-") {
		t.Errorf("%v: %s", err, text)
	}
}
