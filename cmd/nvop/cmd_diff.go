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
)

type diffCmd struct {
	A string `arg:"" name:"a" help:"A snapshot, or a drive." placeholder:"A"`
	B string `arg:"" name:"b" help:"A snapshot, or a drive." placeholder:"B"`
	traceFlag
	Volatile bool `help:"Compare what moves by itself too: counters, temperatures, clocks, times, addresses."`
}

func (diffCmd) Help() string {
	return `Compares the configuration of two drives, or of one drive at two times. Exit code 3 means that they differ.

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
	if len(r.Differences) == 0 {
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
		tree map[string]string
	}{{c.A, left}, {c.B, right}} {
		for path, value := range side.tree {
			if strings.HasPrefix(path, "not_read") && strings.HasSuffix(path, ".what") {
				r.NotComparable = append(r.NotComparable, side.name+": "+strings.Trim(value, `"`))
			}
		}
	}
	slices.Sort(r.NotComparable)
	if err := a.print(r); err != nil {
		return err
	}
	if len(r.Differences) > 0 {
		return reported{&codedError{exitFindings, fmt.Errorf("%s between %s and %s", plural(len(r.Differences), "difference"), c.A, c.B)}}
	}
	return nil
}

// side reads one side as a tree of values by path.
func (a *app) side(ctx context.Context, name string, trace traceFlag) (map[string]string, error) {
	text, err := []byte(nil), error(nil)
	if looksLikeAddress(name) {
		s, err := a.takeSnapshot(ctx, name, trace)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(s); err != nil {
			return nil, err
		}
	} else if text, err = readInput(name); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: not a snapshot: %w; make one with: nvop snapshot DRIVE --out FILE", name, err)
	}
	if schema, ok := doc["schema"].(string); !ok {
		return nil, fmt.Errorf("%s: not a snapshot: it names no schema; make one with: nvop snapshot DRIVE --out FILE", name)
	} else if schema != snapshotSchema {
		return nil, fmt.Errorf("%s: not a snapshot of this program: its schema is %.40q, not %s; make one with: nvop snapshot DRIVE --out FILE", name, schema, snapshotSchema)
	}
	if err := dec.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: not a snapshot: something follows its end", name)
	}
	tree := map[string]string{}
	flatten(tree, "", doc)
	return tree, nil
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
	for _, begin := range []string{"schema", "address", "inventory.address", "inventory.health.", "not_read", "inventory.problems", "host.", "inventory.features[timestamp", "inventory.controller.sanitize_in_progress", "inventory.self_test_running"} {
		if strings.HasPrefix(path, begin) {
			return true
		}
	}
	return strings.Contains(path, ".error_counters.") || strings.Contains(path, "device_status")
}

func compareTrees(a, b map[string]string, volatile bool) []difference {
	paths := slices.Collect(maps.Keys(a))
	for path := range b {
		if _, ok := a[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	list := []difference{}
	for _, path := range paths {
		if a[path] != b[path] && (volatile || !movesByItself(path)) {
			list = append(list, difference{Path: path, A: a[path], B: b[path]})
		}
	}
	return list
}
