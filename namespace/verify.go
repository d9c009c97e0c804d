package namespace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"nvop/namespace/txn"
)

// Mismatch is a difference between what was expected and what is.
type Mismatch struct {
	// NSID is 0 for the drive as a whole.
	NSID  uint32 `json:"nsid"`
	What  string `json:"what"`
	Want  string `json:"want"`
	Found string `json:"found"`
}

func (m Mismatch) String() string {
	if m.NSID == 0 {
		return fmt.Sprintf("%s: wanted %s, found %s", m.What, m.Want, m.Found)
	}
	return fmt.Sprintf("namespace %d: %s: wanted %s, found %s", m.NSID, m.What, m.Want, m.Found)
}

// differ collects mismatches.
type differ struct{ found []Mismatch }

func (d *differ) compare(nsid uint32, what string, want, found any) {
	if w, f := fmt.Sprint(want), fmt.Sprint(found); w != f {
		d.found = append(d.found, Mismatch{NSID: nsid, What: what, Want: w, Found: f})
	}
}

// Drift lists what changed on the drive since the plan was made, as far as the
// plan depends on it. Counters that move by themselves (use, temperature) do
// not count.
func (p Plan) Drift(now Inventory) []Mismatch {
	d, was := &differ{}, p.Inventory
	d.fields(0, was.Identity, now.Identity)
	d.fields(0, was.Controller, now.Controller)
	d.fields(0, struct {
		Formats []LBAFormat `json:"lba_formats"`
	}{was.Formats}, struct {
		Formats []LBAFormat `json:"lba_formats"`
	}{now.Formats})
	for _, a := range was.Namespaces {
		b, ok := now.byNSID(a.NSID)
		if !ok {
			d.compare(a.NSID, "existence", "allocated", "not allocated")
			continue
		}
		a.UsedBlocks, b.UsedBlocks = 0, 0
		d.fields(a.NSID, a, b)
	}
	for _, b := range now.Namespaces {
		if _, ok := was.byNSID(b.NSID); !ok {
			d.compare(b.NSID, "existence", "not allocated", "allocated")
		}
	}
	d.features(p.Reads, was, now)
	d.safety(p, was, now)
	if slices.ContainsFunc(p.Steps, func(s txn.Step) bool { return strings.HasPrefix(s.Kind, "firmware.") }) {
		d.fields(0, was.Firmware, now.Firmware)
	}
	return d.found
}

// safety compares what a plan that costs data was allowed by: logs that could be
// read then and cannot now, and warnings that were not there.
func (d *differ) safety(p Plan, was, now Inventory) {
	if !slices.ContainsFunc(p.Steps, func(s txn.Step) bool { return s.Kind == KindDelete || s.Kind == KindCreate || s.Kind == KindFormat }) {
		return
	}
	for _, log := range []string{ProblemSMART, ProblemSanitize, ProblemFirmwareSlots} {
		_, before := was.unread(log)
		if why, unread := now.unread(log); unread && !before {
			d.compare(0, log, "readable", "unreadable: "+why)
		}
	}
	if now.SelfTestRunning && !was.SelfTestRunning {
		d.compare(0, "self-test", "none in progress", "one is in progress")
	}
	warnings := func(inv Inventory) uint8 {
		if inv.Health == nil {
			return 0
		}
		return inv.Health.CriticalWarning
	}
	if before, after := warnings(was), warnings(now); after&^before != 0 {
		d.compare(0, "critical warning", fmt.Sprintf("0x%02x", before), fmt.Sprintf("0x%02x", after))
	}
}

// features compares what a plan read of features. A clock runs on and does not count.
func (d *differ) features(reads FeatureNeed, was, now Inventory) {
	done := map[FeatureKey]bool{}
	for _, f := range Settings() {
		if !reads.has(f) || f.Form == FormClock {
			continue
		}
		for _, a := range was.Features {
			if a.Feature != f.Feature || a.Selector != f.Selector || done[a.FeatureKey] {
				continue
			}
			done[a.FeatureKey] = true // several fields share it
			b, _ := now.Feature(a.FeatureKey)
			d.compare(a.NSID, "feature "+a.Name, featureText(a), featureText(b))
		}
	}
}

// featureText is a feature's values in words.
func featureText(r FeatureReading) string {
	value := func(v *FeatureValue) string {
		text := fmt.Sprintf("0x%08x", v.Dword)
		if len(v.Data) > 0 {
			text += fmt.Sprintf(" with data %x", bytes.TrimRight(v.Data, "\x00"))
		}
		return text
	}
	switch {
	case r.Unsupported:
		return "not supported"
	case r.Error != "":
		return "unreadable: " + r.Error
	case r.Current == nil:
		return "not read"
	case r.Saved != nil:
		return value(r.Current) + ", saved " + value(r.Saved)
	}
	return value(r.Current)
}

// fields compares two values of one type by every field that they have in JSON,
// so that a field added later is compared too.
func (d *differ) fields(nsid uint32, want, found any) {
	w, f := jsonFields(want), jsonFields(found)
	for _, name := range namesOf(w, f) {
		d.values(nsid, name, w[name], f[name])
	}
}

// namesOf are the names that either of two values has, in order.
func namesOf[V any](a, b map[string]V) []string {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// values compares two values in JSON and names the members that differ.
func (d *differ) values(nsid uint32, what string, want, found json.RawMessage) {
	w, f := anyJSON(want), anyJSON(found)
	wm, ok1 := w.(map[string]any)
	fm, ok2 := f.(map[string]any)
	if ok1 && ok2 {
		for _, name := range namesOf(wm, fm) {
			d.values(nsid, what+"."+name, memberJSON(wm, name), memberJSON(fm, name))
		}
		return
	}
	wl, ok1 := w.([]any)
	fl, ok2 := f.([]any)
	if ok1 && ok2 && len(wl) == len(fl) {
		for i := range wl {
			d.values(nsid, fmt.Sprintf("%s[%d]", what, i), mustJSON(wl[i]), mustJSON(fl[i]))
		}
		return
	}
	if wt, ft := plainText(w), plainText(f); wt != ft || reflect.DeepEqual(w, f) {
		d.compare(nsid, what, wt, ft)
		return
	}
	d.compare(nsid, what, string(want), string(found)) // they only look alike
}

func memberJSON(m map[string]any, name string) json.RawMessage {
	if v, ok := m[name]; ok {
		return mustJSON(v)
	}
	return nil
}

// anyJSON is a JSON text as a value, numbers as they are written; nil for none.
func anyJSON(text json.RawMessage) any {
	if len(text) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		panic(err) // it was marshalled by this package
	}
	return v
}

// plainText is a value in words.
func plainText(v any) string {
	switch x := v.(type) {
	case nil:
		return "none"
	case string:
		if x == "" {
			return "empty"
		}
		return x
	case []any:
		if len(x) == 0 {
			return "none"
		}
		var parts []string
		for _, e := range x {
			if _, deep := e.(map[string]any); deep {
				return fmt.Sprintf("a list of %d", len(x))
			}
			parts = append(parts, plainText(e))
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		return string(mustJSON(x))
	}
	return fmt.Sprint(v)
}

func jsonFields(v any) map[string]json.RawMessage {
	if reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil() {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(mustJSON(v), &fields); err != nil {
		panic(err) // structs of this package marshal to objects
	}
	return fields
}

func (inv Inventory) byNSID(nsid uint32) (Namespace, bool) {
	for _, n := range inv.Namespaces {
		if n.NSID == nsid {
			return n, true
		}
	}
	return Namespace{}, false
}

// Verify compares a drive with what the plan promised. A new namespace may be
// smaller by the steps down that the plan announced.
func (p Plan) Verify(now Inventory) []Mismatch {
	d := &differ{}
	d.fields(0, p.Identity, now.Identity)
	left := slices.Clone(now.Namespaces)
	take := func(match func(Namespace) bool) (Namespace, bool) {
		i := slices.IndexFunc(left, match)
		if i < 0 {
			return Namespace{}, false
		}
		n := left[i]
		left = slices.Delete(left, i, i+1)
		return n, true
	}
	var fresh []Namespace
	for _, want := range p.After {
		if want.NSID == 0 {
			fresh = append(fresh, want)
			continue
		}
		n, ok := take(func(n Namespace) bool { return n.NSID == want.NSID })
		d.verify(want, n, ok, p.floorBlocks(want))
	}
	for _, want := range fresh {
		floor := p.floorBlocks(want)
		n, ok := take(func(n Namespace) bool {
			probe := &differ{}
			probe.verify(want, n, true, floor)
			return len(probe.found) == 0
		})
		if !ok {
			// Compare with any other, so that the message says what is wrong.
			n, ok = take(func(Namespace) bool { return true })
		}
		d.verify(want, n, ok, floor)
	}
	for _, n := range left {
		d.compare(n.NSID, "existence", "not allocated", "allocated")
	}
	return d.found
}

func (d *differ) verify(want, n Namespace, ok bool, floorBlocks uint64) {
	if !ok {
		d.compare(want.NSID, "existence", "allocated", "not allocated")
		return
	}
	if want.Error != "" {
		return // it could not be read before either
	}
	if n.SizeBlocks > want.SizeBlocks || n.SizeBlocks < floorBlocks {
		d.compare(n.NSID, "size in blocks", want.SizeBlocks, n.SizeBlocks)
	}
	if want.CapacityBlocks == want.SizeBlocks {
		d.compare(n.NSID, "capacity in blocks", n.SizeBlocks, n.CapacityBlocks)
	}
	d.compare(n.NSID, "LBA format", want.Format, n.Format)
	d.compare(n.NSID, "protection", want.Protection, n.Protection)
	d.compare(n.NSID, "shared", want.Shared(), n.Shared())
	d.compare(n.NSID, "controllers", controllerText(want.Controllers), controllerText(n.Controllers))
	if want.NGUID != "" {
		d.compare(n.NSID, "NGUID", want.NGUID, n.NGUID)
	}
	if want.EUI64 != "" {
		d.compare(n.NSID, "EUI64", want.EUI64, n.EUI64)
	}
}

// floorBlocks is how small the plan lets a namespace become: its size, except
// where a create step may step down.
func (p Plan) floorBlocks(want Namespace) uint64 {
	for _, step := range p.Steps {
		if step.Kind != KindCreate {
			continue
		}
		params, err := decodeParams[createParams](step)
		if err == nil && params.Geometry.SizeBlocks == want.SizeBlocks && params.Geometry.Format == want.Format {
			return params.FloorBlocks
		}
	}
	return want.SizeBlocks
}

// VerifyTransaction compares a drive with what a finished transaction made: each
// namespace that it created is there, with the size it was created with. A
// resumed transaction trusts the outcomes recorded before it was interrupted;
// this is what notices that the drive has gone back since.
func VerifyTransaction(t txn.Transaction, r txn.Report, now Inventory) []Mismatch {
	if r.State != txn.StateDone {
		return nil
	}
	var list []Mismatch
	for _, step := range t.Steps {
		if step.Kind != KindCreate || step.Index >= len(r.States) {
			continue
		}
		var made created
		if err := json.Unmarshal(r.States[step.Index], &made); err != nil || made.NSID == 0 {
			continue
		}
		found := "none"
		for _, n := range now.Namespaces {
			if n.NSID == made.NSID {
				found = fmt.Sprintf("%d blocks", n.SizeBlocks)
			}
		}
		if want := fmt.Sprintf("%d blocks", made.SizeBlocks); found != want {
			list = append(list, Mismatch{NSID: made.NSID, What: "namespace created by step " + fmt.Sprint(step.Index+1), Want: want, Found: found})
		}
	}
	return list
}

// Lowered says which namespaces a transaction created smaller than was asked, since
// the drive granted no more. states are what the steps left, as in [txn.Report].
func Lowered(steps []txn.Step, states []json.RawMessage) []string {
	var list []string
	for _, step := range steps {
		if step.Kind != KindCreate || step.Index >= len(states) {
			continue
		}
		var made created
		if err := json.Unmarshal(states[step.Index], &made); err != nil || made.NSID == 0 {
			continue
		}
		p, err := decodeParams[createParams](step)
		if err != nil || made.SizeBlocks >= p.Geometry.SizeBlocks {
			continue
		}
		unit := uint64(p.Geometry.Format.DataBytes)
		list = append(list, fmt.Sprintf("namespace %d has %s, %s bytes less than asked: the drive granted no more",
			made.NSID, Bytes(mulCapped(made.SizeBlocks, unit)), grouped(mulCapped(p.Geometry.SizeBlocks-made.SizeBlocks, unit))))
	}
	return list
}

// OverProvisioning is the spare capacity that there is, both definitions; nil where
// the drive reports no total capacity.
func (inv Inventory) OverProvisioning() *OverProvisioning {
	user := uint64(0)
	for _, n := range inv.Namespaces {
		user = addCapped(user, n.SizeBytes())
	}
	return OverProvision(inv.Controller.TotalBytes, user)
}
