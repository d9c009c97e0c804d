package nvmespec_test

import (
	"errors"
	"fmt"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// TestFixture_realSelfTestLog: twenty results of a WD SN550, as another program
// reads the same bytes.
func TestFixture_realSelfTestLog(t *testing.T) {
	param := wdParams(t)
	l, err := nvmespec.DecodeSelfTestLog(wdRaw(t, "log page 0x06"))
	if err != nil || l.Running() || len(l.Results) != 20 {
		t.Fatalf("%d results, running %v, %v", len(l.Results), l.Running(), err)
	}
	kinds := map[nvmespec.SelfTestCode]string{nvmespec.SelfTestShort: "Short Test", nvmespec.SelfTestExtended: "Extended Test"}
	for i, r := range l.Results {
		name := func(s string) string { return fmt.Sprintf("Self-Test %d %s", i+1, s) }
		compareParams(t, param, map[string]any{
			name("Power On Hours"): r.PowerOnHours, name("Result Code"): uint8(r.Outcome), name("Type"): kinds[r.Code],
		})
	}
}

// TestFixture_noTelemetry: the same drive announces telemetry, and what it sends
// is none: other bytes of its memory. They must not be read as sizes.
func TestFixture_noTelemetry(t *testing.T) {
	for _, file := range []string{"log-07-telemetry-host-header.bin", "log-08-telemetry-ctrl-header.bin"} {
		if h, err := nvmespec.DecodeTelemetryHeader(readFixture(t, "nvmetools", file)); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%s: %+v, %v", file, h, err)
		}
	}
}
