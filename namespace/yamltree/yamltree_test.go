package yamltree_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"nvop/namespace/yamltree"
)

const limit = 1 << 20

func ExampleParse() {
	_, err := yamltree.Parse([]byte("a:\n  - "+strings.Repeat("[", 1000)), limit)
	fmt.Println(err)
	// Output: 2:1: brackets are nested more than 64 deep
}

// indented is a mapping in a mapping, one column deeper each.
func indented(levels int) string {
	var b strings.Builder
	for i := range levels {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

// TestParse_deep: however the nesting is written, it is refused, at once.
func TestParse_deep(t *testing.T) {
	for name, text := range map[string]string{
		"brackets":             strings.Repeat("[", 100000),
		"braces":               "phases: " + strings.Repeat("{a: ", 20000),
		"lists":                strings.Repeat("- ", 60000) + "x",
		"keys":                 strings.Repeat("? ", 60000) + "x",
		"blocks":               indented(1000),
		"lists of indented":    strings.ReplaceAll(indented(300), "a:", "-"),
		"tags":                 "a: " + strings.Repeat("!a ", 5000) + "x",
		"closed before":        "a: \"" + strings.Repeat("]", 1000) + "\"\nb: " + strings.Repeat("[", 1000),
		"closed in quotes":     strings.Repeat(`["]", `, 1000),
		"closed in single":     strings.Repeat(`[']', `, 1000),
		"closed in lines":      strings.Repeat("[\"\n ]\n\", ", 1000),
		"lists without blanks": strings.Repeat("-\t", 1000) + "x",
	} {
		_, err := yamltree.Parse([]byte(text), limit)
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		if e, ok := errors.AsType[*yamltree.Error](err); ok && !strings.Contains(e.Reason, "nested more than 64 deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParse_long: a list or mapping whose length would cost the library minutes is
// refused.
func TestParse_long(t *testing.T) {
	keys := func(n int, separator string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: 1%s", i, separator)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"dashes":        {strings.Repeat("-\n", 9000), "a list has more than 8192 elements"},
		"flow":          {"a: [" + strings.Repeat("1,", 9000) + "]", "a list has more than 8192 elements"},
		"keys":          {keys(1100, "\n"), "a mapping has more than 1024 elements"},
		"flow keys":     {"{" + keys(1100, ", ") + "}", "a mapping has more than 1024 elements"},
		"keys of lists": {strings.ReplaceAll(keys(1100, "\n"), " 1\n", "\n- x\n"), "a mapping has more than 1024 elements"},
	} {
		if _, err := yamltree.Parse([]byte(c.text), limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"a list":        strings.Repeat("- 1\n", 8000),
		"comments":      strings.Repeat("# nothing\n", 20000) + "a: # 1\n" + strings.Repeat("  # deep\n      # deeper\n", 5000) + "  b: 1\n",
		"many lists":    keys(500, "\n") + strings.ReplaceAll(strings.ReplaceAll(keys(500, "\n"), "k", "l"), " 1\n", "\n- x\n- y\n- z\n"),
		"many rules":    strings.Repeat("- match: {serial: S1, model: M}\n  power: {state: 1, save: true}\n  namespaces: [{size: 1TB}, {max: true}]\n", 2000),
		"flow of flows": "a: [" + strings.Repeat("[1, 2, 3], ", 2000) + "4]",
	} {
		if _, err := yamltree.Parse([]byte(text), limit); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParse_closedInQuotes: brackets that only look closed are counted all the same.
func TestParse_closedInQuotes(t *testing.T) {
	for _, text := range []string{strings.Repeat(`["]", `, 100) + "x" + strings.Repeat("]", 100), strings.Repeat("[\"\n ]\n\", ", 100) + "x" + strings.Repeat("]", 100)} {
		if _, err := yamltree.Parse([]byte(text), limit); err == nil || !strings.Contains(err.Error(), "nested more than 64 deep") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestParse_taken(t *testing.T) {
	for _, text := range []string{
		"version: 1\nnamespaces: [{size: max}]\n",
		"a: \"[[[[[[\"\nb: '{{{'\n",
		strings.Repeat("[", 60) + strings.Repeat("]", 60),
		strings.Repeat("- ", 60) + "x",
		indented(60) + strings.Repeat(" ", 60) + "b: 1\n",
		strings.Repeat("- {a: [1, 2], b: {c: 3}}\n", 5000),
		"",
	} {
		if _, err := yamltree.Parse([]byte(text), limit); err != nil {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	if _, err := yamltree.Parse(make([]byte, limit+1), limit); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Error(err)
	}
	if _, err := yamltree.Parse([]byte("a: ["), limit); err == nil {
		t.Error("half a list was taken")
	}
}

// FuzzParse: no text makes it panic.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: [1]\n", "? - a\n: b\n", "a: |\n  ]]]\nb: \"]\"\n", "- - {a: &x !t [*x]}\n", "<<: *a\n", "\t- [\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := yamltree.Parse(text, 4096)
		if err == nil && file == nil {
			t.Fatal("neither a tree nor an error")
		}
	})
}
