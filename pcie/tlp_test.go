package pcie

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDecodeTLPHeader_realLogs decodes the logs of a drive that was thrown off
// its port for packets of 512 bytes at a port set to 128.
func TestDecodeTLPHeader_realLogs(t *testing.T) {
	root := os.Getenv("NVOP_FIXTURES")
	if root == "" {
		t.Skip("NVOP_FIXTURES is not set: the logs are not in this project")
	}
	text, err := os.ReadFile(filepath.Join(root, "pcie", "aer_malftlp_headers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Header    string `json:"header"`
		Fmt       uint8  `json:"fmt"`
		Type      uint8  `json:"type"`
		Kind      string `json:"kind"`
		Payload   int    `json:"payload_bytes"`
		Requester string `json:"requester"`
		Tag       uint16 `json:"tag"`
		Address   string `json:"address"`
		PortMPS   int    `json:"port_mps"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		t.Fatal(err, len(list))
	}
	for _, w := range list {
		h := DecodeTLPHeader(words(t, w.Header))
		if h.Format != w.Fmt || h.Type != w.Type || h.Kind != w.Kind || h.PayloadBytes != w.Payload || h.Requester != w.Requester ||
			h.Tag != w.Tag || fmt.Sprintf("0x%016x", h.Address) != w.Address {
			t.Errorf("%s: %+v, want %+v", w.Header, h, w)
		}
		if h.PayloadBytes <= w.PortMPS {
			t.Errorf("%s: no evidence against a port of %d bytes", w.Header, w.PortMPS)
		}
	}
}

func words(t *testing.T, text string) (dw [4]uint32) {
	t.Helper()
	if n, err := fmt.Sscanf(text, "%x %x %x %x", &dw[0], &dw[1], &dw[2], &dw[3]); n != 4 {
		t.Fatal(text, err)
	}
	return dw
}

func TestDecodeTLPHeader_kinds(t *testing.T) {
	for _, c := range []struct {
		log, kind, requester, completer string
		payload, request                int
		tag                             uint16
		address                         uint64
	}{
		{"40000001 0000000f fec30000 00000000", "MWr32", "00:00.0", "", 4, 0, 0, 0xfec30000},
		{"00000400 01000aff 00001004 00000000", "unknown-length", "01:00.0", "", 0, 4096, 10, 0x1004},
		{"20000000 010012ff 00000001 00002000", "MRd64", "01:00.0", "", 0, 4096, 0x12, 0x100002000},
		{"4a000020 00000080 01000500 00000000", "CplD", "01:00.0", "00:00.0", 128, 0, 5, 0},
		{"0a000000 00002004 0a1b0700 00000000", "Cpl", "0a:03.3", "00:00.0", 0, 0, 7, 0},
		{"44000001 0000000f 01000004 00000000", "CfgWr0", "00:00.0", "", 4, 0, 0, 0},
		{"34000000 02000050 00000000 00000000", "Msg", "02:00.0", "", 0, 0, 0, 0},
		{"20880001 0100ff0f 00000000 00001000", "MRd64", "01:00.0", "", 0, 4, 0x3ff, 0x1000},
		{"80000000 00000000 00000000 00000000", "prefix", "", "", 0, 0, 0, 0},
	} {
		if c.kind == "unknown-length" { // length field 0 with a reserved bit: 1024 words
			c.kind = "MRd32"
		}
		h := DecodeTLPHeader(words(t, c.log))
		if h.Kind != c.kind || h.Requester != c.requester || h.Completer != c.completer || h.PayloadBytes != c.payload ||
			h.RequestBytes != c.request || h.Tag != c.tag || h.Address != c.address {
			t.Errorf("%s: %+v", c.log, h)
		}
	}
}

// TestHeaderLog_flit: in Flit Mode the layout is another; nothing is decoded.
func TestHeaderLog_flit(t *testing.T) {
	config := newConfig(Endpoint, 512, 512, 512)
	config.extended(0x100, extAER, 2, 0)
	config.put32(0x100+0x18, 1<<18)
	config.put32(0x100+0x1c, 0x60000080)
	config.put32(0x100+0x04, uint32(MalformedTLP))
	f, err := Decode(Address{Bus: 1}, config.b)
	if err != nil || f.AER == nil {
		t.Fatal(err)
	}
	if f.AER.Header != nil || !f.AER.FlitLogged {
		t.Errorf("a Flit Mode log was decoded: %+v", f.AER.Header)
	}
	p := Path{Hops: []*Function{&f}}
	if got := p.headerEvidence(0, &f); len(got) != 1 || !strings.Contains(got[0], "Flit") {
		t.Errorf("evidence: %q", got)
	}
}
