// Package nvmespec is the pure codec of NVMe: structures, units, opcodes,
// statuses, and what each command changes or destroys. It does no I/O.
//
// Device bytes are read once, by explicit little-endian offset, into domain
// values: units converted, zero-based fields made one-based, "not reported" made
// explicit ([Opt]), 128-bit counters exact ([Uint128]). Every structure has one
// Decode and one Append side by side, so that the host and a simulated drive
// speak through the same table; the tests hold that table against outside
// witnesses. Decoding is tolerant (reserved bits belong to later revisions of
// the specification); encoding writes every reserved byte as zero.
//
// Offsets are named off<Structure><MNEMONIC> after the NVMe Base Specification
// 2.x, the NVM Command Set Specification 1.x and the OCP Datacenter NVMe SSD
// specification; the mnemonic is how a reviewer finds the row.
package nvmespec
