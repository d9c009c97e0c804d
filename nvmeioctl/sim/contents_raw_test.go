package sim

import (
	"bytes"
	"errors"
	"testing"

	"nvop/nvmeioctl"
)

// rawDrive is a drive whose first blocks hold their own numbers.
func rawDrive(t *testing.T, blocks int) (*Drive, *Raw) {
	t.Helper()
	d := newTestDrive(t, "pblaze7-7940-7.68tb", nil)
	if _, err := d.Raw(1); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Fatalf("a drive without contents: %v", err)
	}
	if err := d.KeepContents(); err != nil {
		t.Fatal(err)
	}
	r, err := d.Raw(1)
	if err != nil {
		t.Fatal(err)
	}
	size, err := r.BlockBytes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := r.Write(uint64(i), bytes.Repeat([]byte{byte(i + 1)}, size)); err != nil {
			t.Fatal(err)
		}
	}
	return d, r
}

// read gives the first byte of each of n blocks, and fails unless each block is
// one byte repeated.
func read(t *testing.T, r *Raw, n int) []byte {
	t.Helper()
	size, _ := r.BlockBytes()
	var got []byte
	for i := range n {
		b := make([]byte, size)
		if err := r.Read(uint64(i), b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, bytes.Repeat(b[:1], size)) {
			t.Fatalf("block %d is torn", i)
		}
		got = append(got, b[0])
	}
	return got
}

func TestRaw_copySwapRestore(t *testing.T) {
	_, r := rawDrive(t, 6)
	snap, err := r.Snapshot(1, 4)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		what string
		do   func() error
		want []byte
	}{
		{"copy", func() error { return r.Copy(0, 1, 3) }, []byte{1, 1, 2, 3, 5, 6}}, // they overlap
		{"swap", func() error { return r.Swap(0, 4, 2) }, []byte{5, 6, 2, 3, 1, 1}},
		{"restore two", func() error { return r.Restore(snap, 2, 2) }, []byte{5, 6, 3, 4, 1, 1}},
		{"restore all", func() error { return r.Restore(snap, 1, 4) }, []byte{5, 2, 3, 4, 5, 1}},
		{"tear at 0", func() error { return r.Tear(1, 1, 0, nil) }, []byte{5, 0, 3, 4, 5, 1}},
		{"tear at 0 to old", func() error { return r.Tear(1, 2, 0, snap) }, []byte{5, 2, 3, 4, 5, 1}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if got := read(t, r, 6); !bytes.Equal(got, s.want) {
			t.Fatalf("%s: blocks %v, want %v", s.what, got, s.want)
		}
	}
}

// What is edited below is what commands read.
func TestRaw_flipAndTearAreReadByCommands(t *testing.T) {
	d, r := rawDrive(t, 2)
	size, _ := r.BlockBytes()
	snap, err := r.Snapshot(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Flip(0, 8*100+3); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(1, bytes.Repeat([]byte{9}, size)); err != nil {
		t.Fatal(err)
	}
	if err := r.Tear(1, 1, 100, snap); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1}, size)
	want[100] ^= 8
	want = append(append(want, bytes.Repeat([]byte{9}, 100)...), bytes.Repeat([]byte{2}, size-100)...)
	got := make([]byte, 2*size)
	host{t, d}.want(nvmeioctl.Command{IO: true, Opcode: 0x02, NSID: 1, CDW12: 1, Data: got}, 0)
	if !bytes.Equal(got, want) {
		t.Error("commands read something else than was edited")
	}
}

func TestRaw_refuses(t *testing.T) {
	d, r := rawDrive(t, 2)
	size, _ := r.BlockBytes()
	snap, err := r.Snapshot(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	end := d.st.find(1).SizeBlocks
	for name, err := range map[string]error{
		"part of a block":      r.Write(0, make([]byte, size-1)),
		"beyond the end":       r.Write(end, make([]byte, size)),
		"across the end":       r.Copy(0, end-1, 2),
		"no blocks":            r.Copy(0, 1, 0),
		"overlapping swap":     r.Swap(0, 1, 2),
		"bit beyond the block": r.Flip(0, uint64(size)*8),
		"tear beyond":          r.Tear(0, 1, uint64(size)+1, nil),
		"not in the snapshot":  r.Restore(snap, 1, 2),
		"other block size":     r.Restore(&Snapshot{BlockBytes: 1, Data: make([]byte, size)}, 0, 1),
		"empty snapshot":       r.Restore(&Snapshot{}, 0, 1),
		"too much":             r.Copy(0, 1, 1<<40),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := d.Raw(2); err == nil {
		t.Error("a namespace that is not there has contents")
	}
}
