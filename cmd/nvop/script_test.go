package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nvop": main})
}

// TestScript runs one story a file. Each has a home, a journal and a lock
// folder of its own.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
			env.Setenv("J", "--journal="+filepath.Join(env.WorkDir, "journal.db"))
			return os.Mkdir(filepath.Join(env.WorkDir, "run"), 0o700)
		},
		Condition: func(name string) (bool, error) {
			if name == "race" {
				return raceDetector, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"json":     scriptJSON,
			"setjson":  scriptSetJSON,
			"sim":      scriptSim,
			"truncate": scriptTruncate,
			"patch":    scriptPatch,
			"exit":     scriptExit,
			"appendto": scriptAppend,
		},
	})
}

// document reads stdout as exactly one JSON document.
func document(ts *testscript.TestScript) any {
	dec := json.NewDecoder(bytes.NewReader([]byte(ts.ReadFile("stdout"))))
	dec.UseNumber()
	var v any
	ts.Check(dec.Decode(&v))
	if dec.More() {
		ts.Fatalf("more than one document on stdout")
	}
	return v
}

// at walks to a.b.0.c.
func at(v any, path string) (any, error) {
	for step := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			child, ok := x[step]
			if !ok {
				return nil, fmt.Errorf("no member %q on the way %s", step, path)
			}
			v = child
		case []any:
			if step == "len" {
				return len(x), nil
			}
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("no element %q on the way %s", step, path)
			}
			v = x[i]
		default:
			return nil, fmt.Errorf("nothing below %q on the way %s", step, path)
		}
	}
	return v, nil
}

// scriptJSON: json PATH VALUE, or json PATH LOW HIGH for a number in a range;
// without arguments, stdout is one document.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	v := document(ts)
	if len(args) == 0 {
		return
	}
	v, err := at(v, args[0])
	if neg {
		if err == nil && (len(args) == 1 || fmt.Sprint(v) == args[1]) {
			ts.Fatalf("%s is %v", args[0], v)
		}
		return
	}
	ts.Check(err)
	switch len(args) {
	case 2:
		if fmt.Sprint(v) != args[1] {
			ts.Fatalf("%s is %v, want %s", args[0], v, args[1])
		}
	case 3:
		n, low, high := number(ts, fmt.Sprint(v)), number(ts, args[1]), number(ts, args[2])
		if n < low || n > high {
			ts.Fatalf("%s is %v, want %s to %s", args[0], v, args[1], args[2])
		}
	}
}

func number(ts *testscript.TestScript, s string) float64 {
	n, err := strconv.ParseFloat(s, 64)
	ts.Check(err)
	return n
}

// scriptSetJSON: setjson NAME PATH sets a variable from stdout.
func scriptSetJSON(ts *testscript.TestScript, _ bool, args []string) {
	v, err := at(document(ts), args[1])
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprint(v))
}

// scriptSim: sim FILE PROFILE [ARG ...] makes a simulated drive, its serial
// number in $S.
func scriptSim(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("nvop", append([]string{"sim", "create", ts.MkAbs(args[0]), "--profile", args[1], "-o", "json"}, args[2:]...)...))
	scriptSetJSON(ts, false, []string{"S", "serial"})
}

// scriptTruncate: truncate FILE SIZE.
func scriptTruncate(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.Truncate(ts.MkAbs(args[0]), int64(number(ts, args[1]))))
}

// scriptPatch: patch FILE OFFSET HEX writes bytes into a file.
func scriptPatch(ts *testscript.TestScript, _ bool, args []string) {
	raw, err := hex.DecodeString(args[2])
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(raw, int64(number(ts, args[1])))
	ts.Check(err)
	ts.Check(f.Close())
}

// scriptAppend: appendto FILE TEXT.
func scriptAppend(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|os.O_APPEND, 0)
	ts.Check(err)
	_, err = f.WriteString(args[1])
	ts.Check(err)
	ts.Check(f.Close())
}

// scriptExit: exit CODE nvop ARG... runs nvop and wants this exit code and, where
// it is not 0, exactly one line on stderr beside progress.
func scriptExit(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if err != nil {
		if _, cerr := fmt.Sscanf(err.Error(), "exit status %d", &code); cerr != nil {
			ts.Fatalf("%v", err)
		}
	}
	if want := int(number(ts, args[0])); code != want {
		ts.Fatalf("exit code %d, want %d\n%s", code, want, ts.ReadFile("stderr"))
	}
	if stderr := ts.ReadFile("stderr"); code != 0 && !strings.Contains(stderr, "nvop: ") {
		ts.Fatalf("exit code %d and nothing said", code)
	}
}
