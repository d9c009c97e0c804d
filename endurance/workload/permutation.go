package workload

import "math/bits"

// rounds of multiply and xorshift. Three leave one key in eight with a step
// distribution that is off by 7 %; four leave nothing that the tests can see.
const rounds = 4

// Permutation is a keyed bijection of [0, n): a random order of n blocks in
// constant memory, with its inverse. It works on the smallest power of two that
// holds n and walks the cycle until it is back inside, which takes fewer than
// two steps on average. Safe for concurrent use.
type Permutation struct {
	n, mask uint64
	shift   uint8
	mul     [rounds]uint64 // odd, so invertible modulo any power of two
	add     [rounds]uint64
	inverse [rounds]uint64 // of mul, modulo 2^64
}

// NewPermutation returns the permutation of [0, n) that key selects. n may be
// anything from 0; a permutation of nothing must not be asked.
func NewPermutation(n, key uint64) Permutation {
	p := Permutation{n: n}
	width := max(bits.Len64(max(n, 1)-1), 1)
	p.mask = ^uint64(0) >> (64 - width)
	// At least half the width, so that one step undoes the xorshift.
	p.shift = uint8((width + 1) / 2)
	for r := range rounds {
		p.mul[r] = draw(key, uint64(2*r)) | 1
		p.add[r] = draw(key, uint64(2*r+1))
		p.inverse[r] = oddInverse(p.mul[r])
	}
	return p
}

// oddInverse returns the inverse of an odd number modulo 2^64, by Newton's
// iteration: each step doubles the number of correct bits, from 3.
func oddInverse(m uint64) uint64 {
	x := m
	for range 5 {
		x *= 2 - m*x
	}
	return x
}

// N is how many numbers are permuted.
func (p *Permutation) N() uint64 { return p.n }

// At returns the block at position i of the order. i is below N.
func (p *Permutation) At(i uint64) uint64 {
	for {
		i = (i*p.mul[0] + p.add[0]) & p.mask
		i ^= i >> (p.shift & 63)
		i = (i*p.mul[1] + p.add[1]) & p.mask
		i ^= i >> (p.shift & 63)
		i = (i*p.mul[2] + p.add[2]) & p.mask
		i ^= i >> (p.shift & 63)
		i = (i*p.mul[3] + p.add[3]) & p.mask
		i ^= i >> (p.shift & 63)
		if i < p.n {
			return i
		}
	}
}

// Position returns where in the order a block is visited: At's inverse. block
// is below N.
func (p *Permutation) Position(block uint64) uint64 {
	i := block
	for {
		for r := rounds - 1; r >= 0; r-- {
			i ^= i >> (p.shift & 63)
			i = (i - p.add[r]) * p.inverse[r] & p.mask
		}
		if i < p.n {
			return i
		}
	}
}
