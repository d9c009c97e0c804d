//go:build !race

package predict

// raceDetector says that the tests run ten times slower.
const raceDetector = false
