package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/namespace/audit"
)

type specCmd struct {
	Init   specInitCmd   `cmd:"" help:"Write the spec that a drive has now."`
	Check  specCheckCmd  `cmd:"" help:"Check a spec without a drive."`
	Schema specSchemaCmd `cmd:"" help:"Print the JSON schema of the spec, for editors."`
}

// readSpecs reads a spec file.
func readSpecs(path string) ([]namespace.Spec, error) {
	text, err := readInput(path)
	if err != nil {
		return nil, err
	}
	return namespace.ParseSpecs(path, text)
}

type specInitCmd struct {
	driveArg
	Out string `help:"Write it to this file instead; an existing file is not overwritten." placeholder:"FILE"`
	traceFlag
}

func (specInitCmd) Help() string {
	return "An audit by what it writes finds nothing, and a plan from it is empty.\n\nExample: nvop spec init /dev/nvme0 --out nvme0.yaml"
}

type specInitResult struct {
	Schema  string              `json:"schema"`
	Address string              `json:"address"`
	Serial  string              `json:"serial"`
	File    string              `json:"file,omitempty"`
	Spec    string              `json:"spec"`
	Skipped []namespace.Problem `json:"not_read,omitempty"`
}

func (r specInitResult) Text(p *render.Page) {
	if r.File != "" {
		p.Line("wrote %s", r.File)
		return
	}
	p.Line("%s", strings.TrimRight(r.Spec, "\n"))
}

func (c specInitCmd) Run(ctx context.Context, a *app) (err error) {
	d, err := a.open(c.Drive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := a.dress(d, c.traceFlag); err != nil {
		return err
	}
	inv, err := d.inventoryWith(ctx, namespace.AllFeatures())
	if err != nil {
		return err
	}
	path, _ := d.pciePath()
	r := specInitResult{Schema: "nvop.spec-init/1", Address: c.Drive, Serial: inv.Identity.Serial, File: c.Out,
		Spec: namespace.WriteSpec(inv, audit.PCIeOf(path)), Skipped: inv.Problems}
	for _, p := range inv.Problems {
		a.note("not read, and not in the spec: %s: %s", p.What, p.Error)
	}
	if err := saveNew(c.Out, 0o644, []byte(r.Spec)); err != nil {
		return err
	}
	return a.print(r)
}

type specCheckCmd struct {
	File string `arg:"" help:"The spec, a YAML file." placeholder:"FILE"`
}

func (specCheckCmd) Help() string {
	return "Errors name file, line, column and field (exit code 80). What is allowed and probably not meant is a finding (exit code 3).\n\nExample: nvop spec check fleet.yaml"
}

type specCheckResult struct {
	Schema   string          `json:"schema"`
	File     string          `json:"file"`
	Rules    int             `json:"rules"`
	Findings []audit.Finding `json:"findings"`
}

func (r specCheckResult) Text(p *render.Page) {
	for _, f := range r.Findings {
		p.Line("%s: %s: %s", f.Where, f.Field, f.Found)
	}
	p.Line("%s: %s, %s", r.File, plural(r.Rules, "rule"), plural(len(r.Findings), "finding"))
}

func (c specCheckCmd) Run(a *app) error {
	specs, err := readSpecs(c.File)
	if err != nil {
		return err
	}
	r := specCheckResult{Schema: "nvop.spec-check/1", File: c.File, Rules: len(specs), Findings: audit.Lint(specs)}
	for _, s := range specs {
		if f := s.Firmware; f != nil && f.Image != "" {
			if err := checkImage(s); err != nil {
				r.Findings = append(r.Findings, audit.Finding{Severity: audit.Drift, Field: "firmware.image", Where: s.Where("firmware.image"), Found: err.Error()})
			}
		}
	}
	if err := a.print(r); err != nil {
		return err
	}
	if len(r.Findings) > 0 {
		return reported{&codedError{exitFindings, fmt.Errorf("%s: %s", c.File, plural(len(r.Findings), "finding"))}}
	}
	return nil
}

type specSchemaCmd struct{}

func (specSchemaCmd) Help() string {
	return "Example:\n  nvop spec schema > nvop-spec.schema.json\nand in the spec:\n  # yaml-language-server: $schema=nvop-spec.schema.json"
}

// schemaResult is the schema itself, in both views.
type schemaResult struct{ schema map[string]any }

// MarshalJSON implements json.Marshaler.
func (r schemaResult) MarshalJSON() ([]byte, error) { return json.Marshal(r.schema) }

func (r schemaResult) Text(p *render.Page) {
	b, err := json.MarshalIndent(r.schema, "", "  ")
	if err != nil {
		p.Line("%v", err)
		return
	}
	p.Line("%s", b)
}

func (specSchemaCmd) Run(a *app) error { return a.print(schemaResult{namespace.SpecSchema()}) }
