package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
)

type diffCmd struct {
	A string `arg:"" name:"a" help:"A snapshot, or a drive." placeholder:"A"`
	B string `arg:"" name:"b" help:"A snapshot, or a drive." placeholder:"B"`
	traceFlag
	Volatile bool `help:"Compare what moves by itself too: counters, temperatures, clocks, times, addresses."`
}

func (diffCmd) Help() string {
	return `Compares the configuration of two drives, or of one drive at two times. Exit code 3 means that they differ, or that one side could not read something, so that it is not known whether they do: that is named, and is no difference.

Example:
  nvop diff before.json after.json
  nvop diff before.json /dev/nvme0`
}

// difference is one value that differs.
type difference struct {
	Path string `json:"path"`
	// A and B are the values as JSON; empty where there is none.
	A string `json:"a"`
	B string `json:"b"`
}

type diffResult struct {
	Schema      string       `json:"schema"`
	A           string       `json:"a"`
	B           string       `json:"b"`
	Differences []difference `json:"differences"`
	// NotComparable is what one of the two could not read, so that equality was
	// not established.
	NotComparable []string `json:"not_comparable"`
}

func (r diffResult) Text(p *render.Page) {
	for _, n := range r.NotComparable {
		p.Line("  not compared: %s", n)
	}
	switch {
	case len(r.Differences) == 0 && len(r.NotComparable) > 0:
		p.Line("no difference in what could be compared between %s and %s", r.A, r.B)
		return
	case len(r.Differences) == 0:
		p.Line("no difference between %s and %s", r.A, r.B)
		return
	}
	var rows [][]string
	for _, d := range r.Differences {
		rows = append(rows, []string{d.Path, cmp.Or(d.A, "none"), cmp.Or(d.B, "none")})
	}
	p.Grid([]string{"what", r.A, r.B}, rows)
}

func (c diffCmd) Run(ctx context.Context, a *app) error {
	left, err := a.side(ctx, c.A, c.traceFlag)
	if err != nil {
		return err
	}
	right, err := a.side(ctx, c.B, c.traceFlag)
	if err != nil {
		return err
	}
	r := diffResult{Schema: "nvop.diff/1", A: c.A, B: c.B, Differences: compareTrees(left, right, c.Volatile), NotComparable: []string{}}
	for _, side := range []struct {
		name string
		tree diffSide
	}{{c.A, left}, {c.B, right}} {
		for _, what := range side.tree.unreadOf(c.Volatile) {
			r.NotComparable = append(r.NotComparable, side.name+": "+what)
		}
	}
	slices.Sort(r.NotComparable)
	if err := a.print(r); err != nil {
		return err
	}
	between := fmt.Sprintf("between %s and %s", c.A, c.B)
	switch {
	case len(r.Differences) > 0 && len(r.NotComparable) > 0:
		return reported{&codedError{exitFindings, fmt.Errorf("%s %s, and %s not compared", plural(len(r.Differences), "difference"), between, plural(len(r.NotComparable), "part"))}}
	case len(r.Differences) > 0:
		return reported{&codedError{exitFindings, fmt.Errorf("%s %s", plural(len(r.Differences), "difference"), between)}}
	case len(r.NotComparable) > 0:
		return reported{&codedError{exitFindings, fmt.Errorf("not known whether there is a difference %s: %s not compared", between, plural(len(r.NotComparable), "part"))}}
	}
	return nil
}

// diffSide is one side of a comparison.
type diffSide struct {
	// values are the single values as JSON by path.
	values map[string]string
	// unread are the parts that were not read when the snapshot was taken.
	unread []unreadPart
}

// unreadPart is a part of a snapshot that is not there, or not to be relied on.
type unreadPart struct {
	what string
	// volatile: nothing of it is compared unless --volatile asks for it.
	volatile bool
	// begins are the beginnings of the paths that lie in it.
	begins []string
}

// unreadOf names the parts that were to be compared and were not read.
func (s diffSide) unreadOf(volatile bool) []string {
	var list []string
	for _, part := range s.unread {
		if volatile || !part.volatile {
			list = append(list, part.what)
		}
	}
	return list
}

// misses says that a path lies in a part that was not read.
func (s diffSide) misses(path string) bool {
	for _, part := range s.unread {
		for _, begin := range part.begins {
			if rest, ok := strings.CutPrefix(path, begin); ok && (rest == "" || rest[0] == '.' || rest[0] == '[' || strings.HasSuffix(begin, ".")) {
				return true
			}
		}
	}
	return false
}

// partNotRead is the part of a snapshot behind an entry of its not_read. One that
// is not known is named all the same.
func partNotRead(what string, nsid any) unreadPart {
	part := unreadPart{what: what}
	at := fmt.Sprintf("[nsid=%v]", orZero(nsid))
	if nsid != nil {
		part.what += fmt.Sprintf(" of namespace %v", nsid)
	}
	switch what {
	case namespace.ProblemSMART:
		part.volatile, part.begins = true, []string{"inventory.health"}
	case namespace.ProblemSanitize:
		part.volatile, part.begins = true, []string{"inventory.controller.sanitize_in_progress"}
	case "self-test log":
		part.volatile, part.begins = true, []string{"inventory.self_test_running"}
	case "what the kernel shows":
		part.volatile, part.begins = true, []string{"host"}
	case namespace.ProblemFirmwareSlots:
		part.begins = []string{"inventory.firmware", "inventory.firmware_state.active_slot", "inventory.firmware_state.next_slot", "inventory.firmware_state.slots", "inventory.firmware_state.slots_error"}
	case namespace.ProblemNamespaceList:
		part.begins = []string{"inventory.namespaces", "identify_namespaces"}
	case "namespace":
		part.begins = []string{"inventory.namespaces" + at, "identify_namespaces" + at}
	case "identify namespace":
		part.begins = []string{"identify_namespaces" + at}
	case "namespace granularity":
		part.begins = []string{"inventory.formats"}
	case "LBA formats":
		part.begins = []string{"inventory.formats", "inventory.controller.protection_capabilities", "inventory.controller.deallocated_errors"}
	case "host behavior support":
		part.begins = []string{"inventory.controller.extended_lba_formats"}
	case "PCI Express path":
		part.begins = []string{"pcie"}
	case "everything that takes a command to the drive":
		part.begins = []string{"controller", "inventory", "identify_namespaces", "identity.cntlid", "identity.subsystem_nqn"}
	}
	return part
}

// unreadParts are the parts that a snapshot itself says were not read, and the
// values of features that the drive did not tell.
func unreadParts(doc map[string]any) []unreadPart {
	var list []unreadPart
	entries, _ := doc["not_read"].([]any)
	for _, e := range entries {
		if m, ok := e.(map[string]any); ok {
			list = append(list, partNotRead(fmt.Sprint(m["what"]), m["nsid"]))
		}
	}
	inventory, _ := doc["inventory"].(map[string]any)
	features, _ := inventory["features"].([]any)
	for i, f := range features {
		m, ok := f.(map[string]any)
		if !ok || m["error"] == nil || m["unsupported"] == true {
			continue
		}
		begin := "inventory.features[" + elementName(i, f) + "]"
		what := "feature " + fmt.Sprint(m["name"])
		part := partNotRead(what, m["nsid"])
		if at := slices.IndexFunc(list, func(p unreadPart) bool { return p.what == part.what }); at >= 0 {
			list[at].begins = append(list[at].begins, begin)
			continue
		}
		part.begins = []string{begin}
		list = append(list, part)
	}
	return list
}

// side reads one side as a tree of values by path.
func (a *app) side(ctx context.Context, name string, trace traceFlag) (diffSide, error) {
	none := diffSide{}
	text, err := []byte(nil), error(nil)
	if looksLikeAddress(name) {
		s, err := a.takeSnapshot(ctx, name, trace)
		if err != nil {
			return none, err
		}
		if text, err = json.Marshal(s); err != nil {
			return none, err
		}
	} else if text, err = readInput(name); err != nil {
		return none, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return none, fmt.Errorf("%s: not a snapshot: %w; make one with: nvop snapshot DRIVE --out FILE", name, err)
	}
	if schema, ok := doc["schema"].(string); !ok {
		return none, fmt.Errorf("%s: not a snapshot: it names no schema; make one with: nvop snapshot DRIVE --out FILE", name)
	} else if schema != snapshotSchema {
		return none, fmt.Errorf("%s: not a snapshot of this program: its schema is %.40q, not %s; make one with: nvop snapshot DRIVE --out FILE", name, schema, snapshotSchema)
	}
	if err := dec.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return none, fmt.Errorf("%s: not a snapshot: something follows its end", name)
	}
	if doc["controller"] == nil && doc["inventory"] == nil && doc["host"] == nil {
		return none, fmt.Errorf("%s: not a snapshot of a drive: there is nothing in it; make one with: nvop snapshot DRIVE --out FILE", name)
	}
	tree := map[string]string{}
	flatten(tree, "", doc)
	return diffSide{values: tree, unread: unreadParts(doc)}, nil
}

// flatten writes every single value under its path. Elements of lists go by what
// names them, so that one more of them is one difference.
func flatten(tree map[string]string, path string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for name, child := range x {
			at := name
			if path != "" {
				at = path + "." + name
			}
			flatten(tree, at, child)
		}
	case []any:
		for i, child := range x {
			flatten(tree, fmt.Sprintf("%s[%s]", path, elementName(i, child)), child)
		}
		if len(x) == 0 {
			tree[path] = "[]"
		}
	default:
		b, err := json.Marshal(x)
		if err != nil {
			b = []byte(fmt.Sprint(x))
		}
		tree[path] = string(b)
	}
}

// elementName names an element of a list by its identifier, else by its number.
func elementName(i int, v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(i)
	}
	if fid, ok := m["fid"]; ok {
		return fmt.Sprintf("%v fid=%v selector=%v nsid=%v", m["name"], fid, orZero(m["selector"]), orZero(m["nsid"]))
	}
	for _, key := range []string{"nsid", "index", "slot", "node", "what", "address"} {
		if id, ok := m[key]; ok {
			return fmt.Sprintf("%s=%v", key, id)
		}
	}
	return fmt.Sprint(i)
}

// orZero is a number that is left out where it is 0.
func orZero(v any) any {
	if v == nil {
		return 0
	}
	return v
}

// movesByItself are the ends and beginnings of paths that no configuration is in.
func movesByItself(path string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	switch last {
	case "taken_at", "program", "used_blocks", "power_cycles", "node", "generic_node", "device_number", "generic_device_number", "state",
		"format_remaining_percent", "format_percent_left":
		return true
	}
	// Why something was not read is no configuration, and names the address.
	if last == "error" || strings.HasSuffix(last, "_error") {
		return true
	}
	for _, begin := range []string{"schema", "address", "inventory.address", "inventory.health", "not_read", "inventory.problems", "host.", "inventory.features[timestamp", "inventory.controller.sanitize_in_progress", "inventory.self_test_running"} {
		if strings.HasPrefix(path, begin) {
			return true
		}
	}
	return strings.Contains(path, ".error_counters.") || strings.Contains(path, "device_status")
}

func compareTrees(a, b diffSide, volatile bool) []difference {
	paths := slices.Collect(maps.Keys(a.values))
	for path := range b.values {
		if _, ok := a.values[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	list := []difference{}
	for _, path := range paths {
		if strings.HasPrefix(path, "not_read") || strings.HasPrefix(path, "inventory.problems") || a.misses(path) || b.misses(path) {
			continue // named as not compared
		}
		if a.values[path] != b.values[path] && (volatile || !movesByItself(path)) {
			list = append(list, difference{Path: path, A: a.values[path], B: b.values[path]})
		}
	}
	return list
}
