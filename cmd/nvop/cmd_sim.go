package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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

type simProfilesCmd struct {
	Name string `arg:"" optional:"" help:"One model, with its flash; else all are listed." placeholder:"NAME"`
}

func (simProfilesCmd) Help() string {
	return `Published, inferred and chosen figures of each model are told apart in the program's source.

Example:
  nvop sim profiles
  nvop sim profiles pblaze7-7940-7.68tb -o json`
}

type profileResult struct {
	Schema        string `json:"schema"`
	Name          string `json:"name"`
	Summary       string `json:"summary"`
	Model         string `json:"model"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	MaxNamespaces uint32 `json:"max_namespaces"`
	RatedCycles   uint32 `json:"rated_cycles"`
	// Flash is how it is built.
	Flash flashResult `json:"flash"`
}

// flashResult is a model's flash: its layout, and what follows from it.
type flashResult struct {
	Dies           uint64 `json:"dies"`
	PlanesPerDie   uint64 `json:"planes_per_die"`
	BlocksPerPlane uint64 `json:"blocks_per_plane"`
	PagesPerBlock  uint64 `json:"pages_per_block"`
	PageBytes      uint64 `json:"page_bytes"`
	ParityDies     uint64 `json:"parity_dies"`
	// ExtraBlocksPercent is of the blocks of the nominal capacity.
	ExtraBlocksPercent float64 `json:"extra_blocks_percent"`
	MappingUnitBytes   uint64  `json:"mapping_unit_bytes"`
	Superblocks        uint64  `json:"superblocks"`
	SuperblockBytes    uint64  `json:"superblock_bytes"`
	// NominalBytes is what the dies are sold with, UsableBytes what garbage
	// collection works in, SequentialWAF what parity and metadata cost.
	NominalBytes  uint64  `json:"nominal_bytes"`
	UsableBytes   uint64  `json:"usable_bytes"`
	SequentialWAF float64 `json:"sequential_waf"`
	// BufferBytes is the write buffer, SLCBytes the SLC cache; 0 is none.
	BufferBytes uint64 `json:"write_buffer_bytes"`
	SLCBytes    uint64 `json:"slc_cache_bytes"`
	// Separates says that hot and cold data are kept apart.
	Separates bool `json:"separates_hot_and_cold"`
}

func newFlashResult(p *sim.Profile) flashResult {
	l := p.Flash.Layout
	return flashResult{
		Dies: l.Dies, PlanesPerDie: l.PlanesPerDie, BlocksPerPlane: l.BlocksPerPlane, PagesPerBlock: l.PagesPerBlock, PageBytes: l.PageBytes,
		ParityDies: l.ParityDies, ExtraBlocksPercent: 100 * l.ExtraBlocks, MappingUnitBytes: l.UnitBytes,
		Superblocks: l.Superblocks(), SuperblockBytes: l.SuperblockBytes(),
		NominalBytes: p.Flash.NominalBytes, UsableBytes: p.Flash.UsableBytes, SequentialWAF: p.Flash.FloorWAF,
		BufferBytes: p.Flash.BufferBytes, SLCBytes: p.SLCBytes(), Separates: p.Flash.Separates,
	}
}

// Text is the page of one model.
func (r profileResult) Text(p *render.Page) {
	f := r.Flash
	none := func(text string, n uint64) string {
		if n == 0 {
			return "none"
		}
		return text
	}
	apart := "no"
	if f.Separates {
		apart = "yes"
	}
	p.Line("%s: %s", r.Name, r.Summary)
	p.Pairs("model", r.Model, "capacity", render.Size(r.CapacityBytes), "namespaces", render.Count(r.MaxNamespaces), "rated cycles", render.Count(r.RatedCycles),
		"flash", fmt.Sprintf("%s nominal: %d dies of %d planes of %d blocks of %d pages of %s", render.Size(f.NominalBytes), f.Dies, f.PlanesPerDie, f.BlocksPerPlane, f.PagesPerBlock, render.Size(f.PageBytes)),
		"extra blocks", fmt.Sprintf("%.1f %%", f.ExtraBlocksPercent), "parity", none(fmt.Sprintf("%d of the %d dies of a superblock", f.ParityDies, f.Dies), f.ParityDies),
		"superblocks", fmt.Sprintf("%s of %s", render.Count(f.Superblocks), render.Size(f.SuperblockBytes)),
		"usable flash", fmt.Sprintf("%s, %.3f of nominal", render.Size(f.UsableBytes), float64(f.UsableBytes)/float64(f.NominalBytes)),
		"mapping unit", render.Size(f.MappingUnitBytes), "sequential WAF", fmt.Sprintf("%.3f", f.SequentialWAF),
		"write buffer", none(render.Size(f.BufferBytes), f.BufferBytes), "SLC cache", none(render.Size(f.SLCBytes), f.SLCBytes), "hot and cold apart", apart)
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

func (c simProfilesCmd) Run(a *app) error {
	one := func(x *sim.Profile) profileResult {
		return profileResult{
			Schema: "nvop.sim-profile/1", Name: x.Name, Summary: x.Summary, Model: x.Model,
			CapacityBytes: x.CapacityBytes, MaxNamespaces: x.MaxNamespaces, RatedCycles: x.Flash.RatedCycles, Flash: newFlashResult(x),
		}
	}
	if c.Name != "" {
		x, ok := sim.LookupProfile(c.Name)
		if !ok {
			return usagef("no profile %q (nvop sim profiles lists them)", c.Name)
		}
		return a.print(one(&x))
	}
	r := profilesResult{}
	for _, x := range sim.Profiles() {
		r = append(r, one(&x))
	}
	return a.print(r)
}

type simCreateCmd struct {
	File        string `arg:"" help:"The file to make; it must not exist." placeholder:"FILE"`
	Profile     string `default:"pblaze7-7940-7.68tb" help:"The drive model; nvop sim profiles lists them." placeholder:"NAME"`
	Serial      string `help:"Serial number (default: made from the profile, the seed and the file's name). The subsystem's NQN follows from it." placeholder:"SERIAL"`
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
	if c.Serial == "" {
		c.Serial = profile.DefaultSerial(c.Seed, filepath.Base(path))
	}
	if err := sim.Create(path, profile, sim.Options{Serial: c.Serial, Seed: c.Seed, Scale: c.Scale, Controllers: c.Controllers, Contents: contents}); err != nil {
		if errors.Is(err, sim.ErrOptions) {
			err = &codedError{exitUsage, err}
		}
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
