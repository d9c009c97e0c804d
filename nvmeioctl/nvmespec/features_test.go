package nvmespec_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nvop/nvmeioctl/nvmespec"
)

func TestFeature_dwords(t *testing.T) {
	for name, tc := range map[string]struct {
		dword uint32
		want  any
		back  interface{ Dword() uint32 }
		id    nvmespec.FeatureID
	}{
		"power management": {0x45, nvmespec.PowerManagement{State: 5, Workload: 2}, nvmespec.PowerManagement{State: 5, Workload: 2}, 0x02},
		"temperature": {1<<20 | 3<<16 | 343, nvmespec.TemperatureThreshold{Temperature: some[nvmespec.Celsius](70), Sensor: 3, Under: true},
			nvmespec.TemperatureThreshold{Temperature: some[nvmespec.Celsius](70), Sensor: 3, Under: true}, 0x04},
		"error recovery": {1<<16 | 25, nvmespec.ErrorRecovery{RetryMilliseconds: 2500, DeallocatedErrors: true},
			nvmespec.ErrorRecovery{RetryMilliseconds: 2500, DeallocatedErrors: true}, 0x05},
		"write cache": {1, nvmespec.WriteCache{Enabled: true}, nvmespec.WriteCache{Enabled: true}, 0x06},
		"queues are counted from 0": {0x003F_007F, nvmespec.QueueCount{Submission: 128, Completion: 64},
			nvmespec.QueueCount{Submission: 128, Completion: 64}, 0x07},
		"coalescing": {0x0A07, nvmespec.InterruptCoalescing{Threshold: 8, Microseconds: 1000},
			nvmespec.InterruptCoalescing{Threshold: 8, Microseconds: 1000}, 0x08},
		"arbitration": {0xFF0F0703, nvmespec.Arbitration{BurstLog2: 3, LowWeight: 8, MediumWeight: 16, HighWeight: 256},
			nvmespec.Arbitration{BurstLog2: 3, LowWeight: 8, MediumWeight: 16, HighWeight: 256}, 0x01},
		"async events": {0x301, nvmespec.AsyncEventConfig{Events: 0x301}, nvmespec.AsyncEventConfig{Events: 0x301}, 0x0B},
	} {
		got, err := nvmespec.DecodeFeature(tc.id, tc.dword, nil)
		if d := cmp.Diff(tc.want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
		if tc.back.Dword() != tc.dword {
			t.Errorf("%s: dword %#x, want %#x", name, tc.back.Dword(), tc.dword)
		}
	}
	if got, _ := nvmespec.DecodeFeature(0xC6, 7, []byte{1}); cmp.Diff(nvmespec.RawFeature{Dword: 7, Data: []byte{1}}, got) != "" {
		t.Errorf("a feature without a type: %#v", got)
	}
}

func TestFeature_dwordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dw := rapid.Uint32().Draw(t, "dword")
		for _, v := range []interface{ Dword() uint32 }{nvmespec.DecodePowerManagement(dw), nvmespec.DecodeTemperatureThreshold(dw),
			nvmespec.DecodeErrorRecovery(dw), nvmespec.DecodeWriteCache(dw), nvmespec.DecodeQueueCount(dw),
			nvmespec.DecodeInterruptCoalescing(dw), nvmespec.DecodeArbitration(dw), nvmespec.DecodeFeatureCaps(dw)} {
			if back := v.Dword(); back&^dw != 0 {
				t.Fatalf("%T of %#x encodes as %#x: bits that were not there", v, dw, back)
			}
		}
	})
}

func TestAPST_enabledOverZeros(t *testing.T) { // PWR-08
	a, err := nvmespec.DecodeAPST(1, make([]byte, 256))
	if err != nil || !a.Enabled || a.Transits() {
		t.Errorf("enabled over zeros never transits: %+v %v", a, err)
	}
	b := make([]byte, 256)
	binary.LittleEndian.PutUint64(b[8*2:], 4<<3|1500<<8)
	if a, err = nvmespec.DecodeAPST(1, b); err != nil || !a.Transits() {
		t.Errorf("transits: %+v %v", a, err)
	}
	if want := (nvmespec.APSTTransition{Target: 4, IdleMilliseconds: 1500}); a.Transitions[2] != want {
		t.Errorf("entry 2 is %+v", a.Transitions[2])
	}
	if d := cmp.Diff(b, a.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
	if a, _ = nvmespec.DecodeAPST(0, b); a.Transits() {
		t.Error("switched off")
	}
	if _, err := nvmespec.DecodeAPST(1, b[:7]); !errors.Is(err, nvmespec.ErrShort) {
		t.Errorf("short: %v", err)
	}
}

func TestTimestamp_bytes(t *testing.T) {
	b := []byte{0x00, 0x5C, 0x37, 0x68, 0x8B, 0x01, 0x03, 0x00}
	ts, err := nvmespec.DecodeTimestamp(b)
	if err != nil || ts.Milliseconds != 0x018B68375C00 || ts.Origin != 1 || !ts.Stopped {
		t.Fatalf("%+v %v", ts, err)
	}
	if when, ok := ts.Time(); !ok || when.UnixMilli() != 0x018B68375C00 {
		t.Errorf("time %v", when)
	}
	if d := cmp.Diff(b, ts.Append(nil)); d != "" {
		t.Errorf("append:\n%s", d)
	}
}

func TestFeature_table(t *testing.T) { // PWR-10, PWR-11
	seen := map[string]bool{}
	for _, f := range nvmespec.Features() {
		if seen[f.Name] {
			t.Errorf("name %s twice", f.Name)
		}
		seen[f.Name] = true
		if got, ok := nvmespec.LookupFeatureName(f.Name); !ok || got.ID != f.ID {
			t.Errorf("%s is not found", f.Name)
		}
	}
	hmb, _ := nvmespec.LookupFeature(nvmespec.FeatureHostMemoryBuffer, 0)
	if hmb.GetBytes != 4096 || hmb.SetBytes != 0 {
		t.Errorf("the host memory buffer transfers data on get only: %+v", hmb)
	}
	if _, ok := nvmespec.LookupFeature(0xC6, 0x144D); ok {
		t.Error("C6h of another vendor is not Memblaze's power limit")
	}
	if f, ok := nvmespec.LookupFeature(0xC6, 0x1C5F); !ok || f.Name != "memblaze-power" {
		t.Errorf("C6h of Memblaze: %+v", f)
	}
	if nvmespec.FeatureID(0xC6).String() != "0xc6" || nvmespec.FeatureAPST.String() != "apst" {
		t.Error("names of features")
	}
}
