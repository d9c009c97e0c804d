package run

import (
	"fmt"
	"math/big"
	"math/bits"
)

// Uint128 is a 128-bit counter as drives keep them. In JSON it is a decimal
// string, since no JSON number holds it.
type Uint128 struct {
	// Hi and Lo are the upper and the lower 64 bits.
	Hi, Lo uint64
}

// U128 returns v as a 128-bit number.
func U128(v uint64) Uint128 { return Uint128{Lo: v} }

// Add returns u + v, modulo 2^128.
func (u Uint128) Add(v Uint128) Uint128 {
	lo, carry := bits.Add64(u.Lo, v.Lo, 0)
	hi, _ := bits.Add64(u.Hi, v.Hi, carry)
	return Uint128{Hi: hi, Lo: lo}
}

// Sub returns u - v, modulo 2^128.
func (u Uint128) Sub(v Uint128) Uint128 {
	lo, borrow := bits.Sub64(u.Lo, v.Lo, 0)
	hi, _ := bits.Sub64(u.Hi, v.Hi, borrow)
	return Uint128{Hi: hi, Lo: lo}
}

// Cmp returns -1, 0 or +1 as u is less than, equal to or greater than v.
func (u Uint128) Cmp(v Uint128) int {
	switch {
	case u == v:
		return 0
	case u.Hi < v.Hi, u.Hi == v.Hi && u.Lo < v.Lo:
		return -1
	}
	return 1
}

// IsZero says whether u is 0.
func (u Uint128) IsZero() bool { return u == Uint128{} }

// Big returns u as a big integer.
func (u Uint128) Big() *big.Int {
	b := new(big.Int).SetUint64(u.Hi)
	b.Lsh(b, 64)
	return b.Add(b, new(big.Int).SetUint64(u.Lo))
}

// String returns u in decimal.
func (u Uint128) String() string { return u.Big().String() }

// MarshalText implements encoding.TextMarshaler: decimal.
func (u Uint128) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *Uint128) UnmarshalText(b []byte) error {
	v, ok := new(big.Int).SetString(string(b), 10)
	if !ok || v.Sign() < 0 || v.BitLen() > 128 {
		return fmt.Errorf("%q is not a 128-bit count", b)
	}
	u.Lo = new(big.Int).And(v, new(big.Int).SetUint64(1<<64-1)).Uint64()
	u.Hi = v.Rsh(v, 64).Uint64()
	return nil
}
