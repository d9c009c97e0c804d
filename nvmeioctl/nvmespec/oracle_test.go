package nvmespec_test

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
)

// field is where a field lies, from testdata/offsets.tsv.
type field struct{ off, size int }

// oracle is the table of offsets: the outside witness. Nothing of it comes from
// the package under test.
type oracle map[string]map[string]field

func loadOracle(t testing.TB) oracle {
	t.Helper()
	b, err := os.ReadFile("testdata/offsets.tsv")
	if err != nil {
		t.Fatal(err)
	}
	o := oracle{}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		c := strings.Split(sc.Text(), "\t")
		off, err1 := strconv.Atoi(c[2])
		size, err2 := strconv.Atoi(c[3])
		if err1 != nil || err2 != nil {
			t.Fatalf("offsets.tsv: %q", sc.Text())
		}
		if o[c[0]] == nil {
			o[c[0]] = map[string]field{}
		}
		o[c[0]][c[1]] = field{off, size}
	}
	return o
}

// rawPage is a structure written and read by the table alone.
type rawPage struct {
	t      testing.TB
	fields map[string]field
	b      []byte
}

// page is an empty page of a structure.
func (o oracle) page(t testing.TB, structure string) *rawPage {
	t.Helper()
	f, ok := o[structure]
	if !ok {
		t.Fatalf("offsets.tsv has no structure %s", structure)
	}
	return &rawPage{t: t, fields: f, b: make([]byte, f["."].size)}
}

func (p *rawPage) field(name string) field {
	p.t.Helper()
	f, ok := p.fields[name]
	if !ok {
		p.t.Fatalf("offsets.tsv has no field %s", name)
	}
	return f
}

// set writes a number over the whole field.
func (p *rawPage) set(name string, v uint64) *rawPage {
	p.t.Helper()
	f := p.field(name)
	for i := range f.size {
		p.b[f.off+i] = 0
		if i < 8 {
			p.b[f.off+i] = byte(v >> (8 * i))
		}
	}
	if f.size < 8 && v>>(8*f.size) != 0 {
		p.t.Fatalf("%s: %#x does not fit in %d bytes", name, v, f.size)
	}
	return p
}

// set128 writes both halves of a 16-byte field.
func (p *rawPage) set128(name string, lo, hi uint64) *rawPage {
	p.t.Helper()
	f := p.field(name)
	if f.size != 16 {
		p.t.Fatalf("%s has %d bytes, not 16", name, f.size)
	}
	for i := range 8 {
		p.b[f.off+i], p.b[f.off+8+i] = byte(lo>>(8*i)), byte(hi>>(8*i))
	}
	return p
}

// at writes raw bytes into a field, from its offset plus skip.
func (p *rawPage) at(name string, skip int, b ...byte) *rawPage {
	p.t.Helper()
	f := p.field(name)
	if skip+len(b) > f.size {
		p.t.Fatalf("%s: %d bytes at %d run past its %d", name, len(b), skip, f.size)
	}
	copy(p.b[f.off+skip:], b)
	return p
}

// text writes a padded field.
func (p *rawPage) text(name, s string, pad byte) *rawPage {
	p.t.Helper()
	f := p.field(name)
	for i := range f.size {
		p.b[f.off+i] = pad
		if i < len(s) {
			p.b[f.off+i] = s[i]
		}
	}
	return p
}

// get reads the low 8 bytes of a field.
func (p *rawPage) get(name string) uint64 {
	p.t.Helper()
	f := p.field(name)
	var v uint64
	for i := range min(f.size, 8) {
		v |= uint64(p.b[f.off+i]) << (8 * i)
	}
	return v
}

// load is a page of a structure with the bytes of a dump.
func (o oracle) load(t testing.TB, structure string, b []byte) *rawPage {
	t.Helper()
	p := o.page(t, structure)
	if len(b) < len(p.b) {
		t.Fatalf("%s: dump of %d bytes, structure has %d", structure, len(b), len(p.b))
	}
	copy(p.b, b)
	return p
}

// samePage says where two pages differ, in words of the table.
func (p *rawPage) diff(got []byte) string {
	if len(got) != len(p.b) {
		return "length " + strconv.Itoa(len(got)) + ", want " + strconv.Itoa(len(p.b))
	}
	var out []string
	for i := range got {
		if got[i] == p.b[i] {
			continue
		}
		name := "?"
		for n, f := range p.fields {
			if n != "." && i >= f.off && i < f.off+f.size {
				name = n
			}
		}
		out = append(out, "byte "+strconv.Itoa(i)+" ("+name+"): got "+strconv.FormatUint(uint64(got[i]), 16)+
			", want "+strconv.FormatUint(uint64(p.b[i]), 16))
		if len(out) == 12 {
			break
		}
	}
	return strings.Join(out, "\n")
}
