package main

import (
	"fmt"

	"nvop/cmd/nvop/internal/render"
	"nvop/namespace/firmware"
	"nvop/nvmeioctl/sim"
)

type simImageCmd struct {
	File      string `arg:"" help:"The file to make; it must not exist." placeholder:"FILE"`
	Profile   string `default:"pblaze7-7940-7.68tb" help:"The drive model the image is for." placeholder:"NAME"`
	Revision  string `required:"" help:"The revision it brings, 1 to 8 characters." placeholder:"REV"`
	Bytes     int    `default:"1048576" help:"Its length, a multiple of 4." placeholder:"N"`
	Defective bool   `help:"Make one that is accepted and staged, and does not start."`
}

func (simImageCmd) Help() string {
	return "Makes a firmware image that simulated drives accept, to rehearse an update.\n\nExample: nvop sim image new.bin --revision 0B200200"
}

type simImageResult struct {
	Schema   string `json:"schema"`
	Profile  string `json:"profile"`
	Revision string `json:"revision"`
	firmware.Image
}

func (r simImageResult) Text(p *render.Page) {
	p.Line("made %s: revision %s for %s, %d bytes, sha256 %s", r.Path, r.Revision, r.Profile, r.SizeBytes, r.SHA256)
}

func (c simImageCmd) Run(a *app) error {
	profile, ok := sim.LookupProfile(c.Profile)
	if !ok {
		return fmt.Errorf("no profile is called %s (nvop sim profiles lists them)", c.Profile)
	}
	build := sim.FirmwareImage
	if c.Defective {
		build = sim.DefectiveFirmwareImage
	}
	b, err := build(profile, c.Revision, c.Bytes)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	if err := saveNew(c.File, 0o644, b); err != nil {
		return err
	}
	image, err := firmware.LoadImage(c.File)
	if err != nil {
		return err
	}
	return a.print(simImageResult{Schema: "nvop.sim-image/1", Profile: c.Profile, Revision: c.Revision, Image: image})
}
