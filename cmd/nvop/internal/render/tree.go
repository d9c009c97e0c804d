package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Tree writes any JSON-able value as "name  value" lines in the order of its
// fields, a nested object under its name. It is the text view of structures
// whose fields already carry units in their names.
func (p *Page) Tree(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		p.fail(err)
		return
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	root, err := readNode(dec)
	if err != nil {
		p.fail(err)
		return
	}
	p.node(root, 1)
}

func (p *Page) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// node is a JSON value that keeps the order of an object's members.
type node struct {
	scalar string
	names  []string
	nodes  []node
	kind   json.Delim // '{', '[' or 0 for a scalar
}

func readNode(dec *json.Decoder) (node, error) {
	t, err := dec.Token()
	if err != nil {
		return node{}, err
	}
	kind, ok := t.(json.Delim)
	if !ok {
		if t == nil {
			return node{scalar: "not reported"}, nil
		}
		return node{scalar: fmt.Sprint(t)}, nil
	}
	n := node{kind: kind}
	for dec.More() {
		if kind == '{' {
			name, err := dec.Token()
			if err != nil {
				return node{}, err
			}
			n.names = append(n.names, fmt.Sprint(name))
		}
		child, err := readNode(dec)
		if err != nil {
			return node{}, err
		}
		n.nodes = append(n.nodes, child)
	}
	_, err = dec.Token()
	return n, err
}

// flat says whether an array can be shown on one line.
func (n node) flat() bool {
	for _, c := range n.nodes {
		if c.kind != 0 {
			return false
		}
	}
	return n.kind == '['
}

func (n node) line() string {
	if n.kind == 0 {
		return n.scalar
	}
	if len(n.nodes) == 0 {
		return "none"
	}
	parts := make([]string, len(n.nodes))
	for i, c := range n.nodes {
		parts[i] = c.scalar
	}
	return strings.Join(parts, ", ")
}

func (p *Page) node(n node, depth int) {
	indent := strings.Repeat("  ", depth)
	if n.kind == 0 || n.flat() {
		p.Line("%s%s", indent, n.line())
		return
	}
	width := 0
	for i := range n.nodes {
		width = max(width, len(n.label(i)))
	}
	for i, c := range n.nodes {
		if c.kind == 0 || c.flat() {
			p.Line("%s%-*s  %s", indent, width, n.label(i), c.line())
			continue
		}
		p.Line("%s%s", indent, n.label(i))
		if header, rows, ok := c.grid(); ok {
			p.Grid(header, rows)
			continue
		}
		p.node(c, depth+1)
	}
}

// grid turns an array of objects that all have the same flat members into a
// table.
func (n node) grid() (header []string, rows [][]string, ok bool) {
	if n.kind != '[' || len(n.nodes) < 2 {
		return nil, nil, false
	}
	for _, c := range n.nodes {
		if c.kind != '{' || !slices.Equal(c.names, n.nodes[0].names) {
			return nil, nil, false
		}
		row := make([]string, len(c.nodes))
		for i, member := range c.nodes {
			if member.kind != 0 && !member.flat() {
				return nil, nil, false
			}
			row[i] = member.line()
		}
		rows = append(rows, row)
	}
	return n.nodes[0].names, rows, true
}

// label names the i-th member, an array's by its index.
func (n node) label(i int) string {
	if n.kind == '{' {
		return n.names[i]
	}
	return fmt.Sprintf("[%d]", i)
}
