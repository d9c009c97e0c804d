package namespace

import (
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"nvop/namespace/firmware"
	"nvop/namespace/yamltree"
)

// ParseSpecs reads a file of specs: one for all, or a list of them under
// "drives". name is used in errors, which are *SpecError with line and column.
func ParseSpecs(name string, text []byte) (specs []Spec, err error) {
	r := &specReader{file: name}
	body, err := r.document(text)
	if err != nil {
		return nil, err
	}
	return r.specs(body)
}

// ParseSpec reads a file that holds one spec.
func ParseSpec(name string, text []byte) (Spec, error) {
	specs, err := ParseSpecs(name, text)
	if err != nil {
		return Spec{}, err
	}
	if len(specs) != 1 {
		return Spec{}, &SpecError{File: name, Reason: fmt.Sprintf("it holds %d specs, one is wanted", len(specs))}
	}
	return specs[0], nil
}

// specReader walks the tree itself, so that every value keeps its place and a
// number is never anything but the text that was written.
type specReader struct {
	file   string
	places map[string]Place
}

// document parses the text. What the library makes of hostile text may be a tree
// with holes, so a panic on the way through it becomes an error.
func (r *specReader) document(text []byte) (body ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, r.fail("", nil, "the file cannot be parsed: %v", p)
		}
	}()
	file, err := yamltree.Parse(text, specMaxBytes)
	if err != nil {
		return nil, r.yamlError(err)
	}
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return nil, r.fail("", nil, "the file holds more than one document")
		}
		body = d.Body
	}
	if body == nil {
		return nil, r.fail("", nil, "the file is empty")
	}
	var plain plainYAML
	ast.Walk(&plain, body)
	if plain.found != nil {
		return nil, r.fail("", plain.found, "tags, anchors, aliases and merges are not used in a spec")
	}
	return body, nil
}

// plainYAML looks for what makes YAML more than a tree of plain values.
type plainYAML struct{ found ast.Node }

// Visit implements ast.Visitor.
func (v *plainYAML) Visit(node ast.Node) ast.Visitor {
	if v.found != nil {
		return nil
	}
	switch node.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		v.found = node
		return nil
	}
	return v
}

func placeOf(node ast.Node) Place {
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return Place{}
	}
	p := node.GetToken().Position
	return Place{Line: p.Line, Column: p.Column}
}

func (r *specReader) fail(field string, node ast.Node, format string, args ...any) error {
	p := placeOf(node)
	// A value may have several lines; a message has one.
	reason := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	return &SpecError{File: r.file, Line: p.Line, Column: p.Column, Field: field, Reason: reason}
}

// yamlError turns an error of the library into one line with its place.
func (r *specReader) yamlError(err error) error {
	e := &SpecError{File: r.file, Reason: err.Error()}
	if y, ok := errors.AsType[*yamltree.Error](err); ok {
		e.Line, e.Column, e.Reason = y.Line, y.Column, y.Reason
	} else if y, ok := errors.AsType[yaml.Error](err); ok {
		e.Reason = y.GetMessage()
		if token := y.GetToken(); token != nil && token.Position != nil {
			e.Line, e.Column = token.Position.Line, token.Position.Column
		}
	}
	e.Reason, _, _ = strings.Cut(e.Reason, "\n")
	return e
}

// mapping is a mapping by its keys, none of which may be unknown or there twice.
type mapping struct {
	path  string
	node  ast.Node
	nodes map[string]ast.Node
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// null refuses what has no value. Taken as not written it would widen a spec without
// a word: a template's variable that is not set would make one drive's spec into one
// for all, or a limit into none.
func (r *specReader) null(path string, node ast.Node) error {
	return r.fail(path, node, "it has no value; leave the field out if it is not meant")
}

// mapping reads a mapping. known may be nil where the keys are looked at by the
// caller.
func (r *specReader) mapping(path string, node ast.Node, known []string) (mapping, error) {
	m := mapping{path: path, node: node, nodes: map[string]ast.Node{}}
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return m, r.null(path, node)
	default:
		return m, r.fail(path, node, "a mapping belongs here")
	}
	for _, v := range values {
		if v == nil || v.Key == nil || v.Key.GetToken() == nil {
			return m, r.fail(path, node, "a key cannot be read")
		}
		key := v.Key.GetToken().Value
		if !slices.Contains(known, key) {
			return m, r.fail(path, v.Key, "unknown field %.40q; known are %s", key, strings.Join(known, ", "))
		}
		if _, twice := m.nodes[key]; twice {
			return m, r.fail(join(path, key), v.Key, "it is already defined above")
		}
		if _, null := v.Value.(*ast.NullNode); null || v.Value == nil {
			return m, r.null(join(path, key), v.Key)
		}
		m.nodes[key] = v.Value
		r.places[join(path, key)] = placeOf(v.Value)
	}
	r.places[path] = placeOf(node)
	return m, nil
}

// sequence reads a list.
func (r *specReader) sequence(path string, node ast.Node, limit int) ([]ast.Node, error) {
	s, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, r.fail(path, node, "a list belongs here")
	}
	if len(s.Values) > limit {
		return nil, r.fail(path, node, "the list has more than %d elements", limit)
	}
	return s.Values, nil
}

// text is a single value as it was written, never empty; false where it is absent.
func (r *specReader) text(m mapping, key string) (string, bool, error) {
	node, ok := m.nodes[key]
	if !ok {
		return "", false, nil
	}
	text, err := r.scalar(join(m.path, key), node)
	return text, err == nil, err
}

func (r *specReader) scalar(path string, node ast.Node) (string, error) {
	text := ""
	switch n := node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text = strings.TrimSpace(n.GetToken().Value)
	case *ast.LiteralNode:
		if n.Value != nil {
			text = strings.TrimSpace(n.Value.Value)
		}
	case *ast.NullNode:
	default:
		return "", r.fail(path, node, "a single value belongs here, not a list, a mapping or an alias")
	}
	if text == "" {
		return "", r.null(path, node)
	}
	return text, nil
}

// integer reads a whole number, decimal or with 0x; a leading zero is refused
// because some tools take it for octal.
func integer(text string, low, high int64) (int64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	base := 10
	if hexadecimal, ok := strings.CutPrefix(digits, "0x"); ok {
		digits, base = hexadecimal, 16
	} else if len(digits) > 1 && digits[0] == '0' {
		return 0, errors.New("a leading zero is ambiguous: write decimal or 0x hexadecimal")
	}
	n, err := strconv.ParseUint(digits, base, 63)
	v := int64(n)
	if negative {
		v = -v
	}
	if err != nil || v < low || v > high {
		return 0, fmt.Errorf("%.40q is no whole number from %d to %d", text, low, high)
	}
	return v, nil
}

func (r *specReader) number(m mapping, key string, low, high int64) (int64, bool, error) {
	text, ok, err := r.text(m, key)
	if err != nil || !ok {
		return 0, false, err
	}
	n, err := integer(text, low, high)
	if err != nil {
		return 0, false, r.fail(join(m.path, key), m.nodes[key], "%v", err)
	}
	return n, true, nil
}

func (r *specReader) boolean(m mapping, key string) (*bool, error) {
	text, ok, err := r.text(m, key)
	if err != nil || !ok {
		return nil, err
	}
	switch text {
	case "true":
		return new(true), nil
	case "false":
		return new(false), nil
	}
	return nil, r.fail(join(m.path, key), m.nodes[key], "%.40q is neither true nor false", text)
}

// word reads one of several words.
func (r *specReader) word(m mapping, key string, words ...string) (string, error) {
	text, ok, err := r.text(m, key)
	if err != nil || !ok {
		return "", err
	}
	if !slices.Contains(words, text) {
		return "", r.fail(join(m.path, key), m.nodes[key], "%.40q; %s are possible", text, strings.Join(words, ", "))
	}
	return text, nil
}

// texts reads a list of single values.
func (r *specReader) texts(m mapping, key string, limit int) ([]string, []ast.Node, error) {
	node, ok := m.nodes[key]
	if !ok {
		return nil, nil, nil
	}
	nodes, err := r.sequence(join(m.path, key), node, limit)
	if err != nil {
		return nil, nil, err
	}
	list := []string{}
	for i, n := range nodes {
		at := fmt.Sprintf("%s[%d]", join(m.path, key), i)
		text, err := r.scalar(at, n)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, text)
	}
	return list, nodes, nil
}

// sections are the fields of one spec.
func sections() []string {
	return []string{"match", "namespaces", "replace", "format", "power", "features", "firmware", "pcie", "health"}
}

func (r *specReader) specs(body ast.Node) ([]Spec, error) {
	r.places = map[string]Place{}
	top, err := r.mapping("", body, append([]string{"version", "drives"}, sections()...))
	if err != nil {
		return nil, err
	}
	version, ok, err := r.text(top, "version")
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, &SpecError{File: r.file, Line: 1, Column: 1, Field: "version", Reason: `it is missing: write "version: 1"`}
	case version != strconv.Itoa(SpecVersion):
		return nil, r.fail("version", top.nodes["version"], "version %.40q is not known, this program reads version %d", version, SpecVersion)
	}
	list, several := top.nodes["drives"]
	if !several {
		s, err := r.spec(top)
		return []Spec{s}, err
	}
	for name, node := range top.nodes {
		if name != "version" && name != "drives" {
			return nil, r.fail(name, node, `beside "drives" it belongs into one of its elements`)
		}
	}
	rules, err := r.sequence("drives", list, specMaxRules)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, r.fail("drives", list, "the list is empty")
	}
	specs := []Spec{}
	for _, rule := range rules {
		r.places = map[string]Place{}
		m, err := r.mapping("", rule, sections())
		if err != nil {
			return nil, err
		}
		s, err := r.spec(m)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, nil
}

func (r *specReader) spec(m mapping) (Spec, error) {
	s := Spec{File: r.file, Version: SpecVersion, places: r.places}
	for _, read := range []func(*Spec, mapping) error{
		r.match, r.namespaces, r.replace, r.format, r.settings, r.firmware, r.pcie, r.health,
	} {
		if err := read(&s, m); err != nil {
			return s, err
		}
	}
	return s, nil
}

// section is a section's mapping; false where the spec does not have it.
func (r *specReader) section(m mapping, name string, known ...string) (mapping, bool, error) {
	node, ok := m.nodes[name]
	if !ok {
		return mapping{}, false, nil
	}
	section, err := r.mapping(join(m.path, name), node, known)
	return section, true, err
}

func (r *specReader) match(s *Spec, m mapping) error {
	section, ok, err := r.section(m, "match", "serial", "model", "vendor", "subsystem", "address")
	if err != nil || !ok {
		return err
	}
	for key, to := range map[string]*string{"serial": &s.Match.Serial, "model": &s.Match.Model, "subsystem": &s.Match.Subsystem, "address": &s.Match.Address} {
		if *to, _, err = r.text(section, key); err != nil {
			return err
		}
		if _, err := path.Match(*to, ""); err != nil && key != "serial" {
			return r.fail(join(section.path, key), section.nodes[key], "%.40q is no glob: a bracket is not closed", *to)
		}
	}
	vendor, _, err := r.number(section, "vendor", 1, 0xFFFF)
	s.Match.Vendor = uint16(vendor)
	return err
}

func (r *specReader) replace(s *Spec, m mapping) error {
	node, ok := m.nodes["replace"]
	if !ok {
		return nil
	}
	if _, list := node.(*ast.SequenceNode); !list {
		word, err := r.word(m, "replace", "all")
		s.ReplaceAll = word == "all"
		return err
	}
	texts, nodes, err := r.texts(m, "replace", specMaxNamespaces)
	for i, text := range texts {
		nsid, ok := parseNSID(text)
		if !ok {
			return r.fail(fmt.Sprintf("replace[%d]", i), nodes[i], "%.40q is no namespace identifier", text)
		}
		s.Replace = append(s.Replace, nsid)
	}
	return err
}

// parseNSID reads a namespace identifier, decimal or with 0x, of a single
// namespace: not 0 and not the broadcast value.
func parseNSID(text string) (uint32, bool) {
	n, err := integer(text, 1, 0xFFFFFFFE)
	return uint32(n), err == nil
}

// eraseWords are the words for the kinds of secure erase, by value.
func eraseWords() []string { return []string{"none", "user", "crypto"} }

func (r *specReader) format(s *Spec, m mapping) error {
	section, ok, err := r.section(m, "format", "erase")
	if err != nil || !ok {
		return err
	}
	word, err := r.word(section, "erase", eraseWords()...)
	s.Erase = SecureErase(max(slices.Index(eraseWords(), word), 0))
	return err
}

// settings reads the power and features sections by the table.
func (r *specReader) settings(s *Spec, m mapping) error {
	groups := map[string]mapping{}
	for _, top := range []string{"power", "features"} {
		known := childrenOf(top)
		section, ok, err := r.section(m, top, known...)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if top == "power" {
			groups[top] = section
			continue
		}
		for name := range section.nodes {
			group := join(top, name)
			if groups[group], _, err = r.section(section, name, childrenOf(group)...); err != nil {
				return err
			}
		}
	}
	for _, f := range Settings() {
		group, ok := groups[f.Group()]
		if !ok {
			continue
		}
		want, ok, err := r.setting(f, group)
		if err != nil {
			return err
		}
		if ok {
			s.Settings = append(s.Settings, want)
		}
	}
	return nil
}

// childrenOf are the names directly below a path of the table, and the word save
// in a group.
func childrenOf(path string) []string {
	var names []string
	for _, f := range Settings() {
		rest, ok := strings.CutPrefix(f.Path, path+".")
		if !ok {
			continue
		}
		name, deeper, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if deeper == "" && !slices.Contains(names, "save") {
			names = append(names, "save")
		}
	}
	return names
}

func (r *specReader) setting(f SettingField, group mapping) (Setting, bool, error) {
	s := Setting{Path: f.Path}
	node, ok := group.nodes[f.Name()]
	if !ok {
		return s, false, nil
	}
	save, err := r.boolean(group, "save")
	if err != nil {
		return s, false, err
	}
	s.Save = save != nil && *save && f.Form != FormClock && f.Fixed == ""
	switch f.Form {
	case FormBoolean:
		b, err := r.boolean(group, f.Name())
		if b != nil && *b {
			s.Number = 1
		}
		return s, b != nil, err
	case FormTransitions:
		s.Text, err = r.transitions(f.Path, node)
		return s, err == nil, err
	case FormCelsius:
		if text, _, err := r.text(group, f.Name()); err == nil && text == "none" {
			s.Number = noCelsius
			return s, true, nil
		}
	}
	s.Number, ok, err = r.number(group, f.Name(), f.Min, f.Max)
	if f.scale > 1 && s.Number%f.scale != 0 {
		err = r.fail(f.Path, node, "%d is no multiple of %d", s.Number, f.scale)
	}
	return s, ok && err == nil, err
}

// transitions reads a list of {from, to, idle_ms} into its canonical text.
func (r *specReader) transitions(path string, node ast.Node) (string, error) {
	if text, err := r.scalar(path, node); err == nil && text == "none" {
		return "", nil
	}
	nodes, err := r.sequence(path, node, 32)
	if err != nil {
		return "", err
	}
	var parts [32]string
	for i, n := range nodes {
		at := fmt.Sprintf("%s[%d]", path, i)
		m, err := r.mapping(at, n, []string{"from", "to", "idle_ms"})
		if err != nil {
			return "", err
		}
		var v [3]int64
		for j, key := range []string{"from", "to", "idle_ms"} {
			high := int64(31)
			if key == "idle_ms" {
				high = 0xFFFFFF
			}
			var ok bool
			if v[j], ok, err = r.number(m, key, 0, high); err != nil {
				return "", err
			}
			if !ok {
				return "", r.fail(at, n, "%s is missing", key)
			}
		}
		if parts[v[0]] != "" {
			return "", r.fail(at, n, "there is a transition from power state %d already", v[0])
		}
		parts[v[0]] = fmt.Sprintf("%d>%d@%dms", v[0], v[1], v[2])
	}
	return strings.Join(strings.Fields(strings.Join(parts[:], " ")), " "), nil
}

func (r *specReader) firmware(s *Spec, m mapping) error {
	section, ok, err := r.section(m, "firmware", "revision", "image", "sha256", "slot", "activate", "allow_live")
	if err != nil || !ok {
		return err
	}
	var f FirmwareSpec
	for key, to := range map[string]*string{"revision": &f.Revision, "image": &f.Image, "sha256": &f.SHA256} {
		if *to, _, err = r.text(section, key); err != nil {
			return err
		}
	}
	if f.Image != "" && !filepath.IsAbs(f.Image) {
		f.Image = filepath.Join(filepath.Dir(r.file), f.Image)
	}
	word, err := r.word(section, "activate", "stage", "reset", "live")
	if err != nil {
		return err
	}
	f.Activate = firmware.Activation(word)
	if text, ok, err := r.text(section, "slot"); err != nil {
		return err
	} else if ok && text != "auto" {
		n, _, err := r.number(section, "slot", 1, 7)
		if err != nil {
			return err
		}
		f.Slot = uint8(n)
	}
	if f.AllowLive, _, err = r.texts(section, "allow_live", specMaxRules); err != nil {
		return err
	}
	if f.Revision == "" {
		return r.fail("firmware", section.node, "the revision is missing: only by it can a drive be judged, and an image told from what runs")
	}
	if err := f.Validate(); err != nil {
		return r.fail("firmware", section.node, "%v", strings.TrimPrefix(err.Error(), "firmware: "))
	}
	s.Firmware = &f
	return nil
}

func (r *specReader) pcie(s *Spec, m mapping) error {
	section, ok, err := r.section(m, "pcie", "payload_bytes", "read_request_bytes", "speed", "width")
	if err != nil || !ok {
		return err
	}
	for key, to := range map[string]*uint16{"payload_bytes": &s.PCIe.PayloadBytes, "read_request_bytes": &s.PCIe.ReadRequestBytes} {
		n, ok, err := r.number(section, key, 128, 4096)
		if err != nil {
			return err
		}
		if ok && n&(n-1) != 0 {
			return r.fail(join(section.path, key), section.nodes[key], "%d is no power of two", n)
		}
		*to = uint16(n)
	}
	speed, err := r.word(section, "speed", speedWords()...)
	if err != nil {
		return err
	}
	s.PCIe.Generation = uint8(slices.Index(speedWords(), speed) + 1)
	width, ok, err := r.number(section, "width", 1, 32)
	if ok && width&(width-1) != 0 && width != 12 {
		return r.fail("pcie.width", section.nodes["width"], "a link has 1, 2, 4, 8, 12, 16 or 32 lanes")
	}
	s.PCIe.Width = uint8(width)
	return err
}

func speedWords() []string { return []string{"gen1", "gen2", "gen3", "gen4", "gen5", "gen6"} }

func (r *specReader) health(s *Spec, m mapping) error {
	section, ok, err := r.section(m, "health", "used_percent_max", "spare_percent_min", "media_errors_max",
		"unsafe_shutdowns_max", "temperature_celsius_max", "critical_warnings")
	if err != nil || !ok {
		return err
	}
	h := &s.Health
	read := func(key string, low, high int64, set func(int64)) {
		if err != nil {
			return
		}
		var n int64
		if n, ok, err = r.number(section, key, low, high); ok {
			set(n)
		}
	}
	read("used_percent_max", 0, 255, func(n int64) { h.UsedPercentMax = new(uint8(n)) })
	read("spare_percent_min", 0, 100, func(n int64) { h.SparePercentMin = new(uint8(n)) })
	read("media_errors_max", 0, math.MaxInt64, func(n int64) { h.MediaErrorsMax = new(uint64(n)) })
	read("unsafe_shutdowns_max", 0, math.MaxInt64, func(n int64) { h.UnsafeShutdownsMax = new(uint64(n)) })
	read("temperature_celsius_max", -273, 1000, func(n int64) { h.TemperatureCelsiusMax = new(int(n)) })
	if err != nil {
		return err
	}
	h.CriticalWarnings, err = r.boolean(section, "critical_warnings")
	if h.CriticalWarnings != nil && *h.CriticalWarnings {
		return r.fail("health.critical_warnings", section.nodes["critical_warnings"], "write false to want none; leave it out to accept them")
	}
	return err
}
