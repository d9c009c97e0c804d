package admin_test

import (
	"bytes"
	"errors"
	"testing"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

func TestIOCommands_dwords(t *testing.T) {
	f := nvmespec.IOFields{StartLBA: 0x1_0000_0002, Blocks: 8, FUA: true}
	dsm := []byte{0, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0}
	source := make([]byte, 32)
	source[8], source[16] = 5, 7
	for name, c := range map[string]struct {
		build func() (*nvmeioctl.Command, error)
		want  nvmeioctl.Command
	}{
		"write zeroes": {func() (*nvmeioctl.Command, error) {
			z := f
			z.Deallocate = true
			return admin.WriteZeroesCommand(3, z)
		}, nvmeioctl.Command{Opcode: 0x08, CDW10: 2, CDW11: 1, CDW12: 7 | 1<<25 | 1<<30}},
		"write uncorrectable": {func() (*nvmeioctl.Command, error) { return admin.WriteUncorrectableCommand(3, f) }, nvmeioctl.Command{Opcode: 0x04, CDW10: 2, CDW11: 1, CDW12: 7 | 1<<30}},
		"verify":              {func() (*nvmeioctl.Command, error) { return admin.VerifyCommand(3, f) }, nvmeioctl.Command{Opcode: 0x0C, CDW10: 2, CDW11: 1, CDW12: 7 | 1<<30}},
		"compare":             {func() (*nvmeioctl.Command, error) { return admin.CompareCommand(3, f, dsm) }, nvmeioctl.Command{Opcode: 0x05, CDW10: 2, CDW11: 1, CDW12: 7 | 1<<30, Data: dsm}},
		"deallocate": {func() (*nvmeioctl.Command, error) {
			return admin.DeallocateCommand(3, []nvmespec.DatasetRange{{Blocks: 4, StartLBA: 9}})
		}, nvmeioctl.Command{Opcode: 0x09, CDW11: 4, Data: dsm}},
		"copy": {func() (*nvmeioctl.Command, error) {
			return admin.CopyCommand(3, nvmespec.CopyFields{Destination: 6}, []nvmespec.CopyRange{{StartLBA: 5, Blocks: 8}})
		}, nvmeioctl.Command{Opcode: 0x19, CDW10: 6, Data: source}},
	} {
		got, err := c.build()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w := c.want
		if !got.IO || got.NSID != 3 || got.Opcode != w.Opcode || got.CDW10 != w.CDW10 || got.CDW11 != w.CDW11 || got.CDW12 != w.CDW12 ||
			!bytes.Equal(got.Data, w.Data) || got.Timeout != admin.IOTimeout {
			t.Errorf("%s: %+v, want %+v", name, got, w)
		}
	}
	if _, err := admin.CompareCommand(3, f, nil); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("compare with nothing: %v", err)
	}
	if _, err := admin.DeallocateCommand(0xFFFFFFFF, make([]nvmespec.DatasetRange, 1)); err == nil {
		t.Error("deallocate of all namespaces")
	}
	if _, err := admin.CopyCommand(3, nvmespec.CopyFields{}, nil); !errors.Is(err, nvmespec.ErrInvalidData) {
		t.Errorf("copy of nothing: %v", err)
	}
}
