package pcie

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a dump: far above any machine, far below what would hurt.
const (
	maxDumpFunctions = 8192
	maxDumpLine      = 64 << 10
)

// RawFunction is one function of a dump before decoding.
type RawFunction struct {
	Address Address
	Name    string
	// Config holds the bytes dumped. Bytes between those that the dump left out
	// are ff.
	Config []byte
}

// ParseDump reads what `lspci -x`, -xxx or -xxxx print, also mixed with the
// text of -v as bug reports have it: a line with an address and a description,
// then lines of up to sixteen bytes. Everything else is passed over. An
// address that comes twice starts the function anew, as in `lspci -F`.
func ParseDump(r io.Reader) ([]RawFunction, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxDumpLine)
	var list []RawFunction
	byAddress := map[Address]int{}
	current := -1
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" {
			current = -1
			continue
		}
		if a, name, ok := dumpHeader(line); ok {
			i, known := byAddress[a]
			if !known {
				if len(list) == maxDumpFunctions {
					return nil, fmt.Errorf("line %d: more than %d functions", n, maxDumpFunctions)
				}
				i = len(list)
				byAddress[a] = i
				list = append(list, RawFunction{})
			}
			list[i], current = RawFunction{Address: a, Name: name}, i
			continue
		}
		if current < 0 {
			continue
		}
		if err := list[current].add(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read dump: %w", err)
	}
	list = slices.DeleteFunc(list, func(f RawFunction) bool { return len(f.Config) == 0 })
	if len(list) == 0 {
		return nil, errors.New("no bytes of configuration space in it; lspci -xxxx as root prints them")
	}
	return list, nil
}

// dumpHeader recognises "01:00.0 Class ..." with or without a domain, and the
// path that `lspci -PP` puts in its place: "00:1c.0/01:00.0 Class ...".
func dumpHeader(line string) (Address, string, bool) {
	text, name, _ := strings.Cut(line, " ")
	first, last := text, text
	if i := strings.LastIndexByte(text, '/'); i >= 0 {
		first, last = text[:strings.IndexByte(text, '/')], text[i+1:]
	}
	a, err := ParseAddress(last)
	if err != nil {
		return Address{}, "", false
	}
	if top, err := ParseAddress(first); err == nil { // the domain is written once
		a.Domain = top.Domain
	}
	return a, strings.TrimSpace(name), true
}

// add takes a line of bytes; another kind of line is passed over.
func (f *RawFunction) add(line string) error {
	text, rest, ok := strings.Cut(line, ": ")
	if !ok || len(text) < 2 || len(text) > 8 {
		return nil
	}
	at, err := strconv.ParseUint(text, 16, 32)
	if err != nil || strings.ContainsAny(text, "+_") {
		return nil
	}
	for i, field := range strings.Fields(rest) {
		b, err := strconv.ParseUint(field, 16, 8)
		if err != nil || len(field) != 2 {
			if i == 0 {
				return nil // words, not bytes
			}
			return fmt.Errorf("%s: %.20q is no byte", f.Address, field)
		}
		if at >= configBytes {
			return fmt.Errorf("%s: more than %d bytes of configuration space", f.Address, configBytes)
		}
		for uint64(len(f.Config)) <= at {
			f.Config = append(f.Config, 0xff)
		}
		f.Config[at] = byte(b)
		at++
	}
	return nil
}

// ReadDump parses a dump and decodes every function in it. What cannot be
// decoded (a device that was gone, a broken header) is in problems and does
// not hide the rest.
func ReadDump(r io.Reader) (t *Topology, problems []error, err error) {
	raw, err := ParseDump(r)
	if err != nil {
		return nil, nil, err
	}
	var list []Function
	for _, rf := range raw {
		f, err := Decode(rf.Address, rf.Config)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		f.Name = rf.Name
		list = append(list, f)
	}
	if len(list) == 0 {
		return nil, problems, fmt.Errorf("no function could be decoded: %w", errors.Join(problems...))
	}
	return NewTopology(list), problems, nil
}
