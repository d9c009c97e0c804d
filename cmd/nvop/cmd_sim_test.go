package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Drives made side by side are different drives: by serial number, by the name of
// the subsystem, by their namespaces. The same file gives the same drive again.
func TestSimCreate_drivesAreDistinct(t *testing.T) {
	type identity struct{ serial, nqn, nguid string }
	create := func(path string, more ...string) (id identity) {
		t.Helper()
		if r := call(t, append([]string{"sim", "create", path, "--scale", "14000"}, more...)...); r.code != 0 {
			t.Fatal(r.errout)
		}
		var shown struct {
			Serial     string `json:"serial"`
			NQN        string `json:"subsystem_nqn"`
			Namespaces []struct {
				NGUID string `json:"nguid"`
			} `json:"namespaces"`
		}
		r := call(t, "show", "sim:"+path, "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &shown); err != nil || len(shown.Namespaces) != 1 || shown.NQN == "" {
			t.Fatal(err, r.out, r.errout)
		}
		return identity{shown.Serial, shown.NQN, shown.Namespaces[0].NGUID}
	}
	dir, other := t.TempDir(), t.TempDir()
	a, b := create(filepath.Join(dir, "a.nvop")), create(filepath.Join(dir, "b.nvop"))
	if a.serial == b.serial || a.nqn == b.nqn || a.nguid == b.nguid {
		t.Errorf("two drives are one: %+v, %+v", a, b)
	}
	if again := create(filepath.Join(other, "a.nvop")); again != a {
		t.Errorf("the same name gave %+v, then %+v", a, again)
	}
	if err := os.Remove(filepath.Join(other, "a.nvop")); err != nil {
		t.Fatal(err)
	}
	if seeded := create(filepath.Join(other, "a.nvop"), "--seed", "2"); seeded.serial == a.serial {
		t.Errorf("another seed gave %+v", seeded)
	}
	if named := create(filepath.Join(dir, "c.nvop"), "--serial", "MINE1"); named.serial != "MINE1" || named.nqn == a.nqn {
		t.Errorf("%+v", named)
	}
}
