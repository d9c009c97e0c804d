// Package journal keeps what was done to drives and what they did: every
// transaction step, every second of a soak, every counter sample, in one SQLite
// file.
//
// The file is the memory of nvop. A step's intent is on the medium before the
// command is sent; the rows of a soak are committed together with the
// checkpoint that covers them, once per wall second, so after kill -9 the two
// agree. Steps and events are chained by sha256, each link holding the hash of
// the one before, and the head of each chain is kept apart from it, so a
// changed, missing or cut-off link is found by [Journal.Verify]. Old rows are
// thinned to minutes; sums stay exact and latency histograms are merged, never
// averaged.
//
// The package must not touch a drive, read a clock or decide anything: times
// come in with the data. It is the only package with SQL. SCHEMA.md describes
// the tables.
//
// A [Journal] is safe for concurrent use, also across processes: writers take
// turns, readers never wait for them.
package journal
