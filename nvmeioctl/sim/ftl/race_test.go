//go:build race

package ftl

// raceDetector says that the tests run ten times slower.
const raceDetector = true
