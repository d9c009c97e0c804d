package main

import (
	"fmt"
	"strings"

	"nvop/cmd/nvop/internal/render"
	"nvop/nvmeioctl"
)

type listCmd struct{}

func (listCmd) Help() string {
	return "Lists what the kernel knows, without a command to any drive; works without root.\n\nExample: nvop list -o json"
}

type listResult struct {
	Schema      string                 `json:"schema"`
	Controllers []nvmeioctl.Controller `json:"controllers"`
	Namespaces  []nvmeioctl.Namespace  `json:"namespaces"`
	Subsystems  []nvmeioctl.Subsystem  `json:"subsystems"`
	Problems    []string               `json:"problems,omitempty"`
}

func (r listResult) Text(p *render.Page) {
	if len(r.Controllers) == 0 {
		p.Line("no NVMe controller on this host; nvop sim profiles lists drives to simulate")
	} else {
		var rows [][]string
		for _, c := range r.Controllers {
			place := c.PCIAddress
			if place == "" {
				place = c.Address
			}
			rows = append(rows, []string{c.Node, c.Serial, c.Model, c.Firmware, fmt.Sprint(c.CNTLID), c.Transport, place, c.State, c.Subsystem})
		}
		p.Grid([]string{"controller", "serial", "model", "firmware", ">cntlid", "transport", "at", "state", "subsystem"}, rows)
	}
	if len(r.Namespaces) > 0 {
		p.Title("namespaces with a node")
		var rows [][]string
		for _, ns := range r.Namespaces {
			rows = append(rows, []string{ns.Node, ns.GenericNode, fmt.Sprint(ns.NSID), render.Size(ns.SizeBytes), fmt.Sprint(ns.LogicalBlockBytes), strings.Join(ns.Controllers, ", ")})
		}
		p.Grid([]string{"node", "generic", ">nsid", ">size", ">lba", "paths"}, rows)
	}
	for _, problem := range r.Problems {
		p.Line("  not read: %s", problem)
	}
}

func (listCmd) Run(a *app) error {
	inv, err := nvmeioctl.Host{}.Discover()
	if err != nil {
		return err
	}
	r := listResult{
		Schema: "nvop.list/1", Controllers: nonNil(inv.Controllers), Namespaces: nonNil(inv.Namespaces), Subsystems: nonNil(inv.Subsystems),
	}
	for _, problem := range inv.Problems {
		r.Problems = append(r.Problems, problem.Error())
	}
	return a.print(r)
}

// nonNil makes an absent list an empty one, which JSON shows as [].
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
