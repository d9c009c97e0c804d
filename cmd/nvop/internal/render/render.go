// Package render shows one result value in two views: a table for people and
// a JSON document for programs. It alone knows tablewriter.
//
// A result is a plain struct with json tags whose names carry units. It also
// implements [Texter] to lay itself out on a [Page]. Nothing here decides what
// is shown; commands build results, this package prints them.
package render

import (
	"encoding/json"
	"fmt"
	"io"
)

// Format is one of the two views.
type Format string

// The views of a result.
const (
	Table Format = "table"
	JSON  Format = "json"
)

// Texter lays a result out for people.
type Texter interface{ Text(p *Page) }

// Write prints v to w as one document: JSON with a final newline, or the text
// its Texter makes. The text is built first and written at once, so a result
// is printed whole or not at all.
func Write(w io.Writer, f Format, v Texter) error {
	if f == JSON {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("encode result as JSON: %w", err)
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	p := &Page{}
	v.Text(p)
	if p.err != nil {
		return fmt.Errorf("lay out result: %w", p.err)
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}
