package nvmetest

import "testing"

// Golden compares got with the file at path. With update the file is written
// instead; pass the test's own -update flag.
func Golden(t testing.TB, path string, got []byte, update bool) {}
