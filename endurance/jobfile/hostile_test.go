package jobfile

import (
	"strings"
	"testing"
)

// TestParse_deepNesting: nesting that would cost the parser gigabytes is refused
// at once.
func TestParse_deepNesting(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": strings.Repeat("[", 100000),
		"braces":   "phases: " + strings.Repeat("{a: ", 20000),
		"lists":    strings.Repeat("- ", 60000) + "x",
	} {
		if _, err := Parse("deep.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "nested more than 64 deep") || !strings.Contains(err.Error(), "deep.yaml:1:1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
