package namespace

import "strings"

// SpecSchema is the JSON schema (draft 2020-12) of the spec's YAML, made from the
// same table of settings that it is read by. It is as strict as a schema can be;
// what depends on two fields at once only ParseSpecs knows.
func SpecSchema() map[string]any {
	one := specProperties()
	top := map[string]any{
		"version": map[string]any{"const": SpecVersion, "description": "version of the spec's language"},
		"drives": map[string]any{"type": "array", "minItems": 1, "maxItems": specMaxRules, "items": object("rules for some drives; the first that fits a drive counts", one),
			"description": "rules for many drives, in place of the sections themselves"},
	}
	for name, schema := range one {
		top[name] = schema
	}
	s := object("What NVMe drives must be: nvop plan, apply and audit read it.", top)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "nvop spec, version 1"
	s["required"] = []string{"version"}
	return s
}

func object(doc string, properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "description": doc, "additionalProperties": false, "properties": properties}
}

func schemaText(doc string) map[string]any {
	return map[string]any{"type": []string{"string", "number"}, "description": doc}
}

func schemaNumber(doc string, low, high int64) map[string]any {
	// A number may be written in hexadecimal, which is text to JSON.
	return map[string]any{"description": doc, "anyOf": []any{
		map[string]any{"type": "integer", "minimum": low, "maximum": high},
		map[string]any{"type": "string", "pattern": "^0x[0-9a-fA-F]+$"},
	}}
}

func schemaBoolean(doc string) map[string]any {
	return map[string]any{"type": "boolean", "description": doc}
}

func schemaWord(doc string, words ...string) map[string]any {
	return map[string]any{"enum": words, "description": doc}
}

func schemaList(doc string, items map[string]any, limit int) map[string]any {
	return map[string]any{"type": "array", "description": doc, "items": items, "maxItems": limit}
}

func specProperties() map[string]any {
	p := map[string]any{
		"match": object("which drives; a field that is absent fits all", map[string]any{
			"serial": schemaText("exact serial number"), "model": schemaText("glob over the model number"),
			"vendor": schemaNumber("PCI vendor", 1, 0xFFFF), "subsystem": schemaText("glob over the subsystem NQN"),
			"address": schemaText("glob over /dev/nvmeX, the PCI address, or sim:FILE"),
		}),
		"namespaces": schemaList("all the namespaces there should be", namespaceSchema(), specMaxNamespaces),
		"replace": map[string]any{"description": "existing namespaces that may be deleted to get there", "anyOf": []any{
			map[string]any{"const": "all"}, schemaList("by NSID", schemaNumber("NSID", 1, 0xFFFFFFFE), specMaxNamespaces)}},
		"format": object("how namespaces are formatted where that is needed", map[string]any{
			"erase": schemaWord("secure erase: user data erase, cryptographic erase", eraseWords()...)}),
		"firmware": object("the firmware that runs", map[string]any{
			"revision": schemaText("exact revision"), "image": schemaText("image file, relative to this file"),
			"sha256":   map[string]any{"type": "string", "pattern": "^[0-9a-fA-F]{64}$", "description": "of the image"},
			"slot":     map[string]any{"enum": []any{"auto", 1, 2, 3, 4, 5, 6, 7}, "description": "slot for the image; auto takes a writable one that does not run"},
			"activate": schemaWord("how far to go; stage leaves it to the next reset", "stage", "reset", "live"),
			"allow_live": schemaList("models (globs) that may activate while they run",
				map[string]any{"type": "string"}, specMaxRules),
		}),
		"pcie": object("the path to the drive; judged by an audit only", map[string]any{
			"payload_bytes":      map[string]any{"enum": []int{128, 256, 512, 1024, 2048, 4096}, "description": "payload size in force"},
			"read_request_bytes": map[string]any{"enum": []int{128, 256, 512, 1024, 2048, 4096}, "description": "read request size"},
			"speed":              schemaWord("link speed", speedWords()...),
			"width":              map[string]any{"enum": []int{1, 2, 4, 8, 12, 16, 32}, "description": "lanes"},
		}),
		"health": object("limits; judged by an audit only", map[string]any{
			"used_percent_max": schemaNumber("percentage used", 0, 255), "spare_percent_min": schemaNumber("available spare", 0, 100),
			"media_errors_max": schemaNumber("media and data integrity errors", 0, 1<<62), "unsafe_shutdowns_max": schemaNumber("unsafe shutdowns", 0, 1<<62),
			"temperature_celsius_max": schemaNumber("composite temperature", -273, 1000),
			"critical_warnings":       map[string]any{"const": false, "description": "no critical warning"},
		}),
	}
	for _, f := range Settings() {
		addSetting(p, f)
	}
	return p
}

// addSetting puts one line of the table into the tree of properties.
func addSetting(tree map[string]any, f SettingField) {
	parts := strings.Split(f.Path, ".")
	for _, name := range parts[:len(parts)-1] {
		node, ok := tree[name].(map[string]any)
		if !ok {
			node = object("", map[string]any{})
			delete(node, "description")
			tree[name] = node
		}
		tree = node["properties"].(map[string]any)
	}
	tree["save"] = schemaBoolean("keep the values over power cycles too")
	switch f.Form {
	case FormBoolean:
		tree[f.Name()] = schemaBoolean(f.Doc)
	case FormCelsius:
		tree[f.Name()] = map[string]any{"description": f.Doc, "anyOf": []any{map[string]any{"const": "none"}, map[string]any{"type": "integer", "minimum": f.Min, "maximum": f.Max}}}
	case FormTransitions:
		tree[f.Name()] = schemaList(f.Doc, object("one transition", map[string]any{
			"from": schemaNumber("power state", 0, 31), "to": schemaNumber("power state", 0, 31), "idle_ms": schemaNumber("idle milliseconds", 0, 0xFFFFFF)}), 32)
	default:
		tree[f.Name()] = schemaNumber(f.Doc, f.Min, f.Max)
	}
}

func namespaceSchema() map[string]any {
	return object("one namespace, or several alike; one of size, op, idema and max", map[string]any{
		"size": schemaText("capacity with its unit: 6.4TB, 5TiB, 1000blocks, 50%, max, factory"), "idema": schemaText("marketing capacity: 7680GB"),
		"op": schemaText("over-provisioning in percent"), "op_of": schemaWord("what op is a share of", "user", "total"),
		"max": map[string]any{"const": true, "description": "all that is left"}, "exact": schemaBoolean("take size literally"),
		"count": schemaNumber("how many; max and op are divided among them", 1, specMaxNamespaces),
		"lba":   object("LBA format", map[string]any{"data": schemaText("bytes of data"), "metadata": schemaText("bytes of metadata")}),
		"protection": object("end-to-end protection", map[string]any{"type": schemaNumber("0 for none, 1 to 3", 0, 3),
			"first": schemaBoolean("first bytes of the metadata")}),
		"shared":      schemaBoolean("may be attached to more than one controller"),
		"controllers": schemaList("exactly those it is attached to, by CNTLID", schemaNumber("CNTLID", 0, 0xFFFF), 2047),
	})
}
