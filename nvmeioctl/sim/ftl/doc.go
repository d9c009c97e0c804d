// Package ftl models the inside of a flash drive: which flash page holds which
// logical page, what collecting garbage costs, how the flash wears, and how
// long operations take.
//
// [FTL] is a page-mapped translation layer over superblocks: greedy garbage
// collection, separate frontiers for the host's writes and for collection,
// first-in-first-out reuse of erased superblocks, static wear levelling, and,
// where asked for, hot and cold data apart.
// [Server] is the time the drive is busy with an operation.
//
// Everything is a pure function of what went in: there is no clock, no global
// state and no randomness but that of the seed. Nothing here is safe for
// concurrent use. A page is whatever the caller says a map page stands for; the
// package never sees a byte of data.
package ftl
