package sim_test

import (
	"path/filepath"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmetest"
	"nvop/nvmeioctl/sim"
)

// testOptions make a map that is cheap to build.
func testOptions(p sim.Profile) sim.Options {
	return sim.Options{Scale: uint32(p.CapacityBytes / uint64(p.Flash.IndirectionBytes) / (1 << 17))}
}

// TestConformance runs the suite on every model, in memory.
func TestConformance(t *testing.T) {
	for _, p := range sim.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
				d, err := sim.New(p, testOptions(p))
				if err != nil {
					t.Fatal(err)
				}
				return d
			}, nvmetest.Options{})
		})
	}
}

// TestConformance_file runs it on one drive in a file, opened afresh each
// time, so that nothing depends on what only memory holds.
func TestConformance_file(t *testing.T) {
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		t.Fatal("the profile is missing")
	}
	path := filepath.Join(t.TempDir(), "drive.nvop")
	if err := sim.Create(path, p, testOptions(p)); err != nil {
		t.Fatal(err)
	}
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
		d, err := sim.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}, nvmetest.Options{})
}

// TestConformance_second runs it through the second controller of a subsystem.
func TestConformance_second(t *testing.T) {
	p, ok := sim.LookupProfile("pe321-6.4tb")
	if !ok {
		t.Fatal("the profile is missing")
	}
	nvmetest.TestDevice(t, func(t *testing.T) nvmeioctl.Device {
		o := testOptions(p)
		o.Controllers = 2
		d, err := sim.New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		c, err := d.OpenController(p.FirstController + 1)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}, nvmetest.Options{})
}
