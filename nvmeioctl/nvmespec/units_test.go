package nvmespec_test

import (
	"encoding/json"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"nvop/nvmeioctl/nvmespec"
)

func drawU128(t *rapid.T, name string) nvmespec.Uint128 {
	return nvmespec.Uint128{Lo: rapid.Uint64().Draw(t, name+" lo"), Hi: rapid.Uint64().Draw(t, name+" hi")}
}

func TestUint128_againstBig(t *testing.T) {
	limit := new(big.Int).Lsh(big.NewInt(1), 128)
	most := nvmespec.MaxUint128()
	held := func(b *big.Int) *big.Int { // what arithmetic that stops at the end gives
		if b.Cmp(limit) >= 0 {
			return most.Big()
		}
		return b
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawU128(t, "a"), drawU128(t, "b")
		m := rapid.Uint64Min(1).Draw(t, "m")
		if got, want := a.Add(b).Big(), held(new(big.Int).Add(a.Big(), b.Big())); got.Cmp(want) != 0 {
			t.Fatalf("%s + %s = %s, want %s", a, b, got, want)
		}
		d, ok := a.Sub(b)
		want := new(big.Int).Sub(a.Big(), b.Big())
		if ok != (want.Sign() >= 0) || ok && d.Big().Cmp(want) != 0 || !ok && !d.IsZero() {
			t.Fatalf("%s - %s = %s, %v", a, b, d, ok)
		}
		if got, want := a.Mul64(m).Big(), held(new(big.Int).Mul(a.Big(), new(big.Int).SetUint64(m))); got.Cmp(want) != 0 {
			t.Fatalf("%s * %d = %s, want %s", a, m, got, want)
		}
		q, r := a.DivMod64(m)
		wantQ, wantR := new(big.Int).QuoRem(a.Big(), new(big.Int).SetUint64(m), new(big.Int))
		if q.Big().Cmp(wantQ) != 0 || r != wantR.Uint64() {
			t.Fatalf("%s / %d = %s rest %d", a, m, q, r)
		}
		if a.Cmp(b) != a.Big().Cmp(b.Big()) {
			t.Fatalf("%s cmp %s = %d", a, b, a.Cmp(b))
		}
		if a.String() != a.Big().String() {
			t.Fatalf("text %s, want %s", a, a.Big())
		}
		back, err := nvmespec.ParseUint128(a.String())
		if err != nil || back != a {
			t.Fatalf("parse %s: %v, %v", a, back, err)
		}
	})
}

func TestUint128_json(t *testing.T) { // SMART-04: no digit is lost
	type doc struct {
		N nvmespec.Uint128 `json:"n"`
	}
	b, err := json.Marshal(doc{nvmespec.MaxUint128()})
	if err != nil || string(b) != `{"n":"340282366920938463463374607431768211455"}` {
		t.Errorf("%s, %v", b, err)
	}
	var back doc
	if err := json.Unmarshal(b, &back); err != nil || back.N != nvmespec.MaxUint128() {
		t.Errorf("%v, %v", back, err)
	}
	for _, s := range []string{"", "-1", "+1", "1.5", "0x10", "340282366920938463463374607431768211456", "1 "} {
		if v, err := nvmespec.ParseUint128(s); err == nil {
			t.Errorf("%q parses as %s", s, v)
		}
	}
	if _, r := nvmespec.MaxUint128().DivMod64(0); r != 0 {
		t.Error("division by 0 gives 0")
	}
}

func TestOpt_json(t *testing.T) {
	type doc struct {
		A nvmespec.Opt[nvmespec.Celsius] `json:"a"`
		B nvmespec.Opt[nvmespec.Celsius] `json:"b"`
	}
	in := doc{A: nvmespec.Some[nvmespec.Celsius](0)}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `{"a":0,"b":null}` {
		t.Errorf("%s, %v: a reported 0 is not null", b, err)
	}
	out := doc{B: nvmespec.Some[nvmespec.Celsius](5)}
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestFlags_json(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := nvmespec.Attributes(rapid.Uint32().Draw(t, "bits"))
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out nvmespec.Attributes
		if err := json.Unmarshal(b, &out); err != nil || out != in {
			t.Fatalf("%s: %#x, %v, want %#x", b, out, err, in)
		}
	})
	b, _ := json.Marshal(nvmespec.AttrEnduranceGroups | 1<<30)
	if string(b) != `["endurance_groups","bit30"]` {
		t.Errorf("%s", b)
	}
	var f nvmespec.OptionalAdmin
	for _, bad := range []string{`["nonsense"]`, `["bit99"]`, `["bit-1"]`, `5`} {
		if err := json.Unmarshal([]byte(bad), &f); err == nil {
			t.Errorf("%s is accepted as %#x", bad, f)
		}
	}
}

func TestFormatBytes(t *testing.T) { // LIST-02
	for n, want := range map[uint64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB (1000 B)", 512_000: "512.00 kB (500.00 KiB)",
		7_681_501_126_656: "7.68 TB (6.98 TiB)", 6_401_252_745_216: "6.40 TB (5.82 TiB)", 281_474_976_710_656: "281.47 TB (256.00 TiB)",
		999_999: "999.99 kB (976.56 KiB)", ^uint64(0): "18.44 EB (15.99 EiB)",
	} {
		if got := nvmespec.FormatBytes(nvmespec.U128(n)); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestIdentifiers_text(t *testing.T) {
	type doc struct {
		N nvmespec.GUID  `json:"n"`
		E nvmespec.EUI64 `json:"e"`
	}
	in := doc{E: nvmespec.EUI64{0x8C, 0x15, 0x53}}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `{"n":"","e":"8c15530000000000"}` {
		t.Errorf("%s, %v", b, err)
	}
	var out doc
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"n":"8c15"}`), &out); err == nil {
		t.Error("a short identifier is accepted")
	}
}
