package nvmespec_test

import (
	"errors"
	"math/bits"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/nvmeioctl/nvmespec"
)

func TestGetLogFields_dwords(t *testing.T) { // LOG-05
	got, err := nvmespec.GetLogFields{Log: 0x09, Specific: 0x55, RetainEvent: true, LengthBytes: 512, LogSpecificID: 0x0102,
		OffsetBytes: 0x1_0000_1000, CommandSet: 2, UUIDIndex: 5}.Dwords()
	want := nvmespec.GetLogDwords{CDW10: 0x007FD509, CDW11: 0x01020000, CDW12: 0x1000, CDW13: 1, CDW14: 0x02000005}
	if got != want || err != nil {
		t.Errorf("dwords %#x, %v", got, err)
	}
	if got, err = (nvmespec.GetLogFields{Log: 2, LengthBytes: 4}).Dwords(); err != nil || got.CDW10 != 2 || got.CDW11 != 0 {
		t.Errorf("4 bytes are dword count 0: %#x, %v", got, err)
	}
	if got, err = (nvmespec.GetLogFields{Log: 2, LengthBytes: 4 << 32}).Dwords(); err != nil || got.CDW10 != 0xFFFF0002 || got.CDW11 != 0xFFFF {
		t.Errorf("longest: %#x, %v", got, err)
	}
	for _, f := range []nvmespec.GetLogFields{{LengthBytes: 0}, {LengthBytes: 3}, {LengthBytes: 6}, {LengthBytes: 4<<32 + 4}, {LengthBytes: 4, OffsetBytes: 2}} {
		if _, err := f.Dwords(); !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestGetLogFields_roundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := nvmespec.GetLogFields{
			Log:         nvmespec.LogID(rapid.Uint8().Draw(t, "log")),
			Specific:    rapid.Uint8Range(0, 127).Draw(t, "specific"),
			RetainEvent: rapid.Bool().Draw(t, "rae"), LengthBytes: 4 * rapid.Uint64Range(1, 1<<32).Draw(t, "dwords"),
			LogSpecificID: rapid.Uint16().Draw(t, "lsi"), OffsetBytes: rapid.Uint64().Draw(t, "offset") &^ 3,
			CommandSet: rapid.Uint8().Draw(t, "csi"), UUIDIndex: rapid.Uint8Range(0, 127).Draw(t, "uuid"),
		}
		d, err := f.Dwords()
		if err != nil {
			t.Fatal(err)
		}
		if got := nvmespec.DecodeGetLogFields(d); got != f {
			t.Fatalf("%+v comes back as %+v", f, got)
		}
	})
}

func TestFormatFields_dword(t *testing.T) {
	f := nvmespec.FormatFields{FormatIndex: 0x2B, MetadataExtended: true, Protection: nvmespec.Protection{Type: 2, First: true}, Erase: nvmespec.EraseCrypto}
	if got, want := f.Dword(), uint32(0xB|1<<4|2<<5|1<<8|2<<9|2<<12); got != want {
		t.Errorf("dword %#x, want %#x", got, want)
	}
	for dw := range uint32(1 << 14) {
		if got := nvmespec.DecodeFormatFields(dw).Dword(); got != dw {
			t.Fatalf("%#x comes back as %#x", dw, got)
		}
	}
}

func TestIdentifyAndFeatureFields(t *testing.T) {
	cdw10, cdw11, cdw14 := nvmespec.IdentifyFields{CNS: 0x12, ControllerID: 0x41, CommandSet: 2, UUIDIndex: 3}.Dwords()
	if cdw10 != 0x00410012 || cdw11 != 0x02000000 || cdw14 != 3 {
		t.Errorf("identify %#x %#x %#x", cdw10, cdw11, cdw14)
	}
	if got := nvmespec.DecodeIdentifyFields(cdw10, cdw11, cdw14); got != (nvmespec.IdentifyFields{CNS: 0x12, ControllerID: 0x41, CommandSet: 2, UUIDIndex: 3}) {
		t.Errorf("identify back %+v", got)
	}
	get := nvmespec.GetFeatureFields{Feature: 4, Select: 3, CDW11: 9}
	if get.CDW10() != 0x304 || nvmespec.DecodeGetFeatureFields(0x304, 9) != get {
		t.Errorf("get features %#x", get.CDW10())
	}
	set := nvmespec.SetFeatureFields{Feature: 2, Save: true, CDW11: 1}
	if set.CDW10() != 0x80000002 || nvmespec.DecodeSetFeatureFields(0x80000002, 1) != set {
		t.Errorf("set features %#x", set.CDW10())
	}
}

func TestClassOf_everyOpcode(t *testing.T) {
	want := map[uint8]nvmespec.Class{0x02: nvmespec.ClassRead, 0x06: nvmespec.ClassRead, 0x0A: nvmespec.ClassRead, 0x09: nvmespec.ClassFeature,
		0x0D: nvmespec.ClassNamespace, 0x15: nvmespec.ClassNamespace, 0x80: nvmespec.ClassFormat, 0x84: nvmespec.ClassFormat,
		0x10: nvmespec.ClassFirmware, 0x11: nvmespec.ClassFirmware, 0x14: nvmespec.ClassSelfTest, 0x81: nvmespec.ClassSecurity,
		0xC0: nvmespec.ClassVendor, 0xFF: nvmespec.ClassVendor, 0x7F: nvmespec.ClassUnknown, 0x1D: nvmespec.ClassUnknown}
	for op := range 256 {
		for _, admin := range []bool{true, false} {
			c := nvmespec.ClassOf(admin, uint8(op), 0)
			if bits.OnesCount16(uint16(c)) != 1 {
				t.Fatalf("%v %#02x: class %v", admin, op, c)
			}
			// What changes something says so; what only reads says nothing.
			text := nvmespec.Consequence(admin, uint8(op), 1, 0)
			if (c == nvmespec.ClassRead) != (text == "") {
				t.Errorf("%v %#02x: class %v and consequence %q", admin, op, c, text)
			}
			if nvmespec.CommandName(admin, uint8(op)) == "" {
				t.Errorf("%v %#02x has no name", admin, op)
			}
		}
		if w, ok := want[uint8(op)]; ok && nvmespec.ClassOf(true, uint8(op), 0) != w {
			t.Errorf("admin %#02x: %v, want %v", op, nvmespec.ClassOf(true, uint8(op), 0), w)
		}
	}
	for op, w := range map[uint8]nvmespec.Class{0: nvmespec.ClassRead, 1: nvmespec.ClassWrite, 2: nvmespec.ClassRead, 4: nvmespec.ClassWrite,
		8: nvmespec.ClassWrite, 9: nvmespec.ClassWrite, 0x19: nvmespec.ClassWrite, 0x79: nvmespec.ClassUnknown, 0x80: nvmespec.ClassVendor} {
		if got := nvmespec.ClassOf(false, op, 0); got != w {
			t.Errorf("I/O %#02x: %v, want %v", op, got, w)
		}
	}
}

func TestConsequence_text(t *testing.T) {
	for want, got := range map[string]string{
		"destroys namespace 3 and all data":         nvmespec.Consequence(true, 0x0D, 3, 1),
		"takes capacity for a new namespace":        nvmespec.Consequence(true, 0x0D, 0, 0),
		"every namespace":                           nvmespec.Consequence(true, 0x80, 0xFFFFFFFF, 0),
		"sets LBA format 1, erasing user data":      nvmespec.Consequence(true, 0x80, 1, 1|1<<9),
		"changes feature power-management now and":  nvmespec.Consequence(true, 0x09, 0, 0x80000002),
		"makes namespace 2 vanish":                  nvmespec.Consequence(true, 0x15, 2, 1),
		"makes namespace 2 appear":                  nvmespec.Consequence(true, 0x15, 2, 0),
		"its effect is not known":                   nvmespec.Consequence(true, 0xC7, 2, 0),
		"write zeroes changes data or access of na": nvmespec.Consequence(false, 8, 2, 0),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestClass_string(t *testing.T) {
	if got := (nvmespec.ClassNamespace | nvmespec.ClassFormat).String(); got != "namespace+format" {
		t.Errorf("%q", got)
	}
}
