// Package yamltree parses YAML into the library's tree without letting the text
// choose how deep the library recurses: its memory grows with the square of the
// nesting, and it has been seen to panic. It knows nothing of what the text means.
package yamltree

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// DepthMax is how deep lists and mappings may be nested, in levels. What people
// write has less than ten.
const DepthMax = 64

// Error says where a text is refused.
type Error struct {
	// Line and Column count from 1; 0 where the place is not known.
	Line, Column int
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Reason)
}

// Parse parses a text of at most maxBytes bytes. What is refused, and what the
// library panics at, is an *Error; other errors are the library's own.
func Parse(text []byte, maxBytes int) (file *ast.File, err error) {
	if len(text) > maxBytes {
		return nil, &Error{Reason: fmt.Sprintf("the file has more than %d bytes", maxBytes)}
	}
	if err := glance(text); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, &Error{Reason: fmt.Sprintf("the file cannot be parsed: %v", p)}
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := shallow(tokens); err != nil {
		return nil, err
	}
	return parser.Parse(tokens, 0)
}

func tooDeep(line, column int, what string) error {
	return &Error{line, column, fmt.Sprintf("%s are nested more than %d deep", what, DepthMax)}
}

// glance refuses plainly deep text before any token is made of it. Brackets in
// quotes count too, so it may be mistaken in both directions: shallow is exact.
func glance(text []byte) error {
	depth, number := 0, 0
	for line := range bytes.Lines(text) {
		number++
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(depth-1, 0)
			}
			if depth > DepthMax {
				return tooDeep(number, 1, "brackets")
			}
		}
		if bytes.Count(line, []byte("- "))+bytes.Count(line, []byte("? ")) > DepthMax {
			return tooDeep(number, 1, "lists")
		}
	}
	return nil
}

// shallow bounds the nesting of tokens: brackets by counting, blocks by the columns
// in which they begin, and what stands before a value (tags, anchors) by its number.
func shallow(tokens token.Tokens) error {
	var columns []int
	brackets, prefixes, line := 0, 0, 0
	for _, t := range tokens {
		at := t.Position
		if at == nil {
			continue
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets = max(brackets-1, 0)
		case token.TagType, token.AnchorType:
			prefixes++
		}
		first := at.Line != line
		line = at.Line
		// A block begins with a line, or after a dash on the line.
		if brackets == 0 && (first || t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType) {
			for len(columns) > 0 && columns[len(columns)-1] >= at.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, at.Column)
		}
		switch {
		case brackets > DepthMax:
			return tooDeep(at.Line, at.Column, "brackets")
		case len(columns)+brackets > DepthMax:
			return tooDeep(at.Line, at.Column, "lists and mappings")
		case prefixes > DepthMax:
			return tooDeep(at.Line, at.Column, "tags and anchors")
		}
	}
	return nil
}
