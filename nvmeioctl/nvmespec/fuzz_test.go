package nvmespec_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nvop/nvmeioctl/nvmespec"
)

// appender is what every decoded structure can do.
type appender interface{ Append([]byte) []byte }

// codec checks one pair of decoder and encoder on hostile bytes: no panic, the
// value survives the way out and back, and the bytes are stable from then on.
func codec[T appender](t *testing.T, b []byte, decode func([]byte) (T, error)) {
	t.Helper()
	v, err := decode(b)
	if err != nil {
		return
	}
	out := v.Append(nil)
	back, err := decode(out)
	if err != nil {
		t.Fatalf("%T does not decode what it encodes: %v", v, err)
	}
	if !reflect.DeepEqual(v, back) {
		t.Fatalf("%T comes back different:\n%s", v, cmp.Diff(v, back))
	}
	if again := back.Append([]byte{1, 2}); !bytes.Equal(again[2:], out) {
		t.Fatalf("%T: bytes are not stable", v)
	}
	j, err := json.Marshal(v)
	if err != nil || !json.Valid(j) {
		t.Fatalf("%T: JSON %v", v, err)
	}
}

// seeds adds the dumps of a real controller and what decoders refuse.
func seeds(f *testing.F) {
	files, err := filepath.Glob("testdata/qemu-7.2-linux-6.12/*.bin")
	if err != nil || len(files) == 0 {
		f.Fatal("no dumps", err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	f.Add(make([]byte, 63))
	f.Add(bytes.Repeat([]byte{0xFF}, 4096))
	f.Add(bytes.Repeat([]byte{0x00}, 4096))
	f.Add(bytes.Repeat([]byte("\x01\xA5"), 2048))
}

func FuzzDecodeController(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeController) })
}

func FuzzDecodeNamespace(f *testing.F) {
	seeds(f)
	f.Add(wireNamespace(f, loadOracle(f)).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		codec(t, b, nvmespec.DecodeNamespace)
		codec(t, b, nvmespec.DecodeNVMNamespace)
		codec(t, b, nvmespec.DecodeIndependentNamespace)
		codec(t, b, nvmespec.DecodeNVMController)
		codec(t, b, nvmespec.DecodeNamespaceCreate)
		if ns, err := nvmespec.DecodeNamespace(b); err == nil {
			ns.SizeBytes()
			if f, ok := ns.Format(); ok && (int(f.Index) >= len(ns.Formats) || f.DataBytes < 512) {
				t.Fatalf("format in use %+v of %d", f, len(ns.Formats))
			}
		}
	})
}

// list is a list of identifiers as an appender.
type nsidList []uint32

func (l nsidList) Append(b []byte) []byte { return nvmespec.AppendNamespaceList(b, l) }

type cntlidList []uint16

func (l cntlidList) Append(b []byte) []byte { return nvmespec.AppendControllerList(b, l) }

func FuzzDecodeLists(f *testing.F) {
	seeds(f)
	f.Add(append([]byte{1, 0, 0, 0, 2, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF}, make([]byte, 4084)...))
	f.Add(append([]byte{3, 0, 0x21, 0, 0x41, 0, 0x02, 0x01}, make([]byte, 4088)...)) // controllers
	f.Add(append([]byte{1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 1, 0, 0, 2}, make([]byte, 4079)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		codec(t, b, func(b []byte) (nsidList, error) { return nvmespec.DecodeNamespaceList(b) })
		codec(t, b, func(b []byte) (cntlidList, error) { return nvmespec.DecodeControllerList(b) })
		codec(t, b, nvmespec.DecodeNamespaceIDs)
		codec(t, b, nvmespec.DecodeGranularityList)
	})
}

// errorLog is a log of as many entries as it has.
type errorLog []nvmespec.ErrorEntry

func (l errorLog) Append(b []byte) []byte { return nvmespec.AppendErrorLog(b, l, max(len(l), 1)) }

// apst is the table with its switch on.
type apst struct{ nvmespec.APST }

func FuzzDecodeLogs(f *testing.F) {
	seeds(f)
	f.Add(nvmespec.EnduranceGroup{MediaWrittenGB: u128(1, 2)}.Append(nil))
	f.Add(nvmespec.ErrorEntry{Count: 1, LogVersion: 1}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		codec(t, b, nvmespec.DecodeSMART)
		codec(t, b, func(b []byte) (errorLog, error) { return nvmespec.DecodeErrorLog(b) })
		codec(t, b, nvmespec.DecodeErrorEntry)
		codec(t, b, nvmespec.DecodeFirmwareSlots)
		codec(t, b, nvmespec.DecodeEffects)
		codec(t, b, nvmespec.DecodeEnduranceGroup)
		codec(t, b, nvmespec.DecodeTimestamp)
		codec(t, b, func(b []byte) (apst, error) {
			a, err := nvmespec.DecodeAPST(1, b)
			return apst{a}, err
		})
	})
}

func FuzzDecodeOCPHealth(f *testing.F) {
	seeds(f)
	for _, l := range []nvmespec.OCPLayout{nvmespec.OCPDatacenter, nvmespec.OCPHyperscale} {
		f.Add(nvmespec.OCPHealth{Layout: l, Version: 4, SLCBytesWritten: some(u128(1, 2)), Refreshes: 1 << 50}.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) { codec(t, b, nvmespec.DecodeOCPHealth) })
}

func FuzzDecodeKind(f *testing.F) {
	for _, kind := range nvmespec.Kinds() {
		f.Add(kind, make([]byte, 4096))
	}
	f.Add("nonsense", []byte{1})
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		v, err := nvmespec.DecodeKind(kind, b)
		if err != nil {
			if v != nil {
				t.Fatalf("%s: a value with an error: %v", kind, err)
			}
			return
		}
		if j, err := json.Marshal(v); err != nil || !json.Valid(j) {
			t.Fatalf("%s: JSON %v", kind, err)
		}
	})
}
