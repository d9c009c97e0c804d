// Package workload turns a job into operations: which block, read or write. What
// is in the blocks is package pattern's.
//
// Everything is a pure function of a seed and a position, so that any operation
// can be told again after a crash, and the expected content of any block with
// it, in constant memory however large the drive. The package does no I/O and
// imports nothing of ours.
package workload

// mix64 is a bijection of 64-bit words in which every input bit changes every
// output bit with probability one half: the output function of SplitMix64
// (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// golden is 2^64 over the golden ratio, odd: the step of SplitMix64.
const golden = 0x9E3779B97F4A7C15

// draw is the n-th word of the SplitMix64 stream of a key.
func draw(key, n uint64) uint64 { return mix64(key + (n+1)*golden) }
