// Package pattern is the data of a verifiable logical block: what a soak writes,
// and what it must find again.
//
// A block is a header that says whose it is (run, seed, logical block address,
// generation) and a body that follows from the header alone: a stretch of a
// random pool xored with a word of its own. So any block can be told from any
// other, be checked without remembering what was written, and be made again from
// its header. Neither header nor body compresses, unless it is asked to
// ([Config.CompressPermille], [Config.DedupPermille]).
//
// The package is pure: it does no I/O and keeps nothing but pools. Metadata and
// protection information are left to the drive (PRACT); a block here is its data
// alone.
package pattern
