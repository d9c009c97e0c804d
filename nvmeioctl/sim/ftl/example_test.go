package ftl_test

import (
	"fmt"
	"math/rand/v2"

	"nvop/nvmeioctl/sim/ftl"
)

// What a fifth of spare area costs: fill a drive, overwrite it at random until
// it has settled, and compare what was programmed with what was written.
func Example() {
	geometry, err := ftl.FitGeometry(140_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	pages := uint32(geometry.EffectivePages() / 1.2)
	f, err := ftl.New(ftl.Config{LogicalPages: pages, Geometry: geometry, RatedCycles: 7000, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	f.WriteRun(0, pages)
	rng := rand.New(rand.NewPCG(1, 2))
	var before ftl.Counters
	for i := range 4 * pages {
		if i == 2*pages {
			before = f.Counters()
		}
		f.Write(rng.Uint32N(pages))
	}
	after := f.Counters()
	waf := float64(after.Programs()-before.Programs()) / float64(after.HostPages-before.HostPages)
	fmt.Printf("measured %.1f, formula %.1f\n", waf, ftl.UniformWAF(1.2))
	// Output: measured 3.2, formula 3.2
}
