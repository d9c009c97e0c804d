package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// uniqueKeys reads one JSON document and says what is wrong with it as RFC 8259
// has it: a key twice in an object, or something after the document.
func uniqueKeys(text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var value func(path string) error
	value = func(path string) error {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		open, ok := token.(json.Delim)
		if !ok {
			return nil
		}
		seen := map[string]bool{}
		for i := 0; dec.More(); i++ {
			at := fmt.Sprintf("%s[%d]", path, i)
			if open == '{' {
				key, err := dec.Token()
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				if at = path + "." + key.(string); seen[at] {
					return fmt.Errorf("%s is there twice", at)
				}
				seen[at] = true
			}
			if err := value(at); err != nil {
				return err
			}
		}
		_, err = dec.Token()
		return err
	}
	if err := value(""); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something follows the document")
	}
	return nil
}

// Cases B6, B7, B8, A8: whatever happens, standard output is one strict JSON
// document, and what is remarked goes elsewhere: of a run with failing
// conditions, of two drives at once that are verified each for itself, of plans.
func TestSoak_oneStrictDocument(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, bytes int64) string {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err == nil {
			err = f.Truncate(bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	a, b := file("a", 1<<20), file("b", 1<<20)
	job := filepath.Join(dir, "job.yaml")
	text := "version: 1\nphases:\n  - {kind: measure, rw: randwrite, order: permutation, check: each_pass, end: {passes: 2}}\n  - {kind: verify, rw: read, block: 64k, check: reads, end: {passes: 1}}\n"
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"two drives, verified": {[]string{"soak", "start", "--file", job, a, b, "--overwrite", "--on-event", "/bin/false"}, 0, `"nvop.soak-group/1"`},
		"a limit is reached":   {[]string{"soak", "start", "--rw", "write", "--overwrite", a, "--passes", "1", "--stop", "latency=1ns"}, 3, `"fail"`},
		"a plan":               {[]string{"soak", "check", job, b}, 0, `"nvop.soak-plan/1"`},
		"a plan without drive": {[]string{"soak", "check", job}, 0, `"nvop.soak-plan/1"`},
		"nothing to resume":    {[]string{"soak", "resume", "--all"}, 0, `"runs": []`},
		"refused":              {[]string{"soak", "start", "--rw", "write", "file:" + job, "--passes", "1"}, exitUsage, `"nvop.error/1"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, append(c.args, "-o", "json")...)
			if r.code != c.code || !strings.Contains(r.out, c.says) {
				t.Errorf("exit code %d, want %d\n%s\n%s", r.code, c.code, r.out, r.errout)
			}
			if err := uniqueKeys(r.out); err != nil {
				t.Errorf("%v\n%s", err, r.out)
			}
		})
	}
	if err := uniqueKeys(`{"a":{"b":1,"b":2}}`); err == nil {
		t.Error("a key that is there twice is not seen")
	}
}
