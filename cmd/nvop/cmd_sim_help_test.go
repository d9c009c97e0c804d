package main

import (
	"bytes"
	"strings"
	"testing"
)

// Every example stands on a line of its own in the help, as it is typed: help
// that joins them into a paragraph gives commands that nobody can copy.
func TestHelp_examplesAreWhole(t *testing.T) {
	parser, err := newParser(&grammar{}, streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, leaf := range parser.Model.Leaves(true) {
		words := strings.Fields(leaf.FullPath())[1:]
		_, after, _ := strings.Cut(leaf.Detail, "Example:")
		shown := call(t, append(words, "--help")...).out
		for _, line := range strings.Split(after, "\n") {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "nvop ") && !strings.HasPrefix(line, "Example: nvop ") {
				continue
			}
			examples++
			line = strings.TrimPrefix(line, "Example: ")
			if !strings.Contains(shown, " "+line+"\n") {
				t.Errorf("%s: the help tears %q:\n%s", strings.Join(words, " "), line, shown)
			}
		}
	}
	if examples < 40 {
		t.Errorf("only %d examples found: the test looks for them in the wrong place", examples)
	}
}
