package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A journal that is deleted or replaced under a run is noticed at the next
// commit: what is recorded from then on would be gone.
func TestRecorder_noticesThatTheFileIsGone(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		j := openTest(t)
		s := newSynth(7)
		r := beginTest(t, j, 7)
		s.commitAll(t, r, 1, 2)
		if err := r.present(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(j.Path(), filepath.Join(t.TempDir(), "away")); err != nil {
			t.Fatal(err)
		}
		if replaced {
			if err := os.WriteFile(j.Path(), []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := r.Commit(context.Background(), s.batch(2))
		e, ok := errors.AsType[*OpenError](err)
		if !ok || e.Transient() || !strings.Contains(err.Error(), "deleted or replaced") {
			t.Errorf("replaced %v: %v", replaced, err)
		}
	}
}
