package namespace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nvop/namespace"
	"nvop/nvmeioctl"
	"nvop/nvmeioctl/nvmespec"
	"nvop/nvmeioctl/sim"
)

var update = flag.Bool("update", false, "write the golden files anew")

// drive is an inventory to plan from: a 7.68 TB drive with one namespace.
func drive() namespace.Inventory {
	formats := []namespace.LBAFormat{
		{Index: 0, DataBytes: 512, RelativePerformance: 2}, {Index: 1, DataBytes: 4096},
		{Index: 2, DataBytes: 512, MetadataBytes: 8, RelativePerformance: 2}, {Index: 3, DataBytes: 4096, MetadataBytes: 8},
		{Index: 4, DataBytes: 4096, MetadataBytes: 64},
	}
	return namespace.Inventory{
		Address:   "/dev/nvme0",
		Identity:  nvmeioctl.Identity{SubsystemNQN: "nqn.2014-08.org.example:1", Serial: "S1", Model: "M1", CNTLID: 0x21},
		Transport: "pcie",
		Controller: namespace.Controller{
			NamespaceManagement: true, FormatNVM: true, CryptographicErase: true, MaxNSID: 128, MaxNamespaces: 128, TotalBytes: 7_681_501_126_656,
		},
		Formats: formats,
		Namespaces: []namespace.Namespace{{
			NSID: 1, SizeBlocks: 15_002_931_888, CapacityBlocks: 15_002_931_888, Format: formats[0],
			NGUID: "01000000000000008c15530000000001", AllocatedBytes: 7_681_501_126_656, Controllers: []uint16{0x21},
		}},
		Health: &namespace.Health{SparePercent: 100, SpareThresholdPercent: 10},
	}
}

// two is the same drive with two namespaces and some room.
func two() namespace.Inventory {
	inv := drive()
	half := inv.Namespaces[0]
	half.SizeBlocks, half.CapacityBlocks, half.AllocatedBytes = 1<<31, 1<<31, 1<<40
	other := half
	other.NSID, other.NGUID, other.Format, other.FLBAS = 7, "", inv.Formats[1], 1
	other.SizeBlocks, other.CapacityBlocks = 1<<28, 1<<28
	inv.Namespaces = []namespace.Namespace{half, other}
	inv.Controller.UnallocatedBytes = inv.Controller.TotalBytes - 2<<40
	return inv
}

func sizeOf(text string) namespace.Size {
	s, err := namespace.ParseSize(text, false)
	if err != nil {
		panic(err)
	}
	return s
}

func TestPlan_golden(t *testing.T) {
	fourK := namespace.FormatSelector{DataBytes: 4096}
	for name, plan := range map[string]func() (namespace.Plan, error){
		"opset": func() (namespace.Plan, error) {
			return namespace.PlanOPSet(drive(), namespace.OPTarget{Size: sizeOf("6.4TB"), Title: "op set --size 6.4TB"}, namespace.Options{})
		},
		"opset_one_of_two": func() (namespace.Plan, error) {
			return namespace.PlanOPSet(two(), namespace.OPTarget{NSID: 7, Size: sizeOf("500GB"), Format: &fourK, Title: "op set --nsid 7"}, namespace.Options{StepDownMax: -1})
		},
		"format": func() (namespace.Plan, error) {
			return namespace.PlanFormat(drive(), namespace.FormatTarget{Format: &fourK, Erase: namespace.EraseCrypto, Title: "format"}, namespace.Options{})
		},
		"already": func() (namespace.Plan, error) {
			return namespace.PlanOPSet(drive(), namespace.OPTarget{Size: sizeOf("max"), Title: "op set --size max"}, namespace.Options{})
		},
	} {
		p, err := plan()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := p.Text()
		p.Inventory = namespace.Inventory{} // what was planned from is above
		var out bytes.Buffer
		out.WriteString(text + "\n")
		enc := json.NewEncoder(&out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".golden", out.Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// Preflights: what is refused, why, and with which exit code. Nothing here ever
// reaches a drive, since planning has none.
func TestPlan_refusals(t *testing.T) {
	set := func(change func(*namespace.Inventory), target namespace.OPTarget) func() error {
		return func() error {
			inv := drive()
			change(&inv)
			if target.Size.Kind == 0 {
				target.Size = sizeOf("6.4TB")
			}
			_, err := namespace.PlanOPSet(inv, target, namespace.Options{})
			return err
		}
	}
	shared, fourK := true, &namespace.FormatSelector{DataBytes: 4096}
	none := func(*namespace.Inventory) {}
	for name, c := range map[string]struct {
		do     func() error
		exit   int
		reason string
	}{
		"no namespace management": {set(func(i *namespace.Inventory) { i.Controller.NamespaceManagement = false }, namespace.OPTarget{}), 5, "no namespace management"},
		"fabrics":                 {set(func(i *namespace.Inventory) { i.Transport = "tcp" }, namespace.OPTarget{}), 4, `over "tcp"`},
		"transport unknown":       {set(func(i *namespace.Inventory) { i.Transport = "" }, namespace.OPTarget{}), 4, "another host"},
		"sanitize":                {set(func(i *namespace.Inventory) { i.Controller.SanitizeInProgress = true }, namespace.OPTarget{}), 4, "sanitize"},
		"format in progress":      {set(func(i *namespace.Inventory) { i.Namespaces[0].FormatPercentLeft = 30 }, namespace.OPTarget{}), 4, "30 % remain"},
		"critical warning":        {set(func(i *namespace.Inventory) { i.Health.CriticalWarning = 4 }, namespace.OPTarget{}), 4, "critical warning 0x04"},
		"write protected":         {set(func(i *namespace.Inventory) { i.Namespaces[0].WriteProtected = true }, namespace.OPTarget{}), 4, "write protected"},
		"unreadable":              {set(func(i *namespace.Inventory) { i.Namespaces[0].Error = "boom" }, namespace.OPTarget{}), 4, "boom"},
		"list unreadable": {set(func(i *namespace.Inventory) {
			i.Problems = []namespace.Problem{{What: "namespace list", Error: "boom"}}
			i.Namespaces = nil
		}, namespace.OPTarget{}), 4, "could not be read"},
		"several, none named": {func() error {
			_, err := namespace.PlanOPSet(two(), namespace.OPTarget{Size: sizeOf("500GB")}, namespace.Options{})
			return err
		}, 4, "2 namespaces and none was named: 1 (1,099,511,627,776 bytes (1.10 TB, 1.00 TiB)), 7 ("},
		"no such namespace": {set(none, namespace.OPTarget{NSID: 3}), 4, "no such namespace; it has: 1 ("},
		"broadcast":         {set(none, namespace.OPTarget{NSID: nvmespec.BroadcastNSID}), 4, "no such namespace"},
		"over capacity":     {set(none, namespace.OPTarget{Size: sizeOf("8TB")}), 4, "more than the 7,681,501,126,656 bytes"},
		"over what is free": {func() error {
			_, err := namespace.PlanOPSet(two(), namespace.OPTarget{NSID: 7, Size: sizeOf("7TB")}, namespace.Options{})
			return err
		}, 4, "other namespaces hold the rest"},
		"blocks like bytes":     {set(none, namespace.OPTarget{Size: sizeOf("6401252745216 blocks")}), 4, "looks like a number of bytes"},
		"format not listed":     {set(none, namespace.OPTarget{Format: &namespace.FormatSelector{DataBytes: 8192}}), 5, "512, 4096, 512+8"},
		"shared, one path":      {set(none, namespace.OPTarget{Shared: &shared}), 5, "several controllers"},
		"private to two":        {set(func(i *namespace.Inventory) { i.Namespaces[0].Controllers = []uint16{1, 2} }, namespace.OPTarget{}), 4, "more than one controller"},
		"extended format index": {set(func(i *namespace.Inventory) { i.Formats[1].Index = 16 }, namespace.OPTarget{Format: fourK}), 5, "index 16"},
		"too many namespaces": {func() error {
			inv := two()
			inv.Controller.MaxNamespaces = 2
			_, err := namespace.PlanCreate(inv, namespace.CreateTarget{Size: sizeOf("100GB")}, namespace.Options{})
			return err
		}, 4, "can hold 2 namespaces"},
		"create without room": {func() error {
			_, err := namespace.PlanCreate(drive(), namespace.CreateTarget{Size: sizeOf("200GB")}, namespace.Options{})
			return err
		}, 4, "other namespaces hold the rest"},
		"delete nothing": {func() error {
			_, err := namespace.PlanDelete(drive(), nil, "", namespace.Options{})
			return err
		}, 4, "no namespace was named"},
		"delete all by broadcast": {func() error {
			_, err := namespace.PlanDelete(drive(), []uint32{nvmespec.BroadcastNSID}, "", namespace.Options{})
			return err
		}, 4, "no such namespace"},
		"delete 0": {func() error {
			_, err := namespace.PlanDelete(drive(), []uint32{0}, "", namespace.Options{})
			return err
		}, 4, "0 is no namespace"},
		"attach a private one twice": {func() error {
			_, err := namespace.PlanAttach(drive(), 1, []uint16{0x22}, "", namespace.Options{})
			return err
		}, 4, "private namespace"},
		"attach to nobody": {func() error {
			_, err := namespace.PlanAttach(drive(), 1, []uint16{}, "", namespace.Options{})
			return err
		}, 4, "list of controllers is empty"},
	} {
		err := c.do()
		if err == nil || exitCode(err) != c.exit || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: error %v, exit %d; want %d, %q", name, err, exitCode(err), c.exit, c.reason)
		}
	}
}

func TestPlanFormat_scope(t *testing.T) {
	format := func(inv namespace.Inventory, target namespace.FormatTarget) (namespace.Plan, error) {
		return namespace.PlanFormat(inv, target, namespace.Options{})
	}
	all := two()
	all.Controller.FormatAllNamespaces = true
	// One is named, all would change: refused, and the others are listed.
	_, err := format(all, namespace.FormatTarget{NSID: 1})
	if exitCode(err) != 4 || !strings.Contains(err.Error(), "ALL namespaces") || !strings.Contains(err.Error(), "7 (") {
		t.Errorf("one of all: %v", err)
	}
	// All are named, but the formats differ and none was chosen.
	if _, err = format(all, namespace.FormatTarget{NSID: nvmespec.BroadcastNSID}); exitCode(err) != 4 {
		t.Errorf("different formats: %v", err)
	}
	p, err := format(all, namespace.FormatTarget{NSID: nvmespec.BroadcastNSID, Format: &namespace.FormatSelector{DataBytes: 4096}})
	if err != nil || !slices.Equal(p.NSIDs, []uint32{1, 7}) || !strings.Contains(p.Steps[0].Title, "ALL namespaces: 1, 7") || p.Steps[0].Commands[0].NSID != nvmespec.BroadcastNSID {
		t.Errorf("all: %v %+v", err, p.Steps)
	}
	// Secure erase has a scope of its own.
	erase := two()
	erase.Controller.EraseAllNamespaces = true
	if _, err = format(erase, namespace.FormatTarget{NSID: 1, Erase: namespace.EraseUser}); exitCode(err) != 4 {
		t.Errorf("erase of one: %v", err)
	}
	if p, err = format(erase, namespace.FormatTarget{NSID: 1}); err != nil || !slices.Equal(p.NSIDs, []uint32{1}) {
		t.Errorf("format of one: %v", err)
	}
	// The default keeps the format: index 0 is not it (FMT-13).
	if p, err = format(two(), namespace.FormatTarget{NSID: 7}); err != nil || p.Steps[0].Commands[0].CDW10 != 1 {
		t.Errorf("default format: %v %+v", err, p.Steps)
	}
	if ms := p.Steps[0].TimeoutMS; ms < 3_600_000 {
		t.Errorf("time-out %d ms", ms)
	}
	p, err = format(drive(), namespace.FormatTarget{Erase: namespace.EraseUser})
	if err != nil || p.Steps[0].TimeoutMS < 36_000_000 || p.Steps[0].Commands[0].CDW10 != 1<<9 {
		t.Errorf("user data erase: %v %+v", err, p.Steps)
	}
	noCrypto := drive()
	noCrypto.Controller.CryptographicErase = false
	if _, err = format(noCrypto, namespace.FormatTarget{Erase: namespace.EraseCrypto}); exitCode(err) != 5 {
		t.Errorf("crypto erase: %v", err)
	}
	sick := drive()
	sick.Health.CriticalWarning = 1
	if _, err = format(sick, namespace.FormatTarget{}); exitCode(err) != 4 {
		t.Errorf("critical warning: %v", err)
	}
	if _, err = namespace.PlanFormat(sick, namespace.FormatTarget{}, namespace.Options{AcceptCriticalWarning: true}); err != nil {
		t.Errorf("critical warning accepted: %v", err)
	}
	// A namespace attached nowhere is attached for the time (NS-43).
	lone := two()
	lone.Namespaces[1].Controllers = []uint16{}
	p, err = format(lone, namespace.FormatTarget{NSID: 7})
	if err != nil || len(p.Steps) != 3 || p.Steps[0].Kind != namespace.KindAttach || p.Steps[2].Kind != namespace.KindDetach {
		t.Errorf("detached: %v %+v", err, p.Steps)
	}
}

func TestPlanOPSet_keepsWhatItCan(t *testing.T) {
	inv := drive()
	n := &inv.Namespaces[0]
	inv.Controller.MultiController = true
	n.NMIC, n.NVMSetID, n.EnduranceGroupID, n.ANAGroupID, n.Controllers = 1, 3, 4, 5, []uint16{0x21, 0x22}
	n.Format, n.FLBAS, n.Protection = inv.Formats[3], 0x13, 0x9
	n.SizeBlocks, n.CapacityBlocks = n.SizeBlocks/8, n.CapacityBlocks/8
	p, err := namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB")}, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := p.After[0]
	if got.NMIC != 1 || got.NVMSetID != 3 || got.EnduranceGroupID != 4 || got.ANAGroupID != 5 || got.Format != n.Format || got.FLBAS != 0x13 ||
		got.Protection != 0x9 || !slices.Equal(got.Controllers, []uint16{0x21, 0x22}) || got.SizeBytes() != 6_401_252_745_216 {
		t.Errorf("then %s", jsonText(got))
	}
	if got.NGUID != "" {
		t.Error("the new namespace is said to keep its identifiers")
	}
	if !strings.Contains(strings.Join(p.Notes, "\n"), "by-id") {
		t.Error("nothing is said about new identifiers")
	}
	// Without metadata there is no protection information.
	p, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB"), Format: &namespace.FormatSelector{DataBytes: 4096}}, namespace.Options{})
	if err != nil || p.After[0].Protection != 0 || p.After[0].FLBAS != 1 || !strings.Contains(strings.Join(p.Notes, "\n"), "protection type 1") {
		t.Errorf("%v, then %s, %v", err, jsonText(p.After), p.Notes)
	}
	// Attached nowhere: the controller that is open gets it (NS-20, NS-25).
	inv = drive()
	inv.Namespaces[0].Controllers = []uint16{}
	p, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("max")}, namespace.Options{})
	if err != nil || len(p.Steps) != 0 {
		t.Errorf("attached nowhere, and nothing else differs: %v %+v", err, p.Steps)
	}
	p, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB")}, namespace.Options{})
	if err != nil || len(p.Steps) != 3 || p.Steps[1].Kind != namespace.KindCreate || len(p.After[0].Controllers) != 0 {
		t.Errorf("attached nowhere stays so: %v %+v", err, p.Steps)
	}
	// A drive that reports no capacity is not divided by: sizes are sent as asked.
	inv = drive()
	inv.Controller.TotalBytes = 0
	if p, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("6.4TB")}, namespace.Options{}); err != nil || p.OverProvisioning != nil {
		t.Errorf("no TNVMCAP: %v", err)
	}
	if _, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("8TB")}, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("growth where it is not known whether there is room: %v", err)
	}
	if _, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("8TB")}, namespace.Options{AcceptUnknownCapacity: true}); err != nil {
		t.Errorf("growth that was accepted: %v", err)
	}
	if _, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("50%")}, namespace.Options{}); exitCode(err) != 5 {
		t.Errorf("share of no TNVMCAP: %v", err)
	}
	// NVMCAP counts what a delete frees, NSZE what the user has (NS-65).
	inv = drive()
	inv.Namespaces[0].AllocatedBytes -= 1 << 33
	if _, err = namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("7.6815TB")}, namespace.Options{}); exitCode(err) != 4 {
		t.Errorf("more than the delete frees: %v", err)
	}
}

func TestPlanSpec(t *testing.T) {
	plan := func(inv namespace.Inventory, text string) (namespace.Plan, error) {
		s, err := namespace.ParseSpec("spec", []byte("version: 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return namespace.PlanSpec(inv, s, namespace.Options{})
	}
	kinds := func(p namespace.Plan) string {
		var all []string
		for _, step := range p.Steps {
			all = append(all, strings.TrimPrefix(step.Kind, "namespace."))
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		inv  namespace.Inventory
		text string
		want string
		exit int
	}{
		{drive(), "", "", 0},
		{drive(), "namespaces: [{size: max}]", "", 0},
		{drive(), "namespaces: [{op: 20}]", "detach delete create attach rescan", 0},
		{drive(), "match: {serial: S2}\nnamespaces: [{op: 20}]", "", 4},
		{two(), "namespaces: [{size: 1TiB}, {size: 1TiB, lba: {data: 4096}}]", "", 0},
		{two(), "namespaces: [{size: 1TiB}, {size: 1TiB, lba: {data: 4096}}, {size: 100GB}]", "create attach rescan", 0},
		{two(), "namespaces: [{size: 1TiB}]", "", 4}, // namespace 7 is not named
		{two(), "namespaces: [{size: 1TiB, lba: {data: 512}}]\nreplace: [7]", "detach delete rescan", 0},
		{two(), "namespaces: [{size: 1TiB, lba: {data: 512}}, {size: 2TB}]\nreplace: [7]", "detach delete create attach rescan", 0},
		{two(), "namespaces: [{size: 1TiB}, {size: max}]", "", 4},
		{two(), "namespaces: [{size: 4TB}, {size: 4TB}]\nreplace: [1, 7]", "", 4}, // more than there is
	} {
		p, err := plan(c.inv, c.text)
		if c.exit != 0 {
			if err == nil || exitCode(err) != c.exit {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		if err != nil || kinds(p) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.text, kinds(p), err, c.want)
		}
	}
}

// Whatever the drive and the target: other namespaces are not in the plan, the
// size fits, the old geometry is in the steps before anything is destroyed, and
// planning again from what the plan promises finds nothing to do.
func TestPlanOPSet_properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv := two()
		inv.Controller.TotalBytes = rapid.Uint64Range(3<<40, 1<<50).Draw(t, "total")
		inv.Controller.UnallocatedBytes = inv.Controller.TotalBytes - 2<<40
		for i := range inv.Formats {
			inv.Formats[i].SizeGranularityBytes = rapid.SampledFrom([]uint64{0, 4096, 1 << 20, 1 << 30, 3 << 30}).Draw(t, "granularity")
		}
		f := rapid.SampledFrom(inv.Formats).Draw(t, "format").Selector()
		tenth := rapid.IntRange(1, 999).Draw(t, "tenth")
		s := sizeOf(fmt.Sprintf("%d.%d%%", tenth/10, tenth%10))
		p, err := namespace.PlanOPSet(inv, namespace.OPTarget{NSID: 7, Size: s, Format: &f}, namespace.Options{})
		if err != nil {
			if exitCode(err) != 4 {
				t.Fatal(err)
			}
			return
		}
		if p.AlreadySo() {
			return
		}
		if !slices.Equal(p.NSIDs, []uint32{7}) || len(p.After) != 2 || jsonText(p.After[0]) != jsonText(inv.Namespaces[0]) {
			t.Fatalf("touches %v, then %v", p.NSIDs, p.After)
		}
		made := p.After[1]
		if made.SizeBytes() > inv.Controller.UnallocatedBytes+inv.Namespaces[1].AllocatedBytes || made.SizeBlocks != made.CapacityBlocks {
			t.Fatalf("then %v", made)
		}
		for _, step := range p.Steps {
			if step.Destroys != "" && !strings.Contains(string(step.Params), `"size_blocks":268435456`) {
				t.Fatalf("step %d destroys without the old geometry: %s", step.Index, step.Params)
			}
			for _, cmd := range step.Commands {
				if cmd.NSID != 7 && cmd.NSIDFrom == "" && cmd.Opcode != 0x0d || cmd.TimeoutMS < 300_000 {
					t.Fatalf("command %v", cmd)
				}
			}
		}
		then := inv
		made.NSID, made.AllocatedBytes = 7, made.SizeBytes()
		then.Namespaces = []namespace.Namespace{inv.Namespaces[0], made}
		then.Controller.UnallocatedBytes = inv.Controller.UnallocatedBytes + 1<<40 - made.SizeBytes()
		again, err := namespace.PlanOPSet(then, namespace.OPTarget{NSID: 7, Size: s, Format: &f}, namespace.Options{})
		if err != nil || !again.AlreadySo() {
			t.Fatalf("again: %d steps, %v", len(again.Steps), err)
		}
	})
}

func TestPlan_survivesJSON(t *testing.T) {
	p, err := namespace.PlanOPSet(two(), namespace.OPTarget{NSID: 7, Size: sizeOf("500GB")}, namespace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var back namespace.Plan
	if err := json.Unmarshal([]byte(jsonText(p)), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(jsonText(p), jsonText(back)); d != "" {
		t.Error(d)
	}
	if len(back.Drift(two())) != 0 {
		t.Errorf("drift: %v", back.Drift(two()))
	}
	moved := two()
	moved.Namespaces[1].EUI64 = "0011223344556677"
	moved.Controller.UnallocatedBytes--
	if drift := back.Drift(moved); len(drift) != 2 {
		t.Errorf("drift: %v", drift)
	}
	gone := two()
	gone.Namespaces = gone.Namespaces[:1]
	if len(back.Drift(gone)) == 0 {
		t.Error("a namespace that is gone is no drift")
	}
}

func TestReadInventory_everyProfile(t *testing.T) {
	for _, p := range sim.Profiles() {
		r := newRig(t, p.Name, sim.Options{Serial: "SERIAL1"})
		inv := r.inventory()
		if inv.Identity.Serial != "SERIAL1" || inv.Identity.Model != p.Model || len(inv.Formats) != len(p.Formats) || inv.Health == nil || inv.Firmware == nil || len(inv.Problems) != 0 {
			t.Errorf("%s: %s", p.Name, jsonText(inv))
		}
		if len(inv.Namespaces) != 1 || inv.Namespaces[0].SizeBytes() == 0 || len(inv.Namespaces[0].Controllers) != 1 {
			t.Errorf("%s: namespaces %s", p.Name, jsonText(inv.Namespaces))
		}
		if len(r.sent) != 0 {
			t.Errorf("%s: reading sent %v", p.Name, r.sent)
		}
		if p.ReportsGranularity && inv.Formats[0].SizeGranularityBytes != p.AllocationBytes {
			t.Errorf("%s: granularity %d", p.Name, inv.Formats[0].SizeGranularityBytes)
		}
		if _, err := namespace.PlanOPSet(inv, namespace.OPTarget{Size: sizeOf("50%")}, namespace.Options{}); p.AdminCommands&8 == 0 && !errors.Is(err, nvmeioctl.ErrNotSupported) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
