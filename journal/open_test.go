package journal

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestOpen_createsAndReopens(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "a", "b?c=d#e%41.db")
	j, err := Open(ctx, path, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	es, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range es {
		t.Log(e.Name())
	}
	j, err = Open(ctx, path, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	var mode, av string
	j.r.QueryRow("pragma journal_mode").Scan(&mode)
	j.r.QueryRow("pragma auto_vacuum").Scan(&av)
	t.Log(mode, av)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	es, _ = os.ReadDir(filepath.Dir(path))
	for _, e := range es {
		t.Log(e.Name())
	}
}
