// Package predict says what over-provisioning buys before anyone writes a byte:
// write amplification, random-write rate and life of a drive at a size, each as
// an interval with the assumption that dominates it.
//
// The law: garbage collection under uniform random writes costs A(alpha) =
// alpha/(alpha + W0(-alpha*exp(-alpha))), alpha being the flash space T over
// the written space U; parity and metadata multiply it by a floor w0; a random
// 4 KiB write takes t = a*W + b*(W-1). T, w0 and b/a are known only within
// limits; an answer is what all combinations within the limits give that agree
// with what was measured. One measured point narrows it, two nearly fix it.
//
// The closed form answers in microseconds to milliseconds; [NewMeanField]
// follows a drive through its transient, and [Forecast] through its life.
//
// Everything is a pure function, with no clock, no randomness and no I/O; the
// package imports nothing of ours. Rates are per second, capacities in bytes.
package predict
