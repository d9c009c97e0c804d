package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace"
	"nvop/nvmeioctl/sim"
)

type simCmd struct {
	Profiles simProfilesCmd `cmd:"" help:"List the drive models that can be simulated."`
	Create   simCreateCmd   `cmd:"" help:"Make a simulated drive in a file."`
	Image    simImageCmd    `cmd:"" help:"Make a firmware image that simulated drives accept."`
	Serve    simServeCmd    `cmd:"" help:"Serve a simulated drive to Linux hosts over NVMe/TCP."`
	Fault    simFaultCmd    `cmd:"" help:"Make a simulated drive misbehave, or show what is wrong with it."`
	Faults   simFaultsCmd   `cmd:"" help:"List what a simulated drive can be made to suffer."`
	Edit     simEditCmd     `cmd:"" help:"Change what a simulated drive has stored, as silent corruption does."`
}

type simProfilesCmd struct{}

func (simProfilesCmd) Help() string { return "Example: nvop sim profiles -o json" }

type profileResult struct {
	Schema        string `json:"schema"`
	Name          string `json:"name"`
	Summary       string `json:"summary"`
	Model         string `json:"model"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	MaxNamespaces uint32 `json:"max_namespaces"`
	RatedCycles   uint32 `json:"rated_cycles"`
}

// profilesResult is a plain array: each element carries the schema.
type profilesResult []profileResult

func (r profilesResult) Text(p *render.Page) {
	var rows [][]string
	for _, x := range r {
		rows = append(rows, []string{x.Name, x.Model, render.Size(x.CapacityBytes), fmt.Sprint(x.MaxNamespaces), render.Count(x.RatedCycles), x.Summary})
	}
	p.Grid([]string{"profile", "model", ">capacity", ">namespaces", ">rated cycles", "what it is"}, rows)
}

func (simProfilesCmd) Run(a *app) error {
	r := profilesResult{}
	for _, x := range sim.Profiles() {
		r = append(r, profileResult{
			Schema: "nvop.sim-profile/1", Name: x.Name, Summary: x.Summary, Model: x.Model,
			CapacityBytes: x.CapacityBytes, MaxNamespaces: x.MaxNamespaces, RatedCycles: x.Flash.RatedCycles,
		})
	}
	return a.print(r)
}

type simCreateCmd struct {
	File        string `arg:"" help:"The file to make; it must not exist." placeholder:"FILE"`
	Profile     string `default:"pblaze7-7940-7.68tb" help:"The drive model; nvop sim profiles lists them." placeholder:"NAME"`
	Serial      string `help:"Serial number (default: made from the profile and the seed)." placeholder:"SERIAL"`
	Seed        uint64 `default:"1" help:"Two drives of one profile and seed behave alike." placeholder:"N"`
	Controllers int    `default:"1" help:"How many controllers the drive has, 1 to 8." placeholder:"N"`
	Contents    string `default:"" enum:",none,sparse,blocks" help:"Keep what is written: none, sparse (all of it), or blocks (of a soak's blocks only what cannot be made again). Default: sparse once it is served, else none." placeholder:"MODE"`
	Scale       uint32 `help:"How many mapping units one unit of the flash map stands for (default: about a million units in the map)." placeholder:"N"`
}

func (simCreateCmd) Help() string {
	return "Example: nvop sim create drive.nvop --profile pblaze7-7940-7.68tb"
}

type simCreateResult struct {
	Schema     string                `json:"schema"`
	Address    string                `json:"address"`
	Profile    string                `json:"profile"`
	Serial     string                `json:"serial"`
	Contents   string                `json:"contents,omitempty"`
	Namespaces []namespace.Namespace `json:"namespaces"`
}

func (r simCreateResult) Text(p *render.Page) {
	p.Line("created %s (%s), serial number %s", r.Address, r.Profile, r.Serial)
	p.Grid(namespaceHeader(), namespaceRows(r.Namespaces))
}

func (c simCreateCmd) Run(ctx context.Context, a *app) (err error) {
	profile, ok := sim.LookupProfile(c.Profile)
	if !ok {
		return usagef("--profile %s: no profile of that name (nvop sim profiles lists them)", c.Profile)
	}
	contents, err := sim.ParseContentsMode(c.Contents)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	path := strings.TrimPrefix(c.File, "sim:")
	if err := sim.Create(path, profile, sim.Options{Serial: c.Serial, Seed: c.Seed, Scale: c.Scale, Controllers: c.Controllers, Contents: contents}); err != nil {
		return err
	}
	d, err := a.open("sim:" + path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	inv, err := d.inventory(ctx)
	if err != nil {
		return err
	}
	return a.print(simCreateResult{
		Schema: "nvop.sim-create/1", Address: d.address, Profile: profile.Name, Serial: inv.Identity.Serial, Contents: c.Contents, Namespaces: inv.Namespaces,
	})
}
