package render

import (
	"bytes"
	"math/big"
	"strings"
	"testing"
	"time"
)

type sample struct {
	Schema        string `json:"schema"`
	CapacityBytes uint64 `json:"capacity_bytes"`
}

func (s sample) Text(p *Page) {
	p.Title("drive")
	p.Pairs("capacity", Size(s.CapacityBytes), "left out", "", "schema", s.Schema)
	p.Grid([]string{"name", ">blocks"}, [][]string{{"a", "1"}, {"bb", "1,000"}})
}

func TestWrite_twoViewsOfOneValue(t *testing.T) {
	v := sample{Schema: "x/1", CapacityBytes: 6_401_252_745_216}
	var table, doc bytes.Buffer
	if err := Write(&table, Table, v); err != nil {
		t.Fatal(err)
	}
	if err := Write(&doc, JSON, v); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"capacity  6.40 TB (5.82 TiB)", "schema    x/1", "name", "1,000"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, &table)
		}
	}
	if strings.Contains(table.String(), "left out") {
		t.Errorf("an empty value is shown:\n%s", &table)
	}
	if want := "{\n  \"schema\": \"x/1\",\n  \"capacity_bytes\": 6401252745216\n}\n"; doc.String() != want {
		t.Errorf("JSON is %q, want %q", doc.String(), want)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(uint64(15_002_931_888)), "15,002,931,888"},
		{Count(-1234), "-1,234"},
		{Count(999), "999"},
		{CountBig(new(big.Int).Lsh(big.NewInt(1), 64)), "18,446,744,073,709,551,616"},
		{Size(0), "0 B (0 B)"},
		{Size(7_681_501_126_656), "7.68 TB (6.99 TiB)"},
		{Rate(411_000), "411K"},
		{Rate(2_828_000), "2.83M"},
		{Rate(950), "950"},
		{Duration(50 * time.Hour), "2d 02h"},
		{Duration(90 * time.Second), "1m 30s"},
		{Duration(9 * time.Microsecond), "9.0 us"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestTree_keepsOrderAndNesting(t *testing.T) {
	p := &Page{}
	p.Tree(struct {
		B    int    `json:"b_bytes"`
		A    []int  `json:"a"`
		None *int   `json:"none"`
		Sub  sample `json:"sub"`
		List []any  `json:"list"`
	}{B: 1, A: []int{1, 2}, Sub: sample{Schema: "x", CapacityBytes: 18446744073709551615}, List: []any{map[string]int{"k": 3}}})
	want := `  b_bytes  1
  a        1, 2
  none     not reported
  sub
    schema          x
    capacity_bytes  18446744073709551615
  list
    [0]
      k  3
`
	if got := p.buf.String(); got != want || p.err != nil {
		t.Errorf("got %v\n%s\nwant\n%s", p.err, got, want)
	}
}
