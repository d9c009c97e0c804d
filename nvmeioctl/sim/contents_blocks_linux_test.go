package sim

import (
	"testing"

	"golang.org/x/sys/unix"
)

// fileUse is the disk that a file takes.
type fileUse struct{ bytes int64 }

func (u *fileUse) of(t *testing.T, path string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	u.bytes = st.Blocks * 512
}
