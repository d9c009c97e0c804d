package fault

import (
	"strings"
	"testing"
)

func plan(t testing.TB, script string) Plan {
	t.Helper()
	p, err := Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse_errors(t *testing.T) {
	for script, text := range map[string]string{
		"explode":                                `unknown action "explode"`,
		"fail 3rd formt with 0x1":                `unknown command "formt"`,
		"fail 3th format with 0x1":               "no ordinal",
		"fail 0th format with 0x1":               "no ordinal",
		"fail format":                            "want with",
		"fail format with":                       "no error status",
		"fail format with 4115":                  "no error status",
		"fail format with 0x4000":                "no error status", // DNR alone is success
		"fail format with 0x1FFFF":               "no error status",
		"fail":                                   `unknown command ""`,
		"after create":                           "unknown action",
		"after every create power-cut":           "once",
		"after create drop":                      "unknown action",
		"delay format":                           "no delay",
		"delay -1s format":                       "no delay",
		"corrupt log 0x1ff":                      "no log page",
		"drop create twice":                      `"twice" is too much`,
		"drop create; lose":                      `fault "lose"`,
		"at power-cut":                           "no time and no amount",
		"at 10 hang":                             "no time and no amount",
		"at 0s hang":                             "no time and no amount",
		"at 007GB hang":                          "no time and no amount",
		"at 99999999PB hang":                     "no time and no amount",
		"now":                                    `unknown action ""`,
		"spare 4":                                "no percentage",
		"spare 101%":                             "no percentage",
		"spare 4% over":                          "no time",
		"temperature 85":                         "no temperature",
		"temperature 300C":                       "no temperature",
		"media-error 1 lba 5":                    "want nsid",
		"media-error nsid 0 lba 5":               "no namespace",
		"media-error nsid 1 lba 5-4":             "no logical blocks",
		"media-error nsid 1 lba x":               "no logical blocks",
		"media-error flush nsid 1 lba 5":         "want nsid",
		"activation":                             "no time",
		"attach 2":                               "want nsid",
		"counter broken":                         "unknown fault of counters",
		"read-only now":                          "too much",
		strings.Repeat("drop any;", 2000):        "rules are the limit",
		strings.Repeat(" ", 2<<20):               "is the limit",
		"hang over 1s":                           "too much",
		"media-error read nsid 4294967295 lba 1": "no namespace",
	} {
		_, err := Parse(script)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%.60q: %v, want %q", script, err, text)
		}
	}
}

func TestParse_comments(t *testing.T) {
	p := plan(t, "# nothing\n drop create # why\n\n;; lose log ; ")
	if got := p.String(); got != "drop every create; lose every log" {
		t.Errorf("%q", got)
	}
}

// Every line of the help is valid, and so is what it prints as.
func TestHelp_isTheLanguage(t *testing.T) {
	seen := map[EffectKind]bool{}
	for _, h := range Help() {
		p := plan(t, h[0])
		if len(p.Rules()) != 1 || h[1] == "" {
			t.Fatalf("%q: %d rules", h[0], len(p.Rules()))
		}
		seen[p.Rules()[0].Effect.Kind] = true
		if again := plan(t, p.String()); again.Rules()[0] != p.Rules()[0] {
			t.Errorf("%q is %+v, printed %q and read again %+v", h[0], p.Rules()[0], p, again.Rules()[0])
		}
	}
	for k := Fail; k <= Heal; k++ {
		if !seen[k] && k != Detach {
			t.Errorf("the help says nothing of %v", Effect{Kind: k})
		}
	}
}

func TestSplit(t *testing.T) {
	device, drive := plan(t, "drop create; now power-cut; at 1s hang; after read power-cut; before 2nd read read-only; delay 1s any").Split()
	if got, want := device.String(), "drop every create; after 1st read power-cut; delay 1s every any"; got != want {
		t.Errorf("any device: %q, want %q", got, want)
	}
	if got, want := drive.String(), "now power-cut; at 1s hang; before 2nd read read-only"; got != want {
		t.Errorf("drive: %q, want %q", got, want)
	}
}

func TestRule_matches(t *testing.T) {
	for _, c := range []struct {
		script string
		io     bool
		opcode uint8
		cdw10  uint32
		want   bool
	}{
		{"drop create", false, 0x0D, 0, true},
		{"drop create", false, 0x0D, 1, false},
		{"drop delete", false, 0x0D, 1, true},
		{"drop nsmanage", false, 0x0D, 1, true},
		{"drop write", true, 0x01, 7, true},
		{"drop write", false, 0x01, 7, false}, // Create I/O Submission Queue
		{"drop log 0x02", false, 0x02, 0x007F0002, true},
		{"drop log 0x02", false, 0x02, 0x007F0001, false},
		{"drop any", true, 0xFE, 9, true},
		{"at 10GB hang", true, 0x01, 0, false},
		{"hang", true, 0x01, 0, false},
	} {
		r := plan(t, c.script).Rules()[0]
		if got := r.Matches(c.io, c.opcode, c.cdw10); got != c.want {
			t.Errorf("%s: I/O %v opcode %#x: %v", c.script, c.io, c.opcode, got)
		}
	}
	if (Rule{When: Trigger{Moment: Before}}).Matches(false, 0, 0) {
		t.Error("a rule about no command matches one")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("fail 3rd format with 0x4115; after create power-cut; corrupt log 0x02; delay 2s identify")
	f.Add("before 12th any power-cut\n#x\nlose 1st write")
	for _, h := range Help() {
		f.Add(h[0])
	}
	f.Fuzz(func(t *testing.T, script string) {
		p, err := Parse(script)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil || again.String() != p.String() || len(again.rules) != len(p.rules) {
			t.Fatalf("%q parses to %q, which gives %q, %v", script, p, again, err)
		}
		for i := range p.rules {
			if p.rules[i] != again.rules[i] {
				t.Fatalf("%q: rule %d: %+v, then %+v", script, i, p.rules[i], again.rules[i])
			}
		}
	})
}
