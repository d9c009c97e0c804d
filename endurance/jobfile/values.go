package jobfile

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"nvop/endurance/run"
)

// maxBlockBytes is the largest operation that can be asked for.
const maxBlockBytes = 64 << 20

// units of amounts of data.
func unitBytes(unit string) (uint64, bool) {
	u := map[string]uint64{
		"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60,
	}
	n, ok := u[unit]
	return n, ok
}

// Bytes reads an amount of data with its unit, exactly: 100GB, 1.5TiB. A bare
// number is refused.
func Bytes(text string) (uint64, error) {
	number := strings.TrimRight(text, "BkKMGTPEi")
	unit := text[len(number):]
	number = strings.TrimSpace(number)
	factor, ok := unitBytes(unit)
	if !ok {
		return 0, fmt.Errorf("%q is no amount of data: a number with a unit, such as 100GB or 2TiB, not a bare number", text)
	}
	v, ok := decimal(number)
	if !ok {
		return 0, fmt.Errorf("%q is no amount of data: %q is no number", text, number)
	}
	v.Mul(v, new(big.Rat).SetUint64(factor))
	if !v.IsInt() || !v.Num().IsUint64() || v.Num().Sign() == 0 {
		return 0, fmt.Errorf("%q is no whole number of bytes that can be counted", text)
	}
	return v.Num().Uint64(), nil
}

// decimal reads a plain decimal number of up to 30 characters, not negative.
func decimal(text string) (*big.Rat, bool) {
	if text == "" || len(text) > 30 || strings.Trim(text, "0123456789.") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// Block reads the size of an operation. k and M alone are KiB and MiB, as every
// I/O tool has them.
func Block(text string) (uint32, error) {
	long := text
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			long = text[:n-1] + "KiB"
		case 'm', 'M':
			long = text[:n-1] + "MiB"
		}
	}
	v, err := Bytes(long)
	if err == nil && v > maxBlockBytes {
		err = fmt.Errorf("operations of %q: 64 MiB at most", text)
	}
	return uint32(v), err
}

// fioBlock reads a size as a block size split has it, where a bare number is
// bytes.
func fioBlock(text string) (uint32, error) {
	if strings.Trim(text, "0123456789") == "" {
		text += "B"
	}
	return Block(text)
}

// Duration reads a time; unlike Go's own it knows days. It is not 0.
func Duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, ok := decimal(days); ok {
			n.Mul(n, new(big.Rat).SetInt64(int64(24*time.Hour)))
			if n.IsInt() && n.Num().IsInt64() && n.Num().Sign() > 0 {
				return time.Duration(n.Num().Int64()), nil
			}
		}
	} else if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, fmt.Errorf("duration %q: give a number with a unit, such as 90s, 24h or 7d", text)
}

// Milli reads a number in thousandths, rounded up: drive writes, exponents.
func Milli(text string) (uint64, error) {
	v, ok := decimal(text)
	if ok {
		v.Mul(v, big.NewRat(1000, 1))
		n := new(big.Int).Add(v.Num(), v.Denom())
		n.Quo(n.Sub(n, big.NewInt(1)), v.Denom())
		if n.IsUint64() && n.Sign() > 0 {
			return n.Uint64(), nil
		}
	}
	return 0, fmt.Errorf("%q is no number above 0", text)
}

// The words for what is written.
const (
	// DataFull makes every block anew; DataHeaders writes only each block's header
	// over a body that stays ([run.Data]).
	DataFull, DataHeaders = "full", "headers"
)

// HeadersHaveNoRatio says why what is written cannot be both.
func HeadersHaveNoRatio(compress, dedup string) string {
	return fmt.Sprintf("where only headers are written, the bodies are what they are: leave out %s and %s", compress, dedup)
}

// Ratio reads a ratio as storage systems give theirs: 2, 2.5 or 2:1 is how many
// bytes of data come to one that is stored. It returns what is stored in
// thousandths; 0 for a ratio of 1, where nothing is saved ([run.Data]).
func Ratio(text string) (uint16, error) {
	const most = 100
	v, ok := decimal(strings.TrimSuffix(text, ":1"))
	if !ok || v.Cmp(big.NewRat(1, 1)) < 0 || v.Cmp(big.NewRat(most, 1)) > 0 {
		return 0, fmt.Errorf("%q is no ratio: how many bytes come to one that is stored, 1 to %d, such as 2 or 2.5:1", text, most)
	}
	v.Quo(big.NewRat(1000, 1), v)
	v.Add(v, big.NewRat(1, 2))
	permille := new(big.Int).Quo(v.Num(), v.Denom()).Uint64()
	if permille >= 1000 {
		return 0, nil
	}
	return uint16(permille), nil
}

// Percent reads a share of 100 with up to two decimals, in hundredths of a
// percent. The sign is optional.
func Percent(text string) (uint32, error) {
	v, ok := decimal(strings.TrimSuffix(text, "%"))
	if ok {
		v.Mul(v, big.NewRat(100, 1))
		if v.IsInt() && v.Num().IsUint64() && v.Num().Uint64() <= 10_000 {
			return uint32(v.Num().Uint64()), nil
		}
	}
	return 0, fmt.Errorf("%q is no share of 100 with at most two decimals", text)
}

// Split reads a mix of sizes as fio's bssplit has it: 4k/60:64k/40, and after a
// comma that of writes. A missing share is what is left, evenly.
func Split(text string) (sizes, writes []run.SizeShare, err error) {
	first, second, both := strings.Cut(text, ",")
	if sizes, err = split(first); err != nil || !both {
		return sizes, nil, err
	}
	writes, err = split(second)
	return sizes, writes, err
}

func split(text string) ([]run.SizeShare, error) {
	const whole = 10_000
	var sizes []run.SizeShare
	var open []int
	left := uint32(whole)
	for part := range strings.SplitSeq(text, ":") {
		size, share, given := strings.Cut(part, "/")
		n, err := fioBlock(size)
		if err != nil {
			return nil, fmt.Errorf("bssplit %q: %w", text, err)
		}
		s := run.SizeShare{Bytes: n}
		if given = given && share != ""; given {
			if s.Permyriad, err = Percent(share); err != nil {
				return nil, fmt.Errorf("bssplit %q: %w", text, err)
			}
			if s.Permyriad > left {
				return nil, fmt.Errorf("bssplit %q: the shares are more than 100 %%", text)
			}
			left -= s.Permyriad
		} else {
			open = append(open, len(sizes))
		}
		if given && s.Permyriad == 0 {
			continue // fio's examples have sizes of no share
		}
		sizes = append(sizes, s)
	}
	for i, at := range open {
		share := left / uint32(len(open)-i)
		sizes[at].Permyriad, left = share, left-share
	}
	if left != 0 || len(sizes) == 0 {
		return nil, fmt.Errorf("bssplit %q: the shares add up to %d.%02d %%", text, (whole-left)/100, (whole-left)%100)
	}
	return sizes, nil
}

// Zones reads skewed addresses as fio's random_distribution=zoned has them:
// 50/5:30/15:20/80 gives half of the operations to the first twentieth.
func Zones(text string) ([]run.Zone, error) {
	var zones []run.Zone
	permille := func(s string) (uint32, error) {
		n, err := Percent(s)
		if err == nil && n%10 != 0 {
			err = fmt.Errorf("%q: tenths of a percent at the finest", s)
		}
		return n / 10, err
	}
	for part := range strings.SplitSeq(text, ":") {
		access, space, ok := strings.Cut(part, "/")
		if !ok {
			return nil, fmt.Errorf("zones %q: write OPERATIONS/SPACE in percent, separated by colons", text)
		}
		a, err := permille(access)
		if err != nil {
			return nil, fmt.Errorf("zones %q: %w", text, err)
		}
		s, err := permille(space)
		if err != nil {
			return nil, fmt.Errorf("zones %q: %w", text, err)
		}
		zones = append(zones, run.Zone{SpacePermille: s, AccessPermille: a})
	}
	return zones, nil
}

// Celsius reads a temperature: 75, 75C.
func Celsius(text string) (int32, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "C"), 10, 16)
	if err != nil || n < -273 {
		return 0, fmt.Errorf("%q is no temperature in degrees Celsius", text)
	}
	return int32(n), nil
}

// PauseRule reads AT or AT:RESUME, in degrees Celsius; it goes on five degrees
// below where nothing is said.
func PauseRule(text string) (run.Pause, error) {
	const cooler = 5
	hot, cool, given := strings.Cut(text, ":")
	at, err := Celsius(hot)
	if err != nil {
		return run.Pause{}, err
	}
	p := run.Pause{AtCelsius: at, ResumeCelsius: at - cooler}
	if given {
		p.ResumeCelsius, err = Celsius(cool)
	}
	if err == nil && p.ResumeCelsius >= p.AtCelsius {
		err = fmt.Errorf("a pause at %d C that ends at %d C: it has to end lower than it begins", p.AtCelsius, p.ResumeCelsius)
	}
	return p, err
}

// stopKinds are the rules by name.
func stopKinds() []run.StopKind {
	return []run.StopKind{run.StopBytes, run.StopDriveWrites, run.StopDuration, run.StopPercentageUsed, run.StopSpare,
		run.StopTemperature, run.StopMediaErrors, run.StopCriticalWarning, run.StopLatency}
}

// StopNames lists the rules.
func StopNames() string {
	var names []string
	for _, k := range stopKinds() {
		names = append(names, k.Name())
	}
	return strings.Join(names, ", ")
}

// StopRule reads the value of the rule of a name. critical-warning takes none
// ("true" in a file).
func StopRule(name, value string) (run.StopRule, error) {
	for _, k := range stopKinds() {
		if k.Name() == name {
			return stopRule(k, value)
		}
	}
	return run.StopRule{}, fmt.Errorf("no stop rule %q; there are %s", name, StopNames())
}

func stopRule(k run.StopKind, value string) (run.StopRule, error) {
	r := run.StopRule{Kind: k}
	factor, suffix := 1.0, ""
	switch k {
	case run.StopCriticalWarning:
		if value != "" && value != "true" {
			return r, fmt.Errorf("critical-warning takes no value")
		}
		r.Limit = 0xFF
		return r, nil
	case run.StopBytes:
		n, err := Bytes(value)
		if err == nil && n > math.MaxInt64 {
			err = fmt.Errorf("%q is more than can be counted", value)
		}
		r.Limit = int64(n)
		return r, err
	case run.StopLatency:
		d, err := Duration(value)
		r.Limit = int64(d)
		return r, err
	case run.StopDriveWrites:
		factor = 1000
	case run.StopDuration:
		factor, suffix = float64(time.Hour), "h"
	case run.StopPercentageUsed, run.StopSpare:
		suffix = "%"
	case run.StopTemperature:
		suffix = "C"
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(value, suffix), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*factor > 1e18 {
		return r, fmt.Errorf("%s: %q is not a number", k.Name(), value)
	}
	r.Limit = int64(math.Ceil(v * factor))
	return r, nil
}
