package nvmespec_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nvop/nvmeioctl/nvmespec"
)

// TestPlausible: real dumps are taken, other files of the same length are not.
func TestPlausible(t *testing.T) {
	for kind, glob := range map[string]string{"id-ctrl": "id-ctrl.bin", "id-ns": "id-ns-[127]*.bin"} {
		files, err := filepath.Glob(filepath.Join("testdata", "qemu-7.2-linux-6.12", glob))
		if err != nil || len(files) == 0 {
			t.Fatalf("no dumps of %s: %v", kind, err)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := nvmespec.Plausible(kind, b); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if err := nvmespec.Plausible(kind, append(bytes.Clone(b), 0)); !errors.Is(err, nvmespec.ErrInvalidData) || !strings.Contains(err.Error(), "4097 bytes") {
				t.Errorf("%s and a byte: %v", path, err)
			}
		}
		if err := nvmespec.Plausible(kind, make([]byte, 10)); !errors.Is(err, nvmespec.ErrShort) {
			t.Errorf("%s of 10 bytes: %v", kind, err)
		}
		for name, b := range map[string][]byte{
			"ones": bytes.Repeat([]byte{0xFF}, 4096), "a program": bytes.Repeat([]byte("\x7fELF\x02\x01\x01\x00\x90\xc3"), 410)[:4096],
		} {
			if err := nvmespec.Plausible(kind, b); !errors.Is(err, nvmespec.ErrInvalidData) {
				t.Errorf("%s as %s: %v", name, kind, err)
			}
		}
	}
	if err := nvmespec.Plausible("id-ctrl", make([]byte, 4096)); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("zeros as id-ctrl: %v", err)
	}
	// A namespace that is not there is all zero.
	if err := nvmespec.Plausible("id-ns", make([]byte, 4096)); err != nil {
		t.Error(err)
	}
	if err := nvmespec.Plausible("smart", []byte{1}); err != nil {
		t.Error(err)
	}
}
