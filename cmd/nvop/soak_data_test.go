package main

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Cases H5 and H6: what a soak leaves on the medium compresses and repeats as it
// was asked to, within 2 %, by flags and by a run file, and is verified all the
// same; without ratios nothing of it compresses or repeats.
func TestSoak_ratiosOnTheMedium(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct {
		flags           []string
		keys            string
		compress, dedup float64 // what is left, of 1
	}{
		"neither":  {nil, "", 1, 1},
		"compress": {[]string{"--compress-ratio", "2.5"}, "compress_ratio: 2.5:1\n", 0.4, 1},
		"dedup":    {[]string{"--dedup-ratio", "4:1"}, "dedup_ratio: 4\n", 1, 0.25},
		"headers":  {[]string{"--data", "headers"}, "data: headers\n", -1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			disk, job := filepath.Join(dir, "disk"), filepath.Join(dir, "job.yaml")
			verify, phase := []string{"--verify", "end"}, "  - {kind: verify, rw: read, block: 128k, check: reads, end: {passes: 1}}\n"
			if name == "headers" {
				verify, phase = nil, "" // nothing can be said of the bodies
			}
			text := "version: 1\n" + c.keys + "phases:\n  - {kind: measure, rw: randwrite, order: permutation, block: 4KiB, end: {passes: 1}}\n" + phase
			if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			flags := append(append([]string{"soak", "start", "file:" + disk, "--rw", "randwrite", "--order", "permutation", "--passes", "1"}, verify...), c.flags...)
			for _, args := range [][]string{flags, {"soak", "start", "file:" + disk, "--file", job}} {
				if err := os.WriteFile(disk, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(disk, size); err != nil {
					t.Fatal(err)
				}
				r := call(t, append(args, "--buffered", "-o", "json")...)
				var done soakResult
				if err := json.Unmarshal([]byte(r.out), &done); err != nil || r.code != exitOK {
					t.Fatalf("%v: exit code %d: %s", err, r.code, r.errout)
				}
				if verify != nil && (done.Verified == nil || done.Verified.MismatchesTotal != 0 || done.Verified.Blocks != size/4096) {
					t.Errorf("verified %+v", done.Verified)
				}
				compress, dedup := ratiosOf(t, disk)
				if off := compress - c.compress; c.compress > 0 && (off > 0.02 || off < -0.02) {
					t.Errorf("%v: compresses to %.3f, want %.3f", args, compress, c.compress)
				}
				if off := dedup - c.dedup; off > 0.02 || off < -0.02 {
					t.Errorf("%v: %.3f of the units differ, want %.3f", args, dedup, c.dedup)
				}
			}
		})
	}
}

// ratiosOf is what a file's units of 4 KiB compress to, each for itself, and how
// many of them differ, both of 1.
func ratiosOf(t *testing.T, path string) (compress, dedup float64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const unit = 4096
	seen := map[[32]byte]bool{}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	looked, left := 0, 0
	for at := 0; at+unit <= len(text); at += unit {
		seen[sha256.Sum256(text[at:at+unit])] = true
		if at/unit%8 != 0 {
			continue // enough of them are compressed
		}
		out.Reset()
		w.Reset(&out)
		if _, err := w.Write(text[at : at+unit]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		looked, left = looked+unit, left+out.Len()
	}
	return float64(left) / float64(looked), float64(len(seen)) * unit / float64(len(text))
}
