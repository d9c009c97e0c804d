package namespace_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

func specText(t rapid.TB, text string) namespace.Spec {
	t.Helper()
	s, err := namespace.ParseSpec("spec.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// TestSpec_applyBringsItAbout: whatever a spec wants that a drive can be, carrying
// out the plan makes the next plan empty, and rolling back makes the drive what it
// was.
func TestSpec_applyBringsItAbout(t *testing.T) {
	start := newRig(t, pblaze, sim.Options{})
	start.must(opSet(0, "3TB", nil)(start, start.inventory()))
	rapid.Check(t, func(rt *rapid.T) {
		text := drawSpec(rt)
		spec := specText(rt, text)
		inv := start.inventoryAll()
		plan, err := namespace.PlanSpec(inv, spec, namespace.Options{})
		if exitCode(err) == 4 && (strings.Contains(err.Error(), "more than") || strings.Contains(err.Error(), "leaves") || strings.Contains(err.Error(), "less than")) {
			return // too much for this drive, and nothing was done
		}
		if err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		if plan.AlreadySo() {
			return
		}
		if _, err := start.run(plan); err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		now := start.inventoryAll()
		if bad := plan.Verify(now); len(bad) != 0 {
			rt.Fatalf("%v\n%s", bad, text)
		}
		again, err := namespace.PlanSpec(now, spec, namespace.Options{})
		if err != nil || !again.AlreadySo() {
			rt.Fatalf("%v\n%s\n%s", err, text, again.Text())
		}
	})
}

// drawSpec draws a spec that a PBlaze7 can be.
func drawSpec(t *rapid.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "power: {state: %d, save: %t}\n", rapid.IntRange(0, 4).Draw(t, "state"), rapid.Bool().Draw(t, "save"))
	fmt.Fprintf(&b, "features:\n  arbitration: {burst_log2: %d, high_weight: %d}\n", rapid.IntRange(0, 7).Draw(t, "burst"), rapid.IntRange(1, 256).Draw(t, "weight"))
	fmt.Fprintf(&b, "  error_recovery: {retry_ms: %d}\n", 100*rapid.IntRange(0, 50).Draw(t, "retry"))
	fmt.Fprintf(&b, "  temperature_threshold: {over: %d}\n", rapid.IntRange(40, 90).Draw(t, "over"))
	fmt.Fprintf(&b, "  interrupt_coalescing: {threshold: %d, time_us: %d}\n", rapid.IntRange(1, 256).Draw(t, "threshold"), 100*rapid.IntRange(0, 255).Draw(t, "time"))
	b.WriteString("replace: all\nnamespaces:\n")
	share := false
	for range rapid.IntRange(1, 4).Draw(t, "namespaces") {
		size := rapid.SampledFrom([]string{"size: 100GB", "size: 1TiB", "idema: 800GB", "size: 5%", "max: true", "op: 40"}).Draw(t, "size")
		if strings.HasPrefix(size, "max") || strings.HasPrefix(size, "op") {
			if share {
				continue
			}
			share = true
		}
		fmt.Fprintf(&b, "  - %s\n    lba: {data: %d, metadata: %d}\n    count: %d\n", size, rapid.SampledFrom([]int{512, 4096}).Draw(t, "data"),
			rapid.SampledFrom([]int{0, 8}).Draw(t, "metadata"), rapid.IntRange(1, 3).Draw(t, "count"))
	}
	return b.String()
}

// A size that the drive would not give is not asked for again and again: the next
// plan would delete the namespace for nothing.
func TestSpec_steppedDownIsEnough(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	spec := specText(t, "replace: all\nnamespaces:\n  - {size: 1TiB, lba: {data: 512}}\n  - {max: true, lba: {data: 512}, count: 2}\n  - {size: 5%, lba: {data: 512}, count: 2}\n")
	plan, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{})
	r.must(plan, err)
	again, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{})
	if err != nil || !again.AlreadySo() {
		t.Errorf("%v\n%s", err, again.Text())
	}
}

// Settings are undone one by one: the value there was, and the saved one.
func TestFeature_undoneByRollback(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	first := specText(t, "power: {state: 1, save: true}\nfeatures: {arbitration: {burst_log2: 4}}\n")
	plan, err := namespace.PlanSpec(r.inventoryAll(), first, namespace.Options{})
	r.must(plan, err)
	before := r.inventoryAll()
	second := specText(t, "power: {state: 3, save: true}\nfeatures: {arbitration: {burst_log2: 1, low_weight: 9}, error_recovery: {retry_ms: 300}}\n")
	if plan, err = namespace.PlanSpec(before, second, namespace.Options{}); err != nil || len(plan.Steps) != 3 {
		t.Fatalf("%v\n%s", err, plan.Text())
	}
	tx, _ := plan.Transaction()
	runner := r.runner()
	runner.Cut = func(e txn.Event) error {
		if e.Step.Index == 2 && e.Phase == txn.PhaseAfterIntent {
			return errors.New("cut")
		}
		return nil
	}
	if _, err := runner.Run(t.Context(), tx); err == nil {
		t.Fatal("it was not cut")
	}
	runner = r.runner()
	if _, err := runner.Rollback(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if d := plan.Drift(r.inventoryAll()); len(d) != 0 {
		t.Errorf("after the rollback: %v", d)
	}
}

// A clock is set to the host's, and is what was wanted afterwards.
func TestFeature_clock(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	spec := specText(t, "features: {timestamp: {skew_seconds_max: 5}}\n")
	plan, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{})
	if errors.Is(err, nvmeioctl.ErrNotSupported) {
		if !r.inventoryAll().Controller.Timestamp {
			return // this drive has none, and that was said
		}
	}
	r.must(plan, err)
	if again, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{}); err != nil || !again.AlreadySo() {
		t.Errorf("%v\n%s", err, again.Text())
	}
}

// Non-operational power states are hints, and no policy (PWR-04); those a drive has
// not are not supported.
func TestPower_onlyOperationalStates(t *testing.T) {
	r := newRig(t, "client-1tb", sim.Options{})
	for text, code := range map[string]int{"power: {state: 3}": 4, "power: {state: 17}": 5, "power: {vendor_limit: 1}": 5} {
		if _, err := namespace.PlanSpec(r.inventoryAll(), specText(t, text+"\n"), namespace.Options{}); exitCode(err) != code || !strings.Contains(err.Error(), "spec.yaml:2:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What is known to be impossible is refused before anything is deleted.
func TestSpec_impossibleGoalsAreRefused(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{Controllers: 2})
	const two = "namespaces: [{size: 1TB, shared: true, controllers: [1, 2]}]\n"
	if _, err := namespace.PlanSpec(r.inventoryAll(), specText(t, two), namespace.Options{}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]struct {
		code int
		says string
	}{
		strings.Replace(two, "2]", "7]", 1):                                                   {4, "spec.yaml:2:53: namespaces[0].controllers"},
		"features: {error_recovery: {deallocated_errors: true}}\n":                            {5, "spec.yaml:2:49: features.error_recovery.deallocated_errors"},
		"namespaces: [{size: 1TB}]\nfeatures: {error_recovery: {deallocated_errors: true}}\n": {5, "spec.yaml:3:49: features.error_recovery.deallocated_errors"},
	} {
		plan, err := namespace.PlanSpec(r.inventoryAll(), specText(t, text), namespace.Options{})
		if exitCode(err) != want.code || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v\n%s", text, err, plan.Text())
		}
	}
}

// A drive without namespace management can be formatted, and nothing else (NS-63).
func TestSpec_formatsWhereItCannotManage(t *testing.T) {
	r := newRig(t, "client-1tb", sim.Options{})
	spec := specText(t, "namespaces: [{idema: 1TB, lba: {data: 4096}}]\nformat: {erase: user}\n")
	plan, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{})
	if err != nil || plan.Steps[0].Kind != namespace.KindFormat || plan.Steps[0].Commands[0].CDW10>>9&7 != 1 {
		t.Fatalf("%v\n%s", err, plan.Text())
	}
	r.must(plan, nil)
	if again, err := namespace.PlanSpec(r.inventoryAll(), spec, namespace.Options{}); err != nil || !again.AlreadySo() {
		t.Errorf("%v\n%s", err, again.Text())
	}
	if _, err := namespace.PlanSpec(r.inventoryAll(), specText(t, "namespaces: [{size: 500GB}]\n"), namespace.Options{}); exitCode(err) != 5 {
		t.Errorf("another size without namespace management: %v", err)
	}
}

// A controller that refuses sizes off 1 MiB as an invalid field is asked for one on
// it (NS-13), and only down to what the plan announced.
func TestFault_alignedToOneMiB(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	r.fault = func(_ int, cmd *nvmeioctl.Command) (bool, nvmespec.Status, error) {
		data, _ := nvmespec.DecodeNamespaceCreate(cmd.Data)
		if is(cmd) == "create" && data.SizeBlocks*512%(1<<20) != 0 {
			return false, 0x4002, nil
		}
		return true, 0, nil
	}
	plan, err := opSet(0, "6.4TB", nil)(r, r.inventory())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.run(plan); err != nil {
		t.Fatal(err)
	}
	inv := r.inventory()
	if n := inv.Namespaces[0]; n.SizeBytes()%(1<<20) != 0 || n.SizeBytes() > 6_401_252_745_216 || n.SizeBytes() < 6_401_252_745_216-1<<20 {
		t.Errorf("%s", n)
	}
	if bad := plan.Verify(inv); len(bad) != 0 {
		t.Errorf("%v", bad)
	}
}

// A plan kept in a file is the one that was made, and no other.
func TestPlanFile_roundTrip(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	spec := specText(t, "power: {state: 2}\nnamespaces: [{idema: 6400GB}]\n")
	inv := r.inventoryAll()
	plan, err := namespace.PlanSpec(inv, spec, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := namespace.NewPlanFile([]namespace.Plan{plan}, "spec.yaml", time.Unix(0, 0))
	text, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	back, err := namespace.ParsePlanFile("plan.json", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := back.Plans[0].Drift(r.inventoryAll()); len(d) != 0 {
		t.Errorf("drift where nothing changed: %v", d)
	}
	r.must(back.Plans[0], nil)
	if len(back.Plans[0].Drift(r.inventoryAll())) == 0 {
		t.Error("no drift though the drive was changed")
	}
	for _, spoil := range []string{`"cdw10": 0`, "idema: 6400GB", `"nsid": 1`, `6401252745216`, `"destroys"`} {
		if spoilt := strings.Replace(string(text), spoil, spoil[:len(spoil)-1]+"7", 1); spoilt != string(text) {
			if _, err := namespace.ParsePlanFile("plan.json", []byte(spoilt)); err == nil {
				t.Errorf("a plan with %s changed is taken", spoil)
			}
		}
	}
}

// Two readings of one drive give one digest, whatever moved by itself.
func TestDigest_isStable(t *testing.T) {
	r := newRig(t, pblaze, sim.Options{})
	spec := specText(t, "power: {state: 2}\n")
	digest := func(change func(*namespace.Inventory)) string {
		inv := r.inventoryAll()
		change(&inv)
		p, err := namespace.PlanSpec(inv, spec, namespace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return namespace.Digest([]namespace.Plan{p})
	}
	want := digest(func(*namespace.Inventory) {})
	if got := digest(func(inv *namespace.Inventory) {
		inv.TakenAt = inv.TakenAt.Add(time.Hour)
		inv.Health.UsedPercent++
		inv.Namespaces[0].UsedBlocks++
	}); got != want {
		t.Error("the digest counts what moves by itself")
	}
	if got := digest(func(inv *namespace.Inventory) { inv.Namespaces[0].SizeBlocks-- }); got == want {
		t.Error("the digest does not count the size of a namespace")
	}
}

func FuzzParsePlanFile(f *testing.F) {
	f.Add([]byte(`{"schema":"nvop.plan-file/1","plans":[]}`))
	f.Add([]byte(`{"schema":"nvop.plan-file/1","digest":"","plans":[{"steps":[{"index":1}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := namespace.ParsePlanFile("x", text)
		if err == nil && (len(file.Plans) == 0 || file.Digest != namespace.Digest(file.Plans)) {
			t.Fatalf("%+v", file)
		}
	})
}
