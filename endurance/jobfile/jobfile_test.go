package jobfile

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nvop/endurance/run"
)

const goodFile = `version: 1
name: weekend
drives:
  - address: /dev/nvme0n1
    serial: S1
  - address: sim:d.nvop
    nsid: 2
accept: [signature]
seed: 7
workers: 4
sample_interval: 20s
stall: 1m
phases:
  - kind: precondition
    rw: write
    block: 128KiB
    depth: 64
    end: {passes: 2}
  - kind: measure
    workload: jesd219
    depth: 256
    rate: {iops: 50000}
    end: {duration: 7d}
  - kind: measure
    rw: randrw
    read_percent: 30
    bssplit: 4k/60:64k/40
    zones: 50/5:30/15:20/80
    end: {size: 1TB}
  - kind: measure
    rw: randwrite
    zipf: 1.2
    end: {drive_writes: 3000}
stop:
  drive_writes: 5000
  temperature: 80
  critical_warning: true
pause: {at: 75, resume: 65}
verify: {trust: flushed, flush_every: 1s}
data: full
compress_ratio: 2.5:1
on_event: [/usr/bin/notify, --loud]
metrics: /var/lib/nvop.prom
`

func region() Region { return Region{CapacityBytes: 7_681_501_126_656, LBABytes: 512} }

func TestParse_everything(t *testing.T) {
	f, err := Parse("weekend.yaml", []byte(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "weekend" || len(f.Drives) != 2 || f.Drives[1].NSID != 2 || f.Drives[0].Serial != "S1" || f.Accept[0] != "signature" ||
		f.Seed != 7 || f.Workers != 4 || f.SampleNS != 20e9 || f.StallNS != 60e9 || !slices.Equal(f.OnEvent, []string{"/usr/bin/notify", "--loud"}) || f.Metrics == "" {
		t.Errorf("%+v", f)
	}
	j, err := f.Job(region())
	if err != nil {
		t.Fatal(err)
	}
	p := j.Phases
	if p[0].Pattern != run.PatternSequential || p[0].BlockBytes != 131072 || p[0].End != (run.End{Passes: 2}) {
		t.Errorf("phase 0: %+v", p[0])
	}
	if p[1].Workload != "jesd219" || p[1].ReadPercent != 40 || len(p[1].Sizes) != 12 || p[1].BlockBytes != 65536 || p[1].AlignBytes != 4096 ||
		p[1].Rate != (run.Rate{IOPS: 50000, Arrival: run.ArrivalOpen}) || p[1].End.DurationNS != 7*86400e9 {
		t.Errorf("phase 1: %+v", p[1])
	}
	if p[2].End != (run.End{TransferBytes: 1e12}) || p[2].ReadPercent != 30 || p[2].BlockBytes != 65536 || p[2].Zones[0] != (run.Zone{SpacePermille: 50, AccessPermille: 500}) {
		t.Errorf("phase 2: %+v", p[2])
	}
	// More than 2,400 drive writes in one phase.
	if p[3].ZipfMilli != 1200 || p[3].End.DriveWritesMilli != 3_000_000 {
		t.Errorf("phase 3: %+v", p[3])
	}
	if j.Data != (run.Data{CompressPermille: 400}) {
		t.Errorf("data %+v", j.Data)
	}
	if len(j.Stops) != 3 || j.Pause != (run.Pause{AtCelsius: 75, ResumeCelsius: 65}) || j.Verify.Trust != run.TrustFlushed || j.Verify.FlushIntervalNS != 1e9 {
		t.Errorf("%+v", j)
	}
}

// On a drive of 4096 byte blocks the preset is the 4Kn variant, and says so.
func TestJob_4Kn(t *testing.T) {
	f, err := Parse("x", []byte(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	r := region()
	r.LBABytes = 4096
	j, err := f.Job(r)
	if err != nil {
		t.Fatal(err)
	}
	if j.Phases[1].Workload != "jesd219-4kn" || j.Phases[1].Sizes[0] != (run.SizeShare{Bytes: 4096, Permyriad: 7700}) {
		t.Errorf("%+v", j.Phases[1])
	}
}

// Cases C7 and F: whatever is wrong, ignored or in conflict has its line and
// column.
func TestParse_saysWhere(t *testing.T) {
	with := func(old, now string) string { return strings.Replace(goodFile, old, now, 1) }
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":            {with("seed: 7", "sede: 7"), "x:9:1: unknown field"},
		"unknown key of a phase": {with("    depth: 64", "    deep: 64"), "x:17:5:"},
		"no version":             {with("version: 1\n", ""), "x:1:1: the version is missing"},
		"another version":        {with("version: 1", "version: 2"), "x:1:10: version 2 is not known"},
		"bare number":            {with("{size: 1TB}", "{size: 1000}"), "x:29:17: \"1000\" is no amount"},
		"two ends":               {with("{passes: 2}", "{passes: 2, duration: 1h}"), "x:14:5:"},
		"size and passes":        {with("{size: 1TB}", "{size: 1TB, passes: 2}"), "x:24:5: there is more than one end"},
		"read_percent of writes": {with("    rw: write\n", "    rw: write\n    read_percent: 5\n"), "x:14:5: read_percent is the mix of randrw; write has none"},
		"order of a stream":      {with("    rw: write\n", "    rw: write\n    order: permutation\n"), "x:14:5: order is for what is random"},
		"preset and size":        {with("workload: jesd219", "workload: jesd219\n    block: 4k"), "x:19:5: a workload has sizes of its own"},
		"preset and rw":          {with("workload: jesd219", "workload: jesd219\n    rw: randrw"), "x:19:5: a workload has reads and writes of its own: leave out rw"},
		"unknown preset":         {with("workload: jesd219", "workload: jesd220"), "x:19:5: no workload \"jesd220\""},
		"split and block":        {with("    zones:", "    block: 4k\n    zones:"), "x:24:5: block and bssplit conflict"},
		"zones and zipf":         {with("    zipf: 1.2", "    zipf: 1.2\n    zones: 50/50:50/50"), "x:30:5: zones and zipf conflict"},
		"arrival alone":          {with("rate: {iops: 50000}", "rate: {arrival: open}"), "x:19:5: arrival belongs to a rate"},
		"shares":                 {with("4k/60:64k/40", "4k/60:64k/30"), "x:27:14: bssplit \"4k/60:64k/30\": the shares add up to 90"},
		"pause the wrong way":    {with("{at: 75, resume: 65}", "{at: 65, resume: 75}"), "x:38:"},
		"a list for a value":     {with("seed: 7", "seed: [7]"), "x:9:7: a single value belongs here"},
		"an anchor":              {with("name: weekend", "name: &a weekend"), "tags, anchors"},
		"twice the same drive":   {with("sim:d.nvop\n    nsid: 2", "/dev/nvme0n1"), "x:6:14: drive /dev/nvme0n1 is there twice"},
		"two documents":          {goodFile + "---\nversion: 1\n", "more than one document"},
		"nothing":                {"", "x: the file is empty"},
		"no phases":              {"version: 1\n", "1 to 64 phases"},
		"no kind":                {with("  - kind: measure\n    rw: randwrite", "  - rw: randwrite"), "x:30:5: a phase needs its kind"},
		"not YAML":               {"version: [1", "x:1:"},
		"data of no kind":        {with("data: full", "data: most"), "x:40:7: \"most\" is none of full, headers"},
		"ratio of headers":       {with("data: full", "data: headers"), "x:40:7: where only headers are written"},
		"ratio below one":        {with("compress_ratio: 2.5:1", "dedup_ratio: 0.5"), "x:41:14: \"0.5\" is no ratio"},
		"ratio in percent":       {with("2.5:1", "40%"), "x:41:17: \"40%\" is no ratio"},
		"depth 0":                {with("depth: 64", "depth: 0"), "x:17:12: \"0\" is no whole number from 1"},
	} {
		f, err := Parse("x", []byte(c.text))
		if err == nil {
			_, err = f.Job(region())
			if e, ok := errors.AsType[*Error](err); ok {
				e.File = "x"
			}
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.says) && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
			continue
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.ExitCode() != 80 {
			t.Errorf("%s: %T", name, err)
		}
	}
}

// A job that the drive cannot do blames the phase.
func TestJob_blamesThePhase(t *testing.T) {
	f, err := Parse("x", []byte(strings.Replace(goodFile, "rw: randwrite\n", "rw: randwrite\n    block: 1k\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := region()
	r.LBABytes = 4096
	_, err = f.Job(r)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Line != 30 || !errors.Is(err, run.ErrJob) {
		t.Errorf("%+v", err)
	}
	if _, err := (&File{TimeLapse: 2}).Job(region()); err == nil {
		t.Error("time lapse on a real drive is not refused")
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]uint64{"1B": 1, "100GB": 1e11, "1.5TiB": 3 << 39, "2PB": 2e15, "9EB": 9e18} {
		if n, err := Bytes(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "5", "GB", "-1GB", "1.5B", "1e9B", "99EB", "0GB", "1 XB", "1..5GB"} {
		if n, err := Bytes(text); err == nil {
			t.Errorf("%q is taken for %d", text, n)
		}
	}
	for text, want := range map[string]uint64{"3": 3000, "0.0001": 1, "2.5": 2500, "0.9991": 1000} {
		if n, err := Milli(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"0", "-1", "x", "", "1/3", "1e3"} {
		if n, err := Milli(text); err == nil {
			t.Errorf("%q is taken for %d", text, n)
		}
	}
	// fio's own example of the JESD219 sizes.
	sizes, writes, err := Split("512/4:1024/1:1536/1:2048/1:2560/1:3072/1:3584/1:4k/67:8k/10:16k/7:32k/3:64k/3")
	if err != nil || writes != nil || len(sizes) != 12 || sizes[7] != (run.SizeShare{Bytes: 4096, Permyriad: 6700}) {
		t.Errorf("%v %v", sizes, err)
	}
	sizes, writes, err = Split("4k/25.68:8k,4k/50:64k/50")
	if err != nil || sizes[1].Permyriad != 7432 || len(writes) != 2 {
		t.Errorf("%v %v %v", sizes, writes, err)
	}
	if p, err := PauseRule("75"); err != nil || p.ResumeCelsius != 70 {
		t.Errorf("%v %v", p, err)
	}
	if d, err := Duration("1.5d"); err != nil || d.Hours() != 36 {
		t.Errorf("%v %v", d, err)
	}
}

// Cases H5 and H6: ratios are what storage systems call so. What is written once
// as headers only, and verified, is refused where it says so.
func TestData(t *testing.T) {
	for text, want := range map[string]uint16{"1": 0, "1:1": 0, "2": 500, "2.5": 400, "2.5:1": 400, "3": 333, "100": 10, "1.0001": 0} {
		if n, err := Ratio(text); err != nil || n != want {
			t.Errorf("%s: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "0", "0.9", "-2", "101", "2:2", "1:2", "50%", "x", ":1", "1e1"} {
		if n, err := Ratio(text); err == nil {
			t.Errorf("%q is taken for %d", text, n)
		}
	}
	const phase = "version: 1\nphases:\n  - {kind: measure, rw: randwrite, block: 4k, end: {size: 1GB}}\n"
	const verify = "  - {kind: verify, rw: read, check: reads, end: {passes: 1}}\n"
	for text, says := range map[string]string{
		phase + "data: headers\n":                                       "",
		phase + verify + "data: headers\n":                              "x:4:6: ",
		phase + verify + "dedup_ratio: 4\n":                             "",
		strings.Replace(phase, "4k", "512B", 1) + "dedup_ratio: 4\n":    "x:3:6: .*contents repeat in units of 4096 bytes, which operations of 512 bytes would break",
		strings.Replace(phase, "4k", "512B", 1) + "compress_ratio: 4\n": "",
	} {
		f, err := Parse("x", []byte(text))
		if err == nil {
			_, err = f.Job(region())
			if e, ok := errors.AsType[*Error](err); ok {
				e.File = "x"
			}
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		if ok, _ := regexp.MatchString("^"+says, said); !ok || (says == "") != (err == nil) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// A phase that verifies is refused where it stands if nothing is written before it,
// or if it would not compare anything.
func TestVerify_needsSomethingToCompare(t *testing.T) {
	const write, read = "  - {kind: measure, rw: randwrite, end: {size: 1GB}}\n", "  - {kind: measure, rw: read, end: {passes: 1}}\n"
	const verify = "  - {kind: verify, rw: read, check: reads, end: {passes: 1}}\n"
	const nothing = ": it verifies what the run wrote, and nothing is written before it that it could compare"
	for phases, want := range map[string]string{
		write + verify:          "",
		write + verify + verify: "",
		"  - {kind: measure, rw: randrw, end: {size: 1GB}}\n" + verify:        "",
		"  - {kind: measure, workload: jesd219, end: {size: 1GB}}\n" + verify: "",
		"  - {kind: verify}\n":           "x:3:6" + nothing,
		verify:                           "x:3:6" + nothing,
		read + verify:                    "x:4:6" + nothing,
		"  - {kind: prepare}\n" + verify: "x:4:6" + nothing,
		"  - {kind: measure, rw: randrw, read_percent: 100, end: {size: 1GB}}\n" + verify: "x:4:6" + nothing,
		write + "  - {kind: verify}\n":                             "x:4:6: a phase that verifies reads: give rw",
		write + "  - {kind: verify, rw: read, end: {passes: 1}}\n": "x:4:6: a phase that verifies must check its reads: give check",
	} {
		_, err := Parse("x", []byte("version: 1\nphases:\n"+phases))
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != want {
			t.Errorf("%s: %q, want %q", phases, said, want)
		}
	}
}

// The schema names exactly the keys that are read.
func TestSchema_hasEveryKey(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	var compare func(where string, schema map[string]any, typ reflect.Type)
	compare = func(where string, schema map[string]any, typ reflect.Type) {
		if items, ok := schema["items"].(map[string]any); ok && typ.Kind() == reflect.Slice {
			schema, typ = items, typ.Elem()
		}
		if typ == reflect.TypeFor[scalar]() {
			return
		}
		properties, _ := schema["properties"].(map[string]any)
		seen := map[string]bool{}
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("yaml")
			if key == "" {
				continue
			}
			seen[key] = true
			below, ok := properties[key].(map[string]any)
			if !ok {
				t.Errorf("%s.%s is not in the schema", where, key)
				continue
			}
			compare(where+"."+key, below, typ.Field(i).Type)
		}
		for key := range properties {
			if !seen[key] {
				t.Errorf("%s.%s is in the schema and not read", where, key)
			}
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s: other keys are allowed", where)
		}
	}
	compare("", s, reflect.TypeFor[document]())
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(goodFile))
	f.Add([]byte("version: 1\nphases:\n- kind: measure\n  rw: randrw\n  bssplit: 4k/60:64k\n  end: {size: 1GB}\n"))
	f.Add([]byte("version: 1\nphases: !!x 5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("x", text)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if j, err := file.Job(region()); err == nil {
			if err := j.Validate(); err != nil {
				t.Fatalf("a job that cannot be run: %v", err)
			}
		}
	})
}
