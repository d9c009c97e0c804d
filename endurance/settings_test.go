package endurance

import (
	"strings"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/sim"
)

// Case E5: a sample carries the settings that a run's numbers depend on: the LBA format,
// the power state and the vendor's own limit, which is not the power state
// (PWR-11).
func TestAdminSampler_settings(t *testing.T) {
	p, ok := sim.LookupProfile("pblaze7-7940-7.68tb")
	if !ok {
		t.Fatal("no such profile")
	}
	d, err := sim.New(p, sim.Options{Scale: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := NewAdminSampler(d, 1)
	for _, c := range []struct {
		feature, value uint32
		want           string
	}{
		{2, 0, "power state 0; Memblaze power limit 0"},
		{2, 3, "power state 3; Memblaze power limit 0"},
		{0xC6, 2, "power state 3; Memblaze power limit 2"},
	} {
		set := nvmeioctl.Command{Opcode: 0x09, CDW10: c.feature, CDW11: c.value, Timeout: 1e9}
		if done, err := d.Submit(t.Context(), &set); err != nil || done.Status != 0 {
			t.Fatal(done, err)
		}
		sample, err := s.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(sample.Format, c.want) || !strings.HasPrefix(sample.Format, "512+0, ") {
			t.Errorf("settings %q, want %q", sample.Format, c.want)
		}
	}
}
