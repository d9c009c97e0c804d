package nvmetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Golden compares got with the file at path. With update the file is written
// instead; pass the value of the test's own -update flag.
func Golden(t testing.TB, path string, got []byte, update bool) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s does not exist; run the test with -update and look at what it writes", path)
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	if bytes.Equal(want, got) {
		return
	}
	if utf8.Valid(want) && utf8.Valid(got) {
		t.Errorf("%s (-want +got):\n%s", path, cmp.Diff(string(want), string(got)))
		return
	}
	t.Errorf("%s: want %d bytes, got %d (-want +got):\n%s", path, len(want), len(got), diffBytes(want, got))
}
