package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"nvop/nvmeioctl"
	"nvop/nvmeioctl/admin"
	"nvop/nvmeioctl/nvmespec"
)

// changeCase is one function that changes the drive.
type changeCase struct {
	name string
	nsid uint32
	step step
	call func(ctx context.Context, dev nvmeioctl.Device) error
}

func changeCases() []changeCase {
	const minute = time.Minute
	create := page(map[int][]byte{0: le64(15_002_931_888), 8: le64(15_002_931_888), 26: {1}, 30: {1}})
	spec := nvmespec.NamespaceCreate{SizeBlocks: 15_002_931_888, CapacityBlocks: 15_002_931_888, FormatIndex: 1, Shared: true}
	ctrls := page(map[int][]byte{0: le16(2), 2: le16(0x21), 4: le16(0x41)})
	return []changeCase{
		{"create namespace", 0, step{op: 0x0D, timeout: 30 * minute, out: create, result: 5},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				nsid, err := admin.CreateNamespace(ctx, dev, spec, 0)
				if err == nil && nsid != 5 {
					return errors.New("wrong NSID")
				}
				return err
			}},
		{"delete namespace", 5, step{op: 0x0D, nsid: 5, cdw10: 1, timeout: 30 * minute},
			func(ctx context.Context, dev nvmeioctl.Device) error { return admin.DeleteNamespace(ctx, dev, 5, 0) }},
		{"attach namespace", 5, step{op: 0x15, nsid: 5, timeout: 5 * minute, out: ctrls},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				return admin.Attach(ctx, dev, 5, []uint16{0x41, 0x21}, 0)
			}},
		{"detach namespace", 5, step{op: 0x15, nsid: 5, cdw10: 1, timeout: 5 * minute, out: ctrls},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				return admin.Detach(ctx, dev, 5, []uint16{0x21, 0x41}, 0)
			}},
		{"format", 1, step{op: 0x80, nsid: 1, cdw10: 1 | 1<<9, timeout: 10 * time.Hour},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				f := nvmespec.FormatFields{FormatIndex: 1, Erase: nvmespec.EraseUserData}
				return admin.Format(ctx, dev, 1, f, admin.FormatTimeout(6_401_252_745_216, f.Erase))
			}},
		{"set feature power-management", 0, step{op: 0x09, cdw10: 0x80000002, cdw11: 3, timeout: minute},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				_, err := admin.SetFeature(ctx, dev, admin.FeatureChange{Feature: nvmespec.FeaturePowerManagement, Save: true, Dword: 3})
				return err
			}},
		{"set feature timestamp", 0, step{op: 0x09, cdw10: 0x0E, timeout: minute, out: le64(1234)},
			func(ctx context.Context, dev nvmeioctl.Device) error {
				_, err := admin.SetFeature(ctx, dev, admin.FeatureChange{Feature: nvmespec.FeatureTimestamp, Data: le64(1234)})
				return err
			}},
	}
}

func TestChanges_exactCommand(t *testing.T) { // NS-09, NS-41, NS-73, NS-74
	for _, c := range changeCases() {
		if err := c.call(t.Context(), newScript(t, c.step)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestChanges_errorStatus(t *testing.T) { // NS-75: each status stays recognisable
	for _, c := range changeCases() {
		for status, sentinel := range map[nvmespec.Status]error{
			0x6115: nvmespec.ErrInsufficientCapacity, 0x4116: nvmespec.ErrNSIDUnavailable, 0x4118: nvmespec.ErrAlreadyAttached,
			0x411A: nvmespec.ErrNamespaceNotAttached, 0x411C: nvmespec.ErrInvalidControllerList, 0x4119: nvmespec.ErrPrivate,
			0x410A: nvmespec.ErrInvalidFormat, 0x4002: nvmespec.ErrInvalidField, 0x410D: nvmespec.ErrNotSaveable,
			0x4001: nvmespec.ErrInvalidOpcode, 0x411B: nvmespec.ErrThinProvisioning,
		} {
			s := c.step
			s.status = status
			err := c.call(t.Context(), newScript(t, s))
			var op *nvmeioctl.OpError
			if !errors.Is(err, sentinel) || !errors.As(err, &op) || op.NSID != c.nsid || op.Op != c.name {
				t.Errorf("%s, %#x: %v", c.name, uint16(status), err)
			}
		}
		s := c.step
		s.err = nvmeioctl.ErrIndeterminate
		if err := c.call(t.Context(), newScript(t, s)); !errors.Is(err, nvmeioctl.ErrIndeterminate) { // FMT-02
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestChanges_notRepeated(t *testing.T) {
	for _, c := range changeCases() {
		s := c.step
		s.status = nvmespec.StatusInternal // retryable by its bits; a change is never sent twice
		if err := c.call(t.Context(), newScript(t, s)); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
}

func TestChanges_refusedBeforeSending(t *testing.T) {
	sound := nvmespec.NamespaceCreate{SizeBlocks: 1, CapacityBlocks: 1}
	for name, call := range map[string]func(dev nvmeioctl.Device) error{
		"create of 0 blocks": func(dev nvmeioctl.Device) error { // NS-08
			_, err := admin.CreateNamespace(t.Context(), dev, nvmespec.NamespaceCreate{}, 0)
			return err
		},
		"create with capacity only": func(dev nvmeioctl.Device) error { // NS-09
			_, err := admin.CreateNamespace(t.Context(), dev, nvmespec.NamespaceCreate{CapacityBlocks: 10}, 0)
			return err
		},
		"thin create": func(dev nvmeioctl.Device) error { // NS-12, NS-67
			_, err := admin.CreateNamespace(t.Context(), dev, nvmespec.NamespaceCreate{SizeBlocks: 100, CapacityBlocks: 10}, 0)
			return err
		},
		"delete all":       func(dev nvmeioctl.Device) error { return admin.DeleteNamespace(t.Context(), dev, all, 0) }, // NS-39
		"delete none":      func(dev nvmeioctl.Device) error { return admin.DeleteNamespace(t.Context(), dev, 0, 0) },
		"attach all":       func(dev nvmeioctl.Device) error { return admin.Attach(t.Context(), dev, all, []uint16{1}, 0) },
		"attach to nobody": func(dev nvmeioctl.Device) error { return admin.Attach(t.Context(), dev, 1, nil, 0) }, // NS-20
		"detach all":       func(dev nvmeioctl.Device) error { return admin.Detach(t.Context(), dev, all, []uint16{1}, 0) },
		"detach nobody":    func(dev nvmeioctl.Device) error { return admin.Detach(t.Context(), dev, 1, nil, 0) },
		"long list": func(dev nvmeioctl.Device) error { // NS-21
			return admin.Attach(t.Context(), dev, 1, make([]uint16, 2048), 0)
		},
		"format nothing": func(dev nvmeioctl.Device) error {
			return admin.Format(t.Context(), dev, 0, nvmespec.FormatFields{}, time.Hour)
		},
		"format without time": func(dev nvmeioctl.Device) error { return admin.Format(t.Context(), dev, 1, nvmespec.FormatFields{}, 0) },
		"format 64": func(dev nvmeioctl.Device) error {
			return admin.Format(t.Context(), dev, 1, nvmespec.FormatFields{FormatIndex: 64}, time.Hour)
		},
		"erase 3": func(dev nvmeioctl.Device) error {
			return admin.Format(t.Context(), dev, 1, nvmespec.FormatFields{Erase: 3}, time.Hour)
		},
		"feature with too little data": func(dev nvmeioctl.Device) error { // PWR-10
			_, err := admin.SetFeature(t.Context(), dev, admin.FeatureChange{Feature: nvmespec.FeatureAPST, Data: make([]byte, 8)})
			return err
		},
		"host memory with data": func(dev nvmeioctl.Device) error { // PWR-10
			_, err := admin.SetFeature(t.Context(), dev, admin.FeatureChange{Feature: nvmespec.FeatureHostMemoryBuffer, Data: make([]byte, 4096)})
			return err
		},
	} {
		err := call(newScript(t)) // a script without steps: nothing may be sent
		var op *nvmeioctl.OpError
		var refused *nvmeioctl.RefusedError
		if !errors.As(err, &op) || !errors.Is(err, nvmespec.ErrInvalidData) && !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := admin.CreateNamespaceCommand(sound, 0); err != nil {
		t.Errorf("sound: %v", err)
	}
}

func TestCreateNamespace_withoutNSID(t *testing.T) {
	for _, result := range []uint64{0, 0xFFFFFFFF} {
		s := step{op: 0x0D, timeout: time.Minute, out: nvmespec.NamespaceCreate{SizeBlocks: 1, CapacityBlocks: 1}.Append(nil), result: result}
		nsid, err := admin.CreateNamespace(t.Context(), newScript(t, s), nvmespec.NamespaceCreate{SizeBlocks: 1, CapacityBlocks: 1}, time.Minute)
		if nsid != 0 || !errors.Is(err, nvmespec.ErrInvalidData) {
			t.Errorf("%#x: %d, %v", result, nsid, err)
		}
	}
}

func TestFormatTimeout(t *testing.T) { // FMT-01, FMT-04
	for _, tc := range []struct {
		bytes uint64
		erase nvmespec.EraseKind
		want  time.Duration
	}{
		{0, nvmespec.EraseNone, time.Hour}, {7_681_501_126_656, nvmespec.EraseNone, time.Hour},
		{7_681_501_126_656, nvmespec.EraseCrypto, time.Hour}, {61_440_000_000_000, nvmespec.EraseNone, 8 * time.Hour},
		{7_681_501_126_656, nvmespec.EraseUserData, 10 * time.Hour}, {61_440_000_000_000, nvmespec.EraseUserData, 20 * time.Hour},
		{^uint64(0), nvmespec.EraseUserData, 1000 * time.Hour},
	} {
		if got := admin.FormatTimeout(tc.bytes, tc.erase); got != tc.want {
			t.Errorf("%d bytes, erase %d: %v, want %v", tc.bytes, tc.erase, got, tc.want)
		}
	}
}

func TestBuilders_callersTimeout(t *testing.T) { // NS-73: the timeout asked for is the one sent
	const mine = 7 * time.Minute
	builds := map[string]func() (*nvmeioctl.Command, error){
		"create": func() (*nvmeioctl.Command, error) {
			return admin.CreateNamespaceCommand(nvmespec.NamespaceCreate{SizeBlocks: 1, CapacityBlocks: 1}, mine)
		},
		"delete": func() (*nvmeioctl.Command, error) { return admin.DeleteNamespaceCommand(1, mine) },
		"attach": func() (*nvmeioctl.Command, error) { return admin.AttachCommand(1, []uint16{1}, mine) },
		"detach": func() (*nvmeioctl.Command, error) { return admin.DetachCommand(1, []uint16{1}, mine) },
		"format": func() (*nvmeioctl.Command, error) { return admin.FormatCommand(1, nvmespec.FormatFields{}, mine) },
	}
	for name, build := range builds {
		if cmd, err := build(); err != nil || cmd.Timeout != mine {
			t.Errorf("%s: %v, %v", name, cmd, err)
		}
	}
}

func TestSetFeature_keepsItsOwnData(t *testing.T) {
	data := le64(1)
	cmd, err := admin.SetFeatureCommand(admin.FeatureChange{Feature: nvmespec.FeatureTimestamp, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 99
	if cmd.Data[0] != 1 {
		t.Error("the command shares the caller's buffer")
	}
	s := newScript(t, step{op: 0x09, cdw10: 0x07, cdw11: 0x001F001F, timeout: time.Minute, result: 0x000F000F})
	got, err := admin.SetFeature(t.Context(), s, admin.FeatureChange{Feature: nvmespec.FeatureQueueCount, Dword: 0x001F001F})
	if err != nil || got != 0x000F000F {
		t.Errorf("granted %#x, %v", got, err)
	}
}

func TestFeatureValue_decode(t *testing.T) {
	v := admin.FeatureValue{Feature: nvmespec.FeatureWriteCache, Dword: 1}
	if got, err := v.Decode(); err != nil || got != any(nvmespec.WriteCache{Enabled: true}) {
		t.Errorf("%#v, %v", got, err)
	}
	v.Select, v.Dword = nvmespec.FeatureCapabilities, 4
	if got, err := v.Decode(); err != nil || got != any(nvmespec.FeatureCaps{Changeable: true}) {
		t.Errorf("%#v, %v", got, err)
	}
}
