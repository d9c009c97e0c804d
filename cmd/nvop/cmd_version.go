package main

import (
	"runtime"
	"runtime/debug"

	"nvop/cmd/nvop/internal/render"
)

// version is the release this source belongs to.
const version = "0.1.0"

type versionCmd struct{}

func (versionCmd) Help() string { return "Example: nvop version -o json" }

type versionResult struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (r versionResult) Text(p *render.Page) {
	p.Line("nvop %s", r.Version)
	p.Pairs("revision", r.Revision, "go", r.Go, "platform", r.Platform)
}

func (versionCmd) Run(a *app) error {
	r := versionResult{
		Schema: "nvop.version/1", Version: version,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				r.Revision = s.Value
			}
		}
	}
	return a.print(r)
}
