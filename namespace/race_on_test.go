//go:build race

package namespace_test

// raceStride thins the cut points where the race detector makes each run twenty
// times as slow: nothing here runs concurrently, so it can find little.
const raceStride = 6
