//go:build !race

package namespace_test

// raceStride: every cut point is taken.
const raceStride = 1
