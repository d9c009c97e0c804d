package nvmespec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// statusTable is every status of the specification that the project has to name,
// by number.
func statusTable() map[uint16]string {
	return map[uint16]string{
		0x000: "success", 0x001: "opcode", 0x002: "field", 0x004: "data transfer", 0x006: "internal", 0x007: "abort",
		0x00B: "namespace or format", 0x00C: "sequence", 0x01C: "sanitize failed", 0x01D: "sanitize in progress",
		0x020: "write protected", 0x080: "out of range", 0x081: "capacity exceeded", 0x082: "not ready", 0x084: "format in progress",
		0x106: "firmware slot", 0x107: "firmware image", 0x109: "log page", 0x10A: "invalid format",
		0x10B: "conventional reset", 0x10D: "not saveable", 0x10E: "not changeable", 0x10F: "not namespace specific",
		0x110: "subsystem reset", 0x111: "controller reset", 0x112: "maximum time", 0x113: "prohibited", 0x114: "overlapping",
		0x115: "insufficient capacity", 0x116: "identifier unavailable", 0x118: "already attached", 0x119: "private",
		0x11A: "not attached", 0x11B: "thin provisioning", 0x11C: "controller list", 0x11D: "self-test in progress",
		0x11F: "controller identifier", 0x124: "ANA group", 0x125: "ANA attach", 0x126: "insufficient capacity", 0x127: "attachment limit",
		0x129: "not supported", 0x12A: "not enabled", 0x12B: "combination", 0x12C: "invalid I/O command set",
		0x280: "write fault", 0x281: "unrecovered read", 0x282: "guard", 0x285: "compare", 0x286: "access denied",
		0x300: "path", 0x301: "persistent loss", 0x302: "inaccessible", 0x303: "transition", 0x370: "host pathing", 0x371: "by host",
	}
}

func TestStatus_names(t *testing.T) { // SYS-04
	names := map[string]uint16{}
	for code, want := range statusTable() {
		s := nvmespec.Status(code)
		name := s.Name()
		if !strings.Contains(name, want) || strings.HasPrefix(name, "unknown") {
			t.Errorf("%#03x is %q, want %q in it", code, name, want)
		}
		if other, ok := names[name]; ok {
			t.Errorf("%#03x and %#03x are both %q", code, other, name)
		}
		names[name] = code
		if code != 0 && !strings.Contains(s.Err().Error(), fmt.Sprintf("0x%03x", code)) {
			t.Errorf("%#03x: error without the number: %v", code, s.Err())
		}
	}
	for s, want := range map[nvmespec.Status]string{0x0FE: "unknown generic status", 0x1FE: "unknown command specific status",
		0x2FE: "unknown media or data integrity status", 0x3FE: "unknown path status", 0x4FE: "status of unknown type", 0x7FE: "vendor specific status"} {
		if s.Name() != want {
			t.Errorf("%#x is %q, want %q", uint16(s), s.Name(), want)
		}
	}
}

func TestStatus_bits(t *testing.T) {
	s := nvmespec.Status(0x7115) // DNR, More, CRD 2
	if s.Code() != 0x115 || s.SC() != 0x15 || s.SCT() != 1 || s.CRD() != 2 || !s.More() || !s.DNR() {
		t.Errorf("%#x: code %#x sc %#x sct %d crd %d more %v dnr %v", uint16(s), uint16(s.Code()), s.SC(), s.SCT(), s.CRD(), s.More(), s.DNR())
	}
	if nvmespec.Status(0x4000).Err() != nil {
		t.Error("success with DNR is success")
	}
	if got := s.Err().Error(); got != "controller answered namespace insufficient capacity (0x115, do not retry, more in the error log)" {
		t.Errorf("text %q", got)
	}
	b, err := json.Marshal(s)
	var back nvmespec.Status
	if err != nil || json.Unmarshal(b, &back) != nil || back != s {
		t.Errorf("JSON %s, %v, back %#x", b, err, uint16(back))
	}
}

func TestStatusError_is(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", nvmespec.Status(0x6115).Err())
	if !errors.Is(err, nvmespec.ErrInsufficientCapacity) || errors.Is(err, nvmespec.ErrNSIDUnavailable) {
		t.Error("errors.Is compares by code, whatever DNR and More say")
	}
	var status nvmespec.StatusError
	if !errors.As(err, &status) || status.Status != 0x6115 || status.ExitCode() != 6 {
		t.Errorf("errors.As: %+v", status)
	}
	if errors.Is(nvmespec.ErrInvalidField, io.EOF) {
		t.Error("another error")
	}
}

func TestStatusError_retryable(t *testing.T) {
	for s, want := range map[nvmespec.Status]bool{
		0x4006: false, 0x006: true, 0x00B: true, 0x400B: false, 0x002: false, 0x115: false, 0x082: true, 0x084: true, 0x01D: true,
		0x022: true, 0x4022: false, 0x302: true, 0x4302: false, 0x11C: false, 0x281: false,
	} {
		if got := (nvmespec.StatusError{Status: s}).Retryable(); got != want {
			t.Errorf("%#x retryable: %v", uint16(s), got)
		}
	}
}

func TestStatus_resetPending(t *testing.T) { // FW-01
	for s, want := range map[nvmespec.Status]string{0x10B: "conventional", 0x410B: "conventional", 0x110: "subsystem", 0x111: "controller", 0x112: "", 0: ""} {
		if got, ok := s.ResetPending(); got != want || ok != (want != "") {
			t.Errorf("%#x: %q %v", uint16(s), got, ok)
		}
	}
}
