package namespace

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"nvop/nvmeioctl"
)

// SpecVersion is the version of the spec's language that this program reads.
const SpecVersion = 1

// Limits of a spec, so that a hostile file cannot take the machine.
const (
	specMaxBytes      = 1 << 20
	specMaxNamespaces = 1024
)

// Spec is the desired state of a drive.
type Spec struct {
	// Version of the spec's language: 1.
	Version int
	// Match says which drives the spec is for; an empty field matches all.
	Match Match
	// Namespaces are all the namespaces the drive should have; none leaves
	// them as they are, so that a spec may be about other things.
	Namespaces []NamespaceSpec
	// Replace names the existing namespaces that may be deleted to get there.
	// It is not needed where the only namespace becomes another one.
	Replace []uint32
}

// Match selects drives.
type Match struct {
	// Serial is the exact serial number.
	Serial string
	// Model is the exact model number, or a prefix when it ends in "*".
	Model string
}

// Matches says whether the spec is for this drive.
func (m Match) Matches(id nvmeioctl.Identity) bool {
	if m.Serial != "" && m.Serial != id.Serial {
		return false
	}
	if prefix, ok := strings.CutSuffix(m.Model, "*"); ok {
		return strings.HasPrefix(id.Model, prefix)
	}
	return m.Model == "" || m.Model == id.Model
}

// NamespaceSpec is one desired namespace.
type NamespaceSpec struct {
	Size Size
	// Format nil keeps what is there.
	Format *FormatSelector
	// Shared nil keeps what is there; a new namespace is then not shared.
	Shared *bool
}

// SpecError says where a spec is wrong.
type SpecError struct {
	File string
	// Line and Column count from 1; 0 where the place is not known.
	Line, Column int
	Reason       string
}

func (e *SpecError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// ExitCode is the process's exit code for this error.
func (e *SpecError) ExitCode() int { return 80 }

// scalar is a value as it was written, with its place. Numbers stay text until
// they are read exactly.
type scalar struct {
	text         string
	line, column int
	set          bool
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *scalar) UnmarshalYAML(node ast.Node) error {
	token := node.GetToken()
	if token != nil && token.Position != nil {
		s.line, s.column = token.Position.Line, token.Position.Column
	}
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		s.text, s.set = strings.TrimSpace(token.Value), true
		return nil
	case *ast.NullNode:
		return nil
	}
	return &SpecError{Line: s.line, Column: s.column, Reason: "a single value belongs here, not a list, a mapping or an alias"}
}

// The document as it is written. Adding a section is adding a field here.
type specDocument struct {
	Version    scalar              `yaml:"version"`
	Match      specMatch           `yaml:"match"`
	Namespaces []namespaceDocument `yaml:"namespaces"`
	Replace    []scalar            `yaml:"replace"`
}

type specMatch struct {
	Serial scalar `yaml:"serial"`
	Model  scalar `yaml:"model"`
}

type namespaceDocument struct {
	Size   scalar      `yaml:"size"`
	OP     scalar      `yaml:"op"`
	OPOf   scalar      `yaml:"op_of"`
	IDEMA  scalar      `yaml:"idema"`
	Exact  scalar      `yaml:"exact"`
	LBA    lbaDocument `yaml:"lba"`
	Shared scalar      `yaml:"shared"`
}

type lbaDocument struct {
	Data     scalar `yaml:"data"`
	Metadata scalar `yaml:"metadata"`
}

// ParseSpec reads a spec. name is used in errors, which are *SpecError with
// line and column.
func ParseSpec(name string, text []byte) (Spec, error) {
	r := specReader{file: name}
	if len(text) > specMaxBytes {
		return Spec{}, r.at(scalar{}, fmt.Sprintf("the file has more than %d bytes", specMaxBytes))
	}
	doc, err := r.document(text)
	if err != nil {
		return Spec{}, err
	}
	spec, err := r.spec(doc)
	if err != nil {
		return Spec{}, err
	}
	return spec, nil
}

type specReader struct{ file string }

// document parses the text. The library has been seen to panic on hostile text
// (a tag before a scalar where a list belongs), so what a spec does not need is
// refused before decoding, and a panic becomes an error.
func (r specReader) document(text []byte) (doc specDocument, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.at(scalar{}, fmt.Sprintf("the file cannot be parsed: %v", p))
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return doc, r.yamlError(err)
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return doc, r.at(scalar{}, "the file is empty")
	case len(bodies) > 1:
		return doc, r.at(scalar{}, "the file holds more than one document")
	}
	var plain plainYAML
	ast.Walk(&plain, bodies[0])
	if plain.found != nil {
		return doc, r.yamlError(plain.found)
	}
	if err := yaml.NodeToValue(bodies[0], &doc, yaml.Strict()); err != nil {
		return doc, r.yamlError(err)
	}
	return doc, nil
}

// plainYAML looks for what makes YAML more than a tree of plain values.
type plainYAML struct{ found *SpecError }

// Visit implements ast.Visitor.
func (v *plainYAML) Visit(node ast.Node) ast.Visitor {
	if v.found != nil {
		return nil
	}
	switch node.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		v.found = &SpecError{Reason: "tags, anchors, aliases and merges are not used in a spec"}
		if token := node.GetToken(); token != nil && token.Position != nil {
			v.found.Line, v.found.Column = token.Position.Line, token.Position.Column
		}
		return nil
	}
	return v
}

func (r specReader) at(s scalar, reason string) error {
	return &SpecError{File: r.file, Line: s.line, Column: s.column, Reason: reason}
}

// yamlError turns an error of the library into one line with its place.
func (r specReader) yamlError(err error) error {
	if e, ok := errors.AsType[*SpecError](err); ok {
		return &SpecError{File: r.file, Line: e.Line, Column: e.Column, Reason: e.Reason}
	}
	place := scalar{}
	reason := err.Error()
	if e, ok := errors.AsType[yaml.Error](err); ok {
		reason = e.GetMessage()
		if token := e.GetToken(); token != nil && token.Position != nil {
			place.line, place.column = token.Position.Line, token.Position.Column
		}
	}
	reason, _, _ = strings.Cut(reason, "\n")
	return r.at(place, reason)
}

func (r specReader) spec(doc specDocument) (Spec, error) {
	s := Spec{Version: SpecVersion, Match: Match{Serial: doc.Match.Serial.text, Model: doc.Match.Model.text}}
	if !doc.Version.set {
		return s, r.at(scalar{line: 1, column: 1}, `the version is missing: write "version: 1"`)
	}
	if doc.Version.text != strconv.Itoa(SpecVersion) {
		return s, r.at(doc.Version, fmt.Sprintf("version %s is not known, this program reads version %d", doc.Version.text, SpecVersion))
	}
	if len(doc.Namespaces) > specMaxNamespaces {
		return s, r.at(scalar{}, fmt.Sprintf("more than %d namespaces", specMaxNamespaces))
	}
	for _, nd := range doc.Namespaces {
		n, err := r.namespace(nd)
		if err != nil {
			return s, err
		}
		s.Namespaces = append(s.Namespaces, n)
	}
	for _, v := range doc.Replace {
		nsid, ok := parseNSID(v.text)
		if !ok {
			return s, r.at(v, fmt.Sprintf("%q is no namespace identifier", v.text))
		}
		s.Replace = append(s.Replace, nsid)
	}
	return s, nil
}

func (r specReader) namespace(nd namespaceDocument) (NamespaceSpec, error) {
	var n NamespaceSpec
	exact, err := r.boolean(nd.Exact)
	if err != nil {
		return n, err
	}
	if n.Size, err = r.size(nd, exact != nil && *exact); err != nil {
		return n, err
	}
	if n.Shared, err = r.boolean(nd.Shared); err != nil {
		return n, err
	}
	if nd.LBA.Metadata.set && !nd.LBA.Data.set {
		return n, r.at(nd.LBA.Metadata, "the data size of the LBA format is missing")
	}
	if !nd.LBA.Data.set {
		return n, nil
	}
	f, err := ParseFormat(nd.LBA.Data.text)
	if err != nil || f.MetadataBytes != 0 {
		return n, r.at(nd.LBA.Data, fmt.Sprintf("%q is no LBA data size: 512 or 4096 in bytes", nd.LBA.Data.text))
	}
	if nd.LBA.Metadata.set {
		meta, ok := formatBytes(nd.LBA.Metadata.text)
		if !ok || meta > 0xFFFF {
			return n, r.at(nd.LBA.Metadata, fmt.Sprintf("%q is no LBA metadata size: 0, 8 or 64 in bytes", nd.LBA.Metadata.text))
		}
		f.MetadataBytes = meta
	}
	n.Format = &f
	return n, nil
}

// size reads exactly one of size, op and idema.
func (r specReader) size(nd namespaceDocument, exact bool) (Size, error) {
	var given []scalar
	for _, v := range []scalar{nd.Size, nd.OP, nd.IDEMA} {
		if v.set {
			given = append(given, v)
		}
	}
	switch {
	case len(given) == 0:
		return Size{}, r.at(r.place(nd), "a namespace needs one of size, op and idema")
	case len(given) > 1:
		return Size{}, r.at(given[1], "a namespace has only one of size, op and idema")
	case nd.OPOf.set && !nd.OP.set:
		return Size{}, r.at(nd.OPOf, "op_of belongs to op")
	case nd.Exact.set && !nd.Size.set:
		return Size{}, r.at(nd.Exact, "exact belongs to size")
	case nd.OPOf.set && nd.OPOf.text != "user" && nd.OPOf.text != "total":
		return Size{}, r.at(nd.OPOf, "op_of is user or total")
	}
	var size Size
	var err error
	switch {
	case nd.Size.set:
		size, err = ParseSize(nd.Size.text, exact)
	case nd.OP.set:
		size, err = ParseOP(nd.OP.text, nd.OPOf.text == "total")
	default:
		size, err = ParseIDEMA(nd.IDEMA.text)
	}
	if err != nil {
		return Size{}, r.at(given[0], err.Error())
	}
	return size, nil
}

// place is where a namespace is, by the first thing written in it.
func (r specReader) place(nd namespaceDocument) scalar {
	for _, v := range []scalar{nd.LBA.Data, nd.LBA.Metadata, nd.Shared, nd.Exact, nd.OPOf} {
		if v.line != 0 {
			return v
		}
	}
	return scalar{}
}

func (r specReader) boolean(s scalar) (*bool, error) {
	if !s.set {
		return nil, nil
	}
	switch s.text {
	case "true":
		return new(true), nil
	case "false":
		return new(false), nil
	}
	return nil, r.at(s, fmt.Sprintf("%q is neither true nor false", s.text))
}

// parseNSID reads a namespace identifier, decimal or with 0x, of a single
// namespace: not 0 and not the broadcast value.
func parseNSID(text string) (uint32, bool) {
	base := 10
	if t, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = t, 16
	} else if strings.HasPrefix(text, "0") {
		return 0, false
	}
	n, err := strconv.ParseUint(text, base, 32)
	return uint32(n), err == nil && n != 0 && n < 0xFFFFFFFF
}

// PlanSpec plans whatever the drive lacks of the spec. Existing namespaces that
// the spec has no place for are deleted only when its replace list names them,
// except that the only namespace of a drive may become the only one of a spec.
func PlanSpec(inv Inventory, s Spec, o Options) (Plan, error) {
	const title = "apply spec"
	p := newPlanner(inv, title, o)
	if !s.Match.Matches(inv.Identity) {
		return Plan{}, p.refuse("match", inv.Address, fmt.Sprintf("the spec is for serial %q model %q, the drive is %q %q",
			s.Match.Serial, s.Match.Model, inv.Identity.Serial, inv.Identity.Model), "")
	}
	if len(s.Namespaces) == 0 {
		return p.finish()
	}
	if err := p.checkManagement("the spec's list of namespaces"); err != nil {
		return Plan{}, err
	}
	if len(s.Namespaces) == 1 && len(inv.Namespaces) <= 1 {
		want := s.Namespaces[0]
		return PlanOPSet(inv, OPTarget{Size: want.Size, Format: want.Format, Shared: want.Shared, Title: title}, o)
	}
	if err := p.several(s); err != nil {
		return Plan{}, err
	}
	return p.finish()
}

// several keeps the namespaces that are as the spec wants one, deletes those
// it may, and creates what is missing.
func (p *planner) several(s Spec) error {
	kept := map[uint32]bool{}
	var missing []NamespaceSpec
	for _, want := range s.Namespaces {
		if len(s.Namespaces) > 1 && !absolute(want.Size.Kind) {
			return p.refuse("spec", "size "+want.Size.Text, "it depends on what other namespaces take", "with several namespaces give each its size")
		}
		n, ok := p.findLike(want, kept)
		if !ok {
			missing = append(missing, want)
			continue
		}
		kept[n.NSID] = true
		here := n.Controllers
		if len(here) == 0 {
			here = []uint16{p.inv.Identity.CNTLID}
		}
		if err := p.attachMissing(n, here); err != nil {
			return err
		}
	}
	var gone []Namespace
	for _, n := range p.inv.Namespaces {
		if kept[n.NSID] {
			continue
		}
		if !slices.Contains(s.Replace, n.NSID) {
			return p.refuse("spec", fmt.Sprintf("namespace %d", n.NSID),
				"the spec has no place for it and does not name it as one to replace; the drive has: "+p.list(), fmt.Sprintf("add it to the spec: replace: [%d]", n.NSID))
		}
		gone = append(gone, n)
	}
	if len(gone) > 0 {
		if err := p.checkHealth(); err != nil {
			return err
		}
	}
	for _, n := range gone {
		if n.Error != "" {
			return p.refuse("namespace", fmt.Sprintf("namespace %d", n.NSID), "it could not be read: "+n.Error, "")
		}
		if err := p.remove(n); err != nil {
			return err
		}
	}
	return p.createAll(missing, gone)
}

// createAll plans new namespaces, counting what each takes.
func (p *planner) createAll(missing []NamespaceSpec, gone []Namespace) error {
	taken := uint64(0)
	for _, want := range missing {
		selector, err := p.defaultFormat(want.Format)
		if err != nil {
			return err
		}
		format, err := p.format(selector)
		if err != nil {
			return err
		}
		q := p.question(format, gone...)
		q.AvailableBytes -= min(q.AvailableBytes, taken)
		c, err := want.Size.Resolve(q)
		if err != nil {
			return err
		}
		n := Namespace{SizeBlocks: c.Blocks, CapacityBlocks: c.Blocks, Controllers: []uint16{p.inv.Identity.CNTLID}}
		if want.Shared != nil && *want.Shared {
			n.NMIC = 1
		}
		if err := p.checkShared(n); err != nil {
			return err
		}
		p.setFormat(&n, format)
		p.plan.Notes = append(p.plan.Notes, c.Notes...)
		if err := p.add(n, c, q); err != nil {
			return err
		}
		taken = addCapped(taken, c.Bytes)
	}
	return nil
}

// absolute says that a size does not depend on what else is on the drive.
func absolute(k SizeKind) bool {
	switch k {
	case SizeBytes, SizeMarketing, SizeBlocks, SizePercent:
		return true
	}
	return false
}

// findLike finds a namespace that is as wanted and not yet kept for another.
func (p *planner) findLike(want NamespaceSpec, kept map[uint32]bool) (Namespace, bool) {
	for _, n := range p.inv.Namespaces {
		if n.Error != "" || kept[n.NSID] {
			continue
		}
		if want.Format != nil && n.Format.Selector() != *want.Format || want.Shared != nil && n.Shared() != *want.Shared {
			continue
		}
		c, err := want.Size.Resolve(p.question(n.Format, n))
		if err == nil && c.Blocks == n.SizeBlocks {
			return n, true
		}
	}
	return Namespace{}, false
}
