package namespace

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"nvop/nvmeioctl/nvmespec"
)

func (r *specReader) namespaces(s *Spec, m mapping) error {
	node, ok := m.nodes["namespaces"]
	if !ok {
		return nil
	}
	nodes, err := r.sequence("namespaces", node, specMaxNamespaces)
	if err != nil {
		return err
	}
	s.Namespaces = []NamespaceSpec{}
	total, shares := 0, 0
	for i, n := range nodes {
		want, err := r.namespace(fmt.Sprintf("namespaces[%d]", i), n)
		if err != nil {
			return err
		}
		if !absolute(want.Size.Kind) {
			shares++
		}
		if total += want.Count; total > specMaxNamespaces {
			return r.fail(want.path, n, "more than %d namespaces", specMaxNamespaces)
		}
		if shares > 1 {
			return r.fail(join(want.path, "size"), n, "size %s depends on what the others take, and so does one before it: only one may", want.Size)
		}
		s.Namespaces = append(s.Namespaces, want)
	}
	return nil
}

func (r *specReader) namespace(path string, node ast.Node) (NamespaceSpec, error) {
	n := NamespaceSpec{path: path, Count: 1}
	m, err := r.mapping(path, node, []string{"size", "op", "op_of", "idema", "max", "exact", "count", "lba", "protection", "shared", "controllers"})
	if err != nil {
		return n, err
	}
	if n.Size, err = r.size(m); err != nil {
		return n, err
	}
	if count, ok, err := r.number(m, "count", 1, specMaxNamespaces); err != nil {
		return n, err
	} else if ok {
		n.Count = int(count)
	}
	if n.Format, err = r.lba(m); err != nil {
		return n, err
	}
	if n.Protection, err = r.protection(m, n.Format); err != nil {
		return n, err
	}
	if n.Shared, err = r.boolean(m, "shared"); err != nil {
		return n, err
	}
	n.Controllers, err = r.controllers(m)
	if err == nil && len(n.Controllers) > 1 && n.Shared != nil && !*n.Shared {
		return n, r.fail(join(path, "controllers"), m.nodes["controllers"], "a private namespace cannot be attached to more than one controller")
	}
	return n, err
}

// size reads exactly one of size, op, idema and max.
func (r *specReader) size(m mapping) (Size, error) {
	exact, err := r.boolean(m, "exact")
	if err != nil {
		return Size{}, err
	}
	given := ""
	for _, key := range []string{"size", "op", "idema", "max"} {
		if _, ok := m.nodes[key]; !ok {
			continue
		}
		if given != "" {
			return Size{}, r.fail(join(m.path, key), m.nodes[key], "a namespace has only one of size, op, idema and max")
		}
		given = key
	}
	if given == "" {
		return Size{}, r.fail(m.path, m.node, "a namespace needs one of size, op, idema and max")
	}
	for key, owner := range map[string]string{"op_of": "op", "exact": "size"} {
		if node, ok := m.nodes[key]; ok && given != owner {
			return Size{}, r.fail(join(m.path, key), node, "%s belongs to %s", key, owner)
		}
	}
	of, err := r.word(m, "op_of", "user", "total")
	if err != nil {
		return Size{}, err
	}
	text, ok, err := r.text(m, given)
	if err != nil {
		return Size{}, err
	}
	field, node := join(m.path, given), m.nodes[given]
	if !ok {
		return Size{}, r.fail(field, node, "it is empty")
	}
	var size Size
	switch given {
	case "size":
		size, err = ParseSize(text, exact != nil && *exact)
	case "op":
		size, err = ParseOP(text, of == "total")
	case "idema":
		size, err = ParseIDEMA(text)
	default:
		if text != "true" {
			return Size{}, r.fail(field, node, `write "max: true", or leave it out`)
		}
		size, err = ParseSize("max", false)
	}
	if err != nil {
		return Size{}, r.fail(field, node, "%v", err)
	}
	return size, nil
}

func (r *specReader) lba(m mapping) (*FormatSelector, error) {
	section, ok, err := r.section(m, "lba", "data", "metadata")
	if err != nil || !ok {
		return nil, err
	}
	data, ok, err := r.text(section, "data")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, r.fail(section.path, section.node, "the data size of the LBA format is missing")
	}
	f, err := ParseFormat(data)
	if err != nil || f.MetadataBytes != 0 {
		return nil, r.fail(join(section.path, "data"), section.nodes["data"], "%.40q is no LBA data size: 512 or 4096 in bytes", data)
	}
	meta, ok, err := r.text(section, "metadata")
	if err != nil {
		return nil, err
	}
	if ok {
		if f.MetadataBytes, ok = formatBytes(meta); !ok || f.MetadataBytes > 0xFFFF {
			return nil, r.fail(join(section.path, "metadata"), section.nodes["metadata"], "%.40q is no LBA metadata size: 0, 8 or 64 in bytes", meta)
		}
	}
	return &f, nil
}

// protectionFirst is bit 3 of DPS: the protection information is the first bytes
// of the metadata.
const protectionFirst = 8

func (r *specReader) protection(m mapping, f *FormatSelector) (*uint8, error) {
	section, ok, err := r.section(m, "protection", "type", "first")
	if err != nil || !ok {
		return nil, err
	}
	kind, ok, err := r.number(section, "type", 0, 3)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, r.fail(section.path, section.node, "the type is missing: 0 for none, 1, 2 or 3")
	}
	first, err := r.boolean(section, "first")
	if err != nil {
		return nil, err
	}
	dps := uint8(kind)
	if first != nil && *first {
		if kind == 0 {
			return nil, r.fail(join(section.path, "first"), section.nodes["first"], "without protection there is no first or last")
		}
		dps |= protectionFirst
	}
	if f != nil && kind != 0 && f.MetadataBytes < 8 {
		return nil, r.fail(section.path, section.node, "protection needs at least 8 bytes of metadata, LBA format %s has %d", f, f.MetadataBytes)
	}
	return &dps, nil
}

func (r *specReader) controllers(m mapping) ([]uint16, error) {
	texts, nodes, err := r.texts(m, "controllers", nvmespec.ControllerListMax)
	if err != nil || texts == nil {
		return nil, err
	}
	list := []uint16{}
	for i, text := range texts {
		id, err := integer(text, 0, 0xFFFF)
		if err != nil {
			return nil, r.fail(fmt.Sprintf("%s[%d]", join(m.path, "controllers"), i), nodes[i], "%v", err)
		}
		list = append(list, uint16(id))
	}
	return sortedIDs(list), nil
}
