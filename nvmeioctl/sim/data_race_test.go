//go:build race

package sim

// raceDetector says that the tests run ten times slower.
const raceDetector = true
