package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgain_brokenRecord: a transaction whose record was changed, or is not all
// there, is neither gone on with nor undone; the drive is not touched.
func TestAgain_brokenRecord(t *testing.T) {
	w := newWorkshop(t, "pblaze7-7940-7.68tb")
	if code, stderr := w.run(nil, "op", "set", "sim:drive.nvop", "--size", "6.4TB", "--confirm-serial", w.serial, "--fault", "before create power-cut"); code != exitPartly {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	read := func(c *workshop) string {
		text, err := os.ReadFile(filepath.Join(c.dir, "drive.nvop"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, damage := range []string{
		`UPDATE transactions SET plan_json = replace(plan_json, '"size_blocks":12502446768', '"size_blocks":10000000000')`,
		"UPDATE transactions SET title = 'op set --size 1TB'",
		"DELETE FROM steps WHERE record > (SELECT max(record) - 2 FROM steps)",
		"DELETE FROM steps WHERE record = 2",
		`UPDATE steps SET record_json = replace(record_json, '"result":"done"', '"result":"refused"') WHERE record = 2`,
	} {
		c := w.copy()
		db, err := sql.Open("sqlite", filepath.Join(c.dir, "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		result, err := db.Exec(damage)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s: %d rows, %v", damage, n, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		before := read(c)
		for _, verb := range []string{"resume", "rollback"} {
			code, stderr := c.run(nil, verb, "t1", "--address", "sim:drive.nvop", "--confirm-serial", c.serial)
			if code != exitRefused || !strings.Contains(stderr, "nvop journal verify") {
				t.Errorf("%s after %q: exit code %d: %s", verb, damage, code, stderr)
			}
		}
		if read(c) != before {
			t.Errorf("after %q the drive is another", damage)
		}
	}
	w.must(&changeResult{}, "resume", "t1", "--address", "sim:drive.nvop", "--confirm-serial", w.serial)
}
