package namespace

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nvop/nvmeioctl"
)

// TestIDEMABytes_table holds the capacities real drives report (specification
// LBA1-03 and public dumps of the models named).
func TestIDEMABytes_table(t *testing.T) {
	for _, c := range []struct {
		gb             uint64
		sectors, bytes uint64
		seenOn         string
	}{
		{1600, 3_125_627_568, 1_600_321_314_816, "Micron 7400, PM1725"},
		{1920, 3_750_748_848, 1_920_383_410_176, "PM983, PM9A3"},
		{3200, 6_251_233_968, 3_200_631_791_616, "P6536, P4610, 7450 MAX"},
		{3840, 7_501_476_528, 3_840_755_982_336, "P6531, 7450 PRO"},
		{6400, 12_502_446_768, 6_401_252_745_216, "PM1735"},
		{7680, 15_002_931_888, 7_681_501_126_656, "CM7"},
		{15360, 30_005_842_608, 15_362_991_415_296, ""},
		{30720, 60_011_664_048, 30_725_971_992_576, "SBFPF2BU307T"},
		{50, 97_696_368, 97_696_368 * 512, "the base of the formula"},
	} {
		bytes, ok := IDEMABytes(c.gb)
		if !ok || bytes != c.bytes || bytes/512 != c.sectors {
			t.Errorf("%d GB: %d bytes, %v, want %d (%s)", c.gb, bytes, ok, c.bytes, c.seenOn)
		}
		// The count for 4096-byte sectors has constants of its own in the standard.
		if got := bytes / 4096; got != 12_212_046+244_188*(c.gb-50) {
			t.Errorf("%d GB: %d sectors of 4096", c.gb, got)
		}
	}
	if _, ok := IDEMABytes(49); ok {
		t.Error("49 GB has an IDEMA count")
	}
}

const (
	total768 = 7_681_501_126_656
	total64  = 6_401_252_745_216
)

func TestParseSize_andResolve(t *testing.T) {
	drive := CapacityQuestion{BlockBytes: 512, TotalBytes: total768, AvailableBytes: total768}
	with4k, gran := drive, drive
	with4k.BlockBytes = 4096
	gran.GranularityBytes = 1 << 33
	for _, c := range []struct {
		text  string
		exact bool
		q     CapacityQuestion
		bytes uint64
	}{
		{"6.4TB", false, drive, total64},
		{"6400GB", false, drive, total64},
		{" 6.4 TB ", false, with4k, total64},
		{"6.4TB", true, drive, 6_400_000_000_000},
		{"6.4TB", true, with4k, 6_400_000_000_000},
		{"7.68TB", false, drive, total768},
		{"480GB", false, drive, 480_103_981_056},
		{"50GB", false, drive, 97_696_368 * 512},
		{"49GB", false, drive, 49_000_000_000 / 512 * 512},
		// Decimals are exact: a float makes 61399999997 of the first (NS-11).
		{"6.14TB", true, drive, 6_140_000_000_000},
		{"6.1415TB", false, drive, 6_141_500_000_000 / 512 * 512},
		{"6141.5GB", false, drive, 6_141_500_000_000 / 512 * 512},
		{"0.8TiB", false, drive, 879_609_302_220 / 512 * 512},
		{"6400000MB", false, drive, 6_400_000_000_000},
		{"6TiB", false, drive, 6 << 40},
		{"80MiB", false, drive, 80 << 20},
		{"1kB", false, drive, 512},
		{"8KiB", false, with4k, 8192},
		{"6401252745216B", false, drive, total64},
		{"12502446768 blocks", false, drive, total64},
		{"1562805846blocks", false, with4k, total64},
		{"100%", false, drive, total768},
		{"50%", false, drive, total768 / 2 / 512 * 512},
		{"max", false, drive, total768},
		{"factory", false, drive, total768},
		{"1.92TB", false, gran, 1_920_383_410_176 >> 33 << 33},
	} {
		size, err := ParseSize(c.text, c.exact)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		got, err := size.Resolve(c.q)
		if err != nil || got.Bytes != c.bytes || got.Blocks*uint64(c.q.BlockBytes) != c.bytes {
			t.Errorf("%q exact=%v: %d bytes, %d blocks, %v; want %d", c.text, c.exact, got.Bytes, got.Blocks, err, c.bytes)
		}
	}
}

func TestParseSize_printsBothNumbers(t *testing.T) {
	size, err := ParseSize("6.4TB", false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := size.Resolve(CapacityQuestion{BlockBytes: 512, TotalBytes: total768, AvailableBytes: total768})
	if err != nil {
		t.Fatal(err)
	}
	note := strings.Join(c.Notes, "\n")
	if !strings.Contains(note, "6,401,252,745,216") || !strings.Contains(note, "6,400,000,000,000") {
		t.Errorf("notes %q", note)
	}
}

func TestParseSize_refuses(t *testing.T) {
	for _, text := range []string{
		"", "6400", "6401252745216", "6.4", "6.14T", "6Ti", "6.14Ti", "6G", "-6.4TB", "+6.4TB", "6.4e3GB", "6,400GB",
		"06.4TB", "0x10GB", "6..4TB", "6.4.0TB", "6.TB", ".4TB", "0GB", "0.0TB", "0 blocks", "1.5 blocks", "0.1B",
		"6.4TB extra", "6.4 T B", "6.4tb", "6.4Tb", "TB", "max 1", strings.Repeat("9", 60) + "B", "NaNTB", "InfTB", "1e400TB", "١TB",
	} {
		s, err := ParseSize(text, false)
		usage, ok := errors.AsType[*UsageError](err)
		if !ok || usage.ExitCode() != 80 {
			t.Errorf("%q: %+v, error %v", text, s, err)
		}
	}
}

func TestResolve_refuses(t *testing.T) {
	drive := CapacityQuestion{BlockBytes: 512, TotalBytes: total768, AvailableBytes: total768}
	some := drive
	some.AvailableBytes = 1 << 40
	gran := drive
	gran.GranularityBytes = 1 << 33
	for _, c := range []struct {
		text   string
		q      CapacityQuestion
		reason string
	}{
		{"8TB", drive, "more than"},
		{"7681501126657B", drive, ""}, // rounds down to what fits
		{"7681501127168B", drive, "more than"},
		{"101%", drive, "more than"},
		{"2TB", some, "other namespaces hold the rest"},
		{"7681501126656 blocks", drive, "looks like a number of bytes"},
		{"3840755982336 blocks", drive, "looks like a number of bytes"},
		{"100B", drive, "less than"},
		{"1GiB", gran, "less than"},
	} {
		size, err := ParseSize(c.text, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := size.Resolve(c.q)
		if c.reason == "" {
			if err != nil || got.Bytes != total768 {
				t.Errorf("%s: %+v, %v", c.text, got, err)
			}
			continue
		}
		refused, ok := errors.AsType[*nvmeioctl.RefusedError](err)
		if !ok || refused.ExitCode() != 4 || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: error %v, want %q", c.text, err, c.reason)
		}
	}
	size, _ := ParseSize("max", false)
	if _, err := size.Resolve(CapacityQuestion{BlockBytes: 512}); !errors.Is(err, nvmeioctl.ErrNotSupported) {
		t.Errorf("max of a drive without a capacity: %v", err)
	}
}

func TestParseOP_bothDefinitions(t *testing.T) {
	// A drive whose raw capacity is 7.68 TB sold as 6.4 TB has 20.0 % over the
	// user capacity and 16.7 % of the total.
	op := OverProvision(total768, total64)
	if op.OfUserPercent != "20.00" || op.OfTotalPercent != "16.67" {
		t.Errorf("over-provisioning %+v", op)
	}
	q := CapacityQuestion{BlockBytes: 512, TotalBytes: 1_200_000_000, AvailableBytes: 1_200_000_000}
	for _, c := range []struct {
		text    string
		ofTotal bool
		bytes   uint64
	}{
		{"20", false, 1_000_000_000 / 512 * 512},
		{"20%", false, 1_000_000_000 / 512 * 512},
		{"20", true, 960_000_000},
		{"0", false, 1_200_000_000 / 512 * 512},
		{"7.5", false, 1_116_279_069 / 512 * 512},
	} {
		size, err := ParseOP(c.text, c.ofTotal)
		if err != nil {
			t.Fatal(err)
		}
		got, err := size.Resolve(q)
		if err != nil || got.Bytes != c.bytes {
			t.Errorf("op %s of total %v: %+v, %v, want %d", c.text, c.ofTotal, got, err, c.bytes)
		}
	}
	q.OtherBytes = 1_100_000_000
	size, _ := ParseOP("20", false)
	if _, err := size.Resolve(q); err == nil {
		t.Error("others hold more than over-provisioning leaves, yet accepted")
	}
	for _, text := range []string{"", "-5", "20GB", "1000", "x", "020"} {
		if _, err := ParseOP(text, false); err == nil {
			t.Errorf("op %q accepted", text)
		}
	}
	if _, err := ParseOP("100", true); err == nil {
		t.Error("all of the total as over-provisioning accepted")
	}
}

func TestParseFormat(t *testing.T) {
	for text, want := range map[string]FormatSelector{
		"512": {512, 0}, "4096": {4096, 0}, "4k": {4096, 0}, "4096+8": {4096, 8}, "512+8": {512, 8}, "4k+64": {4096, 64},
	} {
		if got, err := ParseFormat(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "1", "3", "513", "4096+", "+8", "4096+x", "4096 8", "0512", "99999999999", "4096+65536", "4 k"} {
		if got, err := ParseFormat(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestResolve_properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := CapacityQuestion{
			BlockBytes:       rapid.SampledFrom([]uint32{512, 1024, 4096, 65536}).Draw(t, "block"),
			GranularityBytes: rapid.SampledFrom([]uint64{0, 1, 512, 4096, 1 << 20, 1 << 33, 3_000_000}).Draw(t, "granularity"),
			TotalBytes:       rapid.Uint64Range(1<<34, 1<<50).Draw(t, "total"),
		}
		q.AvailableBytes = rapid.Uint64Range(0, q.TotalBytes).Draw(t, "available")
		tenths := rapid.Uint64Range(1, 1<<40).Draw(t, "tenths")
		text := new(big.Rat).SetFrac64(int64(tenths), 10).FloatString(1) +
			rapid.SampledFrom([]string{"kB", "MB", "GB", "TB", "KiB", "MiB", "GiB"}).Draw(t, "unit")
		size, err := ParseSize(text, rapid.Bool().Draw(t, "exact"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		c, err := size.Resolve(q)
		if err != nil {
			if _, ok := errors.AsType[*nvmeioctl.RefusedError](err); !ok {
				t.Fatalf("%s: %v", text, err)
			}
			return
		}
		switch {
		case c.Blocks == 0:
			t.Fatal("no blocks")
		case c.Bytes != c.Blocks*uint64(q.BlockBytes):
			t.Fatalf("%d blocks are not %d bytes", c.Blocks, c.Bytes)
		case c.Bytes > q.AvailableBytes:
			t.Fatalf("%d of %d available", c.Bytes, q.AvailableBytes)
		case c.Bytes > c.RequestedBytes, c.RequestedBytes-c.Bytes >= c.UnitBytes:
			t.Fatalf("%d requested, %d given, unit %d", c.RequestedBytes, c.Bytes, c.UnitBytes)
		case q.GranularityBytes != 0 && c.Bytes%q.GranularityBytes != 0:
			t.Fatalf("%d is not a multiple of %d", c.Bytes, q.GranularityBytes)
		}
		step, floor := c.stepDown(q, 0)
		if floor > c.Bytes || c.Bytes-floor > c.Bytes/100 || step%uint64(q.BlockBytes) != 0 || (c.Bytes-floor)%step != 0 {
			t.Fatalf("step down from %d by %d to %d", c.Bytes, step, floor)
		}
	})
}

// What a size is must not depend on how it is written.
func TestParseSize_sameInAnyUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gb := rapid.Uint64Range(1, 100_000).Draw(t, "gb")
		tb := new(big.Rat).SetFrac64(int64(gb), 1000).FloatString(3)
		q := CapacityQuestion{BlockBytes: 4096}
		one, err1 := ParseSize(new(big.Int).SetUint64(gb).String()+"GB", false)
		two, err2 := ParseSize(tb+"TB", false)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		a, _ := one.Resolve(q)
		b, _ := two.Resolve(q)
		if a.Bytes != b.Bytes || (gb >= 50) != (one.Kind == SizeMarketing) {
			t.Fatalf("%d GB is %d, %s TB is %d", gb, a.Bytes, tb, b.Bytes)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"6.4TB", "max", "6.14T", "100%", "12502446768 blocks", "0.8TiB"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, exact bool) {
		s, err := ParseSize(text, exact)
		if err != nil {
			if _, ok := errors.AsType[*UsageError](err); !ok {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		c, err := s.Resolve(CapacityQuestion{BlockBytes: 4096, TotalBytes: total768, AvailableBytes: total768})
		if err == nil && (c.Blocks == 0 || c.Bytes > total768) {
			t.Fatalf("%q: %+v", text, c)
		}
		again, err := ParseSize(s.Text, exact)
		if err != nil || again.Kind != s.Kind {
			t.Fatalf("%q is printed as %q, which reads as %+v, %v", text, s.Text, again, err)
		}
	})
}

func TestBytes_text(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 4096: "4,096 bytes", 1 << 20: "1,048,576 bytes (1.05 MB, 1.00 MiB)",
		total64:    "6,401,252,745,216 bytes (6.40 TB, 5.82 TiB)",
		^uint64(0): "18,446,744,073,709,551,615 bytes (18.45 EB, 16.00 EiB)",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
