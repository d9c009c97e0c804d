// Package yamltree parses YAML into the library's tree without letting the text
// choose how deep the library recurses: its memory grows with the square of the
// nesting, its time with that of the length of lists, and it has been seen to panic. It knows nothing of what the text means.
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

// How long a mapping and a list may be. What reads the tree has stricter limits.
const (
	keysMax    = 1024
	entriesMax = 8192
)

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

// level is a block that is open: a mapping, and below its last key, in the same
// column, perhaps a list.
type level struct {
	column        int
	keys, entries int
}

// bounds follows the tokens of a text.
type bounds struct {
	blocks []level
	// flows are the brackets that are open, and how many commas each has seen.
	flows          []flow
	prefixes, line int
}

type flow struct {
	mapping bool
	commas  int
}

// shallow bounds the nesting of tokens: brackets by counting, blocks by the columns
// in which they begin, and what stands before a value (tags, anchors) by its number.
// It bounds each list and mapping too: the library's time grows with the square of
// their length.
func shallow(tokens token.Tokens) error {
	var b bounds
	for _, t := range tokens {
		if t.Position == nil || t.Type == token.CommentType {
			continue
		}
		if err := b.next(t, t.Position.Line, t.Position.Column); err != nil {
			return err
		}
	}
	return nil
}

func (b *bounds) next(t *token.Token, line, column int) error {
	first := line != b.line
	b.line = line
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		b.flows = append(b.flows, flow{mapping: t.Type == token.MappingStartType})
	case token.SequenceEndType, token.MappingEndType:
		b.flows = b.flows[:max(len(b.flows)-1, 0)]
	case token.CollectEntryType:
		if n := len(b.flows); n > 0 {
			b.flows[n-1].commas++
			if f := b.flows[n-1]; f.commas >= limitOf(f.mapping) {
				return tooLong(line, column, f.mapping)
			}
		}
	case token.TagType, token.AnchorType:
		b.prefixes++
	}
	// A block begins with a line, or after a dash on the line.
	if dash := t.Type == token.SequenceEntryType; len(b.flows) == 0 && (first || dash || t.Type == token.MappingKeyType) {
		if at := b.block(column, dash); at.keys > keysMax || at.entries > entriesMax {
			return tooLong(line, column, at.keys > keysMax)
		}
	}
	switch {
	case len(b.flows) > DepthMax:
		return tooDeep(line, column, "brackets")
	case len(b.blocks)+len(b.flows) > DepthMax:
		return tooDeep(line, column, "lists and mappings")
	case b.prefixes > DepthMax:
		return tooDeep(line, column, "tags and anchors")
	}
	return nil
}

// block notes an element of the block that begins in a column, and gives that block.
func (b *bounds) block(column int, dash bool) level {
	for len(b.blocks) > 0 && b.blocks[len(b.blocks)-1].column > column {
		b.blocks = b.blocks[:len(b.blocks)-1]
	}
	if len(b.blocks) == 0 || b.blocks[len(b.blocks)-1].column < column {
		b.blocks = append(b.blocks, level{column: column})
	}
	at := &b.blocks[len(b.blocks)-1]
	if dash {
		at.entries++
	} else {
		at.keys, at.entries = at.keys+1, 0
	}
	return *at
}

func limitOf(mapping bool) int {
	if mapping {
		return keysMax
	}
	return entriesMax
}

func tooLong(line, column int, mapping bool) error {
	what := "a list has more than"
	if mapping {
		what = "a mapping has more than"
	}
	return &Error{line, column, fmt.Sprintf("%s %d elements", what, limitOf(mapping))}
}
