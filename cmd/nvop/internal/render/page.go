package render

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Page collects the text view of a result.
type Page struct {
	buf bytes.Buffer
	err error
}

// Title starts a section; sections are set apart by an empty line.
func (p *Page) Title(format string, args ...any) {
	if p.buf.Len() > 0 {
		p.buf.WriteByte('\n')
	}
	fmt.Fprintf(&p.buf, format+"\n", args...)
}

// Line writes one line.
func (p *Page) Line(format string, args ...any) { fmt.Fprintf(&p.buf, format+"\n", args...) }

// Pairs writes "name  value" lines with the values aligned. It takes name and
// value in turn; a pair with an empty value is left out.
func (p *Page) Pairs(nameValue ...string) {
	width := 0
	for i := 0; i+1 < len(nameValue); i += 2 {
		if nameValue[i+1] != "" {
			width = max(width, utf8.RuneCountInString(nameValue[i]))
		}
	}
	for i := 0; i+1 < len(nameValue); i += 2 {
		name, value := nameValue[i], nameValue[i+1]
		if value == "" {
			continue
		}
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(name))
		fmt.Fprintf(&p.buf, "  %s%s  %s\n", name, pad, value)
	}
}

// Grid writes a table. Columns whose header starts with ">" are set right,
// as numbers are; the mark is not shown. Without rows it says "none".
func (p *Page) Grid(header []string, rows [][]string) {
	if len(rows) == 0 {
		p.Line("  none")
		return
	}
	align := make(tw.Alignment, len(header))
	names := make([]string, len(header))
	for i, h := range header {
		align[i], names[i] = tw.AlignLeft, h
		if rest, ok := strings.CutPrefix(h, ">"); ok {
			align[i], names[i] = tw.AlignRight, rest
		}
	}
	var grid bytes.Buffer
	t := tablewriter.NewTable(&grid,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off},
				Lines:      tw.Lines{ShowHeaderLine: tw.Off},
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
	)
	t.Header(names)
	for _, r := range rows {
		if err := t.Append(r); err != nil && p.err == nil {
			p.err = err
		}
	}
	if err := t.Render(); err != nil && p.err == nil {
		p.err = err
	}
	for line := range strings.Lines(grid.String()) {
		p.buf.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}
