package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nvop/namespace"
)

// specOfKill changes firmware, the format of one namespace, and replaces another.
const specOfKill = `version: 1
firmware: {revision: 0B200200, image: new.bin, activate: reset}
power: {state: 1}
namespaces:
  - {size: 3.2TB, lba: {data: 4096}}
  - {size: 2TB, lba: {data: 512}}
replace: [2]
`

// TestKill_spec: killed with -9 after any line it wrote, a change of firmware,
// format and namespaces of a drive in a file is carried on to what the spec says,
// or undone to what was there, by another process; the journal tells the story.
func TestKill_spec(t *testing.T) {
	skipUnderRace(t)
	stride := 4
	if os.Getenv("NVOP_LONG") != "" {
		stride = 1
	}
	t.Logf("killing after every %d. line (every one with NVOP_LONG=1)", stride)
	start := newWorkshop(t, "pblaze7-7940-7.68tb", "--scale", "8192")
	start.must(&simImageResult{}, "sim", "image", "new.bin", "--revision", "0B200200", "--bytes", "65536")
	start.must(&changeResult{}, "op", "set", "sim:drive.nvop", "--size", "3.2TB", "--confirm-serial", start.serial)
	start.must(&changeResult{}, "ns", "create", "sim:drive.nvop", "--size", "3.2TB", "--confirm-serial", start.serial)
	if err := os.WriteFile(filepath.Join(start.dir, "spec.yaml"), []byte(specOfKill), 0o600); err != nil {
		t.Fatal(err)
	}
	before := start.shapes()
	apply := []string{"apply", "sim:drive.nvop", "-f", "spec.yaml", "--confirm-serial", start.serial}
	whole := start.copy()
	whole.must(&changeResult{}, apply...)
	after := whole.shapes()
	inside, kinds := 0, map[string]bool{}
	for n := 1; ; n += stride {
		w := start.copy()
		lines, killed := w.killAfterLine(n, apply...)
		if lines < n {
			break
		}
		id := w.unfinished()
		if !killed || id == "" {
			continue
		}
		inside++
		kinds[w.lastStep(id)] = true
		undo := w.copy()
		w.must(&changeResult{}, "resume", "--confirm-serial", w.serial)
		if got := w.shapes(); got != after {
			t.Errorf("killed after line %d, resumed: %s, want %s", n, got, after)
		}
		var clean auditResult
		w.must(&clean, "audit", "sim:drive.nvop", "-f", "spec.yaml")
		if code, stderr := undo.run(&changeResult{}, "rollback", "--address", "sim:drive.nvop", "--confirm-serial", w.serial); code != exitOK && code != exitResetPending {
			t.Errorf("killed after line %d, rolled back: exit code %d: %s", n, code, stderr)
		}
		if got := undo.shapes(); got != before {
			t.Errorf("killed after line %d, rolled back: %s, want %s", n, got, before)
		}
		for _, x := range []*workshop{w, undo} {
			x.must(&verifyResult{}, "journal", "verify")
			if x.unfinished() != "" {
				t.Errorf("killed after line %d: a transaction is still unfinished", n)
			}
		}
	}
	t.Logf("%d kills inside the transaction, at steps of kinds %v", inside, kinds)
	if inside == 0 {
		t.Error("no kill hit the transaction: the test shows nothing")
	}
}

// shapes are the drive's namespaces in one line, without what is new every time.
func (w *workshop) shapes() string {
	w.t.Helper()
	var list nsListResult
	w.must(&list, "ns", "list", "sim:drive.nvop")
	var parts []string
	for _, n := range list.Namespaces {
		n.NGUID, n.EUI64 = "", ""
		parts = append(parts, n.String())
	}
	return strings.Join(parts, "; ")
}

// unfinished is the transaction that a kill left; empty for none.
func (w *workshop) unfinished() string {
	w.t.Helper()
	var list journalListResult
	w.must(&list, "journal", "list")
	for _, c := range list.Changes {
		if !c.State.Finished() {
			return c.ID
		}
	}
	return ""
}

// lastStep is the kind of the step that was begun last, as the journal tells.
func (w *workshop) lastStep(id string) string {
	w.t.Helper()
	var h changeHistory
	w.must(&h, "journal", "show", id)
	if len(h.Intents) == 0 {
		return "none"
	}
	i := h.Intents[len(h.Intents)-1].StepIndex
	if kind := h.Transaction.Steps[i].Kind; strings.HasPrefix(kind, "namespace.") || kind == namespace.KindFeature || strings.HasPrefix(kind, "firmware.") {
		return kind
	}
	return "unknown"
}
