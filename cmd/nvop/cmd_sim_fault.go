package main

import (
	"context"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl/fault"
)

type simFaultCmd struct {
	File   string   `arg:"" help:"The drive's file. It may be one that is being served." placeholder:"FILE"`
	Script []string `arg:"" optional:"" help:"What is to happen, and when, or @FILE with a script; without it, show what is armed and what is wrong. nvop sim faults lists what there is." placeholder:"EXPR"`
	Disarm bool     `help:"Forget first what waits for its time. What has happened stays: see the fault \"heal\"."`
}

func (simFaultCmd) Help() string {
	return "Makes a simulated drive misbehave, now or when a rule says so. Rules and what lasts are kept in the drive's file.\n\n" +
		"Example:\n" +
		"  nvop sim fault drive.nvop \"after 1000th write power-cut\"\n" +
		"  nvop sim fault drive.nvop \"at 10GB spare 4% over 1h; media-error read nsid 1 lba 100-199\"\n" +
		"  nvop sim fault drive.nvop heal"
}

type simFaultResult struct {
	Schema  string `json:"schema"`
	Address string `json:"address"`
	// Served says that another process has the drive and carried it out.
	Served bool     `json:"served"`
	Armed  []string `json:"armed"`
	Wrong  []string `json:"wrong"`
}

func (r simFaultResult) Text(p *render.Page) {
	var rows [][]string
	for _, x := range r.Wrong {
		rows = append(rows, []string{"now", x})
	}
	for _, x := range r.Armed {
		rows = append(rows, []string{"armed", x})
	}
	if len(rows) == 0 {
		p.Line("%s: nothing is wrong and nothing is armed", r.Address)
		return
	}
	p.Grid([]string{"state", "fault"}, rows)
}

func (c simFaultCmd) Run(ctx context.Context, a *app) error {
	var actions []simAction
	if c.Disarm {
		actions = append(actions, simAction{Do: "disarm"})
	}
	if len(c.Script) > 0 {
		script, err := readScript(strings.Join(c.Script, " "))
		if err != nil {
			return err
		}
		if _, err := parseScript(script); err != nil {
			return err
		}
		actions = append(actions, simAction{Do: "arm", Script: script})
	}
	if len(actions) == 0 {
		actions = []simAction{{Do: "list"}}
	}
	result := simFaultResult{Schema: "nvop.sim-fault/1", Address: "sim:" + strings.TrimPrefix(c.File, "sim:")}
	for _, act := range actions {
		r, served, err := a.act(ctx, c.File, act)
		if err != nil {
			return err
		}
		result.Served = served
		result.Armed, result.Wrong = append([]string{}, r.Armed...), append([]string{}, r.Wrong...)
	}
	return a.print(result)
}

// readScript reads a script from a file where it begins with "@".
func readScript(script string) (string, error) {
	path, ok := strings.CutPrefix(script, "@")
	if !ok {
		return script, nil
	}
	b, err := readInput(path)
	return string(b), err
}

// parseScript makes what is wrong with a script a usage error.
func parseScript(script string) (fault.Plan, error) {
	plan, err := fault.Parse(script)
	if err != nil {
		return plan, &codedError{exitUsage, err}
	}
	return plan, nil
}

type simFaultsCmd struct{}

func (simFaultsCmd) Help() string {
	return "Each is one rule of a script; rules are separated by \";\" or newlines.\n\nExample: nvop sim faults"
}

type simFaultsRow struct {
	Schema string `json:"schema"`
	Rule   string `json:"rule"`
	Effect string `json:"effect"`
}

// simFaultsResult is a plain array: each element carries the schema.
type simFaultsResult []simFaultsRow

func (r simFaultsResult) Text(p *render.Page) {
	var rows [][]string
	for _, x := range r {
		rows = append(rows, []string{x.Rule, x.Effect})
	}
	p.Grid([]string{"for example", "what happens"}, rows)
}

func (simFaultsCmd) Run(a *app) error {
	r := simFaultsResult{}
	for _, h := range fault.Help() {
		r = append(r, simFaultsRow{Schema: "nvop.sim-faults/1", Rule: h[0], Effect: h[1]})
	}
	return a.print(r)
}
