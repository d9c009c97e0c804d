package pcie

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"0000:01:00.0":     {0, 1, 0, 0},
		"01:00.0":          {0, 1, 0, 0},
		"10000:e1:1f.7":    {0x10000, 0xe1, 0x1f, 7},
		"ffffffff:ff:00.0": {0xffffffff, 0xff, 0, 0},
	} {
		a, err := ParseAddress(text)
		if err != nil || a != want {
			t.Errorf("%s: %v %v", text, a, err)
		}
	}
	for _, text := range []string{
		"", "01:00", "1:00.0", "01:20.0", "01:00.8", "000:01:00.0", "123456789:01:00.0", "0000:01:00.0:pcie010", "+1:00.0",
		"0000:0x:00.0", "00:1c.0/01:00.0", "0000:01:00.", "01:0_0.0", "00: 86",
	} {
		if a, err := ParseAddress(text); err == nil {
			t.Errorf("%q was taken for %s", text, a)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := Address{rapid.Uint32().Draw(t, "domain"), rapid.Uint8().Draw(t, "bus"), rapid.Uint8Range(0, 31).Draw(t, "device"), rapid.Uint8Range(0, 7).Draw(t, "function")}
		if b, err := ParseAddress(a.String()); err != nil || a != b {
			t.Fatal(a, b, err)
		}
	})
}

// TestDecode_access: what cannot be read is said to be so, never taken for
// absent, and all ones are a device that is gone.
func TestDecode_access(t *testing.T) {
	full := newConfig(Endpoint, 512, 256, 512)
	full.extended(0x100, extAER, 2, 0)
	for _, c := range []struct {
		bytes                     int
		headerOnly, express, more bool
	}{{64, true, false, false}, {128, true, false, false}, {256, false, true, false}, {4096, false, true, true}, {5000, false, true, true}} {
		config := append(bytes.Clone(full.b), make([]byte, 904)...)[:c.bytes]
		f, err := Decode(Address{Bus: 1}, config)
		if err != nil {
			t.Fatal(c.bytes, err)
		}
		if f.HeaderOnly != c.headerOnly || (f.Express != nil) != c.express || f.ExtendedRead != c.more || (f.AER != nil) != c.more {
			t.Errorf("%d bytes: header only %v, express %v, extended read %v, aer %v; problems %q",
				c.bytes, f.HeaderOnly, f.Express != nil, f.ExtendedRead, f.AER != nil, f.Problems)
		}
	}
	gone := bytes.Repeat([]byte{0xff}, 4096)
	if _, err := Decode(Address{Bus: 1}, gone); !errors.Is(err, ErrGone) {
		t.Errorf("all ones: %v", err)
	}
	if _, err := Decode(Address{Bus: 1}, full.b[:63]); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("63 bytes: %v", err)
	}
	// A device without a list has no capabilities, which is not missing access.
	full.put16(0x06, 0)
	if f, err := Decode(Address{Bus: 1}, full.b[:64]); err != nil || f.HeaderOnly || f.Express != nil {
		t.Errorf("no list: %+v %v", f, err)
	}
}

// TestDecode_hostile: lists that loop, leave the space, or break off.
func TestDecode_hostile(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(*config)
		problem string
		express bool
	}{
		"loop":             {func(c *config) { c.put8(expAt+1, expAt) }, "loop at 80h", true},
		"longer loop":      {func(c *config) { c.put8(expAt+1, 0x60); c.put8(0x60, 5); c.put8(0x61, expAt+3) }, "loop at 80h", true},
		"into the header":  {func(c *config) { c.put8(expAt+1, 0x10) }, "into the header (10h)", true},
		"broken":           {func(c *config) { c.put8(expAt+1, 0x60); c.put8(0x60, 0xff) }, "broken at 60h", true},
		"at the end":       {func(c *config) { c.put8(0x34, 0xfc); c.put8(0xfc, 0x10); c.put16(0xfe, 2) }, "does not fit", false},
		"v2 cut":           {func(c *config) { c.put8(0x34, 0xe0); copy(c.b[0xe0:0x100], c.b[expAt:]) }, "version 2 but does not fit", true},
		"extended loop":    {func(c *config) { c.extended(0x100, extAER, 1, 0x200).extended(0x200, extLTR, 1, 0x100) }, "loop at 100h", true},
		"extended to self": {func(c *config) { c.extended(0x100, extAER, 1, 0x100) }, "loop at 100h", true},
		"extended below":   {func(c *config) { c.extended(0x100, extLTR, 1, 0x40) }, "below 100h (040h)", true},
		"extended at end":  {func(c *config) { c.extended(0x100, extLTR, 1, 0xffc).extended(0xffc, extAER, 1, 0) }, "0001h at ffch does not fit", true},
	} {
		config := newConfig(Endpoint, 512, 256, 512)
		c.spoil(config)
		f, err := Decode(Address{}, config.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(strings.Join(f.Problems, "; "), c.problem) || (f.Express != nil) != c.express {
			t.Errorf("%s: express %v, problems %q, want %q", name, f.Express != nil, f.Problems, c.problem)
		}
	}
}

// TestDecode_versions: a version 1 capability has no second half, a root
// complex endpoint no link.
func TestDecode_versions(t *testing.T) {
	c := newConfig(Endpoint, 256, 128, 512)
	c.put16(expAt+2, 1)
	f, err := Decode(Address{}, c.b)
	if err != nil || f.Express == nil || f.Express.Second != nil || f.Express.Link == nil || len(f.Problems) > 0 {
		t.Fatalf("v1: %+v %v", f, err)
	}
	c.put16(expAt+2, 2|uint16(IntegratedEndpoint)<<4)
	f, err = Decode(Address{}, c.b)
	if err != nil || f.Express == nil || f.Express.Link != nil || f.Express.Second == nil {
		t.Fatalf("integrated: %+v %v", f.Express, err)
	}
	if got := f.Express.MaxPayloadSupported; got != 256 {
		t.Errorf("MPSS %d", got)
	}
	// PCIe 6.0 bits.
	c.put32(expAt+4, 5|1<<17|1<<29|1<<30)
	c.put16(expAt+2, 3|1<<15)
	c.put16(expAt+0x32, 1<<10)
	f, err = Decode(Address{}, c.b)
	x := f.Express
	if err != nil || !x.RxPayloadFixed || !x.MixedPayload || !x.TEEIO || !x.FlitCapable || !x.Flit() || x.MaxPayloadSupported != 4096 {
		t.Fatalf("6.0: %+v %v", x, err)
	}
	// Reserved encodings are kept and marked.
	c.put16(expAt+8, 7<<5|6<<12)
	f, _ = Decode(Address{}, c.b)
	if f.Express.MaxPayload.Valid() || f.Express.MaxReadRequest.Valid() {
		t.Errorf("reserved sizes %d, %d are taken for valid", f.Express.MaxPayload, f.Express.MaxReadRequest)
	}
}

const sampleDump = `00:1c.0 PCI bridge: Example (rev 01)
	Control: I/O+ Mem+ BusMaster+
	Capabilities: [40] Express (v2) Root Port
00: 86 80 10 9d 07 04 10 00 f1 00 04 06 00 00 81 00
10: 00 00

0000:00:1c.0/01:00.0 Non-Volatile memory controller: Example
00: 4d 14 0a a8
`

func TestParseDump(t *testing.T) {
	list, err := ParseDump(strings.NewReader(sampleDump))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Address.String() != "0000:00:1c.0" || len(list[0].Config) != 18 || list[0].Name != "PCI bridge: Example (rev 01)" ||
		list[1].Address.String() != "0000:01:00.0" || len(list[1].Config) != 4 {
		t.Errorf("%+v", list)
	}
	for name, text := range map[string]string{
		"windows lines": "01:00.0 x\r\n00: 4d 14\r\n", "indented": "  01:00.0 x\n  00: 4d 14\n", "domain": "10000:01:00.0 x\n00: 4d 14\n",
		"again": "01:00.0 x\n00: 11 22 33\n\n01:00.0 x\n00: 4d 14\n",
	} {
		list, err := ParseDump(strings.NewReader(text))
		if err != nil || len(list) != 1 || !bytes.Equal(list[0].Config, []byte{0x4d, 0x14}) {
			t.Errorf("%s: %+v %v", name, list, err)
		}
	}
	// A gap reads as ff, which no decoder takes for a register.
	list, err = ParseDump(strings.NewReader("01:00.0 x\n04: 11\n"))
	if err != nil || !bytes.Equal(list[0].Config, []byte{255, 255, 255, 255, 0x11}) {
		t.Errorf("gap: %+v %v", list, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "words": "hello\nworld\n", "no header": "00: 4d 14\n", "half a byte": "01:00.0 x\n00: 4d 1\n",
		"not hexadecimal": "01:00.0 x\n00: 4d zz\n", "beyond": "01:00.0 x\nfff: 01 02\n", "far beyond": "01:00.0 x\nfffffff0: 01\n",
		"long line": "01:00.0 " + strings.Repeat("x", maxDumpLine+1) + "\n",
	} {
		if list, err := ParseDump(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// TestReadDump_partly: one function that is gone does not hide the others.
func TestReadDump_partly(t *testing.T) {
	text := "01:00.0 gone\n00:" + strings.Repeat(" ff", 64) + "\n\n02:00.0 here\n00: 4d 14" + strings.Repeat(" 00", 62) + "\n"
	topo, problems, err := ReadDump(strings.NewReader(text))
	if err != nil || len(topo.Functions()) != 1 || len(problems) != 1 || !errors.Is(problems[0], ErrGone) {
		t.Errorf("%v %v", problems, err)
	}
	if _, _, err := ReadDump(strings.NewReader("01:00.0 gone\n00:" + strings.Repeat(" ff", 64) + "\n")); !errors.Is(err, ErrGone) {
		t.Errorf("only a device that is gone: %v", err)
	}
}

func seeds(f *testing.F) [][]byte {
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil {
		f.Fatal(err)
	}
	var list [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}

// FuzzDecode: no configuration space may crash, hang or make the result
// unprintable, and a shorter reading never shows more.
func FuzzDecode(f *testing.F) {
	for _, text := range seeds(f)[:2] {
		raw, err := ParseDump(bytes.NewReader(text))
		if err != nil {
			f.Fatal(err)
		}
		for _, r := range raw {
			f.Add(r.Config)
		}
	}
	f.Add(newConfig(RootPort, 512, 256, 512).extended(0x100, extAER, 2, 0x200).extended(0x200, extL1SS, 1, 0x300).extended(0x300, extDevice3, 1, 0).b)
	f.Fuzz(func(t *testing.T, config []byte) {
		fn, err := Decode(Address{Bus: 1}, config)
		if err != nil {
			return
		}
		if len(fn.Capabilities) > maxCapabilities+maxExtendedCapabilities {
			t.Fatalf("%d capabilities", len(fn.Capabilities))
		}
		for _, c := range fn.Capabilities {
			if c.Extended != (c.Offset >= legacyBytes) || int(c.Offset)+4 > len(config) {
				t.Fatalf("capability %+v in %d bytes", c, len(config))
			}
		}
		if _, err := json.Marshal(fn); err != nil {
			t.Fatal(err)
		}
		short, err := Decode(Address{Bus: 1}, config[:headerBytes])
		if err != nil || short.Express != nil || short.Class != fn.Class {
			t.Fatalf("the header alone says otherwise: %v", err)
		}
	})
}

// FuzzReadDump: every path of any text can be judged.
func FuzzReadDump(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add(text)
	}
	f.Add([]byte(sampleDump))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		topo, _, err := ReadDump(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, fn := range topo.Functions() {
			p, err := topo.Path(fn.Address)
			if err != nil || len(p.Hops) == 0 || len(p.Hops) > maxHops {
				t.Fatal(len(p.Hops), err)
			}
			findings := Audit(topo, p, AuditOptions{})
			if _, err := json.Marshal(findings); err != nil {
				t.Fatal(err)
			}
			s, ok := p.Payloads()
			if ok && (s.InForce > p.Endpoint().Express.MaxPayload || s.TreeCapability > s.PathCapability) {
				t.Fatalf("%+v", s)
			}
		}
	})
}
